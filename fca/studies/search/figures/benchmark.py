"""Figures and statements of analysis=search_benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.search import benchmark as analysis
from fca.studies.search.benchmark import (
    ALL_FOUND,
    ALL_FOUND_LEAST,
    ALL_FOUND_MOST,
    EXPLORED,
    FROM,
    HOURS,
    POLICY,
    PREDICTED_RHO,
    SEARCHES,
    SHARE,
    SIZE,
    SKILL,
)
from fca.studies.search.columns import COVERING
from fca.tables.table import DATASET, MODEL, VALUE
from fca.types import Column, Table, interval_columns

_NWISE_COLOURS = ("#b48ad8", "#9a66c8", "#8450b8")
_BO_COLOURS = ("#0072b2", "#56a4d9", "#009e73", "#d0559a")
_COLOURS = (kinds.GREY, *_NWISE_COLOURS, "#b07d00", *_BO_COLOURS, "#d55e00")
_FILTERS = (DATASET, MODEL, POLICY)
MEAN_VALUE = VALUE.with_format(".1%", "mean over searches")
FOUND = Column("found", float, ".0%", "share of all subdomains")
SKILL_ABOVE_MEAN = 0.01  # explained share of variance, from which a model counts as better than the mean


def curves_figure(curves: Table, found: Table) -> alt.FacetChart:
    """Three measures against the share of subdomains explored, with a line for each policy.

    The measures are the accuracy of the subdomains visited now, the mean accuracy of all visited ones, and the visited
    share of the worst tenth of subdomains; each has a panel. Colours are policies. The band around a line is one
    standard deviation.

    curves, found: the tables search_curves and search_found.
    """
    # ALL_FOUND (the share explored when all of the worst tenth were visited) is shown under the pointer
    points = curves.frame.merge(found.frame[[DATASET, MODEL, POLICY, ALL_FOUND]], how="left")
    # one part for each measure, with the mean and the ends of the band under common names
    frames = []
    for mean, sd in zip(analysis.CURVED, analysis.SDS, strict=True):
        half_width = points[sd].fillna(0)  # a single search has no standard deviation
        band_columns = {
            MEAN_VALUE: points[mean],
            MEAN_VALUE.low: (points[mean] - half_width).clip(0),
            MEAN_VALUE.high: (points[mean] + half_width).clip(upper=1),
        }
        frames.append(points.assign(measure=mean.meaning, **band_columns))
    frame = pd.concat(frames, ignore_index=True)
    frame["panel"] = _panels(frame, "measure")

    # a colour for each policy; a click in the legend dims the marks of all others (`opacity`, `picked`)
    coloured = kinds.hue(POLICY, frame, _COLOURS, shapes=None, columns=5)
    across = kinds.quantity(alt.X, SHARE, "share of all subdomains explored", grid=True, domain=[0, 1], padding=0)
    up = kinds.quantity(alt.Y, MEAN_VALUE, "", grid=True, domain=[0, 1], padding=0)
    base = alt.Chart().encode(x=across, y=up, color=coloured.colour())
    band: Any = base.mark_area().encode(
        y=f"{MEAN_VALUE.low}:Q", y2=f"{MEAN_VALUE.high}:Q", opacity=coloured.opacity(0.12)
    )
    lines: Any = base.mark_line(strokeWidth=2).encode(opacity=coloured.opacity())
    hover = (DATASET, MODEL, POLICY, EXPLORED, SHARE, HOURS, *interval_columns(MEAN_VALUE), ALL_FOUND)
    # invisible dots, which show the numbers of each point of a line under the pointer
    dots: Any = base.mark_point(filled=True, size=30).encode(opacity=alt.value(0), tooltip=kinds.tooltips(hover))
    layered = kinds.layers(band, lines, dots.add_params(coloured.picked))

    # all policies but n-wise explore all subdomains, so the largest number explored is the number of all
    n_subdomains = frame[EXPLORED].max()
    hours = frame[HOURS].max()
    minutes = f"{60 * hours / n_subdomains:.3g} minutes"
    title = style.title(
        "How fast does each policy find the subdomains of lowest accuracy?",
        f"Mean over {frame[SEARCHES].max()} searches of each, and one standard deviation to both sides.",
        f"100 % are {n_subdomains:,} subdomains: {hours:,.0f} hours of a GPU at {minutes} each.",
    )
    return style.faceted(layered, frame, title, _FILTERS, height=280, columns=3)


def histogram_figure(counts: Table) -> alt.FacetChart:
    """Histograms of the accuracies of the first subdomains that a policy visits, with a panel and colour for each.

    The same number of visits is counted for all policies. Only n-wise may have fewer, those of its whole array: a list
    of subdomains that together have every valid combination of values of any n attributes.

    counts: the table search_histogram.
    """
    frame = counts.frame.assign(named=counts.frame[POLICY].map(POLICY.choices))
    frame["panel"] = _panels(frame, "named")
    axis = alt.Axis(labelExpr="round(100 * datum.value)", grid=False)
    across = alt.X(f"{FROM}:O", title="accuracy (%), from", axis=axis)
    up = kinds.quantity(alt.Y, analysis.COUNT, "subdomains", zero=True, padding=0)
    chart = kinds.bars(across, up, counts.columns, kinds.hue(POLICY, frame, _COLOURS, legend=False))
    title = style.title(
        "How accurate are the first subdomains that each policy visits?",
        f"Accuracies of the first {frame[EXPLORED].max():.0f}, mean over searches; a shorter n-wise array in full.",
    )
    return style.faceted(chart, frame, title, _FILTERS, height=120, columns=5)


def predictors_figure(predictors: Table) -> alt.FacetChart:
    """Rank correlation of predicted and true accuracy by size of the training set, with a line for each model.

    The models are those with which policies predict the accuracy of subdomains; each has the colour of its policy. The
    intervals are one standard deviation over random training sets to either side.

    predictors: the table search_predictors.
    """
    frame = predictors.frame.dropna(subset=PREDICTED_RHO).reset_index(drop=True)
    half_width = frame[analysis.RHO_SD].fillna(0)  # a single training set has no standard deviation
    ends = {
        PREDICTED_RHO.low: frame[PREDICTED_RHO] - half_width,
        PREDICTED_RHO.high: frame[PREDICTED_RHO] + half_width,
    }
    frame = frame.assign(panel=_panels(frame), **ends)

    steps = alt.X(f"{SIZE}:O", title=SIZE.meaning)
    up = kinds.quantity(alt.Y, PREDICTED_RHO, "rank correlation", grid=True)
    coloured = kinds.hue(POLICY, frame, _COLOURS)
    hover = (*predictors.columns, PREDICTED_RHO.low)  # the low end makes `points_with_intervals` draw intervals
    chart = kinds.points_with_intervals(
        PREDICTED_RHO, steps, hover, coloured, dodge=POLICY, joined=POLICY, scale=up, size=60
    )
    title = style.title(
        "Which model predicts the accuracy of subdomains that were not visited?",
        "Spearman's correlation over all others; mean and one standard deviation over random training sets.",
    )
    return style.faceted(chart, frame, title, _FILTERS, height=280, columns=2)


def _panels(frame: pd.DataFrame, *fields: str) -> pd.Series:
    """The title of each line's panel, from the data set, the model and the values of these fields."""
    model_names = frame[MODEL].astype("string").fillna("")  # simulated tables have no model
    return style.panels(frame.assign(**{MODEL: model_names}), DATASET, MODEL, *fields)


