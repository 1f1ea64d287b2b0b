"""Data are what they contain: equal names, sizes and times are not equal data, and nothing is read twice for it."""

import io
import os
import shutil
import zipfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from fca.data import content
from fca.data.content import inventory, shared_listings
from fca.data.files import Archive, Directory, open_root
from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.pixels import open_pixels
from fca.geometry import ResizeCrop
from fca.types import FcaError
from tests.support.trees import VAL, encoded, grid, pack, plant

PATHS = grid("train", "test")


@pytest.fixture(autouse=True)
def own_index(tmp_path, monkeypatch):
    monkeypatch.setenv("FCA_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def long_ago(monkeypatch):
    """Files count as old, so that what they contain is remembered."""
    monkeypatch.setattr(content, "CLOCK_NS", -(10**18))


@pytest.fixture
def reads(monkeypatch):
    """The paths that were read, in any order."""
    seen = []
    for kind in (Directory, Archive):

        def noted(self, path, read=kind.read):
            seen.append(path)
            return read(self, path)

        monkeypatch.setattr(kind, "read", noted)
    return seen


def bitmaps(root, seed=0):
    """Images of one size in bytes, whatever they show."""
    rng = np.random.default_rng(seed)
    for path in PATHS:
        target = (root / path).with_suffix(".bmp")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encoded(Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)), "BMP"))
    return root


def fingerprint(root, **keys):
    return Folder(str(root), VAL, **keys).load().fingerprint


def digests(root):
    found = inventory(open_root(str(root), ""))
    return found.digests(found.listing.sizes)


def test_equal_names_sizes_and_times_with_other_pixels_are_other_data(tmp_path):
    a, b = bitmaps(tmp_path / "a"), bitmaps(tmp_path / "b", seed=1)
    for path in a.rglob("*.bmp"):
        os.utime(path, ns=(0, 10**18))
        os.utime(b / path.relative_to(a), ns=(0, 10**18))
    sets = [Folder(str(root), VAL).load() for root in (a, b)]
    assert sets[0].fingerprint != sets[1].fingerprint
    assert [data.fingerprint_kind for data in sets] == ["content", "content"]
    for data in sets:
        shown = open_pixels(data, ResizeCrop(4), tmp_path / "pixels")[np.arange(3)]
        assert (shown == [ResizeCrop(4)(data.read(i))[0] for i in range(3)]).all(), "no pixels of the other set"


def test_a_touched_a_copied_and_a_renamed_set_are_one(tmp_path, long_ago):
    root = plant(tmp_path / "a", PATHS)
    before = fingerprint(root)
    os.utime(root / PATHS[0], ns=(0, 1))
    assert fingerprint(root) == before
    assert fingerprint(shutil.copytree(root, tmp_path / "copy")) == before
    assert fingerprint(root.rename(tmp_path / "b")) == before


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = plant(tmp_path_factory.mktemp("any") / "byte", PATHS)
    return root, fingerprint(root)


@settings(max_examples=6, deadline=None)
@given(at=st.integers(0, len(PATHS) - 1), where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_byte_of_any_image_changes_the_fingerprint(images, at, where, flip):
    root, before = images
    path = root / PATHS[at]
    whole, stat = path.read_bytes(), path.stat()
    changed = bytearray(whole)
    changed[int(where * len(whole))] ^= flip
    path.write_bytes(changed)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as `touch -r` does
    assert fingerprint(root) != before
    path.write_bytes(whole)
    assert fingerprint(root) == before


def test_a_digest_is_of_the_bytes_of_each_file(tmp_path):
    root = plant(tmp_path / "a", [*PATHS, "notes.txt", "deep/er/5.png"])
    files = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}
    assert digests(root) == {name: xxhash.xxh3_128_hexdigest(path.read_bytes()) for name, path in files.items()}


