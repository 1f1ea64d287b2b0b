"""Table 1 and Figures 1 to 5 of Few-Class Arena (arXiv:2411.01099), from stored runs, beside the paper's numbers.

    python experiments/few_class_arena/parity.py --data $FCA_REAL_DATA --outputs outputs        seconds to minutes

Reads DATA/tables/paper_*.csv and the runs under OUTPUTS; starts none. What no run fills stays empty, with the command
that fills it. Expect on an empty store: the paper's numbers alone, and what follows from them for ranks and regret.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import altair as alt
import arena_figures as figures
import arena_paper as paper
import arena_tables as tables
import pandas as pd
from arena_paper import DCN, IMAGENET, base
from arena_tables import Study, attempted, ready, studies

from fca.report.page import Page, Section, write_page
from fca.report.style import NothingToDraw, spec
from fca.stats.intervals import interval_method
from fca.store import Store
from fca.studies.few_class.figures.similarity import scatter_figure
from fca.tables.rows import records
from fca.types import FcaError, Table

OVER_SEEDS = {"intervals": f"95 %, {interval_method('subset seeds')}", "spread": "standard deviation between subsets"}
VERDICTS = {"yes, as in the paper": "as in the paper", "yes, the other way": "the other way", "no": "not significant"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 when the paper's tables are not there or the query cannot be read."""
    options = _arguments().parse_args(arguments)
    try:
        page = parity(options.data, Store(options.outputs), options.query)
        index = write_page(options.to or options.outputs / "reports" / "parity", page)
    except FcaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*page.headlines, f"page: {index}"]))
    return 0


def parity(data: Path, store: Store, query: str | None = None) -> Page:
    """The page."""
    table1, figure5 = paper.table1(data), paper.figure5(data)
    rows = store.rows(query)
    usable, reasons = ready(studies(store, query))
    parts = [*_of_table1(table1, rows), *_by_ncl(table1[DCN], usable), *_similarity(figure5, usable)]
    found = {table.name: table for part in parts for table in part.tables}
    sentences = headlines({name: table.frame for name, table in found.items()}, reasons)
    words = ["--data", str(data), "--outputs", str(store.outputs), *(["--query", query] if query else [])]
    command = shlex.join(["python", "experiments/few_class_arena/parity.py", *words])
    used = {run for table in found.values() for run in table.runs}
    return Page("Few-Class Arena, paper and ours", sentences, parts, rows[rows["run_id"].isin(used)], command)


def _of_table1(published: pd.DataFrame, rows: pd.DataFrame) -> Iterator[Section]:
    """Table 1, the best model, ranks and regret."""
    frame = tables.table1(published, rows)
    best = frame.loc[frame["paper_model"] == DCN, [*tables.FIGURE2A.columns]]
    runs = sorted(set(frame["run_id"].dropna()))
    wilson = {"ours": "top1_open of full models on the clean test split", "intervals": "95 %, Wilson"}
    over = {name: {"intervals": interval_method(name)} for name in ("models", "data sets")}
    agreement, regret = tables.agreement(published, frame), tables.regret(published)
    yield _section(figures.table1, tables.TABLE1.table(frame, wilson, runs))
    yield _section(figures.best, tables.FIGURE2A.table(best, {}, runs))
    yield _section(figures.ranks, tables.FIGURE2B.table(tables.ranks(frame), {}, runs))
    yield _section(figures.agreement, tables.RANK_AGREEMENT.table(agreement, over["models"], runs))
    yield _section(figures.regret, tables.REGRETS.table(regret, over["data sets"], ()))


def _by_ncl(best: pd.Series, found: list[Study]) -> Iterator[Section]:
    """Figures 1, 3 and 4 with the findings, and the same of other data sets."""
    runs = sorted({run for study in found for run in study.points["run_id"]})
    frames, measured = tables.by_ncl(found, best), tables.findings(found)
    on = (measured["dataset"].map(base) == IMAGENET).to_numpy()
    frames |= {"figure1_findings": measured[on], "beyond_findings": measured[~on]}
    declared = (tables.FIGURE1, tables.FIGURE3, tables.FIGURE4, tables.BEYOND_FIGURE1, tables.BEYOND_DCN)
    declared = (*declared, tables.FIGURE1_FINDINGS, tables.BEYOND_FINDINGS)
    of = {one.name: one.table(frames[one.name], OVER_SEEDS, runs) for one in declared}
    yield _section(figures.by_ncl, of["figure1"], of["figure1_findings"])
    yield _section(figures.dcn, of["figure3"])
    yield _section(figures.dcn, of["figure4"])
    yield _section(figures.by_ncl, of["beyond_figure1"], of["beyond_findings"])
    yield _section(figures.dcn, of["beyond_dcn"])


