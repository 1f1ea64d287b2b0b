"""Easy and hard images by model and class, and classes that a corruption breaks.

Figures and headlines of analysis=difficulty_segments and analysis=class_robustness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Figure
from fca.studies.irt import class_robustness as robust
from fca.studies.irt import difficulty_segments as segments
from fca.studies.irt.class_robustness import DIRECTION, INSTABILITY, RANK, VERDICT
from fca.studies.irt.difficulty_segments import DIFFERENCE, N_CLASSES, PLACE, QUARTER, SEGMENT, SHARE_RIGHT
from fca.studies.irt.fits import PARAMETER, SHARE_OF_CLASS, SUBJECT
from fca.studies.table import CORRUPTION, DATASET, LABEL, MODEL, SEVERITY, all_at_chance, lines_at_chance
from fca.types import Column, Table, with_interval

GAP = 0.075  # between names at the ends of lines, as a share of the panel's height
NAMED = 3  # classes with the most images in a quarter, in a sentence
_ABOUT = {"difficulty": "difficulty (top: hardest)", "discrimination": "discrimination (top: separates models best)"}
_AWAY = alt.Axis(format="%", labelExpr="format(abs(datum.value), '.0%')", grid=True, tickCount=5)
_SIGNED = Column("signed", float, ".0%", "share of the class's images")
_OVER_SEVERITIES = {
    "difficulty": ("Do easy images stay easy?", "segment"),
    "discrimination": ("Do images still separate models?", "quarter"),
}
_MOVES = {"count": "the share of its images in a segment", "mean_b": "its mean difficulty"}


def models_figure(shown: Table) -> alt.FacetChart:
    """The share of right responses of every subject in every segment, one panel a corruption."""
    frame = shown.frame.assign(segment=shown.frame[SEGMENT].map(dict(SEGMENT.choices)))
    places = zip(frame[CORRUPTION], frame[SEVERITY], strict=True)
    frame["shift"] = [f"{kind} {severity}" if severity else "clean" for kind, severity in places]
    frame["panel"] = style.panels(frame, DATASET, "shift")
    names = list(SEGMENT.choices.values())
    across = kinds.category(alt.X, SEGMENT, names, domain=False, grid=False, labelFontSize=10)
    rows = style.names_axis(SUBJECT, alt.EncodingSortField(PLACE, op="min"))
    chart = kinds.heat_map(Column(SHARE_RIGHT, float, ".0%"), across, rows, shown.columns, (0.0, 1.0))
    everyone = (frame.groupby(DATASET)[SUBJECT].nunique() == frame.groupby(DATASET)["subjects"].first()).all()
    title = style.title(
        "Who solves the hard images?",
        "Each cell is the share of right responses in a quarter of the images by expected success; quarters are cut on "
        "clean images.",
        "The best on clean images come first"
        + ("." if everyone else "; the subjects shown are spread evenly from best to worst."),
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL, CORRUPTION), row=19).resolve_axis(x="independent")


def classes_figure(shown: Table) -> alt.FacetChart:
    """The share of each class's images in the top quarter to the right, in the bottom quarter to the left."""
    frame = shown.frame.assign(about=shown.frame[PARAMETER].map(_ABOUT))
    frame["panel"] = style.panels(frame, DATASET, "about")
    away = frame[QUARTER].map({"top": 1, "bottom": -1})
    for signed, share in zip(with_interval(_SIGNED), with_interval(SHARE_OF_CLASS), strict=True):
        frame[signed] = away * frame[share]
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField(DIFFERENCE, op="min", order="descending"), grid=False)
    across = alt.X(f"{_SIGNED}:Q", title=_SIGNED.meaning, axis=_AWAY)
    chart = kinds.layers(
        kinds.bars(across, rows, shown.columns, kinds.hue(QUARTER, frame, kinds.CONTRAST)),
        kinds.interval(alt.Chart().encode(y=rows), _SIGNED, upright=False),
        *(kinds.reference(at, upright=False) for at in (-0.25, 0.0, 0.25)),
    )
    title = style.title(
        "Which classes are hard, and which separate models?",
        "Each bar is the share of a class's clean images that are in the top or bottom quarter of all, with its 95 % "
        "interval. The dashed lines are at 25 %, which a class like all others has in each.",
    )
    return style.faceted(chart, frame, title, (DATASET,), row=18)


