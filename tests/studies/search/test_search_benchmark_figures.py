"""Figures of replayed searches draw every line of their tables and compute nothing."""

from typing import ClassVar

import numpy as np
import pytest

from fca.report.finding import findings_of
from fca.studies.search.benchmark import POLICY, SearchBenchmark
from fca.studies.search.figures import benchmark as figures
from tests.support.figure_claims import FigureClaims, marks, sentences_of, values

CURVES = ("accuracy", "running_mean", "coverage")


def tables(policies=("random", "bo", "gp_pairwise"), datasets=("zoo",), seeds=3):
    """Invented comparisons of policies."""
    lines = {spec.name: [] for spec in SearchBenchmark.tables}
    for dataset in datasets:
        for number, policy in enumerate(policies):
            about = {"dataset": dataset, "model": "net", "policy": policy, "seeds": seeds}
            for explored in (10, 20, 40):
                at = {"explored": explored, "share": explored / 40, "gpu_h": explored / 5}
                means = dict.fromkeys(CURVES, explored / 50)
                sds = {f"{name}_sd": 0.3 if seeds > 1 else None for name in CURVES}
                lines["search_curves"].append(about | at | means | sds)
                rho = {"rho": 0.2 * number, "rho_sd": 0.1, "constant": 0} if number else {"rho": None, "constant": 3}
                lines["search_predictors"].append(about | {"trained_on": explored, **rho})
            guided = {"skill": 0.5 * (number - 1), "covering": 0.9 / number} if number else {}
            ends = {"all_found_least": 0.3, "all_found": 0.9 - 0.2 * number, "all_found_most": 1.0}
            ends = {} if policy.startswith("nwise") else ends
            lines["search_found"].append(about | ends | guided | {"at_10": 0.2})
            of = [{"explored": 20, "accuracy_from": low, "count": 2.5} for low in np.linspace(0, 0.9, 10)]
            lines["search_histogram"] += [about | one for one in of]
    specs = SearchBenchmark.tables
    return {spec.name: spec.table(spec.frame(lines[spec.name]), {}, ()) for spec in specs}


class TestEveryFigure(FigureClaims):
    FINDINGS, tables = findings_of(SearchBenchmark()), staticmethod(tables)
    MARKS: ClassVar = {"search_histogram": "rect"}
    CASES: ClassVar = {
        "few": {"policies": ("bo_svr", "bo"), "seeds": 1},
        "many": {"policies": tuple(POLICY.choices), "datasets": ("zoo", "park")},
    }


figure = TestEveryFigure.figure


@pytest.mark.parametrize(
    ("draw", "kind", "count"),
    [
        (figures.curves_figure, "symbol", 3 * 3 * 3),
        (figures.curves_figure, "area", 3 * 3),
        (figures.histogram_figure, "rect", 3 * 10),
        (figures.predictors_figure, "symbol", 2 * 3),
        (figures.predictors_figure, "rule", 2 * 3),
    ],
)
def test_every_line_is_drawn(draw, kind, count):
    assert marks(figure(draw), kind) == count


def test_bands_are_one_standard_deviation_to_both_sides_and_shares():
    line = values(figure(figures.curves_figure)).iloc[0]
    assert (line["value"], line["value_low"], line["value_high"]) == pytest.approx((0.2, 0.0, 0.5))


def test_headlines_have_the_numbers_of_the_tables():
    known = tables(policies=("random", "nwise 2", "bo", "gp_pairwise"))
    first, second, *more = sentences_of(figures.found_statements, known["search_found"].frame)
    assert first == (
        "On zoo, net, gp_pairwise finds all of the worst tenth after 30 % [30, 100] of the subdomains (range of 3 "
        "searches); bo after 50 % [30, 100], random after 90 % [30, 100]."
    )
    assert second == (
        "zoo, net: the model of nwise 2 predicts no better than the mean (skill 0.00); 90 % of its choices only "
        "cover the domain."
    )
    assert not more


def test_without_one_policy_that_ends_there_is_no_headline():
    found = tables(policies=("nwise 2",))["search_found"].frame
    assert not list(figures.found_statements(found))
