import numpy as np
import pytest
from scipy.stats import beta, binom

from fca.stats.abstention import (
    abstention,
    balanced_error_bound,
    balanced_p_values,
    enough_images,
    error_bound,
    error_that_answers_all,
    fewest_images,
)

ERROR, LEVEL, SETS = 0.1, 0.95, 600


def wrong_above(threshold, edges, risks):
    """P(wrong | confidence > threshold) for confidence uniform on [0, 1] and a risk that is constant between edges."""
    widths = np.clip(np.diff(np.maximum(edges, threshold)), 0, None)
    return widths @ risks / widths.sum()


def violations(edges, risks, images, candidates=1):
    """Of SETS drawn sets, the share whose threshold lets through more error than ERROR."""
    rng = np.random.default_rng(0)

    def draw_network():  # the candidates are equal except for luck
        confidence = rng.random(images)
        risk = np.array(risks)[np.searchsorted(edges, confidence, side="right") - 1]
        return confidence, rng.random(images) >= risk

    n_violations = 0
    for _ in range(SETS):
        networks = [draw_network() for _ in range(candidates)]
        confidence, right = max(networks, key=lambda network: network[1].sum())
        threshold = abstention(confidence, right, ERROR, LEVEL, candidates).threshold
        if threshold is not None:
            n_violations += wrong_above(threshold, edges, risks) > ERROR
    return n_violations / SETS


@pytest.mark.parametrize("images", [60, 250])
@pytest.mark.parametrize(
    ("edges", "risks"),
    [
        ([0, 1], [0.1001]),  # always slightly too much: any threshold is a violation
        ([0, 0.5, 1], [0.5, 0.1]),  # at the limit above 0.5, over it below
        ([0, 0.4, 0.8, 1], [0.4, 0.02, 0.15]),  # the surest answers are not the best
        ([0, 0.3, 0.6, 1], [0.4, 0.15, 0.02]),
    ],
)
@pytest.mark.slow
def test_the_error_of_answered_images_is_kept_with_the_stated_confidence(edges, risks, images):
    # 600 sets: a rate of 0.05 has a standard error of 0.009; three of them above
    assert violations(edges, risks, images) <= 1 - LEVEL + 0.027


def test_images_that_also_chose_the_network_need_the_union_bound():
    edges, risks = [0, 1], [0.1001]
    assert violations(edges, risks, 60, candidates=10) <= 1 - LEVEL + 0.027
    rng = np.random.default_rng(0)
    without = 0
    for _ in range(200):
        best = max((rng.random(60) >= 0.1001 for _ in range(10)), key=np.sum)
        without += abstention(rng.random(60), best, ERROR).threshold is not None
    assert without / 200 > 0.1, "else nothing would have to be counted"


def test_a_threshold_is_where_clopper_and_pearson_s_upper_end_is_below_the_error():
    confidence = np.linspace(1, 0.01, 80)
    right = np.arange(80) < 70
    result = abstention(confidence, right, 0.1)

    # below 87 images there is one sequence, at the full level; it starts at 29
    upper_ends = np.array([beta.ppf(0.95, (~right[:n]).sum() + 1, right[:n].sum()) for n in range(29, 81)])
    answered = 28 + np.argmax(upper_ends > 0.1)  # the last count before the first that is too high
    assert (result.answered, result.wrong) == (answered, (~right[:answered]).sum())
    assert result.threshold == confidence[answered]


def test_a_classifier_that_is_good_enough_answers_everything():
    assert abstention(np.linspace(0.2, 1, 300), np.ones(300, bool), 0.05).threshold == 0.0


def test_equal_confidences_are_answered_together_or_not_at_all():
    confidence = np.repeat([0.9, 0.6], 100)
    right = np.repeat([True, False], 100)
    assert abstention(confidence, right, 0.05) == (0.6, 200, 100, 0)


