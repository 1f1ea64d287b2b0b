"""Which models differ, how stable their order is, and where accuracy varies: figures of comparison and variance."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class import comparison as tables
from fca.studies.few_class.figures.accuracy import NAMES, by_protocol, models_by_ncl
from fca.studies.few_class.variance import SHARES, SOURCES, SPREADS, VARIANCE
from fca.studies.table import DATASET, MODEL, NCL, PROTOCOL
from fca.types import Column, Table, with_interval

_CLEAR = {
    True: "differs significantly",
    False: "not significant",
    None: "no test: predictions are not stored, or one draw",
}
_VERDICT = Column("verdict", choices={text: text for text in _CLEAR.values()})
_SOURCE = Column("source", str, "", "source of the spread", {source: source for source in SOURCES.values()})
_SD = Column("sd", float, ".2%", "standard deviation of one accuracy")
_SHARE = Column("share", float, ".0%", "share of the variance")


def paired_figure(paired: Table) -> alt.FacetChart:
    """Every pair's difference in accuracy with its interval, one panel for each ncl (down) and protocol (across)."""
    frame = paired.frame.assign(
        sizes="ncl " + paired.frame[NCL].astype(str),
        pair=paired.frame[tables.MODEL_A] + " - " + paired.frame[tables.MODEL_B],
        verdict=[_CLEAR[value] for value in style.cells(paired.frame[tables.SIGNIFICANT])],
    )
    frame = by_protocol(frame, "sizes", below=True).drop(columns="sizes").sort_values([DATASET, NCL], kind="stable")
    coloured = kinds.hue(_VERDICT, frame, ("#b0568f", "#7d8590", "#b07d00"), ("circle", "diamond", "square"))
    rows = kinds.category(alt.Y, "pair", list(dict.fromkeys(frame["pair"])))
    chart = kinds.points_with_intervals(tables.DIFFERENCE, rows, paired.columns, coloured, line=kinds.ZERO)
    title = style.title(
        "Which models differ on the same images?",
        "Difference in accuracy on the same class subsets, with its 95 % interval. Significant: McNemar's test,",
        "corrected for the number of pairs (Holm), finds a difference, and the interval leaves out 0.",
    )
    columns = frame[PROTOCOL].nunique()
    return style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL), columns=columns, row=24)


def stability_figure(stability: Table) -> alt.FacetChart:
    """The chance of every model to be the best at every ncl as a heat map, one panel for each protocol."""
    frame = by_protocol(stability.frame.dropna(subset=tables.P_BEST), below=True)
    title = style.title(
        "Would other draws of the classes have another winner?",
        "How often each model has the best mean accuracy, over bootstrap resamples of the subset seeds.",
    )
    return models_by_ncl(frame, tables.P_BEST, stability.columns, title, (0.0, 1.0))


def variance_figure(variance: Table) -> alt.FacetChart:
    """The standard deviation of one accuracy by its source, against ncl; one panel for each model and protocol."""
    frame = by_protocol(_long(variance).dropna(subset=_SD), MODEL, below=True)
    frame = frame.sort_values([DATASET, MODEL], kind="stable")
    coloured = kinds.hue(_SOURCE, frame, kinds.CONTRAST, ("circle", "diamond", "square"))
    rows = kinds.category(alt.Y, NCL, title=NCL.meaning, bands=True)
    # only so far that the dots stay apart: two subsets allow 32 times the dot
    end = min(frame[_SD.high].max(), 3 * frame[_SD].max())
    scale = kinds.quantity(alt.X, _SD, grid=True, padding=0, domain=[0, end if end > 0 else 1])
    hover = (DATASET, MODEL, PROTOCOL, _SOURCE, *with_interval(_SD), _SHARE, *variance.columns[-4:])
    chart = kinds.points_with_intervals(_SD, rows, hover, coloured, dodge=_SOURCE, scale=scale, size=70)
    title = style.title(
        "Where does the spread of accuracies come from?",
        "Standard deviation by source, with its 95 % interval (cut off where it leaves the panel).",
        "Squared, the sources add up to the variance of the accuracy of one run on one subset.",
    )
    tall = max(110, 48 * frame[NCL].nunique())
    return style.faceted(chart, frame, title, (DATASET, MODEL, NCL, PROTOCOL), height=tall)


def _long(variance: Table) -> pd.DataFrame:
    """One line for each source."""
    same = [DATASET, MODEL, PROTOCOL, NCL, *variance.columns[-4:]]
    drawn = [_SHARE, *with_interval(_SD)]
    parts = []
    for source, share, spread in zip(SOURCES.values(), SHARES, SPREADS, strict=True):
        part = variance.frame[[*same, share, *with_interval(spread)]].set_axis([*same, *drawn], axis="columns")
        parts.append(part.assign(**{_SOURCE: source}))
    return pd.concat(parts, ignore_index=True)


