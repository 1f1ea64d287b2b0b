"""Figures and statements of analysis=metric_truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.reliance.metric_truth import (
    ALL_CUES,
    CUE,
    FAILS,
    FOLLOWS,
    METRIC,
    METRIC_VALUE,
    N_NETWORKS,
    RELIANCE,
    RHO_RELIANCE,
    TRUTH_BY_RHO,
    UNCONFIRMED,
    UNDECIDED,
    VERDICT,
)
from fca.tables.table import MODEL
from fca.types import Column, Table, interval_columns

_COLOURS = ("#d55e00", "#0072b2", "#009e73", kinds.GREY)
AGREES = Column("agrees", float, "+.1f", "rank correlation, 1: as the metric claims, -1: the opposite")


def correlation_figure(truth: Table) -> alt.FacetChart:
    """The rank correlation over networks of each metric of reliance with the truth, with its 95 % interval.

    There is a panel for each of the two truths: cue strength in training, and the accuracy lost on images with another
    background. A row of a panel is a metric with its verdict: whether it follows the truth. A row has a dot for each
    cue, in the cue's colour. A dot right of 0 has the sign that the metric claims.

    truth: the table `metric_truth`, with a line for each metric and cue.
    """
    panels = []
    for rho, truth_column in TRUTH_BY_RHO.items():
        # A metric may claim to fall as reliance rises (sign -1). Then its correlation and both ends of its interval
        # change their signs, so that +1 always means agreement, and the ends change places
        signed_rho = truth.frame[[*interval_columns(rho)]].mul(truth.frame["sign"], axis=0)
        signed_rho = signed_rho.set_axis(interval_columns(AGREES), axis=1)
        _, low, high = interval_columns(AGREES)
        falls = truth.frame["sign"] < 0
        signed_rho.loc[falls, [low, high]] = signed_rho.loc[falls, [high, low]].to_numpy()
        panels.append(truth.frame.assign(panel=truth_column.meaning, **signed_rho))
    frame = pd.concat(panels, ignore_index=True)
    frame["named"] = frame[METRIC] + ": " + frame[VERDICT]

    metric_names = frame["named"].drop_duplicates().tolist()
    chart = kinds.points_with_intervals(
        AGREES,
        kinds.category(alt.Y, "named", metric_names, labelLimit=360, bands=True),
        (METRIC, CUE, N_NETWORKS, *interval_columns(AGREES), VERDICT, FAILS),
        kinds.hue(CUE, frame, _COLOURS),
        dodge=CUE,
        line=kinds.ZERO,
        scale=kinds.quantity(alt.X, AGREES, domain=[-1, 1], padding=0),
        size=50,
    )
    title = style.title(
        "Which metrics follow the truth?",
        "Each mark is the rank correlation over networks of a metric with the truth, with its 95 % interval: +1 if it "
        "ranks them as it claims. The right panel decides. Whether the zero of a metric means anything is not tested.",
        "Metrics: accuracy without the object, rfs (relative foreground sensitivity to noise), saliency on the object.",
    )
    return style.faceted(chart, frame, title, (CUE,), height=46 * len(metric_names), columns=2)


def networks_figure(truth: Table, networks: Table) -> alt.FacetChart:
    """The value of each metric against the true reliance of each network: a panel for each metric, a dot per network.

    Reliance is the accuracy that a network loses when it sees each object before another background. The colour of a
    dot is the cue that the network was trained with.

    truth:    the table `metric_truth`, from which the verdict below each panel's name is taken: whether the metric
              follows the truth. It is the same in all lines of a metric.
    networks: the table `metric_truth_networks`, with a line for each network and metric.
    """
    verdict_by_metric = dict(zip(truth.frame[METRIC], truth.frame[VERDICT], strict=True))
    frame = networks.frame.dropna(subset=METRIC_VALUE).reset_index(drop=True)
    frame["panel"] = [f"{metric}\n{verdict_by_metric[metric]}" for metric in frame[METRIC]]

    across = kinds.quantity(alt.X, RELIANCE, "accuracy lost by exact exchange")
    up = kinds.quantity(alt.Y, METRIC_VALUE, "")
    points = kinds.scatter(across, up, networks.columns, kinds.hue(CUE, frame, _COLOURS), size=50)
    title = style.title(
        "What does each metric show of networks that rely more and more on the background?",
        "Each point is one network. Accuracy without the object should rise; all others should fall.",
    )
    figure = style.faceted(points, frame, title, (CUE, MODEL), height=170, columns=4)
    # metrics have different ranges; each panel has its numbers below it
    return figure.resolve_scale(y="independent").resolve_axis(x="independent")


def truth_statements(truth: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the verdicts: metrics that follow the truth, each that is not confirmed, and those still undecided.

    A metric follows the truth if, for every cue, it puts networks in the order of their reliance: the accuracy that
    they lose on images with another background. The first sentence gives the weakest correlation among the metrics
    that follow. The sentence on an unconfirmed metric gives its correlations for the cues for which it fails.

    truth: the frame of the table `metric_truth`, with a line for each metric and cue, and one for all cues together.

    >>> line = {"metric": "rfs/l2/60", "cue": "color", "nets": 18, "undefined": 2, "sign": -1}
    >>> line |= {"verdict": "not confirmed", "fails": "color"}
    >>> line |= {"rho_reliance": 0.31, "rho_reliance_low": -0.2, "rho_reliance_high": 0.7}
    >>> [statement] = truth_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    rfs/l2/60 is not confirmed: it should fall as reliance rises; rank correlation for colour +0.31 [-0.20, +0.70] \
(not defined for 2 of 18 networks).
    """
    cue_lines = truth[truth[CUE] != ALL_CUES]
    follows = cue_lines[cue_lines[VERDICT] == FOLLOWS]
    if len(follows):
        names = ", ".join(follows[METRIC].unique())
        order = f"Networks are put in the order of their reliance, whatever the cue, by {names}"
        yield Statement(f"{order}; {_weakest(follows)}.")

    for metric, lines in cue_lines[cue_lines[VERDICT] == UNCONFIRMED].groupby(METRIC, sort=False):
        failing_cues = lines[FAILS].iloc[0].split(", ")  # the same in all lines of a metric
        failing_lines = lines[lines[CUE].isin(failing_cues)]
        correlations = ", ".join(map(_correlation, failing_lines.to_dict("records")))
        direction = "rise" if lines["sign"].iloc[0] > 0 else "fall"
        claim = f"it should {direction} as reliance rises"
        yield Statement(f"{metric} is not confirmed: {claim}; rank correlation for {correlations}.")

    undecided = cue_lines.loc[cue_lines[VERDICT] == UNDECIDED, METRIC].unique()
    if len(undecided):
        yield Statement(f"Undecided, because too few networks differ in reliance: {', '.join(undecided)}.")


