"""Sweeps: planned whole, resumed, shared; killed ones go on. Real processes where processes are the point."""

import json
import os
import re
import signal
import socket
import time
from functools import partial

import pytest
from hydra.core.plugins import Plugins

from fca.cli import report
from fca.store import results
from fca.subset import draw_subset
from fca.torchvision_ops import imported
from tests.conftest import SMALL
from tests.support.images import write_images
from tests.support.wandb_files import folders, written

GRID = ["-m", "model=test_resnet", "subset.ncl=2,3", "subset.seed=0,1", *SMALL]


@pytest.mark.wide
def test_a_grid_is_planned_run_once_and_found_done(fca, tmp_path):
    code, out, err = fca(*GRID)
    assert code == 0, err
    assert "8 runs: 0 done, 0 failed, 0 running, 8 to run; 4 of the runs are trainings" in out
    rows = results("outputs")
    assert sorted(rows["task"]) == ["predict"] * 4 + ["train"] * 4
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("outputs/runs/*/*")}
    code, out, _ = fca(*GRID)
    assert code == 0
    assert "8 runs: 8 done, 0 failed, 0 running, 0 to run" in out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("outputs/runs/*/*")} == before


@pytest.mark.wide
def test_a_finished_sweep_prints_its_accuracies_by_what_was_swept_and_a_command_that_runs(fca):
    code, out, err = fca(*GRID)
    assert code == 0, err
    table = out.partition("top1 by ncl: ")[2].splitlines()
    assert [line.split() for line in table[1:2]] == [["ncl", "top1", "top1_low", "top1_high", "runs"]]
    trained = results("outputs", "task == 'train'")
    for line, ncl in zip(table[2:4], (2, 3), strict=True):
        mean = trained[trained["ncl"] == ncl]["top1"].mean()
        assert line.split()[:2] == [str(ncl), f"{mean:.4g}"]
        assert line.split()[-1] == "2"
    assert out.splitlines()[-1] == "next: fca report report=few_class"
    code, out, err = fca("report=few_class", "report.analyses=[findings]", "logger=none", door=report)
    assert code == 0, err


@pytest.mark.wide
def test_the_next_command_is_about_the_data_of_the_sweep(fca):
    assert fca("dataset=rendered", "dataset.per_level=1", "dataset.train_per_class=10", *SMALL)[0] == 0
    out = fca("-m", "task=embed", "model@encoder=hog,pixels", *SMALL)[1]
    assert out.splitlines()[-1] == "next: fca analyse analysis=similarity dataset=digits"


@pytest.mark.wide
@pytest.mark.parametrize(
    ("shifts", "report_name"), [("clean", "hard_images"), ("clean,corruption/gaussian_blur/1", "irt_corruption")]
)
def test_the_page_of_several_stages_of_training_is_about_hard_images_and_that_of_corruptions_about_these(
    fca, shifts, report_name
):
    code, out, err = fca("-m", f"shift={shifts}", "recipe.snapshots=[0.5]", *SMALL, "recipe.epochs=2")
    assert code == 0, err
    assert out.splitlines()[-1] == f"next: fca report report={report_name}"


@pytest.mark.wide
def test_the_next_command_keeps_one_value_of_what_may_not_stand_in_one_table(fca):
    out = fca("-m", "subset.ncl=2", "seed=0,1", "recipe.lr=0.1,0.2", *SMALL)[1]
    assert out.splitlines()[-1] == "next: fca report report=few_class recipe_lr=0.1"
    code, out, err = fca("report=few_class", "recipe_lr=0.1", "report.analyses=[findings]", "logger=none", door=report)
    assert code == 0, err


def test_printing_commands_downloads_no_data(fca, tmp_path, monkeypatch):
    def no_network(*words, download=False, **others):
        assert not download
        raise RuntimeError("Dataset not found")

    no_network.url, no_network.base_folder = "https://nowhere", "cifar-10-batches-py"
    monkeypatch.setattr(imported("torchvision.datasets"), "CIFAR10", no_network)
    public = [f"dataset.root={tmp_path / 'none'}", "dataset=cifar10", "logger=none", "sweep.print=true"]
    code, out, err = fca("-m", *public, "model=resnet18,vgg16", "subset.ncl=2,5")
    assert code == 0, err
    commands = out.strip().splitlines()
    assert len(commands) == 4
    assert all(line.startswith("fca run ") and "dataset=cifar10" in line for line in commands)
    assert "note: cifar10 is not here yet, and printing downloads nothing" in err
    code, out, _ = fca(*public)
    assert (code, len(out.splitlines())) == (0, 1)
    code, _, err = fca("-m", *public, "model=resnet18,vgg16", "dataset.val=5")
    assert (code, "dataset.val" in err) == (2, True), "what is typed wrong is still refused"
    assert not (tmp_path / "none").exists()