@pytest.mark.wide
@pytest.mark.parametrize("waiting_s", [-1.0, 100.0], ids=["a slow disk", "a fast one"])
def test_a_listing_has_every_file_of_large_and_nested_folders_once(tmp_path, waiting_s, monkeypatch):
    monkeypatch.setattr("fca.data.files.WAITING_S_PER_FILE", waiting_s)
    root = plant(tmp_path / "a", [f"{k % 3}/deep/{k}.txt" for k in range(30)])
    for k in range(1500):  # more than one thread looks at in one go
        (root / f"{k}").touch()
    listing = Directory(str(root)).listing()
    expected = [str(p.relative_to(root)) for p in root.rglob("*")]
    assert sorted([*listing.files["path"].to_pylist(), *listing.folders]) == sorted(expected)
    assert listing.sizes["0/deep/0.txt"] == 4


def test_a_file_is_read_once_and_again_only_when_it_changed(tmp_path, long_ago, reads):
    root = plant(tmp_path / "a", PATHS)
    first = digests(root)
    assert sorted(reads) == sorted(PATHS)
    reads.clear()
    assert digests(root) == first
    assert reads == []
    (root / PATHS[3]).write_bytes((root / PATHS[5]).read_bytes())
    (root / PATHS[0]).unlink()
    plant(root, ["new/1.png"])
    assert digests(root).keys() == {*PATHS[1:], "new/1.png"}
    assert sorted(reads) == sorted([PATHS[3], "new/1.png"])


@pytest.mark.parametrize("keep", ["cp -p", "mv", "link"])
def test_another_file_of_equal_size_and_time_in_its_place_is_seen(tmp_path, long_ago, keep):
    root, other = bitmaps(tmp_path / "a"), bitmaps(tmp_path / "b", seed=1)
    path, source = sorted(root.rglob("*.bmp"))[0], sorted(other.rglob("*.bmp"))[0]
    os.utime(path, ns=(0, 10**18))
    os.utime(source, ns=(0, 10**18))
    before = fingerprint(root)
    if keep == "cp -p":
        shutil.copy2(source, path)
    elif keep == "mv":
        source.rename(path)
    else:
        path.unlink()
        path.symlink_to(source)
    assert path.stat().st_mtime_ns == 10**18
    assert fingerprint(root) != before


def test_hard_links_are_one_set_that_changes_by_any_of_its_names(tmp_path, long_ago):
    root = bitmaps(tmp_path / "a")
    shutil.copytree(root, tmp_path / "b", copy_function=os.link)
    before = fingerprint(root)
    assert fingerprint(tmp_path / "b") == before
    [path, other] = sorted(root.rglob("*.bmp"))[:2]
    time = path.stat().st_mtime_ns
    path.write_bytes(other.read_bytes())  # into the one file that both names have
    os.utime(path, ns=(0, time))
    assert fingerprint(tmp_path / "b") == fingerprint(root) != before


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path, monkeypatch):
    """A file that was read right after it was written may change again and look the same."""
    root = bitmaps(tmp_path / "a")
    [path, other] = sorted(root.rglob("*.bmp"))[:2]
    stopped, looked_at = path.stat(), Directory._file_table

    def in_one_tick(self, paths):
        seen = looked_at(self, paths)
        for name in ("mtime_ns", "ctime_ns"):
            at = seen.schema.get_field_index(name)
            seen = seen.set_column(at, seen.schema.field(at), [[getattr(stopped, f"st_{name}")] * seen.num_rows])
        return seen

    monkeypatch.setattr(Directory, "_file_table", in_one_tick)
    before = fingerprint(root)
    path.write_bytes(other.read_bytes())
    assert fingerprint(root) != before


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "flipped", "foreign", "folder"])
def test_a_damaged_or_foreign_index_is_made_anew(tmp_path, long_ago, damage, reads):
    root, other = plant(tmp_path / "a", PATHS), plant(tmp_path / "b", PATHS[::-1])
    first, _ = digests(root), digests(other)
    index, foreign = (content._index_path(Directory(str(folder))) for folder in (root, other))
    whole = index.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(first[PATHS[0]][:8].encode()) if first[PATHS[0]][:8].encode() in whole else 200] ^= 1
    written = {"empty": b"", "cut": whole[:-9], "other": b"not an index", "flipped": flipped}
    if damage == "folder":
        index.unlink()
        index.mkdir()
    else:
        index.write_bytes(foreign.read_bytes() if damage == "foreign" else written[damage])
    reads.clear()
    assert digests(root) == first
    assert sorted(reads) == sorted(PATHS)
    if damage != "folder":
        reads.clear()
        assert (digests(root), reads) == (first, [])


