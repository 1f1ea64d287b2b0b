"""Figures and statements of analysis=reliance.

A metric is unconfirmed if it failed on rendered images, where the cue that a network relies on is known. Its marks are
pale, and its name is marked "not confirmed".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.reliance import reliance as analysis
from fca.studies.reliance.columns import MODEL_CHANCE
from fca.studies.reliance.metric_truth import UNCONFIRMED
from fca.tables.table import DATASET, LABEL, MODEL, NOTE, TOP1, all_at_chance
from fca.types import Column, Table, interval_columns

FILTERS = (DATASET, MODEL, analysis.ALLOWED_CLASSES)
CLASSES_AT_END = 15  # of a long ranking, at each end
FEW_MODELS = 4  # so many have a statement each; of more, those with the highest and the lowest value
PICTURE_HEIGHT = kinds.SIDE + 36  # pixels from the top of one picture to the next, with two lines of text between
PICTURE_WIDTH = kinds.SIDE + 30
CHANGE_WORDS = {
    "ablate/gray": "object gray",
    "ablate/gray_box": "box gray",
    "ablate/tile": "box tiled over",
    "swap/background": "other background",
    "swap/background/pasted": "pasted elsewhere",
}
CHANGE_CLAUSES = {  # in order of preference
    "ablate/gray_box": "the box around the object is gray",
    "ablate/gray": "the object is gray",
    "ablate/tile": "the box around the object is tiled over",
}
WITHOUT_OBJECT = TOP1.with_format(".0%", "accuracy without the object")
KEPT_SHARE = analysis.KEPT_SHARE.with_format(".0%", "accuracy kept")
SHAPE_BIAS = analysis.SHAPE_BIAS.with_format(".0%", "decisions for shape")


def accuracy_figure(accuracy: Table) -> alt.FacetChart:
    """Accuracy on clean images and on images without their object or background: a row a change, a colour a model.

    There is a panel for each data set and protocol (which classes the model may predict). Changes whose accuracy did
    not follow the true reliance of networks in a test on rendered images (unconfirmed) are marked and pale.

    accuracy: the table `reliance_accuracy`, with a line for each model and condition. Its lines with noise are left
              out: the figure of relative foreground sensitivity shows these.
    """
    frame = accuracy.frame[~accuracy.frame[analysis.CONDITION].str.startswith("noise/")]
    frame = frame.assign(panel=style.panels(frame, DATASET, analysis.ALLOWED_CLASSES))
    frame["change"] = _marked_where_unconfirmed(frame[analysis.CONDITION].replace(CHANGE_WORDS), frame)

    # False sorts before True, so clean images are first; the others keep their order
    clean_first = frame.sort_values(
        analysis.CONDITION, key=lambda conditions: conditions != analysis.CLEAN, kind="stable"
    )
    rows = kinds.category(alt.Y, "change", clean_first["change"].drop_duplicates().tolist())
    across = kinds.quantity(alt.X, TOP1, "accuracy, mean over classes", grid=True, domain=[0, 1], padding=0)
    chart = kinds.points_with_intervals(
        TOP1,
        rows,
        accuracy.columns,
        kinds.hue(MODEL, frame, columns=2),
        dodge=MODEL,
        line=str(MODEL_CHANCE),
        scale=across,
    )

    title = style.title(
        "Is the class still predicted when its object is gone?",
        "Bars are 95 % intervals over classes; the dashed line is the accuracy of guessing among the allowed classes.",
        *_left_out_sentences(frame),  # how many classes and images are left out
    )
    height = frame["change"].nunique() * (14 + 12 * frame[MODEL].nunique())
    return style.faceted(_pale_where_unconfirmed(chart), frame, title, FILTERS, height=height)


def sensitivity_figure(sensitivity: Table) -> alt.FacetChart:
    """Relative foreground sensitivity (RFS) by level of noise; a colour for each model.

    RFS is above 0 if noise in the object costs more accuracy than noise around it. There is a panel for each data set,
    protocol (which classes the model may predict), kind of noise, and whether noise covers equal areas of object and
    background. Noise whose RFS did not follow the true reliance of networks in a test on rendered images (unconfirmed)
    is marked and pale.

    sensitivity: the table `reliance_rfs`, with a line for each model and noise.
    """
    order = [DATASET, analysis.ALLOWED_CLASSES, analysis.KIND, analysis.AREA_MATCHED, analysis.LEVEL]
    frame = sensitivity.frame.dropna(subset=analysis.RFS).sort_values(order)
    area_words = frame[analysis.AREA_MATCHED].map({True: ", equal areas", False: ", whole regions"})
    noise = _marked_where_unconfirmed(frame[analysis.KIND] + area_words, frame, mark=f"pale: {UNCONFIRMED}")
    frame = frame.assign(noise=noise)
    frame["panel"] = style.panels(frame, DATASET, analysis.ALLOWED_CLASSES, "noise")

    levels = kinds.category(alt.X, analysis.LEVEL, title=analysis.LEVEL.meaning, labelAngle=0, bands=True)
    chart = kinds.points_with_intervals(
        analysis.RFS,
        levels,
        sensitivity.columns,
        kinds.hue(MODEL, frame, columns=2),
        dodge=MODEL,
        line=kinds.ZERO,
        scale=kinds.quantity(alt.Y, analysis.RFS, grid=True),
    )
    title = style.title(
        "Does noise in the object cost more accuracy than noise around it?",
        "Above 0, noise in the object costs more; below 0, noise around it, which is larger unless areas are equal.",
        "A value of 0 proves nothing: 18 rendered networks that use no cue had -0.70 to -0.33 (gaussian 0.25, whole "
        "regions).",
        *_left_out_sentences(frame),  # how many classes and images are left out
    )
    figure = style.faceted(_pale_where_unconfirmed(chart), frame, title, FILTERS, height=200)
    return figure.resolve_scale(x="independent", xOffset="independent")  # kinds of noise have different levels


def alignment_figure(alignment: Table) -> alt.FacetChart:
    """The overlap (IoU) of saliency maps and objects, mean over classes: a row for each model, a colour a data set.

    The dots are pale and marked if the IoU did not follow the true reliance of networks in a test on rendered images
    (unconfirmed).

    alignment: the table `reliance_saliency`, with a line for each model and metric; the figure shows the IoU alone.
    """
    frame = alignment.frame[alignment.frame[analysis.SALIENCY_METRIC] == "iou"].reset_index(drop=True)
    # a single panel, named by the metric in words
    metric_words = frame[analysis.SALIENCY_METRIC].map(analysis.SALIENCY_METRIC.choices)
    frame = frame.assign(word=_marked_where_unconfirmed(metric_words, frame))
    frame["panel"] = style.panels(frame, "word")

    title_across = "mean over classes of the overlap"
    across = kinds.quantity(alt.X, analysis.SALIENCY_VALUE, title_across, grid=True, domainMin=0, padding=0)
    chart = kinds.points_with_intervals(
        analysis.SALIENCY_VALUE,
        kinds.category(alt.Y, MODEL),
        alignment.columns,
        kinds.hue(DATASET, frame),
        dodge=DATASET,
        scale=across,
    )
    title = style.title(
        "Is what decides the prediction on the object?",
        "Each mark is measured on GradCAM maps of the class; bars are 95 % intervals.",
    )
    height = frame[MODEL].nunique() * (14 + 12 * frame[DATASET].nunique())
    return style.faceted(_pale_where_unconfirmed(chart), frame, title, (DATASET, MODEL), height=height)


def classes_figure(classes: Table) -> alt.FacetChart:
    """The share of its clean accuracy that each class keeps without its object; the largest shares come first.

    A row is a class, a colour a model. Of a long ranking only the CLASSES_AT_END classes at each end are shown. Dots
    are pale if accuracy under the change did not follow the true reliance of networks in a test on rendered images
    (unconfirmed).

    classes: the table `reliance_classes`, with a line for each model and class, also for the mean over models.
    """
    frame = classes.frame.dropna(subset=analysis.KEPT_SHARE).reset_index(drop=True)
    frame["panel"] = style.panels(frame, DATASET, analysis.ALLOWED_CLASSES)

    # the mean over models (or the only model) leads a panel: it has intervals, and the classes are in its order
    frame["leads"] = frame[MODEL] == analysis.MEAN_MODEL
    has_leader = frame.groupby("panel")["leads"].transform("any")
    frame["leads"] |= ~has_leader

    # `place`: the rank of the class by the leader, also in the lines of other models
    leading_rank = frame[analysis.CLASS_RANK].where(frame["leads"])
    frame["place"] = leading_rank.groupby([frame["panel"], frame[LABEL]]).transform("first")

    last_place = frame.groupby("panel")["place"].transform("max")
    is_at_end = (frame["place"] <= CLASSES_AT_END) | (frame["place"] > last_place - CLASSES_AT_END)
    frame = frame[is_at_end].sort_values("place", kind="stable")

    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField("place", op="min"))
    title_across = "share of clean accuracy kept"
    across = kinds.quantity(alt.X, analysis.KEPT_SHARE, title_across, grid=True, domainMin=0, padding=0)
    coloured = kinds.hue(MODEL, frame, columns=2)
    other_models = kinds.scatter(across, rows, classes.columns, coloured, size=30)  # small dots without intervals
    other_models = other_models.transform_filter("!datum.leads")
    leader = kinds.points_with_intervals(
        analysis.KEPT_SHARE,
        rows,
        classes.columns,
        coloured,
        where="datum.leads",
        scale=across,
    )

    measure = classes.parameters["measure"]
    mark = _mark_if_unconfirmed(frame)  # " (not confirmed)" or nothing
    title = style.title(
        "Which classes lean on their surroundings?",
        f"Share of each class's accuracy that is kept with {CHANGE_WORDS.get(measure, measure)}{mark}.",
        "Bars are 95 % intervals over images. The first classes keep most: by their surroundings, or as the guess for "
        "any gray image.",
        f"Classes with too few clean images right are missing; of many, the {CLASSES_AT_END} at each end are shown.",
    )
    return style.faceted(kinds.layers(_pale_where_unconfirmed(leader), other_models), frame, title, FILTERS, row=18)


def stability_figure(stability: Table) -> alt.FacetChart:
    """A heat map for pairs of models: how far two models agree which classes keep most of their accuracy.

    A cell has Spearman's correlation over the classes of the shares that they keep without their object. There is a
    panel for each data set and protocol (which classes the model may predict).

    stability: the table `class_stability`, with a line for each pair of models.
    """
    frame = stability.frame.dropna(subset=analysis.RHO)
    frame = frame.assign(panel=style.panels(frame, DATASET, analysis.ALLOWED_CLASSES))

    across = alt.X(f"{MODEL}:N", title=None, axis=alt.Axis(labelAngle=-40))
    rows = style.names_axis(analysis.OTHER_MODEL, "ascending")
    chart = kinds.heat_map(analysis.RHO, across, rows, stability.columns, (-1.0, 1.0))
    # " (not confirmed)" if accuracy without the object did not follow the true reliance of networks in a test on
    # rendered images; otherwise nothing
    mark = _mark_if_unconfirmed(frame)
    title = style.title(
        "Do models agree which classes lean on their surroundings?",
        f"Spearman's correlation of the classes' kept accuracy{mark}; hover for 95 % intervals over classes.",
    )
    height = max(60, 30 * frame[analysis.OTHER_MODEL].nunique())
    figure = style.faceted(chart, frame, title, (DATASET, analysis.ALLOWED_CLASSES), height=height, columns=2)
    figure.spec.width = max(160, 44 * frame[MODEL].nunique())
    return figure.resolve_axis(x="independent")


def examples_figure(examples: Table) -> alt.FacetChart:
    """A grid of example pictures for each data set: a row is an image, a column a change of the images.

    examples: the table `reliance_examples`; columns `row` and `column` give a picture's place in the grid. Raises
              NothingToDraw if it has no picture.
    """
    frame = examples.frame.dropna(subset="thumbnail").reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), change=frame[analysis.CONDITION].map(_short_change))
    # gaps in the numbers are closed: a column may have no picture, e.g. if the clean images are no longer at hand
    frame["column"] = frame["column"].rank(method="dense").astype(int) - 1

    chart = kinds.pictures(frame, (DATASET, analysis.CONDITION, LABEL), "change", LABEL)
    title = style.title(
        "What do the changed images look like?",
        "These are the first images of the first classes, at input size. Equal means that noise covers areas of the "
        "same size on and around the object.",
    )
    n_rows = int(frame["row"].max()) + 1
    n_columns = int(frame["column"].max()) + 1
    figure = style.faceted(chart, frame, title, (DATASET,), height=n_rows * PICTURE_HEIGHT, columns=1)
    figure.usermeta = kinds.FIXED  # pictures have a fixed size, so that panels are not stretched to the page
    figure.spec.width = n_columns * PICTURE_WIDTH
    return figure


def shape_figure(shapes: Table) -> alt.FacetChart:
    """How often models and people decide for shape, where shape and texture of an image are of different classes.

    A row is a model or person, its share of decisions for shape among all images a dot. A model whose decisions for
    texture are known has a second dot: the share among its decisions for either shape or texture (its shape bias). The
    colour of a dot shows who decided (column SUBJECT: stored predictions, a network or a person); second dots have a
    colour of their own.

    shapes: the table `shape_bias`, with a line for each model or person.
    """
    # the second dot is a further line of the frame: "either" stands in the column of who decided, to give it a colour
    # of its own (the fourth), and the shape bias in the columns of the share
    either = shapes.frame.dropna(subset=analysis.SHAPE_BIAS).assign(**{analysis.SUBJECT: "either"})
    either[list(interval_columns(analysis.SHAPE_SHARE))] = either[list(interval_columns(analysis.SHAPE_BIAS))]
    frame = pd.concat([shapes.frame, either], ignore_index=True)
    frame["panel"] = style.panels(frame, DATASET)

    # models are sorted by their first dot (min): it is never right of the second, as its share is of more images
    rows = kinds.category(alt.Y, MODEL, alt.EncodingSortField(analysis.SHAPE_SHARE, op="min", order="descending"))
    across = kinds.quantity(alt.X, analysis.SHAPE_SHARE, "decisions for shape", grid=True, domain=[0, 1], padding=0)
    subject_words = {
        **analysis.SUBJECT.choices,
        "either": "stored predictions, among those for shape or texture",
    }
    subject = Column(analysis.SUBJECT, choices=subject_words)
    coloured = kinds.hue(subject, frame, (*kinds.CONTRAST, "#0072b2"), columns=2)
    hover = (DATASET, MODEL, *interval_columns(analysis.SHAPE_SHARE), NOTE)
    chart = kinds.points_with_intervals(analysis.SHAPE_SHARE, rows, hover, coloured, scale=across)
    title = style.title(
        "Shape or texture?", "Shape and texture of these images are of different classes; bars are 95 % intervals."
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL), row=18)


def _mark_if_unconfirmed(frame: pd.DataFrame) -> str:
    """The words " (not confirmed)" if these lines have an unconfirmed metric, otherwise an empty text."""
    return f" ({UNCONFIRMED})" if _is_unconfirmed(frame).any() else ""


def _marked_where_unconfirmed(words: pd.Series, frame: pd.DataFrame, mark: str = UNCONFIRMED) -> pd.Series:
    """The word of each line, followed by the mark if it belongs to an unconfirmed metric.

    A word is marked in all lines if it is unconfirmed in one of them: a word is one entry of an axis.

    words: one for each line of the frame, e.g. the name of a change.
    """
    unconfirmed_words = set(words[_is_unconfirmed(frame)])
    return words + words.isin(unconfirmed_words).map({True: f" ({mark})", False: ""})


def _is_unconfirmed(frame: pd.DataFrame) -> pd.Series:
    """For each line whether its metric failed where the cues of networks are known."""
    return frame[analysis.TRUST].astype(str).str.startswith(UNCONFIRMED)


def _pale_where_unconfirmed(chart: Any) -> Any:
    """The chart with pale dots where the metric of a line is unconfirmed: its verdict begins with that word.

    chart: as from `kinds.points_with_intervals`, whose last layer has the dots.
    """
    is_unconfirmed = f"indexof(datum.{analysis.TRUST} || '', '{UNCONFIRMED}') == 0"  # for Vega; '': no verdict
    marks = chart.layer[-1]
    chart.layer[-1] = marks.encode(fillOpacity=alt.condition(is_unconfirmed, alt.value(0.25), alt.value(1.0)))
    return chart


def _short_change(condition: str) -> str:
    """Two or three words for a change, to stand below a picture.

    condition: as in the tables. For noise it is noise/REGION/KIND/LEVEL; with the word "area_matched", the noise
               covers equal areas of object and background ("equal").
    """
    if not condition.startswith("noise/"):
        return CHANGE_WORDS.get(condition, condition)
    kind = "equal," if "/area_matched" in condition else "noise"
    region = "on it" if "/foreground/" in condition else "around"
    return f"{kind} {region}"


def _left_out_sentences(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each data set from which classes or images are left out, with their numbers.

    frame: lines of a table whose columns LEFT_OUT and CLASSES_LEFT_OUT count them. They are counted at the input size
           of each model; the largest count is given.
    """
    for dataset, lines in frame.groupby(DATASET, sort=False):
        n_images = int(lines[analysis.LEFT_OUT].max())
        n_classes = int(lines[analysis.CLASSES_LEFT_OUT].max())
        if n_images or n_classes:
            classes = f"{n_classes} {'class' if n_classes == 1 else 'classes'} whose objects nearly fill their images"
            images = f"{n_images} image{'' if n_images == 1 else 's'} of the others"
            yield f"{dataset}: left out are {classes} and {images}."


