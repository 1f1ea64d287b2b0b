"""What a drawn figure holds: its marks, its values, and that it computes nothing."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import ClassVar

import pandas as pd
import pytest
import vl_convert

from fca.report import style
from fca.report.finding import Finding, findings_of, statements
from fca.types import Table


def drawn_findings(*analyses: object) -> list[Finding]:
    """The findings of these analyses that have a figure."""
    return [finding for analysis in analyses for finding in findings_of(analysis) if finding.draw is not None]


def sentences_of(state: Callable, *frames: pd.DataFrame) -> list[str]:
    """What the statements of a finding say about these frames."""
    return [statement.sentence for statement in state(*frames)]


def values(spec: dict) -> pd.DataFrame:
    return pd.DataFrame(spec["datasets"][spec["data"]["name"]])


def marks(spec: dict, kind: str, **chosen: list) -> int:
    """How many marks of a kind (symbol, rule, rect) are drawn when a reader chooses so."""
    params = [
        {**param, "value": chosen[param["name"].removeprefix("only_")]}
        if param["name"].removeprefix("only_") in chosen
        else param
        for param in spec["params"]
    ]
    svg = ET.fromstring(vl_convert.vegalite_to_svg({**spec, "params": params}, vl_version=style.VEGA_LITE))
    groups = [g for g in svg.iter() if f"mark-{kind} role-mark" in g.get("class", "")]
    return sum(len(list(group)) for group in groups)


def parts(node: object) -> Iterator[dict]:
    if isinstance(node, dict):
        yield node
        for name, child in node.items():
            if name not in ("values", "datasets"):
                yield from parts(child)
    elif isinstance(node, list):
        for child in node:
            yield from parts(child)


def drawn(spec: dict) -> bool:
    return vl_convert.vegalite_to_svg(spec, vl_version=style.VEGA_LITE).startswith("<svg")


def computes(spec: dict) -> list[dict]:
    """The parts of a figure that compute what an analysis should have."""
    done = {"aggregate", "bin", "timeUnit", "impute", "stack"}
    return [
        part
        for part in parts(spec)
        if done & set(part) or any(set(transform) != {"filter"} for transform in part.get("transform", []))
    ]


def refuses_empty(draw: Callable, tables: Iterable[Table]) -> None:
    """Without a line in its tables a figure says that there is nothing to draw."""
    with pytest.raises(style.NothingToDraw):
        draw(*(replace(table, frame=table.frame.head(0)) for table in tables))


@cache
def _tables(claims: type["FigureClaims"], **asked) -> Mapping[str, Table]:
    return claims.tables(**asked)


@cache
def _figure(claims: type["FigureClaims"], shown: Finding, **asked) -> dict:
    known = _tables(claims, **asked)
    return style.spec(shown.draw(*(known[spec.name] for spec in shown.tables)))


class FigureClaims:
    """What holds for every figure of a study; conftest.py runs it over FINDINGS and CASES.

    CASES:  options of `tables` for few lines and for many.    tables: invented ones by name.
    MARKS:  what a line becomes where that is not a symbol, by the key of the figure.
    """

    FINDINGS: ClassVar[Sequence[Finding]]
    CASES: ClassVar[Mapping[str, dict]]
    MARKS: ClassVar[Mapping[str, str]] = {}
    tables: Callable[..., Mapping[str, Table]]

    @classmethod
    def figure(cls, which: Finding | Callable | str, **asked) -> dict:
        """The figure, named by itself, its key or the function that draws it, over tables invented as asked."""
        [shown] = (one for one in cls.FINDINGS if which in (one, one.key, one.draw))
        return _figure(cls, shown, **asked)

    def test_it_transforms_nothing_but_by_filter(self, shown):
        assert not computes(self.figure(shown))

    @pytest.mark.slow
    def test_it_is_drawn_however_little_or_much_there_is(self, shown, case):
        spec = self.figure(shown, **self.CASES[case])
        assert drawn(spec)
        assert not computes(spec)

    def test_what_it_answers_is_a_sentence_and_a_small_figure(self):
        known = _tables(type(self))
        for finding in self.FINDINGS:
            for sentence, small in list(statements(finding, known))[: 1 if finding.question else None]:
                assert sentence.endswith(".")
                assert not re.search(r"\bnan\b|\bNone\b", sentence)
                assert (small is not None) or not finding.question
                assert small is None or drawn({**style.spec(small), "width": 300})

    def test_its_caption_is_made_of_whole_sentences(self, shown):
        title = self.figure(shown).get("title", {})
        caption = " ".join(title.get("subtitle", [])) if isinstance(title, dict) else ""
        if caption:
            assert re.search(r"[.)]$", caption), caption
            assert not re.search(r"[a-z] (Up to|Each|At most) ", caption), "a sentence that has no end"

    def test_without_a_line_there_is_nothing_to_draw(self, shown):
        known = _tables(type(self))
        refuses_empty(shown.draw, [known[spec.name] for spec in shown.tables])

    def test_a_choice_of_data_set_filters(self, shown):
        spec, kind = self.figure(shown), self.MARKS.get(shown.key, "symbol")
        assert marks(spec, kind) > 0
        assert marks(spec, kind, dataset=["another"]) == 0
