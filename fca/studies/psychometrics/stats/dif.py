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
ALPHA = 0.05
STRATA = 5
FEWEST = 5  # an item needs as many right and as many wrong responses
STEPS = 25  # the most steps of Newton's method
RIDGE = 1e-6  # keeps a step finite where an item is separated; no statistic depends on it
LONGEST = 5.0  # largest change of a coefficient in one step
SEPARATED = 12.0  # logits; a larger coefficient has no finite maximum

Member = Bool[np.ndarray, " subjects"]
Design = Float[np.ndarray, "subjects k"]


class MantelHaenszel(NamedTuple):
    """Mantel and Haenszel's statistics of every item; NaN for an item with too few responses.

    log_odds: logarithm of the common odds ratio, above 0 where the item favours the reference group.
    log_odds_se: standard error of log_odds.
    statistic, p: χ² with one degree of freedom, and its p value.
    """

    log_odds: Items
    log_odds_se: Items
    statistic: Items
    p: Items

    @property
    def delta(self) -> Items:
        """The log odds on the scale of ETS: -2.35 log odds, below 0 where the item is harder for the focal group."""
        return ETS * self.log_odds

    @property
    def delta_se(self) -> Items:
        """The standard error of delta."""
        return -ETS * self.log_odds_se


class Regression(NamedTuple):
    """DIF of every item by a logistic regression on ability, group and their product; NaN: too few responses.

    log_odds: coefficient of the group in the model without the product, in logits: above 0 if the item is easier for
        the focal group than for the reference group at equal ability.
    uniform: p value of the coefficient of the group, which moves the curve of the item.
    non_uniform: p value of the coefficient of the product, which changes the slope of the curve.
    """

    log_odds: Items
    uniform: Items
    non_uniform: Items


