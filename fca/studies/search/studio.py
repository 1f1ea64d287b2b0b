"""The studio of a search: it has images of subdomains drawn, judges them, and records every verdict in a journal."""

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

Visits = Int[np.ndarray, " visits"]
log = logging.getLogger(__name__)


class SearchSettings(Protocol):
    """What the studio needs of a search; see `fca.studies.search.task.Search`."""

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
    """The work of a search.

    data:   its subdomains, for the store.
    model:  the classifier that is tested.
    reader: the encoder as a classifier over prompts; None where neither the filter nor the policy needs it.
    clean:  the run that predicts test images.
    """

    data: ImageData
    model: Model
    reader: Any
    clean: Run[ForwardWork]


class DrawOutcome(NamedTuple):
    """How drawing an image went.    refused: the generator's reason, if it refused.    seconds: that it took."""

    refused: str | None
    seconds: float


class Draw(NamedTuple):
    """The verdict on one image.

    accepted: by the filter.                     correct: whether the classifier recognises the target.
    p:        probability of the target.         score:   the filter's probability of the image's prompt.
    second:   whether the second model recognises it; -1: there is none, or the image was not accepted.
    refused:  why the generator refused to draw it.
    """

    accepted: bool
    correct: bool
    p: float | None
    score: float | None
    second: int
    refused: str | None


@dataclass
class Visit:
    """A visit of a subdomain, over when `n_wanted` images are accepted or `max_draws` are drawn.

    name:         of its folder.
    first_number: of its first image among those of all visits of the subdomain; it decides the seeds.
    kind:         part of the key of its seeds: search, or fresh for images that confirm a rule.
    rule:         number of the rule that it confirms; -1: none.
    seconds:      of drawing and judging.
    draws:        the verdicts so far.
    pending_passes: images that are being drawn.
    """

    name: str
    subdomain: int
    n_wanted: int
    max_draws: int
    first_number: int
    kind: str = "search"
    rule: int = -1
    seconds: float = 0.0
    draws: list[Draw] = field(default_factory=list)
    pending_passes: list[Future[list[DrawOutcome]]] = field(default_factory=list)

    @property
    def n_accepted(self) -> int:
        """Number of images that the filter accepted."""
        return sum(draw.accepted for draw in self.draws)

    @property
    def n_right(self) -> int:
        """Number of accepted images that the classifier recognised."""
        return sum(draw.correct for draw in self.draws if draw.accepted)

    @property
    def n_paid(self) -> int:
        """Number of images that were drawn; refusals cost nothing."""
        return sum(draw.refused is None for draw in self.draws)

    @property
    def draws_left(self) -> int:
        """Images to draw before the visit can be over; 0 when it is."""
        return min(self.n_wanted - self.n_accepted, self.max_draws - len(self.draws))

    def add(self, line: Line) -> None:
        """Add the draws in a line of the journal."""
        self.draws += [Draw(*draw) for draw in line["draws"]]
        self.seconds += line["seconds"]


def history_of(visits: Sequence[Visit]) -> tuple[Visits, Visits, Visits]:
    """Subdomain, images right and images shown of every visit."""
    counts = [(visit.subdomain, visit.n_right, visit.n_accepted) for visit in visits]
    visited, correct, shown = np.array(counts, np.int32).reshape(-1, 3).T
    return visited, correct, shown


