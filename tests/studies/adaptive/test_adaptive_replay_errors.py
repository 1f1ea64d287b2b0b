"""Errors of replayed tests: what is resampled, what is missing, and which tests are planned."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from fca.studies.adaptive.adaptive_replay import Setting, error_measures, settings, squared_errors, summarise


def test_intervals_leave_out_models_and_groups():
    errors = np.random.default_rng(0).exponential(size=(5, 10))
    found = error_measures(errors, 2 * errors[:, ::-1])
    left_out = [[np.log(np.delete(errors, k, axis=axis).mean()) for k in range(n)] for axis, n in ((0, 5), (1, 10))]
    variances = [(len(z) - 1) * np.var(z) for z in left_out]
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 4 + variances[1] ** 2 / 9)
    half = scipy.stats.t.ppf(0.975, freedom) * sum(variances) ** 0.5
    expected = errors.mean() * np.exp([-half, half])
    assert (found["mse_low"], found["mse_high"]) == pytest.approx(expected)
    assert found["ratio"] == pytest.approx(0.5)
    assert found["ratio_low"] < 0.5 < found["ratio_high"]


def test_one_model_has_an_interval_over_groups_and_one_cell_has_none():
    errors = np.array([[1.0, 2.0, 4.0, 3.0]])
    assert error_measures(errors, None)["mse_low"] > 0
    assert np.isnan(error_measures(errors[:, :1], None)["mse_low"])


def test_an_estimate_that_is_not_defined_leaves_its_error_out():
    lines = [("a", group, repeat) for group in "xy" for repeat in (0, 1)]
    frame = pd.DataFrame(lines, columns=["model", "group", "repeat"])
    about = {"method": "random + pooled", "policy": "random", "estimator": "pooled", "target": "score"}
    frame = frame.assign(**about, budget=0.1, share=0.1, truth=0.5, estimate=[0.5, 0.6, np.nan, 0.5], se=0.1)
    frame = frame.assign(low=0.3, high=0.7, network="a")
    assert np.isnan(squared_errors(frame)).tolist() == [[False, True]]
    [line] = summarise(frame, 0.1).to_dict("records")
    assert pd.isna(line["mse_pp2"])
    assert (line["undefined"], line["coverage"]) == (1, 1.0)


def test_budgets_that_ask_alike_are_there_once():
    every = settings(0.25, [0.25, 0.5, 0.1])
    assert len(every) == len(set(every))
    assert [test.budget for test in every if test[:2] == ("random", "pooled")] == [0.25, 0.1, 0.5]
    assert Setting("static_k", "session_mean", 0.5) in every
    assert len([test for test in settings(0.8, []) if test.policy == "static_k"]) == 1  # twice would be more than all
