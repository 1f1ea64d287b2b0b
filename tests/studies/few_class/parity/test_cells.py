"""The paper's tables, the cells of Table 1, ranks and regret."""

import doctest
import os
from pathlib import Path

import arena_paper as paper
import arena_tables as tables
import numpy as np
import pandas as pd
import parity
import pytest
import scipy.stats
import yaml

from fca.store import Store
from fca.types import FcaError
from tests.studies.few_class.parity.conftest import full

ROOT = Path(__file__).parents[4]


def test_the_paper_s_models_and_data_sets_are_those_of_the_configuration():
    for short, (conf, _) in paper.MODELS.items():
        name = yaml.safe_load((ROOT / "conf" / "model" / f"{conf}.yaml").read_text())["name"]
        assert paper.short_model(name) == short
    assert all((ROOT / "conf" / "dataset" / f"{dataset}.yaml").is_file() for dataset in paper.DATASETS.values())
    assert all((ROOT / "conf" / "model" / f"{conf}.yaml").is_file() for conf, _ in paper.ENCODERS.values())
    assert all((ROOT / "conf" / "model" / f"{conf}.yaml").is_file() for conf in paper.FAMILY)


@pytest.mark.parametrize(
    ("label", "short"),
    [
        ("resnet50_8xb32_in1k", "RN50"),
        ("resnet50_gn", None),
        ("resnet50 stem=cifar", None),
        ("vgg16_bn", None),
        ("vit-base-p16_32xb128-mae_in1k", "ViTb"),
        ("vit_base_patch16_clip_224", None),
        ("mobilenetv3_small_050", None),
        ("mobilenet-v3-small_8xb128_in1k", "MNv3"),
    ],
)
def test_a_run_of_another_network_is_not_a_cell_of_table_1(label, short):
    assert paper.short_model(label) == short


def test_the_examples_of_the_paper_s_names_are_true():
    found = doctest.testmod(paper)
    assert found.attempted > 1
    assert not found.failed


def test_the_grid_is_the_paper_s_on_imagenet():
    assert paper.grid(1000) == [2, 3, 4, 5, 10, 100, 200, 400, 600, 800, 1000]


def test_the_interval_of_a_published_r_is_fisher_s(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    found = scipy.stats.pearsonr(x, x + rng.normal(size=30))
    folder = tmp_path / "tables"
    folder.mkdir()
    line = {"target": "DCN-Sub", "similarity_base": "CLIP", "pearson_r": found.statistic, "p_value": 0, "n_points": 30}
    pd.DataFrame([line]).to_csv(folder / "paper_fig5_correlations.csv", index=False)
    [read] = paper.figure5(tmp_path).to_dict("records")
    assert (read["r_paper_low"], read["r_paper_high"]) == pytest.approx(tuple(found.confidence_interval()), abs=1e-6)


def test_a_missing_or_foreign_table_is_refused(tmp_path, capsys):
    assert parity.main(["--data", str(tmp_path), "--outputs", str(tmp_path)]) == 2
    assert "paper_table1_top1.csv; allowed: an existing CSV file" in capsys.readouterr().err
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "paper_table1_top1.csv").write_text("dataset,RN50\nIN1K,1\n")
    with pytest.raises(FcaError, match="add VGG16, CNv2"):
        paper.table1(tmp_path)


def test_every_cell_of_an_empty_store_is_empty_and_has_its_command(data, tmp_path):
    table = tables.table1(paper.table1(data), Store(tmp_path / "none").rows())
    assert len(table) == 3 * 11
    assert table["top1"].isna().all()
    assert table["top1_minus_paper"].isna().all()
    line = table[(table["dataset"] == "cifar100") & (table["paper_model"] == "EFv2")].iloc[0]
    assert line["command"] == "fca run -m experiment=fc_full dataset=cifar100 model=efficientnetv2_m"
    line = table[(table["dataset"] == "imagenet") & (table["paper_model"] == "RN50")].iloc[0]
    published = "task=predict model.weights=pretrained"
    assert line["command"] == f"fca run -m experiment=fc_full dataset=imagenet model=resnet50 {published}"
    dcn = paper.table1(data)["DCN"]
    curves = tables.by_ncl([], dcn)
    figure = curves["figure1"]
    assert len(figure) == 5 * 3 * 11
    assert figure["top1"].isna().all()
    line = figure[(figure["model"] == "resnet34") & (figure["protocol"] == "sub") & (figure["ncl"] == 3)].iloc[0]
    assert line["command"] == "fca run -m experiment=fc_sub dataset=imagenet model=resnet34 subset.ncl=3"
    assert curves["figure3"]["command"].notna().all()
    assert curves["figure4"].groupby("dataset").size().eq(3 * 3).all()
    figure = tables.figure5(paper.figure5(data), {})
    assert len(figure) == 2 * 2 * 3
    assert figure["r"].isna().all()
    assert figure["command"].str.contains("experiment=fc_sim dataset=imagenet model@encoder=").all()
    found = tables.findings([])
    assert found["value"].isna().all()
    assert found["significant"].isna().all()
    assert found["command"].notna().all()


