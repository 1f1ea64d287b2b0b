"""Suspect labels are ranked with and without verdicts, and verdicts are matched to items by name."""

import numpy as np
import pandas as pd
import pytest

from fca.report.style import NothingToDraw
from fca.stats.label_errors import auc, low_in_both
from fca.store import Store
from fca.studies.irt.figures.labels import rules_statements, suspects_figure
from fca.studies.irt.label_errors import SUSPECTS_LISTED, LabelErrors, judge, positions, read_verdicts
from fca.studies.irt.stats import fit_irt
from fca.types import FcaError
from tests.studies.irt.support.response_files import CLASSES, write
from tests.support.figure_claims import sentences_of

RULES = ["modal_wrong_share", "modal_wrong_minus_top1", "low_top1", "low_p_max", "low_item_rest"]


def verdicts(path, lines, header="item,error"):
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


@pytest.fixture
def answers(tmp_path):
    return write(tmp_path / "zoo.npz")


@pytest.fixture
def judged(tmp_path):
    return verdicts(tmp_path / "mturk.csv", [f"{i}.png,{int(i < 6)}" for i in range(20)])


def asked(store, **options):
    return {table.name: table for table in LabelErrors(model="2pl", **options)(store)}


@pytest.fixture
def empty(tmp_path):
    return Store(tmp_path / "outputs")


def test_planted_wrong_labels_come_first_without_verdicts(empty, answers):
    tables = asked(empty, responses=[answers])
    first = tables["label_suspects"].frame.head(6)
    assert sorted(first["image_id"]) == [f"test/{i}.png" for i in range(6)]
    assert first["rank"].tolist() == [1, 2, 3, 4, 5, 6]
    shown = {"cat": "yak", "dog": "cat", "yak": "dog"}  # the label is the class after the one that is shown
    assert (first["wrong_class"] == first["label"].map(shown)).all()
    assert first["verdict"].isna().all()
    assert tables["label_error_rules"].frame.empty
    assert tables["label_error_curve"].frame.empty
    assert len(tables["label_error_scores"].frame) == 60


def test_every_rule_is_judged_by_the_verdicts(empty, answers, judged):
    tables = asked(empty, responses=[answers], verdicts=judged)
    rules = tables["label_error_rules"].frame
    assert rules["rule"].tolist() == [*RULES, "low_discrimination_feasibility"]
    assert set(rules["dataset"]) == {"zoo"}
    same = {"errors": 6, "reviewed": 20, "unmatched": 0, "n_items": 60, "k": 6}
    assert {name: rules[name].unique().tolist() for name in same} == {name: [n] for name, n in same.items()}
    modal = rules.set_index("rule").loc["modal_wrong_share"]
    assert modal["auc"] == modal["auc_reviewed"] == modal["recall_10"] == modal["precision_at_k"] == 1
    assert modal["recall_5"] == pytest.approx(3 / 6, abs=1e-12)
    assert modal["precision_at_k_low"] == pytest.approx(0.6097, abs=1e-4)  # Wilson 6 of 6
    assert modal["precision_by_chance"] == 0.1
    suspects = tables["label_suspects"].frame
    assert suspects["verdict"].head(6).tolist() == ["error"] * 6
    assert (suspects["verdict"] == "right").sum() == 14


def test_the_paper_s_rule_is_judged_by_both_fits_where_its_own_is_asked_for(empty, answers, judged):
    tables = asked(empty, responses=[answers], verdicts=judged, compat="seed001")
    rules = tables["label_error_rules"].frame.set_index("rule")
    ours, theirs = (rules.loc[f"low_discrimination_feasibility{end}"] for end in ("", "_seed001"))
    assert list(rules.index) == [*RULES, ours.name, theirs.name]
    with np.load(answers) as read:
        correct = (read["pred"] == read["labels"]).astype(float)
    fit = fit_irt(correct, "3pl-upper", compat="seed001")
    error = np.arange(60) < 6
    assert theirs["auc"] == pytest.approx(auc(low_in_both(fit.discrimination, fit.feasibility), error).value, abs=1e-9)
    assert ours["auc"] != theirs["auc"]
    frames = (tables["label_error_rules"].frame, tables["label_error_curve"].frame)
    clauses = [clause for sentence in sentences_of(rules_statements, *frames) for clause in sentence.split("; ")]
    assert any("our fit" in clause for clause in clauses)
    assert any("as the paper fitted it" in clause for clause in clauses)


