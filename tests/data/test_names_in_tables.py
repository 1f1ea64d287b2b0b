"""Names in tables: one spelling a class and a group, one line a file, and the classes that files of a hub declare."""

import io
import json
import logging
import tarfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fca.csv_table import csv_text
from fca.data.folder import Folder
from fca.data.hf import HuggingFace
from fca.data.manifest import Manifest
from fca.data.splits import Share, for_training
from fca.data.webdataset import WebDataset
from fca.names import comparison_key
from fca.subset import Superclasses, named_subset, read_superclasses
from fca.types import FcaError
from tests.support.images import write_images

VAL = Share(0.25, 0)
PATHS = [f"{k}.bmp" for k in range(8)]
NFC, NFD = "caf\u00e9", "cafe\u0301"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FCA_CACHE", str(tmp_path / "fca"))


def bmp(k):
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), k, np.uint8)).save(buffer, "BMP")
    return buffer.getvalue()


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    for k, path in enumerate(PATHS):
        (root / path).write_bytes(bmp(k))
    return root


def listed(root, text, **keys):
    (root / "t.csv").write_text(text if isinstance(text, str) else text.to_csv(index=False), encoding="utf-8")
    return Manifest(str(root), "t.csv", VAL, name="photos", **keys).load()


def frame(labels, **columns):
    return pd.DataFrame({"path": PATHS, "label": labels, **columns})


SPELLINGS = [("cat", "cat "), ("cat", "Cat"), (NFC, NFD), ("1", "1.0"), ("1", "01"), ("red fox", "red  fox")]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_two_spellings_of_a_class_are_refused_in_every_loader(photos, one, other):
    labels = [one, other, one, "dog"] * 2
    refused = pytest.raises(FcaError, match=r"label: two spellings of one class = .* \(4 images\), .* \(2 images\)")
    with refused:
        listed(photos, frame(labels))

    pq.write_table(pa.table({"image": [bmp(k) for k in range(8)], "label": labels}), photos / "all.parquet")
    with refused:
        HuggingFace(str(photos), VAL).load()

    with tarfile.open(photos / "all.tar", "w") as tar:
        for k, label in enumerate(labels):
            for name, body in ((f"{k}.bmp", bmp(k)), (f"{k}.json", json.dumps({"kind": f"x{label}"}).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body))
    if not one.isdigit() and other.strip() == other:  # x01 is no number; the class in a member is stripped
        with refused:
            WebDataset(str(photos), VAL, label="json.kind").load()


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_two_spellings_of_a_group_are_refused(photos, one, other):
    table = frame(["cat", "dog"] * 4, patient=[one, one, other, other, "p", "p", "", ""])
    with pytest.raises(FcaError, match=r"patient: two spellings of one group = .* \(2 images\), .* \(2 images\)"):
        listed(photos, table, group="patient")

    root = photos.parent / "folder"
    for k in range(8):
        (root / "cd"[k % 2]).mkdir(parents=True, exist_ok=True)
        (root / "cd"[k % 2] / f"{k}.bmp").write_bytes(bmp(k))
    index = table.assign(path=[f"{'cd'[k % 2]}/{k}.bmp" for k in range(8)])[["path", "patient"]]
    (root / "index.csv").write_text(index.to_csv(index=False), encoding="utf-8")
    with pytest.raises(FcaError, match="patient: two spellings of one group"):
        Folder(str(root), VAL, group="patient").load()


def test_what_differs_in_more_than_the_spelling_is_two_names():
    names = ["1.5", "1.50", "1.1", "1.10", "10", "1", "-1", "a1", "a01", "cat", "cats", "ca t"]
    assert len({comparison_key(name) for name in names}) == len(names)


def test_spaces_and_codes_are_seen_in_the_message(photos):
    with pytest.raises(FcaError, match=r"'cat' .*'cat ' "):
        listed(photos, frame(["cat", "cat ", "dog", "dog"] * 2))
    with pytest.raises(FcaError, match=r"'caf\\xe9'\).*'cafe\\u0301'\)"):
        listed(photos, frame([NFC, NFD, "dog", "dog"] * 2))


