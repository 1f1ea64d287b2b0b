"""`fca status`: what is done, running and failed, and why."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fca.cli.show import show_failures
from fca.store import State, Store


def main(arguments: Sequence[str]) -> int:
    """Print counts and every failure with its command; exit code 0."""
    parser = argparse.ArgumentParser(prog="fca status", description=__doc__)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    store = Store(Path(parser.parse_args(arguments).outputs))
    folder = store.outputs / "runs"
    states = {path.name: store.state(path.name) for path in sorted(folder.iterdir())} if folder.is_dir() else {}
    counts = Counter(states.values())
    abandoned = f", {counts[State.ABSENT]} begun and left (the same command goes on)" if counts[State.ABSENT] else ""
    print(f"{counts[State.DONE]} done, {counts[State.RUNNING]} running, {counts[State.FAILED]} failed{abandoned}")
    show_failures(store, [run_id for run_id, state in states.items() if state is State.FAILED], most=len(states))
    return 0
