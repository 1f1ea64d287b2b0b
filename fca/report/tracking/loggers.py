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

PACKAGES = ("tensorboard", "mlflow")  # kinds that need the package of this name
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LightningTracker:
    """Follows trainings; other runs have no curves, and their rows are in the store. No method raises or stops work.

    kind:    csv, tensorboard or mlflow.
    dir:     the store; files go to the folder of that name in it.
    uri:     of MLflow's server; null: files in `dir`/mlflow.
    project: the experiment in MLflow.
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
        """Lightning's logger for a run that is about to train, to which the configuration was logged.

        False where no logger can be made, and in other processes than the first one of a distributed (DDP) training.
        """
        before_lightning()  # Lightning then imports faster
        is_ddp_worker = bool(imported("pytorch_lightning.utilities").rank_zero_only.rank)
        if is_ddp_worker:
            return False

        row = {"run_id": run.run_id, "task": run.task, **run.metadata}
        with self._guarded(run.run_id):
            logger = self._logger(run.run_id, name_of(row))
            self._open[run.run_id] = logger
            # a frame of one line; nested keys become columns such as subset.ncl
            flat_config = pd.json_normalize(config_of(Store(Path(self.dir)), row))
            logger.log_hyperparams(flat_config.to_dict("records")[0])
            return logger
        return False  # an error ended the block: `_guarded` has logged it

    def finish(self, row: Mapping[str, Any]) -> None:
        """Add the results in a training's row to its logger, and close the logger.

        Nothing happens for a run without a logger: its results are in the store alone.
        """
        logger = self._open.pop(row["run_id"], None)
        if logger is None:
            return
        with self._guarded(row["run_id"]):
            results = Entry(row["run_id"], (dict(row),), Store(Path(self.dir))).summary
            numbers = {f"result/{name}": value for name, value in results.items() if isinstance(value, int | float)}
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
        """The loggers of trainings under way, by run id."""
        return {}

    def _logger(self, run_id: str, name: str) -> Any:
        """Lightning's logger of the configured kind for a run; its files go to a folder of the store named by the kind.

        name: the readable name of the run, which MLflow shows.
        """
        loggers = imported("pytorch_lightning.loggers")
        folder = Path(self.dir, self.kind)
        folder.mkdir(parents=True, exist_ok=True)
        if self.kind == "csv":
            return loggers.CSVLogger(folder, name=run_id)  # one version per process: a resumed training adds one
        if self.kind == "tensorboard":
            # no subfolder for each version, and no hp_metric, which Lightning would add with the value -1
            return loggers.TensorBoardLogger(folder, name=run_id, version="", default_hp_metric=False)
        uri = self.uri or f"sqlite:///{folder.resolve()}/mlflow.db"
        tags = {"run_id": run_id}
        return loggers.MLFlowLogger(self.project, run_name=name, tracking_uri=uri, tags=tags)

    def _close(self, run_id: str) -> None:
        """Close the logger of a run, if it has one, as failed."""
        logger = self._open.pop(run_id, None)
        if logger is not None:
            with self._guarded(run_id):
                logger.finalize("failed")

    @contextmanager
    def _guarded(self, run_id: str) -> Iterator[None]:
        """Let no error of a logger out of the body: it is logged, and this run is no longer followed."""
        try:
            yield
        except Exception as error:
            self._open.pop(run_id, None)
            log.warning("run %s is not whole in %s: %s", run_id, self.kind, error)