class Studio:
    """Draws and judges the images of visits, several visits at once; verdicts are in the journal of the run's folder.

    Images are drawn ahead by processes (by one thread, where the generator is not parallel) while others are judged.
    Verdicts that an interrupted search left in the journal are used again.
    Raises FcaError if none of the classes of the model, or of the second one, belongs to the target, or if all do.
    """

    def __init__(self, search: SearchSettings, run: Run[Work], context: RunContext) -> None:
        """Build the networks, start the processes that draw, and read the verdicts of an interrupted search.

        Raises FcaError if none of the classes of the model, or of the second one, belongs to the target, or if all do.

        run: the run of the search; its folder has the journal.
        """
        work = run.work
        self.search = search
        self.folder = context.store.folder(run.run_id)
        self.seed = context.seed
        self.accelerator = context.machine.accelerator
        # an encoder that scores each image against all prompts, for filters and policies that read prompts
        self.reader: Any = None if work.reader is None else work.reader.build()
        networks = [build_model(model) for model in (work.model, search.second) if model]
        # each classifier with the columns of its logits that belong to the target
        self.networks = [(network, search.domain.columns(network.classes)) for network in networks]

        processes = threads(search.workers) if search.generator.parallel else 1
        self.pool: ProcessPoolExecutor | ThreadPoolExecutor
        if processes > 1:
            # the processes are spawned, as a fork of a process that has threads (torch, BLAS) may hang; by
            # `bound_to_parent` they end when this process ends
            self.pool = ProcessPoolExecutor(processes, get_context("spawn"), bound_to_parent)
        else:
            self.pool = ThreadPoolExecutor(1, "fca-draw")  # the name of the thread

        self.journal = Journal(self.folder / "journal.jsonl", is_whole)
        # the lines that an interrupted search left; none if they cannot be read: then a warning has these words
        lines = self.journal.lines_or_anew("all images are judged again")
        # make the file at once: if the search fails, the store keeps a folder that has a journal, and removes others
        open_to_append(self.journal.path).close()
        self.lines_of_visit = defaultdict[str, list[Line]](list)
        for line in lines:
            self.lines_of_visit[line["visit"]].append(line)

        # seconds of the search, those before a restart included, and the moment up to which they are counted
        self.elapsed = sum(line["elapsed"] for line in lines)
        self.elapsed_until = time.perf_counter()

    @property
    def words(self) -> Float[np.ndarray, "subdomains features"] | None:
        """The prompts as the encoder embeds them, of unit length; None without encoder."""
        if self.reader is None:
            return None
        embeddings = self.reader.head.weight.detach().cpu().numpy().astype(np.float64)  # the head of a zero-shot model
        return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)

    def finish(self, asker: Asker[Visit, tuple[int, int]], doing: str, total: int | None) -> None:
        """Draw and judge the images of every visit that `asker` asks for, until it asks for no more.

        Several visits are in progress at once. Results go back to the asker in the order asked, whichever images are
        drawn first, so that its choices do not depend on timing.

        asker: yields visits, and takes the number of right and of accepted images of each.
        doing, total: the title of the progress bar, and the number of visits, if it is known.
        """
        n_finished = count(1)
        progress_lines = ProgressLines(doing, total)  # in a log file, which shows no bar
        with Progress(transient=True, disable=not on_terminal()) as bar:
            task = bar.add_task(doing, total=total)

            def counts_of_oldest(*pending: Visit) -> tuple[int, int]:
                """Finish the first of the pending visits; returns its numbers of right and of accepted images.

                The images of the other pending visits are drawn meanwhile.
                """
                # verdicts that an interrupted search left in the journal: their images are not drawn again
                for visit in pending:
                    for line in self.lines_of_visit.pop(visit.name, []):
                        visit.add(line)

                oldest = pending[0]
                while oldest.draws_left:
                    self._advance(pending)

                bar.advance(task)
                progress_lines.show(next(n_finished))
                return oldest.n_right, oldest.n_accepted

            ask_until_done(asker, counts_of_oldest, in_hand=self.search.parallel)

    def _advance(self, pending: Sequence[Visit]) -> None:
        """Submit the images that visits still lack to be drawn, then judge one visit whose images are all drawn.

        If no visit is ready to be judged, wait until some images are drawn; the caller then calls again.
        """
        for visit in pending:
            if visit.draws_left and not visit.pending_passes:
                visit.pending_passes = list(self._submit_passes(visit))

        for visit in pending:
            if visit.pending_passes and all(future.done() for future in visit.pending_passes):
                with self._reporting_outages():  # a service that draws may be down
                    outcomes = [outcome for future in visit.pending_passes for outcome in future.result()]
                    self._judge(visit, outcomes)
                visit.pending_passes = []
                return

        unfinished = [future for visit in pending for future in visit.pending_passes if not future.done()]
        wait(unfinished, return_when=FIRST_COMPLETED)

    def _submit_passes(self, visit: Visit) -> Iterator[Future[list[DrawOutcome]]]:
        """Submit the images that a visit lacks to the processes that draw; yields the future of each pass.

        A pass is one call of the generator, with as many images as it takes at once.
        """
        search = self.search
        images_per_pass = pass_size(search.generator)
        first = len(visit.draws)
        end = first + visit.draws_left
        for start in range(first, end, images_per_pass):
            numbers = range(start, min(start + images_per_pass, end))
            requests = [search.domain.wanted(visit.subdomain, self._seed(visit, number)) for number in numbers]
            files = [self.file(visit, number) for number in numbers]
            yield self.pool.submit(draw, search.generator, requests, files, search.stored_px)

    def _seed(self, visit: Visit, number: int) -> int:
        """The seed of an image: the same in a resumed search, another one for every image of a subdomain."""
        rng = keyed_rng(visit.kind, self.seed, visit.subdomain, visit.first_number + number)
        return int(rng.integers(2**32))

    def _judge(self, visit: Visit, outcomes: list[DrawOutcome]) -> None:
        """Judge the images that were drawn for a visit, and add the verdicts to the journal and to the visit.

        Images that the generator refused to draw get a verdict, too: not accepted, with the reason.

        outcomes: how drawing went, for each image that was submitted.
        """
        judging_since = time.perf_counter()
        drawn_positions = [position for position, outcome in enumerate(outcomes) if outcome.refused is None]
        verdict_on_drawn = dict(zip(drawn_positions, self._verdicts(visit, drawn_positions), strict=True))
        draws = []
        for position, outcome in enumerate(outcomes):
            if position in verdict_on_drawn:
                draws.append(verdict_on_drawn[position])
            else:
                refusal = outcome.refused  # nothing was judged: no probabilities, and -1 for the second classifier
                draws.append(Draw(accepted=False, correct=False, p=None, score=None, second=-1, refused=refusal))

        judged_at = time.perf_counter()
        elapsed = judged_at - self.elapsed_until
        line = {
            "visit": visit.name,
            "draws": draws,
            "seconds": sum(outcome.seconds for outcome in outcomes) + judged_at - judging_since,  # work on this visit
            "elapsed": elapsed,  # time of the search since the last line
        }
        self.journal.add(line)  # first: after an interruption, the journal has whatever the visit had
        visit.add(line)
        self.elapsed += elapsed
        self.elapsed_until = judged_at

    def _verdicts(self, visit: Visit, positions: list[int]) -> list[Draw]:
        """Judge new images of a visit: does the filter accept them, and do the classifiers recognise the target?

        There is a classifier that is tested, and perhaps a second one to compare with. Images that the filter does not
        accept are judged by the first one too, for the report, which shows some of them; `Visit` leaves them out when
        it counts right images.

        positions: which of the visit's new images; 0 is the first image that was not judged before. All of these were
                   drawn, so that no verdict has a reason why the generator refused (`refused`).
        """
        from fca.training.infer import logits_of

        if not positions:
            return []
        files = [self.file(visit, len(visit.draws) + position) for position in positions]
        images = [decode(file.read_bytes(), str(file)) for file in files]

        def logits(network: Classifier) -> Float[np.ndarray, "images logits"]:
            """A network's logits of all images, each resized and cut as this network needs it."""
            pixels = np.stack([network.geometry(image)[0] for image in images])  # [1] would be a mask
            all_positions = np.arange(len(images))  # `logits_of` takes the positions of the images to forward
            return logits_of(network, pixels, all_positions, accelerator=self.accelerator)

        domain = self.search.domain
        image_filter = self.search.filter
        # the encoder's logits of all prompts; a filter that reads no prompts gets none
        text_logits = logits(self.reader) if image_filter.texts(domain) else np.zeros((len(images), 0))
        # scores: the probability of the images' own prompt; NaN by a filter that reads no prompts
        accepted, scores = image_filter.accept(text_logits, visit.subdomain, domain)

        # of each classifier: whether it recognises the target, and the probability of the target
        judgements = [domain.judged(logits(network), target) for network, target in self.networks]
        is_right, target_probability = judgements[0]
        # of the second classifier: -1 if there is none, or if the image was not accepted
        second_is_right = np.full(len(images), -1)
        if len(judgements) > 1:
            second_is_right = np.where(accepted, judgements[1][0], -1)

        columns = (  # the fields of `Draw` in their order: accepted, correct, p, score and second
            accepted.tolist(),
            is_right.tolist(),
            target_probability.tolist(),
            [None if np.isnan(score) else score for score in scores.tolist()],
            second_is_right.tolist(),
        )
        return [Draw(*verdict, refused=None) for verdict in zip(*columns, strict=True)]

    def draw_again(self, images: Sequence[tuple[Visit, int]]) -> None:
        """Draw images anew whose files are missing or damaged, with the seeds of the first time.

        images: pairs of a visit and the number of one of its images. Those with complete files are left alone.
        Raises FcaError if the generator now refuses to draw one.
        """
        lost = [(visit, number) for visit, number in images if _stored_outcome(self.file(visit, number)) is None]
        if not lost:
            return

        log.warning("%d images are missing or damaged, such as %s: drawn again", len(lost), self.file(*lost[0]))
        for visit, number in lost:
            file = self.file(visit, number)
            remove(file)
            request = self.search.domain.wanted(visit.subdomain, self._seed(visit, number))
            with self._reporting_outages():
                [outcome] = draw(self.search.generator, [request], [file], self.search.stored_px)
            if outcome.refused is not None:
                step = f"remove {self.journal.path}, and the search judges all images again"
                raise FcaError("image drawn again", file, f"an image; {outcome.refused}", step)

    @contextmanager
    def _reporting_outages(self) -> Iterator[None]:
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
    """Draw the images of one pass (one call of the generator) into files; returns the outcome for each file, in order.

    Complete files that an interrupted search left are kept and not drawn again. Each file also stores the seconds that
    its image took: the seconds of the pass, divided by its images.

    files: where the image of each request is stored.
    side:  pixels to which the shorter side of a larger image is reduced; None: images are stored as drawn.
    """
    outcomes: dict[Path, DrawOutcome] = {}
    missing: list[tuple[Wanted, Path]] = []
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
                outcomes[file] = DrawOutcome(str(image), seconds)
            else:
                _save(image, request, file, side, seconds)
                outcomes[file] = DrawOutcome(None, seconds)
    return [outcomes[file] for file in files]


