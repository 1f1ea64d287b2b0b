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
        """The message of both sets of observations, which are independent given the state: log densities add up."""
        return Message(self.constant + other.constant, self.linear + other.linear, self.precision + other.precision)

    def above(self, effects: BetweenStates) -> Message:
        """The same observations as a message about the state z one level higher.

        This state is x = z + e with e ~ N(0, effects). Integrated over e, with W = I + precision effects:

            linear' = W^-1 linear,   precision' = W^-1 precision,
            constant' = constant + (linear effects linear' - log det W) / 2
        """
        widened = np.eye(len(self.linear)) + self.precision @ effects
        linear = np.linalg.solve(widened, self.linear)
        precision = np.linalg.solve(widened, self.precision)
        gain = self.linear @ effects @ linear - np.linalg.slogdet(widened)[1]
        symmetric_precision = (precision + precision.T) / 2  # removes rounding errors
        return Message(self.constant + gain / 2, linear, symmetric_precision)

    def at(self, state: State) -> float:
        """The log density of the observations for this state."""
        return float(self.constant + self.linear @ state - state @ self.precision @ state / 2)

    def posterior(self, prior: Normal) -> Normal:
        """The posterior of the state under this prior; no covariance is inverted, so that it may be singular.

        With linear' and precision' as in `above`, for effects = C and a prior N(m, C):

            mean = m + C (linear' - precision' m),   covariance = C - C precision' C
        """
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
    """The records as batches, one for each combination of judged and tested candidates, with empirical logits.

    A candidate is judged on the job's own left-out training and validation images, and tested on its test images. Jobs
    of one batch have arrays of the same shape, so that they are computed at once. Records without any judged or tested
    candidate are left out. Empirical logits are finite also where all images are right (`logit_of_counts`).
    """
    jobs_by_candidates = defaultdict(list)
    for position, record in enumerate(records):
        judged = tuple(record.candidate[record.n_judged > 0].tolist())
        tested = tuple(record.candidate[record.n_test > 0].tolist())
        if judged or tested:
            jobs_by_candidates[judged, tested].append(position)

    batches = []
    for (judged, tested), jobs in jobs_by_candidates.items():
        observations = [_observed_logits(records[job]) for job in jobs]
        # each of the four: jobs x observed
        shares, images, logits, variances = (np.stack(arrays) for arrays in zip(*observations, strict=True))
        batch = JobBatch(
            jobs=np.array(jobs),
            judged=np.array(judged, dtype=int),
            tested=np.array(tested, dtype=int),
            shares=shares,
            images=images,
            logits=logits,
            sds=np.sqrt(variances),
            covariates=np.stack([records[job].covariates for job in jobs]),
        )
        batches.append(batch)
    return batches


def _observed_logits(record: JobRecord) -> tuple[Float[np.ndarray, " observed"], ...]:
    """Shares right of a job's candidates, numbers of images, empirical logits and variances of their noise.

    Each array has first the results of judged candidates on the job's own images, then the results of tested candidates
    on its test images.
    """
    is_judged = record.n_judged > 0
    is_tested = record.n_test > 0
    images = np.concatenate([record.n_judged[is_judged], record.n_test[is_tested]])
    right = np.concatenate([record.right_judged[is_judged], record.right_test[is_tested]])

    # two calls, as `logit_of_counts` computes the noise of all its candidates from their mean share right, which may
    # differ between the job's own images and its test images
    judged_logits, judged_variances = logit_of_counts(record.right_judged[is_judged], record.n_judged[is_judged])
    tested_logits, tested_variances = logit_of_counts(record.right_test[is_tested], record.n_test[is_tested])
    logits = np.concatenate([judged_logits, tested_logits])
    variances = np.concatenate([judged_variances, tested_variances])
    return right / images, images, logits, variances


