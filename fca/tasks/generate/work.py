"""The whole of `fca generate`: what is left of a plan is drawn, within a budget; then manifest and review page."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process

from rich import get_console
from rich.progress import track

from fca.data.files import threads
from fca.generation import Generator, Refused, Request, Unavailable, Writer
from fca.store.files import write_text
from fca.tasks.generate.folder import Folder, Line, check_generator, latest, request_line, write_manifest, write_review
from fca.tasks.generate.money import Budget, price_of, spent
from fca.tasks.generate.plan import Plan
from fca.tasks.generate.words import ask, with_written
from fca.types import FcaError

# One image: drawn, kept and told as a journal's line; and many of them, in processes where the generator allows it.


TRIES = 3  # seeds from a request's own on, where a refusal may be answered by another draw
START_IMAGES = 32  # that one process draws while others start


def draw_one(folder: Folder, generator: Generator, request: Request) -> Line:
    """Draw an image and write its files; returns its line, which is not yet in the journal. Refusals are lines too."""
    started = time.perf_counter()
    line = request_line(request, generator)
    try:
        drawn = generator.draw(request)
    except Refused as refusal:
        return {"kind": "refusal", **line, "refused": str(refusal), "seconds": _since(started)}
    kept = folder.keep(request, drawn)
    told = {"money": price_of(generator), "seconds": _since(started), "facts": dict(drawn.facts)}
    return {"kind": "image", **line, **kept, **told}


def is_of(line: Line, request: Request) -> bool:
    """Whether a line tells of just this request, or of a further try at it."""
    return bool(line["prompt"] == request.prompt and 0 <= line["seed"] - request.seed < TRIES)


def draw_all(
    folder: Folder, generator: Generator, requests: Iterable[Request], most: int, workers: int
) -> Iterator[Line]:
    """Their lines, in order; at most a few images a process are ahead of the line that is looked at.

    most: how many there may be, so that no process is started for a few.    workers: processes, 0 = one a core; a
    generator that is not parallel draws one after another.
    """
    processes = min(threads(workers), -(-most // START_IMAGES)) if generator.parallel else 1
    if processes <= 1:
        yield from (draw_one(folder, generator, request) for request in requests)
        return
    # spawned: a fork of a process that has threads (the bar, BLAS) may hang
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _bound_to_parent)
    waiting: deque[Future[Line]] = deque()
    try:
        for request in requests:
            waiting.append(pool.submit(draw_one, folder, generator, request))
            if len(waiting) >= 4 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _bound_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its processes itself
    threading.Thread(target=_end_with_parent, daemon=True, name="fca-parent").start()


def _end_with_parent() -> None:
    """A killed parent cannot say goodbye; without this its processes would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 3)


@dataclass(frozen=True)
class Done:
    """What came of it. drawn, refused: by this call.    left: images of the plan.    money: of the folder in all."""

    drawn: int
    refused: int
    left: int
    money: float


def outstanding(plan: Plan, folder: Folder, lines: list[Line]) -> list[Request]:
    """The images of a plan that are neither there nor refused; one whose prompt or seed was changed is asked anew."""
    known = latest(lines)

    def settled(request: Request) -> bool:
        line = known.get(request.key)
        return line is not None and is_of(line, request) and (line["kind"] == "refusal" or folder.has(line))

    return [request for request in plan.requests() if not settled(request)]


def generate(
    plan: Plan,
    generator: Generator,
    folder: Folder,
    budget: Budget = Budget(),  # noqa: B008  frozen
    writer: Writer | None = None,
    workers: int = 1,
) -> Done:
    """Draw what is left of a plan into a folder; every image is kept as soon as it is whole.

    budget:  of the folder in all.    writer: a language model that describes every class and attribute first, once.
    workers: processes of a generator that allows several, 0 = one a core.

    Raises FcaError for a plan, budget or generator that cannot be, and when a service is down for good; the images so
    far are kept, and the same call goes on.
    """
    plan = plan.settled()
    budget.check(generator, *([writer] if writer else []))
    with folder.held(wait=False):
        lines = folder.journal()
        check_generator(lines, generator, folder.root)
        try:
            return _worked(plan, generator, folder, budget, writer, workers)
        except Unavailable as error:
            step = "try again later: the same command goes on where this one ended"
            raise FcaError("generator", f"{generator.label()}: {error}", "a service that answers", step) from error
        finally:
            if latest(lines := folder.journal()):
                write_manifest(folder, lines)
                write_review(folder, lines, plan.name)


def _worked(
    plan: Plan, generator: Generator, folder: Folder, budget: Budget, writer: Writer | None, workers: int
) -> Done:
    paid = True
    if generator.prompted and writer is not None:
        paid = ask(plan, writer, folder, budget)
    before = folder.journal()
    plan = with_written(plan, before)
    if generator.prompted and paid:
        plan.check_words()
    write_text(folder.root / "plan.yaml", plan.as_yaml())
    wanted = outstanding(plan, folder, before)
    count = _Count(sum(line["kind"] == "image" for line in before), spent(before))
    if paid:
        _draw(wanted, generator, folder, budget, count, workers)
    return Done(count.drawn, count.refused, len(wanted) - count.drawn - count.refused, spent(folder.journal()))


@dataclass
class _Count:
    """images, money: of the folder with what is under way.    drawn, refused: now."""

    images: int
    money: float
    drawn: int = 0
    refused: int = 0


def _draw(
    wanted: list[Request], generator: Generator, folder: Folder, budget: Budget, count: _Count, workers: int
) -> None:
    price = price_of(generator) or 0.0

    def affordable() -> Iterator[Request]:
        for request in wanted:
            if not budget.allows(count.images, count.money, price):
                return
            count.images += 1
            count.money += price
            yield request

    most = len(wanted) if budget.images is None else min(len(wanted), max(budget.images - count.images, 0))
    lines = draw_all(folder, generator, affordable(), most, workers)
    for line in track(lines, "images", most, transient=True, disable=not get_console().is_terminal):
        folder.add(line)
        if line["kind"] == "image":
            count.drawn += 1
        else:  # what was not drawn takes nothing of the budget
            count.refused += 1
            count.images -= 1
            count.money -= price
