"""What a run leaves: arrays that agree with each other and with its row; pieces that were lost are made again."""

import shutil
import sys

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binomtest

from fca.cli import run
from fca.store import Store, results
from tests.conftest import SMALL
from tests.support.images import write_images


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The store that one training leaves."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", list(sys.argv))
        assert run.main(["subset.classes=[2,5,7]", *SMALL]) == 0
    return folder / "outputs"


@pytest.fixture
def store(trained, fca, tmp_path):
    """A copy of it, where `fca` works."""
    return Store(shutil.copytree(trained, tmp_path / "outputs"))


def row_of(store, task):
    return store.rows(f"task == '{task}'").iloc[0]


def test_arrays_agree_with_the_logits_the_items_and_the_row(store):
    row = row_of(store, "predict")
    pred, p_true, p_max, logits, keys = (
        store.array(row["run_id"], name) for name in ("pred", "p_true", "p_max", "logits", "logit_classes")
    )
    items = store.items(row["fingerprint"])
    tested = items[(items["split"] == "test") & items["label"].isin(["2", "5", "7"])]
    assert keys.tolist() == ["2", "5", "7"]
    assert row["classes"] == (2, 5, 7)
    assert (pred.dtype, p_true.dtype, logits.dtype) == (np.int32, np.float32, np.float32)
    true = np.searchsorted(keys, tested["label"].astype(str))
    np.testing.assert_array_equal(pred, logits.argmax(axis=1))
    p = softmax(logits, axis=1)
    np.testing.assert_allclose(p_true, p[np.arange(len(true)), true], atol=1e-6)  # float32
    np.testing.assert_allclose(p_max, p.max(axis=1), atol=1e-6)
    right = int((pred == true).sum())
    interval = binomtest(right, len(true)).proportion_ci(method="wilson")
    assert row["n_test"] == len(true)
    assert row["top1_open"] == right / len(true)
    assert (row["top1_open_low"], row["top1_open_high"]) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_a_training_and_its_predictions_tell_the_same_accuracy(store):
    train, predict = row_of(store, "train"), row_of(store, "predict")
    assert train["top1"] == predict["top1_open"]
    assert predict["parent"] == train["run_id"]


def test_predictions_that_were_lost_come_back_equal_without_training_again(fca, store):
    row = row_of(store, "predict")
    before = np.array(store.array(row["run_id"], "logits"))
    finished = row_of(store, "train")["finished"]
    shutil.rmtree(store.folder(row["run_id"]))
    assert fca("subset.classes=[2,5,7]", *SMALL)[0] == 0
    np.testing.assert_array_equal(store.array(row["run_id"], "logits"), before)
    assert row_of(store, "train")["finished"] == finished


def test_a_trained_run_asked_as_a_model_is_found_done(fca, store):
    run_id = row_of(store, "train")["run_id"]
    code, out, err = fca("task=predict", "model=run", f"model.run_id={run_id}", "logger=none", "limit=8")
    assert code == 0, err
    assert row_of(store, "predict")["run_id"] in out
    assert len(results(store.outputs)) == 2


def test_an_encoder_that_a_run_trained_embeds_in_the_order_of_the_items(fca, store):
    run_id = row_of(store, "train")["run_id"]
    code, _, err = fca("task=embed", "model@encoder=run", f"encoder.run_id={run_id}", "logger=none", "limit=8")
    assert code == 0, err
    row = row_of(store, "embed")
    features = store.array(row["run_id"], "features")
    items = store.items(row["fingerprint"])
    assert features.dtype == np.float16
    assert len(features) == (items["split"] == "test").sum() == row["n_test"]


def test_a_network_that_guesses_is_flagged(fca, tmp_path):
    code, out, _ = fca("subset.ncl=2", "recipe.lr=1e-9", "recipe.warmup_epochs=0", *SMALL)
    assert code == 0
    assert "chance!" in out
    assert results(tmp_path / "outputs", "task == 'train'")["flag"].tolist() == ["chance"]


def test_naming_the_commonest_class_of_unequal_ones_is_chance(fca, tmp_path):
    images = write_images(tmp_path / "images", per_class=10, classes=("ant", "bee"))
    for i in range(2, 10):
        (images / "test" / "bee" / f"{i}.png").unlink()  # 10 ants and 2 bees: ten of twelve right by saying ant
    words = ["dataset=folder", f"dataset.root={images}", "recipe.lr=1e-9", "recipe.warmup_epochs=0"]
    assert fca(*words, "logger=none", "recipe.epochs=1", "recipe.min_steps=0")[0] == 0
    row = results(tmp_path / "outputs", "task == 'train'").iloc[0]
    assert row["top1"] in (10 / 12, 2 / 12)
    assert row["flag"] == "chance"


def test_a_network_that_diverges_is_flagged(fca, tmp_path):
    code, out, err = fca("subset.ncl=2", "recipe.lr=1e20", "recipe.optimiser=sgd", "recipe.grad_clip=0", *SMALL)
    assert code == 0, err
    assert "diverged!" in out
    assert results(tmp_path / "outputs", "task == 'train'")["flag"].tolist() == ["diverged"]


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_run(fca, store, tmp_path):
    first = row_of(store, "predict")
    logits = np.array(store.array(first["run_id"], "logits"))
    assert fca("subset.classes=[2,5,7]", "outputs=again", *SMALL)[0] == 0
    again = Store(tmp_path / "again")
    np.testing.assert_array_equal(again.array(first["run_id"], "logits"), logits)
    assert fca("subset.classes=[2,5,7]", "seed=1", *SMALL)[0] == 0
    assert len(store.rows("task == 'train'")) == 2
