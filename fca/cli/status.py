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

WATCH_S = 2.0
COLUMNS = (
    *("run_id", "state", "task", "error", "command", "host", "pid", "device"),
    *("epoch", "epochs", "images_per_s", "left_s", "beat_s", "finished"),
    FLAG,
)
_NEEDED = re.compile(r"run [0-9a-f]{12}, which it needs, (?:failed|was interrupted): ")


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
    store, acts = Store(Path(options.outputs)), options.release_stale or options.retry_failed
    if options.release_stale:
        dead = [path for path, sweep in claims.sweeps(store.outputs) if sweep is None]
        released = [run_id for run_id in store.run_ids() if claims.clear(store.folder(run_id)) is not None]
        for path in dead:
            path.unlink(missing_ok=True)
        print(f"released {len(released) + len(dead)} stale claims")
    if options.retry_failed:
        known = _status(store)
        failed = known[known["state"] == "failed"]
        for run_id in failed["run_id"]:
            store.forgive(run_id)
        again = "; run the same sweep again, or" if len(failed) else ""
        print(f"forgot {len(failed)} failures{again}", *map(printable, failed["command"].dropna().unique()), sep="\n")
    if options.watch:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is how it ends, no failure
        with suppress(KeyboardInterrupt):
            _watch(store)
    elif not acts:
        Console(soft_wrap=True, highlight=False).print(_shown(store), end="")
    return 0


def status(outputs: str | Path = "outputs") -> pd.DataFrame:
    """Where every run stands that was begun, one line each.

    state: done, running, failed, interrupted (killed, or short of disk or memory), damaged, stale (its worker died), or
    left (begun, and given back by its worker).
    error: of failed, interrupted and damaged ones.    command: does the run again.
    host, pid, device, epoch, epochs, images_per_s, left_s (its own estimate), beat_s (since its heartbeat): of running
    ones, of trainings some seconds after they begin.
    flag: of done ones; diverged: it has no accuracy, and no run that needs its weights will come.
    A value that is not known is missing. Raises FcaError for a folder that is no store.

    >>> status("no/such/folder")
    Traceback (most recent call last):
    fca.types.FcaError: outputs = no/such/folder; allowed: a folder that fca run filled; next: ...
    """
    check_store(outputs, "outputs")
    return _status(Store(Path(outputs)))


def _status(store: Store) -> pd.DataFrame:
    lines = [{"run_id": run_id, **_line(store, run_id)} for run_id in store.run_ids()]
    frame = pd.DataFrame(lines, columns=list(COLUMNS)).set_index("run_id")
    rows = store.rows().set_index("run_id")[["task", "command", "finished", FLAG]]  # from the index: no file is read
    return frame.fillna(rows.reindex(frame.index)).reset_index().infer_objects()


def _line(store: Store, run_id: str) -> dict[str, Any]:
    folder = store.folder(run_id)
    state, damaged = store.look(run_id)
    if state is State.RUNNING and (claim := claims.holder(folder)) is not None:
        known = {"state": "running", "host": claim["host"], "pid": claim["pid"]}
        known["beat_s"] = max(0.0, time.time() - claim["beat"])
        with if_whole():
            if (folder / PROGRESS).stat().st_mtime >= claim["started"]:  # not of an earlier worker
                known |= read_object(folder / PROGRESS, epoch=int, epochs=int, images_per_s=float, left_s=float)
        return known
    if damaged is not None:
        return {"state": "damaged", "error": str(damaged)}
    with if_whole():  # forgotten a moment ago
        if state in ENDED_EARLY:
            return {**store.error(run_id), "state": state.value}
    return {"state": "done" if state is State.DONE else "stale" if (folder / claims.CLAIM).exists() else "left"}


def _shown(store: Store) -> Text:
    """The whole status, as lines."""
    frame, items = _status(store), store.damaged_items()
    by_state = {str(state): part for state, part in frame.groupby("state")}
    none = frame[:0]
    counts = {state: len(part) for state, part in by_state.items()}
    notes = {
        "interrupted (the same command goes on)": counts.get("interrupted", 0),
        "damaged (the same command does them again)": counts.get("damaged", 0) + len(items),
        "stale (their workers died; the same command takes over)": counts.get("stale", 0),
        "begun and left (the same command goes on)": counts.get("left", 0),
    }
    parts = [f"{counts.get(state, 0)} {state}" for state in ("done", "running", "failed")]
    text = Text(", ".join([*parts, *(f"{number} {note}" for note, number in notes.items() if number)]) + "\n", "bold")
    text.append(_diverged(frame), "not bold yellow")
    text.append(_plain("".join(_estimates(store, frame))), "not bold")
    text.append(_plain("".join(_workers(by_state.get("running", none)))), "not bold cyan")
    for line in by_state.get("damaged", none).to_dict("records"):
        text.append(_plain(f"damaged {line['error']}\n"), "not bold yellow")
        text.append(_plain(f"  {line['command']}\n") if isinstance(line["command"], str) else "", "not bold")
    text.append(_plain("".join(f"damaged {one}\n" for one in items)), "not bold yellow")
    for error, command in [*_failures(by_state.get("interrupted", none)), *_failures(by_state.get("failed", none))]:
        text.append(_plain(f"{error}\n"), "not bold red").append(_plain(f"  {command}\n"), "not bold")
    again = "run them again: fca status --retry-failed, then the same sweep; or the sweep with sweep.retry=true\n"
    return text.append(again if "failed" in counts else "", "not bold")


