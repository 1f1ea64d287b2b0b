"""How accurate a classifier will be with more training images, from its accuracy with fewer.

    Φ^-1(accuracy(n')) = η + b x + c x² / 2,    x = log2(n' / n)

n is the number of training images that there are, η the accuracy with all of them, b what a doubling adds at n, and c
how much more the next doubling adds. A line in the logarithm of n on such a scale is close to the power law of the
error (Cortes et al. 1993, NeurIPS 6; Hestness et al. 2017, arXiv:1712.00409), and no accuracy leaves 0 to 1. The three
numbers of a job are normal around those of other jobs. Measured accuracies update them in closed form, with the noise
that sizes share because the same images judge them (Gelman et al. 2013, chapter 14). Of five scales and two degrees,
this one predicted unseen data sets best: experiments/recommend/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num
from scipy.special import ndtr, ndtri  # not scipy.stats, which takes half a second to import

from fca.types import FcaError

PSEUDO_IMAGES = 1.0  # added to those that judge, half right: one half shared by all sizes, one of each size by itself
MOST_TIMES = 4.0  # times as many images, up to which predictions were compared with the truth,
MOST_A_CLASS = 160.0  # and images a class
ITERATIONS = 60  # of expectation and maximisation: the last ones change a standard deviation by less than 1 %
DRAWS, DRAW_SEED = 4000, 0

OfCurve = Float[np.ndarray, "3"]
BetweenCurves = Float[np.ndarray, "3 3"]
PerSize = Num[np.ndarray, " sizes"]
BetweenSizes = Float[np.ndarray, "sizes sizes"]


class Hyperparameters(NamedTuple):
    """What other jobs show of curves.

    mean, covariance: of (η, b, c).
    fit_sd: of one probe around the mean of all that are fitted to as many images of the job, on the same scale.
    """

    mean: OfCurve
    covariance: BetweenCurves
    fit_sd: float

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "covariance": self.covariance.tolist(), "fit_sd": self.fit_sd}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Hyperparameters:
        return cls(np.array(content["mean"]), np.array(content["covariance"]), float(content["fit_sd"]))


class Measured(NamedTuple):
    """Accuracies with several numbers of training images, judged by the same images.

    sizes: training images.    fits: classifiers of each size.    accuracy: their mean.
    covariance: between sizes, of the share of the classifiers that is right about an image.
    images: that judge; where they have weights w, their effective number (sum w)² / sum w².
    """

    sizes: PerSize
    fits: PerSize
    accuracy: PerSize
    covariance: BetweenSizes
    images: float


class Job(NamedTuple):
    """A curve of an earlier job, and what more images brought.

    n: training images of the job.    judged: with n images and fewer.    tested: on other images, with n and more.
    """

    dataset: str
    n: int
    judged: Measured
    tested: Measured


def measured_from(
    sizes: PerSize,
    fits: PerSize,
    right: Float[np.ndarray, "sizes images"],
    weights: Num[np.ndarray, " images"] | None = None,
) -> Measured:
    """Accuracies with several numbers of training images (sizes), and their covariance: the same images judge them all.

    The covariance is between the results of two sizes on one judging image. Divided by the effective number of these
    images, it is the covariance of the accuracies.

    sizes, fits: the numbers of training images, and how many classifiers were fitted with each.
    right:   share of the classifiers of each size that are right about each image.
    weights: how much each image counts; None: all the same.

    accuracy = Σ w right / Σ w,   covariance = Σ w² (right - accuracy) (right - accuracy)' / Σ w²,   over the images
    effective number of images = (Σ w)² / Σ w²

    >>> right = np.array([[1, 1, 1, 0], [1, 0.5, 0.5, 0]])
    >>> measured = measured_from(np.array([8, 4]), np.array([1, 2]), right)
    >>> measured.accuracy, measured.images
    (array([0.75, 0.5 ]), 4.0)
    """
    image_weights = np.ones(right.shape[1]) if weights is None else np.asarray(weights, float)
    total = image_weights.sum()
    accuracy = right @ image_weights / total
    deviations = right - accuracy[:, None]  # sizes x images
    squared_weights = image_weights**2
    covariance = (deviations * squared_weights) @ deviations.T / squared_weights.sum()
    effective_images = float(total**2 / squared_weights.sum())
    return Measured(sizes, fits, accuracy, covariance, effective_images)


def observed(measured: Measured) -> tuple[PerSize, BetweenSizes]:
    """Normal quantiles Φ^-1 of the accuracies, and the covariance of their noise by the choice of judging images.

    measured.accuracy has the mean accuracy of each size, and measured.covariance the covariance between sizes for one
    image. Divided by the number of images, it is the covariance of the mean accuracies. Multiplied by the slopes of
    Φ^-1, it becomes the covariance of Φ^-1 of the accuracies (delta method).

    PSEUDO_IMAGES, half of them right, are added to the images, so that all values are finite where all images are
    right. Raises FcaError for accuracies outside of 0 to 1.
    """
    outside = measured.accuracy[~((measured.accuracy >= 0) & (measured.accuracy <= 1))]
    if len(outside):
        raise FcaError("accuracy", outside[0], "0 to 1", "give fractions")

    total = measured.images + PSEUDO_IMAGES
    accuracy = (measured.accuracy * measured.images + PSEUDO_IMAGES / 2) / total
    # half of the pseudo-images are the same for all sizes, the others are separate for each: added to the covariance,
    # they make accuracies of different sizes neither fully correlated nor independent where all images are right
    typical_sd = np.sqrt(accuracy * (1 - accuracy))
    shared = np.outer(typical_sd, typical_sd)
    separate = np.diag(np.diag(shared))
    pseudo_covariance = PSEUDO_IMAGES / 2 * (shared + separate)
    # sums over images: divided by the number of images they are the covariance on one image, and divided by it again
    # they are the covariance of the mean
    covariance = (measured.covariance * measured.images + pseudo_covariance) / total**2

    value = ndtri(accuracy)
    slope = np.sqrt(2 * np.pi) * np.exp(value**2 / 2)  # of Φ^-1: 1 / normal density
    return value, covariance * np.outer(slope, slope)


def design(sizes: PerSize, n: float | int) -> Float[np.ndarray, "sizes 3"]:
    """The matrix that turns (η, b, c) into Φ^-1 of the accuracies with these numbers of training images.

    n: training images of the job.

    >>> design(np.array([20, 40, 10]), 20)
    array([[ 1. ,  0. ,  0. ],
           [ 1. ,  1. ,  0.5],
           [ 1. , -1. ,  0.5]])
    """
    x = np.log2(sizes / n)
    return np.stack([np.ones_like(x), x, x**2 / 2], axis=1)


@dataclass(frozen=True)
class Forecast:
    """A job's curve: (η, b, c) given its images.

    n: its training images.    mean, covariance: of (η, b, c).    fit_sd: see Hyperparameters.
    """

    n: float
    mean: OfCurve
    covariance: BetweenCurves
    fit_sd: float

    def accuracy(self, sizes: PerSize) -> PerSize:
        """Expected accuracy on images like those that judged, of a probe on so many training images.

        The mean of Φ(y) over y ~ N(m, sd²) is Φ(m / sqrt(1 + sd²)).
        """
        centre, sd = self._normal(sizes)
        return ndtr(centre / np.sqrt(1 + sd**2))

    def interval(self, sizes: PerSize, level: float = 0.9) -> tuple[PerSize, PerSize]:
        """Ends of the central interval of the accuracy of a probe, for each number of training images."""
        centre, sd = self._normal(sizes)
        z = ndtri((1 + level) / 2)
        return ndtr(centre - z * sd), ndtr(centre + z * sd)

    def gain(self, size: float, level: float = 0.9) -> tuple[float, float, float]:
        """Accuracy with so many training images minus that with all there are: its mean and the ends of its interval.

        Both accuracies are those of a new fit, so that the luck of one fit does not count as a gain.
        """
        draws = self.draws(np.array([self.n, size]))
        gains = draws[:, 1] - draws[:, 0]
        low, high = np.quantile(gains, ((1 - level) / 2, (1 + level) / 2))
        return float(gains.mean()), float(low), float(high)

    def draws(self, sizes: PerSize) -> Float[np.ndarray, "draws sizes"]:
        """Accuracies of probes on so many training images, jointly."""
        rng = np.random.default_rng(DRAW_SEED)
        curves = rng.multivariate_normal(self.mean, self.covariance, size=DRAWS, method="eigh")
        values = curves @ self._design(sizes).T
        return ndtr(values + self.fit_sd * rng.normal(size=values.shape))

    def _normal(self, sizes: PerSize) -> tuple[PerSize, PerSize]:
        """Mean and standard deviation of Φ^-1 of the accuracy of one probe at each size."""
        matrix = self._design(sizes)
        # s: sizes; i, j: the numbers of the curve
        variance = np.einsum("si,ij,sj->s", matrix, self.covariance, matrix)
        return matrix @ self.mean, np.sqrt(variance + self.fit_sd**2)

    def _design(self, sizes: PerSize) -> Float[np.ndarray, "sizes 3"]:
        """The `design` of these sizes. Raises FcaError beyond MOST_TIMES the images of the job."""
        most = MOST_TIMES * self.n
        if (np.asarray(sizes) > most * (1 + 1e-9)).any():  # a multiple of n may be rounded up
            step = "ask for fewer; predictions farther away were never compared with the truth"
            raise FcaError("training images", f"{np.max(sizes):g}", f"at most {most:g}, {MOST_TIMES:g} n", step)
        return design(sizes, self.n)


def reach(n: float | int, classes: int) -> float:
    """The largest number of training images for which accuracy may be predicted: no more than predictions were checked.

    n: training images of the job, in `classes` classes.

    >>> reach(200, classes=10), reach(1200, classes=10), reach(5000, classes=10)
    (800.0, 1600.0, 5000.0)
    """
    return float(max(n, min(MOST_TIMES * n, MOST_A_CLASS * classes)))


def forecast(hyperparameters: Hyperparameters, measured: Measured, n: float | int) -> Forecast:
    """The curve of a job with n training images, from accuracies with these and with parts of them.

    >>> prior = Hyperparameters(np.array([1.3, 0.2, 0.0]), np.diag([0.4, 0.01, 0.001]), 0.07)
    >>> sizes, accuracy = np.array([80, 40, 20]), np.array([0.85, 0.8, 0.75])
    >>> noise = 0.1 * np.eye(3) + 0.05
    >>> curve = forecast(prior, Measured(sizes, np.array([1, 8, 16]), accuracy, noise, 100), n=80)
    >>> curve.accuracy(np.array([80, 160])).round(2)
    array([0.85, 0.89])
    """
    value, noise = observed(measured)
    noise = noise + np.diag(hyperparameters.fit_sd**2 / measured.fits)
    posterior = _update(hyperparameters, value, noise, design(measured.sizes, n))
    return Forecast(float(n), posterior.mean, posterior.covariance, hyperparameters.fit_sd)


class _Posterior(NamedTuple):
    """The posterior of (η, b, c), and what the prior predicted of the observations.

    mean, covariance: of (η, b, c).
    total:            covariance of the observations under the prior, with their noise.
    residual:         the observations minus their mean under the prior.
    """

    mean: OfCurve
    covariance: BetweenCurves
    total: Float[np.ndarray, "observed observed"]
    residual: Float[np.ndarray, " observed"]


def _update(
    prior: Hyperparameters,
    value: Float[np.ndarray, " observed"],
    noise: Float[np.ndarray, "observed observed"],
    matrix: Float[np.ndarray, "observed 3"],
) -> _Posterior:
    """The posterior of (η, b, c) given observations with the mean X (η, b, c) and normal noise.

    total = X C X' + noise,   gain = C X' total^-1,   mean = m + gain (value - X m),   covariance = C - gain X C

    prior: of (η, b, c), N(m, C).    value: the observations.    noise: their covariance.    matrix: X, see `design`.
    """
    total = matrix @ prior.covariance @ matrix.T + noise
    residual = value - matrix @ prior.mean
    gain = np.linalg.solve(total, matrix @ prior.covariance).T
    covariance = prior.covariance - gain @ matrix @ prior.covariance
    symmetric_covariance = (covariance + covariance.T) / 2  # removes rounding errors
    return _Posterior(prior.mean + gain @ residual, symmetric_covariance, total, residual)


def fit(jobs: Sequence[Job]) -> Hyperparameters:
    """The most likely hyperparameters given earlier jobs, by expectation and maximisation.

    A learning curve has three numbers (η, b, c): Φ^-1 of the accuracy with s training images is η + b x + c x² / 2,
    with x = log2(s / n) for a job of n images, and Φ the normal distribution function. Hyperparameters are the mean and
    covariance of these numbers over jobs, and the standard deviation (fit_sd) of the probes of one size around their
    mean. Expectation: for each job j the posterior mean m_j and covariance C_j of its (η, b, c), and the expected
    square of each probe's deviation from its size's mean. Maximisation, with weights w_j that give every data set the
    same sum:

        mean = Σ_j w_j m_j,   covariance = Σ_j w_j ((m_j - mean) (m_j - mean)' + C_j),   fit_sd² = Σ_j w_j E[deviation²]

    Probes are judged on images that were left out, and tested on test images; accuracies on both count here. Raises
    FcaError without jobs, and for accuracies outside of 0 to 1.
    """
    if not jobs:
        raise FcaError("earlier jobs", 0, "1 or more", "measure some")
    dataset_of_job = [job.dataset for job in jobs]
    weights = np.array([1 / dataset_of_job.count(dataset) for dataset in dataset_of_job])
    weights /= weights.sum()
    # of each job: Φ^-1 of its accuracies, the covariance of their noise, the matrix that turns (η, b, c) into their
    # expected values, and the number of probes of each
    observations = [_observations(job) for job in jobs]

    # where to start: an accuracy of Φ(1) = 84 %, somewhat more with twice as many images (b = 0.2), no curvature
    current = Hyperparameters(np.array([1.0, 0.2, 0.0]), np.diag([1.0, 0.1, 0.01]), 0.1)
    for _ in range(ITERATIONS):
        # expectation: one entry for each job
        means, covariances, fit_variances = [], [], []
        for value, noise, matrix, fits in observations:
            fit_noise = np.diag(current.fit_sd**2 / fits)  # variance of the mean of the probes of each size
            posterior = _update(current, value, noise + fit_noise, matrix)
            means.append(posterior.mean)
            covariances.append(posterior.covariance)
            fit_variances.append(_expected_fit_variance(posterior, fit_noise, fits))

        # maximisation: the equations above
        mean = weights @ np.array(means)
        deviations = np.array(means) - mean
        # j: jobs; a, b: the numbers (η, b, c) of a curve
        covariance = np.einsum("j,ja,jb->ab", weights, deviations, deviations)
        covariance += np.einsum("j,jab->ab", weights, np.array(covariances))
        current = Hyperparameters(mean, covariance, float(np.sqrt(weights @ np.array(fit_variances))))
    return current


def _expected_fit_variance(
    posterior: _Posterior, fit_noise: Float[np.ndarray, "observed observed"], fits: PerSize
) -> float:
    """The variance of single probes of one size, on the scale Φ^-1, that is expected given a job's observations.

    The mean of the f probes of a size deviates from the curve by δ ~ N(0, F), with F = `fit_noise`. Given the
    observations, with their covariance T under the prior (`total`) and their residuals r from its mean,

        E[δ] = F T^-1 r,   covariance of δ = F - F T^-1 F

    The variance of one probe is f times that of the mean of f probes: the result is the mean of f E[δ²] over the sizes.
    """
    gain = np.linalg.solve(posterior.total, fit_noise).T
    deviation = gain @ posterior.residual
    covariance = fit_noise - gain @ fit_noise
    squared_deviation = deviation**2 + np.diag(covariance)
    return float((squared_deviation * fits).mean())


def _observations(job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The accuracies of a job on judging images, then on test images, as observations of its learning curve.

    Returns their values on the scale of the curve (Φ^-1, normal quantiles), the covariance of their noise, the matrix
    that turns the three numbers of a curve into expected values, and the number of probes of each. There is one entry
    for each number of training images on judging images, then for each on test images.
    """
    judged, judged_noise = observed(job.judged)
    tested, tested_noise = observed(job.tested)
    value = np.concatenate([judged, tested])

    no_covariance = np.zeros((len(judged), len(tested)))  # judging images and test images are different ones
    noise = np.block([[judged_noise, no_covariance], [no_covariance.T, tested_noise]])
    matrix = design(np.concatenate([job.judged.sizes, job.tested.sizes]), job.n)
    fits = np.concatenate([job.judged.fits, job.tested.fits])
    return value, noise, matrix, fits
