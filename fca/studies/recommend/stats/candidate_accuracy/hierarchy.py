"""A tree of normal effects: all jobs, data set, job. Its marginal likelihood and posteriors, exact, by messages.

    z        state shared by all jobs: mean logit of every candidate, slopes of the covariates, mean shift
    z_d      = z + effects of data set d
    judged_j = E z_d + job effects + noise,     test_j = E z_d + shift of z_d + job effects + shift effects + noise

A message is the log density of what was observed below a node as a function of that node's state x:

    constant + linear' x - x' precision x / 2

It exists also where the observations leave x open, so that candidates which no job has need no special case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.linalg import block_diag

from fca.studies.recommend.stats.candidate_accuracy.candidates import Candidates, JobRecord, linearised, logit_of_counts
from fca.studies.recommend.stats.candidate_accuracy.covariances import (
    MEAN_SHIFT_SD,
    SLOPE_FEATURE_SDS,
    USUAL_LOGIT,
    Covariances,
    slope_features,
)
from fca.types import FcaError

COVARIATES = 2
LINEARISATIONS = 3  # of the counts of earlier jobs; after that logits change by less than a hundredth

State = Float[np.ndarray, " state"]
BetweenStates = Float[np.ndarray, "state state"]


class Normal(NamedTuple):
    """A normal distribution of a state."""

    mean: State
    covariance: BetweenStates


class Message(NamedTuple):
    """What was observed below a node, as a log density of its state (see the module)."""

    constant: float
    linear: State
    precision: BetweenStates

    def plus(self, other: Message) -> Message:
        """Of both sets of observations, which are independent given the state."""
        return Message(self.constant + other.constant, self.linear + other.linear, self.precision + other.precision)

    def above(self, effects: BetweenStates) -> Message:
        """The same, of the state one level higher: this state is that one plus effects ~ N(0, `effects`)."""
        widened = np.eye(len(self.linear)) + self.precision @ effects
        linear = np.linalg.solve(widened, self.linear)
        precision = np.linalg.solve(widened, self.precision)
        gain = self.linear @ effects @ linear - np.linalg.slogdet(widened)[1]
        return Message(self.constant + gain / 2, linear, (precision + precision.T) / 2)

    def at(self, state: State) -> float:
        """The log density of the observations for this state."""
        return float(self.constant + self.linear @ state - state @ self.precision @ state / 2)

    def posterior(self, prior: Normal) -> Normal:
        """Of the state, whose prior needs no inverse."""
        above = self.above(prior.covariance)
        mean = prior.mean + prior.covariance @ (above.linear - above.precision @ prior.mean)
        return Normal(mean, prior.covariance - prior.covariance @ above.precision @ prior.covariance)


class JobBatch(NamedTuple):
    """Jobs in which the same candidates were judged and tested, stacked: first what was judged, then what was tested.

    jobs:       their positions among the records.
    judged, tested: positions of the candidates.
    shares, images: share right, and of how many images.    covariates: of each job.
    logits, sds: the shares as normal observations of the true logits (see `linearised`).
    """

    jobs: Integer[np.ndarray, " jobs"]
    judged: Integer[np.ndarray, " judged"]
    tested: Integer[np.ndarray, " tested"]
    shares: Float[np.ndarray, "jobs observed"]
    images: Float[np.ndarray, "jobs observed"]
    logits: Float[np.ndarray, "jobs observed"]
    sds: Float[np.ndarray, "jobs observed"]
    covariates: Float[np.ndarray, "jobs covariates"]


def batches_of(records: Sequence[JobRecord]) -> list[JobBatch]:
    """Empirical logits of all records, those of the same candidates together: they are computed as one array."""
    jobs_by_candidates = defaultdict(list)
    for position, record in enumerate(records):
        observed = (record.n_judged > 0, record.n_test > 0)
        pattern = tuple(tuple(record.candidate[is_observed].tolist()) for is_observed in observed)
        if any(pattern):
            jobs_by_candidates[pattern].append(position)

    batches = []
    for (judged, tested), jobs in jobs_by_candidates.items():
        observations = [_observations(records[job]) for job in jobs]
        shares, images, logits, variances = (np.stack(arrays) for arrays in zip(*observations, strict=True))
        covariates = np.stack([records[job].covariates for job in jobs])
        candidates = (np.array(judged, dtype=int), np.array(tested, dtype=int))
        batches.append(JobBatch(np.array(jobs), *candidates, shares, images, logits, np.sqrt(variances), covariates))
    return batches


def _observations(record: JobRecord) -> tuple[Float[np.ndarray, " observed"], ...]:
    is_judged, is_tested = record.n_judged > 0, record.n_test > 0
    judged = logit_of_counts(record.right_judged[is_judged], record.n_judged[is_judged])
    tested = logit_of_counts(record.right_test[is_tested], record.n_test[is_tested])
    images = np.concatenate([record.n_judged[is_judged], record.n_test[is_tested]])
    right = np.concatenate([record.right_judged[is_judged], record.right_test[is_tested]])
    logits, variances = (np.concatenate(both) for both in zip(judged, tested, strict=True))
    return right / images, images, logits, variances


def state_prior(overall: Float[np.ndarray, "candidates candidates"]) -> Normal:
    """Of the state that all jobs share: mean logit of each candidate, slopes, mean shift."""
    slope_variances = np.repeat(SLOPE_FEATURE_SDS[None] ** 2, COVARIATES, axis=0).ravel()
    covariance = block_diag(overall, np.diag(slope_variances), MEAN_SHIFT_SD**2)
    mean = np.zeros(len(covariance))
    mean[: len(overall)] = USUAL_LOGIT
    return Normal(mean, covariance)


def dataset_effects(of: Covariances) -> BetweenStates:
    """Covariance of a data set's effects on the state; slopes have none."""
    slopes = np.zeros((COVARIATES * len(SLOPE_FEATURE_SDS),) * 2)
    return block_diag(of.dataset, slopes, of.dataset_shift)


