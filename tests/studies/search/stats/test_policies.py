"""Policies name open subdomains, the same ones after a restart, and cover where they promise to."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.special import expit

from fca.studies.search.stats import POLICIES, Domain, make_policy
from fca.types import FcaError

NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name == "bo_forest" else []) for name in POLICIES]
GUIDED = [name for name, options in POLICIES.items() if "acquisition" in options]
NONE = np.array([], dtype=np.int64)


def table(domain, seed, images=50, spread=1.0):
    """Right of `images` in every subdomain: an effect of every value."""
    rng = np.random.default_rng(seed)
    logit = 2 + sum(cells @ rng.normal(0, spread, cells.shape[1]) for _, cells in domain.indicators(1))
    return rng.binomial(images, expit(logit))


def searched(policy, right, visits, images=50, history=(NONE, NONE, NONE)):
    for _ in range(visits):
        at = policy.next(*history)
        history = tuple(np.append(of, new) for of, new in zip(history, (at, right[at], images), strict=True))
    return history


def tuples_of(rows, strength):
    """Every (attributes, values) of some rows."""
    places = combinations(range(len(rows[0])), strength)
    return {(at, tuple(row[one] for one in at)) for at in places for row in rows}


@pytest.mark.parametrize(("strength", "rows"), [(2, 57), (3, 222), (4, 603)])
def test_an_n_wise_array_of_the_papers_domain_is_valid_and_complete(dog, strength, rows):
    policy = make_policy("nwise", dog, 0, strength=strength)
    array = [dog.subdomains[row] for row in policy.rows]
    assert policy.planned == len(set(array)) == rows
    assert tuples_of(array, strength) == tuples_of(dog.subdomains, strength)


@st.composite
def attributes_and_rules(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    attributes = {f"a{n}": list(range(size)) for n, size in enumerate(sizes)}
    cells = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in attributes.items()})
    return attributes, [{"not": rule} for rule in draw(st.lists(cells.filter(bool), max_size=4))]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(drawn=attributes_and_rules(), strength=st.integers(2, 5))
def test_an_n_wise_array_of_any_domain_is_valid_and_complete(drawn, strength):
    try:
        domain = Domain(*drawn)
    except FcaError:
        reject()  # the rules leave nothing
    array = [domain.subdomains[row] for row in make_policy("nwise", domain, 1, strength=strength).rows]
    assert len(array) == len(set(array))
    for some in range(1, min(strength, len(domain.attributes)) + 1):
        assert tuples_of(array, some) == tuples_of(domain.subdomains, some)


def test_n_wise_follows_its_array_and_goes_on_at_random(small):
    policy = make_policy("nwise", small, 3, strength=2)
    visited = searched(policy, table(small, 0), len(small))[0]
    np.testing.assert_array_equal(visited[: policy.planned], policy.rows)
    assert sorted(visited) == list(range(len(small)))


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_visits_all_once_and_then_refuses(small, name):
    policy = make_policy(name, small, 0)
    history = searched(policy, table(small, 1), len(small))
    assert sorted(history[0]) == list(range(len(small)))
    with pytest.raises(FcaError, match=f"visits = {len(small)}; allowed: fewer"):
        policy.next(*history)


@pytest.mark.wide
@pytest.mark.parametrize("name", NAMES)
def test_a_search_that_goes_on_after_a_kill_names_the_same_subdomains(dog, name):
    right = table(dog, 2)
    whole = searched(make_policy(name, dog, 5), right, 33)
    for visits in (0, 12, 32):
        assert make_policy(name, dog, 5).next(*(of[:visits] for of in whole)) == whole[0][visits]
    policy = make_policy(name, dog, 5)
    backwards = [policy.next(*(of[:visits] for of in whole)) for visits in (32, 31, 11)]
    assert backwards == whole[0][[32, 31, 11]].tolist(), "what it keeps between calls changes nothing"
    assert not np.array_equal(searched(make_policy(name, dog, 6), right, 12)[0], whole[0][:12])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "domain", [Domain({"a": [0]}), Domain({"a": list(range(12))}), Domain({"a": [0], "b": [1, 2]})], ids=len
)
@pytest.mark.parametrize("share", [0.3, 1])
def test_a_tiny_domain_and_equal_accuracies_work(name, domain, share):
    right, options = np.full(len(domain), round(10 * share)), {"starts": 0} if "starts" in POLICIES[name] else {}
    visited = searched(make_policy(name, domain, 0, **options), right, len(domain), 10)[0]
    assert sorted(visited) == list(range(len(domain)))


@pytest.mark.parametrize("name", NAMES)
def test_pending_and_refused_visits_close_a_subdomain_and_are_no_evidence(dog, name):
    options = {"visits": 9} | ({"fallback": False} if name in GUIDED else {})
    policy, right = make_policy(name, dog, 0, **options), table(dog, 3)
    history = searched(policy, right, 12)
    pending = list(history)
    for _ in range(4):
        pending = [np.append(of, new) for of, new in zip(pending, (policy.next(*pending), 0, 0), strict=True)]
    assert len(set(pending[0][12:])) == 4
    if name in GUIDED:
        plain, waiting = policy.predict(*history), policy.predict(*pending)
        np.testing.assert_array_equal(plain.mean, waiting.mean)
    nothing = tuple(np.append(NONE, of) for of in (np.arange(20), np.zeros(20, int), np.zeros(20, int)))
    assert make_policy(name, dog, 0).next(*nothing) >= 20


def test_a_genetic_child_has_values_of_the_ten_lowest_but_for_mutations(dog):
    rng = np.random.default_rng(100)
    visited = rng.permutation(len(dog))[:60]
    right = table(dog, 100)[visited]
    parents = dog.codes[visited[np.argsort(right, kind="stable")[:10]]]
    n_images = np.full(60, 50)
    children = dog.codes[[make_policy("genetic", dog, seed).next(visited, right, n_images) for seed in range(300)]]
    inherited = np.mean([[code in parents[:, at] for at, code in enumerate(child)] for child in children])
    assert inherited > 0.93  # a mutation, of every tenth value, may also hit a parent's
    lows = make_policy("random", dog, 0)
    assert lows.planned is None


@pytest.mark.parametrize("acquisition", ["greedy", "expected_improvement"])
def test_a_single_bad_value_is_followed_at_once(dog, acquisition):
    bad = dog.codes[:, 3] == 6  # green
    visited = searched(make_policy("bo", dog, 1, acquisition=acquisition, starts=25), np.where(bad, 5, 45), 50)[0]
    assert bad[visited[25:]].mean() > (0.9 if acquisition == "greedy" else 0.35)  # a fifth of all by chance: 0.125


def test_the_reserve_is_a_fixed_share_at_random(dog):
    right, all_random = table(dog, 4), make_policy("random", dog, 0)
    history = searched(make_policy("genetic", dog, 0, reserve=0.25), right, 50)
    chance = [visits for visits in range(50) if all_random.next(*(of[:visits] for of in history)) == history[0][visits]]
    assert set(range(10)) | {11, 15, 19, 23, 27, 31, 35, 39, 43, 47} <= set(chance)
    assert len(chance) <= 22


@pytest.mark.wide
def test_where_nothing_can_be_predicted_choices_cover_pairs_of_values(dog):
    right = np.random.default_rng(103).binomial(50, 0.7, len(dog))
    pairs = np.hstack([cells for _, cells in dog.indicators(2)])
    for name in ("bo_linear", "gp_pairwise"):
        policy = make_policy(name, dog, 0, reserve=0.0)
        history = searched(policy, right, 45)
        covers = [policy.covers(*(of[:visits] for of in history)) for visits in range(28, 45)]
        assert not any(covers[:2])
        assert np.mean(covers[2:]) > 0.5
        assert policy.skill(*history) < 0.1
        last = 28 + max(np.flatnonzero(covers))
        seen = pairs[history[0][:last]].sum(axis=0)
        gain = pairs @ (1 / (1 + seen))
        gain[history[0][:last]] = 0
        assert gain[history[0][last]] == pytest.approx(gain.max())
        assert not make_policy(name, dog, 0, reserve=0.0, fallback=False).covers(*(of[:last] for of in history))
    assert not make_policy("random", dog, 0).covers(*history)


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in NAMES if name.values[0] in GUIDED])
def test_a_table_with_structure_is_predicted_hardly_covered_and_its_low_accuracies_are_visited(dog, name):
    right, policy = table(dog, 101), make_policy(name, dog, 0)
    history = searched(policy, right, 45)
    assert right[history[0][10:]].mean() < np.quantile(right, 0.4)
    assert policy.skill(*history) > 0.05
    assert policy.skill(*(of[:29] for of in history)) is None
    assert not policy.covers(*history)


def test_straddle_returns_to_subdomains_and_maps_the_boundary(small):
    right = table(small, 5, images=10)
    policy = make_policy("gp_pairwise", small, 0, acquisition="straddle", visits=100)
    visited = searched(policy, right, 60, images=10)[0]
    assert np.bincount(visited, minlength=len(small)).max() > 2


def test_features_take_the_place_of_one_hot_columns(dog):
    bad = np.random.default_rng(6).random(len(dog)) < 0.1
    policy = make_policy("bo", dog, 0, features=bad[:, None].astype(float), starts=40)
    visited = searched(policy, np.where(bad, 5, 45), 80)[0]
    assert bad[visited[40:]].all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("best", {}, "policy = best; allowed: random, nwise, genetic, bo, bo_linear, bo_forest, bo_svr, gp_pairwise"),
        ("random", {"strength": 2}, "option of random = strength; allowed: visits"),
        ("gp_pairwise", {"features": None}, "option of gp_pairwise = features; allowed: visits, starts, reserve"),
        ("nwise", {"strength": 6}, "strength = 6; allowed: 2 to 5"),
        ("bo", {"acquisition": "straddle"}, "acquisition = straddle; allowed: greedy, expected_improvement"),
        ("gp_pairwise", {"acquisition": "ucb"}, "acquisition = ucb; allowed: worst_decile, straddle"),
        ("bo", {"reserve": 1.5}, "reserve = 1.5; allowed: 0 to 1"),
        ("bo", {"starts": -1}, "starts = -1; allowed: 0 to inf"),
        ("random", {"visits": 0}, "visits = 0; allowed: 1 to inf"),
        (
            "bo",
            {"features": np.zeros((2, 3))},
            r"features = shape \(2, 3\); allowed: finite, \(17, ",
        ),
        ("bo", {"features": np.full((17, 1), np.nan)}, r"features = shape \(17, 1\)"),
    ],
)
def test_what_a_policy_does_not_have_is_refused_with_what_it_has(small, name, options, message):
    with pytest.raises(FcaError, match=message):
        make_policy(name, small, 0, **options)


def test_nothing_is_predicted_without_images(small):
    with pytest.raises(FcaError, match="visits with images = 0"):
        make_policy("bo", small, 0).predict(np.array([1]), np.array([0]), np.array([0]))
    assert make_policy("bo", small, 0).skill(NONE, NONE, NONE) is None


def test_an_array_of_all_attributes_is_the_domain(small):
    assert make_policy("nwise", small, 0, strength=3).planned == len(small)
