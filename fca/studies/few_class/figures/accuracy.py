"""Accuracy by number of classes, findings, which models differ, what accuracy varies with: figures and headlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.figure import Figure
from fca.studies.few_class import accuracy, comparison
from fca.studies.few_class.findings import FINDINGS, MEASURE, MEASURES, NO_EFFECT, UNIT, VALUE, VERDICT
from fca.studies.few_class.variance import SHARES, SOURCES, SPREADS, VARIANCE
from fca.studies.table import (
    DATASET,
    MODEL,
    MODELS,
    NCL,
    NO_MEAN_INTERVAL,
    NOTE,
    PROTOCOL,
    SUBSETS,
    TOP1,
    all_at_chance,
    lines_at_chance,
)
from fca.types import Column, Table, with_interval

NAMES = {"sub": "sub-models"} | {way: f"{way} full models" for way in ("open", "masked", "grouped")}
_INTERVAL = "95 % interval over subset seeds"
_DIFFERENCE = Column("difference", float, "+.2%", "sub-model minus full model")
_VERDICTS = {
    "sub-models above open full models": "sub-models are more accurate than open full models",
    "not above": "sub-models are not more accurate than open full models",
    "undecided": "the difference between sub-models and open full models is not significant",
    NO_MEAN_INTERVAL: "sub-models minus open full models",
}


def accuracy_figure(points: Table, means: Table) -> alt.FacetChart:
    """Accuracy of every model against ncl: single subsets, their mean and its interval, one panel for each model."""
    parts = [points.frame.assign(mark="point"), means.frame.assign(mark="mean")]
    frame = _in_order(pd.concat([part.astype({TOP1: "float64"}) for part in parts]), DATASET, MODEL)
    coloured, along, mean = kinds.hue(PROTOCOL, frame), style.ncl_axis(), "datum.mark == 'mean'"
    large = kinds.points_with_intervals(
        TOP1, along, means.columns, coloured, dodge=PROTOCOL, joined=PROTOCOL, where=mean
    )
    one = alt.Chart().transform_filter("datum.mark == 'point'").mark_circle(size=28)
    one = one.encode(x=along, xOffset=f"{PROTOCOL}:N", y=f"{TOP1}:Q", tooltip=kinds.tooltips(points.columns))
    one = one.encode(color=coloured.colour(), opacity=coloured.opacity(0.5))
    title = style.title(
        "How does accuracy change with the number of classes?",
        f"Each small mark is one class subset, each large one the mean of the subsets with its {_INTERVAL}.",
    )
    return style.faceted(kinds.layers(one, large), frame, title, (DATASET, MODEL, NCL, PROTOCOL))


def dcn_figure(dcn: Table) -> alt.FacetChart:
    """The best accuracy of any model on each subset, against ncl; one panel for each data set."""
    title = style.title(
        "How accurate is the best of the models?",
        "Each mark is the accuracy of the best model on one class subset (DCN). Hover to see which model that is.",
    )
    best = kinds.quantity(alt.Y, TOP1, "accuracy of the best model (DCN)")
    return _by_ncl(dcn.frame, TOP1, dcn.columns, title, best, joined=NCL)


def gap_figure(gap: Table) -> alt.FacetChart:
    """Sub-model minus full model, open and masked, against ncl."""
    hover = (DATASET, PROTOCOL, NCL, *with_interval(_DIFFERENCE), MODELS, SUBSETS)
    parts = []
    for way, column in (("open", accuracy.SUB_MINUS_OPEN), ("masked", accuracy.SUB_MINUS_MASKED)):
        names = dict(zip(with_interval(column), with_interval(_DIFFERENCE), strict=True))
        parts.append(gap.frame.rename(columns=names).assign(protocol=way)[[*hover, accuracy.N_PAIRS]])
    title = style.title(
        "How much more accurate are sub-models than full models?",
        "Each mark is the accuracy of sub-models minus that of full models on the same class subsets, the mean over",
        f"models and subsets with its {_INTERVAL}. Above the line, training on the subset only pays.",
    )
    axis = kinds.quantity(alt.Y, _DIFFERENCE)
    return _by_ncl(pd.concat(parts), _DIFFERENCE, hover, title, axis, line=kinds.ZERO, size=90)


def agreement_figure(agreement: Table) -> alt.FacetChart:
    """Spearman's rho between the models' ranking on all classes and on few, against ncl."""
    title = style.title(
        "Does the ranking of models on all classes hold for few?",
        f"1 is the same order, 0 is no relation. Each mark is the mean over class subsets with its {_INTERVAL}.",
    )
    axis = kinds.quantity(alt.Y, accuracy.RHO, domainMax=1)
    several = agreement.frame[agreement.frame[MODELS] > 1]
    return _by_ncl(several, accuracy.RHO, agreement.columns, title, axis, line=kinds.ZERO, size=90)


def ranks_figure(ranks: Table) -> alt.FacetChart:
    """Mean rank of every model at every ncl as a heat map, one panel for each protocol."""
    frame = by_protocol(_several(ranks.frame))
    title = style.title(
        "Does the best model change with the number of classes?",
        "Each number is the mean rank of a model over the class subsets; 1 is the most accurate.",
    )
    worst = float(max(frame[MODEL].nunique(), 2))
    return models_by_ncl(frame, accuracy.RANK, ranks.columns, title, (1.0, worst), best_low=True)


def _several(frame: pd.DataFrame) -> pd.DataFrame:
    """The data sets and protocols of two models or more: one alone has no order."""
    models = frame.groupby([DATASET, PROTOCOL])[MODEL].transform("nunique")
    if len(frame) and not (models > 1).any():
        raise style.NothingToDraw("one model has no order; next: fca run -m model=FIRST,SECOND")
    return frame[models > 1]


def models_by_ncl(
    frame: pd.DataFrame,
    value: Column,
    hover: tuple[Column, ...],
    title: alt.Title,
    domain: tuple[float, float],
    best_low: bool = False,
) -> alt.FacetChart:
    """A heat map of every model, the best at the top and bright, at every ncl; one panel for each protocol."""
    order: Any = "ascending" if best_low else "descending"
    rows = style.names_axis(MODEL, alt.EncodingSortField(value, op="mean", order=order))
    chart = kinds.heat_map(value, style.ncl_axis(gap=0.04), rows, hover, domain, bright_low=best_low)
    fields, tall = (DATASET, MODEL, NCL, PROTOCOL), max(90, 30 * frame[MODEL].nunique())
    return style.faceted(chart, frame, title, fields, height=tall, columns=frame[PROTOCOL].nunique())


def _by_ncl(
    frame: pd.DataFrame, value: Column, hover: tuple[Column, ...], title: alt.Title, axis: Any, **look: Any
) -> alt.FacetChart:
    """Dots with intervals, coloured by protocol; one panel for each data set."""
    frame = _in_order(frame, DATASET)
    coloured, along = kinds.hue(PROTOCOL, frame), style.ncl_axis()
    chart = kinds.points_with_intervals(value, along, hover, coloured, dodge=PROTOCOL, scale=axis, **look)
    return style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL))


def by_protocol(frame: pd.DataFrame, *fields: str, below: bool = False) -> pd.DataFrame:
    """By data set, protocol in its usual order, and ncl, with a panel for each of these fields and the protocol.

    way: the protocol in words; they are long, and stand `below` the others in the heading of the panel.
    """
    ways = pd.Categorical(frame[PROTOCOL].map(PROTOCOL.choices), list(PROTOCOL.choices.values()))
    frame = frame.assign(way=ways).sort_values([DATASET, "way", NCL], kind="stable", ignore_index=True)
    frame = frame.astype({"way": "str"})
    panels = list(style.panels(frame, DATASET, *fields, "way"))
    if below:
        panels = [panel.replace(f" · {way}", f"\n{way}") for panel, way in zip(panels, frame["way"], strict=True)]
    return frame.assign(panel=panels)


def _in_order(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """With a `panel` of these fields, panels in their order."""
    frame = frame.sort_values([*fields, NCL], kind="stable", ignore_index=True)
    return frame.assign(panel=style.panels(frame, *fields))


def gap_headlines(gap: pd.DataFrame) -> Iterator[str]:
    """How sub-models compare with masked full models, and whether they beat open ones, verdict by verdict.

    >>> line = {"dataset": "digits", "ncl": 2, "subsets": 9, "verdict": "not above"}
    >>> line |= {"sub_minus_open": -0.041, "sub_minus_open_low": -0.08, "sub_minus_open_high": -0.002}
    >>> line |= {"sub_minus_masked": -0.05, "sub_minus_masked_low": -0.09, "sub_minus_masked_high": -0.01}
    >>> for sentence in gap_headlines(pd.DataFrame([line])): print(sentence)
    digits: sub-models minus full models limited to the same labels (masked) at ncl 2 (-5.0 [-9.0, -1.0]); points, \
