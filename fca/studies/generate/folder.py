"""The folder of a generated set: images, masks and a journal, from which a manifest and a review page are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from filelock import FileLock, Timeout
from PIL import Image

from fca.csv_table import csv_text
from fca.data.manifest import MANIFEST, STRUCK, Decisions, read_decisions
from fca.render import LEVELS
from fca.store.files import write_text, write_whole
from fca.store.journal import Journal, Line
from fca.studies.generate.protocols import Drawn, Generator, Request
from fca.types import FcaError

REVIEW = "review.html"
MADE_FIRST = {".lock", "plan.yaml", "images", "masks"}  # before the journal has its first line
# The keys of the journal's lines by their kind: those with texts, then those with any value.
_IMAGE = ("key", "label", "name", "attribute", "level", "generator", "version")
_TEXT_KEYS: dict[str, tuple[str, ...]] = {
    "image": (*_IMAGE, "file"),
    "refusal": (*_IMAGE, "refused"),
    "description": ("label", "attribute"),
    "check": ("key", "by"),
    "verdict": (),
    "mask": ("key", "by"),
}
_OTHER_KEYS = {
    "image": ("prompt", "seed", "mask", "full_mask", "facts"),
    "refusal": ("prompt", "seed"),
    "check": ("object", "attribute"),
    "verdict": ("rejected",),
    "mask": ("mask",),
}
SCORES = ("object", "attribute")  # of the checks
LISTED = (  # columns of the manifest
    *("image_id", "path", "mask", "full_mask", "split", "label", "attribute", "level", "sublevel", "index", "triplet"),
    *("seed", "prompt", "generator", "version", "money", "state", "reason", "accepted"),
    *("object_score", "attribute_score", "rejected", "mask_by"),
)


@dataclass(frozen=True)
class Folder:
    """The folder of a generated set: images/, masks/, journal.jsonl, plan.yaml, manifest.csv, review.html, struck.txt.

    A line of the journal is added when an image is complete; its "kind" is image, refusal or description. Results of
    checks and segmenters are lines, too: check (scores of an image), verdict (all rejected images with reasons), mask.
    """

    root: Path

    @property
    def journal(self) -> Journal:
        """The journal; only the process that holds the folder adds to it."""
        return Journal(self.root / "journal.jsonl", is_whole)

    @contextmanager
    def held(self, wait: bool) -> Iterator[None]:
        """Lock the folder in the body of `with`, so that no other command or thread adds to it.

        Creates the folder if needed. Raises FcaError for a folder with foreign files, so that none of them is ever
        replaced.

        wait: wait while another command or thread holds the lock; otherwise FcaError is raised.
        """
        self._check_content()
        self.root.mkdir(parents=True, exist_ok=True)
        # A new lock object for each call, so that threads of this process wait for each other, too.
        lock = FileLock(self.root / ".lock", timeout=-1 if wait else 0)
        try:
            acquired = lock.acquire()
        except Timeout as error:
            step = "wait for it, or take another out"
            raise FcaError("out", self.root, "a folder that no other command is adding to", step) from error
        with acquired:
            yield

    def _check_content(self) -> None:
        """Raise FcaError for a folder that has files but is no generated set.

        A generated set has a journal, the file with a line for each image, as soon as it has any image.
        """
        if not self.root.exists():
            return
        # A plan that another thread is writing, or that a killed command has left, is not foreign.
        unfinished = ".plan.yaml.*.part"
        names = {path.name for path in self.root.iterdir() if not path.match(unfinished)}
        foreign = sorted(names - MADE_FIRST)  # MADE_FIRST: what a set has before its journal has a line
        # Look for the journal last: another thread may have begun the set while the folder was listed.
        if foreign and not self.journal.path.exists():
            allowed = f"a new or empty folder, or one that fca generate made; this one has {foreign[0]}"
            raise FcaError("out", self.root, allowed, "take another out")

    def has(self, line: Mapping[str, Any]) -> bool:
        """Whether the files of an image's line exist and are whole: their bytes fit the checksums of a PNG file."""
        return all(_is_whole_png(self.root / line[name]) for name in ("file", "mask", "full_mask") if line[name])

    def keep(self, request: Request, drawn: Drawn) -> dict[str, str | None]:
        """Write an image and its masks, each completely or not at all.

        Returns file, mask and full_mask -> path relative to the root; None for a mask that the generator did not make.
        mask has the pixels that show the object, full_mask those that would show it if nothing were in front of it.
        """
        files = {
            "file": (f"images/{request.key}.png", drawn.image),
            "mask": (f"masks/{request.key}.png", drawn.visible),
            "full_mask": (f"masks/{request.key}.full.png", drawn.full),
        }
        for path, pixels in files.values():
            if pixels is not None:
                write_whole(self.root / path, partial(Image.fromarray(pixels).save, format="PNG"))
        return {name: None if pixels is None else path for name, (path, pixels) in files.items()}

    def write_lists(self, lines: list[Line], name: str) -> None:
        """Write manifest.csv and review.html, each completely or not at all.

        lines: the journal's lines.    name: the name of the plan.
        """
        decisions = read_decisions(self.root)  # what a person decided on the review page
        write_text(self.root / MANIFEST, csv_text(manifest(lines, decisions)))
        write_text(self.root / REVIEW, review(lines, decisions, name))


