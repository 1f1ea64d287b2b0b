"""Figures and headlines of analysis=failure_search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

import altair as alt
import pandas as pd

from fca.report import kinds, style
from fca.report.figure import Figure
from fca.studies.search import failures as of
from fca.types import Column, Table, with_interval

_KINDS = {"search": "in the search", "fresh": "on fresh images", "fresh_outside": "on fresh images outside all rules"}
WHERE = Column("where", str, "", "images", _KINDS)
MEASURED = Column("measured", float, ".1%", "accuracy")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e79a5b", "#7fc9a8")  # a partial search and its model are alike


def values_figure(values: Table) -> alt.FacetChart:
    """Mean accuracy of every attribute value, a panel a search; a complete one beside its parts."""
    frame = values.frame.assign(panel=style.panels(values.frame, of.SEARCH))
    frame["named"] = frame[of.ATTRIBUTE] + ": " + frame[of.VALUE].astype(str)
    along = kinds.category(alt.Y, "named", frame["named"].drop_duplicates().tolist(), bands=True)
    several = style.differs(frame[of.ESTIMATE])
    coloured = kinds.hue(of.ESTIMATE, frame, _COLOURS, legend=several, columns=1)
    look: dict[str, Any] = {"scale": kinds.quantity(alt.X, of.ACCURACY, "mean accuracy", nice=False), "size": 45}
    look["dodge"] = of.ESTIMATE if several else None
    chart = kinds.points_with_intervals(of.ACCURACY, along, values.columns, coloured, **look)
    title = style.title(
        "Which attribute values make the classifier fail?",
        "Each mark is the mean accuracy over subdomains with its 95 % interval. What a policy visits is no "
        "random sample of the domain;",
        "its model estimates all subdomains, visited or not.",
    )
    return style.faceted(chart, frame, title, (of.SEARCH,), columns=2, row=5 if several else 18)


def pairs_figure(pairs: Table) -> alt.FacetChart:
    """Heat maps of two attributes, a panel a search and estimate."""
    frame = pairs.frame.assign(estimated=pairs.frame[of.ESTIMATE].map(dict(of.ESTIMATE.choices)))
    names = frame[of.ATTRIBUTE] + " and " + frame[of.OTHER]
    frame["panel"] = style.panels(frame, of.SEARCH) + "\n" + names + ": " + frame["estimated"]
    x = alt.X(f"{of.OTHER_VALUE}:N", title=None, sort=None, axis=alt.Axis(labelAngle=-30))
    chart = kinds.heat_map(of.ACCURACY, x, style.names_axis(of.VALUE, None), pairs.columns, (0.0, 1.0))
    title = style.title(
        "Which pairs of attribute values make the classifier fail?", "Each cell is the mean accuracy over subdomains."
    )
    drawn = style.faceted(chart, frame, title, (of.SEARCH,), columns=2, row=34)
    return drawn.resolve_scale(x="independent", y="independent")


def rules_figure(rules: Table, *_: Table) -> alt.FacetChart:
    """Accuracy under each condition: in the search, on fresh images, and on fresh images outside all rules."""
    parts = []
    for where, column in zip(WHERE.choices, (of.ACCURACY, of.FRESH, of.FRESH_OUTSIDE), strict=True):
        measured = (rules.frame.get(end, float("nan")) for end in with_interval(column))
        parts.append(rules.frame.assign(where=where, **dict(zip(with_interval(MEASURED), measured, strict=True))))
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.assign(panel=style.panels(frame, of.SEARCH), named=frame[of.RULE] + " (" + frame[of.CONFIRMED] + ")")
    along = kinds.category(alt.Y, "named", frame["named"].drop_duplicates().tolist(), labelLimit=420, bands=True)
    coloured = kinds.hue(WHERE, frame, ("#e79a5b", "#d55e00", kinds.GREY))
    hover = (of.RULE, WHERE, *with_interval(MEASURED), of.VISITED, of.N_SUBDOMAINS, of.FRESH_IMAGES, of.CONFIRMED)
    scale = kinds.quantity(alt.X, MEASURED, domain=[0, 1], padding=0)
    chart = kinds.points_with_intervals(MEASURED, along, hover, coloured, dodge=WHERE, scale=scale, size=60)
    title = style.title(
        "Which few conditions describe the failures, and do they hold on fresh images?",
        "Accuracy in a search tends to be too low, as these conditions were chosen for it; fresh images correct this.",
    )
    return style.faceted(chart, frame, title, (of.SEARCH,), columns=1, row=16)


def accuracies_figure(accuracies: Table, *_: Table) -> alt.FacetChart:
    """How many visited subdomains have which accuracy."""
    frame = accuracies.frame.assign(panel=style.panels(accuracies.frame, of.SEARCH))
    frame["bin"] = [f"{100 * low:.0f} to {100 * low + 10:.0f}" for low in frame["at_least"]]
    x = alt.X("bin:N", title="accuracy (%)", sort=None, axis=alt.Axis(labelAngle=-45))
    y = kinds.quantity(alt.Y, of.VISITED, "visited subdomains", zero=True, padding=0)
    chart = kinds.bars(x, y, accuracies.columns[2:])
    drawn = style.faceted(chart, frame, style.title("How accurate are visited subdomains?"), (of.SEARCH,), columns=2)
    return drawn.resolve_scale(y="independent")


def gallery_figure(gallery: Table) -> alt.FacetChart:
    """Pictures of failures, successes and rejected images, with their prompts."""
    frame = gallery.frame.assign(way=gallery.frame[of.KIND].map(dict(of.KIND.choices)))
    frame["panel"] = style.panels(frame, of.SEARCH, "way")
    frame["below"] = ["" if pd.isna(p) else f"target {p:.2f}" for p in frame["p_target"]]
    frame["lines"] = ["\n".join(wrap(prompt, 17)[:6]) for prompt in frame["prompt"]]
    chart = kinds.pictures(frame, [column for column in gallery.columns if column.number_format], "below", "lines")
    more = 6 * frame["lines"].str.count("\n").max()  # half of what the prompts need beyond one line
    for layer, place in zip(chart.layer, ("yOffset", "dy", "dy"), strict=True):
        layer.mark[place] -= more
    chart.layer[2].mark.lineBreak = "\n"
    title = style.title(
        "What do failures look like?", "Below each picture stand the probability of the target and the prompt."
    )
    tall, wide = (int(frame[name].max()) + 1 for name in ("row", "column"))
    drawn = style.faceted(chart, frame, title, (of.SEARCH,), height=tall * (kinds.SIDE + 36 + 2 * int(more)), columns=1)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, wide * (kinds.SIDE + 30)
    return drawn


def runs_headlines(runs: pd.DataFrame) -> Iterator[str]:
    """How far each search came, what is lowest, and what its means and its policy's model are worth."""
    for line in runs.to_dict("records"):
        name, count, total = line[of.SEARCH], line[of.VISITED], line[of.N_SUBDOMAINS]
        lowest = f"accuracy is lowest, {_percent(line, of.LOWEST)}, for {line[of.CONDITIONS]}"
        equal = line[of.LOWEST_SHARED]
        if count == 1:
            lowest = f"accuracy is {_percent(line, of.LOWEST)} for {line[of.CONDITIONS]}"
        elif equal == count:
            lowest = f"accuracy is {_percent(line, of.LOWEST)} in each"
        elif equal > 1:
            among = f"{equal:,} of them, {line[of.CONDITIONS]} among them"
            lowest = f"accuracy is lowest, {_percent(line, of.LOWEST)}, for {among}"
        visited = f"{count:,} of {total:,} subdomains {'was' if count == 1 else 'were'} visited"
        yield f"{name}: {visited}; {lowest}."
        if count < total and not str(line["policy"]).startswith(("random", "nwise")):
            why = "because the policy looks for low ones"
            yield f"{name}: means of visited subdomains tend to be lower than those of the domain, {why}."
        if pd.notna(line[of.SKILL]) and line[of.SKILL] <= 0:
            covered = "" if pd.isna(line["covering"]) else f"; {100 * line['covering']:.0f} % of choices only cover"
            worth = f"predicts no better than the mean (explained variance {line[of.SKILL]:+.2f})"
            yield f"{name}: the model behind the policy {worth}, so it did not guide the search{covered}."


