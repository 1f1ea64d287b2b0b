"""Shifts that need the object's mask: it is ablated, noise is added to it or around it, its background is swapped.

All are of stage `input`: of batches at the model's input size, in [0, 1], before it normalises them (Hard ImageNet,
Moayeri et al. 2022, section 4; RIVAL10, arXiv:2201.10766). Formulas: docs/adr/0019-reliance.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import fft, ndimage

from fca.shifts import Clean, InputImages, Rows
from fca.studies.reliance.shift_labels import AREA_MATCHED, RELEASED
from fca.types import FcaError, ImageData, Shift, keyed_rng
from fca.validation import Allowed, Seed

if TYPE_CHECKING:
    from torch import Tensor

DRAWING = 1  # raised whenever any shifted pixels change
GRAY = 0.5
ABLATIONS = ("gray", "gray_box", "tile")
REGIONS = ("foreground", "background")
L2_SIDE = 224  # pixels a side of the images that levels of l2 noise are stated for
NEIGHBOURS = np.ones((3, 3), int)  # pixels that touch at a corner are of one instance
WHOLE_ARRAY = (slice(None), slice(None))
RIGHT, LEFT, BELOW, ABOVE = range(4)  # sides of a box, in the order of `_strips_beside` and `_views_from_edges`
AREAS = ("plain", AREA_MATCHED)
Compat = Annotated[str | None, Allowed(choices=(RELEASED,))]

Mask = Bool[np.ndarray, "height width"]
Box = tuple[slice, slice]  # rows, columns
Sources = Int[np.ndarray, "height width"]  # which pixel each place takes: its number row by row, or -1 for gray


# What a configuration names


@dataclass(frozen=True)
class Ablations:
    """`shift=ablate/...`: the object is removed; a model that still predicts its class relies on something else.

    kinds:  gray (the object's pixels become gray), gray_box (the box around each connected part of it), tile (each box
            is covered by copies of what is beside it).
    compat: released = boxes and tiles as the authors' code has them, with its defects.
    """

    kinds: Annotated[list[str], Allowed(choices=ABLATIONS, non_empty=True)]
    compat: Compat = None

    def shifts(self) -> list[Shift]:
        """One shift for each kind."""
        kinds = dict.fromkeys(self.kinds)  # without repetitions, in their order
        return [Ablation(kind, None if kind == "gray" else self.compat) for kind in kinds]  # gray has no boxes


@dataclass(frozen=True)
class Noises:
    """`shift=noise/...`: normal noise on the object or around it, for the relative foreground sensitivity.

    regions:  foreground (on the object), background (around it); both get the same random numbers.
    gaussian: levels of gaussian noise: standard deviations of a pixel.
    l2:       levels of l2 noise: the norm of an image's noise, for an image of 224 pixels a side.
    areas:    plain, or area_matched: noise covers only parts of equal size of object and background.
    draws:    how often the noise is drawn; each draw is a run.
    seed:     of all draws.
    compat:   released = an l2 norm is not scaled to the input size.
    """

    regions: Annotated[list[str], Allowed(choices=REGIONS, non_empty=True)]
    gaussian: Annotated[list[float], Allowed(above=0)]
    l2: Annotated[list[float], Allowed(above=0)]
    areas: Annotated[list[str], Allowed(choices=AREAS, non_empty=True)]
    draws: Annotated[int, Allowed(1, 100)]
    seed: Seed
    compat: Compat = None

    def shifts(self) -> list[Shift]:
        """One shift for each combination of draw, area, level and region.

        Draws are the outermost loop. Shifts that follow each other then have the same noise, which is drawn once for
        all of them. Raises FcaError if there is no level of noise.
        """
        levels = [("gaussian", level) for level in self.gaussian] + [("l2", level) for level in self.l2]
        if not levels:
            raise FcaError("shift.gaussian and shift.l2", "[]", "at least one level", "e.g. shift.gaussian=[0.25]")

        shifts: list[Shift] = []
        for draw in range(1, self.draws + 1):
            for area in dict.fromkeys(self.areas):  # without repetitions
                is_matched = area == AREA_MATCHED
                for kind, level in levels:
                    compat = self.compat if kind == "l2" else None  # compat changes only l2 noise
                    for region in dict.fromkeys(self.regions):
                        shifts.append(Noise(region, kind, level, is_matched, draw, self.seed, compat))
        return shifts


@dataclass(frozen=True)
class Reliance:
    """`shift=reliance`: the images as they are, and all of these families, in one run of the model."""

    ablations: Any  # an Ablations; the types are Any so that a configuration may choose them
    noises: Any
    swaps: Any

    def shifts(self) -> list[Shift]:
        """Clean images first, then every change."""
        return [Clean(), *self.ablations.shifts(), *self.swaps.shifts(), *self.noises.shifts()]


# The shifts


class InputStage:
    """The base of shifts that change images at the model's input size (stage `input`), not stored images."""

    def label(self) -> str:
        raise NotImplementedError

    def reader(self, data: ImageData) -> NoReturn:
        """Raise FcaError: these shifts have no reader of stored images, since they need images at input size."""
        raise FcaError("shift", self.label(), "a shift of stored images", "use task=predict or task=train")


