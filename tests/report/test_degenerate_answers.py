"""What every study states when there is next to nothing to say: one model, chance level, no difference.

Tables are made from their declared columns, so that a new finding is covered, too. Run with `-s` to read the sentences.
"""

import importlib
import pkgutil
import re
from functools import partial
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from fca.cli.places import STUDIES, study_folders
from fca.report.page import _NUMBER_WITH_INTERVAL
from fca.tables.table import TableSpec
from fca.types import Column
from tests.support.figure_claims import sentences_of

MODULES = {
    package.rpartition(".")[2]: importlib.import_module(f"{package}.figures")
    for package in study_folders()
    if find_spec(f"{package}.figures") is not None
}
FINDINGS = {
    f"{study}: {finding.key}": finding
    for study, module in MODULES.items()
    for finding in module.FINDINGS
    if finding.state is not None
}
ANSWERS = {  # those that the top of a page asks for, by their question
    f"{key.partition(':')[0]}: {finding.question}": finding for key, finding in FINDINGS.items() if finding.question
}
THINGS = {  # what the lines of a table differ in, where it is not the model
    "paired": "model_a",
    "correlation": "target",
    "prediction": "predictor",
    "difficulty_subsets": "extreme",
    "gap": "ncl",
    "irt_choice": "irt_model",
    "corruption_loss": "corruption",
    "reliability": "corruption",
    "class_robustness": "label",
    "robust_classes": "corruption",
    "segment_classes": "label",
    "reliance_classes": "label",
    "attribute_steps": "attribute",
    "confidence_trends": "value",
    "hierarchy_correlation": "kind",
    "label_error_rules": "rule",
    "failure_values": "value",
    "recommendation_confusions": "label",
    "severity_facet": "corruption",
    "metric_truth": "metric",
    "label_error_curve": "rule",
    "segment_models": "subject",
    "spurious_gap": "subject",
}
NAMES = {  # of such things, where not any name will do
    "target": ["DCN sub", "DCN open", "DCN masked"],
    "predictor": ["simss", "log_ncl", "knn"],
    "extreme": ["hardest", "easiest", "hardest"],
    "kind": ["pearson", "partial", "partial"],
    "ncl": [2, 3, 4],
}
IN_TABLE = {  # cells of one table
    "gap": {"verdict": "undecided"},
    "segment_classes": {"parameter": "difficulty"},
    "confidence_trends": {"by": "attribute", "verdict": "undecided"},
    "contradictions_shown": {"kind": "easy, missed by all"},
    "prediction": {"verdict": "not beyond ncl"},
    "metric_truth": {"verdict": "follows", "cue": "color", "fails": "color"},
    "recommendation": {"on_front": True, "verdict": "recommended"},
    "irt_choice": {"chosen": True},
    "reliance_accuracy": {"protocol": "open"},
    "reliance_classes": {"protocol": "open"},
    "spurious_gap": {"label": "all classes"},
    "object_statistics": {"label": "all classes"},
    "failure_rules": {"confirmed": "confirmed"},
}
ALWAYS_SEVERAL = ("prediction", "difficulty_subsets", "hierarchy_correlation", "irt_choice")  # lines, whatever the case
FIXED = {  # cells that have to be one of a few
    "dataset": "zoo",
    "protocol": "sub",
    "condition": "ablate/gray",
    "severity": 0,
    "segment": "hard",
    "corruption": "clean",
    "quarter": "top",
    "mode": "count",
    "method": "pearson",
    "scope": "all",
    "target": "DCN sub",
    "held_out": "subset seed",
    "estimate": "search",
    "confirmed": "not tested",
    "adaptation": "probe",
    "ncl": 2,
    "trait": "ability",
    "hold_out": "cells",
    "mapping": "Q",
    "who": "stored",
    "trust": None,
    "note": None,
    "predictor": "simss",
    "rule": "low_top1",
    "warning": None,
    "share_flagged": 0.25,
    "kind": "suspect",
    "sign": 1,
    "thumbnail": None,
}
SUPERLATIVE = re.compile(r"\b(most|best|worst|lowest|highest|fewest|least|largest|weakest|hardest|easiest)\b")
DENIED = re.compile(  # of a clause: nothing is the most
    r"^(\w+: )?(none|no|nobody|nothing)\b|\bnobody alone\b|\bis more frequent than the others\b", re.IGNORECASE
)
ONE_OF_EQUALS = re.compile(r"\b(one of \d+ that|among them)\b")
NO_CLAIM = re.compile(  # words of a question or a method, not of the data
    "the 25 % most suspect images|25 % most suspect images|all of the worst tenth|their worst tenths share"
    r"|the (\d+ )?lowest subdomains?: |with the strongest cues of a class than with the weakest"
    r"|always (?:guessing )?the most frequent class|at most|at least|best guess|the best of the [a-z -]*models \(DCN"
    r"|in the (hardest|most discriminating) quarter|, largest error [0-9.]+ points"
    r"|best by mean rank among [a-z -]+: none, all are"
    r"|the best of [a-z -]+ in most resamples of the subset seeds: none, all are"
    "|on which classes keep most of their accuracy"
)
CASES = {
    "one": "one thing, its number without an interval",
    "equal": "three things that are all equal, without intervals",
    "zero": "three things of 0, with intervals around 0",
    "chance": "three equal things at the level of chance",
    "two": "two things that differ",
    "two best": "two equal things and one below them",
    "two worst": "two equal things and one above them",
}
VALUES = {  # of the things, where they differ; the first two of three are equal
    "two": (0.4, 0.6),
    "two best": (0.6, 0.6, 0.4),
    "two worst": (0.4, 0.4, 0.6),
}
TIES = ("two best", "two worst")
SPECS = {
    spec.name: spec
    for study in MODULES
    for module in pkgutil.walk_packages([str(STUDIES / study)], f"fca.studies.{study}.")
    for spec in vars(importlib.import_module(module.name)).values()
    if isinstance(spec, TableSpec)
}


