"""Runs that were killed or lacked resources. They did not fail: the same command repeats them."""

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
# Records of earlier versions, which did not mark interrupted runs.
_KILLED_EARLIER = re.compile(
    r"(run [0-9a-f]{12}, which it needs, failed: )*"
    r"(the worker (was killed by|died: |ended with exit code)|SLURM job \S+ left the queue|OSError: \[Errno 28\])"
)


def is_starved(error: BaseException) -> bool:
    """Whether a run ended because its machine lacked disk space, memory, GPU memory or open files.

    The causes of the error count too, since libraries wrap it.

    >>> is_starved(OSError(28, "No space left on device")), is_starved(ValueError("labels differ"))
    (True, False)
    """
    return any(_is_lack_of_resources(cause) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then its cause, the cause of that, and so on; each once, also where the chain is a circle."""
    visited_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited_ids:
        visited_ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__  # `raise ... from`, else the error that was being handled


def _is_lack_of_resources(error: BaseException) -> bool:
    """Whether this error itself, without its causes, reports a lack of disk space, memory or open files.

    It is judged by its type or its error number, and otherwise by the text that a library gave it.
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in NO_ROOM + MACHINE_IN_NEED
    return isinstance(error, OSError | RuntimeError) and _STARVED.search(str(error)) is not None


def was_interrupted(record: Mapping[str, Any]) -> bool:
    """Whether a run that ended without a result was killed or lacked resources, as opposed to having failed.

    record: its error record. Records of earlier versions, without a key `interrupted`, are judged by the error's text.

    >>> was_interrupted({"error": "ValueError: 3"}), was_interrupted({"error": "KeyError: 1", "interrupted": True})
    (False, True)
    """
    if "interrupted" in record:
        return record["interrupted"] is True
    return _KILLED_EARLIER.match(str(record.get("error"))) is not None
