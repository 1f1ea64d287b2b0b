"""What earlier jobs expect of a new one's candidates, against joint normal distributions written out in full."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import multivariate_normal
from scipy.stats import t as student

from fca.studies.recommend.stats.candidate_accuracy import (
    COLUMNS,
    Candidates,
    Hyperparameters,
    fit,
    prior,
    records_of,
    usual_hyperparameters,
)
from fca.studies.recommend.stats.candidate_accuracy.candidates import linearised, logit_of_counts
from fca.studies.recommend.stats.candidate_accuracy.covariances import (
    MEAN_SHIFT_SD,
    PRIORS,
    SLOPE_FEATURE_SDS,
    USUAL_LOGIT,
    covariances,
    free_of,
    hyperparameters_at,
    likeness,
    slope_features,
)
from fca.studies.recommend.stats.candidate_accuracy.fitting import log_posterior
from fca.studies.recommend.stats.candidate_accuracy.forecast import observe, positive_definite, uncertain_scales
from fca.studies.recommend.stats.candidate_accuracy.hierarchy import (
    batches_of,
    dataset_effects,
    dataset_posterior,
    settled,
    upward,
)
from fca.types import FcaError
from tests.studies.recommend.support.recorded_jobs import HYPERPARAMETERS, RECORDS, THREE, record


class Joint:
    """Every effect as a block of one long normal vector, every true logit as a matrix times it: no messages.

    starts: where the block of an effect begins.    effects: covariance of the vector.    matrix: of the true logits.
    noise:  covariance of the observed logits around the true ones.    mean: of both.    observed: logits.
    """

    def __init__(self, records, batches):
        parts = covariances(HYPERPARAMETERS, THREE)
        slope_variances = np.tile(SLOPE_FEATURE_SDS**2, 2)
        blocks = {"overall": parts.overall, "slopes": np.diag(slope_variances), "mean_shift": [[MEAN_SHIFT_SD**2]]}
        for dataset in dict.fromkeys(each.dataset for each in records):
            blocks |= {(dataset, "own"): parts.dataset, (dataset, "shift"): parts.dataset_shift}
        for position in range(len(records)):
            blocks |= {(position, "job"): parts.job, (position, "shift"): parts.shift}
        ends = np.cumsum([len(block) for block in blocks.values()])
        self.starts = dict(zip(blocks, [0, *ends], strict=False))
        self.effects = block_diag(*blocks.values())

        jobs = [(batch, index, job) for batch in batches for index, job in enumerate(batch.jobs)]
        self.matrix = np.array([row for batch, _, job in jobs for row in self.rows(batch, job, records[job])])
        self.noise = block_diag(*(noise_of(batch, index, parts.paired) for batch, index, _ in jobs))
        self.observed = np.concatenate([batch.logits[index] for batch, index, _ in jobs])
        self.mean = np.full(len(self.observed), USUAL_LOGIT)
        self.covariance = self.matrix @ self.effects @ self.matrix.T

    def rows(self, batch, job, about):
        starts, features = self.starts, slope_features(THREE)
        for c, is_test in [*((c, False) for c in batch.judged), *((c, True) for c in batch.tested)]:
            row = np.zeros(len(self.effects))
            row[[starts["overall"] + c, starts[about.dataset, "own"] + c, starts[job, "job"] + c]] = 1.0
            slopes = np.outer(about.covariates, features[c]).ravel()
            row[starts["slopes"] : starts["slopes"] + len(slopes)] = slopes
            if is_test:
                row[[starts["mean_shift"], starts[about.dataset, "shift"], starts[job, "shift"] + c]] = 1.0
            yield row


def noise_of(batch, index, paired):
    judged, sds = len(batch.judged), batch.sds[index]
    noise = np.outer(sds, sds)
    noise[:judged, :judged] *= paired[np.ix_(batch.judged, batch.judged)]
    noise[judged:, judged:] *= paired[np.ix_(batch.tested, batch.tested)]
    noise[:judged, judged:] = noise[judged:, :judged] = 0.0
    return noise


def test_the_marginal_likelihood_is_that_of_the_joint_normal_distribution():
    batches = batches_of(RECORDS)
    result, _ = upward(RECORDS, batches, THREE, covariances(HYPERPARAMETERS, THREE))
    joint = Joint(RECORDS, batches)
    expected = multivariate_normal(joint.mean, joint.covariance + joint.noise).logpdf(joint.observed)
    assert result.log_likelihood == pytest.approx(expected, abs=1e-8)  # float64, 20 observations, no cancellation


def test_the_posterior_of_a_data_set_is_that_of_the_joint_normal_distribution():
    batches, parts = batches_of(RECORDS), covariances(HYPERPARAMETERS, THREE)
    result, _ = upward(RECORDS, batches, THREE, parts)
    joint = Joint(RECORDS, batches)
    state_rows = np.zeros((3, len(joint.effects)))
    for c in range(3):
        state_rows[c, [joint.starts["overall"] + c, joint.starts["birds", "own"] + c]] = 1.0
    across = state_rows @ joint.effects @ joint.matrix.T
    gain = np.linalg.solve(joint.covariance + joint.noise, across.T).T
    expected_mean = USUAL_LOGIT + gain @ (joint.observed - joint.mean)
    expected_covariance = state_rows @ joint.effects @ state_rows.T - gain @ across.T

    state = dataset_posterior(result, "birds", dataset_effects(parts))
    np.testing.assert_allclose(state.mean[:3], expected_mean, atol=1e-10)
    np.testing.assert_allclose(state.covariance[:3, :3], expected_covariance, atol=1e-10)


def test_a_job_of_a_known_data_set_is_expected_as_by_the_joint_normal_distribution():
    """Both logits of the new job: judged, and test; with the linearisation that `prior` has settled on."""
    parts = covariances(HYPERPARAMETERS, THREE)
    _, batches = settled(RECORDS, batches_of(RECORDS), THREE, parts)
    new = record("cars", "new", ncl=6.0)
    unseen = batches_of([new])[0]._replace(jobs=np.array([len(RECORDS)]), logits=np.zeros((1, 6)))
    joint = Joint([*RECORDS, new], [*batches, unseen])
    old, own = slice(None, -6), slice(-6, None)
    gain = np.linalg.solve((joint.covariance + joint.noise)[old, old], joint.covariance[old, own]).T
    expected_mean = USUAL_LOGIT + gain @ (joint.observed - joint.mean)[old]
    expected_covariance = joint.covariance[own, own] - gain @ joint.covariance[old, own]

    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 6.0, 20.0, dataset="cars")
    np.testing.assert_allclose(forecast.mixture.means[0], expected_mean, atol=1e-9)
    np.testing.assert_allclose(forecast.mixture.covariances[0], expected_covariance, atol=1e-9)


def test_the_gradient_is_that_of_finite_differences():
    batches = batches_of(RECORDS)
    free = np.random.default_rng(0).normal(0, 0.3, len(PRIORS))
    _, gradient = log_posterior(free, RECORDS, batches, THREE)
    for position in range(len(free)):
        step = np.zeros(len(free))
        step[position] = 1e-4
        higher, lower = (log_posterior(free + sign * step, RECORDS, batches, THREE)[0] for sign in (1, -1))
        assert gradient[position] == pytest.approx((higher - lower) / 2e-4, abs=1e-5)  # error of order step squared


def test_an_update_ends_at_the_mode_of_the_binomial_posterior():
    """One candidate of one component: scipy minimises the exact negative log posterior density."""
    one = Candidates(("lite0",), (224.0,), ("whole",), ("fp32",))
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, one, 4.0, 20.0, dataset="cars")
    for right, images in ((20, 20), (0, 20), (13, 30)):
        correct = np.array([[1.0] * right + [0.0] * (images - right)])
        mean, variance = forecast.mixture.means[0][0], forecast.mixture.covariances[0][0, 0]

        def loss(value, mean=mean, variance=variance, right=right, images=images):
            p = expit(value[0])
            return (value[0] - mean) ** 2 / (2 * variance) - right * np.log(p) - (images - right) * np.log1p(-p)

        mode = minimize(loss, [mean], tol=1e-10).x[0]
        assert forecast.update(correct).mixture.means[0][0] == pytest.approx(mode, abs=2e-3)  # eight linearisations


def test_very_many_images_leave_nothing_but_what_they_show():
    rng = np.random.default_rng(0)
    share = np.array([0.9, 0.7, 0.95])
    correct = (rng.random((3, 200_000)) < share[:, None]).astype(float)
    update = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 4.0, 20.0).update(correct)
    drawn = update.draws(judged=True)
    np.testing.assert_allclose(drawn.mean(axis=0), correct.mean(axis=1), atol=2e-3)  # sd of a share: 1e-3
    assert (drawn.std(axis=0) < 2e-3).all()
    assert (update.draws().std(axis=0) > 5e-3).all(), "test images may be harder, which no judged image shows"


def test_no_image_leaves_the_prior():
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 4.0, 20.0)
    nothing = np.full((3, 7), np.nan)
    assert forecast.update(nothing) is forecast
    assert forecast.update(np.empty((3, 0))) is forecast


def test_all_right_on_twenty_images_is_below_one_and_finite():
    update = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 2.0, 10.0).update(np.ones((3, 20)))
    assert np.isfinite(update.mixture.means).all()
    assert (update.mean < 0.999).all()
    assert (update.interval().high < 1).all()
    assert (update.interval().low > 0.75).all()


def test_candidates_with_equal_answers_are_equally_accurate_up_to_what_is_their_own():
    """The best estimate of a correlated pair lies between their shares (Peelle's pertinent puzzle)."""
    twins = Candidates(("lite0", "lite0"), (224.0, 224.0), ("whole", "whole"), ("fp32", "int8"))
    records = [record("cars", "a", candidate=(0, 1)), record("cups", "a", candidate=(0, 1), seed=1)]
    rng = np.random.default_rng(0)
    first = rng.random(400) < 0.95
    second = first.copy()
    second[np.flatnonzero(first)[:8]] = False  # two points fewer
    forecast = prior(HYPERPARAMETERS, records, twins, twins, 4.0, 20.0)
    means = forecast.update(np.array([first, second], float)).draws(judged=True).mean(axis=0)
    assert second.mean() - 0.005 < means[1] < means[0] < first.mean() + 0.005

    same = forecast.update(np.array([first, first], float)).draws(judged=True)
    assert np.abs(same[:, 0] - same[:, 1]).mean() < 0.01


def test_a_probed_candidate_speaks_for_those_like_it_and_less_for_others():
    candidates = Candidates(
        ("lite0", "lite0", "lite9"), (224.0, 224.0, 96.0), ("whole", "whole", "cut"), ("fp32", "int8", "fp32")
    )
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, candidates, 4.0, 20.0)
    correct = np.full((3, 100), np.nan)
    correct[0] = np.arange(100) < 60
    update = forecast.update(correct)
    before, after = forecast.draws(judged=True).std(axis=0), update.draws(judged=True).std(axis=0)
    assert (after / before)[0] < (after / before)[1] < (after / before)[2] < 1


