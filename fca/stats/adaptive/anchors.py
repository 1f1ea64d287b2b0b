"""A fixed small set of items that stands for a whole pool: anchors, their weights, and what they show of a new model.

An adaptive test asks every model other items; anchors are the same few for all (tinyBenchmarks' 100: Maia Polo et al.
2024, arXiv 2402.14992), so that a leaderboard evaluates nothing else. They are chosen once, on models whose responses
to all items are known, and how far off they are is learned from models that did not choose them.

Which choice is best depends on the pool. 100 of 5,000 ImageNet images chosen by 45 models, 20 others tested, splits 8
to 19 (the defaults were chosen on splits 0 to 7; 95 % over splits): root mean squared error 2.1 [1.9, 2.4] points for
the default, 2.5 [2.3, 2.8] weighted, 3.3 [2.4, 4.0] and 3.1 [2.5, 3.7] for the weighted centres of `responses` and
`irt`, and 4.3 [4.0, 4.6] for the share right of 100 random images. Intervals held the truth in 95 to 97 % of 240 tests
each; tests of one split share its anchors: 17 to 20 of 20. tests/stats/adaptive/test_anchors.py has three such splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import expit, logit

from fca.stats.intervals import LEVEL
from fca.stats.irt import ItemBank, fit_irt, score_ability
from fca.types import FcaError, check_choice

SPACES = ("ease", "responses", "irt")
ESTIMATORS = ("p_irt", "weighted")
FOLDS = 10  # of networks
FEWEST = round(1 / (1 - LEVEL)) - 1  # models of which the largest residual is a 95 % bound: 19
STARTS = 3  # of k-means

Correct = Bool[np.ndarray, "models items"]
Positions = Int[np.ndarray, " k"]
Shares = Float[np.ndarray, " models"]


@dataclass(frozen=True)
class Anchors:
    """A fixed set of items of a pool.

    items:   their positions in the pool, ascending.    weights: of each, with sum 1.    pool: number of its items.
    bank:    the pool's items, for estimator p_irt; None: the weighted mean alone.
    shift:   mean of logit(truth) - logit(estimate), over models that did not choose the anchors; see `anchors`.
    reach:   half width of the 95 % interval; in logits.
    checked: of every model that chose, its accuracy on all items, and the estimate from anchors (and with the shift)
             that other networks chose.
    """

    items: Positions
    weights: Float[np.ndarray, " k"]
    pool: int
    bank: ItemBank | None
    shift: float = 0.0
    reach: float = 0.0
    checked: Float[np.ndarray, "models 2"] | None = None

    def estimate(self, correct: Shaped[np.ndarray, "models k"]) -> Float[np.ndarray, "models 3"]:
        """Accuracy on the whole pool of models that answered the anchors: estimate, and both ends of its interval.

        correct: right or wrong, in the order of `items`.    Raises FcaError for responses that are no 0 or 1.
        """
        if correct.shape[1] != len(self.items) or not np.isin(correct, (0, 1)).all():
            allowed = f"0 or 1 for each of the {len(self.items)} anchors"
            raise FcaError("responses to anchors", f"of shape {correct.shape}", allowed, "ask all of them")
        centre = _to_logit(self.shares(correct.astype(bool)), self.pool) + self.shift
        return expit(np.stack([centre, centre - self.reach, centre + self.reach], axis=1))

    def shares(self, correct: Bool[np.ndarray, "models k"]) -> Shares:
        """Estimated accuracy on all items, before `shift`.

        weighted: Σ w y.    p_irt: the mean over the pool of y where asked, elsewhere of the bank's probability at the
        model's ability (Maia Polo et al. 2024, section 3.2).
        """
        if self.bank is None:
            return correct @ self.weights
        part = ItemBank(self.bank.model, *(values[self.items] for values in self.bank[1:]))
        expected = self.bank.probability(score_ability(correct.astype(np.float64), part).ability)
        expected[:, self.items] = correct
        return expected.mean(axis=1)


def anchors(
    correct: Correct,
    k: int = 100,
    space: str = "ease",
    estimator: str = "p_irt",
    networks: Sequence[str] | None = None,
    seed: int = 0,
) -> Anchors:
    """k items from which the accuracy of a new model on all items is estimated; chosen on models that answered all.

    correct:   of every model on every item.
    space:     ease, items in order of the share of models that are right, the middle one of every k-th part.
               responses and irt, k-means clusters of items by the models that solve them, or by intercept and slope of
               a 2pl: the item closest to each centre, its weight the cluster's share (Maia Polo et al., section 3).
    estimator: p_irt (with a 2pl fitted here) or weighted; see `Anchors.shares`.
    networks:  of each model; snapshots and seeds of one are never on both sides of a check. None: all differ.

    The interval is calibrated on models that chose nothing: in ten folds of networks anchors are chosen by the others,
    and the held-out models' residuals r = logit(truth) - logit(estimate) are kept (shares moved half an item off 0 and
    1). `shift` is their mean, `reach` the ceil(.95 (m + 1))-th smallest |r - shift| of the m models. For one more
    network like these the interval holds the truth in about 95 %, whatever the model of responses (cross-conformal:
    Barber et al. 2021); for models unlike these nothing is promised. It is wide where a few models are unlike the rest.
    Raises FcaError for fewer than 19 models, fewer than two networks, and k that is not below the number of items.

    >>> rng = np.random.default_rng(0)
    >>> ability, difficulty = rng.normal(size=(30, 1)), rng.normal(size=300)
    >>> found = anchors(rng.random((30, 300)) < expit(ability - difficulty), 20)
    >>> len(found.items), round(float(found.weights.sum()), 6)
    (20, 1.0)
    """
    check_choice("space", space, SPACES)
    check_choice("estimator", estimator, ESTIMATORS)
    models, items = correct.shape
    if models < FEWEST:
        raise FcaError("models to choose anchors on", models, f"{FEWEST} or more, for a 95 % interval", "add models")
    if not 1 <= k < items:
        raise FcaError("k", k, f"1 to {items - 1}, below the items of the pool", "lower it")
    fold = _folds(np.array(range(models) if networks is None else networks), seed)
    truth, raw = correct.mean(axis=1), np.empty(models)
    for held in (fold == number for number in range(fold.max() + 1)):
        found = _chosen(correct[~held], k, space, estimator, seed)
        raw[held] = _to_logit(found.shares(correct[held][:, found.items]), items)
    residual = _to_logit(truth, items) - raw
    shift = float(residual.mean())
    others = np.array([residual[fold != number].mean() for number in range(fold.max() + 1)])
    reach = float(np.sort(np.abs(residual - shift))[int(np.ceil(LEVEL * (models + 1))) - 1])
    every = _chosen(correct, k, space, estimator, seed)
    checked = np.column_stack([truth, expit(raw + others[fold])])
    return Anchors(every.items, every.weights, items, every.bank, shift, reach, checked)


def _chosen(correct: Correct, k: int, space: str, estimator: str, seed: int) -> Anchors:
    """Anchors without an interval."""
    bank = None
    if "irt" in (space, estimator.removeprefix("p_")):
        bank = fit_irt(correct.astype(np.float64)).bank
    if space == "ease":
        tie = np.random.default_rng(seed).random(correct.shape[1])
        parts = np.array_split(np.lexsort((tie, correct.mean(axis=0))), k)
        chosen, weights = np.array([part[len(part) // 2] for part in parts]), np.array([len(part) for part in parts])
    else:
        chosen, weights = _centres(correct, bank if space == "irt" else None, k, seed)
    order = np.argsort(chosen)
    kept = bank if estimator == "p_irt" else None
    return Anchors(chosen[order], (weights / weights.sum())[order], correct.shape[1], kept)


def _centres(correct: Correct, bank: ItemBank | None, k: int, seed: int) -> tuple[Positions, Shaped[np.ndarray, " k"]]:
    """The items closest to the centres of k clusters, and the clusters' sizes; fewer where fewer items differ."""
    from sklearn.cluster import KMeans  # a second to import

    # items with equal responses are one point: most of some pools
    patterns, first, count = np.unique(correct, axis=1, return_index=True, return_counts=True)
    points = patterns.T.astype(np.float64)
    if bank is not None:
        plane = np.stack([bank.discrimination, bank.discrimination * bank.difficulty], axis=1)
        points = (plane / plane.std(axis=0))[first]
    means = KMeans(min(k, len(points)), n_init=STARTS, random_state=seed).fit(points, sample_weight=count)
    distance = ((points - means.cluster_centers_[means.labels_]) ** 2).sum(axis=1)
    order = np.lexsort((distance, means.labels_))
    nearest = order[np.unique(means.labels_[order], return_index=True)[1]]
    return first[nearest], np.bincount(means.labels_, weights=count)


def _to_logit(share: Shares, items: int) -> Shares:
    """Logits of shares, which stay half an item off 0 and 1."""
    return logit(np.clip(share, 0.5 / items, 1 - 0.5 / items))


def _folds(networks: Shaped[np.ndarray, " models"], seed: int) -> Int[np.ndarray, " models"]:
    """The fold of every model: networks in random order, ten folds at most."""
    names, code = np.unique(networks, return_inverse=True)
    if len(names) < 2:
        raise FcaError("networks to choose anchors on", len(names), "2 or more", "add other networks")
    place = np.random.default_rng(seed).permutation(len(names))
    return (place % min(FOLDS, len(names)))[code]
