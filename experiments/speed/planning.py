"""Claims: planning 5,000 runs takes under 15 s; the same sweep again, all done, starts nothing and ends in under 15 s.

    python experiments/speed/planning.py

Both are whole command lines in a process of their own, start-up included. The second finds rows that this script has
written for every planned run: 2,505 trainings and the predictions of each.
"""

import os
import shlex
import subprocess
import sys
import tempfile

from harness import machine, options, timed

MARK = """
import sys
from fca.cli import run
from fca.cli.sweeper import ResumingSweep
from fca.store import claims
def mark(self, points, left):
    for job in (point.job for point in points):
        for one in job.plan:
            store = job.context.store
            if one.run_id in left and not (store.folder(one.run_id) / "row.json").exists():
                token = claims.acquire(store.folder(one.run_id))
                store.write({**one.about, "run_id": one.run_id, "task": one.task}, {}, token)
                claims.release(store.folder(one.run_id), token)
ResumingSweep._work = mark
sys.exit(run.main(sys.argv[1:]))
"""


def main():
    size = options(__doc__, seeds=(167, 1))
    grid = "model=test_resnet,test_vit,test_efficientnet subset.ncl=2,3,4,5,6 logger=none"
    words = ["-m", *shlex.split(grid), f"seed=range(0,{size.seeds})"]
    with tempfile.TemporaryDirectory() as folder:

        def fca(*start):
            command, before = [sys.executable, *start, *words], os.times()
            shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
            after = os.times()
            return shown, after.children_user + after.children_system - before.children_user - before.children_system

        planned = timed(fca, "-m", "fca.cli.main", "run", "sweep.print=true")
        shown, cpu = planned.result
        number = len(shown.strip().splitlines())
        print(f"planned {number} configurations ({2 * number} runs): {planned.wall:.1f} s (claim: 15), {cpu:.1f} CPU s")
        fca("-c", MARK)
        again = timed(fca, "-m", "fca.cli.main", "run")
        shown, cpu = again.result
        print(f"{shown.splitlines()[0]}\nthe same sweep again: {again.wall:.1f} s (claim: 15), {cpu:.1f} CPU s")
    machine()


if __name__ == "__main__":
    main()
