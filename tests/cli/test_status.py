"""`fca status`: every run counted once, failures by their cause, workers with their progress, honest estimates."""

import json
import os
import signal
import socket
import time
from datetime import UTC, datetime, timedelta

import pandas as pd
import psutil
import pytest

import fca as package
from fca.cli import status
from fca.store import State, Store, claims

MEMORY = "OutOfMemoryError: CUDA out of memory"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


def run_id(number):
    return f"{number:012x}"


def done(store, number, minutes=0.0):
    folder = store.folder(run_id(number))
    token = claims.acquire(folder)
    finished = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="milliseconds")
    row = {"run_id": folder.name, "task": "train", "command": f"fca run seed={number}", "finished": finished}
    (folder / "best.safetensors").write_bytes(b"weights")
    store.write(row, {}, token)
    claims.release(folder, token)


def fail(store, number, error, task="train"):
    store.fail(
        run_id(number), {"run_id": run_id(number), "task": task, "error": error, "command": f"fca run n={number}"}
    )


def claim_of_the_dead(store, number):
    folder = store.folder(run_id(number))
    claims.acquire(folder)
    path = folder / "claim.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "process_started": 1.0}))
    return path


def shown(store, capsys, *words):
    assert status.main(["--outputs", str(store.outputs), *words]) == 0
    return capsys.readouterr().out


def test_every_run_is_counted_once_whatever_its_state(store, capsys):
    for number in (1, 2, 3):
        done(store, number)
    (store.folder(run_id(3)) / "best.safetensors").unlink()  # damaged
    fail(store, 4, MEMORY)
    claims.acquire(store.folder(run_id(5)))  # running, by this process
    claim_of_the_dead(store, 6)
    store.folder(run_id(7)).mkdir()  # begun and left
    frame = package.status(store.outputs)
    assert frame.set_index("run_id")["state"].to_dict() == {
        run_id(1): "done", run_id(2): "done", run_id(3): "damaged", run_id(4): "failed", run_id(5): "running",
        run_id(6): "stale", run_id(7): "left",
    }  # fmt: skip
    first = shown(store, capsys).splitlines()[0]
    assert first == (
        "2 done, 1 running, 1 failed, 1 damaged (the same command does them again), 1 stale (their workers died; the "
        "same command takes over), 1 begun and left (the same command goes on)"
    )
    claims.release(store.folder(run_id(5)), json.loads((store.folder(run_id(5)) / "claim.json").read_text())["token"])


def test_failures_are_grouped_by_their_cause_with_a_command_of_a_run_that_failed_itself(store, capsys):
    fail(store, 1, f"run {run_id(2)}, which it needs, failed: {MEMORY}", "predict")
    for number in (2, 3):
        fail(store, number, MEMORY)
    fail(store, 4, "ValueError: 3")
    lines = shown(store, capsys).splitlines()[1:]
    assert lines == [
        f"failed 3 runs, such as {run_id(2)} (train): {MEMORY}",
        "  fca run n=2",
        f"failed {run_id(4)} (train): ValueError: 3",
        "  fca run n=4",
        "run them again: fca status --retry-failed, then the same sweep; or the sweep with sweep.retry=true",
    ]


def test_failures_that_are_forgotten_are_to_be_run_and_their_commands_are_printed(store, capsys):
    done(store, 1)
    fail(store, 2, MEMORY)
    fail(store, 3, MEMORY)
    out = shown(store, capsys, "--retry-failed")
    assert out == "forgot 2 failures; run the same sweep again, or\nfca run n=2\nfca run n=3\n"
    assert [store.state(run_id(number)) for number in (1, 2, 3)] == [State.DONE, State.ABSENT, State.ABSENT]
    assert shown(store, capsys, "--retry-failed") == "forgot 0 failures\n"


def test_stale_claims_are_released_and_held_ones_stay(store, capsys):
    dead, folder = claim_of_the_dead(store, 1), store.folder(run_id(2))
    token = claims.acquire(folder)
    assert shown(store, capsys, "--release-stale") == "released 1 stale claims\n"
    assert not dead.exists()
    assert claims.is_mine(folder, token)
    claims.release(folder, token)


