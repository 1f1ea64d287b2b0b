"""A disk that takes nothing ends a command with one line; with room again the same command does its work."""

import errno
import importlib
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fca.store import results
from fca.training import loop
from tests.conftest import SMALL

WORK = {
    "run": [
        "dataset=digits",
        "limit=4",
        "model=test_resnet",
        "recipe.epochs=1",
        "recipe.min_steps=0",
        "logger=none",
        "subset.ncl=2",
    ],
    "analyse": ["analysis=few_class"],
    "report": ["report=few_class", "logger=none"],
}


def call(fca, name):
    """A command in this process."""
    return fca(*WORK[name], door=importlib.import_module(f"fca.cli.{name}"))


def remains(outputs):
    return [path for name in ("*.part", "claim.json") for path in outputs.rglob(name)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "limit", "code"),
    [("run", 1000, 2), ("run", 8000, 1), ("analyse", 1000, 2), ("report", 1000, 2), ("report", 20_000, 2)],
)
def test_a_full_disk_ends_a_command_with_one_line_and_the_same_command_goes_on(name, limit, code, fca, tmp_path):
    """A limit of the kernel on the size of a file stands in for the disk."""
    if name != "run":
        assert call(fca, "run")[0] == 0  # for them to read
    # -B: Python 3.11 keeps the half of a module's bytecode that it could write, and imports it
    command = [sys.executable, "-B", "-m", "fca.cli.main", name, *WORK[name]]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)),
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    if code == 2:
        assert re.fullmatch(r"error: .*outputs/\S+.*File too large.*; next: make room, then repeat .*\n", done.stderr)
    else:
        assert re.search(
            r"^interrupted .*: OSError: \[Errno 27\] File too large: 'outputs/cache/\S+.rgb'$", done.stdout, re.M
        )
    assert not remains(tmp_path / "outputs")
    assert call(fca, name)[0] == 0


@pytest.mark.wide
def test_a_run_that_found_the_disk_full_is_done_by_the_same_sweep_once_there_is_room(fca, tmp_path, monkeypatch):
    sweep = ["-m", "dataset=digits", "model=test_resnet", "subset.ncl=2,3", *SMALL]

    def full(path, weights):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_weights", full)
        code, out, _ = fca(*sweep)
    assert code == 1
    assert re.search(r"^interrupted \w{12} \(train\): OSError: \[Errno 28\] No space left on device: ", out, re.M)
    assert "4 interrupted; the same command goes on with them" in out

    code, out, _ = fca(*sweep)
    assert (code, "4 runs: 0 done, 0 failed, 4 interrupted, 0 running, 4 to run" in out) == (0, True)
    assert len(results("outputs")) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "put",
    [lambda path: path.symlink_to("nowhere/at/all"), lambda path: path.symlink_to("/sys"), Path.touch],
    ids=["a link to nothing", "read-only", "a file"],
)
@pytest.mark.parametrize(
    ("name", "folder"), [("run", "runs"), ("run", "items"), ("analyse", "tables"), ("report", "reports")]
)
def test_a_folder_that_takes_nothing_ends_a_command_with_one_line(name, folder, put, fca, tmp_path):
    if name != "run":
        assert call(fca, "run")[0] == 0  # for them to read
    path = tmp_path / "outputs" / folder
    path.parent.mkdir(exist_ok=True)
    put(path)
    code, out, err = call(fca, name)
    assert "Traceback" not in out + err
    if code == 2:
        assert re.fullmatch(rf"error: .*outputs/{folder}.*; next: .*\n", err)
    else:
        assert (code, "failed" in out, f"outputs/{folder}" in out) == (1, True, True)
    assert not remains(tmp_path / "outputs")
    path.unlink()
    assert call(fca, name)[0] == 0
