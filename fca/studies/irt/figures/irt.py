"""Abilities, item parameters and how far to trust them: figures and headlines of analysis=irt and analysis=reliability.

The figures of items: the plane of difficulty and discrimination, histograms by severity, and item curves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Figure
from fca.studies.irt import irt
from fca.studies.irt.fits import ABILITY, DIFFICULTY, DISCRIMINATION, TRAIT, not_estimable_lines
from fca.studies.irt.irt import CEILING, HELD_OUT_NLL, MARK, PROBABILITY, SHARE, TAU
from fca.studies.table import CORRUPTION, DATASET, MODEL, SEVERITY, SNAPSHOT
from fca.types import Table

PAPER_SEVERITY = 1
FEW = 4  # corruptions whose histograms are drawn tall
_RIDGE = 0.9  # of the distance between severities, at the highest bin of a panel


def abilities_figure(abilities: Table, fits: Table) -> alt.FacetChart:
    """Every subject's ability with its interval, one line a model, ablest first; one panel a scale."""
    again = (abilities.frame[SEVERITY] == 0).fillna(value=False) & (abilities.frame[CORRUPTION] != "clean")
    frame = with_panel(abilities.frame[~again])  # with scales of their own, severity 0 of every kind is the clean fit
    heading = {line["panel"]: f"{line['panel']}\n{_tau(line)}" for line in with_panel(fits.frame).to_dict("records")}
    frame = frame.assign(panel=frame["panel"].map(heading))
    [trait, *_] = frame[TRAIT]
    coloured = None
    if style.differs(frame[SNAPSHOT].dropna()):
        frame[SNAPSHOT] = frame[SNAPSHOT].fillna("none")
        coloured = kinds.hue(SNAPSHOT, frame, shapes=None, title="snapshot (share of all steps)", ordered=True)
    rows = kinds.category(alt.Y, MODEL, alt.EncodingSortField(ABILITY, op="max", order="descending"))
    across = kinds.quantity(alt.X, ABILITY, trait)
    chart = kinds.points_with_intervals(ABILITY, rows, abilities.columns, coloured, scale=across, size=60)
    title = style.title(
        "How able is each model?" if trait == "ability" else f"Which subjects show most {trait}?",
        f"Each mark is the estimated {trait} of one subject with its 95 % interval, in standard deviations "
        "of the subjects",
        "(1pl: logits); each line is one model. Kendall's tau is 1 where it orders the subjects as accuracy does.",
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL, CORRUPTION), row=17)


def with_panel(frame: pd.DataFrame) -> pd.DataFrame:
    """With a heading for each scale: data set, corruption, and the severity if it has a scale of its own."""
    own = frame[SEVERITY].where(frame[CORRUPTION] != "clean").map(lambda at: "" if pd.isna(at) else f" {at}")
    frame = frame.assign(scale=frame[CORRUPTION] + own)
    several = style.differs(frame["scale"])
    return frame.assign(panel=style.panels(frame, *((DATASET, "scale") if several else ("scale", DATASET))))


def _tau(line: Mapping[Any, Any]) -> str:
    tau = "tau not defined" if pd.isna(line[TAU]) else f"tau {line[TAU]:.3f}"
    if pd.notna(line[TAU.low]):
        return f"{tau} [{line[TAU.low]:.3f}, {line[TAU.high]:.3f}]"
    return tau if pd.isna(line[TAU]) else f"{tau} (no interval: too few networks, or all in one order)"


def _loss(line: Mapping[Any, Any]) -> str:
    low, high = line[HELD_OUT_NLL.low], line[HELD_OUT_NLL.high]
    return f"{line[HELD_OUT_NLL]:.3f}" + ("" if pd.isna(low) else f" [{low:.3f}, {high:.3f}]")


def _one_class(line: Mapping[Any, Any]) -> str:
    """The subjects that answer one class nearly always, three by name, and what to do about them.

    >>> _one_class({"one_class": ("vit/0.01", "vgg/0.01")})
    ' 2 subjects answer one class nearly always (vit/0.01, vgg/0.01), which no scale of ability holds: leave them out.'
    >>> _one_class({"one_class": ()})
    ''
    """
    names = line.get("one_class")
    if not isinstance(names, tuple) or not names:  # missing without labels
        return ""
    shown = ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])
    who = "1 subject answers" if len(names) == 1 else f"{len(names)} subjects answer"
    it = "it" if len(names) == 1 else "them"
    return f" {who} one class nearly always ({shown}), which no scale of ability holds: leave {it} out."


