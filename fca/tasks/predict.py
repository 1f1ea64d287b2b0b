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
from fca.subset import Superclasses, read_superclasses
from fca.tables.predictions import predictions as stored_predictions
from fca.tasks import RunContext
from fca.tasks.checks import check_classes, check_masks, check_subset
from fca.training.devices import accelerator_for, device_name
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
    """The work of a predict run (or an embed run): the images of a split, under a shift, go through a model.

    classes:     label indices whose images are predicted; None = all that the model knows.
    keep_logits: store the logits of shifted images, too; those of clean ones always are.
    """

    model: Model
    data: ImageData
    split: str
    shift: Shift = CLEAN
    classes: Sequence[int] | None = None
    keep_logits: bool = False


@dataclass(frozen=True, eq=False)
class Scoring:
    """The work of a score run: a subset of the classes, and their groups for the grouped protocol, if there are any."""

    data: ImageData
    subset: ClassSubset
    groups: Superclasses | None


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
        """One predict run of all classes for each shift and, if there is a subset or groups, a score run for each.

        A score run computes the accuracy on the subset from the logits that its predict run stored. Raises FcaError for
        a model that cannot predict these images, and for a subset of shifted images without task.keep=logits, because
        logits of shifted images are stored only with this key.
        """
        if self.keep not in (None, "logits"):
            raise FcaError("task.keep", self.keep, "null or logits", "leave it out, or set task.keep=logits")
        groups = None if self.groups is None else read_superclasses(self.groups, self.group_columns)

        predict_runs = runs_of_split(context, self.split, self.keep == "logits")
        work = predict_runs[0].work
        check_forward(work)
        check_classes(work.model, work.data, self.split)

        has_all_classes = context.subset.ncl == len(context.data.classes)
        if has_all_classes and groups is None:  # the predict runs have the accuracy on all classes already
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
    """For each shift of the configuration, the run that predicts a whole split.

    A trained model of the store must predict the same images as the predictions that belong to its training. So the
    data are split as its training split them. A sub-model (trained on a subset of the classes) that reproduces the
    original (compat) has a head for all classes, but predicts only the images of its subset.

    keep_logits: whether the logits of shifted images are stored, too.
    Raises FcaError if the column of groups by which the training split the data is missing, and for a shift that needs
    masks which the images do not have.
    """
    data = context.data
    classes = None  # None: the images of all classes that the model knows are predicted

    training_row = _training_row(context.model)  # None for a model that was not trained in the store
    if training_row is not None:
        group = training_row.get("group")  # the column whose groups of images the training kept in one split
        lacks_group_column = group not in (None, *data.items)  # `data.items` iterates over names of columns
        if lacks_group_column and training_row["dataset"] == data.name:  # the training did not split other data sets
            allowed = f"{group}, by which training {training_row['run_id']} split it"
            raise FcaError("dataset.group", data.group, allowed, f"add dataset.group={group}")

        data = as_trained_on(data, training_row["fingerprint"], group)  # with the splits that it drew, if any
        is_data_of_training = data.fingerprint == training_row["fingerprint"]
        if training_row.get("compat") and is_data_of_training:
            classes = training_row["classes"]  # the classes of the subset

    # a zero-shot model gets the names of the classes among which it chooses
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
    """Give a zero-shot model the keys of the classes that it chooses among; other models are returned unchanged.

    Classes that the configuration gives are kept. Otherwise `model.choose_among` (column of `data.items` -> name of a
    published list of classes) decides: if the data set has such a column, and all its classes are in the list of this
    column, the model gets the list. In all other cases it gets the classes of the data set.
    The published list is preferred because networks trained on it choose among all of its classes: a model with fewer
    classes to choose among would have an easier test. The masked protocol later restricts the stored logits to the
    classes of the data set.

    Also returns a dictionary with column ZERO_SHOT, which names the list of classes; it is empty for other models, and
    where the model chooses among the classes of the data set.
    """
    if not isinstance(model, Nameable):  # not a zero-shot model
        return model, {}

    if model.classes is not None:  # by the configuration: the name of a published list, or a list of keys
        label = model.classes if isinstance(model.classes, str) else "given"
        return model, {ZERO_SHOT: label}

    for column, published in model.choose_among.items():
        published_keys = class_keys(published)
        if column in data.items and set(data.classes) <= set(published_keys):
            return model.naming(published_keys), {ZERO_SHOT: published}
    return model.naming(data.classes), {}


