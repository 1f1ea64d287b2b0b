"""fca: which image classifier, when the job has few classes?

In a notebook: `import fca`, then `fca.run({"model": "test_resnet"})`, `fca.results()`, `fca.load_data("digits")`, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fca.lazy import lazy_names

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


__getattr__, __dir__ = lazy_names(__name__, _HOMES)
