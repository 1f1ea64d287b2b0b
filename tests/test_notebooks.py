"""The notebooks of docs/notebooks open in Jupyter, run in a kernel and print what their pages show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
PAGES = sorted((HOME / "docs" / "notebooks").glob("*.md"))
TO_THE_SCREEN = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")  # colours, and what hides a bar that has passed
SHOWN = re.compile(r"^```python\n(?:.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def as_lines(text):
    """Without decimal numbers and widths of columns: trained networks differ a little between processors."""
    lines = TO_THE_SCREEN.sub("", text).splitlines()
    return {" ".join(re.sub(r"-?\d+\.\d+", "#", line).split()) for line in lines}


def printed_by(outputs):
    """What a cell prints, which a kernel may send in several parts, the end of a line in the next one."""
    return "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_runs_and_prints_what_its_page_shows(page, tmp_path):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(HOME),
        "OMP_NUM_THREADS": "1",
        "JUPYTER_PATH": f"{sys.prefix}/share/jupyter",
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    made = tmp_path / f"{page.stem}.ipynb"
    commands = (["jupytext", "--to", "ipynb", "--output", made, page], ["jupyter", "execute", "--inplace", made.name])
    for command in commands:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    cells = [cell.get("outputs", []) for cell in json.loads(made.read_text())["cells"]]
    printed = "\n".join(map(printed_by, cells))
    shown = "".join(SHOWN.findall(page.read_text()))
    assert shown
    assert as_lines(shown) <= as_lines(printed)
    html = "".join(str(output.get("data", {}).get("text/html", "")) for outputs in cells for output in outputs)
    assert "<table" in html
    assert "data:image/svg+xml" in html
