"""Wrong command lines: short message with the value and what is allowed, exit code 2, no traceback, nothing written."""

import pytest
import torch
from safetensors.torch import save_file

from fca.cli import analyse, main, report, results

REFUSED = {
    "dataset=nosuch": ["nosuch", "digits", "folder"],
    "model=nosuch": ["nosuch", "test_resnet"],
    "task=nosuch": ["nosuch", "train", "predict"],
    "experiment=nosuch": ["nosuch", "quickstart"],
    "subset.ncl=five": ["subset.ncl", "five", "not a number"],
    "subset.ncl=1": ["subset.ncl = 1", "2 to 10"],
    "subset.ncl=11": ["subset.ncl = 11", "2 to 10"],
    "subset.nlc=3": ["nlc", "ncl"],
    "subset.sampler=zipf subset.ncl=3": ["zipf", "uniform, fca"],
    "subset.classes=[0,cat]": ["subset.classes = cat", "0 to 9"],
    "subset.classes=[1,2,3] subset.ncl=2": ["subset.ncl = 2", "3"],
    "seed=-1": ["seed = -1", "0 or more"],
    "seed=x": ["seed", "x", "Integer"],
    "recipe.epochs=ten": ["recipe.epochs", "ten", "Integer"],
    "recipe.epochs=0": ["recipe.epochs", "0"],
    "recipe.epoch=3": ["epoch"],
    "recipe.precision=float": ["recipe.precision", "float"],
    "model.widht=3": ["widht"],
    "dataset=folder": ["dataset.root"],
    "dataset=folder dataset.root=nowhere": ["dataset.root", "nowhere"],
    "task=predict": ["weights"],
    "task=predict model=run model.run_id=nope": ["nope"],
    "task=predict model.weights=nowhere.safetensors": ["nowhere.safetensors"],
    "nosuchkey=1": ["nosuchkey"],
    "shift=corruption/fgo": ["shift = corruption/fgo", "corruption/fog", "clean"],
    "shift=corruption/fog shift.kinds=[fgo]": ["shift.kinds = fgo", "fog"],
    "shift=corruption/fog shift.severities=[6]": ["shift.severities = 6", "1 (weakest) to 5"],
    "shift=corruption/fog shift.severity=[1]": ["shift.severity", "severities"],
    "shift=cifar_c/all": ["shift.root"],
    "shift=cifar_c/all shift.root=nowhere": ["shift.root = nowhere", "no arrays"],
    "shift=imagenet_c/all shift.root=nowhere": ["shift.root = nowhere", "no kinds"],
    "-m shift=corruption/fog,corruption/snow shift.severity=[1]": ["shift.severity = [1]", "shift.severities"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_wrong_command_line_is_refused_with_what_is_allowed(fca, tmp_path, line):
    code, out, err = fca(*line.split(), "logger=none")
    assert code == 2, (out, err)
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 12, err
    for word in REFUSED[line]:
        assert word in err
    assert not list(tmp_path.rglob("*.json"))
    assert not (tmp_path / "outputs" / "runs").exists() or not list((tmp_path / "outputs" / "runs").iterdir())


@pytest.mark.parametrize("line", REFUSED)
def test_a_sweep_with_a_wrong_value_starts_nothing(fca, tmp_path, line):
    if line.startswith(("task=predict", "experiment")):
        pytest.skip("found when the model is built, or no sweep")
    code, out, err = fca("-m", "seed=0,1" if "seed" not in line else "task=train", *line.split(), "logger=none")
    assert (code, "Traceback" in err) == (2, False), (out, err)
    for word in REFUSED[line]:
        assert word in err
    assert not (tmp_path / "outputs").exists()


def test_weights_that_do_not_fit_are_refused_by_their_keys_and_leave_nothing(fca, tmp_path):
    head_only = {"linear.weight": torch.zeros(10, 64), "linear.bias": torch.zeros(10), "odd": torch.zeros(1)}
    save_file(head_only, tmp_path / "other.safetensors")
    code, _, err = fca("task=predict", "model=cifar_resnet20", "model.weights=other.safetensors", "logger=none")
    assert code == 2
    assert "other.safetensors" in err
    assert "missing: conv1.weight" in err
    assert "unexpected: odd" in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "other.safetensors"]


def test_an_empty_store_is_no_analysis_and_no_report(fca):
    for door in (analyse, report):
        code, _, err = fca("logger=none" if door is report else "analysis=few_class", door=door)
        assert code == 2
        assert "0" in err


def test_a_query_that_cannot_be_read_is_refused(fca):
    code, _, err = fca("--query", "nlc < 3", door=results)
    assert code == 2
    assert "nlc < 3" in err


def test_an_unknown_door_lists_the_doors(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fca", "trian"])
    with pytest.raises(SystemExit) as left:
        main.main()
    assert left.value.code == 2
    assert (
        "'trian' is no fca command; there are: run, analyse, report, generate, results, status"
        in capsys.readouterr().err
    )
