"""Who is computing a run: one `claim.json` in its folder, made exclusively, kept alive by a heartbeat.

A claim is stale when its process is gone on the same host, or 120 s passed without a beat. A claim from the future and
a file that is no valid claim (no JSON, or other types) are stale as well. A worker takes a run over by renaming the
stale claim, so that only one of many workers succeeds.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fca.store.files import DamagedFile, abandon_parts, part_of, read_object, remove, remove_parts, write_json

BEAT_S = 15.0  # between two heartbeats
STALE_S = 120.0  # without a heartbeat, after which a claim is stale
CLAIM = "claim.json"
SWEEPS = "sweeps"  # folder in outputs with a file for each running sweep
_tokens: dict[Path, str] = {}  # folder -> token of every claim of this process


def is_held(folder: Path) -> bool:
    """Whether a live worker has claimed this run folder."""
    return holder(folder) is not None


def acquire(folder: Path) -> str | None:
    """Claim a run folder for this process, so that no other worker computes the run.

    The claim of a worker that no longer works (a stale claim) is replaced, and unfinished files in the folder are
    removed.
    Returns the token of the new claim, which identifies it to `is_mine` and `release`; None if a live worker holds the
    folder, or claims it at the same moment.
    """
    path = folder / CLAIM

    # A file or a link in place of the folder is removed, so that everything is written inside the store
    if folder.is_symlink() or not folder.is_dir():
        try:
            folder.unlink(missing_ok=True)
        except OSError:
            if not folder.is_dir():  # otherwise another worker has replaced it by a folder: no error
                raise

    claim = _read(path)
    if claim is not None:
        if not _is_stale(path, claim):
            return None
        _remove_stale(path, claim.get("token"))
    remove_parts(folder)

    token = uuid.uuid4().hex
    temporary_path = part_of(path)
    write_json(temporary_path, {"token": token, **_this_worker()})
    # noted before the claim exists: a process that is ended in between releases all claims that it has noted
    _tokens[folder] = token
    try:
        os.link(temporary_path, path)  # fails if a claim exists, and never leaves a half-written one
    except FileExistsError:
        del _tokens[folder]
        return None
    finally:
        temporary_path.unlink()
    return token


def _this_worker() -> dict[str, Any]:
    """The fields of a claim that identify this process: host, process id, SLURM job, and times.

    The start time of the process is one of them, because a later process may get the same id.
    """
    process = psutil.Process()
    return {
        "host": socket.gethostname(),
        "pid": process.pid,
        "job": _slurm_job(),
        "process_started": process.create_time(),
        "started": time.time(),
    }


def holder(folder: Path) -> dict[str, Any] | None:
    """The claim of the live worker that holds a run folder; None if nobody holds it.

    Beside the fields of the claim (host, pid, started, ...) it has `beat`, the time of the last heartbeat.
    """
    path = folder / CLAIM
    claim = _read(path)
    if claim is None or _is_stale(path, claim):
        return None

    try:
        return {**claim, "beat": path.stat().st_mtime}
    except FileNotFoundError:  # released this moment
        return None


@dataclass
class Announced:
    """The file by which a running sweep shows itself to other processes.

    content:   what does not change: the process, and the runs of the sweep.
    to_go:     estimated seconds until the sweep is done; None: unknown.
    estimated: when `to_go` was estimated, in seconds since 1970.
    """

    path: Path
    content: dict[str, Any]
    to_go: float | None = None
    estimated: float = 0.0

    def estimate(self, seconds: float | None) -> None:
        """Keep an estimate of the seconds to go (None: unknown); the next beat writes it."""
        self.to_go = seconds
        self.estimated = time.time()

    def beat(self) -> None:
        """Show that the sweep is alive by touching its file, and write its estimate if there is one."""
        self.path.touch()
        if self.to_go is not None:
            with suppress(OSError):  # a full disk: the sweep goes on, its estimate stays the earlier one
                self.write()

    def write(self) -> None:
        """Write the file."""
        write_json(self.path, {**self.content, "to_go": self.to_go, "estimated": self.estimated})


@contextmanager
def announced(outputs: Path, runs: Mapping[str, str | None]) -> Iterator[Announced]:
    """While the `with` block runs, a file in outputs/sweeps shows other processes which runs a sweep will do.

    runs: id of each run -> id of the run whose result it needs, or None.
    Yields the announcement, to which the sweep can give its estimate of the time to go.
    """
    path = outputs / SWEEPS / f"{uuid.uuid4().hex[:12]}.json"
    needs = {run_id: parent for run_id, parent in runs.items() if parent is not None}
    sweep = Announced(path, {"token": path.stem, **_this_worker(), "runs": sorted(runs), "needs": needs})
    sweep.write()
    try:
        with repeating(sweep.beat, BEAT_S):
            yield sweep
    finally:
        with suppress(OSError):  # the first step that fails ends the clean-up
            path.unlink()
            path.parent.rmdir()  # fails if the folder has the file of another running sweep
            outputs.rmdir()  # fails if anything was stored


def sweeps(outputs: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yield the file and the content of every announced sweep; the content is None for a sweep that died.

    The content has `host`, `pid`, `started`, `runs` (ids), `needs` (id of a run -> id of the run whose result it
    needs), and `to_go` and `estimated` (see `Announced`).
    """
    for path in sorted((outputs / SWEEPS).glob("*.json")):
        content = _read(path)
        if content is None or not isinstance(content.get("runs"), list) or _is_stale(path, content):
            yield path, None
            continue

        needs = content.get("needs")  # a store may come from elsewhere, so it may be anything
        yield path, {**content, "needs": needs if isinstance(needs, dict) else {}}


