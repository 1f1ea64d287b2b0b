import io
import zipfile

import numpy as np
import pandas as pd
import pytest
import xxhash
from PIL import Image

from fca.data.manifest import Manifest
from fca.types import FcaError, UnreadableImage
from tests.support.images import write_images
from tests.support.trees import VAL, encoded, pack, plant

PATHS = ["shots/a.png", "shots/b.png", "shots/c.png", "shots/d.png"]


def lines(**columns):
    return pd.DataFrame({"path": PATHS, "label": ["cat", "dog", "cat", "dog"], **columns})


@pytest.fixture
def root(tmp_path):
    return plant(tmp_path / "shots", PATHS)


def loaded(root, frame, **keys):
    frame.to_csv(root / "index.csv", index=False)
    return Manifest(str(root), "index.csv", VAL, **keys).load()


def of_file(root, frame, file, **keys):
    if file.endswith(".parquet"):
        frame.to_parquet(root / file)
    else:
        frame.to_csv(root / file, index=False)
    return Manifest(str(root), file, VAL, **keys).load()


def test_every_line_is_an_image_with_its_annotations(root):
    data = loaded(root, lines(pose=["left", "right", "left", None], weight=[1, 2, 3, 4]))
    assert data.name == "shots"
    assert data.classes == ("cat", "dog")
    assert data.items["image_id"].tolist() == PATHS
    assert data.items["weight"].tolist() == [1, 2, 3, 4]
    assert data.items["pose"].isna().tolist() == [False, False, False, True]
    assert data.items["content"].tolist() == [xxhash.xxh3_128_hexdigest((root / path).read_bytes()) for path in PATHS]
    assert data.mask(0) is None
    expected = np.random.default_rng(2).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    assert (data.read(2) == expected).all()


def test_a_zip_may_hold_the_manifest(tmp_path):
    archive = pack(tmp_path / "shots.zip", PATHS)

    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("tables/index.csv", lines().to_csv(index=False))
    data = Manifest(str(archive), "tables/index.csv", VAL).load()
    assert data.read(0).shape == (4, 5, 3)


def test_a_parquet_manifest_may_lie_elsewhere(root, tmp_path):
    frame = lines(split=["train", "train", "test", "test"], label=pd.Series([7, 12, 7, 12]))
    frame.to_parquet(tmp_path / "elsewhere.parquet")
    data = Manifest(str(root), str(tmp_path / "elsewhere.parquet"), VAL).load()
    assert data.classes == ("12", "7")
    assert data.items["split"].tolist() == ["train", "train", "test", "test"]


def test_a_table_of_train_and_val_alone_is_tested_on_val(root, caplog):
    data = loaded(root, lines(split=["Train", "Train", "VAL", "VAL"]))
    assert data.items["split"].tolist() == ["train", "train", "test", "test"]
    assert "shots: its VAL images are the test images, as it has no test split" in caplog.text


def test_csv_and_parquet_of_the_same_lines_are_one_set(root):
    frame = lines(split=["train", "train", "test", "test"])
    csv = loaded(root, frame)
    frame.to_parquet(root / "index.parquet")
    assert Manifest(str(root), "index.parquet", VAL).load().fingerprint == csv.fingerprint


def test_class_keys_are_text_to_the_letter(root):
    data = loaded(root, lines(label=["01", "NA", "01", "NA"]))
    assert data.classes == ("01", "NA")


def test_columns_are_mapped_and_the_displaced_ones_kept(root):
    frame = lines(shape=["x", "y", "x", "y"], key=["i4", "i3", "i2", "i1"])
    data = loaded(root, frame, columns={"label": "shape", "image_id": "key"})
    assert data.classes == ("x", "y")
    assert data.items["image_id"].tolist() == ["i1", "i2", "i3", "i4"]
    assert data.items["label_in_file"].tolist() == ["dog", "cat", "dog", "cat"]
    expected = np.random.default_rng(3).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    assert (data.read(0) == expected).all()  # i1 is d.png


def test_columns_that_are_spelt_otherwise_are_in_the_mapping_to_type(root):
    with pytest.raises(FcaError, match=r"= label, path; .*dataset.columns='\{path: Path, label: its_name\}'"):
        loaded(root, lines().rename(columns={"path": "Path", "label": "class"}))


def test_a_parquet_manifest_may_have_its_paths_as_index(root):
    lines().set_index("path").to_parquet(root / "list.parquet")
    data = Manifest(str(root), "list.parquet", VAL).load()
    assert data.items["image_id"].tolist() == PATHS


