"""Which number known before training predicts accuracy, and does it predict more than the number of classes?

Predictors are judged on points: each is a class subset, with numbers from its features and the best model's accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.correlation import correlation, correlation_interval
from fca.stats.features import SAMPLE_SEED, cosine_silhouette, knn_top1, logme, probe_top1, sample_rows, separation
from fca.stats.intervals import interval_method
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

IMAGE_PREDICTORS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {  # read a sample, not all images
    "silhouette": cosine_silhouette,
    "knn": knn_top1,
    "probe": probe_top1,
    "logme": logme,
}
VALUES = ["simss", "intra", "inter", "separation", *IMAGE_PREDICTORS]


def predictor_points(store: Store, rows: Rows, subsets: pd.DataFrame, images: int) -> pd.DataFrame:
    """All predictors of every subset by every encoder; a class of fewer than two images leaves its subset out.

    IMAGE_PREDICTORS are missing where pairs of images were compared by a function, which leaves no features.
    images: the most images of a subset that IMAGE_PREDICTORS read (fca.stats.features.sample_rows).
    """
    scored_subsets = similarity_points(store, rows, subsets).dropna(subset="simss")
    row_by_run = {row["run_id"]: row for row in records(rows.embedded)}

    lines = []
    for run_id, subsets_of_run in scored_subsets.groupby("run_id"):
        embedding = embedded(store, row_by_run[run_id])
        for subset in records(subsets_of_run):
            image_scores = _image_scores(embedding, np.array(subset["classes"]), images)
            lines.append(
                {
                    **subset,
                    "separation": separation(subset["intra"], subset["inter"]),
                    **image_scores,
                }
            )

    points = pd.DataFrame(lines, columns=[DATASET, ENCODER, *SUBSET, *VALUES, "run_id"])
    return points.astype({"ncl": "int64", "subset_seed": "Int64", **dict.fromkeys(VALUES, "float64")})


def _image_scores(embedding: Embedded, classes: np.ndarray, images: int) -> dict[str, float]:
    """The IMAGE_PREDICTORS of one subset, from a sample of its images; none without features."""
    if embedding.features is None:
        return {}

    rows_of_subset = np.flatnonzero(np.isin(embedding.labels, classes))
    sampled_rows = rows_of_subset[sample_rows(embedding.labels[rows_of_subset], images)]
    features = embedding.features[sampled_rows]
    labels = embedding.labels[sampled_rows]
    return {name: score(features, labels) for name, score in IMAGE_PREDICTORS.items()}


def join_best_accuracies(predictors: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Predictors with the best accuracy of any model, one line for each encoder, target and different subset.

    accuracies: accuracy_points with a column `target`; the best model of each target is used.
    If two seeds drew the same classes, only the first is kept: otherwise a subset would help to predict itself.
    """
    best_by_target = []
    for target, of_target in accuracies.groupby("target"):
        best_by_target.append(dcn(per_subset(of_target)).assign(target=target))
    if not best_by_target:
        return pd.DataFrame()

    points = predictors.drop(columns="run_id").merge(pd.concat(best_by_target), on=["dataset", "ncl", *DRAW])
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
    **{name: (BASELINE, name) for name in IMAGE_PREDICTORS},
}
ERROR = Column("error_points", float, ".2f", "mean absolute error (% points)")
GAIN = Column("gain_points", float, "+.2f", "gain over ncl alone (% points)")
WITHIN_R = Column("within_ncl_r", float, ".3f", "correlation with accuracy among subsets of equal ncl")
WITHIN_P = Column("within_ncl_p", float, ".2g", "its p, as if subsets were independent")
WITHIN = [*interval_columns(WITHIN_R), WITHIN_P]
POINTS = [*interval_columns(ERROR), *interval_columns(GAIN)]
MEASURED_INSIDE = COVERAGE.with_format(
    ".0%", f"share of measured accuracies inside their {LEVEL:.0%} prediction interval"
)
WIDTH = Column("width_points", float, ".1f", "mean width of the prediction intervals (% points)")
UNSEEN = {"subset seed": "new subsets", "data set": "new data sets"}  # what is held out -> what is predicted
HELD_OUT = Column("held_out", str, "", "what the prediction never saw", UNSEEN)
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


