"""Hyperparameters that agree best with earlier jobs: maximum of the marginal posterior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from fca.studies.recommend.stats.candidate_accuracy.candidates import Candidates, JobRecord
from fca.studies.recommend.stats.candidate_accuracy.covariances import (
    PRIORS,
    Covariances,
    Hyperparameters,
    covariances,
    hyperparameters_at,
)
from fca.studies.recommend.stats.candidate_accuracy.hierarchy import (
    JobBatch,
    batches_of,
    covariance_gradient,
    settled,
    upward,
)
from fca.types import FcaError

WIDEST = 4.0  # prior standard deviations from a prior's centre, both ways, that are searched
ROUNDS = 3  # of fitting and linearising the counts where the fit has put them
STEP = 1e-5  # of a parameter on its free scale: covariances are smooth and exact to 1e-16, so their slopes to 1e-10

Free = Float[np.ndarray, " parameters"]


def fit(records: Sequence[JobRecord], candidates: Candidates, iterations: int = 60) -> Hyperparameters:
    """The hyperparameters with the highest marginal posterior density (weakly informative PRIORS), by L-BFGS.

    The logarithm of this density is, up to a constant,

        log p(logits of all jobs | hyperparameters) + log p(hyperparameters on their free scales)

    On the free scales every number is valid: the logarithm of a standard deviation and the logit of a share, in units
    of their prior, with 0 at its centre. The priors keep a variance that few data sets hardly show from being 0 (Chung
    et al. 2013, Psychometrika 78).

    records:    results of earlier jobs.    candidates: the candidates to which the records' positions refer.
    iterations: of L-BFGS, at most, in each of ROUNDS rounds.
    150 jobs of 50 candidates take a minute on one core. Raises FcaError without records, and if their log likelihood is
    not finite.
    """
    if not records:
        raise FcaError("earlier jobs", 0, "1 or more", "give records, or take usual_hyperparameters()")
    batches = batches_of(records)
    n_datasets = len({record.dataset for record in records})  # which the hyperparameters record

    free = np.zeros(len(PRIORS))  # the hyperparameters on their free scales; 0 is the centre of each prior
    bounds = [(-WIDEST, WIDEST)] * len(free)  # farther from its prior's centre none is searched
    options = {"maxiter": iterations, "ftol": 1e-8}
    for _ in range(ROUNDS):
        # the default binds the batches of this round, since `batches` is assigned again below
        def loss(free: Free, batches: list[JobBatch] = batches) -> tuple[float, Free]:
            value, gradient = log_posterior(free, records, batches, candidates)
            return -value, -gradient

        free = minimize(loss, free, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        # observed shares are approximated by normal observations of logits near the expected ones, which the new
        # hyperparameters change: the approximation is made again there
        covariances_here = covariances(hyperparameters_at(free, n_datasets), candidates)
        _, batches = settled(records, batches, candidates, covariances_here)
    return hyperparameters_at(free, n_datasets)


def log_posterior(
    free: Free, records: Sequence[JobRecord], batches: Sequence[JobBatch], candidates: Candidates
) -> tuple[float, Free]:
    """Log marginal posterior of hyperparameters on their free scales (up to a constant) and its gradient.

    The free scales are the logarithms of standard deviations and the logits of shares, in units of their prior. On them
    the prior is N(0, I), with the logarithm -free' free / 2 and the gradient -free. The likelihood depends on the
    hyperparameters through the covariances S of all effects, so its gradient is the chain rule over their elements:

        d log p / d free_k = Σ (d log p / dS) (dS / d free_k),   dS / d free_k by central differences

    free:       the hyperparameters on their free scales.
    records:    results of earlier jobs.
    batches:    the same results, stacked: jobs with the same judged and tested candidates are one batch.
    candidates: the candidates to which the positions in records and batches refer.
    Raises FcaError if the log likelihood is not finite.
    """
    # the number of data sets, here 1, does not matter for covariances
    covariances_here = covariances(hyperparameters_at(free, 1), candidates)
    # result: the log likelihood and posteriors; terms: matrices of each batch, which the gradient needs again
    result, terms = upward(records, batches, candidates, covariances_here)
    by_element = covariance_gradient(records, batches, covariances_here, result, terms)  # d log p / dS

    gradient = -free  # of the prior; the loop adds that of the likelihood
    for position in range(len(free)):
        step = np.zeros(len(free))
        step[position] = STEP
        higher = covariances(hyperparameters_at(free + step, 1), candidates)
        lower = covariances(hyperparameters_at(free - step, 1), candidates)
        # dS / d free_k = (higher - lower) / (2 STEP)
        gradient[position] += _chain_rule(by_element, higher, lower)
    return result.log_likelihood - float(free @ free) / 2, gradient


def _chain_rule(by_element: Covariances, higher: Covariances, lower: Covariances) -> float:
    """The derivative of the log likelihood by one parameter: the sum over elements of d log p / dS times dS.

    by_element: d log p / dS.    higher, lower: the covariances S at the parameter plus and minus STEP.
    """
    arrays = zip(by_element, higher, lower, strict=True)
    total = sum((slope * (above - below)).sum() for slope, above, below in arrays)
    return float(total) / (2 * STEP)
