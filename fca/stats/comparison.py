"""Whether models differ: two on the same images, several over class subsets; and the variance components of accuracy.

The spread of accuracies comes from the draw of classes, the initialisation, and the sampling of test images.
Correctness of run i on test image j of class subset s:   x_sij = mean + A_s + B_si + C_sj + E_sij

    subset  var A                   another draw of classes
    init    var B                   another initialisation: a training that is better or worse on all images
    luck    var(E) / n              which of the n images a training happens to get right
    test    var C / n               other test images of the same classes

The inits of a subset predict the SAME images. A hard image C therefore lowers the accuracy of all of them: it affects
their mean, but not their spread. Errors of a single run (E) are new with every init: the accuracies of inits on the
same images have the variance var B + var(E) / n, and only the second term shrinks with more images. The four components
add up to the variance of one accuracy. Images are drawn within their class, because test sets have a fixed number of
images a class. Subsets that share classes share images, and a full model is one run on every subset: their errors are
correlated.

The estimators equate mean squares with their expectation (analysis of variance: Searle, Casella and McCulloch,
Variance Components, 1992; the sources: Bouthillier et al., arXiv:2103.03098; why inits share test error: Jordan,
arXiv:2304.01910). They are unbiased, and so can be negative where a component is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import chdtri, nctdtr, nctdtrinc, ndtri, stdtrit

from fca.stats.intervals import (
    FEWEST_DRAWS,
    LOWER_LEVEL,
    NO_INTERVAL,
    UNKNOWN_ESTIMATE,
    UPPER_LEVEL,
    Estimated,
    percentile_interval,
    point_weights,
    wilson,
)


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact p value for two classifiers being equally accurate, from the images that only one of them gets right.

    If they are, each such image is a fair coin: two-sided binomial test of only_a among only_a + only_b (McNemar 1947,
    in its exact form). Images that both classifiers get right, or neither, do not count. Without such images p = 1.

    >>> mcnemar(1, 7)
    0.0703125
    """
    from scipy.stats import binomtest  # here and below: half a second to import

    if min(only_a, only_b) < 0:
        raise ValueError(f"only_a={only_a}, only_b={only_b}: counts of images cannot be negative")

    discordant = only_a + only_b
    if not discordant:
        return 1.0
    return float(binomtest(only_a, discordant, 0.5).pvalue)