def test_a_label_that_is_a_list_is_refused(root):
    with pytest.raises(FcaError, match=r"column label of list\.parquet = list<.*>; allowed: one value a line"):
        of_file(root, lines().assign(label=[["cat"], ["dog"]] * 2), "list.parquet")


def test_where_selects_lines_by_the_files_own_columns(root):
    frame = lines(kind=["photo", "photo", "sketch", "photo"])
    assert loaded(root, frame, where="kind == 'photo'").items["image_id"].tolist() == [PATHS[0], PATHS[1], PATHS[3]]


@pytest.mark.parametrize("name", ["NA", "None", "null", "nan", "N/A"])
def test_where_finds_a_text_that_other_readers_take_for_missing(root, name):
    frame = lines(kind=[name, name, None, "photo"])
    assert loaded(root, frame, where=f"kind == '{name}'").items["image_id"].tolist() == PATHS[:2]
    assert loaded(root, frame, where=f"kind != '{name}'", columns={"label": "label"}).classes == ("cat", "dog")
    with pytest.raises(FcaError, match="classes of shots = cat; "):
        loaded(root, frame, where="kind == None")


@pytest.mark.parametrize(
    ("column", "where", "held"),
    [
        (["01", "02", "01", "02"], "kind == '01'", "kind holds 1, 2"),
        ([True, False, True, False], "kind == 'true'", "kind holds True, False"),
        (["a", None, "a", "b "], "kind == 'b' and label == 0", "kind holds 'a', None, 'b '; label holds 'cat', 'dog'"),
    ],
)
def test_a_where_that_selects_nothing_shows_what_its_columns_hold(root, column, where, held):
    with pytest.raises(FcaError, match=f"dataset.where = {where}; .* lines of index.csv, which has 4: {held}; "):
        loaded(root, lines(kind=column), where=where)


def test_paths_may_start_with_a_dot(root):
    assert loaded(root, lines(path=[f"./{path}" for path in PATHS])).items["path"].tolist() == PATHS


def test_masks_come_from_their_files_in_either_polarity(root):
    values = np.zeros((4, 5), np.uint8)
    values[1:3, 2:] = 255
    (root / "shots/m.png").write_bytes(encoded(Image.fromarray(values), "PNG"))
    frame = lines(mask=["shots/m.png", "", None, "./shots/m.png"])
    bright = loaded(root, frame)
    assert (bright.mask(0) == (values > 0)).all()
    assert bright.mask(1) is None
    assert bright.mask(2) is None
    assert (loaded(root, frame, mask_object="dark").mask(3) == (values == 0)).all()


def test_a_mask_that_does_not_fit_its_image_is_named(root):
    (root / "shots/m.png").write_bytes(encoded(Image.new("L", (5, 9)), "PNG"))
    data = loaded(root, lines(mask=["shots/m.png"] * 4))
    with pytest.raises(UnreadableImage, match=r"shots/m\.png: a mask of \(9, 5\), its image shots/b.png has \(4, 5\)"):
        data.mask(1)


@pytest.mark.parametrize(
    ("columns", "keys", "message"),
    [
        ({}, {"columns": {"label": "breed"}}, "columns of the manifest = breed; allowed: some of 'path', 'label'"),
        ({}, {"columns": {"lable": "label"}}, "dataset.columns = lable; allowed: path, label, image_id, split, mask"),
        (
            {"label": ["cat", "", "dog", None]},
            {},
            r"without label = 3 \(shots/b.png\), 5 \(shots/d.png\); .* dataset.where=\"label != ''\"",
        ),
        ({"path": [*PATHS[:3], "shots/gone.png"]}, {}, "files that index.csv lists = shots/gone.png; "),
        ({"mask": ["shots/gone.png", "", "", ""]}, {}, "files that index.csv lists = shots/gone.png; "),
        ({"path": [PATHS[0], *PATHS[:3]]}, {}, "more than once = 'shots/a.png' on 2 lines, label 'cat' and 'dog'; "),
        ({}, {"where": "kind == 'photo'"}, "dataset.where = kind == 'photo'; allowed: comparisons "),
        ({}, {"where": "label == 'cow'"}, "dataset.where = label == 'cow'; .*: label holds 'cat', 'dog'; "),
        ({}, {"mask_object": "white"}, "dataset.mask_object = white; allowed: bright, dark"),
        ({"split": ["train", "train", "test", "exam"]}, {}, "dataset.splits = exam; "),
        ({"split": ["train", "train ", "test", "test"]}, {}, "dataset.splits = train, 'train '; allowed: "),
        ({"split": ["train", "train", "test", ""]}, {}, r"lines of index.csv without split = 5 \(shots/d.png\); "),
    ],
)
def test_what_is_wrong_in_a_manifest_is_named(root, columns, keys, message):
    with pytest.raises(FcaError, match=message):
        loaded(root, lines().assign(**columns), **keys)


