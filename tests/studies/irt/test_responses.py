"""The matrices of answers line up with images, subjects have names of their own, and files join what they belong to."""

import numpy as np
import pandas as pd
import pytest

from fca.studies.irt.fittable import shifted_responses
from fca.tables.answers import clean_responses
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses
from fca.types import FcaError


def images_of(lab):
    return lab.data.items.loc[lab.data.items["split"] == "test", "image_id"].tolist()


def right(lab, seed, share=0.6):
    return np.random.default_rng(seed).random(len(lab.true)) < share


def names(gathered):
    return gathered.responses.subjects["subject"].tolist()


def file_of(path, items, subjects=("file_a", "file_b"), seed=0, **columns):
    correct = np.random.default_rng(seed).integers(0, 2, size=(len(subjects), len(items))).astype(float)
    write_responses(Responses(correct, frame_of_subjects(subjects), frame_of_items(items), **columns), path)
    return correct


def test_answers_line_up_with_images_whatever_the_order_of_logits(lab):
    keys = ("dog", "ant", "unheard", "wolf", "bee", "cat", "yak")
    logits = np.random.default_rng(0).normal(size=(len(lab.true), 7)).astype(np.float32)
    lab.predict("net", logits, keys)
    [found] = clean_responses(lab.store, None)
    said = np.array(keys)[logits.argmax(axis=1)]
    assert found.responses.items["item"].tolist() == images_of(lab)
    assert found.responses.items["label"].tolist() == np.array(lab.data.classes)[lab.true].tolist()
    assert (found.responses.correct[0] == (said == found.responses.items["label"])).all()
    told = [found.responses.classes[at] if at >= 0 else "unheard" for at in found.responses.pred[0]]
    assert told == said.tolist()
    assert (found.dataset, found.fingerprint) == ("zoo", lab.data.fingerprint)


def test_sub_models_and_shifted_answers_are_not_among_the_clean(lab):
    lab.answered("net", right(lab, 0))
    lab.answered("net", right(lab, 1), "corruption/fog/3")
    lab.write(task="predict", model="part", ncl=2, classes=(0, 1))
    lab.answered("val", right(lab, 2), split="val")
    [found] = clean_responses(lab.store, None)
    assert names(found) == ["net"]
    assert len(found.runs) == 1


def test_subjects_are_named_by_what_tells_them_apart(lab):
    for snapshot in ("0.1", "0.5", "best"):
        lab.answered("resnet18", right(lab, 0), parent="a" * 12, snapshot=snapshot)
    lab.answered("vgg16", right(lab, 1), parent="b" * 12, snapshot="best")
    lab.answered("vit", right(lab, 2), weights="in1k")
    lab.answered("vit", right(lab, 3), weights="in21k")
    lab.answered("wide", right(lab, 4), parent="c" * 12, snapshot="best", seed=0, adaptation="scratch")
    lab.answered("wide", right(lab, 4), parent="d" * 12, snapshot="best", seed=1, adaptation="scratch")
    lab.answered("wide", right(lab, 4), parent="e" * 12, snapshot="best", seed=1, adaptation="probe")
    [found] = clean_responses(lab.store, None)
    assert names(found) == [
        "resnet18/0.1", "resnet18/0.5", "resnet18/best", "vgg16", "vit, in1k", "vit, in21k",
        "wide, probe", "wide, seed 0", "wide, seed 1",
    ]  # fmt: skip
    assert found.responses.subjects["model"].tolist() == ["resnet18"] * 3 + ["vgg16"] + ["vit"] * 2 + ["wide"] * 3
    assert found.responses.subjects["snapshot"].tolist()[:4] == ["0.1", "0.5", "best", "best"]


def test_two_rows_that_differ_in_their_recipe_alone_are_told_apart_by_their_run(lab):
    for number, lr in enumerate((0.1, 0.2)):
        lab.answered("net", right(lab, number), parent=f"{number:012x}", snapshot="best", recipe_lr=lr)
    [found] = clean_responses(lab.store, None)
    assert names(found) == ["net, run 000000000000", "net, run 000000000001"]


