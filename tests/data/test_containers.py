"""Tar shards of WebDataset, Parquet and Arrow files of the Hugging Face hub: read where they lie, known by content."""

import io
import json
import tarfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fca.data import content
from fca.data.files import decode
from fca.data.hf import HuggingFace
from fca.data.webdataset import WebDataset, keys_of
from fca.types import FcaError, UnreadableImage
from tests.support.trees import VAL, png

IMAGES = [png(seed) for seed in range(8)]
LABELS = [0, 1, 0, 1, 1, 0, 1, 0]
SPLITS = ["train"] * 4 + ["validation"] * 4
FEATURES = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FCA_CACHE", str(tmp_path / "fca"))
    monkeypatch.setattr(content, "CLOCK_NS", 0)  # the files are new


def tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            file.addfile(info, io.BytesIO(body))
    return path


def shards(root, order=range(4), label=lambda k: ("cls", str(LABELS[k]).encode())):
    """Two shards a split, two samples each."""
    for n, first in enumerate((0, 2, 4, 6)):
        rows = [order[(first + i) % 4] + first // 4 * 4 for i in range(2)]
        members = [(f"s{k}.{suffix}", body) for k in rows for suffix, body in (("png", IMAGES[k]), label(k))]
        tar(root / f"mine-{SPLITS[first]}-{n:04d}.tar", members)
    return root


def table(rows, kind="image"):
    """Rows as `datasets` writes them."""
    images = [{"bytes": IMAGES[k], "path": f"{k}.png"} for k in rows]
    if kind == "binary":
        images = [image["bytes"] for image in images]
    found = pa.table({"image": images, "label": pa.array([LABELS[k] for k in rows], pa.int64())})
    return found.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": FEATURES}})})


def parquet(root, kind="image"):
    (root / "data").mkdir(parents=True)
    for split, rows in (("train", (0, 1)), ("train", (2, 3)), ("validation", (4, 5, 6, 7))):
        number = len(list((root / "data").glob("*")))
        path = root / "data" / f"{split}-{number:05d}-of-00003.parquet"
        pq.write_table(table(rows, kind), path, row_group_size=3)
    return root


def arrow(root):
    for split, rows in (("train", (0, 1, 2, 3)), ("validation", (4, 5, 6, 7))):
        (root / split).mkdir(parents=True)
        with pa.ipc.new_stream(root / split / "data-00000-of-00001.arrow", table(rows).schema) as file:
            file.write_table(table(rows), max_chunksize=3)
    return root


def shown(data):
    """Split and class of every image, by its pixels."""
    found = {}
    for row, item in enumerate(data.items.to_dict("records")):
        [k] = [k for k in range(8) if np.array_equal(decode(IMAGES[k], "png"), data.read(row))]
        found[k] = item["split"], item["label"]
    return found


KEYS = {"splits": {"train": "test", "validation": "train"}}  # a set needs a test split; val is carved from train


@pytest.mark.parametrize("make", [parquet, arrow, shards])
def test_every_image_comes_with_its_class_and_split(tmp_path, make):
    kind = WebDataset if make is shards else HuggingFace
    root = str(make(tmp_path / "set"))
    for _ in range(2):  # the second time from the index
        found = shown(kind(root, VAL, **KEYS).load())
        names = ["0", "1"] if make is shards else ["cat", "dog"]
        assert {k: label for k, (_, label) in found.items()} == {k: names[LABELS[k]] for k in range(8)}
        assert {k for k, (split, _) in found.items() if split == "test"} == {0, 1, 2, 3}
    assert kind(root, VAL, classes=["kitten", "puppy"], **KEYS).load().classes == ("kitten", "puppy")


@pytest.mark.parametrize("make", [shards, parquet])
def test_files_of_train_and_validation_alone_are_tested_on_validation(tmp_path, caplog, make):
    load = WebDataset if make is shards else HuggingFace
    data = load(str(make(tmp_path / "set")), VAL).load()
    assert data.items["split"].value_counts().to_dict() == {"test": 4, "train": 2, "val": 2}
    assert set(data.items["image_id"].str.split("/").str[0][data.rows("test")]) == {"validation"}
    assert "its validation images are the test images" in caplog.text
    assert caplog.text.count("held out for validation: 2 of 4 training images") == 1


def test_images_are_listed_once_and_again_when_a_file_changes(tmp_path, monkeypatch):
    root = shards(tmp_path / "set")
    before = WebDataset(str(root), VAL, **KEYS).load().fingerprint
    monkeypatch.setattr(tarfile, "open", lambda *_, **__: pytest.fail("a file was read again"))
    assert WebDataset(str(root), VAL, **KEYS).load().fingerprint == before
    monkeypatch.undo()
    monkeypatch.setenv("FCA_CACHE", str(tmp_path / "fca"))
    tar(
        root / "mine-train-0000.tar", [("s0.png", IMAGES[7]), ("s0.cls", b"0"), ("s1.png", IMAGES[1]), ("s1.cls", b"1")]
    )
    assert WebDataset(str(root), VAL, **KEYS).load().fingerprint != before


def test_other_shards_of_the_same_images_are_the_same_set(tmp_path):
    a, b = shards(tmp_path / "a"), shards(tmp_path / "b", order=(3, 1, 0, 2))
    assert len({WebDataset(str(root), VAL, **KEYS).load().fingerprint for root in (a, b)}) == 1
    sets = [parquet(tmp_path / "c"), arrow(tmp_path / "d"), parquet(tmp_path / "e", "binary")]
    assert len({HuggingFace(str(root), VAL, **KEYS).load().fingerprint for root in sets}) == 1


def test_the_class_may_be_a_value_in_json_or_text(tmp_path):
    text = shards(tmp_path / "text", label=lambda k: ("txt", b"dog\n" if LABELS[k] else b"cat\n"))
    assert WebDataset(str(text), VAL, label="txt", **KEYS).load().classes == ("cat", "dog")
    values = shards(
        tmp_path / "json", label=lambda k: ("json", json.dumps({"kind": {"0": LABELS[k]}, "n": 3}).encode())
    )
    with pytest.raises(FcaError, match=r"dataset\.label: 'species'"):
        WebDataset(str(values), VAL, label="json.species").load()
    with pytest.raises(FcaError, match=r"kind is {'0': [01]}, not one class"):
        WebDataset(str(values), VAL, label="json.kind").load()
    plain = shards(tmp_path / "plain", label=lambda k: ("json", json.dumps({"kind": LABELS[k]}).encode()))
    assert WebDataset(str(plain), VAL, label="json.kind", **KEYS).load().classes == ("0", "1")


def test_integer_labels_keep_their_order(tmp_path):
    label = lambda k: ("cls", b"10" if LABELS[k] else b"9")  # noqa: E731
    assert WebDataset(str(shards(tmp_path / "set", label=label)), VAL, **KEYS).load().classes == ("09", "10")
    with pytest.raises(FcaError, match=r"dataset\.classes = 2; allowed: 11 or more class keys"):
        WebDataset(str(tmp_path / "set"), VAL, classes=["a", "b"], **KEYS).load()


def samples(labels, first=0):
    """Members of a shard, a class each."""
    members = []
    for number, label in enumerate(labels, first):
        members += [(f"s{number}.png", png(number)), (f"s{number}.cls", label.encode())]
    return members


def test_members_that_systems_add_are_no_samples(tmp_path):
    added = [("@eaDir/s0.png", png(90)), ("@eaDir/s0.cls", b"cat"), ("__MACOSX/s1.png", png(91)), ("._s1.png", b"x")]
    tar(tmp_path / "set" / "0.tar", [*samples(["cat", "dog"] * 2), *added, ("./s9.png", png(92)), ("./s9.cls", b"dog")])
    data = WebDataset(str(tmp_path / "set"), VAL).load()
    assert data.items["label"].value_counts().to_dict() == {"cat": 2, "dog": 3}


def test_images_without_a_label_are_counted_as_unused_but_for_splits_that_are_left_out(tmp_path):
    tar(tmp_path / "set" / "train-0.tar", samples(["0", "1", "-1"] * 4))
    tar(tmp_path / "set" / "test-0.tar", samples(["0", "1"] * 2, first=20))
    tar(tmp_path / "set" / "extra-0.tar", samples(["-1"] * 3, first=40))
    data = WebDataset(str(tmp_path / "set"), VAL, splits={"extra": None}).load()
    assert (len(data.items), data.unused) == (12, 4)


def test_two_spellings_of_a_number_are_refused(tmp_path):
    tar(tmp_path / "set" / "0.tar", samples(["01", "1", "2"] * 2))
    with pytest.raises(FcaError, match=r"two spellings of one number = '01' \(2 images\), '1' \(2 images\); "):
        WebDataset(str(tmp_path / "set"), VAL).load()


@pytest.mark.parametrize("labels", [["cat", "dog"], ["0", "dog"]])
def test_classes_that_labels_do_not_have_are_refused_where_these_are_names(labels):
    assert keys_of(pd.Series(labels), labels).tolist() == labels
    with pytest.raises(FcaError, match=r"dataset.classes = kitten, puppy; .* labels are names such as .*dog"):
        keys_of(pd.Series(labels), ["kitten", "puppy"])


def test_names_of_classes_that_stand_twice_are_refused(tmp_path):
    names = {"image": FEATURES["image"], "label": {"names": ["cat", "dog", "cat"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": names}})}
    (tmp_path / "set").mkdir()
    pq.write_table(table(range(8)).replace_schema_metadata(metadata), tmp_path / "set" / "train.parquet")
    with pytest.raises(FcaError, match=r"class names of train\.parquet = cat more than once; "):
        HuggingFace(str(tmp_path / "set"), VAL).load()

    tar(tmp_path / "shards" / "0.tar", samples(["0", "1"] * 4))
    with pytest.raises(FcaError, match=r"dataset\.classes = cat; allowed: names that differ; "):
        WebDataset(str(tmp_path / "shards"), VAL, classes=["cat", "cat"]).load()


def test_minus_one_in_a_column_of_fractions_is_no_class(tmp_path):
    labels = pa.array([0.0, 1.0, -1.0, 1.0], pa.float64())
    images = [{"bytes": IMAGES[k], "path": None} for k in range(4)]
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "set" / "train.parquet")
    with pytest.raises(FcaError, match=r"column label of train\.parquet = -1\.0; .* store the labels as integers"):
        HuggingFace(str(tmp_path / "set"), VAL).load()


@pytest.mark.parametrize(("make", "suffix"), [(shards, ".TAR"), (parquet, ".Parquet"), (arrow, ".ARROW")])
def test_suffixes_of_files_count_in_any_case(tmp_path, make, suffix):
    root = make(tmp_path / "set")
    for path in [path for path in root.rglob("*") if path.is_file()]:
        path.rename(path.with_suffix(suffix))
    load = WebDataset if make is shards else HuggingFace
    data = load(str(root), VAL).load()
    assert len(data.items) == 8
    assert data.read(0).shape[2] == 3


@pytest.mark.parametrize("make", [shards, parquet, arrow])
def test_a_link_to_a_file_that_is_not_there_is_refused(tmp_path, make):
    root = make(tmp_path / "set")
    first = min(path for path in root.rglob("*") if path.is_file())
    first.unlink()
    first.symlink_to(tmp_path / "not fetched")
    load = WebDataset if make is shards else HuggingFace
    with pytest.raises(FcaError, match=f"file = .*{first.name}; allowed: a file: this link leads nowhere"):
        load(str(root), VAL).load()


# Files that are damaged, or made to break the reader.


def test_no_file_is_one_line(tmp_path):
    (tmp_path / "other.zip").write_bytes(b"")
    for kind, suffix in ((WebDataset, ".tar"), (HuggingFace, ".parquet or .arrow")):
        with pytest.raises(FcaError, match=f"dataset.root = .*; allowed: a folder with {suffix} files"):
            kind(str(tmp_path), VAL).load()


@pytest.mark.parametrize("length", [0, 100, 512, 700, 1024, 2000, -10240])
def test_a_cut_tar_is_refused(tmp_path, length):
    root = shards(tmp_path / "set")
    path = root / "mine-train-0000.tar"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(FcaError, match=r"file = .*mine-train-0000.tar; allowed: a whole .tar, not compressed"):
        WebDataset(str(root), VAL, **KEYS).load()


def test_any_damage_of_a_tar_gives_images_or_one_error(tmp_path):
    rng, whole = np.random.default_rng(0), shards(tmp_path / "set").joinpath("mine-train-0000.tar").read_bytes()
    for _ in range(40):
        body = bytearray(whole)
        for at in rng.integers(0, 3000, 3):
            body[at] = rng.integers(256)
        (tmp_path / "set" / "mine-train-0000.tar").write_bytes(body)
        try:
            data = WebDataset(str(tmp_path / "set"), VAL, **KEYS).load()
            for row in range(len(data.items)):
                data.read(row)
        except (FcaError, UnreadableImage):
            continue


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("a.png", IMAGES[0])], "no cls of a"),
        ([("a.png", IMAGES[0]), ("a.jpg", IMAGES[0]), ("a.cls", b"1")], "a has two images or classes"),
        ([("a.png", IMAGES[0]), ("a.cls", b"\xff\xfe")], "utf-8"),
        ([("a.png", IMAGES[0]), ("a.cls", b" ")], "no cls of a"),
    ],
)
def test_samples_that_are_not_one_image_of_one_class_are_refused(tmp_path, members, why):
    tar(tmp_path / "set" / "0.tar", members)
    with pytest.raises(FcaError, match=why):
        WebDataset(str(tmp_path / "set"), VAL).load()


