"""Whether all studies are here: what names one of those that were removed is then left out, and only then."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hydra.errors import HydraException

from fca.cli.places import study_folders
from fca.types import FcaError

NAMES = ("few_class", "recommend", "irt", "psychometrics", "progressive", "adaptive", "reliance", "search", "generate")
SHIPPED = {f"fca.studies.{name}" for name in NAMES}


def removed_studies() -> set[str]:
    """The packages of studies that come with fca and are not in this tree."""
    return SHIPPED - set(study_folders())


@contextmanager
def of_studies_that_are_here() -> Iterator[None]:
    """Skip a test that needs a study which was removed; where none was, its errors are errors."""
    try:
        yield
    except (HydraException, FcaError) as error:
        if not removed_studies():
            raise
        pytest.skip(f"without {', '.join(sorted(removed_studies()))}: {error}")
