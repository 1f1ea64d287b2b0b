"""Figures and sentences of this study: fit, dependence, information, dimensions, DIF and severity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Finding, Statement
from fca.report.small import format_with_interval
from fca.studies.irt.fits import (
    ABILITY,
    DIFFICULTY,
    HELD_OUT_NLL,
    HOLD_OUT,
    IRT_MODEL,
    N_ITEMS,
    SUBJECT,
    not_estimable_lines,
)
from fca.studies.psychometrics import dif, dimensionality, information, item_fit, severity_facet
from fca.studies.psychometrics.dif import DELTA, ETS_CLASS
from fca.studies.psychometrics.dimensionality import DIMENSIONS, GAIN
from fca.studies.psychometrics.information import INFORMATION, KIND
from fca.studies.psychometrics.item_fit import INFIT, INFIT_EXPECTED, INFIT_Z, LIMIT, PAIR_Z, WITHIN, Z_BY_CHANCE
from fca.studies.psychometrics.severity_facet import EFFECT, LINE, STEP
from fca.tables.table import CORRUPTION, DATASET, MODEL, SEVERITY
from fca.types import Table


def item_fit_figure(sample: Table) -> alt.FacetChart:
    """The figure of how well sampled items (images) fit the model: standardised infit against difficulty.

    Infit measures how far the responses to an item deviate from its curve. It is drawn as the number of standard
    deviations from its expectation. Items without such a value are left out. Raises NothingToDraw
    if no item has one.

    sample: table item_fit_shown, with a line for each sampled item.
    """
    frame = sample.frame.dropna(subset=INFIT_Z)
    frame = frame.assign(panel=style.panels(frame, DATASET))

    marks: Any = alt.Chart().mark_circle(size=22, opacity=0.5)
    marks = marks.encode(
        x=kinds.quantity(alt.X, DIFFICULTY, "difficulty"),
        y=kinds.quantity(alt.Y, INFIT_Z, "infit, standard deviations from expected"),
        tooltip=kinds.tooltips(sample.columns),
    )
    # level lines at both limits
    limits = [kinds.reference(limit, on_y=True) for limit in (-LIMIT, LIMIT)]

    title = style.title(
        "Which images do not follow their curve?",
        "Each dot is one image of a sample. Above the dashed lines its responses are noisier than expected, below them "
        "more regular.",
        "If the model holds, at most one of twenty dots is outside the lines.",
    )
    return style.faceted(kinds.layers(marks, *limits), frame, title, filters=(DATASET,), height=280)


def person_fit_figure(persons: Table) -> alt.FacetChart:
    """The figure of the infit of each subject (a dot) beside its expectation under the model (a tick).

    A subject is a model that responded to the images. Its infit measures how far its responses deviate from those that
    its ability predicts. Raises NothingToDraw if there is no subject.

    persons: table person_fit, with a line for each subject.
    """
    frame = persons.frame.assign(panel=style.panels(persons.frame, DATASET))

    rows = kinds.category(alt.Y, SUBJECT, alt.EncodingSortField(INFIT, order="descending"))
    base: Any = alt.Chart().encode(y=rows, tooltip=kinds.tooltips(persons.columns))
    ticks = base.mark_tick(thickness=2, color=kinds.GREY, size=12)
    ticks = ticks.encode(x=kinds.quantity(alt.X, INFIT_EXPECTED, "infit"))
    dots = base.mark_point(filled=True, size=55)
    dots = dots.encode(x=kinds.quantity(alt.X, INFIT, "infit"))

    title = style.title(
        item_fit.PERSON_FIT.question,
        "Each dot is the infit of a subject, each tick its infit in simulated responses, for which the model holds.",
        "A dot right of its tick fails on easy images and solves hard ones too often.",
    )
    # row: pixels for each subject
    return style.faceted(kinds.layers(ticks, dots), frame, title, filters=(DATASET,), row=14)


def pairs_figure(pairs: Table, dependence: Table) -> alt.FacetChart:
    """The figure of the pairs of images that depend on each other most, beyond what ability explains.

    z is the standardised covariance of the residuals of a pair; it has no interval. The dashed line is the highest z of
    any pair in simulated responses, in which no pair is dependent. Raises NothingToDraw if there is no pair.

    pairs: table dependent_pairs, with a line for each pair.
    dependence: table with a line for each data set, which has this highest simulated z.
    """
    frame = pairs.frame.merge(dependence.frame[[DATASET, Z_BY_CHANCE]], on=DATASET)
    pair_names = frame[item_fit.FIRST] + " · " + frame[item_fit.SECOND]
    frame = frame.assign(panel=style.panels(frame, DATASET), pair=pair_names)

    rows = kinds.category(alt.Y, "pair", alt.EncodingSortField(PAIR_Z, order="descending"), labelLimit=320)
    chart = kinds.points_with_intervals(PAIR_Z, rows, pairs.columns, line=Z_BY_CHANCE, size=60)

    title = style.title(
        "Which images go together beyond ability?",
        "Each mark is the covariance, over subjects, of what the model does not explain of two images; the dashed line "
        "is the highest of any pair in simulated responses.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), row=14)  # row: pixels for each pair


def information_figure(curves: Table) -> alt.FacetChart:
    """The figure of the Fisher information of all images together against ability, with each subject on the curve.

    curves: table test_information, whose column `kind` separates the points of the curve from the subjects. Raises
        NothingToDraw if it is empty.
    """
    frame = curves.frame.assign(panel=style.panels(curves.frame, DATASET))

    base: Any = alt.Chart().encode(
        x=kinds.quantity(alt.X, ABILITY, "ability", nice=False, padding=8),
        y=kinds.quantity(alt.Y, INFORMATION, "Fisher information", zero=True, padding=0),
        tooltip=kinds.tooltips(curves.columns),
    )
    line = base.transform_filter(f"datum.{KIND} == 'curve'").mark_line(strokeWidth=2)
    dots = base.transform_filter(f"datum.{KIND} == 'subject'").mark_point(filled=True, size=45, color=kinds.CONTRAST[0])

    title = style.title(
        information.TEST_INFORMATION.question,
        "The line is the information of all images; the standard error of an ability is one over its root. Dots are "
        "the subjects.",
    )
    return style.faceted(kinds.layers(line, dots), frame, title, filters=(DATASET,), height=260)


def dimensionality_figure(table: Table) -> alt.FacetChart:
    """The figure of how much each further dimension of ability lowers the log loss of held-out responses.

    table: table `dimensionality`. Its lines for one dimension have no gain, as there are no fewer dimensions to compare
        with; they are not drawn. Raises NothingToDraw if there are no other lines.
    """
    frame = table.frame.dropna(subset=GAIN)
    frame = frame.assign(panel=style.panels(frame, DATASET))

    coloured = kinds.hue(HOLD_OUT, frame, title="hidden")  # title of the legend: what was hidden from the fit
    dimensions_axis = alt.X(f"{DIMENSIONS}:O", title="dimensions", axis=alt.Axis(labelAngle=0))
    chart = kinds.points_with_intervals(
        GAIN,
        dimensions_axis,
        table.columns,
        coloured,
        dodge=HOLD_OUT,  # cells and subjects beside each other
        line=kinds.ZERO,
        scale=kinds.quantity(alt.Y, GAIN, "log loss saved"),
    )

    title = style.title(
        "Does one ability explain the responses?",
        "Each mark is the log loss of held-out responses that one more dimension saves, with its 95 % interval over "
        "networks.",
        "Above 0 the dimension predicts better, below 0 it only fits noise.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), height=240)


def dif_figure(sample: Table) -> alt.FacetChart:
    """The figure of differential item functioning (DIF): ETS delta of sampled items against their difficulty.

    ETS delta is below 0 if an item is harder for the focal group than for the other models at equal ability. Its class,
    A (negligible) to C (large), is the colour. Raises NothingToDraw if there is no item.

    sample: table dif_shown, with a line for each sampled item.
    """
    frame = sample.frame.assign(panel=style.panels(sample.frame, DATASET))

    coloured = kinds.hue(ETS_CLASS, frame, title="DIF")
    difficulty_axis = kinds.quantity(alt.X, DIFFICULTY, "difficulty")
    delta_axis = kinds.quantity(alt.Y, DELTA, "ETS delta")
    dots = kinds.scatter(difficulty_axis, delta_axis, sample.columns, coloured, size=30)
    zero_line = kinds.reference(kinds.ZERO, on_y=True)

    title = style.title(
        "Which images are harder for one kind of model at equal ability?",
        "Each dot is one image of a sample of the tested ones. Below 0 it is harder for the focal group.",
        "With few models large values are mostly noise, so classes B and C also require significance.",
    )
    return style.faceted(kinds.layers(zero_line, dots), frame, title, filters=(DATASET,))


def severity_facet_figure(effects: Table) -> alt.FacetChart:
    """The figure of the difficulty that each severity of a corruption adds, beside a line of equal steps.

    There is one panel for each data set and corruption. Raises NothingToDraw if there is none.

    effects: table severity_effects, with a line for each severity; column LINE is the height of the straight line.
    """
    frame = effects.frame.assign(panel=style.panels(effects.frame, DATASET, CORRUPTION))

    severity_axis = alt.X(f"{SEVERITY}:O", title="severity", axis=alt.Axis(labelAngle=0))
    effect_axis = kinds.quantity(alt.Y, EFFECT, "added difficulty (logits)", zero=True)
    dots = kinds.points_with_intervals(EFFECT, severity_axis, effects.columns, scale=effect_axis, size=60)
    straight_line: Any = alt.Chart().mark_line(strokeDash=[5, 3], color=kinds.GREY)
    straight_line = straight_line.encode(x=severity_axis, y=f"{LINE}:Q")

    title = style.title(
        "How much difficulty does each severity add?",
        "Each dot is the difficulty that one severity adds, with its 95 % interval over networks; the dashed line has "
        "the same step at each severity.",
    )
    return style.faceted(kinds.layers(straight_line, dots), frame, title, filters=(DATASET, CORRUPTION), height=200)


def networks_figure(networks: Table, steps: Table) -> alt.FacetChart:
    """The figure of the severity step of each single network (open marks) beside the step of all networks.

    A severity step is the difficulty that one more step of severity adds. There is one row for each corruption.
    Raises NothingToDraw if there is none.

    networks: table severity_networks, with the steps of single networks; networks without a step are not drawn.
    steps: table severity_facet, with the steps that all networks share.
    """
    # a chart has one set of data, so both tables are joined; column `mark` names the table of each line
    of_networks = networks.frame.dropna(subset=STEP).assign(mark="network")
    frame = pd.concat([of_networks, steps.frame.assign(mark="common")])
    frame["panel"] = style.panels(frame, DATASET)

    corruption_rows = kinds.category(alt.Y, CORRUPTION)
    step_axis = kinds.quantity(alt.X, STEP, "difficulty that a step of severity adds (logits)", zero=True)
    single: Any = alt.Chart().transform_filter("datum.mark == 'network'").mark_point(size=40, color=kinds.GREY)
    single = single.encode(x=step_axis, y=corruption_rows, tooltip=kinds.tooltips(networks.columns))
    common = kinds.points_with_intervals(
        STEP, corruption_rows, steps.columns, where="datum.mark == 'common'", scale=step_axis, size=80, line=0.0
    )

    title = style.title(
        severity_facet.SEVERITY_NETWORKS.question,
        "Filled marks are the step that all networks share, with its 95 % interval over networks; open marks are "
        "single networks.",
        "Where open marks are far apart, no single step describes all networks.",
    )
    # row: pixels for each corruption
    return style.faceted(kinds.layers(single, common), frame, title, filters=(DATASET, CORRUPTION), row=32)


def dependence_statements(dependence: pd.DataFrame) -> Iterator[Statement]:
    """Statements on how many items misfit, and on whether images depend on each other beyond ability.

    Dependence is given for images of one class (mean Q3, the correlation of residuals) and for single pairs of images.
    Statements on scales of a fit (such as the spread of difficulty) that the responses leave open come first.
    Statements with missing numbers are left out.

    dependence: lines of table `dependence`, one for each data set.

    >>> line = {"dataset": "zoo", "misfit_infit": 0.1, "q3_within": 0.02, "q3_within_low": 0.01, "q3_within_high": 0.03}
    >>> line |= {"pairs_beyond": 0, "n_paired": 90, "irt_model": "2pl"}
    >>> for statement in dependence_statements(pd.DataFrame([line])): print(statement.sentence)
    zoo: 10% of the items have an infit beyond 1.96 standard deviations of the 2pl's (at most 5% if it held).
    zoo: mean Q3 of images of one class +0.020 [+0.010, +0.030]; no pair of 90 images above chance.
    """
    yield from _not_estimable_statements(dependence)

    for line in dependence.to_dict("records"):
        if pd.notna(line[item_fit.MISFIT_INFIT]):
            share = f"{line[item_fit.MISFIT_INFIT]:.0%} of the items"
            beyond = f"beyond {LIMIT} standard deviations of the {line[IRT_MODEL]}'s (at most 5% if it held)"
            yield Statement(f"{line[DATASET]}: {share} have an infit {beyond}.")

        if pd.notna(line[item_fit.PAIRS_BEYOND]):
            q3 = ""
            if pd.notna(line[WITHIN]):  # missing where classes are unknown, or fewer than two classes have pairs
                q3 = f"mean Q3 of images of one class {format_with_interval(line, WITHIN)}; "
            n_pairs = _number_of_pairs(int(line[item_fit.PAIRS_BEYOND]))
            pairs = f"{n_pairs} of {int(line[item_fit.N_PAIRED]):,} images"
            yield Statement(f"{line[DATASET]}: {q3}{pairs} above chance.")


def _number_of_pairs(number: int) -> str:
    """A number of pairs in words; `or more` at LISTED, as the table lists no more pairs than that."""
    if number == 0:
        return "no pair"
    if number == 1:
        return "1 pair"
    return f"{number} pairs or more" if number == item_fit.LISTED else f"{number} pairs"


def reliability_statements(reliability: pd.DataFrame) -> Iterator[Statement]:
    """How reliable the abilities are, and how many random images are enough for a reliability of 0.95.

    Statements on scales of a fit (such as the spread of difficulty) that the responses leave open come first.

    reliability: lines of table test_reliability, one for each data set.

    >>> line = {"dataset": "zoo", "n_items": 1000, "marginal": 0.99, "items_95": 120}
    >>> for statement in reliability_statements(pd.DataFrame([line])): print(statement.sentence)
    zoo: 1,000 images measure ability with a marginal reliability of 0.9900; 120 at random would reach 0.95.
    """
    yield from _not_estimable_statements(reliability)

    for line in reliability.to_dict("records"):
        marginal = f"a marginal reliability of {line[information.MARGINAL]:.4f}"
        measured = f"{line[N_ITEMS]:,} images measure ability with {marginal}"
        enough = f"{line[information.ITEMS_95]:,} at random would reach 0.95"
        yield Statement(f"{line[DATASET]}: {measured}; {enough}.")


def dimensionality_statements(table: pd.DataFrame) -> Iterator[Statement]:
    """How many dimensions of ability the held-out responses support, one statement for each kind of holding out.

    table: lines of dimensionality, one of which is chosen for each data set and kind.

    >>> line = {"dataset": "zoo", "hold_out": "subjects", "dimensions": 1, "chosen": True, "held_out_nll": 0.5}
    >>> for statement in dimensionality_statements(pd.DataFrame([line])): print(statement.sentence)
    zoo: held-out subjects show 1 dimension of ability (log loss 0.5000).
    """
    chosen = table[table[dimensionality.TAKEN].astype(bool)]
    for line in chosen.to_dict("records"):
        dimensions = f"{line[DIMENSIONS]} dimension{'s' if line[DIMENSIONS] > 1 else ''} of ability"
        loss = f"log loss {line[HELD_OUT_NLL]:.4f}"
        yield Statement(f"{line[DATASET]}: held-out {line[HOLD_OUT]} show {dimensions} ({loss}).")


def dif_statements(summary: pd.DataFrame) -> Iterator[Statement]:
    """How many items have large DIF (differential item functioning), and how many have significant DIF of any size.

    Significance is corrected for the number of tested items. Statements on scales of a fit (such as the spread of
    difficulty) that the responses leave open come first.

    summary: lines of table dif_summary, one for each data set.

    >>> line = {"dataset": "zoo", "n_focal": 5, "n_reference": 9, "n_matched": 12, "n_tested": 90, "n_items": 100}
    >>> lines = [line | {"class_c": 3, "beyond_bh": 1}, line | {"n_tested": 0, "class_c": 0, "beyond_bh": 0}]
    >>> for statement in dif_statements(pd.DataFrame(lines)): print(statement.sentence)
    zoo: 5 against 9 models (12 matched): 3 of 90 tested items have large DIF (class C), 1 after correction.
    zoo: 5 against 9 models: their abilities do not overlap enough to compare any of 100 items.
    """
    yield from _not_estimable_statements(summary)

    for line in summary.to_dict("records"):
        groups = f"{line[DATASET]}: {line[dif.N_FOCAL]} against {line[dif.N_REFERENCE]} models"
        if not line[dif.N_TESTED]:
            no_overlap = f"their abilities do not overlap enough to compare any of {line[N_ITEMS]:,} items"
            yield Statement(f"{groups}: {no_overlap}.")
            continue

        large = f"{line[dif.CLASS_C]:,} of {line[dif.N_TESTED]:,} tested items have large DIF (class C)"
        corrected = f"{line[dif.BEYOND_BH]:,} after correction"
        yield Statement(f"{groups} ({line[dif.N_MATCHED]} matched): {large}, {corrected}.")


def severity_statements(steps: pd.DataFrame) -> Iterator[Statement]:
    """One statement: under which corruption a step of severity adds most difficulty, and under which least.

    If all corruptions add the same difficulty, the statement names this one difficulty; if there is only one
    corruption, nothing is compared.

    steps: lines of table severity_facet of one data set, one for each corruption.

    >>> line = {"dataset": "zoo", "step_low": 0.4, "step_high": 0.6}
    >>> lines = [{**line, "corruption": "fog", "step": 0.5}, {**line, "corruption": "snow", "step": 0.45}]
    >>> for statement in severity_statements(pd.DataFrame(lines)): print(statement.sentence)
    zoo: a step of severity adds most difficulty under fog, +0.50 logits [+0.40, +0.60]; least under snow, +0.45.
    """
    largest = small.best_of(steps, STEP)  # several corruptions if their steps are equal
    smallest = small.best_of(steps, STEP, largest=False)
    logits = _logits(largest.iloc[0].to_dict())
    under_largest = small.listed(largest[CORRUPTION].tolist())

    adds = f"{steps[DATASET].iloc[0]}: a step of severity adds"
    if len(steps) == 1:
        yield Statement(f"{adds} difficulty under {under_largest}, {logits}.")
    elif len(largest) == len(steps):
        yield Statement(f"{adds} the same difficulty under {small.all_of(len(steps))}: {logits}.")
    else:
        under_smallest = small.listed(smallest[CORRUPTION].tolist())
        smallest_step = f"{smallest.iloc[0][STEP]:+.2f}"
        yield Statement(
            f"{adds} most difficulty under {under_largest}, {logits}; least under {under_smallest}, {smallest_step}."
        )


def _logits(line: Mapping[Any, Any]) -> str:
    """A step in logits, with its interval if it has one: `+0.50 logits [+0.40, +0.60]`."""
    interval = "" if pd.isna(line[STEP.low]) else f" [{line[STEP.low]:+.2f}, {line[STEP.high]:+.2f}]"
    return f"{line[STEP]:+.2f} logits{interval}"


def network_statements(networks: pd.DataFrame) -> Iterator[Statement]:
    """One statement: the smallest and the largest severity step of single networks.

    A severity step is the difficulty (in logits) that one more step of severity adds. The statement is about the
    corruption for which the steps of networks differ most.
    There is no statement if no network has a step, or all steps under that corruption are equal.

    networks: lines of table severity_networks, of one data set.

    >>> line = {"dataset": "zoo", "corruption": "fog"}
    >>> lines = [{**line, "model": "vit", "step": 0.1}, {**line, "model": "cnn", "step": 0.9}]
    >>> for statement in network_statements(pd.DataFrame(lines)): print(statement.sentence)
    zoo: of single networks, a step of severity adds +0.10 (vit) to +0.90 logits (cnn) under fog.
    """
    fitted = networks.dropna(subset=STEP)
    if fitted.empty:
        return

    steps = fitted.groupby(CORRUPTION)[STEP]
    range_by_corruption = steps.max() - steps.min()
    widest = range_by_corruption.idxmax()
    ordered = fitted[fitted[CORRUPTION] == widest].sort_values(STEP, kind="stable")
    lowest = ordered.iloc[0]
    highest = ordered.iloc[-1]
    if lowest[STEP] < highest[STEP]:
        ends = f"{lowest[STEP]:+.2f} ({lowest[MODEL]}) to {highest[STEP]:+.2f} logits ({highest[MODEL]})"
        yield Statement(f"{lowest[DATASET]}: of single networks, a step of severity adds {ends} under {widest}.")


def _not_estimable_statements(lines: pd.DataFrame) -> Iterator[Statement]:
    """A statement for each line of a table whose fit could not estimate one of its scales."""
    for sentence in not_estimable_lines(lines):
        yield Statement(sentence)


FINDINGS = (
    Finding("item_fit", "Item fit", (item_fit.ITEM_FIT_SHOWN,), draw=item_fit_figure),
    Finding("person_fit", "Person fit", (item_fit.PERSON_FIT,), draw=person_fit_figure),
    Finding(
        "dependent_pairs",
        "Local dependence",
        (item_fit.DEPENDENT_PAIRS, item_fit.DEPENDENCE),
        draw=pairs_figure,
    ),
    Finding("dependence", "Misfit and dependence", (item_fit.DEPENDENCE,), state=dependence_statements),
    Finding("test_information", "Test information", (information.TEST_INFORMATION,), draw=information_figure),
    Finding(
        "test_reliability", "Reliability of abilities", (information.TEST_RELIABILITY,), state=reliability_statements
    ),
    Finding(
        "dimensionality",
        "Dimensionality",
        (dimensionality.DIMENSIONALITY,),
        state=dimensionality_statements,
        draw=dimensionality_figure,
    ),
    Finding("dif", "Differential item functioning", (dif.DIF_SHOWN,), draw=dif_figure),
    Finding("dif_summary", "Items with DIF", (dif.DIF_SUMMARY,), state=dif_statements),
    Finding("severity_facet", "Severity as a facet", (severity_facet.SEVERITY_EFFECTS,), draw=severity_facet_figure),
    Finding("severity_steps", "Steps of severity", (severity_facet.SEVERITY_FACET,), state=severity_statements),
    Finding(
        "severity_networks",
        "Severity by network",
        (severity_facet.SEVERITY_NETWORKS, severity_facet.SEVERITY_FACET),
        draw=networks_figure,
    ),
    Finding(
        "network_steps",
        "Steps of single networks",
        (severity_facet.SEVERITY_NETWORKS,),
        state=network_statements,
    ),
)
