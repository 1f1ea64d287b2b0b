"""Images and their objects: figures and statements of analysis=object_statistics and spurious_rank."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.reliance import object_statistics as objects
from fca.studies.reliance.columns import GEOMETRY
from fca.studies.reliance.object_statistics import IOU, KIND, QUANTITY, RAW, REMOVED, SHARE
from fca.studies.reliance.spurious_rank import ALL_CLASSES, BOTTOM, END, GAP, RANK, SUBJECT, TOP
from fca.tables.table import DATASET, LABEL, MEASURE, MODEL, PLACE, SPLIT
from fca.types import Column, Table, interval_columns

PICTURE_HEIGHT = kinds.SIDE + 32  # pixels from a row of pictures to the next
RANKED_PICTURE_HEIGHT = kinds.SIDE + 36  # the same for pictures with their rank
PICTURE_WIDTH = kinds.SIDE + kinds.GAP
MAX_PANELS = 8  # of pictures
MEASURED = Column("measured", float, ".1%", "")
MEASURE_NAMES = {
    objects.RAW: "size in the stored image",
    objects.SIZE: "size in the input",
    objects.RETAINED: "left by the crop",
    objects.CENTRE: "off centre",
}
QUANTITY_NAMES = {**MEASURE_NAMES, objects.AGREEMENT: "agreement of people"}
PICTURES = {  # kind -> question, caption
    "object": ("What do the objects look like?", "The first image of each class at input size, its object tinted."),
    "average": (
        "Where are the objects on average?",
        "The darker a place, the larger the share of the images with the object there.",
    ),
    "lowest": (
        "Where do networks look instead?",
        "The heat is GradCAM of the image's class; the outline is the object.",
    ),
}
AREA = RAW.with_format(".0%", "share of the image that is object")
LEAD = GAP.with_format("+.0%", "lead of images with strong cues")


def classes_figure(statistics: Table) -> alt.FacetChart:
    """How large, whole and central the objects of each class are: a panel for each measure and data set, a row a class.

    The measures (MEASURE_NAMES) are the object's share of the stored image and of the input, the share of the object
    that the crop leaves, and its distance from the centre. Classes come with the smallest objects first.

    statistics: the table `object_statistics`, with a line for each class.
    """
    # for each measure the lines of its panel: MEASURED has the value, `size` the share of the stored image
    by_measure = [_lines_of_measure(statistics.frame, column) for column in MEASURE_NAMES]
    frame = pd.concat(by_measure, ignore_index=True)
    is_class = frame[LABEL] != objects.ALL_CLASSES
    frame = frame[frame[MEASURED].notna() & is_class].sort_values(DATASET, kind="stable")
    frame["panel"] = style.panels(frame, DATASET, "measure")

    # one class has a line for each measure, all with the same size: `min` picks this size to sort by
    rows = kinds.category(alt.Y, LABEL, alt.EncodingSortField("size", op="min"), grid=False)
    across = kinds.quantity(alt.X, MEASURED, "", grid=True, domainMin=0, padding=4)
    coloured = kinds.hue(DATASET, frame, legend=style.differs(frame[DATASET]))  # no legend for a single data set
    hover = (DATASET, LABEL, MEASURE, *interval_columns(MEASURED))
    chart = kinds.points_with_intervals(MEASURED, rows, hover, coloured, scale=across)

    geometries = "; ".join(dict.fromkeys(statistics.frame[GEOMETRY]))
    title = style.title(
        "How large, whole and central are the objects of each class?",
        "Each mark is the mean over the images of a class, with its 95 % interval; the smallest objects come first.",
        f"Input: {geometries} (side, side before the crop, filter).",
    )
    figure = style.faceted(chart, frame, title, (DATASET,), columns=len(MEASURE_NAMES), row=18)
    return figure.resolve_scale(x="independent", y="independent")


def _lines_of_measure(statistics: pd.DataFrame, column: Column) -> pd.DataFrame:
    """Lines of one panel: each class's value of one measure, with its interval, under the names that all panels share.

    The columns MEASURED, MEASURED.low and MEASURED.high hold the value and its interval, `measure` the name of the
    measure, and `size` the object's share of the stored image, by which every panel sorts its classes.

    column: the measure, a column of the table `object_statistics`.
    """
    lines = statistics[[DATASET, LABEL]].assign(measure=MEASURE_NAMES[column], size=statistics[RAW])
    for drawn_column, stored_column in zip(interval_columns(MEASURED), interval_columns(column), strict=True):
        lines[drawn_column] = statistics[stored_column]
    return lines


def distribution_figure(distribution: Table) -> alt.FacetChart:
    """Histograms over images: object sizes, the shares of objects that the crop leaves, how far people's masks agree.

    There is a panel for each quantity and data set.

    distribution: the table `object_distribution`, with a line for each bin; column QUANTITY names what was measured.
    """
    quantity_order = list(QUANTITY_NAMES)
    frame = distribution.frame.sort_values(
        QUANTITY, key=lambda quantities: quantities.map(quantity_order.index), kind="stable"
    )
    bin_end = frame[objects.BIN_START] + objects.BIN_WIDTH
    frame = frame.assign(what=frame[QUANTITY].map(QUANTITY_NAMES), to=bin_end)
    frame["panel"] = style.panels(frame, "what", DATASET)

    title = style.title(
        "How are sizes, shares left by the crop and agreement distributed?",
        f"Each bar is the share of the images in a bin of {objects.BIN_WIDTH:.0%}.",
    )
    across = kinds.quantity(alt.X, objects.BIN_START.with_format(".0%"), "", domain=[0, 1], padding=0)
    up = kinds.quantity(alt.Y, SHARE, zero=True, padding=0)
    chart = kinds.bars(across, up, distribution.columns, x2="to:Q", y2=alt.datum(0))
    n_datasets = frame[DATASET].nunique()
    columns = n_datasets if 1 < n_datasets < 5 else 2  # a row of panels for each quantity, if all data sets fit in it
    figure = style.faceted(chart, frame, title, (DATASET,), height=120, columns=columns)
    return figure.resolve_scale(y="independent")


def pictures_figure(kind: str, pictures: Table) -> alt.FacetChart:
    """A grid of the pictures of one kind: a panel for each data set, or for each data set and model.

    Below a picture stand its class and, for a kind that has one, the overlap (IoU) of saliency and object.

    kind:     a key of PICTURES; the pictures of "lowest" overlap depend on the model, the others do not.
    pictures: the table `object_pictures`; columns `row` and `column` give a picture's place in the grid. Raises
              NothingToDraw if it has no picture of this kind.
    """
    frame = pictures.frame[pictures.frame[KIND] == kind].dropna(subset="thumbnail")
    panel_columns = [DATASET, MODEL] if kind == "lowest" else [DATASET]
    frame = frame.assign(panel=style.panels(frame, *panel_columns))

    question, caption = PICTURES[kind]
    panels = frame["panel"].drop_duplicates().tolist()
    if len(panels) > MAX_PANELS:
        caption += f" The first {MAX_PANELS} of {len(panels)}; all are in the table."
    frame = frame[frame["panel"].isin(panels[:MAX_PANELS])].reset_index(drop=True)

    frame["below"] = frame[IOU].map("IoU {:.2f}".format).where(frame[IOU].notna(), "")
    hover = [column for column in pictures.columns if column not in PLACE]  # not thumbnail, row and column
    chart = kinds.pictures(frame, hover, LABEL, "below")
    n_rows = int(frame["row"].max()) + 1  # rows and columns of the grid count from 0
    n_columns = int(frame["column"].max()) + 1
    title = style.title(question, caption)
    figure = style.faceted(chart, frame, title, (DATASET,), height=n_rows * PICTURE_HEIGHT, columns=1)
    figure.usermeta = kinds.FIXED  # pictures have a fixed size, so that panels are not stretched to the page
    figure.spec.width = n_columns * PICTURE_WIDTH
    return figure


def size_statements(statistics: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on a data set: the mean share of an image that its object takes, and how many objects the crop removes.

    The small figure beside the first shows the mean over all classes, the two classes with the smallest objects, and
    that with the largest. There is no sentence if no object was measured.

    statistics: the frame of the table `object_statistics`, with a line for each class and one for all classes.

    >>> line = {"dataset": "zoo", "mask_area_raw": 0.3, "mask_area_raw_low": 0.2, "mask_area_raw_high": 0.4}
    >>> line |= {"removed": 0.021, "removed_low": 0.004, "removed_high": 0.109}
    >>> lines = [line | {"label": objects.ALL_CLASSES}, line | {"label": "cat"}]
    >>> for statement in size_statements(pd.DataFrame(lines)): print(statement.sentence)
    Objects take 30 % [20, 40] of an image of zoo.
    The crop removes 2.1 % [0.4, 10.9] of the objects of zoo completely.
    """
    measured = statistics.dropna(subset=AREA)
    all_classes = measured[measured[LABEL] == objects.ALL_CLASSES]
    if all_classes.empty:
        return

    line = all_classes.iloc[0].to_dict()
    classes = measured[measured[LABEL] != objects.ALL_CLASSES].sort_values(AREA, kind="stable")  # smallest first
    extremes = pd.concat([all_classes, classes.head(2), classes.tail(1)]).drop_duplicates(LABEL)
    chart = small.dots(extremes, LABEL, AREA, (LABEL, *interval_columns(AREA)))
    yield Statement(f"Objects take {format_with_interval(line, AREA)} of an image of {line[DATASET]}.", chart)

    if pd.notna(line[REMOVED]):
        removed = f"{format_with_interval(line, REMOVED)} of the objects of {line[DATASET]}"
        yield Statement(f"The crop removes {removed} completely.")


