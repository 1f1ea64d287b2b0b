"""Do models fail hard images before easy ones? The score of hierarchy beside what accuracy alone makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer

from fca.stats.adaptive import LEVEL_WEIGHTS, LEVELS, TARGETS
from fca.stats.correlation import resampled_correlation
from fca.stats.hierarchy import (
    FOLLOWING,
    PATTERNS,
    all_triplets_score,
    hierarchical_score,
    level_rates,
    score_and_accuracy,
    score_interval,
)
from fca.stats.intervals import RESAMPLES, bootstrap_mean, cluster_draws, percentile_interval
from fca.store import Store
from fca.studies.progressive.levels import Levelled, levelled_answers, levels_of, sessions_of, whole_sessions
from fca.types import Table

# Over the models of a data set: do accurate ones follow the order of levels more, and more than chance makes them?


FEWEST = 4  # models that a correlation over models is of
OVER_MODELS = ["dataset", "kind", "r", "r_low", "r_high", "p", "models", "networks"]


def over_models(dataset: str, models: pd.DataFrame, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Correlation of score and accuracy over the models of one data set, plain and given chance."""
    values = models[["hierarchical_score", "accuracy", "chance"]].to_numpy(dtype=float).T
    network = pd.factorize(models["model"].str.split(", ").str[0])[0]  # `resnet18, seed 1` is one more resnet18
    networks = int(network.max()) + 1
    about = {"dataset": dataset, "models": len(models), "networks": networks}
    if len(models) < FEWEST:
        yield from ({**about, "kind": kind} for kind in ("pearson", "partial"))
        return
    found = score_and_accuracy(*values)
    drawn = _resampled(values, cluster_draws(networks, seed)[:, network])
    for kind, here, resampled in zip(found._fields, found, drawn, strict=True):
        low, high = percentile_interval(resampled)
        yield {**about, "kind": kind, "r": here.r, "r_low": low, "r_high": high, "p": here.p}


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
    defined = (different > 3) & (left > 1e-12)  # else chance says all there is: rounding is left
    return np.where(different > 2, plain, np.nan), np.where(defined, partial, np.nan)


PAPER = "Huang et al. (2025, arXiv 2503.13058)"
ENDS = ("", "_low", "_high")
COLUMNS = ["dataset", "model", *(name + end for name in TARGETS for end in ENDS), *LEVELS]
COLUMNS += [name + end for name in ("hierarchical_score", "all_triplets", "chance", "excess") for end in ENDS]
COLUMNS += ["accuracy_masked", "score_masked", "triplets", "sessions", "n_test"]
SHARES = ["dataset", "model", "accuracy", "pattern", "follows", "share", "chance", "triplets"]


