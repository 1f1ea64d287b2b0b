"""What would adaptive tests of a part of the images say about all of them? Taken on stored answers, again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from rich import get_console
from rich.progress import track
from scipy.stats import kendalltau

from fca.stats.adaptive import (
    LEVELS,
    MAPPING_L,
    MAPPING_Q,
    POINTS,
    GreTwoStage,
    Pool,
    make_pool,
    replay,
    start_policy,
    warning,
)
from fca.stats.adaptive.policies import check_budget
from fca.stats.intervals import RESAMPLES, cluster_draws, percentile_interval
from fca.stats.irt import ItemBank, check_responses, fit_irt
from fca.store import Store
from fca.studies.progressive.levels import Levelled, levelled_answers, levels_of, sessions_of, whole_sessions
from fca.types import FcaError, Table

# Adaptive tests of models whose answers to every image are stored: which are taken, with which bank.


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


# How wrong adaptive tests are: squared error in squared percentage points over attributes, and against Static.


COMBINATION = ["method", "policy", "estimator", "target", "budget", "share"]
MEASURES = ["mse_pp2", "mse_low", "mse_high", "ratio", "ratio_low", "ratio_high", "bias_pp", "coverage", "undefined"]
COUNTS = ["models", "groups", "repeats"]
ERRORS = ["dataset", "model", *COMBINATION, "truth", "estimate", *MEASURES, *COUNTS[1:], "warning"]
OVERALL = ["dataset", *COMBINATION, *MEASURES, "rank_tau", *COUNTS, "warning"]

Cells = Float[np.ndarray, "models groups"]
Draws = tuple[Float[np.ndarray, "resamples models"], Float[np.ndarray, "resamples groups"]]


def model_lines(dataset: str, frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """One line a model, method and target (Table 2)."""
    parts = [
        part.assign(model=name) for name, of in frame.groupby("model", sort=False) for part in [overall(of, budget)]
    ]
    return pd.concat(parts).assign(dataset=dataset).reindex(columns=ERRORS).reset_index(drop=True)


def overall_lines(dataset: str, frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """One line a method, budget and target: the mean over models."""
    return overall(frame, budget).assign(dataset=dataset).reindex(columns=OVERALL)


def overall(frame: pd.DataFrame, budget: float) -> pd.DataFrame:
    """Of these models: squared error and its ratio to Static at `budget`, with what resampling models and groups gives.

    frame: the tests, as of `adaptive_replay_runs.replays`.
    """
    models, groups = frame["model"].nunique(), frame["group"].nunique()
    draws = drawn(models, seed=0), drawn(groups, seed=1)
    base = {
        target: squared(part)
        for target, part in frame[(frame["policy"] == BASE[0]) & (frame["budget"] == budget)].groupby("target")
    }
    lines = []
    for about, part in by_method(frame):
        line = about | measures(squared(part), base.get(about["target"]), draws) | on_average(part)
        lines.append(line | {"models": models, "groups": groups, "repeats": part["repeat"].nunique()})
    return pd.DataFrame(lines)


def by_method(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The tests of one method, budget and target, and what they have in common."""
    for values, part in frame.groupby(COMBINATION, sort=False):
        yield dict(zip(COMBINATION, values, strict=True)), part


def squared(part: pd.DataFrame) -> Cells:
    """Squared error of every model and group, mean over repeats, in squared percentage points; NaN where a test said
    nothing."""
    part = part.sort_values(["model", "group", "repeat"])
    error = (100 * (part["estimate"] - part["truth"]).to_numpy(dtype=np.float64)) ** 2
    return np.asarray(error.reshape(part["model"].nunique(), part["group"].nunique(), -1).mean(axis=2))


def drawn(number: int, seed: int) -> Float[np.ndarray, "resamples number"]:
    """Weights of bootstrap resamples of that many models or groups; a single one stays."""
    return cluster_draws(number, seed) / number


def measures(cells: Cells, base: Cells | None, draws: Draws) -> dict[str, float]:
    """Mean squared error over models and groups and its ratio to that of `base`, with 95 % intervals.

    Models and groups are resampled, each by itself, the same for both errors of a ratio. No interval with a single one
    of both; no ratio where Static makes no error.
    """
    nothing = dict.fromkeys(MEASURES[:6], float("nan"))
    if np.isnan(cells).any():
        return nothing
    resampled = resampled_means(cells, draws)
    found = nothing | {"mse_pp2": float(cells.mean())}
    if cells.size > 1:
        found["mse_low"], found["mse_high"] = percentile_interval(resampled)
    if base is None or np.isnan(base).any() or not base.any():
        return found
    found["ratio"] = float(cells.mean() / base.mean())
    if cells.size > 1 and cells is not base:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = resampled / resampled_means(base, draws)
        found["ratio_low"], found["ratio_high"] = percentile_interval(np.where(np.isfinite(ratios), ratios, np.nan))
    return found


def resampled_means(cells: Cells, draws: Draws) -> Float[np.ndarray, " resamples"]:
    """Means of the cells in every resample."""
    return np.asarray(((draws[0] @ cells) * draws[1]).sum(axis=1))


