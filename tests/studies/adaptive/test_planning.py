"""A test is planned without taking it."""

import pytest
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file

from fca.cli.application import register
from fca.cli.configure import job_of, load_model
from fca.cli.places import CONF
from fca.studies.adaptive.stats.policies import OptimalAllocation
from fca.tasks import Task


def test_planning_an_adaptive_test_takes_no_test(monkeypatch, tmp_path):
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
