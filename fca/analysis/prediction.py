"""Which number known before training predicts accuracy, and does it tell more than the number of classes?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pandas as pd

from fca.analysis.few_class import PAPER
from fca.analysis.points import accuracy_points
from fca.analysis.predictor_points import joined, predictor_points
from fca.analysis.predictor_verdicts import COLUMNS, judged
from fca.analysis.select import one_config, require, select
from fca.analysis.subsets import Grid, subsets_of
from fca.nouns import FcaError, Table
from fca.stats.intervals import RESAMPLES
from fca.stats.prediction import LEVEL
from fca.stats.predictors import SAMPLE_SEED
from fca.store import Store

TARGETS = ("sub", "open", "masked")
METHOD = (
    f"accuracy = intercept + weights * regressors, least squares, cut off at 0 and 1; {LEVEL:.0%} intervals: CV+; "
    f"intervals of the table: 95 %, {RESAMPLES} bootstrap resamples of the subset seeds of the data sets at hand, or "
    "of data sets where those are held out (r: always of subset seeds); each predictor is judged by itself, with no "
    "correction for how many there are; within_ncl_p: as if subsets were independent"
)


@dataclass(frozen=True)
class Prediction:
    """`analysis=prediction`; reads `embed` rows, `train` rows and, for targets open and masked, those of full models.

    query:       narrows the rows.
    ncl, seeds:  a grid of draws instead of the subsets of the stored sub-models; sampler: how it is drawn.
    split:       of the embedded images.    images: the most of a subset that all but the similarities read.
    target:      protocol of the accuracy to be predicted, which is the best model's on each subset (DCN); models that
                 were trained from scratch, fine-tuned or probed are never best among each other.
    worth:       a gain over ncl alone below this is of no use, in accuracy points.
    per_model:   config columns that differ between models by intention.
    """

    query: str | None = None
    ncl: list[int | float] | None = None
    seeds: list[int] | None = None
    sampler: str = "uniform"
    split: str = "test"
    target: str = "sub"
    images: int = 500
    worth: float = 0.5
    per_model: list[str] = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Tables prediction and prediction_points."""
        if self.target not in TARGETS:
            raise FcaError("analysis.target", self.target, ", ".join(TARGETS), "take one of these")
        rows = select(store, self.query, self.split)
        embed, train = "fca run task=embed model@encoder=hog", "fca run -m task=train subset.ncl=2,5"
        require(rows.embedded, f"embed rows of split {self.split}", rows.total, embed)
        models = rows.trained if self.target == "sub" else rows.full
        require(models, f"rows of models for target {self.target}", rows.total, train)
        one_config(rows.embedded, "encoder")
        one_config(models, "model", self.per_model)
        subsets = subsets_of(rows, Grid(self.ncl, self.seeds, self.sampler))
        told = predictor_points(store, rows, subsets, self.images)
        asked = replace(rows, full=rows.full[:0]) if self.target == "sub" else rows  # logits are slow to read
        accuracies = _targets(accuracy_points(store, asked, subsets), models, self.target)
        points = joined(told, accuracies)
        require(points, "subsets with both an accuracy and a similarity", rows.total, embed)
        points = points.assign(log_ncl=np.log(points["ncl"]))
        lines, drawn = [], []
        for _, part in points.groupby(["encoder", "target"]):
            for line, held in judged(part.reset_index(drop=True), self.worth / 100):
                lines.append(line)
                drawn.append(held)
        frames = {
            "prediction": pd.DataFrame(lines, columns=COLUMNS).astype({"better_in": "Int64"}),
            "prediction_points": pd.concat(drawn, ignore_index=True),
        }
        runs = tuple(sorted({*accuracies["run_id"], *told["run_id"]}))
        parameters = {**asdict(self), "sample_seed": SAMPLE_SEED, "method": METHOD}
        return [Table(name, *ABOUT[name], frame, parameters, runs) for name, frame in frames.items()]


ABOUT = {
    "prediction": (
        "Does SimSS predict accuracy beyond the number of classes, and does anything else? (gain: over log ncl alone)",
        f"{PAPER} eqs. 1 and 2 (intra_inter: with a fitted weight each; separation: intra - inter) and 4 (simss); the "
        "S of arXiv:2404.05981 is made of ncl, intra and inter too, but is none of these; arXiv:2102.11005 (logme), "
        "arXiv:1905.02928 (CV+ intervals); knn and probe: accuracy of the features, left one out",
    ),
    "prediction_points": (
        "Which accuracy was predicted for each subset, from other seeds of its data set or from other data sets?",
        f"arXiv:1905.02928 (CV+, {LEVEL:.0%} intervals)",
    ),
}


def _targets(accuracies: pd.DataFrame, models: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Those of one protocol, and what they are of: `DCN sub`; where there are several adaptations, one target each."""
    chosen = accuracies[accuracies["protocol"] == protocol]
    way = chosen["run_id"].map(models.set_index("run_id")["adaptation"])
    named = f"DCN {protocol}" + (", " + way.fillna("unknown") if len(way.unique()) > 1 else "")
    return chosen.assign(target=named)