def test_the_curve_meets_the_recalls_of_the_table(empty, answers, judged):
    tables = asked(empty, responses=[answers], verdicts=judged)
    curve = tables["label_error_curve"].frame.pivot_table("recall", "share_flagged", "rule")
    rules = tables["label_error_rules"].frame.set_index("rule")
    for share in (0.05, 0.1, 0.25):
        at = curve.index[np.abs(curve.index - share).argmin()]
        for rule in rules.index:
            assert curve.loc[at, rule] == pytest.approx(rules.loc[rule, f"recall_{100 * share:.0f}"], abs=1e-12)


def test_the_order_of_subjects_and_items_changes_nothing(empty, answers, judged, tmp_path):
    with np.load(answers) as read:
        old = dict(read)
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(12), rng.permutation(60)
    new = {"pred": old["pred"][rows][:, columns], "subjects": old["subjects"][rows], "classes": old["classes"]}
    (tmp_path / "other").mkdir()
    shuffled = tmp_path / "other" / "zoo.npz"
    np.savez(shuffled, **new, items=old["items"][columns], labels=old["labels"][columns])
    one, other = (asked(empty, responses=[str(f)], verdicts=judged)["label_error_rules"] for f in (answers, shuffled))
    pd.testing.assert_frame_equal(one.frame, other.frame, atol=1e-6)


def test_two_data_sets_are_told_apart_and_one_may_have_no_verdicts(empty, answers, judged, tmp_path):
    other = write(tmp_path / "farm.npz", folder="farm/x", items=150, seed=1)
    tables = asked(empty, responses=[answers, other], verdicts=judged)
    assert set(tables["label_error_rules"].frame["dataset"]) == {"zoo"}
    assert tables["label_suspects"].frame.groupby("dataset").size().to_dict() == {"farm": SUSPECTS_LISTED, "zoo": 60}


def test_stored_answers_are_ranked_too(lab):
    for number in range(4):
        lab.predict(f"net{number}", lab.logits(seed=number), seed=0, adaptation="scratch")
    table = asked(lab.store)["label_error_scores"]
    assert len(table.frame) == len(lab.true)
    assert len(table.runs) == 4


def test_of_networks_that_are_all_at_chance_no_label_is_suspected(empty, answers, tmp_path):
    """100 suspects were listed, by networks that know nothing of the images."""
    rng = np.random.default_rng(0)
    pred, labels = rng.integers(3, size=(6, 200)), rng.integers(3, size=200)
    about = {"subjects": np.array(list("abcdef")), "items": np.arange(200).astype(str), "classes": np.array(CLASSES)}
    np.savez(tmp_path / "guessed.npz", pred=pred, labels=labels, **about)
    reason = "guessed: no label is suspected, as all subjects are at the level of chance"

    tables = asked(empty, responses=[str(tmp_path / "guessed.npz")])
    assert tables["label_suspects"].frame.empty
    assert len(tables["label_error_scores"].frame) == 200
    with pytest.raises(NothingToDraw, match=reason):
        suspects_figure(tables["label_suspects"])

    both = asked(empty, responses=[answers, str(tmp_path / "guessed.npz")])["label_suspects"]
    assert set(both.frame["dataset"]) == {"zoo"}
    assert both.parameters["not_listed"] == [reason]
    assert f"{reason}." in suspects_figure(both).to_dict()["title"]["subtitle"]


def test_k_can_be_asked_for_and_must_be_possible(empty, answers, judged):
    rules = asked(empty, responses=[answers], verdicts=judged, k=12)["label_error_rules"].frame
    assert rules.set_index("rule").loc["modal_wrong_share", "precision_at_k"] == pytest.approx(0.5, abs=1e-12)
    with pytest.raises(FcaError, match=r"analysis\.k = 61; allowed: 1 to 60"):
        asked(empty, responses=[answers], verdicts=judged, k=61)


