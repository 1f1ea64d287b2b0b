"""Paths in a table of images, and the files below a root that they mean."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fca.data.splits import MAX_NAMES, first_few
from fca.names import comparison_key, quoted, visible
from fca.types import FcaError


def listed_paths(paths: Iterable[str], files: Collection[str], root: str) -> list[str]:
    """Each path as the listing of a root has it: without ./ and //, and with / for the \\ of Windows; "" stays.

    files: the paths below the root. A path with \\ that is one of them is taken as it stands.
    root:  the directory or archive: a full path that begins with it is taken from there on.

    >>> listed_paths(["./cat//1.png", "cat\\\\1.png", "a\\\\b.png", ""], {"cat/1.png", "a\\\\b.png"}, "photos")
    ['cat/1.png', 'cat/1.png', 'a\\\\b.png', '']
    >>> listed_paths(["/data/photos/cat/1.png"], {"cat/1.png"}, "/data/photos/")
    ['cat/1.png']
    """
    full_root = Path(root).expanduser()
    prefixes = {f"{os.path.abspath(full_root)}/", f"{os.path.realpath(full_root)}/"}  # noqa: PTH100  keeps links
    return [_listed(path, files, prefixes) if path else "" for path in paths]


def _listed(path: str, files: Collection[str], prefixes: Collection[str]) -> str:
    plain = posixpath.normpath(path)
    if plain in files:
        return plain
    if "\\" in plain:
        of_windows = posixpath.normpath(path.replace("\\", "/"))
        if of_windows in files:
            return of_windows
    for prefix in prefixes:
        if plain.startswith(prefix):
            return plain.removeprefix(prefix)
    return plain


def check_files(what: str, paths: Iterable[str], files: Collection[str], root: str) -> None:
    """Raises FcaError naming the paths that are no files below the root, with the file that another spelling means."""
    gone = [path for path in dict.fromkeys(paths) if path not in files]
    if not gone:
        return
    file_of = {comparison_key(path.replace("\\", "/")): path for path in files}
    named = []
    for path in gone[:MAX_NAMES]:
        meant = _meant(path, file_of)
        named.append(visible(path) if meant is None else f"{quoted(path)} (there is {quoted(meant)})")
    step = "correct the paths, which are relative to dataset.root"
    raise FcaError(what, first_few([*named, *gone[MAX_NAMES:]]), f"files in {root}", step)


def _meant(path: str, file_of: Mapping[str, str]) -> str | None:
    """The file that a path means if it is spelt otherwise, or begins with folders around the root; None for no file.

    file_of: `comparison_key` path -> the path.
    """
    parts = path.replace("\\", "/").split("/")
    for start in range(len(parts)):
        meant = file_of.get(comparison_key("/".join(parts[start:])))
        if meant is not None:
            return meant
    return None
