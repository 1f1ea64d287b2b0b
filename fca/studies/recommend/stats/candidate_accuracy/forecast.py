"""Accuracies of a new job's candidates: what earlier jobs expect, and what the job's own images make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer, Num
from scipy.special import chdtri, expit, logsumexp  # not scipy.stats, which takes half a second to import

from fca.studies.recommend.stats.candidate_accuracy.candidates import (
    BetweenCandidates,
    Candidates,
    JobRecord,
    PerCandidate,
    covariates_of,
    linearised,
    logit_of_counts,
)
from fca.studies.recommend.stats.candidate_accuracy.covariances import Hyperparameters, covariances
from fca.studies.recommend.stats.candidate_accuracy.hierarchy import (
    Normal,
    batches_of,
    dataset_effects,
    dataset_posterior,
    design,
    settled,
)
from fca.types import FcaError, keyed_rng

DRAWS, LEVEL = 4000, 0.9
LEAST_EIGENVALUE = 1e-6  # of a correlation: counts over different pairs of images may leave a negative one
LINEARISATIONS = 8  # of the job's own counts, from empirical logits on
SCALES = 5  # values of each uncertain variance
FEWEST_FREEDOM, MOST_FREEDOM = 3, 30  # degrees of freedom of a new data set's effects
STRANGER_SD = 0.7  # logit units: the best of four networks of 0.4 to 4 million weights is 10 points above the worst
LEAST_VARIANCE = 1e-9  # of a logit: 3e-5, far below what any number of images shows
PAIRED_PRIOR_IMAGES = 30  # that the typical correlation of right and wrong counts for, beside the observed one
OWN_SHARE = 0.1  # of the deviation that all candidates share: each makes other mistakes (0.04 to 0.1 in simulations)
UNSEEN_MISTAKES = 0.5  # that count beside the observed ones: few images show few kinds of mistakes
RIGHT_OR_WRONG = np.ones(1)  # every mistake loses 1: nothing but right or wrong counts
LEAST_DISPERSION = 1e-4  # of a variance, so that no number of images is infinite

Losses = Float[np.ndarray, " mistakes"]
Correct = Float[np.ndarray, "candidates images"]
Draws = Float[np.ndarray, "draws candidates"]
Both = Float[np.ndarray, " both"]  # first logits on images like the judged ones, then on test images


class Mixture(NamedTuple):
    """Normal distributions of the logits of all candidates, one for each guess of how far this data set is from others.

    Each state has the logits on images like those that judge the job, then those on test images.
    log_weights: of the components; their exponentials add up to 1.
    """

    log_weights: Float[np.ndarray, " components"]
    means: Float[np.ndarray, "components both"]
    covariances: Float[np.ndarray, "components both both"]


class Interval(NamedTuple):
    """Ends of an equal-tailed interval of each candidate, as fractions."""

    low: PerCandidate
    high: PerCandidate


class Observed(NamedTuple):
    """Shares right of the judged candidates.

    judged: positions of these candidates.    images: that each was judged by, effective ones if weighted.
    correlation: of the noise of their shares, which shared images pair.
    """

    judged: Integer[np.ndarray, " judged"]
    shares: Float[np.ndarray, " judged"]
    images: Float[np.ndarray, " judged"]
    correlation: Float[np.ndarray, "judged judged"]


@dataclass(frozen=True)
class JobForecast:
    """What is known of the accuracies of a job's candidates, before (`prior`) or after (`update`) it has judged some.

    candidates: of the job.    mixture: of their logits.    paired: typical correlation of right and wrong.
    losses:     of the possible mistakes: 1, or as `of_losses` has them.
    """

    candidates: Candidates
    mixture: Mixture
    paired: BetweenCandidates
    losses: Losses = field(default_factory=lambda: RIGHT_OR_WRONG)

    def of_losses(self, losses: Losses) -> JobForecast:
        """This forecast of accuracies, converted to mean scores: a mistake loses a part of 1, depending on its classes.

        An accuracy p becomes the score s = 1 - (1 - p) r, with r the mean loss of a mistake. By the delta method,

            d logit(s) / d logit(p) = p / s

        The mistakes of this job may all be cheap ones, or expensive ones, so r is itself uncertain: lognormal, with the
        mean and the coefficient of variation v of the losses. Its logarithm has the variance log(1 + v²), which all
        candidates share, and a median that is lower than the mean of the losses by the factor exp(-log(1 + v²) / 2).
        Each candidate also deviates on its own, with OWN_SHARE of the shared standard deviation. If every mistake loses
        1, scores are accuracies.

        losses: of the possible mistakes, in [0, 1] and not all 0, each as likely as the others.
        """
        variance = np.log1p((losses.std() / losses.mean()) ** 2)
        median_loss = float(losses.mean() * np.exp(-variance / 2))  # the median of r, which stands for r below
        count = len(self.candidates)
        # what the uncertain log r adds to logit(s): d logit(s) / d log r = -1 / s, taken as -1, as for scores near 1.
        # Each candidate has a logit on judged images and one on test images; both get the same deviation
        covariance_of_loss = np.full((2 * count, 2 * count), variance)
        covariance_of_loss += np.tile(OWN_SHARE**2 * variance * np.eye(count), (2, 2))

        accuracies = expit(self.mixture.means)
        scores = 1 - (1 - accuracies) * median_loss
        slopes = accuracies / scores
        # logit(s) = logit(p) + log(s / (p r)), since 1 - s = (1 - p) r
        means = self.mixture.means + np.log(scores / (accuracies * median_loss))
        covariances = slopes[:, :, None] * self.mixture.covariances * slopes[:, None, :] + covariance_of_loss
        mixture = Mixture(self.mixture.log_weights, means, covariances)
        return JobForecast(self.candidates, mixture, self.paired, losses)

    def update(
        self, correct: Correct, weights: Num[np.ndarray, " images"] | None = None, times: float = 1.0
    ) -> JobForecast:
        """The forecast given the results of the job's own images; `self` must be the forecast before any of them.

        When there are more images, update the first forecast again with all images, instead of updating this result.

        correct: 1 right, 0 wrong (after `of_losses`: 1 minus the loss), NaN not judged, on left-out training images and
                 validation images that all candidates share; a row of NaN for a candidate that was not judged yet.
        weights: of the images, above 0, for a balanced accuracy; only their ratios count.
        times:   multiplies the number of images, as if more images had given the same shares.
        Raises FcaError for values and weights that `observe` does not allow.
        """
        observed = observe(correct, self.paired, weights, self.losses)
        if not len(observed.judged):
            return self
        observed = observed._replace(images=times * observed.images)

        # start from empirical logits; then again and again, replace the shares by normal observations of the logits,
        # which are a good approximation near the posterior mean
        logits, variances = logit_of_counts(observed.shares * observed.images, observed.images)
        mixture = conditioned(self.mixture, observed, logits, np.sqrt(variances))
        for _ in range(LINEARISATIONS):
            posterior_mean = np.exp(mixture.log_weights) @ mixture.means[:, observed.judged]
            logits, sds = linearised(observed.shares, observed.images, posterior_mean)
            mixture = conditioned(self.mixture, observed, logits, sds)
        return JobForecast(self.candidates, mixture, self.paired, self.losses)

    def draws(self, count: int = DRAWS, judged: bool = False) -> Draws:
        """Joint draws of all candidates' accuracies from this distribution, the same at every call.

        They are accuracies on images like the test images. If `judged`, they are on images like those on which the
        candidates are judged before the test: images to which they were not fitted.

        count: number of draws.
        """
        rng = keyed_rng("candidate accuracy", 0)
        weights = np.exp(self.mixture.log_weights)
        component_of_draw = rng.choice(len(weights), size=count, p=weights / weights.sum())
        noise = rng.standard_normal((count, len(self.candidates)))

        # a mean has first the logits on judged images, then those on test images
        n_candidates = len(self.candidates)
        half = slice(0, n_candidates) if judged else slice(n_candidates, None)
        logits = np.empty_like(noise)
        for component in np.unique(component_of_draw):
            is_of_component = component_of_draw == component
            root = root_of(self.mixture.covariances[component][half, half])  # root @ root.T is the covariance
            logits[is_of_component] = self.mixture.means[component][half] + noise[is_of_component] @ root.T
        return expit(logits)

    @cached_property
    def usual_draws(self) -> Draws:
        """The draws on images like the test images, computed once."""
        return self.draws()

    @property
    def mean(self) -> PerCandidate:
        """Expected accuracy of each candidate on images like the test images."""
        return self.usual_draws.mean(axis=0)

    def interval(self, level: float = LEVEL) -> Interval:
        """Interval of the true accuracy of each candidate on images like the test images."""
        return _interval(self.usual_draws, level)

    def predictive(self, n_test: int) -> Interval:
        """90 % interval of the share of `n_test` test images that each candidate will have right.

        It is wider than `interval`, since the test images are a sample themselves.
        """
        if n_test < 1:
            raise FcaError("n_test", n_test, "1 or more", "give the number of test images")
        rng = keyed_rng("candidate accuracy on test images", 0)
        return _interval(rng.binomial(n_test, self.usual_draws) / n_test, LEVEL)


def conditioned(
    mixture: Mixture, observed: Observed, logits: Float[np.ndarray, " judged"], sds: Float[np.ndarray, " judged"]
) -> Mixture:
    """The mixture given normal observations y of the judged candidates' logits, whose noise has the deviations `sds`.

    mixture:  of normal distributions of the logits of all candidates.
    observed: has the positions of the judged candidates and the correlation of their noise.
    logits:   the observations y.

    For a component N(m, C), with H the rows of the judged candidates, R the covariance of the noise, S = H C H' + R and
    the gain K = C H' S^-1:

        mean = m + K (y - H m),   covariance = C - K H C,   log weight + log N(y; H m, S)
    """
    judged = observed.judged  # logits on judged images come first, so these are also positions in a mean
    noise = observed.correlation * np.outer(sds, sds)
    log_weights, means, covariances = [], [], []
    for log_weight, mean, covariance in zip(*mixture, strict=True):
        predicted_covariance = covariance[np.ix_(judged, judged)] + noise
        gain = np.linalg.solve(predicted_covariance, covariance[judged]).T
        residual = logits - mean[judged]

        # without a constant that is the same for all components
        squares = residual @ np.linalg.solve(predicted_covariance, residual)
        log_density = -(squares + np.linalg.slogdet(predicted_covariance)[1]) / 2
        log_weights.append(log_weight + log_density)
        means.append(mean + gain @ residual)
        covariances.append(covariance - gain @ covariance[judged])

    normalised = np.array(log_weights) - logsumexp(log_weights)
    return Mixture(normalised, np.stack(means), np.stack(covariances))


def _interval(draws: Draws, level: float) -> Interval:
    """The equal-tailed interval that contains this share of the draws of each candidate."""
    if not 0 < level < 1:
        raise FcaError("level", level, "above 0, below 1", "take 0.9")
    tail = (1 - level) / 2
    return Interval(*np.quantile(draws, (tail, 1 - tail), axis=0))


def prior(
    hyperparameters: Hyperparameters,
    records: Sequence[JobRecord],
    recorded: Candidates,
    candidates: Candidates,
    ncl: float,
    images_a_class: float,
    dataset: str | None = None,
) -> JobForecast:
    """The forecast for the candidates of a new job from earlier jobs, before any of its images is classified.

    A job is a set of images and classes for which a model is needed; it judges candidates on left-out training images
    and validation images.

    hyperparameters: variances of the effects of data sets, jobs and candidates, fitted to earlier jobs.
    records:        results of earlier jobs.
    recorded:       the candidates to which the records' positions refer.
    candidates:     the candidates of the new job, recorded or not.
    ncl:            number of classes of the new job.
    images_a_class: its training images per class.
    dataset:        name of its data set if the records may have other jobs of it; None: a new one. How far a new one is
                    from the others is itself uncertain: a t distribution with one degree of freedom fewer than there
                    are data sets, as a mixture of normals, whose weights the job's own images change.
    Raises FcaError if the log likelihood of the records is not finite.
    """
    # What the records show of all candidates: those of the records and those of this job. The model is a tree: a state
    # that all jobs share (mean logit of every candidate, slopes of covariates, mean shift of test images), below it one
    # state for each data set, below that its jobs
    all_candidates = recorded.joined(candidates)
    effects = covariances(hyperparameters, all_candidates)
    result, _ = settled(records, batches_of(records), all_candidates, effects)  # the posteriors of the states
    has_dataset = dataset in result.by_dataset

    # the matrix that turns a state into the logits of this job's candidates: on judged images, then on test images
    positions = all_candidates.positions(candidates)
    block = np.ix_(positions, positions)  # this job's candidates in a matrix of all candidates
    covariates = covariates_of(ncl, images_a_class)
    matrix = design(all_candidates, positions, positions, covariates[None])[0]
    # additional uncertainty of candidates whose network no earlier job has, on judged and on test images
    unrecorded = np.tile(covariance_of_unrecorded(recorded, candidates), (2, 2))

    # For a new data set, the variances are uncertain: `uncertain_scales` has equally likely factors of a variance, and
    # a mixture of normals with these factors is nearly a t distribution. There is one component for every combination
    # of two factors: one of the variances of the effects that a data set and a job have on candidates, one of the
    # variances of the shifts from judged to test images
    scales = np.ones(1) if has_dataset else uncertain_scales(hyperparameters.datasets)
    components = []
    for effect_scale, shift_scale in product(scales, scales):
        scaled = effects._replace(
            dataset=effect_scale * effects.dataset,
            job=effect_scale * effects.job,
            dataset_shift=shift_scale * effects.dataset_shift,
            shift=shift_scale * effects.shift,
        )
        if has_dataset:
            state = dataset_posterior(result, str(dataset), dataset_effects(scaled))
        else:  # the state that all jobs share, plus the unknown effects of a new data set
            state = Normal(result.shared.mean, result.shared.covariance + dataset_effects(scaled))
        components.append(_logits_of_job(state, matrix, scaled.job[block], scaled.shift[block], unrecorded))

    mixture = Mixture(
        log_weights=np.full(len(components), -np.log(len(components))),  # equally likely
        means=np.stack([component.mean for component in components]),
        covariances=np.stack([component.covariance for component in components]),
    )
    return JobForecast(candidates, mixture, effects.paired[block])


def _logits_of_job(
    state: Normal,
    matrix: Float[np.ndarray, "both state"],
    job_effects: BetweenCandidates,
    shift_effects: BetweenCandidates,
    unrecorded: Float[np.ndarray, "both both"],
) -> Normal:
    """The distribution of the logits of a new job's candidates: on judged images, then on test images.

    state:         distribution of the state of its data set.    matrix: turns a state into expected logits.
    job_effects:   covariance of the job's effects on its candidates, which are the same on judged and on test images.
    shift_effects: covariance of the shifts, which are added on test images.
    unrecorded:    additional covariance of candidates whose network no earlier job has.
    """
    count = len(job_effects)  # of candidates
    covariance = matrix @ state.covariance @ matrix.T
    covariance += np.tile(job_effects, (2, 2)) + unrecorded
    covariance[count:, count:] += shift_effects  # the second half: test images
    return Normal(matrix @ state.mean, covariance)


def covariance_of_unrecorded(recorded: Candidates, candidates: Candidates) -> BetweenCandidates:
    """Additional covariance of candidates whose network, or whose adaptation of it, no earlier job has.

    The networks of the earlier jobs may resemble each other, as those of one family do; a network of no earlier job may
    be far from them. All sizes, depths and precisions of one network share this deviation, STRANGER_SD.
    """
    networks = list(zip(candidates.network, candidates.adaptation, strict=True))
    recorded_networks = set(zip(recorded.network, recorded.adaptation, strict=True))
    is_unrecorded = np.array([network not in recorded_networks for network in networks])
    is_same = np.array([[network == other for other in networks] for network in networks])
    return STRANGER_SD**2 * (is_same & is_unrecorded[:, None])


def uncertain_scales(datasets: int) -> Float[np.ndarray, " scales"]:
    """Equally likely factors of a variance that was estimated from few data sets: f / chi2_f, f = datasets - 1.

    A normal distribution whose variance has such a factor is Student's t with f degrees of freedom.

    >>> uncertain_scales(9).round(2)
    array([0.6 , 0.84, 1.09, 1.45, 2.29])
    """
    freedom = float(np.clip(datasets - 1, FEWEST_FREEDOM, MOST_FREEDOM))
    upper_tail = (np.arange(SCALES) + 0.5) / SCALES
    return freedom / chdtri(freedom, upper_tail)


def root_of(covariance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """A matrix R with R R' = covariance, also where some combination of candidates has no variance left.

    Cholesky's factor after LEAST_VARIANCE was added to every variance; if there is none, by eigenvalues.
    """
    symmetric = (covariance + covariance.T) / 2
    try:
        return np.linalg.cholesky(symmetric + LEAST_VARIANCE * np.eye(len(symmetric)))
    except np.linalg.LinAlgError:  # rounding left a variance below 0: ten times slower
        values, vectors = np.linalg.eigh(symmetric)
        return vectors * np.sqrt(np.clip(values, 0, None))


def observe(
    correct: Correct,
    paired: BetweenCandidates,
    weights: Num[np.ndarray, " images"] | None = None,
    losses: Losses = RIGHT_OR_WRONG,
) -> Observed:
    """Shares right of the judged candidates, their effective numbers of images, and the correlation of their noise.

    images = (Σ w)² / (d Σ w²),   correlation = r x overlap

    d:       dispersion: the variance of the values in `correct`, divided by the variance p (1 - p) that they would have
             if all were 1 or 0 with the same mean p; one number for all candidates (quasi-binomial: McCullagh and
             Nelder 1989, section 4.5). It is 1 where every mistake loses 1.
    r:       correlation of two candidates' values on an image that judged both. PAIRED_PRIOR_IMAGES images with the
             correlation `paired` are added to the observed ones, so that r exists also where everything is right.
    overlap: Σ w² over the images that judged both / sqrt(product of Σ w² over all images of each).

    correct: 1 right, 0 wrong, NaN not judged. A mistake that loses only a part of 1 has the value 1 - loss.
    paired:  typical correlation of right and wrong on one image, for every two candidates.
    weights: w of each image; None: 1 for all.
    losses:  what each possible mistake loses, in [0, 1]; by default every mistake loses 1.
    Raises FcaError for values outside [0, 1], for values between 0 and 1 if every mistake loses 1, and for weights that
    are not above 0.
    """
    is_observed = ~np.isnan(correct)
    may_lose_parts = losses.min() < 1
    is_allowed = (correct >= 0) & (correct <= 1) if may_lose_parts else np.isin(correct, (0, 1))
    refused_values = correct[is_observed & ~is_allowed]
    if len(refused_values):
        allowed = "1 (right), 0 (wrong), between them where mistakes lose a part of 1, or NaN (not judged)"
        raise FcaError("correct", refused_values[0], allowed, "mend the matrix")
    image_weights = np.ones(correct.shape[1]) if weights is None else np.asarray(weights, float)
    if not (np.isfinite(image_weights) & (image_weights > 0)).all():
        raise FcaError("weights", image_weights.min(), "finite and above 0", "leave out images that do not count")

    # accuracies and effective numbers of images of the judged candidates
    is_judged = is_observed.any(axis=1)
    observed = is_observed[is_judged].astype(float)  # judged candidates x images, as are `right` and `deviations`
    right = np.nan_to_num(correct[is_judged])  # 0 where not judged, so that sums leave these out
    squared_weights = (observed * image_weights**2) @ observed.T  # Σ w² over shared images, for each pair
    total_weights = observed @ image_weights
    images = total_weights**2 / np.diag(squared_weights)
    accuracy = (right @ image_weights) / total_weights
    dispersion = dispersion_of(correct[is_judged], losses)

    # r: from the deviations of the values from their mean, which are 0 where not judged, and from the images added to
    # them, whose deviations are typical ones
    deviations = observed * (right - accuracy[:, None])
    n_shared_images = observed @ observed.T
    smoothed_accuracy = (accuracy * images + 0.5) / (images + 1)  # not 0 or 1, where the deviation would be 0
    typical_sd = np.sqrt(dispersion * smoothed_accuracy * (1 - smoothed_accuracy))
    correlation = _smoothed_correlation(deviations, n_shared_images, paired[np.ix_(is_judged, is_judged)], typical_sd)

    own_squared_weights = np.diag(squared_weights)
    overlap = squared_weights / np.sqrt(np.outer(own_squared_weights, own_squared_weights))
    return Observed(
        judged=np.flatnonzero(is_judged),
        shares=accuracy,
        images=images / dispersion,
        # positive_definite: pairs that were judged on different images may have correlations that contradict each other
        correlation=positive_definite(correlation * overlap),
    )


def _smoothed_correlation(
    deviations: Float[np.ndarray, "judged images"],
    n_shared_images: Float[np.ndarray, "judged judged"],
    typical_correlation: Float[np.ndarray, "judged judged"],
    typical_sd: Float[np.ndarray, " judged"],
) -> Float[np.ndarray, "judged judged"]:
    """The correlation of two candidates' values over the images that judged both.

    PAIRED_PRIOR_IMAGES images with typical deviations and their correlation are added to the n_shared_images. So the
    correlation exists also where a candidate has everything right.

    deviations: of each value from its candidate's mean; 0 for an image that did not judge the candidate.
    """
    products = deviations @ deviations.T
    products += PAIRED_PRIOR_IMAGES * typical_correlation * np.outer(typical_sd, typical_sd)
    covariance = products / (n_shared_images + PAIRED_PRIOR_IMAGES)
    sds = np.sqrt(np.diag(covariance))
    return covariance / np.outer(sds, sds)


def dispersion_of(correct: Correct, losses: Losses) -> float:
    """The variance of all values as a part of p (1 - p), the variance of right or wrong with the same mean p.

    (q - m) / (1 - m),   m = 1 - p = mean loss of an image,   q = Σ l² / Σ l over the losses l of the mistakes

    For the variance of the losses is their mean square, m q, minus m², and p (1 - p) = (1 - m) m. Few images show few
    kinds of mistakes. So each sum, divided by the number of candidates, gets UNSEEN_MISTAKES more mistakes, with the
    mean of l² or l over all possible ones.

    correct: 1 - loss, NaN: not judged.    losses: of the possible mistakes.

    >>> dispersion_of(np.array([[1.0, 1.0, 0.0, np.nan]]), RIGHT_OR_WRONG)
    1.0
    >>> round(dispersion_of(np.array([[1.0] * 90 + [0.9] * 10]), np.array([0.1])), 3)  # every mistake loses a tenth
    0.091
    """
    lost = 1 - correct[~np.isnan(correct)]
    mean_loss = float(lost.mean()) if lost.size else 0.0
    if mean_loss >= 1:  # everything is wrong: p (1 - p) is 0, and so is the variance
        return 1.0

    n_candidates = max(1, len(correct))
    sum_of_squares = np.square(lost).sum() / n_candidates + UNSEEN_MISTAKES * np.square(losses).mean()
    sum_of_losses = lost.sum() / n_candidates + UNSEEN_MISTAKES * losses.mean()
    ratio = sum_of_squares / sum_of_losses  # q
    # LEAST_DISPERSION: above 0, since numbers of images are divided by it
    return float(np.clip((ratio - mean_loss) / (1 - mean_loss), LEAST_DISPERSION, 1.0))


def positive_definite(correlation: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The correlation with its eigenvalues raised to LEAST_EIGENVALUE at least, and 1 on its diagonal again.

    Where correlations are counted over different images for different pairs, eigenvalues may be negative.

    >>> bad = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    >>> bool(np.linalg.eigvalsh(positive_definite(bad))[0] > 0)
    True
    """
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    raised = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    sds = np.sqrt(np.diag(raised))
    return raised / np.outer(sds, sds)
