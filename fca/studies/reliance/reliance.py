"""Does the model see the object or its surroundings? Accuracy, sensitivity and saliency (analysis=reliance)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import combinations, groupby
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.report.pictures import data_uri, pictures, png_of
from fca.stats.chance import is_at_chance
from fca.stats.intervals import EVERYWHERE, FEWEST_DRAWS, FRACTION, SIGNED_FRACTION, interval_method, wilson
from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.store.columns import ADAPTATION
from fca.studies.reliance import shift_labels
from fca.studies.reliance.columns import MODEL_CHANCE
from fca.studies.reliance.metric_truth import METRIC, UNCONFIRMED, verdicts
from fca.studies.reliance.stats import reliance
from fca.subset import Superclasses, read_superclasses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.predictions import Predictions, labels_of, predictions
from fca.tables.responses import read_responses
from fca.tables.rows import (
    apply_query,
    by_full_models,
    groups_by_columns,
    readable_rows,
    records,
    require_rows,
    with_names_of_versions,
)
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    DROP,
    IMAGES,
    LABEL,
    MODEL,
    NOTE,
    PLACE,
    PROTOCOL,
    RANK,
    TOP1,
    TOP1_CLEAN,
    VALUE,
    TableSpec,
    filled,
)
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed

PAPER = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet)"
RIVAL10 = "Moayeri et al., 2022 (RIVAL10, arXiv:2201.10766)"
CLEAN = "clean"
SALIENCY = "saliency"
MEAN_MODEL = "mean over models"
N_EXAMPLES = 4  # images that are shown under every change
_SHAPE_NOTE = "the file has only whether shape was chosen: not whether else texture or neither"
_NAME_SUFFIXES = {  # column that may distinguish networks of one name -> word before its value
    "adaptation": "",
    "weights": "",
    "snapshot": "",
    "seed": "seed ",
    "input_size": "input ",
    "run": "run ",
}

_PROTOCOLS = {"open": "all classes of the model", "masked": "the data set's classes", "grouped": "groups of classes"}
ALLOWED_CLASSES = PROTOCOL.with_choices(_PROTOCOLS, filters=True)
CONDITION = Column("condition", str, "", "change of the images")
KEPT_SHARE = Column("kept", float, ".1%", "share of the accuracy on clean images that is kept")
ACCURACY_LOST = DROP.with_format("+.1%", "accuracy on clean images minus that on changed ones")
N_IMAGES = IMAGES.with_format(",")
N_CLASSES = Column("n_classes", int, ".0f", "classes that the mean is over")
LEFT_OUT = Column("left_out", int, ",", "images left out: no object, or nothing else, at input size")
CLASSES_LEFT_OUT = Column("classes_left_out", int, ".0f", "classes left out: their objects nearly fill the images")
TRUST = Column("trust", str, "", "verdict on this metric where the cue is known (missing: not tested)")
COUNT_COLUMNS = (N_IMAGES, N_CLASSES, LEFT_OUT, CLASSES_LEFT_OUT, TRUST)

KIND = Column("kind", str, "", "noise: gaussian (standard deviation) or l2 (norm at 224 pixels)")
LEVEL = Column("level", float, ".3~f", "level of the noise")
AREA_MATCHED = Column("area_matched", bool, "", "whether noise covers equal areas of object and surroundings")
ACC_FOREGROUND = Column("acc_foreground", float, ".1%", "accuracy with noise in the object")
ACC_BACKGROUND = Column("acc_background", float, ".1%", "accuracy with noise in the surroundings")
RFS = Column("rfs", float, "+.2f", "relative foreground sensitivity")

_SALIENCY_METRICS = {
    "iou": "overlap (IoU) of map and object",
    "mass": "share of the map on the object",
    "density_gap": "mean of the map on minus off it",
}
SALIENCY_METRIC = METRIC.with_format("", "metric of saliency").with_choices(_SALIENCY_METRICS)
SALIENCY_VALUE = VALUE.with_format(".3f", "mean over classes")
ZERO = Column("zero", float, ".1%", "share of maps that are zero everywhere")

ABLATED = Column("ablated", float, ".1%", "accuracy without the object")
CLASS_RANK = RANK.with_format(".0f", "rank of the class, 1 leans most on its surroundings")
OTHER_MODEL = Column("other", str, "", "other model")
RHO = Column("spearman", float, "+.2f", "rank correlation of the classes' kept accuracy")

_SUBJECTS = {"stored": "stored predictions", "network": "network, from a file", "person": "person, from a file"}
SUBJECT = Column("who", str, "", "who decided", _SUBJECTS)
SHAPE_BIAS = Column("shape_bias", float, ".1%", "shape among the decisions for shape or texture")
DECISIONS = Column("decisions", int, ",", "decisions for shape or texture")
SHAPE_SHARE = Column("shape_share", float, ".1%", "decisions for shape among all images")

WITH_INTERVAL = (
    TOP1,
    KEPT_SHARE,
    ACCURACY_LOST,
    ACC_FOREGROUND,
    ACC_BACKGROUND,
    RFS,
    SALIENCY_VALUE,
    TOP1_CLEAN,
    ABLATED,
    RHO,
    SHAPE_BIAS,
    SHAPE_SHARE,
)
RANGES = {  # column -> the values that it can have
    "top1": FRACTION,
    "acc_foreground": FRACTION,
    "acc_background": FRACTION,
    "top1_clean": FRACTION,
    "ablated": FRACTION,
    "drop": SIGNED_FRACTION,
    "rfs": SIGNED_FRACTION,
    "kept": (0.0, float("inf")),
}


def _table(name: str, question: str, source: str, *columns: Column) -> TableSpec:
    """The specification of a table whose first columns are data set and model, followed by these columns.

    Each column of WITH_INTERVAL is followed by the two ends of its interval.
    """
    all_columns = [DATASET, MODEL]
    for column in columns:
        all_columns += interval_columns(column) if column in WITH_INTERVAL else [column]
    return TableSpec(name, question, source, tuple(all_columns))


ACCURACY = _table(
    "reliance_accuracy",
    "How often is the class predicted without its object?",
    f"{PAPER}, section 4.1, Figure 3",
    ADAPTATION,
    ALLOWED_CLASSES,
    CONDITION,
    TOP1,
    KEPT_SHARE,
    ACCURACY_LOST,
    MODEL_CHANCE,
    AT_CHANCE,
    *COUNT_COLUMNS,
)
SENSITIVITY = _table(
    "reliance_rfs",
    "Does noise in the object cost more than noise around it?",
    f"{RIVAL10}; {PAPER}, section 4.2",
    ADAPTATION,
    ALLOWED_CLASSES,
    KIND,
    LEVEL,
    AREA_MATCHED,
    ACC_FOREGROUND,
    ACC_BACKGROUND,
    RFS,
    MODEL_CHANCE,
    *COUNT_COLUMNS,
)
ALIGNMENT = _table(
    "reliance_saliency",
    "Is what decides the prediction on the object?",
    f"{PAPER}, section 4.3, Figure 6",
    ADAPTATION,
    SALIENCY_METRIC,
    SALIENCY_VALUE,
    ZERO,
    *COUNT_COLUMNS,
)
BY_CLASS = _table(
    "reliance_classes",
    "Which classes lean on their surroundings?",
    f"{PAPER}, section 4.1, class by class",
    ALLOWED_CLASSES,
    LABEL,
    TOP1_CLEAN,
    ABLATED,
    KEPT_SHARE,
    CLASS_RANK,
    N_IMAGES,
    TRUST,
    NOTE,
)
STABILITY = _table(
    "class_stability",
    "Do models agree which classes lean on their surroundings?",
    "Spearman, 1904, rank correlation",
    ALLOWED_CLASSES,
    OTHER_MODEL,
    RHO,
    N_CLASSES,
    TRUST,
)
EXAMPLES = _table(
    "reliance_examples",
    "What do the changed images look like?",
    f"{PAPER}, Figure 3",
    CONDITION,
    LABEL,
    *PLACE,
)
SHAPES = _table(
    "shape_bias",
    "Shape or texture: which is predicted in a conflict?",
    "Geirhos et al. 2019, arXiv:1811.12231",
    SUBJECT,
    SHAPE_BIAS,
    DECISIONS,
    SHAPE_SHARE,
    N_IMAGES,
    NOTE,
)
# by experiments/hard_imagenet/rendered_study.sh, 54 networks at 48 pixels; saliency at layers of 6 x 6 places
UNCONFIRMED_ON_RENDERED = (
    "rfs/gaussian/0.125",
    "rfs/gaussian/0.125/area_matched",
    "rfs/gaussian/0.25/area_matched",
    "rfs/l2/30",
    "rfs/l2/30/area_matched",
    "rfs/l2/60/area_matched",
    "saliency/iou",
    "saliency/mass",
    "saliency/density_gap",
)
METHOD = {
    "accuracy": "mean over classes of the share of images predicted right, averaged over draws of noise",
    "images": "all conditions on the same images: with an object and surroundings at input size",
    "boxes": "gray_box and tile change an object's whole box: where that fills the input, nothing of the image is left",
    "intervals": f"95 %: {interval_method('classes')}, each with all its images; over=images, or below {FEWEST_DRAWS} "
    "classes: over images within each class, missing where one has a single image; shape and texture: Wilson's",
    "kept": f"of a class: missing with fewer than {FEWEST_DRAWS} clean images right; intervals over its images; a "
    "class that is predicted for any gray image keeps its accuracy too: trust is in orders of networks, not of classes",
}


class ModelResults(NamedTuple):
    """Results of one model for one data set by one protocol (which classes the model may predict).

    columns: values that every line of a table about these results has, such as the model's name.
    frame:   one line per image, indexed by (label, image). A column holds either a condition (the share of its draws of
             noise under which the image is predicted right) or a metric of saliency.
    """

    columns: dict[str, Any]
    frame: pd.DataFrame


class Estimand(NamedTuple):
    """What a column of a table estimates: a function of the class-mean accuracies under some conditions.

    function:   np.positive (the identity) for a mean itself, np.divide for the ratio of two accuracies.
    conditions: names of the conditions whose means are the function's arguments, in their order.
    """

    function: Callable[..., Any]
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class Reliance:
    """`analysis=reliance`; reads full models' predictions of test images, clean and changed, and saliency maps."""

    tables: ClassVar = (ACCURACY, SENSITIVITY, ALIGNMENT, BY_CLASS, STABILITY, EXAMPLES, SHAPES)

    query: Query = None
    groups: Annotated[
        str | None,
        "a file of classes and groups, or the name of one (imagenet_16), for the grouped protocol (of kept logits)",
    ] = None
    measure: Annotated[str, "the change whose kept accuracy ranks the classes"] = "ablate/gray_box"
    over: Annotated[
        str,
        Allowed(choices=reliance.OVER),
        "what intervals are over: classes with all their images, or images within each class",
    ] = reliance.CLASSES
    max_mask_area: Annotated[
        float,
        Allowed(above=0, most=1),
        "a class whose masks cover more of its images, on average, is left out and counted",
    ] = 0.9
    compat: Annotated[
        str | None,
        Allowed(choices=(reliance.RELEASED,)),
        "released: a relative foreground sensitivity of 0 where it is not defined",
    ] = None
    responses: Annotated[
        ResponseFiles, "files of decisions for shape, about images whose shape and texture conflict"
    ] = field(default_factory=list)
    unconfirmed: Annotated[
        list[str],
        "metrics that the test on rendered images did not confirm, e.g. rfs/l2/30; a test in the store "
        "takes precedence",
    ] = field(default_factory=lambda: list(UNCONFIRMED_ON_RENDERED))

    def __call__(self, store: Store) -> list[Table]:
        """The seven tables, in the order of `tables`; some may have no lines.

        Raises FcaError if the store has neither predictions of changed images nor saliency maps nor decisions for
        shape, if no stored model can be scored on the given groups of classes, and for a file of responses that has no
        image of a stored data set with texture labels.
        """
        rows = _condition_rows(store, self.query)
        groups = read_superclasses(self.groups) if self.groups else None

        shape_lines = list(_shape_lines(store, rows[rows["shift"] == CLEAN], self.responses))

        # a data set with clean predictions alone shows nothing about reliance, unless they decide for shape or texture
        changed_datasets = rows.loc[rows["shift"] != CLEAN, "dataset"]
        datasets = {*changed_datasets, *(line["dataset"] for line in shape_lines)}
        rows = rows[rows["dataset"].isin(datasets)]
        command = "fca run task=predict shift=reliance dataset=... model=..."
        require_rows(rows, "predictions of changed images", len(store.rows()), command)

        map_rows = rows[rows["shift"] == SALIENCY]
        predict_rows = rows[rows["shift"] != SALIENCY]
        results: list[ModelResults] = []
        for model_columns, rows_of_model in groups_by_columns(predict_rows, [DATASET, MODEL, ADAPTATION]):
            results += self._model_results(store, model_columns, rows_of_model, groups)
        if groups and not any(result.columns["protocol"] == "grouped" for result in results):
            allowed = "groups of classes of a model whose logits are stored"
            raise FcaError("analysis.groups", self.groups, allowed, "name another file, or run with task.keep=logits")

        example_lines: list[dict[str, Any]] = []
        for _, rows_of_dataset in groups_by_columns(predict_rows, ["dataset"]):
            example_lines += _example_lines(store, rows_of_dataset)

        # `results` has an entry for each model, data set and protocol
        classes = self._ranked_classes([*results, *_means_over_models(results)])
        lines_by_table: tuple[Any, ...] = (
            [line for result in results for line in self._accuracy_lines(result)],
            [line for result in results for line in self._sensitivity_lines(result)],
            [line for row in records(map_rows) for line in self._alignment_lines(store, row)],
            classes,
            self._stability_lines(classes),
            example_lines,
            shape_lines,
        )
        frames = [spec.frame(lines) for spec, lines in zip(self.tables, lines_by_table, strict=True)]

        # the verdict on a metric is from a test on images whose cue is known: whether the metric followed the true
        # reliance of networks
        verdict_by_metric = self._verdict_by_metric(store)
        for frame in frames:
            if TRUST in frame:  # until here the column holds the name of the metric
                frame[TRUST] = [verdict_by_metric.get(metric) for metric in frame[TRUST]]
        return filled(self.tables, frames, {**asdict(self), **METHOD}, rows["run_id"])

    def _verdict_by_metric(self, store: Store) -> dict[str, str]:
        """Name of a metric -> the verdict of analysis=metric_truth, with the cues for which the metric fails.

        Where the store has no networks for that test, the metrics of `unconfirmed` have the verdict "not confirmed".
        A metric that was not tested is missing.
        """
        verdict_by_metric: dict[str, str] = {}
        for metric, (verdict, cues) in verdicts(store).items():
            verdict_by_metric[metric] = f"{verdict} ({', '.join(cues)})" if cues else verdict
        return verdict_by_metric or dict.fromkeys(self.unconfirmed, UNCONFIRMED)

    def _model_results(
        self, store: Store, model_columns: dict[str, Any], rows: pd.DataFrame, groups: Superclasses | None
    ) -> Iterator[ModelResults]:
        """Results of one model for one data set, one for each protocol that its stored arrays allow.

        A protocol (open, masked, grouped) determines which classes the model may predict. There are no results if no
        run stored the areas of the objects, or if only clean images were predicted.

        model_columns: columns that identify the model and data set.
        rows:          the stored rows of this model's predictions, one for each condition and draw of noise.
        groups:        groups of classes for the grouped protocol, which is skipped if they are None.
        """
        runs_with_areas = [run for run in rows["run_id"] if store.has_array(run, "mask_area")]
        if not runs_with_areas:  # a prediction without object masks stores no areas of objects
            return

        # all runs are about the same images, so the first one gives the labels
        all_predicted = [predictions(store, row) for row in records(rows)]
        labels = np.array(all_predicted[0].classes)[all_predicted[0].labels]

        # (protocol, its chance) -> for each row, whether each image is predicted right
        draws_by_protocol: dict[tuple[str, float], list[Any]] = defaultdict(list)
        for condition, predicted in zip(rows["condition"], all_predicted, strict=True):
            for protocol, chance, is_right in _right_by_protocol(predicted, groups):
                draw = pd.Series(is_right, name=condition, dtype=float)
                draws_by_protocol[protocol, chance].append(draw)

        for (protocol, chance), draws in draws_by_protocol.items():
            # the mean over the draws of each condition: images x conditions
            right_share = pd.DataFrame(draws).groupby(level=0).mean().T
            if set(right_share) <= {CLEAN}:  # nothing to compare clean images with
                continue
            # the areas are the same in all of these runs
            mask_area = store.array(runs_with_areas[0], "mask_area", lines=len(right_share))
            columns = {**model_columns, "protocol": protocol, "chance": chance}
            yield self._usable_images(columns, right_share, mask_area, labels)

    def _usable_images(
        self, columns: dict[str, Any], frame: pd.DataFrame, mask_area: np.ndarray, labels: np.ndarray
    ) -> ModelResults:
        """The results without images and classes on which object and surroundings cannot be compared.

        An image is left out if its mask covers none or all of it at input size; a class, if its masks cover more than
        `max_mask_area` of an image on average, over its images with an object. Both are counted in the columns of the
        results.

        columns:   values that every line about these results has.
        frame:     one line per image, one column per condition or saliency metric.
        mask_area: share of each image that is object.
        labels:    class key of each image.
        """
        has_object = mask_area > 0
        has_surroundings = mask_area < 1
        is_usable = has_object & has_surroundings

        mean_area = pd.Series(mask_area[has_object]).groupby(labels[has_object]).mean()
        large_classes = mean_area.index[mean_area > self.max_mask_area]
        is_of_kept_class = ~np.isin(labels, large_classes)

        frame = frame.set_axis(pd.MultiIndex.from_arrays([labels, frame.index], names=["label", "image"]))
        frame = frame[is_of_kept_class & is_usable].dropna(how="all")  # all missing: the class is in no group
        left_out = {
            "left_out": int((is_of_kept_class & ~is_usable).sum()),  # unusable images of the classes that are kept
            "classes_left_out": len(large_classes),
        }
        return ModelResults({**columns, **left_out}, frame)

    def _line(self, results: ModelResults, metric: str, estimands: Mapping[str, Estimand]) -> dict[str, Any]:
        """A line of a table: each estimand (such as an accuracy) with its interval, and the columns of the results.

        An estimand is a function of class-mean accuracies: value = function(mean_1, mean_2, ...), where mean_i is the
        mean over classes of each class's accuracy under the i-th of its conditions. Its 95 % interval is a jackknife
        that leaves out each class, or each image within its class, as the field `over` states. All estimands are
        computed on the same images, those that have a value under every condition that is used. Raises FcaError if
        there are none.

        metric:    name of the metric, such as accuracy/ablate/gray. It stands in column `trust` until `__call__`
                   replaces it by the verdict on this metric.
        estimands: column of the table -> what it estimates.
        """
        conditions: list[str] = []  # all that the estimands use, each once
        for estimand in estimands.values():
            conditions += [condition for condition in estimand.conditions if condition not in conditions]
        frame = results.frame[conditions].dropna()  # images x conditions
        codes, classes = pd.factorize(frame.index.get_level_values("label"))  # class number of each image
        means = reliance.class_means(frame.to_numpy().T, codes, self.over)  # mean_i, also without each class or image

        line = {**results.columns, "images": len(frame), "n_classes": len(classes), "trust": metric}
        for column, estimand in estimands.items():
            positions = [conditions.index(condition) for condition in estimand.conditions]
            # value and interval, which stays within the range that the column can have
            estimate = means.estimate(estimand.function, *positions, within=RANGES.get(column, EVERYWHERE))
            line |= _interval_columns(column, estimate)
        return line

    def _accuracy_lines(self, results: ModelResults) -> Iterator[dict[str, Any]]:
        """A line for each condition, clean images first: its accuracy, and how much of the clean accuracy is kept.

        Changed images also have the ratio to the clean accuracy (kept) and the difference from it (drop), if clean
        images were predicted.
        """
        conditions = sorted(map(str, results.frame), key=lambda name: (name != CLEAN, name))
        for condition in conditions:
            estimands = {"top1": Estimand(np.positive, (condition,))}  # np.positive: the accuracy itself
            if condition != CLEAN and CLEAN in results.frame:
                estimands["kept"] = Estimand(np.divide, (condition, CLEAN))
                estimands["drop"] = Estimand(np.subtract, (CLEAN, condition))

            line = self._line(results, f"accuracy/{condition}", estimands)
            yield {**line, "condition": condition, "at_chance": is_at_chance(line["top1_low"], line["chance"])}

    def _sensitivity_lines(self, results: ModelResults) -> Iterator[dict[str, Any]]:
        """A line for each noise that was added both on the object and around it: the two accuracies, and the RFS.

        RFS, the relative foreground sensitivity, is above 0 if noise on the object costs more accuracy than noise
        around it. With the accuracies a_fg (noise on the object) and a_bg (noise around it), and their mean m:

            RFS = (a_bg - a_fg) / (2 min(m, 1 - m))
        """
        sensitivity = partial(reliance.relative_foreground_sensitivity, compat=self.compat)
        for foreground in map(str, results.frame):
            background = foreground.replace("/foreground/", "/background/")
            if "/foreground/" not in foreground or background not in results.frame:
                continue

            noise = foreground.removeprefix("noise/foreground/")
            kind, level, *further_words = noise.split("/")  # KIND/LEVEL, then what differs from the defaults
            # Levels of l2 noise are norms. In noise made as by the authors' released code (RELEASED) they are not
            # scaled to the input size, so that such noise counts as another kind
            if shift_labels.RELEASED in further_words:
                kind += f", {shift_labels.RELEASED}"
            estimands = {
                # np.positive: the accuracy itself
                "acc_foreground": Estimand(np.positive, (foreground,)),
                "acc_background": Estimand(np.positive, (background,)),
                "rfs": Estimand(sensitivity, (foreground, background)),
            }
            line = self._line(results, f"rfs/{noise}", estimands)
            yield {
                **line,
                "kind": kind,
                "level": float(level),
                "area_matched": shift_labels.AREA_MATCHED in further_words,
            }

    def _alignment_lines(self, store: Store, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """A line for each saliency metric of a run: its mean over classes, and the share of maps that are zero.

        row: the stored row of the saliency run.
        """
        class_keys, labels = labels_of(store, row)
        # arrays have a line for each image of a class that the model knows; `classes` has the labels of these classes
        labels = labels[np.isin(labels, list(row["classes"]))]

        frame = pd.DataFrame()
        for name in (*SALIENCY_METRIC.choices, "zero", "mask_area"):
            frame[name] = store.array(row["run_id"], name, lines=len(labels)).astype(float)
        mask_area = frame.pop("mask_area").to_numpy()
        model_columns = {name: row[name] for name in ("dataset", "model", "adaptation")}
        results = self._usable_images(model_columns, frame, mask_area, np.array(class_keys)[labels])

        for metric in SALIENCY_METRIC.choices:
            if results.frame[metric].isna().all():  # the metric is defined for no image
                continue
            estimands = {"value": Estimand(np.positive, (metric,))}  # np.positive: the mean over classes itself
            line = self._line(results, f"saliency/{metric}", estimands)
            yield {**line, "metric": metric, "zero": results.frame["zero"].mean()}

    def _ranked_classes(self, results: Sequence[ModelResults]) -> pd.DataFrame:
        """The lines of table reliance_classes: one for each class of each model, with the rank of the class.

        A line has the accuracy on clean images of the class, that on the images without their objects, and the share
        that is kept. Within a data set, protocol and model, rank 1 is the class that keeps the largest share of its
        accuracy. Equal shares have the same rank.
        """
        lines = [line for result in results for line in self._class_lines(result)]
        names = [str(column) for column in BY_CLASS.columns]
        classes = pd.DataFrame(lines, columns=names).astype({KEPT_SHARE: float})
        kept_shares = classes.groupby([DATASET, ALLOWED_CLASSES, MODEL])[KEPT_SHARE]
        classes[CLASS_RANK] = kept_shares.rank(ascending=False, method="min")
        return classes

    def _class_lines(self, results: ModelResults) -> Iterator[dict[str, Any]]:
        """A line for each class: its accuracy on clean images and under the change `measure`, and their ratio (kept).

        `measure` names a change that removes the object, such as ablate/gray_box. There are no lines if clean images or
        those under this change were not predicted. A class with fewer than FEWEST_DRAWS clean images right has a note
        instead of the ratio.
        """
        if not {CLEAN, self.measure} <= set(results.frame):
            return

        for label, frame in results.frame.groupby(level="label"):
            estimands = {
                # np.positive: the accuracy itself
                "top1_clean": Estimand(np.positive, (CLEAN,)),
                "ablated": Estimand(np.positive, (self.measure,)),
            }
            note = None
            n_right = frame[CLEAN].sum()
            if n_right >= FEWEST_DRAWS:  # the ratio to a smaller number is too uncertain
                estimands["kept"] = Estimand(np.divide, (self.measure, CLEAN))
            else:
                note = f"{n_right:g} clean images right, {FEWEST_DRAWS} needed"

            # with a single class the intervals are over its images, whatever the field `over` is
            line = self._line(results._replace(frame=frame), f"accuracy/{self.measure}", estimands)
            yield {**line, "label": label, "note": note}

    def _stability_lines(self, classes: pd.DataFrame) -> Iterator[dict[str, Any]]:
        """A line for every two models of a data set: do they agree which classes keep most of their accuracy?

        The answer is Spearman's correlation over classes of the shares that two models keep, with its interval.

        classes: a line for each model and class, with the share (column `kept`).
        """
        lines_of_models = classes[classes["model"] != MEAN_MODEL]
        for shared_columns, lines in groups_by_columns(lines_of_models, ["dataset", "protocol"]):
            # classes x models; NaN where a share is not known
            kept_shares = lines.pivot_table(index="label", columns="model", values="kept", dropna=False)
            for first, second in combinations(kept_shares, 2):
                correlation = reliance.rank_stability(kept_shares[first].to_numpy(), kept_shares[second].to_numpy())
                yield {
                    **shared_columns,
                    "model": first,
                    "other": second,
                    "n_classes": len(kept_shares[[first, second]].dropna()),
                    **_interval_columns("spearman", correlation),
                    "trust": f"accuracy/{self.measure}",  # name of the metric, until its verdict takes its place
                }


def _interval_columns(name: str, estimate: Sequence[float]) -> dict[str, Any]:
    """The columns NAME, NAME_low and NAME_high of a line.

    estimate: the value, and the lower and upper end of its interval.
    """
    return dict(zip(interval_columns(Column(name)), estimate, strict=True))


def _condition_rows(store: Store, query: str | None) -> pd.DataFrame:
    """Stored rows of what the analysis reads: full models' predictions of clean or changed images, and saliency maps.

    Column `condition` is the shift without the number of its draw. Saliency maps have SALIENCY as their `shift`. Where
    several networks have the same name, column `model` also holds what distinguishes them: adaptation, weights and so
    on.
    """
    rows = readable_rows(store, query)  # of all tasks: the query is checked, but selects no rows yet
    is_map = (rows["task"] == SALIENCY) & (rows["split"] == "test")
    shift = rows["shift"].fillna("").where(~is_map, SALIENCY)  # a map is one more condition of the same model
    is_condition = shift.str.startswith((CLEAN, "ablate/", "noise/", "swap/"))
    is_read = is_map | (by_full_models(rows) & is_condition)
    # the query is applied before columns are changed below, because it is about columns as they are stored
    index = apply_query(rows[is_read], query).index

    # Rows of a network get the adaptation, weights and seed of its training. This needs the rows of trainings, too, so
    # the rows to read are selected only now
    condition = shift.str.replace(shift_labels.DRAW_NUMBER, "", regex=True)
    rows = _with_columns_of_training(rows).assign(shift=shift, condition=condition)
    # versions of one data set get distinct names in column `dataset`, such as "cifar100 (limit 20)"
    rows = with_names_of_versions(store, rows.loc[index])
    return _with_distinct_names(rows).sort_values("shift")


def _with_distinct_names(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with unique model names: column `model` is extended by what distinguishes networks of one name.

    The columns of _NAME_SUFFIXES (adaptation, weights, seed ...) are tried in turn. Where rows of one name have several
    values in a column, the value is added to the name. Column `run` has the training that a network comes from.
    """
    for column, word in _NAME_SUFFIXES.items():
        # trainings on different data sets are different in any case, so that `run` is compared only within a data set
        keys = [MODEL, DATASET] if column == "run" else [MODEL]
        is_ambiguous = rows.groupby(keys)[column].transform("nunique", dropna=False) > 1
        suffix = ", " + word + rows[column].astype("string")
        rows[MODEL] += suffix.where(is_ambiguous).fillna("")

    # several runs of one network with the same shift, such as saliency maps of two layers
    is_repeated = rows.duplicated([DATASET, MODEL, "shift"], keep=False)
    run_suffix = (", run " + rows["run_id"]).where(is_repeated, "")
    return rows.assign(model=rows[MODEL] + run_suffix)


def _with_columns_of_training(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the id of the training that their network comes from in column `run`.

    Missing values of adaptation, weights and seed are filled from the other rows of that training. `run` is missing for
    published weights.
    """
    # a later run of trained weights names them RUN_ID/... in column `weights`
    run_of_weights = rows["weights"].astype("string").str.extract("^([0-9a-f]{12})/")[0]
    parent = rows["parent"].fillna(run_of_weights)
    run = rows["run_id"].where(rows["task"] == "train", parent)
    # RUN_ID/... is no name of weights: it is emptied, and filled from the training below
    rows = rows.assign(run=run, weights=rows["weights"].where(run_of_weights.isna()))
    for name in ("adaptation", "weights", "seed"):
        rows[name] = rows[name].fillna(rows.groupby("run")[name].transform("first"))
    return rows


def _right_by_protocol(predicted: Predictions, groups: Superclasses | None) -> Iterator[tuple[str, float, Any]]:
    """For each protocol that can be computed: its name, its chance level, and whether each image is predicted right.

    - open: all classes of the model compete.
    - masked: only the classes of the data set compete. It needs stored logits.
    - grouped: groups of classes compete by the sum of their probabilities. It needs stored logits and groups. NaN marks
      an image whose class is in no group.

    predicted: the predictions of one run.
    groups:    groups of classes; None skips the grouped protocol.
    """
    n_logits = len(predicted.logit_classes)
    yield "open", 1 / n_logits, predicted.right
    if not predicted.store.has_array(predicted.run_id, "logits"):  # the other protocols compare logits again
        return

    # columns of the logits; -1 marks a class of the data set that is none of the model's
    columns_of_dataset = predicted.columns[predicted.columns >= 0]
    if len(columns_of_dataset) < n_logits:  # otherwise masked equals open
        predicted_columns = masked_answers(predicted.logits, columns_of_dataset)  # the column with the highest logit
        # `predicted.true` has the column of each image's true class
        yield "masked", 1 / len(columns_of_dataset), predicted_columns == predicted.true

    if groups is None:
        return
    group_of_column = groups.codes(predicted.logit_classes)
    n_groups = len(set(group_of_column) - {-1})
    if n_groups:
        yield "grouped", 1 / n_groups, reliance.grouped_right(predicted.logits, group_of_column, predicted.true)


def _means_over_models(results: Sequence[ModelResults]) -> Iterator[ModelResults]:
    """For each data set and protocol with several models, the mean over models as results of a further model.

    The frame of a model's results has a line for each image and a column for each condition: the share of draws of
    noise under which the image is predicted right. The mean covers the images and conditions for which all of the
    models have a value.
    """

    def dataset_and_protocol(result: ModelResults) -> tuple[str, str]:
        return result.columns["dataset"], result.columns["protocol"]

    for _, group in groupby(sorted(results, key=dataset_and_protocol), dataset_and_protocol):
        models = list(group)
        if len(models) == 1:  # the mean would repeat it
            continue
        mean: Any = sum(result.frame for result in models) / len(models)  # missing where one model has no value
        shared = mean.dropna(axis=1, how="all").dropna()
        yield ModelResults({**models[0].columns, "model": MEAN_MODEL}, shared)


def _example_lines(store: Store, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Lines of table reliance_examples for one data set: a thumbnail each, with its place in a grid.

    A row of the grid is the first image of one of the first classes. The first column has the images without a change;
    the others have ablations, swaps and one level of noise. There are no lines if no run stored changed images.

    rows: `predict` rows of one data set; the examples are those of the model with the most rows.
    """
    rows = rows[rows["model"] == rows["model"].mode()[0]]
    row_by_condition = {row["condition"]: row for row in records(rows) if store.has_array(row["run_id"], "examples")}
    changes = _example_changes(row_by_condition)
    if not changes:
        return

    # class and id of each shown image; all runs of the model show the same images, so one run gives both
    row = row_by_condition[changes[0]]
    predicted = predictions(store, row)
    _, first_of_class = np.unique(predicted.labels, return_index=True)  # position of the first image of each class
    first_of_class = first_of_class[:N_EXAMPLES]
    labels = predicted.labels[first_of_class]
    items = store.items(row["fingerprint"])
    ids_of_split = items.loc[items["split"] == row["split"], "image_id"]
    image_ids = ids_of_split.iloc[predicted.images[first_of_class]].tolist()  # `images`: positions in the split

    # None in place of a thumbnail for an image that is no longer at hand
    clean_thumbnails = pictures(store, image_ids, row["fingerprint"]).thumbnails
    picture_columns: list[tuple[str, Sequence[str | None]]] = [(CLEAN, clean_thumbnails)]
    for condition in changes:
        examples = store.array(row_by_condition[condition]["run_id"], "examples")  # of the same images, in this order
        picture_columns.append((condition, [data_uri(png_of(np.array(pixels))) for pixels in examples]))

    # columns may be of unequal length: a run may have stored more pictures than the N_EXAMPLES that are shown
    for column, (condition, thumbnails) in enumerate(picture_columns):
        for picture_row, (label, thumbnail) in enumerate(zip(labels, thumbnails, strict=False)):
            yield {
                "dataset": row["dataset"],
                "model": row["model"],
                "condition": condition,
                "label": predicted.classes[label],
                "row": picture_row,
                "column": column,
                "thumbnail": thumbnail,
            }


def _example_changes(conditions: Iterable[str]) -> list[str]:
    """The conditions to show as pictures, sorted: all without noise, and gaussian noise of the middle level.

    Noise on the object, noise around it, and either with equal areas are separate conditions: all of them are shown.

    >>> noise = [f"noise/foreground/gaussian/{level}" for level in (0.1, 0.25, 0.5)]
    >>> _example_changes(["swap/background", "noise/foreground/l2/30", *noise])
    ['noise/foreground/gaussian/0.25', 'swap/background']
    """
    conditions = list(conditions)
    # a condition of noise is noise/REGION/KIND/LEVEL, or has further words behind
    levels = sorted({float(condition.split("/")[3]) for condition in conditions if "/gaussian/" in condition})
    middle_level = levels[len(levels) // 2] if levels else 0.0
    shown_noise = ["gaussian", f"{middle_level:g}"]

    def is_shown(condition: str) -> bool:
        return not condition.startswith("noise/") or condition.split("/")[2:4] == shown_noise

    return sorted(filter(is_shown, conditions))


def _shape_lines(store: Store, rows: pd.DataFrame, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A line for each model or person who decided about images whose shape and texture are of different classes.

    A decision is for shape if the class of the shape was named, and for texture if that of the texture was. Stored
    predictions come first, with both kinds of decisions. Files of responses follow, which only have whether each
    decision was for shape.

    rows:  `predict` rows of clean images; data sets without a column texture_label are skipped.
    files: paths of response files about images of stored data sets. FcaError is raised for a file without any such
           image.
    """
    # data set -> names of its images whose shape and texture are of different classes
    conflicting_names: dict[str, set[str]] = defaultdict(set)
    for row in records(rows):
        items = store.items(row["fingerprint"])
        if "texture_label" not in items:
            continue

        predicted = predictions(store, row)
        items = items[items["split"] == row["split"]].iloc[predicted.images]
        shape = predicted.labels
        texture = pd.Categorical(items["texture_label"], categories=list(predicted.classes)).codes
        is_conflict = (texture >= 0) & (texture != shape)  # texture is -1 for none of the classes
        conflicting_names[row["dataset"]] |= {_image_name(image_id) for image_id in items["image_id"][is_conflict]}

        n_images = int(is_conflict.sum())
        n_shape = int((predicted.predicted_labels == shape)[is_conflict].sum())
        n_texture = int((predicted.predicted_labels == texture)[is_conflict].sum())
        yield {
            "dataset": row["dataset"],
            "model": row["model"],
            "who": "stored",
            **_share_columns("shape_bias", n_shape, n_shape + n_texture),
            **_share_columns("shape_share", n_shape, n_images),
            "images": n_images,
            "decisions": n_shape + n_texture,
        }

    for file in files:
        yield from _shape_lines_of_file(file, conflicting_names)


def _shape_lines_of_file(file: str, conflicting_names: Mapping[str, set[str]]) -> Iterator[dict[str, Any]]:
    """A line for each data set of which a file of responses has images, and each model or person who responded to them.

    In such a file a response is 1 where shape was chosen, else 0. Its items are matched to stored images by name.

    conflicting_names: data set -> names of its images whose shape and texture are of different classes.
    Raises FcaError if none of the items is such an image.
    """
    responses = read_responses(file)
    # an item is IMAGE, or IMAGE|... with further words
    names = pd.Series([_image_name(item.partition("|")[0]) for item in responses.items["item"]])
    is_item_of_dataset = {dataset: names.isin(known).to_numpy() for dataset, known in conflicting_names.items()}
    if not any(is_item.any() for is_item in is_item_of_dataset.values()):
        allowed = "decisions about images of a stored data set with a column texture_label"
        raise FcaError("analysis.responses", file, allowed, "run task=predict on that data set first")

    for dataset, is_item in is_item_of_dataset.items():
        for subject, decisions in zip(responses.subjects["subject"], responses.correct[:, is_item], strict=True):
            n_images = int((~np.isnan(decisions)).sum())
            if not n_images:
                continue
            n_shape = int(np.nansum(decisions))
            yield {
                "dataset": dataset,
                "model": subject,
                "who": "person" if subject.startswith("subject-") else "network",  # persons are subject-01, ...
                "images": n_images,
                "note": _SHAPE_NOTE,
                **_share_columns("shape_share", n_shape, n_images),
            }


def _image_name(path: str) -> str:
    """The name by which images of files of responses and of data sets are matched: without folders and extension."""
    return PurePath(path).stem


def _share_columns(name: str, count: int, total: int) -> dict[str, Any]:
    """The columns NAME, NAME_low and NAME_high: count / total with Wilson's interval; no columns if `total` is 0."""
    if not total:
        return {}
    return _interval_columns(name, (count / total, *wilson(count, total)))
