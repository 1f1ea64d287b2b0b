"""What does a run of a sweep cost beyond its own training and prediction? Under 0.3 s, once the process is warm.

    FCA_REAL_DATA=... python experiments/speed/warm.py            about 2 minutes on 2 cores

The runs of train_overhead.py, as `fca run -m` does them in one process (hydra/launcher=basic): composing and planning,
the network, Lightning's trainer, the weights, two rows, and W&B offline. From the end of a run's predictions to the end
of the next one's, less the seconds of that run's epochs and forward passes; the first run, which imports and reads the
images, does not count. Wall time: other work on the machine adds to it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from harness import machine, options, real_data
from train_overhead import WORDS

import fca


def overheads(outputs):
    """Seconds beyond training and prediction, for each run but the first."""
    rows = fca.results(outputs, columns=["task", "run_id", "parent", "finished", "train_s", "predict_s"])
    trained = rows[rows["task"] == "train"].set_index("run_id")["train_s"]
    ends = rows[rows["task"] == "predict"].assign(at=lambda t: pd.to_datetime(t["finished"])).sort_values("at")
    between = ends["at"].diff().dt.total_seconds() - ends["predict_s"] - trained.loc[ends["parent"]].to_numpy()
    return between.iloc[1:].to_numpy()


def main():
    size = options(__doc__, runs=(12, 3), epochs=(5, 1))
    real = not size.smoke and real_data() is not None
    if not (real or size.smoke):
        sys.exit("set FCA_REAL_DATA to the folder of images/ and weights/, or shrink with --smoke")
    root = f"dataset.root={real_data()}/images/cifar10.zip"
    data = ["dataset=folder", root] if real else ["dataset=digits", "limit=20"]
    words = [*data, *WORDS, f"recipe.epochs={size.epochs}", "subset.ncl=5", f"seed=range(0,{size.runs})"]
    with tempfile.TemporaryDirectory() as folder:
        for logger in ("none", "wandb"):
            command = [sys.executable, "-m", "fca.cli.main", "run", "-m", *words]
            command += [f"logger={logger}", f"outputs={logger}"]
            environment = {**os.environ, "WANDB_MODE": "offline"}
            subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
            seconds = overheads(Path(folder, logger))
            low, high = seconds.min(), seconds.max()
            print(f"logger={logger}: {np.median(seconds):.3f} s a run beyond its own ({low:.3f} to {high:.3f})")
    machine()


if __name__ == "__main__":
    main()
