"""Figures and statements of analysis=hierarchy, attribute_levels and validate_levels, and `FINDINGS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Finding, Statement
from fca.report.small import ALIKE, format_with_interval
from fca.studies.progressive import attribute_levels, hierarchy, validate_levels
from fca.studies.progressive.attribute_levels import ATTRIBUTE_LEVELS, ATTRIBUTE_SCORES, ATTRIBUTE_STEPS, FALLS
from fca.studies.progressive.hierarchy import HIERARCHY, HIERARCHY_CORRELATION, HIERARCHY_PATTERNS
from fca.studies.progressive.levels import ACCURACY, ATTRIBUTE, BY_LEVEL, LEVEL, LEVELS, SCORE, SESSIONS
from fca.studies.progressive.validate_levels import (
    CONFIDENCE,
    CONFIDENCE_LEVELS,
    CONFIDENCE_TRENDS,
    CONTRADICTIONS_SHOWN,
)
from fca.tables.table import DATASET, DROP, MODEL, MODELS, N_TEST, NOTE, VALUE, all_at_chance
from fca.types import Column, Table, interval_columns

STEP_PX = kinds.SIDE + 40  # from the top of one picture to the next, with two lines of text between
_SCORES = {
    hierarchy.HIERARCHICAL_SCORE: "matched triplets",
    hierarchy.SESSION_RATES: "accuracies of each session alone",
    hierarchy.LEVEL_RATES: "accuracies by level alone",
}
_EXCESSES = {
    hierarchy.MATCHED_EXCESS: "matched minus all: the same object",
    hierarchy.SESSION_EXCESS: "sessions minus levels: these differ",
}
SERIES = Column("series", str, "", "triplets", {name: name for name in _SCORES.values()})
EXCESS = SERIES.with_format("", "difference").with_choices({name: name for name in _EXCESSES.values()})
FOLLOWING = VALUE.with_format(".1%", "triplets that follow the order")
DIFFERENCE = VALUE.with_format("+.1%", "share of triplets")
_MODEL_COLUMNS = (ACCURACY, SCORE, *BY_LEVEL, hierarchy.P_MATCHED, hierarchy.TRIPLETS, SESSIONS, N_TEST)
_SCORE_HOVER = (DATASET, MODEL, SERIES, *interval_columns(FOLLOWING), *_MODEL_COLUMNS)
_EXCESS_HOVER = (DATASET, MODEL, EXCESS, *interval_columns(DIFFERENCE), *_MODEL_COLUMNS)
_COLOURS = ("#0072b2", "#009e73", kinds.GREY)
_SHAPES = ("circle", "square", "diamond")
_DARK = "#333a44"


def _initials_of_right(pattern: str) -> str:
    """The initials of the levels that are right in a pattern: `em` of 110, and `none` of 000."""
    initials = [level[0] for level, mark in zip(LEVELS, pattern, strict=True) if mark == "1"]
    return "".join(initials) or "none"


_INITIALS_OF_PATTERN = {
    pattern: _initials_of_right(pattern) for pattern in ("000", "100", "110", "111", "001", "010", "011", "101")
}
RIGHT = Column("right", str, "", "levels that are right")
_PATTERN_HOVER = (
    DATASET,
    MODEL,
    RIGHT,
    hierarchy.SHARE_OF_TRIPLETS,
    hierarchy.SESSION_RATES,
    hierarchy.LEVEL_RATES,
    hierarchy.TRIPLETS,
)
_ORDER_OF_FAILURE = {True: "harder images fail first", False: "an easier image fails first"}
ORDER = Column(hierarchy.FOLLOWS, str, "", "order of failure", {words: words for words in _ORDER_OF_FAILURE.values()})
BIN = Column("middle", str, "", "confidence (%)")
_BEST_FIRST = alt.EncodingSortField(ACCURACY, op="max", order="descending")
SHARE_RIGHT = ACCURACY.with_format(".0%", "accuracy")
FOLLOWED = hierarchy.HIERARCHICAL_SCORE.with_format(".0%", "triplets that follow the order")
COST = DROP.with_format("+.0%", "accuracy lost")
STEP_NAME = Column("step_name", str, "", "step")
MOST_NAMES = 10  # of attributes or classes in a sentence


def accuracy_statements(models: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on the accuracy of the best model, over all images, and on easy and hard ones.

    models: lines of the table hierarchy for one data set.

    >>> line = {"dataset": "zoo", "model": "vit", "accuracy": 0.8, "accuracy_low": 0.7, "accuracy_high": 0.9}
    >>> vit = line | {"easy": 0.95, "medium": 0.8, "hard": 0.65}
    >>> [statement] = accuracy_statements(pd.DataFrame([vit, vit | {"model": "vgg", "accuracy": 0.7}]))
    >>> print(statement.sentence)
    On zoo, the best of 2 models, vit, is right on 80 % [70, 90] of images: 95 % of easy and 65 % of hard ones.
    """
    best_first = models.sort_values(ACCURACY, ascending=False, kind="stable")
    hover = (MODEL, *interval_columns(SHARE_RIGHT), *BY_LEVEL)
    sentence = f"On {models[DATASET].iloc[0]}, {_accuracy_of_best(best_first)}."
    yield Statement(sentence, small.dots(best_first, MODEL, SHARE_RIGHT, hover))


