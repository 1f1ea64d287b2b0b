"""torchvision beside a CPU build of torch: its compiled operators do not load, and then it cannot be imported at all.

Declaring the schemas of the two operators that its Python files register fake kernels for is enough: fca never calls
them. This file may go when a CPU build of torchvision is on PyPI for the pinned torch: tests/test_torchvision_ops.py
fails on the day that torchvision imports without it.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

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
