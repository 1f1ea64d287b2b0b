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
from fca.data.files import LARGEST, name_of
from fca.data.splits import Share, White
from fca.data.webdataset import NO_LABEL, files_in, keys_of, packed, repeated, split_names_of
from fca.types import FcaError, ImageData

LINE = pa.schema([("label", pa.string()), ("content", pa.string())])
"""An image in a file: its class and the digest of its bytes."""


@dataclass(frozen=True)
class HuggingFace:
    """`dataset=hf`: an image and a class a row.

    root:    the folder of the .parquet or .arrow files; their folders or names name the split. An image in a Parquet
             file is read with its row group: a large shuffled set streams faster as Arrow,
             datasets.load_dataset(folder).save_to_disk(another).
    image, label: columns: encoded images (or a struct with their `bytes`), and text, or integers of a ClassLabel.
    classes: class keys in the order of integer labels; null = the names that each file declares for them, which may
             come in another order in each. An integer label -1 means that there is none: such images are left out.
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
        """List the images by what they contain, in one pass through each file that is new.

        Raises FcaError for a damaged file, missing columns and values, images that are stored outside of the files,
        labels that are no single class, and files whose labels cannot be joined.
        """
        paths = files_in(self.root, (".parquet", ".arrow"))
        meaning = f"{self.image} {self.label}"
        tables = [
            remembered_table(path, meaning, LINE, partial(_lines, path, self.image, self.label)) for path in paths
        ]
        first_row = np.cumsum([0, *(table.num_rows for table in tables)])  # of each file, and the end
        read_image_of_file = [_images(path, self.image) for path in paths]

        listed = pa.concat_tables(tables).to_pandas()
        listed["label"] = self._keys(paths, [table["label"].to_pandas() for table in tables])
        listed["split"] = np.repeat(split_names_of(self.root, paths, self.splits), np.diff(first_row))
        numbers = listed.groupby("split").cumcount()
        listed["key"] = [f"{number:07d}" for number in numbers]

        def read(row: int) -> bytes:
            file = int(np.searchsorted(first_row, row, side="right")) - 1
            return read_image_of_file[file](row - int(first_row[file]))

        name = self.name or name_of(self.root)
        return packed(name, listed, read, self.val, self.splits, self.mirror, self.white)

    def _keys(self, paths: Sequence[Path], labels: Sequence[pd.Series]) -> pd.Series:
        """The class keys of all files, one after another: integers by the names that their file declares.

        labels: of each file, as text.
        """
        files = [
            (path, labels_of_file, _kind(path, self.label, labels_of_file))
            for path, labels_of_file in zip(paths, labels, strict=True)
            if len(labels_of_file)
        ]
        unnamed_paths = [path for path, _, kind in files if kind.is_number and kind.names is None]
        named_paths = [path for path, _, kind in files if not kind.is_number or kind.names]
        declared_names = [kind.names for _, _, kind in files if kind.is_number and kind.names]

        if self.classes is None and unnamed_paths and named_paths:
            value = f"integers without names in {unnamed_paths[0].name}, names of classes in {named_paths[0].name}"
            step = "give dataset.classes, the names of 0, 1, 2 and so on"
            raise FcaError(f"column {self.label}", value, "names of classes in every file, or in none", step)
        if self.classes is not None and any(names != declared_names[0] for names in declared_names):
            allowed = "null: the files declare their classes in several orders"
            raise FcaError("dataset.classes", ", ".join(self.classes[:5]), allowed, "leave it out")
        if self.classes is not None or not declared_names:
            return keys_of(pd.concat(labels, ignore_index=True), self.classes)

        keys = []
        for path, labels_of_file, kind in files:
            if kind.is_number and kind.names:
                keys.append(_by_names(path, kind.names, labels_of_file))
            else:
                keys.append(labels_of_file)
        return pd.concat(keys, ignore_index=True)


def _opened(path: Path) -> pq.ParquetFile | pa.Table:
    """An Arrow file is mapped, not read, and leaves no file open."""
    if path.suffix.lower() == ".parquet":
        return pq.ParquetFile(path)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


class Kind(NamedTuple):
    """Whether a file's labels are integers, and the names of the classes 0, 1, 2 ..., if the file declares them."""

    is_number: bool
    names: list[str] | None


