"""Predicted accuracy: gain and error of every predictor, predictions against measurements; figures and statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.few_class import prediction as tables
from fca.studies.few_class.correlation import PREDICTOR, TARGET
from fca.studies.few_class.figures.similarity import NO_ACCURACY
from fca.tables.table import DATASET, ENCODER, NCL, NOTE, TOP1, TOP1_PREDICTED, all_at_chance, lines_at_chance
from fca.types import Column, Table, interval_columns

BEST = 3  # how many predictors are drawn point by point, beside the baseline
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
ERROR = tables.ERROR.with_format(".1f", "error (% points)")
WITHIN_R = tables.WITHIN_R.with_format(".2f")
PREDICTOR_NAME = Column("named", str, "", "predictor")
PANEL = [ENCODER, TARGET, tables.HELD_OUT]
_COLOURS = ("#009e73", "#b07d00", "#d55e00", kinds.GREY)  # 3:1 on white and on black
_SHAPES = ("circle", "diamond", "triangle-down", "square")
_VERDICTS = {"beyond ncl": "predicts", "not beyond ncl": "does not predict", "undecided": "may or may not predict"}


def error_figure(prediction: Table) -> alt.FacetChart:
    """The figure of the mean absolute error of every predictor, on subsets or data sets that were not used to fit it.

    The dashed line is the error of the number of classes alone (the baseline).
    prediction: table `prediction`, with a line for each predictor, encoder, target and held-out unit.
    """
    frame = _with_panels(prediction.frame.dropna(subset=tables.ERROR))
    baseline_error_by_panel = frame[frame[PREDICTOR] == tables.BASELINE].set_index("panel")[tables.ERROR]
    # line: where the dashed line of a panel is
    frame = frame.assign(line=frame["panel"].map(baseline_error_by_panel))
    title = style.title(
        "How far off is accuracy that was predicted before training?",
        "Each mark is the mean absolute error on what the prediction never saw, with its 95 % interval over "
        "subset seeds",
        "(for new data sets, over data sets). The dashed line is what the number of classes alone achieves.",
    )
    return _one_row_per_predictor(frame, tables.ERROR, prediction.columns, title)


def gain_figure(prediction: Table) -> alt.FacetChart:
    """How far the error of every predictor is below that of ncl alone, on the same subsets."""
    frame = _with_panels(prediction.frame.dropna(subset=tables.GAIN)).assign(line=0.0)
    title = style.title(
        "Does anything predict accuracy beyond the number of classes?",
        "Each mark shows by how much the error on what was never seen falls below that of ncl alone, with its 95 %",
        "interval over subset seeds (for new data sets, over data sets). Right of the dashed line it is smaller.",
    )
    return _one_row_per_predictor(frame, tables.GAIN, prediction.columns, title)


def _one_row_per_predictor(
    frame: pd.DataFrame, value: Column, hover: tuple[Column, ...], title: alt.Title
) -> alt.FacetChart:
    """A figure with one row for each predictor: a value with its interval. The smallest error is at the top.

    Colour and shape show the verdict on a predictor: whether it predicts accuracy better than ncl (the number of
    classes) does alone.
    frame: lines of table `prediction` with the columns `panel` and `named` (the predictor in words) of _with_panels,
           and a column `line`: the position of the dashed line in the panel.
    value: the column that is drawn.
    hover: the columns that a tooltip shows.
    """
    predictors = list(dict.fromkeys(frame.sort_values(tables.ERROR, kind="stable")["named"]))
    rows = kinds.category(alt.Y, "named", predictors, domain=False)
    scale = kinds.quantity(alt.X, value)
    coloured = kinds.hue(tables.BEYOND_NCL, frame, _COLOURS, _SHAPES)
    chart = kinds.points_with_intervals(value, rows, hover, coloured, line="line", scale=scale, size=90)

    height = 24 * len(predictors)
    columns = min(2, frame["panel"].nunique())
    # there are no filters, because a line of the table is about several data sets and numbers of classes
    return style.faceted(chart, frame, title, filters=(), height=height, columns=columns)


def observed_figure(points: Table, prediction: Table) -> alt.FacetChart:
    """The figure of measured against predicted accuracy of every subset, for ncl alone and the best few predictors.

    points:     table prediction_points, with the predicted accuracy of each subset by each predictor.
    prediction: table `prediction`, whose errors show which predictors are the best.
    """
    frame = _points_of_best_predictors(points.frame, prediction.frame)
    x = kinds.quantity(alt.X, TOP1_PREDICTED)
    y = kinds.quantity(alt.Y, TOP1, "measured accuracy")
    coloured = kinds.hue(NCL, frame, shapes=None, title=NCL.meaning, ordered=True)

    base: Any = alt.Chart().encode(y=y)
    # x and y are both the measured accuracy: on this line a prediction is exact
    diagonal = base.mark_line(strokeDash=[4, 3], strokeWidth=1.5, color="#8b949e").encode(x=f"{TOP1}:Q")
    faint = base.encode(color=coloured.colour(), opacity=coloured.opacity(0.3))
    intervals = kinds.interval_marks(faint, TOP1_PREDICTED, on_y=False)
    dots = kinds.scatter(x, y, points.columns, coloured, size=60)

    title = style.title(
        "How close do predictions come?",
        "Each dot is one class subset that the prediction never saw, with its 90 % prediction interval.",
        "On the dashed line both are equal.",
    )
    layers = kinds.layers(diagonal, intervals, dots)
    columns = BEST + 1  # ncl alone, then the best predictors
    return style.faceted(layers, frame, title, filters=(DATASET, NCL), columns=columns)


def _points_of_best_predictors(points: pd.DataFrame, prediction: pd.DataFrame) -> pd.DataFrame:
    """The points of ncl alone and of the predictors with the smallest errors (BEST in number), with a column `panel`.

    There is a panel for each combination of encoder, target, held-out unit (subset seed or data set) and predictor.
    Panels of one combination are in this order: ncl alone, then the predictors by their errors.

    points:     lines of table prediction_points.
    prediction: lines of table `prediction`, which has the errors.
    """
    alone = prediction[prediction[PREDICTOR] == tables.BASELINE]
    # the verdict is "baseline" for ncl alone, which has place 0 below, and for other baselines, which are not drawn
    is_predictor = prediction[tables.BEYOND_NCL] != "baseline"
    ranked = prediction[is_predictor].sort_values(tables.ERROR, kind="stable")
    rank = ranked.groupby(PANEL).cumcount() + 1  # PANEL: the columns encoder, target and held-out unit
    # place: 0 for ncl alone, then the rank of the predictor by its error
    places = pd.concat([alone.assign(place=0), ranked.assign(place=rank)])
    is_among_best = places["place"] <= BEST
    places = places.loc[is_among_best, [*PANEL, PREDICTOR, "place"]]

    predicted_points = points.dropna(subset=TOP1_PREDICTED)
    # merge on the columns that both have: it keeps only the points of the best predictors
    points_of_best = predicted_points.merge(places)
    # _with_panels adds the heading `panel` of each combination, and `named`, the predictor in words. It sorts the
    # points of a combination by place
    frame = _with_panels(points_of_best, "place")
    # each predictor has a panel of its own, so its name joins the heading. These panels are narrow: each part of the
    # heading has a line of its own
    return frame.assign(panel=frame["panel"].str.replace(" · ", "\n") + "\n" + frame["named"])


def _with_panels(frame: pd.DataFrame, *last_sort_columns: str) -> pd.DataFrame:
    """The frame sorted by encoder, target and what is held out, with three more columns of words.

    `named` is the predictor, `way` what is new ("on new subsets", "on new data sets"), and `panel` the heading of the
    line's panel: encoder, target and what is new, as far as they differ.

    last_sort_columns: sort the lines within a panel.
    """
    frame = frame.assign(named=frame[PREDICTOR].map(NAMES), way="on " + frame[tables.HELD_OUT].map(tables.UNSEEN))
    ascending = [True, True, False] + [True] * len(last_sort_columns)  # "subset seed" before "data set"
    frame = frame.sort_values([*PANEL, *last_sort_columns], ascending=ascending, kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, ENCODER, TARGET, "way"))


def prediction_statements(prediction: pd.DataFrame) -> Iterator[Statement]:
    """One or two statements on how well accuracy is predicted, for each encoder, target and held-out unit.

    The first statement compares the best predictor with the number of classes (ncl) alone. The second one lists the
    predictors that are significantly better than ncl; it is left out if there are none. If all models are at the level
    of chance, the only statement is that there is no accuracy to predict.

    prediction: lines of table `prediction`. Lines without an error are not used.

    >>> line = {"encoder": "hog", "target": "DCN sub", "held_out": "subset seed", "error_points_low": 1.0}
    >>> lines = [line | {"predictor": "log_ncl", "error_points": 2.0, "error_points_high": 3.0}]
    >>> lines += [line | {"predictor": "simss", "error_points": 1.5, "error_points_high": 2.0}]
    >>> for statement in prediction_statements(pd.DataFrame(lines).assign(verdict="beyond ncl")):
    ...     print(statement.sentence)
    Before training, the best predictor (SimSS) misses the accuracy of a new subset by 1.5 points [1.0, 2.0] on \
