"""Apply the draws of fca/training/augment.py to a batch of images on its device: crops, operations, erasing; in torch.

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
CHUNK_PIXELS = 2**16  # output pixels that a CPU works on at a time, so that its cache holds all intermediate results


def crop_and_resize(
    pixels: UInt8[Tensor, "pixels 3"], windows: Int64[Tensor, "batch 7"], size: int
) -> UInt8[Tensor, "batch size size 3"]:
    """Crop, resize and mirror images of different shapes by one gather: bilinear, without antialiasing.

    pixels:  the pixels of all images, one image after another, row by row.
    windows: for each image where it begins in `pixels` and its width; of its crop the top, left, height and width; and
             whether it is mirrored (1 or 0).
    size:    side of the results.
    """
    chunks = _slices_for_cache(len(windows), size, pixels.device)
    return torch.cat([_crop_and_resize_chunk(pixels, windows[chunk], size) for chunk in chunks])


def _slices_for_cache(images: int, size: int, device: torch.device) -> list[slice]:
    """Slices of a batch, each of which is worked on at once: a few images on a CPU, all of them elsewhere."""
    step = max(1, CHUNK_PIXELS // size**2) if device.type == "cpu" else images
    return [slice(start, start + step) for start in range(0, images, step)]


def _crop_and_resize_chunk(pixels: Tensor, windows: Tensor, size: int) -> Tensor:
    """Crop and resize a few images: an output pixel is a mean of 2 x 2 source pixels, weighted by position.

    pixels:  the pixels of all images, one image after another: (pixels, 3).
    windows: for each image where it begins in `pixels` and its width; of its crop the top, left, height and width; and
             whether the crop is mirrored (1 or 0): (images, 7).
    size:    side of the output images in pixels.
    """
    start, image_width, top, left, height, width, is_mirrored = windows[:, :, None].unbind(1)  # each images x 1
    steps = torch.arange(size, device=pixels.device)  # the output pixels along one side
    steps_x = torch.where(is_mirrored > 0, size - 1 - steps, steps)  # a mirrored crop is read from right to left
    # Each output pixel lies between two source rows and two source columns (2 x images x size, counted within the
    # crop). Its position between them is the weight of the second, which is below or at the right (images x size).
    rows, weight_below = _neighbours_and_weight(height, steps, size)
    columns, weight_right = _neighbours_and_weight(width, steps_x, size)

    # Positions in `pixels` of the four source pixels: 2 rows x 2 columns x images x size x size.
    row_starts = (start + (top + rows) * image_width + left)[:, None, :, :, None]
    index = row_starts + columns[None, :, :, None, :]
    corners = pixels.index_select(0, index.flatten()).view(2, 2, -1, size, 3 * size).float()

    # The mean of the left and the right pixel, in both rows: each images x size x (size * 3 channels).
    weight_right = weight_right.repeat_interleave(3, 1)[:, None, :]  # the same for the 3 channels
    above, below = torch.lerp(corners[:, 0], corners[:, 1], weight_right)

    # Then the mean of the two rows.
    resized = torch.lerp(above, below, weight_below[:, :, None])
    return resized.round_().to(torch.uint8).view(-1, size, size, 3)


def _neighbours_and_weight(extent: Tensor, steps: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The two source pixels between which each output pixel lies along one axis, and the weight of the second.

        position = (step + 1/2) extent / size - 1/2,   first = floor(position),   weight = position - first

    extent: pixels of each image's crop along the axis (images x 1), which are resized to `size`.
    steps:  the output pixels 0, 1, ..., size - 1; in reverse for a mirrored image.
    Returns the source pixels, counted from the beginning of the crop, as 2 x images x size, and the weights as images x
    size. An output pixel beyond the crop's first or last pixel takes that pixel: hence `clamp` and `minimum`.
    """
    position = ((steps + 0.5) * (extent / size) - 0.5).clamp(min=0)
    first = position.long()
    second = (first + 1).minimum(extent - 1)
    return torch.stack([first, second]), position - first


