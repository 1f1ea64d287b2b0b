"""A fixed small set of items that stands for a whole pool: anchors, their weights, and what they show of a new model.

An adaptive test asks every model other items; anchors are the same few for all (tinyBenchmarks' 100: Maia Polo et al.
2024, arXiv 2402.14992), so that a leaderboard evaluates nothing else. They are chosen once, on models whose responses
to all items are known, and how far off they are is learned from models that did not choose them.

No way to choose is best for every pool, and none beats a plain random sample on all of them. So the ways of METHODS are
compared by cross-validation on the models at hand (docs/adr/0040, experiments/progressive/anchor_methods.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import expit, logit

from fca.stats.intervals import LEVEL
from fca.studies.irt.stats import ItemBank, fit_irt, score_ability
from fca.types import FcaError, check_choice

SPACES = ("ease", "responses", "irt", "random")
ESTIMATORS = ("p_irt", "gp_irt", "line", "weighted")
METHODS = (  # the first is taken where others err no less
    ("ease", "p_irt"),
    ("ease", "gp_irt"),
    ("irt", "gp_irt"),
    ("random", "p_irt"),
    ("random", "line"),
    ("random", "weighted"),
)
FOLDS = 10  # of networks
FEWEST = round(1 / (1 - LEVEL)) - 1  # models of which the largest residual is a 95 % bound: 19
STARTS = 3  # of k-means

Method = tuple[str, str]
Correct = Bool[np.ndarray, "models items"]
Positions = Int[np.ndarray, " k"]
Shares = Float[np.ndarray, " models"]
Folds = Int[np.ndarray, " models"]


@dataclass(frozen=True)
class Anchors:
    """A fixed set of items of a pool.

    items:   their positions in the pool, ascending.    weights: of each, with sum 1.    pool: number of its items.
    bank:    the pool's items, for estimators p_irt and gp_irt; None where the weighted mean is enough.
    share:   of the weighted mean in the estimate, beside the bank's: 1 without bank, 0 for p_irt.
    line:    intercept and slope that lead from the weighted mean to the accuracy; (0, 1): the mean itself.
    shift:   mean of logit(truth) - logit(estimate), over models that did not choose the anchors; see `anchors`.
    reach:   half width of the 95 % interval; in logits.
    checked: of every model that chose, its accuracy on all items, and the estimate (and with the shift) in whose
             choice its own error had no part.
    method:  space and estimator.    errors: of each method tried, the root mean squared cross-validated error.
    not_estimable: scales that the item model behind space or estimator could not learn; see `IrtFit`.
    """

    items: Positions
    weights: Float[np.ndarray, " k"]
    pool: int
    bank: ItemBank | None
    share: float = 0.0
    line: tuple[float, float] = (0.0, 1.0)
    shift: float = 0.0
    reach: float = 0.0
    checked: Float[np.ndarray, "models 2"] | None = None
    method: Method | None = None
    errors: dict[Method, float] | None = None
    not_estimable: tuple[str, ...] = ()

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

        weighted: Σ w y.    line: a + b Σ w y.    p_irt: the mean over the pool of y where asked, elsewhere of the
        bank's probability at the model's ability (Maia Polo et al. 2024, section 3.2).    gp_irt: λ of weighted and
        1 - λ of p_irt (section 3.3).
        """
        intercept, slope = self.line
        plain = intercept + slope * (correct @ self.weights)
        if self.bank is None:
            return plain
        return self.share * plain + (1 - self.share) * self._expected(correct)

    def _expected(self, correct: Bool[np.ndarray, "models k"]) -> Shares:
        """The estimate p_irt."""
        assert self.bank is not None
        part = ItemBank(self.bank.model, *(values[self.items] for values in self.bank[1:]))
        expected = self.bank.probability(score_ability(correct.astype(np.float64), part).ability)
        expected[:, self.items] = correct
        return expected.mean(axis=1)


