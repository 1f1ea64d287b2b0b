"""A fixed small set of items that stands for a whole pool: anchors, their weights, and what they show of a new model.

An adaptive test evaluates other items for every model; anchors are the same few for all (tinyBenchmarks' 100: Maia Polo
et al. 2024, arXiv 2402.14992), so that a leaderboard evaluates nothing else. They are chosen once, on models whose
responses to all items are known, and their error is learned from models that did not choose them.

No method of choice is best for every pool, and none beats a plain random sample on all of them. So those of METHODS are
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
METHODS = (  # the first is used where others err no less
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

    items:   their positions in the pool, ascending.
    weights: of each, with sum 1.
    pool:    number of items of the pool.
    bank:    the pool's items, for estimators p_irt and gp_irt; None where the weighted mean is enough.
    share:   of the weighted mean in the estimate, beside the bank's: 1 without bank, 0 for p_irt.
    line:    intercept and slope that lead from the weighted mean to the accuracy; (0, 1): the mean itself.
    shift:   mean of logit(truth) - logit(estimate), over models that did not choose the anchors; see `choose_anchors`.
    reach:   half width of the 95 % interval; in logits.
    checked: of every model that chose, its accuracy on all items, and the estimate (with its shift) in whose choice its
             own error had no part.
    method:  space and estimator.
    errors:  of each method tried, the root mean squared cross-validated error.
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
        """Estimated accuracy on the whole pool of each model, and both ends of its 95 % interval.

        correct: the models' responses to the anchors (0 or 1), in the order of `items`.
        Raises FcaError for other values, and for another number of responses than anchors.
        """
        if correct.shape[1] != len(self.items) or not np.isin(correct, (0, 1)).all():
            allowed = f"0 or 1 for each of the {len(self.items)} anchors"
            raise FcaError("responses to anchors", f"of shape {correct.shape}", allowed, "evaluate all of them")
        centre = _to_logit(self.shares(correct.astype(bool)), self.pool) + self.shift  # of the interval, in logits
        return expit(np.stack([centre, centre - self.reach, centre + self.reach], axis=1))

    def shares(self, correct: Bool[np.ndarray, "models k"]) -> Shares:
        """Estimated accuracy on all items, before `shift`.

        With the responses y and the weights w of the anchors, by estimator:

        weighted  Σ w y
        line      a + b Σ w y
        p_irt     the mean over the pool of y for anchors, and for other items of the bank's probability at the
                  ability that the responses show (Maia Polo et al. 2024, section 3.2)
        gp_irt    λ times weighted plus 1 - λ times p_irt (section 3.3); λ is `share`
        """
        intercept, slope = self.line
        by_weights = intercept + slope * (correct @ self.weights)
        if self.bank is None:
            return by_weights
        return self.share * by_weights + (1 - self.share) * self._by_bank(correct)

    def _by_bank(self, correct: Bool[np.ndarray, "models k"]) -> Shares:
        """The estimate p_irt of `shares`: responses to the anchors, and the bank's probabilities of all other items."""
        assert self.bank is not None  # `shares` has checked it
        parameters_of_anchors = [values[self.items] for values in self.bank[1:]]  # the first field is the model
        anchor_items = ItemBank(self.bank.model, *parameters_of_anchors)
        ability = score_ability(correct.astype(np.float64), anchor_items).ability
        expected = self.bank.probability(ability)  # models x items
        expected[:, self.items] = correct
        return expected.mean(axis=1)