95 % over 9 subsets.
    digits: sub-models are not more accurate than open full models at ncl 2 (-4.1 [-8.0, -0.2]); points, 95 % over 9 \
subsets.
    """
    is_at_chance = lines_at_chance(gap)
    for name, part in gap[is_at_chance].groupby(DATASET, sort=False):
        ncl = small.listed(part[NCL].tolist())
        yield f"{name!s}: no gain is known at ncl {ncl}: sub-models and full models are at the level of chance."

    gap = gap[~is_at_chance]
    for name, part in gap.dropna(subset=accuracy.SUB_MINUS_MASKED).groupby(DATASET, sort=False):
        limited = "sub-models minus full models limited to the same labels (masked)"
        yield f"{name!s}: {limited} at ncl {_points(part, accuracy.SUB_MINUS_MASKED)}."
    for (dataset, verdict), part in gap.groupby([DATASET, accuracy.VERDICT], sort=False):
        yield f"{dataset}: {_VERDICTS[str(verdict)]} at ncl {_points(part, accuracy.SUB_MINUS_OPEN)}."


def _points(part: pd.DataFrame, column: Column) -> str:
    """A difference at each ncl, and its unit; or why it has no interval."""
    at = []
    for ncl, mean, low, high in part[[NCL, *with_interval(column)]].itertuples(index=False):
        at.append(f"{ncl} ({100 * mean:+.1f}" + (")" if pd.isna(low) else f" [{100 * low:+.1f}, {100 * high:+.1f}])"))
    missing, fewest = part[column.low].isna(), part[SUBSETS].min()
    known = [] if missing.all() else [f"95 % over {fewest} subsets"]
    without = f"ncl {', '.join(map(str, part.loc[missing, NCL]))}: " if known else ""
    reason = [f"{without}{NO_MEAN_INTERVAL}"] if missing.any() else []
    return "; ".join([", ".join(at), "points", *known, *reason]).replace("; points; 95", "; points, 95")


def rank_headlines(ranks: pd.DataFrame) -> Iterator[str]:
    """Which model has the best mean rank, protocol by protocol, at which ncl; nothing where there is one model.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2}
    >>> frame = pd.DataFrame([{**line, "model": "a", "rank": 1.2}, {**line, "model": "b", "rank": 1.8}])
    >>> list(rank_headlines(frame))
    ['digits: best by mean rank among sub-models: a (ncl 2).']
    """
    for dataset, part in ranks.groupby(DATASET, sort=False):
        for protocol, name in NAMES.items():
            models = part[part[PROTOCOL] == protocol]
            if style.differs(models[MODEL]):
                yield f"{dataset}: best by mean rank among {name}: {_best(models)}."


def _best(ranks: pd.DataFrame) -> str:
    best: dict[str, list[str]] = {}
    for ncl, same in ranks.groupby(NCL):
        equal_best = small.best_of(same, accuracy.RANK, largest=False)
        if all_at_chance(same):
            names = "none, all are at the level of chance"
        elif len(equal_best) == len(same) > 1:
            names = "none, all are equal"
        else:
            names = small.listed(equal_best[MODEL].tolist())
        best.setdefault(names, []).append(str(ncl))
    return "; ".join(f"{names} (ncl {', '.join(ncl)})" for names, ncl in best.items())


def findings_figure(findings: Table) -> alt.FacetChart:
    """Every measure with its interval, one panel for each data set and unit, over a line where there is no effect."""
    frame = findings.frame.assign(words=findings.frame[UNIT].map(dict(UNIT.choices)))
    frame["panel"] = style.panels(frame, DATASET, "words")
    order = [what for what, _ in MEASURES.values()]
    along = kinds.category(alt.Y, MEASURE, order, labelLimit=480)
    axis = kinds.quantity(alt.X, VALUE, "")
    chart = kinds.points_with_intervals(VALUE, along, findings.columns, scale=axis, line=str(NO_EFFECT))
    title = style.title(
        "Do the findings of Few-Class Arena hold here?",
        "Each dot is the mean over class subsets with its 95 % interval over subset seeds; the dashed line "
        "is no effect.",
        *without_bars(frame.loc[frame[VALUE.low].isna(), VERDICT]),
    )
    drawn = style.faceted(chart, frame, title, (DATASET,), columns=1, row=24)
    return drawn.resolve_scale(x="independent", y="independent")


def without_bars(reasons: pd.Series) -> list[str]:
    """The line of a subtitle that gives the reasons why some values have no interval, if there are any.

    >>> without_bars(pd.Series(["no interval: 3 subset seeds, 5 needed", None]))
    ['Without a bar: 3 subset seeds, 5 needed.']
    """
    shown = "; ".join(reason.removeprefix("no interval: ") for reason in sorted(set(reasons.dropna())))
    return [f"Without a bar: {shown}."] if shown else []


_CLEAR = {
    True: "differs significantly",
    False: "not significant",
    None: "no test: no stored predictions, or no interval of the difference",
}
_DIFFERS = Column("verdict", choices={text: text for text in _CLEAR.values()})
_SOURCE = Column("source", str, "", "source of the spread", {source: source for source in SOURCES.values()})
_SD = Column("sd", float, ".2%", "standard deviation of one accuracy")
_SHARE = Column("share", float, ".0%", "share of the variance")


def paired_figure(paired: Table) -> alt.FacetChart:
    """Every pair's difference in accuracy with its interval, one panel for each ncl (down) and protocol (across)."""
    frame = paired.frame.assign(
        sizes="ncl " + paired.frame[NCL].astype(str),
        pair=paired.frame[comparison.MODEL_A] + " - " + paired.frame[comparison.MODEL_B],
        verdict=[_CLEAR[value] for value in style.cells(paired.frame[comparison.SIGNIFICANT])],
    )
    frame = by_protocol(frame, "sizes", below=True).drop(columns="sizes").sort_values([DATASET, NCL], kind="stable")
    coloured = kinds.hue(_DIFFERS, frame, ("#b0568f", "#7d8590", "#b07d00"), ("circle", "diamond", "square"))
    rows = kinds.category(alt.Y, "pair", list(dict.fromkeys(frame["pair"])))
    chart = kinds.points_with_intervals(comparison.DIFFERENCE, rows, paired.columns, coloured, line=kinds.ZERO)
    title = style.title(
        "Which models differ on the same images?",
        "Each mark is the difference in accuracy on the same class subsets, with its 95 % interval. It is "
        "significant if",
        "McNemar's test, corrected for the number of pairs (Holm), finds a difference and the interval leaves out 0.",
    )
    columns = frame[PROTOCOL].nunique()
    return style.faceted(chart, frame, title, (DATASET, NCL, PROTOCOL), columns=columns, row=24)