def _plain(lines: str) -> str:
    """Lines with what a store holds, which may come from a stranger."""
    return printable(lines, keep="\n")


def _diverged(frame: pd.DataFrame) -> str:
    """How many trainings diverged; nothing where none did."""
    trainings = int((frame[FLAG].eq(DIVERGED) & frame["task"].eq("train")).sum())
    if not trainings:
        return ""
    which = "1 training" if trainings == 1 else f"{trainings} trainings"
    return f"{which} diverged: no accuracy, and no run that needs such weights will come (fca results flag=diverged)\n"


def _estimates(store: Store, frame: pd.DataFrame) -> Iterator[str]:
    """When the sweeps at work will be done, as they estimate it; without any, the trainings. Nothing if unknown."""
    known = frame.set_index("run_id")
    at_work = [sweep for _, sweep in claims.sweeps(store.outputs) if sweep is not None]
    for sweep in at_work:
        runs = known.reindex(sweep["runs"])
        will_come = ~runs.index.isin(_never(sweep["needs"], known))
        left = int((will_come & ~runs["state"].isin(["done", "failed", "interrupted"])).sum())
        finished = pd.to_datetime(runs["finished"], utc=True, format="ISO8601")
        done = int((finished >= pd.Timestamp(sweep["started"], unit="s", tz="UTC")).sum())
        parts = [f"{left} of {len(runs)} runs left"]
        if done:
            parts.append(f"{done} done in {as_time(time.time() - sweep['started'])}")
        to_go: Any = sweep.get("to_go")
        estimated: Any = sweep.get("estimated")
        is_estimate = isinstance(to_go, float) and isinstance(estimated, float)  # a store may come from elsewhere
        if left and is_estimate:
            parts.append(f"about {as_time(max(0.0, to_go - (time.time() - estimated)))} to go")
        yield f"sweep on {sweep['host']} (pid {sweep['pid']}): {', '.join(parts)}\n"
    if not at_work and frame["left_s"].notna().any():
        yield f"the trainings at work end in about {as_time(frame['left_s'].max())}\n"


def _never(needs: Mapping[str, str], known: pd.DataFrame) -> set[str]:
    """The runs of a sweep that nobody will do: what they need is a training that diverged, or one of these runs.

    needs: run -> the one that it needs.    known: the runs of the store by their ids.
    """
    never: set[str] = set()
    ended: set[str] = set(known.index[known[FLAG].eq(DIVERGED)])
    while more := {run_id for run_id, parent in needs.items() if parent in ended | never} - never - ended:
        never |= more
    return never


def _workers(running: pd.DataFrame) -> Iterator[str]:
    """A line for each process: the run that shows how far it is, or the first that it has claimed."""
    for (host, pid), of_one in running.sort_values("epochs").groupby(["host", "pid"], sort=True):
        line = of_one.iloc[0]
        far, more = "", f" and {len(of_one) - 1} more" if len(of_one) > 1 else ""
        if pd.notna(line["epoch"]):
            far = f"  {line['device']}  epoch {line['epoch']:.0f} of {line['epochs']:.0f}"
            far += f"  {line['images_per_s']:,.0f} images/s  {as_time(line['left_s'])} to go"
        yield f"running {line['run_id']}{more}  {host} pid {pid:.0f}{far}  heartbeat {line['beat_s']:.0f} s ago\n"


def _failures(failed: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """For each error its number of runs and a command that repeats one; those that need a failed run count to it."""
    cause = failed["error"].map(lambda error: _NEEDED.sub("", error))
    first = failed.assign(own=cause != failed["error"]).sort_values(
        "own", kind="stable"
    )  # those that failed themselves
    for error, of_one in first.groupby(cause, sort=False):
        line = of_one.iloc[0]
        runs = line["run_id"] if len(of_one) == 1 else f"{len(of_one)} runs, such as {line['run_id']}"
        yield f"{line['state']} {runs} ({line['task']}): {error}", line["command"]


def _watch(store: Store) -> None:
    """Show it for ever; a large store is not read all the time."""
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            begun = time.monotonic()
            live.update(_shown(store), refresh=True)
            time.sleep(max(WATCH_S, 4 * (time.monotonic() - begun)))


def as_time(seconds: float) -> str:
    """A time in the unit in which one thinks of it.

    >>> as_time(42.0), as_time(150.0), as_time(9000.0), as_time(400_000.0)
    ('42 s', '2.5 min', '2.5 h', '4.6 d')
    """
    units = (("d", 86400), ("h", 3600), ("min", 60))
    return next((f"{seconds / size:.1f} {unit}" for unit, size in units if seconds >= size), f"{seconds:.0f} s")
