"""What the Few-Class Arena paper reports (arXiv:2411.01099), under the names that stored runs have.

Its numbers are read from two files that are not part of this project: paper_table1_top1.csv (percent; a row for each
data set, a column for each model, and DCN) and paper_fig5_correlations.csv (target, similarity_base, pearson_r,
p_value, n_points).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fca.types import FcaError

IMAGENET = "imagenet"
DCN = "DCN"
SEEDS = range(5)
FEW = (2, 3, 4, 5)  # "few classes" in the findings of figure 1
FIGURE4 = (2, 3, 4)
FIGURE5 = (2, 3, 4, 5, 10, 100)
FAMILY = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")  # figures 1 and 5
TEXTS = yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text())
DATASETS = {short: dataset for short, (dataset, _) in TEXTS["datasets"].items()}
CLASSES = dict(TEXTS["datasets"].values())  # dataset=... -> number of classes
MODELS, ENCODERS = TEXTS["models"], TEXTS["encoders"]  # the paper's name -> ours, and how to recognise it
TEN = [conf for conf, _ in MODELS.values()]
TARGETS = {"DCN-Full": "DCN open", "DCN-Sub": "DCN sub"}  # the paper's name -> ours


def base(study: str) -> str:
    """The data set of a study: `cifar10 · sampler fca` is one of cifar10."""
    return study.partition(" · ")[0]


def short_model(label: str) -> str | None:
    """The paper's name of the network that a stored run calls `label`; None for one that is not in Table 1.

    >>> short_model("tf_efficientnetv2_m"), short_model("mobilenetv3_small_075")
    ('EFv2', None)
    """
    plain = label.rpartition("/")[2].lower().replace("-", "_")
    return next((short for short, (_, name) in MODELS.items() if re.fullmatch(name, plain)), None)


def short_encoder(label: str) -> str:
    """The paper's name of an encoder; another one keeps its own."""
    return next((short for short, (_, mark) in ENCODERS.items() if mark in label.lower()), label)


def grid(num_classes: int) -> list[int]:
    """The paper's numbers of classes for a set of so many: 2, 3, 4, 5, 10; 10, 20, 40, 60 and 80 percent; all.

    >>> grid(47)
    [2, 3, 4, 5, 9, 10, 18, 28, 37, 47]
    """
    wanted = {*FEW, 10, num_classes, *(num_classes * percent // 100 for percent in (10, 20, 40, 60, 80))}
    return sorted(n for n in wanted if 2 <= n <= num_classes)


def table1(data: Path) -> pd.DataFrame:
    """Top-1 of every data set (row, the paper's name) and model (column; the last is DCN), as fractions."""
    frame = _read(data / "tables" / "paper_table1_top1.csv", ["dataset", *MODELS, DCN]).set_index("dataset")
    unknown = sorted(set(frame.index) - set(DATASETS))
    if unknown:
        raise FcaError("data sets of Table 1", ", ".join(unknown), ", ".join(DATASETS), "mend the file")
    return (frame[[*MODELS, DCN]] / 100).round(6)  # else 99.85 % is .9984999999999999


def figure5(data: Path) -> pd.DataFrame:
    """Pearson's r of SimSS with DCN-Full and DCN-Sub: encoder, target, r_paper with interval, p_paper, n_paper.

    The interval is Fisher's, tanh(atanh r ± 1.96 / sqrt(n - 3)), as if the n subsets were independent.
    """
    names = {"similarity_base": "encoder", "target": "target", "pearson_r": "r_paper"}
    names |= {"p_value": "p_paper", "n_points": "n_paper"}
    frame = _read(data / "tables" / "paper_fig5_correlations.csv", list(names)).rename(columns=names)
    z, half = np.arctanh(frame["r_paper"]), 1.959964 / np.sqrt(frame["n_paper"] - 3)
    ends = {"r_paper_low": np.tanh(z - half), "r_paper_high": np.tanh(z + half)}
    return frame.assign(target=frame["target"].map(TARGETS), **ends)


def full_command(dataset: str, models: Sequence[str] = ()) -> str:
    """Makes full models (all ten, unless named): their predictions give Table 1 and every point of FC-Full.

    As in the paper, ImageNet's are published weights, and the others' are trained.
    """
    published = {"task": ["predict"], "model.weights": ["pretrained"]} if dataset == IMAGENET else {}
    return _command("fc_full", dataset, model=models or TEN, **published)


def sub_command(dataset: str, models: Sequence[str] = (), ncl: int | None = None) -> str:
    """Trains sub-models (of all ten, unless named), at one ncl or at the paper's."""
    return _command("fc_sub", dataset, model=models or TEN, **{"subset.ncl": [ncl] if ncl else []})


def sim_command(dataset: str, encoder: str) -> str:
    """Embeds the test images."""
    return _command("fc_sim", dataset, **{"model@encoder": [encoder]})


def _command(experiment: str, dataset: str, **axes: Sequence[Any]) -> str:
    words = [f"{name}={','.join(map(str, values))}" for name, values in axes.items() if values]
    return " ".join([f"fca run -m experiment={experiment} dataset={dataset}", *words])


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    step = "give --data or FCA_REAL_DATA the folder that holds tables/"
    if not path.is_file():
        raise FcaError("the paper's numbers", path, "an existing CSV file", step)
    frame = pd.read_csv(path)
    absent = [name for name in columns if name not in frame]
    if absent:
        raise FcaError(f"columns of {path}", ", ".join(map(str, frame)), ", ".join(columns), f"add {', '.join(absent)}")
    return frame[columns]
