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
    """The figure of the standard deviation of accuracy that each source of variance causes, for each ncl.

    The sources are the draw of classes, the initialisation, luck and the sampling of test images. There is one panel
    for each data set, model and protocol.
    variance: table `variance`, with the sources of a model in one line.
    """
    by_source = _one_line_per_source(variance).dropna(subset=_SD)
    frame = by_protocol(by_source, MODEL, below=True)  # below: the protocol starts a new line in a panel's heading
    frame = frame.sort_values([DATASET, MODEL], kind="stable")

    # with two subsets an interval may reach 32 times the value: the axis ends earlier, so that dots stay apart
    axis_end = min(frame[_SD.high].max(), 3 * frame[_SD].max())
    if not axis_end > 0:  # all values are 0, or no interval is known (NaN)
        axis_end = 1
    scale = kinds.quantity(alt.X, _SD, grid=True, padding=0, domain=[0, axis_end])
    rows = kinds.category(alt.Y, NCL, title=NCL.meaning, bands=True)  # bands: grid lines between the numbers

    colours = (*kinds.CONTRAST[:2], "#2b9c6f", kinds.GREY)
    shapes = ("circle", "diamond", "triangle-up", "square")
    coloured = kinds.hue(_SOURCE, frame, colours, shapes, columns=2)
    hover = (DATASET, MODEL, PROTOCOL, _SOURCE, *interval_columns(_SD), _SHARE, *_counts_and_note(variance))
    chart = kinds.points_with_intervals(_SD, rows, hover, coloured, dodge=_SOURCE, scale=scale, size=70)

    title = style.title(
        "Where does the spread of accuracies come from?",
        "Each mark is the standard deviation from one source, with its 95 % interval (cut off where it "
        "leaves the panel).",
        "Squared, the sources add up to the variance of the accuracy of one run on one subset.",
    )
    height = max(110, 64 * frame[NCL].nunique())  # four dots beside each other
    return style.faceted(chart, frame, title, filters=(DATASET, MODEL, NCL, PROTOCOL), height=height)


def _one_line_per_source(variance: Table) -> pd.DataFrame:
    """The table in long form: each line becomes four lines, one for each source of variance (column `source`).

    The table has columns of its own for each source: its standard deviation with an interval, and its share of the
    variance. In the result these are the columns `sd` (with `sd_low` and `sd_high`) and `share`.
    """
    shared_columns = [DATASET, MODEL, PROTOCOL, NCL, *_counts_and_note(variance)]
    column_names = [*shared_columns, _SHARE, *interval_columns(_SD)]

    frames = []
    for source, share, spread in zip(SOURCES.values(), SHARES, SPREADS, strict=True):
        lines_of_source = variance.frame[[*shared_columns, share, *interval_columns(spread)]]
        lines_of_source = lines_of_source.set_axis(column_names, axis="columns")
        frames.append(lines_of_source.assign(**{_SOURCE: source}))
    return pd.concat(frames, ignore_index=True)


def _counts_and_note(variance: Table) -> tuple[Column, ...]:
    """The last columns of the table: numbers of subsets, initialisations and images, and the note."""
    return variance.columns[-4:]


def variance_statements(variance: pd.DataFrame) -> Iterator[Statement]:
    """Statements on the source with the largest share of the variance, with the number of lines in which it is largest.

    A line of the table is about a model at one ncl. There is one statement for each protocol, or two if some lines
    have a single initialisation and others several: with a single one, the shares of the initialisation and of luck are
    unknown, and are contained in the other two shares.

    variance: lines of table `variance`, of one data set.

    >>> line = {"dataset": "digits", "protocol": "sub", "share_subset": 0.6, "share_init": 0.2, "share_luck": 0.1}
    >>> [statement] = variance_statements(pd.DataFrame([line | {"share_test": 0.1}]))
    >>> print(statement.sentence)
    digits: the largest source of variance of sub-models is the draw of the classes (1 of 1 models and ncl).
    """
    nouns = {name: f"the {source}" for name, source in SOURCES.items()}
    # luck needs an explanation, and no article
    nouns["luck"] = "luck (which images a training happens to get right)"
    noun_of_share = {str(share): noun for share, noun in zip(SHARES, nouns.values(), strict=True)}

    dataset = variance[DATASET].iloc[0]
    # without predictions, with a single subset, or without any variance a line has no shares
    with_shares = variance.dropna(subset="share_subset")
    with_shares = with_shares.assign(has_several_inits=with_shares["share_init"].notna())

    for (protocol, has_several_inits), lines in with_shares.groupby([PROTOCOL, "has_several_inits"], sort=False):
        models = NAMES[str(protocol)]
        shares = lines[SHARES].rename(columns=noun_of_share)

        # how often each source is the largest, without lines in which several sources are equally large
        is_largest = shares.eq(shares.max(axis="columns"), axis="index")
        has_one_largest = is_largest.sum(axis="columns") == 1
        n_largest_by_source = is_largest[has_one_largest].idxmax(axis="columns").value_counts()
        if n_largest_by_source.empty:
            yield Statement(f"{dataset}: no source of variance of {models} is larger than the others.")
            continue

        counts = [f"{source} ({n} of {len(lines)} models and ncl)" for source, n in n_largest_by_source.items()]
        sources = ", ".join(counts)
        within = "" if has_several_inits else "; with one initialisation, its share and luck are within the other two"
        yield Statement(f"{dataset}: the largest source of variance of {models} is {sources}{within}.")
