"""Logits and features of many images, in one loop that reads the next batches while the network works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from fca.finite import check_outputs
from fca.training.batches import as_input, read_ahead, to_device
from fca.training.devices import accelerator_for, device_of
from fca.types import Classifier, FcaError, Pixels


def batch_size_of(size: int) -> int:
    """Images in a batch of inference, where nothing is kept for gradients.

    size: side of an image in pixels.

    >>> batch_size_of(32), batch_size_of(224), batch_size_of(512)
    (256, 83, 16)
    """
    return max(1, min(256, 2**22 // size**2))


def logits_of(
    classifier: Classifier,
    pixels: Pixels,
    rows: Int[np.ndarray, " images"],
    accelerator: str = "auto",
    on_batch: Callable[[int], object] = lambda n_images: None,
) -> Float32[np.ndarray, "images logits"]:
    """The logits of the images `pixels[rows]`, in full precision; columns are in the order of `classifier.classes`.

    accelerator: auto, cpu or gpu.
    on_batch: called after every batch with its number of images.

    Raises FcaError if a logit is NaN or infinite, and if the network does not give one logit for each class; ValueError
    if there is no image.
    """

    def logits(images: Tensor) -> Tensor:
        return checked_logits(classifier.module(images), len(images), len(classifier.classes))

    return _outputs_in_batches("logits", classifier, logits, pixels, rows, accelerator, on_batch)


def features_of(
    classifier: Classifier, pixels: Pixels, rows: Int[np.ndarray, " images"], accelerator: str = "auto"
) -> Float32[np.ndarray, "images features"]:
    """The features of the images `pixels[rows]` by `classifier.embed`: pooled, as a head would get them.

    accelerator: auto, cpu or gpu.
    Raises FcaError if a feature is NaN or infinite, and ValueError if there is no image.
    """
    return _outputs_in_batches("features", classifier, classifier.embed, pixels, rows, accelerator)


def checked_logits(logits: Any, images: int, classes: int) -> Tensor:
    """Return the output of a network unchanged if it has one logit for each image and class.

    Raises FcaError otherwise: a network that a user wrote may return anything.
    images, classes: how many there are.

    >>> checked_logits(torch.zeros(4, 10), 4, 3)
    Traceback (most recent call last):
    fca.types.FcaError: output of the network = (4, 10); allowed: (4, 3): a logit for each of 4 images and ...
    """
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if shape != (images, classes):
        allowed = f"{(images, classes)}: a logit for each of {images} images and {classes} classes"
        raise FcaError("output of the network", shape, allowed, "correct what `build` of the model returns")
    return logits


def _outputs_in_batches(
    kind: str,
    classifier: Classifier,
    forward: Callable[[Tensor], Tensor],
    pixels: Pixels,
    rows: Any,
    accelerator: str,
    on_batch: Callable[[int], object] = lambda n_images: None,
) -> Float32[np.ndarray, "images outputs"]:
    """What `forward` returns for the images `pixels[rows]`, computed batch by batch while the next batches are read.

    kind:       what the outputs are, logits or features, for the message of an error.
    classifier: its network is put in evaluation mode and moved to the device of the accelerator.
    forward:    normalised images -> outputs of shape (batch, outputs).
    on_batch:   called after every batch with its number of images.

    Raises FcaError for outputs that are not finite, and ValueError if there is no image.
    """
    if not len(rows):
        raise ValueError("rows is empty: there is no image to evaluate")

    module = classifier.module.eval()
    device = device_of(accelerator_for(module, accelerator))  # the CPU for encoders that have no parameters
    module.to(device)

    n_batches = -(-len(rows) // batch_size_of(classifier.input_size))  # rounded up
    row_batches = np.array_split(rows, n_batches)  # of nearly equal size
    image_batches = read_ahead(lambda batch: to_device(pixels[batch], device), row_batches)

    output_batches: list[Float32[np.ndarray, "batch outputs"]] = []
    n_forwarded = 0
    with torch.inference_mode():
        for images in image_batches:
            outputs = forward(classifier.normalise(as_input(images))).float().cpu().numpy()
            check_outputs(kind, outputs, before=n_forwarded)  # `before`: the error counts images over all batches
            output_batches.append(outputs)
            n_forwarded += len(outputs)
            on_batch(len(images))
    return np.concatenate(output_batches)
