"""Domains that images may be drawn of."""

import pytest

from tests.studies.generate.support.domains import dog_domain, small_domain


@pytest.fixture(scope="package")
def dog():
    return dog_domain()


@pytest.fixture(scope="package")
def small():
    return small_domain()
