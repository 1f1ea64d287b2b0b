"""Records which functions of a package a process executes; Python imports this file by itself where it is on the path.

With this folder in PYTHONPATH, and RECORDED_PACKAGE and RECORDED_IN in the environment, every Python process, whoever
starts it, writes a line for each function when it is first called: the time, its file, its first line and its name.
Bodies of modules and classes, lambdas and comprehensions are left out, and so is all that runs while a module of the
package is being imported.
"""

import os
import sys
import threading
import time
from inspect import CO_NEWLOCALS, CO_OPTIMIZED
from pathlib import Path

OF_FUNCTIONS = CO_OPTIMIZED | CO_NEWLOCALS  # flags that bodies of modules and classes lack


def record(package: str, folder: str) -> None:
    """Begin, in all threads and in the processes that are forked from here."""
    inside = package.rstrip(os.sep) + os.sep
    seen = set()

    def is_named_function(code) -> bool:
        is_function = code.co_flags & OF_FUNCTIONS == OF_FUNCTIONS and not code.co_name.startswith("<")
        return is_function and code.co_filename.startswith(inside) and code.co_filename.endswith(".py")

    def is_importing(frame) -> bool:
        while frame := frame.f_back:
            if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(inside):
                return True
        return False

    def on_event(frame, event, _) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        if not is_named_function(code):
            seen.add(code)
        elif not is_importing(frame):  # else a later call may count
            seen.add(code)
            words = (time.monotonic_ns(), code.co_filename, code.co_firstlineno, code.co_qualname)
            with Path(folder, f"{os.getpid()}.tsv").open(
                "a", encoding="utf-8"
            ) as lines:  # a process may end at any time
                lines.write("\t".join(map(str, words)) + "\n")

    threading.setprofile(on_event)
    sys.setprofile(on_event)


if "RECORDED_IN" in os.environ:
    record(os.environ["RECORDED_PACKAGE"], os.environ["RECORDED_IN"])
