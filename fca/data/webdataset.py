"""Images in tar shards, as WebDataset writes them: key.jpg and key.cls or key.json; read without unpacking."""

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

from fca.data.content import remembered_table
from fca.data.files import MAX_FILE_BYTES, READER_THREADS, decode, is_hidden, name_of
from fca.data.given_splits import Splits, known_split
from fca.data.image_files import IMAGE, OTHER, count_by_suffix, kind_of, with_count
from fca.data.kinds import HEAD_BYTES, SUFFIXES, TEXT_SUFFIXES, reads_heic, suffix_of
from fca.data.splits import Share, White, assemble, first_few, with_white
from fca.names import check_spellings
from fca.types import FcaError, ImageData, UnreadableImage

log = logging.getLogger(__name__)
NO_LABEL = "-1"
"""By custom the integer label of an image without a class, as in the test splits of public sets."""
INTEGER_PATTERN = r"-1|\d{1,9}"

SAMPLE_SCHEMA = pa.schema(
    [
        *(("key", pa.string()), ("label", pa.string()), ("content", pa.string())),
        *(("at", pa.int64()), ("size", pa.int64()), ("why", pa.string())),
    ]
)
"""A sample in a tar file: its label as text, its image's digest, the position and number of the image's bytes in the
file. A sample without an image has `why` (the reason) in their place."""


