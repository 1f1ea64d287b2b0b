"""Ablations, noise and swaps by masks against literal loops, at borders, on empty and full masks, in any batch."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fca.studies.reliance import ablation
from fca.studies.reliance.ablation import (
    Ablation,
    Ablations,
    Noise,
    Noises,
    Swap,
    instances,
    matched_regions,
    tile_sources,
)
from fca.types import FcaError, ImageData, keyed_rng

SIDE = 12
MASKS = arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9)))


def mask_of(*boxes, side=SIDE):
    """True in these boxes: top, bottom, left, right, ends included."""
    mask = np.zeros((side, side), bool)
    for top, bottom, left, right in boxes:
        mask[top : bottom + 1, left : right + 1] = True
    return mask


KINDS = {
    "one": mask_of((3, 5, 4, 8)),
    "several": mask_of((1, 2, 1, 3), (6, 9, 5, 7)),
    "at the border": mask_of((0, 2, 8, 11)),
    "empty": mask_of(),
    "full": mask_of((0, 11, 0, 11)),
}


class Invented:
    """Images of noise with given masks, four of them of class a and the rest of class b."""

    def __init__(self, masks, with_backgrounds=False):
        self._masks = torch.from_numpy(np.stack(masks))
        rng = np.random.default_rng(0)
        side = masks[0].shape[0]
        self._images = torch.from_numpy(rng.random((len(masks), 3, side, side), dtype=np.float32))
        self._backgrounds = torch.from_numpy(rng.random(self._images.shape, dtype=np.float32))
        self.with_backgrounds = with_backgrounds
        ids = [f"i{at}" for at in range(len(masks))]
        labels = np.arange(len(masks)) % 2
        self.data = SimpleNamespace(items=pd.DataFrame({"image_id": ids}), labels=labels)
        self.rows = np.arange(len(masks))

    def images(self, rows):
        return self._images[rows]

    def masks(self, rows):
        return self._masks[rows]

    def backgrounds(self, rows):
        return self._backgrounds[rows] if self.with_backgrounds else None

    def noise(self, rows, seed, draw):
        shape = self._images.shape[1:]
        drawn = [keyed_rng(seed, f"i{row}", "noise", draw).standard_normal(shape, dtype=np.float32) for row in rows]
        return torch.from_numpy(np.stack(drawn))

    def once(self, kind, key, made):
        return made()


@pytest.fixture
def shown():
    return Invented(list(KINDS.values()))


def at_input(shift, shown, rows=None):
    return shift.at_input(shown, shown.rows if rows is None else np.array(rows)).numpy()


def neighbours_box(mask):
    """The boxes of parts that are joined by any of the eight neighbours, by flooding."""
    left, boxes = {tuple(at) for at in np.argwhere(mask)}, []
    while left:
        seen, front = set(), [min(left)]
        while front:
            r, c = front.pop()
            if (r, c) in left:
                left.remove((r, c))
                seen.add((r, c))
                front += [(r + i, c + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        rows, columns = zip(*seen, strict=True)
        boxes.append((min(rows), max(rows), min(columns), max(columns)))
    return sorted(boxes)


@given(MASKS)
@settings(max_examples=50, deadline=None)
def test_every_instance_has_its_own_box(mask):
    found = [(r.start, r.stop - 1, c.start, c.stop - 1) for r, c in instances(mask)]
    assert sorted(found) == neighbours_box(mask)


def test_gray_paints_the_object_and_the_box_of_each_instance_and_nothing_else(shown):
    gray, boxed = at_input(Ablation("gray"), shown), at_input(Ablation("gray_box"), shown)
    for at, mask in enumerate(KINDS.values()):
        inside = np.zeros_like(mask)
        for top, bottom, left, right in neighbours_box(mask):
            inside[top : bottom + 1, left : right + 1] = True
        image = shown.images([at])[0].numpy()
        for found, where in ((gray[at], mask), (boxed[at], inside)):
            assert (found[:, where] == 0.5).all()
            np.testing.assert_array_equal(found[:, ~where], image[:, ~where])


def beyond(box, way, depth):
    """The line of places that lies so far to the right (0), left, below or above (3) of a box."""
    top, bottom, left, right = box
    if way < 2:
        return [(r, right + depth if way == 0 else left - 1 - depth) for r in range(top, bottom)]
    return [(bottom + depth if way == 2 else top - 1 - depth, c) for c in range(left, right)]


def tiled_by_loops(mask):
    """The paper's words, pixel by pixel: the number of the pixel that is shown at each place, -1 for gray."""
    height, width = mask.shape
    shown = np.arange(mask.size).reshape(mask.shape)
    free = {(r, c) for r in range(height) for c in range(width) if not mask[r, c]}
    for top, bottom, left, right in [(r.start, r.stop, c.start, c.stop) for r, c in instances(mask)]:
        tall, wide, best = bottom - top, right - left, (0, 0, 0)
        for way, (most, long) in enumerate([(wide, tall), (wide, tall), (tall, wide), (tall, wide)]):
            lines = [set(beyond((top, bottom, left, right), way, depth)) <= free for depth in range(most)]
            depth = (*lines, False).index(False)
            best = max(best, (depth * long, depth, way), key=lambda one: one[0])
        size, depth, way = best
        for r, c in [(r, c) for r in range(top, bottom) for c in range(left, right)] if size else []:
            source = [
                (r, right + (c - right) % depth),
                (r, left - depth + (c - left) % depth),
                (bottom + (r - bottom) % depth, c),
                (top - depth + (r - top) % depth, c),
            ][way]
            shown[r, c] = np.ravel_multi_index(source, mask.shape)
        if not size:
            shown[top:bottom, left:right] = -1
    return shown


