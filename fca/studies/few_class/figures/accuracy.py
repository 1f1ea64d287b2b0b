"""Accuracy by number of classes, gain of sub-models, ranks, and the findings of the paper: figures and statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import ALIKE, format_with_interval
from fca.studies.few_class import accuracy
from fca.studies.few_class.findings import FINDING_VALUE, FINDING_VERDICT, MEASURES, NO_EFFECT, PAPER_FINDINGS, UNIT
from fca.studies.few_class.subset_accuracy import DIFFERENCE
from fca.tables.table import (
    CHANCE,
    DATASET,
    MEASURE,
    MODEL,
    MODELS,
    NCL,
    NO_MEAN_INTERVAL,
    PROTOCOL,
    SUBSETS,
    TOP1,
    all_at_chance,
    lines_at_chance,
)
from fca.types import Column, Table, interval_columns

NAMES = {
    "sub": "sub-models",
    "open": "open full models",
    "masked": "masked full models",
    "grouped": "grouped full models",
}
SEVERAL_MODELS = {  # protocol -> models of this kind; a statement is about the first protocol that is stored
    "sub": "sub-models",
    "masked": "full models (masked)",
    "open": "full models (open)",
    "grouped": "full models (grouped)",
}
ONE_MODEL = {
    "sub": "a {} trained on them",
    "masked": "a {} trained on all classes, asked among them",
    "open": "a {} trained on all classes",
    "grouped": "a {} trained on all classes, in groups",
}
ACCURACY = TOP1.with_format(".1%", "accuracy")
CLASSES = NCL.with_format(".0f", "classes")
GUESS = CHANCE.with_format(".1%", "accuracy of guessing")
GAIN_OPEN = accuracy.SUB_MINUS_OPEN.with_format("+.1%", "gain of a sub-model")
GAIN_MASKED = accuracy.SUB_MINUS_MASKED.with_format("+.1%", "gain of a sub-model")
LIMITED = "models of all classes limited to the same labels"
_INTERVAL = "95 % interval over subset seeds"
_DIFFERENCE = DIFFERENCE.with_format("+.2%", "sub-model minus full model")
_VERDICTS = {
    "sub-models above open full models": "sub-models are more accurate than open full models",
    "not above": "sub-models are not more accurate than open full models",
    "undecided": "the difference between sub-models and open full models is not significant",
    NO_MEAN_INTERVAL: "sub-models minus open full models",
}


def accuracy_figure(points: Table, means: Table) -> alt.FacetChart:
    """The figure of accuracy against the number of classes: single subsets, and their mean with its interval.

    There is one panel for each data set and model.
    points: table accuracy_points, with a line for each subset.
    means:  table accuracy, with the means over subsets.
    """
    # a chart has one set of data, so both tables are joined; column `mark` distinguishes their lines
    subsets = points.frame.assign(mark="point").astype({TOP1: "float64"})
    means_of_subsets = means.frame.assign(mark="mean").astype({TOP1: "float64"})
    frame = _in_order(pd.concat([subsets, means_of_subsets]), DATASET, MODEL)

    x = style.ncl_axis()
    coloured = kinds.hue(PROTOCOL, frame)
    # dodge: protocols beside each other; joined: one line through the means of each protocol
    large_marks = kinds.points_with_intervals(
        TOP1, x, means.columns, coloured, dodge=PROTOCOL, joined=PROTOCOL, where="datum.mark == 'mean'"
    )
    small_marks = alt.Chart().transform_filter("datum.mark == 'point'").mark_circle(size=28)
    small_marks = small_marks.encode(
        x=x,
        xOffset=f"{PROTOCOL}:N",
        y=f"{TOP1}:Q",
        tooltip=kinds.tooltips(points.columns),
        color=coloured.colour(),
        opacity=coloured.opacity(0.5),
    )

    title = style.title(
        "How does accuracy change with the number of classes?",
        f"Each small mark is one class subset, each large one the mean of the subsets with its {_INTERVAL}.",
    )
    return style.faceted(kinds.layers(small_marks, large_marks), frame, title, filters=(DATASET, MODEL, NCL, PROTOCOL))


def dcn_figure(dcn: Table) -> alt.FacetChart:
    """The best accuracy of any model on each subset, against ncl; one panel for each data set."""
    title = style.title(
        "How accurate is the best of the models?",
        "Each mark is the accuracy of the best model on one class subset (DCN). Hover to see which model that is.",
    )
    best = kinds.quantity(alt.Y, TOP1, "accuracy of the best model (DCN)")
    return _by_ncl(dcn.frame, TOP1, dcn.columns, title, best, joined=NCL)


def gap_figure(gap: Table) -> alt.FacetChart:
    """The figure of how much more accurate sub-models are than full models, against the number of classes.

    Full models are scored by the protocols open and masked, so there are two differences: a colour for each protocol,
    a panel for each data set.
    gap: table `gap`, with both differences (and their intervals) in columns of their own.
    """
    hover = (DATASET, PROTOCOL, NCL, *interval_columns(_DIFFERENCE), MODELS, SUBSETS)

    # a line of the table becomes two lines, one for each protocol, with its difference in column _DIFFERENCE
    differences = []
    for protocol, column in (("open", accuracy.SUB_MINUS_OPEN), ("masked", accuracy.SUB_MINUS_MASKED)):
        new_names = dict(zip(interval_columns(column), interval_columns(_DIFFERENCE), strict=True))
        difference = gap.frame.rename(columns=new_names).assign(protocol=protocol)
        # the chart's data have the columns of the tooltip and, in addition, the number of pairs behind each mean
        differences.append(difference[[*hover, accuracy.N_PAIRS]])

    title = style.title(
        "How much more accurate are sub-models than full models?",
        "Each mark is the accuracy of sub-models minus that of full models on the same class subsets, the mean over",
        f"models and subsets with its {_INTERVAL}. Above the line, training on the subset only pays.",
    )
    axis = kinds.quantity(alt.Y, _DIFFERENCE)
    return _by_ncl(pd.concat(differences), _DIFFERENCE, hover, title, axis, line=kinds.ZERO, size=90)


def agreement_figure(agreement: Table) -> alt.FacetChart:
    """Spearman's rho between the models' ranking on all classes and on few, against ncl."""
    title = style.title(
        "Does the ranking of models on all classes hold for few?",
        f"1 is the same order, 0 is no relation. Each mark is the mean over class subsets with its {_INTERVAL}.",
    )
    axis = kinds.quantity(alt.Y, accuracy.RANKING_RHO, domainMax=1)
    of_several_models = agreement.frame[agreement.frame[MODELS] > 1]  # one model has no ranking
    return _by_ncl(of_several_models, accuracy.RANKING_RHO, agreement.columns, title, axis, line=kinds.ZERO, size=90)


def ranks_figure(ranks: Table) -> alt.FacetChart:
    """Mean rank of every model at every ncl as a heat map, one panel for each protocol."""
    frame = by_protocol(of_several_models(ranks.frame))
    title = style.title(
        "Does the best model change with the number of classes?",
        "Each number is the mean rank of a model over the class subsets; 1 is the most accurate.",
    )
    worst_rank = float(max(frame[MODEL].nunique(), 2))  # a scale of colours needs two different ends
    return models_by_ncl(frame, accuracy.RANK, ranks.columns, title, (1.0, worst_rank), best_low=True)


def of_several_models(frame: pd.DataFrame) -> pd.DataFrame:
    """The lines of each data set and protocol that have two models or more, as a single model has no order.

    Raises NothingToDraw if the frame has lines, but none of several models.
    """
    n_models = frame.groupby([DATASET, PROTOCOL])[MODEL].transform("nunique")
    has_several = n_models > 1
    if len(frame) and not has_several.any():
        raise style.NothingToDraw("one model has no order; next: fca run -m model=FIRST,SECOND")
    return frame[has_several]


def models_by_ncl(
    frame: pd.DataFrame,
    value: Column,
    hover: tuple[Column, ...],
    title: alt.Title,
    domain: tuple[float, float],
    best_low: bool = False,
) -> alt.FacetChart:
    """A heat map of a value of every model (rows, the best at the top and bright) at every ncl (columns).

    frame:    lines with a column `panel`; there is one panel for each of its values.
    hover:    the columns that a tooltip shows.
    domain:   the values at both ends of the colours.
    best_low: whether a low value is good, as for ranks.
    """
    order: Any = "ascending" if best_low else "descending"
    rows = style.names_axis(MODEL, alt.EncodingSortField(value, op="mean", order=order))
    chart = kinds.heat_map(value, style.ncl_axis(gap=0.04), rows, hover, domain, bright_low=best_low)
    fields = (DATASET, MODEL, NCL, PROTOCOL)
    height = max(90, 30 * frame[MODEL].nunique())
    return style.faceted(chart, frame, title, filters=fields, height=height, columns=frame[PROTOCOL].nunique())


def _by_ncl(
    frame: pd.DataFrame, value: Column, hover: tuple[Column, ...], title: alt.Title, axis: Any, **look: Any
) -> alt.FacetChart:
    """A value against ncl: dots with intervals, coloured by protocol, with one panel for each data set.

    hover: the columns that a tooltip shows.
    axis:  of the value.
    look:  options of kinds.points_with_intervals.
    """
    frame = _in_order(frame, DATASET)
    coloured = kinds.hue(PROTOCOL, frame)
    x = style.ncl_axis()
    chart = kinds.points_with_intervals(value, x, hover, coloured, dodge=PROTOCOL, scale=axis, **look)
    return style.faceted(chart, frame, title, filters=(DATASET, NCL, PROTOCOL))


def by_protocol(frame: pd.DataFrame, *fields: str, below: bool = False) -> pd.DataFrame:
    """The frame sorted by data set, protocol (in the order of PROTOCOL.choices) and ncl, with two more columns.

    Column `way` is the protocol in words. Column `panel` is the heading of the panel in which the line is drawn: the
    values of the data set, of `fields` and of `way`, except values that are equal in the whole frame.

    fields: further columns that separate panels.
    below:  whether the protocol starts a new line in the heading, because its words are long.
    """
    protocols_in_words = list(PROTOCOL.choices.values())
    # a categorical column sorts in the order of its categories; as text it can be joined to a heading
    frame = frame.assign(way=pd.Categorical(frame[PROTOCOL].map(PROTOCOL.choices), protocols_in_words))
    frame = frame.sort_values([DATASET, "way", NCL], kind="stable", ignore_index=True)
    frame = frame.astype({"way": "str"})

    panels = list(style.panels(frame, DATASET, *fields, "way"))
    if below:
        named_panels = zip(panels, frame["way"], strict=True)
        # where all protocols are equal, the heading does not contain the protocol and stays unchanged
        panels = [panel.replace(f" · {protocol}", f"\n{protocol}") for panel, protocol in named_panels]
    return frame.assign(panel=panels)


def _in_order(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """The frame sorted by these fields and ncl, with a column `panel`: the heading that names the line's fields."""
    frame = frame.sort_values([*fields, NCL], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, *fields))