def _accuracy_of_best(best_first: pd.DataFrame) -> str:
    """The main clause of `accuracy_statements`, for models in the order of their accuracy.

    It depends on whether there is one model, whether several share the best accuracy, and whether all are at chance.
    An accuracy over all images is that of the best model.
    """
    best = best_first.iloc[0].to_dict()
    accuracy = format_with_interval(best, SHARE_RIGHT)
    number = len(best_first)
    if all_at_chance(best_first):
        who = "the model is" if number == 1 else f"all {number} models are"
        return f"{who} at the level of chance: {accuracy} of images right"

    easiest, hardest = LEVELS[0], LEVELS[-1]
    by_level = f"{100 * best[easiest]:.0f} % of {easiest} and {100 * best[hardest]:.0f} % of {hardest} ones"
    if number == 1:
        return f"{best[MODEL]} is right on {accuracy} of images: {by_level}"

    equally_good = small.best_of(best_first, SHARE_RIGHT)[MODEL].tolist()
    if len(equally_good) == number:
        return f"all {number} models are right on {accuracy} of images"
    if len(equally_good) > 1:
        return f"the best models, {small.listed(equally_good)}, are right on {accuracy} of images"
    return f"the best of {number} models, {best[MODEL]}, is right on {accuracy} of images: {by_level}"


def hierarchy_figure(models: Table) -> alt.FacetChart:
    """Three scores of every model: its hierarchical score, and two that its accuracies alone would give.

    The hierarchical score is the share of (easy, medium, hard) triplets in which harder images fail first. The other
    two are the same share for independent responses: with the model's accuracies in each session (a class and an
    attribute), or with its accuracies by level. Each model has a row; colours and shapes distinguish the scores.

    models: the table hierarchy.
    """
    # A line for each model and score: the score's name in column SERIES, its value in FOLLOWING.
    frame = _lines_by_score(models.frame, _SCORES)
    # Where a data set names no triplets, the hierarchical score in the table is equal to the score by session.
    # It is drawn once: the lines of the hierarchical score are left out.
    has_triplets = frame[hierarchy.TRIPLETS].notna()
    is_hierarchical_score = frame[SERIES] == _SCORES[hierarchy.HIERARCHICAL_SCORE]
    frame = frame[has_triplets | ~is_hierarchical_score].reset_index(drop=True)

    coloured = kinds.hue(SERIES, frame, _COLOURS, _SHAPES)
    y = kinds.category(alt.Y, MODEL, _BEST_FIRST)
    x = kinds.quantity(alt.X, FOLLOWING, domainMax=1, padding=0)
    # dodge: the scores of one model are drawn side by side
    chart = kinds.points_with_intervals(FOLLOWING, y, _SCORE_HOVER, coloured, dodge=SERIES, scale=x, size=70)
    title = style.title(
        "Do models fail hard images before easy ones, beyond what accuracy makes of it?",
        "Each mark is a hierarchical score with its 95 % interval over classes; the most accurate model comes first.",
        "Scores by accuracy alone are those of independent predictions at these accuracies, in each session (class and "
        "attribute) or in all alike.",
    )
    # a panel for each heading in column `panel`; the page can filter by data set and model
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=12)


def order_statements(models: pd.DataFrame) -> Iterator[Statement]:
    """How often the model with the highest score fails on hard images before easy ones, then how often all models do.

    Beside each share is the share that accuracies alone "make": that of independent responses with these accuracies.

    models: lines of the table hierarchy for one data set. No statement where all models are at the level of chance.

    >>> line = {"dataset": "zoo", "model": "vit", "hierarchical_score": 0.9, "level_rates": 0.8, "session_rates": 0.88}
    >>> vit = line | {"hierarchical_score_low": 0.85, "hierarchical_score_high": 0.95}
    >>> vgg = vit | {"model": "vgg", "hierarchical_score": 0.86}
    >>> for statement in order_statements(pd.DataFrame([vit, vgg])): print(statement.sentence)
    On zoo, vit fails on the harder image first in 90 % [85, 95] of triplets; its accuracies by level alone make 80 %.
    zoo: 2 models follow the order of levels in 86 to 90 % of triplets; their accuracies by level alone make 80 %, \
those of each class and attribute 88 %.
    """
    if all_at_chance(models):
        return  # the statement of `parts_statements` gives the reason

    # FOLLOWED is the table's column hierarchical_score, in the format of sentences: percent without decimals.
    best_first = models.sort_values(FOLLOWED, ascending=False, kind="stable")
    best = best_first.iloc[0].to_dict()
    dataset = best[DATASET]
    followed = f"{best[MODEL]} fails on the harder image first in {format_with_interval(best, FOLLOWED)} of triplets"
    made_by_level = f"its accuracies by level alone make {100 * best[hierarchy.LEVEL_RATES]:.0f} %"
    # a small figure beside the sentence: a dot with its interval for each model
    dots = small.dots(best_first, MODEL, FOLLOWED, (MODEL, *interval_columns(FOLLOWED)))
    yield Statement(f"On {dataset}, {followed}; {made_by_level}.", dots)

    by_session = _percent_range(models[hierarchy.SESSION_RATES])
    if len(models) == 1:
        yield Statement(f"{dataset}: accuracies of each class and attribute alone make {by_session} of triplets.")
        return

    score = _percent_range(models[FOLLOWED])
    by_level = _percent_range(models[hierarchy.LEVEL_RATES])
    yield Statement(
        f"{dataset}: {len(models)} models follow the order of levels in {score} of triplets; their accuracies by "
        f"level alone make {by_level}, those of each class and attribute {by_session}."
    )


