"""The typed root of every configuration: what is not declared here or by a plug's own fields is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore


@dataclass
class SubsetConfig:
    """Which classes: `ncl` (a share below 1) drawn by `seed`, or `classes` by key or index; neither = all."""

    ncl: int | float | None = None
    seed: int = 0
    sampler: str = "uniform"
    classes: list[Any] | None = None


@dataclass
class SweepConfig:
    """How a multirun goes about its runs; no part of their meaning."""

    print: bool = False
    retry: bool = False
    head: int | None = None


@dataclass
class RunConfig:
    """`fca run`. The groups are checked against the fields of the class that their `_target_` names."""

    dataset: Any
    model: Any
    encoder: Any
    shift: Any
    task: Any
    recipe: Any
    logger: Any
    machine: Any
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    seed: int = 0
    adaptation: str | None = None
    compat: str | None = None
    limit: int | None = None
    outputs: str = "outputs"


@dataclass
class AnalyseConfig:
    """`fca analyse`."""

    analysis: Any
    outputs: str = "outputs"


@dataclass
class ReportConfig:
    """`fca report`."""

    report: Any
    logger: Any
    outputs: str = "outputs"
    query: str | None = None


@dataclass
class BudgetConfig:
    """What a generated folder may take in all."""

    images: int | None = None
    money: int | float | None = None


@dataclass
class GenerateConfig:
    """`fca generate`."""

    generator: Any
    plan: Any
    writer: Any = None
    outputs: str = "outputs"
    out: str | None = None
    per_level: int | None = None
    workers: int = 0
    dry: bool = False
    verbose: bool = False
    budget: BudgetConfig = field(default_factory=BudgetConfig)


ROOTS = {"run": RunConfig, "analyse": AnalyseConfig, "report": ReportConfig, "generate": GenerateConfig}


def register() -> None:
    """Make the schemas known to Hydra under the names that the root YAMLs start from."""
    store = ConfigStore.instance()
    for name, node in ROOTS.items():
        store.store(name=f"{name}_schema", node=node)
