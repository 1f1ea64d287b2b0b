"""What is drawn of segments, and the classes of CIFAR-10 on real answers."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fca.studies.irt.difficulty_segments import (
    FEWEST_AND_MOST_SUBJECTS,
    DifficultySegments,
    shown_classes,
    shown_subjects,
)
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses

SEGMENTS = ["easy", "med_easy", "med_hard", "hard"]


def test_shown_subjects_are_the_best_the_worst_and_some_between():
    lines = [
        {"dataset": "zoo", "corruption": kind, "severity": severity, "subject": f"s{s:02d}", "model": "m"}
        | {"segment": segment, "right": s, "n": 100, "share": s / 100, "share_low": 0, "share_high": 1}
        for kind, severity in (("clean", 0), ("fog", 1), ("fog", 5))
        for s in range(60)
        for segment in SEGMENTS
    ]
    shown = shown_subjects(pd.DataFrame(lines))
    assert shown["subject"].nunique() == FEWEST_AND_MOST_SUBJECTS[1]
    assert set(zip(shown["corruption"], shown["severity"], strict=True)) == {("clean", 0), ("fog", 5)}
    place = shown.drop_duplicates("subject").set_index("subject")["place"]
    assert (place["s59"], place["s00"]) == (0, 59)
    assert set(shown["subjects"]) == {60}


def test_a_data_set_without_clean_answers_is_shown_too():
    lines = [
        {"dataset": dataset, "corruption": "fog", "severity": severity, "subject": "s", "model": "m"}
        | {"segment": segment, "right": 1, "n": 2, "share": 0.5, "share_low": 0, "share_high": 1}
        for dataset, severity in (("zoo", 0), ("zoo", 1), ("farm", 1))
        for segment in SEGMENTS
    ]
    assert set(shown_subjects(pd.DataFrame(lines))["dataset"]) == {"zoo", "farm"}


def test_shown_classes_are_the_ends_of_many():
    rng = np.random.default_rng(0)
    lines = [
        {"dataset": "zoo", "parameter": "difficulty", "quarter": quarter, "label": f"c{c:02d}", "share": share}
        for c in range(50)
        for quarter, share in zip(("top", "bottom"), rng.uniform(0, 0.5, 2), strict=True)
    ]
    frame = pd.DataFrame(lines)
    shown = shown_classes(frame)
    wide = frame.pivot_table(index="label", columns="quarter", values="share")
    difference = (wide["top"] - wide["bottom"]).sort_values()
    assert set(shown["label"]) == {*difference.index[:10], *difference.index[-10:]}
    assert len(shown) == 40
    assert set(shown["classes"]) == {50}


@pytest.mark.real
def test_cats_dogs_and_birds_are_the_hardest_of_cifar10(tmp_path, lab):
    known = np.load(Path(os.environ["FCA_REAL_DATA"]) / "responses" / "cifar10_test_predictions.npz")
    labels, keys = known["labels"], known["classes"].astype(str)
    items = frame_of_items(known["files"].astype(str).tolist(), keys[labels].tolist())
    correct = (known["predictions"] == labels).astype(float)
    write_responses(Responses(correct, frame_of_subjects(known["models"].tolist()), items), tmp_path / "cifar10.npz")
    classes = DifficultySegments(responses=[str(tmp_path / "cifar10.npz")])(lab.store)[2].frame
    top = classes.query("parameter == 'difficulty' and quarter == 'top'").set_index("label")["share"]
    assert top.nlargest(3).index.tolist() == ["cat", "dog", "bird"]  # as in the paper, section 3.3
    assert top["cat"] == pytest.approx(0.48, abs=0.03)
