"""Figures and headlines of analysis=metric_truth."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.reliance.metric_truth import CUE, FAILS, METRIC, NETS, NETWORKS, RELIANCE, RHOS, TRUTH, VALUE, VERDICT
from fca.studies.table import MODEL
from fca.types import Column, Table, with_interval

_COLOURS = ("#d55e00", "#0072b2", "#009e73", kinds.GREY)
_TRUTHS = {RHOS[0]: "cue strength in training", RHOS[1]: "accuracy lost by exact exchange"}
AGREES = Column("agrees", float, "+.1f", "rank correlation, 1: as the metric claims, -1: the opposite")


def correlation_figure(truth: Table) -> alt.FacetChart:
    """Correlation of every metric with both truths, a dot a cue; above 0 the metric follows."""
    parts = []
    for rho, name in _TRUTHS.items():
        frame = truth.frame.assign(panel=name, agrees=truth.frame["sign"] * truth.frame[rho])
        ends = pd.concat([frame["sign"] * frame[end] for end in (rho.low, rho.high)], axis=1)
        frame[AGREES.low], frame[AGREES.high] = ends.min(axis=1, skipna=False), ends.max(axis=1, skipna=False)
        parts.append(frame)
    frame = pd.concat(parts, ignore_index=True)
    frame["named"] = frame[METRIC] + ": " + frame[VERDICT]
    along = kinds.category(alt.Y, "named", frame["named"].drop_duplicates().tolist(), labelLimit=360, bands=True)
    axis = kinds.quantity(alt.X, AGREES, domain=[-1, 1], padding=0)
    hover = (METRIC, CUE, NETS, *with_interval(AGREES), VERDICT, FAILS)
    chart = kinds.points_with_intervals(
        AGREES, along, hover, kinds.hue(CUE, frame, _COLOURS), dodge=CUE, line=kinds.ZERO, scale=axis, size=50
    )
    title = style.title(
        "Which metrics follow the truth?",
        "Rank correlation over networks, with its 95 % interval, times the sign that the metric claims.",
    )
    drawn = style.faceted(chart, frame, title, (CUE,), height=46 * frame["named"].nunique(), columns=2)
    return drawn


def networks_figure(truth: Table, networks: Table) -> alt.FacetChart:
    """Each metric against the reliance of every network, one panel a metric."""
    verdict = dict(zip(truth.frame[METRIC], truth.frame[VERDICT], strict=True))
    frame = networks.frame.dropna(subset=VALUE).reset_index(drop=True)
    frame["panel"] = [f"{metric}\n{verdict[metric]}" for metric in frame[METRIC]]
    points = kinds.scatter(
        kinds.quantity(alt.X, RELIANCE, "accuracy lost by exact exchange"),
        kinds.quantity(alt.Y, VALUE, ""),
        networks.columns,
        kinds.hue(CUE, frame, _COLOURS),
        size=50,
    )
    title = style.title(
        "What does each metric show of networks that rely more and more on the background?",
        "One point a network. Ablation: accuracy kept without the object, should rise; all others should fall.",
    )
    drawn = style.faceted(points, frame, title, (CUE, MODEL), height=170, columns=4)
    return drawn.resolve_scale(y="independent")


def headlines(truth: pd.DataFrame) -> Iterator[str]:
    """One sentence a verdict: which metrics, and for which cues they fail, with the correlation there.

    >>> line = {"metric": "rfs/l2/60", "cue": "color", "nets": 18, "undefined": 2, "sign": -1, "verdict": "refuted"}
    >>> line |= {"fails": "color", "rho_reliance": 0.31, "rho_reliance_low": -0.2, "rho_reliance_high": 0.7}
    >>> print(*headlines(pd.DataFrame([line])))
    rfs/l2/60 is refuted: it fails for color (rank correlation with reliance +0.31 [-0.20, +0.70], 2 of 18 networks \
undefined), where it should be negative.
    """
    rho = RHOS[1]
    for (verdict, metric), part in truth.groupby([VERDICT, METRIC], sort=False):
        fails = part[FAILS].iloc[0].split(", ")
        lines = part[part[CUE].isin(fails) if verdict == "refuted" else part[CUE] != "all"].to_dict("records")
        texts = [
            f"{line[CUE]} (rank correlation with reliance {line[rho]:+.2f} [{line[rho.low]:+.2f}, {line[rho.high]:+.2f}]"
            + (f", {line['undefined']} of {line[NETS]} networks undefined)" if line["undefined"] else ")")
            for line in lines
        ]
        should = "positive" if part["sign"].iloc[0] > 0 else "negative"
        if verdict == "refuted":
            yield f"{metric} is refuted: it fails for {', '.join(texts)}, where it should be {should}."
        elif verdict == "follows":
            yield f"{metric} follows the truth for every cue: {', '.join(texts)}."
        else:
            yield f"{metric} is undecided: too few networks that differ in reliance."


FIGURES = (
    Figure("metric_truth", "Metrics and truth", (TRUTH,), correlation_figure),
    Figure("metric_truth_networks", "Metrics of every network", (TRUTH, NETWORKS), networks_figure),
)
HEADLINES = {TRUTH.name: headlines}
