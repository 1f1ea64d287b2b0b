"""Shifts that need the object's mask: it is ablated, noise is added to it or around it, its background is swapped.

All are of stage `input`: of batches at the model's input size, in [0, 1], before it normalises them (Hard ImageNet,
Moayeri et al. 2022, section 4; RIVAL10, arXiv:2201.10766). Formulas: docs/adr/0019-reliance.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import fft, ndimage

from fca.shifts import Clean, InputImages, Rows
from fca.types import FcaError, ImageData, Shift, keyed_rng
from fca.validation import Allowed, Seed

if TYPE_CHECKING:
    from torch import Tensor

DRAWING = 1  # raised whenever any shifted pixels change
GRAY = 0.5
ABLATIONS, REGIONS, AREAS = ("gray", "gray_box", "tile"), ("foreground", "background"), ("plain", "area_matched")
L2_SIDE = 224  # pixels a side of the images that levels of l2 noise are stated for
EVERYWHERE = np.ones((3, 3), int)  # pixels that touch at a corner are of one instance
ALL = (slice(None), slice(None))
RELEASED = "released"
Compat = Annotated[str | None, Allowed(choices=(RELEASED,))]

Mask = Bool[np.ndarray, "height width"]
Box = tuple[slice, slice]  # rows, columns
Sources = Int[np.ndarray, "height width"]  # which pixel is shown at each place: its number row by row, or -1 for gray


# What a configuration names


@dataclass(frozen=True)
class Ablations:
    """`shift=ablate/...`: the object is removed; who still predicts its class relies on something else.

    kinds:  gray (the object's pixels), gray_box (the box of each instance), tile (what is beside each box, repeated).
    compat: released = boxes and tiles as the authors' code has them, with its defects.
    """

    kinds: Annotated[list[str], Allowed(choices=ABLATIONS, filled=True)]
    compat: Compat = None

    def shifts(self) -> list[Shift]:
        return [Ablation(kind, None if kind == "gray" else self.compat) for kind in dict.fromkeys(self.kinds)]


@dataclass(frozen=True)
class Noises:
    """`shift=noise/...`: the same normal noise on the object and on all but the object, for relative sensitivity.

    regions:  foreground, background.
    gaussian: standard deviations of a pixel's noise.    l2: norms of the noise of an image of 224 pixels a side.
    areas:    plain, or area_matched: only on parts of equal size of object and background.
    draws:    of the noise, each a run.    seed: of all draws.
    compat:   released = an l2 norm is not scaled to the input size.
    """

    regions: Annotated[list[str], Allowed(choices=REGIONS, filled=True)]
    gaussian: Annotated[list[float], Allowed(above=0)]
    l2: Annotated[list[float], Allowed(above=0)]
    areas: Annotated[list[str], Allowed(choices=AREAS, filled=True)]
    draws: Annotated[int, Allowed(1, 100)]
    seed: Seed
    compat: Compat = None

    def shifts(self) -> list[Shift]:
        """All of a draw together, so that its noise is drawn once. Raises FcaError without any level."""
        levels = [("gaussian", level) for level in self.gaussian] + [("l2", level) for level in self.l2]
        if not levels:
            raise FcaError("shift.gaussian and shift.l2", "[]", "at least one level", "e.g. shift.gaussian=[0.25]")
        return [
            Noise(region, kind, level, area == "area_matched", draw, self.seed, self.compat if kind == "l2" else None)
            for draw in range(1, self.draws + 1)
            for area in dict.fromkeys(self.areas)
            for kind, level in levels
            for region in dict.fromkeys(self.regions)
        ]


@dataclass(frozen=True)
class Reliance:
    """`shift=reliance`: the images as they are, and all of these families, in one run of the model."""

    ablations: Any  # an Ablations; the types are Any so that a configuration may choose them
    noises: Any
    swaps: Any

    def shifts(self) -> list[Shift]:
        return [Clean(), *self.ablations.shifts(), *self.swaps.shifts(), *self.noises.shifts()]


# The shifts


class InputStage:
    """What shifts of stage `input` share: they do not change stored images."""

    def label(self) -> str:
        raise NotImplementedError

    def reader(self, data: ImageData) -> NoReturn:  # of every shift
        """Raises FcaError: only predictions show images at input size."""
        raise FcaError("shift", self.label(), "a shift of stored images", "use task=predict or task=train")


@dataclass(frozen=True)
class Ablation(InputStage):
    """One ablation; an image with an empty mask stays as it is."""

    kind: str
    compat: str | None = None

    def label(self) -> str:
        """As in tables.

        >>> Ablation("tile", "released").label()
        'ablate/tile/released'
        """
        return f"ablate/{self.kind}" + (f"/{self.compat}" if self.compat else "")

    def identity(self) -> dict[str, Any]:
        return {"ablate": self.kind, "drawing": DRAWING, **({"compat": self.compat} if self.compat else {})}

    def at_input(self, shown: InputImages, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        images, masks = shown.images(rows), shown.masks(rows)
        if self.kind == "gray":
            return images.masked_fill(masks[:, None], GRAY)
        if self.kind == "gray_box":
            boxes = one_box if self.compat else instances
            return images.masked_fill(_each(masks, lambda mask: _filled(mask, boxes(mask)))[:, None], GRAY)
        return _moved(images, _each(masks, released_tiles if self.compat else tiles))


@dataclass(frozen=True)
class Noise(InputStage):
    """clamp(x + level R n, 0, 1), n standard normal and R the region; of kind l2 with R n divided by its norm.

    area_matched: R is `matched_regions`.
    """

    region: str
    kind: str
    level: float
    area_matched: bool = False
    draw: int = 1
    seed: int = 0
    compat: str | None = None

    def label(self) -> str:
        """As in tables; the first draw has no number.

        >>> Noise("background", "l2", 60.0).label(), Noise("foreground", "gaussian", 0.25, True, 2).label()
        ('noise/background/l2/60', 'noise/foreground/gaussian/0.25/area_matched/draw2')
        """
        parts = ["noise", self.region, self.kind, f"{self.level:g}"]
        parts += ["area_matched"] if self.area_matched else []
        parts += [f"draw{self.draw}"] if self.draw > 1 else []
        return "/".join(parts + ([self.compat] if self.compat else []))

    def identity(self) -> dict[str, Any]:
        return {"noise": self.label(), "seed": self.seed, "drawing": DRAWING}

    def at_input(self, shown: InputImages, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        images, masks = shown.images(rows), shown.masks(rows)
        if self.area_matched:
            where = self._matched(shown, rows)[:, REGIONS.index(self.region)]
        else:
            where = masks if self.region == "foreground" else ~masks
        noise = shown.noise(rows, self.seed, self.draw) * where[:, None]
        if self.kind == "l2":
            norm = noise.flatten(1).norm(dim=1).clamp(min=1e-12)  # of an empty region: it stays without noise
            scale = 1.0 if self.compat else images.shape[-1] / L2_SIDE
            return (images + noise * (self.level * scale / norm)[:, None, None, None]).clamp(0, 1)
        return (images + self.level * noise).clamp(0, 1)

    def _matched(self, shown: InputImages, rows: Rows) -> Bool[Tensor, "rows 2 size size"]:
        """Both regions of each image, the same at every level."""
        ids = shown.data.items["image_id"].iloc[rows].tolist()

        def made() -> Tensor:
            seeds = iter(keyed_rng(self.seed, image_id, "area_matched") for image_id in ids)
            return _each(shown.masks(rows), lambda mask: np.stack(matched_regions(mask, next(seeds))))

        return shown.once("matched", (rows.tobytes(), self.seed), made)


@dataclass(frozen=True)
class Swap(InputStage):
    """`shift=swap/background`: the object before the background of a random image of another class.

    pasted: that image has its own object tiled out, also where its true background is known (rendered images).
    seed:   of which image gives the background.
    """

    pasted: bool = False
    seed: Seed = 0

    def shifts(self) -> list[Shift]:
        return [self]

    def label(self) -> str:
        return "swap/background/pasted" if self.pasted else "swap/background"

    def identity(self) -> dict[str, Any]:
        return {"swap": "background", "pasted": self.pasted, "seed": self.seed, "drawing": DRAWING}

    def at_input(self, shown: InputImages, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        """Raises FcaError where all images are of one class."""
        donors = self._donors(shown, rows)
        behind = None if self.pasted else shown.backgrounds(donors)
        if behind is None:
            behind = _moved(shown.images(donors), _each(shown.masks(donors), tiles))
        return shown.images(rows).where(shown.masks(rows)[:, None], behind)

    def _donors(self, shown: InputImages, rows: Rows) -> Rows:
        """For each image one of another class, by a draw of its own."""
        labels, ids = shown.data.labels, shown.data.items["image_id"]
        found = []
        for row in rows.tolist():
            others = shown.rows[labels[shown.rows] != labels[row]]
            if not len(others):
                raise FcaError("classes of the shown images", 1, "two or more", "swap backgrounds between classes")
            found.append(others[keyed_rng(self.seed, ids.iloc[row], "swap").integers(len(others))])
        return np.array(found, dtype=np.int64)


def _each(masks: Bool[Tensor, "rows size size"], work: Callable[[Mask], np.ndarray]) -> Tensor:
    """What follows from each mask by itself, back on the masks' device."""
    import torch

    return torch.from_numpy(np.stack([work(mask) for mask in masks.cpu().numpy()])).to(masks.device)


def _moved(images: Float[Tensor, "rows 3 s s"], sources: Int[Tensor, "rows s s"]) -> Float[Tensor, "rows 3 s s"]:
    """Images whose pixels come from these places."""
    where = sources.flatten(1)[:, None].expand(-1, 3, -1)
    moved = images.flatten(2).gather(2, where.clamp(min=0)).view(images.shape)
    return moved.masked_fill((sources < 0)[:, None], GRAY)


# Boxes, tiles and regions of a mask


def instances(mask: Mask) -> list[Box]:
    """The smallest box around each connected part of the object; parts that touch at a corner are one.

    >>> [(b[0].start, b[0].stop, b[1].start, b[1].stop) for b in instances(np.eye(3, dtype=bool))]
    [(0, 3, 0, 3)]
    """
    return list(ndimage.find_objects(ndimage.label(mask, EVERYWHERE)[0]))


def one_box(mask: Mask) -> list[Box]:
    """As released: one box around all instances, without its last row and column."""
    if not mask.any():
        return []
    ends = [np.flatnonzero(mask.any(axis=axis))[[0, -1]] for axis in (1, 0)]
    return [(slice(*ends[0]), slice(*ends[1]))]


def _filled(mask: Mask, boxes: list[Box]) -> Mask:
    filled = np.zeros_like(mask)
    for box in boxes:
        filled[box] = True
    return filled


def tiles(mask: Mask) -> Sources:
    """Every instance's box filled with the largest of the four tiles beside it (section 4.1).

    A tile has the size of the box, cut at the image's border and at the first pixel of another instance; of equal ones
    the first of right, left, below, above. Its copies follow each other from the edge that it touches. A box without
    any tile (its object fills the image) becomes gray.

    >>> tiles(np.array([[False, True, False, False]]))
    array([[0, 2, 2, 3]])
    """
    pixels = np.arange(mask.size).reshape(mask.shape)
    shown = pixels.copy()
    for box in instances(mask):
        best, place = np.empty((0, 0), int), shown[box]
        for free, strip, inside in zip(_outward(mask, box), _outward(pixels, box), _inward(shown, box), strict=True):
            within = ~np.logical_or.accumulate(free[:, : inside.shape[1]].any(axis=0))
            if within.sum() * len(strip) > best.size:
                best, place = strip[:, : within.sum()], inside
        wide = best.shape[1]
        place[...] = best[:, wide - 1 - np.arange(place.shape[1]) % wide] if wide else -1
    return shown


def _outward(array: np.ndarray, box: Box) -> list[np.ndarray]:
    """What is right of a box, left, below and above; column 0 touches it, and the next lie farther away."""
    down, across = box
    beside = (array[down, across.stop :], array[down, : across.start][:, ::-1])
    return [*beside, array[down.stop :, across].T, array[: down.start, across][::-1].T]


def _inward(array: np.ndarray, box: Box) -> list[np.ndarray]:
    """Four views of a box: column 0 is its right edge, its left, its lowest and its highest."""
    inside = array[box]
    return [inside[:, ::-1], inside, inside[::-1].T, inside.T]


def released_tiles(mask: Mask) -> Sources:
    """The same with the defects of the authors' code (square images).

    Parts that touch at corners are two; boxes lack their last two rows and columns; the tiles lie beside the box's
    mirror image across the diagonal, are cut wrongly where there are other objects, and an earlier box's tile may be
    copied again. Where that code stops with an error (no tile), the box stays as it is.
    """
    shown = np.arange(mask.size).reshape(mask.shape)
    for rows, columns in ndimage.find_objects(ndimage.label(mask)[0]):
        box = slice(rows.start, rows.stop - 2), slice(columns.start, columns.stop - 2)
        mirrored = box[1], box[0]
        if min(part.stop - part.start for part in box) < 1:
            continue
        found = []
        ways = zip(_outward(mask, mirrored), _outward(shown, mirrored), _inward(shown[box].T, ALL), strict=True)
        for way, (objects, strip, inside) in enumerate(ways):
            there = objects[:, : inside.shape[1]]
            wide, size = _released_cut(there, way)
            found.append((size, strip[:, :wide], inside))
        _, best, place = max(found, key=lambda one: one[0])
        if wide := best.shape[1]:
            place[...] = best[:, np.arange(place.shape[1])[::-1] % wide].copy()
    return shown


def _released_cut(there: Mask, way: int) -> tuple[int, int]:
    """Columns of a tile that the authors' code takes, and the size by which it chooses.    way: as in `_outward`."""
    long, wide = there.shape
    if not there.any():
        return wide, long * wide
    # sums over the wrong axis to the left and below; what is outward in the strip runs the other way to the left, above
    along = np.atleast_1d(there.any(axis=1 if way in (1, 2) else 0))[:: -1 if way == 3 else 1]
    if way in (0, 2):
        cut = next((cut for cut in range(wide) if not along[: wide - cut].any()), 0)
        return cut, cut * long
    cut = next((cut for cut in range(wide) if not along[cut:].any()), 0)
    return wide - cut, cut * long


def matched_regions(mask: Mask, rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Parts of the object and of the background that are equally large: one is the other, moved.

    With a translation t on the torus, mask minus (mask - t) is moved by t onto (mask + t) minus mask. Of all t one
    with the largest parts is drawn: the whole object where a copy of it fits beside it.

    >>> [part.tolist() for part in matched_regions(np.array([[True, True, False]]), np.random.default_rng(0))]
    [[[True, False, False]], [[False, False, True]]]
    """
    spectrum = fft.rfft2(mask.astype(np.float64))
    overlap = np.rint(fft.irfft2(spectrum * spectrum.conj(), mask.shape))
    best = np.flatnonzero(overlap.ravel() == overlap.min())
    t = np.unravel_index(best[rng.integers(len(best))], mask.shape)
    moved = np.roll(mask, t, (0, 1))
    return mask & ~np.roll(mask, (-t[0], -t[1]), (0, 1)), moved & ~mask
