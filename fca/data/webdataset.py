"""Images in tar shards, as WebDataset writes them: key.jpg and key.cls or key.json; read from where they lie."""

from __future__ import annotations

import json
import logging
import os
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from fca.data.content import inside
from fca.data.files import LARGEST, WALKERS, decode, is_hidden, name_of
from fca.data.given_splits import Splits, known_split
from fca.data.image_files import IMAGE, OTHER, counted, in_words, kind_of
from fca.data.kinds import HEAD, SUFFIXES, TEXTS, reads_heic, suffix_of
from fca.data.splits import Share, White, assemble, shown, with_white
from fca.names import check_spellings
from fca.types import FcaError, ImageData, UnreadableImage

log = logging.getLogger(__name__)
NO_LABEL = "-1"
"""What the label of an image without one is by custom, where labels are integers: in test splits of public sets."""
NUMBER = r"-1|\d{1,9}"

MEMBER = pa.schema(
    [
        *(("key", pa.string()), ("label", pa.string()), ("content", pa.string())),
        *(("at", pa.int64()), ("size", pa.int64()), ("why", pa.string())),
    ]
)
"""A sample in a file: its image's digest, and where its bytes lie. One without an image has none of these, but why."""


@dataclass(frozen=True)
class WebDataset:
    """`dataset=webdataset`: tar files, a sample of one image and its class under one key.

    root:    the folder of the .tar files, which may lie in folders; their names or folders name the split.
    label:   suffix of the member with the class as text; `json.NAME` = the value NAME of the member key.json.
    classes: class keys in the order of integer labels; null = the labels themselves, with leading zeros. Where all
             labels are integers, -1 means that there is none: such images are left out.
    name, splits, val, mirror, white: see fca.data.folder.Folder.
    """

    root: str
    val: Share
    name: str | None = None
    label: str = "cls"
    classes: list[str] | None = None
    splits: dict[str, str | None] | None = None
    mirror: bool = True
    white: White = None

    def load(self) -> ImageData:
        """List the images by what they contain, in one pass through each file that is new; nothing is unpacked.

        A line names samples without an image, which are left out; members that systems add are passed over.

        Raises FcaError for a damaged or compressed file, samples without a class, and two images under one key.
        """
        paths = files_in(self.root, (".tar",))
        one_class = " of one class" if "." in self.label else ""  # before, it could be a list
        meaning = f"{self.label}{one_class}, images by content, none hidden{', HEIC' if reads_heic() else ''}"
        look = [partial(inside, path, meaning, MEMBER, partial(_members, path, self.label)) for path in paths]
        with ThreadPoolExecutor(WALKERS) as pool:
            tables = list(pool.map(lambda of_file: of_file(), look))
        _warn_of_samples_without_image(self.root, pa.concat_tables(tables))
        tables = [table.filter(pc.is_valid(table["content"])) for table in tables]
        of_file = np.repeat(np.arange(len(paths)), [table.num_rows for table in tables])
        at, size = (np.concatenate([table[column].to_numpy() for table in tables]) for column in ("at", "size"))
        own = own_splits(self.root, paths, self.splits)
        listed = pd.concat(
            [table.select(["key", "label", "content"]).to_pandas() for table in tables], ignore_index=True
        )
        listed["split"] = np.array(own)[of_file]
        listed["label"] = keys_of(listed["label"], self.classes)

        def read(row: int) -> bytes:
            with paths[of_file[row]].open("rb") as file:
                return os.pread(file.fileno(), int(size[row]), int(at[row]))

        name = self.name or name_of(self.root)
        return packed(name, listed, read, self.val, self.splits, self.mirror, self.white)


def _warn_of_samples_without_image(root: str, samples: pa.Table) -> None:
    lacking = samples.filter(pc.is_null(samples["content"]))
    for why in lacking["why"].unique().to_pylist():
        keys = lacking.filter(pc.equal(lacking["why"], why))["key"].to_pylist()
        log.warning("%s: left out: %s without an image (%s): %s", root, counted(len(keys), "sample"), why, shown(keys))


