"""Variance components against simulations of known components, and against an analysis of variance written out."""

import numpy as np
import pytest
import scipy.stats

from fca.stats.comparison import SubsetRuns, split_variance


def even(rng, sd, size):
    """Around 0 with this standard deviation, and bounded, so that chances stay in [0, 1]."""
    return rng.uniform(-1, 1, size=size) * sd * 3**0.5


def nested(rng, subsets=4, inits=3, images=60, sd=(0.06, 0.04, 0.15)):
    """Sub-models: each subset has its own networks and its own images."""
    runs_of_subsets = []
    for s in range(subsets):
        subset_effect = even(rng, sd[0], 1)
        init_effects = even(rng, sd[1], (inits, 1))
        image_effects = even(rng, sd[2], (1, images))
        chance = 0.7 + subset_effect + init_effects + image_effects

        names = tuple(f"{s}/{i}" for i in range(inits))
        image_numbers = s * images + np.arange(images)
        strata = np.arange(images) % 2
        runs_of_subsets.append(SubsetRuns(rng.random((inits, images)) < chance, image_numbers, strata, names))
    return runs_of_subsets


def truth(images=60, sd=(0.06, 0.04, 0.15)):
    """The components of `nested`: subset, init, luck, test."""
    subset, init, image = np.square(sd)
    residual = 0.7 * 0.3 - subset - init - image  # E[p (1 - p)]
    return subset, init, residual / images, image / images


def simulated(draw, repeats=250, seed=0):
    rng = np.random.default_rng(seed)
    splits = [split_variance(draw(rng)) for _ in range(repeats)]
    values = np.array([[part.value for part in split] for split in splits])
    return values.mean(axis=0), values.std(axis=0) / repeats**0.5, splits


@pytest.fixture(scope="module")
def many():
    return simulated(lambda rng: nested(rng, subsets=5))


def test_known_components_come_back_unbiased(many):
    mean, error, splits = many
    assert (np.abs(mean - truth()) < 3.5 * error).all()
    assert (error < np.array(truth()) / 4).all()  # so that the claim above says something
    assert any(split.subset.value < 0 for split in splits)  # the price of being unbiased


def test_intervals_cover_the_known_components(many):
    for component, true in zip(zip(*many[2], strict=True), truth(), strict=True):
        covered = np.mean([part.low <= true <= part.high for part in component])
        # experiments/few_class_arena/variance_split.py gives 0.94 to 0.98; the standard error of 250 is 0.014
        assert covered > 0.9


def crossed(rng, chance=None, subsets=5, ncl=3, inits=2, per_class=20):
    """Full models: the same networks and, where subsets share a class, the same images."""
    classes = len(chance)
    image_chance = chance[:, None] + even(rng, 0.12, (classes, per_class))
    uniform = rng.random((inits, classes, per_class))
    right = uniform < image_chance + even(rng, 0.04, (inits, 1, 1))

    runs_of_subsets = []
    for _ in range(subsets):
        subset = np.sort(rng.choice(classes, ncl, replace=False))
        correct = right[:, subset].reshape(inits, -1)
        images = (subset[:, None] * per_class + np.arange(per_class)).ravel()
        strata = np.repeat(subset, per_class)
        runs_of_subsets.append(SubsetRuns(correct, images, strata, ("a", "b")[:inits]))
    return runs_of_subsets


@pytest.mark.parametrize("inits", [1, 2])
def test_what_subsets_share_is_not_taken_off(inits):
    chance = np.linspace(0.55, 0.8, 6)
    ncl, per_class = 3, 20
    n = ncl * per_class
    subset = chance.var(ddof=1) * (1 / ncl - 1 / len(chance))  # without replacement: Cochran 1977, theorem 2.2
    init = 0.04**2
    luck = ((chance * (1 - chance)).mean() - 0.12**2 - 0.04**2) / n
    test = 0.12**2 / n

    mean, error, splits = simulated(lambda rng: crossed(rng, chance, inits=inits), repeats=240, seed=2)
    assert mean[0] == pytest.approx(subset, abs=3.5 * error[0])
    if inits == 1:
        assert mean[3] == pytest.approx(test + luck, abs=3.5 * error[3])  # one answer an image: not separable
        assert np.isnan([split.init for split in splits]).all()
        assert np.isnan([split.luck for split in splits]).all()
        return

    assert (np.abs(mean[1:] - [init, luck, test]) < 3.5 * error[1:]).all()

    def as_if_nothing_were_shared(rng):
        return [unshared(runs, number) for number, runs in enumerate(crossed(rng, chance))]

    mean_unshared, _, _ = simulated(as_if_nothing_were_shared, repeats=60, seed=2)
    assert mean_unshared[0] < subset - 3.5 * error[0] * 2


def lucky(rng, inits=(2,) * 5, images=200, right=0.8):
    """Every training is right on each image with the same probability: no class, image or initialisation is better."""
    runs_of_subsets = []
    for s, n_inits in enumerate(inits):
        names = tuple(f"{s}/{i}" for i in range(n_inits))
        correct = rng.random((n_inits, images)) < right
        image_numbers = s * images + np.arange(images)
        runs_of_subsets.append(SubsetRuns(correct, image_numbers, np.arange(images) % 2, names))
    return runs_of_subsets


