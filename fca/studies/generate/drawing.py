"""From a plan to a folder of test images, within a budget; the same call goes on where the last one ended."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from typing import Any

from fca.data.files import in_order, threads
from fca.progress import track
from fca.store.files import write_text
from fca.store.journal import Line
from fca.studies.generate.folder import Folder, check_generator, latest, request_line
from fca.studies.generate.plan import SUBLEVELS, Plan
from fca.studies.generate.protocols import Batched, Drawn, Generator, Refused, Request, Unavailable, Wanted, Writer
from fca.types import FcaError

log = logging.getLogger(__name__)

TRIES = 3  # seeds from a request's own on, where a refusal may be followed by another draw
START_IMAGES = 32  # that one process draws while others start


@dataclass(frozen=True)
class Done:
    """drawn, refused: images of this call.    left: images of the plan.    money: spent on the folder in all."""

    drawn: int
    refused: int
    left: int
    money: float


@dataclass(frozen=True)
class Budget:
    """What a folder may take in all, earlier commands included; None = no limit.

    images: drawn.    money: for images and descriptions, in whatever currency the prices are.
    """

    images: int | None = None
    money: int | float | None = None

    def check(self, *sellers: Generator | Writer) -> None:
        """Raises FcaError for a limit that allows nothing, and for a money limit where a price is not known."""
        for key, limit in (("images", self.images), ("money", self.money)):
            if limit is not None and limit <= 0:
                raise FcaError(f"budget.{key}", limit, "above 0, or null for no limit", "raise it")
        for seller in sellers:
            if self.money is not None:
                seller.price()

    def pays(self, money: float, price: float | None) -> bool:
        """Whether something of this price may be bought after `money` was spent."""
        return self.money is None or money + (price or 0.0) <= self.money + 1e-9

    def allows(self, drawn: int, money: float, price: float | None) -> bool:
        """Whether one more image of this price may be drawn after so many and so much money.

        >>> Budget(images=2, money=1.0).allows(1, 0.5, 0.5), Budget(images=2, money=1.0).allows(2, 0.5, 0.5)
        (True, False)
        """
        return (self.images is None or drawn < self.images) and self.pays(money, price)

    def room(self, left: int, drawn: int) -> int:
        """How many of `left` images it has room for after so many; money not looked at."""
        return left if self.images is None else min(left, max(self.images - drawn, 0))

    def __str__(self) -> str:
        limits = (("images", self.images), ("money", self.money))
        return ", ".join(f"budget.{key}={limit}" for key, limit in limits if limit is not None)


def drawn_in(lines: list[Line]) -> int:
    """Images that were drawn, those that were drawn again included."""
    return sum(line["kind"] == "image" for line in lines)


def spent(lines: list[Line]) -> float:
    """Money for everything in these lines; what has no known price is left out."""
    return float(sum(line.get("money") or 0.0 for line in lines))


def price_of(seller: Generator | Writer) -> float | None:
    """Its price, or None where it is not known: only a money limit needs one."""
    try:
        return seller.price()
    except FcaError:
        return None


def generate(
    plan: Plan,
    generator: Generator,
    folder: Folder,
    budget: Budget = Budget(),
    writer: Writer | None = None,
    workers: int = 1,
    only: Container[str] | None = None,
) -> Done:
    """Draw what is left of a plan into a folder, then write its manifest and review page.

    Every image is kept as soon as it is whole.
    budget:  of the folder in all.    writer: a language model that describes every class and attribute first, once.
    workers: processes of a generator that allows several, 0 = one a core.
    only:    keys of the images to draw; None = all.

    Raises FcaError for a plan, budget or generator that cannot be used, and when a service is down for good; the images
    so far are kept, and the same call goes on.
    """
    plan = plan.resolved()
    budget.check(generator, *([writer] if writer else []))
    if generator.prompted and writer is None:
        with_descriptions(plan, folder.journal.lines()).check_words()
    with folder.held(wait=False):
        check_generator(folder.journal.lines(), generator, folder.root)
        try:
            return _fill(plan, generator, folder, budget, writer, workers, only)
        except Unavailable as error:
            step = "try again later: the same command goes on where this one ended"
            raise FcaError("generator", f"{generator.label()}: {error}", "a service that answers", step) from error
        finally:
            if latest(lines := folder.journal.lines()):
                folder.write_lists(lines, plan.name)


def _fill(
    plan: Plan,
    generator: Generator,
    folder: Folder,
    budget: Budget,
    writer: Writer | None,
    workers: int,
    only: Container[str] | None,
) -> Done:
    paid = not generator.prompted or writer is None or describe(plan, writer, folder, budget, only)
    before = folder.journal.lines()
    plan = with_descriptions(plan, before)
    if generator.prompted and paid and only is None:
        plan.check_words()
    write_text(folder.root / "plan.yaml", plan.as_yaml())
    left = outstanding(plan, folder, before)
    wanted = [request for request in left if only is None or request.key in only]
    images, money, price = drawn_in(before), spent(before), price_of(generator) or 0.0
    drawn = refused = taken = 0

    def take(most: int) -> list[Request]:
        nonlocal taken
        start = taken
        while taken < min(len(wanted), start + most):
            ahead = taken - refused  # what was refused takes nothing of the budget
            if not budget.allows(images + ahead, money + ahead * price, price):
                break
            taken += 1
        return wanted[start:taken]

    if paid:  # a pilot has as many processes as what follows it
        lines = draw_all(folder, generator, take, most := budget.room(len(left), images), workers)
        for line in track(lines, "images", min(most, len(wanted))):
            folder.journal.add(line)
            drawn, refused = drawn + (line["kind"] == "image"), refused + (line["kind"] == "refusal")
    return Done(drawn, refused, len(left) - drawn - refused, spent(folder.journal.lines()))


def outstanding(plan: Plan, folder: Folder, lines: list[Line]) -> list[Request]:
    """The images of a plan that are neither there nor refused; also one whose prompt or seed was changed.

    Images that are there but damaged are to be drawn again; a line in the log counts them.
    """
    requests, last_lines = list(plan.requests()), latest(lines)
    answers = {key: line for key, line in last_lines.items() if line["kind"] == "refusal"}
    drawn = [line for line in last_lines.values() if line["kind"] == "image"]

    is_there = list(in_order(lambda at: folder.has(drawn[at]), len(drawn), 0, "checking images"))
    answers |= {line["key"]: line for line, there in zip(drawn, is_there, strict=True) if there}
    if lost := [line["file"] for line, there in zip(drawn, is_there, strict=True) if not there]:
        log.warning("%d images of %s are missing or damaged, such as %s", len(lost), folder.root, lost[0])

    return [request for request in requests if request.key not in answers or not is_of(answers[request.key], request)]


# Drawing: images as lines of the journal, several in a pass and in processes where the generator allows it.

_DEVICE: list[str] = []  # of this process, if it draws on one of several


def draw_pass(folder: Folder, generator: Generator, requests: Sequence[Request]) -> list[Line]:
    """The lines of images that are drawn in one pass, each with its share of the seconds; their files are written.

    They are not yet in the journal. Refusals are lines too.
    `together` is the key of the first one, by which the images of a pass know each other.
    """
    if isinstance(generator, Batched):
        generator = generator.on(_DEVICE[0]) if _DEVICE else generator
        generator.prepare()
    started = time.perf_counter()
    lines = [
        _line(folder, generator, request, drawn)
        for request, drawn in zip(requests, drawn_together(generator, requests), strict=True)
    ]
    seconds = _since(started) / len(lines)
    return [{**line, "seconds": round(seconds, 4), "together": requests[0].key} for line in lines]


def drawn_together(generator: Generator, requests: Sequence[Wanted]) -> Sequence[Drawn | Refused]:
    """The images of one pass, at most `pass_size` of them; Refused in the place of one that is."""
    if isinstance(generator, Batched):
        return generator.draw_batch(requests)
    try:
        return [generator.draw(request) for request in requests]
    except Refused as refusal:
        return [refusal]


def _line(folder: Folder, generator: Generator, request: Request, drawn: Drawn | Refused) -> Line:
    line = request_line(request, generator)
    if isinstance(drawn, Refused):
        return {"kind": "refusal", **line, "refused": str(drawn)}
    files = folder.keep(request, drawn)
    return {"kind": "image", **line, **files, "money": price_of(generator), "facts": dict(drawn.facts)}


def is_of(line: Line, request: Request) -> bool:
    """Whether a line is of just this request, or of a further try at it."""
    return line["prompt"] == request.prompt and 0 <= line["seed"] - request.seed < TRIES


def draw_all(
    folder: Folder, generator: Generator, take: Callable[[int], list[Request]], most: int, workers: int
) -> Iterator[Line]:
    """Their lines, in order; at most a few passes a process are drawn ahead of the line that is yielded.

    take: the next images, up to a number; it may give more after lines were yielded, as refusals cost nothing.
    most: how many there may be, so that no process is started for a few.    workers: see `processes_of`.
    """
    size, processes = pass_size(generator), processes_of(generator, most, workers)
    if processes <= 1:
        while requests := take(size):
            yield from draw_pass(folder, generator, requests)
        return
    # spawned: a fork of a process that has threads (the bar, BLAS) may hang
    context = get_context("spawn")
    devices = context.SimpleQueue()
    for device in generator.places() if isinstance(generator, Batched) else ():
        devices.put(device)
    begin = (_take_device, (devices,)) if isinstance(generator, Batched) else (bound_to_parent, ())
    pool = ProcessPoolExecutor(processes, context, *begin)
    waiting: deque[Future[list[Line]]] = deque()
    try:
        while True:
            while len(waiting) < 4 * processes and (requests := take(size)):
                waiting.append(pool.submit(draw_pass, folder, generator, requests))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def pass_size(generator: Generator) -> int:
    """Images that it draws in one pass."""
    return generator.batch_size if isinstance(generator, Batched) else 1


def processes_of(generator: Generator, most: int, workers: int) -> int:
    """How many processes draw `most` images.

    workers: of a generator that is parallel, 0 = one a core. One that draws in batches has a process a device, any
             other draws one image after another.
    """
    if isinstance(generator, Batched):
        return min(len(generator.places()), -(-most // generator.batch_size))
    return min(threads(workers), -(-most // START_IMAGES)) if generator.parallel else 1


def _take_device(devices: Any) -> None:
    bound_to_parent()
    _DEVICE.append(devices.get())


def bound_to_parent() -> None:
    """In a process that draws: leave Ctrl-C to the parent, and end when that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its processes itself
    threading.Thread(target=_end_with_parent, daemon=True, name="fca-parent").start()


