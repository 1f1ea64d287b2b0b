"""Hard ImageNet, RIVAL10 and masks of workers, from small trees in their formats."""

import io
import json
import logging
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from fca.cli.configure import load_data
from fca.cli.places import CONF
from fca.data.files import GREY_RANGE, decode_mask
from fca.data.manifest import AnnotatedImages, consolidated, iou, screened
from fca.data.masked_sets import MaskedImageNet
from fca.data.public import ImageNet
from fca.subset import read_superclasses
from fca.types import FcaError, UnreadableImage
from tests.support.hard_imagenet_files import PATIO, SLED, imagenet, names, part, shape, write
from tests.support.trees import VAL, encoded, plant

CAT, PERSIAN, TRUCK = "n02124075", "n02123394", "n04467665"


@pytest.fixture
def hard(tmp_path):
    """The masks in hardImageNet, ImageNet beside; returns a loader with keys to change."""
    for seed, (wnid, file) in enumerate(names((SLED, PATIO))):
        write(tmp_path / "hardImageNet" / part(file) / f"{wnid}_{file}", shape(seed))
    imagenet(tmp_path / "ilsvrc")

    def load(**keys):
        keys = {"imagenet": str(tmp_path / "ilsvrc"), "root": str(tmp_path), **keys}
        return MaskedImageNet(name="hard_imagenet", classes=15, val=VAL, **keys).load()

    return load


@pytest.fixture
def rival(tmp_path):
    """Masks and images as RIVAL10 packs them: its own split is not ImageNet's."""
    for seed, (wnid, file) in enumerate(names((CAT, PERSIAN, TRUCK))):
        own = "test" if seed % 2 else "train"
        write(tmp_path / f"RIVAL10/{own}/entire_object_masks/{wnid}_{file}", shape(seed))
        ordinary = tmp_path / f"RIVAL10/{own}/ordinary/{wnid}_{file}"
        write(ordinary, np.full((6, 7, 3), seed, np.uint8), "PNG")
        write(ordinary.with_name(f"{wnid}_{file[:-5]}_merged_mask.JPEG"), shape(seed))

    def load(**keys):
        return MaskedImageNet(**{"name": "rival10", "classes": 10, "root": str(tmp_path), "val": VAL, **keys}).load()

    return load


# Hard ImageNet.


def test_images_are_imagenets_own_with_its_split_and_the_masks_of_the_download(hard, tmp_path):
    data = hard()
    assert data.classes == (SLED, PATIO)
    assert data.items["split"].value_counts().to_dict() == {"train": 6, "val": 2, "test": 4}
    ours = ImageNet(root=str(tmp_path / "ilsvrc"), val=VAL).load()
    assert set(data.items["image_id"]) == set(ours.items["image_id"]), "so that predictions can be joined"
    test = data.items[data.items["split"] == "test"]
    assert test["image_id"].str.fullmatch(r"val/n\d{8}/ILSVRC2012_val_\d{8}\.JPEG").all()
    at = {image_id: row for row, image_id in enumerate(data.items["image_id"])}
    for seed, (wnid, file) in enumerate(names((SLED, PATIO))):
        row = at[f"{part(file)}/{wnid}/{file}"]
        assert (data.mask(row) == shape(seed)).all()
        stored = Image.open(tmp_path / "ilsvrc" / part(file) / wnid / file)
        assert (data.read(row) == np.asarray(stored)).all()
    data.items.to_parquet(io.BytesIO())  # as the store keeps it


def test_the_root_may_be_the_folder_of_the_masks_and_the_set_stays_the_same(hard, tmp_path):
    assert hard(root=str(tmp_path / "hardImageNet")).fingerprint == hard().fingerprint


def test_images_may_lie_beside_the_masks(hard, tmp_path):
    before = hard()
    (tmp_path / "ilsvrc").rename(tmp_path / "HardImageNet_Images")
    assert hard(imagenet=None).fingerprint == before.fingerprint
    assert hard(imagenet=None, root=str(tmp_path / "hardImageNet")).read(0).shape == (6, 7, 3)


