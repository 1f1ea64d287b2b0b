"""Launchers of ours over those of Hydra: `gpus` over joblib's, `submitit_slurm` over submitit's."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from hydra.core.utils import JobReturn
from hydra.types import HydraContext, TaskFunction
from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
from omegaconf import DictConfig, OmegaConf

from fca.store.claims import repeating
from fca.types import FcaError

SAMPLE_S = 0.25
POLL_S = 0.25
OF_MEMORY = 0.9  # of a GPU that its slots share; the rest is for the contexts of their processes
_slot: list[int] = []  # the lock of this process's slot


class Gpus(JoblibLauncher):  # type: ignore[misc]  # Hydra's plugins have no types
    """One worker of joblib a slot; it sees the slot's GPU, or none where the slots are shares of the CPU."""

    def __init__(self, gpus: Any, slots_per_gpu: Any) -> None:
        super().__init__()
        self.typed_gpus = OmegaConf.to_object(gpus) if OmegaConf.is_list(gpus) else gpus
        self.slots_per_gpu = slots_per_gpu

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Find the GPUs. Raises FcaError for wrong keys, and where a GPU is needed and there is none."""
        import joblib

        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.work = task_function
        on_cpu = config.machine.accelerator == "cpu"
        if self.slots_per_gpu != "auto" and not (type(self.slots_per_gpu) is int and self.slots_per_gpu > 0):
            allowed = "auto, or a whole number, at least 1"
            raise FcaError("hydra.launcher.slots_per_gpu", self.slots_per_gpu, allowed, "take one of these")
        if not config.sweep.print:
            self.gpus = [""] if on_cpu else find_gpus(self.typed_gpus)
            if on_cpu and self.slots_per_gpu == "auto":
                self.slots_per_gpu = joblib.cpu_count()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Do the jobs; the first one alone where its use of the GPU decides on the number of slots."""
        results: list[JobReturn] = []
        if self.slots_per_gpu == "auto":
            results += self._measure(job_overrides[:1], initial_job_idx)
        further_jobs = job_overrides[len(results) :]
        if further_jobs:
            slots = self.gpus * self.slots_per_gpu
            results += self._in_slots(slots, further_jobs, initial_job_idx + len(results))
        return results

    def _in_slots(self, gpus: list[str], jobs: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        """Do jobs with a worker for each of these slots: joblib gives it its share of the cores."""
        from joblib.externals.loky import get_reusable_executor

        with tempfile.TemporaryDirectory(prefix="fca-slots-") as folder:
            self.task_function = partial(in_slot, self.work, folder, gpus)
            self.joblib = {"n_jobs": max(2, len(gpus))}  # with 1, joblib works in this process, which a crash would end
            try:
                return super().launch(jobs, first)
            finally:
                get_reusable_executor().shutdown(kill_workers=True)  # the next workers take slots anew

    def _measure(self, jobs: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        """Do a job alone on the first GPU, and set the number of slots by its memory and the time it kept it busy."""
        import joblib

        gpu = self.gpus[0]
        samples: list[tuple[float, float]] = []  # memory in MiB, busy in %

        def sample() -> None:
            for memory, busy in _smi("memory.used,utilization.gpu", gpu):
                samples.append((float(memory), float(busy) if busy.isdecimal() else 100.0))  # [N/A] of some cards

        [[memory_before, memory_total]] = _smi("memory.used,memory.total", gpu)
        used_before = float(memory_before)
        total = float(memory_total)
        with repeating(sample, SAMPLE_S):
            results = self._in_slots([gpu], jobs, first)

        samples_at_work = [(used - used_before, busy) for used, busy in samples if used > used_before]
        peak = max((used for used, _ in samples_at_work), default=total)
        mean_busy = mean([busy for _, busy in samples_at_work] or [100.0])
        cores_per_gpu = joblib.cpu_count() // len(self.gpus)
        self.slots_per_gpu = slots_for(peak / (total - used_before), mean_busy / 100, cores_per_gpu)

        use = f"did not use GPU {gpu}"
        if samples_at_work:
            use = f"took {peak:,.0f} of {total:,.0f} MiB and kept it busy {mean_busy:.0f} % of the time"
        print(f"{self.slots_per_gpu} slots a GPU: the first run {use}", flush=True)
        return results


def slots_for(memory: float, busy: float, cores: int) -> int:
    """Runs at once on a GPU: one takes these shares of the free memory and of the time; `cores` there are for each GPU.

    >>> slots_for(0.1, 0.3, 16), slots_for(0.4, 0.3, 16), slots_for(0.01, 0.01, 6), slots_for(1.0, 1.0, 16)
    (3, 2, 6, 1)
    """
    return max(1, min(int(OF_MEMORY / memory), int(1 / max(busy, 0.01)), cores))


def find_gpus(typed_gpus: Any) -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them: all (auto), or those of a list.

    Raises FcaError where there is none, and for one that does not exist.
    """
    gpus = [index for (index,) in _smi("index")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and visible is not None:
        gpus = [name.strip() for name in visible.split(",") if name.strip()]
    if not gpus:
        step = "set machine.accelerator=cpu for shares of the CPU, or take hydra/launcher=joblib"
        raise FcaError("hydra/launcher", "gpus", "a machine with a GPU; nvidia-smi lists none", step)
    if typed_gpus == "auto":
        return gpus

    names = [str(name) for name in typed_gpus] if isinstance(typed_gpus, list) else []
    has_duplicates = len(set(names)) < len(names)
    if not names or has_duplicates or not set(names) <= set(gpus):
        raise FcaError("hydra.launcher.gpus", typed_gpus, f"auto, or a list of some of {', '.join(gpus)}", "correct it")
    return names


def in_slot(work: Callable[[DictConfig], Any], folder: str, gpus: Sequence[str], config: DictConfig) -> Any:
    """Do a job in this worker's slot, which its first job takes: a file that is locked for as long as it lives."""
    if not _slot:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts
        gpu = os.environ["CUDA_VISIBLE_DEVICES"] = gpus[_take(folder, len(gpus))]
        if gpu:
            import torch

            if torch.cuda.is_available():
                torch.cuda.set_per_process_memory_fraction(OF_MEMORY / gpus.count(gpu))
    try:
        return work(config)
    finally:
        if len(gpus) == 1:  # there are two workers
            os.close(_slot.pop())


def _take(folder: str, number: int) -> int:
    """Lock the first free slot, and wait while there is none."""
    while True:
        for slot in range(number):
            file = os.open(Path(folder, str(slot)), os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
            else:
                _slot.append(file)
                return slot
        time.sleep(POLL_S)


def _smi(query: str, *gpu: str) -> list[list[str]]:
    """The answer of nvidia-smi for all GPUs, or for one: a line for each; empty where there is no such program."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *(f"--id={name}" for name in gpu)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()]


class Slurm(SlurmLauncher):  # type: ignore[misc]
    """An array of jobs: one that is lost costs its runs only, one that is to end goes on when it is queued again."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Do the jobs; the return value of one that was lost raises LostJob."""
        from fca.cli.slurm import watching

        self.params.pop("timeout_from_rows", None)  # the sweep has done as it asks; submitit has no such key
        safe_path = "export PYTHONSAFEPATH=1"  # also on a cluster whose jobs do not inherit the environment
        self.params["setup"] = [*(self.params.get("setup") or []), safe_path]
        with watching():
            return super().launch(job_overrides, initial_job_idx)

    def __call__(self, *words: Any, **others: Any) -> JobReturn:
        """Do a job, in a process of SLURM's."""
        from fca.cli.slurm import stopping

        with stopping(self.params["signal_delay_s"]):
            return super().__call__(*words, **others)
