"""Folders, archives, tables and images that somebody made to break the reader: one line each, no hang, nothing runs."""

import io
import os
import struct
import zipfile
import zlib
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import EpsImagePlugin, Image

from fca.cli import refused
from fca.data import manifest
from fca.data.duplicates import exact_pairs
from fca.data.files import decode
from fca.data.folder import Folder
from fca.data.manifest import Generated, Manifest
from fca.data.public import lines
from fca.report.pictures import URI, picture
from fca.tasks.describe import describe_images, findings
from fca.types import FcaError, UnreadableImage
from tests.support.trees import VAL, encoded, grid, pack, patched, plant, png

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


def loaded(root, **keys):
    return Folder(str(root), VAL, **keys).load()


def unreadable(root):
    """Image id -> why it cannot be read, as `describe` lists them."""
    data = loaded(root)
    listed = findings(data, describe_images(data))
    listed = listed[listed["finding"] == "unreadable file"]
    return dict(zip(listed["image_id"], listed["detail"], strict=True))


# Archives.


@pytest.mark.parametrize(
    ("at", "entry", "why"),
    [
        (8, b"\x01\x08", "encrypted"),
        (10, struct.pack("<H", 97), "compression method"),
        (24, struct.pack("<I", 10), "CRC"),  # fewer bytes than there are
        (24, struct.pack("<I", 2**32 - 2), "4294967294 bytes, more than the 1000000000 that are read"),
        (42, struct.pack("<I", 2**31), "Truncated"),  # begins behind the end
    ],
)
def test_a_member_that_cannot_be_unpacked_is_listed(tmp_path, at, entry, why):
    found = unreadable(patched(pack(tmp_path / "photos.zip", grid()), at, entry))
    assert list(found) == ["cat/0.png"]
    assert why in found["cat/0.png"]


@pytest.mark.parametrize("name", ["../../evil.png", "/evil.png", "cat/../../9.png", "./cat/9.png", "a/" * 2100])
def test_a_member_that_would_be_unpacked_elsewhere_is_refused(tmp_path, name):
    archive = pack(tmp_path / "photos.zip", [*grid(), name])
    with pytest.raises(FcaError, match=f"member of the archive = {name[:200]}; .*; next: pack .*photos.zip again"):
        loaded(archive)


@pytest.mark.parametrize("inside", ["index.csv", "list.csv"])
def test_a_table_in_an_archive_that_cannot_be_unpacked_is_one_line(tmp_path, inside):
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(inside, "path,label,burst\ncat/0.png,cat,1")
    with zipfile.ZipFile(archive, "a") as file:
        for path in grid():
            file.writestr(path, png())
    patched(archive, 8, b"\x01\x08")  # encrypted
    index, listed = Folder(str(archive), VAL, group="burst"), Manifest(str(archive), inside, VAL)
    load = index.load if inside == "index.csv" else listed.load
    with pytest.raises(FcaError, match=f"{inside}.*; next: mend it: .*is encrypted"):
        load()


# Folders.


def test_pipes_and_devices_are_no_files_whatever_their_names(tmp_path):
    root = plant(tmp_path / "photos", grid())
    before = loaded(root).fingerprint
    os.mkfifo(root / "cat" / "9.png")
    (root / "dog" / "9.png").symlink_to("/dev/zero")
    assert loaded(root).fingerprint == before
    os.mkfifo(root / "index.csv")
    with pytest.raises(FcaError, match=r"dataset.group = burst; allowed: null, or a column of an index.csv"):
        loaded(root, group="burst")
    for pipe in (str(root / "index.csv"), "/dev/zero"):
        with pytest.raises(FcaError, match=f"dataset.root = {pipe}; allowed: a directory or a whole .zip"):
            loaded(pipe)
        with pytest.raises(FcaError, match=f"dataset.file = {pipe}; allowed: a file"):
            Manifest(str(root), pipe, VAL).load()
        with pytest.raises(FcaError, match=f"file = {pipe}; .*no file with an end"):
            lines(root / pipe)
    (root / "index.csv").rename(root / "manifest.csv")
    with pytest.raises(FcaError, match=r"a folder with a manifest\.csv"):
        Generated(str(root)).load()


def test_a_file_that_became_a_pipe_or_too_large_is_not_waited_for(tmp_path):
    root = plant(tmp_path / "photos", grid())
    data = loaded(root)
    for path in grid()[:2]:
        (root / path).unlink()
    os.mkfifo(root / "cat/0.png")
    with (root / "cat/1.png").open("wb") as file:
        file.truncate(2**40)  # takes no place on the disk
    with pytest.raises(UnreadableImage, match=r"cat/0.png: no file with an end"):
        data.read(0)
    assert list(unreadable(root)) == ["cat/1.png"]


def test_links_in_a_circle_end(tmp_path):
    root = plant(tmp_path / "photos", grid())
    (root / "cat" / "self").symlink_to(root / "cat" / "self")
    (root / "cat" / "a").symlink_to(root / "dog")
    (root / "dog" / "b").symlink_to(root / "cat")
    ids = loaded(root).items["image_id"].tolist()
    assert [path for path in ids if path.count("/") == 2] == [
        *(f"cat/a/{i}.png" for i in range(4)),
        *(f"dog/b/{i}.png" for i in range(4)),
    ]
    assert len(ids) == 16