def _percent_range(shares: pd.Series) -> str:
    """The range of shares in percent, such as "86 to 90 %"; a single number where all are equal as printed."""
    low, high = (f"{100 * share:.0f}" for share in (shares.min(), shares.max()))
    return f"{low} %" if low == high else f"{low} to {high} %"


def parts_figure(models: Table) -> alt.FacetChart:
    """Two differences between hierarchical scores of each model, with their intervals.

    The first is the score of matched triplets (images of one object) minus the score of all triplets that the images of
    a session can form. It shows whether the same object fails first when hard. The second is the score of independent
    responses with the accuracies of each session (a class and an attribute), minus that with the accuracies by level.
    It shows whether sessions differ. Each model has a row; colours and shapes distinguish the differences.

    models: the table hierarchy.
    """
    # A line for each model and difference: the name of the difference in column EXCESS, its value in DIFFERENCE.
    frame = _lines_by_score(models.frame, _EXCESSES)
    # A data set that names no triplets lacks the first difference.
    frame = frame[frame[DIFFERENCE].notna()].reset_index(drop=True)

    coloured = kinds.hue(EXCESS, frame, _COLOURS[:2], _SHAPES[:2])  # one of each for either difference
    y = kinds.category(alt.Y, MODEL, _BEST_FIRST)
    chart = kinds.points_with_intervals(DIFFERENCE, y, _EXCESS_HOVER, coloured, dodge=EXCESS, line=kinds.ZERO, size=70)

    has_triplets = models.frame[hierarchy.MATCHED_EXCESS].notna().any()
    note = "" if has_triplets else " No triplets are named here, so that this part is unknown."
    title = style.title(
        "Is it the same object that fails first when hard?",
        "Each mark is a difference of scores with its 95 % interval over classes; the most accurate model comes first.",
        f"Only matched minus all triplets shows that; the other part only that sessions differ.{note}",
    )
    # a panel for each heading in column `panel`; the page can filter by data set and model
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=12)


def _lines_by_score(frame: pd.DataFrame, names: Mapping[Column, str]) -> pd.DataFrame:
    """The table hierarchy in long form: a line for each model and each of these columns.

    A line has the name of the column in `series`, its value and the ends of its interval in `value`, `value_low` and
    `value_high`, and the heading of the data set's panel in `panel`.

    names: the columns, with their names in the legend.
    """
    frames = [
        frame.assign(series=name, value=frame[column], value_low=frame[column.low], value_high=frame[column.high])
        for column, name in names.items()
    ]
    long = pd.concat(frames, ignore_index=True)
    return long.assign(panel=style.panels(long, DATASET))


def parts_statements(models: pd.DataFrame) -> Iterator[Statement]:
    """A sentence: for how many models the same object fails first when hard, more often than accuracies explain.

    The excess of a model is its score on matched triplets (images of one object) minus its score on all triplets of the
    same images. A model counts if the interval over classes of its excess is above 0. Where there is no interval (a
    single class), it counts if the excess is significant by p: the share of all ways to match the images that give
    this score or a higher one. The sentence also counts models for which sessions differ (a class and an attribute).

    models: lines of the table hierarchy for one data set.

    >>> net = {"dataset": "zoo", "matched_excess": 0.02, "matched_excess_low": 0.01, "session_excess_low": 0.04}
    >>> [statement] = parts_statements(pd.DataFrame([net, net | {"matched_excess_low": -0.01}]))
    >>> print(statement.sentence)
    On zoo, the same object fails first when hard, beyond what accuracies make, in 1 of 2 models (matched minus all \
triplets: 95 % interval over classes above 0); classes and attributes differ in 2 of 2.
    """
    dataset = models[DATASET].iloc[0]
    if all_at_chance(models):
        yield Statement(f"{dataset}: all models are at the level of chance; in which order they fail shows nothing.")
        return

    sessions_differ = models[hierarchy.SESSION_EXCESS.low] > 0
    differ = f"classes and attributes differ in {sessions_differ.sum()} of {len(models)}"
    if models[hierarchy.MATCHED_EXCESS].isna().all():
        yield Statement(f"On {dataset}, no triplets are named: objects are not tested; {differ}.")
        return

    same_object = f"On {dataset}, the same object fails first when hard, beyond what accuracies make, in"
    if models[hierarchy.MATCHED_EXCESS.low].isna().all():
        is_significant = models[hierarchy.P_MATCHED] < 0.05
        test = "p of the matching below 0.05; no interval over classes"
        # `differ` is left out: it needs intervals over classes, too
        yield Statement(f"{same_object} {is_significant.sum()} of {len(models)} models ({test}).")
        return

    is_above = models[hierarchy.MATCHED_EXCESS.low] > 0
    test = "matched minus all triplets: 95 % interval over classes above 0"
    yield Statement(f"{same_object} {is_above.sum()} of {len(models)} models ({test}); {differ}.")