def paired_headlines(paired: pd.DataFrame) -> Iterator[str]:
    """How many pairs differ significantly at each ncl, and how many more seeds the nearest of the others would need.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model_a": "a", "model_b": "b", "told_apart": False}
    >>> line |= {"more_seeds": 7, "more_seeds_low": 2, "more_seeds_high": None, "seeds": 3}
    >>> print(*paired_headlines(pd.DataFrame([line])))
    digits: with 3 subset seeds, pairs of sub-models that differ significantly: 0 of 1 at ncl 2; about 7 more seeds \
would separate a from b at ncl 2 (95 % interval 2 to unbounded).
    """
    for (dataset, protocol), part in paired.groupby([DATASET, PROTOCOL], sort=False):
        tested, pairs = part.dropna(subset=tables.SIGNIFICANT), f"pairs of {NAMES[str(protocol)]}"
        if tested.empty:
            yield f"{dataset}: {pairs} cannot be tested: too few subset seeds, or predictions are not stored."
            continue
        at = [f"{same[tables.SIGNIFICANT].sum()} of {len(same)} at ncl {ncl}" for ncl, same in tested.groupby(NCL)]
        seeds = f"with {tested[tables.SEEDS].max()} subset seeds"
        others = tested[~tested[tables.SIGNIFICANT].astype(bool)]
        yield f"{dataset}: {seeds}, {pairs} that differ significantly: {', '.join(at)}{_next(others)}."


def _next(others: pd.DataFrame) -> str:
    """The pair without a significant difference that needs the fewest more seeds."""
    bounded = others[others[tables.MORE_SEEDS].notna() & (others[tables.MORE_SEEDS] > 0)]
    if bounded.empty:
        return ""
    line = bounded.sort_values(tables.MORE_SEEDS, kind="stable").iloc[0]
    high = "unbounded" if pd.isna(line[tables.MORE_SEEDS.high]) else int(line[tables.MORE_SEEDS.high])
    pair = f"would separate {line[tables.MODEL_A]} from {line[tables.MODEL_B]} at ncl {line[NCL]}"
    interval = f"95 % interval {int(line[tables.MORE_SEEDS.low])} to {high}"
    return f"; about {int(line[tables.MORE_SEEDS])} more seeds {pair} ({interval})"


def stability_headlines(stability: pd.DataFrame) -> Iterator[str]:
    """Which model has the best mean accuracy in most resamples of the subset seeds, at each ncl.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model": "a", "p_best": 0.93, "subsets": 5}
    >>> list(stability_headlines(pd.DataFrame([line, {**line, "model": "b", "p_best": 0.07}])))
    ['digits: the best of sub-models in most resamples of the subset seeds: a at ncl 2 (93 % of the resamples).']
    """
    known = stability.dropna(subset=tables.P_BEST)
    for (dataset, protocol), part in known.groupby([DATASET, PROTOCOL], sort=False):
        best = part.sort_values(tables.P_BEST, ascending=False, kind="stable").groupby(NCL).first()
        found: dict[str, list[str]] = {}
        for ncl, model, chance in best[[MODEL, tables.P_BEST]].itertuples():
            found.setdefault(model, []).append(f"{ncl} ({100 * chance:.0f} % of the resamples)")
        at = "; ".join(f"{model} at ncl {', '.join(sizes)}" for model, sizes in found.items())
        yield f"{dataset}: the best of {NAMES[str(protocol)]} in most resamples of the subset seeds: {at}."


def variance_headlines(variance: pd.DataFrame) -> Iterator[str]:
    """Which source has the largest share of the variance, in how many of the models and ncl; by protocol.

    Where init is unknown, the other two have its share: such lines are counted by themselves.

    >>> line = {"dataset": "digits", "protocol": "sub", "share_subset": 0.6, "share_init": 0.3, "share_test": 0.1}
    >>> list(variance_headlines(pd.DataFrame([line])))
    ['digits: the largest source of variance of sub-models is the draw of the classes (1 of 1 models and ncl).']
    """
    known = variance.dropna(subset="share_subset")
    known = known.assign(several=known["share_init"].notna())
    for (dataset, protocol, several), part in known.groupby([DATASET, PROTOCOL, "several"], sort=False):
        most = part[SHARES].set_axis(list(SOURCES.values()), axis="columns").idxmax(axis="columns").value_counts()
        found = [f"the {source} ({n} of {len(part)} models and ncl)" for source, n in most.items()]
        alone = "" if several else "; with one initialisation, its share is within the other two"
        yield f"{dataset}: the largest source of variance of {NAMES[str(protocol)]} is {', '.join(found)}{alone}."


FIGURES = (
    Figure("paired", "Models on the same images", (tables.PAIRED,), paired_figure),
    Figure("rank_stability", "Stability of the order", (tables.RANK_STABILITY,), stability_figure),
    Figure("variance", "Where accuracy varies", (VARIANCE,), variance_figure),
)
HEADLINES = {
    tables.PAIRED.name: paired_headlines,
    tables.RANK_STABILITY.name: stability_headlines,
    VARIANCE.name: variance_headlines,
}
