"""From a plan to a folder of test images, within a budget; the same call goes on where the last one ended."""

from __future__ import annotations

import logging
import math
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

from fca.data.files import parallel_map, threads
from fca.progress import track
from fca.store.files import write_text
from fca.store.journal import Line
from fca.studies.generate.folder import Folder, check_generator, latest, request_line
from fca.studies.generate.plan import SUBLEVELS, Plan
from fca.studies.generate.protocols import Batched, Drawn, Generator, Refused, Request, Unavailable, Wanted, Writer
from fca.types import FcaError

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3  # seeds to try, from a request's own on, if images are refused
IMAGES_PER_PROCESS = 32  # that make it worth starting another process
PASSES_AHEAD = 4  # submitted to each process, so that none waits


@dataclass(frozen=True)
class Done:
    """What a call of `generate` did.

    drawn, refused: images of this call.    left: images of the plan that are still to be drawn.
    money:          spent on the folder in all calls.
    """

    drawn: int
    refused: int
    left: int
    money: float


@dataclass(frozen=True)
class Budget:
    """Limits of a folder over all commands, including earlier ones; None = no limit.

    images: number of drawn images.    money: for images and descriptions, in the currency of the prices.
    """

    images: int | None = None
    money: int | float | None = None

    def check(self, *sellers: Generator | Writer) -> None:
        """Raise FcaError for a limit that allows nothing, and, with a limit of money, for a seller of unknown price."""
        for key, limit in (("images", self.images), ("money", self.money)):
            if limit is not None and limit <= 0:
                raise FcaError(f"budget.{key}", limit, "above 0, or null for no limit", "raise it")
        for seller in sellers:
            if self.money is not None:
                seller.price()  # raises if the price is unknown

    def pays(self, money: float, price: float | None) -> bool:
        """Whether something of this price may be bought after `money` was spent."""
        return self.money is None or money + (price or 0.0) <= self.money + 1e-9  # sums of prices are rounded

    def allows(self, drawn: int, money: float, price: float | None) -> bool:
        """Whether one more image of this price may be drawn, after `drawn` images and after `money` was spent.

        >>> Budget(images=2, money=1.0).allows(1, 0.5, 0.5), Budget(images=2, money=1.0).allows(2, 0.5, 0.5)
        (True, False)
        """
        return (self.images is None or drawn < self.images) and self.pays(money, price)

    def room(self, pending: int, drawn: int) -> int:
        """The number of `pending` images that the limit of images allows after `drawn` images."""
        if self.images is None:
            return pending
        return min(pending, max(self.images - drawn, 0))

    def __str__(self) -> str:
        """The limits as typed on the command line."""
        limits = (("images", self.images), ("money", self.money))
        return ", ".join(f"budget.{key}={limit}" for key, limit in limits if limit is not None)


def drawn_in(lines: list[Line]) -> int:
    """The number of images that were drawn, including those drawn again."""
    return sum(line["kind"] == "image" for line in lines)


def spent(lines: list[Line]) -> float:
    """Money for everything in these lines; items of unknown price are left out."""
    return float(sum(line.get("money") or 0.0 for line in lines))


def price_of(seller: Generator | Writer) -> float | None:
    """The price of a generator or writer; None if it is unknown, as only a money limit needs it."""
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
    """Draw the images of a plan that the folder lacks, then write its manifest and review page.

    Returns the numbers of images that were drawn, refused and left, and the money spent. Every image is stored as soon
    as it is complete, so the same call goes on where an interrupted one ended.

    budget:  limits of images and money for the folder, over all calls.
    writer:  a language model that first writes the descriptions of every class and attribute that have none.
    workers: processes of a generator that allows several, 0 = one per core.
    only:    keys of the images to draw; None = all.

    Raises FcaError for a plan, budget or generator that cannot be used, and for a service that does not answer.
    """
    plan = plan.resolved()  # with the values of its file, checked
    budget.check(generator, *([writer] if writer else []))  # a limit of money requires that both prices are known
    if generator.prompted and writer is None:
        # Without a writer, missing descriptions stay missing: raise an error about them before the folder is made.
        with_descriptions(plan, folder.journal.lines()).check_words()
    with folder.held(wait=False):
        check_generator(folder.journal.lines(), generator, folder.root)
        try:
            return _draw_pending(plan, generator, folder, budget, writer, workers, only)
        except Unavailable as error:
            step = "try again later: the same command goes on where this one ended"
            raise FcaError("generator", f"{generator.label()}: {error}", "a service that answers", step) from error
        finally:  # also after an error: the manifest and the review page show the images so far
            lines = folder.journal.lines()
            if latest(lines):  # there is an image or a refusal to list
                folder.write_lists(lines, plan.name)


