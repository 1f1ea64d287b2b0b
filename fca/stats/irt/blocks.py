"""Many small symmetric systems at once, one a group of items, the group on the last axis."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError


def cholesky(block: Float[np.ndarray, "k k groups"]) -> Float[np.ndarray, "k k groups"]:
    """Lower triangles L with L Lᵀ = block; raises LinAlgError if any block is not positive.

    >>> cholesky(np.array([[[4.0]]]))
    array([[[2.]]])
    """
    lower = np.zeros_like(block)
    for i in range(len(block)):
        for j in range(i + 1):
            left = block[i, j] - np.einsum("kg,kg->g", lower[i, :j], lower[j, :j])
            if i == j and not (left > 0).all():
                raise LinAlgError(f"{int((~(left > 0)).sum())} blocks of items are not positive")
            lower[i, j] = np.sqrt(left) if i == j else left / lower[j, j]
    return lower


def forward(lower: Float[np.ndarray, "k k groups"], right: Float[np.ndarray, "k *any groups"]) -> None:
    """L⁻¹ right, in place."""
    for i in range(len(lower)):
        for j in range(i):
            right[i] -= lower[i, j] * right[j]
        right[i] /= lower[i, i]


def backward(lower: Float[np.ndarray, "k k groups"], right: Float[np.ndarray, "k *any groups"]) -> None:
    """L⁻ᵀ right, in place."""
    for i in reversed(range(len(lower))):
        for j in range(i + 1, len(lower)):
            right[i] -= lower[j, i] * right[j]
        right[i] /= lower[i, i]
