import errno
import json
import multiprocessing
import os
import pickle
import resource
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fca.data import pixels as pixels_module
from fca.data.folder import Folder
from fca.data.pixels import open_originals, open_pixels
from fca.geometry import ResizeCrop
from fca.store.files import write_whole
from fca.types import UnreadableImage
from tests.support.trees import VAL, encoded, grid, pack, plant, png

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


def is_stored(pixels, rows):
    """Which rows are not decoded at every access."""
    return pixels.shard[rows] >= 0


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
    assert is_stored(pixels, np.arange(40)).all()
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


def files(cache):
    """Names of the shards."""
    return sorted(path.stem for path in cache.glob("*.rgb"))


def test_a_shard_is_raw_pixels_named_by_data_and_geometry(data, tmp_path):
    open_pixels(data, Squash(), tmp_path / "cache")
    stored = np.fromfile(tmp_path / "cache" / f"{data.fingerprint}-squash.8-0-40.rgb", np.uint8)
    assert (stored == expected(data).ravel()).all()
    open_pixels(data, Squash(4, "squash.4"), tmp_path / "cache")
    assert files(tmp_path / "cache") == [f"{data.fingerprint}-squash.{side}-0-40" for side in (4, 8)]


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
    writer = FORK.Process(target=killed_while_writing, args=(cache / f"{data.fingerprint}-squash.8-0-40.rgb",))
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
    assert all(path.name.endswith((".lock", ".lease")) for path in (tmp_path / "cache").iterdir())


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


@pytest.mark.wide
@pytest.mark.parametrize("suffix", [".rgb", ".json"])
@pytest.mark.parametrize(
    "damage", [Path.unlink, cut, flip, to_a_folder, to_another_shape, lambda path: path.write_text('{"6": "old"}')]
)
def test_a_damaged_cache_is_made_anew(data, tmp_path, suffix, damage):
    open_pixels(data, Squash(), tmp_path / "cache")
    damage(tmp_path / "cache" / f"{data.fingerprint}-squash.8-0-40{suffix}")
    assert (open_pixels(data, Squash(), tmp_path / "cache")[np.arange(40)] == expected(data)).all()
    read = reads(tmp_path)
    open_pixels(data, Squash(), tmp_path / "cache")
    assert reads(tmp_path) == read


def test_the_cache_of_another_set_is_not_taken_for_this_one(data, tmp_path):
    open_pixels(data, Squash(), tmp_path / "cache")
    other = replace(data, read=lambda i: np.zeros((9, 9, 3), np.uint8), fingerprint="0" * 12)
    open_pixels(other, Squash(), tmp_path / "cache")
    for suffix in (".rgb", ".json"):
        (tmp_path / "cache" / f"{'0' * 12}-squash.8-0-40{suffix}").replace(
            tmp_path / "cache" / f"{data.fingerprint}-squash.8-0-40{suffix}"
        )
        assert (open_pixels(data, Squash(), tmp_path / "cache")[np.arange(40)] == expected(data)).all()


def test_a_copied_cache_is_compared_once_and_not_decoded_again(data, tmp_path):
    open_pixels(data, Squash(), tmp_path / "cache")
    os.utime(tmp_path / "cache" / f"{data.fingerprint}-squash.8-0-40.rgb", (7, 7))
    read = reads(tmp_path)
    open_pixels(data, Squash(), tmp_path / "cache")
    record = json.loads((tmp_path / "cache" / f"{data.fingerprint}-squash.8-0-40.json").read_text())
    assert (reads(tmp_path), record["mtime_ns"]) == (read, 7 * 10**9)


def test_unreadable_images_are_listed_beside_the_cache_and_may_be_mended(tmp_path):
    root = plant(tmp_path / "photos", grid())
    whole = (root / "dog/2.png").read_bytes()
    (root / "dog/2.png").write_bytes(bytes(len(whole)))
    data = Folder(str(root), VAL).load()
    open_pixels(data, Squash(), tmp_path / "cache")
    listed = json.loads((tmp_path / "cache" / f"{data.fingerprint}-squash.8-0-8.json").read_text())
    assert list(listed["unreadable"]) == ["6"]
    assert "photos/dog/2.png" in listed["unreadable"]["6"]
    (root / "dog/2.png").write_bytes(whole)
    pixels = open_pixels(data, Squash(), tmp_path / "cache")
    assert (pixels[np.array([5, 6])] == expected(data)[5:7]).all()