def test_members_lead_nowhere(tmp_path):
    """Nothing is unpacked: links are no images, and a name is only a key."""
    link = tarfile.TarInfo("b.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members = [("../../a.png", IMAGES[0]), ("../../a.cls", b"1"), ("/c.png", IMAGES[1]), ("/c.cls", b"0")]
    path = tar(tmp_path / "set" / "0.tar", members)
    with tarfile.open(path, "a") as file:
        file.addfile(link)
    data = WebDataset(str(tmp_path / "set"), VAL).load()
    assert data.items["image_id"].tolist() == ["all/../../a", "all/c"]
    assert np.array_equal(data.read(0), decode(IMAGES[0], "png"))


def test_a_compressed_tar_is_refused(tmp_path):
    (tmp_path / "set").mkdir()
    with tarfile.open(tmp_path / "set" / "0.tar", "w:gz") as file:
        file.addfile(tarfile.TarInfo("a.png"))
    with pytest.raises(FcaError, match=r"a whole \.tar, not compressed"):
        WebDataset(str(tmp_path / "set"), VAL).load()


@pytest.mark.parametrize("make", [parquet, arrow])
def test_a_damaged_table_is_refused(tmp_path, make):
    root = make(tmp_path / "set")
    path = sorted(path for path in root.rglob("*") if path.is_file())[0]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(FcaError, match=r"file = .*; allowed: whole, with columns image"):
        HuggingFace(str(root), VAL, **KEYS).load()


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"picture": [b"x"], "label": [1]}, "image"),
        ({"image": [{"bytes": None, "path": "/etc/passwd"}], "label": [1]}, "/etc/passwd.* is no encoded image"),
        ({"image": [b"x"], "label": pa.array([None], pa.int64())}, "rows without label"),
    ],
)
def test_columns_without_images_or_classes_are_refused(tmp_path, columns, why):
    pq.write_table(pa.table(columns), tmp_path / "0.parquet")
    with pytest.raises(FcaError, match=why):
        HuggingFace(str(tmp_path), VAL).load()


def test_an_image_that_cannot_be_decoded_is_named(tmp_path):
    broken = tmp_path / "set"
    members = [("a.png", b"no image"), ("a.cls", b"0"), ("b.png", IMAGES[0]), ("b.cls", b"1")]
    tar(broken / "0.tar", members)
    with pytest.raises(UnreadableImage, match="set: all/a: no image"):
        WebDataset(str(broken), VAL).load().read(0)