def stability_figure(stability: Table) -> alt.FacetChart:
    """The chance of every model to be the best at every ncl as a heat map, one panel for each protocol."""
    known = stability.frame.dropna(subset=comparison.P_BEST)
    if known.empty and stability.frame[NOTE].notna().any():
        raise style.NothingToDraw(stability.frame[NOTE].dropna().iloc[0])
    frame = by_protocol(_several(known), below=True)
    title = style.title(
        "Would other draws of the classes have another winner?",
        "Each number is the share of bootstrap resamples of the subset seeds in which the model is the most accurate.",
    )
    return models_by_ncl(frame, comparison.P_BEST, stability.columns, title, (0.0, 1.0))


def variance_figure(variance: Table) -> alt.FacetChart:
    """The standard deviation of one accuracy by its source, against ncl; one panel for each model and protocol."""
    frame = by_protocol(_long(variance).dropna(subset=_SD), MODEL, below=True)
    frame = frame.sort_values([DATASET, MODEL], kind="stable")
    colours, shapes = (*kinds.CONTRAST[:2], "#2b9c6f", kinds.GREY), ("circle", "diamond", "triangle-up", "square")
    coloured = kinds.hue(_SOURCE, frame, colours, shapes, columns=2)
    rows = kinds.category(alt.Y, NCL, title=NCL.meaning, bands=True)
    # only so far that the dots stay apart: two subsets allow 32 times the dot
    end = min(frame[_SD.high].max(), 3 * frame[_SD].max())
    scale = kinds.quantity(alt.X, _SD, grid=True, padding=0, domain=[0, end if end > 0 else 1])
    hover = (DATASET, MODEL, PROTOCOL, _SOURCE, *with_interval(_SD), _SHARE, *variance.columns[-4:])
    chart = kinds.points_with_intervals(_SD, rows, hover, coloured, dodge=_SOURCE, scale=scale, size=70)
    title = style.title(
        "Where does the spread of accuracies come from?",
        "Each mark is the standard deviation from one source, with its 95 % interval (cut off where it "
        "leaves the panel).",
        "Squared, the sources add up to the variance of the accuracy of one run on one subset.",
    )
    tall = max(110, 64 * frame[NCL].nunique())  # four dots beside each other
    return style.faceted(chart, frame, title, (DATASET, MODEL, NCL, PROTOCOL), height=tall)


