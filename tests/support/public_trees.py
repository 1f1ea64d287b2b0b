"""Small trees in the formats in which the authors of public sets packed them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.trees import encoded

KINDS = {".jpg": "JPEG", ".jpeg": "JPEG", ".ppm": "PPM"}
GTSRB_HEADER = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"


def write(root: Path, paths: list[str]) -> Path:
    """A different picture at every path, encoded by its suffix; anything else is text."""
    for seed, path in enumerate(paths):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), dtype=np.uint8)
        kind = KINDS.get(target.suffix.lower())
        target.write_bytes(encoded(Image.fromarray(pixels), kind) if kind else b"")
    return root


def md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def packed(folder: Path, top: str, archive: Path) -> Path:
    """An archive of folder/top, or of what lies in it when `top` is "." """
    with tarfile.open(archive, "w:gz" if archive.suffix in (".gz", ".tgz") else "w") as tar:
        for path in sorted((folder / top).iterdir()) if top == "." else [folder / top]:
            tar.add(path, path.name)
    return archive


def text(file: Path, lines: list[str], end: str = "\n") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(line + end for line in lines).encode())


def caltech101(root: Path) -> Path:
    """Four classes of 12; pictures of nothing, and the stray file that lies among them."""
    classes = ["accordion", "airplanes", "Faces", "Faces_easy", "BACKGROUND_Google"]
    paths = [f"{key}/image_{number:04d}.jpg" for key in classes for number in range(1, 13)]
    return write(root, [f"caltech101/101_ObjectCategories/{p}" for p in [*paths, "BACKGROUND_Google/tmp"]])


def caltech256(root: Path) -> Path:
    """Three classes of 10 and the clutter, with the strays of the archive."""
    classes = ["001.ak47", "056.dog", "198.spider", "257.clutter"]
    paths = [f"{key}/{key[:3]}_{number:04d}.jpg" for key in classes for number in range(1, 11)]
    strays = ["198.spider/RENAME2", "056.dog/greg/vision309/056_0001.jpg"]
    return write(root, [f"caltech256/256_ObjectCategories/{path}" for path in paths + strays])


def food101(root: Path) -> Path:
    """Two dishes; the lists (and the same as JSON) leave out .jpg."""
    names = {s: [f"{d}/{n}" for d in ("apple_pie", "waffles") for n in r] for s, r in _ROWS.items()}
    for split, listed in names.items():
        text(root / f"food-101/meta/{split}.txt", listed)
        per_class = {dish: [name for name in listed if name.startswith(dish)] for dish in ("apple_pie", "waffles")}
        text(root / f"food-101/meta/{split}.json", [json.dumps(per_class)])
    text(root / "food-101/meta/classes.txt", ["apple_pie", "waffles"])
    return write(root, [f"food-101/images/{name}.jpg" for listed in names.values() for name in listed])


_ROWS = {"train": range(1005649, 1005669), "test": range(1011328, 1011333)}


def dtd(root: Path) -> Path:
    """Three textures, two folds of 4, 4 and 4 each, and the hidden file of a file manager."""
    names = {t: [f"{t}/{t}_{n:04d}.jpg" for n in range(2, 14)] for t in ("banded", "polka-dotted", "waffled")}
    for fold, starts in ((1, {"train": 0, "val": 4, "test": 8}), (2, {"train": 8, "val": 0, "test": 4})):
        for split, start in starts.items():
            listed = [path for paths in names.values() for path in paths[start : start + 4]]
            text(root / f"dtd/dtd/labels/{split}{fold}.txt", listed)
    paths = [path for paths in names.values() for path in paths]
    return write(root, [f"dtd/dtd/images/{path}" for path in [*paths, "waffled/.directory"]])


def indoor67(root: Path) -> Path:
    """Two scenes with the file names that people gave, Windows line ends, and a picture that no list names."""
    train = [f"airport_inside/airport_inside_{n:04d}.jpg" for n in range(9)] + ["airport_inside/L'aeroport (2).JPG"]
    train += [f"winecellar/wine cellar & co {n}.jpg" for n in range(10)]
    test = ["airport_inside/N190023.JPG", "winecellar/bodega_12_11_flickr.jpg"]
    text(root / "indoor67/TrainImages.txt", train, end="\r\n")
    text(root / "indoor67/TestImages.txt", test)
    return write(root, [f"indoor67/Images/{path}" for path in [*train, *test, "winecellar/of_no_list.jpg"]])


def cub200(root: Path) -> Path:
    """Three species of 20; odd numbers are training images."""
    species = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "016.Painted_Bunting"]
    names = [f"{key}/{key[4:]}_{n:04d}_{n}.jpg" for key in species for n in range(20)]
    folder = root / "CUB_200_2011"
    text(folder / "images.txt", [f"{i} {name}" for i, name in enumerate(names, 1)])
    text(folder / "image_class_labels.txt", [f"{i} {(i - 1) // 20 + 1}" for i in range(1, 61)])
    text(folder / "train_test_split.txt", [f"{i} {i % 2}" for i in range(1, 61)])
    text(folder / "classes.txt", [f"{i} {key}" for i, key in enumerate(species, 1)])
    return write(root, [f"CUB_200_2011/images/{name}" for name in names])


def gtsrb(root: Path) -> Path:
    """Two signs, filmed 4 and 3 times, 30 frames each (one is missing), and 4 test images."""
    paths = []
    for key, tracks in ((0, 4), (14, 3)):
        folder = f"gtsrb/GTSRB/Final_Training/Images/{key:05d}"
        frames = [f"{track:05d}_{frame:05d}.ppm" for track in range(tracks) for frame in range(30)]
        frames.remove("00001_00029.ppm")
        rows = [f"{name};29;30;5;6;24;25;{key}" for name in frames]
        text(root / folder / f"GT-{key:05d}.csv", [GTSRB_HEADER, *rows], end="\r\n")
        paths += [f"{folder}/{name}" for name in frames]
    tests = {f"{i:05d}.ppm": key for i, key in enumerate((14, 0, 0, 14))}
    truth = [f"{name};53;54;6;5;48;49;{key}" for name, key in tests.items()]
    text(root / "gtsrb/GT-final_test.csv", [GTSRB_HEADER, *truth], end="\r\n")
    return write(root, paths + [f"gtsrb/GTSRB/Final_Test/Images/{name}" for name in tests])


def imagenet(root: Path) -> Path:
    """Two wnids: the two kinds of file names."""
    train = [f"train/{wnid}/{wnid}_{n}.JPEG" for wnid in ("n01440764", "n02012849") for n in range(10)]
    val = ["n01440764/ILSVRC2012_val_00000293.JPEG", "n02012849/ILSVRC2012_val_00000004.JPEG"]
    return write(root, train + [f"val/{path}" for path in val])


def imagenet_val(root: Path, counts: dict[str, int]) -> Path:
    """So many validation images of each wnid, numbered as the published ones are; they differ in size alone."""
    numbers = iter(range(1, 50_001))
    for wnid, count in counts.items():
        (root / "val" / wnid).mkdir(parents=True)
        for number in (next(numbers) for _ in range(count)):
            (root / f"val/{wnid}/ILSVRC2012_val_{number:08d}.JPEG").write_bytes(bytes(number))
    return root


def quickdraw(root: Path, n: int = 60) -> Path:
    """Two classes of n drawings; a drawing's first pixel is its row, its second its class."""
    (root / "quickdraw").mkdir(parents=True)
    for place, key in enumerate(("The Eiffel Tower", "t-shirt")):
        rows = np.zeros((n, 784), np.uint8)
        rows[:, 0], rows[:, 1] = np.arange(n) % 256, place
        np.save(root / "quickdraw" / f"{key}.npy", rows)
    return root
