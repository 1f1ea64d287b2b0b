import hashlib

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.splits import Share
from fca.store import Store, results
from fca.tasks.describe import describe_images, findings, summary
from tests.support.copied_images import again, crops
from tests.support.trees import VAL, encoded, grid, plant, png


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
    arrays = describe_images(data, workers=2)
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
    arrays = describe_images(data)
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
    assert np.isnan(arrays["mask_area"]).all()
    assert all(
        len(array) == 17 for name, array in arrays.items() if not name.startswith(("duplicates", "reasons", "damages"))
    )


def test_images_that_are_left_out_are_counted_and_the_counts_add_up(fca, tmp_path, caplog):
    images = [*grid("train", "val", classes=("cat", "dog", "fox")), "val/owl/1.png", "train/1.png"]
    plant(tmp_path / "described", [*images, "cover.png"])
    plant(tmp_path / "uncovered", images)
    words = ["dataset=folder", "dataset.name=photos", "task=describe", "logger=none"]
    code, out, err = fca(*words, "dataset.root=described")
    assert code == 0, err
    assert "n_images=27 n_train=9 n_val=3 n_test=12 n_unused=3" in out
    assert "photos: 2 images outside of class folders, left out: cover.png, train/1.png" in caplog.text
    assert "left out: owl (train 0, val 1)" in caplog.text

    _, out, _ = fca(*words, "dataset.root=uncovered")
    assert "n_images=26 n_train=9 n_val=3 n_test=12 n_unused=2" in out, "another count is another row"


def test_a_training_prints_how_many_images_are_left_out(fca, tmp_path):
    plant(tmp_path / "covered", [*grid(each=9), "cover.png"])
    plant(tmp_path / "plain", grid(each=9))
    words = ["dataset=folder", "dataset.name=photos", "recipe.epochs=1", "recipe.min_steps=0", "logger=none"]
    code, out, err = fca(*words, "dataset.root=covered")
    assert code == 0, out + err
    assert " n_unused=1 " in out
    trained = results(tmp_path / "outputs").set_index("task").loc["train"]
    assert trained["n_unused"] == 1

    code, out, _ = fca(*words, "dataset.root=plain", "outputs=others")
    assert code == 0
    assert "n_unused" not in out
    assert results(tmp_path / "others").set_index("task").loc["train", "run_id"] == trained["run_id"]


def test_a_mask_gives_area_and_centroid(tmp_path):
    root = plant(tmp_path / "shots", ["a.png", "b.png", "c.png"])
    values = np.zeros((4, 5), np.uint8)
    values[1:3, 2:] = 255
    (root / "object.png").write_bytes(encoded(Image.fromarray(values), "PNG"))
    (root / "nothing.png").write_bytes(encoded(Image.fromarray(values * 0), "PNG"))
    lines = {"path": ["a.png", "b.png", "c.png"], "label": ["x", "y", "y"], "mask": ["object.png", "nothing.png", ""]}
    pd.DataFrame(lines).to_csv(root / "index.csv", index=False)
    arrays = describe_images(Manifest(str(root), "index.csv", VAL).load())
    nan = np.nan
    np.testing.assert_allclose(arrays["mask_area"], [6 / 20, 0, nan], rtol=1e-6)
    np.testing.assert_allclose(arrays["mask_y"], [0.5, nan, nan])
    np.testing.assert_allclose(arrays["mask_x"], [0.7, nan, nan], rtol=1e-6)


def test_the_checksum_is_of_pixels_labels_and_splits_and_of_nothing_else(photos, tmp_path):
    data = Folder(str(photos), VAL).load()
    arrays = describe_images(data)
    pixels = data.read(3)
    height, width = pixels.shape[:2]
    by_hand = hashlib.sha256(f"{height} {width} ".encode() + pixels.tobytes()).hexdigest()
    assert arrays["sha256"].dtype == np.dtype("S64")
    assert arrays["sha256"][3].decode() == by_hand
    first = summary(data, arrays)["checksum"]
    assert len(first) == 64

    def of(folder, val=VAL):
        again = Folder(str(folder), val).load()
        return summary(again, describe_images(again))["checksum"]

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


