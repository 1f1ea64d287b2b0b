"""How firmly common items link subjects, whose abilities are compared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from fca.studies.irt.stats.model import IrtFit, Matrix, parts_of

WEAK = 0.5  # standard error of a shift, in the unit of ability: twice that is what subjects usually differ by
PRIOR_DECIDES = 0.5  # share of a shift that comes from the responses, below which the prior decides it
WIDENED = 1.25  # standard error over that of a balanced design, below which few responses make it wide, not the link
UNEVEN = 0.2  # added to it for each unit of that standard error: the fewer responses, the less even random designs are
APART = 0.5  # share of a group's information that it has in common with the others, below which it is a group


class Link(NamedTuple):
    """How firmly the two groups of subjects that have least in common are on one scale.

    group:     which subjects are in the smaller group.
    responses: of either group to items that subjects of the other responded to as well, the fewer of both.
    shift_se:  standard error of the difference of the groups' mean abilities by the responses alone, in the unit of
               ability; infinite where the groups share only items, or subjects, that were always right or always wrong.
    kept:      share of this difference that the fit keeps; the prior, for which all subjects are of one population,
               draws the rest to 0.
    gap:       this difference as fitted, of the group less the others.
    balanced_se:  its standard error if every two subjects had equally many items in common: what few responses leave
               open in any design.
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

        They cannot be compared if the difference of their means could as well be a whole standard deviation of ability
        smaller or larger (a standard error above 0.5), if the prior decides more of it than the responses do, or if the
        prior draws it towards 0 by more than 0.5. Few responses, not few common items, are the cause where a balanced
        design would have nearly the same standard error; then the link is not weak.
        """
        most_widened = WIDENED + UNEVEN * self.balanced_se
        if self.shift_se <= most_widened * self.balanced_se:
            return False
        if self.shift_se > WEAK or self.kept < PRIOR_DECIDES:
            return True
        taken_by_prior = abs(self.gap) * (1 / self.kept - 1)  # by the responses alone the gap is gap / kept
        return taken_by_prior > WEAK


def weakest_link(responses: Matrix, fit: IrtFit) -> Link | None:
    """Find the two groups of subjects that have least in common, and how firmly their items link them on one scale.

    None where no group is set apart: where nothing is missing, where fewer than two subjects had both right and wrong
    responses, and where every group has half of its information or more in common with the others.

    Groups. An item informs on the difference of two groups by w v / (w + v), with w and v the Fisher information of
    each group's responses to it. Subjects are put in the order of the second eigenvector of the graph whose edges are
    the information that two subjects have in common (normalised cut; Shi & Malik 2000). This order is cut where least
    information crosses.

    `Link.shift_se` is √(c' L⁺ c), with L the information on abilities after difficulties are eliminated, and c the
    contrast of the groups' means; the prior adds nothing to it.
    `Link.kept` is c' M⁻¹ c / c' L⁺ c, with M the same as L plus the prior's information on abilities and difficulties.
    `Link.balanced_se` is √((n - 1)/n Σ c²/d), with n subjects and d the information on each of them, were the others'
    abilities known. With k responses to each item this is shift_se in balanced incomplete blocks, where every two
    subjects have equally many items in common; their efficiency is n (k - 1) / ((n - 1) k) (Yates 1936).

    An item that all got right, or all wrong, informs on no difference (Fischer 1981), nor does such a subject; both are
    left out. `fit` must be a fit of these responses.

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
    part_of_subject = parts_of(informative_responses)
    if part_of_subject.max() > 0:  # only uninformative items or subjects link the parts: the smallest is set apart
        is_in_last_part = _membership(len(responses), subjects[part_of_subject == part_of_subject.max()])
        return Link(is_in_last_part, responses=0, shift_se=float("inf"), kept=0.0)

    # information of each response, and what each two subjects have in common: Σ w_i w_j / Σ w over the items
    information = _response_information(fit, subjects, items)
    weight = np.where(np.isnan(informative_responses), 0.0, information)  # subjects x items
    by_subject = weight.sum(axis=1)
    by_item = weight.sum(axis=0)
    common = weight / by_item @ weight.T  # subjects x subjects
    is_in_group = _find_group_apart(weight, common)
    if is_in_group is None:
        return None
    contrast = is_in_group / is_in_group.sum() - ~is_in_group / (~is_in_group).sum()  # difference of mean abilities

    # variances of the contrast: c' L⁺ c of the responses alone, c' M⁻¹ c with the prior
    laplacian = np.diag(by_subject) - common
    shift_variance = float(contrast @ np.linalg.pinv(laplacian, hermitian=True) @ contrast)
    difficulty_variance = np.var(fit.difficulty) + np.mean(fit.difficulty_se**2)  # about as the fit has learned it
    with_prior = np.diag(by_subject + 1.0) - weight / (by_item + 1 / difficulty_variance) @ weight.T
    variance_with_prior = float(contrast @ np.linalg.solve(with_prior, contrast))
    balanced_variance = (1 - 1 / len(subjects)) * np.sum(contrast**2 / np.diag(laplacian))

    return Link(
        group=_membership(len(responses), subjects[is_in_group]),
        responses=_count_common_responses(informative_responses, is_in_group),
        shift_se=float(np.sqrt(shift_variance)),
        kept=variance_with_prior / shift_variance,
        gap=float(contrast @ fit.ability[subjects]),
        balanced_se=float(np.sqrt(balanced_variance)),
    )


def _find_group_apart(
    weight: Float[np.ndarray, "some others"], common: Float[np.ndarray, "some some"]
) -> Bool[np.ndarray, " some"] | None:
    """Which subjects are in the group with least information in common with the others; None if no group is apart.

    weight: information of each response, subjects x items.    common: information that two subjects have in common.
    The smaller side of the best cut is returned. A group is apart if less than the share APART of its own information
    crosses the cut.
    """
    by_item = weight.sum(axis=0)

    # subjects in the order of the second eigenvector of the normalised graph
    scale = np.sqrt(weight.sum(axis=1))
    eigenvectors = np.linalg.eigh(common / np.outer(scale, scale))[1]  # eigenvalues ascend
    order = np.argsort(eigenvectors[:, -2] / scale, kind="stable")

    # for each cut of this order, the information that crosses it: w v / (w + v), summed over items
    first_by_item = np.cumsum(weight[order], axis=0)[:-1]  # cuts x items
    crossing = (first_by_item * (by_item - first_by_item) / by_item).sum(axis=1)
    information_of_first = first_by_item.sum(axis=1)
    information_of_smaller = np.minimum(information_of_first, by_item.sum() - information_of_first)
    is_apart = crossing < APART * information_of_smaller
    if not is_apart.any():
        return None

    n_first = 1 + int(np.where(is_apart, crossing, np.inf).argmin())  # subjects before the best cut
    is_in_first = np.isin(np.arange(len(weight)), order[:n_first])
    return is_in_first if 2 * n_first <= len(weight) else ~is_in_first


def _find_informative(responses: Matrix) -> tuple[Int[np.ndarray, " some"], Int[np.ndarray, " others"]]:
    """Positions of the subjects and of the items with both right and wrong responses.

    Leaving out a subject can leave an item without both, and the other way round; so this is repeated until all have
    both among those that are left.
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

    Never 0, since sums of it are divided by.
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
    """Number of responses to the items that both groups responded to, in the group with fewer such responses."""
    present = ~np.isnan(responses)
    n_by_group = present[group].sum(axis=0)  # by item
    n_by_others = present[~group].sum(axis=0)
    is_common = (n_by_group > 0) & (n_by_others > 0)
    return int(min(n_by_group[is_common].sum(), n_by_others[is_common].sum()))
