"""Tables of analyses, declared once: their question, source and columns; and the columns that many tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fca.types import LEVELS, Column, Table

DATASET = Column("dataset", str, "", "data set", filters=True)
MODEL = Column("model", str, "", "model", filters=True)
ENCODER = Column("encoder", str, "", "encoder whose features are compared")
NCL = Column("ncl", int, ".0f", "ncl, number of classes", filters=True)
SUBSET_SEED = Column("subset_seed", int, ".0f", "seed of the draw of the classes")
SAMPLER = Column("sampler", str, "", "how the classes were drawn")
CLASSES = Column("classes", tuple, "", "label indices of the classes")
SEED = Column("seed", int, ".0f", "seed of initial weights and batch order")
TOP1 = Column("top1", float, ".2%", "top-1 accuracy")
N_TEST = Column("n_test", int, ".0f", "test images")
RUN_ID = Column("run_id", str, "", "run that the line comes from")
SPLIT = Column("split", str, "", "split of the images")
FINGERPRINT = Column("fingerprint", str, "", "fingerprint of the data")
IMAGE_ID = Column("image_id", str, "", "image")
LABEL = Column("label", str, "", "class of the image")
NOTE = Column("note", str, "", "why a value is missing")
SUBSETS = Column("subsets", int, ".0f", "class subsets")
MODELS = Column("models", int, ".0f", "models")
PROTOCOL = Column(
    "protocol",
    str,
    "",
    "how a model is scored on few classes",
    {
        "sub": "sub-model, trained on the subset",
        "open": "full model, open (all classes compete)",
        "masked": "full model, masked (only the subset's)",
        "grouped": "full model, grouped classes",
    },
    filters=True,
)
CORRUPTION = Column("corruption", str, "", "corruption", filters=True)
SEVERITY = Column("severity", int, ".0f", "severity of the corruption, 0 for clean")
SNAPSHOT = Column("snapshot", str, "", "share of all training steps, or best")
ATTRIBUTE = Column("attribute", str, "", "attribute that makes the image easy or hard")
LEVEL = Column("level", str, "", "level of difficulty", {level: level for level in LEVELS})


@dataclass(frozen=True)
class TableSpec:
    """The declaration of an analysis' table.

    source: paper and equation.
    """

    name: str
    question: str
    source: str
    columns: tuple[Column, ...]

    def frame(self, lines: Iterable[Any]) -> pd.DataFrame:
        """These lines as a frame with exactly the declared columns, in their order; missing cells stay missing.

        Raises ValueError for a line with a column that is not declared.
        """
        frame = lines if isinstance(lines, pd.DataFrame) else pd.DataFrame(list(lines))
        unknown = [str(name) for name in frame if name not in self.columns]
        if unknown:
            raise ValueError(f"table {self.name} does not declare {', '.join(unknown)}")
        names = [str(column) for column in self.columns]
        return frame.reindex(columns=names) if len(frame.columns) else pd.DataFrame(columns=names)

    def table(self, frame: pd.DataFrame, parameters: Mapping[str, Any], runs: Iterable[str]) -> Table:
        """The table with these lines. Raises ValueError when a declared column is missing or another one is there."""
        if list(frame) != list(self.columns):
            raise ValueError(f"table {self.name} has columns {list(frame)}, but declares {list(self.columns)}")
        return Table(self.name, self.question, self.source, frame, parameters, tuple(runs), self.columns)
