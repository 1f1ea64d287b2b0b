"""Runs in trackers: copies of the store to look at. No tracker is needed for any result, and none stops any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fca.types import Run, Table


@dataclass(frozen=True)
class NoTracker:
    """Follows nothing."""

    def connect(self) -> None:
        """Nothing to reach."""

    def start(self, run: Run) -> bool:
        """No logger."""
        return False

    def finish(self, row: Mapping[str, Any]) -> None:
        """Nothing to write."""

    def fail(self, run: Run) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing is open."""

    def publish(self, tables: Sequence[Table], page: Path, metadata: Mapping[str, Any]) -> None:
        """Nothing to show."""
