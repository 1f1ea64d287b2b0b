"""The page on an empty store, on invented runs, and with verdicts: every cell against the analyses or the paper."""

import numpy as np
import pandas as pd
import pytest
import sharma as paper
import side_by_side

from fca.store import Store
from fca.studies.irt.class_robustness import ClassRobustness
from fca.studies.irt.difficulty_segments import DifficultySegments
from fca.studies.irt.irt import Reliability
from fca.studies.irt.label_errors import LabelErrors
from tests.studies.irt.paper.conftest import CLASSES

pytestmark = pytest.mark.slow  # every analysis both ways
COMPAT = {"model": "3pl-upper", "compat": "seed001"}


def tables(page):
    return {table.name: table.frame for section in page.sections for table in section.tables}


@pytest.fixture(scope="module")
def page(store, verdicts):
    return side_by_side.side_by_side(store, verdicts=str(verdicts))


@pytest.fixture(scope="module")
def found(page):
    return tables(page)


def test_an_empty_store_has_the_paper_s_numbers_and_a_command_for_every_empty_cell(tmp_path, capsys):
    assert side_by_side.main([str(tmp_path / "none"), "--to", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr().out
    assert "Table 1: 0 of 10 corruptions have runs here" in printed
    assert "Not shown: reliability, ours; reliability, as the paper did; difficulty_segments, ours" in printed
    read = {
        path.stem: pd.read_csv(path) for path in (tmp_path / "page" / "tables").glob("*.csv") if path.stem != "runs"
    }
    line = read["table1"].set_index("corruption").loc["defocus_blur"]
    assert line["command"] == "fca run -m experiment=irt_corruption dataset=cifar10 shift=corruption/defocus_blur"
    assert (line["susceptible_paper"], line["robust_paper"]) == ("frog, truck", "airplane, horse")
    line = read["table3"].set_index("subject").loc["R101Best"]
    assert line["command"].endswith("dataset=cifar10 model=resnet101 shift=corruption/brightness")
    assert read["table2"]["tau_paper"].tolist() == list(paper.TABLE2.values())
    for name, column in (("table1", "susceptible"), ("table2", "tau"), ("figure4", "seen"), ("moves", "seen")):
        assert read[name][column].isna().all()
        assert read[name]["command"].notna().all()
    assert len(read["table3"]) == 8
    assert read["statements"][["ours", "as_paper", "agrees"]].isna().all(axis=None)
    assert read["statements"]["command"].notna().all()
    assert read["table1_classes"].empty
    assert len(read["contradictions"]) == len(paper.CONTRADICTIONS)


def test_table_1_has_the_verdicts_of_both_ways(found, store):
    for fields, end in (({}, ""), (COMPAT, "_as_paper")):
        made = {table.name: table.frame for table in ClassRobustness(**fields)(store)}["robust_classes"]
        line = made.set_index("corruption").loc["defocus_blur"]
        ours = found["table1"].set_index("corruption").loc["defocus_blur"]
        assert ours[f"robust{end}"] == ", ".join(line["robust"])
        same = len({"frog", "truck"} & {*line["susceptible"]}) + len({"airplane", "horse"} & {*line["robust"]})
        assert ours[f"same{end}"] == same
    assert found["table1"]["corruption"].tolist()[:10] == list(paper.TABLE1)
    assert found["table1"]["corruption"].tolist()[10:] == ["brightness", "contrast"]  # stored, but not in the paper
    filled = found["table1"].set_index("corruption")["command"].isna()
    assert filled[filled].index.tolist() == ["defocus_blur", "brightness", "contrast"]


def test_table_1_s_classes_have_what_it_calls_them(found):
    classes = found["table1_classes"].set_index(["corruption", "label"])
    assert len(classes) == 3 * 10
    called = classes.loc["defocus_blur", "paper"].dropna().to_dict()
    assert called == {"frog": "susceptible", "truck": "susceptible", "airplane": "robust", "horse": "robust"}
    assert classes.loc["brightness", "paper"].isna().all()
    assert sorted(classes.loc["brightness", "rank_as_paper"]) == list(range(1, 11))


def test_table_2_is_kendall_s_tau_at_severity_1(found, store):
    for fields, end in (({}, ""), (COMPAT, "_as_paper")):
        [made] = Reliability(**fields, query="shift == 'clean' or shift == 'corruption/brightness/1'")(store)
        line = made.frame.set_index(["corruption", "severity"]).loc[("brightness", 1)]
        ours = found["table2"].set_index("corruption").loc["brightness"]
        assert ours["tau" + end] == line["tau"]
        for ends in (line[["tau_low", "tau_high"]], ours[["tau_low" + end, "tau_high" + end]]):
            low, high = ends  # of four models: nearly the whole range
            assert low < line["tau"] <= high <= 1
            assert high - low > 1
    assert ours["tau_paper"] == 0.9729
    assert (ours["n_subjects"], ours["n_models"]) == (5, 4)
    assert found["table2"]["corruption"].tolist()[9:] == ["contrast"]


def test_table_3_has_the_paper_s_rows_and_a_row_a_subject_and_severity(found, store):
    table = found["table3"]
    known = {table.name: table.frame for table in DifficultySegments()(store)}["segment_models"]
    known = known.set_index(["corruption", "severity", "subject", "segment"])
    ours = table[table["whose"] == "ours"]
    assert len(ours) == 5 * 5
    for line in ours.to_dict("records"):
        for name in paper.SEGMENTS:
            place = ("brightness", line["severity"], line["subject"], name)
            expected = known.loc[place] if place in known.index else None
            assert (expected is None and pd.isna(line[name])) or (line[name], line[f"n_{name}"]) == (
                expected["right"],
                expected["n"],
            )
    theirs = table[table["whose"] == "ours as the paper did"]
    assert (theirs[[f"n_{name}" for name in paper.SEGMENTS]] == 30).all(axis=None)  # quarters of 120 images
    printed = table[table["whose"] == "paper"].set_index("subject")
    assert printed.loc["ViTb16_E2", "med_easy"] == 2431
    assert printed["command"].isna()[["ViTb16_E2", "R101Best", "R101_E2"]].all()  # have runs
    assert printed["command"].notna().sum() == 5
    shares = found["table3_shares"]
    assert set(shares["severity"].dropna()) == {5}
    line = shares[(shares["subject"] == "R101Best") & (shares["segment"] == "hard")].iloc[0]
    assert line["share"] == 1578 / 2500


def test_figure_4_tells_few_from_many_by_the_interval(found):
    table = found["figure4"]
    assert len(table) == 2 * 2 * 10
    paper_says = table[table["quarter"] == "bottom"].set_index(["parameter", "label"])["paper"]
    assert paper_says[("difficulty", "cat")] == paper_says[("discrimination", "bird")] == "many"
    assert paper_says[("difficulty", "ship")] == "few"
    assert pd.isna(paper_says[("difficulty", "frog")])
    assert (table[table["seen"] == "few"]["share_high"] < 1 / 4).all()
    assert (table[table["seen"] == "many"]["share_low"] > 1 / 4).all()
    assert table["items"].sum() == 4 * 30


def test_moves_are_slopes_of_counts(found):
    table = found["moves"].set_index(["corruption", "segment", "label"]).sort_index()
    line = table.loc[("brightness", "easy", "airplane")]
    counts = list(map(int, line["counts"].split()))
    assert len(counts) == 5
    slope = np.polyfit(range(5), counts, 1)[0]
    assert line["seen"] == ("same" if abs(slope) < 0.12 else "more" if slope > 0 else "fewer")
    assert table.loc["jpeg_compression", "command"].notna().all()
    assert table.loc["brightness", "command"].isna().all()


def test_verdicts_give_the_share_of_annotation_errors(page, found, store, verdicts):
    stated = found["statements"].set_index("where").loc["section 3.1", "ours"]
    made = {table.name: table.frame for table in LabelErrors(verdicts=str(verdicts))(store)}["label_error_rules"]
    line = made.set_index("rule").loc["low_discrimination_feasibility"]
    low, high = line["recall_25_low"], line["recall_25_high"]
    assert f"{line['recall_25']:.0%} [{low:.0%}, {high:.0%}] among the lowest 25 %" in stated
    assert "12 errors" in stated
    theirs = found["statements"].set_index("where").loc["section 3.1", "as_paper"]
    assert "12 errors" in theirs
    assert theirs != stated
    assert any("Stated (section 3.1)" in line for line in page.headlines)
    assert not any("nan" in line for line in page.headlines)


def test_the_page_is_written_with_every_figure_and_table(store, found, tmp_path):
    assert side_by_side.main([str(store.outputs), "--to", str(tmp_path)]) == 0
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} == {"table1", "table2", "table3", "figure4"}
    assert {path.stem for path in (tmp_path / "tables").glob("*.csv")} == {*found, "runs"}


def test_the_page_lists_the_runs_it_read_and_the_command_that_makes_it(page, store, verdicts):
    assert page.command == f"python experiments/irt_corruption/side_by_side.py {store.outputs} cifar10 {verdicts}"
    assert set(page.rows["run_id"]) == set(store.rows()["run_id"])
    assert all(section.figure is not None for section in page.sections[:4])
    assert any(line.startswith("Table 1: 1 of 10 corruptions have runs here") for line in page.headlines)


def test_another_data_set_s_runs_are_not_read(store):
    page = side_by_side.side_by_side(Store(store.outputs), "cifar100")
    assert page.rows.empty
    assert tables(page)["table2"]["command"].str.contains("dataset=cifar100").all()


def test_verdicts_or_a_query_that_cannot_be_read_are_named(store, tmp_path, capsys):
    assert side_by_side.main([str(store.outputs), "cifar10", "nowhere.csv"]) == 2
    assert "analysis.verdicts = nowhere.csv; allowed: a CSV file" in capsys.readouterr().err
    assert side_by_side.main([str(store.outputs), "--query", "colour == 3", "--to", str(tmp_path)]) == 2
    assert "colour" in capsys.readouterr().err


def test_all_classes_of_the_paper_are_those_of_cifar10():
    assert set(paper.FIGURE4) < set(CLASSES)
    assert {move.label for move in paper.MOVES} < set(CLASSES)