def choose_anchors(
    correct: Correct,
    k: int = 100,
    space: str | None = None,
    estimator: str | None = None,
    networks: Sequence[str] | None = None,
    seed: int = 0,
) -> Anchors:
    """Choose k items from which the accuracy of a new model on all items is estimated.

    correct:   whether each of the models that choose is right on each item.
    space:     how the items are chosen.
               ease: the items are ordered by the share of models that are right and cut into k parts of equal size;
               the middle item of each is taken.
               responses and irt: k-means clusters of items, by the models that are right or by slope and intercept of
               a 2pl; the item closest to each centre is taken, with the cluster's share of the items as its weight
               (Maia Polo et al., section 3).
               random: a simple random sample.
    estimator: how accuracy is estimated from the responses to the anchors.
               weighted: their weighted mean.
               line: a line in the weighted mean, fitted by least squares over the models.
               p_irt: the mean over all items of these responses, and of the probabilities by a 2pl fitted here.
               gp_irt: λ times weighted plus 1 - λ times p_irt, with λ fitted.
    networks:  the network of each model; snapshots and seeds of one network are never on both sides of a check. None:
               all differ.

    A method is a space and an estimator. If either is None, the one of METHODS (with the other, if that is given) that
    has the least error is taken.

    The error of every method is found by cross-validation in ten folds of networks: the other folds choose anchors, and
    the accuracy of the held-out models is estimated; the λ of gp_irt and `shift` (below) are fitted on the models of
    other folds. The method with the least squared error over all folds then chooses the anchors that are returned, on
    all models. The reported error, of the estimates in `checked`, is not the one by which the method was chosen: in
    each fold it is the error of the method that is best, by the same rule, for the models of the OTHER folds.

    `shift`, which corrects the estimate, is the mean residual r = logit(truth) - logit(estimate) of the chosen method
    (shares are first kept at least half an item away from 0 and 1, where a logit is infinite). `reach`, the half width
    of the interval in logits, is the ceil(0.95 (m + 1))-th smallest |r| of the `checked` estimates of the m models. For
    one more network like these the interval contains the truth in about 95 % of cases, whatever the model of responses
    (cross-conformal: Barber et al. 2021); for models unlike these nothing is promised. It is wide where a few models
    differ from the others.

    Raises FcaError for fewer than 19 models (of fewer, not even the largest |r| is a 95 % bound), for fewer than two
    networks, and for k that is not below the number of items.

    >>> rng = np.random.default_rng(0)
    >>> ability, difficulty = rng.normal(size=(30, 1)), rng.normal(size=300)
    >>> chosen = choose_anchors(rng.random((30, 300)) < expit(ability - difficulty), 20, "ease", "p_irt")
    >>> len(chosen.items), round(float(chosen.weights.sum()), 6), chosen.method
    (20, 1.0, ('ease', 'p_irt'))
    """
    methods = _methods_to_compare(space, estimator)
    models, items = correct.shape
    if models < FEWEST:
        raise FcaError("models to choose anchors on", models, f"{FEWEST} or more, for a 95 % interval", "add models")
    if not 1 <= k < items:
        raise FcaError("k", k, f"1 to {items - 1}, below the items of the pool", "lower it")
    fold = _fold_of_models(np.array(range(models) if networks is None else networks), seed)

    # The method with the least error, and the anchors that it chooses on all models. λ is the share of the weighted
    # mean in gp_irt (`Anchors.share`)
    truth = correct.mean(axis=1)
    held_out = _held_out_estimates(correct, k, methods, fold, seed)  # methods x models x (λ = 1, λ = 0)
    estimates = _cross_fitted(held_out, truth, fold, items)  # with λ and shift fitted; methods x models
    errors = [_rms_error(by_method, truth) for by_method in estimates]
    best = int(np.argmin(errors))
    gp_irt_share, shift = _fit_share_and_shift(held_out[best], truth, items)
    [chosen] = _choose_by_each_method(correct, k, [methods[best]], seed)  # on all models
    _, best_estimator = methods[best]
    if best_estimator == "gp_irt":  # no other estimator has a λ to fit
        chosen = replace(chosen, share=gp_irt_share)

    # Check: the estimate of each model by the method that is best for the models of other folds, and from the residuals
    # of these estimates the half width of the interval (`reach`)
    best_elsewhere = _best_method_elsewhere(held_out, truth, fold, items)
    checked = np.column_stack([truth, estimates[best_elsewhere, np.arange(models)]])
    residual = _to_logit(truth, items) - logit(checked[:, 1])  # these estimates, unlike the truth, are never 0 or 1
    rank = int(np.ceil(LEVEL * (models + 1)))  # LEVEL is 0.95; with FEWEST (19) models or more, rank <= models
    reach = float(np.sort(np.abs(residual))[rank - 1])
    error_by_method = dict(zip(methods, errors, strict=True))
    return replace(chosen, shift=shift, reach=reach, checked=checked, errors=error_by_method)


