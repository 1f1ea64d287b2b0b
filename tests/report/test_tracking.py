"""W&B keeps every run: the files that workers leave are read back by W&B's own reader."""

import contextlib
import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.report.pictures import data_uri, png_of
from fca.report.tracking import NoTracker
from fca.report.tracking.tables import scalars
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import Column, FcaError, Table
from tests.support.tracked import TYPED, begin, done, prediction, score, tracker_in, training
from tests.support.wandb_files import folders, inspect, written

ABOUT = {"report": "few_class", "query": "ncl <= 5", "command": "fca report", "commit": "abc"}


@pytest.fixture(autouse=True)
def _no_mode_from_outside(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))  # logs of W&B's own process
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "outputs" / "wandb"))


def leaves(node, above=""):
    """The keys of a nested configuration, as W&B shows them."""
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def records(folder, kind):
    found = (json.loads(line) for line in inspect(folder).splitlines())
    return [record[kind] for record in found if record["type"] == kind]


def history(folder):
    return [record["item"] for record in records(folder, "history")]


def table_of(folder, key):
    path = written(folder)["summary"][key]["path"]
    content = json.loads((folder / "files" / path).read_text())
    return [dict(zip(content["columns"], line, strict=True)) for line in content["data"]]


@pytest.fixture
def followed(tmp_path):
    """One training that was followed, with its clean, shifted and scored predictions: the folder in W&B."""
    run, tracker = training(0), tracker_in(tmp_path)
    begin(tmp_path, run)
    curves = tracker.start(run)
    for step in (9, 19):
        curves.log_metrics({"train/loss_step": 0.5, "lr": 0.1, "epoch": step // 10}, step=step)
    curves.log_metrics({"train/loss": 0.25, "val/top1": 0.5, "epoch": 1}, step=19)
    clean, fog = prediction(run), prediction(run, "corruption/fog/3")
    tracker.finish(done(tmp_path, run))
    tracker.finish(done(tmp_path, clean, top1_open=0.75))
    tracker.finish(done(tmp_path, fog, top1_open=0.5))
    tracker.finish(done(tmp_path, score(clean, (1, 4)), top1_masked=0.875))
    tracker.close()
    (folder,) = folders(tmp_path).values()
    return folder


@pytest.mark.wide
def test_one_run_a_training_with_its_predictions_and_scores_as_summary_and_tables(followed):
    found = written(followed)
    assert followed.name.endswith(training(0).run_id)
    summary = found["summary"]
    assert [summary[name] for name in ("top1", "val_top1", "n_test", "train_s")] == [0.75, 0.5, 40, 1.5]
    (fog,) = table_of(followed, "predict")  # the clean one is in the summary
    assert (fog["shift"], fog["top1_open"]) == ("corruption/fog/3", 0.5)
    (scored,) = table_of(followed, "score")
    assert (scored["classes"], scored["top1_masked"]) == ([1, 4], 0.875)
    lines = [{key: line.get(key) for key in ("_step", "lr", "val/top1", "epoch")} for line in history(followed)]
    assert lines == [
        {"_step": 9, "lr": 0.1, "val/top1": None, "epoch": 0},
        {"_step": 19, "lr": 0.1, "val/top1": 0.5, "epoch": 1},
    ]


def test_configuration_keys_are_the_command_line_s_and_nothing_stands_twice(followed):
    found = written(followed)
    config, summary = found["config"], found["summary"]
    keys = list(leaves(config))
    expected = {"subset.ncl": 2, "recipe.lr": 0.1, "model.name": "test_resnet", "dataset.root": "/home/me/digits"}
    expected |= {"machine.devices": 1, "encoder.cell": 8, "dataset.fingerprint": "f00d", "dataset.n_train": 100}
    expected |= {"adaptation.name": "scratch", "effective.recipe.lr": 0.025, "subset.classes": [1, 4]}
    for key, value in expected.items():
        node = config
        for part in key.split("."):
            node = node[part]
        assert node == value, key
    assert not [key for key in keys if "_target_" in key or key.startswith(("recipe_", "logger", "sweep"))]
    names = [key.rpartition(".")[2] for key in keys if not key.startswith(("effective", "recipe", "machine"))]
    assert not set(names) & set(summary), "results only in the summary"
    assert "effective.recipe.epochs" not in keys, "3, as typed"


def test_secrets_reach_neither_the_configuration_nor_the_attached_file(followed):
    file = followed / "files" / "fca" / "config.yaml"
    assert "test_resnet" in file.read_text()
    sent = [path for path in followed.rglob("*") if path.is_file()]
    assert not [path for path in sent if b"hf_secret" in path.read_bytes()]
    assert "fca/config.yaml" in [item["path"] for record in records(followed, "files") for item in record["files"]]


def test_a_run_carries_its_name_type_group_and_tags_by_experiment_data_set_and_model(followed, tmp_path):
    (run,) = records(followed, "run")[:1]
    assert run["display_name"] == "train digits test_resnet ncl=2 subset_seed=0 seed=0"
    assert (run["job_type"], run["run_group"]) == ("train", "few_class")
    assert run["tags"] == ["few_class", "digits", "test_resnet"]
    tracker = tracker_in(tmp_path, group="mine", tags=["a"])
    tracker.fail(training(5))
    (run,) = records(folders(tmp_path)[training(5).run_id], "run")[:1]
    assert (run["run_group"], run["tags"]) == ("mine", ["a"])


def test_predictions_of_a_given_model_share_one_entry_and_other_tasks_have_their_own(tmp_path):
    from fca.types import Run

    about = {"dataset": "digits", "fingerprint": "f00d", "model": "clip", "weights": "openai", "split": "test"}
    runs = [Run("predict", {"m": 1, "shift": s}, {**about, "shift": s}) for s in ("clean", "a/1", "a/2")]
    embedded = Run("embed", {"m": 1}, about)
    first, later = tracker_in(tmp_path), tracker_in(tmp_path)
    first.finish(done(tmp_path, runs[1], top1_open=0.5))
    first.close()
    for run in (runs[0], runs[2], embedded):
        later.finish(done(tmp_path, run, top1_open=0.75))
    later.close()
    files = sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    named = {path.stem.removeprefix("run-") for path in files}
    assert embedded.run_id in named
    assert len(named) == 2
    (entry,) = named - {embedded.run_id}
    folder = [path.parent for path in files if entry in path.name][-1]
    assert written(folder)["summary"]["top1_open"] == 0.75
    assert [line["shift"] for line in table_of(folder, "predict")] == ["a/1", "a/2"], "also the one of the earlier job"


def test_a_failed_run_is_closed_as_failed_and_so_is_one_that_stopped_without_a_row(tmp_path):
    tracker, run, early, stopped = tracker_in(tmp_path), training(7), training(8), training(9)
    for one in (run, stopped):
        begin(tmp_path, one)
        tracker.start(one)
    tracker.fail(run)
    tracker.fail(early)
    tracker.close()
    found = folders(tmp_path)
    assert [written(found[r.run_id])["state"] for r in (run, early, stopped)] == ["failed"] * 3
    assert [written(found[r.run_id])["config"]["seed"] for r in (run, early)] == [7, 8]


def test_two_runs_open_at_once_do_not_share_their_columns(tmp_path):
    tracker, runs = tracker_in(tmp_path), [training(1), training(2)]
    for run in runs:
        begin(tmp_path, run)
        tracker.start(run)
    for run, top1 in zip(runs, (0.75, 0.25), strict=True):
        tracker.finish(done(tmp_path, run, top1=top1))
    tracker.close()
    found = [written(folders(tmp_path)[run.run_id]) for run in runs]
    assert [one["summary"]["top1"] for one in found] == [0.75, 0.25]
    assert [one["config"]["seed"] for one in found] == [1, 2]


def test_weights_and_logits_go_along_where_they_are_wanted(tmp_path):
    tracker, run = tracker_in(tmp_path, artifacts=["weights", "logits"]), training(1)
    row, clean = done(tmp_path, run), done(tmp_path, prediction(run), top1_open=0.5)
    (tmp_path / "runs" / run.run_id / "best.safetensors").write_bytes(b"weights")
    for one in (row, clean):
        tracker.finish(one)
    tracker.close()
    made = records(folders(tmp_path)[run.run_id], "artifact")
    assert {one["name"] for one in made if one["type"] != "run_table"} == {
        f"weights-{run.run_id}",
        f"logits-{run.run_id}",
    }


def test_a_configuration_that_is_damaged_or_hostile_costs_only_itself(tmp_path, caplog):
    for seed, text in enumerate(("a: &a [1]\nb: *a", "- 1", "{", "a: " * 50)):
        run, tracker = training(seed), tracker_in(tmp_path)
        row = done(tmp_path, run)
        (tmp_path / "runs" / run.run_id / "config.yaml").write_text(text)
        tracker.finish(row)
        tracker.close()
        assert written(folders(tmp_path)[run.run_id])["config"]["subset"]["ncl"] == 2
    assert not [record for record in caplog.records if record.name.startswith("fca")]


class Line:
    """Three epochs of a line, by Lightning, whose curves go to a logger."""

    def __init__(self, logger):
        declare_torchvision_ops()
        import pytorch_lightning as pl
        import torch

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch, _):
                loss = self.layer(batch[0]).square().mean()
                self.log("train/loss", loss, on_epoch=True, on_step=False)
                return loss

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        torch.set_num_threads(1)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 1)), batch_size=4)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        pl.Trainer(logger=logger, max_epochs=3, accelerator="cpu", log_every_n_steps=1, **quiet).fit(Module(), data)


