"""The device of a training, or several with a process for each, started by the process that plans and writes.

Nothing here imports torch before a training begins: the form of `machine.devices` is checked with every plan.
"""

from __future__ import annotations

import io
import logging
import mmap
import os
import pickle
import platform
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from logging.handlers import QueueHandler
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fca.plugins import PLUGINS, plugins
from fca.training import stop
from fca.types import FcaError, check_choice

if TYPE_CHECKING:
    import torch

ACCELERATORS = ("auto", "cpu", "gpu")
WRAPPED_PARAMS = 1_000_000  # FSDP gathers layers with at least this many parameters one after another
POLL_S = 1.0  # seconds between two checks whether a stop is requested
_PROCESS = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
import fca.training.loop
fca.training.devices.run_process(int(sys.argv[1]))
"""


class TrainingProcess(NamedTuple):
    """One process of a training.

    devices: those of all processes, in the order of their ranks.
    rank:    number of this process, from 0.
    send:    sends a message to the process that started this one; None if it is the only process of the training.
    """

    devices: Sequence[torch.device]
    rank: int = 0
    send: Callable[[object], None] | None = None

    def trainer_options(self, strategy: str) -> dict[str, Any]:
        """Lightning's options for the devices of all processes.

        strategy: fsdp gives each process a share of all weights; with any other name each has the whole network. It
        does not matter for a single device.
        """
        kind = self.devices[0].type
        n_devices = len(self.devices)
        return {
            "accelerator": kind,
            "devices": [device.index for device in self.devices] if kind == "cuda" else n_devices,
            "strategy": self._lightning_strategy(strategy) if n_devices > 1 else "auto",
        }

    def _lightning_strategy(self, name: str) -> Any:
        """Lightning's strategy for several devices: FSDP for the name fsdp, else DDP."""
        from pytorch_lightning.strategies import DDPStrategy, FSDPStrategy
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

        if name != "fsdp":
            return DDPStrategy()
        policy = partial(size_based_auto_wrap_policy, min_num_params=WRAPPED_PARAMS)
        return FSDPStrategy(auto_wrap_policy=policy)

    def forwarding_logger(self) -> Any:
        """A Lightning logger that sends the metrics of the first process to the process that started this one.

        In the other processes it does nothing.
        """
        from pytorch_lightning.loggers.logger import DummyLogger

        class ForwardingLogger(DummyLogger):
            def log_metrics(_, metrics: Any, step: int | None = None) -> None:  # noqa: N805  # self: the process
                if self.rank == 0 and self.send is not None:
                    self.send((metrics, step))

        return ForwardingLogger()


def device_of(accelerator: str, key: str = "machine.accelerator") -> torch.device:
    """The device of an accelerator.

    accelerator: cpu; gpu (CUDA or Apple's); or auto, the GPU if there is one, else the CPU.
    key:         the configuration key of the accelerator, which errors name.
    Raises FcaError for another name, and for gpu if this machine has no GPU.
    """
    import torch

    check_choice(key, accelerator, ACCELERATORS, "leave it at auto")
    gpu = next((name for name in ("cuda", "mps") if getattr(torch, name).is_available()), None)
    if accelerator == "gpu" and gpu is None:
        raise FcaError(key, accelerator, "auto or cpu: torch sees no GPU", "check torch.cuda")
    return torch.device("cpu" if accelerator == "cpu" or gpu is None else gpu)


def device_name(accelerator: str) -> str:
    """The name of the device in a row of results: the GPU's, or the processor's with the number of torch's threads."""
    import torch

    device = device_of(accelerator)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{platform.processor()} GPU"

    cpuinfo = Path("/proc/cpuinfo")  # on Linux, where platform.processor() gives no model
    model_name = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.is_file() else None
    processor = model_name[1] if model_name else platform.processor()
    threads = torch.get_num_threads()
    return f"{processor}, {threads} thread{'s' if threads > 1 else ''}"


def accelerator_for(module: torch.nn.Module, accelerator: str) -> str:
    """The accelerator that a network runs on: the given one, or cpu for a network without parameters.

    Such encoders (HOG, functions of the user) work in NumPy.
    """
    return accelerator if any(True for _ in module.parameters()) else "cpu"


def check_devices(devices: object) -> None:
    """Raise FcaError for a value of machine.devices that cannot be right on any machine.

    >>> check_devices([0, 2])
    >>> check_devices(0)
    Traceback (most recent call last):
    fca.types.FcaError: machine.devices = 0; allowed: a number from 1, auto, or a list of GPUs: [0,2]; next: correct it
    """
    if isinstance(devices, list):
        # Not isinstance, for which True would be an index.
        are_indices = all(type(index) is int and index >= 0 for index in devices)
        is_valid = are_indices and 0 < len(set(devices)) == len(devices)  # at least one GPU, none twice
    else:
        is_number = type(devices) is int and devices >= 1
        is_valid = is_number or devices == "auto"

    if not is_valid:
        raise FcaError("machine.devices", devices, "a number from 1, auto, or a list of GPUs: [0,2]", "correct it")


