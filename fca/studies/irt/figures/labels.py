"""Labels that look wrong, and pictures: figures and statements of analysis=label_errors and analysis=gallery."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.irt import label_errors as errors
from fca.studies.irt.fits import ITEM_TOP1, MODAL_WRONG_SHARE
from fca.studies.irt.gallery import KIND, PREDICTED
from fca.studies.irt.label_errors import (
    AUC,
    AUC_REVIEWED,
    OTHER_CLASS,
    PRECISION,
    RECALL,
    RECALLS,
    RULE,
    SHARE_FLAGGED,
    SUSPECT_RANK,
    VERDICT,
)
from fca.tables.table import DATASET, IMAGE_ID, LABEL, MEASURE, VALUE
from fca.types import Table, interval_columns

PAPER_RULES = "low_discrimination_feasibility", errors.AS_PAPER  # the rule of the paper, by our fit and as it fitted
CLAIMED_RECALL = (0.3, 0.4)  # of the errors, by the paper; it does not state which share of all images is flagged
RECALL_BY_CHANCE = 0.25  # of the wrong labels, in a quarter of the images
SUSPECTS_SHOWN = 20  # suspects of each data set in the figure
PICTURE_STEP = kinds.SIDE + 52  # pixels from the top of one picture to the next, with three lines of text between
LINE_WIDTH = 22  # characters below a picture
_NO_VERDICTS = "no verdicts on these images were given (analysis.verdicts); suspects are ranked all the same"
_NO_LABEL_IN_DOUBT = "for no image do more models predict one other class than its label"
_MEASURES = {AUC: "AUC among all", AUC_REVIEWED: "AUC among reviewed", PRECISION: "precision of the first k"}
FOUND_IN_QUARTER = RECALLS[-1].with_format(".0%", "wrong labels found")
RANKING_MEASURE = MEASURE.with_choices({words: words for words in _MEASURES.values()})
RANKING_VALUE = VALUE.with_format(".3f", "AUC, precision")


def rules_figure(rules: Table) -> alt.FacetChart:
    """Draw how well each rule finds wrong labels: its AUC (all images; reviewed images) and precision of the first k.

    One row per rule, with 95 % intervals. Precision is among the k most suspect images.
    rules: table label_error_rules. Raises NothingToDraw if it is empty, as it is without people's verdicts on labels.
    """
    # one line per rule and measure
    frames_by_measure = []
    for measure, words in _MEASURES.items():
        value_columns = dict(zip(interval_columns(measure), interval_columns(RANKING_VALUE), strict=True))
        frames_by_measure.append(rules.frame.rename(columns=value_columns).assign(measure=words))
    frame = pd.concat(frames_by_measure, ignore_index=True).dropna(subset=RANKING_VALUE)
    frame = _with_panel_or_nothing_to_draw(frame)  # a panel for each data set
    frame = frame.assign(rule=frame[RULE].map(dict(RULE.choices)))

    rows = kinds.category(alt.Y, RULE, list(RULE.choices.values()), domain=False, labelPadding=12)
    hover_columns = (
        DATASET,
        RULE,
        RANKING_MEASURE,
        *interval_columns(RANKING_VALUE),
        *RECALLS,
        *errors.LABEL_ERROR_RULES.columns[-5:],  # precision by chance, and the counts of labels and items
    )
    value_axis = kinds.quantity(alt.X, RANKING_VALUE, domain=[0, 1], padding=0)
    colours = kinds.hue(RANKING_MEASURE, frame, shapes=("circle", "square", "diamond"))
    chart = kinds.points_with_intervals(
        RANKING_VALUE, rows, hover_columns, colours, dodge=RANKING_MEASURE, scale=value_axis, size=70
    )
    title = style.title(
        "Which rule finds wrong labels?",
        "Bars are 95 % intervals. AUC is the chance that an image with a wrong label is more suspect than "
        "another; among",  # the subtitle goes on in the next line
        "all, images that nobody reviewed count as right. k is the number of known errors, unless set otherwise.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), height=44 * frame[RULE].nunique())


def curve_figure(curve: Table) -> alt.FacetChart:
    """Draw the share of wrong labels found against the share of images flagged, one line per rule.

    Images are flagged from the most suspect on. A dashed diagonal is chance; a horizontal band is the share that the
    paper (Sharma et al. 2023) claims to find.
    curve: table label_error_curve. Raises NothingToDraw if it is empty, as it is without people's verdicts on labels.
    """
    frame = _with_panel_or_nothing_to_draw(curve.frame)
    colours = kinds.hue(RULE, frame, shapes=None, columns=3)

    # band and diagonal have data of their own: with the table's data they would be drawn once per line of the table
    claim = alt.InlineData(values=[{"recall": CLAIMED_RECALL[0], "to": CLAIMED_RECALL[1]}])
    chance = alt.InlineData(values=[{"share_flagged": share, "recall": share} for share in (0, 1)])
    diagonal: Any = alt.Chart(chance).mark_line(strokeDash=[4, 3], color=kinds.GREY, strokeWidth=1)
    lines: Any = alt.Chart().mark_line(strokeWidth=2)
    lines = lines.encode(
        x=kinds.quantity(alt.X, SHARE_FLAGGED, padding=0),
        y=kinds.quantity(alt.Y, RECALL, padding=0),
        color=colours.colour(),
        opacity=colours.opacity(),  # lower for rules that are not picked in the legend
        tooltip=kinds.tooltips(curve.columns),
    )
    chart = kinds.layers(
        alt.Chart(claim).mark_rect(opacity=0.15, color=kinds.GREY).encode(y=f"{RECALL}:Q", y2="to:Q"),
        diagonal.encode(x=f"{SHARE_FLAGGED}:Q", y=f"{RECALL}:Q"),
        lines.add_params(colours.picked),  # a click in the legend picks a rule
    )

    title = style.title(
        "How many wrong labels does each rule find?",
        "Images are flagged from the most suspect on. The dashed line is chance; the band is the paper's "
        "claim of 30 to 40 %",
        "for low discrimination and feasibility, which does not state how many images are flagged.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), height=300)


def _with_panel_or_nothing_to_draw(frame: pd.DataFrame) -> pd.DataFrame:
    """The lines with a column `panel`, the heading of the data set's panel.

    Raises NothingToDraw without lines: there are none if no verdicts were given.
    """
    if frame.empty:
        raise style.NothingToDraw(_NO_VERDICTS)
    return frame.assign(panel=style.panels(frame, DATASET))


def suspects_figure(suspects: Table) -> alt.FacetChart:
    """Draw, for the most suspect images, which share of the models predicts the label, and which share another class.

    An image is drawn only if more models predict one other class than its label.
    suspects: table label_suspects; its parameters name the data sets without suspects, with the reason. Raises
    NothingToDraw, with these reasons, if no data set has suspects, and if no image is to be drawn.
    """
    reasons = suspects.parameters.get(errors.NOT_LISTED, ())
    frame = suspects.frame[suspects.frame[SUSPECT_RANK] <= SUSPECTS_SHOWN]
    if frame.empty and reasons:  # no data set is listed
        raise style.NothingToDraw("; ".join(reasons))
    frame = frame[frame[MODAL_WRONG_SHARE] > frame[ITEM_TOP1]].reset_index(drop=True)
    if frame.empty:
        raise style.NothingToDraw(_NO_LABEL_IN_DOUBT)

    label = frame[LABEL].fillna("?")  # a file of responses may have no labels
    other_class = frame[OTHER_CLASS].fillna("?")
    frame = frame.assign(
        panel=style.panels(frame, DATASET),
        verdict=frame[VERDICT].astype(object).fillna("none"),
        named=frame[SUSPECT_RANK].astype(str) + ". " + label + " → " + other_class,
    )
    rows = kinds.category(
        alt.Y, "named", alt.SortField(SUSPECT_RANK), domain=False, grid=False, labelPadding=12, labelLimit=420
    )
    # colours of labels that people judged wrong, that they judged right, and that nobody reviewed
    colours = kinds.hue(VERDICT, frame, ("#b0568f", "#0072b2", kinds.GREY), shapes=None)
    share_axis = kinds.quantity(alt.X, MODAL_WRONG_SHARE, "share of models", domain=[0, 1], padding=0)
    base: Any = alt.Chart().encode(y=rows, tooltip=kinds.tooltips(suspects.columns))
    # a line between two marks: open, the share for the label; filled, the share for the other class
    chart = kinds.layers(
        base.mark_rule(strokeWidth=1, opacity=0.5).encode(x=f"{ITEM_TOP1}:Q", x2=f"{MODAL_WRONG_SHARE}:Q"),
        base.mark_point(size=40, color=kinds.GREY, opacity=1).encode(x=f"{ITEM_TOP1}:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x=share_axis, color=colours.colour()),
    )
    title = style.title(
        "Which labels look wrong?",
        f"Each row is one of the {SUSPECTS_SHOWN} most suspect images: its label → the class that more models predict.",
        "Filled marks are the share of models that predict the other class, open marks of those that "
        "predict the label.",
        *(f"{reason}." for reason in reasons),
    )
    n_columns = min(2, frame["panel"].nunique())
    return style.faceted(chart, frame, title, filters=(DATASET,), columns=n_columns, row=22)  # 22 pixels an image


def gallery_figure(gallery: Table) -> alt.FacetChart:
    """Draw a grid of pictures for each kind (hardest, easiest, suspect), with label and predicted classes below each.

    gallery: table gallery. Raises NothingToDraw if it is empty, and, with the command that makes pictures, where no
    image has one.
    """
    frame = gallery.frame.dropna(subset="thumbnail")  # images with a picture
    if frame.empty and len(gallery.frame):  # there are images, but without pictures
        raise style.NothingToDraw(_missing_pictures(gallery.frame))

    frame = frame.assign(kind_words=frame[KIND].map(dict(KIND.choices)))
    frame["panel"] = style.panels(frame, DATASET, "kind_words")  # raises NothingToDraw for an empty frame
    frame[[LABEL, PREDICTED]] = frame[[LABEL, PREDICTED]].fillna("")  # a file of responses may have only right or wrong
    frame["lines"] = [_in_two_lines(words) for words in frame[PREDICTED]]

    hover_columns = [column for column in gallery.columns if column not in ("thumbnail", "row", "column")]
    chart = kinds.pictures(frame, hover_columns, LABEL, "lines")
    chart.layer[2].mark.lineBreak = "\n"  # layer 2 is the text of predicted classes, in two lines
    title = style.title(
        "Which images are hard, which easy, and which labels look wrong?",
        "Below each picture are its label and the predicted classes with the number of models; hover for more.",
    )
    n_rows = int(frame["row"].max()) + 1
    n_columns = int(frame["column"].max()) + 1
    figure = style.faceted(chart, frame, title, filters=(DATASET,), height=n_rows * PICTURE_STEP, columns=1)
    figure.usermeta = kinds.FIXED  # panels do not stretch to the width of the page, as pictures have a fixed size
    figure.spec.width = n_columns * (kinds.SIDE + kinds.GAP)
    return figure


def _in_two_lines(predicted: str | None) -> str:
    """The predicted classes broken into two lines of text below a picture, of about 22 characters each.

    A longer text ends in dots; the tooltip has it whole.

    >>> _in_two_lines("snowman (10), lamp (4), tree (2)")
    'snowman (10), lamp (4),\\ntree (2)'
    """
    kept_together = (predicted or "").replace(" (", "\xa0(")  # no line ends between a class and its number
    lines = [line.replace("\xa0", " ") for line in textwrap.wrap(kept_together, LINE_WIDTH + 1)]
    if len(lines) > 2:
        lines = [lines[0], f"{lines[1]} ..."]
    return "\n".join(lines)


def _missing_pictures(frame: pd.DataFrame) -> str:
    """A clause that names the data sets with missing pictures, and the commands that make them."""
    datasets = frame.loc[frame["thumbnail"].isna(), DATASET].drop_duplicates()
    runs = "; ".join(f"fca run task=describe dataset={name}" for name in datasets)
    return (
        f"no pictures of {', '.join(datasets)}; next: {runs} (for responses from files, the data set of their images)"
    )


def rules_statements(rules: pd.DataFrame, curve: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on how many wrong labels are among the quarter of images that a rule suspects most.

    The first two sentences are on the rule with the highest AUC: what it finds, and what chance would find. The others
    are on the rule of the paper (Sharma et al. 2023), by our fit and by the paper's. There is no sentence without
    people's verdicts on labels.
    rules, curve: the lines of one data set in tables label_error_rules and label_error_curve.

    >>> line = {"dataset": "zoo", "auc_low": 0.8, "auc_high": 0.95, "errors": 54}
    >>> best = line | {"rule": "low_top1", "auc": 0.9, "recall_25": 0.75, "recall_25_low": 0.6, "recall_25_high": 0.85}
    >>> rules = pd.DataFrame([best, line | {"rule": PAPER_RULES[0], "auc": 0.85, "recall_25": 0.5}])
    >>> curve = pd.DataFrame([{"dataset": "zoo", "rule": "low_top1", "share_flagged": 0.25, "recall": 0.75}])
    >>> for statement in rules_statements(rules, curve): print(statement.sentence)
    Reviewing the 25 % most suspect images of zoo finds 75 % [60, 85] of the 54 known wrong labels.
    zoo: these images are ranked by few models right (AUC 0.900 [0.800, 0.950]); by chance 25 % are found.
    zoo: ranked by our fit: low discrimination, feasibility (AUC 0.850 [0.800, 0.950]), they hold 50 %; the paper \
claims 30 to 40 %, of no stated share.
    """
    ranked = rules.dropna(subset=FOUND_IN_QUARTER).sort_values(AUC, ascending=False, kind="stable")
    if ranked.empty:
        return

    best, *next_rules = ranked.to_dict("records")
    curve_of_best = curve[curve[RULE] == best[RULE]].reset_index(drop=True)
    chart = small.lines(curve_of_best, x=SHARE_FLAGGED, y=RECALL, series=RULE, hover=(SHARE_FLAGGED, RECALL))
    yield Statement(f"Reviewing the 25 % most suspect images of {best[DATASET]} finds {_found_by_best(best)}.", chart)

    by_chance = f"by chance {100 * RECALL_BY_CHANCE:.0f} % are found"
    yield Statement(f"{best[DATASET]}: these images are ranked by {_rule_with_auc(best)}; {by_chance}.")

    # a rule of the paper that is itself the best is left out here: the sentences above state what it finds
    claim = f"the paper claims {100 * CLAIMED_RECALL[0]:.0f} to {100 * CLAIMED_RECALL[1]:.0f} %, of no stated share"
    for line in next_rules:
        if line[RULE] in PAPER_RULES:
            share_found = f"they hold {format_with_interval(line, FOUND_IN_QUARTER)}"
            yield Statement(f"{line[DATASET]}: ranked by {_rule_with_auc(line)}, {share_found}; {claim}.")


