"""What the log, tables and pages say where a fit of item response theory could not learn a scale (`IrtFit`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)


def not_estimable_note(scales: Sequence[str]) -> str:
    """What it means that a fit could not learn these scales.

    >>> not_estimable_note(("spread of difficulty",))
    'these responses do not determine the spread of difficulty: estimates and intervals lean on the prior'
    """
    return f"these responses do not determine the {' and the '.join(scales)}: estimates and intervals lean on the prior"


def log_not_estimable(fitted: str, scales: Sequence[str]) -> None:
    """A line in the log where a fit, or a bank that came from one, could not learn a scale."""
    if scales:
        log.warning("%s: %s", fitted, not_estimable_note(scales))


def priors_noted(taken: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What the parameters of a table without such a column get: scales that could not be learned, by data set, and a
    sentence for each, which the page shows; nothing where all could.

    >>> priors_noted({"zoo": ["spread of ability"]})["notes"][0][:43]
    'zoo: these responses do not determine the s'
    >>> priors_noted({})
    {}
    """
    if not taken:
        return {}
    notes = [f"{fitted}: {not_estimable_note(scales)}." for fitted, scales in taken.items()]
    return {"not_estimable": {fitted: list(scales) for fitted, scales in taken.items()}, "notes": notes}