def _long(variance: Table) -> pd.DataFrame:
    """One line for each source."""
    same = [DATASET, MODEL, PROTOCOL, NCL, *variance.columns[-4:]]
    drawn = [_SHARE, *with_interval(_SD)]
    parts = []
    for source, share, spread in zip(SOURCES.values(), SHARES, SPREADS, strict=True):
        part = variance.frame[[*same, share, *with_interval(spread)]].set_axis([*same, *drawn], axis="columns")
        parts.append(part.assign(**{_SOURCE: source}))
    return pd.concat(parts, ignore_index=True)


def paired_headlines(paired: pd.DataFrame) -> Iterator[str]:
    """How many pairs differ significantly at each ncl, and how many more seeds the nearest of the others would need.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model_a": "a", "model_b": "b", "told_apart": False}
    >>> line |= {"more_seeds": 7, "more_seeds_low": 2, "more_seeds_high": None, "seeds": 3}
    >>> print(*paired_headlines(pd.DataFrame([line])))
    digits: with 3 subset seeds, pairs of sub-models that differ significantly: 0 of 1 at ncl 2; about 7 more seeds \
would separate a from b at ncl 2 (95 % interval 2 to unbounded).
    """
    for (dataset, protocol), part in paired.groupby([DATASET, PROTOCOL], sort=False):
        tested, pairs = part.dropna(subset=comparison.SIGNIFICANT), f"pairs of {NAMES[str(protocol)]}"
        if tested.empty:
            yield f"{dataset}: {pairs} cannot be tested: no stored predictions, or no interval of the difference."
            continue
        at = [f"{same[comparison.SIGNIFICANT].sum()} of {len(same)} at ncl {ncl}" for ncl, same in tested.groupby(NCL)]
        drawn = int(tested[comparison.SEEDS].max())
        seeds = f"with {drawn} subset seed{'' if drawn == 1 else 's'}"
        others = tested[~tested[comparison.SIGNIFICANT].astype(bool)]
        yield f"{dataset}: {seeds}, {pairs} that differ significantly: {', '.join(at)}{_next(others)}."


