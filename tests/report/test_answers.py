"""Which answers a page opens with."""

from typing import NamedTuple

import pandas as pd
import pytest

from fca.report.finding import Finding, Statement, page_headlines
from fca.types import Table


class Declared(NamedTuple):
    name: str


MODELS, LABELS, OVER_ALL = Declared("models"), Declared("labels"), Declared("over_all")


def first(frame):
    line = frame.iloc[0]
    if line["model"] != "unknown":
        yield Statement(f"{line['model']} of {line['dataset']}.")
        yield Statement("It is in the section alone.")


FINDINGS = (
    Finding("models", "", (MODELS,), "Which model?", first),
    Finding(
        *("labels", "", (LABELS,), "Which labels?"),
        lambda frame: [Statement(f"{len(frame)} labels of {frame['dataset'].iloc[0]}.")],
    ),
    Finding("figure", "", (LABELS,)),
    Finding("over_all", "", (OVER_ALL,), "Over all data sets?", lambda frame: [Statement(f"{len(frame)} lines.")]),
)


class Study:
    """An analysis of this module."""


def found(models, labels=(), over_all=()):
    frames = {
        "models": pd.DataFrame(models, columns=["dataset", "model"]),
        "labels": pd.DataFrame({"dataset": list(labels)}),
        "over_all": pd.DataFrame({"r": list(over_all)}),
    }
    tables = {name: Table(name, "", "", frame, {}, ()) for name, frame in frames.items()}
    return [one.sentence for one in page_headlines([Study()], tables, most=5)]


def test_all_answers_are_about_the_data_set_that_has_most_of_them_and_the_first_counts_the_others():
    models = [("a", "vit"), ("a", "vgg"), ("a", "net"), ("b", "vgg"), ("c", "vgg")]
    assert found(models, ["b", "b"], [1, 2]) == ["vgg of b; 2 more data sets below.", "2 labels of b.", "2 lines."]


def test_of_as_many_answers_most_lines_decide_and_then_the_name():
    assert found([("b", "vit"), ("a", "vgg"), ("b", "vgg")]) == ["vit of b; 1 more data set below."]
    assert found([("b", "vit"), ("a", "vgg")]) == ["vgg of a; 1 more data set below."]


def test_what_that_data_set_does_not_answer_another_does():
    models = [("a", "unknown"), ("b", "vit"), ("b", "vgg")]
    assert found(models, ["a"]) == ["vit of b; 1 more data set below.", "1 labels of a."]


@pytest.mark.parametrize("models", [[], [("a", "unknown")]])
def test_tables_without_an_answer_have_none(models):
    assert found(models) == []


def test_of_one_data_set_nothing_is_counted():
    assert found([("a", "vit")]) == ["vit of a."]
