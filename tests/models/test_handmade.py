import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from skimage.feature import hog

from fca.types import FcaError


@pytest.fixture(scope="module")
def photo():
    """A real colour photograph, square, uint8."""
    return skimage.data.astronaut()[:256, 100:356]


def features(encoder, image):
    pixels, _ = encoder.geometry(image)
    return encoder.embed(encoder.normalise(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255))[0]


def test_hog_is_scikit_images_of_the_grey_image(model, photo):
    grey = np.asarray(Image.fromarray(photo).convert("L").convert("RGB"))
    encoder = model("hog").build()
    expected = hog(np.asarray(Image.fromarray(grey).resize((32, 32), Image.Resampling.BILINEAR))[..., 0] / 255,
                   orientations=9, pixels_per_cell=(8, 8), cells_per_block=(2, 2))  # fmt: skip
    found = features(encoder, grey)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)  # float32 against float64


def test_hog_has_blocks_times_cells_times_orientations(model, photo):
    for overrides, length in (([], 3 * 3 * 4 * 9), (["model.cell=4", "model.orientations=6"], 7 * 7 * 4 * 6)):
        assert len(features(model("hog", *overrides).build(), photo)) == length


def test_hog_does_not_see_how_bright_an_image_is(model, photo):
    encoder = model("hog").build()
    np.testing.assert_allclose(features(encoder, photo), features(encoder, photo // 2), atol=0.05)  # rounding to uint8


def test_pixels_are_the_resized_image(model, photo):
    small = np.asarray(Image.fromarray(photo).resize((16, 16), Image.Resampling.BILINEAR))
    found = features(model("pixels").build(), photo)
    np.testing.assert_allclose(found, small.transpose(2, 0, 1).ravel() / 255, atol=1e-6)


def test_grey_pixels_are_pillows_luma(model, photo):
    small = Image.fromarray(photo).resize((16, 16), Image.Resampling.BILINEAR).convert("L")
    found = features(model("pixels", "model.grey=true").build(), photo)
    np.testing.assert_allclose(found, np.asarray(small).ravel() / 255, atol=1 / 255)  # Pillow rounds to a byte


def test_a_block_must_fit_into_the_image(model):
    with pytest.raises(FcaError, match=r"model\.cell x model\.block = 20 x 2; allowed: at most input_size=32"):
        model("hog", "model.cell=20").identity()
