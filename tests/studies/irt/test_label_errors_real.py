"""Labels that people found to be wrong in ImageNet and CIFAR-10, looked for among the answers of many models."""

import os
from pathlib import Path

import numpy as np
import pytest

from fca.store import Store
from fca.studies.irt.label_errors import LabelErrors

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def answers():
    return Path(os.environ["FCA_REAL_DATA"]) / "responses"


def judged(folder, verdicts, columns, k=None, **arrays):
    """Tables by rule of answers in a file of our own format."""
    np.savez(folder / "answers.npz", **arrays)
    asked = LabelErrors(responses=[str(folder / "answers.npz")], verdicts=str(verdicts), verdict_columns=columns, k=k)
    rules = {table.name: table.frame for table in asked(Store(folder / "outputs"))}["label_error_rules"]
    shown = rules.set_index("rule").filter(regex=r"^(auc|auc_reviewed|recall_\d+|precision_at_k)(_low|_high)?$")
    print(shown.T.round(3).to_string())
    return rules.set_index("rule")


def test_most_errors_of_imagenet_are_where_the_models_agree_on_another_class(answers, tmp_path):
    about = np.load(answers / "imagenetv2_val50k_top1.npz")
    said = np.load(answers / "imagenetv2_val50k_top1_predictions.npz")
    keep = ~np.isin(said["models"], ["fv_4k", "fv_16k"])  # random features, right on .2 of the images
    rules = judged(
        tmp_path,
        answers / "labelerrors_imagenet_mturk.csv.gz",
        ["file", "err_given_lt3"],
        k=500,
        subjects=said["models"][keep],
        items=about["filenames"],
        pred=said["pred"][keep],
        labels=about["labels"],
        classes=np.arange(1000).astype(str),
    )
    assert rules["errors"].unique().tolist() == [2916]
    assert rules["reviewed"].unique().tolist() == [5440]
    assert rules.loc["modal_wrong_share", "precision_at_k"] >= 0.8
    assert rules.loc["modal_wrong_share", "recall_25"] >= 0.85
    assert rules["auc"].idxmax() == "modal_wrong_share"
    assert rules.loc["low_discrimination_feasibility", "recall_25"] < rules.loc["modal_wrong_share", "recall_25_low"]


def test_the_errors_of_cifar_10_are_counted_with_intervals(answers, tmp_path):
    said = np.load(answers / "cifar10_test_predictions.npz")
    rules = judged(
        tmp_path,
        answers / "labelerrors_cifar10_mturk.csv.gz",
        ["id", "err_given_lt3"],
        subjects=said["models"],
        items=np.arange(10_000).astype(str),
        pred=said["predictions"],
        labels=said["labels"],
        classes=said["classes"],
    )
    assert rules["errors"].unique().tolist() == rules["k"].unique().tolist() == [54]
    for name in ("auc", "recall_5", "recall_10", "recall_25", "precision_at_k"):
        assert (rules[f"{name}_low"] < rules[name]).all()
        assert (rules[name] < rules[f"{name}_high"]).all()
