"""Names of a package that are imported when they are first used, so that importing the package itself stays fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Two functions for a package whose names are imported when they are first used: `__getattr__` and `__dir__`.

    Python calls a module's `__getattr__` for a name that it does not have yet (PEP 562).
    package: its name.
    homes:   each public name -> the module that defines it.

    >>> get, names = lazy_names("fca", {"draw_subset": "fca.subset"})
    >>> get("draw_subset").__name__, names()
    ('draw_subset', ['draw_subset'])
    """

    def get(name: str) -> Any:
        """Import a name from its module. Raises AttributeError for other names, as Python expects it."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(homes)}")
        module = import_module(homes[name])
        return getattr(module, name)

    def names() -> list[str]:
        return list(homes)

    return get, names
