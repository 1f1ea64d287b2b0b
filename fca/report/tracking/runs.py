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
    stored_config,
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
# How long the server is waited for; what was not sent when a run or a report ends is left to `fca wandb sync`.
ANSWER_S = 4.0  # when a sweep or a run begins
FINISH_S = 8.0  # when a run ends
PUBLISH_S = 60.0  # when a report ends
MAX_LINES = 10_000  # of a table that W&B still shows well; longer ones stay in the store
MAX_TAG_LENGTH = 64  # characters that W&B takes
SYNCED = ".wandb.synced"  # W&B's own mark beside the file of a run that its server has

log = logging.getLogger(__name__)

# The row already holds commit and versions, and log.txt the console; listing packages alone takes 50 ms a run.
_QUIET_SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "x_save_requirements": False,
    "disable_git": True,
    "disable_code": True,
    "disable_job_creation": True,
    # not W&B's 15 s: a killed worker leaves its configuration, and `wandb beta leet` shows a run as it goes
    "x_transaction_log_flush_interval": 1.0,
}
# A run that opens only to be closed has no use for machine statistics either: 8 ms instead of 15.
_LIGHT_SETTINGS: dict[str, Any] = {"x_disable_stats": True, "x_disable_meta": True, "x_disable_machine_info": True}


