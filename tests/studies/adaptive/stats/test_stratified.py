"""The stratified mean: by hand, over every sample, and where networks do not behave as a mixed logit assumes."""

import importlib
import itertools

import numpy as np
import pytest
from scipy import stats

from fca.studies.adaptive.stats import Record, estimate, make_pool, run_policy, start_policy
from fca.studies.adaptive.stats.estimators import level_interval, welch
from fca.studies.adaptive.stats.mixed_logit import Kind

mixed_logit = importlib.import_module("fca.studies.adaptive.stats.mixed_logit")  # the package names the function so
SESSIONS = np.repeat(np.arange(12), 36)  # three classes of four attributes: 432 images
POOL = make_pool(np.tile(np.repeat([0, 1, 2], 12), 12), SESSIONS, SESSIONS // 3)


def asked(pool, correct, positions):
    record = Record(pool.n_items)
    record.add(np.array(positions), correct[positions])
    return record


def test_the_mean_is_right_on_average_over_every_sample_of_two_and_its_variance_hardly_below_the_true_one():
    one = np.zeros(12, int)
    pool = make_pool(np.repeat([0, 1, 2], 4), one, one)
    correct = np.array([1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0], dtype=bool)
    pairs = list(itertools.combinations(range(4), 2))
    found = [
        estimate("stratified", pool, asked(pool, correct, [4 * at + i for at, pair in enumerate(draw) for i in pair]))
        for draw in itertools.product(pairs, repeat=3)
    ]
    values = np.array([one.value[0] for one in found])
    assert values.mean(axis=0) == pytest.approx(pool.truth(correct)[0], abs=1e-12)
    stated = np.mean([one.se[0] ** 2 for one in found], axis=0)
    ratio = stated / values.var(axis=0)
    assert (ratio > 0.95).all()  # the 1/4 beside each is below the largest variance of four images, 1/3
    assert (ratio < 1.5).all()


def test_value_and_variance_are_those_of_loops(drawn):
    data = drawn(sessions=6, groups=2)
    pool, correct = make_pool(*data.pool), data.correct[0]
    record = run_policy(start_policy("static_k", pool, 0.25), correct, np.random.default_rng(0)).record
    found = estimate("stratified", pool, record)
    cells = [[correct[record.evaluated & (pool.session == s) & (pool.level == k)] for k in range(3)] for s in range(6)]
    within = np.array([[one.var(ddof=1) for one in row] for row in cells])
    of_level = (within.sum(axis=0) * 2 + 0.25) / 13  # three responses in each of six sessions
    by_group, unseen = (
        np.empty((2, 3)),
        (1 - 3 / 12) / 3 / 3,
    )  # the part of a variance that is left in the mean of three
    for group, sessions in enumerate((pool.session_group == 0, pool.session_group == 1)):
        by_group[group] = within[sessions].mean(axis=0)
        expected = (6 * by_group[group] + of_level) / 7 * unseen
        share = np.mean(
            [[one.mean() for one in row] for row, mine in zip(cells, sessions, strict=True) if mine], axis=0
        )
        assert found.value[group, 0] == pytest.approx(share.mean(), abs=1e-12)
        assert found.se[group, 0] == pytest.approx(np.sqrt(expected.sum() / 9), rel=1e-12)
    together = (12 * by_group.sum(axis=0) + 2 * 0.25) / 13 / 4 * unseen
    assert found.overall.value[0, 0] == pytest.approx(found.value[:, 0].mean(), abs=1e-12)
    assert found.overall.se[0, 0] == pytest.approx(np.sqrt(together.sum() / 9), rel=1e-12)


@pytest.mark.parametrize("right", [0, 3, 20, 40])
def test_the_interval_of_one_level_is_jeffreys(right):
    """With degrees of freedom without end Student's t is 1.96; nothing is left of the other levels."""
    n, many = 40, 1e9
    p = (right + 0.25) / (n + 0.5)
    only = np.array([[right / n, 1.0, 1.0]])
    variance = np.array([[p * (1 - p) / n, 0, 0]])
    found = level_interval(only, variance, np.full((1, 3), many), np.full((1, 3), float(n)), np.full((1, 3), 0.25))
    low, high = stats.beta(right + 0.5, n - right + 0.5).interval(0.95)
    assert 3 * found.low[0, 0] - 2 == pytest.approx(low if right else 0, abs=1e-4)
    assert 3 * found.high[0, 0] - 2 == pytest.approx(high if right < n else 1, abs=1e-4)


def test_degrees_of_freedom_are_those_of_welch_s_test():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=9), rng.normal(0, 3, size=5)
    variance = np.array([one.var(ddof=1) / 9, other.var(ddof=1) / 5])
    expected = stats.ttest_ind(one, other, equal_var=False).df
    assert welch(variance, np.array([8.0, 4.0])).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_few_images_that_are_all_right_or_all_wrong_are_not_certain(right, k):
    correct = np.full(POOL.n_items, right)
    record = run_policy(start_policy("static_k", POOL, 3 * k / 36), correct, np.random.default_rng(0)).record
    found = estimate("stratified", POOL, record)
    assert found.value == pytest.approx(np.full((4, 2), float(right)))
    assert (found.high - found.low > 0.1).all()
    whole = found.overall
    assert whole.high[0, 0] - whole.low[0, 0] > 0.03  # three in 36 or 72 images would be .08 or .04