def apply_changes(
    images: Float32[Tensor, "batch 3 size size"], changes: Changes
) -> Float32[Tensor, "batch 3 size size"]:
    """Apply the operations of `changes` to images in [0, 1], and return images in [0, 1].

    Operations work on bytes, so the result has 256 different values. On a CPU, the batch is changed in chunks of a few
    images, which fit into its cache. Rectangles are not erased here: `erase` follows after the images are normalised.
    """
    n_rounds = changes.operation.shape[1]
    if n_rounds == 0:  # no operation is applied to any image: they are not rounded to bytes
        return images

    results = []
    for chunk in _slices_for_cache(len(images), images.shape[-1], images.device):
        chunk_changes = Changes(*(values[chunk] for values in changes))
        results.append(_change_chunk(images[chunk], chunk_changes))
    return torch.cat(results)


def _change_chunk(images: Tensor, changes: Changes) -> Tensor:
    """`apply_changes` for a few images: round by round, each operation to the images that have it in this round."""
    levels = (images * 255).round_().to(torch.uint8).contiguous()  # grey levels from 0 to 255
    for operation, strength in zip(changes.operation.T, changes.strength.T, strict=True):  # each of one round
        for number in set(operation.tolist()) - {0}:  # 0: identity
            rows = np.flatnonzero(operation == number)
            device_rows = torch.from_numpy(rows).to(levels.device)
            levels[device_rows] = apply(OPERATIONS[number], levels[device_rows], strength[rows])
    return levels.float().div_(255)


def erase(images: Float[Tensor, "batch 3 size size"], boxes: Int[np.ndarray, "batch 4"]) -> Tensor:
    """Fill a rectangle of each normalised image with standard normal noise, in place; return the images.

    boxes: top, left, height and width in pixels for each image; height 0 = nothing is erased.
    """
    changed = np.flatnonzero(boxes[:, 2])  # the images of which something is erased
    device_changed = torch.from_numpy(changed).to(images.device)
    device_boxes = torch.from_numpy(boxes[changed]).to(images.device)

    top, left, height, width = device_boxes[:, :, None].unbind(1)  # each (changed images) x 1
    steps = torch.arange(images.shape[-1], device=images.device)
    is_erased_row = (steps >= top) & (steps < top + height)
    is_erased_column = (steps >= left) & (steps < left + width)
    is_erased = is_erased_row[:, :, None] & is_erased_column[:, None]  # (changed images) x size x size

    originals = images[device_changed]
    images[device_changed] = torch.where(is_erased[:, None], torch.randn_like(originals), originals)
    return images


def apply(name: str, images: Bytes, strength: Strength) -> Bytes:
    """Apply one operation to uint8 images, each with its own strength.

    name:     one of OPERATIONS but identity.
    strength: tangent of a shear, pixels of a translation, degrees of a rotation; bits that posterize keeps; threshold
              of solarize, from 0 to 1 = white; sigma of a blur in pixels; relative change of brightness, color,
              contrast and sharpness. The other operations ignore it.
    """
    if name in AFFINE:  # shears, translations and the rotation
        return _affine_transformed(name, images, strength)

    strengths = torch.from_numpy(strength.astype(np.float32)).to(images.device)[:, None, None, None]
    match name:  # the first two cases have no strength
        case "autocontrast" | "equalize" | "invert":
            return getattr(imported("torchvision.transforms.v2.functional"), name)(images)
        case "grayscale":
            return imported("torchvision.transforms.v2.functional").rgb_to_grayscale(images, 3)
        case "posterize":  # a mask keeps the upper bits, as many as the strength
            return images & (256 - 2 ** (8 - strengths)).to(torch.uint8)
        case "solarize":
            return torch.where(images >= strengths * 255, ~images, images)
        case "blur":
            return _blurred(images.float(), strengths).round_().to(torch.uint8)

    # The others (brightness, color, contrast, sharpness) blend: v + (v - base) strength.
    values = images.float()
    blended = values + (values - _blend_base(name, values)) * strengths
    return blended.clamp_(0, 255).to(torch.uint8)


