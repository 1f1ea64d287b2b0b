"""experiments/recommend/regret.py, shrunk: features, jobs, fits and tables of two data sets of coloured squares."""

import shutil
from argparse import Namespace

import pandas as pd
import pytest
import regret

from fca.cli.configure import load_model
from fca.studies.recommend.stats.candidate_accuracy import COLUMNS
from tests.studies.recommend.support.coloured_folder import folder_of_colours


@pytest.mark.slow
def test_every_way_to_choose_is_judged_on_jobs_of_two_data_sets(tmp_path, monkeypatch, capsys):
    sets = ("clothing", "signdigits")
    for name in sets:
        folder = folder_of_colours(tmp_path / name, per_class=30)
        shutil.make_archive(str(tmp_path / "images" / name), "zip", folder)
    monkeypatch.setattr(regret, "DATASETS", {name: ({}, None, None) for name in sets})
    model = load_model("efficientnet_lite0", weights="package", input_size=32)
    assert [label for label, _ in regret.encoders_of(None)].count("tf_efficientnet_lite0") == 4
    monkeypatch.setattr(regret, "encoders_of", lambda weights: [(model.label(), model)])
    monkeypatch.setattr(regret, "NCLS", (2, 3))
    monkeypatch.setattr(regret, "CALIBRATION", 4)
    options = Namespace(images=tmp_path / "images", weights=None, out=tmp_path / "out", only=None, shipped=tmp_path)

    for step in (regret.features, regret.times, regret.jobs, regret.fit_all, regret.table, regret.figure):
        step(options)

    measured = pd.read_csv(tmp_path / "measured.csv")
    assert set(COLUMNS) <= set(measured)
    assert measured.groupby("job").size().eq(5).all()  # HOG, and two depths in two precisions
    assert (measured["right_test"] <= measured["n_test"]).all()
    printed = capsys.readouterr().out
    assert "always tf_efficientnet_lite0 32 cut int8" in printed
    assert "fca recommend" in printed
    assert "answers, mean" in printed
    assert "minus the answer" in printed
    assert pd.read_csv(tmp_path / "out" / "times.csv")["ms"].gt(0).all()
    assert (tmp_path / "out" / "regret.png").stat().st_size > 10_000
