"""Predictions agree with a Gaussian process worked out over subdomains, and with scikit-learn."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal
from sklearn.linear_model import Lasso
from sklearn.model_selection import KFold

from fca.stats.search.models import Evidence, PairwiseGP, Regression, pooled, skill


@pytest.fixture
def evidence(small):
    rng = np.random.default_rng(7)
    visited = rng.integers(0, len(small), 30)
    shown = rng.integers(5, 40, 30)
    return pooled(visited, rng.binomial(shown, 0.3 + 0.5 * rng.random(len(small))[visited]), shown)


def gp_of(domain):
    return PairwiseGP(*(np.hstack([cells for _, cells in domain.indicators(strength)]) for strength in (1, 2)))


def covariance(domain, sds, constant=3.0):
    """Between the logits of all subdomains, from their definition: values and pairs that two of them share."""
    additive, pairwise, own = sds
    same = domain.codes[:, None, :] == domain.codes[None, :, :]
    shared = same.sum(axis=2)
    pairs = shared * (shared - 1) / 2
    return constant**2 + additive**2 * shared + pairwise**2 * pairs + own**2 * np.eye(len(domain))


def observed(evidence):
    right, wrong = evidence.correct + 0.5, evidence.shown - evidence.correct + 0.5
    return np.log(right / wrong), np.diag(1 / right + 1 / wrong)


@pytest.mark.parametrize("sds", [(0.5, 0.4, 0.25), (1.0, 0.0, 0.5), (0.0, 0.2, 0.0), (0.0, 0.0, 0.25)])
def test_the_pairwise_process_is_the_posterior_over_subdomains(small, evidence, sds):
    prior, (target, noise) = covariance(small, sds), observed(evidence)
    known = prior[np.ix_(evidence.at, evidence.at)] + noise
    gain = prior[:, evidence.at] @ np.linalg.inv(known)
    mean = target.mean() + gain @ (target - target.mean())
    variance = np.diag(prior - gain @ prior[evidence.at])
    found = gp_of(small).scale(evidence, sds)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)  # float64, 18 subdomains
    np.testing.assert_allclose(found.sd, np.sqrt(variance), atol=1e-6)
    accuracy = gp_of(small).predict(evidence, sds)
    np.testing.assert_allclose(accuracy.mean, expit(mean), atol=1e-8)


def test_the_standard_deviations_have_the_highest_likelihood_of_the_grid(small, evidence):
    model, (target, noise) = gp_of(small), observed(evidence)
    known = np.ix_(evidence.at, evidence.at)
    likelihood = {
        (a, p, o): multivariate_normal.logpdf(target - target.mean(), cov=covariance(small, (a, p, o))[known] + noise)
        for a in model.ADDITIVE
        for p in model.PAIRWISE
        for o in model.OWN
    }
    assert model.tune(evidence) == max(likelihood, key=likelihood.get)


def test_without_differences_the_process_has_no_effects_and_no_skill(dog):
    at = np.random.default_rng(8).permutation(len(dog))[:200]
    evidence, model = Evidence(at, np.full(200, 40.0), np.full(200, 50.0)), gp_of(dog)
    assert model.tune(evidence) == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(model.predict(evidence, (0.0, 0.0, 0.0)).mean, expit(np.log(40.5 / 10.5)))
    assert skill(model, evidence, (0.0, 0.0, 0.0)) == 0


def test_visits_of_a_subdomain_are_pooled_in_any_order():
    visited, correct, shown = np.array([4, 2, 4, 2]), np.array([3, 1, 5, 9]), np.array([10, 20, 10, 20])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        evidence = pooled(visited[order], correct[order], shown[order])
        assert evidence.at.tolist() == [2, 4]
        assert evidence.correct.tolist() == [10, 8]
        assert evidence.shown.tolist() == [40, 20]


def test_bo_is_scikit_learns_lasso_at_the_papers_penalty_and_its_skill_is_that_of_five_folds(dog):
    features = np.hstack([cells for _, cells in dog.indicators(1)])
    rng = np.random.default_rng(9)
    at = rng.permutation(len(dog))[:60]
    correct = rng.binomial(50, expit(features[at] @ rng.normal(0, 1, 24)))
    evidence, model = pooled(at, correct, np.full(60, 50)), Regression("bo", features, 0)
    accuracy, known = evidence.accuracy, features[evidence.at]
    found = model.predict(evidence, (0.0, 0.0, 0.0))
    np.testing.assert_allclose(found.mean, Lasso(1e-3).fit(known, accuracy).predict(features), atol=1e-12)
    assert (found.sd > 0).mean() > 0.9
    errors = []
    for train, test in KFold(5, shuffle=True, random_state=1).split(known):
        predicted = Lasso(1e-3).fit(known[train], accuracy[train]).predict(known[test])
        against = predicted, np.full(len(test), accuracy[train].mean())
        errors.append([((accuracy[test] - one) ** 2).sum() for one in against])
    of_model, of_mean = np.sum(errors, axis=0)
    assert skill(model, evidence, (0.0, 0.0, 0.0)) == pytest.approx(1 - of_model / of_mean, abs=0.1)  # other folds


@pytest.mark.parametrize("kind", ["bo", "bo_linear", "bo_forest", "bo_svr"])
def test_a_regression_has_skill_where_values_decide_and_none_where_nothing_does(dog, kind):
    features = np.hstack([cells for _, cells in dog.indicators(1)])
    rng = np.random.default_rng(10)
    at = rng.permutation(len(dog))[:120]
    model, none = Regression(kind, features, 0), (0.0, 0.0, 0.0)
    decided = pooled(at, rng.binomial(50, expit(1 + features[at] @ rng.normal(0, 1, 24))), np.full(120, 50))
    chance = pooled(at, rng.binomial(50, 0.8, 120), np.full(120, 50))
    assert skill(model, decided, none) > 0.5
    assert skill(model, chance, none) < 0.05
    assert (model.predict(decided, none).sd > 0).mean() > 0.5
    assert np.isnan(model.predict(decided, none, spread=False).sd).all()