def on_average(part: pd.DataFrame) -> dict[str, Any]:
    """What tests of one method and target say on average: truth and estimate, bias, coverage, order of the models."""
    defined = part.dropna(subset=["estimate", "se"])
    covered = (defined["low"] <= defined["truth"]) & (defined["truth"] <= defined["high"])
    means = part.groupby(["repeat", "model"])[["truth", "estimate"]].mean().reset_index()
    return {
        "truth": part["truth"].mean(),
        "estimate": defined["estimate"].mean(),
        "bias_pp": 100 * (defined["estimate"] - defined["truth"]).mean(),
        "coverage": covered.mean() if len(defined) else float("nan"),
        "undefined": len(part) - len(defined),
        "rank_tau": order_kept(means),
        "warning": warning(part["estimator"].iloc[0]) if part["policy"].iloc[0] == "gre_two_stage" else None,
    }


def order_kept(means: pd.DataFrame) -> float:
    """Kendall's tau-b of estimated and true means over models, mean over repeats; NaN with fewer than three models."""
    if means["model"].nunique() < 3:
        return float("nan")
    each = [kendalltau(part["truth"], part["estimate"]).statistic for _, part in means.groupby("repeat")]
    return float(np.mean(each))


# What two-stage tests ask: images by level (Table 1), and the way of every session from its first round on.


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
        test.observe(positions, answers[positions])
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


PAPER = "Huang et al. (2025, arXiv 2503.13058)"
ABOUT = {
    "adaptive_errors": ("How wrong is a test of a part of the images, model by model?", f"{PAPER}, table 2"),
    "adaptive_methods": ("How wrong is each kind of test, against as many images drawn evenly?", f"{PAPER}, table 2"),
    "adaptive_curves": (
        "How wrong is each kind of test, by the share of images that it asks?",
        f"of our own, after {PAPER}",
    ),
    "adaptive_asked": ("Are different models asked different images?", f"{PAPER}, table 1"),
    "adaptive_trajectories": ("Where do sessions go after their first round?", f"{PAPER}, figure 5"),
    "adaptive_sessions": ("How does a single session go?", f"{PAPER}, figure 5"),
}
METHOD = {
    "truth": "accuracy and score of every attribute on all its images; an estimate's error is against that",
    "mse_pp2": "squared error in squared percentage points, mean over repeats, attributes and models; 95 %: "
    f"{RESAMPLES} bootstrap resamples of models and of attributes, each by itself",
    "ratio": "mse_pp2 over that of Static at the same budget, resampled together",
    "bank": "2pl (or analysis.model) of the answers of other networks: those of the tested one, under any seed, are "
    "never in it; ten folds of networks at most",
    "coverage": "share of 95 % intervals with the truth inside",
    "sessions": "six of six models at most, at equal steps by points and by accuracy",
}

EMPTY = {
    "adaptive_asked": pd.DataFrame(columns=ASKED),
    "adaptive_trajectories": pd.DataFrame(columns=TRAJECTORIES),
    "adaptive_sessions": pd.DataFrame(columns=SESSIONS),
}


@dataclass(frozen=True)
class AdaptiveReplay:
    """`analysis=adaptive_replay`; reads `predict` rows of full models on images with columns attribute and level.

    query:    narrows the rows.    protocol: open or masked (see `levelled_answers`).
    budget:   share of the images that a test may ask.    budgets: those of the curves.
    repeats:  tests of each kind and model.
    model:    of item responses, for tests that need an item bank.    seed: of all draws.
    """

    query: str | None = None
    protocol: str = "open"
    budget: float = 0.25
    budgets: list[int | float] = field(default_factory=lambda: [0.08, 0.17, 0.25, 0.33, 0.5, 0.75])
    repeats: int = 3
    model: str = "2pl"
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables adaptive_errors, adaptive_methods, adaptive_curves, adaptive_asked, adaptive_trajectories and
        adaptive_sessions; what a pool is too small for is named in their parameters, as `left_out`."""
        check_budget(self.budget)
        made: dict[str, list[pd.DataFrame]] = {name: [] for name in ABOUT}
        left_out: list[str] = []
        runs: set[str] = set()
        for one in map(whole_sessions, levelled_answers(store, self.query, self.protocol)):
            pool = pool_of(one)
            tests = replays(one, pool, plan(self.budget, self.budgets), self.repeats, self.model, self.seed)
            left_out += tests.left_out
            runs |= set(one.runs)
            for name, frame in self._tables(one, pool, tests.frame):
                made[name].append(frame)
        parameters = {**asdict(self), **METHOD, "left_out": left_out}
        frames = {name: pd.concat(parts or [EMPTY[name]], ignore_index=True) for name, parts in made.items()}
        return [Table(name, *ABOUT[name], frames[name], parameters, tuple(sorted(runs))) for name in ABOUT]

    def _tables(self, one: Levelled, pool: Pool, tests: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        """Of one data set: those that the tests that could be taken are for."""
        at_budget = (tests["budget"] == self.budget) | (tests["budget"] == 2 * self.budget) & (
            tests["policy"] == BASE[0]
        )
        of_curves = [method in METHODS for method in zip(tests["policy"], tests["estimator"], strict=True)]
        yield "adaptive_errors", model_lines(one.dataset, tests[at_budget], self.budget)
        yield "adaptive_methods", overall_lines(one.dataset, tests[at_budget], self.budget)
        yield "adaptive_curves", overall_lines(one.dataset, tests[of_curves], self.budget)
        if (tests.loc[tests["budget"] == self.budget, "policy"] == "gre_two_stage").any():
            yield "adaptive_asked", asked_lines(one, pool, self.budget, self.repeats, self.seed)
            yield "adaptive_trajectories", trajectory_lines(one, pool, self.budget, self.seed)
            yield "adaptive_sessions", session_lines(one, pool, self.budget, self.seed)
