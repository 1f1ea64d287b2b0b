"""A page's pictures are made of the images, where some run read them, and kept: of these images and no others."""

import base64
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from PIL import Image

from fca.cli import configure
from fca.cli.configure import store_with_images
from fca.data.folder import Folder
from fca.report.pictures import THUMBNAIL, URI, large_pictures, pictures
from fca.types import Table
from tests.support.trees import grid, plant, png

SHOWN = ["cat/2.png", "dog/0.png", "cat/2.png"]


@pytest.fixture
def described(fca, tmp_path):
    """A folder of eight images that a run has read; its store, and the fingerprint of the set."""
    root = plant(tmp_path / "photos", grid())
    (root / "dog/0.png").write_bytes(png(9, (128, 64)))
    assert fca("task=describe", "dataset=folder", f"dataset.root={root}", "logger=none")[0] == 0
    store = store_with_images(tmp_path / "outputs")
    return root, store, store.rows()["fingerprint"].iloc[0]


def kept(store):
    return sorted(Path(store.outputs, "cache", "thumbnails").glob("*"))


def test_only_the_images_that_a_page_shows_have_thumbnails(described):
    _, store, fingerprint = described
    assert not list(Path(store.outputs).rglob("thumbnails*"))
    found = pictures(store, SHOWN, fingerprint)
    assert len(kept(store)) == 2
    assert found.thumbnails[0] == found.thumbnails[2]
    assert all(uri.startswith(URI) for uri in found.thumbnails)
    dog = np.asarray(Image.open(BytesIO(base64.b64decode(found.thumbnails[1].removeprefix(URI)))))
    assert dog.shape == (128, 128, 3)
    assert (dog[:, :32] == 255).all()  # framed with white
    assert (dog[:, 32:96] == np.asarray(Image.open(BytesIO(png(9, (128, 64)))))).all()


def test_what_a_page_showed_it_shows_again_without_the_images(described):
    root, store, fingerprint = described
    before = pictures(store, SHOWN, fingerprint)
    shutil.rmtree(root)
    again = pictures(store_with_images(store.outputs), [*SHOWN, "cat/1.png"], fingerprint)
    assert again.thumbnails == [*before.thumbnails, None]


def test_a_damaged_thumbnail_is_made_again_and_an_unreadable_image_has_none(described):
    root, store, fingerprint = described
    before = pictures(store, SHOWN, fingerprint).thumbnails
    for file in kept(store):
        file.write_bytes(file.read_bytes()[:-20])
    size = (root / "dog/0.png").stat().st_size
    (root / "dog/0.png").write_bytes(b"x" * size)
    assert pictures(store, SHOWN, fingerprint).thumbnails == [before[0], None, before[2]]


def test_other_images_at_the_same_place_are_not_shown(described, monkeypatch):
    root, store, fingerprint = described
    monkeypatch.setattr(configure, "_LISTED", {})  # a page is made by another process
    (root / "cat/9.png").write_bytes(png(99))
    assert pictures(store_with_images(store.outputs), SHOWN, fingerprint).thumbnails == [None] * 3


class Trap:
    """A class that a foreign store names."""

    def load(self):
        pytest.fail("called")


def test_a_store_from_elsewhere_calls_no_code(described):
    _, store, fingerprint = described
    [config] = Path(store.outputs).rglob("config.yaml")
    text = config.read_text()
    traps = ("tests.cli.test_thumbnails.Trap", "subprocess.Popen", "fca.store.Store")
    changes = [text.replace("fca.data.folder.Folder", trap) for trap in traps]
    changes += [text.replace("  val:\n", f"  val:\n    _target_: {trap}\n") for trap in traps]
    for changed in (*changes, "dataset: 3", ""):
        assert changed != text
        config.write_text(changed)
        assert pictures(store_with_images(store.outputs), SHOWN, fingerprint).thumbnails == [None] * 3


def test_a_store_from_elsewhere_has_no_other_folder_listed_and_nothing_downloaded(described, tmp_path, monkeypatch):
    root, store, fingerprint = described
    [config] = Path(store.outputs).rglob("config.yaml")
    copied = shutil.copytree(root, tmp_path / "private")  # the same images, which this user never named
    monkeypatch.setattr(Folder, "load", lambda data: pytest.fail(f"listed {data.root}"))
    text = config.read_text()
    for other in (str(copied), "/", "~", "${oc.env:HOME}"):
        config.write_text(text.replace(f"root: {root}\n", f"root: {other}\n"))
        assert config.read_text() != text
        assert pictures(store_with_images(store.outputs), SHOWN, fingerprint).thumbnails == [None] * 3
    food = "_target_: fca.data.public.Food101\nroot: nowhere\ndownload: true\nval: {share: 0.1, seed: 0}\n"
    for dataset in (food, food.replace("download: true", "")):
        config.write_text(OmegaConf.to_yaml({"dataset": OmegaConf.create(dataset), "limit": None}))
        assert pictures(store_with_images(store.outputs), SHOWN, fingerprint).thumbnails == [None] * 3
    assert not Path("nowhere").exists()


def table_of(found):
    return Table("shown", "?", "", pd.DataFrame({"thumbnail": found.thumbnails}), {}, ())


def test_a_picture_larger_than_its_thumbnail_is_kept_at_full_size_and_others_are_not(described, monkeypatch):
    _, store, fingerprint = described
    monkeypatch.setattr("fca.report.pictures.THUMBNAIL", 32)
    found = pictures(store, SHOWN, fingerprint)
    [(uri, file)] = large_pictures(store, [table_of(found)]).items()
    assert uri == found.thumbnails[1], "dog/0.png; the cats have 4 x 5 pixels"
    with Image.open(file) as image:
        assert image.size == (64, 128)
    assert THUMBNAIL >= 96, "large enough to judge an image"


def test_a_link_in_a_store_from_elsewhere_copies_no_file_of_this_machine(described, tmp_path, monkeypatch):
    _, store, fingerprint = described
    monkeypatch.setattr("fca.report.pictures.THUMBNAIL", 32)
    found = pictures(store, SHOWN, fingerprint)
    [file] = large_pictures(store, [table_of(found)]).values()
    private = tmp_path / "private.jpg"
    shutil.move(file, private)
    file.symlink_to(private)
    assert large_pictures(store, [table_of(found)]) == {}
    file.unlink()
    file.write_text("no picture")
    assert large_pictures(store, [table_of(found)]) == {}


def test_a_picture_whose_full_size_was_removed_while_its_thumbnail_stayed_is_kept_again(described, monkeypatch):
    _, store, fingerprint = described
    monkeypatch.setattr("fca.report.pictures.THUMBNAIL", 32)
    found = pictures(store, SHOWN, fingerprint)
    shutil.rmtree(store.outputs / "cache" / "pictures")
    assert pictures(store, SHOWN, fingerprint) == found
    [uri] = large_pictures(store, [table_of(found)])
    assert uri == found.thumbnails[1]
