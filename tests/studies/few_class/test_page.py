"""The page stands alone, shows the tables' own numbers, and says what it lacks."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from fca.report.finding import sentences
from fca.report.page import AnalysesReport, Page, Section, grid, headlines_of_results, render, write_page
from fca.studies.few_class.accuracy import GAP, FewClass
from fca.studies.few_class.correlation import CORRELATION, Correlation
from fca.tables.table import NO_MEAN_INTERVAL
from fca.types import FcaError, Table
from tests.studies.few_class.support.invented import ANALYSES, COLUMNS, results, run_rows, tables
from tests.support.page_parts import Parts

REPORT = AnalysesReport("few_class", "Few classes", ["few_class", "similarity", "correlation"], {})
A_TABLE = Table("t", "?", "eq. 1", pd.DataFrame({"ncl": [2]}), {}, ())
A_PAGE = Page("x", [], [Section("a", "A", None, (A_TABLE,), "why")], run_rows(tables()), "fca report")


def parsed(folder: Path) -> Parts:
    return Parts((folder / "index.html").read_text())


@pytest.mark.wide
def test_the_page_needs_nothing_from_elsewhere(written):
    page = parsed(written.folder)
    for tag, attributes in page.tags:
        assert "src" not in attributes
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        target = attributes.get("href", "#")
        assert target.startswith("#") or (written.folder / target).is_file()
    assert "url(" not in page.styles
    assert "@import" not in page.styles
    assert not re.search(r"https?:", page.data)


def test_every_figure_is_a_png_an_svg_and_a_pdf_also_for_a_column_of_a_paper_and_a_table(written):
    shown = [attributes["data-figure"] for _, attributes in parsed(written.folder).tags if "data-figure" in attributes]
    keys = [key for key in shown if not key.startswith("answer-")]
    assert len(keys) == 8
    for key in keys:
        stem = written.folder / "figures" / key
        assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG\r\n")
        assert stem.with_suffix(".svg").read_text().startswith("<svg")
        assert stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF-")
        column = stem.with_name(f"{key}-column.pdf").read_bytes()
        assert float(re.search(rb"MediaBox ?\[0 0 ([0-9.]+)", column)[1]) == pytest.approx(3.3 * 72, abs=1)  # points
        assert 'width="237.6pt"' in stem.with_name(f"{key}-column.svg").read_text()
        assert len(pd.read_csv(stem.with_suffix(".csv")))
    assert len(list((written.folder / "figures").iterdir())) == 6 * len(keys)


def test_the_tables_on_the_page_and_in_the_files_hold_the_numbers_of_the_analyses(written):
    shown = json.loads(parsed(written.folder).data)["tables"]
    for table in written.tables:
        names = [column["name"] for column in shown[table.name]["columns"]]
        frame = pd.DataFrame(shown[table.name]["lines"], columns=names)
        file = pd.read_csv(written.folder / "tables" / f"{table.name}.csv")
        for name in table.frame.select_dtypes("number"):
            expected = table.frame[name].astype("float64").tolist()
            if name not in names:  # the page shows no empty column
                assert table.frame[name].isna().all()
                continue
            assert frame[name].astype("float64").tolist() == pytest.approx(expected, abs=0, nan_ok=True)
            assert file[name].tolist() == pytest.approx(expected, rel=1e-15, nan_ok=True)


def test_every_table_says_its_question_source_parameters_and_number_of_runs(written):
    page = parsed(written.folder).text
    for table in written.tables:
        assert f"{table.name} {table.question} Source {table.source} Runs {len(table.runs)}" in page
    assert "sampler uniform" in page


def test_the_page_says_how_to_make_it_again(written):
    page = parsed(written.folder).text
    assert "fca run model=test_vit subset.ncl=2 # 3 runs" in page
    assert "fca report report=few_class # this page" in page
    assert "Runs 30 commit 1a2b3c4 versions fca 0.1.0, torch 2.13.0 device cpu host lab1" in page


def test_the_sentences_are_numbers_of_the_tables(written):
    known = {table.name: table for table in written.tables}
    lines = [line for analysis in ANALYSES for line in sentences(analysis(), known)]
    gap = written.table("gap").frame.iloc[0]
    mean, low, high = (f"{100 * gap[f'sub_minus_masked{end}']:+.1f}" for end in ("", "_low", "_high"))
    limited = next(line for line in lines if "models of all classes limited to the same labels" in line)
    assert limited.partition(": ")[2].startswith("at 2 classes of digits, sub-models are ")
    assert f"{mean} points [{low}, {high}]" in limited
    best = written.table("ranks").frame.query("protocol == 'sub' and ncl == 10").sort_values("rank")["model"].iloc[0]
    assert re.search(rf"among sub-models: [^.]*{best} \(ncl [^)]*10\)", " ".join(lines))
    correlation = written.table("correlation").frame.query("method == 'pearson' and target == 'DCN sub'")
    for r in correlation.loc[correlation["scope"].isin(["all", "within ncl"]), "r"]:
        assert f"{r:.2f} [" in " ".join(lines)
    assert all(line in parsed(written.folder).text for line in lines)


def test_the_page_opens_with_five_answers_at_most_and_the_first_is_an_accuracy(written):
    page = Page("x", [], [], run_rows(tables()), "fca", answers=headlines_of_results(results(written.tables)))
    assert 1 <= len(page.answers) <= 5
    means = written.table("accuracy").frame.query("protocol == 'sub'")
    best = means.sort_values(["ncl", "top1"], ascending=[True, False]).iloc[0]
    shown = f"{100 * best['top1']:.1f} % [{100 * best['top1_low']:.1f}, {100 * best['top1_high']:.1f}]"
    first = f"With 2 classes of digits, the best of 3 sub-models, {best['model']}, reaches {shown}"
    assert page.answers[0].sentence.startswith(f"{first}; with 10, ")
    assert first in Parts(render(page)).text
    questions = [answer.question for answer in page.answers]
    assert questions == list(dict.fromkeys(questions))


def test_no_sentence_claims_a_gap_that_the_table_denies():
    line = {"dataset": "digits", "ncl": 2, "n": 3, "models": 3, "subsets": 1, "verdict": NO_MEAN_INTERVAL}
    for name in ("sub_minus_open", "sub_minus_masked"):
        line |= {name: 0.1, f"{name}_low": float("nan"), f"{name}_high": float("nan")}
    table = GAP.table(GAP.frame([line]), {}, ())
    assert sentences(FewClass(), {"gap": table}) == [
        "Not known from one subset: at 2 classes of digits, sub-models differ by +10.0 points from models of all "
        "classes limited to the same labels (the gain over models that may also predict the other classes: "
        "+10.0 points).",
        "digits: sub-models minus open full models at ncl 2 (+10.0 points); no interval: it takes two subset seeds "
        "that differ.",
    ]


def test_a_sentence_says_in_words_that_a_correlation_is_undefined(written):
    frame = written.table("correlation").frame.query("method == 'pearson' and target == 'DCN open'")
    table = CORRELATION.table(frame.assign(r=float("nan"), p=float("nan")), {}, ())
    points = written.table("correlation_points")
    assert sentences(Correlation(), {"correlation": table, "correlation_points": points}) == [
        "Not known: on digits, SimSS by hog has no correlation with accuracy, because the accuracies or the "
        "similarities do not differ."
    ]


def test_what_is_missing_is_left_out_with_its_reason(tmp_path):
    made = [table for table in tables() if table.name in ("gap", "dcn")]
    reason = "stored embed rows = 0 of 30 rows; next: fca run task=embed"
    index = REPORT(tmp_path, results(made, reason), run_rows(tables()), "fca report")
    page = Parts(index.read_text())
    lacking = "Similarity of the subsets, The released script, What similarity predicts, Similarity and accuracy"
    assert f"Not in this report Accuracy, Ranks of the models, Ranks on all classes, {lacking}: {reason}" in page.text
    assert page.text.count(reason) == 1  # however many figures lack for it
    assert not (tmp_path / "figures" / "similarity.png").exists()
    assert (tmp_path / "figures" / "dcn.png").exists()


def test_an_earlier_page_leaves_no_figure_behind(tmp_path):
    write_page(tmp_path, A_PAGE)
    (tmp_path / "figures" / "old.png").touch()
    write_page(tmp_path, A_PAGE)
    assert [path.name for path in (tmp_path / "figures").iterdir()] == []


@pytest.mark.parametrize("file", ["tables/precious.csv", "figures/mine.png", "index.html", "notes.txt"])
def test_a_folder_that_holds_anything_but_a_page_is_left_as_it_is(tmp_path, file):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("<html>kept</html>")
    with pytest.raises(
        FcaError, match=r"folder of the page = .*; allowed: a new or empty folder, or one with an earlier"
    ):
        write_page(tmp_path, A_PAGE)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert (tmp_path / file).read_text() == "<html>kept</html>"


def test_a_section_does_not_choose_where_its_file_lies(tmp_path):
    table = Table("../t", "?", "eq. 1", pd.DataFrame({"ncl": [2]}), {}, ())
    with pytest.raises(FcaError, match=r"name of a table = '../t'; allowed: a plain name"):
        write_page(tmp_path / "page", Page("x", [], [Section("a", "A", None, (table,))], run_rows(tables()), "fca"))


def test_markup_in_names_and_commands_is_shown_as_text():
    evil = "</script><script>alert(1)</script>"
    frame = pd.DataFrame({"dataset": [evil], "model": [evil], "classes": [(evil, "b")], "top1": [0.5]})
    rows = run_rows(tables()).head(2).assign(model=evil, command=[evil, "fca run"], commit=evil)
    table = Table("t", evil, evil, frame, {evil: evil}, (evil,))
    text = render(Page(evil, [evil], [Section("a", evil, None, (table,), evil)], rows, evil))
    assert evil not in text
    page = Parts(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 3
    assert json.loads(page.data)["tables"]["t"]["lines"][0] == [evil, evil, f"{evil}, b", 0.5]


def test_the_page_lists_the_runs_that_the_tables_read_and_their_parents(tmp_path):
    rows = run_rows(tables())
    made = [table for table in tables() if table.name == "dcn"]
    rows["parent"] = ["feedfeedfeed"] + [None] * (len(rows) - 1)
    extra = rows.head(2).assign(run_id=["feedfeedfeed", "0badf00d0bad"], parent=None)
    page = Parts(REPORT(tmp_path, results(made), pd.concat([rows, extra]), "fca report").read_text())
    shown = {line[0] for line in json.loads(page.data)["tables"]["runs"]["lines"]}
    assert "feedfeedfeed" in shown
    assert "0badf00d0bad" not in shown
    assert len(shown) == len(rows) + 1


@pytest.mark.slow
def test_ten_thousand_runs_fit_on_a_page():
    rows = run_rows(tables()).sample(10_000, replace=True, random_state=0, ignore_index=True)
    text = render(Page("many", [], [], rows, "fca report"))
    assert len(text) < 2_000_000
    shown = json.loads(Parts(text).data)["tables"]["runs"]
    assert (len(shown["lines"]), shown["all"]) == (1_000, 10_000)


def test_a_yes_or_no_is_no_number():
    shown = grid(pd.DataFrame({"converged": [True, False]}))  # the page once stopped at toPrecision of a boolean
    assert shown["columns"] == [{"name": "converged", "kind": "text"}]


def test_a_grid_keeps_what_is_missing_missing_and_knows_what_is_a_fraction():
    frame = pd.DataFrame({"ncl": pd.array([2, None], dtype="Int64"), "top1": [None, 0.5], "none": [None, None]})
    shown = grid(frame, COLUMNS)
    percent = {"name": "top1", "kind": "percent", "meaning": "top-1 accuracy"}
    assert shown["columns"] == [{"name": "ncl", "kind": "number"}, percent]
    assert shown["lines"] == [[2, None], [None, 0.5]]