def test_links_to_links_do_not_multiply(tmp_path):
    root = plant(tmp_path / "photos", [*grid(), *(f"cat/{k}/1.png" for k in range(12))])
    for k in range(11):
        for name in "ab":  # 2^11 paths lead to the last folder
            (root / "cat" / str(k) / name).symlink_to(root / "cat" / str(k + 1))
    assert len(loaded(root).items) == 8 + 12 + 2 * 11


def test_two_links_to_one_folder_give_it_twice(tmp_path):
    store = plant(tmp_path / "store", ["1.png", "2.png"])
    root = plant(tmp_path / "photos", grid())
    for name in ("first", "second"):
        (root / name).symlink_to(store)
    assert set(loaded(root).items["label"]) == {"cat", "dog", "first", "second"}


def test_control_characters_are_refused_in_what_is_shown_and_hashed(tmp_path):
    root = plant(tmp_path / "photos", [*grid(), "cat/\x1b]0;mine\x07.png"])
    with pytest.raises(FcaError, match=r"image_id with control characters = cat/.*; next: rename them"):
        loaded(root)
    root = plant(tmp_path / "more", grid())
    for column in ("label", "patient"):
        table = pd.DataFrame({"path": grid(), "label": ["cat"] * 4 + ["dog"] * 4, "patient": "p"})
        table[column] += "\x1e"
        table.to_csv(root / "list.csv", index=False)
        with pytest.raises(FcaError, match=f"{column} with control characters"):
            Manifest(str(root), "list.csv", VAL, group="patient").load()


def test_what_a_terminal_would_obey_is_printed_as_its_code(capsys):
    refused(FcaError("folder", "\x1b[31mred\nblue", "caf\u00e9", "rename it"))
    assert capsys.readouterr().err == "error: folder = \\x1b[31mred blue; allowed: caf\u00e9; next: rename it\n"


# Images.


def test_postscript_is_not_run_whatever_the_suffix(tmp_path, monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("an interpreter was called"))
    root = plant(tmp_path / "photos", grid())
    (root / "cat/0.png").write_bytes(POSTSCRIPT)
    assert "PostScript, a program that is not run" in unreadable(root)["cat/0.png"]
    with pytest.raises(OSError, match="cannot identify"):
        picture(URI + "JSFQUy1BZG9iZS0zLjAgRVBTRi0zLjAKJSVCb3VuZGluZ0JveDogMCAwIDkgOQolJUVuZENvbW1lbnRzCg==")


def test_a_picture_of_too_many_pixels_is_listed(tmp_path):
    root = plant(tmp_path / "photos", grid())
    header = struct.pack(">IIBBBBB", 10**5, 10**5, 1, 0, 0, 0, 0)
    content = bytearray(png())
    content[16:29] = header
    content[29:33] = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    (root / "cat/0.png").write_bytes(content)
    assert "exceeds limit" in unreadable(root)["cat/0.png"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of damaged EXIF
def test_any_damage_gives_pixels_or_one_error():
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (9, 8, 3), dtype=np.uint8))
    for kind in ("JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "PPM"):
        whole = encoded(image, kind)
        for _ in range(30):
            content = bytearray(whole)
            for at in rng.integers(0, len(whole), 3):
                content[at] = rng.integers(256)
            with suppress(UnreadableImage):
                assert decode(bytes(content[: rng.integers(1, 2 * len(whole))]), "damaged").ndim == 3


def test_many_equal_images_are_paired_with_the_first():
    pairs = exact_pairs([b"other", *[b"blank"] * 60_000, b"other"])
    assert (len(pairs), set(pairs[:, 0].tolist())) == (60_000, {0, 1})


# Tables.


def test_a_manifest_in_no_encoding_that_it_names_is_one_line(tmp_path):
    root = plant(tmp_path / "photos", grid())
    text = "path,label\n" + "".join(f"{path},K\u00e4fer\n" for path in grid())
    (root / "list.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(FcaError, match=r"line 2 of list\.csv = .*K\\xe4fer.*; allowed: text in UTF-8 "):
        Manifest(str(root), "list.csv", VAL).load()


def test_a_mark_of_byte_order_and_numbers_of_any_size_are_read(tmp_path):
    root = plant(tmp_path / "photos", grid())
    table = pd.DataFrame(
        {"path": grid(), "label": ["cat"] * 4 + ["dog"] * 4, "serial": [str(10 ** (5 * i)) for i in range(8)]}
    )
    table.to_csv(root / "list.csv", index=False, encoding="utf-8-sig")
    data = Manifest(str(root), "list.csv", VAL).load()
    data.items.to_parquet(io.BytesIO())  # as the store keeps it
    assert data.items["serial"].tolist()[-1] == "1" + "0" * 35


def test_a_parquet_file_of_more_lines_than_any_set_has_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "MAX_LINES", 1000)
    root = plant(tmp_path / "photos", grid())
    table = pa.table({"path": ["cat/0.png"] * 1001, "label": ["cat"] * 1001})
    pq.write_table(table, root / "list.parquet")
    with pytest.raises(FcaError, match="next: mend it: 1001 lines, more than 1000"):
        Manifest(str(root), "list.parquet", VAL).load()


@pytest.mark.parametrize("column", ["label", "split", "content", "image_id"])
def test_a_column_of_the_index_does_not_take_the_place_of_what_the_folder_shows(tmp_path, column):
    root = plant(tmp_path / "photos", grid())
    pd.DataFrame({"path": grid(), column: "x"}).to_csv(root / "index.csv", index=False)
    with pytest.raises(
        FcaError, match=f"dataset.group = {column}; allowed: a column of index.csv beside path, none of "
    ):
        loaded(root, group=column)
