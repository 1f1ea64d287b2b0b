"""The statements of the paper on guided failure search beside ours: empty cells name commands that compose."""

import shlex

import figure4
import le_coz as paper
import levels
import pytest
import targets
from hydra import compose, initialize_config_dir
from scipy.stats import binom

from fca.cli.application import register
from fca.cli.commands import commands, composes
from fca.cli.places import CONF
from fca.store import Store
from fca.studies.search.benchmark import SearchBenchmark
from fca.studies.search.stats import Domain
from fca.studies.search.stats.replay import simulated, worst


def stated(page):
    [table] = (table.frame for part in page.sections for table in part.tables if table.name == "statements")
    return table.set_index("statement")


def test_an_empty_store_decides_what_needs_no_search_and_names_commands_for_the_rest(tmp_path):
    page = figure4.side_by_side(Store(tmp_path / "outputs"), SearchBenchmark())
    lines = stated(page)
    assert len(lines) == len(paper.STATEMENTS) == 12
    assert page.headlines[0] == "3 of 12 statements are decided here: 1 agree."
    decided = lines["agrees"].dropna()
    assert decided.tolist() == [
        "yes",
        "no",
        "no",
    ]  # 1,032 valid; 118 dogs are not 119; 3-wise testing needs 200 at least
    assert lines.loc[lines["agrees"].isna(), "command"].notna().all()
    assert page.headlines[1].startswith("Figure 4 is not shown: ")
    register("run")
    register("analyse")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for command in lines["command"].dropna().unique():
            _, root, *words = shlex.split(command)
            assert root in filter(composes, commands())
            compose(root, [word for word in words if word != "-m"])


@pytest.mark.slow
def test_every_statement_on_policies_is_decided_by_tables_of_all_subdomains(tmp_path):
    small = {name: [f"{name}{value}" for value in range(5)] for name in ("a", "b", "c", "d")}
    benchmark = SearchBenchmark(simulated="structured", attributes=small, rules=[], seeds=1)
    page = figure4.side_by_side(Store(tmp_path / "outputs"), benchmark)
    assert stated(page)["agrees"].notna().sum() == 10  # not the clean accuracy, and not the hours of a GPU
    drawn = {part.key for part in page.sections if part.figure is not None}
    assert {"search_curves", "search_histogram", "search_predictors"} <= drawn


@pytest.mark.slow
def test_the_numbers_that_no_analysis_prints_are_measured_on_a_small_domain_too():
    small = Domain({name: list(range(5)) for name in "abc"})
    shares = {measure.__name__: measure(small, 0) for measure in targets.MEASURED}
    assert all(0.1 <= share <= 1 for share in shares.values())
    lowest = worst(simulated(small, 0).probability).sum()  # nobody finds these in fewer visits
    assert lowest / 125 <= shares["observer"] < 1, "who knows the effects does not need all"


def test_levels_are_measured_for_every_method_and_beside_what_it_replaced():
    for title, measure, places in levels.cells():
        line = measure(2, *places[0])
        assert 0 <= line["now"] <= 1, title
        assert 0 <= line.get("before", line.get("bootstrap")) <= 1, title


@pytest.mark.slow
@pytest.mark.parametrize("design", levels.DESIGNS)
@pytest.mark.parametrize("correlation", levels.CORRELATIONS)
def test_rules_hold_their_level_in_every_design(design, correlation):
    for accuracy in (0.9, 0.995):
        found = levels.level_of_rules(200, design, accuracy, correlation)["now"]
        assert found <= binom.ppf(0.999, 200, 0.06) / 200  # 0.06: what is claimed of few images in all but one value
