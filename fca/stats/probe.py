"""A linear classifier on frozen features, solved exactly for every regularisation at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from fca.types import FcaError

PENALTIES = np.logspace(-6, 3, 19)  # as shares of the mean variance of a feature times the number of images


@dataclass(frozen=True)
class Probe:
    """logits = features @ weight.T + bias; their softmax are probabilities that fit the val images best.

    penalty:  the chosen one of PENALTIES.    val_top1: accuracy of that choice on the images that made it.
    """

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, " classes"]
    penalty: float
    val_top1: float

    def logits(self, features: Float[np.ndarray, "images features"]) -> Float[np.ndarray, "images classes"]:
        """Of any number of images."""
        logits: Float[np.ndarray, "images classes"] = features.astype(np.float64) @ self.weight.T + self.bias
        return logits


def fit_probe(
    train: Float[np.ndarray, "train features"],
    labels: Integer[np.ndarray, " train"],
    val: Float[np.ndarray, "val features"],
    val_labels: Integer[np.ndarray, " val"],
) -> Probe:
    """Ridge regression onto one-hot classes (Hoerl and Kennard 1970), its penalty chosen on val.

    W = (X'X + λ n v I)^-1 X'Y with X and Y centred and v the mean variance of a feature: an intercept that is not
    penalised, and a λ that means the same for any encoder. One eigendecomposition of X'X (or of X X', whichever is
    smaller) answers for all of PENALTIES, n d min(n, d) operations in all. Of penalties with equal accuracy on val the
    one with the smallest squared error there is taken, then the largest. The logits are the regression's answers times
    the temperature that makes val likeliest.

    labels: 0..classes-1, each at least once in train. Raises FcaError otherwise, and without val images.

    >>> x, y = np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.array([0, 0, 1, 1])
    >>> fit_probe(x, y, x, y).logits(np.array([[-3.0], [3.0]])).argmax(axis=1)
    array([0, 1])
    """
    classes = _classes(labels, val_labels)
    x, target = train.astype(np.float64), np.eye(classes)[labels]
    x_mean, y_mean = x.mean(axis=0), target.mean(axis=0)
    x -= x_mean
    directions, spectrum = _directions(x)
    inner = (x @ directions).T @ (target - y_mean)
    seen = (val.astype(np.float64) - x_mean) @ directions
    unit = max(float(np.square(x).mean()), np.finfo(np.float64).tiny) * len(x)
    answers = [seen @ (inner / (spectrum + penalty * unit)[:, None]) + y_mean for penalty in PENALTIES]
    right = [float((answer.argmax(axis=1) == val_labels).mean()) for answer in answers]
    wrong = [float(np.square(answer - np.eye(classes)[val_labels]).mean()) for answer in answers]
    best = max(range(len(PENALTIES)), key=lambda k: (right[k], -wrong[k], PENALTIES[k]))
    penalty = float(PENALTIES[best])
    weight = (directions @ (inner / (spectrum + penalty * unit)[:, None])).T
    scale = _temperature(answers[best], val_labels)
    return Probe(scale * weight, scale * (y_mean - weight @ x_mean), penalty, right[best])


def _classes(labels: Integer[np.ndarray, " train"], val_labels: Integer[np.ndarray, " val"]) -> int:
    counts = np.bincount(labels)
    if len(counts) < 2 or (counts == 0).any() or not len(val_labels) or val_labels.max() >= len(counts):
        found = f"{counts.tolist()} train images a class, {len(val_labels)} val images"
        raise FcaError(
            "images of a probe", found, "two classes or more, each in train, and val images of them", "add some"
        )
    return len(counts)


def _directions(
    x: Float[np.ndarray, "images features"],
) -> tuple[Float[np.ndarray, "features rank"], Float[np.ndarray, " rank"]]:
    """Orthonormal directions that the centred features vary along, and the sum of squares along each."""
    wide = x.shape[1] > x.shape[0]
    spectrum, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    kept = spectrum > spectrum.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    spectrum, vectors = spectrum[kept], vectors[:, kept]
    return (x.T @ vectors / np.sqrt(spectrum) if wide else vectors), spectrum


def _temperature(answers: Float[np.ndarray, "val classes"], labels: Integer[np.ndarray, " val"]) -> float:
    """The factor between 1 and 1,000 that makes the labels likeliest (arXiv:1706.04599, one number)."""
    rows = np.arange(len(labels))

    def surprise(log_factor: float) -> float:
        logits = answers * np.exp(log_factor)
        return float((logsumexp(logits, axis=1) - logits[rows, labels]).mean())

    return float(np.exp(minimize_scalar(surprise, bounds=(0.0, np.log(1000.0)), method="bounded").x))
