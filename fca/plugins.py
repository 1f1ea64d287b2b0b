"""The modules whose classes and functions a configuration, a store or a command line may name (docs/adr/0018)."""

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
_ADD_FOLDER = "correct the name, or add the folder that has it: PYTHONPATH=FOLDER"


def use_plugins(modules: Iterable[str]) -> None:
    """Allow components from these modules and their submodules from now on, instead of those allowed before.

    A configuration may name a class in them, which is then imported. The user typed their names, so they are trusted.
    Raises FcaError for a text that cannot be the name of a module, and for modules that Python does not find.
    """
    names = [str(name) for name in modules]
    for name in names:
        if not re.fullmatch(_MODULE, name):
            raise FcaError("plugins", name, "names of modules, as in import: my_models", "correct the name")
    for name in names:
        package = name.partition(".")[0]  # its modules are not looked for, as Python would import the package
        if not _can_import(package):
            raise FcaError("plugins", name, f"modules that Python finds; there is no {package}", _ADD_FOLDER)
    _plugins[:] = names


def _can_import(package: str) -> bool:
    """Whether Python can find a package on its path or in the current folder, where the user's functions may be."""
    if package in sys.modules or find_spec(package) is not None:
        return True
    return PathFinder.find_spec(package, [str(Path.cwd())]) is not None


def plugins() -> list[str]:
    """The modules that the user lists: those of `use_plugins`, and those in FCA_PLUGINS."""
    from_environment = os.environ.get(PLUGINS, "").split(",")
    names = {name.strip() for name in (*_plugins, *from_environment)}
    return sorted(names - {""})


def is_within(module: str, *packages: str) -> bool:
    """Whether a module is one of these packages, or inside one of them.

    >>> is_within("fca.models.own", "fca.models"), is_within("fcax.models", "fca")
    (True, False)
    """
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def class_of(what: str, target: object, room: str = "fca") -> type:
    """Import the component class that a configuration names: a dataclass in a package of fca or in a plugin.

    what:   the configuration's key, for messages.
    target: the name, as `module.Class`.
    room:   the package of fca that has the components of this kind, such as "fca.models".

    Only modules in `room` and modules that the user listed as `plugins` are imported, because importing a module runs
    its code. Raises FcaError for any other name, for a module that cannot be imported, and for a module without such a
    dataclass.
    """
    name = str(target)
    module, _, class_name = name.rpartition(".")
    allowed = f"a component of {room}, or a dataclass in a module that you list under plugins"
    if not (module and re.fullmatch(_MODULE, name) and is_within(module, room, *plugins())):
        step = "correct it"
        if module:
            step = f"if you trust its code, type plugins=[{module}] (in Python: {PLUGINS} in the environment)"
        raise FcaError(what, name, allowed, step)

    try:
        component = getattr(import_module(module), class_name, None)
    except Exception as error:  # a user's module may do anything when it is imported
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        step = _step_after_import_error(error, module, class_name)
        raise FcaError(what, name, f"a class in a module that imports ({reason})", step) from error

    if not (isinstance(component, type) and is_dataclass(component)):
        raise FcaError(what, name, allowed, f"{module} has no dataclass {class_name}: correct the name")
    return component


def _step_after_import_error(error: Exception, module: str, class_name: str) -> str:
    """The advice to the user if the import of `module`, which should have the class `class_name`, raises an error."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing == module.partition(".")[0]:  # the whole package is missing
        return _ADD_FOLDER

    if missing is not None and is_within(module, missing):  # the package exists: the class may have moved
        candidates = _components_named(class_name)
        if candidates:
            return f"did you mean {' or '.join(candidates)}?"
    return "correct the module"


def _components_named(class_name: str) -> list[str]:
    """The full names of fca's components that have this class name.

    An older configuration may name a component that has moved. The source files are searched, so none is imported.
    """
    package = Path(__file__).parent
    # the two lines with which the definition of every component begins
    definition = re.compile(rf"^@dataclass\(frozen=True[^)]*\)\nclass {class_name}\b", re.MULTILINE)

    names = []
    for file in sorted(package.rglob("*.py")):
        if definition.search(file.read_text(encoding="utf-8")):
            module_path = file.relative_to(package.parent).with_suffix("")
            module = ".".join(module_path.parts).removesuffix(".__init__")
            names.append(f"{module}.{class_name}")
    return names


def check_contract(what: str, made: object, contract: type) -> None:
    """Raise FcaError if a component lacks members of the protocol of its kind; the message names them.

    what:     the configuration's key that names its class.
    made:     the component, or its class.
    contract: the protocol, such as `fca.types.Model`.
    """
    missing = sorted(name for name in get_protocol_members(contract) if not hasattr(made, name))
    if not missing:
        return

    component_class = made if isinstance(made, type) else type(made)
    raise FcaError(
        what,
        f"{component_class.__module__}.{component_class.__qualname__}",
        f"a class with all parts of {contract.__module__}.{contract.__name__}",
        f"add to {component_class.__qualname__}: {', '.join(missing)}",
    )
