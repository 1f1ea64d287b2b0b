"""Time and cost of the rest of a plan, estimated from a few of its images, which are drawn and timed first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t

from fca.store.journal import Line
from fca.studies.generate.drawing import (
    Budget,
    drawn_in,
    generate,
    outstanding,
    pass_size,
    processes_of,
    with_descriptions,
)
from fca.studies.generate.folder import Folder
from fca.studies.generate.plan import Plan
from fca.studies.generate.protocols import Generator, Writer
from fca.types import FcaError

MIN_PASSES = 3  # after the first one of each process, which warms up
Total = tuple[float, float, float]
"""A sum over the pending images, and its 95 % interval."""


@dataclass(frozen=True)
class Estimate:
    """Time and disk space of the pending images of a plan, estimated from a pilot.

    drawn:     number of images that the pilot drew.
    images:    number of pending images.
    processes: how many draw at the same time.
    hours:     of all devices together.    gigabytes: on disk.
    """

    drawn: int
    images: int
    processes: int
    hours: Total
    gigabytes: Total

    def text(self, image_price: float | None, hour_price: int | float | None) -> str:
        """The estimate in words, several lines, with the money that the pending images cost.

        image_price, hour_price: money per image and per hour of a device; None = unknown.
        """
        # `self.hours` has three numbers: an estimate, and both ends of its interval.
        wall_hours = self.hours[0] / self.processes
        side_by_side = ""  # with several processes, also the hours until all is done
        if self.processes > 1:
            side_by_side = f"; {_number(wall_hours)} hours with {self.processes} side by side"

        price_of_images = (image_price or 0.0) * self.images  # of the images that are left
        total_money, low, high = (price_of_images + (hour_price or 0.0) * hours for hours in self.hours)
        money = [_with_interval((total_money, low, high))]
        if image_price is None:
            money.append("images at an unknown price")
        if hour_price is None and not image_price:  # a service that sells images draws on devices of its own
            money.append("hours at an unknown price: set hour_price")

        lines = [
            f"{self.drawn:,} drawn, timed and kept; the {self.images:,} that are left take, with 95 % intervals:",
            f"  hours of a device: {_with_interval(self.hours)}{side_by_side}",
            f"  GB on disk: {_with_interval(self.gigabytes)}",
            f"  money: {', '.join(money)}",
        ]
        return "\n".join(lines)


def pilot(
    plan: Plan, generator: Generator, folder: Folder, budget: Budget, writer: Writer | None, workers: int, images: int
) -> Estimate:
    """Draw a random sample of the pending images, keep them, and estimate the time and disk space of the others.

    budget:  limits of images and money for the folder, over all calls.
    writer:  a language model that writes missing descriptions; None: none are written.
    workers: processes of a generator that allows several, 0 = one per core.
    images:  size of the sample.

    Raises FcaError if the sample is too small for an interval, or not smaller than all pending images; and what
    `generate` raises.
    """
    lines_before = folder.journal.lines()
    pending = outstanding(with_descriptions(plan.resolved(), lines_before), folder, lines_before)
    room = budget.room(len(pending), drawn_in(lines_before))  # images that the budget still allows
    processes = processes_of(generator, room, workers)
    size = pass_size(generator)
    fewest = (processes + MIN_PASSES) * size  # the first pass of each process warms up, and does not count
    if not fewest <= images < len(pending):
        passes = f"{MIN_PASSES} passes of {size} beyond the first of each process"
        raise FcaError("pilot", images, f"{fewest:,} to {len(pending) - 1:,}: {passes}", "take another number")

    sample = np.random.default_rng(plan.seed).choice(len(pending), images, replace=False)
    keys = {pending[i].key for i in sample}
    generate(plan, generator, folder, budget, writer, workers, keys)
    new_lines = folder.journal.lines()[len(lines_before) :]
    drawn = [line for line in new_lines if line["kind"] == "image"]
    return estimate(drawn, folder, len(pending) - len(drawn), processes)


def estimate(lines: Sequence[Line], folder: Folder, left: int, processes: int) -> Estimate:
    """Time and disk space of the images that remain, from a random sample of drawn ones.

    A pass is one call of the generator, which may draw several images. It is the sampling unit, as its images share
    their seconds. The first pass of each process is left out, as the process warms up in it.

    lines:     the journal's lines of the drawn images, in the order in which they were drawn.
    left:      number of images that remain.
    processes: how many draw at the same time.

    Raises FcaError if fewer than two passes are left to estimate from.
    """
    lines_by_pass: dict[str, list[Line]] = {}
    for line in lines:
        lines_by_pass.setdefault(line["together"], []).append(line)

    # Passes are in the order in which the processes got them, so the first `processes` ones are taken to be the first
    # pass of each process.
    warm_passes = list(lines_by_pass.values())[processes:]
    if len(warm_passes) < 2:
        sample = f"{len(lines)} images in {len(lines_by_pass)} passes"
        step = "raise pilot, or look at what was refused"
        raise FcaError("pilot", sample, f"{processes + 2} or more passes", step)

    # of each pass: the mean over its images
    seconds = np.array([np.mean([line["seconds"] for line in pass_lines]) for pass_lines in warm_passes])
    sizes = np.array([np.mean([_bytes(folder, line) for line in pass_lines]) for pass_lines in warm_passes])
    images_per_pass = float(np.mean([len(pass_lines) for pass_lines in warm_passes]))
    passes_left = left / images_per_pass

    # Each total is the mean over passes times the number of images left, with a 95 % interval. The interval also covers
    # how much the passes left vary by chance, for which `total` needs their number.
    hours = total(seconds / 3600, left, passes_left)
    gigabytes = total(sizes / 1e9, left, passes_left)
    return Estimate(len(lines), left, processes, hours, gigabytes)


def total(means: Float[np.ndarray, " drawn"], images: int, passes: int | float) -> Total:
    """The sum over images that were not drawn, with a 95 % prediction interval.

        images · (m ± t s sqrt(1/n + 1/passes)),   m, s: mean and standard deviation over n drawn passes

    t is the 97.5 % quantile of Student's distribution with n - 1 degrees of freedom. The first term under the root is
    the uncertainty of the mean of the sample, the second the variation of the passes to come.

    means:          for each drawn pass, the mean over its images (of seconds, of bytes).
    images, passes: how many images and passes are not drawn yet.

    >>> low, high = total(np.array([1.0, 2.0, 3.0]), 100, 25)[1:]
    >>> round(low), round(high)
    (-63, 463)
    """
    n = len(means)
    mean = float(np.mean(means))
    half_width = float(t.ppf(0.975, n - 1) * np.std(means, ddof=1) * np.sqrt(1 / n + 1 / passes))
    return images * mean, images * (mean - half_width), images * (mean + half_width)


def _bytes(folder: Folder, line: Line) -> int:
    """The size of an image's files, its masks included."""
    files = (line[name] for name in ("file", "mask", "full_mask"))
    return sum((folder.root / path).stat().st_size for path in files if path)


def _with_interval(total: Total) -> str:
    """A total with its interval, cut at 0: no cost is negative."""
    middle, low, high = total
    return f"{_number(middle)} [{_number(max(low, 0.0))}, {_number(high)}]"


def _number(value: float) -> str:
    """A number with two decimals; below 1 with two significant digits."""
    return f"{value:,.2f}" if value >= 1 or not value else f"{value:.2g}"
