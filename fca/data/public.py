"""Public sets as their authors packed them: where a tree lies, how it is fetched, whether it is whole."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from fca.data.files import Directory, ImageReader
from fca.data.splits import Share, assemble, shown
from fca.types import FcaError, ImageData

AS_RELEASED = "fca"
"""The value of `compat` that splits a set as the Few-Class Arena was released (arXiv:2411.01099, its code of 2025)."""


def released(compat: str | None) -> bool:
    """Whether to split as the Few-Class Arena was released. Raises FcaError for another value than `fca` and null.

    >>> released("fca"), released(None)
    (True, False)
    """
    if compat not in (None, AS_RELEASED):
        raise FcaError("compat", compat, f"null or {AS_RELEASED}", "see docs/adr/0010-public-sets.md")
    return compat is not None


def found(root: str, places: Sequence[str], source: str, fetch: Callable[[Any, str], object] | None = None) -> Path:
    """The folder of a public set's extracted tree; fetched first if it is not there and `fetch` is given.

    root:   `~` is expanded.    places: folders below it where the tree may lie, the one that `fetch` makes first.
    source: where people find it, for messages.
    fetch:  torchvision's module of data sets, folder to fill -> downloads, checks the md5 and extracts into it. It
            works in a folder beside, and what it made is renamed at the end: a tree that is there is whole. Processes
            that want the same set at once wait for one that fetches it.

    Raises FcaError naming the folder to bring when the set is absent, cannot be fetched or is damaged.
    """
    base = Path(root).expanduser()
    if (folder := _first(base, places)) is not None:
        return folder
    needs = f"a folder that holds {' or '.join(places)}"
    if fetch is None:
        raise FcaError("dataset.root", base, needs, f"bring it: {source}")
    top = places[0].split("/")[0]
    try:
        base.mkdir(parents=True, exist_ok=True)
        with FileLock(base / f".{top}.lock"):
            if _first(base, places) is None:
                _fetch(base, top, fetch)
    except Exception as error:  # no network, no space, a wrong checksum, a cut archive: many kinds
        raise FcaError(
            "dataset.root", base, needs, f"bring it ({source}), or try the download again: {error}"
        ) from error
    if (folder := _first(base, places)) is None:
        raise FcaError("dataset.root", base, needs, f"the download holds no {places[0]}; bring it: {source}")
    return folder


def public_data(
    name: str, folder: Path, listed: pd.DataFrame, val: Share, mirror: bool, together: str | None = None
) -> ImageData:
    """The data set of the listed files; `image_id` is a path below `folder`. File sizes enter the fingerprint.

    together: a column; images that share its value are never in both train and val, as far as val is carved here.

    Raises FcaError naming listed files that are not there.
    """

    def reader(items: pd.DataFrame) -> ImageReader:
        return ImageReader(Directory(str(folder)), items["image_id"].tolist())

    if "bytes" not in listed:
        listed = listed.assign(bytes=_sizes(name, folder, listed["image_id"].tolist()))
    return assemble(name, listed, reader, val, mirror=mirror, together=together)


def lines(file: Path) -> list[str]:
    """The lines of a list that comes with a set, without those that are blank. Raises FcaError when it is not there."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FcaError("file", file, "the list that comes with the set", "bring it with the images") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def matching(folder: Path, pattern: str, like: str) -> pd.DataFrame:
    """A line (`image_id`, `label`, `bytes`) for every file class/file below `folder` whose path matches the pattern.

    What else an archive holds is ignored. like: a matching path, for the FcaError when there is none.
    """
    found = [(path, path.split("/")[0], size) for path, size in Directory(str(folder)).listing().files]
    kept = [line for line in sorted(found) if re.fullmatch(pattern, line[0])]
    if not kept:
        raise FcaError(f"images in {folder}", 0, f"files like {like}", "bring it as its authors packed it")
    return pd.DataFrame(kept, columns=["image_id", "label", "bytes"])


def whole(what: str, count: int, expected: int | None, folder: Path, key: str) -> None:
    """Raises FcaError unless there are as many as published; `expected` None = whatever there is.

    A set without a list of its files cannot show a gap in any other way.
    """
    if expected is not None and count != expected:
        step = f"{folder} is not whole: remove it and bring it again, or accept what is there: dataset.{key}=null"
        raise FcaError(what, count, f"{expected}, as published", step)


def _sizes(name: str, folder: Path, paths: list[str]) -> list[int]:
    """In bytes; only the listed files are looked at."""
    sizes = [_size(folder / path) for path in paths]
    if missing := [path for path, size in zip(paths, sizes, strict=True) if size is None]:
        step = f"{folder} is not whole: remove it, and bring or download it again"
        raise FcaError(f"files of {name} that are not there", shown(missing), "all that its lists name", step)
    return [size for size in sizes if size is not None]


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _first(base: Path, places: Sequence[str]) -> Path | None:
    return next((base / place for place in places if (base / place).is_dir()), None)


def _fetch(base: Path, top: str, fetch: Callable[[Any, str], object]) -> None:
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    from torchvision import datasets

    part = base / f"{top}.part"
    shutil.rmtree(part / top, ignore_errors=True)  # of one that was ended while it extracted; its archive may be whole
    fetch(datasets, str(part))
    if (part / top).is_dir():
        (part / top).rename(base / top)
        shutil.rmtree(part)
