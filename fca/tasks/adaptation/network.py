"""`adaptation=scratch` and `adaptation=finetune`: train the whole network, keep its best epoch on validation images."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Int

from fca.data.copies import connected_images
from fca.data.pixels import open_originals, open_pixels
from fca.data.splits import fixed_draw
from fca.identity import canonical
from fca.models import check_built
from fca.models.stored import BEST, describe_model, snapshot_name
from fca.stats.features import fit_probe
from fca.store.columns import DEVICE, DIVERGED, FLAG, N_TRAIN, N_VAL
from fca.store.files import write_json
from fca.subset import full_set
from fca.tasks import RunContext
from fca.tasks.adaptation import VAL_TOP1, check_has_weights, prediction_runs, training_columns
from fca.tasks.adaptation.probe import ProbeWork, features_run_and_work
from fca.tasks.embed import embed_images
from fca.tasks.predict import ForwardWork, adapted_columns, finish_predictions, predict_images
from fca.training.recipe import FEW_STEPS, Recipe
from fca.types import Classifier, Column, FcaError, Finished, ImageData, Model, Run
from fca.validation import Allowed

RANDOM = "random"  # the last layer begins with random weights
PROBE = "probe"  # the last layer begins as a linear probe
BEST_EPOCH = Column("best_epoch", int, "d", "epoch whose weights are kept, the most accurate one on validation images")
EPOCHS_RUN = Column("epochs_run", int, "d", "epochs of a training, fewer than planned if it stopped early or diverged")

log = logging.getLogger(__name__)
_warned: set[str] = set()  # names of data sets with few training steps: a sweep is warned once about each


@dataclass(frozen=True, eq=False)
class TrainingWork:
    """The work of a training run.

    clean:    the run of its best weights' predictions on clean test images.
    features: features of its network, where the last layer begins as a linear probe on them.
    """

    data: ImageData
    model: Model
    recipe: Recipe
    clean: Run[ForwardWork]
    features: ProbeWork | None = None


@dataclass(frozen=True)
class Network:
    """`adaptation=null`: finetune the model if it has weights, else train it from scratch."""

    columns: ClassVar[tuple[Column, ...]] = (BEST_EPOCH, EPOCHS_RUN)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    def plan(self, context: RunContext) -> list[Run]:
        """The runs of `Finetune` for a model with weights, of `Scratch` for others."""
        has_weights = context.model.weights_label() is not None
        adaptation = Finetune() if has_weights else Scratch()
        return adaptation.plan(context)

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Do the training if it is among the runs, then predict the test images with the weights that it kept.

        A training that diverges is yielded without accuracy, and its predictions are not made.

        runs: runs of one plan that are not stored yet. If the training is among them, it is the first.
        """
        first_run = runs[0]
        if first_run.task != "train":  # the training is done already
            yield from finish_predictions(runs, context)
            return

        classifier, columns, has_diverged = _train(first_run, context)
        # Store the list of images, in whose order arrays are stored; only now, as a model that cannot be built should
        # leave no file.
        context.store.keep_items(first_run.work.data)
        if has_diverged:
            yield Finished(first_run, {**columns, VAL_TOP1: None, FLAG: DIVERGED}, {})
            return

        # The network predicts the clean images now, while it is in memory: the training's row has their accuracy.
        clean = predict_images(first_run.work.clean, classifier, context)
        test_columns = adapted_columns(clean.columns, first_run.work.data, context.subset)
        yield Finished(first_run, {**test_columns, **columns}, {})

        predict_runs = runs[1:]
        other_runs = [run for run in predict_runs if run.run_id != clean.run.run_id]
        if len(other_runs) < len(predict_runs):  # the clean prediction is among the runs: it is not stored yet
            yield clean
        yield from finish_predictions(other_runs, context)


@dataclass(frozen=True)
class Scratch(Network):
    """`adaptation=scratch`: begin with random weights, even if the model is configured with others."""

    def plan(self, context: RunContext) -> list[Run]:
        """The training and its predictions. Raises FcaError for a model that cannot be built with random weights."""
        model = context.model.from_scratch()
        if model is None:
            step = "name the network itself, e.g. model=resnet18"
            allowed = f"finetune or probe: {context.model.label()} is given with what it learnt"
            raise FcaError("adaptation", "scratch", allowed, step)
        return _training_and_predictions(replace(context, model=model), finetune=False)


