"""Runs in W&B: a copy of the store to look at. Offline unless WANDB_MODE is set."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fca.report.pictures import is_pictures, picture
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError, Run, Table, check_choice

if TYPE_CHECKING:
    import wandb

MODES = ("offline", "online", "disabled")
LINES = 10_000  # of a table that W&B still shows well; longer ones stay in the store

log = logging.getLogger(__name__)

# The row already holds commit and versions, and log.txt the console; listing packages alone takes 50 ms a run.
_QUIET: dict[str, Any] = {"silent": True, "console": "off", "x_save_requirements": False}
_QUIET |= {"disable_git": True, "disable_code": True, "disable_job_creation": True}
_QUIET["x_transaction_log_flush_interval"] = 1.0  # not 15 s: a killed worker leaves its config, and leet is live
# A run that opens only to be closed has no use for machine statistics either: 8 ms instead of 15.
_LIGHT: dict[str, Any] = {"x_disable_stats": True, "x_disable_meta": True, "x_disable_machine_info": True}


@dataclass(frozen=True)
class NoTracker:
    """Follows nothing."""

    def start(self, run: Run) -> bool:
        """No logger."""
        return False

    def finish(self, row: Mapping[str, Any]) -> None:
        """Nothing to write."""

    def fail(self, run: Run) -> None:
        """Nothing to close."""

    def publish(self, tables: Sequence[Table], page: Path) -> None:
        """Nothing to show."""


@dataclass(frozen=True)
class WandbTracker:
    """Every run of ours is one run in W&B under the same id: config when it opens, all columns when it is done.

    project, entity, tags: as in W&B.    group: the sweep.    dir: W&B writes its folder `wandb` in here.
    """

    project: str
    entity: str | None
    group: str | None
    tags: list[str]
    dir: str

    def start(self, run: Run) -> Any:
        """A Lightning logger for a run that is about to train, or False (WANDB_MODE=disabled; workers of a DDP run)."""
        declare_torchvision_ops()
        from pytorch_lightning.loggers import WandbLogger
        from pytorch_lightning.utilities import rank_zero_only

        if _mode() == "disabled" or rank_zero_only.rank:  # type: ignore[attr-defined]
            return False
        opened = self._open[run.run_id] = self._asked(run)
        # What WandbLogger declares for runs that it opens itself: curves are drawn against the optimiser's step.
        opened.define_metric("trainer/global_step")
        opened.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        return WandbLogger(experiment=opened, project=self.project, save_dir=self.dir)

    def finish(self, row: Mapping[str, Any]) -> None:
        """Config, and every scalar column of a stored row as summary; closes the run. Opens it if `start` did not."""
        if _mode() == "disabled":
            return
        config = {n: value for n, value in row.items() if n.startswith("recipe_") or not isinstance(value, float)}
        opened = self._open.pop(row["run_id"], None)
        if opened is None:
            opened = self._init(row["task"], config, light=True, id=row["run_id"], name=_name(row))
        else:
            opened.config.update(config, allow_val_change=True)  # type: ignore[no-untyped-call]
        opened.summary.update({n: value for n, value in row.items() if isinstance(value, str | int | float)})
        opened.finish()

    def fail(self, run: Run) -> None:
        """Close a run as failed; opens it if `start` did not."""
        if _mode() == "disabled":
            return
        opened = self._open.pop(run.run_id, None) or self._asked(run, light=True)
        opened.finish(exit_code=1)

    def publish(self, tables: Sequence[Table], page: Path) -> None:
        """One run of type `report` with the page, its figures (figures/*.png beside the page) and its tables.

        Tables of more than LINES lines are left out, with a line in the log.
        """
        if _mode() == "disabled":
            return
        import wandb

        os.environ.setdefault("WANDB_DATA_DIR", str(Path(self.dir, "wandb").resolve()))  # else tables litter the home
        opened = self._init("report", {"tables": [table.name for table in tables]}, light=True, name=page.parent.name)
        shown: dict[str, Any] = {"page": wandb.Html(page, inject=False)}
        for figure in sorted((page.parent / "figures").glob("*.png")):
            shown[f"figures/{figure.stem}"] = wandb.Image(str(figure))
        for table in tables:
            if len(table.frame) > LINES:
                log.warning("table %s is not in W&B: %d lines, over %d", table.name, len(table.frame), LINES)
                continue
            shown[f"tables/{table.name}"] = _table(table.frame)
        opened.log(shown)
        opened.finish()

    @cached_property
    def _open(self) -> dict[str, wandb.Run]:
        return {}

    def _asked(self, run: Run, *, light: bool = False) -> wandb.Run:
        config = {"run_id": run.run_id, "task": run.task, **run.about}
        whole = {**config, "identity": run.identity}
        return self._init(run.task, whole, light=light, id=run.run_id, name=_name(config))

    def _init(self, job_type: str, config: Mapping[str, Any], *, light: bool = False, **named: Any) -> wandb.Run:
        import wandb

        Path(self.dir).mkdir(parents=True, exist_ok=True)  # W&B would fall back to /tmp
        try:
            return wandb.init(
                **asdict(self),
                job_type=job_type,
                config=dict(config),
                mode=_mode(),
                resume="allow" if "id" in named else None,  # a run that went on after a kill, or was requested again
                reinit="create_new",  # runs never share the global wandb.run
                settings=wandb.Settings(**_QUIET, **(_LIGHT if light else {})),
                **named,
            )
        except wandb.Error as error:
            step = f"WANDB_MODE=offline or logger=none ({error})"
            raise FcaError("WANDB_MODE", _mode(), "online only after `wandb login`", step) from error


def _name(row: Mapping[str, Any]) -> str:
    """What the run is called in a list of runs: `train digits resnet18 ncl=5 subset_seed=0 seed=0`."""
    named = [f"{name}={row[name]}" for name in ("ncl", "subset_seed", "seed") if row.get(name) is not None]
    other = [str(row[n]) for n, usual in (("snapshot", "best"), ("shift", "clean")) if row.get(n, usual) != usual]
    return " ".join([*(str(row[n]) for n in ("task", "dataset", "model", "encoder") if row.get(n)), *named, *other])


def _table(frame: pd.DataFrame) -> wandb.Table:
    """What W&B can show: missing is None, and a data URI of a picture is a picture."""
    import wandb

    plain = frame.astype(object).where(frame.notna(), None)
    pictured = [str(name) for name in frame if is_pictures(frame[name])]
    for name in pictured:
        shown = [None if uri is None else wandb.Image(picture(uri)) for uri in plain[name]]
        plain[name] = pd.Series(shown, index=plain.index, dtype="object")
    lines = plain.to_numpy(dtype=object)  # of a frame W&B would look up every cell by itself
    table = wandb.Table(columns=[str(name) for name in plain], data=lines, allow_mixed_types=True)
    for name in pictured:  # else W&B keeps the word Image
        table.cast(name, wandb.Image, optional=True)
    return table


def _mode() -> Any:
    mode = os.environ.get("WANDB_MODE", MODES[0])
    check_choice("WANDB_MODE", mode, MODES, f"unset it for {MODES[0]}")
    return mode
