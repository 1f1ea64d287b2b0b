"""The figures of few-class studies."""

from fca.studies.few_class.figures import accuracy

FIGURES = accuracy.FIGURES
HEADLINES = accuracy.HEADLINES
