"""When a sweep will be done: the unfinished work, by how long runs of the same kind took, at the pace so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fca.store.columns import FINGERPRINT, NCL, PREDICT_S, RECIPE, TRAIN_S
from fca.tables.rows import SUBSET_SIZE_COLUMNS
from fca.types import Run

MIN_FINISHED = 2  # runs of a kind, before the seconds of others of the kind are known
MIN_SHARE = 0.1  # of the work, which must be done before its pace is known

Job = TypeVar("Job")


class Work(NamedTuple):
    """What decides how long a run takes: its kind, and its number of classes."""

    kind: str
    size: int


def works_of(runs: Iterable[Run]) -> dict[str, Work]:
    """The work of each run, by its id; light ones take no time."""
    return {run.run_id: Work(kind_of(run), int(run.metadata.get(NCL) or 0)) for run in runs if not run.light}


def kind_of(run: Run) -> str:
    """Runs of one kind take as long, but for their number of classes: task, data, network and recipe."""
    values = run.metadata
    recipe_keys = sorted(key for key in values if key.startswith(RECIPE) and key not in SUBSET_SIZE_COLUMNS)
    kind = [
        run.task,
        values.get(FINGERPRINT),
        values.get("model"),
        values.get("encoder"),
        *(values[key] for key in recipe_keys),
    ]
    return " ".join(map(str, kind))


def seconds_of(row: Mapping[str, Any]) -> float:
    """The seconds that a finished run took, by its row; 0 where they were not measured.

    >>> seconds_of({"train_s": 3.5, "predict_s": 0.1}), seconds_of({"predict_s": 0.1}), seconds_of({})
    (3.5, 0.1, 0.0)
    """
    return float(row.get(TRAIN_S) or row.get(PREDICT_S) or 0.0)


def first_of_each_kind(jobs: Sequence[Job], kinds: Sequence[Iterable[str]]) -> list[Job]:
    """The jobs, beginning with those that show how long each kind of run takes: its first, and its last one.

    kinds: of the runs of each job.

    >>> first_of_each_kind(["a2", "a3", "a5", "b2", "b3", "b5"], [["a"], ["a"], ["a"], ["b"], ["b"], ["b"]])
    ['a2', 'a5', 'b2', 'b5', 'a3', 'b3']
    """
    firsts: dict[str, int] = {}
    lasts: dict[str, int] = {}
    for position, kinds_of_job in enumerate(kinds):
        for kind in kinds_of_job:
            firsts.setdefault(kind, position)
            lasts[kind] = position
    in_front = dict.fromkeys(position for kind, first in firsts.items() for position in (first, lasts[kind]))
    behind = [position for position in range(len(jobs)) if position not in in_front]
    return [jobs[position] for position in (*in_front, *behind)]


class Pace:
    """An estimate of the time to go, once it can be right.

    The pace is measured from when MIN_FINISHED runs of every unfinished kind are done: before, workers start, and load
    what a kind needs. There is no estimate before MIN_SHARE of all work has been done since then.
    """

    def __init__(self, works: Mapping[str, Work]) -> None:
        """works: of the runs that are unfinished when the sweep begins, by their ids."""
        self.works = dict(works)
        self.n_unfinished = Counter(self.works.values())
        self.seconds: dict[str, dict[int, list[float]]] = {}  # of finished runs, by kind and number of classes
        self.done_s = 0.0  # of work, by one worker
        self.begun: float | None = None  # when the pace is measured from
        self.done_before_s = 0.0  # of work, before that

    def finish(self, run_id: str, seconds: float | None) -> None:
        """A run has ended.    seconds: how long it took; None: it failed."""
        work = self.works.pop(run_id, None)
        if work is None:
            return
        self.n_unfinished[work] -= 1
        if seconds is not None:
            self.seconds.setdefault(work.kind, {}).setdefault(work.size, []).append(seconds)
            self.done_s += seconds

    def to_go(self, now: float, working: Mapping[str, float]) -> float | None:
        """Seconds until all is done; None as long as it is unknown. To be called every few seconds.

            to go = max(longest run at work, (unfinished work - work in progress) * time passed / work done since)

        now: by any clock.    working: the runs at work -> for how many seconds.
        """
        unfinished_s = self._unfinished_seconds()
        if unfinished_s is None or not self.works:
            return None

        in_progress_s = 0.0
        longest_s = 0.0  # until the runs at work end
        for run_id, passed in working.items():
            expected = self._expected(*self.works[run_id]) if run_id in self.works else None
            if expected is not None:
                in_progress_s += min(passed, expected)
                longest_s = max(longest_s, expected - passed)
        done_s = self.done_s + in_progress_s

        if self.begun is None:
            self.begun = now
            self.done_before_s = done_s
        done_since_s = done_s - self.done_before_s
        total_s = self.done_s + unfinished_s
        if done_since_s <= 0 or now <= self.begun or done_since_s < MIN_SHARE * total_s:
            return None
        return max(longest_s, (unfinished_s - in_progress_s) * (now - self.begun) / done_since_s)

    def _unfinished_seconds(self) -> float | None:
        """The seconds that one worker needs for all unfinished runs; None as long as they are not known."""
        total_s = 0.0
        for (kind, size), number in self.n_unfinished.items():
            seconds = self._expected(kind, size) if number else 0.0
            if seconds is None:
                return None
            total_s += number * seconds
        return total_s

    def _expected(self, kind: str, size: int) -> float | None:
        """The seconds of a run, by finished runs of its kind: with as many classes, else on a line through others."""
        seconds_by_size = self.seconds.get(kind, {})
        if sum(map(len, seconds_by_size.values())) < MIN_FINISHED:
            return None
        if size in seconds_by_size:
            return float(np.mean(seconds_by_size[size]))
        if not min(seconds_by_size) < size < max(seconds_by_size):
            return None

        means = [float(np.mean(seconds)) for seconds in seconds_by_size.values()]
        slope, start = np.polyfit(list(seconds_by_size), means, 1)
        return float(np.clip(start + slope * size, min(means), max(means)))
