"""Images in tar shards, as WebDataset writes them: key.jpg and key.cls or key.json; read from where they lie."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import xxhash

from fca.data.content import inside
from fca.data.files import LARGEST, SUFFIXES, WALKERS, decode, name_of
from fca.data.given_splits import Splits, known_split
from fca.data.splits import Share, assemble, shown
from fca.types import FcaError, ImageData, UnreadableImage

MEMBER = pa.schema(
    [("key", pa.string()), ("label", pa.string()), ("content", pa.string()), ("at", pa.int64()), ("size", pa.int64())]
)
"""An image in a file: its digest, and where its bytes lie."""


@dataclass(frozen=True)
class WebDataset:
    """`dataset=webdataset`: tar files, a sample of one image and its class under one key.

    root:    the folder of the .tar files, which may lie in folders; their names or folders name the split.
    label:   suffix of the member with the class as text; `json.NAME` = the value NAME of the member key.json.
    classes: class keys in the order of integer labels; null = the labels themselves, with leading zeros.
    name, splits, val, mirror: see fca.data.folder.Folder.
    """

    root: str
    val: Share
    name: str | None = None
    label: str = "cls"
    classes: list[str] | None = None
    splits: dict[str, str | None] | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images by what they contain, in one pass through each file that is new; nothing is unpacked.

        Raises FcaError for a damaged or compressed file, samples without a class, and two images under one key.
        """
        paths = files_in(self.root, (".tar",))
        look = [partial(inside, path, self.label, MEMBER, partial(_members, path, self.label)) for path in paths]
        with ThreadPoolExecutor(WALKERS) as pool:
            tables = list(pool.map(lambda of_file: of_file(), look))
        of_file = np.repeat(np.arange(len(paths)), [table.num_rows for table in tables])
        at, size = (np.concatenate([table[column].to_numpy() for table in tables]) for column in ("at", "size"))
        own = own_splits(self.root, paths, self.splits)
        listed = pd.concat(
            [table.select(["key", "label", "content"]).to_pandas() for table in tables], ignore_index=True
        )
        listed["split"] = np.array(own)[of_file]

        def read(row: int) -> bytes:
            with paths[of_file[row]].open("rb") as file:
                return os.pread(file.fileno(), int(size[row]), int(at[row]))

        return packed(self.name or name_of(self.root), listed, read, self.classes, self.val, self.splits, self.mirror)


def _members(path: Path, label: str) -> pa.Table:
    """The images of a tar file, as MEMBER."""
    suffix, _, field = label.partition(".")
    images, labels = dict[str, tuple[str, int, int]](), dict[str, str]()
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                folder, _, name = member.name.rpartition("/")
                stem, _, kind = name.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                if not (member.isreg() and stem) or (kind != suffix and not f".{kind}".lower().endswith(SUFFIXES)):
                    continue
                if member.size > LARGEST or member.issparse():
                    raise ValueError(f"{member.name:.200} has {member.size} bytes, at most {LARGEST} are read")
                content = os.pread(file.fileno(), member.size, member.offset_data)
                if (labels if kind == suffix else images).get(key) is not None:
                    raise ValueError(f"{key:.200} has two images or classes")
                if kind == suffix:
                    labels[key] = str(json.loads(content)[field] if field else content.decode()).strip()
                else:
                    images[key] = xxhash.xxh3_128_hexdigest(content), member.offset_data, member.size
            if os.pread(file.fileno(), 512, tar.offset) != bytes(512):
                raise ValueError("it has no end: it is cut or damaged")
            if lone := sorted(set(images) - {key for key, text in labels.items() if text}):
                raise ValueError(f"no {label} of {shown(lone)}")
            lines = [(key, labels[key], *images[key]) for key in images]
            return pa.table([*zip(*lines, strict=True)] if lines else [()] * len(MEMBER), MEMBER)
    except (tarfile.TarError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        allowed = f"a whole .tar, not compressed, with key.jpg (or another image) and key.{suffix}"
        raise FcaError("file", path, allowed, f"write it again, or set dataset.label: {error}") from error


# What files with many images share.


def files_in(root: str, suffixes: tuple[str, ...]) -> list[Path]:
    """Such files of a folder, sorted. Raises FcaError where there is none."""
    folder = Path(root).expanduser()
    found = sorted(path for path in folder.rglob("[!.]*") if path.suffix in suffixes and path.is_file())
    if not found:
        raise FcaError("dataset.root", root, f"a folder with {' or '.join(suffixes)} files", "set dataset.root to it")
    return found


def own_splits(root: str, paths: Iterable[Path], splits: Splits) -> list[str]:
    """The set's own name of each file's split: a known one in its path, else its name without numbers.

    >>> own_splits("/d", [Path("/d/imagenet-train-0003.tar"), Path("/d/shard_01.tar")], None)
    ['train', 'shard']
    """
    named = []
    for path in paths:
        place = path.relative_to(Path(root).expanduser()).with_suffix("").as_posix()
        known = [word for word in re.split(r"[-_/.]", place) if known_split(word, splits)]
        named.append(known[0] if known else re.sub(r"[-_.]?\d+(-of-\d+)?$", "", place) or "all")
    return named


def packed(
    name: str,
    listed: pd.DataFrame,
    read: Callable[[int], bytes],
    classes: Sequence[str] | None,
    val: Share,
    splits: Splits,
    mirror: bool,
) -> ImageData:
    """The data set of the images in such files.    listed: key, label, content, split.    read: line -> bytes."""
    labels, ids = listed["label"], listed["split"] + "/" + listed["key"]
    if labels.str.fullmatch(r"\d{1,9}").all():
        most = int(labels.astype(int).max())
        keys = classes or [f"{label:0{len(str(most))}d}" for label in range(most + 1)]
        if len(keys) <= most:
            raise FcaError(
                "dataset.classes", len(keys), f"{most + 1} or more class keys", "name the class of every label"
            )
        labels = labels.astype(int).map(keys.__getitem__)
    row_of = dict(zip(ids.tolist(), range(len(ids)), strict=True))

    def image(image_id: str) -> np.ndarray:
        try:
            content = read(row_of[image_id])
        except (OSError, pa.ArrowException) as error:
            raise UnreadableImage(f"{name}: {image_id}: {error}") from error
        return decode(content, f"{name}: {image_id}")

    listed = listed.drop(columns="key").assign(image_id=ids, label=labels.astype("str"))
    return assemble(name, listed, image, val, splits, mirror=mirror)
