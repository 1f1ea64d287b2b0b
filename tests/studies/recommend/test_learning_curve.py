"""task=learning_curve: the probe on nested parts of the training images, judged as the probe itself."""

import numpy as np
import pytest
from PIL import Image

from fca.store import Store, results
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT_LOGITS

QUIET = ["dataset=digits", "logger=none", "machine.workers=1", "machine.accelerator=cpu", "subset.ncl=3"]


@pytest.mark.wide
def test_its_first_point_is_the_probe_that_is_delivered_on_the_same_features(fca, tmp_path):
    for line in (["task=learning_curve"], ["adaptation=probe"]):
        code, _, err = fca("model=hog", *line, *QUIET, "limit=40")
        assert code == 0, err

    store, rows = Store(tmp_path / "outputs"), results(tmp_path / "outputs").set_index("task")
    assert (rows.index == "embed").sum() == 1
    curve, probe = (rows.loc[task, "run_id"] for task in ("learning_curve", "train"))
    judged = store.array(probe, JUDGED_IMAGES)
    codes = store.items(rows.loc["train", "fingerprint"])["label"].cat.codes.to_numpy()
    labels = np.searchsorted(rows.loc["train", "classes"], codes)
    is_right = store.array(probe, LEFT_OUT_LOGITS).argmax(axis=1) == labels[judged]
    assert store.array(curve, JUDGED_IMAGES).tolist() == judged.tolist()
    assert store.array(curve, "right")[0].tolist() == is_right.tolist()

    row = rows.loc["learning_curve"]
    assert row["n_train"] + row["n_val"] == row["n_judged"] == len(judged)
    assert row["n_fits"] == store.array(curve, "fits").sum()
    assert row["fewest_images"] == pytest.approx(row["n_train"] / 8, rel=0.1)
    assert row["model"] == "hog"
    assert row["input_size"] == 32


def test_a_second_run_has_nothing_to_do(fca, tmp_path):
    for _ in range(2):
        assert fca("model=hog", "task=learning_curve", *QUIET, "limit=20")[0] == 0
    assert len(results(tmp_path / "outputs")) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=test_resnet"], "has no weights"),
        (["model=hog", "shift=corruption/fog"], "clean for task=learning_curve"),
        (["model=hog", "compat=fca"], "the original has no probes"),
        (["model=hog", "limit=3"], "counted once = 3; allowed: 4 or more, to halve them"),
    ],
)
def test_what_has_no_curve_is_refused_before_any_work(fca, tmp_path, words, message):
    code, _, err = fca("task=learning_curve", *words, *QUIET)
    assert code == 2
    assert message in err


def test_images_of_a_class_that_train_lacks_are_left_out_and_counted(fca, tmp_path):
    rng = np.random.default_rng(0)
    for split, keys in (("train", "ab"), ("test", "abc")):
        for key in keys:
            (tmp_path / "photos" / split / key).mkdir(parents=True)
            for i in range(10):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / key / f"{i}.png")
    words = ["dataset=folder", f"dataset.root={tmp_path / 'photos'}", "subset.ncl=2", *QUIET[1:-1]]
    code, _, err = fca("model=hog", "task=learning_curve", *words)
    assert code == 0, err
    rows = results(tmp_path / "outputs", "task == 'learning_curve'")
    assert rows["n_unused"].tolist() == [10]
