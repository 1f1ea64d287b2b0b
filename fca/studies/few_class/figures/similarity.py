"""Figures and statements of class similarity: SimSS of subsets, its correlation with accuracy, the released script."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.few_class import similarity as tables
from fca.studies.few_class.correlation import COEFFICIENT, METHOD, PREDICTOR, TARGET
from fca.studies.few_class.figures.accuracy import ACCURACY, CLASSES, NAMES, without_bars
from fca.tables.table import DATASET, ENCODER, MODEL, NCL, NOTE, PROTOCOL, SUBSETS, TOP1, all_at_chance
from fca.types import Column, Table

R = COEFFICIENT.with_format(".2f", "correlation")
SIMSS = tables.SIMSS.with_format(".3f", "SimSS")
FEWEST_POINTS = 4  # for a correlation: three lie near a line too often
NO_ACCURACY = "at the level of chance, so there is no accuracy to predict"
_TARGETS = [DATASET, ENCODER, TARGET]
_WORDS = {  # (predictor, scope) of the correlation table, in the order drawn
    ("simss", "all"): "SimSS, all subsets",
    ("simss", "within ncl"): "SimSS, among subsets of equal ncl",
    ("ncl", "all"): "ncl alone (baseline)",
}
_COMPARED = Column("compared", str, "", "what is correlated with accuracy", {text: text for text in _WORDS.values()})


def similarity_figure(similarity: Table) -> alt.FacetChart:
    """The figure of SimSS of every class subset against the number of classes.

    SimSS, the similarity score, is high where the classes of a subset are far apart. There is one panel for each data
    set and encoder (the model that computes the features).
    similarity: table `similarity`, with a line for each subset and encoder.
    """
    frame = by_encoder(similarity.frame.dropna(subset=tables.SIMSS))  # adds `panel`, the heading of each line's panel
    coloured = kinds.hue(NCL, frame, shapes=None, legend=False, ordered=True)
    y = kinds.quantity(alt.Y, tables.SIMSS, "SimSS")
    x = style.ncl_axis(gap=None)  # single marks: no gap between the steps of the axis
    chart = kinds.scatter(x, y, similarity.columns, coloured)
    title = style.title(
        "How alike are the images of the class subsets?",
        "Each dot is one class subset. Where SimSS is high, images resemble their own class more than the "
        "nearest other.",
    )
    return style.faceted(chart, frame, title, filters=(DATASET, NCL))


def scatter_figure(points: Table, correlation: Table) -> alt.FacetChart:
    """The figure of DCN against SimSS, with one panel for each data set, encoder and target.

    DCN is the accuracy of the best of the models on a subset. A target names the accuracy that is correlated with
    SimSS, such as "DCN sub"; there are also targets of single models, which are not drawn here.

    points:      table correlation_points, with a line for each subset.
    correlation: table `correlation`, with r, p and n for the headings of the panels.
    """
    pearson = correlation.frame[correlation.frame[METHOD] == "pearson"]
    # _TARGETS: the columns data set, encoder and target
    coefficients_by_target = {key: _coefficients_in_words(lines) for key, lines in pearson.groupby(_TARGETS)}
    # by_encoder adds column `panel`, a heading for each data set and encoder
    frame = by_encoder(points.frame[points.frame[TARGET].str.startswith("DCN ")])
    # the heading starts with data set and encoder if there are several
    encoder_prefix = frame["panel"] + " · " if style.differs(frame["panel"]) else ""
    # for each line of the frame the text of its data set, encoder and target
    coefficients = pd.MultiIndex.from_frame(frame[_TARGETS]).map(coefficients_by_target)
    frame["panel"] = encoder_prefix + frame[TARGET] + "\n" + coefficients

    x = kinds.quantity(alt.X, tables.SIMSS, "SimSS (higher: easier to separate)")
    y = kinds.quantity(alt.Y, TOP1, "accuracy of the best model")
    coloured = kinds.hue(NCL, frame, title=NCL.meaning, ordered=True, shapes=None)
    fit = kinds.least_squares(tables.SIMSS, TOP1, x, y)
    marks = kinds.scatter(x, y, points.columns, coloured, size=90)

    title = style.title(
        "Do alike classes make a subset harder?",
        "Each mark is one class subset; the dashed line is the least-squares fit to the marks shown.",
        "r is Pearson's correlation, over all subsets and, below it, among subsets of equal ncl.",
    )
    fields = (DATASET, NCL, PROTOCOL)  # not the model: each point is the best of all
    n_protocols = frame[PROTOCOL].nunique()
    return style.faceted(kinds.layers(fit, marks), frame, title, filters=fields, columns=n_protocols)


def correlation_figure(correlation: Table, points: Table) -> alt.FacetChart:
    """The figure of the correlations of every accuracy with SimSS and with the number of classes (ncl) alone.

    For SimSS there are two correlations: over all subsets, and among subsets of equal ncl. There is one panel for each
    coefficient (Pearson's, Spearman's ...) and encoder.

    correlation: table `correlation`.
    points:      table correlation_points, which has the protocol and the model of each accuracy.
    """
    frame = _defined_coefficients(correlation.frame, points.frame)
    targets = list(dict.fromkeys(frame[TARGET]))
    rows = kinds.category(alt.Y, TARGET, targets, bands=True)  # bands: grid lines between the names

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
        *without_bars(frame[NOTE]),  # a line with the reasons why some marks have no interval
    )
    height = max(150, 32 * len(targets))  # pixels; three marks beside each other for each target
    return style.faceted(chart, frame, title, filters=(DATASET, MODEL, PROTOCOL), height=height)


def _defined_coefficients(frame: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """The lines of table `correlation` that correlation_figure draws, with four more columns.

    compared:        in words, what is correlated with accuracy.
    protocol, model: of the accuracy; the model is missing for DCN, whose best model differs between subsets.
    panel:           the heading of the panel in which the line is drawn.
    Lines with an undefined coefficient are left out. _WORDS has the correlations that are drawn; all others, such as
    those within a single ncl, are left out as well.

    frame:  lines of table `correlation`.
    points: lines of table correlation_points.
    """
    # all points of a target have the same protocol and model, so the first point is enough; the model of DCN varies
    first_points = points.drop_duplicates(TARGET).set_index(TARGET)
    is_best_model = first_points.index.str.startswith("DCN ")
    model_by_target = first_points[MODEL].where(~is_best_model)
    frame = frame.assign(
        compared=pd.MultiIndex.from_frame(frame[["predictor", "scope"]]).map(_WORDS),
        protocol=frame[TARGET].map(first_points[PROTOCOL]),
        model=frame[TARGET].map(model_by_target),
    )

    # by_encoder adds column `panel`, a heading for each data set and encoder
    frame = by_encoder(frame.dropna(subset=[_COMPARED, COEFFICIENT]))
    encoder_suffix = " · " + frame["panel"] if style.differs(frame["panel"]) else ""
    return frame.assign(panel=frame[METHOD] + encoder_suffix)


def released_figure(released: Table, agreement: Table) -> alt.FacetChart:
    """The figure of the difference between two SimSS of every subset, against the number of classes.

    The difference is the score by the script that was released with the paper, minus the score by the paper's
    definition. The script adds the images of each subset to lists that it does not empty, so that a score depends on
    the subsets before it. There is one panel for each data set and encoder.

    released:  table with a line for each subset. Lines without a released score are not drawn.
    agreement: table released_agreement, with the mean difference and r for the headings of the panels.
    """
    scored = released.frame.dropna(subset=tables.SIMSS_RELEASED)
    # sorted as the script visits the subsets (STEP), so that of overlapping dots the latest is in front
    in_order_of_script = scored.sort_values(tables.STEP, kind="stable")
    frame = by_encoder(in_order_of_script)  # adds column `panel`, a heading for each data set and encoder

    heading_by_encoder = {}
    for line in agreement.frame.to_dict("records"):
        difference = f"mean |difference| {line[tables.DIFFERENCE_ABSOLUTE]:.4f}"
        heading_by_encoder[line[DATASET], line[ENCODER]] = f"{difference}, {_r_in_words(line['r'])}"
    frame["panel"] += "\n" + pd.MultiIndex.from_frame(frame[[DATASET, ENCODER]]).map(heading_by_encoder)

    coloured = kinds.hue(NCL, frame, shapes=None, legend=False)
    x = style.ncl_axis(gap=None)  # single marks: no gap between the steps of the axis
    y = kinds.quantity(alt.Y, tables.RELEASED_MINUS_OURS)
    marks = kinds.scatter(x, y, released.columns, coloured)
    zero_line = kinds.reference(kinds.ZERO, on_y=True)

    title = style.title(
        "How far is the released similarity script from the definition?",
        "Each dot is one class subset, in the script's own order: its lists of images grow from subset to subset.",
    )
    return style.faceted(kinds.layers(zero_line, marks), frame, title, filters=(DATASET, NCL))


def by_encoder(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame sorted by data set and encoder, with a column `panel`: the heading that names them."""
    frame = frame.sort_values([DATASET, ENCODER], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, DATASET, ENCODER))


