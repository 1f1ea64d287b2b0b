"""The gallery shows the right images, tells what was said, and finds their pictures in the store."""

import re

import numpy as np
import pytest

from fca.store import Store
from fca.studies.irt.figures.labels import gallery_statements
from fca.studies.irt.gallery import ACROSS, Gallery
from fca.types import FcaError
from tests.studies.irt.support.response_files import write
from tests.support.described import describe, pixels
from tests.support.figure_claims import sentences_of


def counts_of(predicted):
    """`cat (12), dog (3)` -> how many models predict each class."""
    return {name: int(number) for name, number in re.findall(r"([^ ,]+) \((\d+)\)", predicted)}


@pytest.fixture
def answered(lab):
    for number in range(5):
        lab.predict(f"net{number}", lab.logits(seed=number, skill=number), seed=0, adaptation="scratch")
    return lab


def test_each_kind_is_in_order_and_fills_a_grid(lab):
    for number in range(5):
        lab.predict(f"net{number}", lab.logits(seed=number % 2, skill=0.1 * number), seed=0, adaptation="scratch")
    [table] = Gallery(shown=10)(lab.store)
    frame = table.frame
    kind = dict(list(frame.groupby("kind")))
    assert sorted(kind) == ["easiest", "hardest", "suspect"]
    assert len(kind["hardest"]) == len(kind["easiest"]) == 10
    assert kind["hardest"]["difficulty"].is_monotonic_decreasing
    assert kind["easiest"]["difficulty"].is_monotonic_increasing
    assert kind["suspect"]["modal_wrong_share"].is_monotonic_decreasing
    for part in kind.values():
        ranks = list(range(1, len(part) + 1))
        assert (part["row"] * ACROSS + part["column"] + 1).tolist() == part["rank"].tolist() == ranks


def test_only_a_label_that_fewer_models_give_than_another_class_is_suspect(lab):
    for number in range(5):
        lab.predict(f"net{number}", lab.logits(seed=number % 2, skill=0.1 * number), seed=0, adaptation="scratch")
    [table] = Gallery(shown=10_000)(lab.store)
    suspects = table.frame[table.frame["kind"] == "suspect"]
    counts = [counts_of(line) for line in suspects["predicted"]]
    assert counts
    for label, by_class in zip(suspects["label"], counts, strict=True):
        others = [number for name, number in by_class.items() if name not in (label, "others")]
        assert max(others) > by_class.get(label, 0)


def test_no_label_is_suspect_where_the_models_predict_the_labels(answered):
    [table] = Gallery(shown=10)(answered.store)
    assert set(table.frame["kind"]) == {"hardest", "easiest"}


def test_no_image_is_both_among_the_hardest_and_among_the_easiest(answered):
    [table] = Gallery(shown=10_000)(answered.store)
    hardest, easiest = (
        set(table.frame.loc[table.frame["kind"] == kind, "image_id"]) for kind in ("hardest", "easiest")
    )
    assert hardest
    assert easiest
    assert not hardest & easiest


def test_what_was_said_counts_every_answer(answered):
    [table] = Gallery(shown=6)(answered.store)
    preds = [answered.store.array(run, "pred") for run in table.runs]
    keys, test = answered.data.classes, answered.data.items["image_id"].iloc[answered.data.rows("test")].tolist()
    for line in table.frame.to_dict("records"):
        said = [keys[pred[test.index(line["image_id"])]] for pred in preds]
        by_class = counts_of(line["predicted"])
        assert sum(by_class.values()) == 5
        assert all(number == said.count(name) for name, number in by_class.items() if name != "others")
        assert line["top1"] == said.count(line["label"]) / 5


def test_pictures_are_those_that_describe_stored_of_the_same_images(answered):
    described = describe(answered)
    [table] = Gallery(shown=5)(answered.store)
    at = answered.data.items["image_id"].tolist()
    for line in table.frame.to_dict("records"):
        assert line["thumbnail"].startswith("data:image/png;base64,")
        picture = pixels(line["thumbnail"])
        assert picture.shape == (64, 64, 3)
        assert (picture == at.index(line["image_id"])).all()
    assert described in table.runs


def test_without_a_describe_run_there_is_no_picture(answered):
    [table] = Gallery()(answered.store)
    assert table.frame["thumbnail"].isna().all()


def test_answers_from_a_file_find_the_pictures_of_the_set_they_name(lab, tmp_path):
    described = describe(lab)
    names = lab.data.items["image_id"].to_numpy(dtype=str)
    rng = np.random.default_rng(0)
    for name, items in (("named", names), ("unnamed", np.char.add("x", names))):
        labels = rng.integers(6, size=len(items))
        pred = np.where(rng.random((4, len(items))) < 0.7, labels, rng.integers(6, size=(4, len(items))))
        about = {"subjects": np.array(list("abcd")), "classes": np.array(lab.data.classes)}
        np.savez(tmp_path / f"{name}.npz", items=items, pred=pred, labels=labels, **about)
    files = [str(tmp_path / "named.npz"), str(tmp_path / "unnamed.npz")]
    [table] = Gallery(responses=files, shown=4)(lab.store)
    assert table.frame.groupby("dataset")["thumbnail"].count().to_dict() == {"named": 12, "unnamed": 0}
    assert table.runs == (described,)


def test_networks_that_guess_suspect_no_label(tmp_path):
    rng = np.random.default_rng(0)
    pred, labels = rng.integers(6, size=(4, 60)), rng.integers(6, size=60)
    about = {"subjects": np.array(list("abcd")), "classes": np.array(list("uvwxyz"))}
    np.savez(tmp_path / "guessed.npz", items=np.arange(60).astype(str), pred=pred, labels=labels, **about)
    [table] = Gallery(responses=[str(tmp_path / "guessed.npz")], shown=3)(Store(tmp_path / "outputs"))
    assert set(table.frame["kind"]) == {"hardest", "easiest"}
    sentences = sentences_of(gallery_statements, table.frame)
    assert sentences[0].startswith("The hardest image of guessed is ")
    assert not [sentence for sentence in sentences if "suspect" in sentence or "Look first" in sentence]


def test_answers_without_classes_have_no_suspects_and_nothing_said(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"s{i}," + ",".join(map(str, rng.integers(2, size=20))) for i in range(6)]
    (tmp_path / "bits.csv").write_text("\n".join(["subject," + ",".join(f"i{k}" for k in range(20)), *lines]))
    [table] = Gallery(responses=[str(tmp_path / "bits.csv")], shown=3)(Store(tmp_path / "outputs"))
    assert set(table.frame["kind"]) == {"hardest", "easiest"}
    assert table.frame["predicted"].isna().all()
    assert table.frame["modal_wrong_share"].isna().all()


def test_equal_difficulty_is_a_seeded_draw(tmp_path):
    file = write(tmp_path / "zoo.npz", items=200, subjects=4)
    shown = [
        Gallery(responses=[file], shown=5, seed=seed)(Store(tmp_path / "outputs"))[0].frame["image_id"].tolist()
        for seed in (0, 0, 1)
    ]
    assert shown[0] == shown[1] != shown[2]


def test_no_picture_at_all_cannot_be_asked_for(answered):
    with pytest.raises(FcaError, match=r"analysis\.shown = 0"):
        Gallery(shown=0)(answered.store)
