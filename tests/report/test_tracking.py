"""W&B keeps every run: the files that parallel workers leave are read back by W&B's own reader."""

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
from fca.report.tracking import NoTracker, WandbTracker
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError, Run, Table
from tests.wandb_files import folders, inspect, written


@pytest.fixture(autouse=True)
def _no_mode_from_outside(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))  # logs of W&B's own process
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "outputs" / "wandb"))


def tracker_in(outputs: Path, group: str | None = "few_class") -> WandbTracker:
    return WandbTracker(project="fca", entity=None, group=group, tags=["test"], dir=str(outputs))


def training_run(seed: int) -> Run:
    identity = {"data": {"fingerprint": "f00d"}, "classes": [1, 4], "recipe": {"lr": 0.1}, "seed": seed}
    about = {
        "dataset": "digits",
        "model": "test_resnet",
        "ncl": 2,
        "subset_seed": None,
        "classes": (1, 4),
        "seed": seed,
    }
    return Run("train", identity, about)


def stored_row(run: Run) -> dict:
    row = {"run_id": run.run_id, "task": run.task, **run.about, "top1": 0.75, "train_s": 1.5, "n_test": 40}
    return {name: value for name, value in row.items() if value is not None}


def score_row(seed: int) -> dict:
    row = {"run_id": f"5c0de{seed:07x}", "task": "score", "parent": "0123456789ab", "dataset": "digits", "ncl": 2}
    return {**row, "classes": [1, 4], "seed": seed, "recipe_lr": 0.1, "top1_open": 0.5, "top1_masked": 0.875}


def worker(outputs: Path, seeds: list[int]) -> None:
    declare_torchvision_ops()
    import pytorch_lightning as pl
    import torch

    class Line(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.save_hyperparameters()

        def training_step(self, batch, _):
            loss = self.layer(batch[0]).square().mean()
            self.log("train_loss", loss, on_epoch=True, on_step=False)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.set_num_threads(1)
    tracker = tracker_in(outputs)
    for seed in seeds:
        run = training_run(seed)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 1)), batch_size=4)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        trainer = pl.Trainer(logger=tracker.start(run), max_epochs=3, accelerator="cpu", log_every_n_steps=1, **quiet)
        trainer.fit(Line(), data)
        tracker.finish(stored_row(run))
        tracker.finish(score_row(seed))


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
    assert len(found) == 8
    for seed in range(4):
        run = training_run(seed)
        trained, scored = written(found[run.run_id]), written(found[score_row(seed)["run_id"]])
        assert trained["state"] == scored["state"] == "finished"
        assert trained["config"]["identity"] == dict(run.identity)
        assert {n: trained["config"][n] for n in run.about} == {**run.about, "classes": [1, 4]}
        row = stored_row(run)
        assert {n: trained["summary"][n] for n in row if n != "classes"} == {n: row[n] for n in row if n != "classes"}
        assert trained["summary"]["train_loss"] > 0
        row = score_row(seed)
        assert {n: scored["summary"][n] for n in row if n != "classes"} == {n: row[n] for n in row if n != "classes"}
        asked = {n: value for n, value in row.items() if n not in ("top1_open", "top1_masked")}
        assert {n: scored["config"].get(n) for n in asked} == asked
        assert "top1_open" not in scored["config"]


def so_far(outputs: Path) -> dict:
    """Config and summary of the one run that is under way; empty until its file can be read."""
    for folder in folders(outputs).values():
        with contextlib.suppress(ValueError, subprocess.CalledProcessError):
            return json.loads(inspect(folder, "--summary"))
    return {"summary": {}}


def stuck(outputs: Path) -> None:
    tracker_in(outputs).start(training_run(5)).log_metrics({"train_loss": 0.5}, step=0)
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
    assert left["config"]["identity"] == dict(training_run(5).identity)
    assert left["summary"]["train_loss"] == 0.5


def test_a_run_carries_its_id_name_type_group_and_tags(tmp_path):
    tracker_in(tmp_path).finish(score_row(3))
    (folder,) = folders(tmp_path).values()
    records = [json.loads(line) for line in inspect(folder).splitlines()]
    (record,) = [record["run"] for record in records if record["type"] == "run"]
    assert record["run_id"] == score_row(3)["run_id"]
    assert record["display_name"] == "score digits ncl=2 seed=3"
    assert (record["job_type"], record["run_group"], record["tags"]) == ("score", "few_class", ["test"])


