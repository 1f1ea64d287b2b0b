"""A plan carries its work: running it plans nothing again, and planning evaluates nothing."""

import pytest
from safetensors.torch import save_file

from fca.cli.configure import job_of, load_model
from fca.store import Store
from fca.studies.adaptive.stats.policies import OptimalAllocation
from fca.studies.adaptive.task import AdaptiveTest
from fca.studies.reliance.saliency import Saliency
from fca.studies.search.task import Search
from fca.tasks import Task, predict
from fca.tasks.adaptation.network import Finetune, Network, Scratch
from fca.tasks.adaptation.probe import Probe
from fca.tasks.describe import Describe
from fca.tasks.embed import Embed
from fca.tasks.train import Train
from fca.types import Column, Run
from tests.conftest import SMALL

TASKS = (AdaptiveTest, Describe, Embed, predict.Predict, Saliency, Search, Train)
ADAPTATIONS = (Network, Scratch, Finetune, Probe)


def test_work_is_no_part_of_what_a_run_means():
    assert Run("train", {"seed": 1}, work="a") == Run("train", {"seed": 1}, work="b")
    assert Run("train", {"seed": 1}, work="a").run_id == Run("train", {"seed": 1}).run_id


@pytest.mark.parametrize("declaring", [*TASKS, *ADAPTATIONS], ids=lambda declaring: declaring.__name__)
def test_a_task_or_adaptation_declares_the_meaning_of_each_of_its_columns(declaring):
    assert all(isinstance(column, Column) and column.meaning for column in declaring.columns)
    assert len(set(declaring.columns)) == len(declaring.columns)


def test_a_training_and_a_prediction_are_planned_once(fca, tmp_path, monkeypatch):
    assert all(isinstance(way(), Task) for way in ADAPTATIONS)
    planned = []
    for name in ("plan", "run"):
        for way in (Network, Probe):
            original = getattr(way, name)
            monkeypatch.setattr(
                way, name, lambda *given, _name=name, _do=original: planned.append(_name) or _do(*given)
            )
    whole_split = predict.whole_split
    monkeypatch.setattr(predict, "whole_split", lambda *given: planned.append("predict") or whole_split(*given))
    assert fca("subset.classes=[2,5,7]", *SMALL)[0] == 0
    assert planned == ["plan", "run"]
    run_id = Store(tmp_path / "outputs").rows("task == 'train'")["run_id"].iloc[0]
    words = ["task=predict", "model=run", f"model.run_id={run_id}", "subset.classes=[2,5]", "logger=none", "limit=8"]
    assert fca(*words)[0] == 0
    assert planned == ["plan", "run", "predict"]
    assert fca(*SMALL, "model=run", f"model.run_id={run_id}", "adaptation=probe", "subset.classes=[2,5]")[0] == 0
    assert planned == ["plan", "run", "predict", "plan", "run"]


def test_planning_an_adaptive_test_takes_no_test(monkeypatch, tmp_path):
    from hydra import compose, initialize_config_dir

    from fca.cli.application import CONF, register

    monkeypatch.setattr(OptimalAllocation, "next", lambda *_: pytest.fail("planning selected images"))
    network = load_model("test_resnet", input_size=32).build(["car", "lamp"]).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    register()
    words = ["task=adaptive_test", "dataset=rendered", "dataset.classes=[car,lamp]", "model=test_resnet", "logger=none"]
    words += [f"model.weights={tmp_path / 'weights.safetensors'}", "model.classes=[car,lamp]", "model.input_size=32"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        job = job_of(compose("run", words), words)
    assert isinstance(job.task, Task)
    assert [run.task for run in job.plan] == ["adaptive_test"]
