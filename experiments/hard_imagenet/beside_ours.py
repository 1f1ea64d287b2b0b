"""Table 1 and Figures 1 to 10 of Hard ImageNet (Moayeri et al. 2022) beside ours, from stored runs.

    python experiments/hard_imagenet/beside_ours.py outputs                     the paper's sets; seconds
    python experiments/hard_imagenet/beside_ours.py outputs --hard "rendered color 1" --ordinary "rendered color 0"

Starts no run. What none fills stays empty, with the command that fills it. Ours follows the paper's text (each instance
has its own box, tiles lie beside it, CoRM's penalty reaches the weights), so its numbers differ from released code.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import moayeri as paper
import pandas as pd

from fca.report import kinds, style
from fca.report.finding import findings_of
from fca.report.page import Page, Section, write_page
from fca.report.style import NothingToDraw, spec
from fca.store import Store
from fca.studies.reliance.object_statistics import ALL_CLASSES, ObjectStatistics
from fca.studies.reliance.reliance import Reliance
from fca.studies.reliance.spurious_rank import SpuriousRank
from fca.types import Column, FcaError, Table

OURS = Column("ours", float, ".3f", "ours")
OURS_ENDS = ("ours", "ours_low", "ours_high")
TABLE1 = (
    Column("model", str, "", "model"),
    Column("method", str, "", "how the last layer was trained"),
    Column("measure", str, "", "accuracy under an ablation, RFS at a noise level, or IoU of GradCAM"),
    Column("paper", float, ".3f", "the paper's"),
    *(OURS, OURS.low, OURS.high),
    Column("command", str, "", "what fills an empty cell"),
)
STATED = (
    *(Column("where", str, "", "figure"), Column("statement", str, "", "what the paper states")),
    *(Column("ours", str, "", "what stored runs show"), Column("agrees", str, "", "whether ours agrees")),
    Column("command", str, "", "what fills an empty cell"),
)
Frames = Mapping[str, pd.DataFrame]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", type=Path, help="the store")
    parser.add_argument("--hard", default=paper.HARD, help="the data set in the place of Hard ImageNet")
    parser.add_argument("--ordinary", default=paper.ORDINARY, help="the data set in the place of RIVAL10")
    parser.add_argument("--to", type=Path, help="folder of the page (default: OUTPUTS/reports/hard_imagenet)")
    given = parser.parse_args(arguments)
    page = side_by_side(Store(given.outputs), given.hard, given.ordinary)
    index = write_page(given.to or given.outputs / "reports" / "hard_imagenet", page)
    print("\n".join([*page.headlines, f"page: {index}"]))
    return 0


def side_by_side(store: Store, hard: str = paper.HARD, ordinary: str = paper.ORDINARY) -> Page:
    """The page; an analysis that has nothing to read is named in a headline."""
    tables: dict[str, Table] = {}
    reasons: dict[str, str] = {}
    own = f"dataset in {[hard, ordinary]!r}"
    analyses = [Reliance(query=own), ObjectStatistics(query=own), SpuriousRank(query=own)]
    for analysis in analyses:
        try:
            tables |= {table.name: table for table in analysis(store)}
        except FcaError as error:
            reasons[type(analysis).__name__] = str(error)
    empty = {table.name: table.frame([]) for analysis in analyses for table in analysis.tables}
    frames = {**empty, **{name: table.frame for name, table in tables.items()}}
    runs = tuple(sorted({run for table in tables.values() for run in table.runs}))
    cells, stated = table1(frames, hard), statements(frames, hard, ordinary)
    parts = [
        _section("table1", "Table 1", lambda: table1_figure(cells), _table("table1", cells, TABLE1, runs)),
        Section("statements", "Statements", None, (_table("statements", stated, STATED, runs),), "a table of words"),
        *(part for analysis in analyses for part in _figures(analysis, tables)),
    ]
    words = ["python", "experiments/hard_imagenet/beside_ours.py", str(store.outputs)]
    words += [] if (hard, ordinary) == (paper.HARD, paper.ORDINARY) else ["--hard", hard, "--ordinary", ordinary]
    rows = store.rows()
    lines = list(_headlines(cells, stated, reasons))
    return Page("Hard ImageNet and ours", lines, parts, rows[rows["run_id"].isin(runs)], shlex.join(words))


def table1(frames: Frames, hard: str) -> pd.DataFrame:
    """Every cell of the paper's Table 1 with ours; one without runs has its command."""
    lines = []
    for (model, adaptation), printed in paper.TABLE1.items():
        for measure, value in zip(paper.MEASURES, printed, strict=True):
            ours = _ours(frames, hard, model, adaptation, measure)
            cell = {"model": paper.MODELS[model], "method": paper.ADAPTATIONS[adaptation], "measure": measure}
            cell["paper"] = value if measure.startswith("rfs") else round(value / 100, 4)
            missing = pd.isna(ours["ours"])
            cell["command"] = paper.run_command(model, adaptation, measure) if missing else None
            lines.append({**cell, **ours})
    return pd.DataFrame(lines)[[str(column) for column in TABLE1]]


