"""Rows that differ in what is no axis are never averaged or compared unnoticed."""

from functools import cache

import pandas as pd
import pytest

from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.comparison import Comparison
from fca.studies.few_class.correlation import Correlation
from fca.studies.few_class.prediction import Prediction
from fca.studies.few_class.similarity import Similarity
from fca.studies.few_class.variance import Variance
from fca.subset import draw_subset
from fca.types import FcaError
from tests.support.lab import RECIPE, copy_of


@pytest.fixture(scope="module")
def changed(written_study, tmp_path_factory):
    """The study with the further rows that a function writes, made once for all analyses."""

    @cache
    def make(write):
        study = copy_of(written_study, tmp_path_factory.mktemp("changed") / "outputs")
        write(study)
        return study

    return make


@pytest.fixture(scope="module")
def tables_of(written_study):
    """The tables of an analysis of the study, made once."""
    return cache(lambda analysis: analysis()(written_study.store))


readers_of_models = pytest.mark.parametrize(
    "analysis", [FewClass, Correlation, Prediction, Comparison, Variance], ids=lambda a: a.__name__
)


def another_recipe(study):
    study.train("quick", draw_subset(6, 2, 0), 0.5, recipe_epochs=5)


@pytest.mark.wide
@readers_of_models
def test_two_recipes_stop_an_analysis_until_one_is_chosen(analysis, changed):
    store = changed(another_recipe).store
    with pytest.raises(
        FcaError,
        match=r"recipe_epochs of the rows read = 10, 5; allowed: one value on zoo: .* e\.g\. recipe_epochs=10$",
    ):
        analysis()(store)
    [first, *_] = analysis(query="recipe_epochs == 10")(store)
    assert len(first.frame)


def a_recipe_of_its_own(study):
    study.train("third", draw_subset(6, 2, 0), 0.5, recipe_lr=0.9)


def two_recipes_of_its_own(study):
    a_recipe_of_its_own(study)
    study.train("third", draw_subset(6, 2, 1), 0.5, recipe_lr=0.8)


@pytest.mark.wide
@readers_of_models
def test_a_recipe_for_each_model_must_be_declared(analysis, changed):
    store = changed(a_recipe_of_its_own).store
    with pytest.raises(FcaError, match=r"recipe_lr of the rows read = 0.1, 0.9; .*analysis.per_model=\[recipe_lr\]"):
        analysis()(store)
    assert analysis(per_model=["recipe_lr"])(store)
    with pytest.raises(FcaError, match=r"recipe_lr of the rows read = 0\.8, 0\.9"):
        analysis(per_model=["recipe_lr"])(changed(two_recipes_of_its_own).store)


def longer_where_there_are_fewer_images(study):
    study.train("short", draw_subset(6, 2, 0), 0.5, recipe_passes=5)
    study.train("short", draw_subset(6, 3, 0), 0.5, recipe_passes=3)


def two_lengths_of_one_subset(study):
    longer_where_there_are_fewer_images(study)
    study.train("longer", draw_subset(6, 2, 0), 0.5, recipe_passes=4)


def test_passes_may_differ_between_subsets_but_not_within_one(changed):
    assert FewClass()(changed(longer_where_there_are_fewer_images).store)
    with pytest.raises(FcaError, match="recipe_passes of the rows read = 4, 5"):
        FewClass()(changed(two_lengths_of_one_subset).store)


def of_unknown_adaptation(study):
    study.predict("quick", study.logits(seed=9), snapshot="best", weights="in1k")


def of_other_weights(study):
    study.predict("quick", study.logits(seed=9), snapshot="best", weights="in1k", adaptation="scratch")


@pytest.mark.parametrize("analysis", [FewClass, Correlation, Comparison, Variance], ids=lambda a: a.__name__)
@pytest.mark.parametrize(
    ("write", "message"),
    [
        (of_unknown_adaptation, "adaptation of the rows read = scratch, missing"),
        (of_other_weights, "weights of the rows read = in1k, missing"),
    ],
)
def test_two_full_models_of_one_name_are_not_averaged(analysis, write, message, changed):
    with pytest.raises(FcaError, match=message):
        analysis()(changed(write).store)


def a_snapshot(study):
    study.predict("quick", study.logits(seed=9), adaptation="scratch", snapshot="0.5", seed=0, **RECIPE)


@pytest.mark.wide
@pytest.mark.parametrize("analysis", [FewClass, Correlation, Comparison, Variance], ids=lambda a: a.__name__)
def test_snapshots_of_training_are_no_full_models(analysis, tables_of, changed):
    for one, other in zip(tables_of(analysis), analysis()(changed(a_snapshot).store), strict=True):
        pd.testing.assert_frame_equal(one.frame, other.frame)


def another_sampler(study):
    study.train("quick", draw_subset(6, 2, 0, "fca"), 0.5)


@readers_of_models
def test_two_samplers_are_not_averaged(analysis, changed):
    with pytest.raises(FcaError, match="sampler of the rows read = fca, uniform"):
        analysis()(changed(another_sampler).store)


def other_weights_of_an_encoder(study):
    study.embed("hog", study.features(seed=5), weights="other")


@pytest.mark.parametrize("analysis", [Similarity, Correlation, Prediction], ids=lambda a: a.__name__)
def test_two_weights_of_one_encoder_are_not_mixed(analysis, changed):
    with pytest.raises(FcaError, match="weights of the rows read = other, missing"):
        analysis()(changed(other_weights_of_an_encoder).store)
