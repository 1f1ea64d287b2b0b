"""The published files in their real formats: full-length arrays with holes, and small trees of folders."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.shifts.published import CifarC, ImageNetC
from fca.types import FcaError, ImageData, Shift, UnreadableImage

CLASSES = tuple("abcdefghij")


@pytest.fixture(scope="module")
def cifar_c(tmp_path_factory):
    """fog.npy and snow.npy with 50,000 rows (holes on disk, but for a few), labels.npy repeated five times."""
    root = tmp_path_factory.mktemp("CIFAR-10-C")
    for kind, level in (("fog", 10), ("snow", 100)):
        images = np.lib.format.open_memmap(root / f"{kind}.npy", "w+", np.uint8, (50_000, 32, 32, 3))
        for severity in range(5):
            for row in (17, 9_999):
                images[severity * 10_000 + row] = level + severity + (row == 17)
        images.flush()
    labels = np.arange(10_000) % 10
    np.save(root / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    return root


def cifar(classes=CLASSES, labels=None):
    """As `dataset=cifar10`: some training images, all test images."""
    test = pd.DataFrame({"image_id": [f"test/{i:05d}" for i in range(10_000)], "split": "test"})
    test["label"] = labels or [classes[i % 10] for i in range(10_000)]
    train = pd.DataFrame({"image_id": ["train/00000"], "split": "train", "label": classes[0]})
    items = pd.concat([train, test], ignore_index=True)
    return ImageData("cifar10", items, classes, "0" * 12, lambda _: np.zeros((32, 32, 3), np.uint8))


def test_each_severity_is_its_ten_thousand_rows(cifar_c):
    shifts = CifarC(str(cifar_c), ["fog", "snow"], [1, 5]).shifts()
    assert [s.label() for s in shifts] == ["cifar_c/fog/1", "cifar_c/fog/5", "cifar_c/snow/1", "cifar_c/snow/5"]
    assert all(isinstance(s, Shift) for s in shifts)
    data = cifar()
    levels = [[int(s.reader(data)(1 + row).max()) for row in (17, 9_999)] for s in shifts]
    assert levels == [[11, 10], [15, 14], [101, 100], [105, 104]]
    read = shifts[0].reader(data)
    assert read(18).shape == (32, 32, 3)
    read(18)[:] = 0
    assert read(18).max() == 11, "what is read is a copy"
    assert len({str(s.identity()) for s in shifts}) == 4
    assert len(shifts[0].identity()["sha256"]) == 64


def test_a_part_of_the_test_images_reads_the_same_rows(cifar_c):
    data = cifar()
    part = ImageData("cifar10", data.items.iloc[[10_000, 18]], data.classes, "1" * 12, data.read)
    read = CifarC(str(cifar_c), ["fog"], [1]).shifts()[0].reader(part)
    assert [int(read(i).max()) for i in (0, 1)] == [10, 11]


def test_training_images_are_refused_by_name(cifar_c):
    read = CifarC(str(cifar_c), ["fog"], [1]).shifts()[0].reader(cifar())
    with pytest.raises(FcaError, match="image = train/00000; allowed: images of the test split"):
        read(0)


def test_another_data_set_is_refused(cifar_c):
    [shift] = CifarC(str(cifar_c), ["fog"], [1]).shifts()
    labels = [CLASSES[i % 10] for i in range(10_000)]
    labels[4321] = "a"
    with pytest.raises(FcaError, match=r"label in cifar10 = 0 for test/04321; allowed: 1, as in .*labels.npy"):
        shift.reader(cifar(labels=labels))
    named = cifar()
    named.items.loc[5, "image_id"] = "test/cat/5.png"
    with pytest.raises(FcaError, match=r"image id in cifar10 = test/cat/5.png; allowed: test/00000 to test/09999"):
        shift.reader(named)


def test_missing_and_cut_off_files_are_named(cifar_c, tmp_path):
    with pytest.raises(FcaError, match=r"frost.npy in shift.root = .*; allowed: there are fog, labels, snow"):
        CifarC(str(cifar_c), ["frost"], [1]).shifts()
    with pytest.raises(FcaError, match="there are no arrays"):
        CifarC(str(tmp_path / "nowhere"), ["fog"], [1]).shifts()
    with pytest.raises(FcaError, match=r"shift.kinds = mist"):
        CifarC(str(cifar_c), ["mist"], [1]).shifts()
    np.save(tmp_path / "fog.npy", np.zeros((3, 32, 32, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.zeros(3, np.uint8))
    with pytest.raises(FcaError, match=r"shape of .*fog.npy = \(3, 32, 32, 3\) uint8; allowed: \(50000, 32, 32, 3\)"):
        CifarC(str(tmp_path), ["fog"], [1]).shifts()[0].reader(cifar())


def imagenet(files):
    """As `dataset=imagenet` with val alone, and one training image."""
    ids = [f"val/{name}" for name in files] + ["train/n01440764/n01440764_10026.JPEG"]
    labels = [name.split("/")[1] for name in ids]
    items = pd.DataFrame({"image_id": ids, "label": labels, "split": ["test"] * len(files) + ["train"]})
    return ImageData("imagenet", items, tuple(sorted(set(labels))), "2" * 12, lambda _: np.zeros((9, 9, 3), np.uint8))


FILES = ("n01440764/ILSVRC2012_val_00000293.JPEG", "n01443537/ILSVRC2012_val_00000236.JPEG")


def plant(folder, level):
    for i, name in enumerate(FILES):
        (folder / name).parent.mkdir(parents=True)
        Image.fromarray(np.full((224, 224, 3), level + 20 * i, np.uint8)).save(folder / name, "JPEG", quality=95)


@pytest.mark.parametrize("group", ["", "noise/", "extra/"])
def test_folders_are_found_with_and_without_their_groups(tmp_path, group):
    plant(tmp_path / f"{group}shot_noise" / "3", 50)
    [shift] = ImageNetC(str(tmp_path), ["shot_noise"], [3]).shifts()
    assert shift.label() == "imagenet_c/shot_noise/3"
    assert isinstance(shift, Shift)
    data = imagenet(FILES)
    read = shift.reader(data)
    assert [int(read(i).mean()) for i in (0, 1)] == [50, 70]
    assert read(0).shape == (224, 224, 3)
    with pytest.raises(FcaError, match=r"image = train/n01440764/n01440764_10026.JPEG; allowed: images of the test"):
        read(2)
    assert set(shift.identity()) == {"imagenet_c", "severity", "files", "margin"}
    for kind, severity in (("fog", 3), ("shot_noise", 1)):
        with pytest.raises(FcaError, match=rf"{kind}/{severity} in shift.root = .*there are shot_noise;"):
            ImageNetC(str(tmp_path), [kind], [severity]).shifts()


def test_missing_and_broken_images_are_named(tmp_path):
    plant(tmp_path / "fog" / "1", 50)
    [shift] = ImageNetC(str(tmp_path), ["fog"], [1]).shifts()
    with pytest.raises(FcaError, match=r"missing images of imagenet = 1 of 3, as n09/none.JPEG"):
        shift.reader(imagenet((*FILES, "n09/none.JPEG")))
    (tmp_path / "fog" / "1" / FILES[0]).write_bytes(b"\xff\xd8 no more")
    read = shift.reader(imagenet(FILES))
    with pytest.raises(UnreadableImage, match="ILSVRC2012_val_00000293"):
        read(0)
    assert int(read(1).mean()) == 70, "the others are read"


def test_other_files_are_another_identity(tmp_path):
    for name, files in (("a", FILES), ("b", FILES[:1])):
        for file in files:
            (tmp_path / name / "fog" / "1" / file).parent.mkdir(parents=True)
            (tmp_path / name / "fog" / "1" / file).touch()
    a, b = (ImageNetC(str(tmp_path / name), ["fog"], [1]).shifts()[0].identity() for name in "ab")
    assert a["files"] != b["files"]
    assert {**a, "files": 0} == {**b, "files": 0}
