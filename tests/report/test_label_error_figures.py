"""Figures of wrong labels draw every rate with its interval, and the sentences repeat the tables."""

import json

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.studies.irt import label_errors as analysis
from fca.studies.irt.figures import label_errors
from fca.studies.irt.figures.label_errors import PARTS
from fca.types import Table
from tests.report.specs import computes, marks, refuses_empty, values


def rules_table(datasets=("zoo",)):
    rng = np.random.default_rng(0)
    lines = []
    for dataset in datasets:
        for rule in label_errors.RULES:
            rates = {name: float(rng.uniform(0.3, 0.8)) for name in (*analysis.MEASURES, "precision_at_k")}
            ends = {
                name + end: value + by for name, value in rates.items() for end, by in (("_low", -0.1), ("_high", 0.1))
            }
            counts = {"errors": 54, "reviewed": 275, "unmatched": 0, "n_items": 10_000, "k": 54}
            lines.append({"dataset": dataset, "rule": rule, **rates, **ends, **counts, "precision_by_chance": 0.0054})
    frame = pd.DataFrame(lines, columns=analysis.RATES)
    return Table("label_error_rules", *analysis.ABOUT["label_error_rules"], frame, {}, ())


def curve_table():
    shares = np.linspace(0, 1, 11)
    lines = [
        {"dataset": "zoo", "rule": rule, "share_flagged": share, "recall": share ** (1 / (2 + at))}
        for at, rule in enumerate(label_errors.RULES)
        for share in shares
    ]
    frame = pd.DataFrame(lines, columns=analysis.CURVE)
    return Table("label_error_curve", *analysis.ABOUT["label_error_curve"], frame, {}, ())


def suspects_table(n=30):
    verdict = [["error", "right", None][at % 3] for at in range(n)]
    about = {"dataset": "zoo", "label": "cat", "said": "dog", "p_max": 0.2, "discrimination": 1.0}
    frame = pd.DataFrame({"rank": range(1, n + 1), "image_id": [f"{at}.png" for at in range(n)], "verdict": verdict})
    frame = frame.assign(**about, modal_wrong_share=np.linspace(1, 0.6, n), top1=np.linspace(0, 0.3, n))
    return Table("label_suspects", *analysis.ABOUT["label_suspects"], frame[analysis.LISTED], {}, ())


TABLES = {
    "label_error_rules": rules_table,
    "label_error_curve": curve_table,
    "label_suspects": suspects_table,
}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.key)
def test_the_figures_compute_nothing(part):
    spec = style.spec(part.draw(*(TABLES[name]() for name in part.tables)))
    assert not computes(spec)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.key)
def test_without_a_line_there_is_nothing_to_draw(part):
    refuses_empty(part.draw, [TABLES[part.tables[0]]()])


def test_the_rules_of_the_figures_are_those_of_the_analysis():
    assert set(label_errors.RULES) == set(analysis.RULES)


def test_every_rate_is_drawn_with_its_interval():
    table = rules_table()
    drawn = values(style.spec(label_errors.rules_figure(table)))
    assert len(drawn) == 3 * len(table.frame)
    for name, column in (("AUC among all", "auc"), ("precision of the first k", "precision_at_k")):
        part = drawn[drawn["measure"] == name]
        for end, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            assert sorted(part[end]) == sorted(table.frame[column + suffix])


def test_a_rate_that_is_missing_is_left_out():
    table = rules_table()
    bare = Table("label_error_rules", "?", "eq. 1", table.frame.assign(auc_reviewed=np.nan), {}, ())
    drawn = values(style.spec(label_errors.rules_figure(bare)))
    assert set(drawn["measure"]) == {"AUC among all", "precision of the first k"}


def test_the_curves_stand_beside_chance_and_claim():
    spec = style.spec(label_errors.curve_figure(curve_table()))
    text = json.dumps(spec)
    assert '"recall": 0.3, "to": 0.4' in text
    assert '{"share_flagged": 0, "recall": 0}, {"share_flagged": 1, "recall": 1}' in text
    assert marks(spec, "rect") == 1


def test_suspects_are_drawn_with_their_verdicts_and_only_the_first():
    spec = style.spec(label_errors.suspects_figure(suspects_table()))
    drawn = values(spec)
    assert len(drawn) == label_errors.FIRST
    assert drawn.sort_values("rank")["says"].tolist()[:3] == [
        "wrong by the verdicts",
        "right by the verdicts",
        "not reviewed",
    ]


def test_sentences_repeat_the_table():
    table = rules_table().frame
    [told] = label_errors.rules_answers(table)
    best = table.loc[table["auc"].idxmax()]
    assert told.startswith("zoo: of 54 known wrong labels, the 25 % most suspect images hold")
    assert f"{100 * best['recall_25']:.0f} [" in told
    paper = table.set_index("rule").loc[label_errors.PAPER]
    assert f"by low discrimination, feasibility (AUC {paper['auc']:.3f}" in told
    assert "30 to 40 %" in told
    assert list(label_errors.rules_answers(table.iloc[:0])) == []