def state_prior(overall: Float[np.ndarray, "candidates candidates"]) -> Normal:
    """The prior of the state that all jobs share: mean logit of each candidate, slopes, mean shift.

    overall: covariance of the mean logits between candidates.
    """
    # every covariate has one slope per feature of a candidate
    slope_variances = np.repeat(SLOPE_FEATURE_SDS[None] ** 2, COVARIATES, axis=0).ravel()
    covariance = block_diag(overall, np.diag(slope_variances), MEAN_SHIFT_SD**2)
    mean = np.zeros(len(covariance))
    mean[: len(overall)] = USUAL_LOGIT
    return Normal(mean, covariance)


def dataset_effects(covariances: Covariances) -> BetweenStates:
    """Covariance of a data set's effects on the state: on logits and on the mean shift, none on the slopes."""
    slopes = np.zeros((COVARIATES * len(SLOPE_FEATURE_SDS),) * 2)
    return block_diag(covariances.dataset, slopes, covariances.dataset_shift)


def design(
    candidates: Candidates,
    judged: Integer[np.ndarray, " judged"],
    tested: Integer[np.ndarray, " tested"],
    covariates: Float[np.ndarray, "jobs covariates"],
) -> Float[np.ndarray, "jobs observed state"]:
    """The matrix of each job by which the state is multiplied to get the expected logits: design @ state.

    The state has the mean logit of every candidate, the slopes of the covariates, and the mean shift of test images. A
    logit is the candidate's mean logit + sum over covariates c and features f of covariate_c feature_f slope_cf, and,
    on test images, + the mean shift.

    candidates:     have the features: 1, log input size, and whether the candidate is cut or hand-made.
    judged, tested: positions of candidates; rows are first the logits of the judged ones, then of the tested ones.
    covariates:     of each job: the logarithms of its number of classes and of its training images per class.
    """
    observed = np.concatenate([judged, tested])
    n_jobs = len(covariates)
    n_observed = len(observed)

    mean_logits = np.zeros((n_jobs, n_observed, len(candidates)))
    mean_logits[:, np.arange(n_observed), observed] = 1.0

    features = slope_features(candidates)[observed]
    # j: jobs, c: covariates, o: observed, f: features
    slopes = np.einsum("jc,of->jocf", covariates, features).reshape(n_jobs, n_observed, -1)

    is_test = np.repeat([0.0, 1.0], [len(judged), len(tested)])
    shift = np.broadcast_to(is_test[None, :, None], (n_jobs, n_observed, 1))
    return np.concatenate([mean_logits, slopes, shift], axis=2)


def job_effects(batch: JobBatch, covariances: Covariances) -> Float[np.ndarray, "observed observed"]:
    """Covariance of the true logits of a job around what the state of its data set predicts.

    The effect of a job on a candidate is the same on judged and on test images; the shift is added on test images.
    """
    judged, tested = batch.judged, batch.tested
    observed = np.concatenate([judged, tested])
    effects = covariances.job[np.ix_(observed, observed)].copy()
    effects[len(judged) :, len(judged) :] += covariances.shift[np.ix_(tested, tested)]
    return effects


def job_covariance(batch: JobBatch, covariances: Covariances) -> Float[np.ndarray, "jobs observed observed"]:
    """Covariance of the observed logits of each job around what the state of its data set predicts.

    The noise of two candidates is correlated on the same images; that of judged and of test images is independent.
    """
    judged, tested = batch.judged, batch.tested
    paired = block_diag(covariances.paired[np.ix_(judged, judged)], covariances.paired[np.ix_(tested, tested)])
    noise = paired * batch.sds[:, :, None] * batch.sds[:, None, :]  # jobs x observed x observed
    return job_effects(batch, covariances) + noise


class Pass(NamedTuple):
    """What the messages of a whole tree give, for one set of covariances.

    by_dataset:     data set -> message of its jobs about its own state.
    top:            message of all data sets about the shared state.
    shared:         posterior of the shared state.
    log_likelihood: of all observed logits.
    """

    by_dataset: dict[str, Message]
    top: Message
    shared: Normal
    log_likelihood: float


class BatchTerms(NamedTuple):
    """The matrices of a batch that later steps need again.

    inverse: of `job_covariance`.    weighted: inverse @ design.
    """

    inverse: Float[np.ndarray, "jobs observed observed"]
    weighted: Float[np.ndarray, "jobs observed state"]
    design: Float[np.ndarray, "jobs observed state"]