def findings_figure(findings: Table) -> alt.FacetChart:
    """The figure of the paper's findings: every measure with its interval, a panel for each data set and unit.

    A dashed line marks the value without an effect: 0 for differences, 1 for ratios.
    findings: table `findings`, with a line for each measure.
    """
    frame = findings.frame.assign(words=findings.frame[UNIT].map(dict(UNIT.choices)))
    frame["panel"] = style.panels(frame, DATASET, "words")
    measures = [measure for measure, _ in MEASURES.values()]  # in words; the other part is the unit
    rows = kinds.category(alt.Y, MEASURE, measures, labelLimit=480)
    axis = kinds.quantity(alt.X, FINDING_VALUE, "")
    # line: the column with the place of the dashed line
    chart = kinds.points_with_intervals(FINDING_VALUE, rows, findings.columns, scale=axis, line=str(NO_EFFECT))

    # the verdict on a measure without an interval is the reason why it has none
    reasons_for_no_interval = frame.loc[frame[FINDING_VALUE.low].isna(), FINDING_VERDICT]
    title = style.title(
        PAPER_FINDINGS.question,
        "Each dot is the mean over class subsets with its 95 % interval over subset seeds; the dashed line "
        "is no effect.",
        *without_bars(reasons_for_no_interval),  # a last line, if some dots have no interval
    )
    figure = style.faceted(chart, frame, title, filters=(DATASET,), columns=1, row=24)  # row: pixels for each measure
    return figure.resolve_scale(x="independent", y="independent")  # panels differ in unit and in their measures