# Images ranked by their cues


def gap_figure(gap: Table) -> alt.FacetChart:
    """Accuracy with strong cues minus accuracy with weak ones, with 95 % intervals: a row a class, a colour a model.

    The images of a class are ranked by features of an encoder that respond to its cues. A file names these features
    (parameter `features` of the table), or they are those that matter most for the class. The k images at the top of a
    ranking have strong cues, the k at its bottom weak ones. The class with the widest mean gap over models comes first;
    the mean over all classes stands last.

    gap: the table `spurious_gap`, with a line for each class and model. Raises NothingToDraw if it has no lines.
    """
    if gap.frame.empty:
        raise style.NothingToDraw("no model predicted the ranked images; next: fca run task=predict")
    frame = gap.frame.assign(panel=style.panels(gap.frame, DATASET, SPLIT))

    mean_gaps = frame[frame[LABEL] != ALL_CLASSES].groupby(LABEL)[GAP].mean()
    classes = mean_gaps.sort_values(ascending=False).index.tolist()
    rows = kinds.category(alt.Y, LABEL, [*classes, ALL_CLASSES], domain=False, labelPadding=12)
    coloured = kinds.hue(SUBJECT, frame, columns=2)
    chart = kinds.points_with_intervals(GAP, rows, gap.columns, coloured, dodge=SUBJECT, line=kinds.ZERO)

    cues = "annotated features" if gap.parameters["features"] else "the features that matter most for the class"
    title = style.title(
        gap.question,
        f"The cues are {cues}, which may be on the object.",
        "Each mark is the accuracy on the top k images minus that on the bottom k, with its 95 % interval.",
        "A model whose own features rank the images (the encoder) has a gap by construction: it predicts from them.",
    )
    height = (18 + 12 * frame[SUBJECT].nunique()) * (len(classes) + 1)  # one more row: the mean over classes
    return style.faceted(chart, frame, title, (DATASET, SUBJECT), height=height, columns=1)


