"""Predictions of a classifier for every image of a split whose class it knows; subsets scored on stored logits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from fca.data.pixels import geometry_under, open_pixels, shifted
from fca.data.sizes import any_above_reference
from fca.data.splits import as_trained_on
from fca.finite import as_half, check_outputs
from fca.models import build_model, class_keys, no_weights, starts_from_scratch
from fca.models.stored import StoredRun
from fca.names import check_meant
from fca.progress import Meter
from fca.shifts import Clean, InputShift
from fca.stats.chance import guessing_accuracy, is_at_chance
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, logit_columns, masked_top1, open_top1
from fca.store import State, Store
from fca.store.columns import DEVICE, IMAGES_PER_S, INPUT_SIZE, PARAMS, PREDICT_S, ZERO_SHOT, Row
from fca.subset import Groups, read_groups
from fca.tables.predictions import predictions as stored_predictions
from fca.tasks import RunContext
from fca.tasks.checks import check_classes, check_masks, check_subset
from fca.types import (
    SPLITS,
    Arrays,
    AtReference,
    Classifier,
    ClassSubset,
    Column,
    DependsOnSize,
    FcaError,
    Finished,
    ImageData,
    Model,
    Run,
    Shift,
)
from fca.validation import Allowed

CLEAN = Clean()
LOGITS_FLOAT32_MB = 64  # larger matrices of logits are kept as float16
LOGITS_HELD_BYTES = 2**31  # of several shifts of stage `input` at once
MANY = 2000  # forwarded images from which on there is a progress bar
EXAMPLES = 8  # shifted images that are kept
FORWARD_COLUMNS = (PREDICT_S, IMAGES_PER_S, PARAMS, INPUT_SIZE, DEVICE)  # columns of the forward passes


@dataclass(frozen=True, eq=False)
class ForwardWork:
    """The work of a predict run (or an embed run): these images, under a shift, through the weights of a model.

    classes: label indices to predict for; None = all that the model knows.    keep_logits: even of shifted images.
    """

    model: Model
    data: ImageData
    split: str
    shift: Shift = CLEAN
    classes: Sequence[int] | None = None
    keep_logits: bool = False


@dataclass(frozen=True, eq=False)
class Scoring:
    """The work of a score run: a subset of the classes, and groups if there are any."""

    data: ImageData
    subset: ClassSubset
    groups: Groups | None


@runtime_checkable
class Nameable(Model, Protocol):
    """A model of images and texts: it predicts any classes whose names it is given (zero-shot).

    templates: prompts with {} for the name of a class.
    classes: those to choose among, as a configuration gives them; None: those of the data set.
    choose_among: annotation column -> published classes to choose among instead, on a data set that has this column and
                 only such classes.
    """

    templates: list[str]
    classes: Any
    choose_among: dict[str, str]

    def naming(self, classes: Sequence[str]) -> Model:
        """This model for these classes."""

    def reading(self, texts: Sequence[str]) -> Model:
        """This model over these texts as they are, in this order."""


@dataclass(frozen=True)
class Predict:
    """`task=predict`: one heavy run per shift for the whole split; light `score` runs for a subset or groups.

    keep:   logits = keep them for shifted images too (40 bytes an image of ten classes); null = for clean images only.
    groups: a file of classes and groups, or the name of one (see fca.subset), for the grouped protocol.
    group_columns: the file's columns of class keys and of groups.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column("groups", str, meaning="file of the groups of classes that top1_grouped is of"),
        Column("n_grouped", int, ",", "test images whose class is in a group"),
        ZERO_SHOT,
    )
    summary: ClassVar[tuple[Column | str, ...]] = ()

    split: Annotated[str, Allowed(choices=SPLITS)]
    keep: str | None
    groups: str | None
    group_columns: list[str]

    def plan(self, context: RunContext) -> list[Run]:
        """A predict run for each shift, whatever the subset and seed; the subset's scores on their stored logits."""
        if self.keep not in (None, "logits"):
            raise FcaError("task.keep", self.keep, "null or logits", "leave it out, or set task.keep=logits")
        groups = None if self.groups is None else read_groups(self.groups, self.group_columns)

        predict_runs = runs_of_split(context, self.split, self.keep == "logits")
        work = predict_runs[0].work
        check_forward(work)
        check_classes(work.model, work.data, self.split)

        has_all_classes = context.subset.ncl == len(context.data.classes)
        if has_all_classes and groups is None:
            return [*predict_runs]

        has_shifted_images = any(shift.label() != CLEAN.label() for shift in context.shifts)
        if self.keep is None and has_shifted_images:
            raise FcaError("task.keep", None, "logits, to score a subset of shifted images", "add task.keep=logits")
        check_subset(work.model, work.data, context.subset.classes, work.classes)

        scoring = Scoring(work.data, context.subset, groups)
        score_runs = [score_run(predict_run, scoring) for predict_run in predict_runs]
        return [*predict_runs, *score_runs]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Build the model once and forward the split once for each shift; score from the stored logits."""
        yield from finish_predictions([run for run in runs if run.task == "predict"], context)
        for run in runs:
            if run.task == "score":
                yield Finished(run, score(run, context.store), {})


def runs_of_split(context: RunContext, split: str, keep_logits: bool = False) -> list[Run[ForwardWork]]:
    """The run of each shift that predicts a whole split.

    A stored run predicts the data as its training split them. As released (compat), a sub-model's head has all classes,
    and it predicts only the images of its subset. So the predictions of a stored run are the same, whether its training
    makes them or a later `task=predict`.
    """
    data = context.data
    classes = None

    training_row = _training_row(context.model)
    if training_row is not None:
        group = training_row.get("group")
        lacks_group_column = group not in (None, *data.items)
        if lacks_group_column and training_row["dataset"] == data.name:
            allowed = f"{group}, by which training {training_row['run_id']} split it"
            raise FcaError("dataset.group", data.group, allowed, f"add dataset.group={group}")

        data = as_trained_on(data, training_row["fingerprint"], group)
        if training_row.get("compat") and data.fingerprint == training_row["fingerprint"]:
            classes = training_row["classes"]

    model, zero_shot_columns = with_class_keys(context.model, data)
    identity = model.identity()
    model_columns = {
        "model": model.label(),
        "weights": model.weights_label(),
        "snapshot": identity.get("snapshot"),
        **zero_shot_columns,
    }

    check_masks(context.shifts, data, split, classes)
    runs = []
    for shift in context.shifts:
        work = ForwardWork(model, data, split, shift_on(shift, data, split), classes, keep_logits)
        runs.append(predict_run(work, identity, model_columns))
    return runs


def with_class_keys(model: Model, data: ImageData) -> tuple[Model, dict[str, str]]:
    """The model with the classes that it chooses among, if it is zero-shot, and a column for classes not of the data.

    Classes that the configuration gives stay. Otherwise they are those of the data set, or published ones that contain
    them (see `Nameable.choose_among`): networks trained on the published classes choose among all of them, so a model
    with fewer classes to choose among would have an easier test. The masked protocol restricts the stored logits to
    the classes of the data set.
    """
    if not isinstance(model, Nameable):
        return model, {}

    if model.classes is not None:
        label = model.classes if isinstance(model.classes, str) else "given"
        return model, {ZERO_SHOT: label}

    for column, published in model.choose_among.items():
        published_keys = class_keys(published)
        if column in data.items and set(data.classes) <= set(published_keys):
            return model.naming(published_keys), {ZERO_SHOT: published}
    return model.naming(data.classes), {}


def shift_on(shift: Shift, data: ImageData, split: str) -> Shift:
    """The shift as it is for the images of this split: a corruption depends on whether any is above 96 pixels."""
    if not isinstance(shift, DependsOnSize):
        return shift
    return shift.for_images(any_above_reference(data, split))


def check_forward(work: ForwardWork) -> None:
    """Raise FcaError for a model without weights, and for a split without images."""
    data = work.data
    if starts_from_scratch(work.model):
        raise no_weights()

    if not len(data.rows(work.split)):
        filled_splits = ", ".join(split for split in SPLITS if len(data.rows(split)))
        allowed = f"{filled_splits}: {data.name} has no other images"
        raise FcaError("task.split", work.split, allowed, "take one of these")


def _training_row(model: Model) -> Row | None:
    """The row of the training behind a stored run; None for other models, and for a training that is not done."""
    if not isinstance(model, StoredRun):
        return None

    store = Store(Path(model.outputs))
    if store.state(model.run_id) is not State.DONE:
        return None
    return store.row(model.run_id)


# The runs, and the columns of their rows.


def subset_columns(subset: ClassSubset) -> dict[str, Any]:
    """Columns of a subset: its classes, and how they were drawn."""
    return {
        "ncl": subset.ncl,
        "subset_seed": subset.seed,
        "sampler": subset.sampler,
        "classes": subset.classes,
    }


def data_columns(data: ImageData, split: str, shift: Shift = CLEAN) -> dict[str, Any]:
    """Columns of the images and their shift."""
    return {
        "dataset": data.name,
        "fingerprint": data.fingerprint,
        "num_classes": len(data.classes),
        "split": split,
        "shift": shift.label(),
        "corrupted_at": shift.corrupted_at if isinstance(shift, AtReference) else None,
    }


def predict_run(
    work: ForwardWork, weights: Mapping[str, Any], columns: Mapping[str, Any], parent: str | None = None
) -> Run[ForwardWork]:
    """The run that predicts: its identity contains neither subset nor seed.

    weights: identity of the model's weights.    columns: of the row, beside those of the data.
    """
    identity = {
        "data": work.data.fingerprint,
        "split": work.split,
        "model": weights,
        "shift": work.shift.identity(),
    }
    row_columns = {**columns, **data_columns(work.data, work.split, work.shift)}
    return Run("predict", identity, row_columns, parent, work=work)


def score_run(predict_run: Run[ForwardWork], work: Scoring) -> Run[Scoring]:
    """The run that scores a subset on the stored logits of a predict run."""
    groups = work.groups
    identity: dict[str, Any] = {
        "parent": predict_run.run_id,
        "classes": [work.data.classes[c] for c in work.subset.classes],
    }
    if groups:
        identity["groups"] = dict(groups.of)

    columns = {
        **predict_run.metadata,
        **subset_columns(work.subset),
        "groups": groups.name if groups else None,
    }
    return Run("score", identity, columns, predict_run.run_id, light=True, work=work)


def accuracy_columns(name: str, top1: float, n: int) -> dict[str, float]:
    """A headline accuracy on n images with its Wilson interval, as three columns."""
    low, high = wilson(round(top1 * n), n)
    return {name: top1, f"{name}_low": low, f"{name}_high": high}


def forward_columns(classifier: Classifier, n: int, seconds: float, accelerator: str) -> dict[str, Any]:
    """Columns of the forward passes of n images: time, device and size of the network."""
    from fca.training.devices import accelerator_for, device_name

    device = accelerator_for(classifier.module, accelerator)
    return {
        PREDICT_S: seconds,
        IMAGES_PER_S: n / seconds,
        PARAMS: sum(weights.numel() for weights in classifier.module.parameters()),
        INPUT_SIZE: classifier.input_size,
        DEVICE: device_name(device),
    }


def prediction_columns(
    logits: Float[np.ndarray, "images logits"], true: Int[np.ndarray, " images"], classes: Sequence[int]
) -> dict[str, Any]:
    """Open accuracy (argmax over all logits) on these images, with its Wilson interval.

    true: the column of each image's class.    classes: label indices of the classes that the model knows.
    Raises FcaError for logits that are NaN or infinite, of which argmax would be the first class.
    """
    check_outputs("logits", logits)
    n = len(true)
    return {
        "ncl": len(classes),
        "classes": classes,
        "n_test": n,
        **accuracy_columns("top1_open", open_top1(logits, true), n),
    }


def prediction_arrays(
    logits: Float[np.ndarray, "images logits"], true: Int[np.ndarray, " images"], classes: Sequence[str]
) -> Arrays:
    """pred, p_true and p_max from float32 logits; the logits themselves as float16 when they are large.

    Raises FcaError for logits that float16 cannot hold.
    """
    probabilities = softmax(logits, axis=1)
    is_small = logits.nbytes <= LOGITS_FLOAT32_MB * 2**20
    return {
        "pred": logits.argmax(axis=1).astype(np.int32),
        "p_true": probabilities[np.arange(len(true)), true].astype(np.float32),
        "p_max": probabilities.max(axis=1).astype(np.float32),
        "logits": logits.astype(np.float32) if is_small else as_half("logits", logits),
        "logit_classes": np.array(classes),
    }


# The work of a run.


def finish_predictions(runs: Sequence[Run[ForwardWork]], context: RunContext) -> Iterator[Finished]:
    """Finish predict runs in turn; each model is built once.    runs: those of one model follow each other."""
    for _, runs_of_model in groupby(runs, lambda run: id(run.work.model)):
        model_runs = list(runs_of_model)
        first_work = model_runs[0].work
        classifier = build_model(first_work.model)
        context.store.keep_items(first_work.data)

        input_runs = [run for run in model_runs if isinstance(run.work.shift, InputShift)]
        raw_runs = [run for run in model_runs if not isinstance(run.work.shift, InputShift)]
        n_images = sum(len(known_images(run.work, classifier).rows) for run in raw_runs)

        with Meter("images", n_images, long=n_images >= MANY) as meter:
            for number, run in enumerate(raw_runs, 1):
                label = run.work.shift.label()
                meter.begin(f"shift {number} of {len(raw_runs)}, {label}" if len(raw_runs) > 1 else label)
                yield predict_images(run, classifier, context, meter.add)

        if input_runs:
            yield from predict_at_input(input_runs, classifier, context)


class KnownImages(NamedTuple):
    """The images that a classifier predicts: those of a split whose class it knows.

    rows: positions in the data's items.    true: the logit column of each image's class.    classes: label indices.
    """

    rows: Int[np.ndarray, " images"]
    true: Int[np.ndarray, " images"]
    classes: list[int]


def known_images(work: ForwardWork, classifier: Classifier) -> KnownImages:
    """The images of a split whose class the classifier knows.

    Raises FcaError where the classifier knows no class of the data, and where no image is of a known class.
    """
    data = work.data
    column_by_label = logit_columns(classifier.classes, data.classes)  # -1: the classifier does not know the class
    check_meant(f"class of {data.name}", data.classes, classifier.classes, "the model")

    candidates = work.classes or range(len(data.classes))
    classes = [label for label in candidates if column_by_label[label] >= 0]
    if not classes:
        model_keys = ", ".join(classifier.classes[:5]) + ", ..."
        data_keys = ", ".join(data.classes[:5]) + ", ..."
        step = "choose its data set (dataset=...), or give the class keys in logit order, model.classes=[...]"
        raise FcaError("model.classes", model_keys, f"at least one class of {data.name}: {data_keys}", step)

    rows = data.rows(work.split, classes)
    if not len(rows):
        allowed = f"a split of {data.name} with images of the known classes"
        raise FcaError("split", work.split, allowed, "see: task=describe")
    return KnownImages(rows, column_by_label[data.labels[rows]], classes)


def predict_images(
    run: Run[ForwardWork],
    classifier: Classifier,
    context: RunContext,
    on_batch: Callable[[int], object] = lambda n_images: None,
) -> Finished:
    """Forward every image of the split whose class the classifier knows, as the shift shows it.

    on_batch: called after every batch with its number of images.
    """
    from fca.training.infer import logits_of

    work = run.work
    machine = context.machine
    rows, true, classes = known_images(work, classifier)

    is_clean = work.shift.label() == CLEAN.label()
    if is_clean:
        data = work.data
        positions = rows
    else:
        data = shifted(work.data, work.shift, work.split)
        positions = np.searchsorted(work.data.rows(work.split), rows)  # shifted data hold this split only

    # The pixels of all shifts are cached, or those of none.
    bytes_of_all_shifts = 3 * classifier.input_size**2 * len(rows) * len(context.shifts)
    fits_cache = bytes_of_all_shifts <= 1e9 * machine.cache_gb
    cache_gb = machine.cache_gb if is_clean or fits_cache else 0.0
    geometry = geometry_under(work.shift, classifier.geometry)
    pixels = open_pixels(data, geometry, context.cache, machine.workers, cache_gb, positions)

    start = time.perf_counter()
    logits = logits_of(classifier, pixels, positions, machine.accelerator, on_batch)
    seconds = time.perf_counter() - start

    columns = {
        **prediction_columns(logits, true, classes),
        **forward_columns(classifier, len(rows), seconds, machine.accelerator),
    }
    arrays = prediction_arrays(logits, true, classifier.classes)
    if not is_clean and not work.keep_logits:
        del arrays["logits"]
    return Finished(run, columns, arrays)


def predict_at_input(
    runs: Sequence[Run[ForwardWork]], classifier: Classifier, context: RunContext
) -> Iterator[Finished]:
    """Forward the same images under many shifts of stage `input`: batch by batch, every shift of a batch in turn.

    Beside the usual arrays: mask_area, the share of the input that is object, and examples (uint8, 64 pixels a side),
    the first shifted image of each of the first classes.
    """
    from fca.tasks.at_input import AtInput, outputs_under

    work = runs[0].work
    rows, true, classes = known_images(work, classifier)
    images = AtInput(work.data, work.split, rows, classifier, context)

    _, first_of_class = np.unique(work.data.labels[rows], return_index=True)
    example_rows = rows[first_of_class[:EXAMPLES]]

    logits_bytes = 4 * len(rows) * len(classifier.classes)
    runs_at_once = max(1, LOGITS_HELD_BYTES // logits_bytes)
    for first_run in range(0, len(runs), runs_at_once):
        chunk = runs[first_run : first_run + runs_at_once]
        shifts = [run.work.shift for run in chunk if isinstance(run.work.shift, InputShift)]

        start = time.perf_counter()
        outputs = outputs_under(shifts, classifier, images, example_rows)
        seconds = (time.perf_counter() - start) / len(chunk)

        for run, logits, examples in zip(chunk, outputs.logits, outputs.examples, strict=True):
            columns = {
                **prediction_columns(logits, true, classes),
                **forward_columns(classifier, len(rows), seconds, context.machine.accelerator),
            }
            arrays = {
                **prediction_arrays(logits, true, classifier.classes),
                "mask_area": outputs.mask_area,
                "examples": examples,
            }
            if not run.work.keep_logits:
                del arrays["logits"]
            yield Finished(run, columns, arrays)


def adapted_columns(predicted: Mapping[str, Any], data: ImageData, subset: ClassSubset) -> dict[str, Any]:
    """The columns of a sub-model from those of its predictions on test.

    flag: chance where the interval of the accuracy includes that of always predicting the most frequent class.
    """
    top1 = accuracy_columns("top1", predicted["top1_open"], predicted["n_test"])
    test_labels = data.labels[data.rows("test", subset.classes)]
    has_flag = is_at_chance(top1["top1_low"], guessing_accuracy(test_labels))
    return {
        **{column: predicted[column] for column in ("n_test", *FORWARD_COLUMNS)},
        **top1,
        "flag": "chance" if has_flag else None,
    }


def score(run: Run[Scoring], store: Store) -> dict[str, Any]:
    """A subset's open, masked and, with groups, grouped accuracy from the parent's stored logits."""
    work = run.work
    classes = list(work.subset.classes)
    parent = store.row(str(run.parent))

    unknown_classes = sorted(set(classes) - set(parent["classes"]))
    if unknown_classes:
        keys = ", ".join(work.data.classes[label] for label in unknown_classes)
        raise FcaError("subset.classes", keys, "classes that the model knows", "choose another subset or model")

    stored = stored_predictions(store, parent)
    is_in_subset = stored.of_classes(classes)
    if not store.has_array(stored.run_id, "logits"):
        step = f"remove {store.folder(stored.run_id)} and run again with task.keep=logits"
        raise FcaError("logits of run", stored.run_id, "stored: the run was made without task.keep=logits", step)
    logits = stored.logits[is_in_subset]
    true = stored.true[is_in_subset]

    n = len(true)
    columns = {
        "n_test": n,
        **accuracy_columns("top1_open", open_top1(logits, true), n),
        **accuracy_columns("top1_masked", masked_top1(logits, stored.columns[classes], true), n),
    }
    if work.groups:
        group_of_logit = work.groups.codes(stored.logit_classes)
        top1_grouped, n_grouped = grouped_top1(logits, group_of_logit, true)
        columns["n_grouped"] = n_grouped
        columns.update(accuracy_columns("top1_grouped", top1_grouped, n_grouped))
    return columns
