"""Random flips, translations and resized crops of a whole batch at once, on the batch's own device."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn.functional import grid_sample

DRAWS = 7  # random numbers an image: flip, shift x, shift y, area, aspect, place x, place y
ASPECT = math.log(4 / 3)  # crops are at most 4:3 or 3:4, as in torchvision's RandomResizedCrop


def warp(
    images: Float[Tensor, "batch 3 size size"],
    draws: Float32[Tensor, "batch draws"],
    flip: bool,
    shift: float,
    scale_min: float,
) -> Float[Tensor, "batch 3 size size"]:
    """Every image seen through its own random window: x_in = a x_out + t along each axis, in one bilinear sampling.

    a is the window's share of the side (negative when mirrored), t its centre plus the shift; x runs from -1 to 1.

    draws:     uniform in [0, 1), DRAWS of them an image.
    flip:      mirror the images whose first number is below one half.
    shift:     up to this share of the side, in whole pixels, equally likely; outside the image is 0.
    scale_min: the window's area is uniform in [scale_min, 1], its log aspect in ±log(4/3); what sticks out is cut off
               (torchvision draws again, which makes large windows rarer).
    """
    size = images.shape[-1]
    mirrored, shifts, area, aspect, places = draws[:, :1], draws[:, 1:3], draws[:, 3:4], draws[:, 4:5], draws[:, 5:7]
    reach = round(shift * size)
    centre = 2 / size * ((shifts * (2 * reach + 1)).floor() - reach)
    share = torch.ones_like(shifts)
    if scale_min < 1:
        side = (scale_min + (1 - scale_min) * area).sqrt()
        stretch = ((aspect - 0.5) * ASPECT).exp()  # the square root of the aspect: log aspect is in ±ASPECT
        share = torch.cat([side * stretch, side / stretch], 1).clamp(max=1)
        centre = centre + (2 * places - 1) * (1 - share)
    if flip:
        share = share * torch.cat([torch.where(mirrored < 0.5, -1.0, 1.0), torch.ones_like(mirrored)], 1)
    pixel = (torch.arange(size, device=images.device) * 2 + 1) / size - 1
    across, down = (share[:, i : i + 1] * pixel + centre[:, i : i + 1] for i in (0, 1))
    grid = torch.stack([across[:, None, :].expand(-1, size, -1), down[:, :, None].expand(-1, -1, size)], 3)
    return grid_sample(images, grid.to(images.dtype), padding_mode="zeros", align_corners=False)
