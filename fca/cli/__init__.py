"""The only importers of Hydra: sub-commands, composition, the sweeper. Here: how words are parsed and refused."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


class Words(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours, and whose texts stand as they are written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise FcaError for words that are wrong."""
        from fca.types import FcaError  # imports pandas, for which a tab or --help need not wait

        about = re.match(r"argument (\S+): (.*)", message)
        option, reason = about.groups() if about else ("words", message)
        if choice := re.fullmatch(r"invalid choice: '?(.*?)'? \(choose from (.*)\)", reason):
            raise FcaError(option, choice[1], choice[2].replace("'", ""), "take one of these")
        reason, _, value = reason.partition(": ")
        raise FcaError(option, value, f"what {self.prog} --help lists ({reason})", "correct it")


def as_options(words: Sequence[str]) -> list[str]:
    """KEY=VALUE, as `fca run` takes it, as an option of argparse.

    >>> as_options(["photos", "run=0123456789ab", "--outputs", "store"])
    ['photos', '--run=0123456789ab', '--outputs', 'store']
    """
    return [f"--{word}" if re.match(r"[a-z]+=", word) else word for word in words]


def refused(error: Exception | str) -> int:
    """Print what was wrong, on one line; returns the exit code."""
    line = " ".join(str(error).split())
    print("error:", "".join(c if c.isprintable() else repr(c)[1:-1] for c in line), file=sys.stderr)
    return 2
