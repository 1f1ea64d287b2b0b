from pathlib import Path

import pytest
import yaml

from fca.studies.generate.domain import EvaluationDomain
from fca.studies.generate.generators.rendered import RenderedGenerator
from fca.studies.generate.protocols import Conditional, Generator
from fca.types import FcaError

DOMAIN = Path(__file__).parents[3] / "conf" / "domain" / "rendered.yaml"


def domain(**changed):
    values = yaml.safe_load(DOMAIN.read_text())
    del values["_target_"]
    return EvaluationDomain(**{**values, **changed})


def test_it_is_a_generator_that_names_the_conditions_which_it_draws():
    assert isinstance(RenderedGenerator(32), Generator)
    assert isinstance(RenderedGenerator(32), Conditional)


def test_it_can_draw_all_of_its_domain_which_has_at_least_a_thousand_valid_subdomains():
    found, known = domain(), RenderedGenerator(32).conditions
    found.check()
    assert 1000 <= len(found.space) <= 1400
    assert all(set(values) <= set(known[name]) for name, values in found.attributes.items())


def test_a_subdomain_is_drawn_with_masks_and_its_parameters_as_facts():
    subdomain = domain(subject="mug").space.subdomains.index(
        ("dusk", "top", "large", "blue", "striped", "greenery", "half hidden")
    )
    image, visible, full, facts = RenderedGenerator(32).draw(domain(subject="mug").wanted(subdomain, 5))
    assert image.shape == (32, 32, 3)
    assert 0.3 < visible.sum() / full.sum() < 0.7
    assert (facts["label"], facts["seed"], facts["texture"]) == ("mug", 5, "stripes")


def test_a_subject_that_it_cannot_draw_is_refused():
    with pytest.raises(FcaError, match="class = dog; allowed: airplane"):
        RenderedGenerator(32).draw(domain(subject="dog").wanted(0, 0))
