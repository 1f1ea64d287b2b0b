"""Images listed by a CSV or Parquet file (the manifest), with labels, splits, masks and annotations of any kind.

Masks may be files, boxes, or the majority of what several workers drew. A folder that `fca generate` filled has a
manifest, too; images that a person rejected in struck.txt are left out of it.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, UInt8

from fca.csv_table import read_table, with_types
from fca.data.content import Inventory, inventory
from fca.data.files import (
    MASK_OBJECTS,
    Files,
    bytes_of,
    content_of,
    decode_mask,
    image_of,
    name_of,
    open_root,
    parallel_map,
    upright_size,
)
from fca.data.listed_paths import check_files, listed_paths
from fca.data.splits import AtPosition, Share, White, assemble, first_few, with_white
from fca.identity import FILE_COLUMNS, fingerprint
from fca.names import comparison_key, quoted, visible
from fca.store.query import columns_of, rows_matching
from fca.types import FcaError, ImageData, UnreadableImage, check_choice
from fca.validation import Allowed

log = logging.getLogger(__name__)
REQUIRED = ("path", "label")
OPTIONAL = ("image_id", "split", "mask")
Box = tuple[int, ...]
"""x0, y0, x1, y1: the corner pixels of a box, both included."""
MAX_LINES = 2 * 10**7  # a small Parquet file may hold any number of equal lines
MAX_PIXELS = 2 * 10**7  # a larger coordinate is in no image


@dataclass(frozen=True)
class Manifest:
    """`dataset=manifest`: a CSV or Parquet file with one line per image.

    root:    the directory or .zip that the paths are relative to.
    file:    the manifest, relative to the root (so it may be inside the .zip) or elsewhere.
    columns: our column -> the file's, where names differ: path, label, image_id (default: the path), split, mask.
    where:   a query (fca.store.query) on the file's columns that selects lines, e.g. "kind == 'conflict'".
    mask_object: which side of a mask image is the object, "bright" or "dark".
    mask_box: four columns of the file: a box [x0, y0, x1, y1] around the object, in whole pixels of the upright image,
             both ends included, x to the right, y down: the mask of a line that names no mask file. Blank = no mask.
    splits:  the set's own split names -> train, val or test, or null to leave one out.
    val:     what to hold out for validation.
    mirror:  whether a mirrored image still shows its class.
    white:   the value of 16-bit files that is shown white; null = 65535. See fca.data.files.decode.
    group:   a column; images that share its value stay on one side of every split that we draw. An image without a
             value is alone.
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
    white: White = None

    def load(self) -> ImageData:
        """List the images, which are identified by the content of their files and masks; nothing is decoded.

        Raises FcaError for missing columns, values and files, naming them.
        """
        check_choice("dataset.mask_object", self.mask_object, MASK_OBJECTS)
        files = open_root(self.root, "the images that the manifest lists")
        file_inventory = inventory(files)  # all files below the root, with digests of their bytes
        sizes = file_inventory.listing.sizes
        listed = self._checked_lines(files, sizes)

        # The mask of each line: the path of a file, or else a box, or else None.
        mask_paths = listed["mask"].tolist() if "mask" in listed else [""] * len(listed)
        masks = [path or box for path, box in zip(mask_paths, self._boxes(listed), strict=True)]

        used_mask_paths = [path for path in mask_paths if path]
        digests = file_inventory.digests([*listed["path"], *used_mask_paths])
        listed["content"] = listed["path"].map(digests)
        has_masks = "mask" in listed or bool(self.mask_box)
        if has_masks:
            # What identifies a mask. For a file, its digest and the side that is the object, because with the other
            # side the same file is another mask. For a box, its numbers as text. Without a mask, "".
            content_of_mask_file = {path: f"{digests[path]} {self.mask_object}" for path in used_mask_paths}
            listed["mask_content"] = [content_of_mask_file.get(mask, str(mask or "")) for mask in masks]
        if "image_id" not in listed:
            listed["image_id"] = listed["path"]

        path_of_image = dict(zip(listed["image_id"], listed["path"], strict=True))
        mask_of_image = dict(zip(listed["image_id"], masks, strict=True))

        def read(image_id: str) -> UInt8[np.ndarray, "height width 3"]:
            """The pixels of an image; `self.white` is the value of 16-bit files that is shown white."""
            return image_of(files, path_of_image[image_id], self.white)

        def read_mask(image_id: str) -> Bool[np.ndarray, "height width"] | None:
            """The object mask of an image, from its file or box; None if it has neither."""
            mask = mask_of_image[image_id]
            path = path_of_image[image_id]
            if isinstance(mask, tuple):
                image_bytes, name_in_messages = content_of(files, path)
                return box_mask(mask, image_bytes, name_in_messages)  # the mask gets the size of the image
            return mask_of(files, mask, path, self.mask_object) if mask else None

        # Another value for the white of 16-bit files changes the pixels, so `with_white` adds it to each `content`.
        return assemble(
            self.name or name_of(self.root),
            with_white(listed, self.white),
            read,
            self.val,
            self.splits,
            mask=read_mask if has_masks else None,
            mirror=self.mirror,
            group=self.group,
        )

    def _checked_lines(self, files: Files, sizes: dict[str, int]) -> pd.DataFrame:
        """The selected lines of the manifest under our column names, with paths as the root's listing has them.

        sizes: path -> bytes, for all files below the root.

        Raises FcaError for missing columns, values and files, and for a file that is on several lines.
        """
        listed = self._selected_lines(self._read_manifest(files, sizes))
        self._check_no_gaps(listed)  # before the index is reset, from which its message takes line numbers
        listed = listed.reset_index(drop=True)

        for column in {"path", "mask"} & set(listed):
            listed[column] = pd.Series(listed_paths(listed[column], sizes, self.root), dtype="str")
        mask_paths = [path for path in listed.get("mask", []) if path]
        check_files(f"files that {self.file} lists", [*listed["path"], *mask_paths], sizes, self.root)
        self._check_one_line_per_file(listed)
        return listed

    def _file_columns(self) -> dict[str, str]:
        """Our name of a column -> its name in the manifest. Raises FcaError if `columns` maps any other column."""
        our_columns = REQUIRED + OPTIONAL
        columns = self.columns or {}
        unknown = sorted(set(columns) - set(our_columns))
        if unknown:
            step = "map only these; others are kept anyway"
            raise FcaError("dataset.columns", first_few(unknown), ", ".join(our_columns), step)
        return {column: columns.get(column, column) for column in our_columns}

    def _read_manifest(self, files: Files, sizes: dict[str, int]) -> pd.DataFrame:
        """Read the manifest with all its lines and columns. It may be below the root or elsewhere.

        The columns that fca uses (path, label, ...) are texts; others have the types that fit their values.

        files: reads files below the root.
        sizes: path -> number of bytes, for all files below the root.

        Raises FcaError if the manifest does not exist or cannot be read as a table.
        """
        file_elsewhere = Path(self.file).expanduser()
        if self.file not in sizes and not file_elsewhere.is_file():
            raise FcaError("dataset.file", self.file, f"a file in {self.root}, or a path", "name the manifest")
        try:
            return self._parse(files.read(self.file) if self.file in sizes else bytes_of(file_elsewhere))
        except FcaError:  # it names the line or column already
            raise
        except Exception as error:  # pandas, pyarrow and zipfile raise many kinds
            allowed = "a CSV with a header, or .parquet"
            raise FcaError("dataset.file", self.file, allowed, f"mend it: {error}") from error

    def _parse(self, content: bytes) -> pd.DataFrame:
        """The table in a manifest's bytes.

        Our columns (path, label, image_id, split, mask) and the column `self.group` are text, "" where a value is
        missing, because a class may be called NA or 01. Other columns have the types that pandas infers, or the types
        in the Parquet file.

        Raises ValueError for too many lines, and FcaError if one of our columns holds lists or structs.
        """
        text_columns = set(self._file_columns().values())  # the names that our columns have in the file
        if self.group:
            text_columns.add(self.group)

        if not self._is_parquet():
            frame = read_table(content, self.file)
            # `read_table` returns only texts. Other columns become numbers or booleans where all their values are such.
            annotations = with_types(frame.drop(columns=list(text_columns & set(frame))))
            return frame.assign(**annotations)

        n_lines = pq.read_metadata(io.BytesIO(content)).num_rows  # before anything is unpacked
        if n_lines > MAX_LINES:
            raise ValueError(f"{n_lines} lines, more than {MAX_LINES}")
        for field in pq.read_schema(io.BytesIO(content)):
            if field.name in text_columns and pa.types.is_nested(field.type):
                allowed, step = "one value a line: text or a number", "write it as another column"
                raise FcaError(f"column {field.name} of {self.file}", field.type, allowed, step)

        frame = pd.read_parquet(io.BytesIO(content))
        if frame.index.name is not None:  # pandas stored a column as the index
            frame = frame.reset_index()
        texts = {column: frame[column].astype("str").fillna("") for column in text_columns & set(frame)}
        return frame.assign(**texts)

    def _selected_lines(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The lines of the manifest that `where` selects, with the file's columns renamed to ours.

        frame: all lines of the manifest, see `_parse`. The index of the result is the position of each line in it.

        Raises FcaError for missing columns, proposing how to map them, for a `where` that selects no line, and for a
        `group` that is no column.
        """
        file_columns = self._file_columns()  # our name of a column -> its name in the file
        # The file must have a path and a label, and every column for which the user gave its name in the file.
        needed = {file_columns[column] for column in (*REQUIRED, *(self.columns or {}))}
        missing = sorted(needed - set(frame))
        if missing:
            # A column of the file that differs only in spelling is proposed.
            name_by_key = {comparison_key(str(name)): str(name) for name in frame}
            proposals = []
            for column, name in file_columns.items():
                if name in missing:
                    proposals.append(f"{column}: {name_by_key.get(comparison_key(name), 'its_name')}")
            columns_of_file = ", ".join(repr(str(name)) for name in frame)
            step = f"map them: dataset.columns='{{{', '.join(proposals)}}}'"
            raise FcaError("columns of the manifest", first_few(missing), f"some of {columns_of_file}", step)

        if self.where is not None:
            frame = self._lines_matching(frame, self.where)

        # The columns that we use get our names (path, label, ...). Any other column of the file that happens to have
        # one of our names, or the name of a column that we add (FILE_COLUMNS), gets the suffix _in_file.
        new_names = {name: column for column, name in file_columns.items() if name in frame}
        for name in map(str, frame):
            if name not in new_names and name in (*file_columns, *FILE_COLUMNS):
                new_names[name] = f"{name}_in_file"
        renamed = frame.rename(columns=new_names)
        # The configuration names the group by the column's present name: ours, if it is a column that we use.
        if self.group is not None:
            check_choice("dataset.group", self.group, renamed, "name a column of the manifest")
        return renamed

    def _lines_matching(self, frame: pd.DataFrame, where: str) -> pd.DataFrame:
        """The lines that the query `where` selects.

        Raises FcaError if it selects none, with examples of the values in the columns that it names.
        """
        selected = rows_matching(frame, where, "dataset.where")
        if selected.empty:
            examples = [f"{column} holds {_examples(frame[column])}" for column in sorted(columns_of(where))]
            allowed = f"a query that selects lines of {self.file}, which has {len(frame)}: {'; '.join(examples)}"
            raise FcaError("dataset.where", where, allowed, "correct it; texts stand in quotes, numbers do not")
        return selected

    def _boxes(self, listed: pd.DataFrame) -> Sequence[Box | None]:
        """The box around the object of every line, from the four columns `mask_box`.

        A line whose four values are blank has None. Without `mask_box` every line has None. Raises FcaError unless
        `mask_box` names four columns that exist, and naming the lines with values that cannot be a box of any image.
        """
        if self.mask_box is None:
            return [None] * len(listed)
        if len(self.mask_box) != 4:
            raise FcaError(
                "dataset.mask_box", first_few(self.mask_box), "four columns", "e.g. mask_box=[x0, y0, x1, y1]"
            )
        for column in self.mask_box:
            check_choice("dataset.mask_box", column, listed, "name columns of the manifest")

        values = listed[self.mask_box]
        numbers = values.astype("str").apply(pd.to_numeric, errors="coerce")  # what is no number becomes missing
        corners = numbers.to_numpy(np.float64, na_value=np.nan)  # lines x (x0, y0, x1, y1); NaN where missing
        is_pixel = (corners == np.floor(corners)) & (corners >= 0) & (corners < MAX_PIXELS)
        is_ordered = (corners[:, :2] <= corners[:, 2:]).all(axis=1)  # x0 <= x1 and y0 <= y1
        is_box = is_pixel.all(axis=1) & is_ordered
        is_blank = values.isna().all(axis=1).to_numpy()

        wrong_rows = np.flatnonzero(~is_box & ~is_blank)
        if len(wrong_rows):
            # The message counts among the selected lines, from 1.
            descriptions = [f"{row + 1} ({', '.join(map(str, values.iloc[row]))})" for row in wrong_rows]
            allowed = "x0 <= x1 and y0 <= y1, whole numbers of pixels from 0, or all four blank"
            step = f"correct {self.file}, or use where"
            raise FcaError("boxes of selected lines", first_few(descriptions), allowed, step)

        return [None if blank else tuple(map(int, box)) for blank, box in zip(is_blank, corners, strict=True)]

    def _check_no_gaps(self, listed: pd.DataFrame) -> None:
        """Raise FcaError naming the selected lines that lack a path, label, image id or split by their line numbers.

        listed: the selected lines; its index is the position of each line in the manifest.
        """
        first_line_number = 1 if self._is_parquet() else 2  # the first line of a CSV is its header
        columns = [column for column in (*REQUIRED, "image_id") if column in listed]
        # If all splits are blank, the set has no splits. The user may also map blank splits to one of ours.
        has_splits = "split" in listed and bool((listed["split"].str.strip() != "").any())
        if has_splits and "" not in (self.splits or {}):
            columns.append("split")
        for column in columns:
            lacking = listed[listed[column].str.strip() == ""]
            if lacking.empty:
                continue
            lines = [
                f"{row + first_line_number} ({visible(path)})"
                for row, path in zip(lacking.index, lacking["path"], strict=True)
            ]
            step = f"""fill them, or leave them out: dataset.where="{self._file_columns()[column]} != ''\""""
            raise FcaError(f"lines of {self.file} without {column}", first_few(lines), "a value in every line", step)

    def _is_parquet(self) -> bool:
        return self.file.lower().endswith(".parquet")

    def _check_one_line_per_file(self, listed: pd.DataFrame) -> None:
        """Raise FcaError if a file is on several lines of used splits, even with different image ids.

        The same image could otherwise be in train and in test. The message has the labels and splits of these lines.
        """
        # `self.splits`: the set's own name of a split -> ours, or None if its images are left out.
        unused_splits = [own_name for own_name, our_name in (self.splits or {}).items() if our_name is None]
        used = listed
        if unused_splits and "split" in listed:
            used = listed[~listed["split"].isin(unused_splits)]
        repeated_lines = used[used["path"].duplicated(keep=False)]
        if repeated_lines.empty:
            return

        descriptions = []
        for path, lines in repeated_lines.groupby("path", sort=False):
            description = f"{quoted(str(path))} on {len(lines)} lines"
            for column in ("label", "split"):
                if column in lines:
                    description += f", {column} {' and '.join(map(quoted, lines[column].unique()))}"
            descriptions.append(description)
        allowed = "one line, one label and one split for each image, whatever its image_id"
        step = f"remove the wrong lines of {self.file}, or use where"
        raise FcaError(f"files that {self.file} lists more than once", "; ".join(descriptions[:5]), allowed, step)


def _examples(column: pd.Series) -> str:
    """The first different values of a column, written as in a query: texts in quotes, a missing value as None."""
    values = column.astype(object).where(column.notna(), None).tolist()
    different_texts = list(dict.fromkeys(repr(value) for value in values))
    return first_few(different_texts) or "nothing"


def mask_of(
    files: Files, path: str, image: str, objects: str, images: Files | None = None
) -> Bool[np.ndarray, "height width"]:
    """Read an object mask from a file: True on the object.

    files, path:   the root with the mask, and the mask's path in it.
    image, images: the path of the mask's image, and the root with that image; None = the image is in `files`, too.
    objects:       which side of the file is the object, "bright" or "dark", see `decode_mask`.

    Raises UnreadableImage if mask or image cannot be read, or if the mask has not the size of the image.
    """
    content, name = content_of(files, path)
    mask = decode_mask(content, name, objects)
    size = upright_size(*content_of(images or files, image))
    if mask.shape != size:
        raise UnreadableImage(f"{name}: a mask of {mask.shape}, its image {image} has {size}")
    return mask


def box_mask(box: Box, image: bytes, name: str) -> Bool[np.ndarray, "height width"]:
    """A mask for an image that is True in a box, whose corner pixels x0, y0, x1, y1 are both included.

    image, name: the bytes of the image file, of which only the size is used, and its name for messages.
    Raises UnreadableImage for a box that leads out of the image.
    """
    x0, y0, x1, y1 = box
    height, width = upright_size(image, name)
    if y1 >= height or x1 >= width:
        raise UnreadableImage(f"{name}: a box {box} that leads out of the image, {width} wide and {height} high")
    mask = np.zeros((height, width), bool)
    mask[y0 : y1 + 1, x0 : x1 + 1] = True
    return mask


MANIFEST, STRUCK = "manifest.csv", "struck.txt"


@dataclass(frozen=True)
class Generated:
    """`dataset=generated`: the images in a folder that `fca generate` filled, all of them for test.

    Columns state each image's attribute, level (easy, medium, hard), sublevel and triplet.

    root:   the folder.
    name:   of the data set; None = the folder's name.
    mirror: whether a mirrored image still shows its class.

    Left out are images that the generator refused to draw, images that a person rejected ("struck", in struck.txt), and
    images that the automatic checks rejected and no person kept. So levels may have different numbers of images.
    """

    root: str
    name: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images that were drawn and not rejected, all of them as test images.

        A person may write struck.txt into the folder. It names images to leave out, and images to keep although the
        automatic checks rejected them.

        Raises FcaError for a folder without a manifest, and if struck.txt names images that the manifest does not have.
        """
        folder = Path(self.root).expanduser()
        if not (folder / MANIFEST).is_file():
            step = f"run or go on with: fca generate out={self.root}"
            raise FcaError("dataset.root", self.root, f"a folder with a {MANIFEST}", step)

        decisions = read_decisions(folder)
        listed = read_table(folder / MANIFEST, folder / MANIFEST)
        unknown = sorted((decisions.struck | decisions.kept) - set(listed["image_id"]))
        if unknown:
            raise FcaError(
                f"images in {folder / STRUCK}", first_few(unknown), "image ids of the manifest", "correct them"
            )

        rejected: Iterable[str] = ()  # by the automatic checks
        if "rejected" in listed:  # folders of earlier versions have no checks
            rejected = listed["image_id"][listed["rejected"] != ""]  # the column has the reason
        left_out = sorted(decisions.out(rejected))  # what the person struck, and rejected images that were not kept
        # A line with another state than "drawn" is a prompt that the generator refused to draw.
        where = f"state == 'drawn' and image_id not in {left_out!r}"
        val = Share(0.1, 0)  # not used: all lines have the split test, and val is held out of training images only
        data = Manifest(self.root, MANIFEST, val, self.name, where=where, mirror=self.mirror).load()

        # `data.read` reads the image at a position: it looks up the image id there, and calls its function `of` with
        # it. DrawnImage takes the place of `of`: it calls it and adds to an error how to draw the image again.
        read = data.read
        assert isinstance(read, AtPosition)
        return replace(data, read=AtPosition(DrawnImage(self.root, read.of), read.ids))


@dataclass(frozen=True)
class DrawnImage:
    """Reads an image of a generated set by its id; if that fails, the error names the command that draws it again.

    root: the set's folder.
    read: image id -> pixels.
    """

    root: str
    read: Any

    def __call__(self, image_id: str) -> UInt8[np.ndarray, "height width 3"]:
        """The pixels of the image. Raises UnreadableImage."""
        try:
            pixels: UInt8[np.ndarray, "height width 3"] = self.read(image_id)
            return pixels
        except UnreadableImage as error:
            raise UnreadableImage(f"{error}; fca generate out={self.root} draws it again") from error


class Decisions(NamedTuple):
    """A person's decisions about a generated set: ids of images to leave out, and to keep whatever the checks find."""

    struck: frozenset[str]
    kept: frozenset[str]

    def out(self, rejected: Iterable[str]) -> set[str]:
        """The ids of all images to leave out, given those that the checks rejected.

        >>> sorted(Decisions(frozenset("a"), frozenset("b")).out("bc"))
        ['a', 'c']
        """
        return {*self.struck, *(set(rejected) - self.kept)}


def read_decisions(folder: Path) -> Decisions:
    """Read a person's decisions from struck.txt in a generated set's folder; none if it does not exist.

    Each line is the id of an image to leave out, or + and the id of an image to keep; lines that begin with # are
    comments.
    """
    path = folder / STRUCK
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    entries = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    struck = frozenset(entry for entry in entries if not entry.startswith("+"))
    kept = frozenset(entry[1:].strip() for entry in entries if entry.startswith("+"))
    return Decisions(struck, kept)


# Masks that workers drew (section 3.2 of Hard ImageNet).

ReadMask = Callable[[str, str], Bool[np.ndarray, "height width"]]
"""A function of the path of a mask and the path of an image, whose size the mask must have."""
Consolidate = Callable[[str, Sequence[str]], tuple[Bool[np.ndarray, "height width"], list[float]]]


def iou(a: Bool[np.ndarray, "height width"], b: Bool[np.ndarray, "height width"]) -> float:
    """Intersection over union of two masks, 0 to 1; NaN if both are empty.

    >>> iou(np.array([[True, True, False]]), np.array([[False, True, False]]))
    0.5
    """
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else float("nan")


def consolidated(masks: Bool[np.ndarray, "masks height width"]) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
    """The majority of several masks of one image, and the IoU of each mask with it.

    The majority is True at pixels that are True in more than half of the masks.

    >>> consolidated(np.array([[[True, True]], [[True, False]]]))
    (array([[ True, False]]), [0.5, 1.0])
    """
    majority = 2 * masks.sum(axis=0) > len(masks)
    return majority, [iou(mask, majority) for mask in masks]


def screened(lines: pd.DataFrame, exam_least: float | None, check_least: float | None) -> pd.DataFrame:
    """Decide which workers' masks are used, from how well their masks agree with known true masks.

    Workers draw masks in three phases: an exam before the work, the work itself, and attention checks among the work.
    Masks of the exam and the checks are compared with true masks.

    lines:       one line per mask: worker, phase (exam, check or work), image_id, and iou with the true mask.
    exam_least:  to pass the exam, a worker must draw masks of all images of the exam, with at least this mean IoU;
                 None = there is no exam.
    check_least: a worker with a lower mean IoU on attention checks is removed; a worker without checks stays. None =
                 checks remove nobody.

    Returns one line per worker (the index). Columns: `exam` (the worker's mean IoU in the exam; NaN without a complete
    exam), `check` (the mean IoU on attention checks; NaN without checks) and `kept` (whether the masks are used).
    """
    exam = lines[lines["phase"] == "exam"].groupby("worker")
    check = lines[lines["phase"] == "check"].groupby("worker")
    n_exam_images = lines["image_id"][lines["phase"] == "exam"].nunique()  # of all workers together

    workers = pd.DataFrame(index=pd.Index(sorted(set(lines["worker"])), name="worker"))
    finished_exam = exam["image_id"].nunique() == n_exam_images
    workers["exam"] = exam["iou"].mean().where(finished_exam)
    workers["check"] = check["iou"].mean()

    # The tolerance of 1e-9 is for rounding errors: the mean of 0.6 and 0.7 is 0.6499999999999999. Comparisons with NaN
    # are false: without a complete exam nobody passes it, and without checks nobody fails them.
    passed_exam = True if exam_least is None else workers["exam"] > exam_least - 1e-9
    failed_checks = workers["check"] < (check_least or 0) - 1e-9  # 0: no mean IoU is lower
    return workers.assign(kept=passed_exam & ~failed_checks)


def _ious_with_truth(lines: pd.DataFrame, read_mask: ReadMask) -> list[float]:
    """The IoU of each line's mask with its true mask; NaN for lines of the phase work, which have none.

    lines: one line per mask of a worker, with the paths `mask` and `true_mask` ("" if there is none).
    """

    def iou_with_truth(row: int) -> float:
        mask = lines["mask"][row]
        truth = lines["true_mask"][row]
        if not truth:
            return np.nan
        # The second argument of `read_mask` is an image file of the size that the mask must have.
        return iou(read_mask(mask, truth), read_mask(truth, truth))

    n_threads = 0  # one per core
    return list(parallel_map(iou_with_truth, len(lines), n_threads, "comparing masks with the truth"))


def _ious_with_majority(
    masks_of_image: Mapping[str, Sequence[str]], consolidate: Consolidate
) -> dict[str, list[float]]:
    """For each image id, the IoU of each of its masks with their majority.

    masks_of_image: image id -> the paths of its masks.
    consolidate:    a function of an image id and the paths of its masks: their majority, and the IoU of each with it.
    """
    images = list(masks_of_image.items())

    def ious_of(i: int) -> list[float]:
        image_id, mask_paths = images[i]
        _majority, ious = consolidate(image_id, mask_paths)
        return ious

    n_threads = 0  # one per core
    ious_of_images = parallel_map(ious_of, len(images), n_threads, "comparing the masks of an image")
    return dict(zip(masks_of_image, ious_of_images, strict=True))


def _iou_columns(ious_of_image: Mapping[str, Sequence[float]], ids: list[str]) -> pd.DataFrame:
    """The columns iou_1, iou_2 ...: the IoU of an image's first, second ... mask with the majority of its masks.

    The result has one line for each of `ids`, in their order; NaN where an image has fewer masks.

    ious_of_image: image id -> the IoU of each of its masks; images without masks are not in it.
    """
    nth_iou_of_images = zip_longest(*ious_of_image.values(), fillvalue=np.nan)
    columns = {f"iou_{n}": nth_iou for n, nth_iou in enumerate(nth_iou_of_images, 1)}
    ious = pd.DataFrame(columns, list(ious_of_image), dtype=np.float64)
    return ious.reindex(ids).reset_index(drop=True)


@dataclass(frozen=True, kw_only=True)
class AnnotatedImages(Manifest):
    """`dataset=annotated`: the images of a manifest, where an image's mask is the pixel majority of masks by workers.

    Workers draw masks in three phases: an exam and attention checks, whose true masks are known, and the work itself.
    Only masks of workers who pass both are used, see `screened`.

    annotations: a CSV, relative to the root or elsewhere, with a line per mask: image_id, worker, phase (exam, check,
                 work), mask and true_mask (paths).
    exam_least, check_least: the least mean IoU with true masks in the exam, and in attention checks.
    checks:      least share of attention checks among checks and work.
    masks:       the number of masks that each image needs.

    The images get the columns n_annotations, ask_again (number of masks that are missing), iou_1, iou_2 ... (IoU of
    each mask with the majority, by worker) and agreement (their mean). Masks and boxes of the manifest are not used.
    """

    annotations: str
    exam_least: Annotated[float | None, Allowed(0, 1)] = 0.65
    check_least: Annotated[float | None, Allowed(0, 1)] = 0.5
    checks: Annotated[float, Allowed(0, 1)] = 0.1
    masks: Annotated[int, Allowed(1)] = 5

    def load(self) -> ImageData:
        """List the images of the manifest, compare all masks of the workers, and return the data with majority masks.

        Masks of workers who fail the exam or the attention checks are not used, see `screened`. Nothing is written, but
        the log reports who was removed and which images need more masks. Raises FcaError for lines of the annotations
        that do not fit, and for masks that cannot be read.
        """
        data = super().load()
        file_inventory = inventory(open_root(self.root, "the files that the tables list"))
        path_of_image = dict(zip(data.items["image_id"], data.items["path"], strict=True))
        ids = list(path_of_image)
        lines = self._annotations(file_inventory, path_of_image)  # one line per mask of a worker
        read_mask = partial(mask_of, file_inventory.files, objects=self.mask_object)

        def consolidate(
            image_id: str, mask_paths: Sequence[str]
        ) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
            """The majority of an image's masks, and the IoU of each mask with it."""
            masks = [read_mask(path, path_of_image[image_id]) for path in mask_paths]
            return consolidated(np.stack(masks))

        try:
            lines["iou"] = _ious_with_truth(lines, read_mask)
            workers = screened(lines, self.exam_least, self.check_least)
            work = lines[(lines["phase"] == "work") & lines["worker"].map(workers["kept"])]  # the masks that are used
            masks_of_image = {str(image_id): masks.tolist() for image_id, masks in work.groupby("image_id")["mask"]}
            # One line per image of `ids`: the IoU of its first, second ... mask with the majority (iou_1, iou_2 ...).
            ious = _iou_columns(_ious_with_majority(masks_of_image, consolidate), ids)
        except UnreadableImage as error:
            raise FcaError("mask", error, "black and white, as large as its image", "mend it or its line") from error

        # What identifies the majority mask of an image: the digests of its masks, and the side that is the object.
        digests = file_inventory.digests(work["mask"])
        content_of_masks = {}
        for image_id, paths in masks_of_image.items():
            content_of_masks[image_id] = " ".join([*(digests[path] for path in paths), self.mask_object])

        n_annotations = np.array([len(masks_of_image.get(image_id, ())) for image_id in ids])
        items = data.items.assign(
            mask_content=[content_of_masks.get(image_id, "") for image_id in ids],
            n_annotations=n_annotations,
            ask_again=(self.masks - n_annotations).clip(0),  # `masks` are needed; an image may have more
            agreement=ious.mean(axis=1),  # of the masks of an image with their majority
            **ious,
        )
        self._report(lines, workers, items)

        def majority_mask(image_id: str) -> Bool[np.ndarray, "height width"] | None:
            """The majority of an image's masks, computed when it is needed; None for an image without masks."""
            if image_id not in masks_of_image:
                return None
            majority, _ious = consolidate(image_id, masks_of_image[image_id])
            return majority

        return replace(data, items=items, fingerprint=fingerprint(items), mask=AtPosition(majority_mask, ids))

    def _annotations(self, file_inventory: Inventory, ids: Iterable[str]) -> pd.DataFrame:
        """Read the table of annotations: one line per mask that a worker drew, sorted by image, worker and phase.

        Columns: image_id, worker, phase, mask and true_mask (paths). In the phases exam (before the work) and check
        (attention checks among the work), workers draw masks of images whose true mask is known. These images need not
        be in the manifest. Lines of the phase work are masks of images of the manifest. They have the true_mask "".

        ids: the image ids of the manifest.

        Raises FcaError naming the lines that do not fit.
        """
        name = self.annotations
        sizes = file_inventory.listing.sizes
        try:
            content = file_inventory.files.read(name) if name in sizes else bytes_of(Path(name).expanduser())
            lines = read_table(content, name)
            lines = lines[["image_id", "worker", "phase", "mask", "true_mask"]]
        except FcaError:  # it names the line already
            raise
        except Exception as error:  # no such file or column, another encoding, a damaged archive: many kinds
            allowed = "a CSV with columns image_id, worker, phase, mask, true_mask"
            raise FcaError("dataset.annotations", name, allowed, f"mend it: {error}") from error

        for column in ("mask", "true_mask"):
            lines[column] = listed_paths(lines[column], sizes, self.root)

        is_work = lines["phase"] == "work"
        lacks_true_mask = ~is_work & ~lines["true_mask"].isin([*sizes])
        is_of_unknown_image = is_work & ~lines["image_id"].isin([*ids])
        # For each rule: which lines break it, and what it allows.
        for is_wrong, allowed in (
            (~lines["phase"].isin(["exam", "check", "work"]), "exam, check or work as phase"),
            (lines["worker"].str.contains(r"^$|[\x00-\x1f\x7f-\x9f]"), "a worker, in printable text"),
            (~lines["mask"].isin([*sizes]), f"a file of {self.root} as mask"),
            (lacks_true_mask, f"a file of {self.root} as true_mask, of exam and check"),
            (is_of_unknown_image, f"an image of {self.file} as image_id, of work"),
            (lines.duplicated(["image_id", "worker", "phase"]), "one line a worker, phase and image"),
        ):
            if is_wrong.any():
                # + 2: lines of the file count from 1, and the first is the header
                descriptions = [
                    f"{row + 2} ({', '.join(map(str, lines.loc[row]))})" for row in np.flatnonzero(is_wrong)
                ]
                raise FcaError(f"lines of {name}", first_few(descriptions), allowed, "correct them")

        lines["true_mask"] = lines["true_mask"].mask(is_work, "")
        return lines.sort_values(["image_id", "worker", "phase"], ignore_index=True)

    def _report(self, lines: pd.DataFrame, workers: pd.DataFrame, items: pd.DataFrame) -> None:
        """Log who was removed, which images need more masks, and how well workers did on attention checks.

        The last line is a warning if the share of attention checks, among the masks of checks and work, is below
        `self.checks`. It also has the mean agreement, the IoU of an image's masks with their majority.

        lines:   all annotations, with `iou`.
        workers: as `screened` returns them.
        items:   of the data set.
        """
        removed = workers.index[~workers["kept"]].tolist()
        if removed:
            log.warning("masks of %d of %d workers are left out: %s", len(removed), len(workers), first_few(removed))
        incomplete = items["image_id"][items["ask_again"] > 0].tolist()
        if incomplete:
            log.warning(
                "ask again for masks of %d images (column ask_again): %s", len(incomplete), first_few(incomplete)
            )

        check_ious = lines["iou"][lines["phase"] == "check"]
        n_exam = lines["phase"].value_counts().get("exam", 0)
        n_checks_and_work = len(lines) - n_exam
        share = len(check_ious) / max(1, n_checks_and_work)  # of checks; no division by 0 if there is only an exam
        level = logging.WARNING if share < self.checks else logging.INFO  # too few checks do not show who is careless
        text = "attention checks: %.1f %% of the annotations (expected: %.1f %%), mean IoU %.2f; agreement %.2f"
        log.log(level, text, 100 * share, 100 * self.checks, check_ious.mean(), items["agreement"].mean())