def _found_by_best(line: Mapping[Any, Any]) -> str:
    """Words on the share of the known wrong labels that a rule finds in the most suspect quarter of the images.

    The words add that the share is not significantly more than chance finds, if its interval reaches down to that.
    line: of the rule, in table label_error_rules.
    """
    n_errors = line["errors"]
    wrong_labels = "1 known wrong label" if n_errors == 1 else f"{n_errors:.0f} known wrong labels"
    share = f"{format_with_interval(line, FOUND_IN_QUARTER)} of the {wrong_labels}"
    if line.get(FOUND_IN_QUARTER.low, 1.0) <= RECALL_BY_CHANCE:  # without an interval, chance is not mentioned
        share += f", not significantly more than the {100 * RECALL_BY_CHANCE:.0f} % that chance finds"
    return share


def _rule_with_auc(line: Mapping[Any, Any]) -> str:
    """A rule in words, with its AUC and interval."""
    return f"{RULE.choices[line[RULE]]} (AUC {format_with_interval(line, AUC)})"


def gallery_statements(gallery: pd.DataFrame) -> Iterator[Statement]:
    """Sentences on the hardest image and the label that looks most wrong, and on how to make missing pictures.

    There is no sentence without a hardest image.
    gallery: the frame of table gallery.

    >>> hard = {"dataset": "zoo", "kind": "hardest", "rank": 1, "image_id": "7.png", "thumbnail": "data:,"}
    >>> hard |= {"label": "cat", "predicted": "dog (9)", "top1": 0.0, "modal_wrong_share": 0.9}
    >>> suspect = hard | {"kind": "suspect", "image_id": "3.png"}
    >>> for suspects in ([suspect], [hard | {"kind": "suspect"}], [suspect, suspect | {"image_id": "4.png"}]):
    ...     [statement] = gallery_statements(pd.DataFrame([hard, *suspects]))
    ...     print(statement.sentence.partition("dog (9). ")[2])
    Look first at the label of 3.png: it is cat, the models predict dog (9).
    Its label is also the most suspect.
    2 labels are equally suspect, among them that of 3.png: it is cat, the models predict dog (9).
    """
    hardest, suspects = (_images_of_kind(gallery, kind) for kind in ("hardest", "suspect"))
    if hardest.empty:
        return

    first = hardest.iloc[0].to_dict()
    sentence = (
        f"The hardest image of {first[DATASET]} is {first[IMAGE_ID]}: its label is {_label_and_predictions(first)}."
    )
    if len(suspects):
        sentence += f" {_most_suspect(suspects, first[IMAGE_ID])}."
    yield Statement(sentence, _hardest_images(hardest))

    if gallery["thumbnail"].isna().any():
        yield Statement(f"Gallery: {_missing_pictures(gallery)}.")


