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

import fca.studies
from fca.store import Store
from fca.store.columns import BASE
from fca.subset import draw_subset
from fca.tables import rows as select
from fca.types import FcaError, Table
from tests.support.columns import task_columns
from tests.support.lab import RECIPE, Lab, copy_of
from tests.support.of_studies import parts

OF_STUDIES = parts("analysed")  # `add`, `stores`, `MAY_BE_EMPTY`, `CHEAPER`: see tests/studies/irt/support/analysed.py
MAY_BE_EMPTY = {name for part in OF_STUDIES for name in part.MAY_BE_EMPTY}
CHEAPER = {name: keys for part in OF_STUDIES for name, keys in part.CHEAPER.items()}


def analyses():
    """Every class of a study that is called with a store and declares tables."""
    for module in pkgutil.walk_packages(fca.studies.__path__, "fca.studies."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and is_dataclass(found) and {"__call__", "tables"} <= set(vars(found)):
                yield found


@pytest.fixture(scope="module")
def written_study(written_study, tmp_path_factory):
    """The two models also answered images in fog; and what studies add."""
    study = copy_of(written_study, tmp_path_factory.mktemp("more") / "outputs")
    for part in OF_STUDIES:
        part.add(study)
    for model in ("slow", "quick"):
        for severity in (1, 3):
            shift = f"corruption/fog/{severity}"
            study.answered(model, 0.9 - 0.2 * severity, shift, seed=0, adaptation="scratch", snapshot="best", **RECIPE)
    return study


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores that studies bring for their analyses, by a part of the name of the analysis' module."""
    return {name: lab for part in OF_STUDIES for name, lab in part.stores(tmp_path_factory).items()}


@pytest.fixture(scope="module")
def lab_of(written_study, stores):
    """The study that has what an analysis reads."""
    return lambda analysis: next(
        (stores[part] for part in analysis.__module__.split(".")[::-1] if part in stores), written_study
    )


@pytest.fixture(scope="module")
def tables_of(lab_of):
    """The tables of an analysis of its study, made once."""
    return cache(lambda analysis: analysis(**CHEAPER.get(analysis.__name__, {}))(lab_of(analysis).store))


@pytest.fixture(scope="module")
def only(tmp_path_factory):
    """A store with nothing but what a function writes, made once for all analyses."""

    @cache
    def make(write):
        lab = Lab(Store(tmp_path_factory.mktemp("only") / "outputs"))
        write(lab)
        return lab

    return make


every_analysis = pytest.mark.parametrize("analysis", list(analyses()), ids=lambda a: a.__name__)


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
        assert len(kept) or table.name in MAY_BE_EMPTY
        assert table.question.endswith(("?", ")"))
        assert re.search(r"arXiv|, \d{4}", table.source), "a paper, with its number or year"
        assert set(table.runs) <= known
        assert set(inspect.signature(analysis).parameters) <= set(table.parameters)


@every_analysis
def test_a_query_that_cannot_be_read_is_named(analysis, written_study):
    with pytest.raises(FcaError, match=r"^query = nlc < 5; allowed: comparisons .* columns: run_id, task"):
        analysis(query="nlc < 5")(written_study.store)


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
    kinds = {str(column): column.value_type for column in (*BASE, *task_columns())}
    axes = {"dataset", "model", "encoder", "ncl", "subset_seed", "classes", "seed", "groups"}
    axes |= {"limit"}  # within the fingerprint, and so in the name of the data set
    identity = {"run_id", "task", "parent", "fingerprint_kind"}
    config = {*select.CONFIG, *select.WEIGHT_COLUMNS}
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
    tested = {"policy", "estimator", "bank", "protocol", "n_evaluated", "n_pool", "rounds", "warning"}  # a line a test
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
def test_analyses_change_no_array(written_study, stores, lab_of):
    arrays = [path for lab in (written_study, *stores.values()) for path in sorted(lab.store.outputs.rglob("*.npy"))]
    before = [np.load(path).copy() for path in arrays]
    for analysis in analyses():
        analysis()(lab_of(analysis).store)
    for path, kept in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(np.load(path), kept)
