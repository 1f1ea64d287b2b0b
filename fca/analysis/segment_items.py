"""What a fit says of every item, and the quarter it is in: cut on clean images, or at each severity by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.analysis.fits import fitted
from fca.analysis.responses import Gathered
from fca.nouns import FcaError
from fca.stats.segments import LEVELS, SEGMENTS, quarter_cuts, quarters

SEED = "seed001"
COMPAT = (None, SEED)
NAMES = {"difficulty": SEGMENTS, "discrimination": LEVELS}  # of the quarters, lowest first
METHOD = {
    "segments": "quarters of the images by expected success (mean over the fitted subjects), cut on clean images; the "
    "same cut values under a corruption; compat=seed001: by difficulty b, cut at each severity by itself",
    "ties": "equal images are put in an order drawn from the seed, the same at every severity",
    "fit": "one fit of all severities of a corruption, with the clean images; clean images alone for clean",
}


@dataclass(frozen=True)
class Quartered:
    """A fit's items. success: expected, mean over the fitted subjects.    difficulty: b.

    quarter: by parameter (difficulty, discrimination), 0 = the easiest, the least discriminating; without the
    discrimination where a model gives all items the same.
    """

    success: Float[np.ndarray, " items"]
    difficulty: Float[np.ndarray, " items"]
    quarter: dict[str, Integer[np.ndarray, " items"]]


def quartered(gathered: Gathered, model: str, compat: str | None, seed: int) -> Quartered:
    """Fit the answers and sort the items into quarters.

    Raises FcaError for an unknown compat, and where there are no clean items to cut on.
    """
    if compat not in COMPAT:
        raise FcaError("analysis.compat", compat, "null or seed001", "change it")
    items = gathered.responses.items
    fit = fitted(gathered, model, compat, seed)
    order, severity = tie_order(items["image_id"], seed), items["severity"].to_numpy()
    if compat is None and not (severity == 0).any():
        what = f"clean answers of {gathered.dataset} beside those under {items['corruption'].iloc[0]}"
        raise FcaError(what, "none", "those of the same subjects", "fca run task=predict shift=clean with these models")
    hardness = fit.difficulty if compat == SEED else 1 - fit.expected_success
    values = {"difficulty": hardness, "discrimination": fit.discrimination}
    told = {name: value for name, value in values.items() if np.ptp(value) > 0 or name == "difficulty"}
    quarter = {name: _cut(value, order, severity, compat == SEED) for name, value in told.items()}
    return Quartered(fit.expected_success, fit.difficulty, quarter)


def tie_order(image_id: pd.Series, seed: int) -> Integer[np.ndarray, " items"]:
    """Who comes first among equal items: a shuffle of the images' names.

    It depends neither on the order of the items, which often is that of the classes and would put the first classes
    into the easier quarter, nor on the severity.

    >>> tie_order(pd.Series(["b", "a", "b"]), seed=0).tolist(), tie_order(pd.Series(["a", "b"]), seed=0).tolist()
    ([1, 0, 1], [0, 1])
    """
    names, code = np.unique(image_id.to_numpy(dtype=str), return_inverse=True)
    return np.random.default_rng(seed).permutation(len(names))[code]


def _cut(
    value: Float[np.ndarray, " items"],
    order: Integer[np.ndarray, " items"],
    severity: Integer[np.ndarray, " items"],
    each: bool,
) -> Integer[np.ndarray, " items"]:
    """The quarter of every item; each: cut every severity by itself, else all of them as severity 0."""
    if not each:
        clean = severity == 0
        return quarters(value, order, quarter_cuts(value[clean], order[clean]))
    quarter = np.empty(len(value), dtype=np.int64)
    for at in np.unique(severity):
        own = severity == at
        quarter[own] = quarters(value[own], order[own], quarter_cuts(value[own], order[own]))
    return quarter
