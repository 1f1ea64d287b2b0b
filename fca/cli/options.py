"""The options of each group: files, and entries of an options.yaml in place of files of a line or two.

Files are in conf/ and in the other folders of Hydra's search path: typed ones (`hydra.searchpath`), and the folder
`conf` of every package that is listed under `plugins`. Of two options with one name, that of the first folder counts.

An entry has the keys of a file, and Hydra, the help and all messages treat it as one. Entries come from
conf/options.yaml and a study's options.yaml, and there is one for every kind of corruption. These files may also
declare how stored results spell an option with some of its keys (`spelled`), so that this spelling can be typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from fca.cli.places import CONF, study_folders
from fca.cli.trust import plain_values
from fca.plugins import plugins
from fca.shifts.constants import CONSTANTS

CORRUPTIONS = CONF / "shift" / "corruption"
_typed_folders: list[Path] = []  # those of hydra.searchpath on the command line


def tables() -> list[Path]:
    """The files that declare options as entries: conf/options.yaml, and options.yaml of each study that has one."""
    files = [folder / "options.yaml" for folder in (CONF, *study_folders().values())]
    return [file for file in files if file.is_file()]


@cache
def rows() -> dict[Path, dict[str, Any]]:
    """The options that have no file of their own: path of the file that the option would have -> its keys.

    They are the entries of conf/options.yaml and of the options.yaml of studies, and one option for each kind of
    corruption, such as corruption/fog of the group shift.

    >>> rows()[CONF / "recipe" / "resnet18.yaml"]
    {'defaults': ['resnet50', '_self_']}
    """
    keys_of_file: dict[Path, dict[str, Any]] = {}
    for options_file in tables():
        for group, options in plain_values(options_file).items():
            if (CONF / group).is_dir():  # other keys, such as `spelled`, are no groups
                for name, keys in options.items():
                    keys_of_file[CONF / group / f"{name}.yaml"] = keys
    for kind in CONSTANTS:  # the kinds of corruption; each builds on the option corruption/all
        keys = {"defaults": ["corruption/all@_here_", "_self_"], "kinds": [kind]}
        keys_of_file[CORRUPTIONS / f"{kind}.yaml"] = keys
    return keys_of_file


@cache
def _spellings() -> list[tuple[str, re.Pattern[str], list[str]]]:
    """The spellings of options in rows of the store (stored results), as each options.yaml declares them.

    A spelling combines an option with some of its keys, such as the shift corruption/fog/3. Each entry has the group
    of the option, the pattern of the spelling, and the words of a command line that the spelling stands for. The words
    have the named parts of the pattern in braces: shift.kinds=[{kind}].
    """
    spellings = []
    for options_file in tables():
        for group, words_of_spelling in plain_values(options_file).get("spelled", {}).items():
            for spelling, words in words_of_spelling.items():
                spellings.append((group, _pattern_of(spelling), words))
    return spellings


def _pattern_of(spelling: str) -> re.Pattern[str]:
    """The regular expression for a spelling with parts in braces, each of which becomes a named group.

    {name} matches any text without a slash, {name:digits} matches digits.

    >>> _pattern_of("{kind}/{severity:digits}").fullmatch("fog/3").groupdict()
    {'kind': 'fog', 'severity': '3'}
    """

    def as_group(part: re.Match[str]) -> str:
        letters = r"\d+" if part[2] else "[^/]+"
        return f"(?P<{part[1]}>{letters})"

    return re.compile(re.sub(r"\{(\w+)(:digits)?\}", as_group, spelling))


def words_of(group: str, option: str) -> list[str]:
    """The words of a command line for an option that is spelled as in rows of the store; else GROUP=OPTION.

    The values in a spelling are not checked here, but by the option's class.

    >>> words_of("shift", "corruption/fog/3")
    ['shift=corruption/all', 'shift.kinds=[fog]', 'shift.severities=[3]']
    >>> words_of("shift", "corruption/fog")
    ['shift=corruption/fog']
    """
    for spelled_group, pattern, words in _spellings():
        match = pattern.fullmatch(option) if spelled_group == group else None
        if match is not None:
            return [word.format(**match.groupdict()) for word in words]
    return [f"{group}={option}"]


def store_rows() -> None:
    """Register the options that have no file (see `rows`) with Hydra, which finds them like files."""
    for file, keys in rows().items():
        group = file.parent.relative_to(CONF).as_posix()
        ConfigStore.instance().store(group=group, name=file.stem, node=keys)


def use_search_path(folders: Iterable[str]) -> None:
    """From now on, also look for options in these folders; the folders of an earlier call are forgotten.

    folders: file://FOLDER or pkg://PACKAGE, as typed. Folders that do not exist are left out.
    """
    paths = [_path_of(folder) for folder in folders]
    _typed_folders[:] = [path for path in paths if path is not None]


def _path_of(folder: str) -> Path | None:
    """The path of a folder of Hydra's search path; None if it does not exist. No package is imported.

    folder: a path, file://PATH, or pkg://PACKAGE/SUBFOLDER, which may have dots in place of slashes.
    """
    scheme, _, location = folder.rpartition("://")
    if scheme == "pkg":
        package, _, subfolder = location.replace("/", ".").partition(".")
        return _folder_in_package(package, subfolder.replace(".", "/"))
    path = Path(location)
    return path.resolve() if path.is_dir() else None


def _folder_in_package(package: str, subfolder: str) -> Path | None:
    """The path of a subfolder of a package; None if Python finds no such package, or if it has no such folder."""
    # a name that is no identifier cannot be imported, although find_spec may find a folder of this name
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or spec.submodule_search_locations is None:
        return None
    for package_folder in spec.submodule_search_locations:  # a namespace package has several
        path = Path(package_folder, subfolder)
        if path.is_dir():
            return path
    return None


def plugin_folders() -> list[Path]:
    """The folder `conf` of each package that is listed under `plugins` and has one."""
    packages = dict.fromkeys(name.partition(".")[0] for name in plugins())
    folders = [_folder_in_package(package, "conf") for package in packages]
    return [folder for folder in folders if folder is not None]


def _folders() -> list[Path]:
    return [CONF, *_typed_folders, *plugin_folders()]


def root_file(root: str) -> Path:
    """The file of a command's configuration: in conf/, or in the folder `conf` of a package."""
    files = [folder / f"{root}.yaml" for folder in _folders()]
    return next(file for file in files if file.is_file())


