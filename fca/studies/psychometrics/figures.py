"""Fit, dependence, information, dimensions, DIF and severity: figures and headlines of what users of mirt look for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Figure
from fca.studies.irt.fits import ABILITY, DIFFICULTY, HOLD_OUT, SUBJECT, not_estimable_lines
from fca.studies.psychometrics import dif, dimensionality, information, item_fit, severity_facet
from fca.studies.psychometrics.dif import DELTA, ETS_CLASS
from fca.studies.psychometrics.dimensionality import DIMENSIONS, GAIN
from fca.studies.psychometrics.information import INFORMATION, KIND
from fca.studies.psychometrics.item_fit import INFIT, INFIT_EXPECTED, INFIT_Z, LIMIT, PAIR_Z
from fca.studies.psychometrics.severity_facet import EFFECT, STEP
from fca.studies.table import CORRUPTION, DATASET, MODEL, SEVERITY
from fca.types import Table

LINE = "line"


def item_fit_figure(shown: Table) -> alt.FacetChart:
    """Infit of sampled items against difficulty, in standard deviations from what the model makes."""
    frame = shown.frame.dropna(subset=INFIT_Z)
    frame = frame.assign(panel=style.panels(frame, DATASET))
    marks: Any = alt.Chart().mark_circle(size=22, opacity=0.5)
    marks = marks.encode(
        x=kinds.quantity(alt.X, DIFFICULTY, "difficulty"),
        y=kinds.quantity(alt.Y, INFIT_Z, "infit, standard deviations from expected"),
        tooltip=kinds.tooltips(shown.columns),
    )
    chart = kinds.layers(marks, *(kinds.reference(end, upright=True) for end in (-LIMIT, LIMIT)))
    title = style.title(
        "Which images do not follow their curve?",
        "Each dot is one image of a sample. Above the dashed lines its responses are noisier than expected, below them "
        "more regular.",
        "If the model held, at most one of twenty dots would lie outside.",
    )
    return style.faceted(chart, frame, title, (DATASET,), height=280)


def person_fit_figure(persons: Table) -> alt.FacetChart:
    """Each subject's infit beside what it would be if the model held."""
    frame = persons.frame.assign(panel=style.panels(persons.frame, DATASET))
    rows = kinds.category(alt.Y, SUBJECT, alt.EncodingSortField(INFIT, order="descending"))
    base: Any = alt.Chart().encode(y=rows, tooltip=kinds.tooltips(persons.columns))
    ticks = base.mark_tick(thickness=2, color=kinds.GREY, size=12).encode(
        x=kinds.quantity(alt.X, INFIT_EXPECTED, "infit")
    )
    dots = base.mark_point(filled=True, size=55).encode(x=kinds.quantity(alt.X, INFIT, "infit"))
    title = style.title(
        "Which subjects respond unlike the others of their ability?",
        "Each dot is the infit of a subject, each tick its infit in simulated responses, for which the model holds.",
        "A dot right of its tick fails on easy images and solves hard ones too often.",
    )
    return style.faceted(kinds.layers(ticks, dots), frame, title, (DATASET,), row=14)


def pairs_figure(pairs: Table, dependence: Table) -> alt.FacetChart:
    """The most dependent pairs, and the highest that chance makes."""
    frame = pairs.frame.merge(dependence.frame[[DATASET, "z_by_chance"]], on=DATASET)
    frame = frame.assign(panel=style.panels(frame, DATASET), pair=frame["first"] + " · " + frame["second"])
    rows = kinds.category(alt.Y, "pair", alt.EncodingSortField(PAIR_Z, order="descending"), labelLimit=320)
    chart = kinds.points_with_intervals(PAIR_Z, rows, pairs.columns, line="z_by_chance", size=60)
    title = style.title(
        "Which images go together beyond ability?",
        "Each mark is the covariance, over subjects, of what the model does not explain of two "
        "images; the dashed line is "
        "the highest of any pair in simulated responses.",
    )
    return style.faceted(chart, frame, title, (DATASET,), row=14)


def information_figure(curves: Table) -> alt.FacetChart:
    """Information of the whole set over ability, with the subjects on the curve."""
    frame = curves.frame.assign(panel=style.panels(curves.frame, DATASET))
    base: Any = alt.Chart().encode(
        x=kinds.quantity(alt.X, ABILITY, "ability", nice=False, padding=8),
        y=kinds.quantity(alt.Y, INFORMATION, "Fisher information", zero=True, padding=0),
        tooltip=kinds.tooltips(curves.columns),
    )
    line = base.transform_filter(f"datum.{KIND} == 'curve'").mark_line(strokeWidth=2)
    dots = base.transform_filter(f"datum.{KIND} == 'subject'").mark_point(filled=True, size=45, color=kinds.CONTRAST[0])
    title = style.title(
        "At which abilities do the images measure well?",
        "The line is the information of all images; the standard error of an ability is one over its "
        "root. Dots are the "
        "subjects.",
    )
    return style.faceted(kinds.layers(line, dots), frame, title, (DATASET,), height=260)


