"""`fca export precision=int8`: a trained network's program in int8, and what that costs on images of its training."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from fca.cli.trained import Trained
from fca.data.pixels import open_pixels
from fca.data.splits import fixed_draw
from fca.geometry import ResizeCrop
from fca.models.programs import FP32, INT8, quantised, simplified
from fca.models.stored import Probed
from fca.stats.comparison import paired_interval
from fca.stats.intervals import wilson
from fca.stats.protocols import logit_columns
from fca.store.columns import CLASSES
from fca.types import Classifier, FcaError

CALIBRATION = 32  # training images that give the ranges of activations, as of task=compile
MAX_LOSS = 0.01  # default of max_loss=, a share of images


class Loss(NamedTuple):
    """Accuracy of a network minus that of its file on the same images, with its 95 % interval.

    images: their number.
    right: number of them that the file classifies right.
    value, low, high: the difference and its interval; as text they are printed as a gain, with the opposite sign.

    >>> print(Loss(images=80, right=60, value=0.0125, low=-0.026, high=0.052))
    -1.2 points [-5.2, +2.6] against the network on 80 images
    """

    images: int
    right: int
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        gain = -100 * self.value
        low = -100 * self.high
        high = -100 * self.low
        return f"{gain:+.1f} points [{low:+.1f}, {high:+.1f}] against the network on {self.images} images"

    def tested(self) -> dict[str, Any]:
        """The accuracy of the file on these images with its 95 % interval, as keys of the JSON beside the file."""
        low, high = wilson(self.right, self.images)
        return {"top1": self.right / self.images, "top1_low": low, "top1_high": high, "n_test": self.images}


def in_int8(trained: Trained, classifier: Classifier, content: bytes) -> bytes:
    """The ONNX program `content` quantised to int8.

    The ranges of its activations are measured on a fixed draw of the training images. Raises FcaError if these images
    are no longer at hand, and for a program that the quantiser refuses.
    """
    data = trained.images()
    rows = fixed_draw(data, data.rows("train", trained.row[CLASSES]), CALIBRATION)
    return quantised(simplified(content), _pixels_at_input_size(trained, classifier, rows))


def loss_on(split: str, trained: Trained, classifier: Classifier, content: bytes) -> Loss | None:
    """The accuracy that an ONNX file loses against the network on the images of a split of its training.

    trained: the training.
    classifier: its network.
    content: the bytes of the file.
    Returns None if the split has no images.
    """
    from fca.models.export import logits_function
    from fca.training.infer import batch_size_of, logits_of

    data = trained.images()
    rows = data.rows(split, trained.row[CLASSES])
    if not len(rows):
        return None
    pixels = _pixels_at_input_size(trained, classifier, rows)  # images x size x size x 3
    labels = logit_columns(classifier.classes, data.classes)[data.labels[rows]]  # column of each image's class

    logits_by_file = logits_function(content, "onnx")  # pixels -> logits
    size = batch_size_of(classifier.input_size)
    batches = [pixels[start : start + size] for start in range(0, len(pixels), size)]
    logits_of_file = np.concatenate([logits_by_file(batch) for batch in batches])
    # on the CPU, as the file
    logits_of_network = logits_of(classifier, pixels, np.arange(len(pixels)), accelerator="cpu")
    network_is_right = logits_of_network.argmax(axis=1) == labels
    file_is_right = logits_of_file.argmax(axis=1) == labels
    return loss_between(network_is_right, file_is_right)


def loss_between(network: np.ndarray, file: np.ndarray) -> Loss:
    """The accuracy that a file loses against its network on the same images, with a 95 % interval.

    value = (n_only_network - n_only_file) / n, the accuracy of the network minus that of the file; its interval is
    Newcombe's for paired shares (1998, Stat. Med. 17:2635, method 10). As text, a loss is printed as a negative gain.
    network, file: whether the network, or the file, classifies each of the n images right.

    >>> str(loss_between(np.array([True, True, False, True]), np.array([True, False, False, True])))
    '-25.0 points [-65.5, +32.0] against the network on 4 images'
    """
    # in how many images both are right, only the one, only the other, or neither
    n_both = int((network & file).sum())
    n_only_network = int((network & ~file).sum())
    n_only_file = int((~network & file).sum())
    n_neither = int((~network & ~file).sum())
    low, high = paired_interval(n_both, n_only_network, n_only_file, n_neither)
    return Loss(
        images=len(network),
        right=n_both + n_only_file,
        value=(n_only_network - n_only_file) / len(network),
        low=low,
        high=high,
    )


def allowed_loss(loss: Loss | None, max_loss: float, trained: Trained) -> Loss:
    """The given loss on validation images. Raises FcaError if it exceeds `max_loss`, or if it is None (no images).

    max_loss: the largest allowed loss of accuracy, a share of the images: 0.01 is 1 point.
    trained: the training. If it fitted a linear probe, the error suggests to quantise the network before that.
    """
    if loss is None:
        allowed = "a training that held out validation images, which show what int8 costs"
        raise FcaError("precision", INT8, allowed, "train with dataset.val.share=0.3, or export precision=fp32")
    if loss.value > max_loss:
        allowed = f"at most max_loss={max_loss:g} on validation images ({loss})"
        step_of_probe = ""
        model, _ = trained.started()  # with which the training started
        if isinstance(model, Probed):  # its backbone can be quantised before the probe is fitted
            step_of_probe = "probe the program in int8 itself (fca recommend, or task=compile task.precision=int8), "
        raise FcaError("precision", INT8, allowed, f"{step_of_probe}export precision={FP32}, or allow more: max_loss=")
    return loss


def _pixels_at_input_size(
    trained: Trained, classifier: Classifier, rows: Int[np.ndarray, " images"]
) -> UInt8[np.ndarray, "images size size 3"]:
    """The pixels of images of the training's data set, resized and cropped to the input size of the network.

    rows: positions of the images in the data set.
    Raises FcaError for a network with another kind of input.
    """
    geometry = classifier.geometry
    if not isinstance(geometry, ResizeCrop):
        allowed = "a network whose input is a resized and cropped image"
        raise FcaError("run", trained.model.run_id, allowed, "export a network")
    cache = trained.store.outputs / "cache"
    pixels = open_pixels(trained.images(), geometry, cache, limit_gb=0.0, rows=rows)  # 0: read the cache, write nothing
    return np.asarray(pixels[rows])
