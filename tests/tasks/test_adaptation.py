"""Three adaptations of one network; and training as the Few-Class Arena was released."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeClassifier

from fca.models.stored import StoredRun
from fca.store import Store
from tests.conftest import SMALL

pytestmark = pytest.mark.slow  # trains many networks

LINE = ["model=cifar_resnet20", "subset.classes=[2,5,7]", *SMALL]


def row_of(store, query):
    [row] = store.rows(query).to_dict("records")
    return row


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.fixture
def learnt(fca, store):
    """A network that knows other digits, from scratch."""
    assert fca("model=cifar_resnet20", "subset.classes=[0,1,3]", *SMALL)[0] == 0
    return "model.run_id=" + row_of(store, "task == 'train'")["run_id"]


def test_a_probe_is_scikit_learn_s_ridge_on_the_features_of_one_pass(fca, store):
    for seed in (0, 1):
        code, _, err = fca("adaptation=probe", "model=hog", f"seed={seed}", "subset.classes=[2,5,7]", *SMALL)
        assert code == 0, err
    code, _, err = fca("adaptation=probe", "model=hog", "subset.classes=[0,9]", *SMALL)
    assert code == 0, err
    rows = store.rows()
    assert sorted(rows["task"]) == ["embed", "predict", "predict", "train", "train"], "seeds and subsets share a pass"
    train = row_of(store, "task == 'train' and ncl == 3")
    assert (train["adaptation"], train["parent"]) == ("probe", row_of(store, "task == 'embed'")["run_id"])
    assert pd.isna(train["seed"]), "an exact solution has no seed"
    items = store.items(train["fingerprint"])
    chosen = items["label"].isin(["2", "5", "7"])
    features = store.array(train["parent"], "features").astype(np.float64)
    fit, test = (chosen & (items["split"] == split) for split in ("train", "test"))
    x = features[fit]
    alpha = train["penalty"] * np.square(x - x.mean(axis=0)).mean() * len(x)
    ridge = RidgeClassifier(alpha=alpha).fit(x, items["label"][fit].astype(str))
    assert train["top1"] == pytest.approx(ridge.score(features[test], items["label"][test].astype(str)))
    assert (train["n_train"], train["n_test"]) == (fit.sum(), test.sum())


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_probe_of_features_that_are_not_finite_is_refused(fca, store, monkeypatch, split):
    read = Store.array

    def with_an_overflow(self, run_id, name, **options):
        values = np.array(read(self, run_id, name, **options))
        splits = self.items(row_of(self, "task == 'embed'")["fingerprint"])["split"]
        values[np.flatnonzero(splits == split), 0] = np.inf
        return values

    monkeypatch.setattr(Store, "array", with_an_overflow)
    code, out, err = fca("adaptation=probe", "model=hog", *SMALL)
    assert code == 2
    assert "images with infinite or missing features = " in out + err
    assert store.rows()["task"].tolist() == ["embed"]


def test_a_probe_is_a_model_that_answers_as_its_run_did(fca, store, learnt):
    code, _, err = fca("adaptation=probe", "model=run", learnt, "subset.classes=[2,5,7]", *SMALL)
    assert code == 0, err
    probe = row_of(store, "adaptation == 'probe' and task == 'train'")
    classifier = StoredRun(str(store.outputs), probe["run_id"], "best").build()
    assert classifier.classes == ("2", "5", "7")
    code, _, err = fca("task=predict", "model=run", f"model.run_id={probe['run_id']}", "logger=none", "limit=8")
    assert code == 0, err
    again = row_of(store, f"parent == '{probe['run_id']}' and task == 'predict'")
    assert again["top1_open"] == probe["top1"]
    items = store.items(probe["fingerprint"])
    shown = (items["split"] == "test") & items["label"].isin(["2", "5", "7"])
    features = store.array(row_of(store, "task == 'embed'")["run_id"], "features")[shown].astype(np.float32)
    weight, bias = (layer.detach().numpy() for layer in classifier.head.parameters())
    logits = store.array(again["run_id"], "logits")
    assert features @ weight.T + bias == pytest.approx(logits, rel=1e-3, abs=1e-2)  # features are stored as float16


def test_from_scratch_weights_that_are_given_do_not_count(fca, store, learnt, tmp_path):
    weights = tmp_path / "outputs" / "runs" / learnt.partition("=")[2] / "best.safetensors"
    given = [f"model.weights={weights}", "model.classes=['0','1','3']"]
    assert fca(*LINE)[0] == 0
    before = len(store.rows())
    code, _, err = fca(*LINE, *given, "adaptation=scratch")
    assert code == 0, err
    assert len(store.rows()) == before, "the same run, found again"
    assert fca(*LINE, *given)[0] == 0
    tuned = row_of(store, "adaptation == 'finetune' and task == 'train'")
    assert tuned["recipe_lr"] == pytest.approx(0.1 * 0.002), "finetune_lr is a share of lr"


def test_as_released_the_head_has_all_classes_and_the_test_images_choose(fca, store):
    code, _, err = fca(*LINE, "compat=fca")
    assert code == 0, err
    train, predict = row_of(store, "task == 'train'"), row_of(store, "task == 'predict'")
    assert (train["compat"], train["classes"], predict["classes"]) == ("fca", (2, 5, 7), (2, 5, 7))
    assert store.array(predict["run_id"], "logits").shape == (train["n_test"], 10)
    assert train["n_val"] == train["n_test"]
    assert train["val_top1"] == train["top1"]
    assert fca(*LINE)[0] == 0
    ours = row_of(store, "task == 'train' and compat == None")
    assert train["n_train"] == ours["n_train"] + ours["n_val"]


def test_a_few_images_of_every_class_choose_the_epoch_and_the_row_has_the_recipe_in_plain_values(fca, store):
    words = ["recipe.val_max=5", "+recipe.optimiser_options.eps=1e-6", "recipe.patience=1", "recipe.epochs=6"]
    assert fca(*LINE, *words)[0] == 0
    row = row_of(store, "task == 'train'")
    assert (row["n_val"], row["recipe_val_max"]) == (5, 5)
    assert (row["recipe_optimiser_options"], row["recipe_augment"]) == ('{"eps": 1e-06}', "none")
    assert row["epochs_run"] == min(row["best_epoch"] + 1, 6)
    assert not {"recipe_steps", "recipe_min_steps"} & set(row)


def test_digits_are_never_mirrored(fca, store):
    assert fca(*LINE, "recipe.flip=true")[0] == 0
    before = len(store.rows())
    assert fca(*LINE, "recipe.flip=false")[0] == 0
    assert len(store.rows()) == before, "no flip was asked for in the end: the same run"
    assert fca(*LINE, "recipe.flip=true", "dataset.mirror=true")[0] == 0
    assert set(store.rows("task == 'train'")["recipe_flip"]) == {False, True}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["adaptation=frozen"], ["adaptation = frozen", "scratch", "finetune", "probe"]),
        (["adaptation=finetune"], ["adaptation = finetune", "scratch: test_resnet has no weights", "model.weights="]),
        (["adaptation=probe"], ["adaptation = probe", "no weights"]),
        (["adaptation=scratch", "model=hog"], ["adaptation = scratch", "finetune or probe"]),
        (["adaptation=probe", "model=hog", "compat=fca"], ["original has no probes"]),
        (["compat=fcb"], ["compat = fcb", "fca, or null"]),
        (["recipe=resnet50", "recipe.lr_batch=-1"], ["recipe.lr_batch = -1"]),
    ],
    ids=str,
)
def test_a_way_that_cannot_be_is_refused_before_any_work(fca, store, words, said):
    code, _, err = fca(*words, *SMALL)
    assert code == 2
    assert all(part in err for part in said), err
    assert store.rows().empty


def test_fine_tuning_can_start_from_the_probe_and_keeps_it_where_no_epoch_is_better(fca, store, learnt):
    """With a learning rate of almost nothing every epoch is the probe."""
    of_run = ["model=run", learnt, "subset.classes=[2,5,7]", *SMALL]
    assert fca("adaptation=probe", *of_run)[0] == 0
    start = ["adaptation=finetune", "adaptation.start=probe", "recipe.frozen_norms=true"]
    assert fca(*start, "recipe.lr=1e-12", *of_run)[0] == 0
    probe, tuned = (
        row_of(store, f"task == 'train' and ncl == 3 and adaptation == '{adaptation}'")
        for adaptation in ("probe", "finetune")
    )
    assert tuned["parent"] == probe["parent"], "the features are computed once"
    logits = [
        store.array(row_of(store, f"task == 'predict' and parent == '{row['run_id']}'")["run_id"], "logits")
        for row in (probe, tuned)
    ]
    np.testing.assert_allclose(*logits, atol=2e-2 * np.abs(logits[0]).max())  # features are kept in half precision
    assert tuned["val_top1"] >= probe["val_top1"]

    assert fca(*start, "recipe.lr=1000.0", *of_run)[0] == 0
    ruined = row_of(store, "task == 'train' and recipe_lr > 1")
    assert ruined["best_epoch"] == 0
    assert ruined["val_top1"] == probe["val_top1"]


def test_what_cannot_start_from_a_probe_is_refused(fca, learnt):
    code, _, err = fca("adaptation=finetune", "adaptation.start=probe", "model=test_resnet", *SMALL)
    assert code == 2
    assert "has no weights" in err
    code, _, err = fca("adaptation=finetune", "adaptation.start=prob", "model=run", learnt, *SMALL)
    assert code == 2
    assert "random, probe" in err
