"""fca: which image classifier, when the job has few classes?

In a notebook: `import fca`, then `fca.results()`, `fca.analyse("few_class")`, `fca.load_data("digits")`, ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fca.cli.notebook import analyse, load_data, load_model, write_report
    from fca.store import results
    from fca.subset import draw_subset

__all__ = ["analyse", "draw_subset", "load_data", "load_model", "results", "write_report"]

_ELSEWHERE = {"results": "fca.store", "draw_subset": "fca.subset"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fca' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "fca.cli.notebook")), name)  # heavy: when it is used


def __dir__() -> list[str]:
    return [*globals(), *__all__]
