"""Runs in W&B: a copy of the store to look at. Offline unless WANDB_MODE is set."""

from __future__ import annotations

import base64
import logging
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fca.report.pictures import is_pictures, picture
from fca.torchvision_ops import before_lightning
from fca.types import Run, Table, check_choice

if TYPE_CHECKING:
    import wandb

MODES = ("offline", "online", "disabled")
ANSWER_S = 4.0  # how long the server is waited for when a sweep or a run begins,
FINISH_S, PUBLISH_S = 8.0, 60.0  # and when a run or a report ends; what was not sent then is left to `wandb sync`
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

    def connect(self) -> None:
        """Nothing to reach."""

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

    W&B stops no work: no method raises or hangs, and what the server does not take stays in `dir`/wandb. Only a wrong
    WANDB_MODE is refused, with FcaError, before anything starts.

    project, entity, tags: as in W&B.    group: the sweep.    dir: W&B writes its folder `wandb` in here.
    """

    project: str
    entity: str | None
    group: str | None
    tags: list[str]
    dir: str

    def __post_init__(self) -> None:
        check_choice("WANDB_MODE", _mode(), MODES, f"unset it for {MODES[0]}")

    def connect(self) -> None:
        """Before the first run of a sweep: stay offline, here and in all workers, without a login or an answer."""
        if _mode() == "online" and (reason := _unreachable()):
            print(f"warning: {self._stay_offline(reason)}", file=sys.stderr)

    def start(self, run: Run) -> Any:
        """A Lightning logger for a run that is about to train, or False (WANDB_MODE=disabled; workers of a DDP run)."""
        before_lightning()
        from pytorch_lightning.loggers import WandbLogger
        from pytorch_lightning.utilities import rank_zero_only

        if _mode() == "disabled" or rank_zero_only.rank:  # type: ignore[attr-defined]
            return False

        class Curves(WandbLogger):
            def log_metrics(_, metrics: Mapping[str, float], step: int | None = None) -> None:  # noqa: N805
                with self._guarded(f"run {run.run_id}"):
                    if run.run_id in self._open:  # else W&B's own process ended, and this run with it
                        super().log_metrics(metrics, step)

        with self._guarded(f"run {run.run_id}"):
            opened = self._open[run.run_id] = self._asked(run)
            # What WandbLogger declares for runs that it opens itself: curves are drawn against the optimiser's step.
            opened.define_metric("trainer/global_step")
            opened.define_metric("*", step_metric="trainer/global_step", step_sync=True)
            return Curves(experiment=opened, project=self.project, save_dir=self.dir)
        return False

    def finish(self, row: Mapping[str, Any]) -> None:
        """Config, and every scalar column of a stored row as summary; closes the run. Opens it if `start` did not."""
        if _mode() == "disabled":
            return
        config = {n: value for n, value in row.items() if n.startswith("recipe_") or not isinstance(value, float)}
        with self._guarded(f"run {row['run_id']}"):
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
        with self._guarded(f"run {run.run_id}"):
            opened = self._open.pop(run.run_id, None) or self._asked(run, light=True)
            opened.finish(exit_code=1)

    def publish(self, tables: Sequence[Table], page: Path) -> None:
        """One run of type `report` with the page, its figures (figures/*.png beside the page) and its tables.

        Tables of more than LINES lines are left out, with a line in the log.
        """
        if _mode() == "disabled":
            return
        import wandb

        self.connect()
        os.environ.setdefault("WANDB_DATA_DIR", str(Path(self.dir, "wandb").resolve()))  # else tables litter the home
        with self._guarded(f"report {page.parent.name}"):
            names = {"tables": [table.name for table in tables]}
            opened = self._init("report", names, light=True, name=page.parent.name, patience=PUBLISH_S)
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

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Let no error of W&B out of the body; after one, W&B is begun anew, offline, for what comes next."""
        try:
            yield
        except Exception as error:
            self._restart()
            later = self._stay_offline(_first_line(error)) if _mode() == "online" else _first_line(error)
            log.warning("%s is not whole in W&B: %s", what, later)

    def _stay_offline(self, reason: str) -> str:
        """Track offline from now on, in this process and those it starts; returns a line for the user."""
        os.environ["WANDB_MODE"] = "offline"
        return f"W&B stays offline ({reason}); send its copies later: wandb sync {self.dir}/wandb/*run-*"

    def _restart(self) -> None:
        """End W&B's own process, which still holds the runs that it could not open or send."""
        import wandb

        self._open.clear()
        with suppress(Exception, SystemExit):  # it exits with the code of a process of its own that crashed
            wandb.teardown()
        os.environ.pop("WANDB_SERVICE", None)  # a parent's process, which teardown leaves alone

    def _asked(self, run: Run, *, light: bool = False) -> wandb.Run:
        config = {"run_id": run.run_id, "task": run.task, **run.about}
        whole = {**config, "identity": run.identity}
        return self._init(run.task, whole, light=light, id=run.run_id, name=_name(config))

    def _init(
        self,
        job_type: str,
        config: Mapping[str, Any],
        *,
        light: bool = False,
        patience: float = FINISH_S,
        **named: Any,
    ) -> wandb.Run:
        import wandb

        Path(self.dir).mkdir(parents=True, exist_ok=True)  # W&B would fall back to /tmp
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # W&B's process would wait 12 s to report on itself when it ends
        os.environ.setdefault("WANDB_SILENT", "true")  # else every worker repeats whose login it found
        waits: dict[str, Any] = {"init_timeout": ANSWER_S, "finish_timeout": patience, "finish_timeout_raises": True}

        def init() -> wandb.Run:
            return wandb.init(
                **asdict(self),
                job_type=job_type,
                config=dict(config),
                mode=_mode(),
                resume="allow" if "id" in named else None,  # a run that went on after a kill, or was requested again
                reinit="create_new",  # runs never share the global wandb.run
                settings=wandb.Settings(
                    **_QUIET, **(_LIGHT if light else {}), **(waits if _mode() == "online" else {})
                ),
                **named,
            )

        try:
            return init()
        except Exception as error:
            if _mode() != "online":
                raise
            self._restart()
            log.warning(self._stay_offline(_first_line(error)))
            return init()


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
    return os.environ.get("WANDB_MODE", MODES[0])


def _unreachable() -> str | None:
    """Why nothing can be sent to W&B: no login, or no good answer from its server; None if it can."""
    from wandb.sdk import wandb_setup

    settings = wandb_setup.singleton().settings
    try:
        from wandb.sdk.lib import wbauth  # private: the public wandb.login waits 10 s for a server that does not answer

        login = wbauth.authenticate_session(host=settings.base_url, source="fca", prompt=False, update_session=False)
        if login is None:
            return "no login; try `wandb login`"
        if settings.http_proxy or settings.https_proxy or settings.insecure_disable_ssl:
            return None  # W&B knows how to reach it
        key = base64.b64encode(f"api:{getattr(login, 'api_key', '')}".encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"Basic {key}"}
        asked = urllib.request.Request(f"{settings.base_url}/graphql", b'{"query": "{ viewer { id } }"}', headers)  # noqa: S310
        urllib.request.urlopen(asked, timeout=ANSWER_S).close()  # noqa: S310
    except Exception as error:
        return f"{settings.base_url}: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
