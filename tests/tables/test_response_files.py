"""A file of answers joins the data set that its images are of, and none that only names its images alike."""

from dataclasses import replace

import numpy as np
import pytest

from fca.tables.responses import (
    Responses,
    frame_of_items,
    frame_of_subjects,
    matching_stored_dataset,
    with_file_subjects,
)
from fca.types import FcaError

ITEMS = ("test/0", "test/1", "test/2")


def answers(items=ITEMS, labels=None, pred=None, classes=(), subjects=("a",), correct=None):
    correct = np.ones((len(subjects), len(items))) if correct is None else np.asarray(correct, dtype=float)
    return Responses(correct, frame_of_subjects(subjects), frame_of_items(items, labels), pred, classes)


@pytest.fixture
def stored():
    """Two data sets that name their images alike, and one with some of these names."""
    return {"ten": answers(labels=("cat", "dog", "cat")), "hundred": answers(labels=("oak", "elm", "fir"))}


def test_labels_tell_which_set_of_alike_names_is_meant(stored):
    assert matching_stored_dataset(answers(labels=("oak", "elm", "fir")), stored, "zoo.npz") == "hundred"
    assert matching_stored_dataset(answers(ITEMS[1:], ("dog", None)), stored, "zoo.npz") == "ten"


def test_without_labels_the_file_is_called_after_its_data_set(stored):
    assert matching_stored_dataset(answers(), stored, "answers/hundred.csv.gz") == "hundred"
    with pytest.raises(FcaError, match=r"data set of zoo.csv = ten or hundred; allowed: one.*e.g. ten.npz"):
        matching_stored_dataset(answers(), stored, "zoo.csv")


def test_other_labels_than_the_stored_ones_are_refused(stored):
    only = {"ten": stored["ten"]}
    with pytest.raises(FcaError, match=r"labels in zoo.npz = test/1: elm, stored as dog; allowed: the labels of ten"):
        matching_stored_dataset(answers(labels=("cat", "elm", "fir")), only, "zoo.npz")


def test_names_that_another_set_knows_in_part_do_no_harm(stored):
    some = {"part": answers(ITEMS[:2], ("cat", "dog")), "ten": stored["ten"]}
    assert matching_stored_dataset(answers(), some, "zoo.csv") == "ten"
    with pytest.raises(FcaError, match=r"1 of 3 items of zoo.csv = test/2; allowed: all or none.*part, .* names 2"):
        matching_stored_dataset(answers(), {"part": some["part"]}, "zoo.csv")
    assert matching_stored_dataset(answers(["x"]), some, "zoo.csv") is None


def test_right_answers_without_classes_are_those_of_the_label():
    of_store = answers(labels=("cat", "dog", "cat"), pred=np.array([[1, 0, 1]], dtype=np.int32), classes=("dog", "cat"))
    more = answers(ITEMS[::-1], subjects=("b",), correct=[[1, 0, np.nan]])
    both = with_file_subjects(of_store, more)
    assert both.pred[1].tolist() == [-1, -1, 1]
    assert np.array_equal(both.correct[1], [np.nan, 0, 1], equal_nan=True)
    named = replace(more, pred=np.array([[0, 1, -1]], dtype=np.int32), classes=("cat", "fish"))
    assert with_file_subjects(of_store, named).pred[1].tolist() == [-1, -1, 1]
