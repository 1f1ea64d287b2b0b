"""How steady a class is while a corruption grows: how much its difficulty moves, and which way.

Sharma et al. (Do models see corruption as we see?, 2023, section 3.2) take the standard deviation over severities of a
score, averaged over four segments of difficulty, and call a class with a high one robust. Such a class moves most, so
here it is the least robust: robustness = -instability. A standard deviation cannot tell better from worse; trend can.
Neither sees a class that breaks at the first severity and stays broken; change, from the clean images on, does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from fca.stats.intervals import RESAMPLES, percentile_interval
from fca.stats.segments import QUARTERS
from fca.types import FcaError

NAMED = 2  # classes at either end that get a verdict
SUSCEPTIBLE, ROBUST = "susceptible", "robust"


class Robustness(NamedTuple):
    """Of every class, each with a 95 % interval; resampled: instability in bootstrap resamples of each class's images.

    instability: 0 or more; share of the class's images that change segment, or the unit of difficulty.
    trend:       change of the class's mean value a severity step.
    change:      of the class's mean value from clean images to the mean over severities; NaN without clean ones.
    """

    instability: Float[np.ndarray, " classes"]
    instability_low: Float[np.ndarray, " classes"]
    instability_high: Float[np.ndarray, " classes"]
    trend: Float[np.ndarray, " classes"]
    trend_low: Float[np.ndarray, " classes"]
    trend_high: Float[np.ndarray, " classes"]
    change: Float[np.ndarray, " classes"]
    change_low: Float[np.ndarray, " classes"]
    change_high: Float[np.ndarray, " classes"]
    resampled: Float[np.ndarray, "resamples classes"]


def quarter_parts(
    quarter: Integer[np.ndarray, "images severities"],
) -> Float[np.ndarray, "images severities quarters"]:
    """1 for the quarter an image is in at a severity, else 0: its mean over a class's images is the class's shares.

    >>> quarter_parts(np.array([[0, 3]]))
    array([[[1., 0., 0., 0.],
            [0., 0., 0., 1.]]])
    """
    return np.asarray(quarter[..., None] == np.arange(QUARTERS), dtype=float)


def instability(means: Float[np.ndarray, "*draws severities parts"]) -> Float[np.ndarray, "*draws"]:
    """Standard deviation over severities (the population's: these are all severities), averaged over parts.

    instability = 1/S · sum over segments s of std over severities k of share(s, k)   (Sharma et al. 2023, section 3.2)

    means: a class's share in each segment, or its mean difficulty as the one part.

    >>> float(instability(np.array([[1.0, 0.0], [0.0, 1.0]])))
    0.5
    """
    return np.asarray(means.std(axis=-2).mean(axis=-1))


def slopes(
    value: Float[np.ndarray, "images severities"], severity: Float[np.ndarray, " severities"]
) -> Float[np.ndarray, " images"]:
    """Least-squares slope of each image's value over severity, per severity step.

    >>> slopes(np.array([[0.9, 0.8, 0.7]]), np.array([1.0, 2.0, 3.0])).round(6)
    array([-0.1])
    """
    centred = severity - severity.mean()
    return np.asarray(value @ (centred / (centred @ centred)))


def class_robustness(
    parts: Float[np.ndarray, "images severities parts"],
    value: Float[np.ndarray, "images severities"],
    label: Integer[np.ndarray, " images"],
    severity: Float[np.ndarray, " severities"],
    clean: Float[np.ndarray, " images"] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Robustness:
    """Instability, trend and change of every class, with intervals over its images (fit and cuts stay as they are).

    parts: what instability sees (quarter_parts, or difficulty).    value: whose slope is the trend.
    label: 0 to classes - 1, each with an image.    severity: two or more, all above 0.    clean: the value at 0.

    A standard deviation of shares that are themselves uncertain is too large, and in a resample it is too large twice.
    So a resample's variance over severities is lowered by twice the sampling variance of the shares (not below 0)
    before its root is taken: in simulation this interval holds the true value in 93 to 100 %, where plain percentiles
    hold it in none if the class does not move. The others' are percentiles. One image a class: NaN.

    Raises FcaError for fewer than two severities.

    >>> solved = np.array([[0.9, 0.7], [0.8, 0.6]])
    >>> found = class_robustness(solved[..., None], solved, np.array([0, 0]), np.array([1.0, 2.0]))
    >>> found.instability.round(6), found.trend.round(6)
    (array([0.1]), array([-0.2]))
    """
    if len(severity) < 2:
        raise FcaError("severities of a corruption", len(severity), "2 or more", "predict more of them")
    change = np.full(len(value), np.nan) if clean is None else value.mean(axis=1) - clean
    linear = np.stack([slopes(value, severity), change], axis=1)  # of each image; a class's is the mean
    rng = np.random.default_rng(seed)
    lines = []
    for c in range(int(label.max()) + 1):
        own = np.flatnonzero(label == c)
        weights = _draws(len(own), rng, resamples)
        drawn = (weights @ parts[own].reshape(len(own), -1)).reshape(resamples, *parts.shape[1:])
        net = np.sqrt(np.clip(drawn.var(axis=1) - 2 * _noise(parts[own]), 0, None)).mean(axis=1)
        estimate = float(instability(parts[own].mean(axis=0)))
        told = [estimate, *percentile_interval(net)]
        for mean, resampled in zip(linear[own].mean(axis=0), (weights @ linear[own]).T, strict=True):
            told += [float(mean), *(percentile_interval(resampled) if len(own) > 1 else (np.nan, np.nan))]
        lines.append((told, instability(drawn)))
    columns = dict(zip(Robustness._fields, np.array([told for told, _ in lines]).T, strict=False))
    return Robustness(**columns, resampled=np.stack([resampled for _, resampled in lines], axis=1))


def _draws(images: int, rng: np.random.Generator, resamples: int) -> Float[np.ndarray, "resamples images"]:
    """Weight of each image in each resample; each line sums to 1."""
    picked = rng.integers(images, size=(resamples, images)) + images * np.arange(resamples)[:, None]
    return np.bincount(picked.ravel(), minlength=resamples * images).reshape(resamples, images) / images


def _noise(parts: Float[np.ndarray, "images severities parts"]) -> Float[np.ndarray, " parts"]:
    """What sampling a class's images adds to the variance over severities of their mean; NaN for one image."""
    images = len(parts)
    if images < 2:
        return np.full(parts.shape[-1], np.nan)
    moved = parts - parts.mean(axis=1, keepdims=True)  # what an image adds at every severity alike does no harm
    return np.asarray(moved.var(axis=0, ddof=1).mean(axis=0) / images)


def ranks(score: Float[np.ndarray, " classes"]) -> Integer[np.ndarray, " classes"]:
    """1 = the highest score; of equal ones the first comes first.

    >>> ranks(np.array([-0.2, -0.1, -0.2]))
    array([2, 1, 3])
    """
    place = np.empty(len(score), dtype=np.int64)
    place[np.argsort(-score, kind="stable")] = np.arange(1, len(score) + 1)
    return place


def verdicts(score: Float[np.ndarray, " classes"]) -> list[str | None]:
    """`robust` for the two highest scores, `susceptible` for the two lowest, else None; of three classes one each.

    >>> verdicts(np.array([-0.1, -0.5, -0.2, -0.4, -0.3]))
    ['robust', 'susceptible', 'robust', 'susceptible', None]
    """
    rank, ends = ranks(score), min(NAMED, len(score) // 2)
    below = len(score) - ends
    return [ROBUST if r <= ends else SUSCEPTIBLE if r > below else None for r in rank.tolist()]


def verdict_kept(
    score: Float[np.ndarray, " classes"], resampled: Float[np.ndarray, "resamples classes"]
) -> Float[np.ndarray, " classes"]:
    """Share of the resamples that give a class the verdict it has; NaN for classes without one.

    >>> verdict_kept(np.array([-0.1, -0.3]), np.array([[-0.1, -0.3], [-0.2, -0.1]]))
    array([0.5, 0.5])
    """
    ends, order = min(NAMED, len(score) // 2), np.argsort(-resampled, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(len(score))[None, :], axis=1)
    again = {ROBUST: (place < ends).mean(axis=0), SUSCEPTIBLE: (place >= len(score) - ends).mean(axis=0)}
    return np.array([np.nan if v is None else again[v][c] for c, v in enumerate(verdicts(score))])
