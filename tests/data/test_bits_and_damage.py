"""16-bit files that use few of their bits, and JPEG files with damaged data: listed, and decoded as a key says."""

import io
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageFile

from fca.data.files import decode
from fca.data.folder import Folder
from fca.data.hf import HuggingFace
from fca.data.jpeg import damage
from fca.data.manifest import Manifest
from fca.data.webdataset import WebDataset
from fca.store import Store
from fca.tasks.describe import describe_images, findings, summary
from fca.types import UnreadableImage
from tests.support.image_samples import samples, shard
from tests.support.trees import VAL, encoded

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
FEW = "16-bit file that uses few of its bits"


def values(top, shape=(9, 7), seed=0):
    """Random values from 0 to `top`, both there."""
    found = np.random.default_rng(seed).integers(0, top + 1, shape).astype(np.uint16)
    found.flat[:2] = 0, top
    return found


def png16(pixels, colour_type):
    """A PNG of 16 bits a channel, whatever Pillow can write; colour_type: 0 grey, 2 RGB, 4 grey with alpha, 6 RGBA."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    lines = b"".join(b"\x00" + line.astype(">u2").tobytes() for line in pixels)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def tiff16(pixels, order):
    """A TIFF of 16-bit RGB without compression, of either byte order."""
    height, width = pixels.shape[:2]
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, 3, 8), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 14)]
    body = pixels.astype(f"{order}u2").tobytes()
    tags += [(277, 3, 1, 3), (278, 3, 1, height), (279, 4, 1, len(body))]
    start = {"<": b"II\x2a\x00", ">": b"MM\x00\x2a"}[order] + struct.pack(f"{order}I", 14 + len(body))
    lines = b""
    for tag, kind, count, value in tags:
        packed = struct.pack(f"{order}HH", value, 0) if (kind, count) == (3, 1) else struct.pack(f"{order}I", value)
        lines += struct.pack(f"{order}HHI", tag, kind, count) + packed
    sides = struct.pack(f"{order}3H", 16, 16, 16)  # at 8
    return start + sides + body + struct.pack(f"{order}H", len(tags)) + lines + bytes(4)


GREY = {
    "PNG": lambda pixels: encoded(Image.fromarray(pixels), "PNG"),
    "TIFF": lambda pixels: encoded(Image.fromarray(pixels), "TIFF"),
    "TIFF, big-endian": lambda pixels: encoded(Image.fromarray(pixels.astype(">u2")), "TIFF"),
    "JPEG 2000": lambda pixels: encoded(Image.fromarray(pixels), "JPEG2000"),
    "PGM": lambda pixels: encoded(Image.fromarray(pixels), "PPM"),
}
COLOURS = {
    "PNG": lambda pixels: png16(pixels, 2),
    "TIFF": lambda pixels: tiff16(pixels, "<"),
    "TIFF, big-endian": lambda pixels: tiff16(pixels, ">"),
}


def scaled(pixels, white):
    """By the definition: `white` is 255; half of a grey level rounds up."""
    return np.floor(pixels.astype(float) * 255 / white + 0.5).astype(np.uint8)


@pytest.mark.parametrize("kind", GREY)
@pytest.mark.parametrize("top", [255, 1023, 4095, 65535])
def test_white_is_the_value_that_becomes_255_in_grey(kind, top):
    pixels = values(top)
    shown = decode(GREY[kind](pixels), "a", white=top)
    assert (shown == scaled(pixels, top)[..., None]).all()


@pytest.mark.parametrize("kind", COLOURS)
@pytest.mark.parametrize("top", [255, 4095])
def test_white_is_the_value_that_becomes_255_in_colours(kind, top):
    pixels = values(top, (9, 7, 3))
    assert (decode(COLOURS[kind](pixels), "a", white=top) == scaled(pixels, top)).all()


def test_white_leaves_transparency_as_it_is():
    pixels = values(4095, (9, 7, 4))
    pixels[..., 3] = 65535
    pixels[0, 0, 3] = 0
    shown = decode(png16(pixels, 6), "a", white=4095)
    assert (shown[0, 0] == 255).all()
    assert (shown.reshape(-1, 3)[1:] == scaled(pixels[..., :3], 4095).reshape(-1, 3)[1:]).all()


def test_white_does_not_count_for_eight_bits_and_for_files_that_state_their_largest_value():
    grey = np.arange(63, dtype=np.uint8).reshape(9, 7)
    for content in (encoded(Image.fromarray(grey), kind) for kind in ("PNG", "TIFF", "BMP", "GIF")):
        assert (decode(content, "a", white=4095) == grey[..., None]).all()
    pgm = b"P5 7 9 1023\n" + values(1023).astype(">u2").tobytes()
    assert (decode(pgm, "a.pgm", white=4095) == decode(pgm, "a.pgm")).all()
    assert decode(pgm, "a.pgm").max() == 255


@pytest.mark.parametrize("content", [GREY["PNG"](values(5000)), COLOURS["PNG"](values(5000, (9, 7, 3)))])
def test_a_larger_value_than_white_is_refused_and_named(content):
    with pytest.raises(UnreadableImage, match=r"a\.png: a value of 5000, above dataset\.white=4095; take 8191 or more"):
        decode(content, "a.png", white=4095)


def test_sixteen_bits_without_a_second_byte_order_are_refused_with_white_alone():
    content = png16(values(4095, (9, 7, 2)), 4)  # grey with alpha
    assert decode(content, "a.png").shape == (9, 7, 3)
    with pytest.raises(UnreadableImage, match=r"a\.png: of 16 bits as LA;16B only 8 are read"):
        decode(content, "a.png", white=4095)


# In a data set.


def planted(root, top=4095, make=GREY["PNG"], shape=(9, 7), n=4):
    for at in range(2 * n):
        folder = root / ("cat", "dog")[at % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{at}.png").write_bytes(make(values(top, shape, seed=at)))
    return root


def listed(data):
    arrays = describe_images(data)
    return findings(data, arrays), summary(data, arrays)


@pytest.mark.parametrize(
    ("top", "white"), [(1, 1), (255, 255), (200, 255), (1023, 1023), (4095, 4095), (8191, 8191), (16383, 16383)]
)
def test_files_of_few_bits_are_listed_with_the_white_that_fits(tmp_path, top, white):
    found, row = listed(Folder(str(planted(tmp_path / "d", top)), VAL).load())
    found = found[found["finding"] == FEW]
    assert row["n_few_bits"] == len(found) == 8
    assert (
        found["detail"].str.endswith(f"no 16-bit file of the set has more than {top}: set dataset.white={white}").all()
    )
    assert found["detail"].iloc[0].startswith(f"cat/0.png: its largest value is {top} of 65535; ")


@pytest.mark.parametrize("kind", COLOURS)
def test_colours_of_few_bits_are_listed(tmp_path, kind):
    found, row = listed(Folder(str(planted(tmp_path / "d", 4095, COLOURS[kind], (9, 7, 3))), VAL).load())
    assert row["n_few_bits"] == 8
    assert found["detail"].str.contains("dataset.white=4095").all()


@pytest.mark.parametrize(("top", "number"), [(4095, 8), (65535, 0), (0, 0)])
def test_grey_of_few_bits_with_transparency_is_listed_by_its_high_bytes(tmp_path, top, number):
    def grey_with_alpha(pixels):
        return png16(np.stack([pixels, np.full_like(pixels, 65535)], axis=2), 4)

    found, row = listed(Folder(str(planted(tmp_path / "d", top, grey_with_alpha)), VAL).load())
    assert row["n_few_bits"] == number
    assert (found["finding"] == FEW).sum() == number


def test_a_dark_file_among_files_of_all_bits_is_listed_without_a_white(tmp_path):
    root = planted(tmp_path / "d", 65535)
    (root / "cat/dark.png").write_bytes(GREY["PNG"](values(4000)))
    (root / "cat/dim.png").write_bytes(GREY["PNG"](values(9000)))
    found, row = listed(Folder(str(root), VAL).load())
    assert row["n_few_bits"] == 1
    [detail] = found.loc[found["finding"] == FEW, "detail"]
    assert detail.startswith("cat/dark.png: its largest value is 4000 of 65535; others of the set have up to 65535")
    assert "dataset.white" not in detail


@pytest.mark.parametrize("top", [16384, 65535])
def test_files_that_use_their_bits_are_not_listed(tmp_path, top):
    assert listed(Folder(str(planted(tmp_path / "d", top)), VAL).load())[1]["n_few_bits"] == 0


def test_dark_images_of_eight_bits_are_not_listed(tmp_path):
    dark = planted(tmp_path / "d", 9, lambda pixels: encoded(Image.fromarray(pixels.astype(np.uint8)), "PNG"))
    assert listed(Folder(str(dark), VAL).load())[1]["n_few_bits"] == 0


def test_black_files_of_sixteen_bits_are_not_listed(tmp_path):
    black = planted(tmp_path / "d", 9, lambda pixels: GREY["PNG"](pixels * 0))
    assert listed(Folder(str(black), VAL).load())[1]["n_few_bits"] == 0


def folder(root, **keys):
    return Folder(str(planted(root)), VAL, **keys)


def manifest(root, **keys):
    paths = [f"{('cat', 'dog')[at % 2]}/{at}.png" for at in range(8)]
    table = pd.DataFrame({"path": paths, "label": [path[:3] for path in paths]})
    table.to_csv(planted(root) / "list.csv", index=False)
    return Manifest(str(root), "list.csv", VAL, **keys)


def contents():
    return [GREY["PNG"](values(4095, seed=at)) for at in range(8)]


def hf(root, **keys):
    root.mkdir()
    labels = [("cat", "dog")[at % 2] for at in range(8)]
    pq.write_table(pa.table({"image": contents(), "label": labels}), root / "test.parquet")
    return HuggingFace(str(root), VAL, **keys)


def webdataset(root, **keys):
    images = {f"{at}.png": content for at, content in enumerate(contents())}
    return WebDataset(shard(root / "0.tar", images | samples("01234567")), VAL, **keys)


@pytest.mark.parametrize("make", [folder, manifest, hf, webdataset])
def test_every_loader_of_files_shows_white_and_is_another_set_with_it(tmp_path, make):
    plain, usual, white = (make(tmp_path / f"{key}", white=key).load() for key in (None, 65535, 4095))
    assert usual.fingerprint == plain.fingerprint
    assert white.fingerprint != plain.fingerprint
    shown = {tuple(white.read(row)[..., 0].ravel().tolist()) for row in range(8)}
    assert shown == {tuple(scaled(values(4095, seed=at), 4095).ravel().tolist()) for at in range(8)}
    assert plain.read(0).max() == 16
    assert listed(white)[1]["n_few_bits"] == 0


@pytest.mark.parametrize("white", [0, 65536, -1])
def test_a_white_that_no_16_bit_file_has_is_refused(fca, tmp_path, white):
    words = ("task=describe", "dataset=folder", f"dataset.root={planted(tmp_path / 'd')}", "logger=none")
    code, _, errors = fca(*words, f"dataset.white={white}")
    assert code == 2
    assert f"dataset.white = {white}" in errors
    assert "at least 1, at most 65,535" in errors


# JPEG.


def photograph(seed=0, size=(160, 120)):
    """Smooth with noise, as photographs are."""
    ramp = np.add.outer(np.arange(size[0]), np.arange(size[1]))[..., None] * np.array([1, 0.5, 0.2])
    noise = np.random.default_rng(seed).normal(0, 12, (*size, 3))
    return Image.fromarray(np.clip(ramp + noise, 0, 255).astype(np.uint8))


def cut(content):
    return content[: len(content) // 2] + b"\xff\xd9"


def zeroed(content):
    third = len(content) // 3
    return content[:third] + bytes(third) + content[2 * third :]


def zeroed_to_the_end(content):
    half = len(content) // 2
    return content[:half] + bytes(len(content) - half - 2) + b"\xff\xd9"


def without_a_part(content):
    half = len(content) // 2
    return content[:half] + content[half + 500 :]


def overwritten(content):
    half = len(content) // 2
    other = np.random.default_rng(1).integers(0, 255, 500, dtype=np.uint8).tobytes()
    return content[:half] + other + content[half + 500 :]


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_rows": 1}, {"quality": 50}, {"grey": 1}]
)
@pytest.mark.parametrize("harm", [cut, zeroed, zeroed_to_the_end, without_a_part, overwritten])
def test_damaged_data_of_a_jpeg_are_found(harm, options):
    picture = photograph().convert("L") if options.get("grey") else photograph()
    whole = encoded(picture, "JPEG", **{key: value for key, value in options.items() if key != "grey"})
    assert damage(whole) == ""
    assert damage(harm(whole)).startswith("Corrupt JPEG data")


def test_no_intact_jpeg_counts_as_damaged(monkeypatch):
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 2**22)  # Pillow's buffer is too small for some of these
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "\xff\xd9" * 99
    seen = 0
    for mode in ("RGB", "L", "CMYK", "YCbCr"):
        for quality in (5, 50, 95, 100):
            for options in ({}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"optimize": True}):
                for more in (
                    {},
                    {"restart_marker_blocks": 3},
                    {"restart_marker_rows": 1},
                    {"exif": exif, "comment": b"x"},
                ):
                    content = encoded(photograph().convert(mode), "JPEG", quality=quality, **options, **more)
                    for end in (b"", bytes(300), b"trailing text", content):
                        assert damage(content + end) == "", (mode, quality, options, more, end[:9])
                        seen += 1
    assert seen == 4 * 4 * 5 * 4 * 4


def test_a_filling_before_the_end_is_no_damage():
    whole = encoded(photograph(), "JPEG")
    for filling in (b"\x00", bytes(16)):
        assert damage(whole[:-2] + filling + b"\xff\xd9") == ""


def test_pictures_of_several_frames_are_not_damaged():
    buffer = io.BytesIO()
    photograph().save(buffer, "MPO", save_all=True, append_images=[photograph(1)])
    assert damage(buffer.getvalue()) == ""


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_other_formats_are_not_looked_at(kind):
    assert damage(encoded(photograph(), kind)) == ""


def test_damaged_files_are_listed_in_the_terminal_and_not_called_unreadable(fca, tmp_path):
    for at in range(8):
        place = tmp_path / "photos" / ("cat", "dog")[at % 2] / f"{at}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        whole = encoded(photograph(at), "JPEG")
        place.write_bytes({2: cut, 5: zeroed}.get(at, bytes)(whole))
    words = ("task=describe", "dataset=folder", "dataset.root=photos", "logger=none")
    for _ in range(2):  # done, and shown again
        code, shown, errors = fca(*words)
        assert code == 0, errors
        assert "n_unreadable=0 n_damaged=2 n_few_bits=0" in shown
        assert "  2 x damaged file: cat/2.jpg: Corrupt JPEG data: premature end of data segment; dog/5.jpg: " in shown
    row = Store(tmp_path / "outputs").rows().iloc[0]
    assert row["n_damaged"] == 2


# The lines of docs/deploy.md.


def of_page():
    """The function `upright` of the page."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    imports, function = code.split("\n\n\n")[0], re.search(r"def upright.*?\n\n\n", code, re.DOTALL).group()
    names = {}
    exec(imports.replace("import onnxruntime\n", "") + "\n" + function, names)
    return names["upright"]


