"""Do networks that learned easy drawn objects fail hard ones, attribute by attribute? Trains them, then counts.

    python experiments/progressive/levels.py OUT                     dataset.seed 0, on which the levels were tuned
    python experiments/progressive/levels.py OUT dataset.seed=2      images that nobody tuned on

OUT is the store; what is there already is not run again. More words go to `fca run -m` as they are. Three networks of
different families, 64 pixels, trained on 2,000 easy images; 60 test images an attribute and level. 20 minutes on one
busy core, a quarter of them for drawing 3,900 images.
"""

import subprocess
import sys
from pathlib import Path

from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.progressive.attribute_levels import DROP, STEPS, AttributeLevels
from fca.types import LEVELS, with_interval

RUNS = (
    "dataset=rendered dataset.size=64 dataset.per_level=6 dataset.train_per_class=200 dataset.val_per_class=10 "
    "model=test_resnet,test_efficientnet,test_convnext model.input_size=64 recipe.epochs=10 recipe.flip=true "
    "recipe.shift=0.08"
)


def main(out, more):
    """Train what is not trained, then print the tables."""
    subprocess.run(["fca", "run", "-m", f"outputs={out}", "logger=none", *RUNS.split(), *more], check=True)
    store = Store(out)
    for dataset in sorted(set(store.rows()["fingerprint"])):
        _, steps, levels = AttributeLevels(query=f"fingerprint == '{dataset}'")(store)
        print(f"\n{dataset}\n")
        print_tables(levels.frame, steps.frame)


def print_tables(levels, steps):
    """Accuracy by attribute and level, in percent: of the mean network, then of each.

    Wilson's 95 % intervals are those of one network: networks share images, so three are hardly more than one.
    """
    models, images = list(dict.fromkeys(levels["model"])), int(levels["n_test"].iloc[0])
    means = levels.pivot_table("accuracy", "attribute", "level")[list(LEVELS)]
    heads = ("attribute", *LEVELS, *STEPS, "falls", *models)
    print_line(*heads)
    print_line(*["---"] * len(heads))
    for attribute, part in steps.groupby("attribute"):
        shares = [percent(share, *wilson(round(share * images), images)) for share in means.loc[attribute]]
        changes = [percent(*drop) for drop in part[list(with_interval(DROP))].to_numpy()]
        by_model = levels[levels["attribute"] == attribute].groupby("model")["accuracy"]
        each = [" ".join(f"{100 * share:.0f}" for share in by_model.get_group(model)) for model in models]
        print_line(attribute, *shares, *changes, "yes" if (part[DROP] > 0).all() else "no", *each)
    falling = (steps.groupby("attribute")[DROP].min() > 0).sum()
    attribute, level = means.stack().idxmin()
    lowest = means.loc[attribute, level]
    low, high = wilson(round(lowest * images), images)
    print(f"\n{falling} attributes fall from easy to medium to hard in the mean of the networks")
    print(f"the lowest mean is {level} {attribute}: {lowest:.3f} [{low:.3f}, {high:.3f}]")


def print_line(*cells):
    print(f"| {' | '.join(cells)} |")


def percent(share, low, high):
    return f"{100 * share:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
