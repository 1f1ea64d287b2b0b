"""What a prediction is worth: right or wrong, every class alike, or by the costs of the user's own confusions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

Labels = Integer[np.ndarray, " images"]
PerImage = Float[np.ndarray, " images"]
ACCURACY, BALANCED = "accuracy", "balanced"


@dataclass(frozen=True)
class Metric:
    """The mean over images of `weights` times `scores`, in [0, 1].

    name: accuracy, the share of images that are right; or balanced, the mean over classes of that share (Brodersen et
    al. 2010, doi:10.1109/ICPR.2010.764), where a class of 20 images counts as much as one of 2,000.
    """

    name: str = ACCURACY

    def scores(self, labels: Labels, predicted: Labels) -> PerImage:
        """1 where a prediction is right, 0 where it is wrong."""
        return (labels == predicted).astype(np.float64)

    def weights(self, labels: Labels) -> PerImage:
        """How much each image counts; their mean is 1.

        >>> Metric("balanced").weights(np.array([0, 0, 0, 1]))
        array([0.66666667, 0.66666667, 0.66666667, 2.        ])
        """
        if self.name == ACCURACY:
            return np.ones(len(labels))
        _, of_class, counts = np.unique(labels, return_inverse=True, return_counts=True)
        return len(labels) / (len(counts) * counts[of_class])

    def value(self, labels: Labels, predicted: Labels) -> float:
        """The metric of these predictions.

        >>> Metric("balanced").value(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]))
        0.5
        """
        return float(np.mean(self.weights(labels) * self.scores(labels, predicted)))