def _members(path: Path, label: str) -> pa.Table:
    """The samples of a tar file, as MEMBER."""
    samples = _Samples(label)
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                samples.add(file, member)
            if os.pread(file.fileno(), 512, tar.offset) != bytes(512):
                raise ValueError("it has no end: it is cut or damaged")
            return samples.table()
    except (tarfile.TarError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        allowed = f"a whole .tar, not compressed, with key.jpg (or another image) and key.{samples.suffix}"
        raise FcaError("file", path, allowed, f"write it again, or set dataset.label: {error}") from error


Image = tuple[str, int, int]
"""The digest of an image's bytes, where they begin in the file, and their number."""


class _Samples:
    """What the members of a tar file are: images and classes, by their keys.

    images: those with an image's suffix.    by_content: those that hold an image under another one; they count where a
    key has none of the first.    not_read: why the picture of a key is not read.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.suffix, _, self.field = label.partition(".")
        self.images: dict[str, Image] = {}
        self.by_content: dict[str, Image] = {}
        self.not_read: dict[str, str] = {}
        self.labels: dict[str, str] = {}

    def add(self, file: BinaryIO, member: tarfile.TarInfo) -> None:
        """Raises ValueError for a member that is too large, and for a second image or class of a key."""
        folder, _, name = member.name.rpartition("/")
        stem, _, kind = name.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        names = set(member.name.split("/")) - {".", ".."}
        if not (member.isreg() and stem) or any(map(is_hidden, names)):
            return
        if kind == self.suffix:
            self._add_label(key, _content(file, member))
        elif suffix_of(name) in SUFFIXES:
            _add_image(self.images, key, file, member)
        elif suffix_of(name) not in TEXTS:
            self._add_by_content(key, file, member)

    def _add_label(self, key: str, content: bytes) -> None:
        _check_new(self.labels, key)
        self.labels[key] = _label(content, self.field)

    def _add_by_content(self, key: str, file: BinaryIO, member: tarfile.TarInfo) -> None:
        head = os.pread(file.fileno(), min(HEAD, member.size), member.offset_data)
        kind = kind_of(head, member.name, partial(_content, file, member))
        if kind == IMAGE:
            _add_image(self.by_content, key, file, member)
        elif kind != OTHER:
            self.not_read[key] = kind

    def table(self) -> pa.Table:
        """All samples, as MEMBER. Raises ValueError for images without a class."""
        images = {**self.images, **{key: image for key, image in self.by_content.items() if key not in self.images}}
        if lone := sorted(set(images) - {key for key, text in self.labels.items() if text}):
            raise ValueError(f"no {self.label} of {shown(lone)}")
        lines: list[tuple[str | int | None, ...]] = [(key, self.labels[key], *images[key], None) for key in images]
        lacking = [key for key in self.labels if key not in images]
        lines += [(key, self.labels[key], None, None, None, self.not_read.get(key, "none there")) for key in lacking]
        return pa.table([*zip(*lines, strict=True)] if lines else [()] * len(MEMBER), MEMBER)


def _add_image(images: dict[str, Image], key: str, file: BinaryIO, member: tarfile.TarInfo) -> None:
    _check_new(images, key)
    images[key] = xxhash.xxh3_128_hexdigest(_content(file, member)), member.offset_data, member.size


def _check_new(known: Container[str], key: str) -> None:
    if key in known:
        raise ValueError(f"{key:.200} has two images or classes")


def _content(file: BinaryIO, member: tarfile.TarInfo) -> bytes:
    if member.size > LARGEST or member.issparse():
        raise ValueError(f"{member.name:.200} has {member.size} bytes, at most {LARGEST} are read")
    return os.pread(file.fileno(), member.size, member.offset_data)


def _label(content: bytes, field: str) -> str:
    """The class in a member; "" where there is none. Raises ValueError for a value that is no class."""
    if not field:
        return content.decode().strip()
    value = json.loads(content)[field]
    if isinstance(value, list | dict):
        raise ValueError(f"{field} is {value!s:.60}, not one class")
    return "" if value is None else str(value).strip()


# What files with many images share.


def files_in(root: str, suffixes: tuple[str, ...]) -> list[Path]:
    """Such files of a folder, sorted; a line counts the others.

    Raises FcaError where there is none, and for a link to such a file that leads nowhere.
    """
    folder = Path(root).expanduser()
    found, others = list[Path](), list[str]()
    for path in sorted(folder.rglob("[!.]*")):
        inner = path.relative_to(folder)
        if any(is_hidden(part) for part in inner.parts):
            continue
        suffix = path.suffix.lower()
        if suffix in suffixes and path.is_symlink() and not path.exists():
            raise FcaError("file", path, "a file: this link leads nowhere", "bring its file, or remove the link")
        if not path.is_file():
            continue
        if suffix in suffixes:
            found.append(path)
        elif suffix not in TEXTS:
            others.append(inner.as_posix())
    if others:
        are = "that is no" if len(others) == 1 else "that are no"
        number = counted(len(others), "file")
        log.warning("%s: left out: %s %s %s: %s", root, number, are, suffixes[0], in_words(others))
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


def keys_of(labels: pd.Series, classes: Sequence[str] | None) -> pd.Series:
    """Class keys of labels as files have them: text is itself, and an integer a position in `classes`.

    classes: None = integers with leading zeros. Where all labels are integers, -1 is none: a missing key.

    Raises FcaError for classes that are not those of labels that are names, for a name that stands twice, for fewer
    names than labels, and for two spellings of one integer.

    >>> keys_of(pd.Series(["9", "-1", "10"]), None).tolist()
    ['09', None, '10']
    """
    if labels.empty or not labels.str.fullmatch(NUMBER).all():
        strange = sorted(set(labels) - set(classes or labels))
        if strange:
            allowed = f"null, or the names of integers; the labels are names such as {shown(strange)}"
            raise FcaError("dataset.classes", shown(classes or []), allowed, "leave it out")
        return labels
    check_spellings("label: two spellings of one number", labels, "images", "write it in one way")
    if classes and len(set(classes)) < len(classes):
        raise FcaError("dataset.classes", shown(repeated(classes)), "names that differ", "name every class once")
    numbers = labels.astype(int)
    most = int(numbers.max())
    keys = classes or [f"{label:0{len(str(most))}d}" for label in range(most + 1)]
    if len(keys) <= most:
        raise FcaError("dataset.classes", len(keys), f"{most + 1} or more class keys", "name the class of every label")
    named = [keys[label] if label >= 0 else None for label in numbers.tolist()]
    return pd.Series(named, labels.index, dtype=object)


def repeated(names: Sequence[str]) -> list[str]:
    """The names that stand more than once.

    >>> repeated(["cat", "dog", "cat"])
    ['cat']
    """
    return [name for name, times in Counter(names).items() if times > 1]


def _labelled(name: str, listed: pd.DataFrame, splits: Splits) -> tuple[pd.DataFrame, int]:
    """The images that have a class, and how many of the used splits have none, as a line says too.

    Raises FcaError for a split in which none has.
    """
    left_out = [own for own, ours in (splits or {}).items() if ours is None]
    without = listed["label"].isna()
    counts = without[~listed["split"].isin(left_out)].groupby(listed["split"], sort=False).agg(["sum", "size"])
    for split, count, size in counts.itertuples():
        if count == size:
            what, step = f"labels of {split} in {name}", f"leave it out: dataset.splits='{{{split}: null}}'"
            raise FcaError(what, f"-1 (no label) for each of its {size} images", "a class for each image", step)
    if counts["sum"].any():
        places = ", ".join(f"{count} in {split}" for split, count, _ in counts.itertuples() if count)
        log.warning("%s: images without a label (-1) are left out: %s", name, places)
    return listed[~without].astype({"label": "str"}).reset_index(drop=True), int(counts["sum"].sum())


def packed(
    name: str,
    listed: pd.DataFrame,
    read: Callable[[int], bytes],
    val: Share,
    splits: Splits,
    mirror: bool,
    white: int | None,
) -> ImageData:
    """The data set of the images in such files.

    listed: key, label (a class key; missing where an image has none), content, split.    read: line -> bytes.
    """
    ids = listed["split"] + "/" + listed["key"]
    row_of = dict(zip(ids.tolist(), range(len(ids)), strict=True))

    def image(image_id: str) -> np.ndarray:
        try:
            content = read(row_of[image_id])
        except (OSError, pa.ArrowException) as error:
            raise UnreadableImage(f"{name}: {image_id}: {error}") from error
        return decode(content, f"{name}: {image_id}", white)

    labelled, without_label = _labelled(name, listed.drop(columns="key").assign(image_id=ids), splits)
    data = assemble(name, with_white(labelled, white), image, val, splits, mirror=mirror)
    return replace(data, unused=data.unused + without_label)
