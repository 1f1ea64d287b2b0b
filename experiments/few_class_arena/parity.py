"""Table 1 and Figures 1 to 5 of Few-Class Arena (arXiv:2411.01099), from stored runs, beside the paper's numbers.

    python experiments/few_class_arena/parity.py --data $FCA_REAL_DATA --outputs outputs        seconds to minutes

Reads DATA/tables/paper_*.csv and the runs under OUTPUTS; starts none. What no run fills stays empty, with the command
that fills it. Expect on an empty store: the paper's numbers alone, and what they say of ranks and regret.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from paper import figure5, table1
from sections import sections
from studies import ready, studies
from words import answers

from fca.report.page import Page, write_page
from fca.store import Store
from fca.types import FcaError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 when the paper's tables are not there or the query cannot be read."""
    asked = _arguments().parse_args(arguments)
    try:
        page, told = parity(asked.data, Store(asked.outputs), asked.query)
        index = write_page(asked.to or asked.outputs / "reports" / "parity", page)
    except FcaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*told, f"page: {index}"]))
    return 0


def parity(data: Path, store: Store, query: str | None = None) -> tuple[Page, list[str]]:
    """The page, and what it says in words."""
    paper, correlations = table1(data), figure5(data)
    usable, reasons = ready(studies(store, query))
    parts = sections(paper, correlations, store.rows(query), usable)
    told = answers({table.name: table.frame for part in parts for table in part.tables}, reasons)
    words = ["--data", str(data), "--outputs", str(store.outputs), *(["--query", query] if query else [])]
    command = shlex.join(["python", "experiments/few_class_arena/parity.py", *words])
    used = {run for part in parts for table in part.tables for run in table.runs}
    rows = store.rows(query)
    return Page("Few-Class Arena, paper and ours", told, parts, rows[rows["run_id"].isin(used)], command), told


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("FCA_REAL_DATA")
    parser.add_argument("--data", type=Path, default=data, required=data is None, help="holds tables/paper_*.csv")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="the store (default: outputs)")
    parser.add_argument("--to", type=Path, help="folder of the page (default: OUTPUTS/reports/parity)")
    parser.add_argument("--query", help="narrows the runs, a pandas query on their columns")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
