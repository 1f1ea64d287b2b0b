"""The tables of Sharma et al. (Do models see corruption as we see?, 2023) beside ours, from stored runs.

    python experiments/irt_corruption/side_by_side.py outputs                      the paper's CIFAR-10; about a minute
    python experiments/irt_corruption/side_by_side.py outputs cifar100             the runs of another data set
    python experiments/irt_corruption/side_by_side.py outputs cifar10 wrong.csv    with the labels known to be wrong

Starts no run. What none fills stays empty, with the command that fills it. "As the paper did" is compat=seed001 with
its model of responses. Expect on an empty store: the paper's numbers alone, and where it contradicts itself.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from paper import DATASET
from sections import sections, told
from ways import analysed

from fca.report.page import Page, write_page
from fca.store import Store
from fca.types import FcaError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 when the verdicts or the query cannot be read."""
    asked = _arguments().parse_args(arguments)
    try:
        page = side_by_side(Store(asked.outputs), asked.dataset, asked.verdicts, asked.query)
        index = write_page(asked.to or asked.outputs / "reports" / "side_by_side", page)
    except FcaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*page.answers, f"page: {index}"]))
    return 0


def side_by_side(store: Store, dataset: str = DATASET, verdicts: str | None = None, query: str | None = None) -> Page:
    """The page."""
    ways = analysed(store, dataset, verdicts, query)
    parts = sections(ways, dataset, verdicts is not None)
    words = [str(store.outputs), dataset, *([verdicts] if verdicts else []), *(["--query", query] if query else [])]
    command = shlex.join(["python", "experiments/irt_corruption/side_by_side.py", *words])
    rows = store.rows()
    used = {run for part in parts for table in part.tables for run in table.runs}
    used |= set(rows.loc[rows["run_id"].isin(used), "parent"].dropna())
    return Page("Sharma et al. and ours", told(parts, ways.reasons), parts, rows[rows["run_id"].isin(used)], command)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", type=Path, help="the store")
    parser.add_argument("dataset", nargs="?", default=DATASET, help=f"whose runs (default: {DATASET})")
    parser.add_argument("verdicts", nargs="?", help="CSV of reviewed labels: item, and error = 1 where it is wrong")
    parser.add_argument("--to", type=Path, help="folder of the page (default: OUTPUTS/reports/side_by_side)")
    parser.add_argument("--query", help="narrows the runs, a pandas query on their columns")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
