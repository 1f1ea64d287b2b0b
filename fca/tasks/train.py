"""Train a network on a class subset, keep its best epoch on val, and score it on the subset's test images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fca.data.pixels import open_pixels
from fca.data.splits import for_training
from fca.identity import settled
from fca.models.stored import StoredRun, describe_model
from fca.nouns import Classifier, Finished, ImageData, Run
from fca.store.files import write_json
from fca.tasks import Setup
from fca.tasks.predict import answers, data_columns, predict_run, subset_columns, with_interval


@dataclass(frozen=True)
class Train:
    """`task=train`: a sub-model (or the full model, when the subset has all classes) and its answers on test."""

    def plan(self, setup: Setup) -> list[Run]:
        """The training run and the predict run of its best weights."""
        setup.recipe.check()
        data = for_training(setup.data)
        keys = [data.classes[c] for c in setup.subset.classes]
        identity = {
            "data": data.fingerprint,
            "classes": keys,
            "model": setup.model.identity(),
            "recipe": settled("recipe", asdict(setup.recipe)),
            "seed": setup.seed,
        }
        about = {
            **data_columns(data, "test"),
            **subset_columns(setup),
            "model": setup.model.label(),
            "weights": setup.model.weights_label(),
            "adaptation": "scratch" if setup.model.weights_label() is None else "finetune",
            "seed": setup.seed,
            **{f"recipe_{key}": value for key, value in asdict(setup.recipe).items()},
        }
        train = Run("train", identity, about)
        best = {"run": train.run_id, "snapshot": "best"}
        return [train, predict_run(data, "test", best, {**about, "snapshot": "best"}, train.run_id)]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Train when asked to, then let the best weights answer the test split."""
        data = for_training(setup.data)
        wanted = {run.task: run for run in runs}
        train, predict = self.plan(setup)
        if "train" in wanted:
            classifier, columns = self._train(train, setup, data)
        else:
            classifier, columns = StoredRun(str(setup.store.outputs), train.run_id, "best").build(), {}
        setup.store.keep_items(data)
        said = answers(predict, setup, data, classifier, "test")
        if "train" in wanted:
            shared = {
                key: said.columns[key]
                for key in ("n_test", "predict_s", "images_per_s", "params", "input_size", "device")
            }
            top1 = with_interval("top1", said.columns["top1_open"], said.columns["n_test"])
            tested = data.labels[data.rows("test", setup.subset.classes)]
            commonest = np.bincount(tested).max() / len(tested)  # what always naming one class would score
            flag = columns.pop("flag") or ("chance" if top1["top1_low"] <= commonest else None)
            yield Finished(train, {**columns, **shared, **top1, "flag": flag}, {})
        if "predict" in wanted:
            yield said

    def _train(self, run: Run, setup: Setup, data: ImageData) -> tuple[Classifier, dict[str, Any]]:
        from fca.training import Examples, Place, fit, seed_everything

        subset, machine = setup.subset, setup.machine
        keys = [data.classes[c] for c in subset.classes]
        seed_everything(setup.seed)
        classifier = setup.model.build(keys)
        pixels = open_pixels(data, classifier.geometry, setup.cache, machine.workers, machine.cache_gb)
        rows = {split: data.rows(split, subset.classes) for split in ("train", "val")}
        examples = {s: Examples(pixels, r, subset.new_labels(data.labels[r])) for s, r in rows.items()}
        place = Place(setup.store.folder(run.run_id), machine.accelerator, setup.tracker.start(run))
        write_json(place.folder / "model.json", describe_model(setup.model, keys))
        fitted = fit(classifier, examples["train"], examples["val"], setup.recipe, setup.seed, place)
        return classifier, {
            "n_train": len(rows["train"]),
            "n_val": len(rows["val"]),
            "val_top1": fitted.val_top1,
            "best_epoch": fitted.best_epoch,
            "train_s": fitted.train_s,
            "flag": "diverged" if fitted.diverged else None,
        }
