"""Checks for NaN and infinity: in weights and outputs of networks they fail a run, so that no table contains them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float16

from fca.types import FcaError

if TYPE_CHECKING:
    from torch import Tensor

OVERFLOW = "without overflow"  # in torch's error for a step beyond float32
HALF_MAX = 65_504  # the largest number of float16
# the advice to the user in both errors
STEP = "check its weights, and model.mean and model.std; or take another network"


def broken_tensors(state: Mapping[str, Tensor], parameters: Collection[str]) -> list[str]:
    """The names of a network's tensors that contain NaN or infinity.

    state: name -> tensor.
    parameters: names of the trained tensors. The others are buffers, which may contain minus infinity, as masks do.

    >>> import torch
    >>> broken_tensors({"mask": torch.tensor([-np.inf]), "weight": torch.tensor([np.nan])}, ["weight"])
    ['weight']
    """
    broken = []
    for name, tensor in state.items():
        if not (tensor.is_floating_point() or tensor.is_complex()):  # integers are always finite
            continue

        is_allowed = tensor.isfinite()
        if name not in parameters and tensor.is_floating_point():
            is_allowed |= tensor.isneginf()
        if not bool(is_allowed.all()):
            broken.append(name)
    return broken


def check_outputs(kind: str, outputs: Float[np.ndarray, "images outputs"], before: int = 0) -> None:
    """Raise FcaError if some of a network's outputs are NaN or infinite; the message has the number of such images.

    kind:   "logits" or "features", for the message.
    before: number of images that were checked before these.

    >>> check_outputs("logits", np.array([[0.0, np.nan], [1.0, 2.0]]), before=8)
    Traceback (most recent call last):
    fca.types.FcaError: logits of the network = NaN or infinite for 1 of the first 10 images; allowed: finite ...
    """
    is_finite = np.isfinite(outputs)
    if is_finite.all():
        return
    n_images = int((~is_finite).any(axis=1).sum())
    value = f"NaN or infinite for {n_images} of the first {before + len(outputs):,} images"
    raise FcaError(f"{kind} of the network", value, "finite numbers", step=STEP)


def as_half(kind: str, outputs: Float[np.ndarray, "images outputs"]) -> Float16[np.ndarray, "images outputs"]:
    """Finite outputs in float16, as they are stored. Raises FcaError if some are beyond the range of float16.

    kind: "logits" or "features", for the message.

    >>> as_half("features", np.array([[1.0], [1e5]]))
    Traceback (most recent call last):
    fca.types.FcaError: features of the network = up to 1e+05, for 1 of 2 images beyond 65,504; allowed: the ...
    """
    with np.errstate(over="ignore"):  # an overflow becomes infinite, which is checked below
        half = outputs.astype(np.float16)
    is_finite = np.isfinite(half)
    if is_finite.all():
        return half
    n_images = int((~is_finite).any(axis=1).sum())
    value = f"up to {np.abs(outputs).max():.3g}, for {n_images} of {len(outputs):,} images beyond {HALF_MAX:,}"
    raise FcaError(f"{kind} of the network", value, "the range of float16, in which they are stored", step=STEP)
