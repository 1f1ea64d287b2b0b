"""Few-class tables against answers counted by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.comparison import Comparison
from fca.studies.few_class.correlation import Correlation
from fca.studies.few_class.figures.accuracy import rank_statements
from fca.studies.few_class.figures.prediction import prediction_statements
from fca.studies.few_class.figures.similarity import correlation_statements
from fca.studies.few_class.prediction import Prediction
from fca.subset import draw_subset, full_set
from fca.tables.rows import _warn_of_diverged
from fca.types import ClassSubset, FcaError
from tests.support.figure_claims import sentences_of
from tests.support.lab import KEYS


def tables(lab, **fields):
    return {table.name: table.frame for table in FewClass(**fields)(lab.store)}


def by_hand(lab, logits, classes, masked):
    """Image by image."""
    right = []
    for scores, true in zip(logits, lab.true, strict=True):
        if true in classes:
            allowed = classes if masked else range(len(scores))
            right.append(max(allowed, key=lambda c: scores[c]) == true)
    return np.mean(right), len(right)


@pytest.mark.parametrize("protocol", ["open", "masked"])
def test_a_full_model_is_scored_on_the_subsets_of_the_sub_models(lab, protocol):
    logits = lab.logits(seed=1)
    lab.predict("net", logits)
    for subset in lab.subsets():
        lab.train("net", subset, 0.9)
    points = tables(lab)["accuracy_points"]
    points = points[points["protocol"] == protocol]
    assert sorted(points["classes"]) == sorted(s.classes for s in lab.subsets())
    for line in points.itertuples():
        assert (line.top1, line.n_test) == by_hand(lab, logits, line.classes, protocol == "masked")
        assert line.top1_low < line.top1 <= line.top1_high


@pytest.mark.parametrize("lacking", ["dataset", "fingerprint", "model", "classes"])
def test_a_row_from_elsewhere_that_lacks_what_ours_have_is_left_out(lab, lacking, caplog):
    for subset in lab.subsets():
        lab.train("net", subset, 0.9)
    before = tables(lab)
    foreign = lab.train(**{"model": "other", "subset": lab.subsets()[0], "top1": 0.8, lacking: None})
    for name, frame in tables(lab).items():
        pd.testing.assert_frame_equal(frame, before[name])
    assert f"run {foreign} is left out: its row lacks one of dataset, fingerprint, model, classes" in caplog.text


def test_classes_are_joined_by_key_whatever_the_order_and_number_of_logits(lab):
    logits = lab.logits(seed=2)
    lab.predict("plain", logits)
    order = [3, 0, 5, 1, 4, 2]
    strange = np.insert(logits[:, order], 2, -99, axis=1)  # a class that the data set does not have
    keys = [lab.data.classes[c] for c in order]
    lab.predict("strange", strange, keys=[*keys[:2], "emu", *keys[2:]])
    points = tables(lab, ncl=[2, 4], seeds=[0, 1])["accuracy_points"]
    same = [
        points[points["model"] == m].drop(columns=["model", "run_id"]).reset_index(drop=True)
        for m in ("plain", "strange")
    ]
    pd.testing.assert_frame_equal(*same)
    assert len(same[0]) == 8


def test_a_sub_model_has_the_accuracy_of_its_row(lab):
    subset = draw_subset(6, 2, seed=4)
    run_id = lab.train("net", subset, 0.84, seed=3)
    [line] = tables(lab)["accuracy_points"].to_dict("records")
    assert line["run_id"] == run_id
    assert (line["protocol"], line["ncl"], line["subset_seed"], line["sampler"]) == ("sub", 2, 4, "uniform")
    assert (line["classes"], line["seed"], line["top1"], line["n_test"]) == (subset.classes, 3, 0.84, 50)


def test_classes_drawn_by_two_seeds_are_two_points_of_one_run(lab):
    draws = {seed: draw_subset(6, 2, seed) for seed in range(40)}
    twin = next(s for s in range(1, 40) if draws[s].classes == draws[0].classes)
    lab.train("net", draws[0], 0.8)
    lab.train("net", draw_subset(6, 3, twin), 0.7)  # where the store has met the seed
    points = tables(lab)["accuracy_points"]
    assert points.loc[points["ncl"] == 2, "subset_seed"].tolist() == [0, twin]
    assert len(set(points.loc[points["ncl"] == 2, "run_id"])) == 1


def test_a_named_list_of_classes_is_a_subset_without_a_seed(lab):
    classes = next(c for c in [(0, 1), (0, 2), (1, 2)] if c != draw_subset(6, 2, 0).classes)
    lab.train("net", ClassSubset(classes), 0.8)
    lab.train("net", draw_subset(6, 2, 0), 0.6)
    summary = tables(lab)["accuracy"]
    assert summary[["subsets", "top1"]].to_numpy().tolist() == [[2, 0.7]]
    assert tables(lab)["accuracy_points"].set_index("classes")["subset_seed"].isna()[[classes]].all()


def test_without_sub_models_a_full_model_is_scored_on_all_classes(lab):
    logits = lab.logits(seed=1)
    lab.predict("net", logits)
    points = tables(lab)["accuracy_points"]
    assert points["protocol"].tolist() == ["masked", "open"]
    assert points["top1"].tolist() == [(logits.argmax(axis=1) == lab.true).mean()] * 2
    assert points["subset_seed"].isna().all()


def test_a_grid_names_the_subsets(study):
    points = tables(study, ncl=[2, 5, 6], seeds=[0, 9], sampler="fca")["accuracy_points"]
    asked = {draw_subset(6, n, s, "fca").classes for n in (2, 5, 6) for s in (0, 9)}
    assert set(points.loc[points["protocol"] == "open", "classes"]) == asked
    assert set(points.loc[points["protocol"] == "sub", "classes"]) <= asked


def test_half_a_grid_is_refused(study):
    with pytest.raises(FcaError, match=r"analysis.ncl=\[2\] analysis.seeds=None; allowed: both, or neither"):
        tables(study, ncl=[2])


def test_the_mean_is_over_subsets_after_initialisation_seeds(lab):
    one, two = draw_subset(6, 2, 0), draw_subset(6, 2, 1)
    for subset, seed, top1 in [(one, 0, 0.5), (one, 1, 0.7), (two, 0, 0.9)]:
        lab.train("net", subset, top1, seed=seed)
    [line] = tables(lab)["accuracy"].to_dict("records")
    assert line["top1"] == pytest.approx((0.6 + 0.9) / 2)
    assert line["spread"] == pytest.approx(np.std([0.6, 0.9], ddof=1))
    assert (line["top1_low"], line["top1_high"], line["subsets"]) == (
        0.0,
        1.0,
        2,
    )  # t of two draws, cut off


def test_one_subset_has_no_spread_and_no_interval(lab):
    lab.train("net", full_set(6), 0.5)
    [line] = tables(lab)["accuracy"].to_dict("records")
    assert (line["top1"], line["subsets"]) == (0.5, 1)
    assert np.isnan([line["spread"], line["top1_low"], line["top1_high"]]).all()


def test_a_training_that_diverged_is_left_out_with_a_line(lab, caplog):
    lab.train("net", draw_subset(6, 2, 0), 0.5)
    lab.train("net", draw_subset(6, 2, 1), 0.9, flag="diverged")
    _warn_of_diverged.cache_clear()
    frames = tables(lab)
    assert frames["accuracy_points"]["top1"].tolist() == [0.5]
    assert frames["dcn"]["top1"].tolist() == [0.5]
    assert frames["accuracy"][["top1", "subsets"]].to_numpy().tolist() == [[0.5, 1]]
    assert [line for line in caplog.messages if "diverged" in line] == [
        "1 training that diverged is left out: no accuracy (fca results flag=diverged)"
    ]


def test_dcn_is_the_best_of_the_models_on_each_subset(lab):
    for seed, accuracies in enumerate([(0.5, 0.9, 0.7), (0.8, 0.6, 0.8)]):
        for model, top1 in zip("abc", accuracies, strict=True):
            lab.train(model, draw_subset(6, 3, seed), top1)
    lab.train("a", draw_subset(6, 3, 2), 0.4)
    dcn = tables(lab)["dcn"]
    columns = ["subset_seed", "top1", "model", "models"]
    assert dcn[columns].to_numpy().tolist() == [[0, 0.9, "b", 3], [1, 0.8, "a", 3], [2, 0.4, "a", 1]]


def test_equal_models_share_their_rank_and_incomplete_subsets_are_left_out(lab):
    for seed, accuracies in enumerate([(0.9, 0.9, 0.7), (0.5, 0.6, 0.8)]):
        for model, top1 in zip("abc", accuracies, strict=True):
            lab.train(model, draw_subset(6, 3, seed), top1)
    lab.train("a", draw_subset(6, 3, 2), 1.0)  # the others have no answer here
    ranks = tables(lab)["ranks"].set_index("model")
    assert ranks["rank"].to_dict() == {"a": (1.5 + 3) / 2, "b": (1.5 + 2) / 2, "c": (3 + 1) / 2}
    assert (ranks["subsets"] == 2).all()
    assert ranks.loc["a", ["rank_low", "rank_high"]].tolist() == [1.0, 3.0]  # t of two draws, cut off at three models


def test_ranks_on_few_classes_are_compared_with_the_full_models_ranks(lab):
    for number, model in enumerate("abcd"):
        lab.predict(model, lab.logits(seed=number, skill=number))
        for subset in lab.subsets(ncl=(2,)):
            lab.train(model, subset, 0.9 - number / 10)  # the reverse order
    reference = [lab.store.rows(f"model == '{m}'")["top1_open"].iloc[0] for m in "abcd"]
    assert sorted(reference) == reference
    agreement = tables(lab)["rank_agreement"].set_index("protocol")
    assert agreement.loc["sub", "rho"] == -1.0
    assert agreement.loc["sub", ["rho_low", "rho_high"]].isna().all()  # four alike subsets show no spread to go by
    assert agreement.loc["open", "rho"] > 0
    assert (agreement["models"] == 4).all()
    assert (agreement["subsets"] == 4).all()


@pytest.mark.parametrize(
    ("sub", "verdict"),
    [(0.99, "sub-models above open full models"), (0.02, "not above"), (None, "undecided")],
)
def test_the_gap_says_what_its_interval_allows(lab, sub, verdict):
    logits = lab.logits(seed=1)
    lab.predict("net", logits)
    wanted = []
    for subset in lab.subsets(ncl=(2,)):
        alternating = 0.98 if subset.seed % 2 else 0.02
        top1 = sub or alternating
        lab.train("net", subset, top1)
        wanted.append(top1 - by_hand(lab, logits, subset.classes, masked=False)[0])
    lab.train("net", full_set(6), 0.5)
    lab.train("other", lab.subsets()[0], 0.1)  # has no full model: no pair
    [line] = tables(lab)["gap"].to_dict("records")
    assert line["sub_minus_open"] == pytest.approx(np.mean(wanted))
    assert line["sub_minus_masked"] <= line["sub_minus_open"]
    assert line["sub_minus_open_low"] < line["sub_minus_open"] < line["sub_minus_open_high"]
    assert (line["ncl"], line["n"], line["models"], line["subsets"], line["verdict"]) == (2, 4, 1, 4, verdict)


def test_the_interval_of_the_gap_draws_subset_seeds_not_models(lab):
    for number, model in enumerate("abcdefgh"):
        lab.predict(model, lab.logits(seed=number))
        lab.train(model, draw_subset(6, 2, 0), 0.9)
    [line] = tables(lab)["gap"].to_dict("records")
    assert line["n"] == 8
    assert np.isnan(line["sub_minus_open_low"])  # eight models, but only one draw of classes
    assert line["verdict"] == "no interval: it takes two subset seeds that differ"


def test_models_alone_or_sub_models_alone_are_enough(lab):
    lab.predict("net", lab.logits(seed=1))
    assert tables(lab)["gap"].empty
    assert set(tables(lab)["accuracy"]["protocol"]) == {"open", "masked"}


def test_a_network_that_was_adapted_in_two_ways_is_two_models(lab):
    for subset in lab.subsets(ncl=(2,), seeds=range(3)):
        lab.train("net", subset, 0.6)
        lab.train("net", subset, 0.9, adaptation="probe", recipe_epochs=None, recipe_lr=None)
        lab.train("other", subset, 0.7)
    accuracy = next(table.frame for table in FewClass()(lab.store) if table.name == "accuracy")
    assert dict(zip(accuracy["model"], accuracy["top1"], strict=True)) == pytest.approx(
        {"net, probe": 0.9, "net": 0.6, "other": 0.7}
    )
    for query, models in {
        "model == 'net'": {"net, probe", "net"},  # the name that is stored, not that of the table
        "adaptation == 'probe'": {"net"},
    }.items():
        assert set(FewClass(query=query)(lab.store)[0].frame["model"]) == models


def test_recipes_may_all_differ_between_models_by_intention(lab):
    [subset] = lab.subsets(ncl=(2,), seeds=[0])
    lab.train("slow", subset, 0.6, recipe_epochs=99, recipe_lr=0.2)
    lab.train("quick", subset, 0.9)
    with pytest.raises(FcaError, match=r"or, for all of the recipe, \[recipe\]"):
        FewClass()(lab.store)
    assert {table.name for table in FewClass(per_model=["recipe"])(lab.store)} >= {"accuracy", "dcn"}


def test_grouped_accuracy_is_that_of_the_images_whose_class_is_in_a_group(lab, tmp_path):
    (tmp_path / "kinds.csv").write_text("class,group\nwolf,dog\ndog,dog\ncat,cat\n")
    logits = lab.logits(seed=5)
    lab.predict("net", logits)
    table = FewClass(ncl=[3], seeds=[0, 1, 2, 3], groups=str(tmp_path / "kinds.csv"))(lab.store)[0].frame
    p = softmax(logits.astype(np.float64), axis=1)
    dog = p[:, KEYS.index("wolf")] + p[:, KEYS.index("dog")] > p[:, KEYS.index("cat")]
    kind = {KEYS.index("wolf"): True, KEYS.index("dog"): True, KEYS.index("cat"): False}
    grouped = table[table["protocol"] == "grouped"]
    assert len(grouped), "some draw holds a class of a group"
    for row in grouped.to_dict("records"):
        inside = np.isin(lab.true, list(set(row["classes"]) & set(kind)))
        right = dog[inside] == np.array([kind[label] for label in lab.true[inside]])
        assert (row["top1"], row["n_test"]) == (pytest.approx(right.mean()), inside.sum())


def test_what_is_derived_from_models_at_the_level_of_chance_is_marked(lab):
    """Of ncl 2 both sub-models guess, of ncl 3 one is better; networks of all classes guess, too."""
    for seed, (model, top1) in enumerate({"a": 0.5, "b": 0.52}.items()):
        for subset in lab.subsets(ncl=(2,), seeds=range(5)):
            lab.train(model, subset, top1)
        for subset in lab.subsets(ncl=(3,), seeds=range(5)):
            lab.train(model, subset, 0.9 if model == "a" else 0.34)
        lab.predict(model, lab.logits(seed, skill=0.0))
    lab.embed("hog", lab.features(seed=3), split="test")
    found = tables(lab)
    assert found["ranks"].query("protocol == 'sub'").groupby("ncl")["at_chance"].all().tolist() == [True, False]
    assert found["gap"].set_index("ncl")["at_chance"].tolist() == [True, False]

    stability = Comparison()(lab.store)[1].frame
    pd.testing.assert_series_equal(
        stability.groupby(["protocol", "ncl"])["at_chance"].first(),
        found["ranks"].groupby(["protocol", "ncl"])["at_chance"].first(),
    )
    correlation = Correlation()(lab.store)[0].frame.groupby("target")["at_chance"].unique().map(list).to_dict()
    expected = {"DCN sub": [False], "DCN masked": [True], "a sub": [False], "b sub": [True], "b masked": [True]}
    assert {target: correlation[target] for target in expected} == expected
    for target, at_chance in (("sub", False), ("masked", True)):
        assert Prediction(target=target)(lab.store)[0].frame["at_chance"].eq(at_chance).all()


def test_sentences_about_models_at_the_level_of_chance_derive_nothing(lab):
    for model, top1 in {"a": 0.5, "b": 0.52, "c": 0.48}.items():
        for subset in lab.subsets(ncl=(2,), seeds=range(6)):
            lab.train(model, subset, top1)
    lab.embed("hog", lab.features(seed=3), split="test")
    correlation, points = Correlation()(lab.store)
    sentences = sentences_of(rank_statements, tables(lab)["ranks"])
    sentences += sentences_of(correlation_statements, correlation.frame, points.frame)
    sentences += sentences_of(prediction_statements, Prediction()(lab.store)[0].frame)
    assert sentences == [
        "zoo: best by mean rank among sub-models: none, all are at the level of chance (ncl 2).",
        "Not known: on zoo, all models are at the level of chance, so there is no accuracy to predict.",
        "Not known: all models are at the level of chance, so there is no accuracy to predict.",
    ]
