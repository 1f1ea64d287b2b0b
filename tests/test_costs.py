"""A table of costs: every fault of it is one line, and its decision is the one that enumeration finds."""

import numpy as np
import pytest

from fca.costs import Costs, costs_of, format_cost, read_costs
from fca.types import FcaError

TABLE = "true,cat,dog,yak\ncat,0,1,2\ndog,3,0,4.5\nyak,10,6,0\n"


def costs_from(tmp_path, text):
    file = tmp_path / "costs.csv"
    file.write_text(text)
    return read_costs(file)


def by_name(costs):
    cost_by_pair = {}
    for j, true in enumerate(costs.classes):
        for k, answer in enumerate(costs.classes):
            cost_by_pair[true, answer] = costs.matrix[j, k]
    return cost_by_pair


def test_lines_and_columns_may_stand_in_any_order(tmp_path):
    plain = costs_from(tmp_path, TABLE)
    assert by_name(plain)["yak", "cat"] == 10
    mixed = costs_from(tmp_path, ";yak;cat;dog\ndog; 4.5;3;0\nyak ;0;10;6\ncat;2;0;1\n")
    assert by_name(mixed) == by_name(plain)


def test_the_answer_is_that_of_least_expected_cost():
    rng = np.random.default_rng(0)
    for classes in (2, 3, 6):
        matrix = rng.exponential(size=(classes, classes)) * (1 - np.eye(classes))
        costs = Costs(tuple("abcdef"[:classes]), matrix)
        probabilities = rng.dirichlet(np.ones(classes), size=200)
        for p, answer in zip(probabilities, costs.answers(probabilities), strict=True):
            expected_costs = [sum(p[j] * matrix[j, k] for j in range(classes)) for k in range(classes)]
            assert expected_costs[answer] == pytest.approx(min(expected_costs), rel=1e-12)


def test_where_every_mistake_costs_the_same_the_most_probable_class_is_answered():
    probabilities = np.random.default_rng(0).dirichlet(np.ones(5), size=2000)
    costs = Costs(tuple("abcde"), 7.3 * (1 - np.eye(5)))
    np.testing.assert_array_equal(costs.answers(probabilities), probabilities.argmax(axis=1))


def test_a_cost_that_no_answer_avoids_changes_no_answer():
    matrix = np.array([[0.0, 1.0], [20.0, 0.0]])
    unavoidable = np.array([[5.0], [50.0]])  # of each true class
    plain = Costs(("a", "b"), matrix)
    shifted = Costs(("a", "b"), matrix + unavoidable)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(2), size=200)
    np.testing.assert_array_equal(plain.answers(probabilities), shifted.answers(probabilities))
    np.testing.assert_array_equal(plain.excess, shifted.excess)


def test_the_classes_of_a_subset_are_enough_and_come_in_its_order(tmp_path):
    costs = costs_from(tmp_path, TABLE).of(["yak", "cat"], ["cat", "dog", "yak"])
    assert costs.matrix.tolist() == [[0, 10], [2, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE.replace("4.5", "-1"), "of 'dog' answered as 'yak' = '-1'; allowed: a number of at least 0"),
        (TABLE.replace("4.5", "much"), "of 'dog' answered as 'yak' = 'much'; allowed: a number of at least 0"),
        (TABLE.replace("4.5", "inf"), "of 'dog' answered as 'yak' = 'inf'; allowed: a number of at least 0"),
        (TABLE.replace("4.5", "nan"), "of 'dog' answered as 'yak' = 'nan'; allowed: a number of at least 0"),
        (TABLE.replace("4.5", ""), "of 'dog' answered as 'yak' = an empty cell; allowed: a number of at least 0"),
        (TABLE.replace("dog,3", "cat,3"), "= 'cat' twice; allowed: one line a true class"),
        (TABLE.replace("cat,dog", "cat,cat"), "'cat' twice"),
        (TABLE.replace("yak,10", "gnu,10"), "= 'gnu'; allowed: every class in both; the header has cat, dog, yak"),
        (TABLE.partition("yak,10")[0], "= 'yak'; allowed: every class in both; the first column has cat, dog"),
        (TABLE.replace("dog,3,0,4.5", "dog,3,0"), "line 3 of"),
        ("", "no header"),
        ("true,cat,dog\n", "lines: 0, classes in the header: 2"),
        ("true\ncat\n", "lines: 1, classes in the header: 0"),
    ],
)
def test_every_fault_of_the_file_is_one_line(tmp_path, text, message):
    with pytest.raises(FcaError) as error:
        costs_from(tmp_path, text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    for place in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(FcaError, match=f"costs = {place}; allowed: a CSV file"):
            read_costs(place)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["cat", "ox"], "classes of .* = without 'ox'; allowed: all of cat, ox; next: add a line and a column 'ox'"),
        (["cat"], "costs in .* = all equal"),
    ],
)
def test_classes_that_the_table_cannot_serve_are_named(tmp_path, classes, message):
    with pytest.raises(FcaError, match=message):
        costs_from(tmp_path, TABLE).of(classes, ["cat", "dog", "yak", "ox"])


def test_a_class_that_the_data_set_does_not_have_is_named(tmp_path):
    with pytest.raises(FcaError, match="= 'yak'; allowed: classes of the data set: cat, dog; next: correct its name"):
        costs_from(tmp_path, TABLE).of(["cat", "dog"], ["cat", "dog"])


def test_costs_are_written_without_exponents():
    assert [format_cost(cost) for cost in (12345678.0, 999.6, 9.996, 0.0009996)] == [
        "12,300,000",
        "1,000",
        "10",
        "0.001",
    ]


def test_a_table_may_be_keys_and_values_whose_classes_are_numbers():
    assert costs_of({1: {1: 0, 2: 3}, 2: {2: 0, 1: 1}}).by_name == {"1": {"1": 0, "2": 3}, "2": {"1": 1, "2": 0}}
    for lines in ({"cat": 3}, {"cat": ["dog"]}):
        with pytest.raises(FcaError, match="allowed: true class -> answer -> cost"):
            costs_of(lines)
    with pytest.raises(FcaError, match="'cat' answered as 'dog' = True"):
        costs_of({"cat": {"cat": 0, "dog": True}, "dog": {"cat": 1, "dog": 0}})
