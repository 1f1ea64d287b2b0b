"""The folder of a generated set: images, masks and a journal to which a line is added when an image is whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from PIL import Image

from fca.data.manifest import MANIFEST, STRUCK, struck_ids
from fca.generation import Drawn, Generator, Request
from fca.store.files import write_text, write_whole
from fca.tasks.generate.plan import LEVELS
from fca.types import FcaError

Line = dict[str, Any]  # its "kind" is image, refusal or description


@dataclass(frozen=True)
class Folder:
    """Where a generated set lies: images/, masks/, journal.jsonl, plan.yaml, manifest.csv, review.html, struck.txt."""

    root: Path

    @contextmanager
    def held(self, wait: bool) -> Iterator[None]:
        """Nobody else adds to the folder while the body works. Raises FcaError if somebody does and `wait` is false."""
        self.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.root / ".lock", timeout=-1 if wait else 0)  # of its own: threads too wait for each other
        try:
            lock.acquire()
        except Timeout as error:
            step = "wait for it, or take another out"
            raise FcaError("out", self.root, "a folder that no other command is adding to", step) from error
        try:
            yield
        finally:
            lock.release()

    def journal(self) -> list[Line]:
        """All whole lines; one that was cut short when its writer was killed is none."""
        return self.since(0)[0]

    def since(self, start: int) -> tuple[list[Line], int]:
        """The whole lines from byte `start` on, and the byte after them."""
        path = self.root / "journal.jsonl"
        if not path.exists():
            return [], start
        with path.open("rb") as file:
            file.seek(start)
            whole, end, _ = file.read().rpartition(b"\n")
        return [self._parsed(line) for line in whole.split(b"\n") if line], start + len(whole + end)

    def _parsed(self, line: bytes) -> Line:
        try:
            found: Line = json.loads(line)
        except ValueError as error:
            where = f"a line of {self.root / 'journal.jsonl'}"
            raise FcaError(where, line[:60], "JSON", "restore the file, or remove the line") from error
        return found

    def add(self, line: Mapping[str, Any]) -> None:
        """One more line, on the disk when this returns. The folder is held."""
        path = self.root / "journal.jsonl"
        text = json.dumps(dict(line), allow_nan=False, ensure_ascii=False).encode() + b"\n"
        with path.open("ab") as file:
            if cut := self._cut_short(path):
                file.truncate(path.stat().st_size - cut)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def _cut_short(self, path: Path) -> int:
        """Bytes after the last whole line."""
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(-1, os.SEEK_END)
            if not size or file.read(1) == b"\n":
                return 0
            file.seek(0)
            return len(file.read().rpartition(b"\n")[2])

    def has(self, line: Mapping[str, Any]) -> bool:
        """Whether the files of an image's line are there."""
        return all((self.root / line[name]).exists() for name in ("file", "mask", "full_mask") if line[name])

    def keep(self, request: Request, drawn: Drawn) -> dict[str, str | None]:
        """Write an image and its masks, each whole or not at all; returns their paths below the root."""
        masks = {"mask": (drawn.visible, ""), "full_mask": (drawn.full, ".full")}
        kept: dict[str, str | None] = {"file": self._write(f"images/{request.key}.png", drawn.image)}
        for name, (mask, suffix) in masks.items():
            kept[name] = None if mask is None else self._write(f"masks/{request.key}{suffix}.png", mask)
        return kept

    def _write(self, path: str, pixels: np.ndarray) -> str:
        picture = Image.fromarray(pixels)
        write_whole(self.root / path, lambda file: picture.save(file, format="PNG"))
        return path


def latest(lines: list[Line]) -> dict[str, Line]:
    """The last line of every image: what it is now."""
    return {line["key"]: line for line in lines if line["kind"] != "description"}


def check_generator(lines: list[Line], generator: Generator, root: Path) -> None:
    """Raises FcaError when the folder holds images of another generator or version: a set is of one."""
    for line in latest(lines).values():
        found, asked = (line["generator"], line["version"]), (generator.label(), generator.version())
        if found != asked:
            raise FcaError(
                "generator", ", ".join(asked), f"{', '.join(found)}, which drew {root}", "take another folder"
            )


def request_line(request: Request, generator: Generator) -> Line:
    """What a journal's line says of a request, whatever came of it."""
    return {
        "key": request.key,
        "label": request.label,
        "name": request.name,
        "attribute": request.attribute,
        "level": request.level,
        "sublevel": request.sublevel,
        "index": request.index,
        "triplet": request.triplet,
        "prompt": request.prompt,
        "seed": request.seed,
        "generator": generator.label(),
        "version": generator.version(),
    }


# manifest.csv: one line an image that was asked for, from the journal; `dataset=generated` reads it.


FROM_LINE = ("label", "attribute", "level", "sublevel", "index", "triplet", "seed", "prompt", "generator", "version")


def manifest(lines: list[Line], struck: set[str]) -> pd.DataFrame:
    """Columns image_id, path, mask, full_mask, label, name, split, attribute, level, sublevel, index, triplet, seed,
    prompt, generator, version, money, state (drawn or refused), reason (of a refusal), accepted (drawn, not struck).
    """
    return pd.DataFrame([_told(line, struck) for _, line in sorted(latest(lines).items())])


def write_manifest(folder: Folder, lines: list[Line]) -> None:
    """Write manifest.csv, whole."""
    write_text(folder.root / MANIFEST, manifest(lines, struck_ids(folder.root)).to_csv(index=False))


def _told(line: Line, struck: set[str]) -> dict[str, object]:
    drawn = line["kind"] == "image"
    return {
        "image_id": line["key"],
        "path": line.get("file"),
        "mask": line.get("mask"),
        "full_mask": line.get("full_mask"),
        "split": "test",
        **{name: line[name] for name in FROM_LINE},
        "money": line.get("money"),
        "state": "drawn" if drawn else "refused",
        "reason": line.get("refused"),
        "accepted": drawn and line["key"] not in struck,
    }


# review.html: every image under its class and attribute, with a box to strike it; it exports struck.txt.


REVIEW = "review.html"


def review(lines: list[Line], struck: set[str], name: str) -> str:
    """The page; images are read from beside it, all else is in it."""
    groups: dict[tuple[str, str, str], list[list[Any]]] = {}
    for line in latest(lines).values():
        group = groups.setdefault((line["label"], line["name"], line["attribute"]), [])
        if line["kind"] == "image":
            said = line["facts"].get("revised_prompt") or line["prompt"] or ""
            group.append([line["key"], line["file"], LEVELS.index(line["level"]), said])
        else:
            group.append([line["key"], None, LEVELS.index(line["level"]), f"refused: {line['refused']}"])
    data = {
        "groups": [[*key, sorted(images)] for key, images in sorted(groups.items())],
        "struck": sorted(struck),
        "levels": LEVELS,
        "file": STRUCK,
    }
    return _template().render(name=name, data=data)


def write_review(folder: Folder, lines: list[Line], name: str) -> None:
    """Write review.html, whole."""
    write_text(folder.root / REVIEW, review(lines, struck_ids(folder.root), name))


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, autoescape=True).get_template("review.html.jinja")