def patterns_figure(patterns: Table) -> alt.FacetChart:
    """How often each model shows each pattern (bars), and how often accuracies alone would (ticks).

    A pattern is the levels of a triplet that are right. Each model has a panel. The colour of a bar shows whether the
    pattern follows the order of levels. Ticks are the shares for independent responses: black with the accuracies of
    each session (a class and an attribute), grey with the accuracies by level.

    patterns: the table hierarchy_patterns.
    """
    frame = patterns.frame.sort_values([DATASET, ACCURACY], ascending=[True, False], kind="stable")
    frame = frame.assign(
        right=frame["pattern"].map(_INITIALS_OF_PATTERN),
        follows=frame[hierarchy.FOLLOWS].map(_ORDER_OF_FAILURE),
    )
    frame["panel"] = style.panels(frame, DATASET, MODEL)

    x = kinds.category(alt.X, RIGHT, list(_INITIALS_OF_PATTERN.values()), RIGHT.meaning, grid=False)
    y = kinds.quantity(alt.Y, hierarchy.SHARE_OF_TRIPLETS, "triplets", zero=True, padding=0)
    bars = kinds.bars(x, y, _PATTERN_HOVER, kinds.hue(ORDER, frame, ("#2b9c6f", "#b0568f")))
    ticks: Any = alt.Chart().mark_tick(thickness=2, size=22, opacity=1).encode(x=x)
    by_level = ticks.encode(y=f"{hierarchy.LEVEL_RATES}:Q", color=alt.value(kinds.GREY))
    by_session = ticks.encode(y=f"{hierarchy.SESSION_RATES}:Q", color=alt.value(_DARK))

    title = style.title(
        "Which of easy, medium and hard does a model get right together?",
        "The letters are e for easy, m for medium, h for hard. Ticks are the shares that accuracies alone explain: "
        "black of each session, grey by level.",
    )
    chart = kinds.layers(bars, by_level, by_session)
    # a panel for each heading in column `panel`; the page can filter by data set and model
    return style.faceted(chart, frame, title, (DATASET, MODEL), height=190)


def correlation_figure(models: Table, correlation: Table) -> alt.FacetChart:
    """Two scores of each model against its accuracy, as points of different colours and shapes.

    One is the hierarchical score, with its interval and the model's name. The other, for comparison, is the score of
    independent responses with the model's accuracies by level.

    models: the table hierarchy.    correlation: hierarchy_correlation, whose coefficients are in the panels' headings.
    """
    score_names = {
        hierarchy.HIERARCHICAL_SCORE: "hierarchical score",
        hierarchy.LEVEL_RATES: _SCORES[hierarchy.LEVEL_RATES],
    }
    # A line for each model and score: the score's name in column SERIES, its value in FOLLOWING.
    frame = _lines_by_score(models.frame, score_names)
    # The column `panel` already has the heading of each data set's panel: add the plain and the partial correlation.
    coefficients = {str(dataset): _both_coefficients(lines) for dataset, lines in correlation.frame.groupby(DATASET)}
    frame["panel"] = [
        f"{panel}\n{coefficients[dataset]}" for panel, dataset in zip(frame["panel"], frame[DATASET], strict=True)
    ]

    # A model's name is above or below its interval, or its point if it has none. It is below for every second model in
    # the order of accuracy, so that the names of neighbours do not overlap.
    frame["lower"] = frame[FOLLOWING.low].fillna(frame[FOLLOWING])
    frame["upper"] = frame[FOLLOWING.high].fillna(frame[FOLLOWING])
    frame["below"] = frame.groupby(SERIES)[ACCURACY].rank(method="first") % 2 == 0

    series = SERIES.with_choices({name: name for name in score_names.values()})  # the legend has these two scores alone
    coloured = kinds.hue(series, frame, (_COLOURS[0], kinds.GREY), ("circle", "diamond"))
    x = kinds.quantity(alt.X, ACCURACY, padding=40)  # room for names
    y = kinds.quantity(alt.Y, FOLLOWING, domainMax=1, padding=0)
    points = kinds.scatter(x, y, _SCORE_HOVER, coloured)
    # Intervals and names are drawn for the hierarchical scores alone.
    scores: Any = alt.Chart().transform_filter("datum.series == 'hierarchical score'").encode(x=x)
    rules = kinds.interval_marks(scores.encode(color=coloured.colour()), FOLLOWING, on_y=True)
    text = scores.encode(text=f"{MODEL}:N")
    text_below = text.transform_filter("datum.below").mark_text(dy=10, fontSize=11).encode(y="lower:Q")
    text_above = text.transform_filter("!datum.below").mark_text(dy=-8, fontSize=11).encode(y="upper:Q")

    title = style.title(
        "Do more accurate models follow the order more?",
        "Each point is one model with its 95 % interval. The coefficient given level rates is without what these "
        "explain.",
    )
    chart = kinds.layers(rules, points, text_below, text_above)
    # a panel for each heading in column `panel`; the page can filter by data set and model
    return style.faceted(chart, frame, title, (DATASET, MODEL), height=300)