def test_a_cache_that_cannot_be_written_gives_one_warning(tmp_path, monkeypatch, caplog, long_ago):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FCA_CACHE", str(tmp_path / "file"))
    content._warn_once.cache_clear()
    root = plant(tmp_path / "a", PATHS)
    assert digests(root) == digests(root)
    [warning] = caplog.messages
    assert warning.startswith(f"what files contain is not remembered: {tmp_path}/file/content cannot be written")


def test_the_cache_lies_where_the_user_wants_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("FCA_CACHE")
    assert content._cache_folder() == Path("/home/ada/.cache/fca/content")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert content._cache_folder() == Path("/scratch/fca/content")
    monkeypatch.setenv("FCA_CACHE", "~/mine")
    assert content._cache_folder() == Path("/home/ada/mine/content")


def test_a_first_reading_shows_its_speed_on_a_terminal(tmp_path, monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=150)
    monkeypatch.setattr("rich._console", console)
    monkeypatch.setattr(content, "MANY_BYTES", 0)
    monkeypatch.setattr(content, "FILES_PER_BATCH", 1)
    digests(plant(tmp_path / "a", PATHS))
    assert f"reading {tmp_path}/a" in shown.getvalue()
    assert "B/s" in shown.getvalue()


# Archives.


def test_packing_is_no_content(tmp_path):
    stored = pack(tmp_path / "stored.zip", PATHS)
    with zipfile.ZipFile(tmp_path / "deflated.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for path in reversed(PATHS):
            file.writestr(path, zipfile.ZipFile(stored).read(path))
    assert fingerprint(stored) == fingerprint(tmp_path / "deflated.zip") == fingerprint(plant(tmp_path / "d", PATHS))


def test_an_intact_and_a_corrupted_archive_are_two_sets(tmp_path, long_ago, reads):
    archive = pack(tmp_path / "photos.zip", PATHS)
    before, whole = fingerprint(archive), bytearray(archive.read_bytes())
    assert sorted(reads) == sorted(PATHS)
    reads.clear()
    assert fingerprint(archive) == before
    assert reads == [], "the archive as it was is not read again"
    whole[whole.index(b"\x89PNG") + 20] ^= 255  # the first member's bytes; its entry and CRC are as they were
    archive.write_bytes(whole)
    assert fingerprint(archive) != before
    damaged = [path for path, digest in digests(archive).items() if digest == content.UNREADABLE]
    assert damaged == [PATHS[0]]


def test_an_archive_without_a_usable_list_of_its_members_is_refused(tmp_path):
    archive = pack(tmp_path / "photos.zip", PATHS)
    whole = bytearray(archive.read_bytes())
    whole[whole.index(b"PK\x01\x02")] ^= 255
    archive.write_bytes(whole)
    with pytest.raises(FcaError, match=r"dataset.root = .*photos.zip; allowed: a whole .zip archive; next: .*central"):
        fingerprint(archive)


def test_a_file_that_cannot_be_read_is_listed_and_tried_again(tmp_path, monkeypatch, long_ago):
    root = plant(tmp_path / "a", PATHS)
    whole = fingerprint(root)
    shutil.rmtree(tmp_path / "cache")
    read = Directory.read

    def refused(self, path):
        if path == PATHS[0]:
            raise PermissionError(13, "Permission denied")
        return read(self, path)

    monkeypatch.setattr(Directory, "read", refused)
    assert fingerprint(root) != whole
    monkeypatch.setattr(Directory, "read", read)
    assert fingerprint(root) == whole


# Manifests.


def manifest(root, **keys):
    lines = [f"{path},{path.split('/')[1]},{path.split('/')[0]},mask.png" for path in PATHS]
    (root / "index.csv").write_text("\n".join(["path,label,split,mask", *lines]))
    return Manifest(str(root), "index.csv", VAL, **keys).load()


def test_masks_and_their_side_are_content(tmp_path):
    root = plant(tmp_path / "a", [*PATHS, "mask.png"])
    first = manifest(root)
    assert first.fingerprint_kind == "content"
    assert manifest(root).fingerprint == first.fingerprint
    assert manifest(root, mask_object="dark").fingerprint != first.fingerprint
    (root / "mask.png").write_bytes((root / PATHS[0]).read_bytes())
    assert manifest(root).fingerprint != first.fingerprint


def test_columns_of_the_user_are_no_content(tmp_path):
    root = plant(tmp_path / "a", PATHS)
    lines = [f"{path},{path.split('/')[1]},{path.split('/')[0]},x,7" for path in PATHS]
    (root / "index.csv").write_text("\n".join(["path,label,split,content,bytes", *lines]))
    data = Manifest(str(root), "index.csv", VAL).load()
    assert data.fingerprint == fingerprint(root)
    assert set(data.items["content_in_file"]) == {"x"}


# Processes of one sweep.


def seen_by_a_worker(root):
    Directory.listing = None  # looking at the files would fail
    return inventory(Directory(root)).listing, digests(root)


def test_workers_of_a_sweep_take_over_what_was_found(tmp_path):
    root = plant(tmp_path / "a", [*PATHS, "empty/"])
    with shared_listings():
        found = inventory(Directory(str(root)))
        before = found.digests(PATHS)
        (root / PATHS[0]).write_bytes(b"changed meanwhile")
        with ProcessPoolExecutor(1) as pool:
            listing, of = pool.submit(seen_by_a_worker, str(root)).result()
        assert listing.files.equals(found.listing.files)
        assert (listing.folders, of) == (found.listing.folders, before)
        assert digests(root) == before
    assert digests(root) != before
    assert list((tmp_path / "cache" / "content" / "sweeps").iterdir()) == []


def test_listings_of_sweeps_that_were_killed_are_removed(tmp_path):
    sweeps = tmp_path / "cache" / "content" / "sweeps"
    for name, age in (("old", content.ABANDONED_S + 60), ("young", 60)):
        (sweeps / name).mkdir(parents=True)
        os.utime(sweeps / name, (0, (tmp_path.stat().st_mtime) - age))
    with shared_listings():
        pass
    assert [path.name for path in sweeps.iterdir()] == ["young"]


def test_the_index_is_plain_parquet_without_pickle(tmp_path, long_ago):
    root = plant(tmp_path / "a", PATHS)
    digests(root)
    [index] = (tmp_path / "cache" / "content").glob("*.parquet")
    assert pq.read_schema(index).names == ["path", "size", "mtime_ns", "ctime_ns", "inode", "digest"]


def test_a_cache_that_may_not_be_read_is_named_and_the_end_of_a_sweep_hides_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FCA_CACHE", str(tmp_path / ("a" * 300)))  # every look at it is an error, for root too
    content._warn_once.cache_clear()
    plant(tmp_path / "photos", PATHS)
    with shared_listings():
        data = Folder(str(tmp_path / "photos"), VAL).load()
    assert len(data.items) == len(PATHS)
    assert not content.has_index(str(tmp_path / "photos"))
    assert "content cannot be written (File name too long); set FCA_CACHE" in caplog.text
    with pytest.raises(RuntimeError, match="of the sweep"), shared_listings():
        raise RuntimeError("of the sweep")
