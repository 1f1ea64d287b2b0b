"""How well wrong labels are found, and which they are: figures and sentences of the tables of analysis=label_errors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

RULES = {  # the paper's last, as it is compared with
    "modal_wrong_share": "same wrong class",
    "modal_wrong_minus_top1": "same wrong class - right",
    "low_top1": "few models right",
    "low_p_max": "low p_max",
    "low_item_rest": "low item-rest correlation",
    "low_discrimination_feasibility": "low discrimination, feasibility",
}
PAPER = "low_discrimination_feasibility"
CLAIM = (0.3, 0.4)  # of the errors, by the paper; it does not say which share of all images is flagged
FIRST = 20  # suspects of each data set in the figure
_LABELS = alt.Axis(grid=False, ticks=False, domain=False, labelPadding=12)
_NO_VERDICTS = "no verdicts on these images were given (analysis.verdicts); suspects are ranked all the same"
_MEASURES = {
    "AUC among all": "auc",
    "AUC among reviewed": "auc_reviewed",
    "precision of the first k": "precision_at_k",
}
_ENDS = {"value": "", "low": "_low", "high": "_high"}
_SAYS = {"error": "wrong by the verdicts", "right": "right by the verdicts", "none": "not reviewed"}


def curve_figure(curve: Table) -> alt.FacetChart:
    """Recall against the share of images flagged, one line a rule, beside chance and the paper's claim."""
    frame = _named(curve.frame)
    colours = alt.Color(
        "says:N", scale=alt.Scale(domain=list(RULES.values())), legend=alt.Legend(title=None, columns=3)
    )
    line = alt.Chart().encode(
        x=alt.X("share_flagged:Q", title="share of images flagged", axis=style.PERCENT),
        y=alt.Y("recall:Q", title="share of known errors found", axis=alt.Axis(format="%", grid=True)),
    )
    picked = style.picked("says")
    told = {"dataset": "", "says": "", "share_flagged": ".0%", "recall": ".1%"}
    claim = alt.InlineData(values=[{"recall": CLAIM[0], "to": CLAIM[1]}])  # once a panel, not once a line
    chance = alt.InlineData(values=[{"share_flagged": share, "recall": share} for share in (0, 1)])
    layers = alt.layer(
        alt.Chart(claim).mark_rect(opacity=0.15, color="#7d8590").encode(y="recall:Q", y2="to:Q"),
        alt.Chart(chance)
        .mark_line(strokeDash=[4, 3], color="#7d8590", strokeWidth=1)
        .encode(x="share_flagged:Q", y="recall:Q"),
        line.mark_line(strokeWidth=2)
        .encode(
            color=colours,
            opacity=alt.condition(picked, alt.value(1.0), alt.value(0.1)),
            tooltip=style.tooltips(told),
        )
        .add_params(picked),
    )
    title = alt.Title(
        "How many wrong labels does each rule find?",
        subtitle=[
            "Images flagged from the most suspect on. Dashed: by chance. Band: the paper's claim of 30 to 40 % for low",
            "discrimination and feasibility, which does not say how many images are flagged.",
        ],
    )
    return style.faceted(layers, frame, title, ("dataset",), height=300)


def rules_figure(rules: Table) -> alt.FacetChart:
    """AUC among all and among reviewed images, and precision of the first k, with intervals, one row a rule."""
    frame = _a_measure_a_line(_named(rules.frame))
    told = {**dict.fromkeys(("dataset", "says", "measure"), ""), **dict.fromkeys(_ENDS, ".3f")}
    told |= dict.fromkeys(("recall_5", "recall_10", "recall_25", "precision_at_k", "precision_by_chance"), ".1%")
    told |= dict.fromkeys(("k", "errors", "reviewed", "n_items"), ".0f")
    measure = alt.Scale(domain=list(_MEASURES))
    shapes = alt.Scale(domain=list(_MEASURES), range=["circle", "square", "diamond"])
    legend = alt.Legend(title=None)
    base = alt.Chart().encode(
        y=alt.Y("says:N", title=None, sort=list(RULES.values()), scale=alt.Scale(paddingInner=0.4), axis=_LABELS),
        yOffset=alt.YOffset("measure:N", scale=measure),
        color=alt.Color("measure:N", scale=measure, legend=legend),
    )
    layers = alt.layer(
        base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=alt.X("value:Q", title="AUC, precision", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(grid=True)),
            shape=alt.Shape("measure:N", scale=shapes, legend=legend),
            tooltip=style.tooltips(told),
        ),
    )
    title = alt.Title(
        "Which rule finds wrong labels?",
        subtitle=[
            "With 95 % intervals. AUC: chance that an image with a wrong label is more suspect than another;",
            "among all, images that nobody reviewed count as right. k: number of known errors, unless asked otherwise.",
        ],
    )
    return style.faceted(layers, frame, title, ("dataset",), height=44 * frame["says"].nunique())


