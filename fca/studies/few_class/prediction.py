"""Which number known before training predicts accuracy, and does it predict more than the number of classes?

Predictors are judged on points: what features show of a class subset, and how accurate the best model is on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.correlation import correlation, correlation_interval
from fca.stats.features import SAMPLE_SEED, cosine_silhouette, knn_top1, logme, probe_top1, sample_rows, separation
from fca.stats.intervals import interval_over
from fca.store import Store
from fca.studies.few_class.accuracy import PAPER, chance_of_means, dcn, per_subset
from fca.studies.few_class.correlation import N_SUBSETS, PREDICTOR, TARGET
from fca.studies.few_class.similarity import Embedded, embedded, similarity_points
from fca.studies.few_class.stats.prediction import LEVEL, HeldOut, held_out, judge, verdict
from fca.studies.few_class.subset_accuracy import (
    DRAW,
    EMBED,
    SUBSET,
    SUBSET_SEEDS,
    EmbeddedSplit,
    OfSubsets,
    PerModel,
    accuracy_points,
    embed_rows,
    of_one_draw,
    subsets_of,
)
from fca.tables.rows import Rows, drop_conflicting_rows, records, require_rows
from fca.tables.table import (
    AT_CHANCE,
    CLASSES,
    COVERAGE,
    DATASET,
    ENCODER,
    MODEL,
    MODELS,
    NCL,
    NOTE,
    SUBSET_SEED,
    TOP1,
    TOP1_PREDICTED,
    UNDEFINED_WITHOUT,
    VALUE,
    VERDICT,
    TableSpec,
    all_at_chance,
)
from fca.types import Column, Table, check_choice, interval_columns
from fca.validation import Allowed

OF_IMAGES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {  # read a sample; the others read all images
    "silhouette": cosine_silhouette,
    "knn": knn_top1,
    "probe": probe_top1,
    "logme": logme,
}
VALUES = ["simss", "intra", "inter", "separation", *OF_IMAGES]


def predictor_points(store: Store, rows: Rows, subsets: pd.DataFrame, images: int) -> pd.DataFrame:
    """All predictors of every subset by every encoder; a class of fewer than two images leaves its subset out.

    Those of OF_IMAGES are missing where pairs of images were compared by a function, which leaves no features.
    images: the most of a subset that OF_IMAGES read (fca.stats.features.sample_rows).
    """
    scored = similarity_points(store, rows, subsets).dropna(subset="simss")
    row_of = {row["run_id"]: row for row in records(rows.embedded)}
    lines = []
    for run_id, part in scored.groupby("run_id"):
        found = embedded(store, row_of[run_id])
        for line in records(part):
            scores = _of_images(found, np.array(line["classes"]), images)
            lines.append({**line, "separation": separation(line["intra"], line["inter"]), **scores})
    points = pd.DataFrame(lines, columns=[DATASET, ENCODER, *SUBSET, *VALUES, "run_id"])
    return points.astype({"ncl": "int64", "subset_seed": "Int64", **dict.fromkeys(VALUES, "float64")})


def _of_images(found: Embedded, classes: np.ndarray, images: int) -> dict[str, float]:
    if found.features is None:
        return {}
    inside = np.flatnonzero(np.isin(found.labels, classes))
    sampled = inside[sample_rows(found.labels[inside], images)]
    return {name: score(found.features[sampled], found.labels[sampled]) for name, score in OF_IMAGES.items()}


def joined(predictors: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Predictors beside the best accuracy of any model, one line an encoder, target and different subset.

    accuracies: accuracy_points with a column `target`; the models of one target compete to be the best.
    Two seeds that drew the same classes are one subset, which keeps the first: else it would help to predict itself.
    """
    best = [dcn(per_subset(part)).assign(target=target) for target, part in accuracies.groupby("target")]
    if not best:
        return pd.DataFrame()
    points = predictors.drop(columns="run_id").merge(pd.concat(best), on=["dataset", "ncl", *DRAW])
    points = points.sort_values(["encoder", "target", "dataset", "ncl", *DRAW], ignore_index=True)
    return points.drop_duplicates(["encoder", "target", "dataset", "classes"], ignore_index=True)


