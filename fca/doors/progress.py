"""How a sweep is getting on: a bar that watches the store, whoever does the work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fca.store import State, Store

LOOK_S = 1.0


@contextmanager
def progress(store: Store, left: set[str], total: int) -> Iterator[None]:
    """Show done, failed and time to go for the runs in `left`, of `total`, while the body works."""
    stop = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[failed]}[/red]"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        shown = bar.add_task("runs", total=total, completed=total - len(left), failed="")
        waiting = set(left)
        failed: set[str] = set()

        def look() -> None:
            for run_id in list(waiting):
                state = store.state(run_id)
                if state in (State.DONE, State.FAILED):
                    waiting.discard(run_id)
                    failed.update({run_id} if state is State.FAILED else ())
            bar.update(shown, completed=total - len(waiting), failed=f"{len(failed)} failed" if failed else "")

        def watch() -> None:
            while not stop.wait(LOOK_S):
                look()

        thread = threading.Thread(target=watch, daemon=True, name="fca-progress")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            look()