def design(
    candidates: Candidates,
    judged: Integer[np.ndarray, " judged"],
    tested: Integer[np.ndarray, " tested"],
    covariates: Float[np.ndarray, "jobs covariates"],
) -> Float[np.ndarray, "jobs observed state"]:
    """Expected logits are design @ state: first of the judged candidates, then of the tested ones."""
    chosen = np.concatenate([judged, tested])
    features = slope_features(candidates)[chosen]
    slopes = np.einsum("jc,of->jocf", covariates, features).reshape(len(covariates), len(chosen), -1)
    is_test = np.repeat([0.0, 1.0], [len(judged), len(tested)])

    shared = np.zeros((len(covariates), len(chosen), len(candidates)))
    shared[:, np.arange(len(chosen)), chosen] = 1.0
    shift = np.broadcast_to(is_test[None, :, None], (len(covariates), len(chosen), 1))
    return np.concatenate([shared, slopes, shift], axis=2)


def job_effects(batch: JobBatch, of: Covariances) -> Float[np.ndarray, "observed observed"]:
    """Covariance of the true logits of a job, given the state of its data set."""
    judged, tested = batch.judged, batch.tested
    chosen = np.concatenate([judged, tested])
    effects = of.job[np.ix_(chosen, chosen)].copy()
    effects[len(judged) :, len(judged) :] += of.shift[np.ix_(tested, tested)]
    return effects


def job_covariance(batch: JobBatch, of: Covariances) -> Float[np.ndarray, "jobs observed observed"]:
    """Covariance of the observed logits of each job, given the state of its data set."""
    judged, tested = batch.judged, batch.tested
    paired = block_diag(of.paired[np.ix_(judged, judged)], of.paired[np.ix_(tested, tested)])
    return job_effects(batch, of) + paired * batch.sds[:, :, None] * batch.sds[:, None, :]


class Pass(NamedTuple):
    """Messages of a whole tree, for one set of covariances.

    by_dataset: of each data set, of its own state.    top: of all data sets, of the shared state.
    shared:     posterior of the shared state.         log_likelihood: of all that was observed.
    """

    by_dataset: dict[str, Message]
    top: Message
    shared: Normal
    log_likelihood: float


class BatchTerms(NamedTuple):
    """Of a batch, for the gradient: inverse covariance, and that times the design."""

    inverse: Float[np.ndarray, "jobs observed observed"]
    weighted: Float[np.ndarray, "jobs observed state"]
    design: Float[np.ndarray, "jobs observed state"]


def upward(
    records: Sequence[JobRecord], batches: Iterable[JobBatch], candidates: Candidates, of: Covariances
) -> tuple[Pass, list[BatchTerms]]:
    """All messages from the jobs to the shared state."""
    prior = state_prior(of.overall)
    silence = Message(0.0, np.zeros(len(prior.mean)), np.zeros_like(prior.covariance))
    by_dataset = {record.dataset: silence for record in records}
    terms = []
    for batch in batches:
        matrix = design(candidates, batch.judged, batch.tested, batch.covariates)
        covariance = job_covariance(batch, of)
        inverse = np.linalg.inv(covariance)
        weighted = inverse @ matrix
        linear = np.einsum("jos,jo->js", weighted, batch.logits)
        precision = np.swapaxes(matrix, 1, 2) @ weighted

        squares = np.einsum("jo,jop,jp->j", batch.logits, inverse, batch.logits)
        log_determinant = np.linalg.slogdet(covariance)[1] + batch.logits.shape[1] * np.log(2 * np.pi)
        constant = -(squares + log_determinant) / 2

        for position, job in enumerate(batch.jobs):
            dataset = records[job].dataset
            message = Message(float(constant[position]), linear[position], precision[position])
            by_dataset[dataset] = by_dataset[dataset].plus(message)
        terms.append(BatchTerms(inverse, weighted, matrix))

    effects = dataset_effects(of)
    top = silence
    for message in by_dataset.values():
        top = top.plus(message.above(effects))
    log_likelihood = top.above(prior.covariance).at(prior.mean)
    if not np.isfinite(log_likelihood):
        raise FcaError("log likelihood of earlier jobs", log_likelihood, "finite", "look for wrong counts among them")
    return Pass(by_dataset, top, top.posterior(prior), log_likelihood), terms


