"""Figures and statements of analysis=failure_search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, small, style
from fca.report.finding import Statement
from fca.report.small import format_with_interval
from fca.studies.search import failures as analysis
from fca.studies.search.columns import ACCURACY, N_SUBDOMAINS, N_VISITED, SUBJECT
from fca.tables.table import ATTRIBUTE
from fca.types import Column, Table, interval_columns

_KINDS = {"search": "in the search", "fresh": "on fresh images", "fresh_outside": "on fresh images outside all rules"}
WHERE = Column("where", str, "", "images", _KINDS)
MEASURED = Column("measured", float, ".1%", "accuracy")
SHARE = MEASURED.with_format(".0%")  # in sentences
MEAN = ACCURACY.with_format(".0%", "mean accuracy")
VALUE_NAME = Column("value_name", str, "", "attribute value")
PAIR = Column("pair", str, "", "classifiers")
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#e79a5b",
    "#7fc9a8",
)  # a partial search and its model have similar colours


def values_figure(values: Table) -> alt.FacetChart:
    """Mean accuracy of every attribute value, with a panel for each search.

    Colours show what the means are estimated from:

    - the subdomains that the search visited;
    - the part of them that a policy would visit first, if the search visited all subdomains;
    - the accuracies of all subdomains that the policy's model predicts from this part.

    values: the table search_values.
    """
    frame = values.frame.assign(panel=style.panels(values.frame, analysis.SEARCH))
    frame["named"] = frame[ATTRIBUTE] + ": " + frame[analysis.VALUE].astype(str)
    has_several_estimates = style.differs(frame[analysis.ESTIMATE])

    along = kinds.category(alt.Y, "named", frame["named"].drop_duplicates().tolist(), bands=True)
    coloured = kinds.hue(analysis.ESTIMATE, frame, _COLOURS, legend=has_several_estimates, columns=1)
    chart = kinds.points_with_intervals(
        ACCURACY,
        along,
        values.columns,
        coloured,
        scale=kinds.quantity(alt.X, ACCURACY, "mean accuracy", nice=False),
        size=45,
        dodge=analysis.ESTIMATE if has_several_estimates else None,
    )

    title = style.title(
        "Which attribute values make the classifier fail?",
        "Each mark is the mean accuracy over subdomains with its 95 % interval. What a policy visits is no "
        "random sample of the domain;",
        "its model estimates all subdomains, visited or not.",
    )
    # pixels for each value, or for each of its estimates if there are several
    row_height = 5 if has_several_estimates else 18
    return style.faceted(chart, frame, title, (analysis.SEARCH,), columns=2, row=row_height)


def pairs_figure(pairs: Table) -> alt.FacetChart:
    """Heat maps of mean accuracy by the values of two attributes, with a panel for each search and estimate.

    pairs: the table search_pairs.
    """
    frame = pairs.frame.assign(estimated=pairs.frame[analysis.ESTIMATE].map(dict(analysis.ESTIMATE.choices)))
    attributes = frame[ATTRIBUTE] + " and " + frame[analysis.OTHER_ATTRIBUTE]
    frame["panel"] = style.panels(frame, analysis.SEARCH) + "\n" + attributes + ": " + frame["estimated"]

    x = alt.X(f"{analysis.OTHER_VALUE}:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30))
    y = style.names_axis(analysis.VALUE, None)
    chart = kinds.heat_map(ACCURACY, x, y, pairs.columns, (0.0, 1.0))
    title = style.title(
        "Which pairs of attribute values make the classifier fail?", "Each cell is the mean accuracy over subdomains."
    )
    figure = style.faceted(chart, frame, title, (analysis.SEARCH,), columns=2, row=34)
    return figure.resolve_scale(x="independent", y="independent")  # panels may show different attributes


def rules_figure(rules: Table) -> alt.FacetChart:
    """Accuracy under the condition of each rule: in the search, on fresh images, and on fresh images outside all rules.

    Each of the three has a colour. The name of a condition has the verdict on its rule, such as "confirmed", in
    brackets.

    rules: the table search_rules.
    """
    # one part for each of the three accuracies, under the common name MEASURED
    frames = []
    for where, column in zip(WHERE.choices, (ACCURACY, analysis.FRESH, analysis.FRESH_OUTSIDE), strict=True):
        ends = zip(interval_columns(MEASURED), interval_columns(column), strict=True)
        measured = {end: rules.frame.get(source, float("nan")) for end, source in ends}  # ACCURACY has no interval
        frames.append(rules.frame.assign(where=where, **measured))
    frame = pd.concat(frames, ignore_index=True)
    frame = frame.assign(
        panel=style.panels(frame, analysis.SEARCH),
        named=frame[analysis.RULE] + " (" + frame[analysis.CONFIRMED] + ")",
    )

    along = kinds.category(alt.Y, "named", frame["named"].drop_duplicates().tolist(), labelLimit=420, bands=True)
    coloured = kinds.hue(WHERE, frame, ("#e79a5b", "#d55e00", kinds.GREY))
    hover = (
        analysis.RULE,
        WHERE,
        *interval_columns(MEASURED),
        N_VISITED,
        N_SUBDOMAINS,
        analysis.FRESH_IMAGES,
        analysis.CONFIRMED,
    )
    scale = kinds.quantity(alt.X, MEASURED, domain=[0, 1], padding=0)
    chart = kinds.points_with_intervals(MEASURED, along, hover, coloured, dodge=WHERE, scale=scale, size=60)
    title = style.title(
        "Which few conditions describe the failures, and do they hold on fresh images?",
        "Accuracy in a search tends to be too low, as these conditions were chosen for it; fresh images correct this.",
    )
    return style.faceted(chart, frame, title, (analysis.SEARCH,), columns=1, row=16)


def accuracies_figure(accuracies: Table) -> alt.FacetChart:
    """How many visited subdomains have an accuracy in each tenth of 0 to 100 %, with a panel for each search.

    accuracies: the table search_accuracies.
    """
    frame = accuracies.frame.assign(panel=style.panels(accuracies.frame, analysis.SEARCH))
    frame["bin"] = [f"{100 * low:.0f} to {100 * low + 10:.0f}" for low in frame[analysis.AT_LEAST]]
    x = alt.X("bin:N", title="accuracy (%)", sort=None, axis=alt.Axis(labelAngle=-45))
    y = kinds.quantity(alt.Y, N_VISITED, "visited subdomains", zero=True, padding=0)
    chart = kinds.bars(x, y, accuracies.columns[2:])  # the first two columns name the search
    figure = style.faceted(chart, frame, style.title(analysis.BINS.question), (analysis.SEARCH,), columns=2)
    return figure.resolve_scale(y="independent")


def gallery_figure(gallery: Table) -> alt.FacetChart:
    """Pictures of failures, successes and rejected images, with the probability of the target and the prompt below.

    There is a panel for each search and kind of picture.    gallery: the table search_gallery.
    """
    frame = gallery.frame.assign(kind_words=gallery.frame[analysis.KIND].map(dict(analysis.KIND.choices)))
    frame["panel"] = style.panels(frame, analysis.SEARCH, "kind_words")
    frame["below"] = ["" if pd.isna(p) else f"target {p:.2f}" for p in frame[analysis.TARGET_PROBABILITY]]
    # a prompt in up to 6 lines of 17 characters, which fit below a picture
    frame["lines"] = ["\n".join(wrap(prompt, 17)[:6]) for prompt in frame[analysis.PROMPT]]
    hover = [column for column in gallery.columns if column.number_format]  # the numeric columns
    chart = kinds.pictures(frame, hover, "below", "lines")

    # the chart has three layers: pictures, probabilities, and prompts of one line. Each further line of a prompt takes
    # 12 pixels below; to stay in the middle of their place, all layers move up by half of what the longest prompt takes
    raised_px = 6 * frame["lines"].str.count("\n").max()
    for layer, offset in zip(chart.layer, ("yOffset", "dy", "dy"), strict=True):
        layer.mark[offset] -= raised_px
    chart.layer[2].mark.lineBreak = "\n"  # the layer of prompts

    title = style.title(
        analysis.GALLERY.question, "Below each picture stand the probability of the target and the prompt."
    )
    # row and column: the place of a picture in its panel, from 0. Pixels for each picture: in height also 36 for the
    # probability and the first line of the prompt, and then its further lines; in width also 30 as a gap
    n_rows = int(frame["row"].max()) + 1
    n_columns = int(frame["column"].max()) + 1
    height = n_rows * (kinds.SIDE + 36 + 2 * int(raised_px))
    figure = style.faceted(chart, frame, title, (analysis.SEARCH,), height=height, columns=1)
    figure.usermeta = kinds.FIXED  # pictures keep their size in the column of a paper
    figure.spec.width = n_columns * (kinds.SIDE + 30)
    return figure


def rules_statements(rules: pd.DataFrame) -> Iterator[Statement]:
    """One statement for each rule: accuracy where it holds, and where no rule holds.

    Rules that fresh images confirmed come first, then the other tested rules, then untested rules; within each group
    the rule with the lowest accuracy comes first. Tested rules are stated with the accuracy on fresh images, as the
    accuracy in the search is too low for a rule that was chosen from it.

    rules: lines of table search_rules.

    >>> line = {"search": "car, net", "subject": "car", "rule": "time: night", "accuracy": 0.3, "outside": 0.9}
    >>> [statement] = rules_statements(pd.DataFrame([line | {"confirmed": "not tested"}]))
    >>> print(statement.sentence)
    net recognises car in 30 % of images with time: night, and in 90 % where no rule holds; not tested on fresh images.
    """
    is_tested = rules[analysis.CONFIRMED] != "not tested"
    is_confirmed = rules[analysis.CONFIRMED] == "confirmed"
    accuracy = rules[ACCURACY].where(~is_tested, rules.get(analysis.FRESH))  # FRESH may be missing if none is tested
    rank = 2 - is_tested - is_confirmed  # 0: confirmed, 1: tested, 2: not tested
    ranked = rules.assign(rank=rank, ranking_accuracy=accuracy)
    for line in ranked.sort_values(["rank", "ranking_accuracy"], kind="stable").to_dict("records"):
        rule_is_tested = line[analysis.CONFIRMED] != "not tested"
        inside = analysis.FRESH if rule_is_tested else ACCURACY
        outside = analysis.FRESH_OUTSIDE if rule_is_tested else analysis.OUTSIDE
        # both have the accuracy as MEASURED; SHARE is the same column, in the number format of sentences
        within = {WHERE: line[analysis.RULE], **_measured(line, inside)}
        elsewhere = {WHERE: "where no rule holds", MEASURED: line[outside]}

        # the name of a search begins with its subject, which the sentence names after "recognises"
        classifier = str(line[analysis.SEARCH]).removeprefix(f"{line[SUBJECT]}, ")
        images = f"{line[analysis.FRESH_IMAGES]:,} fresh images" if rule_is_tested else "fresh images"
        is_lower = line[inside] < line[outside]  # else the sentence denies that this condition describes failures
        sentence = (
            f"{'' if is_lower else 'No condition: '}{classifier} recognises {line[SUBJECT]} in "
            f"{format_with_interval(within, SHARE)} of images with {line[analysis.RULE]}, and in "
            f"{format_with_interval(elsewhere, SHARE)} where no rule holds; {line[analysis.CONFIRMED]} on {images}."
        )
        frame = pd.DataFrame([within, elsewhere], columns=[WHERE, *interval_columns(SHARE)])
        yield Statement(sentence, small.dots(frame, WHERE, SHARE, (WHERE, *interval_columns(SHARE))))


def values_statements(values: pd.DataFrame) -> Iterator[Statement]:
    """For each search, the attribute value of lowest mean accuracy, and the largest error of each partial search.

    A partial search visits a part of the subdomains of a complete search, by one of PARTIAL_POLICIES.

    values: lines of table search_values.

    >>> line = {"search": "net", "estimate": "visited", "attribute": "time", "accuracy_low": 0.2, "accuracy_high": 0.4}
    >>> lines = [line | {"value": "day", "accuracy": 0.9}, line | {"value": "night", "accuracy": 0.3}]
    >>> [statement] = values_statements(pd.DataFrame(lines).assign(bias=None))
    >>> print(statement.sentence)
    Accuracy is lowest with time: night, at 30 % [20, 40] (net).
    """
    for search, lines in values.groupby(analysis.SEARCH, sort=False):
        with_accuracy = lines.dropna(subset=ACCURACY)
        if len(with_accuracy):
            first_estimate = with_accuracy[analysis.ESTIMATE].iloc[0]  # that of the search itself comes first
            yield _lowest_value(str(search), with_accuracy[with_accuracy[analysis.ESTIMATE] == first_estimate])

        # only the estimates of partial searches have a bias
        for name, partial_search in lines.dropna(subset=analysis.BIAS).groupby(analysis.ESTIMATE, sort=False):
            estimate = str(name)
            if estimate in analysis.PARTIAL_POLICIES:  # the model of the policy is part of the same statement
                model_lines = lines[lines[analysis.ESTIMATE] == f"{estimate} model"]
                yield Statement(f"{search}: {_partial_bias(estimate, partial_search, model_lines)}.")


def _lowest_value(search: str, values: pd.DataFrame) -> Statement:
    """A sentence on the attribute value with the lowest accuracy, and a small figure of all values.

    The sentence names all values that share the lowest accuracy. If all values share it, it begins with "None", as an
    answer to the question of the finding: which attribute values make the classifier fail?

    values: lines of table search_values of one search and estimate, all with an accuracy.
    """
    named = values.assign(**{VALUE_NAME: values[ATTRIBUTE] + ": " + values[analysis.VALUE]})
    ordered = named.sort_values(ACCURACY, kind="stable")
    # MEAN is the column ACCURACY, in the number format of sentences
    accuracy = format_with_interval(ordered.iloc[0].to_dict(), MEAN)
    lowest = small.best_of(ordered, MEAN, largest=False)[VALUE_NAME].tolist()
    if len(lowest) == len(ordered):
        text = f"None: accuracy is {accuracy} with every value"
    elif len(lowest) > 1:
        text = f"Accuracy is lowest with {small.listed(lowest)}, at {accuracy} each"
    else:
        text = f"Accuracy is lowest with {lowest[0]}, at {accuracy}"
    return Statement(
        f"{text} ({search}).", small.dots(ordered, VALUE_NAME, MEAN, (VALUE_NAME, *interval_columns(MEAN)))
    )


def _partial_bias(policy: str, partial_search: pd.DataFrame, model_lines: pd.DataFrame) -> str:
    """Words on the largest error of a partial search's means, and on the largest error of its policy's model.

    partial_search, model_lines: lines of table search_values with BIAS, the error.
    """
    worst = partial_search.sort_values(analysis.BIAS, key=abs).iloc[-1]
    # the values of any one attribute divide the visited subdomains among them
    n_subdomains = partial_search.groupby(ATTRIBUTE)[N_VISITED].sum().max()
    error = f"{100 * abs(worst[analysis.BIAS]):.0f} points too {'low' if worst[analysis.BIAS] < 0 else 'high'}"
    model_error = f"{100 * model_lines[analysis.BIAS].abs().max():.0f} points"
    value = f"{worst[ATTRIBUTE]}: {worst[analysis.VALUE]}"
    estimate = f"a search of {n_subdomains:,} subdomains by {policy} puts {value} {error}"
    return f"{estimate}; its model, averaged over all subdomains, is off by at most {model_error}"


def agreement_statements(agreement: pd.DataFrame) -> Iterator[Statement]:
    """For each pair of classifiers, whether they fail under the same conditions.

    They agree if the whole interval of the rank correlation is above 0, and disagree if it is below 0.

    agreement: lines of table search_agreement; those without a correlation are left out.

    >>> line = {"search": "a", "compared": "b", "rho": 0.6, "rho_low": 0.5, "rho_high": 0.7, "n_visited": 90}
    >>> [statement] = agreement_statements(pd.DataFrame([line | {"overlap": 0.4, "chance": 0.1}]))
    >>> print(statement.sentence)
    a and b agree on which conditions are hard: rank correlation +0.60 [+0.50, +0.70] over 90 subdomains; \
