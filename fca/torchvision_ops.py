"""What has to be done before torchvision, timm or Lightning is imported.

torchvision beside a CPU build of torch: its compiled operators do not load, and then it cannot be imported at all.
Declaring the schemas of the two operators that its Python files register fake kernels for is enough: fca never calls
them. That may go when a CPU build of torchvision is on PyPI for the pinned torch: tests/test_torchvision_ops.py fails
on the day that torchvision imports without it.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

UNUSED = frozenset({"matplotlib", "scipy", "transformers"})
BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def imported(module: str) -> Any:
    """A module of torchvision, timm, OpenCLIP or Lightning, or one that imports them; it takes seconds at first."""
    declare_torchvision_ops()
    return import_module(module)


@cache
def declare_torchvision_ops() -> Any:
    """Call before the first import of torchvision, timm or Lightning; does nothing where the real operators load.

    Returns the library that holds the declarations: they last as long as it does, so the cache keeps it.
    """
    import torch

    spec = importlib.util.find_spec("torchvision")  # finds the package without running its __init__
    for folder in (spec and spec.submodule_search_locations) or []:
        for binary in Path(folder).glob("_C*.so"):
            try:
                torch.ops.load_library(str(binary))  # type: ignore[no-untyped-call]
            except OSError:
                continue
            return None
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(name + BOXES)  # type: ignore[no-untyped-call]
    return library


def before_lightning() -> None:
    """Call before the first import of Lightning, which then takes 2 CPU seconds less.

    Its metrics, torchmetrics, import plots, audio and text with what is installed of UNUSED (torchmetrics #2242,
    pytorch-lightning #12786); here they find none of it, unless somebody who may use them has imported them already.
    """
    declare_torchvision_ops()
    if "torchmetrics" in sys.modules:
        return
    from lightning_utilities.core import imports

    distribution, available = metadata.distribution, imports.package_available

    def unless_unused(name: str) -> metadata.Distribution:
        if name in UNUSED:
            raise metadata.PackageNotFoundError(name)
        return distribution(name)

    metadata.distribution = unless_unused  # type: ignore[assignment]
    imports.package_available = lambda name: name not in UNUSED and available(name)  # type: ignore[assignment]
    try:
        import_module("torchmetrics")
    finally:
        metadata.distribution, imports.package_available = distribution, available
