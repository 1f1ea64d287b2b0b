import os
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fca.data.folder import Folder
from fca.types import FcaError, UnreadableImage
from tests.support.trees import VAL, grid, pack, plant, png


@pytest.fixture(params=["directory", "zip"])
def rooted(request, tmp_path):
    """Turns paths into a root of both kinds."""

    def make(paths):
        if request.param == "zip":
            return str(pack(tmp_path / "photos.zip", paths))
        return str(plant(tmp_path / "photos", paths))

    return make


def loaded(root, **keys):
    return Folder(root, VAL, **keys).load()


def test_split_class_file_is_recognised(rooted):
    data = loaded(rooted(grid("train", "validation", "TEST")))
    assert data.name == "photos"
    assert data.classes == ("cat", "dog")
    assert data.items["split"].value_counts().to_dict() == {"train": 8, "val": 8, "test": 8}
    assert data.items["image_id"].tolist() == sorted(grid("train", "validation", "TEST"))
    assert data.items["label"].tolist() == [path.split("/")[1] for path in data.items["image_id"]]


def test_class_file_is_all_test(rooted):
    data = loaded(rooted(grid()))
    assert data.items["split"].unique().tolist() == ["test"]
    assert data.classes == ("cat", "dog")


def test_deeper_folders_belong_to_their_class(rooted):
    data = loaded(rooted(["cat/1.png", "cat/old/2.png", "cat/old/grey/3.png", "dog/4.png"]))
    assert data.items["label"].tolist() == ["cat", "cat", "cat", "dog"]


def test_class_split_file_is_recognised(rooted):
    data = loaded(rooted(["cat/train/1.png", "cat/test/2.png", "dog/train/3.png", "dog/test/4.png"]))
    assert data.classes == ("cat", "dog")
    assert data.items["split"].tolist() == ["test", "train", "test", "train"]


def test_one_top_folder_of_any_name_is_the_one_split(rooted):
    data = loaded(rooted(grid("small1")))
    assert data.classes == ("cat", "dog")
    assert data.items["split"].unique().tolist() == ["test"]


def test_splits_are_mapped_and_left_out(rooted):
    splits = {"web": "train", "shop": "test", "old": None}
    data = loaded(rooted([*grid("web", "shop", "old"), "old/fish/1.png"]), splits=splits)
    assert data.classes == ("cat", "dog")
    assert len(data.items) == 16


def test_a_layout_may_be_said(rooted):
    root = rooted(["pets/cat/old/1.png", "pets/dog/old/2.png", "farm/cow/old/3.png"])
    assert loaded(root, layout="*/class").classes == ("cat", "cow", "dog")
    assert loaded(root, layout="class").classes == ("farm", "pets")


def test_other_files_and_hidden_ones_are_ignored(rooted):
    others = ["index.csv", "cat/notes.txt", ".cache/x.png", "cat/._1.png", "__MACOSX/cat/1.png"]
    assert len(loaded(rooted([*grid(), *others])).items) == 8


def test_suffixes_are_read_in_any_case(rooted):
    assert len(loaded(rooted(["cat/1.JPG", "dog/2.Png"])).items) == 2


def test_images_are_decoded_from_their_own_path(rooted):
    paths = grid("train", "test")
    data = loaded(rooted(paths))
    for position, image_id in enumerate(data.items["image_id"]):
        expected = np.random.default_rng(paths.index(image_id)).integers(0, 256, (4, 5, 3), dtype=np.uint8)
        assert (data.read(position) == expected).all()


def test_directory_and_zip_of_the_same_files_are_one_set(tmp_path):
    paths = grid("train", "test")
    directory, archive = plant(tmp_path / "a", paths), pack(tmp_path / "b.zip", paths)
    assert loaded(str(directory)).fingerprint == loaded(str(archive)).fingerprint


