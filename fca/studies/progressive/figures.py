"""Figures and headlines of analysis=hierarchy, attribute_levels and validate_levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Answer, Figure
from fca.report.small import ALIKE, interval
from fca.studies.progressive import attribute_levels, hierarchy, validate_levels
from fca.studies.progressive.attribute_levels import ATTRIBUTE_LEVELS, ATTRIBUTE_SCORES, ATTRIBUTE_STEPS, FALLS
from fca.studies.progressive.hierarchy import HIERARCHY, HIERARCHY_CORRELATION, HIERARCHY_PATTERNS
from fca.studies.progressive.levels import ACCURACY, BY_LEVEL, SCORE
from fca.studies.progressive.validate_levels import CONFIDENCE, ValidateLevels
from fca.studies.table import ATTRIBUTE, DATASET, LEVEL, MODEL, MODELS, N_TEST, NOTE, all_at_chance
from fca.types import LEVELS, Column, Table, with_interval

STEP_PX = kinds.SIDE + 40  # from the top of one picture to the next, with two lines of text between
_SERIES = {
    hierarchy.HIERARCHICAL_SCORE: "matched triplets",
    hierarchy.SESSION_RATES: "accuracies of each session alone",
    hierarchy.LEVEL_RATES: "accuracies by level alone",
}
_PARTS = {
    hierarchy.MATCHED_EXCESS: "matched minus all: the same object",
    hierarchy.SESSION_EXCESS: "sessions minus levels: these differ",
}
SERIES = Column("series", str, "", "triplets", {name: name for name in _SERIES.values()})
PART = Column("series", str, "", "difference", {name: name for name in _PARTS.values()})
VALUE = Column("value", float, ".1%", "triplets that follow the order")
_HOVER = (DATASET, MODEL, SERIES, *with_interval(VALUE), ACCURACY, SCORE, *BY_LEVEL)
_HOVER += (hierarchy.P_MATCHED, hierarchy.TRIPLETS, hierarchy.SESSIONS, N_TEST)
DIFFERENCE = Column("value", float, "+.1%", "share of triplets")
_COLOURS = ("#0072b2", "#009e73", kinds.GREY)
_SHAPES = ("circle", "square", "diamond")
_DARK = "#333a44"
_RIGHT = {
    pattern: "".join(level[0] for level, mark in zip(LEVELS, pattern, strict=True) if mark == "1") or "none"
    for pattern in ("000", "100", "110", "111", "001", "010", "011", "101")
}
RIGHT = Column("right", str, "", "levels that are right")
_PATTERN_HOVER = (
    DATASET,
    MODEL,
    RIGHT,
    hierarchy.SHARE,
    hierarchy.SESSION_RATES,
    hierarchy.LEVEL_RATES,
    hierarchy.TRIPLETS,
)
_FOLLOWS = {True: "harder images fail first", False: "an easier image fails first"}
ORDER = Column(hierarchy.FOLLOWS, str, "", "order of failure", {words: words for words in _FOLLOWS.values()})
BIN = Column("middle", str, "", "confidence (%)")
_BEST_FIRST = alt.EncodingSortField(ACCURACY, op="max", order="descending")


def hierarchy_figure(models: Table) -> alt.FacetChart:
    """The score of every model with its interval, and what accuracies alone make of it, by session and by level."""
    frame = _series(models.frame, _SERIES)
    frame = frame[frame[hierarchy.TRIPLETS].notna() | (frame[SERIES] != "matched triplets")].reset_index(drop=True)
    coloured = kinds.hue(SERIES, frame, _COLOURS, _SHAPES)
    along = kinds.category(alt.Y, MODEL, _BEST_FIRST)
    axis = kinds.quantity(alt.X, VALUE, domainMax=1, padding=0)
    chart = kinds.points_with_intervals(VALUE, along, _HOVER, coloured, dodge=SERIES, scale=axis, size=70)
    title = style.title(
        "Do models fail hard images before easy ones, beyond what accuracy makes of it?",
        "Each mark is a hierarchical score with its 95 % interval over classes; the most accurate model comes first.",
        "Scores by accuracy alone are those of independent predictions at these accuracies, in each session (class and "
        "attribute) or in all alike.",
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=12)


def parts_figure(models: Table) -> alt.FacetChart:
    """What the matching adds to the score of session rates, and what these add to the score of level rates."""
    known = models.frame[hierarchy.MATCHED_EXCESS].notna()
    frame = _series(models.frame, _PARTS)
    frame = frame[frame[VALUE].notna()].reset_index(drop=True)
    coloured = kinds.hue(PART, frame, _COLOURS[:2], _SHAPES[:2])
    along = kinds.category(alt.Y, MODEL, _BEST_FIRST)
    hover = (DATASET, MODEL, PART, *with_interval(DIFFERENCE), *_HOVER[6:])
    chart = kinds.points_with_intervals(DIFFERENCE, along, hover, coloured, dodge=PART, line=kinds.ZERO, size=70)
    named = "" if known.any() else " No triplets are named here, so that this part is unknown."
    title = style.title(
        "Is it the same object that fails first when hard?",
        "Each mark is a difference of scores with its 95 % interval over classes; the most accurate model comes first.",
        f"Only matched minus all triplets shows that; the other part only that sessions differ.{named}",
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=12)


def _series(frame: pd.DataFrame, names: Mapping[Column, str]) -> pd.DataFrame:
    """A line a model and score of these names."""
    parts = [
        frame.assign(series=name, value=frame[c], value_low=frame[c.low], value_high=frame[c.high])
        for c, name in names.items()
    ]
    long = pd.concat(parts, ignore_index=True)
    return long.assign(panel=style.panels(long, DATASET))


def patterns_figure(patterns: Table) -> alt.FacetChart:
    """How often each model shows each of the eight patterns, and how often accuracies alone; one panel a model."""
    frame = patterns.frame.sort_values([DATASET, ACCURACY], ascending=[True, False], kind="stable")
    frame = frame.assign(right=frame["pattern"].map(_RIGHT), follows=frame[hierarchy.FOLLOWS].map(_FOLLOWS))
    frame["panel"] = style.panels(frame, DATASET, MODEL)
    coloured = kinds.hue(ORDER, frame, ("#2b9c6f", "#b0568f"))
    x = kinds.category(alt.X, RIGHT, list(_RIGHT.values()), RIGHT.meaning, grid=False)
    y = kinds.quantity(alt.Y, hierarchy.SHARE, "triplets", zero=True, padding=0)
    bars = kinds.bars(x, y, _PATTERN_HOVER, coloured)
    ticks: Any = alt.Chart().mark_tick(thickness=2, size=22, opacity=1).encode(x=x)
    title = style.title(
        "Which of easy, medium and hard does a model get right together?",
        "The letters are e for easy, m for medium, h for hard. Ticks are what accuracies alone make: "
        "black of each session, "
        "grey by level.",
    )
    greys = {hierarchy.LEVEL_RATES: kinds.GREY, hierarchy.SESSION_RATES: _DARK}
    marks = [ticks.encode(y=f"{column}:Q", color=alt.value(grey)) for column, grey in greys.items()]
    chart = kinds.layers(bars, *marks)
    return style.faceted(chart, frame, title, (DATASET, MODEL), height=190)


def correlation_figure(models: Table, correlation: Table) -> alt.FacetChart:
    """Score against accuracy, a point a model, beside what accuracies by level make; coefficients as headings."""
    heading = {str(name): _heading(part) for name, part in correlation.frame.groupby(DATASET)}
    names = {hierarchy.HIERARCHICAL_SCORE: "hierarchical score", hierarchy.LEVEL_RATES: _SERIES[hierarchy.LEVEL_RATES]}
    frame = _series(models.frame, names)
    frame["panel"] = [f"{panel}\n{heading[name]}" for panel, name in zip(frame["panel"], frame[DATASET], strict=True)]
    ends = {"lower": VALUE.low, "upper": VALUE.high}  # names stand beyond the interval, or else beyond the point
    frame = frame.assign(**{end: frame[column].fillna(frame[VALUE]) for end, column in ends.items()})
    frame["below"] = frame.groupby(SERIES)[ACCURACY].rank(method="first") % 2 == 0  # names of neighbours part
    series = Column(SERIES, choices={name: name for name in names.values()})
    coloured = kinds.hue(series, frame, (_COLOURS[0], kinds.GREY), ("circle", "diamond"))
    x = kinds.quantity(alt.X, ACCURACY, padding=40)  # room for names
    y = kinds.quantity(alt.Y, VALUE, domainMax=1, padding=0)
    points = kinds.scatter(x, y, _HOVER, coloured)
    scores: Any = alt.Chart().transform_filter("datum.series == 'hierarchical score'").encode(x=x)
    rules = kinds.interval(scores.encode(color=coloured.colour()), VALUE, upright=True)
    named = scores.encode(text=f"{MODEL}:N")
    texts = [
        named.transform_filter(side).mark_text(dy=dy, fontSize=11).encode(y=f"{end}:Q")
        for side, end, dy in (("datum.below", "lower", 10), ("!datum.below", "upper", -8))
    ]
    title = style.title(
        "Do more accurate models follow the order more?",
        "Each point is one model with its 95 % interval. In the panel given level rates, what these make is taken out.",
    )
    return style.faceted(kinds.layers(rules, points, *texts), frame, title, (DATASET, MODEL), height=300)


def scores_figure(scores: Table) -> alt.FacetChart:
    """Score of every model on every attribute as a heat map; the best in bold, the second best in italics."""
    frame = scores.frame.assign(panel=style.panels(scores.frame, DATASET))
    x = alt.X(f"{ATTRIBUTE}:N", title=None, scale=alt.Scale(paddingInner=0.03), axis=alt.Axis(domain=False))
    y = style.names_axis(MODEL, list(dict.fromkeys(frame[MODEL])))
    heat: Any = kinds.heat_map(SCORE, x, y, scores.columns, (0.0, 1.0))
    squares, text = heat.layer
    looks: dict[str, Any] = {"== 1": {"fontWeight": 700}, "== 2": {"fontStyle": "italic"}, "> 2": {}}
    texts = [
        text.transform_filter(f"datum.{attribute_levels.RANK} {at}").mark_text(fontSize=12, **look)
        for at, look in looks.items()
    ]
    title = style.title(
        "Which model is good at which attribute?",
        "Each number is a score, (easy + 2 medium + 4 hard) / 7, over classes; bold is the best on "
        "an attribute, italic second.",
    )
    tall = max(60, 30 * frame[MODEL].nunique())
    drawn = style.faceted(kinds.layers(squares, *texts), frame, title, (DATASET, MODEL), height=tall, columns=1)
    drawn.spec.width = max(320, 66 * frame[ATTRIBUTE].nunique())
    return drawn


def steps_figure(steps: Table) -> alt.FacetChart:
    """How much accuracy each step of each attribute costs, mean over models, with its interval over classes."""
    title = style.title(
        "Does every level cost accuracy?",
        "Each mark is the mean over models with its 95 % interval over classes; right of the line "
        "the harder level is harder.",
    )
    return _by_attribute(
        steps, attribute_levels.DROP, attribute_levels.STEP, title, (DATASET,), line=kinds.ZERO, size=70
    )


def levels_figure(levels: Table) -> alt.FacetChart:
    """Accuracy of every model on the levels of each attribute with Wilson's intervals; one panel a model."""
    title = style.title(
        "How accurate is each model on easy, medium and hard images of each attribute?",
        "Bars are Wilson's 95 % intervals.",
    )
    axis = kinds.quantity(alt.X, attribute_levels.TOP1_OF_LEVEL, domain=[0, 1])
    return _by_attribute(levels, attribute_levels.TOP1_OF_LEVEL, LEVEL, title, (DATASET, MODEL), scale=axis, size=55)


