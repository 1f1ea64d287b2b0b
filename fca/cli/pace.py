"""When a sweep will be done: what is left, by what runs of the same kind took, at the pace at which work was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fca.store.columns import FINGERPRINT, NCL, PREDICT_S, RECIPE, TRAIN_S
from fca.tables.rows import OF_SIZE
from fca.types import Run

FEWEST_OF_KIND = 2  # finished, before what others of the kind take is known
SHARE = 0.1  # of the work, which must be done before its pace is known

Job = TypeVar("Job")


class Work(NamedTuple):
    """What decides how long a run takes: its kind, and its number of classes."""

    kind: str
    size: int


def works_of(runs: Iterable[Run]) -> dict[str, Work]:
    """The work of each run, by its id; light ones take no time."""
    return {run.run_id: Work(kind_of(run), int(run.about.get(NCL) or 0)) for run in runs if not run.light}


def kind_of(run: Run) -> str:
    """Runs of one kind take as long, but for their number of classes: task, data, network and recipe."""
    about = run.about
    keys = sorted(key for key in about if key.startswith(RECIPE) and key not in OF_SIZE)
    parts = [about.get(FINGERPRINT), about.get("model"), about.get("encoder"), *(about[key] for key in keys)]
    return " ".join(map(str, [run.task, *parts]))


def seconds_of(row: Mapping[str, Any]) -> float:
    """What a finished run took, by its row; 0 where it was not measured.

    >>> seconds_of({"train_s": 3.5, "predict_s": 0.1}), seconds_of({"predict_s": 0.1}), seconds_of({})
    (3.5, 0.1, 0.0)
    """
    return float(row.get(TRAIN_S) or row.get(PREDICT_S) or 0.0)


def first_of_each_kind(jobs: Sequence[Job], kinds: Sequence[Iterable[str]]) -> list[Job]:
    """The jobs, with those in front that show what each kind of run takes: its first, and its last one.

    kinds: of the runs of each job.

    >>> first_of_each_kind(["a2", "a3", "a5", "b2", "b3", "b5"], [["a"], ["a"], ["a"], ["b"], ["b"], ["b"]])
    ['a2', 'a5', 'b2', 'b5', 'a3', 'b3']
    """
    firsts: dict[str, int] = {}
    lasts: dict[str, int] = {}
    for position, of_job in enumerate(kinds):
        for kind in of_job:
            firsts.setdefault(kind, position)
            lasts[kind] = position
    in_front = dict.fromkeys(position for kind, first in firsts.items() for position in (first, lasts[kind]))
    others = [position for position in range(len(jobs)) if position not in in_front]
    return [jobs[position] for position in (*in_front, *others)]


class Pace:
    """An estimate of the time to go, once it can be right.

    The pace is measured from when FEWEST_OF_KIND runs of every kind that is left are done: before, workers start, and
    load what a kind needs. There is no estimate before SHARE of all work has been done since then.
    """

    def __init__(self, works: Mapping[str, Work]) -> None:
        """works: of the runs that are left when the sweep begins, by their ids."""
        self.works = dict(works)
        self.left = Counter(self.works.values())
        self.seconds: dict[str, dict[int, list[float]]] = {}  # of finished runs, by kind and number of classes
        self.done = 0.0  # seconds of work, by one worker
        self.begun: float | None = None  # when the pace is measured from, and what was done until then
        self.done_before = 0.0

    def finish(self, run_id: str, seconds: float | None) -> None:
        """A run has ended.    seconds: what it took; None: it failed."""
        work = self.works.pop(run_id, None)
        if work is None:
            return
        self.left[work] -= 1
        if seconds is not None:
            self.seconds.setdefault(work.kind, {}).setdefault(work.size, []).append(seconds)
            self.done += seconds

    def to_go(self, now: float, working: Mapping[str, float]) -> float | None:
        """Seconds until all is done; None as long as it is unknown. To be called now and then.

        now: by any clock.    working: the runs at work -> for how many seconds.
        """
        left = self._left_seconds()
        if left is None or not self.works:
            return None

        partly_done, longest = 0.0, 0.0
        for run_id, passed in working.items():
            expected = self._expected(*self.works[run_id]) if run_id in self.works else None
            if expected is not None:
                partly_done += min(passed, expected)
                longest = max(longest, expected - passed)
        done = self.done + partly_done

        if self.begun is None:
            self.begun, self.done_before = now, done
        since = done - self.done_before
        if since <= 0 or now <= self.begun or since < SHARE * (self.done + left):
            return None
        return max(longest, (left - partly_done) * (now - self.begun) / since)

    def _left_seconds(self) -> float | None:
        """What one worker needs for all that is left; None as long as that is not known."""
        left = 0.0
        for (kind, size), number in self.left.items():
            seconds = self._expected(kind, size) if number else 0.0
            if seconds is None:
                return None
            left += number * seconds
        return left

    def _expected(self, kind: str, size: int) -> float | None:
        """What a run will take, by those of its kind: of its number of classes, else on the line through others."""
        finished = self.seconds.get(kind, {})
        if sum(map(len, finished.values())) < FEWEST_OF_KIND:
            return None
        if size in finished:
            return float(np.mean(finished[size]))
        if not min(finished) < size < max(finished):
            return None
        means = [float(np.mean(seconds)) for seconds in finished.values()]
        slope, start = np.polyfit(list(finished), means, 1)
        return float(np.clip(start + slope * size, min(means), max(means)))