NAMED = {"model", "subject", "policy", "search", *THINGS.values()}
OF_A_TEST = re.compile(  # words for a verdict that the table itself states, which is made up here
    "nothing predicts significantly better than the number|significantly better than ncl alone, each judged by itself"
    "|sub-models and open full models is not significant at|pairs of sub-models that differ significantly: 0 of"
)
EQUAL_NAMES = [f"{thing} {letter}" for thing in NAMED for letter in "ab"]


def frame(spec, case: str) -> pd.DataFrame:
    """A line a thing; numbers as the case has them."""
    columns = [str(column) for column in spec.columns]
    varied = THINGS.get(spec.name, next((c for c in ("model", "subject", "policy", "search") if c in columns), None))
    things = {"one": 1, "two": 2}.get(case, 3)
    things = max(things, 2) if spec.name in ALWAYS_SEVERAL else things
    lines = []
    for number in range(things):
        values = VALUES.get(case, (0.0,) if case == "zero" else (0.5,))
        value = values[number % len(values)]
        line = {str(column): cell(column, value, case) for column in spec.columns} | IN_TABLE.get(spec.name, {})
        if varied is not None:
            [column] = [column for column in spec.columns if column == varied]
            names = NAMES.get(varied) or list(column.choices) or [f"{varied} {letter}" for letter in "abc"]
            line[varied] = names[number % len(names)]
        if spec.name == "irt_choice":
            line["chosen"] = number == 0
        lines.append(line)
    if spec.name == "accuracy":
        lines += [line | {"ncl": 10} for line in lines]
    if spec.name == "paired":
        names = ["model a", "model b", "model c"]
        lines = [lines[0] | {"model_a": a, "model_b": b} for a, b in combinations(names, 2)]
    if spec.name == "confidence_trends" and case in ("one", "equal"):
        lines = [line | {"blocks": 1, "verdict": "not tested"} for line in lines]
    if spec.name == "reliance_accuracy":
        lines += [line | {"condition": "clean"} for line in lines]
    if spec.name == "correlation":
        others = [("simss", "within ncl"), ("ncl", "all")]
        lines += [line | {"predictor": p, "scope": s} for line in lines for p, s in others]
    return pd.DataFrame(lines)


def cell(column: Column, value: float, case: str):
    name = str(column)
    if name.startswith("more_seeds"):
        return value
    if name.endswith(("_low", "_high")):
        spread = {"zero": 0.1, "chance": 0.1, "two": 0.3, "two best": 0.05, "two worst": 0.05}.get(case, 0.0)
        return np.nan if case in ("one", "equal") else value + (spread if name.endswith("_high") else -spread)
    if name == "at_chance":
        return case == "chance"
    if name in FIXED:
        return FIXED[name]
    if column.value_type is str:
        return next(iter(column.choices), name)
    if column.value_type is tuple:
        return ("cat", "dog")
    if column.value_type is bool:
        return False
    return {"zero": 0, "one": 1}.get(case, 6) if column.value_type is int else value


