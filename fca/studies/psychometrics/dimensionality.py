"""How many abilities do the responses show (analysis=dimensionality)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.progress import track
from fca.stats.intervals import interval_method, mean_with_interval
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import CHOSEN, HELD_OUT_NLL, HOLD_OUT, N_ITEMS, N_MODELS, N_SUBJECTS
from fca.studies.irt.fittable import clean_with_subjects
from fca.studies.psychometrics.stats.dimensions import held_out_dimensions
from fca.tables.answers import DatasetResponses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import DATASET, TableSpec, filled
from fca.types import Column, Table, interval_columns
from fca.validation import Allowed, Seed

DIMENSIONS = Column("dimensions", int, ".0f", "dimensions of ability")
GAIN = Column("gain", float, "+.4f", "log loss saved by the last dimension; above 0: it predicts better")
TAKEN = CHOSEN.with_format("", "whether this number is taken")
DIMENSIONALITY = TableSpec(
    "dimensionality",
    "Does one ability explain the responses, or do more predict held-out ones better?",
    "Reckase (Multidimensional item response theory, 2009); predictive comparison as in arXiv:2106.00840",
    (
        *(DATASET, HOLD_OUT, DIMENSIONS, HELD_OUT_NLL, *interval_columns(GAIN)),
        *(TAKEN, N_SUBJECTS, N_MODELS, N_ITEMS),
    ),
)
METHOD = {
    "model": "compensatory 2pl: logit P = sum of loading x ability + intercept",
    "gain": f"of the mean loss a subject, paired; 95 %: {interval_method('networks')}",
    "chosen": "one more dimension as long as the interval of its gain lies above 0",
}


@dataclass(frozen=True)
class Dimensionality:
    """`analysis=dimensionality`; reads full models' responses to clean test images, and files of responses."""

    tables: ClassVar = (DIMENSIONALITY,)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    most: Annotated[int, Allowed(1, 6), "dimensions at most"] = 3
    items: Annotated[int, Allowed(2), "of a data set at most, drawn by the seed"] = 4000
    seed: Annotated[Seed, "of those items, and of the responses that are hidden"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """One line a data set, way of hiding, and number of dimensions."""
        frames, runs, digests = [], set[str](), []
        for gathered in clean_with_subjects(store, self.query, self.responses):
            frames.append(_lines(gathered, self))
            runs |= set(gathered.runs)
            digests.append(fits.digest_of(gathered))
        parameters = {**asdict(self), **METHOD, "answers": digests}
        return filled(self.tables, [pd.concat(frames, ignore_index=True)], parameters, runs)


def _lines(gathered: DatasetResponses, options: Dimensionality) -> pd.DataFrame:
    """The loss of each number of dimensions, and whether it is chosen: more only where they predict better."""
    correct = gathered.responses.correct
    # an item that all solve, or none, has no information on dimensions
    informative = np.flatnonzero(np.nanmax(correct, axis=0) > np.nanmin(correct, axis=0))
    sample = np.sort(np.random.default_rng(options.seed).permutation(informative)[: options.items])
    correct = correct[:, sample]
    has_responses = ~np.isnan(correct).all(axis=1)
    correct = correct[has_responses]
    network, names = pd.factorize(gathered.responses.subjects["model"][has_responses])

    max_dimensions = min(options.most, len(correct) - 1)
    n_fits = max_dimensions * (2 if len(names) > 2 else 1)  # two networks are not held out
    losses = held_out_dimensions(correct, network, max_dimensions, options.seed)
    lines: list[dict[str, Any]] = []
    loss_of_fewer = np.zeros(0)
    for fit in track(losses, "dimensions", n_fits, long=correct.size >= 50_000):
        line = {
            "dataset": gathered.dataset,
            "n_subjects": len(correct),
            "n_models": len(names),
            "n_items": len(sample),
            "hold_out": fit.hold_out,
            "dimensions": fit.dimensions,
            "chosen": fit.dimensions == 1,
            "held_out_nll": float(np.nanmean(fit.loss)),
        }
        if fit.dimensions > 1:
            gain = mean_with_interval(loss_of_fewer - fit.loss, network)
            line |= dict(zip(map(str, interval_columns(GAIN)), gain, strict=True))
            if lines[-1]["chosen"] and gain.low > 0:
                line["chosen"] = True
                lines[-1]["chosen"] = False
        loss_of_fewer = fit.loss
        lines.append(line)
    return pd.DataFrame(lines)
