"""Does a model fail hard images before easy ones? The share of (easy, medium, hard) triplets that follow that order.

Huang et al. (2025, arXiv 2503.13058), section 3.2: of the eight patterns of right (1) and wrong (0) on a triplet, four
follow the principle that a model which solves the harder image also solves the easier: 000, 100, 110 and 111.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Num, Shaped

from fca.stats.correlation import Correlation, correlation, t_test
from fca.stats.intervals import (
    FEWEST_DRAWS,
    FRACTION,
    RESAMPLES,
    Estimated,
    cluster_draws,
    percentile_interval,
    t_mean,
)
from fca.types import LEVELS, FcaError

PATTERNS = ("000", "001", "010", "011", "100", "101", "110", "111")  # easy, medium, hard
FOLLOWING = ("000", "100", "110", "111")

Right = Bool[np.ndarray, " items"]
Levels = Integer[np.ndarray, " items"]
Sessions = Shaped[np.ndarray, " items"]
Models = Num[np.ndarray, " models"]
Rate = Float[np.ndarray, " n"] | float


class TripletScore(NamedTuple):
    """score: share of triplets whose pattern follows the principle; patterns: how many triplets have each pattern.

    Over all triplets of each session the counts are expected ones: their sum is a third of the items.
    """

    score: float
    patterns: dict[str, int | float]


class ScoreInterval(NamedTuple):
    """A score, the score by chance and their difference, each with its 95 % bootstrap interval over sessions."""

    score: Estimated
    chance: Estimated
    excess: Estimated


def hierarchical_score(correct: Bool[np.ndarray, "triplets 3"]) -> TripletScore:
    """Score and patterns of matched triplets, one row each, easy to hard. Raises FcaError without triplets.

    >>> hierarchical_score(np.array([[True, True, False], [False, True, False]])).score
    0.5
    """
    if not len(correct):
        raise FcaError("triplets", 0, "1 or more", "give the answers to an easy, a medium and a hard image each")
    counts = np.bincount(correct @ np.array([4, 2, 1]), minlength=8)
    patterns: dict[str, int | float] = dict(zip(PATTERNS, counts.tolist(), strict=True))
    return TripletScore(sum(patterns[name] for name in FOLLOWING) / len(correct), patterns)


def chance_score(easy: Rate, medium: Rate, hard: Rate) -> Rate:
    """Score expected of a model that is right at these rates, image by image independently.

    (1 - m)(1 - h) + e m: in the sum of 000 and 100 e cancels, in that of 110 and 111 h does. High accuracy on easy
    images and low accuracy on hard ones force much of a score; the rest, beyond chance, means that a model fails on the
    same objects.

    >>> round(chance_score(0.9, 0.7, 0.3), 2)
    0.84
    """
    return (1 - medium) * (1 - hard) + easy * medium


def all_triplets_score(correct: Right, levels: Levels, sessions: Sessions) -> TripletScore:
    """The score over every triplet that each session's items can form: the mean over all random matchings, no noise.

    Within a session, with level accuracies e, m, h, it is (1 - m)(1 - h) + e m; sessions count equally. levels: 0 easy,
    1 medium, 2 hard. Raises FcaError for a session that lacks a level.

    >>> levels, session = np.array([0, 0, 1, 2]), np.zeros(4, dtype=int)
    >>> all_triplets_score(np.array([True, False, True, False]), levels, session).score
    0.5
    """
    rates = level_rates(correct, levels, sessions)
    right = np.stack([1 - rates, rates])  # (wrong or right, sessions, levels)
    triplets = len(levels) / 3
    patterns: dict[str, int | float] = {}
    for name in PATTERNS:
        easy, medium, hard = (right[int(mark), :, level] for level, mark in enumerate(name))
        patterns[name] = float(triplets * np.mean(easy * medium * hard))
    return TripletScore(float(np.mean(chance_score(*rates.T))), patterns)


def score_interval(
    correct: Right, levels: Levels, sessions: Sessions, seed: int = 0, resamples: int = RESAMPLES
) -> ScoreInterval:
    """Score over all triplets, that of chance at the same overall level accuracies, and the excess, with intervals.

    Whole sessions are resampled: another draw of classes and attributes, with their images unchanged. Both scores are
    computed anew in each resample. Level accuracies are means over sessions, which count equally. Of fewer than
    FEWEST_DRAWS sessions only the score has an interval, Student's; one session has no
    interval (NaN).

    >>> levels, session = np.tile([0, 1, 2], 4), np.repeat(np.arange(4), 3)
    >>> found = score_interval(levels < np.array([0, 1, 2, 3])[session], levels, session)
    >>> found.score.value, round(found.chance.value, 3)
    (1.0, 0.75)
    """
    rates = level_rates(correct, levels, sessions)
    each = np.asarray(chance_score(*rates.T))
    score, chance = float(each.mean()), float(chance_score(*rates.mean(axis=0)))
    share = cluster_draws(len(rates), seed, resamples) / len(rates)
    scores, chances = share @ each, np.asarray(chance_score(*(share @ rates).T))
    ends = [percentile_interval(values, len(rates)) for values in (scores, chances, scores - chances)]
    if len(rates) < FEWEST_DRAWS:  # only the score is a mean over sessions
        ends[0] = t_mean(each, np.arange(len(each)), FRACTION)
    return ScoreInterval(*(Estimated(v, *end) for v, end in zip((score, chance, score - chance), ends, strict=True)))


def level_rates(correct: Right, levels: Levels, sessions: Sessions) -> Float[np.ndarray, "sessions 3"]:
    """Accuracy of every session by level, sessions in sorted order.

    >>> level_rates(np.array([True, False, True]), np.arange(3), np.zeros(3, dtype=int))
    array([[1., 0., 1.]])
    """
    names, session = np.unique(sessions, return_inverse=True)
    if not len(names) or not np.isin(levels, [0, 1, 2]).all():
        raise FcaError("levels", sorted(set(levels.tolist())), "0 (easy), 1 (medium), 2 (hard)", "code levels so")
    cell = 3 * session + levels
    items, right = (np.bincount(cell[keep], minlength=3 * len(names)) for keep in (slice(None), correct))
    if (items == 0).any():
        place = int(np.flatnonzero(items == 0)[0])
        what = f"{LEVELS[place % 3]} items of session {names[place // 3]}"
        raise FcaError(what, 0, "1 or more", "add such items or leave the session out")
    return (right / items).reshape(-1, 3)


def score_and_accuracy(score: Models, accuracy: Models, chance: Models) -> tuple[Correlation, Correlation]:
    """Pearson's correlation of score and accuracy over models (figure 4), plain and given the score of chance.

    Partial: of the residuals of both after a straight line on `chance`; p has one degree of freedom less. Accurate
    models score high by chance alone; only the partial correlation is about the order of failure. NaN with fewer than
    four models, or where nothing varies.

    >>> plain, _ = score_and_accuracy(np.array([0.8, 0.84, 0.9]), np.array([0.4, 0.5, 0.6]), np.array([0.7, 0.75, 0.8]))
    >>> round(plain.r, 3)
    0.993
    """
    plain = correlation(score, accuracy)
    nothing = Correlation(float("nan"), float("nan"), len(score))
    if len(score) < 4 or np.ptp(chance) == 0:
        return plain, nothing
    line = np.column_stack([np.ones(len(chance)), chance])
    left = [values - line @ np.linalg.lstsq(line, values, rcond=None)[0] for values in (score, accuracy)]
    if any(np.abs(rest).max() < 1e-12 * np.ptp(values) for rest, values in zip(left, (score, accuracy), strict=True)):
        return plain, nothing  # chance explains everything: only rounding is left
    r = correlation(*left).r
    return plain, Correlation(r, t_test(r, len(score) - 3), len(score))
