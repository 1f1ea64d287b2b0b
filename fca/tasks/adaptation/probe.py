"""`adaptation=probe`: a linear classifier on the features of the frozen network, from one pass over all images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float16
from safetensors.numpy import save

from fca.data.copies import connected_images
from fca.models.compiled import Compiled
from fca.models.stored import Probed, describe_model
from fca.stats.features import MAX_LEFT_OUT, fit_probe
from fca.store import Store
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT, LEFT_OUT_LOGITS, N_JUDGED, N_TRAIN, N_VAL, PENALTY_BY
from fca.store.files import write_json, write_whole
from fca.tasks import RunContext
from fca.tasks.adaptation import VAL_TOP1, check_has_weights, prediction_runs, training_columns
from fca.tasks.embed import ALL_SPLITS, embed_images, embed_run
from fca.tasks.predict import (
    FORWARD_COLUMNS,
    ForwardWork,
    adapted_columns,
    finish_predictions,
    prediction_arrays,
    prediction_columns,
)
from fca.types import Column, FcaError, Finished, ImageData, Run

PENALTY = Column("penalty", float, ".2g", "ridge penalty of a probe, as a share of the mean variance of a feature")


@dataclass(frozen=True, eq=False)
class ProbeWork:
    """The work of a probe and of its predictions on clean test images.

    features: id of the run that computes the features of all images with the network.
    encoder:  the compiled network, if that run has the features of all its depths side by side; otherwise None.
    """

    data: ImageData
    features: str
    encoder: Compiled | None = None

    def values(self, store: Store) -> Float16[np.ndarray, "images features"]:
        """The stored features of every image of the data, at the depth of the network to which the probe is fitted."""
        stored_features = store.array(self.features, "features")
        if self.encoder is None:
            return stored_features
        return self.encoder.features(stored_features)  # the columns of its depth


def features_run_and_work(context: RunContext, data: ImageData) -> tuple[Run[ForwardWork], ProbeWork]:
    """The run that computes the features of all images, and the work of the probes that are fitted to these features.

    The features do not depend on the subset, so the probes of all subsets share this run. A compiled network is an ONNX
    program that gives features at several depths, the stages after which the network can be truncated. Its run stores
    the features of all depths, so the probes of all depths share it, too.
    Raises FcaError for a model without weights, and with compat, which reproduces an original that has no probes.
    """
    check_has_weights(context, "probe")
    if context.compat:
        allowed = "scratch or finetune: the original has no probes"
        raise FcaError("adaptation", "probe", allowed, "leave compat out")

    compiled = context.model if isinstance(context.model, Compiled) else None
    encoder = compiled.every_depth() if compiled else context.model
    features_run = embed_run(ForwardWork(encoder, data, ALL_SPLITS))
    return features_run, ProbeWork(data, features_run.run_id, compiled)


def predicted_from_features(prediction: Run[ForwardWork], work: ProbeWork) -> Run[ProbeWork]:
    """The same prediction with other work: a probe is applied to stored features, instead of the network to images.

    So the run takes milliseconds and is light: it needs no launcher.
    """
    untyped: Run[Any] = prediction  # its work becomes one of another type
    return replace(untyped, light=True, work=work)


def probe_identity(context: RunContext, data: ImageData) -> dict[str, Any]:
    """The part of the identity that is common to all runs that fit probes; the id of a run is a hash of its identity.

    It has the data, the classes, the network, the column of groups whose images are left out together, and the rule by
    which training images are left out in turn to judge a probe.
    """
    identity = {
        "data": data.fingerprint,
        "classes": [data.classes[c] for c in context.subset.classes],
        "model": context.model.identity(),
        # How many training images are left out in turn, and how they are drawn. Earlier versions drew them in another
        # way, and their results have other ids.
        "judged": f"{MAX_LEFT_OUT}, each class by its share",
    }
    if data.group is not None:  # no key without groups, so that results from before the key existed stay valid
        identity["group"] = data.group
    return identity


@dataclass(frozen=True)
class Probe:
    """`adaptation=probe`: the network's weights stay as they are; the solution is exact, without recipe and seed.

    The probe and its penalty depend on training images alone (the penalty is chosen by leaving images out), so its
    predictions for validation images are as fair a judgement as those for test images.

    Arrays of the training: `judged_images`, positions in the data's items, and `left_out_logits`: of training images by
    a fit without them (about fca.stats.features.MAX_LEFT_OUT of them at most), of each validation image by the probe.
    """

    columns: ClassVar[tuple[Column, ...]] = (PENALTY, N_JUDGED)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    def plan(self, context: RunContext) -> list[Run]:
        """The run of the features of all images, then the training of the probe, then its predictions.

        The training and the prediction for clean images use the stored features, so they are light (no launcher is
        needed). Predictions for shifted images need the network. Raises FcaError for a model without weights, and with
        compat, which reproduces an original that has no probes.
        """
        data = context.data
        features_run, work = features_run_and_work(context, data)
        identity = {
            **probe_identity(context, data),
            "adaptation": "probe",
            # Earlier versions stored other results; these keys give the run an id of its own.
            "layer": "as solved",  # earlier: weights were stored with their numbers in a wrong order
            "penalty": LEFT_OUT,  # earlier: the penalty was chosen on the validation images
            "judgement": "kept",  # earlier: the logits of left-out images were not stored
        }
        columns = {**training_columns(context, data, "probe"), PENALTY_BY: LEFT_OUT}
        training = Run("train", identity, columns, features_run.run_id, light=True, work=work)

        clean, *shifted = prediction_runs(training, context, data)
        return [features_run, training, predicted_from_features(clean, work), *shifted]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Compute the features, fit the probe, and predict the test images; shifted ones go through the network."""
        for run in runs:
            if run.task == "embed":
                yield embed_images(run, context)

        light_runs = [run for run in runs if run.light]
        if light_runs:
            yield from _fit_and_predict(light_runs, context)

        yield from finish_predictions([run for run in runs if run.task == "predict" and not run.light], context)