def dataset_posterior(result: Pass, dataset: str, effects: BetweenStates) -> Normal:
    """Of the state of a data set, from all jobs: its own and those of the others."""
    message, shared = result.by_dataset[dataset], result.shared
    above = message.above(effects)
    kept = np.eye(len(shared.mean)) - effects @ above.precision
    mean = shared.mean + effects @ (above.linear - above.precision @ shared.mean)
    within = effects - effects @ above.precision @ effects
    return Normal(mean, within + kept @ shared.covariance @ kept.T)


def linearised_again(
    records: Sequence[JobRecord], batches: Sequence[JobBatch], of: Covariances, result: Pass, terms: list[BatchTerms]
) -> list[JobBatch]:
    """The batches with shares linearised at the posterior means of the true logits (see `linearised`)."""
    effects = dataset_effects(of)
    states = {dataset: dataset_posterior(result, dataset, effects).mean for dataset in result.by_dataset}
    batches_there = []
    for batch, (inverse, _, matrix) in zip(batches, terms, strict=True):
        means = np.stack([states[records[job].dataset] for job in batch.jobs])
        expected = np.einsum("jos,js->jo", matrix, means)
        pulls = np.einsum("jop,jp->jo", inverse, batch.logits - expected)
        logits, sds = linearised(batch.shares, batch.images, expected + pulls @ job_effects(batch, of))
        batches_there.append(batch._replace(logits=logits, sds=sds))
    return batches_there


def settled(
    records: Sequence[JobRecord], batches: Sequence[JobBatch], candidates: Candidates, of: Covariances
) -> tuple[Pass, list[JobBatch]]:
    """The tree when its linearisation is that of its own posterior, and the batches that made it so."""
    result, terms = upward(records, batches, candidates, of)
    for _ in range(LINEARISATIONS):
        batches = linearised_again(records, batches, of, result, terms)
        result, terms = upward(records, batches, candidates, of)
    return result, list(batches)


def covariance_gradient(
    records: Sequence[JobRecord], batches: Sequence[JobBatch], of: Covariances, result: Pass, terms: list[BatchTerms]
) -> Covariances:
    """How the log likelihood changes with every element of every covariance.

    For observations y ~ N(E, C + S), d log p / dS = (h h' - inverse(C + S)) / 2 with h = inverse(C + S) (y - E). What
    E depends on is itself uncertain: its posterior mean and covariance take its place (Fisher's identity).
    """
    count = len(of.overall)
    prior = state_prior(of.overall)
    gradient = Covariances(*(np.zeros_like(each) for each in of))
    above = result.top.above(prior.covariance)
    gradient.overall[:] = _element_gradient(above, Normal(prior.mean, np.zeros_like(prior.covariance)))[:count, :count]

    effects = dataset_effects(of)
    states = {}
    for dataset, message in result.by_dataset.items():
        elements = _element_gradient(message.above(effects), result.shared)
        gradient.dataset[:] += elements[:count, :count]
        gradient.dataset_shift[:] += elements[-1:, -1:]
        states[dataset] = dataset_posterior(result, dataset, effects)

    for batch, (inverse, weighted, matrix) in zip(batches, terms, strict=True):
        means = np.stack([states[records[job].dataset].mean for job in batch.jobs])
        spreads = np.stack([states[records[job].dataset].covariance for job in batch.jobs])
        residuals = batch.logits - np.einsum("jos,js->jo", matrix, means)
        pulls = np.einsum("jop,jp->jo", inverse, residuals)
        uncertain = weighted @ spreads @ np.swapaxes(weighted, 1, 2)
        elements = (pulls[:, :, None] * pulls[:, None, :] + uncertain - inverse) / 2
        _add_job_gradient(gradient, batch, elements)
    return gradient


def _element_gradient(above: Message, state: Normal) -> BetweenStates:
    pull = above.linear - above.precision @ state.mean
    uncertain = above.precision @ state.covariance @ above.precision
    return (np.outer(pull, pull) + uncertain - above.precision) / 2


def _add_job_gradient(
    gradient: Covariances, batch: JobBatch, elements: Float[np.ndarray, "jobs observed observed"]
) -> None:
    judged, tested = batch.judged, batch.tested
    first = len(judged)
    chosen = np.concatenate([judged, tested])
    total = elements.sum(axis=0)
    np.add.at(gradient.job, np.ix_(chosen, chosen), total)
    np.add.at(gradient.shift, np.ix_(tested, tested), total[first:, first:])

    of_noise = (elements * batch.sds[:, :, None] * batch.sds[:, None, :]).sum(axis=0)
    np.add.at(gradient.paired, np.ix_(judged, judged), of_noise[:first, :first])
    np.add.at(gradient.paired, np.ix_(tested, tested), of_noise[first:, first:])