def test_images_may_be_missing_for_some_candidates():
    """Half of the images of one row: their number counts, and pairing is over the images of both."""
    rng = np.random.default_rng(1)
    correct = (rng.random((2, 80)) < 0.8).astype(float)
    correct[1, :40] = np.nan
    observed = observe(correct, np.full((2, 2), 0.4) + 0.6 * np.eye(2))
    np.testing.assert_allclose(observed.images, [80, 40])
    np.testing.assert_allclose(observed.shares, [correct[0].mean(), correct[1, 40:].mean()])
    apart = correct.copy()
    apart[0, 40:] = np.nan
    assert observe(apart, np.full((2, 2), 0.4) + 0.6 * np.eye(2)).correlation[0, 1] == pytest.approx(0, abs=1e-12)


def test_weights_count_as_repeated_images_and_only_their_ratios():
    correct = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]])
    paired = np.array([[1.0, 0.3], [0.3, 1.0]])
    weights = np.array([1.0, 2.0, 1.0, 1.0])
    plain, doubled = observe(correct, paired, weights), observe(correct, paired, 2 * weights)
    np.testing.assert_allclose(plain.shares, [3 / 5, 4 / 5])
    np.testing.assert_allclose(plain.images, [25 / 7] * 2)  # Kish: 5 squared / (1 + 4 + 1 + 1)
    for one, other in zip(plain, doubled, strict=True):
        np.testing.assert_allclose(one, other)


