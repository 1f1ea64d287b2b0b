"""How long the features of all programs will take, said before they are computed."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from fca.models.compiled import Compiled
from fca.models.programs import INT8, Session
from fca.studies.recommend.screening import FINALISTS

TRIED = 8  # images of the batch that is timed
PASSES = 3  # of which the fastest counts; the first one prepares memory
INT8_SHARE = 0.6  # of the time in fp32, where a processor has instructions for int8
WORTH_A_LINE_S = 180.0


def seconds_an_image(program: Compiled) -> float:
    """Of a batch on all cores, every depth of the program in one pass."""
    about = program.description
    session, size = Session(program.program), about.geometry.size
    images = np.zeros((TRIED, size, size, 3), np.uint8)
    seconds = []
    for _ in range(PASSES):
        started = time.perf_counter()
        session.run(images, list(about.widths))
        seconds.append(time.perf_counter() - started)
    return min(seconds) / TRIED


def share_of_pass(size: int, usual: int, precision: str) -> float:
    """Time of a pass at this input size and precision, as a share of that at the usual size in fp32.

    >>> share_of_pass(112, 224, "fp32"), share_of_pass(224, 224, "int8")
    (0.25, 0.6)
    """
    return (size / usual) ** 2 * (INT8_SHARE if precision == INT8 else 1.0)


def announcement(seconds: float, programs: int, images: int, screened_by: int | None = None) -> str:
    """The line, where it is worth one; else nothing.

    seconds:     of one image through all programs.
    screened_by: images that all programs get, of which FINALISTS get the others as well; None: all get all images.

    >>> announcement(0.09, 24, 10_000)
    'features of 10,000 images by 24 programs will take about 15 minutes, or less: programs over a limit are left out'
    >>> announcement(0.09, 24, 10_000, screened_by=600)
    'features of 600 images by 24 programs, and of 10,000 by 5 of them, will take about 4 minutes'
    >>> announcement(0.09, 24, 300)
    ''
    """
    if screened_by is None or programs <= FINALISTS:
        total = seconds * images
        what = f"features of {images:,} images by {programs} programs"
        rest = ", or less: programs over a limit are left out"
    else:
        total = seconds * (screened_by + images * FINALISTS / programs)
        what = f"features of {screened_by:,} images by {programs} programs, and of {images:,} by {FINALISTS} of them,"
        rest = ""
    if total < WORTH_A_LINE_S:
        return ""
    minutes = max(1, round(total / 60))
    return f"{what} will take about {'1 minute' if minutes == 1 else f'{minutes} minutes'}{rest}"


def work_of(milliseconds: Iterable[float], passes: Iterable[object]) -> list[float]:
    """Of each candidate, for a bar: its time for one image, or 0 where an earlier one had the same pass.

    passes: which pass gives its features.

    >>> work_of([9.0, 8.0, 4.0], ["a", "a", "b"])
    [9.0, 0.0, 4.0]
    """
    seen: set[object] = set()
    work = []
    for milliseconds_of_one, of_pass in zip(milliseconds, passes, strict=True):
        work.append(0.0 if of_pass in seen else milliseconds_of_one)
        seen.add(of_pass)
    return work
