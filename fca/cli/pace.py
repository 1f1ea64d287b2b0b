"""When a sweep will be done: estimated from how long runs of the same kind took, and from the pace so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fca.store.columns import FINGERPRINT, NCL, PREDICT_S, RECIPE, TRAIN_S
from fca.tables.rows import SUBSET_SIZE_COLUMNS
from fca.types import Run

MIN_FINISHED_RUNS = 2  # of a kind, before the duration of its other runs is estimated
MIN_SHARE_DONE = 0.1  # of all work, before the time to go is estimated from the pace

Job = TypeVar("Job")


class Work(NamedTuple):
    """What decides how long a run takes: its kind, and its number of classes."""

    kind: str
    size: int


def works_of(runs: Iterable[Run]) -> dict[str, Work]:
    """Id of a run -> its work. Light runs, such as scores, take no time worth estimating and are left out."""
    return {run.run_id: Work(kind_of(run), int(run.metadata.get(NCL) or 0)) for run in runs if not run.light}


def kind_of(run: Run) -> str:
    """A text that is equal for runs of one kind: runs that take equally long if they have equally many classes.

    The text consists of the task, the data, the network and the recipe. Keys of the recipe that are derived from the
    number of images of a subset are left out, since they differ between subsets.
    """
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
    """How many seconds a finished run took, by its row; 0 if that was not measured.

    >>> seconds_of({"train_s": 3.5, "predict_s": 0.1}), seconds_of({"predict_s": 0.1}), seconds_of({})
    (3.5, 0.1, 0.0)
    """
    return float(row.get(TRAIN_S) or row.get(PREDICT_S) or 0.0)


def first_of_each_kind(jobs: Sequence[Job], kinds: Sequence[Iterable[str]]) -> list[Job]:
    """The jobs in another order: in front the first and the last job of each kind of run, then all other jobs.

    The first and the last job of a kind usually have its lowest and its highest number of classes. Once both are done,
    the duration of the jobs between them can be interpolated (see `Pace`).
    kinds: for each job, the kinds of its runs as `kind_of` returns them.

    >>> first_of_each_kind(["a2", "a3", "a5", "b2", "b3", "b5"], [["a"], ["a"], ["a"], ["b"], ["b"], ["b"]])
    ['a2', 'a5', 'b2', 'b5', 'a3', 'b3']
    """
    first_position: dict[str, int] = {}
    last_position: dict[str, int] = {}
    for position, kinds_of_job in enumerate(kinds):
        for kind in kinds_of_job:
            first_position.setdefault(kind, position)
            last_position[kind] = position

    positions_in_front: dict[int, None] = {}  # a set that keeps its order
    for kind, first in first_position.items():
        positions_in_front[first] = None
        positions_in_front[last_position[kind]] = None
    positions_behind = [position for position in range(len(jobs)) if position not in positions_in_front]
    return [jobs[position] for position in (*positions_in_front, *positions_behind)]


class Pace:
    """An estimate of the time until all runs are done, as soon as there is a reliable one.

    The pace is measured from the moment when MIN_FINISHED_RUNS runs of every unfinished kind are done. Before that,
    workers start, and load what a kind needs. There is no estimate before MIN_SHARE_DONE of all work has been done
    since.
    """

    def __init__(self, works: Mapping[str, Work]) -> None:
        """works: id -> work of the runs that are unfinished when the sweep begins."""
        self.works = dict(works)
        self.n_unfinished = Counter(self.works.values())
        self.seconds: dict[str, dict[int, list[float]]] = {}  # kind -> number of classes -> seconds of finished runs
        self.done_s = 0.0  # seconds of all finished runs together
        self.begun: float | None = None  # time from which the pace is measured
        self.done_before_s = 0.0  # seconds of work that was done before that

    def finish(self, run_id: str, seconds: float | None) -> None:
        """Note that a run has ended.

        seconds: how long the run took; None if it failed, or can never be done.
        """
        work = self.works.pop(run_id, None)
        if work is None:  # a light run, or one that was noted before
            return
        self.n_unfinished[work] -= 1
        if seconds is not None:
            self.seconds.setdefault(work.kind, {}).setdefault(work.size, []).append(seconds)
            self.done_s += seconds

    def to_go(self, now: float, working: Mapping[str, float]) -> float | None:
        """The estimated seconds until all runs are done.

        None until the duration of every unfinished run can be expected, and MIN_SHARE_DONE of all work was done since
        then. Light runs (see `works_of`) are not counted; the result is also None if no other run is unfinished.

            to go = max(longest_s, (unfinished_s - in_progress_s) * (now - begun) / done_since_s)

        longest_s:     the expected seconds until the last of the runs in progress ends
        unfinished_s:  the work of all runs that have not ended; work is counted in seconds of one worker
        in_progress_s: the part of this work that the runs in progress have done already
        done_since_s:  the work that was done since `begun`, the moment from which the pace is measured

        self.done_s is the work of the runs that have ended, and self.works has the kind and the number of classes of
        each unfinished run, from which `_expected` estimates its seconds.
        now:     the time in seconds, by the same clock in all calls. The sweep should call every few seconds.
        working: id of each run in progress -> seconds since it began.
        """
        unfinished_s = self._unfinished_seconds()
        if unfinished_s is None or not self.works:
            return None

        in_progress_s = 0.0
        longest_s = 0.0
        for run_id, passed in working.items():
            work = self.works.get(run_id)  # None for a light run, which takes no time worth estimating
            expected = None if work is None else self._expected(work.kind, work.size)
            if expected is not None:
                in_progress_s += min(passed, expected)  # a run that takes longer than expected has done no more work
                longest_s = max(longest_s, expected - passed)
        done_s = self.done_s + in_progress_s

        if self.begun is None:  # the first call in which the duration of every unfinished run can be expected
            self.begun = now
            self.done_before_s = done_s  # the work that does not count for the pace
        done_since_s = done_s - self.done_before_s
        total_s = self.done_s + unfinished_s
        if done_since_s <= 0 or now <= self.begun or done_since_s < MIN_SHARE_DONE * total_s:
            return None
        return max(longest_s, (unfinished_s - in_progress_s) * (now - self.begun) / done_since_s)

    def _unfinished_seconds(self) -> float | None:
        """The seconds that one worker needs for all unfinished runs.

        None as long as the duration of any unfinished run cannot be estimated.
        """
        total_s = 0.0
        for (kind, size), number in self.n_unfinished.items():
            seconds = self._expected(kind, size) if number else 0.0  # a count stays in the counter when it is 0
            if seconds is None:
                return None
            total_s += number * seconds
        return total_s

    def _expected(self, kind: str, size: int) -> float | None:
        """The expected seconds of a run of this kind with `size` classes.

        If finished runs have the same number of classes, it is their mean. Otherwise a line is fitted by least squares
        to the mean duration at each number of classes, and the value on this line is clipped to the range of the means.
        None if fewer than MIN_FINISHED_RUNS of the kind are finished, or if `size` is outside of their numbers of
        classes.
        """
        seconds_by_size = self.seconds.get(kind, {})
        n_finished = sum(map(len, seconds_by_size.values()))
        if n_finished < MIN_FINISHED_RUNS:
            return None
        if size in seconds_by_size:
            return float(np.mean(seconds_by_size[size]))
        if not min(seconds_by_size) < size < max(seconds_by_size):  # a line may be far off outside of its points
            return None

        means = [float(np.mean(seconds)) for seconds in seconds_by_size.values()]
        slope, intercept = np.polyfit(list(seconds_by_size), means, 1)
        return float(np.clip(intercept + slope * size, min(means), max(means)))
