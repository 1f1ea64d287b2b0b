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
from typing import Any

from fca.cli import printable

FOLDER_VARIABLE = "FCA_NOTICES"
"""The environment variable with the folder in which the processes of one command note their warnings."""

MAX_NAMED = 3  # names that a line lists
_PLACEHOLDER = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")  # %s, %5.1f
_NUMBER = re.compile(r"(?<![\w.])[\d,]*\d(?:\.\d+)?(?!\w)")  # 3, 0.25, 1,000; not inside a word
_RUN = re.compile(r"\b[0-9a-f]{12}\b")  # id of a run
_ENOUGH_WORDS = 4  # that a text must have beside its names: with fewer, two texts may mean different things


@dataclass
class Notice:
    """A warning, together with the later warnings that differ from it only in names and numbers.

    text:   the text of the first warning.
    names:  the names and numbers in this text, in order.
    count:  the number of all these warnings, the first one included.
    others: for each later warning, its names and numbers that differ from `names`, joined by commas; each text once.
    """

    text: str
    names: list[str]
    count: int = 1
    others: list[str] = field(default_factory=list)

    def add(self, names: list[str]) -> None:
        """Count a further warning that differs from the first one only in names and numbers.

        names: the names and numbers in its text, in order. Those that differ from the first warning's are kept for the
        line that is printed.
        """
        self.count += 1
        # not strict: where a text has ... of its own, another text may have a name
        pairs = zip(names, self.names, strict=False)
        differing = ", ".join(name for name, first_name in pairs if name != first_name)
        if differing and differing not in self.others:
            self.others.append(differing)

    def line(self) -> str:
        """The text with the number of such warnings, for a warning that was not shown yet."""
        return self.text if self.count == 1 else f"{self.text} ({self.count} times{self._also()})"

    def repeats(self) -> str:
        """How many such warnings came after the first, for a warning that was shown when it came."""
        return f"{self.count - 1} more such warnings{self._also()}: {self.text}"

    def _also(self) -> str:
        """The first entries of `others` in words, with a comma in front; empty if there are none."""
        if not self.others:
            return ""
        names = ", ".join(self.others[:MAX_NAMED])
        if len(self.others) > MAX_NAMED:
            names += f" and {len(self.others) - MAX_NAMED} more"
        return f", also {names}"


def text_key_and_names(record: logging.LogRecord) -> tuple[str, str, list[str]]:
    """The text of a warning, a key that it shares with warnings like it, and the names and numbers in the text.

    The key is the text with ... in place of each name, run id and number. A name is an argument of the message that is
    one word. If the message has fewer than _ENOUGH_WORDS words beside its arguments, only run ids are replaced, so that
    different warnings do not share a key.

    >>> record = logging.makeLogRecord({"msg": "run %s is left out: its row lacks one of %s", "args": ("0a", "top1")})
    >>> text_key_and_names(record)
    ('run 0a is left out: its row lacks one of top1', 'run ... is left out: its row lacks one of ...', ['0a', 'top1'])
    """
    text = record.getMessage()
    arguments = record.args if isinstance(record.args, tuple) else ()  # logging also allows one mapping
    message_without_placeholders = _PLACEHOLDER.sub("", str(record.msg))  # without %s, the place of an argument
    words = re.findall(r"[^\W\d_]{2,}", message_without_placeholders)  # two or more letters
    has_enough_words = len(words) >= _ENOUGH_WORDS

    key = text
    names: list[str] = []
    if has_enough_words:
        names = [str(value) for value in arguments if isinstance(value, str) and _is_name(value)]
    for name in names:
        key = key.replace(name, "...", 1)

    # a run id among the names is still in the key if the text has it twice; it is not listed again
    run_ids = [run_id for run_id in _RUN.findall(key) if run_id not in names]
    key = _RUN.sub("...", key)

    numbers: list[str] = []
    if has_enough_words:  # after the run ids, which contain digits
        numbers = _NUMBER.findall(key)
        key = _NUMBER.sub("...", key)
    return text, key, [*names, *run_ids, *numbers]


def _is_name(value: str) -> bool:
    """Whether an argument of a message is a name, not a sentence: one word, and not too long."""
    return len(value) <= 60 and len(value.split()) == 1


