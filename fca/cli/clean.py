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
from fca.store.filters import joined, unmatched
from fca.store.query import kept
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
OF_WEIGHTS = ("weights", "snapshots", "diverged")
FREE = ("checkpoints", "diverged", "hydra", "stale")  # nobody misses them: what --yes removes where no kind is named
QUIET = (*OF_WEIGHTS, "cache", "hydra")  # kinds that stay while anything is at work


class Waste(NamedTuple):
    """A file or folder that can go.    train_s: of the training that makes it again.    images: to decode again."""

    kind: str
    path: Path
    size: int
    train_s: float = 0.0
    images: int = 0


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print what would go, or with --yes remove it; exit code 2 for no such store."""
    parser = Words(prog="fca clean", description=f"{__doc__} Rows, arrays, journals, tables and reports always stay.")
    parser.add_argument("filters", nargs="*", metavar=FILTER, help="only what belongs to these runs, as in fca results")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--query", help="only what belongs to the runs of this condition; also query=...")
    parser.add_argument("--yes", action="store_true", help=f"remove it; without a kind: {', '.join(FREE)}")
    for kind, what in KINDS.items():
        parser.add_argument(f"--{kind}", action="store_true", help=what)
    options = parser.parse_intermixed_args(as_options(arguments, ("outputs", "query")))
    check_store(options.outputs)
    try:
        return _clean(options)
    except OSError as error:  # the store is somebody else's
        if error.filename is None:
            raise
        allowed = f"a store that you may read and change ({error.strerror}: {os.fsdecode(error.filename)})"
        step = "ask its owner to run fca clean; what was removed before is not missed"
        raise FcaError("--outputs", options.outputs, allowed, step) from error


def _clean(options: argparse.Namespace) -> int:
    """Print what would go, or remove it."""
    store = Store(Path(options.outputs))
    busy, found = waste(store)
    found = _of_runs(store, found, options.query, options.filters)
    named = [kind for kind in KINDS if getattr(options, kind)]
    kinds = named or FREE
    doomed = [one for one in found if one.kind in kinds]

    if busy and (not options.yes or any(kind in QUIET for kind in kinds)):
        at_work, end = ("1 run or sweep is", "it ends") if busy == 1 else (f"{busy} runs or sweeps are", "they end")
        print(f"{at_work} at work here: {', '.join(QUIET)} stay until {end}")
    for kind in kinds:
        print(_line(kind, [one for one in doomed if one.kind == kind]))
    total = as_bytes(sum(one.size for one in doomed))

    if not options.yes:
        print(f"{total} would go; nothing was removed; to remove it: add --yes")
        others = [kind for kind in KINDS if kind not in kinds]
        if not named:
            print(f"stays, unless it is named, as in: fca clean --{others[0]} --yes")
            for kind in others:
                print(_line(kind, [one for one in found if one.kind == kind]))
        return 0

    for one in doomed:
        _remove(store, one)
    print(f"removed {total}")
    return 0


def _of_runs(store: Store, found: list[Waste], query: str | None, filters: Sequence[str]) -> list[Waste]:
    """What belongs to the runs that the query and the filters keep; everything without them."""
    rows = store.rows()
    chosen = joined(query, filters, rows)
    if chosen is None:
        return found

    for sentence in unmatched(filters, rows):
        print(f"note: {printable(sentence)}", file=sys.stderr)
    folders = {store.folder(run_id) for run_id in kept(rows, chosen)[RUN_ID]}
    return [one for one in found if one.path.parent in folders]


def waste(store: Store) -> tuple[int, list[Waste]]:
    """How many runs and sweeps are at work, and what can go: no link, nothing behind one, nothing of a run at work."""
    rows, outputs = store.rows().set_index(RUN_ID), store.outputs
    trained = rows["train_s"].dropna()
    diverged = set(rows.index[rows[FLAG].eq(DIVERGED)])
    found, busy = list[Waste](), 0
    for folder in _inside(outputs / "runs"):
        if not (is_run_id(folder.name) and folder.is_dir()):
            continue
        if claims.is_held(folder):
            busy += 1
        elif store.state(folder.name) is State.DONE:
            weights = {path: "weights" if path.stem == BEST else "snapshots" for path in store.weights(folder.name)}
            if folder.name in diverged:
                weights = dict.fromkeys(weights, "diverged")
            kinds = weights | {folder / "last.ckpt": "checkpoints"} | dict.fromkeys(_dead(folder), "stale")
            seconds = {path: float(trained.get(folder.name, 0.0)) for path in weights}
            found += [_of(kinds[path], path, seconds.get(path, 0.0)) for path in _inside(folder) if path in kinds]
        else:
            found += [_of("stale", path) for path in _dead(folder)]
    for path, sweep in claims.sweeps(outputs):
        busy += sweep is not None
        found += [_of("stale", path)] if sweep is None else []
    found += [_of("stale", path) for room in ("items", "tables", "cache") for path in abandoned_parts(outputs / room)]
    if not busy:
        found += [_of("cache", path) for path in _inside(outputs / "cache") if path.suffix != ".part"]
        found += [_of("hydra", path) for path in _inside(outputs / ".hydra")]
    return busy, [one for one in found if not (busy and one.kind in QUIET)]


def _inside(folder: Path) -> list[Path]:
    """What is in a folder of the store, without links; nothing if it is a link itself."""
    there = folder.is_dir() and not folder.is_symlink()
    return sorted(path for path in folder.iterdir() if not path.is_symlink()) if there else []


def _dead(folder: Path) -> list[Path]:
    """What a process that died left in a run's folder."""
    parts = {*abandoned_parts(folder), folder / claims.CLAIM, folder / PROGRESS}
    return [path for path in _inside(folder) if path in parts]


def _of(kind: str, path: Path, train_s: float = 0.0) -> Waste:
    images = 0
    if kind == "cache" and path.suffix == ".json":  # the record of a shard
        with if_whole():
            images = read_object(path, images=int)["images"]
    files = [Path(at, name) for at, _, names in os.walk(path) for name in names] or [path]
    return Waste(kind, path, sum(file.lstat().st_size for file in files), train_s, images)


def _line(kind: str, found: Sequence[Waste]) -> str:
    """How many files of a kind there are, their bytes and what it costs to make them again."""
    seconds = sum({one.path.parent: one.train_s for one in found}.values())  # one training makes all of its weights
    cost = f"{as_time(seconds)} of training" if seconds else ""
    cost = f"decoding {sum(one.images for one in found):,} images" if kind == "cache" and found else cost
    return f"{kind:<12}{len(found):>7,}{as_bytes(sum(one.size for one in found)):>12}  {cost:<26}{KINDS[kind]}"


def _remove(store: Store, one: Waste) -> None:
    run_id = one.path.parent.name
    if one.kind in OF_WEIGHTS:
        store.remove_weights(run_id, [one.path], "fca clean")
    elif one.path.name == claims.CLAIM:
        claims.clear(one.path.parent)
    else:
        with naming(one.path):  # of a folder, an error names the file inside alone
            remove(one.path)
