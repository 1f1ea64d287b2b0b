"""Who is computing a run: one `claim.json` in its folder, made exclusively, kept alive by a heartbeat.

A claim is stale when its process is gone on the same host, or 120 s passed without a beat; so is one from the future,
and one that is none: no JSON, or other types. Taking over renames the stale claim, so that of many workers one wins.
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

BEAT_S = 15.0
STALE_S = 120.0
CLAIM = "claim.json"
SWEEPS = "sweeps"  # in outputs: what sweeps are at work on
_held: dict[Path, str] = {}  # folder -> token of every claim of this process


def is_held(folder: Path) -> bool:
    """Whether a live worker has claimed this run folder."""
    return holder(folder) is not None


def acquire(folder: Path) -> str | None:
    """Claim a run folder; returns the claim's token, or None when a live worker holds it."""
    path = folder / CLAIM
    if folder.is_symlink() or not folder.is_dir():  # a file in its place, or a link: what is written stays in the store
        try:
            folder.unlink(missing_ok=True)
        except OSError:
            if not folder.is_dir():  # else another worker has made it since
                raise
    claim = _read(path)
    if claim is not None:
        if not _is_stale(path, claim):
            return None
        _take_away(path, claim.get("token"))
    remove_parts(folder)
    token = uuid.uuid4().hex
    part = part_of(path)
    write_json(part, {"token": token, **_worker()})
    _held[folder] = token  # before there is a file that `abandon` would have to remove
    try:
        os.link(part, path)  # fails if a claim is there: exclusive, and never half written
    except FileExistsError:
        del _held[folder]
        return None
    finally:
        part.unlink()
    return token


def _worker() -> dict[str, Any]:
    """What a claim has of this process."""
    me = psutil.Process()
    begun = {"process_started": me.create_time(), "started": time.time()}
    return {"host": socket.gethostname(), "pid": me.pid, "job": _job(), **begun}


def holder(folder: Path) -> dict[str, Any] | None:
    """The claim of a run folder that is held, with `beat`, the time of its last heartbeat; None if nobody holds it."""
    claim = _read(folder / CLAIM)
    with suppress(FileNotFoundError):
        if claim is not None and not _is_stale(folder / CLAIM, claim):
            return {**claim, "beat": (folder / CLAIM).stat().st_mtime}
    return None


@dataclass
class Announced:
    """What others see of a sweep.    to_go: seconds until it is done, as it estimated at `estimated`; None: unknown."""

    path: Path
    content: dict[str, Any]
    to_go: float | None = None
    estimated: float = 0.0

    def estimate(self, seconds: float | None) -> None:
        """Keep an estimate; others see it from the next beat on."""
        self.to_go, self.estimated = seconds, time.time()

    def beat(self) -> None:
        """Show that the sweep is alive, and its estimate."""
        self.path.touch()
        if self.to_go is not None:
            with suppress(OSError):  # a full disk: the sweep goes on, its estimate stays the earlier one
                self.write()

    def write(self) -> None:
        """Write the file whole."""
        write_json(self.path, {**self.content, "to_go": self.to_go, "estimated": self.estimated})


@contextmanager
def announced(outputs: Path, runs: Mapping[str, str | None]) -> Iterator[Announced]:
    """Let others see, while the body runs, which runs a sweep is about to do, and its estimate of the time to go.

    runs: their ids -> that of the run that each one needs, if any.
    """
    path = outputs / SWEEPS / f"{uuid.uuid4().hex[:12]}.json"
    needs = {run_id: parent for run_id, parent in runs.items() if parent is not None}
    sweep = Announced(path, {"token": path.stem, **_worker(), "runs": sorted(runs), "needs": needs})
    sweep.write()
    try:
        with repeating(sweep.beat, BEAT_S):
            yield sweep
    finally:
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()  # if no other sweep is at work
            outputs.rmdir()  # if nothing came of it


