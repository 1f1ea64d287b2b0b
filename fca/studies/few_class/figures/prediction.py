"""Figures of predicted accuracy: gain and error of every predictor, and predictions against measurements."""

from __future__ import annotations

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

BASELINE = "log_ncl"
BEST = 3  # predictors drawn point by point, beside the baseline
WAYS = {"subset seed": "new subsets", "data set": "new data sets"}
NAMES = {
    "mean": "no predictor (mean)",
    "ncl": "ncl alone",
    BASELINE: "ncl alone (log)",
    "simss": "SimSS",
    "separation": "intra - inter similarity",
    "intra_inter": "intra and inter, fitted",
    "silhouette": "silhouette",
    "knn": "kNN accuracy",
    "probe": "probe accuracy",
    "logme": "LogME",
}
VERDICTS = ("beyond ncl", "cannot tell", "not beyond ncl", "baseline")
_COLOURS = ["#009e73", "#b07d00", "#d55e00", "#7d8590"]  # 3:1 on white and on black
_SHAPES = ["circle", "diamond", "triangle-down", "square"]


def error_figure(prediction: Table) -> alt.FacetChart:
    """Mean absolute error of every predictor on what it never saw; dashed: ncl alone."""
    frame = _named(prediction.frame.dropna(subset="error_points"))
    alone = frame[frame["predictor"] == BASELINE].set_index("panel")["error_points"]
    title = alt.Title(
        "How far off is accuracy that was predicted before training?",
        subtitle=[
            "Mean absolute error on what the prediction never saw, with its 95 % interval over subset seeds (new data",
            "sets: over data sets). Dashed: what the number of classes alone achieves.",
        ],
    )
    return _dots(frame.assign(line=frame["panel"].map(alone)), "error_points", "mean absolute error (% points)", title)


def gain_figure(prediction: Table) -> alt.FacetChart:
    """How far below the error of ncl alone every predictor is, on the same subsets."""
    frame = _named(prediction.frame.dropna(subset="gain_points"))
    title = alt.Title(
        "Does anything predict accuracy beyond the number of classes?",
        subtitle=[
            "By how much the error on what was never seen falls below that of ncl alone, with its 95 % interval over",
            "subset seeds (new data sets: over data sets). Right of the dashed line: better than ncl alone.",
        ],
    )
    return _dots(frame.assign(line=0.0), "gain_points", "gain over ncl alone (% points)", title)


def observed_figure(points: Table, prediction: Table) -> alt.FacetChart:
    """Measured against predicted accuracy of every subset, for ncl alone and the best predictors."""
    frame = _best(points.frame, prediction.frame)
    picked = style.picked("ncl")
    told = {"dataset": "", "encoder": "", "way": "", "says": "", "ncl": ".0f", "top1": ".2%", "top1_predicted": ".2%"}
    told |= {"top1_predicted_low": ".2%", "top1_predicted_high": ".2%", "value": ".4f", "model": ""}
    predicted = alt.X("top1_predicted:Q", title="predicted accuracy (%)", axis=_PERCENT, scale=_OPEN)
    colour = alt.Color(
        "ncl:O",
        scale=alt.Scale(domain=sorted(frame["ncl"].unique().tolist())),
        legend=alt.Legend(title="ncl, number of classes"),
    )
    base = alt.Chart().encode(y=alt.Y("top1:Q", title="measured accuracy (%)", axis=style.PERCENT, scale=_OPEN))
    layers = alt.layer(
        base.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color="#8b949e").encode(x="top1:Q"),
        base.transform_filter("isValid(datum.top1_predicted_low)")
        .mark_rule(strokeWidth=1.5)
        .encode(
            x="top1_predicted_low:Q",
            x2="top1_predicted_high:Q",
            color=colour,
            opacity=alt.condition(picked, alt.value(0.3), alt.value(0.05)),
        ),
        base.mark_circle(size=60)
        .encode(
            x=predicted,
            color=colour,
            opacity=alt.condition(picked, alt.value(0.9), alt.value(0.1)),
            tooltip=style.tooltips({**told, "subset_seed": ".0f", "classes": ""}),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "How close do predictions come?",
        subtitle=["One dot a class subset that the prediction never saw, with its 90 % prediction interval.", _DASHED],
    )
    return style.faceted(layers, frame, title, ("dataset", "ncl"), columns=BEST + 1)


