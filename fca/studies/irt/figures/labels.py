"""Labels that look wrong, and pictures: figures and headlines of analysis=label_errors and analysis=gallery."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.irt import label_errors as errors
from fca.studies.irt.fits import ITEM_TOP1, MODAL_WRONG_SHARE
from fca.studies.irt.gallery import GALLERY, KIND, PREDICTED
from fca.studies.irt.label_errors import AUC, AUC_REVIEWED, OTHER_CLASS, PRECISION, RANK, RECALL, RECALLS, RULE, VERDICT
from fca.studies.table import DATASET, LABEL
from fca.types import Column, Table, with_interval

PAPER = "low_discrimination_feasibility", errors.AS_PAPER  # the rule of the paper, by our fit and as it fitted
CLAIM = (0.3, 0.4)  # of the errors, by the paper; it does not state which share of all images is flagged
FIRST = 20  # suspects of each data set in the figure
STEP = kinds.SIDE + 52  # pixels from the top of one picture to the next, with three lines of text between
WIDEST = 22  # characters below a picture
_NO_VERDICTS = "no verdicts on these images were given (analysis.verdicts); suspects are ranked all the same"
_NO_LABEL_IN_DOUBT = "for no image do more models predict one other class than its label"
_MEASURES = {AUC: "AUC among all", AUC_REVIEWED: "AUC among reviewed", PRECISION: "precision of the first k"}
MEASURE = Column("measure", str, "", "measure", {words: words for words in _MEASURES.values()})
VALUE = Column("value", float, ".3f", "AUC, precision")


def rules_figure(rules: Table) -> alt.FacetChart:
    """AUC among all and among reviewed images, and precision of the first k, with intervals, one row a rule."""
    each = []
    for measure, words in _MEASURES.items():
        value = dict(zip(with_interval(measure), with_interval(VALUE), strict=True))
        each.append(rules.frame.rename(columns=value).assign(measure=words))
    frame = _by_rule(pd.concat(each, ignore_index=True).dropna(subset=VALUE))
    frame = frame.assign(rule=frame[RULE].map(dict(RULE.choices)))
    rows = kinds.category(alt.Y, RULE, list(RULE.choices.values()), domain=False, labelPadding=12)
    hover = (DATASET, RULE, MEASURE, *with_interval(VALUE), *RECALLS, *errors.LABEL_ERROR_RULES.columns[-5:])
    across = kinds.quantity(alt.X, VALUE, domain=[0, 1], padding=0)
    coloured = kinds.hue(MEASURE, frame, shapes=("circle", "square", "diamond"))
    chart = kinds.points_with_intervals(VALUE, rows, hover, coloured, dodge=MEASURE, scale=across, size=70)
    title = style.title(
        "Which rule finds wrong labels?",
        "Bars are 95 % intervals. AUC is the chance that an image with a wrong label is more suspect than "
        "another; among",
        "all, images that nobody reviewed count as right. k is the number of known errors, unless set otherwise.",
    )
    return style.faceted(chart, frame, title, (DATASET,), height=44 * frame[RULE].nunique())


def curve_figure(curve: Table) -> alt.FacetChart:
    """Recall against the share of images flagged, one line a rule, beside chance and the paper's claim."""
    frame = _by_rule(curve.frame)
    coloured = kinds.hue(RULE, frame, shapes=None, columns=3)
    claim = alt.InlineData(values=[{"recall": CLAIM[0], "to": CLAIM[1]}])  # once a panel, not once a line
    chance = alt.InlineData(values=[{"share_flagged": share, "recall": share} for share in (0, 1)])
    diagonal: Any = alt.Chart(chance).mark_line(strokeDash=[4, 3], color=kinds.GREY, strokeWidth=1)
    lines: Any = alt.Chart().mark_line(strokeWidth=2)
    lines = lines.encode(
        x=kinds.quantity(alt.X, errors.SHARE_FLAGGED, padding=0),
        y=kinds.quantity(alt.Y, RECALL, padding=0),
        color=coloured.colour(),
        opacity=coloured.opacity(),
        tooltip=kinds.tooltips(curve.columns),
    )
    chart = kinds.layers(
        alt.Chart(claim).mark_rect(opacity=0.15, color=kinds.GREY).encode(y=f"{RECALL}:Q", y2="to:Q"),
        diagonal.encode(x=f"{errors.SHARE_FLAGGED}:Q", y=f"{RECALL}:Q"),
        lines.add_params(coloured.picked),
    )
    title = style.title(
        "How many wrong labels does each rule find?",
        "Images are flagged from the most suspect on. The dashed line is chance; the band is the paper's "
        "claim of 30 to 40 %",
        "for low discrimination and feasibility, which does not state how many images are flagged.",
    )
    return style.faceted(chart, frame, title, (DATASET,), height=300)


