"""The first lines of the parity page; every number in them stands in one of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd
from findings import VERDICT
from paper import DCN


def answers(tables: Mapping[str, pd.DataFrame], reasons: Mapping[str, str]) -> list[str]:
    """A sentence a finding, and why a study is not shown."""
    lines = [*_table1_says(tables["table1"]), *_paper_says(tables), *_findings_say(tables), *_figure5_says(tables)]
    return [*lines, *(f"{name}: not shown. {reason}" for name, reason in reasons.items())]


def _table1_says(table: pd.DataFrame) -> Iterator[str]:
    cell = table[table["paper_model"] != DCN]
    filled = cell.dropna(subset="top1")
    known = len(filled[["dataset", "model"]].drop_duplicates())
    line = f"Table 1: {known} of {len(cell[['dataset', 'model']].drop_duplicates())} cells have a run here"
    if filled.empty:
        yield f"{line}; every empty cell names the command that fills it."
        return
    outside = ~filled["top1_paper"].between(filled["top1_low"], filled["top1_high"])
    yield f"{line}; the paper's number lies outside our 95 % interval in {outside.sum()} of {len(filled)} runs."


def _paper_says(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    agree = tables["rank_agreement"]
    told = [f"{one['paper_dataset']} {one['rho']:.2f}" for one in agree[agree["whose"] == "paper"].to_dict("records")]
    if told:
        yield f"The paper's own ranks: Spearman's rho of each data set's with ImageNet's is {', '.join(told)}."
    told = [f"{one['paper_model']} {100 * one['top1_regret']:.1f}" for one in tables["regret"].to_dict("records")]
    yield f"The paper's own accuracies: always taking one model costs, in points below the best: {', '.join(told)}."


def _findings_say(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    frame = pd.concat([tables["figure1_findings"], tables["beyond_findings"]])
    if frame["value"].notna().any():
        yield (
            "Findings of figure 1, with 95 % intervals over subset seeds: (a), (c.1) and (d.1) in percentage points, "
            "(b) a ratio of spreads, (c.2) and (d.2) Spearman's rho of parameters and accuracy."
        )
    for dataset, part in frame.groupby("dataset", sort=False):
        known = part.dropna(subset="value")
        if known.empty:
            yield f"{dataset}: no run here tells of the findings of figure 1."
        for verdict, same in known.groupby(VERDICT, sort=False):
            told = [
                f"({one['finding']}) {one['value']:.2f} {_interval(one['low'], one['high'])}"
                for one in same.to_dict("records")
            ]
            yield f"{dataset}, findings of figure 1, {_WORDS.get(str(verdict), verdict)}: {'; '.join(told)}."


def _figure5_says(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    frame = pd.concat([tables["figure5"], tables["beyond_figure5"]]).dropna(subset="r")
    if frame.empty:
        yield "Figure 5: no run here tells whether SimSS goes with accuracy."
    for (dataset, encoder, target), part in frame.groupby(["dataset", "encoder", "target"], sort=False):
        told = [
            f"{one['predictor']} ({one['scope']}) r = {one['r']:.2f} {_interval(one['r_low'], one['r_high'])}, "
            f"n = {one['n']:.0f}" + (f", the paper's {one['r_paper']:.2f}" if pd.notna(one["r_paper"]) else "")
            for one in part.to_dict("records")
        ]
        yield f"{dataset}, {encoder}, {target}: {'; '.join(told)}."


def _interval(low: float, high: float) -> str:
    return "[interval undefined]" if pd.isna(low) else f"[{low:.2f}, {high:.2f}]"


_WORDS = {"yes, as the paper says": "as the paper says", "yes, the other way": "the other way", "no": "not told apart"}