def anchors(
    correct: Correct,
    k: int = 100,
    space: str | None = None,
    estimator: str | None = None,
    networks: Sequence[str] | None = None,
    seed: int = 0,
) -> Anchors:
    """k items from which the accuracy of a new model on all items is estimated; chosen on models that answered all.

    correct:   of every model on every item.
    space:     ease, items in order of the share of models that are right, the middle one of every k-th part.
               responses and irt, k-means clusters of items by the models that solve them, or by intercept and slope of
               a 2pl: the item closest to each centre, its weight the cluster's share (Maia Polo et al., section 3).
               random, a simple random sample.
    estimator: p_irt and gp_irt (with a 2pl fitted here), line (least squares over the models) or weighted; see
               `Anchors.shares`.    None, of either: whatever errs least of METHODS.
    networks:  of each model; snapshots and seeds of one are never on both sides of a check. None: all differ.

    In ten folds of networks anchors are chosen by the others in every way, and the held-out models' errors are kept,
    with the λ of gp_irt and the shift that are fitted on the models of the other folds. The way with the least squared
    error over all folds is taken for the anchors that are returned. What is said of their error was not chosen by
    itself: of each fold it is that of the way that is best, judged so, for the models of the OTHER folds (`checked`).

    `shift` is the mean residual r = logit(truth) - logit(estimate) of the way taken (shares moved half an item off 0
    and 1), `reach` the ceil(.95 (m + 1))-th smallest |r| of the m models, of their `checked` estimates. For one more
    network like these the interval holds the truth in about 95 %, whatever the model of responses (cross-conformal:
    Barber et al. 2021); for models unlike these nothing is promised. It is wide where a few models are unlike the rest.
    Raises FcaError for fewer than 19 models, fewer than two networks, and k that is not below the number of items.

    >>> rng = np.random.default_rng(0)
    >>> ability, difficulty = rng.normal(size=(30, 1)), rng.normal(size=300)
    >>> found = anchors(rng.random((30, 300)) < expit(ability - difficulty), 20, "ease", "p_irt")
    >>> len(found.items), round(float(found.weights.sum()), 6), found.method
    (20, 1.0, ('ease', 'p_irt'))
    """
    methods = _methods(space, estimator)
    models, items = correct.shape
    if models < FEWEST:
        raise FcaError("models to choose anchors on", models, f"{FEWEST} or more, for a 95 % interval", "add models")
    if not 1 <= k < items:
        raise FcaError("k", k, f"1 to {items - 1}, below the items of the pool", "lower it")
    fold = _folds(np.array(range(models) if networks is None else networks), seed)

    truth = correct.mean(axis=1)
    held_out = _held_out(correct, k, methods, fold, seed)
    by_method = _cross_fitted(held_out, truth, fold, items)
    errors = [_error(estimates, truth) for estimates in by_method]
    taken = int(np.argmin(errors))
    share, shift = _fitted(held_out[taken], truth, items)
    [every] = _chosen(correct, k, [methods[taken]], seed)
    if methods[taken][1] == "gp_irt":
        every = replace(every, share=share)

    # the way that is best for the models of other folds, judged there in the same way
    best = np.empty(models, dtype=np.int64)
    for number in range(fold.max() + 1):
        held = fold == number
        others = _cross_fitted(held_out[:, ~held], truth[~held], fold[~held], items)
        best[held] = np.argmin([_error(estimates, truth[~held]) for estimates in others])

    checked = np.column_stack([truth, by_method[best, np.arange(models)]])
    residual = _to_logit(truth, items) - logit(checked[:, 1])
    reach = float(np.sort(np.abs(residual))[int(np.ceil(LEVEL * (models + 1))) - 1])
    of_methods = dict(zip(methods, errors, strict=True))
    return replace(every, shift=shift, reach=reach, checked=checked, errors=of_methods)


def _methods(space: str | None, estimator: str | None) -> list[Method]:
    """The ways to compare: those of METHODS with this space and estimator, or the one that is named in full."""
    if space is not None:
        check_choice("space", space, SPACES)
    if estimator is not None:
        check_choice("estimator", estimator, ESTIMATORS)
    if space is not None and estimator is not None:
        return [(space, estimator)]
    methods = [one for one in METHODS if space in (None, one[0]) and estimator in (None, one[1])]
    if not methods:
        step = f"name both, or neither: {', '.join(' + '.join(one) for one in METHODS)}"
        raise FcaError("space", space, "one that is compared by itself", step)
    return methods


def _held_out(
    correct: Correct, k: int, methods: Sequence[Method], fold: Folds, seed: int
) -> Float[np.ndarray, "methods models 2"]:
    """Estimates of every model by anchors that the networks of other folds chose: by `share` 1 and by `share` 0.

    Both are the same but for gp_irt, whose share is fitted later.
    """
    estimates = np.empty((len(methods), len(correct), 2))
    for number in range(fold.max() + 1):
        held = fold == number
        found = _chosen(correct[~held], k, methods, seed + number)
        for at, (method, one) in enumerate(zip(methods, found, strict=True)):
            answers = correct[held][:, one.items]
            ends = (1.0, 0.0) if method[1] == "gp_irt" else (one.share, one.share)
            estimates[at, held] = np.stack([replace(one, share=end).shares(answers) for end in ends], axis=1)
    return estimates


