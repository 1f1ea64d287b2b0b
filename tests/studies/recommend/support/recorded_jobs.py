"""What several tests share: jobs that were recorded for a recommendation."""

import numpy as np

from fca.studies.recommend.stats.candidate_accuracy import (
    Candidates,
    JobRecord,
    usual_hyperparameters,
)

THREE = Candidates(("lite0", "lite0", "lite1"), (128.0, 224.0, 160.0), ("whole", "cut", "whole"), ("fp32",) * 3)
HYPERPARAMETERS = usual_hyperparameters(3)


def record(dataset, job, candidate=(0, 1, 2), ncl=4.0, judged=40, tested=60, seed=0):
    rng = np.random.default_rng(seed)
    n_judged, n_test = np.full(len(candidate), float(judged)), np.full(len(candidate), float(tested))
    right = [rng.binomial(images, 0.8, len(candidate)).astype(float) for images in (judged, tested)]
    return JobRecord(dataset, job, ncl, 20.0, np.array(candidate), n_judged, right[0], n_test, right[1])


RECORDS = [
    record("cars", "a"),
    record("cars", "b", candidate=(2, 0), ncl=9.0, seed=1),  # without the middle one, in another order
    record("birds", "a", tested=0, seed=2),
    record("birds", "b", candidate=(1,), judged=0, seed=3),
    record("cups", "a", ncl=2.0, seed=4),
]
