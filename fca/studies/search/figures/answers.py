"""What a search for failures answers at the top of a page, the most useful first."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fca.report import small
from fca.report.figure import Answer
from fca.report.small import interval
from fca.studies.search import benchmark
from fca.studies.search import failures as of
from fca.studies.table import DATASET
from fca.types import Column, with_interval

Found = tuple[str, Any] | None
SHARE = Column("share", float, ".0%", "accuracy")
WHERE = Column("where", str, "", "images")
FOUND = Column("found", float, ".0%", "share of all subdomains")
RHO = Column(of.RHO, float, "+.2f", "rank correlation")


def rule_answer(rules: pd.DataFrame) -> Found:
    """The condition under which accuracy is lowest, by fresh images if there are any, confirmed by them if one is.

    >>> line = {"search": "car, net", "subject": "car", "rule": "time: night", "accuracy": 0.3, "outside": 0.9}
    >>> print(rule_answer(pd.DataFrame([line | {"confirmed": "not tested"}]))[0])
    net recognises car in 30 % of images with time: night, and in 90 % where no rule holds; not tested on fresh images.
    """
    tested = rules[rules[of.CONFIRMED] != "not tested"]
    held = tested[tested[of.CONFIRMED] == "confirmed"]
    tested = held if len(held) else tested
    inside, outside = (of.FRESH, of.FRESH_OUTSIDE) if len(tested) else (of.ACCURACY, "outside")
    line = (tested if len(tested) else rules).sort_values(inside, kind="stable").iloc[0].to_dict()
    ends = {SHARE.low: line.get(inside.low), SHARE.high: line.get(inside.high)}
    rate = interval({SHARE: line[inside], **ends}, SHARE)
    without_rule = f"{interval({SHARE: line[outside]}, SHARE)} where no rule holds"
    where = f"{rate} of images with {line[of.RULE]}, and in {without_rule}"
    confirmed = f"{line[of.CONFIRMED]} on fresh images"
    both = [{WHERE: line[of.RULE], SHARE: line[inside], **ends}, {WHERE: "where no rule holds", SHARE: line[outside]}]
    shown = pd.DataFrame(both, columns=[WHERE, *with_interval(SHARE)])
    who = str(line[of.SEARCH]).removeprefix(f"{line[of.SUBJECT]}, ")
    sentence = f"{who} recognises {line[of.SUBJECT]} in {where}; {confirmed}."
    if not line[inside] < line[outside]:
        sentence = f"No condition: {who} recognises {line[of.SUBJECT]} in {where}; {confirmed}."
    return sentence, small.dots(shown, WHERE, SHARE, (WHERE, *with_interval(SHARE)))


def value_answer(values: pd.DataFrame) -> Found:
    """The attribute value with the lowest mean accuracy.

    >>> line = {"search": "net", "estimate": "search", "attribute": "time", "accuracy_low": 0.2, "accuracy_high": 0.4}
    >>> lines = [line | {"value": "day", "accuracy": 0.9}, line | {"value": "night", "accuracy": 0.3}]
    >>> print(value_answer(pd.DataFrame(lines))[0])
    Accuracy is lowest with time: night, at 30 % [20, 40] (net).
    """
    known = values.dropna(subset=of.ACCURACY)
    if known.empty:
        return None
    first = known[(known[[of.SEARCH, of.ESTIMATE]] == known[[of.SEARCH, of.ESTIMATE]].iloc[0]).all(axis="columns")]
    part = first.sort_values(of.ACCURACY, kind="stable").assign(named=first[of.ATTRIBUTE] + ": " + first[of.VALUE])
    line, mean = part.iloc[0].to_dict(), Column(of.ACCURACY, float, ".0%", "mean accuracy")
    lowest = f"Accuracy is lowest with {line['named']}, at {interval(line, mean)}"
    lowest_values = small.best_of(part, mean, largest=False)["named"].tolist()
    if len(lowest_values) == len(part):
        lowest = f"None: accuracy is {interval(line, mean)} with every value"
    elif len(lowest_values) > 1:
        lowest = f"Accuracy is lowest with {small.listed(lowest_values)}, at {interval(line, mean)} each"
    named = Column("named", str, "", "attribute value")
    return f"{lowest} ({line[of.SEARCH]}).", small.dots(part, "named", mean, (named, *with_interval(mean)))


def policy_answer(found: pd.DataFrame) -> Found:
    """The policy that has visited the worst tenth first.

    >>> line = {"dataset": "zoo", "policy": "bo", "seeds": 10, "all_found": 0.42}
    >>> print(policy_answer(pd.DataFrame([line | {"all_found_least": 0.36, "all_found_most": 0.5}]))[0])
    On zoo, bo finds all of the worst tenth after 42 % [36, 50] of the subdomains (range of 10 searches).
    """
    known = found.dropna(subset=benchmark.ALL)
    if known.empty:
        return None
    ends = {benchmark.ALL: FOUND, benchmark.LEAST: FOUND.low, benchmark.MOST: FOUND.high}
    part = known.rename(columns=ends).sort_values(FOUND, kind="stable").drop_duplicates(benchmark.POLICY)
    line = part.iloc[0].to_dict()
    searches = "one search" if line[benchmark.SEEDS] == 1 else f"range of {line[benchmark.SEEDS]} searches"
    after = f"{interval(line, FOUND)} of the subdomains ({searches})"
    fastest = small.best_of(part, FOUND, largest=False)[benchmark.POLICY].tolist()
    verb = "finds" if len(fastest) == 1 else "each find"
    sentence = f"On {line[DATASET]}, {small.listed(fastest)} {verb} all of the worst tenth after {after}."
    return sentence, small.dots(part, benchmark.POLICY, FOUND, (benchmark.POLICY, *with_interval(FOUND)))


def agreement_answer(agreement: pd.DataFrame) -> Found:
    """Whether two classifiers fail under the same conditions.

    >>> line = {"search": "a", "compared": "b", "rho": 0.6, "rho_low": 0.5, "rho_high": 0.7}
    >>> print(agreement_answer(pd.DataFrame([line]))[0])
    a and b agree on which conditions are hard: rank correlation +0.60 [+0.50, +0.70].
    """
    known = agreement.dropna(subset=of.RHO)
    if known.empty:
        return None
    shown = known.assign(pair=known[of.SEARCH] + " and " + known["compared"])
    line = shown.iloc[0].to_dict()
    alike = "agree" if line[RHO.low] > 0 else "do not significantly agree"
    if line[RHO.high] < 0:
        alike = "disagree"
    elif pd.isna(line[RHO.low]):
        alike = "may or may not agree (no interval)"
    what = f"{line[of.SEARCH]} and {line['compared']} {alike} on which conditions are hard"
    pair = Column("pair", str, "", "classifiers")
    drawn = small.dots(shown, "pair", RHO, (pair, *with_interval(RHO)), line=0.0)
    return f"{what}: rank correlation {interval(line, RHO)}.", drawn


ANSWERS = (
    Answer("When does the classifier fail?", (of.RULES,), rule_answer),
    Answer("Which attribute value is worst?", (of.VALUES,), value_answer),
    Answer("How fast are failures found?", (benchmark.FOUND,), policy_answer),
    Answer("Do two classifiers fail alike?", (of.AGREES,), agreement_answer),
)