def ranking_figure(shown: Table) -> alt.FacetChart:
    """Every class's instability with its interval, the most robust first; one panel a corruption."""
    frame = shown.frame.assign(panel=style.panels(shown.frame, DATASET, CORRUPTION))
    mode = frame["mode"].iloc[0]
    value = Column(INSTABILITY, float, ".2%" if mode == "count" else ".3f", INSTABILITY.meaning)
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField(RANK, op="min"), grid=False)
    coloured = kinds.hue(DIRECTION, frame, kinds.CONTRAST, ("triangle-down", "triangle-up", "circle"))
    across = kinds.quantity(alt.X, value, "", grid=True, domainMin=0, padding=0)
    chart = kinds.points_with_intervals(value, rows, shown.columns, coloured, scale=across)
    title = style.title(
        "Which classes break under which corruption?",
        f"Each mark is how much {_MOVES[mode]} moves between severities (standard deviation) with its 95 % interval.",
        f"The most robust come first{as_written(shown.parameters)}.{_ends_only(frame)}",
    )
    columns = None if style.differs(frame["panel"]) else 1
    figure = style.faceted(chart, frame, title, (DATASET, CORRUPTION), columns=columns, row=18)
    return figure.resolve_axis(x="independent")


def table_figure(named: Table) -> alt.FacetChart:
    """The susceptible and the robust classes of every corruption."""
    long = [named.frame.assign(verdict=verdict, label=named.frame[verdict]) for verdict in VERDICT.choices]
    frame = pd.concat(long).explode(LABEL).dropna(subset=LABEL).reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET)
    across = kinds.category(alt.X, LABEL, labelAngle=-40)
    rows = kinds.category(alt.Y, CORRUPTION, list(dict.fromkeys(frame[CORRUPTION])))
    coloured = kinds.hue(VERDICT, frame, kinds.CONTRAST, ("triangle-down", "triangle-up"))
    chart = kinds.scatter(across, rows, (DATASET, CORRUPTION, LABEL, VERDICT), coloured, size=130)
    title = style.title(
        "Which classes are susceptible to a corruption, and which robust?",
        f"These are the two classes that move most and the two that move least{as_written(named.parameters)}.",
        "The paper calls robust what is consistent, and what deviates most: by its other sign both change places.",
    )
    tall = max(80, 24 * frame[CORRUPTION].nunique())
    figure = style.faceted(chart, frame, title, (DATASET, CORRUPTION), height=tall, columns=1)
    return figure.resolve_scale(x="independent")


