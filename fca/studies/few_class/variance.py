"""How much accuracy varies with the drawn classes, the initialisation, luck on single images and the test images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.comparison import SubsetRuns, VarianceSplit, split_variance
from fca.store import Store
from fca.studies.few_class.subset_accuracy import DRAW, OfSubsets, PerModel, points_with_predictions
from fca.tables.rows import groups_by_columns
from fca.tables.table import DATASET, IMAGES, MODEL, NCL, NOTE, PROTOCOL, SUBSETS, TableSpec
from fca.types import Column, Table, interval_columns

SOURCES = {
    "subset": "draw of the classes",
    "init": "initialisation",
    "luck": "luck: which images a training gets right",
    "test": "sampling of test images",
}
BY = [DATASET, MODEL, PROTOCOL, NCL]
VARIANCES = [Column(f"var_{name}", float, ".2g", f"variance by {source}") for name, source in SOURCES.items()]
SHARES = [Column(f"share_{name}", float, ".0%", f"share of variance by {source}") for name, source in SOURCES.items()]
SPREADS = [Column(f"sd_{name}", float, ".2%", f"standard deviation by {source}") for name, source in SOURCES.items()]
INITS = Column("inits", int, ".0f", "initialisations")
TESTED_IMAGES = IMAGES.with_format(".0f", "test images")

VARIANCE = TableSpec(
    "variance",
    "Where does the spread of accuracies come from: classes, initialisation, luck on single images or test images? "
    "(var: of one run's accuracy; sd: its root; share: of the four together)",
    "Sources as in arXiv:2103.03098; estimators: Searle, Casella and McCulloch, Variance Components (1992)",
    (*BY, *VARIANCES, *SHARES, *chain(*map(interval_columns, SPREADS)), SUBSETS, INITS, TESTED_IMAGES, NOTE),
)
METHOD = (
    "mean squares equated with their expectation, images stratified by class; negative estimates shown as 0; "
    "luck: image x initialisation residual, which is no part of init"
)
INTERVALS = "95 %: chi-square for subset, init and luck, normal over images for test"


@dataclass(frozen=True)
class Variance(OfSubsets):
    """`analysis=variance`; reads `train` rows, the `predict` rows of their best weights, and those of full models."""

    tables: ClassVar = (VARIANCE,)

    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Table variance."""
        stored = points_with_predictions(store, self, self.per_model)
        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = stored.rows.noted({**asdict(self), "method": METHOD, "intervals": INTERVALS})
        return [VARIANCE.table(variance(stored.points), parameters, stored.runs)]


def variance(points: pd.DataFrame) -> pd.DataFrame:
    """Table `variance`: the variance components of accuracy, one line for each dataset, model, protocol and ncl.

    Column `note` gives the reasons for what is missing.

    points: see points_with_predictions.
    """
    frame = VARIANCE.frame({**key, **_variance_cells(group)} for key, group in groups_by_columns(points, BY))

    # columns without any value would otherwise be of type object; neither the key nor the note is a number
    dtypes: dict[str, Any] = {}
    for column in VARIANCE.columns[len(BY) : -1]:
        dtypes[str(column)] = "Int64" if column.value_type is int else "float64"
    return frame.astype(dtypes)


