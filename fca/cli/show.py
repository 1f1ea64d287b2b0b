"""`fca show`: one run, or one table; and how other commands show the runs of a plan and failures."""

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

MAX_CLASSES = 50  # of a run
MAX_FAILURES = 5  # of each kind
MAX_LINES = 40  # of a table; the file has all
MAX_RELATIVES = 10  # runs that a run reads, or that read it
_EPOCH = re.compile(r" epoch (\d+): (.+)$", re.MULTILINE)  # what fca.training.loop writes into a run's log
_PAIR = re.compile(r"(\w+) (-?[\d.]+(?:e[-+]?\d+)?)(?:,|$)")  # "loss 0.25," behind the epoch


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print all that is stored of a run or a saved table.

    arguments: the words behind the name of the command.
    Returns exit code 0. The decorator turns an FcaError, such as for an unknown id, into exit code 2.
    """
    parser = Words(prog="fca show", description="`fca show`: one run or saved table: what it is and all that it has.")
    parser.add_argument("id", metavar="ID", help="id of a run or table, its beginning, or its folder")
    parser.offer(ids)  # completion in the shell
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--config", action="store_true", help="show the whole configuration, not only where it differs")
    options = parser.parse_args(arguments)
    store, full_id = find(options.id, options.outputs)
    is_run = store.folder(full_id).is_dir()
    lines = _run_lines(store, full_id, options.config) if is_run else _table_lines(store, full_id)
    print(printable("\n".join(lines), keep="\n"))  # without control characters, which a store may contain
    return 0


def find(typed: str, outputs: str | Path = "outputs") -> tuple[Store, str]:
    """The store and the full id of the run or table that a user typed.

    typed:   an id, its beginning, or the path of the folder of a run or table. Such a path also gives the store.
    outputs: the store, unless `typed` is a path.
    Raises FcaError if no run or table has this id, or if more than one id begins with it.
    """
    path = Path(typed)
    if path.parent.name in ("runs", "tables"):  # the path OUTPUTS/runs/ID
        outputs, typed = path.parent.parent, path.name
    check_store(outputs)
    store = Store(Path(outputs))
    table_ids = [folder.name for folder in store.outputs.glob("tables/*") if folder.is_dir()]
    all_ids = [*store.run_ids(), *table_ids]
    if typed in all_ids:
        return store, typed

    matches = [full_id for full_id in all_ids if typed and full_id.startswith(typed)]  # "" would fit every id
    if len(matches) == 1:
        return store, matches[0]
    if matches:
        allowed = f"one of {', '.join(matches[:5])}"
        step = "give more of its letters"
    else:
        allowed = f"the id of one of {len(all_ids)} runs and tables"
        step = f"list them: fca results --outputs {outputs}"
    raise FcaError("id", typed, allowed, step)


def ids(outputs: str) -> list[str]:
    """The ids of all runs and tables of a store, for completion on the command line."""
    return sorted(path.name for kind in ("runs", "tables") for path in Path(outputs, kind).glob("*"))


def _run_lines(store: Store, run_id: str, whole: bool) -> Iterator[str]:
    """The lines on one run: what it is, its state, configuration, numbers, curves, command and files.

    run_id: the id of the run.
    whole:  whether the configuration includes the keys that have their default values.
    """
    folder = store.folder(run_id)
    state, damage = store.state_and_damage(run_id)
    row = store.row(run_id) if state is State.DONE else {}  # the stored result; only finished runs have one
    yield f"{run_id}  {line_of(row) if row else state.value}"
    yield from _state_lines(store, run_id, state, damage)

    config = flat_config(folder)
    if config:
        yield from _configuration(config, whole)
    else:
        yield ""
        yield "configuration: no config.yaml that can be read"

    if row:
        yield ""
        yield from _numbers(store, row)
        yield from _classes(store, row)
        yield from _relatives(store, row)
    yield from _curves(folder)

    command = row.get("command")
    if not command and state in ENDED_EARLY:  # a run without a result has its command in the record of the error
        command = store.error(run_id).get("command")
    if command:
        yield ""
        yield f"command\n  {command}"

    yield ""
    yield from _files(folder)


def _state_lines(store: Store, run_id: str, state: State, damage: DamagedFile | None) -> Iterator[str]:
    """The lines on the state of a run: why it ended early, its progress, or when and where it was finished.

    run_id: the id of the run.
    damage: the error about a file of the run that is damaged; None: no file is damaged.
    """
    folder = store.folder(run_id)
    if damage is not None:
        yield f"  damaged: {damage}; the same command does it again"

    if state in ENDED_EARLY:
        error = store.error(run_id)
        hint = "; the same command goes on with it" if state is State.INTERRUPTED else ""
        yield f"  {state.value}: {error.get('task', '')}: {error['error']}{hint}"
        for line in str(error.get("traceback") or "").splitlines():
            yield f"    {line}"

    claim = claims.holder(folder) if state is State.RUNNING else None
    if claim is not None:
        yield f"  running on {claim.get('host')}, pid {claim.get('pid')}"
        with if_whole():  # prints no line if there is no such file: only trainings write their progress
            progress = read_object(folder / PROGRESS)
            yield f"  epoch {progress.get('epoch')} of {progress.get('epochs')}"

    if state is State.ABSENT:  # the folder exists, but the run has no result, no error and no process
        yield "  begun and left; the same command goes on"

    if state is State.DONE:
        row = store.row(run_id)
        machine = ", ".join(str(row[key]) for key in ("device", "host") if key in row)
        yield f"  {row.get('finished', '')[:19].replace('T', ' ')} UTC on {machine}; commit {row.get('commit')}"
        yield f"  {row.get('versions', '')}"


def flat_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run as key -> value, with keys such as recipe.lr; empty if its file cannot be read.

    folder: of the run.
    """
    from fca.cli.configure import config_of

    with if_whole(), suppress(ValueError):  # a value that cannot be resolved
        return dict(_flat_items(config_of(folder / "config.yaml")))
    return {}


