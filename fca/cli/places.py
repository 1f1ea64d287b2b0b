"""The folders of configurations and studies: conf/, the folders of fca/studies, and packages that `plugins` lists.

Studies are found by listing folders; nothing of them is imported here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = next(folder for folder in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if folder.is_dir())
STUDIES = _PACKAGE / "studies"
# plugins=a,b or plugins=[a,b]; group 1: what stands in the brackets
_PLUGINS_WORD = re.compile(r"plugins=\[?([^\]]*)\]?")


def study_folders(plugins: Iterable[str] = ()) -> dict[str, Path]:
    """Package name -> folder, for each study of fca in alphabetical order, then for each of these plugins.

    plugins: names of modules; a.b.c stands for its outermost package a. A package that Python does not find is left out
    here, because `fca.plugins` refuses it with an error.

    >>> study_folders()["fca.studies.irt"].name
    'irt'
    """
    names = sorted(folder.parent.name for folder in STUDIES.glob("*/__init__.py"))
    folders = {f"fca.studies.{name}": STUDIES / name for name in names}
    for package in dict.fromkeys(name.partition(".")[0] for name in plugins):
        folder = _folder_of(package)
        if folder is not None:
            folders[package] = folder
    return folders


def typed_plugins(words: Sequence[str]) -> list[str]:
    """The names of plugins in the environment variable FCA_PLUGINS, then those in words of the form plugins=...

    words: of a command line. They are read before anything is composed, since plugins bring commands and folders.

    >>> typed_plugins(["seed=1", "plugins=[my_study,my_models]"])
    ['my_study', 'my_models']
    """
    lists = [os.environ.get("FCA_PLUGINS", "")]
    for word in words:
        match = _PLUGINS_WORD.fullmatch(word)
        if match is not None:
            lists.append(match[1])

    names = [name.strip() for name in ",".join(lists).split(",")]
    return [name for name in names if name]


def _folder_of(package: str) -> Path | None:
    """The folder of a package, without importing it; None if Python does not find it, or if it is a single module."""
    if not package.isidentifier():  # find_spec raises an error for some other texts
        return None

    from importlib.util import find_spec  # most commands list no plugin

    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(map(Path, spec.submodule_search_locations), None)
