"""Logits and features of many images: one loop, in which the next batches are read while the network works."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float32, Int
from rich.progress import track
from torch import Tensor

from fca.training.batches import Pixels, read_ahead
from fca.training.device import as_input, device_name, device_of, to_device
from fca.types import Classifier

__all__ = ["batch_size_of", "device_name", "features_of", "logits_of"]


def batch_size_of(size: int) -> int:
    """Images a batch when nothing has to be remembered for gradients.

    >>> batch_size_of(32), batch_size_of(224), batch_size_of(512)
    (256, 83, 16)
    """
    return max(1, min(256, 2**22 // size**2))


def logits_of(
    classifier: Classifier,
    pixels: Pixels,
    rows: Int[np.ndarray, " images"],
    accelerator: str = "auto",
    progress: bool = False,
) -> Float32[np.ndarray, "images logits"]:
    """What the classifier answers on `pixels[rows]`, in full precision; the columns follow `classifier.classes`."""
    return _answers(classifier, classifier.module, pixels, rows, accelerator, progress)


def features_of(
    classifier: Classifier,
    pixels: Pixels,
    rows: Int[np.ndarray, " images"],
    accelerator: str = "auto",
    progress: bool = False,
) -> Float32[np.ndarray, "images features"]:
    """What `classifier.embed` makes of `pixels[rows]`: the pooled features that a head would see."""
    return _answers(classifier, classifier.embed, pixels, rows, accelerator, progress)


def _answers(
    classifier: Classifier,
    forward: Callable[[Tensor], Tensor],
    pixels: Pixels,
    rows: Int[np.ndarray, " images"],
    accelerator: str,
    progress: bool,
) -> Float32[np.ndarray, "images outputs"]:
    if not len(rows):
        raise ValueError("rows is empty: no image, no answer")
    module = classifier.module.eval()
    # Without weights there is nothing to move, and such an encoder (hog, pixels) works in NumPy.
    device = device_of(accelerator if any(True for _ in module.parameters()) else "cpu")
    module.to(device)
    parts = np.array_split(rows, -(-len(rows) // batch_size_of(classifier.input_size)))
    batches = read_ahead(lambda part: to_device(pixels[part], device), parts)
    shown = track(batches, "forward", len(parts), transient=True, disable=not progress)
    with torch.inference_mode():
        done = [forward(classifier.normalise(as_input(images))).float().cpu() for images in shown]
    return torch.cat(done).numpy()
