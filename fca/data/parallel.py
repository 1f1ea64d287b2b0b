"""Work on many images in a few threads: decoding and resizing leave Python's lock, so threads are enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rich import get_console
from rich.progress import track

BATCH = 256  # results waiting in memory at most
LONG = 2000  # images from which on a progress bar is shown

Result = TypeVar("Result")
Part = TypeVar("Part")


def watched(parts: Sequence[Part], doing: str, *, long: bool) -> Iterable[Part]:
    """The same parts, with a passing progress bar beside `doing` when they take long and somebody looks."""
    return track(parts, doing, transient=True, disable=not (long and get_console().is_terminal))


def threads(workers: int) -> int:
    """The number asked for; 0 = one for each core that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return workers or allowed or 1


def in_order(work: Callable[[int], Result], n: int, workers: int, doing: str) -> Iterator[Result]:
    """work(0), ..., work(n - 1), computed side by side, `doing` shown beside a progress bar when there are many.

    >>> list(in_order(lambda i: i * i, 4, workers=2, doing="squaring"))
    [0, 1, 4, 9]
    """
    with ThreadPoolExecutor(threads(workers)) as pool:
        for start in watched(range(0, n, BATCH), doing, long=n >= LONG):
            yield from pool.map(work, range(start, min(start + BATCH, n)))
