"""Runs that were killed or starved. They did not fail: the same command does them again without being asked to."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fca.store.files import MACHINE_IN_NEED

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Libraries that write or allocate outside of Python report these without an error number.
_STARVED = re.compile(
    r"no space left on device|disk quota exceeded|cannot allocate memory|can't allocate memory|out of memory",
    re.IGNORECASE,
)
# Records of versions that had no mark for it.
_KILLED_EARLIER = re.compile(
    r"(run [0-9a-f]{12}, which it needs, failed: )*"
    r"(the worker (was killed by|died: |ended with exit code)|SLURM job \S+ left the queue|OSError: \[Errno 28\])"
)


def is_starved(error: BaseException) -> bool:
    """Whether a run ended because its machine lacked something: disk, memory, memory of a GPU, open files.

    Whatever caused the error counts too, since libraries wrap it.

    >>> is_starved(OSError(28, "No space left on device")), is_starved(ValueError("labels differ"))
    (True, False)
    """
    return any(_lacks(cause) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, what caused that, ..."""
    seen = set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _lacks(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in NO_ROOM + MACHINE_IN_NEED
    return isinstance(error, OSError | RuntimeError) and _STARVED.search(str(error)) is not None


def was_interrupted(record: Mapping[str, Any]) -> bool:
    """Whether the record of a run that ended without a row is of one that was killed or starved.

    >>> was_interrupted({"error": "ValueError: 3"}), was_interrupted({"error": "KeyError: 1", "interrupted": True})
    (False, True)
    """
    if "interrupted" in record:
        return record["interrupted"] is True
    return _KILLED_EARLIER.match(str(record.get("error"))) is not None
