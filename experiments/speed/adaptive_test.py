"""How much of the full test's time does an adaptive test of a quarter of the images take, when the network is the cost?

python experiments/speed/adaptive_test.py            about 5 minutes on 2 cores

ResNet-18 with random weights on 1,800 drawn images, shown at 128 pixels in batches of 64, both tests by the house's
tasks with all they do (the network built, images read from the decoded cache, estimates). They take turns. Expect a
third at most at every turn; on a machine with other work only CPU seconds say so.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file

from fca.cli.application import CONF, register
from fca.cli.configure import job_of
from fca.training import infer

CLASSES = "airplane,car,chair,house,lamp"
BATCH = 64


def job(folder, *words):
    """A task on the same weights and images."""
    lines = [
        "dataset=rendered", f"dataset.classes=[{CLASSES}]", "dataset.train_per_class=0", "dataset.val_per_class=0",
        "dataset.size=64", "model=resnet18", f"model.weights={folder}/weights.safetensors",
        f"model.classes=[{CLASSES}]", "model.input_size=128", "logger=none", f"outputs={folder}/outputs", *words,
    ]  # fmt: skip
    return job_of(compose("run", lines), lines)


def seconds(work):
    """Wall and CPU seconds of all runs of a job, and the last run's columns."""
    for run in work.plan:
        work.setup.store.folder(run.run_id).mkdir(parents=True, exist_ok=True)
    wall, cpu = time.perf_counter(), time.process_time()
    *_, finished = work.task.run(work.plan, work.setup)
    return time.perf_counter() - wall, time.process_time() - cpu, finished.columns


def main():
    """Print a line a turn, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    infer.batch_size_of = lambda size: BATCH  # else 256 at this size
    register()
    with tempfile.TemporaryDirectory() as name, initialize_config_dir(str(CONF), version_base="1.3"):
        folder = Path(name)
        untrained = job_of(compose("run", ["model=resnet18", "model.input_size=128"]), []).setup.model
        save_file(untrained.build(CLASSES.split(",")).module.state_dict(), folder / "weights.safetensors")
        full = job(folder, "task=predict")
        begun = time.perf_counter()
        seconds(full)  # draws every image into the cache
        print(f"images drawn and a first pass: {time.perf_counter() - begun:.0f} s", flush=True)
        ratios = []
        for turn in range(turns):
            wall, cpu, said = seconds(full)
            part_wall, part_cpu, asked = seconds(job(folder, "task=adaptive_test", f"seed={turn}"))
            ratios.append((part_wall / wall, part_cpu / cpu))
            print(
                f"full: {said['n_test']} images, {wall:.1f} s wall, {cpu:.1f} s CPU; adaptive: {asked['n_asked']} "
                f"images in {asked['rounds']} rounds, {part_wall:.1f} s wall, {part_cpu:.1f} s CPU; "
                f"ratio {ratios[-1][0]:.3f} wall, {ratios[-1][1]:.3f} CPU",
                flush=True,
            )
        wall, cpu = np.median(ratios, axis=0)
        print(f"median ratio: {wall:.3f} wall, {cpu:.3f} CPU")


if __name__ == "__main__":
    main()
