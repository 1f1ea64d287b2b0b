"""Images listed by a CSV or Parquet file, with labels, splits, masks and annotations of any kind.

So is a folder that `fca generate` filled: its manifest without the images that a person struck.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from jaxtyping import Bool, UInt8

from fca.data.content import inventory
from fca.data.files import (
    MASK_OBJECTS,
    Files,
    bytes_of,
    content_of,
    decode_mask,
    image_of,
    name_of,
    open_root,
    upright_size,
)
from fca.data.splits import Share, assemble, shown
from fca.identity import OF_FILES
from fca.store.query import kept
from fca.types import FcaError, ImageData, UnreadableImage, check_choice

REQUIRED = ("path", "label")
OPTIONAL = ("image_id", "split", "mask")
Box = tuple[int, ...]
"""x0, y0, x1, y1."""
MOST = 2 * 10**7  # lines: a small Parquet file may hold any number of equal ones


@dataclass(frozen=True)
class Manifest:
    """`dataset=manifest`: a CSV or Parquet file with one line per image.

    root:    the directory or .zip that the paths are relative to.
    file:    the manifest, relative to the root (so it may lie inside the .zip) or elsewhere.
    columns: our column -> the file's, where names differ: path, label, image_id (default: the path), split, mask.
    where:   a query (fca.store.query) on the file's columns that selects lines, e.g. "kind == 'conflict'".
    mask_object: which side of a mask image is the object, "bright" or "dark".
    mask_box: four columns of the file: a box [x0, y0, x1, y1] around the object, in whole pixels of the upright image,
             both ends included, x to the right, y down: the mask of a line that names no mask file. Blank = no mask.
    splits:  the set's own split names -> train, val or test, or null to leave one out.    val: how to carve one.
    mirror:  whether a mirrored image still shows its class.
    group:   a column; images that share its value stay on one side of every split that we draw, one without is alone.
    Other columns stay with the images as annotations.
    """

    root: str
    file: str
    val: Share
    name: str | None = None
    columns: dict[str, str] | None = None
    where: str | None = None
    mask_object: str = "bright"
    mask_box: list[str] | None = None
    splits: dict[str, str | None] | None = None
    mirror: bool = True
    group: str | None = None

    def load(self) -> ImageData:
        """List the images by what they and their masks contain; nothing is decoded.

        Raises FcaError for missing columns, values and files, naming them.
        """
        check_choice("dataset.mask_object", self.mask_object, MASK_OBJECTS)
        files = open_root(self.root, "the images that the manifest lists")
        found = inventory(files)
        sizes = found.listing.sizes
        listed = self._lines(self._read(files, sizes))
        self._no_gaps(listed, sizes)
        drawn = listed["mask"].tolist() if "mask" in listed else [""] * len(listed)
        shapes = [path or box for path, box in zip(drawn, self._boxes(listed), strict=True)]
        digests = found.digests([*listed["path"], *filter(None, drawn)])
        listed["content"] = listed["path"].map(digests)
        if "mask" in listed or self.mask_box:  # with its other side as the object a file is another mask
            files_of = {path: f"{digests[path]} {self.mask_object}" for path in drawn if path}
            listed["mask_content"] = [files_of.get(shape, str(shape or "")) for shape in shapes]
        if "image_id" not in listed:
            listed["image_id"] = listed["path"]

        paths = dict(zip(listed["image_id"], listed["path"], strict=True))
        shape_of = dict(zip(listed["image_id"], shapes, strict=True))

        def read(image_id: str) -> UInt8[np.ndarray, "height width 3"]:
            return image_of(files, paths[image_id])

        def mask(image_id: str) -> Bool[np.ndarray, "height width"] | None:
            shape = shape_of[image_id]
            if isinstance(shape, tuple):
                return box_mask(shape, *content_of(files, paths[image_id]))
            return mask_of(files, shape, paths[image_id], self.mask_object) if shape else None

        name = self.name or name_of(self.root)
        masks = mask if "mask_content" in listed else None
        return assemble(name, listed, read, self.val, self.splits, mask=masks, mirror=self.mirror, group=self.group)

    def _named(self) -> dict[str, str]:
        """Our column -> the file's."""
        ours = REQUIRED + OPTIONAL
        if unknown := sorted(set(self.columns or {}) - set(ours)):
            raise FcaError("dataset.columns", shown(unknown), ", ".join(ours), "map only these; others are kept anyway")
        return {column: (self.columns or {}).get(column, column) for column in ours}

    def _read(self, files: Files, sizes: dict[str, int]) -> pd.DataFrame:
        """The file as it is; our columns as text, "" where a value is missing (a class may be called NA or 01)."""
        elsewhere = Path(self.file).expanduser()
        if self.file not in sizes and not elsewhere.is_file():
            raise FcaError("dataset.file", self.file, f"a file in {self.root}, or a path", "name the manifest")
        try:
            return self._parsed(files.read(self.file) if self.file in sizes else bytes_of(elsewhere))
        except Exception as error:  # pandas, pyarrow and zipfile raise many kinds
            allowed = "a CSV with a header, or .parquet"
            raise FcaError("dataset.file", self.file, allowed, f"mend it: {error}") from error

    def _parsed(self, content: bytes) -> pd.DataFrame:
        theirs = {*self._named().values(), *([self.group] if self.group else [])}
        if self.file.lower().endswith(".parquet"):
            if (number := pq.read_metadata(io.BytesIO(content)).num_rows) > MOST:
                raise ValueError(f"{number} lines, more than {MOST}")
            frame = pd.read_parquet(io.BytesIO(content))
            return frame.assign(**{c: frame[c].astype("str").fillna("") for c in theirs & set(frame)})
        frame = pd.read_csv(io.BytesIO(content), low_memory=False)
        mixed: Any = frame.select_dtypes("object", exclude="str")  # numbers of more than 64 bits, which no table takes
        frame = frame.astype(dict.fromkeys(mixed, "str"))
        text = pd.read_csv(io.BytesIO(content), usecols=sorted(theirs & set(frame)), dtype="str", na_filter=False)
        return frame.assign(**text)

    def _lines(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The selected lines under our column names."""
        named = self._named()
        needed, given = {named[c] for c in (*REQUIRED, *(self.columns or {}))}, ", ".join(map(str, frame))
        if missing := sorted(needed - set(frame)):
            step = "map them: dataset.columns='{label: its_name}'"
            raise FcaError("columns of the manifest", shown(missing), f"some of {given}", step)
        if self.where is not None:
            frame = kept(frame, self.where, "dataset.where")
        theirs = {name: column for column, name in named.items() if name in frame}
        taken = [column for column in frame if column not in theirs and column in (*named, *OF_FILES)]
        renamed = frame.rename(columns={**theirs, **{column: f"{column}_in_file" for column in taken}})
        if self.group is not None:
            check_choice("dataset.group", self.group, renamed, "name a column of the manifest")
        for column in {"path", "mask"} & set(renamed):
            renamed[column] = [posixpath.normpath(path) if path else "" for path in renamed[column]]
        return renamed.reset_index(drop=True)

    def _boxes(self, listed: pd.DataFrame) -> Sequence[Box | None]:
        """The box of every line that has one; those that cannot be boxes of any image are named with their lines."""
        if self.mask_box is None:
            return [None] * len(listed)
        if len(self.mask_box) != 4:
            raise FcaError("dataset.mask_box", shown(self.mask_box), "four columns", "e.g. mask_box=[x0, y0, x1, y1]")
        for column in self.mask_box:
            check_choice("dataset.mask_box", column, listed, "name columns of the manifest")
        given = listed[self.mask_box]
        ends = given.astype("str").apply(pd.to_numeric, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        pixels = (ends == np.floor(ends)) & (ends >= 0) & (ends < MOST)
        fits = pixels.all(axis=1) & (ends[:, :2] <= ends[:, 2:]).all(axis=1)
        none = given.isna().all(axis=1).to_numpy()
        if wrong := [f"{row + 1} ({', '.join(map(str, given.iloc[row]))})" for row in np.flatnonzero(~fits & ~none)]:
            allowed = "x0 <= x1 and y0 <= y1, whole numbers of pixels from 0, or all four blank"
            raise FcaError("boxes of selected lines", shown(wrong), allowed, f"correct {self.file}, or use where")
        return [None if no else tuple(map(int, box)) for no, box in zip(none, ends, strict=True)]

    def _no_gaps(self, listed: pd.DataFrame, sizes: dict[str, int]) -> None:
        for column in (*REQUIRED, "image_id"):
            if column in listed and (listed[column] == "").any():
                what, lines = f"selected lines without {column}", np.flatnonzero(listed[column] == "") + 1
                step = "fill them, or use where"
                raise FcaError(what, shown([str(line) for line in lines]), "a value in every line", step)
        wanted = [*listed["path"], *(path for path in listed.get("mask", []) if path)]
        if gone := [path for path in wanted if path not in sizes]:
            raise FcaError(f"files that {self.file} lists", shown(gone), f"files in {self.root}", "correct the paths")


def mask_of(
    files: Files, path: str, image: str, objects: str, images: Files | None = None
) -> Bool[np.ndarray, "height width"]:
    """The mask in a file, True on the object. Raises UnreadableImage for a mask that does not fit its image.

    images: where the image lies; None = beside the mask.
    """
    content, name = content_of(files, path)
    mask = decode_mask(content, name, objects)
    if mask.shape != (size := upright_size(*content_of(images or files, image))):
        raise UnreadableImage(f"{name}: a mask of {mask.shape}, its image {image} has {size}")
    return mask


def box_mask(box: Box, image: bytes, name: str) -> Bool[np.ndarray, "height width"]:
    """The pixels of a box, both ends included. Raises UnreadableImage for a box that leads out of its image."""
    (x0, y0, x1, y1), size = box, upright_size(image, name)
    if y1 >= size[0] or x1 >= size[1]:
        raise UnreadableImage(f"{name}: a box {box} that leads out of the image, {size[1]} wide and {size[0]} high")
    mask = np.zeros(size, bool)
    mask[y0 : y1 + 1, x0 : x1 + 1] = True
    return mask


MANIFEST, STRUCK = "manifest.csv", "struck.txt"


@dataclass(frozen=True)
class Generated:
    """`dataset=generated`: all test images, by attribute, level (easy, medium, hard), sublevel and triplet.

    root:   the folder.    name: of the data set; None = the folder's.
    mirror: whether a mirrored image still shows its class.

    Refused and struck images are left out, so that levels may differ in their numbers.
    """

    root: str
    name: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed. Raises FcaError for a folder without a manifest, and for struck images it never had."""
        folder, step = Path(self.root).expanduser(), f"run or go on with: fca generate out={self.root}"
        if not (folder / MANIFEST).is_file():
            raise FcaError("dataset.root", self.root, f"a folder with a {MANIFEST}", step)
        struck = struck_ids(folder)
        listed = pd.read_csv(folder / MANIFEST, usecols=["image_id"], dtype="str", na_filter=False)["image_id"]
        if unknown := sorted(struck - set(listed)):
            raise FcaError(f"images in {folder / STRUCK}", shown(unknown), "image ids of the manifest", "correct them")
        where = f"state == 'drawn' and image_id not in {sorted(struck)!r}"
        return Manifest(self.root, MANIFEST, Share(0.1, 0), self.name, where=where, mirror=self.mirror).load()


def struck_ids(folder: Path) -> set[str]:
    """The ids that a person struck: one per line of struck.txt, if it exists; lines that begin with # are comments."""
    path = folder / STRUCK
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}
