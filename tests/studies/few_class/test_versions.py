"""Looks at a data set, other versions of it and its cut for training: what is one data set and what are several."""

import dataclasses
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

from fca.data.splits import first_images, for_training
from fca.identity import fingerprint
from fca.store import Store
from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.correlation import Correlation
from fca.studies.few_class.prediction import Prediction
from fca.subset import draw_subset
from fca.tables.answers import clean_responses, rows_of_subjects
from fca.tables.rows import select
from fca.types import ImageData
from tests.support.lab import KEYS, Lab, images


def in_one_folder(version=""):
    """A set that is all test."""
    ids = [f"{key}/{i}.png" for key in KEYS for i in range(20)]
    items = pd.DataFrame({"image_id": ids, "label": [of.split("/")[0] for of in ids], "split": "test"})
    return ImageData("photos", items, KEYS, fingerprint(items, version), read=lambda _: None)


def study_of(store, data, seed, embedded=None, start=0, **columns):
    """Two full models, a sub-model of each on every subset, and features of `embedded`, or else of the data."""
    lab = Lab(store, data)
    lab.count = iter(range(start, start + 1000))
    limit = {} if data.limit is None else {"limit": data.limit}
    for at, model in enumerate(("a", "b")):
        lab.predict(model, lab.logits(seed + at), **limit, **columns)
        for subset in lab.subsets(seeds=range(3)):
            lab.train(model, subset, round(0.6 + 0.1 * at + 0.05 * subset.seed, 2), **limit, **columns)
    whole = Lab(store, embedded or data)
    whole.count = iter(range(start + 1000, start + 2000))
    whole.embed("hog", whole.features(seed), **limit)
    return lab


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


def sets(store, query=None):
    rows = select(store, query)
    return [sorted(set(part["dataset"])) for part in (rows.trained, rows.full, rows.embedded)]


def test_a_look_stands_beside_the_whole_set_and_changes_no_number_of_it(store):
    study_of(store, images(), 0)
    alone = {table.name: table.frame for table in FewClass()(store)}
    study_of(store, first_images(images(), 4), 5, start=3000)
    assert sets(store) == [["zoo", "zoo (limit 4)"]] * 3
    both = {table.name: table.frame for table in FewClass()(store)}
    for name, table in both.items():
        whole = table[table["dataset"] == "zoo"].reset_index(drop=True)
        pd.testing.assert_frame_equal(whole, alone[name], check_dtype=False)
    assert set(both["accuracy"]["dataset"]) == {"zoo", "zoo (limit 4)"}


@pytest.mark.parametrize("query", ["limit == 4", f"fingerprint == '{first_images(images(), 4).fingerprint}'"])
def test_a_query_selects_a_look_which_is_then_called_as_it_is_stored(store, query):
    study_of(store, images(), 0)
    study_of(store, first_images(images(), 4), 5, start=3000)
    trained, full, _ = sets(store, query)
    assert trained == full == ["zoo"]
    assert set(select(store, query).trained["limit"]) == {4}
    assert select(store, "dataset == 'zoo'").trained["dataset"].nunique() == 2, "a query asks for names as stored"


def test_a_query_on_columns_that_full_models_lack_still_selects_among_them(store):
    study_of(store, images(), 0, recipe_epochs=3)
    rows = select(store, "subset_seed == 0 and model == 'a' and recipe_epochs == 3")
    assert set(rows.full["model"]) == set(rows.trained["model"]) == {"a"}
    assert set(rows.trained["subset_seed"]) == {0}
    assert len(rows.embedded) == 1


def test_rows_of_older_versions_without_a_limit_are_called_by_their_fingerprint(store):
    look = dataclasses.replace(first_images(images(), 4), limit=None)
    study_of(store, images(), 0)
    study_of(store, look, 5, start=3000)
    assert sets(store) == [sorted(f"zoo ({one.fingerprint[:6]})" for one in (images(), look))] * 3


def test_two_looks_of_one_size_are_called_by_size_and_fingerprint(store):
    looks = [first_images(of, 4) for of in (images(), images(per_class=7))]
    for at, data in enumerate((images(), *looks)):
        study_of(store, data, at, start=3000 * at)
    named = [f"zoo (limit 4, {look.fingerprint[:6]})" for look in looks]
    assert sets(store) == [sorted(["zoo", *named])] * 3


def test_a_set_in_one_folder_and_its_cut_for_training_are_one_data_set(store):
    data = in_one_folder()
    cut = for_training(data)
    assert cut.fingerprint != data.fingerprint
    study_of(store, cut, 0, embedded=data)
    assert sets(store) == [["photos"]] * 3
    table, _ = Correlation()(store)
    assert set(table.frame["dataset"]) == {"photos"}


