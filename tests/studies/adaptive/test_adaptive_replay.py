"""Replays of a store equal those by hand, with banks of other networks, and so do errors."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import kendalltau

from fca.store import Store
from fca.studies.adaptive.adaptive_replay import (
    METHODS,
    AdaptiveReplay,
    Setting,
    banks_of_others,
    replay_tests,
    summarise,
    two_stage,
)
from fca.studies.adaptive.pools import complete_responses, from_levels
from fca.studies.adaptive.stats import MAPPING_L, MAPPING_Q, FisherCat, replay, run_policy
from fca.studies.adaptive.stats.estimators import p_irt
from fca.studies.adaptive.stats.policies import ability_of
from fca.studies.irt.stats import fit_irt
from fca.studies.progressive.levels import levels_of, pool_of, responses_by_level, sessions_of
from fca.types import FcaError
from tests.studies.progressive.support.steps_lab import able, items_of, respond, steps_lab

NAMES = ["adaptive_errors", "adaptive_methods", "adaptive_curves", "adaptive_exposure"]
NAMES += ["adaptive_asked", "adaptive_trajectories", "adaptive_sessions"]


def answered(folder, models=3, **options):
    """Models of rising skill, each wrong in its own way."""
    lab = steps_lab(folder, **options)
    for number, skill in enumerate(np.linspace(0.5, 2.0, models)):
        respond(lab, f"net{number}", able(lab, skill, noise=1.0, seed=number))
    return lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return answered(tmp_path_factory.mktemp("replay") / "outputs", per_level=12)


@pytest.fixture(scope="module")
def tables(lab):
    return {table.name: table for table in AdaptiveReplay(budgets=[0.5], repeats=2)(lab.store)}


@pytest.mark.wide
def test_every_table_is_of_all_runs_and_can_be_saved(lab, tables):
    assert list(tables) == NAMES
    for table in tables.values():
        assert set(table.runs) == set(lab.store.rows()["run_id"])
        assert len(table.frame)
        assert (lab.store.save(table) / "table.parquet").exists()
        json.dumps(dict(table.parameters))


def test_errors_are_those_of_a_replay_by_hand(lab, tables):
    [one] = responses_by_level(lab.store)
    codes = levels_of(one.items), sessions_of(one.items), one.items["attribute"].to_numpy(dtype=str)
    found = replay(one.correct[[2]], *codes, "gre_two_stage", "mixed_logit", 0.25, None, 2, seed=2)
    score = found[found["target"] == "score"]
    line = _line(tables["adaptive_errors"].frame.query("model == 'net2'"), "gre_two_stage + mixed_logit", "score")
    error = 100 * (score["estimate"] - score["truth"])
    assert line["mse_pp2"] == pytest.approx((error**2).mean(), rel=1e-9)
    assert line["bias_pp"] == pytest.approx(error.mean(), rel=1e-9)
    covered = (score["low"] <= score["truth"]) & (score["truth"] <= score["high"])
    assert line["coverage"] == pytest.approx(covered.mean())
    assert line["truth"] == pytest.approx(score["truth"].mean())
    assert line["share"] == score["asked"].sum() / 2 / len(one.items)


def _line(frame, method, target):
    [line] = frame[(frame["method"] == method) & (frame["target"] == target)].to_dict("records")
    return line


def test_the_mean_over_models_and_the_ratio_to_static(tables):
    models, methods = tables["adaptive_errors"].frame, tables["adaptive_methods"].frame
    for target in ("accuracy", "score"):
        static, ours = (_line(methods, name, target) for name in ("Static 3", "gre_two_stage + mixed_logit"))
        each = models[(models["method"] == ours["method"]) & (models["target"] == target)]
        assert ours["mse_pp2"] == pytest.approx(each["mse_pp2"].mean())
        assert ours["ratio"] == pytest.approx(ours["mse_pp2"] / static["mse_pp2"])
        assert ours["ratio_low"] < ours["ratio"] < ours["ratio_high"]
        assert static["ratio"] == 1
    assert set(methods["method"]) >= {"Static 3", "Static 6"}
    known = methods.set_index("method")["warning"].groupby(level=0).first()
    assert known["gre_two_stage + pooled"].startswith("biased")
    assert pd.isna(known["gre_two_stage + mixed_logit"])


def test_banks_are_fitted_on_other_networks(tmp_path):
    [one] = responses_by_level(answered(tmp_path / "outputs", models=4).store)
    two_seeds = from_levels(one._replace(models=("net0", "net1, seed 0", "net1, seed 1", "net2")))
    banks = banks_of_others(two_seeds, "2pl")
    assert banks.lacking is None
    alone = fit_irt(one.correct[[0, 3]].astype(float), "2pl").bank
    assert banks.of_model[1] is banks.of_model[2]
    np.testing.assert_array_equal(banks.of_model[1].difficulty, alone.difficulty)
    np.testing.assert_array_equal(
        banks.of_model[0].difficulty, fit_irt(one.correct[1:].astype(float), "2pl").bank.difficulty
    )


def test_without_other_networks_policies_with_a_bank_are_left_out(tmp_path):
    [one] = responses_by_level(answered(tmp_path / "outputs", models=2).store)
    frame, exposure, left_out, _ = replay_tests(
        from_levels(one),
        pool_of(one.items),
        [Setting("neyman_irt", "regression", 0.5), Setting("random", "pooled", 0.5)],
        1,
        "2pl",
        0,
    )
    assert set(frame["policy"]) == {"random"}
    assert exposure["ability_tau"].isna().all()
    assert left_out[0].startswith(
        "steps: neyman_irt at budget 0.5: no item bank from other models' responses: subjects = 1"
    )


def test_what_a_pool_is_too_small_for_is_named_and_the_rest_is_there(tmp_path):
    lab = answered(tmp_path / "outputs", models=1, per_level=4)
    tables = {table.name: table for table in AdaptiveReplay(budgets=[], repeats=1)(lab.store)}
    assert "steps: gre_two_stage at budget 0.25: " in " ".join(tables["adaptive_methods"].parameters["left_out"])
    assert "Static 1" in set(tables["adaptive_methods"].frame["method"])
    assert tables["adaptive_asked"].frame.empty
    assert list(tables["adaptive_asked"].frame)[:3] == ["dataset", "model", "top1"]


def test_curves_have_every_policy_at_every_share(tables):
    frame = tables["adaptive_curves"].frame
    frame = frame.assign(way=list(zip(frame["policy"], frame["estimator"], strict=True)))
    shares = frame[frame["target"] == "score"].groupby("way")["share"].apply(lambda share: sorted(share.round(2)))
    assert shares.to_dict() == {method: [0.25, 0.5] for method in METHODS}
    assert not frame.duplicated(["way", "target", "share"]).any()


def test_tests_with_a_bank_are_compared_with_random_draws_with_the_same_bank_and_estimator(tables):
    pairs = {"adaptive_curves": [("defensive_irt", "regression"), ("fisher_cat", "p_irt")]}
    pairs["adaptive_methods"] = [*pairs["adaptive_curves"], ("neyman_irt", "regression")]
    for name, methods in pairs.items():
        frame = tables[name].frame
        frame = frame[frame["estimator"] != "session_mean"]
        for (_, budget), part in frame.groupby(["target", "budget"]):
            part = part.set_index("method")
            for policy, estimator in methods:
                random, ours = part.loc[f"random draws, same bank ({estimator})"], part.loc[f"{policy} + {estimator}"]
                assert random["ratio_same_bank"] == 1
                assert ours["ratio_same_bank"] == pytest.approx(ours["mse_pp2"] / random["mse_pp2"]), budget
            assert part.loc[part["estimator"].isin(["stratified", "pooled"]), "ratio_same_bank"].isna().all()


def test_first_and_second_rounds_are_those_of_the_mapping(lab):
    [one] = responses_by_level(lab.store)
    pool = pool_of(one.items)
    for name, mapping in (("Q", MAPPING_Q), ("L", MAPPING_L)):
        test = two_stage(pool, one.correct[1], 0.25, name, [0, 0, 0])
        assert (pool.by_stratum(test.round == 1) == [1, 2, 1]).all()
        right = pool.by_stratum((test.round == 1) & one.correct[1])
        assert (test.points == right @ [1, 2, 4]).all()
        assert (pool.by_stratum(test.round == 2) == np.array(mapping)[test.points]).all()


def test_images_by_level_add_up_and_strong_models_get_harder_ones(tables):
    frame = tables["adaptive_asked"].frame
    assert (frame["asked"] == frame["first"] + frame["second"]).all()
    by_model = frame.groupby(["model", "mapping"])[["first", "second", "asked"]].sum()
    np.testing.assert_allclose(by_model.to_numpy(), [[4, 5, 9]] * 6)
    hard = frame[(frame["level"] == "hard") & (frame["mapping"] == "Q")].set_index("model")["asked"]
    assert hard["net2"] > hard["net0"]


def test_trajectories_and_sessions_are_of_one_test(lab, tables):
    ways, sessions = tables["adaptive_trajectories"].frame, tables["adaptive_sessions"].frame
    np.testing.assert_allclose(ways.groupby("model")["share"].sum(), 1)
    assert (ways.groupby("model")["sessions"].sum() == 8).all()
    mapped = np.array(MAPPING_Q)[ways["points"]]
    np.testing.assert_allclose(ways[["next_easy", "next_medium", "next_hard"]], mapped)
    assert sessions["model"].unique().tolist() == ["net0", "net1", "net2"]
    shown = sessions.groupby(["model", "session"])
    assert (shown.size() == 9).all()
    assert (sessions.groupby("model")["session"].nunique() == 6).all()
    points = {"easy": 1, "medium": 2, "hard": 4}
    for _, part in shown:
        first = part[part["round"] == 1]
        assert part["points"].iloc[0] == (first["level"].map(points) * first["right"]).sum()
        assert part["place"].tolist() == list(range(1, 10))
    right = dict(zip(items_of(lab)["image_id"], able(lab, 0.5, noise=1.0, seed=0), strict=True))
    weakest = sessions[sessions["model"] == "net0"]
    assert weakest["right"].tolist() == [right[image] for image in weakest["image_id"]]


@pytest.mark.slow
def test_seeds_decide(lab, tables):
    again = AdaptiveReplay(budgets=[0.5], repeats=2)(lab.store)
    for table in again:
        pd.testing.assert_frame_equal(table.frame, tables[table.name].frame)
    other = AdaptiveReplay(budgets=[], repeats=2, seed=1)(lab.store)
    assert (other[0].frame["mse_pp2"].iloc[:20] != tables[NAMES[0]].frame["mse_pp2"].iloc[:20]).any()


def test_bad_budgets_and_empty_stores_are_refused(lab, tmp_path):
    with pytest.raises(FcaError, match=r"budget = 1\.5; allowed: above 0, at most 1"):
        AdaptiveReplay(budget=1.5)(lab.store)
    with pytest.raises(FcaError, match="none among the 0 stored rows"):
        AdaptiveReplay()(Store(tmp_path / "nothing"))


def test_a_session_that_lacks_a_level_is_left_out(tmp_path):
    def without(items):
        return items[~(items["image_id"].str.startswith("cat-size-hard"))].reset_index(drop=True)

    lab = answered(tmp_path / "outputs", models=1, per_level=12, change=without)
    tables = {table.name: table for table in AdaptiveReplay(budgets=[], repeats=1)(lab.store)}
    assert (tables["adaptive_asked"].frame["sessions"] == 7).all()


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A file of responses of eight networks, one of them in two snapshots, to 120 images; one response is missing."""
    rng = np.random.default_rng(0)
    difficulty = rng.normal(-0.5, 1.2, 120)
    names = [f"net{n}" for n in range(7)] + ["net7/0.1", "net7/1.0"]
    right = rng.random((9, 120)) < expit(1.3 * (np.linspace(-1, 2, 9)[:, None] - difficulty))
    frame = pd.DataFrame(right.astype(float), names, [f"img{n}" for n in range(120)])
    frame.iloc[3, 7] = np.nan
    file = tmp_path_factory.mktemp("files") / "zoo.csv"
    frame.rename_axis("subject").to_csv(file)
    return str(file)