def test_the_validation_images_alone_are_enough_to_predict(hard, tmp_path):
    (tmp_path / "ilsvrc/train").rename(tmp_path / "away")
    assert set(hard(images={"train": 19097, "val": 4}).items["split"]) == {"test"}


def test_another_mask_is_another_set(hard, tmp_path):
    before = hard().fingerprint
    [file] = (tmp_path / "hardImageNet/train").glob(f"{SLED}_{SLED}_0.JPEG")
    write(file, shape(99))
    assert hard().fingerprint != before


@pytest.mark.parametrize(
    ("images", "lost", "message"),
    [
        ({"val": 4}, "val/n03899768_ILSVRC2012_val_00000009", r"masks of hard_imagenet for ImageNet's "
         r"val = 3, none of val/n03899768/ILSVRC2012_val_00000009.JPEG; allowed: 4, as published"),
        ({"train": 8, "val": 4}, "train/n03899768_n03899768_1", r"for ImageNet's train = 7; allowed: 8, as published"),
        ({"test": 4}, None, "dataset.images = test; allowed: train, val"),
    ],
)  # fmt: skip
def test_another_count_than_declared_is_named_with_what_is_missing(hard, tmp_path, images, lost, message):
    if lost:
        (tmp_path / f"hardImageNet/{lost}.JPEG").unlink()
    with pytest.raises(FcaError, match=message):
        hard(images=images)


def test_training_images_alone_are_not_taken_for_a_test(hard, tmp_path):
    for file in (tmp_path / "hardImageNet/val").iterdir():
        file.unlink()
    with pytest.raises(FcaError, match=r"masks of hard_imagenet for ImageNet's val = 0.*; allowed: at least 1"):
        hard()


def test_the_published_counts_are_those_of_the_yaml(hard, tmp_path):
    keys = {"root": str(tmp_path), "imagenet": str(tmp_path / "ilsvrc")}
    with pytest.raises(FcaError, match="for ImageNet's val = 4; allowed: 750, as published"):
        load_data("hard_imagenet", **keys)
    with pytest.raises(FcaError, match="for ImageNet's train = 8; allowed: 19097, as published"):
        load_data("hard_imagenet", **keys, images={"train": 19097, "val": 4})
    assert len(load_data("hard_imagenet", **keys, images=None).items) == 12


def test_masks_of_a_class_that_is_none_of_the_set_are_named(hard, tmp_path):
    write(tmp_path / "hardImageNet/train/n04355933_n04355933_1.JPEG", shape(0))  # sunglass, not sunglasses
    with pytest.raises(FcaError, match=r"wnids of masks in .*hardImageNet = n04355933; allowed: the classes of hard_"):
        hard()


def test_an_absent_image_or_set_is_named(hard, tmp_path):
    (tmp_path / f"ilsvrc/train/{SLED}/{SLED}_2.JPEG").unlink()
    with pytest.raises(FcaError, match=f"images of hard_imagenet that are not there = train/{SLED}/{SLED}_2.JPEG"):
        hard()
    with pytest.raises(FcaError, match=r"images of hard_imagenet that are not there = train/n0.* and 7 more"):
        hard(imagenet=None)
    with pytest.raises(FcaError, match=r"dataset.root = .*away; allowed: a folder that holds hardImageNet/val or val"):
        hard(root=str(tmp_path / "away"))


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((7, 6), bool), r"a mask of \(7, 6\), its image val/.*_00000001.JPEG has \(6, 7\)"),
        (np.full((6, 7), 128, np.uint8), r"_00000001.JPEG: values 128 to 128, 100% of the pixels grey \(32 to 223\)"),
        (np.eye(6, 7, dtype=np.uint8) * 38, "values 0 to 38, 14% of the pixels grey .*: no mask, which is black"),
    ],
)
def test_what_is_no_mask_of_its_image_is_named(hard, tmp_path, pixels, message):
    write(tmp_path / f"hardImageNet/val/{SLED}_ILSVRC2012_val_00000001.JPEG", pixels)
    data = hard()
    row = data.items["image_id"].str.endswith("_00000001.JPEG").idxmax()
    with pytest.raises(UnreadableImage, match=message):
        data.mask(row)


