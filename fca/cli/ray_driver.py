"""Ray, as a sweep begins it: which folders its workers import from, and whose signals this process listens to."""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.job_config import JobConfig

OBJECT_STORE = 78_643_200  # bytes, as Hydra's launcher has it: the least that Ray takes
CLIENT = "ray://"  # an address of Ray's client, which adds no folder


class SamePaths(JobConfig):
    """Workers import from folders in which this process looks too.

    Ray adds the current folder before all others: a numpy.py there, which may have come with a folder of images, would
    be taken for numpy.
    """

    def _serialize(self) -> str:
        self._py_driver_sys_path = [folder for folder in self._py_driver_sys_path if folder in sys.path]
        return super()._serialize()


def connect(init: DictConfig) -> None:
    """Begin Ray, or connect to it, once in a process.    init: arguments of ray.init."""
    if ray.is_initialized():
        return
    words: dict[str, Any] = {"object_store_memory": OBJECT_STORE, **OmegaConf.to_container(init, resolve=True)}  # type: ignore[dict-item]
    if not str(words.get("address") or "").startswith(CLIENT):
        words["job_config"] = SamePaths()

    handler = signal.getsignal(signal.SIGTERM)
    is_stopped = False
    try:
        ray.init(**words)
    except SystemExit:  # of Ray's own handler
        is_stopped = True
    finally:
        # Ray's handler would abort this process 3 s after a signal, before all of Ray has ended, with exit code 134.
        signal.alarm(0)
        signal.signal(signal.SIGTERM, handler)
    if is_stopped:
        signal.raise_signal(signal.SIGTERM)