def test_a_large_set_streams_the_same_pixels_and_keeps_no_file(data, tmp_path):
    size_gb = 40 * 8 * 8 * 3 / 1e9
    rows = np.array([3, 1, 38])
    assert is_stored(open_pixels(data, Squash(), tmp_path / "cache", limit_gb=size_gb * 1.01), rows).all()
    streamed = open_pixels(data, Squash(), tmp_path / "stream", workers=2, limit_gb=size_gb * 0.99)
    assert not is_stored(streamed, rows).any()
    assert len(streamed) == 40
    assert (streamed[rows] == expected(data)[rows]).all()
    assert streamed[rows[:0]].shape == (0, 8, 8, 3)
    assert not (tmp_path / "stream").exists()


# Shards.

CLASS_GB = 20 * 8 * 8 * 3 / 1e9  # the images of a class


@pytest.fixture
def a_shard_a_class(monkeypatch):
    monkeypatch.setattr(pixels_module, "SHARD_BYTES", 20 * 8 * 8 * 3)


def opened(data, cache, classes, limit=8.0, key="squash.8"):
    """Open the images of these classes; the limit in classes. The files also have records of half a kilobyte each."""
    rows = data.rows("test", classes)
    return open_pixels(data, Squash(8, key), cache, 1, (limit + 0.5) * CLASS_GB, rows)


def test_a_subset_of_the_classes_is_decoded_and_no_other_image(data, tmp_path, a_shard_a_class):
    pixels = opened(data, tmp_path / "cache", [1])
    assert reads(tmp_path) == 20
    rows = data.rows("test", [1])
    assert (pixels[rows] == expected(data)[rows]).all()
    count = reads(tmp_path)
    assert (pixels[np.array([0, 25, 3])] == expected(data)[[0, 25, 3]]).all(), "others may be asked for"
    opened(data, tmp_path / "cache", [0, 1])
    assert reads(tmp_path) == count + 2 + 40 + 20, (
        "two that were streamed, the reference, and the class that was missing"
    )


def test_classes_of_one_split_share_a_shard_and_a_large_one_is_cut():
    sizes = {("a", 0): 2, ("a", 1): 3, ("b", 0): 1, ("b", 1): 9, ("b", 2): 1, ("c", 1): 2, ("c", 2): 2, ("c", 3): 1}
    parts = np.repeat([4 * "abc".index(split) + label for split, label in sizes], list(sizes.values()))
    assert pixels_module._shard_bounds(parts, 4, 4) == [0, 2, 5, 6, 9, 12, 15, 16, 20, 21]
    assert pixels_module._shard_bounds(parts, 4, 100) == [0, 5, 16, 21]


def test_what_was_used_least_recently_goes_where_the_folder_is_full(data, tmp_path, a_shard_a_class):
    cache = tmp_path / "cache"
    for key in "abc":
        opened(data, cache, [0], 8, key)
        for path in cache.glob(f"*-{key}-*"):
            os.utime(path, (1, 1) if path.suffix == ".json" else None)
    opened(data, cache, [0], 8, "a")
    size = sum(path.stat().st_size for path in cache.glob("*.*"))
    opened(data, cache, [0], size / CLASS_GB / 1e9 - 0.5, "d")
    assert [name.split("-")[1] for name in files(cache)] in (["a", "b", "d"], ["a", "c", "d"])
    assert reads(tmp_path) == 80


def test_files_that_are_not_ours_stay_however_old(data, tmp_path, a_shard_a_class):
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("notes.txt", "features.npy"):
        (cache / name).write_bytes(bytes(10**4))
        os.utime(cache / name, (1, 1))
    opened(data, cache, [0], 1.0)
    assert {path.name for path in cache.glob("[!.]*")} == {
        *("notes.txt", "features.npy"),
        *(f"{data.fingerprint}-squash.8-0-20.{suffix}" for suffix in ("rgb", "json")),
    }