PANEL = ["encoder", "target", "held_out"]
_DASHED = "Dashed: predicted as measured."
_OPEN = alt.Scale(zero=False, padding=8)
_PERCENT = alt.Axis(format=".2~%", tickCount=5)


def _best(points: pd.DataFrame, prediction: pd.DataFrame) -> pd.DataFrame:
    """The points of ncl alone and of the predictors that err least in each panel, in this order."""
    ranked = prediction[prediction["verdict"] != "baseline"].sort_values("error_points", kind="stable")
    drawn = {key: [BASELINE, *part["predictor"].head(BEST)] for key, part in ranked.groupby(PANEL)}
    frame = points.dropna(subset="top1_predicted")
    keys = frame[[*PANEL, "predictor"]].itertuples(index=False, name=None)
    place = [drawn[key[:-1]].index(key[-1]) if key[-1] in drawn[key[:-1]] else BEST + 1 for key in keys]
    frame = frame.assign(place=place)
    frame = _named(frame[frame["place"] <= BEST], "place")
    return frame.assign(panel=frame["panel"].str.replace(" · ", "\n") + "\n" + frame["says"])


def _named(frame: pd.DataFrame, *by: str) -> pd.DataFrame:
    """With the words of predictor and way, and a panel for every encoder and way that there are."""
    frame = frame.assign(says=frame["predictor"].map(NAMES), way="on " + frame["held_out"].map(WAYS))
    frame = frame.sort_values([*PANEL, *by], ascending=[True, True, False, *(True for _ in by)], kind="stable")
    frame = frame.reset_index(drop=True)
    return frame.assign(panel=style.panels(frame, "encoder", "target", "way"))


def _dots(frame: pd.DataFrame, name: str, axis: str, title: alt.Title) -> alt.FacetChart:
    """One line a predictor, best first: `name` with its interval, over a dashed line at the column `line`."""
    order = list(dict.fromkeys(frame.sort_values("error_points", kind="stable")["says"]))
    there = [v for v in VERDICTS if v in set(frame["verdict"])]
    picked = style.picked("verdict")
    legend = alt.Legend(title=None, values=there)
    told = {"encoder": "", "way": "", "target": "", "says": "", "error_points": ".2f", "error_points_low": ".2f"}
    told |= {"error_points_high": ".2f", "gain_points": "+.2f", "gain_points_low": "+.2f", "gain_points_high": "+.2f"}
    told |= {"within_ncl_r": ".3f", "coverage": ".0%", "width_points": ".1f", "n": ".0f", "datasets": ".0f"}
    base = alt.Chart().encode(
        y=alt.Y("says:N", title=None, sort=order, axis=alt.Axis(grid=True, ticks=False, domain=False)),
        color=alt.Color("verdict:N", scale=alt.Scale(domain=list(VERDICTS), range=_COLOURS), legend=legend),
        opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
    )
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x="line:Q"),
        base.transform_filter(f"isValid(datum.{name}_low)")
        .mark_rule(strokeWidth=2)
        .encode(x=f"{name}_low:Q", x2=f"{name}_high:Q"),
        base.mark_point(filled=True, size=90)
        .encode(
            x=alt.X(f"{name}:Q", title=axis, scale=alt.Scale(zero=False, padding=8)),
            shape=alt.Shape("verdict:N", scale=alt.Scale(domain=list(VERDICTS), range=_SHAPES), legend=legend),
            tooltip=style.tooltips(told | {"seeds": ".0f"}),
        )
        .add_params(picked),
    )
    return style.faceted(layers, frame, title, (), height=24 * len(order), columns=min(2, frame["panel"].nunique()))


PARTS = (
    Part("prediction_gain", "What predicts beyond ncl", "prediction", ("prediction",), gain_figure),
    Part("prediction_error", "What predicts accuracy", "prediction", ("prediction",), error_figure),
    Part(
        "predicted_accuracy",
        "Predicted and measured",
        "prediction",
        ("prediction_points", "prediction"),
        observed_figure,
    ),
)
