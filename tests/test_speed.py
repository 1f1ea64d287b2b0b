"""No speed script can rot: each explains itself and runs whole, shrunk to seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[1] / "experiments" / "speed"
SCRIPTS = sorted(path.stem for path in SPEED.glob("*.py") if path.stem != "harness")
SLOW = ("adaptive_test", "planning", "train_overhead")


def script(name, *words):
    environment = {name: value for name, value in os.environ.items() if name != "FCA_REAL_DATA"} | {
        "OMP_NUM_THREADS": "1"
    }
    command = [sys.executable, str(SPEED / f"{name}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCRIPTS]
)
def test_a_speed_script_explains_itself_and_runs_shrunk(name):
    shown = script(name, "--help")
    assert f"python experiments/speed/{name}.py" in shown
    assert "--smoke" in shown
    assert " cores, load " in script(name, "--smoke").splitlines()[-1], "the last line describes the machine"
