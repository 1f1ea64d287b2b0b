"""`adaptation=head|corm|dfr|corm_dfr`: a new last layer on the frozen network, so that it relies on objects."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from safetensors.numpy import load_file

from fca.store.columns import DIVERGED, FLAG, N_TRAIN, N_VAL
from fca.studies.reliance.spurious_rank import ranks_of
from fca.tasks import RunContext
from fca.tasks.adaptation import VAL_TOP1, check_has_weights, prediction_runs, training_columns
from fca.tasks.adaptation.network import BEST_EPOCH
from fca.tasks.adaptation.probe import ProbeWork, predicted_from_features, write_probe
from fca.tasks.embed import ALL_SPLITS, embed_images, embed_run
from fca.tasks.predict import (
    FORWARD_COLUMNS,
    ForwardWork,
    adapted_columns,
    finish_predictions,
    prediction_arrays,
    prediction_columns,
)
from fca.types import Column, FcaError, Finished, ImageData, Run, no_mask
from fca.validation import Allowed

SALIENCY_WEIGHT = Column("saliency_weight", float, ".2g", "weight of the saliency penalty that val chose")
STRENGTH = Column("inverse_penalty", float, ".2g", "C of logistic regressions that the worst group of val chose")
log = logging.getLogger(__name__)
ADAM, CORM = ("epochs", "lr", "weight_decay", "batch_size"), ("sigma", "probability", "saliency_weight")


@dataclass(frozen=True)
class Remedy:
    """A linear layer on frozen features: plain (head), by core risk minimisation, on balanced images (dfr), or both.

    epochs, lr, weight_decay, batch_size: of Adam; val chooses the epoch.
    sigma, probability: of the noise that corm adds to the background of a training image.
    saliency_weight:    candidates, of which val images with noise on all backgrounds choose.
    ranks:    id of a saved table spurious_ranks, which a sweep may set for all four; null: the images' column `rank`.
    balanced: images of either end of a class's ranking; of a smaller class either half, without an odd one between.
    solver:   of dfr: adam, or logistic (fca.studies.reliance.last_layer.logistic_head), which also reads ranks of val
              images.
    """

    columns: ClassVar[tuple[Column, ...]] = (BEST_EPOCH, SALIENCY_WEIGHT, STRENGTH)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    epochs: Annotated[int, Allowed(1)]
    lr: Annotated[float, Allowed(above=0)]
    weight_decay: Annotated[float, Allowed(0)]
    batch_size: Annotated[int, Allowed(1)]
    corm: bool
    sigma: Annotated[float, Allowed(above=0)]
    probability: Annotated[float, Allowed(0, 1)]
    saliency_weight: Annotated[list[float], Allowed(0, filled=True)]
    dfr: bool
    ranks: str | None
    balanced: Annotated[int, Allowed(1)]
    solver: Annotated[str, Allowed(choices=("adam", "logistic"))]

    @property
    def name(self) -> str:
        """As in column `adaptation`."""
        return "_".join(name for name in ("corm", "dfr") if getattr(self, name)) or "head"

    def check(self) -> None:
        """Raise FcaError for the logistic solver where there is nothing that it solves."""
        if self.solver == "logistic" and self.name != "dfr":
            raise FcaError("adaptation.solver", self.solver, f"adam for {self.name}", "take adaptation=dfr")

    def plan(self, context: RunContext) -> list[Run]:
        """The features of all images (whatever the subset), the layer, and its predictions.

        Raises FcaError for a model without weights, compat, corm without masks, and ranks that do not fit the images.
        """
        data = context.data
        ranks = self._images(context, data)[2]
        check_has_weights(context, self.name)
        if context.compat:
            raise FcaError("adaptation", self.name, "scratch or finetune: compat has no remedies", "leave compat out")
        if self.corm and data.mask is no_mask:
            raise FcaError("adaptation", self.name, f"data with object masks; {data.name} has none", "take head or dfr")
        features, keys = (
            embed_run(ForwardWork(context.model, data, ALL_SPLITS)),
            [data.classes[c] for c in context.subset.classes],
        )
        fields = (*ADAM * (self.solver == "adam"), *CORM * self.corm)
        identity = {"data": data.fingerprint, "classes": keys, "model": context.model.identity(), "seed": context.seed}
        recipe = {field: getattr(self, field) for field in fields}
        recipe |= {"ranks": ranks, "balanced": self.balanced, "solver": self.solver} if self.dfr else {}
        identity |= {"adaptation": self.name, **recipe}
        shown = {f"recipe_{key}": ", ".join(map(str, v)) if isinstance(v, list) else v for key, v in recipe.items()}
        about = {**training_columns(context, data, self.name), "seed": context.seed, **shown}
        work = ProbeWork(data, features.run_id)
        train = Run("train", identity, about, features.run_id, light=not self.corm, work=work)
        clean, *others = prediction_runs(train, context, data)
        return [features, train, predicted_from_features(clean, work), *others]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Embed once; train the layer; predict clean test images by their features, others through the network."""
        for run in runs:
            if run.task == "embed":
                yield embed_images(run, context)
        if mine := [run for run in runs if isinstance(run.work, ProbeWork)]:
            yield from self._adapted(mine, context)
        yield from finish_predictions([run for run in runs if run.task == "predict" and run not in mine], context)

    def _adapted(self, runs: Sequence[Run[ProbeWork]], context: RunContext) -> Iterator[Finished]:
        """The layer's training and its predictions on clean test images: those of these runs that are wanted."""
        work, subset, train = runs[0].work, context.subset, runs[0] if runs[0].task == "train" else None
        data, keys = work.data, [work.data.classes[c] for c in subset.classes]
        features = context.store.array(work.features, "features")
        if train:
            start = time.perf_counter()
            layer_and_columns = self._layer(context, data, features)
            if layer_and_columns is None:
                log.warning("training %s diverged: no accuracy is stored; next: a lower adaptation.lr", train.run_id)
                yield Finished(train, {FLAG: DIVERGED}, {})
                return
            weight, bias, found = layer_and_columns
            found["train_s"] = time.perf_counter() - start
            write_probe(weight, bias, keys, train, context)
        kept = context.store.folder(train.run_id if train else str(runs[0].parent))
        layer, tested = load_file(kept / "best.safetensors"), data.rows("test", subset.classes)
        true = subset.new_labels(data.labels[tested])
        logits = features[tested].astype(np.float32) @ layer["weight"].T + layer["bias"]
        predicted = prediction_columns(logits, true, subset.classes)
        predicted |= {column: context.store.row(work.features).get(column) for column in FORWARD_COLUMNS}
        for run in runs:
            if run is train:
                yield Finished(run, {**found, **adapted_columns(predicted, data, subset)}, {})
            else:
                yield Finished(run, predicted, prediction_arrays(logits, true, keys))

    def _images(self, context: RunContext, data: ImageData) -> tuple[dict[str, Any], dict[str, Any], str | None]:
        """The images of train and val, as positions in items; groups of the ranked ones (see `halves`); whose ranks."""
        rows, groups, digest = {}, {}, hashlib.sha256()
        for split, ranked in {"train": self.dfr, "val": self.solver == "logistic"}.items():
            rows[split] = data.rows(split, context.subset.classes)
            if ranked:
                rank = ranks_of(context.store, self.ranks, data, rows[split])
                most = self.balanced if split == "train" else len(rank)
                kept, groups[split] = halves(context.subset.new_labels(data.labels[rows[split]]), rank, most)
                rows[split] = rows[split][kept]
                digest.update(rank.astype("<f8").tobytes())
        return rows, groups, (self.ranks or digest.hexdigest()[:12]) if self.dfr else None

    def _layer(
        self, context: RunContext, data: ImageData, features: np.ndarray
    ) -> tuple[Any, Any, dict[str, Any]] | None:
        """Weight and bias, and the columns of their training; None where that diverged."""
        from fca.studies.reliance.last_layer import Noised, logistic_head, stored, trained_head
        from fca.tasks.at_input import AtInput

        rows, groups, _ = self._images(context, data)
        train_labels, val_labels = (context.subset.new_labels(data.labels[rows[split]]) for split in ("train", "val"))
        train_features, val_features = (features[rows[split]].astype(np.float32) for split in ("train", "val"))
        columns: dict[Any, Any] = {N_TRAIN: len(train_labels), N_VAL: len(val_labels)}
        if self.solver == "logistic":
            weight, bias, strength = logistic_head(
                train_features, groups["train"], val_features, groups["val"], context.seed
            )
            is_right = (val_features @ weight.T + bias).argmax(axis=1) == val_labels
            return weight, bias, {**columns, VAL_TOP1: float(is_right.mean()), STRENGTH: strength}

        train: Any
        val: Any
        if self.corm:
            network, saliency_weights = context.model.build(), self.saliency_weight
            train_images = AtInput(data, "train", rows["train"], network, context)
            val_images = AtInput(data, "val", rows["val"], network, context)
            train = Noised(network, train_images, self.sigma, self.probability, context.seed)
            val = Noised(network, val_images, self.sigma, 1.0, context.seed)
        else:
            saliency_weights = [0.0]
            train = stored(train_features, context.machine.accelerator)
            val = stored(val_features, context.machine.accelerator)
        adam: dict[str, Any] = {field: getattr(self, field) for field in ADAM}
        head = trained_head(train, train_labels, val, val_labels, saliency_weights, seed=context.seed, **adam)
        if head is None:
            return None
        columns |= {VAL_TOP1: head.val_top1, BEST_EPOCH: head.epoch}
        if self.corm:
            columns[SALIENCY_WEIGHT] = head.saliency_weight
        return head.weight, head.bias, columns


def halves(labels: Int[np.ndarray, " images"], rank: Float[np.ndarray, " images"], most: int) -> tuple[Any, Any]:
    """Positions of the `most` images at either end of each class's ranking, at most half of it; and 2 label + top.

    Both ends of a class are equally many, no image is at both. Equal ranks are in the order of the images.

    >>> halves(np.zeros(5, int), np.array([3.0, 1.0, 2.0, 5.0, 4.0]), most=100)
    (array([1, 2, 3, 4]), array([1, 1, 0, 0]))
    """
    by_class = pd.Series(rank).groupby(labels)
    place, size = by_class.rank("first").to_numpy(), by_class.transform("size").to_numpy()
    k = np.minimum(most, size // 2)
    kept = np.flatnonzero((place <= k) | (place > size - k))
    return kept, 2 * labels[kept] + (place <= k)[kept]
