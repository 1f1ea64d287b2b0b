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

IMAGE_SCORES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {  # of a sample; the others are of all images
    "silhouette": cosine_silhouette,
    "knn": knn_top1,
    "probe": probe_top1,
    "logme": logme,
}
VALUES = ["simss", "intra", "inter", "separation", *IMAGE_SCORES]


def predictor_points(store: Store, rows: Rows, subsets: pd.DataFrame, images: int) -> pd.DataFrame:
    """All predictors of every subset by every encoder; a class of fewer than two images leaves its subset out.

    Those of IMAGE_SCORES are missing where pairs of images were compared by a function, which leaves no features.
    images: the most of a subset that IMAGE_SCORES read (fca.stats.features.sample_rows).
    """
    scored = similarity_points(store, rows, subsets).dropna(subset="simss")
    row_by_run_id = {row["run_id"]: row for row in records(rows.embedded)}
    lines = []
    for run_id, subsets_of_run in scored.groupby("run_id"):
        embedding = embedded(store, row_by_run_id[run_id])
        for line in records(subsets_of_run):
            scores = _image_scores(embedding, np.array(line["classes"]), images)
            lines.append({**line, "separation": separation(line["intra"], line["inter"]), **scores})
    points = pd.DataFrame(lines, columns=[DATASET, ENCODER, *SUBSET, *VALUES, "run_id"])
    return points.astype({"ncl": "int64", "subset_seed": "Int64", **dict.fromkeys(VALUES, "float64")})


def _image_scores(embedding: Embedded, classes: np.ndarray, images: int) -> dict[str, float]:
    if embedding.features is None:
        return {}
    rows = np.flatnonzero(np.isin(embedding.labels, classes))
    sampled = rows[sample_rows(embedding.labels[rows], images)]
    features = embedding.features[sampled]
    labels = embedding.labels[sampled]
    return {name: score(features, labels) for name, score in IMAGE_SCORES.items()}