def paired_interval(
    both: int | float, only_a: int | float, only_b: int | float, neither: int | float
) -> tuple[float, float]:
    """95 % interval of accuracy a minus accuracy b on the same n images (Newcombe 1998, Stat. Med. 17:2635, method 10).

    both, only_a, only_b, neither: number of images that both classifiers get right, only one of them, or neither.

    low  = d - sqrt((pa - la)² - 2 φ (pa - la)(ub - pb) + (ub - pb)²)
    high = d + sqrt((ua - pa)² - 2 φ (ua - pa)(pb - lb) + (pb - lb)²)

    with d = pa - pb, the Wilson intervals [la, ua] and [lb, ub] of both accuracies, and φ the correlation over images
    between the correctness of a and of b, reduced by a continuity correction where it is positive. Unlike d ± 2
    standard errors it stays in [-1, 1], and does not vanish where the two agree on every image.
    Raises ValueError for a negative count, and without images.

    Counts may be fractions (means over several runs of each classifier); Wilson then takes the nearest whole counts.

    >>> [round(end, 4) for end in paired_interval(59, 6, 16, 80)]
    [-0.1186, -0.0046]
    """
    n = both + only_a + only_b + neither
    if min(both, only_a, only_b, neither) < 0 or n == 0:
        cells = (both, only_a, only_b, neither)
        raise ValueError(f"counts (both, only a, only b, neither) = {cells}: none may be negative, one must be above 0")

    right_a = both + only_a
    right_b = both + only_b
    la, ua = wilson(round(right_a), round(n))
    lb, ub = wilson(round(right_b), round(n))
    pa = round(right_a) / round(n)  # from the counts of its Wilson interval, so that it lies in the interval
    pb = round(right_b) / round(n)

    covariance = both * neither - only_a * only_b
    margins = right_a * (n - right_a) * right_b * (n - right_b)
    if covariance > 0:
        covariance = max(covariance - n / 2, 0.0)  # the continuity correction
    phi = covariance / margins**0.5 if margins > 0 else 0.0  # 0 where a classifier is always right or always wrong

    def distance(from_a: float, from_b: float) -> float:
        """The square root in both equations; max: rounding may make its argument slightly negative."""
        return float(max(from_a**2 - 2 * phi * from_a * from_b + from_b**2, 0.0) ** 0.5)

    d = (only_a - only_b) / n
    low = d - distance(pa - la, ub - pb)
    high = d + distance(ua - pa, pb - lb)
    return max(-1.0, low), min(1.0, high)


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """p values corrected for multiple tests (Holm 1979): the probability of any false positive stays below the level.

    The i-th smallest of m p values is multiplied by m - i + 1. A corrected value is never below the corrected value of
    a smaller p, and at most 1. The correction is valid for any dependence between the tests, such as between pairs of
    models that share a model and the images.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    ascending = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)  # m - i + 1
    never_below_previous = np.maximum.accumulate(p[ascending] * factors)

    corrected = np.empty_like(p)
    corrected[ascending] = np.minimum(never_below_previous, 1)
    return corrected


POWER = 0.8
MANY = 100_000  # above this many seeds the normal distribution replaces Student's, and no search is needed
LARGEST_NUMBER = 1_000_000  # more seeds count as unbounded: nobody draws them, and rounding alone can require more

Models = Float[np.ndarray, " models"]
Pairs = Float[np.ndarray, "subsets subsets"]


def t_power(effect: float, seeds: int) -> float:
    """Power of a two-sided paired t test at 0.05: the probability that it finds a difference of this effect.

    effect: true mean of the differences, in their standard deviations.
    seeds:  number of differences.

    The power is P(|T| > t) for T of Student's noncentral distribution with seeds - 1 degrees of freedom and
    noncentrality effect · sqrt(seeds), and t the critical value (Cohen 1988, chapter 2).

    >>> round(t_power(0.5, 34), 3)
    0.808
    """
    t = float(stdtrit(seeds - 1, UPPER_LEVEL))
    noncentrality = abs(effect) * seeds**0.5

    # scipy's lower tail is NaN for large noncentrality, where it is below the normal one of 3e-7 at 5
    lower_tail = float(nctdtr(seeds - 1, noncentrality, -t)) if noncentrality < 5 else 0.0
    return float(1 - nctdtr(seeds - 1, noncentrality, t) + lower_tail)


def seeds_for(effect: float) -> float:
    """The fewest subset seeds (2 or more) with which a difference of this effect has a power of 0.8; see `t_power`.

    effect: true mean of the differences, in their standard deviations.
    Infinite for an effect of 0, and if more than a million seeds are needed. The search is fca's own, because that of
    statsmodels is undefined or wrong for effects above 5.

    >>> seeds_for(0.5), seeds_for(-0.5), seeds_for(0.0)
    (34.0, 34.0, inf)
    """
    seeds_times_square = float((ndtri(UPPER_LEVEL) + ndtri(POWER)) ** 2)  # seeds · effect², by the normal distribution
    if seeds_times_square > LARGEST_NUMBER * effect**2:  # more than a million, or an effect of 0
        return float("inf")
    if seeds_times_square > MANY * effect**2:  # with so many seeds Student's distribution is the normal one
        return float(np.ceil(seeds_times_square / effect**2))

    # double the number until it is enough, then bisect
    too_few, enough = 1, 2
    while t_power(effect, enough) < POWER:
        too_few, enough = enough, 2 * enough

    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if t_power(effect, middle) >= POWER:
            enough = middle
        else:
            too_few = middle
    return float(enough)


def seeds_needed(differences: Float[np.ndarray, " seeds"]) -> Estimated:
    """Number of subset seeds, in all, with which a test would probably find two models significantly different.

    differences: accuracy of model a minus accuracy of model b, one for each of the k subset seeds so far.

    value: `seeds_for` the observed effect d / s, with d the mean and s the standard deviation of the differences: a
           two-sided paired t test at 0.05 then has a power of 0.8. Infinite if no number of seeds is enough.
    low, high: `seeds_for` the upper and the lower end of the effect's exact 95 % interval. These ends, times sqrt(k),
           are the noncentralities with which Student's t of k - 1 degrees of freedom exceeds d / s · sqrt(k) in 97.5 %
           and in 2.5 % of cases (Hedges and Olkin 1985, section 5.D). If the interval contains 0, the models may be
           equal, and `high` is infinite.

    All three are NaN with fewer than two seeds. If all differences are nearly equal (s below 0.01 % of d), all three
    are 2, or infinite if the differences are 0.

    >>> seeds_needed(np.array([0.01, 0.05, 0.02, 0.05, -0.01]))
    Estimated(value=12.0, low=5.0, high=inf)
    """
    k = len(differences)
    if k < 2:
        return UNKNOWN_ESTIMATE

    d = abs(float(differences.mean()))  # the test is two-sided: it does not matter which model is better
    s = float(differences.std(ddof=1))
    if s <= max(1e-12, 1e-4 * d):  # equal but for rounding; nctdtrinc never ends for much larger effects
        seeds = 2.0 if d > 1e-12 else float("inf")
        return Estimated(seeds, seeds, seeds)

    effect = d / s
    t = effect * k**0.5
    # nctdtrinc(freedom, p, t): the noncentrality with which Student's variable is at most t with probability p
    smallest_effect = float(nctdtrinc(k - 1, UPPER_LEVEL, t)) / k**0.5
    largest_effect = float(nctdtrinc(k - 1, LOWER_LEVEL, t)) / k**0.5
    is_significant = t > stdtrit(k - 1, UPPER_LEVEL)

    seeds = seeds_for(effect)
    low = min(seeds, seeds_for(largest_effect))  # min: nctdtrinc is inaccurate for very large t
    high = seeds_for(smallest_effect) if is_significant else float("inf")
    return Estimated(seeds, low, high)


class RankStability(NamedTuple):
    """Stability of every model's rank over bootstrap resamples of subset seeds.

    p_best:    share of resamples in which the model has the highest mean accuracy.
    rank:      rank of its mean accuracy over all seeds, 1 for the highest.
    low, high: 95 % interval of the rank.
    kept:      [i, j]: share of resamples in which models i and j have the same order as over all seeds; NaN if they
               are equal over all seeds.
    """

    p_best: Models
    rank: Models
    low: Models
    high: Models
    kept: Float[np.ndarray, "models models"]


def rank_stability(
    accuracy: Float[np.ndarray, "subsets models"], cluster: Integer[np.ndarray, " subsets"]
) -> RankStability:
    """Rank stability of models over bootstrap resamples of subset seeds.

    accuracy: of each model on each class subset.
    cluster:  number of each subset's seed, 0..k-1; subsets of one seed are drawn together. -1 for a subset that was not
              drawn at random, such as all classes: it is in every resample.

    Returns the rank of each model's mean accuracy with its 95 % interval; `p_best`, the share of resamples in which the
    model is the best; and `kept`, for each pair of models the share of resamples with the same order of the two as over
    all seeds. Equal models have the mean of their ranks in a resample; if they are the best, they share its first
    place. Resamples of fewer than FEWEST_DRAWS seeds show too little of the population: then everything but the rank is
    NaN.

    >>> rank_stability(np.tile([0.9, 0.8], (5, 1)), np.arange(5)).p_best
    array([1., 0.])
    """
    from scipy.stats import rankdata

    models = accuracy.shape[1]
    seeds = int(cluster.max(initial=-1)) + 1
    mean_accuracy = np.round(accuracy.mean(axis=0), 12)  # rounding errors do not rank equal models
    rank = rankdata(-mean_accuracy)
    if seeds < FEWEST_DRAWS:
        unknown = np.full(models, np.nan)
        return RankStability(unknown, rank, unknown, unknown, np.full((models, models), np.nan))

    weights = point_weights(cluster)  # resamples x subsets
    resampled = weights @ accuracy / weights.sum(axis=1, keepdims=True)  # resamples x models
    resampled = np.round(resampled, 12)  # as for mean_accuracy

    is_best = resampled == resampled.max(axis=1, keepdims=True)
    p_best = (is_best / is_best.sum(axis=1, keepdims=True)).mean(axis=0)

    resampled_ranks = rankdata(-resampled, axis=1)
    low, high = np.array([percentile_interval(ranks, seeds) for ranks in resampled_ranks.T]).T

    order = np.sign(mean_accuracy[:, None] - mean_accuracy[None, :])  # models x models: 1 where the first is better
    same_order = np.empty((models, models))
    for model in range(models):
        resampled_order = np.sign(resampled[:, [model]] - resampled)  # resamples x models
        same_order[model] = (resampled_order == order[model]).mean(axis=0)
    same_order[order == 0] = np.nan  # equal models have no order to keep
    return RankStability(p_best, rank, low, high, kept=same_order)


def kendall_w(scores: Float[np.ndarray, "judges models"]) -> float:
    """Kendall's W: how well m judges (class subsets) agree on the order of n models, from 0 (not) to 1 (fully).

    W = 12 Σ (R_i - mean R)² / (m² (n³ - n) - m Σ (t³ - t))   (Kendall and Babington Smith 1939)

    R_i is the sum of model i's ranks over the judges, and t the number of models in each group of tied models of each
    judge. Without ties, the mean Spearman correlation between judges is (m W - 1) / (m - 1).

    NaN with fewer than two judges or models, and where all models are equal for every judge.

    >>> kendall_w(np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]]))
    1.0
    """
    from scipy.stats import rankdata

    judges, models = scores.shape
    if judges < 2 or models < 2:
        return float("nan")

    rank_sums = rankdata(scores, axis=1).sum(axis=0)
    ties = 0.0
    for scores_of_judge in scores:
        _, t = np.unique(scores_of_judge, return_counts=True)
        ties += float((t**3 - t).sum())

    denominator = judges**2 * (models**3 - models) - judges * ties
    if denominator <= 0:
        return float("nan")
    return float(12 * ((rank_sums - rank_sums.mean()) ** 2).sum() / denominator)


class SubsetRuns(NamedTuple):
    """Correctness of the runs on one class subset. An init is a training from another random initialisation.

    correct: whether the run of each init predicts each test image correctly.
    images:  a number for each image, which identifies the image in all subsets.
    strata:  class of each image.
    runs:    a name for each init; subsets with the same names were predicted by the same trained networks.
    """

    correct: Bool[np.ndarray, "inits images"]
    images: Integer[np.ndarray, " images"]
    strata: Integer[np.ndarray, " images"]
    runs: tuple[str, ...]


class VarianceSplit(NamedTuple):
    """Variance of the accuracy (a fraction) of one run on one class subset, by source; see the head of this module.

    subset: the draw of classes.
    init:   the initialisation.
    luck:   which images a training happens to get right.
    test:   the draw of test images.

    Estimates are unbiased, so they may be negative. Intervals are cut at 0. An interval without any value above 0 is
    missing (NaN): the estimate is below its noise, or all runs agree.
    """

    subset: Estimated
    init: Estimated
    luck: Estimated
    test: Estimated


class _NoiseCovariances(NamedTuple):
    """Parts of the covariance between the mean accuracies of two subsets, given the classes of the subsets.

    The covariance is (init - residual) / inits + test, with `inits` the number of inits of the two subsets. Each part
    has the subset's own variance on its diagonal.

    init:     covariance over inits of the accuracies on the two subsets, luck included. 0 for different networks.
    residual: covariance of luck. 0 for different networks.
    test:     covariance from the test images that both subsets have, with luck / inits in it.

    init and residual are NaN if the networks are the same and there is a single init, which shows no variance.
    """

    init: Pairs
    residual: Pairs
    test: Pairs


def split_variance(subsets: Sequence[SubsetRuns]) -> VarianceSplit:
    """The variance of the accuracy of one run on one class subset, split by source, with 95 % intervals.

    The sources are the draw of the classes (subset), the initialisation of the training (init), the images that one
    training happens to get right (luck), and the draw of the test images (test). Estimates:

    subset: variance between the mean accuracies of subsets, minus the variance that init, luck and test cause between
            them (see _between_subsets).
    init:   mean over subsets of the variance between the accuracies of inits, minus luck.
    luck:   mean over subsets of the residuals of images x inits. Its interval is that of a chi-square variable, with
            the standard error over images or the one over networks, whichever is larger.
    test:   mean over subsets of the variance from sampling images within their class. Its interval is normal, over
            images.
    The intervals of subset and init are those of a difference of two mean squares (see _difference).

    All subsets have equal weight; their numbers of inits and images may differ. With one subset, `subset` is NaN. If
    every subset has one init, `init` and `luck` are NaN. Then `test` includes luck, as a binomial variance does, and
    `subset` includes init, as far as it differs between subsets; init variance that subsets share, because one network
    predicted them, is in no component. If only some subsets have one init, the mean of the others stands for their init
    and luck. If a class has one test image, all images of its subset count as one class. Raises ValueError without
    subsets.

    >>> image, strata = np.arange(4), np.zeros(4, dtype=int)
    >>> a = SubsetRuns(np.array([[True, True, True, False], [False, True, True, True]]), image, strata, ("a", "b"))
    >>> split = split_variance([a])  # two of four images differ, once each way
    >>> round(split.init.value, 4), round(split.luck.value, 4)
    (-0.0833, 0.0833)
    """
    if not subsets:
        raise ValueError("split_variance needs one subset or more, and got none")
    inits = np.array([len(s.runs) for s in subsets])
    # noise: matrices of subsets x subsets; their diagonals have, for each subset, init + luck (`noise.init`), luck
    # (`noise.residual`) and test + luck / inits (`noise.test`). *_by_image: contribution of each image to a component,
    # whose spread over images gives the component's standard error
    noise, test_by_image, luck_by_image = _noise(subsets)

    residual_by_subset = np.diag(noise.residual)
    luck_error = max(_error_of_sum(luck_by_image), _error_between_networks(subsets, residual_by_subset))
    # `luck` gets the degrees of freedom with which a chi-square variable has this error: 2 value² / freedom = error²
    luck = _mean_square_with_error(_mean_of_known(residual_by_subset), luck_error)

    freedom = _freedom_between_inits(subsets)  # degrees of freedom of the mean variance between inits
    between_inits = _MeanSquare(_mean_of_known(np.diag(noise.init)), freedom)  # init + luck

    # a subset with one init takes the mean luck of the others
    known_residuals = np.nan_to_num(residual_by_subset, nan=_mean_variance(noise.residual))
    test = float((np.diag(noise.test) - known_residuals / inits).mean())
    test_half_width = float(ndtri(UPPER_LEVEL) * _error_of_sum(test_by_image))

    return VarianceSplit(
        subset=_between_subsets(subsets, noise, inits, freedom) if len(subsets) > 1 else UNKNOWN_ESTIMATE,
        init=_difference(between_inits, luck),
        luck=_component_cut_at_0(luck.value, *luck.interval()),
        test=_component_cut_at_0(test, test - test_half_width, test + test_half_width),
    )


def _freedom_between_inits(subsets: Sequence[SubsetRuns]) -> float:
    """Degrees of freedom of the mean over subsets of the variance between inits; 0 where every subset has one init.

    freedom = 1 / sum over groups of weight² / (inits - 1)   (Satterthwaite)

    Subsets that were predicted by the same networks are one group, whose weight is its share of the subsets.
    """
    networks = [s.runs for s in subsets if len(s.runs) > 1]
    if not networks:
        return 0.0
    weights = {runs: networks.count(runs) / len(networks) for runs in networks}
    return 1 / sum(weight**2 / (len(runs) - 1) for runs, weight in weights.items())


def _error_of_sum(by_image: Float[np.ndarray, " images"]) -> float:
    """Standard error of a sum over images that were drawn at random; NaN for a single image."""
    if len(by_image) < 2:
        return float("nan")
    return float(np.sqrt(len(by_image)) * by_image.std(ddof=1))


def _error_between_networks(subsets: Sequence[SubsetRuns], luck: Float[np.ndarray, " subsets"]) -> float:
    """Standard error of the mean luck, from the spread of luck between networks; 0 if that spread is unknown.

    Subsets that were predicted by the same networks are one group, and the spread is that of the groups' mean luck.
    With a single group it is unknown. The error is multiplied by the ratio of Student's quantile to the normal one,
    because few groups show their spread inexactly.
    luck: the variance component `luck` of each subset; NaN with a single init. Such subsets are left out.
    """
    luck_by_group: dict[tuple[str, ...], list[float]] = {}
    for subset, luck_of_subset in zip(subsets, luck, strict=True):
        if not np.isnan(luck_of_subset):
            luck_by_group.setdefault(subset.runs, []).append(float(luck_of_subset))

    means = [np.mean(values) for values in luck_by_group.values()]
    n = len(means)
    if n < 2:
        return 0.0
    normal_error = np.std(means, ddof=1) / n**0.5
    return float(normal_error * stdtrit(n - 1, UPPER_LEVEL) / ndtri(UPPER_LEVEL))


class _MeanSquare(NamedTuple):
    """An estimated variance, and the degrees of freedom of its chi-square distribution; 0: unknown."""

    value: float
    freedom: float

    def interval(self) -> tuple[float, float]:
        """Both ends of the 95 % interval; NaN, NaN if the degrees of freedom are unknown."""
        below, above = self.distances_to_ends()
        return self.value - below, self.value + above

    def distances_to_ends(self) -> tuple[float, float]:
        """Distances of the lower and the upper end of the interval from the value."""
        if not self.freedom:
            return NO_INTERVAL
        low_factor = self.freedom / float(chdtri(self.freedom, LOWER_LEVEL))
        high_factor = self.freedom / float(chdtri(self.freedom, UPPER_LEVEL))
        return self.value * (1 - low_factor), self.value * (high_factor - 1)


def _mean_square_with_error(value: float, error: float) -> _MeanSquare:
    """A mean of squares with this standard error, and the degrees of freedom that a chi-square variable has with both.

    2 value² / freedom = error². The freedom is 0, unknown, unless the value and its error are positive.
    """
    is_known = error > 0 and value > 0
    freedom = 2 * (value / error) ** 2 if is_known else 0.0
    return _MeanSquare(value, freedom)


def _difference(large: _MeanSquare, small: _MeanSquare, exact: float = 0.0) -> Estimated:
    """The component d = large - small - exact, from two mean squares and a number without error, with its interval.

    low = d - sqrt(a² + b²), where a is the distance from `large` down to the lower end of its interval, and b the
    distance from `small` up to the upper end of its interval; high = d + sqrt(a² + b²) with the two other distances
    (Graybill and Wang 1980, JASA 75:869; Ting et al. 1990, J. Stat. Comput. Simul. 35:135). A `small` without known
    degrees of freedom (0) counts as exact (Williams 1962, Biometrika 49:278). All is NaN if d is, or if the degrees of
    freedom of `large` are unknown.
    """
    difference = large.value - small.value - exact
    if np.isnan(difference) or not large.freedom:
        return UNKNOWN_ESTIMATE

    large_below, large_above = large.distances_to_ends()
    small_below, small_above = small.distances_to_ends() if small.freedom else (0.0, 0.0)
    low = difference - np.hypot(large_below, small_above)
    high = difference + np.hypot(large_above, small_below)
    return _component_cut_at_0(difference, float(low), float(high))


def _between_subsets(
    subsets: Sequence[SubsetRuns], noise: _NoiseCovariances, inits: Integer[np.ndarray, " subsets"], freedom: float
) -> Estimated:
    """The component `subset`: the variance between mean accuracies of subsets that init, luck and test do not explain.

    subset = variance of the mean accuracies - u(init / inits) - u(test - residual / inits)

    u(M) is the mean of the variances in a matrix M of subsets x subsets (its diagonal) minus the mean of its
    covariances, because noise that two subsets share does not make them differ. The matrices are parts of the
    covariance of two mean accuracies, given the classes: `init` is the covariance over inits, with luck in it;
    `residual` is luck alone; `test` comes from the images that both subsets have, with luck / inits in it.

    inits:   number of inits of each subset.
    freedom: degrees of freedom of the mean variance between inits, for the error of u(init / inits). The other u is
             taken as exact.
    """
    # subsets with one init, whose variance is unknown, take the mean of the others
    init = _without_unknown(noise.init) / inits[:, None]
    residual = _without_unknown(noise.residual) / inits[:, None]
    init_noise = _unshared(init)
    exact_noise = _unshared(noise.test - residual)

    variance = float(np.var([s.correct.mean() for s in subsets], ddof=1))
    return _difference(
        _MeanSquare(variance, len(subsets) - 1),
        _MeanSquare(init_noise, freedom if init_noise > 0 else 0.0),  # 0: exact, as a chi-square variable is positive
        exact_noise,
    )


def _without_unknown(covariances: Pairs) -> Pairs:
    """The same matrix with a number for every NaN: on the diagonal (variances) the mean of the known variances, else 0.

    covariances: subsets x subsets; NaN where a single init shows no variance.
    """
    is_unknown_variance = np.eye(len(covariances), dtype=bool) & np.isnan(covariances)
    return np.where(is_unknown_variance, _mean_variance(covariances), np.nan_to_num(covariances))


def _unshared(covariances: Pairs) -> float:
    """Mean variance of a subset (on the diagonal) minus the mean covariance of two subsets (elsewhere)."""
    is_variance = np.eye(len(covariances), dtype=bool)
    return float(covariances[is_variance].mean() - covariances[~is_variance].mean())


def _component_cut_at_0(variance: float, low: float, high: float) -> Estimated:
    """A component with its interval cut at 0, or without one if nothing of it is above 0."""
    if not high > 0:  # NaN too
        return Estimated(variance, *NO_INTERVAL)
    return Estimated(variance, max(0.0, low), high)


def _noise(
    subsets: Sequence[SubsetRuns],
) -> tuple[_NoiseCovariances, Float[np.ndarray, " images"], Float[np.ndarray, " images"]]:
    """Covariances of the subsets' mean accuracies by source, and each image's contributions to two variance components.

    The covariance of two subsets, given their classes, is (init - residual) / inits + test, with `inits` the number of
    inits of both. Returns three results:

    1. the matrices `init`, `residual` and `test`, all subsets x subsets. `init` is the covariance over inits of the
       accuracies on the two subsets, with luck in it (which images a training happens to get right). `residual` is the
       covariance of luck alone. Both are 0 for subsets of different networks, and NaN for a single init. `test` is the
       covariance from the test images that both subsets have, with luck / inits in it.
    2. the contribution of every image to the component `test`, the variance from the draw of test images.
    3. the contribution of every image to the component `luck`. The spread of contributions over the images gives the
       standard errors of the components.
    """
    k = len(subsets)
    all_images = np.unique(np.concatenate([s.images for s in subsets]))

    # of each subset, over all images: deviations of an image's mean correctness from its class (image_errors), and
    # deviations of each run from the mean over inits (residuals); 0 for images that are not in the subset. Both are
    # scaled so that their products, summed over images, estimate covariances of mean accuracies
    image_errors = np.zeros((k, len(all_images)))
    residuals = [np.zeros((len(s.runs), len(all_images))) for s in subsets]
    for i, subset in enumerate(subsets):
        columns = np.searchsorted(all_images, subset.images)
        mean_correct = subset.correct.mean(axis=0, keepdims=True)
        image_errors[i, columns] = _within_classes(mean_correct, subset.strata)[0]
        if len(subset.runs) > 1:
            residuals[i][:, columns] = _residuals(subset)

    # the contribution of each image; image_errors are those of a mean over inits, so their squares contain luck / inits
    n_with_several_inits = sum(len(s.runs) > 1 for s in subsets)
    luck_in_test = np.zeros(len(all_images))
    luck_by_image = np.zeros(len(all_images))
    for subset, residual in zip(subsets, residuals, strict=True):
        inits = len(subset.runs)
        if inits > 1:
            squares = (residual**2).mean(axis=0)
            luck_in_test += squares / inits / k
            luck_by_image += squares / n_with_several_inits
    test_by_image = (image_errors**2).mean(axis=0) - luck_in_test

    # the covariances of subsets that were predicted by the same networks; the matrices are symmetric
    init_covariance = np.zeros((k, k))
    residual_covariance = np.zeros((k, k))
    for i, first in enumerate(subsets):
        for j, second in enumerate(subsets[: i + 1]):
            if first.runs != second.runs:
                continue  # other networks: nothing is shared

            of_init = of_residual = np.nan  # a single init shows no variance
            if len(first.runs) > 1:
                first_accuracies = first.correct.mean(axis=1)
                second_accuracies = second.correct.mean(axis=1)
                of_init = np.cov(first_accuracies, second_accuracies)[0, 1]
                of_residual = (residuals[i] * residuals[j]).mean(axis=0).sum()  # mean over inits, sum over images
            init_covariance[i, j] = init_covariance[j, i] = of_init
            residual_covariance[i, j] = residual_covariance[j, i] = of_residual

    noise = _NoiseCovariances(init_covariance, residual_covariance, test=image_errors @ image_errors.T)
    return noise, test_by_image, luck_by_image


def _residuals(subset: SubsetRuns) -> Float[np.ndarray, "inits images"]:
    """Deviation of every prediction from the mean of its image over inits, less the mean of these in its run and class.

    They are scaled so that their squares, summed over the n images and averaged over inits, estimate the component
    luck, var(E) / n.
    """
    inits = len(subset.runs)
    deviations = subset.correct - subset.correct.mean(axis=0)
    return _within_classes(deviations, subset.strata) * np.sqrt(inits / (inits - 1))


def _within_classes(
    values: Float[np.ndarray, "rows images"], strata: Integer[np.ndarray, " images"]
) -> Float[np.ndarray, "rows images"]:
    """Deviations of the values from the mean of their class, one row for each run or mean of runs.

    They are scaled so that the sum of the squares of a row estimates, without bias, the variance of the row's mean if n
    images are drawn within their classes. If a class has one image, its variance is unknown, and all images count as
    one class. NaN if there is a single image.
    strata: class of each image.
    """
    n = values.shape[1]
    if n == 1:
        return np.full(values.shape, np.nan)

    class_of_image = np.unique(strata, return_inverse=True)[1]
    class_sizes = np.bincount(class_of_image)
    if class_sizes.min() == 1:
        class_of_image = np.zeros(n, dtype=np.int64)
        class_sizes = np.array([n])

    class_means = np.stack([np.bincount(class_of_image, row) / class_sizes for row in values])  # rows x classes
    unbiased = np.sqrt(class_sizes / (class_sizes - 1))
    return (values - class_means[:, class_of_image]) * unbiased[class_of_image] / n


def _mean_of_known(values: Float[np.ndarray, " values"]) -> float:
    """The mean of the values that are not NaN; NaN without any."""
    known_values = values[~np.isnan(values)]
    return float(known_values.mean()) if len(known_values) else float("nan")


def _mean_variance(covariances: Pairs) -> float:
    """The mean over the subsets whose variance is known; 0 where none is: then the other components include it."""
    return float(np.nan_to_num(_mean_of_known(np.diag(covariances))))
