"""The commands of the tutorials run, on less than the pages take, and make the tables, figures and pages they show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
PAGES = sorted(page for page in (HOME / "docs" / "tutorials").glob("*.md") if page.stem != "index")
BLOCK = re.compile(r"^```(bash|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^(\w+: [A-Z].*)\n(.*)", re.MULTILINE)  # its question and the names of its columns
MADE = re.compile(r"outputs/[\w/.-]+\.\w+")

QUICK = {"recipe.epochs": "1", "recipe.warmup_epochs": "0", "recipe.min_steps": "0", "hydra/launcher": "basic"}
# of each page: what its runs take instead
LESS = {
    "few_class_arena": {"limit": "6", "subset.ncl": "2,10", "subset.seed": "0,1"},
    "irt_corruption": {"model": "test_resnet,test_vit", "shift.severities": "[1,3]", "limit": "8"},
    "progressive": {"dataset.per_level": "2", "dataset.train_per_class": "20"},
    "hard_imagenet": {"dataset.cue_strength": "0,1", "model": "test_resnet", "limit": "6"},
    "failure_search": {"limit": "10", "task.max_subdomains": "16", "task.images": "[4]"},
}
# stands for `fca` where the page types it: takes these values in place of the page's, and adds those of any run
FCA = """#!{python}
import os, sys
words, less = sys.argv[1:], {less}
if words[0] == "run":
    typed = dict(word.partition("=")[::2] for word in words)
    added = [key for key in less if key not in typed and key.split(".")[0] in ("limit", "recipe")]
    words = [f"{{key}}={{less[key]}}" if key in less else word for key, word in zip(typed, words)]
    words += [f"{{key}}={{less[key]}}" for key in added]
os.execv(sys.executable, [sys.executable, "-m", "fca.cli.main", *words])
"""


def test_each_of_the_five_papers_has_a_tutorial_that_is_run():
    assert {page.stem for page in PAGES} == set(LESS)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_and_prints_the_tables_and_leaves_the_files_that_it_shows(page, tmp_path):
    text = page.read_text()
    blocks = BLOCK.findall(text)
    commands = [content for kind, content in blocks if kind == "bash"]
    shown = "".join(content for kind, content in blocks if kind == "text")
    assert commands, "a tutorial without a bash block"
    fca = tmp_path / "bin" / "fca"
    fca.parent.mkdir()
    fca.write_text(FCA.format(python=sys.executable, less=json.dumps(QUICK | LESS[page.stem])))
    fca.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{fca.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(HOME),
        "OMP_NUM_THREADS": "1",
        "FCA_CACHE": str(tmp_path / "cache"),
    }
    script = "set -euo pipefail\n" + "\n".join(commands)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    printed = dict(TABLE.findall(done.stdout))
    for question, columns in TABLE.findall(shown):
        names = {name for name in columns.split() if not name.endswith(("_low", "_high", "..."))}
        # few data have no intervals, and a table may have no line
        assert printed[question] == "(no line)" or names <= set(printed[question].split())
    lacking = [name for name in MADE.findall(text) if not (tmp_path / name).is_file()]
    assert not lacking


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_shows_a_picture_that_a_report_makes(page):
    text = page.read_text()
    (picture,) = re.findall(r"!\[.+\]\((\w+\.png)\)", text)
    assert page.with_name(picture).stat().st_size < 150_000
    assert re.search(r"`outputs/reports/\w+/figures/\w+\.png`", text), "where the reader finds it"
