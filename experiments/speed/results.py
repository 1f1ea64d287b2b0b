"""How long do 10,000 stored runs take to become a DataFrame? At most 2 s; beside it, what a user would write.

    python experiments/speed/results.py            20 s

By hand: json.loads and DataFrame.from_records over the same files.
"""

import json
import tempfile
from pathlib import Path

import pandas as pd
from harness import machine, options, timed

from fca.store import results
from fca.store.columns import COLUMNS

SAMPLE = {str: "some text of a usual length", int: 12, float: 0.9173, tuple: [1, 4, 5, 7, 9]}


def write_rows(folder, rows):
    row = {name: SAMPLE[kind] for name, kind in COLUMNS.items()} | {f"recipe_key_{k}": k / 7 for k in range(18)}
    for i in range(rows):
        place = folder / "runs" / f"{i:012x}"
        place.mkdir(parents=True)
        (place / "row.json").write_text(json.dumps({**row, "run_id": place.name}, indent=1))


def by_hand(folder):
    return pd.DataFrame.from_records([json.loads(path.read_text()) for path in folder.glob("runs/*/row.json")])


def main():
    size = options(__doc__, rows=(10_000, 20), turns=(3, 1))
    with tempfile.TemporaryDirectory() as place:
        write_rows(Path(place), size.rows)
        for _ in range(size.turns):
            ours, hand = timed(results, Path(place)), timed(by_hand, Path(place))
            assert len(ours.result) == len(hand.result) == size.rows
            print(f"{size.rows} rows: {ours.wall:.2f} s (claim: 2), {ours.wall / hand.wall:.2f} of by hand")
    machine()


if __name__ == "__main__":
    main()
