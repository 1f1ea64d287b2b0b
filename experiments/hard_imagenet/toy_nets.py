"""Two toy networks with a colour cue in the background: what do the metrics show, where it is known what they rely on?

    python experiments/hard_imagenet/toy_nets.py OUT          10 trainings of test_resnet at 48 pixels, about 3 minutes

One learned that the background shows nothing (strength 0), the other that it nearly always shows the class (.95). Ten
classes, objects on a tenth of the image, 800 training and 300 test images, five seeds each; l2 noise of norm 8 at 48
pixels. Prints the mean over seeds of every metric with its 95 % interval (over seeds).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd

from fca.stats.intervals import mean_with_interval
from fca.store import Store
from fca.studies.reliance.metric_truth import MetricTruth

STRENGTHS = (0.0, 0.95)
AXES = {
    "dataset.cue": "color",
    "dataset.cue_strength": ",".join(map(str, STRENGTHS)),
    "model": "test_resnet",
    "seed": "0,1,2,3,4",
    "shift.noises.gaussian": "[0.25]",
    "shift.noises.l2": f"[{8 * 224 / 48:.1f}]",
}


def trained(outputs: Path) -> pd.DataFrame:
    """Train and measure what is left; a line a network and metric."""
    words = [f"{key}={value}" for key, value in AXES.items()]
    command = [sys.executable, "-m", "fca.cli.main", "run", "-m", "experiment=rendered_cues", f"outputs={outputs}"]
    subprocess.run([*command, "logger=none", *words], check=True)
    _, networks = MetricTruth()(Store(outputs))
    return networks.frame


def main(outputs: Path) -> None:
    found = trained(outputs)
    nets = found.drop_duplicates("run_id")
    about = [
        nets.assign(metric="accuracy, clean", value=nets["top1"]),
        nets.assign(metric="accuracy, exact background of another class", value=nets["top1"] - nets["reliance"]),
    ]
    every = pd.concat([*about, found])
    print(f"{'mean over seeds [95 % interval]':50}" + "".join(f"{f'cue strength {c:g}':>32}" for c in STRENGTHS))
    for metric, lines in every.groupby("metric", sort=False):
        texts = []
        for strength in STRENGTHS:
            values = lines.loc[lines["cue_strength"] == strength, "value"]
            mean, low, high = mean_with_interval(values)
            defined = f" ({values.notna().sum()} of {len(values)} defined)" if values.isna().any() else ""
            texts.append("not defined" if values.isna().all() else f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]{defined}")
        print(f"{metric:50}" + "".join(f"{text:>32}" for text in texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