def _ours(frames: Frames, hard: str, model: str, adaptation: str, measure: str) -> dict[str, float]:
    """Our value of a cell with its interval; missing where no run has it."""
    if measure == "iou":
        frame, name = frames["reliance_saliency"], "value"
        frame = frame[frame["metric"] == measure]
    elif measure.startswith("rfs"):
        frame, name = frames["reliance_rfs"], "rfs"
        same = (frame["kind"] == "gaussian") & (frame["level"] == float(measure.removeprefix("rfs ")))
        frame = frame[same & (frame["area_matched"] == False) & (frame["protocol"] == "open")]  # noqa: E712
    else:
        frame, name = frames["reliance_accuracy"], "top1"
        frame = frame[(frame["condition"] == measure) & (frame["protocol"] == "open")]
    named = (frame["dataset"] == hard) & frame["model"].astype(str).str.startswith(model)
    found = frame[named & (frame["adaptation"] == adaptation)]
    if found.empty:
        return dict.fromkeys((OURS, OURS.low, OURS.high), float("nan"))
    line = found.iloc[0]
    return {str(OURS): line[name], str(OURS.low): line[f"{name}_low"], str(OURS.high): line[f"{name}_high"]}


def statements(frames: Frames, hard: str, ordinary: str) -> pd.DataFrame:
    """What the paper states in words, what our runs show, and whether that agrees; a command where none decides."""
    lines = []
    for key, (where, text, command) in paper.STATEMENTS.items():
        words, agrees = FINDINGS[key](frames, hard, ordinary)
        shown = None if agrees is None else "yes" if agrees else "no"
        line = {"where": where, "statement": text, "ours": words, "agrees": shown}
        lines.append({**line, "command": command if agrees is None else None})
    return pd.DataFrame(lines)[[str(column) for column in STATED]]


Found = tuple[str | None, bool | None]
UNKNOWN: Found = (None, None)


def _deit_half(frames: Frames, hard: str, _: str) -> Found:
    frame = _off_the_shelf(frames["reliance_accuracy"], hard)
    frame = frame[frame["model"].str.startswith("deit") & frame["condition"].str.startswith("ablate/")]
    if frame.empty:
        return UNKNOWN
    words = [f"{one.condition} {_share(one, 'top1')}" for one in frame.itertuples()]
    return ", ".join(words), bool((frame["top1"] > 0.5).all())


def _off_the_shelf(frame: pd.DataFrame, dataset: str) -> pd.DataFrame:
    own = frame["adaptation"].isna() & (frame["dataset"] == dataset)
    return frame[own & (frame["protocol"] == "open")]


def _compared(table: str, value: str, chosen: Mapping[str, Any], more: bool) -> Callable[..., Found]:
    """Whether the mean over models of a value is larger (or smaller) on the hard set than on the ordinary one."""

    def found(frames: Frames, hard: str, ordinary: str) -> Found:
        frame = frames[table]
        for column, wanted in chosen.items():
            frame = frame[frame[column].isin(wanted)]
        means = [frame.loc[frame["dataset"] == name, value].mean() for name in (hard, ordinary)]
        if pd.isna(means).any():
            return UNKNOWN
        models = frame["model"].nunique() if "model" in frame else 1
        words = f"{hard} {means[0]:.3f}, {ordinary} {means[1]:.3f} (means; {models} models)"
        return words, bool(means[0] > means[1]) is more

    return found


def _cropped(frames: Frames, hard: str, ordinary: str) -> Found:
    frame = frames["object_distribution"]
    frame = frame[(frame["quantity"] == "retained") & (frame["share"] > 0)]
    least = [frame.loc[frame["dataset"] == name, "from"].min() for name in (hard, ordinary)]
    if pd.isna(least).any():
        return UNKNOWN
    ends = f"{hard} {least[0]:.2f}, {ordinary} {least[1]:.2f}"
    words = f"least share of an object that the crop leaves, in steps of .05: {ends}"
    return words, bool(least[0] == 0 and least[1] >= 0.75)


def _low_rank(frames: Frames, hard: str, _: str) -> Found:
    frame = frames["spurious_gap"]
    gaps = frame.loc[frame["dataset"] == hard, "gap"].dropna()
    if gaps.empty:
        return UNKNOWN
    return f"top minus bottom {gaps.mean():+.3f}, mean of {len(gaps)} classes and models", bool(gaps.mean() > 0)


