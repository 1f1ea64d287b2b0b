"""Launchers that extend those of Hydra: `gpus` the one of joblib, `submitit_slurm` the one of submitit."""

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

SAMPLED_EVERY_S = 0.25
SLOT_POLLED_EVERY_S = 0.25
SHARED_MEMORY = 0.9  # share of a GPU's memory that its slots have; the rest is for the contexts of their processes
_slot_lock: list[int] = []  # the open, locked file of this process's slot; empty before it has one


class Gpus(JoblibLauncher):  # type: ignore[misc]  # Hydra's plugins have no types
    """A launcher with one worker of joblib for each slot, which is a share of a GPU, or of the CPU without GPUs.

    gpus:          auto, or a list of GPUs as nvidia-smi numbers them.
    slots_per_gpu: how many runs share a GPU; auto: the first run is measured, and decides.
    """

    def __init__(self, gpus: Any, slots_per_gpu: Any) -> None:
        super().__init__()
        self.typed_gpus = OmegaConf.to_object(gpus) if OmegaConf.is_list(gpus) else gpus
        self.slots_per_gpu = slots_per_gpu

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check the keys of the launcher, and find the GPUs; Hydra calls this before `launch`.

        task_function: does one job, given its configuration.
        config: the configuration of the sweep.
        Raises FcaError for wrong keys, and if a GPU is needed and there is none.
        """
        import joblib  # here, since Hydra imports this module at every start

        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.work = task_function
        on_cpu = config.machine.accelerator == "cpu"
        # type() instead of isinstance, which takes True for an int
        is_positive_number = type(self.slots_per_gpu) is int and self.slots_per_gpu > 0
        if self.slots_per_gpu != "auto" and not is_positive_number:
            allowed = "auto, or a whole number, at least 1"
            raise FcaError("hydra.launcher.slots_per_gpu", self.slots_per_gpu, allowed, "take one of these")
        if not config.sweep.print:  # printing commands needs no GPU
            self.gpus = [""] if on_cpu else find_gpus(self.typed_gpus)  # "": slots are shares of the CPU
            if on_cpu and self.slots_per_gpu == "auto":  # there is no GPU to measure: a slot for each core
                self.slots_per_gpu = joblib.cpu_count()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Do the jobs of a sweep and return their results in order; Hydra calls this.

        If slots_per_gpu is auto, the first job runs alone, and its use of the GPU decides on the number of slots.
        job_overrides: the overrides of each job.
        initial_job_idx: the number of the first job.
        """
        results: list[JobReturn] = []
        if self.slots_per_gpu == "auto":
            results += self._measure_first_job(job_overrides[:1], initial_job_idx)
        further_jobs = job_overrides[len(results) :]
        if further_jobs:
            gpu_of_slot = self.gpus * self.slots_per_gpu  # the list of GPUs, repeated
            results += self._in_slots(gpu_of_slot, further_jobs, initial_job_idx + len(results))
        return results

    def _in_slots(self, gpu_of_slot: list[str], jobs: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        """Do jobs with one worker for each slot; joblib gives each worker its share of the cores.

        gpu_of_slot: the GPU that each slot sees; empty for a share of the CPU.
        jobs: the overrides of each job.
        first: the number of the first job.
        Returns the results, in order.
        """
        from joblib.externals.loky import get_reusable_executor

        with tempfile.TemporaryDirectory(prefix="fca-slots-") as folder:
            # super().launch reads these two fields: the function that does a job, and the settings of joblib
            self.task_function = partial(in_slot, self.work, folder, gpu_of_slot)
            # with 1 worker, joblib would do the job in this process, which a crash would end; hence 2 at least
            self.joblib = {"n_jobs": max(2, len(gpu_of_slot))}
            try:
                return super().launch(jobs, first)
            finally:
                get_reusable_executor().shutdown(kill_workers=True)  # a worker keeps its slot until it ends

    def _measure_first_job(self, jobs: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        """Do one job alone on the first GPU, and set the number of slots by the memory and the GPU time that it used.

        `slots_for` returns how many such runs the GPU's free memory, its time and the CPU cores allow at once.
        jobs: a list with the overrides of the job.
        first: the number of the job.
        Returns a list with the result of the job.
        """
        import joblib

        gpu = self.gpus[0]
        samples: list[tuple[float, float]] = []  # memory in MiB, share of the time in % in which the GPU was busy

        def sample() -> None:
            """Add the GPU's present memory and use to `samples`; nothing if nvidia-smi fails."""
            for memory, busy in _smi("memory.used,utilization.gpu", gpu):
                busy_percent = float(busy) if busy.isdecimal() else 100.0  # some cards answer [N/A]
                samples.append((float(memory), busy_percent))

        [[memory_before, memory_total]] = _smi("memory.used,memory.total", gpu)
        used_before = float(memory_before)
        total = float(memory_total)
        with repeating(sample, SAMPLED_EVERY_S):
            results = self._in_slots([gpu], jobs, first)

        # memory above the level before the run shows that the run is on the GPU; without any such sample,
        # the run counts as one that needs a whole GPU
        samples_at_work = [(used - used_before, busy) for used, busy in samples if used > used_before]
        peak = max((used_by_run for used_by_run, _ in samples_at_work), default=total)  # MiB
        mean_busy = mean([busy for _, busy in samples_at_work] or [100.0])  # %
        cores_per_gpu = joblib.cpu_count() // len(self.gpus)
        self.slots_per_gpu = slots_for(peak / (total - used_before), mean_busy / 100, cores_per_gpu)

        use = f"did not use GPU {gpu}"
        if samples_at_work:
            use = f"took {peak:,.0f} of {total:,.0f} MiB and kept it busy {mean_busy:.0f} % of the time"
        print(f"{self.slots_per_gpu} slots a GPU: the first run {use}", flush=True)
        return results


def slots_for(memory: float, busy: float, cores: int) -> int:
    """The number of runs that share a GPU: limited by its memory, by its time, and by the CPU cores; at least 1.

        slots = min(SHARED_MEMORY / memory, 1 / busy, cores), rounded down

    memory: the share of the GPU's free memory that one run takes.
    busy:   the share of the time in which one run keeps the GPU busy; values below 0.01 count as 0.01.
    cores:  the number of CPU cores for each GPU.

    >>> slots_for(0.1, 0.3, 16), slots_for(0.4, 0.3, 16), slots_for(0.01, 0.01, 6), slots_for(1.0, 1.0, 16)
    (3, 2, 6, 1)
    """
    slots_in_memory = int(SHARED_MEMORY / memory)
    slots_in_time = int(1 / max(busy, 0.01))  # samples may show no work at all
    return max(1, min(slots_in_memory, slots_in_time, cores))


def find_gpus(typed_gpus: Any) -> list[str]:
    """The GPUs that a sweep uses, as CUDA_VISIBLE_DEVICES names them.

    typed_gpus: auto, for all that this process may use, or a list of some of them.
    Raises FcaError if the machine has no GPU, and for a list that is empty, names a GPU twice, or names an unknown GPU.
    """
    gpus = [index for (index,) in _smi("index")]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and visible is not None:  # somebody, such as SLURM, gave this process only these GPUs
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


def in_slot(work: Callable[[DictConfig], Any], folder: str, gpu_of_slot: Sequence[str], config: DictConfig) -> Any:
    """Do a job in the slot of this worker process, and return what `work` returns.

    A slot is a share of a GPU. The worker takes one at its first job, by locking a file, and keeps it until it ends. It
    then sees only the GPU of its slot, and may allocate only its share of that GPU's memory.

    work: does the job, given `config`.
    folder: holds the files that are locked, one for each slot.
    gpu_of_slot: the GPU that each slot sees; empty for a share of the CPU.
    """
    if not _slot_lock:  # the first job of the worker; or it released its slot after the last job, see below
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts
        gpu = gpu_of_slot[_take_slot(folder, len(gpu_of_slot))]
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        if gpu:
            import torch  # slow, and not needed for shares of the CPU

            if torch.cuda.is_available():
                n_slots_of_gpu = gpu_of_slot.count(gpu)
                torch.cuda.set_per_process_memory_fraction(SHARED_MEMORY / n_slots_of_gpu)
    try:
        return work(config)
    finally:
        # joblib has two workers even for one slot, as it would do the jobs of a single worker in the sweep's process.
        # So the only slot is released after each job: the other worker may have the next job.
        if len(gpu_of_slot) == 1:
            os.close(_slot_lock.pop())


def _take_slot(folder: str, n_slots: int) -> int:
    """Take the first free slot of `n_slots`, and wait while there is none; returns its number.

    A slot is a file in this folder, and this process takes it by locking the file. The file stays open, so the system
    removes the lock when this process ends, in whatever way.
    """
    while True:
        for slot in range(n_slots):
            file = os.open(Path(folder, str(slot)), os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another worker has this slot
                os.close(file)
            else:
                _slot_lock.append(file)  # keeps the file open, for `in_slot` to close
                return slot
        time.sleep(SLOT_POLLED_EVERY_S)


def _smi(query: str, *gpu: str) -> list[list[str]]:
    """What nvidia-smi answers: a list for each GPU with the values of the queried properties.

    The result is empty if nvidia-smi is missing, fails, or does not answer.
    query: names of properties, separated by commas.
    gpu: the GPUs to ask about; none given: all.
    """
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *(f"--id={name}" for name in gpu)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()]


class Slurm(SlurmLauncher):  # type: ignore[misc]
    """A launcher that submits the jobs of a sweep to SLURM as an array.

    If a job is lost (killed, or its node failed), only its own runs are lost. A job whose time limit is reached is
    queued again, and goes on from its checkpoint.
    """

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit the jobs, wait for them, and return their results in order; Hydra calls this.

        job_overrides: the overrides of each job.
        initial_job_idx: the number of the first job.
        The `return_value` of a job that was lost raises LostJob.
        """
        from fca.cli.slurm import watching

        self.params.pop("timeout_from_rows", None)  # the sweep has set the limit; submitit has no such key
        safe_path = "export PYTHONSAFEPATH=1"  # also on a cluster whose jobs do not inherit the environment
        self.params["setup"] = [*(self.params.get("setup") or []), safe_path]
        with watching():
            return super().launch(job_overrides, initial_job_idx)

    def __call__(self, *words: Any, **others: Any) -> JobReturn:
        """Do a job, in a process that SLURM started. Submitit calls this with what describes the job."""
        from fca.cli.slurm import stopping

        with stopping(self.params["signal_delay_s"]):
            return super().__call__(*words, **others)
