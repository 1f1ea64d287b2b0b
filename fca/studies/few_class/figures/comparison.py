"""Which models differ on the same images, which is the best, and how stable their order is: figures and statements."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.few_class import comparison as tables
from fca.studies.few_class.figures.accuracy import (
    ACCURACY,
    NAMES,
    SEVERAL_MODELS,
    by_protocol,
    models_by_ncl,
    of_first_protocol,
    of_several_models,
)
from fca.studies.few_class.subset_accuracy import SUBSET_SEEDS
from fca.tables.table import DATASET, MODEL, NCL, NOTE, PROTOCOL, SUBSETS, TOP1, VERDICT, all_at_chance
from fca.types import Table, interval_columns

_VERDICT_BY_SIGNIFICANCE = {
    True: "differs significantly",
    False: "not significant",
    None: "no test: no stored predictions, or no interval of the difference",
}
_DIFFERS = VERDICT.with_choices({text: text for text in _VERDICT_BY_SIGNIFICANCE.values()})
LEAD = tables.LEAD.with_format("+.1%", "lead")


def paired_figure(paired: Table) -> alt.FacetChart:
    """The figure of the difference in accuracy of every pair of models, with its interval and the test's verdict.

    There is a row of panels for each data set and ncl, with a panel for each protocol.
    paired: table `paired`, with a line for each pair of models, protocol and ncl.
    """
    is_significant = style.cells(paired.frame[tables.SIGNIFICANT])  # None where missing
    frame = paired.frame.assign(
        sizes="ncl " + paired.frame[NCL].astype(str),
        pair=paired.frame[tables.MODEL_A] + " - " + paired.frame[tables.MODEL_B],
        verdict=[_VERDICT_BY_SIGNIFICANCE[value] for value in is_significant],
    )
    # `sizes` is only part of the headings of panels; below: the protocol starts a new line in them
    frame = by_protocol(frame, "sizes", below=True).drop(columns="sizes")
    # by ncl, then (the sort is stable) by protocol: panels fill row by row
    frame = frame.sort_values([DATASET, NCL], kind="stable")

    pairs = list(dict.fromkeys(frame["pair"]))
    rows = kinds.category(alt.Y, "pair", pairs)
    # one of each for every verdict, in the order of _DIFFERS
    colours = ("#b0568f", "#7d8590", "#b07d00")
    shapes = ("circle", "diamond", "square")
    coloured = kinds.hue(_DIFFERS, frame, colours, shapes)
    chart = kinds.points_with_intervals(tables.LEAD, rows, paired.columns, coloured, line=kinds.ZERO)

    title = style.title(
        "Which models differ on the same images?",
        "Each mark is the difference in accuracy on the same class subsets, with its 95 % interval. It is "
        "significant if",
        "McNemar's test, corrected for the number of pairs (Holm), finds a difference and the interval leaves out 0.",
    )
    columns = frame[PROTOCOL].nunique()  # panels side by side; row: pixels for each pair
    return style.faceted(chart, frame, title, filters=(DATASET, NCL, PROTOCOL), columns=columns, row=24)


def stability_figure(stability: Table) -> alt.FacetChart:
    """The figure of how often each model is the best over bootstrap resamples, at every ncl; a heat map per protocol.

    Raises NothingToDraw, with the reason from the table, if no share is known because there are too few subset seeds.
    stability: table rank_stability.
    """
    with_share = stability.frame.dropna(subset=tables.P_BEST)
    reasons = stability.frame[NOTE].dropna()
    if with_share.empty and len(reasons):
        raise style.NothingToDraw(reasons.iloc[0])

    several_models = of_several_models(with_share)  # a single model is always the best
    frame = by_protocol(several_models, below=True)  # below: the protocol starts a new line in a panel's heading
    title = style.title(
        "Would other draws of the classes have another winner?",
        "Each number is the share of bootstrap resamples of the subset seeds in which the model is the most accurate.",
    )
    ends_of_colours = (0.0, 1.0)  # the lowest and the highest share
    return models_by_ncl(frame, tables.P_BEST, stability.columns, title, ends_of_colours)


def best_model_statements(paired: pd.DataFrame, means: pd.DataFrame) -> Iterator[Statement]:
    """A statement on the most accurate model at the fewest classes, and on its lead over the second best model.

    It is about sub-models if there are any, otherwise about full models. There is no statement if only one number of
    classes is stored, if the fewest classes have only one model, or if the table of pairs lacks the two best.

    paired: lines of table `paired`, of one data set.
    means:  lines of table `accuracy`, of the same data set.

    >>> line = {"dataset": "zoo", "protocol": "sub", "ncl": 2}
    >>> means = [line | {"model": "b", "top1": 0.9}, line | {"model": "a", "top1": 0.8}]
    >>> means += [line | {"ncl": 9, "model": "a", "top1": 0.7}]
    >>> pair = line | {"model_a": "a", "model_b": "b", "significant": True, "difference": -0.1}
    >>> pair |= {"difference_low": -0.15, "difference_high": -0.05}
    >>> [statement] = best_model_statements(pd.DataFrame([pair]), pd.DataFrame(means))
    >>> print(statement.sentence)
    b is the most accurate of 2 sub-models at 2 classes of zoo: +10.0 points [+5.0, +15.0] ahead of a.
    >>> [statement] = best_model_statements(pd.DataFrame([pair | {"significant": False}]), pd.DataFrame(means))
    >>> print(statement.sentence)
    None of 2 sub-models is significantly the best at 2 classes of zoo: b is +10.0 points [+5.0, +15.0] ahead of a.
    """
    # the fewest classes, but not if they are also the most classes, which may be all classes and not few
    lines = of_first_protocol(means)
    below_most_classes = lines[lines[NCL] < lines[NCL].max()]
    at_fewest = below_most_classes[below_most_classes[NCL] == below_most_classes[NCL].min()]
    ordered = at_fewest.sort_values(TOP1, ascending=False, kind="stable")
    n_models = ordered[MODEL].nunique()
    if n_models < 2:
        return

    protocol, ncl = ordered[[PROTOCOL, NCL]].iloc[0]
    models = SEVERAL_MODELS[protocol]
    where = f"at {ncl} classes of {ordered[DATASET].iloc[0]}"
    chart = small.dots(ordered, MODEL, ACCURACY, (MODEL, *interval_columns(ACCURACY), SUBSETS))
    if all_at_chance(ordered):
        yield Statement(f"Not known: {small.all_of(n_models, models)} {where} are at the level of chance.", chart)
        return

    best = small.best_of(ordered, ACCURACY)[MODEL].tolist()
    if len(best) > 1:
        is_every_model = len(best) == n_models
        equal = small.all_of(n_models, models) if is_every_model else f"{small.listed(best)}, of {n_models} {models},"
        yield Statement(f"None alone: {equal} are equally accurate {where}.", chart)
        return

    first, second = ordered[MODEL].iloc[:2]
    pair = _lead(paired, first, second, protocol, ncl)
    if pair is None:  # the two models have no line in the table of pairs
        return

    lead = f"{format_with_interval(pair, LEAD)} ahead of {second}"
    is_significant = pair[tables.SIGNIFICANT]
    if pd.isna(is_significant):  # there was no test
        sentence = f"Not tested: of {n_models} {models} {where}, {first} is {lead}."
    elif is_significant:
        sentence = f"{first} is the most accurate of {n_models} {models} {where}: {lead}."
    else:
        sentence = f"None of {n_models} {models} is significantly the best {where}: {first} is {lead}."
    yield Statement(sentence, chart)


def _lead(paired: pd.DataFrame, first: str, second: str, protocol: str, ncl: int) -> dict[Hashable, Any] | None:
    """The line of table `paired` for two models, whose difference is the accuracy of `first` minus `second`.

    None: the table has no line for these two models, this protocol and this number of classes (`ncl`).
    """
    is_same_setting = (paired[NCL] == ncl) & (paired[PROTOCOL] == protocol)
    is_same_pair = paired[[tables.MODEL_A, tables.MODEL_B]].isin([first, second]).all(axis="columns")
    pairs = paired[is_same_setting & is_same_pair]
    if pairs.empty:
        return None

    pair = pairs.iloc[0].to_dict()
    if pair[tables.MODEL_A] != first:  # the table has second minus first: change the sign, which swaps the bounds
        pair |= {LEAD: -pair[LEAD], LEAD.low: -pair[LEAD.high], LEAD.high: -pair[LEAD.low]}
    return pair


def paired_statements(paired: pd.DataFrame) -> Iterator[Statement]:
    """One statement for each protocol: how many pairs of models differ significantly at each ncl.

    The statement ends with the number of further subset seeds that would make the difference of another pair
    significant, if such a number is known.
    paired: lines of table `paired`, of one data set.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model_a": "a", "model_b": "b", "significant": False}
    >>> line |= {"more_seeds": 7, "more_seeds_low": 2, "more_seeds_high": None, "seeds": 3}
    >>> [statement] = paired_statements(pd.DataFrame([line]))
    >>> print(statement.sentence)
    digits: with 3 subset seeds, pairs of sub-models that differ significantly: 0 of 1 at ncl 2; about 7 more seeds \
