"""Queries choose lines as pandas' own do, and do nothing else."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.store.query import columns_of, rows_matching
from fca.types import FcaError

FRAME = pd.DataFrame(
    {
        "ncl": pd.array([2, 5, None], "Int64"),
        "model": ["a", "b", None],
        "done": pd.array([True, None, False], "boolean"),
        "classes": [(0, 1), (2,), None],
        "file name": ["x & y", "`", "z"],
        "top1": [0.1, 0.2, np.nan],
    }
)

VALUES = {
    "whole": (pd.Int64Dtype(), [1, 2, 3, None]),
    "share": ("float64", [0.25, 0.5, None]),
    "text": ("str", ["a", "b", None]),
    "other": ("str", ["a", "c", None]),
    "flag": (pd.BooleanDtype(), [True, False, None]),
    "classes": ("object", [(0, 1), (2,), None]),
    "plain": ("bool", [True, False]),
}
LITERALS = {"whole": ["1", "2", "-1", "2.5"], "share": ["0.25", "1", "-0.5"], "text": ["'a'", '"b"', "'no'"]}
LITERALS |= {"other": LITERALS["text"], "flag": ["True", "False"], "plain": ["True"]}
ORDERED = ("==", "!=", "<", "<=", ">", ">=")


@st.composite
def frames(draw):
    n = draw(st.integers(0, 6))
    lines = {name: [draw(st.sampled_from(values)) for _ in range(n)] for name, (_, values) in VALUES.items()}
    return pd.DataFrame({name: pd.Series(lines[name], dtype=kind) for name, (kind, _) in VALUES.items()})


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(sorted(LITERALS)))
    literal = st.sampled_from(LITERALS[name])
    kind = draw(st.sampled_from(["plain", "turned", "chained", "among", "listed", "columns", "flag", "tuples"]))
    how = draw(st.sampled_from(ORDERED))
    match kind:
        case "turned":
            return f"{draw(literal)} {how} {name}"
        case "chained":
            return f"{draw(literal)} {how} {name} {draw(st.sampled_from(ORDERED))} {draw(literal)}"
        case "among" | "listed":
            words = {"among": ["in", "not in"], "listed": ["==", "!="]}[kind]
            ends = draw(st.sampled_from(["[]", "()"]))
            values = ", ".join(draw(st.lists(literal, min_size=2, max_size=3)))
            return f"{name} {draw(st.sampled_from(words))} {ends[0]}{values}{ends[1]}"
        case "columns":
            return f"text {how} other" if draw(st.booleans()) else f"whole {how} share"
        case "flag":
            return draw(st.sampled_from(["flag", "plain", "not flag", "~plain"]))
        case "tuples":
            return f"classes {draw(st.sampled_from(['==', '!=', 'in', 'not in']))} [1, 2]"
    return f"{name} {how} {draw(literal)}"


QUERIES = st.recursive(
    comparisons(),
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from(["and", "or", "&", "|"]), part),
        st.builds("{} {} {}".format, part, st.sampled_from(["and", "or", "&", "|"]), part),
        st.builds("not ({})".format, part),
        st.builds("~({})".format, part),
    ),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(frames(), QUERIES)
def test_a_query_keeps_what_pandas_keeps(frame, query):
    pd.testing.assert_frame_equal(rows_matching(frame, query), frame.query(query, engine="python"))


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("`file name` == 'x & y' and model != 'a | b'", [0]),
        ("`file name` == '`'", [1]),
        ("classes == (0, 1)", [0]),
        ("classes in [(0, 1), (2,)]", [0, 1]),
        ("ncl in {2, 5}", [0, 1]),
        ("model == None", [2]),
        ("ncl != None and not ncl == 2", [1]),
        ("  top1 < +1e9 # all that are known", [0, 1]),
        ("ncl == " + "9" * 400, []),
        ("(" * 90 + "done" + ")" * 90, [0]),
    ],
)
def test_beyond_pandas_columns_tuples_and_missing_values_can_be_asked_for(query, lines):
    assert rows_matching(FRAME, query).index.tolist() == lines


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("@pd.read_pickle('x') == 1", "invalid syntax at @pd.read_pickle('x') == 1"),
        ("model.to_csv('made.csv')", r"model.to_csv('made.csv') is no part of a query"),
        ("model.str.len() == 1", "model.str.len() stands where a column should be"),
        ("ncl == model.str", "model.str is no part of a query"),
        ("__import__('os').system('touch made')", "__import__('os').system('touch made') is no part of a query"),
        ("ncl == [x for x in ().__class__.__mro__]", "[x for x in ().__class__.__mro__] is no part of a query"),
        ("ncl['a'] == 1", "ncl['a'] stands where a column should be"),
        ("f'{open(1)}' == model", "f'{open(1)}' is no part of a query"),
        ("model == f'{open(1)}'", "f'{open(1)}' is no part of a query"),
        ("(ncl := 3) == 3", "(ncl := 3) stands where a column should be"),
        ("lambda: 1", "lambda: 1 is no part of a query"),
        ("ncl == (yield)", "(yield) is no part of a query"),
        ("ncl + 1 == 2", "ncl + 1 stands where a column should be"),
        ("done if done else done", "done if done else done is no part of a query"),
        ("ncl", "ncl is no condition: compare it with something"),
        ("1", "1 is no condition: compare it with something"),
        ("True", "True is no condition: compare it with something"),
        ("done and 1", "1 is no condition: compare it with something"),
        ("2 == 2", "2 stands where a column should be"),
        ("nlc < 3", "there is no column 'nlc'"),
        ("__class__ == 3", "there is no column '__class__'"),
        ("index == 3", "there is no column 'index'"),
        ("ncl = 3", "invalid syntax at = 3"),
        ("ncl in 5", "5 is no list"),
        ("ncl in model", "model is no list"),
        ("ncl in [model]", "model is no literal"),
        ("2 in ncl", "2 stands where a column should be"),
        ("ncl is None", "None is compared by ==, not by `is`"),
        ("ncl < [1]", "[1] cannot be compared so with ncl (Int64)"),
        ("ncl < 'a'", "'a' cannot be compared so with ncl (Int64)"),
        ("model > 3", "3 cannot be compared so with model (str)"),
        ("model == b'a'", "b'a' is no part of a query"),
        ("ncl == 1j", "1j is no part of a query"),
        ("ncl == \0", "null bytes"),
        ("ncl == " + "9" * 5000, "Exceeds the limit"),
        ("", "invalid syntax"),
        ("done\nimport os", "invalid syntax at import os"),
        ("(" * 45_000 + "done" + ")" * 45_000, "too many nested parentheses"),
        ("not " * 20_000 + "done", "it is nested too deeply"),
        ("~" * 950 + "done", "it is nested too deeply"),
        ("-" * 50_000 + "1 == ncl", "it is nested too deeply"),
        ("ncl" + " + 1" * 200_000 + " < 1", "it is nested too deeply"),
        ("ncl < " * 200_000 + "1", "it has 1,200,001 characters, more than 1,000,000"),
    ],
)
def test_whatever_is_no_condition_is_refused_by_name_and_runs_nothing(query, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FcaError) as refused:
        rows_matching(FRAME, query, "dataset.where")
    text = str(refused.value)
    assert text.startswith("dataset.where = ")
    assert "allowed: comparisons (==, !=, " in text
    assert "columns: ncl, model, done, classes, file name, top1; " in text
    assert part in text
    assert "\n" not in text
    assert len(text) < 1000
    assert not list(tmp_path.iterdir())


def test_the_columns_of_a_query_are_those_that_it_names():
    assert columns_of("2 < ncl <= 5 and (`file name` in ['ncl'] or not done)") == {"ncl", "file name", "done"}
    with pytest.raises(FcaError, match=r"analysis.query = ncl <; allowed: comparisons"):
        columns_of("ncl <", "analysis.query")
