"""Rounds of a test, and when it ends."""

import numpy as np

from fca.stats.ask import ask_until_done
from fca.studies.adaptive.stats import Rounds, start_policy
from fca.studies.progressive.stats.pool import make_pool


def test_a_test_goes_on_until_it_is_enough_or_every_item_was_asked():
    pool = make_pool(None, np.repeat(["cat", "dog"], 50))
    for enough_after, asked in ((1, 20), (3, 60), (99, 100)):
        ends = []

        def is_enough(ends=ends, enough_after=enough_after):
            ends.append(len(ends))
            return len(ends) == enough_after

        rounds = Rounds(start_policy("random", pool, 0.2), np.random.default_rng(0), is_enough)
        ask_until_done(rounds, lambda positions: np.ones(len(positions), dtype=bool))
        assert rounds.policy.record.evaluated.sum() == asked
        assert len(np.unique(np.concatenate(rounds.positions))) == asked