def correlation_statements(correlation: pd.DataFrame) -> Iterator[Statement]:
    """A sentence with the correlation of accuracy and score over models, plain and given the level rates.

    correlation: lines of the table hierarchy_correlation for one data set.
    """
    dataset, models = correlation[DATASET].iloc[0], correlation[MODELS].iloc[0]
    coefficients = _both_coefficients(correlation)
    yield Statement(f"{dataset}: accuracy and hierarchical score over {models} models: {coefficients}.")


def _both_coefficients(lines: pd.DataFrame) -> str:
    """The plain and the partial correlation of one data set, with their intervals, in words."""
    by_kind = {line[hierarchy.KIND]: r_text(line) for line in lines.to_dict("records")}
    return f"correlation {by_kind['pearson']}; given level rates {by_kind['partial']}"


def r_text(line: Mapping[Any, Any]) -> str:
    """A correlation with its interval as text; in place of the interval, the note on why there is none.

    >>> r_text({"r": 0.77, "r_low": None, "r_high": None, "note": "no interval"})
    '.77 (no interval)'
    >>> r_text({"r": -0.5, "r_low": -0.9, "r_high": 0.1, "note": None})
    '-.50 [-.90, .10]'
    """
    if pd.isna(line["r"]):
        return "not defined"

    coefficient = _without_leading_zero(line["r"])
    if pd.isna(line["r_low"]) or pd.isna(line["r_high"]):
        return f"{coefficient} ({line[NOTE]})" if pd.notna(line[NOTE]) else coefficient
    return f"{coefficient} [{_without_leading_zero(line['r_low'])}, {_without_leading_zero(line['r_high'])}]"


def _without_leading_zero(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)


def scores_figure(scores: Table) -> alt.FacetChart:
    """Score of every model on every attribute as a heat map; the best in bold, the second best in italics.

    Rows are models, columns attributes; the colour is the score.    scores: the table attribute_scores.
    """
    frame = scores.frame.assign(panel=style.panels(scores.frame, DATASET))
    x = alt.X(f"{ATTRIBUTE}:N", title=None, scale=alt.Scale(paddingInner=0.03), axis=alt.Axis(domain=False))
    y = style.names_axis(MODEL, list(dict.fromkeys(frame[MODEL])))
    heat: Any = kinds.heat_map(SCORE, x, y, scores.columns, (0.0, 1.0))
    squares, text = heat.layer  # the text is drawn in three ways instead of one, by rank
    rank = attribute_levels.MODEL_RANK
    best = text.transform_filter(f"datum.{rank} == 1").mark_text(fontSize=12, fontWeight=700)
    second = text.transform_filter(f"datum.{rank} == 2").mark_text(fontSize=12, fontStyle="italic")
    lower_ranks = text.transform_filter(f"datum.{rank} > 2").mark_text(fontSize=12)

    title = style.title(
        ATTRIBUTE_SCORES.question,
        "Each number is a score, (easy + 2 medium + 4 hard) / 7, over classes; bold is the best on an attribute, "
        "italic second.",
    )
    chart = kinds.layers(squares, best, second, lower_ranks)
    height = max(60, 30 * frame[MODEL].nunique())
    # a panel for each heading in column `panel`; the page can filter by data set and model
    panels = style.faceted(chart, frame, title, (DATASET, MODEL), height=height, columns=1)
    panels.spec.width = max(320, 66 * frame[ATTRIBUTE].nunique())
    return panels


def steps_figure(steps: Table) -> alt.FacetChart:
    """How much accuracy each step between levels costs in each attribute: the mean over models, with its interval.

    Each attribute has a row, with a dot in another colour for each step.    steps: the table attribute_steps.
    """
    title = style.title(
        "Does every level cost accuracy?",
        "Each mark is the mean over models with its 95 % interval over classes; right of the line the harder "
        "level is harder.",
    )
    return _dots_by_attribute(steps, DROP, attribute_levels.STEP, title, (DATASET,), line=kinds.ZERO, size=70)


def steps_statements(steps: pd.DataFrame) -> Iterator[Statement]:
    """Which step of which attribute costs most accuracy; then in how many attributes accuracy falls at both steps.

    steps: lines of the table attribute_steps for one data set.

    >>> line = {"dataset": "zoo", "attribute": "size", "step": "medium to hard", "verdict": "falls"}
    >>> hard = line | {"drop": 0.2, "drop_low": 0.1, "drop_high": 0.3}
    >>> medium = line | {"step": "easy to medium", "verdict": "undecided", "drop": 0.1, "drop_low": -0.1}
    >>> for statement in steps_statements(pd.DataFrame([hard, medium])): print(statement.sentence)
    On zoo, the step from medium to hard size costs most: +20 points [+10, +30] of accuracy.
    zoo: accuracy falls at both steps, easy to medium and medium to hard, in 0 of 1 attributes; it does not change \
significantly in size (easy to medium).
    >>> uncertain = hard | {"drop_low": -0.1, "drop_high": 0.5}
    >>> print(next(steps_statements(pd.DataFrame([uncertain, medium]))).sentence)
    On zoo, no step costs accuracy significantly; the step from medium to hard size costs +20 points [-10, +50].
    """
    dataset = steps[DATASET].iloc[0]
    step_names = steps[ATTRIBUTE] + ", " + steps[attribute_levels.STEP]
    # COST is the table's column drop, in the format of sentences: percent without decimals.
    costliest_first = steps.assign(**{STEP_NAME: step_names}).sort_values(COST, ascending=False, kind="stable")
    dots = small.dots(costliest_first, STEP_NAME, COST, (STEP_NAME, *interval_columns(COST)), line=0.0)
    if all_at_chance(steps):
        yield Statement(f"Not known: on {dataset}, all models are at the level of chance.", dots)
        return

    yield Statement(f"On {dataset}, {_costliest_step(costliest_first)}.", dots)

    verdicts = steps[attribute_levels.STEP_VERDICT]
    falls = verdicts.eq(FALLS).groupby(steps[ATTRIBUTE]).all()
    both_steps = f"both steps, {' and '.join(attribute_levels.STEPS)}, in {falls.sum()} of {len(falls)} attributes"
    # in a list of names, which commas separate, the step is in brackets
    names_in_list = steps[ATTRIBUTE] + " (" + steps[attribute_levels.STEP] + ")"
    exceptions = _clauses_on_exceptions(names_in_list, verdicts, attribute_levels.STEP_VERDICT.choices)
    yield Statement(f"{dataset}: accuracy falls at {both_steps}{exceptions}.")


