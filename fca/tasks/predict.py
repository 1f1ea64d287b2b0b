"""What a classifier predicts for every image of a split whose class it knows, and subsets scored on stored logits."""

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

from fca.allowed import Allowed
from fca.data.pixels import geometry_under, open_pixels, shifted
from fca.data.sizes import any_above_reference
from fca.data.splits import as_trained_on
from fca.finite import as_half, check_outputs
from fca.models import built, class_keys, no_weights, starts_from_scratch
from fca.models.stored import StoredRun
from fca.names import check_meant
from fca.progress import Meter
from fca.shifts import Clean, InputShift
from fca.stats.chance import at_chance, guessing
from fca.stats.intervals import wilson
from fca.stats.protocols import grouped_top1, logit_columns, masked_top1, open_top1
from fca.store import State, Store
from fca.store.columns import DEVICE, IMAGES_PER_S, INPUT_SIZE, PARAMS, PREDICT_S, ZERO_SHOT, Row
from fca.subset import Groups, read_groups
from fca.tables.predictions import predictions as stored_predictions
from fca.tasks import Setup
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

CLEAN = Clean()
LOGITS_FLOAT32_MB = 64  # larger matrices of logits are kept as float16
LOGITS_HELD_BYTES = 2**31  # of several shifts of stage `input` at once
MANY = 2000  # forwarded images from which on there is a progress bar
EXAMPLES = 8  # shifted images that are kept
FORWARD = (PREDICT_S, IMAGES_PER_S, PARAMS, INPUT_SIZE, DEVICE)  # columns of the forward passes


@dataclass(frozen=True, eq=False)
class Forward:
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
    """`task=predict`: one heavy run a shift for the whole split; light `score` runs for a subset or groups.

    keep:   logits = keep them for shifted images too (40 bytes an image of ten classes); null = for clean ones only.
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

    def plan(self, setup: Setup) -> list[Run]:
        """A predict run a shift, whatever the subset and seed; the scores of the subset on their stored logits."""
        if self.keep not in (None, "logits"):
            raise FcaError("task.keep", self.keep, "null or logits", "leave it out, or set task.keep=logits")
        groups = None if self.groups is None else read_groups(self.groups, self.group_columns)
        heavy = whole_split(setup, self.split, self.keep == "logits")
        work = heavy[0].work
        check_forward(work)
        check_classes(work.model, work.data, self.split)
        if setup.subset.ncl == len(setup.data.classes) and groups is None:
            return [*heavy]
        if self.keep is None and any(shift.label() != CLEAN.label() for shift in setup.shifts):
            raise FcaError("task.keep", None, "logits, to score a subset of shifted images", "add task.keep=logits")
        check_subset(work.model, work.data, setup.subset.classes, work.classes)
        scoring = Scoring(work.data, setup.subset, groups)
        return [*heavy, *(score_run(run, scoring) for run in heavy)]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Build the model once and forward the split once a shift; score from what is stored."""
        yield from predictions([run for run in runs if run.task == "predict"], setup)
        for run in runs:
            if run.task == "score":
                yield Finished(run, score(run, setup.store), {})


def whole_split(setup: Setup, split: str, keep_logits: bool = False) -> list[Run[Forward]]:
    """The run of each shift that predicts a whole split.

    The data of a stored run are those that its training cut. As released (compat), a sub-model's head has all classes,
    and it predicts for the images of its subset alone. So the predictions of a stored run are the same, whether its
    training makes them or a later `task=predict`.
    """
    data, classes = setup.data, None
    if (found := _trained(setup.model)) is not None:
        trained, _ = found
        group = trained.get("group")
        if group not in (None, *data.items) and trained["dataset"] == data.name:
            allowed, step = f"{group}, by which training {trained['run_id']} split it", f"add dataset.group={group}"
            raise FcaError("dataset.group", data.group, allowed, step)
        data = as_trained_on(data, trained["fingerprint"], group)
        if trained.get("compat") and data.fingerprint == trained["fingerprint"]:
            classes = trained["classes"]
    model, among = named(setup.model, data)
    identity = model.identity()
    about = {"model": model.label(), "weights": model.weights_label(), "snapshot": identity.get("snapshot"), **among}
    check_masks(setup.shifts, data, split, classes)
    shifts = [shift_on(shift, data, split) for shift in setup.shifts]
    works = (Forward(model, data, split, shift, classes, keep_logits) for shift in shifts)
    return [predict_run(work, identity, about) for work in works]


