"""Do half-precision logits change what is read from stored ones? Every run of some stores that kept float32 is rounded.

    python experiments/speed/half.py --stores outputs,other/outputs            without any: invented logits, N(0, 9)

A line for each number of logits: how many predictions change when only some columns compete (all of them, and random
subsets), by how many images the accuracy of a run changes, and by how much the confidence.
"""

import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from harness import machine, options
from scipy.special import softmax

from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.tables.predictions import predictions
from fca.tables.rows import records

SUBSETS = (2, 5, 10, None)  # sizes, of 5 draws each; None = all columns


def main():
    """Print the table."""
    asked = options(__doc__, stores=("", ""), images=(100_000, 500))
    found = defaultdict(list)
    for stored in stored_logits(asked.stores.split(",")) if asked.stores else invented(asked.images):
        found[stored.logits.shape[1]] += changes(stored)
    print(f"{'logits':>6} {'compete':>7} {'runs x draws':>12} {'predictions':>12} {'changed':>8} {'share':>9} "
          f"{'largest change of top1':>24} {'runs changed':>12} {'confidence':>10}")  # fmt: skip
    for width, cells in sorted(found.items()):
        for size in SUBSETS:
            of_size = [cell[1:] for cell in cells if cell[0] == size]
            if of_size:
                images, changed, right, confidence = map(np.array, zip(*of_size, strict=True))
                moved = np.abs(right) / images
                print(f"{width:>6} {size or width:>7} {len(images):>12,} {images.sum():>12,} {changed.sum():>8,} "
                      f"{changed.sum() / images.sum():>9.1e} {100 * moved.max():>17.3f} points "
                      f"{(right != 0).sum():>12,} {confidence.max():>10.1e}")  # fmt: skip
    machine()


def invented(images):
    """Logits of a spread of 3 and classes that are often the largest one's."""
    rng = np.random.default_rng(0)
    for width in (10, 1000):
        logits = rng.normal(0, 3, (images * 10 // width, width)).astype(np.float32)
        true = np.where(rng.random(len(logits)) < 0.8, logits.argmax(1), rng.integers(width, size=len(logits)))
        yield SimpleNamespace(logits=logits, true=true)


def stored_logits(stores):
    """What predict runs kept in float32."""
    for store in map(Store, map(Path, stores)):
        for row in records(store.rows("task == 'predict'")):
            try:
                if store.has_array(row["run_id"], "logits"):
                    stored = predictions(store, row)
                    if stored.logits.dtype == np.float32:
                        yield stored
            except Exception as error:  # an old store may lack what it needs
                print(f"left out: {row['run_id']}: {error}", file=sys.stderr)


def changes(stored):
    """(size, images, predictions that change, change of correct ones, of the largest softmax) of some subsets."""
    rng, width = np.random.default_rng(0), stored.logits.shape[1]
    for size in SUBSETS:
        for _ in range(5 if size else 1):
            if size and size >= width:
                continue
            columns = np.sort(rng.choice(width, size, replace=False)) if size else np.arange(width)
            there = np.isin(stored.true, columns)
            if not there.any():
                continue
            whole, true = np.asarray(stored.logits)[there], stored.true[there]
            half = whole.astype(np.float16)
            before, after = masked_answers(whole, columns), masked_answers(half, columns)
            gap = softmax(whole[:, columns], axis=1).max(1) - softmax(half[:, columns].astype(np.float32), axis=1).max(
                1
            )
            right = int((after == true).sum()) - int((before == true).sum())
            yield size, len(true), int((before != after).sum()), right, float(np.abs(gap).max())


if __name__ == "__main__":
    main()
