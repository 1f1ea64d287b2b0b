"""The figures of item response theory."""

from fca.studies.irt.figures import classes, irt, labels, psychometrics
from fca.studies.irt.figures.answers import ANSWERS as ANSWERS

FIGURES = (*irt.FIGURES, *classes.FIGURES, *labels.FIGURES, *psychometrics.FIGURES)
HEADLINES = irt.HEADLINES | classes.HEADLINES | labels.HEADLINES | psychometrics.HEADLINES
