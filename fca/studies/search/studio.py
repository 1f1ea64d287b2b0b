"""The studio of a search: it has images of a subdomain drawn, judges them, and keeps every verdict in a journal."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rich.progress import Progress

from fca.data.files import decode, threads
from fca.models import build_model
from fca.progress import Lines, on_terminal
from fca.stats.ask import Asker, ask_until_done
from fca.store.files import DamagedFile, open_to_append, opened, remove, write_whole
from fca.store.journal import Journal, Line
from fca.studies.generate.drawing import bound_to_parent, drawn_together, pass_size
from fca.studies.generate.protocols import Drawn, Generator, Refused, Unavailable, Wanted
from fca.tasks import RunContext
from fca.tasks.predict import ForwardWork
from fca.types import Classifier, FcaError, ImageData, Model, Run, keyed_rng
from fca.validation import fits

Seconds = tuple[str | None, float]  # that a draw took, after why it was refused, if it was
Visits = Int[np.ndarray, " visits"]
log = logging.getLogger(__name__)


class Searched(Protocol):
    """What of a search its studio needs; see `fca.studies.search.task.Search`."""

    @property
    def domain(self) -> Any: ...
    @property
    def generator(self) -> Any: ...
    @property
    def filter(self) -> Any: ...
    @property
    def second(self) -> Any: ...
    @property
    def parallel(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def stored_px(self) -> int | None: ...


class Work(NamedTuple):
    """The work of a search.    data: its subdomains, for the store.    clean: the run that predicts test images."""

    data: ImageData
    model: Model
    reader: Any  # the encoder as a classifier over prompts, where one is needed
    clean: Run[ForwardWork]


class Draw(NamedTuple):
    """One image: kept? recognised? probability of the target, and of its own prompt; why it was refused."""

    accepted: bool
    correct: bool
    p: float | None
    score: float | None
    second: int  # whether the second model recognises it; -1: there is none, or the image was not kept
    refused: str | None


@dataclass
class Visit:
    """A visit of a subdomain, over when `wanted` images are accepted or `most` are drawn.

    name: of its folder.    first: number of its first image among those of the subdomain.    kind: of its seeds.
    """

    name: str
    subdomain: int
    wanted: int
    most: int
    first: int
    kind: str = "search"
    rule: int = -1
    seconds: float = 0.0
    draws: list[Draw] = field(default_factory=list)
    waiting: list[Future[list[Seconds]]] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        return sum(draw.accepted for draw in self.draws)

    @property
    def right(self) -> int:
        return sum(draw.correct for draw in self.draws if draw.accepted)

    @property
    def paid(self) -> int:
        return sum(draw.refused is None for draw in self.draws)

    @property
    def left(self) -> int:
        """Images to draw before it can be over; 0 when it is."""
        return min(self.wanted - self.accepted, self.most - len(self.draws))

    def take(self, line: Line) -> None:
        """Add the draws in a line of the journal."""
        self.draws += [Draw(*draw) for draw in line["draws"]]
        self.seconds += line["seconds"]


def history_of(visits: Sequence[Visit]) -> tuple[Visits, Visits, Visits]:
    """Subdomain, images right and images shown of every visit."""
    counts = [(visit.subdomain, visit.right, visit.accepted) for visit in visits]
    visited, correct, shown = np.array(counts, np.int32).reshape(-1, 3).T
    return visited, correct, shown


class Studio:
    """Has visits drawn and judged, several at once; what was judged is in the journal of the run's folder.

    Images are drawn ahead by processes (by one thread, where the generator is not parallel) while others are judged.
    Raises FcaError where the model, or the second one, does not know the target.
    """

    def __init__(self, search: Searched, run: Run[Work], context: RunContext) -> None:
        work = run.work
        self.search, self.folder, self.seed = search, context.store.folder(run.run_id), context.seed
        self.accelerator, self.reader = context.machine.accelerator, work.reader and work.reader.build()
        networks = [build_model(model) for model in (work.model, search.second) if model]
        self.networks = [(network, search.domain.columns(network.classes)) for network in networks]
        processes = threads(search.workers) if search.generator.parallel else 1
        # spawned: a fork of a process that has threads (torch, BLAS) may hang
        many = partial(ProcessPoolExecutor, processes, get_context("spawn"), bound_to_parent)
        self.pool = many() if processes > 1 else ThreadPoolExecutor(1, "fca-draw")
        self.journal = Journal(self.folder / "journal.jsonl", is_whole)
        lines = self.journal.lines_or_anew("all images are judged again")
        open_to_append(self.journal.path).close()  # from here on, the store keeps the folder of a search that fails
        self.lines_of_visit = defaultdict[str, list[Line]](list)
        for line in lines:
            self.lines_of_visit[line["visit"]].append(line)
        self.elapsed, self.mark = sum(line["elapsed"] for line in lines), time.perf_counter()

    @property
    def words(self) -> Float[np.ndarray, "subdomains features"] | None:
        """The prompts as the encoder embeds them, of unit length; None without encoder."""
        if self.reader is None:
            return None
        texts = self.reader.head.weight.detach().cpu().numpy().astype(np.float64)
        return texts / np.linalg.norm(texts, axis=1, keepdims=True)

    def finish(self, asker: Asker[Visit, tuple[int, int]], doing: str, total: int | None) -> None:
        """Finish all visits that are asked for, in the order asked, whichever images are drawn first."""
        finished, lines = count(1), Lines(doing, total)
        with Progress(transient=True, disable=not on_terminal()) as bar:
            task = bar.add_task(doing, total=total)

            def counts_of_oldest(*pending: Visit) -> tuple[int, int]:
                for visit in pending:
                    for line in self.lines_of_visit.pop(visit.name, []):
                        visit.take(line)
                while pending[0].left:
                    self._advance(pending)
                bar.advance(task)
                lines.show(next(finished))
                return pending[0].right, pending[0].accepted

            ask_until_done(asker, counts_of_oldest, in_hand=self.search.parallel)

    def _advance(self, pending: Sequence[Visit]) -> None:
        """Have images drawn for all visits, and judge those of the first one whose images are all there."""
        for visit in pending:
            if visit.left and not visit.waiting:
                visit.waiting = list(self._begin(visit))
        ready = next((visit for visit in pending if visit.waiting and all(one.done() for one in visit.waiting)), None)
        if ready is None:
            wait([one for visit in pending for one in visit.waiting if not one.done()], return_when=FIRST_COMPLETED)
            return
        with self._service():
            self._add(ready, [drawn for one in ready.waiting for drawn in one.result()])
        ready.waiting = []

    def _begin(self, visit: Visit) -> Iterator[Future[list[Seconds]]]:
        """Have the images drawn that a visit lacks: as many in a pass as the generator takes."""
        search, first, size = self.search, len(visit.draws), pass_size(self.search.generator)
        for start in range(first, first + visit.left, size):
            numbers = range(start, min(start + size, first + visit.left))
            wanted = [search.domain.wanted(visit.subdomain, self._seed(visit, number)) for number in numbers]
            files = [self.file(visit, number) for number in numbers]
            yield self.pool.submit(draw, search.generator, wanted, files, search.stored_px)

    def _seed(self, visit: Visit, number: int) -> int:
        return int(keyed_rng(visit.kind, self.seed, visit.subdomain, visit.first + number).integers(2**32))

    def _add(self, visit: Visit, drawn: list[Seconds]) -> None:
        """Judge the images that were drawn for a visit; the journal has the verdicts when this returns."""
        begun, draws = time.perf_counter(), [Draw(False, False, None, None, -1, refused) for refused, _ in drawn]
        there = [at for at, draw in enumerate(draws) if draw.refused is None]
        for at, verdict in zip(there, self._judged(visit, there), strict=True):
            draws[at] = verdict
        now = time.perf_counter()
        line = {"visit": visit.name, "draws": draws, "seconds": sum(s for _, s in drawn) + now - begun}
        self.journal.add(line | {"elapsed": now - self.mark})
        visit.take(line)
        self.elapsed, self.mark = self.elapsed + now - self.mark, now

    def _judged(self, visit: Visit, ahead: list[int]) -> list[Draw]:
        """Verdicts on images of a visit: those that are `ahead` of what it has."""
        from fca.training.infer import logits_of

        def logits(network: Classifier) -> Float[np.ndarray, "images logits"]:
            pixels = np.stack([network.geometry(image)[0] for image in images])
            return logits_of(network, pixels, np.arange(len(images)), accelerator=self.accelerator)

        if not ahead:
            return []
        files = [self.file(visit, len(visit.draws) + at) for at in ahead]
        images = [decode(file.read_bytes(), str(file)) for file in files]

        domain, image_filter = self.search.domain, self.search.filter
        read = logits(self.reader) if image_filter.texts(domain) else np.zeros((len(images), 0))
        kept, scores = image_filter.accept(read, visit.subdomain, domain)
        known_scores = [None if np.isnan(score) else score for score in scores.tolist()]

        (right, p), *of_others = (domain.judged(logits(network), classes) for network, classes in self.networks)
        right_of_second = np.where(kept, of_others[0][0], -1) if of_others else np.full(len(images), -1)
        columns = (kept.tolist(), right.tolist(), p.tolist(), known_scores, right_of_second.tolist())
        return [Draw(*of_image, None) for of_image in zip(*columns, strict=True)]

    def draw_again(self, images: Sequence[tuple[Visit, int]]) -> None:
        """Draw those images (a visit, and the number of one of its draws) whose files are missing or damaged.

        The seeds are those of the first time. Raises FcaError where the generator now refuses one.
        """
        gone = [(visit, number) for visit, number in images if _kept(self.file(visit, number)) is None]
        if not gone:
            return

        log.warning("%d images are missing or damaged, such as %s: drawn again", len(gone), self.file(*gone[0]))
        for visit, number in gone:
            file = self.file(visit, number)
            remove(file)
            wanted = self.search.domain.wanted(visit.subdomain, self._seed(visit, number))
            with self._service():
                ((refused, _),) = draw(self.search.generator, [wanted], [file], self.search.stored_px)
            if refused is not None:
                step = f"remove {self.journal.path}, and the search judges all images again"
                raise FcaError("image drawn again", file, f"an image; {refused}", step)

    @contextmanager
    def _service(self) -> Iterator[None]:
        """Draw in the body. Raises FcaError where the service that draws is down."""
        try:
            yield
        except Unavailable as error:
            service, step = f"{self.search.generator.label()}: {error}", "try again later: the same command goes on"
            raise FcaError("generator", service, "a service that answers", step) from error

    def file(self, visit: Visit, number: int) -> Path:
        """Where an image of a visit is kept."""
        return self.folder / "images" / visit.name / f"{number:04d}.png"


def draw(generator: Generator, wanted: Sequence[Wanted], files: Sequence[Path], side: int | None) -> list[Seconds]:
    """Draw images of one pass into files, which have their seconds too; those that are there are not drawn again."""
    done = {file: kept for file in files if (kept := _kept(file)) is not None}
    missing = [(one, file) for one, file in zip(wanted, files, strict=True) if file not in done]
    if missing:
        begun = time.perf_counter()
        drawn = drawn_together(generator, [one for one, _ in missing])
        seconds = (time.perf_counter() - begun) / len(missing)
        for (one, file), image in zip(missing, drawn, strict=True):
            refused = str(image) if isinstance(image, Refused) else None
            if not isinstance(image, Refused):
                _keep(image, one, file, side, seconds)
            done[file] = refused, seconds
    return [done[file] for file in files]


def _kept(file: Path) -> Seconds | None:
    """The seconds of an image that is there whole."""
    try:
        with opened(file) as content, Image.open(content, formats=["PNG"]) as kept:
            kept.load()
            return None, float(kept.info["seconds"])
    except (DamagedFile, OSError, SyntaxError, ValueError, KeyError, Image.DecompressionBombError):
        return None


def _keep(drawn: Drawn, wanted: Wanted, file: Path, side: int | None, seconds: float) -> None:
    image, about = Image.fromarray(drawn.image), PngInfo()
    if side is not None and (scale := side / min(image.size)) < 1:
        image = image.resize((round(scale * image.width), round(scale * image.height)), Image.Resampling.BICUBIC)
    for name, value in {"seconds": seconds, "prompt": wanted.words(), "facts": json.dumps(dict(drawn.facts))}.items():
        about.add_text(name, str(value))
    write_whole(file, partial(image.save, format="PNG", pnginfo=about))


def is_whole(line: Line) -> bool:
    """Whether a line of the journal has verdicts on some draws of a visit."""
    kinds = {"visit": str, "draws": list[list[Any]], "seconds": float, "elapsed": float}
    whole = all(fits(line.get(name), kind) for name, kind in kinds.items())
    verdict = (bool, bool, float | None, float | None, int, str | None)
    return whole and all(len(draw) == len(verdict) and all(map(fits, draw, verdict)) for draw in line["draws"])
