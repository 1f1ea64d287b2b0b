"""Estimators against brute force: every sample of a tiny pool, simulated variances, and the whole pool asked."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from fca.studies.adaptive.stats import ESTIMATORS, WARNINGS, Record, estimate, make_pool, run_policy, start_policy
from fca.studies.adaptive.stats.estimators import _estimate_by_sample, share_interval
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import Sample
from fca.types import FcaError

LEVELS = np.array([0, 0, 1, 1, 2, 2, 2])
ONE = np.zeros(7, dtype=int)
CORRECT = np.array([True, False, True, True, False, True, False])
OF_ITEMS_WITH_LEVELS = [name for name in ESTIMATORS if name != "hypergeometric"]
BANK = ItemBank("2pl", np.linspace(-2, 2, 7), np.ones(7), np.ones(7), np.zeros(7))


def recorded(asked, evaluated_before=(), inclusion=None, chance=None):
    record = Record(7)
    record.add(np.array(asked), CORRECT[list(asked)])
    if inclusion is not None:
        record.samples.append(Sample(np.isin(np.arange(7), evaluated_before), inclusion, chance))
    return record


def test_both_targets_are_the_formulas_of_level_accuracies():
    easy, medium, hard = 1 / 2, 1.0, 1 / 3
    truth = make_pool(LEVELS, ONE, ONE).truth(CORRECT)[0]
    assert truth == pytest.approx([(easy + medium + hard) / 3, (easy + 2 * medium + 4 * hard) / 7])


def test_the_difference_estimator_is_unbiased_over_every_sample_however_wrong_the_bank():
    pool = make_pool(LEVELS, ONE, ONE)
    chance = np.array([0.1, 0.9, 0.2, 0.5, 0.9, 0.05, 0.99])
    others = range(1, 7)  # item 0 was the pilot
    records = [
        recorded((0, *sample), evaluated_before=(0,), inclusion=np.full(7, 3 / 6), chance=chance)
        for sample in itertools.combinations(others, 3)
    ]
    values = [estimate("difference", pool, record, BANK).value[0] for record in records]
    assert np.mean(values, axis=0) == pytest.approx(pool.truth(CORRECT)[0], abs=1e-12)
    variances = [
        _estimate_by_sample(pool, record, chance[None], record.samples[0], record.evaluated).variance[0]
        for record in records
    ]
    assert np.mean(variances, axis=0) == pytest.approx(np.var(values, axis=0), rel=1e-9)  # equal chances: exact


def test_the_difference_estimator_is_unbiased_with_unequal_chances():
    """Three of six, each set with a probability of its own: any design will do if its chances are those stated."""
    pool = make_pool(LEVELS, ONE, ONE)
    rng = np.random.default_rng(0)
    samples = list(itertools.combinations(range(1, 7), 3))
    design = rng.dirichlet(np.ones(len(samples)))
    inclusion = np.ones(7)
    for item in range(1, 7):
        inclusion[item] = sum(q for q, s in zip(design, samples, strict=True) if item in s)
    mean = np.zeros(2)
    for q, sample in zip(design, samples, strict=True):
        record = recorded((0, *sample), evaluated_before=(0,), inclusion=inclusion, chance=np.linspace(0.1, 0.8, 7))
        mean += q * estimate("difference", pool, record, BANK).value[0]
    assert mean == pytest.approx(pool.truth(CORRECT)[0], abs=1e-12)


def test_intervals_of_equal_responses_are_jeffreys():
    """Of so many, two more of variance 1/4 add .06 % to the variance, and Student's t is 1.96."""
    n, p, one = 4000, 0.9, np.ones((1, 1))
    most = 0.25 / n
    found = share_interval(p * one, p * (1 - p) / n * one, most * one, most**2 / n * one, one < 0, one < 0)
    low, high = stats.beta(p * n + 0.5, (1 - p) * n + 0.5).interval(0.95)
    assert p - found.low.item() == pytest.approx(p - low, rel=1e-3)
    assert found.high.item() - p == pytest.approx(high - p, rel=1e-3)


@pytest.mark.parametrize("policy", ["neyman_irt", "random"])
def test_intervals_hold_the_truth_where_nearly_every_response_is_right(policy):
    """A bank that knows little of 360 items, 97 % right: value ± 1.96 se held the truth in two thirds of such tests."""
    pool, repeats, held, one = make_pool(None, np.arange(360) % 10), 200, [], np.ones(360)
    difficulty = np.random.default_rng(0).normal(-1.5, 1.2, 360)
    bank = ItemBank("2pl", 0.3 * difficulty - 1, 1.3 * one, one, 0 * one)
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        correct = rng.random(360) < expit(1.3 * (2.0 - difficulty))
        record = run_policy(start_policy(policy, pool, 0.1, bank), correct, rng).record
        found = estimate("difference", pool, record, bank)
        held.append(found.low.item() <= correct.mean() <= found.high.item())
        assert found.overall.low == pytest.approx(found.low)  # one group is the mean over groups
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / repeats)


def test_neyman_and_difference_have_the_mean_and_variance_they_state(drawn):
    data = drawn(sessions=20, groups=1)
    pool, correct = make_pool(*data.pool), data.correct[0]
    wrong = data.bank._replace(difficulty=data.bank.difficulty + 0.7 * np.sin(np.arange(pool.n_items)))
    values, stated = [], []
    for seed in range(250):
        record = run_policy(start_policy("neyman_irt", pool, 0.25, wrong), correct, np.random.default_rng(seed)).record
        found = estimate("difference", pool, record, wrong)
        values.append(found.value[0])
        stated.append(found.se[0] ** 2)
    error = np.mean(values, axis=0) - pool.truth(correct)[0]
    assert np.abs(error / np.std(values, axis=0) * 250**0.5).max() < 4
    # systematic draws along p vary a little less than the formula for random order says
    assert np.mean(stated, axis=0) / np.var(values, axis=0) == pytest.approx(
        [1.05, 1.05], abs=0.25
    )  # variances of 250: 9 % each


