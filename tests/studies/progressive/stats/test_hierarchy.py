"""The hierarchical score against counting: all triplets of tiny sessions, all patterns of independent answers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fca.studies.progressive.stats.hierarchy import (
    PATTERNS,
    all_triplets_score,
    expected_score,
    explained_scores,
    hierarchical_score,
    matched_score,
    score_and_accuracy,
)
from fca.types import FcaError


def follows(easy, medium, hard):
    """Whoever solves the harder solves the easier."""
    return easy >= medium >= hard


def test_exactly_four_of_the_eight_patterns_follow_the_principle():
    all_eight = np.array(list(itertools.product([False, True], repeat=3)))
    assert hierarchical_score(all_eight).score == 4 / 8
    for name, triplet in zip(PATTERNS, all_eight, strict=True):
        found = hierarchical_score(triplet[None])
        assert found.patterns == {other: int(other == name) for other in PATTERNS}
        assert found.score == follows(*triplet)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_the_score_is_the_share_of_triplets_in_order(triplets):
    found = hierarchical_score(np.array(triplets))
    assert found.score == pytest.approx(np.mean([follows(*t) for t in triplets]))
    assert sum(found.patterns.values()) == len(triplets)


rate = st.floats(0, 1)


@given(rate, rate, rate)
def test_the_score_of_rates_is_the_sum_of_the_four_patterns_of_independent_answers(e, m, h):
    total = 0.0
    for pattern in itertools.product([0, 1], repeat=3):
        if follows(*pattern):
            total += np.prod([p if right else 1 - p for p, right in zip((e, m, h), pattern, strict=True)])
    assert expected_score(e, m, h) == pytest.approx(total, abs=1e-12)


def test_the_closed_form_is_the_mean_over_every_triplet_of_every_session():
    rng = np.random.default_rng(0)
    levels = np.array([0, 0, 0, 1, 1, 2, 2, 2] * 2)
    sessions = np.repeat(["cat", "dog"], 8)
    correct = rng.random(16) < 0.6
    scores, counts = [], np.zeros(8)
    for name in ("cat", "dog"):
        lists = [correct[(sessions == name) & (levels == level)] for level in range(3)]
        triplets = np.array(list(itertools.product(*lists)))
        one = hierarchical_score(triplets)
        scores.append(one.score)
        counts += np.array(list(one.patterns.values())) / len(triplets)
    found = all_triplets_score(correct, levels, sessions)
    assert found.score == pytest.approx(np.mean(scores), abs=1e-12)
    assert np.array(list(found.patterns.values())) == pytest.approx(counts / 2 * (16 / 3), abs=1e-12)


def test_random_matchings_average_to_the_closed_form():
    rng = np.random.default_rng(1)
    correct = rng.random((3, 12)) < np.array([[0.9], [0.6], [0.3]])
    matched = [
        hierarchical_score(np.stack([rng.permutation(line) for line in correct], axis=1)).score for _ in range(1500)
    ]
    expected = all_triplets_score(correct.ravel(), np.repeat([0, 1, 2], 12), np.zeros(36, dtype=int)).score
    assert np.mean(matched) == pytest.approx(expected, abs=5 * np.std(matched) / 1500**0.5)


def simulated(rng, classes=20, of_class=0.0, of_session=0.0, of_object=0.0):
    """Right answers of (classes, 5 attributes, 12 triplets, 3 levels), with effects of these sds in logits."""
    eta = np.array([2.0, 1.0, -1.0]) + of_class * rng.standard_normal((classes, 1, 1, 1))
    eta = eta + of_session * rng.standard_normal((classes, 5, 1, 1))
    eta = eta + of_object * rng.standard_normal((classes, 5, 12, 1))
    return rng.random((classes, 5, 12, 3)) < 1 / (1 + np.exp(-eta))


def parts(right):
    """Both functions' answers for such right answers."""
    classes = np.repeat(np.arange(len(right)), 5 * 12)
    return of_rates(right), matched_score(right.reshape(-1, 3), np.arange(len(classes)) // 12, classes)


def of_rates(right):
    classes = np.repeat(np.arange(len(right)), 5)
    return explained_scores(right.mean(axis=2).reshape(-1, 3), classes)


def test_answers_at_one_rate_by_level_have_neither_part():
    made, matched = parts(simulated(np.random.default_rng(2)))
    assert made.excess.low < 0 < made.excess.high
    assert matched.excess.low < 0 < matched.excess.high
    assert made.session.value + matched.excess.value == pytest.approx(matched.score.value)
    assert made.level.value + made.excess.value == pytest.approx(made.session.value)


def test_sessions_that_differ_show_in_the_session_excess_alone():
    made, matched = parts(simulated(np.random.default_rng(3), of_class=1.0, of_session=1.0))
    assert made.excess.low > 0.03
    assert abs(matched.excess.value) < 0.0135  # three standard errors of 100 sessions


def test_objects_that_fail_in_order_show_in_the_matched_excess():
    made, matched = parts(simulated(np.random.default_rng(4), of_object=1.5))
    assert matched.excess.low > 0
    assert matched.p < 1e-6
    # twelve objects a session: a twelfth of all triplets are the matched ones
    assert made.excess.value == pytest.approx(matched.excess.value / 11, abs=0.02)


@pytest.mark.slow
def test_intervals_hold_no_effect_in_nineteen_of_twenty_and_p_is_uniform():
    rng = np.random.default_rng(5)
    found = [parts(simulated(rng, 10, of_class=1.0, of_session=1.0))[1] for _ in range(80)]
    inside = np.mean([one.excess.low <= 0 <= one.excess.high for one in found])
    assert inside == pytest.approx(0.95, abs=0.075)  # three standard errors of 80
    assert np.mean([one.p < 0.1 for one in found]) == pytest.approx(0.1, abs=0.1)


def test_the_interval_covers_the_scores_of_the_population():
    rng = np.random.default_rng(6)
    effects = {"of_class": 1.0, "of_session": 1.0}
    rates = simulated(rng, 8000, **effects).mean(axis=2).reshape(-1, 3)
    by_session, by_level = expected_score(*rates.T).mean(), expected_score(*rates.mean(axis=0))
    truth = (by_session, by_level, by_session - by_level)
    found = [of_rates(simulated(rng, **effects)) for _ in range(400)]
    for true, of_all in zip(truth, zip(*found, strict=True), strict=True):  # session, level and excess
        covered = np.mean([part.low <= true <= part.high for part in of_all])
        assert covered == pytest.approx(0.95, abs=0.033)  # three standard errors of 400


def test_the_p_of_a_matching_is_its_share_of_all_matchings():
    rng = np.random.default_rng(8)
    right = rng.random((7, 3)) < [0.8, 0.5, 0.3]  # sessions of four and three triplets
    sessions = np.repeat([0, 1], [4, 3])
    score = hierarchical_score(right).score
    every = []
    permuted = [list(itertools.permutations(range(n))) for n in (4, 3)]
    for easy, hard in itertools.product(itertools.product(*permuted), repeat=2):
        e, h = ([*first, *(4 + k for k in second)] for first, second in (easy, hard))
        every.append(hierarchical_score(np.stack([right[e, 0], right[:, 1], right[h, 2]], axis=1)).score)
    found = matched_score(right, sessions, sessions)
    assert found.p == pytest.approx(np.mean(np.array(every) >= score - 1e-12))
    assert found.score.value - found.excess.value == pytest.approx(np.mean(every))


def test_one_triplet_a_session_cannot_show_objects():
    right = np.random.default_rng(9).random((8, 3)) < 0.5
    found = matched_score(right, np.arange(8), np.arange(8))
    assert 0 <= found.score.low <= found.score.high <= 1
    assert np.isnan([*found.excess, found.p]).all()


def test_few_classes_have_intervals_too_and_one_class_has_none():
    made, matched = parts(simulated(np.random.default_rng(5), classes=4))
    ends = [end for part in (*made, matched.score, matched.excess) for end in part[1:]]
    assert np.isfinite(ends).all()
    made, _ = parts(simulated(np.random.default_rng(5), classes=1))
    assert np.isnan([made.session.low, made.level.high, made.excess.low]).all()


def test_the_partial_correlation_is_the_recursive_formula_of_the_three_plain_ones():
    rng = np.random.default_rng(6)
    x, y, z = rng.standard_normal((3, 12)) + rng.standard_normal(12)
    r = np.corrcoef([x, y, z])
    expected = (r[0, 1] - r[0, 2] * r[1, 2]) / np.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))
    pearson, partial = score_and_accuracy(x, y, z)
    assert pearson.r == pytest.approx(r[0, 1])
    assert partial.r == pytest.approx(expected)


