"""The folder of a generated set: images, masks, a journal, and made from that a manifest and a review page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from PIL import Image

from fca.csv_table import csv_text
from fca.data.manifest import MANIFEST, STRUCK, Word, word_of
from fca.render import LEVELS
from fca.store.files import write_text, write_whole
from fca.store.journal import Journal, Line
from fca.studies.generate.protocols import Drawn, Generator, Request
from fca.types import FcaError

REVIEW = "review.html"
MADE_FIRST = {".lock", "plan.yaml", "images", "masks"}  # before the journal has its first line
# What lines of the journal have, by their kind; null and numbers are not looked at.
_IMAGE = ("key", "label", "name", "attribute", "level", "generator", "version")
_TEXTS: dict[str, tuple[str, ...]] = {
    "image": (*_IMAGE, "file"), "refusal": (*_IMAGE, "refused"), "description": ("label", "attribute"),
    "check": ("key", "by"), "verdict": (), "mask": ("key", "by"),
}  # fmt: skip
_OTHERS = {
    "image": ("prompt", "seed", "mask", "full_mask", "facts"), "refusal": ("prompt", "seed"),
    "check": ("object", "attribute"), "verdict": ("rejected",), "mask": ("mask",),
}  # fmt: skip
SCORES = ("object", "attribute")  # of the checks
LISTED = (
    *("image_id", "path", "mask", "full_mask", "split", "label", "attribute", "level", "sublevel", "index", "triplet"),
    *("seed", "prompt", "generator", "version", "money", "state", "reason", "accepted"),
    *("object_score", "attribute_score", "rejected", "mask_by"),
)


@dataclass(frozen=True)
class Folder:
    """Where a generated set lies: images/, masks/, journal.jsonl, plan.yaml, manifest.csv, review.html, struck.txt.

    A line of the journal is added when an image is whole; its "kind" is image, refusal or description. What others find
    in an image are lines, too: check (its scores), verdict (all images that are rejected, with reasons) and mask.
    """

    root: Path

    @property
    def journal(self) -> Journal:
        """The file itself; only who holds the folder adds to it."""
        return Journal(self.root / "journal.jsonl", is_whole)

    @contextmanager
    def held(self, wait: bool) -> Iterator[None]:
        """Nobody else adds to the folder while the body works. Raises FcaError if somebody does and `wait` is false.

        And for a folder that holds anything that is not of a generated set: nothing of it is replaced.
        """
        parts = ".plan.yaml.*.part"  # of another thread, or of a command that was killed
        there = {path.name for path in self.root.iterdir() if not path.match(parts)} if self.root.exists() else set()
        # The journal is asked for last: another thread may have begun it, then the images, while the folder was listed.
        if (foreign := sorted(there - MADE_FIRST)) and not self.journal.path.exists():
            allowed = f"a new or empty folder, or one that fca generate made; this one has {foreign[0]}"
            raise FcaError("out", self.root, allowed, "take another out")
        self.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.root / ".lock", timeout=-1 if wait else 0)  # of its own: threads too wait for each other
        try:
            acquired = lock.acquire()
        except Timeout as error:
            step = "wait for it, or take another out"
            raise FcaError("out", self.root, "a folder that no other command is adding to", step) from error
        with acquired:
            yield

    def has(self, line: Mapping[str, Any]) -> bool:
        """Whether the files of an image's line are there and whole: their bytes fit the checksums of a PNG file."""
        return all(_is_whole_png(self.root / line[name]) for name in ("file", "mask", "full_mask") if line[name])

    def keep(self, request: Request, drawn: Drawn) -> dict[str, str | None]:
        """Write an image and its masks, each whole or not at all; returns their paths below the root."""
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
        """Write manifest.csv and review.html of these lines, each whole.    name: of the plan."""
        word = word_of(self.root)
        write_text(self.root / MANIFEST, csv_text(manifest(lines, word)))
        write_text(self.root / REVIEW, review(lines, word, name))


def _is_whole_png(path: Path) -> bool:
    """Whether a file holds a whole PNG image; no pixel is decoded."""
    try:
        with Image.open(path, formats=["PNG"]) as image:
            image.verify()
    except (OSError, SyntaxError, ValueError):  # missing, empty, cut, altered, something else
        return False
    return True


def is_whole(line: Line) -> bool:
    """Whether a line of the journal has what its kind has."""
    kind = str(line.get("kind"))
    return (
        kind in _TEXTS
        and all(isinstance(line.get(name), str) for name in _TEXTS[kind])
        and set(_OTHERS.get(kind, ())) <= set(line)
        and line.get("level", LEVELS[0]) in LEVELS
    )


