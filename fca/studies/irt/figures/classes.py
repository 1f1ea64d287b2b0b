"""Easy and hard images by model and class, and classes that a corruption breaks.

Figures and statements of analysis=difficulty_segments and analysis=class_robustness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.irt.class_robustness import CLASS_RANK, DIRECTION, INSTABILITY, MODE, ROBUST_CLASSES, VERDICT
from fca.studies.irt.corruption_accuracy import of_equal_severities
from fca.studies.irt.difficulty_segments import (
    ALL_CLASSES,
    DIFFERENCE,
    PLACE_BY_ACCURACY,
    QUARTER,
    SEGMENT,
    SHARE_RIGHT,
)
from fca.studies.irt.fits import PARAMETER, SHARE_OF_CLASS, SUBJECT
from fca.tables.table import CORRUPTION, DATASET, LABEL, MODEL, SEVERITY, all_at_chance, lines_at_chance
from fca.types import Column, Table, interval_columns

NAME_GAP = 0.075  # between names at the ends of lines, as a share of the panel's height
MOST_CLASSES_NAMED = 3  # classes with the most images in a quarter, in a sentence
BEST_DRAWN = 3  # subjects in the small figure, beside the weakest
RIGHT_ON_HARD = SHARE_RIGHT.with_format(".0%", "right on the hard quarter")
SHOWN_INSTABILITY = INSTABILITY.with_format(".2f", "how far it moves")
_PARAMETER_WORDS = {
    "difficulty": "difficulty (top: hardest)",
    "discrimination": "discrimination (top: separates models best)",
}
_AXIS_WITHOUT_SIGNS = alt.Axis(format="%", labelExpr="format(abs(datum.value), '.0%')", grid=True, tickCount=5)
_SIGNED_SHARE = Column("signed", float, ".0%", "share of the class's images")
_OVER_SEVERITIES = {
    "difficulty": ("Do easy images stay easy?", "segment"),
    "discrimination": ("Do images still separate models?", "quarter"),
}
_WHAT_MOVES = {"count": "the share of its images in a segment", "mean_b": "its mean difficulty"}


def models_figure(shown: Table) -> alt.FacetChart:
    """Draw a heat map of the share of right responses of every subject in every quarter of difficulty (segment).

    One panel per data set, corruption and severity. shown: table segment_models_shown.
    """
    frame = shown.frame.assign(segment=shown.frame[SEGMENT].map(dict(SEGMENT.choices)))  # quarters in words
    shifts = zip(frame[CORRUPTION], frame[SEVERITY], strict=True)
    frame["shift"] = [f"{kind} {severity}" if severity else "clean" for kind, severity in shifts]
    frame["panel"] = style.panels(frame, DATASET, "shift")

    segment_names = list(SEGMENT.choices.values())
    segment_axis = kinds.category(alt.X, SEGMENT, segment_names, domain=False, grid=False, labelFontSize=10)
    # the best subject has place 0; `min` only picks the one place that all lines of a subject in a panel have
    rows = style.names_axis(SUBJECT, alt.EncodingSortField(PLACE_BY_ACCURACY, op="min"))
    chart = kinds.heat_map(SHARE_RIGHT.with_format(".0%"), segment_axis, rows, shown.columns, (0.0, 1.0))

    # the column subjects has the number of all subjects of the data set, drawn or not
    frames_by_dataset = frame.groupby(DATASET)
    shows_all_subjects = (frames_by_dataset[SUBJECT].nunique() == frames_by_dataset["subjects"].first()).all()
    ending = "." if shows_all_subjects else "; the subjects shown are spread evenly from best to worst."
    title = style.title(
        "Who solves the hard images?",
        "Each cell is the share of right responses in a quarter of the images by expected success; quarters are cut on "
        "clean images.",
        f"The best on clean images come first{ending}",
    )
    # every panel has its own horizontal axis, so that names of quarters are below each
    figure = style.faceted(chart, frame, title, filters=(DATASET, MODEL, CORRUPTION), row=19)
    return figure.resolve_axis(x="independent")


def classes_figure(shown: Table) -> alt.FacetChart:
    """Draw bars of each class's share of images in the top quarter to the right, in the bottom quarter to the left.

    One panel shows the quarters of difficulty, another the quarters of discrimination (of each data set).
    shown: table segment_classes_shown.
    """
    frame = shown.frame.assign(parameter_words=shown.frame[PARAMETER].map(_PARAMETER_WORDS))
    frame["panel"] = style.panels(frame, DATASET, "parameter_words")
    sign = frame[QUARTER].map({"top": 1, "bottom": -1})  # negative values are drawn to the left
    for signed, share in zip(interval_columns(_SIGNED_SHARE), interval_columns(SHARE_OF_CLASS), strict=True):
        frame[signed] = sign * frame[share]

    # the class with the largest difference of its shares in the top and in the bottom quarter comes first
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField(DIFFERENCE, op="min", order="descending"), grid=False)
    # the numbers on this axis have no minus sign, although shares in the bottom quarter are drawn as negative values
    share_axis = alt.X(f"{_SIGNED_SHARE}:Q", title=_SIGNED_SHARE.meaning, axis=_AXIS_WITHOUT_SIGNS)
    chart = kinds.layers(
        kinds.bars(share_axis, rows, shown.columns, kinds.hue(QUARTER, frame, kinds.CONTRAST)),
        kinds.interval_marks(alt.Chart().encode(y=rows), _SIGNED_SHARE, on_y=False),  # horizontal
        *(kinds.reference(share, on_y=False) for share in (-0.25, 0.0, 0.25)),  # vertical lines at these shares
    )
    title = style.title(
        "Which classes are hard, and which separate models?",
        "Each bar is the share of a class's clean images that are in the top or bottom quarter of all, with its 95 % "
        "interval. The dashed lines are at 25 %, which a class like all others has in each.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), row=18)


def ranking_figure(shown: Table) -> alt.FacetChart:
    """Draw every class's instability with its interval, the most robust class first; one panel per corruption.

    Instability is how much a class moves between severities (standard deviation). With compat=seed001 the classes that
    move most are called robust, as in the paper (Sharma et al. 2023); the subtitle then states this.
    shown: table class_robustness_shown.
    """
    frame = shown.frame.assign(panel=style.panels(shown.frame, DATASET, CORRUPTION))
    mode = frame["mode"].iloc[0]
    value = INSTABILITY.with_format(".2%" if mode == "count" else ".3f")

    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField(CLASS_RANK, op="min"), grid=False)
    # marks of classes that become harder, of those that become easier, and of unclear ones
    colours = kinds.hue(DIRECTION, frame, kinds.CONTRAST, ("triangle-down", "triangle-up", "circle"))
    value_axis = kinds.quantity(alt.X, value, "", grid=True, domainMin=0, padding=0)
    chart = kinds.points_with_intervals(value, rows, shown.columns, colours, scale=value_axis)
    moving = _WHAT_MOVES[mode]  # in words: shares of images in a segment, or the mean difficulty
    title = style.title(
        "Which classes break under which corruption?",
        f"Each mark is how much {moving} moves between severities (standard deviation) with its 95 % interval.",
        f"The most robust come first{_note_of_paper_sense(shown.parameters)}.{_describe_shown_classes(frame)}",
    )
    n_columns = None if style.differs(frame["panel"]) else 1  # None: as many as fit; one panel takes the whole width
    figure = style.faceted(chart, frame, title, filters=(DATASET, CORRUPTION), columns=n_columns, row=18)
    return figure.resolve_axis(x="independent")  # numbers below every panel


def table_figure(named: Table) -> alt.FacetChart:
    """Mark the susceptible and the robust classes of every corruption in a grid of corruptions and classes.

    Robust classes are those that move least over severities and susceptible classes those that move most. With
    compat=seed001 it is the other way round, as in the ranks of the paper (Sharma et al. 2023).
    named: table robust_classes.
    """
    # one line per corruption, verdict and class
    frames_by_verdict = [named.frame.assign(verdict=verdict, label=named.frame[verdict]) for verdict in VERDICT.choices]
    frame = pd.concat(frames_by_verdict).explode(LABEL).dropna(subset=LABEL).reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET)

    label_axis = kinds.category(alt.X, LABEL, labelAngle=-40)
    rows = kinds.category(alt.Y, CORRUPTION, list(dict.fromkeys(frame[CORRUPTION])))
    colours = kinds.hue(VERDICT, frame, kinds.CONTRAST, ("triangle-down", "triangle-up"))  # susceptible, robust
    chart = kinds.scatter(label_axis, rows, (DATASET, CORRUPTION, LABEL, VERDICT), colours, size=130)
    sense = _note_of_paper_sense(named.parameters)  # states with compat that robust classes move most; else empty
    title = style.title(
        ROBUST_CLASSES.question,
        f"These are the two classes that move most and the two that move least{sense}.",
        "The paper contradicts itself: it calls consistent classes robust, but ranks highest those that deviate most;",
        "by its ranks robust and susceptible change places.",
    )
    height = max(80, 24 * frame[CORRUPTION].nunique())
    figure = style.faceted(chart, frame, title, filters=(DATASET, CORRUPTION), height=height, columns=1)
    return figure.resolve_scale(x="independent")  # every data set has its own classes


def severities_figure(shown: Table) -> alt.FacetChart:
    """Draw the share of each class's images in the lowest and the highest quarter at every severity.

    Each line is a class, which is named where it has a verdict (susceptible or robust). One panel per corruption and
    quarter. With compat=seed001 the subtitle states that robust classes are those that move most.
    shown: table class_severity_difficulty (quarters of difficulty) or class_severity_discrimination.
    """
    frame = shown.frame.assign(segment_words=shown.frame[SEGMENT].map(dict(SEGMENT.choices)))
    frame[SEGMENT] = pd.Categorical(frame[SEGMENT], list(SEGMENT.choices), ordered=True)  # sorts from low to high
    frame = frame.sort_values([DATASET, CORRUPTION, SEGMENT], kind="stable", ignore_index=True)
    frame = frame.assign(panel=style.panels(frame, DATASET, CORRUPTION, "segment_words"))
    frame = _with_name_heights(frame)  # column name_at: where the name of a class is written, if at all

    levels = sorted(frame[SEVERITY].unique().tolist())
    severity_axis = alt.Axis(values=levels, format=".0f", grid=False)
    # the axis goes on to the right of the highest severity, where the names of classes are written
    severity_scale = alt.Scale(domain=[levels[0], 1.45 * levels[-1]], nice=False)
    severity = alt.X(f"{SEVERITY}:Q", title=None, scale=severity_scale, axis=severity_axis)
    share = kinds.quantity(alt.Y, SHARE_OF_CLASS, zero=True, padding=0)
    colours = kinds.hue(VERDICT, frame, kinds.CONTRAST, shapes=None)

    # grey lines, coloured lines of classes with a verdict, and their names
    base: Any = alt.Chart().encode(x=severity, detail=f"{LABEL}:N")
    lines = base.encode(y=share, tooltip=kinds.tooltips(shown.columns))
    grey_lines = lines.transform_filter(f"!isValid(datum.{VERDICT})").mark_line(
        color=kinds.GREY, opacity=0.45, strokeWidth=1.2, point={"color": kinds.GREY, "size": 14}
    )
    coloured_lines = lines.transform_filter(f"isValid(datum.{VERDICT})").mark_line(strokeWidth=2.2, point={"size": 26})
    names = base.transform_filter("isValid(datum.name_at)").mark_text(align="left", dx=7, fontSize=11)
    chart = kinds.layers(
        grey_lines,
        coloured_lines.encode(color=colours.colour()),
        names.encode(y="name_at:Q", text=f"{LABEL}:N", color=colours.colour()),
    )

    # with compat=seed001 quarters are cut as in the paper
    cut = "cut at each severity by itself" if shown.parameters.get("compat") else "cut on clean images"
    question, noun = _OVER_SEVERITIES[frame[PARAMETER].iloc[0]]
    title = style.title(
        question,
        f"Each line is the share of a class's images in the {noun}, {cut}, by severity (0 is "
        f"clean).{_describe_shown_classes(frame)}",
        f"The two most susceptible and the two most robust classes have names{_note_of_paper_sense(shown.parameters)}.",
    )
    n_columns = 4 if frame["panel"].nunique() > 2 else 2
    figure = style.faceted(chart, frame, title, filters=(DATASET, CORRUPTION), height=190, columns=n_columns)
    return figure.resolve_axis(x="independent")


def _with_name_heights(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the column name_at: the height at which the name of a class is written at the end of its line.

    A name is written at the height of the line's end, or higher where it would cover another name. The height is
    missing for points before the end of a line, and for classes without a verdict, which have no name in the figure.
    """
    gap = NAME_GAP * float(frame[SHARE_OF_CLASS].max())
    is_line_end = frame[SEVERITY] == frame[SEVERITY].max()
    line_ends = frame[is_line_end & frame[VERDICT].notna()]

    height_by_index: dict[Any, float] = {}
    for _, ends_of_panel in line_ends.sort_values(SHARE_OF_CLASS).groupby("panel"):
        height = -gap  # the first name, at a share of 0 or more, is not moved
        for index, share in ends_of_panel[SHARE_OF_CLASS].items():
            height = max(float(share), height + gap)
            height_by_index[index] = height
    return frame.assign(name_at=pd.Series(height_by_index, dtype=float).reindex(frame.index))


