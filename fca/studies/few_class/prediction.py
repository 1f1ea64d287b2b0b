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

# scores of a subset from the features and labels of a sample of its images
IMAGE_PREDICTORS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "silhouette": cosine_silhouette,
    "knn": knn_top1,
    "probe": probe_top1,
    "logme": logme,
}
VALUES = ["simss", "intra", "inter", "separation", *IMAGE_PREDICTORS]  # the columns of all predictors but ncl


def predictor_points(store: Store, rows: Rows, subsets: pd.DataFrame, images: int) -> pd.DataFrame:
    """Every number that may predict accuracy (columns VALUES), one line for each class subset and encoder.

    A subset in which a class has fewer than two images has no SimSS and is left out. The IMAGE_PREDICTORS are NaN where
    an `embed` run stored similarities of pairs of images instead of features.

    rows:    stored results, among them the `embed` runs, which have the features of images by an encoder.
    subsets: the class subsets of every data set, one line each.
    images:  the most images of a subset that IMAGE_PREDICTORS read; a larger subset is sampled.
    """
    scored_subsets = similarity_points(store, rows, subsets).dropna(subset="simss")
    embed_row_by_run = {row["run_id"]: row for row in records(rows.embedded)}

    lines = []
    for run_id, subsets_of_run in scored_subsets.groupby("run_id"):
        embedding = embedded(store, embed_row_by_run[run_id])
        for subset in records(subsets_of_run):
            lines.append(
                {
                    **subset,
                    # intra and inter: mean similarity of images of one class, and of different classes
                    "separation": separation(subset["intra"], subset["inter"]),  # intra - inter
                    **_image_scores(embedding, np.array(subset["classes"]), images),
                }
            )

    points = pd.DataFrame(lines, columns=[DATASET, ENCODER, *SUBSET, *VALUES, "run_id"])
    return points.astype({"ncl": "int64", "subset_seed": "Int64", **dict.fromkeys(VALUES, "float64")})


def _image_scores(embedding: Embedded, classes: np.ndarray, images: int) -> dict[str, float]:
    """The scores of one subset that are computed from features of its images (silhouette, kNN, probe, LogME).

    Empty if the `embed` run has no features.

    embedding: the content of the run.
    classes:   the labels of the subset.
    images:    the most images to read; a larger subset is sampled.
    """
    if embedding.features is None:  # the run stored similarities of pairs instead
        return {}

    rows_of_subset = np.flatnonzero(np.isin(embedding.labels, classes))
    positions_in_subset = sample_rows(embedding.labels[rows_of_subset], images)
    sampled_rows = rows_of_subset[positions_in_subset]
    features = embedding.features[sampled_rows]
    labels = embedding.labels[sampled_rows]
    return {name: score(features, labels) for name, score in IMAGE_PREDICTORS.items()}