def severities_figure(shown: Table) -> alt.FacetChart:
    """The share of each class's images in the outer segments at every severity; one panel a corruption and segment.

    A line a class, named where it has a verdict. The segments are those of difficulty, or of discrimination.
    """
    frame = shown.frame.assign(part=shown.frame[SEGMENT].map(dict(SEGMENT.choices)))
    frame[SEGMENT] = pd.Categorical(frame[SEGMENT], list(SEGMENT.choices), ordered=True)
    frame = frame.sort_values([DATASET, CORRUPTION, SEGMENT], kind="stable", ignore_index=True)
    frame = _named_ends(frame.assign(panel=style.panels(frame, DATASET, CORRUPTION, "part")))
    levels = sorted(frame[SEVERITY].unique().tolist())
    axis = alt.Axis(values=levels, format=".0f", grid=False)
    scale = alt.Scale(domain=[levels[0], 1.45 * levels[-1]], nice=False)
    coloured = kinds.hue(VERDICT, frame, kinds.CONTRAST, shapes=None)
    base: Any = alt.Chart().encode(x=alt.X(f"{SEVERITY}:Q", title=None, scale=scale, axis=axis), detail=f"{LABEL}:N")
    up = kinds.quantity(alt.Y, SHARE_OF_CLASS, zero=True, padding=0)
    lines = base.encode(y=up, tooltip=kinds.tooltips(shown.columns))
    others = lines.transform_filter(f"!isValid(datum.{VERDICT})")
    verdicts = lines.transform_filter(f"isValid(datum.{VERDICT})").mark_line(strokeWidth=2.2, point={"size": 26})
    names = base.transform_filter("isValid(datum.name_at)").mark_text(align="left", dx=7, fontSize=11)
    grey = {"color": kinds.GREY, "size": 14}
    chart = kinds.layers(
        others.mark_line(color=kinds.GREY, opacity=0.45, strokeWidth=1.2, point=grey),
        verdicts.encode(color=coloured.colour()),
        names.encode(y="name_at:Q", text=f"{LABEL}:N", color=coloured.colour()),
    )
    cut = "cut at each severity by itself" if shown.parameters.get("compat") else "cut on clean images"
    question, noun = _OVER_SEVERITIES[frame[PARAMETER].iloc[0]]
    title = style.title(
        question,
        f"Each line is the share of a class's images in the {noun}, {cut}, by severity (0 is "
        f"clean).{_ends_only(frame)}",
        f"The two most susceptible and the two most robust classes have names{as_written(shown.parameters)}.",
    )
    columns = 4 if frame["panel"].nunique() > 2 else 2
    figure = style.faceted(chart, frame, title, (DATASET, CORRUPTION), height=190, columns=columns)
    return figure.resolve_axis(x="independent")


def _named_ends(frame: pd.DataFrame) -> pd.DataFrame:
    """name_at: the height of the name of a line at its end, moved up where names would cover each other."""
    gap = GAP * float(frame[SHARE_OF_CLASS].max())
    ends = frame[(frame[SEVERITY] == frame[SEVERITY].max()) & frame[VERDICT].notna()]
    heights: dict[Any, float] = {}
    for _, part in ends.sort_values(SHARE_OF_CLASS).groupby("panel"):
        above = -gap
        for index, share in part[SHARE_OF_CLASS].items():
            heights[index] = above = max(float(share), above + gap)
    return frame.assign(name_at=pd.Series(heights, dtype=float).reindex(frame.index))


def _ends_only(frame: pd.DataFrame) -> str:
    """Which classes are drawn, where not all are."""
    by = frame.groupby([DATASET, CORRUPTION])
    counts = by[LABEL].nunique()
    everyone = (counts == by[N_CLASSES].first()).all()
    return "" if everyone else f" Drawn: the {counts.max() // 2} most and least robust classes."


def as_written(parameters: Mapping[str, Any]) -> str:
    """What a subtitle adds where the sign is that of the paper."""
    return " (as that paper has it, robust = moves most)" if parameters.get("compat") else ""


def model_headlines(models: pd.DataFrame) -> Iterator[str]:
    """Who solves most and fewest of the hard clean images, and who most under corruptions.

    >>> line = {"dataset": "zoo", "corruption": "clean", "severity": 0, "segment": "hard"}
    >>> a = {"subject": "a", "share": 0.5, "share_low": 0.4, "share_high": 0.6}
    >>> b = {"subject": "b", "share": 0.2, "share_low": 0.1, "share_high": 0.3}
    >>> print(*model_headlines(pd.DataFrame([line | a, line | b])))
    zoo: of the hard quarter of clean images a solves the most, 50.0 % [40, 60], and b the fewest, 20.0 % [10, 30].
    """
    hard = models[models[SEGMENT] == "hard"]
    for dataset, part in hard.groupby(DATASET, sort=False):
        clean = part[part[SEVERITY] == 0]
        subjects = clean[SUBJECT].nunique()
        if subjects < 2:
            continue
        if all_at_chance(clean):
            every = small.all_of(subjects, "subjects")
            yield f"{dataset}: who solves hard images is not known: {every} are at the level of chance on clean ones."
            continue

        best, worst = (small.best_of(clean, SHARE_RIGHT, largest) for largest in (True, False))
        if len(best) == len(clean):
            ends = f"{small.all_of(subjects, 'subjects')} solve as many, {_share(best.iloc[0])}"
        else:
            solve = "solves" if len(best) == 1 else "solve"
            most = f"{small.listed(best[SUBJECT].tolist())} {solve} the most, {_share(best.iloc[0])}"
            ends = f"{most}, and {small.listed(worst[SUBJECT].tolist())} the fewest, {_share(worst.iloc[0])}"
        yield f"{dataset}: of the hard quarter of clean images {ends}{_leading(part[part[SEVERITY] > 0])}."


