"""Progress of long work: a bar on a terminal; elsewhere, as in a batch job's log, a line from time to time."""

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
EVERY_S = 30.0  # between two lines, at least
PAUSE_SHARE = 0.1  # and at least this share of the time so far, so that a day's work writes about a hundred lines

Item = TypeVar("Item")


def track(items: Iterable[Item], what: str, total: int | None = None, *, long: bool = True) -> Iterator[Item]:
    """Yield the same items, and show the progress: by a bar on a terminal, elsewhere by lines (see `ProgressLines`).

    what:  the work's name beside the bar.
    total: the number of items, if they have no length; None: unknown.
    long:  whether the work takes long enough for a bar.

    >>> list(track([1, 2], "images", long=False))
    [1, 2]
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    lines = ProgressLines(what, total)
    has_bar = long and on_terminal()
    items_with_bar = rich.track(items, what, total, transient=True, disable=not has_bar)
    for number, item in enumerate(items_with_bar, 1):
        yield item
        lines.show(number)  # runs when the caller asks for the next item, so this one is done


def waiting(what: str, *, long: bool = True) -> AbstractContextManager[object]:
    """A context that shows on a terminal that `what` is running, and for how long: for work of one step.

    long: whether the work takes long enough to show it.

    >>> with waiting("fitting", long=False):
    ...     1 + 1
    2
    """
    has_bar = long and on_terminal()
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeElapsedColumn())
    bar = rich.Progress(*columns, transient=True, disable=not has_bar)
    bar.add_task(what, total=None)
    return bar


class Meter:
    """Shows the progress of work in several parts: a bar on a terminal, elsewhere lines (see `ProgressLines`).

    total: the number of items in all parts together.
    long:  whether the work takes long enough for a bar.
    work:  how long each item takes, see `ProgressLines`.

    >>> with Meter("images", 6, long=False) as meter:
    ...     meter.begin("part 1 of 2")
    ...     meter.add(3)
    """

    def __init__(self, what: str, total: int, *, long: bool = True, work: Sequence[float] = ()) -> None:
        """Make the bar, which is shown from `__enter__` on, and the lines that replace it where there is no terminal.

        long: whether the work takes long enough for a bar.
        work: how long each item takes, in any unit; without it, all take equally long.
        """
        self.n_done = 0
        self.part_name = ""  # set by `begin`
        self.lines = ProgressLines(what, total, work=work)

        has_bar = long and on_terminal()
        self.bar = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TextColumn("{task.fields[count]}"),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left:"),
            rich.TimeRemainingColumn(),
            transient=True,
            disable=not has_bar,
        )
        self.task = self.bar.add_task(what, total=1.0, count=f"0/{total}")  # 1.0: the bar shows the share of work

    def __enter__(self) -> Meter:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def begin(self, part_name: str) -> None:
        """Show the name of the part that begins."""
        self.part_name = part_name
        self.bar.update(self.task, description=part_name)

    def add(self, number: int) -> None:
        """Count `number` more items as done."""
        self.n_done += number
        count = f"{self.n_done}/{self.lines.total}"
        self.bar.update(self.task, completed=self.lines.share(self.n_done), count=count)
        self.lines.show(self.n_done, self.part_name)


def on_terminal() -> bool:
    """Whether the output is a terminal, where a bar can be seen."""
    return get_console().is_terminal


class ProgressLines:
    """Writes lines on stderr that state the progress of long work, for logs.

    The first line comes after FIRST_S seconds. The pause before every further line is EVERY_S seconds, or the share
    PAUSE_SHARE of the time so far if that is longer. Nothing is written on a terminal, which has a bar, nor by a worker
    process of a sweep, because the sweep itself writes lines.
    """

    def __init__(
        self, what: str, total: int | None, done_before: int = 0, *, paced: bool = True, work: Sequence[float] = ()
    ) -> None:
        """Start the clock.

        what:        the work's name.
        total:       the number of items; None: unknown.
        done_before: how many items were done before this work began; they do not count for the pace.
        paced:       whether the pace so far predicts the time to go.
        work:        how long each item takes, in order and in any unit; without it, all take equally long.
        """
        self.what = what
        self.total = total
        self.done_before = done_before
        self.is_paced = paced
        self.work_until = [0.0, *accumulate(work)]  # [i]: the work of the first i items
        self.n_written = 0
        self.start_s = self.last_line_s = time.monotonic()
        is_worker_of_sweep = multiprocessing.parent_process() is not None
        self.is_quiet = on_terminal() or is_worker_of_sweep  # a terminal has a bar; a sweep writes lines of its own

    def show(self, done: int, note: str = "", *, last: bool = False) -> None:
        """Write how many items are done, if a line is due; never on a terminal or in a joblib worker of a sweep.

        The first line is due FIRST_S seconds after the start. Later pauses are EVERY_S seconds, or the share
        PAUSE_SHARE of the time so far if that is longer, so that long work writes few lines.

        done: number of items, with those of `done_before`.
        note: a text for the line; "": none.
        last: whether this is the last line. It is always due, and goes to stdout, because it is the result.
        """
        now_s = time.monotonic()
        if self.n_written:
            pause_s = max(EVERY_S, PAUSE_SHARE * (self.last_line_s - self.start_s))
        else:
            pause_s = FIRST_S
        is_due = last or now_s - self.last_line_s >= pause_s
        if self.is_quiet or not is_due:
            return
        self.n_written += 1
        self.last_line_s = now_s

        elapsed_s = now_s - self.start_s
        share = self.share(done)
        share_before = self.share(self.done_before)
        count = f"{done:,} of {self.total:,} ({share:.0%})" if self.total else f"{done:,}"
        words = [count, note, f"{elapsed_s:,.0f} s"]
        if self.is_paced and share_before < share < 1:
            left_s = elapsed_s / (share - share_before) * (1 - share)  # at the pace of this work so far
            words.append(f"about {left_s:,.0f} s to go")

        text = f"{self.what}: {', '.join(filter(None, words))}"
        print(text, file=sys.stdout if last else sys.stderr, flush=True)

    def share(self, done: int) -> float:
        """The share of all work that is done with this many items; 0 if the total is unknown.

        >>> ProgressLines("programs", 3, work=[8.0, 1.0, 1.0]).share(1)
        0.8
        """
        if not self.total:
            return 0.0
        total_work = self.work_until[-1]
        if not total_work:  # no `work` was given: all items are equal
            return done / self.total
        return self.work_until[done] / total_work
