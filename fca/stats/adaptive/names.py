"""Policies and estimators by the names that users type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fca.stats.adaptive.estimators import Estimate, difference, p_irt, pooled, session_mean
from fca.stats.adaptive.mixed_logit import mixed_logit
from fca.stats.adaptive.policies import (
    FisherCat,
    GreTwoStage,
    NeymanIrt,
    OptimalAllocation,
    Policy,
    Random,
    StartPolicy,
    StaticK,
)
from fca.stats.adaptive.pool import Pool, Record
from fca.stats.irt import ItemBank
from fca.types import FcaError

POLICIES: Mapping[str, StartPolicy] = MappingProxyType(
    {
        "static_k": StaticK,
        "random": Random,
        "gre_two_stage": GreTwoStage,
        "optimal_allocation": OptimalAllocation,
        "neyman_irt": NeymanIrt,
        "fisher_cat": FisherCat,
    }
)
ESTIMATORS: Mapping[str, Callable[[Pool, Record, ItemBank | None], Estimate]] = MappingProxyType(
    {
        "session_mean": session_mean,
        "pooled": pooled,
        "mixed_logit": mixed_logit,
        "p_irt": p_irt,
        "difference": difference,
    }
)
WARNINGS: Mapping[str, str] = MappingProxyType(
    {
        "session_mean": "biased under an adaptive policy (gre_two_stage: about a point too low): sessions that do well "
        "are asked other levels, and lucky answers stop the asking; unbiased for static_k",
        "pooled": "biased under an adaptive policy (gre_two_stage: points too high): hard items are asked mostly where "
        "the model does well; unbiased for static_k and random",
    }
)


def start_policy(policy: str | StartPolicy, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> Policy:
    """A test of one model, by a policy's name or by its class (or a partial of it); raises FcaError for other names.

    >>> from fca.stats.adaptive.pool import make_pool
    >>> import numpy as np
    >>> pool = make_pool(np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int))
    >>> start_policy("static_k", pool, 0.25).k
    3
    """
    if not isinstance(policy, str):
        return policy(pool, budget, bank)
    if policy not in POLICIES:
        raise FcaError("policy", repr(policy), ", ".join(POLICIES), "take one of these")
    return POLICIES[policy](pool, budget, bank)


def estimate(estimator: str, pool: Pool, record: Record, bank: ItemBank | None = None) -> Estimate:
    """Both targets of every group from a test so far; raises FcaError for an unknown name or a missing bank."""
    if estimator not in ESTIMATORS:
        raise FcaError("estimator", repr(estimator), ", ".join(ESTIMATORS), "mixed_logit needs no bank")
    if not record.asked.any():
        raise FcaError("items asked", 0, "1 or more", "ask the policy's first round before estimating")
    return ESTIMATORS[estimator](pool, record, bank)


def warning(estimator: str) -> str | None:
    """What is known to be wrong with an estimator; None for those that are right under every policy they take.

    >>> warning("pooled")[:31]
    'biased under an adaptive policy'
    """
    return WARNINGS.get(estimator)
