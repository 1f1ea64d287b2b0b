"""`fca --version`: this fca, its commit, Python and torch, none of which has to be imported for it."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def commit() -> str | None:
    """The abbreviated commit of the git checkout from which fca runs; it ends in -dirty if files were changed since.

    None if fca does not run from a checkout, and if git is missing or fails.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    # --exclude=*: the commit itself, never the name of a tag
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:  # no git
        return None
    return answer.stdout.strip() or None


def version_line() -> str:
    """The line that fca --version prints: fca 0.1.0 (commit), Python 3.11.9, torch 2.13.0, folder of the package."""
    code = f" ({commit()})" if commit() else ""
    words = [
        f"fca {_version('fca')}{code}",
        f"Python {platform.python_version()}",
        f"torch {_version('torch')}",
        str(Path(__file__).resolve().parents[1]),
    ]
    return ", ".join(words)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
