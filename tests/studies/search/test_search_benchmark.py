"""Searches replayed on tables of all subdomains, stored or drawn, against literal loops."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fca.store import Store
from fca.studies.search import benchmark as made
from fca.studies.search.benchmark import SearchBenchmark
from fca.studies.search.stats import Domain, make_policy
from fca.studies.search.stats import replay as replays
from fca.types import FcaError
from tests.studies.search.support.searched import TINY, searched
from tests.support.lab import Lab

SMALL = {"attributes": {"a": list("pqrs"), "b": list("uvw"), "c": list("xyz")}, "rules": []}


@pytest.fixture
def table():
    return (np.random.default_rng(1).random((len(TINY), 8)) < np.linspace(0.1, 0.9, 6)[:, None]).astype(np.int8)


def frames(store, **keys):
    return {table.name: table.frame for table in SearchBenchmark(**keys)(store)}


def test_a_stored_search_is_the_table_of_its_accepted_images_in_the_order_drawn(lab, table):
    run_id = searched(lab, table)
    domain, right = made._stored(lab.store, lab.store.row(run_id))
    np.testing.assert_array_equal(right, table)
    assert domain.subdomains == TINY.subdomains


def test_curves_are_those_of_a_literal_replay(lab, table):
    searched(lab, table)
    found = frames(lab.store, policies=["random"], seeds=3, images=4, minutes=30.0)
    accuracy = table.mean(axis=1)
    first = table[:, :4].mean(axis=1)
    lowest = sorted(range(6), key=lambda at: (accuracy[at], at))[:1]  # a tenth of 6
    none = np.array([], int)
    orders = []
    for seed in range(3):
        policy, order = make_policy("random", TINY, seed), []
        while len(order) < 6:
            known = np.array(order, int)
            order.append(policy.next(known, 0 * known, 1 + 0 * known) if order else policy.next(none, none, none))
        orders.append(order)
    curves = found["search_curves"]
    assert curves["explored"].tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(curves["gpu_h"], curves["explored"] / 2)
    for at, line in curves.iterrows():
        for name, values in {
            "accuracy": [first[order[at]] for order in orders],
            "running_mean": [np.mean([first[one] for one in order[: at + 1]]) for order in orders],
            "coverage": [float(lowest[0] in order[: at + 1]) for order in orders],
        }.items():
            assert line[name] == pytest.approx(np.mean(values), abs=1e-12)
            assert line[f"{name}_sd"] == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    when = sorted((order.index(lowest[0]) + 1) / 6 for order in orders)
    [line] = found["search_found"].to_dict("records")
    assert [line["all_found_least"], line["all_found"], line["all_found_most"]] == pytest.approx(when)
    assert line["nearly_found"] == pytest.approx(when[1])
    assert np.isnan(line["skill"])
    counts = found["search_histogram"]
    assert counts["count"].sum() == 6
    assert counts.set_index("accuracy_from")["count"][0.5] == ((first >= 0.5) & (first < 0.6)).sum()


def test_only_complete_searches_are_read(lab, table):
    searched(lab, table, complete=False)
    with pytest.raises(FcaError, match=r"visited every subdomain .*none among the 1 .*fca run task=search"):
        SearchBenchmark()(lab.store)
    kept = searched(lab, table, seed=1)
    tables = SearchBenchmark(policies=["random"], seeds=1)(lab.store)
    assert [table.runs for table in tables] == [(kept,)] * 4


def test_two_tables_of_one_name_stay_two(lab, table):
    runs = [searched(lab, table, seed=seed) for seed in (0, 1)]
    searched(lab, table, model="other")
    found = frames(lab.store, policies=["random"], seeds=1)["search_found"]
    assert set(found["model"]) == {"other", *(f"net, {run_id[:6]}" for run_id in runs)}
    one = frames(lab.store, policies=["random"], seeds=1, query="model == 'other'")["search_found"]
    assert set(one["model"]) == {"other"}


def test_the_order_of_stored_searches_changes_nothing(tmp_path, table):
    found = []
    for order in ((0, 1), (1, 0)):
        lab = Lab(Store(tmp_path / str(order[0])))
        for model in order:
            searched(lab, table, model=f"net{model}")
        found.append(frames(lab.store, policies=["random"], seeds=1))
    for name, frame in found[0].items():
        both = [of.sort_values(["model", *of.columns[2:5]], ignore_index=True) for of in (frame, found[1][name])]
        pd.testing.assert_frame_equal(*both)


def test_drawn_tables_need_no_store_and_differ_by_seed(lab):
    found = frames(lab.store, simulated="structured", policies=["bo"], seeds=2, images=10, at=5, **SMALL)
    assert set(found["search_curves"]["dataset"]) == {"simulated structured"}
    last = found["search_curves"].iloc[-1]
    domain = Domain(**SMALL)
    accuracies = [replays.simulated(domain, seed, images=10).right.mean() for seed in range(2)]
    assert last["running_mean"] == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert last["running_mean_sd"] == pytest.approx(np.std(accuracies, ddof=1), abs=1e-12)
    assert (last["coverage"], last["coverage_sd"]) == (1, 0)


def test_a_covering_array_ends_where_it_ends(lab):
    found = frames(lab.store, simulated="none", policies=["nwise", "random"], seeds=2, images=5, **SMALL)
    curves, ends = found["search_curves"], found["search_found"].set_index("policy")
    assert list(ends.index) == ["nwise 2", "nwise 3", "nwise 4", "random"]
    plans = [make_policy("nwise", Domain(**SMALL), seed, strength=2).planned for seed in range(2)]
    assert curves.loc[curves["policy"] == "nwise 2", "explored"].max() == min(plans) < 36
    assert ends["all_found"].notna().to_dict() == {"nwise 2": False, "nwise 3": True, "nwise 4": True, "random": True}
    assert (curves.groupby("policy")["coverage"].diff().dropna() >= 0).all()


def test_predictions_are_correlated_with_the_accuracy_of_subdomains_not_trained_on(lab):
    found = frames(lab.store, simulated="structured", policies=["bo_linear"], seeds=2, images=10, **SMALL)
    [line] = found["search_predictors"].to_dict("records")
    domain, rhos = Domain(**SMALL), []
    for seed in range(2):
        right = replays.simulated(domain, seed, images=10).right
        order = np.random.default_rng([seed, 20]).permutation(36)
        drawn, rest = order[:20], order[20:]
        counts = drawn, right[drawn].sum(axis=1), np.full(20, 10)
        mean = make_policy("bo_linear", domain, seed).predict(*counts).mean
        rhos.append(stats.spearmanr(mean[rest], right[rest].mean(axis=1)).statistic)
    assert line["trained_on"] == 20
    assert line["rho"] == pytest.approx(np.mean(rhos), abs=1e-9)
    assert line["rho_sd"] == pytest.approx(np.std(rhos, ddof=1), abs=1e-9)
    assert line["constant"] == 0


@pytest.mark.slow
def test_several_processes_find_what_one_finds(lab, monkeypatch):
    keys = {"simulated": "harder", "policies": ["random", "bo"], "seeds": 2, "images": 5, **SMALL}
    alone = frames(lab.store, **keys)
    monkeypatch.setattr(made, "VISITS_PER_PROCESS", 1)
    monkeypatch.setattr(made, "threads", lambda _: 2)
    for name, frame in frames(lab.store, **keys).items():
        pd.testing.assert_frame_equal(frame, alone[name])