def check(sentence: str, case: str) -> None:
    print(f"{case}: {sentence}")
    if case in ("one", "equal"):
        assert "significant" not in OF_A_TEST.sub("", sentence), f"{case}, without an interval: {sentence}"
    assert not re.search(r"\bnan\b|\bNone,|\b1 [a-z]+s\b of|  |\.\.", sentence), sentence
    for clause in re.split("[;:] ", NO_CLAIM.sub("", sentence)):
        claims = SUPERLATIVE.findall(clause)
        if not claims or case == "two" or DENIED.search(clause) or ONE_OF_EQUALS.search(clause):
            continue
        assert case in TIES, f"{case}: {claims} in: {sentence}"
        named = [name for name in EQUAL_NAMES if name in clause]
        assert not named or len(named) % 2 == 0, f"{case}: {claims} of {named} alone in: {sentence}"


def sentences_in(finding, case: str) -> list[str]:
    """All that a finding states about the tables of a case."""
    return sentences_of(finding.state, *(frame(spec, case) for spec in finding.tables))


def answer_of(question: str, *frames: pd.DataFrame) -> str:
    """What opens a page: the first statement."""
    return next(iter(ANSWERS[question].state(*frames))).sentence


@pytest.mark.wide
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("key", FINDINGS)
def test_findings_claim_nothing_where_there_is_nothing(key, case):
    for sentence in sentences_in(FINDINGS[key], case):
        check(sentence, case)


OF_CONDITIONS = "compares conditions or values with each other; who guesses is right as often under each"
EMPTY_TABLE = "its table has no line of a model at chance (tests/studies/recommend/test_recommendation.py)"
NOT_OF_CHANCE = {  # answers that need not say so of models at the level of chance -> why not
    "irt: How many wrong labels can be found?": "measured against labels that people verified",
    "irt: Does ability agree with accuracy?": "compares two summaries of the same responses, whatever these are",
    "recommend: What does it confuse?": EMPTY_TABLE,
    "recommend: Which labels look wrong?": EMPTY_TABLE,
    "recommend: What did fine-tuning bring?": "a gain over a probe that guesses is a gain, and the interval says so",
    "recommend: What would change the answer?": "says what to try next",
    "reliance: Do spurious cues help?": "a model that guesses gains nothing from cues, and the interval says so",
    "reliance: Shape or texture?": "the interval is compared with 50 %, which is guessing between the two",
    "reliance: How large are the objects?": "a fact of the images",
    "search: When does the classifier fail?": OF_CONDITIONS,
    "search: Which attribute value is worst?": OF_CONDITIONS,
    "search: Do two classifiers fail alike?": OF_CONDITIONS,
    "search: How fast are failures found?": "of a policy: where it looks for the lowest, however low",
}
NAMES_CHANCE = re.compile("Not known|the level of chance|does not exceed significantly")


@pytest.mark.parametrize("question", ANSWERS)
def test_at_the_level_of_chance_nothing_is_derived(question):
    first = sentences_in(ANSWERS[question], "chance")[:1]
    is_called_so = all(NAMES_CHANCE.search(sentence) for sentence in first)
    assert is_called_so != (question in NOT_OF_CHANCE), first


def test_only_answers_that_there_are_need_no_word_of_chance():
    assert set(NOT_OF_CHANCE) <= set(ANSWERS)


@pytest.mark.parametrize("key", [key for key, one in FINDINGS.items() if "at_chance" in one.tables[0].columns])
def test_findings_of_tables_that_know_of_chance_derive_nothing_from_it(key):
    stated = [sentence for sentence in sentences_in(FINDINGS[key], "chance") if "left out are" not in sentence]
    assert all(NAMES_CHANCE.search(sentence) for sentence in stated), stated


