"""Data sets of the Hugging Face hub on the disk: Parquet files, or Arrow files of `save_to_disk`; no network."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from fca.data.content import remembered_table
from fca.data.files import MAX_FILE_BYTES, name_of
from fca.data.splits import Share, White
from fca.data.webdataset import NO_LABEL, files_in, keys_of, packed, repeated, split_names_of
from fca.types import FcaError, ImageData

IMAGE_SCHEMA = pa.schema([("label", pa.string()), ("content", pa.string())])
"""An image in a file: its class as text, and the digest of its bytes."""


@dataclass(frozen=True)
class HuggingFace:
    """`dataset=hf`: files in which each row holds one image and its class.

    root:    the folder of the .parquet or .arrow files; their folders or names name the split. An image in a Parquet
             file is read with its whole row group, so a large shuffled set streams faster as Arrow:
             datasets.load_dataset(folder).save_to_disk(another).
    image:   the column of encoded images (or of structs with their `bytes`).
    label:   the column of the classes: text, or integers of a ClassLabel.
    classes: class keys in the order of integer labels; null = the names that each file declares for them, whose order
             may differ between files. An integer label of -1 means that there is none: such images are left out.
    name, splits, val, mirror, white: see fca.data.folder.Folder.
    """

    root: str
    val: Share
    name: str | None = None
    image: str = "image"
    label: str = "label"
    classes: list[str] | None = None
    splits: dict[str, str | None] | None = None
    mirror: bool = True
    white: White = None

    def load(self) -> ImageData:
        """List the images of all files. A file is read through only if it is new or has changed since the last time.

        An image id is the split and the number of the image in it, such as train/0000012.

        Raises FcaError for a damaged file, missing columns and values, images that are stored outside of the files,
        labels that are no single class, and files whose labels cannot be joined.
        """
        paths = files_in(self.root, (".parquet", ".arrow"))
        # For each file, the labels and digests of its images. The tables are remembered in the user's cache under the
        # names of the columns, because with other columns they differ.
        columns = f"{self.image} {self.label}"
        tables = [
            remembered_table(path, columns, IMAGE_SCHEMA, partial(_labels_and_digests, path, self.image, self.label))
            for path in paths
        ]
        first_row_of_file = np.cumsum([0, *(table.num_rows for table in tables)])  # the last value is the end
        read_image_of_file = [_image_reader(path, self.image) for path in paths]

        listed = pa.concat_tables(tables).to_pandas()
        listed["label"] = self._class_keys(paths, [table["label"].to_pandas() for table in tables])
        n_images_of_file = np.diff(first_row_of_file)
        listed["split"] = np.repeat(split_names_of(self.root, paths, self.splits), n_images_of_file)
        number_in_split = listed.groupby("split").cumcount()
        listed["key"] = [f"{number:07d}" for number in number_in_split]  # an image id is the split, a slash and the key

        def read(row: int) -> bytes:
            """The encoded image at a position in `listed`."""
            file = int(np.searchsorted(first_row_of_file, row, side="right")) - 1
            row_in_file = row - int(first_row_of_file[file])
            return read_image_of_file[file](row_in_file)

        name = self.name or name_of(self.root)
        return packed(name, listed, read, self.val, self.splits, self.mirror, self.white)

    def _class_keys(self, paths: Sequence[Path], labels: Sequence[pd.Series]) -> pd.Series:
        """The class keys (names of classes) of the images of all files, one file after another.

        An integer label is a position in `classes`, or else in the list of names that its own file declares. If there
        is neither, its key is the integer with leading zeros. Any other label is a class key itself. A file may hold
        integers with names while another holds such keys.

        paths:  the files.
        labels: for each file, the labels of its images; integers are converted to strings ("3").

        Raises FcaError if some files have class names and others only integers, or if `classes` is given although the
        files declare their names in several orders.
        """
        files = [
            (path, labels_of_file, _label_kind(path, self.label, labels_of_file))
            for path, labels_of_file in zip(paths, labels, strict=True)
            if len(labels_of_file)  # a file without images may declare anything
        ]
        # Files whose labels are integers without declared names.
        unnamed_paths = [path for path, _, kind in files if kind.is_number and kind.names is None]
        # Files whose labels are class names, or integers with declared names.
        named_paths = [path for path, _, kind in files if not kind.is_number or kind.names]
        # The lists of names that files declare for their integers.
        declared_names = [kind.names for _, _, kind in files if kind.is_number and kind.names]

        if self.classes is None and unnamed_paths and named_paths:
            value = f"integers without names in {unnamed_paths[0].name}, names of classes in {named_paths[0].name}"
            step = "give dataset.classes, the names of 0, 1, 2 and so on"
            raise FcaError(f"column {self.label}", value, "names of classes in every file, or in none", step)
        if self.classes is not None and any(names != declared_names[0] for names in declared_names):
            allowed = "null: the files declare their classes in several orders"
            raise FcaError("dataset.classes", ", ".join(self.classes[:5]), allowed, "leave it out")
        if self.classes is not None or not declared_names:
            # No file's own list of names is used, so one call makes the keys of all files. `keys_of` looks strings
            # of digits up in `classes`, or adds leading zeros without `classes`. It returns other labels as they are.
            return keys_of(pd.concat(labels, ignore_index=True), self.classes)

        # From here on each file has its own list of names, or its labels are names.
        keys = []
        for path, labels_of_file, kind in files:
            if kind.is_number and kind.names:
                keys.append(_names_of_integers(path, kind.names, labels_of_file))
            else:
                keys.append(labels_of_file)
        return pd.concat(keys, ignore_index=True)


def _open_file(path: Path) -> pq.ParquetFile | pa.Table:
    """A Parquet file, opened but not read, or the table of an Arrow file.

    An Arrow file is mapped into memory: its pages are read when they are used, and no file stays open.
    """
    if path.suffix.lower() == ".parquet":
        return pq.ParquetFile(path)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


class LabelKind(NamedTuple):
    """Whether a file's labels are integers, and the names of the classes 0, 1, 2 ..., if the file declares them."""

    is_number: bool
    names: list[str] | None


