"""Figures and headlines of analysis=reliance. A metric that the test with known cues refuted is pale, and marked so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.reliance import reliance as made
from fca.studies.table import DATASET, LABEL, MODEL, NOTE, TOP1
from fca.types import Column, Table, with_interval

REFUTED = "refuted"
ENDS = 15  # classes at each end of a long ranking
STEP = 100  # pixels from the top of one picture to the next, with two lines of text between
WORDS = {
    "clean": "clean",
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
_PALE = alt.condition(f"indexof(datum.trust || '', '{REFUTED}') == 0", alt.value(0.25), alt.value(1.0))


def accuracy_figure(shown: Table) -> alt.FacetChart:
    """Accuracy clean and without the object, one panel a data set and protocol."""
    frame = shown.frame[~shown.frame[made.CONDITION].str.startswith("noise/")]
    frame = frame.assign(panel=style.panels(frame, DATASET, made.PROTOCOL))
    frame["change"] = _marked(frame, frame[made.CONDITION].map(lambda name: WORDS.get(name, name)))
    order = list(
        dict.fromkeys(frame.sort_values(made.CONDITION, key=lambda of: of != "clean", kind="stable")["change"])
    )
    rows = kinds.category(alt.Y, "change", order)
    coloured = kinds.hue(MODEL, frame, columns=2)
    across = kinds.quantity(alt.X, TOP1, "accuracy, mean over classes", grid=True, domain=[0, 1], padding=0)
    chart = kinds.points_with_intervals(
        TOP1, rows, shown.columns, coloured, dodge=MODEL, line=str(made.CHANCE), scale=across
    )
    title = style.title(
        "Is the class still predicted when its object is gone?",
        "95 % intervals over classes; dashed: guessing one of the classes that may be predicted.",
        *_left_out(frame),
    )
    height = len(order) * (14 + 12 * frame[MODEL].nunique())
    return style.faceted(_pale(chart), frame, title, (DATASET, MODEL, made.PROTOCOL), height=height)


def sensitivity_figure(shown: Table) -> alt.FacetChart:
    """Relative foreground sensitivity by level of noise; plain beside area-matched."""
    frame = shown.frame.dropna(subset=made.RFS).sort_values(
        [DATASET, made.PROTOCOL, made.KIND, made.MATCHED, made.LEVEL]
    )
    area = frame[made.MATCHED].map({True: "equal areas", False: "whole regions"})
    frame = frame.assign(noise=_marked(frame, frame[made.KIND] + ", " + area, [made.KIND, made.MATCHED]))
    frame["panel"] = style.panels(frame, DATASET, made.PROTOCOL, "noise")
    coloured = kinds.hue(MODEL, frame, columns=2)
    across, up = kinds.quantity(alt.X, made.LEVEL, "level of the noise"), kinds.quantity(alt.Y, made.RFS, grid=True)
    base = alt.Chart().encode(x=across, color=coloured.colour())
    band: Any = base.transform_filter(f"isValid(datum.{made.RFS.low})").mark_area(clip=True)
    band = band.encode(y=f"{made.RFS.low}:Q", y2=f"{made.RFS.high}:Q", opacity=coloured.opacity(0.15))
    points = kinds.points_with_intervals(
        made.RFS, across, shown.columns, coloured, line=kinds.ZERO, joined=MODEL, scale=up
    )
    title = style.title(
        "Does noise in the object cost more accuracy than noise around it?",
        "Above 0 the object matters more, below 0 its surroundings; bands and bars: 95 % intervals over classes.",
        *_left_out(frame),
    )
    figure = style.faceted(kinds.layers(band, _pale(points)), frame, title, (DATASET, MODEL, made.PROTOCOL), height=200)
    return figure.resolve_scale(x="independent")


def alignment_figure(shown: Table) -> alt.FacetChart:
    """Overlap of saliency and object, by model and data set."""
    frame = shown.frame[shown.frame[made.METRIC] == "iou"].reset_index(drop=True)
    frame = frame.assign(metric_word=_marked(frame, frame[made.METRIC].map(made.METRIC.choices)))
    frame["panel"] = style.panels(frame, "metric_word")
    coloured = kinds.hue(DATASET, frame)
    across = kinds.quantity(alt.X, made.VALUE, "mean over classes of the overlap", grid=True, domainMin=0, padding=0)
    rows = kinds.category(alt.Y, MODEL)
    chart = kinds.points_with_intervals(made.VALUE, rows, shown.columns, coloured, dodge=DATASET, scale=across)
    title = style.title(
        "Is what decides the prediction on the object?", "GradCAM of each image's class; 95 % intervals."
    )
    height = frame[MODEL].nunique() * (14 + 12 * frame[DATASET].nunique())
    return style.faceted(_pale(chart), frame, title, (DATASET, MODEL), height=height)


def classes_figure(shown: Table) -> alt.FacetChart:
    """The share of its accuracy that each class keeps, those that lean most on their surroundings first."""
    frame = shown.frame.dropna(subset=made.KEPT).reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET, made.PROTOCOL))
    leads = frame[MODEL] == made.MEAN
    leads |= ~leads.groupby(frame["panel"]).transform("any")  # the only model
    ranks = frame[leads].set_index(["panel", LABEL])[made.RANK]
    places = ranks.reindex(pd.MultiIndex.from_frame(frame[["panel", LABEL]])).to_numpy()
    frame = frame.assign(leads=leads, place=places)
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
        f"Share of each class's accuracy that is kept with {WORDS.get(measure, measure)}{_word(frame)}.",
        "95 % intervals over its images; the first lean most on their surroundings.",
        f"Classes with too few right clean images are missing; of many, the {ENDS} at each end are shown.",
    )
    return style.faceted(kinds.layers(_pale(chart), others), frame, title, (DATASET, MODEL, made.PROTOCOL), row=18)


def stability_figure(shown: Table) -> alt.FacetChart:
    """How alike every two models order the classes."""
    frame = shown.frame.dropna(subset=made.RHO)
    frame = frame.assign(panel=style.panels(frame, DATASET, made.PROTOCOL))
    across = alt.X(f"{MODEL}:N", title=None, axis=alt.Axis(labelAngle=-40))
    rows = style.names_axis(made.OTHER, "ascending")
    chart = kinds.heat_map(made.RHO, across, rows, shown.columns, (-1.0, 1.0))
    line = f"Spearman's correlation of the classes' kept accuracy{_word(frame)}; hover for 95 % intervals over classes."
    title = style.title("Do models agree which classes lean on their surroundings?", line)
    height = max(60, 40 * frame[made.OTHER].nunique())
    return style.faceted(chart, frame, title, (DATASET, made.PROTOCOL), height=height).resolve_axis(x="independent")


def examples_figure(shown: Table) -> alt.FacetChart:
    """The first images of a data set under every change."""
    frame = shown.frame.dropna(subset="thumbnail").reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), change=[_change(name) for name in frame[made.CONDITION]])
    frame["column"] = frame["column"].rank(method="dense").astype(int) - 1  # without clean images the first is empty
    tall, wide = (int(frame[name].max()) + 1 for name in ("row", "column"))
    chart = kinds.pictures(frame, (DATASET, made.CONDITION, LABEL), "change", LABEL)
    title = style.title(
        "What do the changed images look like?", "The first images of the first classes, at input size."
    )
    drawn = style.faceted(chart, frame, title, (DATASET,), height=tall * STEP, columns=1)
    drawn.spec.width = wide * (kinds.SIDE + 30)
    return drawn


def shape_figure(shown: Table) -> alt.FacetChart:
    """Decisions for shape among all images and, where those for texture are known, among decisions for either."""
    either = shown.frame.dropna(subset=made.BIAS).assign(**{made.WHO: "either"})
    either[list(with_interval(made.SHAPE))] = either[list(with_interval(made.BIAS))]
    frame = pd.concat([shown.frame, either], ignore_index=True)
    frame = frame.assign(panel=style.panels(frame, DATASET))
    rows = kinds.category(alt.Y, MODEL, alt.EncodingSortField(made.SHAPE, op="min", order="descending"))
    words = dict(made.WHO.choices) | {"either": "stored predictions, among those for shape or texture"}
    who = Column(made.WHO, choices=words)
    coloured = kinds.hue(who, frame, (*kinds.CONTRAST, "#0072b2"), columns=2)
    across = kinds.quantity(alt.X, made.SHAPE, "decisions for shape", grid=True, domain=[0, 1], padding=0)
    hover = (DATASET, MODEL, *with_interval(made.SHAPE), NOTE)
    chart = kinds.points_with_intervals(made.SHAPE, rows, hover, coloured, scale=across)
    title = style.title("Shape or texture?", "Images whose shape and texture are of different classes; 95 % intervals.")
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=18)


def _marked(frame: pd.DataFrame, words: pd.Series, by: Any = None) -> pd.Series:
    """The words, with `(refuted)` behind those of a refuted metric (by: some of those that agree in these columns)."""
    refuted = frame[made.TRUST].fillna("").str.startswith(REFUTED)
    if by is None:
        return words + refuted.map({True: f" ({REFUTED})", False: ""})
    some = refuted.groupby([frame[name] for name in by]).transform("any")
    return words + some.map({True: f" (pale: {REFUTED})", False: ""})


def _pale(chart: Any) -> Any:
    chart.layer[-1] = chart.layer[-1].encode(fillOpacity=_PALE)
    return chart


def _word(frame: pd.DataFrame) -> str:
    return f" ({REFUTED})" if any(map(_is_refuted, frame.to_dict("records"))) else ""


def _is_refuted(line: Any) -> bool:
    return str(line[made.TRUST]).startswith(REFUTED)


def _change(name: str) -> str:
    """A change in two words or three, to stand below a picture."""
    _, region, *more = name.split("/") if "/" in name else ("", "")
    noise = {"foreground": "noise on it", "background": "noise around"}.get(region)
    return WORDS.get(name) or (f"equal, {noise[6:]}" if noise and "area_matched" in more else noise or name)


def _left_out(frame: pd.DataFrame) -> Iterator[str]:
    for dataset, part in frame.groupby(DATASET, sort=False):
        images, classes = int(part[made.LEFT_OUT].max()), int(part[made.CLASSES_OUT].max())
        if images or classes:
            yield f"{dataset}: left out: {classes} whole classes (objects nearly fill them); of others {images} images."


def accuracy_headlines(accuracy: pd.DataFrame) -> Iterator[str]:
    """How often each model is right although the object is gone, and what was left out.

    >>> line = {"dataset": "zoo", "model": "vgg16", "protocol": "open", "condition": "ablate/gray", "top1": 0.62}
    >>> line |= {"top1_low": 0.55, "top1_high": 0.69, "n_classes": 15, "chance": 0.001, "trust": None}
    >>> print(*accuracy_headlines(pd.DataFrame([line | {"left_out": 0, "classes_left_out": 0}])))
    zoo: vgg16 predicts 62 % [55, 69] of images of 15 classes correctly although the object is gray (chance 0.1 %).
    """
    every = accuracy[accuracy[made.PROTOCOL] == "open"]
    for _, part in every.groupby([DATASET, MODEL], sort=False):
        for change in [name for name in ALTHOUGH if name in set(part[made.CONDITION])][:1]:
            [line] = part[part[made.CONDITION] == change].to_dict("records")
            images = f"{_percent(line, TOP1)} of images of {line[made.N_CLASSES]} classes"
            known = f"chance {100 * line[made.CHANCE]:.2g} %"
            known += f"; with known cues this metric is {REFUTED}" if _is_refuted(line) else ""
            yield f"{line[DATASET]}: {line[MODEL]} predicts {images} correctly although {ALTHOUGH[change]} ({known})."
    yield from _left_out(every)


def classes_headlines(classes: pd.DataFrame) -> Iterator[str]:
    """The class of each data set that leans most on its surroundings."""
    for (dataset, protocol), part in classes.dropna(subset=made.KEPT).groupby([DATASET, made.PROTOCOL], sort=False):
        models = part[part[MODEL] == made.MEAN] if (part[MODEL] == made.MEAN).any() else part
        line = models.sort_values(made.RANK, kind="stable").iloc[0]
        if protocol == "open":
            kept, who = _percent(line, made.KEPT), line[MODEL] + (f", {REFUTED}" if _is_refuted(line) else "")
            yield f"{dataset}: when its object is gone, {line[LABEL]} keeps most of its clean accuracy: {kept} ({who})."


def stability_headlines(stability: pd.DataFrame) -> Iterator[str]:
    """The two models of each data set that agree least about which classes lean on their surroundings."""
    for dataset, part in stability.dropna(subset=made.RHO).groupby(DATASET, sort=False):
        line = part.sort_values(made.RHO, kind="stable").iloc[0]
        rho, low, high = (f"{line[end]:+.2f}" for end in with_interval(made.RHO))
        pair = f"{line[MODEL]} and {line[made.OTHER]} agree{' least' if len(part) > 1 else ''}"
        yield f"{dataset}: {pair} on which classes keep most of their accuracy: correlation {rho} [{low}, {high}]."


def shape_headlines(shapes: pd.DataFrame) -> Iterator[str]:
    """How often each stored model decides for shape."""
    for line in shapes.dropna(subset=made.BIAS).to_dict("records"):
        of = f"of its {line[made.DECISIONS]:.0f} decisions for the shape or the texture"
        yield f"{line[DATASET]}: {line[MODEL]} decides for shape in {_percent(line, made.BIAS)} {of}."


def _percent(line: Any, column: Column) -> str:
    value, low, high = (100 * line[end] for end in with_interval(column))
    return f"{value:.0f} % [{low:.0f}, {high:.0f}]"


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