def _is_whole_png(path: Path) -> bool:
    """Whether a file is a whole PNG image, by its checksums; no pixel is decoded."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            image.verify()
    except (OSError, SyntaxError, ValueError):  # missing, empty, cut, altered, something else
        return False
    return True


def is_whole(line: Line) -> bool:
    """Whether a line of the journal has the keys of its kind."""
    kind = str(line.get("kind"))
    if kind not in _TEXT_KEYS:
        return False
    has_texts = all(isinstance(line.get(name), str) for name in _TEXT_KEYS[kind])
    has_others = set(_OTHER_KEYS.get(kind, ())) <= set(line)
    has_level = line.get("level", LEVELS[0]) in LEVELS  # kinds without a level pass
    return has_texts and has_others and has_level


def latest(lines: list[Line]) -> dict[str, Line]:
    """Key of an image -> its last line, of an image or a refusal. An image that was drawn again has several lines."""
    return {line["key"]: line for line in lines if line["kind"] in ("image", "refusal")}


def checked(lines: Sequence[Line]) -> tuple[dict[str, Line], dict[str, list[str]]]:
    """The results of checks in a journal: key of an image -> line with its scores; key of a rejected image -> reasons.

    The journal is the file of a folder to which every image, refusal, check and mask adds a line. A check line has the
    scores of one image. A verdict line has all rejected images of the folder, so each replaces the verdict before it.

    Only the latest scores and verdict count. An image that was drawn again after its check has no results.
    """
    scores: dict[str, Line] = {}
    rejected: dict[str, list[str]] = {}
    for line in lines:
        if line["kind"] == "check":
            scores[line["key"]] = line
        elif line["kind"] == "verdict":
            rejected = dict(line["rejected"])
        elif line["kind"] in ("image", "refusal"):  # drawn (again): earlier results are of another picture
            scores.pop(line["key"], None)
            rejected.pop(line["key"], None)
    return scores, rejected


def masked(lines: Sequence[Line]) -> dict[str, Line]:
    """Key of an image -> the latest line of a segmenter's mask (kind `mask`), which may have found no object.

    Only lines after the image was last drawn count.
    """
    mask_lines: dict[str, Line] = {}
    for line in lines:
        if line["kind"] == "mask":
            mask_lines[line["key"]] = line
        elif line["kind"] in ("image", "refusal"):  # drawn (again): an earlier mask is of another picture
            mask_lines.pop(line["key"], None)
    return mask_lines


def check_generator(lines: list[Line], generator: Generator, root: Path) -> None:
    """Raise FcaError for a folder with images of another generator or version: a set has only one.

    lines: the lines of the folder's journal.    root: the folder, for the message.
    """
    present = (generator.label(), generator.version())
    for line in latest(lines).values():
        earlier = (line["generator"], line["version"])
        if earlier != present:
            allowed = f"{', '.join(earlier)}, which drew {root}"
            raise FcaError("generator", ", ".join(present), allowed, "take another folder")


def request_line(request: Request, generator: Generator) -> Line:
    """The part of a journal's line that comes from the request, whether it was drawn or refused."""
    return {
        "key": request.key,
        "triplet": request.triplet,
        **asdict(request),
        "generator": generator.label(),
        "version": generator.version(),
    }