@dataclass(frozen=True)
class WandbTracker:
    """A training is one run in W&B under the same id; its predictions and scores are its summary and its tables.

    W&B stops no work: no method raises or hangs, and what the server does not take stays in `dir`/wandb. Only a wrong
    WANDB_MODE is refused, with FcaError, before anything starts.

    project, entity: as in W&B.
    dir:             the store; W&B writes its folder `wandb` in there.
    group:           null: the experiment, or the sweep.
    tags:            null: experiment, data set and model.
    artifacts:       what of a training goes to W&B as files: weights, logits.
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
        """Check once, before the first run of a sweep, that W&B can be reached; if not, stay offline in all workers.

        Without this each worker would wait for a server that does not answer, or ask for a login.
        """
        if mode() == "online" and (reason := unreachable()):
            _switch_offline()
            print(f"warning: {self._offline_notice(reason)}", file=sys.stderr)

    def start(self, run: Run) -> Any:
        """Lightning's logger for a run that is about to train, with which its curves are sent while it trains.

        False for WANDB_MODE=disabled, where W&B fails, and in other processes than the first one of a distributed (DDP)
        training.
        """
        before_lightning()  # Lightning then imports faster
        from pytorch_lightning.loggers import WandbLogger
        from pytorch_lightning.utilities import rank_zero_only

        is_ddp_worker = bool(rank_zero_only.rank)  # type: ignore[attr-defined]
        if mode() == "disabled" or is_ddp_worker:
            return False

        class Curves(WandbLogger):
            """Lightning's logger, except that an error of W&B ends the curves instead of the training.

            Its methods call the logger itself `_`, since `self` is the tracker here.
            """

            def log_metrics(_, metrics: Mapping[str, float], step: int | None = None) -> None:  # noqa: N805
                with self._guarded(f"run {run.run_id}"):
                    # after an earlier error W&B's process was ended, and no run is open
                    if opened := self._open.get(run.run_id):
                        opened.log(dict(metrics), step=step)  # W&B's step is the optimiser's, as in `Entry.history`

        with self._guarded(f"run {run.run_id}"):
            opened = self._begin(run.run_id, _row_before_results(run))
            self._open[run.run_id] = opened
            return Curves(experiment=opened, project=self.project, save_dir=self.dir)
        return False  # an error ended the block: `_guarded` has logged it

    def finish(self, row: Mapping[str, Any]) -> None:
        """Keep a stored row for `close`, which writes it at the end of the job.

        If its run is open in W&B, as after a training, the results are also written at once, before the job ends.
        """
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
            opened = self._open.pop(run.run_id, None)
            if opened is None:
                opened = self._begin(run.run_id, _row_before_results(run), light=True)
            self.end(opened, exit_code=1)

    def close(self) -> None:
        """End a job: write the rows that `finish` kept to W&B, and close all runs that are open there.

        An entry is a run in W&B: a training, with the rows that were computed from it. `write` opens the run of an
        entry if it is not open yet. Runs that are still open after that have no row, so their work did not finish: they
        end as failed.
        """
        rows = list(self._rows)
        self._rows.clear()
        rows_by_entry: dict[str, list[Row]] = {}
        for row in rows:
            with self._guarded(f"run {row['run_id']}"):
                rows_by_entry.setdefault(entry_id(row, self.store), []).append(row)

        for identity, entry_rows in rows_by_entry.items():
            with self._guarded(f"run {identity}"):
                opened = self._open.pop(identity, None)  # None: not open, `write` opens it
                self.write(self.entry(identity, entry_rows), opened)

        for identity in list(self._open):  # no row: failed or stopped
            with self._guarded(f"run {identity}"):
                self.end(self._open.pop(identity), exit_code=1)

    def write(self, entry: Entry, opened: wandb.Run | None = None) -> None:
        """Write an entire entry to its run in W&B, close this run and record which rows it has.

        opened: the run in W&B if it is open, so that it has the curves already; None: it is opened (again), and the
                curves are written unless it was begun before.
        """
        summary: dict[str, Any] = {}
        if opened is None:
            was_begun_before = self.record(entry.id).exists() or self._has_files(entry.id)
            opened = self._begin(entry.id, entry.head, light=True)  # no work is done in it that could be measured
            for epoch_values in entry.history:
                step = int(epoch_values.pop("step"))
                # After the loop the summary has the values of the last epoch, which W&B itself adds to the summary of a
                # run that is open while it trains.
                summary = epoch_values
                if not was_begun_before:  # otherwise the run's files have the curves already
                    opened.log(epoch_values, step=step)

        opened.config.update(entry.config, allow_val_change=True)  # type: ignore[no-untyped-call]
        summary |= entry.summary
        for task, frame in entry.tables.items():
            if len(frame) > MAX_LINES:
                log.warning("%d rows of %s are not in W&B: over %d", len(frame) - MAX_LINES, task, MAX_LINES)
            summary[task] = as_table(frame.head(MAX_LINES))
        opened.summary.update(summary)

        for artifact in self._artifacts(entry):
            opened.log_artifact(artifact)
        self.end(opened)
        # run id -> when its row was written: `fca wandb sync` then finds the rows that W&B does not have yet
        write_json(self.record(entry.id), {"rows": entry.state})

    def record(self, identity: str) -> Path:
        """The file that lists which rows of an entry were written to its runs in `dir`/wandb."""
        return Path(self.dir, "wandb", "entries", f"{identity}.json")

    def _has_files(self, identity: str) -> bool:
        """Whether W&B has files of a run of this id in `dir`/wandb."""
        return any(Path(self.dir, "wandb").glob(f"*run-*/run-{identity}.wandb"))

    def recorded_rows(self, identity: str) -> dict[str, str]:
        """The rows that were written to an entry, run_id -> when the row was made; empty without a record."""
        with if_whole():
            return read_object(self.record(identity), rows=dict)["rows"]
        return {}

    @property
    def store(self) -> Store:
        """What this is a copy of."""
        return Store(Path(self.dir))

    def publish(self, tables: Sequence[Table], page: Path, metadata: Mapping[str, Any]) -> None:
        """Write a report as one run in W&B of type `report`: its page, figures, tables, charts and scalars.

        The same report on the same query is written to the same run. Tables of more than MAX_LINES lines are left out,
        with a line in the log.

        tables:   the tables of the report's analyses.
        page:     the report's HTML file; the figures are figures/*.png beside it.
        metadata: report, query, command, commit: the configuration of the run.
        """
        if mode() == "disabled":
            return
        import wandb

        self.connect()  # goes offline if the server cannot be reached
        with self._guarded(f"report {page.parent.name}"):
            opened = self.init(
                "report",
                {**metadata, "tables": [table.name for table in tables]},
                light=True,
                patience=PUBLISH_S,
                tags=["report"],
                id=report_id(metadata),
                name=page.parent.name,
                group=self.group,
            )

            # inject: whether W&B adds its own style to the page
            contents: dict[str, Any] = {"page": wandb.Html(page, inject=False)}
            for figure in sorted((page.parent / "figures").glob("*.png")):
                contents[f"figures/{figure.stem}"] = wandb.Image(str(figure))
            for table in tables:
                if len(table.frame) > MAX_LINES:
                    log.warning("table %s is not in W&B: %d lines, over %d", table.name, len(table.frame), MAX_LINES)
                    continue
                contents[f"tables/{table.name}"] = as_table(table.frame)
                if (chart := chart_of(table)) is not None:
                    contents[f"charts/{table.name}"] = chart
            opened.log(contents)

            for table in tables:
                opened.summary.update(scalars(table))
            self.end(opened)

    def entry(self, identity: str, rows: Iterable[Row]) -> Entry:
        """The entry of these rows and of the rows that were written to it before and are still in the store."""
        earlier_rows = []
        for run_id in self.recorded_rows(identity):
            row = self.store.row_if_whole(run_id)
            if row is not None:
                earlier_rows.append(row)
        return entry_with(identity, [*earlier_rows, *rows], self.store)

    def _artifacts(self, entry: Entry) -> Iterator[wandb.Artifact]:
        """The files of an entry as W&B artifacts, one for each kind (weights, logits) that `artifacts` lists.

        A kind of which the entry has no files gives no artifact.
        """
        import wandb

        files: dict[str, list[Path]] = {"weights": [], "logits": []}
        for row in entry.rows:
            folder = self.store.folder(row["run_id"])
            files["weights"] += [*self.store.weights(row["run_id"]), *folder.glob("model.json")]
            files["logits"] += [folder / f"{name}.npy" for name in ("logits", "logit_classes", "pred")]

        for kind in self.artifacts:
            present_files = [path for path in files[kind] if path.is_file()]
            if not present_files:
                continue
            artifact = wandb.Artifact(f"{kind}-{entry.id}", "model" if kind == "weights" else "predictions")
            for path in present_files:
                artifact.add_file(str(path), f"{path.parent.name}/{path.name}")
            yield artifact

    @cached_property
    def _open(self) -> dict[str, wandb.Run]:
        """The runs in W&B that are open, by run id."""
        return {}

    @cached_property
    def _rows(self) -> list[Row]:
        """The rows that this job stored so far."""
        return []

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Catch any error of W&B in the body, so that it never stops the work itself.

        The error is logged, W&B's process is replaced by a new one and, if W&B was online, it is offline from now on.

        what: what the body writes, for the log.
        """
        try:
            yield
        except Exception as error:
            self._end_process_of_wandb()
            reason = _first_line(error)
            if mode() == "online":
                _switch_offline()
                reason = self._offline_notice(reason)
            log.warning("%s is not whole in W&B: %s", what, reason)

    def _offline_notice(self, reason: str) -> str:
        """A line for the user: that W&B is offline from now on, why, and how its runs are sent later."""
        return f"W&B stays offline ({reason}); send its copies later: fca wandb sync --outputs {self.dir}"

    def _end_process_of_wandb(self) -> None:
        """End W&B's own process, which still holds the runs that it could not open or send."""
        import wandb

        self._open.clear()
        with suppress(Exception, SystemExit):  # it exits with the code of a process of its own that crashed
            wandb.teardown()
        os.environ.pop("WANDB_SERVICE", None)  # a parent's process, which teardown leaves alone

    def _begin(self, identity: str, row: Mapping[str, Any], *, light: bool = False) -> wandb.Run:
        """Open the run of an entry in W&B, with its configuration, and attach the configuration as a YAML file.

        identity: the id of the entry.
        row:      the row of the entry's head; for a run that is about to begin, the columns known so far.
        light:    whether W&B leaves out statistics of the machine.
        """
        experiment = experiment_of(command_of(self.store, row))  # None if the run's command names none
        tags = [str(tag)[:MAX_TAG_LENGTH] for tag in (experiment, row.get("dataset"), row.get("model")) if tag]
        opened = self.init(
            row["task"],
            config_of(self.store, row),
            light=light,
            tags=tags,
            id=identity,
            name=name_of(row),
            group=self.group or experiment,
        )

        config = stored_config(self.store, row)
        if config:
            file = Path(opened.dir, "fca", "config.yaml")  # in a folder: W&B writes a config.yaml of its own
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(config, sort_keys=False))
            opened.save(str(file), base_path=opened.dir, policy="now")
        return opened

    def end(self, opened: wandb.Run, exit_code: int = 0) -> None:
        """Close a run. If it was online, mark it as sent, as `wandb sync` does."""
        file = Path(opened.settings.sync_file)
        opened.finish(exit_code=exit_code)
        if mode() == "online":  # an error of `finish` is raised before
            file.with_suffix(SYNCED).touch()

    def init(
        self,
        job_type: str,
        config: Mapping[str, Any],
        *,
        light: bool = False,
        patience: float = FINISH_S,
        tags: Sequence[str] = (),
        **names: Any,
    ) -> wandb.Run:
        """Open a run in W&B, or continue the run that has this id. It is offline when the server does not answer.

        job_type: the task of the run, or `report`.
        config:   the configuration that W&B shows for it.
        light:    whether W&B leaves out statistics of the machine.
        patience: how long `finish` may wait for the server, seconds.
        tags:     replaced by the user's `tags` where they are given.
        names:    further arguments of `wandb.init`: id, name and group.
        """
        import wandb

        ignore_local_settings()  # a settings file in the current folder could name another server for the API key
        Path(self.dir).mkdir(parents=True, exist_ok=True)  # W&B would fall back to /tmp
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # W&B's process would wait 12 s to report on itself when it ends
        os.environ.setdefault("WANDB_SILENT", "true")  # else every worker repeats whose login it found
        os.environ.setdefault("WANDB_DATA_DIR", str(Path(self.dir, "wandb").resolve()))  # else tables litter the home

        settings = dict(_QUIET_SETTINGS)
        if light:
            settings |= _LIGHT_SETTINGS
        online_settings: dict[str, Any] = {
            "init_timeout": ANSWER_S,
            "finish_timeout": patience,
            "finish_timeout_raises": True,  # so that the caller learns that not all was sent
        }

        def init() -> wandb.Run:
            """Open the run in the present mode, online or offline, with the arguments of the outer method.

            It is called again, offline, after an error of the server.
            """
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
                settings=wandb.Settings(**settings, **(online_settings if mode() == "online" else {})),
                **names,
            )

        try:
            return init()
        except Exception as error:
            if mode() != "online":
                raise
            self._end_process_of_wandb()  # it holds the run that it could not open
            _switch_offline()  # so that the second attempt needs no server
            log.warning(self._offline_notice(_first_line(error)))
            return init()


