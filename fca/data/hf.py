"""Data sets of the Hugging Face hub on the disk: Parquet files, or Arrow files of `save_to_disk`; no network."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from fca.data.content import inside
from fca.data.files import LARGEST, name_of
from fca.data.splits import Share, White
from fca.data.webdataset import files_in, own_splits, packed
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
    classes: class keys in the order of integer labels; null = the names that the file declares for them.
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

        Raises FcaError for a damaged file, missing columns and values, and images that lie outside of the files.
        """
        paths = files_in(self.root, (".parquet", ".arrow"))
        meaning = f"{self.image} {self.label}"
        tables = [inside(path, meaning, LINE, partial(_lines, path, self.image, self.label)) for path in paths]
        first = np.cumsum([0, *(table.num_rows for table in tables)])
        images = [_images(path, self.image) for path in paths]
        listed = pa.concat_tables(tables).to_pandas()
        listed["split"] = np.repeat(own_splits(self.root, paths, self.splits), np.diff(first))
        numbers = listed.groupby("split").cumcount()
        listed["key"] = [f"{number:07d}" for number in numbers]

        def read(row: int) -> bytes:
            file = int(np.searchsorted(first, row, side="right")) - 1
            return images[file](row - int(first[file]))

        name, classes = self.name or name_of(self.root), self.classes or _names(paths[0], self.label)
        return packed(name, listed, read, classes, self.val, self.splits, self.mirror, self.white)


def _opened(path: Path) -> pq.ParquetFile | pa.Table:
    """An Arrow file is mapped, not read, and leaves no file open."""
    if path.suffix == ".parquet":
        return pq.ParquetFile(path)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _names(path: Path, label: str) -> list[str] | None:
    """The class names that `datasets` wrote into the file's schema."""
    opened = _opened(path)
    schema = opened.schema_arrow if isinstance(opened, pq.ParquetFile) else opened.schema
    with suppress(ValueError, LookupError, TypeError):
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
        return [str(name) for name in names]
    return None


def _images(path: Path, column: str) -> Callable[[int], bytes]:
    """Row -> the encoded image."""
    opened = _opened(path)
    if isinstance(opened, pa.Table):
        rows = opened[column]
        return lambda row: _bytes(rows[row].as_py())
    about = opened.metadata
    first = np.cumsum([0, *(about.row_group(group).num_rows for group in range(about.num_row_groups))])

    def read(row: int) -> bytes:
        group = int(np.searchsorted(first, row, side="right")) - 1
        return _bytes(_group(path, group, column)[row - int(first[group])].as_py())

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
            parts = opened.select([image, label]).to_batches()
        else:
            parts = opened.iter_batches(64, columns=[image, label])
        labels, digests = list[str](), list[str]()
        for part in parts:
            if part[label].null_count:
                raise ValueError(f"rows without {label}")
            labels += [str(value) for value in part[label].to_pylist()]
            digests += [xxhash.xxh3_128_hexdigest(_bytes(value.as_py())) for value in part[image]]
        return pa.table([labels, digests], LINE)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        allowed = f"whole, with columns {image} (images, encoded inside the file) and {label}"
        step = f"write it again, or name the columns as dataset.image and dataset.label: {error}"
        raise FcaError("file", path, allowed, step) from error
