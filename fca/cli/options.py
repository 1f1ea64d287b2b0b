"""The options of the groups in conf/: files, and rows of a table where a file would have a line or two.

A row has the keys that a file would have, and Hydra, the help and all messages treat it as one. The rows are those of
conf/options.yaml and one for every kind of corruption.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from fca.cli.trust import plain_values
from fca.shifts.constants import CONSTANTS

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = next(folder for folder in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if folder.is_dir())
TABLE = CONF / "options.yaml"
GROUPS_WITH_ROWS = ("recipe", "shift")
CORRUPTIONS = CONF / "shift" / "corruption"


@cache
def rows() -> dict[Path, dict[str, Any]]:
    """The file in whose place each row stands -> the keys that it would have, its list of defaults included.

    >>> rows()[CONF / "recipe" / "resnet18.yaml"]
    {'defaults': ['resnet50', '_self_']}
    """
    table = plain_values(TABLE)
    of_table = {
        CONF / group / f"{name}.yaml": keys for group in GROUPS_WITH_ROWS for name, keys in table[group].items()
    }
    of_corruptions = {
        CORRUPTIONS / f"{kind}.yaml": {"defaults": ["corruption/all@_here_", "_self_"], "kinds": [kind]}
        for kind in CONSTANTS
    }
    return {**of_table, **of_corruptions}


def store_rows() -> None:
    """Make the rows known to Hydra."""
    for file, keys in rows().items():
        group = file.parent.relative_to(CONF).as_posix()
        ConfigStore.instance().store(group=group, name=file.stem, node=keys)


def option_files(folder: Path) -> list[Path]:
    """The files of all options in a folder and the folders in it, also those in whose place there is a row."""
    return sorted({*folder.rglob("*.yaml"), *(file for file in rows() if file.is_relative_to(folder))})


def option_names(group: str) -> list[str]:
    """The options of a group that lie in no folder of it."""
    return [file.stem for file in option_files(CONF / group) if file.parent == CONF / group]


def nested_options(group: str) -> list[str]:
    """The options of a group that lie in folders of it, such as corruption/fog of shift."""
    inner = [file for file in option_files(CONF / group) if file.parent.parent == CONF / group]
    return [f"{file.parent.name}/{file.stem}" for file in inner]


def is_option(file: Path) -> bool:
    """Whether there is this file, or a row in its place."""
    return file.is_file() or file in rows()


def keys_in(file: Path) -> dict[str, Any]:
    """The keys of an option as they stand in its file or row. Raises FcaError for a file that is no configuration."""
    return rows()[file] if file in rows() else plain_values(file)


def built_on(file: Path) -> list[Path]:
    """The files of its group that an option builds on, in their order: later ones overrule earlier ones."""
    folder = CONF / file.relative_to(CONF).parts[0] if file in rows() else file.parent
    entries = [entry for entry in keys_in(file).get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    return [folder / f"{entry.removesuffix('@_here_')}.yaml" for entry in entries]
