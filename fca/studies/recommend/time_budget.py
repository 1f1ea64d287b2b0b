"""An estimate of how long the features of all programs will take, before they are computed."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from fca.models.compiled import Compiled
from fca.models.programs import INT8, Session
from fca.studies.recommend.screening import FINALISTS

BATCH = 8  # images of the batch that is timed
PASSES = 3  # of which the fastest counts; the first one prepares memory
INT8_SHARE = 0.6  # time in int8 as a share of that in fp32, on processors with instructions for int8
WORTH_A_LINE_S = 180.0


def measured_seconds_per_image(program: Compiled) -> float:
    """Seconds per image for the features at all depths of the program in one pass, measured now on a small batch.

    A depth is a place in the network where features are taken; a cut network ends at one.
    The images are black, since the time does not depend on their content. Of several passes the fastest counts: the
    others are slowed down by other work of the machine, or by the first use of memory.
    """
    description = program.description
    session = Session(program.program)
    size = description.geometry.size
    images = np.zeros((BATCH, size, size, 3), np.uint8)
    output_names = list(description.widths)  # each output is named after its depth, a key of `widths`

    seconds = []
    for _ in range(PASSES):
        start = time.perf_counter()
        session.run(images, output_names)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / BATCH


def share_of_pass(size: int, default_size: int, precision: str) -> float:
    """Time of a pass at this input size and precision, as a share of that at the default size in fp32.

    >>> share_of_pass(112, 224, "fp32"), share_of_pass(224, 224, "int8")
    (0.25, 0.6)
    """
    share_of_size = (size / default_size) ** 2
    return share_of_size * INT8_SHARE if precision == INT8 else share_of_size


def announcement(seconds_per_image: float, programs: int, images: int, screened_by: int | None = None) -> str:
    """A line with the expected time of computing all features; empty if that is below WORTH_A_LINE_S.

    seconds_per_image: of all programs together.    programs: their number.    images: number of all images.
    screened_by:       number of images on which all programs are compared first, of which FINALISTS then get all
                       images; None: all programs get all images.

    >>> announcement(0.09, 24, 10_000)
    'features of 10,000 images by 24 programs will take about 15 minutes, or less: programs over a limit are left out'
    >>> announcement(0.09, 24, 10_000, screened_by=600)
    'features of 600 images by 24 programs, and of 10,000 by 5 of them, will take about 4 minutes'
    >>> announcement(0.09, 24, 300)
    ''
    """
    if screened_by is None or programs <= FINALISTS:
        seconds = seconds_per_image * images
        work = f"features of {images:,} images by {programs} programs"
        remark = ", or less: programs over a limit are left out"
    else:
        seconds = seconds_per_image * (screened_by + images * FINALISTS / programs)
        work = f"features of {screened_by:,} images by {programs} programs, and of {images:,} by {FINALISTS} of them,"
        remark = ""
    if seconds < WORTH_A_LINE_S:
        return ""

    minutes = max(1, round(seconds / 60))
    duration = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{work} will take about {duration}{remark}"


def work_of(milliseconds: Iterable[float], passes: Iterable[object]) -> list[float]:
    """The work of each candidate for a progress bar: its time for one image, or 0 if an earlier one shares its pass.

    A pass computes the features of all images with one program; those of several depths come from the same pass.

    passes: for each candidate, what identifies its pass.

    >>> work_of([9.0, 8.0, 4.0], ["a", "a", "b"])
    [9.0, 0.0, 4.0]
    """
    counted_passes: set[object] = set()
    work = []
    for candidate_milliseconds, features in zip(milliseconds, passes, strict=True):
        work.append(0.0 if features in counted_passes else candidate_milliseconds)
        counted_passes.add(features)
    return work