def test_the_lines_that_are_left_out_do_not_count(photos):
    table = frame(
        ["cat", "dog", "cat", "dog", "Cat", "dog", "cat", "dog"], split=["a", "a", "b", "b", "c", "c", "b", "b"]
    )
    keys = {"splits": {"a": "test", "b": "train", "c": None}}
    assert listed(photos, table, **keys).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("a,0.bmp,cat,train\nb,0.bmp,dog,train\n", "'0.bmp' on 2 lines, label 'cat' and 'dog', split 'train'"),
        ("a,0.bmp,cat,train\nb,./0.bmp,cat,test\n", "'0.bmp' on 2 lines, label 'cat', split 'train' and 'test'"),
        ("a,0.bmp,cat,train\nb,.//0.bmp,cat,train\n", "'0.bmp' on 2 lines, label 'cat', split 'train'"),
    ],
)
def test_a_file_stands_on_one_line_whatever_its_image_id(photos, lines, message):
    rest = "c,1.bmp,dog,train\nd,2.bmp,cat,test\ne,3.bmp,dog,test\n"
    with pytest.raises(FcaError, match=f"files that t.csv lists more than once = {message}; "):
        listed(photos, f"image_id,path,label,split\n{lines}{rest}")


def test_paths_of_windows_are_joined_and_other_cases_named(tmp_path):
    root = write_images(tmp_path / "set", 2, ("cat", "dog")) / "train"
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    text = "path,label\n" + "".join("{},{}\n".format(path.replace("/", "\\"), path[:3]) for path in paths)
    assert listed(root, text).items["image_id"].tolist() == paths
    with pytest.raises(FcaError, match=r"lists = '.*\.PNG' \(there is 'cat/.*\.png'\)"):
        listed(root, text.replace(".png,cat", ".PNG,cat"))


def test_full_paths_below_the_root_are_the_files_below_it(tmp_path):
    root = write_images(tmp_path / "set", 2, ("cat", "dog")) / "train"
    (tmp_path / "linked").symlink_to(root)
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    for start in (root, tmp_path / "linked"):
        (root / "t.csv").write_text("path,label\n" + "".join(f"{start}/{path},{path[:3]}\n" for path in paths))
        assert Manifest(str(tmp_path / "linked"), "t.csv", VAL).load().items["image_id"].tolist() == paths
        (root / "index.csv").write_text("path,patient\n" + "".join(f"{start}/{path},p\n" for path in paths))
        assert set(Folder(str(tmp_path / "linked"), VAL, group="patient").load().items["patient"]) == {"p"}


@pytest.mark.parametrize("start", ["set/train/", "/elsewhere/train/", "C:\\data\\train\\"])
def test_paths_from_another_folder_are_refused_with_the_file_that_is_there(tmp_path, start):
    root = write_images(tmp_path / "set", 2, ("cat", "dog")) / "train"
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    with pytest.raises(FcaError, match=rf"\(there is '{paths[0]}'\).*relative to dataset.root"):
        listed(root, "path,label\n" + "".join(f"{start}{path},{path[:3]}\n" for path in paths))


def test_an_index_whose_paths_are_spelt_otherwise_is_refused_with_the_file_that_is_there(tmp_path):
    root = write_images(tmp_path / "set", 2, ("cat", "dog")) / "train"
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.png"))
    (root / "index.csv").write_text("path,patient\n" + "".join(f"{path.upper()},p\n" for path in paths))
    with pytest.raises(FcaError, match=rf"files that index.csv lists = .*\(there is '{paths[0]}'\)"):
        Folder(str(root), VAL, group="patient").load()


@pytest.mark.parametrize("name", ["NA", "null", "None", "nan", "True", "01", "1.0", "=1+1", "-1", "@home", "+", "a;b"])
def test_a_class_of_any_name_survives_a_table(photos, name):
    table = frame([name, "dog"] * 4, patient=[name, name, "q", "q", "r", "r", "s", "s"])
    data = listed(photos, csv_text(table), group="patient")
    assert data.classes == tuple(sorted([name, "dog"]))
    assert set(data.items["patient"]) == {name, "q", "r", "s"}
    (photos / "groups.csv").write_text(csv_text(pd.DataFrame({"class": [name, "dog"], "group": ["x", name]})))
    assert read_superclasses(str(photos / "groups.csv")).of == {name: "x", "dog": name}