def without_bars(reasons: pd.Series) -> list[str]:
    """One line of a subtitle with the reasons why some values have no interval; no line if there are no reasons.

    reasons: texts, with missing ones among them.

    >>> without_bars(pd.Series(["no interval: 3 subset seeds, 5 needed", None]))
    ['Without a bar: 3 subset seeds, 5 needed.']
    """
    texts = [reason.removeprefix("no interval: ") for reason in sorted(set(reasons.dropna()))]
    joined = "; ".join(texts)
    return [f"Without a bar: {joined}."] if joined else []


def of_first_protocol(means: pd.DataFrame) -> pd.DataFrame:
    """The lines of the first protocol, in the order of SEVERAL_MODELS, that has an accuracy: sub-models if possible."""
    measured = means.dropna(subset=TOP1)
    position_of_protocol = measured[PROTOCOL].map(list(SEVERAL_MODELS).index)
    return measured[position_of_protocol == position_of_protocol.min()]


def accuracy_statements(means: pd.DataFrame) -> Iterator[Statement]:
    """One statement: the best model at the fewest classes with its accuracy, and the best model at the most classes.

    It is about sub-models if there are any, otherwise about full models.
    means: lines of table `accuracy`, of one data set.

    >>> line = {"dataset": "digits", "protocol": "sub", "model": "vit", "subsets": 3}
    >>> few = line | {"ncl": 2, "top1": 0.98, "top1_low": 0.97, "top1_high": 0.99}
    >>> many = line | {"ncl": 10, "top1": 0.91, "top1_low": 0.89, "top1_high": 0.93}
    >>> [statement] = accuracy_statements(pd.DataFrame([few, many]))
    >>> print(statement.sentence)
    With 2 classes of digits, a vit trained on them reaches 98.0 % [97.0, 99.0]; with 10, 91.0 %.
    >>> other = {"model": "net", "top1": 0.95}
    >>> [statement] = accuracy_statements(pd.DataFrame([few, few | other, many, many | other]))
    >>> print(statement.sentence)
    With 2 classes of digits, the best of 2 sub-models, vit, reaches 98.0 % [97.0, 99.0]; with 10, net, 95.0 %.
    >>> guessing = few | {"chance": 0.98, "at_chance": True}
    >>> [statement] = accuracy_statements(pd.DataFrame([guessing, many]))
    >>> print(statement.sentence)
    With 2 classes of digits, a vit trained on them is at the level of chance (98.0 %): 98.0 % [97.0, 99.0]; with 10, \
91.0 %.
    """
    lines = of_first_protocol(means)
    best_at_each_ncl = [small.best_of(at_ncl, ACCURACY) for _, at_ncl in lines.groupby(NCL, sort=True)]
    best = pd.concat(best_at_each_ncl)  # several lines of one ncl if models are equally accurate

    # the fewest classes at which the best accuracy has an interval, since the sentence should have one; it is missing
    # where all subsets score equally
    has_interval = best[ACCURACY.low].notna()
    lowest_ncl = best.loc[has_interval, NCL].min() if has_interval.any() else best[NCL].min()
    highest_ncl = best[NCL].max()
    is_single_model = len(lines[MODEL].unique()) == 1

    at_lowest = _at_fewest_classes(lines[lines[NCL] == lowest_ncl], best[best[NCL] == lowest_ncl], is_single_model)
    sentence = f"With {lowest_ncl} classes of {lines[DATASET].iloc[0]}, {at_lowest}"
    if highest_ncl > lowest_ncl:  # otherwise only one number of classes is stored
        is_highest = lines[NCL] == highest_ncl
        at_highest = _at_most_classes(lines[is_highest], best[best[NCL] == highest_ncl], is_single_model)
        sentence += f"; with {highest_ncl}, {at_highest}"

    hover = (MODEL, CLASSES, *interval_columns(ACCURACY), SUBSETS)
    yield Statement(f"{sentence}.", small.curve(best.drop_duplicates(NCL), CLASSES, ACCURACY, hover))