def _weakest(follows: pd.DataFrame) -> str:
    """Words on the weakest correlation among metrics that follow the truth: which metrics have it, and for which cue.

    follows: a line for each such metric and cue. Several lines may share the weakest correlation.
    """
    strength = Column("strength")  # the correlation, positive where it has the sign that the metric claims
    weakest = small.best_of(follows.assign(strength=follows["sign"] * follows[RHO_RELIANCE]), strength, largest=False)
    correlation = f"rank correlation for {_correlation(weakest.iloc[0].to_dict())}"  # the first stands for all of them
    names = small.listed(weakest[METRIC].unique().tolist())
    if len(follows[METRIC].unique()) == 1:  # a single metric is not the weakest of several
        return f"{names}, {correlation}"
    if len(weakest) == len(follows):  # all are equal
        return f"none more weakly than the others, {correlation}"
    return f"weakest: {names}, {correlation}"


def _correlation(line: Mapping[Any, Any]) -> str:
    """Words: the cue of a line, the metric's correlation with reliance, and how many networks lack the metric.

    line: of the table `metric_truth`.
    """
    undefined = f" (not defined for {line['undefined']} of {line[N_NETWORKS]} networks)" if line["undefined"] else ""
    rho = "none" if pd.isna(line[RHO_RELIANCE]) else format_with_interval(line, RHO_RELIANCE)
    return f"{CUE.choices[line[CUE]]} {rho}{undefined}"