@pytest.mark.wide
def test_tests_are_replayed_on_a_file_of_responses_as_one_group(zoo, tmp_path):
    found = {one.name: one for one in AdaptiveReplay(responses=[zoo], budgets=[0.5], repeats=4)(Store(tmp_path / "no"))}
    assert list(found) == NAMES
    methods = found["adaptive_methods"].frame
    names = ["random sample of 30", "random sample of 60", "proportional + hypergeometric"]
    names += ["random draws, same bank (regression)", "random draws, same bank (p_irt)"]
    names += ["defensive_irt + regression", "neyman_irt + regression", "fisher_cat + p_irt"]
    assert set(methods["method"]) == set(names)
    assert set(methods["target"]) == {"accuracy"}
    assert (methods["groups"] == 1).all()
    assert (methods["models"] == 9).all()
    quarter = methods[methods["budget"] == 0.25].set_index("method")
    assert quarter.loc["random sample of 30", "ratio"] == 1
    assert 0 < quarter.loc["defensive_irt + regression", "ratio"] < 1.5
    assert quarter.loc["defensive_irt + regression", "ratio_same_bank_low"] < 1.5
    assert (methods["share"] - methods["budget"]).abs().max() < 0.01
    assert found["adaptive_asked"].frame.empty, "of images with levels only"
    assert found["adaptive_methods"].parameters["left_out"] == []


