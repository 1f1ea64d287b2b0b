"""`adaptation=scratch` and `adaptation=finetune`: train the whole network, keep its best epoch on val."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Int

from fca.allowed import Allowed
from fca.data.copies import kept_together
from fca.data.pixels import open_originals, open_pixels
from fca.data.splits import fixed_draw
from fca.identity import canonical
from fca.models import check_built
from fca.models.stored import BEST, describe_model, snapshot_name
from fca.stats.features import fit_probe
from fca.store.columns import DEVICE, DIVERGED, FLAG, N_TRAIN, N_VAL
from fca.store.files import write_json
from fca.subset import full_set
from fca.tasks import Setup
from fca.tasks.adaptation import VAL_TOP1, about_training, need_weights, predictions_of
from fca.tasks.adaptation.probe import Probing, probing
from fca.tasks.embed import embedded
from fca.tasks.predict import Forward, adapted_columns, predicted, predictions
from fca.training.recipe import FEW_STEPS, Recipe
from fca.types import Classifier, Column, FcaError, Finished, ImageData, Model, Run

RANDOM, PROBE = "random", "probe"  # what the last layer begins with
BEST_EPOCH = Column("best_epoch", int, "d", "epoch whose weights are kept, the most accurate one on validation images")
EPOCHS_RUN = Column("epochs_run", int, "d", "epochs of a training, fewer than planned if it stopped early or diverged")

log = logging.getLogger(__name__)
_warned: set[str] = set()  # data sets of which a plan has few steps: a sweep is warned once


@dataclass(frozen=True, eq=False)
class Training:
    """The work of a training run.

    clean: the run of its best weights' predictions on clean test images.    features: those of its network, where a
    linear probe on them is the last layer that it begins with.
    """

    data: ImageData
    model: Model
    recipe: Recipe
    clean: Run[Forward]
    features: Probing | None = None


@dataclass(frozen=True)
class Network:
    """`adaptation=null`: finetune the model if it has weights, else train it from scratch."""

    columns: ClassVar[tuple[Column, ...]] = (BEST_EPOCH, EPOCHS_RUN)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    def plan(self, setup: Setup) -> list[Run]:
        """The training and its predictions."""
        way = Scratch() if setup.model.weights_label() is None else Finetune()
        return way.plan(setup)

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Train if that is to be done, then let the weights that it kept predict the test images.

        A training that diverged has no accuracy, and its weights predict nothing.
        """
        first, rest = runs[0], list(runs)
        if first.task == "train":
            classifier, columns, diverged = _fitted(first, setup)
            setup.store.keep_items(first.work.data)  # a model that cannot be built leaves no file
            if diverged:
                yield Finished(first, {**columns, VAL_TOP1: None, FLAG: DIVERGED}, {})
                return
            clean = predicted(first.work.clean, classifier, setup)
            columns = adapted_columns(clean.columns, first.work.data, setup.subset) | columns
            yield Finished(first, columns, {})
            rest = [run for run in runs[1:] if run.run_id != clean.run.run_id]
            if len(rest) < len(runs) - 1:
                yield clean
        yield from predictions(rest, setup)


@dataclass(frozen=True)
class Scratch(Network):
    """`adaptation=scratch`: begin with random weights, whatever weights the model was given."""

    def plan(self, setup: Setup) -> list[Run]:
        """The training and its predictions. Raises FcaError for a model that cannot lose its weights."""
        model = setup.model.from_scratch()
        if model is None:
            step = "name the network itself, e.g. model=resnet18"
            allowed = f"finetune or probe: {setup.model.label()} is given with what it learnt"
            raise FcaError("adaptation", "scratch", allowed, step)
        return _plan(replace(setup, model=model), finetune=False)