def test_with_every_image_asked_nothing_is_left_to_estimate(drawn):
    pool, correct = make_pool(*drawn().pool), drawn().correct[0]
    found = estimate("stratified", pool, asked(pool, correct, np.arange(pool.n_items)))
    assert found.value == pytest.approx(pool.truth(correct), abs=1e-12)
    assert not found.se.any()
    assert found.overall.low == pytest.approx(found.overall.high)


def test_a_session_without_images_takes_the_mean_of_others_and_widens_the_interval():
    correct = np.random.default_rng(0).random(POOL.n_items) < 0.5
    some = [at for at in range(POOL.n_items) if at % 12 < 4]
    found = estimate("stratified", POOL, asked(POOL, correct, some))
    fewer = estimate("stratified", POOL, asked(POOL, correct, [at for at in some if at >= 36]))
    rest = [at for at in some if 36 <= at < 108]
    by_level = [correct[[at for at in rest if at % 36 // 12 == level]].mean() for level in range(3)]
    assert fewer.value[0, 0] == pytest.approx(np.mean(by_level))
    assert fewer.se[0, 0] > 1.2 * found.se[0, 0]  # eight of 36 at random for twelve, four of each twelve: 1.32
    assert fewer.se[1:] == pytest.approx(found.se[1:], rel=0.01)  # one response of theirs is a little of all groups
    none = estimate("stratified", POOL, asked(POOL, correct, [at for at in some if at % 36 >= 12 or at >= 108]))
    assert np.isnan(none.value[0]).all()
    assert np.isnan(none.se[0]).all()
    assert np.isfinite(none.value[1:]).all()


def errors(policy, estimator, correct, repeats, stretches):
    """Error, and whether the interval holds the truth, of the mean accuracy after each stretch of a quarter."""
    found = np.empty((repeats, stretches, 2))
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        answers = correct(rng)
        truth = POOL.truth(answers)[:, 0].mean()
        test = start_policy(policy, POOL, 0.25)
        for stretch in range(stretches):
            one = estimate(estimator, POOL, run_policy(test, answers, rng).record).overall
            found[seed, stretch] = one.value[0, 0] - truth, one.low[0, 0] <= truth <= one.high[0, 0]
            test.extend()
    return found.mean(axis=0).T, found[..., 0].std(axis=0) / repeats**0.5


def opposed(rng):
    """A weak network that calls easy images by the first class, medium ones by the second, hard ones by the third."""
    return rng.random(POOL.n_items) < np.where(POOL.session % 3 == POOL.level, 0.9, 0.05)


def even(rng):
    """A weak network that guesses: each image is right with the chance .26."""
    return rng.random(POOL.n_items) < 0.26


@pytest.mark.parametrize("correct", [opposed, even])
def test_the_default_is_unbiased_and_its_intervals_hold_the_truth_of_weak_networks(correct):
    """At 25, 50 and 75 %. When a group's own responses decided what it was asked, `even` came out a point too low."""
    (error, held), se = errors("optimal_allocation", "stratified", correct, 60, 3)
    assert (np.abs(error) < 3.5 * se).all()
    assert (held > 0.86).all()  # .95 less three standard errors


def test_a_mixed_logit_of_one_effect_a_session_is_confidently_wrong_and_the_choice_of_kinds_mends_it(monkeypatch):
    """Levels of a session that fail for reasons of their own: at a quarter and at half of the images."""
    (error, _), _ = errors("gre_two_stage", "mixed_logit", opposed, 8, 2)
    monkeypatch.setattr(mixed_logit, "KINDS", {"one": Kind(np.ones((3, 1)))})
    monkeypatch.setattr(mixed_logit, "contradicted", lambda model, plain: False)
    (before, held_before), _ = errors("gre_two_stage", "mixed_logit", opposed, 8, 2)
    assert (before > 0.05).all()
    assert held_before[1] < 0.5
    assert error[0] < before[0] / 2
    assert abs(error[1]) < 0.04  # standard error .011


def test_what_a_group_answers_does_not_decide_what_it_is_asked():
    correct = np.random.default_rng(0).random(POOL.n_items) < 0.4
    turned = np.where(POOL.group == 1, ~correct, correct)
    counts = [
        run_policy(start_policy("optimal_allocation", POOL, 0.5), answers, np.random.default_rng(5)).record.evaluated
        for answers in (correct, turned)
    ]
    own = POOL.group == 1
    np.testing.assert_array_equal(counts[0][own], counts[1][own])
    assert (counts[0] != counts[1]).any()
