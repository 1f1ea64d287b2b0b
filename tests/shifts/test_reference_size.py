"""Photographs above 96 pixels are corrupted as ImageNet-C was made: after Resize 256 and CenterCrop 224."""

import imagecorruptions
import numpy as np
import pytest
import skimage.data
from PIL import Image

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()

from sklearn.datasets import load_sample_image  # noqa: E402
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize  # noqa: E402

from fca.data.pixels import geometry_under, shifted  # noqa: E402
from fca.geometry import ResizeCrop  # noqa: E402
from fca.shifts import Clean  # noqa: E402
from fca.shifts.corruption import Corruption, corrupted  # noqa: E402
from fca.types import keyed_rng  # noqa: E402
from tests.support.photographs import data_of, photograph  # noqa: E402

IMAGENET_C = Compose([Resize(256, InterpolationMode.BILINEAR), CenterCrop(224)])
NETWORK = ResizeCrop(224, 0.875, "bicubic")  # of most published networks


def imagenet_crop(image):
    return np.asarray(IMAGENET_C(Image.fromarray(image)))


def rms(changed, clean):
    return np.sqrt(np.mean((changed.astype(float) - clean) ** 2))


def at_input(image, shift, network=NETWORK):
    """What a network is given of one image."""
    return geometry_under(shift, network)(shift.reader(data_of([image]))(0))[0]


# Which images are brought to the reference size: each by its own shorter side.


@pytest.mark.parametrize("shape", [(97, 97), (97, 300), (300, 97), (150, 200), (224, 224), (375, 500), (640, 427)])
def test_an_image_above_96_pixels_is_corrupted_after_torchvision_s_resize_256_and_crop_224(shape):
    image, shift = photograph(*shape), Corruption("gaussian_noise", 3)
    expected = corrupted(imagenet_crop(image), "gaussian_noise", 3, keyed_rng(0, "test/00000", shift.label()))
    np.testing.assert_array_equal(shift.reader(data_of([image]))(0), expected)


@pytest.mark.parametrize("shape", [(32, 32), (96, 96), (96, 300), (300, 64)])
def test_an_image_up_to_96_pixels_is_corrupted_as_it_is_stored(shape):
    image, shift = photograph(*shape), Corruption("gaussian_noise", 3)
    expected = corrupted(image, "gaussian_noise", 3, keyed_rng(0, "test/00000", shift.label()))
    np.testing.assert_array_equal(shift.reader(data_of([image]))(0), expected)
    np.testing.assert_array_equal(at_input(image, shift), NETWORK(expected)[0])


def test_of_a_set_of_mixed_sizes_each_image_is_decided_by_its_own():
    images = [photograph(64, 64), photograph(300, 200), photograph(96, 97), photograph(97, 98)]
    read = Corruption("contrast", 2).reader(data_of(images))
    assert [read(i).shape[:2] for i in range(4)] == [(64, 64), (224, 224), (96, 97), (224, 224)]


def test_a_grey_photograph_stays_grey_at_the_reference_size():
    grey = photograph(300, 200).mean(axis=2, keepdims=True).astype(np.uint8).repeat(3, 2)
    changed = Corruption("defocus_blur", 3).reader(data_of([grey]))(0)
    assert np.ptp(changed.astype(int), axis=2).max() <= 1  # a rounding of three equal values


@pytest.mark.parametrize("shape", [(375, 500), (97, 97)])
def test_stored_keeps_the_file_s_own_size_and_the_network_s_own_geometry(shape):
    image, shift = photograph(*shape), Corruption("gaussian_noise", 3, at="stored")
    expected = corrupted(image, "gaussian_noise", 3, keyed_rng(0, "test/00000", shift.label()))
    np.testing.assert_array_equal(at_input(image, shift), NETWORK(expected)[0])