def test_the_p_of_a_partial_correlation_is_uniform_without_one():
    rng = np.random.default_rng(7)
    ps = []
    for _ in range(400):
        z = rng.standard_normal(6)
        ps.append(score_and_accuracy(z + rng.standard_normal(6), z + rng.standard_normal(6), z)[1].p)
    assert np.mean(np.array(ps) < 0.1) == pytest.approx(0.1, abs=0.05)  # over three standard errors


@pytest.mark.parametrize("models", [2, 3])
def test_few_models_have_no_partial_correlation(models):
    x = np.arange(models, dtype=float)
    assert np.isnan(score_and_accuracy(x, x**2, x)[1].r)


def test_what_level_rates_explain_whole_leaves_nothing_to_correlate():
    x = np.linspace(0.1, 0.8, 7)
    assert np.isnan(score_and_accuracy(2 * x + 0.1, x**2, x)[1].r)


def test_a_session_without_a_level_is_named():
    with pytest.raises(FcaError, match=r"hard items of session dog = 0"):
        all_triplets_score(np.ones(2, dtype=bool), np.array([0, 1]), np.array(["dog", "dog"]))
    with pytest.raises(FcaError, match=r"levels = \[0, 7\]"):
        all_triplets_score(np.ones(2, dtype=bool), np.array([0, 7]), np.array(["dog", "dog"]))
    with pytest.raises(FcaError, match="triplets = 0"):
        hierarchical_score(np.empty((0, 3), dtype=bool))
