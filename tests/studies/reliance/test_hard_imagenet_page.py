"""The paper's Table 1 and statements beside ours: empty cells name commands that compose, filled ones our numbers."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import beside_ours
import moayeri as paper
import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from fca.cli.application import register
from fca.cli.places import CONF
from fca.store import Store
from tests.support.lab import Lab, images

FOLDER = Path(__file__).parents[3] / "experiments" / "hard_imagenet"


@pytest.fixture
def lab(tmp_path):
    return Lab(Store(tmp_path / "outputs"), replace(images(per_class=10), name=paper.HARD))


@pytest.mark.slow  # composes 56 commands
def test_every_cell_of_an_empty_store_has_the_paper_s_number_and_a_command_that_composes(tmp_path):
    page = beside_ours.side_by_side(Store(tmp_path / "outputs"))
    [cells] = (table.frame for part in page.sections for table in part.tables if table.name == "table1")
    assert len(cells) == 8 * 7
    assert cells["ours"].isna().all()
    assert cells["paper"].notna().all()
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for command in cells["command"].unique():
            assert command.startswith("fca run ")
            config = compose("run", shlex.split(command)[2:])
            assert config.dataset.name == paper.HARD
    assert page.headlines[0].startswith("Table 1: 0 of 56 cells have runs here")
    assert any(line.startswith("Not shown: ") for line in page.headlines)


def test_the_readme_prints_table_1_as_the_paper_has_it():
    text = (FOLDER / "README.md").read_text()
    for (model, adaptation), numbers in paper.TABLE1.items():
        name = f"{paper.MODELS[model]}, {paper.ADAPTATIONS[adaptation].replace('-', 'head')}"
        [line] = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", text, re.M)
        assert [float(cell) for cell in line.split("|")] == list(numbers)


def masked(lab, share, shift):
    """Answers of a last layer, right in this share of the images of each class; objects on a third of each image."""
    n = len(lab.true)
    right = np.argsort(np.argsort(lab.true, kind="stable")) % 10 < 10 * share
    pred = np.where(right, lab.true, (lab.true + 1) % 6).astype(np.int32)
    arrays = {"pred": pred, "logit_classes": np.array(lab.data.classes), "mask_area": np.full(n, 1 / 3, np.float32)}
    about = {"task": "predict", "model": "resnet50", "adaptation": "head", "parent": "0123456789ab"}
    lab.write(
        arrays if shift != "clean" else {k: arrays[k] for k in ("pred", "logit_classes")},
        **about,
        ncl=6,
        classes=range(6),
        shift=shift,
        snapshot="best",
    )


@pytest.mark.slow  # writes two pages
def test_a_stored_head_fills_its_cells(lab, tmp_path):
    right = {
        "clean": 1.0,
        "ablate/gray": 0.5,
        "noise/foreground/gaussian/0.25": 0.3,
        "noise/background/gaussian/0.25": 0.6,
    }
    for shift, share in right.items():
        masked(lab, share, shift)
    page = beside_ours.side_by_side(lab.store)
    [cells] = (table.frame for part in page.sections for table in part.tables if table.name == "table1")
    own = cells[(cells["model"] == "ResNet50") & (cells["method"] == "-")].set_index("measure")
    assert own.loc["clean", "ours"] == 1.0
    assert own.loc["ablate/gray", "ours"] == pytest.approx(0.5, abs=1e-12)
    assert own.loc["ablate/gray", ["ours_low", "ours_high"]].isna().all(), "all classes are alike: no spread to go by"
    assert own.loc["rfs 0.25", "ours"] > 0
    assert own["ours"].isna().sum() == 4
    assert beside_ours.main([str(lab.store.outputs), "--to", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page" / "index.html").is_file()
