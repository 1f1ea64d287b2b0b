"""`adaptation=head|corm|dfr|corm_dfr`: a new last layer on the frozen network, so that it relies on objects."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file

from fca.allowed import Allowed
from fca.studies.reliance.spurious_rank import ranks_of
from fca.tasks import N_TRAIN, N_VAL, Setup
from fca.tasks.adaptation import VAL_TOP1, about_training, need_weights, predictions_of
from fca.tasks.adaptation.network import BEST_EPOCH
from fca.tasks.adaptation.probe import Probing, keep_layer
from fca.tasks.embed import ALL, embed_run, embedded
from fca.tasks.predict import FORWARD, Forward, adapted_columns, prediction_arrays, prediction_columns, predictions
from fca.types import Column, FcaError, Finished, ImageData, Run, no_mask

SALIENCY_WEIGHT = Column("saliency_weight", float, ".2g", "weight of the saliency penalty that val chose")
STRENGTH = Column("inverse_penalty", float, ".2g", "C of logistic regressions that the worst group of val chose")
RANKS = Column("ranks", str, "", "id of the saved table spurious_ranks that balanced the training images")
ADAM, CORM, DFR = (
    ("epochs", "lr", "weight_decay", "batch_size"),
    ("sigma", "probability", "saliency_weight"),
    ("ranks", "balanced", "solver"),
)


@dataclass(frozen=True)
class Remedy:
    """A linear layer on frozen features: plain (head), by core risk minimisation, on balanced images (dfr), or both.

    epochs, lr, weight_decay, batch_size: of Adam; val chooses the epoch.
    sigma, probability: of the noise that corm adds to the background of a training image.
    saliency_weight:    candidates, of which val images with noise on all backgrounds choose.
    ranks:    id of a saved table spurious_ranks; only dfr reads it, so that one sweep can set it for all four.
    balanced: images of either end of a class's ranking; of a smaller class either half, without an odd one between.
    solver:   of dfr: adam, or logistic (fca.training.remedies.logistic_head), which also reads ranks of val images.
    """

    columns: ClassVar[tuple[Column, ...]] = (BEST_EPOCH, SALIENCY_WEIGHT, STRENGTH, RANKS)

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
        """Raise FcaError for dfr without ranks, and for the logistic solver where there is nothing that it solves."""
        if self.dfr and self.ranks is None:
            allowed = "id of a saved table spurious_ranks"
            raise FcaError("adaptation.ranks", None, allowed, "make one: fca analyse analysis=spurious_rank")
        if self.solver == "logistic" and self.name != "dfr":
            raise FcaError("adaptation.solver", self.solver, f"adam for {self.name}", "take adaptation=dfr")

    def plan(self, setup: Setup, data: ImageData) -> list[Run]:
        """The features of all images (whatever the subset), the layer, and its predictions.

        Raises FcaError for a model without weights, compat, corm without masks, and ranks that do not fit the images.
        """
        need_weights(setup, self.name)
        if setup.compat:
            raise FcaError("adaptation", self.name, "scratch or finetune: compat has no remedies", "leave compat out")
        if self.corm and data.mask is no_mask:
            raise FcaError("adaptation", self.name, f"data with object masks; {data.name} has none", "take head or dfr")
        self._images(setup, data)
        features = embed_run(Forward(setup.model, data, ALL))
        fields = (*(ADAM if self.solver == "adam" else ()), *(CORM if self.corm else ()), *(DFR if self.dfr else ()))
        identity: dict[str, Any] = {
            "data": data.fingerprint,
            "classes": [data.classes[c] for c in setup.subset.classes],
        }
        identity |= {"model": setup.model.identity(), "adaptation": self.name, "seed": setup.seed}
        identity |= {field: getattr(self, field) for field in fields}
        about = {**about_training(setup, data, self.name), "seed": setup.seed}
        work = Probing(data, features.run_id)
        train = Run("train", identity, about, features.run_id, light=not self.corm, work=work)
        clean, *others = predictions_of(train, setup, data)
        return [features, train, replace(clean, light=True, work=work), *others]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Embed once; train the layer; predict clean test images by their features, others through the network."""
        for run in runs:
            if run.task == "embed":
                yield embedded(run, setup)
        if mine := [run for run in runs if isinstance(run.work, Probing)]:
            yield from self._adapted(mine, setup)
        yield from predictions([run for run in runs if run.task == "predict" and run not in mine], setup)

    def _adapted(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """The layer's training and its predictions on clean test images: those of these runs that are wanted."""
        work, subset, found = runs[0].work, setup.subset, dict[str, Any]()
        data, keys, kept = work.data, [work.data.classes[c] for c in subset.classes], str(runs[0].parent)
        if runs[0].task == "train":
            start, kept = time.perf_counter(), runs[0].run_id
            weight, bias, found = self._layer(setup, work)
            found["train_s"] = time.perf_counter() - start
            keep_layer(weight, bias, keys, runs[0], setup)
        layer, tested = load_file(setup.store.folder(kept) / "best.safetensors"), data.rows("test", subset.classes)
        features = setup.store.array(work.features, "features")[tested].astype(np.float32)
        logits, true = features @ layer["weight"].T + layer["bias"], subset.new_labels(data.labels[tested])
        predicted = prediction_columns(logits, true, subset.classes)
        predicted |= {column: setup.store.row(work.features).get(column) for column in FORWARD}
        for run in runs:
            if run.task == "train":
                yield Finished(run, {**found, **adapted_columns(predicted, data, subset)}, {})
            else:
                yield Finished(run, predicted, prediction_arrays(logits, true, keys))

    def _images(self, setup: Setup, data: ImageData) -> tuple[dict[str, Any], dict[str, Any]]:
        """The images of train and val, as positions in items, and the groups of the ranked ones (see `halves`)."""
        rows, groups = {split: data.rows(split, setup.subset.classes) for split in ("train", "val")}, {}
        for split in ("train", "val")[: self.dfr + (self.solver == "logistic")]:
            labels = setup.subset.new_labels(data.labels[rows[split]])
            rank = ranks_of(setup.store, str(self.ranks), data, rows[split])
            kept, groups[split] = halves(labels, rank, self.balanced if split == "train" else len(rank))
            rows[split] = rows[split][kept]
        return rows, groups

    def _layer(self, setup: Setup, work: Probing) -> tuple[Any, Any, dict[str, Any]]:
        """Weight and bias, and the columns of their training."""
        from fca.tasks.at_input import AtInput
        from fca.training.remedies import Noised, logistic_head, stored, trained_head

        (rows, groups), features = self._images(setup, work.data), setup.store.array(work.features, "features")
        train, val = (setup.subset.new_labels(work.data.labels[rows[split]]) for split in ("train", "val"))
        found: dict[Any, Any] = {N_TRAIN: len(train), N_VAL: len(val), RANKS: self.ranks if self.dfr else None}
        x, z = (features[rows[split]].astype(np.float32) for split in ("train", "val"))
        if self.solver == "logistic":
            weight, bias, strength = logistic_head(x, groups["train"], z, groups["val"], setup.seed)
            right = float(((z @ weight.T + bias).argmax(axis=1) == val).mean())
            return weight, bias, {**found, VAL_TOP1: right, STRENGTH: strength}
        sees: list[Any]
        if self.corm:
            built = setup.model.build()
            shown = [AtInput(work.data, split, rows[split], built, setup) for split in ("train", "val")]
            chances = (self.probability, 1.0)
            sees = [Noised(built, one, self.sigma, p, setup.seed) for one, p in zip(shown, chances, strict=True)]
        else:
            sees = [stored(each, setup.machine.accelerator) for each in (x, z)]
        adam: dict[str, Any] = {field: getattr(self, field) for field in ADAM}
        weights = self.saliency_weight if self.corm else [0.0]
        head = trained_head(sees[0], train, sees[1], val, weights, seed=setup.seed, **adam)
        found |= {VAL_TOP1: head.val_top1, BEST_EPOCH: head.epoch}
        return head.weight, head.bias, found | ({SALIENCY_WEIGHT: head.saliency_weight} if self.corm else {})


def halves(labels: Int[np.ndarray, " images"], rank: Float[np.ndarray, " images"], most: int) -> tuple[Any, Any]:
    """Positions of the `most` images at either end of each class's ranking, at most half of it; and 2 label + top.

    Both ends of a class are equally many, no image is at both. Equal ranks are in the order of the images.

    >>> halves(np.zeros(5, int), np.array([3.0, 1.0, 2.0, 5.0, 4.0]), most=100)
    (array([1, 2, 3, 4]), array([1, 1, 0, 0]))
    """
    group = np.full(len(labels), -1)
    for label in np.unique(labels):
        order = np.flatnonzero(labels == label)[np.argsort(rank[labels == label], kind="stable")]
        k = min(most, len(order) // 2)
        group[order[:k]], group[order[len(order) - k :]] = 2 * label + 1, 2 * label
    kept = np.flatnonzero(group >= 0)
    return kept, group[kept]
