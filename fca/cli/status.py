"""`fca status`: what is done, running, failed and damaged, why, and how long it will take."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.live import Live
from rich.text import Text

from fca.cli import Words, printable, sub_command
from fca.cli.show import check_store
from fca.store import ENDED_EARLY, State, Store, claims
from fca.store.columns import DIVERGED, FLAG
from fca.store.damage import PROGRESS
from fca.store.files import if_whole, read_object

REFRESH_S = 2.0
COLUMNS = (
    *("run_id", "state", "task", "error", "command", "host", "pid", "device"),
    *("epoch", "epochs", "images_per_s", "left_s", "beat_s", "finished"),
    FLAG,
)
_CAUSED_BY_PARENT = re.compile(r"run [0-9a-f]{12}, which it needs, (?:failed|was interrupted): ")


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print counts, workers, every damaged file and the failures by their errors; exit code 2 for no such store."""
    parser = Words(prog="fca status", description=__doc__)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    parser.add_argument("--retry-failed", action="store_true", help="forget failures; the same sweep runs them again")
    parser.add_argument("--release-stale", action="store_true", help="remove the claims of workers that died")
    options = parser.parse_args(arguments)
    check_store(options.outputs)

    store = Store(Path(options.outputs))
    if options.release_stale:
        _release_stale_claims(store)
    if options.retry_failed:
        _forget_failures(store)

    if options.watch:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is how it ends, no failure
        with suppress(KeyboardInterrupt):
            _watch(store)
    elif not options.release_stale and not options.retry_failed:
        Console(soft_wrap=True, highlight=False).print(_status_text(store), end="")
    return 0


def _release_stale_claims(store: Store) -> None:
    """Remove the claims of workers and sweeps that died."""
    dead_sweeps = [path for path, sweep in claims.sweeps(store.outputs) if sweep is None]
    released_runs = [run_id for run_id in store.run_ids() if claims.clear(store.folder(run_id)) is not None]
    for path in dead_sweeps:
        path.unlink(missing_ok=True)
    print(f"released {len(released_runs) + len(dead_sweeps)} stale claims")


def _forget_failures(store: Store) -> None:
    """Remove the records of failures, and print the commands that do the failed runs again."""
    runs = _status(store)
    failed_runs = runs[runs["state"] == "failed"]
    for run_id in failed_runs["run_id"]:
        store.forgive(run_id)

    hint = "; run the same sweep again, or" if len(failed_runs) else ""
    print(f"forgot {len(failed_runs)} failures{hint}")
    for command in failed_runs["command"].dropna().unique():
        print(printable(command))


def status(outputs: str | Path = "outputs") -> pd.DataFrame:
    """The state of every run that was begun, one line each.

    state: done, running, failed, interrupted (killed, or short of disk or memory), damaged, stale (its worker died), or
    left (begun, and given back by its worker).
    error: of failed, interrupted and damaged runs.    command: does the run again.
    host, pid, device, epoch, epochs, images_per_s, left_s (its own estimate), beat_s (since its heartbeat): of running
    ones, of trainings some seconds after they begin.
    flag: of done runs; diverged: it has no accuracy, and no run that needs its weights will be done.
    A value that is not known is missing. Raises FcaError for a folder that is no store.

    >>> status("no/such/folder")
    Traceback (most recent call last):
    fca.types.FcaError: outputs = no/such/folder; allowed: a folder that fca run filled; next: ...
    """
    check_store(outputs, "outputs")
    return _status(Store(Path(outputs)))


def _status(store: Store) -> pd.DataFrame:
    lines = [{"run_id": run_id, **_state_of_run(store, run_id)} for run_id in store.run_ids()]
    frame = pd.DataFrame(lines, columns=list(COLUMNS)).set_index("run_id")
    rows = store.rows().set_index("run_id")[["task", "command", "finished", FLAG]]  # from the index: no file is read
    return frame.fillna(rows.reindex(frame.index)).reset_index().infer_objects()