def test_reviewed_items_that_are_all_wrong_leave_their_auc_missing(empty, answers, tmp_path):
    file = verdicts(tmp_path / "only.csv", ["0.png,1", "1.png,1"])
    rules = asked(empty, responses=[answers], verdicts=file)["label_error_rules"].frame
    assert rules["auc_reviewed"].isna().all()
    assert rules["auc"].notna().all()


def test_answers_without_classes_are_refused_by_name(empty, tmp_path):
    file = tmp_path / "bits.csv"
    file.write_text("subject,a,b\nx,1,0\ny,0,1\nz,1,1\n")
    with pytest.raises(FcaError, match="responses of bits = only right or wrong"):
        asked(empty, responses=[str(file)])


def test_answers_without_classes_are_left_out_beside_others(empty, answers, tmp_path):
    (tmp_path / "bits.csv").write_text("subject,a,b\nx,1,0\ny,0,1\nz,1,1\n")
    scores = asked(empty, responses=[answers, str(tmp_path / "bits.csv")])["label_error_scores"]
    assert scores.frame["dataset"].unique().tolist() == ["zoo"]
    assert scores.parameters["left_out"] == ["bits: responses without classes"]


def test_verdicts_on_other_items_are_refused_with_examples_of_both(empty, answers, tmp_path):
    file = verdicts(tmp_path / "other.csv", ["7.jpg,1", "8.jpg,0"])
    with pytest.raises(FcaError, match=r"7\.jpg, 8\.jpg.*test/0\.png, test/1\.png, test/2\.png"):
        asked(empty, responses=[answers], verdicts=file)


def test_verdicts_without_an_error_are_refused(empty, answers, tmp_path):
    file = verdicts(tmp_path / "none.csv", ["0.png,0", "1.png,0"])
    with pytest.raises(FcaError, match="errors of zoo = 0 of 60 items"):
        asked(empty, responses=[answers], verdicts=file)


@pytest.mark.parametrize(
    ("header", "lines", "message"),
    [
        ("item,wrong", ["0.png,1"], r"verdict_columns = error; allowed: 'item', 'wrong'"),
        ("item,error", ["0.png,2"], r"verdict in error = 2; allowed: 1 \(wrong label\) or 0"),
        ("item,error", ["0.png,1", "0.png,0"], r"0\.png twice"),
    ],
)
def test_a_file_of_verdicts_that_cannot_be_read_says_what_is_wrong(tmp_path, header, lines, message):
    with pytest.raises(FcaError, match=message):
        read_verdicts(verdicts(tmp_path / "v.csv", lines, header), ["item", "error"])


def test_a_file_that_is_not_there_and_columns_that_are_not_two_are_refused(tmp_path):
    with pytest.raises(FcaError, match=r"analysis\.verdicts = nowhere\.csv"):
        read_verdicts("nowhere.csv", ["item", "error"])
    with pytest.raises(FcaError, match=r"verdict_columns = \['item'\]"):
        read_verdicts("nowhere.csv", ["item"])


def test_an_empty_verdict_is_no_review(tmp_path):
    found = read_verdicts(verdicts(tmp_path / "v.csv", ["a,1", "b,", "c,False"]), ["item", "error"])
    assert found.to_dict() == {"a": True, "c": False}


def test_full_names_come_before_file_names_and_doubtful_ones_match_nothing():
    items = pd.Series(["a/1.png", "b/1.png", "a/2.png", "3.png"])
    found = positions(pd.Index(["b/1.png", "1.png", "2.png", "x/3.png", "y/3.png"]), items)
    assert found.tolist() == [1, -1, 2, -1, -1]
    said = judge(pd.Series([True, False, True], index=["2.png", "3.png", "9.png"]), items)
    assert said.reviewed.tolist() == [False, False, True, True]
    assert said.error.tolist() == [False, False, True, False]
    assert said.unmatched == 1
