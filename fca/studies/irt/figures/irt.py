"""Abilities, item parameters and how far to trust them: figures, statements of analysis=irt and analysis=reliability.

The figures of items: the plane of difficulty and discrimination, histograms by severity, and item curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.irt.fits import (
    ABILITY,
    DIFFICULTY,
    DISCRIMINATION,
    HELD_OUT_NLL,
    HOLD_OUT,
    IRT_MODEL,
    N_ITEMS,
    N_MODELS,
    N_SUBJECTS,
    SHARE,
    SUBJECT,
    TRAIT,
    not_estimable_lines,
)
from fca.studies.irt.irt import (
    BASELINE_NLL,
    CEILING,
    CONVERGED,
    EXCESS,
    HELD_OUT_AUC,
    INNER_NLL,
    IRT_PLANE,
    IRT_SEVERITY,
    MARK,
    ONE_CLASS,
    PROBABILITY,
    TAU,
    WEAK_LINK,
)
from fca.tables.table import CORRUPTION, DATASET, MODEL, SEVERITY, SNAPSHOT, TOP1
from fca.types import Table

PAPER_SEVERITY = 1
FEW_CORRUPTIONS = 4  # corruptions whose histograms are drawn tall
FEWEST_ORDERED = 3  # subjects: two are in one of two orders anyway
_HIGHEST_BAR = 0.9  # of the distance between severities, at the highest bin of a panel


def abilities_figure(abilities: Table, fits: Table) -> alt.FacetChart:
    """Draw every subject's ability with its interval, one row per model, ablest first; one panel per scale.

    Subjects on one scale were fitted together. The heading of a panel has Kendall's tau between ability and accuracy.
    abilities, fits: tables irt_abilities and irt_fits.
    """
    # where every severity has its own fit, severity 0 of each corruption only repeats the fit of clean images. The
    # severity is missing where all severities share a fit
    is_severity_0 = (abilities.frame[SEVERITY] == 0).fillna(value=False)
    is_repeated_clean = is_severity_0 & (abilities.frame[CORRUPTION] != "clean")
    frame = with_panel(abilities.frame[~is_repeated_clean])
    # a fit and its subjects have the same heading; tau of the fit is written below it
    fits_with_panel = with_panel(fits.frame).to_dict("records")
    heading_by_panel = {fit["panel"]: f"{fit['panel']}\n{_tau_in_words(fit)}" for fit in fits_with_panel}
    frame = frame.assign(panel=frame["panel"].map(heading_by_panel))
    trait = frame[TRAIT].iloc[0]  # what the analysis calls ability, such as "agreement with shape"

    colours = None
    if style.differs(frame[SNAPSHOT].dropna()):  # one snapshot needs no colours
        frame[SNAPSHOT] = frame[SNAPSHOT].fillna("none")
        colours = kinds.hue(SNAPSHOT, frame, shapes=None, title="snapshot (share of all steps)", ordered=True)
    rows = kinds.category(alt.Y, MODEL, alt.EncodingSortField(ABILITY, op="max", order="descending"))
    ability_axis = kinds.quantity(alt.X, ABILITY, trait)
    chart = kinds.points_with_intervals(ABILITY, rows, abilities.columns, colours, scale=ability_axis, size=60)
    title = style.title(
        "How able is each model?" if trait == "ability" else f"Which subjects show most {trait}?",
        f"Each mark is the estimated {trait} of one subject with its 95 % interval, in standard deviations "
        "of the subjects",
        "(1pl: logits); each line is one model. Kendall's tau is 1 where it orders the subjects as accuracy does.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET, MODEL, CORRUPTION), row=17)


def with_panel(frame: pd.DataFrame) -> pd.DataFrame:
    """The lines with a column `panel`, the heading of the scale (a group of items and subjects fitted together).

    The heading has the data set and the corruption where they differ. It also has the severity where every severity of
    a corruption was fitted separately; the severity is missing where all share a scale, and clean images need none.
    frame: lines of irt_abilities or irt_fits.
    """
    separate_severity = frame[SEVERITY].where(frame[CORRUPTION] != "clean")
    severity_words = separate_severity.map(lambda severity: "" if pd.isna(severity) else f" {severity}")
    frame = frame.assign(scale=frame[CORRUPTION] + severity_words)
    # `panels` takes the last field as the heading if neither differs: then the data set
    fields = (DATASET, "scale") if style.differs(frame["scale"]) else ("scale", DATASET)
    return frame.assign(panel=style.panels(frame, *fields))


def _tau_in_words(fit: Mapping[Any, Any]) -> str:
    """Kendall's tau of a fit with its interval, such as "tau 0.970 [0.900, 1.000]", or why one of them is missing.

    fit: a line of table irt_fits.
    """
    if pd.isna(fit[TAU]):
        return "tau not defined"
    reason = " (no interval: too few networks, or all in one order)" if pd.isna(fit[TAU.low]) else ""
    return f"tau {format_with_interval(fit, TAU.with_format('.3f'))}{reason}"


def plane_figure(plane: Table) -> alt.FacetChart:
    """Draw discrimination against difficulty of sampled items, coloured by the ceiling of the chance to be right.

    The ceiling is the item's feasibility where the item response model has one, else p_max, the ablest subject's
    chance.
    One panel per data set and corruption. plane: table irt_plane.
    """
    # `panels` takes the last field as the heading if no field differs: a data set is a better heading than "clean"
    fields = (DATASET, CORRUPTION) if style.differs(plane.frame[CORRUPTION]) else (CORRUPTION, DATASET)
    frame = plane.frame.assign(panel=style.panels(plane.frame, *fields))

    ceiling_names = " or ".join(dict.fromkeys(frame["ceiling_is"]))
    legend = alt.Legend(title=ceiling_names, gradientLength=200)
    marks: Any = alt.Chart().mark_circle(size=28, opacity=0.7)
    chart = marks.encode(
        x=kinds.quantity(alt.X, DIFFICULTY, "difficulty"),
        y=kinds.quantity(alt.Y, DISCRIMINATION, "discrimination", zero=True, padding=0),
        # "ordinal": the colours of `style.config` for ordered values, which begin with the darkest
        color=alt.Color(f"{CEILING}:Q", scale=alt.Scale(domain=[0, 1], range="ordinal"), legend=legend),
        tooltip=kinds.tooltips(plane.columns),
    )
    title = style.title(
        IRT_PLANE.question,
        "Each dot is one image of a sample; the darker, the smaller the chance of even the best.",
        "p_max is the chance of the ablest subject, feasibility the highest chance that any ability reaches.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET, CORRUPTION), height=280)


def severity_figure(severity: Table) -> alt.FacetChart:
    """Draw histograms of the items' parameters, one below the other by severity; a panel per corruption and parameter.

    Each histogram rises from the line of its severity.

    severity: table irt_severity, whose lines are the bins of histograms.
    """
    # the fit of a corruption also has the clean images, as severity 0. So a data set's fit of clean images alone is
    # drawn only if the data set has no corruptions
    is_clean = severity.frame[CORRUPTION] == "clean"
    corrupted_datasets = severity.frame.loc[~is_clean, DATASET]
    frame = severity.frame[~is_clean | ~severity.frame[DATASET].isin(corrupted_datasets)]

    panel = style.panels(frame, DATASET, CORRUPTION, "parameter")
    # a bar begins at its severity on the reversed y axis and rises towards the severity above; the highest bar of a
    # panel (_HIGHEST_BAR) covers nine tenths of this distance
    highest_share = frame.groupby(panel, sort=False)[SHARE].transform("max")
    ridge = frame[SEVERITY] - _HIGHEST_BAR * frame[SHARE] / highest_share
    frame = frame.assign(panel=panel, ridge=ridge)

    levels = sorted(frame[SEVERITY].unique().tolist())
    severity_axis = alt.Axis(
        values=levels, labelExpr="datum.value == 0 ? 'clean' : datum.value", format=".0f", domain=False
    )
    # the axis begins one severity above the first, because the bars of the first severity rise into this space
    severity_scale = alt.Scale(domain=[levels[0] - 1, levels[-1] + 0.1], reverse=True, nice=False, zero=False)
    marks: Any = alt.Chart().mark_rect(stroke=None)
    chart = marks.encode(
        x=alt.X("bin_low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=5)),
        x2="bin_high:Q",
        y=alt.Y("ridge:Q", title="severity", axis=severity_axis, scale=severity_scale),
        y2=f"{SEVERITY}:Q",
        color=alt.Color(f"{SEVERITY}:O", legend=None),
        tooltip=kinds.tooltips(severity.columns),
    )

    has_severities = len(levels) > 1
    title = style.title(
        IRT_SEVERITY.question if has_severities else "How difficult and how discriminating are the images?",
        "Each bar is the share of images at a value, by severity; the outer bins also hold the values beyond them.",
    )
    height_per_severity = 34 if frame[CORRUPTION].nunique() <= FEW_CORRUPTIONS else 20
    height = 60 + height_per_severity * len(levels)
    figure = style.faceted(chart, frame, title, filters=(DATASET, CORRUPTION), height=height, columns=3)
    return figure.resolve_scale(x="independent")  # parameters have their own units


def curves_figure(curves: Table) -> alt.FacetChart:
    """Draw the fitted curves of items, and dots for the observed shares of right responses in groups of subjects.

    Hovering over a curve fades all other items. curves: table irt_curves.
    """
    frame = curves.frame.assign(panel=style.panels(curves.frame, DATASET))
    trait = frame[TRAIT].iloc[0]  # what the analysis calls ability
    hovered = alt.selection_point(name="hovered_item", fields=["item"], on="pointerover", clear="pointerout")
    base: Any = alt.Chart().encode(
        x=kinds.quantity(alt.X, ABILITY, trait, nice=False, padding=0),
        y=kinds.quantity(alt.Y, PROBABILITY, domain=[0, 1], padding=0),
        color=alt.Color("place:O", legend=None),  # place of the item by difficulty, 1 is the easiest
        detail="item:N",
        tooltip=kinds.tooltips(curves.columns),
    )
    lines = base.transform_filter(f"datum.{MARK} == 'curve'").mark_line(strokeWidth=2.5)
    dots = base.transform_filter(f"datum.{MARK} == 'observed'").mark_point(filled=True, size=45)
    chart = kinds.layers(
        lines.encode(opacity=alt.condition(hovered, alt.value(0.9), alt.value(0.08))).add_params(hovered),
        dots.encode(opacity=alt.condition(hovered, alt.value(0.8), alt.value(0.05))),
    )

    title = style.title(
        "Do the fitted curves follow the responses?",
        "Each line is the fitted chance of a right response to one image, from easy (dark) to hard; dots are the share",
        f"of right responses in groups of subjects with similar {trait}. Hover over a line to see its image alone.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), height=340)


def reliability_figure(reliability: Table) -> alt.FacetChart:
    """Draw Kendall's tau between ability and accuracy, with its interval, for every corruption and severity.

    Marks of severity 1, the one in the table of the paper (Sharma et al. 2023), are diamonds. Raises NothingToDraw
    without corrupted images. reliability: table reliability.
    """
    frame = reliability.frame.dropna(subset=TAU).reset_index(drop=True)
    # only clean images (severity 0). For a frame without lines, `panels` below raises NothingToDraw for another reason
    if len(frame) and not frame[SEVERITY].any():
        raise style.NothingToDraw("no corrupted images; next: fca run task=predict shift=corruption/all")
    frame = frame.assign(panel=style.panels(frame, DATASET))

    # each severity has a slot within the row of its corruption. Clean is alone in its row, so it is drawn in the middle
    levels = sorted(frame[SEVERITY].unique().tolist())
    corrupted_levels = [level for level in levels if level != 0]
    middle_level = corrupted_levels[(len(corrupted_levels) - 1) // 2]
    frame = frame.assign(slot=frame[SEVERITY].where(frame[SEVERITY] > 0, middle_level))

    shapes = ["diamond" if level == PAPER_SEVERITY else "circle" for level in levels]
    colours = kinds.hue(SEVERITY, frame, shapes=shapes, title="severity", ordered=True)
    if 0 in levels:  # the legend has "clean" in place of 0
        colours = replace(colours, words=colours.words | {0: "clean"})
    clean_first = sorted(frame[CORRUPTION].unique(), key=lambda kind: (kind != "clean", kind))
    rows = kinds.category(alt.Y, CORRUPTION, clean_first)
    chart = kinds.points_with_intervals(TAU, rows, reliability.columns, colours, dodge="slot", size=70)
    title = style.title(
        "Does ability order the models as accuracy does?",
        "Every corruption and severity has a separate fit; bars are 95 % intervals over models.",
        "Diamonds mark the severity of the paper's table.",
    )
    figure = style.faceted(chart, frame, title, filters=(DATASET, CORRUPTION), row=10)
    # replaces the height by `row` above: 10 pixels for each slot, not for each row
    figure.spec.height = alt.Step(10, **{"for": "offset"})
    return figure


def ability_statements(abilities: pd.DataFrame, fits: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on whether ability orders the subjects as accuracy does on clean images, and on who is ablest.

    There is no sentence without a fit of clean images.
    abilities, fits: the lines of tables irt_abilities and irt_fits for one data set.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability"}
    >>> fits = pd.DataFrame([line | {"n_subjects": 9, "tau": 0.97, "tau_low": 0.9, "tau_high": 1.0}])
    >>> vit = line | {"subject": "vit", "top1": 0.9, "ability": 1.0, "ability_low": 0.5, "ability_high": 1.5}
    >>> vgg = line | {"subject": "vgg", "top1": 0.5, "ability": -1.0, "ability_low": -1.5, "ability_high": -0.5}
    >>> for statement in ability_statements(pd.DataFrame([vit, vgg]), fits): print(statement.sentence)
    Ability orders the 9 subjects of zoo nearly as accuracy does: Kendall's tau 0.970 [0.900, 1.000].
    zoo: highest ability of 2 subjects: vit, 1.00 [0.50, 1.50]; lowest: vgg, -1.00 [-1.50, -0.50].
    """
    clean = abilities[abilities[CORRUPTION] == "clean"]
    clean_fits = fits[fits[CORRUPTION] == "clean"]
    if clean.empty or clean_fits.empty:
        return

    fit = clean_fits.iloc[0].to_dict()  # clean images of a data set have one fit
    accuracy, ability = TOP1.with_format(".1%", "accuracy"), ABILITY.with_format(".2f", str(fit[TRAIT]))
    points = clean.dropna(subset=[TOP1, ABILITY]).reset_index(drop=True)
    yield Statement(_agreement_of_orders(fit), small.cloud(points, accuracy, ability, (SUBJECT, accuracy, ABILITY)))
    yield Statement(_ablest_and_weakest(clean))


