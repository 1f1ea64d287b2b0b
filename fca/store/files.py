"""Files that are either whole or absent: written under another name, flushed, renamed."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk, rename it; on an error nothing stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """A UTF-8 text, whole or absent."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """JSON, whole or absent; NaN is refused."""
    write_text(path, json.dumps(value, allow_nan=False, indent=1))


def write_array(path: Path, array: np.ndarray) -> None:
    """A .npy file that loads without pickle, whole or absent."""
    write_whole(path, lambda file: np.save(file, array, allow_pickle=False))


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """A Parquet file, whole or absent."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_whole(path, lambda file: file.write(buffer.getvalue()))