def _at_fewest_classes(lines: pd.DataFrame, best: pd.DataFrame, is_single_model: bool) -> str:
    """A clause that names the best models at the fewest classes with their accuracy.

    If all models are at the level of chance, the clause states this and names no best model.

    lines:           the accuracies of all models at this ncl, one line for each.
    best:            the lines with the highest accuracy.
    is_single_model: whether there is only one model at any ncl; it is then described instead of ranked.
    """
    first = best.iloc[0].to_dict()
    accuracy_text = format_with_interval(first, ACCURACY)
    models = SEVERAL_MODELS[first[PROTOCOL]]
    n_models = lines[MODEL].nunique()

    if is_single_model:
        subject = ONE_MODEL[first[PROTOCOL]].format(first[MODEL])
    elif n_models == 1:
        subject = f"{first[MODEL]}, the only one of the {models} there,"
    elif len(best) == n_models:
        subject = small.all_of(n_models, models)
    else:
        subject = f"the best of {n_models} {models}, {small.listed(best[MODEL].tolist())},"

    if all_at_chance(lines):
        level = f"at the level of chance ({_accuracy_of_guessing(first)})"
        if n_models > 1:
            return f"{small.all_of(n_models, models)} are {level}"
        return f"{subject} is {level}: {accuracy_text}"

    verb = "reach" if len(best) > 1 else "reaches"
    return f"{subject} {verb} {accuracy_text}"


