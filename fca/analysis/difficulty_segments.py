"""Which images are easy and which are hard, which model solves how much of each, and which classes they are of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import pandas as pd

from fca.analysis.responses import clean_with_subjects, shifted_responses
from fca.analysis.segment_items import METHOD, quartered
from fca.analysis.segment_tables import (
    CLASSES,
    MODELS,
    class_lines,
    places,
    shown_classes,
    shown_subjects,
    subject_lines,
)
from fca.nouns import Table
from fca.store import Store

PAPER = "Sharma et al. (Do models see corruption as we see?, 2023)"
ABOUT = {  # name: question, source
    "segment_models": (
        "How much of the easy and of the hard images does each model solve? (right of n; Wilson's 95 % interval)",
        f"{PAPER}, Table 3, with segments by expected success",
    ),
    "segment_models_shown": (
        "Who solves the hard images? (subjects from best to worst, clean and at the highest severity)",
        f"{PAPER}, Table 3, with segments by expected success",
    ),
    "segment_classes": (
        "Which classes are among the hardest and the easiest, the most and the least discriminating quarter?",
        f"{PAPER}, Figure 4: classes in the top and the bottom 25 % of clean images",
    ),
    "segment_classes_shown": (
        "Which classes are hard, which discriminating? (those that differ most between the quarters)",
        f"{PAPER}, Figure 4",
    ),
}


@dataclass(frozen=True)
class DifficultySegments:
    """`analysis=difficulty_segments`; reads full models' answers on clean test images and under corruptions.

    query:     narrows the rows.    responses: files of answers, each a data set more (clean images).
    model:     of item responses (1pl, 2pl, 3pl, 3pl-upper, 4pl), or auto.
    compat:    seed001 = segments by raw difficulty b, cut at each severity, by that paper's way of fitting.
    seed:      of the order of equal images, and of the fit under compat.
    """

    query: str | None = None
    responses: list[str] = field(default_factory=list)
    model: str = "2pl"
    compat: str | None = None
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables segment_models and segment_classes, and of both the lines that are drawn."""
        models, classes = [pd.DataFrame(columns=MODELS)], [pd.DataFrame(columns=CLASSES)]
        runs: set[str] = set()
        left_out: list[str] = []
        for gathered in clean_with_subjects(store, self.query, self.responses):
            found = quartered(gathered, self.model, self.compat, self.seed)
            models += [subject_lines(gathered, found, *place) for place in places(gathered)]
            classes.append(class_lines(gathered, found))
            runs.update(gathered.runs)
        for _, gathered in shifted_responses(store, self.query):
            found = quartered(gathered, self.model, self.compat, self.seed)
            models += [subject_lines(gathered, found, *place) for place in places(gathered) if place.severity]
            runs.update(gathered.runs)
            left_out += gathered.left_out
        parameters = {**asdict(self), **METHOD, "left_out": "; ".join(dict.fromkeys(left_out)) or None}
        of_models, of_classes = joined(models), joined(classes)
        frames = [of_models, shown_subjects(of_models), of_classes, shown_classes(of_classes)]
        return [
            Table(name, question, source, frame, parameters, tuple(sorted(runs)))
            for (name, (question, source)), frame in zip(ABOUT.items(), frames, strict=True)
        ]


def joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """One frame, of the filled ones; the first is empty and has the columns."""
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]
