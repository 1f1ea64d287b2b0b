import numpy as np
import pytest
from scipy.stats import beta, binom

from fca.stats.abstention import (
    abstention,
    balanced_p_values,
    enough_images,
    error_that_answers_all,
    fewest_images,
    promised_balanced_error,
    promised_error,
)

ERROR, LEVEL, SETS = 0.1, 0.95, 600


def wrong_above(threshold, edges, risks):
    """P(wrong | confidence > threshold) for confidence uniform on [0, 1] and a risk that is constant between edges."""
    widths = np.clip(np.diff(np.maximum(edges, threshold)), 0, None)
    return widths @ risks / widths.sum()


def violations(edges, risks, images, candidates=1):
    """Of SETS drawn sets, the share whose threshold lets through more error than was asked for."""
    rng = np.random.default_rng(0)
    risk_of = lambda sure: np.array(risks)[np.searchsorted(edges, sure, side="right") - 1]  # noqa: E731
    over = 0
    for _ in range(SETS):
        drawn = []
        for _ in range(candidates):  # networks alike in all but luck, of which these images choose the best
            sure = rng.random(images)
            drawn.append((sure, rng.random(images) >= risk_of(sure)))
        sure, right = max(drawn, key=lambda one: one[1].sum())
        found = abstention(sure, right, ERROR, LEVEL, candidates)
        over += found.threshold is not None and wrong_above(found.threshold, edges, risks) > ERROR
    return over / SETS


@pytest.mark.parametrize("images", [60, 250])
@pytest.mark.parametrize(
    ("edges", "risks"),
    [
        ([0, 1], [0.1001]),  # always slightly too much: any threshold is a violation
        ([0, 0.5, 1], [0.5, 0.1]),  # at the border above .5, beyond it below
        ([0, 0.4, 0.8, 1], [0.4, 0.02, 0.15]),  # the surest answers are not the best
        ([0, 0.3, 0.6, 1], [0.4, 0.15, 0.02]),
    ],
)
@pytest.mark.slow
def test_the_error_of_answered_images_is_kept_with_the_stated_confidence(edges, risks, images):
    # 600 sets: a rate of .05 has a standard error of .009; three of them above
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
    sure, right = np.linspace(1, 0.01, 80), np.arange(80) < 70  # below 87 images: one sequence, at the full level
    found = abstention(sure, right, 0.1)
    upper = [beta.ppf(0.95, (~right[:n]).sum() + 1, right[:n].sum()) for n in range(29, 81)]
    most = 28 + np.argmax(np.array(upper) > 0.1)  # the last count before the first that is too high
    assert (found.answered, found.wrong) == (most, (~right[:most]).sum())
    assert found.threshold == sure[most]


def test_a_classifier_that_is_good_enough_answers_everything():
    assert abstention(np.linspace(0.2, 1, 300), np.ones(300, bool), 0.05).threshold == 0.0


def test_equal_confidences_are_answered_together_or_not_at_all():
    sure = np.repeat([0.9, 0.6], 100)
    found = abstention(sure, np.repeat([True, False], 100), 0.05)
    assert (found.threshold, found.answered, found.wrong) == (0.6, 100, 0)


def test_too_few_images_choose_no_threshold_whatever_they_show():
    assert fewest_images(0.05) == 59  # .95^59 = .0485
    assert abstention(np.full(58, 0.9), np.ones(58, bool), 0.05) == (None, 58, 0, 0)
    assert abstention(np.full(59, 0.9), np.ones(59, bool), 0.05) == (0.0, 59, 59, 0)


def test_no_number_of_images_helps_a_classifier_that_is_never_good_enough():
    sure, right = np.linspace(0, 1, 60), np.arange(60) % 3 > 0
    assert enough_images(sure[::-1], right, 0.05) is None


def test_as_many_images_as_are_said_to_be_enough_are_enough():
    sure = np.linspace(0.5, 1, 40)
    n = enough_images(sure, sure > 0.6, 0.05)
    more = np.linspace(0.5, 1, n + 10)  # a count of whole images, and one wrong image more or less
    assert abstention(more, more > 0.6, 0.05).threshold is not None
    assert abstention(sure, sure > 0.6, 0.05).threshold is None


@pytest.mark.parametrize(("error", "level"), [(0.0, 0.95), (1.0, 0.95), (0.05, 1.0)])
def test_an_error_or_level_that_means_nothing_is_refused(error, level):
    with pytest.raises(ValueError, match=r"is outside \(0, 1\)"):
        abstention(np.ones(5), np.ones(5, bool), error, level)


