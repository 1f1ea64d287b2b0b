"""The studio of a search: it has images of a subdomain drawn, judges them, and keeps every verdict in a journal."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
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
from fca.progress import ProgressLines, on_terminal
from fca.stats.ask import Asker, ask_until_done
from fca.store.files import DamagedFile, open_to_append, opened, remove, write_whole
from fca.store.journal import Journal, Line
from fca.studies.generate.drawing import bound_to_parent, drawn_together, pass_size
from fca.studies.generate.protocols import Drawn, Generator, Refused, Unavailable, Wanted
from fca.tasks import RunContext
from fca.tasks.predict import ForwardWork
from fca.types import Classifier, FcaError, ImageData, Model, Run, keyed_rng
from fca.validation import has_type

DrawOutcome = tuple[str | None, float]  # why a draw was refused, None if it was not; its seconds
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
    """One image and its verdicts.

    accepted: by the filter.    correct: recognised.    p, score: probability of the target, and of its own prompt.
    second: whether the second model recognises it; -1: there is none, or the filter left the image out.
    refused: why the generator refused it.
    """

    accepted: bool
    correct: bool
    p: float | None
    score: float | None
    second: int
    refused: str | None


@dataclass
class Visit:
    """A visit of a subdomain, over when `wanted` images are accepted or `max_draws` are drawn.

    name: of its folder.    first: number of its first image among those of the subdomain.    kind: of its seeds.
    """

    name: str
    subdomain: int
    wanted: int
    max_draws: int
    first: int
    kind: str = "search"
    rule: int = -1
    seconds: float = 0.0
    draws: list[Draw] = field(default_factory=list)
    drawing: list[Future[list[DrawOutcome]]] = field(default_factory=list)

    @property
    def n_accepted(self) -> int:
        return sum(draw.accepted for draw in self.draws)

    @property
    def n_right(self) -> int:
        return sum(draw.correct for draw in self.draws if draw.accepted)

    @property
    def n_paid(self) -> int:
        return sum(draw.refused is None for draw in self.draws)

    @property
    def n_missing(self) -> int:
        """Images to draw before it can be over; 0 when it is."""
        return min(self.wanted - self.n_accepted, self.max_draws - len(self.draws))

    def take(self, line: Line) -> None:
        """Add the draws in a line of the journal."""
        self.draws += [Draw(*draw) for draw in line["draws"]]
        self.seconds += line["seconds"]


def history_of(visits: Sequence[Visit]) -> tuple[Visits, Visits, Visits]:
    """Subdomain, images right and images shown of every visit."""
    counts = [(visit.subdomain, visit.n_right, visit.n_accepted) for visit in visits]
    visited, correct, n_images = np.array(counts, np.int32).reshape(-1, 3).T
    return visited, correct, n_images


class Studio:
    """Has visits drawn and judged, several at once; what was judged is in the journal of the run's folder.

    Images are drawn ahead by processes (by one thread, where the generator is not parallel) while others are judged.
    Raises FcaError where the model, or the second one, does not know the target.
    """

    def __init__(self, search: Searched, run: Run[Work], context: RunContext) -> None:
        self.search = search
        self.folder = context.store.folder(run.run_id)
        self.seed = context.seed
        self.accelerator = context.machine.accelerator

        # The classifiers, each with the columns of its logits that are the target, and the encoder
        work = run.work
        self.reader = work.reader and work.reader.build()
        models = [work.model, search.second] if search.second else [work.model]
        networks = [build_model(model) for model in models]
        self.networks = [(network, search.domain.columns(network.classes)) for network in networks]

        processes = threads(search.workers) if search.generator.parallel else 1
        if processes > 1:
            # spawned: a fork of a process that has threads (torch, BLAS) may hang
            self.pool: Executor = ProcessPoolExecutor(processes, get_context("spawn"), bound_to_parent)
        else:
            self.pool = ThreadPoolExecutor(1, "fca-draw")

        self.journal = Journal(self.folder / "journal.jsonl", is_whole)
        lines = self.journal.lines_or_anew("all images are judged again")
        open_to_append(self.journal.path).close()  # from here on, the store keeps the folder of a search that fails
        self.lines_of_visit = defaultdict[str, list[Line]](list)
        for line in lines:
            self.lines_of_visit[line["visit"]].append(line)
        self.elapsed = sum(line["elapsed"] for line in lines)
        self.last_added = time.perf_counter()

    @property
    def words(self) -> Float[np.ndarray, "subdomains features"] | None:
        """The prompts as the encoder embeds them, of unit length; None without encoder."""
        if self.reader is None:
            return None
        texts = self.reader.head.weight.detach().cpu().numpy().astype(np.float64)
        return texts / np.linalg.norm(texts, axis=1, keepdims=True)

    def finish(self, asker: Asker[Visit, tuple[int, int]], label: str, total: int | None) -> None:
        """Finish all visits that are asked for, in the order asked, whichever images are drawn first."""
        n_finished = count(1)
        lines = ProgressLines(label, total)
        with Progress(transient=True, disable=not on_terminal()) as bar:
            task = bar.add_task(label, total=total)

            def counts_of_oldest(*pending: Visit) -> tuple[int, int]:
                oldest = pending[0]
                for visit in pending:
                    for line in self.lines_of_visit.pop(visit.name, []):
                        visit.take(line)
                while oldest.n_missing:
                    self._advance(pending)
                bar.advance(task)
                lines.show(next(n_finished))
                return oldest.n_right, oldest.n_accepted

            ask_until_done(asker, counts_of_oldest, in_hand=self.search.parallel)

    def _advance(self, pending: Sequence[Visit]) -> None:
        """Have images drawn for all visits, and judge those of the first one whose images are all there."""
        for visit in pending:
            if visit.n_missing and not visit.drawing:
                visit.drawing = list(self._begin(visit))

        unfinished = []
        for visit in pending:
            unfinished_passes = [drawn_pass for drawn_pass in visit.drawing if not drawn_pass.done()]
            if visit.drawing and not unfinished_passes:
                with self._service():
                    outcomes = [outcome for drawn_pass in visit.drawing for outcome in drawn_pass.result()]
                    self._add(visit, outcomes)
                visit.drawing = []
                return
            unfinished += unfinished_passes
        wait(unfinished, return_when=FIRST_COMPLETED)

    def _begin(self, visit: Visit) -> Iterator[Future[list[DrawOutcome]]]:
        """Have the images drawn that a visit lacks: as many in a pass as the generator takes."""
        search = self.search
        size = pass_size(search.generator)
        first = len(visit.draws)
        end = first + visit.n_missing
        for start in range(first, end, size):
            numbers = range(start, min(start + size, end))
            requests = [search.domain.wanted(visit.subdomain, self._seed(visit, number)) for number in numbers]
            files = [self.file(visit, number) for number in numbers]
            yield self.pool.submit(draw, search.generator, requests, files, search.stored_px)

    def _seed(self, visit: Visit, number: int) -> int:
        return int(keyed_rng(visit.kind, self.seed, visit.subdomain, visit.first + number).integers(2**32))

    def _add(self, visit: Visit, outcomes: list[DrawOutcome]) -> None:
        """Judge the images that were drawn for a visit; the journal has the verdicts when this returns."""
        started = time.perf_counter()
        draws = [Draw(False, False, None, None, -1, refused) for refused, _ in outcomes]
        drawn = [i for i, draw in enumerate(draws) if draw.refused is None]
        for i, verdict in zip(drawn, self._judged(visit, drawn), strict=True):
            draws[i] = verdict

        now = time.perf_counter()
        line = {
            "visit": visit.name,
            "draws": draws,
            "seconds": sum(seconds for _, seconds in outcomes) + now - started,
            "elapsed": now - self.last_added,
        }
        self.journal.add(line)
        visit.take(line)
        self.elapsed += now - self.last_added
        self.last_added = now

    def _judged(self, visit: Visit, offsets: list[int]) -> list[Draw]:
        """Verdicts on images of a visit.    offsets: their numbers after the draws that the visit has."""
        from fca.training.infer import logits_of

        if not offsets:
            return []
        files = [self.file(visit, len(visit.draws) + offset) for offset in offsets]
        images = [decode(file.read_bytes(), str(file)) for file in files]

        def logits(network: Classifier) -> Float[np.ndarray, "images logits"]:
            pixels = np.stack([network.geometry(image)[0] for image in images])
            return logits_of(network, pixels, np.arange(len(images)), accelerator=self.accelerator)

        domain = self.search.domain
        image_filter = self.search.filter
        prompt_logits = logits(self.reader) if image_filter.texts(domain) else np.zeros((len(images), 0))
        is_accepted, scores = image_filter.accept(prompt_logits, visit.subdomain, domain)
        scores_or_none = [None if np.isnan(score) else score for score in scores.tolist()]

        verdicts = [domain.judged(logits(network), classes) for network, classes in self.networks]
        is_right, p = verdicts[0]
        right_of_second = np.full(len(images), -1)
        if len(verdicts) > 1:
            right_of_second = np.where(is_accepted, verdicts[1][0], -1)
        columns = (is_accepted.tolist(), is_right.tolist(), p.tolist(), scores_or_none, right_of_second.tolist())
        return [Draw(*values, refused=None) for values in zip(*columns, strict=True)]

    def draw_again(self, images: Sequence[tuple[Visit, int]]) -> None:
        """Draw those images (a visit, and the number of one of its draws) whose files are missing or damaged.

        The seeds are those of the first time. Raises FcaError where the generator now refuses one.
        """
        missing = [(visit, number) for visit, number in images if _stored_outcome(self.file(visit, number)) is None]
        if not missing:
            return

        log.warning("%d images are missing or damaged, such as %s: drawn again", len(missing), self.file(*missing[0]))
        for visit, number in missing:
            file = self.file(visit, number)
            remove(file)
            request = self.search.domain.wanted(visit.subdomain, self._seed(visit, number))
            with self._service():
                ((refused, _),) = draw(self.search.generator, [request], [file], self.search.stored_px)
            if refused is not None:
                step = f"remove {self.journal.path}, and the search judges all images again"
                raise FcaError("image drawn again", file, f"an image; {refused}", step)

    @contextmanager
    def _service(self) -> Iterator[None]:
        """Draw in the body. Raises FcaError where the service that draws is down."""
        try:
            yield
        except Unavailable as error:
            service = f"{self.search.generator.label()}: {error}"
            step = "try again later: the same command goes on"
            raise FcaError("generator", service, "a service that answers", step) from error

    def file(self, visit: Visit, number: int) -> Path:
        """Where an image of a visit is kept."""
        return self.folder / "images" / visit.name / f"{number:04d}.png"


def draw(
    generator: Generator, requests: Sequence[Wanted], files: Sequence[Path], side: int | None
) -> list[DrawOutcome]:
    """Draw images of one pass into files, which have their seconds too; those that are there are not drawn again."""
    outcomes: dict[Path, DrawOutcome] = {}
    missing = []
    for request, file in zip(requests, files, strict=True):
        stored = _stored_outcome(file)
        if stored is None:
            missing.append((request, file))
        else:
            outcomes[file] = stored

    if missing:
        started = time.perf_counter()
        images = drawn_together(generator, [request for request, _ in missing])
        seconds = (time.perf_counter() - started) / len(missing)
        for (request, file), image in zip(missing, images, strict=True):
            if isinstance(image, Refused):
                outcomes[file] = str(image), seconds
            else:
                _keep(image, request, file, side, seconds)
                outcomes[file] = None, seconds
    return [outcomes[file] for file in files]


def _stored_outcome(file: Path) -> DrawOutcome | None:
    """The outcome of an image that is stored whole; None for one that is missing or damaged."""
    try:
        with opened(file) as content, Image.open(content, formats=["PNG"]) as image:
            image.load()
            return None, float(image.info["seconds"])
    except (DamagedFile, OSError, SyntaxError, ValueError, KeyError, Image.DecompressionBombError):
        return None


def _keep(drawn: Drawn, request: Wanted, file: Path, side: int | None, seconds: float) -> None:
    """Write an image, with its prompt and facts; a shorter side above `side` is reduced to that."""
    image = Image.fromarray(drawn.image)
    scale = 1.0 if side is None else side / min(image.size)
    if scale < 1:
        size = (round(scale * image.width), round(scale * image.height))
        image = image.resize(size, Image.Resampling.BICUBIC)

    texts = PngInfo()
    texts.add_text("seconds", str(seconds))
    texts.add_text("prompt", str(request.words()))
    texts.add_text("facts", json.dumps(dict(drawn.facts)))
    write_whole(file, partial(image.save, format="PNG", pnginfo=texts))


def is_whole(line: Line) -> bool:
    """Whether a line of the journal has verdicts on some draws of a visit."""
    types = {"visit": str, "draws": list[list[Any]], "seconds": float, "elapsed": float}
    if not all(has_type(line.get(name), value_type) for name, value_type in types.items()):
        return False
    verdict_types = (bool, bool, float | None, float | None, int, str | None)
    for draw in line["draws"]:
        if len(draw) != len(verdict_types) or not all(map(has_type, draw, verdict_types)):
            return False
    return True