def test_plugins_of_the_environment_stand_in_the_command_of_a_run(fca, monkeypatch):
    monkeypatch.setenv("FCA_PLUGINS", "fractions")
    assert fca(*SMALL, "subset.ncl=2")[0] == 0
    assert set(results("outputs")["command"]) == {f"fca run {' '.join(SMALL)} subset.ncl=2 'plugins=[fractions]'"}


def test_all_classes_are_one_run_whatever_the_subset_seed(fca):
    code, out, _ = fca("-m", "subset.ncl=10", "subset.seed=0,1,2", "sweep.print=true", *SMALL)
    assert code == 0
    assert out.count("fca run") == 1


def test_print_gives_a_command_a_run_that_runs_and_starts_nothing(fca, tmp_path):
    code, out, _ = fca(*GRID, "sweep.print=true")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 4
    assert not (tmp_path / "outputs").exists()
    code, _, err = fca(*lines[0].split()[2:])
    assert code == 0, err
    assert len(results("outputs")) == 2
    code, out, err = fca("-m", *lines[0].split()[2:], "sweep.print=true")
    assert (code, out) == (0, "")
    assert "no command is left to print" in err


@pytest.mark.slow
def test_a_key_of_a_swept_group_goes_with_every_choice(fca):
    shifts = "shift=corruption/fog,corruption/snow"
    code, _, err = fca("-m", shifts, "shift.severities=[1]", *SMALL)
    assert code == 0, err
    assert set(results("outputs")["shift"]) == {"clean", "corruption/fog/1", "corruption/snow/1"}
    code, out, _ = fca("-m", shifts, "shift.severities=[1],[2]", *SMALL, "sweep.print=true")
    assert code == 0
    assert len(out.strip().splitlines()) == 2, "severity 1 is done"


@pytest.mark.slow
def test_predicting_many_subsets_forwards_the_model_once(fca):
    fca("subset=all", *SMALL)
    run_id = results("outputs", "task == 'train'")["run_id"].iloc[0]
    code, _, err = fca(
        "-m",
        "task=predict",
        "model=run",
        f"model.run_id={run_id}",
        "subset.ncl=2,3",
        "subset.seed=range(0,5)",
        "logger=none",
        "limit=8",
    )
    assert code == 0, err
    rows = results("outputs")
    assert len(rows.query("task == 'predict'")) == 1, "the predict row of the training itself"
    scores = rows.query("task == 'score'")
    assert len(scores) == 10
    assert set(scores["parent"]) == set(rows.query("task == 'predict'")["run_id"])
    assert (scores["top1_masked"] >= scores["top1_open"]).all()


@pytest.mark.slow
def test_a_failed_run_is_a_record_does_not_stop_the_others_and_is_retried_on_request(fca, tmp_path):
    images = write_images(tmp_path / "images", classes=("ant", "bee", "cat"))
    broken = images / "train" / "ant" / "1.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:60])
    grid = [
        "-m",
        "dataset=folder",
        f"dataset.root={images}",
        "subset.classes=[ant,bee],[bee,cat]",
        "logger=none",
        "recipe.epochs=1",
        "recipe.min_steps=0",
    ]
    code, out, err = fca(*grid)
    assert code == 1, err
    assert str(broken) in out
    assert sorted(results("outputs")["task"]) == ["predict", "train"]
    record = json.loads(next(p for p in tmp_path.glob("outputs/runs/*/error.json")).read_text())
    assert record["command"].startswith("fca run dataset=folder")
    assert fca(*grid)[1].count("2 failed, 0 running, 0 to run") == 1
    code, out, _ = fca(*grid, "sweep.retry=true")
    assert (code, "4 runs: 2 done, 2 failed, 0 running, 2 to run" in out) == (1, True)


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was_and_does_nothing_twice(start, tmp_path):
    grid = ["run", "-m", "model=test_resnet", "subset.ncl=2,10", "subset.seed=0", "logger=none", "recipe.epochs=8"]
    grid += ["machine.checkpoint_s=0", "recipe.min_steps=0"]
    first = start(*grid, cwd=tmp_path)
    outputs = tmp_path / "outputs"
    deadline = time.time() + 120
    while not list(outputs.glob("runs/*/last.ckpt")) or len(list(outputs.glob("runs/*/row.json"))) < 2:
        assert first.poll() is None, first.stdout.read()
        assert time.time() < deadline
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    done = {path: path.stat().st_mtime_ns for path in outputs.glob("runs/*/row.json")}
    assert 2 <= len(done) < 4
    second = start(*grid, cwd=tmp_path)
    out = second.communicate(timeout=180)[0]
    assert second.returncode == 0, out
    assert f"4 runs: {len(done)} done, 0 failed, 0 running, {4 - len(done)} to run" in out
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert len(results(outputs)) == 4
    assert not list(outputs.glob("runs/*/claim.json"))
    logs = "".join(path.read_text() for path in outputs.glob("runs/*/log.txt"))
    assert re.search(r"go on after epoch \d", logs), "the killed run started again from nothing"


