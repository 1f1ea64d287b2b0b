"""A generated set whose images need not exist: each is drawn when it is first read, and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, UInt8

from fca.allowed import Allowed
from fca.data.files import content_of, decode, decode_mask, open_root
from fca.data.manifest import word_of
from fca.data.splits import Share, assemble
from fca.stats.ask import ask_until_done
from fca.store.files import write_text
from fca.store.journal import Journal, Line
from fca.studies.generate.drawing import TRIES, draw_pass, is_of, pass_size
from fca.studies.generate.folder import Folder, check_generator, latest
from fca.studies.generate.plan import Plan
from fca.studies.generate.protocols import Generator, Request, Unavailable
from fca.types import FcaError, ImageData, UnreadableImage

ANNOTATIONS = ("label", "attribute", "level", "sublevel", "index", "triplet")


@dataclass(frozen=True)
class OnDemand:
    """`dataset=on_demand`: all images of a plan, drawn one by one as a model is run on them.

    root:      the folder, as of `fca generate`: what it has is not drawn again, and struck images are left out.
    plan, generator: what is drawn, by what.    per_level: images a (class, attribute, level), None = the plan's.
    mirror:    whether a mirrored image still shows its class.

    No image can have been seen in any training before, if its seed was chosen after it.
    """

    contracts: ClassVar[Mapping[str, type]] = {"generator": Generator}

    root: str
    plan: Any  # a Plan; the type is Any so that a configuration may choose it
    generator: Any
    per_level: Annotated[int | None, Allowed(1, 10_000)] = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed; none is drawn. Raises FcaError for a plan that the generator cannot draw."""
        plan: Plan = self.plan.resolved(self.per_level)
        if self.generator.prompted:
            plan.check_words()
        folder = Folder(Path(self.root).expanduser())
        check_generator(folder.journal.lines(), self.generator, folder.root)
        struck = word_of(folder.root).struck
        requests = {request.key: request for request in plan.requests() if request.key not in struck}
        meaning = sorted((request.key, request.prompt, request.seed) for request in requests.values())
        digest = hashlib.sha256(json.dumps(meaning).encode()).hexdigest()
        listed = [
            {"image_id": key, "split": "test", **{name: getattr(request, name) for name in ANNOTATIONS}}
            for key, request in requests.items()
        ]
        drawer = Drawer(folder, self.generator, plan, requests)
        return assemble(
            plan.name,
            pd.DataFrame(listed),
            drawer,
            Share(0.1, 0),
            version=f"{self.generator.label()}, {self.generator.version()}, {digest}",
            mask=drawer.visible,
            mirror=self.mirror,
        )


class Latest:
    """The last line of every image in a growing journal; each line is read once."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.lines, self.end = journal, dict[str, Line](), 0
        self.update()

    def update(self) -> None:
        """Read the lines that were added."""
        lines, self.end = self.journal.since(self.end)
        self.lines.update(latest(lines))


class Attempts:
    """Asks for an image with one seed after the other until it is drawn, or refused with TRIES seeds.

    before: the journal's last line of the image, if any.    image: the line of the drawn image.
    reason: why the last seed was refused.
    """

    def __init__(self, request: Request, before: Line | None) -> None:
        self.request, self.seed = request, request.seed
        self.image: Line | None = None
        self.reason = ""
        if before is not None and before["kind"] == "refusal" and is_of(before, request):
            self._refuse(before)

    def ask(self) -> Request | None:
        """The request with the next seed."""
        if self.image is not None or self.seed >= self.request.seed + TRIES:
            return None
        return replace(self.request, seed=self.seed)

    def tell(self, attempt: Request, line: Line) -> None:
        """Record the line of an attempt: an image or a refusal."""
        if line["kind"] == "image":
            self.image = line
        else:
            self._refuse(line)

    def _refuse(self, line: Line) -> None:
        self.seed, self.reason = line["seed"] + 1, line["refused"]


@dataclass(frozen=True)
class Drawer:
    """Reads an image by its id, after drawing it if it is not there; safe in many threads and processes.

    awaited: images that threads of this process wait for: a generator that draws several in a pass draws them together.
    """

    folder: Folder
    generator: Generator
    plan: Plan
    requests: Mapping[str, Request]
    awaited: dict[str, None] = field(default_factory=dict)

    def __call__(self, image_id: str) -> UInt8[np.ndarray, "height width 3"]:
        """Its pixels. Raises UnreadableImage where the generator refused it with three seeds."""
        return decode(*self._content(self._line(image_id)["file"]))

    def visible(self, image_id: str) -> Bool[np.ndarray, "height width"] | None:
        """The mask of its object, where the generator gives one."""
        mask = self._line(image_id)["mask"]
        return None if mask is None else decode_mask(*self._content(mask), "bright")

    def _content(self, path: str) -> tuple[bytes, str]:
        return content_of(open_root(str(self.folder.root), "the drawn images"), path)

    @cached_property
    def _latest(self) -> Latest:
        return Latest(self.folder.journal)

    def _line(self, image_id: str) -> Line:
        """The journal's line of an image whose files are there."""
        request = self.requests[image_id]
        line = self._found(request)
        if line is None:
            self.awaited[image_id] = None
            try:
                with self.folder.held(wait=True):
                    self._latest.update()  # another process or thread may have drawn it meanwhile
                    line = self._found(request) or self._drawn(request)
            finally:
                self.awaited.pop(image_id, None)
        return line

    def _found(self, request: Request) -> Line | None:
        line = self._latest.lines.get(request.key)
        there = line and line["kind"] == "image" and is_of(line, request) and self.folder.has(line)
        return line if there else None

    def _drawn(self, request: Request) -> Line:
        """Drawn now and in the journal, with others that are awaited; after a refusal the next seed is tried."""
        if not (self.folder.root / "plan.yaml").exists():
            write_text(self.folder.root / "plan.yaml", self.plan.as_yaml())
        journaled = self._latest.lines
        others = [self.requests[key] for key in list(self.awaited) if key not in journaled | {request.key: 0}]

        def draw(attempt: Request) -> Line:
            together = [attempt, *others[: pass_size(self.generator) - 1]]
            others.clear()  # drawn once, whether the attempt is refused or not
            lines = self._draw_together(together)
            for line in lines:
                self.folder.journal.add(line)
            return lines[0]

        attempts = Attempts(request, journaled.get(request.key))
        ask_until_done(attempts, draw)
        if attempts.image is None:
            reason = f"refused by {self.generator.label()} with {TRIES} seeds: {attempts.reason}"
            raise UnreadableImage(f"{request.key}: {reason}")
        return attempts.image

    def _draw_together(self, requests: Sequence[Request]) -> list[Line]:
        """The lines of images of one pass. Raises FcaError where the service that draws is down."""
        try:
            return draw_pass(self.folder, self.generator, requests)
        except Unavailable as error:
            step = "try again later: images so far are kept"
            service = f"{self.generator.label()}: {error}"
            raise FcaError("generator", service, "a service that answers", step) from error