def shift_on(shift: Shift, data: ImageData, split: str) -> Shift:
    """The shift with the settings for the images of this split.

    The settings of a corruption depend on whether any image of the split is larger than a reference size; other shifts
    are returned unchanged.
    """
    if not isinstance(shift, DependsOnSize):
        return shift
    return shift.for_images(any_above_reference(data, split))


def check_forward(work: ForwardWork) -> None:
    """Raise FcaError for a model without weights, and for a split without images."""
    check_has_weights(work.model)
    data = work.data
    if not len(data.rows(work.split)):
        filled_splits = ", ".join(split for split in SPLITS if len(data.rows(split)))
        allowed = f"{filled_splits}: {data.name} has no other images"
        raise FcaError("task.split", work.split, allowed, "take one of these")


def check_has_weights(model: Model) -> None:
    """Raise FcaError for a model without weights, which can only be trained."""
    if starts_from_scratch(model):
        raise no_weights()


def _training_row(model: Model) -> Row | None:
    """The row of the training behind a stored run; None for other models, and for a training that is not done."""
    if not isinstance(model, StoredRun):
        return None

    store = Store(Path(model.outputs))
    if store.state(model.run_id) is not State.DONE:
        return None
    return store.row(model.run_id)


# The runs, and the columns of their rows (a row is the stored record of a finished run).


def subset_columns(subset: ClassSubset) -> dict[str, Any]:
    """Columns of a row that describe the subset: its classes, and how they were drawn."""
    return {
        "ncl": subset.ncl,
        "subset_seed": subset.seed,
        "sampler": subset.sampler,
        "classes": subset.classes,
    }


def data_columns(data: ImageData, split: str, shift: Shift = CLEAN) -> dict[str, Any]:
    """Columns of a row that describe the images: their data set and split, and the shift that changes them.

    `corrupted_at` is the size at which a corruption was applied to images with sides above 96 pixels: "reference" is
    the 224 pixels of ImageNet-C, "stored" the size at which they are stored. It is None for other shifts, and for a
    corruption of images that all are smaller.
    """
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
    """The run that does this work. Its id depends on data, split, weights and shift, not on a subset or a seed.

    weights: the identity of the model's weights.
    columns: column -> value of the run's row (its stored result), without the columns that describe the data.
    parent:  id of the run that makes the weights and has to be done first; None: the weights exist already.
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
    """The run that computes the accuracy on a subset from the logits that a predict run stores."""
    groups = work.groups
    identity: dict[str, Any] = {  # the id of the run is a hash of it
        "parent": predict_run.run_id,
        "classes": [work.data.classes[c] for c in work.subset.classes],
    }
    if groups:
        identity["groups"] = dict(groups.of)  # `of`: class key -> group

    columns = {
        **predict_run.metadata,
        **subset_columns(work.subset),
        "groups": groups.name if groups else None,
    }
    return Run("score", identity, columns, predict_run.run_id, light=True, work=work)


def accuracy_columns(name: str, top1: float, n: int) -> dict[str, float]:
    """An accuracy on n images with its Wilson interval, as columns `name`, `name`_low and `name`_high."""
    n_right = round(top1 * n)
    low, high = wilson(n_right, n)
    return {name: top1, f"{name}_low": low, f"{name}_high": high}


def forward_columns(classifier: Classifier, n: int, seconds: float, accelerator: str) -> dict[str, Any]:
    """Columns of the forward passes of n images: their time, the device, and the size of the network and its input.

    seconds:     the time for all images.
    accelerator: as configured (it may be `auto`); the column gets the name of the device that was used.
    """
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
    """Columns of a prediction: its classes, number of images and open accuracy (argmax over all logits).

    true:    for each image, the column of the logits that belongs to its true class.
    classes: label indices of the classes whose images were predicted.
    Raises FcaError for logits that are NaN or infinite: for NaN argmax would silently return the first class.
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
    """The arrays of a prediction that are stored, by their names.

    true:    for each image, the logit column of its true class.
    classes: the class key of each logit column.

    The arrays are `pred`, for each image the column with the largest logit; `p_true` and `p_max`, the probabilities of
    its true and of its predicted class; `logits`, in float16 if they take more than LOGITS_FLOAT32_MB in float32; and
    `logit_classes`, the class key of each logit column.

    Raises FcaError for logits that float16 cannot hold.
    """
    probabilities = softmax(logits, axis=1)
    is_small = logits.nbytes <= LOGITS_FLOAT32_MB * 2**20
    probability_of_class = probabilities[np.arange(len(true)), true]  # of the true class, one number an image
    return {
        "pred": logits.argmax(axis=1).astype(np.int32),
        "p_true": probability_of_class.astype(np.float32),
        "p_max": probabilities.max(axis=1).astype(np.float32),
        "logits": logits.astype(np.float32) if is_small else as_half("logits", logits),
        "logit_classes": np.array(classes),
    }


