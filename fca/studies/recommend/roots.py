"""The keys of `fca recommend`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fca.cli.application import SubsetConfig
from fca.validation import Allowed


@dataclass
class RecommendConfig:
    """`fca recommend`."""

    dataset: Any
    machine: Any
    recipe: Any
    trainer: Any
    logger: Any
    analysis: Any
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    packages: list[str] = field(default_factory=list)
    pretrained: list[str] = field(default_factory=list)
    weights: Any = None
    candidates: list[str] | None = None
    small_networks: list[str] = field(default_factory=list)
    sizes: Annotated[int, Allowed(0, 3)] = 3
    depths: Annotated[list[str], Allowed(choices=("whole", "cut"))] = field(default_factory=list)
    precisions: Annotated[list[str], Allowed(choices=("fp32", "int8"))] = field(default_factory=list)
    adaptations: Annotated[list[str], Allowed(choices=("probe", "finetune"))] = field(default_factory=list)
    screen: Annotated[int | None, Allowed(4)] = 1000
    minutes: Annotated[float | None, Allowed(0)] = None
    metric: Annotated[str | None, Allowed(choices=("accuracy", "balanced"))] = None
    costs: str | None = None
    latency_ms: Annotated[float | None, Allowed(above=0)] = None
    memory_mb: Annotated[float | None, Allowed(above=0)] = None
    file_mb: Annotated[float | None, Allowed(above=0)] = None
    params_m: Annotated[float | None, Allowed(above=0)] = None
    within: Annotated[float | None, Allowed(0)] = None
    confidence: Annotated[float, Allowed(above=0.5, below=1)] = 0.9
    device: Annotated[str, Allowed(choices=("auto", "cpu", "gpu"))] = "auto"
    threads: Annotated[int | None, Allowed(1, 1024)] = None
    outputs: str = "outputs"
    limit: Annotated[int | None, Allowed(1)] = None
    plugins: list[str] = field(default_factory=list)


ROOTS = {"recommend": RecommendConfig}
