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
    found = []
    for s in range(subsets):
        chance = 0.7 + even(rng, sd[0], 1) + even(rng, sd[1], (inits, 1)) + even(rng, sd[2], (1, images))
        names = tuple(f"{s}/{i}" for i in range(inits))
        image = s * images + np.arange(images)
        found.append(SubsetRuns(rng.random((inits, images)) < chance, image, np.arange(images) % 2, names))
    return found


def truth(images=60, sd=(0.06, 0.04, 0.15)):
    a, b, c = np.square(sd)
    alone = 0.7 * 0.3 - a - b - c  # E[p (1 - p)]
    return a, b, alone / images, c / images


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
    easy = chance[:, None] + even(rng, 0.12, (classes, per_class))
    right = rng.random((inits, classes, per_class)) < easy + even(rng, 0.04, (inits, 1, 1))
    found = []
    for _ in range(subsets):
        drawn = np.sort(rng.choice(classes, ncl, replace=False))
        images = (drawn[:, None] * per_class + np.arange(per_class)).ravel()
        found.append(
            SubsetRuns(right[:, drawn].reshape(inits, -1), images, np.repeat(drawn, per_class), ("a", "b")[:inits])
        )
    return found


@pytest.mark.parametrize("inits", [1, 2])
def test_what_subsets_share_is_not_taken_off(inits):
    chance, ncl, per_class = np.linspace(0.55, 0.8, 6), 3, 20
    mean, error, splits = simulated(lambda rng: crossed(rng, chance, inits=inits), repeats=240, seed=2)
    subset = chance.var(ddof=1) * (1 / ncl - 1 / len(chance))  # without replacement: Cochran 1977, theorem 2.2
    n = ncl * per_class
    alone = (chance * (1 - chance)).mean() - 0.12**2 - 0.04**2
    test, init, luck = 0.12**2 / n, 0.04**2, alone / n
    if inits == 1:
        assert mean[3] == pytest.approx(test + luck, abs=3.5 * error[3])  # one answer an image: not to be split
        assert np.isnan([split.init for split in splits]).all()
        assert np.isnan([split.luck for split in splits]).all()
    else:
        assert (np.abs(mean[1:] - [init, luck, test]) < 3.5 * error[1:]).all()
    assert mean[0] == pytest.approx(subset, abs=3.5 * error[0])
    if inits == 2:  # the same subsets as if nothing were shared
        apart = simulated(lambda rng: [own(s, k) for k, s in enumerate(crossed(rng, chance))], repeats=60, seed=2)[0]
        assert apart[0] < subset - 3.5 * error[0] * 2


def lucky(rng, inits=(2,) * 5, images=200, right=0.8):
    """Every training is right on each image with the same probability: no class, image or initialisation is better."""
    found = []
    for s, number in enumerate(inits):
        names = tuple(f"{s}/{i}" for i in range(number))
        correct = rng.random((number, images)) < right
        found.append(SubsetRuns(correct, s * images + np.arange(images), np.arange(images) % 2, names))
    return found


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


def own(subset, number):
    return subset._replace(images=subset.images + 1000 * number, runs=tuple(f"{r}{number}" for r in subset.runs))


def test_a_balanced_layout_is_the_analysis_of_variance():
    subsets = nested(np.random.default_rng(3))
    split = split_variance(subsets)
    accuracy = np.array([s.correct.mean(axis=1) for s in subsets])
    within = accuracy.var(axis=1, ddof=1).mean()
    between = scipy.stats.f_oneway(*accuracy).statistic * within / 3  # mean square over inits: variance of the means
    test, residual = 0.0, 0.0
    for s in subsets:
        for c in (0, 1):
            x = s.correct[:, s.strata == c].astype(float)
            n = x.shape[1]
            rest = x - x.mean(axis=0) - x.mean(axis=1, keepdims=True) + x.mean()
            alone = (rest**2).sum() / (2 * (n - 1))
            images = 3 * ((x.mean(axis=0) - x.mean()) ** 2).sum() / (n - 1)
            test += (n / 60) ** 2 * (images - alone) / 3 / n / 4  # expected: var C + var E / 3, less var E / 3
            residual += (n / 60) ** 2 * alone / n / 4
    assert split.luck.value == pytest.approx(residual, abs=1e-15)
    assert split.init.value == pytest.approx(within - residual, abs=1e-15)
    assert split.test.value == pytest.approx(test, abs=1e-15)
    assert split.subset.value == pytest.approx(between - (within - residual) / 3 - test - residual / 3, abs=1e-15)


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
    subsets = nested(np.random.default_rng(7))
    first = subsets[0]
    some = [SubsetRuns(first.correct[:1], first.images, first.strata, first.runs[:1]), *subsets[1:]]
    split = split_variance(some)
    inits = [s.correct.mean(axis=1).var(ddof=1) for s in subsets[1:]]
    assert split.init.value + split.luck.value == pytest.approx(np.mean(inits))
    assert np.isfinite(np.array(split)).all()
    mean, error, _ = simulated(
        lambda rng: [*nested(rng, subsets=2), nested(rng, inits=1)[0]._replace(runs=("z",))], repeats=200, seed=8
    )
    assert (np.abs(mean - truth()) < 3.5 * error).all()


def test_one_subset_or_one_image_leaves_missing_what_they_cannot_tell():
    one = nested(np.random.default_rng(9), subsets=1)
    assert np.isnan(split_variance(one).subset).all()
    assert split_variance(one).init.value > 0
    lonely = SubsetRuns(np.array([[True]]), np.array([0]), np.array([0]), ("a",))
    assert np.isnan(np.array(split_variance([lonely, lonely]))).all()


def test_less_spread_than_noise_has_no_interval():
    rng = np.random.default_rng(10)
    right = np.repeat([True, False], 20)  # shuffled: each subset has exactly half right, and noise of its own
    same = [
        SubsetRuns(rng.permutation(right)[None], 100 * s + np.arange(40), np.zeros(40, int), (str(s),)) for s in (0, 1)
    ]
    subset = split_variance(same).subset
    assert subset.value == pytest.approx(-0.25 / 39)
    assert np.isnan([subset.low, subset.high]).all()


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="got none"):
        split_variance([])