def test_a_stored_run_asked_under_a_shift_is_the_subject_that_was_trained(lab):
    for number, model in enumerate(("one", "two")):
        run = f"{number:012x}"
        lab.answered(model, right(lab, number), parent=run, snapshot="best", adaptation="scratch", seed=number)
        lab.answered(model, right(lab, number + 9), weights=f"{run}/0.1")
        for snapshot in ("best", "0.1"):
            lab.answered(model, right(lab, number), "corruption/fog/1", weights=f"{run}/{snapshot}")
    [(kind, found)] = shifted_responses(lab.store, None)
    assert (kind, names(found)) == ("fog", ["one/0.1", "one/best", "two/0.1", "two/best"])
    assert not np.isnan(found.responses.correct).any()
    assert len(found.runs) == 8


def test_corruptions_are_blocks_of_items_by_severity(lab):
    lab.corrupted({"low": 0.0, "high": 2.0}, kinds=("snow", "fog"), severities=(1, 3))
    found = dict(shifted_responses(lab.store, None))
    assert list(found) == ["fog", "snow"]
    responses = found["fog"].responses
    assert responses.correct.shape == (2, 3 * len(lab.true))
    assert responses.items["severity"].drop_duplicates().tolist() == [0, 1, 3]
    assert responses.items["corruption"].drop_duplicates().tolist() == ["clean", "fog"]
    assert responses.items["item"].iloc[-1] == f"{images_of(lab)[-1]}@corruption/fog/3"
    row = lab.store.rows("model == 'high' and shift == 'corruption/fog/3'")["run_id"].iloc[0]
    block = responses.correct[names(found["fog"]).index("high"), responses.items["severity"] == 3]
    assert (block == (lab.store.array(row, "pred") == lab.true)).all()


def test_subjects_without_every_severity_are_left_out_and_named(lab):
    lab.corrupted({"low": 0.0, "high": 2.0}, kinds=("fog",), severities=(1, 2))
    lab.answered("some", 0.5, "corruption/fog/2")
    [(_, found)] = shifted_responses(lab.store, None)
    assert names(found) == ["high", "low"]
    assert found.left_out == ("some lacks 1",)


def test_a_kind_that_no_two_subjects_answered_whole_costs_no_other_kind(lab, caplog):
    lab.corrupted({"low": 0.0, "high": 2.0}, kinds=("snow",), severities=(1, 2))
    for severity, model in enumerate(("one", "two"), 1):
        lab.answered(model, 0.5, f"corruption/fog/{severity}")
    assert [kind for kind, _ in shifted_responses(lab.store, None)] == ["snow"]
    assert "fog on zoo is left out: subjects with every severity of fog on zoo = 0" in caplog.text


def test_a_kind_that_no_two_subjects_answered_whole_is_an_error(lab):
    for severity, model in enumerate(("one", "two"), 1):
        lab.answered(model, 0.5, f"corruption/fog/{severity}")
    with pytest.raises(FcaError, match="every severity of fog on zoo = 0: one lacks 2; two lacks 1"):
        list(shifted_responses(lab.store, None))
    assert list(shifted_responses(lab.store, "model == 'one'")) == []


def test_a_subject_without_clean_answers_has_not_been_asked_them(lab):
    lab.corrupted({"low": 0.0, "high": 2.0}, kinds=("fog",), severities=(1,))
    lab.answered("late", 0.5, "corruption/fog/1")
    [(_, found)] = shifted_responses(lab.store, None)
    row = found.responses.correct[names(found).index("late")]
    assert np.isnan(row[: len(lab.true)]).all()
    assert not np.isnan(row[len(lab.true) :]).any()


def test_generated_and_published_images_of_one_kind_are_not_mixed(lab):
    for model in ("one", "two"):
        for source in ("corruption", "cifar_c"):
            lab.answered(model, 0.5, f"{source}/fog/1")
    assert [kind for kind, _ in shifted_responses(lab.store, None)] == ["cifar_c/fog", "corruption/fog"]


def test_a_file_is_a_data_set_by_its_stem(lab, tmp_path):
    correct = file_of(tmp_path / "shapes.csv.gz", ["x", "y"])
    lab.answered("net", 0.5)
    stored, found = clean_responses(lab.store, None, [str(tmp_path / "shapes.csv.gz")])
    assert (stored.dataset, found.dataset, found.fingerprint, found.runs) == ("zoo", "shapes", None, ())
    assert found.responses.correct.tolist() == correct.tolist()