def latest(lines: list[Line]) -> dict[str, Line]:
    """The last line of every image, which holds."""
    return {line["key"]: line for line in lines if line["kind"] in ("image", "refusal")}


def checked(lines: Sequence[Line]) -> tuple[dict[str, Line], dict[str, list[str]]]:
    """Image -> its scores, and image -> why it is rejected, by the latest check since it was drawn."""
    scores, rejected = dict[str, Line](), dict[str, list[str]]()
    for line in lines:
        if line["kind"] == "check":
            scores[line["key"]] = line
        elif line["kind"] == "verdict":
            rejected = dict(line["rejected"])
        elif line["kind"] in ("image", "refusal"):
            scores.pop(line["key"], None)
            rejected.pop(line["key"], None)
    return scores, rejected


def masked(lines: Sequence[Line]) -> dict[str, Line]:
    """Image -> the line of a segmenter's mask of it, since it was drawn."""
    found = dict[str, Line]()
    for line in lines:
        if line["kind"] == "mask":
            found[line["key"]] = line
        elif line["kind"] in ("image", "refusal"):
            found.pop(line["key"], None)
    return found


def check_generator(lines: list[Line], generator: Generator, root: Path) -> None:
    """Raises FcaError when the folder holds images of another generator or version: a set is of one."""
    wanted = (generator.label(), generator.version())
    for line in latest(lines).values():
        found = (line["generator"], line["version"])
        if found != wanted:
            allowed = f"{', '.join(found)}, which drew {root}"
            raise FcaError("generator", ", ".join(wanted), allowed, "take another folder")


def request_line(request: Request, generator: Generator) -> Line:
    """What a journal's line has of a request, whether it was drawn or refused."""
    about = {"key": request.key, "triplet": request.triplet, **asdict(request)}
    return {**about, "generator": generator.label(), "version": generator.version()}


def manifest(lines: list[Line], word: Word) -> pd.DataFrame:
    """One line an image of the journal, which `dataset=generated` reads.

    Columns image_id, path, mask, full_mask, split, label, attribute, level, sublevel, index, triplet, seed,
    prompt, generator, version, money, state (drawn or refused), reason (of a refusal), accepted (drawn, neither
    struck nor rejected, or kept by a person), object_score, attribute_score and rejected (why) of the checks;
    mask_by: the segmenter that made the mask, if the generator did not.
    """
    (scores, rejected), masks = checked(lines), masked(lines)
    frame = pd.DataFrame([{"mask": None, **line} for _, line in sorted(latest(lines).items())])
    drawn, keys = frame["kind"] == "image", frame["key"]
    state, accepted = np.where(drawn, "drawn", "refused"), drawn & ~keys.isin(word.out(rejected))
    named = frame.rename(columns={"key": "image_id", "file": "path", "refused": "reason"})
    seen: dict[str, Any] = {f"{name}_score": [scores.get(key, {}).get(name) for key in keys] for name in SCORES}
    seen["rejected"] = ["; ".join(rejected.get(key, [])) or None for key in keys]
    seen["mask"] = [mask or masks.get(key, {}).get("mask") for key, mask in zip(keys, frame["mask"], strict=True)]
    seen["mask_by"] = [masks[key]["by"] if key in masks and masks[key]["mask"] else None for key in keys]
    return named.assign(split="test", state=state, accepted=accepted, **seen).reindex(columns=LISTED)


def review(lines: list[Line], word: Word, name: str) -> str:
    """The page with every image under its class and attribute, and a box to strike it; it exports struck.txt.

    Images are read from beside it, all else is in it. What the checks rejected is ticked, until a person unticks it.
    """
    groups: dict[tuple[str, str, str], list[list[Any]]] = {}
    scores, rejected = checked(lines)
    for line in latest(lines).values():
        group = groups.setdefault((line["label"], line["name"], line["attribute"]), [])
        drawn, seen = line["kind"] == "image", scores.get(line["key"], {})
        text = line["facts"].get("revised_prompt") or line["prompt"] or "" if drawn else f"refused: {line['refused']}"
        for kind in SCORES:
            text += f"\n{kind} {seen[kind]:.3f}" if seen.get(kind) is not None else ""
        why = "; ".join(rejected.get(line["key"], []))
        group.append([line["key"], line["file"] if drawn else None, LEVELS.index(line["level"]), text, why])
    data = {
        "groups": [[*key, sorted(images)] for key, images in sorted(groups.items())],
        "struck": sorted(word.struck),
        "kept": sorted(word.kept),
        "levels": LEVELS,
        "file": STRUCK,
    }
    pages = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True)
    return pages.get_template("review.html.jinja").render(name=name, data=data)