@dataclass(frozen=True)
class WebDataset:
    """`dataset=webdataset`: tar files of samples. The members with the same key are one sample, an image and its class.

    root:    the folder of the .tar files, also in folders below it; their names or folders name the split.
    label:   suffix of the member with the class as text; `json.NAME` = the value NAME of the member key.json.
    classes: class keys in the order of integer labels; null = the labels themselves, with leading zeros. If all
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
        """List the images of all tar files. A file is read through only if it is new or has changed.

        A warning names samples without an image, which are left out. Hidden members of a file are skipped.

        Raises FcaError for a damaged or compressed file, samples without a class, and two images under one key.
        """
        paths = files_in(self.root, (".tar",))
        tables = self._sample_tables(paths)
        _warn_of_samples_without_image(self.root, pa.concat_tables(tables))
        tables = [table.filter(pc.is_valid(table["content"])) for table in tables]  # the samples with an image

        # For each image: the number of its file, and where its bytes begin in that file.
        file_of_image = np.repeat(np.arange(len(paths)), [table.num_rows for table in tables])
        offset = np.concatenate([table["at"].to_numpy() for table in tables])
        size = np.concatenate([table["size"].to_numpy() for table in tables])

        split_of_file = np.array(split_names_of(self.root, paths, self.splits))
        frames = [table.select(["key", "label", "content"]).to_pandas() for table in tables]
        listed = pd.concat(frames, ignore_index=True)
        listed["split"] = split_of_file[file_of_image]
        listed["label"] = keys_of(listed["label"], self.classes)

        def read(row: int) -> bytes:
            """The encoded image at a position in `listed`."""
            with paths[file_of_image[row]].open("rb") as file:
                return os.pread(file.fileno(), int(size[row]), int(offset[row]))

        name = self.name or name_of(self.root)
        return packed(name, listed, read, self.val, self.splits, self.mirror, self.white)

    def _sample_tables(self, paths: Sequence[Path]) -> list[pa.Table]:
        """For each file, the table of its samples, see `_sample_table`. Several files are read at the same time.

        Tables are remembered in the user's cache, so a file is read through only if it is new or has changed.
        """
        # Tables are remembered under a text with all that decides what a sample is. With another text they are made
        # anew.
        one_class = " of one class" if "." in self.label else ""  # tables of earlier versions may hold lists of classes
        heic = ", HEIC" if reads_heic() else ""  # an optional package
        meaning = f"{self.label}{one_class}, images by content, none hidden{heic}"

        def samples_in(path: Path) -> pa.Table:
            return remembered_table(path, meaning, SAMPLE_SCHEMA, partial(_sample_table, path, self.label))

        with ThreadPoolExecutor(READER_THREADS) as pool:
            return list(pool.map(samples_in, paths))


def _warn_of_samples_without_image(root: str, samples: pa.Table) -> None:
    """Log one line for each reason why samples have no image, with the keys of these samples.

    root:    the folder of the data set, for the message.
    samples: tables as `_sample_table` returns them: `content` is missing if there is no image, and then `why` is the
             reason.
    """
    without_image = samples.filter(pc.is_null(samples["content"]))
    for reason in without_image["why"].unique().to_pylist():
        keys = without_image.filter(pc.equal(without_image["why"], reason))["key"].to_pylist()
        number = with_count(len(keys), "sample")
        log.warning("%s: left out: %s without an image (%s): %s", root, number, reason, first_few(keys))


def _sample_table(path: Path, label: str) -> pa.Table:
    """Read a tar file through: a table with one line per sample, with the columns of SAMPLE_SCHEMA.

    These are key, label (the class as text), content (digest of the image's bytes), at, size and why. The encoded image
    is in the `size` bytes from position `at` of the file on. In a sample without an image `why` is the reason, and
    content, at and size are missing.

    label: the suffix of the members that hold the class, see WebDataset.

    Raises FcaError if the file is damaged, compressed or cut, or if a sample has no class, or two images or classes.
    """
    samples = _SampleCollector(label)
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:  # "r:": refuses compressed files
            for member in tar:
                samples.add(file, member)
            # A whole file ends with a block of zeros. tarfile itself accepts a file that is cut between two members.
            has_end_block = os.pread(file.fileno(), 512, tar.offset) == bytes(512)
            if not has_end_block:
                raise ValueError("it has no end: it is cut or damaged")
            return samples.table()
    # JSON without the class raises LookupError or TypeError, and JSON that is nested too deeply RecursionError.
    except (tarfile.TarError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        allowed = f"a whole .tar, not compressed, with key.jpg (or another image) and key.{samples.suffix}"
        raise FcaError("file", path, allowed, f"write it again, or set dataset.label: {error}") from error


Image = tuple[str, int, int]
"""The digest of an image's bytes, where they begin in the tar file, and their number."""


class _SampleCollector:
    """Collects the samples of a tar file: the images and classes of its members, by their keys.

    label:             see WebDataset.
    images:            key -> image of a member with an image's suffix.
    images_by_content: key -> image under another suffix. It is used if the key has no image in `images`.
    why_not_read:      key -> why its picture is not read, for example because its format is not supported.
    labels:            key -> class as text; "" if the member holds none.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.suffix, _, self.field = label.partition(".")  # the field of a JSON member, else ""
        self.images: dict[str, Image] = {}
        self.images_by_content: dict[str, Image] = {}
        self.why_not_read: dict[str, str] = {}
        self.labels: dict[str, str] = {}

    def add(self, file: BinaryIO, member: tarfile.TarInfo) -> None:
        """Add a member of the tar file to its sample, as the class or an image; hidden and other members are skipped.

        The members with the same key are one sample. The key is the member's path up to the first dot of its name. The
        suffix after that dot is `self.suffix` for the member that holds the class.

        file: the opened tar file, from which the member's bytes are read.

        Raises ValueError for a member that is too large, and for a second image or class of a sample.
        """
        folder, _, name = member.name.rpartition("/")
        stem, _, suffix = name.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        names_on_path = set(member.name.split("/")) - {".", ".."}
        if not (member.isreg() and stem) or any(map(is_hidden, names_on_path)):
            return

        if suffix == self.suffix:
            self._add_label(key, _content(file, member))
        elif suffix_of(name) in SUFFIXES:
            _add_image(self.images, key, file, member)
        elif suffix_of(name) not in TEXT_SUFFIXES:  # another suffix, or none: a look at the bytes decides
            self._add_by_content(key, file, member)

    def _add_label(self, key: str, content: bytes) -> None:
        _check_new(self.labels, key)
        self.labels[key] = _label_in(content, self.field)

    def _add_by_content(self, key: str, file: BinaryIO, member: tarfile.TarInfo) -> None:
        """Add a member whose suffix does not show what it is, after a look at its bytes.

        If it is an image, it is kept; if it is a picture that cannot be read, the reason is kept; any other file is
        skipped.
        """
        head = os.pread(file.fileno(), min(HEAD_BYTES, member.size), member.offset_data)
        kind = kind_of(head, member.name, partial(_content, file, member))
        if kind == IMAGE:
            _add_image(self.images_by_content, key, file, member)
        elif kind != OTHER:  # then `kind` is the reason
            self.why_not_read[key] = kind

    def table(self) -> pa.Table:
        """All samples, with the columns of SAMPLE_SCHEMA: first the samples with an image, then those without one.

        A sample without an image has the reason in the column `why`. Raises ValueError for images without a class.
        """
        # Key -> image. A member with the suffix of an image comes before one that only its bytes show to be an image.
        images = dict(self.images)
        for key, image in self.images_by_content.items():
            images.setdefault(key, image)

        # The text of a label is "" if the member that should hold the class is blank.
        labelled_keys = {key for key, text in self.labels.items() if text}
        unlabelled = sorted(set(images) - labelled_keys)
        if unlabelled:
            raise ValueError(f"no {self.label} of {first_few(unlabelled)}")

        # An image is its digest, position and size, so each line has the six values of SAMPLE_SCHEMA.
        lines: list[tuple[str | int | None, ...]] = [(key, self.labels[key], *images[key], None) for key in images]
        for key, label in self.labels.items():
            if key not in images:
                # `why_not_read` has the samples with a picture that cannot be read; the others have no picture.
                reason = self.why_not_read.get(key, "none there")
                lines.append((key, label, None, None, None, reason))

        columns = [*zip(*lines, strict=True)] if lines else [()] * len(SAMPLE_SCHEMA)
        return pa.table(columns, SAMPLE_SCHEMA)


def _add_image(images: dict[str, Image], key: str, file: BinaryIO, member: tarfile.TarInfo) -> None:
    _check_new(images, key)
    images[key] = xxhash.xxh3_128_hexdigest(_content(file, member)), member.offset_data, member.size


def _check_new(keys: Container[str], key: str) -> None:
    if key in keys:
        raise ValueError(f"{key:.200} has two images or classes")


def _content(file: BinaryIO, member: tarfile.TarInfo) -> bytes:
    """All bytes of a member. Raises ValueError for a sparse one (its bytes are in pieces) and above MAX_FILE_BYTES."""
    if member.size > MAX_FILE_BYTES or member.issparse():
        raise ValueError(f"{member.name:.200} has {member.size} bytes, at most {MAX_FILE_BYTES} are read")
    return os.pread(file.fileno(), member.size, member.offset_data)


def _label_in(content: bytes, field: str) -> str:
    """The class in a member's content; "" if it holds none. Raises ValueError for a value that is no single class.

    field: the name of the value in a JSON object; "" if the content is the class itself.
    """
    if not field:
        return content.decode().strip()
    value = json.loads(content)[field]
    if isinstance(value, list | dict):
        raise ValueError(f"{field} is {value!s:.60}, not one class")
    return "" if value is None else str(value).strip()


# What files with many images share.


def files_in(root: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files with these suffixes in a folder and the folders below it, sorted and without hidden ones.

    A warning counts the files with other suffixes, but not texts, which often accompany images. Raises FcaError if
    there is no file with these suffixes, and for a link with such a suffix that leads nowhere.
    """
    folder = Path(root).expanduser()
    files: list[Path] = []
    other_files: list[str] = []
    for path in sorted(folder.rglob("[!.]*")):  # names that do not begin with a dot
        relative_path = path.relative_to(folder)
        if any(is_hidden(name) for name in relative_path.parts):
            continue

        suffix = path.suffix.lower()
        if suffix in suffixes and path.is_symlink() and not path.exists():
            raise FcaError("file", path, "a file: this link leads nowhere", "bring its file, or remove the link")
        if not path.is_file():
            continue

        if suffix in suffixes:
            files.append(path)
        elif suffix not in TEXT_SUFFIXES:
            other_files.append(relative_path.as_posix())

    if other_files:
        number = with_count(len(other_files), "file")
        verb = "that is no" if len(other_files) == 1 else "that are no"
        log.warning("%s: left out: %s %s %s: %s", root, number, verb, suffixes[0], count_by_suffix(other_files))
    if not files:
        raise FcaError("dataset.root", root, f"a folder with {' or '.join(suffixes)} files", "set dataset.root to it")
    return files


def split_names_of(root: str, paths: Iterable[Path], splits: Splits) -> list[str]:
    """The name of the split that each file belongs to, as the data set itself calls it.

    The path of a file below `root` is divided into words at slashes, hyphens, underscores and dots. The first word that
    is known as the name of a split is the result: a usual name, such as "train", or a name that `splits` maps. If there
    is no such word, the result is the path without the file's number, such as "_01" or "-00000-of-00004", or "all" if
    nothing is left.

    splits: the set's own name of a split -> ours.

    >>> split_names_of("/d", [Path("/d/imagenet-train-0003.tar"), Path("/d/shard_01.tar")], None)
    ['train', 'shard']
    """
    split_names = []
    for path in paths:
        stem = path.relative_to(Path(root).expanduser()).with_suffix("").as_posix()
        known_names = [word for word in re.split(r"[-_/.]", stem) if known_split(word, splits)]
        if known_names:
            split_names.append(known_names[0])
        else:
            without_number = re.sub(r"[-_.]?\d+(-of-\d+)?$", "", stem)  # "shard_01", "data-00000-of-00004"
            split_names.append(without_number or "all")
    return split_names


def keys_of(labels: pd.Series, classes: Sequence[str] | None) -> pd.Series:
    """The class key (the name of the class) of each label.

    labels:  as text. If all of them are integers from 0 on, or -1 for an image without a class, a label is a position
             in `classes`. Otherwise each label is a class key itself.
    classes: the class keys of the labels 0, 1, 2 ...; None = the key of an integer is the integer with leading zeros.

    The key of the label -1 is missing (None). Raises FcaError if labels that are names are not among `classes`, for a
    repeated name in `classes`, for fewer names than labels, and for two spellings of one integer.

    >>> keys_of(pd.Series(["9", "-1", "10"]), None).tolist()
    ['09', None, '10']
    """
    are_numbers = not labels.empty and labels.str.fullmatch(INTEGER_PATTERN).all()
    if not are_numbers:
        unknown_names = sorted(set(labels) - set(classes or labels))  # none if there are no `classes`
        if unknown_names:
            allowed = f"null, or the names of integers; the labels are names such as {first_few(unknown_names)}"
            raise FcaError("dataset.classes", first_few(classes or []), allowed, "leave it out")
        return labels

    check_spellings("label: two spellings of one number", labels, "images", "write it in one way")
    if classes and len(set(classes)) < len(classes):
        raise FcaError("dataset.classes", first_few(repeated(classes)), "names that differ", "name every class once")

    numbers = labels.astype(int)
    largest = int(numbers.max())
    n_digits = len(str(largest))
    keys = classes or [f"{label:0{n_digits}d}" for label in range(largest + 1)]
    if len(keys) <= largest:
        allowed = f"{largest + 1} or more class keys"
        raise FcaError("dataset.classes", len(keys), allowed, "name the class of every label")

    key_of_image = [keys[label] if label >= 0 else None for label in numbers.tolist()]
    return pd.Series(key_of_image, labels.index, dtype=object)


def repeated(names: Sequence[str]) -> list[str]:
    """The names that occur more than once.

    >>> repeated(["cat", "dog", "cat"])
    ['cat']
    """
    return [name for name, n in Counter(names).items() if n > 1]


def _labelled(name: str, listed: pd.DataFrame, splits: Splits) -> tuple[pd.DataFrame, int]:
    """Leave out the images without a class: returns the other lines, and how many were left out in used splits.

    name:   of the data set, for messages.
    listed: one line per image, with `split` (the set's own name) and `label`, which is missing if the image has none
            (-1 in its file).
    splits: the set's own name of a split -> ours, or null if the split is not used.

    A warning states the numbers. Raises FcaError for a used split in which no image has a class.
    """
    unused_splits = [own_name for own_name, our_name in (splits or {}).items() if our_name is None]
    has_no_label = listed["label"].isna()
    is_used = ~listed["split"].isin(unused_splits)
    has_no_label_by_split = has_no_label[is_used].groupby(listed["split"], sort=False)
    counts = has_no_label_by_split.agg(["sum", "size"])  # of each used split: images without a label, and all images

    for split, n_unlabelled, n_images in counts.itertuples():
        if n_unlabelled == n_images:
            raise FcaError(
                f"labels of {split} in {name}",
                f"-1 (no label) for each of its {n_images} images",
                "a class for each image",
                f"leave it out: dataset.splits='{{{split}: null}}'",
            )

    total_unlabelled = int(counts["sum"].sum())
    if total_unlabelled:
        numbers = [f"{n_unlabelled} in {split}" for split, n_unlabelled, _ in counts.itertuples() if n_unlabelled]
        log.warning("%s: images without a label (-1) are left out: %s", name, ", ".join(numbers))

    labelled = listed[~has_no_label].astype({"label": "str"}).reset_index(drop=True)
    return labelled, total_unlabelled


def packed(
    name: str,
    listed: pd.DataFrame,
    read: Callable[[int], bytes],
    val: Share,
    splits: Splits,
    mirror: bool,
    white: int | None,
) -> ImageData:
    """The data set of images that are packed into files, many in each file (tar, Parquet, Arrow).

    listed: one line per image: `key` (its name in the split), `label` (a class key; missing if it has none), `content`
            (the digest of its bytes) and `split`. The image id is the split, a slash and the key.
    read:   returns the encoded image at a position in `listed`. OSError and pyarrow's errors in it become
            UnreadableImage.
    val:    what to hold out for validation if the set has no validation split.
    splits: the set's own name of a split -> train, val or test, or null to leave it out.
    mirror: whether a mirrored image still shows its class.
    white:  the value of 16-bit files that is shown white; None = 65535.

    Images without a label are left out. Raises FcaError for a used split in which no image has a label.
    """
    ids = listed["split"] + "/" + listed["key"]
    position_of_id = dict(zip(ids.tolist(), range(len(ids)), strict=True))

    def image(image_id: str) -> np.ndarray:
        """The decoded pixels. Raises UnreadableImage naming the image."""
        try:
            content = read(position_of_id[image_id])
        except (OSError, pa.ArrowException) as error:
            raise UnreadableImage(f"{name}: {image_id}: {error}") from error
        return decode(content, f"{name}: {image_id}", white)

    labelled, without_label = _labelled(name, listed.drop(columns="key").assign(image_id=ids), splits)
    # Another `white` changes the pixels of 16-bit files, so `with_white` adds it to each `content`.
    data = assemble(name, with_white(labelled, white), image, val, splits, mirror=mirror)
    # `unused` is the number of images left out. So far it counts those of classes without training or test images.
    return replace(data, unused=data.unused + without_label)
