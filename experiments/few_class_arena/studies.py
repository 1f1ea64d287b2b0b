"""Which stored runs may stand together: one study a data set, and one a way of making its sub-models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
from paper import DATASETS, SEEDS, grid

from fca.store import Store
from fca.studies.few_class.accuracy import FewClass
from fca.types import FcaError

# where these differ among the sub-models of a data set, each combination is a study of its own
AXES = ("fingerprint", "adaptation", "sampler", "compat")
SHORT = {dataset: short for short, dataset in DATASETS.items()}


@dataclass(frozen=True)
class View(Store):
    """A store of which an analysis sees some rows."""

    frame: pd.DataFrame

    def rows(self, query: str | None = None) -> pd.DataFrame:
        """Those rows; a query narrows them further."""
        return self.frame if query is None else self.frame.query(query, engine="python")


@dataclass(frozen=True, eq=False)
class Study:
    """Runs of one data set that may be compared. name: the data set, and what tells this study from its others."""

    name: str
    dataset: str
    view: View

    @property
    def rows(self) -> pd.DataFrame:
        """Its runs."""
        return self.view.frame

    @property
    def short(self) -> str | None:
        """The paper's name of the data set."""
        return SHORT.get(self.dataset)

    @property
    def num_classes(self) -> int:
        """Classes of the data set."""
        return int(self.rows["num_classes"].max())

    @property
    def trained(self) -> pd.DataFrame:
        """Its sub-models."""
        return sub_models(self.rows)

    @property
    def per_model(self) -> list[str]:
        """What may differ between models by intention: as in the paper, every network has its own recipe."""
        return [str(name) for name in self.rows if str(name).startswith("recipe_")]

    @property
    def sampler(self) -> str:
        """How its subsets were drawn; as the Arena released it where there is no sub-model."""
        known = self.trained["sampler"].dropna()
        return "fca" if known.empty else str(known.iloc[0])

    @property
    def seeds(self) -> list[int]:
        """The paper's subset seeds and those of its sub-models."""
        return sorted({*SEEDS, *map(int, self.trained["subset_seed"].dropna())})

    def sizes(self, wanted: tuple[int, ...] | None = None) -> list[float]:
        """Numbers of classes to look at: the paper's grid (or those wanted) and those of its sub-models."""
        drawn = self.num_classes - (self.sampler == "fca")  # the released sampler never draws the last class
        asked = {*wanted} if wanted else {*grid(self.num_classes), *map(int, self.trained["ncl"])}
        return sorted(float(n) for n in asked if n <= drawn or n == self.num_classes)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Accuracy of every model on every subset, as `analysis=few_class` has it; FcaError says why there is none."""
        ask = FewClass(ncl=self.sizes(), seeds=self.seeds, sampler=self.sampler, per_model=self.per_model)
        tables = {table.name: table.frame for table in ask(self.view)}
        return tables["accuracy_points"].assign(dataset=self.name)

    @property
    def params(self) -> pd.Series:
        """Parameters of every model, where a run says so; the largest head counts."""
        return self.rows[self.rows["task"] != "embed"].groupby("model")["params"].max().dropna().astype("float64")


def sub_models(rows: pd.DataFrame) -> pd.DataFrame:
    """`train` runs on fewer classes than there are."""
    return rows[(rows["task"] == "train") & (rows["ncl"] < rows["num_classes"]).fillna(value=False)]


def full_models(rows: pd.DataFrame) -> pd.DataFrame:
    """Answers of models that know every class, on the clean test images."""
    full = (rows["ncl"] == rows["num_classes"]).fillna(value=False) & (rows["split"] == "test")
    return rows[full & (rows["task"] == "predict") & (rows["shift"] == "clean")]


def ready(found: Iterable[Study]) -> tuple[list[Study], dict[str, str]]:
    """The studies whose accuracies can be told, and why the others' cannot, by name."""
    usable, reasons = [], {}
    for study in found:
        try:
            study.points  # noqa: B018  kept by the study
            usable.append(study)
        except FcaError as error:
            reasons[study.name] = str(error)
    return usable, reasons


def studies(store: Store, query: str | None = None) -> Iterator[Study]:
    """The studies of a store, the paper's data sets first."""
    rows = store.rows(query)
    order = {dataset: place for place, dataset in enumerate(SHORT)}
    for dataset in sorted(rows["dataset"].dropna().unique(), key=lambda name: (order.get(name, len(order)), name)):
        part = rows[rows["dataset"] == dataset]
        reference = next((kind for kind in (sub_models(part), full_models(part)) if len(kind)), None)
        if reference is None:
            continue
        found = reference[list(AXES)].drop_duplicates()
        differing = [axis for axis in AXES if len(found[axis].unique()) > 1]
        for values in found.to_dict("records"):
            kept = part
            for axis, value in values.items():
                kept = kept[kept[axis].isna() | (kept[axis] == value)]
            named = [_named(axis, values[axis]) for axis in differing if pd.notna(values[axis])]
            yield Study(" · ".join([dataset, *named]), dataset, View(store.outputs, kept))


def _named(axis: str, value: str) -> str:
    return value if axis == "adaptation" else f"{axis} {value[:8]}"
