"""Answers under shifts: one run a shift and snapshot, the model loaded once, the pixels the shift's own."""

import numpy as np
import pytest

from fca.data.arrays import Digits
from fca.data.pixels import shifted
from fca.data.splits import Share
from fca.models.stored import StoredRun
from fca.shifts.corruption import Corruption
from fca.store import Store
from tests.conftest import SMALL

pytestmark = pytest.mark.slow  # trains networks for their snapshots

FOG = ["shift=corruption/fog", "shift.severities=[1,5]"]
DIGITS = Digits("1", test=Share(0.2, 0), val=Share(0.1, 0), mirror=False)
NAMES = ["corruption/fog/1", "corruption/fog/5"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.fixture
def trained(fca, store):
    """A run with two snapshots, its answers on clean images and under fog."""
    code, _, err = fca("subset=all", *SMALL, "recipe.snapshots=[0.1,0.5]", *FOG)
    assert code == 0, err
    return store.rows("task == 'train'").iloc[0]["run_id"]


def test_training_answers_with_every_snapshot_under_every_shift(store, trained):
    rows = store.rows("task == 'predict'")
    assert set(zip(rows["snapshot"], rows["shift"], strict=True)) == {
        (snapshot, shift) for snapshot in ("0.1", "0.5", "best") for shift in ("clean", *NAMES)
    }
    assert len(rows) == 9
    assert set(rows["parent"]) == {trained}
    for row in rows.to_dict("records"):
        folder = store.folder(row["run_id"])
        assert (folder / "pred.npy").exists()
        assert (folder / "logits.npy").exists() == (row["shift"] == "clean"), "logits of shifted images take room"


def test_a_shift_asked_later_finds_the_same_runs_and_trains_nothing_again(fca, store, trained):
    before = set(store.rows()["run_id"])
    line = ["task=predict", "model=run", f"model.run_id={trained}", "model.snapshot=0.5", "logger=none", "limit=8"]
    code, _, err = fca(*line, *FOG)
    assert code == 0, err
    assert set(store.rows()["run_id"]) == before, "the same weights, images and shifts are the same runs"
    assert fca("subset=all", *SMALL, "recipe.snapshots=[0.1,0.5]", "shift=corruption/contrast")[0] == 0
    new = store.rows().query("run_id not in @before")
    assert set(new["task"]) == {"predict"}
    assert len(new) == 15


def test_the_answers_are_those_of_the_network_on_the_shifted_pixels(store, trained):
    import torch

    from fca.data.splits import first_images

    data = first_images(DIGITS.load(), 8)
    row = store.rows("shift == 'corruption/fog/5' and snapshot == 'best'").iloc[0]
    items = store.items(row["fingerprint"])
    tested = np.flatnonzero(items["split"] == "test")
    classifier = StoredRun(str(store.outputs), trained, "best").build()
    read = {image: i for i, image in enumerate(data.items["image_id"])}
    fog = Corruption("fog", 5, seed=0).reader(data)
    said = []
    classifier.module.eval()
    for image_id in items["image_id"].iloc[tested]:
        pixels = classifier.geometry(fog(read[image_id]))[0]
        with torch.inference_mode():
            batch = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
            said.append(int(classifier.module(classifier.normalise(batch)).argmax()))
    np.testing.assert_array_equal(store.array(row["run_id"], "pred"), said)


def test_shifted_images_are_those_of_one_split_in_their_order_under_another_name():
    data = DIGITS.load()
    view = shifted(data, Corruption("contrast", 5), "test")
    rows = data.rows("test")
    assert view.items["image_id"].tolist() == data.items["image_id"].iloc[rows].tolist()
    assert view.fingerprint != data.fingerprint
    assert view.read(3).std() < data.read(int(rows[3])).std(), "less contrast"


def test_a_probe_answers_under_a_shift(fca, store):
    code, _, err = fca("adaptation=probe", "model=hog", "subset.classes=[0,9]", *SMALL, *FOG)
    assert code == 0, err
    rows = store.rows("task == 'predict'")
    assert sorted(rows["shift"]) == ["clean", *NAMES]
    clean = rows.set_index("shift")["top1_open"]
    assert clean[NAMES[1]] <= clean["clean"]


@pytest.mark.parametrize("task", ["embed", "describe"])
def test_tasks_that_look_at_images_as_they_are_refuse_a_shift(fca, task):
    code, _, err = fca(f"task={task}", *SMALL, *FOG)
    assert code == 2
    assert f"shift = {', '.join(NAMES)}; allowed: clean for task={task}" in err


def test_a_subset_of_shifted_images_is_scored_from_logits_that_must_be_kept(fca, store, trained):
    line = ["task=predict", "model=run", f"model.run_id={trained}", "logger=none", "limit=8", "subset.ncl=3", *FOG]
    code, _, err = fca(*line)
    assert code == 2
    assert "task.keep = None" in err
    code, _, err = fca(*line, "task.keep=logits")
    assert code == 2
    assert "stored: the run was made without task.keep=logits" in err
    code, _, err = fca(*line, "task.keep=logits", "shift.severities=[3]")
    assert code == 0, err
    score = store.rows("task == 'score' and shift == 'corruption/fog/3'").iloc[0]
    assert score["top1_masked"] >= score["top1_open"]
    code, _, err = fca(*line, "task.keep=all")
    assert code == 2
    assert "task.keep = all; allowed: null or logits" in err