FINETUNED = ["head", "finetune"]
ABLATED = ["ablate/gray", "ablate/gray_box", "ablate/tile"]
FINDINGS: dict[str, Callable[[Frames, str, str], Found]] = {
    "deit_half": _deit_half,
    "ablated_more": _compared("reliance_accuracy", "top1", {"condition": ABLATED, "adaptation": FINETUNED}, more=True),
    "rfs_lower": _compared("reliance_rfs", "rfs", {"area_matched": [False], "protocol": ["open"]}, more=False),
    "iou_lower": _compared("reliance_saliency", "value", {"metric": ["iou"]}, more=False),
    "smaller": _compared("object_statistics", "mask_area", {"label": [ALL_CLASSES]}, more=False),
    "cropped": _cropped,
    "off_centre": _compared("object_statistics", "centre", {"label": [ALL_CLASSES]}, more=True),
    "low_rank": _low_rank,
}


def table1_figure(cells: pd.DataFrame) -> alt.FacetChart:
    """The paper's number and ours with its interval, a panel a measure."""
    filled = cells.dropna(subset="ours")
    sides = {"paper": ("paper", None, None), "ours": OURS_ENDS}
    names = ("value", "value_low", "value_high")
    parts = [
        filled.assign(
            whose=whose, **{new: None if old is None else filled[old] for new, old in zip(names, ends, strict=True)}
        )
        for whose, ends in sides.items()
    ]
    long = pd.concat(parts, ignore_index=True)
    long["row"] = long["model"] + ", " + long["method"]
    long["panel"] = style.panels(long, "measure")
    value, whose = Column("value", float, ".2f", ""), Column("whose", str, "", "", {"paper": "paper", "ours": "ours"})
    along = kinds.category(alt.Y, "row", list(dict.fromkeys(long["row"])))
    hover = (Column("row"), Column("measure"), whose, value, value.low, value.high)
    chart = kinds.points_with_intervals(value, along, hover, kinds.hue(whose, long, kinds.CONTRAST), dodge="whose")
    title = style.title(
        "Table 1 beside ours", "95 % intervals over classes; cells without runs are in the table below."
    )
    return style.faceted(chart, long, title, (), row=22).resolve_scale(x="independent")


def _figures(analysis: Any, tables: Mapping[str, Table]) -> Iterator[Section]:
    """The figures of an analysis; what has nothing to draw has its reason."""
    shown: set[str] = set()
    for finding in findings_of(analysis):
        if finding.draw is None:
            continue

        known = [tables[table.name] for table in finding.tables if table.name in tables]
        new = tuple(table for table in known if table.name not in shown and len(table.frame))
        shown |= {table.name for table in new}
        if len(known) < len(finding.tables):
            yield Section(finding.key, finding.title, None, (_commands(finding.key),), "no run has what it needs")
        else:
            yield _section(finding.key, finding.title, partial(finding.draw, *known), *new)


def _commands(key: str) -> Table:
    frame = pd.DataFrame([{"command": paper.STUDY}, {"command": paper.DESCRIBED}])
    return _table(f"{key}_commands", frame, (Column("command", str, "", "what makes the runs of this figure"),), ())


def _table(name: str, frame: pd.DataFrame, columns: Sequence[Column], runs: Sequence[str]) -> Table:
    return Table(name, "The paper's and ours", paper.PAPER, frame, {}, tuple(runs), tuple(columns))


def _section(key: str, title: str, draw: Callable[[], alt.FacetChart], *tables: Table) -> Section:
    try:
        return Section(key, title, spec(draw()), tables)
    except NothingToDraw as nothing:
        return Section(key, title, None, tables, str(nothing))


def _headlines(cells: pd.DataFrame, stated: pd.DataFrame, reasons: Mapping[str, str]) -> Iterator[str]:
    filled = cells.dropna(subset="ours")
    yield f"Table 1: {len(filled)} of {len(cells)} cells have runs here; an empty one names the command that fills it."
    inside = filled[(filled["ours_low"] <= filled["paper"]) & (filled["paper"] <= filled["ours_high"])]
    if len(filled):
        yield f"Of {len(filled)} filled cells, the paper's number lies within our interval in {len(inside)}."
    decided = stated.dropna(subset="agrees")
    agree = (decided["agrees"] == "yes").sum()
    yield f"{len(decided)} of {len(stated)} statements are decided by runs here: {agree} agree."
    for name, reason in reasons.items():
        yield f"Not shown: {name}. {reason}"


def _share(line: Any, name: str) -> str:
    value, low, high = (100 * getattr(line, f"{name}{end}") for end in ("", "_low", "_high"))
    return f"{value:.1f} % [{low:.0f}, {high:.0f}]"


if __name__ == "__main__":
    raise SystemExit(main())
