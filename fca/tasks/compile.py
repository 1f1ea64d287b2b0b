"""A network as one ONNX program of its features, in fp32 or int8: what is shipped, and what a probe stands on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import UInt8

from fca.allowed import Allowed
from fca.data.pixels import open_pixels
from fca.data.splits import fixed_draw, for_training
from fca.geometry import ResizeCrop
from fca.models.compiled import ALL, Description, keep_program
from fca.models.programs import (
    INT8,
    OPSET,
    PRECISIONS,
    Session,
    check_packages,
    encoder_program,
    quantised,
)
from fca.store.columns import FILE_MB, INPUT_SIZE, PRECISION
from fca.tasks import Setup
from fca.tasks.adaptation import need_weights
from fca.types import Classifier, Column, FcaError, Finished, ImageData, Model, Run

N_CALIBRATION = Column("n_calibration", int, ",", "training images that gave the ranges of activations in int8")
COMPILE_S = Column("compile_s", float, ".1f", "time to write the program, seconds")
WHOLE = "whole"


@dataclass(frozen=True, eq=False)
class Compiling:
    """The work of a run: a network with all its depths, and the images that int8 is calibrated on."""

    model: Model
    depths: Sequence[str]
    data: ImageData


@dataclass(frozen=True)
class Compile:
    """`task=compile`: one run for a network, its input size and a precision; in int8 also for the training images.

    precision:   of weights and activations.    calibration: training images whose activations give the ranges of int8.
    """

    columns: ClassVar[tuple[Column, ...]] = (PRECISION, FILE_MB, N_CALIBRATION, COMPILE_S)
    summary: ClassVar[tuple[Column | str, ...]] = ("{file_mb:.1f} MB in {precision}",)

    precision: Annotated[str, Allowed(choices=PRECISIONS)]
    calibration: Annotated[int, Allowed(1, 10_000)]

    def plan(self, setup: Setup) -> list[Run]:
        """Raises FcaError for a network without weights, and where the packages that write programs are missing."""
        setup.clean_only("compile")
        check_packages("task", "compile")
        need_weights(setup, "probe")
        model, depths = with_every_depth(setup.model)
        identity = {"model": setup.model.identity(), "precision": self.precision, "opset": OPSET}
        about: dict[str, Any] = {"model": setup.model.label(), "weights": setup.model.weights_label()}
        about[PRECISION] = self.precision
        data = setup.data
        if self.precision == INT8:
            data = for_training(setup.data)
            identity |= {"data": data.fingerprint, "calibration": self.calibration}
            about |= {"dataset": data.name, "fingerprint": data.fingerprint}
        return [Run("compile", identity, about, work=Compiling(model, depths, data))]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Leaves program.onnx and program.json in the run's folder."""
        for run in runs:
            work: Compiling = run.work
            start = time.perf_counter()
            encoder = work.model.build()
            if not isinstance(encoder.geometry, ResizeCrop):
                allowed = "a network whose input is a resized and cropped image"
                raise FcaError("model", work.model.label(), allowed, "choose another network")
            program = encoder_program(encoder, work.depths)
            columns: dict[str, Any] = {}
            if self.precision == INT8:
                images = self._calibration_images(encoder, work.data, setup)
                program = quantised(program, images)
                columns[N_CALIBRATION] = len(images)
            label, weights = setup.model.label(), setup.model.weights_label()
            widths = widths_of(program, work.depths, encoder.input_size)
            about = Description(label, weights, self.precision, encoder.geometry, widths)
            keep_program(setup.store.folder(run.run_id), program, about)
            if self.precision == INT8:
                setup.store.keep_items(work.data)
            columns |= {
                FILE_MB: len(program) / 1e6,
                INPUT_SIZE: encoder.input_size,
                COMPILE_S: time.perf_counter() - start,
            }
            yield Finished(run, columns, {})

    def _calibration_images(
        self, encoder: Classifier, data: ImageData, setup: Setup
    ) -> UInt8[np.ndarray, "images size size 3"]:
        """A fixed draw of the training images at input size, every class in turn."""
        rows = fixed_draw(data, data.rows("train"), self.calibration)
        machine = setup.machine
        pixels = open_pixels(data, encoder.geometry, setup.cache, machine.workers, machine.cache_gb, rows)
        return np.asarray(pixels[rows])


def with_every_depth(model: Any) -> tuple[Model, tuple[str, ...]]:
    """The model as the encoder of all its depths, and their names; of a network with one depth it is that model."""
    depths: tuple[str, ...] = model.depths() if hasattr(model, "depths") else (WHOLE,)
    if getattr(model, "depth", WHOLE) != WHOLE:
        step = "leave model.depth out: the program has every depth"
        raise FcaError("model.depth", model.depth, f"{WHOLE} for task=compile", step)
    return (replace(model, depth=ALL), depths) if len(depths) > 1 else (model, depths)


def widths_of(program: bytes, depths: Sequence[str], size: int) -> dict[str, int]:
    """How many features the program has at each depth, by running it once."""
    session, image = Session(program), np.zeros((1, size, size, 3), np.uint8)
    return {depth: session.run(image, [depth]).shape[1] for depth in depths}
