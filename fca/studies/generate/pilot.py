"""What the rest of a plan will take, from a few of its images that are drawn and timed first."""

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

LEAST = 3  # passes behind the first one of each process, which warms up
Total = tuple[float, float, float]
"""A sum over the images that are left, and its 95 % interval."""


@dataclass(frozen=True)
class Estimate:
    """What the images that are left will take.

    drawn: images of the pilot.    images: that are left.    processes: that draw side by side.
    hours: of all devices together.    gigabytes: on disk.
    """

    drawn: int
    images: int
    processes: int
    hours: Total
    gigabytes: Total

    def text(self, image_price: float | None, hour_price: int | float | None) -> str:
        """Lines for a person; `*_price`: money an image, and an hour of a device; None = not known."""
        wall = [hours / self.processes for hours in self.hours]
        lines = [f"{self.drawn:,} drawn, timed and kept; the {self.images:,} that are left take, with 95 % intervals:"]
        side = f"; {_number(wall[0])} hours with {self.processes} side by side" if self.processes > 1 else ""
        lines += [f"  hours of a device: {_shown(self.hours)}{side}", f"  GB on disk: {_shown(self.gigabytes)}"]
        fixed = (image_price or 0.0) * self.images
        money: Total = tuple(fixed + (hour_price or 0.0) * hours for hours in self.hours)  # type: ignore[assignment]
        unknown = [] if image_price is not None else ["images at an unknown price"]
        unknown += [] if hour_price is not None or image_price else ["hours at an unknown price: set hour_price"]
        return "\n".join([*lines, f"  money: {', '.join([_shown(money), *unknown])}"])


def pilot(
    plan: Plan, generator: Generator, folder: Folder, budget: Budget, writer: Writer | None, workers: int, images: int
) -> Estimate:
    """Draw some images of those that are left, at random, and keep them; what the rest will take.

    Raises FcaError for too few images, and what `generate` raises.
    """
    before = folder.journal.lines()
    wanted = outstanding(with_descriptions(plan.resolved(), before), folder, before)
    room = budget.room(len(wanted), drawn_in(before))
    processes, size = processes_of(generator, room, workers), pass_size(generator)
    least = (processes + LEAST) * size
    if not least <= images < len(wanted):
        allowed = f"{least:,} to {len(wanted) - 1:,}: {LEAST} passes of {size} beyond the first of each process"
        raise FcaError("pilot", images, allowed, "take another number")
    places = np.random.default_rng(plan.seed).choice(len(wanted), images, replace=False)
    keys = {wanted[place].key for place in places}
    generate(plan, generator, folder, budget, writer, workers, keys)
    drawn = [line for line in folder.journal.lines()[len(before) :] if line["kind"] == "image"]
    return estimate(drawn, folder, len(wanted) - len(drawn), processes)


def estimate(lines: Sequence[Line], folder: Folder, left: int, processes: int) -> Estimate:
    """From drawn images to the sum over others.    lines: of a random sample, in the order of drawing.

    The unit is the pass: images of one pass share their seconds. The first pass of each process is left out.
    """
    passes: dict[str, list[Line]] = {}
    for line in lines:
        passes.setdefault(line["together"], []).append(line)
    warm = list(passes.values())[processes:]
    if len(warm) < 2:
        step = "raise pilot, or look at what was refused"
        raise FcaError("pilot", f"{len(lines)} images in {len(passes)} passes", f"{processes + 2} or more passes", step)
    seconds = np.array([np.mean([line["seconds"] for line in of]) for of in warm])
    sizes = np.array([np.mean([_bytes(folder, line) for line in of]) for of in warm])
    units = left / float(np.mean([len(of) for of in warm]))
    return Estimate(len(lines), left, processes, total(seconds / 3600, left, units), total(sizes / 1e9, left, units))


def total(means: Float[np.ndarray, " drawn"], images: int, passes: int | float) -> Total:
    """The sum over images that were not drawn, from the means of drawn passes, with a 95 % prediction interval.

    images·(m ± t s sqrt(1/n + 1/passes)), with mean m and standard deviation s of n drawn passes, t of n - 1 degrees
    of freedom: both the sample and the rest vary.    images, passes: of the rest.

    >>> low, high = total(np.array([1.0, 2.0, 3.0]), 100, 25)[1:]
    >>> round(low), round(high)
    (-63, 463)
    """
    n, middle = len(means), float(np.mean(means))
    reach = float(t.ppf(0.975, n - 1) * np.std(means, ddof=1) * np.sqrt(1 / n + 1 / passes))
    return images * middle, images * (middle - reach), images * (middle + reach)


def _bytes(folder: Folder, line: Line) -> int:
    files = (line[name] for name in ("file", "mask", "full_mask"))
    return sum((folder.root / path).stat().st_size for path in files if path)


def _shown(total: Total) -> str:
    middle, low, high = total
    return f"{_number(middle)} [{_number(max(low, 0.0))}, {_number(high)}]"


def _number(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 or not value else f"{value:.2g}"
