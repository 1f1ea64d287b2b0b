"""What does W&B cost a training, and how long does `fca wandb sync` take? Wanted: as long as W&B's own.

    python experiments/speed/tracking.py            3 minutes

A tiny network is trained with and without W&B (offline), in turns: milliseconds a training beside its steps, bytes on
the disk. Then trainings of a store are sent to a server on this machine that answers after 20 ms: by `fca wandb sync`,
which writes them from the store first, and by `wandb sync` alone, five runs at a time as both do and one at a time.
`--runs 500` sends more trainings: the more there are, the less the start of `fca` and its look at the store weigh.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import machine, options, timed

sys.path.insert(0, str(Path(__file__).parents[2]))  # the server is that of the tests

from fca.torchvision_ops import declare_torchvision_ops
from tests.support.tracked import begin, done, tracker_in, training
from tests.support.wandb_server import WandbServer

declare_torchvision_ops()

DELAY_S = 0.02


def trained(outputs, seed, epochs, tracked):
    """Seconds of a training's steps and of the whole, with what opens and closes its run in W&B."""
    from fca.training.loop import TrainingPlace, fit
    from tests.support.tiny import classifier, examples, recipe

    run, tracker = training(seed), tracker_in(outputs)
    begin(outputs, run)
    network, train, val = classifier(), examples(480), examples(60, seed=1)

    def work():
        place = TrainingPlace(
            outputs / "fits" / run.run_id, accelerator="cpu", logger=tracker.start(run) if tracked else False
        )
        fitted = fit(network, train, val, recipe(epochs=epochs), 0, place)
        if tracked:
            tracker.finish(row)
            tracker.close()
        return fitted

    row = done(outputs, run)
    spent = timed(work)
    return spent.cpu


def cost_of_following(folder, rounds, epochs):
    found = {tracked: [] for tracked in (False, True)}
    for turn in range(rounds + 1):
        for tracked in found:
            seconds = trained(folder, 2 * turn + tracked, epochs, tracked)
            if turn:  # the first ones import and start W&B
                found[tracked].append(seconds)
    plain, followed = (statistics.median(found[t]) for t in (False, True))
    files = [path for path in (folder / "wandb").glob("offline-run-*/**/*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / (rounds + 1)
    print(
        f"a training of {30 * epochs} steps: {plain:.3f} CPU s, with W&B {followed:.3f}, ratio {followed / plain:.2f}"
    )
    print(f"{1000 * (followed - plain):.0f} CPU ms and {size / 1000:.0f} kB a training")


def sent(folder, server, work):
    """Seconds until the server has all runs, which W&B believes to be new."""
    for mark in (folder / "wandb").glob("*/*.sync*"):
        mark.unlink()
    server.runs.clear()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun, len(server.runs)


def cost_of_sending(folder, runs):
    for seed in range(runs):
        done(folder, training(seed))
    server = WandbServer()
    server.delay = DELAY_S
    places = {name: str(folder / name.lower()) for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR")}
    os.environ.update(WANDB_API_KEY="0" * 40, WANDB_BASE_URL=server.url, WANDB_ERROR_REPORTING="false", **places)

    def command(*words):
        environment = {**os.environ, "WANDB_DIR": str(folder)}
        environment.pop("WANDB_MODE", None)
        subprocess.run([sys.executable, "-m", *words], env=environment, check=True, capture_output=True)

    def ours():
        command("fca.cli.main", "wandb", "sync", "--outputs", str(folder))

    def plain(at_once):
        paths = map(str, (folder / "wandb").glob("offline-run-*"))
        command("wandb", "sync", "-n", str(at_once), *paths)

    first, number = sent(folder, server, ours)
    again, _ = sent(folder, server, ours)
    five, _ = sent(folder, server, lambda: plain(5))
    one, _ = sent(folder, server, lambda: plain(1))
    server.stop()
    print(f"{number} trainings: fca wandb sync {first:.1f} s, {again:.1f} s where they are written already")
    print(f"wandb sync {five:.1f} s, one at a time {one:.1f} s: ratios {again / five:.2f} and {again / one:.2f}")


def main():
    sizes = options(__doc__, runs=(100, 2), rounds=(9, 1), epochs=(10, 1))
    folder = Path(tempfile.mkdtemp())
    os.environ["WANDB_DATA_DIR"] = str(folder / "a" / "wandb")
    try:
        cost_of_following(folder / "a", sizes.rounds, sizes.epochs)
        os.environ["WANDB_DATA_DIR"] = str(folder / "b" / "wandb")
        cost_of_sending(folder / "b", sizes.runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    machine()


if __name__ == "__main__":
    main()