def test_too_few_images_choose_no_threshold_whatever_they_show():
    assert fewest_images(0.05) == 59  # 0.95^59 = 0.0485
    assert abstention(np.full(58, 0.9), np.ones(58, bool), 0.05) == (None, 58, 0, 0)
    assert abstention(np.full(59, 0.9), np.ones(59, bool), 0.05) == (0.0, 59, 59, 0)


def test_no_number_of_images_helps_a_classifier_that_is_never_good_enough():
    sure, right = np.linspace(0, 1, 60), np.arange(60) % 3 > 0
    assert enough_images(sure[::-1], right, 0.05) is None


def test_as_many_images_as_are_estimated_to_be_enough_are_enough():
    few = np.linspace(0.5, 1, 40)
    n = enough_images(few, few > 0.6, 0.05)
    enough = np.linspace(0.5, 1, n + 10)  # a count of whole images, and one wrong image more or less
    assert abstention(enough, enough > 0.6, 0.05).threshold is not None
    assert abstention(few, few > 0.6, 0.05).threshold is None


@pytest.mark.parametrize(("error", "level"), [(0.0, 0.95), (1.0, 0.95), (0.05, 1.0)])
def test_an_error_or_level_that_means_nothing_is_refused(error, level):
    with pytest.raises(ValueError, match=r"is outside \(0, 1\)"):
        abstention(np.ones(5), np.ones(5, bool), error, level)


@pytest.mark.parametrize(
    ("wrong", "images", "candidates"), [(0, 24, 1), (0, 24, 10), (3, 60, 1), (17, 80, 4), (5, 5, 1)]
)
def test_a_promised_error_is_the_largest_that_so_few_wrong_images_do_not_exclude(wrong, images, candidates):
    bound, risk = error_bound(wrong, images, LEVEL, candidates), (1 - LEVEL) / candidates
    assert binom.cdf(wrong, images, bound - 1e-6) > risk
    assert wrong == images or binom.cdf(wrong, images, bound + 1e-6) <= risk


def test_a_promised_error_is_kept_by_as_many_drawn_sets_as_it_says():
    rng, truth, images = np.random.default_rng(0), 0.1, 40
    bounds = [error_bound(int(wrong), images, LEVEL) for wrong in rng.binomial(images, truth, 2000)]
    assert np.mean(np.array(bounds) < truth) <= 1 - LEVEL + 0.015  # three standard errors of 2,000 draws


@pytest.mark.parametrize("wrong_at", [[], [0], [39], [0, 20, 39]])
def test_the_error_that_answers_all_does_so_and_is_no_smaller_than_the_promise(wrong_at):
    sure, right = np.linspace(1, 0.3, 40), np.ones(40, bool)
    right[wrong_at] = False
    error = error_that_answers_all(sure, right, LEVEL)
    assert error >= error_bound(len(wrong_at), 40, LEVEL)
    assert abstention(sure, right, error, LEVEL).answered == 40


def test_no_error_answers_all_where_everything_is_wrong():
    assert error_that_answers_all(np.linspace(1, 0.3, 40), np.zeros(40, bool), LEVEL) is None


# The mean over classes

SIZES = [[20], [10, 10], [15, 5], [60, 20, 5], [100, 60, 30, 10], [2, 50], [20] * 5, [40] * 5]


def ways_to_share(error, images):
    """Errors of classes whose mean is `error`: the same everywhere, all in the smallest class, all in the largest."""
    classes = len(images)
    yield np.full(classes, error)
    for order in (np.argsort(images), np.argsort(-images)):
        errors = np.zeros(classes)
        remaining = classes * error
        for c in order:
            errors[c] = min(1.0, remaining)
            remaining -= errors[c]
        yield errors


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_balanced_error_is_excluded_wrongly_no_more_often_than_stated_however_classes_share_it(sizes):
    """20 to 200 images, few mistakes: 4,000 draws; three standard errors of 0.05 are 0.01."""
    rng, images = np.random.default_rng(0), np.array(sizes)
    for error in (0.01, 0.03, 0.1, 0.2):
        for errors in ways_to_share(error, images):
            wrong, draws = np.unique(rng.binomial(images, errors, (4000, len(sizes))), axis=0, return_counts=True)
            p_values = balanced_p_values(wrong, np.tile(images, (len(wrong), 1)), error)
            assert draws[p_values <= 1 - LEVEL].sum() / 4000 <= 1 - LEVEL + 0.01