# Groups of classes, and names that are typed.


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("class,group\ncat,pet,\ndog,pet,\n", {"cat": "pet", "dog": "pet"}),
        ("class;group\ncat;pet\nfox;\n", {"cat": "pet"}),
        ("\ufeffclass, group\ncat, pet\n", {"cat": "pet"}),
    ],
)
def test_groups_are_those_of_the_file(tmp_path, text, of):
    (tmp_path / "g.csv").write_text(text, encoding="utf-8")
    assert read_superclasses(str(tmp_path / "g.csv")).of == of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class,group\ncat,pet,x\ndog,pet,y\n", "line 2 of .*g.csv = 3 cells: 'cat', 'pet', 'x'"),
        ("class,group\ncat,pet\nCat,pet\n", r"class in .*g.csv = 'cat' \(1 lines\), 'Cat'"),
        ("class,group\ncat,pet\ndog,pet \n", r"group in .*g.csv = 'pet' \(1 classes\), 'pet '"),
        ("class,group\n,pet\n", "group without a class in .*g.csv = pet"),
        ("class,group\ncat,\n", "groups in .*g.csv = none"),
        ("class,group\n", "groups in .*g.csv = none"),
    ],
)
def test_groups_that_are_not_clear_are_refused(tmp_path, text, message):
    (tmp_path / "g.csv").write_text(text)
    with pytest.raises(FcaError, match=message):
        read_superclasses(str(tmp_path / "g.csv"))


def test_a_name_in_another_spelling_is_answered_with_the_right_one():
    with pytest.raises(FcaError, match=r"subset.classes = 'Cat'; allowed: spelt as the data set has it: 'cat'"):
        named_subset(("cat", "dog"), ["Cat", "dog"])
    with pytest.raises(FcaError, match=r"class = 'cat'; allowed: spelt as the file of groups pets has it: 'Cat'"):
        Superclasses("pets", {"Cat": "pet", "dog": "pet"}).codes(("cat", "dog"))


# Files of the Hugging Face hub.


def shard(path, rows, labels, names=None, kind=None):
    table = pa.table({"image": [bmp(k) for k in rows], "label": pa.array(labels, kind)})
    features = {"label": {"names": names, "_type": "ClassLabel"}} if names else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path)


def hub(root, train, test):
    for split, (labels, names), rows in (("train", train, (0, 1, 2, 3)), ("test", test, (4, 5, 6, 7))):
        shard(root / f"{split}-00000-of-00001.parquet", rows, labels, names)
    return root


def labels_of(data):
    return {int(data.read(row)[0, 0, 0]): label for row, label in enumerate(data.items["label"])}


def test_each_file_counts_its_labels_by_its_own_names(tmp_path):
    root = hub(tmp_path / "set", ([0, 1, 0, 1], ["dog", "cat"]), ([0, 1, 0, 1], ["cat", "dog"]))
    data = HuggingFace(str(root), VAL).load()
    assert labels_of(data) == dict(enumerate(["dog", "cat", "dog", "cat", "cat", "dog", "cat", "dog"]))
    with pytest.raises(FcaError, match=r"dataset.classes = cat, dog; allowed: null: .* several orders"):
        HuggingFace(str(root), VAL, classes=["cat", "dog"]).load()


def test_names_and_text_are_joined_and_names_and_integers_are_not(tmp_path):
    text = hub(tmp_path / "text", ([1, 0, 1, 0], ["cat", "dog"]), (["dog", "cat"] * 2, None))
    assert labels_of(HuggingFace(str(text), VAL).load()) == dict(enumerate(["dog", "cat"] * 4))
    numbers = hub(tmp_path / "numbers", ([1, 0, 1, 0], ["cat", "dog"]), ([0, 1, 0, 1], None))
    with pytest.raises(FcaError, match=r"column label = integers without names in test-.*, names of classes in train-"):
        HuggingFace(str(numbers), VAL).load()
    assert labels_of(HuggingFace(str(numbers), VAL, classes=["cat", "dog"]).load())[4] == "cat"