def _fitted(estimates: Float[np.ndarray, "models 2"], truth: Shares, items: int) -> tuple[float, float]:
    """Share of gp_irt with the least squared error on these models, and then the mean residual in logits."""
    apart = estimates[:, 0] - estimates[:, 1]
    squares = float(apart @ apart)
    share = float(np.clip(apart @ (truth - estimates[:, 1]) / squares, 0.0, 1.0)) if squares else 0.0
    return share, float((_to_logit(truth, items) - _to_logit(_mixed(estimates, share), items)).mean())


def _mixed(estimates: Float[np.ndarray, "models 2"], share: float) -> Shares:
    """So much of the first estimate, and the rest of the second."""
    return share * estimates[:, 0] + (1 - share) * estimates[:, 1]


def _error(estimates: Shares, truth: Shares) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((estimates - truth) ** 2)))


def _cross_fitted(
    held_out: Float[np.ndarray, "methods models 2"], truth: Shares, fold: Folds, items: int
) -> Float[np.ndarray, "methods models"]:
    """Estimates of every model by each way, with the share and the shift that are fitted on the models of other folds.

    Models of a single fold have no others: theirs are fitted on themselves.
    """
    estimates = np.empty(held_out.shape[:2])
    for number in np.unique(fold):
        held = fold == number
        others = ~held if not held.all() else held
        for at, both in enumerate(held_out):
            share, shift = _fitted(both[others], truth[others], items)
            estimates[at, held] = expit(_to_logit(_mixed(both[held], share), items) + shift)
    return estimates


def _chosen(correct: Correct, k: int, methods: Sequence[Method], seed: int) -> list[Anchors]:
    """Anchors without an interval, by each method."""
    items = correct.shape[1]
    spaces = dict.fromkeys(space for space, _ in methods)
    needs_bank = "irt" in spaces or any(estimator in ("p_irt", "gp_irt") for _, estimator in methods)
    fit = fit_irt(correct.astype(np.float64)) if needs_bank else None
    bank = None if fit is None else fit.bank
    placed = {space: _placed(correct, k, space, bank, seed) for space in spaces}
    truth = correct.mean(axis=1)

    found = []
    for method in methods:
        space, estimator = method
        chosen, weights = placed[space]
        if estimator == "line":
            line = _line(correct[:, chosen] @ weights, truth)
            found.append(Anchors(chosen, weights, items, None, 1.0, line, method=method))
        elif estimator == "weighted":
            found.append(Anchors(chosen, weights, items, None, 1.0, method=method))
        else:
            found.append(Anchors(chosen, weights, items, bank, 0.0, method=method))
    if fit is None:
        return found
    return [replace(one, not_estimable=fit.not_estimable) if _is_of_bank(one.method) else one for one in found]


def _is_of_bank(method: Method | None) -> bool:
    return method is not None and (method[0] == "irt" or method[1] in ("p_irt", "gp_irt"))


def _placed(
    correct: Correct, k: int, space: str, bank: ItemBank | None, seed: int
) -> tuple[Positions, Float[np.ndarray, " k"]]:
    """The items of a space, ascending, and their weights."""
    rng = np.random.default_rng(seed)
    if space == "ease":
        tie = rng.random(correct.shape[1])
        parts = np.array_split(np.lexsort((tie, correct.mean(axis=0))), k)
        chosen, sizes = np.array([part[len(part) // 2] for part in parts]), np.array([len(part) for part in parts])
    elif space == "random":
        chosen, sizes = rng.choice(correct.shape[1], k, replace=False), np.ones(k)
    else:
        chosen, sizes = _centres(correct, bank if space == "irt" else None, k, seed)
    order = np.argsort(chosen)
    return chosen[order], (sizes / sizes.sum())[order]


def _line(shares: Shares, truth: Shares) -> tuple[float, float]:
    """Intercept and slope of the least squares line from shares to accuracies; slope 0 where all shares are equal.

    >>> intercept, slope = _line(np.array([0.2, 0.4]), np.array([0.3, 0.4]))
    >>> round(intercept, 6), round(slope, 6)
    (0.2, 0.5)
    """
    centred = shares - shares.mean()
    squares = float(centred @ centred)
    slope = float(centred @ truth / squares) if squares else 0.0
    return float(truth.mean() - slope * shares.mean()), slope


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