def _variance_cells(points: pd.DataFrame) -> dict[str, Any]:
    """The cells of table `variance` for one model, protocol and ncl, without its key.

    For each source of variance (draw of classes, initialisation, luck, test images) these are the variance, its share
    of the sum of all four, and the standard deviation with its interval. Only subsets with stored predictions count; if
    there are none, a note gives this reason and the cells are missing.

    points: the accuracies on all subsets, one line for each initialisation and subset. Column `predictions` has the
            predictions behind each, or None.
    """
    n_subsets = points.groupby(DRAW, dropna=False).ngroups  # DRAW: subset seed and classes
    subset_runs = list(_subset_runs(points))
    if not subset_runs:
        return {"subsets": n_subsets, "note": "no predictions are stored"}

    split = split_variance(subset_runs)  # the four variances, each with value, low and high
    components = split._asdict()
    variances = {}
    for name, component in components.items():
        variances[name] = float(np.maximum(component.value, 0))  # unbiased estimates may be negative; NaN stays NaN
    total = float(np.nansum(list(variances.values())))  # with one initialisation, init and luck are NaN
    has_shares = np.isfinite(variances["subset"]) and total > 0  # with one subset its variance is NaN

    cells: dict[str, Any] = {}
    for name, component in components.items():
        cells[f"var_{name}"] = variances[name]
        if has_shares:
            cells[f"share_{name}"] = variances[name] / total
        cells[f"sd_{name}"] = variances[name] ** 0.5
        cells[f"sd_{name}_low"] = component.low**0.5
        cells[f"sd_{name}_high"] = component.high**0.5

    all_images = np.concatenate([subset.images for subset in subset_runs])
    return {
        **cells,
        "subsets": len(subset_runs),
        "inits": max(len(subset.runs) for subset in subset_runs),
        "images": len(np.unique(all_images)),
        "note": "; ".join(_notes(split, subset_runs, n_subsets)) or None,
    }


def _subset_runs(points: pd.DataFrame) -> Iterator[SubsetRuns]:
    """The correctness of every stored prediction on each subset, one SubsetRuns for each subset that has any.

    points: of one model, protocol and ncl; several runs on a subset are initialisations of the model.
    """
    stored = points[points["predictions"].notna()]
    for _, runs in stored.groupby(DRAW, dropna=False):
        inits = runs.sort_values("run_id")
        first = inits["predictions"].iloc[0]  # all initialisations predicted the same images
        correct = np.stack([predictions.right for predictions in inits["predictions"]])  # initialisations x images
        yield SubsetRuns(correct, first.images, first.labels, tuple(inits["run_id"]))


def _notes(split: VarianceSplit, subset_runs: list[SubsetRuns], n_subsets: int) -> Iterator[str]:
    """The reasons why components or their intervals are missing, or differ from the plain estimate.

    split:       the variance by source: draw of classes, initialisation, luck, test images.
    subset_runs: the stored predictions of each subset, by one run for each initialisation.
    n_subsets:   the number of all subsets, also subsets without stored predictions.
    """
    if len(subset_runs) < n_subsets:
        yield f"predictions for {len(subset_runs)} of {n_subsets} subsets"
    if len(subset_runs) == 1:
        yield "one subset: var_subset unknown"

    n_inits = [len(subset.runs) for subset in subset_runs]
    if max(n_inits) == 1:
        note = "one initialisation: var_init and var_luck unknown, their shares are within var_subset and var_test"
        # Subsets with equal names of runs were predicted by the same network. A deviation of this network that all of
        # them share is no variance between subsets, and so is in no component.
        is_same_network = len(subset_runs) > 1 and len({subset.runs for subset in subset_runs}) == 1
        if is_same_network:
            note += ", but for what is common to all subsets, as one network predicted them all"
        yield note
    elif min(n_inits) < max(n_inits):
        yield f"{min(n_inits)} to {max(n_inits)} initialisations a subset"

    # number of images of the smallest class of each subset; strata: the class of each image. Images are sampled within
    # their class, which takes two images
    fewest_images = [np.unique(subset.strata, return_counts=True)[1].min() for subset in subset_runs]
    if 1 in fewest_images:
        yield "a class with one test image: sampled as one class with the others"

    for name, component in split._asdict().items():
        if component.value < 0:  # unbiased estimates of a small variance may be negative
            yield f"var_{name} estimated at {component.value:.1e}, shown as 0"
        if np.isfinite(component.value) and np.isnan(component.high):
            yield f"var_{name} has no interval: less spread than noise, or all predictions alike"