def _a_measure_a_line(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns measure, value, low and high instead of three columns a measure; without those that are missing."""
    each = [
        frame.assign(measure=name, **{end: frame[column + suffix] for end, suffix in _ENDS.items()})
        for name, column in _MEASURES.items()
    ]
    return pd.concat(each).dropna(subset="value")


def suspects_figure(suspects: Table) -> alt.FacetChart:
    """The first suspects of each data set: who agreed on another class, and who said the label."""
    frame = suspects.frame[suspects.frame["rank"] <= FIRST]
    if frame.empty:
        raise style.NothingToDraw("no image was answered")
    says = pd.Series([_SAYS[value or "none"] for value in style.cells(frame["verdict"])], index=frame.index)
    what = frame["rank"].astype(str) + ". " + frame["label"].fillna("?") + " → " + frame["said"].fillna("?")
    frame = frame.assign(says=says, what=what, panel=style.panels(frame, "dataset"))
    told = {**dict.fromkeys(("image_id", "label", "said", "says"), ""), "rank": ".0f"}
    told |= {**dict.fromkeys(("modal_wrong_share", "top1"), ".0%"), "p_max": ".2f", "discrimination": ".2f"}
    base = alt.Chart().encode(
        y=alt.Y("what:N", title=None, sort=alt.SortField("rank"), axis=_LABELS),
        tooltip=style.tooltips(told),
    )
    colours = alt.Scale(domain=list(_SAYS.values()), range=["#b0568f", "#0072b2", "#7d8590"])
    present = [text for text in _SAYS.values() if text in set(says)]
    share = alt.Axis(format="%", grid=False)
    layers = alt.layer(
        base.mark_rule(strokeWidth=1, opacity=0.5).encode(x="top1:Q", x2="modal_wrong_share:Q"),
        base.mark_point(size=40, color="#7d8590", opacity=1).encode(x=alt.X("top1:Q")),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            x=alt.X("modal_wrong_share:Q", title="share of models", axis=share, scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("says:N", scale=colours, legend=alt.Legend(title=None, values=present)),
        ),
    )
    title = alt.Title(
        "Which labels look wrong?",
        subtitle=[
            f"The {FIRST} most suspect images: label → what most models say instead.",
            "Filled: share of models that say the other class; open: that say the label.",
        ],
    )
    drawn = style.faceted(
        layers, frame, title, ("dataset",), 22 * int(frame["rank"].max()), min(2, frame["panel"].nunique())
    )
    own: alt.FacetChart = drawn.resolve_scale(y="independent")
    return own


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    if frame.empty:
        raise style.NothingToDraw(_NO_VERDICTS)
    return frame.assign(says=frame["rule"].map(RULES), panel=style.panels(frame, "dataset"))


def rules_answers(rules: pd.DataFrame) -> Iterator[str]:
    """What the best rule and the paper's find of the known errors among the 25 % most suspect images.

    >>> line = {"dataset": "zoo", "rule": "low_top1", "auc": 0.9, "auc_low": 0.8, "auc_high": 0.95, "errors": 54}
    >>> line |= {"recall_25": 0.75, "recall_25_low": 0.6, "recall_25_high": 0.85}
    >>> list(rules_answers(pd.DataFrame([line])))[0][:88]
    'zoo: of 54 known wrong labels, the 25 % most suspect images hold 75 [60, 85] % by few mo'
    """
    for dataset, part in rules.groupby("dataset", sort=False):
        best = part.sort_values("auc", ascending=False, kind="stable").head(1)
        paper = part[(part["rule"] == PAPER) & ~part.index.isin(best.index)]
        told = [_told(line) for line in pd.concat([best, paper]).to_dict("records")]
        claim = f"by chance 25 %; the paper says {100 * CLAIM[0]:.0f} to {100 * CLAIM[1]:.0f} %, of no stated share"
        errors = int(part["errors"].iloc[0])
        found = "; ".join(told)
        yield f"{dataset}: of {errors} known wrong labels, the 25 % most suspect images hold {found}; {claim}."


def _told(line: Mapping[Hashable, Any]) -> str:
    recall, low, high = (f"{100 * line[f'recall_25{end}']:.0f}" for end in ("", "_low", "_high"))
    bounds = "" if pd.isna(line["auc_low"]) else f" [{line['auc_low']:.3f}, {line['auc_high']:.3f}]"
    return f"{recall} [{low}, {high}] % by {RULES[line['rule']]} (AUC {line['auc']:.3f}{bounds})"


PARTS = (
    Part("label_error_curve", "Wrong labels found", "label_errors", ("label_error_curve",), curve_figure),
    Part("label_error_rules", "Rules that find wrong labels", "label_errors", ("label_error_rules",), rules_figure),
    Part("label_suspects", "Labels that look wrong", "label_errors", ("label_suspects",), suspects_figure),
)
ANSWERS = {"label_error_rules": rules_answers}
