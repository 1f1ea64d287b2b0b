"""A search on published weights: a probe of mobilenetv1_050's features fails under conditions of drawn objects."""

import os
from pathlib import Path

import numpy as np
import pytest

from fca.store import Store

pytestmark = pytest.mark.real


def test_a_probe_of_published_features_knows_plain_cars_and_fails_under_some_conditions(fca, tmp_path):
    weights = Path(os.environ["FCA_REAL_DATA"]) / "weights" / "mobilenetv1_050.safetensors"
    drawn = ["dataset=rendered", "dataset.size=64", "dataset.train_per_class=40", "dataset.per_level=1", "logger=none"]
    code, _, err = fca(*drawn, "model=mobilenetv1_050", f"model.weights={weights}", "adaptation=probe")
    assert code == 0, err
    store = Store(tmp_path / "outputs")
    probe = store.rows("task == 'train'").iloc[0]
    assert probe["top1"] > 0.6
    search = [
        "experiment=rendered_failures",
        f"model.run_id={probe['run_id']}",
        f"task.second.run_id={probe['run_id']}",
    ]
    code, _, err = fca(*drawn, *search, "task.images=[12]", "task.max_subdomains=24", "task.confirm=0")
    assert code == 0, err
    row = store.rows("task == 'search'").iloc[0]
    accuracy = store.array(row["run_id"], "correct") / store.array(row["run_id"], "shown")
    assert accuracy.max() > 0.8
    assert accuracy.min() < 0.4
    kept = store.array(row["run_id"], "image_accepted")
    same = store.array(row["run_id"], "image_second") == store.array(row["run_id"], "image_correct")
    assert np.all(same[kept]), "one network as first and second classifier sees the same pixels twice"