def dimensionality_figure(table: Table) -> alt.FacetChart:
    """What a second and a third dimension save in predicting hidden responses."""
    frame = table.frame.dropna(subset=GAIN)
    frame = frame.assign(panel=style.panels(frame, DATASET))
    coloured = kinds.hue(HOLD_OUT, frame, title="hidden")
    along = alt.X(f"{DIMENSIONS}:O", title="dimensions", axis=alt.Axis(labelAngle=0))
    up = kinds.quantity(alt.Y, GAIN, "log loss saved")
    chart = kinds.points_with_intervals(GAIN, along, table.columns, coloured, dodge=HOLD_OUT, line=kinds.ZERO, scale=up)
    title = style.title(
        "Does one ability explain the responses?",
        "Each mark is the log loss of held-out responses that one more dimension saves, with its 95 "
        "% interval over networks;",
        "above 0 it predicts better, below 0 it only fits noise.",
    )
    return style.faceted(chart, frame, title, (DATASET,), height=240)


def dif_figure(shown: Table) -> alt.FacetChart:
    """Delta of sampled items against difficulty, coloured by its class."""
    frame = shown.frame.assign(panel=style.panels(shown.frame, DATASET))
    coloured = kinds.hue(ETS_CLASS, frame, title="DIF")
    across = kinds.quantity(alt.X, DIFFICULTY, "difficulty")
    chart = kinds.scatter(across, kinds.quantity(alt.Y, DELTA, "ETS delta"), shown.columns, coloured, size=30)
    title = style.title(
        "Which images are harder for one kind of model at equal ability?",
        "Each dot is one image of a sample of those that can be tested; below 0 it is harder for the focal group.",
        "With few models large values are mostly noise: classes B and C also need significance.",
    )
    return style.faceted(kinds.layers(kinds.reference(kinds.ZERO, upright=True), chart), frame, title, (DATASET,))


def severity_facet_figure(effects: Table) -> alt.FacetChart:
    """Difficulty that each severity adds, with its interval, and the straight line through clean images."""
    frame = effects.frame.assign(panel=style.panels(effects.frame, DATASET, CORRUPTION))
    along = alt.X(f"{SEVERITY}:O", title="severity", axis=alt.Axis(labelAngle=0))
    up = kinds.quantity(alt.Y, EFFECT, "added difficulty (logits)", zero=True)
    dots = kinds.points_with_intervals(EFFECT, along, effects.columns, scale=up, size=60)
    straight: Any = alt.Chart().mark_line(strokeDash=[5, 3], color=kinds.GREY)
    chart = kinds.layers(straight.encode(x=along, y=f"{LINE}:Q"), dots)
    title = style.title(
        "How much difficulty does each severity add?",
        "Each dot is the difficulty that one severity adds, with its 95 % interval over networks; "
        "the dashed line has the "
        "same step at each severity.",
    )
    return style.faceted(chart, frame, title, (DATASET, CORRUPTION), height=200)


def networks_figure(networks: Table, steps: Table) -> alt.FacetChart:
    """The step of each network beside the common one, a row a corruption."""
    frame = pd.concat([networks.frame.dropna(subset=STEP).assign(mark="network"), steps.frame.assign(mark="common")])
    frame["panel"] = style.panels(frame, DATASET)
    along = kinds.category(alt.Y, CORRUPTION)
    axis = kinds.quantity(alt.X, STEP, "difficulty that a step of severity adds (logits)", zero=True)
    each: Any = alt.Chart().transform_filter("datum.mark == 'network'").mark_point(size=40, color=kinds.GREY)
    each = each.encode(x=axis, y=along, tooltip=kinds.tooltips(networks.columns))
    common = kinds.points_with_intervals(
        STEP, along, steps.columns, where="datum.mark == 'common'", scale=axis, size=80, line=0.0
    )
    title = style.title(
        "Does a step of severity cost every network as much?",
        "Filled marks are the step that all networks share, with its 95 % interval over networks; "
        "open marks are single "
        "networks.",
        "Where open dots lie far apart, no single step describes all networks.",
    )
    return style.faceted(kinds.layers(each, common), frame, title, (DATASET, CORRUPTION), row=32)