def joined(predictors: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Predictors beside the best accuracy of any model: one line for each encoder, target and different subset.

    accuracies: accuracy_points with a column `target`; the models of one target compete to be the best.
    Two seeds that drew the same classes are one subset, which keeps the first: else it would help to predict itself.
    """
    best = []
    for target, accuracies_of_target in accuracies.groupby("target"):
        best.append(dcn(per_subset(accuracies_of_target)).assign(target=target))
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
    **{name: (BASELINE, name) for name in IMAGE_SCORES},
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
HELD_OUT_KINDS = {"subset seed": "new subsets", "data set": "new data sets"}
HELD_OUT = Column("held_out", str, "", "what the prediction never saw", HELD_OUT_KINDS)
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
        *(ENCODER, TARGET, HELD_OUT, PREDICTOR, N_SUBSETS, DATASETS, SUBSET_SEEDS, *WITHIN, *POINTS, BETTER_IN),
        *(*interval_columns(MEASURED_INSIDE), WIDTH, BEYOND_NCL, AT_CHANCE, NOTE),
    ),
)
PREDICTION_POINTS = TableSpec(
    "prediction_points",
    "Which accuracy was predicted for each subset, from other seeds of its data set or from other data sets?",
    f"arXiv:1905.02928 (CV+, {LEVEL:.0%} intervals)",
    (
        *(DATASET, ENCODER, TARGET, HELD_OUT, PREDICTOR, NCL, SUBSET_SEED, CLASSES, MODEL, MODELS, PREDICTOR_VALUE),
        *(TOP1, *interval_columns(TOP1_PREDICTED)),
    ),
)


def judged(points: pd.DataFrame, worth: float) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Every predictor on the same points of one encoder and target: its line of `prediction`, and its points.

    Subset seeds of a known data set are held out first, and then, if there are several data sets, whole data sets. The
    intervals are over what is held out: points of one data set share what is particular to it.
    points: one line a subset: the columns that PREDICTORS name, top1, dataset, subset_seed, ncl, and `stored`, which
            versions of a data set share: they are never predicted from each other as if they were other data sets. A
            predictor with a missing value is left out.
    worth:  the least gain that is of use, as a fraction.
    """
    draws = points.groupby(["stored", "subset_seed"]).ngroup()
    seed_cluster = draws.fillna(-1).to_numpy(dtype=np.int64)  # -1: all classes, which were not drawn
    dataset_cluster = pd.factorize(points["stored"])[0]
    n_datasets = points["stored"].nunique()
    same_values = {
        "encoder": points["encoder"].iloc[0],
        "target": points["target"].iloc[0],
        "n": len(points),
        "datasets": n_datasets,
        "seeds": draws.nunique(),
    }

    accuracy = points["top1"].to_numpy(dtype=np.float64)
    predictors = {
        name: regressors for name, regressors in PREDICTORS.items() if points[list(regressors)].notna().all(axis=None)
    }
    # The column of each predictor that is one number beside log ncl
    single_columns = {name: regressors[1] for name, regressors in predictors.items() if len(regressors) == 2}
    within = _within(points, single_columns, seed_cluster)

    clusters_by_kind = {"subset seed": seed_cluster}
    if n_datasets > 1:
        clusters_by_kind["data set"] = dataset_cluster
    for kind, cluster in clusters_by_kind.items():
        predictions = {name: _held_out(points, list(regressors), kind) for name, regressors in predictors.items()}
        baseline = predictions[BASELINE]
        baseline_error = judge(accuracy, baseline, baseline, cluster).error.value
        for name in predictors:
            line = {
                **same_values,
                "held_out": kind,
                "predictor": name,
                **within[name],
                **_gain(name, accuracy, predictions, cluster),
            }
            line["better_in"] = None if name == BASELINE else _better(points, predictions[name], baseline)
            line["verdict"] = _verdict(line, name in single_columns, baseline_error, worth)
            lacks_interval = not np.isnan(line[WITHIN_R]) and np.isnan(line[WITHIN_R.low])
            line["note"] = UNDEFINED_WITHOUT if lacks_interval else None

            value = points[single_columns[name]] if name in single_columns else np.nan
            columns: dict[str, Any] = {HELD_OUT: kind, PREDICTOR: name, PREDICTOR_VALUE: value}
            yield line, _predicted(points, columns, predictions[name])


def _held_out(points: pd.DataFrame, regressors: list[str], kind: str) -> HeldOut:
    """Each subset seed predicted from the others of its data set, or each data set from the others."""
    x = points[regressors].to_numpy(dtype=np.float64)
    y = points["top1"].to_numpy(dtype=np.float64)
    if kind == "data set":
        return held_out(x, y, pd.factorize(points["stored"])[0])

    dataset = pd.factorize(points["dataset"])[0]
    seed = pd.factorize(points["subset_seed"])[0]
    predictions = HeldOut(*(np.full(len(y), np.nan) for _ in range(3)))
    for k in np.unique(dataset):
        is_of_dataset = dataset == k
        of_dataset = held_out(x[is_of_dataset], y[is_of_dataset], seed[is_of_dataset])
        for values, values_of_dataset in zip(predictions, of_dataset, strict=True):
            values[is_of_dataset] = values_of_dataset
    return predictions


def _within(
    points: pd.DataFrame, single_columns: Mapping[str, str], cluster: np.ndarray
) -> dict[str, dict[Any, float]]:
    """Correlation with accuracy among subsets of equal ncl in one data set; missing for several numbers."""
    groups = points.groupby(["dataset", "ncl"]).ngroup().to_numpy()
    y = points["top1"].to_numpy(dtype=np.float64)
    within = {name: dict.fromkeys(WITHIN, np.nan) for name in PREDICTORS}
    for name, column in single_columns.items():
        x = points[column].to_numpy(dtype=np.float64)
        estimate = correlation(x, y, groups=groups)
        interval = correlation_interval(x, y, cluster, groups=groups)
        within[name] = dict(zip(WITHIN, (estimate.r, *interval, estimate.p), strict=True))
    return within


def _gain(name: str, accuracy: np.ndarray, predictions: Mapping[str, HeldOut], cluster: np.ndarray) -> dict[Any, float]:
    """Error and gain in accuracy points, coverage as a fraction; ncl alone has no gain over itself."""
    judgement = judge(accuracy, predictions[name], predictions[BASELINE], cluster)
    points = [100 * value for value in (*judgement.error, *judgement.gain)]
    line: dict[Any, float] = {
        **dict(zip(POINTS, points, strict=True)),
        **dict(zip(interval_columns(MEASURED_INSIDE), judgement.coverage, strict=True)),
        WIDTH: 100 * judgement.width,
    }
    if name == BASELINE:
        line |= dict.fromkeys(interval_columns(GAIN), np.nan)
    return line


def _better(points: pd.DataFrame, prediction: HeldOut, baseline: HeldOut) -> int | None:
    """In how many data sets the mean error is below that of ncl alone; None where nothing was predicted."""
    gain = (points["top1"] - baseline.predicted).abs() - (points["top1"] - prediction.predicted).abs()
    gain_by_dataset = gain.groupby(points["stored"]).mean()
    return int((gain_by_dataset > 0).sum()) if gain_by_dataset.notna().any() else None


def _verdict(line: Mapping[str, Any], is_single: bool, baseline_error: float, worth: float) -> str:
    """The verdict in words.    is_single: whether the predictor is one number beside log ncl.

    For new data sets the correlation within data sets is left out, as it does not show how far off the level is.
    """
    if line["predictor"] in BASELINES:
        return "baseline"
    gain = line["gain_points_low"] / 100, line["gain_points_high"] / 100
    within_r = (line[WITHIN_R.low], line[WITHIN_R.high]) if is_single else None
    return verdict(gain, worth, within_r, baseline_error if line["held_out"] == "subset seed" else None)


def _predicted(points: pd.DataFrame, columns: Mapping[str, Any], prediction: HeldOut) -> pd.DataFrame:
    predicted = dict(zip(interval_columns(TOP1_PREDICTED), prediction, strict=True))
    return points.assign(**columns, **predicted)[list(PREDICTION_POINTS.columns)]


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

        # Predictors beside accuracies
        subsets = subsets_of(rows, self)
        predictors = predictor_points(store, rows, subsets, self.images)
        read = replace(rows, full=rows.full[:0]) if self.target == "sub" else rows  # logits are slow to read
        accuracies = _targets(accuracy_points(store, read, subsets), models, self.target)
        points = joined(predictors, accuracies)
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)
        stored = models.set_index(DATASET)["stored"].to_dict()
        points = points.assign(log_ncl=np.log(points["ncl"]), stored=points[DATASET].map(stored))

        # Judge the predictors
        at_chance = {name: all_at_chance(chance_of_means(group)) for name, group in accuracies.groupby(TARGET)}
        lines = []
        predicted_points = []
        for _, points_of_target in points.groupby(["encoder", "target"]):
            for line, predicted in judged(points_of_target.reset_index(drop=True), self.worth / 100):
                lines.append(line | {AT_CHANCE: at_chance[line[TARGET]]})
                predicted_points.append(predicted)

        run_ids = sorted({*accuracies["run_id"], *predictors["run_id"]})
        parameters = rows.noted({**asdict(self), "sample_seed": SAMPLE_SEED, "method": METHOD})
        summary = PREDICTION.frame(lines).astype({BETTER_IN: "Int64"})
        return [
            PREDICTION.table(summary, parameters, run_ids),
            PREDICTION_POINTS.table(pd.concat(predicted_points, ignore_index=True), parameters, run_ids),
        ]

    def _models(self, rows: Rows) -> pd.DataFrame:
        """The rows whose accuracy is to be predicted."""
        return rows.trained if self.target == "sub" else rows.full


def _targets(accuracies: pd.DataFrame, models: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The accuracies of one protocol with their target: `DCN sub`, and with several adaptations one target for each."""
    accuracies = accuracies[accuracies["protocol"] == protocol]
    adaptation = accuracies["run_id"].map(models.set_index("run_id")["adaptation"])
    target: Any = f"DCN {protocol}"
    if len(adaptation.unique()) > 1:
        target = f"DCN {protocol}, " + adaptation.fillna("unknown")
    return accuracies.assign(target=target)
