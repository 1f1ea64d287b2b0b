"""Held-out predictions against scikit-learn's, and against studies whose truth is known."""

import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from fca.stats.correlation import correlation
from fca.studies.few_class.stats.prediction import HeldOut, held_out, judge, verdict

WORTH = 0.005


def study(seed, signal=0.0, datasets=4, seeds=5, sizes=(2, 3, 5, 10), noise=0.03):
    """Points of an invented study: accuracy falls with log ncl, and follows x as far as `signal` says."""
    rng = np.random.default_rng(seed)
    grid = np.array([(d, n, s) for d in range(datasets) for n in sizes for s in range(seeds)])
    dataset, ncl, draw = grid.T
    x = rng.normal(size=len(grid)) - 1.5 * np.log(ncl)  # easier-looking at few classes, whether or not it says more
    within = x + 1.5 * np.log(ncl)
    accuracy = 0.85 - 0.05 * np.log(ncl) + signal * within + noise * rng.normal(size=len(grid))
    fold = dataset if datasets > 1 else draw
    return np.clip(accuracy, 0, 1), np.log(ncl), x, fold, np.unique([dataset, draw], axis=1, return_inverse=True)[1]


def judged(accuracy, log_ncl, x, fold, cluster):
    baseline = held_out(log_ncl[:, None], accuracy, fold)
    return judge(accuracy, held_out(np.column_stack([log_ncl, x]), accuracy, fold), baseline, cluster)


@pytest.mark.parametrize("datasets", [4, 1], ids=["data set", "subset seed"])
def test_predictions_equal_scikit_learns_leave_one_group_out(datasets):
    accuracy, log_ncl, x, fold, _ = study(0, 0.02, datasets)
    regressors = np.column_stack([log_ncl, x])
    reference = cross_val_predict(LinearRegression(), regressors, accuracy, groups=fold, cv=LeaveOneGroupOut())
    assert held_out(regressors, accuracy, fold).predicted == pytest.approx(np.clip(reference, 0, 1), abs=1e-10)


def test_no_regressor_predicts_the_mean_of_the_other_folds():
    accuracy, _, _, fold, _ = study(1)
    ours = held_out(np.empty((len(accuracy), 0)), accuracy, fold).predicted
    assert ours == pytest.approx([accuracy[fold != k].mean() for k in fold])


def test_intervals_equal_cross_validation_plus_written_out():
    accuracy, log_ncl, _, fold, _ = study(2, datasets=3)
    ours = held_out(log_ncl[:, None], accuracy, fold)

    def line(rows):
        return LinearRegression().fit(log_ncl[rows, None], accuracy[rows]).predict

    for j in (0, 25, 59):
        lows, highs = [], []
        for i in np.flatnonzero(fold != fold[j]):
            without = line((fold != fold[j]) & (fold != fold[i]))
            miss = abs(accuracy[i] - without(log_ncl[i : i + 1, None])[0])
            here = without(log_ncl[j : j + 1, None])[0]
            lows.append(here - miss)
            highs.append(here + miss)
        assert len(lows) == 40
        expected = sorted(lows)[4 - 1], sorted(highs)[37 - 1]  # floor(0.1 * 41) and ceil(0.9 * 41)
        assert (ours.low[j], ours.high[j]) == pytest.approx(np.clip(expected, 0, 1), abs=1e-10)


@pytest.mark.parametrize("datasets", [4, 1], ids=["data set", "subset seed"])
@pytest.mark.slow
def test_intervals_cover_as_they_promise_where_points_are_exchangeable(datasets):
    found = [judged(*study(seed, 0.02, datasets)) for seed in range(40)]
    coverage = np.mean([f.coverage.value for f in found])
    assert 0.88 <= coverage <= 0.96  # 40 studies of 80 or 20 points: standard error under 0.01
    wider = {4: 1.07, 1: 1.45}[datasets]  # than the normal's 90 %: of 16 points in training the extremes are needed
    assert np.mean([f.width for f in found]) == pytest.approx(wider * 2 * 1.645 * 0.03, rel=0.1)


def test_a_predictor_that_only_follows_ncl_gains_nothing():
    found = [judged(*study(seed)) for seed in range(40)]
    assert np.mean([f.gain.value for f in found]) == pytest.approx(0, abs=0.001)
    assert np.mean([f.gain.low > 0 for f in found]) <= 0.05
    verdicts = [verdict(f.gain[1:], WORTH) for f in found]
    assert verdicts.count("not beyond ncl") >= 38
    over_all = [correlation(x, accuracy).r for accuracy, _, x, *_ in map(study, range(40))]
    assert np.mean(over_all) > 0.4  # though over all points it looks like a predictor


def test_a_known_signal_is_found_and_measured():
    found = [judged(*study(seed, signal=0.04)) for seed in range(20)]
    without = np.sqrt(2 / np.pi) * np.hypot(0.04, 0.03)  # mean absolute value of a normal error
    assert np.mean([f.error.value for f in found]) == pytest.approx(np.sqrt(2 / np.pi) * 0.03, rel=0.1)
    assert np.mean([f.gain.value for f in found]) == pytest.approx(without - np.sqrt(2 / np.pi) * 0.03, rel=0.15)
    assert all(f.gain.low > 0 and f.error.low < f.error.value < f.error.high for f in found)


