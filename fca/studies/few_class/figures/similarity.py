"""Class similarity: SimSS of subsets, its correlation with accuracy, and the released script; figures and headlines."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.few_class import similarity as tables
from fca.studies.few_class.correlation import COEFFICIENT, CORRELATION, CORRELATION_POINTS, METHOD, TARGET
from fca.studies.few_class.figures.accuracy import NAMES, without_bars
from fca.studies.table import DATASET, ENCODER, MODEL, NCL, NOTE, PROTOCOL, SUBSETS, TOP1, all_at_chance
from fca.types import Column, Table

_TARGETS = [DATASET, ENCODER, TARGET]
_WORDS = {  # (predictor, scope) of the correlation table, in the order drawn
    ("simss", "all"): "SimSS, all subsets",
    ("simss", "within ncl"): "SimSS, among subsets of equal ncl",
    ("ncl", "all"): "ncl alone (baseline)",
}
_COMPARED = Column("compared", str, "", "what is correlated with accuracy", {text: text for text in _WORDS.values()})


def similarity_figure(similarity: Table) -> alt.FacetChart:
    """SimSS of every subset against ncl, one panel for each encoder."""
    frame = by_encoder(similarity.frame.dropna(subset=tables.SIMSS))
    coloured = kinds.hue(NCL, frame, shapes=None, legend=False, ordered=True)
    y = kinds.quantity(alt.Y, tables.SIMSS, "SimSS")
    chart = kinds.scatter(style.ncl_axis(gap=None), y, similarity.columns, coloured)
    title = style.title(
        "How alike are the images of the class subsets?",
        "Each dot is one class subset. Where SimSS is high, images resemble their own class more than the "
        "nearest other.",
    )
    return style.faceted(chart, frame, title, (DATASET, NCL))


def scatter_figure(points: Table, correlation: Table) -> alt.FacetChart:
    """The best accuracy of any model against SimSS, one panel for each protocol; each heading gives r, p and n."""
    pearson = correlation.frame[correlation.frame[METHOD] == "pearson"]
    heading = {key: _heading(part) for key, part in pearson.groupby(_TARGETS)}
    frame = by_encoder(points.frame[points.frame[TARGET].str.startswith("DCN ")])
    where = frame["panel"] + " · " if style.differs(frame["panel"]) else ""
    frame["panel"] = where + frame[TARGET] + "\n" + pd.MultiIndex.from_frame(frame[_TARGETS]).map(heading)
    x = kinds.quantity(alt.X, tables.SIMSS, "SimSS (higher: easier to separate)")
    y = kinds.quantity(alt.Y, TOP1, "accuracy of the best model")
    coloured = kinds.hue(NCL, frame, title=NCL.meaning, ordered=True, shapes=None)
    chart = kinds.layers(
        kinds.least_squares(tables.SIMSS, TOP1, x, y), kinds.scatter(x, y, points.columns, coloured, size=90)
    )
    title = style.title(
        "Do alike classes make a subset harder?",
        "Each mark is one class subset; the dashed line is the least-squares fit to the marks shown.",
        "r is Pearson's correlation, over all subsets and, below it, among subsets of equal ncl.",
    )
    # not by model, because the best of all models has none; the protocol is the panel
    fields, columns = (DATASET, NCL, PROTOCOL), frame[PROTOCOL].nunique()
    return style.faceted(chart, frame, title, fields, columns=columns)


def correlation_figure(correlation: Table, points: Table) -> alt.FacetChart:
    """Every correlation with its interval: SimSS over all subsets, within equal ncl, and ncl alone beside it."""
    frame = _coefficients(correlation.frame, points.frame)
    targets = list(dict.fromkeys(frame[TARGET]))
    rows = kinds.category(alt.Y, TARGET, targets, bands=True)
    coloured = kinds.hue(_COMPARED, frame, kinds.CONTRAST, ("circle", "diamond", "square"))
    scale = kinds.quantity(alt.X, COEFFICIENT, grid=True, padding=0, domain=[-1, 1])
    hover = (*correlation.columns, _COMPARED)
    chart = kinds.points_with_intervals(
        COEFFICIENT, rows, hover, coloured, dodge=_COMPARED, line=kinds.ZERO, scale=scale, size=60
    )
    title = style.title(
        "Does similarity predict more than the number of classes?",
        "Each mark is the correlation of an accuracy with SimSS or with ncl, with its 95 % interval over subset seeds.",
        "DCN is the accuracy of the best model; its interval is over models too, if there are five or more.",
        *without_bars(frame[NOTE]),
    )
    return style.faceted(chart, frame, title, (DATASET, MODEL, PROTOCOL), height=max(150, 32 * len(targets)))


def _coefficients(frame: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """The defined coefficients to draw, in words, with the model and protocol of their target."""
    known = points.drop_duplicates(TARGET).set_index(TARGET)
    frame = frame.assign(
        compared=pd.MultiIndex.from_frame(frame[["predictor", "scope"]]).map(_WORDS),
        protocol=frame[TARGET].map(known[PROTOCOL]),
        model=frame[TARGET].map(known[MODEL].where(~known.index.str.startswith("DCN "))),
    )
    frame = by_encoder(frame.dropna(subset=[_COMPARED, COEFFICIENT]))
    return frame.assign(panel=frame[METHOD] + (" · " + frame["panel"] if style.differs(frame["panel"]) else ""))


def released_figure(released: Table, agreement: Table) -> alt.FacetChart:
    """Released minus our SimSS of every subset against ncl, one panel for each encoder; headings give the agreement."""
    frame = by_encoder(released.frame.dropna(subset=tables.SIMSS_RELEASED).sort_values(tables.STEP, kind="stable"))
    heading = {
        (line[DATASET], line[ENCODER]): f"mean |difference| {line[tables.DIFFERENCE_ABSOLUTE]:.4f}, {_r(line['r'])}"
        for line in agreement.frame.to_dict("records")
    }
    frame["panel"] += "\n" + pd.MultiIndex.from_frame(frame[[DATASET, ENCODER]]).map(heading)
    coloured = kinds.hue(NCL, frame, shapes=None, legend=False)
    marks = kinds.scatter(
        style.ncl_axis(gap=None), kinds.quantity(alt.Y, tables.DIFFERENCE), released.columns, coloured
    )
    title = style.title(
        "How far is the released similarity script from the definition?",
        "Each dot is one class subset, in the script's own order: its lists of images grow from subset to subset.",
    )
    return style.faceted(kinds.layers(kinds.reference(kinds.ZERO, upright=True), marks), frame, title, (DATASET, NCL))


def by_encoder(frame: pd.DataFrame) -> pd.DataFrame:
    """With a `panel` for each data set and encoder, in their order."""
    frame = frame.sort_values([DATASET, ENCODER], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, DATASET, ENCODER))


def _heading(lines: pd.DataFrame) -> str:
    """r, p and n of one target, over all subsets and within equal ncl: the second and third line of its heading."""
    line = {one["scope"]: one for one in lines[lines["predictor"] == "simss"].to_dict("records")}
    return f"{in_words(line['all'])}\nwithin ncl: {in_words(line['within ncl'])}"


def in_words(line: Mapping[Hashable, Any]) -> str:
    """A correlation: `r = 0.84, p = 2.1e-05, n = 30`, or that it is undefined."""
    if pd.isna(line["r"]):
        return f"r undefined, n = {line['n']}"
    p = "undefined" if pd.isna(line["p"]) else f"{line['p']:.2g}"
    return f"r = {line['r']:.2f}, p = {p}, n = {line['n']}"


def correlation_headlines(correlation: pd.DataFrame) -> Iterator[str]:
    """SimSS against the best sub-model and the best open full model: all subsets, equal ncl, and ncl alone."""
    frame = correlation[(correlation[METHOD] == "pearson") & correlation[TARGET].isin(["DCN sub", "DCN open"])]
    for (dataset, encoder, target), part in frame.groupby(_TARGETS, sort=False):
        line = {(one["predictor"], one["scope"]): in_words(one) for one in part.to_dict("records")}
        best = NAMES[str(target).removeprefix("DCN ")]
        compared = f"{dataset}: SimSS by {encoder} and the best of the {best} ({target}): "
        if all_at_chance(part):
            yield compared + "no correlation is known, because all models are at the level of chance."
            continue
        if part[COEFFICIENT].isna().all():
            yield compared + "no correlation, because the accuracies do not differ or there are too few."
            continue
        yield (
            f"{compared}{line['simss', 'all']} over all subsets; {line['simss', 'within ncl']} among subsets of equal "
            f"ncl; the number of classes alone: {line['ncl', 'all']}."
        )


def released_headlines(agreement: pd.DataFrame) -> Iterator[str]:
    """How far the released scores are, in a sentence for each encoder.

    >>> line = {"dataset": "digits", "encoder": "hog", "subsets": 9, "difference_absolute": 0.0021, "r": 0.999}
    >>> line |= {"difference_largest": 0.0108, "pooled_absolute": 0.0019, "difference": 0.0}
    >>> next(released_headlines(pd.DataFrame([line])))[:99]
    'digits: SimSS by hog as the released script logs it differs from ours by 0.0021 on average (at most'
    """
    for line in agreement[agreement[SUBSETS] > 0].to_dict("records"):
        yield (
            f"{line[DATASET]}: SimSS by {line[ENCODER]} as the released script logs it differs from ours by "
            f"{line[tables.DIFFERENCE_ABSOLUTE]:.4f} on average (at most {line['difference_largest']:.4f}) over "
            f"{line[SUBSETS]} subsets, {_r(line['r'])}; from ours pooled over images, as its mean is, by "
            f"{line['pooled_absolute']:.4f}."
        )


def _r(r: float | None) -> str:
    return "r undefined" if pd.isna(r) else f"r = {r:.4f}"


FIGURES = (
    Figure("similarity", "Similarity of the subsets", (tables.SIMILARITY,), similarity_figure),
    Figure("released", "The released script", (tables.RELEASED, tables.RELEASED_AGREEMENT), released_figure),
    Figure("simss_accuracy", "Similarity and accuracy", (CORRELATION_POINTS, CORRELATION), scatter_figure),
    Figure("correlation", "What similarity predicts", (CORRELATION, CORRELATION_POINTS), correlation_figure),
)
HEADLINES = {CORRELATION.name: correlation_headlines, tables.RELEASED_AGREEMENT.name: released_headlines}
