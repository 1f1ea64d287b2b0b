"""Answers survive being written and read, and files that are not answers are named with what is wrong."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fca.tables.responses import (
    Responses,
    frame_of_items,
    frame_of_subjects,
    kind_and_severity,
    place_of,
    read_responses,
    stem_of,
    write_responses,
)
from fca.types import FcaError

# no control characters (an npz drops a trailing NUL), no halves of a character (no file can hold them)
NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
SUFFIXES = [".npz", ".csv", ".csv.gz", ".jsonlines", ".jsonl"]


@st.composite
def answers(draw):
    subjects = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    items = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    cells = st.sampled_from([0.0, 1.0, np.nan])
    size = len(subjects) * len(items)
    return subjects, items, draw(st.lists(cells, min_size=size, max_size=size))


@pytest.mark.wide
@pytest.mark.parametrize("suffix", SUFFIXES)
@given(drawn=answers())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read(drawn, suffix, tmp_path):
    subjects, items, cells = drawn
    correct = np.array(cells).reshape(len(subjects), len(items))
    made = Responses(correct, frame_of_subjects(subjects), frame_of_items(items))
    path = tmp_path / f"answers{suffix}"
    write_responses(made, path)
    if suffix.startswith(".json") and np.isnan(made.correct).all():
        with pytest.raises(FcaError, match="= none; allowed: 1 subject and 1 item"):  # it names asked items only
            read_responses(path)
        return
    found = read_responses(path)
    places = pd.Index(found.items["item"]).get_indexer(made.items["item"])
    asked = places >= 0
    assert found.subjects["subject"].tolist() == made.subjects["subject"].tolist()
    assert np.array_equal(found.correct[:, places[asked]], made.correct[:, asked], equal_nan=True)
    assert np.isnan(made.correct[:, ~asked]).all()
    assert asked.all() or suffix.startswith(".json")


def whole():
    subjects = frame_of_subjects(["a", "b/0.1"], ["resnet18", "b"], [None, "0.1"])
    items = frame_of_items(["cat.png", "dog.png@corruption/fog/3"], ["cat", "dog"])
    return Responses(
        np.array([[1.0, 0.0], [np.nan, 1.0]]), subjects, items, np.array([[0, 0], [-1, 1]]), ("cat", "dog")
    )


def test_an_npz_keeps_all_of_it(tmp_path):
    write_responses(whole(), tmp_path / "all.npz")
    found = read_responses(tmp_path / "all.npz")
    pd.testing.assert_frame_equal(found.subjects, whole().subjects)
    pd.testing.assert_frame_equal(found.items, whole().items)
    assert np.array_equal(found.correct, whole().correct, equal_nan=True)
    assert (found.pred.tolist(), found.classes) == (whole().pred.tolist(), whole().classes)


@pytest.mark.parametrize("labels", [np.array(["cat", "dog"]), np.array([0, 1])], ids=["keys", "positions"])
def test_predictions_with_labels_are_answers(labels, tmp_path):
    arrays = {"subjects": ["a", "b"], "items": ["x", "y"], "pred": [[0, 0], [-1, 1]], "classes": ["cat", "dog"]}
    np.savez(tmp_path / "pred.npz", **arrays, labels=labels)
    found = read_responses(tmp_path / "pred.npz")
    assert np.array_equal(found.correct, [[1, 0], [np.nan, 1]], equal_nan=True)
    assert found.items["label"].tolist() == ["cat", "dog"]
    assert found.subjects["model"].tolist() == ["a", "b"]


def test_py_irt_s_lines_are_read_and_written_as_it_has_them(tmp_path):
    path = tmp_path / "a.jsonlines"
    path.write_text(
        '{"subject_id": "pedro", "responses": {"q1": 1, "q2": 0}}\n\n{"subject_id":"ken","responses":{"q3":1}}'
    )
    found = read_responses(path)
    assert np.array_equal(found.correct, [[1, 0, np.nan], [np.nan, np.nan, 1]], equal_nan=True)
    write_responses(found, path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"subject_id": "pedro", "responses": {"q1": 1, "q2": 0}},
        {"subject_id": "ken", "responses": {"q3": 1}},
    ]


def test_names_say_model_snapshot_and_shift():
    subjects = frame_of_subjects(["resnet18/0.1", "resnet18/best", "timm/vit", "org/v1.5"])
    assert subjects["model"].tolist() == ["resnet18", "resnet18", "timm/vit", "org/v1.5"]
    assert subjects["snapshot"].tolist() == ["0.1", "best", None, None]
    assert place_of("x@cifar_c/fog/5") == ("x", "fog", 5)
    assert place_of("me@home") == ("me@home", "clean", 0)
    assert place_of("x@clean") == ("x@clean", "clean", 0)
    assert kind_and_severity("corruption/fog/6") is None


def test_decimals_that_pandas_writes_beside_gaps_are_read(tmp_path):
    pd.DataFrame({"x": [1, None], "y": [0.0, 1]}, index=["a", "b"]).to_csv(tmp_path / "a.csv")
    assert np.array_equal(read_responses(tmp_path / "a.csv").correct, [[1, 0], [np.nan, 1]], equal_nan=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "subject,x,y\nann,1,2\n", r"response of ann to y in .*a.csv = 2; allowed: 0, 1, or missing"),
        ("a.csv", "subject,x,y\nann,1\n", r"line 2 of .*a.csv = 2 cells: 'ann', '1'; allowed: 3"),
        ("a.csv", "subject,x,x\nann,1,0\n", "columns of .*a.csv = 'x' twice"),
        ("a.csv", "subject,x\nann,1\nann,0\n", "subject names = ann twice"),
        ("a.csv", "", "table in .*a.csv = no header"),
        ("a.csv", "subject,x\n", "responses in .*a.csv = none"),
        ("a.jsonl", "", "responses in .*a.jsonl = none"),
        ("a.jsonl", '{"subject_id": "a", "responses": {"x": 0.5}}', r"response of a to x in .* = 0.5"),
        ("a.jsonl", '{"subject_id": "a", "responses": {"x": "yes"}}', r"response of a to x in .* = yes"),
        ("a.jsonl", '{"subject_id": "a", "responses": {"x": 0, "x": 1}}', r"line 1 of .*x twice"),
        ("a.jsonl", '{"subject": "a"}', r"line 1 of .*a.jsonl = \{\"subject\": \"a\"\}; allowed: .*KeyError"),
        ("a.jsonl", "x", r"line 1 of .*a.jsonl = x; allowed"),
        (
            "a.csv.gz",
            "subject,x\nann,1\n",
            r"file of responses = .*a.csv.gz; allowed: one that can be read.*Not a gzipped",
        ),
        ("a.npz", "", r"file of responses = .*a.npz; allowed: one that can be read.*No data left"),
        ("a.npz", "x", r"file of responses = .*a.npz; allowed: an npz of plain arrays"),
        ("a.xlsx", "x", r"suffix of a file of responses = a.xlsx; allowed: .npz, .csv, .csv.gz, .jsonlines, .jsonl"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(FcaError, match=message):
        read_responses(tmp_path / name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"correct": np.array([[1, 2]])}, r"response of a to y in .* = 2.0; allowed: 0, 1, or missing"),
        ({"correct": np.array([[1], [0]])}, r"shape of correct in .* = \(2, 1\); allowed: \(1, 2\)"),
        ({"correct": np.array([[None, 1]])}, "file of responses = .*; allowed: an npz of plain arrays"),
        ({"correct": np.array([["yes", "no"]])}, "correct in .* = an array of <U3; allowed: numbers"),
        ({"models": np.array(["a", "b"])}, r"shape of models in .* = \(2,\); allowed: \(1,\)"),
        ({"labels": np.array(["k"])}, r"shape of labels in .* = \(1,\)"),
        ({"labels": np.array([0, 7]), "classes": np.array(["k"])}, "labels in .* = 0 to 7; allowed: positions among"),
        ({"items": None}, r"arrays of .* = no items; allowed"),
        ({"correct": None, "pred": np.array([[0, 0]])}, r"arrays of .* = no labels, classes; allowed"),
    ],
)
def test_what_is_wrong_with_an_npz_is_named(changed, message, tmp_path):
    arrays = {"subjects": np.array(["a"]), "items": np.array(["x", "y"]), "correct": np.array([[1, 0]]), **changed}
    np.savez(tmp_path / "a.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(FcaError, match=message):
        read_responses(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("pred", "classes", "message"),
    [
        ([[0, 2]], ["k", "l"], "pred in .* = 0 to 2; allowed: integers, -1 or positions among the 2 classes"),
        ([[0, -2]], ["k", "l"], "pred in .* = -2 to 0"),
        ([[0.5, 0.0]], ["k", "l"], "pred in .* = an array of float64"),
        ([[0, 1]], [], "pred in .* = 0 to 1; allowed: .* the 0 classes of the file; next: .*add `classes`"),
    ],
)
def test_answers_that_are_no_class_are_named(pred, classes, message, tmp_path):
    known = {"subjects": np.array(["a"]), "items": np.array(["x", "y"]), "correct": np.array([[1, 0]])}
    np.savez(tmp_path / "a.npz", **known, pred=np.array(pred), classes=np.array(classes, dtype=str))
    with pytest.raises(FcaError, match=message):
        read_responses(tmp_path / "a.npz")


def test_letters_that_are_no_utf_8_are_named(tmp_path):
    (tmp_path / "a.csv").write_bytes("subject,é\nann,1\n".encode("latin-1"))
    with pytest.raises(FcaError, match=r"line 1 of .*a.csv = .*; allowed: text in UTF-8 .*codec"):
        read_responses(tmp_path / "a.csv")


def test_no_file_is_said():
    with pytest.raises(FcaError, match=r"file of responses = nowhere/a.csv; allowed: a file that exists"):
        read_responses("nowhere/a.csv")


def test_the_stem_names_the_data_set():
    assert [stem_of(f"x/geirhos{suffix}") for suffix in SUFFIXES] == ["geirhos"] * 5


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("geirhos_cue-conflict_humans_cnns.csv.gz", (26, 1280)),
        ("geirhos_edge_humans_cnns.csv.gz", (15, 160)),
        ("geirhos_silhouette_humans_cnns.csv.gz", (15, 160)),
        ("pyirt_minitest.jsonlines", (4, 4)),
    ],
)
def test_published_answers_are_read(name, shape):
    path = Path(os.environ["FCA_REAL_DATA"]) / "responses" / name
    found = read_responses(path)
    assert found.correct.shape == shape
    content = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    ones = sum(line.split(b",").count(b"1") for line in content.splitlines()) + content.count(b": 1")
    assert np.nansum(found.correct) == ones
