"""Claims: one worker a run, whoever races, whoever dies. Real processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fca.store import claims


def worker(code, *arguments):
    script = "import sys, time\nfrom pathlib import Path\nfrom fca.store import claims\n" + textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


HOLD = "print(claims.acquire(Path(sys.argv[1])), flush=True)\ntime.sleep(60)"


@pytest.mark.wide
def test_of_many_processes_that_race_for_one_run_exactly_one_wins(tmp_path):
    race = """
    while not Path(sys.argv[2]).exists():
        time.sleep(0.001)
    print(claims.acquire(Path(sys.argv[1])) is not None, flush=True)
    sys.stdin.read()  # a claim lives as long as its process
    """
    script = "import sys, time\nfrom pathlib import Path\nfrom fca.store import claims\n" + textwrap.dedent(race)
    command = [sys.executable, "-c", script, str(tmp_path / "run"), str(tmp_path / "go")]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    time.sleep(1)
    (tmp_path / "go").touch()
    won = [racer.stdout.readline().strip() for racer in racers]
    for racer in racers:
        racer.communicate("")
    assert sorted(won) == ["False", "False", "False", "True"]


def test_a_folder_that_another_makes_at_that_moment_is_no_error(tmp_path, monkeypatch):
    unlink = Path.unlink

    def made_before(path, missing_ok=False):
        if path == tmp_path / "run":
            path.mkdir()
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", made_before)
    assert claims.acquire(tmp_path / "run") is not None


def test_a_claim_of_a_live_process_is_respected_and_of_a_killed_one_taken_over(tmp_path):
    holder = worker(HOLD, tmp_path)
    theirs = holder.stdout.readline().strip()
    assert claims.acquire(tmp_path) is None
    assert claims.is_held(tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert not claims.is_held(tmp_path)
    mine = claims.acquire(tmp_path)
    assert mine not in (None, theirs)
    assert claims.is_mine(tmp_path, mine)


@pytest.mark.slow
def test_of_many_that_take_over_one_dead_claim_exactly_one_wins(tmp_path):
    for round_ in range(5):
        folder = tmp_path / str(round_)
        holder = worker(HOLD, folder)
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
        code = """
        while not Path(sys.argv[2]).exists():
            time.sleep(0.001)
        print(claims.acquire(Path(sys.argv[1])) is not None, flush=True)
        time.sleep(2)
        """
        racers = [worker(code, folder, tmp_path / f"go{round_}") for _ in range(3)]
        time.sleep(0.7)
        (tmp_path / f"go{round_}").touch()
        assert sorted(racer.communicate()[0].strip() for racer in racers) == ["False", "False", "True"]


def test_a_claim_of_another_host_is_stale_after_120_s_without_a_beat(tmp_path):
    claims.acquire(tmp_path)
    path = tmp_path / claims.CLAIM
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere"}))
    os.utime(path, (time.time() - 119, time.time() - 119))
    assert claims.acquire(tmp_path) is None
    os.utime(path, (time.time() - 121, time.time() - 121))
    assert claims.acquire(tmp_path) is not None


def test_a_recycled_process_id_does_not_keep_a_claim_alive(tmp_path):
    claims.acquire(tmp_path)
    path = tmp_path / claims.CLAIM
    path.write_text(json.dumps({**json.loads(path.read_text()), "process_started": 1.0}))
    assert claims.acquire(tmp_path) is not None


def test_a_beating_claim_stays_fresh_and_is_released_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.05)
    token = claims.acquire(tmp_path)
    path = tmp_path / claims.CLAIM
    os.utime(path, (1, 1))
    with claims.beating({tmp_path: token}):
        time.sleep(0.5)
        assert time.time() - path.stat().st_mtime < 60
    assert not path.exists()


def test_releasing_leaves_the_claim_of_the_worker_that_took_over(tmp_path):
    claims.acquire(tmp_path)
    path = tmp_path / claims.CLAIM
    path.write_text(json.dumps({**json.loads(path.read_text()), "token": "another"}))
    claims.release(tmp_path, "mine")
    assert path.exists()


@pytest.mark.parametrize("litter", [".claim.json*"])
def test_nothing_but_the_claim_is_left_in_the_folder(tmp_path, litter):
    token = claims.acquire(tmp_path)
    assert not list(tmp_path.glob(litter))
    claims.release(tmp_path, token)
    assert not list(tmp_path.iterdir())


CLAIM = {"token": "t", "host": "elsewhere", "pid": 1, "process_started": 1.0, "started": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "7", "{}", json.dumps({**CLAIM, "pid": "1"}), json.dumps({**CLAIM, "token": None})),
        *(
            json.dumps({**CLAIM, "started": 1e11}),
            json.dumps({**CLAIM, "host": os.uname().nodename, "pid": -1}),
        ),
    ],
)
def test_a_claim_that_is_nonsense_or_from_the_future_is_taken_over(tmp_path, text):
    (tmp_path / claims.CLAIM).write_text(text)
    assert not claims.is_held(tmp_path)
    token = claims.acquire(tmp_path)
    assert claims.is_mine(tmp_path, token)
    assert [path.name for path in tmp_path.iterdir()] == [claims.CLAIM]


def test_a_claim_that_was_last_touched_in_the_future_or_is_a_folder_is_taken_over(tmp_path):
    (tmp_path / claims.CLAIM).write_text(json.dumps(CLAIM))
    os.utime(tmp_path / claims.CLAIM, (time.time() + 1e6, time.time() + 1e6))
    claims.release(tmp_path, claims.acquire(tmp_path))
    (tmp_path / claims.CLAIM).mkdir()
    assert claims.acquire(tmp_path) is not None


def test_a_file_in_the_place_of_a_run_folder_does_not_stop_the_run(tmp_path):
    (tmp_path / "run").write_text("x")
    assert claims.acquire(tmp_path / "run") is not None


def test_a_link_in_the_place_of_a_run_folder_has_nothing_written_where_it_leads(tmp_path):
    elsewhere = tmp_path / "home"
    elsewhere.mkdir()
    (tmp_path / "run").symlink_to(elsewhere)
    assert claims.acquire(tmp_path / "run") is not None
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "run" / claims.CLAIM).is_file()
