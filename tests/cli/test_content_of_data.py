"""Runs answer for what files contain: never for other images of equal names and sizes, nor rows of older versions."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.cli import analyse
from fca.data.content import SWEEP
from fca.store import Store, results
from fca.types import Run
from tests.support.images import write_images

EMBED = ["task=embed", "model@encoder=pixels", "dataset=folder", "logger=none"]


def bitmaps(root, seed):
    """Two classes of four images; all files have one size."""
    rng = np.random.default_rng(seed)
    for key in ("ant", "bee"):
        (root / key).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(root / key / f"{i}.bmp")
    return root


def as_before(outputs):
    """Turn a store into one of version 0.1.0, which knew files by names and sizes (its formula, by hand)."""
    for row_file in list(outputs.glob("runs/*/row.json")):
        row = json.loads(row_file.read_text())
        del row["files"]
        [items_file] = outputs.glob(f"items/{row['fingerprint']}.parquet")
        items = pd.read_parquet(items_file)
        items["bytes"] = 306  # of a 9 x 9 bitmap
        records = sorted(zip(*(items[c].astype(str) for c in ("image_id", "bytes", "label", "split")), strict=True))
        text = "".join("\x1f".join(record) + "\x1e" for record in records)
        old = hashlib.sha256(text.encode()).hexdigest()[:12]
        items.drop(columns="content").to_parquet(items_file.with_name(f"{old}.parquet"))
        items_file.unlink()
        del row["fingerprint_kind"]
        encoder = {"encoder": "pixels", "size": 32}
        run_id = Run("embed", {"data": old, "split": row["split"], "encoder": encoder}).run_id
        row_file.write_text(json.dumps({**row, "fingerprint": old, "run_id": run_id}))
        row_file.parent.rename(row_file.parents[1] / run_id)
    (outputs / "rows.parquet").unlink(missing_ok=True)


def test_two_folders_of_equal_names_and_sizes_share_nothing(fca, tmp_path):
    for seed in (0, 1):
        root = bitmaps(tmp_path / str(seed) / "photos", seed)
        assert {path.stat().st_size for path in root.rglob("*.bmp")} == {306}
        assert fca(*EMBED, f"dataset.root={root}")[0] == 0
    rows = results()
    assert len(rows) == rows["run_id"].nunique() == rows["fingerprint"].nunique() == 2
    first, second = (Store(tmp_path / "outputs").array(run_id, "features") for run_id in rows["run_id"])
    assert not np.array_equal(first, second)
    assert rows["fingerprint_kind"].tolist() == ["content", "content"]


def test_an_older_row_stays_visible_and_answers_for_nothing_new(fca, tmp_path):
    words = [*EMBED, f"dataset.root={bitmaps(tmp_path / 'photos', 0)}"]
    assert fca(*words)[0] == 0
    [new] = results()["run_id"]
    as_before(tmp_path / "outputs")
    [old] = results()["run_id"]
    assert old != new
    assert fca(*words)[0] == 0
    kinds = results().set_index("run_id")["fingerprint_kind"].to_dict()
    assert kinds == {old: "names and sizes", new: "content"}
    for run_id in (old, new):
        fingerprint = results().set_index("run_id").loc[run_id, "fingerprint"]
        query = f"fingerprint == '{fingerprint}'"
        code, _, err = fca("analysis=similarity", f'analysis.query="{query}"', door=analyse)
        assert code == 0, err


def test_a_row_without_a_kind_has_that_of_newer_rows_of_its_data_or_none(fca, tmp_path):
    assert fca("task=embed", "model@encoder=pixels", "limit=2", "logger=none")[0] == 0
    [row_file] = (tmp_path / "outputs").glob("runs/*/row.json")
    row = json.loads(row_file.read_text())
    assert row.pop("fingerprint_kind") == "version"
    del row["files"]
    row_file.write_text(json.dumps(row))
    assert results()["fingerprint_kind"].tolist() == ["version"]
    shutil.rmtree(tmp_path / "outputs" / "items")
    row_file.write_text(json.dumps(row) + " ")
    assert results()["fingerprint_kind"].isna().all()
    for run_id, kind in (("a" * 12, {"fingerprint_kind": "version"}), ("b" * 12, {"fingerprint": "0" * 12})):
        folder = row_file.parents[1] / run_id
        folder.mkdir()
        (folder / "row.json").write_text(json.dumps({**row, **kind, "run_id": run_id}))
    kinds = results().set_index("run_id")["fingerprint_kind"]
    assert kinds[row["run_id"]] == "version"
    assert pd.isna(kinds["b" * 12])


@pytest.mark.slow
def test_what_an_older_training_saw_is_not_predicted_as_test(fca, tmp_path):
    root = write_images(tmp_path / "images") / "train"  # a folder of classes, no splits
    words = ["dataset=folder", f"dataset.root={root}", "logger=none"]
    assert (
        fca(*words, "task=train", "model=test_resnet", "model.input_size=32", "recipe.epochs=1", "recipe.min_steps=0")[
            0
        ]
        == 0
    )
    [trained] = results(query="task == 'train'")["run_id"]
    [predicted] = results(query="task == 'predict'")["run_id"]
    [items] = (tmp_path / "outputs" / "items").iterdir()
    pd.read_parquet(items).to_parquet(items.with_name("0123456789ab.parquet"))
    items.unlink()
    shutil.rmtree(tmp_path / "outputs" / "runs" / predicted)
    row_file = tmp_path / "outputs" / "runs" / trained / "row.json"
    row = json.loads(row_file.read_text())
    del row["files"]
    del row["fingerprint_kind"]
    row_file.write_text(json.dumps({**row, "fingerprint": "0123456789ab"}))
    code, _, err = fca(*words, "task=predict", "model=run", f"model.run_id={trained}")
    assert code == 0, err
    [again] = results(query="task == 'predict'").to_dict("records")
    assert (again["run_id"], again["n_test"]) == (predicted, 10), "a fifth of 60 images, as the training cut them"


def test_a_sweep_leaves_no_trace_of_its_listing(fca, tmp_path):
    root = bitmaps(tmp_path / "photos", 0)
    code, _, err = fca("-m", *EMBED, f"dataset.root={root}", "task.split=test")
    assert code == 0, err
    assert SWEEP not in os.environ
    assert not list((tmp_path / "cache").rglob("sweeps/*/*"))


CHANGED_MEANWHILE = """
import sys
from pathlib import Path
from fca.cli import run
from fca.cli.sweeper import ResumingSweep
work = ResumingSweep._work
def after_a_change(self, points, left):
    Path("photos/ant/0.bmp").write_bytes(Path("photos/ant/1.bmp").read_bytes())
    ResumingSweep._work = work
    work(self, points, left)
ResumingSweep._work = after_a_change
sys.exit(run.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_workers_do_what_was_planned_though_a_file_changes_meanwhile(tmp_path):
    bitmaps(tmp_path / "photos", 0)
    words = ["-m", "task=embed", "model@encoder=pixels,hog", "dataset=folder", "dataset.root=photos", "logger=none"]
    command = [sys.executable, "-c", CHANGED_MEANWHILE, *words, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = results(tmp_path / "outputs")
    assert len(rows) == 2
    assert len(set(rows["fingerprint"])) == 1