def _by_attribute(
    table: Table, value: Column, colour: Column, title: alt.Title, panels: tuple[Column, ...], **options: Any
) -> alt.FacetChart:
    """Dots with intervals, a row an attribute."""
    frame = table.frame.assign(panel=style.panels(table.frame, *panels))
    coloured = kinds.hue(colour, frame, ordered=True)
    along = kinds.category(alt.Y, ATTRIBUTE)
    chart = kinds.points_with_intervals(value, along, table.columns, coloured, dodge=colour, **options)
    drawn = style.faceted(chart, frame, title, panels)
    drawn.spec.height = alt.Step(12)  # pixels a dot beside its neighbours
    return drawn


def bins_figure(bins: Table) -> alt.FacetChart:
    """Share of the images of each level by confidence, mean and range of the models."""
    frame = bins.frame.assign(panel=style.panels(bins.frame, DATASET))
    frame[BIN] = [f"{100 * low:.0f}-{100 * high:.0f}" for low, high in frame[["bin_low", "bin_high"]].to_numpy()]
    x = kinds.category(alt.X, BIN, list(dict.fromkeys(frame[BIN])), BIN.meaning, grid=False)
    y = kinds.quantity(alt.Y, validate_levels.SHARE, zero=True, padding=0)
    beside = alt.XOffset(f"{LEVEL}:N", scale=alt.Scale(domain=list(LEVELS)))
    bars = kinds.bars(x, y, bins.columns, kinds.hue(LEVEL, frame, ordered=True), xOffset=beside)
    ranges: Any = alt.Chart().mark_rule(strokeWidth=1.5, color=kinds.GREY, opacity=0.7)
    ranges = ranges.encode(x=x, xOffset=beside, y=f"{validate_levels.SHARE_MIN}:Q", y2=f"{validate_levels.SHARE_MAX}:Q")
    title = style.title(
        "Are models confident of easy images and not of hard ones?",
        "Each bar is the share of images whose greatest probability lies in one of ten equal bins, "
        "the mean of the models;",
        "grey lines are their range.",
    )
    return style.faceted(kinds.layers(bars, ranges), frame, title, (DATASET,))