def named(model: Model, data: ImageData) -> tuple[Model, dict[str, str]]:
    """The model with the classes that it chooses among, if it is zero-shot; a column where these are not the data's.

    Classes that the configuration gives stay. Else they are those of the data set, or published ones that contain them
    (see `Nameable.choose_among`): networks trained on these choose among all of them, so a model with fewer to choose
    among has an easier test. From the stored logits the masked protocol counts the few.
    """
    if not isinstance(model, Nameable):
        return model, {}
    if model.classes is not None:
        return model, {ZERO_SHOT: model.classes if isinstance(model.classes, str) else "given"}

    for column, published in model.choose_among.items():
        keys = class_keys(published)
        if column in data.items and set(data.classes) <= set(keys):
            return model.naming(keys), {ZERO_SHOT: published}
    return model.naming(data.classes), {}


def shift_on(shift: Shift, data: ImageData, split: str) -> Shift:
    """The shift as it is for the images of this split: a corruption depends on whether any is above 96 pixels."""
    return shift.for_images(any_above_reference(data, split)) if isinstance(shift, DependsOnSize) else shift


def check_forward(work: Forward) -> None:
    """Raise FcaError for a model without weights, and for a split without images."""
    data, split = work.data, work.split
    if starts_from_scratch(work.model):
        raise no_weights()
    if not len(data.rows(split)):
        there = ", ".join(part for part in SPLITS if len(data.rows(part)))
        raise FcaError("task.split", split, f"{there}: {data.name} has no other images", "take one of these")


def _trained(model: Model) -> tuple[Row, Store] | None:
    """The row of the training that a stored run is, once that is done, and where it is stored."""
    if not isinstance(model, StoredRun):
        return None
    store = Store(Path(model.outputs))
    return (store.row(model.run_id), store) if store.state(model.run_id) is State.DONE else None


# The runs and their columns.


def subset_columns(subset: ClassSubset) -> dict[str, Any]:
    """Which classes, and how they were drawn."""
    return {"ncl": subset.ncl, "subset_seed": subset.seed, "sampler": subset.sampler, "classes": subset.classes}


def data_columns(data: ImageData, split: str, shift: Shift = CLEAN) -> dict[str, Any]:
    """Which images, and under which shift."""
    return {
        "dataset": data.name,
        "fingerprint": data.fingerprint,
        "num_classes": len(data.classes),
        "split": split,
        "shift": shift.label(),
        "corrupted_at": shift.corrupted_at if isinstance(shift, AtReference) else None,
    }


def predict_run(
    work: Forward, model: Mapping[str, Any], about: Mapping[str, Any], parent: str | None = None
) -> Run[Forward]:
    """The run that predicts: its identity knows neither subset nor seed.    model: identity of the weights."""
    data, split, shift = work.data, work.split, work.shift
    identity = {"data": data.fingerprint, "split": split, "model": model, "shift": shift.identity()}
    return Run("predict", identity, {**about, **data_columns(data, split, shift)}, parent, work=work)


def score_run(heavy: Run[Forward], work: Scoring) -> Run[Scoring]:
    """The run that scores a subset on the stored logits of a predict run."""
    keys, groups = [work.data.classes[c] for c in work.subset.classes], work.groups
    identity = {"parent": heavy.run_id, "classes": keys, **({"groups": dict(groups.of)} if groups else {})}
    about = {**heavy.about, **subset_columns(work.subset), "groups": groups.name if groups else None}
    return Run("score", identity, about, heavy.run_id, light=True, work=work)


def with_interval(name: str, top1: float, n: int) -> dict[str, float]:
    """A headline accuracy on n images with its Wilson interval, as three columns."""
    low, high = wilson(round(top1 * n), n)
    return {name: top1, f"{name}_low": low, f"{name}_high": high}


def forward_columns(classifier: Classifier, n: int, seconds: float, accelerator: str) -> dict[str, Any]:
    """What the forward passes of n images took."""
    from fca.training.devices import accelerator_for, device_name

    params = sum(p.numel() for p in classifier.module.parameters())
    device = device_name(accelerator_for(classifier.module, accelerator))
    found = (seconds, n / seconds, params, classifier.input_size, device)
    return dict(zip(FORWARD, found, strict=True))