def devices_of(accelerator: str, devices: Any, strategy: str = "auto") -> list[torch.device]:
    """The devices of a training, one for each of its processes.

    accelerator: cpu; gpu (CUDA or Apple's); or auto: the GPU if there is one, else the CPU.
    devices:     a number of devices (on a CPU: of processes); a list of the GPUs' indices; or auto: all GPUs, or a
                 single process on a CPU, which uses all of its cores.
    strategy:    auto, ddp or fsdp.

    Raises FcaError for devices that are not valid or that this machine does not have, and for fsdp without CUDA.
    """
    import torch

    check_devices(devices)
    kind = device_of(accelerator).type
    available_by_kind = {"cpu": os.cpu_count() or 1, "cuda": torch.cuda.device_count()}
    n_available = available_by_kind.get(kind, 1)  # 1 for mps: a machine of Apple's has a single GPU

    if isinstance(devices, list):
        indices = devices
    elif devices == "auto":
        indices = [0] if kind == "cpu" else list(range(n_available))
    else:
        indices = list(range(devices))

    is_list_without_cuda = isinstance(devices, list) and kind != "cuda"  # a list names GPUs of CUDA
    if max(indices) >= n_available or is_list_without_cuda:
        allowed = f"GPUs from 0 to {n_available - 1}" if kind == "cuda" else f"a number up to {n_available} on {kind}"
        raise FcaError("machine.devices", devices, allowed, "take those that are there")
    if strategy == "fsdp" and kind != "cuda":
        raise FcaError("machine.strategy", strategy, f"auto or ddp on {kind}", "leave it at auto")

    if kind == "cuda":
        return [torch.device(kind, index) for index in indices]
    return [torch.device(kind) for _ in indices]


def devices_name(accelerator: str, devices: Any) -> str:
    """The name of the devices of a training in a row of results; of several, with their number: 2 x NVIDIA H100."""
    n_devices = len(devices_of(accelerator, devices))
    name = device_name(accelerator)
    return f"{n_devices} x {name}" if n_devices > 1 else name


def launch(work: Callable[..., Any], args: Sequence[Any], devices: Sequence[torch.device], logger: Any) -> None:
    """Run `work(*args, process)` in a new process for every device, and return when it has returned in all of them.

    work:   the function that every process calls; its last argument is the TrainingProcess in which it runs. All
            processes form a group of torch.distributed.
    args:   are copied to the processes. Arrays in memory maps are not copied: each process maps their files again.
    logger: a Lightning logger that gets the metrics of the first process, or False. Log records of the first process
            come here, too.

    The first error in any process ends all of them and is raised here. RuntimeError is raised if a process died, for
    example because memory was exhausted. The processes end with this one, however it ends. If fca.training.stop
    requests a stop in this process, it is requested in all of them.
    """
    import torch

    # The processes find each other through this store, on a port that is free.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    threads = max(1, torch.get_num_threads() // len(devices))  # so that processes do not compete for cores
    environment = {
        **os.environ,
        "NODE_RANK": "0",  # all processes are on this machine
        "OMP_NUM_THREADS": str(threads),
        PLUGINS: ",".join(plugins()),  # the user's modules, whose classes the new processes may import, too
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),  # the same modules in all processes
    }

    processes: list[Popen[bytes]] = []
    running: dict[Any, Popen[bytes]] = {}  # our end of a pipe -> the process at the other end, in order of ranks
    try:
        for rank in range(len(devices)):
            # LOCAL_RANK shows Lightning that its processes exist already; else it would start its own.
            connection, process = _started_process({**environment, "LOCAL_RANK": str(rank)})
            processes.append(process)
            running[connection] = process

        payload = _pickled_with_maps_by_name((work, args))
        for rank, connection in enumerate(running):
            with suppress(OSError):  # the process has died: `_handle_message` raises an error about it
                connection.send((devices, rank, store.port))
                connection.send_bytes(payload)

        while running:  # `_handle_message` takes out processes that have returned
            for ready_connection in wait(list(running), POLL_S):
                _handle_message(ready_connection, running, logger)
            if stop.requested.is_set():  # sent at every poll until all have returned: repeating it does no harm
                for connection in running:
                    with suppress(OSError):  # the process has died
                        connection.send_bytes(b"stop")

        if logger:
            logger.finalize("success")
    finally:  # after success, too: processes that have finished their work wait for this
        for process in processes:
            process.kill()
            process.wait()