def _end_with_parent() -> None:
    """A killed parent ends without notice; without this its processes would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 3)


# Descriptions that a language model writes for every class and attribute, once; they are lines of the journal too.


def undescribed(plan: Plan, lines: list[Line]) -> list[tuple[str, str]]:
    """(class, attribute) without descriptions of their own, in the plan or the journal; refused ones are left out."""
    tried = {(line["label"], line["attribute"]) for line in lines if line["kind"] == "description"}
    pairs = ((label, attribute) for label in plan.classes for attribute in plan.attributes)
    return [pair for pair in pairs if pair not in tried and not plan.descriptions.get(pair[0], {}).get(pair[1])]


def describe(plan: Plan, writer: Writer, folder: Folder, budget: Budget, only: Container[str] | None = None) -> bool:
    """Have all missing descriptions written; false when the budget ended before. Raises Unavailable.

    only: keys of images; what no one of them needs is not written. None: all.
    """
    lines = folder.journal.lines()
    needed = {(one.label, one.attribute) for one in plan.requests() if only is None or one.key in only}
    for label, attribute in undescribed(plan, lines):
        if (label, attribute) not in needed:
            continue
        if not budget.pays(spent(lines), price_of(writer)):
            return False
        lines.append(_description(plan.classes[label], label, attribute, writer))
        folder.journal.add(lines[-1])
    return True


def _description(name: str, label: str, attribute: str, writer: Writer) -> Line:
    line: Line = {"kind": "description", "label": label, "name": name, "attribute": attribute, "writer": writer.label()}
    started = time.perf_counter()
    try:
        nine = writer.describe(name, attribute)
    except Refused as refusal:
        return {**line, "refused": str(refusal)}
    if len(nine) != SUBLEVELS:
        raise FcaError(f"descriptions by {writer.label()}", len(nine), str(SUBLEVELS), "run again, or take another one")
    return {**line, "descriptions": nine, "money": price_of(writer), "seconds": _since(started)}


def with_descriptions(plan: Plan, lines: list[Line]) -> Plan:
    """The plan with the journal's descriptions of its classes; those of the plan itself have priority."""
    descriptions = {label: dict(own) for label, own in plan.descriptions.items()}
    for line in lines:
        if line["kind"] == "description" and "descriptions" in line:
            label, attribute = line["label"], line["attribute"]
            if label in plan.classes and attribute in plan.attributes:
                own = descriptions.setdefault(label, {})
                own[attribute] = own.get(attribute) or line["descriptions"]
    return replace(plan, descriptions=descriptions)