@pytest.mark.parametrize(("file", "line"), [("index.csv", 4), ("index.parquet", 3)])
def test_lines_without_a_split_are_named_as_the_file_counts_them_and_can_be_left_out(root, file, line):
    frame = lines(split=["train", "test", "", "train"], label=["cat", "cat", "dog", "dog"])
    more = frame.assign(
        path=["shots/e.png", "shots/f.png", "shots/g.png", "shots/h.png"],
        split=["test", *frame["split"][1:2], "test", "train"],
    )
    frame = pd.concat([frame, more], ignore_index=True)
    plant(root, frame["path"].tolist())
    with pytest.raises(FcaError, match=rf"lines of {file} without split = {line} \(shots/c.png\); "):
        of_file(root, frame, file, where="label == 'dog'")

    data = of_file(root, frame, file, where="split != ''")
    assert "shots/c.png" not in data.items["image_id"].tolist()
    assert len(data.items) == 7


def test_a_missing_column_or_manifest_is_named(root):
    with pytest.raises(FcaError, match="columns of the manifest = label; allowed: some of 'path'; "):
        loaded(root, lines()[["path"]])
    with pytest.raises(FcaError, match=r"dataset.file = list.csv; allowed: a file in .*shots, or a path"):
        Manifest(str(root), "list.csv", VAL).load()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("list.csv", "table in list.csv = no header; allowed: a first line with the names of columns"),
        ("list.parquet", "dataset.file = list.parquet; allowed: a CSV with a header, or .parquet; next: mend"),
    ],
)
def test_a_manifest_that_is_no_table_is_named(root, name, message):
    (root / name).write_bytes(b"" if name.endswith("csv") else b"PAR1 no more")
    with pytest.raises(FcaError, match=message):
        Manifest(str(root), name, VAL).load()


def test_annotations_keep_their_types(root):
    data = loaded(root, lines(score=[0.5, None, 2, 3], flag=[True, False, True, True]))
    buffer = io.BytesIO()
    data.items.to_parquet(buffer)  # as the store keeps it
    assert data.items["score"].dtype == np.float64
    assert data.items["flag"].dtype == bool


def test_columns_are_named_on_the_command_line(fca, tmp_path):
    write_images(tmp_path / "shots")
    images = sorted(path.relative_to(tmp_path / "shots") for path in (tmp_path / "shots").rglob("*.png"))
    lines = [f"{path},{path.parent.name}" for path in images]
    (tmp_path / "shots" / "list.csv").write_text("\n".join(["path,shape", *lines]))
    words = ["task=describe", "dataset=manifest", "dataset.root=shots", "dataset.file=list.csv", "logger=none"]
    for mode in ([], ["-m"]):  # a map that begins as {} could not be given: its keys would be unknown
        code, _, err = fca(*mode, *words, "dataset.columns={label: shape}")
        assert code == 0, err


def test_splits_that_are_numbers_are_mapped_on_the_command_line(fca, tmp_path):
    write_images(tmp_path / "shots", 3)
    images = sorted(path.relative_to(tmp_path / "shots") for path in (tmp_path / "shots").rglob("*.png"))
    lines = [f"{path},{path.parent.name},{place % 3}" for place, path in enumerate(images)]
    (tmp_path / "shots" / "list.csv").write_text("\n".join(["path,label,split", *lines]))
    words = ["task=describe", "dataset=manifest", "dataset.root=shots", "dataset.file=list.csv", "logger=none"]
    code, out, err = fca(*words, "dataset.splits={0: train, 1: test, 2: null}")
    assert code == 0, err
    n_train = len(images) // 3
    assert f"n_images={2 * n_train} " in out
    assert f"n_test={n_train} " in out


BOX = ["x0", "y0", "x1", "y1"]


def boxed(*boxes):
    """The four lines with these boxes, blank where there are no more."""
    return lines().join(pd.DataFrame(list(boxes), columns=BOX))


