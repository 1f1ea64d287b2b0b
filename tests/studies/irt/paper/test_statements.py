"""Statements agree exactly where invented tables do."""

import compared
import pandas as pd


def test_a_move_that_is_planted_is_seen():
    about = {"corruption": "brightness", "parameter": "difficulty", "segment": "easy", "label": "airplane", "images": 9}
    frame = pd.DataFrame([{**about, "severity": k, "items": items} for k, items in enumerate((0, 9, 7, 5))])
    line = compared.moves(frame, frame.iloc[:0], "cifar10").set_index(["corruption", "segment", "label"])
    assert tuple(line.loc[("brightness", "easy", "airplane"), ["seen", "counts"]]) == ("fewer", "9 7 5")


def test_planted_statements_agree():
    classes = {"airplane": 1, "horse": 2, "ship": 3, "truck": 9, "frog": 10}
    verdict = {"airplane": "robust", "horse": "robust", "truck": "susceptible", "frog": "susceptible"}
    robust = pd.DataFrame({"label": classes.keys(), "rank": classes.values()}).assign(corruption="cifar_c/defocus_blur")
    frames = {"class_robustness": robust.assign(verdict=robust["label"].map(verdict))}
    items = pd.DataFrame({"severity": [0, 1, 5], "discrimination": [0.1, 0.9, 0.5], "feasibility": [1.0, 0.5, 0.7]})
    frames["irt_items"] = items.assign(corruption="defocus_blur")
    right = {"strong": (9, 5), "weak": (5, 1), "middle": (7, 3)}
    lines = [
        {"subject": name, "segment": segment, "right": n, "n": 10, "corruption": "brightness"}
        for name, both in right.items()
        for segment, n in zip(("easy", "hard"), both, strict=True)
    ]
    frames["segment_models"] = pd.DataFrame(lines)
    frames["label_error_rules"] = pd.DataFrame(columns=["rule"])
    line = compared.statements(frames, frames, "cifar10", False)
    assert line["agrees"].tolist()[:5] == [True, False, True, False, True]
    assert line["ours"][1] == "defocus blur: truck, frog susceptible, airplane, horse robust"
    assert line["ours"][4] == "Spearman's rho 1.00 over 3 subjects; most hard images right: strong"
