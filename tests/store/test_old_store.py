"""A store that version 0.1.0 wrote, before its parts had their present names, is read as it was.

old_store.zip holds its rows, arrays, items, the weights of one probe, and tables that its own analyses saved. Made with

    fca run -m dataset=digits limit=4 model=test_resnet,cifar_resnet20 task=train subset.ncl=3 subset.seed=0,1 \\
        recipe.epochs=1
    fca run -m dataset=digits limit=4 model=test_resnet task=train recipe.epochs=1 'recipe.snapshots=[0.5]' \\
        shift=clean,corruption/fog
    fca run dataset=digits limit=4 model=hog task=train adaptation=probe subset.ncl=3 subset.seed=0
    fca run -m dataset=digits limit=4 task=embed model@encoder=hog,pixels
    fca run dataset=digits limit=4 task=describe
    fca analyse analysis=similarity, few_class, each with outputs= the store
"""

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fca.models.stored import StoredRun
from fca.store import Store, results
from fca.studies.few_class.accuracy import FewClass
from fca.studies.few_class.similarity import Similarity

HERE = Path(__file__).parent
ADDED = ("chance", "at_chance")  # columns that these tables have had since


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old") / "outputs"
    with zipfile.ZipFile(HERE / "old_store.zip") as archive:
        archive.extractall(folder)
    return folder


def test_every_row_is_there_with_its_numbers(outputs):
    rows = results(outputs)
    stored = [json.loads(path.read_text()) for path in (outputs / "runs").glob("*/row.json")]
    assert len(rows) == len(stored) == 27
    assert set(rows["fingerprint_kind"]) == {"version"}, "as digits have: their items know no sizes of files"
    of = rows.set_index("run_id")
    for row in stored:
        for name, value in row.items():
            found = of.loc[row["run_id"], name] if name != "run_id" else row["run_id"]
            assert (list(found) if isinstance(value, list) else found) == value, name


@pytest.mark.parametrize(
    ("analysis", "changed"),
    [(Similarity(), ""), (FewClass(query="model == 'cifar_resnet20'"), "_(low|high)$")],  # three draws: Student's t now
    ids=["similarity", "few_class"],
)
def test_analyses_find_the_tables_that_the_old_version_saved(outputs, analysis, changed):
    old = {json.loads(path.read_text())["name"]: path.parent for path in (outputs / "tables").glob("*/table.json")}
    for table in analysis(Store(outputs)):
        expected = pd.read_csv(old[table.name] / "table.csv")
        found = pd.read_csv(io.StringIO(table.frame.to_csv(index=False)))
        same = [name for name in expected if not (changed and re.search(changed, name))]
        assert [name for name in found if name not in ADDED] == list(expected)
        pd.testing.assert_frame_equal(found[same], expected[same])


def test_a_trained_run_is_still_a_model_whatever_its_class_was_called(outputs):
    rows = results(outputs, "task == 'train'")
    assert set(rows["model"]) == {"test_resnet", "cifar_resnet20", "hog"}
    for run_id, model in zip(rows["run_id"], rows["model"], strict=True):
        stored = StoredRun(str(outputs), run_id, "best")
        assert stored.label() == model
        if model == "hog":  # the only weights that are small enough to keep
            classifier = stored.build()
            assert classifier.classes == tuple(
                json.loads((outputs / "runs" / run_id / "model.json").read_text())["classes"]
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "task=embed model@encoder=hog",
        "model=cifar_resnet20 task=train subset.ncl=3 subset.seed=1 recipe.epochs=1 recipe.min_steps=0",
        "model=test_resnet task=train recipe.epochs=1 recipe.min_steps=0 recipe.snapshots=[0.5] shift=corruption/fog",
    ],
)
def test_the_same_command_finds_its_runs_done(outputs, command):
    before = written(outputs)
    again(outputs, command)
    assert written(outputs) == before


@pytest.mark.slow
def test_a_probe_is_solved_again_on_the_stored_features_because_its_layer_was_stored_in_another_order(outputs):
    before = written(outputs)
    again(outputs, "model=hog task=train adaptation=probe subset.ncl=3 subset.seed=0")
    assert before.items() <= written(outputs).items()
    new = [json.loads(path.read_text()) for path in written(outputs).keys() - before.keys()]
    assert {row["task"] for row in new} == {"train", "predict"}
    old = results(outputs, "task == 'train' and adaptation == 'probe'")
    assert len(set(old["top1"])) == 1, "what was measured was right"


def written(outputs):
    return {path: path.stat().st_mtime_ns for path in (outputs / "runs").glob("*/row.json")}


def again(outputs, command):
    words = ["run", "dataset=digits", "limit=4", f"outputs={outputs}", "logger=none", *command.split()]
    done = subprocess.run([sys.executable, "-m", "fca.cli.main", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arrays_open_as_they_were(outputs):
    rows = results(outputs, "task == 'predict'")
    for run_id in rows["run_id"]:
        assert Store(outputs).array(run_id, "pred").dtype == np.int32
