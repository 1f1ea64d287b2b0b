"""fca: which image classifier, when the job has few classes?

In a notebook: `import fca`, then `fca.run({"model": "test_resnet"})`, `fca.results()`, `fca.load_data("digits")`, ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fca.cli.analyse import analyse
    from fca.cli.configure import load_data, load_model
    from fca.cli.jobs import plan, run
    from fca.cli.report import write_report
    from fca.cli.results import results
    from fca.cli.status import status
    from fca.subset import draw_subset

__all__ = ["analyse", "draw_subset", "load_data", "load_model", "plan", "results", "run", "status", "write_report"]

_HOMES = {
    "analyse": "fca.cli.analyse",
    "draw_subset": "fca.subset",
    "load_data": "fca.cli.configure",
    "load_model": "fca.cli.configure",
    "plan": "fca.cli.jobs",
    "results": "fca.cli.results",
    "run": "fca.cli.jobs",
    "status": "fca.cli.status",
    "write_report": "fca.cli.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fca' has no attribute {name!r}; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(_HOMES[name]), name)  # heavy: imported when it is used


def __dir__() -> list[str]:
    return [*globals(), *__all__]
