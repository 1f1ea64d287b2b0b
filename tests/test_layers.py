"""Import contracts hold for studies that do not exist yet; and what is imported where is what the layers promise."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fca.cli.places import CONF
from tests.support.imported_modules import command, modules_after

ROOT = Path(__file__).parents[1]
STUDY = "fca/studies/toy"
OFFENCES = {  # a file, what stands in it, the contract that it breaks
    "a core module imports a study": ("fca/tasks/toy.py", "import fca.studies.toy", "the core knows no study"),
    "a study imports another": (f"{STUDY}/table.py", "import fca.studies.irt.fits", "studies do not know each other"),
    "an older study imports the new one": (
        "fca/studies/irt/toy.py",
        "import fca.studies.toy",
        "studies do not know each other",
    ),
    "statistics read the store": (f"{STUDY}/stats/toy.py", "import fca.store", "arrays in, arrays out"),
    "statistics read tables": (f"{STUDY}/stats/toy.py", "import fca.tables.rows", "arrays in, arrays out"),
    "statistics know their analysis": (
        f"{STUDY}/stats/toy.py",
        "import fca.studies.toy.table",
        "arrays in, arrays out",
    ),
    "statistics need torch": (f"{STUDY}/stats/toy.py", "import torch", "arrays in, arrays out"),
    "figures compute": (f"{STUDY}/figures.py", "import fca.studies.toy.stats.toy", "figures compute nothing"),
    "figures compute by a library": (f"{STUDY}/figures.py", "import scipy.stats", "figures compute nothing"),
    "an analysis composes": (f"{STUDY}/table.py", "import omegaconf", "only its commands compose configurations"),
    "modules in a circle": (f"{STUDY}/table.py", "import fca.studies.toy.figures", "no circles"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The modules, with one more study that keeps all contracts."""
    folder = tmp_path_factory.mktemp("layers")
    for name in ("fca", "hydra_plugins"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file in ("__init__.py", "stats/__init__.py", "stats/toy.py", "table.py"):
        path = folder / STUDY / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / STUDY / "figures.py").write_text("import fca.studies.toy.table\n")
    return folder


def linted(folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.wide
def test_a_new_study_keeps_all_contracts_without_an_edit(project):
    text = linted(project)
    assert "BROKEN" not in text, text
    assert text.count(" KEPT") >= 10


@pytest.mark.wide
@pytest.mark.parametrize("offence", OFFENCES)
def test_what_crosses_a_line_breaks_its_contract(offence, project):
    name, line, contract = OFFENCES[offence]
    file = project / name
    before = file.read_text() if file.exists() else None
    file.write_text(f"{line}\n")
    try:
        broken = [found for found in linted(project).splitlines() if found.endswith("BROKEN") or "BROKEN (" in found]
    finally:
        if before is None:
            file.unlink()
        else:
            file.write_text(before)
    assert any(contract in found for found in broken), broken


@pytest.mark.wide
def test_a_training_imports_no_study(tmp_path):
    words = ["model=test_resnet", "dataset=digits", "limit=8", "recipe.epochs=1", "recipe.min_steps=0", "logger=none"]
    assert modules_after(command("run", *words), tmp_path) == {"torch"}


@pytest.mark.wide
def test_planning_and_help_import_no_study(tmp_path):
    words = ["-m", "model=test_resnet", "dataset=digits", "subset.ncl=2,3", "sweep.print=true"]
    assert not {name for name in modules_after(command("run", *words), tmp_path) if name.startswith("fca.studies")}
    assert modules_after(command("--help"), tmp_path) == set()


@pytest.mark.wide
def test_no_analysis_needs_torch(tmp_path):
    targets = [yaml.safe_load(file.read_text())["_target_"] for file in sorted((CONF / "analysis").glob("*.yaml"))]
    modules = {target.rpartition(".")[0] for target in targets}
    assert len(modules) > 25
    assert "torch" not in modules_after(f"import {', '.join(sorted(modules))}", tmp_path)