def _flat_items(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys and values of nested mappings, with keys such as recipe.lr; without the names of classes."""
    for key in node:
        value = node[key]
        if isinstance(value, Mapping) and value:  # an empty one is a value
            yield from _flat_items(value, f"{prefix}{key}.")
        elif key != "_target_":
            yield f"{prefix}{key}", value


def _configuration(config: Mapping[str, Any], whole: bool) -> Iterator[str]:
    """The lines on a configuration: the keys that differ from the defaults of `fca run`, each with its default.

    config: the run's own keys with their values, inner keys with dots (recipe.lr).
    whole:  whether the keys with default values follow too; otherwise only their number.
    """
    from fca.cli.application import composed  # imports Hydra

    # hydra: settings of Hydra itself, which a stored configuration does not have
    default_config = {key: value for key, value in composed("run", []).items() if key != "hydra"}
    defaults = dict(_flat_items(default_config))
    changed = {key: value for key, value in config.items() if key not in defaults or defaults[key] != value}
    unchanged = {key: value for key, value in config.items() if key not in changed}

    yield ""
    yield "configuration, where it differs from the defaults" if changed else "configuration: the defaults"
    width = max(map(len, config))
    for key, value in changed.items():
        default = f"   (default {typed_value(defaults[key])})" if key in defaults else ""
        yield f"  {key:{width}}  {typed_value(value)}{default}"

    if not whole:
        yield f"  and {len(unchanged)} keys as usual: --config shows them"
        return
    yield "and as usual"
    for key, value in unchanged.items():
        yield f"  {key:{width}}  {typed_value(value)}"


def numbers_of(row: Row) -> dict[str, Any]:
    """What a run measured: column -> number, without ends of intervals and without what was configured.

    >>> numbers_of({"run_id": "a", "ncl": 2, "top1": 0.5, "top1_low": 0.4, "recipe_lr": 0.1, "val_top1": 0.6})
    {'top1': 0.5, 'val_top1': 0.6}
    """
    configured = {"ncl", "subset_seed", "seed", "num_classes", "limit", "input_size"}
    interval_ends = {f"{name}_{end}" for name in row for end in ("low", "high")}
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in configured | interval_ends and not name.startswith(RECIPE)
    }


def _numbers(store: Store, row: Row) -> Iterator[str]:
    """A line for each number that a run measured, with its interval and the meaning of its column."""
    meanings = {str(column): column.meaning for column in store.columns()}
    names = numbers_of(row)
    width = max(map(len, names), default=0)
    yield "numbers"
    for name in names:
        yield f"  {name:{width}}  {number_with_interval(name, row):28} {meanings.get(name, '')}".rstrip()


def _classes(store: Store, row: Row) -> Iterator[str]:
    """A line with the keys of the run's classes; none if the list of images is missing or does not fit the row."""
    with if_whole(), suppress(KeyError, IndexError):
        keys = store.items(row["fingerprint"])["label"].cat.categories
        names = [str(keys[label]) for label in row["classes"][:MAX_CLASSES]]
        if len(row["classes"]) > MAX_CLASSES:
            names.append("...")
        yield f"  classes: {', '.join(names)}"


def _relatives(store: Store, row: Row) -> Iterator[str]:
    """Lines on related runs: the run whose result this run read, and the first runs that read the result of this run.

    For example, a prediction reads the weights of a training. At most MAX_RELATIVES are listed, then the number of the
    other related runs.
    row: the stored row of this run.
    """
    rows = store.rows()
    rows_by_relation = {
        "reads": rows[rows["run_id"] == row.get("parent")],
        "read by": rows[rows["parent"] == row["run_id"]],
    }
    for relation, relatives in rows_by_relation.items():
        for run_id, task in relatives[["run_id", "task"]].head(MAX_RELATIVES).itertuples(index=False):
            yield f"  {relation} {task} {run_id}"
        if len(relatives) > MAX_RELATIVES:
            yield f"  and {len(relatives) - MAX_RELATIVES} more"


def _curves(folder: Path) -> Iterator[str]:
    """For each quantity that a training logged by epoch, a line with its curve as bars, and four of its values.

    There is no line without a log of at least two epochs, so none for runs that are not trainings.
    folder: of the run.
    """
    text = ""
    with if_whole():  # the text stays empty if there is no log, or if it is damaged
        text = content_of(folder / "log.txt").decode(errors="replace")
    # A line of the log is such as "epoch 3: loss 0.25, top1 0.8". _EPOCH finds 3 and the text behind it, and _PAIR the
    # pairs of a name and a value. A training that was resumed may have logged an epoch twice: the last values count
    values_by_epoch = {int(epoch): dict(_PAIR.findall(values)) for epoch, values in _EPOCH.findall(text)}
    if len(values_by_epoch) <= 1:  # a single epoch is no curve
        return

    curves: dict[str, list[float]] = {}
    for epoch in sorted(values_by_epoch):
        for name, value in values_by_epoch[epoch].items():
            curves.setdefault(name, []).append(float(value))

    yield ""
    yield f"curves over {len(values_by_epoch)} epochs: first, last, lowest, highest"
    width = max(map(len, curves))
    for name, curve in curves.items():
        ends = "  ".join(f"{value:.4g}" for value in (curve[0], curve[-1], min(curve), max(curve)))
        yield f"  {name:{width}}  {sparkline(curve)}  {ends}"


def _files(folder: Path) -> Iterator[str]:
    """The lines on the files of a folder: size and name of each, the largest first."""
    sizes_and_names = [(path.stat().st_size, path.name) for path in folder.iterdir() if path.is_file()]
    yield f"files in {folder}"
    for size, name in sorted(sizes_and_names, reverse=True):
        yield f"  {as_bytes(size):>9}  {name}"


def _table_lines(store: Store, table_id: str) -> Iterator[str]:
    """What `fca show` prints on a saved table: its question, first lines, columns, parameters, runs and files."""
    folder = store.outputs / "tables" / table_id
    # the keys that are used below, with the types that they must have
    description = read_object(folder / "table.json", name=str, question=str, source=str, parameters=dict, runs=list)
    frame = store.saved_lines(table_id)
    yield as_text(frame, f"{table_id}  {description['name']}: {description['question']}", MAX_LINES)
    yield description["source"]

    yield ""
    yield "columns"
    yield from _meanings(store, description)

    yield ""
    yield "parameters"
    for key, value in description["parameters"].items():
        yield f"  {key}: {typed_value(value)}"

    yield ""
    run_ids = description["runs"]
    yield f"of {len(run_ids)} runs: {', '.join(map(str, run_ids[:10]))}"

    yield ""
    yield from _files(folder)


def _meanings(store: Store, description: Mapping[str, Any]) -> Iterator[str]:
    """A line for each column of a saved table, with its meaning; none for a table of an earlier version.

    description: the content of its table.json.
    """
    columns = store.columns_of_table(description)
    width = max(map(len, columns), default=0)
    for column in columns:
        yield f"  {column:{width}}  {column.meaning}".rstrip()


def show_job(job: Job) -> list[str]:
    """Print what became of the runs of a job.

    A finished run is one line: what it is, its accuracy with interval, and its folder; its findings follow. Then come
    the first runs that failed or were interrupted. Returns the ids of all of these.
    """
    store = job.context.store
    for run in job.plan:
        if store.state(run.run_id) is State.DONE:
            folder = store.folder(run.run_id)
            print(f"{line_of(store.row(run.run_id), job.task.summary)}  {folder}")
            show_findings(store, run.run_id)
    return show_failures(store, [run.run_id for run in job.plan])


def show_findings(store: Store, run_id: str) -> None:
    """Print the list of findings, things in the data that a person should look at, if a run left one."""
    from fca.tasks import FINDINGS

    # A damaged list is passed over: the result of the run, its row, is intact
    with if_whole(), suppress(FcaError, ValueError, KeyError):
        print(*_findings(store.folder(run_id) / FINDINGS), sep="", end="")


def _findings(file: Path, max_named: int = 3) -> Iterator[str]:
    """A line for each kind of finding in a CSV file: how many there are, and the first `max_named` of them."""
    findings = read_table(content_of(file), file)
    for kind, findings_of_kind in findings.groupby("finding", sort=False):
        named = "; ".join(_finding(line) for line in findings_of_kind.head(max_named).to_dict("records"))
        if len(findings_of_kind) > max_named:
            named += f"; all in {file}"
        yield f"  {len(findings_of_kind)} x {kind}: {named}\n"


def _finding(line: Mapping[Hashable, str]) -> str:
    """One finding in words: it is about a group of images, about two images, or described by its detail."""
    if line["group"]:
        return f"{line['group']} ({line['detail']})"
    if line["other_image_id"]:
        return f"{line['image_id']} ({line['label']}) and {line['other_image_id']} ({line['other_label']})"
    return line["detail"]


def show_failures(store: Store, runs: Iterable[str]) -> list[str]:
    """Print which of these runs failed or were interrupted, with their errors and commands, and how to go on.

    At most MAX_FAILURES runs of each kind are printed.
    runs: ids of runs.
    Returns the ids of all runs that failed, then of all that were interrupted.
    """
    states = {run_id: store.state(run_id) for run_id in runs}
    failed = [run_id for run_id, state in states.items() if state is State.FAILED]
    interrupted = [run_id for run_id, state in states.items() if state is State.INTERRUPTED]

    for run_id in [*failed[:MAX_FAILURES], *interrupted[:MAX_FAILURES]]:
        record = store.error(run_id)
        line = f"{states[run_id].value} {run_id} ({record.get('task')}): {record['error']}\n  {record.get('command')}"
        print(printable(line, keep="\n"))

    if failed:
        number = f"{len(failed)} failed; " if len(failed) > MAX_FAILURES else ""
        print(f"{number}all of them: fca status    a sweep runs them again with sweep.retry=true")
    if interrupted:
        print(f"{len(interrupted)} interrupted; the same command goes on with them")

    return failed + interrupted


def check_store(outputs: str | Path, key: str = "--outputs") -> None:
    """Raise FcaError unless `outputs` is a folder that can be read.

    The default folder may be missing, because it is made by the first run.
    key: what the error calls the folder.
    """
    is_default_before_first_run = outputs == "outputs" and not os.path.lexists(outputs)
    if is_default_before_first_run:
        return

    is_folder = isinstance(outputs, str | Path) and os.path.isdir(outputs)  # noqa: PTH112  # a notebook may give anything
    if not is_folder or not os.access(outputs, os.R_OK | os.X_OK):
        raise FcaError(key, outputs, "a folder that fca run filled", "name the one that outputs= named")
