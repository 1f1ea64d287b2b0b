"""One image: drawn, kept and told as a journal's line; and many of them, in processes where the generator allows it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process

from fca.data.parallel import threads
from fca.generators import Generator, Refused, Request
from fca.tasks.generate.folder import Folder, Line, request_line
from fca.tasks.generate.money import price_of

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
