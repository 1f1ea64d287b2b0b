"""CIFAR-10-C, CIFAR-100-C and ImageNet-C as their authors published them: readers, nothing is drawn."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, UInt8
from PIL import Image

from fca.identity import file_sha256
from fca.shifts.constants import SEVERITIES, check_kinds, check_severities
from fca.types import FcaError, ImageData, Shift, UnreadableImage

TEST_IMAGES = 10_000  # of CIFAR-10 and of CIFAR-100
SHAPE = (SEVERITIES * TEST_IMAGES, 32, 32, 3)
CIFAR_ID = re.compile(r"test/(\d{5})")

Pixels = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True)
class Published:
    """Reads published images by position in the data; places: position -> what `read` takes, test images only."""

    read: Callable[[Any], Pixels]
    places: Mapping[int, Any]
    ids: Sequence[str]

    def __call__(self, index: int) -> Pixels:
        """The published pixels of the image at this position."""
        if index not in self.places:
            allowed = "images of the test split, the only ones published"
            raise FcaError("image", self.ids[index], allowed, "set task.split=test")
        return self.read(self.places[index])


@dataclass(frozen=True)
class CifarC:
    """`shift=cifar_c/...`: the published arrays beside `dataset=cifar10` or `dataset=cifar100`.

    root: the extracted folder, with labels.npy and an array a kind (fog.npy: 50,000 images, 10,000 a severity).
    kinds, severities: which of them.
    """

    root: str
    kinds: list[str]
    severities: list[int]

    def shifts(self) -> list[Shift]:
        """Kinds in their order, each at every severity. Raises FcaError when a file is not there."""
        check_kinds(self.kinds)
        check_severities(self.severities)
        root = Path(self.root).expanduser()
        there = sorted(path.stem for path in root.glob("*.npy"))
        for name in (*self.kinds, "labels"):
            if name not in there:
                step = "set shift.root to the extracted folder, or shift.kinds to what it holds"
                raise FcaError(f"{name}.npy in shift.root", root, f"there are {', '.join(there) or 'no arrays'}", step)
        return [CifarCArray(root, kind, severity) for kind in self.kinds for severity in self.severities]


@dataclass(frozen=True)
class CifarCArray:
    """A kind at a severity: 10,000 rows of a published array."""

    root: Path
    kind: str
    severity: int

    def label(self) -> str:
        """As in tables: `cifar_c/fog/2`."""
        return f"cifar_c/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity and the array's sha256."""
        content = file_sha256(self.root / f"{self.kind}.npy")
        return {"cifar_c": self.kind, "severity": self.severity, "sha256": content}

    def reader(self, data: ImageData) -> Callable[[int], Pixels]:
        """The row of every test image. Raises FcaError unless ids and labels are those of the published test images."""
        path = self.root / f"{self.kind}.npy"
        images = np.load(path, mmap_mode="r")
        if images.shape != SHAPE or images.dtype != np.uint8:
            allowed = f"{SHAPE} uint8, as published"
            raise FcaError(f"shape of {path}", f"{images.shape} {images.dtype}", allowed, "bring the file again")
        positions, rows = _cifar_rows(data)
        rows = rows + (self.severity - 1) * TEST_IMAGES
        _check_labels(data, positions, rows, np.load(self.root / "labels.npy"), self.root)
        places = dict(zip(positions.tolist(), rows.tolist(), strict=True))
        return Published(lambda row: np.array(images[row]), places, data.items["image_id"].tolist())


Rows = Integer[np.ndarray, "..."]


def _cifar_rows(data: ImageData) -> tuple[Rows, Rows]:
    """Position in the data and row (0 to 9,999) of every test image."""
    positions = data.rows("test")
    found = [CIFAR_ID.fullmatch(image_id) for image_id in data.items["image_id"].iloc[positions].astype(str)]
    rows = np.array([int(match[1]) if match else TEST_IMAGES for match in found], np.int64)
    for wrong in positions[rows >= TEST_IMAGES]:
        image_id, allowed = data.items["image_id"].iat[wrong], f"test/00000 to test/{TEST_IMAGES - 1:05d}"
        raise FcaError(f"image id in {data.name}", image_id, allowed, "take dataset=cifar10 or dataset=cifar100")
    return positions, rows


