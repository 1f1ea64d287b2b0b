"""`adaptation=head|corm|dfr|corm_dfr`: a new last layer on the frozen network, so that it relies on objects."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

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
ADAM_FIELDS = ("epochs", "lr", "weight_decay", "batch_size")
CORM_FIELDS = ("sigma", "probability", "saliency_weight")
log = logging.getLogger(__name__)


class ChosenImages(NamedTuple):
    """The training and validation images from which a remedy learns.

    rows:   split -> positions of its images in the items of the data.
    groups: split -> group of each of these images: its class, with strong or with weak cues (see `balanced_images`).
            Only splits that are balanced have an entry.
    ranks:  source of the ranks by which images are balanced: the id of a saved table, or a digest of the ranks that the
            images themselves have; None if no split is balanced.
    """

    rows: dict[str, Int[np.ndarray, " images"]]
    groups: dict[str, Int[np.ndarray, " images"]]
    ranks: str | None


class TrainedLayer(NamedTuple):
    """Weight and bias of a last layer, and the columns of its training."""

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, " classes"]
    columns: dict[str, Any]


@dataclass(frozen=True)
class Remedy:
    """A new linear layer on frozen features, so that predictions rely on objects.

    head trains it plainly; corm by core risk minimisation; dfr (deep feature reweighting) on images that are balanced
    between strong and weak cues; corm_dfr does both.

    epochs, lr, weight_decay, batch_size: of Adam; val chooses the epoch.
    sigma, probability: of the noise that corm adds to the background of a training image.
    saliency_weight:    candidates; the accuracy on val images, all with noise on their backgrounds, chooses among them.
    ranks:    id of a saved table spurious_ranks; head and corm ignore it, so that a sweep may set it for all four.
              null: the ranks are in the images' column `rank`.
    balanced: images at either end of a class's ranking; a smaller class gives half of its images at either end, and
              the middle one of an odd number is left out.
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
    saliency_weight: Annotated[list[float], Allowed(0, non_empty=True)]
    dfr: bool
    ranks: str | None
    balanced: Annotated[int, Allowed(1)]
    solver: Annotated[str, Allowed(choices=("adam", "logistic"))]

    @property
    def name(self) -> str:
        """The name in column `adaptation`: head, corm, dfr or corm_dfr."""
        return "_".join(name for name in ("corm", "dfr") if getattr(self, name)) or "head"

    def check(self) -> None:
        """Raise FcaError for the logistic solver with another remedy than dfr: the others are trained by Adam."""
        if self.solver == "logistic" and self.name != "dfr":
            raise FcaError("adaptation.solver", self.solver, f"adam for {self.name}", "take adaptation=dfr")

    def plan(self, context: RunContext) -> list[Run]:
        """The runs of the remedy: the features of all images, the training of the layer, and its predictions.

        There are four remedies: head (a plain layer), corm (core risk minimisation: noise on the backgrounds of
        training images), dfr (deep feature reweighting: images balanced between strong and weak spurious cues), and
        corm_dfr. Features do not depend on the subset of classes, so that all subsets share their run.

        Raises FcaError for a model without weights, for compat (a run that reproduces a paper's own code), for corm
        without masks, and for ranks that do not fit the images.
        """
        data = context.data
        ranks = self._chosen_images(context, data).ranks  # source of the ranks that balance the images; None: no dfr
        check_has_weights(context, self.name)
        if context.compat:
            raise FcaError("adaptation", self.name, "scratch or finetune: compat has no remedies", "leave compat out")
        if self.corm and data.mask is no_mask:
            raise FcaError("adaptation", self.name, f"data with object masks; {data.name} has none", "take head or dfr")

        recipe = self._recipe(ranks)
        recipe_columns: dict[str, Any] = {}
        for name, value in recipe.items():
            # the candidates of saliency_weight become one text, such as "0.0, 0.1"
            recipe_columns[f"recipe_{name}"] = ", ".join(map(str, value)) if isinstance(value, list) else value

        features = embed_run(ForwardWork(context.model, data, ALL_SPLITS))
        work = ProbeWork(data, features.run_id)
        identity = {
            "data": data.fingerprint,
            "classes": [data.classes[label] for label in context.subset.classes],
            "model": context.model.identity(),
            "seed": context.seed,
            "adaptation": self.name,
            **recipe,
        }
        columns = {**training_columns(context, data, self.name), "seed": context.seed, **recipe_columns}
        is_light = not self.corm  # a layer on stored features needs no launcher; corm passes noisy images forward
        train = Run("train", identity, columns, features.run_id, light=is_light, work=work)

        # clean test images are predicted from their stored features, changed ones through the network
        clean, *changed = prediction_runs(train, context, data)
        return [features, train, predicted_from_features(clean, work), *changed]

    def _recipe(self, ranks: str | None) -> dict[str, Any]:
        """Name -> value of each field that this remedy reads; the others must not enter its identity.

        - ADAM_FIELDS are read if Adam trains the layer; the other solver, logistic, has no epochs.
        - CORM_FIELDS are read with core risk minimisation (corm).
        - ranks, balanced and solver are read with deep feature reweighting (dfr), which balances images by the ranks
          of their cues. Remedies without dfr have no choice of solver: it is always Adam.

        ranks: for dfr, the id of the table that has the ranks, or a digest of the ranks that the images have.
        """
        fields: list[str] = []
        if self.solver == "adam":
            fields += ADAM_FIELDS
        if self.corm:
            fields += CORM_FIELDS
        recipe: dict[str, Any] = {field: getattr(self, field) for field in fields}

        if self.dfr:
            recipe["ranks"] = ranks
            recipe["balanced"] = self.balanced
            recipe["solver"] = self.solver
        return recipe

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """The results of these runs, which are those of `plan` that are not done yet.

        Features are computed first, then the layer is trained. Clean test images are predicted from their stored
        features, changed ones by the whole network.
        """
        for run in runs:
            if run.task == "embed":
                yield embed_images(run, context)

        # the training of the layer, and the prediction of clean test images
        layer_runs = [run for run in runs if isinstance(run.work, ProbeWork)]
        if layer_runs:
            yield from self._finish_layer(layer_runs, context)

        network_runs = [run for run in runs if run.task == "predict" and run not in layer_runs]
        yield from finish_predictions(network_runs, context)

    def _finish_layer(self, runs: Sequence[Run[ProbeWork]], context: RunContext) -> Iterator[Finished]:
        """Results of the layer's training and of its predictions on clean test images, as far as the runs include them.

        The row of the training has the accuracy on clean test images, too. If the training is not among the runs, it
        was done earlier and the stored layer is read. If the training diverges, only its row is stored, with a flag
        instead of accuracies.
        """
        work = runs[0].work
        data = work.data
        subset = context.subset
        class_keys = [data.classes[label] for label in subset.classes]
        features = context.store.array(work.features, "features")  # of all images of the data

        train_run = runs[0] if runs[0].task == "train" else None  # runs are in the order of `plan`
        columns_of_training: dict[str, Any] = {}
        if train_run is not None:
            start = time.perf_counter()
            trained = self._train_layer(context, data, features)
            if trained is None:
                log.warning(
                    "training %s diverged: no accuracy is stored; next: a lower adaptation.lr", train_run.run_id
                )
                yield Finished(train_run, {FLAG: DIVERGED}, {})
                return
            columns_of_training = {**trained.columns, "train_s": time.perf_counter() - start}
            write_probe(trained.weight, trained.bias, class_keys, train_run, context)

        # a prediction's parent is the training
        layer_run_id = train_run.run_id if train_run is not None else str(runs[0].parent)
        layer = load_file(context.store.folder(layer_run_id) / "best.safetensors")
        test_rows = data.rows("test", subset.classes)
        true = subset.new_labels(data.labels[test_rows])
        logits = features[test_rows].astype(np.float32) @ layer["weight"].T + layer["bias"]  # images x classes

        # the layer takes no time beside the network: time, device and size are copied from the run of the features
        features_row = context.store.row(work.features)
        network_columns: dict[str, Any] = {column: features_row.get(column) for column in FORWARD_COLUMNS}
        columns = {**prediction_columns(logits, true, subset.classes), **network_columns}
        for run in runs:
            if run is train_run:
                yield Finished(run, {**columns_of_training, **adapted_columns(columns, data, subset)}, {})
            else:
                yield Finished(run, columns, prediction_arrays(logits, true, class_keys))

    def _chosen_images(self, context: RunContext, data: ImageData) -> ChosenImages:
        """The training and validation images from which the remedy learns.

        Of a balanced split these are the images at both ends of each class's ranking by its cues, of any other split
        all images of the subset's classes. dfr (deep feature reweighting) balances the training images; its logistic
        solver also needs groups of validation images (a class, with strong or with weak cues). The ranks are identified
        by the id of their table, or, if the images have them in a column, by a digest.

        Raises FcaError for ranks that do not fit the images.
        """
        is_balanced = {"train": self.dfr, "val": self.solver == "logistic"}
        rows: dict[str, Int[np.ndarray, " images"]] = {}
        groups: dict[str, Int[np.ndarray, " images"]] = {}
        digest = hashlib.sha256()
        for split in ("train", "val"):
            split_rows = data.rows(split, context.subset.classes)
            if is_balanced[split]:
                ranks = ranks_of(context.store, self.ranks, data, split_rows)
                digest.update(ranks.astype("<f8").tobytes())  # little-endian, so that all machines agree
                labels = context.subset.new_labels(data.labels[split_rows])
                # an end has at most half of its class; the large number for val therefore takes all images, except the
                # middle one of a class with an odd number
                n_at_end = self.balanced if split == "train" else len(ranks)
                chosen, groups[split] = balanced_images(labels, ranks, n_at_end)
                split_rows = split_rows[chosen]
            rows[split] = split_rows

        ranks_source = self.ranks or digest.hexdigest()[:12]
        return ChosenImages(rows, groups, ranks_source if self.dfr else None)

    def _train_layer(self, context: RunContext, data: ImageData, features: np.ndarray) -> TrainedLayer | None:
        """The last layer of the remedy, trained on frozen features; None where its training diverged.

        With corm (core risk minimisation) training images get noise on their backgrounds, each with a probability. The
        loss has a penalty on the gradient of the loss by the background's pixels. The weight of the penalty is chosen
        on validation images, all of which have such noise.
        With dfr (deep feature reweighting) the images are balanced: equally many of every group (a class, with strong
        or with weak spurious cues).

        features: of all images of `data`, of which training and validation images are taken.
        """
        from fca.studies.reliance.last_layer import NoisyFeatures, logistic_head, stored_features, train_head
        from fca.tasks.at_input import AtInput

        rows, groups, _ = self._chosen_images(context, data)  # for each split; groups only of balanced splits
        train_labels = context.subset.new_labels(data.labels[rows["train"]])
        val_labels = context.subset.new_labels(data.labels[rows["val"]])
        train_features = features[rows["train"]].astype(np.float32)
        val_features = features[rows["val"]].astype(np.float32)
        columns: dict[Any, Any] = {N_TRAIN: len(train_labels), N_VAL: len(val_labels)}

        # solved, not trained in epochs; the groups imply the labels (label = group // 2)
        if self.solver == "logistic":
            weight, bias, strength = logistic_head(
                train_features, groups["train"], val_features, groups["val"], context.seed
            )
            is_right = (val_features @ weight.T + bias).argmax(axis=1) == val_labels
            columns |= {VAL_TOP1: float(is_right.mean()), STRENGTH: strength}
            return TrainedLayer(weight, bias, columns)

        # features of the images, for corm with noise on their backgrounds
        train: Any
        val: Any
        if self.corm:
            network = context.model.build()
            saliency_weights = self.saliency_weight
            train_images = AtInput(data, "train", rows["train"], network, context)
            val_images = AtInput(data, "val", rows["val"], network, context)
            train = NoisyFeatures(network, train_images, self.sigma, self.probability, context.seed)
            val = NoisyFeatures(network, val_images, self.sigma, 1.0, context.seed)  # 1.0: all have noise
        else:
            saliency_weights = [0.0]  # no penalty
            train = stored_features(train_features, context.machine.accelerator)
            val = stored_features(val_features, context.machine.accelerator)

        adam: dict[str, Any] = {field: getattr(self, field) for field in ADAM_FIELDS}
        head = train_head(train, train_labels, val, val_labels, saliency_weights, seed=context.seed, **adam)
        if head is None:
            return None

        columns |= {VAL_TOP1: head.val_top1, BEST_EPOCH: head.epoch}
        if self.corm:
            columns[SALIENCY_WEIGHT] = head.saliency_weight
        return TrainedLayer(head.weight, head.bias, columns)


def balanced_images(
    labels: Int[np.ndarray, " images"], rank: Float[np.ndarray, " images"], n_at_end: int
) -> tuple[Any, Any]:
    """The images at both ends of each class's ranking by its cues, as many at the top as at the bottom.

    Returns their positions, and their groups: 2 label + 1 for images at the top (strong cues), 2 label at the bottom
    (weak cues). Images of equal rank keep their order.

    labels, rank: class and rank within the class of each image; the lowest rank has the strongest cues.
    n_at_end:     images at either end of a class; a smaller class has half of its images at either end.

    >>> balanced_images(np.zeros(5, int), np.array([3.0, 1.0, 2.0, 5.0, 4.0]), n_at_end=100)
    (array([1, 2, 3, 4]), array([1, 1, 0, 0]))
    """
    by_class = pd.Series(rank).groupby(labels)
    place = by_class.rank("first").to_numpy()  # 1: strongest cues of the class
    class_size = by_class.transform("size").to_numpy()
    k = np.minimum(n_at_end, class_size // 2)
    is_top = place <= k
    is_bottom = place > class_size - k

    chosen = np.flatnonzero(is_top | is_bottom)
    groups = 2 * labels[chosen] + is_top[chosen]
    return chosen, groups
