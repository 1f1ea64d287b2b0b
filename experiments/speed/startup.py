"""What does a command cost before it works? Whole processes, in turns.

    python experiments/speed/startup.py            a minute on 2 cores

Lightning and timm beside what `fca` takes for its help, for a table of results, for planning a sweep, for predictions
with a trained network and for a training, both of a few images. A process that plans imports no torch, one that
predicts no Lightning. CPU seconds stand beside wall seconds, for machines that others use too.
"""

import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
from harness import machine, options

MAIN = ("-m", "fca.cli.main")
FCA = (*MAIN, "run", "logger=none", "model=test_resnet", "limit=8", "recipe.epochs=1", "subset.ncl=2")
TIMM = "from fca.torchvision_ops import declare_torchvision_ops as declare; declare(); import torch, timm"
LIGHTNING = "from fca.torchvision_ops import declare_torchvision_ops as declare; declare(); import pytorch_lightning"


def spent(words, folder):
    """Wall and CPU seconds of a process of its own, and what it printed."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, done.stdout


def main():
    size = options(__doc__, repeats=(5, 1))
    with tempfile.TemporaryDirectory() as folder:
        run_id = re.search(r"outputs/runs/(\w+)", spent([*FCA, "seed=1000"], folder)[2])[1]
        predict = ["-m", "fca.cli.main", "run", "logger=none", "task=predict", "model=run", f"model.run_id={run_id}"]
        commands = {
            "import pytorch_lightning": lambda _: ["-c", LIGHTNING],
            "import torch, timm": lambda _: ["-c", TIMM],
            "fca --help": lambda _: [*MAIN, "--help"],
            "fca --version": lambda _: [*MAIN, "--version"],
            "fca results": lambda _: [*MAIN, "results"],
            "fca run --help": lambda _: [*MAIN, "run", "--help"],
            "fca run -m, 10 points planned": lambda _: [*FCA, "-m", "seed=range(0,10)", "sweep.print=true"],
            "fca run, predictions": lambda k: [*predict, f"limit={k + 1}"],
            "fca run, a training": lambda k: [*FCA, f"seed={k}"],
        }
        found = {name: [spent(words(k), folder)[:2] for k in range(size.repeats)] for name, words in commands.items()}
    base = np.median(found["import torch, timm"], axis=0)
    for name, seconds in found.items():
        wall, cpu = np.median(seconds, axis=0)
        shares = f"{wall / base[0]:.2f} ({cpu / base[1]:.2f} CPU) of torch and timm"
        print(f"{name:30} {wall:6.2f} s, {cpu:6.2f} s CPU, {shares}")
    machine()


if __name__ == "__main__":
    main()