def dependence_headlines(dependence: pd.DataFrame) -> Iterator[str]:
    """How many items misfit, and whether classes or single pairs share more than ability.

    >>> line = {"dataset": "zoo", "misfit_infit": 0.1, "q3_within": 0.02, "q3_within_low": 0.01, "q3_within_high": 0.03}
    >>> line |= {"pairs_beyond": 0, "n_paired": 90, "irt_model": "2pl"}
    >>> for sentence in dependence_headlines(pd.DataFrame([line])): print(sentence)
    zoo: 10% of the items have an infit beyond 1.96 standard deviations of the 2pl's (at most 5% if it held).
    zoo: mean Q3 of images of one class +0.020 [+0.010, +0.030]; no pair of 90 images above chance.
    """
    yield from not_estimable_lines(dependence)
    for line in dependence.to_dict("records"):
        if pd.notna(line["misfit_infit"]):
            of = f"{line['misfit_infit']:.0%} of the items have an infit beyond {LIMIT} standard deviations"
            yield f"{line[DATASET]}: {of} of the {line['irt_model']}'s (at most 5% if it held)."
        if pd.notna(line["pairs_beyond"]):
            has_ends = pd.notna(line["q3_within_low"])
            ends = f" [{line['q3_within_low']:+.3f}, {line['q3_within_high']:+.3f}]" if has_ends else ""
            known = pd.notna(line["q3_within"])
            within = f"mean Q3 of images of one class {line['q3_within']:+.3f}{ends}; " if known else ""
            count = int(line["pairs_beyond"])
            number = {0: "no pair", 1: "1 pair", 20: "20 pairs or more"}.get(count, f"{count} pairs")
            yield f"{line[DATASET]}: {within}{number} of {int(line['n_paired']):,} images above chance."


def reliability_headlines(lines: pd.DataFrame) -> Iterator[str]:
    """How reliable abilities are, and how many images are enough.

    >>> line = {"dataset": "zoo", "n_items": 1000, "marginal": 0.99, "items_95": 120}
    >>> list(reliability_headlines(pd.DataFrame([line])))
    ['zoo: 1,000 images measure ability with a marginal reliability of 0.9900; 120 at random would reach 0.95.']
    """
    yield from not_estimable_lines(lines)
    for line in lines.to_dict("records"):
        found = f"{line['n_items']:,} images measure ability with a marginal reliability of {line['marginal']:.4f}"
        yield f"{line[DATASET]}: {found}; {line['items_95']:,} at random would reach 0.95."


def dimensionality_headlines(table: pd.DataFrame) -> Iterator[str]:
    """How many dimensions are taken, by each way of hiding.

    >>> line = {"dataset": "zoo", "hold_out": "subjects", "dimensions": 1, "chosen": True, "held_out_nll": 0.5}
    >>> list(dimensionality_headlines(pd.DataFrame([line])))
    ['zoo: held-out subjects show 1 dimension of ability (log loss 0.5000).']
    """
    for line in table[table["chosen"].astype(bool)].to_dict("records"):
        count = f"{line[DIMENSIONS]} dimension{'s' if line[DIMENSIONS] > 1 else ''} of ability"
        yield f"{line[DATASET]}: held-out {line[HOLD_OUT]} show {count} (log loss {line['held_out_nll']:.4f})."


def dif_headlines(summary: pd.DataFrame) -> Iterator[str]:
    """How many items have DIF, among how many that can be tested.

    >>> line = {"dataset": "zoo", "n_focal": 5, "n_reference": 9, "n_matched": 12, "n_tested": 90, "n_items": 100}
    >>> list(dif_headlines(pd.DataFrame([line | {"class_c": 3, "beyond_bh": 1}])))
    ['zoo: 5 against 9 models (12 matched): 3 of 90 tested items have large DIF (class C), 1 after correction.']
    >>> list(dif_headlines(pd.DataFrame([line | {"n_tested": 0}])))
    ['zoo: 5 against 9 models: their abilities do not overlap enough to compare any of 100 items.']
    """
    yield from not_estimable_lines(summary)
    for line in summary.to_dict("records"):
        groups = f"{line[DATASET]}: {line['n_focal']} against {line['n_reference']} models"
        if not line["n_tested"]:
            yield f"{groups}: their abilities do not overlap enough to compare any of {line['n_items']:,} items."
            continue
        large = f"{line['class_c']:,} of {line['n_tested']:,} tested items have large DIF (class C)"
        yield f"{groups} ({line['n_matched']} matched): {large}, {line['beyond_bh']:,} after correction."


