"""The paper's domain, and small ones."""

from pathlib import Path

import pytest
import yaml

from fca.studies.search.stats import Domain


@pytest.fixture(scope="package")
def dog():
    values = yaml.safe_load((Path(__file__).parents[4] / "conf" / "domain" / "dog.yaml").read_text())
    return Domain(values["attributes"], values["rules"])


@pytest.fixture(scope="package")
def small():
    attributes = {"a": ["x", "y", "z"], "b": [0, 1, 2, 3], "c": ["on", "off"]}
    return Domain(attributes, [{"not": {"a": "x", "b": [0, 1]}}, {"not": {"b": 3, "c": "off"}}])
