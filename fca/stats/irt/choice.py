"""Which model predicts answers that it has not seen: asymptotes must earn their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit
from scipy.stats import rankdata

from fca.stats.irt.fit import fit_irt
from fca.stats.irt.model import check_responses, model_name
from fca.stats.irt.start import smoothed_logit
from fca.types import FcaError

CERTAIN = 1e-12  # a prediction this close to 0 or 1 counts as no closer: one surprise must not weigh without bound


class HeldOut(NamedTuple):
    """How well a model that saw the other cells predicts hidden ones.

    nll: mean negative log likelihood, in nats; lower is better.   accuracy: share of cells on the right side of 0.5.
    auc: chance that a right cell was given the higher probability; NaN if all hidden cells are right, or all wrong.
    baseline_nll: of logit P = logit(subject's mean) + logit(item's mean) - logit(mean).   cells: how many were hidden.
    """

    model: str
    nll: float
    auc: float
    accuracy: float
    baseline_nll: float
    cells: int


def held_out_fit(
    responses: Float[np.ndarray, "subjects items"], model: str = "2pl", share: float = 0.1, seed: int = 0
) -> HeldOut:
    """Fit without a random share of the answers, then predict those; the same cells for every model and a given seed.

    A subject or an item that would keep no answer keeps all. Raises FcaError if nothing is left to hide.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> held_out_fit(responses, "1pl").cells
    89
    """
    name = model_name(model)
    check_responses(responses)
    hidden = hide(responses, share, seed)
    seen = np.where(hidden, np.nan, responses)
    right = responses[hidden]
    p = fit_irt(seen, name).probability()[hidden]
    accuracy = float(np.mean((p >= 0.5) == (right == 1)))
    return HeldOut(name, _nll(p, right), _auc(p, right), accuracy, _nll(_margins(seen)[hidden], right), len(right))


def choose_model(
    responses: Float[np.ndarray, "subjects items"],
    models: Sequence[str] = ("1pl", "2pl", "3pl", "3pl-upper"),
    share: float = 0.1,
    seed: int = 0,
) -> list[HeldOut]:
    """Models by how well they predict hidden answers, the best first; all are asked the same cells.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> choose_model(responses, ["1pl", "2pl"])[0].model
    '1pl'
    """
    return sorted((held_out_fit(responses, model, share, seed) for model in models), key=lambda fit: fit.nll)


def hide(responses: Float[np.ndarray, "subjects items"], share: float, seed: int) -> Bool[np.ndarray, "subjects items"]:
    """Which answers to hide: each with chance `share`, by a generator of `seed`.

    >>> int(hide(np.ones((10, 10)), 0.1, seed=0).sum())
    10
    """
    if not 0 < share < 1:
        raise FcaError("share", share, "between 0 and 1", "hide a tenth: 0.1")
    asked = ~np.isnan(responses)
    hidden = asked & (np.random.default_rng(seed).random(responses.shape) < share)
    hidden &= (asked & ~hidden).any(axis=0)
    hidden &= (asked & ~hidden).any(axis=1)[:, None]
    if not hidden.any():
        raise FcaError("answers that can be hidden", f"0 of {int(asked.sum())}", "1 or more", "hide a larger share")
    return np.asarray(hidden)


def _margins(seen: Float[np.ndarray, "subjects items"]) -> Float[np.ndarray, "subjects items"]:
    """The best guess without any fit: a subject's and an item's mean, added as logits."""
    asked, right = (~np.isnan(seen)).astype(float), np.nan_to_num(seen)
    subjects = smoothed_logit(right.sum(axis=1), asked.sum(axis=1))
    items = smoothed_logit(right.sum(axis=0), asked.sum(axis=0))
    total = smoothed_logit(np.array([right.sum()]), np.array([asked.sum()]))
    return np.asarray(expit(subjects[:, None] + items - total))


def _nll(p: Float[np.ndarray, " cells"], right: Float[np.ndarray, " cells"]) -> float:
    chance = np.where(right == 1, p, 1 - p)
    return float(-np.mean(np.log(np.clip(chance, CERTAIN, 1.0))))


def _auc(p: Float[np.ndarray, " cells"], right: Float[np.ndarray, " cells"]) -> float:
    positive, negative = int((right == 1).sum()), int((right == 0).sum())
    if not positive or not negative:
        return float("nan")
    ranks = rankdata(p)[right == 1].sum()
    return float((ranks - positive * (positive + 1) / 2) / (positive * negative))
