"""Does a model fail hard images before easy ones? The share of (easy, medium, hard) triplets that follow that order.

Huang et al. (2025, arXiv 2503.13058), section 3.2: of the eight patterns of right (1) and wrong (0) on a triplet, four
follow the principle that a model which solves the harder image also solves the easier: 000, 100, 110 and 111.

Such a score has three parts with different meanings:

    level rates      what independent responses with the model's accuracies by level give;
    session excess   what the level accuracies of each session (a class and an attribute) add: classes and attributes
                     differ in difficulty. Answers that are independent inside every session have it too;
    matched excess   what the matching of images adds: matched minus random triplets of the same session. Only this part
                     shows that it is the same object that fails first when hard and last when easy.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, Num, Shaped
from scipy.stats import hypergeom

from fca.stats.correlation import Correlation, correlation, t_test
from fca.stats.intervals import (
    EVERYWHERE,
    FRACTION,
    NO_INTERVAL,
    SIGNED_FRACTION,
    UNKNOWN_ESTIMATE,
    Estimated,
    jackknife_interval,
    left_out_weights,
    mean_interval,
)
from fca.studies.progressive.stats.pool import LEVELS
from fca.types import FcaError

PATTERNS = ("000", "001", "010", "011", "100", "101", "110", "111")  # easy, medium, hard
FOLLOWING = ("000", "100", "110", "111")

Right = Bool[np.ndarray, " items"]
Levels = Integer[np.ndarray, " items"]
Sessions = Shaped[np.ndarray, " items"]
Models = Num[np.ndarray, " models"]
Rate = Float[np.ndarray, " n"] | float


class TripletScore(NamedTuple):
    """How many triplets follow the order: no harder image is right where an easier one is wrong.

    score:    share of triplets whose pattern follows the order.
    patterns: how many triplets have each pattern. Where a score is over all triplets that the items can form, the
              counts are expected values, whose sum is a third of the items.
    """

    score: float
    patterns: dict[str, int | float]


class Rates(NamedTuple):
    """Scores that accuracies make, without any matching of images, each with its 95 % interval over classes.

    session: the score by the level accuracies of each session.
    level:   the score by the level accuracies over all sessions.
    excess:  session minus level.
    """

    session: Estimated
    level: Estimated
    excess: Estimated


class Matched(NamedTuple):
    """The score of matched triplets, compared with all matchings within sessions.

    excess: the score minus its mean over all matchings.
    p:      one-sided, exact: how often a random matching gives this score or a higher one.

    Where no session has two triplets there is only one matching: excess and p are NaN.
    """

    score: Estimated
    excess: Estimated
    p: float


def hierarchical_score(correct: Bool[np.ndarray, "triplets 3"]) -> TripletScore:
    """The share of matched triplets that follow the order of levels, and how many show each pattern.

    correct: whether a model is right on the easy, the medium and the hard image of each triplet. A triplet follows the
             order if no harder image is right where an easier one is wrong.
    Raises FcaError without triplets.

    >>> hierarchical_score(np.array([[True, True, False], [False, True, False]])).score
    0.5
    """
    if not len(correct):
        raise FcaError("triplets", 0, "1 or more", "give the answers to an easy, a medium and a hard image each")
    pattern_codes = correct @ np.array([4, 2, 1])  # a pattern read as a binary number: its position in PATTERNS
    counts = np.bincount(pattern_codes, minlength=len(PATTERNS))
    patterns: dict[str, int | float] = dict(zip(PATTERNS, counts.tolist(), strict=True))
    following = sum(patterns[name] for name in FOLLOWING)
    return TripletScore(following / len(correct), patterns)


def expected_score(easy: Rate, medium: Rate, hard: Rate) -> Rate:
    """The hierarchical score of a model whose responses are independent, with accuracies e, m and h by level.

    The score is the share of (easy, medium, hard) triplets with a pattern of right (1) and wrong (0) that follows the
    order: 000, 100, 110 or 111. It is (1 - m)(1 - h) + e m, since the probabilities of 000 and 100 sum to
    (1 - m)(1 - h), and those of 110 and 111 to e m. So high accuracy on easy images and low accuracy on hard ones
    explain much of a score.

    >>> round(expected_score(0.9, 0.7, 0.3), 2)
    0.84
    """
    return (1 - medium) * (1 - hard) + easy * medium


def all_triplets_score(correct: Right, levels: Levels, sessions: Sessions) -> TripletScore:
    """The hierarchical score over every triplet of an easy, a medium and a hard item that a session can form.

    The score is the share of triplets in which no harder item is right where an easier one is wrong. Within a session,
    with level accuracies e, m, h, it is (1 - m)(1 - h) + e m: the mean over all random matchings of its items. Sessions
    count equally. The result also has the expected number of triplets with each pattern of right and wrong.

    levels: 0 easy, 1 medium, 2 hard.    sessions: the name or code of each item's session.
    Raises FcaError for a session that lacks a level.

    >>> levels, session = np.array([0, 0, 1, 2]), np.zeros(4, dtype=int)
    >>> all_triplets_score(np.array([True, False, True, False]), levels, session).score
    0.5
    """
    rates = level_rates(correct, levels, sessions)
    probability = np.stack([1 - rates, rates])  # (wrong, right) x sessions x levels
    triplets = len(levels) / 3  # as many as the items form if each is in one triplet; the counts of patterns sum to it

    patterns: dict[str, int | float] = {}
    for name in PATTERNS:
        easy, medium, hard = (probability[int(mark), :, level] for level, mark in enumerate(name))
        patterns[name] = float(triplets * np.mean(easy * medium * hard))
    return TripletScore(float(np.mean(expected_score(*rates.T))), patterns)


def explained_scores(rates: Float[np.ndarray, "sessions 3"], classes: Shaped[np.ndarray, " sessions"]) -> Rates:
    """The hierarchical scores that accuracies alone explain, as if the responses to single images were independent.

    With the accuracies e, m and h on easy, medium and hard images, this score is (1 - m)(1 - h) + e m. The fields are:

    session: the mean over sessions of the score at each session's own accuracies.
    level:   the score at the mean accuracies over sessions, which count equally.
    excess:  session minus level. It is positive where sessions (classes and attributes) differ in accuracy. It does not
             show that the same object fails first when hard: independent responses in every session cause it, too.

    rates: accuracy of each session by level.    classes: the class of each session.

    Intervals are jackknife intervals that leave out whole classes in turn, since the sessions of one
    class are not independent: a network that knows the class well is right in all of them. With a single class the
    intervals are NaN.

    >>> rates = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=float)
    >>> explained = explained_scores(rates, np.arange(4))
    >>> explained.session.value, round(explained.level.value, 3)
    (1.0, 0.75)
    """
    # Intervals are limited to 0..1 by FRACTION, and to -1..1 by SIGNED_FRACTION.
    session_scores = np.asarray(expected_score(*rates.T))
    cluster = np.unique(classes, return_inverse=True)[1]
    session = Estimated(float(session_scores.mean()), *mean_interval(session_scores, cluster, FRACTION))

    level_score = float(expected_score(*rates.mean(axis=0)))
    if cluster.max() == 0:  # a single class cannot be left out
        excess = Estimated(session.value - level_score, *NO_INTERVAL)
        return Rates(session, Estimated(level_score, *NO_INTERVAL), excess)

    # Both scores without each class in turn. The weight of a session is 0 where its own class is left out.
    weights = left_out_weights(cluster)  # classes x sessions
    share = weights / weights.sum(axis=1, keepdims=True)
    left_out_session_scores = share @ session_scores
    left_out_level_scores = np.asarray(expected_score(*(share @ rates).T))

    level_ends = jackknife_interval(level_score, left_out_level_scores, within=FRACTION)
    excess_score = session.value - level_score
    left_out_excess = left_out_session_scores - left_out_level_scores
    excess_ends = jackknife_interval(excess_score, left_out_excess, within=SIGNED_FRACTION)
    return Rates(session, Estimated(level_score, *level_ends), Estimated(excess_score, *excess_ends))


def matched_score(
    right: Bool[np.ndarray, "triplets 3"],
    sessions: Shaped[np.ndarray, " triplets"],
    classes: Shaped[np.ndarray, " triplets"],
) -> Matched:
    """Score of matched triplets (one object, easy to hard), and its excess over random triplets of the same images.

        excess = mean over triplets of [follows - ((1 - m)(1 - h) + e m)]

    follows is 1 if no harder image of the triplet is right where an easier one is wrong, else 0. e, m and h are the
    accuracies on the easy, medium and hard images of the session's triplets. So the excess is the score minus its mean
    over all ways to match these images within sessions. It is expected to be 0 for responses that are independent
    within sessions, however sessions differ. p is the probability that a random matching within sessions gives this
    score or a higher one.

    right: whether the model is right on the easy, the medium and the hard image of each triplet.
    sessions, classes: the session and the class of each triplet; jackknife intervals leave out whole classes in turn.
    Raises FcaError without triplets.

    >>> right = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1], [0, 0, 0]], dtype=bool)
    >>> matched = matched_score(right, np.array(["car", "car", "cup", "cup"]), np.array(["car", "car", "cup", "cup"]))
    >>> matched.score.value, matched.excess.value, matched.p
    (1.0, 0.375, 0.125)
    """
    easy, medium, hard = right.T
    follows = ((easy >= medium) & (medium >= hard)).astype(float)  # no harder image is right where an easier is wrong
    score = Estimated(hierarchical_score(right).score, *class_interval(follows, classes, FRACTION))

    # the code of each triplet's session, and the number of triplets of each session
    _, session, n = np.unique(sessions, return_inverse=True, return_counts=True)
    if n.max() < 2:  # a single triplet of a session can be matched in one way only: no excess and no p
        return Matched(score, UNKNOWN_ESTIMATE, float("nan"))

    n_right = np.stack([np.bincount(session, weights=level) for level in right.T], axis=1)  # sessions x levels
    session_scores = np.asarray(expected_score(*(n_right / n[:, None]).T))  # (1 - m)(1 - h) + e m of each session
    excess_of_triplet = follows - session_scores[session]
    excess = Estimated(float(excess_of_triplet.mean()), *class_interval(excess_of_triplet, classes, SIGNED_FRACTION))
    return Matched(score, excess, _p_of_matching(n_right.astype(int), n, round(follows.sum())))


def class_interval(
    values: Num[np.ndarray, " points"],
    classes: Shaped[np.ndarray, " points"],
    within: tuple[float, float] = EVERYWHERE,
) -> tuple[float, float]:
    """95 % interval of the mean of `values`, which leaves out whole classes (see mean_interval).

    values, classes: the value and the class of each point, such as a triplet or a session.
    within: the range that limits the interval.
    NaN, NaN for a single class, or if all values are equal.

    >>> [round(end, 2) for end in class_interval(np.arange(10) / 10, np.arange(10))]
    [0.23, 0.67]
    """
    _, class_of_point = np.unique(classes, return_inverse=True)
    return mean_interval(values, class_of_point, within)


def _p_of_matching(
    n_right: Integer[np.ndarray, "sessions 3"], n: Integer[np.ndarray, " sessions"], following: int
) -> float:
    """The probability that random matchings within sessions have `following` or more triplets in order.

    n_right: number of right responses by session and level.    n: number of triplets of each session.

    A triplet follows the order in two cases: its medium and hard images are both wrong, or its easy and medium images
    are both right. In a random matching of a session's images, each wrong medium image draws one of the n hard images,
    and each right medium image one of the n easy images, without replacement. So the number of triplets of either case
    is hypergeometric, and the two numbers are independent. The distribution of their sum over all sessions is the
    convolution of all these distributions.
    """
    easy, medium, hard = n_right.T

    # Of each session: the number of images to draw from, how many of them complete the order, and the number of draws.
    draws_of_hard = zip(n, n - hard, n - medium, strict=True)  # wrong medium images draw, wrong hard ones complete
    draws_of_easy = zip(n, easy, medium, strict=True)  # right medium images draw, right easy ones complete
    distributions = []
    for n_images, n_completing, n_draws in [*draws_of_hard, *draws_of_easy]:
        distributions.append(hypergeom.pmf(np.arange(n_draws + 1), n_images, n_completing, n_draws))
    distribution_of_sum = reduce(np.convolve, distributions)
    return min(1.0, float(distribution_of_sum[following:].sum()))  # a sum of probabilities may be rounded to above 1


def level_rates(correct: Right, levels: Levels, sessions: Sessions) -> Float[np.ndarray, "sessions 3"]:
    """Accuracy of every session by level; sessions are in the sorted order of their names.

    correct: whether a model is right on each item.    levels: 0 easy, 1 medium, 2 hard.
    sessions: the name or code of each item's session, a class and an attribute.
    Raises FcaError without items, for another level, and for a session that lacks a level.

    >>> level_rates(np.array([True, False, True]), np.arange(3), np.zeros(3, dtype=int))
    array([[1., 0., 1.]])
    """
    names, session = np.unique(sessions, return_inverse=True)
    if not len(names) or not np.isin(levels, [0, 1, 2]).all():
        raise FcaError("levels", sorted(set(levels.tolist())), "0 (easy), 1 (medium), 2 (hard)", "code levels so")
    cell = 3 * session + levels  # code of (session, level)
    n_items = np.bincount(cell, minlength=3 * len(names))
    n_right = np.bincount(cell[correct], minlength=3 * len(names))
    empty_cells = np.flatnonzero(n_items == 0)
    if len(empty_cells):
        empty_session, empty_level = divmod(int(empty_cells[0]), 3)
        items = f"{LEVELS[empty_level]} items of session {names[empty_session]}"
        raise FcaError(items, 0, "1 or more", "add such items or leave the session out")
    return (n_right / n_items).reshape(-1, 3)


def score_and_accuracy(score: Models, accuracy: Models, by_level: Models) -> tuple[Correlation, Correlation]:
    """Pearson's correlation of hierarchical score and accuracy over models, plain and partial given `by_level`.

    by_level: the score (1 - m)(1 - h) + e m that each model's accuracies by level, e, m and h, explain. It is high for
    accurate models, in whichever order single images fail.

    The partial correlation is the correlation between two residuals: those of the score and of the accuracy from
    straight lines on `by_level`. Its p has one degree of freedom less. It is NaN with fewer than four models, if
    `by_level` does not vary, and if it explains the score or the accuracy completely.

    >>> plain, _ = score_and_accuracy(np.array([0.8, 0.84, 0.9]), np.array([0.4, 0.5, 0.6]), np.array([0.7, 0.75, 0.8]))
    >>> round(plain.r, 3)
    0.993
    """
    plain = correlation(score, accuracy)
    undefined = Correlation(float("nan"), float("nan"), len(score))
    if len(score) < 4 or np.ptp(by_level) == 0:
        return plain, undefined

    line = np.column_stack([np.ones(len(by_level)), by_level])  # models x (intercept, slope)
    residuals = []
    for values in (score, accuracy):
        residual = values - line @ np.linalg.lstsq(line, values, rcond=None)[0]
        if np.abs(residual).max() < 1e-12 * np.ptp(values):
            return plain, undefined  # the level rates explain everything: only rounding is left
        residuals.append(residual)

    r = correlation(*residuals).r
    return plain, Correlation(r, t_test(r, len(score) - 3), len(score))
