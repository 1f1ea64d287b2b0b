"""Figures 1, 3, 4 and 5, the findings, and the page, from stored runs."""

import os

import arena_paper as paper
import arena_tables as tables
import numpy as np
import pandas as pd
import parity
import pytest
import scipy.stats
from arena_tables import attempted, ready, studies

from fca.report import style
from fca.studies.few_class.accuracy import per_subset
from fca.subset import draw_subset
from tests.studies.few_class.parity.conftest import COMMAND, full, sub_models
from tests.support.lab import RECIPE

pytestmark = pytest.mark.slow  # whole studies, and their pages


def test_dcn_full_is_the_best_of_the_models_on_the_drawn_subsets(data, labs):
    lab = labs("dtd")
    for seed, model in enumerate(("vgg16", "resnet50")):
        full(lab, model, seed)
    [study] = studies(lab.store)
    frame = tables.by_ncl([study], paper.table1(data)["DCN"])["figure3"]
    line = frame[(frame["dataset"] == "dtd") & (frame["protocol"] == "open") & (frame["ncl"] == 3)].iloc[0]
    best = []
    for seed in range(5):
        inside = np.isin(lab.true, draw_subset(6, 3, seed, "fca").classes)
        best.append(max((lab.logits(k).argmax(axis=1) == lab.true)[inside].mean() for k in range(2)))
    assert line["top1"] == pytest.approx(np.mean(best))
    assert line["spread"] == pytest.approx(np.std(best, ddof=1))
    assert (line["subsets"], line["models"]) == (5, 2)
    assert pd.isna(line["command"])


def test_probes_and_trained_sub_models_are_two_studies_and_a_mixed_one_is_refused(labs):
    mixed, plain = labs("cifar10"), labs("dtd")
    sub_models(plain, "test_resnet")
    for adaptation in ("scratch", "probe"):
        sub_models(mixed, "test_resnet", adaptation=adaptation)
    full(mixed, "cifar_resnet20", 0)
    usable, reasons = ready(studies(mixed.store))
    assert [study.name for study in usable] == ["dtd", "cifar10 · scratch", "cifar10 · probe"]
    assert not reasons
    assert all("cifar_resnet20" in set(study.points["model"]) for study in usable[1:])  # published: of both
    sub_models(mixed, "test_resnet", ncl=(5,), adaptation="probe", recipe_epochs=RECIPE["recipe_epochs"] + 1)
    usable, reasons = ready(studies(mixed.store))
    assert "recipe_epochs of the rows read = 10, 11" in reasons["cifar10 · probe"]
    assert [study.name for study in usable] == ["dtd", "cifar10 · scratch"]


def test_figure_5_is_of_the_resnet_family_with_the_paper_s_r_beside_ours(data, labs):
    lab = labs("imagenet")
    for seed, model in enumerate(("resnet18", "resnet50", "resnet152")):
        sub_models(lab, model, ncl=(2, 3), seeds=range(5))
        full(lab, model, seed)
    sub_models(lab, "vgg16", ncl=(2, 3), seeds=range(5))
    lab.embed("vit_base_patch32_clip_224", lab.features(1), **COMMAND)
    found, reasons = attempted(studies(lab.store), lambda study: study.correlated)
    figure = tables.figure5(paper.figure5(data), found)
    assert not reasons
    line = figure.set_index(["encoder", "target", "predictor", "scope"]).loc["CLIP", "DCN sub", "simss", "all"]
    points = found["imagenet"]["correlation_points"].frame.query("target == 'DCN sub'")
    r = scipy.stats.pearsonr(points["simss"], points["top1"]).statistic
    assert (line["r"], line["r_paper"], line["n_paper"]) == (pytest.approx(r), 0.9, 30)
    assert line["agrees"] == ("yes" if line["r_paper_low"] <= r <= line["r_paper_high"] <= line["r_high"] else "no")
    assert set(points["model"]) <= set(paper.FAMILY)
    assert figure.loc[figure["encoder"] == "DINOv2", "r"].isna().all()


def test_a_finding_is_significant_only_when_its_interval_excludes_0(labs):
    lab = labs("imagenet")
    for model, params in (("resnet18", 1), ("resnet34", 2), ("resnet50", 3)):
        for n in (2, 3, 5):
            for seed in range(5):
                lab.train(model, draw_subset(6, n, seed, "fca"), 1.0, params=params, **COMMAND)
        full(lab, model, 1, params=params)
    usable, _ = ready(studies(lab.store))
    found = tables.findings(usable).set_index("finding")
    subset = per_subset(usable[0].points)
    assert (subset.loc[(subset["protocol"] == "open") & (subset["ncl"] == 2), "top1"] < 1).any()
    assert found.loc["a, best of models", "significant"] == "yes, as in the paper"
    assert (found.loc["c.1", "value_low"] <= 0) == (
        found.loc["c.1", "significant"] == "no" or found.loc["c.1", "value_high"] < 0
    )
    assert pd.isna(found.loc["d.2", "value"])  # equal accuracies have no order
    assert "fc_sub" in found.loc["d.2", "command"]


def test_the_page_shows_other_data_sets_beyond_the_paper_s_ten(data, labs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(style, "save", lambda _, stem: stem.with_suffix(".png").touch())  # drawn in a `real` test below
    lab = labs("cifar10")
    sub_models(lab, "test_resnet", ncl=(2, 3), params=5)
    full(lab, "cifar_resnet20", 2, params=9)
    lab.embed("mobilenetv1_025", lab.features(2), **COMMAND)
    full(labs("dtd"), "resnet50", 3)
    to = tmp_path / "parity"
    assert parity.main(["--data", str(data), "--outputs", str(lab.store.outputs), "--to", str(to)]) == 0
    out = capsys.readouterr().out
    assert "Table 1: 1 of 30 cells have a run here" in out
    assert "imagenet: no run here shows the findings of figure 1" in out
    assert "cifar10, mobilenetv1_025, DCN sub: simss (all) r = " in out
    names = {path.stem for path in (to / "figures").glob("*.png")}
    assert {"table1", "figure2a", "figure2b", "figure3", "figure5", "beyond_figure1", "beyond_figure5"} <= names
    assert "figure1" not in names  # no ResNet on ImageNet
    beyond = pd.read_csv(to / "tables" / "beyond_dcn.csv")
    assert set(beyond["dataset"]) == {"cifar10"}
    assert set(beyond["protocol"]) == {"sub", "open", "masked"}
    page = (to / "index.html").read_text()
    assert "experiment=fc_full dataset=dtd model=vgg16" in page
    assert "python experiments/few_class_arena/parity.py --data" in page


@pytest.mark.real
def test_the_page_of_an_empty_store_shows_the_paper_alone(tmp_path):
    assert parity.main(["--data", os.environ["FCA_REAL_DATA"], "--outputs", str(tmp_path / "outputs")]) == 0
    to = tmp_path / "outputs" / "reports" / "parity"
    assert {path.stem for path in (to / "figures").glob("*.png")} == {
        *("table1", "figure2a", "figure2b", "rank_agreement", "regret", "figure5")
    }
    table = pd.read_csv(to / "tables" / "table1.csv")
    assert len(table) == 110
    assert table["top1"].isna().all()
    assert table["command"].notna().all()
