"""Which files are images: what they hold decides, in every loader; all others are counted in a line."""

import io
import logging
import zipfile
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image

from fca.data import image_files, kinds
from fca.data.files import decode, open_root
from fca.data.folder import Folder
from fca.data.image_files import sorted_files
from fca.data.webdataset import WebDataset
from fca.types import FcaError, UnreadableImage
from tests.support.image_samples import samples, shard, tiff
from tests.support.trees import VAL, encoded, grid, plant

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 16, 3), dtype=np.uint8))
SUFFIXES_OF = {
    "JPEG": [".jfif", ".jpe", ".JFIF", "", ".jpg_large", ".cr2"],
    "JPEG2000": [".jp2", ".j2k", ".jpx"],
    "AVIF": [".avif"],
    "PNG": [".dat"],
    "WEBP": [".0001"],
    "TIFF": [".x"],
    "BMP": [".bin"],
    "DIB": [".dib"],
    "GIF": [".fax"],
    "PPM": [".pnm", ".picture"],
    "TGA": [".tga"],
    "PCX": [".pcx"],
    "SGI": [".sgi"],
    "DDS": [".dds"],
    "ICO": [".ico"],
    "ICNS": [".icns"],
}
WRITTEN = {suffix: kind for kind, suffixes in SUFFIXES_OF.items() for suffix in suffixes}
OTHERS = {
    "1.txt": b"0 0.5 0.5 1 1",
    "2.csv": b"a,b\n",
    "3.xml": b"<annotation/>",
    "4": b"BMW, Audi",  # begins as a BMP does
    "5.log": b"P5 was better than P6",  # and as a PGM
    "6.py": b"Python",
    "7.c": b"#define cat 1\n",  # and as an XBM
    "8": b"",
    "9.pdf": b"%PDF-1.7",
    "10.mp4": b"\x00\x00\x00\x18ftypmp42" + bytes(16),
    "11": b"\n\x05\x01\x08 a text",  # and as a PCX
    "12.dat": b"\x00\x00\x01\x00" + bytes(40),  # and as an ICO
}


NOT_READ = {
    "raw.nef": (tiff({}), "raw file"),
    "raw.dng": (tiff({}), "raw file"),
    "fuji.raf": (b"FUJIFILMCCD-RAW 0201", "raw file"),
    "canon.cr3": (b"\x00\x00\x00\x18ftypcrx \x00\x00", "raw file"),
    "plot.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript"),
    "logo.svg": (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    "scan.dcm": (bytes(128) + b"DICM" + bytes(9), "DICOM"),
    "new.jxl": (b"\xff\x0a\x00", "JPEG XL"),
    "light.exr": (b"\x76\x2f\x31\x01" + bytes(9), "OpenEXR"),
}


def packed(root, archive):
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(root).as_posix())
    return archive


@pytest.fixture(params=["directory", "zip"])
def rooted(request, tmp_path):
    """Turns a dictionary of paths and contents into a root of both kinds."""

    def make(contents):
        for path, content in contents.items():
            target = tmp_path / "photos" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        root = tmp_path / "photos"
        return str(packed(root, tmp_path / "photos.zip") if request.param == "zip" else root)

    return make


def named(contents, label="cat"):
    return {f"{label}/{name}": content for name, content in contents.items()}


def pngs(*labels):
    return {f"{label}/{i}.png": encoded(PICTURE.rotate(i), "PNG") for label in labels for i in range(3)}


def loaded(root, **keys):
    image_files.warn_of_left_out.cache_clear()
    return Folder(str(root), VAL, **keys).load()


@pytest.mark.wide
@pytest.mark.parametrize("suffix", WRITTEN)
def test_an_image_under_any_suffix_is_listed_and_read(rooted, suffix):
    content = encoded(PICTURE, WRITTEN[suffix])
    data = loaded(rooted(pngs("cat", "dog") | {f"cat/photo{suffix}": content}))
    [row] = np.flatnonzero(data.items["image_id"] == f"cat/photo{suffix}")
    assert (data.read(int(row)) == np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))[..., :3]).all()


def test_files_that_are_no_images_are_counted_by_suffix_in_one_line(rooted, caplog):
    data = loaded(rooted(pngs("cat", "dog") | named(OTHERS)))
    assert len(data.items) == 6
    [line] = [record.getMessage() for record in caplog.records]
    assert "left out: 12 files that are no images: 3 without a suffix, 1 .c, 1 .csv, 1 .dat, 1 .log, 5 others" in line


