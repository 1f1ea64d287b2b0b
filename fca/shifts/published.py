"""CIFAR-10-C, CIFAR-100-C and ImageNet-C as their authors published them: readers of stored images."""

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


def _reader_of_test_images(
    read: Callable[[Any], Bytes], source_of_position: Mapping[int, Any], image_ids: Sequence[str]
) -> Callable[[int], Bytes]:
    """A function from the position of an image in the data to its published image.

    Only test images were published, so the function raises FcaError for all others.

    read:               reads one image from its source: a row of an array, or the name of a file.
    source_of_position: the source of each test image, by its position in the data.
    image_ids:          of all images, for the error message.
    """

    def read_at(index: int) -> Bytes:
        if index not in source_of_position:
            allowed = "images of the test split, the only ones published"
            raise FcaError("image", image_ids[index], allowed, "set task.split=test")
        return read(source_of_position[index])

    return read_at


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
        """One shift for each kind at each severity, in the order of the kinds.

        Raises FcaError for an unknown kind or severity, and if labels.npy or the array of a kind is missing.
        """
        chosen = each(self.kinds, self.severities)
        root = Path(self.root).expanduser()
        arrays = sorted(path.stem for path in root.glob("*.npy"))
        for name in (*self.kinds, "labels"):
            if name not in arrays:
                allowed = f"there are {', '.join(arrays) or 'no arrays'}"
                step = "set shift.root to the extracted folder, or shift.kinds to what it holds"
                raise FcaError(f"{name}.npy in shift.root", root, allowed, step)
        return [CifarCArray(root, kind, severity) for kind, severity in chosen]


