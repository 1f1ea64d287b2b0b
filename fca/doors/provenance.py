"""Which code and which machine made a row."""

from __future__ import annotations

import socket
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("fca", "torch", "timm", "pytorch-lightning", "numpy")


def provenance() -> dict[str, str | None]:
    """The columns host, commit, versions and finished."""
    return {
        "host": socket.gethostname(),
        "commit": commit(),
        "versions": versions(),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


@cache
def versions() -> str:
    """Versions of what decides a number, in one line."""
    return ", ".join(f"{name} {version(name)}" for name in PACKAGES)


@cache
def commit() -> str | None:
    """The commit of this checkout, `-dirty` when files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.strip() or None
