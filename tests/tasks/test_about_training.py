"""Rows of each task that trains or fits probes, on data with images left out and groups."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.store import results


@pytest.fixture
def scans(tmp_path):
    """Two scans of each patient, in two classes, and one image in no class folder."""
    rng = np.random.default_rng(0)
    root, lines = tmp_path / "scans", []
    for key in ("ill", "well"):
        (root / key).mkdir(parents=True)
        for i in range(24):
            Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(root / key / f"{i}.png")
            lines.append({"path": f"{key}/{i}.png", "patient": f"{key} {i // 2}"})
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(root / "loose.png")
    pd.DataFrame(lines).to_csv(root / "index.csv", index=False)
    return root


@pytest.mark.wide
@pytest.mark.parametrize("words", [["adaptation=probe"], ["task=learning_curve"], ["task=screen", "task.images=12"]])
def test_images_left_out_and_groups_are_in_the_row(fca, tmp_path, scans, words):
    data = ["dataset=folder", f"dataset.root={scans}", "dataset.group=patient"]
    code, _, err = fca("model=hog", *words, *data, "logger=none", "machine.workers=1", "machine.accelerator=cpu")
    assert code == 0, err
    rows = results(tmp_path / "outputs", "task in ('train', 'learning_curve', 'screen')")
    assert rows["n_unused"].tolist() == [1]
    assert rows["group"].tolist() == ["patient"]
