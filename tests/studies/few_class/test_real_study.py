"""The whole path on real images: published weights, sub-models, similarity, correlation."""

import itertools
import os
from pathlib import Path

import pytest

from fca.cli import report
from fca.store import Store, results
from fca.studies.few_class.correlation import Correlation

pytestmark = pytest.mark.real


@pytest.fixture
def real():
    return Path(os.environ["FCA_REAL_DATA"])


def test_published_weights_score_as_published_and_masked_pairs_come_from_their_logits(fca, tmp_path, real):
    model = ["model=cifar_resnet20", f"model.weights={real / 'weights' / 'cifar10_resnet20.safetensors'}"]
    asked = ["task=predict", "dataset=folder", f"dataset.root={real / 'images' / 'cifar10.zip'}", *model, "logger=none"]
    code, out, err = fca(*asked)
    assert code == 0, err
    assert "top1_open 0.9173" in out
    pairs = ",".join(f"[{a},{b}]" for a, b in itertools.combinations(range(10), 2))
    code, out, err = fca("-m", *asked, f"subset.classes={pairs}")
    assert code == 0, err
    assert "46 runs: 1 done, 0 failed, 0 running, 45 to run" in out
    scores = results(tmp_path / "outputs", "task == 'score'")
    assert scores["top1_open"].mean() == pytest.approx(0.9173, abs=1e-9)  # each class stands in nine pairs
    assert scores["top1_masked"].mean() == pytest.approx(0.9850, abs=5e-5)  # four digits are stated
    assert (scores["top1_masked"] >= scores["top1_open"]).all()


def test_sub_models_of_cifar10_correlate_with_the_similarity_of_their_classes(fca, tmp_path, real):
    encoder = f"encoder.weights={real / 'weights' / 'mobilenetv1_025.safetensors'}"
    data = ["dataset=folder", f"dataset.root={real / 'images' / 'cifar10.zip'}", "limit=100"]
    grid = [
        "model=test_resnet",
        "subset.ncl=2,3,5",
        "subset.seed=0,1,2",
        "task=train,embed",
        "recipe.epochs=5",
        "recipe.min_steps=0",
    ]
    code, _, err = fca("-m", *data, *grid, "model@encoder=mobilenetv1_025", encoder, "logger=none")
    assert code == 0, err
    table = Correlation()(Store(tmp_path / "outputs"))[0].frame
    line = table[(table["target"] == "DCN sub") & (table["scope"] == "all") & (table["predictor"] == "simss")].iloc[0]
    assert line["n"] == 9
    assert line["r"] > 0.3  # .86 on all images; here 100 a class and 5 epochs
    assert fca("logger=none", door=report)[0] == 0
    assert (tmp_path / "outputs" / "reports" / "few_class" / "index.html").is_file()


def test_sub_models_train_on_a_dozen_photographs_of_groceries(fca, tmp_path, real):
    data = ["dataset=folder", f"dataset.root={real / 'images' / 'grocery.zip'}"]
    code, _, err = fca(
        *data,
        "model.input_size=64",
        "subset.ncl=2",
        "subset.seed=1",
        "recipe.epochs=30",
        "recipe.min_steps=0",
        "logger=none",
    )
    assert code == 0, err
    row = results(tmp_path / "outputs", "task == 'train'").iloc[0]
    # One product has validation images of its own and keeps its 7 for training, one has none and holds 1 of 7 out.
    assert (row["n_train"], row["n_test"]) == (13, 14)
    assert row["top1"] > 0.5
