"""Published responses as files that analyses read: 65 ImageNet models of ImageNetV2, 34 CIFAR-10 models of CIFAR-10.1.

    python experiments/irt_corruption/published.py FOLDER outputs/responses

FOLDER holds imagenetv2_val50k_top1{,_predictions}.npz (modestyachts/ImageNetV2, MIT: top-1 predictions on the 50,000
validation images), cifar10_test_predictions.npz (modestyachts/CIFAR-10.1, MIT: on the 10,000 test images) and
labelerrors_cifar10_mturk.csv.gz (cleanlab/label-errors, Apache-2.0), whose lines count images instead of naming them.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

DROPPED = ("fv_4k", "fv_16k")  # Fisher vectors, at chance on other test sets of the same images
CLASSES = np.arange(1000).astype(str)  # by their place in the usual order of the 1,000 wnids


def main(folder: Path, out: Path) -> None:
    """ImageNet's items are named by file, CIFAR-10's by the picture that shows them."""
    out.mkdir(parents=True, exist_ok=True)
    about, predicted = (np.load(folder / f"imagenetv2_val50k_top1{end}.npz") for end in ("", "_predictions"))
    kept = ~np.isin(about["models"], DROPPED)
    arrays = {"subjects": about["models"][kept], "items": about["filenames"], "labels": about["labels"]}
    np.savez_compressed(out / "imagenet_val.npz", **arrays, classes=CLASSES, pred=predicted["pred"][kept])
    file = np.load(folder / "cifar10_test_predictions.npz")
    arrays = {"subjects": file["models"], "items": file["files"], "labels": file["labels"], "classes": file["classes"]}
    np.savez_compressed(out / "cifar10_test.npz", **arrays, pred=file["predictions"])
    verdicts = pd.read_csv(folder / "labelerrors_cifar10_mturk.csv.gz")
    named = verdicts.assign(item=file["files"][verdicts["id"]], error=verdicts["err_given_lt3"])
    named[["item", "error"]].to_csv(out / "cifar10_verdicts.csv", index=False)
    print(out / "imagenet_val.npz", out / "cifar10_test.npz", sep="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
