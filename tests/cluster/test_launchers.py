"""One contract for all launchers: what a failure, a second sweep and a lost worker cost. Real processes and engines."""

import json
import os
import re
import subprocess
from collections import Counter

import psutil
import pytest

from fca.store import results
from tests.cluster.conftest import wait_until
from tests.support.launcher_lab import ENGINES, LAB, SLURM

pytestmark = pytest.mark.slow

PARAMS = {name: pytest.param(name, marks=[pytest.mark.slurm] if name == "slurm" else []) for name in ENGINES}


class Lab:
    """A folder with a store and the files by which the runs of the toy are controlled."""

    def __init__(self, folder, start, words):
        self.folder, self.begin = folder, start
        self.words = ["run", "-m", "task=launched", f"hydra.searchpath=[file://{LAB}/conf]", "plugins=[launched_toy]"]
        self.words += [f"task.folder={folder}", f"outputs={folder}/outputs", "limit=8", "logger=none", *words]

    def start(self, *words):
        self.sweep = self.begin(*self.words, *words, cwd=self.folder)
        return self.sweep

    def done(self):
        rows = results(self.folder / "outputs")
        return sorted(rows["launched_seed"]) if len(rows) else []

    def errors(self):
        return [json.loads(path.read_text())["error"] for path in self.folder.glob("outputs/runs/*/error.json")]

    def begun(self):
        return [json.loads(path.read_text()) for path in self.folder.glob("begun-*.json")]

    def times_begun(self):
        return Counter(one["seed"] for one in self.begun())

    def wait_for(self, seed, times=1):
        wait_until(lambda: self.times_begun()[seed] >= times or self.sweep.poll(), f"seed {seed} was not begun", 300)
        assert self.sweep.poll() is None, self.sweep.stdout.read()
        return max((one for one in self.begun() if one["seed"] == seed), key=lambda one: one["time"])


def ended(sweep, code):
    out = sweep.communicate(timeout=400)[0]
    assert sweep.returncode == code, out
    return out


@pytest.fixture
def lab(request, tmp_path, start, monkeypatch):
    name = getattr(request, "param", "slurm")
    environment = request.getfixturevalue("slurm") if name == "slurm" else {}
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(LAB), os.environ.get("PYTHONPATH", "")]))
    return Lab(tmp_path, start, ENGINES[name])


@pytest.mark.parametrize("lab", PARAMS.values(), indirect=True)
def test_a_failing_run_stops_nobody_and_is_all_that_a_retry_does(lab):
    (lab.folder / "fail-1").touch()
    out = ended(lab.start("seed=0,1,2"), 1)
    assert (lab.done(), lab.errors()) == ([0, 2], ["RuntimeError: seed 1 fails"]), out
    assert re.search(r"failed \w{12} \(launched\): RuntimeError: seed 1 fails\n  fca run .*seed=1", out)
    (lab.folder / "fail-1").unlink()
    out = ended(lab.start("seed=0,1,2", "sweep.retry=true"), 0)
    assert "3 runs: 2 done, 1 failed, 0 running, 1 to run" in out
    assert (lab.done(), lab.errors()) == ([0, 1, 2], [])
    assert lab.times_begun() == {0: 1, 1: 2, 2: 1}


@pytest.mark.parametrize("lab", PARAMS.values(), indirect=True)
def test_two_sweeps_at_once_do_no_run_twice(lab):
    (lab.folder / "wait-0").touch()
    sweeps = [lab.start("seed=0,1,2") for _ in range(2)]
    lab.wait_for(0)
    (lab.folder / "wait-0").unlink()
    for sweep in sweeps:
        ended(sweep, 0)
    assert (lab.done(), lab.times_begun()) == ([0, 1, 2], {0: 1, 1: 1, 2: 1})


