"""`fca results`, `show` and `diff` on one small store: what they print is what the rows and predictions have."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest

from fca.cli import analyse, diff, results, show
from fca.cli import run as run_door
from fca.stats.comparison import mcnemar
from fca.stats.intervals import mean_with_interval
from fca.store import Store
from fca.types import Table
from tests.conftest import SMALL

COMMAND = "fca run model=test_vit"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Three sub-models of two networks, and a run that failed."""
    folder = tmp_path_factory.mktemp("terminal") / "outputs"
    words = ["-m", f"outputs={folder}", "subset.ncl=3", *SMALL, "recipe.epochs=2", "limit=20"]
    assert run_door.main([*words, "model=test_vit", "subset.seed=0,1"]) == 0
    assert run_door.main([*words, "model=test_resnet"]) == 0
    error = {
        "run_id": "f" * 12,
        "task": "train",
        "error": "MemoryError: 9 GB",
        "command": COMMAND,
        "traceback": "at x.py",
    }
    Store(folder).fail("f" * 12, error)
    return folder


@pytest.fixture
def printed(outputs, capsys):
    """What a command prints about the store."""

    def call(door, *words, code=0):
        assert door.main([*words, "--outputs", str(outputs)]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return call


@pytest.fixture
def rows(outputs):
    frame = Store(outputs).rows()
    return frame[frame["task"] == "train"].set_index(["model", "subset_seed"])


@pytest.mark.wide
def test_filters_are_columns_with_values_and_join(printed):
    def read(*words):
        return pd.read_json(io.StringIO(printed(results, *words, "--format", "json")), lines=True)

    assert len(read()) == 6
    assert set(read("task=train", "model!=test_vit")["model"]) == {"test_resnet"}
    assert read("subset.seed=1,7", "ncl>=3", "encoder=null")["task"].tolist() == ["train", "predict"]
    assert len(read("recipe.epochs=2", "--query", "model == 'test_vit'")) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nlc=3"], "column = nlc; allowed: ncl, run_id, task"),
        (["ncl=three"], "ncl = three; allowed: a number"),
        (["ncl"], "word = ncl; allowed: COLUMN=VALUES"),
        (["top1>.1,.2"], "top1>.1,.2 = .1,.2; allowed: one value after"),
        (["--sort", "-tpo1"], "--sort = tpo1; allowed: "),
        (["--by", "modle"], "--by = modle; allowed: "),
        (["--by", "model", "--columns", "dataset"], "--columns = dataset; allowed: columns of numbers"),
        (["--format", "parquet"], "--format = parquet; allowed: csv, json, markdown or table without --out"),
    ],
)
def test_words_that_results_cannot_understand_are_refused_with_what_is_allowed(printed, words, message):
    assert message in printed(results, *words, code=2)


def test_groups_have_the_mean_over_subset_seeds_its_interval_and_their_number(printed, rows):
    text = printed(results, "task=train", "--by", "model", "--sort", "-model", "--columns", "top1", "--format", "csv")
    lines = [line.split(",") for line in text.splitlines()]
    assert lines[0] == ["model", "top1", "top1_low", "top1_high", "top1_n"]
    top1 = rows.loc["test_vit", "top1"].to_numpy(dtype=float)
    expected = mean_with_interval(top1, within=(0.0, 1.0))  # the two subset seeds are the two draws
    assert lines[1][0] == "test_vit"
    assert [float(value) for value in lines[1][1:4]] == pytest.approx(list(expected), nan_ok=True)
    assert (lines[1][4], lines[2][0], lines[2][4]) == ("2", "test_resnet", "1")


def test_a_mean_over_settings_that_differ_says_so(outputs, capsys):
    assert results.main(["task=train", "--by", "ncl", "--outputs", str(outputs)]) == 0
    assert "note: within a line also model differs; filter, or add it to --by" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["runs.csv", "runs.json", "runs.parquet", "runs.md"])
def test_a_file_has_the_rows_in_the_format_of_its_name(printed, outputs, tmp_path, name):
    path = tmp_path / name
    assert printed(results, "--out", str(path), "--columns", "run_id,classes,recipe_*") == f"6 lines in {path}\n"
    read = {"csv": pd.read_csv, "json": lambda file: pd.read_json(file, lines=True), "parquet": pd.read_parquet}
    if name == "runs.md":
        assert path.read_text().splitlines()[1].startswith("| --- |")
        assert len(path.read_text().splitlines()) == 8
    else:
        frame = read[name.rpartition(".")[2]](path)
        assert sorted(frame["run_id"]) == sorted(Store(outputs).rows()["run_id"])
        assert frame["recipe_epochs"].max() == 2


def test_one_run_is_shown_with_keys_numbers_curves_command_and_files(printed, rows, outputs):
    row = rows.loc[("test_vit", 1)]
    text = printed(show, row["run_id"][:7])
    assert "test_vit   (default test_resnet)" in text
    assert text.index("subset.ncl") < text.index("and ")
    assert f"{row['top1']:.4g} [{row['top1_low']:.4g}, {row['top1_high']:.4g}]" in text
    assert "curves over 2 epochs" in text
    assert "  train_loss  " in text
    assert f"command\n  {row['command']}" in text
    folder = outputs / "runs" / row["run_id"]
    assert {line.split()[-1] for line in text.partition("files in ")[2].splitlines()[1:]} == {
        path.name for path in folder.iterdir()
    }
    assert printed(show, str(folder)) == text, "its folder names it too"
    assert len(printed(show, row["run_id"], "--config")) > len(text)


