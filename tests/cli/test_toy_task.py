"""A task, or an adaptation, of one Python file and one YAML outside of fca: it brings its own columns and groups."""

import json
import shlex

import pytest

from fca.cli import results as results_command
from fca.store import results

TASK = """
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fca.types import Column, Finished, Run, interval_columns

DEPTH = Column("toy_depth", int, "d", "how deep", filters=True)
JOY = Column("toy_joy", float, ".1%", "how much joy")


@dataclass(frozen=True)
class Domain:
    colour: str


@dataclass(frozen=True)
class Toy:
    columns: ClassVar = (DEPTH, *interval_columns(JOY), Column("toy_colour"))
    summary: ClassVar = (JOY, DEPTH, "{toy_depth} deep in {toy_colour}")
    depth: int
    domain: Any

    def plan(self, context):
        about = {"dataset": context.data.name, "toy_depth": self.depth, "toy_colour": self.domain.colour}
        return [Run("toy", {"data": context.data.fingerprint, **about}, about)]

    def run(self, runs, context):
        for run in runs:
            yield Finished(run, {JOY: 0.5, JOY.low: 0.25, JOY.high: np.float32(0.75)}, {"joy": np.zeros(3)})
"""
YAMLS = {
    "task/toy.yaml": """
# How much joy is there?
defaults:
  - /domain@_global_.domain: red
  - _self_
_target_: a_toy_task.Toy
depth: 3
domain: ${domain}
""",
    "domain/red.yaml": "{_target_: a_toy_task.Domain, colour: red}",
    "domain/blue.yaml": "{_target_: a_toy_task.Domain, colour: blue}",
}


PLUGINS = "plugins=[a_toy_task,a_toy_adaptation]"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The words that find and choose the task."""
    modules = {"a_toy_task.py": TASK, "a_toy_adaptation.py": ""}
    for name, text in {**modules, **{f"conf/{name}": text for name, text in YAMLS.items()}}.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "toy"))
    return ["task=toy", f"hydra.searchpath=[file://{tmp_path}/toy/conf]", PLUGINS, "logger=none", "limit=8"]


def test_its_columns_and_summary_show_without_any_other_edit(fca, toy):
    code, out, err = fca(*toy)
    assert code == 0, err
    assert "toy digits  toy_joy 0.5000 [0.2500, 0.7500] toy_depth=3  3 deep in red" in out
    row = results("outputs", "toy_depth == 3").iloc[0]
    assert (row["toy_joy_low"], row["toy_colour"]) == (0.25, "red")
    lines = fca("--format", "json", door=results_command)[1]
    assert json.loads(lines)["toy_joy"] == 0.5
    assert "toy_joy" in fca("--columns", "task,toy_joy", door=results_command)[1]


@pytest.mark.wide
def test_its_group_is_chosen_and_swept_as_any_other(fca, toy):
    code, out, err = fca("-m", "domain=red,blue", "task.depth=1,2", *toy)
    assert code == 0, err
    assert "4 runs: 0 done, 0 failed, 0 running, 4 to run" in out
    rows = results("outputs")
    assert sorted(zip(rows["toy_colour"], rows["toy_depth"], strict=True)) == [
        ("blue", 1), ("blue", 2), ("red", 1), ("red", 2)
    ]  # fmt: skip
    command = rows.query("toy_colour == 'blue' and toy_depth == 2")["command"].item()
    assert "domain=blue" in command
    code, out, err = fca(*shlex.split(command)[2:], "sweep.print=true")
    assert (code, out.strip()) == (0, "nothing is left to run"), "the command names the folder of the task"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("domain=green", "domain = green; allowed: blue, dog, red, rendered"),
        ("domain.color=green", "key = domain.color; allowed: colour"),
        ("domian=red", "domian"),
        ("task.width=3", "key = task.width; allowed: depth, domain"),
    ],
)
def test_what_its_group_does_not_have_is_refused(fca, toy, word, message):
    code, _, err = fca(*toy, word)
    assert (code, "Traceback" in err) == (2, False)
    assert message in err


def test_a_key_beside_the_groups_that_nobody_declares_is_refused(fca, toy, tmp_path):
    (tmp_path / "toy" / "conf" / "experiment").mkdir()
    (tmp_path / "toy" / "conf" / "experiment" / "odd.yaml").write_text("# @package _global_\nsede: 3\n")
    code, _, err = fca(*toy, "experiment=odd")
    assert code == 2
    assert "key = sede; allowed: seed, dataset, model, encoder" in err


ADAPTATION = """
from dataclasses import dataclass
from typing import Any, ClassVar

from fca.types import Column, Finished, Run

MOOD = Column("toy_mood", str, "", "how the network felt")


@dataclass(frozen=True)
class Mood:
    columns: ClassVar = (MOOD,)
    summary: ClassVar = ()
    domain: Any

    def plan(self, context):
        return [Run("train", {"data": context.data.fingerprint, "mood": self.domain.colour}, {"adaptation": "mood"})]

    def run(self, runs, context):
        for run in runs:
            yield Finished(run, {"n_train": 3, MOOD: f"{self.domain.colour} all over"}, {})
"""
MOOD = """
defaults:
  - /domain@_global_.domain: blue
  - _self_
_target_: a_toy_adaptation.Mood
domain: ${domain}
"""


def test_an_adaptation_declares_its_columns_and_brings_its_group(fca, toy, tmp_path):
    (tmp_path / "toy" / "a_toy_adaptation.py").write_text(ADAPTATION)
    (tmp_path / "toy" / "conf" / "adaptation").mkdir()
    (tmp_path / "toy" / "conf" / "adaptation" / "mood.yaml").write_text(MOOD)
    code, _, err = fca("-m", "adaptation=mood", "domain=red,blue", *toy[1:])
    assert code == 0, err
    rows = results("outputs", "n_train == 3")
    assert sorted(rows["toy_mood"]) == ["blue all over", "red all over"]
    code, _, err = fca("--columns", "toy_mood,n_unused", door=results_command)
    assert code == 0, "columns are known that a task or its adaptation declares"