def option_files(group: str) -> dict[str, Path]:
    """Name of each option of a group -> its file, in alphabetical order, from all folders of configurations.

    The name of an option in a subfolder includes the subfolder, such as corruption/fog of the group shift. An option
    that is only an entry of an options.yaml has the path of the file that it would have, which does not exist.
    """
    files: dict[str, Path] = {}
    for folder in _folders():
        group_folder = folder / group
        paths_of_entries = [file for file in rows() if file.is_relative_to(group_folder)]
        for file in [*group_folder.rglob("*.yaml"), *paths_of_entries]:
            name = file.relative_to(group_folder).with_suffix("").as_posix()
            files.setdefault(name, file)  # if two folders have an option of this name, the first folder counts
    return dict(sorted(files.items()))


def option_names(group: str) -> list[str]:
    """The options of a group that are in no subfolder of it."""
    return [name for name in option_files(group) if "/" not in name]


def nested_options(group: str) -> list[str]:
    """The options in subfolders of a group, such as corruption/fog of shift."""
    return [name for name in option_files(group) if name.count("/") == 1]


def is_option(file: Path) -> bool:
    """Whether this path is the file of an option, or of an option that is only an entry of an options.yaml."""
    return file.is_file() or file in rows()


def keys_in(file: Path) -> dict[str, Any]:
    """The keys in the file of an option, or in its entry of an options.yaml.

    Raises FcaError for a file that is not a configuration.
    """
    return rows()[file] if file in rows() else plain_values(file)


def built_on(file: Path) -> list[Path]:
    """The files of the options on which an option builds, in order: the keys of a later file replace earlier ones.

    They are the entries of its list of defaults that name an option of its own group.
    file: of the option; for an entry of an options.yaml, the path of the file that it would have.
    """
    group = group_of(file)
    # an entry names its base from the top group: shift/corruption/fog builds on corruption/all of shift
    files = option_files(group.partition("/")[0] if file in rows() else group)
    entries = [entry for entry in keys_in(file).get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    names = [entry.removesuffix("@_here_") for entry in entries]  # @_here_: its keys go where the keys of this file go
    return [files.get(name, file.parent / f"{name}.yaml") for name in names]


def group_of(file: Path) -> str:
    """The group of an option's file: its folder, relative to its folder of configurations.

    >>> group_of(CONF / "shift" / "corruption" / "fog.yaml")
    'shift/corruption'
    """
    for folder in _folders():
        if file.is_relative_to(folder):
            return file.parent.relative_to(folder).as_posix()
    return file.parent.name  # of a file outside of all folders of configurations
