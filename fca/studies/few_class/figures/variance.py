"""Where the spread of accuracies comes from: figure and statements."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.finding import Statement
from fca.studies.few_class.figures.accuracy import NAMES, by_protocol
from fca.studies.few_class.variance import SHARES, SOURCES, SPREADS
from fca.tables.table import DATASET, MODEL, NCL, PROTOCOL
from fca.types import Column, Table, interval_columns

_SOURCE = Column("source", str, "", "source of the spread", {source: source for source in SOURCES.values()})
_SD = Column("sd", float, ".2%", "standard deviation of one accuracy")
_SHARE = Column("share", float, ".0%", "share of the variance")


def variance_figure(variance: Table) -> alt.FacetChart:
    """The standard deviation of one accuracy by its source, against ncl; one panel for each model and protocol."""
    frame = by_protocol(_long(variance).dropna(subset=_SD), MODEL, below=True)
    frame = frame.sort_values([DATASET, MODEL], kind="stable")
    colours, shapes = (*kinds.CONTRAST[:2], "#2b9c6f", kinds.GREY), ("circle", "diamond", "triangle-up", "square")
    coloured = kinds.hue(_SOURCE, frame, colours, shapes, columns=2)
    rows = kinds.category(alt.Y, NCL, title=NCL.meaning, bands=True)
    # only so far that the dots stay apart: two subsets allow 32 times the dot
    end = min(frame[_SD.high].max(), 3 * frame[_SD].max())
    scale = kinds.quantity(alt.X, _SD, grid=True, padding=0, domain=[0, end if end > 0 else 1])
    hover = (DATASET, MODEL, PROTOCOL, _SOURCE, *interval_columns(_SD), _SHARE, *variance.columns[-4:])
    chart = kinds.points_with_intervals(_SD, rows, hover, coloured, dodge=_SOURCE, scale=scale, size=70)
    title = style.title(
        "Where does the spread of accuracies come from?",
        "Each mark is the standard deviation from one source, with its 95 % interval (cut off where it "
        "leaves the panel).",
        "Squared, the sources add up to the variance of the accuracy of one run on one subset.",
    )
    tall = max(110, 64 * frame[NCL].nunique())  # four dots beside each other
    return style.faceted(chart, frame, title, (DATASET, MODEL, NCL, PROTOCOL), height=tall)


def _long(variance: Table) -> pd.DataFrame:
    """One line for each source."""
    same = [DATASET, MODEL, PROTOCOL, NCL, *variance.columns[-4:]]
    drawn = [_SHARE, *interval_columns(_SD)]
    parts = []
    for source, share, spread in zip(SOURCES.values(), SHARES, SPREADS, strict=True):
        part = variance.frame[[*same, share, *interval_columns(spread)]].set_axis([*same, *drawn], axis="columns")
        parts.append(part.assign(**{_SOURCE: source}))
    return pd.concat(parts, ignore_index=True)


def variance_statements(variance: pd.DataFrame) -> Iterator[Statement]:
    """Which source has the largest share of the variance, in how many of the models and ncl; by protocol.

    Where init and luck are unknown, the other two have their shares: such lines are counted by themselves.

    >>> line = {"dataset": "digits", "protocol": "sub", "share_subset": 0.6, "share_init": 0.2, "share_luck": 0.1}
    >>> [statement] = variance_statements(pd.DataFrame([line | {"share_test": 0.1}]))
    >>> print(statement.sentence)
    digits: the largest source of variance of sub-models is the draw of the classes (1 of 1 models and ncl).
    """
    nouns = {name: f"the {source}" for name, source in SOURCES.items()}
    nouns["luck"] = "luck (which images a training happens to get right)"
    noun_of_share = {str(share): noun for share, noun in zip(SHARES, nouns.values(), strict=True)}

    dataset = variance[DATASET].iloc[0]
    shared = variance.dropna(subset="share_subset")
    shared = shared.assign(has_several_inits=shared["share_init"].notna())
    for (protocol, has_several_inits), part in shared.groupby([PROTOCOL, "has_several_inits"], sort=False):
        shares = part[SHARES].rename(columns=noun_of_share)
        is_largest = shares.eq(shares.max(axis="columns"), axis="index")
        largest_alone = is_largest[is_largest.sum(axis="columns") == 1].idxmax(axis="columns").value_counts()
        models = NAMES[str(protocol)]
        if largest_alone.empty:
            yield Statement(f"{dataset}: no source of variance of {models} is larger than the others.")
            continue

        sources = ", ".join(f"{source} ({n} of {len(part)} models and ncl)" for source, n in largest_alone.items())
        within = "" if has_several_inits else "; with one initialisation, its share and luck are within the other two"
        yield Statement(f"{dataset}: the largest source of variance of {models} is {sources}{within}.")