def test_pairs_of_images_of_different_candidates_still_make_a_covariance():
    rng = np.random.default_rng(2)
    correct = np.where(rng.random((12, 30)) < 0.5, np.nan, (rng.random((12, 30)) < 0.7).astype(float))
    observed = observe(correct, np.full((12, 12), 0.5) + 0.5 * np.eye(12))
    assert np.linalg.eigvalsh(observed.correlation)[0] > 0
    bad = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    assert np.linalg.eigvalsh(positive_definite(bad))[0] > 0


def test_an_unknown_network_is_expected_with_a_wider_interval():
    candidates = Candidates(("lite0", "mine"), (224.0, 224.0), ("cut", "cut"), ("fp32", "fp32"))
    low, high = prior(HYPERPARAMETERS, RECORDS, THREE, candidates, 4.0, 20.0).interval()
    assert 0 < low[1] < low[0] < high[0]


def test_a_fine_tuned_network_is_expected_somewhere_around_its_probe():
    candidates = Candidates(("lite0",) * 2, (224.0,) * 2, ("cut",) * 2, ("fp32",) * 2, ("probe", "finetune"))
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, candidates, 4.0, 20.0)
    draws = logit(forecast.draws(count=40_000))
    gain = draws[:, 1] - draws[:, 0]
    assert abs(gain.mean()) < 0.15  # of 40,000 draws with a deviation of 4.1: seven standard errors
    assert gain.std() > 1


