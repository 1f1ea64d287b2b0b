"""A generated set whose images need not exist yet: each is drawn when it is first read, and stored."""

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

from fca.data.files import content_of, decode, decode_mask, open_root
from fca.data.manifest import read_decisions
from fca.data.splits import Share, assemble
from fca.store.files import write_text
from fca.store.journal import Journal, Line
from fca.studies.generate.drawing import MAX_ATTEMPTS, draw_pass, is_of, pass_size
from fca.studies.generate.folder import Folder, check_generator, latest
from fca.studies.generate.plan import Plan
from fca.studies.generate.protocols import Generator, Request, Unavailable
from fca.types import FcaError, ImageData, UnreadableImage
from fca.validation import Allowed

ANNOTATIONS = ("label", "attribute", "level", "sublevel", "index", "triplet")


@dataclass(frozen=True)
class OnDemand:
    """`dataset=on_demand`: all images of a plan, drawn one by one when a model is run on them.

    root:      the folder, such as `fca generate` makes: its images are not drawn again, and struck images are left out.
    plan, generator: what is drawn, and what draws it.
    per_level: images per (class, attribute, level); None = as planned.
    mirror:    whether a mirrored image still shows its class.

    If the seed is chosen after a training, that training cannot have seen any of the images.
    """

    contracts: ClassVar[Mapping[str, type]] = {"generator": Generator}

    root: str
    plan: Any  # a Plan; the type is Any so that a configuration may choose it
    generator: Any
    per_level: Annotated[int | None, Allowed(1, 10_000)] = None
    mirror: bool = True

    def load(self) -> ImageData:
        """The data set of the plan's images, which are drawn only when they are read.

        All of them are test images. As they have no content yet, the fingerprint that identifies the data set is made
        of what decides their pixels: prompts, seeds and the generator. Images that a person struck (excluded on the
        review page of the folder) are left out.

        Raises FcaError for a plan that the generator cannot draw, and for a folder of another generator.
        """
        plan: Plan = self.plan.resolved(self.per_level)  # with the values of its file, checked
        if self.generator.prompted:
            plan.check_words()  # raises if descriptions are missing
        folder = Folder(Path(self.root).expanduser())
        check_generator(folder.journal.lines(), self.generator, folder.root)

        struck = read_decisions(folder.root).struck
        requests = {request.key: request for request in plan.requests() if request.key not in struck}
        items = []
        for key, request in requests.items():
            annotations = {name: getattr(request, name) for name in ANNOTATIONS}
            items.append({"image_id": key, "split": "test", **annotations})

        identity = sorted((request.key, request.prompt, request.seed) for request in requests.values())
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        drawer = Drawer(folder, self.generator, plan, requests)  # reads an image, or its mask, by the id of the image
        return assemble(
            plan.name,
            pd.DataFrame(items),
            drawer,
            Share(0.1, seed=0),  # required: what to hold out of training images for validation; here there are none
            # enters the fingerprint
            version=f"{self.generator.label()}, {self.generator.version()}, {digest}",
            mask=drawer.visible,  # the pixels that show the object
            mirror=self.mirror,  # whether a mirrored image still shows its class
        )