def _label_kind(path: Path, label: str, labels: pd.Series) -> LabelKind:
    """Whether the labels of a file are integers, and the class names for 0, 1, 2 ... (None if the file declares none).

    path:   the file.
    label:  its column with the labels.
    labels: the values of that column, as text.

    Raises FcaError for a column whose type or values do not give each image one class, and for repeated class names.
    """
    opened = _open_file(path)
    schema = opened.schema_arrow if isinstance(opened, pq.ParquetFile) else opened.schema
    column = f"column {label} of {path.name}"
    label_type = schema.field(label).type
    if pa.types.is_dictionary(label_type):  # categories, as text or integers
        label_type = label_type.value_type

    is_binary = pa.types.is_binary(label_type) or pa.types.is_large_binary(label_type)
    if pa.types.is_nested(label_type) or is_binary:
        step = "name another column as dataset.label"
        raise FcaError(column, label_type, "one class an image: text or an integer", step)

    # pandas writes a column of integers with missing values as floats.
    is_float = pa.types.is_floating(label_type)
    if is_float and (labels == "nan").any():
        raise FcaError(column, "NaN", "a class in every row", "fill or remove those rows")
    if is_float and (labels == f"{NO_LABEL}.0").any():  # else "-1.0", which means no label, would be a class
        step = "store the labels as integers; -1 then is no label"
        raise FcaError(column, f"{NO_LABEL}.0", "classes, or integers", step)
    if (labels.str.strip() == "").any():
        raise FcaError(column, "a blank text", "a class in every row", "fill or remove those")

    names = _declared_class_names(schema, label)
    repeated_names = repeated(names or [])
    if repeated_names:
        value = f"{', '.join(repeated_names[:5])} more than once"
        step = "write the file again, or name another column as dataset.label"
        raise FcaError(f"class names of {path.name}", value, "names that differ", step)
    return LabelKind(is_number=pa.types.is_integer(label_type), names=names)