@dataclass(frozen=True)
class CifarCArray:
    """One kind at one severity: 10,000 rows of a published array."""

    root: Path
    kind: str
    severity: int

    def label(self) -> str:
        """The name in tables: `cifar_c/fog/2`."""
        return f"cifar_c/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity and the array's sha256."""
        content = file_sha256(self.root / f"{self.kind}.npy")
        return {"cifar_c": self.kind, "severity": self.severity, "sha256": content}

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """A function from the position of a test image in the data to its published corrupted image.

        The published array holds the 10,000 test images once per severity, in the order of severities.
        Raises FcaError if the arrays do not have the published shapes, or if ids or labels of test images show that the
        array was made from other data. The returned function raises FcaError for images outside the test split.
        """
        images = np.load(self.root / f"{self.kind}.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(self.root / "labels.npy", allow_pickle=False)
        self._check_shapes(images, labels)

        image_ids = data.items["image_id"].astype(str).tolist()
        row_of_position: dict[int, int] = {}
        for position in data.rows("test").tolist():
            number = self._number_of(image_ids[position], data)  # of the image among the test images, from 0 on
            row = (self.severity - 1) * TEST_IMAGES + number
            # without this check, CIFAR-100-C would be read for CIFAR-10 without any error
            if data.labels[position] != labels[row]:
                label = f"{data.labels[position]} for {image_ids[position]}"
                allowed = f"{labels[row]}, as in {self.root}/labels.npy"
                step = "take the data set that these files were made from, or the other files"
                raise FcaError(f"label in {data.name}", label, allowed, step)
            row_of_position[position] = row
        # np.array copies the one image out of the memory-mapped file
        return _reader_of_test_images(lambda row: np.array(images[row]), row_of_position, image_ids)

    def _check_shapes(self, images: np.ndarray, labels: np.ndarray) -> None:
        """Raise FcaError unless both arrays have the shapes of the published ones, the images as bytes."""
        for file, shape, published_shape in (
            (self.kind, f"{images.shape} {images.dtype}", f"{SHAPE} uint8"),
            ("labels", f"{labels.shape}", f"{SHAPE[:1]}"),
        ):
            if shape != published_shape:
                name = f"shape of {self.root / file}.npy"
                raise FcaError(name, shape, f"{published_shape}, as published", "bring the file again")

    @staticmethod
    def _number_of(image_id: str, data: ImageData) -> int:
        """The number of a test image, 0 to 9,999, from its id."""
        match = CIFAR_ID.fullmatch(image_id)
        if match is None or int(match[1]) >= TEST_IMAGES:
            allowed = f"test/00000 to test/{TEST_IMAGES - 1:05d}"
            step = "take dataset=cifar10 or dataset=cifar100"
            raise FcaError(f"image id in {data.name}", image_id, allowed, step)
        return int(match[1])


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
        """Kinds in their order, each at every severity. Raises FcaError for a missing folder."""
        chosen = each(self.kinds, self.severities)
        return [ImageNetCFolder(self._folder(kind, severity), kind, severity) for kind, severity in chosen]

    def _folder(self, kind: str, severity: int) -> Path:
        """The folder with the images of a kind at a severity.

        A kind is a folder of the root (root/fog/1), or is inside a folder of a group (root/weather/fog/1), as in the
        published archives. Raises FcaError with the kinds that the root holds if neither folder exists.
        """
        root = Path(self.root).expanduser()
        for folder in (root / kind, *sorted(root.glob(f"*/{kind}"))):
            if (folder / str(severity)).is_dir():
                return folder / str(severity)

        # for the message: kinds are the parents of all folders named 1 to 5
        folders_of_severities = [*root.glob("*/[1-5]"), *root.glob("*/*/[1-5]")]
        kinds = sorted({folder.parent.name for folder in folders_of_severities})
        step = "set shift.root to the extracted folder, or shift.kinds and shift.severities to what it holds"
        raise FcaError(f"{kind}/{severity} in shift.root", root, f"there are {', '.join(kinds) or 'no kinds'}", step)


@dataclass(frozen=True)
class ImageNetCFolder:
    """One kind at one severity: a folder of wnids.

    The published images are already the middle of the photographs, so no margin is cut again.
    """

    folder: Path
    kind: str
    severity: int
    corrupted_at: ClassVar[str | None] = "reference"

    def label(self) -> str:
        """The name in tables: `imagenet_c/fog/2`."""
        return f"imagenet_c/{self.kind}/{self.severity}"

    def identity(self) -> dict[str, Any]:
        """Kind, severity and the names of the files (reading 50,000 files to plan a run would take too long).

        Earlier rows, for which the network's margin was cut a second time, lack the key `margin`.
        """
        files = _listing(self.folder)
        return {"imagenet_c": self.kind, "severity": self.severity, "files": files, "margin": "cut once"}

    def geometry(self, network_geometry: Geometry) -> Geometry:
        """A network's geometry for the published images."""
        return AfterReference(network_geometry)

    def reader(self, data: ImageData) -> Callable[[int], Bytes]:
        """A function from the position of a test image to the published image with the same wnid and file name.

        wnid: the name of an ImageNet class, which is also the name of its folder.
        Raises FcaError if the published file of any test image is missing. The returned function raises FcaError for
        images outside the test split.
        """
        image_ids = data.items["image_id"].astype(str).tolist()
        file_of_position = {}
        for position in data.rows("test").tolist():
            wnid_and_name = image_ids[position].split("/")[-2:]  # ids may begin with the name of a split
            file_of_position[position] = "/".join(wnid_and_name)
        existing = set(_paths_below_wnid_folders(self.folder))
        missing = [name for name in file_of_position.values() if name not in existing]
        if missing:
            number = f"{len(missing)} of {len(file_of_position)}, as {missing[0]}"
            allowed = f"<wnid>/<file> of every test image in {self.folder}"
            step = "take dataset=imagenet, or extract all"
            raise FcaError(f"missing images of {data.name}", number, allowed, step)
        return _reader_of_test_images(lambda name: _decoded(self.folder / name), file_of_position, image_ids)


def _decoded(path: Path) -> Bytes:
    """The RGB pixels of a JPEG. Raises UnreadableImage, whatever Pillow raised."""
    try:
        with Image.open(path, formats=["JPEG"]) as image:  # as published; Pillow reads PostScript too
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow's formats raise OSError, SyntaxError, ValueError, struct.error ...
        raise UnreadableImage(f"{path}: {error}") from error


def _paths_below_wnid_folders(folder: Path) -> Iterator[str]:
    """The paths `wnid/file` of all files in a folder with one folder per wnid, sorted."""
    for wnid_folder in sorted(path for path in folder.iterdir() if path.is_dir()):
        for name in sorted(path.name for path in wnid_folder.iterdir()):
            yield f"{wnid_folder.name}/{name}"


@cache
def _listing(folder: Path) -> str:
    """A digest of the names of all files in a folder, 12 hex digits."""
    return hashlib.sha256("\n".join(_paths_below_wnid_folders(folder)).encode()).hexdigest()[:12]