def manifest(lines: list[Line], decisions: Decisions) -> pd.DataFrame:
    """The table manifest.csv, one line for each image of the journal, with columns LISTED, for `dataset=generated`.

    state is drawn or refused; reason is the reason of a refusal. accepted is whether the image counts: it was drawn,
    and a person kept it, or neither a person struck it nor the checks rejected it. object_score, attribute_score and
    rejected (the reasons) are results of the checks. mask_by is the segmenter that made the mask; empty if the
    generator made it, or if there is no mask.

    lines: the journal's lines, of one image or refusal at least.    decisions: what a person decided on images.
    """
    scores, rejected = checked(lines)
    mask_lines = masked(lines)  # key of an image -> the line of a segmenter's attempt to make its mask

    def mask_columns(key: str, generator_mask: str | None) -> tuple[str | None, str | None]:
        """Path of the mask of an image, and the name of the segmenter that made it.

        The path is None without a mask; the name is None without a segmenter's mask. An image whose generator made a
        mask gets none by a segmenter.
        """
        line = mask_lines.get(key)
        segmenter_mask = line["mask"] if line else None  # None in the line: the segmenter found no object
        mask_by = line["by"] if line and segmenter_mask else None
        return generator_mask or segmenter_mask, mask_by

    records = []
    for key, line in sorted(latest(lines).items()):
        is_drawn = line["kind"] == "image"
        mask, mask_by = mask_columns(key, line.get("mask"))
        record = {
            **line,
            "image_id": key,
            "path": line.get("file"),
            "mask": mask,
            "mask_by": mask_by,
            "split": "test",  # a generated set has test images only
            "state": "drawn" if is_drawn else "refused",
            "reason": line.get("refused"),
            "rejected": "; ".join(rejected.get(key, [])) or None,
        }
        for name in SCORES:
            record[f"{name}_score"] = scores.get(key, {}).get(name)
        records.append(record)

    frame = pd.DataFrame(records)
    # `out`: the images that a person struck, or that a check rejected and no person kept
    is_out = frame["image_id"].isin(decisions.out(rejected))
    return frame.assign(accepted=(frame["kind"] == "image") & ~is_out).reindex(columns=LISTED)


def _caption(line: Line, scores: Mapping[str, Any]) -> str:
    """The text below an image of the review page: its prompt and its scores, or the reason of a refusal.

    line: the image's line in the journal.    scores: its scores by the checks; empty if it was not checked.
    """
    if line["kind"] != "image":
        return f"refused: {line['refused']}"
    prompt = line["facts"].get("revised_prompt") or line["prompt"] or ""
    score_lines = [f"{name} {scores[name]:.3f}" for name in SCORES if scores.get(name) is not None]
    return "\n".join([prompt, *score_lines])


def review(lines: list[Line], decisions: Decisions, name: str) -> str:
    """The HTML of the review page, on which a person strikes images (excludes them): each image has a box to tick.

    Images are grouped by class and attribute, and loaded from the files beside the page. Images that the checks
    rejected are ticked until a person unticks them. The page exports the decisions as struck.txt.

    lines: the journal's lines.    decisions: those that a person made earlier.    name: the name of the plan.
    """
    scores, rejected = checked(lines)
    groups: dict[tuple[str, str, str], list[list[Any]]] = {}
    for line in latest(lines).values():
        key = line["key"]
        file = line["file"] if line["kind"] == "image" else None
        reasons = "; ".join(rejected.get(key, []))
        group = groups.setdefault((line["label"], line["name"], line["attribute"]), [])
        # the fields that the page's script expects, in its order; `file` is None for a refusal
        group.append([key, file, LEVELS.index(line["level"]), _caption(line, scores.get(key, {})), reasons])

    data = {
        "groups": [[*class_and_attribute, sorted(images)] for class_and_attribute, images in sorted(groups.items())],
        "struck": sorted(decisions.struck),
        "kept": sorted(decisions.kept),
        "levels": LEVELS,
        "file": STRUCK,
    }
    pages = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    return pages.get_template("review.html.jinja").render(name=name, data=data)