@pytest.mark.parametrize(("side", "kind"), [(6, "PNG"), (40, "PNG"), (40, "JPEG"), (200, "JPEG")])
def test_soft_edges_and_the_noise_of_jpeg_are_cut_at_half(side, kind):
    hard_edge = np.zeros((side, side), np.uint8)
    hard_edge[side // 3 : -side // 4, side // 5 : side // 2] = 255
    soft = hard_edge.astype(float)
    soft = (soft + np.roll(soft, 1, 0) + np.roll(soft, 1, 1)) / 3  # 85 and 170 at the edges
    mask = decode_mask(encoded(Image.fromarray(soft.astype(np.uint8)), kind), "m", "bright")
    wrong = (mask != (soft > 127)) & (np.abs(soft - 127.5) > 64)
    assert not wrong.any()


def test_empty_and_full_masks_are_masks():
    for value, full in ((0, False), (255, True), (GREY_RANGE[0] - 1, False), (GREY_RANGE[1] + 1, True)):
        mask = decode_mask(encoded(Image.new("L", (5, 4), value), "PNG"), "m", "bright")
        assert (mask == full).all()


def test_most_photographs_are_no_masks():
    rng = np.random.default_rng(0)
    smooth = rng.normal(128, 60, (40, 40)).clip(0, 255).astype(np.uint8)
    with pytest.raises(UnreadableImage, match=r"m: values 0 to 255, 90% of the pixels grey"):
        decode_mask(encoded(Image.fromarray(smooth), "PNG"), "m", "bright")


def test_ranks_count_from_the_strongest_cue_of_a_class(hard, tmp_path):
    order = [f"train/{SLED}/{SLED}_{i}.JPEG" for i in (2, 0, 3, 1)]
    (tmp_path / "ranks.json").write_text(json.dumps({"537": order, "706": ["train/elsewhere.JPEG"]}))
    items = hard(ranks=str(tmp_path / "ranks.json")).items.set_index("image_id")["rank"]
    assert items[order].tolist() == [4, 3, 2, 1]
    assert items.notna().sum() == 4
    items.reset_index().to_parquet(io.BytesIO())


@pytest.mark.parametrize("text", ["[]", "7", "{", '{"a": 3}', '{"a": [[1]]}', '{"a": ["b"]}', "[" * 99999, "\ud800"])
def test_other_files_are_no_ranks(hard, tmp_path, text):
    (tmp_path / "ranks.json").write_text(text, errors="surrogatepass")
    with pytest.raises(FcaError, match=r"dataset.ranks = .*ranks.json; allowed: JSON: \{class: "):
        hard(ranks=str(tmp_path / "ranks.json"))


class Harmful:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.mkdir, (self.file,)


def test_pickles_are_not_opened_and_the_yaml_converts_harmless_ones(hard, tmp_path):
    meta, harm = tmp_path / "hardImageNet/meta", tmp_path / "harm"
    meta.mkdir()
    (meta / "paths_by_rank.pkl").write_bytes(pickle.dumps({537: Harmful(str(harm))}))
    hard()
    lines = (CONF / "dataset/hard_imagenet.yaml").read_text().replace("\\\n#", "").splitlines()
    [line] = [line for line in lines if "import json, pickle" in line]
    code = line.split('"')[1]

    def convert():
        argv = [sys.executable, "-c", code, "hardImageNet/meta/paths_by_rank.pkl"]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False)

    assert b"TypeError" in convert().stderr
    assert not harm.exists()
    lists = {537: [f"train/{SLED}/{SLED}_1.JPEG"]}
    (meta / "paths_by_rank.pkl").write_bytes(pickle.dumps(lists))
    assert convert().returncode == 0
    assert hard(ranks=str(tmp_path / "ranks.json")).items["rank"].sum() == 1


# RIVAL10.


def test_the_split_is_imagenets_not_rival10s(rival):
    data = rival()
    assert data.items["split"].value_counts().to_dict() == {"train": 10, "val": 2, "test": 6}
    assert data.items["image_id"].str.startswith("val/").tolist() == (data.items["split"] == "test").tolist()
    at = {image_id: row for row, image_id in enumerate(data.items["image_id"])}
    for seed, (wnid, file) in enumerate(names((CAT, PERSIAN, TRUCK))):
        row = at[f"{part(file)}/{wnid}/{file}"]
        assert (data.mask(row) == shape(seed)).all()
        assert (data.read(row) == seed).all()


