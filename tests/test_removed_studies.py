"""A study is removed with its folder, the YAMLs that name its classes and its tests; all else works without it.

All else: but for what a study that builds on the removed one does with it, such as `fca bank` without irt.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fca.cli.places import study_folders

ROOT = Path(__file__).parents[1]
COPIED = (
    "fca",
    "conf",
    "hydra_plugins",
    "tests",
    "docs",
    "experiments",
    "README.md",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
)
CACHES = ("__pycache__", ".pytest_cache", "outputs")
STUDIES = [package.rpartition(".")[2] for package in study_folders()]
SMALL = ["dataset=digits", "model=test_resnet", "logger=none", "limit=8", "recipe.epochs=1", "recipe.min_steps=0"]


class Tree:
    """A copy of the project without some studies."""

    def __init__(self, folder: Path, removed: list[str]) -> None:
        self.folder = folder
        folder.mkdir()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns(*CACHES))
            else:
                shutil.copy2(source, folder / name)
        if (ROOT / ".mypy_cache").is_dir():
            shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")  # of the files that stay
        (folder / ".venv").symlink_to(ROOT / ".venv")
        for study in removed:
            self._remove(study)

    def _remove(self, study: str) -> None:
        shutil.rmtree(self.folder / "fca" / "studies" / study)
        shutil.rmtree(self.folder / "tests" / "studies" / study, ignore_errors=True)
        of_study = re.compile(rf"_target_: fca\.studies\.{study}\.")
        for file in (self.folder / "conf").rglob("*.yaml"):
            if of_study.search(file.read_text()):
                file.unlink()

    def run(self, *words: str) -> str:
        """What a command prints; it must end with exit code 0."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def fca(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "fca.cli.main", *words)


@pytest.mark.slow
@pytest.mark.parametrize("removed", [*STUDIES, "all"])
def test_all_else_works_without_a_study(removed, tmp_path):
    gone = STUDIES if removed == "all" else [removed]
    tree = Tree(tmp_path / "tree", gone)

    tree.fca("run", *SMALL)
    tree.fca("run", "-m", *SMALL, "subset.ncl=2,3")
    assert "test_resnet" in tree.fca("results", "--sort", "-top1")
    assert not set(gone) & set(re.findall(r"^  fca (\w+)", tree.fca("--help"), re.MULTILINE))
    if "few_class" not in gone:
        tree.fca("report", "report=few_class", "logger=none")
        assert (tree.folder / "outputs/reports/few_class/index.html").is_file()
    tree.run("make", "-o", ".venv/.installed", "check")