def test_a_gain_over_equal_labels_is_the_bold_one_and_that_over_open_labels_has_no_interval():
    finding = ANSWERS["few_class: Does training on only the few classes pay?"]
    [gap] = (frame(spec, "two") for spec in finding.tables)
    gap = gap.assign(sub_minus_open=0.394, sub_minus_masked=-0.003, sub_minus_masked_low=-0.025)
    [sentence, *_] = sentences_of(finding.state, gap.assign(sub_minus_masked_high=0.025))
    [bold] = _NUMBER_WITH_INTERVAL.findall(sentence)
    assert bold == "-0.3 points [-2.5, +2.5]"
    assert sentence.startswith("Not significantly")


def test_each_point_names_its_own_best_model():
    question = "few_class: How accurate is a model of few classes?"
    line = {"dataset": "rendered", "protocol": "sub", "subsets": 5, "top1_low": np.nan, "top1_high": np.nan}
    lines = [("test_vit", 2, 0.831), ("test_resnet", 2, 0.819), ("test_vit", 10, 0.279), ("test_resnet", 10, 0.548)]
    means = pd.DataFrame([line | {"model": model, "ncl": ncl, "top1": top1} for model, ncl, top1 in lines])
    assert answer_of(question, means) == (
        "With 2 classes of rendered, the best of 2 sub-models, test_vit, reaches 83.1 %; with 10, test_resnet, 54.8 %."
    )


MEANS = {"dataset": "rendered", "protocol": "sub", "subsets": 5, "top1_low": np.nan, "top1_high": np.nan}


def few_class_means(*lines) -> pd.DataFrame:
    """Of (model, ncl, accuracy, whether it is at chance)."""
    named = [dict(zip(("model", "ncl", "top1", "at_chance"), line, strict=True)) for line in lines]
    return pd.DataFrame([MEANS | line | {"chance": 1 / line["ncl"]} for line in named])


def test_of_models_that_are_all_at_chance_none_is_named():
    """It read "with 10, vit, 14.0 % (chance: 10.0 %)", as if vit had learned something."""
    question = "few_class: How accurate is a model of few classes?"
    few = [("vit", 2, 0.8, False), ("net", 2, 0.7, False)]
    at_ten = [("vit", 10, 0.14, True), ("net", 10, 0.12, True)]
    assert answer_of(question, few_class_means(*few, *at_ten)) == (
        "With 2 classes of rendered, the best of 2 sub-models, vit, reaches 80.0 %; with 10, both are at the level "
        "of chance (10.0 %)."
    )
    guessing_two = [("vit", 2, 0.56, True), ("net", 2, 0.52, True)]
    assert answer_of(question, few_class_means(*guessing_two, *at_ten)) == (
        "With 2 classes of rendered, both sub-models are at the level of chance (50.0 %); with 10, both are at the "
        "level of chance (10.0 %)."
    )
    assert answer_of(question, few_class_means(few[0], at_ten[0])) == (
        "With 2 classes of rendered, a vit trained on them reaches 80.0 %; with 10, it is at the level of chance "
        "(10.0 %)."
    )


def losses(**by_corruption) -> pd.DataFrame:
    """Of a model called a that is always right on clean images: (loss, low, high) by corruption."""
    lines = []
    for corruption, (loss, low, high) in by_corruption.items():
        line = {"dataset": "zoo", "subject": "a", "corruption": corruption, "at_chance": False, "top1_clean": 1.0}
        line |= {"loss": loss, "loss_low": low, "loss_high": high, "top1_mean": 1 - loss}
        lines.append(line | {"top1_mean_low": np.nan, "top1_mean_high": np.nan})
    return pd.DataFrame(lines)


