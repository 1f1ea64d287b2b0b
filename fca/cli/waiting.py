"""What a sweep prints while its launcher starts no job: that it waits, the reason, and what to change."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

FIRST_S = 30.0  # without a run at work, before the first line
EVERY_S = 60.0  # between further lines
_SQUEUE_ANSWERS_WITHIN_S = 10.0


class Waiting:
    """Prints a line when no run has been at work for FIRST_S seconds, and again every EVERY_S seconds.

    reason: returns why no run is at work; it is called for every line.
    """

    def __init__(self, reason: Callable[[], str]) -> None:
        self.reason = reason
        self.idle_since = self.last_printed = time.monotonic()
        self.has_printed = False

    def look(self, *, at_work: bool) -> None:
        """Note whether any run is at work now; if none has been for long, print why.

        The first line comes after FIRST_S seconds without a run at work, further lines every EVERY_S seconds.
        """
        current_s = time.monotonic()
        if at_work:
            self.idle_since = self.last_printed = current_s
            self.has_printed = False
            return
        if current_s - self.last_printed >= (EVERY_S if self.has_printed else FIRST_S):
            self.last_printed = current_s
            self.has_printed = True
            print(
                f"no run at work for {current_s - self.idle_since:.0f} s: {self.reason()}", file=sys.stderr, flush=True
            )


def why_waiting(name: str | None, launcher: Any) -> str:
    """The reason, in words, why no job of a launcher is at work; if it is unknown, the text states that workers start.

    name: the chosen option of hydra/launcher.
    launcher: the plugin, which knows what resources a job asks for.
    """
    if name == "ray":
        return _why_ray(launcher.ray_cfg)
    if name is not None and name.startswith("submitit_slurm"):
        return _why_slurm()
    if name == "gpus":
        return "its workers start, or wait for a slot of a GPU; nvidia-smi shows who has them"
    return "its workers start"


def _why_ray(keys: DictConfig) -> str:
    """The reason, in words, why no job is at work on Ray.

    A job may need more than the cluster has, or more than is free now.
    keys: the keys of hydra.launcher.ray; `remote` has the resources that a job asks for.
    """
    ray: Any = importlib.import_module("ray")  # imported this way since Ray is optional and has no types

    if not ray.is_initialized():
        return "Ray starts"
    try:
        total = ray.cluster_resources()
        free = ray.available_resources()
    except Exception as error:  # a lost cluster raises many kinds of errors, which must not end the sweep
        return f"Ray does not answer ({type(error).__name__})"

    remote: Any = OmegaConf.to_container(keys.get("remote") or OmegaConf.create({}), resolve=True)
    needs = {  # name of a resource of Ray -> (key as the user types it, the amount that a job asks for)
        "CPU": ("num_cpus", remote.get("num_cpus")),
        "GPU": ("num_gpus", remote.get("num_gpus")),
        "memory": ("memory", remote.get("memory")),
    }
    for name, number in (remote.get("resources") or {}).items():
        needs[name] = (f"resources.{name}", number)

    # a job that asks for more than the whole cluster has would wait without end, so this is checked first
    for resource, (key, number) in needs.items():
        if number and number > total.get(resource, 0):
            return (
                f"a job asks for hydra.launcher.ray.remote.{key}={number:g}, and the Ray cluster has "
                f"{total.get(resource, 0):g}; lower it (ctrl-c ends; the same command goes on), or add machines"
            )
    for resource, (key, number) in needs.items():
        if number and number > free.get(resource, 0):
            return (
                f"a job asks for {key}={number:g}; {free.get(resource, 0):g} of {total[resource]:g} are free in Ray now"
            )
    return "the workers of Ray start"


def _why_slurm() -> str:
    """A line with the number of the user's jobs in each state of SLURM's queue, with SLURM's reason.

    For example: "in SLURM's queue: 3 PENDING (Priority)".
    """
    command = ["squeue", "--me", "--noheader", "--format=%T (%r)"]  # a line for each job: STATE (REASON)
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SQUEUE_ANSWERS_WITHIN_S)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return f"its jobs are in SLURM's queue; squeue does not answer ({type(error).__name__})"
    states = Counter(line.strip() for line in answer.stdout.splitlines() if line.strip())
    if not states:
        return "SLURM's queue has no job of yours (squeue --me)"
    return "in SLURM's queue: " + ", ".join(f"{number} {state}" for state, number in states.most_common())
