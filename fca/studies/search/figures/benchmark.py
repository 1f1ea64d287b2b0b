"""Figures and headlines of analysis=search_benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.search import benchmark as made
from fca.studies.search.benchmark import ALL, EXPLORED, FROM, HOURS, LEAST, MOST, POLICY, RHO, SEEDS, SHARE, SIZE, SKILL
from fca.studies.table import DATASET, MODEL
from fca.types import Column, Table, with_interval

_NWISE, _BO = ("#b48ad8", "#9a66c8", "#8450b8"), ("#0072b2", "#56a4d9", "#009e73", "#d0559a")
_COLOURS = (kinds.GREY, *_NWISE, "#b07d00", *_BO, "#d55e00")
_FILTERS = DATASET, MODEL, POLICY
VALUE = Column("value", float, ".1%", "mean over searches")
WORTH = 0.01  # share of variance, from which a model counts as better than the mean


def curves_figure(curves: Table, found: Table) -> alt.FacetChart:
    """Accuracy of what is visited, its running mean, and the visited share of the worst tenth: a line a policy."""
    when, parts = curves.frame.merge(found.frame[[DATASET, MODEL, POLICY, ALL]], how="left"), []
    for mean, sd in zip(made.CURVED, made.SDS, strict=True):
        value, half = when[mean], when[sd].fillna(0)
        ends = {VALUE: value, VALUE.low: (value - half).clip(0), VALUE.high: (value + half).clip(upper=1)}
        parts.append(when.assign(measure=mean.meaning, **ends))
    frame = pd.concat(parts, ignore_index=True)
    frame["panel"] = _panels(frame, "measure")
    coloured = kinds.hue(POLICY, frame, _COLOURS, shapes=None, columns=5)
    across = kinds.quantity(alt.X, SHARE, "share of all subdomains explored", grid=True, domain=[0, 1], padding=0)
    up = kinds.quantity(alt.Y, VALUE, "", grid=True, domain=[0, 1], padding=0)
    base = alt.Chart().encode(x=across, y=up, color=coloured.colour())
    band: Any = base.mark_area().encode(y=f"{VALUE.low}:Q", y2=f"{VALUE.high}:Q", opacity=coloured.opacity(0.12))
    lines: Any = base.mark_line(strokeWidth=2).encode(opacity=coloured.opacity())
    hover = (DATASET, MODEL, POLICY, EXPLORED, SHARE, HOURS, *with_interval(VALUE), ALL)
    dots: Any = base.mark_point(filled=True, size=30).encode(opacity=alt.value(0), tooltip=kinds.tooltips(hover))
    whole, hours = frame[EXPLORED].max(), frame[HOURS].max()
    title = style.title(
        "How fast does each policy find the subdomains of lowest accuracy?",
        f"Mean over {frame[SEEDS].max()} searches of each, and one standard deviation to both sides.",
        f"100 % are {whole:,} subdomains: {hours:,.0f} hours of a GPU at {60 * hours / whole:.3g} minutes each.",
    )
    layered = kinds.layers(band, lines, dots.add_params(coloured.picked))
    return style.faceted(layered, frame, title, _FILTERS, height=280, columns=3)


def histogram_figure(counts: Table) -> alt.FacetChart:
    """Accuracies of the first subdomains visited, a panel a policy."""
    frame = counts.frame.assign(named=counts.frame[POLICY].map(POLICY.choices))
    frame["panel"] = _panels(frame, "named")
    axis = alt.Axis(labelExpr="round(100 * datum.value)", grid=False)
    across = alt.X(f"{FROM}:O", title="accuracy (%), from", axis=axis)
    up = kinds.quantity(alt.Y, made.COUNT, "subdomains", zero=True, padding=0)
    chart = kinds.bars(across, up, counts.columns, kinds.hue(POLICY, frame, _COLOURS, legend=False))
    most = f"Accuracies of the first {frame[EXPLORED].max():.0f}, mean over searches; a shorter n-wise array in full."
    title = style.title("How accurate are the first subdomains that each policy visits?", most)
    return style.faceted(chart, frame, title, _FILTERS, height=120, columns=5)


def predictors_figure(predictors: Table) -> alt.FacetChart:
    """Rank correlation of predicted and true accuracy by size of the training set, a line a model."""
    frame = predictors.frame.dropna(subset=RHO).reset_index(drop=True)
    half = frame[made.RHO_SD].fillna(0)
    frame = frame.assign(panel=_panels(frame), **{RHO.low: frame[RHO] - half, RHO.high: frame[RHO] + half})
    steps = alt.X(f"{SIZE}:O", title=SIZE.meaning)
    up, coloured = kinds.quantity(alt.Y, RHO, "rank correlation", grid=True), kinds.hue(POLICY, frame, _COLOURS)
    hover = (*predictors.columns, RHO.low)
    chart = kinds.points_with_intervals(RHO, steps, hover, coloured, dodge=POLICY, joined=POLICY, scale=up, size=60)
    lines = "Spearman's correlation over all others; mean and one standard deviation over random training sets."
    title = style.title("Which model predicts the accuracy of subdomains that were not visited?", lines)
    return style.faceted(chart, frame, title, _FILTERS, height=280, columns=2)


def _panels(frame: pd.DataFrame, *fields: str) -> pd.Series:
    return style.panels(frame.assign(**{MODEL: frame[MODEL].astype("string").fillna("")}), DATASET, MODEL, *fields)


def headlines(found: pd.DataFrame) -> Iterator[str]:
    """When each policy has visited all of the worst tenth, and which models predict no better than the mean.

    >>> line = {"dataset": "zoo", "model": "net", "policy": "bo", "seeds": 10, "skill": 0.0, "covering": 0.9}
    >>> line |= {"all_found": 0.42, "all_found_least": 0.36, "all_found_most": 0.5}
    >>> print(*headlines(pd.DataFrame([line])), sep="\\n")
    zoo, net: all of the worst tenth are visited by bo after 42 % of all subdomains (range of 10 searches: 36 to 50 %).
    zoo, net: the model of bo predicts no better than the mean (skill 0.00); 90 % of its choices only cover the domain.
    """
    for of, part in found.groupby([DATASET, MODEL], sort=False, dropna=False):
        about, texts = ", ".join(name for name in of if isinstance(name, str)), list[str]()
        for line in part.dropna(subset=ALL).sort_values(ALL).to_dict("records"):
            what, over = ("", "") if texts else (" of all subdomains", f"range of {line[SEEDS]} searches: ")
            ends = f"{over}{100 * line[LEAST]:.0f} to {100 * line[MOST]:.0f} %"
            texts.append(f"{line[POLICY]} after {100 * line[ALL]:.0f} %{what} ({ends})")
        if texts:
            yield f"{about}: all of the worst tenth are visited by {', '.join(texts)}."
        for line in part[part[SKILL] < WORTH].to_dict("records"):
            model = f"the model of {line[POLICY]} predicts no better than the mean (skill {line[SKILL]:.2f})"
            yield f"{about}: {model}; {100 * line[made.COVERING]:.0f} % of its choices only cover the domain."


FIGURES = (
    Figure("search_curves", "Policies of search", (made.CURVES, made.FOUND), curves_figure),
    Figure("search_histogram", "First subdomains visited", (made.HISTOGRAM,), histogram_figure),
    Figure("search_predictors", "Models of accuracy", (made.PREDICTORS,), predictors_figure),
)
HEADLINES = {made.FOUND.name: headlines}
