import errno
import json
import multiprocessing
import os
import resource
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fca.data.folder import Folder
from fca.data.pixels import Cached, Streamed, open_pixels
from fca.store.files import write_whole
from fca.types import UnreadableImage
from tests.data.trees import VAL, grid, pack, plant, png

FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Squash:
    size: int = 8
    key: str = "squash.8"

    def __call__(self, image, mask=None):
        return np.asarray(Image.fromarray(image).resize((self.size, self.size), Image.Resampling.BILINEAR)), mask


@dataclass(frozen=True)
class Counted:
    """Notes every image that is read as a line of a file, from any process."""

    read: object
    log: Path

    def __call__(self, index):
        with self.log.open("a") as file:
            file.write(f"{index}\n")
        return self.read(index)


@pytest.fixture
def data(tmp_path):
    found = Folder(str(pack(tmp_path / "photos.zip", grid(each=20))), VAL).load()
    return replace(found, read=Counted(found.read, tmp_path / "log"))


def expected(data):
    return np.stack([Squash()(data.read(i))[0] for i in range(len(data.items))])


def reads(tmp_path):
    return len((tmp_path / "log").read_text().splitlines())


def test_rows_come_back_in_the_order_asked(data, tmp_path):
    pixels = open_pixels(data, Squash(), tmp_path / "cache", workers=3)
    rows = np.array([7, 0, 7, 39])
    assert isinstance(pixels, Cached)
    assert len(pixels) == 40
    assert pixels[rows].dtype == np.uint8
    assert (pixels[rows] == expected(data)[rows]).all()
    assert pixels[np.array([], dtype=int)].shape == (0, 8, 8, 3)


def test_what_comes_back_may_be_written_on(data, tmp_path):
    pixels = open_pixels(data, Squash(), tmp_path / "cache")
    pixels[np.array([0])][:] = 0
    assert (pixels[np.array([0])] == expected(data)[:1]).all()


def test_every_image_is_decoded_once(data, tmp_path):
    for _ in range(3):
        open_pixels(data, Squash(), tmp_path / "cache")
    assert reads(tmp_path) == 40


def test_the_cache_is_a_plain_array_named_by_data_and_geometry(data, tmp_path):
    open_pixels(data, Squash(), tmp_path / "cache")
    stored = np.load(tmp_path / "cache" / f"{data.fingerprint}-squash.8.npy")
    assert (stored == expected(data)).all()
    open_pixels(data, Squash(4, "squash.4"), tmp_path / "cache")
    assert (tmp_path / "cache" / f"{data.fingerprint}-squash.4.npy").exists()


def open_and_sum(data, cache, answers):
    answers.put(int(open_pixels(data, Squash(), cache)[np.arange(40)].sum()))


def test_processes_that_ask_at_once_share_one_decoding(data, tmp_path):
    answers = FORK.Queue()
    started = [FORK.Process(target=open_and_sum, args=(data, tmp_path / "cache", answers)) for _ in range(4)]
    for process in started:
        process.start()
    sums = [answers.get(timeout=30) for _ in started]
    for process in started:
        process.join()
    assert reads(tmp_path) == 40
    assert sums == [int(expected(data).sum())] * 4


def killed_while_writing(path):
    def write(file):
        file.write(b"half" * 1000)
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    write_whole(path, write)


