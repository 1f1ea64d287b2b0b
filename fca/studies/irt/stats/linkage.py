"""How firmly common items link groups of subjects, so that their abilities can be compared.

Subjects with responses to different items are on one scale only through items to which both have responses. If these
are few, the difference of two groups' mean abilities (the shift between them) is uncertain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from fca.studies.irt.stats.model import IrtFit, Matrix, parts_of

LARGEST_SHIFT_SE = 0.5  # standard error of a shift, in the unit of ability; subjects usually differ by twice that
LEAST_KEPT = 0.5  # share of a shift that the responses keep, below which the prior decides more of it
MOST_WIDENED = 1.25  # standard error over that of a balanced design, up to which few responses make it wide
UNEVENNESS = 0.2  # added to MOST_WIDENED per unit of that standard error: with few responses random designs are uneven
MOST_IN_COMMON = 0.5  # share of a group's information that it has in common with the others, if it is set apart


class Link(NamedTuple):
    """How firmly the two groups of subjects that have least in common are on one scale.

    group:     which subjects are in the smaller group.
    responses: number of responses to items that both groups responded to, in the group with fewer such responses.
    shift_se:  standard error of the difference of the groups' mean abilities by the responses alone, in the unit of
               ability; infinite where the groups share only items, or subjects, that were always right or always wrong.
    kept:      share of this difference that the fit keeps; the prior, for which all subjects are of one population,
               draws the difference towards 0.
    gap:       the difference as fitted: mean ability of the group minus the mean ability of the others.
    balanced_se:  standard error of the difference if every two subjects had equally many items in common. This much is
               uncertain in any design with so few responses.
    """

    group: Bool[np.ndarray, " subjects"]
    responses: int
    shift_se: float
    kept: float
    gap: float = 0.0
    balanced_se: float = 0.0

    @property
    def is_weak(self) -> bool:
        """Whether the groups' abilities cannot be compared, because too few common items link the groups.

        Their difference is too uncertain in three cases: its standard error is above 0.5, so that it could as well be a
        whole standard deviation of ability smaller or larger; the prior decides more of it than the responses do; or
        the prior draws it towards 0 by more than 0.5. The link is not to blame, and not weak, if a balanced design with
        as many responses would have nearly the same standard error.
        """
        largest_ratio = MOST_WIDENED + UNEVENNESS * self.balanced_se
        if self.shift_se <= largest_ratio * self.balanced_se:
            return False  # few responses, not few common items, make the difference uncertain

        if self.shift_se > LARGEST_SHIFT_SE or self.kept < LEAST_KEPT:
            return True
        taken_by_prior = abs(self.gap) * (1 / self.kept - 1)  # by the responses alone the gap is gap / kept
        return taken_by_prior > LARGEST_SHIFT_SE


def weakest_link(responses: Matrix, fit: IrtFit) -> Link | None:
    """Find the two groups of subjects that have least in common, and how firmly their items link them on one scale.

    responses: 1 right, 0 wrong, NaN missing.
    fit: a fit of these responses, from which the Fisher information of each response is computed.

    None where no group is set apart: if nothing is missing, if fewer than two subjects had both right and wrong
    responses, or if every group has half of its information or more in common with the others.

    The result (`Link`) has the smaller group, the number of responses that link it to the others, and four measures of
    the difference of the two groups' mean abilities:
    gap:         the difference as fitted.
    shift_se:    its standard error by the responses alone.
    kept:        the share of it that is left after the prior draws it towards 0.
    balanced_se: the standard error that as many responses would give if every two subjects had equally many items in
                 common.

    How groups are found: subjects are ordered so that those with much information in common are neighbours (normalised
    cut; Shi & Malik 2000), and this order is cut into two groups where least information crosses. An item informs on
    the difference of two groups by w v / (w + v), with w and v the Fisher information of each group's responses to it.

    An item that all subjects got right, or all got wrong, informs on no difference (Fischer 1981), nor does a subject
    with only right or only wrong responses. Both are left out.

    >>> from fca.studies.irt.stats import fit_irt
    >>> responses = (np.random.default_rng(0).random((8, 41)) < 0.5).astype(float)
    >>> responses[:4, :20] = responses[4:, 21:] = np.nan  # one item in common
    >>> link = weakest_link(responses, fit_irt(responses, "1pl"))
    >>> int(link.group.sum()), link.responses, round(link.shift_se, 1)
    (4, 4, 1.5)
    """
    present = ~np.isnan(responses)
    if present.all():  # all subjects have all items in common
        return None

    subjects, items = _find_informative(responses)
    if len(subjects) < 2:
        return None
    informative_responses = responses[np.ix_(subjects, items)]
    # parts: subjects of different parts have no informative item in common, not even through other subjects
    part_of_subject = parts_of(informative_responses)
    if part_of_subject.max() > 0:  # two parts or more: the last part, which is the smallest, is the group set apart
        last_part = subjects[part_of_subject == part_of_subject.max()]  # positions among all subjects
        # without a link the difference is undetermined; `gap` and `balanced_se` are not computed and stay 0
        return Link(_membership(len(responses), last_part), responses=0, shift_se=float("inf"), kept=0.0)

    # information of each response, and what each two subjects have in common: Σ w_i w_j / Σ w over the items
    information = _response_information(fit, subjects, items)
    weight = np.where(np.isnan(informative_responses), 0.0, information)  # subjects x items
    common = weight / weight.sum(axis=0) @ weight.T  # subjects x subjects
    is_in_group = _find_group_apart(weight, common)
    if is_in_group is None:
        return None
    # contrast: weights of the subjects, such that contrast @ abilities is the mean of the group less that of the others
    contrast = is_in_group / is_in_group.sum() - ~is_in_group / (~is_in_group).sum()
    # a fit does not keep the variance of difficulty that it has learned, but this is nearly equal
    difficulty_variance = float(np.var(fit.difficulty) + np.mean(fit.difficulty_se**2))
    shift_variance, variance_with_prior, balanced_variance = _shift_variances(
        weight, common, contrast, difficulty_variance
    )

    return Link(
        group=_membership(len(responses), subjects[is_in_group]),
        responses=_count_common_responses(informative_responses, is_in_group),
        shift_se=float(np.sqrt(shift_variance)),
        # a normal prior with mean 0 multiplies an estimate by posterior variance / variance without the prior
        kept=variance_with_prior / shift_variance,
        gap=float(contrast @ fit.ability[subjects]),
        balanced_se=float(np.sqrt(balanced_variance)),
    )


def _shift_variances(
    weight: Float[np.ndarray, "some others"],
    common: Float[np.ndarray, "some some"],
    contrast: Float[np.ndarray, " some"],
    difficulty_variance: float,
) -> tuple[float, float, float]:
    """Variance of the difference c' θ of two groups' mean abilities: by the responses, with the prior, if balanced.

    By the responses alone: c' L⁺ c. L is the information on abilities after difficulties are eliminated. It is
    singular, because adding a constant to all abilities changes nothing; L⁺ is its pseudo-inverse.
    With the prior: c' M⁻¹ c. M is L with the prior's information added, which is 1 on each ability and
    1 / difficulty_variance on each difficulty, before the difficulties are eliminated.
    In a balanced design with as many responses: (n - 1) / n Σ c² / d. There are n subjects, and d, the diagonal of L,
    is the information on the ability of each subject if the abilities of all others were known. With k responses to
    each item this is the variance in balanced incomplete blocks, where every two subjects have equally many items in
    common; their efficiency is n (k - 1) / ((n - 1) k) (Yates 1936).

    weight: information of each response, subjects x items; 0 where missing.
    common: information that each two subjects have in common.
    contrast: c, one value for each subject.
    """
    by_subject = weight.sum(axis=1)
    by_item = weight.sum(axis=0)
    laplacian = np.diag(by_subject) - common  # L
    shift_variance = float(contrast @ np.linalg.pinv(laplacian, hermitian=True) @ contrast)
    with_prior = np.diag(by_subject + 1.0) - weight / (by_item + 1 / difficulty_variance) @ weight.T  # M
    variance_with_prior = float(contrast @ np.linalg.solve(with_prior, contrast))
    balanced_variance = float((1 - 1 / len(weight)) * np.sum(contrast**2 / np.diag(laplacian)))
    return shift_variance, variance_with_prior, balanced_variance


def _find_group_apart(
    weight: Float[np.ndarray, "some others"], common: Float[np.ndarray, "some some"]
) -> Bool[np.ndarray, " some"] | None:
    """Which subjects are in the group with least information in common with the others; None if no group is apart.

    Subjects are ordered so that those with much in common are neighbours (normalised cut). Every place in this order
    cuts them into two groups. The group is the one with fewer subjects at the cut that least information crosses.
    A cut counts only if it is crossed by less than half of the information of the group that has less of it.
    weight: information of each response, subjects x items; 0 where missing.
    common: information that each two subjects have in common.
    """
    by_item = weight.sum(axis=0)

    # the eigenvector of the second largest eigenvalue of D^-1/2 common D^-1/2, times D^-1/2, orders the subjects;
    # D is the diagonal of their information
    root = np.sqrt(weight.sum(axis=1))  # of D
    eigenvectors = np.linalg.eigh(common / np.outer(root, root))[1]  # eigenvalues ascend
    order = np.argsort(eigenvectors[:, -2] / root, kind="stable")

    # for each cut of this order, the information that crosses it: w v / (w + v), summed over items, with w and v the
    # information of the responses to the item before and after the cut
    first_by_item = np.cumsum(weight[order], axis=0)[:-1]  # cuts x items
    crossing = (first_by_item * (by_item - first_by_item) / by_item).sum(axis=1)
    information_of_first = first_by_item.sum(axis=1)
    information_of_smaller = np.minimum(information_of_first, by_item.sum() - information_of_first)
    is_apart = crossing < MOST_IN_COMMON * information_of_smaller  # MOST_IN_COMMON is a half
    if not is_apart.any():
        return None

    n_first = 1 + int(np.where(is_apart, crossing, np.inf).argmin())  # subjects before the best cut
    is_in_first = np.isin(np.arange(len(weight)), order[:n_first])
    return is_in_first if 2 * n_first <= len(weight) else ~is_in_first


def _find_informative(responses: Matrix) -> tuple[Int[np.ndarray, " some"], Int[np.ndarray, " others"]]:
    """Positions of the subjects and of the items with both right and wrong responses.

    Leaving out a subject can leave an item with only right or only wrong responses, and the other way round. So this is
    repeated until all subjects and items that are left have both kinds among each other.
    """
    subjects = np.arange(responses.shape[0])
    items = np.arange(responses.shape[1])
    while True:
        selected = responses[np.ix_(subjects, items)]
        is_right = selected == 1
        is_wrong = selected == 0
        subject_varies = is_right.any(axis=1) & is_wrong.any(axis=1)
        item_varies = is_right.any(axis=0) & is_wrong.any(axis=0)
        if subject_varies.all() and item_varies.all():
            return subjects, items
        subjects = subjects[subject_varies]
        items = items[item_varies]


def _response_information(
    fit: IrtFit, subjects: Int[np.ndarray, " some"], items: Int[np.ndarray, " others"]
) -> Float[np.ndarray, "some others"]:
    """Fisher information of a response of each subject to each item on ability - difficulty: P'² / (P (1 - P)).

    Never 0, since the caller divides by sums of it.
    """
    slope = fit.discrimination[items]
    guess = fit.guess[items]
    span = fit.feasibility[items] - guess
    solved = expit(slope * (fit.ability[subjects, None] - fit.difficulty[items]))
    chance = np.clip(guess + span * solved, 1e-9, 1 - 1e-9)
    rise = slope * span * solved * (1 - solved)
    return np.maximum(rise**2 / (chance * (1 - chance)), 1e-12)


def _membership(n_subjects: int, members: Int[np.ndarray, " some"]) -> Bool[np.ndarray, " subjects"]:
    """True at the positions of the members."""
    is_member = np.zeros(n_subjects, dtype=bool)
    is_member[members] = True
    return is_member


def _count_common_responses(responses: Matrix, group: Bool[np.ndarray, " some"]) -> int:
    """Number of responses to the items that both groups have responses to, in the group with fewer such responses.

    group: which subjects are in the first group; all others are the second.
    """
    present = ~np.isnan(responses)
    n_by_group = present[group].sum(axis=0)  # by item
    n_by_others = present[~group].sum(axis=0)
    is_common = (n_by_group > 0) & (n_by_others > 0)
    return int(min(n_by_group[is_common].sum(), n_by_others[is_common].sum()))
