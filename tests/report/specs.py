"""What a drawn figure holds: its marks, its values, and that it computes nothing."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pandas as pd
import pytest
import vl_convert

from fca.report import style
from fca.types import Table


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
