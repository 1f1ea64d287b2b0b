"""A bar for work of one step that takes long, so that a person who waits sees for how long and what for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from rich import get_console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


def waiting(what: str, long: bool = True) -> AbstractContextManager[object]:
    """Shows `what` is done and the time since, on a terminal, until left; nothing elsewhere, or if it is not `long`.

    >>> with waiting("fitting", long=False):
    ...     1 + 1
    2
    """
    shown = long and get_console().is_terminal
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), transient=True, disable=not shown
    )
    bar.add_task(what, total=None)
    return bar
