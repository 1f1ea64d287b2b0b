"""The hierarchical score against counting: all triplets of tiny sessions, all patterns of independent answers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fca.stats.hierarchy import (
    PATTERNS,
    all_triplets_score,
    chance_score,
    hierarchical_score,
    score_and_accuracy,
    score_interval,
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
def test_chance_is_the_sum_of_the_four_patterns_of_independent_answers(e, m, h):
    total = 0.0
    for pattern in itertools.product([0, 1], repeat=3):
        if follows(*pattern):
            total += np.prod([p if right else 1 - p for p, right in zip((e, m, h), pattern, strict=True)])
    assert chance_score(e, m, h) == pytest.approx(total, abs=1e-12)


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


def simulated(rng, sd, sessions=60):
    """Twelve images a level; sessions differ by a common effect of this standard deviation in logits."""
    eta = np.repeat([2.0, 1.0, -1.0], 12) + sd * rng.standard_normal((sessions, 1))
    correct = rng.random((sessions, 36)) < 1 / (1 + np.exp(-eta))
    return correct.ravel(), np.tile(np.repeat([0, 1, 2], 12), sessions), np.repeat(np.arange(sessions), 36)


def test_independent_answers_have_no_excess_over_chance_and_shared_failures_have():
    rng = np.random.default_rng(2)
    found = score_interval(*simulated(rng, 0.0))
    # sampled rates of 12 images pair within a session: no bias, for the three levels are sampled apart
    assert found.excess.low < 0 < found.excess.high
    assert score_interval(*simulated(rng, 2.0)).excess.low > 0


def test_the_interval_covers_the_score_of_the_population():
    rng = np.random.default_rng(3)
    truth = score_interval(*simulated(rng, 1.5, sessions=20_000), resamples=1)
    found = [score_interval(*simulated(rng, 1.5), seed=k, resamples=300) for k in range(200)]
    for true, parts in zip(truth, zip(*found, strict=True), strict=True):  # score, chance and excess
        covered = np.mean([part.low <= true.value <= part.high for part in parts])
        assert covered == pytest.approx(0.95, abs=0.05)  # three standard errors of 200, and percentiles of 60 sessions


def test_the_interval_depends_on_its_seed_alone():
    answers = simulated(np.random.default_rng(4), 1.0)
    assert score_interval(*answers, seed=1) == score_interval(*answers, seed=1)
    assert score_interval(*answers, seed=1) != score_interval(*answers, seed=2)


def test_one_session_has_a_score_and_no_interval():
    found = score_interval(*simulated(np.random.default_rng(5), 0.0, sessions=1))
    assert 0 <= found.score.value <= 1
    assert np.isnan([found.score.low, found.chance.high, found.excess.low]).all()


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


def test_what_chance_explains_whole_leaves_nothing_to_correlate():
    x = np.linspace(0.1, 0.8, 7)
    assert np.isnan(score_and_accuracy(2 * x + 0.1, x**2, x)[1].r)


def test_a_session_without_a_level_is_named():
    with pytest.raises(FcaError, match=r"hard items of session dog = 0"):
        all_triplets_score(np.ones(2, dtype=bool), np.array([0, 1]), np.array(["dog", "dog"]))
    with pytest.raises(FcaError, match=r"levels = \[0, 7\]"):
        all_triplets_score(np.ones(2, dtype=bool), np.array([0, 7]), np.array(["dog", "dog"]))
    with pytest.raises(FcaError, match="triplets = 0"):
        hierarchical_score(np.empty((0, 3), dtype=bool))
