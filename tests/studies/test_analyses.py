"""What every analysis promises: nothing to read, one row, any order of rows, and no unnoticed mixing."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import is_dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import fca.studies
from fca.store import Store
from fca.store.columns import BASE
from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.comparison import Comparison
from fca.studies.few_class.correlation import Correlation
from fca.studies.few_class.prediction import Prediction
from fca.studies.few_class.similarity import Similarity
from fca.studies.few_class.variance import Variance
from fca.subset import draw_subset
from fca.tables import rows as select
from fca.types import FcaError, Table
from tests.studies.adaptive.support.live_tests import live
from tests.studies.reliance.support.cue_data import cue_data, network
from tests.studies.reliance.support.salient import salient
from tests.studies.search.support import searched_store as search_lab
from tests.studies.search.support.searched import searched
from tests.support.columns import task_columns
from tests.support.lab import RECIPE, Lab, copy_of

JUDGED = {"label_error_rules", "label_error_curve"}  # empty without verdicts
SMALL = {"adaptive_asked", "adaptive_trajectories", "adaptive_sessions"}  # empty below nine images a session
SMALL |= {"search_predictors"}  # empty below 21 subdomains
SMALL |= {"shape_bias"}  # empty where images have no second class
SMALL |= {"dependent_pairs", "dif_shown"}  # empty below five right and five wrong responses an image
CONTRARY = {"contradictions", "contradictions_shown"}  # empty where no image contradicts its level


def analyses():
    """Every class of a study that is called with a store and declares tables."""
    for module in pkgutil.walk_packages(fca.studies.__path__, "fca.studies."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and is_dataclass(found) and {"__call__", "tables"} <= set(vars(found)):
                yield found


@pytest.fixture(scope="module")
def written_study(written_study, tmp_path_factory):
    """The two models also answered images in fog, and one took an adaptive test."""
    study = copy_of(written_study, tmp_path_factory.mktemp("more") / "outputs")
    live(study, "slow", ncl=6, classes=range(6))
    for model in ("slow", "quick"):
        for severity in (1, 3):
            shift = f"corruption/fog/{severity}"
            study.answered(model, 0.9 - 0.2 * severity, shift, seed=0, adaptation="scratch", snapshot="best", **RECIPE)
    return study


@pytest.fixture(scope="module")
def masked_study(tmp_path_factory):
    """Networks trained on images with a cue, their answers with and without the object, maps, features and a layer."""
    lab = Lab(Store(tmp_path_factory.mktemp("masked") / "outputs"))
    area, rng = np.full(len(lab.true), 0.3, np.float32), np.random.default_rng(0)
    for strength in (0.0, 1.0):
        lab.data = cue_data("color", strength)
        lab.store.keep_items(lab.data)
        for seed in range(6):
            of = {"parent": network(lab, seed, clean=1.0, swap__background=1 - strength), "snapshot": "best"}
            gray = np.where(rng.random(len(area)) < 0.2 + 0.6 * strength, lab.true, (lab.true + 1) % 6)
            arrays = {"pred": gray.astype(np.int32), "logit_classes": np.array(lab.data.classes), "mask_area": area}
            arrays["examples"] = np.zeros((4, 64, 64, 3), np.uint8)
            about = {"task": "predict", "model": "net", "ncl": 6, "classes": range(6), "seed": seed, **of}
            for shift in ("ablate/gray_box", "noise/foreground/gaussian/0.25", "noise/background/gaussian/0.25"):
                lab.write(arrays, shift=shift, **about)
        salient(lab, **of)
    x = rng.random((len(lab.data.items), 8)).astype(np.float16)
    embed = lab.embed("net", x, split="all")
    layer = lab.write(task="train", model="net", adaptation="probe", parent=embed, ncl=6, classes=range(6), top1=1.0)
    weights = {"weight": np.eye(6, 8, dtype=np.float32), "bias": np.zeros(6, np.float32)}
    save_file(weights, lab.store.folder(layer) / "best.safetensors")
    return lab


@pytest.fixture(scope="module")
def searched_study(tmp_path_factory):
    """A search that visited every subdomain."""
    lab = Lab(Store(tmp_path_factory.mktemp("searched") / "outputs"))
    searched(lab, (np.random.default_rng(0).random((6, 8)) < 0.6).astype(np.int8))
    return lab


@pytest.fixture(scope="module")
def failing_study(tmp_path_factory):
    """The same with all that a search leaves: images, pictures, and fresh images of its rules."""
    lab = Lab(Store(tmp_path_factory.mktemp("failing") / "outputs"))
    search_lab.searched(lab)
    return lab


@pytest.fixture(scope="module")
def grouped_study(tmp_path_factory):
    """Answers of transformers and of other networks."""
    lab = Lab(Store(tmp_path_factory.mktemp("grouped") / "outputs"))
    lab.corrupted(dict.fromkeys(("vit", "swin", "slow", "quick"), 0.5), kinds=())
    return lab


@pytest.fixture(scope="module")
def lab_of(written_study, masked_study, searched_study, failing_study, grouped_study, recommended_study):
    """The study that has what an analysis reads."""
    of = {"reliance": masked_study, "search": searched_study, "failures": failing_study, "dif": grouped_study}
    of |= {"recommend": recommended_study}
    return lambda analysis: next(
        (of[part] for part in analysis.__module__.split(".")[::-1] if part in of), written_study
    )


@pytest.fixture(scope="module")
def tables_of(lab_of):
    """The tables of an analysis of its study, made once."""
    return cache(lambda analysis: analysis(**CHEAPER.get(analysis.__name__, {}))(lab_of(analysis).store))


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
def only(tmp_path_factory):
    """A store with nothing but what a function writes, made once for all analyses."""

    @cache
    def make(write):
        lab = Lab(Store(tmp_path_factory.mktemp("only") / "outputs"))
        write(lab)
        return lab

    return make


CHEAPER = {"ItemFit": {"replicates": 2}}  # settings that only make an analysis more precise
every_analysis = pytest.mark.parametrize("analysis", list(analyses()), ids=lambda a: a.__name__)


def test_the_folder_is_the_registry():
    assert {a.__name__ for a in analyses()} >= {"FewClass", "Similarity", "Correlation"}


def no_row(lab):
    pass


def a_description(lab):
    lab.write(task="describe")


def train(lab):
    lab.train("net", draw_subset(6, 2, 0), 0.7)


def predict(lab):
    lab.predict("net", lab.logits(seed=0))


def embed(lab):
    lab.embed("hog", lab.features(seed=0))


@every_analysis
def test_an_empty_store_is_an_error_that_says_what_makes_rows(analysis, only):
    with pytest.raises(FcaError, match=r"none among the 0 stored rows.*fca run"):
        analysis()(only(no_row).store)


@every_analysis
def test_rows_of_another_kind_are_counted_but_not_used(analysis, only):
    with pytest.raises(FcaError, match="none among the 1 stored rows"):
        analysis()(only(a_description).store)


@pytest.mark.wide
@every_analysis
@pytest.mark.parametrize("kind", [train, predict, embed], ids=lambda write: write.__name__)
def test_one_row_is_answered_or_named_as_too_little(analysis, kind, only):
    try:
        found = analysis()(only(kind).store)
    except FcaError as error:
        assert re.search("none among the 1 stored rows|subjects = 1; allowed: 2", str(error))  # noqa: PT017  either is right
    else:
        assert all(isinstance(table, Table) for table in found)


@every_analysis
@pytest.mark.slow
def test_the_order_of_rows_changes_nothing(analysis, lab_of, tmp_path):
    study = copy_of(lab_of(analysis), tmp_path / "outputs")
    before = analysis()(study.store)
    rows = study.store.rows()
    shuffled = rows.sample(frac=1, random_state=1)["run_id"].tolist()
    for number, run_id in enumerate(shuffled):
        again = {**study.store.row(run_id), "finished": f"2027-01-01T00:00:{number:06d}"}
        study.write(**again)
    assert study.store.rows()["run_id"].tolist() == shuffled
    for one, other in zip(before, analysis()(study.store), strict=True):
        assert one.runs == other.runs
        pd.testing.assert_frame_equal(one.frame, other.frame)


@pytest.mark.wide
@every_analysis
def test_tables_can_be_kept_and_say_where_they_come_from(analysis, tables_of, lab_of):
    store = lab_of(analysis).store
    known = set(store.rows()["run_id"])
    for table in tables_of(analysis):
        kept = pd.read_parquet(store.save(table) / "table.parquet")
        assert len(kept) == len(table.frame)
        assert len(kept) or table.name in JUDGED | CONTRARY | SMALL
        assert table.question.endswith(("?", ")"))
        assert re.search(r"arXiv|, \d{4}", table.source), "a paper, with its number or year"
        assert set(table.runs) <= known
        assert set(inspect.signature(analysis).parameters) <= set(table.parameters)


@every_analysis
def test_a_query_that_cannot_be_read_is_named(analysis, written_study):
    with pytest.raises(FcaError, match=r"^query = nlc < 5; allowed: comparisons .* columns: run_id, task"):
        analysis(query="nlc < 5")(written_study.store)


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


@pytest.mark.slow
@every_analysis
def test_initialisation_seeds_and_shifted_or_partial_answers_do_not_stop_it(analysis, lab_of, tmp_path):
    study = copy_of(lab_of(analysis), tmp_path / "outputs")
    before = {table.name: len(table.frame) for table in analysis()(study.store)}
    study.train("quick", draw_subset(6, 2, 0), 0.5, seed=1)
    study.write(task="predict", model="quick", ncl=2, classes=(0, 1), shift="clean")
    study.write(task="embed", encoder="hog", ncl=6, classes=range(6), shift="corruption/fog/3")
    study.write(task="score", model="quick", ncl=2, classes=(0, 1))
    after = {table.name: len(table.frame) for table in analysis()(study.store)}
    grown = {"accuracy_points": before.get("accuracy_points", 0) + 1}
    assert after == {**before, **{name: n for name, n in grown.items() if name in before}}


def test_every_column_of_a_row_is_an_axis_a_configuration_or_a_result():
    kinds = {str(column): column.kind for column in (*BASE, *task_columns())}
    axes = {"dataset", "model", "encoder", "ncl", "subset_seed", "classes", "seed", "groups"}
    axes |= {"limit"}  # within the fingerprint, and so in the name of the data set
    identity = {"run_id", "task", "parent", "fingerprint_kind"}
    config = {*select.CONFIG, *select.OF_WEIGHTS}
    measured = {name for name in kinds if name.startswith("top1") or kinds[name] is float}
    counted = {
        "n_train",
        "n_val",
        "n_test",
        "n_images",
        "best_epoch",
        "epochs_run",
        "flag",
        "params",
        "class_min",
        "checksum",
        "similarity_calls",
        "n_grouped",
        "n_fits",
        "fewest_images",
    }
    described = {name for name in kinds if name.startswith(("height_", "width_", "duplicates_"))}
    described |= {
        "n_unreadable",
        "n_unused",
        "n_damaged",
        "n_few_bits",
        "groups_across_splits",
        "group",
    }  # other groups are other splits: another fingerprint
    tested = {"policy", "estimator", "bank", "protocol", "n_asked", "n_pool", "rounds", "warning"}  # a line a test
    tested |= {f"asked_{level}" for level in ("easy", "medium", "hard")}
    tested |= {"batch", "threads"}  # of a measurement of speed
    tested |= {"precision", "n_calibration", "n_judged"}  # of a compiled network, which its label names; of a probe
    tested |= {"n_zero", "n_empty", "saliency_layer", "geometry"}
    tested |= {"domain", "subject", "target", "generator", "filter", "images", "second", "ended"}  # a line a search
    counted |= {"n_subdomains", "n_visited", "n_drawn", "n_accepted"}
    provenance = {"device", "host", "command", "commit", "versions", "finished"}
    known = axes | identity | config | measured | counted | described | tested | provenance
    assert set(kinds) - known == set(), "is this an axis of the analyses, or a setting that rows may not differ in?"


@pytest.mark.slow
def test_analyses_change_no_array(written_study, masked_study, lab_of):
    arrays = [path for lab in (written_study, masked_study) for path in sorted(lab.store.outputs.rglob("*.npy"))]
    before = [np.load(path).copy() for path in arrays]
    for analysis in analyses():
        analysis()(lab_of(analysis).store)
    for path, kept in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(np.load(path), kept)