def _declared_class_names(schema: pa.Schema, label: str) -> list[str] | None:
    """The class names that Hugging Face's `datasets` wrote into a file's schema; None if there are none."""
    with suppress(ValueError, LookupError, TypeError):  # files of other programs have no or other metadata
        metadata = json.loads((schema.metadata or {})[b"huggingface"])
        names = metadata["info"]["features"][label]["names"]
        return [str(name) for name in names] or None
    return None


def _names_of_integers(path: Path, names: Sequence[str], labels: pd.Series) -> pd.Series:
    """The class names of integer labels; missing for the label -1, which means that an image has no class.

    names:  the names of 0, 1, 2 ..., as the file at `path` declares them.
    labels: the integers as text.

    Raises FcaError for a label without a name.
    """
    name_of_label = {str(number): name for number, name in enumerate(names)} | {NO_LABEL: None}
    if unknown := sorted(set(labels) - set(name_of_label)):
        allowed = f"-1 (none) to {len(names) - 1}, by the names of the file: {', '.join(names[:5])}"
        step = "write the file again, or give dataset.classes"
        raise FcaError(f"label in {path.name}", ", ".join(unknown[:5]), allowed, step)
    return labels.map(name_of_label).astype(object)


def _image_reader(path: Path, column: str) -> Callable[[int], bytes]:
    """A function that returns the encoded image in a row of a file.

    For a Parquet file the function reads the whole row group that holds the row. The groups that were read last are
    kept in memory, so reading rows in their order is fast.

    path:   the file, .parquet or .arrow.
    column: its column of encoded images.
    """
    opened = _open_file(path)
    if isinstance(opened, pa.Table):
        images = opened[column]
        return lambda row: _encoded_image(images[row].as_py())

    metadata = opened.metadata
    group_sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    first_row_of_group = np.cumsum([0, *group_sizes])  # the last value is the end

    def read(row: int) -> bytes:
        """The encoded image in this row of the whole file."""
        group = int(np.searchsorted(first_row_of_group, row, side="right")) - 1
        row_in_group = row - int(first_row_of_group[group])
        images = _row_group(path, group, column)
        return _encoded_image(images[row_in_group].as_py())

    return read


@lru_cache(maxsize=4)
def _row_group(path: Path, group: int, column: str) -> pa.ChunkedArray:
    return pq.ParquetFile(path).read_row_group(group, [column])[column]


def _encoded_image(value: Any) -> bytes:
    """The bytes of an encoded image, from a value of the image column: the bytes, or a struct with a field `bytes`.

    Raises ValueError for anything else, such as a struct that has only the path of the image, and above MAX_FILE_BYTES.
    """
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes) or len(content) > MAX_FILE_BYTES:
        raise ValueError(f"{value!s:.100} is no encoded image")
    return content


def _labels_and_digests(path: Path, image: str, label: str) -> pa.Table:
    """Read a whole file: a table with the `label` (as text) and `content` (digest of the image's bytes) of every row.

    path:         the file, .parquet or .arrow.
    image, label: its columns with images and labels.

    Raises FcaError if the file is damaged or lacks a column, a class or an encoded image.
    """
    try:
        opened = _open_file(path)
        if isinstance(opened, pa.Table):
            opened.validate(full=True)  # a damaged offset in a mapped file would read outside of it
            batches = opened.select([image, label]).to_batches()
        else:
            batches = opened.iter_batches(64, columns=[image, label])  # few rows at a time: images need much memory

        labels: list[str] = []
        digests: list[str] = []
        for batch in batches:
            if batch[label].null_count:
                raise ValueError(f"rows without {label}")
            labels += [str(value) for value in batch[label].to_pylist()]
            digests += [xxhash.xxh3_128_hexdigest(_encoded_image(value.as_py())) for value in batch[image]]
        return pa.table([labels, digests], IMAGE_SCHEMA)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        allowed = f"whole, with columns {image} (images, encoded inside the file) and {label}"
        step = f"write it again, or name the columns as dataset.image and dataset.label: {error}"
        raise FcaError("file", path, allowed, step) from error
