"""Subjects that answer one class are those whose predictions are one class, and they are where tau fails."""

import numpy as np
import scipy.stats

from fca.studies.irt.stats import fit_irt
from fca.studies.irt.stats.subjects import one_class


def drawn(rng, subjects, constant, items=800):
    """A yes-no task: subjects of a planted ability, then those that answer yes or no but for 2 % of the items."""
    label = np.where(rng.random(items) < 0.62, "yes", "no")
    ability, difficulty = rng.normal(0.5, 1, (subjects, 1)), rng.normal(0, 1, items)
    right = rng.random((subjects, items)) < 0.5 + 0.5 / (1 + np.exp(difficulty - ability))
    answers = np.where(rng.random((constant, 1)) < 0.5, "yes", "no")
    surprised = rng.random((constant, items)) < 0.02
    return np.vstack([right, (label == answers) ^ surprised]).astype(float), label


def test_they_are_found_from_responses_and_labels_alone():
    rng = np.random.default_rng(0)
    label = np.array(list("abc"))[rng.integers(0, 3, 600)]
    share = np.array([1.0, 0.97, 0.9, 0.4, 1 / 3])  # of the predictions that are class b
    pred = np.where(rng.random((5, 600)) < share[:, None], "b", np.where(rng.random((5, 600)) < 0.5, "a", "c"))
    correct = (pred == label).astype(float)
    assert one_class(correct, label).tolist() == [True, True, False, False, False]
    correct[:, :200] = np.nan
    assert one_class(correct, label).tolist() == [True, True, False, False, False]


def test_able_subjects_and_guessing_ones_are_none_of_them():
    rng = np.random.default_rng(1)
    label = np.array([f"class{number}" for number in rng.integers(0, 1000, 20_000)])
    correct = (rng.random((3, 20_000)) < np.array([[0.001], [0.5], [1.0]])).astype(float)
    assert not one_class(correct, label).any()


def test_unknown_labels_judge_nobody():
    correct = np.array([[1.0, 0.0, 1.0]])
    assert not one_class(correct, np.array([None, None, None], dtype=object)).any()
    assert not one_class(correct, np.array(["a", "a", None], dtype=object)).any()


def test_tau_fails_where_many_answer_one_class_and_holds_among_the_others():
    correct, label = drawn(np.random.default_rng(2), 60, 20)
    single = one_class(correct, label)
    assert single.tolist() == [False] * 60 + [True] * 20
    accuracy, ability = correct.mean(axis=1), fit_irt(correct, "2pl").ability
    assert scipy.stats.kendalltau(ability, accuracy)[0] < 0.9
    assert scipy.stats.kendalltau(ability[~single], accuracy[~single])[0] > 0.93
