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

REFRESH_S = 2.0  # at least, between two looks of --watch
COLUMNS = (
    *("run_id", "state", "task", "error", "command", "host", "pid", "device"),
    *("epoch", "epochs", "images_per_s", "left_s", "beat_s", "finished"),
    FLAG,
)
_CAUSED_BY_PARENT = re.compile(r"run [0-9a-f]{12}, which it needs, (?:failed|was interrupted): ")


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print the state of a store: counts, workers, damaged files, and failures by their errors.

    arguments: the words behind the name of the command.
    With --release-stale or --retry-failed it changes the store instead, and prints what it changed. Returns exit code
    0; the decorator turns an FcaError, such as for a folder that is no store, into exit code 2.
    """
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
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is the usual end here, not a failure
        with suppress(KeyboardInterrupt):
            _watch(store)
    elif not options.release_stale and not options.retry_failed:
        Console(soft_wrap=True, highlight=False).print(_status_text(store), end="")
    return 0


def _release_stale_claims(store: Store) -> None:
    """Remove the claims of workers and the announcements of sweeps that died, and print their number."""
    dead_sweeps = [path for path, sweep in claims.sweeps(store.outputs) if sweep is None]
    released_runs = [run_id for run_id in store.run_ids() if claims.clear(store.folder(run_id)) is not None]
    for path in dead_sweeps:
        path.unlink(missing_ok=True)
    print(f"released {len(released_runs) + len(dead_sweeps)} stale claims")


def _forget_failures(store: Store) -> None:
    """Remove the error records of failed runs and print the commands that do these runs again.

    Without its record, a failed run counts as not done, so the same sweep does it again.
    """
    runs = _status(store)
    failed_runs = runs[runs["state"] == "failed"]
    for run_id in failed_runs["run_id"]:
        store.forgive(run_id)  # removes the error record

    hint = "; run the same sweep again, or" if len(failed_runs) else ""  # the commands follow on the next lines
    print(f"forgot {len(failed_runs)} failures{hint}")
    for command in failed_runs["command"].dropna().unique():
        print(printable(command))


def status(outputs: str | Path = "outputs") -> pd.DataFrame:
    """The state of every run that was begun: one line for each, with these columns.

    run_id, task: which run, and what it does.
    state:    done, running, failed, interrupted (killed, or short of disk or memory), damaged, stale (its worker died),
              or left (begun, and given back by its worker).
    error:    why a run is failed, interrupted or damaged.
    command:  the command that does the run again.
    host, pid, beat_s: the process of a run in progress, and the seconds since its last heartbeat.
    device, epoch, epochs, images_per_s, left_s: the progress of a running training, from some seconds after it began,
              and its estimate of the seconds left.
    finished: when a done run ended (UTC).
    flag:     of a done run; diverged: it has no accuracy, and no run that needs its weights will be done.
    A value that is not known is missing. Raises FcaError for a folder that is no store.

    >>> status("no/such/folder")
    Traceback (most recent call last):
    fca.types.FcaError: outputs = no/such/folder; allowed: a folder that fca run filled; next: ...
    """
    check_store(outputs, "outputs")
    return _status(Store(Path(outputs)))


def _status(store: Store) -> pd.DataFrame:
    """The frame that `status` returns, for a store that exists."""
    lines = [{"run_id": run_id, **_state_of_run(store, run_id)} for run_id in store.run_ids()]
    frame = pd.DataFrame(lines, columns=list(COLUMNS)).set_index("run_id")
    # of finished runs, further columns come from the index of the store, so that no file of a run is read for them
    rows = store.rows().set_index("run_id")[["task", "command", "finished", FLAG]]
    return frame.fillna(rows.reindex(frame.index)).reset_index().infer_objects()


def _state_of_run(store: Store, run_id: str) -> dict[str, Any]:
    """The state of a run and further columns that `fca status` shows, as column -> value.

    A process that works on a run has a claim in its folder. A run that was begun, but on which no process works, is
    stale if its folder still has the claim of a process that died, and left if there is no claim.

    A running run also has columns for its process and progress. A damaged, failed or interrupted run has the error. A
    finished run has the state alone, because the caller has the other columns from the table of results.
    run_id: the id of the run.
    """
    folder = store.folder(run_id)
    state, damage = store.state_and_damage(run_id)

    claim = claims.holder(folder) if state is State.RUNNING else None
    if claim is not None:  # None as well if the run ended since its state was read
        return {
            "state": "running",
            "host": claim["host"],
            "pid": claim["pid"],
            "beat_s": max(0.0, time.time() - claim["beat"]),
            **_progress_of_training(folder, claim["started"]),
        }

    if damage is not None:
        return {"state": "damaged", "error": str(damage)}

    with if_whole():  # goes on below if another process, by --retry-failed, has removed the record a moment ago
        if state in ENDED_EARLY:  # failed or interrupted
            return {**store.error(run_id), "state": state.value}

    if state is State.DONE:
        return {"state": "done"}
    has_claim = (folder / claims.CLAIM).exists()  # the claim is stale: a process at work would make the run RUNNING
    return {"state": "stale" if has_claim else "left"}


def _progress_of_training(folder: Path, started: float) -> dict[str, Any]:
    """The progress that a training wrote into its folder, by column; empty for other runs, and before the first file.

    started: when its worker claimed the run, in seconds since 1970. A file of an earlier attempt is older than that,
             and does not count.
    """
    with if_whole():  # goes on below if there is no such file, or if it is damaged
        is_of_this_worker = (folder / PROGRESS).stat().st_mtime >= started
        if is_of_this_worker:
            return read_object(folder / PROGRESS, epoch=int, epochs=int, images_per_s=float, left_s=float)
    return {}


def _status_text(store: Store) -> Text:
    """All lines of `fca status`, coloured: counts, diverged trainings, estimates, workers, damaged files, failures.

    `_plain` removes the control characters that texts in a store from a stranger may contain.
    """
    frame = _status(store)
    damaged_lists = store.damaged_items()  # lists of the images of a data set, to which finished runs refer
    runs_by_state = {str(state): runs for state, runs in frame.groupby("state")}
    no_runs = frame[:0]  # an empty table with the same columns, for states that no run has
    damaged_runs = runs_by_state.get("damaged", no_runs)
    counts = {state: len(runs) for state, runs in runs_by_state.items()}

    # for example "3 done, 1 running, 0 failed, 2 interrupted (the same command goes on)"
    words = [f"{counts.get(state, 0)} {state}" for state in ("done", "running", "failed")]
    notes = {
        "interrupted (the same command goes on)": counts.get("interrupted", 0),
        "damaged (the same command does them again)": len(damaged_runs) + len(damaged_lists),
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
        if isinstance(run["command"], str):  # it is missing (NaN) if the damaged file is the one that has it
            text.append(_plain(f"  {run['command']}\n"), "not bold")
    for damaged_list in damaged_lists:
        text.append(_plain(f"damaged {damaged_list}\n"), "not bold yellow")

    for state in ("interrupted", "failed"):
        for error, command in _failures(runs_by_state.get(state, no_runs)):
            text.append(_plain(f"{error}\n"), "not bold red")
            text.append(_plain(f"  {command}\n"), "not bold")
    if "failed" in counts:
        hint = "run them again: fca status --retry-failed, then the same sweep; or the sweep with sweep.retry=true\n"
        text.append(hint, "not bold")
    return text


def _plain(lines: str) -> str:
    """The text without control characters, which a store from a stranger may contain; line breaks stay."""
    return printable(lines, keep="\n")


def _diverged(frame: pd.DataFrame) -> str:
    """A line with the number of trainings that diverged; an empty text if none did."""
    n_trainings = int((frame[FLAG].eq(DIVERGED) & frame["task"].eq("train")).sum())
    if not n_trainings:
        return ""
    which = "1 training" if n_trainings == 1 else f"{n_trainings} trainings"
    return f"{which} diverged: no accuracy, and no run that needs such weights will come (fca results flag=diverged)\n"


def _estimates(store: Store, frame: pd.DataFrame) -> Iterator[str]:
    """A line for each sweep at work: how many of its runs are left, and the sweep's own estimate of the time to go.

    If no sweep is at work, a line has the time until the running trainings end, if there is an estimate.
    frame: a line for each run of the store, see `status`.
    """
    runs_by_id = frame.set_index("run_id")
    sweeps_at_work = [sweep for _, sweep in claims.sweeps(store.outputs) if sweep is not None]
    for sweep in sweeps_at_work:
        runs = runs_by_id.reindex(sweep["runs"])  # by ids; lines of runs that have not begun are empty
        # sweep["needs"]: id of a run -> id of the run whose result it needs
        will_never_run = runs.index.isin(_runs_without_weights(sweep["needs"], runs_by_id))
        has_ended = runs["state"].isin(["done", "failed", "interrupted"])
        n_left = int((~will_never_run & ~has_ended).sum())

        # runs that were done before the sweep started do not count as done by it
        finished = pd.to_datetime(runs["finished"], utc=True, format="ISO8601")
        n_done = int((finished >= pd.Timestamp(sweep["started"], unit="s", tz="UTC")).sum())

        words = [f"{n_left} of {len(runs)} runs left"]
        if n_done:
            words.append(f"{n_done} done in {as_time(time.time() - sweep['started'])}")
        to_go: Any = sweep.get("to_go")
        estimated: Any = sweep.get("estimated")
        # the file of a sweep may come from elsewhere, so its values are checked
        has_estimate = isinstance(to_go, float) and isinstance(estimated, float)
        if n_left and has_estimate:
            seconds_left = to_go - (time.time() - estimated)  # to_go is as of the time `estimated`
            words.append(f"about {as_time(max(0.0, seconds_left))} to go")
        yield f"sweep on {sweep['host']} (pid {sweep['pid']}): {', '.join(words)}\n"

    if not sweeps_at_work and frame["left_s"].notna().any():
        yield f"the trainings at work end in about {as_time(frame['left_s'].max())}\n"


def _runs_without_weights(parents: Mapping[str, str], runs_by_id: pd.DataFrame) -> set[str]:
    """The ids of the runs of a sweep that will never be done because they need the weights of a diverged training.

    A diverged training leaves no weights. So the runs that need its result cannot be done, nor can the runs that need
    the results of these runs, and so on.
    parents:    id of a run -> id of the run whose result it needs.
    runs_by_id: a line for each run of the store, indexed by the id, see `status`.
    """
    diverged_ids: set[str] = set(runs_by_id.index[runs_by_id[FLAG].eq(DIVERGED)])
    blocked_ids: set[str] = set()
    while True:  # each round adds the runs that need a run of the round before
        children = {run_id for run_id, parent in parents.items() if parent in diverged_ids | blocked_ids}
        new_ids = children - blocked_ids - diverged_ids
        if not new_ids:
            return blocked_ids
        blocked_ids |= new_ids


def _workers(running: pd.DataFrame) -> Iterator[str]:
    """A line for each process at work: a run of it, the number of further runs that it holds, and its progress.

    running: the lines of the running runs, see `status`.
    """
    for (host, pid), runs_of_worker in running.sort_values("epochs").groupby(["host", "pid"], sort=True):
        run = runs_of_worker.iloc[0]  # one with progress, if there is any: missing epochs sort last
        further_runs = f" and {len(runs_of_worker) - 1} more" if len(runs_of_worker) > 1 else ""

        progress = ""
        if pd.notna(run["epoch"]):  # only trainings report progress
            progress = f"  {run['device']}  epoch {run['epoch']:.0f} of {run['epochs']:.0f}"
            progress += f"  {run['images_per_s']:,.0f} images/s  {as_time(run['left_s'])} to go"
        worker = f"{host} pid {pid:.0f}{progress}"
        yield f"running {run['run_id']}{further_runs}  {worker}  heartbeat {run['beat_s']:.0f} s ago\n"


def _failures(failed: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield two lines for each error: how many runs ended with it, and a command that repeats such a run.

    If a run ended because a run that it needs failed, it counts to the error of the run that it needs.
    failed: runs that failed or were interrupted, see `status`.
    """
    causes = failed["error"].map(lambda error: _CAUSED_BY_PARENT.sub("", error))
    is_consequence = causes != failed["error"]
    # The command should repeat a run that is itself the cause, so causes come before consequences
    causes_first = failed.assign(is_consequence=is_consequence).sort_values("is_consequence", kind="stable")

    for error, runs in causes_first.groupby(causes, sort=False):
        run = runs.iloc[0]
        which = run["run_id"] if len(runs) == 1 else f"{len(runs)} runs, such as {run['run_id']}"
        yield f"{run['state']} {which} ({run['task']}): {error}", run["command"]


def _watch(store: Store) -> None:
    """Show the status again and again, until Ctrl-C."""
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            begun = time.monotonic()
            live.update(_status_text(store), refresh=True)
            seconds_to_read = time.monotonic() - begun
            time.sleep(max(REFRESH_S, 4 * seconds_to_read))  # a large store is read a fifth of the time at most


def as_time(seconds: float) -> str:
    """A number of seconds in the largest unit of which it has at least one.

    >>> as_time(42.0), as_time(150.0), as_time(9000.0), as_time(400_000.0)
    ('42 s', '2.5 min', '2.5 h', '4.6 d')
    """
    units = (("d", 86400), ("h", 3600), ("min", 60))
    return next((f"{seconds / size:.1f} {unit}" for unit, size in units if seconds >= size), f"{seconds:.0f} s")
