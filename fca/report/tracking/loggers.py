"""Trainings in CSV files, TensorBoard or MLflow, by Lightning's own loggers: configuration, curves, results."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from fca.report.tracking.entries import Entry, config_of, name_of
from fca.store import Store
from fca.torchvision_ops import before_lightning, imported
from fca.types import FcaError, Run, Table
from fca.validation import Allowed

PACKAGES = ("tensorboard", "mlflow")  # that a kind needs
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LightningTracker:
    """Follows trainings; other runs have no curves, and their rows are in the store. No method raises or stops work.

    kind: csv, tensorboard or mlflow.    dir: the store; files go to the folder of that name in it.
    uri:  of MLflow's server; null: files in `dir`/mlflow.    project: the experiment in MLflow.
    Raises FcaError, when it is made, for a kind whose package is not installed.
    """

    kind: Annotated[str, Allowed(choices=("csv", *PACKAGES))]
    dir: str
    uri: str | None = None
    project: str = "fca"

    def __post_init__(self) -> None:
        if self.kind in PACKAGES and find_spec(self.kind) is None:
            step = f"pip install {self.kind}, or take logger=csv"
            raise FcaError("logger", self.kind, f"a logger whose package is installed; {self.kind} is not", step)

    def connect(self) -> None:
        """Nothing to reach before a training begins."""

    def start(self, run: Run) -> Any:
        """A logger of Lightning's, which knows the configuration; False where it cannot be made."""
        before_lightning()
        if imported("pytorch_lightning.utilities").rank_zero_only.rank:
            return False
        row = {"run_id": run.run_id, "task": run.task, **run.metadata}
        with self._guarded(run.run_id):
            logger = self._open[run.run_id] = self._made(run.run_id, name_of(row))
            by_typed_key = pd.json_normalize(config_of(Store(Path(self.dir)), row))  # subset.ncl, ...
            logger.log_hyperparams(by_typed_key.to_dict("records")[0])
            return logger
        return False

    def finish(self, row: Mapping[str, Any]) -> None:
        """Add the results of a training to its curves."""
        if (logger := self._open.pop(row["run_id"], None)) is not None:
            with self._guarded(row["run_id"]):
                results = Entry(row["run_id"], (dict(row),), Store(Path(self.dir))).summary
                numbers = {f"result/{name}": v for name, v in results.items() if isinstance(v, int | float)}
                logger.log_metrics(numbers)
                logger.finalize("success")

    def fail(self, run: Run) -> None:
        """Close the logger of a run that failed."""
        self._close(run.run_id)

    def close(self) -> None:
        """Close what has no row: it did not finish."""
        for run_id in list(self._open):
            self._close(run_id)

    def publish(self, tables: Sequence[Table], page: Path, metadata: Mapping[str, Any]) -> None:
        """Nothing: a report is a page and files already."""

    @cached_property
    def _open(self) -> dict[str, Any]:
        return {}

    def _made(self, run_id: str, name: str) -> Any:
        loggers, place = imported("pytorch_lightning.loggers"), Path(self.dir, self.kind)
        place.mkdir(parents=True, exist_ok=True)
        if self.kind == "csv":
            return loggers.CSVLogger(place, name=run_id)  # a version a process: a resumed training adds one
        if self.kind == "tensorboard":
            return loggers.TensorBoardLogger(place, name=run_id, version="", default_hp_metric=False)
        uri = self.uri or f"sqlite:///{place.resolve()}/mlflow.db"
        tags = {"run_id": run_id}
        return loggers.MLFlowLogger(self.project, run_name=name, tracking_uri=uri, tags=tags)

    def _close(self, run_id: str) -> None:
        if (logger := self._open.pop(run_id, None)) is not None:
            with self._guarded(run_id):
                logger.finalize("failed")

    @contextmanager
    def _guarded(self, run_id: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._open.pop(run_id, None)
            log.warning("run %s is not whole in %s: %s", run_id, self.kind, error)