def test_few_data_sets_make_the_interval_of_a_new_one_wider():
    widths = []
    for datasets in (5, 30):
        hyperparameters = hyperparameters_at(np.zeros(len(PRIORS)), datasets)
        low, high = prior(hyperparameters, RECORDS, THREE, THREE, 4.0, 20.0).interval(0.95)
        widths.append((high - low).mean())
    assert widths[0] > widths[1]


def test_the_mixture_of_scales_has_the_quantiles_of_students_t():
    """5 and 25 % in each tail, within 6 % of the distribution that five scales stand for."""
    rng = np.random.default_rng(0)
    for datasets in (5, 9, 20):
        values = rng.normal(size=200_000) * np.sqrt(rng.choice(uncertain_scales(datasets), 200_000))
        for level in (0.75, 0.95):
            assert np.quantile(values, level) == pytest.approx(student.ppf(level, datasets - 1), rel=0.06)


def test_candidates_that_are_alike_in_all_are_one_and_likeness_falls_with_every_difference():
    candidates = Candidates(
        ("a", "a", "a", "b"), (224.0, 192.0, 128.0, 128.0), ("whole", "whole", "whole", "cut"), ("fp32",) * 4
    )
    alike = likeness(HYPERPARAMETERS, candidates)
    assert np.diag(alike).tolist() == [1.0] * 4
    assert 1 > alike[0, 1] > alike[0, 2] > alike[0, 3] > 0
    assert np.linalg.eigvalsh(alike)[0] > 0