LOSSES = {  # case -> its losses, both statements
    "all images lose alike": (
        {"fog": (1.0, np.nan, np.nan), "snow": (1.0, np.nan, np.nan)},
        "Of 2 corruptions of zoo, both hurt a as much: 0.0 % right over their severities, 100.0 % on clean images (the "
        "difference has no interval).",
        "zoo: the loss of a under each is +100.0 points.",
    ),
    "one loss without an interval": (
        {"fog": (1.0, np.nan, np.nan), "snow": (0.5, 0.4, 0.6)},
        "Of 2 corruptions of zoo, fog hurts a most: 0.0 % right over its severities, 100.0 % on clean images (the "
        "difference has no interval).",
        "zoo: the largest loss of a, under fog, is +100.0 points; the smallest, under snow, +50.0 points [+40.0, "
        "+60.0].",
    ),
    "no loss": (
        {"fog": (0.0, np.nan, np.nan), "snow": (0.0, np.nan, np.nan)},
        "Of 2 corruptions of zoo, none lowers the accuracy of a: at least 100.0 % right over their severities, 100.0 % "
        "on clean images.",
        "zoo: the loss of a under each is +0.0 points.",
    ),
    "none significant": (
        {"fog": (0.02, -0.01, 0.05), "snow": (0.01, -0.02, 0.04)},
        "Of 2 corruptions of zoo, none lowers the accuracy of a significantly: at least 98.0 % right over its "
        "severities, 100.0 % on clean images.",
        "zoo: the largest loss of a, under fog, is +2.0 points [-1.0, +5.0]; the smallest, under snow, +1.0 points "
        "[-2.0, +4.0].",
    ),
    "equal least": (
        {"fog": (0.4, 0.3, 0.5), "frost": (0.2, 0.1, 0.3), "snow": (0.2, 0.1, 0.3)},
        "Of 3 corruptions of zoo, fog hurts a most: 60.0 % right over its severities, 100.0 % on clean images.",
        "zoo: the largest loss of a, under fog, is +40.0 points [+30.0, +50.0]; the smallest, under frost and snow, "
        "+20.0 points [+10.0, +30.0].",
    ),
}


@pytest.mark.parametrize(("by_corruption", "answered", "extremes"), LOSSES.values(), ids=LOSSES)
def test_a_loss_without_an_interval_is_no_insignificant_one(by_corruption, answered, extremes):
    """All images were right when clean and wrong under fog, and it read "none costs a accuracy significantly"."""
    frame = losses(**by_corruption)
    assert sentences_of(ANSWERS["irt: Which corruption hurts most?"].state, frame) == [answered, extremes]


def gain(difference: float, subsets: int, low=np.nan, high=np.nan) -> str:
    question = "few_class: Does training on only the few classes pay?"
    [table] = (frame(spec, "two").head(1) for spec in ANSWERS[question].tables)
    ends = {"sub_minus_masked": difference, "sub_minus_masked_low": low, "sub_minus_masked_high": high}
    return answer_of(question, table.assign(**ends, subsets=subsets)).partition(" models of all classes")[0]


def test_a_gain_of_one_subset_or_that_is_rounded_to_0_is_not_called_exactly_none():
    assert gain(0.0, 5) == "No: at 2 classes of zoo, sub-models are on average as accurate as"
    assert gain(0.0, 1) == "Not known from one subset: at 2 classes of zoo, sub-models are as accurate as"
    assert gain(0.0004, 1) == (
        "Not known from one subset: at 2 classes of zoo, sub-models differ by less than 0.05 points from"
    )
    assert gain(0.0004, 5).startswith("Not known without an interval: at 2 classes of zoo, sub-models differ by less")
    assert gain(0.1, 1) == "Not known from one subset: at 2 classes of zoo, sub-models differ by +10.0 points from"


def stated_of(name: str, frame: pd.DataFrame) -> list[str]:
    """What the only finding that reads this table alone states about it."""
    [finding] = [one for one in FINDINGS.values() if [table.name for table in one.tables] == [name]]
    return sentences_of(finding.state, frame)


def test_a_lowest_accuracy_that_several_subdomains_have_is_not_that_of_one():
    """It named the first visited of 12 subdomains in which no image was recognised."""
    run = frame(SPECS["search_runs"], "one").assign(n_visited=40, n_subdomains=90, lowest=0.0, conditions="time: night")
    run = run.assign(lowest_low=0.0, lowest_high=0.3)
    visited = "search: 40 of 90 subdomains were visited; accuracy is"
    assert f"{visited} lowest, 0 % [0, 30], for time: night." in stated_of("search_runs", run.assign(lowest_shared=1))
    several = stated_of("search_runs", run.assign(lowest_shared=12))
    assert f"{visited} lowest, 0 % [0, 30], for 12 of them, time: night among them." in several
    assert f"{visited} 0 % [0, 30] in each." in stated_of("search_runs", run.assign(lowest_shared=40))


def test_equally_weak_metrics_are_all_named_the_weakest():
    truth = frame(SPECS["metric_truth"], "two worst")
    [sentence] = stated_of("metric_truth", truth)
    assert "; weakest: metric a and metric b, rank correlation for colour +0.40 [+0.35, +0.45]" in sentence
    [sentence] = stated_of("metric_truth", frame(SPECS["metric_truth"], "equal"))
    assert "; none more weakly than the others, rank correlation for colour +0.50" in sentence