def trends_figure(trends: Table) -> alt.FacetChart:
    """Mean confidence by level of every attribute and class, with the verdict of the tests where it does not fall."""
    frame = trends.frame.assign(by="by " + trends.frame["by"])
    frame["panel"] = style.panels(frame, DATASET, "by")
    falls = frame[validate_levels.VERDICT] == FALLS
    frame["named"] = frame["value"].where(falls, frame["value"] + " (" + frame[validate_levels.VERDICT] + ")")
    levels = frame[list(LEVELS)]
    along = kinds.category(alt.Y, "named", frame["named"].tolist())
    frame = pd.concat([frame.assign(level=level, confidence=frame[level]) for level in LEVELS], ignore_index=True)
    first = frame[LEVEL] == LEVELS[0]  # one rule a row joins the three dots
    frame[CONFIDENCE.low], frame[CONFIDENCE.high] = (
        pd.concat([ends] * 3, ignore_index=True).where(first) for ends in (levels.min(axis=1), levels.max(axis=1))
    )
    rules = kinds.interval(alt.Chart().encode(y=along), CONFIDENCE, upright=False)
    dots = kinds.points_with_intervals(
        CONFIDENCE, along, trends.columns, kinds.hue(LEVEL, frame, ordered=True), size=70
    )
    title = style.title(
        "Does confidence fall from easy to medium to hard?",
        "Each row is a mean over models. A verdict stands in brackets where confidence does not fall "
        "at both steps: trend,",
        "if it falls only as a whole (Page's test, Holm); rises, if it rises at a step (paired t, Holm); undecided, if "
        "neither.",
    )
    return style.faceted(kinds.layers(rules, dots), frame, title, (DATASET,), columns=2, row=20)