def _methods_to_compare(space: str | None, estimator: str | None) -> list[Method]:
    """The methods to compare: pairs of a space, in which anchors are chosen, and an estimator.

    If both are given, the result is this one pair, which need not be in METHODS. Otherwise it is all METHODS that have
    the given space or estimator; None stands for any. Raises FcaError for an unknown name, and where METHODS has no
    such method.
    """
    if space is not None:
        check_choice("space", space, SPACES)
    if estimator is not None:
        check_choice("estimator", estimator, ESTIMATORS)
    if space is not None and estimator is not None:
        return [(space, estimator)]

    methods = [method for method in METHODS if space in (None, method[0]) and estimator in (None, method[1])]
    if not methods:
        step = f"name both, or neither: {', '.join(' + '.join(method) for method in METHODS)}"
        raise FcaError("space", space, "one that is compared by itself", step)
    return methods


def _held_out_estimates(
    correct: Correct, k: int, methods: Sequence[Method], fold: Folds, seed: int
) -> Float[np.ndarray, "methods models 2"]:
    """Estimated accuracy of every model, from anchors that the networks of the other folds chose, by each method.

    The estimator gp_irt is λ times the weighted mean of the responses to the anchors plus 1 - λ times the estimate by
    an item response model; callers fit λ, the `share` of the anchors. So the last axis has two estimates, with λ = 1
    and with λ = 0. Other estimators have no λ to fit: their two estimates are equal.
    """
    estimates = np.empty((len(methods), len(correct), 2))
    for number in range(fold.max() + 1):
        is_held_out = fold == number
        chosen_by_method = _choose_by_each_method(correct[~is_held_out], k, methods, seed + number)  # own draws
        for i, chosen in enumerate(chosen_by_method):
            responses = correct[is_held_out][:, chosen.items]
            _, estimator = methods[i]
            two_lambdas = (1.0, 0.0) if estimator == "gp_irt" else (chosen.share, chosen.share)
            # `shares` gives the estimated accuracy of each held-out model
            by_lambda = [replace(chosen, share=value).shares(responses) for value in two_lambdas]
            estimates[i, is_held_out] = np.stack(by_lambda, axis=1)
    return estimates


def _fit_share_and_shift(estimates: Float[np.ndarray, "models 2"], truth: Shares, items: int) -> tuple[float, float]:
    """The best `share` of gp_irt on these models, and the mean residual in logits (`shift`) that it leaves.

    gp_irt gives weight `share` to the weighted mean of responses, and 1 - `share` to the estimate by an item response
    model.

    estimates: estimated accuracies of the models with share 1 and with share 0. Both are equal for other estimators
               than gp_irt, whose share is then 0.
    truth:     the models' accuracies on all items.
    items:     number of items of the pool.
    """
    # least squares of truth - e0 = share (e1 - e0)
    difference = estimates[:, 0] - estimates[:, 1]
    squares = float(difference @ difference)
    share = 0.0
    if squares:
        share = float(np.clip(difference @ (truth - estimates[:, 1]) / squares, 0.0, 1.0))
    residual = _to_logit(truth, items) - _to_logit(_mixture(estimates, share), items)
    return share, float(residual.mean())


def _mixture(estimates: Float[np.ndarray, "models 2"], share: float) -> Shares:
    """The first estimate with weight `share`, the second with 1 - share."""
    return share * estimates[:, 0] + (1 - share) * estimates[:, 1]


def _rms_error(estimates: Shares, truth: Shares) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((estimates - truth) ** 2)))