@pytest.mark.wide
@pytest.mark.parametrize("inits", [(2,) * 5, (2, 2, 2, 1, 4)])  # the second: unbalanced
def test_luck_on_single_images_is_luck_and_no_initialisation(inits):
    mean, error, splits = simulated(lambda rng: lucky(rng, inits), repeats=300, seed=11)
    binomial = 0.8 * 0.2 / 200  # 8.0e-4, the variance of one accuracy
    assert mean == pytest.approx([0, 0, binomial, 0], abs=3.5 * error.max())
    assert error.max() < binomial / 10
    # variance_split.py gives 0.96 to 0.99; without an interval: the inits differ less than by luck
    assert np.mean([split.luck.low <= binomial <= split.luck.high for split in splits]) > 0.91
    assert np.mean([not split.init.low > 0 for split in splits]) > 0.91


def unshared(subset, number):
    """The same runs, of images and networks that no other subset has."""
    return subset._replace(
        images=subset.images + 1000 * number,
        runs=tuple(f"{run}{number}" for run in subset.runs),
    )


def test_a_balanced_layout_is_the_analysis_of_variance():
    subsets = nested(np.random.default_rng(3))
    n_subsets, n_inits, n_images = 4, 3, 60
    accuracy = np.array([s.correct.mean(axis=1) for s in subsets])  # subsets x inits
    between_inits = accuracy.var(axis=1, ddof=1).mean()
    f_statistic = scipy.stats.f_oneway(*accuracy).statistic
    between_means = f_statistic * between_inits / n_inits  # mean square over inits: variance of the means

    test, luck = 0.0, 0.0
    for s in subsets:
        for c in (0, 1):
            x = s.correct[:, s.strata == c].astype(float)  # inits x images of the class
            n = x.shape[1]
            interaction = x - x.mean(axis=0) - x.mean(axis=1, keepdims=True) + x.mean()
            residual_square = (interaction**2).sum() / ((n_inits - 1) * (n - 1))
            image_square = n_inits * ((x.mean(axis=0) - x.mean()) ** 2).sum() / (n - 1)

            weight = (n / n_images) ** 2 / n / n_subsets
            luck += weight * residual_square
            test += weight * (image_square - residual_square) / n_inits  # var C

    split = split_variance(subsets)
    noise = (between_inits - luck) / n_inits + test + luck / n_inits
    assert split.luck.value == pytest.approx(luck, abs=1e-15)
    assert split.init.value == pytest.approx(between_inits - luck, abs=1e-15)
    assert split.test.value == pytest.approx(test, abs=1e-15)
    assert split.subset.value == pytest.approx(between_means - noise, abs=1e-15)


def test_two_classes_of_different_ease_are_no_sampling_error():
    right = np.array([[True] * 10 + [False] * 10])
    image = np.arange(20)
    test = split_variance([SubsetRuns(right, image, image // 10, ("a",))]).test
    assert test.value == 0
    assert np.isnan([test.low, test.high]).all()  # ten answers that are all alike bound nothing
    one_class = split_variance([SubsetRuns(right, image, image * 0, ("a",))]).test
    assert one_class.value == pytest.approx(0.25 / 19)  # p (1 - p) / (n - 1): unbiased for the binomial


def test_one_image_a_class_counts_as_one_class():
    rng = np.random.default_rng(4)
    right, image = rng.random((2, 30)) < 0.7, np.arange(30)
    runs = ("a", "b")
    by_class, together = (np.array(split_variance([SubsetRuns(right, image, c, runs)])) for c in (image, image * 0))
    np.testing.assert_array_equal(by_class, together)


def test_the_order_of_subsets_inits_and_images_changes_nothing():
    subsets = crossed(np.random.default_rng(5), np.linspace(0.55, 0.8, 6))
    turned = []
    for s in reversed(subsets):
        order = np.random.default_rng(6).permutation(len(s.images))
        turned.append(SubsetRuns(s.correct[::-1, order], s.images[order], s.strata[order], s.runs[::-1]))
    assert np.array(split_variance(turned)) == pytest.approx(np.array(split_variance(subsets)), abs=1e-15)


def test_subsets_with_one_init_borrow_from_the_others():
    first, *other_subsets = nested(np.random.default_rng(7))
    first_with_one_init = first._replace(correct=first.correct[:1], runs=first.runs[:1])
    split = split_variance([first_with_one_init, *other_subsets])
    between_inits = [s.correct.mean(axis=1).var(ddof=1) for s in other_subsets]
    assert split.init.value + split.luck.value == pytest.approx(np.mean(between_inits))
    assert np.isfinite(np.array(split)).all()

    def two_subsets_and_a_single_init(rng):
        subsets = nested(rng, subsets=2)
        single = nested(rng, inits=1)[0]
        return [*subsets, single._replace(runs=("z",))]

    mean, error, _ = simulated(two_subsets_and_a_single_init, repeats=200, seed=8)
    assert (np.abs(mean - truth()) < 3.5 * error).all()


def test_one_subset_or_one_image_leaves_missing_what_they_cannot_show():
    one_subset = nested(np.random.default_rng(9), subsets=1)
    assert np.isnan(split_variance(one_subset).subset).all()
    assert split_variance(one_subset).init.value > 0

    one_image = SubsetRuns(np.array([[True]]), np.array([0]), np.array([0]), ("a",))
    assert np.isnan(np.array(split_variance([one_image, one_image]))).all()


def test_less_spread_than_noise_has_no_interval():
    rng = np.random.default_rng(10)
    half_right = np.repeat([True, False], 20)
    subsets = []
    for s in (0, 1):  # each has exactly half right, and its own noise
        correct = rng.permutation(half_right)[None]
        subsets.append(SubsetRuns(correct, 100 * s + np.arange(40), np.zeros(40, int), (str(s),)))

    subset = split_variance(subsets).subset
    assert subset.value == pytest.approx(-0.25 / 39)
    assert np.isnan([subset.low, subset.high]).all()


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="got none"):
        split_variance([])