def instead_of_launch(monkeypatch, launch):
    """Have this function called in place of every launcher's method, which is its first argument."""
    make = Plugins.instantiate_launcher

    def instantiate(self, **given):
        launcher = make(self, **given)
        launcher.launch = partial(launch, launcher.launch)
        return launcher

    monkeypatch.setattr(Plugins, "instantiate_launcher", instantiate)


def test_a_claim_that_was_written_in_part_blames_no_worker(fca, tmp_path, monkeypatch):
    """A full disk or a power cut can leave it. It names no process: the launcher's error is reported, in one line."""

    def dies(launch, overrides, initial_job_idx):
        folder = tmp_path / "outputs" / "runs" / planned[0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "claim.json").write_text("")
        raise RuntimeError("A worker process was terminated")

    grid = ["-m", "subset.ncl=2,3", *SMALL]
    fca(*grid, "outputs=elsewhere")
    planned = results("elsewhere", "task == 'train' and ncl == 2")["run_id"].tolist()
    instead_of_launch(monkeypatch, dies)
    code, _, err = fca(*grid)
    assert code == 2
    assert (
        "hydra/launcher = basic; allowed: a launcher that can start (RuntimeError: A worker process was terminated)"
        in err
    )


@pytest.mark.wide
def test_a_job_of_a_cluster_that_dies_costs_its_run_only(fca, tmp_path, monkeypatch):
    calls = []

    def dies(launch, overrides, initial_job_idx):
        calls.append(len(overrides))
        if len(calls) > 1:
            return launch(overrides, initial_job_idx=initial_job_idx)
        (tmp_path / "outputs" / "runs" / planned[0]).mkdir(parents=True)
        claim = {"token": "t", "host": socket.gethostname(), "pid": 2**22 + 1, "process_started": 0.0, "started": 0.0}
        (tmp_path / "outputs" / "runs" / planned[0] / "claim.json").write_text(json.dumps(claim))
        raise RuntimeError("Job 7 was preempted. It has not produced any output")

    grid = ["-m", "subset.ncl=2,3", *SMALL]
    fca(*grid, "outputs=elsewhere")
    planned = results("elsewhere", "task == 'train' and ncl == 2")["run_id"].tolist()
    instead_of_launch(monkeypatch, dies)
    code, out, _ = fca(*grid)
    assert (code, calls) == (1, [2, 1]), "once more, for what is left"
    assert f"interrupted {planned[0]} (train): the worker died: Job 7 was preempted\n" in out
    assert results("outputs")["ncl"].tolist() == [3, 3]
    assert not list(tmp_path.glob("outputs/runs/*/claim.json"))

    code, out, _ = fca(*grid)
    assert (code, "4 runs: 2 done, 0 failed, 2 interrupted, 0 running, 2 to run" in out) == (0, True)
    assert sorted(results("outputs")["ncl"]) == [2, 2, 3, 3]


def test_a_launcher_that_fails_for_no_run_is_not_tried_again(fca, monkeypatch):
    def fails(launch, overrides, initial_job_idx):
        raise RuntimeError("sbatch: command not found")

    instead_of_launch(monkeypatch, fails)
    code, _, err = fca("-m", "subset.ncl=2,3", *SMALL)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "hydra/launcher = basic; allowed: a launcher that can start (RuntimeError: sbatch: command not found)" in err


@pytest.mark.slow
def test_two_sweeps_at_once_over_one_grid_do_nothing_twice(start, tmp_path):
    grid = ["run", "-m", "model=test_resnet", "subset.ncl=2,3", "subset.seed=0,1", *SMALL]
    sweeps = [start(*grid, cwd=tmp_path) for _ in range(2)]
    for sweep in sweeps:
        out = sweep.communicate(timeout=180)[0]
        assert sweep.returncode == 0, out
    outputs = tmp_path / "outputs"
    assert len(results(outputs)) == 8
    begun = [
        line
        for path in outputs.glob("runs/*/log.txt")
        for line in path.read_text().splitlines()
        if "begin train" in line
    ]
    assert len(begun) == 4, begun


