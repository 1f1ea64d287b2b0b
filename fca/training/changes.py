"""Do to a batch of images on its device what fca/training/augment.py drew: crops, operations, erasing; in torch.

An operation takes images with a strength each, and does what torchvision.transforms.v2.functional does to uint8.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64, UInt8
from torch import Tensor
from torch.nn.functional import avg_pool2d, grid_sample, pad

from fca.torchvision_ops import imported
from fca.training.augment import AFFINE, OPERATIONS, Changes

Bytes = UInt8[Tensor, "batch 3 size size"]
Strength = Float[np.ndarray, " batch"]
BLUR_REACH = 6  # pixels: three of the largest sigma
CHUNK = 2**16  # output pixels that a CPU works on at a time, so that its cache holds all that it makes of them


def cut(
    pixels: UInt8[Tensor, "pixels 3"], windows: Int64[Tensor, "batch 7"], size: int
) -> UInt8[Tensor, "batch size size 3"]:
    """Crop, resize and mirror images of any shape by one gather: bilinear, without antialiasing.

    windows: of each image the start in `pixels` and the width; of its crop top, left, height, width; whether mirrored.
    """
    return torch.cat([_cut(pixels, windows[part], size) for part in _chunks(len(windows), size, pixels.device)])


def _chunks(images: int, size: int, device: torch.device) -> list[slice]:
    """All images of a batch at once, but not on a CPU."""
    step = max(1, CHUNK // size**2) if device.type == "cpu" else images
    return [slice(start, start + step) for start in range(0, images, step)]


def _cut(pixels: Tensor, windows: Tensor, size: int) -> Tensor:
    start, across, top, left, height, width, mirrored = windows[:, :, None].unbind(1)
    steps = torch.arange(size, device=pixels.device)

    def taps(extent: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Both source pixels of each output pixel along an axis, and the share of the second."""
        at = ((steps + 0.5) * (extent / size) - 0.5).clamp(min=0)
        low = at.long()
        return torch.stack([low, (low + 1).minimum(extent - 1)]), at - low

    rows, down = taps(height, steps)
    columns, right = taps(width, torch.where(mirrored > 0, size - 1 - steps, steps))
    lines = (start + (top + rows) * across + left)[:, None, :, :, None]
    index = lines + columns[None, :, :, None, :]
    corners = pixels.index_select(0, index.flatten()).view(2, 2, -1, size, 3 * size).float()
    above, below = torch.lerp(corners[:, 0], corners[:, 1], right.repeat_interleave(3, 1)[:, None, :])
    return torch.lerp(above, below, down[:, :, None]).round_().to(torch.uint8).view(-1, size, size, 3)


def changed(images: Float32[Tensor, "batch 3 size size"], changes: Changes) -> Float32[Tensor, "batch 3 size size"]:
    """Images in [0, 1] after all their operations, each done at once to all its images; in the 256 levels of uint8."""
    if not changes.operation.shape[1]:
        return images
    parts = _chunks(len(images), images.shape[-1], images.device)
    return torch.cat([_changed(images[part], Changes(*(values[part] for values in changes))) for part in parts])


def _changed(images: Tensor, changes: Changes) -> Tensor:
    levels = (images * 255).round_().to(torch.uint8).contiguous()
    for operation, strength in zip(changes.operation.T, changes.strength.T, strict=True):
        for number in set(operation.tolist()) - {0}:
            rows = np.flatnonzero(operation == number)
            place = torch.from_numpy(rows).to(levels.device)
            levels[place] = apply(OPERATIONS[number], levels[place], strength[rows])
    return levels.float().div_(255)


