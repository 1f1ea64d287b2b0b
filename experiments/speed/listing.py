"""What does it cost to know images by what they contain? Once a little more than reading them, then one look at each.

    python experiments/speed/listing.py            2 minutes; --files 10000 for a first look

Expect: 100,000 files of 4 kB listed and hashed in under 10 s, again in under 2 s.
First the digests of large files against reading the same bytes (a cold disk is slower for both); then a folder of many
small images as a data set: the first time, again, and in a worker of the same sweep, beside one bare `stat` a file.
"""

import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import machine, options, timed

from fca.data import content
from fca.data.content import inventory, shared_listings
from fca.data.files import READER_THREADS, Directory
from fca.data.folder import Folder
from fca.data.splits import Share

CLASSES = 100


def write_files(root, number, size):
    """`number` files of random bytes, about `size` each, in 100 folders."""
    rng = random.Random(0)
    for k in range(number):
        place = root / f"{k % CLASSES:03d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{k}.png").write_bytes(rng.randbytes(rng.randint(size // 2, 3 * size // 2)))
    return root


def bare_reading(root):
    with ThreadPoolExecutor(READER_THREADS) as pool:
        return sum(pool.map(lambda path: len(path.read_bytes()), root.glob("*/*")))


def digests(root):
    found = inventory(Directory(str(root)))
    return found.digests(found.listing.sizes)


def bare_look(root):
    return [os.stat(entry.path).st_size for folder in os.scandir(root) for entry in os.scandir(folder.path)]  # noqa: PTH116


def load(root):
    return Folder(str(root), Share(0.1, 0)).load()


def main():
    size = options(__doc__, megabytes=(2000, 2), files=(100_000, 300), turns=(3, 1))
    content.CLOCK_NS = 0  # the files are new; those of a user are older than the clock's resolution
    with tempfile.TemporaryDirectory() as place:
        large = write_files(Path(place, "large"), 2 * size.megabytes, 500_000)
        for turn in range(size.turns):
            os.environ["FCA_CACHE"] = f"{place}/cache{turn}"
            read, hashed = timed(bare_reading, large), timed(digests, large)
            rate = read.result / hashed.wall / 1e6
            print(f"first digests: {rate:.0f} MB/s, {hashed.wall / read.wall:.2f} times reading the bytes")
        small = write_files(Path(place, "small"), size.files, 4000)
        for turn in range(size.turns):
            os.environ["FCA_CACHE"] = f"{place}/small{turn}"
            look, first, again = timed(bare_look, small), timed(load, small), timed(load, small)
            with shared_listings():
                _, worker = load(small), timed(load, small)
            assert first.result.fingerprint == again.result.fingerprint == worker.result.fingerprint
            times = f"{again.cpu:.2f} CPU s, {again.cpu / look.cpu:.1f} times one stat a file"
            print(
                f"{size.files} files: first {first.wall:.2f} s ({first.cpu:.2f} CPU s), again {again.wall:.2f} s "
                f"({times}), in a worker {worker.wall:.2f} s ({worker.cpu:.2f})"
            )
    machine()


if __name__ == "__main__":
    main()