def plane_figure(plane: Table) -> alt.FacetChart:
    """Discrimination against difficulty of sampled items, coloured by the highest chance of a right response."""
    fields = (DATASET, CORRUPTION) if style.differs(plane.frame[CORRUPTION]) else (CORRUPTION, DATASET)
    frame = plane.frame.assign(panel=style.panels(plane.frame, *fields))
    legend = alt.Legend(title=" or ".join(dict.fromkeys(frame["ceiling_is"])), gradientLength=200)
    marks: Any = alt.Chart().mark_circle(size=28, opacity=0.7)
    chart = marks.encode(
        x=kinds.quantity(alt.X, DIFFICULTY, "difficulty"),
        y=kinds.quantity(alt.Y, DISCRIMINATION, "discrimination", zero=True, padding=0),
        color=alt.Color(f"{CEILING}:Q", scale=alt.Scale(domain=[0, 1], range="ordinal"), legend=legend),
        tooltip=kinds.tooltips(plane.columns),
    )
    title = style.title(
        "Are difficult images also discriminating?",
        "Each dot is one image of a sample; the darker, the smaller the chance of even the best.",
        "p_max is the chance of the ablest subject, feasibility the highest chance that any ability reaches.",
    )
    return style.faceted(chart, frame, title, (DATASET, CORRUPTION), height=280)


def severity_figure(severity: Table) -> alt.FacetChart:
    """Histograms of the parameters, one below the other by severity; one panel a corruption and parameter."""
    frame = severity.frame
    shifted = frame.loc[frame[CORRUPTION] != "clean", DATASET]
    frame = frame[(frame[CORRUPTION] != "clean") | ~frame[DATASET].isin(shifted)]  # they have clean images too
    panel = style.panels(frame, DATASET, CORRUPTION, "parameter")
    highest = frame.groupby(panel, sort=False)[SHARE].transform("max")
    frame = frame.assign(panel=panel, ridge=frame[SEVERITY] - _RIDGE * frame[SHARE] / highest)
    levels = sorted(frame[SEVERITY].unique().tolist())
    ticks = alt.Axis(values=levels, labelExpr="datum.value == 0 ? 'clean' : datum.value", format=".0f", domain=False)
    scale = alt.Scale(domain=[levels[0] - 1, levels[-1] + 0.1], reverse=True, nice=False, zero=False)
    marks: Any = alt.Chart().mark_rect(stroke=None)
    chart = marks.encode(
        x=alt.X("bin_low:Q", title=None, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=5)),
        x2="bin_high:Q",
        y=alt.Y("ridge:Q", title="severity", axis=ticks, scale=scale),
        y2=f"{SEVERITY}:Q",
        color=alt.Color(f"{SEVERITY}:O", legend=None),
        tooltip=kinds.tooltips(severity.columns),
    )
    several = "What does a corruption change as it gets more severe?"
    title = style.title(
        several if len(levels) > 1 else "How difficult and how discriminating are the images?",
        "Each bar is the share of images at a value, severity by severity; the outer bins hold what lies beyond.",
    )
    tall = 60 + (34 if frame[CORRUPTION].nunique() <= FEW else 20) * len(levels)
    drawn = style.faceted(chart, frame, title, (DATASET, CORRUPTION), height=tall, columns=3)
    return drawn.resolve_scale(x="independent")  # parameters have their own units


def curves_figure(curves: Table) -> alt.FacetChart:
    """Item curves, and dots for observed shares of groups of subjects; hovering leaves one item."""
    frame = curves.frame.assign(panel=style.panels(curves.frame, DATASET))
    [trait, *_] = frame[TRAIT]
    hovered = alt.selection_point(name="hovered_item", fields=["item"], on="pointerover", clear="pointerout")
    base: Any = alt.Chart().encode(
        x=kinds.quantity(alt.X, ABILITY, trait, nice=False, padding=0),
        y=kinds.quantity(alt.Y, PROBABILITY, domain=[0, 1], padding=0),
        color=alt.Color("place:O", legend=None),
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
        f"of right responses in groups of subjects of like {trait}. Hover over a line to see its image alone.",
    )
    return style.faceted(chart, frame, title, (DATASET,), height=340)