def _cross_fitted(
    held_out: Float[np.ndarray, "methods models 2"], truth: Shares, fold: Folds, items: int
) -> Float[np.ndarray, "methods models"]:
    """Estimated accuracy of every model by each method, with two constants fitted on the models of other folds.

        logit(estimate) = logit(λ e1 + (1 - λ) e0) + shift

    λ is the share of the weighted mean in the estimator gp_irt, fitted by least squares; `shift` is the mean residual
    that it leaves, in logits. All other estimators have e1 = e0, so that λ does not matter.

    held_out: e1 and e0 of every method and model, from `_held_out_estimates`.
    truth:    accuracy of each model on all items.
    items:    number of items of the pool.

    If all models are in a single fold, λ and shift are fitted on these models themselves. This happens where there are
    two folds and `_best_method_elsewhere`, which calls this function without the models of one fold, leaves one out.
    """
    estimates = np.empty(held_out.shape[:2])
    for number in np.unique(fold):
        is_held_out = fold == number
        is_fitted_on = is_held_out if is_held_out.all() else ~is_held_out
        for i, of_method in enumerate(held_out):  # models x 2
            share, shift = _fit_share_and_shift(of_method[is_fitted_on], truth[is_fitted_on], items)
            shifted_logit = _to_logit(_mixture(of_method[is_held_out], share), items) + shift
            estimates[i, is_held_out] = expit(shifted_logit)
    return estimates


def _best_method_elsewhere(
    held_out: Float[np.ndarray, "methods models 2"], truth: Shares, fold: Folds, items: int
) -> Int[np.ndarray, " models"]:
    """For each model, the position of the method with the least error on the models of all other folds.

    A model's own error has no part in this choice, so the choice does not make the error on this model look smaller.

    held_out: estimates of every method and model, from `_held_out_estimates`.
    truth:    accuracy of each model on all items.
    items:    number of items of the pool.
    """
    best_method = np.empty(len(truth), dtype=np.int64)
    for number in range(fold.max() + 1):
        is_held_out = fold == number
        other_truth = truth[~is_held_out]
        other_estimates = _cross_fitted(held_out[:, ~is_held_out], other_truth, fold[~is_held_out], items)
        other_errors = [_rms_error(by_method, other_truth) for by_method in other_estimates]
        best_method[is_held_out] = np.argmin(other_errors)
    return best_method


def _choose_by_each_method(correct: Correct, k: int, methods: Sequence[Method], seed: int) -> list[Anchors]:
    """The anchors (items and weights) that each method, a pair of space and estimator, chooses on these models.

    The space determines which items are chosen. The estimator determines the other fields of the anchors:

    weighted: none.
    line:     `line`, intercept and slope that lead from the weighted mean of the responses to the accuracy.
    p_irt:    `bank`, and 0 as `share`, the weight of the weighted mean beside the estimate by the bank.
    gp_irt:   as p_irt; callers then fit the `share`.

    Callers also fit the correction of the estimate (`shift`) and its interval (`reach`). To save time, the item
    response model (2pl) is fitted once for all methods, and items are chosen once in each space.
    """
    items = correct.shape[1]
    needs_fit = any(_needs_bank(method) for method in methods)
    fit = fit_irt(correct.astype(np.float64)) if needs_fit else None
    bank = None if fit is None else fit.bank
    spaces = dict.fromkeys(space for space, _ in methods)
    choice_by_space = {space: _choose_in_space(correct, k, space, bank, seed) for space in spaces}
    truth = correct.mean(axis=1)

    chosen = []
    for method in methods:
        space, estimator = method
        positions, weights = choice_by_space[space]
        # names of the prior's scales that the responses do not determine; a file of anchors keeps them as a note
        not_estimable = fit.not_estimable if fit is not None and _needs_bank(method) else ()
        of_method = Anchors(  # share 1: the estimate is the weighted mean alone
            positions, weights, pool=items, bank=None, share=1.0, method=method, not_estimable=not_estimable
        )
        if estimator == "line":
            of_method = replace(of_method, line=_least_squares_line(correct[:, positions] @ weights, truth))
        elif estimator != "weighted":  # p_irt or gp_irt
            of_method = replace(of_method, bank=bank, share=0.0)
        chosen.append(of_method)
    return chosen


def _needs_bank(method: Method) -> bool:
    """Whether a method needs item parameters: to choose the anchors, or to estimate from them."""
    space, estimator = method
    return space == "irt" or estimator in ("p_irt", "gp_irt")


