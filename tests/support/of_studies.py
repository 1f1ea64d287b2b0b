"""What each study brings to tests that ask the same of all: a module in its folder tests/studies/NAME/support."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "studies"


def parts(name: str) -> list[ModuleType]:
    """The modules of this name, of the studies that are here."""
    files = sorted(FOLDER.glob(f"*/support/{name}.py"))
    return [import_module(f"tests.studies.{file.parents[1].name}.support.{name}") for file in files]
