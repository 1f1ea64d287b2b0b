"""What the Hard ImageNet paper (Moayeri, Singla, Feizi; NeurIPS 2022) prints, as data: Table 1 and statements."""

from __future__ import annotations

import shlex
from typing import NamedTuple

PAPER = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet)"
HARD, ORDINARY = "hard_imagenet", "rival10"
MODELS = {"deit_small_patch16_224": "DeiT (Small)", "resnet50": "ResNet50"}
CONF = {"deit_small_patch16_224": "deit_s", "resnet50": "resnet50"}
ADAPTATIONS = {"head": "-", "corm": "CoRM", "dfr": "DFR", "corm_dfr": "CoRM + DFR"}
MEASURES = ("clean", "ablate/gray", "ablate/gray_box", "ablate/tile", "rfs 0.25", "rfs 0.5", "iou")
SHIFT_OF = {"rfs 0.25": "noise/background/gaussian/0.25", "rfs 0.5": "noise/background/gaussian/0.5"}

# accuracies and IoU in percent, RFS as it is (their "linf" noise is pixelwise Gaussian)
TABLE1 = {
    ("deit_small_patch16_224", "head"): (96.79, 84.22, 80.48, 81.15, -0.19, -0.35, 20.90),
    ("deit_small_patch16_224", "corm"): (96.39, 81.02, 78.74, 80.75, 0.02, -0.19, 21.57),
    ("deit_small_patch16_224", "dfr"): (96.66, 81.28, 77.01, 77.94, -0.20, -0.33, 21.63),
    ("deit_small_patch16_224", "corm_dfr"): (96.52, 82.35, 77.01, 77.81, -0.10, -0.29, 21.99),
    ("resnet50", "head"): (94.25, 75.94, 69.39, 67.38, -0.18, -0.27, 18.44),
    ("resnet50", "corm"): (92.91, 76.20, 69.12, 68.32, -0.08, -0.27, 20.43),
    ("resnet50", "dfr"): (94.39, 73.53, 67.51, 66.71, -0.27, -0.35, 18.39),
    ("resnet50", "corm_dfr"): (91.31, 72.59, 63.64, 63.90, -0.23, -0.31, 20.35),
}
IMAGES = {"train": 19_097, "test": 750}
ATTENTION_IOU = 0.76  # mean over attention checks, section 3.2


class Statement(NamedTuple):
    """What the paper states where it prints no number.    command: what fills our side."""

    where: str
    text: str
    command: str


def run_command(model: str, adaptation: str, measure: str) -> str:
    """What makes the runs of a cell of Table 1.

    >>> run_command("resnet50", "head", "iou")
    'fca run task=saliency dataset=hard_imagenet model=resnet50 model.weights=pretrained adaptation=head'
    """
    words = [f"dataset={HARD}", f"model={CONF[model]}", "model.weights=pretrained", f"adaptation={adaptation}"]
    if measure == "iou":
        return shlex.join(["fca", "run", "task=saliency", *words])
    shift = "noise/all" if measure in SHIFT_OF else measure
    return shlex.join(["fca", "run", "task=train", *words, *([] if shift == "clean" else [f"shift={shift}"])])


STUDY = "fca run -m experiment=hard_imagenet"
DESCRIBED = "fca run task=saliency dataset=hard_imagenet,rival10 model=resnet50 model.weights=pretrained -m"
STATEMENTS = {
    "deit_half": Statement(
        "Figure 3", "an off-the-shelf DeiT keeps more than 50 % of Hard ImageNet under every ablation", STUDY
    ),
    "ablated_more": Statement(
        "Figure 3", "finetuned models keep more accuracy under ablation on Hard ImageNet than on RIVAL10", STUDY
    ),
    "rfs_lower": Statement("Figure 4", "RFS is lower on Hard ImageNet than on RIVAL10, and often negative", STUDY),
    "iou_lower": Statement("Figure 6", "GradCAM's IoU is lower on Hard ImageNet than on RIVAL10", STUDY),
    "smaller": Statement("Figure 8", "objects of Hard ImageNet are smaller, before and after the crop", DESCRIBED),
    "cropped": Statement(
        "Figure 9", "a RIVAL10 object loses at most 25 % to the crop, some of Hard ImageNet's all", DESCRIBED
    ),
    "off_centre": Statement("Figure 7", "objects of Hard ImageNet are less centred", DESCRIBED),
    "low_rank": Statement(
        "Figure 10",
        "images with weak spurious cues are classified less accurately",
        "fca analyse analysis=spurious_rank",
    ),
}