def _choose_in_space(
    correct: Correct, k: int, space: str, bank: ItemBank | None, seed: int
) -> tuple[Positions, Float[np.ndarray, " k"]]:
    """The positions of k items that are chosen in a space, ascending, and their weights.

    space: ease (evenly along the order of items by the share of models that are right), random, or responses or irt
           (items nearest to the centres of clusters: of the models' responses, or of the item parameters in `bank`).
    The weights, with sum 1, are in proportion to the number of items that each chosen item stands for. There are fewer
    than k items if there are fewer clusters.
    """
    rng = np.random.default_rng(seed)
    items = correct.shape[1]
    if space == "ease":  # order the items by ease, cut them into k parts, and take the middle item of each
        tie_break = rng.random(items)
        by_ease = np.lexsort((tie_break, correct.mean(axis=0)))
        parts = np.array_split(by_ease, k)
        positions = np.array([part[len(part) // 2] for part in parts])
        sizes = np.array([len(part) for part in parts])
    elif space == "random":
        positions = rng.choice(items, k, replace=False)
        sizes = np.ones(k)
    else:
        positions, sizes = _items_nearest_to_centres(correct, bank if space == "irt" else None, k, seed)

    order = np.argsort(positions)
    return positions[order], (sizes / sizes.sum())[order]


def _least_squares_line(shares: Shares, truth: Shares) -> tuple[float, float]:
    """Intercept and slope of the least squares line from weighted means of responses to accuracies, over the models.

    The slope is 0 where all models have the same share.

    >>> intercept, slope = _least_squares_line(np.array([0.2, 0.4]), np.array([0.3, 0.4]))
    >>> round(intercept, 6), round(slope, 6)
    (0.2, 0.5)
    """
    centred = shares - shares.mean()
    squares = float(centred @ centred)
    slope = float(centred @ truth / squares) if squares else 0.0
    return float(truth.mean() - slope * shares.mean()), slope


def _items_nearest_to_centres(
    correct: Correct, bank: ItemBank | None, k: int, seed: int
) -> tuple[Positions, Shaped[np.ndarray, " k"]]:
    """The items closest to the centres of k clusters of items, and how many items each cluster has.

    The coordinates of an item are the models' responses to it; with a bank, they are its slope and intercept, each
    scaled to standard deviation 1. Items with equal responses have equal coordinates, also in a bank, which was fitted
    on these responses. They are one point. If there are fewer than k points, there are fewer clusters.
    """
    from sklearn.cluster import KMeans  # a second to import

    # Items with equal responses (most items of some pools) become one point, whose weight is their number. For each
    # point: its column of `patterns`, the first of its items, and how many items it has
    patterns, first_item, count = np.unique(correct, axis=1, return_index=True, return_counts=True)
    if bank is None:
        points = patterns.T.astype(np.float64)
    else:
        parameters = np.stack([bank.discrimination, bank.discrimination * bank.difficulty], axis=1)
        points = (parameters / parameters.std(axis=0))[first_item]  # the first item has the parameters of all its like

    k_means = KMeans(min(k, len(points)), n_init=STARTS, random_state=seed).fit(points, sample_weight=count)
    cluster = k_means.labels_  # the number of each point's cluster
    squared_distance = ((points - k_means.cluster_centers_[cluster]) ** 2).sum(axis=1)
    by_cluster_and_distance = np.lexsort((squared_distance, cluster))  # cluster by cluster, the nearest point first
    _, first_of_cluster = np.unique(cluster[by_cluster_and_distance], return_index=True)
    nearest = by_cluster_and_distance[first_of_cluster]
    return first_item[nearest], np.bincount(cluster, weights=count)


def _to_logit(share: Shares, items: int) -> Shares:
    """Logits of shares, which are kept half an item off 0 and 1."""
    return logit(np.clip(share, 0.5 / items, 1 - 0.5 / items))


def _fold_of_models(networks: Shaped[np.ndarray, " models"], seed: int) -> Int[np.ndarray, " models"]:
    """The fold of every model, from 0: networks are dealt out at random to FOLDS folds, or to as many as networks.

    Raises FcaError for a single network, which leaves none to check on.
    """
    names, code = np.unique(networks, return_inverse=True)
    if len(names) < 2:
        raise FcaError("networks to choose anchors on", len(names), "2 or more", "add other networks")
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of_network = order % min(FOLDS, len(names))
    return fold_of_network[code]