def _stored_outcome(file: Path) -> DrawOutcome | None:
    """The outcome that a whole image file records; None where it is missing or damaged."""
    try:
        with opened(file) as content, Image.open(content, formats=["PNG"]) as image:
            image.load()
            return DrawOutcome(None, float(image.info["seconds"]))
    except (DamagedFile, OSError, SyntaxError, ValueError, KeyError, Image.DecompressionBombError):
        return None


def _save(drawn: Drawn, request: Wanted, file: Path, side: int | None, seconds: float) -> None:
    """Write an image as PNG, reduced if it is too large, with texts: its seconds, its prompt, facts about its drawing.

    side: the largest length of the shorter side, in pixels; None: any.    seconds: how long it took to draw the image.
    """
    image = Image.fromarray(drawn.image)
    scale = 1.0 if side is None else side / min(image.size)
    if scale < 1:
        size = (round(scale * image.width), round(scale * image.height))
        image = image.resize(size, Image.Resampling.BICUBIC)

    metadata = PngInfo()
    metadata.add_text("seconds", str(seconds))
    metadata.add_text("prompt", str(request.words()))
    metadata.add_text("facts", json.dumps(dict(drawn.facts)))
    write_whole(file, partial(image.save, format="PNG", pnginfo=metadata))


def is_whole(line: Line) -> bool:
    """Whether a line of the journal is complete: a visit's verdicts on some images, with values of the right types."""
    type_by_name = {"visit": str, "draws": list[list[Any]], "seconds": float, "elapsed": float}
    if not all(has_type(line.get(name), kind) for name, kind in type_by_name.items()):
        return False

    # of the fields of `Draw`: accepted, correct, p, score, second, refused
    verdict_types = (bool, bool, float | None, float | None, int, str | None)
    for verdict in line["draws"]:
        if len(verdict) != len(verdict_types) or not all(map(has_type, verdict, verdict_types)):
            return False
    return True