def _kind(path: Path, label: str, labels: pd.Series) -> Kind:
    """Whether a file's labels are integers, and the class names stored with them.

    labels: as text. Raises FcaError for labels that do not name one class an image.
    """
    opened = _opened(path)
    schema = opened.schema_arrow if isinstance(opened, pq.ParquetFile) else opened.schema
    column = f"column {label} of {path.name}"
    label_type = schema.field(label).type
    if pa.types.is_dictionary(label_type):
        label_type = label_type.value_type

    is_binary = pa.types.is_binary(label_type) or pa.types.is_large_binary(label_type)
    if pa.types.is_nested(label_type) or is_binary:
        step = "name another column as dataset.label"
        raise FcaError(column, label_type, "one class an image: text or an integer", step)
    if pa.types.is_floating(label_type) and (labels == "nan").any():
        raise FcaError(column, "NaN", "a class in every row", "fill or remove those rows")
    if pa.types.is_floating(label_type) and (labels == f"{NO_LABEL}.0").any():
        step = "store the labels as integers; -1 then is no label"
        raise FcaError(column, f"{NO_LABEL}.0", "classes, or integers", step)
    if (labels.str.strip() == "").any():
        raise FcaError(column, "a blank text", "a class in every row", "fill or remove those")

    names = _names(schema, label)
    repeated_names = repeated(names or [])
    if repeated_names:
        value = f"{', '.join(repeated_names[:5])} more than once"
        step = "write the file again, or name another column as dataset.label"
        raise FcaError(f"class names of {path.name}", value, "names that differ", step)
    return Kind(is_number=pa.types.is_integer(label_type), names=names)


def _names(schema: pa.Schema, label: str) -> list[str] | None:
    """The class names that `datasets` wrote into a file's schema."""
    with suppress(ValueError, LookupError, TypeError):
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
        return [str(name) for name in names] or None
    return None


def _by_names(path: Path, names: Sequence[str], labels: pd.Series) -> pd.Series:
    """The names behind integer labels; missing for -1. Raises FcaError for a label without a name."""
    name_of_label = {str(number): name for number, name in enumerate(names)} | {NO_LABEL: None}
    if unknown := sorted(set(labels) - set(name_of_label)):
        allowed = f"-1 (none) to {len(names) - 1}, by the names of the file: {', '.join(names[:5])}"
        step = "write the file again, or give dataset.classes"
        raise FcaError(f"label in {path.name}", ", ".join(unknown[:5]), allowed, step)
    return labels.map(name_of_label).astype(object)


def _images(path: Path, column: str) -> Callable[[int], bytes]:
    """A function that returns the encoded image of a row."""
    opened = _opened(path)
    if isinstance(opened, pa.Table):
        rows = opened[column]
        return lambda row: _bytes(rows[row].as_py())

    metadata = opened.metadata
    group_sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    first_row = np.cumsum([0, *group_sizes])

    def read(row: int) -> bytes:
        group = int(np.searchsorted(first_row, row, side="right")) - 1
        return _bytes(_group(path, group, column)[row - int(first_row[group])].as_py())

    return read


@lru_cache(maxsize=4)
def _group(path: Path, group: int, column: str) -> pa.ChunkedArray:
    return pq.ParquetFile(path).read_row_group(group, [column])[column]


def _bytes(value: Any) -> bytes:
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes) or len(content) > LARGEST:
        raise ValueError(f"{value!s:.100} is no encoded image")
    return content


def _lines(path: Path, image: str, label: str) -> pa.Table:
    """Class and digest of every row, as LINE; the buffers of an Arrow file are checked."""
    try:
        opened = _opened(path)
        if isinstance(opened, pa.Table):
            opened.validate(full=True)
            batches = opened.select([image, label]).to_batches()
        else:
            batches = opened.iter_batches(64, columns=[image, label])

        labels: list[str] = []
        digests: list[str] = []
        for batch in batches:
            if batch[label].null_count:
                raise ValueError(f"rows without {label}")
            labels += [str(value) for value in batch[label].to_pylist()]
            digests += [xxhash.xxh3_128_hexdigest(_bytes(value.as_py())) for value in batch[image]]
        return pa.table([labels, digests], LINE)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        allowed = f"whole, with columns {image} (images, encoded inside the file) and {label}"
        step = f"write it again, or name the columns as dataset.image and dataset.label: {error}"
        raise FcaError("file", path, allowed, step) from error