def _at_most_classes(lines: pd.DataFrame, best: pd.DataFrame, is_single_model: bool) -> str:
    """The best models at the most classes with their accuracy, as the end of the sentence on the fewest classes.

    If all models are at the level of chance, the clause states this instead. A single model is not named again.

    lines:           the accuracies of all models at this ncl, one line for each.
    best:            the lines with the highest accuracy.
    is_single_model: whether there is only one model at any ncl.
    """
    n_models = lines[MODEL].nunique()
    if all_at_chance(lines):
        level = f"at the level of chance ({_accuracy_of_guessing(lines.iloc[0].to_dict())})"
        if is_single_model:
            return f"it is {level}"
        if n_models == 1:
            return f"{lines[MODEL].iloc[0]}, the only one, is {level}"
        return f"{small.all_of(n_models)} are {level}"

    # with the accuracy alone in the mapping, the text has no interval: the sentence stays short
    accuracy_text = format_with_interval({TOP1: best[TOP1].iloc[0]}, ACCURACY)
    if is_single_model:
        return accuracy_text
    if len(best) == n_models > 1:
        return f"{small.all_of(n_models)}, {accuracy_text}"
    only = ", the only one" if n_models == 1 else ""
    return f"{small.listed(best[MODEL].tolist())}{only}, {accuracy_text}"


def _accuracy_of_guessing(line: Mapping[Any, Any]) -> str:
    """The accuracy of guessing as text, without an interval."""
    return format_with_interval({CHANCE: line[CHANCE]}, GUESS)


