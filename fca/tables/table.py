"""Tables of analyses, declared once: their question, source and columns; and the columns that many tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fca.stats.intervals import reason_for_no_interval as reason_for_no_interval
from fca.store.columns import CLASSES as CLASSES
from fca.store.columns import DATASET as DATASET
from fca.store.columns import ENCODER as ENCODER
from fca.store.columns import MODEL as MODEL
from fca.store.columns import N_TEST as N_TEST
from fca.store.columns import NCL as NCL
from fca.store.columns import RUN_ID as RUN_ID
from fca.store.columns import SAMPLER as SAMPLER
from fca.store.columns import SEED as SEED
from fca.store.columns import SNAPSHOT as SNAPSHOT
from fca.store.columns import SPLIT as SPLIT
from fca.store.columns import SUBSET_SEED as SUBSET_SEED
from fca.store.columns import TOP1 as TOP1
from fca.types import Column, Table

IMAGE_ID = Column("image_id", str, "", "image")
LABEL = Column("label", str, "", "class of the image")
NOTE = Column("note", str, "", "why a value is missing")
NO_MEAN_INTERVAL = "no interval: it takes two subset seeds that differ"  # of a mean over subsets
UNDEFINED_WITHOUT = (
    "no interval: undefined without one of the subset seeds, or all alike"  # a correlation, a ratio of spreads
)
SUBSETS = Column("subsets", int, ".0f", "class subsets")
MODELS = Column("models", int, ".0f", "models")
IMAGES = Column("images", int, ".0f", "images")
N_CLASSES = Column("classes", int, ".0f", "classes")  # how many; CLASSES: which
SEEDS = Column("seeds", int, ".0f", "seeds")
SEVERITIES = Column("severities", int, ".0f", "severities above 0")
N = Column("n", int, ".0f", "observations")
TOP1_CLEAN = Column("top1_clean", float, ".1%", "accuracy on clean images")
TOP1_PREDICTED = Column("top1_predicted", float, ".2%", "predicted accuracy")
DROP = Column("drop", float, "+.1%", "accuracy lost")
CHANCE = Column("chance", float, ".1%", "accuracy of always predicting the most frequent class")
AT_CHANCE = Column("at_chance", bool, "", "whether the interval of the accuracy reaches down to chance")
_PROTOCOLS = {
    "sub": "sub-model, trained on the subset",
    "open": "full model, open (all classes compete)",
    "masked": "full model, masked (only the subset's)",
    "grouped": "full model, grouped classes",
}
PROTOCOL = Column("protocol", str, "", "which classes a model may predict", _PROTOCOLS, filters=True)
CORRUPTION = Column("corruption", str, "", "corruption", filters=True)
SEVERITY = Column("severity", int, ".0f", "severity of the corruption, 0 for clean")
ATTRIBUTE = Column("attribute", str, "", "attribute")
VERDICT = Column("verdict", str, "", "verdict")
RANK = Column("rank", int, ".0f", "rank")
WARNING = Column("warning", str, "", "what may mislead")
P = Column("p", float, ".2g", "p value")
P_HOLM = Column("p_holm", float, ".2g", "p value after Holm's correction")
R = Column("r", float, ".3f", "correlation")
RHO = Column("rho", float, "+.2f", "rank correlation")
COVERAGE = Column("coverage", float, ".1%", "95 % intervals that contain the truth")
MEASURE = Column("measure", str, "", "what is measured")  # of a table in which each line has one of several measures
VALUE = Column("value", float, ".3f", "value of the measure")

# Columns of pictures in a grid.
PICTURE_KIND = Column("kind", str, "", "kind of picture")
THUMBNAIL = Column("thumbnail", str, "", "picture")
ROW = Column("row", int, ".0f", "row of the picture")
COLUMN = Column("column", int, ".0f", "column of the picture")
PLACE = (THUMBNAIL, ROW, COLUMN)


def all_at_chance(lines: pd.DataFrame) -> bool:
    """Whether the accuracy of every line is at the level of chance, by the column `at_chance`.

    False if there is no line, no such column, or a line without a value in it.

    >>> [all_at_chance(pd.DataFrame({"at_chance": values})) for values in ([True, True], [True, None])]
    [True, False]
    """
    if AT_CHANCE not in lines or lines.empty or lines[AT_CHANCE].isna().any():
        return False
    return bool(lines[AT_CHANCE].astype(bool).all())


def lines_at_chance(lines: pd.DataFrame) -> pd.Series:
    """Whether the accuracy of each line is at the level of chance, by the column `at_chance`; False if it is unknown.

    >>> lines_at_chance(pd.DataFrame({"at_chance": [True, False, None]})).tolist()
    [True, False, False]
    """
    if AT_CHANCE not in lines:
        return pd.Series(False, index=lines.index)
    return lines[AT_CHANCE].eq(True)


@dataclass(frozen=True)
class TableSpec:
    """The declaration of a table that an analysis makes: its name, the question that it answers, and its columns.

    source: the paper and equation that it follows.
    """

    name: str
    question: str
    source: str
    columns: tuple[Column, ...]

    def frame(self, lines: Iterable[Any]) -> pd.DataFrame:
        """These lines as a frame with exactly the declared columns, in their order; what no line has is missing.

        lines: a frame, or one dictionary (column -> value) for each line.
        Raises ValueError for a line with a column that is not declared.
        """
        frame = lines if isinstance(lines, pd.DataFrame) else pd.DataFrame(list(lines))
        unknown = [str(name) for name in frame if name not in self.columns]
        if unknown:
            raise ValueError(f"table {self.name} does not declare {', '.join(unknown)}")
        names = [str(column) for column in self.columns]
        # a frame without any column is made anew: `reindex` would give its columns the type float
        return frame.reindex(columns=names) if len(frame.columns) else pd.DataFrame(columns=names)

    def table(self, frame: pd.DataFrame, parameters: Mapping[str, Any], runs: Iterable[str]) -> Table:
        """The table with the lines of this frame.

        parameters: the settings of the analysis.
        runs:       ids of the runs that it read.
        Raises ValueError unless the frame has exactly the declared columns in their order.
        """
        if list(frame) != list(self.columns):
            raise ValueError(f"table {self.name} has columns {list(frame)}, but declares {list(self.columns)}")
        return Table(self.name, self.question, self.source, frame, parameters, tuple(runs), self.columns)


def filled(
    specs: Iterable[TableSpec], lines: Iterable[Any], parameters: Mapping[str, Any], runs: Iterable[str]
) -> list[Table]:
    """The tables of an analysis, one for each declaration.

    lines: the lines of each table, in the order of `specs` (see `TableSpec.frame`).
    parameters, runs: of all of these tables; runs may repeat an id.
    """
    unique_runs = sorted(set(runs))
    tables = []
    for spec, lines_of_table in zip(specs, lines, strict=True):
        tables.append(spec.table(spec.frame(lines_of_table), parameters, unique_runs))
    return tables