@pytest.mark.parametrize(
    ("wrong", "images", "candidates"), [(0, 24, 1), (0, 24, 10), (3, 60, 1), (17, 80, 4), (5, 5, 1)]
)
def test_a_promised_error_is_the_largest_that_so_few_wrong_images_do_not_exclude(wrong, images, candidates):
    bound, risk = promised_error(wrong, images, LEVEL, candidates), (1 - LEVEL) / candidates
    assert binom.cdf(wrong, images, bound - 1e-6) > risk
    assert wrong == images or binom.cdf(wrong, images, bound + 1e-6) <= risk


def test_a_promised_error_is_kept_by_as_many_drawn_sets_as_it_says():
    rng, truth, images = np.random.default_rng(0), 0.1, 40
    bounds = [promised_error(int(wrong), images, LEVEL) for wrong in rng.binomial(images, truth, 2000)]
    assert np.mean(np.array(bounds) < truth) <= 1 - LEVEL + 0.015  # three standard errors of 2,000 draws


@pytest.mark.parametrize("wrong_at", [[], [0], [39], [0, 20, 39]])
def test_the_error_that_answers_all_does_so_and_is_no_smaller_than_the_promise(wrong_at):
    sure, right = np.linspace(1, 0.3, 40), np.ones(40, bool)
    right[wrong_at] = False
    error = error_that_answers_all(sure, right, LEVEL)
    assert error >= promised_error(len(wrong_at), 40, LEVEL)
    assert abstention(sure, right, error, LEVEL).answered == 40


def test_no_error_answers_all_where_everything_is_wrong():
    assert error_that_answers_all(np.linspace(1, 0.3, 40), np.zeros(40, bool), LEVEL) is None


# The mean over classes

SIZES = [[20], [10, 10], [15, 5], [60, 20, 5], [100, 60, 30, 10], [2, 50], [20] * 5, [40] * 5]


def ways_to_share(error, images):
    """Errors of classes whose mean is `error`: the same everywhere, all in the smallest class, all in the largest."""
    count = len(images)
    yield np.full(count, error)
    for order in (np.argsort(images), np.argsort(-images)):
        errors, left = np.zeros(count), count * error
        for at in order:
            errors[at] = min(1.0, left)
            left -= errors[at]
        yield errors


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_balanced_error_is_excluded_wrongly_no_more_often_than_stated_however_classes_share_it(sizes):
    """20 to 200 images, few mistakes: 4,000 draws; three standard errors of .05 are .01."""
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
    shares = (counts / images).sum(axis=1)
    for wrong in ([0, 0], [1, 0], [0, 1], [2, 1]):
        is_as_small = shares <= (np.array(wrong) / images).sum() + 1e-12
        exact = [
            binom.pmf(counts, images, [first, 2 * error - first]).prod(axis=1)[is_as_small].sum()
            for first in np.linspace(0, 2 * error, 81)
        ]
        [bound] = balanced_p_values(np.array([wrong]), images[None], error)
        assert max(exact) - 1e-9 <= bound <= 3 * max(exact)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_with_nothing_wrong_in_equal_classes_a_balanced_error_is_promised_as_the_plain_one(classes):
    bound = promised_balanced_error(np.zeros(classes, int), np.full(classes, 20))
    assert bound == pytest.approx(promised_error(0, 20 * classes), abs=1e-9)  # exp(-30) is 1e-13


def test_a_class_without_images_may_be_wrong_always():
    assert promised_balanced_error(np.array([0, 0]), np.array([40, 0])) >= 0.5


def test_a_balanced_threshold_is_not_bought_with_a_rare_class():
    """Wrong on a rare class always, right on a frequent one: 4 % of all answers, 50 % as the mean over classes."""
    sure = np.linspace(1, 0.5, 200)
    labels = (np.arange(200) % 25 == 24).astype(int)
    right = labels == 0
    assert abstention(sure, right, 0.1).answered == 200
    assert abstention(sure, right, 0.1, labels=labels).threshold is None
    assert error_that_answers_all(sure, right, LEVEL, labels=labels) > 0.5


@pytest.mark.slow
def test_a_balanced_error_of_answered_images_is_kept_with_the_stated_confidence():
    """Two classes of 80 % and 20 %; the unsure images of the rare one are wrong: 400 sets, three standard errors."""
    rng, error, over = np.random.default_rng(0), 0.15, 0
    for _ in range(400):
        sure, labels = rng.random(150), (rng.random(150) < 0.2).astype(int)
        right = rng.random(150) >= np.where((labels == 1) & (sure < 0.5), 0.4, 0.05)
        threshold = abstention(sure, right, error, LEVEL, labels=labels).threshold
        if threshold is not None:
            unsure = max(0.5 - threshold, 0) / (1 - threshold)  # share of the answered images below 0.5
            over += (0.05 + 0.4 * unsure + 0.05 * (1 - unsure)) / 2 > error
    assert over / 400 <= 1 - LEVEL + 0.033
