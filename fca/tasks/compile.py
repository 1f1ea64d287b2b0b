"""A network as one ONNX program of its features, in fp32 or int8, for shipping and as the encoder of a probe."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import UInt8

from fca.data.pixels import open_pixels
from fca.data.splits import fixed_draw, for_training
from fca.geometry import ResizeCrop
from fca.models.compiled import EVERY_DEPTH, Compiled, Description, keep_program
from fca.models.onnx_file import OnnxFile
from fca.models.programs import (
    FP32,
    INT8,
    OPSET,
    PRECISIONS,
    Session,
    check_packages,
    encoder_program,
    quantised,
)
from fca.store.columns import FILE_MB, INPUT_SIZE, PRECISION
from fca.tasks import RunContext
from fca.tasks.adaptation import check_has_weights
from fca.types import Column, FcaError, Finished, ImageData, Model, OfSeveralDepths, Run
from fca.validation import Allowed

N_CALIBRATION = Column("n_calibration", int, ",", "training images that gave the ranges of activations in int8")
COMPILE_S = Column("compile_s", float, ".1f", "time to write the program, seconds")
WHOLE = "whole"


@dataclass(frozen=True, eq=False)
class Compiling:
    """The work of a run: a network, its depths, the precision, and the data whose training images calibrate int8."""

    model: Model
    depths: Sequence[str]
    precision: str
    data: ImageData


@dataclass(frozen=True)
class Compile:
    """`task=compile`: writes a network at one input size as an ONNX program of its features, in fp32 or int8.

    A program in int8 is made from the one in fp32 and from training images, so it is another run.

    precision:   of weights and activations.
    calibration: number of training images whose activations give the ranges of int8.
    """

    columns: ClassVar[tuple[Column, ...]] = (PRECISION, FILE_MB, N_CALIBRATION, COMPILE_S)
    summary: ClassVar[tuple[Column | str, ...]] = ("{file_mb:.1f} MB in {precision}",)

    precision: Annotated[str, Allowed(choices=PRECISIONS)]
    calibration: Annotated[int, Allowed(1, 10_000)]

    def plan(self, context: RunContext) -> list[Run[Compiling]]:
        """One run that writes the program in fp32 and, for precision=int8, a second run that quantises this program.

        A program is an ONNX file that computes the network's features.
        Raises FcaError for a shift, for a network without weights, for models that are no network in PyTorch, and if
        the packages that write programs are missing.
        """
        context.check_clean("compile")
        check_packages("task", "compile")
        check_has_weights(context, "probe")  # a program computes features for probes, so random weights are useless
        learns_nothing = not context.model.learns  # such as HOG
        if learns_nothing or isinstance(context.model, Compiled | OnnxFile):
            kind = "has no layers" if learns_nothing else "is a program already"
            raise FcaError("model", context.model.label(), f"a network in PyTorch; this {kind}", "choose another model")

        model, depths = with_every_depth(context.model)
        identity: dict[str, Any] = {
            "model": context.model.identity(),
            "opset": OPSET,  # version of the operators in the ONNX file
        }
        columns: dict[str, Any] = {
            "model": context.model.label(),
            "weights": context.model.weights_label(),
        }
        fp32_run = Run(
            "compile",
            {**identity, "precision": FP32},
            {**columns, PRECISION: FP32},
            work=Compiling(model, depths, FP32, context.data),
        )
        if self.precision == FP32:
            return [fp32_run]

        data = for_training(context.data)  # training images calibrate int8, so a set that is all test is split
        int8_run = Run(
            "compile",
            {**identity, "precision": INT8, "data": data.fingerprint, "calibration": self.calibration},
            {**columns, PRECISION: INT8, "dataset": data.name, "fingerprint": data.fingerprint},
            parent=fp32_run.run_id,
            work=Compiling(model, depths, INT8, data),
        )
        return [fp32_run, int8_run]

    def run(self, runs: Sequence[Run[Compiling]], context: RunContext) -> Iterator[Finished]:
        """Write each program as program.onnx and program.json in the folder of its run, and yield the finished runs.

        program.json describes the program: its network, its depths, and how images are prepared for it.
        """
        for run in runs:
            start = time.perf_counter()
            columns: dict[str, Any] = {}
            if run.work.precision == FP32:
                program, description = self._fp32_program(run)
            else:
                program, description, n_calibration = self._int8_program(run, context)
                columns[N_CALIBRATION] = n_calibration
                context.store.keep_items(run.work.data)  # only int8 programs depend on images
            keep_program(context.store.folder(run.run_id), program, description)

            columns[FILE_MB] = len(program) / 1e6
            columns[INPUT_SIZE] = description.geometry.size
            columns[COMPILE_S] = time.perf_counter() - start
            yield Finished(run, columns, {})

    def _fp32_program(self, run: Run[Compiling]) -> tuple[bytes, Description]:
        """The program of the network's features in fp32, and its description.

        Raises FcaError for a network whose images are not prepared by resizing and cropping. The user of the program
        prepares images by the description, which can describe nothing else.
        """
        work = run.work
        encoder = work.model.build()
        if not isinstance(encoder.geometry, ResizeCrop):
            allowed = "a network whose input is a resized and cropped image"
            raise FcaError("model", run.metadata["model"], allowed, "choose another network")

        program = encoder_program(encoder, work.depths)
        widths = widths_of(program, work.depths, encoder.input_size)  # number of features at each depth
        return program, Description(run.metadata["model"], run.metadata["weights"], FP32, encoder.geometry, widths)

    def _int8_program(self, run: Run[Compiling], context: RunContext) -> tuple[bytes, Description, int]:
        """The program of the parent run, quantised to int8 by the ranges of its activations on training images.

        Also returns the description of the program, and the number of these images.
        """
        fp32_model = Compiled(str(context.store.outputs), str(run.parent), EVERY_DEPTH)
        description = fp32_model.description
        images = self._calibration_images(description.geometry, run.work.data, context)
        program = quantised(fp32_model.program, images)
        return program, description._replace(precision=INT8), len(images)

    def _calibration_images(
        self, geometry: ResizeCrop, data: ImageData, context: RunContext
    ) -> UInt8[np.ndarray, "images size size 3"]:
        """A fixed draw of at most `calibration` training images at input size, stratified by class."""
        rows = fixed_draw(data, data.rows("train"), self.calibration)
        machine = context.machine
        pixels = open_pixels(data, geometry, context.cache, machine.workers, machine.cache_gb, rows)
        return np.asarray(pixels[rows])


def with_every_depth(model: Model) -> tuple[Model, tuple[str, ...]]:
    """The model as an encoder of the features of all its depths, concatenated, and the names of its depths.

    A depth is a stage after which a network can be truncated; WHOLE is the network as it is. A network that has only
    one depth is returned unchanged. Raises FcaError if the configuration truncates the model.
    """
    if not isinstance(model, OfSeveralDepths):  # it cannot be truncated
        return model, (WHOLE,)

    if model.depth != WHOLE:  # the program is to have all depths, so that one file serves them all
        step = "leave model.depth out: the program has every depth"
        raise FcaError("model.depth", model.depth, f"{WHOLE} for task=compile", step)

    depths = model.depths()
    if len(depths) == 1:
        return model, depths
    return model.at_depth(EVERY_DEPTH), depths


def widths_of(program: bytes, depths: Sequence[str], size: int) -> dict[str, int]:
    """The number of features that the program has at each depth, found by running it on one image of this size."""
    session = Session(program)
    image = np.zeros((1, size, size, 3), np.uint8)
    return {depth: session.run(image, [depth]).shape[1] for depth in depths}
