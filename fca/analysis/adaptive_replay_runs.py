"""Adaptive tests of models whose answers to every image are stored: which are taken, with which bank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool
from rich import get_console
from rich.progress import track

from fca.analysis.levelled import Levelled, levels_of, sessions_of
from fca.nouns import FcaError
from fca.stats.adaptive import Pool, make_pool, replay, start_policy
from fca.stats.irt import ItemBank, check_responses, fit_irt

BASE = ("static_k", "session_mean")
METHODS = (  # every policy with the estimator that is right for it
    BASE,
    ("random", "pooled"),
    ("gre_two_stage", "mixed_logit"),
    ("optimal_allocation", "mixed_logit"),
    ("neyman_irt", "difference"),
    ("fisher_cat", "p_irt"),
)
BIASED = (("gre_two_stage", "session_mean"), ("gre_two_stage", "pooled"))
OF_BANK = ("neyman_irt", "fisher_cat")
FOLDS = 10  # of networks; one in each where they are fewer


class Asked(NamedTuple):
    """A test to take: policy, estimator, and the share of the pool that it may ask."""

    policy: str
    estimator: str
    budget: float


class Banks(NamedTuple):
    """The item bank of each model, from other models' answers; none, and why, where those cannot be fitted."""

    of_model: tuple[ItemBank | None, ...]
    lacking: str | None


class Replays(NamedTuple):
    """The tests of one data set.

    frame:    of `fca.stats.adaptive.replay`, models by name; with columns policy, estimator, budget, method, share.
    left_out: which tests could not be taken, and why.
    """

    frame: pd.DataFrame
    left_out: tuple[str, ...]


def pool_of(one: Levelled) -> Pool:
    """Images by level, session (class and attribute) and group (attribute)."""
    return make_pool(levels_of(one.items), sessions_of(one.items), one.items["attribute"].to_numpy(dtype=str))


def plan(budget: float, budgets: Iterable[int | float]) -> list[Asked]:
    """Every method at the budget and at those of the curves; estimators that are biased, and twice as many images of
    `static_k`, at the budget alone."""
    every = [
        float(budget),
        *sorted({*map(float, budgets)} - {float(budget)}),
    ]  # first, so that it is never a repetition
    asked = [Asked(*method, share) for method in METHODS for share in every]
    asked += [Asked(*method, float(budget)) for method in BIASED]
    twice = Asked(*BASE, 2.0 * budget)
    return [*asked, twice] if twice.budget <= 1 and twice not in asked else asked


def replays(one: Levelled, pool: Pool, asked: Sequence[Asked], repeats: int, model: str, seed: int) -> Replays:
    """All tests of all models that can be taken; what two budgets ask alike (whole images a session) is there once."""
    banks = banks_of_others(one, model)
    frames: list[pd.DataFrame] = []
    left_out: list[str] = []
    done: set[tuple[object, ...]] = set()
    shown = track(asked, f"tests of {one.dataset}", transient=True, disable=not get_console().is_terminal)
    for test in shown:
        refused = why_not(test, pool, banks)
        if refused is not None:
            left_out.append(f"{one.dataset}: {test.policy} at budget {test.budget:g}: {refused}")
            continue
        frame = pd.concat(_of_model(one, pool, test, banks, at, repeats, seed) for at in range(len(one.models)))
        size = frame["asked"].sum() / (len(one.models) * repeats * 2)
        if (*test[:2], round(size)) in done:
            continue
        done.add((*test[:2], round(size)))
        about = {**test._asdict(), "method": name_of(test, pool), "share": size / pool.items}
        frames.append(frame.assign(**about))
    return Replays(pd.concat(frames, ignore_index=True), tuple(left_out))  # `random` at least takes any pool


def why_not(test: Asked, pool: Pool, banks: Banks) -> str | None:
    """What keeps a pool from being tested so; None: nothing."""
    if test.policy in OF_BANK and banks.lacking is not None:
        return banks.lacking
    try:
        start_policy(test.policy, pool, test.budget, banks.of_model[0])
    except FcaError as error:
        return str(error)
    return None


def banks_of_others(one: Levelled, model: str) -> Banks:
    """Each model's bank is fitted on other networks, in ten folds at most; another seed makes no other network."""
    networks = [name.split(", ")[0] for name in one.models]
    names = sorted(set(networks))
    fold = [names.index(network) % min(FOLDS, len(names)) for network in networks]
    banks = {}
    for this in set(fold):
        others = one.correct[np.array(fold) != this].astype(np.float64)
        try:
            check_responses(others)
        except FcaError as error:
            why = f"no item bank from other models' answers: {error}"
            return Banks((None,) * len(networks), why)
        banks[this] = fit_irt(others, model).bank
    return Banks(tuple(banks[this] for this in fold), None)


def _of_model(one: Levelled, pool: Pool, test: Asked, banks: Banks, at: int, repeats: int, seed: int) -> pd.DataFrame:
    """Tests of one model, with draws of its own."""
    answers: Bool[np.ndarray, "1 items"] = one.correct[[at]]
    codes = (pool.level, pool.session, pool.group)
    found = replay(
        answers, *codes, test.policy, test.estimator, test.budget, banks.of_model[at], repeats, draws_of(seed, at)
    )
    return found.assign(model=one.models[at], group=pool.group_names[found["group"].to_numpy(dtype=np.int64)])


def draws_of(seed: int, at: int) -> int:
    """The seed of a model's draws: models share none."""
    return 100_000 * seed + at


def name_of(test: Asked, pool: Pool) -> str:
    """Static 3; gre_two_stage + mixed_logit.

    >>> codes = np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int)
    >>> name_of(Asked("static_k", "session_mean", 0.25), make_pool(*codes))
    'Static 3'
    """
    if test[:2] == BASE:
        return f"Static {round(test.budget * pool.items / pool.sizes.size)}"
    return f"{test.policy} + {test.estimator}"
