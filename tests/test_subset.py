"""Subsets: who can be drawn, by whom, and what is refused."""

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fca.subset import draw_subset, named_subset, read_superclasses
from fca.types import FcaError


def test_uniform_draws_are_the_documented_ones():
    expected = random.Random("100:5:3").sample(range(100), 5)
    assert draw_subset(100, 5, 3).classes == tuple(sorted(expected))


@given(st.integers(2, 60), st.data())
def test_a_subset_has_ncl_different_classes_in_order(num_classes, data):
    ncl = data.draw(st.integers(2, num_classes))
    classes = draw_subset(num_classes, ncl, data.draw(st.integers(0, 99))).classes
    assert len(set(classes)) == ncl
    assert classes == tuple(sorted(classes))
    assert 0 <= classes[0] <= classes[-1] < num_classes


@pytest.mark.parametrize(("sampler", "drawable"), [("uniform", 10), ("fca", 9)])
def test_uniform_can_draw_the_last_class_and_fca_cannot(sampler, drawable):
    classes = set()
    for seed in range(200):
        classes.update(draw_subset(10, 2, seed, sampler).classes)
    assert classes == set(range(drawable))


def test_fca_subsets_of_one_seed_are_nested():
    assert set(draw_subset(1000, 2, 4, "fca").classes) < set(draw_subset(1000, 10, 4, "fca").classes)


def test_all_classes_are_one_subset_whatever_the_seed():
    assert draw_subset(10, 10, 0) == draw_subset(10, 10, 7, "fca")


@pytest.mark.parametrize(("ncl", "allowed"), [(1, "2 to 10"), (11, "2 to 10")])
def test_ncl_outside_the_classes_is_refused(ncl, allowed):
    with pytest.raises(FcaError, match=f"subset.ncl = {ncl}; allowed: {allowed}"):
        draw_subset(10, ncl, 0)


def test_an_unknown_sampler_is_refused():
    with pytest.raises(FcaError, match=r"subset\.sampler = zipf; allowed: uniform, fca"):
        draw_subset(10, 2, 0, "zipf")


@pytest.mark.parametrize("wanted", [["cat", "eel"], ["cat", 3], ["cat", -1]])
def test_a_class_that_the_data_set_lacks_is_refused_by_name(wanted):
    with pytest.raises(FcaError, match=f"subset.classes = {wanted[1]}; allowed: ant, bee, cat; or 0 to 2"):
        named_subset(("ant", "bee", "cat"), wanted)


def test_a_class_named_twice_is_refused():
    with pytest.raises(FcaError, match=r"subset.classes = \['cat', 2\]"):
        named_subset(("ant", "bee", "cat"), ["cat", 2])


@pytest.mark.real
def test_fca_subsets_equal_the_original_sampler_on_all_ten_datasets():
    file = Path(os.environ["FCA_REAL_DATA"]) / "tables" / "fca_subsets_seed0-4.json"
    datasets = json.loads(file.read_text())["datasets"]
    compared = 0
    for dataset in datasets.values():
        for name, original_classes in dataset["subsets"].items():
            _, ncl, _, seed = name.split("_")
            subset = draw_subset(dataset["num_classes"], int(ncl), int(seed), "fca")
            assert subset.classes == tuple(sorted(original_classes))
            compared += 1
    assert len(datasets) == 10
    assert compared >= 10 * 5 * 5


MEANT = {  # class keys, what the configuration has read -> the classes meant
    (("1", "2", "3", "4", "5"), (1, 2)): ["1", "2"],
    (("1", "2", "3", "4", "5"), ("1", 5.0)): ["1", "5"],
    (("01", "02", "10"), (1, 10)): ["01", "10"],
    (("-1", "0", "1"), (-1, 0)): ["-1", "0"],
    (("2023", "2024", "other"), (2024, "other")): ["2024", "other"],
    (("1", "1.0", "01"), (1, 1.0)): ["1", "1.0"],
    (("1e3", "20"), (1000.0, 20)): ["1e3", "20"],
    (("false", "true"), (True, False)): ["false", "true"],
    (("False", "True", "yes"), (True, False)): ["False", "True"],
    (("maybe", "no", "yes"), (True, False)): ["no", "yes"],
    (("off", "on"), (False, True)): ["off", "on"],
    (("inf", "nan", "null"), (float("nan"), None)): ["nan", "null"],
    (("0x10", "dog"), (16, "dog")): ["0x10", "dog"],
    (("ant", "bee", "cat"), (0, 2)): ["ant", "cat"],
    (("ant", "true"), (1, 0)): ["ant", "true"],
}


@pytest.mark.parametrize(("classes", "wanted"), MEANT)
def test_a_value_that_is_a_class_key_is_the_key_and_positions_are_for_keys_that_are_no_numbers(classes, wanted):
    subset = named_subset(classes, wanted)
    assert [classes[index] for index in subset.classes] == MEANT[classes, wanted]


@pytest.mark.parametrize(
    ("classes", "wanted", "message"),
    [
        (("1", "2", "3"), [0, 1], "subset.classes = 0; allowed: 1, 2, 3; next"),
        (("cat", "7", "dog"), [0, 7], "subset.classes = 0; allowed: cat, 7, dog; next"),
        (("1.1", "1.10", "2"), [1.1, 2], "subset.classes = 1.1; allowed: one of 1.1, 1.10, which are all read as 1.1"),
        (("1", "2"), [1, "1"], "two or more different classes"),
        (("ant", "bee"), [True, "bee"], "subset.classes = True; allowed: ant, bee; or 0 to 1"),
        (("ant", "bee"), [[0], [1]], r"subset.classes = \[0\]; allowed: ant, bee; or 0 to 1"),
    ],
)
def test_a_value_that_is_no_key_or_several_is_refused(classes, wanted, message):
    with pytest.raises(FcaError, match=message):
        named_subset(classes, wanted)


def test_a_class_named_na_or_null_keeps_its_group(tmp_path):
    file = tmp_path / "groups.csv"
    file.write_text("class,group\nNA,country\nnull,none\nnan,bread\n")
    assert dict(read_superclasses(str(file)).of) == {"NA": "country", "null": "none", "nan": "bread"}
