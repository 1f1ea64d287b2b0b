"""Replays: the same as a test by hand, by seed alone, with every column; and pools that are no pools."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from fca.studies.adaptive.stats import MAPPING_L, GreTwoStage, estimate, make_pool, replay, start_policy
from fca.types import FcaError

COLUMNS = ["model", "group", "repeat", "target", "truth", "estimate", "se", "low", "high"]
COLUMNS += ["asked", "asked_easy", "asked_medium", "asked_hard"]


def test_a_replay_is_the_test_by_ask_and_tell(drawn):
    data = drawn()
    found = replay(data.correct, *data.pool, "gre_two_stage", "mixed_logit", budget=0.25, repeats=2, seed=7)
    pool = make_pool(*data.pool)
    test, rng = start_policy("gre_two_stage", pool, 0.25), np.random.default_rng([7, 1, 1])
    rounds = 0
    while len(positions := test.next(rng)):
        test.record.add(positions, data.correct[1, positions])
        rounds += 1
    assert rounds == 2
    by_hand = estimate("mixed_logit", pool, test.record)
    part = found[(found["model"] == 1) & (found["repeat"] == 1)]
    assert part["estimate"].to_numpy() == pytest.approx(by_hand.value.ravel(), abs=0)
    assert part["se"].to_numpy() == pytest.approx(by_hand.se.ravel(), abs=0)
    assert part["truth"].to_numpy() == pytest.approx(pool.truth(data.correct[1]).ravel(), abs=0)


def test_without_an_estimator_it_is_one_that_trusts_the_draw_alone(drawn):
    data = drawn(sessions=6)
    for columns, policy, name in (
        (data.pool, "optimal_allocation", "stratified"),
        ((None, data.sessions, None), "proportional", "hypergeometric"),
    ):
        chosen, named = (replay(data.correct, *columns, policy, *of, repeats=1) for of in ((), (name,)))
        pd.testing.assert_frame_equal(chosen, named)


def test_the_table_has_a_line_a_model_group_repeat_and_target(drawn):
    data = drawn(models=3, sessions=12, groups=3)
    names = np.array(["color", "light", "size"])[data.groups]
    found = replay(data.correct, data.levels, data.sessions, names, "static_k", "session_mean", repeats=2)
    assert list(found.columns) == COLUMNS
    assert len(found) == 3 * 3 * 2 * 2
    assert not found.duplicated(["model", "group", "repeat", "target"]).any()
    assert set(found["group"]) == {"color", "light", "size"}
    assert (found["asked"] == found[["asked_easy", "asked_medium", "asked_hard"]].sum(axis=1)).all()
    assert found["asked_hard"].unique().tolist() == [12]
    assert "static_k" in found.attrs["warning"]


def test_the_seed_decides_and_other_models_and_repeats_do_not(drawn):
    data = drawn(models=3, sessions=12)
    run = partial(replay, policy="neyman_irt", estimator="difference", bank=data.bank)
    whole = run(data.correct, *data.pool, repeats=3, seed=1)
    pd.testing.assert_frame_equal(whole, run(data.correct, *data.pool, repeats=3, seed=1))
    assert (whole["estimate"] != run(data.correct, *data.pool, repeats=3, seed=2)["estimate"]).any()
    fewer = run(data.correct[:2], *data.pool, repeats=2, seed=1)
    same = whole[(whole["model"] < 2) & (whole["repeat"] < 2)].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, fewer)


def test_integers_and_floats_are_answers_too(drawn):
    data = drawn(sessions=6)
    tables = [replay(data.correct.astype(kind), *data.pool, "random", "pooled") for kind in (bool, np.int8, float)]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    pd.testing.assert_frame_equal(tables[0], tables[2])


def test_a_policy_may_bring_its_options(drawn):
    data = drawn(sessions=60)
    one, other = (
        replay(data.correct, *data.pool, policy, "session_mean")
        for policy in ("gre_two_stage", partial(GreTwoStage, mapping=MAPPING_L))
    )
    assert one["asked"].equals(other["asked"])
    assert one["asked_hard"].equals(other["asked_hard"]), "after 4 points L asks a medium item where Q asks an easy one"
    assert (one["asked_easy"] > other["asked_easy"]).any()


def test_adaptive_asking_biases_shares_and_not_the_mixed_logit(drawn):
    data = drawn(seed=3, models=1, sessions=400, groups=1, sd=1.3)
    error = {}
    for estimator in ("session_mean", "pooled", "mixed_logit"):
        found = replay(data.correct, *data.pool, "gre_two_stage", estimator, repeats=20)
        score = found[found["target"] == "score"]
        error[estimator] = 100 * (score["estimate"] - score["truth"]).mean()
    assert error["session_mean"] < -0.8
    assert error["pooled"] > 1.5
    assert abs(error["mixed_logit"]) < 0.5


def test_pools_that_are_no_pools_are_refused(drawn):
    data = drawn(sessions=4)
    levels, sessions, groups = data.pool
    some = (sessions != 2) | (levels != 1)
    with pytest.raises(FcaError, match="medium items of session 2 = 0; allowed: 1 or more"):
        replay(data.correct[:, some], levels[some], sessions[some], groups[some], "static_k")
    with pytest.raises(FcaError, match="groups of session 0 = "):
        replay(data.correct, levels, sessions, np.arange(len(levels)) % 2, "static_k")
    with pytest.raises(FcaError, match="level of an item = 3"):
        replay(data.correct, levels + 1, sessions, groups, "static_k")
    with pytest.raises(FcaError, match="items of the pool = 0"):
        make_pool(levels[:0], sessions[:0], groups[:0])
    with pytest.raises(FcaError, match="answers = "):
        replay(np.where(levels == 0, np.nan, 1.0)[None], levels, sessions, groups, "static_k")
    with pytest.raises(FcaError, match="repeats = 0"):
        replay(data.correct, *data.pool, "static_k", repeats=0)
    with pytest.raises(FcaError, match="estimator = 'best'"):
        replay(data.correct, *data.pool, "static_k", "best")
