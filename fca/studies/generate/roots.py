"""The keys of `fca generate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fca.validation import Allowed, Workers


@dataclass
class BudgetConfig:
    """What a generated folder may take in all."""

    images: Annotated[int | None, Allowed(above=0)] = None
    money: Annotated[int | float | None, Allowed(above=0)] = None


@dataclass
class GenerateConfig:
    """`fca generate`."""

    generator: Any
    plan: Any
    writer: Any = None
    checks: Any = None
    segmenter: Any = None
    outputs: str = "outputs"
    out: str | None = None
    per_level: Annotated[int | None, Allowed(1, 10_000)] = None
    workers: Workers = 0
    dry: bool = False
    pilot: Annotated[int, Allowed(0)] = 0
    hour_price: Annotated[int | float | None, Allowed(0)] = None
    verbose: bool = False
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    plugins: list[str] = field(default_factory=list)


ROOTS = {"generate": GenerateConfig}