def sweeps(outputs: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """The sweeps that announced themselves: the file, and what it has; None of one that is dead.

    It has `started`, `runs` (ids), `needs` (of those that need another run: id -> that of the other), and the estimate
    of `Announced`.
    """
    for path in sorted((outputs / SWEEPS).glob("*.json")):
        known = _read(path)
        is_sweep = known is not None and isinstance(known.get("runs"), list)
        if known is None or not is_sweep or _is_stale(path, known):
            yield path, None
            continue
        needs = known.get("needs")
        yield path, {**known, "needs": needs if isinstance(needs, dict) else {}}


def is_mine(folder: Path, token: str) -> bool:
    """Whether the claim in this folder is still the one with this token."""
    claim = _read(folder / CLAIM)
    return claim is not None and claim.get("token") == token


def release(folder: Path, token: str) -> None:
    """Give a claim back, if it is still ours."""
    if is_mine(folder, token):
        (folder / CLAIM).unlink(missing_ok=True)
    _held.pop(folder, None)


def abandon() -> None:
    """Give back every claim of this process, and remove what it is writing: it is about to end."""
    for folder, token in list(_held.items()):
        release(folder, token)
    abandon_parts()


def clear(folder: Path) -> dict[str, Any] | None:
    """Remove a stale claim with the unfinished files beside it; returns the claim, or None if there is none."""
    claim = _read(folder / CLAIM)
    if claim is None or not _is_stale(folder / CLAIM, claim):
        return None
    _take_away(folder / CLAIM, claim.get("token"))
    remove_parts(folder)
    return claim


@contextmanager
def beating(held: dict[Path, str]) -> Iterator[None]:
    """Keep these claims (folder -> token) alive while the body runs; those still held are released at its end."""

    def beat() -> None:
        for folder, token in list(held.items()):
            if is_mine(folder, token):
                with suppress(FileNotFoundError):  # taken over this moment; it is noticed before the row is written
                    os.utime(folder / CLAIM)

    try:
        with repeating(beat, BEAT_S):
            yield
    finally:
        for folder, token in held.items():
            release(folder, token)


@contextmanager
def repeating(work: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `work` every so many seconds, in a thread of its own, while the body runs."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True, name=f"fca-{work.__name__}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _read(path: Path) -> dict[str, Any] | None:
    """The claim; {} for one that is none; None where nothing is."""
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            return read_object(path, token=str, host=str, pid=int, process_started=float, started=float)
        except DamagedFile:
            return {}
    return None


def _job() -> str:
    """The job of SLURM around this process, and how often it was queued again: 17.0; empty outside of one."""
    job = os.environ.get("SLURM_JOB_ID")
    return f"{job}.{os.environ.get('SLURM_RESTART_COUNT', 0)}" if job else ""


def _is_stale(path: Path, claim: dict[str, Any]) -> bool:
    if not claim or claim["started"] > time.time() + STALE_S:
        return True
    mine, theirs = _job(), str(claim.get("job"))
    if mine and mine != theirs and mine.partition(".")[0] == theirs.partition(".")[0]:
        return True  # this very job held it, before it was queued again
    if claim["host"] == socket.gethostname():
        try:
            process = psutil.Process(claim["pid"])
            if process.create_time() != claim["process_started"] or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except (psutil.Error, ValueError, OverflowError):  # no such process, or no number of one
            return True
    try:
        return abs(time.time() - path.stat().st_mtime) > STALE_S  # clocks of hosts may differ by less
    except FileNotFoundError:
        return True


def _take_away(path: Path, token: str | None) -> None:
    """Rename the stale claim; if another worker has taken over in between, its fresh claim is put back."""
    grave = part_of(path)
    try:
        path.rename(grave)
    except FileNotFoundError:
        return
    claim = _read(grave)
    if claim and claim["token"] != token:
        with suppress(FileExistsError):  # a third worker was faster; the one put out finds out before it writes
            os.link(grave, path)
    remove(grave)