def test_files_that_cannot_be_read_are_listed_and_the_rest_is_described(photos):
    whole = Folder(str(photos), VAL).load()
    before = describe_images(whole)
    for name, content in (("test/cat/1.png", b"cut"), ("train/dog/2.png", b"")):
        (photos / name).write_bytes(content)
    data = Folder(str(photos), VAL).load()
    arrays = describe_images(data)
    ids, broken = data.items["image_id"].to_numpy(), arrays["unreadable"]
    assert ids[broken].tolist() == ["test/cat/1.png", "train/dog/2.png"]
    for name in ("height", "width", "phash", "sha256"):
        assert (arrays[name][~broken] == before[name][~broken]).all()
    for name in ("duplicates_exact", "duplicates_near"):
        assert {tuple(ids[pair]) for pair in arrays[name]} == {tuple(ids[pair]) for pair in before[name]}
    row = summary(data, arrays)
    assert (row["n_unreadable"], row["height_min"], row["checksum"]) == (2, before["height"].min(), None)
    listed = findings(data, arrays)
    broken = listed[listed["finding"] == "unreadable file"]
    assert broken["image_id"].tolist() == ["test/cat/1.png", "train/dog/2.png"]
    assert broken["detail"].str.contains("no image of a known format").all()
    assert broken["detail"].str.startswith(str(photos)).all()


def test_a_set_of_nothing_but_broken_files_has_a_row_without_sizes(tmp_path):
    root = plant(tmp_path / "photos", [f"{label}/{i}.jpeg" for label in ("cat", "dog") for i in range(3)])  # of text
    data = Folder(str(root), VAL).load()
    arrays = describe_images(data)
    row = summary(data, arrays)
    assert arrays["unreadable"].all()
    assert row["n_unreadable"] == len(arrays["reasons"]) == 6
    assert not {"height_min", "width_max"} & set(row)


def test_duplicates_are_listed_by_split_and_by_label(photos):
    (photos / "test/dog/other.png").write_bytes((photos / "train/cat/2.png").read_bytes())
    (photos / "train/dog/mine.png").write_bytes((photos / "train/cat/0.png").read_bytes())
    data = Folder(str(photos), Share(0.01, 0)).load()
    arrays = describe_images(data)
    listed = findings(data, arrays)
    split = data.items.set_index("image_id")["split"]
    of = {(line["image_id"], line["other_image_id"]): line["finding"] for line in listed.to_dict("records")}
    assert of["test/dog/other.png", "train/cat/2.png"] == "exact duplicate in two splits with two labels"
    assert of["test/cat/copy.png", "train/cat/0.png"] == "exact duplicate in two splits"
    assert of["test/dog/again.png", "train/dog/0.png"] == "near duplicate in two splits"
    mine = "in two splits " * (split["train/cat/0.png"] != split["train/dog/mine.png"])
    assert of["train/cat/0.png", "train/dog/mine.png"] == f"exact duplicate {mine}with two labels"
    row = summary(data, arrays)
    assert row["duplicates_between_splits"] == listed["finding"].str.contains("in two splits").sum()
    assert row["duplicates_two_labels"] == listed["finding"].str.contains("with two labels").sum() == 3
    assert row["duplicates_between_splits_two_labels"] == listed["finding"].str.endswith("splits with two labels").sum()


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


def test_groups_in_several_given_splits_are_listed_in_the_terminal(fca, tmp_path):
    root = plant(tmp_path / "scans", grid("train", "test"))
    patients = {path: f"p{number % 5}" for number, path in enumerate(grid("train", "test"))}
    patients |= {"test/dog/3.png": "", "train/cat/0.png": ""}  # no patient of their own
    pd.Series(patients, name="patient").rename_axis("path").to_csv(root / "index.csv")
    words = ("task=describe", "dataset=folder", f"dataset.root={root}", "logger=none")
    for _ in range(2):  # done, and shown again
        code, shown, errors = fca(*words, "dataset.group=patient")
        assert code == 0, errors
        assert "groups_across_splits=5" in shown
        assert "  5 x group in several splits: p0 (train 1, test 1); p1 (" in shown
        assert "all in outputs/runs/" in shown
    rows = Store(tmp_path / "outputs").rows()
    assert rows["groups_across_splits"].tolist() == [5]
    [listed] = map(pd.read_csv, (tmp_path / "outputs").rglob("findings.csv"))
    in_test = {p for path, p in patients.items() if p and path.startswith("test")}
    assert set(listed["group"]) == in_test & {p for path, p in patients.items() if path.startswith("train")}