def contradictions_figure(shown: Table) -> alt.FacetChart:
    """A grid of pictures a kind of contradiction, with class, attribute and confidence below each."""
    frame = shown.frame.dropna(subset="thumbnail")
    if shown.frame.empty:
        raise style.NothingToDraw("no image contradicts its level")
    if frame.empty:
        runs = (f"fca run task=describe dataset={name}" for name in dict.fromkeys(shown.frame[DATASET]))
        raise style.NothingToDraw(f"no pictures; next: {'; '.join(runs)}")
    words = dict(validate_levels.KIND.choices)
    frame = frame.assign(way=frame["kind"].map(words) + " (" + frame["of"].astype(str) + ")")
    frame["panel"] = style.panels(frame, DATASET, "way")
    frame["under"] = [f"{a}, {100 * c:.0f} %" for a, c in zip(frame[ATTRIBUTE], frame[CONFIDENCE], strict=True)]
    hover = [column for column in shown.columns if column not in ("thumbnail", "row", "column", "kind", "of")]
    title = style.title(
        "Which images contradict their level?",
        "The most confident come first, with class, attribute and mean confidence; the number is in brackets.",
    )
    tall, wide = int((frame["row"].max() + 1) * STEP_PX), int((frame["column"].max() + 1) * (kinds.SIDE + 28))
    chart = kinds.pictures(frame, hover, "label", "under")
    drawn = style.faceted(chart, frame, title, (DATASET,), height=tall, columns=1)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, wide
    return drawn