def test_the_name_is_not_part_of_the_fingerprint_but_the_files_are(tmp_path):
    root = plant(tmp_path / "a", grid())
    before = loaded(str(root))
    assert loaded(str(root), name="mine").fingerprint == before.fingerprint
    assert loaded(str(root), name="mine").name == "mine"
    (root / "cat/0.png").write_bytes(png(0, (9, 9)))
    assert loaded(str(root)).fingerprint != before.fingerprint


def test_tilde_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    plant(tmp_path / "photos", grid())
    assert len(loaded("~/photos").items) == 8


def test_links_are_followed_but_not_in_circles(tmp_path):
    plant(tmp_path / "store", ["1.png", "2.png"])
    root = plant(tmp_path / "root", ["dog/3.png"])
    (root / "cat").symlink_to(tmp_path / "store")
    (root / "dog" / "up").symlink_to(root)
    assert loaded(str(root)).items["image_id"].tolist() == ["cat/1.png", "cat/2.png", "dog/3.png"]


def test_links_that_lead_nowhere_are_named(tmp_path, caplog):
    root = plant(tmp_path / "photos", grid())
    for name in ("8.png", "9.png"):
        (root / "cat" / name).symlink_to(tmp_path / "not fetched" / name)
    assert len(loaded(root).items) == 8
    assert "left out: 2 links that lead nowhere; fetch what is missing: cat/8.png, cat/9.png" in caplog.text


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["train/cat/1.png", "train/Cat/2.png", "train/dog/3.png"], "= 'train/Cat' and 'train/cat'; "),
        (
            ["train/cat/1.png", "test/CAT/2.png", "train/dog/3.png"],
            "= ('train/cat' and 'test/CAT'|'test/CAT' and 'train/cat'); ",
        ),
        (["cat/1.png", "CAT/2.png", "dog/3.png"], "= 'CAT' and 'cat'; "),
        (["caf\u00e9/1.png", "cafe\u0301/2.png", "dog/3.png"], r"= '.*' \('caf.*'\) and '.*' \('caf.*'\); "),
        (["a/cat/1.png", "b/cat/2.png"], "= a/cat and b/cat; "),
    ],
)
def test_two_folders_under_one_name_are_both_named(rooted, paths, message):
    with pytest.raises(FcaError, match=f"two folders under one name {message}"):
        loaded(rooted(paths))


def test_a_space_at_the_end_of_a_folder_is_seen_in_the_message(rooted):
    with pytest.raises(FcaError, match="= 'test/cat' and 'train/cat '; "):
        loaded(rooted(["train/cat /1.png", "train/dog/2.png", "test/cat/3.png", "test/dog/4.png"]))


def test_two_folders_that_a_said_layout_makes_one_class_are_both_named(rooted):
    with pytest.raises(FcaError, match="= 'a/cat' and 'b/cat'; "):
        loaded(rooted(["a/cat/1.png", "b/cat/2.png", "b/dog/3.png"]), layout="*/class")


@pytest.mark.parametrize(
    ("images", "others", "left_out"),
    [
        (grid("train", "val"), ["annotations/a.xml"], "1 folder without an image, left out: annotations"),
        (grid("train", "val"), ["labels/train/a.txt", "labels/val/"], "1 folder without an image, left out: labels"),
        (grid("images/train", "images/val"), ["labels/train/a.txt"], "1 folder without an image, left out: labels"),
        (
            grid("train/images", "val/images"),
            ["train/labels/a.txt", "val/labels/a.txt"],
            "2 folders without an image, left out: train/labels, val/labels",
        ),
        (grid(), ["annotations/a.xml"], "1 folder without an image, left out: annotations"),
        (grid(), ["Annotations/cat/1.xml", "Annotations/dog/"], "1 folder without an image, left out: Annotations"),
        (grid("photos"), ["photos/labels/"], "1 folder without an image, left out: photos/labels"),
        (
            grid("train", "val"),
            ["train/labels/a.txt", "val/labels/"],
            "2 folders without an image, left out: train/labels, val/labels",
        ),
    ],
)
def test_a_folder_without_an_image_beside_splits_and_annotations_beside_classes_are_named_and_left_out(
    rooted, caplog, images, others, left_out
):
    data = loaded(rooted([*images, *others]))
    assert data.items["image_id"].tolist() == sorted(images)
    assert data.unused == 0
    assert f"photos: {left_out}" in caplog.messages


