"""From YAML to plugs: a plug is the dataclass that `_target_` names, and its fields are the keys and types allowed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from fca.nouns import FcaError

_MADE: dict[str, Any] = {}  # planning thousands of runs makes each plug once


def plug(config: DictConfig, group: str) -> Any:
    """The object that a group's node describes; equal nodes give the same object.

    Raises FcaError for an unknown key, a wrong type or a missing value, naming it as the user would type it.
    """
    key = group + json.dumps(OmegaConf.to_container(config[group], resolve=True), sort_keys=True)
    if key not in _MADE:
        with _explained(_plain(config, group), group):
            _MADE[key] = OmegaConf.to_object(typed(config, group))
    return _MADE[key]


def typed(config: DictConfig, group: str) -> DictConfig:
    """A group's node under the types of its plug; values may still be missing (`???`).

    A plug may hold plugs: those of its values that name a class, as a data set its generator.
    """
    return _under_types(_plain(config, group), group)


def _under_types(values: dict[str, Any], name: str) -> DictConfig:
    schema = _schema(_class(values["_target_"]))
    held = {key: value for key, value in values.items() if isinstance(value, dict) and "_target_" in value}
    plugs = {key: _under_types(value, f"{name}.{key}") for key, value in held.items()}
    with _explained(values, name):
        given = {key: plugs.get(key, value) for key, value in values.items() if key != "_target_"}
        return cast("DictConfig", OmegaConf.merge(schema, given))


def _plain(config: DictConfig, group: str) -> dict[str, Any]:
    return cast("dict[str, Any]", OmegaConf.to_container(config[group], resolve=True))


@contextmanager
def _explained(values: dict[str, Any], group: str) -> Iterator[None]:
    """OmegaConf's errors as ours: the key as it is typed, its value, what is allowed."""
    try:
        yield
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or ""
        first = str(error).splitlines()[0]
        fields = ", ".join(f"{group}.{name!s}" for name in _schema(_class(values["_target_"])))
        allowed = fields if isinstance(error, ConfigKeyError) else first
        value = OmegaConf.select(OmegaConf.create(values), key, throw_on_missing=False)
        step = f"set {group}.{key}=... or look at conf/{group.rpartition('.')[2].replace('encoder', 'model')}/"
        raise FcaError(f"{group}.{key}", value, allowed, step) from error


def _class(target: str) -> type:
    module, _, name = target.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


@cache
def _schema(plug_class: type) -> DictConfig:
    """The fields of a plug as a typed node. Frozen dataclasses make read-only nodes; this one is to be filled."""
    schema: DictConfig = OmegaConf.structured(plug_class)
    _unlock(schema)
    return schema


def _unlock(node: DictConfig) -> None:
    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)  # there is no public way to a child whose value is still missing
        if isinstance(child, DictConfig):
            _unlock(child)
