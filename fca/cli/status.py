"""`fca status`: what is done, running, failed and damaged, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fca.cli import Words, refused
from fca.cli.show import check_store, show_failures
from fca.store import State, Store
from fca.store.files import DamagedFile
from fca.types import FcaError


def main(arguments: Sequence[str]) -> int:
    """Print counts, every damaged file and every failure; exit code 0, or 2 where there is no such store."""
    parser = Words(prog="fca status", description=__doc__)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    try:
        outputs = parser.parse_args(arguments).outputs
        check_store(outputs)
    except FcaError as error:
        return refused(error)
    store = Store(Path(outputs))
    states = {run_id: store.state(run_id) for run_id in store.run_ids()}
    counts, damaged = Counter(states.values()), store.damaged()
    abandoned = f", {counts[State.ABSENT]} begun and left (the same command goes on)" if counts[State.ABSENT] else ""
    broken = f", {len(damaged)} damaged (the same command does them again)" if damaged else ""
    whole = f"{counts[State.DONE]} done, {counts[State.RUNNING]} running, {counts[State.FAILED]} failed"
    print(f"{whole}{broken}{abandoned}")
    for one in damaged:
        print(f"damaged {one}{_command(store, one)}")
    show_failures(store, [run_id for run_id, state in states.items() if state is State.FAILED], most=len(states))
    return 0


def _command(store: Store, damaged: DamagedFile) -> str:
    """The command of a damaged run, below it, where its row still has it."""
    with suppress(FcaError, DamagedFile, KeyError):
        return f"\n  {store.row(damaged.path.parent.name)['command']}"
    return ""