def _state_of_run(store: Store, run_id: str) -> dict[str, Any]:
    """The line of a run that is at work, damaged or ended early; of others, whose row has the rest, the state alone."""
    folder = store.folder(run_id)
    state, damage = store.state_and_damage(run_id)

    claim = claims.holder(folder) if state is State.RUNNING else None
    if claim is not None:
        return {
            "state": "running",
            "host": claim["host"],
            "pid": claim["pid"],
            "beat_s": max(0.0, time.time() - claim["beat"]),
            **_progress_of_training(folder, claim["started"]),
        }

    if damage is not None:
        return {"state": "damaged", "error": str(damage)}

    with if_whole():  # it may have been forgotten a moment ago
        if state in ENDED_EARLY:
            return {**store.error(run_id), "state": state.value}

    if state is State.DONE:
        return {"state": "done"}
    return {"state": "stale" if (folder / claims.CLAIM).exists() else "left"}


def _progress_of_training(folder: Path, started: float) -> dict[str, Any]:
    """What a training wrote of its progress since it started; empty for other runs."""
    with if_whole():
        is_of_this_worker = (folder / PROGRESS).stat().st_mtime >= started
        if is_of_this_worker:
            return read_object(folder / PROGRESS, epoch=int, epochs=int, images_per_s=float, left_s=float)
    return {}


def _status_text(store: Store) -> Text:
    """The whole status, as lines."""
    frame = _status(store)
    damaged_items = store.damaged_items()
    runs_by_state = {str(state): runs for state, runs in frame.groupby("state")}
    no_runs = frame[:0]
    damaged_runs = runs_by_state.get("damaged", no_runs)
    counts = {state: len(runs) for state, runs in runs_by_state.items()}

    # "3 done, 1 running, 0 failed, 2 interrupted (the same command goes on)"
    words = [f"{counts.get(state, 0)} {state}" for state in ("done", "running", "failed")]
    notes = {
        "interrupted (the same command goes on)": counts.get("interrupted", 0),
        "damaged (the same command does them again)": len(damaged_runs) + len(damaged_items),
        "stale (their workers died; the same command takes over)": counts.get("stale", 0),
        "begun and left (the same command goes on)": counts.get("left", 0),
    }
    words += [f"{number} {note}" for note, number in notes.items() if number]
    text = Text(", ".join(words) + "\n", "bold")

    text.append(_diverged(frame), "not bold yellow")
    text.append(_plain("".join(_estimates(store, frame))), "not bold")
    text.append(_plain("".join(_workers(runs_by_state.get("running", no_runs)))), "not bold cyan")

    for run in damaged_runs.to_dict("records"):
        text.append(_plain(f"damaged {run['error']}\n"), "not bold yellow")
        if isinstance(run["command"], str):
            text.append(_plain(f"  {run['command']}\n"), "not bold")
    for item in damaged_items:
        text.append(_plain(f"damaged {item}\n"), "not bold yellow")

    for state in ("interrupted", "failed"):
        for error, command in _failures(runs_by_state.get(state, no_runs)):
            text.append(_plain(f"{error}\n"), "not bold red")
            text.append(_plain(f"  {command}\n"), "not bold")
    if "failed" in counts:
        hint = "run them again: fca status --retry-failed, then the same sweep; or the sweep with sweep.retry=true\n"
        text.append(hint, "not bold")
    return text


def _plain(lines: str) -> str:
    """Lines without control characters: what a store holds may come from a stranger."""
    return printable(lines, keep="\n")


def _diverged(frame: pd.DataFrame) -> str:
    """A line with the number of trainings that diverged; empty where none did."""
    n_trainings = int((frame[FLAG].eq(DIVERGED) & frame["task"].eq("train")).sum())
    if not n_trainings:
        return ""
    which = "1 training" if n_trainings == 1 else f"{n_trainings} trainings"
    return f"{which} diverged: no accuracy, and no run that needs such weights will come (fca results flag=diverged)\n"