def reliability_figure(reliability: Table) -> alt.FacetChart:
    """Kendall's tau with its interval of every corruption and severity; severity 1 as a diamond."""
    frame = reliability.frame.dropna(subset=TAU).reset_index(drop=True)
    if len(frame) and not frame[SEVERITY].any():
        raise style.NothingToDraw("no corrupted images; next: fca run task=predict shift=corruption/all")
    frame = frame.assign(panel=style.panels(frame, DATASET))
    levels = sorted(frame[SEVERITY].unique().tolist())
    middle = levels[(len(levels) - 1 + (0 in levels)) // 2]  # clean is alone in its row
    frame = frame.assign(slot=frame[SEVERITY].where(frame[SEVERITY] > 0, middle))
    shapes = ["diamond" if level == PAPER_SEVERITY else "circle" for level in levels]
    coloured = kinds.hue(SEVERITY, frame, shapes=shapes, title="severity", ordered=True)
    coloured = replace(coloured, words=coloured.words | ({0: "clean"} if 0 in levels else {}))
    order = sorted(frame[CORRUPTION].unique(), key=lambda kind: (kind != "clean", kind))
    rows = kinds.category(alt.Y, CORRUPTION, order)
    chart = kinds.points_with_intervals(TAU, rows, reliability.columns, coloured, dodge="slot", size=70)
    title = style.title(
        "Does ability order the models as accuracy does?",
        "Every corruption and severity has a fit of its own; bars are 95 % intervals over models.",
        "Diamonds mark the severity of the paper's table.",
    )
    drawn = style.faceted(chart, frame, title, (DATASET, CORRUPTION), row=10)
    drawn.spec.height = alt.Step(10, **{"for": "offset"})
    return drawn


def ability_headlines(abilities: pd.DataFrame) -> Iterator[str]:
    """Who is ablest on clean images, and by how much.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability", "ability_low": 0.5, "ability_high": 1.5}
    >>> lines = [{**line, "subject": "vit", "ability": 1.0}, {**line, "subject": "vgg", "ability": -1.0}]
    >>> list(ability_headlines(pd.DataFrame(lines)))
    ['zoo: highest ability of 2 subjects: vit, 1.00 [0.50, 1.50]; lowest: vgg, -1.00 [0.50, 1.50].']
    """
    clean = abilities[abilities[CORRUPTION] == "clean"]
    for dataset, part in clean.groupby(DATASET, sort=False):
        best, worst = (small.best_of(part, ABILITY, largest) for largest in (True, False))
        first, last = _ability(best), _ability(worst)
        if len(best) == len(part):
            of = f"of {small.all_of(len(part), 'subjects')} alike" if len(part) > 1 else "of the only subject"
            yield f"{dataset}: {part[TRAIT].iloc[0]} {of}: {first}."
            continue
        yield f"{dataset}: highest {part[TRAIT].iloc[0]} of {len(part)} subjects: {first}; lowest: {last}."


def _ability(equal: pd.DataFrame) -> str:
    """Subjects of equal ability, and the interval of the first."""
    line = equal.iloc[0]
    ends = "" if pd.isna(line[ABILITY.low]) else f" [{line[ABILITY.low]:.2f}, {line[ABILITY.high]:.2f}]"
    return f"{small.listed(equal['subject'].tolist())}, {line[ABILITY]:.2f}{ends}"


def fit_headlines(fits: pd.DataFrame) -> Iterator[str]:
    """Whether ability orders the subjects as accuracy does, and whether held-out responses are predicted.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability", "irt_model": "2pl", "n_subjects": 9}
    >>> line |= {"n_models": 3, "n_items": 48, "tau": 0.97, "tau_low": 0.9, "tau_high": 1.0}
    >>> line |= {"hold_out": "cells", "held_out_nll": 0.2, "held_out_nll_low": 0.1, "held_out_nll_high": 0.3}
    >>> line |= {"held_out_auc": 0.9, "baseline_nll": 0.3, "converged": True}
    >>> for sentence in fit_headlines(pd.DataFrame([line])): print(sentence)
    zoo: ability against accuracy over 9 subjects (3 models) and 48 items: Kendall's tau 0.970 [0.900, 1.000].
    zoo: 2pl predicts held-out responses with log loss 0.200 [0.100, 0.300] and AUC 0.900; means alone: 0.300.
    """
    for dataset, part in fits.groupby(DATASET, sort=False):
        clean, shifted = (part[(part[CORRUPTION] == "clean") == is_clean] for is_clean in (True, False))
        for line in clean.to_dict("records"):
            counts = f"{line['n_subjects']} subjects ({line['n_models']} models) and {line['n_items']:,} items"
            yield f"{dataset}: {line[TRAIT]} against accuracy over {counts}: Kendall's {_tau(line)}.{_one_class(line)}"
            if pd.notna(line["held_out_nll"]):
                scores = f"log loss {_loss(line)} and AUC {line['held_out_auc']:.3f}"
                worse = ", no worse" if line["baseline_nll"] <= line["held_out_nll"] else ""
                alone = f"means alone: {line['baseline_nll']:.3f}{worse}"
                whose = "of networks left out " if line["hold_out"] == "subjects" else ""
                yield f"{dataset}: {line['irt_model']} predicts held-out responses {whose}with {scores}; {alone}."
        known = shifted.dropna(subset=TAU).sort_values(TAU, kind="stable").to_dict("records")
        if known:
            low, high = (f"{known[at][TAU]:.3f} ({known[at][CORRUPTION]})" for at in (0, -1))
            corruptions = len({line[CORRUPTION] for line in known})
            shown = f"{corruptions} corruption{'' if corruptions == 1 else 's'}"
            range_of_tau = low if len(known) == 1 else f"{low} to {high}"
            yield f"{dataset}: under {shown}, tau between {part[TRAIT].iloc[0]} and accuracy is {range_of_tau}."
        yield from not_estimable_lines(part)
        for note in part.get("weak_link", pd.Series(dtype=object)).dropna():
            yield f"{dataset}: {note}."
        if not part["converged"].all():
            failed = ", ".join(part.loc[~part["converged"].astype(bool), CORRUPTION])
            yield f"{dataset}: the fit did not converge for {failed}; do not read its numbers."


def choice_headlines(choice: pd.DataFrame) -> Iterator[str]:
    """Which model was chosen by its prediction of held-out responses, and how much worse the next one is.

    >>> line = {"dataset": "zoo", "irt_model": "2pl", "inner_nll": 0.2, "chosen": True}
    >>> other = {**line, "irt_model": "1pl", "inner_nll": 0.3, "chosen": False}
    >>> other |= {"excess": 0.1, "excess_low": 0.05, "excess_high": 0.15}
    >>> list(choice_headlines(pd.DataFrame([line, other])))
    ['zoo: 2pl is chosen (inner log loss: 2pl 0.2000, 1pl 0.3000); 1pl is worse by 0.1000 [0.0500, 0.1500].']
    """
    for dataset, part in choice.groupby(DATASET, sort=False):
        lines = part.to_dict("records")
        each = ", ".join(f"{line['irt_model']} {line['inner_nll']:.4f}" for line in lines)
        [best] = part.loc[part["chosen"].astype(bool), "irt_model"]
        second = lines[1]
        ends = f" [{second['excess_low']:.4f}, {second['excess_high']:.4f}]" if pd.notna(second["excess_low"]) else ""
        after = f"{second['irt_model']} is worse by {second['excess']:.4f}{ends}"
        yield f"{dataset}: {best} is chosen (inner log loss: {each}); {after}."


def reliability_headlines(reliability: pd.DataFrame) -> Iterator[str]:
    """The range of tau at severity 1, as in the paper's table, and at all severities.

    >>> line = {"dataset": "zoo", "corruption": "fog", "severity": 1, "tau": 0.97}
    >>> list(reliability_headlines(pd.DataFrame([line, {**line, "severity": 5, "tau": 0.9}])))
    ['zoo: tau between ability and accuracy is 0.970 (fog) at severity 1, and 0.900 to 0.970 at all severities.']
    """
    shifted = reliability[reliability[SEVERITY] > 0].dropna(subset=TAU)
    for dataset, part in shifted.groupby(DATASET, sort=False):
        first = part[part[SEVERITY] == PAPER_SEVERITY].sort_values(TAU, kind="stable")
        ends = first.iloc[[0, -1]] if len(first) > 1 else first
        named = " to ".join(f"{line[TAU]:.3f} ({line[CORRUPTION]})" for line in ends.to_dict("records"))
        at = f"{named} at severity {PAPER_SEVERITY}, and " if len(first) else ""
        every = f"{part[TAU].min():.3f} to {part[TAU].max():.3f} at all severities"
        yield f"{dataset}: tau between ability and accuracy is {at}{every}."


FIGURES = (
    Figure("irt_abilities", "Abilities", (irt.IRT_ABILITIES, irt.IRT_FITS), abilities_figure),
    Figure("irt_plane", "Difficulty and discrimination", (irt.IRT_PLANE,), plane_figure),
    Figure("irt_severity", "What severity changes", (irt.IRT_SEVERITY,), severity_figure),
    Figure("irt_curves", "Item curves", (irt.IRT_CURVES,), curves_figure),
    Figure("reliability", "Ability and accuracy", (irt.RELIABILITY,), reliability_figure),
)
HEADLINES = {
    irt.IRT_FITS.name: fit_headlines,
    irt.IRT_ABILITIES.name: ability_headlines,
    irt.IRT_CHOICE.name: choice_headlines,
    irt.RELIABILITY.name: reliability_headlines,
}
