"""How much of the full test's time does an adaptive test of a quarter of the images take, when the network is the cost?

    python experiments/speed/adaptive_test.py            about 5 minutes on 2 cores

ResNet-18 with random weights on 1,800 drawn images, shown at 128 pixels in batches of 64, both tests by fca's tasks
with all they do (the network built, images read from the decoded cache, estimates). They take turns. Expect a third at
most at every turn; on a machine with other work only CPU seconds show it.
"""

import tempfile
from pathlib import Path

import numpy as np
from harness import composed, machine, options, timed
from safetensors.torch import save_file

from fca.cli.configure import component, job_of
from fca.training import infer

CLASSES = "airplane,car,chair,house,lamp"


def job(folder, size, *words):
    """A task on the same weights and images."""
    lines = [
        *("dataset=rendered", f"dataset.classes=[{CLASSES}]", "dataset.train_per_class=0", "dataset.val_per_class=0"),
        *(f"dataset.size={size.pixels // 2}", "model=resnet18", f"model.weights={folder}/weights.safetensors"),
        *(f"model.classes=[{CLASSES}]", f"model.input_size={size.pixels}", "logger=none", f"outputs={folder}/outputs"),
        *(f"dataset.per_level={size.per_level}", *words),
    ]
    return job_of(composed(*lines), lines)


def finished(work):
    """All runs of a job; the columns of the last."""
    for run in work.plan:
        work.context.store.folder(run.run_id).mkdir(parents=True, exist_ok=True)
    *_, last = work.task.run(work.plan, work.context)
    return last.columns


def main():
    size = options(__doc__, turns=(3, 1), pixels=(128, 32), per_level=(12, 12))
    infer.batch_size_of = lambda _: 64  # else 256 at this size
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        untrained = component(composed("model=resnet18", f"model.input_size={size.pixels}"), "model")
        save_file(untrained.build(CLASSES.split(",")).module.state_dict(), folder / "weights.safetensors")
        full = job(folder, size, "task=predict")
        print(f"images drawn and a first pass: {timed(finished, full).wall:.0f} s", flush=True)
        ratios = []
        for turn in range(size.turns):
            whole = timed(finished, full)
            part = timed(finished, job(folder, size, "task=adaptive_test", f"seed={turn}"))
            ratios.append((part.wall / whole.wall, part.cpu / whole.cpu))
            print(
                f"full: {whole.result['n_test']} images, {whole.wall:.1f} s wall, {whole.cpu:.1f} s CPU; adaptive: "
                f"{part.result['n_evaluated']} images in {part.result['rounds']} rounds, {part.wall:.1f} s wall, "
                f"{part.cpu:.1f} s CPU; ratio {ratios[-1][0]:.3f} wall, {ratios[-1][1]:.3f} CPU",
                flush=True,
            )
    wall, cpu = np.median(ratios, axis=0)
    print(f"median ratio: {wall:.3f} wall, {cpu:.3f} CPU")
    machine()


if __name__ == "__main__":
    main()