def _messages_of_jobs(
    batch: JobBatch, candidates: Candidates, covariances: Covariances
) -> tuple[list[Message], BatchTerms]:
    """The message of each job of a batch: what it shows of the state of its data set.

    The observed logits of a job are y ~ N(D s, S), with the state s of its data set, the matrix D that turns s into
    expected logits (`design`), and the covariance S of the job's effects and noise (`job_covariance`). As a function of
    s, their log density is constant + linear' s - s' precision s / 2, with

        linear = D' S^-1 y,   precision = D' S^-1 D,   constant = -(y' S^-1 y + log det(2 π S)) / 2

    Also returns the matrices S^-1, S^-1 D and D of each job, which later steps need again.

    candidates: to which the positions in the batch refer.
    """
    matrix = design(candidates, batch.judged, batch.tested, batch.covariates)  # D of each job
    covariance = job_covariance(batch, covariances)  # S of each job
    inverse = np.linalg.inv(covariance)
    weighted = inverse @ matrix  # S^-1 D

    # j: jobs; o, p: observed; s: state
    linear = np.einsum("jos,jo->js", weighted, batch.logits)
    precision = np.swapaxes(matrix, 1, 2) @ weighted
    squares = np.einsum("jo,jop,jp->j", batch.logits, inverse, batch.logits)
    log_determinant = np.linalg.slogdet(covariance)[1] + batch.logits.shape[1] * np.log(2 * np.pi)
    constant = -(squares + log_determinant) / 2
    messages = [Message(float(constant[j]), linear[j], precision[j]) for j in range(len(batch.jobs))]
    return messages, BatchTerms(inverse, weighted, matrix)


def upward(
    records: Sequence[JobRecord], batches: Iterable[JobBatch], candidates: Candidates, covariances: Covariances
) -> tuple[Pass, list[BatchTerms]]:
    """Collect the results of all jobs along the tree: first for the state of each data set, then for the shared state.

    The tree has a state that all jobs share, below it a state for each data set, and below that the jobs. A state has
    the mean logit of every candidate, slopes of covariates, and the mean shift of test images. A message is what was
    observed below a node of the tree, as a log density of its state. The result has the messages, the posterior of the
    shared state, and the log likelihood of all records.

    Also returns, for each batch, matrices that later steps need again: S^-1, S^-1 D and D, with the covariance S of a
    job's observed logits and the matrix D that turns a state into expected logits.

    records:     results of earlier jobs: candidates are judged on images to which they were not fitted, and tested on
                 test images.
    batches:     the same results, stacked: jobs that judged and tested the same candidates are one batch. `batch.jobs`
                 has their positions in `records`.
    candidates:  all candidates; records and batches have positions in it.
    covariances: of the effects at each level of the tree.
    Raises FcaError if the log likelihood is not finite.
    """
    prior = state_prior(covariances.overall)
    no_observations = Message(0.0, np.zeros(len(prior.mean)), np.zeros_like(prior.covariance))
    by_dataset = {record.dataset: no_observations for record in records}
    terms = []
    for batch in batches:
        messages, terms_of_batch = _messages_of_jobs(batch, candidates, covariances)
        terms.append(terms_of_batch)
        for job, message in zip(batch.jobs, messages, strict=True):  # those of the jobs of one data set add up
            dataset = records[job].dataset
            by_dataset[dataset] = by_dataset[dataset].plus(message)

    # `above` turns the message about a data set's state into one about the shared state, from which it differs by
    # N(0, effects)
    effects = dataset_effects(covariances)
    top = no_observations
    for message in by_dataset.values():
        top = top.plus(message.above(effects))
    # By its prior, the shared state is N(mean, covariance). `above` integrates over it, too: what is left is a message
    # about this mean, and its log density there is the log likelihood of all records
    log_likelihood = top.above(prior.covariance).at(prior.mean)
    if not np.isfinite(log_likelihood):
        raise FcaError("log likelihood of earlier jobs", log_likelihood, "finite", "look for wrong counts among them")
    return Pass(by_dataset, top, top.posterior(prior), log_likelihood), terms