def test_a_cell_has_its_run_wilson_s_interval_and_the_difference(data, labs):
    lab = labs("dtd")
    run = full(lab, "shufflenet_v2_x1_0", 4)
    published = paper.table1(data)
    table = tables.table1(published, lab.store.rows())
    line = table[(table["dataset"] == "dtd") & (table["paper_model"] == "SNv2")].iloc[0]
    right = int((lab.logits(4).argmax(axis=1) == lab.true).sum())
    interval = scipy.stats.binomtest(right, len(lab.true)).proportion_ci(method="wilson")
    assert line["run_id"] == run
    assert line["top1"] == right / len(lab.true)
    assert (line["top1_low"], line["top1_high"]) == pytest.approx(tuple(interval), abs=1e-12)
    assert line["top1_minus_paper"] == pytest.approx(right / len(lab.true) - published.loc["TT47", "SNv2"])
    assert pd.isna(line["command"])
    best = table[(table["dataset"] == "dtd") & (table["paper_model"] == "DCN")].iloc[0]
    assert best["models"] == 1
    assert pd.isna(best["top1_minus_paper"])  # the best of one model is not the best of ten
    assert best["command"].count(",") == 8  # nine models are left


def test_ten_models_make_a_dcn_that_is_compared_and_two_runs_of_one_model_are_two_lines(data, labs):
    lab = labs("cifar100")
    for seed, (conf, _) in enumerate(paper.MODELS.values()):
        full(lab, conf, seed)
    full(lab, "resnet50", 99, weights="other")
    table = tables.table1(paper.table1(data), lab.store.rows())
    here = table[table["dataset"] == "cifar100"].set_index("paper_model")
    assert len(here.loc["RN50"]) == 2
    means = here.drop("DCN").groupby("paper_model")["top1"].mean()
    assert here.loc["DCN", "top1"] == pytest.approx(means.max())
    assert here.loc["DCN", "top1_minus_paper"] == pytest.approx(means.max() - here.loc["DCN", "top1_paper"])
    ours = tables.ranks(table).query("whose == 'ours'").set_index("paper_model")["rank"]
    expected = scipy.stats.rankdata(-means)
    assert ours[means.index].tolist() == expected.tolist()


@pytest.mark.real
def test_ranks_and_regret_of_the_paper_s_table_are_those_of_the_readme():
    table = paper.table1(Path(os.environ["FCA_REAL_DATA"]))
    models = table.drop(columns="DCN")
    assert table.shape == (10, 11)
    assert table["DCN"].tolist() == models.max(axis=1).tolist()
    empty = tables.table1(table, Store(Path("none")).rows())
    rho = tables.agreement(table, empty).set_index("paper_dataset")["rho"]
    expected = {"CF100": 0.56, "GT43": 0.32, "CT256": 0.30, "QD345": 0.27, "FD101": 0.25, "CT101": 0.10}
    expected |= {"TT47": 0.09, "CB200": -0.18, "ID67": -0.39}
    assert rho.round(2).to_dict() == expected
    for short, value in rho.items():
        assert value == pytest.approx(scipy.stats.spearmanr(models.loc[short], models.loc["IN1K"]).statistic, abs=1e-12)
    regret = tables.regret(table).set_index("paper_model")["top1_regret"]
    expected = {"SNv2": 4.0, "SWv2b": 4.2, "MViTs": 5.1, "RN50": 6.2, "EFv2": 7.7, "INCv3": 8.4, "CNv2": 12.3}
    assert (100 * regret).round(1).to_dict() == {**expected, "VGG16": 21.0, "ViTb": 26.3, "MNv3": 46.5}
    ranks = tables.ranks(empty).set_index(["paper_dataset", "paper_model"])["rank"]
    assert (ranks["IN1K", "RN50"], ranks["QD345", "RN50"]) == (7, 1)  # as in its text