def join_best_accuracies(predictors: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """The predictors of each subset beside the accuracy of the best model on it: `top1`, and the model's name.

    There is one line for each encoder, target and set of classes. If two seeds drew the same classes, only the first is
    kept: otherwise the subset of one seed would be predicted from the same subset of the other seed.

    predictors: one line for each subset and encoder, with the columns VALUES: numbers that may predict accuracy.
    accuracies: accuracy_points with a column `target`, which names the models that compete to be the best. If it has no
                lines, the result is an empty frame.
    """
    best_by_target = []
    for target, points_of_target in accuracies.groupby("target"):
        best = dcn(per_subset(points_of_target))
        best_by_target.append(best.assign(target=target))
    if not best_by_target:
        return pd.DataFrame()

    best_accuracies = pd.concat(best_by_target)
    # DRAW: subset seed and classes, which identify a subset
    points = predictors.drop(columns="run_id").merge(best_accuracies, on=["dataset", "ncl", *DRAW])
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
    """Judge every predictor of accuracy on the same subsets, all of one encoder and target.

    A predictor is a list of columns (its regressors), from which a straight line predicts accuracy; the baseline uses
    the logarithm of ncl alone. Each prediction is of subsets to which its line was not fitted.

    Yields for every predictor a line of table `prediction` and the predicted subsets (lines of table
    prediction_points). First the subset seeds of each data set are held out. If there are several data sets, whole
    data sets are then held out. Intervals are over what is held out, because the points of one data set have much in
    common. A predictor with a missing value is left out.

    The verdict is whether a predictor gains on ncl alone. A predictor of a single number also has a correlation with
    accuracy among subsets of equal ncl, which then must differ from 0.

    points: one line for each subset: the columns that PREDICTORS name, top1, dataset, subset_seed, ncl, and `stored`,
            a data set's name without its version. Versions of one data set are never predicted from each other as if
            they were different data sets.
    worth:  the smallest gain over ncl alone that is of use, as a fraction.
    """
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    draw = points.groupby(["stored", "subset_seed"]).ngroup()  # a number for each draw; NaN for a subset without a seed
    draw_codes = draw.fillna(-1).to_numpy(dtype=np.int64)  # -1: not drawn, such as all classes
    n_datasets = points["stored"].nunique()
    shared_cells = {
        "encoder": points["encoder"].iloc[0],
        "target": points["target"].iloc[0],
        "n": len(points),
        "datasets": n_datasets,
        "seeds": draw.nunique(),
    }

    # column_by_predictor: the column of each predictor that is a single number
    regressors_by_predictor, column_by_predictor = _known_predictors(points)
    correlations_within_ncl = _correlations_within_ncl(points, column_by_predictor, draw_codes)

    units = ["subset seed", "data set"] if n_datasets > 1 else ["subset seed"]
    for unit in units:
        predictions = {}
        for name, regressors in regressors_by_predictor.items():
            predictions[name] = _predict_held_out(points, list(regressors), unit)
        baseline = predictions[BASELINE]
        # points with the same number are held out together; intervals are over these groups of points
        clusters = draw_codes if unit == "subset seed" else pd.factorize(points["stored"])[0]
        # the baseline judged against itself: only its error is of use, not its gain of 0
        baseline_error = judge(accuracy, baseline, baseline, clusters).error.value

        for name, prediction in predictions.items():
            is_baseline = name == BASELINE
            is_one_number = name in column_by_predictor
            within_ncl = correlations_within_ncl[name]  # NaN for a predictor that is not one number
            # the correlation is known but not its interval, for which the note gives the reason
            lacks_interval = not np.isnan(within_ncl[WITHIN_R]) and np.isnan(within_ncl[WITHIN_R.low])
            line = {
                **shared_cells,
                "held_out": unit,
                "predictor": name,
                **within_ncl,
                **_error_and_gain(accuracy, prediction, baseline, clusters, is_baseline),
                "better_in": None if is_baseline else _n_datasets_improved(points, prediction, baseline),
            }
            line["verdict"] = _verdict(line, is_one_number, baseline_error, worth)
            line["note"] = UNDEFINED_WITHOUT if lacks_interval else None
            column = column_by_predictor.get(name)  # None for a predictor of several numbers
            yield line, _predicted_points(points, unit, name, column, prediction)


def _known_predictors(points: pd.DataFrame) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The regressors of every predictor that has no missing value; and the column of those that are a single number.

    A predictor is a single number if it has one regressor beside log ncl. Only such a predictor has a correlation with
    accuracy.

    points: one line for each subset, with the columns that PREDICTORS name.
    """
    regressors_by_predictor: dict[str, tuple[str, ...]] = {}
    column_by_predictor = {}
    for name, regressors in PREDICTORS.items():
        if points[list(regressors)].isna().any(axis=None):
            continue
        regressors_by_predictor[name] = regressors
        if len(regressors) == 2:  # log ncl and one number
            column_by_predictor[name] = regressors[1]
    return regressors_by_predictor, column_by_predictor


def _predicted_points(
    points: pd.DataFrame, unit: str, predictor: str, column: str | None, prediction: HeldOut
) -> pd.DataFrame:
    """The lines of table `prediction_points` of one predictor: its value, prediction and interval for every subset.

    unit:   what is held out.
    column: of the predictor in `points`; None for a predictor that is not one number.
    """
    prediction_columns = dict(zip(interval_columns(TOP1_PREDICTED), prediction, strict=True))
    predicted_points = points.assign(
        **{HELD_OUT: unit, PREDICTOR: predictor, PREDICTOR_VALUE: points[column] if column else np.nan},
        **prediction_columns,
    )
    return predicted_points[list(PREDICTION_POINTS.columns)]


def _predict_held_out(points: pd.DataFrame, regressors: list[str], unit: str) -> HeldOut:
    """Predict the accuracy of every subset by a straight line fitted to other subsets, in the order of `points`.

    regressors: columns of points.
    unit: "subset seed" predicts the subsets of each seed from the subsets of other seeds of the same data set;
          "data set" predicts the subsets of each data set from the subsets of all other data sets.
    """
    x = points[regressors].to_numpy(dtype=np.float64)  # points x regressors
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    if unit == "data set":
        stored_name_codes = pd.factorize(points["stored"])[0]  # all versions of a data set are held out together
        return held_out(x, accuracy, stored_name_codes)

    dataset = pd.factorize(points["dataset"])[0]
    seed = pd.factorize(points["subset_seed"])[0]  # -1: not drawn, such as all classes; held out together
    predicted = np.full(len(accuracy), np.nan)
    low = np.full(len(accuracy), np.nan)
    high = np.full(len(accuracy), np.nan)
    for k in np.unique(dataset):
        is_in_dataset = dataset == k
        predictions_of_dataset = held_out(x[is_in_dataset], accuracy[is_in_dataset], seed[is_in_dataset])
        predicted[is_in_dataset] = predictions_of_dataset.predicted
        low[is_in_dataset] = predictions_of_dataset.low
        high[is_in_dataset] = predictions_of_dataset.high
    return HeldOut(predicted, low, high)


def _correlations_within_ncl(
    points: pd.DataFrame, column_by_predictor: Mapping[str, str], draw_codes: np.ndarray
) -> dict[str, dict[Any, float]]:
    """The correlation of each predictor with accuracy, among subsets of equal ncl of one data set.

    Returns for each predictor the cells of the columns WITHIN: r, both ends of its interval, and p. They are NaN for
    predictors of several numbers, which are not in column_by_predictor.

    points:              one line for each subset, with the columns of the predictors, top1, dataset and ncl.
    column_by_predictor: the column of each predictor that is a single number.
    draw_codes:          the draw of each subset, -1 if it was not drawn; intervals are over draws.
    """
    accuracy = points["top1"].to_numpy(dtype=np.float64)
    groups = points.groupby(["dataset", "ncl"]).ngroup().to_numpy()  # a number for each data set and ncl

    correlations = {name: dict.fromkeys(WITHIN, np.nan) for name in PREDICTORS}
    for name, column in column_by_predictor.items():
        x = points[column].to_numpy(dtype=np.float64)
        estimate = correlation(x, accuracy, groups=groups)
        low, high = correlation_interval(x, accuracy, draw_codes, groups=groups)
        correlations[name] = dict(zip(WITHIN, (estimate.r, low, high, estimate.p), strict=True))
    return correlations


def _error_and_gain(
    accuracy: np.ndarray, prediction: HeldOut, baseline: HeldOut, clusters: np.ndarray, is_baseline: bool
) -> dict[Any, float]:
    """The cells of a predictor's error, gain over the baseline, and prediction intervals (their coverage and width).

    Error, gain and width are in points of accuracy (0 to 100), coverage is a fraction.
    clusters:    a number for each point, equal for points that were held out together; intervals are over clusters.
    is_baseline: whether this predictor is the baseline, whose gain over itself is left NaN.
    """
    judgement = judge(accuracy, prediction, baseline, clusters)  # error, gain and coverage: value, low and high
    error_points = [100 * value for value in judgement.error]
    gain_points = [np.nan] * 3 if is_baseline else [100 * value for value in judgement.gain]
    return {
        **dict(zip(interval_columns(ERROR), error_points, strict=True)),
        **dict(zip(interval_columns(GAIN), gain_points, strict=True)),
        **dict(zip(interval_columns(MEASURED_INSIDE), judgement.coverage, strict=True)),
        WIDTH: 100 * judgement.width,
    }


def _n_datasets_improved(points: pd.DataFrame, prediction: HeldOut, baseline: HeldOut) -> int | None:
    """In how many data sets the mean absolute error is below the baseline's; None where nothing was predicted."""
    baseline_error = (points["top1"] - baseline.predicted).abs()
    error = (points["top1"] - prediction.predicted).abs()
    mean_gain = (baseline_error - error).groupby(points["stored"]).mean()
    if mean_gain.isna().all():
        return None
    return int((mean_gain > 0).sum())


def _verdict(line: Mapping[str, Any], is_one_number: bool, baseline_error: float, worth: float) -> str:
    """Whether a predictor predicts beyond ncl, from the intervals of its gain and of its correlation within ncl.

    line:           the cells of the predictor in table `prediction`.
    is_one_number:  whether the predictor is a single number; only such a predictor has a correlation.
    baseline_error: the mean absolute error of ncl alone, a fraction like `worth`.
    """
    if line["predictor"] in BASELINES:
        return "baseline"

    gain = (line["gain_points_low"] / 100, line["gain_points_high"] / 100)
    r = (line[WITHIN_R.low], line[WITHIN_R.high]) if is_one_number else None
    # r is within data sets: it does not show how much error is left to remove on new data sets
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
        """Tables prediction and prediction_points.

        A target is a kind of models (sub-models, or full models scored open or masked), whose best accuracy on each
        subset is predicted.

        Raises FcaError for an unknown target, and if no models of the target, no `embed` runs, or no subsets with both
        an accuracy and a similarity are stored.
        """
        check_choice("analysis.target", self.target, TARGETS)
        rows, models = self._read_rows(store)

        # predictors and the best accuracy of every subset
        subsets = subsets_of(rows, self)
        predictors = predictor_points(store, rows, subsets, self.images)
        accuracies = self._target_accuracies(store, rows, subsets, models)
        points = join_best_accuracies(predictors, accuracies)
        require_rows(points, "subsets with both an accuracy and a similarity", rows.total, EMBED)
        stored_name_by_dataset = models.set_index(DATASET)["stored"].to_dict()  # names without the version
        points = points.assign(
            log_ncl=np.log(points["ncl"]),
            stored=points[DATASET].map(stored_name_by_dataset),
        )

        at_chance = {}  # target -> whether all of its models are at the level of chance
        for target, accuracies_of_target in accuracies.groupby(TARGET):
            at_chance[target] = all_at_chance(chance_of_means(accuracies_of_target))

        lines = []
        predicted_points = []
        # worth is set in points of accuracy, and judged as a fraction
        for _, points_to_judge in points.groupby(["encoder", "target"]):
            for line, predicted in judge_predictors(points_to_judge.reset_index(drop=True), self.worth / 100):
                lines.append({**line, AT_CHANCE: at_chance[line[TARGET]]})
                predicted_points.append(predicted)

        runs = sorted({*accuracies["run_id"], *predictors["run_id"]})
        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = rows.noted({**asdict(self), "sample_seed": SAMPLE_SEED, "method": METHOD})
        prediction = PREDICTION.frame(lines).astype({BETTER_IN: "Int64"})
        return [
            PREDICTION.table(prediction, parameters, runs),
            PREDICTION_POINTS.table(pd.concat(predicted_points, ignore_index=True), parameters, runs),
        ]

    def _read_rows(self, store: Store) -> tuple[Rows, pd.DataFrame]:
        """The stored rows to analyse, without data sets whose rows conflict, and those of the models of the target.

        Raises FcaError if there are no `embed` rows or no models of the target.
        """
        rows = embed_rows(store, self.query, self.split)
        models = self._target_models(rows)
        train = "fca run -m task=train subset.ncl=2,5"
        require_rows(models, f"rows of models for target {self.target}", rows.total, train)

        # this may leave out data sets, so the models are selected again from what remains
        rows = of_one_draw(drop_conflicting_rows(rows, models, "model", self.per_model))
        return rows, self._target_models(rows)

    def _target_accuracies(self, store: Store, rows: Rows, subsets: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
        """The accuracy of every model of the target on every subset, with its target's name in column `target`."""
        if self.target == "sub":
            # without the full models (an empty table with the same columns): reading their logits is slow
            rows = replace(rows, full=rows.full[:0])
        return _with_targets(accuracy_points(store, rows, subsets), models, self.target)

    def _target_models(self, rows: Rows) -> pd.DataFrame:
        """The rows of the models whose accuracy is predicted: sub-models, or full models for open and masked."""
        return rows.trained if self.target == "sub" else rows.full


def _with_targets(accuracies: pd.DataFrame, models: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The accuracies under one protocol, with the name of the target that each belongs to in column `target`.

    The target is `DCN sub` (for protocol sub) if all models were adapted alike; otherwise there is one for each
    adaptation, such as `DCN sub, probe`, so that only models of one adaptation compete to be the best.

    models: the rows of these models, which record the adaptation.
    """
    accuracies_of_protocol = accuracies[accuracies["protocol"] == protocol]
    adaptation = accuracies_of_protocol["run_id"].map(models.set_index("run_id")["adaptation"])
    if len(adaptation.unique()) > 1:
        return accuracies_of_protocol.assign(target=f"DCN {protocol}, " + adaptation.fillna("unknown"))
    return accuracies_of_protocol.assign(target=f"DCN {protocol}")
