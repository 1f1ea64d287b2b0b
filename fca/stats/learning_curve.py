"""How accurate a classifier will be with more training images, from its accuracy with fewer.

    logit accuracy(n') = η + b x + c x² / 2 + s,    x = log2(n' / n)

n is the number of training images, η the accuracy with all of them, b what the last doubling added and c how fast such
gains shrink. For small errors and c = 0 this is the power law of the error (Cortes et al. 1993, NeurIPS 6; Hestness et
al. 2017, arXiv:1712.00409); on the logit scale the error also stays below 1. (η, b, c) of a job are normal with a mean
that depends on the number of classes and of images a class, as learned from other jobs; s is how much easier or harder
new images are than those that judged. The measured accuracies update them in closed form, with the noise that sizes
share because the same images judge them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num
from scipy.special import expit, logit

from fca.types import FcaError

PSEUDO_IMAGES = 1.0  # added to every size, half of them right: half shared by all sizes, half of each size by itself
COVARIATES = 3
DRAWS, DRAW_SEED = 4000, 0

Curve = Float[np.ndarray, "3"]  # η, b, c
PerSize = Float[np.ndarray, " sizes"]
BetweenSizes = Float[np.ndarray, "sizes sizes"]


class Hyperparameters(NamedTuple):
    """What other jobs show of curves.

    mean:       of (η, b, c), a row each, for 1, log2(classes / 5) and log2(images a class / 16).
    covariance: of (η, b, c) around it.
    shift_sd:   of new images against those that judge, logit scale.
    fit_sd:     of one fit: another draw of as many training images, logit scale.
    """

    mean: Float[np.ndarray, "3 covariates"]
    covariance: Float[np.ndarray, "3 3"]
    shift_sd: float
    fit_sd: float

    def to_json(self) -> dict[str, Any]:
        return {name: np.asarray(value).tolist() for name, value in self._asdict().items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Hyperparameters:
        mean, covariance = np.array(content["mean"]), np.array(content["covariance"])
        return cls(mean, covariance, float(content["shift_sd"]), float(content["fit_sd"]))


class Measured(NamedTuple):
    """Accuracies with several numbers of training images, judged by the same images.

    sizes: training images.    fits: classifiers of each size.    accuracy: their mean.
    covariance: between sizes, of the share of the classifiers that is right about one image.
    images: that judge; with weights their effective number, (sum w)² / sum w².
    """

    sizes: PerSize
    fits: Num[np.ndarray, " sizes"]
    accuracy: PerSize
    covariance: BetweenSizes
    images: float


class Job(NamedTuple):
    """A curve of an earlier job, and what more images brought.

    n: training images of the job.    tested: on other images, also with more training images than n.
    """

    dataset: str
    ncl: int
    n: int
    judged: Measured
    tested: Measured


def observed(measured: Measured) -> tuple[PerSize, BetweenSizes]:
    """Logits of the accuracies and the covariance that the choice of the images gives them (delta method)."""
    total = measured.images + PSEUDO_IMAGES
    smooth = (measured.accuracy * measured.images + PSEUDO_IMAGES / 2) / total
    slope = 1 / (smooth * (1 - smooth))
    typical = np.outer(np.sqrt(1 / slope), np.sqrt(1 / slope))
    pseudo = PSEUDO_IMAGES / 2 * (typical + np.diag(np.diag(typical)))
    covariance = (measured.covariance * measured.images + pseudo) / total**2
    return logit(smooth), covariance * np.outer(slope, slope)


def basis(sizes: PerSize, n: float) -> Float[np.ndarray, "sizes 3"]:
    x = np.log2(sizes / n)
    return np.stack([np.ones_like(x), x, x**2 / 2], axis=1)


def covariates_of(ncl: int, n: float) -> Float[np.ndarray, " covariates"]:
    return np.array([1.0, np.log2(ncl / 5), np.log2(n / ncl / 16)])[:COVARIATES]


class System(NamedTuple):
    design: np.ndarray
    logits: np.ndarray
    covariance: np.ndarray
    precision_of_fit: np.ndarray
    covariates: np.ndarray


def system_of(job: Job, with_test: bool) -> System:
    y, v = observed(job.judged)
    a = np.hstack([basis(job.judged.sizes, job.n), np.zeros((len(y), 1))])
    inverse = 1 / job.judged.fits
    if with_test:
        z, u = observed(job.tested)
        a = np.vstack([a, np.hstack([basis(job.tested.sizes, job.n), np.ones((len(z), 1))])])
        v = np.block([[v, np.zeros((len(y), len(z)))], [np.zeros((len(z), len(y))), u]])
        y = np.concatenate([y, z])
        inverse = np.concatenate([inverse, 1 / job.tested.fits])
    return System(a, y, v, inverse, covariates_of(job.ncl, job.n))


def fit(jobs: Sequence[Job], iterations: int = 60) -> Hyperparameters:
    systems = [system_of(job, True) for job in jobs]
    names = [job.dataset for job in jobs]
    weight = np.array([1 / names.count(name) for name in names])
    weight *= len(names) / weight.sum()
    h = Hyperparameters(np.zeros((3, COVARIATES)), np.diag([1.0, 0.1, 0.01]), 0.3, 0.2)
    covariates = np.stack([s.covariates for s in systems])
    for _ in range(iterations):
        means, covs, shift, fit_var = [], [], [], []
        for s in systems:
            prior_mean = np.append(h.mean @ s.covariates, 0.0)
            prior_cov = np.zeros((4, 4)); prior_cov[:3, :3] = h.covariance; prior_cov[3, 3] = h.shift_sd**2
            noise = np.diag(h.fit_sd**2 * s.precision_of_fit)
            total = s.design @ prior_cov @ s.design.T + s.covariance + noise
            gain = np.linalg.solve(total, s.design @ prior_cov).T
            res = s.logits - s.design @ prior_mean
            m = prior_mean + gain @ res
            c = prior_cov - gain @ s.design @ prior_cov
            means.append(m); covs.append(c)
            shift.append(m[3] ** 2 + c[3, 3])
            g = np.linalg.solve(total, noise).T
            e = g @ res
            ce = noise - g @ noise
            fit_var.append(((e**2 + np.diag(ce)) / s.precision_of_fit).mean())
        means = np.array(means)
        w = weight
        coefficient = np.linalg.lstsq(covariates * np.sqrt(w)[:, None], means[:, :3] * np.sqrt(w)[:, None], rcond=None)[0].T
        r = means[:, :3] - covariates @ coefficient.T
        cov = ((r[:, :, None] * r[:, None, :] + np.array(covs)[:, :3, :3]) * w[:, None, None]).sum(0) / w.sum()
        h = Hyperparameters(coefficient, cov, float(np.sqrt((w * shift).sum() / w.sum())), float(np.sqrt((w * fit_var).sum() / w.sum())))
    return h
