import io

import numpy as np
import pytest
from PIL import Image

from fca.data.files import decode, decode_mask, upright_size
from fca.types import UnreadableImage
from tests.support.trees import encoded

RGB = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def test_rgb_is_kept_as_it_is():
    assert (decode(encoded(Image.fromarray(RGB), "PNG"), "a.png") == RGB).all()


def test_pixels_may_be_written_on():
    assert decode(encoded(Image.fromarray(RGB), "PNG"), "a.png").flags.writeable


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(kind):
    grey = np.array([[0, 257, 32896, 65535]], np.uint16)
    assert decode(encoded(Image.fromarray(grey), kind), "a")[0, :, 0].tolist() == [0, 1, 128, 255]


def test_sixteen_bit_pgm_is_scaled_too():
    assert decode(b"P5 3 1 65535\n\x00\x00\x80\x80\xff\xff", "a.pgm")[0, :, 1].tolist() == [0, 128, 255]


def test_transparent_parts_show_white():
    rgba = np.zeros((1, 3, 4), np.uint8)
    rgba[0, :, 3] = 0, 128, 255
    assert decode(encoded(Image.fromarray(rgba), "PNG"), "a")[0, :, 0].tolist() == [255, 127, 0]


def test_a_transparent_palette_entry_shows_white():
    image = Image.fromarray(np.array([[0, 1]], np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert decode(encoded(image, "PNG", transparency=1), "a")[0].tolist() == [[10, 20, 30], [255, 255, 255]]


def test_grey_with_alpha_shows_white():
    image = Image.fromarray(np.array([[[0, 0], [7, 255]]], np.uint8), "LA")
    assert decode(encoded(image, "PNG"), "a")[0, :, 0].tolist() == [255, 7]


@pytest.mark.parametrize("mode", ["L", "1", "P"])
def test_other_modes_become_what_pillow_shows(mode):
    image = Image.fromarray(RGB).convert(mode)
    assert (decode(encoded(image, "PNG"), "a") == np.asarray(image.convert("RGB"))).all()


def test_cmyk_becomes_rgb():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red, green, blue = decode(encoded(image, "JPEG", quality=95), "a").reshape(-1, 3).mean(axis=0)
    assert red > 240
    assert green < 15
    assert blue < 15


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(orientation):
    inverse = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]  # Pillow's Transpose values
    upright = Image.fromarray(RGB)
    stored = upright if inverse is None else upright.transpose(Image.Transpose(inverse))
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(stored, "PNG", exif=exif)
    assert (decode(content, "a.png") == RGB).all()
    assert upright_size(content, "a.png") == (6, 9)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF"])
def test_a_truncated_file_is_named(kind):
    content = encoded(Image.fromarray(np.tile(RGB, (9, 9, 1))), kind)
    with pytest.raises(UnreadableImage, match=r"some/place/cut\.img"):
        decode(content[: len(content) // 2], "some/place/cut.img")


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_image_is_named(content):
    with pytest.raises(UnreadableImage, match=r"x/y\.png"):
        decode(content, "x/y.png")
    with pytest.raises(UnreadableImage, match=r"x/y\.png"):
        upright_size(content, "x/y.png")


@pytest.mark.parametrize(("dtype", "words"), [(np.float32, "floating point"), (np.int32, "32-bit")])
def test_pixels_without_an_agreed_range_are_refused(dtype, words):
    content = encoded(Image.fromarray(np.array([[0, 70000]], dtype)), "TIFF")
    with pytest.raises(UnreadableImage, match=f"deep.tif: {words}"):
        decode(content, "deep.tif")


def test_a_mask_is_true_on_the_object():
    content = encoded(Image.fromarray(np.array([[0, 127, 128, 255]], np.uint8)), "PNG")
    assert decode_mask(content, "m", "bright").tolist() == [[False, False, True, True]]
    assert decode_mask(content, "m", "dark").tolist() == [[True, True, False, False]]


def test_a_mask_of_zeros_and_ones_is_read_by_its_ones():
    content = encoded(Image.fromarray(np.array([[0, 1, 1]], np.uint8)), "PNG")
    assert decode_mask(content, "m", "bright").tolist() == [[False, True, True]]


def test_the_first_frame_of_an_animation_counts():
    frames = [Image.new("L", (3, 3), value) for value in (10, 200)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    assert (decode(buffer.getvalue(), "a.gif") == 10).all()