def test_a_correlation_without_an_interval_is_no_agreement():
    """`not nan <= 0` is true, and it read "agree ... correlation +0.50 without interval"."""
    stability = frame(SPECS["class_stability"], "two worst").assign(other="model z")
    on = "on which classes keep most of their accuracy: correlation +0.40"
    assert stated_of("class_stability", stability) == [
        f"zoo: 2 of 3 pairs of models, model a and model z among them, agree least {on} [+0.35, +0.45]."
    ]
    unknown = stability.tail(1).assign(spearman_low=np.nan, spearman_high=np.nan)
    assert stated_of("class_stability", unknown) == [
        "zoo: model c and model z may or may not agree on which classes keep most of their accuracy: correlation +0.60 "
        "without interval."
    ]


def cue_gaps(**by_model) -> pd.DataFrame:
    lines = [
        {"dataset": "zoo", "label": "all classes", "subject": model, "gap": gap, "gap_low": low, "gap_high": high}
        for model, (gap, low, high) in by_model.items()
    ]
    return pd.DataFrame(lines)


def test_a_model_with_a_larger_but_uncertain_gain_does_not_hide_one_that_gains():
    """It read "none of 2 models is significantly more accurate", though b is."""
    question = "reliance: Do spurious cues help?"
    where, weak = "Where the cues of a class of zoo are strong,", "more accurate than where they are weak."
    expected = f"{where} b is +20 points [+10, +30] {weak}"
    b = (0.2, 0.1, 0.3)
    assert answer_of(question, cue_gaps(a=(0.3, -0.05, 0.65), b=b)) == expected
    assert answer_of(question, cue_gaps(a=(0.3, np.nan, np.nan), b=b)) == expected
    found = answer_of(question, cue_gaps(a=(0.2, 0.15, 0.25), b=b))
    assert found == f"{where} a and b are each +20 points {weak}", "their intervals differ"


def steps(*lines) -> pd.DataFrame:
    """Of (attribute, accuracy lost, low, high)."""
    named = [dict(zip(("attribute", "drop", "drop_low", "drop_high"), line, strict=True)) for line in lines]
    return pd.DataFrame([{"dataset": "zoo", "step": "easy to medium"} | line for line in named])


def test_a_step_without_an_interval_costs_nothing_significantly():
    """It read "costs most of those that do so significantly: +10 points (no interval)"."""
    find = partial(answer_of, "progressive: What does a harder level cost?")
    uncertain, untested = ("size", 0.2, -0.05, 0.45), ("pose", 0.1, np.nan, np.nan)
    expected = (
        "On zoo, no step costs accuracy significantly; the step from easy to medium size costs +20 points [-5, +45]."
    )
    assert find(steps(uncertain, untested)) == expected
    assert find(steps(uncertain, ("pose", 1e-17, np.nan, np.nan))) == expected
    assert find(steps(untested, ("size", 0.05, -0.05, 0.15))) == (
        "On zoo, the step from easy to medium pose costs most: +10 points (no interval) of accuracy."
    )
    assert find(steps(untested, ("size", 0.05, 0.01, 0.09))) == (
        "On zoo, the step from easy to medium size costs most of those that do so significantly: +5 points [+1, +9] of "
        "accuracy."
    )


def test_one_metric_that_follows_two_cues_equally_has_no_other_beside_it():
    truth = frame(SPECS["metric_truth"], "equal").head(1)
    both = pd.concat([truth, truth.assign(cue="background")])
    assert stated_of("metric_truth", both)[0].endswith(
        "by metric a; metric a, rank correlation for colour +0.50 (not defined for 6 of 6 networks)."
    )


def test_of_pairs_of_equal_correlation_the_first_ones_interval_does_not_stand_for_all():
    stability = frame(SPECS["class_stability"], "two worst").head(2).assign(other="model z", spearman=0.1)
    stability = stability.assign(spearman_low=[-0.2, 0.05], spearman_high=[0.4, 0.15])
    assert stated_of("class_stability", stability) == [
        "zoo: both pairs of models agree, but not all significantly, on which classes keep most of their accuracy: "
        "correlation +0.10."
    ]
