"""How many optimiser steps does a training on few classes need? The measurement behind `recipe.min_steps`.

    nice python experiments/few_class_arena/min_steps.py             the number is chosen: 5 minutes on one core
    nice python experiments/few_class_arena/min_steps.py --report    other seeds, without and with it: 8 minutes

Digits at 32 px, 2 and 5 classes, 30 and 60 images a class, otherwise the default recipe: 10 epochs, lengthened by
passes over the same images. Seven families. The accuracy is that of all test images of the classes; a seed draws
classes, images, weights and order. Chosen on seed 100, 30 images a class; seeds 0 to 4 only check the choice.
"""

import argparse
import csv
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from fca import draw_subset, load_data
from fca.cli.application import composed
from fca.cli.configure import component
from fca.data.pixels import open_pixels
from fca.data.splits import for_training
from fca.training.batches import Examples
from fca.training.infer import logits_of
from fca.training.loop import TrainingPlace, fit, seed_everything

SMALL = ("test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_mambaout")
MODELS = {
    **{name: [f"model={name}", "model.input_size=32"] for name in SMALL},
    "mobilenetv3_small": ["model=timm", "model.name=mobilenetv3_small_050", "model.input_size=32"],
    "mobilenet-v2": ["model=mmpretrain", "model.name=mobilenet-v2_8xb32_in1k", "model.input_size=32"],
}
CELLS = [(2, 30), (2, 60), (5, 30), (5, 60)]  # classes, images a class


def accuracy(name, ncl, per_class, seed, recipe, data, folder):
    """Of the test images, after a training; and its number of steps and seconds."""
    subset = draw_subset(len(data.classes), ncl, seed)
    rng = np.random.default_rng([seed, ncl, per_class])
    train, val, test = (data.rows(split, subset.classes) for split in ("train", "val", "test"))
    labels = subset.new_labels(data.labels[train])
    few = np.sort(np.concatenate([rng.permutation(train[labels == c])[:per_class] for c in range(ncl)]))
    seed_everything(seed)
    classifier = component(composed("run", MODELS[name]), "model").build([str(c) for c in range(ncl)])
    pixels = open_pixels(data, classifier.geometry, folder / "cache")
    of = {rows.tobytes(): Examples(pixels, rows, subset.new_labels(data.labels[rows])) for rows in (few, val)}
    start = time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        fit(
            classifier,
            of[few.tobytes()],
            of[val.tobytes()],
            recipe,
            seed,
            TrainingPlace(Path(place), accelerator="cpu"),
        )
    seconds = time.process_time() - start
    right = logits_of(classifier, pixels, test, "cpu").argmax(1) == subset.new_labels(data.labels[test])
    made = recipe.sized(len(few), len(val))
    return right.mean(), made.epochs * made.passes * -(-len(few) // made.batch_size), seconds


def main():
    """One line a training as CSV on standard output; the tables of means on standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", help="values of recipe.min_steps")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--models", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--cells", type=int, nargs="+", default=[0, 2], help="of 2x30, 2x60, 5x30, 5x60")
    parser.add_argument("--report", action="store_true", help="0 and the default number, on seeds 0 to 4")
    asked = parser.parse_args()
    recipe = component(composed("run", []), "recipe")
    steps = asked.steps or ([0, recipe.min_steps] if asked.report else [0, 100, 200])
    seeds = asked.seeds or (range(5) if asked.report else [100])
    data, found = for_training(load_data("digits")), []
    lines = csv.writer(sys.stdout)
    lines.writerow(["model", "ncl", "per_class", "seed", "min_steps", "steps", "top1", "cpu_s"])
    with tempfile.TemporaryDirectory() as folder:
        for seed, cell, name, least in product(seeds, asked.cells, asked.models, steps):
            ncl, per_class = CELLS[cell]
            top1, done, seconds = accuracy(
                name, ncl, per_class, seed, replace(recipe, min_steps=least), data, Path(folder)
            )
            found.append((name, ncl, per_class, least, top1))
            lines.writerow([name, ncl, per_class, seed, least, done, f"{top1:.4f}", f"{seconds:.1f}"])
            sys.stdout.flush()
    rows = [(name, lambda line, name=name: line[0] == name) for name in asked.models]
    rows += [
        (f"{ncl} classes x {n}", lambda line, cell=(ncl, n): line[1:3] == cell)
        for ncl, n in (CELLS[i] for i in asked.cells)
    ]
    print("| min_steps | " + " | ".join(map(str, steps)) + " |\n" + "|---" * (len(steps) + 1) + "|", file=sys.stderr)
    for title, belongs in [*rows, ("all", lambda line: True)]:
        means = [np.mean([line[4] for line in found if belongs(line) and line[3] == n] or np.nan) for n in steps]
        print(f"| {title} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |", file=sys.stderr)


if __name__ == "__main__":
    main()
