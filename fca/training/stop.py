"""A request that trainings of this process stop soon, as before a batch system takes the machine away."""

from __future__ import annotations

import threading

requested = threading.Event()


class Preempted(BaseException):
    """A training stopped because it was requested to; its folder has the checkpoint to go on from.

    What it was at goes on in another process, so it is no error: nothing but the end of a job catches it.
    """