def _started_process(environment: Mapping[str, str]) -> tuple[Any, Popen[bytes]]:
    """Start a process of a training; return our end of a pipe to it, and the process.

    It runs the short program _PROCESS, which calls `run_process`, and waits at the remote end of the pipe for its work.
    """
    connection, remote_connection = Pipe()
    # `with` closes the remote end in this process once the new process has inherited it. If it stayed open here, our
    # reads would not end when the new process dies.
    with remote_connection:
        handle = remote_connection.fileno()
        # The option -P keeps the current folder out of the module search path of the new process.
        command = [sys.executable, "-P", "-c", _PROCESS, str(handle)]
        process = Popen(command, env=environment, pass_fds=[handle])  # noqa: S603
    return connection, process


def _handle_message(connection: Any, running: dict[Any, Popen[bytes]], logger: Any) -> None:
    """Read one message from a process of a training, and act on it.

    None means that the work of the process has returned: the process is taken out of `running`. An exception is raised
    here. A tuple has metrics and the number of their step for the logger. Anything else is a log record, which is
    handled as if it had been made in this process. RuntimeError is raised if the process has died.

    connection: our end of the pipe to the process.
    running:    our end of each pipe -> the process at the other end, for all processes that still work.
    """
    try:
        message = connection.recv()
    except (EOFError, OSError):  # the other end is closed
        exit_code = running[connection].wait()
        raise RuntimeError(f"a process of the training died: exit code {exit_code}") from None

    if message is None:
        del running[connection]
    elif isinstance(message, BaseException):
        raise message
    elif isinstance(message, tuple):
        logger.log_metrics(*message)
    elif logging.getLogger(message.name).isEnabledFor(message.levelno):
        logging.getLogger(message.name).handle(message)


def _pickled_with_maps_by_name(value: object) -> bytes:
    """Pickle a value; an array in a memory map is replaced by the name of its file and its place in the file.

    Unpickling maps the file again. So the images of a training are not copied to each of its processes.
    """
    from joblib.externals.cloudpickle import Pickler

    class MapByName(Pickler):  # type: ignore[misc]
        def reducer_override(self, value: object) -> Any:
            """The function and its arguments that make this value again; cloudpickle calls this for every object."""
            # Only whole maps: the `offset` of a slice is that of its map. The base of a slice is an array, no mmap.
            if type(value) is np.memmap and isinstance(value.base, mmap.mmap) and value.flags.c_contiguous:
                return np.memmap, (value.filename, value.dtype, "r", value.offset, value.shape)
            return super().reducer_override(value)  # cloudpickle pickles all other objects

    file = io.BytesIO()
    MapByName(file).dump(value)
    return file.getvalue()


def run_process(handle: int) -> None:
    """Do the work of one process of a training: the counterpart of `launch`, which has started this process.

    The process gets its work from `launch` through a pipe. It sends log records and metrics while it works, and at the
    end None or the error. This function never returns: in the end `launch` kills the process.

    handle: file descriptor of this process's end of the pipe.
    """
    import torch

    connection = Connection(handle)
    lock = threading.Lock()  # messages come from several threads
    devices, rank, port = connection.recv()
    payload = connection.recv_bytes()

    def follow_parent() -> None:
        """Request a stop when `launch` sends one; end this process when the pipe closes, as at the parent's death."""
        with suppress(EOFError, OSError):  # raised when the pipe closes
            while connection.recv_bytes():  # any message means stop
                stop.requested.set()
        os._exit(1)

    def send(message: object) -> None:
        with lock:
            connection.send(message)

    threading.Thread(target=follow_parent, daemon=True).start()

    # Only the first process sends its log records: those of the others would repeat them.
    logging.captureWarnings(True)
    logging.getLogger("fca").setLevel(logging.INFO)
    # QueueHandler makes records picklable. It calls only this one method of its queue.
    sending_handler = QueueHandler(SimpleNamespace(put_nowait=send))
    logging.getLogger().addHandler(logging.NullHandler() if rank else sending_handler)

    try:
        gpu = devices[rank] if devices[rank].type == "cuda" else None
        if gpu:
            torch.cuda.set_device(gpu)
        store = torch.distributed.TCPStore("127.0.0.1", port)  # type: ignore[attr-defined]
        torch.distributed.init_process_group(
            store=store,
            backend="nccl" if gpu else "gloo",
            rank=rank,
            world_size=len(devices),
            device_id=gpu,
        )
        work, args = pickle.loads(payload)  # noqa: S301
        work(*args, TrainingProcess(devices, rank, send))
        send(None)
    except BaseException as error:  # Preempted, too, has to reach `launch`
        error.add_note(f"in process {rank} of the training:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:  # some errors cannot be pickled, and so not sent: send the text
            error = RuntimeError(f"{type(error).__name__}: {error}")
        send(error)

    # Wait until `launch` kills this process. If it ended now, its connections to the other processes would close, and
    # those processes that still use them would fail.
    threading.Event().wait()
