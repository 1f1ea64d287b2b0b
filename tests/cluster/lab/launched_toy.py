"""A task that writes down where it works, and waits or fails as files in its folder ask of a seed: wait-1, fail-2."""

import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fca.types import Column, Finished, Run

NAMES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")


@dataclass(frozen=True)
class Launched:
    columns: ClassVar = (Column("launched_seed", int),)
    summary: ClassVar = ()
    folder: str

    def plan(self, context):
        return [Run("launched", {"seed": context.seed}, {"launched_seed": context.seed})]

    def run(self, runs, context):
        folder, seed = Path(self.folder), context.seed
        for run in runs:
            begun = {"seed": seed, "pid": os.getpid(), "time": time.time()}
            begun |= {name: os.environ.get(name) for name in NAMES}
            part = folder / uuid.uuid4().hex
            part.write_text(json.dumps(begun))
            part.rename(folder / f"begun-{part.name}.json")
            while (folder / f"wait-{seed}").exists():
                time.sleep(0.05)
            if (folder / f"fail-{seed}").exists():
                raise RuntimeError(f"seed {seed} fails")
            yield Finished(run, {}, {})
