"""What was killed or starved did not fail: the same command does it again by itself."""

import errno

import pytest

from fca.store import State, Store
from fca.store.interruption import is_starved, was_interrupted


def wrapped(cause):
    """An error as a library raises it about another one."""
    try:
        raise RuntimeError("the checkpoint could not be written") from cause
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError("Unable to allocate 12.0 GiB for an array"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
        wrapped(OSError(errno.ENOSPC, "No space left on device")),
    ],
    ids=str,
)
def test_an_error_of_a_machine_in_need_is_an_interruption(error):
    assert is_starved(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a class named 'out of memory'"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        PermissionError(errno.EACCES, "Permission denied"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        KeyError("no space left on device"),
    ],
    ids=str,
)
def test_any_other_error_is_a_failure(error):
    assert not is_starved(error)


@pytest.mark.parametrize(
    ("record", "interrupted"),
    [
        ({"error": "ValueError: 3", "interrupted": False}, False),
        ({"error": "RuntimeError: CUDA out of memory", "interrupted": True}, True),
        ({"error": "the worker was killed by SIGKILL (out of memory?)"}, True),
        ({"error": "run 0123456789ab, which it needs, failed: the worker was killed by SIGTERM"}, True),
        ({"error": "SLURM job 17_3 left the queue without a row; the end of its .err file:"}, True),
        ({"error": "OSError: [Errno 28] No space left on device: 'outputs/runs/x/best.safetensors'"}, True),
        ({"error": "run 0123456789ab, which it needs, failed: ValueError: 3"}, False),
        ({"error": "ValueError: the worker was killed by SIGKILL"}, False),
        ({"error": "ValueError: 3", "interrupted": "yes"}, False),
    ],
)
def test_a_record_has_a_mark_and_one_of_an_earlier_version_is_known_by_its_text(record, interrupted, tmp_path):
    assert was_interrupted(record) is interrupted
    store, run_id = Store(tmp_path), "0123456789ab"
    store.fail(run_id, record)
    assert store.state(run_id) is (State.INTERRUPTED if interrupted else State.FAILED)
    store.forgive(run_id)
    assert store.state(run_id) is State.ABSENT
