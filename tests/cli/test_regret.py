"""experiments/recommend/regret.py, shrunk: its jobs run, are judged, and leave the points that predictions rest on."""

import json
import shutil
from argparse import Namespace

import pandas as pd
import pytest
import regret

from fca.studies.recommend.expected import AFTER, measured_coverage
from tests.cli.test_recommend import folder_of_colours


@pytest.mark.slow
def test_every_way_to_choose_is_judged_on_jobs_of_two_data_sets(tmp_path, monkeypatch, capsys):
    sets = ("clothing", "signdigits")
    for name in sets:
        folder = folder_of_colours(tmp_path / name, per_class=30 if name == "clothing" else 40)
        shutil.make_archive(str(tmp_path / "images" / name), "zip", folder)
    short = ["recipe.epochs=3", "recipe.min_steps=30", "machine.workers=1"]
    monkeypatch.setattr(regret, "JOBS", {sets[0]: [(2, 0)], sets[1]: [(None, 0)]})
    monkeypatch.setattr(regret, "KEYS", dict.fromkeys(sets, short))
    monkeypatch.setattr(regret, "WEIGHTS", ())
    whole = regret.search_of

    def two_candidates(*asked):
        search = whole(*asked)
        search.networks = search.networks[:2]
        return search

    monkeypatch.setattr(regret, "search_of", two_candidates)
    measured = tmp_path / "measured.csv"
    options = Namespace(
        images=tmp_path / "images", weights="none", outputs=str(tmp_path / "out"), minutes=600, only=None, later=False
    )
    options.measured, options.coverage = measured, tmp_path / "coverage.csv"
    regret.run(options)
    [file, _] = (tmp_path / "out" / "regret").glob("*.json")
    found = json.loads(file.read_text())
    file.write_text(json.dumps(found | {"whole": False}))  # as if stopped before the last training
    regret.run(options)
    assert json.loads(file.read_text()) == found, "what recommend saw is not what was trained after it"
    capsys.readouterr()
    regret.table(options)
    lines = capsys.readouterr().out.splitlines()
    ways = {"fca recommend", "train everything, best on val", "always test_resnet, scratch"}
    assert all(any(way in line for line in lines) for way in (*ways, "of the weights that were judged"))
    coverage = pd.read_csv(options.coverage)
    assert list(coverage) == list(measured_coverage())
    assert set(coverage.loc[coverage["when"] == AFTER, "adaptation"]) == {"probe", "scratch"}
    assert coverage["inside"].between(0, 1).all()
    assert (coverage["jobs"] <= 2).all()
    points = pd.read_csv(measured)
    assert set(points["dataset"]) == set(sets)
    assert regret.tables(regret.Store(tmp_path / "out"), options.outputs, later=True)[0].empty  # none of these ran
    choices, _, _ = regret.tables(regret.Store(tmp_path / "out"), options.outputs)
    assert choices["regret"].between(0, 100).all()
    assert (choices.groupby(["dataset", "ncl"])["regret"].min() == 0).all()  # one of the always is the best
