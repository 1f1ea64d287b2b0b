import hashlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.splits import Share
from fca.store import Store
from fca.tasks.describe import described, summary
from fca.types import UnreadableImage
from tests.data.test_duplicates import again, crops
from tests.data.trees import VAL, encoded, grid, plant, png


@pytest.fixture
def photos(tmp_path):
    """Twelve photographs; train/cat/0 is also in test, train/dog/0 stands there re-encoded, train/cat/1 twice."""
    names = [f"{split}/{label}/{i}" for split in ("train", "test") for label in ("cat", "dog") for i in range(3)]
    files = dict(zip(names, crops(64, 12), strict=True))
    files["test/cat/copy"] = files["train/cat/0"]
    files["train/cat/copy"] = files["train/cat/1"]
    files["test/dog/again"] = again(files["train/dog/0"], "JPEG", 60)
    for name, pixels in files.items():
        path = tmp_path / "photos" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(Image.fromarray(pixels), "PNG"))
    return tmp_path / "photos"


def test_copies_are_found_within_and_between_splits(photos):
    data = Folder(str(photos), VAL).load()
    arrays = described(data, workers=2)
    ids = data.items["image_id"].to_numpy()
    exact = {tuple(sorted(ids[pair])) for pair in arrays["duplicates_exact"]}
    near = {tuple(sorted(ids[pair])) for pair in arrays["duplicates_near"]}
    assert exact == {("test/cat/copy.png", "train/cat/0.png"), ("train/cat/1.png", "train/cat/copy.png")}
    assert near == {("test/dog/again.png", "train/dog/0.png")}
    row = summary(data, arrays)
    split = data.items.set_index("image_id")["split"]
    assert row["duplicates_exact"] == 2
    assert row["duplicates_near"] == 1
    assert row["duplicates_between_splits"] == sum(split[a] != split[b] for a, b in exact | near) >= 2


def test_counts_and_sizes_are_those_of_the_files(tmp_path):
    root = plant(tmp_path / "photos", [*grid("train", "test"), "train/cat/more.png"])
    (root / "test/dog/3.png").write_bytes(png(9, (30, 7)))
    data = Folder(str(root), VAL).load()
    arrays = described(data)
    row = summary(data, arrays)
    assert {k: row[k] for k in ("n_images", "n_train", "n_val", "n_test", "class_min")} == {
        "n_images": 17,
        "n_train": 7,
        "n_val": 2,
        "n_test": 8,
        "class_min": 8,
    }
    assert {k: row[k] for k in row if k.startswith(("height", "width"))} == {
        "height_min": 4,
        "height_max": 30,
        "width_min": 5,
        "width_max": 7,
    }
    assert arrays["height"][7] == 30
    assert arrays["thumbnails"].shape == (17, 64, 64, 3)
    assert (arrays["thumbnails"][7, :, :20] == 255).all()  # framed with white
    assert np.isnan(arrays["mask_area"]).all()
    assert all(len(array) == 17 for name, array in arrays.items() if not name.startswith("duplicates"))


def test_a_mask_gives_area_and_centroid(tmp_path):
    root = plant(tmp_path / "shots", ["a.png", "b.png", "c.png"])
    values = np.zeros((4, 5), np.uint8)
    values[1:3, 2:] = 255
    (root / "object.png").write_bytes(encoded(Image.fromarray(values), "PNG"))
    (root / "nothing.png").write_bytes(encoded(Image.fromarray(values * 0), "PNG"))
    lines = {"path": ["a.png", "b.png", "c.png"], "label": ["x", "y", "y"], "mask": ["object.png", "nothing.png", ""]}
    pd.DataFrame(lines).to_csv(root / "index.csv", index=False)
    arrays = described(Manifest(str(root), "index.csv", VAL).load())
    nan = np.nan
    np.testing.assert_allclose(arrays["mask_area"], [6 / 20, 0, nan], rtol=1e-6)
    np.testing.assert_allclose(arrays["mask_y"], [0.5, nan, nan])
    np.testing.assert_allclose(arrays["mask_x"], [0.7, nan, nan], rtol=1e-6)


def test_the_checksum_is_of_pixels_labels_and_splits_and_of_nothing_else(photos, tmp_path):
    data = Folder(str(photos), VAL).load()
    arrays = described(data)
    pixels = data.read(3)
    height, width = pixels.shape[:2]
    by_hand = hashlib.sha256(f"{height} {width} ".encode() + pixels.tobytes()).hexdigest()
    assert arrays["sha256"].dtype == np.dtype("S64")
    assert arrays["sha256"][3].decode() == by_hand
    first = summary(data, arrays)["checksum"]
    assert len(first) == 64

    def of(folder, val=VAL):
        again = Folder(str(folder), val).load()
        return summary(again, described(again))["checksum"]

    moved = photos.rename(tmp_path / "elsewhere")
    for path in moved.rglob("*.png"):  # other bytes of the same pixels
        Image.open(path).save(path, compress_level=1)
    assert of(moved) == first
    assert of(moved, Share(0.5, 0)) != first  # other splits
    changed = moved / "train/cat/2.png"
    image = np.array(Image.open(changed))
    image[0, 0, 0] ^= 1
    Image.fromarray(image).save(changed)
    assert of(moved) != first


def test_all_unreadable_images_are_counted_and_the_first_named(tmp_path):
    root = plant(tmp_path / "photos", grid(each=8))
    for number in range(7):
        (root / f"cat/{number}.png").write_bytes(b"cut")
    with pytest.raises(UnreadableImage, match=r"cat/0\.png.*cat/4\.png.* and 2 more"):
        described(Folder(str(root), VAL).load())


def test_the_task_stores_a_row_and_the_list_of_images(fca, tmp_path, photos):
    code, _, errors = fca("task=describe", "dataset=folder", f"dataset.root={photos}", "logger=none")
    assert code == 0, errors
    store = Store(tmp_path / "outputs")
    row = store.rows().iloc[0]
    assert (row["task"], row["dataset"], row["num_classes"], row["n_images"]) == ("describe", "photos", 2, 15)
    assert len(store.items(row["fingerprint"])) == 15
    assert store.array(row["run_id"], "phash").dtype == np.uint64
    assert store.array(row["run_id"], "sha256").shape == (15,)
    assert len(row["checksum"]) == 64