def dataset_posterior(result: Pass, dataset: str, effects: BetweenStates) -> Normal:
    """The posterior of the state of a data set, from the results of all jobs: its own and those of other data sets.

    effects: covariance E of its effects. Given the shared state z, the state of the data set has the mean
    z + E (linear' - precision' z) and the covariance E - E precision' E, with the message of its own jobs about z;
    z has the posterior `result.shared`.
    """
    message, shared = result.by_dataset[dataset], result.shared
    above = message.above(effects)
    mean = shared.mean + effects @ (above.linear - above.precision @ shared.mean)
    covariance_given_shared = effects - effects @ above.precision @ effects
    weight_of_shared = np.eye(len(shared.mean)) - effects @ above.precision
    return Normal(mean, covariance_given_shared + weight_of_shared @ shared.covariance @ weight_of_shared.T)


def linearised_again(
    records: Sequence[JobRecord],
    batches: Sequence[JobBatch],
    covariances: Covariances,
    result: Pass,
    terms: list[BatchTerms],
) -> list[JobBatch]:
    """The batches with their shares linearised anew, at the posterior means of the true logits.

    A share right of n images has binomial noise. To linearise it at a logit l is to replace it by an observation of the
    true logit with normal noise:

        value = l + (share - p) / (p (1 - p)),   sd = 1 / sqrt(n p (1 - p)),   p = expit(l)

    Given the mean state m of its data set, the true logits of a job have the posterior mean D m + J S^-1 (y - D m),
    with the present values y, the matrix D that turns m into expected logits (`design`), the covariance J of the job's
    effects (`job_effects`), and J plus that of the noise, S (`job_covariance`).

    records, batches: results of earlier jobs, and the same results, stacked: jobs with the same judged and tested
                      candidates are one batch.
    result, terms:    posteriors of the states, and for each batch S^-1 and D (from `upward` with these batches and
                      covariances).
    """
    effects = dataset_effects(covariances)
    mean_states = {dataset: dataset_posterior(result, dataset, effects).mean for dataset in result.by_dataset}
    new_batches = []
    for batch, (inverse, _, matrix) in zip(batches, terms, strict=True):
        mean_state_of_job = np.stack([mean_states[records[job].dataset] for job in batch.jobs])
        # j: jobs; o, p: observed; s: state
        expected = np.einsum("jos,js->jo", matrix, mean_state_of_job)  # D m
        weighted_residuals = np.einsum("jop,jp->jo", inverse, batch.logits - expected)  # S^-1 (y - D m)
        # J is symmetric, so it may stand on the right of rows
        posterior_means = expected + weighted_residuals @ job_effects(batch, covariances)
        logits, sds = linearised(batch.shares, batch.images, posterior_means)
        new_batches.append(batch._replace(logits=logits, sds=sds))
    return new_batches


def settled(
    records: Sequence[JobRecord], batches: Sequence[JobBatch], candidates: Candidates, covariances: Covariances
) -> tuple[Pass, list[JobBatch]]:
    """The messages of the tree after LINEARISATIONS rounds, and the batches of the last round.

    A round linearises the shares at the posterior of the round before, which approaches that of binomial counts.
    """
    result, terms = upward(records, batches, candidates, covariances)
    for _ in range(LINEARISATIONS):
        batches = linearised_again(records, batches, covariances, result, terms)
        result, terms = upward(records, batches, candidates, covariances)
    return result, list(batches)