def severity_headlines(steps: pd.DataFrame) -> Iterator[str]:
    """Which corruption adds most difficulty a step, and which least.

    >>> line = {"dataset": "zoo", "step_low": 0.4, "step_high": 0.6}
    >>> lines = [{**line, "corruption": "fog", "step": 0.5}, {**line, "corruption": "snow", "step": 0.45}]
    >>> list(severity_headlines(pd.DataFrame(lines)))
    ['zoo: a step of severity adds most difficulty under fog, +0.50 logits [+0.40, +0.60]; least under snow, +0.45.']
    """
    for dataset, part in steps.groupby(DATASET, sort=False):
        largest, smallest = (small.best_of(part, STEP, is_largest) for is_largest in (True, False))
        first, last = largest.iloc[0], smallest.iloc[0]
        ends = f" [{first[STEP.low]:+.2f}, {first[STEP.high]:+.2f}]" if pd.notna(first[STEP.low]) else ""
        if len(largest) == len(part) > 1:
            every, as_much = small.all_of(len(part)), f"{first[STEP]:+.2f} logits{ends}"
            yield f"{dataset}: a step of severity adds the same difficulty under {every}: {as_much}."
            continue
        under = f"under {small.listed(largest[CORRUPTION].tolist())}, {first[STEP]:+.2f} logits{ends}"
        if len(part) == 1:
            yield f"{dataset}: a step of severity adds difficulty {under}."
            continue
        least = f"least under {small.listed(smallest[CORRUPTION].tolist())}, {last[STEP]:+.2f}"
        yield f"{dataset}: a step of severity adds most difficulty {under}; {least}."


def network_headlines(networks: pd.DataFrame) -> Iterator[str]:
    """Between which ends the steps of single networks lie, under the corruption where they differ most.

    >>> line = {"dataset": "zoo", "corruption": "fog"}
    >>> lines = [{**line, "model": "vit", "step": 0.1}, {**line, "model": "cnn", "step": 0.9}]
    >>> list(network_headlines(pd.DataFrame(lines)))
    ['zoo: of single networks, a step of severity adds +0.10 (vit) to +0.90 logits (cnn) under fog.']
    """
    for dataset, part in networks.dropna(subset=STEP).groupby(DATASET, sort=False):
        steps = part.groupby(CORRUPTION)[STEP]
        widest = (steps.max() - steps.min()).idxmax()
        ordered = part[part[CORRUPTION] == widest].sort_values(STEP, kind="stable").to_dict("records")
        if len(ordered) > 1 and ordered[0][STEP] < ordered[-1][STEP]:
            low, high = ordered[0], ordered[-1]
            ends = f"{low[STEP]:+.2f} ({low[MODEL]}) to {high[STEP]:+.2f} logits ({high[MODEL]})"
            yield f"{dataset}: of single networks, a step of severity adds {ends} under {widest}."


FIGURES = (
    Figure("item_fit", "Item fit", (item_fit.ITEM_FIT_SHOWN,), item_fit_figure),
    Figure("person_fit", "Person fit", (item_fit.PERSON_FIT,), person_fit_figure),
    Figure("dependent_pairs", "Local dependence", (item_fit.DEPENDENT_PAIRS, item_fit.DEPENDENCE), pairs_figure),
    Figure("test_information", "Test information", (information.TEST_INFORMATION,), information_figure),
    Figure("dimensionality", "Dimensionality", (dimensionality.DIMENSIONALITY,), dimensionality_figure),
    Figure("dif", "Differential item functioning", (dif.DIF_SHOWN, dif.DIF_SUMMARY), lambda s, _: dif_figure(s)),
    Figure(
        *("severity_facet", "Severity as a facet", (severity_facet.SEVERITY_EFFECTS, severity_facet.SEVERITY_FACET)),
        lambda effects, _: severity_facet_figure(effects),
    ),
    Figure(
        *("severity_networks", "Severity by network"),
        *((severity_facet.SEVERITY_NETWORKS, severity_facet.SEVERITY_FACET), networks_figure),
    ),
)
HEADLINES = {
    item_fit.DEPENDENCE.name: dependence_headlines,
    information.TEST_RELIABILITY.name: reliability_headlines,
    dimensionality.DIMENSIONALITY.name: dimensionality_headlines,
    dif.DIF_SUMMARY.name: dif_headlines,
    severity_facet.SEVERITY_FACET.name: severity_headlines,
    severity_facet.SEVERITY_NETWORKS.name: network_headlines,
}
