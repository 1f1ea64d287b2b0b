"""Do models fail hard images before easy ones? The hierarchical score, beside what accuracy alone makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer

from fca.stats import hierarchy as stats
from fca.stats.adaptive import LEVEL_WEIGHTS
from fca.stats.correlation import fisher_interval, resampled_correlation
from fca.stats.intervals import FEWEST_DRAWS, FRACTION, RESAMPLES, cluster_draws, percentile_interval, resampled
from fca.store import Store
from fca.studies.progressive.levels import (
    ACCURACY,
    BY_LEVEL,
    PAPER,
    SCORE,
    ByLevel,
    Line,
    OfLevels,
    cells,
    levels_of,
    mean_cells,
    responses_by_level,
    score_cells,
    sessions_of,
    whole_sessions,
)
from fca.studies.table import DATASET, IMAGE_ID, MODEL, MODELS, N_TEST, NOTE, TableSpec, filled, no_interval
from fca.types import LEVELS, Column, Table, with_interval

Triplets = Integer[np.ndarray, "triplets 3"]
FEWEST = 4  # models that a correlation over models needs

HIERARCHICAL_SCORE = Column("hierarchical_score", float, ".1%", "share of matched triplets that follow the order")
ALL_TRIPLETS = Column("all_triplets", float, ".1%", "share of all triplets of a session that follow the order")
CHANCE = Column("chance", float, ".1%", "share by chance, at the same accuracies by level")
EXCESS = Column("excess", float, "+.1%", "all triplets minus chance")
ACCURACY_MASKED = Column("accuracy_masked", float, ".1%", "accuracy among the classes of the images")
SCORE_MASKED = Column("score_masked", float, ".1%", "score among the classes of the images")
TRIPLETS = Column("triplets", int, ".0f", "matched triplets")
SESSIONS = Column("sessions", int, ".0f", "sessions (class and attribute)")
PATTERN = Column("pattern", str, "", "right (1) and wrong (0) on easy, medium, hard", {p: p for p in stats.PATTERNS})
FOLLOWS = Column("follows", bool, "", "whether harder images fail first")
SHARE = Column("share", float, ".1%", "share of triplets")
KIND = Column("kind", str, "", "correlation", {"pearson": "plain", "partial": "given chance"})
R = Column("r", float, ".2f", "correlation of accuracy and hierarchical score")
P = Column("p", float, ".2g", "p value as if models were independent")
NETWORKS = Column("networks", int, ".0f", "networks, whatever their seed")

HIERARCHY = TableSpec(
    "hierarchy",
    "How often does a model solve the easier image where it solves the harder, and how often would chance?",
    f"{PAPER} section 3.2 and figure 4 (top right), with intervals, the closed form over all triplets, and chance",
    (
        *(DATASET, MODEL, *with_interval(ACCURACY), *with_interval(SCORE), *BY_LEVEL),
        *(*with_interval(HIERARCHICAL_SCORE), *with_interval(ALL_TRIPLETS)),
        *(*with_interval(CHANCE), *with_interval(EXCESS)),
        *(ACCURACY_MASKED, SCORE_MASKED, TRIPLETS, SESSIONS, N_TEST),
    ),
)
HIERARCHY_PATTERNS = TableSpec(
    "hierarchy_patterns",
    "Which of the eight patterns of right (1) and wrong (0) on easy, medium, hard does a model show?",
    f"{PAPER} figure 4 (left), with the shares by chance at the same accuracies",
    (DATASET, MODEL, ACCURACY, PATTERN, FOLLOWS, SHARE, CHANCE, TRIPLETS),
)
HIERARCHY_CORRELATION = TableSpec(
    "hierarchy_correlation",
    "Do more accurate models follow the order of levels more, and more than their accuracy makes them?",
    f"{PAPER} figure 4 (bottom right: r .77 over 12 models), with intervals and the partial correlation",
    (DATASET, KIND, *with_interval(R), P, MODELS, NETWORKS, NOTE),
)
METHOD = {
    "accuracy, score": "(e + m + h) / 3 and (e + 2 m + 4 h) / 7 of the accuracies on easy, medium and hard images, "
    "means over sessions (a class and an attribute), which count equally",
    "hierarchical_score": "share of matched triplets with the patterns 000, 100, 110 or 111; all_triplets where no "
    "triplets are named",
    "all_triplets": "the same over every triplet that the images of a session form: no noise of matching",
    "chance": "(1 - m)(1 - h) + e m: a model with the same accuracy at each level and independent predictions",
    "excess": "all_triplets minus chance",
    "triplets": "matched ones; missing where none are named",
    "intervals": f"95 %: {resampled('whole sessions')} (chance and excess: none)",
    "r": f"over models, from {FEWEST} on; 95 %: {RESAMPLES} resamples of networks without those of too few different "
    "ones; of four networks Fisher's z for the plain one; p as if models were independent; partial: given chance",
}


@dataclass(frozen=True)
class Hierarchy(OfLevels):
    """`analysis=hierarchy`."""

    tables: ClassVar = (HIERARCHY, HIERARCHY_PATTERNS, HIERARCHY_CORRELATION)

    def __call__(self, store: Store) -> list[Table]:
        """Tables hierarchy (a line a model), hierarchy_patterns and hierarchy_correlation."""
        lines: list[Line] = []
        shares: list[Line] = []
        sources = responses_by_level(store, self.query, self.protocol)
        for every, masked in zip(sources, responses_by_level(store, self.query, "masked"), strict=True):
            source = whole_sessions(every)
            triplets = matched_triplets(source.items)
            right_masked = masked.correct[:, masked.items[IMAGE_ID].isin(source.items[IMAGE_ID])]
            for at, model in enumerate(source.models):
                about: Line = {DATASET: source.dataset, MODEL: model}
                lines.append(about | _of_model(source, at, right_masked[at], triplets, self.seed))
                shares += _patterns(source, at, triplets, lines[-1])
        models = HIERARCHY.frame(lines).astype({TRIPLETS: "Int64"})
        over = [line for name, part in models.groupby(DATASET) for line in over_models(str(name), part, self.seed)]
        patterns = pd.DataFrame(shares).astype({TRIPLETS: "Int64"})
        runs = (run for source in sources for run in source.runs)
        return filled(self.tables, (models, patterns, over), asdict(self) | METHOD, runs)


def matched_triplets(items: pd.DataFrame) -> Triplets:
    """Positions of the easy, the medium and the hard image of each triplet of a session that has one of each.

    >>> items = pd.DataFrame({"label": "car", "attribute": "size", "triplet": ["a", "a", "b", "a"]})
    >>> matched_triplets(items.assign(level=["hard", "easy", "easy", "medium"]))
    array([[1, 3, 0]])
    """
    named = pd.DataFrame({"triplet": items["triplet"], "session": sessions_of(items), "level": levels_of(items)})
    named = named.dropna(subset="triplet").reset_index(names="at")
    by = named.groupby(["session", "triplet"])["level"]
    whole = named[(by.transform("size") == 3) & (by.transform("nunique") == 3)]
    ordered = whole.sort_values(["session", "triplet", "level"])
    return ordered["at"].to_numpy(dtype=np.int64).reshape(-1, 3)


def over_models(dataset: str, models: pd.DataFrame, seed: int = 0) -> Iterator[Line]:
    """Correlation of score and accuracy over the models of one data set, plain and given chance."""
    values = models[[HIERARCHICAL_SCORE, ACCURACY, CHANCE]].to_numpy(dtype=float).T
    network = pd.factorize(models[MODEL].str.split(", ").str[0])[0]  # `resnet18, seed 1` is one more resnet18
    networks = int(network.max()) + 1
    about = {"dataset": dataset, "models": len(models), "networks": networks}
    if len(models) < FEWEST:
        yield from ({**about, "kind": kind} for kind in KIND.choices)
        return
    found = stats.score_and_accuracy(*values)
    resamples = _resampled(values, cluster_draws(networks, seed)[:, network])
    for kind, here, drawn in zip(KIND.choices, found, resamples, strict=True):
        low, high = percentile_interval(drawn, networks)
        if kind == "pearson" and networks == len(models) < FEWEST_DRAWS:
            low, high = fisher_interval(here.r, networks)
        note = no_interval(networks, "networks") if np.isnan(low) and not np.isnan(here.r) else None
        yield {**about, "kind": kind, "r": here.r, "r_low": low, "r_high": high, "p": here.p, "note": note}


def _resampled(
    values: Float[np.ndarray, "3 models"], times: Integer[np.ndarray, "resamples models"]
) -> tuple[Float[np.ndarray, " resamples"], Float[np.ndarray, " resamples"]]:
    """Both coefficients in every resample; NaN where so few models differ that they lie on a line anyway."""
    score, accuracy, chance = values
    plain, of_score, of_accuracy = (
        resampled_correlation(x, y, times) for x, y in ((score, accuracy), (score, chance), (accuracy, chance))
    )
    left = (1 - of_score**2) * (1 - of_accuracy**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        partial = (plain - of_score * of_accuracy) / np.sqrt(left)
    different = (times > 0).sum(axis=1)
    defined = (different > 3) & (left > 1e-12)  # else chance explains everything and only rounding is left
    return np.where(different > 2, plain, np.nan), np.where(defined, partial, np.nan)


def _of_model(source: ByLevel, at: int, masked: Bool[np.ndarray, " items"], triplets: Triplets, seed: int) -> Line:
    """The line of one model, except its names.

    masked: what it gets right when only the classes of the images may be predicted.
    """
    correct, levels, sessions = source.correct[at], levels_of(source.items), sessions_of(source.items)
    rates, rates_masked = (stats.level_rates(right, levels, sessions) for right in (correct, masked))
    line = score_cells(rates, seed)
    line |= cells((ACCURACY_MASKED, SCORE_MASKED), (LEVEL_WEIGHTS @ rates_masked.mean(axis=0)).tolist())
    every = stats.score_interval(correct, levels, sessions, seed)
    line |= cells((*with_interval(ALL_TRIPLETS), *with_interval(CHANCE), *with_interval(EXCESS)), chain(*every))
    line |= {SESSIONS: len(rates), N_TEST: len(correct), TRIPLETS: len(triplets) or None}
    if not len(triplets):
        return line | cells(with_interval(HIERARCHICAL_SCORE), every.score)
    right = correct[triplets]
    follows = (right[:, 0] >= right[:, 1]) & (right[:, 1] >= right[:, 2])
    return line | mean_cells(HIERARCHICAL_SCORE, follows.astype(float), sessions[triplets[:, 0]], seed, FRACTION)


def _patterns(source: ByLevel, at: int, triplets: Triplets, line: Line) -> Iterator[Line]:
    """How often a model shows each pattern, and how often chance would."""
    if len(triplets):
        found = stats.hierarchical_score(source.correct[at][triplets])
    else:
        found = stats.all_triplets_score(source.correct[at], levels_of(source.items), sessions_of(source.items))
    total = sum(found.patterns.values())
    about: Line = {column: line[column] for column in (DATASET, MODEL, ACCURACY, TRIPLETS)}
    for pattern, count in found.patterns.items():
        chances = [line[level] if mark == "1" else 1 - line[level] for level, mark in zip(LEVELS, pattern, strict=True)]
        shares = {SHARE: count / total, CHANCE: float(np.prod(chances))}
        yield about | {PATTERN: pattern, FOLLOWS: pattern in stats.FOLLOWING} | shares
