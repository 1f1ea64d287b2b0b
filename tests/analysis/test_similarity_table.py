"""Similarity of stored features on the right images and classes."""

from dataclasses import replace

import numpy as np
import pytest

from fca.analysis.similarity import Similarity
from fca.nouns import ClassSubset
from fca.stats.similarity import similarity_scores
from fca.subset import draw_subset, full_set


def table(lab, **fields):
    [found] = Similarity(**fields)(lab.store)
    return found.frame


def test_each_subset_scores_as_its_images_alone(lab):
    features = lab.features(seed=1)
    lab.embed("hog", features)
    for subset in lab.subsets():
        lab.train("net", subset, 0.5)
    frame = table(lab)
    assert sorted(frame["classes"]) == sorted(s.classes for s in lab.subsets())
    for line in frame.to_dict("records"):
        inside = np.isin(lab.true, line["classes"])
        alone = similarity_scores(features.astype(np.float16)[inside], lab.true[inside])._asdict()
        assert {name: line[name] for name in alone} == pytest.approx(alone, abs=1e-12)
        assert line["images"] == inside.sum()


def test_without_sub_models_all_classes_are_scored(lab):
    lab.embed("hog", lab.features(seed=1))
    frame = table(lab)
    assert frame["classes"].tolist() == [full_set(6).classes]
    assert frame["subset_seed"].isna().all()


def test_a_grid_needs_no_sub_models(lab):
    lab.embed("hog", lab.features(seed=1))
    frame = table(lab, ncl=[2, 3], seeds=[0, 5], sampler="fca")
    assert set(frame["classes"]) == {draw_subset(6, n, s, "fca").classes for n in (2, 3) for s in (0, 5)}
    assert set(frame["sampler"]) == {"fca"}


def test_two_encoders_are_two_lines_and_the_other_split_is_another_question(lab):
    lab.embed("hog", lab.features(seed=1))
    lab.embed("pixels", lab.features(seed=2))
    lab.embed("hog", lab.features(seed=3), split="train")  # as many images, by construction of this data set
    assert table(lab)[["encoder", "split"]].to_numpy().tolist() == [["hog", "test"], ["pixels", "test"]]
    assert table(lab, split="train")[["encoder", "split"]].to_numpy().tolist() == [["hog", "train"]]


def test_a_subset_with_a_class_of_one_image_has_no_score_but_a_reason(lab):
    items = lab.data.items
    wolves = items.index[(items["label"] == "wolf") & (items["split"] == "test")]
    fewer = items.drop(index=wolves[1:]).reset_index(drop=True)
    lab = replace(lab, data=replace(lab.data, items=fewer, fingerprint="one wolf"))
    lab.embed("hog", lab.features(seed=1))
    for classes in [(0, 1), (1, 2)]:
        lab.train("net", ClassSubset(classes), 0.5)
    frame = table(lab).set_index("classes")
    with_wolf, without = frame.loc[[(0, 1)]].iloc[0], frame.loc[[(1, 2)]].iloc[0]
    assert np.isnan(with_wolf["simss"])
    assert with_wolf["note"] == "images in test: wolf has 1; a class needs 2"
    assert with_wolf["images"] == 9
    assert not np.isnan(without["simss"])
