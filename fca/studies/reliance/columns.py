"""Columns that the rows of saliency runs share with the analyses."""

from fca.tables.table import CHANCE
from fca.types import Column

MODEL_CHANCE = CHANCE.with_format(".1%", "accuracy of guessing one of the classes that the model may predict")
GEOMETRY = Column("geometry", str, "", "resize and crop: side of the input, side before the crop, filter")
