"""Adaptive tests: what to ask a model next, and what its answers say about a finite pool of items."""

from fca.stats.adaptive.estimators import Estimate
from fca.stats.adaptive.names import ESTIMATORS, POLICIES, WARNINGS, estimate, start_policy, warning
from fca.stats.adaptive.policies import (
    MAPPING_L,
    MAPPING_Q,
    FisherCat,
    GreTwoStage,
    NeymanIrt,
    OptimalAllocation,
    Policy,
    Random,
    StartPolicy,
    StaticK,
    check_mapping,
)
from fca.stats.adaptive.pool import LEVEL_WEIGHTS, LEVELS, POINTS, TARGETS, Pool, Record, make_pool
from fca.stats.adaptive.replay import replay, run_policy

__all__ = [
    "ESTIMATORS",
    "LEVELS",
    "LEVEL_WEIGHTS",
    "MAPPING_L",
    "MAPPING_Q",
    "POINTS",
    "POLICIES",
    "TARGETS",
    "WARNINGS",
    "Estimate",
    "FisherCat",
    "GreTwoStage",
    "NeymanIrt",
    "OptimalAllocation",
    "Policy",
    "Pool",
    "Random",
    "Record",
    "StartPolicy",
    "StaticK",
    "check_mapping",
    "estimate",
    "make_pool",
    "replay",
    "run_policy",
    "start_policy",
    "warning",
]
