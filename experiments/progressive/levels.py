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

import pandas as pd

from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.progressive.attribute_levels import AttributeLevels

RUNS = (
    "dataset=rendered dataset.size=64 dataset.per_level=6 dataset.train_per_class=200 dataset.val_per_class=10 "
    "model=test_resnet,test_efficientnet,test_convnext model.input_size=64 recipe.epochs=10 recipe.flip=true "
    "recipe.shift=0.08"
)
LEVELS = ["easy", "medium", "hard"]


def main(out: Path, more: list[str]) -> None:
    """Train what is not trained, then print the tables."""
    subprocess.run(["fca", "run", "-m", f"outputs={out}", "logger=none", *RUNS.split(), *more], check=True)
    store = Store(out)
    for dataset in sorted(set(store.rows()["fingerprint"])):
        tables = AttributeLevels(query=f"fingerprint == '{dataset}'")(store)
        frames = {table.name: table.frame for table in tables}
        print(f"\n{dataset}\n")
        print_tables(frames["attribute_levels"], frames["attribute_steps"])


def print_tables(levels: pd.DataFrame, steps: pd.DataFrame) -> None:
    """Accuracy by attribute and level, in percent: of the mean network, then of each."""
    models, images = list(dict.fromkeys(levels["model"])), int(levels["n_test"].iloc[0])
    print_line("attribute", *LEVELS, "easy to medium", "medium to hard", "falls", *models)
    print_line(*["---"] * (6 + len(models) + 1))
    falling, lowest = 0, (1.0, "")
    for attribute, part in levels.groupby("attribute"):
        mean = part.groupby("level")["accuracy"].mean().reindex(LEVELS)
        drops = steps[steps["attribute"] == attribute].to_dict("records")
        falls = all(drop["drop"] > 0 for drop in drops)
        each = [" ".join(f"{100 * x:.0f}" for x in part.loc[part["model"] == one, "accuracy"]) for one in models]
        changes = [f"{100 * d['drop']:.0f} [{100 * d['drop_low']:.0f}, {100 * d['drop_high']:.0f}]" for d in drops]
        shares = [_interval(share, images) for share in mean]
        print_line(str(attribute), *shares, *changes, "yes" if falls else "no", *each)
        falling += falls
        lowest = min(lowest, *((share, f"{level} {attribute}") for level, share in mean.items()))
    low, high = wilson(round(lowest[0] * images), images)
    print(f"\n{falling} attributes fall from easy to medium to hard in the mean of the networks")
    print(f"the lowest mean is {lowest[1]}: {lowest[0]:.3f} [{low:.3f}, {high:.3f}]")


def print_line(*cells: str) -> None:
    """A line of a table in Markdown."""
    print("| " + " | ".join(cells) + " |")


def _interval(share: float, images: int) -> str:
    """With Wilson's 95 % interval as of one network: networks share images, so three say hardly more than one."""
    low, high = wilson(round(share * images), images)
    return f"{100 * share:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