def is_mine(folder: Path, token: str) -> bool:
    """Whether the claim in this folder is still the one with this token."""
    claim = _read(folder / CLAIM)
    return claim is not None and claim.get("token") == token


def release(folder: Path, token: str) -> None:
    """Remove the claim with this token from a run folder; a claim of another worker stays."""
    if is_mine(folder, token):
        (folder / CLAIM).unlink(missing_ok=True)
    _tokens.pop(folder, None)


def abandon() -> None:
    """Release every claim of this process and remove its unfinished files, because it is about to end."""
    for folder, token in list(_tokens.items()):
        release(folder, token)
    abandon_parts()


def clear(folder: Path) -> dict[str, Any] | None:
    """Remove a stale claim from a run folder, with the unfinished files beside it.

    Returns the removed claim ({} if the file was no valid claim), or None if there was no stale one.
    """
    path = folder / CLAIM
    claim = _read(path)
    if claim is None or not _is_stale(path, claim):
        return None

    _remove_stale(path, claim.get("token"))
    remove_parts(folder)
    return claim


@contextmanager
def beating(held: dict[Path, str]) -> Iterator[None]:
    """Keep claims alive by a heartbeat while the `with` block runs, and release them at its end.

    held: folder of a run -> token of its claim. The block may add claims to it.
    """

    def beat() -> None:
        """Renew the time of every claim that this process still holds."""
        for folder, token in list(held.items()):  # a copy, because the block may add a claim meanwhile
            if is_mine(folder, token):
                with suppress(FileNotFoundError):  # lost this moment, which `Store.write` notices
                    os.utime(folder / CLAIM)

    try:
        with repeating(beat, BEAT_S):
            yield
    finally:
        for folder, token in held.items():
            release(folder, token)


@contextmanager
def repeating(work: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `work` every `seconds` seconds in a thread of its own while the `with` block runs."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(seconds):  # `wait` returns False after this time, and True as soon as the block has ended
            work()

    thread = threading.Thread(target=repeat, daemon=True, name=f"fca-{work.__name__}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _read(path: Path) -> dict[str, Any] | None:
    """The claim in a file; {} for a file that is no valid claim; None if there is no file."""
    try:
        return read_object(path, token=str, host=str, pid=int, process_started=float, started=float)
    except DamagedFile:
        return {}
    except (FileNotFoundError, NotADirectoryError):
        return None


def _slurm_job() -> str:
    """Id of the SLURM job of this process and how often it was requeued, such as "17.0"; empty outside of SLURM."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id:
        return ""
    return f"{job_id}.{os.environ.get('SLURM_RESTART_COUNT', 0)}"


def _is_stale(path: Path, claim: dict[str, Any]) -> bool:
    """Whether nobody works under this claim any more, so that another worker may take the run over.

    A claim is stale if it is invalid, if its process has ended, or if it had no heartbeat for STALE_S seconds.

    claim: the content of the file at `path`; {} if the file is no valid claim.
    """
    is_from_future = bool(claim) and claim["started"] > time.time() + STALE_S  # by more than clocks differ
    if not claim or is_from_future:
        return True

    # A job is "NUMBER.RESTARTS", or empty outside of SLURM. This job has the number of the claim, but other restarts:
    # it was requeued, and the claim is from its earlier, ended process
    this_job = _slurm_job()
    claiming_job = str(claim.get("job"))
    has_same_number = this_job.partition(".")[0] == claiming_job.partition(".")[0]
    if this_job and this_job != claiming_job and has_same_number:
        return True

    if claim["host"] == socket.gethostname():
        try:
            process = psutil.Process(claim["pid"])
            is_other_process = process.create_time() != claim["process_started"]  # a later one with the same id
            if is_other_process or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except (psutil.Error, ValueError, OverflowError):  # no such process, or an invalid process id
            return True

    try:
        # The time of the file is that of the last heartbeat. `abs`, because it may be later than this host's clock:
        # the clocks of two hosts differ, but by less than STALE_S
        return abs(time.time() - path.stat().st_mtime) > STALE_S
    except FileNotFoundError:  # released this moment
        return True


def _remove_stale(path: Path, token: str | None) -> None:
    """Remove a stale claim.

    The file is renamed before it is removed, so that only one of several workers gets it. If another worker has taken
    the run over in between, the renamed file is the fresh claim of that worker, which is put back.

    token: the token of the stale claim; None: the file is no valid claim and has no token.
    """
    renamed_path = part_of(path)
    try:
        path.rename(renamed_path)
    except FileNotFoundError:  # another worker was faster
        return

    claim = _read(renamed_path)
    if claim and claim["token"] != token:
        # A third worker may have claimed the run meanwhile; the one that lost its claim notices before it writes
        with suppress(FileExistsError):
            os.link(renamed_path, path)
    remove(renamed_path)
