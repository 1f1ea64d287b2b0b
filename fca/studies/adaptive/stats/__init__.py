"""Adaptive tests of a finite pool of items: policies and estimators by name, and tests replayed on known responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Integer, Shaped

from fca.studies.adaptive.stats.anchors import Anchors, choose_anchors
from fca.studies.adaptive.stats.estimators import (
    Estimate,
    difference,
    p_irt,
    pooled,
    regression,
    session_mean,
    stratified,
)
from fca.studies.adaptive.stats.mixed_logit import mixed_logit
from fca.studies.adaptive.stats.policies import (
    MAPPING_L,
    MAPPING_Q,
    MAPPINGS,
    DefensiveIrt,
    FisherCat,
    GreTwoStage,
    NeymanIrt,
    OptimalAllocation,
    Policy,
    Proportional,
    Random,
    StartPolicy,
    StaticK,
    check_mapping,
)
from fca.studies.adaptive.stats.rounds import Rounds, run_policy
from fca.studies.adaptive.stats.simple import hypergeometric
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.stats.pool import ALL, LEVEL_WEIGHTS, POINTS, TARGETS, Pool, Record, make_pool
from fca.types import FcaError

__all__ = [
    "ALL",
    "ESTIMATORS",
    "LEVEL_ESTIMATORS",
    "LEVEL_WEIGHTS",
    "MAPPINGS",
    "MAPPING_L",
    "MAPPING_Q",
    "POINTS",
    "POLICIES",
    "TARGETS",
    "WARNINGS",
    "Anchors",
    "DefensiveIrt",
    "Estimate",
    "FisherCat",
    "GreTwoStage",
    "NeymanIrt",
    "OptimalAllocation",
    "Policy",
    "Pool",
    "Proportional",
    "Random",
    "Record",
    "Rounds",
    "StartPolicy",
    "StaticK",
    "check_mapping",
    "choose_anchors",
    "estimate",
    "make_pool",
    "replay",
    "run_policy",
    "start_policy",
]

POLICIES: Mapping[str, StartPolicy] = MappingProxyType(
    {
        "static_k": StaticK,
        "random": Random,
        "gre_two_stage": GreTwoStage,
        "optimal_allocation": OptimalAllocation,
        "neyman_irt": NeymanIrt,
        "fisher_cat": FisherCat,
        "proportional": Proportional,
        "defensive_irt": DefensiveIrt,
    }
)
ESTIMATORS: Mapping[str, Callable[[Pool, Record, ItemBank | None], Estimate]] = MappingProxyType(
    {
        "stratified": stratified,
        "session_mean": session_mean,
        "pooled": pooled,
        "mixed_logit": mixed_logit,
        "hypergeometric": hypergeometric,
        "p_irt": p_irt,
        "difference": difference,
        "regression": regression,
    }
)
LEVEL_ESTIMATORS = ("stratified", "session_mean", "pooled", "mixed_logit")  # estimators that need levels
# The known bias of an estimator; those that are right under every policy they take have none.
WARNINGS: Mapping[str, str] = MappingProxyType(
    {
        "stratified": "biased under gre_two_stage (about a point too low), where a session's own responses decide "
        "which of its images are evaluated; unbiased for static_k, random and optimal_allocation",
        "session_mean": "biased under an adaptive policy (gre_two_stage: about a point too low): sessions that do well "
        "get images of other levels, and lucky answers end them; unbiased for static_k and optimal_allocation",
        "pooled": "biased under an adaptive policy (gre_two_stage: points too high): hard images are evaluated mostly "
        "where the model does well; unbiased for static_k and random",
    }
)


def start_policy(policy: str | StartPolicy, pool: Pool, budget: int | float, bank: ItemBank | None = None) -> Policy:
    """Start a test of one model: returns the policy before its first round.

    policy: a name of POLICIES, or the class of a policy, or a partial of it with options.
    budget: share of the pool.
    Raises FcaError for another name, and for a pool, a budget or a bank that the policy cannot take.

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
    """Estimate every target (accuracy; with levels also score) of every group from the responses of a test so far.

    estimator: a name of ESTIMATORS.
    bank:      the pool's items, for estimators that need a bank; others ignore it.
    Raises FcaError for an unknown name, a missing bank, an estimator that needs levels where there are none, and a
    record without responses.
    """
    if estimator not in ESTIMATORS:
        raise FcaError("estimator", repr(estimator), ", ".join(ESTIMATORS), "stratified needs no bank")
    if estimator in LEVEL_ESTIMATORS:
        without_levels = [name for name in ESTIMATORS if name not in LEVEL_ESTIMATORS]
        pool.check_levels("estimator", estimator, ", ".join(without_levels))
    if not record.evaluated.any():
        raise FcaError("items evaluated", 0, "1 or more", "evaluate the policy's first round before estimating")
    return ESTIMATORS[estimator](pool, record, bank)


