"""A page explains the words that its reader cannot know, where they stand first."""

import re
from pathlib import Path

import pandas as pd
import pytest

from fca.report import terms
from fca.report.finding import Headline
from fca.report.page import Page, Section, render

ROOT = Path(__file__).parents[2]


def page_of(*answers: Headline, sections=()) -> str:
    rows = pd.DataFrame({"run_id": ["0123456789ab"], "command": ["fca run"]})
    return render(Page("P", (), sections, rows, "fca report", answers=answers))


def explanations(html: str) -> list[str]:
    return re.findall(r"<b>([^<]+)</b>: ", html)


@pytest.mark.parametrize("word", terms.PATTERNS)
def test_every_word_that_pages_explain_is_in_the_glossary(word):
    assert terms.glossary()[word]
    assert not re.search(r"[`\[\]|]", terms.glossary()[word]), "plain text, without markup"


def test_the_site_and_the_pages_have_one_glossary():
    assert (ROOT / "docs" / "glossary.md").resolve() == terms.GLOSSARY.resolve()


def test_a_word_is_explained_where_it_stands_first_and_nowhere_else():
    first = Headline("Which is best?", "The best of 3 sub-models is right.", None)
    second = Headline("Does similarity predict?", "It does (SimSS by hog), also for a sub-model.", None)
    html = page_of(first, second)
    assert explanations(html) == ["sub-model", "SimSS", "hog"]
    assert html.index("<b>sub-model</b>") < html.index("Does similarity predict?") < html.index("<b>SimSS</b>")


def test_words_of_legends_and_panels_are_explained_below_their_figure():
    figure = {
        "title": {"text": "How accurate?", "subtitle": ["Each mark is one subset."]},
        "data": {"name": "d"},
        "datasets": {"d": [{"panel": "hog", "simss": 0.1}]},
        "mark": "point",
        "encoding": {"color": {"field": "kind", "legend": {"title": "full model"}}},
    }
    html = page_of(sections=[Section("one", "One", figure, ())])
    assert sorted(explanations(html)) == ["full model", "hog"]


def test_what_comes_from_the_data_alone_is_no_word_of_ours():
    assert terms.explained("tautology, ncls, the mask, hogwarts", set()) == []


def test_a_word_that_stands_in_a_tooltip_alone_is_not_explained():
    figure = {
        "title": {"text": "Which images are hard?", "subtitle": []},
        "layer": [{"mark": "point", "encoding": {"tooltip": [{"field": "difficulty", "title": "difficulty"}]}}],
    }
    assert explanations(page_of(sections=[Section("one", "One", figure, ())])) == []


def test_difficulty_and_discrimination_have_a_meaning_each():
    meanings = dict(terms.explained("difficulty and discrimination", set()))
    assert "half of the responses" in meanings["difficulty"]
    assert "sharply" not in meanings["difficulty"]
    assert "sharply" in meanings["discrimination"]
