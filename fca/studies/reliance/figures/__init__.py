"""Figures and headlines of the reliance study."""

from fca.studies.reliance.figures import cues, objects, reliance
from fca.studies.reliance.figures.answers import ANSWERS as ANSWERS

_PARTS = (reliance, cues, objects)
FIGURES = tuple(figure for part in _PARTS for figure in part.FIGURES)
HEADLINES = {name: sentences for part in _PARTS for name, sentences in part.HEADLINES.items()}
