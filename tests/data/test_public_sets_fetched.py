"""Downloads, from a server on this machine, of archives packed as the originals are."""

import shutil
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fca.data import public
from fca.data.public import Caltech, Cub200, Dtd, Food101, Gtsrb, find_tree
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError
from tests.support import public_trees
from tests.support.public_set_files import TEST
from tests.support.public_trees import md5, packed
from tests.support.trees import VAL

declare_torchvision_ops()
from torchvision import datasets  # noqa: E402  after the operators are declared


def packed_caltech(root, there):
    """One is a zip of a folder with a tar, the other a tar; returns their md5."""
    inner = root / "caltech-101"
    inner.mkdir()
    packed(root / "caltech101/caltech101", "101_ObjectCategories", inner / "101_ObjectCategories.tar.gz")
    (inner / "show_annotation.m").write_text("disp")
    with zipfile.ZipFile(there / "caltech-101.zip", "w") as file:
        for path in inner.iterdir():
            file.write(path, path.relative_to(root))
    packed(root / "caltech256/caltech256", "256_ObjectCategories", there / "256_ObjectCategories.tar")
    return {path.name: md5(path) for path in there.iterdir() if path.name[0].isdigit() or path.suffix == ".zip"}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def there(tmp_path):
    """A folder, and the address under which its files can be downloaded."""
    folder = tmp_path / "there"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """A folder with the archives of the sets, and the checksums of Caltech's."""
    root, there = tmp_path_factory.mktemp("sets"), tmp_path_factory.mktemp("archives")
    for name in ("caltech101", "caltech256", "food101", "dtd", "cub200", "gtsrb"):
        getattr(public_trees, name)(root / name)
    packed(root / "food101", "food-101", there / "food-101.tar.gz")
    packed(root / "dtd/dtd", "dtd", there / "dtd-r1.0.1.tar.gz")
    packed(root / "cub200", "CUB_200_2011", there / "CUB_200_2011.tgz")
    caltech = packed_caltech(root, there)
    folder = root / "gtsrb/gtsrb"
    parts = ("GTSRB/Final_Training", "GTSRB/Final_Test", "GT-final_test.csv")
    for archive, part in zip(public.GTSRB_ARCHIVES, parts, strict=True):
        with zipfile.ZipFile(there / archive, "w") as file:
            for path in [*(folder / part).rglob("*.*"), *(p for p in [folder / part] if p.is_file())]:
                file.write(path, path.relative_to(folder))
    return there, caltech


@pytest.fixture
def mirrors(archives, there, monkeypatch):
    """Archives of the sets; whoever downloads gets these. Returns their folder."""
    there, url = there
    shutil.copytree(archives[0], there, dirs_exist_ok=True)

    def from_here(_, download_root, filename, md5):
        assert len(md5) == 32
        datasets.utils.download_and_extract_archive(url + filename, download_root, md5=archives[1][filename])

    monkeypatch.setattr(datasets.caltech, "download_and_extract_archive", from_here)
    for original, archive in ((datasets.Food101, "food-101.tar.gz"), (datasets.DTD, "dtd-r1.0.1.tar.gz")):
        monkeypatch.setattr(original, "_URL", url + archive)
        monkeypatch.setattr(original, "_MD5", md5(there / archive))
    monkeypatch.setattr(public, "CUB_URL", url + "CUB_200_2011.tgz")
    monkeypatch.setattr(public, "CUB_MD5", md5(there / "CUB_200_2011.tgz"))
    monkeypatch.setattr(public, "GTSRB_URL", url)
    monkeypatch.setattr(public, "GTSRB_ARCHIVES", {name: md5(there / name) for name in public.GTSRB_ARCHIVES})
    return there


KEYS = {"download": True, "val": VAL}
SETS = {
    "caltech101": (lambda root: Caltech(name="caltech101", root=root, test=TEST, images=48, **KEYS), "caltech101", 48),
    "caltech256": (lambda root: Caltech(name="caltech256", root=root, test=TEST, images=30, **KEYS), "caltech256", 30),
    "food101": (lambda root: Food101(root=root, **KEYS), "food-101", 50),
    "dtd": (lambda root: Dtd(root=root, **KEYS), "dtd", 36),
    "cub200": (lambda root: Cub200(root=root, **KEYS), "CUB_200_2011", 60),
    "gtsrb": (lambda root: Gtsrb(root=root, **KEYS), "gtsrb", 212),
}


@pytest.mark.wide
@pytest.mark.parametrize("name", SETS)
def test_the_first_use_downloads_and_the_second_does_not(mirrors, tmp_path, name):
    made, top, count = SETS[name]
    root = tmp_path / "cache"
    first = made(str(root)).load()
    assert len(first.items) == count
    assert sorted(path.name for path in root.iterdir()) == [f".{top}.lock", top]  # no archive, no half of a tree
    shutil.rmtree(mirrors)
    assert made(str(root)).load().fingerprint == first.fingerprint


@pytest.mark.parametrize("name", SETS)
def test_a_damaged_download_is_refused_and_leaves_no_tree(mirrors, tmp_path, name):
    made, top, count = SETS[name]
    whole = {file: file.read_bytes() for file in mirrors.iterdir()}
    for file, content in whole.items():
        file.write_bytes(content[:-20] + b"damaged, twenty bytes"[:20])
    root = tmp_path / "cache"
    with pytest.raises(FcaError, match=rf"dataset.root = {root}; .*try the download again: .*corrupted"):
        made(str(root)).load()
    assert not (root / top).exists()
    (root / f"{top}.part" / top / "images").mkdir(parents=True, exist_ok=True)  # of one that was ended too early
    for file, content in whole.items():
        file.write_bytes(content)
    assert len(made(str(root)).load().items) == count


def test_two_that_want_a_set_at_once_fetch_it_once(tmp_path):
    fetched = []

    def fetch(folder):
        fetched.append(folder)
        time.sleep(0.2)
        (Path(folder) / "birds").mkdir(parents=True)

    with ThreadPoolExecutor(3) as pool:
        folders = list(pool.map(lambda _: find_tree(str(tmp_path), ["birds"], "there", fetch), range(3)))
    assert folders == [tmp_path / "birds"] * 3
    assert len(fetched) == 1


def test_a_download_that_holds_something_else_is_refused(tmp_path):
    with pytest.raises(FcaError, match=r"holds birds; next: the download holds no birds; bring it: there"):
        find_tree(str(tmp_path), ["birds"], "there", lambda _: None)


def test_without_network_the_message_names_what_to_bring(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.Food101, "_URL", "http://127.0.0.1:9/food-101.tar.gz")
    with pytest.raises(FcaError, match=r"holds food-101; next: bring it \(http://data.vision.* refused"):
        Food101(root=str(tmp_path), **KEYS).load()
