"""The source of similarity scores: an encoder's features of a split, or a user's function of two images."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int, UInt8

from fca.data.pixels import open_pixels
from fca.data.splits import rank_in_class
from fca.finite import as_half
from fca.models import build_model
from fca.progress import track
from fca.tasks import RunContext
from fca.tasks.predict import ForwardWork, check_forward, check_has_weights, data_columns, forward_columns
from fca.types import SPLITS, Arrays, Column, FcaError, Finished, Geometry, ImageData, Run
from fca.validation import Allowed

SIMILARITY_CALLS = Column("similarity_calls", int, ",", "pairs of images that the user's own function compared")
ALL_SPLITS = "all"  # every image, whatever its split
log = logging.getLogger(__name__)


@runtime_checkable
class ComparesImages(Protocol):
    """An encoder without features that measures how similar two images are, so that images are sampled.

    images_per_class, seed: how the sample is drawn.
    geometry: from an image to the pixels that are compared.
    """

    images_per_class: int
    seed: int

    @property
    def geometry(self) -> Geometry: ...

    def similarity(self, a: UInt8[np.ndarray, "size size 3"], b: UInt8[np.ndarray, "size size 3"], /) -> float:
        """Symmetric, in [0, 1]."""


@dataclass(frozen=True)
class Embed:
    """`task=embed model@encoder=...`: one pass of the encoder; subset, model and seed do not matter."""

    columns: ClassVar[tuple[Column, ...]] = (SIMILARITY_CALLS,)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    split: Annotated[str, Allowed(choices=(*SPLITS, ALL_SPLITS))]

    def plan(self, context: RunContext) -> list[Run[ForwardWork]]:
        """One run for the data, the split and the encoder; subset, model and seed do not matter.

        Raises FcaError for a shift, for an encoder without weights, and for a split without images.
        """
        context.check_clean("embed")
        with encoder_keys_in_errors():
            return [embed_run(ForwardWork(context.encoder, context.data, self.split))]

    def run(self, runs: Sequence[Run[ForwardWork]], context: RunContext) -> Iterator[Finished]:
        """Yield the run with array `features` (float16), in the order of the split's items.

        A run of an encoder that compares images has the arrays of `compare_sample` instead.
        """
        for run in runs:
            with encoder_keys_in_errors():
                finished = embed_images(run, context)
            yield finished


@contextmanager
def encoder_keys_in_errors() -> Iterator[None]:
    """In the body of `with`, make errors about configuration keys of a model name the keys of the encoder.

    An encoder is a model, too, so its code raises errors about model.KEY. `model.weights` becomes `encoder.weights`,
    and `model=...` becomes `model@encoder=...`.
    """
    try:
        yield
    except FcaError as error:
        # First model.KEY -> encoder.KEY; then `model=`, and an argument that is `model` alone -> model@encoder.
        messages = [re.sub(r"\bmodel(?=[.]\w)", "encoder", message) for message in error.args]
        messages = [re.sub(r"\bmodel(?==)|^model$", "model@encoder", message) for message in messages]
        raise FcaError(*messages) from error


def embed_run(work: ForwardWork) -> Run[ForwardWork]:
    """The run that computes the features of the images of a split, or of all images, with an encoder.

    Raises FcaError for an encoder without weights, and for a split without images.
    """
    data = work.data
    encoder = work.model
    if work.split == ALL_SPLITS:  # a data set has images; only a single split may have none
        check_has_weights(encoder)
    else:
        check_forward(work)

    identity = {  # the id of the run is a hash of it
        "data": data.fingerprint,
        "split": work.split,
        "encoder": encoder.identity(),
    }
    columns = {
        **data_columns(data, work.split),
        "encoder": encoder.label(),
        "weights": encoder.weights_label(),
        "ncl": len(data.classes),
        "classes": range(len(data.classes)),
    }
    return Run("embed", identity, columns, work=work)


def embed_images(run: Run[ForwardWork], context: RunContext) -> Finished:
    """Do an embed run, and return it with its columns and arrays.

    The array `features` has the features of its images (images x features, float16). An encoder that has no features
    but compares two images gives mean similarities between a sample of the images and each class instead.
    Raises FcaError for features that are NaN, or larger than float16 holds.
    """
    data = run.work.data
    encoder = run.work.model
    machine = context.machine
    rows = np.arange(len(data.items)) if run.work.split == ALL_SPLITS else data.rows(run.work.split)

    if isinstance(encoder, ComparesImages):
        context.store.keep_items(data)
        columns, arrays = compare_sample(encoder, data, rows, context)
        return Finished(run, columns, arrays)

    from fca.training.infer import features_of  # imports torch, which comparisons do without

    network = build_model(encoder)
    context.store.keep_items(data)  # the list of images, in whose order arrays are stored
    pixels = open_pixels(data, network.geometry, context.cache, machine.workers, machine.cache_gb, rows)

    start = time.perf_counter()
    features = features_of(network, pixels, rows, accelerator=machine.accelerator)
    seconds = time.perf_counter() - start

    columns = {"n_test": len(rows), **forward_columns(network, len(rows), seconds, machine.accelerator)}
    return Finished(run, columns, {"features": as_half("features", features)})


def compare_sample(
    encoder: ComparesImages, data: ImageData, rows: Int[np.ndarray, " rows"], context: RunContext
) -> tuple[dict[str, Any], Arrays]:
    """Compare every pair of a sample of images with the encoder's own function; return columns and arrays of the run.

    The sample has encoder.images_per_class images of each class, or all if a class has fewer. As the function is
    symmetric, it is called n (n - 1) / 2 times for n images; the number is printed first, since calls may be slow.

    rows: positions of the split's images in `data.items`.

    Arrays: `sampled`, positions of the sampled images within the split's items; `similarity` (sampled images x
    classes), the mean similarity of each sampled image to the other sampled images of each class.
    """
    rank = rank_in_class(data.items.iloc[rows], encoder.seed)  # 0, 1, ... in a random order of the images of each class
    sampled = np.flatnonzero(rank < encoder.images_per_class)
    sampled_rows = rows[sampled]

    n_images = len(sampled_rows)
    n_calls = n_images * (n_images - 1) // 2
    cost = f"{n_calls:,} calls of the similarity function: every pair of {n_images:,} sampled images"
    log.info(cost)
    print(cost, flush=True)  # before the calls begin, also if stdout is buffered

    # with a cache of 0 GB only the sampled images are decoded; otherwise the whole set would be
    opened = open_pixels(data, encoder.geometry, context.cache, context.machine.workers, 0.0, sampled_rows)
    pixels = opened[sampled_rows]

    start = time.perf_counter()
    similarity = mean_similarities(encoder, pixels, data.labels[sampled_rows], len(data.classes))
    columns: dict[str, Any] = {
        "n_test": n_images,
        "predict_s": time.perf_counter() - start,
        SIMILARITY_CALLS: n_calls,
        "input_size": encoder.geometry.size,
        "device": "cpu",
    }
    return columns, {"similarity": similarity, "sampled": sampled.astype(np.int32)}


def mean_similarities(
    encoder: ComparesImages,
    pixels: UInt8[np.ndarray, "images size size 3"],
    labels: Int[np.ndarray, " images"],
    n_classes: int,
) -> Float32[np.ndarray, "images classes"]:
    """Mean similarity of every image to the other images of every class.

        mean[i, c] = sum of s(i, j) over j in J / |J|,   J = the images j != i with label c;   NaN where J is empty

    pixels: the images, at the encoder's input size.
    labels: their classes, from 0 to n_classes - 1.
    """
    n = len(labels)
    sums = np.zeros((n, n_classes))
    pairs = combinations(range(n), 2)
    for i, j in track(pairs, "comparing images", n * (n - 1) // 2):
        similarity = encoder.similarity(pixels[i], pixels[j])
        sums[i, labels[j]] += similarity
        sums[j, labels[i]] += similarity

    class_sizes = np.bincount(labels, minlength=n_classes)
    is_of_class = labels[:, None] == np.arange(n_classes)  # images x classes
    n_others = class_sizes - is_of_class  # images x classes: one less for the image's own class, without itself
    means = np.divide(sums, n_others, out=np.full_like(sums, np.nan), where=n_others > 0)
    return means.astype(np.float32)