def _costliest_step(costliest_first: pd.DataFrame) -> str:
    """The main clause of `steps_statements`: which step costs most, and how much.

    It names the costliest step that costs accuracy significantly, or all of them if several are equally costly.

    costliest_first: the lines in the order of their cost.
    """
    costly = costliest_first[costliest_first[COST.low] > 0]  # significant: the interval is above 0
    if costly.empty:
        # A step that costs the same in all classes has no interval. It counts if no other step costs more.
        # Costs that differ by at most ALIKE are equal but for rounding.
        costs_alike = costliest_first[COST.low].isna() & (costliest_first[COST] > ALIKE)
        is_largest = costliest_first[COST] >= costliest_first[COST].iloc[0] - ALIKE
        costly = costliest_first[costs_alike & is_largest]
    if costly.empty:
        first_step, first_cost = _name_of_first_step(costliest_first), _cost_of_first_step(costliest_first)
        return f"no step costs accuracy significantly; {first_step} costs {first_cost}"

    equally_costly = small.best_of(costly, COST)[STEP_NAME].tolist()
    if len(equally_costly) > 1:
        is_all = len(equally_costly) == len(costliest_first)
        which = "all steps" if is_all else f"the steps {small.listed(equally_costly)}"
        return f"{which} cost as much: {_cost_of_first_step(costly)} of accuracy"

    costs = "costs most:" if len(costliest_first) > 1 else "costs"
    if costly[COST].iloc[0] < costliest_first[COST].iloc[0]:  # another step costs more, but not significantly
        costs = "costs most of those that do so significantly:"
    return f"{_name_of_first_step(costly)} {costs} {_cost_of_first_step(costly)} of accuracy"


def _name_of_first_step(ordered: pd.DataFrame) -> str:
    """The first of these steps in words: "the step from medium to hard size"."""
    return f"the step from {ordered[attribute_levels.STEP].iloc[0]} {ordered[ATTRIBUTE].iloc[0]}"


def _cost_of_first_step(ordered: pd.DataFrame) -> str:
    """How much accuracy the first of these steps costs, with its interval, or with a note that it has none."""
    line = ordered.iloc[0].to_dict()
    return format_with_interval(line, COST) + (" (no interval)" if pd.isna(line[COST.low]) else "")


def levels_figure(levels: Table) -> alt.FacetChart:
    """Accuracy of every model on the levels of each attribute with Wilson's intervals; a panel for each model.

    Each attribute has a row, with a dot in another colour for each level.    levels: the table attribute_levels.
    """
    title = style.title(
        "How accurate is each model on easy, medium and hard images of each attribute?",
        "Bars are Wilson's 95 % intervals.",
    )
    x = kinds.quantity(alt.X, attribute_levels.TOP1_OF_LEVEL, domain=[0, 1])
    return _dots_by_attribute(levels, attribute_levels.TOP1_OF_LEVEL, LEVEL, title, (DATASET, MODEL), scale=x, size=55)


def _dots_by_attribute(
    table: Table, value: Column, colour: Column, title: alt.Title, panels: tuple[Column, ...], **options: Any
) -> alt.FacetChart:
    """Values with their intervals as dots, a row for each attribute and a dot for each value of `colour`.

    colour:  the column whose values have different colours.
    panels:  the columns by which lines are in separate panels.
    options: further arguments of `kinds.points_with_intervals`.
    """
    frame = table.frame.assign(panel=style.panels(table.frame, *panels))
    coloured = kinds.hue(colour, frame, ordered=True)
    y = kinds.category(alt.Y, ATTRIBUTE)
    chart = kinds.points_with_intervals(value, y, table.columns, coloured, dodge=colour, **options)
    figure = style.faceted(chart, frame, title, panels)
    figure.spec.height = alt.Step(12)  # pixels for each of the dots beside each other
    return figure


