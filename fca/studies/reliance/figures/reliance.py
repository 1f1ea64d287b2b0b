"""Figures and statements of analysis=reliance. A metric that known cues did not confirm is pale, and marked so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import interval
from fca.studies.reliance import reliance as analysis
from fca.studies.reliance.columns import MODEL_CHANCE
from fca.studies.reliance.metric_truth import UNCONFIRMED
from fca.tables.table import DATASET, LABEL, MODEL, NOTE, TOP1, all_at_chance
from fca.types import Column, Table, with_interval

FILTERS = (DATASET, MODEL, analysis.ALLOWED_CLASSES)
ENDS = 15  # classes at each end of a long ranking
FEW = 4  # models with a statement each; of more, those with the highest and the lowest value
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
WITHOUT_OBJECT = TOP1.with_format(".0%", "accuracy without the object")
KEPT = analysis.KEPT_SHARE.with_format(".0%", "accuracy kept")
BIAS = analysis.SHAPE_BIAS.with_format(".0%", "decisions for shape")


def accuracy_figure(shown: Table) -> alt.FacetChart:
    """Accuracy clean and without the object, one panel a data set and protocol."""
    frame = shown.frame[~shown.frame[analysis.CONDITION].str.startswith("noise/")]
    frame = frame.assign(panel=style.panels(frame, DATASET, analysis.ALLOWED_CLASSES))
    frame["change"] = _marked(frame[analysis.CONDITION].replace(WORDS), frame)
    first = frame.sort_values(analysis.CONDITION, key=lambda of: of != analysis.CLEAN, kind="stable")
    rows = kinds.category(alt.Y, "change", list(dict.fromkeys(first["change"])))
    across = kinds.quantity(alt.X, TOP1, "accuracy, mean over classes", grid=True, domain=[0, 1], padding=0)
    look: dict[str, Any] = {"dodge": MODEL, "line": str(MODEL_CHANCE), "scale": across}
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
    order = [DATASET, analysis.ALLOWED_CLASSES, analysis.KIND, analysis.AREA_MATCHED, analysis.LEVEL]
    frame = shown.frame.dropna(subset=analysis.RFS).sort_values(order)
    noise = frame[analysis.KIND] + frame[analysis.AREA_MATCHED].map({True: ", equal areas", False: ", whole regions"})
    frame = frame.assign(noise=_marked(noise, frame, f"pale: {UNCONFIRMED}"))
    frame["panel"] = style.panels(frame, DATASET, analysis.ALLOWED_CLASSES, "noise")
    levels = kinds.category(alt.X, analysis.LEVEL, title=analysis.LEVEL.meaning, labelAngle=0, bands=True)
    look: dict[str, Any] = {"dodge": MODEL, "line": kinds.ZERO, "scale": kinds.quantity(alt.Y, analysis.RFS, grid=True)}
    chart = kinds.points_with_intervals(analysis.RFS, levels, shown.columns, kinds.hue(MODEL, frame, columns=2), **look)
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
    frame = shown.frame[shown.frame[analysis.SALIENCY_METRIC] == "iou"].reset_index(drop=True)
    frame = frame.assign(word=_marked(frame[analysis.SALIENCY_METRIC].map(analysis.SALIENCY_METRIC.choices), frame))
    frame["panel"] = style.panels(frame, "word")
    across = kinds.quantity(
        alt.X, analysis.SALIENCY_VALUE, "mean over classes of the overlap", grid=True, domainMin=0, padding=0
    )
    look: dict[str, Any] = {"dodge": DATASET, "scale": across}
    rows, coloured = kinds.category(alt.Y, MODEL), kinds.hue(DATASET, frame)
    chart = kinds.points_with_intervals(analysis.SALIENCY_VALUE, rows, shown.columns, coloured, **look)
    title = style.title(
        "Is what decides the prediction on the object?",
        "Each mark is measured on GradCAM maps of the class; bars are 95 % intervals.",
    )
    height = frame[MODEL].nunique() * (14 + 12 * frame[DATASET].nunique())
    return style.faceted(_pale(chart), frame, title, (DATASET, MODEL), height=height)


def classes_figure(shown: Table) -> alt.FacetChart:
    """The share of its accuracy that each class keeps, those that lean most on their surroundings first."""
    frame = shown.frame.dropna(subset=analysis.KEPT_SHARE).reset_index(drop=True)
    frame = frame.assign(
        panel=style.panels(frame, DATASET, analysis.ALLOWED_CLASSES), leads=frame[MODEL] == analysis.MEAN_MODEL
    )
    frame["leads"] |= ~frame.groupby("panel")["leads"].transform("any")  # the only model
    frame["place"] = (
        frame[analysis.CLASS_RANK].where(frame["leads"]).groupby([frame["panel"], frame[LABEL]]).transform("first")
    )
    last = frame.groupby("panel")["place"].transform("max") - ENDS
    frame = frame[(frame["place"] <= ENDS) | (frame["place"] > last)].sort_values("place", kind="stable")
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField("place", op="min"))
    across = kinds.quantity(
        alt.X, analysis.KEPT_SHARE, "share of clean accuracy kept", grid=True, domainMin=0, padding=0
    )
    coloured = kinds.hue(MODEL, frame, columns=2)
    others = kinds.scatter(across, rows, shown.columns, coloured, size=30).transform_filter("!datum.leads")
    chart = kinds.points_with_intervals(
        analysis.KEPT_SHARE, rows, shown.columns, coloured, where="datum.leads", scale=across
    )
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
    frame = shown.frame.dropna(subset=analysis.RHO)
    frame = frame.assign(panel=style.panels(frame, DATASET, analysis.ALLOWED_CLASSES))
    across = alt.X(f"{MODEL}:N", title=None, axis=alt.Axis(labelAngle=-40))
    rows = style.names_axis(analysis.OTHER_MODEL, "ascending")
    chart = kinds.heat_map(analysis.RHO, across, rows, shown.columns, (-1.0, 1.0))
    line = f"Spearman's correlation of the classes' kept accuracy{_mark(frame)}; hover for 95 % intervals over classes."
    title = style.title("Do models agree which classes lean on their surroundings?", line)
    height = max(60, 30 * frame[analysis.OTHER_MODEL].nunique())
    figure = style.faceted(chart, frame, title, (DATASET, analysis.ALLOWED_CLASSES), height=height, columns=2)
    figure.spec.width = max(160, 44 * frame[MODEL].nunique())
    return figure.resolve_axis(x="independent")


def examples_figure(shown: Table) -> alt.FacetChart:
    """The first images of a data set under every change."""
    frame = shown.frame.dropna(subset="thumbnail").reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), change=frame[analysis.CONDITION].map(_change))
    frame["column"] = frame["column"].rank(method="dense").astype(int) - 1  # without clean images the first is empty
    tall, wide = (int(frame[name].max()) + 1 for name in ("row", "column"))
    chart = kinds.pictures(frame, (DATASET, analysis.CONDITION, LABEL), "change", LABEL)
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
    either = shown.frame.dropna(subset=analysis.SHAPE_BIAS).assign(**{analysis.SUBJECT: "either"})
    either[list(with_interval(analysis.SHAPE_SHARE))] = either[list(with_interval(analysis.SHAPE_BIAS))]
    frame = pd.concat([shown.frame, either], ignore_index=True)
    frame["panel"] = style.panels(frame, DATASET)
    rows = kinds.category(alt.Y, MODEL, alt.EncodingSortField(analysis.SHAPE_SHARE, op="min", order="descending"))
    words = dict(analysis.SUBJECT.choices) | {"either": "stored predictions, among those for shape or texture"}
    coloured = kinds.hue(Column(analysis.SUBJECT, choices=words), frame, (*kinds.CONTRAST, "#0072b2"), columns=2)
    across = kinds.quantity(alt.X, analysis.SHAPE_SHARE, "decisions for shape", grid=True, domain=[0, 1], padding=0)
    hover = (DATASET, MODEL, *with_interval(analysis.SHAPE_SHARE), NOTE)
    chart = kinds.points_with_intervals(analysis.SHAPE_SHARE, rows, hover, coloured, scale=across)
    title = style.title(
        "Shape or texture?", "Shape and texture of these images are of different classes; bars are 95 % intervals."
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=18)


def _mark(frame: pd.DataFrame) -> str:
    return f" ({UNCONFIRMED})" if frame[analysis.TRUST].astype(str).str.startswith(UNCONFIRMED).any() else ""


def _marked(words: pd.Series, frame: pd.DataFrame, mark: str = UNCONFIRMED) -> pd.Series:
    unconfirmed = {
        word for word, trust in zip(words, frame[analysis.TRUST], strict=True) if str(trust).startswith(UNCONFIRMED)
    }
    return words + words.isin(unconfirmed).map({True: f" ({mark})", False: ""})


def _pale(chart: Any) -> Any:
    unconfirmed = f"indexof(datum.{analysis.TRUST} || '', '{UNCONFIRMED}') == 0"
    chart.layer[-1] = chart.layer[-1].encode(fillOpacity=alt.condition(unconfirmed, alt.value(0.25), alt.value(1.0)))
    return chart


def _change(name: str) -> str:
    """A change in two words or three, to stand below a picture."""
    where = "on it" if "/foreground/" in name else "around"
    kind = "equal," if name.endswith("/area_matched") else "noise"
    return f"{kind} {where}" if name.startswith("noise/") else WORDS.get(name, name)


def _left_out(frame: pd.DataFrame) -> Iterator[str]:
    for dataset, part in frame.groupby(DATASET, sort=False):
        images, classes = int(part[analysis.LEFT_OUT].max()), int(part[analysis.CLASSES_LEFT_OUT].max())
        if images or classes:
            whole = f"{classes} {'class' if classes == 1 else 'classes'} whose objects nearly fill their images"
            others = f"{images} image{'' if images == 1 else 's'} of the others"
            yield f"{dataset}: left out are {whole} and {others}."


def accuracy_statements(accuracy: pd.DataFrame) -> Iterator[Statement]:
    """How often models are right although the object is gone: the most accurate model, then the others.

    >>> line = {"dataset": "zoo", "model": "vit", "protocol": "open", "condition": "ablate/gray", "top1": 0.62}
    >>> line |= {"top1_low": 0.55, "top1_high": 0.69, "n_classes": 15, "chance": 0.001, "trust": None}
    >>> [statement] = accuracy_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    Although the object is gray, vit is still right on 62 % [55, 69] of the images of zoo (15 classes, chance 0.1 %).
    """
    open_lines = accuracy[accuracy[analysis.ALLOWED_CLASSES] == "open"]
    change = next((change for change in ALTHOUGH if change in set(open_lines[analysis.CONDITION])), None)
    if change is None:
        return

    clean = open_lines[open_lines[analysis.CONDITION] == analysis.CLEAN]
    changed = open_lines[open_lines[analysis.CONDITION] == change].sort_values(TOP1, ascending=False, kind="stable")
    chance = float(changed[MODEL_CHANCE].iloc[0])
    chart = small.dots(changed, MODEL, WITHOUT_OBJECT, (MODEL, *with_interval(WITHOUT_OBJECT)), line=chance)
    if all_at_chance(clean):
        dataset = changed[DATASET].iloc[0]
        yield Statement(f"Not known: models are at the level of chance on clean images of {dataset}, too.", chart)
        return

    best = small.best_of(changed, WITHOUT_OBJECT)
    if all_at_chance(changed):
        verb = "is" if len(best) == 1 else "are each"
        best_models = f"{small.listed(best[MODEL].tolist())} {verb} right on {_share_of_images(best)}"
        yield Statement(f"No: where {ALTHOUGH[change]}, no model is better than chance; {best_models}.", chart)
    else:
        yield Statement(_right_without_object(best, ALTHOUGH[change]), chart)

    others = changed.drop(best.index)
    stated = others if len(changed) <= FEW else others.tail(1)
    for at in range(len(stated)):
        yield Statement(_right_without_object(stated.iloc[[at]], ALTHOUGH[change]))


def _right_without_object(models: pd.DataFrame, although: str) -> str:
    """How often these models, which are equally accurate, are right in spite of a change."""
    names = small.listed(models[MODEL].tolist())
    if all_at_chance(models):
        verb = "is" if len(models) == 1 else "are"
        return f"Where {although}, {names} {verb} at the level of chance: right on {_share_of_images(models)}."

    verb = "is" if len(models) == 1 else "are each"
    return f"Although {although}, {names} {verb} still right on {_share_of_images(models)}."


def _share_of_images(models: pd.DataFrame) -> str:
    """The accuracy that these models have in common, beside chance, and whether the metric is to be believed."""
    line = small.shared_line(models, WITHOUT_OBJECT)
    n_classes = line[analysis.N_CLASSES]
    classes = f"{n_classes} class{'' if n_classes == 1 else 'es'}"
    details = "; ".join([f"{classes}, chance {100 * line[MODEL_CHANCE]:.2g} %", *_doubts(line)])
    return f"{interval(line, WITHOUT_OBJECT)} of the images of {line[DATASET]} ({details})"


def _doubts(line: Mapping[Any, Any]) -> list[str]:
    """That the metric of this line is not confirmed, if it is not."""
    is_unconfirmed = str(line[analysis.TRUST]).startswith(UNCONFIRMED)
    return [f"with known cues this metric is {UNCONFIRMED}"] if is_unconfirmed else []


def left_out_statements(accuracy: pd.DataFrame) -> Iterator[Statement]:
    """How many images and classes are left out."""
    for sentence in _left_out(accuracy[accuracy[analysis.ALLOWED_CLASSES] == "open"]):
        yield Statement(sentence)


def classes_statements(classes: pd.DataFrame, accuracy: pd.DataFrame) -> Iterator[Statement]:
    """The class that keeps most of its accuracy without its object, in the mean over models or by the only one.

    >>> line = {"dataset": "zoo", "model": "vit", "protocol": "open", "label": "fish", "kept": 0.6, "kept_low": 0.5}
    >>> lines = [line | {"kept_high": 0.7, "rank": 1}, line | {"label": "car", "kept": 0.1, "rank": 2}]
    >>> clean = line | {"condition": "clean"}
    >>> [statement] = classes_statements(pd.DataFrame(lines).assign(trust=None), pd.DataFrame([clean]))
    >>> print(statement.sentence)
    Of the classes of zoo, fish leans most on its surroundings: it keeps 60 % [50, 70] of its accuracy when its object \
