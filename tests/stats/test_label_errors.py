"""Scores of wrong labels, and how well a score finds marked items, against slow and independent counts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, rankdata
from sklearn.metrics import roc_auc_score

from fca.stats.label_errors import (
    RULES,
    auc,
    item_rest,
    item_top1,
    modal_wrong,
    precision_at,
    recall_at,
    recall_curve,
    suspicion,
)


def answers(subjects=12, items=40, classes=4, missing=0.2, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(classes, size=items)
    is_label = rng.random((subjects, items)) < 0.5
    pred = np.where(is_label, label, rng.integers(-1, classes, (subjects, items)))
    correct = (pred == label).astype(np.float64)
    correct[rng.random(correct.shape) < missing] = np.nan
    return correct, np.where(np.isnan(correct), -1, pred)


def scored(n=200, levels=12, seed=0):
    """Scores with many ties that find marked items better than chance."""
    rng = np.random.default_rng(seed)
    marked = rng.random(n) < 0.2
    return np.floor(levels * (rng.random(n) + 0.3 * marked)), marked


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_modal_wrong_answer_is_the_most_frequent_one_among_the_responses(missing):
    correct, pred = answers(missing=missing)
    modal = modal_wrong(correct, pred)
    for item in range(correct.shape[1]):
        n_responses = (~np.isnan(correct[:, item])).sum()
        is_wrong = (correct[:, item] == 0) & (pred[:, item] >= 0)
        counts = Counter(pred[is_wrong, item].tolist())
        highest_count = max(counts.values(), default=0)
        assert modal.share[item] == highest_count / n_responses
        assert modal.answer[item] == min((c for c in counts if counts[c] == highest_count), default=-1)


def test_answers_without_a_class_agree_with_nobody():
    correct = np.array([[0.0], [0.0], [0.0]])
    assert modal_wrong(correct, np.array([[-1], [-1], [3]])).share[0] == pytest.approx(1 / 3, abs=1e-15)


def test_an_item_that_nobody_was_asked_has_no_share():
    correct = np.array([[np.nan, 1.0], [np.nan, 0.0]])
    assert np.isnan(modal_wrong(correct, np.array([[-1, 0], [-1, 1]])).share[0])
    assert np.isnan(item_top1(correct)[0])
    assert item_top1(correct)[1] == 0.5


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_item_rest_is_pearson_s_correlation_with_the_accuracy_on_the_others(missing):
    correct, _ = answers(missing=missing)
    correlations = item_rest(correct)
    for item in range(correct.shape[1]):
        has_response = ~np.isnan(correct[:, item])
        accuracy_elsewhere = np.nanmean(np.delete(correct, item, axis=1), axis=1)
        expected = pearsonr(correct[has_response, item], accuracy_elsewhere[has_response]).statistic
        assert correlations[item] == pytest.approx(expected, abs=1e-12)


def test_an_item_that_all_get_right_has_no_correlation_and_the_score_of_none():
    correct = np.array([[1.0, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 1]])
    assert np.isnan(item_rest(correct)[0])
    assert suspicion(correct, np.where(correct == 1, 0, 1))["low_item_rest"][0] == 0


def test_the_rules_that_need_a_fit_are_there_only_with_one():
    correct, pred = answers()
    parameter = np.linspace(0, 1, correct.shape[1])
    assert set(RULES) == set(suspicion(correct, pred, parameter, parameter, parameter))
    fitted = {"low_p_max", "low_discrimination_feasibility"}
    assert set(RULES) - set(suspicion(correct, pred)) == fitted


def test_the_rule_of_the_paper_sums_ranks_whatever_the_units():
    correct, pred = answers(items=4)
    a, feasibility = np.array([0.1, 2.0, 1.0, 3.0]), np.array([0.9, 0.2, 0.5, 1.0])
    score = suspicion(correct, pred, a, feasibility)["low_discrimination_feasibility"]
    assert score.tolist() == [4 + 2, 2 + 4, 3 + 3, 1 + 1]
    assert score.tolist() == suspicion(correct, pred, a**3, 7 * feasibility)["low_discrimination_feasibility"].tolist()


def test_a_planted_wrong_label_is_the_most_suspect():
    rng = np.random.default_rng(3)
    true = rng.integers(5, size=300)
    pred = np.where(rng.random((20, 300)) < 0.8, true, rng.integers(5, size=(20, 300)))
    is_planted = np.arange(300) < 15
    label = np.where(is_planted, (true + 1) % 5, true)
    correct = (pred == label).astype(np.float64)
    score = suspicion(correct, pred)["modal_wrong_share"]
    assert recall_at(score, is_planted, 0.05).value == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_auc_is_that_of_scikit_learn_with_ties(seed, levels):
    score, marked = scored(levels=levels, seed=seed)
    value, low, high = auc(score, marked)
    assert value == pytest.approx(roc_auc_score(marked, score), abs=1e-12)
    assert 0 <= low <= value <= high <= 1


def test_the_interval_of_auc_is_that_of_a_bootstrap_over_items():
    score, marked = scored(n=2000)
    n = len(score)
    resamples = np.random.default_rng(0).integers(n, size=(1000, n))
    ranks = rankdata(score[resamples], axis=1)
    is_marked = marked[resamples]
    n_marked = is_marked.sum(axis=1)
    pairs_in_order = (ranks * is_marked).sum(axis=1) - n_marked * (n_marked + 1) / 2  # Mann and Whitney
    ends = np.quantile(pairs_in_order / n_marked / (n - n_marked), [0.025, 0.975])

    _, low, high = auc(score, marked)
    assert (low, high) == pytest.approx(tuple(ends), abs=0.004)  # Monte Carlo: 0.0015 at 1,000 draws


def test_auc_of_perfect_order_has_no_interval():
    value, low, high = auc(np.array([3.0, 2, 1, 0]), np.array([True, True, False, False]))
    assert value == 1
    assert np.isnan([low, high]).all()


def test_ties_at_the_cut_count_by_expectation():
    score, marked = scored()
    rng = np.random.default_rng(1)
    marked_among_first = []
    for _ in range(4000):
        order = np.lexsort((rng.random(len(score)), -score))  # ties in random order
        marked_among_first.append(marked[order[:20]].sum())
    mean = np.mean(marked_among_first)
    assert precision_at(score, marked, 20).value == pytest.approx(mean / 20, abs=0.01)  # 3 standard errors
    assert recall_at(score, marked, 0.1).value == pytest.approx(mean / marked.sum(), abs=0.01)


def test_a_score_that_says_nothing_is_chance():
    _, marked = scored()
    score = np.zeros(len(marked))
    assert auc(score, marked).value == 0.5
    assert precision_at(score, marked, 7).value == pytest.approx(marked.mean(), abs=1e-12)
    shares = np.linspace(0, 1, 11)
    assert recall_curve(score, marked, shares) == pytest.approx(shares, abs=1e-12)


def test_the_curve_is_recall_at_every_share_and_never_falls():
    score, marked = scored()
    shares = np.linspace(0, 1, 101)
    curve = recall_curve(score, marked, shares)
    assert curve == pytest.approx([recall_at(score, marked, share).value for share in shares], abs=1e-12)
    assert (np.diff(curve) >= 0).all()
    assert (curve[0], curve[-1]) == (0, 1)


def test_the_order_of_items_changes_nothing():
    score, marked = scored()
    order = np.random.default_rng(5).permutation(len(score))
    assert auc(score, marked) == pytest.approx(auc(score[order], marked[order]), abs=1e-12)
    assert precision_at(score, marked, 9) == pytest.approx(precision_at(score[order], marked[order], 9), abs=1e-12)


@pytest.mark.parametrize("marked", [np.zeros(4, dtype=bool), np.ones(4, dtype=bool)])
def test_items_of_one_kind_only_are_refused(marked):
    with pytest.raises(ValueError, match=f"{marked.sum()} of 4 items are marked"):
        auc(np.arange(4.0), marked)


def test_scores_that_are_missing_are_refused():
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        recall_at(np.array([np.nan, 1.0]), np.array([True, False]), 0.5)


def test_more_items_than_there_are_cannot_be_precise():
    with pytest.raises(ValueError, match=r"k=5 is outside \[1, 4\]"):
        precision_at(np.arange(4.0), np.array([True, False, False, False]), 5)