def hierarchy_headlines(models: pd.DataFrame) -> Iterator[str]:
    """The range of the scores, what accuracies alone make of them, and for how many models the matching adds to it.

    >>> line = {"dataset": "zoo", "hierarchical_score": 0.9, "session_rates": 0.88, "level_rates": 0.8, "classes": 9}
    >>> of_net = {**line, "matched_excess": 0.02, "matched_excess_low": 0.01, "session_excess_low": 0.04}
    >>> print(*hierarchy_headlines(pd.DataFrame([of_net, {**of_net, "matched_excess_low": -0.01}])))
    zoo: 2 models follow the order of levels in 90 to 90 % of triplets; their accuracies by level alone make 80 to \
80 %, those of each class and attribute 88 to 88 %. The same object fails first when hard, beyond that, in 1 of 2 \
models (matched minus all triplets: 95 % interval over classes above 0); classes and attributes differ in 2 of 2.
    """
    for dataset, part in models.groupby(DATASET, sort=False):
        if all_at_chance(part):
            yield f"{dataset}: all models are at the level of chance; in which order they fail shows nothing."
            continue
        models_follow = "1 model follows" if len(part) == 1 else f"{len(part)} models follow"
        score, by_session, by_level = (f"{100 * part[c].min():.0f} to {100 * part[c].max():.0f} %" for c in _SERIES)
        same, differ = (f"{(part[c.low] > 0).sum()} of {len(part)}" for c in _PARTS)
        objects = (
            f"The same object fails first when hard, beyond that, in {same} models (matched minus all triplets: 95 % "
            f"interval over classes above 0); classes and attributes differ in {differ}"
        )
        if part[hierarchy.MATCHED_EXCESS].isna().all():
            objects = f"No triplets are named: objects are not tested; classes and attributes differ in {differ}"
        elif part[hierarchy.MATCHED_EXCESS.low].isna().all():
            same = f"{(part[hierarchy.P_MATCHED] < 0.05).sum()} of {len(part)} models"
            objects = (
                f"The same object fails first when hard, beyond that, in {same} (p of the matching below 0.05; no "
                "interval over classes)"
            )
        yield (
            f"{dataset}: {models_follow} the order of levels in {score} of triplets; their accuracies by "
            f"level alone make {by_level}, those of each class and attribute {by_session}. {objects}."
        )


def correlation_headlines(correlation: pd.DataFrame) -> Iterator[str]:
    """Accuracy and score over models, plain and given the level rates' score."""
    for dataset, part in correlation.groupby(DATASET, sort=False):
        models = part[MODELS].iloc[0]
        yield f"{dataset}: accuracy and hierarchical score over {models} models: {_heading(part)}."


def _heading(lines: pd.DataFrame) -> str:
    by_kind = {line[hierarchy.KIND]: r_text(line) for line in lines.to_dict("records")}
    return f"correlation {by_kind['pearson']}; given level rates {by_kind['partial']}"


