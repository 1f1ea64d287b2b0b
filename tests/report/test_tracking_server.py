"""W&B's server stalls, fails, refuses or dies: the work goes on, its copy stays offline, which one line reports."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import wandb
from wandb.sdk import wandb_setup

from fca.cli import configure, doctor
from fca.cli import wandb as cli
from fca.report.tracking import runs, sync
from fca.store import results
from tests.conftest import SMALL
from tests.support.tracked import begin, done, prediction, tracker_in, training
from tests.support.wandb_files import folders, written
from tests.support.wandb_server import WandbServer

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
    monkeypatch.setattr(runs, "ANSWER_S", 0.3)
    url = server(how).url
    tracker_in(tmp_path).connect()
    assert os.environ["WANDB_MODE"] == "offline", "for this process and all that it starts"
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"W&B stays offline ({url}: " in err
    assert f"fca wandb sync --outputs {tmp_path}" in err


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
    monkeypatch.setattr(runs, "ANSWER_S", 1.0)
    server(how)
    tracker, run, other = tracker_in(tmp_path), training(0), training(1)
    begin(tmp_path, run)
    tracker.start(run).log_metrics({"train/loss": 0.5}, step=0)
    tracker.finish(done(tmp_path, run))
    tracker.finish(done(tmp_path, other))
    tracker.close()
    found = folders(tmp_path)
    assert written(found[run.run_id])["summary"]["train/loss"] == 0.5
    assert [written(found[one.run_id])["summary"]["top1"] for one in (run, other)] == [0.75, 0.75]
    assert caplog.text.count("W&B stays offline") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [*BROKEN, "ends"])
def test_a_server_or_process_of_w_and_b_that_dies_during_a_run_stops_nothing(how, server, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "FINISH_S", 1.0)
    alive = server("answers")
    tracker, run, failed, other = tracker_in(tmp_path), training(0), training(1), training(2)
    begin(tmp_path, run)
    curves = tracker.start(run)
    curves.log_metrics({"train/loss": 0.5}, step=0)
    if how == "refuses":
        alive.stop()
    elif how == "ends":
        core = wandb_setup.singleton().assert_service()._proc._process
        core.kill()
        core.wait()
    else:
        alive.how = how
    curves.log_metrics({"train/loss": 0.25}, step=1)
    rows = [done(tmp_path, one) for one in (run, other)]
    begun = time.monotonic()
    tracker.fail(failed)
    for row in rows:
        tracker.finish(row)
    tracker.close()
    assert time.monotonic() - begun < 20, "one wait for all of them"
    assert os.environ["WANDB_MODE"] == "offline"
    assert written(folders(tmp_path)[failed.run_id])["state"] == "failed"
    assert written(folders(tmp_path)[other.run_id])["summary"]["top1"] == 0.75


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stalls", "refuses"])
def test_parallel_workers_ask_a_dead_server_once_in_all(how, server, tmp_path):
    asked = server(how).asked
    words = ["-m", "subset.ncl=2,3", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *SMALL, "logger=wandb"]
    command = [sys.executable, "-m", "fca.cli.main", "run", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (ended.stdout + ended.stderr).count("W&B stays offline") == 1
    assert asked == ([] if how == "refuses" else ["/graphql"]), "so a stalled server costs one ANSWER_S a sweep"
    assert set(folders(tmp_path / "outputs")) == set(results(tmp_path / "outputs", "task == 'train'")["run_id"])


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Two trainings: one was followed and lost its worker at first, one was not tracked; tables, and a given model."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    followed, other = training(0), training(1)
    begin(tmp_path, followed)
    for steps in ((0, 1), (2, 3)):  # killed, then it went on
        tracker = tracker_in(tmp_path)
        curves = tracker.start(followed)
        for step in steps:
            curves.log_metrics({"train/loss": 1 / (step + 1), "epoch": step}, step=step)
        if steps == (0, 1):
            tracker.close()
    tracker.finish(done(tmp_path, followed))
    tracker.close()
    for run in (other, prediction(other), prediction(followed, "corruption/fog/3")):
        done(tmp_path, run, **({"top1_open": 0.5} if run.task == "predict" else {}))
    monkeypatch.delenv("WANDB_MODE")
    return tmp_path


def sent(outputs, capsys, *words):
    code = cli.main(["sync", "--outputs", str(outputs), *words])
    return code, capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_sync_sends_what_was_followed_and_what_was_not_as_one_run_a_training_and_then_nothing(server, stored, capsys):
    held = server("answers")
    assert sent(stored, capsys, "--dry-run")[1].startswith("would write 2 entries from the store")
    code, line = sent(stored, capsys)
    assert (code, line.partition(" in ")[0]) == (0, "4 files sent")
    assert set(held.runs) == {training(0).run_id, training(1).run_id}
    followed, other = held.runs[training(0).run_id], held.runs[training(1).run_id]
    steps = [(line["_step"], line["epoch"]) for line in followed.history if "epoch" in line]
    assert steps == [(0, 0), (1, 1), (2, 2), (3, 3)], "one curve, across the kill, once"
    assert [line["val/top1"] for line in other.history] == [0.0, 0.25, 0.5], "from fitted.json"
    assert [line["_step"] for line in other.history] == [1, 3, 5], "2 batches of 64 in 100 images"
    assert followed.summary["top1"] == other.summary["top1"] == 0.75
    assert followed.table("predict")[0]["shift"] == "corruption/fog/3"
    assert (followed.values["recipe"]["lr"], followed.group, followed.job_type) == (0.1, "few_class", "train")
    assert "fca/config.yaml" in other.files
    assert held.most <= 8, "4 runs at a time, each with a few requests"
    asked = len(held.asked)
    assert sent(stored, capsys) == (0, "nothing is left to send")
    assert len(held.asked) == asked


@pytest.fixture
def spy(tmp_path, monkeypatch):
    """The server that `wandb/settings` of the current folder names; beside it is a wandb.py that would be run."""
    spy = WandbServer("answers")
    folder = tmp_path / "photos"
    for name in ("wandb", ".wandb"):
        (folder / name).mkdir(parents=True)
        (folder / name / "settings").write_text(f"[default]\nbase_url = {spy.url}\nhttp_proxy = {spy.url}\n")
    (folder / "wandb.py").write_text(f"open({str(folder / 'made')!r}, 'w').close()\n")
    monkeypatch.chdir(folder)
    yield spy
    spy.stop()
    assert spy.asked == []
    assert not (folder / "made").exists()


@pytest.mark.slow
def test_the_key_goes_to_the_server_of_the_users_own_settings_and_to_none_of_the_current_folder(
    server, stored, spy, monkeypatch, capsys
):
    held = server("answers")
    monkeypatch.delenv("WANDB_BASE_URL")
    settings = Path(os.environ["WANDB_CONFIG_DIR"], "settings")
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"[default]\nbase_url = {held.url}\n")
    monkeypatch.setenv("WANDB_MODE", "online")
    tracker, run = tracker_in(stored), training(2)
    tracker.connect()
    tracker.finish(done(stored, run))
    tracker.close()
    code, line = sent(stored, capsys)
    assert (code, line.partition(" in ")[0]) == (0, "4 files sent")
    assert set(held.runs) == {training(number).run_id for number in range(3)}


def test_a_password_in_the_servers_address_is_not_printed(server, tmp_path, monkeypatch, capsys):
    url = server("refuses").url
    monkeypatch.setenv("WANDB_BASE_URL", url.replace("//", "//me:hunter2@"))
    wandb.teardown()
    tracker_in(tmp_path).connect()
    err = capsys.readouterr().err
    assert f"W&B stays offline ({url.replace('//', '//***@')}: " in err
    assert "Connection refused" in err, "the host was asked, and no part of the password was taken for it"
    assert "hunter2" not in err
    done(tmp_path, training(0))
    assert cli.main(["sync", "--outputs", str(tmp_path)]) == 2
    assert "hunter2" not in capsys.readouterr().err
    doctor.main(["--outputs", str(tmp_path)])
    assert "hunter2" not in capsys.readouterr().out


@pytest.mark.slow
def test_sync_waits_where_the_server_is_busy_as_long_as_it_asks(server, stored, capsys):
    # wandb/wandb#5445, #2810: 429 from about 15 processes
    held = server("answers")
    held.busy, held.retry_after = 5, "1"
    code, line = sent(stored, capsys, "--workers", "2")
    assert (code, line.partition(" in ")[0]) == (0, "4 files sent")
    assert held.busy == 0
    assert held.refused[-1] - held.refused[0] > 0.9, "it was not asked again at once"
    assert held.runs[training(0).run_id].summary["top1"] == 0.75


@pytest.mark.slow
def test_sync_of_which_the_server_dies_goes_on_later_with_what_is_left(server, stored, capsys, monkeypatch):
    for name in ("STALL_S", "FIRST_WAIT_S"):
        monkeypatch.setattr(sync, name, 3.0 if name == "STALL_S" else 0.01)
    monkeypatch.setattr(sync, "MAX_FAILED_ROUNDS", 1)
    dying = server("answers")
    dying.dies_after = 25
    code, line = sent(stored, capsys)
    assert code == 1
    assert not line.startswith("4 files")
    held = server("answers")
    held.runs.update(dying.runs)
    code, line = sent(stored, capsys)
    assert code == 0
    assert held.runs[training(0).run_id].table("predict")[0]["top1_open"] == 0.5
    assert held.runs[training(1).run_id].summary["top1"] == 0.75


def test_sync_refuses_what_it_cannot_do(server, tmp_path, capsys):
    url = server("refuses").url
    done(tmp_path, training(0))
    for words, message in (
        (["sync", "--workers", "40", "--outputs", str(tmp_path)], "--workers = 40; allowed: 1 to 16"),
        (["sync", "--outputs", str(tmp_path / "none")], "--outputs = "),
        (["sync", "--outputs", str(tmp_path)], f"W&B = {url}: "),
        (["syn"], "fca wandb = syn; allowed: sync, report"),
    ):
        assert cli.main(words) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of wandb-workspaces on pydantic
def test_a_report_has_its_run_a_saved_workspace_and_a_report_by_one_command(
    server, digits_store, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("wandb_workspaces")
    held = server("answers")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    outputs = shutil.copytree(digits_store, tmp_path / "outputs")
    words = ["report", "report=few_class", f"outputs={outputs}"]
    assert cli.main(words) == 0, capsys.readouterr().err
    urls = capsys.readouterr().out.split()[-2:]
    assert [url.startswith(held.url) for url in urls] == [True, True]
    (run,) = held.runs.values()
    assert run.job_type == "report"
    assert run.values["command"].startswith("fca report report=few_class")
    assert any(key.startswith("analysis/similarity/digits/hog/") for key in run.summary)
    assert [view["displayName"] for view in held.views] == ["fca few_class"] * 2
    titles = json.dumps([view["spec"] for view in held.views])
    assert "grad_norm" in titles
    assert "subset.ncl" in titles
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert "WANDB_MODE = offline; allowed: online" in capsys.readouterr().err


def test_a_wrong_mode_is_refused_before_anything_starts_and_leaves_nothing(fca, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "onlin")
    monkeypatch.setattr(configure, "_COMPONENTS", {})  # as in a process of its own: the logger is made anew
    for words in (["limit=8"], ["-m", "limit=8", "seed=0,1"]):
        code, _, err = fca(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert re.match("error: WANDB_MODE = onlin; allowed: offline, online, disabled;", err)
    assert not list(tmp_path.iterdir())
