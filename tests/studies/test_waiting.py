"""Long work shows on a terminal that it goes on, and nowhere else."""

from io import StringIO

import pytest
from rich.console import Console

from fca.studies import waiting


@pytest.mark.parametrize(
    ("terminal", "long", "shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_long_work_is_named_on_a_terminal_only(monkeypatch, terminal, long, shown):
    console = Console(force_terminal=terminal, file=StringIO())
    monkeypatch.setattr("rich._console", console)
    with waiting.waiting("fitting 65 subjects x 50,000 items", long):
        pass
    assert ("fitting 65 subjects x 50,000 items" in console.file.getvalue()) == shown
