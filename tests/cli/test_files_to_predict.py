"""Which files of a folder `fca predict` has a line for, and that a network sees 16 bits as its training showed them."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.cli import export, predict
from fca.cli import run as run_door
from fca.data.image_files import warn_of_left_out
from fca.store import Store
from tests.support.image_samples import tiff
from tests.support.trees import encoded

TINY = ["logger=none", "recipe.epochs=6", "recipe.min_steps=0", "recipe.batch_size=8", "recipe.lr=0.01"]


def dark_or_bright(label, seed):
    """12 bits in a 16-bit file; all of them are black where 65535 is white."""
    low, high = {"dark": (0, 1200), "bright": (2800, 4096)}[label]
    return Image.fromarray(np.random.default_rng(seed).integers(low, high, (32, 32)).astype(np.uint16))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store, and the id of a training on images of 12 bits."""
    folder = tmp_path_factory.mktemp("twelve")
    for label in ("dark", "bright"):
        (folder / "photos" / label).mkdir(parents=True)
        for at in range(20):
            dark_or_bright(label, at).save(folder / "photos" / label / f"{at}.png")
    words = ["dataset=folder", f"dataset.root={folder}/photos", "dataset.white=4095", "model=test_resnet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["fca"])
        assert run_door.main([*words, *TINY, f"outputs={folder}/outputs"]) == 0
    [row] = Store(folder / "outputs").rows("task == 'train'").to_dict("records")
    return folder / "outputs", row["run_id"]


def predicted(fca, trained, folder):
    warn_of_left_out.cache_clear()
    outputs, run_id = trained
    code, shown, errors = fca(str(folder), f"run={run_id}", f"outputs={outputs}", door=predict)
    assert code == 0, errors
    frame = pd.read_csv("predictions.csv", dtype={"predicted": str}, keep_default_na=False)
    return frame.set_index("image"), shown


@pytest.mark.wide
def test_each_picture_has_a_line_and_all_other_files_are_counted(fca, trained, tmp_path, caplog):
    new = tmp_path / "new"
    (new / "@eaDir").mkdir(parents=True)
    read = {"a.jfif": "JPEG", "b.avif": "AVIF", "c": "PNG", "d.png": "PNG", "e.jp2": "JPEG2000", "k.txt": "PNG"}
    for name, kind in read.items():
        (new / name).write_bytes(encoded(Image.new("RGB", (40, 40), "white"), kind))
    unread = {"f.nef": tiff({}), "g.eps": b"%!PS-Adobe", "h.jpg": b"", "i.png": b"text", "j.svg": b"<svg/>"}
    others = {"notes.txt": b"x", "table.csv": b"x", "Thumbs.db": b"x", "@eaDir/a.jpg": b"x", "talk.pdf": b"%PDF-1.7"}
    for name, content in (unread | others).items():
        (new / name).write_bytes(content)
    frame, shown = predicted(fca, trained, new)
    assert frame.index.tolist() == sorted([*read, *unread])
    assert (frame.loc[[*read], "error"] == "").all()
    assert frame.loc[[*read], "predicted"].isin(["dark", "bright"]).all()
    assert (frame.loc[[*unread], "predicted"] == "").all()
    assert "f.nef: a camera's raw file" in frame.loc["f.nef", "error"]
    assert "PostScript" in frame.loc["g.eps", "error"]
    assert "no image of a known format" in frame.loc["i.png", "error"]
    assert "5 of 11 images cannot be read; why: column error" in shown
    assert "left out: 3 files that are no images: 1 .csv, 1 .pdf, 1 .txt" in caplog.text


@pytest.mark.parametrize("name", ["photo", "photo.jfif", "photo.JPE", "photo.txt", "photo.json"])
def test_one_image_of_any_suffix_is_predicted(fca, trained, tmp_path, name):
    (tmp_path / name).write_bytes(encoded(Image.new("RGB", (40, 40), "white"), "JPEG"))
    frame, _ = predicted(fca, trained, tmp_path / name)
    assert frame["error"].tolist() == [""]
    assert frame.index.tolist() == [name]


def test_a_network_sees_16_bits_as_its_training_showed_them(fca, trained, tmp_path):
    (tmp_path / "new").mkdir()
    for at, label in enumerate(["dark", "bright"] * 4):
        dark_or_bright(label, 100 + at).save(tmp_path / "new" / f"{at}-{label}.png")
    frame, _ = predicted(fca, trained, tmp_path / "new")
    assert [f"{name.partition('-')[2]}" for name in frame.index] == [f"{label}.png" for label in frame["predicted"]]


def test_an_exported_network_comes_with_the_white_of_its_training(fca, trained, tmp_path):
    outputs, run_id = trained
    words = (f"run={run_id}", "format=torchscript", "out=net.pt", f"outputs={outputs}")
    code, _, errors = fca(*words, door=export)
    assert code == 0, errors
    assert json.loads((tmp_path / "net.pt.json").read_text())["white"] == 4095