def worker(outputs, seeds):
    tracker = tracker_in(outputs)
    for seed in seeds:
        run = training(seed)
        begin(outputs, run)
        Line(tracker.start(run))
        tracker.finish(done(outputs, run))
        tracker.close()


@pytest.mark.slow
def test_parallel_offline_workers_lose_no_config_summary_or_curve(tmp_path):
    # wandb/wandb#7227: offline Lightning runs in parallel, of which some had neither config nor summary
    outputs = tmp_path / "outputs"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=worker, args=(outputs, seeds)) for seeds in ([0, 1], [2, 3])]
    for process in workers:
        process.start()
    for process in workers:
        process.join(120)
        assert process.exitcode == 0
    found = folders(outputs)
    assert len(found) == 4
    for seed in range(4):
        trained = written(found[training(seed).run_id])
        assert trained["state"] == "finished"
        assert trained["config"]["recipe"]["lr"] == TYPED["recipe"]["lr"]
        assert trained["config"]["seed"] == seed
        assert trained["summary"]["top1"] == 0.75
        assert trained["summary"]["train/loss"] > 0


def so_far(outputs: Path) -> dict:
    """Config and summary of the one run that is under way; empty until its file can be read."""
    for folder in folders(outputs).values():
        with contextlib.suppress(ValueError, subprocess.CalledProcessError):
            return json.loads(inspect(folder, "--summary"))
    return {"summary": {}}


