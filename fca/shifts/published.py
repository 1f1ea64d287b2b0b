"""CIFAR-10-C, CIFAR-100-C and ImageNet-C as their authors published them: readers, nothing is drawn."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from fca.geometry import AfterReference
from fca.identity import file_sha256
from fca.shifts.constants import SEVERITIES, each
from fca.shifts.operations import Bytes
from fca.types import FcaError, Geometry, ImageData, Shift, UnreadableImage

TEST_IMAGES = 10_000  # of CIFAR-10 and of CIFAR-100
SHAPE = (SEVERITIES * TEST_IMAGES, 32, 32, 3)
CIFAR_ID = re.compile(r"test/(\d{5})")


def _published(read: Callable[[Any], Bytes], places: Mapping[int, Any], ids: Sequence[str]) -> Callable[[int], Bytes]:
    """Reads published images by position in the data; places: position -> what `read` takes, test images only."""

    def at(index: int) -> Bytes:
        if index not in places:
            allowed = "images of the test split, the only ones published"
            raise FcaError("image", ids[index], allowed, "set task.split=test")
        return read(places[index])

    return at


@dataclass(frozen=True)
class CifarC:
    """`shift=cifar_c/...`: the published arrays beside `dataset=cifar10` or `dataset=cifar100`.

    root: the extracted folder, with labels.npy and one array per kind (fog.npy: 50,000 images, 10,000 per severity).
    kinds, severities: which of them.
    """

    root: str
    kinds: list[str]
    severities: list[int]

    def shifts(self) -> list[Shift]:
        """Kinds in their order, each at every severity. Raises FcaError when a file is not there."""
        chosen, root = each(self.kinds, self.severities), Path(self.root).expanduser()
        there = sorted(path.stem for path in root.glob("*.npy"))
        for name in (*self.kinds, "labels"):
            if name not in there:
                step = "set shift.root to the extracted folder, or shift.kinds to what it holds"
                raise FcaError(f"{name}.npy in shift.root", root, f"there are {', '.join(there) or 'no arrays'}", step)
        return [CifarCArray(root, kind, severity) for kind, severity in chosen]


@dataclass(frozen=True)
class CifarCArray:
    """One kind at one severity: 10,000 rows of a published array."""

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

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """The row of every test image. Raises FcaError unless ids and labels are those of the published test images."""
        images = np.load(self.root / f"{self.kind}.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(self.root / "labels.npy", allow_pickle=False)
        for file, found, allowed in (
            (self.kind, f"{images.shape} {images.dtype}", f"{SHAPE} uint8"),
            ("labels", f"{labels.shape}", f"{SHAPE[:1]}"),
        ):
            if found != allowed:
                what = f"shape of {self.root / file}.npy"
                raise FcaError(what, found, f"{allowed}, as published", "bring the file again")
        ids = data.items["image_id"].astype(str).tolist()
        places: dict[int, int] = {}
        for position in data.rows("test").tolist():
            if (match := CIFAR_ID.fullmatch(ids[position])) is None or int(match[1]) >= TEST_IMAGES:
                allowed, step = f"test/00000 to test/{TEST_IMAGES - 1:05d}", "take dataset=cifar10 or dataset=cifar100"
                raise FcaError(f"image id in {data.name}", ids[position], allowed, step)
            places[position] = row = (self.severity - 1) * TEST_IMAGES + int(match[1])
            if data.labels[position] != labels[row]:  # CIFAR-100-C beside CIFAR-10 would give nonsense quietly
                found, allowed = f"{data.labels[position]} for {ids[position]}", f"{labels[row]}, as in {self.root}"
                step = "take the data set that these files were made from, or the other files"
                raise FcaError(f"label in {data.name}", found, f"{allowed}/labels.npy", step)
        return _published(lambda row: np.array(images[row]), places, ids)


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
        return [ImageNetCFolder(self._folder(kind, s), kind, s) for kind, s in each(self.kinds, self.severities)]

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
    """One kind at one severity: a folder of wnids.

    The images were cut to the middle of the photographs before they were published, so no margin is cut again.
    """

    folder: Path
    kind: str
    severity: int
    corrupted_at: ClassVar[str | None] = "reference"

    def label(self) -> str:
        """As in tables: `imagenet_c/fog/2`."""
        return f"imagenet_c/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity and which files there are (their names; reading 50,000 to plan a run would take too long).

        Earlier rows, for which the network's margin was cut a second time, lack the key `margin`.
        """
        files = _listing(self.folder)
        return {"imagenet_c": self.kind, "severity": self.severity, "files": files, "margin": "cut once"}

    def geometry(self, usual: Geometry) -> Geometry:
        """A network's geometry for the published images."""
        return AfterReference(usual)

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """The file of the same wnid and name as every test image. Raises FcaError when some are not there."""
        ids = data.items["image_id"].astype(str).tolist()
        files = {int(i): "/".join(ids[i].split("/")[-2:]) for i in data.rows("test")}
        there = set(_files(self.folder))
        if missing := [name for name in files.values() if name not in there]:
            found, allowed = f"{len(missing)} of {len(files)}, as {missing[0]}", "<wnid>/<file> of every test image in"
            step = "take dataset=imagenet, or extract all"
            raise FcaError(f"missing images of {data.name}", found, f"{allowed} {self.folder}", step)
        return _published(lambda name: _decoded(self.folder / name), files, ids)


def _decoded(path: Path) -> Bytes:
    try:
        with Image.open(path, formats=["JPEG"]) as image:  # as published; Pillow reads PostScript too
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
