"""The figures of few-class studies."""

from fca.studies.few_class.figures import accuracy, difficulty, prediction, similarity
from fca.studies.few_class.figures.answers import ANSWERS as ANSWERS

_PARTS = (accuracy, similarity, prediction, difficulty)
FIGURES = tuple(figure for part in _PARTS for figure in part.FIGURES)
HEADLINES = {name: sentences for part in _PARTS for name, sentences in part.HEADLINES.items()}