def test_a_file_of_some_images_of_a_stored_data_set_is_more_subjects(lab, tmp_path):
    lab.answered("net", 0.5)
    some = images_of(lab)[5::-1]
    pred = np.array([[0, 1, -1, 0, 1, 0]] * 2)
    file_of(tmp_path / "people.npz", some, subjects=("ann", "bob"), pred=pred, classes=("dog", "ant"))
    [found] = clean_responses(lab.store, None, [str(tmp_path / "people.npz")])
    assert names(found) == ["net", "ann", "bob"]
    assert np.isnan(found.responses.correct[1:, 6:]).all()
    told = [found.responses.classes[at] if at >= 0 else None for at in found.responses.pred[1, 5::-1]]
    assert told == ["dog", "ant", None, "dog", "ant", "dog"]
    assert (found.responses.pred[1:, 6:] == -1).all()


def test_items_that_match_in_part_are_named(lab, tmp_path):
    lab.answered("net", 0.5)
    file_of(tmp_path / "people.csv", [*images_of(lab)[:3], "typo.png"])
    with pytest.raises(FcaError, match=r"1 of 4 items of .*people.csv = typo.png; allowed: all or none.*names 3"):
        clean_responses(lab.store, None, [str(tmp_path / "people.csv")])


def test_a_name_in_store_and_file_is_refused(lab, tmp_path):
    lab.answered("net", 0.5)
    file_of(tmp_path / "people.csv", images_of(lab), subjects=("net", "ann"))
    with pytest.raises(FcaError, match="subject names = net twice"):
        clean_responses(lab.store, None, [str(tmp_path / "people.csv")])
    file_of(tmp_path / "zoo.csv", ["x"])
    with pytest.raises(FcaError, match="no second data set called zoo"):
        clean_responses(lab.store, None, [str(tmp_path / "zoo.csv")])


def test_an_empty_store_is_said(lab):
    with pytest.raises(FcaError, match="clean test images = none among the 0 stored rows"):
        clean_responses(lab.store, None)
    assert list(shifted_responses(lab.store, None)) == []
    with pytest.raises(FcaError, match=r"query = nlc < 5"):
        clean_responses(lab.store, "nlc < 5")


def test_a_query_narrows_the_subjects(lab):
    lab.answered("one", 0.5)
    lab.answered("two", 0.5)
    [found] = clean_responses(lab.store, "model == 'two'")
    assert names(found) == ["two"]
    assert pd.isna(found.responses.subjects["snapshot"]).all()


def test_corruptions_of_stored_images_are_not_read_beside_those_at_the_reference_size(lab, caplog):
    """Under one name they are far apart, and would be one network that answers twice."""
    for model, seed in (("low", 0), ("high", 1)):
        lab.answered(model, right(lab, seed))
        lab.answered(model, right(lab, seed + 2), "corruption/fog/1")  # a row of before there was a reference size
        lab.answered(model, right(lab, seed + 4), "corruption/fog/2", corrupted_at="stored")
        lab.answered(model, right(lab, seed + 6), "corruption/fog/1", corrupted_at="reference")
        lab.answered(model, right(lab, seed + 8), "corruption/snow/1")
    found = dict(shifted_responses(lab.store, None))
    assert names(found["fog"]) == ["high", "low"]
    assert found["fog"].responses.items["severity"].drop_duplicates().tolist() == [0, 1]
    reference = lab.store.rows("corrupted_at == 'reference'")["run_id"]
    assert set(reference) < set(found["fog"].runs)
    assert names(found["snow"]) == ["high", "low"], "of it there is one kind only"
    assert "4 runs on zoo are left out: the images were corrupted as stored" in caplog.text
    [stored, _] = [one for _, one in shifted_responses(lab.store, "corrupted_at != 'reference'")]
    assert stored.responses.items["severity"].drop_duplicates().tolist() == [0, 1, 2]


def test_published_corruptions_whose_margin_was_cut_twice_are_left_out_by_that_reason(lab, caplog):
    """Nobody corrupted them as stored: they are ImageNet-C's own files."""
    for model, seed in (("low", 0), ("high", 1)):
        lab.answered(model, right(lab, seed))
        lab.answered(model, right(lab, seed + 2), "imagenet_c/fog/1")  # a row of before the margin was cut once
        lab.answered(model, right(lab, seed + 4), "imagenet_c/fog/1", corrupted_at="reference")
    [(_, fog)] = shifted_responses(lab.store, None)
    assert set(lab.store.rows("corrupted_at == 'reference'")["run_id"]) < set(fog.runs)
    assert (
        "2 runs on zoo are left out: the network's crop cut the margin of ImageNet-C's images a second" in caplog.text
    )
    assert "corrupted as stored" not in caplog.text
