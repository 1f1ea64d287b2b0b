"""Files of anchors: chosen, read back, used for new models by command and in Python, refused by name when damaged."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from fca.studies.adaptive.anchor_files import error_of, read_anchors, responses_of, write_anchors
from fca.studies.adaptive.commands import bank as door
from fca.studies.adaptive.stats import choose_anchors
from fca.types import FcaError


def written(path, right, names, items=None):
    frame = pd.DataFrame(right.astype(int), names, items or [f"img{n}.png" for n in range(right.shape[1])])
    frame.rename_axis("subject").to_csv(path)
    return str(path)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Responses of 60 planted networks to 400 images: 40 choose, 20 are new; and the folder."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("zoo")
    ability, slope = rng.normal(0.5, 1.0, (60, 1)), rng.lognormal(0, 0.4, 400)
    return rng.random((60, 400)) < expit(ability * slope - rng.normal(0, 1.5, 400)), folder


@pytest.fixture(scope="module")
def file(zoo):
    right, folder = zoo
    first = written(folder / "first.csv", right[:25], [f"net{n}" for n in range(25)])
    second = written(folder / "second.csv", right[25:40], [f"net{n}" for n in range(25, 40)])
    file = folder / "anchors.json"
    assert door.main(["anchors", first, second, "--save", str(file), "--k", "30", "--cite", "Doe 2026"]) == 0
    return file


@pytest.mark.wide
def test_a_file_gives_the_anchors_that_python_chooses(zoo, file):
    names, found = read_anchors(file)
    chosen = choose_anchors(zoo[0][:40], 30, networks=[f"net{n}" for n in range(40)])
    assert names == [f"img{n}.png" for n in chosen.items]
    right = zoo[0][40:, chosen.items]
    np.testing.assert_allclose(found.estimate(right), chosen.estimate(right), rtol=1e-12)


def test_the_error_is_that_of_models_that_did_not_choose(zoo, file):
    content = json.loads(file.read_text())
    error = content["held_out"]["root_mean_squared_error"]
    names, found = read_anchors(file)
    truth = zoo[0][40:].mean(axis=1)
    new = np.sqrt(np.mean((found.estimate(zoo[0][40:, found.items])[:, 0] - truth) ** 2))
    assert error["low"] < error["value"] < error["high"]
    assert error["value"] / 1.8 < new < 1.8 * error["value"]  # 20 new models: a third either way is common
    rng, k = np.random.default_rng(0), len(names)
    draws = [zoo[0][:40][:, rng.choice(400, k, replace=False)].mean(axis=1) for _ in range(400)]
    random = np.sqrt(np.mean((np.array(draws) - zoo[0][:40].mean(axis=1)) ** 2))
    assert content["held_out"]["of_random_items"] == pytest.approx(random, rel=0.05)
    assert error["value"] < random
    assert {one["subject"] for one in content["subjects"]} == {f"net{n}" for n in range(40)}
    assert (content["cite"], content["pool"]) == ("Doe 2026", 400)


def test_checked_estimates_shift_by_other_folds_alone():
    right = np.random.default_rng(1).random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]
    two = ["a"] * 10 + ["b"] * 10  # two folds
    found = choose_anchors(right, 10, estimator="weighted", networks=two)
    half = choose_anchors(right, 10, estimator="weighted", networks=[f"n{n}" for n in range(20)])
    assert found.checked.shape == half.checked.shape == (20, 2)
    np.testing.assert_array_equal(found.checked[:, 0], right.mean(axis=1))
    assert error_of(found, two)[0].value > 0


def test_the_command_lists_and_estimates(zoo, file, tmp_path, capsys):
    names, found = read_anchors(file)
    assert door.main(["anchors", "--use", str(file)]) == 0
    assert capsys.readouterr().out.split() == names
    order = np.random.default_rng(0).permutation(found.items)  # the new model's file has these images alone
    new = written(tmp_path / "new.csv", zoo[0][40:43, order], ["a", "b", "c"], [f"img{n}.png" for n in order])
    assert door.main(["anchors", new, "--use", str(file)]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[1] == ["subject", "accuracy", "low", "high"]
    for line, expected in zip(printed[2:], found.estimate(zoo[0][40:43][:, found.items]), strict=True):
        assert [float(cell) for cell in line[1:]] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("way", [("random", "line"), ("ease", "gp_irt"), ("random", "weighted")])
def test_every_way_is_read_back_as_it_was_written(zoo, file, tmp_path, way):
    names = [f"net{n}" for n in range(40)]
    responses = responses_of([str(zoo[1] / "first.csv"), str(zoo[1] / "second.csv")])
    found = choose_anchors(zoo[0][:40], 30, *way, networks=names)
    write_anchors(found, responses, tmp_path / "own.json")
    right = zoo[0][40:, found.items]
    _, again = read_anchors(tmp_path / "own.json")
    np.testing.assert_allclose(again.estimate(right), found.estimate(right), rtol=1e-12)


def test_the_command_prints_the_way_taken_and_the_error_of_each(zoo, tmp_path, capsys, file):
    assert door.main(["anchors", str(zoo[1] / "first.csv"), "--save", str(tmp_path / "b.json"), "--k", "20"]) == 0
    _, method, error, _ = capsys.readouterr().out.splitlines()
    content = json.loads((tmp_path / "b.json").read_text())
    assert method.startswith(f"method: {content['method']}; error of each in cross-validation, in points: ")
    assert method.count(",") - 1 == len(content["held_out"]["of_methods"]) - 1 == 5
    stated = 100 * content["held_out"]["root_mean_squared_error"]["value"]
    assert error.startswith(f"error on networks that chose neither images nor method: {stated:.2f} [")


def test_images_that_a_model_lacks_are_left_out_of_the_pool(tmp_path, caplog):
    path = tmp_path / "gaps.csv"
    path.write_text("subject,a,b,c\nnet0,1,,0\nnet1,0,1,1\n")
    assert responses_of([str(path)]).items["item"].tolist() == ["a", "c"]
    assert "1 of 3 items lack a response" in caplog.text
    other = tmp_path / "other.csv"
    other.write_text("subject,d\nnet2,1\n")
    with pytest.raises(FcaError, match=r"items that every subject responded to = none of 3 in .*gaps\.csv"):
        responses_of([str(path), str(other)])


def test_words_that_cannot_be_are_refused(zoo, file, tmp_path, capsys):
    few = written(tmp_path / "few.csv", zoo[0][:5], [f"net{n}" for n in range(5)])
    part = written(tmp_path / "part.csv", zoo[0][:2, :10], ["a", "b"])
    for words, printed in (
        ([few], "one of the arguments --save --use is required"),
        ([few, "--save", "x.txt"], "--save = x.txt; allowed: a name that ends in .json"),
        (["--save", "x.json"], "responses = none; allowed: one file or more"),
        ([few, "--save", str(tmp_path / "x.json")], "models to choose anchors on = 5; allowed: 19 or more"),
        ([part, "--use", str(file)], "anchors without a response of every subject = img"),
        ([few, few, "--save", str(tmp_path / "x.json")], "subject names = net0 twice"),
        ([few, "--use", few], "a file of fca bank anchors"),
    ):
        assert door.main(["anchors", *words]) == 2
        assert printed in capsys.readouterr().err


def _set(*keys, to):
    def damage(path):
        content = json.loads(path.read_text())
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to
        path.write_text(json.dumps(content))

    return damage


DAMAGE = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "pickle": lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR."),
    "a list": lambda path: path.write_text("[1]"),
    "gone": lambda path: path.unlink(),
    "format": _set("fca_anchors", to=3),
    "no items": _set("items", to=[]),
    "a name twice": _set("items", to=["img0.png"] * 30),
    "a name": _set("items", 0, to=3),
    "positions": _set("positions", 0, to=399),
    "beyond": _set("positions", -1, to=400),
    "pool": _set("pool", to=10),
    "weights": _set("weights", to=[0.5]),
    "a weight": _set("weights", 0, to="__import__('os')"),
    "shift": _set("shift", to=[0.0]),
    "share": _set("share", to=1.5),
    "line": _set("line", to=0.0),
    "reach": _set("reach", to=-1.0),
    "huge": _set("reach", to=10**400),
    "bank": _set("bank", to="2pl"),
    "model": _set("bank", "model", to="5pl"),
    "short": _set("bank", "guess", to=[0.0]),
    "slope": _set("bank", "discrimination", 0, to=0.0),
    "null": _set("bank", "difficulty", 0, to=None),
    "true": _set("bank", "difficulty", 0, to=True),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_by_name(file, tmp_path, damage):
    copy = tmp_path / "anchors.json"
    copy.write_bytes(file.read_bytes())
    read_anchors(copy)
    DAMAGE[damage](copy)
    with pytest.raises(FcaError, match=r"anchors\.json"):
        read_anchors(copy)