def test_a_file_left_by_a_killed_process_is_not_taken_for_whole(data, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    writer = FORK.Process(target=killed_while_writing, args=(cache / f"{data.fingerprint}-squash.8.npy",))
    writer.start()
    writer.join()
    assert len(list(cache.glob(".*.part"))) == 1
    assert (open_pixels(data, Squash(), cache)[np.arange(40)] == expected(data)).all()
    assert not list(cache.glob(".*.part"))


def write_on_a_full_disk(data, cache, answers):
    sys.dont_write_bytecode = True  # else Python leaves cut .pyc files, and imports them
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        open_pixels(data, Squash(), cache)
    except OSError as error:
        answers.put(error.errno)


def test_a_full_disk_is_an_error_and_leaves_nothing(data, tmp_path):
    answers = FORK.Queue()
    process = FORK.Process(target=write_on_a_full_disk, args=(data, tmp_path / "cache", answers))
    process.start()
    assert answers.get(timeout=30) == errno.EFBIG
    process.join()
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize("limit_gb", [4.0, 0.0])
def test_an_unreadable_image_stops_only_those_who_ask_for_it(tmp_path, limit_gb):
    root = plant(tmp_path / "photos", grid())
    (root / "dog/2.png").write_bytes(png(6)[:50])
    pixels = open_pixels(Folder(str(root), VAL).load(), Squash(), tmp_path / "cache", limit_gb=limit_gb)
    assert pixels[np.array([0, 5, 7])].shape == (3, 8, 8, 3)
    with pytest.raises(UnreadableImage, match=r"photos/dog/2\.png"):
        pixels[np.array([5, 6])]


def cut(path):
    path.write_bytes(path.read_bytes()[:200])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def to_another_shape(path):
    np.save(path, np.zeros((40, 4, 4, 3), np.uint8))


def to_a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("suffix", [".npy", ".json"])
@pytest.mark.parametrize(
    "damage", [Path.unlink, cut, flip, to_a_folder, to_another_shape, lambda path: path.write_text('{"6": "old"}')]
)
def test_a_damaged_cache_is_made_anew(data, tmp_path, suffix, damage):
    open_pixels(data, Squash(), tmp_path / "cache")
    damage(tmp_path / "cache" / f"{data.fingerprint}-squash.8{suffix}")
    assert (open_pixels(data, Squash(), tmp_path / "cache")[np.arange(40)] == expected(data)).all()
    read = reads(tmp_path)
    open_pixels(data, Squash(), tmp_path / "cache")
    assert reads(tmp_path) == read


def test_the_cache_of_another_set_is_not_taken_for_this_one(data, tmp_path):
    open_pixels(data, Squash(), tmp_path / "cache")
    other = replace(data, read=lambda i: np.zeros((9, 9, 3), np.uint8), fingerprint="0" * 12)
    open_pixels(other, Squash(), tmp_path / "cache")
    for suffix in (".npy", ".json"):
        (tmp_path / "cache" / f"{'0' * 12}-squash.8{suffix}").replace(
            tmp_path / "cache" / f"{data.fingerprint}-squash.8{suffix}"
        )
        assert (open_pixels(data, Squash(), tmp_path / "cache")[np.arange(40)] == expected(data)).all()


def test_a_copied_cache_is_compared_once_and_not_decoded_again(data, tmp_path):
    open_pixels(data, Squash(), tmp_path / "cache")
    os.utime(tmp_path / "cache" / f"{data.fingerprint}-squash.8.npy", (7, 7))
    read = reads(tmp_path)
    open_pixels(data, Squash(), tmp_path / "cache")
    record = json.loads((tmp_path / "cache" / f"{data.fingerprint}-squash.8.json").read_text())
    assert (reads(tmp_path), record["mtime_ns"]) == (read, 7 * 10**9)


def test_unreadable_images_are_listed_beside_the_cache_and_may_be_mended(tmp_path):
    root = plant(tmp_path / "photos", grid())
    whole = (root / "dog/2.png").read_bytes()
    (root / "dog/2.png").write_bytes(bytes(len(whole)))
    data = Folder(str(root), VAL).load()
    open_pixels(data, Squash(), tmp_path / "cache")
    listed = json.loads((tmp_path / "cache" / f"{data.fingerprint}-squash.8.json").read_text())
    assert list(listed["unreadable"]) == ["6"]
    assert "photos/dog/2.png" in listed["unreadable"]["6"]
    (root / "dog/2.png").write_bytes(whole)
    pixels = open_pixels(data, Squash(), tmp_path / "cache")
    assert (pixels[np.array([5, 6])] == expected(data)[5:7]).all()


def test_a_large_set_streams_the_same_pixels_and_keeps_no_file(data, tmp_path):
    size_gb = 40 * 8 * 8 * 3 / 1e9
    assert isinstance(open_pixels(data, Squash(), tmp_path / "cache", limit_gb=size_gb * 1.01), Cached)
    streamed = open_pixels(data, Squash(), tmp_path / "stream", workers=2, limit_gb=size_gb * 0.99)
    rows = np.array([3, 1, 38])
    assert isinstance(streamed, Streamed)
    assert len(streamed) == 40
    assert (streamed[rows] == expected(data)[rows]).all()
    assert streamed[rows[:0]].shape == (0, 8, 8, 3)
    assert not (tmp_path / "stream").exists()
