"""Files that are either whole or absent: written under another name, flushed, renamed."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import psutil

_WRITER = re.compile(r"\.(\d+)@(.+)\.[0-9a-f]{12}\.part")
_unfinished: set[Path] = set()  # files that this process is writing


def part_of(path: Path) -> Path:
    """A temporary name beside `path` that names its writer: a process of this host."""
    return path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}.{uuid.uuid4().hex[:12]}.part")


def remove_parts(folder: Path) -> None:
    """Remove what killed processes of this host left unfinished in a folder."""
    for part in folder.glob(".*.part"):
        writer = _WRITER.search(part.name)
        if writer and writer[2] == socket.gethostname() and not psutil.pid_exists(int(writer[1])):
            part.unlink(missing_ok=True)


def abandon_parts() -> None:
    """Remove what this process is writing; it is about to end."""
    for part in list(_unfinished):
        part.unlink(missing_ok=True)


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to the disk, rename it; on an error nothing stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    _unfinished.add(part)
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
        _unfinished.discard(part)


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