def covariance_gradient(
    records: Sequence[JobRecord],
    batches: Sequence[JobBatch],
    covariances: Covariances,
    result: Pass,
    terms: list[BatchTerms],
) -> Covariances:
    """The derivative of the log likelihood by every element of every covariance, in arrays of the same shapes.

    Let S be the covariance of one effect, and V = S + the rest the covariance of observations y around the mean E that
    the state one level higher predicts. Then, with h = V^-1 (y - E),

        d log p / dS = (h h' - V^-1) / 2

    That state is itself uncertain: E is replaced by its posterior mean, and the posterior covariance of h is added to
    h h' (Fisher's identity). The derivatives are added level by level: for the shared state, for each data set, and for
    the jobs of each batch.

    records, batches: results of earlier jobs, and the same results, stacked: jobs with the same judged and tested
                      candidates are one batch.
    result, terms:    messages and posteriors of the states, and for each batch the matrices V^-1, V^-1 D and D, where D
                      turns a state into expected logits (from `upward` with these batches and covariances).
    """
    n_candidates = len(covariances.overall)  # the state begins with their mean logits, and ends with the shift
    gradient = Covariances(*(np.zeros_like(covariance) for covariance in covariances))

    # For the shared state, E is the mean of its prior, which is known exactly. A message m.above(effects) is about the
    # state one level higher, here this mean; from it follows d log p / dS (elements), S being the covariance of a state
    prior = state_prior(covariances.overall)
    known_mean = Normal(prior.mean, np.zeros_like(prior.covariance))
    elements = _gradient_by_effects(result.top.above(prior.covariance), known_mean)
    gradient.overall[:] = elements[:n_candidates, :n_candidates]

    # for each data set, E is the shared state, of which the posterior is known
    effects = dataset_effects(covariances)
    states = {}
    for dataset, message in result.by_dataset.items():
        elements = _gradient_by_effects(message.above(effects), result.shared)
        gradient.dataset[:] += elements[:n_candidates, :n_candidates]
        gradient.dataset_shift[:] += elements[-1:, -1:]
        states[dataset] = dataset_posterior(result, dataset, effects)

    # for the jobs, E follows from the state of their data set
    for batch, (inverse, weighted, matrix) in zip(batches, terms, strict=True):
        state_means = np.stack([states[records[job].dataset].mean for job in batch.jobs])
        state_covariances = np.stack([states[records[job].dataset].covariance for job in batch.jobs])
        # j: jobs; o, p: observed; s: state
        residuals = batch.logits - np.einsum("jos,js->jo", matrix, state_means)  # y - E
        weighted_residuals = np.einsum("jop,jp->jo", inverse, residuals)  # h of each job
        uncertainty = weighted @ state_covariances @ np.swapaxes(weighted, 1, 2)  # what the unknown E adds to h h'
        outer = weighted_residuals[:, :, None] * weighted_residuals[:, None, :]
        _add_job_gradient(gradient, batch, (outer + uncertainty - inverse) / 2)
    return gradient


def _gradient_by_effects(above: Message, state: Normal) -> BetweenStates:
    """The derivative of the log likelihood by every element of the covariance of a node's effects.

    above: the node's message about the state one level higher, after its effects were integrated out.
    state: the distribution of that higher state.
    """
    residual = above.linear - above.precision @ state.mean
    uncertainty = above.precision @ state.covariance @ above.precision
    return (np.outer(residual, residual) + uncertainty - above.precision) / 2


def _add_job_gradient(
    gradient: Covariances, batch: JobBatch, elements: Float[np.ndarray, "jobs observed observed"]
) -> None:
    """Add what a batch contributes to the gradient by the covariances `job`, `shift` and `paired`, in place.

    batch:    jobs with the same judged and tested candidates; `sds` are the standard deviations of the noise of their
              observed logits.
    elements: the derivatives of the log likelihood by the covariance of the observed logits of each job. An element of
              that covariance is a sum: the element of `job` for both candidates, on test images also that of `shift`,
              and on the same images the covariance of the noise: paired x sd x sd.
    """
    judged, tested = batch.judged, batch.tested
    n_judged = len(judged)
    observed = np.concatenate([judged, tested])
    total = elements.sum(axis=0)
    # np.add.at, since a candidate that was judged and tested occurs twice: += would add only one of the two
    np.add.at(gradient.job, np.ix_(observed, observed), total)
    np.add.at(gradient.shift, np.ix_(tested, tested), total[n_judged:, n_judged:])

    by_paired = (elements * batch.sds[:, :, None] * batch.sds[:, None, :]).sum(axis=0)
    np.add.at(gradient.paired, np.ix_(judged, judged), by_paired[:n_judged, :n_judged])
    np.add.at(gradient.paired, np.ix_(tested, tested), by_paired[n_judged:, n_judged:])