def test_what_is_in_use_stays_and_the_rest_streams(data, tmp_path, a_shard_a_class):
    cache = tmp_path / "cache"
    first = opened(data, cache, [0], 1.0)
    second = opened(data, cache, [1], 1.0)
    both = opened(data, cache, [0, 1], 1.0)
    assert is_stored(first, data.rows("test", [0])).all()
    assert not is_stored(second, np.arange(40)).any()
    assert is_stored(both, np.arange(40)).tolist() == is_stored(first, np.arange(40)).tolist()
    assert (both[np.arange(40)] == expected(data)).all()
    del first, both
    second = opened(data, cache, [1], 1.0)
    assert is_stored(second, data.rows("test", [1])).all()
    assert files(cache) == [f"{data.fingerprint}-squash.8-20-40"]


def use_until_told(data, cache, ready, end):
    pixels = opened(data, cache, [0], 1.0)
    ready.set()
    end.wait(30)
    assert (pixels[np.arange(20)] == expected(data)[:20]).all()
    os.kill(os.getpid(), signal.SIGKILL)


def test_another_process_keeps_its_shards_until_it_ends_even_killed(data, tmp_path, a_shard_a_class):
    ready, end = FORK.Event(), FORK.Event()
    user = FORK.Process(target=use_until_told, args=(data, tmp_path / "cache", ready, end))
    user.start()
    ready.wait(30)
    assert not is_stored(opened(data, tmp_path / "cache", [1], 1.0), np.arange(40)).any()
    end.set()
    user.join()
    assert user.exitcode == -signal.SIGKILL
    assert is_stored(opened(data, tmp_path / "cache", [1], 1.0), data.rows("test", [1])).all()
    assert len(list((tmp_path / "cache").glob(".*.lease"))) == 0


@pytest.mark.wide
@pytest.mark.parametrize("damage", ["pipe", "folder", "link", "text", "empty", "numbers"])
def test_what_stands_in_the_place_of_a_lease_leases_nothing_and_stops_nobody(data, tmp_path, a_shard_a_class, damage):
    """Of one that is held, whose pixels stay mapped, and of one that is not."""
    cache = tmp_path / "cache"
    held = opened(data, cache, [0], 1.0)
    for lease in (*cache.glob(".*.lease"), cache / ".stray.lease"):
        if damage in ("text", "empty", "numbers"):  # written over: its lock stays
            lease.write_text({"text": "{oh", "empty": "", "numbers": '{"a": "b"}'}[damage])
        else:
            lease.unlink(missing_ok=True)
            {"pipe": os.mkfifo, "folder": Path.mkdir, "link": lambda path: path.symlink_to("nowhere")}[damage](lease)
    after = opened(data, cache, [1], 1.0)
    assert is_stored(after, data.rows("test", [1])).all()
    assert (after[np.arange(40)] == expected(data)).all()
    assert (held[np.arange(40)] == expected(data)).all()
    del held, after
    assert not list(cache.glob(".*.lease"))


def test_a_limit_of_nothing_uses_what_is_there_and_makes_and_removes_nothing(data, tmp_path, a_shard_a_class):
    cache = tmp_path / "cache"
    opened(data, cache, [0])
    before = files(cache)
    pixels = open_pixels(data, Squash(), cache, limit_gb=0.0)
    assert (is_stored(pixels, np.arange(40)) == (data.labels == 0)).all()
    assert files(cache) == before


def test_a_thousand_shards_hold_no_file_open(data, tmp_path, monkeypatch):
    monkeypatch.setattr(pixels_module, "SHARD_BYTES", 8 * 8 * 3)  # a shard an image
    before = len(list(Path("/proc/self/fd").iterdir()))
    pixels = open_pixels(data, Squash(), tmp_path / "cache")
    assert len(files(tmp_path / "cache")) == 40
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1, "its lease alone"
    assert (pixels[np.arange(40)] == expected(data)).all()


