"""Which command a finished sweep suggests, by the runs that it had; studies declare that in `next.yaml`."""

import numpy as np
import pandas as pd
import pytest

from fca.cli import next_command as module
from fca.cli.next_command import next_command
from fca.store import Store

CASES = [  # a run each: task, other columns
    ([("search", {})], "report report=failure_search"),
    ([("train", {}), ("saliency", {"shift": "clean"})], "report report=reliance"),
    ([("predict", {"shift": "ablate/gray"})], "report report=reliance"),
    ([("predict", {"shift": "corruption/fog/3"}), ("train", {"ncl": 2})], "report report=irt_corruption"),
    ([("predict", {"shift": "imagenet_c/fog/3"})], "report report=irt_corruption"),
    ([("predict", {"snapshot": "0.5"}), ("predict", {"snapshot": "best"})], "report report=hard_images"),
    ([("train", {"ncl": 2}), ("predict", {})], "report report=few_class"),
    ([("predict", {}), ("score", {"ncl": 2})], "report report=few_class"),
    ([("train", {}), ("embed", {})], "report report=few_class"),
    ([("adaptive_test", {}), ("predict", {})], "analyse analysis=adaptive_tests"),
    ([("train", {}), ("predict", {})], "analyse analysis=few_class"),
    ([("embed", {})], "analyse analysis=similarity"),
    ([("describe", {}), ("latency", {})], "results task=describe,latency"),
]


def rows(*runs):
    usual = {"dataset": "zoo", "shift": "clean", "snapshot": np.nan, "ncl": 10, "num_classes": 10, "model": "net"}
    return pd.DataFrame(
        [{**usual, "run_id": f"{at:012x}", "task": task, **keys} for at, (task, keys) in enumerate(runs)]
    )


class Invented(Store):
    """A store of these rows."""

    def rows(self):
        return rows(("train", {}))


@pytest.mark.parametrize(("runs", "command"), CASES, ids=[command for _, command in CASES])
def test_the_command_reads_the_runs_of_the_sweep(runs, command, monkeypatch):
    monkeypatch.setattr(module, "filters_that_agree", lambda trained: [])
    assert next_command(Invented("outputs"), rows(*runs)) == f"fca {command}"


def test_a_declaration_that_cannot_be_read_is_left_out_with_a_line(tmp_path, monkeypatch, caplog):
    texts = {
        "torn": "report=x: [\n",
        "alien": "sell=x: {rank: 1, when: [[\"task == 'train'\"]]}\n",
        "short": "report=x: {when: []}\n",
        "wrong": 'report=x: {rank: 1, when: [["import os"]]}\n',
        "fine": "report=mine: {rank: 2, when: [[\"task == 'train'\"]]}\n",
    }
    folders = {name: tmp_path / name for name in texts}
    for name, text in texts.items():
        folders[name].mkdir()
        (folders[name] / "next.yaml").write_text(text)
    monkeypatch.setattr(module, "study_folders", lambda plugins: folders)
    assert next_command(Invented("outputs"), rows(("train", {}))) == "fca report report=mine"
    lines = [record.getMessage() for record in caplog.records]
    assert sum("next.yaml is left out: " in line for line in lines) == 3
    assert sum("report=x is not suggested: query = import os" in line for line in lines) == 1