def test_pictures_that_are_not_read_are_counted_with_the_reason(rooted, caplog):
    contents = {name: content for name, (content, _) in NOT_READ.items()}
    data = loaded(rooted(pngs("cat", "dog") | named(contents)))
    assert len(data.items) == 6
    [line] = [record.getMessage() for record in caplog.records]
    assert "left out: 9 pictures: " in line
    for name, (_, reason) in NOT_READ.items():
        assert reason in line, name
    assert "1 .cr3, 1 .dng, 1 .nef, 1 .raf (a camera's raw file" in line


def test_a_folder_of_images_alone_has_no_line(rooted, caplog):
    loaded(rooted(pngs("cat", "dog") | {"index.csv": b"path,patient\n"}))
    assert not caplog.records


def test_the_line_is_printed_once_a_process(tmp_path, caplog):
    root = plant(tmp_path / "photos", [*grid(), "cat/notes.txt"])
    loaded(root)
    Folder(str(root), VAL).load()
    assert len(caplog.records) == 1


def test_no_file_with_an_image_s_suffix_or_of_text_is_looked_into(tmp_path, monkeypatch):
    root = plant(tmp_path / "photos", [*grid(), "cat/0.jpeg", "cat/1.xml", "cat/2.json", "cat/3.txt"])
    monkeypatch.setattr("fca.data.files.Directory.head", lambda *_: pytest.fail("a file was opened"))
    files = open_root(str(root), "images")
    found = sorted_files(files, files.listing().files["path"].to_pylist())
    assert (len(found.images), len(found.others), found.not_read) == (9, 3, {})


def test_sets_whose_images_had_known_suffixes_are_the_same_sets(tmp_path):
    """Ids of version 0.1.0, which knew eleven suffixes."""
    data = loaded(plant(tmp_path / "photos", [*grid("train", "test"), "train/cat/notes.txt", "README.md"]))
    assert data.fingerprint == "05baf5655015"


@pytest.mark.parametrize("name", NOT_READ)
def test_a_picture_that_is_not_read_is_refused_with_the_reason_where_a_table_lists_it(name):
    content, reason = NOT_READ[name]
    with pytest.raises(UnreadableImage, match=f"{name}: .*{reason}"):
        decode(content, name)


@pytest.mark.parametrize("tags", [{50706: 1}, {254: 1, 330: 8}], ids=["DNG", "thumbnail"])
def test_the_thumbnail_of_a_raw_photograph_is_read_under_no_name(tags):
    with pytest.raises(UnreadableImage, match=r"holiday\.tif: a camera's raw file"):
        decode(tiff(tags), "holiday.tif")


def test_a_tiff_is_no_raw_photograph_because_it_has_pages_or_a_lower_one():
    assert decode(tiff({254: 2}), "page.tif").shape == (1, 1, 3)
    assert decode(tiff({330: 8}), "pyramid.tif").shape == (1, 1, 3)


def test_without_its_package_heic_is_left_out_and_the_package_named(rooted, caplog, monkeypatch):
    monkeypatch.setattr(kinds, "reads_heic", lambda: False)
    for brand in (b"heic", b"mif1"):
        head = b"\x00\x00\x00\x1cftyp" + brand + b"\x00\x00\x00\x00mif1heicmiaf" + bytes(99)
        with pytest.raises(UnreadableImage, match=r"a\.jpg: HEIC, which needs a package: pip install 'fca\[heic\]'"):
            decode(head, "a.jpg")
    data = loaded(rooted(pngs("cat", "dog") | {"dog/IMG_1.HEIC": head}))
    assert len(data.items) == 6
    assert "1 picture: 1 .heic (HEIC, which needs a package: pip install 'fca[heic]')" in caplog.text


@pytest.mark.skipif(find_spec("pillow_heif") is None, reason="pillow-heif is not installed")
def test_heic_is_read_upright_by_its_package(rooted):
    import pillow_heif

    ramp = np.add.outer(np.arange(64), 2 * np.arange(32)).astype(np.uint8)
    picture = Image.fromarray(np.stack([ramp, ramp[::-1], 255 - ramp], axis=2))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to the right
    buffer = io.BytesIO()
    pillow_heif.from_pillow(picture).save(buffer, quality=95, exif=exif.tobytes())
    data = loaded(rooted(pngs("cat", "dog") | {"dog/IMG_1.HEIC": buffer.getvalue()}))
    [row] = np.flatnonzero(data.items["image_id"] == "dog/IMG_1.HEIC")
    shown = data.read(int(row)).astype(int)
    expected = np.asarray(picture.transpose(Image.Transpose.ROTATE_270)).astype(int)
    assert shown.shape == expected.shape
    assert np.abs(shown - expected).mean() < 3  # HEVC is lossy


