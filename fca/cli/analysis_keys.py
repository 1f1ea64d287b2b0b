"""The keys of an analysis: the fields of its class, with their defaults (docs/adr/0067).

A file in conf/analysis names the class, and has only values that differ from the class's defaults. Other groups state
their values in conf/, since there one class has many options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from fca.plugins import class_of

GROUP = "analysis"

_set_typed_values = ConfigLoaderImpl._apply_overrides_to_config


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an analysis, and where a field of its class has none, its default; in the order of the fields.

    Raises FcaError for a class that a configuration may not name.
    """
    target = values.get("_target_")
    kind: Any = class_of(f"{GROUP}._target_", target)
    defaults = {known.name: _default_of(known) for known in fields(kind)}
    return {"_target_": target, **defaults, **values}


def _default_of(known: Any) -> Any:
    """The default of a field of a dataclass, as a file would have it: `???` where there is none."""
    if known.default_factory is not MISSING:
        return known.default_factory()
    return "???" if known.default is MISSING else known.default


def complete_analyses() -> None:
    """From now on, an analysis that Hydra composes has all keys of its class when what was typed is set in it."""
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_complete)  # type: ignore  # Hydra has no hook here


def _complete(overrides: list[Override], config: DictConfig) -> None:
    analysis = config.get(GROUP)  # `fca run` has none
    if isinstance(analysis, DictConfig) and "_target_" in analysis:
        values: Any = OmegaConf.to_container(analysis, resolve=False)
        config[GROUP] = with_defaults(values)
    _set_typed_values(overrides, config)