def _row_before_results(run: Run) -> Row:
    """What is known of a run before it has a row, under the same columns."""
    return {"run_id": run.run_id, "task": run.task, **run.metadata}


def mode() -> Any:
    """offline, online or disabled: WANDB_MODE."""
    return os.environ.get("WANDB_MODE", MODES[0])


def _switch_offline() -> None:
    """Track offline from now on, in this process and the processes that it starts."""
    os.environ["WANDB_MODE"] = "offline"


def unreachable(*, patient: bool = False) -> str | None:
    """The reason why nothing can be sent to W&B: no login, or no good answer from its server; None if sending works.

    patient: whether a server that answers that it is busy (status 429) counts as reachable.
    """
    import requests
    from wandb.sdk import wandb_setup

    ignore_local_settings()  # a settings file in the current folder could name another server for the API key
    settings = wandb_setup.singleton().settings
    proxies: dict[str, Any] = {"http": settings.http_proxy, "https": settings.https_proxy}
    try:
        from wandb.sdk.lib import wbauth  # private: the public wandb.login waits 10 s for a server that does not answer

        login = wbauth.authenticate_session(host=settings.base_url, source="fca", prompt=False, update_session=False)
        if login is None:
            return "no login; try `wandb login`"

        # the smallest query that needs the API key: who is logged in
        answer = requests.post(
            f"{settings.base_url}/graphql",
            json={"query": "{ viewer { id } }"},
            auth=("api", getattr(login, "api_key", "")),  # a login by an identity token has no key
            timeout=ANSWER_S,
            proxies=proxies,
            verify=not settings.insecure_disable_ssl,
        )
        is_busy = answer.status_code == requests.codes.too_many_requests
        if not (patient and is_busy):
            answer.raise_for_status()
    except Exception as error:  # whatever the reason, the caller goes on offline
        return f"{without_password(settings.base_url)}: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    """The first line of an error's message, without passwords; its type where it has no message."""
    return without_password(str(error).partition("\n")[0]) or type(error).__name__
