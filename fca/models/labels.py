"""What networks and their weights are called in tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PRETRAINED = "pretrained"
"""The value of `weights` that means those which the family publishes."""


def file_label(weights: str | None) -> str | None:
    """The weights' name in tables: that of their file; None from scratch."""
    return None if weights is None else Path(weights).name


def keywords_label(name: str, kwargs: Mapping[str, Any]) -> str:
    """A network's name in tables with the keywords that it was given.

    >>> keywords_label("resnet18", {"channels": [16, 32], "drop_rate": 0.1})
    'resnet18 channels=16-32 drop_rate=0.1'
    """
    return " ".join([name, *(f"{key}={_short(value)}" for key, value in kwargs.items())])


def _short(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)
