"""experiments/recommend/more_images.py, shrunk: curves and the table of three data sets of invented features."""

import json
from argparse import Namespace

import more_images
import numpy as np
import pytest

from fca.studies.recommend.stats.learning_curve import Hyperparameters
from tests.studies.recommend.support.features_of_data import features


@pytest.mark.slow
def test_curves_are_compared_with_what_hidden_images_bring(tmp_path, monkeypatch, capsys):
    for seed, name in enumerate(("one", "other", "third")):
        features(tmp_path / "features" / name, seed)
    monkeypatch.setattr(more_images, "NCLS", (2, 3))
    monkeypatch.setattr(more_images, "SEEDS", 2)
    for given in (False, True):
        more_images.curves(Namespace(out=tmp_path, only=None, given=given))
    more_images.table(Namespace(out=tmp_path, shipped=tmp_path))

    lines = json.loads((tmp_path / "curves" / "one.json").read_text())
    assert {line["ncl"] for line in lines} == {2, 3}
    for line in lines:
        times = [size / line["images"] for size in line["test_sizes"]]
        assert times in ([1.0, 2.0], [1.0, 2.0, 4.0])
        assert line["sizes"] == sorted(line["sizes"], reverse=True)
    shipped = Hyperparameters.from_json(json.loads((tmp_path / "learning_curve.json").read_text()))
    assert (np.linalg.eigvalsh(shipped.covariance) > 0).all()
    printed = capsys.readouterr().out
    for way in ("curve", "no change", "other jobs"):
        assert f"('{way}', 4, True)" in printed
    assert "| given test split third |" in printed
    assert "gain of 2 times as many" in printed
