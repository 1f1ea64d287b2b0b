"""Searches replayed on tables: what is shown, what is counted, and what the drawn tables are like."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from fca.studies.generate.stats.domain import Domain
from fca.studies.search.stats.replay import (
    SPREADS,
    Replay,
    accuracies,
    coverage,
    replay,
    simulated,
    visits_until,
    worst,
)
from fca.types import FcaError

DOG = Domain(
    {
        "weather": ["sunny", "cloudy", "raining", "snowing"],
        "location": ["beach", "forest", "city", "house", "garden", "desert", "mountains"],
        "time": ["day", "night"],
        "color": list("abcdefgh"),
        "viewpoint": ["front", "side", "rear"],
    },
    [
        {"not": {"weather": "sunny", "time": "night"}},
        {"not": {"location": "house", "weather": ["cloudy", "raining", "snowing"]}},
    ],
)
SMALL = Domain({"a": [0, 1], "b": [0, 1, 2]})


@pytest.fixture
def in_order(monkeypatch):
    """A policy that visits 0, 1, 2 ... and again; keeps what it was shown."""
    seen = []

    def make_policy(name, domain, seed, **options):
        def next_one(visited, correct, n_images):
            seen.append((visited.tolist(), correct.tolist(), n_images.tolist()))
            return len(visited) % len(domain)

        return SimpleNamespace(next=next_one, given=(name, seed, options))

    monkeypatch.setattr("fca.studies.search.stats.replay.make_policy", make_policy)
    return seen


def test_each_visit_shows_the_next_images_that_there_are(in_order):
    right = np.array([[1, 0, -1, 1, 1, 1], [0, 0, 0, 1, -1, -1], [-1] * 6, [1] * 6, [0] * 6, [1] * 6], np.int8)
    done = replay(SMALL, right, "any", 0, batches=(2, 3), most=18)
    assert done.visited.tolist() == [0, 1, 2, 3, 4, 5] * 3
    assert done.n_images.reshape(3, 6).tolist() == [[2, 2, 0, 2, 2, 2], [3, 2, 0, 3, 3, 3], [0, 0, 0, 1, 1, 1]]
    assert done.correct.reshape(3, 6).tolist() == [[1, 0, 0, 2, 0, 2], [3, 1, 0, 3, 0, 3], [0, 0, 0, 1, 0, 1]]
    assert in_order[7] == (done.visited[:7].tolist(), done.correct[:7].tolist(), done.n_images[:7].tolist())


def test_a_replay_ends_when_every_subdomain_could_have_been_visited(in_order):
    right = np.ones((6, 50), np.int8)
    done = replay(SMALL, right, "any", 0)
    assert len(done.visited) == len(in_order) == 6
    assert done.accuracy.tolist() == [1.0] * 6


def test_a_visit_without_images_has_no_accuracy():
    done = Replay(np.arange(3), np.array([1, 0, 0]), np.array([2, 0, 5]))
    np.testing.assert_array_equal(done.accuracy, [0.5, np.nan, 0])
    right = np.array([[1, -1], [-1, -1], [0, 1]], np.int8)
    np.testing.assert_array_equal(accuracies(right), [1, np.nan, 0.5])


def test_the_worst_tenth_of_the_papers_domain_has_103_and_ties_go_by_row():
    assert worst(np.zeros(len(DOG))).nonzero()[0].tolist() == list(range(103))
    assert worst(np.array([0.5, np.nan, 0.4, np.nan])).tolist() == [False, False, True, False]
    with pytest.raises(FcaError, match="accuracies = none"):
        worst(np.full(3, np.nan))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.sets(st.integers(0, 9), min_size=1))
def test_coverage_counts_each_of_the_worst_once(visited, lowest):
    found = coverage(np.array(visited), np.isin(np.arange(10), list(lowest)))
    literal = [len(lowest & set(visited[: at + 1])) / len(lowest) for at in range(len(visited))]
    np.testing.assert_allclose(found, literal, atol=1e-12)
    for share in (0.5, 0.95, 1.0):
        first = next((at + 1 for at, value in enumerate(literal) if value >= share), None)
        assert visits_until(found, share) == first if first else np.isnan(visits_until(found, share))


def test_coverage_of_every_subdomain_is_all():
    order = np.random.default_rng(0).permutation(len(DOG))
    found = coverage(order, worst(simulated(DOG, 0).probability))
    assert (np.diff(found) >= 0).all()
    assert found[-1] == 1


@pytest.mark.parametrize("kind", SPREADS)
def test_images_of_a_drawn_table_are_right_as_often_as_their_probability(kind):
    table = simulated(DOG, 3, kind, images=400)
    share = table.right.mean(axis=1)
    error = np.sqrt(table.probability * (1 - table.probability) / 400)
    assert np.abs(share - table.probability).max() < 6 * error.max()
    again = simulated(DOG, 3, kind, images=400)
    np.testing.assert_array_equal(again.right, table.right)
    assert (simulated(DOG, 4, kind).probability != table.probability).mean() > 0.9


def explained(table, strength):
    """Share of the variance of logits that a least-squares fit of indicators explains."""
    columns = np.hstack([np.ones((len(DOG), 1)), *(cells for _, cells in DOG.indicators(strength))])
    y = logit(table.probability)
    rest = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    return 1 - rest.var() / y.var()


def test_tables_have_the_structure_of_their_kind():
    def mean_of(kind, strength):
        return np.mean([explained(simulated(DOG, seed, kind), strength) for seed in range(3)])

    assert mean_of("structured", 1) > 0.6  # .64 * 5 of 4.5, less what few values draw
    assert mean_of("structured", 2) > 0.9
    assert mean_of("harder", 1) < mean_of("structured", 1)
    assert mean_of("harder", 2) < mean_of("structured", 2)
    assert mean_of("none", 1) < 0.05  # 20 columns of 1,032 rows
    for seed in range(3):
        of = [c for _, c in DOG.indicators(1)]
        y = logit(simulated(DOG, seed, "dominant").probability)
        means = [(cells / cells.sum(axis=0)).T @ y for cells in of]
        shares = [np.var(cells @ mean) / y.var() for cells, mean in zip(of, means, strict=True)]
        assert sorted(shares)[-2] < 0.2


def test_the_spread_without_structure_is_that_of_structured_tables():
    spreads = {
        kind: np.sqrt(np.mean([logit(simulated(DOG, seed, kind).probability).var() for seed in range(8)]))
        for kind in ("structured", "none")
    }
    assert spreads["none"] == pytest.approx(np.sqrt(5 * 0.8**2 + 10 * 0.35**2 + 0.3**2), rel=0.03)
    assert spreads["structured"] == pytest.approx(spreads["none"], rel=0.2)  # a table has few values: 5 attributes


def test_scattered_failures_are_few_and_lie_anywhere():
    low = [simulated(DOG, seed, "scattered").probability < 0.5 for seed in range(5)]
    assert [mask.sum() for mask in low] == [41] * 5
    assert np.median(simulated(DOG, 0, "scattered").probability) > 0.97
    assert (low[0] & low[1]).sum() < 10


def test_an_unknown_kind_is_refused():
    with pytest.raises(FcaError, match="odd"):
        simulated(SMALL, 0, "odd")