@dataclass(frozen=True)
class Ablation(InputStage):
    """One ablation; an image with an empty mask stays as it is."""

    kind: str
    compat: str | None = None

    def label(self) -> str:
        """The name of the shift in tables: ablate/KIND, with the compat behind if there is one.

        >>> Ablation("tile", "released").label()
        'ablate/tile/released'
        """
        return f"ablate/{self.kind}" + (f"/{self.compat}" if self.compat else "")

    def identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = {"ablate": self.kind, "drawing": DRAWING}
        if self.compat:
            identity["compat"] = self.compat
        return identity

    def at_input(self, shown: InputImages, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        """The images with their objects removed, in one of three ways.

        gray: the object is gray. gray_box: the box around each connected part of the object is gray. tile: each of
        these boxes is covered by copies of what is beside it.

        shown: the source of images and masks at input size.
        rows:  which images, as positions in the data's items.
        """
        images = shown.images(rows)
        masks = shown.masks(rows)
        if self.kind == "gray":
            return images.masked_fill(masks[:, None], GRAY)  # [:, None]: rows x 1 x size x size, for all channels
        if self.kind == "gray_box":
            # the authors' released code (compat) has a single box around all parts
            boxes_of = one_box if self.compat else instances
            in_boxes = _for_each_mask(masks, lambda mask: _filled(mask, boxes_of(mask)))
            return images.masked_fill(in_boxes[:, None], GRAY)

        # tile: for each pixel the number of the pixel that replaces it, -1 for gray
        sources = _for_each_mask(masks, released_tile_sources if self.compat else tile_sources)
        return _with_moved_pixels(images, sources)


@dataclass(frozen=True)
class Noise(InputStage):
    """One shift with noise: an image x gets noise in a region R (1 inside, 0 outside); n is standard normal.

    kind gaussian: clamp(x + level R n, 0, 1)
    kind l2:       clamp(x + level (size / 224) R n / norm(R n), 0, 1), without (size / 224) for compat "released"

    region:       foreground: R is the object; background: all but the object.
    area_matched: R is only a part of that region; both parts have the same size (see `matched_regions`).
    draw, seed:   which noise.
    """

    region: str
    kind: str
    level: float
    area_matched: bool = False
    draw: int = 1
    seed: int = 0
    compat: str | None = None

    def label(self) -> str:
        """The name of the shift in tables: noise/REGION/KIND/LEVEL, then what differs from the defaults.

        The first draw has no number.

        >>> Noise("background", "l2", 60.0).label(), Noise("foreground", "gaussian", 0.25, True, 2).label()
        ('noise/background/l2/60', 'noise/foreground/gaussian/0.25/area_matched/draw2')
        """
        words = ["noise", self.region, self.kind, f"{self.level:g}"]
        if self.area_matched:
            words.append(AREA_MATCHED)
        if self.draw > 1:
            words.append(f"draw{self.draw}")
        if self.compat:
            words.append(self.compat)
        return "/".join(words)

    def identity(self) -> dict[str, Any]:
        return {"noise": self.label(), "seed": self.seed, "drawing": DRAWING}

    def at_input(self, shown: InputImages, rows: Rows) -> Float[Tensor, "rows 3 size size"]:
        """The images x with standard normal noise n in a region R (1 inside, 0 outside), clamped to [0, 1].

        kind gaussian: x + level R n
        kind l2:       x + level (size / 224) R n / norm(R n), without (size / 224) for compat (the authors' code)

        Levels of l2 noise are stated for 224 pixels a side. With size / 224 the noise of a pixel is equally strong at
        every input size.

        shown: the source of images, masks and noise at input size.
        rows:  which images, as positions in the data's items.
        """
        images = shown.images(rows)
        masks = shown.masks(rows)
        if self.area_matched:  # two masks for each image, in the order of REGIONS: the object first
            region = self._matched_regions(shown, rows)[:, REGIONS.index(self.region)]
        else:
            region = masks if self.region == "foreground" else ~masks

        noise = shown.noise(rows, self.seed, self.draw) * region[:, None]
        if self.kind == "l2":
            norm = noise.flatten(1).norm(dim=1).clamp(min=1e-12)  # an empty region has norm 0: it stays without noise
            scale = 1.0 if self.compat else images.shape[-1] / L2_SIDE
            level_by_image = self.level * scale / norm
            return (images + noise * level_by_image[:, None, None, None]).clamp(0, 1)
        return (images + self.level * noise).clamp(0, 1)

    def _matched_regions(self, shown: InputImages, rows: Rows) -> Bool[Tensor, "rows 2 size size"]:
        """For each image two masks of equal size: a part of the object and a part of its background.

        They depend on the image and the seed alone, so that all levels and draws of noise cover the same pixels.
        """

        def draw_regions() -> Tensor:
            """The two masks of all images as one tensor: rows x 2 x size x size."""
            masks = shown.masks(rows)
            image_ids = shown.data.items["image_id"].iloc[rows].tolist()
            regions = []
            for mask, image_id in zip(masks.cpu().numpy(), image_ids, strict=True):
                rng = keyed_rng(self.seed, image_id, "area_matched")
                regions.append(np.stack(matched_regions(mask, rng)))
            return _stacked(regions, masks)  # on the device of the masks

        # drawn once for a batch: the shifts that follow get the same tensor
        return shown.once("matched", (rows.tobytes(), self.seed), draw_regions)


@dataclass(frozen=True)
class Swap(InputStage):
    """`shift=swap/background`: the object stands before the background of a random image of another class, the donor.

    pasted: False = the donor's background without its object is taken where the data set has it (rendered images).
            True  = it is never taken: the donor's object is always covered by tiles of what is beside it.
    seed:   of the choice of donors.
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
        """The objects of these images before the backgrounds of images of other classes (the donors).

        Raises FcaError where all images are of one class: then there is no donor.

        shown: the source of images and masks at input size.
        rows:  which images, as positions in the data's items.
        """
        donors = self._draw_donors(shown, rows)
        backgrounds = None if self.pasted else shown.backgrounds(donors)
        if backgrounds is None:  # the true background is not known, or not wanted: tile out the donor's object
            sources = _for_each_mask(shown.masks(donors), tile_sources)
            backgrounds = _with_moved_pixels(shown.images(donors), sources)
        return shown.images(rows).where(shown.masks(rows)[:, None], backgrounds)

    def _draw_donors(self, shown: InputImages, rows: Rows) -> Rows:
        """For each image the position of its donor: a random image of another class, among all images of the run.

        The random number is keyed by seed and image id, so that an image's donor does not depend on its batch. Raises
        FcaError if all images of the run are of one class.

        rows: the images of a batch, as positions in the data's items; `shown.rows` has those of all images of the run.
        """
        labels = shown.data.labels
        image_ids = shown.data.items["image_id"]
        donors: list[int] = []
        for row in rows.tolist():
            candidates = shown.rows[labels[shown.rows] != labels[row]]
            if not len(candidates):
                raise FcaError("classes of the shown images", 1, "two or more", "swap backgrounds between classes")
            rng = keyed_rng(self.seed, image_ids.iloc[row], "swap")
            donors.append(candidates[rng.integers(len(candidates))])
        return np.array(donors, dtype=np.int64)


def _for_each_mask(masks: Bool[Tensor, "rows size size"], function: Callable[[Mask], np.ndarray]) -> Tensor:
    """The function's results for each mask by itself, stacked, on the masks' device."""
    return _stacked([function(mask) for mask in masks.cpu().numpy()], masks)


def _stacked(arrays: Sequence[np.ndarray], masks: Tensor) -> Tensor:
    """The arrays as one tensor on the masks' device."""
    import torch

    return torch.from_numpy(np.stack(arrays)).to(masks.device)


def _with_moved_pixels(
    images: Float[Tensor, "rows 3 s s"], sources: Int[Tensor, "rows s s"]
) -> Float[Tensor, "rows 3 s s"]:
    """The images with each pixel replaced by another pixel of the same image, or by gray.

    sources: for each pixel the number of the pixel that replaces it, counted row by row; -1 for gray.
    """
    index = sources.flatten(1)[:, None].expand(-1, 3, -1)  # rows x channels x places
    moved = images.flatten(2).gather(2, index.clamp(min=0)).view(images.shape)  # -1 cannot be gathered; gray below
    return moved.masked_fill((sources < 0)[:, None], GRAY)


# Boxes, tiles and regions of a mask


def instances(mask: Mask) -> list[Box]:
    """The smallest box around each connected part of the object; parts that touch at a corner are one.

    >>> [(b[0].start, b[0].stop, b[1].start, b[1].stop) for b in instances(np.eye(3, dtype=bool))]
    [(0, 3, 0, 3)]
    """
    numbered, _ = ndimage.label(mask, NEIGHBOURS)  # each connected part has a number of its own
    return list(ndimage.find_objects(numbered))


def one_box(mask: Mask) -> list[Box]:
    """The box of the authors' released code: one around the whole object, but without its last row and column.

    The list has this box alone; it is empty for an empty mask.
    """
    if not mask.any():
        return []
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    return [(slice(rows[0], rows[-1]), slice(columns[0], columns[-1]))]  # the defect: the last ones are left out


def _filled(mask: Mask, boxes: list[Box]) -> Mask:
    """A mask of the shape of `mask` that is True inside these boxes and False elsewhere."""
    filled = np.zeros_like(mask)
    for box in boxes:
        filled[box] = True
    return filled


def tile_sources(mask: Mask) -> Sources:
    """For each pixel, which pixel replaces it when the box around each part of the object is covered by tiles.

    This is the tile ablation of Hard ImageNet (Moayeri et al. 2022, section 4.1). A part of the object is connected.
    The result numbers pixels row by row; a pixel outside the boxes has its own number. A tile lies right of the box,
    left of it, below or above, is as large as the box, and is cut at the image's border and at the first pixel of
    another part. The largest tile is taken, of equal ones the first in that order. Its copies follow each other from
    the edge that it touches. A box with no room for a tile on any side gets -1, which stands for gray.

    >>> tile_sources(np.array([[False, True, False, False]]))
    array([[0, 2, 2, 3]])
    """
    pixels = np.arange(mask.size).reshape(mask.shape)
    sources = pixels.copy()
    for box in instances(mask):
        # for each side of the box: the strip of the mask beside it, the same strip of pixel numbers, and the box
        # itself. Each is turned so that its column 0 is at the edge where strip and box touch
        mask_strips = _strips_beside(mask, box)
        pixel_strips = _strips_beside(pixels, box)
        box_views = _views_from_edges(sources, box)

        # the largest tile, and the box as seen from the edge that this tile touches (`target`)
        tile = np.empty((0, 0), int)  # no tile yet
        target = sources[box]
        for mask_strip, pixel_strip, box_view in zip(mask_strips, pixel_strips, box_views, strict=True):
            nearest_columns = mask_strip[:, : box_view.shape[1]]  # a tile is no larger than the box
            has_object = nearest_columns.any(axis=0)
            width = (~np.logical_or.accumulate(has_object)).sum()  # columns before the next object
            if width * len(pixel_strip) > tile.size:
                tile = pixel_strip[:, :width]
                target = box_view

        width = tile.shape[1]
        if width:
            # tile and target run in opposite directions, both from the edge where they touch: for copies that are not
            # mirrored, column 0 of the target gets the tile's last column
            tile_columns = width - 1 - np.arange(target.shape[1]) % width
            target[...] = tile[:, tile_columns]  # the target shares the memory of `sources`: this fills the box there
        else:
            target[...] = -1
    return sources


def _strips_beside(array: np.ndarray, box: Box) -> list[np.ndarray]:
    """Four views of an array: what lies right of a box, left of it, below and above, each turned the same way.

    In every view column 0 touches the box and the last column is the farthest from it.
    """
    rows, columns = box
    return [
        array[rows, columns.stop :],
        array[rows, : columns.start][:, ::-1],
        array[rows.stop :, columns].T,
        array[: rows.start, columns][::-1].T,
    ]


def _views_from_edges(array: np.ndarray, box: Box) -> list[np.ndarray]:
    """Four views of what is inside a box, whose column 0 is its right edge, its left, its bottom and its top.

    The order and the orientation are those of `_strips_beside`. The views are writable: they share the array's memory.
    """
    inside = array[box]
    return [inside[:, ::-1], inside, inside[::-1].T, inside.T]


def released_tile_sources(mask: Mask) -> Sources:
    """For each pixel, which pixel replaces it, as `tile_sources`, but as the authors' released code does it.

    The released code differs from `tile_sources` in these ways, most of which are defects:
    - Parts that touch at a corner count as two.
    - Boxes lack their last two rows and columns.
    - Tiles lie beside the mirror image of the box across the diagonal of the image, which must be square.
    - Tiles are cut wrongly where there are other objects.
    - Copies of a tile follow each other from the far edge of the box, not from the edge that the tile touches.
    - Pixels that a tile has put into an earlier box may be copied into a later one.
    Where that code stops with an error because there is no tile, the box stays as it is.
    """
    sources = np.arange(mask.size).reshape(mask.shape)
    numbered, _ = ndimage.label(mask)  # without NEIGHBOURS: only pixels that share a side are connected
    for rows, columns in ndimage.find_objects(numbered):
        box = slice(rows.start, rows.stop - 2), slice(columns.start, columns.stop - 2)
        if any(extent.stop - extent.start < 1 for extent in box):  # nothing is left of the shortened box
            continue

        # the released code confuses rows and columns: it looks for tiles beside the box with both exchanged
        mirrored_box = box[1], box[0]
        mask_strips = _strips_beside(mask, mirrored_box)
        source_strips = _strips_beside(sources, mirrored_box)
        # the box as seen from each of its sides: column 0 is at the edge that a tile on this side touches. The box is
        # transposed, so that it is as high as the strips beside the mirrored box
        box_views = _views_from_edges(sources[box].T, WHOLE_ARRAY)

        best_size = -1  # less than any size, so that the first side is taken even without a tile
        for side in (RIGHT, LEFT, BELOW, ABOVE):
            nearest_columns = mask_strips[side][:, : box_views[side].shape[1]]  # a tile is no larger than the box
            # the width of the tile on this side, and the size with which the released code compares the four sides;
            # by its defects this is not always the size of the tile
            width, compared_size = _released_cut(nearest_columns, side)
            if compared_size > best_size:
                best_size = compared_size
                tile = source_strips[side][:, :width]
                target = box_views[side]

        width = tile.shape[1]
        if width:  # otherwise there is no tile
            # the first copy begins at the far edge of the box: the target's last column gets the tile's column 0. Tile
            # and target run in opposite directions, so the copies are not mirrored
            tile_columns = np.arange(target.shape[1])[::-1] % width
            target[...] = tile[:, tile_columns].copy()  # tile and target may overlap in `sources`
    return sources


def _released_cut(objects: Mask, side: int) -> tuple[int, int]:
    """How many columns of a strip the authors' released code takes as a tile, and the size by which it compares tiles.

    In a strip without objects it takes all columns. Where there are objects, its result is wrong in several ways, which
    are reproduced here: the tile may contain objects, and the compared size may differ from the tile's area.

    objects: the mask of the strip beside the box; column 0 touches the box.
    side:    RIGHT, LEFT, BELOW or ABOVE.
    """
    height, width = objects.shape
    if not objects.any():
        return width, height * width

    # whether each column has an object. A defect: left and below the released code looks at each row instead; the
    # numbers of rows then stand for those of columns
    axis = 1 if side in (LEFT, BELOW) else 0
    has_object = np.atleast_1d(objects.any(axis=axis))  # it has one dimension already, which mypy does not see
    if side == ABOVE:  # there the released code counts columns from the far end
        has_object = has_object[::-1]

    # n_cut: the fewest columns to cut off so that the rest has no object; 0 if no number of columns is enough
    if side in (RIGHT, BELOW):
        # the last columns are cut off. A defect: the tile has as many columns as were cut off, not as remain
        n_cut = next((n for n in range(width) if not has_object[: width - n].any()), 0)
        return n_cut, n_cut * height
    # left and above the first columns are cut off (above, where they are reversed, these are the farthest), and the
    # tile has as many columns as remain. A defect: the compared size is that of the columns that were cut off
    n_cut = next((n for n in range(width) if not has_object[n:].any()), 0)
    return width - n_cut, n_cut * height


def matched_regions(mask: Mask, rng: np.random.Generator) -> tuple[Mask, Mask]:
    """A part of the object and an equally large part of the background: two masks, the second is the first moved.

    The mask is moved by a translation t on the torus: what leaves the image at one side comes back at the other. The
    background part is what the moved mask covers outside the object. The object part is the background part moved back
    by t: the pixels of the mask that the mask moved by -t does not cover. One of the translations with the largest
    parts (the least overlap of the mask and the moved mask) is drawn at random. Where a copy of the object fits beside
    it, the first part is the whole object.

    >>> [part.tolist() for part in matched_regions(np.array([[True, True, False]]), np.random.default_rng(0))]
    [[[True, False, False]], [[False, False, True]]]
    """
    # the number of pixels that mask and mask + t share, for every t: the autocorrelation of the mask
    spectrum = fft.rfft2(mask.astype(np.float64))
    power = spectrum * spectrum.conj()
    overlap = np.rint(fft.irfft2(power, mask.shape))  # rounded to the whole numbers that they are; one for each t

    least_overlap = np.flatnonzero(overlap == overlap.min())
    chosen = least_overlap[rng.integers(len(least_overlap))]
    down, across = np.unravel_index(chosen, mask.shape)
    moved_forth = np.roll(mask, (down, across), (0, 1))
    moved_back = np.roll(mask, (-down, -across), (0, 1))
    return mask & ~moved_back, moved_forth & ~mask
