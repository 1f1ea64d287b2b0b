"""Whose classes and functions a configuration, a store or a command line may name (docs/adr/0018)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import is_dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from typing_extensions import get_protocol_members

from fca.types import FcaError

PLUGINS = "FCA_PLUGINS"
"""The environment variable that lists modules as the key `plugins` does, with commas between them."""
_plugins: list[str] = []
_MODULE = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_STEP = "correct the name, or add the folder that has it: PYTHONPATH=FOLDER"


def use_plugins(modules: Iterable[str]) -> None:
    """Trust these modules, and those in them, from now on and in place of earlier ones: the user typed their names.

    Raises FcaError for what cannot be the name of a module, and for modules that Python does not find.
    """
    named = [str(name) for name in modules]
    if odd := [name for name in named if not re.fullmatch(_MODULE, name)]:
        raise FcaError("plugins", odd[0], "names of modules, as in import: my_models", "correct the name")
    for name in named:
        package = name.partition(".")[0]
        if not _is_found(package):
            raise FcaError("plugins", name, f"modules that Python finds; there is no {package}", _STEP)
    _plugins[:] = named


def _is_found(package: str) -> bool:
    """Whether Python finds a package, or it lies in the current folder, where functions of the user's may be."""
    if package in sys.modules or find_spec(package) is not None:
        return True
    return PathFinder.find_spec(package, [str(Path.cwd())]) is not None


def plugins() -> list[str]:
    """The modules that the user lists: those of `use_plugins`, and those in FCA_PLUGINS."""
    listed = [*_plugins, *os.environ.get(PLUGINS, "").split(",")]
    return sorted({name.strip() for name in listed if name.strip()})


def is_within(module: str, *packages: str) -> bool:
    """Whether a module is one of these packages or lies in one.

    >>> is_within("fca.models.own", "fca.models"), is_within("fcax.models", "fca")
    (True, False)
    """
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def class_of(what: str, target: object, room: str = "fca") -> type:
    """The component class of this name, `module.Class`: a dataclass that `room` (a package of ours) or a plugin has.

    Nothing else is imported. Raises FcaError, calling the name `what`, for all other names.
    """
    name, ours = str(target), f"a component of {room}, or a dataclass in a module that you list under plugins"
    module, _, kind = name.rpartition(".")
    if not (module and re.fullmatch(_MODULE, name) and is_within(module, room, *plugins())):
        step = f"if you trust its code, type plugins=[{module}] (in Python: {PLUGINS} in the environment)"
        raise FcaError(what, name, ours, step if module else "correct it")
    try:
        found = getattr(import_module(module), kind, None)
    except Exception as error:  # whatever a user's module does when it is imported
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        step = "correct the module"
        if missing == module.partition(".")[0]:
            step = _STEP
        elif missing is not None and is_within(module, missing):  # of ours: where is the class now?
            homes = _homes_of(kind)
            step = f"did you mean {' or '.join(homes)}?" if homes else step
        raise FcaError(what, name, f"a class in a module that imports ({reason})", step) from error
    if not (isinstance(found, type) and is_dataclass(found)):
        raise FcaError(what, name, ours, f"{module} has no dataclass {kind}: correct the name")
    return found


def _homes_of(name: str) -> list[str]:
    """The components of ours with this class name, in full: a file of before may have one at another place."""
    package = Path(__file__).parent
    component = re.compile(rf"^@dataclass\(frozen=True[^)]*\)\nclass {name}\b", re.MULTILINE)
    files = [file for file in sorted(package.rglob("*.py")) if component.search(file.read_text(encoding="utf-8"))]
    modules = [".".join(file.relative_to(package.parent).with_suffix("").parts) for file in files]
    return [f"{module.removesuffix('.__init__')}.{name}" for module in modules]


def check_contract(what: str, made: object, contract: type) -> None:
    """Raise FcaError for a component that lacks a part of the protocol of its kind, naming the parts.

    what: the key that names its class.    made: the component, or its class.
    """
    missing = sorted(name for name in get_protocol_members(contract) if not hasattr(made, name))
    if missing:
        kind = made if isinstance(made, type) else type(made)
        allowed = f"a class with all parts of {contract.__module__}.{contract.__name__}"
        step = f"add to {kind.__qualname__}: {', '.join(missing)}"
        raise FcaError(what, f"{kind.__module__}.{kind.__qualname__}", allowed, step)