def _agreement_of_orders(fit: Mapping[Any, Any]) -> str:
    """A sentence on whether ability orders the subjects of a fit as accuracy does; fit: a line of table irt_fits."""
    dataset, trait, tau = fit[DATASET], str(fit[TRAIT]), fit[TAU]
    if fit[N_SUBJECTS] < FEWEST_ORDERED:  # the orders of two subjects agree or disagree by chance
        return f"Not known: {dataset} has too few subjects to compare their orders by {trait} and by accuracy."
    if pd.isna(tau):
        return f"Not known: all subjects of {dataset} have the same {trait} or the same accuracy."

    if tau == 1:
        as_accuracy = "exactly as"
    elif tau > 0.9:
        as_accuracy = "nearly as"
    elif tau > 0.5:
        as_accuracy = "not quite as"
    else:
        as_accuracy = "unlike"
    ordered = f"{trait.capitalize()} orders the {fit[N_SUBJECTS]} subjects of {dataset} {as_accuracy} accuracy does"
    return f"{ordered}: Kendall's {_tau_in_words(fit)}."


def _ablest_and_weakest(clean: pd.DataFrame) -> str:
    """A sentence that names the subjects of highest and of lowest ability.

    clean: lines of table irt_abilities from the fit of clean images.
    """
    dataset, trait = clean[[DATASET, TRAIT]].iloc[0]
    # all subjects with the highest ability, and all with the lowest
    highest, lowest = (small.best_of(clean, ABILITY, largest) for largest in (True, False))
    if len(clean) == 1:
        return f"{dataset}: {trait} of the only subject: {_names_and_ability(highest)}."
    if len(highest) == len(clean):  # all are equal
        subjects = small.all_of(len(clean), "subjects")
        return f"{dataset}: {trait} of {subjects} alike: {_names_and_ability(highest)}."

    ends = f"{_names_and_ability(highest)}; lowest: {_names_and_ability(lowest)}"
    return f"{dataset}: highest {trait} of {len(clean)} subjects: {ends}."


