"""Do models differ? Two on the same images, several over class subsets, and what their accuracies vary with.

The spread of accuracies comes from the draw of classes, the initialisation, and the sampling of test images.
Correctness of run i on test image j of class subset s:   x_sij = mean + A_s + B_si + C_sj + E_sij

    subset  var A                   another draw of classes
    init    var B                   another initialisation: a training that is better or worse on all images
    luck    var(E) / n              which of the n images a training happens to get right
    test    var C / n               other test images of the same classes

The inits of a subset predict the SAME images, so a hard image C lowers them all: it is not in their spread, but it is
in their mean. Errors of a single run (E) are new with every init: the accuracies of two inits on the same images differ
by var B + var(E) / n each, and only the second part shrinks with more images. The four add up to the variance of one
accuracy. Images are drawn within their class, as test sets have a fixed number a class. Subsets that share classes
share images, and a full model is one run on every subset: such errors are common to them.

The estimators equate mean squares with their expectation (analysis of variance: Searle, Casella and McCulloch,
Variance Components, 1992; the sources: Bouthillier et al., arXiv:2103.03098; why inits share test error: Jordan,
arXiv:2304.01910). They are unbiased, and so can be negative where there is little to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import chdtri, nctdtr, nctdtrinc, ndtri, stdtrit

from fca.stats.intervals import (
    FEWEST_DRAWS,
    LEVEL,
    NO_INTERVAL,
    UNKNOWN,
    Estimated,
    percentile_interval,
    point_weights,
    wilson,
)


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact p that two classifiers are equally often right, from the images that only one of them gets right.

    If they are, each such image is a fair coin: two-sided binomial test of only_a among only_a + only_b (McNemar 1947,
    in its exact form). Images that both or neither get right do not count. No such image at all: p = 1.

    >>> mcnemar(1, 7)
    0.0703125
    """
    from scipy.stats import binomtest  # here and below: half a second to import

    if min(only_a, only_b) < 0:
        raise ValueError(f"only_a={only_a}, only_b={only_b}: counts of images cannot be negative")
    discordant = only_a + only_b
    return float(binomtest(only_a, discordant, 0.5).pvalue) if discordant else 1.0