def _coefficients_in_words(lines: pd.DataFrame) -> str:
    """r, p and n of SimSS as two lines of a heading: over all subsets, and within equal ncl.

    lines: of table correlation, of one target and method.
    """
    lines_of_simss = lines[lines["predictor"] == "simss"]
    line_by_scope = {line["scope"]: line for line in lines_of_simss.to_dict("records")}
    return f"{in_words(line_by_scope['all'])}\nwithin ncl: {in_words(line_by_scope['within ncl'])}"


def in_words(line: Mapping[Hashable, Any]) -> str:
    """A correlation: `r = 0.84, p = 2.1e-05, n = 30`, or that it is undefined."""
    if pd.isna(line["r"]):
        return f"r undefined, n = {line['n']}"
    p = "undefined" if pd.isna(line["p"]) else f"{line['p']:.2g}"
    return f"r = {line['r']:.2f}, p = {p}, n = {line['n']}"


def correlation_statements(correlation: pd.DataFrame, points: pd.DataFrame) -> Iterator[Statement]:
    """A statement for each target and encoder: whether SimSS predicts DCN, the accuracy of the best model.

    A target is "DCN sub", "DCN open" ...: the best of the sub-models, or of the full models under that protocol. The
    statement gives Pearson's correlation over all subsets and among subsets of equal ncl. After the first statement of
    a target, another one gives the correlation of ncl alone, if it is known and not all models are at the level of
    chance. Statements keep the order of the table, except that targets and encoders without a coefficient come last, so
    that the first statement has an answer if any has.

    correlation: lines of table `correlation`, of one data set.
    points:      lines of table correlation_points, for the charts.

    >>> line = {"dataset": "digits", "encoder": "hog", "target": "DCN sub", "method": "pearson", "predictor": "simss"}
    >>> lines = [line | {"scope": "all", "r": 0.84, "r_low": 0.7, "r_high": 0.93, "n": 30}]
    >>> lines += [line | {"scope": "within ncl", "r": 0.55, "r_low": 0.2, "r_high": 0.8, "n": 24}]
    >>> lines += [lines[0] | {"predictor": "ncl", "r": -0.8, "r_low": -0.9, "r_high": -0.6}]
    >>> point = {"dataset": "digits", "encoder": "hog", "target": "DCN sub", "ncl": 2, "simss": 0.1, "top1": 0.9}
    >>> for statement in correlation_statements(pd.DataFrame(lines), pd.DataFrame([point])): print(statement.sentence)
    Class similarity predicts accuracy on digits: r = 0.84 [0.70, 0.93] (SimSS by hog, 30 subsets); \
0.55 [0.20, 0.80] among subsets of equal size.
    The correlation of the number of classes alone with accuracy on digits is -0.80 [-0.90, -0.60] over 30 subsets.
    """
    # the other targets are single models
    is_of_best = (correlation[METHOD] == "pearson") & correlation[TARGET].str.startswith("DCN ")
    # a frame for each target and encoder
    lines_by_target = [lines for _, lines in correlation[is_of_best].groupby([TARGET, ENCODER], sort=False)]
    lines_by_target.sort(key=_has_no_coefficient)  # False sorts first: lines with a coefficient

    stated_targets: set[str] = set()
    for lines in lines_by_target:
        target, encoder = lines[[TARGET, ENCODER]].iloc[0]
        is_at_chance = all_at_chance(lines)
        accuracy = "accuracy"
        models = "all models"
        if stated_targets:  # only the first statement goes without the name of its target
            kind_of_models = NAMES[target.removeprefix("DCN ")]
            accuracy = f"the accuracy of the best of the {kind_of_models} ({target})"
            models = f"all {kind_of_models}"

        points_of_target = points[(points[ENCODER] == encoder) & (points[TARGET] == target)]
        chart = small.cloud(points_of_target.reset_index(drop=True), SIMSS, ACCURACY, (CLASSES, SIMSS, ACCURACY))
        coefficients = {(line[PREDICTOR], line["scope"]): line for line in lines.to_dict("records")}
        yield Statement(_similarity_in_words(coefficients, accuracy, models, is_at_chance), chart)

        # the number of classes alone, stated once for a target: it does not depend on the encoder
        ncl_alone = coefficients["ncl", "all"]
        is_defined = pd.notna(ncl_alone[R]) and ncl_alone["n"] >= FEWEST_POINTS and not is_at_chance
        if is_defined and target not in stated_targets:
            subject = f"The correlation of the number of classes alone with {accuracy} on {ncl_alone[DATASET]}"
            yield Statement(f"{subject} is {format_with_interval(ncl_alone, R)} over {ncl_alone['n']} subsets.")
        stated_targets.add(target)