def judge_predictors(points: pd.DataFrame, worth: float) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Every predictor on the same points of one encoder and target: its line of `prediction`, and its points.

    Held out are the subset seeds of a data set, and then, if there are several, whole data sets. Intervals are over
    the groups that are held out: points of one data set share what is particular to it.
    points: one line for each subset: the columns that PREDICTORS name, top1, dataset, subset_seed, ncl, and `stored`,
            which versions of a data set share: they are never predicted from each other as if they were other data
            sets. A predictor with a missing value is left out.
    worth:  the smallest gain that is of use, as a fraction.
    """
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    draw = points.groupby(["stored", "subset_seed"]).ngroup()
    draw_codes = draw.fillna(-1).to_numpy(dtype=np.int64)  # all classes were not drawn
    n_datasets = points["stored"].nunique()
    shared_cells = {
        "encoder": points["encoder"].iloc[0],
        "target": points["target"].iloc[0],
        "n": len(points),
        "datasets": n_datasets,
        "seeds": draw.nunique(),
    }

    # predictors without missing values; those of one number beside log ncl also have a correlation within ncl
    regressors_by_predictor: dict[str, tuple[str, ...]] = {}
    column_by_predictor = {}
    for name, regressors in PREDICTORS.items():
        if points[list(regressors)].isna().any(axis=None):
            continue
        regressors_by_predictor[name] = regressors
        if len(regressors) == 2:
            column_by_predictor[name] = regressors[1]
    within = _correlations_within_ncl(points, column_by_predictor, draw_codes)

    units = ["subset seed", "data set"] if n_datasets > 1 else ["subset seed"]
    for unit in units:
        predictions = {}
        for name, regressors in regressors_by_predictor.items():
            predictions[name] = _predict_held_out(points, list(regressors), unit)
        baseline = predictions[BASELINE]
        clusters = draw_codes if unit == "subset seed" else pd.factorize(points["stored"])[0]
        baseline_error = judge(accuracy, baseline, baseline, clusters).error.value

        for name, prediction in predictions.items():
            is_baseline = name == BASELINE
            lacks_interval = not np.isnan(within[name][WITHIN_R]) and np.isnan(within[name][WITHIN_R.low])
            line = {
                **shared_cells,
                "held_out": unit,
                "predictor": name,
                **within[name],
                **_error_and_gain(accuracy, prediction, baseline, clusters, is_baseline),
                "better_in": None if is_baseline else _n_datasets_improved(points, prediction, baseline),
            }
            line["verdict"] = _verdict(line, name in column_by_predictor, baseline_error, worth)
            line["note"] = UNDEFINED_WITHOUT if lacks_interval else None

            value = points[column_by_predictor[name]] if name in column_by_predictor else np.nan
            intervals = dict(zip(interval_columns(TOP1_PREDICTED), prediction, strict=True))
            predicted_points = points.assign(
                **{HELD_OUT: unit, PREDICTOR: name, PREDICTOR_VALUE: value},
                **intervals,
            )
            yield line, predicted_points[list(PREDICTION_POINTS.columns)]


def _predict_held_out(points: pd.DataFrame, regressors: list[str], unit: str) -> HeldOut:
    """Each subset seed predicted from the others of its data set, or each data set from the others."""
    x = points[regressors].to_numpy(dtype=np.float64)  # points x regressors
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    if unit == "data set":
        return held_out(x, accuracy, pd.factorize(points["stored"])[0])

    dataset = pd.factorize(points["dataset"])[0]
    seed = pd.factorize(points["subset_seed"])[0]
    predicted = np.full(len(accuracy), np.nan)
    low = np.full(len(accuracy), np.nan)
    high = np.full(len(accuracy), np.nan)
    for k in np.unique(dataset):
        is_in_dataset = dataset == k
        of_dataset = held_out(x[is_in_dataset], accuracy[is_in_dataset], seed[is_in_dataset])
        predicted[is_in_dataset] = of_dataset.predicted
        low[is_in_dataset] = of_dataset.low
        high[is_in_dataset] = of_dataset.high
    return HeldOut(predicted, low, high)


def _correlations_within_ncl(
    points: pd.DataFrame, column_by_predictor: Mapping[str, str], draw_codes: np.ndarray
) -> dict[str, dict[Any, float]]:
    """Correlation with accuracy among subsets of equal ncl in one data set; missing for predictors of several numbers.

    column_by_predictor: the column of every predictor of one number.
    """
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    groups = points.groupby(["dataset", "ncl"]).ngroup().to_numpy()

    correlations = {name: dict.fromkeys(WITHIN, np.nan) for name in PREDICTORS}
    for name, column in column_by_predictor.items():
        x = points[column].to_numpy(dtype=np.float64)
        estimate = correlation(x, accuracy, groups=groups)
        interval = correlation_interval(x, accuracy, draw_codes, groups=groups)
        correlations[name] = dict(zip(WITHIN, (estimate.r, *interval, estimate.p), strict=True))
    return correlations


def _error_and_gain(
    accuracy: np.ndarray, prediction: HeldOut, baseline: HeldOut, clusters: np.ndarray, is_baseline: bool
) -> dict[Any, float]:
    """Error, gain and width in accuracy points, coverage as a fraction; the baseline has no gain over itself."""
    judgement = judge(accuracy, prediction, baseline, clusters)
    error_points = [100 * value for value in judgement.error]
    gain_points = [np.nan] * 3 if is_baseline else [100 * value for value in judgement.gain]
    return {
        **dict(zip(interval_columns(ERROR), error_points, strict=True)),
        **dict(zip(interval_columns(GAIN), gain_points, strict=True)),
        **dict(zip(interval_columns(MEASURED_INSIDE), judgement.coverage, strict=True)),
        WIDTH: 100 * judgement.width,
    }


def _n_datasets_improved(points: pd.DataFrame, prediction: HeldOut, baseline: HeldOut) -> int | None:
    """In how many data sets the mean error is below that of ncl alone; None where nothing was predicted."""
    baseline_error = (points["top1"] - baseline.predicted).abs()
    error = (points["top1"] - prediction.predicted).abs()
    mean_gain = (baseline_error - error).groupby(points["stored"]).mean()
    if mean_gain.isna().all():
        return None
    return int((mean_gain > 0).sum())


def _verdict(line: Mapping[str, Any], is_one_number: bool, baseline_error: float, worth: float) -> str:
    """Whether a predictor predicts beyond ncl, from the intervals of its gain and of its correlation within ncl.

    is_one_number: whether the predictor is one number, and so has a correlation.
    The error of ncl alone counts only for new subsets: a correlation within data sets does not show how far off new
    data sets are.
    """
    if line["predictor"] in BASELINES:
        return "baseline"

    gain = (line["gain_points_low"] / 100, line["gain_points_high"] / 100)
    r = (line[WITHIN_R.low], line[WITHIN_R.high]) if is_one_number else None
    error = baseline_error if line["held_out"] == "subset seed" else None
    return verdict(gain, worth, r, error)


TARGETS = ("sub", "open", "masked")
METHOD = (
    f"accuracy = intercept + weights * regressors, least squares, cut off at 0 and 1; {LEVEL:.0%} intervals: CV+; "
    f"intervals of the table: 95 %, {interval_method('the subset seeds of the data sets at hand')}; or over data sets "
    "where those are held out (r: always over subset seeds, on Fisher's z); each predictor is judged by itself, "
    "with no correction for how many there are; within_ncl_p: as if subsets were independent"
)


@dataclass(frozen=True)
class Prediction(OfSubsets):
    """`analysis=prediction`; reads `embed` rows, `train` rows and, for targets open and masked, those of full models.

    Models that were trained from scratch, fine-tuned or probed never compete to be the best.
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
        models = self._target_models(rows)
        train = "fca run -m task=train subset.ncl=2,5"
        require_rows(models, f"rows of models for target {self.target}", rows.total, train)
        rows = of_one_draw(drop_conflicting_rows(rows, models, "model", self.per_model))
        models = self._target_models(rows)

        # predictors and accuracies of every subset
        subsets = subsets_of(rows, self)
        predictors = predictor_points(store, rows, subsets, self.images)
        scored_rows = rows
        if self.target == "sub":
            scored_rows = replace(rows, full=rows.full[:0])  # logits of full models are slow to read
        accuracies = _with_targets(accuracy_points(store, scored_rows, subsets), models, self.target)
        points = join_best_accuracies(predictors, accuracies)
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)
        stored = models.set_index(DATASET)["stored"].to_dict()
        points = points.assign(log_ncl=np.log(points["ncl"]), stored=points[DATASET].map(stored))

        at_chance = {}
        for target, of_target in accuracies.groupby(TARGET):
            at_chance[target] = all_at_chance(chance_of_means(of_target))

        lines = []
        predicted_points = []
        for _, of_target in points.groupby(["encoder", "target"]):
            for line, predicted in judge_predictors(of_target.reset_index(drop=True), self.worth / 100):
                lines.append({**line, AT_CHANCE: at_chance[line[TARGET]]})
                predicted_points.append(predicted)

        runs = sorted({*accuracies["run_id"], *predictors["run_id"]})
        parameters = rows.noted({**asdict(self), "sample_seed": SAMPLE_SEED, "method": METHOD})
        prediction = PREDICTION.frame(lines).astype({BETTER_IN: "Int64"})
        return [
            PREDICTION.table(prediction, parameters, runs),
            PREDICTION_POINTS.table(pd.concat(predicted_points, ignore_index=True), parameters, runs),
        ]

    def _target_models(self, rows: Rows) -> pd.DataFrame:
        """The rows whose accuracy is to be predicted."""
        return rows.trained if self.target == "sub" else rows.full


def _with_targets(accuracies: pd.DataFrame, models: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The accuracies of one protocol with their target, `DCN sub`; one target for each adaptation if several exist."""
    of_protocol = accuracies[accuracies["protocol"] == protocol]
    adaptation = of_protocol["run_id"].map(models.set_index("run_id")["adaptation"])
    if len(adaptation.unique()) > 1:
        return of_protocol.assign(target=f"DCN {protocol}, " + adaptation.fillna("unknown"))
    return of_protocol.assign(target=f"DCN {protocol}")