def accuracy_statements(accuracy: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the accuracy of models on images without their objects: first the best model, then the others.

    They are about the protocol "open" (all classes of a model) and one change that removes the object: the first of
    CHANGE_CLAUSES for which there is an accuracy. There are no sentences without such a change. Of more than FEW_MODELS
    models only the best and the last have a sentence. If models are at the level of chance on clean images, one
    sentence states that nothing is known. WITHOUT_OBJECT is the column TOP1 with a format and a name for sentences.

    accuracy: the frame of the table `reliance_accuracy`, with a line for each model and condition.

    >>> line = {"dataset": "zoo", "model": "vit", "protocol": "open", "condition": "ablate/gray", "top1": 0.62}
    >>> line |= {"top1_low": 0.55, "top1_high": 0.69, "n_classes": 15, "chance": 0.001, "trust": None}
    >>> [statement] = accuracy_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    Although the object is gray, vit is still right on 62 % [55, 69] of the images of zoo (15 classes, chance 0.1 %).
    """
    open_lines = accuracy[accuracy[analysis.ALLOWED_CLASSES] == "open"]
    conditions = set(open_lines[analysis.CONDITION])
    change = next((change for change in CHANGE_CLAUSES if change in conditions), None)
    if change is None:
        return

    clean = open_lines[open_lines[analysis.CONDITION] == analysis.CLEAN]
    changed = open_lines[open_lines[analysis.CONDITION] == change].sort_values(TOP1, ascending=False, kind="stable")
    chance = float(changed[MODEL_CHANCE].iloc[0])  # a line in the small figure
    chart = small.dots(changed, MODEL, WITHOUT_OBJECT, (MODEL, *interval_columns(WITHOUT_OBJECT)), line=chance)
    if all_at_chance(clean):
        dataset = changed[DATASET].iloc[0]
        yield Statement(f"Not known: models are at the level of chance on clean images of {dataset}, too.", chart)
        return

    best = small.best_of(changed, WITHOUT_OBJECT)  # several models if they are equal
    if all_at_chance(changed):  # "still right" would mislead
        verb = "is" if len(best) == 1 else "are each"
        best_models = f"{small.listed(best[MODEL].tolist())} {verb} right on {_share_of_images(best)}"
        yield Statement(f"No: where {CHANGE_CLAUSES[change]}, no model is better than chance; {best_models}.", chart)
    else:
        yield Statement(_right_without_object(best, CHANGE_CLAUSES[change]), chart)

    other_models = changed.drop(best.index)
    stated = other_models if len(changed) <= FEW_MODELS else other_models.tail(1)
    for position in range(len(stated)):
        yield Statement(_right_without_object(stated.iloc[[position]], CHANGE_CLAUSES[change]))


def _right_without_object(models: pd.DataFrame, change: str) -> str:
    """The sentence on how often these models are right on changed images, or that they are at the level of chance.

    models: lines of models with equal accuracies.
    change: a clause such as "the object is gray".
    """
    names = small.listed(models[MODEL].tolist())
    if all_at_chance(models):
        verb = "is" if len(models) == 1 else "are"
        return f"Where {change}, {names} {verb} at the level of chance: right on {_share_of_images(models)}."

    verb = "is" if len(models) == 1 else "are each"
    return f"Although {change}, {names} {verb} still right on {_share_of_images(models)}."


def _share_of_images(models: pd.DataFrame) -> str:
    """Words: the accuracy that these models share with its interval, chance, and a warning if it is unconfirmed.

    models: lines of models with equal accuracies.
    """
    line = small.shared_line(models, WITHOUT_OBJECT)
    n_classes = line[analysis.N_CLASSES]
    classes = f"{n_classes} class{'' if n_classes == 1 else 'es'}"
    details = "; ".join([f"{classes}, chance {100 * line[MODEL_CHANCE]:.2g} %", *_doubts(line)])
    return f"{format_with_interval(line, WITHOUT_OBJECT)} of the images of {line[DATASET]} ({details})"


def _doubts(line: Mapping[Any, Any]) -> list[str]:
    """One clause stating that the metric of this line is unconfirmed; an empty list if it is not unconfirmed."""
    is_unconfirmed = str(line[analysis.TRUST]).startswith(UNCONFIRMED)
    return [f"with known cues this metric is {UNCONFIRMED}"] if is_unconfirmed else []


def left_out_statements(accuracy: pd.DataFrame) -> Iterator[Statement]:
    """A sentence for each data set on how many images and classes are left out.

    accuracy: the frame of the table `reliance_accuracy`.
    """
    for sentence in _left_out_sentences(accuracy[accuracy[analysis.ALLOWED_CLASSES] == "open"]):
        yield Statement(sentence)


def classes_statements(classes: pd.DataFrame, accuracy: pd.DataFrame) -> Iterator[Statement]:
    """One sentence: the class that keeps the largest share of its accuracy without its object.

    It is about the mean over models, or the only model, by the protocol "open". Several classes may share the first
    place. There is no sentence if no class has a kept share; if models are at the level of chance on clean images, it
    states that nothing is known. The kept share comes with a warning if accuracy under the change did not follow the
    true reliance of networks in a test on rendered images.

    classes, accuracy: the frames of the tables `reliance_classes` and `reliance_accuracy`.

    >>> line = {"dataset": "zoo", "model": "vit", "protocol": "open", "label": "fish", "kept": 0.6, "kept_low": 0.5}
    >>> lines = [line | {"kept_high": 0.7, "rank": 1}, line | {"label": "car", "kept": 0.1, "rank": 2}]
    >>> clean = line | {"condition": "clean"}
    >>> [statement] = classes_statements(pd.DataFrame(lines).assign(trust=None), pd.DataFrame([clean]))
    >>> print(statement.sentence)
    Of the classes of zoo, fish leans most on its surroundings: it keeps 60 % [50, 70] of its accuracy when its object \
is gone (vit).
    """
    open_lines = classes[classes[analysis.ALLOWED_CLASSES] == "open"].dropna(subset=KEPT_SHARE)
    if open_lines.empty:
        return

    ordered = open_lines.sort_values(KEPT_SHARE, ascending=False, kind="stable")
    leading_model = analysis.MEAN_MODEL if analysis.MEAN_MODEL in set(ordered[MODEL]) else ordered[MODEL].iloc[0]
    ranked = ordered[ordered[MODEL] == leading_model].sort_values(analysis.CLASS_RANK, kind="stable")
    best = small.best_of(ranked, KEPT_SHARE)  # several classes if they are equal
    line = small.shared_line(best, KEPT_SHARE)
    chart = small.dots(ranked, LABEL, KEPT_SHARE, (LABEL, MODEL, *interval_columns(KEPT_SHARE)))

    dataset = line[DATASET]
    clean = accuracy[(accuracy[analysis.ALLOWED_CLASSES] == "open") & (accuracy[analysis.CONDITION] == analysis.CLEAN)]
    if all_at_chance(clean):
        yield Statement(f"Not known: models are at the level of chance on clean images of {dataset}.", chart)
        return

    details = "; ".join([str(leading_model), *_doubts(line)])
    kept_share = f"{format_with_interval(line, KEPT_SHARE)} of its accuracy when its object is gone ({details})"
    names = small.listed(best[LABEL].tolist())
    if len(ranked) == 1:  # other classes had too few clean images right
        sentence = f"Of {dataset}, only {names} could be tested: it keeps {kept_share}."
    elif len(best) == len(ranked):
        sentence = f"None more than the others: each class of {dataset} keeps {kept_share}."
    elif len(best) == 1:
        sentence = f"Of the classes of {dataset}, {names} leans most on its surroundings: it keeps {kept_share}."
    else:
        sentence = f"Of the classes of {dataset}, {names} lean most on their surroundings: each keeps {kept_share}."
    yield Statement(sentence, chart)


def stability_statements(stability: pd.DataFrame) -> Iterator[Statement]:
    """One sentence: the two models that agree least about which classes lean on their surroundings.

    Several pairs may share the lowest correlation; then the words depend on whether all, some or none of their
    intervals are above 0. No sentence if no pair has a correlation.

    stability: the frame of the table `class_stability`, with a line for each pair of models.
    """
    known_pairs = stability.dropna(subset=analysis.RHO)
    if known_pairs.empty:
        return

    lowest = small.best_of(known_pairs, analysis.RHO, largest=False)  # several pairs if they are equal
    line = small.shared_line(lowest, analysis.RHO)
    pair = f"{line[MODEL]} and {line[analysis.OTHER_MODEL]}"
    if len(lowest) == len(known_pairs) > 1:  # all pairs are equal
        pair = small.all_of(len(known_pairs), "pairs of models")
    elif len(lowest) > 1:
        pair = f"{len(lowest)} of {len(known_pairs)} pairs of models, {pair} among them,"

    correlation = format_with_interval(line, analysis.RHO)
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

    subject = "on which classes keep most of their accuracy"
    yield Statement(f"{line[DATASET]}: {pair} {agree} {subject}: correlation {correlation}.")


def shape_statements(shapes: pd.DataFrame) -> Iterator[Statement]:
    """A sentence for each model: its share of decisions for shape among those for shape or texture; largest first.

    Models that share the largest share have one sentence together. There is no sentence for models whose decisions for
    texture are not known.

    shapes: the frame of the table `shape_bias`, with a line for each model or person.

    >>> line = {"dataset": "zoo", "model": "vit", "shape_bias": 0.6, "shape_bias_low": 0.55, "shape_bias_high": 0.7}
    >>> [statement] = shape_statements(pd.DataFrame([line | {"decisions": 90}]))
    >>> print(statement.sentence)
    Between shape and texture of images of zoo, vit decides for shape in 60 % [55, 70] of 90 cases.
    """
    decided = shapes.dropna(subset=SHAPE_BIAS).sort_values(SHAPE_BIAS, ascending=False, kind="stable")
    if decided.empty:
        return

    best = small.best_of(decided, SHAPE_BIAS)  # several models if they are equal
    yield Statement(_decisions(best), small.dots(decided, MODEL, SHAPE_BIAS, (MODEL, *interval_columns(SHAPE_BIAS))))

    other_models = decided.drop(best.index)
    for position in range(len(other_models)):
        yield Statement(_decisions(other_models.iloc[[position]]))


def _decisions(models: pd.DataFrame) -> str:
    """The sentence on how often these models decide for shape.

    models: lines of models with equal shape bias. An interval that contains 0.5 shows no significant preference.
    """
    line = small.shared_line(models, SHAPE_BIAS)
    verb = "decides" if len(models) == 1 else "each decide"
    # models of equal shape bias may have made different numbers of decisions
    decisions = small.listed([f"{number:,.0f}" for number in models[analysis.DECISIONS].unique()])
    cases = f"{format_with_interval(line, SHAPE_BIAS)} of {decisions} case{'' if decisions == '1' else 's'}"
    if line[SHAPE_BIAS.low] <= 0.5 <= line[SHAPE_BIAS.high]:
        cases += ", no significant preference"

    names = small.listed(models[MODEL].tolist())
    return f"Between shape and texture of images of {line[DATASET]}, {names} {verb} for shape in {cases}."