def turned(image, kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(image, kind, exif=exif)


RGB = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 16, 3), dtype=np.uint8))
ALPHA = Image.fromarray(np.random.default_rng(1).integers(0, 256, (24, 16, 4), dtype=np.uint8))
PAGE_READS = {
    "1 bit": encoded(RGB.convert("1"), "PNG"),
    "grey": encoded(RGB.convert("L"), "PNG"),
    "grey, JPEG": encoded(RGB.convert("L"), "JPEG"),
    "grey with alpha": encoded(ALPHA.convert("LA"), "PNG"),
    "palette": encoded(RGB.convert("P"), "PNG"),
    "palette, one colour transparent": encoded(RGB.convert("P"), "PNG", transparency=3),
    "palette, GIF": encoded(RGB.convert("P"), "GIF", transparency=3),
    "RGB": encoded(RGB, "PNG"),
    "RGB, JPEG": encoded(RGB, "JPEG"),
    "RGB, one colour transparent": encoded(RGB, "PNG", transparency=RGB.getpixel((3, 3))),
    "RGBA": encoded(ALPHA, "PNG"),
    "RGBA, WebP": encoded(ALPHA, "WEBP", lossless=True),
    "CMYK, JPEG": encoded(RGB.convert("CMYK"), "JPEG"),
    "CMYK, TIFF": encoded(RGB.convert("CMYK"), "TIFF"),
    "turned, JPEG": turned(RGB, "JPEG"),
    "turned, PNG": turned(ALPHA, "PNG"),
    "turned, 16 bits": turned(Image.fromarray(values(65535)), "PNG"),
    **{f"16 bits, {kind}": make(values(65535)) for kind, make in GREY.items()},
    **{f"16-bit colours, {kind}": make(values(65535, (9, 7, 3))) for kind, make in COLOURS.items()},
    "16-bit RGBA": png16(values(65535, (9, 7, 4)), 6),
    "16-bit grey with alpha": png16(values(65535, (9, 7, 2)), 4),
}


@pytest.mark.parametrize("kind", PAGE_READS)
def test_the_lines_of_the_page_read_an_image_as_fca_does(tmp_path, kind):
    file = tmp_path / "photo"
    file.write_bytes(PAGE_READS[kind])
    assert (np.asarray(of_page()(file, 65535)) == decode(PAGE_READS[kind], "photo")).all()


@pytest.mark.parametrize("kind", GREY)
def test_the_lines_of_the_page_read_few_bits_as_fca_does(tmp_path, kind):
    file = tmp_path / "photo"
    file.write_bytes(GREY[kind](values(4095)))
    assert (np.asarray(of_page()(file, 4095)) == decode(file.read_bytes(), "photo", white=4095)).all()
