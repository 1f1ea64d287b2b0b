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

_hydras_apply_overrides = ConfigLoaderImpl._apply_overrides_to_config


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an analysis, completed by the defaults of its class, in the order of the class's fields.

    values: the keys of its node; `_target_` names the class.
    Raises FcaError for a class that a configuration may not name.
    """
    target = values.get("_target_")
    analysis_class: Any = class_of(f"{GROUP}._target_", target)
    defaults = {class_field.name: _default_of(class_field) for class_field in fields(analysis_class)}
    return {"_target_": target, **defaults, **values}


def _default_of(class_field: Any) -> Any:
    """The default of a field of a dataclass, as a file would have it: `???` if there is none."""
    if class_field.default_factory is not MISSING:
        return class_field.default_factory()
    return "???" if class_field.default is MISSING else class_field.default


def complete_analyses() -> None:
    """From now on, Hydra adds the defaults of an analysis's class before it applies overrides.

    An override of a key that only the class has would otherwise be refused as unknown.
    """
    ConfigLoaderImpl._apply_overrides_to_config = staticmethod(_complete_and_apply)  # type: ignore  # Hydra has no hook here


def _complete_and_apply(overrides: list[Override], config: DictConfig) -> None:
    """Add the defaults of the class to the analysis of a configuration, and then apply the overrides as Hydra does."""
    analysis = config.get(GROUP)  # `fca run` has none
    if isinstance(analysis, DictConfig) and "_target_" in analysis:
        values: Any = OmegaConf.to_container(analysis, resolve=False)
        config[GROUP] = with_defaults(values)
    _hydras_apply_overrides(overrides, config)
