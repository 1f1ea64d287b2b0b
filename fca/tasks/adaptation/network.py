"""`adaptation=scratch` and `adaptation=finetune`: train the whole network, keep its best epoch on val."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fca.data.pixels import open_pixels
from fca.identity import canonical
from fca.models.stored import BEST, describe_model, snapshot_name
from fca.store.files import write_json
from fca.subset import full_set
from fca.tasks import N_TRAIN, N_VAL, Setup
from fca.tasks.adaptation import VAL_TOP1, about_training, need_weights, predictions_of
from fca.tasks.predict import adapted_columns, predicted, predictions
from fca.training.recipe import Recipe
from fca.types import Classifier, Column, FcaError, Finished, ImageData, Model, Run

BEST_EPOCH = Column("best_epoch", int, "d", "epoch whose weights are kept, the most accurate one on validation images")


@dataclass(frozen=True, eq=False)
class Training:
    """The work of a training run.    clean: the run of its best weights' predictions on clean test images."""

    data: ImageData
    model: Model
    recipe: Recipe
    clean: Run


@dataclass(frozen=True)
class Network:
    """`adaptation=null`: finetune the model if it has weights, else train it from scratch."""

    columns: ClassVar[tuple[Column, ...]] = (BEST_EPOCH,)

    def plan(self, setup: Setup, data: ImageData) -> list[Run]:
        """The training and its predictions."""
        way = Scratch() if setup.model.weights_label() is None else Finetune()
        return way.plan(setup, data)

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Train if that is to be done, then let the weights that it kept predict the test images."""
        first, rest = runs[0], list(runs)
        if first.task == "train":
            classifier, columns, diverged = _fitted(first, setup)
            setup.store.keep_items(first.work.data)  # a model that cannot be built leaves no file
            clean = predicted(first.work.clean, classifier, setup)
            columns |= adapted_columns(clean.columns, first.work.data, setup.subset, diverged)
            yield Finished(first, columns, {})
            rest = [run for run in runs[1:] if run.run_id != clean.run.run_id]
            if len(rest) < len(runs) - 1:
                yield clean
        yield from predictions(rest, setup)


@dataclass(frozen=True)
class Scratch(Network):
    """`adaptation=scratch`: begin with random weights, whatever weights the model was given."""

    def plan(self, setup: Setup, data: ImageData) -> list[Run]:
        """The training and its predictions. Raises FcaError for a model that cannot lose its weights."""
        model: Any = setup.model
        if not hasattr(model, "weights"):
            step = "name the network itself, e.g. model=resnet18"
            allowed = f"finetune or probe: {model.label()} is given with what it learnt"
            raise FcaError("adaptation", "scratch", allowed, step)
        bare = model if model.weights is None else replace(model, weights=None)
        return _plan(replace(setup, model=bare), data, finetune=False)


@dataclass(frozen=True)
class Finetune(Network):
    """`adaptation=finetune`: begin with the model's weights, at `finetune_lr` times the recipe's learning rate."""

    def plan(self, setup: Setup, data: ImageData) -> list[Run]:
        """The training and its predictions. Raises FcaError for a model without weights."""
        need_weights(setup, "finetune")
        return _plan(setup, data, finetune=True)


def _plan(setup: Setup, data: ImageData, *, finetune: bool) -> list[Run]:
    """The training, and the predict runs of its best weights and of every snapshot, under every shift.

    Raises FcaError for a recipe out of range.
    """
    setup.recipe.check()
    recipe = setup.recipe.scaled(finetune)
    recipe = replace(recipe, flip=recipe.flip and data.mirror, ema_warmup=recipe.ema > 0 and recipe.ema_warmup)
    values = asdict(recipe)
    identity = {
        "data": data.fingerprint,
        "classes": [data.classes[c] for c in setup.subset.classes],
        "model": setup.model.identity(),
        "recipe": canonical("recipe", values),
        "seed": setup.seed,
        **({"compat": setup.compat} if setup.compat else {}),
    }
    about = {
        **about_training(setup, data, "finetune" if finetune else "scratch"),
        "compat": setup.compat,
        "seed": setup.seed,
        **{f"recipe_{key}": value for key, value in values.items()},
    }
    train = Run("train", identity, about)
    snapshots = list(dict.fromkeys([BEST, *map(snapshot_name, recipe.snapshots)]))
    clean, *others = predictions_of(train, setup, data, snapshots)
    return [replace(train, work=Training(data, setup.model, recipe, clean)), clean, *others]


def _fitted(run: Run, setup: Setup) -> tuple[Classifier, dict[str, Any], bool]:
    """The trained network, the columns of its training, and whether that diverged.

    As released (compat), the head has all classes and the test images choose the epoch.
    """
    from fca.training.batches import Examples
    from fca.training.loop import Place, fit, seed_everything

    work: Training = run.work
    data, machine = work.data, setup.machine
    head = full_set(len(data.classes)) if setup.compat else setup.subset
    keys = [data.classes[c] for c in head.classes]
    *fitting, test = (data.rows(split, setup.subset.classes) for split in ("train", "val", "test"))
    chosen = [np.sort(np.concatenate(fitting)), test] if setup.compat else fitting
    seed_everything(setup.seed)
    classifier = work.model.build(keys)
    pixels = open_pixels(data, classifier.geometry, setup.cache, machine.workers, machine.cache_gb)
    train, val = (Examples(pixels, rows, head.new_labels(data.labels[rows])) for rows in chosen)
    place = Place(setup.store.folder(run.run_id), machine.accelerator, setup.tracker.start(run))
    write_json(place.folder / "model.json", describe_model(work.model, keys))
    fitted = fit(classifier, train, val, work.recipe, setup.seed, place)
    columns: dict[str, Any] = {
        N_TRAIN: len(train),
        N_VAL: len(val),
        VAL_TOP1: fitted.val_top1,
        BEST_EPOCH: fitted.best_epoch,
        "train_s": fitted.train_s,
    }
    return classifier, columns, fitted.diverged