def _leading(shifted: pd.DataFrame) -> str:
    """Who alone solves the most under most corruptions, at the highest severity of each; of two or more corruptions."""
    highest = shifted[shifted[SEVERITY] == shifted.groupby(CORRUPTION)[SEVERITY].transform("max")]
    corruptions = highest[CORRUPTION].nunique()
    if corruptions < 2:
        return ""
    leads = Counter[str]()
    for _, lines in highest.groupby(CORRUPTION):
        best = small.best_of(lines, SHARE_RIGHT)
        if len(best) == 1 < len(lines):
            leads[best[SUBJECT].iloc[0]] += 1

    where = "at the highest severity"
    if not leads:
        return f"; {where}, nobody alone solves the most under any of {corruptions} corruptions"
    times = max(leads.values())
    leading = [name for name, led in leads.items() if led == times]
    solve = "solves the most" if len(leading) == 1 else "each solve the most"
    return f"; {where}, {small.listed(leading)} {solve} under {times} of {corruptions} corruptions"


def _share(line: pd.Series) -> str:
    share, low, high = (100 * line[end] for end in with_interval(SHARE_RIGHT))
    return f"{share:.1f} %" if pd.isna(low) else f"{share:.1f} % [{low:.0f}, {high:.0f}]"


def class_headlines(classes: pd.DataFrame) -> Iterator[str]:
    """The classes with the largest share of their images in the top quarter, by each parameter.

    Classes that are equal to the next one are not named as if they were above it.

    >>> line = {"dataset": "zoo", "parameter": "difficulty", "quarter": "top"}
    >>> shares = {"cat": 0.5, "yak": 0.3, "ant": 0.1, "bee": 0.1}
    >>> list(class_headlines(pd.DataFrame([line | {"label": key, "share": of} for key, of in shares.items()])))
    ['zoo: the classes with most images in the hardest quarter are cat (50 %) and yak (30 %).']
    """
    which = {"difficulty": "hardest", "discrimination": "most discriminating"}
    top = classes[classes[QUARTER] == "top"]
    for (dataset, parameter), part in top.groupby([DATASET, PARAMETER], sort=False):
        quarter = f"the {which[str(parameter)]} quarter"
        if all_at_chance(part):
            yield f"{dataset}: which classes are in {quarter} tells nothing: all subjects are at the level of chance."
            continue
        if part[SHARE_OF_CLASS].min() == part[SHARE_OF_CLASS].max():
            continue

        ranked = part.sort_values(SHARE_OF_CLASS, ascending=False, kind="stable")
        next_share = ranked[SHARE_OF_CLASS].iloc[min(NAMED, len(ranked) - 1)]
        above = ranked[ranked[SHARE_OF_CLASS] > next_share]
        shares = [
            f"{key} ({100 * share:.0f} %)" for key, share in zip(above[LABEL], above[SHARE_OF_CLASS], strict=True)
        ]
        if above.empty:  # more are equal than are named
            best = small.best_of(part, SHARE_OF_CLASS)
            shares = [f"{small.listed(best[LABEL].tolist())} ({100 * next_share:.0f} % each)"]
        several = len(above) != 1
        noun, verb = ("classes", "are") if several else ("class", "is")
        yield f"{dataset}: the {noun} with most images in {quarter} {verb} {small.listed(shares)}."