def r_text(line: Mapping[Any, Any]) -> str:
    """A coefficient with its interval, or that there is none.

    >>> r_text({"r": 0.77, "r_low": None, "r_high": None, "note": "no interval"})
    '.77 (no interval)'
    >>> r_text({"r": -0.5, "r_low": -0.9, "r_high": 0.1, "note": None})
    '-.50 [-.90, .10]'
    """
    if pd.isna(line["r"]):
        return "not defined"
    known = [f"{line[name]:.2f}".replace("0.", ".", 1) for name in ("r", "r_low", "r_high") if pd.notna(line[name])]
    without = f" ({line[NOTE]})" if pd.notna(line[NOTE]) else ""
    return f"{known[0]}{without}" if len(known) < 3 else f"{known[0]} [{known[1]}, {known[2]}]"


def steps_headlines(steps: pd.DataFrame) -> Iterator[str]:
    """In how many attributes each level costs accuracy, and the other attributes.

    >>> line = {"dataset": "zoo", "attribute": "size", "step": "easy to medium", "verdict": "falls"}
    >>> print(*steps_headlines(pd.DataFrame([line, {**line, "step": "medium to hard", "verdict": "undecided"}])))
    zoo: accuracy falls at both steps, easy to medium and medium to hard, in 0 of 1 attributes; it does not change \
significantly in size (medium to hard).
    """
    for dataset, part in steps.groupby(DATASET, sort=False):
        if all_at_chance(part):
            yield f"{dataset}: all models are at the level of chance; what a harder level costs is not known."
            continue
        falls = part["verdict"].eq(FALLS).groupby(part[ATTRIBUTE]).all()
        named = part.assign(named=part[ATTRIBUTE] + " (" + part[attribute_levels.STEP] + ")")
        count = f"{' and '.join(attribute_levels.STEPS)}, in {falls.sum()} of {len(falls)} attributes"
        others = _others(named, "named", attribute_levels.VERDICT)
        yield f"{dataset}: accuracy falls at both steps, {count}{others}."


def trends_headlines(trends: pd.DataFrame) -> Iterator[str]:
    """In how many attributes and classes confidence falls, and where it does not.

    >>> line = {"dataset": "zoo", "by": "attribute", "value": "size", "verdict": "falls"}
    >>> list(trends_headlines(pd.DataFrame([line, {**line, "value": "view", "verdict": "rises"}])))
    ['zoo: mean confidence falls at both steps in 1 of 2 attributes; it rises at a step in view.']
    """
    plural = {"attribute": "attributes", "class": "classes"}
    for (dataset, by), part in trends.groupby([DATASET, "by"], sort=False):
        count = f"{(part[validate_levels.VERDICT] == FALLS).sum()} of {len(part)} {plural[str(by)]}"
        others = _others(part, "value", validate_levels.VERDICT)
        yield f"{dataset}: mean confidence falls at both steps in {count}{others}."


def _others(lines: pd.DataFrame, name: str, verdict: Column) -> str:
    """The rest of a sentence: where it does not fall, ten names of each verdict at most."""
    found = ""
    for value, same in lines[lines[verdict] != FALLS].groupby(verdict, sort=False):
        names = same[name].tolist()
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        found += f"; it {verdict.choices[str(value)]} in {', '.join(names[:10])}{more}"
    return found


def contradictions_headlines(shown: pd.DataFrame) -> Iterator[str]:
    """How many images contradict their level.

    >>> line = {"dataset": "zoo", "kind": "easy, missed by all", "of": 3, "models": 6}
    >>> list(contradictions_headlines(pd.DataFrame([line])))
    ['zoo: images that contradict their level for 6 models: 3 easy, but no model is right.']
    """
    for (dataset, models), part in shown.groupby([DATASET, MODELS], sort=False):
        counts: dict[str, int] = dict(zip(part["kind"], part["of"], strict=True))
        named = "; ".join(f"{count} {validate_levels.KIND.choices[kind]}" for kind, count in counts.items())
        yield f"{dataset}: images that contradict their level for {models} models: {named}."