def test_a_mask_is_cut_as_its_image():
    image = np.zeros((300, 400, 3), np.uint8)
    mask = np.zeros((300, 400), bool)
    mask[60:180, 150:260] = True
    image[mask] = 255
    data = data_of([image])
    object.__setattr__(data, "mask", lambda _: mask)
    for at, shape in (("reference", (224, 224)), ("stored", (300, 400))):
        view = shifted(data, Corruption("brightness", 1, at=at), "test")
        found = view.mask(0)
        assert found.shape == view.read(0).shape[:2] == shape
        # resized by nearest pixel and bilinearly: apart along the outline only, about 350 of 50,176 pixels
        assert (found != (view.read(0)[..., 0] > 140)).mean() < 0.01


# What a network is given.


@pytest.mark.parametrize("network", [NETWORK, ResizeCrop(224, 0.875, "bilinear")])
def test_no_margin_is_cut_twice(network):
    """A network of 224 pixels that crops 256 is given the reference's own pixels, as in the papers on ImageNet-C."""
    image, shift = photograph(375, 500), Corruption("jpeg_compression", 3)
    np.testing.assert_array_equal(at_input(image, shift, network), shift.reader(data_of([image]))(0))


@pytest.mark.parametrize(("size", "crop_pct", "side"), [(128, 0.875, 128), (160, 0.7, 200), (224, 1.0, 224)])
def test_the_field_of_view_is_that_of_the_clean_image_or_all_that_the_reference_shows(size, crop_pct, side):
    assert ResizeCrop(size, crop_pct).after_crop(0.875).side == side


def test_without_a_corruption_the_input_is_nearly_that_of_the_clean_image():
    image = photograph(375, 500)
    once, twice = (
        geometry_under(Corruption("fog", 1), NETWORK)(imagenet_crop(image))[0],
        NETWORK(imagenet_crop(image))[0],
    )
    clean = NETWORK(image)[0]
    # one resize is bilinear, the other bicubic; cutting the margin twice enlarges the object by an eighth
    assert rms(once, clean) < 6
    assert rms(twice, clean) > 30


def test_other_shifts_and_other_geometries_are_left_alone():
    class Own:
        key, size = "own", 8

        def __call__(self, image, mask=None):
            return image[:8, :8], mask

    assert geometry_under(Clean(), NETWORK) is NETWORK
    assert geometry_under(Corruption("fog", 1, at="stored"), NETWORK) is NETWORK
    own = geometry_under(Corruption("fog", 1), Own())
    assert (own.size, own(photograph(120, 120))[0].shape) == (8, (8, 8, 3))
    assert own.key != Own.key, "cached apart"


# As strong as ImageNet-C's, whatever the size of the file.

CHEAP = ("gaussian_noise", "shot_noise", "defocus_blur", "contrast", "pixelate", "jpeg_compression")


@pytest.mark.parametrize("kind", CHEAP)
def test_photographs_are_changed_as_much_as_by_imagecorruptions_at_224_pixels(kind):
    np.random.seed(0)  # noqa: NPY002  imagecorruptions draws from the global generator
    for image in (load_sample_image("flower.jpg"), skimage.data.astronaut(), photograph(375, 500)):
        crop = imagenet_crop(image)
        theirs = rms(imagecorruptions.corrupt(crop, 3, kind), crop)
        # noise: 150,000 draws, a standard error of 0.2 %; the others draw nothing, and are apart by one level at most
        assert rms(at_input(image, Corruption(kind, 3)), crop) == pytest.approx(theirs, rel=0.02)


@pytest.mark.parametrize(("kind", "share"), [("gaussian_noise", 0.65), ("jpeg_compression", 0.85)])
def test_of_a_large_stored_image_the_resize_averages_the_change_away(kind, share):
    image = photograph(375, 500)
    stored = rms(at_input(image, Corruption(kind, 3, at="stored")), NETWORK(image)[0])
    reference = rms(at_input(image, Corruption(kind, 3)), imagenet_crop(image))
    assert stored < share * reference
