"""Errors of replayed tests: what is resampled, what is missing, and which tests are planned."""

import numpy as np
import pandas as pd
import pytest

from fca.studies.adaptive.replay import Setting, measures, overall, settings, squared


def test_intervals_resample_models_and_groups():
    cells = np.random.default_rng(0).exponential(size=(5, 10))
    draws = [np.random.default_rng(k).multinomial(n, np.full(n, 1 / n), 4000) / n for k, n in ((1, 5), (2, 10))]
    found = measures(cells, cells[:, ::-1].copy(), tuple(draws))
    rng = np.random.default_rng(3)
    again = [cells[rng.integers(0, 5, 5)][:, rng.integers(0, 10, 10)].mean() for _ in range(4000)]
    low, high = np.quantile(again, [0.025, 0.975])
    assert found["mse_low"] == pytest.approx(low, abs=0.03)  # 4,000 resamples of a mean near 1
    assert found["mse_high"] == pytest.approx(high, abs=0.05)
    assert found["ratio"] == pytest.approx(1)


def test_an_estimate_that_is_not_defined_leaves_its_error_out():
    lines = [("a", group, repeat) for group in "xy" for repeat in (0, 1)]
    frame = pd.DataFrame(lines, columns=["model", "group", "repeat"])
    about = {"method": "random + pooled", "policy": "random", "estimator": "pooled", "target": "score"}
    frame = frame.assign(**about, budget=0.1, share=0.1, truth=0.5, estimate=[0.5, 0.6, np.nan, 0.5], se=0.1)
    frame = frame.assign(low=0.3, high=0.7, network="a")
    assert np.isnan(squared(frame)).tolist() == [[False, True]]
    [line] = overall(frame, 0.1).to_dict("records")
    assert pd.isna(line["mse_pp2"])
    assert (line["undefined"], line["coverage"]) == (1, 1.0)


def test_budgets_that_ask_alike_are_there_once():
    every = settings(0.25, [0.25, 0.5, 0.1])
    assert len(every) == len(set(every))
    assert [test.budget for test in every if test[:2] == ("random", "pooled")] == [0.25, 0.1, 0.5]
    assert Setting("static_k", "session_mean", 0.5) in every
    assert len([test for test in settings(0.8, []) if test.policy == "static_k"]) == 1  # twice would be more than all