def test_ten_classes_or_the_wnids_of_an_imagenet_model(rival, tmp_path):
    ten, twenty = rival(), rival(classes=20)
    assert ten.classes == ("cat", "truck")
    assert twenty.classes == (PERSIAN, CAT, TRUCK)
    assert ten.fingerprint != twenty.fingerprint
    assert set(ten.items["wnid"]) == set(twenty.classes)
    groups = read_superclasses("rival10")
    assert [sorted(set(groups.of.values()))[c] for c in groups.codes(twenty.classes)] == ["cat", "cat", "truck"]
    with pytest.raises(FcaError, match=r"dataset.classes = 15; allowed: 10, 20"):
        rival(classes=15)
    with pytest.raises(FcaError, match=r"dataset.name = rival20; allowed: hard_imagenet, rival10"):
        rival(name="rival20")
    imagenet(tmp_path / "ilsvrc", (CAT, PERSIAN, TRUCK))
    assert rival(imagenet=str(tmp_path / "ilsvrc")).items["image_id"].tolist() == ten.items["image_id"].tolist()


# Masks that workers drew.

MASKS = arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4)))


@given(MASKS)
def test_the_majority_and_the_ious_are_those_of_loops_over_pixels(masks):
    majority, ious = consolidated(masks)
    n, height, width = masks.shape
    for y in range(height):
        for x in range(width):
            assert majority[y, x] == (sum(bool(mask[y, x]) for mask in masks) > n / 2)
    inside = {(y, x) for y in range(height) for x in range(width) if majority[y, x]}
    for mask, found in zip(masks, ious, strict=True):
        own = set(zip(*map(list, np.nonzero(mask)), strict=True))
        expected = len(own & inside) / len(own | inside) if own | inside else np.nan
        np.testing.assert_equal(found, expected)


@given(MASKS)
def test_iou_does_not_depend_on_the_order_and_is_one_of_equal_masks(masks):
    np.testing.assert_equal(iou(masks[0], masks[-1]), iou(masks[-1], masks[0]))
    if masks[0].any():
        assert iou(masks[0], masks[0]) == 1


def lines_of(*rows):
    return pd.DataFrame(rows, columns=["worker", "phase", "image_id", "iou"])


def test_workers_pass_the_whole_exam_and_keep_up_in_the_checks():
    workers = screened(
        lines_of(
            ("good", "exam", "a", 0.6), ("good", "exam", "b", 0.7), ("good", "check", "c", 0.5),
            ("good", "work", "d", np.nan),
            ("poor", "exam", "a", 0.9), ("poor", "exam", "b", 0.39), ("hasty", "exam", "a", 1.0),
            ("tired", "exam", "a", 1.0), ("tired", "exam", "b", 1.0), ("tired", "check", "c", 0.9),
            ("tired", "check", "d", 0.0),
            ("unchecked", "exam", "a", 0.8), ("unchecked", "exam", "b", 0.8), ("stranger", "work", "d", np.nan),
        ),
        0.65, 0.5,
    )  # fmt: skip
    assert workers.index[workers["kept"]].tolist() == ["good", "unchecked"]
    assert workers.loc["good", "exam"] == pytest.approx(0.65, abs=1e-12)  # 0.6 + 0.7 in float64
    assert workers["exam"].isna().tolist() == [False, True, False, True, False, False], (
        "hasty did half, stranger nothing"
    )
    assert workers.loc["tired", "check"] == pytest.approx(0.45, abs=1e-12)
    assert np.isnan(workers.loc["unchecked", "check"])
    everybody = screened(lines_of(("a", "work", "d", np.nan), ("b", "check", "c", 0.0)), None, None)
    assert everybody["kept"].tolist() == [True, True]


