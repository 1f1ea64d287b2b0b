"""Images listed by a CSV or Parquet file, with labels, splits, masks and annotations of any kind.

Masks may be files, boxes, or what several workers drew. A folder that `fca generate` filled is a manifest too, without
the images that a person struck.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Sequence
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
"""x0, y0, x1, y1."""
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
        """List the images by what they and their masks contain; nothing is decoded.

        Raises FcaError for missing columns, values and files, naming them.
        """
        check_choice("dataset.mask_object", self.mask_object, MASK_OBJECTS)
        files = open_root(self.root, "the images that the manifest lists")
        stock = inventory(files)
        sizes = stock.listing.sizes
        listed = self._listed(files, sizes)

        # The mask of each line: a path, a box, or neither.
        mask_paths = listed["mask"].tolist() if "mask" in listed else [""] * len(listed)
        masks = [path or box for path, box in zip(mask_paths, self._boxes(listed), strict=True)]

        used_mask_paths = [path for path in mask_paths if path]
        digests = stock.digests([*listed["path"], *used_mask_paths])
        listed["content"] = listed["path"].map(digests)
        has_masks = "mask" in listed or bool(self.mask_box)
        if has_masks:
            # With its other side as the object, a file is another mask.
            content_of_mask = {path: f"{digests[path]} {self.mask_object}" for path in used_mask_paths}
            listed["mask_content"] = [content_of_mask.get(mask, str(mask or "")) for mask in masks]
        if "image_id" not in listed:
            listed["image_id"] = listed["path"]

        path_of_image = dict(zip(listed["image_id"], listed["path"], strict=True))
        mask_of_image = dict(zip(listed["image_id"], masks, strict=True))

        def read(image_id: str) -> UInt8[np.ndarray, "height width 3"]:
            return image_of(files, path_of_image[image_id], self.white)

        def read_mask(image_id: str) -> Bool[np.ndarray, "height width"] | None:
            mask = mask_of_image[image_id]
            path = path_of_image[image_id]
            if isinstance(mask, tuple):
                return box_mask(mask, *content_of(files, path))
            return mask_of(files, mask, path, self.mask_object) if mask else None

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

    def _listed(self, files: Files, sizes: dict[str, int]) -> pd.DataFrame:
        """The selected lines under our column names, checked, with paths as the root's listing has them."""
        listed = self._lines(self._read(files, sizes))
        self._no_gaps(listed)
        listed = listed.reset_index(drop=True)

        for column in {"path", "mask"} & set(listed):
            listed[column] = pd.Series(listed_paths(listed[column], sizes, self.root), dtype="str")
        mask_paths = [path for path in listed.get("mask", []) if path]
        check_files(f"files that {self.file} lists", [*listed["path"], *mask_paths], sizes, self.root)
        self._one_line_a_file(listed)
        return listed

    def _file_columns(self) -> dict[str, str]:
        """Our column -> the file's."""
        our_columns = REQUIRED + OPTIONAL
        columns = self.columns or {}
        unknown = sorted(set(columns) - set(our_columns))
        if unknown:
            step = "map only these; others are kept anyway"
            raise FcaError("dataset.columns", first_few(unknown), ", ".join(our_columns), step)
        return {column: columns.get(column, column) for column in our_columns}

    def _read(self, files: Files, sizes: dict[str, int]) -> pd.DataFrame:
        """The file as it is; our columns as text, "" where a value is missing (a class may be called NA or 01)."""
        elsewhere = Path(self.file).expanduser()
        if self.file not in sizes and not elsewhere.is_file():
            raise FcaError("dataset.file", self.file, f"a file in {self.root}, or a path", "name the manifest")
        try:
            return self._parsed(files.read(self.file) if self.file in sizes else bytes_of(elsewhere))
        except FcaError:
            raise
        except Exception as error:  # pandas, pyarrow and zipfile raise many kinds
            allowed = "a CSV with a header, or .parquet"
            raise FcaError("dataset.file", self.file, allowed, f"mend it: {error}") from error

    def _parsed(self, content: bytes) -> pd.DataFrame:
        """The table in the file; our columns and the group as text, "" where a value is missing."""
        text_columns = set(self._file_columns().values())
        if self.group:
            text_columns.add(self.group)

        if not self._is_parquet():
            frame = read_table(content, self.file)
            annotations = with_types(frame.drop(columns=list(text_columns & set(frame))))
            return frame.assign(**annotations)

        n_lines = pq.read_metadata(io.BytesIO(content)).num_rows
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

    def _lines(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The selected lines under our column names; the index is still that of all lines."""
        file_columns = self._file_columns()
        needed = {file_columns[column] for column in (*REQUIRED, *(self.columns or {}))}
        missing = sorted(needed - set(frame))
        if missing:
            other_spelling = {comparison_key(str(name)): str(name) for name in frame}
            pairs = []
            for column, name in file_columns.items():
                if name in missing:
                    pairs.append(f"{column}: {other_spelling.get(comparison_key(name), 'its_name')}")
            columns_of_file = ", ".join(repr(str(name)) for name in frame)
            step = f"map them: dataset.columns='{{{', '.join(pairs)}}}'"
            raise FcaError("columns of the manifest", first_few(missing), f"some of {columns_of_file}", step)

        if self.where is not None:
            frame = self._selected(frame, self.where)

        # The file's names become ours; its other columns make way for ours.
        new_names = {name: column for column, name in file_columns.items() if name in frame}
        for name in map(str, frame):
            if name not in new_names and name in (*file_columns, *FILE_COLUMNS):
                new_names[name] = f"{name}_in_file"
        renamed = frame.rename(columns=new_names)
        if self.group is not None:
            check_choice("dataset.group", self.group, renamed, "name a column of the manifest")
        return renamed

    def _selected(self, frame: pd.DataFrame, where: str) -> pd.DataFrame:
        """The lines that a query keeps. Raises FcaError if it keeps none, showing what the columns in it hold."""
        selected = rows_matching(frame, where, "dataset.where")
        if selected.empty:
            examples = [f"{column} holds {_examples(frame[column])}" for column in sorted(columns_of(where))]
            allowed = f"a query that selects lines of {self.file}, which has {len(frame)}: {'; '.join(examples)}"
            raise FcaError("dataset.where", where, allowed, "correct it; texts stand in quotes, numbers do not")
        return selected

    def _boxes(self, listed: pd.DataFrame) -> Sequence[Box | None]:
        """The box of every line, None where all four values are blank.

        Raises FcaError naming the lines with values that cannot be a box of any image.
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
        numbers = values.astype("str").apply(pd.to_numeric, errors="coerce")
        corners = numbers.to_numpy(np.float64, na_value=np.nan)  # lines x (x0, y0, x1, y1)
        is_pixel = (corners == np.floor(corners)) & (corners >= 0) & (corners < MAX_PIXELS)
        is_ordered = (corners[:, :2] <= corners[:, 2:]).all(axis=1)
        is_box = is_pixel.all(axis=1) & is_ordered
        is_blank = values.isna().all(axis=1).to_numpy()

        wrong_rows = np.flatnonzero(~is_box & ~is_blank)
        if len(wrong_rows):
            named = [f"{row + 1} ({', '.join(map(str, values.iloc[row]))})" for row in wrong_rows]
            allowed = "x0 <= x1 and y0 <= y1, whole numbers of pixels from 0, or all four blank"
            raise FcaError("boxes of selected lines", first_few(named), allowed, f"correct {self.file}, or use where")

        return [None if blank else tuple(map(int, box)) for blank, box in zip(is_blank, corners, strict=True)]

    def _no_gaps(self, listed: pd.DataFrame) -> None:
        """Raises FcaError naming the selected lines that lack a value: of the file's lines the header is the first."""
        first = 1 if self._is_parquet() else 2
        columns = [column for column in (*REQUIRED, "image_id") if column in listed]
        has_blank_splits = "split" in listed and bool((listed["split"].str.strip() != "").any())
        if has_blank_splits and "" not in (self.splits or {}):  # all blank: a set without splits
            columns.append("split")
        for column in columns:
            lacking = listed[listed[column].str.strip() == ""]
            if lacking.empty:
                continue
            lines = [
                f"{row + first} ({visible(path)})" for row, path in zip(lacking.index, lacking["path"], strict=True)
            ]
            step = f"""fill them, or leave them out: dataset.where="{self._file_columns()[column]} != ''\""""
            raise FcaError(f"lines of {self.file} without {column}", first_few(lines), "a value in every line", step)

    def _is_parquet(self) -> bool:
        return self.file.lower().endswith(".parquet")

    def _one_line_a_file(self, listed: pd.DataFrame) -> None:
        """Raise FcaError for a file on several lines, whatever their image ids, with the values of these lines."""
        unused_splits = [own_name for own_name, ours in (self.splits or {}).items() if ours is None]
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
    """The first values of a column as a query has them: texts in quotes, a missing value as None."""
    texts = [repr(value) for value in column.astype(object).where(column.notna(), None).tolist()]
    return first_few(list(dict.fromkeys(texts))) or "nothing"


def mask_of(
    files: Files, path: str, image: str, objects: str, images: Files | None = None
) -> Bool[np.ndarray, "height width"]:
    """The mask in a file, True on the object. Raises UnreadableImage for a mask that does not fit its image.

    images: the root of the image; None = the mask's root.
    """
    content, name = content_of(files, path)
    mask = decode_mask(content, name, objects)
    size = upright_size(*content_of(images or files, image))
    if mask.shape != size:
        raise UnreadableImage(f"{name}: a mask of {mask.shape}, its image {image} has {size}")
    return mask


def box_mask(box: Box, image: bytes, name: str) -> Bool[np.ndarray, "height width"]:
    """The pixels of a box, both ends included. Raises UnreadableImage for a box that leads out of its image."""
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
    """`dataset=generated`: all test images, by attribute, level (easy, medium, hard), sublevel and triplet.

    root:   the folder.    name: of the data set; None = the folder's.
    mirror: whether a mirrored image still shows its class.

    Left out are refused images, those that a person struck, and those that the checks rejected and no person kept; so
    levels may differ in their numbers.
    """

    root: str
    name: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed. Raises FcaError for a folder without a manifest, and for struck images it never had."""
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

        rejected: Iterable[str] = ()
        if "rejected" in listed:  # older folders have no checks
            rejected = listed["image_id"][listed["rejected"] != ""]
        left_out = sorted(decisions.out(rejected))
        where = f"state == 'drawn' and image_id not in {left_out!r}"
        data = Manifest(self.root, MANIFEST, Share(0.1, 0), self.name, where=where, mirror=self.mirror).load()

        read = data.read
        assert isinstance(read, AtPosition)
        return replace(data, read=AtPosition(DrawnImage(self.root, read.of), read.ids))


@dataclass(frozen=True)
class DrawnImage:
    """Reads an image of a generated set by its id; where that fails, names the command that draws it again."""

    root: str
    read: Any

    def __call__(self, image_id: str) -> UInt8[np.ndarray, "height width 3"]:
        """Its pixels. Raises UnreadableImage."""
        try:
            pixels: UInt8[np.ndarray, "height width 3"] = self.read(image_id)
            return pixels
        except UnreadableImage as error:
            raise UnreadableImage(f"{error}; fca generate out={self.root} draws it again") from error


class Decisions(NamedTuple):
    """What a person decided about a generated set: images to leave out, and images to keep whatever the checks find."""

    struck: frozenset[str]
    kept: frozenset[str]

    def out(self, rejected: Iterable[str]) -> set[str]:
        """All images to leave out.

        >>> sorted(Decisions(frozenset("a"), frozenset("b")).out("bc"))
        ['a', 'c']
        """
        return {*self.struck, *(set(rejected) - self.kept)}


def read_decisions(folder: Path) -> Decisions:
    """A person's word in struck.txt, if it exists: an id a line strikes an image, behind + it keeps one; # comments."""
    path = folder / STRUCK
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    words = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    kept = frozenset(word[1:].strip() for word in words if word.startswith("+"))
    return Decisions(frozenset(word for word in words if not word.startswith("+")), kept)


# Masks that workers drew (section 3.2 of Hard ImageNet).


def iou(a: Bool[np.ndarray, "height width"], b: Bool[np.ndarray, "height width"]) -> float:
    """Intersection over union of two masks, 0 to 1; NaN of two empty ones.

    >>> iou(np.array([[True, True, False]]), np.array([[False, True, False]]))
    0.5
    """
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else float("nan")


def consolidated(masks: Bool[np.ndarray, "masks height width"]) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
    """The pixels that more than half of the masks have (half of an even number is not enough); each mask's IoU with it.

    >>> consolidated(np.array([[[True, True]], [[True, False]]]))
    (array([[ True, False]]), [0.5, 1.0])
    """
    majority = 2 * masks.sum(axis=0) > len(masks)
    return majority, [iou(mask, majority) for mask in masks]


def screened(lines: pd.DataFrame, exam_least: float | None, check_least: float | None) -> pd.DataFrame:
    """The workers (index) with `exam` and `check` (mean IoU; NaN = none), and whether their masks are `rows_matching`.

    lines:       columns worker, phase (exam, check or work), image_id and iou (with the truth).
    exam_least:  to pass, all images of the exam must be done, with this mean IoU; None = there is no exam.
    check_least: a worker with a lower mean IoU on attention checks is removed; a worker who had none stays. None =
                 nobody is removed.
    """
    exam = lines[lines["phase"] == "exam"].groupby("worker")
    check = lines[lines["phase"] == "check"].groupby("worker")
    n_exam_images = lines["image_id"][lines["phase"] == "exam"].nunique()

    workers = pd.DataFrame(index=pd.Index(sorted(set(lines["worker"])), name="worker"))
    workers["exam"] = exam["iou"].mean().where(exam["image_id"].nunique() == n_exam_images)
    workers["check"] = check["iou"].mean()

    # A tolerance of 1e-9: the mean of 0.6 and 0.7 is 0.6499999999999999.
    passed_exam = True if exam_least is None else workers["exam"] > exam_least - 1e-9
    failed_checks = workers["check"] < (check_least or 0) - 1e-9
    return workers.assign(kept=passed_exam & ~failed_checks)


@dataclass(frozen=True, kw_only=True)
class AnnotatedImages(Manifest):
    """`dataset=annotated`: the images of a manifest, with the pixel majority of the masks that screened workers drew.

    annotations: a CSV, found as `file` is: image_id, worker, phase (exam, check, work), mask and true_mask (paths).
    exam_least, check_least: see `screened`.    checks: least share of attention checks among checks and work.
    masks:       how many each image needs.
    Columns of the images: n_annotations, ask_again (masks that it lacks), iou_1, iou_2 ... (each mask against the
    majority, by worker) and agreement, their mean. Masks and boxes of the manifest itself are not used.
    """

    annotations: str
    exam_least: Annotated[float | None, Allowed(0, 1)] = 0.65
    check_least: Annotated[float | None, Allowed(0, 1)] = 0.5
    checks: Annotated[float, Allowed(0, 1)] = 0.1
    masks: Annotated[int, Allowed(1)] = 5

    def load(self) -> ImageData:
        """List the images and compare all masks; nothing is written. Raises FcaError for what does not fit, named."""
        data = super().load()
        stock = inventory(open_root(self.root, "the files that the tables list"))
        path_of_image = dict(zip(data.items["image_id"], data.items["path"], strict=True))
        ids = list(path_of_image)
        lines = self._annotations(stock, path_of_image)
        read_mask = partial(mask_of, stock.files, objects=self.mask_object)

        def iou_with_truth(row: int) -> float:
            mask = lines["mask"][row]
            truth = lines["true_mask"][row]
            return iou(read_mask(mask, truth), read_mask(truth, truth)) if truth else np.nan

        try:
            lines["iou"] = list(parallel_map(iou_with_truth, len(lines), 0, "comparing masks with the truth"))
            workers = screened(lines, self.exam_least, self.check_least)
            work = lines[(lines["phase"] == "work") & lines["worker"].map(workers["kept"])]
            masks_of_image = {str(image_id): masks.tolist() for image_id, masks in work.groupby("image_id")["mask"]}
            annotated_ids = list(masks_of_image)

            def consolidate(image_id: str) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
                masks = [read_mask(path, path_of_image[image_id]) for path in masks_of_image[image_id]]
                return consolidated(np.stack(masks))

            def ious_with_majority(i: int) -> list[float]:
                return consolidate(annotated_ids[i])[1]

            ious_of_image = list(
                parallel_map(ious_with_majority, len(annotated_ids), 0, "comparing the masks of an image")
            )
        except UnreadableImage as error:
            raise FcaError("mask", error, "black and white, as large as its image", "mend it or its line") from error

        # images x masks: iou_1, iou_2, ...; NaN where an image has fewer masks
        columns = {f"iou_{i}": column for i, column in enumerate(zip_longest(*ious_of_image, fillvalue=np.nan), 1)}
        ious = pd.DataFrame(columns, annotated_ids, dtype=np.float64).reindex(ids).reset_index(drop=True)

        digests = stock.digests(work["mask"])
        content_of_masks = {}
        for image_id, paths in masks_of_image.items():
            content_of_masks[image_id] = " ".join([*(digests[path] for path in paths), self.mask_object])

        n_annotations = np.array([len(masks_of_image.get(image_id, ())) for image_id in ids])
        items = data.items.assign(
            mask_content=[content_of_masks.get(image_id, "") for image_id in ids],
            n_annotations=n_annotations,
            ask_again=(self.masks - n_annotations).clip(0),
            agreement=ious.mean(axis=1),
            **ious,
        )
        self._report(lines, workers, items)

        def majority_mask(image_id: str) -> Bool[np.ndarray, "height width"] | None:
            return consolidate(image_id)[0] if image_id in masks_of_image else None

        return replace(data, items=items, fingerprint=fingerprint(items), mask=AtPosition(majority_mask, ids))

    def _annotations(self, stock: Inventory, ids: Iterable[str]) -> pd.DataFrame:
        """The annotations, by image and worker. Raises FcaError naming the lines that do not fit."""
        name = self.annotations
        sizes = stock.listing.sizes
        try:
            content = stock.files.read(name) if name in sizes else bytes_of(Path(name).expanduser())
            lines = read_table(content, name)
            lines = lines[["image_id", "worker", "phase", "mask", "true_mask"]]
        except FcaError:
            raise
        except Exception as error:  # no such file or column, another encoding, a damaged archive: many kinds
            allowed = "a CSV with columns image_id, worker, phase, mask, true_mask"
            raise FcaError("dataset.annotations", name, allowed, f"mend it: {error}") from error

        for column in ("mask", "true_mask"):
            lines[column] = listed_paths(lines[column], sizes, self.root)

        is_work = lines["phase"] == "work"
        for is_wrong, allowed in (
            (~lines["phase"].isin(["exam", "check", "work"]), "exam, check or work as phase"),
            (lines["worker"].str.contains(r"^$|[\x00-\x1f\x7f-\x9f]"), "a worker, in printable text"),
            (~lines["mask"].isin([*sizes]), f"a file of {self.root} as mask"),
            (~is_work & ~lines["true_mask"].isin([*sizes]), f"a file of {self.root} as true_mask, of exam and check"),
            (is_work & ~lines["image_id"].isin([*ids]), f"an image of {self.file} as image_id, of work"),
            (lines.duplicated(["image_id", "worker", "phase"]), "one line a worker, phase and image"),
        ):
            if is_wrong.any():
                named = [f"{row + 2} ({', '.join(map(str, lines.loc[row]))})" for row in np.flatnonzero(is_wrong)]
                raise FcaError(f"lines of {name}", first_few(named), allowed, "correct them")

        lines["true_mask"] = lines["true_mask"].mask(is_work, "")
        return lines.sort_values(["image_id", "worker", "phase"], ignore_index=True)

    def _report(self, lines: pd.DataFrame, workers: pd.DataFrame, items: pd.DataFrame) -> None:
        """Log the removed workers, the images that need more masks, and the attention checks."""
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
        share = len(check_ious) / max(1, len(lines) - n_exam)
        level = logging.WARNING if share < self.checks else logging.INFO
        text = "attention checks: %.1f %% of the annotations (expected: %.1f %%), mean IoU %.2f; agreement %.2f"
        log.log(level, text, 100 * share, 100 * self.checks, check_ious.mean(), items["agreement"].mean())