def _next(others: pd.DataFrame) -> str:
    """The pair without a significant difference that needs the fewest more seeds."""
    bounded = others[others[comparison.MORE_SEEDS].notna() & (others[comparison.MORE_SEEDS] > 0)]
    if bounded.empty:
        return ""
    line = bounded.sort_values(comparison.MORE_SEEDS, kind="stable").iloc[0]
    high = "unbounded" if pd.isna(line[comparison.MORE_SEEDS.high]) else int(line[comparison.MORE_SEEDS.high])
    pair = f"would separate {line[comparison.MODEL_A]} from {line[comparison.MODEL_B]} at ncl {line[NCL]}"
    interval = f"95 % interval {int(line[comparison.MORE_SEEDS.low])} to {high}"
    more = int(line[comparison.MORE_SEEDS])
    return f"; about {more} more seed{'s' if more > 1 else ''} {pair} ({interval})"


def stability_headlines(stability: pd.DataFrame) -> Iterator[str]:
    """Which model has the best mean accuracy in most resamples of the subset seeds, at each ncl.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model": "a", "p_best": 0.93, "subsets": 5}
    >>> list(stability_headlines(pd.DataFrame([line, {**line, "model": "b", "p_best": 0.07}])))
    ['digits: the best of sub-models in most resamples of the subset seeds: a at ncl 2 (93 % of the resamples).']
    """
    for name, part in stability.groupby(DATASET, sort=False):
        if part[comparison.P_BEST].isna().all():
            yield f"{name!s}: the stability of the order of the models is unknown ({part[NOTE].iloc[0]})."
    known = stability.dropna(subset=comparison.P_BEST)
    for (dataset, protocol), part in known.groupby([DATASET, PROTOCOL], sort=False):
        found: dict[str, list[str]] = {}
        for ncl, same in part.groupby(NCL):
            if all_at_chance(same):
                found.setdefault("none, all are at the level of chance,", []).append(str(ncl))
                continue
            best = small.best_of(same, comparison.P_BEST)
            chance = f"{100 * best[comparison.P_BEST].iloc[0]:.0f} % of the resamples"
            names = small.listed(best[MODEL].tolist()) if len(best) < len(same) else "none, all are equal,"
            found.setdefault(names, []).append(f"{ncl} ({chance}{' each' if len(best) > 1 else ''})")
        at = "; ".join(f"{model} at ncl {', '.join(sizes)}" for model, sizes in found.items())
        yield f"{dataset}: the best of {NAMES[str(protocol)]} in most resamples of the subset seeds: {at}."


