"""Candidates judged by what their mistakes cost: the same as accuracy where all cost alike, honest where few do."""

import numpy as np
import pytest
from scipy.special import expit, logit, softmax

from fca.costs import Costs, mean_cost
from fca.metric import Metric
from fca.studies.recommend.evidence import Program
from fca.studies.recommend.expected import as_candidates, gather_other_jobs
from fca.studies.recommend.stats.candidate_accuracy import prior
from fca.studies.recommend.stats.candidate_accuracy.forecast import RIGHT_OR_WRONG, dispersion_of, observe
from fca.types import FcaError
from tests.studies.recommend.support.recorded_jobs import HYPERPARAMETERS, RECORDS, THREE


def forecast_of_three():
    return prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 4.0, 20.0)


def test_where_every_mistake_costs_alike_the_forecast_is_that_of_accuracies():
    correct = (np.random.default_rng(0).random((3, 60)) < 0.8).astype(float)
    plain, of_losses = forecast_of_three(), forecast_of_three().of_losses(np.ones(6))
    np.testing.assert_allclose(of_losses.draws(), plain.draws(), atol=1e-9)  # float64, through a logit and back
    np.testing.assert_allclose(of_losses.update(correct).draws(), plain.update(correct).draws(), atol=1e-9)


def test_a_mistake_that_costs_half_of_the_largest_halves_what_is_lost():
    """Losses that do not vary leave nothing unknown: 1 - loss is 1 - (1 - p) / 2, by the delta method."""
    plain, halved = forecast_of_three(), forecast_of_three().of_losses(np.full(6, 0.5))
    middles = [np.exp(one.mixture.log_weights) @ one.mixture.means for one in (plain, halved)]
    np.testing.assert_allclose(expit(middles[1]), 1 - (1 - expit(middles[0])) / 2, atol=1e-3)  # components alike
    medians = [np.median(one.draws(), axis=0) for one in (plain, halved)]
    np.testing.assert_allclose(1 - medians[1], (1 - medians[0]) / 2, rtol=0.03)  # components are not quite alike


def test_the_more_the_costs_vary_the_less_is_known_before_an_image_is_classified():
    widths = []
    for losses in (np.full(4, 0.4), np.array([0.1, 0.1, 0.4, 1.0]), np.array([0.01, 0.01, 0.02, 1.0])):
        low, high = forecast_of_three().of_losses(losses).interval()
        widths.append(np.median(logit(high) - logit(low)))
    assert widths[0] < widths[1] < widths[2]


def test_values_between_right_and_wrong_count_with_their_variance():
    """Against the variance of the mean of these values, over 20,000 drawn sets: 100 images that lose 0.1, rarely 1."""
    rng, images = np.random.default_rng(0), 100
    lost = rng.choice([0.0, 0.1, 1.0], p=[0.8, 0.15, 0.05], size=(20_000, images))
    mean = lost.mean()
    drawn = dispersion_of(1 - lost[:2000], np.array([0.1, 1.0]))
    assert lost.mean(axis=1).var() == pytest.approx(drawn * mean * (1 - mean) / images, rel=0.05)
    observed = observe(1 - lost[:1], np.ones((1, 1)), losses=np.array([0.1, 1.0]))
    assert observed.images[0] > images, "half right is less noise than right or wrong"
    assert observe(np.array([[1.0, 0.0]]), np.ones((1, 1))).images.tolist() == [2.0]


def test_a_loss_is_refused_where_nothing_but_right_or_wrong_counts():
    with pytest.raises(FcaError, match=r"correct = 0\.5"):
        observe(np.array([[0.5]]), np.ones((1, 1)), losses=RIGHT_OR_WRONG)
    with pytest.raises(FcaError, match=r"correct = 1\.5"):
        observe(np.array([[1.5]]), np.ones((1, 1)), losses=np.array([0.5, 1.0]))


PROGRAMS = as_candidates(
    Program("tf_efficientnet_lite0", "w", size, depth, precision, "probe")
    for size in (128, 224)
    for depth in ("whole", "cut")
    for precision in ("fp32", "int8")
)


