"""Figures of wrong labels draw every rate with its interval, and the sentences repeat the tables."""

import json

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.stats.label_errors import RULES
from fca.studies.irt.figures import labels
from fca.studies.irt.label_errors import (
    AS_PAPER,
    AUC,
    AUC_REVIEWED,
    LABEL_ERROR_CURVE,
    LABEL_ERROR_RULES,
    LABEL_SUSPECTS,
    OTHER_CLASS,
    PRECISION,
    RECALLS,
    RULE,
    VERDICT,
    LabelErrors,
)
from tests.support.figure_claims import computes, drawn_findings, marks, refuses_empty, sentences_of, values

FIGURES = drawn_findings(LabelErrors())


def rules_table(datasets=("zoo",)):
    rng = np.random.default_rng(0)
    lines = []
    for dataset in datasets:
        for rule in RULE.choices:
            rates = {name: float(rng.uniform(0.3, 0.8)) for name in (AUC, AUC_REVIEWED, *RECALLS, PRECISION)}
            ends = {
                name + end: value + by for name, value in rates.items() for end, by in (("_low", -0.1), ("_high", 0.1))
            }
            counts = {"errors": 54, "reviewed": 275, "unmatched": 0, "n_items": 10_000, "k": 54}
            lines.append({"dataset": dataset, "rule": rule, **rates, **ends, **counts, "precision_by_chance": 0.0054})
    return LABEL_ERROR_RULES.table(LABEL_ERROR_RULES.frame(lines), {}, ())


def curve_table():
    shares = np.linspace(0, 1, 11)
    lines = [
        {"dataset": "zoo", "rule": rule, "share_flagged": share, "recall": share ** (1 / (2 + at))}
        for at, rule in enumerate(RULE.choices)
        for share in shares
    ]
    return LABEL_ERROR_CURVE.table(LABEL_ERROR_CURVE.frame(lines), {}, ())


def suspects_table(n=30):
    verdict = [["error", "right", None][at % 3] for at in range(n)]
    about = {"dataset": "zoo", "label": "cat", OTHER_CLASS: "dog", "p_max": 0.2, "discrimination": 1.0}
    frame = pd.DataFrame({"rank": range(1, n + 1), "image_id": [f"{at}.png" for at in range(n)], "verdict": verdict})
    frame = frame.assign(**about, modal_wrong_share=np.linspace(1, 0.6, n), top1=np.linspace(0, 0.3, n))
    return LABEL_SUSPECTS.table(LABEL_SUSPECTS.frame(frame), {}, ())


TABLES = {
    "label_error_rules": rules_table,
    "label_error_curve": curve_table,
    "label_suspects": suspects_table,
}


@pytest.mark.parametrize("shown", FIGURES, ids=lambda shown: shown.key)
def test_the_figures_compute_nothing(shown):
    spec = style.spec(shown.draw(*(TABLES[spec.name]() for spec in shown.tables)))
    assert not computes(spec)


@pytest.mark.parametrize("shown", FIGURES, ids=lambda shown: shown.key)
def test_without_a_line_there_is_nothing_to_draw(shown):
    refuses_empty(shown.draw, [TABLES[shown.tables[0].name]()])


def test_the_rules_of_the_figures_are_those_of_the_analysis():
    assert set(RULE.choices) == {*RULES, AS_PAPER}


def test_every_rate_is_drawn_with_its_interval():
    table = rules_table()
    drawn = values(style.spec(labels.rules_figure(table)))
    assert len(drawn) == 3 * len(table.frame)
    for name, column in (("AUC among all", "auc"), ("precision of the first k", "precision_at_k")):
        part = drawn[drawn["measure"] == name]
        for end, suffix in (("value", ""), ("value_low", "_low"), ("value_high", "_high")):
            assert sorted(part[end]) == sorted(table.frame[column + suffix])


def test_a_rate_that_is_missing_is_left_out():
    table = rules_table()
    bare = LABEL_ERROR_RULES.table(table.frame.assign(auc_reviewed=np.nan), {}, ())
    drawn = values(style.spec(labels.rules_figure(bare)))
    assert set(drawn["measure"]) == {"AUC among all", "precision of the first k"}


def test_the_curves_stand_beside_chance_and_claim():
    spec = style.spec(labels.curve_figure(curve_table()))
    text = json.dumps(spec)
    assert '"recall": 0.3, "to": 0.4' in text
    assert '{"share_flagged": 0, "recall": 0}, {"share_flagged": 1, "recall": 1}' in text
    assert marks(spec, "rect") == 1


def test_suspects_are_drawn_with_their_verdicts_and_only_the_first():
    spec = style.spec(labels.suspects_figure(suspects_table()))
    drawn = values(spec)
    assert len(drawn) == labels.SUSPECTS_SHOWN
    assert drawn.sort_values("rank")["verdict"].map(dict(VERDICT.choices)).tolist()[:3] == [
        "wrong by the verdicts",
        "right by the verdicts",
        "not reviewed",
    ]


def test_sentences_repeat_the_table():
    table = rules_table().frame
    first, ranked_by, *of_the_paper = sentences_of(labels.rules_statements, table, curve_table().frame)
    best = table.loc[table["auc"].idxmax()]
    ends = f"[{100 * best['recall_25_low']:.0f}, {100 * best['recall_25_high']:.0f}]"
    found = f"finds {100 * best['recall_25']:.0f} % {ends} of the 54 known wrong labels"
    assert first.startswith(f"Reviewing the 25 % most suspect images of zoo {found}")
    assert f"ranked by {RULE.choices[best['rule']]} (AUC {best['auc']:.3f} [" in ranked_by
    assert "by chance 25 %" in ranked_by
    paper = table.set_index("rule").loc[list(labels.PAPER_RULES)].sort_values("auc", ascending=False)
    assert best["rule"] not in paper.index
    for sentence, (rule, line) in zip(of_the_paper, paper.iterrows(), strict=True):
        assert f"by {RULE.choices[rule]} (AUC {line['auc']:.3f} [" in sentence
        assert f"they hold {100 * line['recall_25']:.0f} % [" in sentence
        assert "30 to 40 %" in sentence
    assert {"our fit: low discrimination, feasibility", "as the paper fitted it: low in both"} == {
        RULE.choices[rule] for rule in paper.index
    }
    assert sentences_of(labels.rules_statements, table.assign(recall_25=np.nan), curve_table().frame) == []
