"""A fair contest: sub-models against full models trained on the same images of each class.

    python experiments/few_class_arena/contest.py --outputs outputs/contest            seconds, after study.sh

Full models are scored on each subset under three protocols: open (any class they know), masked (only the subset's
classes compete) and grouped (the right group is enough: animals or vehicles; subsets that hold both). Against grouped,
a sub-model's predictions are grouped as well. Of two full models, one took as many steps as a sub-model, and one saw
each image as often as a sub-model of two classes does. Differences are paired by subset; 95 % intervals: subset seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from fca.stats.intervals import FRACTION, SIGNED_FRACTION, mean_with_interval
from fca.stats.protocols import grouped_top1
from fca.store import Store
from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.subset_accuracy import accuracy_points, subsets_of
from fca.subset import Superclasses, read_superclasses
from fca.tables.predictions import predictions
from fca.tables.rows import records, select

GROUPS = Path(__file__).with_name("cifar10_groups.csv")
SUBSET = ["model", "ncl", "subset_seed"]
PAIRS = {"sub": "sub", "open": "sub", "masked": "sub", "grouped": "sub, grouped"}  # what each protocol stands against


def points(store: Store, groups: Superclasses) -> pd.DataFrame:
    """Accuracy by network, protocol, epochs of the training, subset and initialisation."""
    rows = select(store, None)
    epochs = rows.trained.set_index("run_id")["recipe_epochs"]
    parent = rows.full.set_index("run_id")["parent"]
    found = accuracy_points(store, rows, subsets_of(rows, FewClass()), groups)
    found["epochs"] = found["run_id"].replace(parent).map(epochs)
    return pd.concat([found[found["ncl"] < 10], _grouped(store, found[found["protocol"] == "sub"], groups)])


def _grouped(store: Store, sub: pd.DataFrame, groups: Superclasses) -> pd.DataFrame:
    """Sub-models where the right group is enough, on the subsets that hold two."""
    answers = store.rows("task == 'predict' and split == 'test' and shift == 'clean'").set_index("parent")
    lines = []
    for line in records(sub):
        row = {"parent": line["run_id"], **answers.loc[line["run_id"]].to_dict()}
        stored = predictions(store, row)
        group = groups.codes(stored.logit_classes)
        if len(set(group)) > 1:
            lines.append(
                {**line, "protocol": "sub, grouped", "top1": grouped_top1(stored.logits, group, stored.true)[0]}
            )
    return pd.DataFrame(lines)


def cell(values: pd.Series, seeds: pd.Series, signed: bool) -> str:
    """A mean in percent with its interval."""
    mean, *interval = mean_with_interval(values, seeds, within=SIGNED_FRACTION if signed else FRACTION)
    low, high = (f"{100 * end:+.1f}" if signed else f"{100 * end:.1f}" for end in interval)
    return f"{100 * mean:+.1f} [{low}, {high}]" if signed else f"{100 * mean:.1f} [{low}, {high}]"


def main() -> None:
    """Print accuracies, then differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs", type=Path, default=Path("outputs/contest"), help="the store")
    found = points(Store(parser.parse_args().outputs), read_superclasses(str(GROUPS)))
    known = found.dropna(subset="top1")
    means = known.groupby(["protocol", "epochs", *SUBSET], as_index=False)["top1"].mean()
    columns = ("network", "ncl", "protocol", "epochs", "top1 (%)", "sub-model minus it (points)", "subsets")
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for (model, ncl, protocol, epochs), part in means.groupby(["model", "ncl", "protocol", "epochs"]):
        shown = [cell(part["top1"], part["subset_seed"], signed=False), ""]
        if protocol in ("open", "masked", "grouped"):
            both = part.merge(means[means["protocol"] == PAIRS[protocol]], on=SUBSET, suffixes=("", "_sub"))
            shown[1] = cell(both["top1_sub"] - both["top1"], both["subset_seed"], signed=True)
        print(f"| {model} | {ncl} | {protocol} | {epochs:.0f} | {' | '.join(shown)} | {len(part)} |")


if __name__ == "__main__":
    main()
