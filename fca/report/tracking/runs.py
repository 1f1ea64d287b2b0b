"""Runs in W&B: a copy of the store to look at. Offline unless WANDB_MODE is set.

A training is followed live; what else belongs to its entry (fca/report/tracking/entries.py) is written when the job
ends, or by `fca wandb sync` from the store.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml

from fca.report.tracking.entries import (
    Entry,
    command_of,
    config_of,
    entry_id,
    entry_with,
    experiment_of,
    name_of,
    typed_of,
)
from fca.report.tracking.settings import ignore_local_settings
from fca.report.tracking.tables import as_table, chart_of, report_id, scalars
from fca.store import Store
from fca.store.columns import Row
from fca.store.files import if_whole, read_object, write_json
from fca.torchvision_ops import before_lightning
from fca.types import Run, Table, check_choice, without_password
from fca.validation import Allowed

if TYPE_CHECKING:
    import wandb

MODES = ("offline", "online", "disabled")
ANSWER_S = 4.0  # how long the server is waited for when a sweep or a run begins,
FINISH_S, PUBLISH_S = 8.0, 60.0  # and when a run or a report ends; what was not sent then is left to `fca wandb sync`
LINES = 10_000  # of a table that W&B still shows well; longer ones stay in the store
TAG = 64  # characters that W&B takes
SYNCED = ".wandb.synced"  # W&B's own mark beside the file of a run that its server has

log = logging.getLogger(__name__)

# The row already holds commit and versions, and log.txt the console; listing packages alone takes 50 ms a run.
_QUIET: dict[str, Any] = {"silent": True, "console": "off", "x_save_requirements": False}
_QUIET |= {"disable_git": True, "disable_code": True, "disable_job_creation": True}
_QUIET["x_transaction_log_flush_interval"] = 1.0  # not 15 s: a killed worker leaves its config, and leet is live
# A run that opens only to be closed has no use for machine statistics either: 8 ms instead of 15.
_LIGHT: dict[str, Any] = {"x_disable_stats": True, "x_disable_meta": True, "x_disable_machine_info": True}


@dataclass(frozen=True)
class WandbTracker:
    """A training is one run in W&B under the same id; its predictions and scores are its summary and its tables.

    W&B stops no work: no method raises or hangs, and what the server does not take stays in `dir`/wandb. Only a wrong
    WANDB_MODE is refused, with FcaError, before anything starts.

    project, entity: as in W&B.    dir: the store; W&B writes its folder `wandb` in there.
    group:     null: the experiment, or the sweep.    tags: null: experiment, data set and model.
    artifacts: what of a training goes to W&B as files: weights, logits.
    """

    project: str
    entity: str | None
    group: str | None
    tags: list[str] | None
    dir: str
    artifacts: Annotated[list[str], Allowed(choices=("weights", "logits"))] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_choice("WANDB_MODE", mode(), MODES, f"unset it for {MODES[0]}")

    def connect(self) -> None:
        """Before the first run of a sweep: stay offline, here and in all workers, without a login or an answer."""
        if mode() == "online" and (reason := unreachable()):
            print(f"warning: {self._stay_offline(reason)}", file=sys.stderr)

    def start(self, run: Run) -> Any:
        """A Lightning logger for a run that is about to train, or False (WANDB_MODE=disabled; workers of a DDP run)."""
        before_lightning()
        from pytorch_lightning.loggers import WandbLogger
        from pytorch_lightning.utilities import rank_zero_only

        if mode() == "disabled" or rank_zero_only.rank:  # type: ignore[attr-defined]
            return False

        class Curves(WandbLogger):
            def log_metrics(_, metrics: Mapping[str, float], step: int | None = None) -> None:  # noqa: N805
                with self._guarded(f"run {run.run_id}"):
                    if opened := self._open.get(run.run_id):  # else W&B's own process ended, and this run with it
                        opened.log(dict(metrics), step=step)  # W&B's own step is the optimiser's

        with self._guarded(f"run {run.run_id}"):
            opened = self._open[run.run_id] = self._begin(run.run_id, _about(run))
            return Curves(experiment=opened, project=self.project, save_dir=self.dir)
        return False

    def finish(self, row: Mapping[str, Any]) -> None:
        """Keep a stored row for `close`; the results of a training that is followed are written at once."""
        if mode() == "disabled":
            return
        self._rows.append(dict(row))
        if opened := self._open.get(row["run_id"]):
            with self._guarded(f"run {row['run_id']}"):
                entry = Entry(row["run_id"], (dict(row),), self.store)
                opened.config.update(entry.config, allow_val_change=True)  # type: ignore[no-untyped-call]
                opened.summary.update(entry.summary)

    def fail(self, run: Run) -> None:
        """Close a run as failed; opens it if `start` did not."""
        if mode() == "disabled":
            return
        with self._guarded(f"run {run.run_id}"):
            opened = self._open.pop(run.run_id, None) or self._begin(run.run_id, _about(run), light=True)
            self.end(opened, exit_code=1)

    def close(self) -> None:
        """When a job has ended: write the entries of its rows whole and close them; what has no row did not finish."""
        rows, found = list(self._rows), dict[str, list[Row]]()
        self._rows.clear()
        for row in rows:
            with self._guarded(f"run {row['run_id']}"):
                found.setdefault(entry_id(row, self.store), []).append(row)
        for identity, members in found.items():
            with self._guarded(f"run {identity}"):
                self.write(self.entry(identity, members), self._open.pop(identity, None))
        for identity in list(self._open):
            with self._guarded(f"run {identity}"):
                self.end(self._open.pop(identity), exit_code=1)

    def write(self, entry: Entry, opened: wandb.Run | None = None) -> None:
        """Write an entry whole and close it.    opened: the run in W&B, if it is open; else it is opened again."""
        shown: dict[str, Any] = {}
        if opened is None:
            begun = self.record(entry.id).exists() or any(Path(self.dir, "wandb").glob(f"*run-*/run-{entry.id}.wandb"))
            opened = self._begin(entry.id, entry.head, light=True)
            for line in entry.history:
                step = int(line.pop("step"))
                shown = line  # its summary is the whole one, whatever earlier files of this run had
                if not begun:
                    opened.log(line, step=step)
        opened.config.update(entry.config, allow_val_change=True)  # type: ignore[no-untyped-call]
        shown |= entry.summary
        for task, frame in entry.tables.items():
            if len(frame) > LINES:
                log.warning("%d rows of %s are not in W&B: over %d", len(frame) - LINES, task, LINES)
            shown[task] = as_table(frame.head(LINES))
        opened.summary.update(shown)
        for artifact in self._artifacts(entry):
            opened.log_artifact(artifact)
        self.end(opened)
        write_json(self.record(entry.id), {"rows": entry.state})

    def record(self, identity: str) -> Path:
        """Which rows of an entry its runs in `dir`/wandb hold."""
        return Path(self.dir, "wandb", "entries", f"{identity}.json")

    def held(self, identity: str) -> dict[str, str]:
        """The rows that an entry holds, run_id -> when it was written; empty where there is no record."""
        with if_whole():
            return read_object(self.record(identity), rows=dict)["rows"]
        return {}

    @property
    def store(self) -> Store:
        """What this is a copy of."""
        return Store(Path(self.dir))

    def publish(self, tables: Sequence[Table], page: Path, metadata: Mapping[str, Any]) -> None:
        """One run of type `report` a question: its page, figures (figures/*.png beside it), tables, charts, scalars.

        Tables of more than LINES lines are left out, with a line in the log.
        about: report, query, command, commit: its configuration.
        """
        if mode() == "disabled":
            return
        import wandb

        self.connect()
        with self._guarded(f"report {page.parent.name}"):
            config = {**metadata, "tables": [table.name for table in tables]}
            named: dict[str, Any] = {"id": report_id(metadata), "name": page.parent.name, "group": self.group}
            opened = self.init("report", config, light=True, patience=PUBLISH_S, tags=["report"], **named)
            shown: dict[str, Any] = {"page": wandb.Html(page, inject=False)}
            for figure in sorted((page.parent / "figures").glob("*.png")):
                shown[f"figures/{figure.stem}"] = wandb.Image(str(figure))
            for table in tables:
                if len(table.frame) > LINES:
                    log.warning("table %s is not in W&B: %d lines, over %d", table.name, len(table.frame), LINES)
                    continue
                shown[f"tables/{table.name}"] = as_table(table.frame)
                if (chart := chart_of(table)) is not None:
                    shown[f"charts/{table.name}"] = chart
            opened.log(shown)
            opened.summary.update({key: value for table in tables for key, value in scalars(table).items()})
            self.end(opened)

    def entry(self, identity: str, rows: Iterable[Row]) -> Entry:
        """The entry of these rows and of those that it holds already."""
        held = map(self.store.row_if_whole, self.held(identity))
        before = [row for row in held if row is not None]
        return entry_with(identity, [*before, *rows], self.store)

    def _artifacts(self, entry: Entry) -> Iterator[wandb.Artifact]:
        import wandb

        files: dict[str, list[Path]] = {"weights": [], "logits": []}
        for row in entry.rows:
            folder = self.store.folder(row["run_id"])
            files["weights"] += [*self.store.weights(row["run_id"]), *folder.glob("model.json")]
            files["logits"] += [folder / f"{name}.npy" for name in ("logits", "logit_classes", "pred")]
        for kind in self.artifacts:
            artifact = wandb.Artifact(f"{kind}-{entry.id}", "model" if kind == "weights" else "predictions")
            present = [path for path in files[kind] if path.is_file()]
            for path in present:
                artifact.add_file(str(path), f"{path.parent.name}/{path.name}")
            if present:
                yield artifact

    @cached_property
    def _open(self) -> dict[str, wandb.Run]:
        return {}

    @cached_property
    def _rows(self) -> list[Row]:
        return []

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Let no error of W&B out of the body; after one, W&B is begun anew, offline, for what comes next."""
        try:
            yield
        except Exception as error:
            self._restart()
            later = self._stay_offline(_first_line(error)) if mode() == "online" else _first_line(error)
            log.warning("%s is not whole in W&B: %s", what, later)

    def _stay_offline(self, reason: str) -> str:
        """Track offline from now on, in this process and those it starts; returns a line for the user."""
        os.environ["WANDB_MODE"] = "offline"
        return f"W&B stays offline ({reason}); send its copies later: fca wandb sync --outputs {self.dir}"

    def _restart(self) -> None:
        """End W&B's own process, which still holds the runs that it could not open or send."""
        import wandb

        self._open.clear()
        with suppress(Exception, SystemExit):  # it exits with the code of a process of its own that crashed
            wandb.teardown()
        os.environ.pop("WANDB_SERVICE", None)  # a parent's process, which teardown leaves alone

    def _begin(self, identity: str, row: Mapping[str, Any], *, light: bool = False) -> wandb.Run:
        """Open the run of an entry, with its configuration, and attach the file that it is from."""
        experiment = experiment_of(command_of(self.store, row))
        tags = [str(tag)[:TAG] for tag in (experiment, row.get("dataset"), row.get("model")) if tag]
        named: dict[str, Any] = {"id": identity, "name": name_of(row), "group": self.group or experiment}
        opened = self.init(row["task"], config_of(self.store, row), light=light, tags=tags, **named)
        if typed := typed_of(self.store, row):
            file = Path(opened.dir, "fca", "config.yaml")  # W&B writes a file config.yaml of its own
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(typed, sort_keys=False))
            opened.save(str(file), base_path=opened.dir, policy="now")
        return opened

    def end(self, opened: wandb.Run, exit_code: int = 0) -> None:
        """Close a run; what W&B's server has then is marked as `wandb sync` marks it."""
        file = Path(opened.settings.sync_file)
        opened.finish(exit_code=exit_code)
        if mode() == "online":
            file.with_suffix(SYNCED).touch()

    def init(
        self,
        job_type: str,
        config: Mapping[str, Any],
        *,
        light: bool = False,
        patience: float = FINISH_S,
        tags: Sequence[str] = (),
        **named: Any,
    ) -> wandb.Run:
        """A run in W&B, opened; offline when its server does not answer. One of the same id goes on."""
        import wandb

        ignore_local_settings()
        Path(self.dir).mkdir(parents=True, exist_ok=True)  # W&B would fall back to /tmp
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # W&B's process would wait 12 s to report on itself when it ends
        os.environ.setdefault("WANDB_SILENT", "true")  # else every worker repeats whose login it found
        os.environ.setdefault("WANDB_DATA_DIR", str(Path(self.dir, "wandb").resolve()))  # else tables litter the home
        waits: dict[str, Any] = {"init_timeout": ANSWER_S, "finish_timeout": patience, "finish_timeout_raises": True}

        def init() -> wandb.Run:
            return wandb.init(
                project=self.project,
                entity=self.entity,
                dir=self.dir,
                tags=list(tags if self.tags is None else self.tags),
                job_type=job_type,
                config=dict(config),
                mode=mode(),
                resume="allow",  # a run that went on after a kill, or was requested again
                reinit="create_new",  # runs never share the global wandb.run
                settings=wandb.Settings(**_QUIET, **(_LIGHT if light else {}), **(waits if mode() == "online" else {})),
                **named,
            )

        try:
            return init()
        except Exception as error:
            if mode() != "online":
                raise
            self._restart()
            log.warning(self._stay_offline(_first_line(error)))
            return init()


def _about(run: Run) -> Row:
    """What is known of a run before it has a row."""
    return {"run_id": run.run_id, "task": run.task, **run.metadata}


def mode() -> Any:
    """offline, online or disabled: WANDB_MODE."""
    return os.environ.get("WANDB_MODE", MODES[0])


def unreachable(*, patient: bool = False) -> str | None:
    """Why nothing can be sent to W&B: no login, or no good answer from its server; None if it can.

    patient: whether a server that is busy (429) counts as one that answers.
    """
    import requests
    from wandb.sdk import wandb_setup

    ignore_local_settings()
    settings = wandb_setup.singleton().settings
    proxies: dict[str, Any] = {"http": settings.http_proxy, "https": settings.https_proxy}
    try:
        from wandb.sdk.lib import wbauth  # private: the public wandb.login waits 10 s for a server that does not answer

        login = wbauth.authenticate_session(host=settings.base_url, source="fca", prompt=False, update_session=False)
        if login is None:
            return "no login; try `wandb login`"

        answer = requests.post(
            f"{settings.base_url}/graphql",
            json={"query": "{ viewer { id } }"},
            auth=("api", getattr(login, "api_key", "")),
            timeout=ANSWER_S,
            proxies=proxies,
            verify=not settings.insecure_disable_ssl,
        )
        is_busy = answer.status_code == requests.codes.too_many_requests
        if not (patient and is_busy):
            answer.raise_for_status()
    except Exception as error:
        return f"{without_password(settings.base_url)}: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    return without_password(str(error).partition("\n")[0]) or type(error).__name__