def rules_headlines(rules: pd.DataFrame) -> Iterator[str]:
    """The conditions under which each classifier fails, by fresh images where there are some.

    >>> line = {"search": "net", "subject": "car", "rule": "sun: no", "accuracy": 0.3, "outside": 0.9}
    >>> print(*rules_headlines(pd.DataFrame([line | {"confirmed": "not tested"}])))
    net: car is recognised in 30 % of images with sun: no, against 90 % where no rule holds; not tested on fresh images.
    """
    for line in rules.to_dict("records"):
        tested = line[of.CONFIRMED] != "not tested"
        value, other = (of.FRESH, of.FRESH_OUTSIDE) if tested else (of.ACCURACY, "outside")
        without_rule = f"{100 * line[other]:.0f} % where no rule holds"
        rate = f"{_percent(line, value)} of images with {line[of.RULE]}, against {without_rule}"
        images = f"{line[of.FRESH_IMAGES]:,} fresh images" if tested else "fresh images"
        no_lower = "" if line[value] < line[other] else ", no fewer"
        recognised = f"{line[of.SUBJECT]} is recognised in {rate}{no_lower}"
        yield f"{line[of.SEARCH]}: {recognised}; {line[of.CONFIRMED]} on {images}."


def values_headlines(values: pd.DataFrame) -> Iterator[str]:
    """What a partial search gets wrong, and how much of it its model corrects."""
    for (search, estimate), part in values.dropna(subset=of.BIAS).groupby([of.SEARCH, of.ESTIMATE], sort=False):
        if estimate in of.PARTS:
            worst = part.sort_values(of.BIAS, key=abs).iloc[-1]
            size = part.groupby(of.ATTRIBUTE)[of.VISITED].sum().max()
            model = values[(values[of.SEARCH] == search) & (values[of.ESTIMATE] == f"{estimate} model")]
            wrong = f"{100 * abs(worst[of.BIAS]):.0f} points too {'low' if worst[of.BIAS] < 0 else 'high'}"
            off = f"{100 * model[of.BIAS].abs().max():.0f} points"
            puts = (
                f"a search of {size:,} subdomains by {estimate} puts {worst[of.ATTRIBUTE]}: {worst[of.VALUE]} {wrong}"
            )
            yield f"{search}: {puts}; its model, averaged over all subdomains, is off by at most {off}."


