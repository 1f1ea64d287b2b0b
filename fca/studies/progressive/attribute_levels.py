"""Which attributes make images hard for which model: accuracy by attribute and level, and whether each step is down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer

from fca.stats.adaptive import LEVEL_WEIGHTS, LEVELS, TARGETS
from fca.stats.hierarchy import level_rates
from fca.stats.intervals import RESAMPLES, cluster_draws, percentile_interval, wilson
from fca.store import Store
from fca.studies.progressive.hierarchy import ENDS, PAPER
from fca.studies.progressive.levels import Levelled, levelled_answers, levels_of, whole_sessions
from fca.types import Table

STEPS = ("easy to medium", "medium to hard")
DROP = [f"drop{end}" for end in ENDS]
LEVEL_COLUMNS = ["dataset", "model", "attribute", "level", "accuracy", "accuracy_low", "accuracy_high", "n_test", *DROP]
SCORE_COLUMNS = ["dataset", "model", "attribute", *(name + end for name in ("score", "accuracy") for end in ENDS)]
SCORE_COLUMNS += [*LEVELS, "rank", "monotone", "classes"]
STEP_COLUMNS = ["dataset", "attribute", "step", *DROP, "verdict", "models_falling", "models", "classes"]


@dataclass(frozen=True)
class AttributeLevels:
    """`analysis=attribute_levels`; reads `predict` rows of full models on data sets with columns attribute and level.

    query: narrows the rows.    protocol: open (any class may be answered) or masked (those that the images have).
    seed: of the resamples.
    """

    query: str | None = None
    protocol: str = "open"
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables attribute_scores (a line a model and attribute), attribute_steps (over models), attribute_levels."""
        lines: list[dict[str, Any]] = []
        scores: list[dict[str, Any]] = []
        steps: list[dict[str, Any]] = []
        runs: set[str] = set()
        for every in levelled_answers(store, self.query, self.protocol):
            source = whole_sessions(every)
            runs |= set(source.runs)
            for attribute in sorted(set(source.items["attribute"])):
                about = {"dataset": source.dataset, "attribute": attribute}
                there = (source.items["attribute"] == attribute).to_numpy()
                found = _of_attribute(source, there, self.seed)
                lines += [about | line for line in found.levels]
                scores += [about | line for line in found.scores]
                steps += [about | line for line in found.steps]
        frames = {
            "attribute_scores": _ranked(pd.DataFrame(scores, columns=SCORE_COLUMNS)),
            "attribute_steps": pd.DataFrame(steps, columns=STEP_COLUMNS),
            "attribute_levels": pd.DataFrame(lines, columns=LEVEL_COLUMNS),
        }
        parameters = {**asdict(self), **METHOD}
        return [Table(name, *ABOUT[name], part, parameters, tuple(sorted(runs))) for name, part in frames.items()]


METHOD = {
    "accuracy": "of one level: mean over classes, with Wilson's 95 % interval as of that share of its images; in "
    "attribute_scores (e + m + h) / 3 of the three levels",
    "score": "(e + 2 m + 4 h) / 7",
    "drop": "accuracy on the easier level minus that on this one; of attribute_steps the mean over models",
    "intervals": f"of drops, scores and their accuracies, 95 %: {RESAMPLES} bootstrap resamples of classes; models "
    "stay as they are",
    "monotone": "easy above medium above hard, of the numbers as they are",
    "verdict": "falls where the interval of the drop is above 0, rises where below, else cannot tell",
    "rank": "of the models by score on one attribute; 1 is best",
}
ABOUT = {
    "attribute_scores": (
        "Which model is good at which attribute?",
        f"{PAPER} table 3 (scores), with intervals, ranks, and the accuracies beside them",
    ),
    "attribute_steps": (
        "Does every attribute become harder from easy to medium and from medium to hard?",
        f"{PAPER} section 5.4 says so of all models; here with the interval of each step over classes",
    ),
    "attribute_levels": (
        "How accurate is each model on the easy, medium and hard images of each attribute?",
        f"{PAPER} tables 5 to 7, with intervals",
    ),
}


class OfAttribute(NamedTuple):
    """Lines of the three tables."""

    levels: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    steps: list[dict[str, Any]]