def test_a_failed_run_shows_its_error_and_command(printed):
    text = printed(show, "ff")
    assert "failed: train: MemoryError: 9 GB" in text
    assert "at x.py" in text
    assert COMMAND in text


def test_a_saved_table_is_shown_by_its_id(printed, outputs):
    saved = Store(outputs).save(Table("t", "How many?", "us", pd.DataFrame({"n": [7]}), {"query": None}, ("x",)))
    try:
        text = printed(show, saved.name[:8])
        assert "t: How many?" in text
        assert "query: null" in text
    finally:
        for file in saved.iterdir():
            file.unlink()
        saved.rmdir()


def test_an_id_that_is_none_or_of_several_is_refused(printed, outputs):
    first = sorted(path.name for path in (outputs / "runs").iterdir())
    assert "id = zz; allowed: the id of one of 7 runs and tables" in printed(show, "zz", code=2)
    assert "id = ; allowed: the id of" in printed(show, "", code=2)
    assert "ids = " in printed(diff, first[0], code=2)


def test_two_runs_differ_in_keys_numbers_and_images_as_their_predictions_do(printed, rows, outputs):
    a, b = rows.loc[("test_vit", 0)], rows.loc[("test_resnet", 0)]
    text = printed(diff, a["run_id"], b["run_id"], "--images", "1000")
    assert "model.name test_vit test_resnet" in text
    assert "recipe.epochs" not in text
    store, right = Store(outputs), []
    every = store.rows()
    for row in (a, b):
        source = every[(every["parent"] == row["run_id"]) & (every["task"] == "predict")].iloc[0]
        keys = store.array(source["run_id"], "logit_classes").astype(str)
        items = store.items(row["fingerprint"]).query("split == 'test'")
        items = items[items["label"].isin(keys)]
        right.append(keys[store.array(source["run_id"], "pred")] == items["label"].astype(str).to_numpy())
    only_a, only_b = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    assert f"only A right: {only_a}\n" in text
    assert f"only B right: {only_b}\n" in text
    assert f"{mcnemar(only_a, only_b):.4g}" in text
    first = items["image_id"].to_numpy()[np.flatnonzero(right[0] & ~right[1])[:1]]
    assert all(f"    {name} (" in text for name in first)


def test_runs_without_common_images_or_predictions_say_so(printed, rows, outputs):
    assert run_door.main([f"outputs={outputs}", "task=embed", "logger=none", "limit=20"]) == 0
    every = Store(outputs).rows()
    embed = every.loc[every["task"] == "embed", "run_id"].iloc[0]
    text = printed(diff, rows.loc[("test_vit", 0), "run_id"], embed)
    assert "no predictions: B" in text
    assert "on the same test images" not in text


def test_an_analysis_ends_with_the_tables_that_answer_and_the_sentences(outputs, capsys):
    assert analyse.main([f"outputs={outputs}"]) == 0
    out = capsys.readouterr().out
    assert out.index("accuracy: ") < out.index("ranks: ")
    assert out.splitlines()[-1].startswith("digits: ")


def test_two_scores_of_one_prediction_are_compared_on_the_images_that_both_have(fca, tmp_path):
    """A score run is the child of the run that stored its predictions, where a training is the parent."""
    assert fca("model=test_resnet", *SMALL, "limit=8")[0] == 0
    store = Store(tmp_path / "outputs")
    [trained] = store.rows("task == 'train'")["run_id"]
    words = ["task=predict", "model=run", f"model.run_id={trained}", "logger=none", "limit=8", "subset.ncl=6"]
    assert fca("-m", *words, "subset.seed=0,1")[0] == 0

    scores = store.rows("task == 'score'")
    code, text, _ = fca(*scores["run_id"], door=diff)
    assert code == 0
    assert "no predictions" not in text
    n_common = 8 * len(set(scores["classes"].iloc[0]) & set(scores["classes"].iloc[1]))
    [line] = [line.split() for line in text.splitlines() if line.startswith("B - A")]
    assert line[3] == str(n_common)


@pytest.mark.wide
def test_a_training_is_compared_by_its_clean_predictions_in_whichever_order_runs_finished(fca, tmp_path):
    words = ["model=test_resnet", *SMALL, "recipe.epochs=4", "recipe.lr=0.01", "limit=20"]
    noise = ["shift=corruption/gaussian_noise", "shift.severities=[5]"]
    assert fca(*words, *noise)[0] == 0
    store = Store(tmp_path / "outputs")
    [trained] = store.rows("task == 'train'")["run_id"]
    [clean] = store.rows("shift == 'clean' and task == 'predict'")["run_id"]

    # the clean prediction is lost, and made again after that of noisy images
    shutil.rmtree(store.folder(clean))
    assert fca(*words)[0] == 0
    assert store.rows("task == 'predict'")["shift"].str.startswith("corruption").tolist() == [True, False]

    code, text, _ = fca(trained, clean, door=diff)
    assert code == 0
    assert "only A right: 0\n" in text
    assert "only B right: 0\n" in text
