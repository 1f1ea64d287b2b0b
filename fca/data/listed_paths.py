"""Paths in a table of images, and the files below a root that they mean."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable

from fca.data.splits import shown
from fca.names import comparable, quoted, visible
from fca.types import FcaError


def listed_paths(paths: Iterable[str], files: Collection[str]) -> list[str]:
    """Each path as the listing of a root has it: without ./ and //, and with / for the \\ of Windows; "" stays.

    files: the paths below the root. A path with \\ that is one of them is taken as it stands.

    >>> listed_paths(["./cat//1.png", "cat\\\\1.png", "a\\\\b.png", ""], {"cat/1.png", "a\\\\b.png"})
    ['cat/1.png', 'cat/1.png', 'a\\\\b.png', '']
    """
    return [_listed(path, files) if path else "" for path in paths]


def _listed(path: str, files: Collection[str]) -> str:
    plain = posixpath.normpath(path)
    if "\\" not in plain or plain in files:
        return plain
    of_windows = posixpath.normpath(path.replace("\\", "/"))
    return of_windows if of_windows in files else plain


def check_files(what: str, paths: Iterable[str], files: Collection[str], root: str) -> None:
    """Raises FcaError naming the paths that are no files below the root, with the file that another spelling means."""
    gone = [path for path in dict.fromkeys(paths) if path not in files]
    if not gone:
        return
    meant = {comparable(path.replace("\\", "/")): path for path in files}
    named = []
    for path in gone:
        there = meant.get(comparable(path.replace("\\", "/")))
        named.append(visible(path) if there is None else f"{quoted(path)} (there is {quoted(there)})")
    raise FcaError(what, shown(named), f"files in {root}", "correct the paths")
