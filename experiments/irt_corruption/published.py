"""Published answers as files that analyses read: 65 ImageNet models of ImageNetV2, 34 CIFAR-10 models of CIFAR-10.1.

    python experiments/irt_corruption/published.py FOLDER outputs/answers

FOLDER holds imagenetv2_val50k_top1{,_predictions}.npz (modestyachts/ImageNetV2, MIT: top-1 answers on the 50,000
validation images), cifar10_test_predictions.npz (modestyachts/CIFAR-10.1, MIT: answers on the 10,000 test images) and
labelerrors_cifar10_mturk.csv.gz (cleanlab/label-errors, Apache-2.0), whose lines count images instead of naming them.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

DROPPED = ("fv_4k", "fv_16k")  # Fisher vectors, at chance on other test sets of the same images


def imagenet(folder: Path, out: Path) -> Path:
    """Items are named by file, classes by their place in the usual order of the 1,000 wnids."""
    right, said = (np.load(folder / f"imagenetv2_val50k_top1{end}.npz") for end in ("", "_predictions"))
    kept = ~np.isin(right["models"], DROPPED)
    path = out / "imagenet_val.npz"
    np.savez_compressed(
        path,
        subjects=right["models"][kept],
        items=right["filenames"],
        labels=right["labels"],
        classes=np.arange(1000).astype(str),
        pred=said["pred"][kept],
    )
    return path


def cifar10(folder: Path, out: Path) -> Path:
    """Items are named by the picture that shows them."""
    file = np.load(folder / "cifar10_test_predictions.npz")
    path = out / "cifar10_test.npz"
    np.savez_compressed(
        path,
        subjects=file["models"],
        items=file["files"],
        labels=file["labels"],
        classes=file["classes"],
        pred=file["predictions"],
    )
    verdicts = pd.read_csv(folder / "labelerrors_cifar10_mturk.csv.gz")
    named = verdicts.assign(item=file["files"][verdicts["id"]], error=verdicts["err_given_lt3"])
    named[["item", "error"]].to_csv(out / "cifar10_verdicts.csv", index=False)
    return path


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    for write in (imagenet, cifar10):
        print(write(source, target))
