"""What similarity scores are computed from: an encoder's features of a split, or a user's function of two images."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int, UInt8
from rich import get_console
from rich.progress import track

from fca.data.pixels import open_pixels
from fca.data.splits import rank_in_class
from fca.tasks import Setup
from fca.tasks.predict import data_columns
from fca.types import Arrays, Finished, Geometry, Run

log = logging.getLogger(__name__)
ALL = "all"  # every image, whatever its split


@runtime_checkable
class ComparesImages(Protocol):
    """An encoder that has no features but says how alike two images are, so that images are sampled.

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

    split: str

    def plan(self, setup: Setup) -> list[Run]:
        """One run: data, split and encoder weights."""
        setup.clean_only("embed")
        identity = {"data": setup.data.fingerprint, "split": self.split, "encoder": setup.encoder.identity()}
        about = {
            **data_columns(setup.data, self.split),
            "encoder": setup.encoder.label(),
            "weights": setup.encoder.weights_label(),
            "ncl": len(setup.data.classes),
            "classes": range(len(setup.data.classes)),
        }
        return [Run("embed", identity, about)]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Arrays `features` (float16), in the order of the split's items; or see `compared`."""
        for run in runs:
            setup.store.keep_items(setup.data)
            rows = np.arange(len(setup.data.items)) if self.split == ALL else setup.data.rows(self.split)
            encoder: object = setup.encoder
            found = compared(encoder, setup, rows) if isinstance(encoder, ComparesImages) else _embedded(setup, rows)
            yield Finished(run, *found)


def _embedded(setup: Setup, rows: Int[np.ndarray, " rows"]) -> tuple[dict[str, Any], Arrays]:
    from fca.training.batches import device_name
    from fca.training.infer import features_of

    encoder = setup.encoder.build()
    machine = setup.machine
    pixels = open_pixels(setup.data, encoder.geometry, setup.cache, machine.workers, machine.cache_gb)
    start = time.perf_counter()
    features = features_of(encoder, pixels, rows, accelerator=machine.accelerator)
    seconds = time.perf_counter() - start
    columns = {
        "n_test": len(rows),
        "predict_s": seconds,
        "images_per_s": len(rows) / seconds,
        "params": sum(p.numel() for p in encoder.module.parameters()),
        "input_size": encoder.input_size,
        "device": device_name(machine.accelerator),
    }
    return columns, {"features": features.astype(np.float16)}


def compared(encoder: ComparesImages, setup: Setup, rows: Int[np.ndarray, " rows"]) -> tuple[dict[str, Any], Arrays]:
    """Columns and arrays of a sample of every class, from one call a pair of images (the function is symmetric).

    sampled:    positions within the split's items.
    similarity: float32 (sampled images, classes), the mean over the sampled images of a class but the image itself;
                NaN for a class without any.

    Says first how many calls it takes: n (n - 1) / 2 for n images.
    """
    sampled = np.flatnonzero(rank_in_class(setup.data.items.iloc[rows], encoder.seed) < encoder.images_per_class)
    chosen = rows[sampled]
    calls = len(chosen) * (len(chosen) - 1) // 2
    cost = f"{calls:,} calls of the similarity function: every pair of {len(chosen):,} sampled images"
    log.info(cost)
    print(cost, flush=True)
    # a limit of 0 reads these images only, not the whole set into the cache
    pixels = open_pixels(setup.data, encoder.geometry, setup.cache, setup.machine.workers, limit_gb=0.0)[chosen]
    start = time.perf_counter()
    similarity = _pairwise(encoder, pixels, setup.data.labels[chosen], len(setup.data.classes))
    columns = {
        "n_test": len(chosen),
        "predict_s": time.perf_counter() - start,
        "similarity_calls": calls,
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
    pairs = track(
        combinations(range(n), 2),
        "comparing images",
        n * (n - 1) // 2,
        transient=True,
        disable=not get_console().is_terminal,
    )
    for i, j in pairs:
        alike = encoder.similarity(pixels[i], pixels[j])
        sums[i, labels[j]] += alike
        sums[j, labels[i]] += alike
    others = np.bincount(labels, minlength=classes) - (labels[:, None] == np.arange(classes))
    means = np.divide(sums, others, out=np.full_like(sums, np.nan), where=others > 0)
    single: np.ndarray = means.astype(np.float32)
    return single