def _draw_pending(
    plan: Plan,
    generator: Generator,
    folder: Folder,
    budget: Budget,
    writer: Writer | None,
    workers: int,
    only: Container[str] | None,
) -> Done:
    """Write missing descriptions, then draw the pending images, until the budget is used up.

    The caller has locked the folder. Returns what was done in this call.

    budget:  limits of images and money for the folder, over all calls.
    writer:  a language model that writes missing descriptions; None: none are written.
    workers: processes of a generator that allows several, 0 = one per core.
    only:    keys of the images to draw, as for a pilot, which draws and times a sample to estimate the cost of all
             others; None = all.
    """
    has_descriptions = True  # becomes False if the budget ends before all descriptions are written
    if generator.prompted and writer is not None:
        has_descriptions = describe(plan, writer, folder, budget, only)
    lines_before = folder.journal.lines()
    plan = with_descriptions(plan, lines_before)
    if generator.prompted and has_descriptions and only is None:  # with `only`, some descriptions may be missing
        plan.check_words()  # raises if the writer refused some descriptions
    write_text(folder.root / "plan.yaml", plan.as_yaml())  # with the new descriptions

    pending = outstanding(plan, folder, lines_before)
    requests = [request for request in pending if only is None or request.key in only]
    n_images_before = drawn_in(lines_before)
    money_before = spent(lines_before)
    price = price_of(generator) or 0.0  # it is known if money is limited
    n_drawn = n_refused = n_taken = 0  # in this call; n_taken: requests that `take` has handed out

    def take(most: int) -> list[Request]:
        """The next requests: at most `most`, and no more than the budget allows.

        Requests that are being drawn count as paid. A refusal costs nothing, so each one makes room for one more
        request.

        The enclosing function has `requests`, all that it may draw; `n_taken`, how many `take` has handed out; and
        `n_refused`, how many were refused, which grows between calls of `take`. `n_images_before` and `money_before`
        are what the folder had before.
        """
        nonlocal n_taken
        start = n_taken
        while n_taken < min(len(requests), start + most):
            n_paid = n_taken - n_refused
            if not budget.allows(n_images_before + n_paid, money_before + n_paid * price, price):
                break
            n_taken += 1
        return requests[start:n_taken]

    if has_descriptions:  # else the budget is used up
        # The number of processes follows from all pending images, not from those of `only`: so a pilot runs with as
        # many processes as the later command that draws all others.
        room = budget.room(len(pending), n_images_before)
        lines = draw_all(folder, generator, take, room, workers)
        for line in track(lines, "images", min(room, len(requests))):
            folder.journal.add(line)
            n_drawn += line["kind"] == "image"
            n_refused += line["kind"] == "refusal"
    n_left = len(pending) - n_drawn - n_refused  # of the whole plan, also outside of `only`
    return Done(n_drawn, n_refused, n_left, spent(folder.journal.lines()))


def outstanding(plan: Plan, folder: Folder, lines: list[Line]) -> list[Request]:
    """The requests of a plan that are still to be drawn.

    These are requests for which the journal has neither an image nor a refusal, requests whose prompt or seed has
    changed since, and requests whose image is missing or damaged. A warning gives the number of missing or damaged
    images.

    lines: the lines of the folder's journal, in which every image and every refusal has a line.
    """
    last_lines = latest(lines).values()
    # Key -> line, for keys that need no drawing unless their request has changed: refusals, then complete images.
    line_of_key = {line["key"]: line for line in last_lines if line["kind"] == "refusal"}

    images = [line for line in last_lines if line["kind"] == "image"]
    # `has` is true if the image and its masks exist and their checksums are right; 0: with one thread per core
    is_whole_image = list(parallel_map(lambda i: folder.has(images[i]), len(images), 0, "checking images"))
    lost = []
    for line, is_whole in zip(images, is_whole_image, strict=True):
        if is_whole:
            line_of_key[line["key"]] = line
        else:
            lost.append(line["file"])
    if lost:
        log.warning("%d images of %s are missing or damaged, such as %s", len(lost), folder.root, lost[0])

    return [
        request
        for request in plan.requests()
        # `is_of`: the line has the request's prompt and seed
        if request.key not in line_of_key or not is_of(line_of_key[request.key], request)
    ]


