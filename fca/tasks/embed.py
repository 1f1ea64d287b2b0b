"""What similarity scores are computed from: an encoder's features of a split, or a user's function of two images."""

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

from fca.allowed import Allowed
from fca.data.pixels import open_pixels
from fca.data.splits import rank_in_class
from fca.finite import as_half
from fca.models import built
from fca.progress import track
from fca.tasks import Setup
from fca.tasks.predict import Forward, check_forward, data_columns, forward_columns
from fca.types import SPLITS, Arrays, Column, FcaError, Finished, Geometry, ImageData, Run

SIMILARITY_CALLS = Column("similarity_calls", int, ",", "pairs of images that the user's own function compared")
ALL = "all"  # every image, whatever its split
log = logging.getLogger(__name__)


@runtime_checkable
class ComparesImages(Protocol):
    """An encoder without features that measures how similar two images are, so that images are sampled.

    images_per_class, seed: of the sample.    geometry: from an image to the pixels that are compared.
    """

    images_per_class: int
    seed: int

    @property
    def geometry(self) -> Geometry: ...

    def similarity(self, a: UInt8[np.ndarray, "size size 3"], b: UInt8[np.ndarray, "size size 3"], /) -> float:
        """Symmetric, in [0, 1]."""


@dataclass(frozen=True)
class Embed:
    """`task=embed model@encoder=...`: one pass of the encoder, whatever the subset, model and seed."""

    columns: ClassVar[tuple[Column, ...]] = (SIMILARITY_CALLS,)
    summary: ClassVar[tuple[Column | str, ...]] = ()

    split: Annotated[str, Allowed(choices=(*SPLITS, ALL))]

    def plan(self, setup: Setup) -> list[Run[Forward]]:
        """One run: data, split and encoder weights."""
        setup.clean_only("embed")
        with of_encoder():
            return [embed_run(Forward(setup.encoder, setup.data, self.split))]

    def run(self, runs: Sequence[Run[Forward]], setup: Setup) -> Iterator[Finished]:
        """Arrays `features` (float16), in the order of the split's items; or see `compared`."""
        for run in runs:
            with of_encoder():
                finished = embedded(run, setup)
            yield finished


@contextmanager
def of_encoder() -> Iterator[None]:
    """Errors of a model name its keys as those of the encoder that it is here."""
    try:
        yield
    except FcaError as error:
        texts = (re.sub(r"\bmodel(?=[.]\w)", "encoder", text) for text in error.args)
        raise FcaError(*(re.sub(r"\bmodel(?==)|^model$", "model@encoder", text) for text in texts)) from error


def embed_run(work: Forward) -> Run[Forward]:
    """The run of an encoder's pass over a split."""
    data, encoder = work.data, work.model
    if work.split != ALL:
        check_forward(work)
    identity = {"data": data.fingerprint, "split": work.split, "encoder": encoder.identity()}
    about = {
        **data_columns(data, work.split),
        "encoder": encoder.label(),
        "weights": encoder.weights_label(),
        "ncl": len(data.classes),
        "classes": range(len(data.classes)),
    }
    return Run("embed", identity, about, work=work)


def embedded(run: Run[Forward], setup: Setup) -> Finished:
    """The features of a run's images, or the similarities of a sample of them.

    Raises FcaError for features that are no numbers, or larger than float16 holds.
    """
    data, split, encoder = run.work.data, run.work.split, run.work.model
    rows = np.arange(len(data.items)) if split == ALL else data.rows(split)
    if isinstance(encoder, ComparesImages):
        setup.store.keep_items(data)
        return Finished(run, *compared(encoder, data, rows, setup))
    from fca.training.infer import features_of

    network, machine = built(encoder), setup.machine
    setup.store.keep_items(data)
    pixels = open_pixels(data, network.geometry, setup.cache, machine.workers, machine.cache_gb, rows)
    start = time.perf_counter()
    features = features_of(network, pixels, rows, accelerator=machine.accelerator)
    took = forward_columns(network, len(rows), time.perf_counter() - start, machine.accelerator)
    return Finished(run, {"n_test": len(rows), **took}, {"features": as_half("features", features)})


def compared(
    encoder: ComparesImages, data: ImageData, rows: Int[np.ndarray, " rows"], setup: Setup
) -> tuple[dict[str, Any], Arrays]:
    """Columns and arrays of a sample of every class, from one call a pair of images (the function is symmetric).

    sampled:    positions within the split's items.
    similarity: float32 (sampled images, classes), the mean over the sampled images of a class but the image itself;
                NaN for a class without any.

    First prints how many calls it takes: n (n - 1) / 2 for n images.
    """
    sampled = np.flatnonzero(rank_in_class(data.items.iloc[rows], encoder.seed) < encoder.images_per_class)
    chosen = rows[sampled]
    calls = len(chosen) * (len(chosen) - 1) // 2
    cost = f"{calls:,} calls of the similarity function: every pair of {len(chosen):,} sampled images"
    log.info(cost)
    print(cost, flush=True)
    # a limit of 0 reads these images only, not the whole set into the cache
    pixels = open_pixels(data, encoder.geometry, setup.cache, setup.machine.workers, 0.0, chosen)[chosen]
    start = time.perf_counter()
    similarity = _pairwise(encoder, pixels, data.labels[chosen], len(data.classes))
    columns: dict[str, Any] = {
        "n_test": len(chosen),
        "predict_s": time.perf_counter() - start,
        SIMILARITY_CALLS: calls,
        "input_size": encoder.geometry.size,
        "device": "cpu",
    }
    return columns, {"similarity": similarity, "sampled": sampled.astype(np.int32)}


def _pairwise(
    encoder: ComparesImages,
    pixels: UInt8[np.ndarray, "images size size 3"],
    labels: Int[np.ndarray, " images"],
    classes: int,
) -> Float32[np.ndarray, "images classes"]:
    """Mean similarity of every image to the others of every class."""
    n = len(labels)
    sums = np.zeros((n, classes))
    pairs = combinations(range(n), 2)
    for i, j in track(pairs, "comparing images", n * (n - 1) // 2):
        alike = encoder.similarity(pixels[i], pixels[j])
        sums[i, labels[j]] += alike
        sums[j, labels[i]] += alike
    others = np.bincount(labels, minlength=classes) - (labels[:, None] == np.arange(classes))
    means = np.divide(sums, others, out=np.full_like(sums, np.nan), where=others > 0)
    return means.astype(np.float32)