def _similarity(published: pd.DataFrame, usable: list[Study]) -> Iterator[Section]:
    """Figure 5, the same of other data sets, and the points behind the coefficients."""
    found, reasons = attempted(usable, lambda study: study.correlated)
    for declared, frame, on in (
        (tables.FIGURE5, tables.figure5(published, found), True),
        (tables.BEYOND_FIGURE5, tables.elsewhere(found), False),
    ):
        mine, missing = ({k: v for k, v in one.items() if (base(k) == IMAGENET) is on} for one in (found, reasons))
        parts = [[of_study[kind] for of_study in mine.values()] for kind in ("correlation_points", "correlation")]
        runs = sorted({run for part in parts for table in part for run in table.runs})
        yield _section(figures.coefficients, declared.table(frame, OVER_SEEDS | missing, runs))
        if mine:
            points, correlation = (
                replace(part[0], name=f"{declared.name}_{part[0].name}", frame=frame, runs=tuple(runs))
                for part, frame in ((part, pd.concat([t.frame for t in part], ignore_index=True)) for part in parts)
            )
            title = "Figure 5: points" if on else "Beyond the paper: figure 5: points"
            drawn = spec(scatter_figure(points, correlation))
            yield Section(f"{declared.name}_points", title, drawn, (points, correlation))


def _section(draw: Callable[[Table, alt.Title], alt.FacetChart], *shown: Table) -> Section:
    """A part of the page; its figure draws the first table, which gives the key."""
    key = shown[0].name
    text = paper.TEXTS["tables"][key]
    try:
        drawn = spec(draw(shown[0], alt.Title(text["heading"], subtitle=[text["subtitle"]])))
        return Section(key, text["title"], drawn, shown)
    except NothingToDraw:
        commands = "" if key.startswith("beyond") else "; the table gives the commands that make them"
        return Section(key, text["title"], None, shown, f"no run has what this figure needs{commands}")


def headlines(frames: Mapping[str, pd.DataFrame], reasons: Mapping[str, str]) -> list[str]:
    """A sentence for each finding, and why a study is not shown; every number in them stands in a table."""
    parts = (_cells(frames["table1"]), _rankings(frames), _findings(frames), _coefficients(frames))
    return [*(line for part in parts for line in part), *(f"{name}: not shown. {why}" for name, why in reasons.items())]


def _cells(table: pd.DataFrame) -> Iterator[str]:
    cells = table[table["paper_model"] != DCN]
    filled = cells.dropna(subset="top1")
    known, every = (len(part[["dataset", "model"]].drop_duplicates()) for part in (filled, cells))
    line = f"Table 1: {known} of {every} cells have a run here"
    if filled.empty:
        yield f"{line}; every empty cell names the command that fills it."
        return
    outside = ~filled["top1_paper"].between(filled["top1_low"], filled["top1_high"])
    yield f"{line}; the paper's number lies outside our 95 % interval in {outside.sum()} of {len(filled)} runs."


def _rankings(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    agreement = frames["rank_agreement"].query("whose == 'paper'")
    rho = [f"{one['paper_dataset']} {one['rho']:.2f}" for one in records(agreement)]
    if rho:
        yield f"In the paper, Spearman's rho of each data set's ranking with ImageNet's is {', '.join(rho)}."
    points = [f"{one['paper_model']} {100 * one['top1_regret']:.1f}" for one in records(frames["regret"])]
    yield f"In the paper, always taking one model costs, in points below the best: {', '.join(points)}."


def _findings(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    frame = pd.concat([frames["figure1_findings"], frames["beyond_findings"]])
    if frame["value"].notna().any():
        yield (
            "Findings of figure 1, with 95 % intervals over subset seeds: (a), (c.1) and (d.1) in percentage points, "
            "(b) a ratio of spreads, (c.2) and (d.2) Spearman's rho of parameters and accuracy."
        )
    for dataset, part in frame.groupby("dataset", sort=False):
        if part["value"].isna().all():
            yield f"{dataset}: no run here shows the findings of figure 1."
        for verdict, same in part.dropna(subset="value").groupby(tables.SIGNIFICANT, sort=False):
            found = [f"({one['finding']}) {one['value']:.2f} {_interval(one, 'value_')}" for one in records(same)]
            yield f"{dataset}, findings of figure 1, {VERDICTS.get(str(verdict), verdict)}: {'; '.join(found)}."


def _coefficients(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    frame = pd.concat([frames["figure5"], frames["beyond_figure5"]]).dropna(subset="r")
    if frame.empty:
        yield "Figure 5: no run here shows whether SimSS predicts accuracy."
    for (dataset, encoder, target), part in frame.groupby(["dataset", "encoder", "target"], sort=False):
        found = [
            f"{one['predictor']} ({one['scope']}) r = {one['r']:.2f} {_interval(one, 'r_')}, n = {one['n']}"
            + (f", the paper's {one['r_paper']:.2f}" if pd.notna(one["r_paper"]) else "")
            for one in records(part)
        ]
        yield f"{dataset}, {encoder}, {target}: {'; '.join(found)}."


def _interval(line: Mapping[str, float], of: str) -> str:
    low, high = line[f"{of}low"], line[f"{of}high"]
    return "[interval undefined]" if pd.isna(low) else f"[{low:.2f}, {high:.2f}]"


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("FCA_REAL_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="holds tables/paper_*.csv")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="the store (default: outputs)")
    parser.add_argument("--to", type=Path, help="folder of the page (default: OUTPUTS/reports/parity)")
    parser.add_argument("--query", help="narrows the runs, a condition on their columns")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
