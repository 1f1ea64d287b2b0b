"""The figures of reliance."""

from fca.studies.reliance.figures import reliance

_PARTS = (reliance,)
FIGURES = tuple(figure for part in _PARTS for figure in part.FIGURES)
HEADLINES = {name: sentences for part in _PARTS for name, sentences in part.HEADLINES.items()}
