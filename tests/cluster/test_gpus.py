"""`hydra/launcher=gpus` on GPUs that a false nvidia-smi lists; the workers write down what they see."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from fca.cli.launchers import find_gpus
from fca.store import results
from fca.types import FcaError
from tests.cluster.conftest import wait_until

LAB = Path(__file__).parent / "lab"
# Two GPUs. While a run is at work, 1,000 MiB more are in use, and the GPU is busy for 35 % of the time; the first run
# waits until somebody has looked.
SMI = """#!{python}
import sys
from pathlib import Path
folder = Path({folder!r})
at_work = any(folder.glob("begun-*.json"))
values = {{"memory.used": 1500 if at_work else 500, "memory.total": 4500, "utilization.gpu": 35 if at_work else 0}}
for gpu in [word.partition("=")[2] for word in sys.argv if word.startswith("--id=")] or ["0", "1"]:
    print(*(values.get(name, gpu) for name in sys.argv[1].partition("=")[2].split(",")), sep=", ")
if at_work:
    (folder / "wait-0").unlink(missing_ok=True)
"""


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(SMI.format(python=sys.executable, folder=str(tmp_path)))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("fca.cli.launchers._smi", lambda *_: [])


def test_without_a_gpu_a_sweep_is_printed_but_not_started(fca, no_gpu):
    words = ["-m", "hydra/launcher=gpus", "seed=0,1", "limit=8", "logger=none"]
    code, out, _ = fca(*words, "sweep.print=true")
    assert (code, out.count("fca run")) == (0, 2)
    code, _, err = fca(*words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "hydra/launcher = gpus; allowed: a machine with a GPU; nvidia-smi lists none; next: set machine.accel" in err
    code, _, err = fca(*words, "hydra.launcher.slots_per_gpu=0")
    assert (code, "slots_per_gpu = 0; allowed: auto, or a whole number" in err) == (2, True)


def test_gpus_are_those_that_the_machine_has_and_this_process_may_use(two_gpus, monkeypatch):
    assert (find_gpus("auto"), find_gpus([1])) == (["0", "1"], ["1"])
    for wrong in ([2], [], [1, 1], 3, "all"):
        with pytest.raises(FcaError, match=r"hydra.launcher.gpus = .*some of 0, 1"):
            find_gpus(wrong)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5f, 1")
    assert find_gpus("auto") == ["GPU-5f", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(FcaError, match="a machine with a GPU"):
        find_gpus("auto")


SITE = """
import os, sys
if "fca.cli.main" in sys.orig_argv:  # the sweep, on a machine of 16 cores
    import joblib, joblib._parallel_backends
    joblib.cpu_count = joblib._parallel_backends.cpu_count = lambda *_, **__: 16
    del os.environ["OMP_NUM_THREADS"]
"""


@pytest.mark.slow
def test_the_first_run_decides_how_many_share_a_gpu_and_each_has_its_part(start, two_gpus, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(SITE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(LAB), os.environ.get("PYTHONPATH", "")]))
    for seed in range(5):
        (tmp_path / f"wait-{seed}").touch()
    words = ["task=launched", f"hydra.searchpath=[file://{LAB}/conf]", "plugins=[launched_toy]", "limit=8"]
    words += [f"task.folder={tmp_path}", "logger=none", "hydra/launcher=gpus", "seed=range(0,7)"]
    sweep = start("run", "-m", *words, cwd=tmp_path)

    def begun():
        return [json.loads(path.read_text()) for path in tmp_path.glob("begun-*.json")]

    wait_until(lambda: len(begun()) >= 5 or sweep.poll() is not None, "four runs at once", 300)
    for seed in range(1, 5):
        (tmp_path / f"wait-{seed}").unlink()
    out = sweep.communicate(timeout=400)[0]
    assert sweep.returncode == 0, out
    assert "2 slots a GPU: the first run took 1,000 of 4,500 MiB and kept it busy 35 % of the time" in out
    assert len(results(tmp_path / "outputs")) == 7
    others = [one for one in begun() if one["seed"]]
    workers = {one["pid"]: one["CUDA_VISIBLE_DEVICES"] for one in others}
    assert Counter(workers.values()) == {"0": 2, "1": 2}
    assert {one["OMP_NUM_THREADS"] for one in others} == {"4"}, "a quarter of 16 cores"
    assert {one["CUDA_VISIBLE_DEVICES"] for one in begun() if not one["seed"]} == {"0"}