@dataclass(frozen=True)
class Finetune(Network):
    """`adaptation=finetune`: begin with the model's weights, at `finetune_lr` times the recipe's learning rate.

    start: what the last layer begins with: random weights, or the linear probe on the network's features (Kumar et al.
    2022, arXiv:2202.10054). The probe counts as an epoch, so that it is kept where no epoch is better on validation
    images.
    """

    start: Annotated[str, Allowed(choices=(RANDOM, PROBE))] = RANDOM

    def plan(self, context: RunContext) -> list[Run]:
        """The training and its predictions; to start from a probe, first the run that computes its features.

        Raises FcaError for a model without weights, and for compat together with start=probe.
        """
        check_has_weights(context, "finetune")
        if self.start == RANDOM:
            return _training_and_predictions(context, finetune=True)

        features_run, probe = features_run_and_work(context, context.data)
        return [features_run, *_training_and_predictions(context, finetune=True, probe=probe)]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Compute the features if that is among the runs, then train and predict."""
        for run in runs:
            if run.task == "embed":
                yield embed_images(run, context)

        other_runs = [run for run in runs if run.task != "embed"]
        if other_runs:
            yield from super().run(other_runs, context)


def _training_and_predictions(context: RunContext, *, finetune: bool, probe: ProbeWork | None = None) -> list[Run]:
    """Plan the run of the training, then the runs that predict the test images under every shift.

    There are predictions with the best weights of the training, and with every snapshot that the recipe keeps.

    finetune: whether the training begins with the weights of the model.
    probe:    names the run that stores the features to which a linear probe is fitted; the last layer begins with this
              probe. None: the last layer begins with random weights.
    """
    data = context.data
    recipe = _recipe_for(context, finetune)
    callbacks = context.trainer.meaning()  # the user's own callbacks of Lightning, which may change results

    # The id of the run is a hash of its identity. Optional keys are left out where they change nothing, so that results
    # from before they existed stay valid.
    identity = {
        "data": data.fingerprint,
        "classes": [data.classes[c] for c in context.subset.classes],
        "model": context.model.identity(),
        "recipe": canonical("recipe", asdict(recipe)),  # without keys that were added later and have their default
        "seed": context.seed,
    }
    if context.compat:
        identity["compat"] = context.compat
    if callbacks:
        identity["callbacks"] = callbacks
    if probe:
        identity["start"] = PROBE
        identity["group"] = data.group  # images of one group are left out of the probe together

    recipe_values = {
        **asdict(recipe),
        "augment": recipe.augment.label() or "none",
        "callbacks": json.dumps(callbacks),
        "optimiser_options": json.dumps(recipe.optimiser_options, sort_keys=True),
    }
    columns = {
        **training_columns(context, data, "finetune" if finetune else "scratch"),
        "compat": context.compat,
        "seed": context.seed,
        # steps and min_steps have no column: they are turned into epochs and passes, which have columns
        **{f"recipe_{key}": value for key, value in recipe_values.items() if key not in ("steps", "min_steps")},
    }
    features_run_id = probe.features if probe else None
    training = Run("train", identity, columns, parent=features_run_id)  # it begins when its parent is done

    snapshots = [BEST, *map(snapshot_name, recipe.snapshots)]
    distinct_snapshots = list(dict.fromkeys(snapshots))
    clean, *other_predictions = prediction_runs(training, context, data, distinct_snapshots)
    # The work of the training contains the clean prediction, which needs the id of the training: so it is added last.
    work = TrainingWork(data, context.model, recipe, clean, probe)
    return [replace(training, work=work), clean, *other_predictions]


def _recipe_for(context: RunContext, finetune: bool) -> Recipe:
    """The configured recipe with the values that this training really uses, which are part of its identity.

    Images are flipped only if a mirrored image still shows its class. The learning rate is scaled to the batch size
    (and for finetuning), a number of steps is turned into a number of epochs for these images, and settings without
    effect get a neutral value. Logs a warning about a training with few steps, once for each data set.
    """
    data = context.data
    train_splits, val_splits = _train_and_val_splits(context)
    n_train = sum(data.n_images(split, context.subset.classes) for split in train_splits)
    n_val = sum(data.n_images(split, context.subset.classes) for split in val_splits)

    recipe = replace(context.recipe, flip=context.recipe.flip and data.mirror)
    if context.compat:
        recipe = replace(recipe, val_max=0)  # 0: no limit. As in the original, all test images choose the epoch
    recipe = recipe.scaled(finetune)  # fills in the effective learning rate
    recipe = recipe.essential(n_train, n_val)  # steps become epochs, and settings without effect become neutral

    steps = recipe.steps_for(n_train)
    if steps < FEW_STEPS and recipe.epochs > 1 and data.name not in _warned:  # one epoch is a trial
        _warned.add(data.name)
        log.warning(
            "%s: a training has %d steps, on %d images; with fewer than %d, many networks stay near chance: set "
            "recipe.min_steps=%d, or more epochs",
            data.name,
            steps,
            n_train,
            FEW_STEPS,
            FEW_STEPS,
        )
    return recipe


def _train_and_val_splits(context: RunContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The splits whose images are trained on, and the splits on which the epoch is chosen.

    The original (reproduced with compat) trains on train and val, and chooses the epoch on test.
    """
    if context.compat:
        return ("train", "val"), ("test",)
    return ("train",), ("val",)


