"""Work that takes long writes lines where no terminal shows a bar: not too many, with an honest time to go."""

import logging
from io import StringIO

import pytest
from rich.console import Console

from fca import progress
from fca.cli import execute
from fca.progress import ProgressLines, track


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(execute.time, "monotonic", lambda: now[0])
    return now


def test_the_first_line_comes_after_ten_seconds_and_others_at_least_thirty_seconds_apart(clock, capsys):
    lines = ProgressLines("runs", 10_000, done_before=1000)
    for second in range(1, 3601):
        clock[0] = float(second)
        lines.show(1000 + second, "2 failed" if second > 3590 else "")
    written = capsys.readouterr().err.splitlines()
    assert written[0] == "runs: 1,010 of 10,000 (10%), 10 s, about 8,990 s to go"
    assert written[1].startswith("runs: 1,040 of 10,000")
    assert 25 <= len(written) <= 50, "of an hour"


def test_short_work_writes_nothing_and_the_last_line_is_a_result(clock, capsys):
    assert list(track(range(5), "images")) == list(range(5))
    lines = ProgressLines("runs", 5)
    lines.show(5, last=True)
    assert capsys.readouterr() == ("runs: 5 of 5 (100%), 0 s\n", "")


def test_a_stream_without_length_counts(clock, capsys):
    for item in track(iter("abc"), "pages"):
        clock[0] += 31.0
        assert item in "abc"
    assert capsys.readouterr().err.splitlines() == ["pages: 1, 31 s", "pages: 2, 62 s", "pages: 3, 93 s"]


def test_epochs_of_a_training_alone_are_shown_seconds_apart(clock, tmp_path, capsys):
    log = logging.getLogger("fca.training.loop")
    with execute.logged(tmp_path / "log.txt", epochs=True):
        for epoch in (1, 2, 3):
            clock[0] += 6.0
            log.info("epoch %d: val_top1 0.5", epoch)
            log.info("something else")
    with execute.logged(tmp_path / "log.txt"):
        clock[0] += 60.0
        log.info("epoch 4: val_top1 0.5")
        log.warning("careful")
    assert capsys.readouterr().err.splitlines() == ["epoch 2: val_top1 0.5", "careful"]
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 8


@pytest.mark.parametrize(
    ("terminal", "long", "shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_long_work_is_named_on_a_terminal_only(monkeypatch, terminal, long, shown):
    console = Console(force_terminal=terminal, file=StringIO())
    monkeypatch.setattr("rich._console", console)
    with progress.waiting("fitting 65 subjects x 50,000 items", long=long):
        pass
    assert ("fitting 65 subjects x 50,000 items" in console.file.getvalue()) == shown
