"""A launcher that places no job says so."""

import signal
import time

import pytest

from fca.cli import waiting
from fca.cli.waiting import Waiting, why_waiting


def test_a_line_comes_after_half_a_minute_and_then_every_minute_while_nothing_is_at_work(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    idle = Waiting(lambda: "the queue is full")
    for second in range(150):
        now[0] = float(second)
        idle.look(at_work=100 <= second < 110)
    assert capsys.readouterr().err.splitlines() == [
        "no run at work for 30 s: the queue is full",
        "no run at work for 90 s: the queue is full",
        "no run at work for 30 s: the queue is full",
    ]


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """A program squeue with this output."""

    def write(text, code=0):
        script = tmp_path / "squeue"
        script.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return write


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("PENDING (Resources)\\nPENDING (Priority)\\nPENDING (Resources)\\n", 0, "2 PENDING (Resources), 1 PENDING"),
        ("", 0, "SLURM's queue has no job of yours"),
        ("", 1, "squeue does not answer (CalledProcessError)"),
    ],
)
def test_jobs_in_slurm_s_queue_are_counted_by_their_state(squeue, text, code, reason):
    squeue(text, code)
    assert reason in why_waiting("submitit_slurm", None)


@pytest.mark.slow
def test_ray_without_the_cpus_that_a_job_asks_for_says_so(start, tmp_path):
    words = ["-m", "hydra/launcher=ray", "hydra.launcher.ray.remote.num_cpus=9999", "logger=none", "limit=8"]
    local = ["num_cpus=2", "include_dashboard=false"]
    words += [f"+hydra.launcher.ray.init.{word}" for word in local]
    process = start("run", *words, "recipe.epochs=1", "recipe.min_steps=0", "seed=0,1", cwd=tmp_path)
    try:
        deadline = time.monotonic() + 300
        line = ""
        # an earlier line says that Ray starts, where that takes long
        while "a job asks for" not in line and time.monotonic() < deadline:
            line = process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert "a job asks for hydra.launcher.ray.remote.num_cpus=9999, and the Ray cluster has 2; lower it" in line
