"""Preparations for the import of torchvision, timm or Lightning.

With a CPU build of torch, the compiled operators of torchvision do not load, and then it cannot be imported at all.
Declaring the schemas of the two operators for which its Python files register fake kernels is enough: fca never calls
them. This can be removed when a CPU build of torchvision is on PyPI for the pinned torch: tests/test_torchvision_ops.py
fails as soon as torchvision imports without it.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

UNUSED = frozenset({"matplotlib", "scipy", "transformers"})  # packages that torchmetrics need not import
BOX_OPERATOR_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def imported(module: str) -> Any:
    """Import a module of torchvision, timm, OpenCLIP or Lightning, or one that imports them; at first it takes seconds.

    All such modules must be imported through this function, see the head of this module.
    """
    declare_torchvision_ops()
    return import_module(module)


@cache
def declare_torchvision_ops() -> Any:
    """Make torchvision importable if its compiled operators do not load; does nothing if they do.

    The import of torchvision fails if the operators `nms` and `qnms` are unknown to torch. Declaring their schemas is
    enough, because fca never calls them. It must be called before the first import of torchvision, timm or Lightning.
    Returns the library that has the declarations: they last as long as it does, so the cache keeps it.
    """
    import torch

    spec = importlib.util.find_spec("torchvision")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        for binary in Path(folder).glob("_C*.so"):
            try:
                torch.ops.load_library(str(binary))  # type: ignore[no-untyped-call]
            except OSError:  # built for another torch
                continue
            return None  # the operators load: nothing to declare

    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(name + BOX_OPERATOR_SCHEMA)  # type: ignore[no-untyped-call]
    return library


def before_lightning() -> None:
    """Prepare the first import of Lightning, so that it takes 2 CPU seconds less.

    Its metrics package, torchmetrics, imports the packages of UNUSED if they are installed, for plots, audio and text
    (torchmetrics #2242, pytorch-lightning #12786). Here torchmetrics is imported while these packages seem to be
    missing. Nothing is changed if it has been imported already.
    """
    declare_torchvision_ops()
    if "torchmetrics" in sys.modules:
        return

    from lightning_utilities.core import imports

    distribution = metadata.distribution
    package_available = imports.package_available

    def distribution_unless_unused(name: str) -> metadata.Distribution:
        if name in UNUSED:
            raise metadata.PackageNotFoundError(name)
        return distribution(name)

    def available_unless_unused(name: str) -> bool:
        return name not in UNUSED and package_available(name)

    # torchmetrics looks for packages with these two functions; they are restored after its import.
    metadata.distribution = distribution_unless_unused  # type: ignore[assignment]
    imports.package_available = available_unless_unused  # type: ignore[assignment]
    try:
        import_module("torchmetrics")
    finally:
        metadata.distribution = distribution
        imports.package_available = package_available
