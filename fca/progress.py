"""How far a work is: a bar on a terminal; elsewhere, as in a batch job's log, a line now and then."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import TypeVar

import rich.progress as rich
from rich import get_console

FIRST_S = 10.0  # before the first line
EVERY_S = 30.0  # at least, between two lines
SHARE = 0.1  # and at least this share of the time so far, so that a day's work writes some hundred lines

Item = TypeVar("Item")


def track(items: Iterable[Item], what: str, total: int | None = None, *, long: bool = True) -> Iterator[Item]:
    """The same items, with a passing bar where the terminal shows one; elsewhere with lines (see `Lines`).

    total: how many there are, where they have no length.    long: whether they are worth a bar.

    >>> list(track([1, 2], "images", long=False))
    [1, 2]
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    lines = Lines(what, total)
    shown = rich.track(items, what, total, transient=True, disable=not (long and on_terminal()))
    for done, item in enumerate(shown, 1):
        yield item
        lines.show(done)


def waiting(what: str, *, long: bool = True) -> AbstractContextManager[object]:
    """Shows `what` is done and the time since, on a terminal, until left: for work of one step.

    long: whether it is worth a bar.

    >>> with waiting("fitting", long=False):
    ...     1 + 1
    2
    """
    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeElapsedColumn()
    bar = rich.Progress(*columns, transient=True, disable=not (long and on_terminal()))
    bar.add_task(what, total=None)
    return bar


class Meter:
    """How much of a work of several parts is done: a passing bar on a terminal, elsewhere lines (see `Lines`).

    total: of all parts together.    long: whether it is worth a bar.    work: of each of the total, see `Lines`.

    >>> with Meter("images", 6, long=False) as meter:
    ...     meter.begin("part 1 of 2")
    ...     meter.add(3)
    """

    def __init__(self, what: str, total: int, *, long: bool = True, work: Sequence[float] = ()) -> None:
        self.done, self.part = 0, ""
        self.lines = Lines(what, total, work=work)
        columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TextColumn("{task.fields[count]}")
        times = rich.TimeElapsedColumn(), rich.TextColumn("left:"), rich.TimeRemainingColumn()
        self.bar = rich.Progress(*columns, *times, transient=True, disable=not (long and on_terminal()))
        self.task = self.bar.add_task(what, total=1.0, count=f"0/{total}")

    def __enter__(self) -> Meter:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def begin(self, part: str) -> None:
        """Name the part that comes now."""
        self.part = part
        self.bar.update(self.task, description=part)

    def add(self, number: int) -> None:
        """So many more are done."""
        self.done += number
        self.bar.update(self.task, completed=self.lines.share(self.done), count=f"{self.done}/{self.lines.total}")
        self.lines.show(self.done, self.part)


def on_terminal() -> bool:
    """Whether somebody can see a bar."""
    return get_console().is_terminal


class Lines:
    """Lines on stderr: at first after FIRST_S seconds, and later when both EVERY_S and SHARE of the time have passed.

    A work that takes less writes none; nor does a worker of a sweep, which has lines of its own, nor one on a terminal.
    known: how many were done before; the pace is that of the others.    paced: whether the pace predicts the time to
    go.    work: how long each of the total takes, in order and in any unit; where it is not given, all take as long.
    """

    def __init__(
        self, what: str, total: int | None, known: int = 0, *, paced: bool = True, work: Sequence[float] = ()
    ) -> None:
        self.what, self.total, self.known, self.paced = what, total, known, paced
        self.work_until = [0.0, *accumulate(work)]
        self.written = 0
        self.begun = self.last = time.monotonic()
        self.quiet = on_terminal() or multiprocessing.parent_process() is not None

    def show(self, done: int, note: str = "", *, last: bool = False) -> None:
        """Write how many are done, if it is time.    last: in any case, on stdout, as what came of it."""
        now = time.monotonic()
        pause = max(EVERY_S, SHARE * (self.last - self.begun)) if self.written else FIRST_S
        if self.quiet or not (last or now - self.last >= pause):
            return
        self.written += 1
        self.last, passed = now, now - self.begun
        share, known_share = self.share(done), self.share(self.known)
        of = f" of {self.total:,} ({share:.0%})" if self.total else ""
        parts = [f"{done:,}{of}", note, f"{passed:,.0f} s"]
        if self.paced and known_share < share < 1:
            parts.append(f"about {passed / (share - known_share) * (1 - share):,.0f} s to go")
        print(f"{self.what}: {', '.join(filter(None, parts))}", file=sys.stdout if last else sys.stderr, flush=True)

    def share(self, done: int) -> float:
        """Of the whole work, where so many are done; 0 where the total is not known.

        >>> Lines("programs", 3, work=[8.0, 1.0, 1.0]).share(1)
        0.8
        """
        if not self.total:
            return 0.0
        if not self.work_until[-1]:
            return done / self.total
        return self.work_until[done] / self.work_until[-1]
