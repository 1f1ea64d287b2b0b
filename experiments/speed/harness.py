"""What the speed scripts share: their options, clocks, invented features, real images, and composed configurations.

Every script takes `--smoke`, which shrinks it to seconds (its figures then mean nothing), and one option for each size.
"""

import argparse
import csv
import io
import os
import platform
import resource
import sys
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Timed(NamedTuple):
    """Seconds of one call, and what it returned."""

    wall: float
    cpu: float
    result: object


def options(about, **sizes):
    """The options of a script; sizes: name -> its value, and the one of --smoke."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="shrink to seconds; the figures mean nothing")
    for name, (value, small) in sizes.items():
        shown = f"default {value}, with --smoke {small}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=shown)
    found = parser.parse_args()
    for name, (value, small) in sizes.items():
        if getattr(found, name) is None:
            setattr(found, name, small if found.smoke else value)
    return found


def timed(work, *arguments):
    """Wall and CPU seconds of a call, in all threads of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work(*arguments)
    return Timed(time.perf_counter() - wall, time.process_time() - cpu, result)


def apart(work, *arguments):
    """A call in a fresh process: what it returned, and the peak memory of the process in bytes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_with_peak, work, arguments).result()


def _with_peak(work, arguments):
    return work(*arguments), peak()


def peak():
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def machine():
    """One line for the end of a script."""
    load = f"load {os.getloadavg()[0]:.1f}"
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {load}, numpy {np.__version__}, Python {sys.version.split()[0]}"
    )


def features_of(images, classes, dimensions=512, spread=1.0):
    """Invented features around a centre for each class, in half precision as the store keeps them; any label order."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(images) % classes)
    features = spread * rng.standard_normal((images, dimensions), dtype=np.float32)
    features += rng.standard_normal((classes, dimensions), dtype=np.float32)[labels]
    return features.astype(np.float16), labels


def real_data():
    """The folder of images/, weights/ and responses/; None without it."""
    return Path(os.environ["FCA_REAL_DATA"]) if "FCA_REAL_DATA" in os.environ else None


def cifar10(split, classes, smoke):
    """uint8 pixels and labels of the first so many classes of cifar10.zip; 20 random images of each with --smoke."""
    if smoke:
        labels = np.arange(20 * classes) % classes
        return np.random.default_rng(0).integers(0, 256, (len(labels), 32, 32, 3), np.uint8), labels
    if real_data() is None:
        sys.exit("set FCA_REAL_DATA to the folder of images/ and weights/, or shrink with --smoke")
    from PIL import Image

    with zipfile.ZipFile(real_data() / "images" / "cifar10.zip") as archive:
        lines = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))))
        keys = sorted({line["label"] for line in lines})[:classes]
        lines = [line for line in lines if line["split"] == split and line["label"] in keys]
        pixels = [np.asarray(Image.open(archive.open(line["path"])).convert("RGB")) for line in lines]
    return np.stack(pixels), np.array([keys.index(line["label"]) for line in lines])


def composed(*words):
    """The configuration of `fca run` with these words."""
    from fca.cli import application

    return application.composed("run", words)