def gain_statements(gap: pd.DataFrame) -> Iterator[Statement]:
    """Statements on how much more accurate sub-models are than full models.

    The first statement is about the fewest classes. It compares with full models limited to the labels of the subset
    (masked). This comparison is fair, because both models then know which classes there are. Further statements give
    the gain at more classes, and the gain over open full models. The latter is large by construction, because an open
    model may also predict classes that are not in the subset. No gain is stated where all models are at the level of
    chance.

    gap: lines of table `gap`, of one data set.

    >>> line = {"dataset": "digits", "ncl": 2, "models": 3, "subsets": 3}
    >>> line |= {"verdict": "sub-models above open full models"}
    >>> line |= {"sub_minus_open": 0.22, "sub_minus_open_low": 0.15, "sub_minus_open_high": 0.29}
    >>> line |= {"sub_minus_masked": 0.022, "sub_minus_masked_low": 0.004, "sub_minus_masked_high": 0.039}
    >>> for statement in gain_statements(pd.DataFrame([line])): print(statement.sentence)
    Yes: at 2 classes of digits, sub-models are +2.2 points [+0.4, +3.9] better than models of all classes limited to \
the same labels (the gain over models that may also predict the other classes: +22.0 points).
    digits: sub-models are more accurate than open full models at ncl 2 (+22.0 points [+15.0, +29.0]); 95 % over 3 \
subsets.
    >>> lines = [line | {"sub_minus_masked_low": -0.01}, line | {"ncl": 5}]
    >>> first, second, _ = gain_statements(pd.DataFrame(lines))
    >>> print(first.sentence.partition(",")[0])
    Not significantly: at 2 classes of digits
    >>> print(second.sentence)
    digits: sub-models minus full models limited to the same labels (masked) at ncl 5 (+2.2 points [+0.4, +3.9]); \
95 % over 3 subsets.
    """
    lines = gap.sort_values(NCL, kind="stable")
    dataset = lines[DATASET].iloc[0]
    is_at_chance = lines_at_chance(lines)
    is_masked_known = pd.notna(lines[GAIN_MASKED].iloc[0])
    gain = GAIN_MASKED if is_masked_known else GAIN_OPEN  # which gain the chart of the first statement shows
    chart = small.curve(lines, CLASSES, gain, (CLASSES, *interval_columns(gain), MODELS, SUBSETS), line=0.0)
    yield Statement(_gain_at_fewest_classes(lines.iloc[0].to_dict(), bool(is_at_chance.iloc[0])), chart)

    # one sentence for all further numbers of classes
    further_lines = lines.iloc[1:]
    is_further_at_chance = is_at_chance.iloc[1:]
    lines_of_guessing = further_lines[is_further_at_chance]
    if len(lines_of_guessing):
        at_ncl = small.listed(lines_of_guessing[NCL].tolist())
        reason = "sub-models and full models are at the level of chance"
        yield Statement(f"{dataset}: no gain is known at ncl {at_ncl}: {reason}.")

    masked_lines = further_lines[~is_further_at_chance].dropna(subset=GAIN_MASKED)
    if len(masked_lines):
        difference = "sub-models minus full models limited to the same labels (masked)"
        yield Statement(f"{dataset}: {difference} {_gain_by_ncl(masked_lines, GAIN_MASKED)}.")

    # open full models, at all numbers of classes
    for verdict, lines_of_verdict in lines[~is_at_chance].groupby(accuracy.GAP_VERDICT, sort=False):
        yield Statement(f"{dataset}: {_VERDICTS[str(verdict)]} {_gain_by_ncl(lines_of_verdict, GAIN_OPEN)}.")


def _gain_at_fewest_classes(line: Mapping[Any, Any], is_at_chance: bool) -> str:
    """The sentence on whether sub-models gain on full models limited to the same labels (masked), at one ncl.

    The gain over open full models follows in brackets. LIMITED is the name of masked models in words.

    line:         a line of table `gap`.
    is_at_chance: whether sub-models and full models are all at the level of chance, where no gain is known.
    """
    where = f"at {line[NCL]} classes of {line[DATASET]}"
    if is_at_chance:
        return f"Not known: {where}, sub-models and full models are at the level of chance."

    # with the gain alone in the mapping, the text has no interval
    open_points = format_with_interval({GAIN_OPEN: line[GAIN_OPEN]}, GAIN_OPEN)
    open_gain = f"(the gain over models that may also predict the other classes: {open_points})"
    if pd.isna(line[GAIN_MASKED]):
        return f"Not known: {where}, no full model limited to the same labels is stored {open_gain}."

    low = float(line[GAIN_MASKED.low])
    high = float(line[GAIN_MASKED.high])
    if pd.isna(low) or low == high:  # one subset, or equal differences on all subsets
        return f"{_gain_without_interval(line, where)} {open_gain}."

    points = format_with_interval(line, GAIN_MASKED)
    if low > 0:
        verdict = "Yes"
        compared = f"are {points} better than"
    elif high < 0:
        verdict = "No"
        compared = f"are worse, by {points}, than"
    else:
        verdict = "Not significantly"
        compared = f"differ by {points} from"
    return f"{verdict}: {where}, sub-models {compared} {LIMITED} {open_gain}."


