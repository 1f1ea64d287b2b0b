"""Figures and headlines of the search study."""

from fca.studies.search.figures import benchmark, failures
from fca.studies.search.figures.answers import ANSWERS as ANSWERS

_PARTS = (benchmark, failures)
FIGURES = tuple(figure for part in _PARTS for figure in part.FIGURES)
HEADLINES = {name: sentences for part in _PARTS for name, sentences in part.HEADLINES.items()}
