"""Whether answers can be fitted at all, told before any work."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fca.nouns import FcaError


def check_values(responses: Float[np.ndarray, "subjects items"]) -> None:
    """Raises FcaError, with value and position, for any answer that is not 1, 0 or NaN.

    >>> check_values(np.array([[1.0, 0.0, np.nan]]))
    """
    bad = ~((responses == 0) | (responses == 1) | np.isnan(responses))
    if bad.any():
        subject, item = np.argwhere(bad)[0]
        what = f"answer of subject {subject} on item {item} ({int(bad.sum())} such answers)"
        raise FcaError(what, responses[subject, item], "1 (right), 0 (wrong), NaN (not asked)", "code answers so")


def check_answered(responses: Float[np.ndarray, "subjects items"]) -> None:
    """Raises FcaError for values other than 0, 1 and NaN, and for a subject or an item without any answer.

    >>> check_answered(np.array([[1.0, 0.0], [1.0, np.nan]]))
    """
    subjects, items = responses.shape
    if not subjects or not items:
        raise FcaError("subjects x items", f"{subjects} x {items}", "1 or more of each", "add answers")
    check_values(responses)
    asked = ~np.isnan(responses)
    for axis, name in ((1, "subjects"), (0, "items")):
        empty = np.flatnonzero(~asked.any(axis=axis))
        if len(empty):
            what = f"{name} without any answer"
            raise FcaError(what, f"{len(empty)}, the first at position {empty[0]}", "0", f"leave out such {name}")


def check_responses(responses: Float[np.ndarray, "subjects items"]) -> None:
    """Raises FcaError for answers that abilities and items cannot be learned from; positions count from 0.

    Values other than 0, 1 and NaN; fewer than 2 subjects; a subject or an item without any answer; no item on which
    two subjects differ.

    >>> check_responses(np.array([[1.0, 0.0], [1.0, 1.0]]))
    """
    if len(responses) < 2:
        raise FcaError("subjects", len(responses), "2 or more", "add answers of other models")
    check_answered(responses)
    right, asked = np.nansum(responses, axis=0), (~np.isnan(responses)).sum(axis=0)
    if ((right == 0) | (right == asked)).all():
        what, allowed = f"items that divide the subjects, among {len(right)}", "1 or more"
        raise FcaError(what, 0, allowed, "add subjects, or items that some of them get wrong")
