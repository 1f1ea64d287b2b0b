import math

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as reference

from fca.training.batches import DRAWS, warp

SIZE = 12
ROUNDING = 1e-4  # sampling points are float32 in [-1, 1], off by up to SIZE * 6e-8 pixels times the steepest edge, 1


def images(n, size=SIZE):
    return torch.from_numpy(np.random.default_rng(0).random((n, 3, size, size), dtype=np.float32))


def draws(n, **columns):
    names = ("flip", "shift_x", "shift_y", "area", "aspect", "place_x", "place_y")
    return torch.stack([torch.as_tensor(columns.get(name, 0.9)).float().expand(n) for name in names], 1)


def test_a_flip_is_torchvision_s():
    shown = images(4)
    out = warp(shown, draws(4, flip=torch.tensor([0.0, 0.49, 0.5, 0.99])), flip=True, shift=0.0, scale_min=1.0)
    torch.testing.assert_close(out[:2], reference.horizontal_flip(shown[:2]), atol=ROUNDING, rtol=0)
    torch.testing.assert_close(out[2:], shown[2:], atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("size", [8, 12, 33])
def test_every_whole_pixel_shift_is_torchvision_s_pad_and_crop(size):
    reach = 2
    uniform = [(k + 0.5) / (2 * reach + 1) for k in range(2 * reach + 1)]
    shown = images(1, size)
    padded = reference.pad(shown, reach)
    for row, y in enumerate(uniform):
        for column, x in enumerate(uniform):
            out = warp(shown, draws(1, shift_x=x, shift_y=y), flip=False, shift=reach / size, scale_min=1.0)
            expected = reference.crop(padded, row, column, size, size)
            torch.testing.assert_close(out, expected, atol=ROUNDING, rtol=0)


def test_a_crop_is_torchvision_s_resized_crop_away_from_its_edge():
    shown = images(1)
    scale_min, area, place_x, place_y = 0.25, 0.0, 0.5, 1.0  # the smallest square: 6 of 12 pixels, bottom centre
    chosen = draws(1, area=area, aspect=0.5, place_x=place_x, place_y=place_y)
    out = warp(shown, chosen, flip=False, shift=0.0, scale_min=scale_min)
    expected = reference.resized_crop(shown, 6, 3, 6, 6, [SIZE, SIZE], antialias=False)
    # At its edge torchvision repeats the crop's own pixels, we blend in the image's next ones.
    torch.testing.assert_close(out[:, :, 1:-1, 1:-1], expected[:, :, 1:-1, 1:-1], atol=ROUNDING, rtol=0)


def test_crops_stay_inside_the_image_and_cover_the_asked_areas():
    n = 4000
    ones = torch.ones(n, 3, SIZE, SIZE)
    ramp = ((torch.arange(SIZE) + 0.5) / SIZE).expand(n, 3, SIZE, SIZE)
    chosen = torch.from_numpy(np.random.default_rng(1).random((n, DRAWS), dtype=np.float32))
    across = warp(ramp, chosen, flip=False, shift=0.0, scale_min=0.3)[:, 0, SIZE // 2]
    down = warp(ramp.transpose(2, 3), chosen, flip=False, shift=0.0, scale_min=0.3)[:, 0, :, SIZE // 2]
    inner = warp(ones, chosen, flip=False, shift=0.0, scale_min=0.3)[:, 0, 1:-1, 1:-1]
    torch.testing.assert_close(inner, torch.ones_like(inner), atol=ROUNDING, rtol=0)
    # The ramp's slope inside the window is the window's share of the side.
    width, height = ((line[:, 7] - line[:, 4]) * SIZE / 3 for line in (across, down))
    area, aspect = width * height, (width / height).log()
    assert area.min() > 0.3 * 0.99
    assert area.max() <= 1 + ROUNDING
    assert float(aspect.abs().max()) <= math.log(4 / 3) + 0.01
    assert float(aspect.abs().max()) > math.log(4 / 3) - 0.05
    # Areas below 3/4 fit whatever their aspect, so they are as uniform as they were drawn.
    for bound in (0.4, 0.5, 0.7):
        assert float((area < bound).double().mean()) == pytest.approx((bound - 0.3) / 0.7, abs=0.03)  # 4 deviations


def test_shifts_are_equally_likely():
    n = 6000
    dot = torch.zeros(n, 3, 5, 5)
    dot[:, :, 2, 2] = 1
    chosen = torch.from_numpy(np.random.default_rng(2).random((n, DRAWS), dtype=np.float32))
    out = warp(dot, chosen, flip=False, shift=0.4, scale_min=1.0)
    share = out[:, 0].sum(0) / n
    torch.testing.assert_close(share, torch.full((5, 5), 1 / 25), atol=0.012, rtol=0)  # 5 deviations of 6000 draws


def test_half_precision_does_not_move_the_window():
    shown, chosen = images(2, 32), draws(2, flip=0.1, shift_x=0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = warp(shown, chosen, flip=True, shift=0.125, scale_min=1.0)
    torch.testing.assert_close(out, warp(shown, chosen, flip=True, shift=0.125, scale_min=1.0))
