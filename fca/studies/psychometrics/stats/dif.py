"""Differential item functioning: items that are harder for one group of subjects than for another of equal ability."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import chi2, norm

from fca.studies.irt.stats.model import Items, Matrix, Subjects

ETS = -2.35  # delta units a unit of log odds (Holland & Thayer 1988)
LARGE = 1.5  # |delta| of class C
MODERATE = 1.0  # |delta| of class B
STRATA = 5
FEWEST = 5  # right and wrong responses of an item among the subjects that are compared
MAX_STEPS = 25  # of Newton's method
RIDGE = 1e-6  # keeps a step finite where an item is separated; no statistic depends on it
LONGEST_STEP = 5.0  # of a coefficient
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
    low = max(ability[focal].min(), ability[~focal].min())
    high = min(ability[focal].max(), ability[~focal].max())
    shared = np.flatnonzero((ability >= low) & (ability <= high))

    n_strata = min(number, max(len(shared) // 2, 1))
    rank = np.argsort(np.argsort(ability[shared], kind="stable"), kind="stable")
    stratum = np.full(len(ability), -1)
    stratum[shared] = rank * n_strata // max(len(shared), 1)
    return stratum


def mantel_haenszel(responses: Matrix, focal: Member, stratum: Int[np.ndarray, " subjects"]) -> MantelHaenszel:
    """Common odds ratio of a right response, reference against focal group, over strata of equal ability.

    odds = Σ A D / n / Σ B C / n,   χ² = (|Σ A - Σ E A| - 1/2)² / Σ Var A   (Mantel & Haenszel 1959)

    A, B: right and wrong responses of the reference group in a stratum; C, D: of the focal group; n: all four. A
    stratum that lacks a group adds nothing. Standard error of log odds (Robins, Breslow & Greenland 1986), with
    R = A D / n, S = B C / n, P = (A + D) / n and Q = (B + C) / n of each stratum:

    sqrt(Σ P R / (2 (Σ R)²) + Σ (P S + Q R) / (2 Σ R Σ S) + Σ Q S / (2 (Σ S)²))

    >>> responses = np.array([[1.0] * 8 + [0.0] * 2 + [1.0] * 4 + [0.0] * 6]).T
    >>> test = mantel_haenszel(responses, np.arange(20) >= 10, np.zeros(20, dtype=np.int64))
    >>> test.log_odds.round(3), test.p.round(3)
    (array([1.792]), array([0.182]))
    """
    present = ~np.isnan(responses)
    right = (responses == 1).astype(float)
    wrong = (responses == 0).astype(float)

    # Sums over strata, of each item
    n_items = responses.shape[1]
    sum_r, sum_s, sum_pr, sum_ps_qr, sum_qs = np.zeros((5, n_items))
    sum_a, sum_expected, sum_variance = np.zeros((3, n_items))
    n_right, n_wrong = np.zeros((2, n_items))
    for k in range(int(stratum.max(initial=-1)) + 1):
        reference_k = ((stratum == k) & ~focal).astype(float)
        focal_k = ((stratum == k) & focal).astype(float)
        has_both = (reference_k @ present > 0) & (focal_k @ present > 0)
        a = reference_k @ right * has_both
        b = reference_k @ wrong * has_both
        c = focal_k @ right * has_both
        d = focal_k @ wrong * has_both
        n = np.maximum(a + b + c + d, 1.0)

        r = a * d / n
        s = b * c / n
        p = (a + d) / n
        q = (b + c) / n
        sum_r = sum_r + r
        sum_s = sum_s + s
        sum_pr = sum_pr + p * r
        sum_ps_qr = sum_ps_qr + p * s + q * r
        sum_qs = sum_qs + q * s

        # A is hypergeometric if the odds are equal
        n_reference = a + b
        n_right_k = a + c
        sum_a = sum_a + a
        sum_expected = sum_expected + n_reference * n_right_k / n
        spread = n_reference * (n - n_reference) * n_right_k * (n - n_right_k)
        sum_variance = sum_variance + spread * has_both / (n**2 * np.maximum(n - 1, 1.0))
        n_right += n_right_k
        n_wrong += b + d

    is_known = (sum_r > 0) & (sum_s > 0) & (np.minimum(n_right, n_wrong) >= FEWEST)
    sum_r = np.where(is_known, sum_r, np.nan)
    sum_s = np.where(is_known, sum_s, np.nan)
    sum_variance = np.where(is_known, sum_variance, np.nan)
    statistic = np.maximum(np.abs(sum_a - sum_expected) - 0.5, 0.0) ** 2 / sum_variance
    se = np.sqrt(sum_pr / (2 * sum_r**2) + sum_ps_qr / (2 * sum_r * sum_s) + sum_qs / (2 * sum_s**2))
    return MantelHaenszel(np.log(sum_r / sum_s), se, statistic, chi2.sf(statistic, 1))


def ets_class(test: MantelHaenszel) -> list[str | None]:
    """ETS' classes: A negligible, B moderate, C large (Dorans & Holland 1993; Zwick 2012); None where nothing is known.

    A: |delta| below 1, or not different from 0 (p ≥ 0.05); C: |delta| at least 1.5 and more than 1 at the 5 % level,
    one-sided; B: all others.

    >>> values = [np.array([value]) for value in (1.0, 0.1, 9.0, 0.003)]
    >>> ets_class(MantelHaenszel(*values))
    ['C']
    """
    size = np.abs(test.delta)
    is_small = (size < MODERATE) | (test.p >= 0.05)
    is_above_moderate = (size - MODERATE) / test.delta_se > norm.ppf(0.95)
    is_large = (size >= LARGE) & is_above_moderate
    classes = np.where(is_small, "A", np.where(is_large, "C", "B"))
    return [None if is_unknown else str(name) for name, is_unknown in zip(classes, np.isnan(size), strict=True)]


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
    n_wrong = (responses == 0).sum(axis=0)
    n_right = (responses == 1).sum(axis=0)
    has_both_groups = present[focal].any(axis=0) & present[~focal].any(axis=0)
    has_shared_abilities = (strata_of(ability, focal, 1) >= 0).any()
    is_known = (np.minimum(n_wrong, n_right) >= FEWEST) & has_both_groups & has_shared_abilities

    theta = (ability - ability.mean()) / ability.std()
    group = focal.astype(float)
    design = np.stack([np.ones_like(theta), theta, group, theta * group], axis=1)
    responses = responses[:, is_known]
    without_group = _maximised(responses, design[:, :2])  # b0, b1
    without_product = _maximised(responses, design[:, :3])  # b0, b1, b2

    log_odds, uniform, non_uniform = np.full((3, len(is_known)), np.nan)
    is_separated = np.abs(without_product).max(axis=0, initial=0.0) > SEPARATED
    log_odds[is_known] = np.where(is_separated, np.nan, without_product[2])
    uniform[is_known] = chi2.sf(_score_statistic(responses, design[:, :3], without_group), 1)
    non_uniform[is_known] = chi2.sf(_score_statistic(responses, design, without_product), 1)
    return Regression(log_odds, uniform, non_uniform)


def _score_statistic(responses: Matrix, design: Design, without: Float[np.ndarray, "_ items"]) -> Items:
    """Rao's χ² of a design's last column, at the coefficients fitted without it: U² / (I_ll - I_lr I_rr⁻¹ I_rl)."""
    others = design[:, :-1]
    last = design[:, -1]
    present = ~np.isnan(responses)
    p = 1 / (1 + np.exp(-np.clip(others @ without, -30.0, 30.0)))
    score = last @ ((np.nan_to_num(responses) - p) * present)  # U

    weight = p * (1 - p) * present
    k = others.shape[1]
    products = (others[:, :, None] * others[:, None, :]).reshape(len(others), -1)
    i_rr = (products.T @ weight).T.reshape(-1, k, k) + RIDGE * np.eye(k)  # items x k x k
    i_lr = ((others * last[:, None]).T @ weight).T  # items x k
    explained = np.einsum("ik,ik->i", i_lr, np.linalg.solve(i_rr, i_lr[:, :, None])[:, :, 0])  # i: items
    information = last**2 @ weight - explained
    return score**2 / np.maximum(information, RIDGE)


def _maximised(responses: Matrix, design: Design) -> Float[np.ndarray, "k items"]:
    """Coefficients of a logistic regression of every item on the same design, by Newton's steps.

    Where responses are separated they grow without end.
    """
    k = design.shape[1]
    present = ~np.isnan(responses)
    right = np.nan_to_num(responses)
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    beta = np.zeros((k, responses.shape[1]))
    for _ in range(MAX_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30.0, 30.0)))
        gradient = design.T @ ((right - p) * present)
        curvature = (products.T @ (p * (1 - p) * present)).T.reshape(-1, k, k) + RIDGE * np.eye(k)
        step = np.linalg.solve(curvature, gradient.T[:, :, None])[:, :, 0].T
        step *= np.minimum(1.0, LONGEST_STEP / np.maximum(np.abs(step).max(axis=0), 1e-12))
        beta += step
        if np.abs(step).max(initial=0.0) < 1e-6:
            break
    return beta