def _images_of_kind(gallery: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The lines of one kind, such as "hardest", by rank."""
    return gallery[gallery[KIND] == kind].sort_values("rank", kind="stable")


def _most_suspect(suspects: pd.DataFrame, hardest_image: str) -> str:
    """A clause that names the label to look at first, with what the models predict there.

    suspects: suspect images, the most suspect first.
    hardest_image: id of the hardest image. The sentence before this clause has its label and predictions, so they are
    not repeated if the hardest image is also the most suspect.
    """
    first = suspects.iloc[0].to_dict()
    measures = suspects[[MODAL_WRONG_SHARE, ITEM_TOP1]]
    n_equal = (measures == measures.iloc[0]).all(axis=1).sum()  # images as suspect as the first, including it
    if first[IMAGE_ID] == hardest_image and n_equal == 1:
        return "Its label is also the most suspect"
    if first[IMAGE_ID] == hardest_image:
        return f"Its label is one of {n_equal} that are equally suspect"

    label = f"{first[IMAGE_ID]}: it is {_label_and_predictions(first)}"
    if n_equal > 1:
        return f"{n_equal} labels are equally suspect, among them that of {label}"
    return f"Look first at the label of {label}"


def _label_and_predictions(line: Mapping[Any, Any]) -> str:
    """The label of an image, followed by what the models predict where that is known."""
    predicted = line[PREDICTED]
    return f"{line[LABEL]}" if pd.isna(predicted) else f"{line[LABEL]}, the models predict {predicted}"


def _hardest_images(hardest: pd.DataFrame) -> Any:
    """The small figure of the hardest images: their pictures; without any, dots for the share of right models."""
    pictured = hardest.dropna(subset="thumbnail")
    if len(pictured):
        return small.strip(pictured, LABEL, (IMAGE_ID, LABEL, PREDICTED))
    share_right = ITEM_TOP1.with_format(".0%", "models that are right")
    return small.dots(hardest, IMAGE_ID, share_right, (IMAGE_ID, LABEL, share_right))
