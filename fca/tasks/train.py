"""Adapt a network to a class subset (from scratch, from weights, or as a probe) and score it on the test images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Int

from fca.data.pixels import open_pixels
from fca.data.splits import for_training
from fca.identity import canonical
from fca.models.stored import BEST, describe_model, snapshot_name
from fca.store.files import write_json
from fca.subset import full_set
from fca.tasks import Setup
from fca.tasks.adaptation import PROBE, adaptation_of, model_of, recipe_of
from fca.tasks.predict import CLEAN, answers, data_columns, predict_run, scored, stored_answers, subset_columns
from fca.tasks.probe import plan_probe, run_probe
from fca.types import Classifier, ClassSubset, Finished, ImageData, Run, Shift


@dataclass(frozen=True)
class Train:
    """`task=train`: a sub-model (or the full model, when the subset has all classes) and its answers on test.

    `adaptation` says how it comes to its classes. With compat=fca as released: a head of all classes, trained on all
    images that are not test and chosen by its accuracy on test.
    """

    def plan(self, setup: Setup) -> list[Run]:
        """The training run and the predict runs of its best weights and of every snapshot, under every shift.

        For a probe first the run of its features.
        """
        adaptation = adaptation_of(setup)
        data = for_training(setup.data)
        if adaptation == PROBE:
            return plan_probe(setup, data)
        model, recipe = model_of(setup, adaptation), recipe_of(setup, adaptation)
        identity = {
            "data": data.fingerprint,
            "classes": [data.classes[c] for c in setup.subset.classes],
            "model": model.identity(),
            "recipe": canonical("recipe", asdict(recipe)),
            "seed": setup.seed,
            **({"compat": setup.compat} if setup.compat else {}),
        }
        about = {
            **data_columns(data, "test"),
            **subset_columns(setup),
            "model": model.label(),
            "weights": model.weights_label(),
            "adaptation": adaptation,
            "compat": setup.compat,
            "seed": setup.seed,
            **{f"recipe_{key}": value for key, value in asdict(recipe).items()},
        }
        train = Run("train", identity, about)
        return [train, *(self._predict(train, data, *asked) for asked in _asked(setup))]

    def _predict(self, train: Run, data: ImageData, snapshot: str, shift: Shift) -> Run:
        model = {"run": train.run_id, "snapshot": snapshot}
        return predict_run(data, "test", model, {**train.about, "snapshot": snapshot}, shift, train.run_id)

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Train when asked to, then let the best weights answer the test split."""
        data = for_training(setup.data)
        if adaptation_of(setup) == PROBE:
            yield from run_probe(runs, setup, data)
            return
        wanted = {run.run_id for run in runs}
        train, clean, *others = self.plan(setup)
        setup.store.keep_items(data)
        if train.run_id in wanted:
            classifier, columns = _train(train, setup, data)
            said = answers(clean, setup, data, classifier, "test", setup.subset.classes)
            yield Finished(train, {**columns, **scored(said.columns, data, setup.subset, columns["flag"])}, {})
            if clean.run_id in wanted:
                yield said
                wanted -= {clean.run_id}
        yield from stored_answers([run for run in (clean, *others) if run.run_id in wanted], setup, data)


def _asked(setup: Setup) -> list[tuple[str, Shift]]:
    """Which weights answer under which shift: the best ones on clean images always and first."""
    snapshots = dict.fromkeys((BEST, *(snapshot_name(fraction) for fraction in setup.recipe.snapshots)))
    shifts = {shift.label(): shift for shift in (CLEAN, *setup.shifts)}
    return list(product(snapshots, shifts.values()))


def _train(run: Run, setup: Setup, data: ImageData) -> tuple[Classifier, dict[str, Any]]:
    from fca.training import Examples, Place, fit, seed_everything

    adaptation, machine = adaptation_of(setup), setup.machine
    model, recipe = model_of(setup, adaptation), recipe_of(setup, adaptation)
    head = full_set(len(data.classes)) if setup.compat else setup.subset
    keys = [data.classes[c] for c in head.classes]
    seed_everything(setup.seed)
    classifier = model.build(keys)
    pixels = open_pixels(data, classifier.geometry, setup.cache, machine.workers, machine.cache_gb)
    train, val = (
        Examples(pixels, rows, head.new_labels(data.labels[rows])) for rows in _rows(data, setup.subset, setup.compat)
    )
    place = Place(setup.store.folder(run.run_id), machine.accelerator, setup.tracker.start(run))
    write_json(place.folder / "model.json", describe_model(model, keys))
    fitted = fit(classifier, train, val, recipe, setup.seed, place)
    return classifier, {
        "n_train": len(train),
        "n_val": len(val),
        "val_top1": fitted.val_top1,
        "best_epoch": fitted.best_epoch,
        "train_s": fitted.train_s,
        "flag": "diverged" if fitted.diverged else None,
    }


def _rows(
    data: ImageData, subset: ClassSubset, compat: str | None
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " val"]]:
    """The images to train on, and those that choose the epoch (as released, these are the test images)."""
    train, val, test = (data.rows(split, subset.classes) for split in ("train", "val", "test"))
    return (np.sort(np.concatenate([train, val])), test) if compat else (train, val)
