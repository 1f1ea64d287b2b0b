"""What lies in the folder in which a command is typed takes the place of no module. Real processes and engines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fca.store import results
from tests.support.launcher_lab import ENGINES, LAB

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODULES = """
    cloudpickle encodings fca hydra hydra_plugins joblib json logging multiprocessing numpy omegaconf pandas pickle
    psutil random ray selectors signal site sitecustomize socket submitit tempfile threading torch typing_extensions
    usercustomize wandb yaml
"""
SCRIPT = "import sys\nfrom fca.cli.main import main\nsys.exit(main())\n"


@pytest.fixture
def photos(tmp_path):
    """A folder with a module for every name above, which leaves a file behind when it is imported."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in MODULES.split():
        text = f"open({str(tmp_path)!r} + '/made-{name}', 'w').close()\nraise SystemExit('{name} of the folder')\n"
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def fca_script(tmp_path):
    """The command as it is installed: a script in a folder of programs."""
    script = tmp_path / "bin" / "fca"
    script.parent.mkdir()
    script.write_text(SCRIPT)

    def run(*words, cwd):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{LAB}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(script), *words]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize("engine", ["basic", "joblib", "gpus", "ray"])
def test_a_sweep_imports_nothing_from_the_folder_in_which_it_is_typed(engine, photos, fca_script, tmp_path):
    words = ["run", "-m", "task=launched", f"hydra.searchpath=[file://{LAB}/conf]", "plugins=[launched_toy]"]
    words += [f"task.folder={tmp_path}", "limit=8", "logger=none", "seed=0,1", *ENGINES[engine]]
    done = fca_script(*words, cwd=photos)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(results(photos / "outputs")["launched_seed"]) == [0, 1], "by a plugin of PYTHONPATH"
    assert not list(tmp_path.glob("made-*"))


def test_nor_does_what_a_command_starts_beside_itself(photos, fca_script, tmp_path):
    done = fca_script("generate", "generator=rendered", "plan=rendered", "budget.images=4", "workers=2", cwd=photos)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("made-*"))


def test_the_users_own_function_in_that_folder_is_found_and_imports_real_libraries(photos, fca_script, tmp_path):
    text = "import tempfile\nimport numpy as np\nimport helper\n"
    text += "def embed(pixels):\n    import selectors\n    return helper.mean(pixels)\n"
    (photos / "mine.py").write_text(text)
    (photos / "helper.py").write_text("def mean(pixels):\n    return pixels.mean((1, 2))\n")
    words = ["run", "task=embed", "limit=4", "logger=none"]
    done = fca_script(*words, "model@encoder=own", "encoder.function=mine.embed", "plugins=[mine]", cwd=photos)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("made-*"))
