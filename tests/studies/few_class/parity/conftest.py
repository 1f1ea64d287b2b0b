"""A store of invented runs, and tables as the paper's, for experiments/few_class_arena."""

from dataclasses import replace
from itertools import count

import arena_paper as paper
import numpy as np
import pandas as pd
import pytest

from fca.stats.intervals import wilson
from fca.store import Store
from fca.subset import draw_subset
from tests.support.lab import Lab, images

COMMAND = {"command": "fca run task=predict"}


@pytest.fixture
def data(tmp_path):
    """The paper's tables with three rows: ImageNet, DTD and CIFAR-100, invented."""
    rng = np.random.default_rng(3)
    top1 = pd.DataFrame(rng.uniform(20, 90, (3, 10)).round(2), index=["IN1K", "CF100", "TT47"], columns=[*paper.MODELS])
    folder = tmp_path / "data" / "tables"
    folder.mkdir(parents=True)
    top1.assign(DCN=top1.max(axis=1)).rename_axis("dataset").to_csv(folder / "paper_table1_top1.csv")
    lines = [
        ("DCN-Full", "CLIP", 0.1, 0.6, 30),
        ("DCN-Sub", "CLIP", 0.9, 1e-11, 30),
        ("DCN-Sub", "DINOv2", 0.8, 1e-7, 30),
    ]
    columns = ["target", "similarity_base", "pearson_r", "p_value", "n_points"]
    pd.DataFrame(lines, columns=columns).to_csv(folder / "paper_fig5_correlations.csv", index=False)
    return tmp_path / "data"


@pytest.fixture
def labs(tmp_path):
    """Makes a Lab of a data set; all share one store."""
    store, number = Store(tmp_path / "outputs"), count()

    def make(dataset):
        return Lab(store, replace(images(), name=dataset, fingerprint=dataset), number)

    return make


def full(lab, model, seed, **columns):
    """A full model's run as `task=predict` writes it."""
    logits = lab.logits(seed)
    n, right = len(lab.true), int((logits.argmax(axis=1) == lab.true).sum())
    low, high = wilson(right, n)
    scored = {"top1_open_low": low, "top1_open_high": high, "n_test": n}
    return lab.predict(model, logits, **COMMAND, **{**scored, **columns})


def sub_models(lab, model, ncl=(2, 3, 4), seeds=range(3), sampler="fca", **columns):
    rng = np.random.default_rng(len(model))
    for n in ncl:
        for seed in seeds:
            subset = draw_subset(len(lab.data.classes), n, seed, sampler)
            lab.train(model, subset, round(rng.uniform(0.5, 1), 2), **COMMAND, **columns)
