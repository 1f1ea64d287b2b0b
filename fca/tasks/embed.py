"""The encoder's features of every image of a split: what similarity scores are computed from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fca.data.pixels import open_pixels
from fca.nouns import Finished, Run
from fca.tasks import Setup
from fca.tasks.predict import data_columns


@dataclass(frozen=True)
class Embed:
    """`task=embed model@encoder=...`: one pass of the encoder, whatever the subset, model and seed."""

    split: str

    def plan(self, setup: Setup) -> list[Run]:
        """One run: data, split and encoder weights."""
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
        """Embed the split's images in the order of its items, as float16."""
        from fca.training.device import device_name
        from fca.training.infer import features_of

        for run in runs:
            encoder = setup.encoder.build()
            setup.store.keep_items(setup.data)
            machine = setup.machine
            pixels = open_pixels(setup.data, encoder.geometry, setup.cache, machine.workers, machine.cache_gb)
            rows = setup.data.rows(self.split)
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
            yield Finished(run, columns, {"features": features.astype(np.float16)})