def replay(
    correct: Shaped[np.ndarray, "models items"],
    levels: Integer[np.ndarray, " items"] | None,
    sessions: Shaped[np.ndarray, " items"],
    groups: Shaped[np.ndarray, " items"] | None,
    policy: str | StartPolicy,
    estimator: str | None = None,
    budget: int | float = 0.25,
    bank: ItemBank | None = None,
    repeats: int = 3,
    seed: int = 0,
) -> pd.DataFrame:
    """Replay tests on known responses: estimates for each model and group, beside the truth of the whole pool.

    Every model takes the test `repeats` times, with other random draws.

    correct:  right or wrong, of every model on every item of the pool.
    levels:   0 easy, 1 medium, 2 hard, of every item; None: items without levels, whose one target is accuracy.
    sessions: the class and attribute of every item; without attributes, its class.
    groups:   the attribute of every item: results are for each group; None: one group.
    policy:   a name of POLICIES, or a policy's class with options bound: partial(GreTwoStage, mapping=MAPPING_L).
    estimator: a name of ESTIMATORS; None: stratified where items have levels, else hypergeometric.
    budget:   share of the pool to evaluate.
    bank:     the pool's items, fitted on other models.
    seed:     with the positions of model and repeat it seeds each test's draws: adding models changes no other.

    One row for each (model position, group, repeat, target), in shares: truth, estimate, se, low, high (95 %), and how
    many of the group's items were evaluated, in all and by level. `attrs["warning"]` is the known bias of the
    estimator, if any. Raises FcaError for a pool, policy, estimator, budget or bank that cannot be used.

    >>> correct = np.ones((1, 36), dtype=bool)
    >>> session = np.zeros(36, dtype=int)
    >>> tests = replay(correct, np.repeat([0, 1, 2], 12), session, session, "static_k", "session_mean", repeats=1)
    >>> tests[["target", "truth", "estimate", "asked_hard"]].to_dict("list")
    {'target': ['accuracy', 'score'], 'truth': [1.0, 1.0], 'estimate': [1.0, 1.0], 'asked_hard': [3, 3]}
    """
    if not np.isin(correct, [0, 1]).all():
        raise FcaError("answers", "some are missing or no 0 or 1", "0 or 1 for every item", "replay full answers only")
    if repeats < 1:
        raise FcaError("repeats", repeats, "1 or more", "raise it")
    pool = make_pool(levels, sessions, groups)
    estimator = estimator or ("stratified" if pool.has_levels else "hypergeometric")

    # Blocks of numbers, one for each test: a line for each group and target, its columns in the order of `columns`
    blocks = []
    for model, responses in enumerate(correct.astype(bool)):
        truth = pool.truth(responses)  # groups x targets
        for repeat in range(repeats):
            rng = np.random.default_rng([seed, model, repeat])
            policy_in_progress = start_policy(policy, pool, budget, bank)
            record = run_policy(policy_in_progress, responses, rng).record
            result = estimate(estimator, pool, record, bank)

            n_evaluated = pool.by_group(pool.by_stratum(record.evaluated))  # groups x levels
            n_evaluated = np.repeat(n_evaluated, len(pool.targets), axis=0)  # the same for each target of a group
            block = [
                truth.ravel(),
                result.value.ravel(),
                result.se.ravel(),
                result.low.ravel(),
                result.high.ravel(),
                n_evaluated.sum(axis=1),
                n_evaluated,
            ]
            blocks.append(np.column_stack(block))

    # in the order of the blocks, and of the lines in a block
    axes = {"model": range(len(correct)), "repeat": range(repeats), "group": pool.group_names, "target": pool.targets}
    index = pd.MultiIndex.from_product(list(axes.values()), names=list(axes))
    count_columns = ["asked", *(f"asked_{level}" for level in pool.levels)]
    columns = ["truth", "estimate", "se", "low", "high", *count_columns]
    table = pd.DataFrame(np.concatenate(blocks), index, columns)
    table = table.astype(dict.fromkeys(count_columns, np.int64)).reset_index()
    table.insert(1, "group", table.pop("group"))  # the order of columns: model, group, repeat, target
    table.attrs["warning"] = WARNINGS.get(estimator)
    return table