# Drawing: images become lines of the journal, several in a pass and in processes if the generator allows it.

_DEVICE_OF_PROCESS: list[str] = []  # one entry in a process that draws on one of several devices


def draw_pass(folder: Folder, generator: Generator, requests: Sequence[Request]) -> list[Line]:
    """Draw images in one pass (one call of the generator), and write their files; return lines for the journal.

    There is a line for each request, which may be a refusal. It has its share of the pass's seconds, and in `together`
    the key of the first image of the pass, which identifies the pass. The caller adds the lines to the journal, the
    folder's file of what was done.
    """
    if isinstance(generator, Batched):  # it draws several images in one call, on a device
        if _DEVICE_OF_PROCESS:  # holds one name if this process was started for a device of its own; otherwise empty
            generator = generator.on(_DEVICE_OF_PROCESS[0])
        generator.prepare()  # before the clock: loading is not part of a pass

    started = time.perf_counter()
    results = drawn_together(generator, requests)
    lines = [_line(folder, generator, request, result) for request, result in zip(requests, results, strict=True)]
    seconds = _seconds_since(started) / len(lines)
    return [{**line, "seconds": round(seconds, 4), "together": requests[0].key} for line in lines]


def drawn_together(generator: Generator, requests: Sequence[Wanted]) -> Sequence[Drawn | Refused]:
    """The images of one pass, with Refused in place of each that was refused.

    requests: at most `pass_size` of them, so a single one for a generator that is not Batched.
    """
    if isinstance(generator, Batched):
        return generator.draw_batch(requests)
    try:
        return [generator.draw(request) for request in requests]
    except Refused as refusal:
        return [refusal]


def _line(folder: Folder, generator: Generator, request: Request, result: Drawn | Refused) -> Line:
    """The journal's line of an image, whose files are written here, or of a refusal."""
    line = request_line(request, generator)
    if isinstance(result, Refused):
        return {"kind": "refusal", **line, "refused": str(result)}
    files = folder.keep(request, result)
    return {"kind": "image", **line, **files, "money": price_of(generator), "facts": dict(result.facts)}


def is_of(line: Line, request: Request) -> bool:
    """Whether a line of the journal belongs to this request: drawn with its prompt, and its seed or one tried after it.

    If a seed is refused, the next seeds are tried, MAX_ATTEMPTS in all.
    """
    return line["prompt"] == request.prompt and 0 <= line["seed"] - request.seed < MAX_ATTEMPTS


def draw_all(
    folder: Folder, generator: Generator, take: Callable[[int], list[Request]], most: int, workers: int
) -> Iterator[Line]:
    """Draw all images that `take` hands out, in several processes if the generator allows it; yield their lines.

    The lines for the journal are in the order of the requests.

    take:    returns the next requests, at most as many as its argument; an empty list if there is none now. It may
             return further requests after lines were yielded, as a refusal leaves budget for another request.
    most:    the largest possible number of images, so that a few images do not start many processes.
    workers: number of processes, 0 = one per core. A generator that draws in batches has one for each device instead.
    """
    size = pass_size(generator)
    processes = processes_of(generator, most, workers)
    if processes <= 1:
        while requests := take(size):
            yield from draw_pass(folder, generator, requests)
        return

    # spawned, since a fork of a process with threads (the progress bar, BLAS) may hang
    context = get_context("spawn")
    # Each process begins with `_take_device` or `bound_to_parent`. Both make it ignore Ctrl-C, and end when its parent,
    # this process, is killed.
    if isinstance(generator, Batched):
        devices = context.SimpleQueue()  # each process takes one device from it when it starts
        for device in generator.places():
            devices.put(device)
        pool = ProcessPoolExecutor(processes, context, _take_device, (devices,))
    else:
        pool = ProcessPoolExecutor(processes, context, bound_to_parent)

    submitted: deque[Future[list[Line]]] = deque()
    try:
        while True:
            # Keep all processes busy, but do not take requests long before they are drawn: they count as paid.
            while len(submitted) < PASSES_AHEAD * processes and (requests := take(size)):
                submitted.append(pool.submit(draw_pass, folder, generator, requests))
            if not submitted:
                return
            yield from submitted.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def pass_size(generator: Generator) -> int:
    """The number of images that a generator draws in one pass."""
    return generator.batch_size if isinstance(generator, Batched) else 1


