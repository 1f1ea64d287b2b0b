"""The commands of docs/cluster.md, typed as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fca.store import results

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
GRID, *COMMANDS = "".join(re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)).splitlines()
PRINTS = "sweep.print=true"


def is_slurm(command):
    return "submitit_slurm" in command and PRINTS not in command


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=[pytest.mark.slurm] if is_slurm(one) else []) for one in COMMANDS]
)
def test_a_command_of_the_page_does_what_stands_there(command, tmp_path, request):
    environment = request.getfixturevalue("slurm") if is_slurm(command) else os.environ
    environment = {**environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    (tmp_path / "outputs" / "runs").mkdir(parents=True)  # for fca status
    typed = subprocess.run(
        ["bash", "-c", f"{GRID}\n{command}"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert typed.returncode == 0, typed.stdout + typed.stderr
    trained = re.findall("^fca run .*subset.seed=", typed.stdout, re.MULTILINE)
    assert len(trained) == 4 * (PRINTS in command)
    assert len(results(tmp_path / "outputs")) == 8 * (PRINTS not in command and "fca run" in command)
