"""Predicted accuracy: gain and error of every predictor, predictions against measurements; figures and headlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class import prediction as tables
from fca.studies.few_class.correlation import PREDICTOR, TARGET
from fca.studies.few_class.prediction import PREDICTION, PREDICTION_POINTS
from fca.studies.table import DATASET, ENCODER, NCL, NOTE, TOP1, all_at_chance
from fca.types import Column, Table

BEST = 3  # predictors drawn point by point, beside the baseline
NAMES = {
    "mean": "no predictor (mean)",
    "ncl": "ncl alone",
    tables.BASELINE: "ncl alone (log)",
    "simss": "SimSS",
    "separation": "intra - inter similarity",
    "intra_inter": "intra and inter similarity",
    "silhouette": "silhouette",
    "knn": "kNN accuracy",
    "probe": "probe accuracy",
    "logme": "LogME",
}
PANEL = [ENCODER, TARGET, tables.HELD]
_COLOURS = ("#009e73", "#b07d00", "#d55e00", kinds.GREY)  # 3:1 on white and on black
_SHAPES = ("circle", "diamond", "triangle-down", "square")
_VERDICTS = {"beyond ncl": "predicts", "not beyond ncl": "does not predict", "undecided": "may or may not predict"}


def error_figure(prediction: Table) -> alt.FacetChart:
    """Mean absolute error of every predictor on what it never saw; dashed: ncl alone."""
    frame = _named(prediction.frame.dropna(subset=tables.ERROR))
    alone = frame[frame[PREDICTOR] == tables.BASELINE].set_index("panel")[tables.ERROR]
    title = style.title(
        "How far off is accuracy that was predicted before training?",
        "Each mark is the mean absolute error on what the prediction never saw, with its 95 % interval over "
        "subset seeds",
        "(for new data sets, over data sets). The dashed line is what the number of classes alone achieves.",
    )
    return _dots(frame.assign(line=frame["panel"].map(alone)), tables.ERROR, prediction.columns, title)


def gain_figure(prediction: Table) -> alt.FacetChart:
    """How far below the error of ncl alone every predictor is, on the same subsets."""
    frame = _named(prediction.frame.dropna(subset=tables.GAIN))
    title = style.title(
        "Does anything predict accuracy beyond the number of classes?",
        "Each mark shows by how much the error on what was never seen falls below that of ncl alone, with its 95 %",
        "interval over subset seeds (for new data sets, over data sets). Right of the dashed line it is smaller.",
    )
    return _dots(frame.assign(line=0.0), tables.GAIN, prediction.columns, title)


def _dots(frame: pd.DataFrame, value: Column, hover: tuple[Column, ...], title: alt.Title) -> alt.FacetChart:
    """One row for each predictor, best first: a value with its interval, over a dashed line at the column `line`."""
    order = list(dict.fromkeys(frame.sort_values(tables.ERROR, kind="stable")["named"]))
    rows = kinds.category(alt.Y, "named", order, domain=False)
    coloured = kinds.hue(tables.VERDICT, frame, _COLOURS, _SHAPES)
    scale = kinds.quantity(alt.X, value)
    chart = kinds.points_with_intervals(value, rows, hover, coloured, line="line", scale=scale, size=90)
    return style.faceted(chart, frame, title, (), height=24 * len(order), columns=min(2, frame["panel"].nunique()))


def observed_figure(points: Table, prediction: Table) -> alt.FacetChart:
    """Measured against predicted accuracy of every subset, for ncl alone and the best predictors."""
    frame = _best(points.frame, prediction.frame)
    y = kinds.quantity(alt.Y, TOP1, "measured accuracy")
    coloured = kinds.hue(NCL, frame, shapes=None, title=NCL.meaning, ordered=True)
    base: Any = alt.Chart().encode(y=y)
    equal = base.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color="#8b949e").encode(x=f"{TOP1}:Q")
    faint = base.encode(color=coloured.colour(), opacity=coloured.opacity(0.3))
    spread = kinds.interval(faint, tables.PREDICTED, upright=False)
    marks = kinds.scatter(kinds.quantity(alt.X, tables.PREDICTED), y, points.columns, coloured, size=60)
    title = style.title(
        "How close do predictions come?",
        "Each dot is one class subset that the prediction never saw, with its 90 % prediction interval.",
        "On the dashed line both are equal.",
    )
    return style.faceted(kinds.layers(equal, spread, marks), frame, title, (DATASET, NCL), columns=BEST + 1)


def _best(points: pd.DataFrame, prediction: pd.DataFrame) -> pd.DataFrame:
    """The points of ncl alone and of the predictors that err least in each panel, in this order."""
    ranked = prediction[prediction[tables.VERDICT] != "baseline"].sort_values(tables.ERROR, kind="stable")
    alone = prediction[prediction[PREDICTOR] == tables.BASELINE]
    places = pd.concat([alone.assign(place=0), ranked.assign(place=ranked.groupby(PANEL).cumcount() + 1)])
    places = places.loc[places["place"] <= BEST, [*PANEL, PREDICTOR, "place"]]
    frame = _named(points.dropna(subset=tables.PREDICTED).merge(places), "place")
    return frame.assign(panel=frame["panel"].str.replace(" · ", "\n") + "\n" + frame["named"])


def _named(frame: pd.DataFrame, *by: str) -> pd.DataFrame:
    """With the words of predictor and way, and a panel for every encoder and way that there are."""
    frame = frame.assign(named=frame[PREDICTOR].map(NAMES), way="on " + frame[tables.HELD].map(tables.WAYS))
    upwards = [True, True, False, *(True for _ in by)]
    frame = frame.sort_values([*PANEL, *by], ascending=upwards, kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, ENCODER, TARGET, "way"))


def prediction_headlines(prediction: pd.DataFrame) -> Iterator[str]:
    """Whether SimSS predicts beyond ncl, and what else does; a sentence each for every encoder and way of holding out.

    >>> line = {"encoder": "hog", "target": "DCN sub", "held_out": "subset seed", "verdict": "not beyond ncl"}
    >>> line |= {"within_ncl_r": 0.1, "within_ncl_r_low": -0.2, "within_ncl_r_high": 0.4}
    >>> line |= {"coverage": 0.9, "better_in": 1, "datasets": 1, "note": None}
    >>> line |= {f"{name}_points{end}": 3.0 for name in ("error", "gain") for end in ("", "_low", "_high")}
    >>> lines = [{**line, "predictor": "log_ncl", "verdict": "baseline"}, {**line, "predictor": "simss"}]
    >>> next(prediction_headlines(pd.DataFrame(lines))).partition(": ")[0]
    'SimSS by hog does not predict accuracy (DCN sub) beyond the number of classes, on new subsets of known data sets'
    """
    for (encoder, target, way), part in prediction.groupby(PANEL, sort=False):
        line = part.set_index(PREDICTOR).to_dict("index")
        simss, alone = line["simss"], line[tables.BASELINE]
        where = {"subset seed": "new subsets of known data sets", "data set": "new data sets"}[str(way)]
        if all_at_chance(part):
            yield f"What predicts accuracy ({target}) on {where} is not known: all models are at the level of chance."
            continue
        known = (
            f"SimSS by {encoder} {_VERDICTS[simss[tables.VERDICT]]} accuracy ({target}) beyond the number of classes, "
            f"on {where}: r = {_interval(simss, tables.WITHIN_R, '.2f')} among subsets of equal ncl"
        ) + (f" ({simss[NOTE]})" if pd.notna(simss[NOTE]) else "")
        if pd.isna(simss[tables.ERROR]):
            yield f"{known}; with one subset seed there is nothing unseen."
            continue
        error, others = _interval(simss, tables.ERROR, ".1f"), _interval(alone, tables.ERROR, ".1f")
        covers = f"its 90 % prediction intervals hold {100 * simss[tables.COVERAGE]:.0f} % of the measured accuracies"
        if pd.isna(simss[tables.COVERAGE]):
            covers = "too few subsets or data sets for prediction intervals"
        yield (
            f"{known}; its mean error is {error} points and that of ncl alone {others}, a gain of "
            f"{_interval(simss, tables.GAIN, '+.2f')} (better in {simss[tables.BETTER_IN]:.0f} of "
            f"{simss[tables.DATASETS]} data sets); {covers}."
        )
        added = part[part[PREDICTOR] != tables.BASELINE].sort_values(tables.ERROR, kind="stable")
        best = added.iloc[0]
        if len(added) == 1 or best[tables.ERROR] >= min(added[tables.ERROR].iloc[1], alone[tables.ERROR]):
            added_to_ncl = f"nothing that is added to ncl to predict {target} by {encoder} errs less than all others"
            yield f"On {where}, {added_to_ncl}; significantly better than ncl alone, each judged by itself: none."
            continue
        beyond = [NAMES[name] for name in part.loc[part[tables.VERDICT] == "beyond ncl", PREDICTOR]]
        yield (
            f"On {where}, of all that is added to ncl to predict {target} by {encoder}, {NAMES[best[PREDICTOR]]} has "
            f"the smallest error ({_interval(best, tables.ERROR, '.1f')} points); significantly better than ncl alone, "
            f"each judged by itself: {', '.join(beyond) or 'none'}."
        )


def _interval(line: Any, column: Column, form: str) -> str:
    """`1.5 [0.9, 2.2]`; without the interval where one seed is all there is."""
    if pd.isna(line[column]):
        return "undefined"
    low, high = line[column.low], line[column.high]
    return f"{line[column]:{form}}" + ("" if pd.isna(low) else f" [{low:{form}}, {high:{form}}]")


FIGURES = (
    Figure("prediction_gain", "What predicts beyond ncl", (PREDICTION,), gain_figure),
    Figure("prediction_error", "What predicts accuracy", (PREDICTION,), error_figure),
    Figure("predicted_accuracy", "Predicted and measured", (PREDICTION_POINTS, PREDICTION), observed_figure),
)
HEADLINES = {PREDICTION.name: prediction_headlines}