def _describe_shown_classes(frame: pd.DataFrame) -> str:
    """A sentence on which classes the figure shows, to follow other text; empty if it shows all.

    frame: the lines drawn, with the number of all classes in the column `classes`.
    """
    panels = frame.groupby([DATASET, CORRUPTION])
    n_shown = panels[LABEL].nunique()
    shows_all = (n_shown == panels[ALL_CLASSES].first()).all()
    return "" if shows_all else f" Drawn: the {n_shown.max() // 2} most and least robust classes."


def _note_of_paper_sense(parameters: Mapping[str, Any]) -> str:
    """Words for a subtitle where, with compat=seed001, the classes that move most are called robust; else empty.

    parameters: of the table that the figure draws.
    """
    return " (as that paper has it, robust = moves most)" if parameters.get("compat") else ""


def hard_images_statements(models: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on who is right on most and on fewest of the hard quarter of clean images, and under corruptions.

    There is no sentence without clean images. If all subjects are at the level of chance, the only sentence is that
    their order is not known.

    models: the lines of table segment_models for one data set.

    >>> line = {"dataset": "zoo", "corruption": "clean", "severity": 0, "segment": "hard"}
    >>> a = {"subject": "a", "share": 0.5, "share_low": 0.4, "share_high": 0.6}
    >>> b = {"subject": "b", "share": 0.2, "share_low": 0.1, "share_high": 0.3}
    >>> [statement] = hard_images_statements(pd.DataFrame([line | a, line | b]))
    >>> print(statement.sentence)
    On the hard quarter of the images of zoo, a is right on 50 % [40, 60]; the weakest of 2, b, on 20 %.
    """
    hard = models[models[SEGMENT] == "hard"]
    clean = hard[hard[SEVERITY] == 0].sort_values(SHARE_RIGHT, ascending=False, kind="stable")
    if clean.empty:
        return

    # the weakest is drawn once, even if few subjects make it one of the best too. RIGHT_ON_HARD is the column
    # SHARE_RIGHT with a title for the hard quarter
    best_and_weakest = pd.concat([clean.head(BEST_DRAWN), clean.tail(1)]).drop_duplicates(SUBJECT)
    chart = small.dots(best_and_weakest, SUBJECT, RIGHT_ON_HARD, (SUBJECT, *interval_columns(RIGHT_ON_HARD)))
    if all_at_chance(clean):
        yield Statement(_not_known_at_chance(clean), chart)
        return

    yield Statement(_best_and_weakest(clean), chart)
    yield from _leading_under_corruptions(hard[hard[SEVERITY] > 0])


def _not_known_at_chance(lines: pd.DataFrame) -> str:
    """The sentence where all subjects are at the level of chance, so that nothing is derived from their responses."""
    return f"Not known: on clean images of {lines[DATASET].iloc[0]}, all subjects are at the level of chance."


def _best_and_weakest(subjects: pd.DataFrame) -> str:
    """A sentence that names the subjects that are right on most and on fewest images of the hard quarter.

    subjects: lines of table segment_models, the best first.
    """
    highest, lowest = subjects.iloc[0].to_dict(), subjects.iloc[-1].to_dict()
    quarter = f"On the hard quarter of the images of {highest[DATASET]}"
    highest_share = format_with_interval(highest, RIGHT_ON_HARD)
    best = small.best_of(subjects, RIGHT_ON_HARD)[SUBJECT].tolist()  # several where they are equal
    weakest = small.best_of(subjects, RIGHT_ON_HARD, largest=False)[SUBJECT].tolist()
    if len(best) == len(subjects) > 1:  # nobody is weakest
        return f"{quarter}, {small.all_of(len(subjects), 'subjects')} are equally often right: {highest_share}."

    are = "is" if len(best) == 1 else "are each"
    sentence = f"{quarter}, {small.listed(best)} {are} right on {highest_share}"
    if len(subjects) == 1:
        return f"{sentence}."
    # the share alone, so that no interval is written
    lowest_share = format_with_interval({RIGHT_ON_HARD: lowest[RIGHT_ON_HARD]}, RIGHT_ON_HARD)
    return f"{sentence}; the weakest of {len(subjects)}, {small.listed(weakest)}, on {lowest_share}."


def _leading_under_corruptions(shifted: pd.DataFrame) -> Iterator[Statement]:
    """Yield a sentence on which subject is best on the hard quarter under most corruptions, at their highest severity.

    A subject leads under a corruption if it is right on more images than any other subject.
    There is no sentence with fewer than two corruptions or subjects.

    shifted: lines of table segment_models for one data set and the hard quarter, under corruptions.
    """
    highest = shifted[shifted[SEVERITY] == shifted.groupby(CORRUPTION)[SEVERITY].transform("max")]
    corruptions = highest[CORRUPTION].nunique()
    if corruptions < 2 or highest[SUBJECT].nunique() < 2:
        return

    leads = Counter[str]()
    for _, lines in highest.groupby(CORRUPTION):
        best = small.best_of(lines, SHARE_RIGHT)
        if len(best) == 1 < len(lines):  # alone, and not the only subject
            leads[best[SUBJECT].iloc[0]] += 1

    severity = f"{highest[DATASET].iloc[0]}: at the highest severity"
    most_images = "the most of the hard quarter"
    if not leads:
        yield Statement(f"{severity}, nobody alone solves {most_images} under any of {corruptions} corruptions.")
        return
    times = max(leads.values())
    leading = [name for name, led in leads.items() if led == times]
    solve = "solves" if len(leading) == 1 else "each solve"
    subjects = small.listed(leading)
    yield Statement(f"{severity}, {subjects} {solve} {most_images} under {times} of {corruptions} corruptions.")


def hard_classes_statements(classes: pd.DataFrame) -> Iterator[Statement]:
    """For each parameter, a sentence that names the classes with the largest share of their images in the top quarter.

    The parameters are difficulty and discrimination. There is no sentence if all classes have the same share. If all
    subjects are at the level of chance, the sentence states that the quarters are not informative.

    classes: the lines of table segment_classes for one data set.

    >>> line = {"dataset": "zoo", "parameter": "difficulty", "quarter": "top"}
    >>> shares = {"cat": 0.5, "yak": 0.3, "ant": 0.1, "bee": 0.1}
    >>> lines = [line | {"label": label, "share": share} for label, share in shares.items()]
    >>> [statement] = hard_classes_statements(pd.DataFrame(lines))
    >>> print(statement.sentence)
    zoo: the classes with most images in the hardest quarter are cat (50 %) and yak (30 %).
    """
    highest = {"difficulty": "hardest", "discrimination": "most discriminating"}
    top = classes[classes[QUARTER] == "top"]
    for parameter, lines in top.groupby(PARAMETER, sort=False):
        dataset = lines[DATASET].iloc[0]
        quarter = f"the {highest[str(parameter)]} quarter"
        if all_at_chance(lines):
            reason = "all subjects are at the level of chance"
            yield Statement(f"{dataset}: which classes are in {quarter} is not informative: {reason}.")
        elif lines[SHARE_OF_CLASS].min() < lines[SHARE_OF_CLASS].max():  # else no class has more than another
            yield Statement(f"{dataset}: the {_classes_with_most_images(lines, quarter)}.")


def _classes_with_most_images(classes: pd.DataFrame, quarter: str) -> str:
    """A clause that names up to three classes with the largest shares of their images in a quarter.

    A class is named only if its share is above the share of the fourth class (or of the last class, where there are
    fewer), so that no equal class is left unnamed. If no share is above it, all classes with the largest share are
    named.
    classes: lines of table segment_classes for the quarter, which `quarter` names in words.
    """
    ranked = classes.sort_values(SHARE_OF_CLASS, ascending=False, kind="stable")
    # the share of the fourth class, or of the last class where there are fewer
    compared_share = ranked[SHARE_OF_CLASS].iloc[min(MOST_CLASSES_NAMED, len(ranked) - 1)]
    above = ranked[ranked[SHARE_OF_CLASS] > compared_share]
    if above.empty:  # `compared_share` is the largest share itself
        equal = small.best_of(classes, SHARE_OF_CLASS)[LABEL].tolist()
        return f"classes with most images in {quarter} are {small.listed(equal)} ({100 * compared_share:.0f} % each)"

    shares = [f"{line[LABEL]} ({100 * line[SHARE_OF_CLASS]:.0f} %)" for line in above.to_dict("records")]
    noun, are = ("class", "is") if len(shares) == 1 else ("classes", "are")
    return f"{noun} with most images in {quarter} {are} {small.listed(shares)}"


def robust_classes_statements(named: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on which classes are most often susceptible, and which most often robust, over the corruptions.

    Corruptions for which all subjects are at the level of chance on clean images are left out; if none is left, the
    sentence states this. There is no sentence if classes have no verdict.

    named: the lines of table robust_classes for one data set; the columns of the two verdicts hold tuples of classes.

    >>> line = {"dataset": "zoo", "corruption": "fog", "susceptible": ("cat",), "robust": ("yak",)}
    >>> lines = [line, line | {"corruption": "snow", "susceptible": ("ant",)}]
    >>> [statement] = robust_classes_statements(pd.DataFrame(lines))
    >>> print(statement.sentence)
    zoo: over 2 corruptions, susceptible: no class more than once; robust: yak under both.
    """
    dataset = named[DATASET].iloc[0]
    above_chance = named[~lines_at_chance(named)]
    if above_chance.empty:
        level = "on clean images all subjects are at the level of chance"
        yield Statement(f"{dataset}: {level}; no class can be said to be susceptible or robust.")
        return
    has_verdicts = all(above_chance[verdict].map(len).any() for verdict in VERDICT.choices)
    if not has_verdicts:  # a single class has none, because it cannot be compared
        return

    # the choices of VERDICT are susceptible and robust, in this order
    if len(above_chance) == 1:
        under = f"under {above_chance[CORRUPTION].iloc[0]}"
        susceptible, robust = (small.listed(above_chance[verdict].iloc[0]) for verdict in VERDICT.choices)
    else:
        under = f"over {_corruptions(len(above_chance))}"
        susceptible, robust = (_most_often(above_chance[verdict]) for verdict in VERDICT.choices)
    yield Statement(f"{dataset}: {under}, susceptible: {susceptible}; robust: {robust}.")


def _most_often(labels_by_corruption: pd.Series) -> str:
    """Words that name the classes listed under most corruptions, and under how many corruptions each of them is listed.

    The words are "no class more than once" if no class is listed under two corruptions.
    labels_by_corruption: for each of two or more corruptions, a tuple of class names.
    """
    counts = Counter(label for labels in labels_by_corruption for label in labels)
    times = max(counts.values())
    if times == 1:
        return "no class more than once"

    leading = [label for label, count in counts.items() if count == times]
    if times == len(labels_by_corruption):
        return f"{small.listed(leading)} under {small.all_of(times)}"
    return f"most often {small.listed(leading)} ({times}{' each' if len(leading) > 1 else ''})"


def instability_statements(classes: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the class that changes most under a corruption, and on how many classes become harder or easier.

    Instability is how much the difficulty of a class's images changes over severities (standard deviation). If all
    subjects are at the level of chance on clean images, the only sentence is that nothing is known.

    classes: the lines of table class_robustness for one data set.

    >>> line = {"dataset": "zoo", "corruption": "fog", "mode": "count", "instability_low": 0.1, "instability_high": 0.3}
    >>> cat = line | {"label": "cat", "instability": 0.2, "direction": "harder", "verdict": "robust"}
    >>> yak = line | {"label": "yak", "instability": 0.1, "direction": "unclear", "verdict": "robust"}
    >>> for statement in instability_statements(pd.DataFrame([cat, yak])): print(statement.sentence)
    Class cat of zoo changes most under fog: its shares of easy to hard images vary by 0.20 [0.10, 0.30] over \
severities (standard deviation).
    zoo: over 1 corruption, 1 of 2 classes are harder than clean and 0 easier; 1 of 2 robust verdicts are of harder \
classes.
    """
    with_instability = classes.dropna(subset=INSTABILITY).sort_values(INSTABILITY, ascending=False, kind="stable")
    above_chance = with_instability[~lines_at_chance(with_instability)]
    if with_instability.empty:
        return
    if above_chance.empty:
        yield Statement(_not_known_at_chance(with_instability), _instability_dots(with_instability))
        return

    # only corruptions with the same severities are compared; `left_out_text` names the others
    compared, left_out_text = of_equal_severities(above_chance)
    ending = f"; {left_out_text}." if left_out_text else "."
    yield Statement(_least_stable(compared, ending), _instability_dots(compared))

    with_direction = above_chance.dropna(subset=DIRECTION)  # missing without responses to clean images
    if len(with_direction):
        yield Statement(_count_directions(with_direction))


def _instability_dots(classes: pd.DataFrame) -> Any:
    """The small figure of how much classes change, under the corruption of the first line alone.

    classes: lines of table class_robustness, the least stable first.
    """
    same_corruption = classes[classes[CORRUPTION] == classes[CORRUPTION].iloc[0]]
    return small.dots(
        same_corruption, LABEL, SHOWN_INSTABILITY, (LABEL, CORRUPTION, *interval_columns(SHOWN_INSTABILITY))
    )


def _least_stable(classes: pd.DataFrame, ending: str) -> str:
    """A sentence that names the class that changes most over severities, with its instability.

    classes: lines of table class_robustness, the least stable first.
    ending: the end of the sentence, with the corruptions that were not compared. It is not used if no class changes.
    """
    first = classes.iloc[0].to_dict()
    dataset, label, corruption = first[DATASET], first[LABEL], first[CORRUPTION]
    if first[INSTABILITY] == 0:
        return f"None: no class of {dataset} changes over severities."

    varied = "shares of easy to hard images vary" if first[MODE] == "count" else "mean difficulty varies"
    change = (
        f"its {varied} by {format_with_interval(first, SHOWN_INSTABILITY)} over severities (standard deviation){ending}"
    )
    equal = small.best_of(classes, INSTABILITY)
    if len(equal) > 1:  # no single class changes most
        example = f"{label} under {corruption} is one of {len(equal)} that change equally"
        return f"No class of {dataset} changes most: {example}; {change}"
    changes = "changes most" if len(classes) > 1 else "is the only one that was tested"
    return f"Class {label} of {dataset} {changes} under {corruption}: {change}"


def _count_directions(classes: pd.DataFrame) -> str:
    """A sentence on how many classes are harder or easier than clean, and how many robust ones have become harder.

    A class that breaks at once and stays broken is robust by its verdict: it does not move between severities.
    classes: lines of table class_robustness that have a direction.
    """
    counts = Counter(classes[DIRECTION])
    moved = f"{counts['harder']} of {len(classes)} classes are harder than clean and {counts['easier']} easier"

    robust = classes[classes[VERDICT] == "robust"]
    harder = f"{(robust[DIRECTION] == 'harder').sum()} of {len(robust)} robust verdicts are of harder classes"
    corruptions = _corruptions(classes[CORRUPTION].nunique())
    return f"{classes[DATASET].iloc[0]}: over {corruptions}, {moved}; {harder}."


def _corruptions(number: int) -> str:
    """The number with its noun, such as "1 corruption" or "2 corruptions"."""
    return f"{number} corruption{'s' if number > 1 else ''}"