def bins_figure(bins: Table) -> alt.FacetChart:
    """Share of the images of each level in each bin of confidence: bars are means over models, lines their range.

    Each bin has a bar for each level, whose colour is the level.

    bins: the table confidence_levels.
    """
    frame = bins.frame.assign(panel=style.panels(bins.frame, DATASET))
    frame[BIN] = [f"{100 * low:.0f}-{100 * high:.0f}" for low, high in frame[["bin_low", "bin_high"]].to_numpy()]

    x = kinds.category(alt.X, BIN, list(dict.fromkeys(frame[BIN])), BIN.meaning, grid=False)
    y = kinds.quantity(alt.Y, validate_levels.SHARE_OF_LEVEL, zero=True, padding=0)
    x_offset = alt.XOffset(f"{LEVEL}:N", scale=alt.Scale(domain=list(LEVELS)))
    bars = kinds.bars(x, y, bins.columns, kinds.hue(LEVEL, frame, ordered=True), xOffset=x_offset)
    ranges: Any = alt.Chart().mark_rule(strokeWidth=1.5, color=kinds.GREY, opacity=0.7)
    lowest, highest = f"{validate_levels.SHARE_MIN}:Q", f"{validate_levels.SHARE_MAX}:Q"
    ranges = ranges.encode(x=x, xOffset=x_offset, y=lowest, y2=highest)

    title = style.title(
        CONFIDENCE_LEVELS.question,
        "Each bar is the share of images whose greatest probability is in one of ten equal bins, the mean of the "
        "models; grey lines are their range.",
    )
    # a panel for each heading in column `panel`; the page can filter by data set
    return style.faceted(kinds.layers(bars, ranges), frame, title, (DATASET,))


def trends_figure(trends: Table) -> alt.FacetChart:
    """Mean confidence by level of every attribute and class, each in a row with a dot in another colour for each level.

    Where confidence does not fall, the name of the row has the verdict of the tests.

    trends: the table confidence_trends.
    """
    frame = trends.frame.assign(by="by " + trends.frame["by"])
    frame["panel"] = style.panels(frame, DATASET, "by")
    verdicts = frame[validate_levels.TREND_VERDICT]
    frame["named"] = frame["value"].where(verdicts == FALLS, frame["value"] + " (" + verdicts + ")")
    rows = frame["named"].tolist()
    lowest, highest = frame[list(LEVELS)].min(axis=1), frame[list(LEVELS)].max(axis=1)

    # One line for each level. A rule from the lowest to the highest level joins the three dots of a row; it is drawn as
    # the "interval" of the first level, so that each row has it once.
    long = pd.concat([frame.assign(level=level, confidence=frame[level]) for level in LEVELS], ignore_index=True)
    is_first_level = long[LEVEL] == LEVELS[0]
    long[CONFIDENCE.low] = pd.concat([lowest] * 3, ignore_index=True).where(is_first_level)
    long[CONFIDENCE.high] = pd.concat([highest] * 3, ignore_index=True).where(is_first_level)

    y = kinds.category(alt.Y, "named", rows)
    rules = kinds.interval_marks(alt.Chart().encode(y=y), CONFIDENCE, on_y=False)
    coloured = kinds.hue(LEVEL, long, ordered=True)
    dots = kinds.points_with_intervals(CONFIDENCE, y, trends.columns, coloured, size=70)
    title = style.title(
        "Does confidence fall from easy to medium to hard?",
        "Each row is a mean over models. A verdict is in brackets where confidence does not fall at both steps: trend, "
        "if it falls only as a whole (Page's test, Holm); rises, if it rises at a step (paired t, Holm); undecided, if "
        "neither.",
    )
    # a panel for each heading in column `panel`; the page can filter by data set
    return style.faceted(kinds.layers(rules, dots), long, title, (DATASET,), columns=2, row=20)


def trends_statements(trends: pd.DataFrame) -> Iterator[Statement]:
    """A sentence each for attributes and classes: in how many mean confidence falls, and in which it does not.

    trends: lines of the table confidence_trends for one data set.

    >>> line = {"dataset": "zoo", "by": "attribute", "value": "size", "verdict": "falls"}
    >>> [statement] = trends_statements(pd.DataFrame([line, line | {"value": "view", "verdict": "rises"}]))
    >>> print(statement.sentence)
    zoo: mean confidence falls at both steps in 1 of 2 attributes; it rises at a step in view.
    """
    plural = {"attribute": "attributes", "class": "classes"}
    for kind, tested in trends.groupby(validate_levels.BY, sort=False):
        verdicts = tested[validate_levels.TREND_VERDICT]
        count = f"{(verdicts == FALLS).sum()} of {len(tested)} {plural[str(kind)]}"
        exceptions = _clauses_on_exceptions(
            tested[validate_levels.VALUE], verdicts, validate_levels.TREND_VERDICT.choices
        )
        dataset = tested[DATASET].iloc[0]
        yield Statement(f"{dataset}: mean confidence falls at both steps in {count}{exceptions}.")


def _clauses_on_exceptions(names: pd.Series, verdicts: pd.Series, words: Mapping[str, str]) -> str:
    """The end of a sentence about attributes or classes that fall: a clause for each other verdict, with their names.

    A clause lists at most MOST_NAMES names. The text is empty if all fall.

    names, verdicts: the attributes or classes, and the verdict on each.
    words: each verdict as a verb phrase, such as "rises at a step".
    """
    does_not_fall = verdicts != FALLS
    clauses = []
    for verdict, same_verdict in names[does_not_fall].groupby(verdicts[does_not_fall], sort=False):
        first_names = ", ".join(same_verdict.head(MOST_NAMES))
        number_left = len(same_verdict) - MOST_NAMES
        further_names = f" and {number_left} more" if number_left > 0 else ""
        clauses.append(f"; it {words[str(verdict)]} in {first_names}{further_names}")
    return "".join(clauses)


