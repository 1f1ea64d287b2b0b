"""How many dimensions of ability do the responses support (analysis=dimensionality)?"""

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

LONG = 50_000  # responses, from which on there is a progress bar

DIMENSIONS = Column("dimensions", int, ".0f", "dimensions of ability")
GAIN = Column("gain", float, "+.4f", "log loss saved by the last dimension; above 0: it predicts better")
TAKEN = CHOSEN.with_format("", "whether this number is taken")
DIMENSIONALITY = TableSpec(
    "dimensionality",
    "Does one ability explain the responses, or do more predict held-out ones better?",
    "Reckase (Multidimensional item response theory, 2009); predictive comparison as in arXiv:2106.00840",
    (
        DATASET,
        HOLD_OUT,
        DIMENSIONS,
        HELD_OUT_NLL,
        *interval_columns(GAIN),
        TAKEN,
        N_SUBJECTS,
        N_MODELS,
        N_ITEMS,
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
        """Table dimensionality: a line for each data set, kind of held-out responses, and number of dimensions.

        Held-out responses are single cells or whole subjects.
        """
        frames: list[pd.DataFrame] = []
        runs: set[str] = set()
        digests: list[str] = []
        for gathered in clean_with_subjects(store, self.query, self.responses):
            frames.append(_dimension_rows(gathered, self))
            runs |= set(gathered.runs)
            digests.append(fits.digest_of(gathered))

        parameters = {**asdict(self), **METHOD, "answers": digests}  # digests identify the responses
        return filled(self.tables, [pd.concat(frames, ignore_index=True)], parameters, runs)


def _dimension_rows(gathered: DatasetResponses, settings: Dimensionality) -> pd.DataFrame:
    """The lines of one data set: the held-out loss of each number of dimensions, and which number is chosen.

    The loss is the mean negative log likelihood, in nats, of responses that were held out of the fit. One dimension is
    chosen at first. One more takes its place as long as it lowers the loss significantly: the interval of its gain lies
    above 0. The lines for held-out cells (single responses) come first. Lines for held-out subjects follow if there are
    at least three networks, since only then are subjects held out.
    """
    all_correct = gathered.responses.correct

    # an item that all subjects solve, or none, has no information on dimensions
    varied_items = np.flatnonzero(np.nanmax(all_correct, axis=0) > np.nanmin(all_correct, axis=0))
    sample = np.random.default_rng(settings.seed).permutation(varied_items)[: settings.items]  # bounds the time
    correct = all_correct[:, np.sort(sample)]
    has_response = ~np.isnan(correct).all(axis=1)  # of each subject: any response to a sampled item
    correct = correct[has_response]
    network, network_names = pd.factorize(gathered.responses.subjects["model"][has_response])

    max_dimensions = min(settings.most, len(correct) - 1)  # a fit takes fewer dimensions than subjects
    n_hold_outs = 2 if len(network_names) > 2 else 1  # cells, then subjects, which takes three networks
    # cells with 1, 2 ... dimensions, then subjects with 1, 2 ... dimensions. The field `loss` of each is the mean loss
    # of each subject, NaN for a subject without held-out responses
    losses = held_out_dimensions(correct, network, max_dimensions, settings.seed)

    rows: list[dict[str, Any]] = []
    previous_loss = np.zeros(0)  # not used: the first fit has one dimension
    is_long = correct.size >= LONG  # long enough for a progress bar
    for losses_of_fit in track(losses, "dimensions", max_dimensions * n_hold_outs, long=is_long):
        gain = {}  # over one dimension fewer, with its interval; a single dimension has none
        is_chosen = losses_of_fit.dimensions == 1
        if losses_of_fit.dimensions > 1:
            # mean over subjects, with an interval over networks: snapshots of one network are not independent
            estimate = mean_with_interval(previous_loss - losses_of_fit.loss, network)
            gain = dict(zip(map(str, interval_columns(GAIN)), estimate, strict=True))
            # only the next dimension after the chosen number can be chosen in its place
            is_chosen = bool(rows[-1]["chosen"] and estimate.low > 0)
            if is_chosen:
                rows[-1]["chosen"] = False

        rows.append(
            {
                "dataset": gathered.dataset,
                "n_subjects": len(correct),
                "n_models": len(network_names),
                "n_items": len(sample),
                "hold_out": losses_of_fit.hold_out,
                "dimensions": losses_of_fit.dimensions,
                "chosen": is_chosen,
                "held_out_nll": float(np.nanmean(losses_of_fit.loss)),
                **gain,
            }
        )
        previous_loss = losses_of_fit.loss

    return pd.DataFrame(rows)
