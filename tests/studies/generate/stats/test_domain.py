"""A domain lists its valid combinations, and refuses what describes none."""

from itertools import combinations, product

import numpy as np
import pytest

from fca.studies.generate.stats.domain import Domain, domain_of
from fca.types import FcaError


def test_the_papers_domain_has_1032_of_1344_combinations_and_no_sunny_night_nor_weather_in_a_house(dog):
    assert len(dog) == 1032
    assert np.prod([len(values) for values in dog.attributes.values()]) == 1344
    for weather, location, time, *_ in dog.subdomains:
        assert not (weather == "sunny" and time == "night")
        assert not (location == "inside a house" and weather in ("cloudy", "raining", "snowing"))


def test_subdomains_are_those_that_no_rule_excludes_in_the_order_of_product(small):
    def valid(a, b, c):
        return not (a == "x" and b in (0, 1)) and not (b == 3 and c == "off")

    assert small.subdomains == tuple(row for row in product(*small.attributes.values()) if valid(*row))
    assert small.values(0) == {"a": "x", "b": 2, "c": "on"}
    values = list(small.attributes.values())
    decoded = [[values[at][code] for at, code in enumerate(row)] for row in small.codes]
    assert [tuple(row) for row in decoded] == list(small.subdomains)


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_indicators_have_a_column_for_each_tuple_of_values_that_some_subdomain_has(small, strength):
    names = list(small.attributes)
    found = list(small.indicators(strength))
    assert [one for one, _ in found] == list(combinations(names, strength))
    for chosen, cells in found:
        rows = [tuple(row[names.index(name)] for name in chosen) for row in small.subdomains]
        assert cells.shape == (len(small), len(set(rows)))
        assert (cells.sum(axis=1) == 1).all()
        same = np.array([[one == other for other in rows] for one in rows])
        np.testing.assert_array_equal(cells @ cells.T, same)


def test_a_domain_returns_from_json(small):
    again = domain_of(small.as_json())
    assert again.subdomains == small.subdomains
    assert again.as_json() == small.as_json()


@pytest.mark.parametrize(
    ("attributes", "rules", "message"),
    [
        ({}, [], "attributes = none"),
        ({"a": []}, [], r"attributes.a = \[\]"),
        ({"a": "xy"}, [], "attributes.a = xy"),
        ({"a": ["x", "x"]}, [], r"attributes.a = \['x', 'x'\]"),
        ({f"a{n}": list(range(10)) for n in range(6)}, [], "1,000,000 combinations; allowed: up to 200,000"),
        ({"a": ["x"]}, [{"not": {"b": "x"}}], "attribute in rules = b; allowed: a"),
        ({"a": ["x"]}, [{"not": {"a": "y"}}], "a in rules = y; allowed: x"),
        ({"a": ["x"]}, [{"never": {"a": "x"}}], "rules = {'never'"),
        ({"a": ["x"]}, [{"not": {}}], "rules = {'not': {}}"),
        ({"a": ["x", "y"]}, [{"not": {"a": ["x", "y"]}}], "rules = 1 rules; allowed: rules that leave a combination"),
    ],
)
def test_what_describes_no_domain_is_refused_by_its_name(attributes, rules, message):
    with pytest.raises(FcaError, match=message):
        Domain(attributes, rules)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"attributes": {}}', '{"attributes": 3, "rules": []}'])
def test_json_that_is_no_domain_is_refused(text):
    with pytest.raises(FcaError, match="domain = "):
        domain_of(text)