def _has_no_coefficient(lines: pd.DataFrame) -> bool:
    """Whether the correlation of SimSS is undefined on all these lines."""
    return bool(lines.loc[lines[PREDICTOR] == "simss", COEFFICIENT].isna().all())


def _similarity_in_words(
    coefficients: Mapping[tuple[Any, Any], Mapping[Hashable, Any]], accuracy: str, models: str, is_at_chance: bool
) -> str:
    """The sentence on whether SimSS predicts an accuracy, or on why that is not known.

    coefficients: (predictor, scope) -> the line of the correlation table, for one accuracy and encoder. The predictor
                  is "simss" or "ncl"; the scope is "all", for all subsets, or "within ncl".
    accuracy:     the accuracy in words.
    models:       in words, the models that have this accuracy.
    is_at_chance: whether all these models are at the level of chance.
    """
    line = coefficients["simss", "all"]
    dataset, n_subsets = line[DATASET], line["n"]
    if is_at_chance:  # NO_ACCURACY: at the level of chance, in words
        return f"Not known: on {dataset}, {models} are {NO_ACCURACY}."
    if n_subsets < FEWEST_POINTS:
        subsets = f"{n_subsets} subset{'' if n_subsets == 1 else 's'}"
        return f"Not known: {subsets} of {dataset} cannot show whether similarity predicts {accuracy}."
    if pd.isna(line[R]):
        reason = "the accuracies or the similarities do not differ"
        return (
            f"Not known: on {dataset}, SimSS by {line[ENCODER]} has no correlation with {accuracy}, because {reason}."
        )

    within_ncl = coefficients.get(("simss", "within ncl"))
    among_equal = ""
    if within_ncl is not None and pd.notna(within_ncl[R]):
        among_equal = f"; {format_with_interval(within_ncl, R)} among subsets of equal size"
    correlation = f"r = {format_with_interval(line, R)} (SimSS by {line[ENCODER]}, {n_subsets} subsets){among_equal}"
    return f"Class similarity {_predicts(line)} {accuracy} on {dataset}: {correlation}."