@pytest.mark.parametrize(
    ("paths", "empty"),
    [
        ([*grid("train", "val"), "test/"], "test"),
        ([*grid("train", "val"), "test/cat/", "test/dog/"], "test, test/cat, test/dog"),
        ([*grid("train", "val"), "train/fish/notes.xml"], "train/fish"),
    ],
)
def test_a_split_with_a_usual_name_and_a_class_are_not_left_out_for_being_empty(rooted, paths, empty):
    with pytest.raises(FcaError, match=f"folder without an image = {empty}; "):
        loaded(rooted(paths))


def test_two_spellings_of_one_split_are_both_named(rooted):
    with pytest.raises(FcaError, match=r"dataset.splits = val, validation; allowed: one split for val, which these"):
        loaded(rooted(grid("train", "test", "val", "validation")))


@pytest.mark.parametrize(
    ("splits", "listed", "mapping"),
    [(["train", "test", "holdout"], "holdout, test, train", "null"), (["train", "holdout"], "holdout, train", "test")],
)
def test_unknown_splits_are_listed(rooted, splits, listed, mapping):
    with pytest.raises(FcaError, match=rf"= holdout; allowed: .*: {listed}; .*'\{{holdout: {mapping}\}}'"):
        loaded(rooted(grid(*splits)))


def test_splits_for_a_set_that_has_none_are_refused(rooted):
    with pytest.raises(FcaError, match=r"dataset.splits = web; allowed: null: photos has no splits"):
        loaded(rooted(grid()), splits={"web": "test"})


def test_an_empty_class_directory_is_named(rooted):
    with pytest.raises(FcaError, match="folder without an image = fish; "):
        loaded(rooted([*grid(), "fish/"]))


def test_an_empty_class_directory_in_a_split_is_named(rooted):
    with pytest.raises(FcaError, match="folder without an image = test/fish; "):
        loaded(rooted([*grid("train", "test"), "train/fish/1.png", "test/fish/"]))


def test_a_class_directory_of_other_files_only_is_named(rooted):
    with pytest.raises(FcaError, match="folder without an image = fish; "):
        loaded(rooted([*grid(), "fish/notes.txt"]))


@pytest.mark.parametrize(
    ("paths", "loose"),
    [
        ([*grid("train", "test"), "test/9.png"], ["test/9.png"]),
        (
            [*grid("train", "test"), "train/8.png", "test/9.png", "extra/1.png"],
            ["extra/1.png", "test/9.png", "train/8.png"],
        ),
        ([*grid(), "cover.png"], ["cover.png"]),
        ([*(f"photos/{path}" for path in grid()), "cover.png", "photos/2.png"], ["cover.png", "photos/2.png"]),
        (["cat/train/1.png", "cat/test/2.png", "cat/3.png", "dog/train/4.png", "dog/test/5.png"], ["cat/3.png"]),
    ],
)
def test_images_outside_of_class_folders_are_named_counted_and_left_out(rooted, caplog, paths, loose):
    data = loaded(rooted(paths))
    assert data.classes == ("cat", "dog")
    assert set(data.items["image_id"]) == set(paths) - set(loose)
    assert data.unused == len(loose)
    number = "1 image" if len(loose) == 1 else f"{len(loose)} images"
    assert f"photos: {number} outside of class folders, left out: {', '.join(loose)}" in caplog.text


