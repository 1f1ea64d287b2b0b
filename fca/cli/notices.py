"""Warnings of ours on the console: each text once with its count, over all configurations and workers of a command.

Two warnings are one text when they differ only in names, as the id of a run, or in numbers. The log of each run has
all of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fca.cli import printable

FOLDER = "FCA_NOTICES"
"""The environment variable with the folder in which the processes of one command note what they showed."""

MAX_NAMED = 3  # names that a line lists
_PLACEHOLDER = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
_NUMBER = re.compile(r"(?<![\w.])[\d,]*\d(?:\.\d+)?(?!\w)")
_RUN = re.compile(r"\b[0-9a-f]{12}\b")
_ENOUGH_WORDS = 4  # of a text beside its names, so that two with the same words mean the same


@dataclass
class Notice:
    """A text that was shown, how often it came, and the names of the others."""

    text: str
    names: list[str]
    count: int = 1
    others: list[str] = field(default_factory=list)

    def add(self, names: list[str]) -> None:
        """It came once more, with these names in place of its own."""
        self.count += 1
        differing = ", ".join(name for name, own in zip(names, self.names, strict=False) if name != own)
        if differing and differing not in self.others:
            self.others.append(differing)

    def line(self) -> str:
        """The text with its count."""
        return self.text if self.count == 1 else f"{self.text} ({self.count} times{self._also()})"

    def repeats(self) -> str:
        """How often it came after it was shown."""
        return f"{self.count - 1} more such warnings{self._also()}: {self.text}"

    def _also(self) -> str:
        if not self.others:
            return ""
        names = ", ".join(self.others[:MAX_NAMED])
        if len(self.others) > MAX_NAMED:
            names += f" and {len(self.others) - MAX_NAMED} more"
        return f", also {names}"


def text_key_and_names(record: logging.LogRecord) -> tuple[str, str, list[str]]:
    """The text of a warning, what it shares with those that differ only in names and numbers, and these.

    >>> record = logging.makeLogRecord({"msg": "run %s is left out: its row lacks one of %s", "args": ("0a", "top1")})
    >>> text_key_and_names(record)
    ('run 0a is left out: its row lacks one of top1', 'run ... is left out: its row lacks one of ...', ['0a', 'top1'])
    """
    text = record.getMessage()
    values = record.args if isinstance(record.args, tuple) else ()
    words = re.findall(r"[^\W\d_]{2,}", _PLACEHOLDER.sub("", str(record.msg)))
    names = []
    if len(words) >= _ENOUGH_WORDS:
        names = [str(value) for value in values if isinstance(value, str) and _is_name(value)]
    key = text
    for name in names:
        key = key.replace(name, "...", 1)
    runs = [run for run in _RUN.findall(key) if run not in names]
    key = _RUN.sub("...", key)
    numbers: list[str] = []
    if len(words) >= _ENOUGH_WORDS:
        numbers = _NUMBER.findall(key)
        key = _NUMBER.sub("...", key)
    return text, key, [*names, *runs, *numbers]


def _is_name(value: str) -> bool:
    return len(value) <= 60 and len(value.split()) == 1


class Console(logging.Handler):
    """Shows each warning when it first comes; those like it are counted.

    Within `gathered` they are shown at its end, with their count.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.held: dict[str, Notice] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show, hold or count a warning."""
        try:
            text, key, names = text_key_and_names(record)
            if self.held is not None:
                self._hold(text, key, names)
            elif _is_first(key, text, names):
                _print(text)
        except Exception:  # as every handler does: a warning ends no work
            self.handleError(record)

    def _hold(self, text: str, key: str, names: list[str]) -> None:
        assert self.held is not None
        if key in self.held:
            self.held[key].add(names)
        else:
            self.held[key] = Notice(text, names)


@cache
def console() -> Console:
    """The handler of this process, on the logger of all our modules."""
    handler = Console()
    logging.getLogger("fca").addHandler(handler)
    return handler


@contextmanager
def gathered() -> Iterator[None]:
    """Show the warnings of the body at its end, each text once with its count; later ones like them are not shown."""
    handler = console()
    if handler.held is not None:  # within another
        yield
        return

    handler.held = {}
    try:
        yield
    finally:
        notices, handler.held = handler.held, None
        for key, notice in notices.items():
            if _is_first(key, notice.text, notice.names, counted=False):
                _print(notice.line())


@contextmanager
def shared() -> Iterator[None]:
    """Count the warnings of the body, and of the processes that it starts; its end prints how often each came again."""
    console()
    if os.environ.get(FOLDER):
        yield
        return

    with tempfile.TemporaryDirectory(prefix="fca-notices-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]
            for notice in _noted(Path(folder)):
                if notice.count > 1:
                    _print(notice.repeats())


def _print(text: str) -> None:
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def _is_first(key: str, text: str, names: list[str], *, counted: bool = True) -> bool:
    """Whether no process of this command has shown a warning like this; noted for the others.

    counted: whether those that follow are of interest.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return True
    path = Path(folder, hashlib.sha256(key.encode()).hexdigest()[:16])
    with suppress(OSError):  # the folder is gone, or the disk is full: rather twice than not at all
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND)
            is_first = True
        except FileExistsError:
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            is_first = False
        line = json.dumps({"text": text, "names": names, "counted": counted})
        os.write(file, f"{line}\n".encode())  # one write: lines of several processes do not mix
        os.close(file)
        return is_first
    return True


def _noted(folder: Path) -> Sequence[Notice]:
    """The warnings whose repetitions count, as the processes noted them."""
    notices = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_ctime_ns):
        first, *repetitions = [json.loads(line) for line in path.read_text().splitlines()]
        if first.get("counted"):
            notice = Notice(first["text"], first["names"])
            for repetition in repetitions:
                notice.add(repetition["names"])
            notices.append(notice)
    return notices