def stuck(outputs: Path) -> None:
    begin(outputs, training(5))
    curves = tracker_in(outputs).start(training(5))
    for step in range(2):  # W&B writes a step when the next one begins
        curves.log_metrics({"train/loss": 0.5}, step=step)
    time.sleep(60)


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_its_config_and_curves(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=stuck, args=(tmp_path,))
    process.start()
    begun = time.monotonic()
    while not so_far(tmp_path)["summary"]:
        assert time.monotonic() - begun < 60
        time.sleep(0.1)
    process.kill()
    process.join()
    left = so_far(tmp_path)
    assert left["config"]["seed"] == 5
    assert left["summary"]["train/loss"] == 0.5


def test_a_report_is_one_run_with_page_figures_tables_and_scalars_and_leaves_nothing_outside_outputs(tmp_path):
    folder, outputs = tmp_path / "reports" / "few_class", tmp_path / "outputs"
    (folder / "figures").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "figures" / "dcn.png")
    (folder / "index.html").write_text("<!doctype html><title>few classes</title>")
    frame = pd.DataFrame({"ncl": pd.array([2, None], dtype="Int64"), "classes": [(1, 4), None], "top1": [0.5, None]})
    table = Table("dcn", "?", "eq. 1", frame, {}, (), (Column("ncl", int), Column("top1", float)))
    tracker_in(outputs).publish([table], folder / "index.html", ABOUT)
    (run_folder,) = folders(outputs).values()
    found = written(run_folder)
    assert {"page", "figures/dcn", "tables/dcn"} <= set(found["summary"])
    assert found["summary"]["analysis/dcn/2/top1"] == 0.5
    assert {key: found["config"][key] for key in ABOUT} == ABOUT
    assert "charts/dcn_table" in found["summary"], "the data of W&B's own chart"
    media = run_folder / "files" / "media"
    assert next(media.rglob("page*.html")).read_text() == (folder / "index.html").read_text()
    assert table_of(run_folder, "tables/dcn")[0] == {"ncl": 2, "classes": [1, 4], "top1": 0.5}
    assert {path.name for path in tmp_path.iterdir()} <= {"reports", "outputs", "cache"}