def _affine_transformed(name: str, images: Bytes, strength: Strength) -> Bytes:
    """Shear, translate or rotate each image by an affine map from an output pixel (x, y) to the input pixel it shows:

        x_in = a x + b y + c,   y_in = d x + e y + f,   in pixels from the centre, x to the right and y down.

    The nearest input pixel is taken; pixels from outside of the image are black.

    name:     one of AFFINE.
    strength: one for each image: tangent of a shear, pixels of a translation, degrees of a rotation.
    """
    size = images.shape[-1]
    half = size / 2
    ones = np.ones_like(strength)
    zeros = np.zeros_like(strength)
    sine = np.sin(np.deg2rad(strength))
    cosine = np.cos(np.deg2rad(strength))
    # (a, b, c), (d, e, f): each coefficient has one number for each image. A shear leaves the upper left corner in its
    # place: y + half is the distance from the upper edge. A translation by s pixels shows the pixel s pixels before.
    coefficients = {
        "shear_x": ((ones, strength, strength * half), (zeros, ones, zeros)),
        "shear_y": ((ones, zeros, zeros), (strength, ones, strength * half)),
        "translate_x": ((ones, zeros, -strength), (zeros, ones, zeros)),
        "translate_y": ((ones, zeros, zeros), (zeros, ones, -strength)),
        "rotate": ((cosine, -sine, zeros), (sine, cosine, zeros)),
    }[name]

    # grid_sample wants x_in and y_in from -1 to 1 instead of -half to half pixels, so all coefficients are divided.
    scaled = (np.array(coefficients) / half).astype(np.float32)  # 2 rows x 3 coefficients x images
    (a, b, c), (d, e, f) = torch.from_numpy(scaled).to(images.device)[..., None, None]  # each images x 1 x 1
    x = torch.arange(size, device=images.device) - (size - 1) / 2  # centres of the output pixels, along a row
    y = x[:, None]

    # Sums, not a matrix product, which mixed precision would round.
    x_in = a * x + b * y + c  # images x size x size
    y_in = d * x + e * y + f
    grid = torch.stack([x_in, y_in], -1)
    return grid_sample(images.float(), grid, "nearest", align_corners=False).to(torch.uint8)


def _blend_base(name: str, values: Tensor) -> Tensor:
    """The image with which a blending operation blends each image; a positive strength moves the image away from it.

    name:   the operation, which decides what the base is.
            brightness: black.
            color: the image in grey.
            contrast: one grey at every pixel, the mean of the image in grey.
            sharpness: the image blurred over 3 x 3 pixels, but unchanged at its edge.
    values: the images: images x 3 x size x size, from 0 to 255.

    The result has the shape of `values`, or one that broadcasts to it.
    """
    if name == "brightness":
        return torch.zeros_like(values)

    if name == "sharpness":
        # The kernel has 5 at its centre and 1 around it, over 13: the sum of 9 pixels and 4 times the centre.
        inner = values[:, :, 1:-1, 1:-1]
        neighbourhood_sum = avg_pool2d(values, 3, 1, divisor_override=1)
        blurred = ((neighbourhood_sum + 4 * inner) / 13).round_()
        return values + pad(blurred - inner, (1, 1, 1, 1))

    red, green, blue = values.unbind(1)
    grey = (red * 0.2989 + green * 0.587 + blue * 0.114).floor_()[:, None]
    return grey if name == "color" else grey.mean((2, 3), keepdim=True)


def _blurred(values: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur with a sigma for each image, one axis after the other; edges are mirrored.

        blurred(x) = sum_k weight(k) value(x + k),   weight(k) = exp(-k² / (2 sigma²)) / sum,   k = -reach, ..., reach

    values: images x channels x size x size.
    sigma:  images x 1 x 1 x 1, in pixels.
    These are sums and no convolution, since mixed precision would round a convolution.
    """
    size = values.shape[-1]
    reach = min(BLUR_REACH, size - 1)
    k = torch.arange(-reach, reach + 1, device=values.device)
    weights = torch.softmax(-(k**2) / (2 * sigma**2), 3).unbind(3)  # softmax: the exponentials over their sum

    for axis, padding in ((2, (0, 0, reach, reach)), (3, (reach, reach, 0, 0))):
        padded = pad(values, padding, "reflect")
        weighted = (padded.narrow(axis, start, size) * weight[..., None] for start, weight in enumerate(weights))
        values = functools.reduce(torch.add, weighted)
    return values
