import json

import numpy as np
import pytest
from scipy.stats import norm

from fca.studies.recommend.stats.learning_curve import (
    DRAWS,
    Hyperparameters,
    Job,
    Measured,
    fit,
    forecast,
    measured_from,
    observed,
    reach,
)
from fca.types import FcaError

USUAL = Hyperparameters(np.array([1.2, 0.2, -0.03]), np.diag([0.3, 0.02, 0.002]), 0.07)
SIZES = np.array([80.0, 40.0, 20.0, 10.0])
FITS = np.array([1, 8, 16, 32])


def simulated(rng, images=300, tested=200):
    """A job of a curve drawn from USUAL. The same images are easy at every size."""
    curve = rng.multivariate_normal(USUAL.mean, USUAL.covariance)
    value = lambda sizes: curve @ np.stack([np.ones_like(sizes), np.log2(sizes / 80), np.log2(sizes / 80) ** 2 / 2])  # noqa: E731

    def part(sizes, fits, n):
        noisy = value(sizes) + USUAL.fit_sd * rng.normal(size=len(sizes)) / np.sqrt(fits)
        right = (rng.normal(size=n) < noisy[:, None]).astype(float)
        return measured_from(sizes, fits, right)

    more = np.array([80.0, 160.0, 320.0])
    return Job("simulated", 80, part(SIZES, FITS, images), part(more, np.ones(3), tested))


def test_an_exact_curve_is_continued_and_an_unknown_one_is_that_of_other_jobs():
    value = np.array([1.0, 0.8, 0.5, 0.1])  # η = 1, b = 0.15, c = -0.1 at x = 0, -1, -2, -3
    exact = Measured(SIZES, 1e9 * np.ones(4), norm.cdf(value), np.zeros((4, 4)), 1e9)
    wide = USUAL._replace(covariance=100 * USUAL.covariance)
    expected = norm.cdf(1 + 0.15 * 2 - 0.1 * 4 / 2)
    assert forecast(wide, exact, 80).interval(np.array([320.0]), 0.01)[0] == pytest.approx(expected, abs=0.01)

    vague = Measured(SIZES, FITS, norm.cdf(value), 1e9 * np.eye(4), 1.0)
    found = forecast(USUAL, vague, 80)
    assert found.mean == pytest.approx(USUAL.mean, abs=1e-4)
    assert found.covariance == pytest.approx(USUAL.covariance, abs=1e-4)


def test_intervals_of_simulated_jobs_hold_their_level():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        job = simulated(rng)
        draws = forecast(USUAL, job.judged, 80).draws(np.array([320.0]))[:, 0]
        low, high = np.quantile(rng.binomial(200, draws) / 200, (0.05, 0.95))
        inside.append(low <= job.tested.accuracy[2] <= high)
    assert 0.86 < np.mean(inside) < 0.97  # 0.9 and above, as counts are whole: three standard errors of 400 jobs


def test_what_jobs_were_drawn_from_is_learned_from_them():
    rng = np.random.default_rng(1)
    found = fit([simulated(rng) for _ in range(300)])
    assert found.mean == pytest.approx(USUAL.mean, abs=0.1)  # standard error of η's mean: 0.55 / sqrt(300) = 0.03
    assert np.diag(found.covariance) == pytest.approx(np.diag(USUAL.covariance), rel=0.35)
    assert found.fit_sd == pytest.approx(USUAL.fit_sd, rel=0.35)


def test_expected_accuracy_interval_and_gain_are_those_of_the_draws():
    curve = forecast(USUAL, simulated(np.random.default_rng(3)).judged, 80)
    sizes = np.array([80.0, 200.0])
    draws = curve.draws(sizes)
    error = 4 * draws.std(axis=0) / np.sqrt(DRAWS)
    assert (np.abs(draws.mean(axis=0) - curve.accuracy(sizes)) < error).all()
    low, high = curve.interval(sizes, 0.9)
    assert ((draws > low) & (draws < high)).mean(axis=0) == pytest.approx(0.9, abs=0.02)
    mean, gain_low, gain_high = curve.gain(200)
    assert gain_low < mean < gain_high
    assert mean == pytest.approx(np.diff(curve.accuracy(sizes))[0], abs=0.005)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_images_that_are_all_right_or_all_wrong_have_a_wide_interval(right):
    measured = measured_from(SIZES, FITS, np.full((4, 30), right))
    value, noise = observed(measured)
    assert np.isfinite(value).all()
    assert (np.linalg.eigvalsh(noise) > 0).all()
    low, high = forecast(USUAL, measured, 80).interval(np.array([160.0]))
    assert high[0] - low[0] > 0.005
    assert high[0] < 1


def test_weights_count_images_as_often():
    right = np.random.default_rng(0).random((4, 20))
    twice = measured_from(SIZES, FITS, np.repeat(right, 2, axis=1))
    weighted = measured_from(SIZES, FITS, right, 2 * np.ones(20))
    assert weighted.accuracy == pytest.approx(twice.accuracy)
    assert weighted.images == 20
    uneven = measured_from(SIZES, FITS, right, np.repeat([3.0, 1.0], 10))
    assert uneven.accuracy == pytest.approx(0.75 * right[:, :10].mean(axis=1) + 0.25 * right[:, 10:].mean(axis=1))
    assert uneven.images == pytest.approx(40**2 / 100)


def test_nothing_is_predicted_beyond_what_was_checked():
    curve = forecast(USUAL, simulated(np.random.default_rng(3)).judged, 80)
    with pytest.raises(FcaError, match="training images = 400; allowed: at most 320"):
        curve.accuracy(np.array([100.0, 400.0]))
    assert reach(80, 10) == 320
    assert reach(10**6, 2) == 10**6


def test_wrong_accuracies_and_no_jobs_are_refused():
    measured = Measured(SIZES, FITS, np.array([85.0, 0.8, 0.7, 0.6]), np.eye(4), 30.0)
    with pytest.raises(FcaError, match=r"accuracy = 85.0; allowed: 0 to 1"):
        observed(measured)
    with pytest.raises(FcaError, match="earlier jobs = 0"):
        fit([])


def test_hyperparameters_survive_json():
    again = Hyperparameters.from_json(json.loads(json.dumps(USUAL.to_json())))
    assert again.mean.tolist() == USUAL.mean.tolist()
    assert again.covariance.tolist() == USUAL.covariance.tolist()
    assert again.fit_sd == USUAL.fit_sd
