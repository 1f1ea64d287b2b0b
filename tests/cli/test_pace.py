"""A sweep's first estimate of time appears when it can be right, and is."""

import numpy as np
import pytest

from fca.cli.pace import Pace, first_of_each_kind, kind_of, works_of
from fca.types import Run


def sweep(networks, sizes, seeds):
    """Trainings, each followed by a prediction that takes a hundredth of it, and what each takes."""
    jobs, seconds = [], {}
    for network, cost in networks.items():
        for ncl in sizes:
            for seed in range(seeds):
                about = {"model": network, "ncl": ncl, "fingerprint": "f"}
                training = Run("train", {"of": [network, ncl, seed]}, about)
                prediction = Run("predict", {"of": [network, ncl, seed]}, about, parent=training.run_id)
                seconds |= {training.run_id: cost * (1 + ncl), prediction.run_id: 0.01 * cost}
                jobs.append([training, prediction])
    return jobs, seconds


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("networks", [{"small": 1.0, "large": 9.0}, {"large": 9.0, "small": 1.0}])
def test_the_first_estimate_is_within_a_factor_of_one_and_a_half(networks, workers):
    jobs, seconds = sweep(networks, (2, 3, 5, 10), 5)
    order = first_of_each_kind(jobs, [{kind_of(run) for run in job} for job in jobs])
    free = np.full(workers, 20.0)  # the workers start for 20 s
    begun, ends = {}, []
    for job in order:
        worker = int(free.argmin())
        for run in job:
            begun[run.run_id] = free[worker]
            free[worker] += seconds[run.run_id] * 1.05 + 0.05  # and have some work beside
            ends.append((free[worker], run.run_id))
    ends.sort()

    pace = Pace(works_of(run for job in jobs for run in job))
    first = None
    for now in np.arange(0.0, ends[-1][0], 1.0):
        for end, run_id in ends:
            if now - 1.0 < end <= now:
                pace.finish(run_id, seconds[run_id])
        estimate = pace.to_go(now, {run_id: now - begun[run_id] for end, run_id in ends if begun[run_id] < now < end})
        if first is None and estimate is not None:
            first = (estimate, ends[-1][0] - now)
    assert first is not None
    assert 1 / 1.5 < first[0] / first[1] < 1.5
    assert first[1] > 0.5 * ends[-1][0], "it comes in the first half"


def test_there_is_no_estimate_before_every_kind_that_is_left_is_known():
    jobs, seconds = sweep({"small": 1.0, "large": 9.0}, (2,), 5)
    pace = Pace(works_of(run for job in jobs for run in job))
    for run in (run for job in jobs[:5] for run in job):
        pace.finish(run.run_id, seconds[run.run_id])
    assert pace.to_go(100.0, {}) is None, "no large network is trained yet"


def test_runs_that_fail_are_no_longer_left_and_give_no_time():
    jobs, _ = sweep({"small": 1.0}, (2,), 4)
    pace = Pace(works_of(run for job in jobs for run in job))
    for run in (run for job in jobs for run in job):
        pace.finish(run.run_id, None)
    assert pace.to_go(100.0, {}) is None