def _check_labels(data: ImageData, positions: Rows, rows: Rows, labels: Rows, root: Path) -> None:
    """The published labels must be the data's: CIFAR-100-C beside CIFAR-10 would give nonsense quietly."""
    if labels.shape != SHAPE[:1]:
        raise FcaError(f"shape of {root / 'labels.npy'}", labels.shape, f"{SHAPE[:1]}", "bring the file again")
    for wrong in np.flatnonzero(data.labels[positions] != labels[rows]):
        told = f"{data.labels[positions[wrong]]} for {data.items['image_id'].iat[positions[wrong]]}"
        allowed = f"{labels[rows[wrong]]}, as in {root / 'labels.npy'}"
        step = "take the data set that these files were made from, or the other files"
        raise FcaError(f"label in {data.name}", told, allowed, step)


@dataclass(frozen=True)
class ImageNetC:
    """`shift=imagenet_c/...`: the published images beside `dataset=imagenet`, 224 x 224 pixels each.

    root: holds <kind>/<severity>/<wnid>/<file>, or these in folders of groups (noise/gaussian_noise/1/...).
    kinds, severities: which of them.
    """

    root: str
    kinds: list[str]
    severities: list[int]

    def shifts(self) -> list[Shift]:
        """Kinds in their order, each at every severity. Raises FcaError when a folder is not there."""
        check_kinds(self.kinds)
        check_severities(self.severities)
        return [ImageNetCFolder(self._folder(kind, s), kind, s) for kind in self.kinds for s in self.severities]

    def _folder(self, kind: str, severity: int) -> Path:
        root = Path(self.root).expanduser()
        for folder in (root / kind, *sorted(root.glob(f"*/{kind}"))):
            if (folder / str(severity)).is_dir():
                return folder / str(severity)
        found = sorted({path.parent.name for path in (*root.glob("*/[1-5]"), *root.glob("*/*/[1-5]"))})
        step = "set shift.root to the extracted folder, or shift.kinds and shift.severities to what it holds"
        raise FcaError(f"{kind}/{severity} in shift.root", root, f"there are {', '.join(found) or 'no kinds'}", step)


@dataclass(frozen=True)
class ImageNetCFolder:
    """A kind at a severity: a folder of wnids."""

    folder: Path
    kind: str
    severity: int

    def label(self) -> str:
        """As in tables: `imagenet_c/fog/2`."""
        return f"imagenet_c/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity and which files there are (their names; reading 50,000 to plan a run would take too long)."""
        return {"imagenet_c": self.kind, "severity": self.severity, "files": _listing(self.folder)}

    def reader(self, data: ImageData) -> Callable[[int], Pixels]:
        """The file of the same wnid and name as every test image. Raises FcaError when some are not there."""
        ids = data.items["image_id"].astype(str).tolist()
        files = {int(i): "/".join(ids[i].split("/")[-2:]) for i in data.rows("test")}
        there = set(_files(self.folder))
        missing = [name for name in files.values() if name not in there]
        if missing:
            told = f"{len(missing)} of {len(files)}, as {missing[0]}"
            allowed = f"<wnid>/<file> of every test image in {self.folder}"
            raise FcaError(f"missing images of {data.name}", told, allowed, "take dataset=imagenet, or extract all")
        return Published(lambda name: _decoded(self.folder / name), files, ids)


def _decoded(path: Path) -> Pixels:
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow's formats raise OSError, SyntaxError, ValueError, struct.error ...
        raise UnreadableImage(f"{path}: {error}") from error


def _files(folder: Path) -> Iterator[str]:
    """wnid/file of all files in a folder of wnids."""
    for wnid in sorted(path for path in folder.iterdir() if path.is_dir()):
        yield from (f"{wnid.name}/{name}" for name in sorted(path.name for path in wnid.iterdir()))


@cache
def _listing(folder: Path) -> str:
    """Which files are in a folder, in 12 hex digits."""
    return hashlib.sha256("\n".join(_files(folder)).encode()).hexdigest()[:12]