average; the number of classes alone by 2.0 [1.0, 3.0].
    Significantly better than ncl alone, each judged by itself, for a new subset (DCN sub by hog): SimSS.
    >>> near = lines[1] | {"predictor": "logme", "error_points": 1.4, "error_points_high": 2.1, "verdict": "undecided"}
    >>> tied = pd.DataFrame([line | {"verdict": "beyond ncl"} for line in lines] + [near])
    >>> statement, _ = prediction_statements(tied)
    >>> print(statement.sentence.partition(" by 2.0 ")[2])
    [1.0, 3.0]. Other predictors have errors within that interval, so none is shown to be the best: LogME 1.4.
    >>> [statement] = prediction_statements(pd.DataFrame(lines).assign(verdict="not beyond ncl"))
    >>> print(statement.sentence)
    Before training, nothing predicts significantly better than the number of classes alone, which misses the accuracy \
of a new subset by 2.0 points [1.0, 3.0] on average; SimSS by 1.5 [1.0, 2.0].
    """
    with_error = prediction.dropna(subset=tables.ERROR)
    for number, ((encoder, target, held_out), lines) in enumerate(with_error.groupby(PANEL, sort=False)):
        is_opening = number == 0  # the first sentence opens the page: short, without target and encoder
        unseen = {"subset seed": "a new subset", "data set": "a new data set"}[str(held_out)]
        detailed = f"{unseen} ({target} by {encoder})"

        # the chart: the three best predictors above the number of classes alone
        ordered = lines.sort_values(tables.ERROR, kind="stable")
        alone = ordered[ordered[PREDICTOR] == tables.BASELINE]
        predictors = ordered[~ordered[PREDICTOR].isin(tables.BASELINES)]  # BASELINES: ncl, log ncl, the mean
        charted = pd.concat([predictors.head(3), alone])
        charted = charted.assign(**{PREDICTOR_NAME: charted[PREDICTOR].map(NAMES)})  # in words
        chart = small.dots(charted, PREDICTOR_NAME, ERROR, (PREDICTOR_NAME, *interval_columns(ERROR)))

        if all_at_chance(lines):
            subject = "Not known" if is_opening else f"Not known for {detailed}"
            yield Statement(f"{subject}: all models are {NO_ACCURACY}.", chart)
            continue

        errors = _errors_in_words(alone.iloc[0].to_dict(), predictors, unseen if is_opening else detailed)
        yield Statement(f"Before training, {errors}.", chart)

        is_beyond_ncl = predictors[tables.BEYOND_NCL] == "beyond ncl"
        names = [NAMES[predictor] for predictor in predictors.loc[is_beyond_ncl, PREDICTOR]]
        if names:
            better = "Significantly better than ncl alone, each judged by itself"
            yield Statement(f"{better}, for {detailed}: {', '.join(names)}.")


def _errors_in_words(alone: Mapping[Any, Any], predictors: pd.DataFrame, unseen: str) -> str:
    """A sentence, without its full stop, with the errors of the best predictor and of the number of classes alone.

    The best predictor is the best among the predictors that are significantly better than ncl. If there are none, the
    sentence states this, and gives the error of ncl alone before the error of the best of all predictors.

    alone:      the line of the baseline (the number of classes alone) in table `prediction`.
    predictors: the lines of all predictors except the baselines, the smallest error first.
    unseen:     what is predicted, in words, such as "a new subset".
    """
    beyond_ncl = predictors[predictors[tables.BEYOND_NCL] == "beyond ncl"]
    best = small.best_of(predictors if beyond_ncl.empty else beyond_ncl, ERROR, largest=False)  # several if equal
    line = best.iloc[0].to_dict()
    names = small.listed([NAMES[predictor] for predictor in best[PREDICTOR]])
    misses = f"misses the accuracy of {unseen} by"
    if beyond_ncl.empty:
        nothing = "nothing predicts significantly better than the number of classes alone, which"
        return f"{nothing} {misses} {_in_points(alone)} on average; {names} by {format_with_interval(line, ERROR)}"

    near_ties = _near_ties(predictors, best)  # other predictors whose error is within the interval of the best
    if len(best) > 1:
        subject = f"each of the best predictors ({names})"
    elif near_ties:
        subject = names  # not shown to be the best
    else:
        subject = f"the best predictor ({names})"
    sentence = f"{subject} {misses} {_in_points(line)} on average"
    sentence += f"; the number of classes alone by {format_with_interval(alone, ERROR)}"
    if near_ties:
        tie = "Other predictors have errors within that interval, so none is shown to be the best"
        sentence += f". {tie}: {small.listed(near_ties)}"
    return sentence


def _near_ties(predictors: pd.DataFrame, best: pd.DataFrame) -> list[str]:
    """The predictors other than the best whose error is within the best's interval, each with its error: `LogME 1.4`.

    predictors, best: lines of table `prediction`.
    """
    low = best[ERROR.low].iloc[0]
    high = best[ERROR.high].iloc[0]
    is_within = predictors[ERROR].between(low, high)
    is_best = predictors.index.isin(best.index)
    near_ties = predictors[is_within & ~is_best]
    return [f"{NAMES[line[PREDICTOR]]} {line[ERROR]:.1f}" for line in near_ties.to_dict("records")]


def _in_points(line: Mapping[Any, Any]) -> str:
    """An error with its interval in points: `1.5 points [1.0, 2.0]`, or `1.5 points` without one."""
    error, _, interval = format_with_interval(line, ERROR).partition(" ")
    return f"{error} points {interval}".rstrip()


def simss_statements(prediction: pd.DataFrame) -> Iterator[Statement]:
    """A statement for each encoder, target and held-out unit: whether SimSS predicts accuracy better than ncl alone.

    SimSS is the similarity score of classes, and the held-out unit is the subset seed or the data set.

    prediction: lines of table `prediction`. Lines of models at the level of chance are not used.

    >>> line = {"encoder": "hog", "target": "DCN sub", "held_out": "subset seed", "predictor": "simss", "note": None}
    >>> line |= {"verdict": "not beyond ncl", "within_ncl_r": 0.1, "within_ncl_r_low": -0.2, "within_ncl_r_high": 0.4}
    >>> line |= {"coverage": 0.9, "better_in": 1, "datasets": 1}
    >>> line |= {f"{name}_points{end}": 3.0 for name in ("error", "gain") for end in ("", "_low", "_high")}
    >>> [statement] = simss_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    SimSS by hog does not predict accuracy (DCN sub) beyond the number of classes, on new subsets of known data sets: \