def erased(images: Float[Tensor, "batch 3 size size"], boxes: Int[np.ndarray, "batch 4"]) -> Tensor:
    """Normalised images, with standard normal noise in their rectangles (top, left, height, width): done in place."""
    rows = np.flatnonzero(boxes[:, 2])
    place, box = (torch.from_numpy(part).to(images.device) for part in (rows, boxes[rows]))
    top, left, height, width = box[:, :, None].unbind(1)
    steps, old = torch.arange(images.shape[-1], device=images.device), images[place]
    inside = ((steps >= top) & (steps < top + height))[:, :, None] & ((steps >= left) & (steps < left + width))[:, None]
    images[place] = torch.where(inside[:, None], torch.randn_like(old), old)
    return images


def apply(name: str, images: Bytes, strength: Strength) -> Bytes:
    """One of OPERATIONS, with a strength for each image; see Changes for the units."""
    if name in AFFINE:
        return _affine(name, images, strength)
    number = torch.from_numpy(strength.astype(np.float32)).to(images.device)[:, None, None, None]
    match name:
        case "autocontrast" | "equalize" | "invert":
            return getattr(imported("torchvision.transforms.v2.functional"), name)(images)
        case "grayscale":
            return imported("torchvision.transforms.v2.functional").rgb_to_grayscale(images, 3)
        case "posterize":
            return images & (256 - 2 ** (8 - number)).to(torch.uint8)
        case "solarize":
            return torch.where(images >= number * 255, ~images, images)
        case "blur":
            return _blurred(images.float(), number).round_().to(torch.uint8)
    values = images.float()
    return (values + (values - _other(name, values)) * number).clamp_(0, 255).to(torch.uint8)


def _affine(name: str, images: Bytes, strength: Strength) -> Bytes:
    """The nearest pixel of a linear map around the centre, or for a shear the upper left corner; outside is black."""
    size = images.shape[-1]
    half, one, none = size / 2, np.ones_like(strength), np.zeros_like(strength)
    sine, cosine = np.sin(np.deg2rad(strength)), np.cos(np.deg2rad(strength))
    rows = {
        "shear_x": ((one, strength, strength * half), (none, one, none)),
        "shear_y": ((one, none, none), (strength, one, strength * half)),
        "translate_x": ((one, none, -strength), (none, one, none)),
        "translate_y": ((one, none, none), (none, one, -strength)),
        "rotate": ((cosine, -sine, none), (sine, cosine, none)),
    }[name]
    matrix = torch.from_numpy((np.array(rows) / half).astype(np.float32)).to(images.device)[..., None, None]
    steps = torch.arange(size, device=images.device) - (size - 1) / 2
    # Sums, not a matrix product, which mixed precision would round.
    grid = torch.stack([x * steps + y * steps[:, None] + moved for x, y, moved in matrix], -1)
    return grid_sample(images.float(), grid, "nearest", align_corners=False).to(torch.uint8)


def _other(name: str, values: Tensor) -> Tensor:
    """What a blend moves images away from: black, their grey, its mean, or themselves blurred but at the edge."""
    if name == "brightness":
        return torch.zeros_like(values)
    if name == "sharpness":
        inner = values[:, :, 1:-1, 1:-1]
        around = avg_pool2d(values, 3, 1, divisor_override=1)
        return values + pad(((around + 4 * inner) / 13).round_() - inner, (1, 1, 1, 1))
    red, green, blue = values.unbind(1)
    grey = (red * 0.2989 + green * 0.587 + blue * 0.114).floor_()[:, None]
    return grey if name == "color" else grey.mean((2, 3), keepdim=True)


def _blurred(values: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur, edges mirrored, one axis after the other; sums, as mixed precision would round a convolution."""
    size = values.shape[-1]
    reach = min(BLUR_REACH, size - 1)
    steps = torch.arange(-reach, reach + 1, device=values.device)
    weights = torch.softmax(-(steps**2) / (2 * sigma**2), 3).unbind(3)
    for axis, sides in ((2, (0, 0, reach, reach)), (3, (reach, reach, 0, 0))):
        padded = pad(values, sides, "reflect")
        shifted = (padded.narrow(axis, first, size) * weight[..., None] for first, weight in enumerate(weights))
        values = functools.reduce(torch.add, shifted)
    return values