def test_exposures_are_those_of_the_images_asked_and_orders_those_of_scipy(zoo, tmp_path):
    [one] = complete_responses(Store(tmp_path / "no"), None, [zoo], "open")
    pool, setting = pool_of(one.items), Setting("fisher_cat", "p_irt", 0.25)
    found, banks = replay_tests(one, pool, [setting], 2, "2pl", 0), banks_of_others(one, "2pl")
    asked, ability, estimate = np.zeros((9, 2, 119), bool), np.zeros((9, 2)), np.zeros((9, 2))
    for model, bank in enumerate(banks.of_model):
        for repeat in range(2):
            policy, rng = FisherCat(pool, 0.25, bank), np.random.default_rng([model, 0, repeat])
            record = run_policy(policy, one.correct[model], rng).record
            asked[model, repeat] = record.evaluated
            ability[model, repeat] = bank.probability(np.array([ability_of(record, bank)[0]])).mean()
            estimate[model, repeat] = p_irt(pool, record, bank).value[0, 0]
    [line] = found.exposure.to_dict("records")
    assert line["exposure"] == asked.mean(axis=(0, 1)).max() > line["share"]
    assert line["never"] == (~asked.any(axis=(0, 1))).mean() > 0
    pairs = [(asked[a, r] & asked[b, r]).sum() / 30 for r in range(2) for a in range(9) for b in range(a)]
    assert line["common"] == pytest.approx(np.mean(pairs))
    truth = one.correct.mean(axis=1)
    taus = [[kendalltau(truth, values[:, r]).statistic for r in range(2)] for values in (ability, estimate)]
    assert line["ability_tau"] == pytest.approx(np.mean(taus[0]))
    assert line["ability_tau_low"] < line["ability_tau"] <= line["ability_tau_high"] <= 1
    by_accuracy = summarise(found.tests, 0.25).iloc[0]
    assert by_accuracy["rank_tau"] == pytest.approx(np.mean(taus[1]))
    assert by_accuracy["rank_tau_low"] < by_accuracy["rank_tau"]


