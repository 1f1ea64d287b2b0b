"""Networks stay on one side, whatever is held out; the score of a choice is of responses that did not choose."""

from collections import Counter
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.metrics import log_loss

from fca.studies.irt.stats import ItemBank, choose_model, excess, fit_irt, held_out, held_out_fit, hide, score_ability
from fca.types import FcaError
from tests.studies.irt.support.planted import planted, with_holes

WAYS = ("cells", "subjects")


def copies(networks=12, snapshots=6, items=300, seed=0):
    """Snapshots that differ from their network in 2 % of the responses, and the least loss an honest prediction has."""
    rng = np.random.default_rng(seed)
    p = expit(rng.normal(size=(networks, 1)) - rng.normal(0, 0.7, items))
    correct = np.repeat((rng.random(p.shape) < p).astype(float), snapshots, axis=0)
    flipped = rng.random(correct.shape) < 0.02
    entropy = float(np.mean(-p * np.log(p) - (1 - p) * np.log(1 - p)))
    return np.where(flipped, 1 - correct, correct), np.repeat(np.arange(networks), snapshots), entropy


@pytest.mark.parametrize("hold_out", WAYS)
def test_copies_of_a_network_predict_each_other_unless_they_stand_on_one_side(hold_out):
    """No prediction can honestly have less loss than the planted chances themselves have."""
    correct, network, entropy = copies()
    leaking = held_out_fit(correct, hold_out=hold_out)
    honest = held_out_fit(correct, hold_out=hold_out, network=network)
    assert leaking.nll < entropy - 0.02, "six snapshots give the noise of their network away"
    assert honest.nll > entropy
    assert honest.low < honest.nll < honest.high


def test_held_out_networks_are_scored_as_by_brute_force():
    """Ability by scipy's minimiser, loss by scikit-learn, fold by fold."""
    responses, network = planted(14, 60).responses, np.arange(14) // 2
    split = held_out.split_networks(responses, network, np.random.default_rng(5))
    right, p = [], []
    for at in range(split.folds):
        bank = fit_irt(responses[split.fold != at]).bank
        for subject in np.flatnonzero(split.fold == at):
            shown = split.shown[subject]

            def height(ability, own=responses[subject], shown=shown, bank=bank):
                chance = bank.probability(np.array([ability]))[0]
                return ability**2 / 2 - np.log(np.where(own == 1, chance, 1 - chance))[shown].sum()

            ability = minimize_scalar(height, bounds=(-6, 6), method="bounded", options={"xatol": 1e-10}).x
            p += bank.probability(np.array([ability]))[0][~shown].tolist()
            right += responses[subject][~shown].tolist()
    held = held_out_fit(responses, seed=5, hold_out="subjects", network=network)
    assert held.cells == len(right)
    assert held.nll == pytest.approx(log_loss(right, p), abs=1e-6)  # of the minimiser
    assert held.loss.sum() / held.number.sum() == pytest.approx(held.nll)


def test_every_network_is_held_out_once_and_whole():
    responses, network = with_holes(planted(20, 80).responses, 0.3), np.arange(20) % 7
    split = held_out.split_networks(responses, network, np.random.default_rng(0))
    assert all(len(set(split.fold[network == at])) == 1 for at in range(7))
    assert set(split.fold) == set(range(5))
    held = held_out_fit(responses, hold_out="subjects", network=network)
    present = ~np.isnan(responses) & ~split.shown
    assert held.number.tolist() == [present[network == at].sum() for at in range(7)]
    hidden = hide(responses, 0.2, 0, network)
    for at in range(7):
        own, known = hidden[network == at], ~np.isnan(responses[network == at])
        assert not (own.any(axis=0) & (known & ~own).any(axis=0)).any(), "hidden for one snapshot, seen for another"


def test_outer_responses_take_no_part_in_the_choice_or_the_fit():
    """Turned round, they change neither; only the score, by as much as they should."""
    responses, network = planted(15, 80).responses, np.arange(15) // 3
    outer = hide(responses, 0.1, 4, network)
    turned = np.where(outer, 1 - responses, responses)
    found, again = (choose_model(one, ["1pl", "2pl"], seed=4, network=network) for one in (responses, turned))
    assert [one.nll for one in found.candidates] == [one.nll for one in again.candidates]
    assert again.outer.accuracy == pytest.approx(1 - found.outer.accuracy)
    assert found.outer.nll == held_out_fit(responses, found.model, seed=4, network=network).nll


def test_the_nested_score_of_left_out_networks_is_that_of_brute_force():
    responses, names = planted(20, 60, seed=2).responses, ["1pl", "2pl"]
    split = held_out.split_networks(responses, np.arange(20), np.random.default_rng(1))

    def losses(model, out, scored):
        bank = fit_irt(responses[~np.isin(split.fold, out)], model).bank
        own, shown = responses[split.fold == scored], split.shown[split.fold == scored]
        p = bank.probability(score_ability(np.where(shown, own, np.nan), bank).ability)
        return -np.log(np.where(own == 1, p, 1 - p))[~shown]

    parts = []
    for outer in range(5):
        others = [at for at in range(5) if at != outer]
        inner = [np.concatenate([losses(name, (outer, at), at) for at in others]).mean() for name in names]
        parts.append(losses(names[int(np.argmin(inner))], (outer,), outer))
    fits = []
    found = choose_model(responses, names, seed=1, hold_out="subjects", watch=lambda jobs: fits.extend(jobs) or jobs)
    assert found.outer.nll == pytest.approx(np.concatenate(parts).mean(), rel=1e-9)
    assert found.candidates[0].nll == held_out_fit(responses, found.model, seed=1, hold_out="subjects").nll
    left_out = [*((at,) for at in range(5)), *combinations(range(5), 2)]
    assert Counter(fits) == Counter((name, out) for name in names for out in left_out)