def _by_rule(frame: pd.DataFrame) -> pd.DataFrame:
    if frame.empty:
        raise style.NothingToDraw(_NO_VERDICTS)
    return frame.assign(panel=style.panels(frame, DATASET))


def suspects_figure(suspects: Table) -> alt.FacetChart:
    """The first suspects of each data set: the share of models for another class, and for the label."""
    not_listed = suspects.parameters.get(errors.NOT_LISTED, ())
    frame = suspects.frame[suspects.frame[RANK] <= FIRST]
    if frame.empty and not_listed:
        raise style.NothingToDraw("; ".join(not_listed))
    frame = frame[frame[MODAL_WRONG_SHARE] > frame[ITEM_TOP1]].reset_index(drop=True)
    if frame.empty:
        raise style.NothingToDraw(_NO_LABEL_IN_DOUBT)
    frame = frame.assign(panel=style.panels(frame, DATASET), verdict=frame[VERDICT].astype(object).fillna("none"))
    named = frame[RANK].astype(str) + ". " + frame[LABEL].fillna("?") + " → " + frame[OTHER_CLASS].fillna("?")
    rows = kinds.category(
        alt.Y, "named", alt.SortField(RANK), domain=False, grid=False, labelPadding=12, labelLimit=420
    )
    coloured = kinds.hue(VERDICT, frame, ("#b0568f", "#0072b2", kinds.GREY), shapes=None)
    base: Any = alt.Chart().encode(y=rows, tooltip=kinds.tooltips(suspects.columns))
    share = kinds.quantity(alt.X, MODAL_WRONG_SHARE, "share of models", domain=[0, 1], padding=0)
    chart = kinds.layers(
        base.mark_rule(strokeWidth=1, opacity=0.5).encode(x=f"{ITEM_TOP1}:Q", x2=f"{MODAL_WRONG_SHARE}:Q"),
        base.mark_point(size=40, color=kinds.GREY, opacity=1).encode(x=f"{ITEM_TOP1}:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x=share, color=coloured.colour()),
    )
    title = style.title(
        "Which labels look wrong?",
        f"Each row is one of the {FIRST} most suspect images: its label → the class that more models predict.",
        "Filled marks are the share of models that predict the other class, open marks of those that "
        "predict the label.",
        *(f"{reason}." for reason in not_listed),
    )
    columns = min(2, frame["panel"].nunique())
    return style.faceted(chart, frame.assign(named=named), title, (DATASET,), columns=columns, row=22)


def gallery_figure(gallery: Table) -> alt.FacetChart:
    """A grid of pictures a kind, with the label and the predicted classes below each."""
    frame = gallery.frame.dropna(subset="thumbnail")
    if frame.empty and len(gallery.frame):
        raise style.NothingToDraw(_undescribed(gallery.frame))
    frame = frame.assign(way=frame[KIND].map(dict(KIND.choices)))
    frame["panel"] = style.panels(frame, DATASET, "way")
    frame[[LABEL, PREDICTED]] = frame[[LABEL, PREDICTED]].fillna("")  # a file may know only right or wrong
    hover = [column for column in gallery.columns if column not in ("thumbnail", "row", "column")]
    title = style.title(
        "Which images are hard, which easy, and which labels look wrong?",
        "Below each picture stand its label and the predicted classes, with how many models; hover for more.",
    )
    tall, wide = (int(frame[name].max()) + 1 for name in ("row", "column"))
    frame["lines"] = [_in_two_lines(words) for words in frame[PREDICTED]]
    chart = kinds.pictures(frame, hover, LABEL, "lines")
    chart.layer[2].mark.lineBreak = "\n"
    drawn = style.faceted(chart, frame, title, (DATASET,), height=tall * STEP, columns=1)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, wide * (kinds.SIDE + kinds.GAP)
    return drawn


def _in_two_lines(predicted: str | None) -> str:
    """What the models predict, as it stands below a picture; longer texts end in dots, and the tooltip has them whole.

    >>> _in_two_lines("snowman (10), lamp (4), tree (2)")
    'snowman (10), lamp (4),\\ntree (2)'
    """
    kept_together = (predicted or "").replace(" (", "\xa0(")  # no line ends between a class and its number
    lines = [line.replace("\xa0", " ") for line in textwrap.wrap(kept_together, WIDEST + 1)]
    if len(lines) > 2:
        lines = [lines[0], f"{lines[1]} ..."]
    return "\n".join(lines)


def _undescribed(frame: pd.DataFrame) -> str:
    """Which data sets have no picture, and what makes them."""
    bare = frame.loc[frame["thumbnail"].isna(), DATASET].drop_duplicates()
    runs = "; ".join(f"fca run task=describe dataset={name}" for name in bare)
    return f"no pictures of {', '.join(bare)}; next: {runs} (for responses from files, the data set of their images)"


def rules_headlines(rules: pd.DataFrame) -> Iterator[str]:
    """What the best rule and the paper's find of the known errors among the 25 % most suspect images.

    >>> line = {"dataset": "zoo", "rule": "low_top1", "auc": 0.9, "auc_low": 0.8, "auc_high": 0.95, "errors": 54}
    >>> line |= {"recall_25": 0.75, "recall_25_low": 0.6, "recall_25_high": 0.85}
    >>> list(rules_headlines(pd.DataFrame([line])))[0][:88]
    'zoo: of 54 known wrong labels, the 25 % most suspect images hold 75 [60, 85] % by few mo'
    """
    for dataset, part in rules.groupby(DATASET, sort=False):
        best = part.sort_values(AUC, ascending=False, kind="stable").head(1)
        paper = part[part[RULE].isin(PAPER) & ~part.index.isin(best.index)]
        found = "; ".join(_found(line) for line in pd.concat([best, paper]).to_dict("records"))
        claim = f"by chance 25 %; the paper claims {100 * CLAIM[0]:.0f} to {100 * CLAIM[1]:.0f} %, of no stated share"
        known = int(part["errors"].iloc[0])
        yield f"{dataset}: of {known} known wrong labels, the 25 % most suspect images hold {found}; {claim}."


def _found(line: Mapping[Hashable, Any]) -> str:
    recall, low, high = (f"{100 * line[end]:.0f}" for end in with_interval(RECALLS[-1]))
    share = recall if pd.isna(line[RECALLS[-1].low]) else f"{recall} [{low}, {high}]"
    bounds = "" if pd.isna(line[AUC.low]) else f" [{line[AUC.low]:.3f}, {line[AUC.high]:.3f}]"
    return f"{share} % by {RULE.choices[line[RULE]]} (AUC {line[AUC]:.3f}{bounds})"


def gallery_headlines(gallery: pd.DataFrame) -> Iterator[str]:
    """The most suspect image of each data set, and which sets still lack pictures.

    >>> line = {"dataset": "zoo", "kind": "suspect", "rank": 1, "image_id": "7.png", "label": "cat", "thumbnail": None}
    >>> line |= {PREDICTED: "9 x dog, 1 x cat", "difficulty": 2.5, "top1": 0.1, "modal_wrong_share": 0.9}
    >>> list(gallery_headlines(pd.DataFrame([line])))[0]
    'zoo: look first at the label cat of 7.png, for which the models predict 9 x dog, 1 x cat.'
    """
    suspects = gallery[gallery[KIND] == "suspect"].sort_values("rank", kind="stable")
    for dataset, part in suspects.groupby(DATASET, sort=False):
        line = part.iloc[0].to_dict()
        equal = (part[[MODAL_WRONG_SHARE, ITEM_TOP1]] == part[[MODAL_WRONG_SHARE, ITEM_TOP1]].iloc[0]).all(axis=1).sum()
        label = f"{line[LABEL]} of {line['image_id']}"
        suspect = f"look first at the label {label}"
        if equal > 1:
            suspect = f"{equal} labels are equally suspect, among them {label}"
        yield f"{dataset}: {suspect}, for which the models predict {line[PREDICTED]}."
    if gallery["thumbnail"].isna().any():
        yield f"Gallery: {_undescribed(gallery)}."


FIGURES = (
    Figure("label_error_rules", "Rules that find wrong labels", (errors.LABEL_ERROR_RULES,), rules_figure),
    Figure("label_error_curve", "Wrong labels found", (errors.LABEL_ERROR_CURVE,), curve_figure),
    Figure("label_suspects", "Labels that look wrong", (errors.LABEL_SUSPECTS,), suspects_figure),
    Figure("gallery", "Hardest, easiest and most suspect images", (GALLERY,), gallery_figure),
)
HEADLINES = {errors.LABEL_ERROR_RULES.name: rules_headlines, GALLERY.name: gallery_headlines}