class Console(logging.Handler):
    """The handler of the log that prints a warning when it comes, unless one with the same key was printed before.

    The key of a warning (see `text_key_and_names`) is equal for warnings that differ only in names and numbers.
    held: within `gathered`, key -> the warnings to print at its end; otherwise None.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.held: dict[str, Notice] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless one that differs only in names and numbers was printed before.

        Every warning is noted, so that the command can print at its end how often each was repeated. Inside `gathered`,
        where `held` is not None, the warning is only kept in `held`, and `gathered` notes and prints it at its end.
        """
        try:
            # the key is equal for warnings that differ only in names and numbers
            text, key, names = text_key_and_names(record)
            if self.held is not None:
                self._hold(text, key, names)
                return
            is_first = _note(key, text, names)
            if is_first:
                _print(text)
        except Exception:  # as in every handler of logging: a warning must not end any work
            self.handleError(record)

    def _hold(self, text: str, key: str, names: list[str]) -> None:
        """Keep a warning for the end of `gathered`, or count it if a warning with the same key is kept already.

        text: the text of the warning.
        key: equal for warnings that differ only in names and numbers.
        names: the names and numbers in the text, in order.
        """
        assert self.held is not None
        if key in self.held:
            self.held[key].add(names)
        else:
            self.held[key] = Notice(text, names)


@cache
def console() -> Console:
    """The handler of this process. The first call adds it to the logger of all modules of fca."""
    handler = Console()
    logging.getLogger("fca").addHandler(handler)
    return handler


@contextmanager
def gathered() -> Iterator[None]:
    """Hold back the warnings of the body, and print them at its end.

    Warnings that differ only in names and numbers are printed as one line with their count. A warning that this command
    printed before is not printed again. Inside another `gathered`, nothing is printed here, and the outer `gathered`
    prints all warnings.
    """
    handler = console()
    if handler.held is not None:  # inside another `gathered`
        yield
        return

    handler.held = {}  # the handler keeps the warnings of the body in it, and prints none
    try:
        yield
    finally:
        notices = handler.held
        handler.held = None  # the handler prints warnings again
        for key, notice in notices.items():
            # noted for other processes, but not to be counted at the end: the line here has the count
            is_first = _note(key, notice.text, notice.names, counted=False)
            if is_first:
                _print(notice.line())


@contextmanager
def shared() -> Iterator[None]:
    """During the body, count warnings over this process and all processes that it starts.

    Each warning is printed once, by the process that is the first to give it. For this, the processes note their
    warnings in a common folder, which an environment variable names. At the end of the body, a line for each warning
    that was repeated gives the number of repetitions. In a process that was started within such a body, this does
    nothing, because the first process already counts.
    """
    console()  # adds the handler that prints warnings, if it is not there yet
    if os.environ.get(FOLDER_VARIABLE):  # started by a process that counts
        yield
        return

    with tempfile.TemporaryDirectory(prefix="fca-notices-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER_VARIABLE]
            for notice in _counted_notices(Path(folder)):
                if notice.count > 1:
                    _print(notice.repeats())


def _print(text: str) -> None:
    print(printable(text, keep="\n"), file=sys.stderr, flush=True)


def _note(key: str, text: str, names: list[str], *, counted: bool = True) -> bool:
    """Note a warning for all processes of this command; returns whether none of them had one with this key before.

    The processes of a command share a folder, whose path is in an environment variable. Each key has a file in this
    folder, to which every process appends a line for each warning with the key. So the process that creates the file
    has the first warning.

    key:     the text with ... in place of each name and number; equal for warnings that differ only in these.
    text:    the text of the warning.
    names:   the names and numbers in it, in order.
    counted: whether the command, at its end, prints how often a warning with this key was repeated. The value that
             comes with the first warning decides. False if the caller prints the count.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:  # the command shares no folder between processes, so every warning counts as the first
        return True

    path = Path(folder, hashlib.sha256(key.encode()).hexdigest()[:16])
    with suppress(OSError):  # the folder is gone, or the disk is full: better printed twice than not at all
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


def _counted_notices(folder: Path) -> Sequence[Notice]:
    """The warnings that the processes of a command noted in a folder, in the order in which each last came.

    Each file of the folder has the warnings with one key, as a JSON object on each line (see `_note`). Warnings
    that `gathered` printed are left out, because their lines already had a count.
    """
    notices = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_ctime_ns):  # the time of its last line
        noted = _noted_warnings(path)
        if not noted or not noted[0]["counted"]:
            continue

        first, *repetitions = noted
        notice = Notice(first["text"], first["names"])
        for repetition in repetitions:
            notice.add(repetition["names"])
        notices.append(notice)
    return notices


def _noted_warnings(file: Path) -> list[dict[str, Any]]:
    """The warnings that were noted in a file, in order; a line that a killed process wrote only in part is left out."""
    warnings = []
    for line in file.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            warnings.append(json.loads(line))
    return warnings
