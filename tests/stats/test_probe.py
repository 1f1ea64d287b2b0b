import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.linear_model import Ridge, RidgeClassifier

from fca.stats import features as probe
from fca.stats.features import PENALTIES, fit_probe
from fca.types import FcaError


def clouds(n, features, classes=3, spread=1.5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, features))
    return (centres[labels] + spread * rng.normal(size=(n, features)) + 5).astype(np.float16), labels


@pytest.mark.parametrize(("n", "features"), [(90, 8), (30, 200)], ids=["more images", "more features"])
def test_the_solution_is_scikit_learn_s_ridge_at_the_chosen_penalty(n, features):
    (x, y), (val, val_y) = clouds(n, features), clouds(30, features, seed=1)
    found = fit_probe(x, y, val, val_y)
    wide = x.astype(np.float64)
    alpha = found.penalty * np.square(wide - wide.mean(axis=0)).mean() * n
    ridge = Ridge(alpha=alpha, solver="svd").fit(wide, np.eye(3)[y])
    scale = found.weight[0, 0] / ridge.coef_[0, 0]
    assert found.weight == pytest.approx(scale * ridge.coef_, rel=1e-7, abs=1e-10)  # condition number of X'X below 1e6
    assert found.bias == pytest.approx(scale * ridge.intercept_, rel=1e-7)


def test_the_penalty_has_the_best_accuracy_on_val_of_all():
    (x, y), (val, val_y) = clouds(60, 100, spread=6.0), clouds(45, 100, spread=6.0, seed=1)
    wide = x.astype(np.float64)
    unit = np.square(wide - wide.mean(axis=0)).mean() * len(x)
    by_penalty = [RidgeClassifier(alpha=p * unit).fit(wide, y).score(val.astype(np.float64), val_y) for p in PENALTIES]
    found = fit_probe(x, y, val, val_y)
    assert found.val_top1 == max(by_penalty)
    assert by_penalty[list(PENALTIES).index(found.penalty)] == max(by_penalty)
    assert min(by_penalty) < max(by_penalty), "or there was nothing to choose"


def test_thetemperature_makes_val_likelier_than_any_other():
    (x, y), (val, val_y) = clouds(60, 5, spread=3.0), clouds(60, 5, spread=3.0, seed=1)
    logits = fit_probe(x, y, val, val_y).logits(val)

    def surprise(factor):
        return -log_softmax(logits * factor, axis=1)[np.arange(60), val_y].mean()

    assert surprise(1.0) < min(surprise(0.9), surprise(1.1))


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
def test_answers_do_not_depend_on_the_origin_or_the_unit_of_the_features(shift, scale):
    (x, y), (val, val_y) = clouds(60, 5, spread=3.0), clouds(60, 5, spread=3.0, seed=1)
    x, val = x.astype(np.float64), val.astype(np.float64)
    one = fit_probe(x, y, val, val_y)
    other = fit_probe(x * scale + shift, y, val * scale + shift, val_y)
    assert other.penalty == one.penalty
    assert other.logits(val * scale + shift) == pytest.approx(one.logits(val), rel=1e-5, abs=1e-5)


def test_features_that_never_vary_give_the_commonest_class():
    x, y = np.ones((5, 3)), np.array([0, 1, 1, 1, 0])
    assert fit_probe(x, y, x, y).logits(np.ones((1, 3))).argmax() == 1


@pytest.mark.parametrize(
    ("labels", "val_labels", "message"),
    [([0, 0, 2], [0], r"\[2, 0, 1\] train images a class"), ([0, 0], [0], r"\[2\]"), ([0, 1], [], "0 val images")],
)
def test_a_class_without_images_is_named(labels, val_labels, message):
    with pytest.raises(FcaError, match=message):
        fit_probe(
            np.ones((len(labels), 2)),
            np.array(labels, dtype=np.int64),
            np.ones((len(val_labels), 2)),
            np.array(val_labels, dtype=np.int64),
        )


def test_one_decomposition_answers_for_all_penalties(monkeypatch):
    calls = []
    monkeypatch.setattr(probe.np.linalg, "eigh", lambda a, eigh=np.linalg.eigh: calls.append(a.shape) or eigh(a))
    (x, y), (val, val_y) = clouds(30, 200), clouds(9, 200, seed=1)
    fit_probe(x, y, val, val_y)
    assert calls == [(30, 30)]