class Latest:
    """The last line of every image in a growing journal; each line of the file is read once.

    lines: key of an image -> its last line, of an image or a refusal, up to the latest `update`.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.lines: dict[str, Line] = {}
        self.end = 0  # of the part that was read
        self.update()

    def update(self) -> None:
        """Read the new lines."""
        lines, self.end = self.journal.since(self.end)
        self.lines.update(latest(lines))


class Attempts:
    """A request with one seed after the other, until its image is drawn or MAX_ATTEMPTS seeds were refused.

    `next_request` gives the request to draw, and `record` keeps what came of it.

    image:  the line of the drawn image; None until it is drawn.    seed: the next seed to try.
    reason: of the last refusal.
    """

    def __init__(self, request: Request, last_line: Line | None) -> None:
        """Begin with the request's own seed, or after the seed that was refused last.

        last_line: the journal's last line of the image; None if there is none.
        """
        self.request = request
        self.seed = request.seed
        self.image: Line | None = None
        self.reason = ""
        if last_line is not None and last_line["kind"] == "refusal" and is_of(last_line, request):
            self._refuse(last_line)

    def next_request(self) -> Request | None:
        """The request with the next seed to try; None if the image is drawn, or all seeds were refused."""
        if self.image is not None or self.seed >= self.request.seed + MAX_ATTEMPTS:
            return None
        return replace(self.request, seed=self.seed)

    def record(self, line: Line) -> None:
        """Keep the line of an attempt: an image or a refusal."""
        if line["kind"] == "image":
            self.image = line
        else:
            self._refuse(line)

    def _refuse(self, line: Line) -> None:
        """Go on to the seed after the refused one."""
        self.seed = line["seed"] + 1
        self.reason = line["refused"]


@dataclass(frozen=True)
class Drawer:
    """Reads an image by its id, and draws it first if it does not exist; safe in many threads and processes.

    plan:     is written into the folder before the first image.
    requests: id of an image -> its request.
    awaited:  ids of images for which threads of this process wait, as keys; a generator with batches draws them in one
              pass.
    """

    folder: Folder
    generator: Generator
    plan: Plan
    requests: Mapping[str, Request]
    awaited: dict[str, None] = field(default_factory=dict)

    def __call__(self, image_id: str) -> UInt8[np.ndarray, "height width 3"]:
        """The pixels of an image. Raises UnreadableImage if the generator refused it with three seeds."""
        return decode(*self._content(self._line(image_id)["file"]))

    def visible(self, image_id: str) -> Bool[np.ndarray, "height width"] | None:
        """The mask of its object; None if the generator makes none."""
        mask = self._line(image_id)["mask"]
        return None if mask is None else decode_mask(*self._content(mask), "bright")

    def _content(self, path: str) -> tuple[bytes, str]:
        """The bytes of a file in the folder, and its name for messages."""
        return content_of(open_root(str(self.folder.root), "the drawn images"), path)

    @cached_property
    def _latest(self) -> Latest:
        """The journal's last lines, which are read when they are first needed."""
        return Latest(self.folder.journal)

    def _line(self, image_id: str) -> Line:
        """The journal's line of an image; the image is drawn first if it does not exist.

        Waits while another thread or process draws in the folder. Raises UnreadableImage if all seeds are refused.
        """
        request = self.requests[image_id]
        line = self._existing(request)  # None if the image is not drawn, or damaged
        if line is None:
            # Announce the image by its key (the value has no meaning): the thread that holds the lock of the folder may
            # draw it in one pass with its own image.
            self.awaited[image_id] = None
            try:
                with self.folder.held(wait=True):
                    self._latest.update()  # read the journal: another process or thread may have drawn it meanwhile
                    line = self._existing(request) or self._draw(request)
            finally:
                self.awaited.pop(image_id, None)
        return line

    def _existing(self, request: Request) -> Line | None:
        """The line of this request's image; None if it is not drawn, or its files are missing or damaged."""
        line = self._latest.lines.get(request.key)
        if line is None or line["kind"] != "image" or not is_of(line, request):
            return None
        return line if self.folder.has(line) else None

    def _draw(self, request: Request) -> Line:
        """Draw an image and add it to the journal; return its line. After a refusal the next seed is tried.

        A generator that draws several images in one pass also draws images that other threads wait for.
        Raises UnreadableImage if all seeds are refused. The caller has locked the folder.
        """
        if not (self.folder.root / "plan.yaml").exists():
            write_text(self.folder.root / "plan.yaml", self.plan.as_yaml())
        last_lines = self._latest.lines
        # Images for which other threads wait and that have no line yet. `list` copies the keys, since these threads may
        # change the dictionary.
        awaited = [self.requests[key] for key in list(self.awaited) if key not in last_lines and key != request.key]
        beside = awaited[: pass_size(self.generator) - 1]  # as many as fit into a pass with this image

        # `attempts` gives the request with one seed after another, until its image is drawn or MAX_ATTEMPTS seeds were
        # refused. If the journal's last line is a refusal, it starts with the seed after the refused one.
        attempts = Attempts(request, last_lines.get(request.key))
        while (attempt := attempts.next_request()) is not None:
            lines = self._draw_together([attempt, *beside])  # a line for each, of an image or of a refusal
            for line in lines:
                self.folder.journal.add(line)
            attempts.record(lines[0])  # the first line is that of the attempt
            beside = []  # further attempts must not draw these again
        if attempts.image is None:
            reason = f"refused by {self.generator.label()} with {MAX_ATTEMPTS} seeds: {attempts.reason}"
            raise UnreadableImage(f"{request.key}: {reason}")
        return attempts.image  # the journal's line of the image

    def _draw_together(self, requests: Sequence[Request]) -> list[Line]:
        """Draw images in one pass; return a line for each. Raises FcaError if the drawing service does not answer."""
        try:
            return draw_pass(self.folder, self.generator, requests)
        except Unavailable as error:
            step = "try again later: images so far are kept"
            service = f"{self.generator.label()}: {error}"
            raise FcaError("generator", service, "a service that answers", step) from error
