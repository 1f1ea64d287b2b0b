"""Paired comparisons against published examples, scipy, the definition of Holm's method, and simulated coverage."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from fca.stats.comparison import holm, mcnemar, paired_interval


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_chance_of_a_split_as_uneven(only_a, only_b):
    discordant = only_a + only_b
    splits = np.arange(discordant + 1)
    chance = scipy.stats.binom.pmf(splits, discordant, 0.5)
    expected = chance[np.abs(2 * splits - discordant) >= abs(only_a - only_b)].sum()
    assert mcnemar(only_a, only_b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [  # Fagerland, Lydersen and Laake 2014 (Stat. Med. 33:2850): airway reactivity and complete response
        ((1, 1, 7, 12), -0.5069, -0.0256),
        ((59, 6, 16, 80), -0.1186, -0.0046),
    ],
)
def test_the_paired_interval_gives_published_values(cells, low, high):
    assert paired_interval(*cells) == pytest.approx((low, high), abs=6e-5)  # four printed digits
    mirrored = (cells[0], cells[2], cells[1], cells[3])
    assert paired_interval(*mirrored) == pytest.approx((-high, -low), abs=6e-5)


def test_the_paired_interval_covers_the_true_difference():
    both, only_a, only_b, neither = 0.8, 0.1, 0.04, 0.06
    tables = np.random.default_rng(0).multinomial(80, [both, only_a, only_b, neither], size=1000)
    low, high = np.array([paired_interval(*cells) for cells in tables.tolist()]).T
    true_difference = only_a - only_b
    covered = ((low <= true_difference) & (true_difference <= high)).mean()
    assert covered == pytest.approx(0.95, abs=0.02)  # standard error 0.007, and a method near its level, not at it


@given(st.tuples(*[st.integers(0, 60)] * 4).filter(any))
def test_the_paired_interval_stays_in_range_around_the_difference(cells):
    low, high = paired_interval(*cells)
    assert -1 <= low <= (cells[1] - cells[2]) / sum(cells) <= high <= 1
    assert low < high


def test_agreeing_on_every_image_is_no_proof_of_equality():
    low, high = paired_interval(20, 0, 0, 0)
    assert low < -0.1
    assert high > 0.1


def test_fractions_of_images_lie_between_the_whole_tables():
    lower_table = np.array(paired_interval(80, 8, 4, 8))
    upper_table = np.array(paired_interval(80, 9, 4, 7))
    fractions = np.array(paired_interval(80.0, 8.6, 4.0, 7.4))
    assert (lower_table < fractions).all()
    assert (fractions < upper_table).all()


@pytest.mark.parametrize("cells", [(0, 0, 0, 0), (5, -1, 2, 3)])
def test_counts_that_cannot_be_are_refused(cells):
    with pytest.raises(ValueError, match=str(cells).replace("(", r"\(").replace(")", r"\)")):
        paired_interval(*cells)
    with pytest.raises(ValueError, match="only_a=-1, only_b=2"):
        mcnemar(-1, 2)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p):
    """A hypothesis falls if Bonferroni rejects every set of hypotheses that it is in."""
    hypotheses = range(len(p))
    bonferroni = {}  # set of hypotheses -> its corrected p
    for size in hypotheses:
        for members in itertools.combinations(hypotheses, size + 1):
            bonferroni[members] = min(1.0, len(members) * min(p[k] for k in members))
    closed = [max(corrected for members, corrected in bonferroni.items() if i in members) for i in hypotheses]
    assert holm(np.array(p)) == pytest.approx(closed, abs=1e-12)


def test_holm_is_that_of_statsmodels():
    for size in (1, 2, 45, 300):
        p = np.random.default_rng(size).random(size).round(2)  # with ties
        assert holm(p).tolist() == multipletests(p, method="holm")[1].tolist()


def test_holm_of_no_test_is_none():
    assert len(holm(np.array([]))) == 0