def prediction_columns(
    logits: Float[np.ndarray, "images logits"], true: Int[np.ndarray, " images"], known: Sequence[int]
) -> dict[str, Any]:
    """Open accuracy (argmax over all logits) on these images, with its Wilson interval.

    true: the column of each image's class.    known: label indices of the classes.
    Raises FcaError for logits that are NaN or infinite, of which argmax would be the first class.
    """
    check_outputs("logits", logits)
    n = len(true)
    about = {"ncl": len(known), "classes": known, "n_test": n}
    return {**about, **with_interval("top1_open", open_top1(logits, true), n)}


def prediction_arrays(
    logits: Float[np.ndarray, "images logits"], true: Int[np.ndarray, " images"], classes: Sequence[str]
) -> Arrays:
    """pred, p_true and p_max from float32 logits; the logits themselves as float16 when they are large.

    Raises FcaError for logits that float16 cannot hold.
    """
    p = softmax(logits, axis=1)
    small = logits.nbytes <= LOGITS_FLOAT32_MB * 2**20
    return {
        "pred": logits.argmax(axis=1).astype(np.int32),
        "p_true": p[np.arange(len(true)), true].astype(np.float32),
        "p_max": p.max(axis=1).astype(np.float32),
        "logits": logits.astype(np.float32) if small else as_half("logits", logits),
        "logit_classes": np.array(classes),
    }


# The work.


def predictions(runs: Sequence[Run[Forward]], setup: Setup) -> Iterator[Finished]:
    """Predict run after predict run; each model is built once.    runs: those of one model after each other."""
    for _, same in groupby(runs, lambda run: id(run.work.model)):
        of_one = list(same)
        classifier = built(of_one[0].work.model)
        setup.store.keep_items(of_one[0].work.data)
        late = [run for run in of_one if isinstance(run.work.shift, InputShift)]
        early = [run for run in of_one if run not in late]
        images = sum(len(known_images(run.work, classifier).rows) for run in early)
        with Meter("images", images, long=images >= MANY) as meter:
            for number, run in enumerate(early, 1):
                shift = run.work.shift.label()
                meter.begin(f"shift {number} of {len(early)}, {shift}" if len(early) > 1 else shift)
                yield predicted(run, classifier, setup, meter.add)
        if late:
            yield from predicted_at_input(late, classifier, setup)


class Images(NamedTuple):
    """Which images a classifier predicts: those of a split whose class it knows.

    rows: positions in the data's items.    true: the column of the class of each.    known: label indices.
    """

    rows: Int[np.ndarray, " images"]
    true: Int[np.ndarray, " images"]
    known: list[int]


def known_images(work: Forward, classifier: Classifier) -> Images:
    """Raises FcaError where the classifier knows no class of the data, and where no image is of one."""
    data, split = work.data, work.split
    column = logit_columns(classifier.classes, data.classes)
    check_meant(f"class of {data.name}", data.classes, classifier.classes, "the model")
    known = [c for c in work.classes or range(len(data.classes)) if column[c] >= 0]
    if not known:
        own, theirs = (", ".join(keys[:5]) + ", ..." for keys in (classifier.classes, data.classes))
        step = "choose its data set (dataset=...), or give the class keys in logit order, model.classes=[...]"
        raise FcaError("model.classes", own, f"at least one class of {data.name}: {theirs}", step)
    rows = data.rows(split, known)
    if not len(rows):
        raise FcaError("split", split, f"a split of {data.name} with images of the known classes", "see: task=describe")
    return Images(rows, column[data.labels[rows]], known)


