"""A saved workspace and a Report on W&B's server, which show trainings and what the analyses of a report found."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fca.report.tracking.runs import WandbTracker, mode
from fca.report.tracking.settings import ignore_local_settings
from fca.types import FcaError

CURVES = (["train/loss", "val/loss"], ["train/top1", "val/top1"], ["lr"], ["grad_norm"], ["images_per_s"])


def check_views(tracker: object) -> None:
    """Raise FcaError where views cannot be saved: with another logger, offline, or without the package."""
    if not isinstance(tracker, WandbTracker):
        raise FcaError("logger", type(tracker).__name__, "wandb for fca wandb report", "leave logger=... out")
    if find_spec("wandb_workspaces") is None:
        raise FcaError("fca wandb report", "wandb-workspaces", "an installed package", "pip install wandb-workspaces")
    if mode() != "online":
        step = "wandb login, then WANDB_MODE=online fca wandb report ...; the run of a report alone: fca report"
        raise FcaError("WANDB_MODE", mode(), "online: workspaces and Reports are kept by W&B's server", step)


def save_views(tracker: WandbTracker, metadata: Mapping[str, Any]) -> list[str]:
    """Save a workspace and a Report of the tracker's project on W&B's server; returns the address of each.

    A workspace is W&B's page of panels over the runs of a project, a Report its page of text and panels.

    metadata: `report` (its name), `query` (which runs it shows; empty for all) and `command` (which made it).
    """
    import wandb

    ignore_local_settings()  # a settings file in the current folder could name another server for the API key
    reports: Any = import_module("wandb_workspaces.reports.v2")  # which declares no types
    workspaces: Any = import_module("wandb_workspaces.workspaces")
    place = {"entity": tracker.entity or wandb.Api().default_entity, "project": tracker.project}
    name = f"fca {metadata['report']}"

    accuracies = [  # c:: is W&B's prefix of keys of the configuration
        reports.ScatterPlot(title="ncl and accuracy", x="c::subset.ncl", y="top1"),
        reports.BarPlot(title="accuracy on test", metrics=["top1"]),
    ]
    curves = [reports.LinePlot(title=", ".join(names), x="Step", y=names) for names in CURVES]
    sections = [
        workspaces.Section(name="Results", panels=accuracies, is_open=True),
        workspaces.Section(name="Training", panels=curves, is_open=True),
    ]
    workspace = workspaces.Workspace(**place, name=name, sections=sections)
    workspace.save()

    runs_of_reports = reports.Runset(**place, name="reports", filters="Metric('jobType') == 'report'")
    pages = [reports.MediaBrowser(media_keys=["page"]), reports.RunComparer(diff_only=True)]
    trainings = reports.Runset(**place, name="trainings")
    blocks = [
        reports.P(f"Query: {metadata['query'] or 'all runs'}. Made by:"),
        reports.MarkdownBlock(f"```\n{metadata['command']}\n```"),
        reports.H1("Reports compared"),
        reports.PanelGrid(runsets=[runs_of_reports], panels=pages),
        reports.H1("Trainings"),
        reports.PanelGrid(runsets=[trainings], panels=[*accuracies, *curves]),
    ]
    report = reports.Report(**place, title=name, blocks=blocks)
    report.save()
    return [workspace.url, report.url]
