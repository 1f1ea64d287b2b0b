"""The options of each group: files, and rows of a table where a file would have a line or two.

Files are stored in conf/ and in the other folders of Hydra's search path: those that were typed (`hydra.searchpath`),
and the folder `conf` of every package that is listed under `plugins`. Of two options with one name the first folder's
counts.

A row has the keys that a file would have, and Hydra, the help and all messages treat it as one. The rows are those of
conf/options.yaml and of a study's options.yaml, and one for every kind of corruption. These files may also say how rows
of the store spell an option with some of its keys (`spelled`), so that it can be typed so.
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
_typed_folders: list[Path] = []  # further folders of the command line


def tables() -> list[Path]:
    """The files with rows: conf/options.yaml and options.yaml of each study that has one."""
    files = [folder / "options.yaml" for folder in (CONF, *study_folders().values())]
    return [file for file in files if file.is_file()]


@cache
def rows() -> dict[Path, dict[str, Any]]:
    """The file in whose place each row stands -> the keys that it would have, its list of defaults included.

    >>> rows()[CONF / "recipe" / "resnet18.yaml"]
    {'defaults': ['resnet50', '_self_']}
    """
    keys_by_file: dict[Path, dict[str, Any]] = {}
    for table in tables():
        for group, options in plain_values(table).items():
            if not (CONF / group).is_dir():
                continue
            for name, keys in options.items():
                keys_by_file[CONF / group / f"{name}.yaml"] = keys

    for kind in CONSTANTS:
        keys_by_file[CORRUPTIONS / f"{kind}.yaml"] = {"defaults": ["corruption/all@_here_", "_self_"], "kinds": [kind]}
    return keys_by_file


@cache
def _spellings() -> list[tuple[str, re.Pattern[str], list[str]]]:
    """Group, pattern of a spelling, and the words that it stands for, with its fields in braces."""
    spellings = []
    for table in tables():
        for group, words_by_spelling in plain_values(table).get("spelled", {}).items():
            for spelling, words in words_by_spelling.items():
                spellings.append((group, _pattern_of(spelling), words))
    return spellings


def _pattern_of(spelling: str) -> re.Pattern[str]:
    """The pattern of a spelling with fields: {name}, of any letters but a slash, or {name:digits}.

    >>> _pattern_of("{kind}/{severity:digits}").fullmatch("fog/3").groupdict()
    {'kind': 'fog', 'severity': '3'}
    """

    def as_group(field: re.Match[str]) -> str:
        letters = r"\d+" if field[2] else "[^/]+"
        return f"(?P<{field[1]}>{letters})"

    return re.compile(re.sub(r"\{(\w+)(:digits)?\}", as_group, spelling))


def words_of(group: str, option: str) -> list[str]:
    """The words of a command line that select an option which rows of the store spell so; other options as they are.

    The values of its fields are checked by the option's class.

    >>> words_of("shift", "corruption/fog/3")
    ['shift=corruption/all', 'shift.kinds=[fog]', 'shift.severities=[3]']
    >>> words_of("shift", "corruption/fog")
    ['shift=corruption/fog']
    """
    for group_of_spelling, pattern, words in _spellings():
        spelled = pattern.fullmatch(option) if group_of_spelling == group else None
        if spelled is not None:
            return [word.format(**spelled.groupdict()) for word in words]
    return [f"{group}={option}"]


def store_rows() -> None:
    """Make the rows known to Hydra."""
    for file, keys in rows().items():
        group = file.parent.relative_to(CONF).as_posix()
        ConfigStore.instance().store(group=group, name=file.stem, node=keys)


def use_search_path(folders: Iterable[str]) -> None:
    """Look for options in these folders, too, in place of earlier ones: file://FOLDER or pkg://PACKAGE, as typed."""
    places = [_place_of(folder) for folder in folders]
    _typed_folders[:] = [place for place in places if place is not None]


def _place_of(folder: str) -> Path | None:
    """A folder of the search path on this machine; None for one that does not exist. Imports no package."""
    kind, _, place = folder.rpartition("://")
    if kind == "pkg":
        package, _, inside = place.replace("/", ".").partition(".")
        return _folder_in_package(package, inside.replace(".", "/"))
    path = Path(place)
    return path.resolve() if path.is_dir() else None


def _folder_in_package(package: str, inside: str) -> Path | None:
    spec = find_spec(package) if package.isidentifier() else None
    for place in (spec and spec.submodule_search_locations) or ():
        if Path(place, inside).is_dir():
            return Path(place, inside)
    return None


def plugin_folders() -> list[Path]:
    """The folder `conf` of each package that is listed under `plugins` and has one."""
    packages = dict.fromkeys(name.partition(".")[0] for name in plugins())
    places = [_folder_in_package(package, "conf") for package in packages]
    return [place for place in places if place is not None]


def _folders() -> list[Path]:
    return [CONF, *_typed_folders, *plugin_folders()]


def root_file(root: str) -> Path:
    """The file of a command's configuration: in conf/, or in the folder `conf` of a package."""
    files = [folder / f"{root}.yaml" for folder in _folders()]
    return next(file for file in files if file.is_file())


def option_files(group: str) -> dict[str, Path]:
    """The options of a group and of the folders in it, such as corruption/fog of shift -> their files, by name.

    A row counts as the file in whose place it stands.
    """
    files: dict[str, Path] = {}
    for folder in _folders():
        group_folder = folder / group
        rows_of_group = [file for file in rows() if file.is_relative_to(group_folder)]
        for file in (*group_folder.rglob("*.yaml"), *rows_of_group):
            name = file.relative_to(group_folder).with_suffix("").as_posix()
            files.setdefault(name, file)
    return dict(sorted(files.items()))


def option_names(group: str) -> list[str]:
    """The options of a group that are in no folder of it."""
    return [name for name in option_files(group) if "/" not in name]


def nested_options(group: str) -> list[str]:
    """The options of a group that are in folders of it, such as corruption/fog of shift."""
    return [name for name in option_files(group) if name.count("/") == 1]


def is_option(file: Path) -> bool:
    """Whether this file exists, or a row in its place."""
    return file.is_file() or file in rows()


def keys_in(file: Path) -> dict[str, Any]:
    """The keys of an option as they stand in its file or row. Raises FcaError for a file that is no configuration."""
    return rows()[file] if file in rows() else plain_values(file)


def built_on(file: Path) -> list[Path]:
    """The options of its group that an option builds on, in their order: later ones overrule earlier ones."""
    group = group_of(file)
    files_of_group = option_files(group.partition("/")[0] if file in rows() else group)
    entries = [entry for entry in keys_in(file).get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    names = [entry.removesuffix("@_here_") for entry in entries]
    return [files_of_group.get(name, file.parent / f"{name}.yaml") for name in names]


def group_of(file: Path) -> str:
    """The group of an option's file: its folder, relative to the folder of configurations that has it.

    >>> group_of(CONF / "shift" / "corruption" / "fog.yaml")
    'shift/corruption'
    """
    for folder in _folders():
        if file.is_relative_to(folder):
            return file.parent.relative_to(folder).as_posix()
    return file.parent.name