def causes_headlines(causes: pd.DataFrame) -> Iterator[str]:
    """How many of the lowest subdomains are whose failure."""
    for search, part in causes.groupby(of.SEARCH, sort=False):
        counts = part[of.CAUSE].value_counts().reindex(list(of.CAUSE.choices)).dropna()
        found = "; ".join(f"{of.CAUSE.choices[str(cause)]} ({int(n)})" for cause, n in counts.items())
        subdomains = "the lowest subdomain" if len(part) == 1 else f"the {len(part)} lowest subdomains"
        yield f"{search}: {subdomains}: {found}."


def agreement_headlines(agreement: pd.DataFrame) -> Iterator[str]:
    """Whether two classifiers fail under the same conditions."""
    for line in agreement.dropna(subset=of.RHO).to_dict("records"):
        ends = "" if pd.isna(line[of.RHO.low]) else f" [{line[of.RHO.low]:+.2f}, {line[of.RHO.high]:+.2f}]"
        rho = f"rank correlation {line[of.RHO]:+.2f}{ends} over {line[of.VISITED]:,} subdomains"
        both = f"their worst tenths share {_percent(line, of.OVERLAP)}, by chance {100 * line['chance']:.0f} %"
        yield f"{line[of.SEARCH]} and {line['compared']}: {rho}; {both}."


def _percent(line: Mapping[Any, Any], column: Column) -> str:
    ends = "" if pd.isna(line.get(column.low)) else f" [{100 * line[column.low]:.0f}, {100 * line[column.high]:.0f}]"
    return f"{100 * line[column]:.0f} %{ends}"


FIGURES = (
    Figure("search_rules", "Conditions of failure", (of.RULES, of.RUNS), rules_figure),
    Figure("search_values", "Accuracy by attribute value", (of.VALUES,), values_figure),
    Figure("search_pairs", "Accuracy by pair of values", (of.PAIRS,), pairs_figure),
    Figure("search_accuracies", "Accuracies", (of.BINS, of.CAUSES, of.AGREES), accuracies_figure),
    Figure("search_gallery", "Pictures", (of.GALLERY,), gallery_figure),
)
HEADLINES = {
    of.RUNS.name: runs_headlines,
    of.RULES.name: rules_headlines,
    of.VALUES.name: values_headlines,
    of.CAUSES.name: causes_headlines,
    of.AGREES.name: agreement_headlines,
}
