"""Difficulty scores of stored features: the right classes under the right keys, and every what-if as computed anew."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fca.stats.similarity import similarity_scores
from fca.studies.few_class.difficulty_map import DifficultyMap
from fca.types import FcaError
from tests.support.lab import KEYS, Lab, images


@pytest.fixture
def mapped(lab):
    """Features of six classes, and the tables of the default questions."""
    features = lab.features(seed=2).astype(np.float16)
    lab.embed("hog", features)
    return lab, features, tables(lab)


def tables(lab, **fields):
    return {table.name: table.frame for table in DifficultyMap(**fields)(lab.store)}


def simss(lab, features, keys):
    inside = np.isin(lab.true, [KEYS.index(key) for key in keys])
    return similarity_scores(features[inside], lab.true[inside]).simss


def test_every_pair_is_scored_under_its_keys_the_hardest_first(mapped):
    lab, features, found = mapped
    pairs = found["difficulty_pairs"]
    told = {frozenset((line.class_a, line.class_b)): line.simss for line in pairs.itertuples()}
    expected = {frozenset(pair): simss(lab, features, pair) for pair in itertools.combinations(KEYS, 2)}
    assert told == pytest.approx(expected, abs=1e-9)
    assert pairs["simss"].is_monotonic_increasing


def test_a_class_is_told_by_its_mean_and_its_hardest_pair(mapped):
    _, _, found = mapped
    pairs = found["difficulty_pairs"]
    for line in found["difficulty_classes"].to_dict("records"):
        own = pairs[(pairs["class_a"] == line["class"]) | (pairs["class_b"] == line["class"])]
        hardest = own.iloc[0]
        assert line["simss_mean"] == pytest.approx(own["simss"].mean())
        assert line["simss_nearest"] == hardest["simss"]
        assert {line["class"], line["nearest"]} == {hardest["class_a"], hardest["class_b"]}
        assert line["images"] == 8


def test_the_map_places_alike_classes_side_by_side(lab):
    angles = {"wolf": 0.0, "dog": 0.1, "cat": 1.5, "yak": 1.6, "ant": 3.0, "bee": 3.1}
    noise = np.random.default_rng(0).normal(0, 0.02, len(lab.true))
    angle = np.array([angles[KEYS[c]] for c in lab.true]) + noise
    lab.embed("hog", np.stack([np.cos(angle), np.sin(angle)], axis=1))
    found = tables(lab)
    place = found["difficulty_classes"].set_index("class")["place"]
    assert sorted(place) == list(range(6))
    assert [abs(place[a] - place[b]) for a, b in (("wolf", "dog"), ("cat", "yak"), ("ant", "bee"))] == [1, 1, 1]
    for line in found["difficulty_map"].itertuples():
        assert (place[line.class_a], place[line.class_b]) == (line.place_a, line.place_b)
    assert len(found["difficulty_map"]) == 15


def test_the_hardest_and_easiest_subsets_bound_the_random_ones(mapped):
    lab, features, found = mapped
    subsets = found["difficulty_subsets"]
    assert subsets["ncl"].tolist() == [2, 2, 3, 3, 5, 5]  # ten classes are not there
    for line in subsets.to_dict("records"):
        every = [simss(lab, features, keys) for keys in itertools.combinations(KEYS, line["ncl"])]
        best = min(every) if line["extreme"] == "hardest" else max(every)
        assert line["simss"] == pytest.approx(best, abs=1e-9)
        assert simss(lab, features, line["keys"]) == pytest.approx(best, abs=1e-9)
        assert tuple(KEYS[c] for c in line["classes"]) == line["keys"]
        assert line["random"] == len(every)
        assert line["random_mean"] == pytest.approx(np.mean(every))
        assert line["random_q05"] == pytest.approx(np.quantile(every, 0.05))


def test_what_ifs_are_scores_computed_anew(lab):
    features = lab.features(seed=2).astype(np.float16)
    lab.embed("hog", features)
    base = ["yak", "ant", "dog"]
    lines = tables(lab, classes=["yak", 3, "dog"])["difficulty_what_if"]
    assert set(lines["subset"]) == {("yak", "ant", "dog")}
    assert lines["simss_before"].to_numpy() == pytest.approx(simss(lab, features, base))
    added, merged = lines[lines["change"] == "add"], lines[lines["change"] == "merge"]
    assert set(added["class_a"]) == {"wolf", "cat", "bee"}
    for line in added.itertuples():
        assert line.simss_after == pytest.approx(simss(lab, features, [*base, line.class_a]), abs=1e-9)
    assert len(merged) == 3
    for line in merged.itertuples():
        labels = np.where(lab.true == KEYS.index(line.class_b), KEYS.index(line.class_a), lab.true)
        inside = np.isin(lab.true, [KEYS.index(key) for key in base])
        expected = similarity_scores(features[inside], labels[inside]).simss
        assert line.simss_after == pytest.approx(expected, abs=1e-9)
    assert lines["difference"].to_numpy() == pytest.approx(lines["simss_after"] - lines["simss_before"])


def test_what_ifs_start_from_the_hardest_five_unless_asked(mapped):
    _, _, found = mapped
    hardest = found["difficulty_subsets"].query("ncl == 5 and extreme == 'hardest'").iloc[0]
    assert set(found["difficulty_what_if"]["subset"]) == {hardest["keys"]}


def test_the_seed_names_the_random_subsets(mapped):
    lab, _, _ = mapped
    one, same, other = (tables(lab, sizes=[3], draws=10, seed=s)["difficulty_subsets"] for s in (4, 4, 5))
    pd.testing.assert_frame_equal(one, same)
    assert one["random_mean"].iloc[0] != other["random_mean"].iloc[0]
    assert set(one["random"]) == {10}


def test_a_class_of_one_image_is_listed_without_a_score(lab):
    items = lab.data.items
    wolves = items.index[(items["label"] == "wolf") & (items["split"] == "test")]
    fewer = items.drop(index=wolves[1:]).reset_index(drop=True)
    lab = replace(lab, data=replace(lab.data, items=fewer, fingerprint="one wolf"))
    lab.embed("hog", lab.features(seed=1))
    found = tables(lab)
    wolf = found["difficulty_classes"].set_index("class").loc["wolf"]
    assert wolf["note"] == "fewer than two images in test"
    assert wolf[["simss_mean", "nearest", "place"]].isna().all()
    assert len(found["difficulty_pairs"]) == 10


def test_a_data_set_of_single_images_is_named_when_there_is_no_other(lab):
    single = lab.data.items.groupby(["label", "split"], as_index=False).first()
    other = replace(lab, data=replace(lab.data, items=single, fingerprint="one each"))
    other.embed("hog", other.features(seed=2))
    with pytest.raises(FcaError, match="classes with two images in test of zoo = 0 or 1; allowed: 2 or more"):
        tables(lab)


def test_two_classes_have_a_pair_and_no_what_if(tmp_path, lab):
    other = Lab(lab.store, replace(images(keys=("sun", "moon")), name="sky", fingerprint="sky"))
    other.embed("hog", other.features(seed=1))
    found = tables(other, query="dataset == 'sky'")
    assert len(found["difficulty_pairs"]) == 1
    assert found["difficulty_subsets"]["ncl"].tolist() == [2, 2]
    assert found["difficulty_what_if"].empty


def test_a_map_shows_the_classes_with_the_hardest_pairs_only(lab, monkeypatch):
    monkeypatch.setattr("fca.studies.few_class.difficulty_map.MAP_CLASSES", 4)
    lab.embed("hog", lab.features(seed=2))
    found = tables(lab)
    classes = found["difficulty_classes"]
    shown = set(classes.loc[classes["place"].notna(), "class"])
    assert shown == set(classes.sort_values("simss_nearest").head(4)["class"])
    assert len(found["difficulty_map"]) == 6
    assert len(found["difficulty_pairs"]) == 15


def test_a_class_that_is_not_there_and_an_impossible_size_are_named(mapped):
    lab, _, _ = mapped
    with pytest.raises(FcaError, match="size of the subset = 1; allowed: 2 to 6"):
        tables(lab, sizes=[1])
    with pytest.raises(FcaError, match="eel; allowed: wolf, cat"):
        tables(lab, classes=["eel", "cat"])