# The work of a run.


def finish_predictions(runs: Sequence[Run[ForwardWork]], context: RunContext) -> Iterator[Finished]:
    """Do predict runs in turn, and yield each with its results. A model is built once for all of its runs.

    runs: those of one model object must follow each other, and have the same data.
    """
    for _, runs_of_model in groupby(runs, lambda run: id(run.work.model)):  # `id`: the same object, not an equal one
        model_runs = list(runs_of_model)
        first_work = model_runs[0].work
        classifier = build_model(first_work.model)
        context.store.keep_items(first_work.data)  # the list of images, in whose order arrays are stored

        # Shifts of stage `input` change images at the model's input size, and share what is computed for a batch.
        # All other shifts change the images as they are read.
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

    rows: positions in the data's items.
    true: the logit column of each image's class.
    classes: label indices.
    """

    rows: Int[np.ndarray, " images"]
    true: Int[np.ndarray, " images"]
    classes: list[int]


def known_images(work: ForwardWork, classifier: Classifier) -> KnownImages:
    """The images of the work's split whose class the classifier knows; only of `work.classes` if these are given.

    Raises FcaError where the classifier knows no class of the data, and where no image is of a known class.
    """
    data = work.data
    column_by_label = logit_columns(classifier.classes, data.classes)  # -1: the classifier does not know the class
    # a class that differs only in its spelling is refused, as it would silently count as unknown
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
    """Do a predict run: forward every image of the split whose class the classifier knows, changed by the shift.

    Logits of shifted images are stored only if `work.keep_logits` is true. Shifts that change images at the input size
    of the model are done by `predict_at_input` instead.
    on_batch: called after every batch with its number of images.
    """
    from fca.training.infer import logits_of  # imports torch, which planning does without

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

    # Shifted images are cached only if those of all shifts fit the cache: else each shift would push out another.
    bytes_of_all_shifts = 3 * classifier.input_size**2 * len(rows) * len(context.shifts)
    fits_cache = bytes_of_all_shifts <= 1e9 * machine.cache_gb
    cache_gb = machine.cache_gb if is_clean or fits_cache else 0.0
    # A shift that crops images to a reference size has removed a margin already, so the network crops less then.
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
    """Do predict runs whose shifts change images at the model's input size (stage `input`), and yield their results.

    All runs have the same model and the same images. For each batch of images every shift is computed in turn, so that
    pixels and masks are made once. The time of a run is therefore an equal share of the time for all shifts.

    Arrays beside those of every prediction: mask_area, for each image the share of the input that is object; examples
    (uint8, 64 pixels a side), the first image of each of the first EXAMPLES classes, under the shift.
    """
    from fca.tasks.at_input import AtInput, outputs_under  # imports torch, which planning does without

    work = runs[0].work
    rows, true, classes = known_images(work, classifier)
    images = AtInput(work.data, work.split, rows, classifier, context)

    _, first_of_class = np.unique(work.data.labels[rows], return_index=True)  # positions among `rows`
    example_rows = rows[first_of_class[:EXAMPLES]]

    # the logits of all runs of a chunk are in memory until the chunk ends, so its number of runs is limited
    logits_bytes = 4 * len(rows) * len(classifier.classes)  # of one run, in float32
    runs_at_once = max(1, LOGITS_HELD_BYTES // logits_bytes)
    for first_run in range(0, len(runs), runs_at_once):
        chunk = runs[first_run : first_run + runs_at_once]
        # all shifts are InputShifts here: the condition is only for mypy
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
    """The columns that a training takes from its predictions for clean test images: accuracy, time, device, size.

    Column `flag` is "chance" if the interval of the accuracy reaches down to chance, the accuracy of always predicting
    the most frequent class; otherwise None.

    predicted: the columns of the predictions.
    data, subset: the images, and the classes whose images were predicted.
    """
    top1 = accuracy_columns("top1", predicted["top1_open"], predicted["n_test"])
    test_labels = data.labels[data.rows("test", subset.classes)]
    at_chance = is_at_chance(top1["top1_low"], guessing_accuracy(test_labels))
    return {
        **{column: predicted[column] for column in ("n_test", *FORWARD_COLUMNS)},
        **top1,
        "flag": "chance" if at_chance else None,
    }


def score(run: Run[Scoring], store: Store) -> dict[str, Any]:
    """The columns of a score run: the accuracy on a subset, computed from the logits that its parent stored.

    The parent is a predict run. Open accuracy lets all classes of the model compete, masked accuracy only the classes
    of the subset. With groups of classes, grouped accuracy sums the probabilities of each group.
    Raises FcaError for a class that the parent did not predict, and for a parent that stored no logits.
    """
    work = run.work
    classes = list(work.subset.classes)
    parent = store.row(str(run.parent))

    unknown_classes = sorted(set(classes) - set(parent["classes"]))
    if unknown_classes:
        keys = ", ".join(work.data.classes[label] for label in unknown_classes)
        raise FcaError("subset.classes", keys, "classes that the model knows", "choose another subset or model")

    stored = stored_predictions(store, parent)
    is_in_subset = stored.of_classes(classes)  # which of the predicted images
    if not store.has_array(stored.run_id, "logits"):
        step = f"remove {store.folder(stored.run_id)} and run again with task.keep=logits"
        raise FcaError("logits of run", stored.run_id, "stored: the run was made without task.keep=logits", step)
    logits = stored.logits[is_in_subset]
    true = stored.true[is_in_subset]

    n = len(true)
    subset_logits = stored.columns[classes]  # the logit columns of the classes of the subset
    columns = {
        "n_test": n,
        **accuracy_columns("top1_open", open_top1(logits, true), n),
        **accuracy_columns("top1_masked", masked_top1(logits, subset_logits, true), n),
    }
    if work.groups:
        group_of_logit = work.groups.codes(stored.logit_classes)  # -1: a class of no group
        top1_grouped, n_grouped = grouped_top1(logits, group_of_logit, true)
        columns["n_grouped"] = n_grouped  # images whose class is in a group; no others count for top1_grouped
        columns.update(accuracy_columns("top1_grouped", top1_grouped, n_grouped))
    return columns
