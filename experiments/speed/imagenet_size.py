"""Does a set of ImageNet's size fit? 1.33 million images are listed, planned and cut in each worker under 4 GB.

    python experiments/speed/imagenet_size.py            5 minutes; --images 100000 for a first look

The listing is invented, as the first process of a sweep leaves it; no file is there, so images are noise from a stub.
Each line is a step in one fresh worker. Then decoding, per core: threads against processes (JPEGs of 500 x 375 to a
shorter side of 256), and JPEGs of 2000 x 1500 read as training originals, at reduced scale, against in full.
"""

import io
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from harness import apart, machine, options, peak, timed
from PIL import Image

from fca.data import content
from fca.data.files import FILE_SCHEMA, REDUCED, Directory, Listing, decode
from fca.data.pixels import open_originals, open_pixels
from fca.data.public import ImageNet
from fca.data.splits import Share, for_training
from fca.geometry import ResizeCrop

VAL = 50_000


def invent(root, number, classes):
    """Leave the listing of a folder of so many files where workers of this sweep look for it."""
    root.mkdir(parents=True)
    names = [f"n{k:08d}" for k in range(classes)]
    paths = sorted(f"{names[k % classes]}/{names[k % classes]}_{k}.JPEG" for k in range(number))
    sizes, zeros = np.random.default_rng(0).integers(50_000, 200_000, number), np.zeros(number, np.int64)
    digests = [f"{k:032x}" for k in range(number)]
    known = pa.table([paths, sizes, zeros, zeros, np.arange(number).astype(np.uint64), digests], content._DIGEST_SCHEMA)
    content.share(
        content.Inventory(Directory(str(root)), Listing(known.select(FILE_SCHEMA.names), frozenset(names)), known)
    )


def noise(row, side):
    return np.random.default_rng(row).integers(0, 256, (side, side + side // 3, 3), np.uint8)


def worker(root, side, ncl):
    """Seconds and peak memory after every step."""
    steps = []

    def step(name, work, *arguments):
        done = timed(work, *arguments)
        steps.append((name, done.wall, done.cpu, peak()))
        return done.result

    data = step("listing", ImageNet(root=root, val=Share(0.1, 0)).load)
    data = replace(step("planning", for_training, data), read=partial(noise, side=side))
    chosen = np.linspace(0, len(data.classes) - 1, ncl).astype(int).tolist()
    rows = step(f"subset of {ncl} classes", data.rows, "train", chosen)
    for name, opened in (("crops", open_pixels), ("originals", open_originals)):
        for again in ("", ", again"):
            opening = partial(opened, data, ResizeCrop(side, 0.875), Path(root, "cache"), rows=rows)
            pixels = step(f"opening {name} of {len(rows)} images{again}", opening)
            step("64 of them", pixels.__getitem__, rows[:64])
    return steps


def photo(width, height):
    """A JPEG with some detail."""
    coarse = np.random.default_rng(0).integers(0, 256, (height // 16, width // 16, 3), np.uint8)
    image = np.asarray(Image.fromarray(coarse).resize((width, height))).astype(int)
    image = image + np.random.default_rng(1).normal(0, 8, image.shape)
    buffer = io.BytesIO()
    Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def original(content, reduced=0):
    token = REDUCED.set(reduced)
    pixels = ResizeCrop(224, 0.875, "bicubic").resized(decode(content, "photo"))
    REDUCED.reset(token)
    return pixels


def per_second(pool, content, number):
    with pool(len(os.sched_getaffinity(0))) as running:
        list(running.map(original, [content] * 8))  # started
        options = {"chunksize": 16} if pool is ProcessPoolExecutor else {}
        return number / timed(lambda: sum(1 for _ in running.map(original, [content] * number, **options))).wall


def main():
    size = options(__doc__, images=(1_281_167, 400), classes=(1000, 20), side=(64, 8), decoded=(1000, 8), turns=(3, 1))
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"FCA_CACHE": f"{place}/fca", content.SWEEP: uuid4().hex}
        root = Path(place, "imagenet")
        for folder, number in (("train", size.images), ("val", min(VAL, size.images))):
            invent(root / folder, number, size.classes)
        steps, memory = apart(worker, str(root), size.side, 5)
        for name, wall, cpu, most in steps:
            print(f"{name}: {wall:.2f} s ({cpu:.2f} CPU s), peak {most / 1e9:.2f} GB")
        print(f"peak of the worker: {memory / 1e9:.2f} GB (allowed: 4)")
    small, large = photo(500, 375), photo(2000, 1500)
    for _ in range(size.turns):
        threads, processes = (
            per_second(pool, small, size.decoded) for pool in (ThreadPoolExecutor, ProcessPoolExecutor)
        )
        print(f"decoding: {threads:.0f} images/s by threads, {processes:.0f} by processes")
    full, reduced = (timed(lambda side=side: [original(large, side) for _ in range(4)]) for side in (0, 256))
    least = min(full.result[0].shape[1], reduced.result[0].shape[1])
    gap = np.abs(full.result[0][:, :least].astype(int) - reduced.result[0][:, :least]).mean()
    print(f"large JPEGs: reduced {full.cpu / reduced.cpu:.1f} times faster, mean difference {gap:.2f} of 255")
    machine()


if __name__ == "__main__":
    main()