is gone (vit).
    """
    open_lines = classes[classes[analysis.ALLOWED_CLASSES] == "open"].dropna(subset=KEPT)
    if open_lines.empty:
        return

    ordered = open_lines.sort_values(KEPT, ascending=False, kind="stable")
    leading_model = analysis.MEAN_MODEL if analysis.MEAN_MODEL in set(ordered[MODEL]) else ordered[MODEL].iloc[0]
    ranked = ordered[ordered[MODEL] == leading_model].sort_values(analysis.CLASS_RANK, kind="stable")
    best = small.best_of(ranked, KEPT)
    line = small.shared_line(best, KEPT)
    chart = small.dots(ranked, LABEL, KEPT, (LABEL, MODEL, *with_interval(KEPT)))

    dataset = line[DATASET]
    clean = accuracy[(accuracy[analysis.ALLOWED_CLASSES] == "open") & (accuracy[analysis.CONDITION] == analysis.CLEAN)]
    if all_at_chance(clean):
        yield Statement(f"Not known: models are at the level of chance on clean images of {dataset}.", chart)
        return

    measured = "; ".join([str(leading_model), *_doubts(line)])
    kept = f"{interval(line, KEPT)} of its accuracy when its object is gone ({measured})"
    names = small.listed(best[LABEL].tolist())
    if len(ranked) == 1:
        sentence = f"Of {dataset}, only {names} could be tested: it keeps {kept}."
    elif len(best) == len(ranked):
        sentence = f"None more than the others: each class of {dataset} keeps {kept}."
    elif len(best) == 1:
        sentence = f"Of the classes of {dataset}, {names} leans most on its surroundings: it keeps {kept}."
    else:
        sentence = f"Of the classes of {dataset}, {names} lean most on their surroundings: each keeps {kept}."
    yield Statement(sentence, chart)


def stability_statements(stability: pd.DataFrame) -> Iterator[Statement]:
    """The two models that agree least about which classes lean on their surroundings."""
    known_pairs = stability.dropna(subset=analysis.RHO)
    if known_pairs.empty:
        return

    lowest = small.best_of(known_pairs, analysis.RHO, largest=False)
    line = small.shared_line(lowest, analysis.RHO)
    pair = f"{line[MODEL]} and {line[analysis.OTHER_MODEL]}"
    if len(lowest) == len(known_pairs) > 1:
        pair = small.all_of(len(known_pairs), "pairs of models")
    elif len(lowest) > 1:
        pair = f"{len(lowest)} of {len(known_pairs)} pairs of models, {pair} among them,"

    correlation = interval(line, analysis.RHO)
    lower_ends = lowest[analysis.RHO.low]
    if lower_ends.isna().any():
        agree = "may or may not agree"
        correlation += " without interval"
    elif (lower_ends <= 0).all():
        agree = "do not significantly agree"
    elif (lower_ends <= 0).any():
        agree = "agree, but not all significantly,"
    else:
        agree = "agree least" if len(lowest) < len(known_pairs) else "agree"

    what = "on which classes keep most of their accuracy"
    yield Statement(f"{line[DATASET]}: {pair} {agree} {what}: correlation {correlation}.")


def shape_statements(shapes: pd.DataFrame) -> Iterator[Statement]:
    """How often models decide for shape: the one that does so most often, then the others.

    >>> line = {"dataset": "zoo", "model": "vit", "shape_bias": 0.6, "shape_bias_low": 0.55, "shape_bias_high": 0.7}
    >>> [statement] = shape_statements(pd.DataFrame([line | {"decisions": 90}]))
    >>> print(statement.sentence)
    Between shape and texture of images of zoo, vit decides for shape in 60 % [55, 70] of 90 cases.
    """
    decided = shapes.dropna(subset=BIAS).sort_values(BIAS, ascending=False, kind="stable")
    if decided.empty:
        return

    best = small.best_of(decided, BIAS)
    yield Statement(_decisions(best), small.dots(decided, MODEL, BIAS, (MODEL, *with_interval(BIAS))))

    others = decided.drop(best.index)
    for at in range(len(others)):
        yield Statement(_decisions(others.iloc[[at]]))


def _decisions(models: pd.DataFrame) -> str:
    """How often these models, which do so equally often, decide for shape."""
    line = small.shared_line(models, BIAS)
    verb = "decides" if len(models) == 1 else "each decide"
    decisions = small.listed([f"{number:,.0f}" for number in models[analysis.DECISIONS].unique()])
    cases = f"{interval(line, BIAS)} of {decisions} case{'' if decisions == '1' else 's'}"
    if line[BIAS.low] <= 0.5 <= line[BIAS.high]:
        cases += ", no significant preference"

    names = small.listed(models[MODEL].tolist())
    return f"Between shape and texture of images of {line[DATASET]}, {names} {verb} for shape in {cases}."
