"""The files by which the page compares runs hold the numbers of the runs."""

import json
import re

import numpy as np
import pytest

from fca.report.compare import write_comparison_scripts
from fca.store import Store
from tests.support.lab import Lab


@pytest.fixture
def lab(tmp_path):
    return Lab(Store(tmp_path / "outputs"))


def read(folder, name):
    return json.loads(
        re.fullmatch(r"fca\w+\((.*)\);\n", (folder / "compare" / f"{name}.js").read_text(), re.DOTALL)[1].join("[]")
    )


def test_a_run_has_its_accuracy_by_class_its_wrong_images_and_its_curve(lab, tmp_path):
    right = np.ones(len(lab.true), bool)
    right[:5] = False
    trained = lab.train("net", lab.subsets()[0], 0.9, finished="2026-01-01T00:00:00")
    (lab.store.folder(trained) / "fitted.json").write_text('{"history": [{"val_loss": 0.5}, {"val_loss": null}]}')
    predicted = lab.answered("net", right, parent=trained)
    shifted = lab.answered("net", right, "corruption/fog/1")
    write_comparison_scripts(tmp_path, lab.store, lab.store.rows())
    run, found = read(tmp_path, predicted)
    assert run == predicted
    keys = np.array(lab.data.classes)[lab.true]
    assert found["classes"] == {key: [int(right[keys == key].sum()), int((keys == key).sum())] for key in set(keys)}
    images = lab.data.items["image_id"].to_numpy()[lab.data.rows("test")]
    following = dict(zip(lab.data.classes, (*lab.data.classes[1:], lab.data.classes[0]), strict=True))
    assert found["wrong"] == {image: [key, following[key]] for image, key in zip(images[:5], keys[:5], strict=True)}
    assert found["curve"] == [{"epoch": 1, "val_loss": 0.5}, {"epoch": 2}]
    assert read(tmp_path, trained)[1] == found  # a training has the predictions of its best weights
    assert not (tmp_path / "compare" / f"{shifted}.js").exists()


def test_a_training_shows_its_best_weights_and_not_earlier_ones(lab, tmp_path):
    trained = lab.train("net", lab.subsets()[0], 0.9)
    n = len(lab.true)
    lab.answered("net", np.zeros(n, bool), parent=trained, snapshot="0.1")
    best = lab.answered("net", np.arange(n) > 4, parent=trained, snapshot="best")
    write_comparison_scripts(tmp_path, lab.store, lab.store.rows())
    assert read(tmp_path, trained)[1]["wrong"] == read(tmp_path, best)[1]["wrong"]
    assert len(read(tmp_path, trained)[1]["wrong"]) == 5


@pytest.mark.parametrize(
    "text", ["", "[]", "\x00\xff", '{"history": 1}', '{"history": ["<script>", {"a": "<script>"}]}']
)
def test_a_history_that_holds_anything_stops_nothing(lab, tmp_path, text):
    trained = lab.train("net", lab.subsets()[0], 0.9)
    (lab.store.folder(trained) / "fitted.json").write_text(text)
    write_comparison_scripts(tmp_path, lab.store, lab.store.rows())
    path = tmp_path / "compare" / f"{trained}.js"
    assert not path.exists() or "script" not in path.read_text()