def variance_headlines(variance: pd.DataFrame) -> Iterator[str]:
    """Which source has the largest share of the variance, in how many of the models and ncl; by protocol.

    Where init and luck are unknown, the other two have their shares: such lines are counted by themselves.

    >>> line = {"dataset": "digits", "protocol": "sub", "share_subset": 0.6, "share_init": 0.2, "share_luck": 0.1}
    >>> list(variance_headlines(pd.DataFrame([line | {"share_test": 0.1}])))
    ['digits: the largest source of variance of sub-models is the draw of the classes (1 of 1 models and ncl).']
    """
    nouns = {name: f"the {source}" for name, source in SOURCES.items()}
    nouns["luck"] = "luck (which images a training happens to get right)"
    names = {str(share): noun for share, noun in zip(SHARES, nouns.values(), strict=True)}
    shared = variance.dropna(subset="share_subset")
    shared = shared.assign(has_several_inits=shared["share_init"].notna())
    for (dataset, protocol, has_several_inits), part in shared.groupby(
        [DATASET, PROTOCOL, "has_several_inits"], sort=False
    ):
        shares = part[SHARES].rename(columns=names)
        is_largest = shares.eq(shares.max(axis="columns"), axis="index")
        largest_alone = is_largest[is_largest.sum(axis="columns") == 1].idxmax(axis="columns").value_counts()
        sources = [f"{source} ({n} of {len(part)} models and ncl)" for source, n in largest_alone.items()]
        if not sources:
            yield f"{dataset}: no source of variance of {NAMES[str(protocol)]} is larger than the others."
            continue
        alone = "" if has_several_inits else "; with one initialisation, its share and luck are within the other two"
        yield f"{dataset}: the largest source of variance of {NAMES[str(protocol)]} is {', '.join(sources)}{alone}."


FIGURES = (
    Figure("accuracy", "Accuracy", (accuracy.ACCURACY_POINTS, accuracy.ACCURACY_MEANS), accuracy_figure),
    Figure("gap", "Sub-models against full models", (accuracy.GAP,), gap_figure),
    Figure("dcn", "The best model (DCN)", (accuracy.DCN,), dcn_figure),
    Figure("ranks", "Ranks of the models", (accuracy.RANKS,), ranks_figure),
    Figure("rank_agreement", "Ranks on all classes", (accuracy.RANK_AGREEMENT,), agreement_figure),
    Figure("findings", "Findings of Few-Class Arena", (FINDINGS,), findings_figure),
    Figure("paired", "Models on the same images", (comparison.PAIRED,), paired_figure),
    Figure("rank_stability", "Stability of the order", (comparison.RANK_STABILITY,), stability_figure),
    Figure("variance", "Where accuracy varies", (VARIANCE,), variance_figure),
)
HEADLINES = {
    accuracy.GAP.name: gap_headlines,
    accuracy.RANKS.name: rank_headlines,
    comparison.PAIRED.name: paired_headlines,
    comparison.RANK_STABILITY.name: stability_headlines,
    VARIANCE.name: variance_headlines,
}
