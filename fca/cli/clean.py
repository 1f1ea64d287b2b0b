"""`fca clean`: what of a store can go without losing a result, how large it is, what it costs to make again."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fca.cli import FILTER, Words, as_options, printable, sub_command
from fca.cli.show import check_store
from fca.cli.status import as_time
from fca.cli.terminal import as_bytes
from fca.models.stored import BEST
from fca.store import State, Store, claims
from fca.store.columns import DIVERGED, FLAG, RUN_ID
from fca.store.damage import PROGRESS, is_run_id
from fca.store.files import abandoned_parts, if_whole, naming, read_object, remove
from fca.store.filters import combined_query, unmatched_filter_lines
from fca.store.query import rows_matching
from fca.types import FcaError

KINDS = {
    "checkpoints": "checkpoints of runs that are done",
    "weights": "weights of trained networks, but for snapshots",
    "snapshots": "weights of their snapshots",
    "diverged": "weights of trainings that diverged: nothing reads them",
    "cache": "decoded pixels and pictures of pages",
    "hydra": "Hydra's folders of earlier sweeps",
    "stale": "claims and half-written files of processes that died",
}
WEIGHTS = ("weights", "snapshots", "diverged")
FREE = ("checkpoints", "diverged", "hydra", "stale")  # nobody needs these: --yes removes them if no kind is named
KEPT_DURING_WORK = (*WEIGHTS, "cache", "hydra")  # a run or sweep that is at work may be using them


class Waste(NamedTuple):
    """A file or folder that can be removed without losing a result.

    kind:    a key of KINDS.
    size:    bytes.
    train_s: seconds of the training that would make it again; 0 for other files.
    images:  images that would be decoded again; 0 for other files.
    """

    kind: str
    path: Path
    size: int
    train_s: float = 0.0
    images: int = 0


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print what can be removed from a store, or with --yes remove it.

    arguments: the words behind the name of the command.
    Returns exit code 0. The decorator turns an FcaError, such as for a folder that is no store, into exit code 2.
    """
    parser = Words(prog="fca clean", description=f"{__doc__} Rows, arrays, journals, tables and reports always stay.")
    parser.add_argument("filters", nargs="*", metavar=FILTER, help="only what belongs to these runs, as in fca results")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--query", help="only what belongs to the runs of this condition; also query=...")
    parser.add_argument("--yes", action="store_true", help=f"remove it; without a kind: {', '.join(FREE)}")
    for kind, meaning in KINDS.items():
        parser.add_argument(f"--{kind}", action="store_true", help=meaning)
    words = as_options(arguments, ("outputs", "query"))  # query=..., as in fca results, becomes --query=...
    options = parser.parse_intermixed_args(words)
    check_store(options.outputs)
    try:
        return _clean(options)
    except OSError as error:  # the store belongs to another user
        if error.filename is None:  # not an error of a file
            raise
        allowed = f"a store that you may read and change ({error.strerror}: {os.fsdecode(error.filename)})"
        step = "ask its owner to run fca clean; what was removed before is not missed"
        raise FcaError("--outputs", options.outputs, allowed, step) from error


def _clean(options: argparse.Namespace) -> int:
    """Print what would be removed from the store, or with --yes remove it; always returns exit code 0.

    What can be removed has kinds (KINDS). The kinds that the options name are removed. If they name none, the kinds
    that nobody needs (FREE) are removed. In this case, without --yes, the sizes of the other kinds are printed too.
    """
    store = Store(Path(options.outputs))
    n_at_work, removable = waste(store)
    removable = _only_of_runs(store, removable, options.query, options.filters)
    named_kinds = [kind for kind in KINDS if getattr(options, kind)]
    kinds = named_kinds or FREE
    to_remove = [item for item in removable if item.kind in kinds]

    # While runs are at work, `waste` leaves out the kinds that they may be using (KEPT_DURING_WORK). Print a note about
    # it: with --yes only if `kinds` has one of them, without --yes always
    if n_at_work and (not options.yes or any(kind in KEPT_DURING_WORK for kind in kinds)):
        if n_at_work == 1:
            print(f"1 run or sweep is at work here: {', '.join(KEPT_DURING_WORK)} stay until it ends")
        else:
            print(f"{n_at_work} runs or sweeps are at work here: {', '.join(KEPT_DURING_WORK)} stay until they end")
    for kind in kinds:
        print(_line(kind, [item for item in to_remove if item.kind == kind]))
    total = as_bytes(sum(item.size for item in to_remove))

    if not options.yes:
        print(f"{total} would go; nothing was removed; to remove it: add --yes")
        other_kinds = [kind for kind in KINDS if kind not in kinds]
        if not named_kinds:
            print(f"stays, unless it is named, as in: fca clean --{other_kinds[0]} --yes")
            for kind in other_kinds:
                print(_line(kind, [item for item in removable if item.kind == kind]))
        return 0

    for item in to_remove:
        _remove(store, item)
    print(f"removed {total}")
    return 0


def _only_of_runs(store: Store, removable: list[Waste], query: str | None, filters: Sequence[str]) -> list[Waste]:
    """The files and folders among `removable` that are in folders of the runs that a query and filters select.

    Without a query and filters these are all. Files outside the folders of runs, such as the cache, belong to no run.
    They are left out as soon as there is a query or filter. Prints a note to stderr for a filter that no run meets.
    """
    rows = store.rows()
    condition = combined_query(query, filters, rows)
    if condition is None:
        return removable

    for sentence in unmatched_filter_lines(filters, rows):
        print(f"note: {printable(sentence)}", file=sys.stderr)
    folders = {store.folder(run_id) for run_id in rows_matching(rows, condition)[RUN_ID]}
    return [item for item in removable if item.path.parent in folders]


