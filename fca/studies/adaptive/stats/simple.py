"""Accuracy from a sample in which every item has the same chance: the share right, with an exact interval.

Wald's interval, p ± 1.96 se, is too narrow near 0 and 1, where good classifiers are, and of no width where all that was
asked is right. The number right of a simple random sample without replacement is hypergeometric whatever the model, so
its interval follows from that distribution alone, of a finite pool and of any accuracy.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import hypergeom

from fca.stats.intervals import LEVEL
from fca.studies.adaptive.stats.estimators import Estimate, Interval
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import Pool, Record
from fca.types import FcaError


def hypergeometric(pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """The share right of the items asked of every group, with the exact interval of a simple random sample.

        se² = (1 - n / N) p (1 - p) / (n - 1);   interval: see `exact_interval`

    The mean over G groups reaches sqrt(Σ (end_g - value_g)²) / G to either side (Zou and Donner 2008).

    For `random`, where the interval holds the truth in 95 % or more of all samples, whatever the model; and for
    `proportional`, which varies no more. Needs no bank and no model of responses. Raises FcaError after a policy under
    which items have different chances, and for items with levels, whose accuracy weighs them by level.

    >>> from fca.studies.progressive.stats.pool import Sample, make_pool
    >>> pool, record = make_pool(None, np.repeat(["cat", "dog"], 50)), Record(100)
    >>> record.samples.append(Sample(record.asked.copy(), np.full(100, 0.2), None))
    >>> record.add(np.arange(0, 100, 5), np.ones(20, dtype=bool))
    >>> found = hypergeometric(pool, record)
    >>> found.value.item(), found.low.item(), found.high.item()
    (1.0, 0.85, 1.0)
    """
    if pool.has_levels:
        allowed = "stratified, mixed_logit, pooled: levels count the same, whatever their size"
        raise FcaError("estimator", "hypergeometric of items with levels", allowed, "take one of these")
    if not record.samples or not all(_alike(pool, one.inclusion, ~one.certain) for one in record.samples):
        allowed = "proportional, random: every item has the same chance"
        raise FcaError("policy", "one of different chances", allowed, "take one of these, or estimator difference")
    asked, right = (pool.by_group(pool.by_stratum(marked))[:, :1] for marked in (record.asked, record.right))
    share, size = right / asked, pool.group_sizes[:, :1]
    variance = (1 - asked / size) * share * (1 - share) / np.maximum(asked - 1, 1)
    counts = zip(right.ravel().tolist(), asked.ravel().tolist(), size.ravel().tolist(), strict=True)
    low, high = np.array([exact_interval(*each) for each in counts]).T[:, :, None]
    value, reach = share.mean(axis=0)[None], [variance, (share - low) ** 2, (high - share) ** 2]
    se, below, above = (np.sqrt(one.sum(axis=0))[None] / pool.groups for one in reach)
    return Estimate(share, np.sqrt(variance), low, high, Interval(value, se, value - below, value + above))


def _alike(pool: Pool, inclusion: np.ndarray, open_: np.ndarray) -> bool:
    """Whether all items of a group that could be drawn had the same chance."""
    groups = (inclusion[open_ & (pool.group == group)] for group in range(pool.groups))
    return all(not len(chances) or float(np.ptp(chances)) < 1e-9 for chances in groups)


def exact_interval(right: int, asked: int, items: int, level: float = LEVEL) -> tuple[float, float]:
    """Shares K / N of a pool of which a simple random sample may well have so many right: two tests of (1 - level) / 2.

    K with P(X >= right | K) and P(X <= right | K) above (1 - level) / 2, X hypergeometric: Clopper and Pearson's (1934)
    interval for a finite pool (Konijn 1973). It holds the truth in a share `level` of all samples or more.
    right of asked of items: counts. Raises ValueError for counts that cannot be.

    >>> [round(end, 3) for end in exact_interval(95, 100, 1000)], exact_interval(10, 10, 10)
    ([0.891, 0.982], (1.0, 1.0))
    """
    if not 0 <= right <= asked <= items or not asked:
        raise ValueError(f"{right} right of {asked} asked of {items} items")
    tail = (1 - level) / 2
    least, most = right, items - (asked - right)
    low, high = least, most
    while low < high:  # P(X >= right | K) rises with K
        middle = (low + high) // 2
        low, high = (low, middle) if hypergeom.sf(right - 1, items, middle, asked) > tail else (middle + 1, high)
    lower, low, high = low, least, most
    while low < high:  # P(X <= right | K) falls
        middle = (low + high + 1) // 2
        low, high = (middle, high) if hypergeom.cdf(right, items, middle, asked) > tail else (low, middle - 1)
    return lower / items, high / items
