"""A generated set whose images need not exist: each is drawn when it is first read, and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, UInt8

from fca.data.files import content_of, decode, decode_mask, open_root
from fca.data.manifest import struck_ids
from fca.data.splits import Share, assemble
from fca.generation import Generator, Request, Unavailable
from fca.store.files import write_text
from fca.tasks.generate import Folder, Plan
from fca.tasks.generate.folder import Line, check_generator, latest
from fca.tasks.generate.work import TRIES, draw_one, is_of
from fca.types import FcaError, ImageData, UnreadableImage


@dataclass(frozen=True)
class OnDemand:
    """`dataset=on_demand`: all images of a plan, drawn one by one as a model asks for them.

    root:      the folder, as of `fca generate`: what it has is not drawn again, and struck images are left out.
    plan, generator: what is drawn, by what.    per_level: images a (class, attribute, level), None = the plan's.
    mirror:    whether a mirrored image still shows its class.

    No image can have been seen in any training before, if its seed was chosen after it.
    """

    root: str
    plan: Any  # a Plan; the type is Any so that a configuration may choose it
    generator: Any  # a Generator
    per_level: int | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed; none is drawn. Raises FcaError for a plan that the generator cannot draw."""
        plan = self._plan()
        folder = Folder(Path(self.root).expanduser())
        check_generator(folder.journal(), self.generator, folder.root)
        struck = struck_ids(folder.root)
        requests = {request.key: request for request in plan.requests() if request.key not in struck}
        meaning = sorted((request.key, request.prompt, request.seed) for request in requests.values())
        digest = hashlib.sha256(json.dumps(meaning).encode()).hexdigest()

        def drawer(items: pd.DataFrame) -> Drawer:
            return Drawer(folder, self.generator, plan, [requests[key] for key in items["image_id"]])

        return assemble(
            plan.name,
            pd.DataFrame([_item(request) for request in requests.values()]),
            lambda items: drawer(items),
            Share(0.1, 0),
            version=f"{self.generator.label()}, {self.generator.version()}, {digest}",
            mask=lambda items: drawer(items).visible,
            mirror=self.mirror,
        )

    def _plan(self) -> Plan:
        plan: Plan = self.plan.settled()
        if self.per_level is not None:
            plan = replace(plan, per_level=self.per_level).settled()
        if self.generator.prompted:
            plan.check_words()
        return plan


def _item(request: Request) -> dict[str, object]:
    names = ("label", "attribute", "level", "sublevel", "index", "triplet")
    return {"image_id": request.key, "split": "test", **{name: getattr(request, name) for name in names}}


class Seen:
    """What a growing journal says of every image; each line is read once."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.lines: dict[str, Line] = {}
        self.end = 0
        self.look()

    def look(self) -> None:
        """Read what was added."""
        lines, self.end = self.folder.since(self.end)
        self.lines.update(latest(lines))


@dataclass(frozen=True)
class Drawer:
    """Reads the image at a position, after drawing it if it is not there; safe in many threads and processes."""

    folder: Folder
    generator: Generator
    plan: Plan
    requests: Sequence[Request]

    def __call__(self, position: int) -> UInt8[np.ndarray, "height width 3"]:
        """Its pixels. Raises UnreadableImage where the generator refused it with three seeds."""
        return decode(*self._content(self._line(position)["file"]))

    def visible(self, position: int) -> Bool[np.ndarray, "height width"] | None:
        """Where it shows its object, where the generator tells."""
        mask = self._line(position)["mask"]
        return None if mask is None else decode_mask(*self._content(mask), "bright")

    def _content(self, path: str) -> tuple[bytes, str]:
        return content_of(open_root(str(self.folder.root), "the drawn images"), path)

    @cached_property
    def _seen(self) -> Seen:
        return Seen(self.folder)

    def _line(self, position: int) -> Line:
        """The journal's line of an image that is there."""
        request = self.requests[position]
        line = self._seen.lines.get(request.key)
        if line is None or not self._is_there(line, request):
            with self.folder.held(wait=True):
                self._seen.look()  # others may have drawn it meanwhile
                line = self._seen.lines.get(request.key)
                if line is None or not self._is_there(line, request):
                    line = self._drawn(request, line)
        return line

    def _is_there(self, line: Line, request: Request) -> bool:
        return line["kind"] == "image" and is_of(line, request) and self.folder.has(line)

    def _drawn(self, request: Request, before: Line | None) -> Line:
        """Drawn now and in the journal; a refusal is answered with the next seed."""
        if not (self.folder.root / "plan.yaml").exists():
            write_text(self.folder.root / "plan.yaml", self.plan.as_yaml())
        tried = before is not None and before["kind"] == "refusal" and is_of(before, request)
        first = before["seed"] + 1 if before is not None and tried else request.seed
        line = before
        for seed in range(first, request.seed + TRIES):
            try:
                line = draw_one(self.folder, self.generator, replace(request, seed=seed))
            except Unavailable as error:
                step = "try again later: images so far are kept"
                raise FcaError(
                    "generator", f"{self.generator.label()}: {error}", "a service that answers", step
                ) from error
            self.folder.add(line)
            if line["kind"] == "image":
                return line
        reason = line["refused"] if line is not None else "not tried"
        raise UnreadableImage(f"{request.key}: refused by {self.generator.label()} with {TRIES} seeds: {reason}")
