"""Folders named by numbers or truth values: a class that is typed is the folder of that name."""

import json

import pytest

from fca.cli.configure import _replace_classes_by_class_keys, load_data
from tests.conftest import SMALL
from tests.support.images import write_images

FOLDERS = {  # class folders, what is typed -> the classes that are trained
    (("1", "2", "3", "4", "5"), "[1,2]"): ["1", "2"],
    (("false", "true", "unsure"), "[true,false]"): ["false", "true"],
    (("01", "02", "10"), "[01,10]"): ["01", "10"],
}


@pytest.mark.wide
@pytest.mark.parametrize(("folders", "typed"), FOLDERS)
def test_the_classes_that_are_typed_are_trained_and_printed(fca, tmp_path, folders, typed):
    write_images(tmp_path / "stars", per_class=6, classes=folders)
    code, out, err = fca("dataset=folder", f"dataset.root={tmp_path}/stars", f"subset.classes={typed}", *SMALL)
    assert code == 0, err
    [description] = (tmp_path / "outputs" / "runs").glob("*/model.json")
    assert json.loads(description.read_text())["classes"] == FOLDERS[folders, typed]
    assert out.splitlines()[0] == f"classes of stars: {', '.join(FOLDERS[folders, typed])} (2 of {len(folders)})"


def test_an_experiment_names_classes_as_the_command_line_does(fca, tmp_path):
    write_images(tmp_path / "stars", per_class=6, classes=("no", "yes", "07", "8"))
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    mine = tmp_path / "conf" / "experiment" / "mine.yaml"
    mine.write_text("# @package _global_\nsubset: {classes: [yes, 8]}\n")
    words = [
        "dataset=folder",
        f"dataset.root={tmp_path}/stars",
        "experiment=mine",
        f"hydra.searchpath=[file://{tmp_path}/conf]",
    ]
    code, out, err = fca("-m", *words, "seed=0", *SMALL)
    assert code == 0, err
    assert "classes of stars: 8, yes (2 of 4)" in out


def test_keys_of_logits_that_were_read_as_numbers_are_written_as_the_data_set_writes_them(tmp_path):
    write_images(tmp_path / "stars", per_class=2, classes=("01", "true", "x"))
    data = load_data("folder", root=tmp_path / "stars")
    model = {"classes": ["x", True, 1, 99]}
    _replace_classes_by_class_keys(model, data)
    assert model["classes"] == ["x", "true", "01", 99]