def _estimates(store: Store, frame: pd.DataFrame) -> Iterator[str]:
    """When the sweeps at work will be done, by their own estimates; without a sweep, when the trainings will be.

    Nothing where that is not known.
    """
    runs_by_id = frame.set_index("run_id")
    sweeps_at_work = [sweep for _, sweep in claims.sweeps(store.outputs) if sweep is not None]
    for sweep in sweeps_at_work:
        runs = runs_by_id.reindex(sweep["runs"])
        is_void = runs.index.isin(_void_runs(sweep["needs"], runs_by_id))
        has_ended = runs["state"].isin(["done", "failed", "interrupted"])
        n_left = int((~is_void & ~has_ended).sum())

        finished = pd.to_datetime(runs["finished"], utc=True, format="ISO8601")
        n_done = int((finished >= pd.Timestamp(sweep["started"], unit="s", tz="UTC")).sum())

        words = [f"{n_left} of {len(runs)} runs left"]
        if n_done:
            words.append(f"{n_done} done in {as_time(time.time() - sweep['started'])}")
        to_go: Any = sweep.get("to_go")
        estimated: Any = sweep.get("estimated")
        has_estimate = isinstance(to_go, float) and isinstance(estimated, float)  # a store may come from elsewhere
        if n_left and has_estimate:
            words.append(f"about {as_time(max(0.0, to_go - (time.time() - estimated)))} to go")
        yield f"sweep on {sweep['host']} (pid {sweep['pid']}): {', '.join(words)}\n"

    if not sweeps_at_work and frame["left_s"].notna().any():
        yield f"the trainings at work end in about {as_time(frame['left_s'].max())}\n"


def _void_runs(parents: Mapping[str, str], runs_by_id: pd.DataFrame) -> set[str]:
    """The runs of a sweep that nobody will do: their parent is a training that diverged, or one of these runs.

    parents: run -> the run that it needs.    runs_by_id: the runs of the store.
    """
    diverged_ids: set[str] = set(runs_by_id.index[runs_by_id[FLAG].eq(DIVERGED)])
    void_ids: set[str] = set()
    while True:
        children = {run_id for run_id, parent in parents.items() if parent in diverged_ids | void_ids}
        new_ids = children - void_ids - diverged_ids
        if not new_ids:
            return void_ids
        void_ids |= new_ids


def _workers(running: pd.DataFrame) -> Iterator[str]:
    """A line for each process: the run that shows its progress, or the first that it has claimed."""
    for (host, pid), runs_of_worker in running.sort_values("epochs").groupby(["host", "pid"], sort=True):
        run = runs_of_worker.iloc[0]
        further_runs = f" and {len(runs_of_worker) - 1} more" if len(runs_of_worker) > 1 else ""

        progress = ""
        if pd.notna(run["epoch"]):
            progress = f"  {run['device']}  epoch {run['epoch']:.0f} of {run['epochs']:.0f}"
            progress += f"  {run['images_per_s']:,.0f} images/s  {as_time(run['left_s'])} to go"
        worker = f"{host} pid {pid:.0f}{progress}"
        yield f"running {run['run_id']}{further_runs}  {worker}  heartbeat {run['beat_s']:.0f} s ago\n"


def _failures(failed: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """For each error its number of runs and a command that repeats one; runs that need a failed run count to it."""
    causes = failed["error"].map(lambda error: _CAUSED_BY_PARENT.sub("", error))
    is_consequence = causes != failed["error"]
    causes_first = failed.assign(is_consequence=is_consequence).sort_values("is_consequence", kind="stable")

    for error, runs in causes_first.groupby(causes, sort=False):
        run = runs.iloc[0]
        which = run["run_id"] if len(runs) == 1 else f"{len(runs)} runs, such as {run['run_id']}"
        yield f"{run['state']} {which} ({run['task']}): {error}", run["command"]


def _watch(store: Store) -> None:
    """Show the status for ever; a large store is not read all the time."""
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            begun = time.monotonic()
            live.update(_status_text(store), refresh=True)
            time.sleep(max(REFRESH_S, 4 * (time.monotonic() - begun)))


def as_time(seconds: float) -> str:
    """A time in the unit in which one thinks of it.

    >>> as_time(42.0), as_time(150.0), as_time(9000.0), as_time(400_000.0)
    ('42 s', '2.5 min', '2.5 h', '4.6 d')
    """
    units = (("d", 86400), ("h", 3600), ("min", 60))
    return next((f"{seconds / size:.1f} {unit}" for unit, size in units if seconds >= size), f"{seconds:.0f} s")
