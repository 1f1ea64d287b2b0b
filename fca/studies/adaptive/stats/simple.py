"""Accuracy from a sample in which every item has the same chance: the share right, with an exact interval.

Wald's interval, p ± 1.96 se, is too narrow near 0 and 1, where good classifiers are, and has no width where every
response is right. The number right of a simple random sample without replacement is hypergeometric whatever the model,
so its interval follows from that distribution alone, for a finite pool and any accuracy.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import hypergeom

from fca.stats.intervals import LEVEL
from fca.studies.adaptive.stats.estimators import Estimate, Interval
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import Pool, Record, Sample
from fca.types import FcaError


def hypergeometric(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The share right of the evaluated items of every group, with the exact interval of a simple random sample.

        se² = (1 - n / N) p (1 - p) / (n - 1)

    n of a group's N items were evaluated, and the share p of them was right. The interval has all shares right in the
    pool under which so few or so many right items in the sample are not improbable (Clopper and Pearson's for a finite
    pool, `exact_interval`). The mean over the G groups has se sqrt(Σ se_g²) / G, and its interval reaches
    sqrt(Σ (end_g - p_g)²) / G to either side, with end_g the end of a group's interval on this side (Zou and Donner
    2008).

    After policy `random` the interval contains the truth in 95 % or more of all samples, whatever the model. Samples of
    `proportional` vary no more, so they can have the same interval. No bank and no model of responses is needed, and
    `bank` is ignored.
    Raises FcaError after a policy under which the items of a group have different chances to be evaluated. Also raises
    it for items with levels: their accuracy counts all levels equally, so it is not the share right.

    >>> from fca.studies.progressive.stats.pool import Sample, make_pool
    >>> pool, record = make_pool(None, np.repeat(["cat", "dog"], 50)), Record(100)
    >>> record.samples.append(Sample(record.evaluated.copy(), np.full(100, 0.2), None))
    >>> record.add(np.arange(0, 100, 5), np.ones(20, dtype=bool))
    >>> estimate = hypergeometric(pool, record)
    >>> estimate.value.item(), estimate.low.item(), estimate.high.item()
    (1.0, 0.85, 1.0)
    """
    if pool.has_levels:
        allowed = "stratified, mixed_logit, pooled: levels count the same, whatever their size"
        raise FcaError("estimator", "hypergeometric of items with levels", allowed, "take one of these")
    has_equal_chances = [_has_equal_chances(pool, sample) for sample in record.samples]
    if not record.samples or not all(has_equal_chances):
        allowed = "proportional, random: every item has the same chance"
        raise FcaError("policy", "one of different chances", allowed, "take one of these, or estimator difference")

    # counts of each group; items without levels are all of one level, so these have one column: groups x 1. n is 1 or
    # more, as these policies evaluate an item of every group
    n = pool.by_group(pool.by_stratum(record.evaluated))[:, :1]
    n_right = pool.by_group(pool.by_stratum(record.right))[:, :1]
    size = pool.group_sizes[:, :1]
    share = n_right / n
    variance = (1 - n / size) * share * (1 - share) / np.maximum(n - 1, 1)  # 0 for n = 1, where the share is 0 or 1

    counts = zip(n_right.ravel().tolist(), n.ravel().tolist(), size.ravel().tolist(), strict=True)
    intervals = [exact_interval(right, evaluated, items) for right, evaluated, items in counts]
    ends = np.array(intervals)  # groups x 2
    low, high = ends[:, :1], ends[:, 1:]

    # the mean over groups, 1 x 1: groups are independent, so squared errors and squared distances to the ends add up
    mean = share.mean(axis=0)[None]
    se_of_mean = np.sqrt(variance.sum(axis=0))[None] / pool.n_groups
    below = np.sqrt(((share - low) ** 2).sum(axis=0))[None] / pool.n_groups
    above = np.sqrt(((high - share) ** 2).sum(axis=0))[None] / pool.n_groups
    overall = Interval(mean, se_of_mean, mean - below, mean + above)
    return Estimate(share, np.sqrt(variance), low, high, overall)


def _has_equal_chances(pool: Pool, sample: Sample) -> bool:
    """Whether, in every group, all items that could be drawn in the sample had the same chance, up to rounding."""
    for group in range(pool.n_groups):
        could_be_drawn = ~sample.evaluated_before & (pool.group == group)
        inclusion = sample.inclusion[could_be_drawn]
        if len(inclusion) and float(np.ptp(inclusion)) >= 1e-9:  # largest less smallest
            return False
    return True


def exact_interval(right: int, evaluated: int, items: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of the share right in a pool, from the number right in a simple random sample without replacement.

    If K of all N items are right, the number X right in the sample is hypergeometric. The ends are the smallest and the
    largest K / N for which both P(X >= right | K) and P(X <= right | K) are above (1 - level) / 2. This is Clopper and
    Pearson's (1934) interval for a finite pool (Konijn 1973): it contains the truth in a share `level` of all samples
    or more.

    right:     number of right items in the sample.
    evaluated: number of items in the sample.
    items:     number of items in the pool, N.
    Raises ValueError unless 0 <= right <= evaluated <= items and evaluated > 0.

    >>> [round(end, 3) for end in exact_interval(95, 100, 1000)], exact_interval(10, 10, 10)
    ([0.891, 0.982], (1.0, 1.0))
    """
    if not 0 <= right <= evaluated <= items or not evaluated:
        raise ValueError(f"{right} right of {evaluated} evaluated of {items} items")
    tail = (1 - level) / 2
    # the sample excludes other K for certain: it has `right` right items, and evaluated - right wrong ones
    smallest = right
    largest = items - (evaluated - right)

    # The smallest K with P(X >= right | K) > tail, by bisection: the probability rises with K
    low, high = smallest, largest
    while low < high:
        middle = (low + high) // 2
        if hypergeom.sf(right - 1, items, middle, evaluated) > tail:
            high = middle
        else:
            low = middle + 1
    lower_end = low

    # The largest K with P(X <= right | K) > tail: the probability falls with K
    low, high = smallest, largest
    while low < high:
        middle = (low + high + 1) // 2
        if hypergeom.cdf(right, items, middle, evaluated) > tail:
            low = middle
        else:
            high = middle - 1
    upper_end = high
    return lower_end / items, upper_end / items