def test_a_box_is_the_mask_of_its_pixels_with_both_ends(root):
    data = loaded(root, boxed((1, 0, 3, 2), (4, 3, 4, 3), (0, 0, 4, 3)), mask_box=BOX)
    for row, (x0, y0, x1, y1) in enumerate([(1, 0, 3, 2), (4, 3, 4, 3), (0, 0, 4, 3)]):
        expected = [[x0 <= x <= x1 and y0 <= y <= y1 for x in range(5)] for y in range(4)]
        assert data.mask(row).tolist() == expected
    assert data.mask(3) is None
    assert data.items["x1"].tolist()[:3] == [3, 4, 4], "and stays an annotation"
    data.items.to_parquet(io.BytesIO())


def test_a_mask_file_is_finer_than_a_box(root):
    (root / "shots/m.png").write_bytes(encoded(Image.fromarray(np.eye(4, 5, dtype=np.uint8)), "PNG"))
    frame = boxed((1, 0, 3, 2), (0, 0, 1, 1)).assign(mask=["shots/m.png", "", "shots/m.png", ""])
    data = loaded(root, frame, mask_box=BOX)
    assert [None if data.mask(row) is None else int(data.mask(row).sum()) for row in range(4)] == [4, 4, 4, None]


def test_boxes_are_part_of_the_content(root):
    frame = boxed((1, 0, 3, 2))
    without, with_boxes = loaded(root, frame), loaded(root, frame, mask_box=BOX)
    assert without.mask(0) is None
    assert len({f.fingerprint for f in (without, with_boxes, loaded(root, boxed((1, 0, 3, 3)), mask_box=BOX))}) == 3
    frame.to_parquet(root / "index.parquet")
    assert Manifest(str(root), "index.parquet", VAL, mask_box=BOX).load().fingerprint == with_boxes.fingerprint
    fractional = frame.astype({"x0": "str"}).replace({"x0": {"1.0": "1.000"}})
    assert loaded(root, fractional, mask_box=BOX).fingerprint == with_boxes.fingerprint


@pytest.mark.parametrize(
    "box",
    [
        (3, 0, 2, 1), (0, 3, 1, 2), (-1, 0, 2, 1), (0, 0, 1.5, 1), (0, 0, None, 1), (0, 0, "wide", 1), (0, 0, "inf", 1),
        (0, 0, 1e300, 1), (0, 0, True, 1), (0, 0, "1" * 400, 1),
    ],
)  # fmt: skip
def test_what_is_no_box_of_any_image_is_named_with_its_line(root, box):
    frame = boxed((0, 0, 1, 1), box)
    with pytest.raises(FcaError, match=r"boxes of selected lines = 2 \(.*\); allowed: x0 <= x1 and y0 <= y1, whole"):
        loaded(root, frame, mask_box=BOX)


@pytest.mark.parametrize("box", [(0, 0, 5, 3), (0, 0, 4, 4), (5, 0, 5, 0), (0, 0, 10**6, 10**6)])
def test_a_box_that_leads_out_of_its_image_is_named(root, box):
    data = loaded(root, boxed((0, 0, 4, 3), box), mask_box=BOX)
    assert data.mask(0).all()
    with pytest.raises(UnreadableImage, match=r"shots/b.png: a box \(.*\) that leads out .*, 5 wide and 4 high"):
        data.mask(1)


@pytest.mark.parametrize(("columns", "message"), [(BOX[:3], "x0, y0, x1; allowed: four"), ([*BOX[:3], "y2"], "y2")])
def test_boxes_need_four_columns_of_the_table(root, columns, message):
    with pytest.raises(FcaError, match=rf"dataset\.mask_box = {message}"):
        loaded(root, boxed((0, 0, 1, 1)), mask_box=columns)


def test_boxes_are_named_on_the_command_line(fca, tmp_path):
    plant(tmp_path / "shots", PATHS)
    boxed((1, 0, 3, 2), (0, 0, 0, 0), (0, 0, 4, 3), (0, 0, 4, 1)).to_csv(tmp_path / "shots/index.csv", index=False)
    words = ["task=describe", "dataset=manifest", "dataset.root=shots", "dataset.file=index.csv", "logger=none"]
    code, _, err = fca(*words, "dataset.mask_box=[x0, y0, x1, y1]")
    assert code == 0, err
    [area] = [np.load(path) for path in (tmp_path / "outputs/runs").rglob("mask_area.npy")]
    np.testing.assert_allclose(area, [9 / 20, 1 / 20, 1, 10 / 20], rtol=1e-6)  # float32