def test_a_worker_is_shown_with_what_its_training_wrote_since_its_claim(store, capsys):
    progress = {"epoch": 3, "epochs": 10, "images_per_s": 1234.5, "left_s": 150.0, "device": "cuda:3"}
    held = {store.folder(run_id(number)): claims.acquire(store.folder(run_id(number))) for number in (1, 2)}
    path = store.folder(run_id(2)) / "progress.json"
    path.write_text(json.dumps(progress))
    out = shown(store, capsys)
    worker = f"running {run_id(2)} and 1 more  {socket.gethostname()} pid {os.getpid()}"
    assert f"{worker}  cuda:3  epoch 3 of 10  1,234 images/s  2.5 min to go  heartbeat 0 s ago\n" in out
    assert "the trainings at work end in about 2.5 min\n" in out
    os.utime(path, (1, 1))  # of an earlier worker
    out = shown(store, capsys)
    assert "epoch" not in out
    assert "to go" not in out
    for folder, token in held.items():
        claims.release(folder, token)


def test_runs_that_need_a_training_that_diverged_are_not_left_and_are_named(store, capsys):
    training, predicted, score, other = (run_id(number) for number in range(1, 5))
    needs = {training: None, predicted: training, score: predicted, other: None}
    store.write({"run_id": training, "task": "train", "flag": "diverged"}, {}, claims.acquire(store.folder(training)))
    with claims.announced(store.outputs, needs):
        out = shown(store, capsys)
    assert "1 training diverged: no accuracy, and no run that needs such weights will come" in out
    assert ": 1 of 4 runs left\n" in out
    assert status.status(store.outputs)["flag"].tolist() == ["diverged"]


def test_a_sweep_at_work_is_shown_with_its_own_estimate_less_what_has_passed_since(store, capsys, monkeypatch):
    done(store, 1, minutes=60)  # before the sweep began
    every = [run_id(number) for number in range(1, 9)]
    with claims.announced(store.outputs, dict.fromkeys(every[1:])) as announced:
        out = shown(store, capsys)
        name = f"sweep on {socket.gethostname()} (pid {os.getpid()})"
        assert f"{name}: 7 of 7 runs left\n" in out
        done(store, 2)
        done(store, 3)
        fail(store, 4, MEMORY)
        began, now = time.time(), time.time()
        monkeypatch.setattr(status.time, "time", lambda: now + 100.0)
        out = shown(store, capsys)
        assert f"{name}: 4 of 7 runs left, 2 done in 1.7 min\n" in out  # by their number it would be 3.3 min
        announced.estimate(900.0)
        announced.beat()
        monkeypatch.setattr(status.time, "time", lambda: now + 110.0)
        assert "4 of 7 runs left, 2 done in 1.8 min, about 14.8 min to go\n" in shown(store, capsys)
        assert now - began < 1
        monkeypatch.undo()
        [path] = (store.outputs / "sweeps").iterdir()
        known = path.read_text()
    assert not (store.outputs / "sweeps").exists()
    path.parent.mkdir()
    path.write_text(json.dumps({**json.loads(known), "process_started": 1.0}))  # it was killed
    assert "sweep on" not in shown(store, capsys)
    assert shown(store, capsys, "--release-stale") == "released 1 stale claims\n"
    assert not path.exists()


@pytest.mark.parametrize("estimate", [{"to_go": "soon"}, {"to_go": 3.0, "estimated": None}])
def test_an_estimate_that_is_no_number_is_left_out(store, capsys, estimate):
    with claims.announced(store.outputs, {run_id(1): None}):
        [path] = (store.outputs / "sweeps").iterdir()
        path.write_text(json.dumps({**json.loads(path.read_text()), **estimate}))
        assert "): 1 of 1 runs left\n" in shown(store, capsys)


def test_the_frame_has_its_columns_even_of_an_empty_store(store):
    store.outputs.mkdir()
    frame = package.status(store.outputs)
    assert isinstance(frame, pd.DataFrame)
    assert frame.empty
    assert {"run_id", "state", "error", "command", "host", "pid", "epoch", "images_per_s"} <= set(frame)


@pytest.mark.slow
def test_watching_ends_with_ctrl_c_and_is_no_failure(start, store, tmp_path):
    done(store, 1)
    watching = start("status", "--watch", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while psutil.Process(watching.pid).status() != psutil.STATUS_SLEEPING or time.monotonic() < deadline - 50:
        assert watching.poll() is None, watching.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    watching.send_signal(signal.SIGINT)
    out = watching.communicate(timeout=20)[0]
    assert watching.returncode == 0, out
    assert "1 done, 0 running, 0 failed" in out
    assert "stopped by" not in out