r = 0.10 [-0.20, 0.40] among subsets of equal ncl; its mean error is 3.0 points, a gain of +3.00 over ncl alone \
(better in 1 of 1 data sets); its 90 % prediction intervals hold 90 % of the measured accuracies.
    """
    lines_of_simss = prediction[(prediction[PREDICTOR] == "simss") & ~lines_at_chance(prediction)]
    for line in lines_of_simss.to_dict("records"):
        unseen = {"subset seed": "new subsets of known data sets", "data set": "new data sets"}[line[tables.HELD_OUT]]
        predicts = f"SimSS by {line[ENCODER]} {_VERDICTS[line[tables.BEYOND_NCL]]} accuracy ({line[TARGET]})"
        # the correlation of SimSS with accuracy, among subsets of equal ncl
        r = "undefined" if pd.isna(line[WITHIN_R]) else format_with_interval(line, WITHIN_R)
        note = f" ({line[NOTE]})" if pd.notna(line[NOTE]) else ""

        sentence = f"{predicts} beyond the number of classes, on {unseen}: r = {r} among subsets of equal ncl{note}"
        if pd.isna(line[ERROR]):  # nothing was held out, so there is no error
            yield Statement(f"{sentence}; with one subset seed there is nothing unseen.")
            continue

        better_in = f"better in {line[tables.BETTER_IN]:.0f} of {line[tables.DATASETS]} data sets"
        gain = f"a gain of {format_with_interval(line, tables.GAIN)} over ncl alone ({better_in})"
        if pd.isna(line[tables.MEASURED_INSIDE]):
            covers = "too few subsets or data sets for prediction intervals"
        else:
            share = f"{100 * line[tables.MEASURED_INSIDE]:.0f} %"
            covers = f"its 90 % prediction intervals hold {share} of the measured accuracies"
        yield Statement(f"{sentence}; its mean error is {format_with_interval(line, ERROR)} points, {gain}; {covers}.")