def test_a_failed_run_is_closed_as_failed_and_keeps_its_config(tmp_path):
    tracker, run = tracker_in(tmp_path), training_run(7)
    early = training_run(8)  # failed before its training began
    tracker.start(run)
    tracker.fail(run)
    tracker.fail(early)
    found = folders(tmp_path)
    assert [written(found[r.run_id])["state"] for r in (run, early)] == ["failed", "failed"]
    assert [written(found[r.run_id])["config"]["identity"]["seed"] for r in (run, early)] == [7, 8]


def test_two_runs_open_at_once_do_not_share_their_columns(tmp_path):
    tracker, first, second = tracker_in(tmp_path), training_run(1), training_run(2)
    tracker.start(first)
    tracker.start(second)
    tracker.finish({**stored_row(second), "top1": 0.25})
    tracker.finish(stored_row(first))
    found = folders(tmp_path)
    assert [written(found[run.run_id])["summary"]["top1"] for run in (first, second)] == [0.75, 0.25]
    assert [written(found[run.run_id])["config"]["seed"] for run in (first, second)] == [1, 2]


def test_a_report_is_one_run_with_page_figures_and_tables_and_leaves_nothing_outside_outputs(tmp_path):
    folder, outputs = tmp_path / "reports" / "few_class", tmp_path / "outputs"
    (folder / "figures").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "figures" / "dcn.png")
    (folder / "index.html").write_text("<!doctype html><title>few classes</title>")
    frame = pd.DataFrame({"ncl": pd.array([2, None], dtype="Int64"), "classes": [(1, 4), None], "top1": [0.5, None]})
    tracker_in(outputs).publish([Table("dcn", "?", "eq. 1", frame, {}, ())], folder / "index.html")
    (run_folder,) = folders(outputs).values()
    summary = written(run_folder)["summary"]
    assert {"page", "figures/dcn", "tables/dcn"} <= set(summary)
    media = {path.suffix: path for path in (run_folder / "files" / "media").rglob("*.*")}
    assert media[".html"].read_text() == (folder / "index.html").read_text()
    assert json.loads(media[".json"].read_text())["data"] == [[2, [1, 4], 0.5], [None, None, None]]
    assert {path.name for path in tmp_path.iterdir()} <= {"reports", "outputs", "cache"}


def test_a_table_of_pictures_becomes_one_in_wandb_and_a_long_table_stays_in_the_store(tmp_path, caplog):
    folder, outputs = tmp_path / "reports" / "irt", tmp_path / "outputs"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>x</title>")
    uri = data_uri(png_of(np.full((4, 4, 3), 200, np.uint8)))
    short = Table("gallery", "?", "fig. 6", pd.DataFrame({"rank": [1, 2], "thumbnail": [uri, None]}), {}, ())
    long = Table("label_error_scores", "?", "eq. 3", pd.DataFrame({"rank": range(10_001)}), {}, ())
    tracker_in(outputs).publish([short, long], folder / "index.html")
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


def test_wandb_sync_would_send_what_is_left(tmp_path):
    tracker_in(tmp_path).finish(score_row(0))
    command = [sys.executable, "-m", "wandb", "sync", "--dry-run", *folders(tmp_path).values()]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "Would sync 1 run" in answer.stdout + answer.stderr
    assert f"run-{score_row(0)['run_id']}.wandb" in answer.stdout + answer.stderr


def test_disabled_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    tracker, run = tracker_in(tmp_path / "outputs"), training_run(0)
    assert tracker.start(run) is False
    tracker.finish(stored_row(run))
    tracker.publish([], tmp_path / "index.html")
    assert not (tmp_path / "outputs").exists()


def test_an_unknown_mode_is_refused_by_name_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(FcaError, match=r"WANDB_MODE = onlin; allowed: offline, online, disabled;"):
        tracker_in(tmp_path)


def test_no_tracker_follows_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tracker = NoTracker()
    tracker.connect()
    assert tracker.start(training_run(0)) is False
    tracker.finish(score_row(0))
    tracker.fail(training_run(0))
    tracker.publish([], tmp_path / "index.html")
    assert list(tmp_path.iterdir()) == []