BASELINE = "log_ncl"
BASELINES = ("mean", "ncl", BASELINE)
PREDICTORS = {  # name -> regressors; all but the baselines add to log ncl
    "mean": (),
    "ncl": ("ncl",),
    BASELINE: (BASELINE,),
    "simss": (BASELINE, "simss"),
    "separation": (BASELINE, "separation"),
    "intra_inter": (BASELINE, "intra", "inter"),
    **{name: (BASELINE, name) for name in OF_IMAGES},
}
ERROR = Column("error_points", float, ".2f", "mean absolute error (% points)")
GAIN = Column("gain_points", float, "+.2f", "gain over ncl alone (% points)")
WITHIN_R = Column("within_ncl_r", float, ".3f", "correlation with accuracy among subsets of equal ncl")
WITHIN_P = Column("within_ncl_p", float, ".2g", "its p, as if subsets were independent")
WITHIN = [*interval_columns(WITHIN_R), WITHIN_P]
POINTS = [*interval_columns(ERROR), *interval_columns(GAIN)]
INSIDE = f"share of measured accuracies inside their {LEVEL:.0%} prediction interval"
MEASURED_INSIDE = COVERAGE.with_format(".0%", INSIDE)
WIDTH = Column("width_points", float, ".1f", "mean width of the prediction intervals (% points)")
WAYS = {"subset seed": "new subsets", "data set": "new data sets"}
HELD = Column("held_out", str, "", "what the prediction never saw", WAYS)
VERDICTS = {text: text for text in ("beyond ncl", "undecided", "not beyond ncl", "baseline")}
BEYOND_NCL = VERDICT.with_format("", "whether it predicts accuracy beyond the number of classes").with_choices(VERDICTS)
BETTER_IN = Column("better_in", int, ".0f", "data sets in which the mean error is below that of ncl alone")
DATASETS = Column("datasets", int, ".0f", "data sets")
PREDICTOR_VALUE = VALUE.with_format(".4f", "value of the predictor")

PREDICTION = TableSpec(
    "prediction",
    "Does SimSS predict accuracy beyond the number of classes, and does anything else? (gain: over log ncl alone)",
    f"{PAPER} eqs. 1 and 2 (intra_inter: with a fitted weight each; separation: intra - inter) and 4 (simss); the "
    "S of arXiv:2404.05981 is made of ncl, intra and inter too, but is none of these; arXiv:2102.11005 (logme), "
    "arXiv:1905.02928 (CV+ intervals); knn and probe: accuracy of the features, left one out",
    (
        *(ENCODER, TARGET, HELD, PREDICTOR, N_SUBSETS, DATASETS, SUBSET_SEEDS, *WITHIN, *POINTS, BETTER_IN),
        *(*interval_columns(MEASURED_INSIDE), WIDTH, BEYOND_NCL, AT_CHANCE, NOTE),
    ),
)
PREDICTION_POINTS = TableSpec(
    "prediction_points",
    "Which accuracy was predicted for each subset, from other seeds of its data set or from other data sets?",
    f"arXiv:1905.02928 (CV+, {LEVEL:.0%} intervals)",
    (
        *(DATASET, ENCODER, TARGET, HELD, PREDICTOR, NCL, SUBSET_SEED, CLASSES, MODEL, MODELS, PREDICTOR_VALUE),
        *(TOP1, *interval_columns(TOP1_PREDICTED)),
    ),
)


