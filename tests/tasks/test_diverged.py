"""A training that diverges has no accuracy, in any table, and nothing is made with its weights."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from fca.cli.results import results
from fca.store.columns import HEADLINES
from fca.types import FcaError
from tests.conftest import SMALL

HOPELESS = ["subset.ncl=2", "recipe.lr=1e38", "recipe.optimiser=sgd", "recipe.grad_clip=0", *SMALL]


@pytest.mark.slow
def test_a_diverged_training_is_done_says_so_and_has_no_accuracy(fca, tmp_path):
    code, out, err = fca(*HOPELESS, "recipe.snapshots=[0.5]", "shift=corruption/fog", "shift.severities=[2]")
    assert code == 0, err
    assert "diverged!" in out
    assert "diverged in epoch 1: losses or weights are no longer finite; no accuracy is stored" in err
    rows = results(tmp_path / "outputs")
    assert rows["task"].tolist() == ["train"]
    assert rows["flag"].tolist() == ["diverged"]
    assert not any(rows[name].notna().any() for name in rows if name in HEADLINES or "top1" in name)
    assert [path.name for path in (tmp_path / "outputs" / "runs").iterdir()] == rows["run_id"].tolist()

    written = (tmp_path / "outputs" / "runs" / rows["run_id"][0] / "row.json").stat().st_mtime_ns
    code, out, _ = fca(*HOPELESS, "recipe.snapshots=[0.5]", "shift=corruption/fog", "shift.severities=[2]")
    assert (code, out.count("diverged!")) == (0, 1)
    assert (tmp_path / "outputs" / "runs" / rows["run_id"][0] / "row.json").stat().st_mtime_ns == written


@pytest.mark.slow
def test_a_sweep_goes_on_and_does_not_train_it_again(fca, tmp_path):
    words = ["-m", *HOPELESS, "recipe.lr=1e38,1e-3"]
    code, out, err = fca(*words)
    assert code == 0, err
    assert "runs: 4 of 4 (100%), 1 never: their training diverged" in out
    rows = results(tmp_path / "outputs")
    assert sorted(rows["task"]) == ["predict", "train", "train"]
    code, out, _ = fca(*words)
    assert code == 0
    assert "4 runs: 3 done, 0 failed, 0 running, 0 to run, 1 never: their training diverged" in out


@pytest.mark.slow
def test_nothing_is_predicted_or_exported_with_the_weights_of_a_diverged_training(fca, tmp_path):
    assert fca(*HOPELESS)[0] == 0
    [run_id] = results(tmp_path / "outputs")["run_id"]
    allowed = "allowed: a training whose losses and weights stayed finite; this one diverged"
    model = ["model=run", f"model.run_id={run_id}", "limit=8", "logger=none"]
    for words in (["task=predict", *model], ["adaptation=finetune", *model], ["adaptation=probe", *model]):
        code, _, err = fca(*words)
        assert (code, f"model.run_id = {run_id}; {allowed}" in err) == (2, True), err
    for command in ("predict", "export"):
        words = ["."] if command == "predict" else []
        code, _, err = fca(*words, f"run={run_id}", door=import_module(f"fca.cli.{command}"))
        assert (code, f"run = {run_id}; {allowed}" in err) == (2, True), err


@pytest.mark.slow
def test_logits_and_features_that_are_no_numbers_fail_the_run_with_the_number_of_images(fca, tmp_path, monkeypatch):
    from fca.models.timm_models import TimmModel

    assert fca("subset.ncl=2", *SMALL)[0] == 0
    [run_id] = results(tmp_path / "outputs", "task == 'train'")["run_id"]
    build = TimmModel.build
    monkeypatch.setattr(
        TimmModel, "build", lambda self, classes=None: replace(build(self, classes), normalise=lambda x: x * np.nan)
    )
    of_run = ["logger=none", "limit=8"]
    predict = ["task=predict", "task.split=val", "model=run", f"model.run_id={run_id}", *of_run]
    code, _, err = fca(*predict)
    assert (code, "logits of the network = NaN or infinite for 16 of the first 16 images" in err) == (2, True), err
    embed = ["task=embed", "task.split=val", "model@encoder=run", f"encoder.run_id={run_id}", *of_run]
    code, _, err = fca(*embed)
    assert code == 2
    assert "features of the network = NaN or infinite for" in err
    monkeypatch.setattr(
        TimmModel, "build", lambda self, classes=None: replace(build(self, classes), embed=lambda x: x.flatten(1) + 1e5)
    )
    code, _, err = fca(*embed)
    assert code == 2
    assert "features of the network = up to 1e+05, for" in err
    assert "beyond 65,504" in err
    assert len(results(tmp_path / "outputs")) == 2, "no row of any of these"


def test_an_accuracy_is_no_number_of_nan_logits():
    from fca.tasks.predict import prediction_columns

    with pytest.raises(FcaError, match=r"logits of the network = NaN or infinite for 1 of the first 2 images"):
        prediction_columns(np.array([[0.0, 1.0], [np.nan, 0.0]], np.float32), np.array([0, 0]), [0, 1])
