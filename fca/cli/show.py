"""`fca show`: one run, or one table; and what other commands show of the runs of a plan and of failures."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fca.cli import Words, printable, sub_command
from fca.cli.terminal import as_bytes, as_text, line_of, number_with_interval, sparkline, typed_value
from fca.csv_table import read_table
from fca.store import ENDED_EARLY, State, Store, claims
from fca.store.columns import RECIPE, Row
from fca.store.damage import PROGRESS
from fca.store.files import DamagedFile, content_of, if_whole, read_object
from fca.types import FcaError

if TYPE_CHECKING:
    from fca.cli.configure import Job

CLASSES_SHOWN, FAILURES_SHOWN = 50, 5
LINES = 40  # of a table that are shown; the file has all
_EPOCH = re.compile(r" epoch (\d+): (.+)$", re.MULTILINE)  # what fca.training.loop writes into a run's log
_PAIR = re.compile(r"(\w+) (-?[\d.]+(?:e[-+]?\d+)?)(?:,|$)")


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print all that is known of a run or a table; exit code 2 for an id that is none."""
    parser = Words(prog="fca show", description="`fca show`: one run or saved table: what it is and all that it has.")
    parser.add_argument("id", metavar="ID", help="of a run or table, or its beginning, or its folder")
    parser.offer(ids)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--config", action="store_true", help="the whole configuration, not only what is no default")
    options = parser.parse_args(arguments)
    store, found = find(options.id, options.outputs)
    lines = _table_lines(store, found) if _is_table(store, found) else _run_lines(store, found, options.config)
    print(printable("\n".join(lines), keep="\n"))
    return 0


def find(typed: str, outputs: str | Path = "outputs") -> tuple[Store, str]:
    """The store and the id of the one run or table that is meant: by its id, the beginning of it, or its folder.

    Raises FcaError where there is none, or more than one.
    """
    path = Path(typed)
    if path.parent.name in ("runs", "tables"):
        outputs, typed = path.parent.parent, path.name
    check_store(outputs)
    store = Store(Path(outputs))
    tables = [path.name for path in store.outputs.glob("tables/*") if path.is_dir()]
    known = [*store.run_ids(), *tables]
    alike = [typed] if typed in known else [one for one in known if typed and one.startswith(typed)]
    if len(alike) != 1:
        allowed = f"one of {', '.join(alike[:5])}" if alike else f"the id of one of {len(known)} runs and tables"
        step = "give more of its letters" if alike else f"list them: fca results --outputs {outputs}"
        raise FcaError("id", typed, allowed, step)
    return store, alike[0]


def ids(outputs: str) -> list[str]:
    """The ids of all runs and tables of a store, for a tab."""
    return sorted(path.name for kind in ("runs", "tables") for path in Path(outputs, kind).glob("*"))


def _is_table(store: Store, found: str) -> bool:
    return not store.folder(found).is_dir()


def _run_lines(store: Store, run_id: str, whole: bool) -> Iterator[str]:
    """What it is, its configuration, numbers, curves, command and files, each with a heading."""
    folder, (state, damaged) = store.folder(run_id), store.look(run_id)
    row = store.row(run_id) if state is State.DONE else {}
    yield f"{run_id}  {line_of(row) if row else state.value}"
    yield from _standing(store, run_id, state, damaged)
    config = flat_config(folder)
    yield from _configuration(config, whole) if config else ("", "configuration: no config.yaml that can be read")
    if row:
        yield from ("", *_numbers(store, row), *_classes(store, row), *_relatives(store, row))
    yield from _curves(folder)
    command = row.get("command") or (store.error(run_id).get("command") if state in ENDED_EARLY else None)
    yield from ("", f"command\n  {command}") if command else ()
    yield from ("", *_files(folder))


def _standing(store: Store, run_id: str, state: State, damaged: DamagedFile | None) -> Iterator[str]:
    """Why it is not done, or when and where it was."""
    folder = store.folder(run_id)
    if damaged is not None:
        yield f"  damaged: {damaged}; the same command does it again"
    if state in ENDED_EARLY:
        error = store.error(run_id)
        hint = "; the same command goes on with it" if state is State.INTERRUPTED else ""
        yield f"  {state.value}: {error.get('task', '')}: {error['error']}{hint}"
        yield from (f"    {line}" for line in str(error.get("traceback") or "").splitlines())
    if state is State.RUNNING and (claim := claims.holder(folder)) is not None:
        yield f"  running on {claim.get('host')}, pid {claim.get('pid')}"
        with if_whole():
            progress = read_object(folder / PROGRESS)
            yield f"  epoch {progress.get('epoch')} of {progress.get('epochs')}"
    if state is State.ABSENT:
        yield "  begun and left; the same command goes on"
    if state is State.DONE:
        row = store.row(run_id)
        where = ", ".join(str(row[key]) for key in ("device", "host") if key in row)
        yield f"  {row.get('finished', '')[:19].replace('T', ' ')} UTC on {where}; commit {row.get('commit')}"
        yield f"  {row.get('versions', '')}"