@pytest.mark.parametrize("lab", [PARAMS[name] for name in ("joblib", "gpus", "ray", "slurm")], indirect=True)
def test_a_worker_that_is_killed_costs_its_run_only(lab, request):
    (lab.folder / "wait-1").touch()
    sweep = lab.start("seed=0,1,2")
    victim = lab.wait_for(1)["pid"]
    psutil.Process(victim).kill()
    (lab.folder / "wait-1").unlink()
    goes_on = "ray" in request.node.name  # another worker takes the run over
    out = ended(sweep, 0 if goes_on else 1)
    assert lab.done() == ([0, 1, 2] if goes_on else [0, 2]), out
    assert lab.times_begun()[1] == 1 + goes_on
    (error,) = lab.errors() or [None]
    assert error is None if goes_on else "killed" in error.lower(), error
    assert not list(lab.folder.glob("outputs/runs/*/claim.json"))
    if not goes_on:
        ended(lab.start("seed=0,1,2"), 0)
        assert lab.done() == [0, 1, 2], "the same command goes on with it"
        assert lab.errors() == []


@pytest.mark.slurm
def test_a_job_that_dies_before_it_begins_is_a_failed_run_with_the_end_of_its_err_file(lab):
    out = ended(lab.start("seed=0,1", 'hydra.launcher.setup=["echo no module named cuda >&2","exit 3"]'), 1)
    errors = lab.errors()
    assert len(errors) == 2
    assert all("left the queue without a row" in error and "no module named cuda" in error for error in errors), out
    assert "sacct" not in out


@pytest.mark.slurm
def test_a_job_that_is_queued_again_takes_its_claim_over(lab):
    (lab.folder / "wait-0").touch()
    sweep = lab.start("seed=0")
    job = lab.wait_for(0)["SLURM_JOB_ID"]
    subprocess.run(["scontrol", "requeue", job], check=True)
    again = lab.wait_for(0, times=2)
    (lab.folder / "wait-0").unlink()
    ended(sweep, 0)
    assert (again["SLURM_JOB_ID"], again["SLURM_RESTART_COUNT"]) == (job, "1")
    assert lab.done() == [0]


@pytest.mark.slurm
def test_a_training_whose_time_ends_goes_on_in_the_same_job(lab, tmp_path):
    words = ["run", "-m", "subset.ncl=2", "seed=0", "logger=none", "recipe.epochs=60", "machine.checkpoint_s=0"]
    sweep = lab.begin(*words, *SLURM, cwd=tmp_path)
    wait_until(lambda: list(tmp_path.glob("outputs/runs/*/last.ckpt")), "no checkpoint", 300)
    jobs = subprocess.run(["squeue", "--me", "-ho", "%i"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["scancel", "--signal=USR2", *jobs], check=True)  # as SLURM does before the end of the time
    ended(sweep, 0)
    logs = [path.read_text() for path in tmp_path.glob("outputs/runs/*/log.txt")]
    assert any(re.search(r"go on after epoch [1-9]", text) for text in logs), logs
    assert len(results(tmp_path / "outputs")) == 2


def test_a_node_that_is_removed_costs_its_run_only(lab_of_ray):
    lab, cluster, second = lab_of_ray
    (lab.folder / "wait-0").touch()
    (lab.folder / "wait-1").touch()
    sweep = lab.start("seed=0,1,2")
    workers = {lab.wait_for(seed)["pid"] for seed in (0, 1)}
    cluster.remove_node(second, allow_graceful=False)
    wait_until(lambda: not all(map(psutil.pid_exists, workers)), "the worker of the removed node lives on")
    for seed in (0, 1):
        (lab.folder / f"wait-{seed}").unlink()
    ended(sweep, 0)
    assert lab.done() == [0, 1, 2]
    assert sum(lab.times_begun().values()) == 4, "that of the removed node twice"


@pytest.fixture
def lab_of_ray(tmp_path, start, monkeypatch):
    """A laboratory on a Ray of two nodes with a core each, both on this machine."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(LAB), os.environ.get("PYTHONPATH", "")]))
    node = {"num_cpus": 1, "node_ip_address": "127.0.0.2", "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        second = cluster.add_node(**node)
        words = ["hydra/launcher=ray", f"hydra.launcher.ray.init.address={cluster.address}"]
        words.append("+hydra.launcher.ray.init._node_ip_address=127.0.0.2")
        yield Lab(tmp_path, start, words), cluster, second
    finally:
        cluster.shutdown()
