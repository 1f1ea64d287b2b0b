"""A plan carries its work: running it plans nothing again, and planning evaluates nothing."""

import pytest
import yaml

from fca.cli.places import CONF
from fca.plugins import class_of
from fca.store import Store
from fca.tasks import Task, predict
from fca.tasks.adaptation.network import Finetune, Network, Scratch
from fca.tasks.adaptation.probe import Probe
from fca.types import Column, Run
from tests.conftest import SMALL

TARGETS = {yaml.safe_load(file.read_text())["_target_"] for file in (CONF / "task").glob("*.yaml")}
TASKS = [class_of("task._target_", target) for target in sorted(TARGETS)]
ADAPTATIONS = (Network, Scratch, Finetune, Probe)


def test_work_is_no_part_of_what_a_run_means():
    assert Run("train", {"seed": 1}, work="a") == Run("train", {"seed": 1}, work="b")
    assert Run("train", {"seed": 1}, work="a").run_id == Run("train", {"seed": 1}).run_id


@pytest.mark.parametrize("declaring", [*TASKS, *ADAPTATIONS], ids=lambda declaring: declaring.__name__)
def test_a_task_or_adaptation_declares_the_meaning_of_each_of_its_columns(declaring):
    assert all(isinstance(column, Column) and column.meaning for column in declaring.columns)
    assert len(set(declaring.columns)) == len(declaring.columns)


def test_a_training_and_a_prediction_are_planned_once(fca, tmp_path, monkeypatch):
    assert all(isinstance(adaptation(), Task) for adaptation in ADAPTATIONS)
    planned = []
    for name in ("plan", "run"):
        for adaptation in (Network, Probe):
            original = getattr(adaptation, name)
            monkeypatch.setattr(
                adaptation, name, lambda *given, _name=name, _do=original: planned.append(_name) or _do(*given)
            )
    whole_split = predict.runs_of_split
    monkeypatch.setattr(predict, "runs_of_split", lambda *given: planned.append("predict") or whole_split(*given))
    assert fca("subset.classes=[2,5,7]", *SMALL)[0] == 0
    assert planned == ["plan", "run"]
    run_id = Store(tmp_path / "outputs").rows("task == 'train'")["run_id"].iloc[0]
    words = ["task=predict", "model=run", f"model.run_id={run_id}", "subset.classes=[2,5]", "logger=none", "limit=8"]
    assert fca(*words)[0] == 0
    assert planned == ["plan", "run", "predict"]
    assert fca(*SMALL, "model=run", f"model.run_id={run_id}", "adaptation=probe", "subset.classes=[2,5]")[0] == 0
    assert planned == ["plan", "run", "predict", "plan", "run"]
