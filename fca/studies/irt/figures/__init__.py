"""The figures of item response theory."""

from fca.studies.irt.figures import classes, corruptions, irt, labels
from fca.studies.irt.figures.answers import ANSWERS as ANSWERS

FIGURES = (*corruptions.FIGURES, *irt.FIGURES, *classes.FIGURES, *labels.FIGURES)
HEADLINES = corruptions.HEADLINES | irt.HEADLINES | classes.HEADLINES | labels.HEADLINES
