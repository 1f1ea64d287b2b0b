"""Similarity of stored features on the right images and classes."""

from dataclasses import replace

import numpy as np
import pytest

from fca.stats.similarity import class_similarity, fca_released, released_draw, similarity_scores
from fca.studies.few_class.similarity import Similarity
from fca.subset import draw_subset, full_set
from fca.types import ClassSubset


def table(lab, name="similarity", **fields):
    [found] = [t for t in Similarity(**fields)(lab.store) if t.name == name]
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


def test_a_data_set_of_one_image_a_class_has_reasons_and_stops_no_other(lab):
    lab.embed("hog", lab.features(seed=1))
    single = lab.data.items.groupby(["label", "split"], as_index=False).first()
    other = replace(lab, data=replace(lab.data, name="sample", items=single, fingerprint="one each"))
    other.embed("hog", other.features(seed=2))
    frame = table(lab).set_index("dataset")
    assert not np.isnan(frame.loc["zoo", "simss"])
    assert np.isnan(frame.loc["sample", "simss"])
    assert frame.loc["sample", "note"].startswith("images in test: wolf has 1, cat has 1")
    assert table(lab, "released")["dataset"].tolist() == ["zoo"]


def test_released_scores_go_through_the_grid_in_the_order_of_the_loop_and_of_the_draw(lab):
    features = lab.features(seed=1).astype(np.float16)
    lab.embed("hog", features)
    frame = table(lab, "released", ncl=[3, 2], seeds=[1, 0], sampler="fca")
    order = [(n, s) for n in (3, 2) for s in (0, 1)]
    assert frame[["ncl", "subset_seed"]].to_numpy().tolist() == [list(one) for one in order]
    logged = fca_released(features, lab.true, [released_draw(6, n, s) for n, s in order])
    assert frame["simss_released"].tolist() == [line.simss for line in logged]
    assert frame["s_beta_released"].tolist() == [line.s_beta for line in logged]
    assert frame["difference"].to_numpy() == pytest.approx(frame["simss_released"] - frame["simss"])


def test_a_share_of_the_classes_that_is_already_there_is_gone_through_again(lab):
    lab.embed("hog", lab.features(seed=1))
    frame = table(lab, "released", ncl=[2, 3, 0.4], seeds=[0, 1], sampler="fca")  # 0.4 of six classes: two
    assert frame["ncl"].tolist() == [2, 2, 3, 3, 2, 2]
    assert frame["step"].tolist() == list(range(6))
    first, again = frame.iloc[0], frame.iloc[4]
    assert (first["classes"], first["simss"]) == (again["classes"], again["simss"])
    assert first["simss_released"] != again["simss_released"]


def test_subsets_that_nothing_drew_are_scored_alone(lab):
    features = lab.features(seed=1).astype(np.float16)
    lab.embed("hog", features)
    for classes in [(0, 1), (1, 2)]:
        lab.train("net", ClassSubset(classes), 0.5)
    frame = table(lab, "released").set_index("classes")
    for classes in [(0, 1), (1, 2)]:
        assert frame.loc[[classes], "simss_released"].iloc[0] == fca_released(features, lab.true, [classes])[0].simss


def test_the_agreement_tells_the_differences_of_the_lines(lab):
    lab.embed("hog", lab.features(seed=1))
    lines = table(lab, "released", ncl=[2, 3, 5], seeds=[0, 1, 2])
    agreement = table(lab, "released_agreement", ncl=[2, 3, 5], seeds=[0, 1, 2]).iloc[0]
    assert agreement["subsets"] == 9
    apart = (lines["simss_released"] - lines["simss"]).to_numpy()
    assert agreement["difference"] == pytest.approx(apart.mean())
    assert agreement["difference_absolute"] == pytest.approx(np.abs(apart).mean())
    assert agreement["difference_largest"] == pytest.approx(np.abs(apart).max())
    assert agreement["r"] == pytest.approx(np.corrcoef(lines["simss"], lines["simss_released"])[0, 1])


def test_similarities_of_a_function_of_two_images_score_the_sampled_images(lab):
    sampled = np.sort(np.concatenate([np.flatnonzero(lab.true == c)[c % 2 : 5] for c in range(6)]))
    features = lab.features(seed=1)[sampled]
    pairs = class_similarity(features, lab.true[sampled]).astype(np.float32)
    about = {"task": "embed", "encoder": "pair", "ncl": 6, "classes": range(6), "similarity_calls": 400}
    lab.write({"similarity": pairs, "sampled": sampled.astype(np.int32)}, **about)
    for subset in lab.subsets():
        lab.train("net", subset, 0.5)
    for line in table(lab).to_dict("records"):
        inside = np.isin(lab.true[sampled], line["classes"])
        alone = similarity_scores(features[inside], lab.true[sampled][inside])
        assert line["simss"] == pytest.approx(alone.simss, abs=1e-6)  # stored in single precision
        assert line["images"] == inside.sum()
    assert table(lab, "released").empty