def test_images_outside_of_class_folders_do_not_change_what_the_set_is(tmp_path):
    without, beside = plant(tmp_path / "a", grid()), plant(tmp_path / "b", [*grid(), "cover.png"])
    assert loaded(str(without)).fingerprint == loaded(str(beside)).fingerprint


@pytest.mark.parametrize("paths", [["1.png", "2.png"], ["test/1.png", "train/2.png"]])
def test_a_folder_without_any_class_folder_is_refused(rooted, paths):
    with pytest.raises(FcaError, match=f"image outside of a class folder = {', '.join(paths)}; .*dataset=manifest"):
        loaded(rooted(paths))


@pytest.mark.wide
@pytest.mark.parametrize("wrapped", ["", "photos-v2/", "photos/photos/", "a/b/c/"])
@pytest.mark.parametrize(
    ("paths", "splits"),
    [
        (grid("train", "val", "test"), {"train": 8, "val": 8, "test": 8}),
        (grid("Train", "VALID"), {"train": 6, "val": 2, "test": 8}),
        (["cat/train/1.png", "cat/test/2.png", "dog/train/3.png", "dog/test/4.png"], {"train": 2, "test": 2}),
        (grid(), {"test": 8}),
    ],
)
def test_any_number_of_folders_around_the_layout_is_looked_through(rooted, wrapped, paths, splits):
    data = loaded(rooted([wrapped + path for path in paths]))
    assert data.classes == ("cat", "dog")
    assert data.items["split"].value_counts().to_dict() == splits


def test_a_folder_around_the_classes_of_every_split_is_looked_through(rooted):
    paths = [*grid("train/images"), *grid("val/pictures")]
    data = loaded(rooted(paths))
    assert data.classes == ("cat", "dog")
    assert data.items["split"].value_counts().to_dict() == {"train": 6, "val": 2, "test": 8}


def test_a_class_may_be_called_train(rooted):
    paths = [*grid(classes=("bus", "train")), "train/old/1.png"]
    assert loaded(rooted(paths)).classes == ("bus", "train")
    assert loaded(rooted(["bus/1.png", "car/1.png", "train/old/1.png", "train/new/2.png"])).classes == (
        "bus",
        "car",
        "train",
    )


def test_splits_around_which_lies_a_folder_are_not_taken_for_classes(rooted):
    with pytest.raises(FcaError, match="two folders under one name = shop/cat and web/cat; "):
        loaded(rooted([f"photos/{path}" for path in grid("web", "shop")]))


def test_splits_of_other_names_that_wrap_their_classes_are_not_taken_for_classes(rooted):
    """As the Intel image classification set is packed: seg_train/seg_train/forest/1.jpg."""
    paths = [*grid("seg_train/seg_train", "seg_test/seg_test"), "seg_pred/seg_pred/1.png"]
    with pytest.raises(
        FcaError, match="two folders under one name = seg_test/seg_test/cat and seg_train/seg_train/cat; "
    ):
        loaded(rooted(paths))
    data = loaded(rooted(paths), splits={"seg_train": "train", "seg_test": "test", "seg_pred": None})
    assert data.classes == ("cat", "dog")
    assert data.items["split"].value_counts().to_dict() == {"train": 6, "val": 2, "test": 8}


def test_classes_may_have_folders_of_other_names(rooted):
    paths = ["animal/pets/cat/1.png", "animal/pets/dog/2.png", "plant/trees/oak/3.png", "plant/trees/elm/4.png"]
    assert loaded(rooted(paths)).classes == ("animal", "plant")


def test_one_class_with_folders_of_its_own_is_no_set_of_two_classes(rooted):
    paths = [*(f"cat/{i}.png" for i in range(9)), "cat/old/1.png", "cat/new/2.png"]
    with pytest.raises(FcaError, match="classes of photos = cat; "):
        loaded(rooted(paths))