def flat_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run, a line a key: recipe.lr; empty where there is none that can be read."""
    from fca.cli.configure import config_of

    with if_whole(), suppress(ValueError):
        return dict(_flat(config_of(folder / "config.yaml")))
    return {}


def _flat(node: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key in node:
        value = node[key]
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        elif key != "_target_":
            yield f"{before}{key}", value


def _configuration(config: Mapping[str, Any], whole: bool) -> Iterator[str]:
    """What differs from the defaults of `fca run`, with these; the rest, or its number."""
    from fca.cli.application import composed

    usual = dict(_flat({key: value for key, value in composed("run", []).items() if key != "hydra"}))
    own = {key: value for key, value in config.items() if key not in usual or usual[key] != value}
    yield from ("", "configuration, where it differs from the defaults" if own else "configuration: the defaults")
    width = max(map(len, config))
    for key, value in own.items():
        default = f"   (default {typed_value(usual[key])})" if key in usual else ""
        yield f"  {key:{width}}  {typed_value(value)}{default}"
    same = {key: value for key, value in config.items() if key not in own}
    if whole:
        yield from ("and as usual", *(f"  {key:{width}}  {typed_value(value)}" for key, value in same.items()))
    else:
        yield f"  and {len(same)} keys as usual: --config shows them"


def numbers_of(row: Row) -> dict[str, Any]:
    """What a run measured: its numbers, without their intervals, what was asked, and the recipe.

    >>> numbers_of({"run_id": "a", "ncl": 2, "top1": 0.5, "top1_low": 0.4, "recipe_lr": 0.1, "val_top1": 0.6})
    {'top1': 0.5, 'val_top1': 0.6}
    """
    asked = {"ncl", "subset_seed", "seed", "num_classes", "limit", "input_size"}
    ends = {f"{name}_{end}" for name in row for end in ("low", "high")}
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in asked | ends and not name.startswith(RECIPE)
    }


def _numbers(store: Store, row: Row) -> Iterator[str]:
    meanings = {str(column): column.meaning for column in store.columns()}
    names = numbers_of(row)
    width = max(map(len, names), default=0)
    yield "numbers"
    for name in names:
        yield f"  {name:{width}}  {number_with_interval(name, row):28} {meanings.get(name, '')}".rstrip()


def _classes(store: Store, row: Row) -> Iterator[str]:
    """The keys of the classes of the run."""
    with if_whole(), suppress(KeyError, IndexError):
        keys = store.items(row["fingerprint"])["label"].cat.categories
        shown = ", ".join(str(keys[label]) for label in row["classes"][:CLASSES_SHOWN])
        yield f"  classes: {shown}{', ...' if len(row['classes']) > CLASSES_SHOWN else ''}"


def _relatives(store: Store, row: Row) -> Iterator[str]:
    """The run that this one read, and those that read it."""
    rows = store.rows()
    of = [("reads", rows[rows["run_id"] == row.get("parent")]), ("read by", rows[rows["parent"] == row["run_id"]])]
    for word, found in of:
        for run_id, task in found[["run_id", "task"]].head(10).itertuples(index=False):
            yield f"  {word} {task} {run_id}"
        if len(found) > 10:
            yield f"  and {len(found) - 10} more"


def _curves(folder: Path) -> Iterator[str]:
    """A line of bars for every quantity that the log has after each epoch."""
    text = ""
    with if_whole():
        text = content_of(folder / "log.txt").decode(errors="replace")
    epochs = {int(epoch): dict(_PAIR.findall(values)) for epoch, values in _EPOCH.findall(text)}  # the last one counts
    curves: dict[str, list[float]] = {}
    for epoch in sorted(epochs):
        for name, value in epochs[epoch].items():
            curves.setdefault(name, []).append(float(value))
    if len(epochs) > 1:
        width = max(map(len, curves))
        yield from ("", f"curves over {len(epochs)} epochs: first, last, lowest, highest")
        for name, values in curves.items():
            ends = "  ".join(f"{value:.4g}" for value in (values[0], values[-1], min(values), max(values)))
            yield f"  {name:{width}}  {sparkline(values)}  {ends}"


def _files(folder: Path) -> Iterator[str]:
    sizes = sorted(((path.stat().st_size, path.name) for path in folder.iterdir() if path.is_file()), reverse=True)
    yield f"files in {folder}"
    yield from (f"  {as_bytes(size):>9}  {name}" for size, name in sizes)


def _table_lines(store: Store, table_id: str) -> Iterator[str]:
    """A saved table: its question, parameters, first lines, runs and files."""
    folder = store.outputs / "tables" / table_id
    about = read_object(folder / "table.json", name=str, question=str, source=str, parameters=dict, runs=list)
    frame = store.saved_lines(table_id)
    yield as_text(frame, f"{table_id}  {about['name']}: {about['question']}", LINES)
    yield from (about["source"], "", "columns", *_meanings(store, about))
    yield from ("", "parameters")
    yield from (f"  {key}: {typed_value(value)}" for key, value in about["parameters"].items())
    yield from ("", f"of {len(about['runs'])} runs: {', '.join(map(str, about['runs'][:10]))}", "", *_files(folder))


def _meanings(store: Store, about: Mapping[str, Any]) -> Iterator[str]:
    """A line for each column of a table, with its meaning; none for a table of an earlier version."""
    columns = store.columns_of_table(about)
    width = max(map(len, columns), default=0)
    yield from (f"  {column:{width}}  {column.meaning}".rstrip() for column in columns)


def show_job(job: Job) -> list[str]:
    """One line per run of the plan: what it is, its headline with interval, where it is kept.

    Returns the runs that failed or were interrupted.
    """
    store = job.setup.store
    for run in job.plan:
        if store.state(run.run_id) is State.DONE:
            folder = store.folder(run.run_id)
            print(f"{line_of(store.row(run.run_id), job.task.summary)}  {folder}")
            show_findings(store, run.run_id)
    return show_failures(store, [run.run_id for run in job.plan])


def show_findings(store: Store, run_id: str) -> None:
    """What a person should look at, if a run left a list of it; a damaged list is passed over, the row is whole."""
    from fca.tasks import FINDINGS

    with if_whole(), suppress(FcaError, ValueError, KeyError):
        print(*_findings(store.folder(run_id) / FINDINGS), sep="", end="")


def _findings(file: Path, first: int = 3) -> Iterator[str]:
    """A line for each kind of finding: how many there are, and the first few."""
    found = read_table(content_of(file), file)
    for kind, part in found.groupby("finding", sort=False):
        shown = "; ".join(_finding(line) for line in part.head(first).to_dict("records"))
        yield f"  {len(part)} x {kind}: {shown}{f'; all in {file}' if len(part) > first else ''}\n"


def _finding(line: Mapping[Hashable, str]) -> str:
    if line["group"]:
        return f"{line['group']} ({line['detail']})"
    if line["other_image_id"]:
        return f"{line['image_id']} ({line['label']}) and {line['other_image_id']} ({line['other_label']})"
    return line["detail"]


def show_failures(store: Store, runs: Iterable[str]) -> list[str]:
    """Print the first of these runs that failed or were interrupted, with their commands, and how to go on.

    Returns all that failed or were interrupted.
    """
    states = {run_id: store.state(run_id) for run_id in runs}
    failed = [run_id for run_id, state in states.items() if state is State.FAILED]
    interrupted = [run_id for run_id, state in states.items() if state is State.INTERRUPTED]

    for run_id in [*failed[:FAILURES_SHOWN], *interrupted[:FAILURES_SHOWN]]:
        record = store.error(run_id)
        line = f"{states[run_id].value} {run_id} ({record.get('task')}): {record['error']}\n  {record.get('command')}"
        print(printable(line, keep="\n"))

    if failed:
        number = f"{len(failed)} failed; " if len(failed) > FAILURES_SHOWN else ""
        print(f"{number}all of them: fca status    a sweep runs them again with sweep.retry=true")
    if interrupted:
        print(f"{len(interrupted)} interrupted; the same command goes on with them")

    return failed + interrupted


def check_store(outputs: str | Path, key: str = "--outputs") -> None:
    """Raise FcaError unless this is a folder that can be read; the usual one may be missing before the first run."""
    usual = outputs == "outputs" and not os.path.lexists(outputs)
    is_folder = isinstance(outputs, str | Path) and os.path.isdir(outputs)  # noqa: PTH112  # a notebook may give anything
    if not usual and not (is_folder and os.access(outputs, os.R_OK | os.X_OK)):
        raise FcaError(key, outputs, "a folder that fca run filled", "name the one that outputs= named")