def paired_interval(
    both: int | float, only_a: int | float, only_b: int | float, neither: int | float
) -> tuple[float, float]:
    """Interval of accuracy a minus accuracy b on the same n images (Newcombe 1998, Stat. Med. 17:2635, method 10).

    low  = d - sqrt((pa - la)² - 2 φ (pa - la)(ub - pb) + (ub - pb)²)
    high = d + sqrt((ua - pa)² - 2 φ (ua - pa)(pb - lb) + (pb - lb)²)

    with d = pa - pb, the Wilson intervals [la, ua] and [lb, ub] of both accuracies, and φ the correlation between being
    right of the two, reduced by a continuity correction where it is positive. Unlike d ± 2 standard errors it stays in
    [-1, 1], and does not vanish where the two agree on every image. Raises ValueError without images.

    Counts may be fractions (means over several runs of each classifier); Wilson then takes the nearest whole counts.

    >>> [round(end, 4) for end in paired_interval(59, 6, 16, 80)]
    [-0.1186, -0.0046]
    """
    n = both + only_a + only_b + neither
    if min(both, only_a, only_b, neither) < 0 or n == 0:
        cells = (both, only_a, only_b, neither)
        raise ValueError(f"counts (both, only a, only b, neither) = {cells}: none may be negative, one must be above 0")
    right_a, right_b = both + only_a, both + only_b
    (low_a, high_a), (low_b, high_b) = (wilson(round(right), round(n)) for right in (right_a, right_b))
    pa, pb = round(right_a) / round(n), round(right_b) / round(n)
    product, margins = both * neither - only_a * only_b, right_a * (n - right_a) * right_b * (n - right_b)
    corrected = max(product - n / 2, 0.0) if product > 0 else product
    phi = corrected / margins**0.5 if margins > 0 else 0.0  # 0 where one classifier is always right or always wrong

    def length(one: float, other: float) -> float:
        return float(max(one**2 - 2 * phi * one * other + other**2, 0.0) ** 0.5)

    d = (only_a - only_b) / n
    return max(-1.0, d - length(pa - low_a, high_b - pb)), min(1.0, d + length(high_a - pa, pb - low_b))


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """p values corrected for their number: the chance of even one false positive stays below the level.

    In order of size, the i-th smallest of m times (m - i + 1), never below the one before, at most 1 (Holm 1979). Valid
    whatever the dependence between tests, as between pairs of models that share a model and the images.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected


POWER = 0.8
TAIL = 0.5 + LEVEL / 2  # up to the upper end of a two-sided interval
MANY = 100_000  # above this many seeds the normal distribution replaces Student's, and no search is needed
NEVER = 1_000_000  # more seeds than this count as unbounded: nobody draws them, and rounding alone asks for more

Models = Float[np.ndarray, " models"]
Pairs = Float[np.ndarray, "subsets subsets"]


def t_power(effect: float, seeds: int) -> float:
    """Power of a paired t test over `seeds` differences whose true mean is `effect` standard deviations.

    P(|T| > t) for T of Student's noncentral distribution with seeds - 1 degrees of freedom and noncentrality
    effect · sqrt(seeds) (Cohen 1988, chapter 2); t: the two-sided critical value at 0.05.

    >>> round(t_power(0.5, 34), 3)
    0.808
    """
    t, noncentrality = float(stdtrit(seeds - 1, TAIL)), abs(effect) * seeds**0.5
    # scipy's lower tail is NaN for large noncentrality, where it is below the normal one of 3e-7 at 5
    wrong_side = float(nctdtr(seeds - 1, noncentrality, -t)) if noncentrality < 5 else 0.0
    return float(1 - nctdtr(seeds - 1, noncentrality, t) + wrong_side)


def seeds_for(effect: float) -> float:
    """The fewest subset seeds (2 or more) with which a mean difference of `effect` standard deviations is significant.

    At 0.05, with a power of 0.8. Infinite for an effect of 0, and above a million. (statsmodels' solver is undefined or
    wrong for effects above 5.)

    >>> seeds_for(0.5), seeds_for(-0.5), seeds_for(0.0)
    (34.0, 34.0, inf)
    """
    normal = float((ndtri(TAIL) + ndtri(POWER)) ** 2)
    if normal > NEVER * effect**2:
        return float("inf")
    if normal > MANY * effect**2:
        return float(np.ceil(normal / effect**2))
    low, high = 1, 2
    while t_power(effect, high) < POWER:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(effect, middle) >= POWER else (middle, high)
    return float(high)


def seeds_needed(differences: Float[np.ndarray, " seeds"]) -> Estimated:
    """How many subset seeds make two models differ significantly, if the mean difference so far is the true one.

    differences: accuracy a minus accuracy b, one a subset seed.
    value: the fewest seeds in all (see seeds_for) with which a two-sided paired t test at 0.05 has a power of 0.8, for
           the effect d / s, with d the mean and s the standard deviation of the differences; infinite: none is enough.
    low, high: the same for the ends of the effect's exact interval: the noncentralities with which Student's t of k - 1
           degrees of freedom exceeds d / s · sqrt(k) in 2.5 % and in 97.5 % (Hedges and Olkin 1985, section 5.D). If it
           contains 0, there may be no difference, and `high` is infinite.

    NaN with fewer than two seeds. Differences that are all the same: 2 seeds, or, all 0, no number.

    >>> seeds_needed(np.array([0.01, 0.05, 0.02, 0.05, -0.01]))
    Estimated(value=12.0, low=5.0, high=inf)
    """
    k = len(differences)
    if k < 2:
        return UNKNOWN
    d, s = abs(float(differences.mean())), float(differences.std(ddof=1))
    if s <= 1e-12:  # rounding of equal accuracies
        return Estimated(*[2.0 if d > 1e-12 else float("inf")] * 3)
    t = d / s * k**0.5
    low, high = (float(nctdtrinc(k - 1, 0.5 + side * LEVEL / 2, t)) / k**0.5 for side in (1, -1))
    total = seeds_for(d / s)
    return Estimated(total, min(total, seeds_for(high)), seeds_for(low) if t > stdtrit(k - 1, TAIL) else float("inf"))


class RankStability(NamedTuple):
    """Stability of every model's rank over subset seeds.

    p_best: chance to be the best.    rank, low, high: of its mean accuracy (1 = best), and the interval.
    kept:   share of resamples in which models i and j differ and have the same order as now; NaN if equal now.
    """

    p_best: Models
    rank: Models
    low: Models
    high: Models
    kept: Float[np.ndarray, "models models"]


def rank_stability(
    accuracy: Float[np.ndarray, "subsets models"], cluster: Integer[np.ndarray, " subsets"]
) -> RankStability:
    """Rank stability of models over bootstrap resamples of subset seeds (see point_weights for `cluster`).

    Models that are equal in a resample share its best place and their rank. With fewer than FEWEST_DRAWS drawn seeds
    resamples show too little of others: all but the rank is NaN.

    >>> rank_stability(np.tile([0.9, 0.8], (5, 1)), np.arange(5)).p_best
    array([1., 0.])
    """
    from scipy.stats import rankdata

    means = np.round(accuracy.mean(axis=0), 12)
    rank, models, seeds = rankdata(-means), accuracy.shape[1], int(cluster.max(initial=-1)) + 1
    if seeds < FEWEST_DRAWS:
        unknown = np.full(models, np.nan)
        return RankStability(unknown, rank, unknown, unknown, np.full((models, models), np.nan))
    weights = point_weights(cluster)
    drawn = np.round(weights @ accuracy / weights.sum(axis=1, keepdims=True), 12)  # equal models stay equal
    best = drawn == drawn.max(axis=1, keepdims=True)
    low, high = np.array([percentile_interval(column, seeds) for column in rankdata(-drawn, axis=1).T]).T
    now = np.sign(means[:, None] - means[None, :])
    same = np.stack([np.sign(drawn[:, [m]] - drawn) == now[m] for m in range(models)]).mean(axis=1)
    p_best = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return RankStability(p_best, rank, low, high, kept=np.where(now == 0, np.nan, same))


def kendall_w(scores: Float[np.ndarray, "judges models"]) -> float:
    """How well judges (class subsets) agree on the order of models: 1 all alike, 0 no agreement (Kendall's W).

    W = 12 Σ (R_i - mean R)² / (m² (n³ - n) - m Σ (t³ - t))   for rank sums R of n models by m judges, t: sizes of ties
    (Kendall and Babington Smith 1939). Mean Spearman correlation between judges without ties: (m W - 1) / (m - 1).

    NaN with fewer than two judges or models, and where all models are equal for every judge.

    >>> kendall_w(np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]]))
    1.0
    """
    from scipy.stats import rankdata

    judges, models = scores.shape
    if judges < 2 or models < 2:
        return float("nan")
    sums = rankdata(scores, axis=1).sum(axis=0)
    ties = sum(float((t**3 - t).sum()) for t in (np.unique(row, return_counts=True)[1] for row in scores))
    scale = judges**2 * (models**3 - models) - judges * ties
    return float(12 * ((sums - sums.mean()) ** 2).sum() / scale) if scale > 0 else float("nan")


class SubsetRuns(NamedTuple):
    """The images that the runs on one class subset got right.

    correct: inits x images.    images: a number for each image, the same in every subset.    strata: its class.
    runs:    a name for each init; subsets with the same names were predicted by the same trained networks.
    """

    correct: Bool[np.ndarray, "inits images"]
    images: Integer[np.ndarray, " images"]
    strata: Integer[np.ndarray, " images"]
    runs: tuple[str, ...]


class VarianceSplit(NamedTuple):
    """Variance of the accuracy of one run on one subset, by source: a fraction, squared; unbiased, intervals cut at 0.

    An interval that would be 0 alone is missing (NaN): the spread found is below its noise, or all runs agree.
    """

    subset: Estimated
    init: Estimated
    luck: Estimated
    test: Estimated


class _Noise(NamedTuple):
    """Covariance between subsets of their mean accuracies, given their classes: (init - residual) / inits + test."""

    init: Pairs
    residual: Pairs
    test: Pairs


def split_variance(subsets: Sequence[SubsetRuns]) -> VarianceSplit:
    """The four components. All subsets have equal weight; their number of inits and of images may differ.

    subset: variance between mean accuracies, less the mean of the noise within them and plus the noise they share.
    init: mean over subsets of the variance between inits, less luck.
    luck: mean over subsets of the image x init residual. Interval: chi-square, over images, or over subsets of networks
        of their own where these differ more.
    Intervals of subset and init are those of a difference of two mean squares (see _difference).
    test: mean over subsets of the variance from sampling images within their class. Interval: normal, over images.

    With one subset `subset` is NaN. With one init everywhere `init` and `luck` are NaN; then `test` includes luck as
    well (as a binomial accuracy does) and `subset` includes init, except for the part shared by subsets of one network,
    which is in none. Some subsets with one init: they take the mean of the others. A class with one test image: all
    images of its subset count as one class. Raises ValueError without subsets.

    >>> image, strata = np.arange(4), np.zeros(4, dtype=int)
    >>> a = SubsetRuns(np.array([[True, True, True, False], [False, True, True, True]]), image, strata, ("a", "b"))
    >>> split = split_variance([a])  # two of four images differ, once each way
    >>> round(split.init.value, 4), round(split.luck.value, 4)
    (-0.0833, 0.0833)
    """
    if not subsets:
        raise ValueError("split_variance needs one subset or more, and got none")
    inits = np.array([len(s.runs) for s in subsets])
    noise, test_by_image, luck_by_image = _noise(subsets)

    residual = np.diag(noise.residual)
    luck_error = max(_error_of_sum(luck_by_image), _error_between_networks(subsets, residual))
    luck = _sum_of_squares(_mean(residual), luck_error)
    between_inits = _MeanSquare(_mean(np.diag(noise.init)), _freedom_between_inits(subsets))
    test = float((np.diag(noise.test) - np.nan_to_num(residual, nan=_known(noise.residual)) / inits).mean())
    half = float(ndtri(TAIL) * _error_of_sum(test_by_image))

    return VarianceSplit(
        subset=_between(subsets, noise, inits, between_inits.freedom) if len(subsets) > 1 else UNKNOWN,
        init=_difference(between_inits, luck),
        luck=_component(luck.value, *luck.interval()),
        test=_component(test, test - half, test + half),
    )


def _freedom_between_inits(subsets: Sequence[SubsetRuns]) -> float:
    """Degrees of freedom of the mean over subsets of the variance between inits; 0 where each has one init.

    Subsets that were predicted by the same networks count once, with the weight of all of them.
    """
    networks = [s.runs for s in subsets if len(s.runs) > 1]
    if not networks:
        return 0.0
    weights = {runs: networks.count(runs) / len(networks) for runs in networks}
    return 1 / sum(weight**2 / (len(runs) - 1) for runs, weight in weights.items())


def _error_of_sum(by_image: Float[np.ndarray, " images"]) -> float:
    """Standard error of a sum over images that were drawn at random."""
    return float(np.sqrt(len(by_image)) * by_image.std(ddof=1)) if len(by_image) > 1 else float("nan")


def _error_between_networks(subsets: Sequence[SubsetRuns], luck: Float[np.ndarray, " subsets"]) -> float:
    """Standard error of the mean of luck over networks, which are lucky in different degrees; 0 where it is unknown.

    Of few networks larger by as much as Student's t is larger than the normal quantile.
    """
    by_networks: dict[tuple[str, ...], list[float]] = {}
    for subset, value in zip(subsets, luck, strict=True):
        if not np.isnan(value):
            by_networks.setdefault(subset.runs, []).append(float(value))

    means = [np.mean(values) for values in by_networks.values()]
    n = len(means)
    if n < 2:
        return 0.0
    return float(np.std(means, ddof=1) / n**0.5 * stdtrit(n - 1, TAIL) / ndtri(TAIL))


class _MeanSquare(NamedTuple):
    """An estimated variance, and the degrees of freedom of the chi-square that it is distributed as; 0: unknown."""

    value: float
    freedom: float

    def interval(self) -> tuple[float, float]:
        below, above = self.beyond()
        return self.value - below, self.value + above

    def beyond(self) -> tuple[float, float]:
        """How far both ends of its interval are from it."""
        if not self.freedom:
            return NO_INTERVAL
        low, high = (self.freedom / float(chdtri(self.freedom, 0.5 + side * LEVEL / 2)) for side in (-1, 1))
        return self.value * (1 - low), self.value * (high - 1)


def _sum_of_squares(value: float, error: float) -> _MeanSquare:
    """A mean of squares with this standard error: chi-square with as much freedom as makes it so uncertain."""
    return _MeanSquare(value, 2 * (value / error) ** 2 if error > 0 and value > 0 else 0.0)


def _difference(large: _MeanSquare, small: _MeanSquare, exact: float = 0.0) -> Estimated:
    """One mean square less another, and less a number that is taken as exact.

    Interval: low = d - sqrt(a² + b²), with a and b the distances from the mean squares to the lower end of the first
    and to the upper end of the second; likewise high (Graybill and Wang 1980, JASA 75:869; Ting et al. 1990, J. Stat.
    Comput. Simul. 35:135). Where the second has no error it is Williams' (1962, Biometrika 49:278).
    """
    difference = large.value - small.value - exact
    if np.isnan(difference) or not large.freedom:
        return UNKNOWN
    (below, above), (below_small, above_small) = large.beyond(), small.beyond() if small.freedom else (0.0, 0.0)
    low, high = difference - np.hypot(below, above_small), difference + np.hypot(above, below_small)
    return _component(difference, float(low), float(high))


def _between(
    subsets: Sequence[SubsetRuns], noise: _Noise, inits: Integer[np.ndarray, " subsets"], freedom: float
) -> Estimated:
    """Variance between subsets. freedom: of the variance between inits, which is a part of the noise."""
    own = np.eye(len(subsets), dtype=bool)
    between_inits, residual = (
        np.where(own & np.isnan(part), _known(part), np.nan_to_num(part)) / inits[:, None] for part in noise[:2]
    )
    from_inits, exact = (float(part[own].mean() - part[~own].mean()) for part in (between_inits, noise.test - residual))
    spread = float(np.var([s.correct.mean() for s in subsets], ddof=1))
    return _difference(
        _MeanSquare(spread, len(subsets) - 1), _MeanSquare(from_inits, freedom if from_inits > 0 else 0.0), exact
    )


def _component(variance: float, low: float, high: float) -> Estimated:
    return Estimated(variance, *((max(0.0, low), high) if high > 0 else NO_INTERVAL))


def _noise(
    subsets: Sequence[SubsetRuns],
) -> tuple[_Noise, Float[np.ndarray, " images"], Float[np.ndarray, " images"]]:
    """The three covariances (NaN with a single init), and what every image adds to the mean test variance and luck."""
    k, every = len(subsets), np.unique(np.concatenate([s.images for s in subsets]))
    where = [np.searchsorted(every, s.images) for s in subsets]
    errors, added, luck = np.zeros((k, len(every))), np.zeros(len(every)), np.zeros(len(every))
    repeated = sum(len(s.runs) > 1 for s in subsets)
    rest = [np.zeros((len(s.runs), len(every))) for s in subsets]
    init, residual = np.zeros((k, k)), np.zeros((k, k))
    for a, one in enumerate(subsets):
        errors[a, where[a]] = _within_classes(one.correct.mean(axis=0, keepdims=True), one.strata)[0]
        several = len(one.runs) > 1
        if several:
            rest[a][:, where[a]] = _residuals(one)
            squares = (rest[a] ** 2).mean(axis=0)
            added -= squares / len(one.runs) / k
            luck += squares / repeated
        for b, other in enumerate(subsets[: a + 1]):
            if one.runs == other.runs:
                both = np.cov(one.correct.mean(axis=1), other.correct.mean(axis=1))[0, 1] if several else np.nan
                init[a, b] = init[b, a] = both
                residual[a, b] = residual[b, a] = (rest[a] * rest[b]).mean(axis=0).sum() if several else np.nan
    return _Noise(init, residual, errors @ errors.T), added + (errors**2).mean(axis=0), luck


def _residuals(subset: SubsetRuns) -> Float[np.ndarray, "inits images"]:
    """E of every prediction, scaled so that squares summed over images, averaged over inits, estimate var(E) / n."""
    inits = len(subset.runs)
    own = subset.correct - subset.correct.mean(axis=0)
    return _within_classes(own, subset.strata) * np.sqrt(inits / (inits - 1))


def _within_classes(
    values: Float[np.ndarray, "rows images"], strata: Integer[np.ndarray, " images"]
) -> Float[np.ndarray, "rows images"]:
    """Less the mean of the image's class, scaled so that squares sum to the variance of the mean of all n images."""
    n = values.shape[1]
    classes = np.unique(strata, return_inverse=True)[1]
    members = np.bincount(classes)
    if members.min() == 1:
        classes, members = np.zeros(n, dtype=np.int64), np.array([n])
    if n == 1:
        return np.full(values.shape, np.nan)
    means = np.stack([np.bincount(classes, row) / members for row in values])
    unbiased = np.sqrt(members / (members - 1))
    return (values - means[:, classes]) * unbiased[classes] / n


def _mean(values: Float[np.ndarray, " values"]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _known(part: Pairs) -> float:
    """The mean of a component over the subsets where it is known, 0 where it is nowhere: then the others include it."""
    return float(np.nan_to_num(_mean(np.diag(part))))