def robust_headlines(named: pd.DataFrame) -> Iterator[str]:
    """Which classes are most often susceptible and robust over the corruptions of a data set.

    >>> line = {"dataset": "zoo", "corruption": "fog", "susceptible": ("cat",), "robust": ("yak",)}
    >>> list(robust_headlines(pd.DataFrame([line, line | {"corruption": "snow", "susceptible": ("ant",)}])))
    ['zoo: over 2 corruptions, susceptible: no class more than once; robust: yak under both.']
    """
    for dataset, part in named.groupby(DATASET, sort=False):
        known = part[~lines_at_chance(part)]
        if known.empty:
            level = "on clean images all subjects are at the level of chance"
            yield f"{dataset}: {level}; no class can be said to be susceptible or robust."
            continue
        if not all(known[verdict].map(len).any() for verdict in VERDICT.choices):
            continue
        if len(known) == 1:
            susceptible, robust_keys = (small.listed(known[verdict].iloc[0]) for verdict in VERDICT.choices)
            yield f"{dataset}: under {known[CORRUPTION].iloc[0]}, susceptible: {susceptible}; robust: {robust_keys}."
            continue
        susceptible, robust_keys = (_most_often(known[verdict]) for verdict in VERDICT.choices)
        yield f"{dataset}: over {_corruptions(len(known))}, susceptible: {susceptible}; robust: {robust_keys}."


def _most_often(keys_by_corruption: pd.Series) -> str:
    """The classes named under most corruptions, of two or more."""
    counts = Counter(key for keys in keys_by_corruption for key in keys)
    times = max(counts.values())
    if times == 1:
        return "no class more than once"
    leading = [key for key, count in counts.items() if count == times]
    if times == len(keys_by_corruption):
        return f"{small.listed(leading)} under {small.all_of(times)}"
    return f"most often {small.listed(leading)} ({times}{' each' if len(leading) > 1 else ''})"


def direction_headlines(classes: pd.DataFrame) -> Iterator[str]:
    """How many classes are harder or easier than when clean, and which rank as robust though they have become harder.

    >>> line = {"dataset": "zoo", "corruption": "fog", "label": "cat", "direction": "harder", "verdict": "robust"}
    >>> print(*direction_headlines(pd.DataFrame([line, line | {"label": "yak", "direction": "unclear"}])))
    zoo: over 1 corruption, 1 of 2 classes are harder than clean and 0 easier; 1 of 2 robust verdicts are of harder \
classes.
    """
    for dataset, part in classes.dropna(subset=DIRECTION).groupby(DATASET, sort=False):
        if all_at_chance(part):
            yield f"{dataset}: on clean images all subjects are at the level of chance; no class can be said to break."
            continue
        counts = Counter(part[DIRECTION])
        moved = f"{counts['harder']} of {len(part)} classes are harder than clean and {counts['easier']} easier"
        steady = part[part[VERDICT] == "robust"]
        also = f"{(steady[DIRECTION] == 'harder').sum()} of {len(steady)} robust verdicts are of harder classes"
        yield f"{dataset}: over {_corruptions(part[CORRUPTION].nunique())}, {moved}; {also}."


def _corruptions(number: int) -> str:
    return f"{number} corruption{'s' if number > 1 else ''}"


FIGURES = (
    Figure("segment_models", "Easy and hard images", (segments.SEGMENT_MODELS_SHOWN,), models_figure),
    Figure("segment_classes", "Hard classes", (segments.SEGMENT_CLASSES_SHOWN,), classes_figure),
    Figure("class_robustness", "Robust classes", (robust.CLASS_ROBUSTNESS_SHOWN,), ranking_figure),
    Figure("robust_classes", "Susceptible or robust", (robust.ROBUST_CLASSES,), table_figure),
    Figure("class_severity_difficulty", "Easy and hard images by severity", (robust.BY_DIFFICULTY,), severities_figure),
    Figure(
        "class_severity_discrimination",
        "Discriminating images by severity",
        (robust.BY_DISCRIMINATION,),
        severities_figure,
    ),
)
HEADLINES = {
    segments.SEGMENT_MODELS.name: model_headlines,
    segments.SEGMENT_CLASSES.name: class_headlines,
    robust.ROBUST_CLASSES.name: robust_headlines,
    robust.CLASS_ROBUSTNESS.name: direction_headlines,
}