_SHARE = Column(ACCURACY, float, ".0%", "accuracy")
_FOLLOWED = Column(hierarchy.HIERARCHICAL_SCORE, float, ".0%", "triplets that follow the order")
_COST = Column(attribute_levels.DROP, float, "+.0%", "accuracy lost")


def accuracy_answer(models: pd.DataFrame) -> tuple[str, Any] | None:
    """Accuracy of the best model, and on easy and hard images.

    >>> line = {"dataset": "zoo", "model": "vit", "accuracy": 0.8, "accuracy_low": 0.7, "accuracy_high": 0.9}
    >>> vit = line | {"easy": 0.95, "medium": 0.8, "hard": 0.65}
    >>> print(accuracy_answer(pd.DataFrame([vit, vit | {"model": "vgg", "accuracy": 0.7}]))[0])
    On zoo, the best of 2 models, vit, is right on 80 % [70, 90] of images: 95 % of easy and 65 % of hard ones.
    """
    part = models.dropna(subset=ACCURACY).sort_values(ACCURACY, ascending=False, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    chart = small.dots(part, MODEL, _SHARE, (MODEL, *with_interval(_SHARE), *BY_LEVEL))
    if all_at_chance(part):
        who = "the model is" if len(part) == 1 else f"all {len(part)} models are"
        return f"On {line[DATASET]}, {who} at the level of chance: {interval(line, _SHARE)} of images right.", chart
    ends = " and ".join(f"{100 * line[level]:.0f} % of {level}" for level in (LEVELS[0], LEVELS[-1]))
    best = small.best_of(part, _SHARE)[MODEL].tolist()
    if len(part) == 1:
        right = f"{line[MODEL]} is right on {interval(line, _SHARE)} of images: {ends} ones"
    elif len(best) == len(part):
        right = f"all {len(part)} models are right on {interval(line, _SHARE)} of images"
    elif len(best) > 1:
        right = f"the best models, {small.listed(best)}, are right on {interval(line, _SHARE)} of images"
    else:
        name = f"the best of {len(part)} models, {line[MODEL]},"
        right = f"{name} is right on {interval(line, _SHARE)} of images: {ends} ones"
    return f"On {line[DATASET]}, {right}.", chart


def order_answer(models: pd.DataFrame) -> tuple[str, Any] | None:
    """How often the most orderly model fails on hard images before easy ones.

    >>> line = {"dataset": "zoo", "model": "vit", "hierarchical_score": 0.9, "level_rates": 0.8}
    >>> print(order_answer(pd.DataFrame([line | {"hierarchical_score_low": 0.85, "hierarchical_score_high": 0.95}]))[0])
    On zoo, vit fails on the harder image first in 90 % [85, 95] of triplets; its accuracies by level alone make 80 %.
    """
    part = models.dropna(subset=_FOLLOWED).sort_values(_FOLLOWED, ascending=False, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    if all_at_chance(part):
        return None
    followed = f"{line[MODEL]} fails on the harder image first in {interval(line, _FOLLOWED)} of triplets"
    alone = f"its accuracies by level alone make {100 * line[hierarchy.LEVEL_RATES]:.0f} %"
    hover = (MODEL, *with_interval(_FOLLOWED))
    return f"On {line[DATASET]}, {followed}; {alone}.", small.dots(part, MODEL, _FOLLOWED, hover)


def cost_answer(steps: pd.DataFrame) -> tuple[str, Any] | None:
    """The step of an attribute that costs most accuracy.

    >>> line = {"dataset": "zoo", "attribute": "size", "step": "medium to hard", "drop": 0.2, "drop_low": 0.1}
    >>> lines = [line | {"drop_high": 0.3}, line | {"step": "easy to medium", "drop": 0.1}]
    >>> print(cost_answer(pd.DataFrame(lines))[0])
    On zoo, the step from medium to hard size costs most: +20 points [+10, +30] of accuracy.
    >>> lines[0] |= {"drop_low": -0.1, "drop_high": 0.5}
    >>> print(cost_answer(pd.DataFrame(lines).assign(drop_low=-0.1))[0])
    On zoo, no step costs accuracy significantly; the step from medium to hard size costs +20 points [-10, +50].
    """
    part = steps.dropna(subset=_COST).sort_values(_COST, ascending=False, kind="stable")
    if part.empty:
        return None
    part = part.assign(named=part[ATTRIBUTE] + ", " + part[attribute_levels.STEP])
    hover = (Column("named", str, "", "step"), *with_interval(_COST))
    chart = small.dots(part, "named", _COST, hover, line=0.0)
    dataset = part[DATASET].iloc[0]
    if all_at_chance(part):
        return f"Not known: on {dataset}, all models are at the level of chance.", chart

    significant = part[part[_COST.low] > 0]
    without_interval = part[part[_COST.low].isna() & (part[_COST] > ALIKE)]
    is_largest = without_interval[_COST] >= part[_COST].iloc[0] - ALIKE
    costly = significant if len(significant) else without_interval[is_largest]
    if costly.empty:
        return f"On {dataset}, no step costs accuracy significantly; {_step(part)} costs {_cost(part)}.", chart
    most = small.best_of(costly, _COST)["named"].tolist()
    if len(most) > 1:
        equal = "all steps cost" if len(most) == len(part) else f"the steps {small.listed(most)} cost"
        return f"On {dataset}, {equal} as much: {_cost(costly)} of accuracy.", chart
    costs = "costs most:" if len(part) > 1 else "costs"
    if costly[_COST].iloc[0] < part[_COST].iloc[0]:
        costs = "costs most of those that do so significantly:"
    return f"On {dataset}, {_step(costly)} {costs} {_cost(costly)} of accuracy.", chart


def _step(ordered: pd.DataFrame) -> str:
    """The first step, as a sentence has it."""
    return f"the step from {ordered[attribute_levels.STEP].iloc[0]} {ordered[ATTRIBUTE].iloc[0]}"


def _cost(ordered: pd.DataFrame) -> str:
    """What the first step costs, with its interval, or that there is none."""
    line = ordered.iloc[0].to_dict()
    return interval(line, _COST) + (" (no interval)" if pd.isna(line[_COST.low]) else "")


_BINS, _TRENDS, _CONTRADICTIONS, _ = ValidateLevels.tables
FIGURES = (
    Figure("hierarchy", "Hard images fail first", (HIERARCHY,), hierarchy_figure),
    Figure("hierarchy_parts", "Objects or sessions", (HIERARCHY,), parts_figure),
    Figure("hierarchy_patterns", "Patterns of right and wrong", (HIERARCHY_PATTERNS,), patterns_figure),
    Figure("hierarchy_correlation", "Order and accuracy", (HIERARCHY, HIERARCHY_CORRELATION), correlation_figure),
    Figure("attribute_scores", "Scores by attribute", (ATTRIBUTE_SCORES,), scores_figure),
    Figure("attribute_steps", "What a level costs", (ATTRIBUTE_STEPS,), steps_figure),
    Figure("attribute_levels", "Accuracy by attribute and level", (ATTRIBUTE_LEVELS,), levels_figure),
    Figure("confidence_levels", "Confidence by level", (_BINS,), bins_figure),
    Figure("confidence_trends", "Confidence by attribute and class", (_TRENDS,), trends_figure),
    Figure("contradictions", "Images that contradict their level", (_CONTRADICTIONS,), contradictions_figure),
)
HEADLINES = {
    HIERARCHY.name: hierarchy_headlines,
    HIERARCHY_CORRELATION.name: correlation_headlines,
    ATTRIBUTE_STEPS.name: steps_headlines,
    _TRENDS.name: trends_headlines,
    _CONTRADICTIONS.name: contradictions_headlines,
}
ANSWERS = (
    Answer("How accurate are models, easy to hard?", (HIERARCHY,), accuracy_answer),
    Answer("What does a harder level cost?", (ATTRIBUTE_STEPS,), cost_answer),
    Answer("Do hard images fail first?", (HIERARCHY,), order_answer),
)