def ends_figure(pictures: Table) -> alt.FacetChart:
    """Pictures of the classes with the widest gaps: a panel a class, strong cues above, weak cues below.

    Images of a class are ranked by the strength of their cues; the pictures are from both ends of the ranking. The
    heading of a panel has the accuracies at either end (columns TOP and BOTTOM); below each picture stands its rank.

    pictures: the table `spurious_pictures`, with a line for each picture. Column END is "top" (strong cues) or
              "bottom". Raises NothingToDraw without any picture.
    """
    frame = pictures.frame.dropna(subset="thumbnail")
    if frame.empty:
        raise style.NothingToDraw("no pictures: the images are no longer at hand")

    accuracies = [_accuracies_of_ends(top, bottom) for top, bottom in zip(frame[TOP], frame[BOTTOM], strict=True)]
    frame = frame.assign(
        right=accuracies,
        row=(frame[END] == "bottom").astype(int),  # 0, the upper row: the strongest cues
        column=frame.groupby([DATASET, LABEL, END]).cumcount(),
        place=frame[RANK].map("rank {:g}".format),
        words=frame[END].map(END.choices.get),  # the end in words
    )
    frame["panel"] = style.panels(frame, DATASET, LABEL, "right")

    title = style.title(
        pictures.question,
        "The upper row has the strongest cues, the lower row the weakest, with the accuracy on the top and bottom k.",
    )
    hover = [column for column in pictures.columns if column != "thumbnail"]
    chart = kinds.pictures(frame, hover, "place", "words")
    n_columns = int(frame["column"].max()) + 1
    figure = style.faceted(chart, frame, title, (DATASET,), height=2 * RANKED_PICTURE_HEIGHT, columns=2)
    figure.usermeta = kinds.FIXED  # pictures have a fixed size, so that panels are not stretched to the page
    figure.spec.width = n_columns * PICTURE_WIDTH
    return figure


def _accuracies_of_ends(top: float, bottom: float) -> str:
    """Words for a heading: the accuracies on the images with the strongest and the weakest cues of a class.

    An empty text if no model predicted these images, so that the accuracies are NaN.
    """
    if pd.isna(top):
        return ""
    return f"{top:.0%} right above, {bottom:.0%} below"