def _names_and_ability(subjects: pd.DataFrame) -> str:
    """The names of subjects of equal ability, with the ability and interval of the first."""
    ability = format_with_interval(subjects.iloc[0], ABILITY.with_format(".2f"))
    return f"{small.listed(subjects[SUBJECT].tolist())}, {ability}"


def fit_statements(fits: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the fits: their size, how well they predict held-out responses, and which numbers not to trust.

    Tau is Kendall's tau between ability and accuracy. Numbers are not to be trusted if the fit did not converge, if the
    responses do not determine the spread of ability or of difficulty, or if few common items link two groups of
    subjects.

    fits: the lines of table irt_fits for one data set.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability", "irt_model": "2pl", "n_subjects": 9}
    >>> line |= {"n_models": 3, "n_items": 48, "tau": 0.97, "tau_low": 0.9, "tau_high": 1.0}
    >>> line |= {"hold_out": "cells", "held_out_nll": 0.2, "held_out_nll_low": 0.1, "held_out_nll_high": 0.3}
    >>> line |= {"held_out_auc": 0.9, "baseline_nll": 0.3, "converged": True}
    >>> for statement in fit_statements(pd.DataFrame([line])): print(statement.sentence)
    zoo: 2pl is fitted to 9 subjects (3 models) and 48 items.
    zoo: 2pl predicts held-out responses with log loss 0.200 [0.100, 0.300] and AUC 0.900; means alone: 0.300.
    """
    dataset = fits[DATASET].iloc[0]
    is_clean = fits[CORRUPTION] == "clean"
    for fit in fits[is_clean].to_dict("records"):
        counts = f"{fit[N_SUBJECTS]} subjects ({fit[N_MODELS]} models) and {fit[N_ITEMS]:,} items"
        yield Statement(f"{dataset}: {fit[IRT_MODEL]} is fitted to {counts}.")

        # the subjects that answer one class nearly always; None or NaN, not a tuple, without labels of two classes
        one_class_subjects = fit.get(ONE_CLASS)
        if isinstance(one_class_subjects, tuple) and one_class_subjects:
            yield Statement(f"{dataset}: {_warn_of_one_class(one_class_subjects)}.")
        if pd.notna(fit[HELD_OUT_NLL]):  # missing where nothing could be held out
            yield Statement(f"{dataset}: {_quality_of_prediction(fit)}.")

    ordered = fits[~is_clean].dropna(subset=TAU)  # tau is missing where all abilities or accuracies are equal
    if len(ordered):
        yield Statement(f"{dataset}: {_tau_under_corruptions(ordered)}.")

    for sentence in not_estimable_lines(fits):  # on spreads that the responses of a fit do not determine
        yield Statement(sentence)
    weak_links = fits.get(WEAK_LINK, pd.Series(dtype=object))  # notes in words; the column may be missing
    for note in weak_links.dropna():
        yield Statement(f"{dataset}: {note}.")
    diverged = fits[~fits[CONVERGED].astype(bool)]
    if len(diverged):
        corruptions = ", ".join(diverged[CORRUPTION])
        yield Statement(f"{dataset}: the fit did not converge for {corruptions}; do not read its numbers.")


def _warn_of_one_class(subjects: Sequence[str]) -> str:
    """A clause that names up to three subjects that answer one class nearly always, with the advice to leave them out.

    Such a subject is right on its class and wrong on all others, whatever its ability. So one scale of ability cannot
    describe two such subjects that answer different classes.

    >>> _warn_of_one_class(("vit/0.01", "vgg/0.01"))
    '2 subjects answer one class nearly always (vit/0.01, vgg/0.01), which no scale of ability holds: leave them out'
    """
    shown_names = list(subjects[:3])
    if len(subjects) > 3:
        shown_names.append("...")
    names = ", ".join(shown_names)
    ending = "one class nearly always ({}), which no scale of ability holds: leave {} out"
    if len(subjects) == 1:
        return f"1 subject answers {ending.format(names, 'it')}"
    return f"{len(subjects)} subjects answer {ending.format(names, 'them')}"


def _quality_of_prediction(fit: Mapping[Any, Any]) -> str:
    """A clause on how well a fit predicts held-out responses, compared with a baseline without a model.

    The baseline predicts from the means of subjects and items alone. fit: a line of table irt_fits.
    """
    log_loss = format_with_interval(fit, HELD_OUT_NLL.with_format(".3f"))
    scores = f"log loss {log_loss} and AUC {fit[HELD_OUT_AUC]:.3f}"
    no_worse = ", no worse" if fit[BASELINE_NLL] <= fit[HELD_OUT_NLL] else ""
    subjects = "of networks left out " if fit[HOLD_OUT] == "subjects" else ""
    predicted = f"{fit[IRT_MODEL]} predicts held-out responses {subjects}with {scores}"
    return f"{predicted}; means alone: {fit[BASELINE_NLL]:.3f}{no_worse}"


def _tau_under_corruptions(fits: pd.DataFrame) -> str:
    """A clause with the lowest and the highest tau under corruptions, and under which corruption each is.

    fits: lines of table irt_fits that have a tau.
    """
    ordered = fits.sort_values(TAU, kind="stable").to_dict("records")
    lowest, highest = (f"{fit[TAU]:.3f} ({fit[CORRUPTION]})" for fit in (ordered[0], ordered[-1]))
    range_of_tau = lowest if len(ordered) == 1 else f"{lowest} to {highest}"

    number = fits[CORRUPTION].nunique()
    corruptions = f"{number} corruption{'' if number == 1 else 's'}"
    return f"under {corruptions}, tau between {ordered[0][TRAIT]} and accuracy is {range_of_tau}"


def choice_statements(choice: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on the model that predicts held-out responses best, and how much worse the next one is.

    choice: the frame of table irt_choice, the best model first.

    >>> line = {"dataset": "zoo", "irt_model": "2pl", "inner_nll": 0.2, "chosen": True}
    >>> other = {**line, "irt_model": "1pl", "inner_nll": 0.3, "chosen": False}
    >>> other |= {"excess": 0.1, "excess_low": 0.05, "excess_high": 0.15}
    >>> [statement] = choice_statements(pd.DataFrame([line, other]))
    >>> print(statement.sentence)
    zoo: 2pl is chosen (inner log loss: 2pl 0.2000, 1pl 0.3000); 1pl is worse by 0.1000 [0.0500, 0.1500].
    """
    lines = choice.to_dict("records")
    dataset, second = lines[0][DATASET], lines[1]  # the best comes first
    [chosen_model] = choice.loc[choice["chosen"].astype(bool), IRT_MODEL]
    losses = ", ".join(f"{line[IRT_MODEL]} {line[INNER_NLL]:.4f}" for line in lines)
    next_model = f"{second[IRT_MODEL]} is worse by {format_with_interval(second, EXCESS.with_format('.4f'))}"
    yield Statement(f"{dataset}: {chosen_model} is chosen (inner log loss: {losses}); {next_model}.")


def reliability_statements(reliability: pd.DataFrame) -> Iterator[Statement]:
    """A sentence with the range of Kendall's tau (ability with accuracy) at severity 1 and at all severities above 0.

    Severity 1 is the one in the table of the paper (Sharma et al. 2023). There is no sentence without a tau under
    corruptions.

    reliability: the lines of table reliability for one data set.

    >>> line = {"dataset": "zoo", "corruption": "fog", "severity": 1, "tau": 0.97}
    >>> [statement] = reliability_statements(pd.DataFrame([line, {**line, "severity": 5, "tau": 0.9}]))
    >>> print(statement.sentence)
    zoo: tau between ability and accuracy is 0.970 (fog) at severity 1, and 0.900 to 0.970 at all severities.
    """
    shifted = reliability[reliability[SEVERITY] > 0].dropna(subset=TAU)
    if shifted.empty:
        return

    # the lowest and the highest tau at severity 1; none where it was not run
    at_paper_severity = shifted[shifted[SEVERITY] == PAPER_SEVERITY].sort_values(TAU, kind="stable")
    ends = at_paper_severity.iloc[[0, -1]] if len(at_paper_severity) > 1 else at_paper_severity
    named_ends = " to ".join(f"{line[TAU]:.3f} ({line[CORRUPTION]})" for line in ends.to_dict("records"))
    at_paper = f"{named_ends} at severity {PAPER_SEVERITY}, and " if len(ends) else ""

    at_all = f"{shifted[TAU].min():.3f} to {shifted[TAU].max():.3f} at all severities"
    yield Statement(f"{shifted[DATASET].iloc[0]}: tau between ability and accuracy is {at_paper}{at_all}.")
