"""Your own embedding as an encoder: `model@encoder=own encoder.function=mymodule.embed`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from jaxtyping import Float64, UInt8

from fca.geometry import ResizeCrop
from fca.identity import file_sha256, settled
from fca.models.handmade import encoder
from fca.models.weights import one_line
from fca.types import Classifier, FcaError

if TYPE_CHECKING:
    from torch import Tensor

# Functions that users name in a configuration: found without running them, called with their errors told.


def source_of(what: str, function: str) -> str:
    """sha256 of the file that defines `function` (module.name), found without importing the module itself.

    what: the key that named it, for errors. Raises FcaError for a module that is not there.
    """
    module, _, name = function.rpartition(".")
    try:
        with _current_folder():
            spec = find_spec(module) if module and name else None
    except Exception:  # it imports the packages that the module lies in, whatever these do
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        allowed = f"module.name, with the module in {Path.cwd()} or installed"
        raise FcaError(what, function, allowed, f"write {(module or 'mymodule').replace('.', '/')}.py, or correct it")
    return file_sha256(spec.origin)


def function_of(what: str, function: str) -> Callable[..., Any]:
    """The function itself; raises FcaError if its module cannot be imported or has no such function."""
    source_of(what, function)
    module, _, name = function.rpartition(".")
    try:
        with _current_folder():
            found = getattr(import_module(module), name, None)
    except Exception as error:  # whatever a user's module does when it is imported
        raise FcaError(what, function, f"a module that imports ({one_line(error)})", "correct the module") from error
    if not callable(found):
        raise FcaError(what, function, f"the name of a function in {module}", f"define {name} there, or correct it")
    return found  # type: ignore[no-any-return]


def called(what: str, name: str, function: Callable[..., Any], *pixels: Any) -> Any:
    """What the function gives for these pixels; its errors as FcaError."""
    try:
        with _current_folder():
            return function(*pixels)
    except Exception as error:  # whatever a user's function may raise
        shapes = ", ".join(f"uint8 {image.shape}" for image in pixels)
        raise FcaError(what, name, f"a function of {shapes} ({one_line(error)})", "correct the function") from error


@contextmanager
def _current_folder() -> Iterator[None]:
    """As `python -m` does: the current folder is where modules are looked for first."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@dataclass(frozen=True)
class OwnEmbedding:
    """A function of yours: uint8 (images, size, size, 3) -> numbers (images, features), as an encoder.

    function: module.name; the module is looked for in the current folder too.
    input_size, crop_pct, interpolation: what happens to an image first, see fca.geometry.ResizeCrop.

    It means what its source says: changing the module's file makes another encoder of it. What the function reads
    (weights, other modules) is not followed: name the function anew when that changes.
    """

    function: str
    input_size: int
    crop_pct: float
    interpolation: str

    def label(self) -> str:
        """The function's name."""
        return self.function

    def weights_label(self) -> str | None:
        return None

    def identity(self) -> dict[str, Any]:
        """All fields, and the sha256 of the function's source file. Raises FcaError if there is none."""
        return {"family": "own", **settled("model", asdict(self)), "source": source_of("model.function", self.function)}

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """An encoder; raises FcaError when asked for classes, and later when the function gives something else."""
        geometry = ResizeCrop(self.input_size, self.crop_pct, self.interpolation)
        function = function_of("model.function", self.function)

        def numbers(pixels: UInt8[np.ndarray, "images size size 3"]) -> np.ndarray:
            return np.array(function(pixels), np.float32)

        def embed(images: Tensor) -> Tensor:
            import torch

            pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
            features = called("model.function", self.function, numbers, pixels)
            if features.ndim != 2 or len(features) != len(pixels) or not np.isfinite(features).all():
                allowed = f"a function that gives finite numbers of shape ({len(pixels)}, features) for as many images"
                value = f"{self.function} -> {features.shape}"
                raise FcaError("model.function", value, allowed, "correct the function")
            return torch.from_numpy(features)

        return encoder(self.function, geometry, embed, classes)


def mean_colour(pixels: UInt8[np.ndarray, "images size size 3"]) -> Float64[np.ndarray, "images 6"]:
    """Mean and standard deviation of red, green and blue, in [0, 1]: an example to copy.

    >>> mean_colour(np.full((1, 2, 2, 3), 255, np.uint8)).tolist()
    [[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]
    """
    unit = pixels / 255
    return np.concatenate([unit.mean(axis=(1, 2)), unit.std(axis=(1, 2))], axis=1)


# Your own similarity of two images, as the paper allows one: `model@encoder=pair encoder.function=mymodule.sim`.


Image = UInt8[np.ndarray, "size size 3"]


@dataclass(frozen=True)
class PairFunction:
    """A function of yours: sim(image, image) -> a number in [0, 1], of uint8 images of one size (arXiv:2411.01099).

    function: module.name; the module is looked for in the current folder too.
    input_size, crop_pct, interpolation: what happens to an image first, see fca.geometry.ResizeCrop.
    images_per_class: how many of a class' images are drawn, since all pairs are too many.    seed: of that draw.

    It has no features and no logits: `similarity` is all it does, and the embed task compares what was drawn.
    """

    function: str
    input_size: int
    crop_pct: float
    interpolation: str
    images_per_class: int
    seed: int

    def label(self) -> str:
        """The function's name."""
        return self.function

    def weights_label(self) -> str | None:
        return None

    def identity(self) -> dict[str, Any]:
        """All fields, and the sha256 of the function's source file. Raises FcaError for what cannot be."""
        if self.images_per_class < 2:
            allowed = "at least 2: similarity within a class needs pairs"
            raise FcaError("model.images_per_class", self.images_per_class, allowed, "raise model.images_per_class")
        values = settled("model", asdict(self))
        return {"family": "pair", **values, "source": source_of("model.function", self.function)}

    def build(self, classes: Sequence[str] | None = None) -> NoReturn:
        """Raises FcaError: there is nothing to build."""
        allowed = "an encoder or a network: a function of two images gives neither features nor logits"
        raise FcaError("model", self.function, allowed, "use it as model@encoder=pair with task=embed")

    @property
    def geometry(self) -> ResizeCrop:
        """What happens to an image before it is compared."""
        return ResizeCrop(self.input_size, self.crop_pct, self.interpolation)

    def similarity(self, first: Image, second: Image) -> float:
        """What the function says of two images. Raises FcaError unless it is a number in [0, 1].

        >>> black, white = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
        >>> PairFunction("fca.models.own.structural_similarity", 8, 1.0, "bilinear", 10, 0).similarity(black, black)
        1.0
        """
        value = called("model.function", self.function, self._function, first, second)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not 0 <= number <= 1:
            raise FcaError("model.function", f"{self.function} -> {value}", "a number in [0, 1]", "scale what it gives")
        return number

    @cached_property
    def _function(self) -> Any:
        return function_of("model.function", self.function)


def structural_similarity(first: Image, second: Image) -> float:
    """(1 + SSIM) / 2 by scikit-image, windows of 7 pixels, mean over colours: an example to copy.

    SSIM (Wang et al., IEEE TIP 13(4), 2004) lies in [-1, 1]; the scale is that of (1 + cos) / 2 elsewhere.

    >>> grey = np.full((8, 8, 3), 128, np.uint8)
    >>> structural_similarity(grey, grey)
    1.0
    """
    from skimage.metrics import structural_similarity as ssim

    value: Any = ssim(first, second, channel_axis=-1, data_range=255)  # type: ignore[no-untyped-call]
    return float((1 + value) / 2)