def test_a_balanced_p_value_is_no_smaller_than_any_way_to_share_the_error_makes_it():
    """Against the exact probability, by enumeration of all counts of two classes, at a grid of errors."""
    images, error = np.array([12, 5]), 0.2
    counts = np.array([[a, b] for a in range(13) for b in range(6)])
    sums = (counts / images).sum(axis=1)

    def exact_p_value(observed_sum, first_error):
        errors = [first_error, 2 * error - first_error]
        probabilities = binom.pmf(counts, images, errors).prod(axis=1)
        return probabilities[sums <= observed_sum + 1e-12].sum()

    for wrong in ([0, 0], [1, 0], [0, 1], [2, 1]):
        observed_sum = (np.array(wrong) / images).sum()
        largest = max(exact_p_value(observed_sum, first_error) for first_error in np.linspace(0, 2 * error, 81))
        [bound] = balanced_p_values(np.array([wrong]), images[None], error)
        assert largest - 1e-9 <= bound <= 3 * largest


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_with_nothing_wrong_in_equal_classes_a_balanced_error_is_promised_as_the_plain_one(classes):
    bound = balanced_error_bound(np.zeros(classes, int), np.full(classes, 20))
    assert bound == pytest.approx(error_bound(0, 20 * classes), abs=1e-9)  # exp(-30) is 1e-13


def test_a_class_without_images_may_be_wrong_always():
    assert balanced_error_bound(np.array([0, 0]), np.array([40, 0])) >= 0.5


def test_a_balanced_threshold_is_not_bought_with_a_rare_class():
    """Wrong on a rare class always, right on a frequent one: 4 % of all answers, 50 % as the mean over classes."""
    sure = np.linspace(1, 0.5, 200)
    labels = (np.arange(200) % 25 == 24).astype(int)
    right = labels == 0
    assert abstention(sure, right, 0.1).answered == 200
    assert abstention(sure, right, 0.1, labels=labels).threshold is None
    assert error_that_answers_all(sure, right, LEVEL, labels=labels) > 0.5


def test_a_threshold_above_which_there_is_no_image_is_never_chosen():
    """The first test would answer 5 images, but the 6 most confident ones are equally so, and 2 of them are wrong."""
    confidence = np.append(np.full(6, 0.9), np.linspace(0.8, 0.5, 8))
    right = np.arange(14) >= 2
    assert abstention(confidence, right, 0.5, labels=np.zeros(14, dtype=int)) == (None, 14, 0, 0)


@pytest.mark.slow
def test_a_balanced_error_of_answered_images_is_kept_with_the_stated_confidence():
    """Two classes of 80 % and 20 %; the unsure images of the rare one are wrong: 400 sets, three standard errors."""
    rng, error = np.random.default_rng(0), 0.15
    n_violations = 0
    for _ in range(400):
        confidence = rng.random(150)
        labels = (rng.random(150) < 0.2).astype(int)
        risk = np.where((labels == 1) & (confidence < 0.5), 0.4, 0.05)
        right = rng.random(150) >= risk
        threshold = abstention(confidence, right, error, LEVEL, labels=labels).threshold
        if threshold is None:
            continue

        unsure = max(0.5 - threshold, 0) / (1 - threshold)  # share of the answered images below 0.5
        error_of_rare_class = 0.4 * unsure + 0.05 * (1 - unsure)
        n_violations += (0.05 + error_of_rare_class) / 2 > error
    assert n_violations / 400 <= 1 - LEVEL + 0.033