class SimulatedJob:
    """Candidates whose features are normal around class means: what they share, and what is each one's own."""

    def __init__(self, seed, classes, separation=0.55):
        self.rng, self.classes = np.random.default_rng(seed), classes
        likeness = 0.6 * self.rng.normal(size=(classes, classes))
        separation = np.exp(self.rng.normal(separation, 0.3))
        shared = separation * np.eye(classes) + (likeness + likeness.T) / 2
        self.means = shared + 0.2 * self.rng.normal(size=(len(PROGRAMS), classes, classes))

    def probabilities(self, images):
        """Labels, and probabilities by each candidate: nearly those of Bayes' rule, as a fitted temperature gives."""
        labels = self.rng.integers(self.classes, size=images)
        shared = self.rng.normal(size=(images, self.classes))
        own = self.rng.normal(size=(len(PROGRAMS), images, self.classes))
        features = self.means[:, labels] + 0.9 * shared + np.sqrt(1 - 0.9**2) * own
        outputs = features @ self.means.transpose(0, 2, 1) - 0.5 * np.square(self.means).sum(axis=2)[:, None]
        return labels, softmax(0.8 * outputs, axis=2)


def lopsided(classes):
    """To overlook the first class costs 20, any other mistake 1."""
    matrix = 1.0 - np.eye(classes)
    matrix[0, 1:] = 20.0
    return Costs(tuple(map(str, range(classes))), matrix)


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "images"), [(3, 60), (5, 40), (5, 160)])
def test_intervals_of_expected_costs_hold_under_a_lopsided_table_and_bayes_decisions_cost_less(classes, images):
    """Nominal 90 %. 60 jobs, whose candidates are alike: a standard error of 4 points, of which two are allowed."""
    costs, known = lopsided(classes), gather_other_jobs([], Metric())
    metric = Metric("cost", costs)
    before = prior(known.hyperparameters, known.records, known.recorded, PROGRAMS, float(classes), 20.0)
    before = before.of_losses(metric.losses)
    held, cheaper = [], []
    for seed in range(60):
        job = SimulatedJob(seed, classes)
        labels, probabilities = job.probabilities(images)
        scores = np.stack([metric.scores(labels, costs.answers(p)) for p in probabilities])
        new_labels, new = job.probabilities(5000)
        truth = np.array([costs.paid(new_labels, costs.answers(p)).mean() for p in new])
        low, high = np.quantile(before.update(scores).draws(2000), (0.05, 0.95), axis=0)
        held.append((metric.cost(high) <= truth) & (truth <= metric.cost(low)))
        cheaper.append(truth.mean() < np.mean([costs.paid(new_labels, p.argmax(axis=1)).mean() for p in new]))
    assert np.mean(held) >= 0.82
    assert np.mean(cheaper) > 0.95


@pytest.mark.slow
def test_what_is_missed_on_jobs_far_easier_than_the_recorded_ones_is_better_than_expected():
    """97 % right: intervals are drawn towards other jobs, so many accuracies lie above; hardly one lies below."""
    known = gather_other_jobs([], Metric())
    before = prior(known.hyperparameters, known.records, known.recorded, PROGRAMS, 3.0, 20.0)
    above, below = [], []
    for seed in range(60):
        job = SimulatedJob(seed, 3, separation=1.3)
        labels, probabilities = job.probabilities(60)
        new_labels, new = job.probabilities(20_000)
        low, high = before.update((probabilities.argmax(axis=2) == labels).astype(float)).interval()
        truth = (new.argmax(axis=2) == new_labels).mean(axis=1)
        above.append(truth > high)
        below.append(truth < low)
    assert np.mean(below) <= 0.05
    assert np.mean(above) <= 0.5


@pytest.mark.slow
def test_the_interval_of_a_mean_cost_holds_where_a_rare_mistake_is_most_of_it():
    """Nominal 95 %: of 1,000 sets of 60 images, 4 % of which cost 1 and 1 % cost 20; three standard errors are 2 %."""
    matrix = np.array([[0.0, 1.0, 20.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    costs, rng = Costs(("a", "b", "c"), matrix), np.random.default_rng(0)
    labels, truth = np.zeros(60, int), 0.04 * 1 + 0.01 * 20
    held = 0
    for _ in range(1000):
        found = mean_cost(costs, labels, rng.choice(3, p=[0.95, 0.04, 0.01], size=60))
        held += found.low <= truth <= found.high
    assert held / 1000 >= 0.93


def test_with_one_cost_for_every_mistake_the_interval_is_jeffreys():
    from scipy.stats import beta

    costs = Costs(("a", "b"), 3 * (1 - np.eye(2)))
    found = mean_cost(costs, np.zeros(80, int), (np.arange(80) < 6).astype(int))
    assert found.value == pytest.approx(3 * 6 / 80)
    exact = 3 * beta.ppf([0.025, 0.975], 6.5, 74.5)
    np.testing.assert_allclose(found[1:], exact, rtol=0.08)  # 4,000 draws: an end has an error of about 2 %
