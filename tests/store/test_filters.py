"""Filters as they are typed keep the rows that a plain comparison of the values keeps."""

import pandas as pd
import pytest

from fca.store.filters import as_typed, check_columns, combined_query, query_of, unmatched_filter_lines, words_of
from fca.store.query import rows_matching
from fca.types import FcaError

ROWS = pd.DataFrame(
    {
        "dataset": ["flowers", "flowers", "digits", "my photos", "a, b"],
        "model": ["net", "vit, probe", "net", None, "null"],
        "ncl": [2, 5, 10, 2, 3],
        "seed": pd.array([0, 1, None, 0, 1], dtype="Int64"),
        "top1": [0.5, 0.9, None, 0.1, 0.7],
        "recipe_flip": [True, False, None, True, None],
        "recipe_lr": [0.1, "auto", "auto", 0.1, 3],
        "classes": [(0, 1), (0, 1, 2, 3, 4), None, (2, 7), (0, 1, 2)],
    }
)


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("dataset=flowers", [0, 1]),
        ("dataset==flowers", [0, 1]),
        ("dataset=[flowers,digits]", [0, 1, 2]),
        ("dataset=flowers, digits", [0, 1, 2]),
        ("dataset!=flowers", [2, 3, 4]),
        ("dataset=my photos", [3]),
        ("dataset='a, b'", [4]),
        ('dataset="a, b",digits', [2, 4]),
        ("model=null", [3]),
        ("model=null,net", [0, 2, 3]),
        ("model='null'", [4]),
        ("model!=null", [0, 1, 2, 4]),
        ("ncl=2,5", [0, 1, 3]),
        ("subset.ncl>=5", [1, 2]),
        ("seed=1", [1, 4]),
        ("top1>.6", [1, 4]),
        ("recipe.flip=true", [0, 3]),
        ("recipe_flip=False", [1]),
        ("recipe.lr=0.1", [0, 3]),
        ("recipe.lr=auto,3", [1, 2, 4]),
        ("classes=[0,1]", [0]),
        ("classes=[2, 7]", [3]),
    ],
)
def test_a_filter_keeps_the_rows_of_its_values(word, lines):
    assert rows_matching(ROWS, query_of(word, ROWS)).index.tolist() == lines


@pytest.mark.parametrize("column", ["dataset", "model", "ncl", "seed", "recipe_flip", "recipe_lr", "classes"])
def test_every_value_of_a_column_can_be_typed_and_keeps_its_rows(column):
    for value in ROWS[column].dropna().unique():
        word = f"{column}={as_typed(value)}"
        expected = [
            line
            for line, other in ROWS[column].items()
            if not (pd.api.types.is_scalar(other) and pd.isna(other)) and other == value
        ]
        assert rows_matching(ROWS, query_of(word, ROWS)).index.tolist() == expected, word


def test_filters_and_a_query_hold_together():
    query = combined_query("ncl == 2 or ncl == 10", ["dataset=flowers,digits"], ROWS)
    assert rows_matching(ROWS, query).index.tolist() == [0, 2]
    assert combined_query(None, [], ROWS) is None


def test_a_dictionary_means_what_its_words_mean():
    words = words_of({"dataset": ["flowers", "a, b"], "ncl": 2, "model": None})
    assert words == ["dataset=flowers,'a, b'", "ncl=2", "model=null"]
    with pytest.raises(FcaError, match=r"filters = dataset=flowers; allowed: a list of words"):
        words_of("dataset=flowers")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("datset=flowers", "column = datset; .*did you mean dataset?"),
        ("ncl=two", "ncl = two; allowed: a number"),
        ("recipe_flip=yes", "recipe_flip = yes; allowed: true or false"),
        ("ncl<2,3", "ncl<2,3 = 2,3; allowed: one value after <"),
        ("ncl<null", "ncl<null = null; allowed: one value after <"),
    ],
)
def test_what_cannot_be_a_filter_is_refused_with_what_is_allowed(word, message):
    with pytest.raises(FcaError, match=message):
        query_of(word, ROWS)


def test_an_unknown_word_may_be_a_key_or_a_column():
    with pytest.raises(FcaError, match=r"a key \(analysis, outputs\) or a column .*did you mean outputs\?"):
        check_columns(["output=x"], ROWS, ["analysis", "outputs"])


def test_a_filter_without_rows_names_values_that_there_are():
    assert unmatched_filter_lines(["dataset=flowers", "dataset=roses"], ROWS) == [
        "no run has dataset=roses; dataset is 'a, b', digits, flowers, my photos"
    ]
