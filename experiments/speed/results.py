"""How long do 50,000 stored runs take to become a DataFrame? About a second, once a reader has left the index of rows.

    python experiments/speed/results.py            2 minutes; --rows 10000 for a first look

Beside it: without the index, in a process that has read them before, and by hand (json.loads over the same files).
"""

import json
import random
import tempfile
from pathlib import Path

import pandas as pd
from harness import machine, options, timed

from fca.store import index, results
from fca.store.columns import BASE
from fca.store.damage import listing

SAMPLE = {str: "some text of a usual length", int: 12, float: 0.9173, tuple: [1, 4, 5, 7, 9]}


def write_rows(folder, rows):
    rng = random.Random(0)
    row = {str(column): SAMPLE[column.value_type] for column in BASE}
    row |= {f"own_column_{k}": k / 7 for k in range(40)} | {f"recipe_key_{k}": k / 7 for k in range(18)}
    for _ in range(rows):
        place = folder / "runs" / f"{rng.getrandbits(48):012x}"
        place.mkdir(parents=True)
        drawn = {"classes": sorted(rng.sample(range(100), rng.randint(2, 10))), "top1": rng.random()}
        drawn |= {"finished": f"2026-01-{rng.randint(10, 28)}T00:00:00.000", "command": f"fca run seed={place.name}"}
        content = listing(place, {**row, **drawn, "run_id": place.name}, schema="")
        (place / "row.json").write_bytes(content)


def by_hand(folder):
    return pd.DataFrame.from_records([json.loads(path.read_text()) for path in folder.glob("runs/*/row.json")])


def without_index(folder):
    (folder / index.INDEX).unlink(missing_ok=True)
    return in_a_new_process(folder)


def in_a_new_process(folder):
    index._last = None
    return results(folder)


def main():
    size = options(__doc__, rows=(50_000, 200), turns=(3, 1))
    ways = {"by hand": by_hand, "without index": without_index, "with index": in_a_new_process, "again": results}
    with tempfile.TemporaryDirectory() as place:
        write_rows(Path(place), size.rows)
        for _ in range(size.turns):
            found = {name: timed(read, Path(place)) for name, read in ways.items()}
            assert all(len(one.result) == size.rows for one in found.values())
            print(f"{size.rows} rows:", ", ".join(f"{name} {one.wall:.2f} s" for name, one in found.items()))
    machine()


if __name__ == "__main__":
    main()