@pytest.fixture
def round_of_masks(tmp_path):
    """Four images; workers a to e draw, a and b all of them; e fails the exam, d the checks."""
    paths = [f"{label}{i}.png" for label in ("cat", "dog") for i in range(2)]
    root = plant(tmp_path / "round", paths)
    pd.DataFrame({"path": paths, "label": [path[:3] for path in paths]}).to_csv(root / "images.csv", index=False)
    rng, rows = np.random.default_rng(0), []

    def draw(image, worker, phase, mask, truth=None):
        file = f"masks/{worker}_{phase}_{image}"
        write(root / file, mask)
        if truth is not None:
            write(root / f"truth/{phase}_{image}", truth)
        rows.append((image, worker, phase, file, f"truth/{phase}_{image}" if truth is not None else ""))

    truth = shape(1, (4, 5))
    for worker in "abcde":
        draw("x.png", worker, "exam", truth if worker != "e" else ~truth, truth)
        draw("y.png", worker, "check", truth if worker != "d" else ~truth, truth)
        for path in paths if worker in "ab" else paths[:1]:
            draw(path, worker, "work", rng.random((4, 5)) < 0.5)
    table = pd.DataFrame(rows, columns=["image_id", "worker", "phase", "mask", "true_mask"])

    def load(frame=table, **keys):
        frame.to_csv(root / "masks.csv", index=False)
        return AnnotatedImages(str(root), "images.csv", VAL, **{"annotations": "masks.csv", "masks": 3, **keys}).load()

    return table, load, root


def test_kept_masks_are_consolidated_and_the_rest_asked_for_again(round_of_masks, caplog):
    table, load, root = round_of_masks
    with caplog.at_level(logging.INFO, "fca"):
        data = load()
    items = data.items.set_index("image_id")
    assert items["n_annotations"].to_dict() == {"cat0.png": 3, "cat1.png": 2, "dog0.png": 2, "dog1.png": 2}
    assert items["ask_again"].to_dict() == {"cat0.png": 0, "cat1.png": 1, "dog0.png": 1, "dog1.png": 1}
    for row, image_id in enumerate(data.items["image_id"]):
        kept = table[(table["image_id"] == image_id) & table["worker"].isin(list("abc")) & (table["phase"] == "work")]
        masks = np.stack([np.asarray(Image.open(root / path)) > 127 for path in kept["mask"]])
        assert (data.mask(row) == (masks.mean(axis=0) > 0.5)).all()
        shares = [(mask & data.mask(row)).sum() / (mask | data.mask(row)).sum() for mask in masks]
        assert items.loc[image_id, [f"iou_{i + 1}" for i in range(len(masks))]].tolist() == shares
        assert items.loc[image_id, "agreement"] == pytest.approx(np.mean(shares), abs=1e-12)  # a mean of three
    assert items["iou_3"].isna().sum() == 3
    text = caplog.text
    assert "masks of 2 of 5 workers are left out: d, e" in text
    assert "ask again for masks of 3 images (column ask_again): cat1.png, dog0.png, dog1.png" in text
    assert "attention checks: 31.2 % of the annotations (expected: 10.0 %), mean IoU 0.80; agreement" in text
    data.items.to_parquet(io.BytesIO())  # as the store keeps it
    assert {path.name for path in root.iterdir()} == {"images.csv", "masks.csv", "masks", "truth", *items.index}


def test_which_masks_are_kept_is_part_of_the_fingerprint(round_of_masks):
    table, load, _ = round_of_masks
    before = load()
    assert load(masks=5).fingerprint == before.fingerprint, "what is asked for changes no mask"
    assert len({before.fingerprint, load(check_least=None).fingerprint, load(mask_object="dark").fingerprint}) == 3
    again = load(table.sort_values("mask", ascending=False))
    assert again.fingerprint == before.fingerprint
    pd.testing.assert_frame_equal(again.items, before.items)


def test_an_image_whose_masks_are_all_left_out_has_none(round_of_masks, caplog):
    table, load, _ = round_of_masks
    table = table[table["image_id"] != "dog1.png"]
    data = load(table)
    assert data.mask(3) is None
    assert np.isnan(data.items["agreement"][3])
    assert load(table, exam_least=1.0).mask(0) is not None
    table = table[table["phase"] != "exam"]
    assert [load(table).mask(row) for row in range(4)] == [None] * 4, "nobody passed an exam"
    assert "masks of 5 of 5 workers are left out: a, b, c, d, e" in caplog.text
    assert load(table, exam_least=None).items["n_annotations"].tolist() == [4, 2, 2, 0]


