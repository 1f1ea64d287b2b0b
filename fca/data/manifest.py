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

from fca.allowed import Allowed
from fca.csv_table import read_table, with_types
from fca.data.content import Inventory, inventory
from fca.data.files import (
    MASK_OBJECTS,
    Files,
    bytes_of,
    content_of,
    decode_mask,
    image_of,
    in_order,
    name_of,
    open_root,
    upright_size,
)
from fca.data.listed_paths import check_files, listed_paths
from fca.data.splits import AtPosition, Share, White, assemble, shown, with_white
from fca.identity import OF_FILES, fingerprint
from fca.names import comparable, quoted, visible
from fca.store.query import columns_of, kept
from fca.types import FcaError, ImageData, UnreadableImage, check_choice

log = logging.getLogger(__name__)
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
    white:   the value of 16-bit files that is shown white; null = 65535. See fca.data.files.decode.
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
    white: White = None

    def load(self) -> ImageData:
        """List the images by what they and their masks contain; nothing is decoded.

        Raises FcaError for missing columns, values and files, naming them.
        """
        check_choice("dataset.mask_object", self.mask_object, MASK_OBJECTS)
        files = open_root(self.root, "the images that the manifest lists")
        found = inventory(files)
        sizes = found.listing.sizes
        listed = self._lines(self._read(files, sizes))
        self._no_gaps(listed)
        listed = listed.reset_index(drop=True)
        for column in {"path", "mask"} & set(listed):
            listed[column] = pd.Series(listed_paths(listed[column], sizes, self.root), dtype="str")
        wanted = [*listed["path"], *(path for path in listed.get("mask", []) if path)]
        check_files(f"files that {self.file} lists", wanted, sizes, self.root)
        self._one_line_a_file(listed)
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
            return image_of(files, paths[image_id], self.white)

        def mask(image_id: str) -> Bool[np.ndarray, "height width"] | None:
            shape = shape_of[image_id]
            if isinstance(shape, tuple):
                return box_mask(shape, *content_of(files, paths[image_id]))
            return mask_of(files, shape, paths[image_id], self.mask_object) if shape else None

        name = self.name or name_of(self.root)
        masks = mask if "mask_content" in listed else None
        return assemble(
            name,
            with_white(listed, self.white),
            read,
            self.val,
            self.splits,
            mask=masks,
            mirror=self.mirror,
            group=self.group,
        )

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
        except FcaError:
            raise
        except Exception as error:  # pandas, pyarrow and zipfile raise many kinds
            allowed = "a CSV with a header, or .parquet"
            raise FcaError("dataset.file", self.file, allowed, f"mend it: {error}") from error

    def _parsed(self, content: bytes) -> pd.DataFrame:
        theirs = {*self._named().values(), *([self.group] if self.group else [])}
        if self._is_parquet():
            if (number := pq.read_metadata(io.BytesIO(content)).num_rows) > MOST:
                raise ValueError(f"{number} lines, more than {MOST}")
            for field in pq.read_schema(io.BytesIO(content)):
                if field.name in theirs and pa.types.is_nested(field.type):
                    allowed, step = "one value a line: text or a number", "write it as another column"
                    raise FcaError(f"column {field.name} of {self.file}", field.type, allowed, step)
            frame = pd.read_parquet(io.BytesIO(content))
            if frame.index.name is not None:  # a column that pandas was given as the index
                frame = frame.reset_index()
            return frame.assign(**{c: frame[c].astype("str").fillna("") for c in theirs & set(frame)})
        frame = read_table(content, self.file)
        others = with_types(frame.drop(columns=list(theirs & set(frame))))
        return frame.assign(**others)

    def _lines(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The selected lines under our column names; the index is still that of all lines."""
        named = self._named()
        needed = {named[ours] for ours in (*REQUIRED, *(self.columns or {}))}
        missing = sorted(needed - set(frame))
        if missing:
            given = ", ".join(repr(str(name)) for name in frame)
            spelt_otherwise = {comparable(str(name)): str(name) for name in frame}
            pairs = []
            for ours, name in named.items():
                if name in missing:
                    pairs.append(f"{ours}: {spelt_otherwise.get(comparable(name), 'its_name')}")
            step = f"map them: dataset.columns='{{{', '.join(pairs)}}}'"
            raise FcaError("columns of the manifest", shown(missing), f"some of {given}", step)
        if self.where is not None:
            frame = self._selected(frame, self.where)
        theirs = {name: column for column, name in named.items() if name in frame}
        taken = [column for column in frame if column not in theirs and column in (*named, *OF_FILES)]
        renamed = frame.rename(columns={**theirs, **{column: f"{column}_in_file" for column in taken}})
        if self.group is not None:
            check_choice("dataset.group", self.group, renamed, "name a column of the manifest")
        return renamed

    def _selected(self, frame: pd.DataFrame, where: str) -> pd.DataFrame:
        """The lines that a query keeps. Raises FcaError if it keeps none, showing what the columns in it hold."""
        selected = kept(frame, where, "dataset.where")
        if selected.empty:
            held = [f"{column} holds {_examples(frame[column])}" for column in sorted(columns_of(where))]
            allowed = f"a query that selects lines of {self.file}, which has {len(frame)}: {'; '.join(held)}"
            raise FcaError("dataset.where", where, allowed, "correct it; texts stand in quotes, numbers do not")
        return selected

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
            step = f"""fill them, or leave them out: dataset.where="{self._named()[column]} != ''\""""
            raise FcaError(f"lines of {self.file} without {column}", shown(lines), "a value in every line", step)

    def _is_parquet(self) -> bool:
        return self.file.lower().endswith(".parquet")

    def _one_line_a_file(self, listed: pd.DataFrame) -> None:
        """Raises FcaError for a file on several lines, whatever their image ids, with what these lines give it."""
        left_out = [own for own, ours in (self.splits or {}).items() if ours is None]
        used = listed[~listed["split"].isin(left_out)] if left_out and "split" in listed else listed
        twice = used[used["path"].duplicated(keep=False)]
        if twice.empty:
            return
        named = []
        for path, lines in twice.groupby("path", sort=False):
            given = f"{quoted(str(path))} on {len(lines)} lines"
            for column in [column for column in ("label", "split") if column in lines]:
                given += f", {column} {' and '.join(map(quoted, lines[column].unique()))}"
            named.append(given)
        allowed = "one line, one label and one split for each image, whatever its image_id"
        step = f"remove the wrong lines of {self.file}, or use where"
        raise FcaError(f"files that {self.file} lists more than once", "; ".join(named[:5]), allowed, step)


def _examples(column: pd.Series) -> str:
    """The first values of a column as a query has them: texts in quotes, a missing value as None."""
    texts = [repr(value) for value in column.astype(object).where(column.notna(), None).tolist()]
    return shown(list(dict.fromkeys(texts))) or "nothing"


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

    Left out are refused images, those that a person struck, and those that the checks rejected and no person kept; so
    levels may differ in their numbers.
    """

    root: str
    name: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed. Raises FcaError for a folder without a manifest, and for struck images it never had."""
        folder, step = Path(self.root).expanduser(), f"run or go on with: fca generate out={self.root}"
        if not (folder / MANIFEST).is_file():
            raise FcaError("dataset.root", self.root, f"a folder with a {MANIFEST}", step)
        word = word_of(folder)
        listed = read_table(folder / MANIFEST, folder / MANIFEST)
        if unknown := sorted((word.struck | word.kept) - set(listed["image_id"])):
            raise FcaError(f"images in {folder / STRUCK}", shown(unknown), "image ids of the manifest", "correct them")
        out = word.out(
            listed["image_id"][listed["rejected"] != ""] if "rejected" in listed else ()
        )  # since there are checks
        where = f"state == 'drawn' and image_id not in {sorted(out)!r}"
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


class Word(NamedTuple):
    """What a person decided about a generated set: images to leave out, and images to keep whatever the checks find."""

    struck: frozenset[str]
    kept: frozenset[str]

    def out(self, rejected: Iterable[str]) -> set[str]:
        """All images to leave out.

        >>> sorted(Word(frozenset("a"), frozenset("b")).out("bc"))
        ['a', 'c']
        """
        return {*self.struck, *(set(rejected) - self.kept)}


def word_of(folder: Path) -> Word:
    """A person's word in struck.txt, if it exists: an id a line strikes an image, behind + it keeps one; # comments."""
    path = folder / STRUCK
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    words = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    kept = frozenset(word[1:].strip() for word in words if word.startswith("+"))
    return Word(frozenset(word for word in words if not word.startswith("+")), kept)


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
    """What is known of each worker (index): `exam`, `check` (mean IoU; NaN = none), and whether the masks are `kept`.

    lines:       columns worker, phase (exam, check or work), image_id and iou (with the truth).
    exam_least:  to pass, all images of the exam must be done, with this mean IoU; None = there is no exam.
    check_least: who has a lower mean IoU on attention checks is removed; who had none stays. None = nobody is.
    """
    of = pd.DataFrame(index=pd.Index(sorted(set(lines["worker"])), name="worker"))
    exam, check = (lines[lines["phase"] == phase].groupby("worker") for phase in ("exam", "check"))
    images = lines["image_id"][lines["phase"] == "exam"].nunique()
    of["exam"] = exam["iou"].mean().where(exam["image_id"].nunique() == images)
    of["check"] = check["iou"].mean()
    passed = True if exam_least is None else of["exam"] > exam_least - 1e-9  # a mean of .6 and .7 is .6499999999999999
    return of.assign(kept=passed & ~(of["check"] < (check_least or 0) - 1e-9))


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
        data, there = super().load(), inventory(open_root(self.root, "the files that the tables list"))
        path_of = dict(zip(data.items["image_id"], data.items["path"], strict=True))
        lines, ids = self._lines_of(there, path_of), list(path_of)
        read = partial(mask_of, there.files, objects=self.mask_object)

        def with_truth(row: int) -> float:
            mask, truth = lines["mask"][row], lines["true_mask"][row]
            return iou(read(mask, truth), read(truth, truth)) if truth else np.nan

        def of_all(image_id: str) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
            return consolidated(np.stack([read(path, path_of[image_id]) for path in drawn[image_id]]))

        try:
            lines["iou"] = list(in_order(with_truth, len(lines), 0, "comparing masks with the truth"))
            workers = screened(lines, self.exam_least, self.check_least)
            work = lines[(lines["phase"] == "work") & lines["worker"].map(workers["kept"])]
            drawn = {str(image_id): masks.tolist() for image_id, masks in work.groupby("image_id")["mask"]}
            have = list(drawn)
            found = list(in_order(lambda at: of_all(have[at])[1], len(have), 0, "comparing the masks of an image"))
        except UnreadableImage as error:
            raise FcaError("mask", error, "black and white, as large as its image", "mend it or its line") from error
        columns = {f"iou_{place}": column for place, column in enumerate(zip_longest(*found, fillvalue=np.nan), 1)}
        ious = pd.DataFrame(columns, have, dtype=np.float64).reindex(ids).reset_index(drop=True)

        digests = there.digests(work["mask"])
        content_of = {}
        for image_id, paths in drawn.items():
            content_of[image_id] = " ".join([*(digests[path] for path in paths), self.mask_object])
        n_annotations = np.array([len(drawn.get(image_id, ())) for image_id in ids])
        items = data.items.assign(
            mask_content=[content_of.get(image_id, "") for image_id in ids],
            n_annotations=n_annotations,
            ask_again=(self.masks - n_annotations).clip(0),
            agreement=ious.mean(axis=1),
            **ious,
        )
        self._report(lines, workers, items)
        mask = AtPosition(lambda image_id: of_all(image_id)[0] if image_id in drawn else None, ids)
        return replace(data, items=items, fingerprint=fingerprint(items), mask=mask)

    def _lines_of(self, there: Inventory, ids: Iterable[str]) -> pd.DataFrame:
        """The annotations, by image and worker. Raises FcaError naming the lines that do not fit."""
        sizes, name = there.listing.sizes, self.annotations
        try:
            content = there.files.read(name) if name in sizes else bytes_of(Path(name).expanduser())
            lines = read_table(content, name)
            lines = lines[["image_id", "worker", "phase", "mask", "true_mask"]]
        except FcaError:
            raise
        except Exception as error:  # no such file or column, another encoding, a damaged archive: many kinds
            allowed = "a CSV with columns image_id, worker, phase, mask, true_mask"
            raise FcaError("dataset.annotations", name, allowed, f"mend it: {error}") from error
        for column in ("mask", "true_mask"):
            lines[column] = listed_paths(lines[column], sizes, self.root)
        work = lines["phase"] == "work"
        for wrong, allowed in (
            (~lines["phase"].isin(["exam", "check", "work"]), "exam, check or work as phase"),
            (lines["worker"].str.contains(r"^$|[\x00-\x1f\x7f-\x9f]"), "a worker, in printable text"),
            (~lines["mask"].isin([*sizes]), f"a file of {self.root} as mask"),
            (~work & ~lines["true_mask"].isin([*sizes]), f"a file of {self.root} as true_mask, of exam and check"),
            (work & ~lines["image_id"].isin([*ids]), f"an image of {self.file} as image_id, of work"),
            (lines.duplicated(["image_id", "worker", "phase"]), "one line a worker, phase and image"),
        ):
            if wrong.any():
                named = [f"{row + 2} ({', '.join(map(str, lines.loc[row]))})" for row in np.flatnonzero(wrong)]
                raise FcaError(f"lines of {name}", shown(named), allowed, "correct them")
        lines["true_mask"] = lines["true_mask"].mask(work, "")
        return lines.sort_values(["image_id", "worker", "phase"], ignore_index=True)

    def _report(self, lines: pd.DataFrame, workers: pd.DataFrame, items: pd.DataFrame) -> None:
        removed, again = workers.index[~workers["kept"]].tolist(), items["image_id"][items["ask_again"] > 0].tolist()
        if removed:
            log.warning("masks of %d of %d workers are left out: %s", len(removed), len(workers), shown(removed))
        if again:
            log.warning("ask again for masks of %d images (column ask_again): %s", len(again), shown(again))
        checks, phases = lines["iou"][lines["phase"] == "check"], lines["phase"].value_counts()
        share = len(checks) / max(1, len(lines) - phases.get("exam", 0))
        level = logging.WARNING if share < self.checks else logging.INFO
        text = "attention checks: %.1f %% of the annotations (expected: %.1f %%), mean IoU %.2f; agreement %.2f"
        log.log(level, text, 100 * share, 100 * self.checks, checks.mean(), items["agreement"].mean())
