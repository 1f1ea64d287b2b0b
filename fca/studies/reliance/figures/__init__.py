"""The figures of reliance on spurious cues."""

from fca.studies.reliance.figures import ranks

FIGURES = ranks.FIGURES
HEADLINES = ranks.HEADLINES