def contradictions_figure(shown: Table) -> alt.FacetChart:
    """A grid of pictures for each kind of contradiction, with class, attribute and confidence below each picture.

    shown: the table contradictions_shown.
    Raises NothingToDraw if the table has no image, or if no image has a thumbnail. In the second case the message names
    the commands that make thumbnails.
    """
    if shown.frame.empty:
        raise style.NothingToDraw("no image contradicts its level")
    frame = shown.frame.dropna(subset="thumbnail")
    if frame.empty:
        commands = [f"fca run task=describe dataset={name}" for name in dict.fromkeys(shown.frame[DATASET])]
        raise style.NothingToDraw(f"no pictures; next: {'; '.join(commands)}")

    # Each kind has a panel, whose heading has the number of all images of the kind (column `of`).
    kind_name = frame["kind"].map(dict(validate_levels.CONTRADICTION.choices))
    frame = frame.assign(kind_with_number=kind_name + " (" + frame["of"].astype(str) + ")")
    frame["panel"] = style.panels(frame, DATASET, "kind_with_number")
    frame["under"] = [
        f"{attribute}, {100 * confidence:.0f} %"
        for attribute, confidence in zip(frame[ATTRIBUTE], frame[CONFIDENCE], strict=True)
    ]

    hover = [column for column in shown.columns if column not in ("thumbnail", "row", "column", "kind", "of")]
    chart = kinds.pictures(frame, hover, "label", "under")  # two lines of text: the class, then column `under`
    title = style.title(
        CONTRADICTIONS_SHOWN.question,
        "The most confident come first, with class, attribute and mean confidence; the number is in brackets.",
    )
    gap_px = 28  # between two pictures of a row
    height = int((frame["row"].max() + 1) * STEP_PX)  # STEP_PX: a picture with its text
    width = int((frame["column"].max() + 1) * (kinds.SIDE + gap_px))
    panels = style.faceted(chart, frame, title, (DATASET,), height=height, columns=1)
    panels.usermeta = kinds.FIXED  # the page does not stretch the panels: pictures keep their size
    panels.spec.width = width
    return panels


def contradictions_statements(shown: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on how many images contradict their level, for each kind of contradiction.

    shown: lines of the table contradictions_shown for one data set.

    >>> line = {"dataset": "zoo", "kind": "easy, missed by all", "of": 3, "models": 6}
    >>> [statement] = contradictions_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    zoo: images that contradict their level for 6 models: 3 easy, but no model is right.
    """
    dataset, models = shown[DATASET].iloc[0], shown[MODELS].iloc[0]
    count_of_kind = dict(zip(shown[validate_levels.CONTRADICTION], shown[validate_levels.NUMBER], strict=True))
    counts = "; ".join(
        f"{count} {validate_levels.CONTRADICTION.choices[kind]}" for kind, count in count_of_kind.items()
    )
    yield Statement(f"{dataset}: images that contradict their level for {models} models: {counts}.")


FINDINGS = (
    Finding(
        "hierarchy_accuracy",
        "Accuracy from easy to hard",
        (HIERARCHY,),
        "How accurate are models, easy to hard?",
        accuracy_statements,
    ),
    Finding(
        "attribute_steps",
        "What a level costs",
        (ATTRIBUTE_STEPS,),
        "What does a harder level cost?",
        steps_statements,
        steps_figure,
    ),
    Finding(
        "hierarchy",
        "Hard images fail first",
        (HIERARCHY,),
        "Do hard images fail first?",
        order_statements,
        hierarchy_figure,
    ),
    Finding("hierarchy_parts", "Objects or sessions", (HIERARCHY,), state=parts_statements, draw=parts_figure),
    Finding("hierarchy_patterns", "Patterns of right and wrong", (HIERARCHY_PATTERNS,), draw=patterns_figure),
    Finding(
        "hierarchy_correlation",
        "Order and accuracy",
        (HIERARCHY, HIERARCHY_CORRELATION),
        draw=correlation_figure,
    ),
    Finding(
        "hierarchy_coefficients",
        "Correlation of order and accuracy",
        (HIERARCHY_CORRELATION,),
        state=correlation_statements,
    ),
    Finding("attribute_scores", "Scores by attribute", (ATTRIBUTE_SCORES,), draw=scores_figure),
    Finding("attribute_levels", "Accuracy by attribute and level", (ATTRIBUTE_LEVELS,), draw=levels_figure),
    Finding("confidence_levels", "Confidence by level", (CONFIDENCE_LEVELS,), draw=bins_figure),
    Finding(
        "confidence_trends",
        "Confidence by attribute and class",
        (CONFIDENCE_TRENDS,),
        state=trends_statements,
        draw=trends_figure,
    ),
    Finding(
        "contradictions",
        "Images that contradict their level",
        (CONTRADICTIONS_SHOWN,),
        state=contradictions_statements,
        draw=contradictions_figure,
    ),
)
