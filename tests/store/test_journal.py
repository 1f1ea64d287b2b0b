"""The journal: whole lines come back, whatever moment its writer was killed at."""

import os
import signal
import subprocess
import sys

import pytest

from fca.store.journal import Journal
from fca.types import FcaError

LINES = [{"round": 1, "image_id": ["a", "ü"], "p": [0.25, 1e-300]}, {"text": "two\nlines \u2028 of text"}, {"n": None}]


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.jsonl")


def test_a_journal_without_a_file_has_no_lines_and_makes_none(journal):
    assert journal.lines() == []
    assert journal.since(0) == ([], 0)
    assert not journal.path.exists()


def test_lines_come_back_in_order(journal):
    for line in LINES:
        journal.add(line)
    assert journal.lines() == LINES
    assert Journal(journal.path).lines() == LINES
    assert len(journal.path.read_bytes().splitlines()) == len(LINES)


def test_a_reader_follows_a_growing_journal_and_reads_every_line_once(journal):
    seen, end = [], 0
    for line in LINES:
        journal.add(line)
        with journal.path.open("ab") as file:
            file.write(b'{"half": ')  # the next line, as another process is writing it
        new, end = journal.since(end)
        seen += new
        assert journal.since(end) == ([], end)
    assert seen == LINES


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_last_line_torn_at_any_byte_is_dropped_and_writing_goes_on(journal, lines):
    for line in LINES[:lines]:
        journal.add(line)
    content = journal.path.read_bytes()
    before = b"".join(content.splitlines(keepends=True)[:-1])
    for end in range(len(before), len(content)):
        journal.path.write_bytes(content[:end])
        assert journal.lines() == LINES[: lines - 1], end
        assert journal.path.read_bytes() == content[:end], "reading changes nothing"
        journal.add({"after": end})
        assert journal.lines() == [*LINES[: lines - 1], {"after": end}]
        assert journal.path.read_bytes().startswith(before)


def test_what_is_not_json_in_the_middle_is_an_error_with_its_file_and_text(journal):
    journal.path.write_bytes(b'{"a": 1}\nnonsense\n{"b": 2}\n')
    with pytest.raises(FcaError, match=r"journal\.jsonl = b'nonsense'; allowed: JSON"):
        journal.lines()


def test_a_value_that_is_not_a_number_is_refused_and_writes_nothing(journal):
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.add({"p": float("nan")})
    assert not journal.path.exists()


def test_every_line_that_add_returned_from_survives_a_kill(journal):
    code = f"""
import sys
from pathlib import Path
from fca.store.journal import Journal
journal = Journal(Path({str(journal.path)!r}))
for number in range(1_000_000):
    journal.add({{"number": number, "text": "x" * 5000}})
    print(number, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for _ in range(20):
        last = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    numbers = [line["number"] for line in journal.lines()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > last
