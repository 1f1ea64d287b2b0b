"""Figures and headlines of analysis=reliance. A metric that known cues did not confirm is pale, and marked so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Figure
from fca.studies.reliance import reliance as made
from fca.studies.reliance.metric_truth import UNCONFIRMED
from fca.studies.table import AT_CHANCE, DATASET, LABEL, MODEL, NOTE, TOP1
from fca.types import Column, Table, with_interval

FILTERS = (DATASET, MODEL, made.PROTOCOL)
ENDS = 15  # classes at each end of a long ranking
FEW = 4  # models with a headline each; of more, those with the highest and the lowest value
STEP = kinds.SIDE + 36  # pixels from the top of one picture to the next, with two lines of text between
WORDS = {
    "ablate/gray": "object gray",
    "ablate/gray_box": "box gray",
    "ablate/tile": "box tiled over",
    "swap/background": "other background",
    "swap/background/pasted": "pasted elsewhere",
}
ALTHOUGH = {
    "ablate/gray_box": "the box around the object is gray",
    "ablate/gray": "the object is gray",
    "ablate/tile": "the box around the object is tiled over",
}


def accuracy_figure(shown: Table) -> alt.FacetChart:
    """Accuracy clean and without the object, one panel a data set and protocol."""
    frame = shown.frame[~shown.frame[made.CONDITION].str.startswith("noise/")]
    frame = frame.assign(panel=style.panels(frame, DATASET, made.PROTOCOL))
    frame["change"] = _marked(frame[made.CONDITION].replace(WORDS), frame)
    first = frame.sort_values(made.CONDITION, key=lambda of: of != made.CLEAN, kind="stable")
    rows = kinds.category(alt.Y, "change", list(dict.fromkeys(first["change"])))
    across = kinds.quantity(alt.X, TOP1, "accuracy, mean over classes", grid=True, domain=[0, 1], padding=0)
    look: dict[str, Any] = {"dodge": MODEL, "line": str(made.CHANCE), "scale": across}
    chart = kinds.points_with_intervals(TOP1, rows, shown.columns, kinds.hue(MODEL, frame, columns=2), **look)
    title = style.title(
        "Is the class still predicted when its object is gone?",
        "Bars are 95 % intervals over classes; the dashed line is guessing one of the classes that may be predicted.",
        *_left_out(frame),
    )
    height = frame["change"].nunique() * (14 + 12 * frame[MODEL].nunique())
    return style.faceted(_pale(chart), frame, title, FILTERS, height=height)


def sensitivity_figure(shown: Table) -> alt.FacetChart:
    """Relative foreground sensitivity by level of noise; plain beside area-matched."""
    order = [DATASET, made.PROTOCOL, made.KIND, made.MATCHED, made.LEVEL]
    frame = shown.frame.dropna(subset=made.RFS).sort_values(order)
    noise = frame[made.KIND] + frame[made.MATCHED].map({True: ", equal areas", False: ", whole regions"})
    frame = frame.assign(noise=_marked(noise, frame, f"pale: {UNCONFIRMED}"))
    frame["panel"] = style.panels(frame, DATASET, made.PROTOCOL, "noise")
    levels = kinds.category(alt.X, made.LEVEL, title=made.LEVEL.meaning, labelAngle=0, bands=True)
    look: dict[str, Any] = {"dodge": MODEL, "line": kinds.ZERO, "scale": kinds.quantity(alt.Y, made.RFS, grid=True)}
    chart = kinds.points_with_intervals(made.RFS, levels, shown.columns, kinds.hue(MODEL, frame, columns=2), **look)
    title = style.title(
        "Does noise in the object cost more accuracy than noise around it?",
        "Above 0 noise in the object costs more, below 0 noise around it, which is larger unless areas are equal.",
        "0 is no proof: 18 rendered networks that use no cue had -0.70 to -0.33 (gaussian 0.25, whole regions).",
        *_left_out(frame),
    )
    figure = style.faceted(_pale(chart), frame, title, FILTERS, height=200)
    return figure.resolve_scale(x="independent", xOffset="independent")


def alignment_figure(shown: Table) -> alt.FacetChart:
    """Overlap of saliency and object, by model and data set."""
    frame = shown.frame[shown.frame[made.METRIC] == "iou"].reset_index(drop=True)
    frame = frame.assign(word=_marked(frame[made.METRIC].map(made.METRIC.choices), frame))
    frame["panel"] = style.panels(frame, "word")
    across = kinds.quantity(alt.X, made.VALUE, "mean over classes of the overlap", grid=True, domainMin=0, padding=0)
    look: dict[str, Any] = {"dodge": DATASET, "scale": across}
    rows, coloured = kinds.category(alt.Y, MODEL), kinds.hue(DATASET, frame)
    chart = kinds.points_with_intervals(made.VALUE, rows, shown.columns, coloured, **look)
    title = style.title(
        "Is what decides the prediction on the object?",
        "Each mark is measured on GradCAM maps of the class; bars are 95 % intervals.",
    )
    height = frame[MODEL].nunique() * (14 + 12 * frame[DATASET].nunique())
    return style.faceted(_pale(chart), frame, title, (DATASET, MODEL), height=height)


def classes_figure(shown: Table) -> alt.FacetChart:
    """The share of its accuracy that each class keeps, those that lean most on their surroundings first."""
    frame = shown.frame.dropna(subset=made.KEPT).reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET, made.PROTOCOL), leads=frame[MODEL] == made.MEAN)
    frame["leads"] |= ~frame.groupby("panel")["leads"].transform("any")  # the only model
    frame["place"] = frame[made.RANK].where(frame["leads"]).groupby([frame["panel"], frame[LABEL]]).transform("first")
    last = frame.groupby("panel")["place"].transform("max") - ENDS
    frame = frame[(frame["place"] <= ENDS) | (frame["place"] > last)].sort_values("place", kind="stable")
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField("place", op="min"))
    across = kinds.quantity(alt.X, made.KEPT, "share of clean accuracy kept", grid=True, domainMin=0, padding=0)
    coloured = kinds.hue(MODEL, frame, columns=2)
    others = kinds.scatter(across, rows, shown.columns, coloured, size=30).transform_filter("!datum.leads")
    chart = kinds.points_with_intervals(made.KEPT, rows, shown.columns, coloured, where="datum.leads", scale=across)
    measure = shown.parameters["measure"]
    title = style.title(
        "Which classes lean on their surroundings?",
        f"Share of each class's accuracy that is kept with {WORDS.get(measure, measure)}{_mark(frame)}.",
        "95 % intervals over its images; first: most kept, by the surroundings or as the guess for any gray image.",
        f"Classes with too few right clean images are missing; of many, the {ENDS} at each end are shown.",
    )
    return style.faceted(kinds.layers(_pale(chart), others), frame, title, FILTERS, row=18)


def stability_figure(shown: Table) -> alt.FacetChart:
    """How alike every two models order the classes."""
    frame = shown.frame.dropna(subset=made.RHO)
    frame = frame.assign(panel=style.panels(frame, DATASET, made.PROTOCOL))
    across = alt.X(f"{MODEL}:N", title=None, axis=alt.Axis(labelAngle=-40))
    rows = style.names_axis(made.OTHER, "ascending")
    chart = kinds.heat_map(made.RHO, across, rows, shown.columns, (-1.0, 1.0))
    line = f"Spearman's correlation of the classes' kept accuracy{_mark(frame)}; hover for 95 % intervals over classes."
    title = style.title("Do models agree which classes lean on their surroundings?", line)
    height = max(60, 30 * frame[made.OTHER].nunique())
    figure = style.faceted(chart, frame, title, (DATASET, made.PROTOCOL), height=height, columns=2)
    figure.spec.width = max(160, 44 * frame[MODEL].nunique())
    return figure.resolve_axis(x="independent")


def examples_figure(shown: Table) -> alt.FacetChart:
    """The first images of a data set under every change."""
    frame = shown.frame.dropna(subset="thumbnail").reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), change=frame[made.CONDITION].map(_change))
    frame["column"] = frame["column"].rank(method="dense").astype(int) - 1  # without clean images the first is empty
    tall, wide = (int(frame[name].max()) + 1 for name in ("row", "column"))
    chart = kinds.pictures(frame, (DATASET, made.CONDITION, LABEL), "change", LABEL)
    title = style.title(
        "What do the changed images look like?",
        "These are the first images of the first classes, at input size. Equal: on and around the object, noise covers "
        "areas of the same size.",
    )
    drawn = style.faceted(chart, frame, title, (DATASET,), height=tall * STEP, columns=1)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, wide * (kinds.SIDE + 30)
    return drawn


def shape_figure(shown: Table) -> alt.FacetChart:
    """Decisions for shape among all images and, where those for texture are known, among decisions for either."""
    either = shown.frame.dropna(subset=made.BIAS).assign(**{made.WHO: "either"})
    either[list(with_interval(made.SHAPE))] = either[list(with_interval(made.BIAS))]
    frame = pd.concat([shown.frame, either], ignore_index=True)
    frame["panel"] = style.panels(frame, DATASET)
    rows = kinds.category(alt.Y, MODEL, alt.EncodingSortField(made.SHAPE, op="min", order="descending"))
    words = dict(made.WHO.choices) | {"either": "stored predictions, among those for shape or texture"}
    coloured = kinds.hue(Column(made.WHO, choices=words), frame, (*kinds.CONTRAST, "#0072b2"), columns=2)
    across = kinds.quantity(alt.X, made.SHAPE, "decisions for shape", grid=True, domain=[0, 1], padding=0)
    hover = (DATASET, MODEL, *with_interval(made.SHAPE), NOTE)
    chart = kinds.points_with_intervals(made.SHAPE, rows, hover, coloured, scale=across)
    title = style.title(
        "Shape or texture?", "Shape and texture of these images are of different classes; bars are 95 % intervals."
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=18)


def _mark(frame: pd.DataFrame) -> str:
    return f" ({UNCONFIRMED})" if frame[made.TRUST].astype(str).str.startswith(UNCONFIRMED).any() else ""


def _marked(words: pd.Series, frame: pd.DataFrame, mark: str = UNCONFIRMED) -> pd.Series:
    unconfirmed = {
        word for word, trust in zip(words, frame[made.TRUST], strict=True) if str(trust).startswith(UNCONFIRMED)
    }
    return words + words.isin(unconfirmed).map({True: f" ({mark})", False: ""})


def _pale(chart: Any) -> Any:
    unconfirmed = f"indexof(datum.{made.TRUST} || '', '{UNCONFIRMED}') == 0"
    chart.layer[-1] = chart.layer[-1].encode(fillOpacity=alt.condition(unconfirmed, alt.value(0.25), alt.value(1.0)))
    return chart


def _change(name: str) -> str:
    """A change in two words or three, to stand below a picture."""
    where = "on it" if "/foreground/" in name else "around"
    kind = "equal," if name.endswith("/area_matched") else "noise"
    return f"{kind} {where}" if name.startswith("noise/") else WORDS.get(name, name)


def _left_out(frame: pd.DataFrame) -> Iterator[str]:
    for dataset, part in frame.groupby(DATASET, sort=False):
        images, classes = int(part[made.LEFT_OUT].max()), int(part[made.CLASSES_OUT].max())
        if images or classes:
            whole = f"{classes} {'class' if classes == 1 else 'classes'} whose objects nearly fill their images"
            others = f"{images} image{'' if images == 1 else 's'} of the others"
            yield f"{dataset}: left out are {whole} and {others}."


def accuracy_headlines(accuracy: pd.DataFrame) -> Iterator[str]:
    """How often models are right although the object is gone, and what was left out.

    >>> line = {"dataset": "zoo", "model": "vgg16", "protocol": "open", "condition": "ablate/gray", "top1": 0.62}
    >>> line |= {"top1_low": 0.55, "top1_high": 0.69, "n_classes": 15, "chance": 0.001, "trust": None}
    >>> print(*accuracy_headlines(pd.DataFrame([line | {"left_out": 0, "classes_left_out": 0}])))
    zoo: vgg16 predicts 62 % [55, 69] of images of 15 classes correctly although the object is gray (chance 0.1 %).
    """
    accuracy = accuracy[accuracy[made.PROTOCOL] == "open"]
    for dataset, part in accuracy.groupby(DATASET, sort=False):
        for change in [name for name in ALTHOUGH if name in set(part[made.CONDITION])][:1]:
            part = part[part[made.CONDITION] == change].sort_values(TOP1, ascending=False)
            known = f"; with known cues this metric is {UNCONFIRMED}" if _mark(part) else ""
            for line in (part if len(part) <= FEW else part.iloc[[0, -1]]).to_dict("records"):
                images = f"{_percent(line, TOP1)} of images of {line[made.N_CLASSES]} classes"
                level = ", which this does not exceed significantly" if line.get(AT_CHANCE) else ""
                chance = f"(chance {100 * line[made.CHANCE]:.2g} %{level}{known})"
                yield f"{dataset}: {line[MODEL]} predicts {images} correctly although {ALTHOUGH[change]} {chance}."
    yield from _left_out(accuracy)


def classes_headlines(classes: pd.DataFrame) -> Iterator[str]:
    """The class of each data set that leans most on its surroundings."""
    known = classes[classes[made.PROTOCOL] == "open"].dropna(subset=made.KEPT)
    for dataset, part in known.groupby(DATASET, sort=False):
        mean = part[part[MODEL] == made.MEAN]
        whole = part if mean.empty else mean
        best = small.best_of(whole, made.KEPT)
        if len(best) == len(whole):
            continue  # no class keeps more than another
        line = small.shared_line(best, made.KEPT)
        kept, who = _percent(line, made.KEPT), line[MODEL] + (f", {UNCONFIRMED}" if _mark(part) else "")
        keep, gone = ("keeps", "its object is") if len(best) == 1 else ("each keep", "their object is")
        its = "its" if len(best) == 1 else "their"
        most = f"of all classes {small.listed(best[LABEL].tolist())} {keep} the most of {its} accuracy when {gone} gone"
        yield f"{dataset}: {most}, {kept} ({who})."


def stability_headlines(stability: pd.DataFrame) -> Iterator[str]:
    """The two models of each data set that agree least about which classes lean on their surroundings."""
    for dataset, part in stability.dropna(subset=made.RHO).groupby(DATASET, sort=False):
        lowest = small.best_of(part, made.RHO, largest=False)
        line = small.shared_line(lowest, made.RHO)
        rho, low, high = (f"{line[end]:+.2f}" for end in with_interval(made.RHO))
        ends = "" if pd.isna(line[made.RHO.low]) else f" [{low}, {high}]"
        lower_ends = lowest[made.RHO.low]
        pair = f"{line[MODEL]} and {line[made.OTHER]}"
        if len(lowest) == len(part) > 1:
            pair = small.all_of(len(part), "pairs of models")
        elif len(lowest) > 1:
            pair = f"{len(lowest)} of {len(part)} pairs of models, {pair} among them,"
        agree = "agree least" if len(lowest) < len(part) else "agree"
        if lower_ends.isna().any():
            agree, ends = "may or may not agree", " without interval"
        elif (lower_ends <= 0).all():
            agree = "do not significantly agree"
        elif (lower_ends <= 0).any():
            agree = "agree, but not all significantly,"
        yield f"{dataset}: {pair} {agree} on which classes keep most of their accuracy: correlation {rho}{ends}."


def shape_headlines(shapes: pd.DataFrame) -> Iterator[str]:
    """How often each stored model decides for shape."""
    for line in shapes.dropna(subset=made.BIAS).to_dict("records"):
        of = f"of its {line[made.DECISIONS]:.0f} decisions for the shape or the texture"
        yield f"{line[DATASET]}: {line[MODEL]} decides for shape in {_percent(line, made.BIAS)} {of}."


def _percent(line: Any, column: Column) -> str:
    value, low, high = (100 * line[end] for end in with_interval(column))
    return f"{value:.0f} %" + ("" if pd.isna(low) else f" [{low:.0f}, {high:.0f}]")


FIGURES = (
    Figure("reliance_accuracy", "Accuracy without the object", (made.ACCURACY,), accuracy_figure),
    Figure("reliance_rfs", "Noise in the object and around it", (made.SENSITIVITY,), sensitivity_figure),
    Figure("reliance_saliency", "Saliency on the object", (made.ALIGNMENT,), alignment_figure),
    Figure("reliance_classes", "Classes that lean on their surroundings", (made.BY_CLASS,), classes_figure),
    Figure("class_stability", "Stability of the classes' order", (made.STABILITY,), stability_figure),
    Figure("reliance_examples", "Changed images", (made.SHOWN,), examples_figure),
    Figure("shape_bias", "Shape or texture", (made.SHAPES,), shape_figure),
)
HEADLINES = {
    made.ACCURACY.name: accuracy_headlines,
    made.BY_CLASS.name: classes_headlines,
    made.STABILITY.name: stability_headlines,
    made.SHAPES.name: shape_headlines,
}