their worst tenths share 40 %, by chance 10 %.
    """
    pairs = agreement.dropna(subset=analysis.AGREEMENT_RHO)
    pairs = pairs.assign(**{PAIR: pairs[analysis.SEARCH] + " and " + pairs[analysis.COMPARED]})
    hover = (PAIR, *interval_columns(analysis.AGREEMENT_RHO))
    for line in pairs.to_dict("records"):
        if pd.isna(line[analysis.AGREEMENT_RHO.low]):
            agree = "may or may not agree (no interval)"
        elif line[analysis.AGREEMENT_RHO.low] > 0:
            agree = "agree"
        elif line[analysis.AGREEMENT_RHO.high] < 0:
            agree = "disagree"
        else:
            agree = "do not significantly agree"

        rho = (
            f"rank correlation {format_with_interval(line, analysis.AGREEMENT_RHO)} over {line[N_VISITED]:,} subdomains"
        )
        chance = f"{100 * line[analysis.CHANCE]:.0f} %"
        overlap = f"their worst tenths share {_percent(line, analysis.OVERLAP)}, by chance {chance}"
        sentence = f"{line[PAIR]} {agree} on which conditions are hard: {rho}; {overlap}."
        # each figure shows all pairs; its line at 0 is no correlation
        yield Statement(sentence, small.dots(pairs, PAIR, analysis.AGREEMENT_RHO, hover, line=0.0))


def runs_statements(runs: pd.DataFrame) -> Iterator[Statement]:
    """For each search, how much it visited and where accuracy is lowest, with warnings where they apply.

    One warning is about means that are too low, as the policy looked for low accuracy; another about a policy's model
    without skill.

    runs: lines of table search_runs.
    """
    for line in runs.to_dict("records"):
        search = line[analysis.SEARCH]
        n_visited, n_subdomains = line[N_VISITED], line[N_SUBDOMAINS]
        was = "was" if n_visited == 1 else "were"
        visited = f"{n_visited:,} of {n_subdomains:,} subdomains {was} visited"
        yield Statement(f"{search}: {visited}; {_lowest_subdomain(line)}.")

        # the name of the policy, before its options; random and nwise do not look for low accuracy
        is_guided = not str(line["policy"]).startswith(("random", "nwise"))
        if n_visited < n_subdomains and is_guided:
            why = "because the policy looks for low ones"
            yield Statement(f"{search}: means of visited subdomains tend to be lower than those of the domain, {why}.")

        skill = line[analysis.SKILL_OVER_MEAN]
        if pd.notna(skill) and skill <= 0:
            covering = "" if pd.isna(line["covering"]) else f"; {100 * line['covering']:.0f} % of choices only cover"
            prediction = f"predicts no better than the mean (explained variance {skill:+.2f})"
            model = f"the model behind the policy {prediction}, so it did not guide the search{covering}"
            yield Statement(f"{search}: {model}.")


def _lowest_subdomain(line: Mapping[Any, Any]) -> str:
    """Words on the lowest accuracy of a search and the conditions under which it was measured.

    Several visited subdomains may share the lowest accuracy. Then the words give their number, and the conditions of
    the first of them. If all of several subdomains share it, no conditions are named.

    line: of table search_runs.
    """
    accuracy = _percent(line, analysis.LOWEST)
    conditions = line[analysis.CONDITIONS]
    shared_by = line[analysis.LOWEST_SHARED]
    if line[N_VISITED] == 1:
        return f"accuracy is {accuracy} for {conditions}"
    if shared_by == line[N_VISITED]:
        return f"accuracy is {accuracy} in each"
    if shared_by > 1:
        return f"accuracy is lowest, {accuracy}, for {shared_by:,} of them, {conditions} among them"
    return f"accuracy is lowest, {accuracy}, for {conditions}"


def causes_statements(causes: pd.DataFrame) -> Iterator[Statement]:
    """For each search, how many of its lowest subdomains have each cause: the classifier, the condition, ...

    causes: lines of table search_causes.
    """
    for search, lines in causes.groupby(analysis.SEARCH, sort=False):
        counts = lines[analysis.CAUSE].value_counts().reindex(list(analysis.CAUSE.choices)).dropna()
        by_cause = "; ".join(f"{analysis.CAUSE.choices[str(cause)]} ({int(n)})" for cause, n in counts.items())
        subdomains = "the lowest subdomain" if len(lines) == 1 else f"the {len(lines)} lowest subdomains"
        yield Statement(f"{search}: {subdomains}: {by_cause}.")


def _measured(line: Mapping[Any, Any], column: Column) -> dict[str, Any]:
    """An accuracy of this line with its interval, if it has one, as `MEASURED`."""
    return {end: line.get(name) for end, name in zip(interval_columns(MEASURED), interval_columns(column), strict=True)}


def _percent(line: Mapping[Any, Any], column: Column) -> str:
    """A share with its interval, if it has one: `30 % [20, 40]`."""
    value = f"{100 * line[column]:.0f} %"
    if pd.isna(line.get(column.low)):
        return value
    return f"{value} [{100 * line[column.low]:.0f}, {100 * line[column.high]:.0f}]"