@given(MASKS)
@settings(max_examples=150, deadline=None)
def test_tiles_are_those_of_a_literal_loop(mask):
    np.testing.assert_array_equal(tile_sources(mask), tiled_by_loops(mask))


@pytest.mark.parametrize("kind", ["one", "several", "at the border", "empty"])
def test_no_object_pixel_is_left_after_tiling(kind):
    mask = KINDS[kind]
    assert not mask.ravel()[tile_sources(mask).ravel()].any()


def test_an_object_that_fills_the_image_is_tiled_with_gray(shown):
    assert (at_input(Ablation("tile"), shown)[4] == 0.5).all()
    np.testing.assert_array_equal(at_input(Ablation("tile"), shown)[3], shown.images([3])[0])  # and an empty mask stays


def released_by_loops(image, mask):
    """One instance, no other object near: the released steps, rows taken for columns."""
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    x0, x1, y0, y1 = rows[0], rows[-1] - 1, columns[0], columns[-1] - 1
    side = len(mask)
    found = [
        image[:, y0:y1, x1 : min(side, 2 * x1 - x0)],
        image[:, y0:y1, max(0, 2 * x0 - x1) : x0],
        image[:, y1 : min(side, 2 * y1 - y0), x0:x1],
        image[:, max(0, 2 * y0 - y1) : y0, x0:x1],
    ]
    assert not any(mask[part].any() for part in [np.s_[y0:y1, x1 : 2 * x1 - x0], np.s_[y1 : 2 * y1 - y0, x0:x1]])
    way = int(np.argmax([one.shape[1] * one.shape[2] for one in found]))
    tile, wide, tall = found[way], x1 - x0, y1 - y0
    filled = np.zeros((3, tall, wide), np.float32)
    for r in range(tall):
        for c in range(wide):
            source_r = r % tile.shape[1] if way != 3 else tile.shape[1] - 1 - (tall - 1 - r) % tile.shape[1]
            source_c = c % tile.shape[2] if way != 1 else tile.shape[2] - 1 - (wide - 1 - c) % tile.shape[2]
            filled[:, r, c] = tile[:, source_r, source_c]
    out = image.copy()
    out[:, x0:x1, y0:y1] = filled.swapaxes(1, 2)
    return out


@pytest.mark.parametrize("box", [(1, 4, 6, 10), (5, 10, 0, 3), (2, 6, 9, 11), (8, 11, 2, 6), (0, 3, 7, 11)])
def test_the_released_tile_comes_from_beside_the_mirrored_box_and_leaves_a_rim(box):
    shown = Invented([mask_of(box), mask_of((0, 1, 0, 1))])
    image = shown.images([0])[0].numpy()
    found = at_input(Ablation("tile", "released"), shown, [0])[0]
    np.testing.assert_array_equal(found, released_by_loops(image, mask_of(box)))
    _, bottom, left, right = box
    np.testing.assert_array_equal(found[:, bottom, left : right + 1], image[:, bottom, left : right + 1])


def test_the_released_gray_box_is_one_for_all_instances_without_its_last_row_and_column():
    shown = Invented([KINDS["several"], KINDS["empty"]])
    changed = (at_input(Ablation("gray_box", "released"), shown) == 0.5).all(axis=1)
    assert (changed[0] == mask_of((1, 8, 1, 6))).all()
    assert not changed[1].any()