def _fit_and_predict(runs: Sequence[Run[ProbeWork]], context: RunContext) -> Iterator[Finished]:
    """Fit the probe of a subset to stored features, and yield its training and its predictions for test images.

    The training also stores the logits of judged images: images on which the probe can be judged because it was not
    fitted to them. These are validation images, and training images that were left out in turn.

    runs: the training and its prediction for clean images, or the one that is not done. If only the prediction is
          missing, the probe is fitted again, which gives the same probe.
    """
    work = runs[0].work
    data = work.data
    subset = context.subset
    features = work.values(context.store)
    keys = [data.classes[c] for c in subset.classes]
    rows = {split: data.rows(split, subset.classes) for split in ("train", "val", "test")}
    labels = {split: subset.new_labels(data.labels[rows[split]]) for split in rows}  # 0 to classes - 1

    start = time.perf_counter()
    # `fit_probe` leaves training images out in turn; copies, and images of one group, are left out together
    unit_of_image = connected_images(data.items.iloc[rows["train"]], data.group)
    probe = fit_probe(features[rows["train"]], labels["train"], unit_of_image)
    seconds = time.perf_counter() - start

    # `probe.judged` are positions among the training images, `probe.left_out` the logits of probes fitted without them
    val_logits = probe.logits(features[rows["val"]])
    judged_rows = np.concatenate([rows["train"][probe.judged], rows["val"]])
    judged_logits = np.concatenate([probe.left_out, val_logits])
    arrays = {
        JUDGED_IMAGES: judged_rows.astype(np.int32),
        LEFT_OUT_LOGITS: judged_logits.astype(np.float32),
    }

    test_logits = probe.logits(features[rows["test"]]).astype(np.float32)
    features_row = context.store.row(work.features)  # it has the time and size of the network, which is not run here
    predict_columns: dict[str, Any] = {
        **prediction_columns(test_logits, labels["test"], subset.classes),
        **{column: features_row.get(column) for column in FORWARD_COLUMNS},
    }

    for run in runs:
        if run.task == "predict":
            yield Finished(run, predict_columns, prediction_arrays(test_logits, labels["test"], keys))
            continue

        write_probe(probe.weight, probe.bias, keys, run, context)
        val_top1 = (val_logits.argmax(axis=1) == labels["val"]).mean()
        columns: dict[str, Any] = {
            N_TRAIN: len(rows["train"]),
            N_VAL: len(rows["val"]),
            VAL_TOP1: float(val_top1),
            N_JUDGED: len(judged_rows),
            PENALTY: probe.penalty,
            "train_s": seconds,
            **adapted_columns(predict_columns, data, subset),
        }
        yield Finished(run, columns, arrays)


def write_probe(weight: np.ndarray, bias: np.ndarray, keys: Sequence[str], run: Run, context: RunContext) -> None:
    """Write the probe into the folder of its run: the description of its network, and the weights of its last layer.

    `model=run` reads them to predict with the probe.

    weight: classes x features.
    bias: one for each class.
    keys: the class keys.
    """
    folder = context.store.folder(run.run_id)
    write_json(folder / "model.json", describe_model(Probed.of(context.model), keys))

    # ascontiguousarray: safetensors writes the memory as it is, and reads it as if it were in C order
    layer = {
        "weight": np.ascontiguousarray(weight, np.float32),
        "bias": np.ascontiguousarray(bias, np.float32),
    }
    write_whole(folder / "best.safetensors", lambda file: file.write(save(layer)))
