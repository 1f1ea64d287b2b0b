"""W&B's server stalls, fails, refuses or dies: the work goes on, its copy stays offline, which one line reports."""

import os
import re
import subprocess
import sys
import time

import pytest
import wandb
from wandb.sdk import wandb_setup

from fca.cli import configure
from fca.report import tracking
from fca.store import results
from tests.conftest import SMALL
from tests.report.test_tracking import score_row, stored_row, tracker_in, training_run
from tests.report.wandb_server import WandbServer
from tests.wandb_files import folders, written

BROKEN = ("stalls", 500, 429, "refuses")


@pytest.fixture(autouse=True)
def account(tmp_path, monkeypatch):
    """Online, with a login of the right form that no server of W&B's knows."""
    places = {name: str(tmp_path / name.lower()) for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    account = {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40, "WANDB_SILENT": "true", **places}
    for name, value in account.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(monkeypatch):
    servers = []

    def begin(how):
        server = WandbServer("answers" if how == "refuses" else how)
        servers.append(server)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        wandb.teardown()  # its process knows another server's address
        if how == "refuses":
            server.stop()
        return server

    yield begin
    for server in servers:
        server.stop()


@pytest.mark.parametrize("how", BROKEN)
def test_without_a_good_answer_a_sweep_stays_offline_and_one_line_says_so(how, server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tracking, "ANSWER_S", 0.3)
    url = server(how).url
    tracker_in(tmp_path).connect()
    assert os.environ["WANDB_MODE"] == "offline", "for this process and all that it starts"
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"W&B stays offline ({url}: " in err
    assert f"wandb sync {tmp_path}/wandb/*run-*" in err


def test_a_missing_login_is_one_line_and_work_goes_on_offline(server, tmp_path, monkeypatch, capsys):
    asked = server("answers").asked
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY")
    tracker_in(tmp_path).connect()
    assert os.environ["WANDB_MODE"] == "offline"
    assert "W&B stays offline (no login; try `wandb login`); " in capsys.readouterr().err
    assert not asked


def test_a_server_that_answers_is_used(server, tmp_path, capsys):
    server("answers")
    tracker_in(tmp_path).connect()
    assert (os.environ["WANDB_MODE"], capsys.readouterr().err) == ("online", "")


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN)
def test_a_run_that_meets_a_dead_server_is_whole_offline(how, server, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tracking, "ANSWER_S", 1.0)
    server(how)
    tracker, run = tracker_in(tmp_path), training_run(0)
    tracker.start(run).log_metrics({"train_loss": 0.5}, step=0)
    tracker.finish(stored_row(run))
    tracker.finish(score_row(0))
    found = folders(tmp_path)
    assert written(found[run.run_id])["summary"]["train_loss"] == 0.5
    assert written(found[run.run_id])["summary"]["top1"] == 0.75
    assert written(found[score_row(0)["run_id"]])["summary"]["top1_open"] == 0.5
    assert caplog.text.count("W&B stays offline") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [*BROKEN, "ends"])
def test_a_server_or_process_of_w_and_b_that_dies_during_a_run_stops_nothing(how, server, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "FINISH_S", 1.0)
    alive = server("answers")
    tracker, run, failed = tracker_in(tmp_path), training_run(0), training_run(1)
    curves = tracker.start(run)
    curves.log_metrics({"train_loss": 0.5}, step=0)
    if how == "refuses":
        alive.stop()
    elif how == "ends":
        core = wandb_setup.singleton().assert_service()._proc._process
        core.kill()
        core.wait()
    else:
        alive.how = how
    curves.log_metrics({"train_loss": 0.25}, step=1)
    begun = time.monotonic()
    tracker.finish(stored_row(run))
    tracker.fail(failed)
    tracker.finish(score_row(0))
    assert time.monotonic() - begun < 20, "one wait for all of them"
    assert os.environ["WANDB_MODE"] == "offline"
    assert written(folders(tmp_path)[failed.run_id])["state"] == "failed"
    assert written(folders(tmp_path)[score_row(0)["run_id"]])["summary"]["top1_open"] == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN)
def test_parallel_workers_ask_a_dead_server_once_in_all(how, server, tmp_path):
    asked = server(how).asked
    words = ["-m", "subset.ncl=2,3", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *SMALL, "logger=wandb"]
    command = [sys.executable, "-m", "fca.cli.main", "run", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (ended.stdout + ended.stderr).count("W&B stays offline") == 1
    assert asked == ([] if how == "refuses" else ["/graphql"]), "so a stalled server costs one ANSWER_S a sweep"
    assert set(folders(tmp_path / "outputs")) == set(results(tmp_path / "outputs")["run_id"])


def test_a_wrong_mode_is_refused_before_anything_starts_and_leaves_nothing(fca, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "onlin")
    monkeypatch.setattr(configure, "_MADE", {})  # as in a process of its own: the logger is made anew
    for words in (["limit=8"], ["-m", "limit=8", "seed=0,1"]):
        code, _, err = fca(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert re.match("error: WANDB_MODE = onlin; allowed: offline, online, disabled;", err)
    assert not list(tmp_path.iterdir())
