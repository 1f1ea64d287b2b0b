"""What corruptions are made of, each against an independent reference."""

import cv2
import numpy as np
import pytest
from imagecorruptions import corruptions as theirs
from scipy import ndimage
from skimage.transform import AffineTransform, warp

from fca.shifts.constants import constants
from fca.shifts.corruption import _sources, corrupted, elastic_transform, saturate
from fca.shifts.operations import (
    edges,
    enlarged,
    equalised,
    ice,
    plasma,
    smeared,
    to_bytes,
    to_unit,
    warped,
    wobble,
)
from fca.types import keyed_rng
from tests.support.photographs import photograph

CLOSE = 2e-5  # float32 in [0, 1] after some tens of sums, a two-hundredth of a level


@pytest.fixture
def image():
    return to_unit(photograph(60, 83))


def test_bytes_survive_the_way_to_floats_and_back():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 256, 1).repeat(3, 2)
    assert (to_bytes(to_unit(levels)) == levels).all()


@pytest.mark.parametrize("factor", [1.01, 1.11, 1.3, 3, 4.5])
def test_enlarging_is_scipy_s_zoom_cut_to_its_middle(image, factor):
    whole = ndimage.zoom(image.astype(float), (factor, factor, 1), order=1)
    top, left = ((whole.shape[i] - image.shape[i]) // 2 for i in (0, 1))
    found = enlarged(image, factor, *image.shape[:2])
    assert found == pytest.approx(whole[top : top + 60, left : left + 83], abs=CLOSE)


@pytest.mark.parametrize("angle", [-135.0, -90.0, -61.3, -45.0, 0.0, 17.9, 45.0])
def test_smearing_is_their_motion_blur(image, angle):
    assert smeared(image, 10, 4, angle) == pytest.approx(theirs._motion_blur(image, 10, 4, angle), abs=1e-4)


@pytest.mark.parametrize("mode", ["reflect", "mirror"])
def test_warping_is_scipy_s_map_coordinates_even_far_outside(image, mode):
    places = np.random.default_rng(0).uniform(-150, 220, (2, 60, 83))
    expected = [ndimage.map_coordinates(image[..., c].astype(float), places, order=1, mode=mode) for c in range(3)]
    assert warped(image, *places, mode) == pytest.approx(np.stack(expected, axis=2), abs=CLOSE)


@pytest.mark.parametrize("spread", [0.9, 6.4, 30.0, 170.8])
def test_wobble_is_a_gaussian_filter_of_noise(spread):
    noise = np.random.default_rng(5).random((2, 40, 31), dtype=np.float32) * 2.0 - 1
    expected = [7 * ndimage.gaussian_filter(part, spread, mode="reflect", truncate=3) for part in noise]
    assert wobble(40, 31, 7, spread, rng=np.random.default_rng(5)) == pytest.approx(np.stack(expected), abs=1e-5)


@pytest.mark.parametrize("severity", range(1, 6))
def test_elastic_transform_is_an_affine_warp_and_a_displacement(image, severity):
    reach, spread, jitter = constants("elastic_transform", severity, 224, 224)
    found = elastic_transform(image, reach, spread, jitter, rng=np.random.default_rng(2))
    rng = np.random.default_rng(2)
    middle, arm = np.array([41, 30]), 20  # column, row
    corners = middle + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + rng.uniform(-jitter, jitter, (3, 2))[:, ::-1]
    affine = AffineTransform.from_estimate(moved, corners)
    expected = warp(image.astype(float), affine, order=1, mode="reflect")
    noise = rng.random((2, 60, 83), dtype=np.float32) * 2.0 - 1
    shift = [reach * ndimage.gaussian_filter(part, spread, mode="reflect", truncate=3) for part in noise]
    places = np.mgrid[:60, :83] + shift
    planes = [ndimage.map_coordinates(expected[..., c], places, order=1, mode="reflect") for c in range(3)]
    apart = np.abs(found - np.stack(planes, axis=2))
    assert apart.mean() < 1e-4
    assert apart.max() < 0.05  # the noise of float32 moves places by a thousandth of a pixel


@pytest.mark.parametrize(("reach", "shape"), [(1, (9, 12)), (4, (30, 22))])
def test_glass_copies_pixel_by_pixel_from_the_bottom_right(reach, shape):
    height, width = shape
    found = _sources(height, width, reach, np.random.default_rng(1))
    rows, columns = range(reach + 1, height - reach + 1), range(reach + 1, width - reach + 1)
    down, right = np.random.default_rng(1).integers(-reach, reach, (2, len(rows), len(columns)))
    place = np.arange(height * width).reshape(shape)
    for i in reversed(range(len(rows))):
        for j in reversed(range(len(columns))):
            place[rows[i], columns[j]] = place[rows[i] + down[i, j], columns[j] + right[i, j]]
    assert (found == place.ravel()).all()


def test_edges_are_those_of_canny():
    rng = np.random.default_rng(0)
    for smooth in (1, 2, 4):
        noise = ndimage.gaussian_filter(rng.normal(0.65, 0.3, (120, 90)), smooth)
        levels = (np.where(noise < 0.68, 0, noise).clip(0, 1) * 255).astype(np.uint8)
        expected = cv2.Canny(levels, 50, 150) > 0
        assert (edges(levels, 50.0, 150.0) == expected).mean() > 0.995  # ties between equal neighbours


def test_levels_are_equalised_as_by_opencv():
    rng = np.random.default_rng(0)
    for high in (2, 20, 256):
        levels = rng.integers(0, high, (30, 40)).astype(np.uint8)
        assert np.abs(equalised(levels).astype(int) - cv2.equalizeHist(levels)).max() <= 1  # halves round either way
    assert (equalised(np.full((3, 3), 20, np.uint8)) == 20).all()


@pytest.mark.parametrize("decay", [3, 2, 1.4])
def test_clouds_have_the_spread_and_roughness_of_theirs(decay):
    found = []
    np.random.seed(0)  # noqa: NPY002  they draw from the global generator
    for draw in (
        lambda _: theirs.plasma_fractal(64, decay),
        lambda seed: plasma(64, 64, decay, rng=np.random.default_rng(seed)),
    ):
        maps = np.stack([draw(seed) for seed in range(60)])
        found.append((maps.mean(), maps.std(axis=(1, 2)).mean(), np.abs(np.diff(maps, axis=1)).mean()))
    assert found[1] == pytest.approx(found[0], rel=0.08)  # 60 maps, each of spread a fifth


def test_ice_is_as_bright_and_as_uneven_as_the_photographs():
    maps = np.stack([ice(150, 200, 1, rng=np.random.default_rng(seed)) for seed in range(5)])
    assert maps.mean() == pytest.approx(0.64, abs=0.01)
    assert maps.std(axis=(1, 2)) == pytest.approx(np.full(5, 0.12), abs=0.02)
    assert np.abs(maps[0] - maps[1]).mean() > 0.05, "each image has ice of its own"


def test_grey_turns_red_where_saturation_is_added():
    grey = np.full((1, 1, 3), 0.5, np.float32)
    assert saturate(grey, 5, 0.1)[0, 0].tolist() == pytest.approx([0.5, 0.45, 0.45])


def test_no_drop_leaves_the_image_as_it_is():
    image = photograph(8, 8)
    found = [(corrupted(image, "spatter", 1, keyed_rng(0, str(i), "")) == image).all() for i in range(20)]
    assert any(found)
    assert not all(found)
