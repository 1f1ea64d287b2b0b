"""Runs answer for what files contain: never for other images of equal names and sizes."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fca.data.content import SWEEP
from fca.store import Store, results

EMBED = ["task=embed", "model@encoder=pixels", "dataset=folder", "logger=none"]


def bitmaps(root, seed):
    """Two classes of four images; all files have one size."""
    rng = np.random.default_rng(seed)
    for key in ("ant", "bee"):
        (root / key).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(root / key / f"{i}.bmp")
    return root


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
work = ResumingSweep._launch_pending
def after_a_change(self, points, left):
    Path("photos/ant/0.bmp").write_bytes(Path("photos/ant/1.bmp").read_bytes())
    ResumingSweep._launch_pending = work
    work(self, points, left)
ResumingSweep._launch_pending = after_a_change
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