@given(MASKS, st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_matched_regions_are_equal_parts_of_object_and_background_as_large_as_any_translation_allows(mask, seed):
    inside, outside = matched_regions(mask, np.random.default_rng(seed))
    assert inside.sum() == outside.sum()
    assert not (inside & ~mask).any()
    assert not (outside & mask).any()
    height, width = mask.shape
    ways = [np.roll(mask, (r, c), (0, 1)) for r in range(height) for c in range(width)]
    assert outside.sum() == max((way & ~mask).sum() for way in ways)
    assert any((np.roll(inside, (r, c), (0, 1)) == outside).all() for r in range(height) for c in range(width))


def test_gaussian_noise_is_that_of_a_loop_and_the_same_on_both_regions(shown):
    both = {region: at_input(Noise(region, "gaussian", 0.25, seed=3), shown) for region in ablation.REGIONS}
    for at, mask in enumerate(KINDS.values()):
        image = shown.images([at])[0].numpy()
        noise = keyed_rng(3, f"i{at}", "noise", 1).standard_normal(image.shape, dtype=np.float32)
        noisy = np.clip(image + np.float32(0.25) * noise, 0, 1)
        np.testing.assert_allclose(both["foreground"][at], np.where(mask, noisy, image), atol=1e-7)
        np.testing.assert_allclose(both["background"][at], np.where(mask, image, noisy), atol=1e-7)


def test_l2_noise_has_the_norm_of_its_level_before_it_is_cut_scaled_to_the_side(shown):
    level, compat = 4.0, Noise("foreground", "l2", 4.0, compat="released")
    shown._images = torch.full_like(shown._images, 0.5)
    for shift, norm in ((Noise("foreground", "l2", 40.0), 40 * SIDE / 224), (compat, level)):
        for at in (0, 4):
            noise = keyed_rng(0, f"i{at}", "noise", 1).standard_normal((3, SIDE, SIDE), dtype=np.float32)
            noise *= list(KINDS.values())[at]
            expected = np.clip(0.5 + norm * noise / np.linalg.norm(noise), 0, 1)
            np.testing.assert_allclose(at_input(shift, shown, [at])[0], expected, atol=1e-6)
    np.testing.assert_array_equal(at_input(compat, shown, [3]), shown.images([3]))  # 0 / 0 in the released code


def test_the_background_is_that_of_another_class_without_its_object(shown):
    labels, rows = shown.data.labels, shown.rows
    swapped = at_input(Swap(), shown)
    donors = Swap()._draw_donors(shown, rows)
    assert (labels[donors] != labels).all()
    for at, donor in enumerate(donors):
        sources = tile_sources(shown.masks([donor])[0].numpy())
        behind = shown.images([donor])[0].numpy().reshape(3, -1)[:, sources.ravel()].reshape(3, SIDE, SIDE)
        behind[:, sources < 0] = 0.5
        mask = shown.masks([at])[0].numpy()
        np.testing.assert_array_equal(swapped[at], np.where(mask, shown.images([at])[0].numpy(), behind))


def test_a_known_background_is_used_unless_pasting_is_asked_for():
    shown = Invented(list(KINDS.values()), with_backgrounds=True)
    donors = Swap()._draw_donors(shown, shown.rows)
    exact = torch.where(shown.masks(shown.rows)[:, None], shown.images(shown.rows), shown.backgrounds(donors))
    np.testing.assert_array_equal(at_input(Swap(), shown), exact)
    assert not np.array_equal(at_input(Swap(pasted=True), shown), exact)


def test_one_class_has_no_other_to_swap_with(shown):
    shown.rows = np.array([0, 2])
    with pytest.raises(FcaError, match=r"classes of the shown images = 1; allowed: two or more"):
        at_input(Swap(), shown)


EVERY = [
    *Ablations(list(ablation.ABLATIONS)).shifts(),
    *Ablations(list(ablation.ABLATIONS), "released").shifts()[1:],
    *Noises(["foreground", "background"], [0.25], [60.0], ["plain", "area_matched"], 2, 0).shifts(),
    Swap(),
]


@pytest.mark.parametrize("shift", EVERY, ids=lambda shift: shift.label())
def test_an_image_is_changed_alike_in_any_batch_and_stays_in_range(shift, shown):
    together = at_input(shift, shown)
    assert np.isfinite(together).all()
    assert together.min() >= 0
    assert together.max() <= 1
    for order in ([4, 1, 0], [2], [3]):
        np.testing.assert_allclose(at_input(shift, shown, order), together[order], atol=1e-6)


def test_every_shift_has_an_identity_and_a_label_of_its_own():
    assert len({shift.label() for shift in EVERY}) == len(EVERY)
    assert len({str(shift.identity()) for shift in EVERY}) == len(EVERY)
    assert [shift.label() for shift in Noises(["background"], [0.25], [], ["plain"], 2, 0).shifts()] == [
        "noise/background/gaussian/0.25",
        "noise/background/gaussian/0.25/draw2",
    ]


def test_noise_without_a_level_and_stored_images_are_refused():
    with pytest.raises(FcaError, match=r"shift.gaussian and shift.l2 = \[\]"):
        Noises(["background"], [], [], ["plain"], 1, 0).shifts()
    with pytest.raises(FcaError, match=r"shift = ablate/gray; allowed: a shift of stored images"):
        Ablation("gray").reader(ImageData("none", pd.DataFrame(), (), "", lambda _: None))
