"""A request that trainings of this process stop soon, as before a batch system takes the machine away."""

from __future__ import annotations

import threading

requested = threading.Event()


class Preempted(BaseException):
    """A training stopped because it was requested to; its folder has the checkpoint to go on from.

    Another process goes on with the work, so this is not an error: only the end of a job catches it.
    """