@dataclass(frozen=True)
class Finetune(Network):
    """`adaptation=finetune`: begin with the model's weights, at `finetune_lr` times the recipe's learning rate.

    start: what the last layer begins with: random weights, or the linear probe on the network's features (Kumar et al.
    2022, arXiv:2202.10054). The probe counts as an epoch, so that it is kept where no epoch is better on validation
    images.
    """

    start: Annotated[str, Allowed(choices=(RANDOM, PROBE))] = RANDOM

    def plan(self, setup: Setup) -> list[Run]:
        """The training and its predictions, after the features of a probe to start from.

        Raises FcaError for a model without weights, and to start from a probe with compat.
        """
        need_weights(setup, "finetune")
        if self.start == RANDOM:
            return _plan(setup, finetune=True)
        embed, features = probing(setup, setup.data)
        return [embed, *_plan(setup, finetune=True, features=features)]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Embed where that was not done, then train and predict."""
        for run in runs:
            if run.task == "embed":
                yield embedded(run, setup)
        if rest := [run for run in runs if run.task != "embed"]:
            yield from super().run(rest, setup)


def _plan(setup: Setup, *, finetune: bool, features: Probing | None = None) -> list[Run]:
    """The training, and the predict runs of its best weights and of every snapshot, under every shift.

    features: those of the probe to start from, if that is wanted.
    """
    data = setup.data
    images, val_images = (sum(data.number(split, setup.subset.classes) for split in part) for part in _parts(setup))
    recipe = replace(setup.recipe, flip=setup.recipe.flip and data.mirror)
    recipe = replace(recipe, val_max=0) if setup.compat else recipe  # there all test images choose the epoch
    recipe = recipe.scaled(finetune).essential(images, val_images)
    steps = recipe.steps_for(images)
    if steps < FEW_STEPS and recipe.epochs > 1 and data.name not in _warned:  # one epoch is a trial
        _warned.add(data.name)
        few = "%s: a training has %d steps, on %d images; with fewer than %d, many networks stay near chance: set "
        log.warning(few + "recipe.min_steps=%d, or more epochs", data.name, steps, images, FEW_STEPS, FEW_STEPS)
    values, own = asdict(recipe), setup.trainer.meaning()
    identity = {
        "data": data.fingerprint,
        "classes": [data.classes[c] for c in setup.subset.classes],
        "model": setup.model.identity(),
        "recipe": canonical("recipe", values),
        "seed": setup.seed,
        **({"compat": setup.compat} if setup.compat else {}),
        **({"callbacks": own} if own else {}),
        **({"start": PROBE, "group": data.group} if features else {}),
    }
    values |= {"augment": recipe.augment.label() or "none", "callbacks": json.dumps(own)}
    values["optimiser_options"] = json.dumps(recipe.optimiser_options, sort_keys=True)
    about = {
        **about_training(setup, data, "finetune" if finetune else "scratch"),
        "compat": setup.compat,
        "seed": setup.seed,
        **{f"recipe_{key}": value for key, value in values.items() if key not in ("steps", "min_steps")},  # see passes
    }
    train = Run("train", identity, about, features.features if features else None)
    snapshots = list(dict.fromkeys([BEST, *map(snapshot_name, recipe.snapshots)]))
    clean, *others = predictions_of(train, setup, data, snapshots)
    return [replace(train, work=Training(data, setup.model, recipe, clean, features)), clean, *others]


def _parts(setup: Setup) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits that are trained on, and those that choose the epoch: as released (compat), all test images."""
    return (("train", "val"), ("test",)) if setup.compat else (("train",), ("val",))


def _fitted(run: Run[Training], setup: Setup) -> tuple[Classifier, dict[str, Any], bool]:
    """The trained network, the columns of its training, and whether that diverged.

    As released (compat), the head has all classes.
    """
    from fca.training.batches import Examples
    from fca.training.devices import devices_name
    from fca.training.loop import Place, fit, seed_everything

    work = run.work
    data, machine = work.data, setup.machine
    head = full_set(len(data.classes)) if setup.compat else setup.subset
    keys = [data.classes[c] for c in head.classes]
    recipe, classes = work.recipe, setup.subset.classes
    fitting, choosing = (np.sort(np.hstack([data.rows(each, classes) for each in part])) for part in _parts(setup))
    choosing = fixed_draw(data, choosing, recipe.val_max) if recipe.val_max else choosing
    seed_everything(setup.seed)
    classifier = work.model.build(keys)
    check_built(work.model, classifier, keys)
    if work.features is not None:
        _begin_with_probe(classifier, work.features, fitting, head.new_labels(data.labels[fitting]), setup)
    where = (setup.cache, machine.workers, machine.cache_gb)
    shown = choosing if recipe.crops else np.concatenate([fitting, choosing])
    pixels = open_pixels(data, classifier.geometry, *where, rows=shown)
    originals = open_originals(data, classifier.geometry, *where, rows=fitting) if recipe.crops else None
    train = Examples(pixels, fitting, head.new_labels(data.labels[fitting]), originals)
    val = Examples(pixels, choosing, head.new_labels(data.labels[choosing]))
    place = Place(
        setup.store.folder(run.run_id),
        accelerator=machine.accelerator,
        devices=machine.devices,
        strategy=machine.strategy,
        compile=machine.compile,
        checkpoint_s=machine.checkpoint_s,
        logger=setup.tracker.start(run),
        trainer=setup.trainer,
    )
    write_json(place.folder / "model.json", describe_model(work.model, keys))
    fitted = fit(classifier, train, val, recipe, setup.seed, place, start_counts=work.features is not None)
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


def _begin_with_probe(
    classifier: Classifier,
    features: Probing,
    rows: Int[np.ndarray, " images"],
    labels: Int[np.ndarray, " images"],
    setup: Setup,
) -> None:
    """Fit a linear probe to these training images, and make it the last layer.

    Raises FcaError for a network whose last layer is not linear.
    """
    import torch

    layer = classifier.head
    if not isinstance(layer, torch.nn.Linear) or layer.bias is None:
        allowed = f"random for {type(classifier.module).__name__}: its last layer is no linear one with a bias"
        raise FcaError("adaptation.start", PROBE, allowed, "set adaptation.start=random")
    together = kept_together(features.data.items.iloc[rows], features.data.group)
    probe = fit_probe(features.values(setup.store)[rows], labels, together)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(probe.weight))
        layer.bias.copy_(torch.from_numpy(probe.bias))