def test_too_few_attention_checks_are_reported(round_of_masks, caplog):
    _, load, _ = round_of_masks
    load(checks=0.4)
    assert "attention checks: 31.2 % of the annotations (expected: 40.0 %)" in caplog.text


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (
            "phase",
            "exams",
            r"2 \(x.png, a, exams, masks/a_exam_x.png, truth/exam_x.png\); allowed: exam, check or work",
        ),
        ("worker", "", r"2 \(x.png, , exam, .*\); allowed: a worker"),
        ("worker", "\x1b[31m", "allowed: a worker, in printable text"),
        ("mask", "../evil.png", r"2 \(x.png, a, exam, ../evil.png, .*allowed: a file of .*round as mask"),
        ("mask", "/etc/passwd", "as mask"),
        ("true_mask", "", "allowed: a file of .*round as true_mask, of exam and check"),
        ("true_mask", "truth/gone.png", "truth/gone.png"),
    ],
)
def test_lines_that_do_not_fit_are_named(round_of_masks, column, value, message):
    table, load, _ = round_of_masks
    table.loc[0, column] = value
    with pytest.raises(FcaError, match=f"lines of masks.csv = .*{message}"):
        load()


def test_strange_images_and_repeated_lines_are_named(round_of_masks):
    table, load, _ = round_of_masks
    row = table.index[table["phase"] == "work"][0]
    table.loc[row, "image_id"] = "cow.png"
    with pytest.raises(FcaError, match=rf"{row + 2} \(cow.png, a, work, .*an image of images.csv as image_id, of work"):
        load()
    table.loc[row] = table.loc[row + 1]
    with pytest.raises(FcaError, match=rf"= {row + 3} \(cat1.png, a, .*one line a worker, phase and image"):
        load()


def test_masks_of_another_size_and_photographs_are_named_when_listed(round_of_masks):
    _, load, root = round_of_masks
    write(root / "masks/b_work_cat1.png", np.zeros((5, 4), bool))
    with pytest.raises(
        FcaError, match=r"mask = .*b_work_cat1.png: a mask of \(5, 4\), its image cat1.png has \(4, 5\)"
    ):
        load()
    write(root / "masks/b_work_cat1.png", np.full((4, 5), 100, np.uint8))
    with pytest.raises(FcaError, match=r"mask = .*b_work_cat1.png: values 100 to 100, 100% of the pixels grey"):
        load()
    write(root / "truth/exam_x.png", np.zeros((9, 9), bool))
    with pytest.raises(FcaError, match=r"mask = .*_exam_x.png: a mask of \(4, 5\), its image truth/exam_x.png has \(9"):
        load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "table in other.csv = no header"),
        (b"a,b\n1,2\n", "dataset.annotations = other.csv; allowed: a CSV with columns image_id, worker"),
        (b"\xff\xfe\x00", "line 1 of other.csv = .*; allowed: text in UTF-8"),
        (None, "dataset.annotations = other.csv; allowed: a CSV with columns image_id, worker"),
    ],
)
def test_another_table_is_no_list_of_annotations(round_of_masks, content, message):
    _, load, root = round_of_masks
    if content is not None:
        (root / "other.csv").write_bytes(content)
    with pytest.raises(FcaError, match=message):
        load(annotations="other.csv")


def test_the_command_line_shows_what_was_left_out(fca, round_of_masks, tmp_path, caplog):
    _, load, root = round_of_masks
    load()
    words = [f"dataset.root={root}", "dataset.file=images.csv", "dataset.annotations=masks.csv", "dataset.masks=3"]
    caplog.clear()
    code, _, err = fca("task=describe", "dataset=annotated", *words, "logger=none")
    assert code == 0, err
    assert "masks of 2 of 5 workers are left out: d, e" in caplog.text
    [items] = (tmp_path / "outputs/items").glob("*.parquet")
    assert {"n_annotations", "ask_again", "agreement", "iou_1"} <= set(pd.read_parquet(items))