would separate a from b at ncl 2 (95 % interval 2 to unbounded).
    """
    dataset = paired[DATASET].iloc[0]
    for protocol, lines_of_protocol in paired.groupby(PROTOCOL, sort=False):
        pairs = f"pairs of {NAMES[str(protocol)]}"
        tested = lines_of_protocol.dropna(subset=tables.SIGNIFICANT)
        if tested.empty:
            reason = "no stored predictions, or no interval of the difference"
            yield Statement(f"{dataset}: {pairs} cannot be tested: {reason}.")
            continue

        counts = []
        for ncl, at_ncl in tested.groupby(NCL):
            counts.append(f"{at_ncl[tables.SIGNIFICANT].sum()} of {len(at_ncl)} at ncl {ncl}")
        n_seeds = int(tested[SUBSET_SEEDS].max())
        seeds = f"with {n_seeds} subset seed{'' if n_seeds == 1 else 's'}"

        is_significant = tested[tables.SIGNIFICANT].astype(bool)
        more_seeds = _more_seeds(tested[~is_significant])
        yield Statement(f"{dataset}: {seeds}, {pairs} that differ significantly: {', '.join(counts)}{more_seeds}.")


def _more_seeds(insignificant: pd.DataFrame) -> str:
    """The pair that needs the fewest further subset seeds to differ significantly, as the end of a sentence.

    The text is empty if the number of seeds is unknown for all pairs, or 0.
    insignificant: lines of table `paired` without a significant difference.
    """
    # a pair that needs 0 more seeds has enough of them: its difference is insignificant for another reason
    has_number = insignificant[tables.MORE_SEEDS].notna() & (insignificant[tables.MORE_SEEDS] > 0)
    pairs_with_number = insignificant[has_number]
    if pairs_with_number.empty:
        return ""

    pair = pairs_with_number.sort_values(tables.MORE_SEEDS, kind="stable").iloc[0]
    high = "unbounded" if pd.isna(pair[tables.MORE_SEEDS.high]) else int(pair[tables.MORE_SEEDS.high])
    models = f"{pair[tables.MODEL_A]} from {pair[tables.MODEL_B]} at ncl {pair[NCL]}"
    bounds = f"95 % interval {int(pair[tables.MORE_SEEDS.low])} to {high}"
    n_more = int(pair[tables.MORE_SEEDS])
    return f"; about {n_more} more seed{'s' if n_more > 1 else ''} would separate {models} ({bounds})"


def stability_statements(stability: pd.DataFrame) -> Iterator[Statement]:
    """One statement for each protocol: which model is the best in most resamples of the subset seeds, at each ncl.

    The best model of a resample is the model with the highest mean accuracy. If the shares of all lines are missing,
    the only statement gives the reason.
    stability: lines of table rank_stability, of one data set.

    >>> line = {"dataset": "digits", "protocol": "sub", "ncl": 2, "model": "a", "p_best": 0.93, "subsets": 5}
    >>> [statement] = stability_statements(pd.DataFrame([line, line | {"model": "b", "p_best": 0.07}]))
    >>> print(statement.sentence)
    digits: the best of sub-models in most resamples of the subset seeds: a at ncl 2 (93 % of the resamples).
    """
    dataset = stability[DATASET].iloc[0]
    with_share = stability.dropna(subset=tables.P_BEST)
    if with_share.empty:
        reason = stability[NOTE].iloc[0]
        yield Statement(f"{dataset}: the stability of the order of the models is unknown ({reason}).")

    for protocol, lines_of_protocol in with_share.groupby(PROTOCOL, sort=False):
        best_by_ncl = _most_often_best(lines_of_protocol)
        models = NAMES[str(protocol)]
        yield Statement(f"{dataset}: the best of {models} in most resamples of the subset seeds: {best_by_ncl}.")


def _most_often_best(stability: pd.DataFrame) -> str:
    """The models that are the best in most resamples, with ncl and share: `a at ncl 2 (93 % of the resamples)`.

    Where all models are at the level of chance, or all are equally often the best, the text is "none" and the reason.
    stability: lines of table rank_stability of one protocol.
    """
    ncl_of_names: dict[str, list[str]] = {}
    for ncl, at_ncl in stability.groupby(NCL):
        if all_at_chance(at_ncl):
            ncl_of_names.setdefault("none, all are at the level of chance,", []).append(str(ncl))
            continue

        best = small.best_of(at_ncl, tables.P_BEST)
        share = f"{100 * best[tables.P_BEST].iloc[0]:.0f} % of the resamples"
        if len(best) > 1:
            share += " each"
        names = "none, all are equal,"
        if len(best) < len(at_ncl):
            names = small.listed(best[MODEL].tolist())
        ncl_of_names.setdefault(names, []).append(f"{ncl} ({share})")

    return "; ".join(f"{names} at ncl {', '.join(sizes)}" for names, sizes in ncl_of_names.items())
