"""No speed script can rot: each explains itself and runs whole, shrunk to seconds."""

import os
import runpy
import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest

SPEED = Path(__file__).parents[1] / "experiments" / "speed"
SCRIPTS = sorted(path.stem for path in SPEED.glob("*.py") if path.stem != "harness")
SLOW = (
    "adaptive_test",
    "difficulty",
    "disk",
    "export",
    "fused",
    "gpu",
    "irt",
    "mmpretrain_runner",
    "page",
    "planning",
    "recommend",
    "startup",
    "tracking",
    "train_overhead",
    "warm",
)


def command(name, *words):
    environment = {name: value for name, value in os.environ.items() if name != "FCA_REAL_DATA"} | {
        "OMP_NUM_THREADS": "1"
    }
    line = [sys.executable, str(SPEED / f"{name}.py"), *words]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def script(monkeypatch, capsys):
    """Run a script with these words; returns what it prints."""
    monkeypatch.syspath_prepend(SPEED)
    monkeypatch.delenv("FCA_REAL_DATA", raising=False)
    monkeypatch.setattr("harness.apart", lambda work, *arguments: (work(*arguments), 0))

    def run(name, *words):
        if name in SLOW:
            return command(name, *words)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        end = pytest.raises(SystemExit, match="0") if "--help" in words else nullcontext()
        with mock.patch.dict(os.environ), end:
            runpy.run_path(str(SPEED / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCRIPTS]
)
def test_a_speed_script_explains_itself_and_runs_shrunk(name, script):
    shown = script(name, "--help")
    assert f"python experiments/speed/{name}.py" in shown
    assert "--smoke" in shown
    assert " cores, load " in script(name, "--smoke").splitlines()[-1], "the last line describes the machine"


def test_a_call_in_a_process_of_its_own_has_its_result_and_its_memory(monkeypatch):
    monkeypatch.syspath_prepend(SPEED)
    result, memory = import_module("harness").apart(len, "abc")
    assert result == 3
    assert 2**20 < memory < 2**32, "bytes"