def test_a_constant_or_repeated_regressor_changes_no_prediction():
    accuracy, log_ncl, _, fold, _ = study(3)
    plain = held_out(log_ncl[:, None], accuracy, fold)
    for other in (np.full(len(accuracy), 0.1), 3 * log_ncl):
        again = held_out(np.column_stack([log_ncl, other]), accuracy, fold)
        assert again.predicted == pytest.approx(plain.predicted, abs=1e-10)


@pytest.mark.parametrize("ncl", [3, 7, 10, 19])
def test_what_was_constant_in_training_says_nothing_elsewhere(ncl):
    """One ncl in training, another one held out: rounding of the mean of log ncl became a slope, 78 points off."""
    rng = np.random.default_rng(ncl)
    accuracy, x = rng.uniform(0.5, 1, 24), rng.normal(size=24)
    log_ncl = np.log([ncl] * 23 + [50])
    fold = np.array([0] * 23 + [1])
    assert held_out(log_ncl[:, None], accuracy, fold).predicted[-1] == pytest.approx(accuracy[:23].mean(), abs=1e-12)
    both = held_out(np.column_stack([log_ncl, x]), accuracy, fold).predicted[-1]
    assert both == pytest.approx(held_out(x[:, None], accuracy, fold).predicted[-1], abs=1e-12)


def test_predictions_and_intervals_stay_fractions():
    accuracy, log_ncl, x, fold, _ = study(4, signal=0.2)
    found = held_out(np.column_stack([log_ncl, x]), accuracy, fold)
    for values in found:
        assert (values >= 0).all()
        assert (values <= 1).all()


def test_one_fold_predicts_nothing_and_few_points_have_no_interval():
    accuracy, log_ncl, _, fold, cluster = study(5, datasets=1, seeds=1)
    alone = held_out(log_ncl[:, None], accuracy, fold)
    assert all(np.isnan(values).all() for values in alone)
    found = judge(accuracy, alone, alone, cluster)
    assert np.isnan([*found.error, *found.gain, *found.coverage, found.width]).all()
    accuracy, log_ncl, _, fold, cluster = study(5, datasets=1, seeds=3)
    few = held_out(log_ncl[:, None], accuracy, fold)  # 8 points in training, 9 are needed
    assert not np.isnan(few.predicted).any()
    assert np.isnan(few.low).all()
    found = judge(accuracy, few, few, cluster)
    assert np.isnan([found.coverage.value, found.width]).all()
    assert found.gain.value == 0
    accuracy, log_ncl, _, fold, _ = study(5, datasets=2)
    two = held_out(log_ncl[:, None], accuracy, fold)  # one data set does not tell how far another one is off
    assert not np.isnan(two.predicted).any()
    assert np.isnan(two.low).all()


def test_intervals_of_an_error_are_over_whole_clusters_and_what_was_not_drawn_adds_no_doubt():
    errors = np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    error = np.array([*np.repeat(errors, 2), 0.2])
    model, cluster = HeldOut(error, np.zeros(11), np.ones(11)), np.array([*np.repeat(np.arange(5), 2), -1])
    found = judge(np.zeros(11), model, HeldOut(np.zeros(11), *model[1:]), cluster)
    without_each = (2.2 - 2 * errors) / 9  # symmetric, so Student's interval of the jackknife's standard error
    deviation = (4 / 5 * ((without_each - without_each.mean()) ** 2).sum()) ** 0.5
    half = scipy.stats.t.ppf(0.975, 4) * deviation * (1 + 5 / 4) ** 0.5  # the fits share points: Nadeau and Bengio
    low, high = 0.2 - half, 0.2 + half
    assert found.error == pytest.approx((0.2, low, high))
    assert found.gain == pytest.approx((-0.2, -high, -low))


NAN = float("nan")


@pytest.mark.parametrize(
    ("gain", "r", "error", "expected"),
    [
        ((0.001, 0.02), (0.1, 0.9), None, "beyond ncl"),
        ((0.001, 0.02), None, None, "beyond ncl"),
        ((0.001, 0.02), (-0.9, -0.2), 0.02, "beyond ncl"),
        ((0.001, 0.02), (-0.1, 0.5), 0.02, "undecided"),
        ((0.001, 0.004), (-0.1, 0.5), 0.02, "not beyond ncl"),  # r = 0.5 takes 13 % off an error of 2 points: 0.3
        ((-0.02, 0.004), (-0.1, 0.8), 0.02, "undecided"),  # r = 0.8 takes 40 % off: 0.8 points
        ((-0.02, 0.004), (-0.8, 0.1), 0.02, "undecided"),
        ((-0.02, 0.004), (-0.1, 0.8), None, "not beyond ncl"),
        ((-0.02, 0.03), (0.1, 0.5), 0.02, "undecided"),
        ((NAN, NAN), (0.1, 0.5), 0.02, "undecided"),
        ((0.001, 0.02), (NAN, NAN), 0.02, "undecided"),
        ((-0.02, 0.004), (NAN, NAN), 0.02, "undecided"),
    ],
)
def test_the_verdict_weighs_the_gain_and_the_correlation_within_ncl(gain, r, error, expected):
    assert verdict(gain, WORTH, r, error) == expected