def test_fitting_finds_the_variances_of_simulated_jobs():
    """60 jobs of 30 data sets: a standard deviation of data sets has a standard error of 13 %; three of them."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in range(30):
        of_dataset = rng.normal(0, 1.2)
        for job in range(2):
            logits = 2 + of_dataset + rng.normal(0, 0.3) + rng.normal(0, 0.02, 3)
            right = rng.binomial(400, expit(logits)), rng.binomial(400, expit(logits - 0.5))
            for key, judged, tested in zip(THREE.keys, *right, strict=True):
                rows.append([dataset, job, 5, 30, *key[:4], 400, judged, 400, tested])
    recorded, records = records_of(pd.DataFrame(rows, columns=COLUMNS))
    found = fit(records, recorded)
    assert found.datasets == 30
    assert found.dataset_sd == pytest.approx(1.2, rel=0.4)
    assert found.job_sd == pytest.approx(0.3, rel=0.5)
    assert found.job_candidate_sd < 0.2

    forecast = prior(found, records, recorded, recorded, 5.0, 30.0)
    shift = logit(forecast.draws(judged=True)).mean() - logit(forecast.draws()).mean()
    assert shift == pytest.approx(0.5, abs=0.2)


def test_one_job_of_one_data_set_can_be_fitted():
    found = fit([record("cars", "a")], THREE)
    assert all(np.isfinite(value) and value > 0 for value in found.to_json().values())
    assert found.datasets == 1
    prior(found, [record("cars", "a")], THREE, THREE, 4.0, 20.0).interval()


def test_without_any_job_candidates_are_expected_as_usual():
    forecast = prior(usual_hyperparameters(), [], THREE, THREE, 4.0, 20.0)
    low, high = forecast.interval()
    assert (low < 0.5).all()
    assert (high > 0.95).all()
    with pytest.raises(FcaError, match="earlier jobs = 0"):
        fit([], THREE)


def test_hyperparameters_come_back_from_json():
    found = hyperparameters_at(np.linspace(-1, 1, len(PRIORS)), 7)
    assert Hyperparameters.from_json(json.loads(json.dumps(found.to_json()))) == found
    np.testing.assert_allclose(free_of(found), np.linspace(-1, 1, len(PRIORS)), atol=1e-12)
    with pytest.raises(FcaError, match="stored hyperparameters = job_sd"):
        Hyperparameters.from_json({name: value for name, value in found.to_json().items() if name != "job_sd"})


def test_a_table_becomes_records_whatever_the_order_of_its_lines():
    rows = [
        ["cars", "a", 2, 30, "lite0", 224, "whole", "fp32", 20, 19, 100, 93],
        ["cars", "a", 2, 30, "hog", 64, "whole", "fp32", 20, 12, np.nan, np.nan],
        ["cups", "a", 5, 10, "hog", 64, "whole", "fp32", 20, 12, 50, 30],
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    candidates, records = records_of(frame.iloc[::-1])
    assert candidates.network == ("hog", "lite0")
    cars = next(each for each in records if each.dataset == "cars")
    assert dict(zip(cars.candidate.tolist(), cars.right_judged.tolist(), strict=True)) == {0: 12.0, 1: 19.0}
    assert dict(zip(cars.candidate.tolist(), cars.n_test.tolist(), strict=True)) == {0: 0.0, 1: 100.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns=["n_test"]), r"columns of earlier jobs = n_test"),
        (lambda frame: frame.iloc[:0], r"lines of earlier jobs = 0"),
        (lambda frame: pd.concat([frame, frame]), r"several in job a of cars"),
        (lambda frame: frame.assign(right_test=101), r"101.0 of 100.0 \(job a of cars\)"),
        (lambda frame: frame.assign(size=0), r"size_px = 0"),
        (lambda frame: frame.assign(ncl=0), r"ncl = 0"),
    ],
)
def test_a_wrong_table_is_refused_with_its_value(change, message):
    row = ["cars", "a", 2, 30, "lite0", 224, "whole", "fp32", 20, 19, 100, 93]
    with pytest.raises(FcaError, match=message):
        records_of(change(pd.DataFrame([row], columns=COLUMNS)))


def test_wrong_matrices_weights_and_levels_are_refused_with_their_values():
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 4.0, 20.0)
    with pytest.raises(FcaError, match=r"correct = 0\.5"):
        forecast.update(np.full((3, 4), 0.5))
    with pytest.raises(FcaError, match=r"weights = 0\.0"):
        forecast.update(np.ones((3, 2)), np.array([1.0, 0.0]))
    with pytest.raises(FcaError, match=r"level = 90"):
        forecast.interval(90.0)
    with pytest.raises(FcaError, match=r"n_test = 0"):
        forecast.predictive(0)


def test_a_predictive_interval_is_wider_the_fewer_test_images():
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 4.0, 20.0).update(np.ones((3, 200)))
    widths = [np.mean(np.subtract(*forecast.predictive(n)[::-1])) for n in (20, 100, 10_000)]
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] == pytest.approx(np.mean(np.subtract(*forecast.interval()[::-1])), rel=0.1)


def test_an_empirical_logit_has_the_noise_of_all_candidates_together():
    logits, variances = logit_of_counts(np.array([9.0, 19.0]), np.array([10.0, 20.0]))
    np.testing.assert_allclose(logits, [np.log(9.5 / 1.5), np.log(19.5 / 1.5)])
    np.testing.assert_allclose(variances, [1 / (n * 28 / 30 + 0.5) + 1 / (n * 2 / 30 + 0.5) for n in (10, 20)])


def test_a_linearised_share_does_not_jump_past_its_end():
    value, _ = linearised(np.array([0.5]), np.array([100.0]), np.array([9.0]))
    assert value.tolist() == [6.0]


def test_so_many_times_as_many_images_count_as_the_same_images_again_and_again():
    correct = (np.random.default_rng(0).random((3, 80)) < [[0.6], [0.7], [0.8]]).astype(float)
    forecast = prior(HYPERPARAMETERS, RECORDS, THREE, THREE, 4.0, 20.0)
    again = forecast.update(np.tile(correct, (1, 20)))
    at_once = forecast.update(correct, times=20.0)
    # the copies also outweigh the images that stand for the usual correlation (PAIRED_PRIOR_IMAGES), which moves little
    np.testing.assert_allclose(at_once.mean, again.mean, atol=0.003)
    np.testing.assert_allclose(np.subtract(*at_once.interval()), np.subtract(*again.interval()), rtol=0.1)