def gap_statements(gap: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on how much more accurate each model is where cues are strong; the largest significant gain first.

    The gain is column `gap` (here LEAD): accuracy on images with strong cues minus accuracy on those with weak cues,
    mean over classes. If no gain is significant (its interval above 0), the first sentence states that, with the
    largest gain. Encoders, whose own features rank the images, are left out: they gain by construction. There is no
    sentence if encoders are the only models.

    gap: the frame of the table `spurious_gap`, with a line for each class and model, and one for all classes.

    >>> line = {"dataset": "zoo", "label": ALL_CLASSES, "subject": "net"}
    >>> line |= {"gap": 0.12, "gap_low": 0.03, "gap_high": 0.21}
    >>> [statement] = gap_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    Where the cues of a class of zoo are strong, net is +12 points [+3, +21] more accurate than where they are weak.
    """
    means = _mean_gaps(gap)
    models = means[~_is_encoder(means)].sort_values(LEAD, ascending=False, kind="stable")
    if models.empty:
        return

    significant = models[models[LEAD.low] > 0]
    best = small.best_of(significant if len(significant) else models, LEAD)  # several models if they are equal
    if significant.empty and best[LEAD.low].notna().all():  # without an interval the significance is not known
        sentence = _none_gains(best, len(models))
    else:
        sentence = f"{_gain(best)}."
    yield Statement(sentence, small.dots(models, SUBJECT, LEAD, (SUBJECT, *interval_columns(LEAD)), line=0.0))

    other_models = models.drop(best.index)
    for position in range(len(other_models)):
        yield Statement(f"{_gain(other_models.iloc[[position]])}.")  # a frame of one line


def encoder_statements(gap: pd.DataFrame) -> Iterator[Statement]:
    """A sentence on each encoder (a model whose own features rank the images): how much it gains from strong cues.

    Such a gain is no finding about the model: the ranking follows the features from which it predicts.

    gap: the frame of the table `spurious_gap`.

    >>> line = {"dataset": "zoo", "label": ALL_CLASSES, "gap": 0.12, "gap_low": 0.03, "gap_high": 0.21}
    >>> [statement] = encoder_statements(pd.DataFrame([line | {"subject": "net, the encoder"}]))
    >>> print(statement.sentence)
    Where the cues of a class of zoo are strong, net, the encoder is +12 points [+3, +21] more accurate than where \
they are weak, by construction: its own features rank the images.
    """
    means = _mean_gaps(gap)
    encoders = means[_is_encoder(means)]
    for position in range(len(encoders)):
        yield Statement(f"{_gain(encoders.iloc[[position]])}, by construction: its own features rank the images.")


def _mean_gaps(gap: pd.DataFrame) -> pd.DataFrame:
    """The line of each model that has its mean gap over all classes, if this is known."""
    return gap[gap[LABEL] == ALL_CLASSES].dropna(subset=LEAD)


def _is_encoder(means: pd.DataFrame) -> pd.Series:
    """For each line whether its model is the encoder, whose features rank the images; the analysis marks its name."""
    return means[SUBJECT].str.contains("the encoder")


def _none_gains(best: pd.DataFrame, n_models: int) -> str:
    """The sentence that no model is significantly more accurate where cues are strong, with the largest gain.

    best:     the lines of the models with the largest gain.
    n_models: how many models were tested.
    """
    line = small.shared_line(best, LEAD)
    nobody = "the model is not" if n_models == 1 else f"none of {n_models} models is"
    gain = f"{small.listed(best[SUBJECT].tolist())} by {format_with_interval(line, LEAD)}"
    return f"Where {_strong_cues(line)}, {nobody} significantly more accurate: {gain}."


def _gain(models: pd.DataFrame) -> str:
    """How much more accurate these models are where cues are strong, as a sentence without its full stop.

    A gain is significant if its interval is above 0; without an interval this is not known.

    models: lines of models with equal gains (column LEAD). A gain that is not significant comes with one model only.
    """
    line = small.shared_line(models, LEAD)
    names = small.listed(models[SUBJECT].tolist())
    points = format_with_interval(line, LEAD)
    if (models[LEAD.low] > 0).all():
        verb = "is" if len(models) == 1 else "are each"
        return f"Where {_strong_cues(line)}, {names} {verb} {points} more accurate than where they are weak"
    if models[LEAD.low].isna().any():
        verb = "gains" if len(models) == 1 else "each gain"
        return f"Not known without an interval: where {_strong_cues(line)}, {names} {verb} {points}"
    return f"Where {_strong_cues(line)}, {names} is not significantly more accurate: by {points}"


def _strong_cues(line: Mapping[Hashable, object]) -> str:
    """A clause about the data set of this line, to follow "where"."""
    return f"the cues of a class of {line[DATASET]} are strong"
