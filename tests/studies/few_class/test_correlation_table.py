"""Correlations of invented accuracies whose answer is known."""

import numpy as np
import pytest
import scipy.stats

from fca.studies.few_class.correlation import Correlation
from fca.studies.few_class.similarity import Similarity
from fca.subset import draw_subset
from fca.tables.table import UNDEFINED_WITHOUT
from fca.types import FcaError

SEEDS = range(6)


def tables(lab, **fields):
    return {table.name: table.frame for table in Correlation(**fields)(lab.store)}


def line(frame, target, scope="all", method="pearson", predictor="simss"):
    chosen = (frame["target"] == target) & (frame["scope"] == scope) & (frame["method"] == method)
    [found] = frame[chosen & (frame["predictor"] == predictor)].to_dict("records")
    return found


@pytest.fixture
def simss(lab):
    """SimSS of each draw, from stored features."""
    lab.embed("hog", lab.features(seed=1))
    table, *_ = Similarity(ncl=[2, 3], seeds=list(SEEDS))(lab.store)
    return {(n.ncl, n.subset_seed): n.simss for n in table.frame.itertuples()}


def train(lab, model, accuracy):
    """A sub-model on every subset; subsets drawn twice are trained once."""
    for classes, (n, s) in {draw_subset(6, n, s).classes: (n, s) for n in (2, 3) for s in reversed(SEEDS)}.items():
        lab.train(model, draw_subset(6, n, s), accuracy(n, s))
        assert draw_subset(6, n, s).classes == classes


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_accuracy_that_follows_simss_correlates_fully_in_every_scope(lab, simss, method):
    train(lab, "net", lambda n, s: 0.5 + 0.3 * simss[n, s])
    frame = tables(lab)["correlation"]
    for scope, n in [("all", 12), ("within ncl", 12), ("ncl=2", 6), ("ncl=3", 6)]:
        found = line(frame, "DCN sub", scope, method)
        assert found["r"] == pytest.approx(1, abs=1e-6)
        if method == "pearson":
            assert np.isnan([found["r_low"], found["r_high"]]).all(), "a line shows no spread to go by"
        else:
            assert (found["r_low"] < 1, found["r_high"]) == (True, pytest.approx(1))
        assert (found["n"], found["seeds"], found["models"]) == (n, 6, 1)


def test_it_equals_scipy_on_the_points_of_the_figure(study):
    found = tables(study)
    points = found["correlation_points"]
    for target in ("DCN sub", "DCN open", "DCN masked", "quick sub", "slow masked"):
        part = points[points["target"] == target]
        for predictor in ("simss", "ncl"):
            reference = scipy.stats.pearsonr(part[predictor], part["top1"])
            ours = line(found["correlation"], target, predictor=predictor)
            assert (ours["r"], ours["p"]) == pytest.approx((reference.statistic, reference.pvalue))
            assert ours["n"] == len(part)
            lacks_interval = np.isnan([ours["r_low"], ours["r_high"]]).all()
            assert lacks_interval == (ours["note"] == UNDEFINED_WITHOUT)
    assert set(found["correlation"]["target"]) == set(points["target"])


def test_what_only_differs_between_sizes_is_left_to_the_baseline(lab, simss):
    train(lab, "net", lambda n, s: 0.9 if n == 2 else 0.8)
    frame = tables(lab)["correlation"]
    assert line(frame, "DCN sub", predictor="ncl")["r"] == pytest.approx(-1)
    within = line(frame, "DCN sub", "within ncl")
    assert np.isnan([within["r"], within["p"], within["r_low"]]).all()
    assert within["n"] == 12


@pytest.mark.parametrize(("bad", "low", "high"), [(1, 0.9, 1.0), (4, -1.0, 0.5)])
def test_dcn_is_the_best_model_and_its_interval_leaves_out_each_of_five_models_or_more(lab, simss, bad, low, high):
    train(lab, "good", lambda n, s: 0.5 + 0.3 * simss[n, s] + 0.0005 * s)
    for at in range(bad):
        train(lab, "bad" * (at + 1), lambda n, s: 0.4 - 0.3 * simss[n, s] + 0.0005 * s)
    found = tables(lab)
    dcn, good = (line(found["correlation"], target) for target in ("DCN sub", "good sub"))
    assert dcn["r"] == good["r"] > 0.99
    assert dcn["models"] == 1 + bad
    assert low <= dcn["r_low"] < high, "without `good` the others go the other way"
    assert good["r_low"] > 0.9
    assert line(found["correlation"], "bad sub")["models"] == 1
    points = found["correlation_points"]
    assert set(points.loc[points["target"] == "DCN sub", "model"]) == {"good"}


def test_full_models_are_targets_under_both_protocols(study):
    assert set(tables(study)["correlation"]["target"]) == {
        f"{who} {protocol}" for who in ("DCN", "quick", "slow") for protocol in ("sub", "open", "masked")
    }


def test_one_subset_seed_has_no_interval(lab, simss):
    for n in (2, 3, 4):
        lab.train("net", draw_subset(6, n, 0), 0.9 - n / 10)
    found = line(tables(lab)["correlation"], "DCN sub")
    assert (found["n"], found["seeds"]) == (3, 1)
    assert not np.isnan(found["r"])
    assert np.isnan([found["r_low"], found["r_high"]]).all()


def test_each_encoder_has_its_own_correlation(lab, simss):
    lab.embed("pixels", lab.features(seed=2))
    train(lab, "net", lambda n, s: 0.5 + 0.3 * simss[n, s])
    frame = tables(lab)["correlation"]
    hog, pixels = (line(frame[frame["encoder"] == e], "DCN sub")["r"] for e in ("hog", "pixels"))
    assert hog == pytest.approx(1, abs=1e-6)
    assert pixels < 0.99


def test_models_and_features_of_different_data_sets_are_not_joined(lab, simss):
    lab.train("net", draw_subset(6, 2, 0), 0.5, dataset="farm")
    with pytest.raises(FcaError, match="subsets with both an accuracy and a similarity = none among the 2 stored rows"):
        tables(lab)


def test_a_number_of_classes_that_differs_between_models_and_features_stops_it(lab, simss):
    lab.train("net", draw_subset(4, 2, 0), 0.5, num_classes=4)
    with pytest.raises(FcaError, match="num_classes of the rows read = 4, 6"):
        tables(lab)