@dataclass(frozen=True)
class Hierarchy:
    """`analysis=hierarchy`; reads `predict` rows of full models on data sets with columns attribute and level.

    query: narrows the rows.    protocol: open (any class may be answered) or masked (those that the images have).
    seed: of the resamples.
    """

    query: str | None = None
    protocol: str = "open"
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables hierarchy (a line a model), hierarchy_patterns and hierarchy_correlation."""
        lines: list[dict[str, Any]] = []
        shares: list[dict[str, Any]] = []
        runs: set[str] = set()
        sources = levelled_answers(store, self.query, self.protocol)
        for every, masked in zip(sources, levelled_answers(store, self.query, "masked"), strict=True):
            source = whole_sessions(every)
            triplets = matched_triplets(source.items)
            told = masked.correct[:, masked.items["image_id"].isin(source.items["image_id"])]
            for at, model in enumerate(source.models):
                about = {"dataset": source.dataset, "model": model}
                line = about | of_model(source, at, triplets, self.seed) | _masked(source, told[at])
                lines.append(line)
                shares += [about | share for share in _shares(source, at, triplets, line)]
            runs |= set(source.runs)
        frame = pd.DataFrame(lines, columns=COLUMNS).astype({"triplets": "Int64"})
        over = [line for name, part in frame.groupby("dataset") for line in over_models(str(name), part, self.seed)]
        frames = {
            "hierarchy": frame,
            "hierarchy_patterns": pd.DataFrame(shares, columns=SHARES).astype({"triplets": "Int64"}),
            "hierarchy_correlation": pd.DataFrame(over, columns=OVER_MODELS),
        }
        parameters = {**asdict(self), **METHOD}
        return [Table(name, *ABOUT[name], part, parameters, tuple(sorted(runs))) for name, part in frames.items()]


METHOD = {
    "accuracy, score": "(e + m + h) / 3 and (e + 2 m + 4 h) / 7 of the accuracies on easy, medium and hard images, "
    "means over sessions (a class and an attribute), which count equally",
    "hierarchical_score": "share of matched triplets answered as 000, 100, 110 or 111; where no triplets are named, "
    "all_triplets",
    "all_triplets": "the same over every triplet that the images of a session form: no noise of matching",
    "chance": "(1 - m)(1 - h) + e m: a model as accurate at each level, whose answers are independent",
    "excess": "all_triplets minus chance",
    "triplets": "matched ones; missing where none are named",
    "intervals": f"95 %: {RESAMPLES} bootstrap resamples of sessions, whole",
    "r": f"over models, from {FEWEST} on; 95 %: {RESAMPLES} resamples of networks, those of too few different ones "
    "left out; p as if models were independent; partial: given chance",
}
ABOUT = {
    "hierarchy": (
        "How often does a model solve the easier image where it solves the harder, and how often would chance?",
        f"{PAPER} section 3.2 and figure 4 (top right), with intervals, the closed form over all triplets, and chance",
    ),
    "hierarchy_patterns": (
        "Which of the eight patterns of right (1) and wrong (0) on easy, medium, hard does a model show?",
        f"{PAPER} figure 4 (left), with the shares by chance at the same accuracies",
    ),
    "hierarchy_correlation": (
        "Do more accurate models follow the order of levels more, and more than their accuracy makes them?",
        f"{PAPER} figure 4 (bottom right: r .77 over 12 models), with intervals and the partial correlation",
    ),
}


def matched_triplets(items: pd.DataFrame) -> Integer[np.ndarray, "triplets 3"]:
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


def of_model(source: Levelled, at: int, triplets: Integer[np.ndarray, "triplets 3"], seed: int = 0) -> dict[str, Any]:
    """The line of one model, all but its names."""
    correct, levels, sessions = source.correct[at], levels_of(source.items), sessions_of(source.items)
    every = score_interval(correct, levels, sessions, seed)._asdict()
    line: dict[str, Any] = _targets(level_rates(correct, levels, sessions), seed)
    line |= {f"all_triplets{end}": every[f"score{end}"] for end in ENDS}
    line |= {f"{name}{end}": every[f"{name}{end}"] for name in ("chance", "excess") for end in ENDS}
    line |= {"sessions": len(np.unique(sessions)), "n_test": len(correct), "triplets": None}
    if not len(triplets):
        return line | {f"hierarchical_score{end}": line[f"all_triplets{end}"] for end in ENDS}
    right = correct[triplets]
    follows = (right[:, 0] >= right[:, 1]) & (right[:, 1] >= right[:, 2])
    session = np.unique(sessions[triplets[:, 0]], return_inverse=True)[1]
    ends = bootstrap_mean(follows.astype(float), session, seed=seed)
    values = (hierarchical_score(right).score, *ends)
    return line | {"triplets": len(triplets), **_with_ends("hierarchical_score", values)}


def _targets(rates: Float[np.ndarray, "sessions 3"], seed: int) -> dict[str, float]:
    """Level accuracies, accuracy and score, with intervals where there is more than one session."""
    means = rates.mean(axis=0)
    line = dict(zip(LEVELS, means.tolist(), strict=True))
    drawn = cluster_draws(len(rates), seed) / len(rates) @ rates @ LEVEL_WEIGHTS.T
    for target, value, resampled in zip(TARGETS, LEVEL_WEIGHTS @ means, drawn.T, strict=True):
        ends = percentile_interval(resampled) if len(rates) > 1 else (np.nan, np.nan)
        line |= _with_ends(target, (float(value), *ends))
    return line


def _with_ends(name: str, values: tuple[float, float, float]) -> dict[str, float]:
    return {name + end: value for end, value in zip(ENDS, values, strict=True)}


def _masked(source: Levelled, correct: Bool[np.ndarray, " items"]) -> dict[str, float]:
    """Accuracy and score when only the classes of the images may be answered."""
    rates = level_rates(correct, levels_of(source.items), sessions_of(source.items)).mean(axis=0)
    return {f"{target}_masked": float(weights @ rates) for target, weights in zip(TARGETS, LEVEL_WEIGHTS, strict=True)}


def _shares(
    source: Levelled, at: int, triplets: Integer[np.ndarray, "triplets 3"], line: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """How often each pattern is shown, and by chance would be."""
    correct = source.correct[at]
    if len(triplets):
        found = hierarchical_score(correct[triplets])
    else:
        found = all_triplets_score(correct, levels_of(source.items), sessions_of(source.items))
    total = sum(found.patterns.values())
    for pattern in PATTERNS:
        chances = [line[level] if mark == "1" else 1 - line[level] for level, mark in zip(LEVELS, pattern, strict=True)]
        share = {"share": found.patterns[pattern] / total, "chance": float(np.prod(chances))}
        known = {"accuracy": line["accuracy"], "triplets": line["triplets"]}
        yield {"pattern": pattern, "follows": pattern in FOLLOWING, **share, **known}
