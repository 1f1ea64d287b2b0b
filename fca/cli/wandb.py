"""`fca wandb sync` and `fca wandb report`: the store in W&B, for users who look at runs there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fca.cli import Words, refused
from fca.cli.show import check_store
from fca.types import FcaError, check_choice, without_password

if TYPE_CHECKING:
    from fca.report.tracking.entries import Entry
    from fca.report.tracking.runs import WandbTracker

COMMANDS = ("sync", "report")


def main(arguments: Sequence[str]) -> int:
    """Run the sub-command that the first word names, or print help; exit code 2 for words that cannot be understood.

    When the shell completes a command line, print what may come next instead.
    arguments: the words behind `fca wandb`.
    """
    is_completion = Words.at_tab is not None  # the user pressed the tab key
    if is_completion and arguments[:1] != ["sync"]:  # `sync` completes its own words
        if not arguments:
            print(*COMMANDS, sep="\n")
        return 0  # nothing is offered behind `report`, whose words Hydra completes
    if arguments[:1] in (["-h"], ["--help"], []):
        print(f"{__doc__}\n\n  fca wandb sync --help\n  fca wandb report report=few_class")
        return 0
    try:
        check_choice("fca wandb", arguments[0], COMMANDS)
        return (sync if arguments[0] == "sync" else report)(arguments[1:])
    except FcaError as error:
        return refused(error)


def sync(arguments: Sequence[str]) -> int:
    """Do `fca wandb sync`: send to W&B the runs of a store that it lacks; returns the exit code.

    W&B takes files that each describe a run. A run that was tracked has left such a file; `unsent` lists the files that
    W&B lacks. Runs that were not tracked (entries, as `missing` lists them) are first written from the store to files.
    arguments: the words behind `sync`.
    The exit code is 1 if a file was not sent. Raises FcaError for wrong arguments, and if W&B cannot be reached.
    """
    parser = Words(prog="fca wandb sync", description="Send what W&B lacks of a store, also what was not tracked.")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--project", help="in W&B, for what was not tracked (default: that of conf/logger/wandb.yaml)")
    parser.add_argument("--entity", help="a user or a team (default: the one of your login)")
    parser.add_argument("--workers", type=int, default=5, help="runs sent at a time, 1 to 16 (default: 5, as W&B)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent")
    options = parser.parse_args(arguments)
    check_store(options.outputs)
    if not 1 <= options.workers <= 16:
        step = "W&B's server answers 429 to more"
        raise FcaError("--workers", options.workers, "1 to 16", step)

    from fca.cli.configure import component, configured  # a slow import, for which --help need not wait
    from fca.report.tracking.runs import unreachable
    from fca.report.tracking.sync import missing, unsent

    keys = {"project": options.project, "entity": options.entity}
    typed_keys = {key: value for key, value in keys.items() if value}
    os.environ["WANDB_MODE"] = "offline"  # the tracker then writes files, which are sent below
    tracker = component(configured("run", "logger", "wandb", typed_keys, outputs=options.outputs), "logger")

    entries = missing(tracker)
    begun = time.monotonic()
    if options.dry_run:
        print(f"would write {len(entries)} entries from the store and send {len(unsent(tracker)) + len(entries)} files")
        return 0
    if not entries and not unsent(tracker):
        print("nothing is left to send")
        return 0
    reason = unreachable(patient=True)  # None if W&B can be reached
    if reason:
        raise FcaError("W&B", reason, "a server that answers, and a login", "wandb login")

    n_sent, n_not_sent, log = _write_and_send(tracker, entries, options.workers)
    seconds = time.monotonic() - begun
    print(f"{n_sent} files sent in {seconds:.0f} s, {len(entries)} entries of them from the store")
    if n_not_sent:
        print(f"{n_not_sent} files were not sent: {_last_line(log)}; next: fca wandb sync goes on", file=sys.stderr)
        return 1
    return 0


def _write_and_send(tracker: WandbTracker, entries: Sequence[Entry], workers: int) -> tuple[int, int, Path]:
    """Write the files of these entries, then send all files that W&B lacks, with a progress bar for each step.

    tracker: writes the files into its folder.
    workers: how many files are sent at a time.
    Returns how many files were sent, how many were not, and the log with the messages of W&B.
    """
    from fca.report.tracking.sync import LOG, send, unsent

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bar:
        write_task = bar.add_task("write entries", total=len(entries))
        for entry in entries:
            tracker.write(entry)
            bar.advance(write_task)

        folders = unsent(tracker)  # a folder for each file
        send_task = bar.add_task("send", total=len(folders))
        log = Path(tracker.dir, "wandb", LOG)
        not_sent = send(folders, workers, log, lambda number: bar.update(send_task, completed=number))
    return len(folders) - len(not_sent), len(not_sent), log


def _last_line(log: Path) -> str:
    """The last line with text of a log, without passwords, and the path of the log; for an empty log the path alone."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{without_password(lines[-1])[:200]} ({log})" if lines else str(log)


def report(arguments: Sequence[str]) -> int:
    """Do `fca wandb report`: make the page of `fca report`, publish it in W&B, and return the exit code.

    W&B also gets a saved workspace and a Report; their addresses are printed.
    arguments: the words behind `report`, as `fca report` takes them.
    """
    from omegaconf import DictConfig

    from fca.cli import report as pages
    from fca.cli.application import ReportConfig, application
    from fca.cli.configure import component
    from fca.cli.selection import query_of
    from fca.report.tracking.views import check_views, save_views
    from fca.store import Store

    def work(config: DictConfig) -> None:
        """Make and publish the page of one configuration."""
        tracker = component(config, "logger")
        check_views(tracker)  # raises if W&B cannot be used, before the page is made, which takes time
        page_command = pages.report(config)  # makes the page, and returns the command that makes it again
        query = query_of(config, Store(Path(config.outputs)), ReportConfig)
        # which page it is, for the title and the text in W&B
        description = {"report": config.report.name, "query": query, "command": page_command}
        addresses = save_views(tracker, description)
        print(*addresses, sep="\n")

    return application("report", work, arguments)