def test_the_images_without_a_missing_response_are_the_pool_and_snapshots_are_one_network(zoo, tmp_path, caplog):
    [one] = complete_responses(Store(tmp_path / "no"), None, [zoo], "open")
    assert "zoo: 1 of 120 images lack a response" in caplog.text
    assert one.correct.shape == (9, 119)
    assert "img7" not in set(one.items["image_id"])
    assert one.networks[-2:] == ("net7", "net7")
    banks = banks_of_others(one, "2pl")
    assert banks.of_model[-1] is banks.of_model[-2]
    alone = fit_irt(one.correct[:7].astype(float), "2pl").bank
    np.testing.assert_array_equal(banks.of_model[-1].difficulty, alone.difficulty)


def test_a_stored_set_with_levels_stands_before_a_file_without(zoo, lab):
    names = [one.dataset for one in complete_responses(lab.store, None, [zoo], "open")]
    assert names == ["steps", "zoo"]


@pytest.mark.wide
def test_a_stored_set_without_levels_is_read_where_none_has_them(tmp_path):
    lab = steps_lab(tmp_path / "outputs", per_level=6, change=lambda items: items.drop(columns=["attribute", "level"]))
    rng = np.random.default_rng(0)
    for number in range(4):
        respond(lab, f"net{number}", rng.random(len(lab.true)) < 0.5 + 0.1 * number)
    [one] = complete_responses(lab.store, None, [], "open")
    assert (one.dataset, len(one.items), one.models) == ("steps", 144, ("net0", "net1", "net2", "net3"))
    tables = AdaptiveReplay(budgets=[], repeats=1)(lab.store)
    assert "proportional + hypergeometric" in set(tables[1].frame["method"])


def test_a_file_that_no_two_subjects_share_is_refused(tmp_path):
    file = tmp_path / "gaps.csv"
    file.write_text("subject,a,b\nnet0,1,\nnet1,,0\n")
    with pytest.raises(FcaError, match=r"images of gaps that every subject responded to = none of 2"):
        AdaptiveReplay(responses=[str(file)])(Store(tmp_path / "no"))
