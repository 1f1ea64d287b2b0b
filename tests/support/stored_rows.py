"""Rows as the store leaves them, of any columns: nothing is checked, and no claim is needed."""

from pathlib import Path
from typing import Any

from fca.store.damage import ROW, listing


def put_row(outputs: Path, row: dict[str, Any]) -> Path:
    """Write row.json of `row["run_id"]`, signed, with the files that are in the run's folder; returns its path."""
    folder = outputs / "runs" / row["run_id"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ROW).write_bytes(listing(folder, row, schema=""))
    return folder / ROW
