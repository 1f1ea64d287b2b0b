"""How accuracies of candidates vary together: variances and likeness, the parameters that earlier jobs settle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from fca.studies.recommend.stats.candidate_accuracy.candidates import (
    FP32,
    HAND_MADE,
    PROBE,
    WHOLE,
    BetweenCandidates,
    Candidates,
)
from fca.types import FcaError

USUAL_LOGIT, USUAL_LOGIT_SD = 2.0, 1.5  # of the accuracy of a candidate of which nothing is known: 0.88 [0.3, 0.99]
SIZE_GAIN_SD, CUT_GAIN_SD, INT8_GAIN_SD, ADAPTATION_GAIN_SD = 1.0, 1.0, 0.5, 1.0  # logit units, before any job
SLOPE_SD, SLOPE_DIFFERENCE_SD = 1.0, 0.3  # of a covariate: for all candidates; more for a larger or cut one
MEAN_SHIFT_SD = 0.5  # of the mean difference between test images and those that judge
ANOTHER_ADAPTATION = ("finetune", "scratch")


class Scale(NamedTuple):
    """Weakly informative prior of a parameter: normal on the log scale (a standard deviation) or logit scale (a share).

    centre: its median.    width: standard deviation on that scale: 0.8 is a factor of 2.2 both ways.
    """

    centre: float
    width: float
    is_share: bool


PRIORS = {
    "candidate_sd": Scale(0.5, 0.8, False),
    "dataset_sd": Scale(0.9, 0.6, False),
    "dataset_candidate_sd": Scale(0.3, 0.6, False),
    "dataset_size_sd": Scale(0.2, 0.8, False),
    "dataset_cut_sd": Scale(0.2, 0.8, False),
    "job_sd": Scale(0.5, 0.8, False),
    "job_candidate_sd": Scale(0.15, 0.8, False),
    "job_size_sd": Scale(0.1, 0.8, False),
    "job_cut_sd": Scale(0.1, 0.8, False),
    "dataset_shift_sd": Scale(0.25, 0.6, False),
    "job_shift_sd": Scale(0.2, 0.8, False),
    "candidate_shift_sd": Scale(0.1, 0.8, False),
    "hand_made_factor": Scale(2.0, 0.5, False),
    "adapted_factor": Scale(6.0, 0.5, False),
    "size_scale": Scale(1.0, 0.8, False),
    "network_alike": Scale(0.5, 1.0, True),
    "depth_alike": Scale(0.7, 1.0, True),
    "precision_alike": Scale(0.95, 1.0, True),
    "adaptation_alike": Scale(0.5, 1.0, True),
    "noise_shared": Scale(0.4, 0.7, True),
    "noise_alike": Scale(0.5, 0.7, True),
}


@dataclass(frozen=True)
class Hyperparameters:
    """Standard deviations (logit units) and likeness of candidates, as earlier jobs have them (see `fit`).

    candidate_sd: between candidates, over all jobs.
    dataset_sd, dataset_candidate_sd: between data sets, shared by all candidates and of each candidate by itself.
    dataset_size_sd, dataset_cut_sd: of what an input e times as large, and a cut, add on one data set.
    job_sd, job_candidate_sd, job_size_sd, job_cut_sd: the same between jobs of one data set.
    dataset_shift_sd, job_shift_sd, candidate_shift_sd: of the difference between test images and those that judge,
        shared by the jobs of a data set, by the candidates of a job, and of each candidate by itself.
    hand_made_factor: how many times as much a candidate without a network varies by itself.
    adapted_factor: the same of a network whose weights are trained on the job.
    size_scale: difference of log sizes at which likeness has fallen to 1/e.
    network_alike, depth_alike, precision_alike, adaptation_alike: likeness of two candidates that differ in this alone.
    noise_shared, noise_alike: correlation of right and wrong between candidates on the same images: at least the first,
        and of what remains the second times their likeness.
    datasets: how many data sets all of it rests on; few make the intervals of a new data set wider.
    """

    candidate_sd: float
    dataset_sd: float
    dataset_candidate_sd: float
    dataset_size_sd: float
    dataset_cut_sd: float
    job_sd: float
    job_candidate_sd: float
    job_size_sd: float
    job_cut_sd: float
    dataset_shift_sd: float
    job_shift_sd: float
    candidate_shift_sd: float
    hand_made_factor: float
    adapted_factor: float
    size_scale: float
    network_alike: float
    depth_alike: float
    precision_alike: float
    adaptation_alike: float
    noise_shared: float
    noise_alike: float
    datasets: int = 1

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Hyperparameters:
        """The hyperparameters that `to_json` wrote. Raises FcaError where a name is missing or unknown."""
        names = {each.name for each in fields(cls)}
        if set(stored) != names:
            wrong = ", ".join(sorted(names ^ set(stored)))
            raise FcaError("stored hyperparameters", wrong, "all of their names and no other", "fit them again")
        return cls(**stored)


def usual_hyperparameters(datasets: int = 1) -> Hyperparameters:
    """What is assumed before any job was seen: the centres of PRIORS.

    >>> usual_hyperparameters().network_alike
    0.5
    """
    return Hyperparameters(**{name: scale.centre for name, scale in PRIORS.items()}, datasets=datasets)


def free_of(hyperparameters: Hyperparameters) -> Float[np.ndarray, " parameters"]:
    """The parameters in the order of PRIORS, each on a scale without bounds, so that an optimiser may take any value.

    A standard deviation becomes its logarithm and a share its logit, in units of its prior: 0 at the centre of the
    prior, 1 one standard deviation above.
    """
    values = []
    for name, scale in PRIORS.items():
        to_free = logit if scale.is_share else np.log
        above_centre = to_free(getattr(hyperparameters, name)) - to_free(scale.centre)
        values.append(above_centre / scale.width)
    return np.array(values, float)


def hyperparameters_at(free: Float[np.ndarray, " parameters"], datasets: int) -> Hyperparameters:
    """The inverse of `free_of`: the hyperparameters at these unbounded values.    datasets: see Hyperparameters."""
    values = {}
    for position, (name, scale) in enumerate(PRIORS.items()):
        to_free, from_free = (logit, expit) if scale.is_share else (np.log, np.exp)
        values[name] = float(from_free(to_free(scale.centre) + scale.width * free[position]))
    return Hyperparameters(**values, datasets=datasets)


class Covariances(NamedTuple):
    """Covariances of one effect each, between all candidates (logit units squared).

    overall: of candidates over all jobs.    dataset: of a data set's effects.    job: of a job's effects.
    shift: of a job's shift between judged and test images.    dataset_shift: variance of that of a data set.
    paired: correlation of the noise of two candidates on the same images.
    """

    overall: BetweenCandidates
    dataset: BetweenCandidates
    job: BetweenCandidates
    shift: BetweenCandidates
    dataset_shift: Float[np.ndarray, "1 1"]
    paired: BetweenCandidates


def likeness(hyperparameters: Hyperparameters, candidates: Candidates) -> BetweenCandidates:
    """Correlation of two candidates' individual effects: the product of one factor for each attribute that differs.

    exp(-|log size - log size'| / size_scale) x network_alike^[networks differ] x ... , a product of positive definite
    kernels and so one itself.
    """
    log_size = candidates.log_size
    size_difference = np.abs(log_size[:, None] - log_size[None, :])
    alike = np.exp(-size_difference / hyperparameters.size_scale)
    for attribute in ("network", "depth", "precision", "adaptation"):
        alike = alike * getattr(hyperparameters, f"{attribute}_alike") ** candidates.differ(attribute)
    return alike


def covariances(hyperparameters: Hyperparameters, candidates: Candidates) -> Covariances:
    """How the logits of accuracies vary together between candidates, by every effect of the hierarchy.

    The effects, and so the fields of the result, are: `overall`, how candidates differ over all jobs; `dataset` and
    `job`, what a data set and a job of it add to each candidate; `shift` and `dataset_shift`, the difference between
    test images and the images that judge a job, on one job and on all jobs of a data set; and `paired`, the correlation
    of the noise of two candidates on the same images.

    The first four are covariances, sums of up to three parts: a variance that all candidates share; effects of their
    attributes (a slope or an offset with variance σ² adds σ² v v', with the values v of the candidates); and individual
    effects, which are correlated between similar candidates. Hand-made features (HOG) are no network, so input size has
    no effect on them.

    hyperparameters: standard deviations of the effects (names in _sd), factors by which individual effects of some
                     candidates are larger (_factor), likeness of candidates, and correlations of the noise.
    """
    h = hyperparameters

    # individual effects, with a variance of 1 for a linear probe on a network
    alike = likeness(h, candidates)  # their correlations
    is_hand_made = candidates.are("network", HAND_MADE)  # 1 or 0, as are the indicators below
    is_adapted = 1 - candidates.are("adaptation", PROBE)
    individual_sd = h.hand_made_factor**is_hand_made * h.adapted_factor**is_adapted
    individual = alike * np.outer(individual_sd, individual_sd)

    # effects of input size and of cutting, per unit of their variance
    log_size_of_networks = candidates.log_size * (1 - is_hand_made)
    size_effects = np.outer(log_size_of_networks, log_size_of_networks)
    is_cut = 1 - candidates.are("depth", WHOLE)
    cut_effects = np.outer(is_cut, is_cut)

    # mean effects of attributes over all jobs: before any job they are hardly known, so their standard deviations are
    # large constants
    gains = SIZE_GAIN_SD**2 * size_effects + CUT_GAIN_SD**2 * cut_effects
    is_int8 = 1 - candidates.are("precision", FP32)
    gains += INT8_GAIN_SD**2 * np.outer(is_int8, is_int8)
    for adaptation in ANOTHER_ADAPTATION:
        has_adaptation = candidates.are("adaptation", adaptation)
        gains += ADAPTATION_GAIN_SD**2 * np.outer(has_adaptation, has_adaptation)

    # how much the effects of attributes differ between data sets, and between jobs of a data set
    dataset_attributes = h.dataset_size_sd**2 * size_effects + h.dataset_cut_sd**2 * cut_effects
    job_attributes = h.job_size_sd**2 * size_effects + h.job_cut_sd**2 * cut_effects

    # correlation of two candidates' noise on the same images: a part that all share, and more if they are alike
    paired = h.noise_shared + (1 - h.noise_shared) * h.noise_alike * alike
    np.fill_diagonal(paired, 1.0)  # the correlation of a candidate's noise with itself
    # the sums: what all candidates share, individual effects, and effects of attributes
    return Covariances(
        overall=USUAL_LOGIT_SD**2 + gains + h.candidate_sd**2 * individual,
        dataset=h.dataset_sd**2 + h.dataset_candidate_sd**2 * individual + dataset_attributes,
        job=h.job_sd**2 + h.job_candidate_sd**2 * individual + job_attributes,
        shift=h.job_shift_sd**2 + h.candidate_shift_sd**2 * individual,
        dataset_shift=np.array([[h.dataset_shift_sd**2]]),  # one number: all candidates shift alike
        paired=paired,
    )


def slope_features(candidates: Candidates) -> Float[np.ndarray, "candidates features"]:
    """The features of a candidate that the slope of a covariate is a sum over.

    A constant, the logarithm of the input size (0 for hand-made features), and whether it is cut or hand-made (1 or 0).
    """
    is_cut = 1 - candidates.are("depth", WHOLE)
    is_hand_made = candidates.are("network", HAND_MADE)
    log_size_of_networks = candidates.log_size * (1 - is_hand_made)
    return np.stack([np.ones(len(candidates)), log_size_of_networks, is_cut, is_hand_made], axis=1)


SLOPE_FEATURE_SDS = np.array([SLOPE_SD, SLOPE_DIFFERENCE_SD, SLOPE_DIFFERENCE_SD, SLOPE_DIFFERENCE_SD])