def test_a_label_without_a_name_is_named_with_its_file(tmp_path):
    root = hub(tmp_path / "set", ([0, 1, 2, 1], ["cat", "dog"]), ([0, 1, 0, 1], ["cat", "dog"]))
    with pytest.raises(FcaError, match=r"label in train-.* = 2; allowed: -1 \(none\) to 1"):
        HuggingFace(str(root), VAL).load()


@pytest.mark.parametrize("names", [["cat", "dog"], None])
def test_images_of_label_minus_one_are_left_out_and_counted(tmp_path, caplog, names):
    root = hub(tmp_path / "set", ([0, 1, -1, 1], names), ([0, 1, -1, -1], names))
    with caplog.at_level(logging.WARNING):
        data = HuggingFace(str(root), VAL).load()
    assert (len(data.items), len(data.classes)) == (5, 2)
    assert sorted(labels_of(data)) == [0, 1, 3, 4, 5]
    assert "images without a label (-1) are left out: " in caplog.text
    assert "1 in train" in caplog.text
    assert "2 in test" in caplog.text


def test_a_split_without_any_label_is_refused_until_it_is_left_out(tmp_path):
    root = hub(tmp_path / "set", ([0, 1, 0, 1], ["cat", "dog"]), ([-1] * 4, ["cat", "dog"]))
    with pytest.raises(FcaError, match=r"labels of test in set = -1 .* 4 images; .*dataset.splits='{test: null}'"):
        HuggingFace(str(root), VAL).load()
    assert len(HuggingFace(str(root), VAL, splits={"test": None}).load().items) == 4


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        ([[0], [1], [0], [1]], None, r"column label of 0\.parquet = list<.*; allowed: one class an image"),
        ([{"a": 0}, {"a": 1}, {"a": 0}, {"a": 1}], None, r"column label of 0\.parquet = struct<"),
        ([0.0, 1.0, float("nan"), 1.0], None, r"column label of 0\.parquet = NaN"),
        (
            ["cat", "", "dog", " "],
            pa.string(),
            r"column label of 0\.parquet = a blank text; allowed: a class in every row",
        ),
    ],
)
def test_labels_that_are_no_single_class_are_refused(tmp_path, labels, kind, message):
    shard(tmp_path / "0.parquet", range(4), labels, kind=kind)
    with pytest.raises(FcaError, match=message):
        HuggingFace(str(tmp_path), VAL).load()


# What must not change.


def test_sets_without_such_names_have_the_fingerprints_that_they_had(photos, tmp_path):
    """Made by the code before names were compared, on these images."""
    labels = ["01", "NA"] * 4
    patients = [f"p{k // 2}" for k in range(8)]
    split = ["train"] * 4 + ["test"] * 4
    table = frame(
        labels, split=split, patient=patients, age=[1, 2, None, 4, 5, 6, 7, 8], note=["a", "NA", None, "d"] * 2
    )
    data = listed(photos, table)
    assert data.fingerprint == "1707d4f4a75d"
    assert data.items["age"].tolist()[3:] == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert data.items["note"].isna().tolist() == [False, False, True, False] * 2, "NA is a text there"
    grouped = listed(photos, table.drop(columns="split"), group="patient")
    assert (grouped.fingerprint, for_training(grouped).fingerprint) == ("e48c77eec98c", "ae4a36321783")

    names = ["cat", "dog"]
    root = hub(tmp_path / "hf", ([0, 1, 0, 1], names), ([0, 1, 0, 1], names))
    assert HuggingFace(str(root), VAL).load().fingerprint == "f87da54537bc"
    assert HuggingFace(str(root), VAL, classes=["kitten", "puppy"]).load().fingerprint == "cdbba670cb4b"

    folder = tmp_path / "folder"
    for k in range(8):
        (folder / labels[k]).mkdir(parents=True, exist_ok=True)
        (folder / labels[k] / f"{k}.bmp").write_bytes(bmp(k))
    index = pd.DataFrame({"path": [f"{labels[k]}/{k}.bmp" for k in range(8)], "patient": patients})
    index.to_csv(folder / "index.csv", index=False)
    data = Folder(str(folder), VAL, group="patient").load()
    assert (data.fingerprint, for_training(data).fingerprint) == ("20438e73f5e3", "ac1c10509f3c")
