"""Your own embedding as an encoder: `model@encoder=own encoder.function=mymodule.embed plugins=[mymodule]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float64, UInt8

from fca.geometry import INTERPOLATIONS, ResizeCrop
from fca.identity import file_sha256
from fca.models import one_line
from fca.models.handmade import Handmade
from fca.plugins import PLUGINS, is_within, plugins
from fca.types import Classifier, FcaError
from fca.validation import Allowed

if TYPE_CHECKING:
    from torch import Tensor

FUNCTION_KEY = "model.function"
SHIPPED = {
    "fca.models.own.mean_colour": "d6423e044d76a803a697c462f162872bcffd0782393cf63843529bc16c0bfb65",
    "fca.models.pair.structural_similarity": "d26ed5335ca8c160c237e4cdf48a2f0549b43d284c2e01954d31a9e182923e06",
}
"""Our examples -> sha256 of their file when they were last changed: other edits of it do not change their identity."""


def source_of(function: str) -> str:
    """The sha256 of the file that defines a function, which stands for the function's code in the ids of runs.

    The file is found without importing the function's module. The examples that fca ships (SHIPPED) have a stored hash,
    so that other edits of their file do not change ids.

    function: module.name.

    Raises FcaError for a module that does not exist, and for one that the user did not list under `plugins`.
    """
    if function in SHIPPED:
        return SHIPPED[function]

    module, _, name = function.rpartition(".")
    if not is_within(module, *plugins()):
        allowed = f"{', '.join(SHIPPED)}, or a function of a module that you list"
        step = f"type plugins=[{module or 'mymodule'}] too (in Python: {PLUGINS} in the environment)"
        raise FcaError(FUNCTION_KEY, function, allowed, step)

    try:
        with _modules_of_current_folder():
            spec = find_spec(module) if module and name else None
    except Exception:  # `find_spec` imports the packages around the module, which may raise anything
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        allowed = f"module.name, with the module in {Path.cwd()} or installed"
        step = f"write {(module or 'mymodule').replace('.', '/')}.py, or correct it"
        raise FcaError(FUNCTION_KEY, function, allowed, step)
    return file_sha256(spec.origin)


def function_of(function: str) -> Callable[..., Any]:
    """Import a function of the user's.

    function: module.name.

    Raises FcaError for a module that is not listed under `plugins` or fails to import, and one without such a function.
    """
    source_of(function)  # raises FcaError for a module that is missing or not listed
    module, _, name = function.rpartition(".")
    try:
        with _importable_modules(function):
            value = getattr(import_module(module), name, None)
    except Exception as error:  # whatever a user's module does when it is imported
        allowed = f"a module that imports ({one_line(error)})"
        raise FcaError(FUNCTION_KEY, function, allowed, "correct the module") from error

    if not callable(value):
        allowed = f"the name of a function in {module}"
        raise FcaError(FUNCTION_KEY, function, allowed, f"define {name} there, or correct it")
    return value


def _importable_modules(function: str) -> AbstractContextManager[None]:
    """Make the user's modules in the current folder importable, in the body of `with`; not for a function of ours."""
    return nullcontext() if function in SHIPPED else _modules_of_current_folder()


class _PluginFinder(MetaPathFinder):
    """Finds the modules that the user lists under `plugins`, and no others, in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names = {module.partition(".")[0] for module in plugins()}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Called by Python at an import; None leaves the module to the usual search."""
        if fullname not in self.names:
            return None
        return PathFinder.find_spec(fullname, [self.folder])


@contextmanager
def _modules_of_current_folder() -> Iterator[None]:
    """Make the modules in the current folder importable, in the body of `with`.

    Modules that the user lists under `plugins` are searched for in this folder first, all others there last. So a
    numpy.py in the folder, which may have come with a folder of images, is not imported in the library's place.
    """
    folder = str(Path.cwd())
    finder = _PluginFinder(folder)  # finds the modules listed under `plugins`, before all other finders
    is_new = folder not in sys.path
    sys.meta_path.insert(0, finder)
    if is_new:
        sys.path.append(folder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if is_new:
            sys.path.remove(folder)


@dataclass(frozen=True)
class OwnFunction(Handmade):
    """Base of encoders that call a function of the user's.

    function: module.name; the module may be in the current folder.
    input_size, crop_pct, interpolation: of the images that it gets, see fca.geometry.ResizeCrop.

    Its source is its identity: changing the module's file makes another encoder of it. Files that the function reads
    (weights, other modules) are not followed: rename the function when those change.
    """

    function: str
    crop_pct: Annotated[float, Allowed(above=0, most=1)]
    interpolation: Annotated[str, Allowed(choices=tuple(INTERPOLATIONS))]

    def label(self) -> str:
        return self.function

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: all fields, and the sha256 of the function's source file.

        Raises FcaError without one.
        """
        return {**super().identity(), "source": source_of(self.function)}

    @property
    def geometry(self) -> ResizeCrop:
        return ResizeCrop(self.input_size, self.crop_pct, self.interpolation)

    def call(self, *pixels: UInt8[np.ndarray, "..."]) -> Any:
        """The function's result for these images: one batch for an encoder, two single images for a similarity.

        An error inside the function, or while it is imported, is raised as FcaError.
        """
        function = self._function
        try:
            with _importable_modules(self.function):
                return function(*pixels)
        except Exception as error:  # whatever a user's function may raise
            shapes = ", ".join(f"uint8 {image.shape}" for image in pixels)
            allowed = f"a function of {shapes} ({one_line(error)})"
            raise FcaError(FUNCTION_KEY, self.function, allowed, "correct the function") from error

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return function_of(self.function)


@dataclass(frozen=True)
class OwnEmbedding(OwnFunction):
    """A function of the user's as an encoder: uint8 (images, size, size, 3) -> numbers (images, features)."""

    family = "own"

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """An encoder (see Handmade). Raises FcaError if the function cannot be imported; `embed` checks its results."""
        function_of(self.function)
        return super().build(classes)

    def embed(self, images: Tensor) -> Tensor:
        """The function's features of images in [0, 1], of shape (batch, 3, size, size).

        Raises FcaError if the function raises, or returns other values than finite numbers of shape (batch, features).
        """
        import torch

        levels = (images * 255).round().to(torch.uint8)
        pixels = levels.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        features = self.call(pixels)
        if features.ndim != 2 or len(features) != len(pixels) or not np.isfinite(features).all():
            allowed = f"a function that gives finite numbers of shape ({len(pixels)}, features) for as many images"
            raise FcaError(FUNCTION_KEY, f"{self.function} -> {features.shape}", allowed, "correct the function")
        return torch.from_numpy(features)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        """The user's function with its result as an array, so that it may also return lists or other numbers."""
        function = function_of(self.function)
        return lambda pixels: np.array(function(pixels), np.float32)


def mean_colour(pixels: UInt8[np.ndarray, "images size size 3"]) -> Float64[np.ndarray, "images 6"]:
    """Mean and standard deviation of red, green and blue, in [0, 1]: an example of an encoder, to copy.

    >>> mean_colour(np.full((1, 2, 2, 3), 255, np.uint8)).tolist()
    [[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]]
    """
    unit = pixels / 255
    return np.concatenate([unit.mean(axis=(1, 2)), unit.std(axis=(1, 2))], axis=1)
