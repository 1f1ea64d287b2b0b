"""The figures of few-class studies."""

from fca.studies.few_class.figures import accuracy, comparison, difficulty, prediction, similarity

_PARTS = (accuracy, comparison, similarity, prediction, difficulty)
FIGURES = tuple(figure for part in _PARTS for figure in part.FIGURES)
HEADLINES = {name: sentences for part in _PARTS for name, sentences in part.HEADLINES.items()}