def judged(points: pd.DataFrame, worth: float) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Every predictor on the same points of one encoder and target: its line of `prediction`, and its points.

    Unseen are the subset seeds of a known data set, and then, where there are several, whole data sets. What is unseen
    is what intervals leave out: points of one data set share what is particular to it.
    points: one line a subset: the columns that PREDICTORS name, top1, dataset, subset_seed, ncl, and `stored`, which
            versions of a data set share: they are never predicted from each other as if they were other data sets. A
            predictor with a missing value is left out.
    worth:  the least gain that is of use, as a fraction.
    """
    drawn = points.groupby(["stored", "subset_seed"]).ngroup()
    cluster = drawn.fillna(-1).to_numpy(dtype=np.int64)  # all classes were not drawn
    same = {name: points[name].iloc[0] for name in ("encoder", "target")}
    same |= {"n": len(points), "datasets": points["stored"].nunique(), "seeds": drawn.nunique()}
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    known = {name: names for name, names in PREDICTORS.items() if points[list(names)].notna().all(axis=None)}
    alone = {name: names[1] for name, names in known.items() if len(names) == 2}  # of one number beside log ncl
    within = _within(points, alone, cluster)
    for way in list(WAYS)[: 1 + (same["datasets"] > 1)]:
        held = {name: _held(points, list(regressors), way) for name, regressors in known.items()}
        unseen = cluster if way == "subset seed" else pd.factorize(points["stored"])[0]
        error = judge(accuracy, held[BASELINE], held[BASELINE], unseen).error.value
        for name in known:
            line = {**same, "held_out": way, "predictor": name, **within[name], **_gain(name, accuracy, held, unseen)}
            line["better_in"] = None if name == BASELINE else _better(points, held[name], held[BASELINE])
            line["verdict"] = _verdict(line, name in alone, error, worth)
            lacks_interval = not np.isnan(line[WITHIN_R]) and np.isnan(line[WITHIN_R.low])
            line["note"] = UNDEFINED_WITHOUT if lacks_interval else None
            value = points[alone[name]] if name in alone else np.nan
            yield line, _predicted(points, {HELD: way, PREDICTOR: name, PREDICTOR_VALUE: value}, held[name])


def _held(points: pd.DataFrame, regressors: list[str], way: str) -> HeldOut:
    """Each subset seed from the others of its data set, or each data set from the others."""
    x, y = points[regressors].to_numpy(dtype=np.float64), points["top1"].to_numpy(dtype=np.float64)
    dataset, seed = pd.factorize(points["dataset"])[0], pd.factorize(points["subset_seed"])[0]
    if way == "data set":
        return held_out(x, y, pd.factorize(points["stored"])[0])
    predicted = HeldOut(*(np.full(len(y), np.nan) for _ in range(3)))
    for k in np.unique(dataset):
        there = dataset == k
        for values, part in zip(predicted, held_out(x[there], y[there], seed[there]), strict=True):
            values[there] = part
    return predicted


def _within(points: pd.DataFrame, alone: Mapping[str, str], cluster: np.ndarray) -> dict[str, dict[Any, float]]:
    """Correlation with accuracy among subsets of equal ncl in one data set; missing where it is not of one number."""
    found = {name: dict.fromkeys(WITHIN, np.nan) for name in PREDICTORS}
    groups, y = points.groupby(["dataset", "ncl"]).ngroup().to_numpy(), points["top1"].to_numpy(dtype=np.float64)
    for name, column in alone.items():
        x = points[column].to_numpy(dtype=np.float64)
        estimate = correlation(x, y, groups=groups)
        interval = correlation_interval(x, y, cluster, groups=groups)
        found[name] = dict(zip(WITHIN, (estimate.r, *interval, estimate.p), strict=True))
    return found


def _gain(name: str, accuracy: np.ndarray, held: Mapping[str, HeldOut], cluster: np.ndarray) -> dict[Any, float]:
    """Error and gain in accuracy points, coverage as a fraction; ncl alone has no gain over itself."""
    found = judge(accuracy, held[name], held[BASELINE], cluster)
    values = [*(100 * value for value in (*found.error, *found.gain)), *found.coverage, 100 * found.width]
    line: dict[Any, float] = dict(zip((*POINTS, *interval_columns(MEASURED_INSIDE), WIDTH), values, strict=True))
    return line | (dict.fromkeys(interval_columns(GAIN), np.nan) if name == BASELINE else {})


def _better(points: pd.DataFrame, held: HeldOut, alone: HeldOut) -> int | None:
    """In how many data sets the mean error is below that of ncl alone; None where nothing was predicted."""
    gain = (points["top1"] - alone.predicted).abs() - (points["top1"] - held.predicted).abs()
    each = gain.groupby(points["stored"]).mean()
    return int((each > 0).sum()) if each.notna().any() else None


def _verdict(line: Mapping[str, Any], alone: bool, error: float, worth: float) -> str:
    """error: of ncl alone; the correlation within data sets does not show how far off new ones are."""
    if line["predictor"] in BASELINES:
        return "baseline"
    gain = line["gain_points_low"] / 100, line["gain_points_high"] / 100
    within = (line[WITHIN[1]], line[WITHIN[2]]) if alone else None
    return verdict(gain, worth, within, error if line["held_out"] == "subset seed" else None)


def _predicted(points: pd.DataFrame, shown: Mapping[str, Any], held: HeldOut) -> pd.DataFrame:
    predicted = dict(zip(interval_columns(TOP1_PREDICTED), held, strict=True))
    return points.assign(**shown, **predicted)[list(PREDICTION_POINTS.columns)]


TARGETS = ("sub", "open", "masked")
METHOD = (
    f"accuracy = intercept + weights * regressors, least squares, cut off at 0 and 1; {LEVEL:.0%} intervals: CV+; "
    f"intervals of the table: 95 %, {interval_over('the subset seeds of the data sets at hand')}; or over data sets "
    "where those are held out (r: always over subset seeds, on Fisher's z); each predictor is judged by itself, "
    "with no correction for how many there are; within_ncl_p: as if subsets were independent"
)


@dataclass(frozen=True)
class Prediction(OfSubsets):
    """`analysis=prediction`; reads `embed` rows, `train` rows and, for targets open and masked, those of full models.

    Models that were trained from scratch, fine-tuned or probed are never best among each other.
    """

    tables: ClassVar = (PREDICTION, PREDICTION_POINTS)

    split: EmbeddedSplit = "test"
    target: Annotated[
        str,
        "whose accuracy is predicted, the best model's on each subset (DCN): sub (sub-models), open or "
        "masked (full models)",
    ] = "sub"
    images: Annotated[int, Allowed(1), "the most of a subset that silhouette, kNN, probe and LogME read"] = 500
    worth: Annotated[float, Allowed(0, 100), "accuracy points: a smaller gain over ncl alone is of no use"] = 0.5
    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Tables prediction and prediction_points."""
        check_choice("analysis.target", self.target, TARGETS)
        rows = embed_rows(store, self.query, self.split)
        models = self._models(rows)
        train = "fca run -m task=train subset.ncl=2,5"
        require_rows(models, f"rows of models for target {self.target}", rows.total, train)
        rows = of_one_draw(drop_conflicting_rows(rows, models, "model", self.per_model))
        models = self._models(rows)
        subsets = subsets_of(rows, self)
        known = predictor_points(store, rows, subsets, self.images)
        read = replace(rows, full=rows.full[:0]) if self.target == "sub" else rows  # logits are slow to read
        accuracies = _targets(accuracy_points(store, read, subsets), models, self.target)
        points = joined(known, accuracies)
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)
        stored = models.set_index(DATASET)["stored"].to_dict()
        points = points.assign(log_ncl=np.log(points["ncl"]), stored=points[DATASET].map(stored))
        judgements = [
            judgement
            for _, part in points.groupby(["encoder", "target"])
            for judgement in judged(part.reset_index(drop=True), self.worth / 100)
        ]
        lines, drawn = zip(*judgements, strict=True)
        at_chance = {name: all_at_chance(chance_of_means(part)) for name, part in accuracies.groupby(TARGET)}
        lines = [line | {AT_CHANCE: at_chance[line[TARGET]]} for line in lines]
        frames = (PREDICTION.frame(lines).astype({BETTER_IN: "Int64"}), pd.concat(drawn, ignore_index=True))
        runs = sorted({*accuracies["run_id"], *known["run_id"]})
        parameters = rows.noted({**asdict(self), "sample_seed": SAMPLE_SEED, "method": METHOD})
        return [spec.table(frame, parameters, runs) for spec, frame in zip(self.tables, frames, strict=True)]

    def _models(self, rows: Rows) -> pd.DataFrame:
        """The rows whose accuracy is to be predicted."""
        return rows.trained if self.target == "sub" else rows.full


def _targets(accuracies: pd.DataFrame, models: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Those of one protocol, and what they are of: `DCN sub`; where there are several adaptations, one target each."""
    chosen = accuracies[accuracies["protocol"] == protocol]
    way = chosen["run_id"].map(models.set_index("run_id")["adaptation"])
    named = f"DCN {protocol}" + (", " + way.fillna("unknown") if len(way.unique()) > 1 else "")
    return chosen.assign(target=named)
