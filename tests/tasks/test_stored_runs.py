"""A stored run answers the same, whether its training or a later prediction asks it."""

import numpy as np
import pytest

from fca.store import Store
from fca.tasks import predict as answers
from tests.conftest import SMALL
from tests.support.images import write_images

pytestmark = pytest.mark.slow  # trains networks

FOG = ["shift=corruption/fog", "shift.severities=[2]"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


def asked_both_ways(fca, store, *words):
    """The fog answers as a later prediction makes them and as the training's own plan does: two rows."""
    code, _, err = fca(*words, *SMALL)
    assert code == 0, err
    run_id = store.rows("task == 'train'").iloc[0]["run_id"]
    data = [word for word in words if word.startswith("dataset")]
    later = ["task=predict", "model=run", f"model.run_id={run_id}", "logger=none", "limit=8", *data, *FOG]
    assert fca(*later)[0] == 0
    [row] = store.rows("shift == 'corruption/fog/2'").to_dict("records")
    said = np.array(store.array(row["run_id"], "pred"))
    for path in store.folder(row["run_id"]).iterdir():
        path.unlink()
    assert fca(*words, *SMALL, *FOG)[0] == 0
    [again] = store.rows("shift == 'corruption/fog/2'").to_dict("records")
    assert again["run_id"] == row["run_id"]
    np.testing.assert_array_equal(store.array(row["run_id"], "pred"), said)
    return row, again


def test_a_set_of_one_split_is_predicted_as_its_training_cut_it(fca, store, tmp_path):
    folder = write_images(tmp_path / "images") / "train"  # a folder of classes, no splits
    row, again = asked_both_ways(fca, store, "dataset=folder", f"dataset.root={folder}")
    assert row["n_test"] == again["n_test"]
    assert store.rows()["fingerprint"].nunique() == 1, "no image that was trained on is predicted as test"


def test_a_head_of_all_classes_is_asked_about_its_subset_as_released(fca, store):
    row, again = asked_both_ways(fca, store, "compat=fca", "subset.classes=[1,4]")
    assert row["classes"] == again["classes"] == (1, 4)


@pytest.mark.parametrize(("room", "stored"), [(5.1, True), (4.9, False)])
def test_the_cache_holds_all_shifts_of_a_configuration_or_none(fca, monkeypatch, room, stored):
    opened = []
    open_pixels = answers.open_pixels

    def noted(*about):
        pixels = open_pixels(*about)
        opened.append(bool((pixels.shard[about[-1]] >= 0).all()))
        return pixels

    monkeypatch.setattr(answers, "open_pixels", noted)
    one = 80 * 32 * 32 * 3 / 1e9  # what the test images take under one shift: 8 of each class
    code, _, err = fca(*SMALL, "shift=corruption/fog", f"machine.cache_gb={room * one}")
    assert code == 0, err
    assert opened == [True, *5 * [stored]], "clean images, then 5 severities"


def test_what_is_asked_twice_is_one_run(fca, store):
    words = ["recipe.snapshots=[0.50]", "shift=corruption/fog", "shift.kinds=[fog,fog]", "shift.severities=[2,2]"]
    code, out, err = fca(*SMALL, *words)
    assert code == 0, err
    assert len(store.rows()) == len(out.strip().splitlines()) == 5, "a training, two snapshots, clean and fog"
