"""Tests taken again and again by look-up: models whose answers to every item of the pool are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer, Shaped

from fca.stats.adaptive.names import estimate, start_policy, warning
from fca.stats.adaptive.policies import Policy, StartPolicy
from fca.stats.adaptive.pool import LEVELS, TARGETS, Pool, make_pool
from fca.stats.irt import ItemBank
from fca.types import FcaError


def run_policy(policy: Policy, correct: Bool[np.ndarray, " items"], rng: np.random.Generator) -> Policy:
    """The whole test of one model whose answers are known; the policy, at its end."""
    while len(positions := policy.ask(rng)):
        policy.tell(positions, correct[positions])
    return policy


def replay(
    correct: Bool[np.ndarray, "models items"] | Integer[np.ndarray, "models items"] | Float[np.ndarray, "models items"],
    levels: Integer[np.ndarray, " items"],
    sessions: Shaped[np.ndarray, " items"],
    groups: Shaped[np.ndarray, " items"],
    policy: str | StartPolicy,
    estimator: str = "mixed_logit",
    budget: int | float = 0.25,
    bank: ItemBank | None = None,
    repeats: int = 3,
    seed: int = 0,
) -> pd.DataFrame:
    """What a test of each model says of each group, `repeats` times, beside the truth of the whole pool.

    correct:  right or wrong, of every model on every item of the pool.
    levels:   0 easy, 1 medium, 2 hard.    sessions: (class, attribute).    groups: what is averaged over: attribute.
    policy:   a name of POLICIES, or a policy's class with options bound: partial(GreTwoStage, mapping=MAPPING_L).
    budget:   share of the pool to ask.    bank: the pool's items, fitted on other models.
    seed:     with the positions of model and repeat it seeds each test's draws: adding models changes no other.

    A line a (model position, group, repeat, target), in shares: truth, estimate, se, low, high (95 %), and how many of
    the group's items were asked, in all and by level. `attrs["warning"]` says what is known to be wrong with the
    estimator, if anything. Raises FcaError for a pool, policy, estimator, budget or bank that cannot be used.

    >>> correct = np.ones((1, 36), dtype=bool)
    >>> session = np.zeros(36, dtype=int)
    >>> found = replay(correct, np.repeat([0, 1, 2], 12), session, session, "static_k", "session_mean", repeats=1)
    >>> found[["target", "truth", "estimate", "asked_hard"]].to_dict("list")
    {'target': ['accuracy', 'score'], 'truth': [1.0, 1.0], 'estimate': [1.0, 1.0], 'asked_hard': [3, 3]}
    """
    if not np.isin(correct, [0, 1]).all():
        raise FcaError("answers", "some are missing or no 0 or 1", "0 or 1 for every item", "replay full answers only")
    if repeats < 1:
        raise FcaError("repeats", repeats, "1 or more", "raise it")
    pool = make_pool(levels, sessions, groups)
    frames = []
    for model, answers in enumerate(correct.astype(bool)):
        truth = pool.truth(answers)
        for repeat in range(repeats):
            test = run_policy(
                start_policy(policy, pool, budget, bank), answers, np.random.default_rng([seed, model, repeat])
            )
            found = estimate(estimator, pool, test.record, bank)
            asked = np.repeat(pool.by_group(pool.by_stratum(test.record.asked)), 2, axis=0)
            numbers = [truth, found.value, found.se, found.low, found.high]
            frames.append(np.column_stack([*(part.ravel() for part in numbers), asked]))
    return _table(pool, frames, len(correct), repeats, warning(estimator))


def _table(
    pool: Pool, frames: list[Float[np.ndarray, "lines columns"]], models: int, repeats: int, said: str | None
) -> pd.DataFrame:
    names = ["truth", "estimate", "se", "low", "high", *(f"asked_{level}" for level in LEVELS)]
    table = pd.DataFrame(np.concatenate(frames), columns=names)
    counts = names[5:]
    table[counts] = table[counts].astype(np.int64)
    lines = pool.groups * len(TARGETS)
    table.insert(0, "model", np.repeat(np.arange(models), repeats * lines))
    table.insert(1, "group", np.tile(np.repeat(pool.group_names, len(TARGETS)), models * repeats))
    table.insert(2, "repeat", np.tile(np.repeat(np.arange(repeats), lines), models))
    table.insert(3, "target", np.tile(np.array(TARGETS, dtype=object), len(table) // len(TARGETS)))
    table.insert(9, "asked", table[counts].sum(axis=1))
    table.attrs["warning"] = said
    return table
