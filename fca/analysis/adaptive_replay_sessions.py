"""What two-stage tests ask: images by level (Table 1), and the way of every session from its first round on."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from fca.analysis.adaptive_replay_runs import draws_of
from fca.analysis.levelled import Levelled
from fca.stats.adaptive import LEVELS, MAPPING_L, MAPPING_Q, POINTS, GreTwoStage, Pool

MAPPINGS = {"Q": MAPPING_Q, "L": MAPPING_L}
ASKED = ["dataset", "model", "top1", "mapping", "level", "first", "second", "asked", "sessions", "repeats"]
TRAJECTORIES = ["dataset", "model", "top1", "points", "sessions", "share", "next_easy", "next_medium", "next_hard"]
TRAJECTORIES += ["right_first", "right_second", "truth"]
SESSIONS = ["dataset", "model", "top1", "session", "points", "place", "round", "level", "right", "image_id", "truth"]
SHOWN_MODELS, SHOWN_SESSIONS = 6, 6  # drawn one by one


class Taken(NamedTuple):
    """One test. round: 1 or 2 of every asked image, 0 of others; points: of every session after round one, to 9."""

    round: Int[np.ndarray, " items"]
    points: Int[np.ndarray, " sessions"]


def taken(pool: Pool, answers: Bool[np.ndarray, " items"], budget: float, mapping: str, seed: list[int]) -> Taken:
    """A two-stage test of stored answers. Raises FcaError for a pool or budget that it cannot take."""
    start = partial(GreTwoStage, mapping=MAPPINGS[mapping])
    test, rng = start(pool, budget), np.random.default_rng(seed)
    round_of = np.zeros(pool.items, dtype=np.int64)
    for number in (1, 2):
        positions = test.ask(rng)
        round_of[positions] = number
        test.tell(positions, answers[positions])
    right = pool.by_stratum(answers & (round_of == 1))
    return Taken(round_of, np.asarray(right @ POINTS // test.times))


def asked_lines(one: Levelled, pool: Pool, budget: float, repeats: int, seed: int) -> pd.DataFrame:
    """One line a model, mapping and level: images a session in the first round, the second and both (Table 1)."""
    lines: list[dict[str, Any]] = []
    for at, model in enumerate(one.models):
        for mapping in MAPPINGS:
            tests = [taken(pool, one.correct[at], budget, mapping, [draws_of(seed, at), 0, k]) for k in range(repeats)]
            counts = np.mean(
                [[pool.by_stratum(test.round == k).mean(axis=0) for k in (1, 2)] for test in tests], axis=0
            )
            for level, (first, second) in zip(LEVELS, counts.T, strict=True):
                about = (one.dataset, model, one.correct[at].mean(), mapping, level)
                numbers = (first, second, first + second, len(pool.sizes), repeats)
                lines.append(dict(zip(ASKED, (*about, *numbers), strict=True)))
    return pd.DataFrame(lines, columns=ASKED)


def trajectory_lines(one: Levelled, pool: Pool, budget: float, seed: int) -> pd.DataFrame:
    """One line a model and points: how many sessions have them, what they are asked next, and what they get right."""
    lines: list[dict[str, Any]] = []
    for at, model in enumerate(one.models):
        answers = one.correct[at]
        test = taken(pool, answers, budget, "Q", [draws_of(seed, at), 0, 0])
        asked = [pool.by_stratum(test.round == k) for k in (1, 2)]
        right = [pool.by_stratum((test.round == k) & answers).sum(axis=1) for k in (1, 2)]
        whole = pool.by_stratum(answers).sum(axis=1) / pool.sizes.sum(axis=1)
        for points in np.unique(test.points):
            those = test.points == points
            following = dict(zip(TRAJECTORIES[6:9], asked[1][those].mean(axis=0), strict=True))
            shares = [now[those].sum() / then[those].sum() for now, then in zip(right, asked, strict=True)]
            about = {"dataset": one.dataset, "model": model, "top1": answers.mean(), "points": int(points)}
            about |= {"sessions": int(those.sum()), "share": those.mean(), **following}
            lines.append(about | {"right_first": shares[0], "right_second": shares[1], "truth": whole[those].mean()})
    return pd.DataFrame(lines, columns=TRAJECTORIES)


def session_lines(one: Levelled, pool: Pool, budget: float, seed: int) -> pd.DataFrame:
    """One line an asked image, in order, of a few sessions of a few models: from few points to many, weak to strong."""
    order = np.argsort(one.correct.mean(axis=1), kind="stable")
    parts = [_sessions(one, pool, budget, seed, at) for at in _spread(order, SHOWN_MODELS).tolist()]
    return pd.concat(parts, ignore_index=True).reindex(columns=SESSIONS)


def _sessions(one: Levelled, pool: Pool, budget: float, seed: int, at: int) -> pd.DataFrame:
    """The sessions of one model: random ones of every rank by points."""
    answers = one.correct[at]
    test = taken(pool, answers, budget, "Q", [draws_of(seed, at), 0, 0])
    ranked = np.lexsort((np.random.default_rng([seed, at]).random(len(test.points)), test.points))
    parts = []
    for session in _spread(ranked, SHOWN_SESSIONS).tolist():
        mine = np.flatnonzero((pool.session == session) & (test.round > 0))
        mine = mine[np.lexsort((pool.level[mine], test.round[mine]))]
        frame = pd.DataFrame(
            {
                "place": np.arange(1, len(mine) + 1),
                "round": test.round[mine],
                "level": np.array(LEVELS, dtype=object)[pool.level[mine]],
                "right": answers[mine],
                "image_id": one.items["image_id"].to_numpy()[mine],
            }
        )
        name, truth = str(pool.session_names[session]), answers[pool.session == session].mean()
        parts.append(frame.assign(session=name, points=int(test.points[session]), truth=truth))
    return pd.concat(parts).assign(dataset=one.dataset, model=one.models[at], top1=answers.mean())


def _spread(ordered: Int[np.ndarray, " all"], number: int) -> Int[np.ndarray, " some"]:
    """That many of them at equal steps from the first to the last, or all."""
    places = np.linspace(0, len(ordered) - 1, min(number, len(ordered)))
    return ordered[np.round(places).astype(np.int64)]
