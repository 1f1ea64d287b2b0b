import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fca.geometry import INTERPOLATIONS, ResizeCrop
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError, Geometry

declare_torchvision_ops()
from timm.data.transforms_factory import transforms_imagenet_eval  # noqa: E402

sides = st.integers(1, 90)


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@settings(deadline=None, max_examples=60)
@given(sides, sides, st.integers(1, 40), st.floats(0.3, 1), st.sampled_from(sorted(INTERPOLATIONS)), st.booleans())
def test_pixels_equal_timms_evaluation_transform(height, width, size, crop_pct, interpolation, squash):
    image = noise(height, width)
    mode = "squash" if squash else "center"
    reference = transforms_imagenet_eval(size, crop_pct, mode, interpolation=interpolation, normalize=False)
    ours, _ = ResizeCrop(size, crop_pct, interpolation, squash)(image)
    np.testing.assert_array_equal(ours, reference(Image.fromarray(image)).permute(1, 2, 0).numpy())


@given(sides, sides, st.integers(1, 40), st.floats(0.3, 1), st.booleans())
def test_a_mask_is_cut_like_its_image(height, width, size, crop_pct, squash):
    mask = noise(height, width)[..., 0] > 127
    image = np.repeat(mask[..., None].astype(np.uint8) * 255, 3, axis=2)
    pixels, cut = ResizeCrop(size, crop_pct, "nearest", squash)(image, mask)
    np.testing.assert_array_equal(pixels[..., 0] == 255, cut)


def test_an_image_of_input_size_is_unchanged():
    image = noise(32, 32)
    for interpolation in INTERPOLATIONS:
        np.testing.assert_array_equal(ResizeCrop(32, 1.0, interpolation)(image)[0], image)


def test_the_result_can_be_written_to():
    pixels, mask = ResizeCrop(8)(noise(9, 12), np.ones((9, 12), bool))
    assert pixels.flags.writeable
    assert mask.flags.writeable


def test_the_key_tells_apart_what_gives_other_pixels():
    """The keys are names of cache files: they must not change."""
    keys = [g.key for g in (ResizeCrop(32), ResizeCrop(224, 0.875, "bicubic"), ResizeCrop(224, 0.875, "bicubic", True))]
    assert keys == ["32-32-bilinear", "224-256-bicubic", "224-256-bicubic-squash"]
    assert isinstance(ResizeCrop(32), Geometry)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0,), "input_size = 0; allowed: at least 1 pixel"),
        ((32, 1.5), "crop_pct = 1.5; allowed: above 0 and at most 1"),
        ((32, 1.0, "cubic"), "interpolation = cubic; allowed: nearest, box, bilinear"),
    ],
)
def test_values_out_of_range_are_named(values, said):
    with pytest.raises(FcaError, match=said):
        ResizeCrop(*values)
