"""Which attributes make images hard for which model: accuracy by attribute and level, and whether each step is down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.chance import count_is_at_chance, guessing_accuracy
from fca.stats.intervals import ROUNDING, interval_method, wilson
from fca.store import Store
from fca.studies.progressive.levels import (
    ACCURACY,
    ATTRIBUTE,
    BY_LEVEL,
    LEVEL,
    PAPER,
    SCORE,
    LevelAnalysis,
    Line,
    cells,
    levels_of,
    mean_cells,
    responses_by_level,
    score_cells,
    with_complete_sessions,
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
from fca.types import Column, Table, interval_columns

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
        *interval_columns(SCORE),
        *interval_columns(ACCURACY),
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
    (DATASET, ATTRIBUTE, STEP, *interval_columns(DROP), STEP_VERDICT, MODELS_FALLING, MODELS, N_CLASSES, AT_CHANCE),
)
ATTRIBUTE_LEVELS = TableSpec(
    "attribute_levels",
    "How accurate is each model on the easy, medium and hard images of each attribute?",
    f"{PAPER} tables 5 to 7, with intervals",
    (DATASET, MODEL, ATTRIBUTE, LEVEL, *interval_columns(TOP1_OF_LEVEL), N_TEST, *interval_columns(DROP)),
)
METHOD = {
    "accuracy": "of one level: mean over classes, with Wilson's 95 % interval as of that share of its images; in "
    "attribute_scores (e + m + h) / 3 of the three levels",
    "score": "(e + 2 m + 4 h) / 7",
    "drop": "accuracy on the easier level minus that on this one; of attribute_steps the mean over models",
    "intervals": f"of drops, scores and their accuracies, 95 %: {interval_method('classes')}; models stay as they are",
    "monotone": "easy above medium above hard, of the numbers as they are",
    "verdict": f"{FALLS} where the interval of the drop is above 0, {RISES} where it is below, {NO_SPREAD} where a "
    f"single class changes or all change alike, else {UNCLEAR}; each step by itself, without correction for their "
    "number",
    "at_chance": "whether all models are at the level of chance on the images of the attribute",
    "rank": "of the models by score on one attribute; 1 is best",
}


@dataclass(frozen=True)
class AttributeLevels(LevelAnalysis):
    """`analysis=attribute_levels`."""

    tables: ClassVar = (ATTRIBUTE_SCORES, ATTRIBUTE_STEPS, ATTRIBUTE_LEVELS)

    def __call__(self, store: Store) -> list[Table]:
        """Tables attribute_scores (by model and attribute), attribute_steps (over models) and attribute_levels.

        A session is a class and an attribute. Images of sessions that lack a level are left out.
        Raises FcaError when the store has no predictions for images with attributes and levels.
        """
        scores: list[Line] = []
        steps: list[Line] = []
        by_level: list[Line] = []
        sources = [with_complete_sessions(source) for source in responses_by_level(store, self.query, self.protocol)]
        for source in sources:  # one for each data set
            for attribute, items in source.items.groupby(ATTRIBUTE):
                columns: Line = {DATASET: source.dataset, ATTRIBUTE: attribute}
                correct = source.correct[:, items.index]  # models x images of the attribute
                levels = levels_of(items)
                labels = items[LABEL].to_numpy(dtype=str)
                # accuracies, models x classes x levels: within one attribute each class is a session
                rates = np.stack([level_rates(of_model, levels, labels) for of_model in correct])

                guess = guessing_accuracy(labels)
                n_right_of_models = correct.sum(axis=1)
                all_at_chance = all(count_is_at_chance(n_right, len(labels), guess) for n_right in n_right_of_models)
                steps += [{**columns, **line, AT_CHANCE: all_at_chance} for line in _step_lines(rates)]

                n_images = np.bincount(levels)  # of each level
                for model, class_rates in zip(source.models, rates, strict=True):
                    columns_of_model = {**columns, MODEL: model}
                    scores.append({**columns_of_model, **_score_line(class_rates)})
                    by_level += [{**columns_of_model, **line} for line in _level_lines(class_rates, n_images)]

        runs = (run for source in sources for run in source.runs)
        ranked_scores = _with_ranks(pd.DataFrame(scores))
        # Each table has its lines, and keeps the options, the method in words and the ids of the runs that it read.
        return filled(self.tables, (ranked_scores, steps, by_level), asdict(self) | METHOD, runs)


def _score_line(rates: Float[np.ndarray, "classes 3"]) -> Line:
    """The cells of attribute_scores for one model and attribute, from its accuracies by class and level."""
    easy, medium, hard = rates.mean(axis=0)
    return {
        **score_cells(rates),
        MONOTONE: bool(easy > medium > hard),
        N_CLASSES: len(rates),
    }


def _level_lines(rates: Float[np.ndarray, "classes 3"], n_images: Integer[np.ndarray, " levels"]) -> Iterator[Line]:
    """For each level, the cells of one model's accuracy and of its drop from the level before.

    The easy level, which is the first, has no drop. A drop is a mean over classes with its 95 % interval.

    rates: the model's accuracies within one attribute.    n_images: number of images of each level.
    """
    drops = rates[:, :-1] - rates[:, 1:]  # classes x steps
    accuracies = rates.mean(axis=0).tolist()
    for i, (level, accuracy, n) in enumerate(zip(LEVELS, accuracies, n_images.tolist(), strict=True)):
        n_right = round(accuracy * n)  # exact only if classes have equally many images; the interval needs a count
        drop_cells = mean_cells(DROP, drops[:, i - 1]) if i > 0 else {}  # the mean over classes and its interval
        yield {
            LEVEL: level,
            N_TEST: n,
            **cells(interval_columns(TOP1_OF_LEVEL), (accuracy, *wilson(n_right, n))),
            **drop_cells,
        }


def _step_lines(rates: Float[np.ndarray, "models classes 3"]) -> Iterator[Line]:
    """For both steps of one attribute, the cells of the drop in accuracy and the verdict that its interval allows.

    The steps are easy to medium and medium to hard. The drop is a mean over models; its interval is over classes.

    rates: the models' accuracies within the attribute.
    """
    drops = rates[..., :-1] - rates[..., 1:]  # models x classes x steps
    for step, drop in zip(STEPS, np.moveaxis(drops, -1, 0), strict=True):  # drop: models x classes
        mean_drop = mean_cells(DROP, drop.mean(axis=0))  # of each class; the interval is over classes
        yield {
            **mean_drop,
            STEP: step,
            STEP_VERDICT: verdict(mean_drop[DROP], mean_drop[DROP.low], mean_drop[DROP.high]),
            MODELS_FALLING: int((drop.mean(axis=1) > 0).sum()),
            MODELS: len(rates),
            N_CLASSES: rates.shape[1],
        }


def verdict(drop: float, low: float, high: float) -> str:
    """What a drop and its interval (low to high) show: one of FALLS, RISES, UNCLEAR and NO_SPREAD.

    An interval is unknown (NaN) for a single class, or if the drop is the same in all classes. Then the result is
    NO_SPREAD, or UNCLEAR for a drop of 0.

    >>> verdict(0.1, -0.1, 0.2), verdict(0.15, 0.1, 0.2), verdict(1.0, float("nan"), float("nan"))
    ('undecided', 'falls', 'no interval')
    """
    if np.isnan(low) and abs(drop) > ROUNDING:
        return NO_SPREAD
    if low > 0:
        return FALLS
    return RISES if high < 0 else UNCLEAR


def _with_ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """The lines of attribute_scores with the rank of each model on each attribute; 1 is best, equal scores share one.

    Within an attribute, lines are in the order of the models' mean score over attributes, the best first.
    """
    mean_score = scores.groupby([DATASET, MODEL])[SCORE].transform("mean")
    # The minus sign puts the highest mean first, as all columns are sorted in ascending order.
    best_first = scores.assign(mean=-mean_score).sort_values([DATASET, ATTRIBUTE, "mean", MODEL])
    scores = scores.loc[best_first.index].reset_index(drop=True)
    rank = scores.groupby([DATASET, ATTRIBUTE])[SCORE].rank(ascending=False, method="min")
    return scores.assign(rank=rank.astype("Int64"))  # a rank is missing where a score is
