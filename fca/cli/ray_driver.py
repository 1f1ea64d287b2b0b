"""How a sweep starts Ray: which folders its workers import from, and which handler this process has for signals."""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.job_config import JobConfig

OBJECT_STORE_BYTES = 78_643_200  # as Hydra's launcher has it: the least that Ray takes
CLIENT_PREFIX = "ray://"  # of an address for Ray's client, which adds no folder


class SamePaths(JobConfig):
    """A configuration of Ray with which workers import only from folders from which this process does.

    Ray adds the current folder before all others. A numpy.py there, which may have come with a folder of images, would
    be taken for numpy.
    """

    def _serialize(self) -> str:
        """The configuration as Ray sends it, without the folders that Ray added."""
        self._py_driver_sys_path = [folder for folder in self._py_driver_sys_path if folder in sys.path]
        return super()._serialize()


def connect(init: DictConfig) -> None:
    """Start Ray, or connect to its cluster, once in a process; this process keeps its own handler of SIGTERM.

    Ray would add the current folder to those from which its workers import. A numpy.py in the current folder, which may
    have come with a folder of images, would be taken for numpy. SamePaths leaves out folders from which this
    process does not import.
    init: the arguments of ray.init.
    """
    if ray.is_initialized():
        return
    arguments: dict[str, Any] = {
        "object_store_memory": OBJECT_STORE_BYTES,
        **OmegaConf.to_container(init, resolve=True),  # type: ignore[dict-item]
    }
    uses_client = str(arguments.get("address") or "").startswith(CLIENT_PREFIX)
    if not uses_client:  # with an address ray://..., Ray adds no folder
        arguments["job_config"] = SamePaths()

    handler = signal.getsignal(signal.SIGTERM)
    is_stopped = False
    try:
        ray.init(**arguments)
    except SystemExit:  # Ray's own handler raises it at SIGTERM
        is_stopped = True
    finally:
        # Ray's handler aborts this process with exit code 134, by an alarm 3 s after a signal, before all of Ray ended
        signal.alarm(0)  # cancels the alarm
        signal.signal(signal.SIGTERM, handler)
    if is_stopped:
        signal.raise_signal(signal.SIGTERM)  # now our own handler gets it
