"""The figures of reliance on the object or its surroundings."""

from fca.studies.reliance.figures import objects

_PARTS = (objects,)
FIGURES = tuple(figure for part in _PARTS for figure in part.FIGURES)
HEADLINES = {name: sentences for part in _PARTS for name, sentences in part.HEADLINES.items()}
