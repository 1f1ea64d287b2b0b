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
    """Rewrite paths from a table to the form in which the listing of the root has them.

    That is without ./ and //, relative to the root, and with / in place of the \\ of Windows. An empty path stays
    empty. A path that is no file below the root loses only ./, // and the root.

    files: the paths of all files below the root. A path with \\ that is one of them is not rewritten.
    root:  the directory or archive. If a path begins with it, the rest of the path is taken.

    >>> listed_paths(["./cat//1.png", "cat\\\\1.png", "a\\\\b.png", ""], {"cat/1.png", "a\\\\b.png"}, "photos")
    ['cat/1.png', 'cat/1.png', 'a\\\\b.png', '']
    >>> listed_paths(["/data/photos/cat/1.png"], {"cat/1.png"}, "/data/photos/")
    ['cat/1.png']
    """
    full_root = Path(root).expanduser()
    # With the links in the path of the root kept, and with them resolved.
    prefixes = {f"{os.path.abspath(full_root)}/", f"{os.path.realpath(full_root)}/"}  # noqa: PTH100
    return [_path_in_listing(path, files, prefixes) if path else "" for path in paths]


def _path_in_listing(path: str, files: Collection[str], prefixes: Collection[str]) -> str:
    """Rewrite one path to the form in which the root's listing has it: relative to the root, with slashes.

    A path that is in the listing in no form is returned all the same, so that a caller can name it in an error.

    files:    the paths of all files below the root.
    prefixes: the path of the root and a slash, once with its links kept and once with its links resolved.
    """
    normal_path = posixpath.normpath(path)
    if normal_path in files:
        return normal_path
    if "\\" in normal_path:
        path_from_windows = posixpath.normpath(path.replace("\\", "/"))
        if path_from_windows in files:
            return path_from_windows

    # A full path becomes relative to the root.
    for prefix in prefixes:
        if normal_path.startswith(prefix):
            return normal_path.removeprefix(prefix)
    return normal_path


def check_files(what: str, paths: Iterable[str], files: Collection[str], root: str) -> None:
    """Raise FcaError if some paths are no files below the root; its message proposes the file that is probably meant.

    what:  what the paths are, for the message.
    files: the paths of all files below the root.
    """
    missing = [path for path in dict.fromkeys(paths) if path not in files]
    if not missing:
        return

    # The keys have / in place of \, as do the paths for which `_file_probably_meant` looks among them.
    file_by_key = {comparison_key(path.replace("\\", "/")): path for path in files}
    descriptions = []
    for path in missing[:MAX_NAMES]:  # the message shows no more
        meant = _file_probably_meant(path, file_by_key)
        descriptions.append(visible(path) if meant is None else f"{quoted(path)} (there is {quoted(meant)})")
    step = "correct the paths, which are relative to dataset.root"
    raise FcaError(what, first_few([*descriptions, *missing[MAX_NAMES:]]), f"files in {root}", step)


def _file_probably_meant(path: str, file_by_key: Mapping[str, str]) -> str | None:
    """The file whose path differs only in spelling (as upper case), or lacks the first folders; None if there is none.

    file_by_key: the spelling-independent key of a file's path (see `comparison_key`) -> the path.
    """
    names = path.replace("\\", "/").split("/")
    for start in range(len(names)):  # first the whole path, then without its first folder, and so on
        file = file_by_key.get(comparison_key("/".join(names[start:])))
        if file is not None:
            return file
    return None
