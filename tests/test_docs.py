"""The site builds, and what its pages show is true: recipes run, messages are the program's."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from fca.cli.hints import values_of
from fca.cli.options import option_files
from fca.cli.places import CONF, study_folders
from fca.plugins import class_of

HOME = Path(__file__).parents[1]
DOCS = HOME / "docs"
RECIPES = sorted(page for page in (DOCS / "recipes").glob("*.md") if page.stem != "index")
FILE = re.compile(r'^```\w+ title="([\w./]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_works_as_it_stands_there(page, tmp_path):
    text = page.read_text()
    for name, content in FILE.findall(text):
        tmp_path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(name).write_text(content)
    commands = "\n".join(["set -euo pipefail", *COMMANDS.findall(text)]).replace("PYTHONPATH=.", f"PYTHONPATH=.:{HOME}")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(HOME),
        "OMP_NUM_THREADS": "1",
        "WANDB_MODE": "offline",
    }
    done = subprocess.run(
        ["bash", "-c", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


FAQ = re.findall(r"^```console\n(.*?)^```", (DOCS / "faq.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path):
    """What the commands of the FAQ find."""
    classes = ("photos/cat", "photos/dog", "broken/cat", "broken/dog", "one/cat", "loose")
    for name in (*classes, "parts/first/cat", "parts/first/dog", "parts/second/cat", "parts/second/dog"):
        (tmp_path / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (32, 32), (40 * i, len(name), 9)).save(tmp_path / name / f"{i}.png")
    (tmp_path / "broken" / "cat" / "0.png").write_bytes(b"no image")
    (tmp_path / "photos" / "table.csv").write_text("file,class\ncat/0.png,cat\n")
    (tmp_path / "page.safetensors").write_text("<html>Please log in.</html>")


@pytest.mark.slow
@pytest.mark.parametrize("block", FAQ, ids=lambda block: block.partition("\n")[0])
def test_an_error_of_the_faq_is_what_the_program_prints(block, fca, folder):
    if "accelerator=gpu" in block and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for part in block.split("$ fca ")[1:]:
        command, _, expected = part.partition("\n")
        name, *words = shlex.split(command)
        _, out, err = fca(*words, door=importlib.import_module(f"fca.cli.{name}"))
        lines = [line for line in (out + err).splitlines() if line]
        pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*")
        assert re.search(pattern, "\n".join(lines), re.DOTALL), "\n".join(lines)


STUDIES = {package.rpartition(".")[2]: folder for package, folder in study_folders().items()}
SECTIONS = ["Question", "Sources", "Commands", "Reads and writes", "May import", "Files, in reading order"]
IN_STUDY = re.compile(r"`((?!conf/|fca/)[\w/]+(?:\.\w+)+)`")
ANOTHER_STUDY = re.compile(r"\bfca\.studies\.(\w+)")


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_of_a_study_lists_its_files_tables_and_imports(study):
    folder = STUDIES[study]
    text = (folder / "README.md").read_text()
    _, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(sections) == SECTIONS
    assert len(text.splitlines()) < 150

    listed = IN_STUDY.findall(sections["Files, in reading order"])
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert sorted(listed) == sorted({file.relative_to(folder).as_posix() for file in files} - {"README.md"})

    written = re.search(r"tables:(.*?)\.", sections["Reads and writes"], re.DOTALL)
    targets = [values_of(file)["_target_"] for file in option_files("analysis").values()]
    of_study = [target for target in targets if target.startswith(f"fca.studies.{study}.")]
    tables = {table.name for target in of_study for table in class_of("analysis", target).tables}
    assert set(re.findall(r"`(\w+)`", written[1] if written else "")) == tables

    imported = {name for file in folder.rglob("*.py") for name in ANOTHER_STUDY.findall(file.read_text())} - {study}
    assert set(re.findall(r"\(\.\./(\w+)/README.md\)", sections["May import"])) == imported


def test_every_data_set_has_its_line_in_the_table_of_licences():
    table = (DOCS / "datasets.md").read_text()
    assert [path.stem for path in CONF.glob("dataset/*.yaml") if f"| `{path.stem}` |" not in table] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_server_for_files(tmp_path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(DOCS / "site" / "mkdocs.yml"),
        "-d",
        str(tmp_path),
    ]
    environment = os.environ | {"PYTHONPATH": str(HOME), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {page.relative_to(tmp_path).as_posix(): page.read_text() for page in tmp_path.rglob("*.html")}
    fetched = [name for name, page in pages.items() if re.search(r'<(script|link|img)[^>]+(src|href)="https?://', page)]
    assert fetched == []
    assert "recipe.lr" in pages["settings/recipe.html"]
    assert "recipe.lr_min" in pages["settings/recipe.html"]
    assert all(path.stem in pages["settings/experiment.html"] for path in CONF.glob("experiment/*.yaml"))
