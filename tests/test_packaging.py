"""The wheel is small and whole, runs from any folder, and pyproject.toml promises what was tested."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    return {re.split(r"[=<>]", line)[0].lower().replace("_", "-"): line.partition("==")[2] for line in lines}


def test_the_oldest_versions_tested_are_the_oldest_allowed_and_the_usual_ones_are_allowed():
    oldest, usual = pins("constraints-oldest.txt"), pins("constraints.txt")
    needs = [Requirement(text) for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["export"])]
    assert set(oldest) == {need.name for need in needs}
    for need in needs:
        assert any(spec.operator == ">=" for spec in need.specifier), f"{need.name} has no lower bound"
        least = next(spec.version for spec in need.specifier if spec.operator == ">=")
        assert oldest[need.name] in (least, f"{least}.0")
        assert usual[need.name] in need.specifier


def test_all_names_every_extra_of_users():
    extras = PROJECT["optional-dependencies"]
    named = {extra for text in extras["all"] for extra in Requirement(text).extras}
    assert named == set(extras) - {"all", "dev", "docs"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", str(folder), str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_is_small_and_has_all_that_lies_beside_the_code(wheel):
    assert wheel.stat().st_size < 2e6
    names = set(zipfile.ZipFile(wheel).namelist())
    beside = {path for path in (ROOT / "fca").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.relative_to(ROOT).as_posix() for path in beside} <= names
    yamls = {path for path in (ROOT / "conf").rglob("*.yaml") if path.parent.name != "local"}
    assert {f"fca/{path.relative_to(ROOT).as_posix()}" for path in yamls} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fca", "hydra_plugins"}
    assert not [name for name in names if "/local/" in name or ".pyc" in name]


@pytest.mark.slow
def test_an_installed_fca_runs_from_any_folder(wheel, tmp_path):
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    site = next(place.glob("lib/*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True)
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"))  # those of this environment, but not its fca
    words = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    work = tmp_path / "work"
    work.mkdir()

    def fca(*arguments):
        done = subprocess.run(
            [place / "bin/fca", *arguments], cwd=work, env=words, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(site / "fca") in fca("--version")
    assert "recipe.epochs=10" in fca("run", "--help")
    assert "train digits" in fca("run", "debug=smoke", "logger=none")
    assert "1 groups of runs" in fca("results", "--by", "model", "task=train", "--outputs", "outputs/smoke")
    assert "fca run has all that it needs" in fca("doctor")
