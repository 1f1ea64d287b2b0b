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
from fca.subset import read_superclasses

NCL = [2, 3, 4, 5, 10, 100, 200, 400, 600, 800]
QUERY = "dataset == 'imagenet_sample'"


def pooled(points: pd.DataFrame, groups: str) -> pd.DataFrame:
    """Models and protocols down, ncl across: percent right over all subsets, and the interval of distinct images."""
    keys = sorted(read_superclasses("imagenet_dog").of)  # all 1,000 wnids in label order
    named = {label for label, key in enumerate(keys) if key in read_superclasses(groups).of}
    lines = []
    for key, part in points.groupby(["model", "protocol", "ncl"]):
        share = (part["top1"] * part["n_test"]).sum() / part["n_test"].sum()
        images: set[int] = set().union(*part["classes"])
        distinct = len(images & named if key[1] == "grouped" else images)
        low, high = wilson(round(share * distinct), distinct)
        lines.append((*key, f"{100 * share:.0f} [{100 * low:.0f}, {100 * high:.0f}]"))
    frame = pd.DataFrame(lines, columns=["model", "protocol", "ncl", "top1"])
    return frame.pivot_table(index=["model", "protocol"], columns="ncl", values="top1", aggfunc="first")


def masked_in_timm(data: Path) -> pd.DataFrame:
    """Mean accuracy of timm's models with 1,000 competing classes and with 200, on ImageNet's own validation images."""
    folder, keys = data / "tables" / "timm", ["model", "img_size"]
    full = pd.read_csv(folder / "results-imagenet.csv").set_index(keys)["top1"]
    lines = []
    for name, file in (("ImageNet-A's 200", "a"), ("ImageNet-R's 200", "r")):
        few = pd.read_csv(folder / f"results-imagenet-{file}-clean.csv").set_index(keys)["top1"]
        both = pd.concat([full, few], axis=1, keys=["open", "masked"], join="inner")
        lines.append((name, len(both), both["open"].mean(), both["masked"].mean()))
    return pd.DataFrame(lines, columns=["classes", "models", "all 1,000 compete", "200 compete"])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("FCA_REAL_DATA")
    parser.add_argument("--data", type=Path, default=data, help="the folder that holds tables/")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="the store")
    options = parser.parse_args()
    for groups in ("imagenet_dog", "imagenet_16"):
        analysis = FewClass(QUERY, NCL, [0, 1, 2, 3, 4], "fca", groups=groups)
        points = next(table.frame for table in analysis(Store(options.outputs)) if table.name == "accuracy_points")
        table = pooled(points.dropna(subset="top1"), groups)
        kept = table if groups == "imagenet_dog" else table.xs("grouped", level="protocol", drop_level=False)
        print(f"groups: {groups}\n{kept.to_string()}\n")
    print(masked_in_timm(options.data).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
