"""Figures and headlines of analysis=recommendation."""

from __future__ import annotations

from fca.report.figure import Figure

FIGURES: list[Figure] = []
HEADLINES: dict[str, object] = {}
