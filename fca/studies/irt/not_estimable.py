"""Notes in the log, tables and pages where a fit of item response theory could not estimate a scale of its prior.

The scales are the spread of difficulty, the spread of ability and the mean discrimination. If the responses do not
determine one, the fit takes a fixed value instead (`IrtFit.not_estimable`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)


def not_estimable_note(scales: Sequence[str]) -> str:
    """A clause that names the scales that a fit could not estimate, and the consequence for estimates.

    scales: such as "spread of ability"; at least one.

    >>> not_estimable_note(("spread of difficulty",))
    'these responses do not determine the spread of difficulty: estimates and intervals lean on the prior'
    """
    return f"these responses do not determine the {' and the '.join(scales)}: estimates and intervals lean on the prior"


def bank_note(scale: str, scales: Sequence[str]) -> str:
    """A clause that names the scales that the fit behind a bank's items could not estimate, and the consequence.

    scale: data set and corruption of these items (each such pair has a scale of ability of its own).
    scales: what could not be estimated, such as "spread of ability".

    >>> bank_note("zoo clean", ("spread of ability",))[:69]
    'the responses behind its items of zoo clean do not determine the spre'
    """
    scale_names = " and the ".join(scales)
    return (
        f"the responses behind its items of {scale} do not determine the {scale_names}: "
        "estimates and intervals lean on the prior"
    )


def log_bank_priors(bank: str, taken: Mapping[str, Sequence[str]]) -> None:
    """Log a warning for every fit behind a bank's items that could not estimate a scale.

    bank: how the log names the bank.
    taken: the scales that could not be estimated (the prior's were taken), by data set and corruption of the items.
    """
    for scale, scales in taken.items():
        log.warning("%s: %s", bank, bank_note(scale, scales))


def log_not_estimable(fitted: str, scales: Sequence[str]) -> None:
    """Log a warning that names the scales that a fit could not estimate; nothing where there are none.

    fitted: what was fitted, such as the data set.
    """
    if scales:
        log.warning("%s: %s", fitted, not_estimable_note(scales))


def priors_noted(taken: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Parameters of a table that state which scales its fits could not estimate; no parameters if all were estimated.

    The parameter `not_estimable` lists the scales of each fit. The parameter `notes` has a sentence for each fit, which
    the page shows. Tables with a column `not_estimable` do not need these parameters.
    taken: the scales that could not be estimated, by name of the fit (a data set, or a data set and a corruption).

    >>> priors_noted({"zoo": ["spread of ability"]})["notes"][0][:43]
    'zoo: these responses do not determine the s'
    >>> priors_noted({})
    {}
    """
    if not taken:
        return {}
    notes = [f"{fitted}: {not_estimable_note(scales)}." for fitted, scales in taken.items()]
    return {"not_estimable": {fitted: list(scales) for fitted, scales in taken.items()}, "notes": notes}


def bank_priors_noted(bank: str, taken: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Parameters of a table, `not_estimable` and `notes`, on the scales that the fits behind a bank could not estimate.

    They are like the parameters of `priors_noted`, but the sentences name the bank. There are none if all scales were
    estimated.
    bank: how the notes name the bank.
    taken: the scales that could not be estimated, by data set and corruption of the items.

    >>> bank_priors_noted("bank 0123", {"zoo clean": ["spread of ability"]})["not_estimable"]
    {'zoo clean': ['spread of ability']}
    """
    if not taken:
        return {}
    notes = [f"{bank}: {bank_note(scale, scales)}." for scale, scales in taken.items()]
    return {"not_estimable": {scale: list(scales) for scale, scales in taken.items()}, "notes": notes}
