"""Which attributes make images hard for which model: accuracy by attribute and level, and whether each step is down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.chance import guessing, right_at_chance
from fca.stats.intervals import ALIKE, interval_over, wilson
from fca.store import Store
from fca.studies.progressive.levels import (
    ACCURACY,
    ATTRIBUTE,
    BY_LEVEL,
    LEVEL,
    PAPER,
    SCORE,
    Line,
    OfLevels,
    cells,
    levels_of,
    mean_cells,
    responses_by_level,
    score_cells,
    whole_sessions,
)
from fca.studies.progressive.stats.hierarchy import level_rates
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    DROP,
    LABEL,
    MODEL,
    MODELS,
    N_CLASSES,
    N_TEST,
    RANK,
    VERDICT,
    TableSpec,
    filled,
)
from fca.types import Column, Table, with_interval

FALLS, RISES, UNCLEAR, NO_SPREAD = "falls", "rises", "undecided", "no interval"
STEPS = ("easy to medium", "medium to hard")

TOP1_OF_LEVEL = ACCURACY.with_format(".1%", "top-1 accuracy")
STEP = Column("step", str, "", "step from one level to the next", {step: step for step in STEPS})
_VERDICTS = {
    FALLS: "falls",
    RISES: "rises",
    UNCLEAR: "does not change significantly",
    NO_SPREAD: "changes without an interval (alike in all classes, or a single class)",
}
STEP_VERDICT = VERDICT.with_format("", "change").with_choices(_VERDICTS)
MODELS_FALLING = Column("models_falling", int, ".0f", "models whose accuracy falls")
MODEL_RANK = RANK.with_format(".0f", "rank of the model, 1 is the best")
MONOTONE = Column("monotone", bool, "", "whether easy is above medium and medium above hard")

ATTRIBUTE_SCORES = TableSpec(
    "attribute_scores",
    "Which model is good at which attribute?",
    f"{PAPER} table 3 (scores), with intervals, ranks, and the accuracies beside them",
    (
        DATASET,
        MODEL,
        ATTRIBUTE,
        *with_interval(SCORE),
        *with_interval(ACCURACY),
        *BY_LEVEL,
        MODEL_RANK,
        MONOTONE,
        N_CLASSES,
    ),
)
ATTRIBUTE_STEPS = TableSpec(
    "attribute_steps",
    "Does every attribute become harder from easy to medium and from medium to hard?",
    f"{PAPER} section 5.4 claims so of all models; here with the interval of each step over classes",
    (DATASET, ATTRIBUTE, STEP, *with_interval(DROP), STEP_VERDICT, MODELS_FALLING, MODELS, N_CLASSES, AT_CHANCE),
)
ATTRIBUTE_LEVELS = TableSpec(
    "attribute_levels",
    "How accurate is each model on the easy, medium and hard images of each attribute?",
    f"{PAPER} tables 5 to 7, with intervals",
    (DATASET, MODEL, ATTRIBUTE, LEVEL, *with_interval(TOP1_OF_LEVEL), N_TEST, *with_interval(DROP)),
)
METHOD = {
    "accuracy": "of one level: mean over classes, with Wilson's 95 % interval as of that share of its images; in "
    "attribute_scores (e + m + h) / 3 of the three levels",
    "score": "(e + 2 m + 4 h) / 7",
    "drop": "accuracy on the easier level minus that on this one; of attribute_steps the mean over models",
    "intervals": f"of drops, scores and their accuracies, 95 %: {interval_over('classes')}; models stay as they are",
    "monotone": "easy above medium above hard, of the numbers as they are",
    "verdict": f"{FALLS} where the interval of the drop is above 0, {RISES} where it is below, {NO_SPREAD} where a "
    f"single class changes or all change alike, else {UNCLEAR}; each step by itself, without correction for their "
    "number",
    "at_chance": "whether all models are at the level of chance on the images of the attribute",
    "rank": "of the models by score on one attribute; 1 is best",
}


@dataclass(frozen=True)
class AttributeLevels(OfLevels):
    """`analysis=attribute_levels`."""

    tables: ClassVar = (ATTRIBUTE_SCORES, ATTRIBUTE_STEPS, ATTRIBUTE_LEVELS)

    def __call__(self, store: Store) -> list[Table]:
        """Tables attribute_scores (a line a model and attribute), attribute_steps (over models), attribute_levels."""
        scores: list[Line] = []
        steps: list[Line] = []
        by_level: list[Line] = []
        sources = [whole_sessions(every) for every in responses_by_level(store, self.query, self.protocol)]
        for source in sources:
            for attribute, items in source.items.groupby(ATTRIBUTE):
                about: Line = {DATASET: source.dataset, ATTRIBUTE: attribute}
                levels, labels = levels_of(items), items[LABEL].to_numpy(dtype=str)
                rates = np.stack([level_rates(correct, levels, labels) for correct in source.correct[:, items.index]])
                right = source.correct[:, items.index].sum(axis=1)
                guess = guessing(labels)
                at_chance = all(right_at_chance(of_model, len(labels), guess) for of_model in right)
                steps += [about | line | {AT_CHANCE: at_chance} for line in _steps(rates)]
                for model, of_model in zip(source.models, rates, strict=True):
                    easy, medium, hard = of_model.mean(axis=0)
                    falls = {MONOTONE: bool(easy > medium > hard), N_CLASSES: len(of_model)}
                    scores.append(about | {MODEL: model} | score_cells(of_model) | falls)
                    images = np.bincount(levels)
                    by_level += [about | {MODEL: model} | line for line in _levels(of_model, images)]
        runs = (run for source in sources for run in source.runs)
        return filled(self.tables, (_ranked(pd.DataFrame(scores)), steps, by_level), asdict(self) | METHOD, runs)


def _levels(rates: Float[np.ndarray, "classes 3"], images: Integer[np.ndarray, " levels"]) -> Iterator[Line]:
    """One model's accuracy at each level, and how far it fell from the level before."""
    drops = rates[:, :-1] - rates[:, 1:]
    for at, (level, value, n) in enumerate(zip(LEVELS, rates.mean(axis=0).tolist(), images.tolist(), strict=True)):
        line = cells((LEVEL, N_TEST, *with_interval(TOP1_OF_LEVEL)), (level, n, value, *wilson(round(value * n), n)))
        yield line | (mean_cells(DROP, drops[:, at - 1]) if at else {})