def test_an_archive_that_holds_a_path_twice_is_refused(tmp_path):
    archive = pack(tmp_path / "twice.zip", grid())
    with zipfile.ZipFile(archive, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("cat/1.png", png(99))
    with pytest.raises(FcaError, match=r"image ids that stand twice = cat/1.png; "):
        loaded(str(archive))


def test_an_archive_whose_paths_have_the_separator_of_windows_is_refused(tmp_path):
    """Some programs of Windows write such, against the format's rules."""
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        for at, path in enumerate(grid()):
            member = zipfile.ZipInfo(path.replace("/", "\\"))
            member.create_system = 0
            file.writestr(member, png(at))
    with pytest.raises(FcaError, match=r"member of the archive = cat\\.*; allowed: plain/paths/like/this"):
        loaded(str(tmp_path / "photos.zip"))


@pytest.mark.parametrize("layout", ["split", "class/class", "split/klass"])
def test_a_layout_that_names_no_class_is_refused(tmp_path, layout):
    root = plant(tmp_path / "photos", grid())
    with pytest.raises(FcaError, match=f"dataset.layout = {layout}; "):
        loaded(str(root), layout=layout)


def test_a_missing_root_is_named():
    with pytest.raises(FcaError, match=r"dataset.root = no/such/place; allowed: an existing directory or .zip"):
        loaded("no/such/place")


def test_a_root_that_is_neither_directory_nor_zip_is_named(tmp_path):
    path = tmp_path / "photos.zip"
    path.write_bytes(pack(tmp_path / "whole.zip", grid()).read_bytes()[:-200])
    with pytest.raises(FcaError, match=r"dataset.root = .*photos.zip; allowed: a directory or a whole .zip"):
        loaded(str(path))


def test_a_root_without_images_is_an_error(rooted):
    with pytest.raises(FcaError, match="images of photos = 0; "):
        loaded(rooted(["index.csv"]))


def test_an_unreadable_image_is_named_when_it_is_read_and_not_before(tmp_path):
    root = plant(tmp_path / "photos", grid())
    (root / "dog/2.png").write_bytes(png(6)[:50])
    data = loaded(str(root))
    with pytest.raises(UnreadableImage, match=r"photos/dog/2\.png"):
        data.read(6)
    assert data.read(5).shape == (4, 5, 3)


def test_an_image_that_went_away_is_named(tmp_path):
    root = plant(tmp_path / "photos", grid())
    data = loaded(str(root))
    (root / "cat/0.png").unlink()
    with pytest.raises(UnreadableImage, match=r"photos/cat/0\.png"):
        data.read(0)


def test_a_damaged_archive_member_is_named(tmp_path):
    archive = pack(tmp_path / "photos.zip", grid())
    content = bytearray(archive.read_bytes())
    content[content.index(b"\x89PNG") + 20] ^= 255  # stored, not deflated: the first image
    archive.write_bytes(content)
    with pytest.raises(UnreadableImage, match=r"photos\.zip/cat/0\.png: .*CRC"):
        loaded(str(archive)).read(0)


def checksum(data, position):
    return int(data.read(position).sum())


def test_an_archive_is_read_by_threads_and_processes_at_once(tmp_path):
    data = loaded(str(pack(tmp_path / "photos.zip", grid(each=60))))
    positions = list(range(len(data.items))) * 3
    expected = [checksum(data, position) for position in positions]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(checksum, [data] * len(positions), positions)) == expected
    with ProcessPoolExecutor(2) as processes:  # forked with the archive open
        assert list(processes.map(checksum, [data] * 120, positions[:120], chunksize=10)) == expected[:120]


@pytest.mark.skipif(os.name == "nt", reason="file names are Unicode there")
def test_a_file_name_that_is_no_text_is_named(tmp_path):
    root = plant(tmp_path / "photos", grid())
    Path(os.fsdecode(os.fsencode(root) + b"/cat/\xff.png")).write_bytes(png())
    with pytest.raises(FcaError, match=r"file name = b'.*cat/\\xff.png'; allowed: UTF-8"):
        loaded(str(root))
