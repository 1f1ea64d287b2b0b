"""How well a model predicts responses that it was not fitted to, and the choice of the model that predicts them best.

Responses are held out in one of two ways. Cells: some images of each network, which tests predictions for these
networks and images. Subjects: whole networks, which tests whether the items serve for a new network. Snapshots of one
network are always on the same side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer
from scipy.special import expit

from fca.stats.intervals import EVERYWHERE, Estimated, ratio_interval
from fca.studies.irt.stats.fit import fit_irt
from fca.studies.irt.stats.likelihood import smoothed_logit
from fca.studies.irt.stats.model import Matrix, check_responses, model_name, parts_of, score_ability
from fca.types import FcaError, check_choice

HOLD_OUTS = ("cells", "subjects")
CANDIDATES = ("1pl", "2pl", "3pl", "3pl-upper")
HIDDEN_SHARE, FOLDS = 0.1, 5  # of responses that are hidden; of networks
CERTAIN = 1e-12  # least chance of a response that its log loss counts: one surprise must not weigh without bound

Network = Integer[np.ndarray, " subjects"]
Cells = Bool[np.ndarray, "subjects items"]
Watch = Callable[[Sequence[tuple[str, tuple[int, ...]]]], Iterable[tuple[str, tuple[int, ...]]]]


class HeldOut(NamedTuple):
    """How well a model predicts responses that it was not fitted to.

    nll: mean negative log likelihood per response, in nats; lower is better.   low, high: its 95 % interval over
    networks; NaN with a single one.   accuracy: share of responses on the right side of 0.5.
    auc: chance that a right response was given the higher probability; NaN if all are right, or all wrong.
    baseline_nll: of logit P = logit(subject's mean) + logit(item's mean) - logit(mean), means of what was not held out.
    cells: number of predicted responses.   loss, number: sum of negative log likelihoods and their number, by network.
    unlinked: networks without which the others are of several parts that no common item links; see `held_out_fit`.
    """

    model: str
    hold_out: str
    nll: float
    low: float
    high: float
    auc: float
    accuracy: float
    baseline_nll: float
    cells: int
    loss: Float[np.ndarray, " networks"]
    number: Int[np.ndarray, " networks"]
    unlinked: tuple[int, ...] = ()


class Choice(NamedTuple):
    """The chosen model.

    candidates: the scores that chose, best first: the first is too good by chance, being the best of several.
    outer: the score of what was chosen on responses that took part neither in the choice nor in the fit.
    """

    candidates: list[HeldOut]
    outer: HeldOut

    @property
    def model(self) -> str:
        """The model that predicts held-out responses best."""
        return self.candidates[0].model


def held_out_fit(
    responses: Matrix,
    model: str = "2pl",
    share: float = HIDDEN_SHARE,
    seed: int = 0,
    hold_out: str = "cells",
    network: Network | None = None,
) -> HeldOut:
    """Score a model on responses that it is not fitted to; a seed holds out the same responses for every model.

    hold_out="cells" hides a random `share` of all pairs of network and item, for all snapshots of the network together,
    and predicts them by one fit to the other responses.

    hold_out="subjects" leaves out a fifth of the networks (a fold) and fits items to the others. The abilities of the
    subjects left out are found from a random half of their responses, with the items taken as known, and the other half
    is predicted. Every network is left out once: there are five folds, or one for each network if there are fewer than
    five. If no common items link all of the other subjects, items are fitted to the linked part with most subjects, and
    only responses to these items are predicted; `HeldOut.unlinked` has the networks of the folds where this happened.

    The score is the mean negative log likelihood of the held-out responses, beside that of a baseline of means.
    responses: 1 right, 0 wrong, NaN missing.
    network: the network that each subject is a snapshot of, 0..k-1; None: every subject is a network of its own.
    Raises FcaError for an unknown model or hold_out, for responses that cannot be fitted, where no response can be
    hidden or predicted, and for fewer than three networks if hold_out="subjects".

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> held_out_fit(responses, "1pl").cells, held_out_fit(responses, "1pl", hold_out="subjects").cells
    (89, 520)
    """
    name, network = _check_arguments(responses, model, hold_out, network)
    if hold_out == "cells":
        hidden = hide(responses, share, seed, network)
        return _score_hidden_cells(responses, hidden, name, network)

    split = split_networks(responses, network, np.random.default_rng(seed))
    chance = np.full(responses.shape, np.nan)  # predicted chance of a right response; NaN for none
    for fold in range(split.folds):
        is_in_fold = split.fold == fold  # by subject
        chance[is_in_fold] = _predict_folds(responses, split, (fold,), name)
    baseline = _predict_folds_by_means(responses, split)
    score = _score_predictions(responses, chance, baseline, name, hold_out, network)
    return score._replace(unlinked=_unlinked_networks(responses, split, network))


def choose_model(
    responses: Matrix,
    models: Sequence[str] = CANDIDATES,
    seed: int = 0,
    hold_out: str = "cells",
    network: Network | None = None,
    watch: Watch = iter,
) -> Choice:
    """Choose the model that predicts held-out responses best, and score it on responses that did not choose it.

    hold_out="cells": a tenth of the responses, the outer share, is hidden from all models; with the same seed
    `held_out_fit` hides the same responses. A tenth of the rest, the inner share, is predicted by every model and
    chooses. The chosen model is then fitted to all but the outer share and predicts it. This takes one fit per model,
    and one more.

    hold_out="subjects": every model is scored as by `held_out_fit`, and the best is chosen. For the outer score, each
    fold is predicted by the model that is best on the other folds, in fits without both folds (nested cross-validation,
    Varma & Simon 2006). Folds may choose different models, so the outer score is that of the procedure, not of one
    model. With five folds this takes 15 fits per model: 5 without one fold, 10 without two.

    network: the network that each subject is a snapshot of, 0..k-1; None: every subject is a network of its own.
    watch: given the fits to be made, as (model, folds left out), yields them one by one; made for a progress bar.
    Raises FcaError as `held_out_fit` does, and for fewer than four networks if hold_out="subjects".

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> choose_model(responses, ["1pl", "2pl"]).model
    '1pl'
    """
    # all arguments are checked before any long fit
    names: list[str] = []
    for model in models:
        name, network = _check_arguments(responses, model, hold_out, network)
        names.append(name)
    assert network is not None  # `_check_arguments` replaced None by the position of each subject
    if hold_out == "subjects":
        return _choose_by_subjects(responses, names, seed, network, watch)

    rng = np.random.default_rng(seed)
    outer = hide(responses, HIDDEN_SHARE, rng, network)
    without_outer = np.where(outer, np.nan, responses)
    inner = hide(without_outer, HIDDEN_SHARE, rng, network)

    scores = []
    for name, _ in watch([(name, ()) for name in names]):  # no folds are left out where cells are hidden
        scores.append(_score_hidden_cells(without_outer, inner, name, network))
    candidates = _best_first(scores)
    return Choice(candidates, _score_hidden_cells(responses, outer, candidates[0].model, network))


def _choose_by_subjects(responses: Matrix, names: Sequence[str], seed: int, network: Network, watch: Watch) -> Choice:
    """Choose the model that predicts left-out networks best, and score this procedure (nested cross-validation).

    The choice: every model predicts each fold in a fit without this fold, and the model with the lowest loss on all
    folds is chosen. The outer score: which model predicts fold a is chosen by the losses on all other folds b, in fits
    that have seen neither a nor b. A fit without folds a and b serves twice: its loss on b helps to choose the model
    for a, and its loss on a helps to choose the model for b.

    Losses are negative log likelihoods of the held-out responses.
    names: the candidate models.
    network: of each subject, 0..k-1.
    watch: given the fits to be made, as (model, folds left out), yields them one by one, for a progress bar.
    Raises FcaError for fewer than four networks.
    """
    split = split_networks(responses, network, np.random.default_rng(seed))
    if split.folds < 4:  # two folds are left out together, and a fit needs two subjects at least
        raise _too_few_networks(split.folds, 4)

    # fits without each single fold, for the choice, and without each two folds, for the outer score
    single_folds = [(fold,) for fold in range(split.folds)]
    fold_pairs = list(combinations(range(split.folds), 2))
    fits = [(name, folds) for folds in [*single_folds, *fold_pairs] for name in names]
    # subjects x items, predicted in the fit that leaves out the subject's fold alone
    chance_by_model = {name: np.full(responses.shape, np.nan) for name in names}
    # by fold a: the sum of losses on all other folds, each predicted in the fit without a and without itself
    inner_loss_by_model = {name: np.zeros(split.folds) for name in names}
    for name, left_out in watch(fits):
        is_left_out = np.isin(split.fold, left_out)  # by subject
        chance = _predict_folds(responses, split, left_out, name)  # subjects left out x items
        if len(left_out) == 1:
            chance_by_model[name][is_left_out] = chance
            continue

        loss_by_subject = np.nansum(_losses(responses[is_left_out], chance), axis=1)
        fold_of_subject = split.fold[is_left_out]
        first, second = left_out
        inner_loss_by_model[name][first] += loss_by_subject[fold_of_subject == second].sum()
        inner_loss_by_model[name][second] += loss_by_subject[fold_of_subject == first].sum()

    baseline = _predict_folds_by_means(responses, split)
    candidates = _best_first(
        _score_predictions(responses, chance_by_model[name], baseline, name, "subjects", network) for name in names
    )

    # several models may take part in the outer score; it has the name of the model that is chosen overall
    nested_chance = _nested_chance(split, chance_by_model, inner_loss_by_model)
    outer = _score_predictions(responses, nested_chance, baseline, candidates[0].model, "subjects", network)
    # the score also has the networks of the folds without which common items do not link all other subjects
    return Choice(candidates, outer._replace(unlinked=_unlinked_networks(responses, split, network)))


def excess(score: HeldOut, reference: HeldOut) -> Estimated:
    """Mean log loss of a response in `score` minus the mean log loss in `reference`, with 95 % interval over networks.

    Both must be scores on the same responses, such as those of two models by `held_out_fit` with one seed.

    >>> rng = np.random.default_rng(0)
    >>> responses = (rng.random((20, 50)) < np.linspace(0.2, 0.9, 20)[:, None]).astype(float)
    >>> excess(held_out_fit(responses, "2pl"), held_out_fit(responses, "1pl")).value > 0
    True
    """
    return _mean_with_interval(score.loss - reference.loss, score.number, within=EVERYWHERE)


def _nested_chance(
    split: Split, chance_by_model: Mapping[str, Matrix], inner_loss_by_model: Mapping[str, Float[np.ndarray, " folds"]]
) -> Matrix:
    """Chances of right responses (subjects x items), each fold predicted by the model that is best on all other folds.

    chance_by_model: of each model, the chances that it predicts for all folds, in fits without the predicted fold.
    inner_loss_by_model: of each model, its loss on the other folds, by the fold for which a model is chosen.
    """
    names = list(chance_by_model)
    inner_losses = [inner_loss_by_model[name] for name in names]  # models x folds
    best_model_of_fold = np.argmin(inner_losses, axis=0)  # positions in names
    best_model_of_subject = best_model_of_fold[split.fold]
    chances = [chance_by_model[name] for name in names]
    return np.choose(best_model_of_subject[:, None], chances)  # each subject's row, from its fold's best model


def hide(responses: Matrix, share: float, seed: int | np.random.Generator, network: Network | None = None) -> Cells:
    """Draw the responses to hold out (True where hidden): each pair of network and item with chance `share`.

    All snapshots of a network are hidden together. Some drawn responses stay visible, so that a fit is possible: all
    responses to an item that would keep none, all responses of a network if one of its subjects would keep none, and
    those that are needed to link all subjects by common items.
    network: the network that each subject is a snapshot of, 0..k-1; None: every subject is a network of its own.
    Raises FcaError for a share outside 0 to 1, and if nothing is left to hide, as with a single network.

    >>> int(hide(np.ones((10, 10)), 0.1, seed=0).sum())
    10
    """
    if not 0 < share < 1:
        raise FcaError("share", share, "between 0 and 1", "hide a tenth: 0.1")
    network = np.arange(len(responses)) if network is None else network
    present = ~np.isnan(responses)
    n_networks = int(network.max()) + 1
    rng = np.random.default_rng(seed)  # a generator is used as it is
    is_drawn = rng.random((n_networks, responses.shape[1])) < share  # networks x items
    hidden = present & is_drawn[network]  # subjects x items: all snapshots of a network together

    # items, then networks, that would keep no response keep all
    has_visible_response = (present & ~hidden).any(axis=0)  # by item
    hidden &= has_visible_response
    emptied_subjects = ~(present & ~hidden).any(axis=1)
    is_in_emptied_network = np.isin(network, network[emptied_subjects])
    hidden &= ~is_in_emptied_network[:, None]
    hidden = _unhide_linking_cells(responses, hidden, network)
    if not hidden.any():
        step = "hide a larger share, or add networks"
        raise FcaError("answers that can be hidden", f"0 of {int(present.sum())}", "1 or more", step)
    return hidden


def _unhide_linking_cells(responses: Matrix, hidden: Cells, network: Network) -> Cells:
    """Make hidden responses visible again until common items link all subjects; return those that are still hidden.

    hidden: True where a response is hidden.
    network: of each subject, 0..k-1.

    While the visible responses fall into several parts without a common item (`parts_of`), one hidden response is made
    visible, for all snapshots of its network. It is a response to an item to which the subject's own part has no
    visible response, so that it can link this part to another.
    """
    hidden = hidden.copy()
    while True:
        part_of_subject = parts_of(np.where(hidden, np.nan, responses))  # numbered from 0
        if part_of_subject.max() == 0:  # one part
            return hidden

        is_in_part = part_of_subject == np.arange(part_of_subject.max() + 1)[:, None]  # parts x subjects
        is_visible = ~np.isnan(responses) & ~hidden
        part_sees_item = is_in_part.astype(float) @ is_visible > 0  # parts x items: any visible response
        is_linking = hidden & ~part_sees_item[part_of_subject]
        if not is_linking.any():  # even all responses together would not link the parts
            return hidden
        subject, item = np.argwhere(is_linking)[0]
        hidden[network == network[subject], item] = False


class Split(NamedTuple):
    """Networks divided into folds, for predicting each fold with items that are fitted to the other folds.

    fold: of each subject; all snapshots of a network are in one fold.
    folds: their number.
    shown: the responses from which a subject's ability is found when its fold is left out; the others are predicted.
    """

    fold: Network
    shown: Cells
    folds: int


def split_networks(responses: Matrix, network: Network, rng: np.random.Generator) -> Split:
    """Divide the networks into folds at random, and draw which half of the responses shows the subjects' abilities.

    There are five folds, or one for each network if there are fewer than five. When a fold is left out, the ability of
    a subject in it is found from its shown half (`shown`), and its other responses are predicted. If no response of a
    subject would be shown, all of them are, as its ability could not be found otherwise. Raises FcaError with fewer
    than three networks.
    network: the network that each subject is a snapshot of, 0..k-1.

    >>> split = split_networks(np.ones((4, 10)), np.array([0, 0, 1, 2]), np.random.default_rng(0))
    >>> split.fold, split.folds
    (array([2, 2, 0, 1]), 3)
    """
    n_networks = int(network.max()) + 1
    if n_networks < 3:
        raise _too_few_networks(n_networks, 3)

    fold = rng.permutation(n_networks)[network] % FOLDS
    shows_ability = rng.random(responses.shape) < 0.5
    has_shown_response = (shows_ability & ~np.isnan(responses)).any(axis=1)
    shows_ability |= ~has_shown_response[:, None]
    return Split(fold=fold, shown=shows_ability, folds=min(n_networks, FOLDS))


def _too_few_networks(networks: int, fewest: int) -> FcaError:
    step = "add responses of other networks, or hold out cells"
    return FcaError("networks to hold out", networks, f"{fewest} or more", step)


def _check_arguments(responses: Matrix, model: str, hold_out: str, network: Network | None) -> tuple[str, Network]:
    """The one spelling of the model's name, and the network of each subject (its own position if `network` is None).

    Raises FcaError for an unknown model or `hold_out`, and for responses that cannot be fitted.
    """
    check_choice("hold_out", hold_out, HOLD_OUTS)
    check_responses(responses)
    return model_name(model), np.arange(len(responses)) if network is None else network


def _score_hidden_cells(responses: Matrix, hidden: Cells, name: str, network: Network) -> HeldOut:
    """Fit the responses that are not hidden, and score the prediction of those that are."""
    visible = np.where(hidden, np.nan, responses)
    chance = np.where(hidden, fit_irt(visible, name).probability(), np.nan)
    return _score_predictions(responses, chance, _predict_by_means(visible, visible), name, "cells", network)


def _unlinked_networks(responses: Matrix, split: Split, network: Network) -> tuple[int, ...]:
    """Networks of every fold without which the other subjects fall into parts that no common item links."""
    unlinked_folds = [fold for fold in range(split.folds) if parts_of(responses[split.fold != fold]).max() > 0]
    return tuple(np.unique(network[np.isin(split.fold, unlinked_folds)]).tolist())


def _predict_folds(
    responses: Matrix, split: Split, left_out: tuple[int, ...], name: str
) -> Float[np.ndarray, "new items"]:
    """Chances of right responses in the folds `left_out`, predicted with items that were fitted without these folds.

    Items are fitted to the largest part of the other subjects that common items link (`parts_of`). The ability of a new
    subject, one of the folds left out, is found from its shown responses (`split.shown`). Its other responses to these
    items are predicted.
    name: of the model.

    Rows of the result are the new subjects, in their order. The chance is NaN for shown responses, for items that were
    not fitted, and for subjects without a shown response to a fitted item. All are NaN if no item has both right and
    wrong responses of the fitted subjects, since nothing can be fitted then.
    """
    is_new = np.isin(split.fold, left_out)
    chance = np.full((int(is_new.sum()), responses.shape[1]), np.nan)

    other_responses = responses[~is_new]
    fitted_responses = other_responses[parts_of(other_responses) == 0]  # part 0 has most subjects
    divides_subjects = (fitted_responses == 1).any(axis=0) & (fitted_responses == 0).any(axis=0)
    if not divides_subjects.any():
        return chance

    # fit the items that have a response, and find the abilities of the new subjects on them
    is_fitted_item = ~np.isnan(fitted_responses).all(axis=0)  # has a response of a fitted subject
    bank = fit_irt(fitted_responses[:, is_fitted_item], name).bank
    shown_responses = np.where(split.shown, responses, np.nan)[is_new][:, is_fitted_item]
    has_shown_response = ~np.isnan(shown_responses).all(axis=1)
    if not has_shown_response.any():
        return chance

    ability = score_ability(shown_responses[has_shown_response], bank).ability
    chance[np.ix_(has_shown_response, is_fitted_item)] = bank.probability(ability)
    chance[split.shown[is_new]] = np.nan  # not held out: they showed the abilities
    return chance


def _predict_folds_by_means(responses: Matrix, split: Split) -> Matrix:
    """Chances of all right responses by the baseline `_predict_by_means`, fold by fold.

    The mean of an item is taken over the responses of the other folds, the mean of a subject over its shown responses.
    """
    shown_responses = np.where(split.shown, responses, np.nan)
    chance = np.empty_like(responses)
    for fold in range(split.folds):
        is_in_fold = split.fold == fold
        chance[is_in_fold] = _predict_by_means(responses[~is_in_fold], shown_responses[is_in_fold])
    return chance


def _predict_by_means(fitted: Float[np.ndarray, "fitted items"], shown: Matrix) -> Matrix:
    """Chances of right responses without a model, as a baseline: the means of subject and item, added as logits.

    logit P = logit(mean of the subject) + logit(mean of the item) - logit(mean of all)

    fitted: responses from which the means of items and the mean of all are taken.
    shown: responses of the predicted subjects, from which their means are taken.
    """
    subject_logit = _mean_logit(shown, axis=1)
    item_logit = _mean_logit(fitted, axis=0)
    total_logit = _mean_logit(fitted, axis=None)
    return expit(subject_logit[:, None] + item_logit - total_logit)


def _mean_logit(responses: Matrix, axis: int | None) -> Float[np.ndarray, " n"]:
    """Smoothed logit of the share of right responses, over an axis, or over all as an array of one."""
    right = np.atleast_1d((responses == 1).sum(axis=axis)).astype(float)
    count = np.atleast_1d((~np.isnan(responses)).sum(axis=axis)).astype(float)
    return smoothed_logit(right, count)


def _score_predictions(
    responses: Matrix, chance: Matrix, baseline: Matrix, name: str, hold_out: str, network: Network
) -> HeldOut:
    """Score predicted chances of right responses against the held-out responses.

    chance: predicted by the model `name`; NaN where a response was not held out or could not be predicted.
    baseline: predicted for all responses from means of subjects and items; it is scored on the same responses.

    The score (`nll`) is the mean negative log likelihood of a response: -log chance where it is right, -log (1 -
    chance) where it is wrong. The result also has AUC, accuracy at a chance of 0.5, and for each network the sum of
    losses and the number of predicted responses.
    hold_out: "cells" or "subjects", for the result.
    network: of each subject, 0..k-1; the interval is over networks.
    Raises FcaError if no response was predicted.
    """
    from sklearn.metrics import roc_auc_score  # half a second to import

    loss = _losses(responses, chance)  # subjects x items; NaN where nothing was predicted
    is_predicted = ~np.isnan(loss)
    if not is_predicted.any():
        step = "add subjects that respond to items of several parts, or hold out cells"
        raise FcaError("held-out responses that others' items predict", 0, "1 or more", step)

    right = responses[is_predicted]
    predicted = chance[is_predicted]
    has_both_values = 0 < right.sum() < len(right)  # AUC is not defined otherwise
    loss_by_network = np.bincount(network, np.nansum(loss, axis=1))
    number_by_network = np.bincount(network, is_predicted.sum(axis=1)).astype(int)
    nll = _mean_with_interval(loss_by_network, number_by_network, within=(0.0, np.inf))
    return HeldOut(
        model=name,
        hold_out=hold_out,
        nll=nll.value,
        low=nll.low,
        high=nll.high,
        auc=float(roc_auc_score(right, predicted)) if has_both_values else float("nan"),
        accuracy=float(np.mean((predicted >= 0.5) == (right == 1))),
        baseline_nll=float(_losses(responses, baseline)[is_predicted].mean()),
        cells=len(right),
        loss=loss_by_network,
        number=number_by_network,
    )


def _losses(responses: Matrix, chance: Matrix) -> Matrix:
    """Negative log likelihood of each response; NaN where the response or its predicted chance is missing."""
    chance_of_response = np.where(responses == 1, chance, 1 - chance)
    # CERTAIN is the least chance: the loss stays finite even for a response whose chance is 0
    loss = -np.log(np.clip(chance_of_response, CERTAIN, 1.0))
    return np.where(np.isnan(responses), np.nan, loss)


def _mean_with_interval(
    sums: Float[np.ndarray, " networks"], counts: Int[np.ndarray, " networks"], within: tuple[float, float]
) -> Estimated:
    """The mean over all responses of a quantity such as the loss, with its 95 % interval over networks.

    sums:   the sum of the quantity over the responses of each network.
    counts: the number of these responses.
    within: the range of the quantity, beyond which the interval does not go.
    """
    has_response = counts > 0
    sums, counts = sums[has_response], counts[has_response]
    mean = float(sums.sum() / counts.sum())
    return Estimated(mean, *ratio_interval(sums, counts, within=within))


def _best_first(scores: Iterable[HeldOut]) -> list[HeldOut]:
    """The scores by mean negative log likelihood, lowest first."""
    return sorted(scores, key=lambda score: score.nll)