def strata_of(ability: Subjects, focal: Member, number: int = STRATA) -> Int[np.ndarray, " subjects"]:
    """Divide subjects into strata of similar ability, within which the two groups can be compared.

    Returns the stratum of each subject: 0, 1 ... from low to high ability. It is -1 for a subject whose ability is
    outside of the range that both groups reach, as the other group has no subjects like it.

    focal: whether each subject is in the focal group; the others are the reference group. Neither is empty.
    number: of strata, which have about equally many subjects; fewer if they would have fewer than two subjects each.

    >>> strata_of(np.array([0.1, 0.4, 0.6, 0.5, 0.3, 0.9]), np.array([0, 0, 0, 1, 1, 1], dtype=bool), 2)
    array([-1,  0,  1,  1,  0, -1])
    """
    focal_ability = ability[focal]
    reference_ability = ability[~focal]
    low = max(focal_ability.min(), reference_ability.min())
    high = min(focal_ability.max(), reference_ability.max())
    inside = np.flatnonzero((ability >= low) & (ability <= high))

    rank = np.argsort(np.argsort(ability[inside], kind="stable"), kind="stable")  # twice gives ranks; 0: least able
    n_strata = min(number, max(len(inside) // 2, 1))
    stratum = np.full(len(ability), -1)
    stratum[inside] = rank * n_strata // max(len(inside), 1)  # max: no subject may be inside
    return stratum


def mantel_haenszel(responses: Matrix, focal: Member, stratum: Int[np.ndarray, " subjects"]) -> MantelHaenszel:
    """Common odds ratio of a right response, reference against focal group, over strata of equal ability.

    odds = (Σ A D / n) / (Σ B C / n),   χ² = (|Σ A - Σ E A| - 1/2)² / Σ Var A   (Mantel & Haenszel 1959)

    A, B: number of right and of wrong responses of the reference group in a stratum; C, D: of the focal group; n: sum
    of all four. E A and Var A are the mean and the variance of A if group and response are independent in the stratum.
    A stratum that lacks a group adds nothing. The standard error of log odds (Robins, Breslow & Greenland 1986) is:

    se² = Σ P R / (2 (Σ R)²) + Σ (P S + Q R) / (2 Σ R Σ S) + Σ Q S / (2 (Σ S)²)
    P = (A + D) / n,   Q = (B + C) / n,   R = A D / n,   S = B C / n

    All is NaN for an item with fewer than five right or five wrong responses in the strata that count, or with odds of
    0 or infinity.

    responses: subjects x items; 1, 0, NaN for no response.
    focal: whether each subject is in the focal group.
    stratum: of each subject, from 0; -1 leaves it out.

    >>> responses = np.array([[1.0] * 8 + [0.0] * 2 + [1.0] * 4 + [0.0] * 6]).T
    >>> tested = mantel_haenszel(responses, np.arange(20) >= 10, np.zeros(20, dtype=np.int64))
    >>> tested.log_odds.round(3), tested.p.round(3)
    (array([1.792]), array([0.182]))
    """
    present = ~np.isnan(responses)
    right = (responses == 1).astype(float)
    wrong = (responses == 0).astype(float)

    # sums over strata, each an array over items
    sum_r, sum_s, sum_pr, sum_ps_qr, sum_qs = np.zeros((5, responses.shape[1]))
    sum_a, expected_a, variance_a = np.zeros((3, responses.shape[1]))
    n_right, n_wrong = np.zeros((2, responses.shape[1]))

    for level in range(int(stratum.max(initial=-1)) + 1):  # no stratum at all if every subject is left out
        # products with these 0/1 vectors count the responses of a group to each item
        in_reference = ((stratum == level) & ~focal).astype(float)
        in_focal = ((stratum == level) & focal).astype(float)
        has_both_groups = (in_reference @ present > 0) & (in_focal @ present > 0)

        a = (in_reference @ right) * has_both_groups
        b = (in_reference @ wrong) * has_both_groups
        c = (in_focal @ right) * has_both_groups
        d = (in_focal @ wrong) * has_both_groups
        n = np.maximum(a + b + c + d, 1.0)  # 1 where all are 0: avoids 0 / 0

        p = (a + d) / n
        q = (b + c) / n
        r = a * d / n
        s = b * c / n
        sum_r += r
        sum_s += s
        sum_pr += p * r
        sum_ps_qr = sum_ps_qr + p * s + q * r
        sum_qs += q * s

        # A is hypergeometric, given the size of the reference group and the number of right responses
        reference_size = a + b
        right_total = a + c
        sum_a += a
        expected_a += reference_size * right_total / n
        margins = reference_size * (n - reference_size) * right_total * (n - right_total)
        variance_a += margins / (n**2 * np.maximum(n - 1, 1.0))

        n_right += right_total
        n_wrong += b + d

    is_testable = (sum_r > 0) & (sum_s > 0) & (np.minimum(n_right, n_wrong) >= FEWEST)
    sum_r = np.where(is_testable, sum_r, np.nan)
    sum_s = np.where(is_testable, sum_s, np.nan)
    variance_a = np.where(is_testable, variance_a, np.nan)

    statistic = np.maximum(np.abs(sum_a - expected_a) - 0.5, 0.0) ** 2 / variance_a
    se = np.sqrt(sum_pr / (2 * sum_r**2) + sum_ps_qr / (2 * sum_r * sum_s) + sum_qs / (2 * sum_s**2))
    return MantelHaenszel(np.log(sum_r / sum_s), se, statistic, chi2.sf(statistic, 1))


def ets_class(tested: MantelHaenszel) -> list[str | None]:
    """The ETS class of every item: A negligible, B moderate, C large DIF; None for an item that was not tested.

    DIF is differential item functioning, and ETS the Educational Testing Service. delta is the logarithm of the common
    odds ratio, reference against focal group, times -2.35.

    A: |delta| below 1, or not significantly different from 0 (p ≥ 0.05); C: |delta| at least 1.5 and significantly
    above 1 (5 % level, one-sided); B: all others (Dorans & Holland 1993; Zwick 2012).

    >>> values = [np.array([value]) for value in (1.0, 0.1, 9.0, 0.003)]
    >>> ets_class(MantelHaenszel(*values))
    ['C']
    """
    size = np.abs(tested.delta)
    is_negligible = (size < MODERATE) | (tested.p >= ALPHA)
    is_large = (size >= LARGE) & ((size - MODERATE) / tested.delta_se > norm.ppf(1 - ALPHA))

    class_names = np.where(is_negligible, "A", np.where(is_large, "C", "B"))
    is_untested = np.isnan(size)
    return [None if untested else str(name) for name, untested in zip(class_names, is_untested, strict=True)]


def logistic_dif(responses: Matrix, focal: Member, ability: Subjects) -> Regression:
    """Differential item functioning (DIF) of every item by logistic regression (Swaminathan & Rogers 1990).

    The chance P of a right response to an item depends on a subject's standardised ability θ and on its group g, which
    is 1 for the focal and 0 for the reference group:

    logit P = b0 + b1 θ + b2 g + b3 θ g

    Uniform DIF is a difference between the groups that is the same at every ability: b2 is not 0, in the model without
    the product (b3 = 0). Non-uniform DIF is a difference that changes with ability: b3 is not 0. Both are tested by
    Rao's score test, χ² with one degree of freedom, from the fit without the tested coefficient. The likelihood ratio
    test rejects too often with few subjects. Share of p < 0.05 in simulations without DIF, at 34, 65 and 130 subjects
    (experiments/irt_corruption/dif_levels.py):

                   score test         likelihood ratio test
    uniform        5.4, 5.6, 4.9 %    6.2, 6.2, 5.3 %
    non-uniform    5.4, 5.3, 4.7 %    11.1, 7.7, 5.6 %

    responses: subjects x items; 1, 0, NaN for no response.
    focal: whether each subject is in the focal group.
    ability: of each subject, on any scale.

    The results of an item are NaN if it has fewer than five right or five wrong responses, or no response of one group.
    They are NaN for all items if the groups' ranges of ability do not overlap. log_odds, the estimate of b2 without the
    product, is also NaN where ability and group separate right from wrong responses, so that b2 has no finite estimate.

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
    groups_overlap = (strata_of(ability, focal, 1) >= 0).any()  # any subject within the range that both groups reach
    is_testable = (np.minimum(n_wrong, n_right) >= FEWEST) & has_both_groups & groups_overlap
    tested = responses[:, is_testable]

    # columns of the design: 1, θ, g, θ g
    theta = (ability - ability.mean()) / ability.std()
    group = focal.astype(float)
    design = np.stack([np.ones_like(theta), theta, group, theta * group], axis=1)  # subjects x 4
    ability_only = _fit_coefficients(tested, design[:, :2])  # b0, b1 of each tested item
    ability_and_group = _fit_coefficients(tested, design[:, :3])  # b0, b1, b2

    # a coefficient this large shows that the likelihood has no finite maximum
    is_separated = np.abs(ability_and_group).max(axis=0, initial=0.0) > SEPARATED
    group_coefficient = ability_and_group[2]

    log_odds, uniform, non_uniform = np.full((3, len(is_testable)), np.nan)
    log_odds[is_testable] = np.where(is_separated, np.nan, group_coefficient)
    uniform[is_testable] = chi2.sf(_score_statistic(tested, design[:, :3], ability_only), 1)  # of b2 = 0
    non_uniform[is_testable] = chi2.sf(_score_statistic(tested, design, ability_and_group), 1)  # of b3 = 0
    return Regression(log_odds, uniform, non_uniform)


def _score_statistic(responses: Matrix, design: Design, coefficients: Float[np.ndarray, "_ items"]) -> Items:
    """Rao's score statistic, for every item, of the hypothesis that the last coefficient of a regression is 0.

    U² / (I_ll - I_lr I_rr⁻¹ I_rl),   χ² with one degree of freedom

    U is the derivative of the log likelihood by the last coefficient, at 0, and I the information matrix; l is the last
    column of the design, and r are the columns before it.

    responses: subjects x items; 1, 0, NaN for no response.
    design: all columns of the regression, subjects x k.
    coefficients: of the columns before the last one, from a fit without the last column; one column for each item.
    """
    fitted_columns = design[:, :-1]
    last_column = design[:, -1]
    present = ~np.isnan(responses)
    p = 1 / (1 + np.exp(-np.clip(fitted_columns @ coefficients, -30.0, 30.0)))  # clipped: exp does not overflow
    score = last_column @ ((np.nan_to_num(responses) - p) * present)  # U

    weight = p * (1 - p) * present
    k = fitted_columns.shape[1]
    information_rr = _weighted_products(fitted_columns, weight) + RIDGE * np.eye(k)  # RIDGE: never singular
    information_lr = ((fitted_columns * last_column[:, None]).T @ weight).T  # items x k
    solved = np.linalg.solve(information_rr, information_lr[:, :, None])[:, :, 0]  # I_rr⁻¹ I_rl: items x k
    explained = np.einsum("ik,ik->i", information_lr, solved)  # i: item, k: fitted column
    remaining_information = last_column**2 @ weight - explained  # I_ll - I_lr I_rr⁻¹ I_rl
    return score**2 / np.maximum(remaining_information, RIDGE)  # RIDGE: no division by 0


def _fit_coefficients(responses: Matrix, design: Design) -> Float[np.ndarray, "k items"]:
    """The coefficients of a logistic regression of every item on the same design, by Newton's method.

    Where the design separates right from wrong responses, the likelihood has no finite maximum. The coefficients then
    grow until the last step; the caller recognises them by their size. RIDGE on the curvature keeps the steps finite.

    responses: subjects x items; 1, 0, NaN for no response.
    design: the k regressors of each subject.
    """
    k = design.shape[1]
    present = ~np.isnan(responses)
    right = np.nan_to_num(responses)
    beta = np.zeros((k, responses.shape[1]))

    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30.0, 30.0)))  # clipped: exp does not overflow
        gradient = design.T @ ((right - p) * present)
        curvature = _weighted_products(design, p * (1 - p) * present) + RIDGE * np.eye(k)
        step = np.linalg.solve(curvature, gradient.T[:, :, None])[:, :, 0].T  # k x items: one solution for each item

        # a shorter step where a coefficient would change by more than LONGEST
        largest_change = np.abs(step).max(axis=0)
        step *= np.minimum(1.0, LONGEST / np.maximum(largest_change, 1e-12))
        beta += step
        if np.abs(step).max(initial=0.0) < 1e-6:  # converged for all items
            break

    return beta


def _weighted_products(design: Design, weight: Matrix) -> Float[np.ndarray, "items k k"]:
    """Σ_s w_si x_s x_sᵀ of every item i, for rows x_s of the design and weights w: the information of a regression."""
    k = design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)  # x_s x_sᵀ: subjects x k²
    return (products.T @ weight).T.reshape(-1, k, k)
