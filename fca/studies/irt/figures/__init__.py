"""The figures of item response theory."""

from fca.studies.irt.figures import classes, irt, labels

FIGURES = (*irt.FIGURES, *classes.FIGURES, *labels.FIGURES)
HEADLINES = irt.HEADLINES | classes.HEADLINES | labels.HEADLINES
