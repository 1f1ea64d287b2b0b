"""A store with what a recommendation reads."""

import pytest

from tests.studies.recommend.support.recommended import recommended


@pytest.fixture(scope="module")
def recommended_study(tmp_path_factory):
    return recommended(tmp_path_factory)