@pytest.mark.parametrize(("policy", "estimator"), [("static_k", "session_mean"), ("random", "pooled")])
def test_shares_of_one_round_are_unbiased_with_the_variance_they_state(policy, estimator, drawn):
    data = drawn(sessions=20, groups=1, sd=1.5)
    pool, correct = make_pool(*data.pool), data.correct[0]
    values, stated = [], []
    for seed in range(400):
        record = run_policy(start_policy(policy, pool, 0.25), correct, np.random.default_rng(seed)).record
        found = estimate(estimator, pool, record)
        values.append(found.value[0])
        stated.append(found.se[0] ** 2)
    error = np.mean(values, axis=0) - pool.truth(correct)[0]
    assert np.abs(error / np.std(values, axis=0) * 400**0.5).max() < 4
    assert np.mean(stated, axis=0) == pytest.approx(np.var(values, axis=0), rel=0.2)  # variances of 400: 7 % each


def test_session_means_take_the_usual_variance_where_a_session_was_asked_once(drawn):
    data = drawn(sessions=20, groups=1)
    pool = make_pool(*data.pool)
    record = run_policy(start_policy("gre_two_stage", pool, 0.25), data.correct[0], np.random.default_rng(0)).record
    assert (pool.by_stratum(record.evaluated) == 1).any()
    assert (estimate("session_mean", pool, record).se > 0).all()


@pytest.mark.parametrize("estimator", OF_ITEMS_WITH_LEVELS)
@pytest.mark.parametrize("policy", ["static_k", "random"])
def test_the_whole_pool_asked_is_the_truth_with_no_error(estimator, policy, drawn):
    data = drawn(sessions=12)
    pool = make_pool(*data.pool)
    record = run_policy(start_policy(policy, pool, 1.0), data.correct[0], np.random.default_rng(0)).record
    found = estimate(estimator, pool, record, data.bank)
    assert found.value == pytest.approx(pool.truth(data.correct[0]), abs=1e-12)
    assert found.se == pytest.approx(np.zeros((2, 2)), abs=1e-7)


@pytest.mark.parametrize("estimator", OF_ITEMS_WITH_LEVELS)
def test_the_order_of_items_and_the_names_of_sessions_do_not_matter(estimator, drawn):
    data = drawn(sessions=12)
    pool = make_pool(*data.pool)
    record = run_policy(start_policy("static_k", pool, 0.25), data.correct[0], np.random.default_rng(0)).record
    found = estimate(estimator, pool, record, data.bank)
    order = np.random.default_rng(1).permutation(pool.n_items)
    names = np.array([f"s{k:02}" for k in np.random.default_rng(2).permutation(12)])
    other = make_pool(data.levels[order], names[data.sessions[order]], data.groups[order])
    moved = Record(pool.n_items)
    moved.add(np.flatnonzero(record.evaluated[order]), record.right[order][record.evaluated[order]])
    [sample] = record.samples
    moved.samples.append(Sample(sample.evaluated_before[order], sample.inclusion[order], None))
    bank = ItemBank("2pl", *(values[order] for values in data.bank[1:]))
    again = estimate(estimator, other, moved, bank)
    assert again.value == pytest.approx(found.value, abs=1e-7)
    assert again.se == pytest.approx(found.se, rel=1e-5)


def test_a_level_that_was_never_asked_has_no_share():
    record = recorded((0, 2, 3))
    pool = make_pool(LEVELS, ONE, ONE)
    for estimator in ("pooled", "session_mean"):
        assert np.isnan(estimate(estimator, pool, record).value).all()


def test_intervals_stay_between_nothing_and_all():
    found = estimate("pooled", make_pool(LEVELS, ONE, ONE), recorded((0, 2, 4, 5)))
    assert (found.low >= 0).all()
    assert (found.high <= 1).all()


def test_what_is_biased_under_adaptivity_says_so():
    assert set(WARNINGS) == {"stratified", "session_mean", "pooled"}
    assert "biased under an adaptive policy" in WARNINGS["session_mean"]


def test_what_cannot_be_estimated_is_refused(drawn):
    pool = make_pool(LEVELS, ONE, ONE)
    with pytest.raises(FcaError, match="estimator = 'mean'; allowed: stratified, session_mean, pooled, mixed_logit"):
        estimate("mean", pool, recorded((0, 2, 4)))
    for estimator in ("p_irt", "difference"):
        with pytest.raises(FcaError, match=f"bank = None; allowed: an item bank: {estimator} needs one"):
            estimate(estimator, pool, recorded((0, 2, 4)))
    with pytest.raises(
        FcaError, match="policy = one of unknown chances; allowed: defensive_irt, neyman_irt, random, static_k"
    ):
        estimate("difference", pool, recorded((0, 2, 4)), BANK)
    with pytest.raises(FcaError, match="items evaluated = 0"):
        estimate("pooled", pool, Record(7))


def test_an_item_is_answered_once():
    record = recorded((0, 1))
    with pytest.raises(ValueError, match="twice"):
        record.add(np.array([1]), np.array([True]))
    with pytest.raises(ValueError, match="twice"):
        record.add(np.array([3, 3]), np.array([True, True]))
