"""The paper's domain, and a small one."""

import yaml

from fca.cli.places import CONF
from fca.studies.generate.stats.domain import Domain


def dog_domain():
    values = yaml.safe_load((CONF / "domain" / "dog.yaml").read_text())
    return Domain(values["attributes"], values["rules"])


def small_domain():
    attributes = {"a": ["x", "y", "z"], "b": [0, 1, 2, 3], "c": ["on", "off"]}
    return Domain(attributes, [{"not": {"a": "x", "b": [0, 1]}}, {"not": {"b": 3, "c": "off"}}])
