"""Robustness of classes by hand and by loops; its intervals hold the true value in simulated corruptions."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from fca.studies.irt.stats.segments import (
    class_robustness,
    instability,
    quarter_parts,
    ranks,
    slopes,
    verdict_kept,
    verdicts,
)
from fca.types import FcaError

SEVERITY = np.arange(1.0, 6.0)
CUTS = (-0.75, 0.0, 0.75)


def hardness(images, step, rng):
    """Of images that each have their own, move by `step` a severity, and jump a little at random."""
    own, jumps = rng.normal(size=(images, 1)), 0.5 * rng.normal(size=(images, 5))
    return own + jumps + step * np.arange(5)


def scored(moved, label=None, **asked):
    label = np.zeros(len(moved), dtype=int) if label is None else label
    return class_robustness(quarter_parts(np.digitize(moved, CUTS)), -moved, label, SEVERITY, **asked)


def test_a_class_by_hand():
    shares = np.array([[0.5, 0.5, 0.0, 0.0], [0.5, 0.0, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0]])
    spread = np.std([0.5, 0.0, 0.5])
    assert instability(shares) == pytest.approx((0.0 + spread + spread + 0.0) / 4)


def test_instability_and_trend_are_those_of_loops_over_classes():
    rng = np.random.default_rng(0)
    label = rng.permutation(np.arange(3).repeat((5, 40, 80)))
    moved = hardness(125, 0.0, rng) + np.array([0.0, 0.3, -0.2])[label][:, None] * SEVERITY
    found = scored(moved, label)
    for c in range(3):
        own = moved[label == c]
        counts = [[np.mean(np.digitize(own[:, k], CUTS) == s) for k in range(5)] for s in range(4)]
        assert found.instability[c] == pytest.approx(np.mean([np.std(line) for line in counts]))
        assert found.trend[c] == pytest.approx(np.polyfit(SEVERITY, -own.mean(axis=0), 1)[0])


def test_slopes_are_least_squares_for_any_severities():
    value, severity = np.random.default_rng(1).normal(size=(4, 3)), np.array([1.0, 3.0, 5.0])
    expected = [np.polyfit(severity, line, 1)[0] for line in value]
    assert slopes(value, severity) == pytest.approx(expected)


def test_mean_difficulty_is_one_part():
    moved = hardness(30, 0.4, np.random.default_rng(2))
    found = class_robustness(moved[..., None], moved, np.zeros(30, dtype=int), SEVERITY)
    assert found.instability[0] == pytest.approx(moved.mean(axis=0).std())
    assert found.trend[0] == pytest.approx(np.polyfit(SEVERITY, moved.mean(axis=0), 1)[0])


def test_a_class_that_never_moves_has_no_instability_and_no_trend():
    still = np.repeat(hardness(50, 0.0, np.random.default_rng(3))[:, :1], 5, axis=1)
    found = scored(still)
    told = (found.instability[0], found.instability_low[0], found.instability_high[0])
    assert told == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
    assert found.trend[0] == pytest.approx(0, abs=1e-12)


def test_improving_and_worsening_classes_differ_in_trend_only():
    moved = hardness(400, 0.4, np.random.default_rng(4))
    both = np.concatenate([moved, moved[:, ::-1]])
    found = scored(both, np.arange(2).repeat(400))
    assert found.instability[0] == pytest.approx(found.instability[1])
    assert found.trend_high[0] < 0 < found.trend_low[1]
    assert found.trend[0] == pytest.approx(-found.trend[1])


@cache
def true_instability(step):
    if not step:
        return 0.0
    many = np.digitize(hardness(1_000_000, step, np.random.default_rng(50)), CUTS)
    return instability(quarter_parts(many).mean(axis=0))


@pytest.mark.parametrize("step", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("images", [30, 300])
@pytest.mark.slow
def test_intervals_hold_the_true_value(images, step):
    rng = np.random.default_rng(5)
    label = np.arange(200).repeat(images)  # 200 independent repetitions
    found = scored(hardness(len(label), step, rng), label, resamples=400)
    truth = true_instability(step)
    inside = (found.instability_low <= truth) & (truth <= found.instability_high)
    assert inside.mean() >= 0.91  # 0.95 less three standard errors of 200 repetitions
    assert np.all(found.instability <= found.instability_high + 1e-12)
    trend = (found.trend_low <= -step) & (-step <= found.trend_high)
    assert trend.mean() >= 0.89  # the percentile interval is a little short at 30 images


def test_one_image_has_no_interval():
    found = scored(hardness(1, 0.1, np.random.default_rng(6)))
    ends = (found.instability_low[0], found.instability_high[0], found.trend_low[0], found.trend_high[0])
    assert np.isnan(ends).all()
    assert np.isfinite([found.instability[0], found.trend[0]]).all()


def test_the_seed_names_the_resamples():
    moved = hardness(60, 0.2, np.random.default_rng(7))
    one, same, other = (scored(moved, seed=seed).instability_low[0] for seed in (1, 1, 2))
    assert one == same != other


def test_one_severity_is_refused():
    with pytest.raises(FcaError, match="severities of a corruption = 1; allowed: 2 or more"):
        class_robustness(np.zeros((3, 1, 4)), np.zeros((3, 1)), np.zeros(3, dtype=int), np.array([1.0]))


def test_two_classes_at_either_end_get_a_verdict():
    score = np.array([-0.3, -0.1, -0.5, -0.2, -0.4])
    assert ranks(score).tolist() == [3, 1, 5, 2, 4]
    assert verdicts(score) == [None, "robust", "susceptible", "robust", "susceptible"]


@pytest.mark.parametrize(("classes", "each"), [(1, 0), (2, 1), (3, 1), (4, 2), (9, 2)])
def test_no_class_gets_both_verdicts(classes, each):
    found = Counter(verdicts(np.arange(classes, dtype=float)))
    assert (found["robust"], found["susceptible"]) == (each, each)


def test_a_verdict_is_kept_in_the_resamples_that_give_it_again():
    rng = np.random.default_rng(8)
    score = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
    resampled = score + 0.1 * rng.normal(size=(500, 5))
    again = [verdicts(line) for line in resampled]
    expected = [np.mean([line[c] == verdict for line in again]) for c, verdict in enumerate(verdicts(score))]
    expected[2] = np.nan  # it has none to keep
    assert verdict_kept(score, resampled) == pytest.approx(expected, nan_ok=True)
