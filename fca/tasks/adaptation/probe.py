"""`adaptation=probe`: a linear classifier on the features of the frozen network, from one pass over all images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float16
from safetensors.numpy import save

from fca.data.copies import kept_together
from fca.models.compiled import Compiled
from fca.models.stored import Probed, describe_model
from fca.stats.features import JUDGED, fit_probe
from fca.store import Store
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT, LEFT_OUT_LOGITS, N_JUDGED, N_TRAIN, N_VAL, PENALTY_BY
from fca.store.files import write_json, write_whole
from fca.tasks import Setup
from fca.tasks.adaptation import VAL_TOP1, about_training, need_weights, predictions_of
from fca.tasks.embed import ALL, embed_run, embedded
from fca.tasks.predict import FORWARD, Forward, adapted_columns, prediction_arrays, prediction_columns, predictions
from fca.types import Column, FcaError, Finished, ImageData, Run

PENALTY = Column("penalty", float, ".2g", "ridge penalty of a probe, as a share of the mean variance of a feature")


@dataclass(frozen=True, eq=False)
class Probing:
    """The work of a probe and of its predictions on clean test images.

    features: the run of the network's pass.    encoder: whose pass that is, where it is of every depth.
    """

    data: ImageData
    features: str
    encoder: Compiled | None = None

    def values(self, store: Store) -> Float16[np.ndarray, "images features"]:
        """Features of every image of the data, at the depth that the probe stands on."""
        of_every_depth = store.array(self.features, "features")
        return of_every_depth if self.encoder is None else self.encoder.features(of_every_depth)


def probing(setup: Setup, data: ImageData) -> tuple[Run[Forward], Probing]:
    """The run of the network's pass over all images, whatever the subset, and the work of what is fitted to them.

    Raises FcaError for a model without weights, and with compat.
    """
    need_weights(setup, "probe")
    if setup.compat:
        allowed = "scratch or finetune: the original has no probes"
        raise FcaError("adaptation", "probe", allowed, "leave compat out")
    compiled = setup.model if isinstance(setup.model, Compiled) else None
    features = embed_run(Forward(compiled.every_depth() if compiled else setup.model, data, ALL))
    return features, Probing(data, features.run_id, compiled)


def of_features(prediction: Run[Forward], work: Probing) -> Run[Probing]:
    """The same prediction, made of stored features instead of by the network."""
    by_features: Run[Any] = prediction
    return replace(by_features, light=True, work=work)


def identity_of_probe(setup: Setup, data: ImageData) -> dict[str, Any]:
    """What any run that fits probes depends on: images, classes, network, and which images are left out together."""
    keys = [data.classes[c] for c in setup.subset.classes]
    identity = {"data": data.fingerprint, "classes": keys, "model": setup.model.identity()}
    identity["judged"] = f"{JUDGED}, each class by its share"  # before: 1000, as many of each class
    return identity if data.group is None else identity | {"group": data.group}


@dataclass(frozen=True)
class Probe:
    """`adaptation=probe`: the network's weights stay as they are; the solution is exact, without recipe and seed.

    Training images alone decide it, its penalty by being left out in turn: what it predicts for validation images is as
    fair a judgement as for test images. Arrays of the training: `judged_images`, positions in the data's items, and
    `left_out_logits`: of each training image by a fit without it (about fca.stats.features.JUDGED of them at most), of
    each validation image by the probe.
    """

    columns: ClassVar[tuple[Column, ...]] = (PENALTY, N_JUDGED)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    def plan(self, setup: Setup) -> list[Run]:
        """The features of all images (whatever the subset), then the probe and its predictions, which need no launcher.

        Raises FcaError for a model without weights, and with compat.
        """
        data = setup.data
        features, work = probing(setup, data)
        identity = identity_of_probe(setup, data) | {"adaptation": "probe"}
        identity["layer"] = "as solved"  # before, the stored layer had the same numbers in another order
        identity["penalty"] = LEFT_OUT  # before, the validation images chose it
        identity["judgement"] = "kept"  # before, its logits of the images left out were not stored
        about = {**about_training(setup, data, "probe"), PENALTY_BY: LEFT_OUT}
        train = Run("train", identity, about, features.run_id, light=True, work=work)
        clean, *others = predictions_of(train, setup, data)
        return [features, train, of_features(clean, work), *others]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Embed once; solve for the subset; predict its test images, those of a shift by the network and the probe."""
        for run in runs:
            if run.task == "embed":
                yield embedded(run, setup)
        if light := [run for run in runs if run.light]:
            yield from _solved(light, setup)
        yield from predictions([run for run in runs if run.task == "predict" and not run.light], setup)


def _solved(runs: Sequence[Run[Probing]], setup: Setup) -> Iterator[Finished]:
    """The probe of a subset and what it predicts: those of these runs that are wanted."""
    data, subset, features = runs[0].work.data, setup.subset, runs[0].work.features
    values = runs[0].work.values(setup.store)
    rows = {split: data.rows(split, subset.classes) for split in ("train", "val", "test")}
    label = {split: subset.new_labels(data.labels[chosen]) for split, chosen in rows.items()}
    keys = [data.classes[c] for c in subset.classes]
    start = time.perf_counter()
    together = kept_together(data.items.iloc[rows["train"]], data.group)
    probe = fit_probe(values[rows["train"]], label["train"], together)
    seconds = time.perf_counter() - start
    val_logits = probe.logits(values[rows["val"]])
    judged = np.concatenate([rows["train"][probe.judged], rows["val"]])
    judgement = {
        JUDGED_IMAGES: judged.astype(np.int32),
        LEFT_OUT_LOGITS: np.concatenate([probe.left_out, val_logits]).astype(np.float32),
    }
    logits = probe.logits(values[rows["test"]]).astype(np.float32)
    row = setup.store.row(features)  # the network was measured in the pass that the features came from
    predicted = prediction_columns(logits, label["test"], subset.classes)
    predicted |= {column: row.get(column) for column in FORWARD}
    for run in runs:
        if run.task == "predict":
            yield Finished(run, predicted, prediction_arrays(logits, label["test"], keys))
            continue
        keep_layer(probe.weight, probe.bias, keys, run, setup)
        columns: dict[str, Any] = {
            N_TRAIN: len(rows["train"]),
            N_VAL: len(rows["val"]),
            VAL_TOP1: float((val_logits.argmax(axis=1) == label["val"]).mean()),
            N_JUDGED: len(judged),
            PENALTY: probe.penalty,
            "train_s": seconds,
        }
        yield Finished(run, {**columns, **adapted_columns(predicted, data, subset)}, judgement)


def keep_layer(weight: np.ndarray, bias: np.ndarray, keys: Sequence[str], run: Run, setup: Setup) -> None:
    """Leave the probe in its run's folder as model=run reads it."""
    folder = setup.store.folder(run.run_id)
    write_json(folder / "model.json", describe_model(Probed.of(setup.model), keys))
    # C order: safetensors writes the memory as it lies, and reads it as if it were in that order
    state = {name: np.ascontiguousarray(of, np.float32) for name, of in (("weight", weight), ("bias", bias))}
    write_whole(folder / "best.safetensors", lambda file: file.write(save(state)))