def found_statements(found: pd.DataFrame) -> Iterator[Statement]:
    """A statement on which policy finds the worst tenth first, and one for each policy whose model has no skill.

    found: lines of table search_found. The statements are made for each data set and model. A policy is left out of the
    comparison if its median is missing: then not all of its searches visited all of the worst tenth.

    >>> line = {"dataset": "zoo", "model": "net", "policy": "bo", "seeds": 10, "skill": 0.0, "covering": 0.9}
    >>> line |= {"all_found": 0.42, "all_found_least": 0.36, "all_found_most": 0.5}
    >>> for statement in found_statements(pd.DataFrame([line])): print(statement.sentence)
    On zoo, net, bo finds all of the worst tenth after 42 % [36, 50] of the subdomains (range of 10 searches).
    zoo, net: the model of bo predicts no better than the mean (skill 0.00); 90 % of its choices only cover the domain.
    """
    for names, lines in found.groupby([DATASET, MODEL], sort=False, dropna=False):
        table_name = ", ".join(name for name in names if isinstance(name, str))  # simulated tables have no model
        # FOUND: the median share explored when all were found, with the range over searches as its interval
        finished = lines.dropna(subset=ALL_FOUND).rename(
            columns={ALL_FOUND: FOUND, ALL_FOUND_LEAST: FOUND.low, ALL_FOUND_MOST: FOUND.high}
        )
        if len(finished):
            fastest_first = finished.sort_values(FOUND, kind="stable")
            yield _fastest(table_name, fastest_first.drop_duplicates(POLICY))  # at most one line for each policy

        for line in lines[lines[SKILL] < SKILL_ABOVE_MEAN].to_dict("records"):
            model = f"the model of {line[POLICY]} predicts no better than the mean (skill {line[SKILL]:.2f})"
            covering = f"{100 * line[COVERING]:.0f} % of its choices only cover the domain"
            yield Statement(f"{table_name}: {model}; {covering}.")


def _fastest(table_name: str, policies: pd.DataFrame) -> Statement:
    """Which policies visit all of the worst tenth first, and when each slower policy does.

    table_name: the data set and model in words.    policies: lines with FOUND and its interval, the fastest first.
    """
    first = policies.iloc[0].to_dict()
    fastest = small.best_of(policies, FOUND, largest=False)[POLICY].tolist()
    finds = "finds" if len(fastest) == 1 else "each find"
    searches = "one search" if first[SEARCHES] == 1 else f"range of {first[SEARCHES]} searches"
    explored = f"{format_with_interval(first, FOUND)} of the subdomains ({searches})"

    slower_policies = policies.to_dict("records")[len(fastest) :]
    slower = [f"{line[POLICY]} after {format_with_interval(line, FOUND)}" for line in slower_policies]
    comparison = f"; {', '.join(slower)}" if slower else ""
    sentence = f"On {table_name}, {small.listed(fastest)} {finds} all of the worst tenth after {explored}{comparison}."
    return Statement(sentence, small.dots(policies, POLICY, FOUND, (POLICY, *interval_columns(FOUND))))
