"""Signals end a command as such, with nothing left behind; a worker that dies costs its run only. Real processes."""

import json
import re
import signal
import time

import psutil
import pytest

from fca.store import results

LONG = ["subset.ncl=10", "logger=none", "recipe.epochs=12", "machine.checkpoint_s=0"]
PARALLEL = ["-m", "seed=0,1,2", *LONG, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
RAY = ["num_cpus=2", "include_dashboard=false", "_node_ip_address=127.0.0.2"]
LINE = "stopped by {}; the same command goes on from what is done"


def wait_for_checkpoints(outputs, number, process):
    deadline = time.monotonic() + 200
    while len(list(outputs.glob("runs/*/last.ckpt"))) < number:
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def remains(outputs):
    return [path for name in ("*claim*", "*.part") for path in outputs.rglob(name)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_fit_with_its_code_and_the_same_command_goes_on(number, code, start, tmp_path):
    outputs = tmp_path / "outputs"
    words = ["run", *LONG, "recipe.epochs=300"]
    fitting = start(*words, cwd=tmp_path)
    wait_for_checkpoints(outputs, 1, fitting)
    waiting = start(*words, cwd=tmp_path)  # for the same run
    time.sleep(10)
    assert waiting.poll() is None
    waiting.send_signal(number)
    assert waiting.wait(15) == code
    assert LINE.format(number.name) in waiting.stdout.read()
    assert len(list(outputs.glob("runs/*/claim.json"))) == 2, "those of the other process, which still works"
    fitting.send_signal(number)
    assert fitting.wait(15) == code
    out = fitting.stdout.read()
    assert out.count(LINE.format(number.name)) == 1
    assert "Traceback" not in out
    assert not remains(outputs)
    assert {path.name for path in outputs.glob("runs/*/*.json")} == {"model.json"}
    again = start(*words, cwd=tmp_path)
    deadline = time.monotonic() + 200
    while "go on after epoch" not in "".join(path.read_text() for path in outputs.glob("runs/*/log.txt")):
        assert again.poll() is None, again.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_sweep_and_leave_no_claim(number, start, tmp_path):
    sweep = start("run", *PARALLEL, cwd=tmp_path)
    wait_for_checkpoints(tmp_path / "outputs", 2, sweep)
    family = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(number)
    expected = -9 if number is signal.SIGKILL else 128 + number
    assert sweep.wait(15) == expected
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert not remains(tmp_path / "outputs")
    if number is not signal.SIGKILL:
        assert sweep.stdout.read().count(LINE.format(number.name)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sweep_on_ray_ends_as_others_at_a_signal(number, start, tmp_path):
    ray = [f"+hydra.launcher.ray.init.{word}" for word in RAY]
    sweep = start("run", "-m", "seed=0,1", *LONG, "hydra/launcher=ray", *ray, cwd=tmp_path)
    wait_for_checkpoints(tmp_path / "outputs", 1, sweep)
    family = psutil.Process(sweep.pid).children(recursive=True)
    sweep.send_signal(number)
    assert sweep.wait(60) == 128 + number  # before: 134, an abort of Ray's own handler
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert not remains(tmp_path / "outputs")
    out = sweep.stdout.read()
    assert out.count(LINE.format(number.name)) == 1
    assert "Traceback" not in out


@pytest.mark.slow
def test_a_killed_worker_costs_its_run_only_and_the_same_command_goes_on_with_it(start, tmp_path):
    outputs = tmp_path / "outputs"
    sweep = start("run", *PARALLEL, cwd=tmp_path)
    wait_for_checkpoints(outputs, 2, sweep)
    claims = {path.parent: json.loads(path.read_text())["pid"] for path in outputs.glob("runs/*/claim.json")}
    victim = next(iter(claims.values()))
    psutil.Process(victim).kill()
    out = sweep.communicate(timeout=400)[0]
    assert sweep.returncode == 1
    errors = {path.parent: json.loads(path.read_text()) for path in outputs.glob("runs/*/error.json")}
    assert set(errors) == {folder for folder, pid in claims.items() if pid == victim}, "its training and prediction"
    (error,) = [error for error in errors.values() if error["task"] == "train"]
    assert error["error"] == "the worker was killed by SIGKILL (out of memory?)"
    assert re.match(r"fca run seed=\d subset.ncl=10 ", error["command"])
    assert error["error"] in out
    assert len(results(outputs)) == 4, "the other two trainings and their predictions"
    assert not remains(outputs)
    assert "2 interrupted; the same command goes on with them" in out
    assert "sweep.retry" not in out

    again = start("run", *PARALLEL, cwd=tmp_path)
    out = again.communicate(timeout=400)[0]
    assert again.returncode == 0, out
    assert "6 runs: 4 done, 0 failed, 2 interrupted, 0 running, 2 to run" in out
    assert len(results(outputs)) == 6
    assert not list(outputs.glob("runs/*/error.json"))
    logs = "".join((folder / "log.txt").read_text() for folder in errors if (folder / "log.txt").exists())
    assert "go on after epoch" in logs, "from its checkpoint"