def _gain_without_interval(line: Mapping[Any, Any], where: str) -> str:
    """A clause, without a full stop, on what a gain over masked full models shows if the gain has no interval.

    The clause answers whether sub-models are better: "No" if the gain over several subsets is 0, else "Not known".
    line:  a line of table `gap`.
    where: the number of classes and the data set, in words.
    """
    difference = abs(float(line[GAIN_MASKED]))
    is_one_subset = line[SUBSETS] == 1
    if difference <= ALIKE:  # 0 up to rounding
        if is_one_subset:
            return f"Not known from one subset: {where}, sub-models are as accurate as {LIMITED} on it"
        return f"No: {where}, sub-models are on average as accurate as {LIMITED}"

    is_rounded_to_0 = f"{100 * difference:.1f}" == "0.0"  # "0.0 points" would read as no difference
    points = "less than 0.05 points" if is_rounded_to_0 else format_with_interval(line, GAIN_MASKED)
    verdict = "Not known from one subset" if is_one_subset else "Not known without an interval"
    return f"{verdict}: {where}, sub-models differ by {points} from {LIMITED}"


def _gain_by_ncl(lines: pd.DataFrame, gain: Column) -> str:
    """Clauses on the gain at each ncl, such as `at ncl 2 (+4.1 points [+0.2, +8.0]), 5 (...); 95 % over 3 subsets`.

    If intervals are missing, a last clause gives the reason. It also lists the numbers of classes without an interval,
    unless all intervals are missing.
    lines: lines of table `gap`.
    gain:  the column of the gain (over masked or over open full models).
    """
    gains = [f"{line[NCL]} ({format_with_interval(line, gain)})" for line in lines.to_dict("records")]
    clauses = [f"at ncl {', '.join(gains)}"]

    has_interval = lines[gain.low].notna()
    if has_interval.any():
        clauses.append(f"95 % over {lines[SUBSETS].min()} subsets")  # the fewest at any ncl
    if not has_interval.all():
        reason = NO_MEAN_INTERVAL
        if has_interval.any():
            ncl_without_interval = ", ".join(map(str, lines.loc[~has_interval, NCL]))
            reason = f"ncl {ncl_without_interval}: {NO_MEAN_INTERVAL}"
        clauses.append(reason)
    return "; ".join(clauses)


def rank_statements(ranks: pd.DataFrame) -> Iterator[Statement]:
    """One statement for each protocol with two models or more: the model of the best mean rank at each ncl.

    ranks: lines of table `ranks`, of one data set.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2}
    >>> lines = [line | {"model": "a", "rank": 1.2}, line | {"model": "b", "rank": 1.8}]
    >>> [statement] = rank_statements(pd.DataFrame(lines))
    >>> print(statement.sentence)
    digits: best by mean rank among sub-models: a (ncl 2).
    """
    for protocol, models in NAMES.items():
        lines_of_protocol = ranks[ranks[PROTOCOL] == protocol]
        if style.differs(lines_of_protocol[MODEL]):
            best = _best_ranks(lines_of_protocol)
            yield Statement(f"{lines_of_protocol[DATASET].iloc[0]}: best by mean rank among {models}: {best}.")


def _best_ranks(ranks: pd.DataFrame) -> str:
    """The models with the best mean rank at each number of classes, as text: `a (ncl 2, 5); a and b (ncl 10)`.

    Where all models are at the level of chance, or all have the same rank, the text is "none" with the reason.
    ranks: lines of table `ranks`, of one data set and protocol; 1 is the rank of the most accurate model.
    """
    ncl_of_names: dict[str, list[str]] = {}
    for ncl, at_ncl in ranks.groupby(NCL):
        best = small.best_of(at_ncl, accuracy.RANK, largest=False)
        if all_at_chance(at_ncl):
            names = "none, all are at the level of chance"
        elif len(best) == len(at_ncl) > 1:
            names = "none, all are equal"
        else:
            names = small.listed(best[MODEL].tolist())
        ncl_of_names.setdefault(names, []).append(str(ncl))
    return "; ".join(f"{names} (ncl {', '.join(at_ncl)})" for names, at_ncl in ncl_of_names.items())
