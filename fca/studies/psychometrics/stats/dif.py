"""Differential item functioning: items that are harder for one group of subjects than for another of equal ability."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import chi2, norm

from fca.studies.irt.stats.model import Items, Matrix, Subjects

ETS = -2.35  # delta units a unit of log odds (Holland & Thayer 1988)
LARGE, MODERATE = 1.5, 1.0  # of |delta|: class C, class B
STRATA = 5
FEWEST = 5  # right and wrong responses of an item among the subjects that are compared
STEPS = 25
RIDGE = 1e-6  # keeps a step finite where an item is separated; no statistic depends on it
LONGEST = 5.0  # of one step
SEPARATED = 12.0  # logits: coefficients that grow without end

Member = Bool[np.ndarray, " subjects"]
Design = Float[np.ndarray, "subjects k"]


class MantelHaenszel(NamedTuple):
    """log_odds: of the common odds ratio, above 0 where the item favours the reference. NaN: not enough responses.

    delta: the same on ETS' scale, below 0 where the item is harder for the focal group.
    """

    log_odds: Items
    log_odds_se: Items
    statistic: Items
    p: Items

    @property
    def delta(self) -> Items:
        """-2.35 log odds (Holland & Thayer 1988)."""
        return ETS * self.log_odds

    @property
    def delta_se(self) -> Items:
        """Its standard error."""
        return -ETS * self.log_odds_se


class Regression(NamedTuple):
    """p values of a logistic regression on ability, group and their product; NaN: not enough responses.

    log_odds: of the group at equal ability, above 0 where the item favours the focal group (model without product).
    uniform: the group moves the curve; non_uniform: it changes its slope.
    """

    log_odds: Items
    uniform: Items
    non_uniform: Items


def strata_of(ability: Subjects, focal: Member, number: int = STRATA) -> Int[np.ndarray, " subjects"]:
    """Strata of like ability among those that both groups reach, of equal size; -1 for subjects outside.

    >>> strata_of(np.array([0.1, 0.4, 0.6, 0.5, 0.3, 0.9]), np.array([0, 0, 0, 1, 1, 1], dtype=bool), 2)
    array([-1,  0,  1,  1,  0, -1])
    """
    groups = ability[focal], ability[~focal]
    low, high = max(group.min() for group in groups), min(group.max() for group in groups)
    inside = np.flatnonzero((ability >= low) & (ability <= high))
    stratum = np.full(len(ability), -1)
    place = np.argsort(np.argsort(ability[inside], kind="stable"), kind="stable")
    stratum[inside] = place * min(number, max(len(inside) // 2, 1)) // max(len(inside), 1)
    return stratum


def mantel_haenszel(responses: Matrix, focal: Member, stratum: Int[np.ndarray, " subjects"]) -> MantelHaenszel:
    """Common odds ratio of a right response, reference against focal group, over strata of equal ability.

    odds = Σ A D / n / Σ B C / n,   χ² = (|Σ A - Σ E A| - 1/2)² / Σ Var A   (Mantel & Haenszel 1959)

    A, B: right and wrong responses of the reference group in a stratum; C, D: of the focal group; n: all four. Standard
    error of log odds: Robins, Breslow & Greenland (1986). A stratum that lacks a group adds nothing.

    >>> responses = np.array([[1.0] * 8 + [0.0] * 2 + [1.0] * 4 + [0.0] * 6]).T
    >>> found = mantel_haenszel(responses, np.arange(20) >= 10, np.zeros(20, dtype=np.int64))
    >>> found.log_odds.round(3), found.p.round(3)
    (array([1.792]), array([0.182]))
    """
    present = ~np.isnan(responses)
    right, wrong = (responses == 1).astype(float), (responses == 0).astype(float)
    r, s, pr, cross, qs, a, expected, variance = np.zeros((8, responses.shape[1]))
    compared = np.zeros((2, responses.shape[1]))
    for at in range(int(stratum.max(initial=-1)) + 1):
        reference, other = (((stratum == at) & group).astype(float) for group in (~focal, focal))
        counts = reference @ right, reference @ wrong, other @ right, other @ wrong
        some = (reference @ present > 0) & (other @ present > 0)
        ref_right, ref_wrong, foc_right, foc_wrong = (count * some for count in counts)
        n = np.maximum(ref_right + ref_wrong + foc_right + foc_wrong, 1.0)
        agree, differ = ref_right * foc_wrong / n, ref_wrong * foc_right / n
        even, odd = (ref_right + foc_wrong) / n, (ref_wrong + foc_right) / n
        margin = (ref_right + ref_wrong, ref_right + foc_right)
        r, s, a = r + agree, s + differ, a + ref_right
        pr, cross, qs = pr + even * agree, cross + even * differ + odd * agree, qs + odd * differ
        expected = expected + margin[0] * margin[1] / n
        left = margin[0] * (n - margin[0]) * margin[1] * (n - margin[1])
        variance = variance + left * some / (n**2 * np.maximum(n - 1, 1.0))
        compared += np.stack([ref_right + foc_right, ref_wrong + foc_wrong])
    known = (r > 0) & (s > 0) & (compared.min(axis=0) >= FEWEST)
    r, s, variance = (np.where(known, values, np.nan) for values in (r, s, variance))
    statistic = np.maximum(np.abs(a - expected) - 0.5, 0.0) ** 2 / variance
    se = np.sqrt(pr / (2 * r**2) + cross / (2 * r * s) + qs / (2 * s**2))
    return MantelHaenszel(np.log(r / s), se, statistic, chi2.sf(statistic, 1))


def ets_class(found: MantelHaenszel) -> list[str | None]:
    """ETS' classes: A negligible, B moderate, C large (Dorans & Holland 1993; Zwick 2012); None where nothing is known.

    A: |delta| below 1, or not different from 0 (p ≥ .05); C: |delta| at least 1.5 and more than 1 at the 5 % level,
    one-sided; B: all others.

    >>> values = [np.array([value]) for value in (1.0, 0.1, 9.0, 0.003)]
    >>> ets_class(MantelHaenszel(*values))
    ['C']
    """
    size, se = np.abs(found.delta), found.delta_se
    small = (size < MODERATE) | (found.p >= 0.05)
    large = (size >= LARGE) & ((size - MODERATE) / se > norm.ppf(0.95))
    named = np.where(small, "A", np.where(large, "C", "B"))
    return [None if unknown else str(name) for name, unknown in zip(named, np.isnan(size), strict=True)]


def logistic_dif(responses: Matrix, focal: Member, ability: Subjects) -> Regression:
    """Uniform and non-uniform DIF of every item by logistic regression (Swaminathan & Rogers 1990), by score tests.

    logit P = b0 + b1 θ + b2 g + b3 θ g;   uniform: b2 with b3 = 0 against 0;   non-uniform: b3 against 0; each χ²(1)

    Rao's score test, from the fit without the coefficient, because the likelihood ratio does not hold its level with
    few subjects. Simulated without DIF, p < 0.05 at 34, 65 and 130 subjects: uniform 5.4, 5.6, 4.9 %, non-uniform 5.4,
    5.3, 4.7 % (likelihood ratio: 6.2, 6.2, 5.3 % and 11.1, 7.7, 5.6 %); experiments/irt_corruption/dif_levels.py.

    NaN below five right or five wrong responses of an item, where a group has no response to it, and everywhere if no
    ability is reached by both groups; log_odds also where ability and group separate right from wrong.

    >>> rng = np.random.default_rng(0)
    >>> ability, focal = rng.normal(size=200), np.arange(200) < 100
    >>> responses = (rng.random((200, 1)) < 1 / (1 + np.exp(-ability + 2 * focal))[:, None]).astype(float)
    >>> bool(logistic_dif(responses, focal, ability).uniform[0] < 0.001)
    True
    """
    present = ~np.isnan(responses)
    totals = np.stack([(responses == value).sum(axis=0) for value in (0, 1)])
    known = (totals.min(axis=0) >= FEWEST) & present[focal].any(axis=0) & present[~focal].any(axis=0)
    known &= (strata_of(ability, focal, 1) >= 0).any()
    theta, group = (ability - ability.mean()) / ability.std(), focal.astype(float)
    design = np.stack([np.ones_like(theta), theta, group, theta * group], axis=1)
    of_known = [_maximised(responses[:, known], design[:, :k]) for k in (2, 3)]
    found = np.full((3, len(known)), np.nan)
    beyond = np.abs(of_known[1]).max(axis=0, initial=0.0) > SEPARATED
    found[0, known] = np.where(beyond, np.nan, of_known[1][2])
    for at in (1, 2):
        without = of_known[at - 1]
        found[at, known] = chi2.sf(_score_statistic(responses[:, known], design[:, : at + 2], without), 1)
    return Regression(*found)


def _score_statistic(responses: Matrix, design: Design, without: Float[np.ndarray, "_ items"]) -> Items:
    """Rao's χ² of a design's last column, at the coefficients fitted without it: U² / (I_ll - I_lr I_rr⁻¹ I_rl)."""
    others, last = design[:, :-1], design[:, -1]
    present = ~np.isnan(responses)
    p = 1 / (1 + np.exp(-np.clip(others @ without, -30.0, 30.0)))
    score = last @ ((np.nan_to_num(responses) - p) * present)

    weight = p * (1 - p) * present
    k = others.shape[1]
    products = (others[:, :, None] * others[:, None, :]).reshape(len(others), -1)
    of_others = (products.T @ weight).T.reshape(-1, k, k) + RIDGE * np.eye(k)
    between = ((others * last[:, None]).T @ weight).T
    explained = np.einsum("ik,ik->i", between, np.linalg.solve(of_others, between[:, :, None])[:, :, 0])
    information = last**2 @ weight - explained
    return score**2 / np.maximum(information, RIDGE)


def _maximised(responses: Matrix, design: Design) -> Float[np.ndarray, "k items"]:
    """Coefficients of a logistic regression of every item on the same design, by Newton's steps.

    Where responses are separated they grow without end.
    """
    k = design.shape[1]
    present, right = ~np.isnan(responses), np.nan_to_num(responses)
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    beta = np.zeros((k, responses.shape[1]))
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30.0, 30.0)))
        gradient = design.T @ ((right - p) * present)
        curvature = (products.T @ (p * (1 - p) * present)).T.reshape(-1, k, k) + RIDGE * np.eye(k)
        step = np.linalg.solve(curvature, gradient.T[:, :, None])[:, :, 0].T
        step *= np.minimum(1.0, LONGEST / np.maximum(np.abs(step).max(axis=0), 1e-12))
        beta += step
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return beta