def test_the_same_question_goes_on_in_the_same_report_and_its_scalars_have_stable_keys():
    columns = (Column("dataset"), Column("protocol"), Column("models", int), Column("r", float), Column("note"))
    lines = [("digits", "sub", 3, 0.5, None), ("digits", "open", 3, np.nan, "too few"), ("a/b.c", "sub", 4, -1.0, None)]
    table = Table("correlation", "?", "eq. 4", pd.DataFrame(lines, columns=[*map(str, columns)]), {}, (), columns)
    assert scalars(table) == {
        "analysis/correlation/digits/sub/models": 3.0,
        "analysis/correlation/digits/sub/r": 0.5,
        "analysis/correlation/digits/open/models": 3.0,
        "analysis/correlation/a|b,c/sub/models": 4.0,
        "analysis/correlation/a|b,c/sub/r": -1.0,
    }


def test_a_table_of_pictures_becomes_one_in_wandb_and_a_long_table_stays_in_the_store(tmp_path, caplog):
    folder, outputs = tmp_path / "reports" / "irt", tmp_path / "outputs"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>x</title>")
    uri = data_uri(png_of(np.full((4, 4, 3), 200, np.uint8)))
    short = Table("gallery", "?", "fig. 6", pd.DataFrame({"rank": [1, 2], "thumbnail": [uri, None]}), {}, ())
    long = Table("label_error_scores", "?", "eq. 3", pd.DataFrame({"rank": range(10_001)}), {}, ())
    tracker_in(outputs).publish([short, long], folder / "index.html", ABOUT)
    (run_folder,) = folders(outputs).values()
    summary = written(run_folder)["summary"]
    assert "tables/gallery" in summary
    assert "tables/label_error_scores" not in summary
    assert "label_error_scores" in caplog.text
    assert "10001 lines" in caplog.text
    staged = [file.read_bytes() for file in (outputs / "wandb" / "artifacts").rglob("tmp*")]  # what a sync uploads
    assert any(content.startswith(b"\x89PNG") for content in staged)
    kept = [json.loads(content) for content in staged if content.startswith(b"{")]
    shown = [table["data"] for table in kept if table.get("_type") == "table"]
    assert {(first[0], first[1]["_type"], *last) for first, last in shown} == {(1, "image-file", 2, None)}


def test_wandb_s_own_sync_would_send_what_is_left(tmp_path):
    tracker_in(tmp_path).fail(training(0))
    command = [sys.executable, "-m", "wandb", "sync", "--dry-run", *folders(tmp_path).values()]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "Would sync 1 run" in answer.stdout + answer.stderr
    assert f"run-{training(0).run_id}.wandb" in answer.stdout + answer.stderr


def test_disabled_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker, run = tracker_in(tmp_path / "outputs"), training(0)
    assert tracker.start(run) is False
    tracker.finish({"run_id": run.run_id, "task": "train"})
    tracker.fail(run)
    tracker.close()
    tracker.publish([], tmp_path / "index.html", ABOUT)
    assert not (tmp_path / "outputs").exists()


def test_an_unknown_mode_is_refused_by_name_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(FcaError, match=r"WANDB_MODE = onlin; allowed: offline, online, disabled;"):
        tracker_in(tmp_path)


def test_no_tracker_follows_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tracker = NoTracker()
    tracker.connect()
    assert tracker.start(training(0)) is False
    tracker.finish({"run_id": training(0).run_id})
    tracker.fail(training(0))
    tracker.close()
    tracker.publish([], tmp_path / "index.html", ABOUT)
    assert list(tmp_path.iterdir()) == []