def waste(store: Store) -> tuple[int, list[Waste]]:
    """How many runs and sweeps are at work in a store, and everything that can be removed from it.

    Files of a run at work are never listed. While anything is at work, the kinds KEPT_DURING_WORK are not listed
    either, because a run may be using them. Links and their targets are never listed: a store may come from a stranger,
    and a link may point to any file of the user.
    """
    outputs = store.outputs
    rows = store.rows().set_index(RUN_ID)
    train_s = rows["train_s"].dropna()
    diverged_ids = set(rows.index[rows[FLAG].eq(DIVERGED)])

    removable: list[Waste] = []  # each a path with its kind and size, which `_measured` finds
    n_at_work = 0
    for folder in _entries_without_links(outputs / "runs"):
        run_id = folder.name
        if not (is_run_id(run_id) and folder.is_dir()):
            continue
        if claims.is_held(folder):  # a process is at work on this run
            n_at_work += 1
        elif store.state(run_id) is State.DONE:
            removable += _waste_of_run(store, run_id, float(train_s.get(run_id, 0.0)), run_id in diverged_ids)
        else:
            removable += [_measured("stale", path) for path in _left_by_dead_process(folder)]

    for path, sweep in claims.sweeps(outputs):
        if sweep is None:  # its process has died
            removable.append(_measured("stale", path))
        else:
            n_at_work += 1
    for name in ("items", "tables", "cache"):  # unfinished files of processes that have died
        removable += [_measured("stale", path) for path in abandoned_parts(outputs / name)]

    if n_at_work:  # "cache" and "hydra" are in KEPT_DURING_WORK too, so they are not looked for
        return n_at_work, [item for item in removable if item.kind not in KEPT_DURING_WORK]

    cache_files = [path for path in _entries_without_links(outputs / "cache") if path.suffix != ".part"]
    removable += [_measured("cache", path) for path in cache_files]  # without unfinished files, which are "stale"
    removable += [_measured("hydra", path) for path in _entries_without_links(outputs / ".hydra")]
    return n_at_work, removable


def _waste_of_run(store: Store, run_id: str, train_s: float, has_diverged: bool) -> list[Waste]:
    """What can be removed from the folder of a finished run: weights, checkpoint, and remains of a dead process.

    run_id:       the id of the run.
    train_s:      seconds that the training took, and would take again to restore the weights.
    has_diverged: whether the training diverged; nothing reads its weights, so they are a kind of their own.
    """
    folder = store.folder(run_id)
    kind_by_path = {}
    weights = store.weights(run_id)
    for path in weights:
        kind_by_path[path] = "weights" if path.stem == BEST else "snapshots"  # BEST: the weights of the best epoch
        if has_diverged:
            kind_by_path[path] = "diverged"
    kind_by_path[folder / "last.ckpt"] = "checkpoints"
    for path in _left_by_dead_process(folder):
        kind_by_path[path] = "stale"

    # only paths that exist and are no links
    return [
        _measured(kind_by_path[path], path, train_s if path in weights else 0.0)
        for path in _entries_without_links(folder)
        if path in kind_by_path
    ]


def _entries_without_links(folder: Path) -> list[Path]:
    """The files and folders in a folder of the store, sorted, without links; empty if the folder itself is a link."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def _left_by_dead_process(folder: Path) -> list[Path]:
    """What a process that died left in a run's folder: unfinished files, its claim, and its progress.

    The caller has made sure that no live process holds the run.
    """
    leftovers = {*abandoned_parts(folder), folder / claims.CLAIM, folder / PROGRESS}
    return [path for path in _entries_without_links(folder) if path in leftovers]


def _measured(kind: str, path: Path, train_s: float = 0.0) -> Waste:
    """A file or folder of this kind as `Waste`, with its size and the number of decoded images.

    The number is in the JSON file that the cache has beside each file of pixels, and is counted for that JSON file.
    """
    images = 0
    if kind == "cache" and path.suffix == ".json":
        with if_whole():
            images = read_object(path, images=int)["images"]
    files_inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    files = files_inside or [path]  # a file, or an empty folder
    return Waste(kind, path, sum(file.lstat().st_size for file in files), train_s, images)


def _line(kind: str, items: Sequence[Waste]) -> str:
    """The printed line on a kind: number of its files, their size, and what it costs to make them again."""
    train_s = sum({item.path.parent: item.train_s for item in items}.values())  # one training makes all of its weights
    cost = f"{as_time(train_s)} of training" if train_s else ""
    if kind == "cache" and items:
        cost = f"decoding {sum(item.images for item in items):,} images"
    size = as_bytes(sum(item.size for item in items))
    return f"{kind:<12}{len(items):>7,}{size:>12}  {cost:<26}{KINDS[kind]}"


def _remove(store: Store, item: Waste) -> None:
    """Remove a file or folder of the store. If that fails, the OSError has the path in its `filename`.

    A claim is a file in a run's folder with which a process reserves the run while it computes it. A claim whose
    process has died can be removed.
    item: the file or folder, with the kind of files to which it belongs.
    """
    folder = item.path.parent
    if item.kind in WEIGHTS:
        # this also records the removal; without the record, missing weights would count as damage
        store.remove_weights(folder.name, [item.path], "fca clean")
    elif item.path.name == claims.CLAIM:
        claims.clear(folder)  # removes it only if it is still stale: another process may have taken the run over
    else:
        with naming(item.path):  # else an error inside a folder would name only the last part of a path
            remove(item.path)