def test_another_process_maps_the_shards_again_and_gets_no_copy_of_them(data, tmp_path):
    opened = replace(open_pixels(data, Squash(64, "squash.64"), tmp_path / "cache"), decode_row=png)  # by its name
    sent = pickle.dumps(opened)
    assert len(sent) < opened[np.arange(40)].nbytes / 50
    assert (pickle.loads(sent)[np.arange(40)] == opened[np.arange(40)]).all()


# Originals.


def test_the_centre_of_an_original_is_the_evaluation_crop(tmp_path):
    root = plant(tmp_path / "photos", grid())
    (root / "dog/2.png").write_bytes(png(6, (9, 31)))
    data, geometry = Folder(str(root), VAL).load(), ResizeCrop(6, 0.75, "bicubic")
    rows = np.array([6, 0, 6])
    for limit_gb in (1.0, 0.0, 1.0):
        found = open_originals(data, geometry, tmp_path / "cache", rows=rows, limit_gb=limit_gb)[rows]
        assert found.height.tolist() == [8, 8, 8]
        assert found.width.tolist() == [8 * 31 // 9, 8 * 5 // 4, 8 * 31 // 9]
        starts = np.cumsum(found.height * found.width) - found.height * found.width
        for row, start, width in zip(rows, starts, found.width, strict=True):
            image = found.pixels[start : start + 8 * width].reshape(8, width, 3)
            left = round((width - 6) / 2)
            assert (image[1:7, left : left + 6] == geometry(data.read(int(row)))[0]).all()
    assert open_originals(data, geometry, tmp_path / "cache", rows=rows)[rows[:0]].pixels.shape == (0, 3)


def test_an_unreadable_original_is_tried_again(tmp_path):
    root = plant(tmp_path / "photos", grid())
    whole = (root / "dog/2.png").read_bytes()
    (root / "dog/2.png").write_bytes(bytes(len(whole)))
    data = Folder(str(root), VAL).load()
    found = open_originals(data, ResizeCrop(4), tmp_path / "cache", rows=np.arange(8))
    assert found[np.array([5, 7])].height.tolist() == [4, 4]
    with pytest.raises(UnreadableImage, match=r"photos/dog/2\.png"):
        found[np.array([6])]
    (root / "dog/2.png").write_bytes(whole)
    assert found[np.array([6])].width.tolist() == [5]


def test_a_large_jpeg_is_decoded_at_less_scale_for_its_original_alone(tmp_path):
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)).resize((480, 360))
    root = plant(tmp_path / "photos", grid())
    for path in sorted(root.glob("*/*.png")):
        path.write_bytes(encoded(smooth, "JPEG", quality=95))
    data, geometry = Folder(str(root), VAL).load(), ResizeCrop(32, 0.8)
    crop = open_pixels(data, geometry, tmp_path / "cache")[np.array([0])]
    assert (crop[0] == geometry(data.read(0))[0]).all(), "what is known of evaluations stays"
    rows = np.arange(2)
    stored, streamed = (
        open_originals(data, geometry, tmp_path / "cache", rows=rows, limit_gb=limit_gb)[rows].pixels
        for limit_gb in (0.0, 1.0)
    )
    assert (stored == streamed).all()
    whole = geometry.resized(data.read(0)).reshape(-1, 3).astype(int)
    assert 0 < np.abs(stored[: len(whole)] - whole).mean() < 2, "of 255"


@pytest.mark.parametrize("which", ["the folder", "the lock"])
def test_a_cache_of_another_user_is_left_alone_and_the_images_are_read(data, tmp_path, monkeypatch, which):
    cache, rows = tmp_path / "cache", np.arange(3)
    open_pixels(data, Squash(), cache)
    before = sorted(path.name for path in cache.iterdir())
    closed = cache if which == "the folder" else cache / ".lock"
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed and access(path, mode))

    def lock(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(pixels_module, "FileLock", lock)
    for limit_gb in (0.0, 4.0):
        pixels = open_pixels(data, Squash(), cache, limit_gb=limit_gb, rows=rows)
        np.testing.assert_array_equal(pixels[rows], expected(data)[rows])
    assert sorted(path.name for path in cache.iterdir()) == before
