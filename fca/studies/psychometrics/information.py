"""Where a set of images measures ability well, and how reliably (analysis=test_information)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd

from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import ABILITY, IRT_MODEL, N_ITEMS, N_SUBJECTS
from fca.studies.irt.fittable import clean_with_subjects
from fca.studies.irt.stats import IrtFit
from fca.studies.irt.stats.information import (
    empirical_reliability,
    items_needed,
    marginal_reliability,
    total_information,
)
from fca.tables.answers import DatasetResponses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import DATASET, TableSpec, filled
from fca.types import Column, Table
from fca.validation import Seed

SOURCE = "Birnbaum, 1968; Green, Bock, Humphreys, Linn & Reckase, 1984"
GRID = 61  # points of the curve
INFORMATION = Column("information", float, ".1f", "Fisher information of all items")
ERROR = Column("standard_error", float, ".3f", "standard error of ability there")
KIND = Column("kind", str, "", "curve of the test, or a subject")
MARGINAL = Column("marginal", float, ".4f", "marginal reliability, expected from the items")
ITEMS_95 = Column("items_95", int, ".0f", "items at random for .95")

TEST_INFORMATION = TableSpec(
    "test_information",
    "At which abilities do the images measure well?",
    SOURCE,
    (DATASET, KIND, fits.SUBJECT, ABILITY, INFORMATION, ERROR),
)
TEST_RELIABILITY = TableSpec(
    "test_reliability",
    "How reliable are abilities, and how many images would do?",
    SOURCE,
    (
        DATASET,
        IRT_MODEL,
        N_SUBJECTS,
        N_ITEMS,
        MARGINAL,
        Column("empirical", float, ".4f", "empirical reliability, of these subjects"),
        Column("items_90", int, ".0f", "items at random for a reliability of .90"),
        ITEMS_95,
        Column("items_99", int, ".0f", "items at random for .99"),
        fits.NOT_ESTIMABLE,
    ),
)
METHOD = {
    "reliability": "squared correlation of ability with its estimate, for subjects like these; items taken as known, "
    "although their slopes are learned from few subjects and come out too steep",
}


@dataclass(frozen=True)
class Information:
    """`analysis=test_information`; reads full models' responses to clean test images, and files of responses."""

    tables: ClassVar = (TEST_INFORMATION, TEST_RELIABILITY)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    model: fits.IrtModel = "2pl"
    seed: Annotated[Seed, "of sampled items"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Table test_information: the curve of each data set with its subjects on it; and table test_reliability.

        Their parameters have a digest of the responses of each data set. They also name the scales, such as the spread
        of difficulty, that a fit could not estimate and took from the prior. Raises FcaError if there are no responses
        that can be fitted.
        """
        curves: list[pd.DataFrame] = []
        reliability_rows: list[dict[str, object]] = []
        fitted_sets: list[tuple[DatasetResponses, IrtFit]] = []
        runs: set[str] = set()
        digests: list[str] = []
        for gathered in clean_with_subjects(store, self.query, self.responses):
            fit = fits.fitted(gathered, self.model, seed=self.seed)
            fitted_sets.append((gathered, fit))
            curves.append(_curve(gathered, fit))
            reliability_rows.append(_reliability_row(gathered, fit))
            runs |= set(gathered.runs)
            digests.append(fits.digest_of(gathered))

        parameters = {**asdict(self), **METHOD, "answers": digests, **fits.priors_taken(fitted_sets)}
        return filled(self.tables, [pd.concat(curves, ignore_index=True), reliability_rows], parameters, runs)


def _curve(gathered: DatasetResponses, fit: IrtFit) -> pd.DataFrame:
    """The information of all items of a data set at each ability of a grid, then at the ability of each subject.

    It is Fisher information on ability, whose inverse root is the standard error of an estimated ability. The grid
    extends one unit of ability beyond the subjects. Column `kind` is `curve` or `subject`.
    """
    grid = np.linspace(fit.ability.min() - 1, fit.ability.max() + 1, GRID)
    ability = np.concatenate([grid, fit.ability])
    information = total_information(fit.bank, ability)
    subject_names = gathered.responses.subjects["subject"].tolist()
    return pd.DataFrame(
        {
            "dataset": gathered.dataset,
            "kind": ["curve"] * GRID + ["subject"] * len(fit.ability),
            "subject": [None] * GRID + subject_names,
            "ability": ability,
            "information": information,
            "standard_error": 1 / np.sqrt(information),
        }
    )


def _reliability_row(gathered: DatasetResponses, fit: IrtFit) -> dict[str, object]:
    """The line of one data set in table test_reliability: reliabilities, and the items needed for 0.90, 0.95, 0.99.

    Reliability is the squared correlation of ability with its estimate. The marginal reliability follows from the
    items, for normal abilities with the spread of the subjects. The empirical reliability is the share of the variance
    of the subjects' estimated abilities that is not error.
    """
    # standard deviation of ability around 0, the mean of the abilities θ ~ N(0, spread²) for which the reliability is
    # computed: 1, except in the 1pl, whose unit is a logit
    spread = float(np.sqrt(np.mean(fit.ability**2)))
    return {
        "dataset": gathered.dataset,
        "irt_model": fit.model,
        "n_subjects": len(fit.ability),
        "n_items": len(fit.difficulty),
        "marginal": marginal_reliability(fit.bank, spread=spread),
        "empirical": empirical_reliability(fit.ability, fit.ability_se),
        "items_90": items_needed(fit.bank, 0.90, spread),
        "items_95": items_needed(fit.bank, 0.95, spread),
        "items_99": items_needed(fit.bank, 0.99, spread),
        "not_estimable": fit.not_estimable,  # scales, such as the spread of difficulty, that are taken from the prior
    }
