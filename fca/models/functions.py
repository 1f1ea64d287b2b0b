"""Functions that users name in a configuration: found without running them, called with their errors told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fca.identity import file_sha256
from fca.models.weights import one_line
from fca.nouns import FcaError


def source_of(what: str, function: str) -> str:
    """sha256 of the file that defines `function` (module.name), found without importing the module itself.

    what: the key that named it, for errors. Raises FcaError for a module that is not there.
    """
    module, _, name = function.rpartition(".")
    try:
        with _current_folder():
            spec = find_spec(module) if module and name else None
    except Exception:  # it imports the packages that the module lies in, whatever these do
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        allowed = f"module.name, with the module in {Path.cwd()} or installed"
        raise FcaError(what, function, allowed, f"write {(module or 'mymodule').replace('.', '/')}.py, or correct it")
    return file_sha256(spec.origin)


def function_of(what: str, function: str) -> Callable[..., Any]:
    """The function itself; raises FcaError if its module cannot be imported or has no such function."""
    source_of(what, function)
    module, _, name = function.rpartition(".")
    try:
        with _current_folder():
            found = getattr(import_module(module), name, None)
    except Exception as error:  # whatever a user's module does when it is imported
        raise FcaError(what, function, f"a module that imports ({one_line(error)})", "correct the module") from error
    if not callable(found):
        raise FcaError(what, function, f"the name of a function in {module}", f"define {name} there, or correct it")
    return found  # type: ignore[no-any-return]


def called(what: str, name: str, function: Callable[..., Any], *pixels: Any) -> Any:
    """What the function gives for these pixels; its errors as FcaError."""
    try:
        with _current_folder():
            return function(*pixels)
    except Exception as error:  # whatever a user's function may raise
        shapes = ", ".join(f"uint8 {image.shape}" for image in pixels)
        raise FcaError(what, name, f"a function of {shapes} ({one_line(error)})", "correct the function") from error


@contextmanager
def _current_folder() -> Iterator[None]:
    """As `python -m` does: the current folder is where modules are looked for first."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