@pytest.mark.slow
def test_parallel_workers_share_a_grid_and_w_and_b_has_every_run_whole(start, tmp_path):
    grid = [
        "run",
        "-m",
        "subset.ncl=2,3",
        "subset.seed=0,1",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        *SMALL,
    ]
    sweep = start(*grid, "logger=wandb", cwd=tmp_path)
    out = sweep.communicate(timeout=180)[0]
    assert sweep.returncode == 0, out
    rows = results(tmp_path / "outputs")
    assert len(rows) == 8
    tracked = {run_id: written(folder) for run_id, folder in folders(tmp_path / "outputs").items()}
    trained = rows[rows["task"] == "train"]
    assert set(tracked) == set(trained["run_id"]), "one run in W&B for every training"
    for row in trained.to_dict("records"):
        config, summary = tracked[row["run_id"]]["config"], tracked[row["run_id"]]["summary"]
        assert (config["model"]["name"], config["subset"]["ncl"]) == ("test_resnet", row["ncl"])
        assert summary["top1"] == row["top1"]
        assert summary["val/top1"] == pytest.approx(row["val_top1"], abs=1e-6)  # logged in single precision


def test_a_grid_skips_the_sizes_that_a_smaller_data_set_does_not_have(fca, tmp_path):
    write_images(tmp_path / "few", 3, classes="abcd")
    write_images(tmp_path / "many", 3, classes="abcdefgh")
    grid = ["-m", "dataset=folder", "dataset.root=few,many", "subset.ncl=2,5,20,0.3", "sweep.print=true", *SMALL]
    code, out, err = fca(*grid)
    assert code == 0, err
    assert len(out.strip().splitlines()) == 3, "0.3 of 8 classes are 2"
    few = "few has 4 classes, fewer than subset.ncl=5, 20; few has 4 classes, of which subset.ncl=0.3 is 1"
    assert f"skipped 4 of 8 configurations: {few}; many has 8 classes, fewer than subset.ncl=20\n" in err


def test_values_of_an_axis_above_the_number_of_classes_are_left_out_with_one_line(fca):
    code, out, err = fca("-m", "subset.ncl=5,11,12", "subset.seed=0,1", "sweep.print=true", *SMALL)
    assert code == 0, err
    assert [line.partition("subset.ncl=")[2].split()[0] for line in out.strip().splitlines()] == ["5", "5"]
    assert err.count("skipped") == 1
    assert "skipped 4 of 6 configurations: digits has 10 classes, fewer than subset.ncl=11, 12\n" in err


@pytest.mark.wide
def test_an_experiment_runs_on_a_set_of_two_classes(fca, tmp_path):
    write_images(tmp_path / "two", 8, classes="ab")
    words = ["experiment=few_class", "dataset.root=two", "subset.seed=0,1", "model=test_resnet", "logger=none"]
    code, out, err = fca("-m", *words, "recipe.epochs=1", "recipe.min_steps=0", "model@encoder=pixels")
    assert code == 0, err
    assert "skipped 8 of 12 configurations: two has 2 classes, fewer than subset.ncl=3, 5\n" in err
    assert "subset.ncl=2 of the 2 classes of two: 2 seeds, 1 subset\n" in out
    assert set(results("outputs")["ncl"].dropna()) == {2}


@pytest.mark.parametrize("sizes", ["11,12", "11", "0.1", "1,2", "0,2", "-3,2"])
def test_sizes_of_which_none_fits_or_one_never_can_are_refused(fca, sizes):
    code, _, err = fca("-m", f"subset.ncl={sizes}", "sweep.print=true", *SMALL)
    assert code == 2
    assert "allowed: 2 to 10" in err


def test_seeds_that_draw_the_same_classes_are_counted(fca, tmp_path):
    write_images(tmp_path / "three", 8, classes="abc")
    draws = {seed: draw_subset(3, 2, seed).classes for seed in range(5)}
    number = len(set(draws.values()))
    assert 1 < number <= 3, "three classes have three pairs, so some of five seeds draw the same one"
    words = ["-m", "dataset=folder", "dataset.root=three", "subset.ncl=2", "task=embed", "logger=none"]
    line = f"subset.ncl=2 of the 3 classes of three: 5 seeds, {number} different subsets\n"
    code, out, err = fca(*words, "subset.seed=range(0,5)", "sweep.print=true")
    assert code == 0, err
    assert line in err
    assert line not in out, "there stand commands alone"
    code, out, err = fca(*words, "subset.seed=range(0,5)")
    assert code == 0, err
    assert line in out
    different = next(seed for seed in draws if draws[seed] != draws[0])
    _, out, _ = fca(*words, f"subset.seed=0,{different}")
    assert "different subsets" not in out


def test_every_row_of_a_look_has_its_limit_and_rows_of_a_whole_set_have_none(fca):
    words = ["subset.ncl=2", *SMALL]
    assert fca(*words)[0] == 0
    assert fca("task=embed", "logger=none")[0] == 0
    rows = results("outputs").set_index("task")
    assert rows.loc[["train", "predict"], "limit"].tolist() == [8, 8]
    assert rows.loc[["embed"], "limit"].isna().all()