def predicted(
    run: Run[Forward], classifier: Classifier, setup: Setup, done: Callable[[int], object] = lambda images: None
) -> Finished:
    """Forward every image of the split whose class the classifier knows, as the shift shows it.

    done: called after every batch with its number of images.
    """
    from fca.training.infer import logits_of

    work = run.work
    data, split, machine = work.data, work.split, setup.machine
    rows, true, known = known_images(work, classifier)
    clean = work.shift.label() == CLEAN.label()
    shown = data if clean else shifted(data, work.shift, split)
    places = rows if clean else np.searchsorted(data.rows(split), rows)
    together = 3 * classifier.input_size**2 * len(rows) * len(setup.shifts)  # bytes of all shifts: all of them or none
    room = machine.cache_gb if clean or together <= 1e9 * machine.cache_gb else 0.0
    pixels = open_pixels(
        shown, geometry_under(work.shift, classifier.geometry), setup.cache, machine.workers, room, places
    )
    start = time.perf_counter()
    logits = logits_of(classifier, pixels, places, machine.accelerator, done)
    seconds = time.perf_counter() - start
    columns = prediction_columns(logits, true, known)
    columns |= forward_columns(classifier, len(rows), seconds, machine.accelerator)
    arrays = prediction_arrays(logits, true, classifier.classes)
    if not (clean or work.keep_logits):
        del arrays["logits"]
    return Finished(run, columns, arrays)


def predicted_at_input(runs: Sequence[Run[Forward]], classifier: Classifier, setup: Setup) -> Iterator[Finished]:
    """Forward the same images under many shifts of stage `input`: batch by batch, every shift of a batch in turn.

    Beside the usual arrays: mask_area, the share of the input that is object, and examples (uint8, 64 pixels a side),
    the first shifted image of each of the first classes.
    """
    from fca.tasks.at_input import AtInput, outputs_under

    work = runs[0].work
    rows, true, known = known_images(work, classifier)
    shown = AtInput(work.data, work.split, rows, classifier, setup)
    runs_at_once = max(1, LOGITS_HELD_BYTES // (4 * len(rows) * len(classifier.classes)))
    first_of_class = np.unique(work.data.labels[rows], return_index=True)[1][:EXAMPLES]
    for start in range(0, len(runs), runs_at_once):
        together = runs[start : start + runs_at_once]
        begun = time.perf_counter()
        shifts = [run.work.shift for run in together if isinstance(run.work.shift, InputShift)]
        shifted = outputs_under(shifts, classifier, shown, rows[first_of_class])
        seconds = (time.perf_counter() - begun) / len(together)

        for run, logits, examples in zip(together, shifted.logits, shifted.examples, strict=True):
            columns = prediction_columns(logits, true, known)
            columns |= forward_columns(classifier, len(rows), seconds, setup.machine.accelerator)
            arrays = prediction_arrays(logits, true, classifier.classes)
            if not run.work.keep_logits:
                del arrays["logits"]
            arrays |= {"mask_area": shifted.mask_area, "examples": examples}
            yield Finished(run, columns, arrays)


def adapted_columns(predicted: Mapping[str, Any], data: ImageData, subset: ClassSubset) -> dict[str, Any]:
    """A sub-model's own columns from those of its predictions on test.

    flag: chance where the interval of the accuracy includes that of always predicting the most frequent class.
    """
    top1 = with_interval("top1", predicted["top1_open"], predicted["n_test"])
    tested = data.labels[data.rows("test", subset.classes)]
    is_at_chance = at_chance(top1["top1_low"], guessing(tested))
    flag = "chance" if is_at_chance else None
    return {**{column: predicted[column] for column in ("n_test", *FORWARD)}, **top1, "flag": flag}


def score(run: Run[Scoring], store: Store) -> dict[str, Any]:
    """A subset's open, masked and, with groups, grouped accuracy from the parent's stored logits."""
    work = run.work
    classes, parent = list(work.subset.classes), store.row(str(run.parent))
    if unknown := sorted(set(classes) - set(parent["classes"])):
        keys = ", ".join(work.data.classes[c] for c in unknown)
        raise FcaError("subset.classes", keys, "classes that the model knows", "choose another subset or model")
    stored = stored_predictions(store, parent)
    inside = stored.of_classes(classes)
    if not store.has_array(stored.run_id, "logits"):
        step = f"remove {store.folder(stored.run_id)} and run again with task.keep=logits"
        raise FcaError("logits of run", stored.run_id, "kept: it was made without task.keep=logits", step)
    logits, true = stored.logits[inside], stored.true[inside]
    n = len(true)
    scored = {
        "n_test": n,
        **with_interval("top1_open", open_top1(logits, true), n),
        **with_interval("top1_masked", masked_top1(logits, stored.columns[classes], true), n),
    }
    if work.groups:
        top1, n = grouped_top1(logits, work.groups.codes(stored.logit_classes), true)
        scored |= {"n_grouped": n, **with_interval("top1_grouped", top1, n)}
    return scored
