"""Metrics of predictions: accuracy, balanced accuracy, or the user's costs of confusions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import softmax

from fca.costs import Costs, format_cost

Labels = Integer[np.ndarray, " images"]
PerImage = Float[np.ndarray, " images"]
ACCURACY, BALANCED, BY_COST = "accuracy", "balanced", "cost"
POINT = 0.01  # of accuracy: one mistake in a hundred images


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric of predictions: the mean over images of `weights` times `scores`, in [0, 1]; higher is better.

    name:  accuracy: the share of images that are right. balanced: the mean over classes of that share (Brodersen et
           al. 2010, doi:10.1109/ICPR.2010.764), where a class of 20 images counts as much as one of 2,000. cost: an
           image's score is 1 - excess / largest, where the excess is its cost above that of the cheapest answer for
           its true class, and `largest` is the largest excess.
    costs: those of the job's classes, in their order, if the name is cost; else None.
    base:  the mean over images of the cheapest answer's cost, which is 0 if right answers cost nothing.
    """

    name: str = ACCURACY
    costs: Costs | None = None
    base: float = 0.0

    @property
    def largest(self) -> float:
        """The largest excess of a cost, which has a score of 0; 1 without costs."""
        return 1.0 if self.costs is None else float(self.costs.excess.max())

    @property
    def losses(self) -> Float[np.ndarray, " mistakes"]:
        """1 - score for every possible mistake: with costs, for each pair of a true class and another answer."""
        return np.ones(1) if self.costs is None else self.costs.mistakes / self.largest

    @property
    def point(self) -> float:
        """The decrease of the metric for one more mistake in a hundred images, if all mistakes are equally likely."""
        return POINT * float(self.losses.mean())

    def margin(self, within: float | None) -> float:
        """Convert a difference that a user typed to the scale of this metric.

        within: in points (hundredths of accuracy), or with costs as a cost per image. None: one `point`.
        """
        if within is None:
            return self.point
        return within / 100 if self.costs is None else within / self.largest

    def difference(self, margin: float) -> str:
        """A difference on the scale of this metric in words: in points, or with costs as a cost per image.

        >>> Metric().difference(0.01), Metric().difference(0.025)
        ('1 points', '2.5 points')
        """
        if self.costs is None:
            return f"{100 * margin:.3g} points"
        return f"{format_cost(margin * self.largest)} an image"

    def decide(self, outputs: Float[np.ndarray, "images classes"]) -> Labels:
        """The predicted class of each image: that of the largest output, or with costs that of least expected cost.

        With costs the outputs must be logits, whose softmax gives the probabilities.
        """
        if self.costs is None:
            return outputs.argmax(axis=1)
        probabilities = softmax(outputs.astype(np.float64), axis=1)
        return self.costs.answers(probabilities)

    def scores(self, labels: Labels, predicted: Labels) -> PerImage:
        """The score of each image: 1 if it is right, 0 if it is wrong; with costs 1 - excess / largest."""
        if self.costs is None:
            return (labels == predicted).astype(np.float64)
        return 1 - self.costs.excess[labels, predicted] / self.largest

    def weights(self, labels: Labels) -> PerImage:
        """The weight of each image; their mean is 1.

        For the balanced metric they are inversely proportional to the size of the class, and otherwise all 1.

        >>> Metric("balanced").weights(np.array([0, 0, 0, 1]))
        array([0.66666667, 0.66666667, 0.66666667, 2.        ])
        """
        if self.name != BALANCED:
            return np.ones(len(labels))
        # class_of_image: each image's position among the classes that occur; class_sizes: their numbers of images
        _, class_of_image, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
        n_classes = len(class_sizes)
        return len(labels) / (n_classes * class_sizes[class_of_image])

    def value(self, labels: Labels, predicted: Labels) -> float:
        """The metric of these predictions.

        >>> Metric("balanced").value(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0]))
        0.5
        """
        return float(np.mean(self.weights(labels) * self.scores(labels, predicted)))

    def cost(self, score: float) -> float:
        """The mean cost of an image at a mean score."""
        return self.base + self.largest * (1 - score)
