"""Claims: planning 3,000 runs takes under 30 s; the same sweep again, all done, starts nothing and ends in under 40 s.

    python experiments/speed/planning.py

Both are whole command lines in a process of their own, start-up included. The second finds rows that this script has
written for every planned run.
"""

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRID = "model=test_resnet,test_vit,test_efficientnet subset.ncl=2,3,4,5,6 seed=range(0,100) logger=none"
RUNS = 3000  # 1,500 trainings and the predictions of each


def fca(folder, *words):
    start = time.perf_counter()
    command = [sys.executable, "-m", "fca.cli.main", "run", "-m", *shlex.split(GRID), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def mark_all_done(folder):
    """Write a row for every run of the grid, as the sweeper plans them."""
    code = f"""
import sys
from fca.cli.sweeper import ResumingSweep
from fca.store import claims
def mark(self, points, left):
    for point in points:
        for run in point.job.plan:
            store = point.job.setup.store
            if run.run_id in left and not (store.folder(run.run_id) / "row.json").exists():
                token = claims.acquire(store.folder(run.run_id))
                store.write({{**run.about, "run_id": run.run_id, "task": run.task}}, {{}}, token)
                claims.release(store.folder(run.run_id), token)
ResumingSweep._work = mark
from fca.cli import run
sys.exit(run.main(["-m", *{shlex.split(GRID)!r}]))
"""
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        seconds, out = fca(folder, "sweep.print=true")
        print(f"planned {len(out.strip().splitlines())} configurations ({RUNS} runs) in {seconds:.1f} s (claim: 30)")
        mark_all_done(folder)
        seconds, out = fca(folder)
        print(f"{out.splitlines()[0]}\nthe same sweep again: {seconds:.1f} s (claim: 40)")


if __name__ == "__main__":
    main()
