"""How much a network leans on the object, from accuracies and saliency maps."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

# Saliency


def mask_iou(
    salient: Bool[np.ndarray, "images height width"], mask: Bool[np.ndarray, "images height width"]
) -> Float[np.ndarray, " images"]:
    """Intersection over union of the salient pixels and the object; NaN where the object's mask is empty.

    An image without a salient pixel has 0 (Hard ImageNet, Moayeri et al. 2022, section 4.3).

    >>> mask_iou(np.array([[[True, True, False]]]), np.array([[[False, True, True]]])).round(3)
    array([0.333])
    """
    inside, either = ((part).sum(axis=(1, 2)) for part in (salient & mask, salient | mask))
    return np.divide(inside, either, out=np.full(len(mask), np.nan), where=mask.any(axis=(1, 2)))


def mass_inside(
    saliency: Float[np.ndarray, "images height width"], mask: Bool[np.ndarray, "images height width"]
) -> Float[np.ndarray, " images"]:
    """Share of a non-negative map's sum inside the object; NaN for an empty mask and for a map of zeros.

    A map that ignores the object has the object's share of the image.

    >>> mass_inside(np.array([[[3.0, 1.0]]]), np.array([[[True, False]]]))
    array([0.75])
    """
    inside, whole = (part.sum(axis=(1, 2), dtype=np.float64) for part in (saliency * mask, saliency))
    return np.divide(inside, whole, out=np.full(len(mask), np.nan), where=mask.any(axis=(1, 2)) & (whole > 0))


def density_gap(
    saliency: Float[np.ndarray, "images height width"], mask: Bool[np.ndarray, "images height width"]
) -> Float[np.ndarray, " images"]:
    """Mean of a map on the object minus its mean off it; NaN where either region is empty.

    >>> density_gap(np.array([[[0.75, 0.25, 0.0]]]), np.array([[[True, False, False]]]))
    array([0.625])
    """
    means = []
    for region in (mask, ~mask):
        n, total = region.sum(axis=(1, 2)), (saliency * region).sum(axis=(1, 2), dtype=np.float64)
        means.append(np.divide(total, n, out=np.full(len(mask), np.nan), where=n > 0))
    return means[0] - means[1]


def centre_distance(mask: Bool[np.ndarray, "height width"]) -> float:
    """Distance of the object's centroid from the image's centre, in half diagonals: 0 to 1; NaN for an empty mask.

    >>> centre_distance(np.ones((2, 2), bool)), round(centre_distance(np.array([[True, False]])), 3)
    (0.0, 0.447)
    """
    if not mask.any():
        return float("nan")
    at = np.mean(np.nonzero(mask), axis=1) + 0.5 - np.array(mask.shape) / 2
    return float(np.hypot(*at) / (np.hypot(*mask.shape) / 2))
