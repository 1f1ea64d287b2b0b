# Claim: 10,000 finished runs are a DataFrame in under 2 s; beside it, what a user would write: json.loads and
# DataFrame.from_records over the same files.
#   python experiments/speed/results.py            20 s
import json
import tempfile
import time
from pathlib import Path

import pandas as pd

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
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_rows(folder, 10_000)
        for _ in range(3):
            seconds = {}
            for name, read in (("results()", results), ("by hand", by_hand)):
                start = time.perf_counter()
                frame = read(folder)
                seconds[name] = time.perf_counter() - start
            ratio = seconds["results()"] / seconds["by hand"]
            print(f"{len(frame)} rows: results() {seconds['results()']:.2f} s (claim: 2), {ratio:.2f} of by hand")


if __name__ == "__main__":
    main()
