# Claim: 50,000 finished runs are a DataFrame in about a second, once some reader has left the index of rows; without
# it, and in a process that has read them before. Beside them, what a user would write: json.loads over the same files.
#   python experiments/speed/results.py                 2 minutes; --rows 10000 for a first look
import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import pandas as pd

from fca.store import index, results
from fca.store.columns import BASE

SAMPLE = {str: "some text of a usual length", int: 12, float: 0.9173, tuple: [1, 4, 5, 7, 9]}


def write_rows(folder, rows):
    rng = random.Random(0)
    row = {str(column): SAMPLE[column.kind] for column in BASE}
    row |= {f"own_column_{k}": k / 7 for k in range(40)} | {f"recipe_key_{k}": k / 7 for k in range(18)}
    for _ in range(rows):
        place = folder / "runs" / f"{rng.getrandbits(48):012x}"
        place.mkdir(parents=True)
        drawn = {"classes": sorted(rng.sample(range(100), rng.randint(2, 10))), "top1": rng.random()}
        drawn |= {"finished": f"2026-01-{rng.randint(10, 28)}T00:00:00.000", "command": f"fca run seed={place.name}"}
        (place / "row.json").write_text(json.dumps({**row, **drawn, "run_id": place.name}, indent=1))


def by_hand(folder):
    return pd.DataFrame.from_records([json.loads(path.read_text()) for path in folder.glob("runs/*/row.json")])


def without_index(folder):
    (folder / index.INDEX).unlink(missing_ok=True)
    return in_a_new_process(folder)


def in_a_new_process(folder):
    index._last = None
    return results(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    rows = parser.parse_args().rows
    ways = {"by hand": by_hand, "without index": without_index, "with index": in_a_new_process, "again": results}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_rows(folder, rows)
        for _ in range(3):
            seconds = {}
            for name, read in ways.items():
                start = time.perf_counter()
                frame = read(folder)
                seconds[name] = time.perf_counter() - start
                assert len(frame) == rows
            print(f"{rows} rows:", ", ".join(f"{name} {taken:.2f} s" for name, taken in seconds.items()))


if __name__ == "__main__":
    main()
