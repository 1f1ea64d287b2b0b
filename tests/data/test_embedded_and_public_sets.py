import hashlib
import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fca.data.arrays import Cifar, Digits
from fca.data.splits import Share
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError
from tests.support.trees import VAL

declare_torchvision_ops()
from torchvision import datasets  # noqa: E402  after the operators are declared


@pytest.fixture(scope="module")
def digits():
    return Digits("1", Share(0.2, 0), VAL).load()


def test_digits_are_the_scans_enlarged(digits):
    scans, targets = load_digits(return_X_y=True)
    assert digits.labels.tolist() == targets.tolist()
    assert digits.classes == tuple("0123456789")
    image = digits.read(5)
    assert image.shape == (32, 32, 3)
    means = image[:, :, 0].reshape(8, 4, 8, 4).mean(axis=(1, 3))
    assert np.abs(means - scans[5].reshape(8, 8) * 255 / 16).mean() < 20  # bicubic overshoot is clipped


def test_digits_keep_their_golden_splits_and_fingerprint(digits):
    assert digits.items["split"].value_counts().to_dict() == {"train": 1293, "test": 359, "val": 145}
    assert digits.fingerprint == "1da7013fb13b"


def test_digits_of_another_version_are_another_set(digits):
    assert Digits("2", Share(0.2, 0), VAL).load().fingerprint != digits.fingerprint


CLASSES = {"cifar10": ["airplane", "bird", "cat"], "cifar100": ["apple", "bear", "lamp"]}


def batch(seed, n, fine):
    """What one pickled batch of the original holds: rows of 3,072 bytes, red plane first, and labels."""
    rng = np.random.default_rng(seed)
    labels = [int(label) for label in np.arange(n) % 3]
    coarse = {"coarse_labels": [0] * n} if fine == "fine_labels" else {}
    return {"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8), fine: labels, **coarse}


@pytest.fixture(params=["cifar10", "cifar100"])
def published(request, tmp_path, monkeypatch):
    """A small archive in the real format, and torchvision's own class with the checksums of its files."""
    name = request.param
    original = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    fine = "labels" if name == "cifar10" else "fine_labels"
    folder = tmp_path / original.base_folder
    folder.mkdir()

    def write(file, content):
        (folder / file).write_bytes(pickle.dumps(content))
        return [file, hashlib.md5((folder / file).read_bytes(), usedforsecurity=False).hexdigest()]

    sizes = {file: 30 for file, _ in original.train_list} | {file: 6 for file, _ in original.test_list}
    sums = {file: write(file, batch(seed, n, fine)) for seed, (file, n) in enumerate(sizes.items())}
    meta = original.meta
    key = meta["key"]

    small = {
        "train_list": [sums[file] for file, _ in original.train_list],
        "test_list": [sums[file] for file, _ in original.test_list],
        "meta": {**meta, "md5": write(meta["filename"], {key: CLASSES[name]})[1]},
    }
    monkeypatch.setattr(datasets, original.__name__, type("Small", (original,), small))
    return name, tmp_path, folder


def test_cifar_is_read_as_published(published):
    name, root, folder = published
    data = Cifar(name=name, version="v", root=str(root), download=False, val=VAL).load()
    batches = 5 if name == "cifar10" else 1
    assert data.name == name
    assert data.classes == tuple(CLASSES[name])
    assert data.items["split"].value_counts().to_dict() == {"train": 27 * batches, "val": 3 * batches, "test": 6}
    assert data.items["image_id"].iloc[0] == "test/00000"
    row = data.items.index[data.items["image_id"] == "train/00002"][0]
    first = sorted(folder.glob("*1" if name == "cifar10" else "train"))[0]
    stored = pickle.loads(first.read_bytes())
    assert (data.read(row) == stored["data"][2].reshape(3, 32, 32).transpose(1, 2, 0)).all()
    assert data.labels[row] == 2


def test_a_damaged_cifar_is_refused_with_the_folder_to_bring(published):
    name, root, folder = published
    file = sorted(folder.iterdir())[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FcaError, match=f"dataset.root = {root}; allowed: a folder that holds {folder.name}, whole"):
        Cifar(name=name, version="v", root=str(root), download=False, val=VAL).load()


def test_an_absent_cifar_without_network_is_refused_with_the_folder_to_bring(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    where = r"holds cifar-10-batches-py, whole; next: bring that folder \(from http.*\), or "
    for download, other in ((False, "set dataset.download=true"), (True, "try the download again")):
        with pytest.raises(FcaError, match=where + other):
            Cifar(name="cifar10", version="v", root=str(tmp_path), download=download, val=VAL).load()


def test_another_name_than_the_two_is_refused(tmp_path):
    with pytest.raises(FcaError, match=r"dataset.name = cifar20; allowed: cifar10, cifar100"):
        Cifar(name="cifar20", version="v", root=str(tmp_path), download=False, val=VAL).load()
