"""An append-only file of JSON lines, from which killed work resumes.

One process appends at a time (it holds a claim or a lock); any number may read meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fca.store.files import DamagedFile, open_to_append, opened, parsed, remove
from fca.types import FcaError

Line = dict[str, Any]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Journal:
    """The lines of one file, in the order in which they were added. Its folder must exist; the file need not.

    A line ends with a line break. A line without one was cut off when its writer was killed: it is never read, and the
    next `add` removes it.

    is_whole: a function that decides whether a line (a dictionary) has the keys that its readers need.
    """

    path: Path
    is_whole: Callable[[Line], object] = bool

    def lines(self) -> list[Line]:
        """All lines. Raises FcaError for a file that cannot be read, and for a whole line that is no JSON object."""
        return self.since(0)[0]

    def lines_or_anew(self, consequence: str) -> list[Line]:
        """All lines. If one of them cannot be read, the whole file is removed, and the list is empty: work begins anew.

        consequence: what the removal means for the work, in words for a warning in the log.
        """
        try:
            return self.lines()
        except FcaError as error:
            log.warning("%s: %s = %s; %s", consequence, *error.args[:3])  # name, value and what is allowed
            remove(self.path)
            return []

    def since(self, start: int) -> tuple[list[Line], int]:
        """The complete lines from byte `start` on, and the position behind them, from which the next call can read.

        Raises FcaError as `lines` does.
        """
        try:
            with opened(self.path) as file:
                file.seek(start)
                content = file.read()
        except FileNotFoundError:
            return [], start
        except DamagedFile as damaged:
            raise FcaError("journal", damaged, "a file of JSON lines", "restore the file") from damaged

        complete_lines = content[: content.rfind(b"\n") + 1]  # empty if there is no line break
        lines = [self._parsed(line) for line in complete_lines.splitlines() if line]
        return lines, start + len(complete_lines)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append one line; it is on the disk when this returns. Raises ValueError for NaN, which JSON does not have."""
        text = json.dumps(dict(line), allow_nan=False, ensure_ascii=False)
        with open_to_append(self.path) as file:
            _remove_torn_line(file)
            file.write(text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _parsed(self, text: bytes) -> Line:
        """The object in one line of JSON. Raises FcaError for a line that is no object or is not whole (`is_whole`)."""
        try:
            line = parsed(self.path, text)
            if not self.is_whole(line):
                raise DamagedFile(self.path, "lacks values")
        except DamagedFile as error:
            allowed = f"JSON as it was written; it {error.problem}"
            step = "restore the file, or remove the line"
            raise FcaError(f"a line of {self.path}", text[:60], allowed, step) from error
        return line


def _remove_torn_line(file: BinaryIO) -> None:
    """Remove what follows the last line break: the beginning of a line whose writer was killed."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return

    file.seek(size - 1)
    if file.read(1) != b"\n":  # only then the whole file has to be read
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