class Knowing(NamedTuple):
    """A fit that learned nothing: it has its own idea of each item, and all subjects are alike."""

    bank: ItemBank
    ability: np.ndarray

    def probability(self):
        return self.bank.probability(self.ability)


@pytest.mark.parametrize("hold_out", WAYS)
@pytest.mark.slow
def test_of_models_that_know_nothing_the_best_looks_good_and_its_nested_score_does_not(hold_out, monkeypatch):
    """Coin flips, and four models with the same difficulties dealt at random, so that all are equally wrong."""
    levels, one = np.linspace(-2.5, 2.5, 30), np.ones(30)
    expected = -np.log(expit(levels) * expit(-levels)).mean() / 2

    def fit(responses, name):
        dealt = np.random.default_rng([*map(ord, name), draw]).permutation(levels)
        return Knowing(ItemBank("2pl", dealt, one, one, 0 * one), np.zeros(len(responses)))

    monkeypatch.setattr(held_out, "fit_irt", fit)
    monkeypatch.setattr(held_out, "score_ability", lambda shown, bank: Knowing(bank, np.zeros(len(shown))))
    inner, outer = [], []
    for draw in range(40):
        responses = (np.random.default_rng([draw, 1]).random((20, 30)) < 0.5).astype(float)
        found = choose_model(responses, seed=draw, hold_out=hold_out)
        inner.append(found.candidates[0].nll - expected)
        outer.append(found.outer.nll - expected)
    inner_error, outer_error = (np.std(of) / np.sqrt(len(of)) for of in (inner, outer))
    assert np.mean(inner) < -4 * inner_error
    assert abs(np.mean(outer)) < 3 * outer_error


def test_the_excess_of_a_wrong_model_is_paired_by_network():
    rng, network = np.random.default_rng(0), np.arange(40) // 2
    z = np.where(np.arange(200) % 2, 0.4, 2.5) * (rng.normal(size=(40, 1)) - rng.normal(size=200))
    responses = (rng.random(z.shape) < expit(z)).astype(float)
    wrong, right = (held_out_fit(responses, model, hold_out="subjects", network=network) for model in ("1pl", "2pl"))
    more = excess(wrong, right)
    assert more.value == pytest.approx(wrong.nll - right.nll)
    assert 0 < more.low < more.value < more.high
    assert more.high - more.low < wrong.high - wrong.low
    few = held_out_fit(responses[:8], network=np.arange(8) // 2)
    means = few.loss / few.number
    assert few.low < means.mean() < few.high, "four networks have Student's interval, corrected for skewness"


def test_an_excess_may_be_below_zero_and_changes_its_sign_with_the_two_models():
    rng = np.random.default_rng(0)
    responses = (rng.random((40, 60)) < expit(rng.normal(size=(40, 1)) - rng.normal(size=60))).astype(float)
    one, two = (held_out_fit(responses, model, hold_out="subjects") for model in ("1pl", "2pl"))
    more, less = excess(two, one), excess(one, two)
    assert tuple(more) == pytest.approx((-less.value, -less.high, -less.low), abs=1e-12)
    assert min(more.low, less.low) < 0


def test_too_few_networks_are_an_error():
    responses = planted(6, 40).responses
    with pytest.raises(FcaError, match="networks to hold out = 2; allowed: 3 or more"):
        held_out_fit(responses, hold_out="subjects", network=np.arange(6) // 3)
    with pytest.raises(FcaError, match="networks to hold out = 3; allowed: 4 or more"):
        choose_model(responses, hold_out="subjects", network=np.arange(6) // 2)
    with pytest.raises(FcaError, match="answers that can be hidden = 0 of 240"):
        held_out_fit(responses, network=np.zeros(6, dtype=int))
    with pytest.raises(FcaError, match="hold_out = images; allowed: cells, subjects"):
        held_out_fit(responses, hold_out="images")


def test_networks_that_alone_link_the_others_are_predicted_by_the_largest_part():
    responses = planted(9, 60).responses
    responses[:4, 30:] = np.nan
    responses[4:8, :30] = np.nan  # the last subject links both blocks
    held = held_out_fit(responses, "1pl", hold_out="subjects")
    split = held_out.split_networks(responses, np.arange(9), np.random.default_rng(0))
    fold = split.fold == split.fold[8]
    assert held.unlinked == tuple(np.flatnonzero(fold))

    others = responses[~fold]
    of_first = ~np.isnan(others[:, :30]).all(axis=1)
    largest = slice(0, 30) if of_first.sum() >= (~of_first).sum() else slice(30, 60)
    bank = fit_irt(others[of_first == (largest.start == 0)][:, largest], "1pl").bank
    shown = split.shown[8, largest]
    own = responses[8, largest]
    ability = score_ability(np.where(shown, own, np.nan)[None], bank).ability
    chance = bank.probability(ability)[0][~shown]
    right = own[~shown]
    assert held.number[8] == len(right)
    assert held.loss[8] == pytest.approx(log_loss(right, chance) * len(right), abs=1e-9)
