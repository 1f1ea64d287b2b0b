"""Full models on ImageNet with one image a class: open, masked, grouped, and what the masked protocol is worth.

    python experiments/few_class_arena/one_image.py --data DIR --outputs outputs

The paper's subsets are pooled over their five seeds. An image that several subsets hold is one image: Wilson's interval
counts distinct ones. Beside it the published reference: timm's accuracies on 200 classes whose logits alone compete.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pandas as pd

from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.few_class.accuracy import FewClass
from fca.subset import read_groups

NCL = [2, 3, 4, 5, 10, 100, 200, 400, 600, 800]
QUERY = "dataset == 'imagenet_sample'"


def pooled(points: pd.DataFrame, groups: str) -> pd.DataFrame:
    """One line a model, protocol and ncl: right answers over all subsets, interval of the distinct images."""
    keys = sorted(read_groups("imagenet_dog").of)  # all 1,000 wnids in label order
    named = {label for label, key in enumerate(keys) if key in read_groups(groups).of}
    lines = []
    for (model, protocol, ncl), part in points.groupby(["model", "protocol", "ncl"]):
        share = (part["top1"] * part["n_test"]).sum() / part["n_test"].sum()
        asked: set[int] = set().union(*part["classes"])
        distinct = len(asked & named if protocol == "grouped" else asked)
        lines.append((model, protocol, ncl, share, *wilson(round(share * distinct), distinct), distinct))
    return pd.DataFrame(lines, columns=["model", "protocol", "ncl", "top1", "low", "high", "images"])


def shown(table: pd.DataFrame) -> str:
    """Models and protocols down, ncl across, in percent."""
    cells = [
        f"{100 * t:.0f} [{100 * a:.0f}, {100 * b:.0f}]"
        for t, a, b in zip(table["top1"], table["low"], table["high"], strict=True)
    ]
    wide = table.assign(cell=cells).pivot_table(
        index=["model", "protocol"], columns="ncl", values="cell", aggfunc="first"
    )
    return str(wide.to_string())


def masked_in_timm(data: Path) -> pd.DataFrame:
    """Mean accuracy of timm's models with 1,000 competing classes and with 200, on ImageNet's own validation images."""
    folder = data / "tables" / "timm"
    keys = ["model", "img_size"]
    full = pd.read_csv(folder / "results-imagenet.csv").set_index(keys)["top1"]
    lines = []
    for name, file in (("ImageNet-A's 200", "a"), ("ImageNet-R's 200", "r")):
        few = pd.read_csv(folder / f"results-imagenet-{file}-clean.csv").set_index(keys)["top1"]
        both = pd.concat([full, few], axis=1, keys=["open", "masked"], join="inner")
        lines.append((name, len(both), both["open"].mean(), both["masked"].mean()))
    return pd.DataFrame(lines, columns=["classes", "models", "all 1,000 compete", "200 compete"])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("FCA_REAL_DATA"), help="the folder that holds tables/"
    )
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="the store")
    asked = parser.parse_args()
    for groups in ("imagenet_dog", "imagenet_16"):
        analysis = FewClass(QUERY, NCL, [0, 1, 2, 3, 4], "fca", groups=groups)
        points = next(table.frame for table in analysis(Store(asked.outputs)) if table.name == "accuracy_points")
        table = pooled(points.dropna(subset="top1"), groups)
        kept = table if groups == "imagenet_dog" else table[table["protocol"] == "grouped"]
        print(f"groups: {groups}\n{shown(kept)}\n")
    print(masked_in_timm(asked.data).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
