"""What would adaptive tests of a part of the images say about all of them? Taken on stored answers, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import pandas as pd

from fca.analysis.adaptive_replay_errors import model_lines, overall_lines
from fca.analysis.adaptive_replay_runs import BASE, METHODS, plan, pool_of, replays
from fca.analysis.adaptive_replay_sessions import (
    ASKED,
    SESSIONS,
    TRAJECTORIES,
    asked_lines,
    session_lines,
    trajectory_lines,
)
from fca.analysis.levelled import Levelled, levelled_answers, whole_sessions
from fca.nouns import Table
from fca.stats.adaptive import Pool
from fca.stats.adaptive.policies import check_budget
from fca.stats.intervals import RESAMPLES
from fca.store import Store

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