def _train(run: Run[TrainingWork], context: RunContext) -> tuple[Classifier, dict[str, Any], bool]:
    """Do a training; return the network with the weights that are kept, the run's columns, and whether it diverged.

    With compat, which reproduces the original, the head has all classes of the data instead of the subset's classes.
    """
    # these import torch, which planning does without
    from fca.training.batches import Examples
    from fca.training.devices import devices_name
    from fca.training.loop import TrainingPlace, fit, seed_everything

    work = run.work
    data = work.data
    machine = context.machine
    head_classes = full_set(len(data.classes)) if context.compat else context.subset
    keys = [data.classes[c] for c in head_classes.classes]
    train_rows, val_rows = _train_and_val_rows(work, context)
    train_labels = head_classes.new_labels(data.labels[train_rows])

    seed_everything(context.seed)  # before the network is built with random weights
    classifier = work.model.build(keys)
    check_built(work.model, classifier, keys)  # the code of a user's model may return anything
    if work.features is not None:
        _fit_probe_as_last_layer(classifier, work.features, train_rows, train_labels, context)

    # Images are read at the input size of the network. But a recipe that crops needs training images with their
    # margins: then only validation images are read at input size.
    cache_and_workers = (context.cache, machine.workers, machine.cache_gb)
    if work.recipe.crops:
        pixels = open_pixels(data, classifier.geometry, *cache_and_workers, rows=val_rows)
        originals = open_originals(data, classifier.geometry, *cache_and_workers, rows=train_rows)
    else:
        pixels = open_pixels(data, classifier.geometry, *cache_and_workers, rows=np.concatenate([train_rows, val_rows]))
        originals = None
    train = Examples(pixels, train_rows, train_labels, originals)
    val = Examples(pixels, val_rows, head_classes.new_labels(data.labels[val_rows]))

    place = TrainingPlace(
        context.store.folder(run.run_id),
        accelerator=machine.accelerator,
        devices=machine.devices,
        strategy=machine.strategy,
        compile=machine.compile,
        checkpoint_s=machine.checkpoint_s,
        logger=context.tracker.start(run),
        trainer=context.trainer,
    )
    write_json(place.folder / "model.json", describe_model(work.model, keys))  # for later runs that load the weights
    begins_with_probe = work.features is not None  # the start then competes with the epochs to be the best weights
    fitted = fit(classifier, train, val, work.recipe, context.seed, place, start_counts=begins_with_probe)
    if fitted.diverged:
        log.warning(
            "training %s diverged in epoch %d: losses or weights are no longer finite; no accuracy is stored; next: a "
            "lower recipe.lr, or check model.mean and model.std",
            run.run_id,
            fitted.epochs_run + 1,
        )

    columns: dict[str, Any] = {
        N_TRAIN: len(train),
        N_VAL: len(val),
        VAL_TOP1: fitted.val_top1,
        BEST_EPOCH: fitted.best_epoch,
        EPOCHS_RUN: fitted.epochs_run,
        "train_s": fitted.train_s,
        DEVICE: devices_name(machine.accelerator, machine.devices),
    }
    return classifier, columns, fitted.diverged


def _train_and_val_rows(
    work: TrainingWork, context: RunContext
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " val"]]:
    """Positions in `data.items` of the training images, and of the validation images that choose the best epoch.

    Both are images of the subset's classes. There are at most `recipe.val_max` validation images; 0 stands for all.
    """
    data = work.data
    train_splits, val_splits = _train_and_val_splits(context)

    def rows_of(splits: Sequence[str]) -> Int[np.ndarray, " rows"]:
        """Positions of the subset's images in these splits, in the order of the data."""
        rows_by_split = [data.rows(split, context.subset.classes) for split in splits]
        return np.sort(np.hstack(rows_by_split))

    train_rows = rows_of(train_splits)
    val_rows = rows_of(val_splits)
    if work.recipe.val_max:
        val_rows = fixed_draw(data, val_rows, work.recipe.val_max)  # the same images for every seed
    return train_rows, val_rows


def _fit_probe_as_last_layer(
    classifier: Classifier,
    features: ProbeWork,
    rows: Int[np.ndarray, " images"],
    labels: Int[np.ndarray, " images"],
    context: RunContext,
) -> None:
    """Fit a linear probe to the stored features of the training images, and copy it into the network's last layer.

    features: names the run that has stored the features of all images.
    rows:     positions of the training images in `data.items`.
    labels:   the classes of these images, 0 to classes - 1 in the order of the head.
    Raises FcaError for a network whose last layer is not linear, or has no bias.
    """
    import torch

    layer = classifier.head
    if not isinstance(layer, torch.nn.Linear) or layer.bias is None:
        allowed = f"random for {type(classifier.module).__name__}: its last layer is not linear with a bias"
        raise FcaError("adaptation.start", PROBE, allowed, "set adaptation.start=random")

    # `fit_probe` leaves images out in turn to choose its penalty. Copies, and images of one group, are left out
    # together.
    unit_of_image = connected_images(features.data.items.iloc[rows], features.data.group)
    probe = fit_probe(features.values(context.store)[rows], labels, unit_of_image)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(probe.weight))
        layer.bias.copy_(torch.from_numpy(probe.bias))