def _of_attribute(source: Levelled, there: Bool[np.ndarray, " items"], seed: int) -> OfAttribute:
    """All models on the images of one attribute."""
    items = source.items[there]
    levels, classes = levels_of(items), items["label"].to_numpy(dtype=str)
    rates = np.stack([level_rates(correct, levels, classes) for correct in source.correct[:, there]])
    known = rates.shape[1]
    drawn = cluster_draws(known, seed) / known if known > 1 else None
    found = OfAttribute([], [], list(_steps(rates, drawn)))
    for model, of_model in zip(source.models, rates, strict=True):
        about = {"model": model}
        found.levels.extend(about | line for line in _levels(of_model, np.bincount(levels), drawn))
        found.scores.append(about | _score(of_model, drawn))
    return found


def _levels(
    rates: Float[np.ndarray, "classes 3"],
    images: Integer[np.ndarray, " levels"],
    drawn: Float[np.ndarray, "resamples classes"] | None,
) -> Iterator[dict[str, Any]]:
    """One model's accuracy at each level, and how far it fell from the level before."""
    drops = rates[:, :-1] - rates[:, 1:]
    for at, (level, value, n) in enumerate(zip(LEVELS, rates.mean(axis=0).tolist(), images.tolist(), strict=True)):
        low, high = wilson(round(value * n), n)
        line = {"level": level, "accuracy": value, "accuracy_low": low, "accuracy_high": high, "n_test": n}
        yield line | (_with_interval("drop", drops[:, at - 1], drawn) if at else {})


def _score(
    rates: Float[np.ndarray, "classes 3"], drawn: Float[np.ndarray, "resamples classes"] | None
) -> dict[str, Any]:
    """One model's score, accuracy and level accuracies."""
    means = rates.mean(axis=0)
    line: dict[str, Any] = dict(zip(LEVELS, means.tolist(), strict=True))
    for target, weights in zip(TARGETS, LEVEL_WEIGHTS, strict=True):
        line |= _with_interval(target, rates @ weights, drawn)
    return line | {"monotone": bool(means[0] > means[1] > means[2]), "classes": len(rates)}


def _steps(
    rates: Float[np.ndarray, "models classes 3"], drawn: Float[np.ndarray, "resamples classes"] | None
) -> Iterator[dict[str, Any]]:
    """Both steps of one attribute: the mean drop over models."""
    drops = rates[..., :-1] - rates[..., 1:]
    counts = {"models": len(rates), "classes": rates.shape[1]}
    for step, drop in zip(STEPS, np.moveaxis(drops, -1, 0), strict=True):
        line = _with_interval("drop", drop.mean(axis=0), drawn)
        falling = int((drop.mean(axis=1) > 0).sum())
        yield {"step": step, **line, "verdict": verdict(line), "models_falling": falling, **counts}


def verdict(line: dict[str, Any]) -> str:
    """What the interval of a drop says.

    >>> verdict({"drop_low": -0.1, "drop_high": 0.2}), verdict({"drop_low": float("nan"), "drop_high": float("nan")})
    ('cannot tell', 'cannot tell')
    """
    return "falls" if line["drop_low"] > 0 else "rises" if line["drop_high"] < 0 else "cannot tell"


def _with_interval(
    name: str, values: Float[np.ndarray, " classes"], drawn: Float[np.ndarray, "resamples classes"] | None
) -> dict[str, float]:
    """A mean over classes with its bootstrap interval, missing for a single class."""
    ends = (np.nan, np.nan) if drawn is None else percentile_interval(drawn @ values)
    return {name: float(values.mean()), f"{name}_low": ends[0], f"{name}_high": ends[1]}


def _ranked(scores: pd.DataFrame) -> pd.DataFrame:
    """With ranks; models in the order of their mean score over attributes."""
    mean = scores.groupby(["dataset", "model"])["score"].transform("mean")
    order = scores.assign(mean=-mean).sort_values(["dataset", "attribute", "mean", "model"]).index
    scores = scores.loc[order].reset_index(drop=True)
    rank = scores.groupby(["dataset", "attribute"])["score"].rank(ascending=False, method="min")
    return scores.assign(rank=rank.astype("Int64"))