def processes_of(generator: Generator, most: int, workers: int) -> int:
    """The number of processes for at most `most` images.

    A generator that draws in batches has one process for each device. A parallel one has `workers` (0 = one per core),
    but so few that each has IMAGES_PER_PROCESS images to draw. Any other draws one image after another in this process.
    """
    if isinstance(generator, Batched):
        n_passes = math.ceil(most / generator.batch_size)
        return min(len(generator.places()), n_passes)
    if generator.parallel:
        return min(threads(workers), math.ceil(most / IMAGES_PER_PROCESS))
    return 1


def _take_device(devices: Any) -> None:
    """The start of a process that draws on one device: take it from the queue."""
    bound_to_parent()
    _DEVICE_OF_PROCESS.append(devices.get())


def bound_to_parent() -> None:
    """In a drawing process: leave Ctrl-C to the parent, and end when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its processes itself
    threading.Thread(target=_end_with_parent, daemon=True, name="fca-parent").start()


def _end_with_parent() -> None:
    """Wait for the end of the parent process, then end this one.

    A killed parent sends no notice: without this, its processes would wait for work for ever.
    """
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # at once: other threads may be drawing


def _seconds_since(started: float) -> float:
    """Seconds since `time.perf_counter()` returned `started`."""
    return round(time.perf_counter() - started, 3)


# Descriptions that a language model writes once for every class and attribute; they are lines of the journal, too.


def undescribed(plan: Plan, lines: list[Line]) -> list[tuple[str, str]]:
    """The pairs (class, attribute) without descriptions in the plan or the journal, the folder's file of what was done.

    A pair that a writer refused has a line in the journal, so it does not count as missing and is not tried again.
    """
    in_journal = {(line["label"], line["attribute"]) for line in lines if line["kind"] == "description"}
    missing = []
    for label in plan.classes:
        for attribute in plan.attributes:
            in_plan = plan.descriptions.get(label, {}).get(attribute)
            if not in_plan and (label, attribute) not in in_journal:
                missing.append((label, attribute))
    return missing


def describe(plan: Plan, writer: Writer, folder: Folder, budget: Budget, only: Container[str] | None = None) -> bool:
    """Have a language model write all missing descriptions; return whether the budget was enough for them.

    Each description is added to the folder's journal as soon as it is written. Raises Unavailable if the writer's
    service does not answer, and FcaError if the writer gives another number of descriptions than nine.

    only: keys of images: only descriptions that these images need are written. None: all are written.
    """
    lines = folder.journal.lines()
    needed = {(request.label, request.attribute) for request in plan.requests() if only is None or request.key in only}
    for label, attribute in undescribed(plan, lines):
        if (label, attribute) not in needed:
            continue
        if not budget.pays(spent(lines), price_of(writer)):
            return False
        lines.append(_description(plan.classes[label], label, attribute, writer))
        folder.journal.add(lines[-1])
    return True


def _description(name: str, label: str, attribute: str, writer: Writer) -> Line:
    """A line for the journal with a writer's nine descriptions of a class under an attribute, or with its refusal.

    The descriptions go from easy to hard. Raises FcaError if the writer gives another number of them, and Unavailable
    if its service does not answer.

    name: what a person calls the class.    label: the class key.
    """
    line: Line = {"kind": "description", "label": label, "name": name, "attribute": attribute, "writer": writer.label()}
    started = time.perf_counter()
    try:
        descriptions = writer.describe(name, attribute)
    except Refused as refusal:
        return {**line, "refused": str(refusal)}
    if len(descriptions) != SUBLEVELS:
        step = "run again, or take another one"
        raise FcaError(f"descriptions by {writer.label()}", len(descriptions), str(SUBLEVELS), step)
    return {**line, "descriptions": descriptions, "money": price_of(writer), "seconds": _seconds_since(started)}


def with_descriptions(plan: Plan, lines: list[Line]) -> Plan:
    """The plan with the descriptions of its classes that a language model wrote into the folder's journal.

    Where the plan has descriptions itself, these stay.    lines: the journal's lines.
    """
    descriptions = {label: dict(by_attribute) for label, by_attribute in plan.descriptions.items()}
    for line in lines:
        if line["kind"] != "description" or "descriptions" not in line:  # a refusal of the writer has none
            continue
        label = line["label"]
        attribute = line["attribute"]
        if label in plan.classes and attribute in plan.attributes:
            by_attribute = descriptions.setdefault(label, {})
            by_attribute[attribute] = by_attribute.get(attribute) or line["descriptions"]
    return replace(plan, descriptions=descriptions)