def test_two_versions_of_a_set_in_one_folder_are_two_each_with_its_own_features(store):
    versions = [in_one_folder(), in_one_folder("other pixels")]
    for at, data in enumerate(versions):
        study_of(store, for_training(data), at, embedded=data, start=3000 * at)
    named = sorted(f"photos ({data.fingerprint[:6]})" for data in versions)
    assert sets(store) == [named] * 3
    _, points = Correlation()(store)
    assert points.frame.groupby("dataset")["simss"].nunique().tolist() == [6, 6]
    assert not set.intersection(*(set(part) for _, part in points.frame.groupby("dataset")["simss"]))


def test_models_tested_on_all_images_and_on_the_cut_are_on_two_data_sets_that_share_features(store):
    data = in_one_folder()
    study_of(store, for_training(data), 0, embedded=data)
    Lab(store, data, iter([9999])).predict("zero-shot", Lab(store, data).logits(7))
    rows = select(store, None)
    assert set(rows.trained["dataset"]) == {"photos (70/10/20)"}
    assert rows.full.set_index("model")["dataset"].to_dict() == {
        "a": "photos (70/10/20)",
        "b": "photos (70/10/20)",
        "zero-shot": "photos (all test)",
    }
    assert rows.embedded["dataset"].tolist() == ["photos (70/10/20)", "photos (all test)"]
    assert set(Correlation()(store)[1].frame["dataset"]) == {"photos (70/10/20)", "photos (all test)"}
    found = {one.dataset: len(one.responses.subjects) for one in clean_responses(store, None)}
    assert found == {"photos (70/10/20)": 2, "photos (all test)": 1}


def test_responses_to_two_versions_are_two_matrices(store):
    whole, look = images(), first_images(images(), 4)
    for at, data in enumerate((whole, look)):
        study_of(store, data, at, start=3000 * at)
    found = {one.dataset: one.responses.correct.shape for one in clean_responses(store, None)}
    assert found == {"zoo": (2, 48), "zoo (limit 4)": (2, 24)}
    assert rows_of_subjects(store, None).groupby("dataset")["subject"].nunique().tolist() == [2, 2]


def test_versions_of_one_data_set_do_not_predict_each_other(store):
    study_of(store, images(), 0)
    study_of(store, first_images(images(), 4), 5, start=3000)
    table, points = Prediction()(store)
    assert set(points.frame["dataset"]) == {"zoo", "zoo (limit 4)"}
    assert set(table.frame["held_out"]) == {"subset seed"}
    assert set(table.frame["datasets"]) == {1}
    assert set(table.frame["seeds"]) == {3}, "the same draws of the classes in both"


def test_the_same_images_are_read_once_for_a_whole_report(store, monkeypatch):
    for at, data in enumerate((images(), first_images(images(), 4))):
        study_of(store, data, at, start=3000 * at)
    read = defaultdict(int)
    items = Store.items
    monkeypatch.setattr(Store, "items", lambda self, one: read.update({one: read[one] + 1}) or items(self, one))
    for _ in range(3):
        select(store, None)
    assert set(read.values()) == {1}


def test_a_subset_that_a_full_model_was_scored_on_is_there_without_a_sub_model(lab):
    parent = lab.predict("net", lab.logits(1))
    trained, scored = draw_subset(6, 2, 0), draw_subset(6, 3, 1)
    named = next(c for c in [(0, 1), (0, 2), (1, 2)] if c != trained.classes)
    lab.train("net", trained, 0.9)
    about = {"task": "score", "parent": parent, "model": "net", "seed": 0}
    for subset in (trained, scored):
        drawn = {"ncl": subset.ncl, "subset_seed": subset.seed, "sampler": subset.sampler, "classes": subset.classes}
        lab.write(**about, **drawn)
    lab.write(**about, ncl=2, classes=named)
    points = FewClass()(lab.store)[0].frame
    drawn = points.set_index("protocol").loc["open"].set_index("classes")
    assert sorted(drawn.index) == sorted([trained.classes, scored.classes, named])
    assert drawn.loc[[scored.classes], ["subset_seed", "sampler"]].to_numpy().tolist() == [[1, "uniform"]]
    assert drawn.loc[[named], "sampler"].tolist() == ["named"]
    assert drawn.loc[[named], "subset_seed"].isna().all()
    assert (points["protocol"] == "sub").sum() == 1
    assert np.isclose(points.loc[points["protocol"] == "masked", "n_test"], [16, 16, 24]).all()


def test_scores_of_a_sub_model_name_no_subset(lab):
    child = lab.write(task="predict", model="net", ncl=3, classes=(0, 1, 2))
    lab.predict("net", lab.logits(1))
    lab.write(task="score", parent=child, model="net", ncl=2, classes=(0, 1))
    assert set(FewClass()(lab.store)[0].frame["ncl"]) == {6}