def _predicts(line: Mapping[Hashable, Any]) -> str:
    """The verb of the sentence "Class similarity ... accuracy", from the interval of the correlation.

    Without an interval the p value decides between weaker verbs: p takes the subsets for independent draws.
    """
    if pd.isna(line[R.low]):
        is_small_p = line.get("p", 1.0) <= 0.05
        return "goes with" if is_small_p else "may or may not predict"
    if line[R.high] < 0:
        return "predicts, the wrong way round,"
    return "predicts" if line[R.low] > 0 else "does not significantly predict"


def released_statements(agreement: pd.DataFrame) -> Iterator[Statement]:
    """How far the SimSS that the released script logs is from ours: one statement for each encoder.

    agreement: lines of table released_agreement; those without subsets are left out.

    >>> line = {"dataset": "digits", "encoder": "hog", "subsets": 9, "difference_absolute": 0.0021, "r": 0.999}
    >>> line |= {"difference_largest": 0.0108, "pooled_absolute": 0.0019, "difference": 0.0}
    >>> [statement] = released_statements(pd.DataFrame([line]))
    >>> statement.sentence[:99]
    'digits: SimSS by hog as the released script logs it differs from ours by 0.0021 on average (at most'
    """
    for line in agreement[agreement[SUBSETS] > 0].to_dict("records"):
        yield Statement(
            f"{line[DATASET]}: SimSS by {line[ENCODER]} as the released script logs it differs from ours by "
            f"{line[tables.DIFFERENCE_ABSOLUTE]:.4f} on average (at most {line['difference_largest']:.4f}) over "
            f"{line[SUBSETS]} subsets, {_r_in_words(line['r'])}; from ours pooled over images, as its mean is, by "
            f"{line['pooled_absolute']:.4f}."
        )


def _r_in_words(r: float | None) -> str:
    return "r undefined" if pd.isna(r) else f"r = {r:.4f}"