# What systems add.


@pytest.mark.wide
@pytest.mark.parametrize(
    "folder",
    [
        *(
            "@eaDir/0.png",
            "@tmp",
            "#recycle",
            "#snapshot/2024",
            "@Recycle",
            "@Recently-Snapshot",
            ".@__thumb",
            "~snapshot",
        ),
        *("$RECYCLE.BIN/S-1-5-21", "$Recycle.Bin", "System Volume Information", "FOUND.000", "lost+found", "LOST.DIR"),
        *("__MACOSX/cat", ".Trashes/501", ".Trash-1000/files", ".Spotlight-V100", "Network Trash Folder"),
    ],
)
@pytest.mark.parametrize("place", ["", "cat/"])
def test_what_systems_add_is_hidden(rooted, caplog, place, folder):
    added = {f"{place}{folder}/SYNOPHOTO_THUMB_M.jpg": encoded(PICTURE, "JPEG"), f"{place}{folder}/x": b"x"}
    added |= {f"{place}Thumbs.db": b"x", f"{place}desktop.ini": b"x", f"{place}.DS_Store": b"x"}
    data = loaded(rooted(pngs("cat", "dog") | added))
    assert sorted(data.items["image_id"]) == sorted(pngs("cat", "dog"))
    assert not caplog.records


# Shards.


def test_a_sample_of_a_shard_has_its_image_under_any_suffix(tmp_path):
    suffixes = [suffix for suffix in WRITTEN if suffix not in ("", ".tga")]
    images = {f"{at:02}{suffix}": encoded(PICTURE, WRITTEN[suffix]) for at, suffix in enumerate(suffixes)}
    keys = [f"{at:02}" for at in range(len(suffixes))]
    data = WebDataset(shard(tmp_path / "set/0.tar", images | samples(keys)), VAL).load()
    assert data.items["image_id"].tolist() == [f"all/{key}" for key in keys]
    assert all(data.read(row).size for row in range(len(keys)))


def test_samples_of_a_shard_without_an_image_are_named_with_the_reason(tmp_path, caplog):
    image = encoded(PICTURE, "PNG")
    members = {"a.png": image, "b.png": image, "c.nef": tiff({}), "d.npy": b"\x93NUMPY", **samples("abcde")}
    root = shard(tmp_path / "set/0.tar", members)
    for _ in range(2):  # read, and remembered
        caplog.clear()
        assert WebDataset(root, VAL).load().items["image_id"].tolist() == ["all/a", "all/b"]
        lines = [record.getMessage() for record in caplog.records]
        assert [line.partition("left out: ")[2] for line in lines] == [
            f"1 sample without an image ({kinds.RAW_REASON}): c",
            "2 samples without an image (none there): d, e",
        ]


def test_a_member_that_happens_to_hold_an_image_takes_no_named_image_s_place(tmp_path):
    small = encoded(PICTURE.resize((8, 8)), "JPEG")
    members = {"a.png": encoded(PICTURE, "PNG"), "a.thumb": small, "b.png": encoded(PICTURE, "PNG"), **samples("ab")}
    data = WebDataset(shard(tmp_path / "set/0.tar", members), VAL).load()
    assert data.read(0).shape == (24, 16, 3)


def test_files_beside_the_shards_are_counted(tmp_path, caplog):
    members = {"a.png": encoded(PICTURE, "PNG"), "b.png": encoded(PICTURE, "PNG"), **samples("ab")}
    root = shard(tmp_path / "set/0.tar", members)
    (tmp_path / "set/1.tar.gz").write_bytes(b"more")
    (tmp_path / "set/README.md").write_bytes(b"text")
    shard(tmp_path / "set/@eaDir/0.tar", members)
    caplog.set_level(logging.WARNING)
    assert len(WebDataset(root, VAL).load().items) == 2
    assert "left out: 1 file that is no .tar: 1 .gz" in caplog.text


def test_two_images_of_one_key_under_other_suffixes_are_refused(tmp_path):
    members = {"a.x": encoded(PICTURE, "PNG"), "a.y": encoded(PICTURE, "JPEG"), **samples("a")}
    with pytest.raises(FcaError, match="a has two images or classes"):
        WebDataset(shard(tmp_path / "set/0.tar", members), VAL).load()