def _steps(rates: Float[np.ndarray, "models classes 3"]) -> Iterator[Line]:
    """Both steps of one attribute: the mean drop over models."""
    drops = rates[..., :-1] - rates[..., 1:]
    for step, drop in zip(STEPS, np.moveaxis(drops, -1, 0), strict=True):
        line = mean_cells(DROP, drop.mean(axis=0))
        line |= {STEP: step, STEP_VERDICT: verdict(line[DROP], line[DROP.low], line[DROP.high])}
        line |= {MODELS_FALLING: int((drop.mean(axis=1) > 0).sum()), MODELS: len(rates), N_CLASSES: rates.shape[1]}
        yield line


def verdict(drop: float, low: float, high: float) -> str:
    """What a drop and its interval show.

    >>> verdict(0.1, -0.1, 0.2), verdict(0.15, 0.1, 0.2), verdict(1.0, float("nan"), float("nan"))
    ('undecided', 'falls', 'no interval')
    """
    if np.isnan(low) and abs(drop) > ALIKE:
        return NO_SPREAD
    return FALLS if low > 0 else RISES if high < 0 else UNCLEAR


def _ranked(scores: pd.DataFrame) -> pd.DataFrame:
    """With ranks; models in the order of their mean score over attributes."""
    mean = scores.groupby([DATASET, MODEL])[SCORE].transform("mean")
    order = scores.assign(mean=-mean).sort_values([DATASET, ATTRIBUTE, "mean", MODEL]).index
    scores = scores.loc[order].reset_index(drop=True)
    rank = scores.groupby([DATASET, ATTRIBUTE])[SCORE].rank(ascending=False, method="min")
    return scores.assign(rank=rank.astype("Int64"))
