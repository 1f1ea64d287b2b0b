"""docs/walk.md is true: each journey names the files that its command executes, all of them and no other."""

import ast
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fca.cli.places import study_folders
from fca.store import results

HOME = Path(__file__).parents[1]
PAGE = HOME / "docs" / "walk.md"
SUPPORT = HOME / "tests" / "support"
JOURNEY = re.compile(r"^## (\d)\. .*?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    fca (.+)$", re.MULTILINE)
STOP = re.compile(r"^\d+\. (.*?)(?=^\d+\. |\n\n|\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(fca/[\w/]+\.py)`")
COMPOUND = (ast.For, ast.If, ast.Match, ast.Try, ast.While, ast.With)
START = "from fca.cli.main import main; main()"  # as the console script does

QUICK = ("recipe.epochs=1", "recipe.min_steps=0", "logger=none")
FEW_DRAWN = ("dataset.per_level=2", "dataset.train_per_class=10", "dataset.val_per_class=2")


@dataclass
class Journey:
    """A section of the page: its command, and the files of each stop."""

    command: str
    stops: list[list[str]]

    @property
    def files(self) -> set[str]:
        return {file for stop in self.stops for file in stop}

    @property
    def first_of_stops(self) -> list[str]:
        """Of each stop the first file that no stop before names; a stop without one comes back to files of before."""
        named, first = set(), []
        for stop in self.stops:
            first += [file for file in stop if file not in named][:1]
            named |= set(stop)
        return first


def journeys() -> dict[str, Journey]:
    sections = dict(JOURNEY.findall(PAGE.read_text(encoding="utf-8")))
    return {
        number: Journey(COMMAND.findall(text)[0], [FILE.findall(stop) for stop in STOP.findall(text)])
        for number, text in sections.items()
    }


JOURNEYS = journeys()
STUDIES = {package.rpartition(".")[2] for package in study_folders()}


def needs(*studies: str) -> pytest.MarkDecorator:
    """A journey through studies, where none of these was removed."""
    removed = set(studies) - STUDIES
    return pytest.mark.skipif(bool(removed), reason=f"without {', '.join(sorted(removed))}")


def long_functions(file: str) -> set[int]:
    """First lines of the functions whose body is more than one line: one simple statement beside the docstring."""
    lines = set()
    for node in ast.walk(ast.parse((HOME / file).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if len(body) > 1 or isinstance(body[0] if body else None, COMPOUND):
            lines.add(min(part.lineno for part in (node, *node.decorator_list)))
    return lines


@dataclass
class Walk:
    """A folder in which commands are typed, and what the last of them executed."""

    folder: Path
    recorded: Path = field(init=False)

    def __post_init__(self) -> None:
        self.recorded = self.folder / "recorded"
        for name in ("recorded", "queue"):
            (self.folder / name).mkdir()

    def fca(self, *words: str, recorded: bool = False) -> None:
        """Type a command, which must end with exit code 0."""
        path = [str(SUPPORT / "recorder")] if recorded else []
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*path, str(HOME)]),
            "PATH": os.pathsep.join([str(SUPPORT / "slurm_programs"), os.environ["PATH"]]),
            "QUEUE": str(self.folder / "queue"),
            "FCA_CACHE": str(self.folder / "cache"),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        }
        if recorded:
            environment |= {"RECORDED_PACKAGE": str(HOME / "fca"), "RECORDED_IN": str(self.recorded)}
        command = [sys.executable, "-c", START, *words]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"fca {shlex.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def journey(self, number: str, *small: str) -> None:
        """Type the command of the page, and words that make it small."""
        words = shlex.split(JOURNEYS[number].command)
        self.fca(*(word.replace("=ID", f"={self.training}") for word in words), *small, recorded=True)

    @property
    def rows(self):
        return results(self.folder / "outputs")

    @property
    def training(self) -> str:
        trained = self.rows.query("task == 'train'") if (self.folder / "outputs").exists() else []
        return trained["run_id"].iloc[0] if len(trained) else ""

    def executed(self) -> list[str]:
        """Files of which more than one-line functions were executed, in the order of the first of these."""
        calls = [line.split("\t") for file in self.recorded.glob("*.tsv") for line in file.read_text().splitlines()]
        calls = sorted((int(time), os.path.relpath(file, HOME), int(line)) for time, file, line, _ in calls)
        long = {file: long_functions(file) for file in {file for _, file, _ in calls}}
        return list(dict.fromkeys(file for _, file, line in calls if line in long[file]))

    def check(self, number: str) -> None:
        """What was executed is what the page names, stop after stop."""
        executed, page = self.executed(), JOURNEYS[number]
        missing = [file for file in executed if file not in page.files]
        too_many = sorted(page.files - set(executed))
        assert not missing, f"journey {number} does not name {', '.join(missing)}"
        assert not too_many, f"journey {number} names what is not executed: {', '.join(too_many)}"
        in_order = sorted(page.first_of_stops, key=executed.index)
        assert page.first_of_stops == in_order, f"journey {number}: its stops are executed in the order {in_order}"


@pytest.fixture
def walk(tmp_path):
    return Walk(tmp_path)


def write_photographs(folder: Path, per_class: int = 20) -> None:
    """Red, green and blue pictures with noise, larger than 96 pixels, as JPEG."""
    rng = np.random.default_rng(0)
    for channel, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = rng.integers(0, 120, (112, 128, 3), dtype=np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(folder / name / f"{i}.jpg")


def test_the_page_has_six_journeys_of_stops_and_names_files_that_are_there():
    assert list(JOURNEYS) == ["1", "2", "3", "4", "5", "6"]
    assert all(len(journey.stops) >= 8 and all(journey.stops) for journey in JOURNEYS.values())
    named = {file for journey in JOURNEYS.values() for file in journey.files}
    missing = [file for file in sorted(named) if not (HOME / file).is_file()]
    assert [file for file in missing if not file.startswith("fca/studies/") or file.split("/")[2] in STUDIES] == []


@pytest.mark.slow
def test_a_subset_becomes_a_row(walk):
    walk.journey("1")
    assert set(walk.rows["task"]) == {"train", "predict"}
    assert set(walk.rows["ncl"]) == {5}
    walk.check("1")


@pytest.mark.slow
def test_an_image_becomes_logits(walk):
    write_photographs(walk.folder / "photos")
    walk.fca("run", "dataset=folder", "dataset.root=photos", *QUICK)
    walk.journey("2")
    (run_id,) = walk.rows.query("shift == 'corruption/fog/3'")["run_id"]
    assert np.load(walk.folder / "outputs" / "runs" / run_id / "logits.npy").shape == (12, 3)
    walk.check("2")


@pytest.mark.slow
@needs("irt")
def test_a_response_becomes_an_ability(walk):
    words = ("-m", "dataset=digits", "limit=30", "model=test_resnet,test_vit", "recipe.snapshots=[0.2,0.5]")
    walk.fca("run", *words, "recipe.epochs=5", "logger=none")
    walk.journey("3")
    assert list(walk.folder.glob("outputs/tables/*"))
    walk.check("3")


@pytest.mark.slow
@needs("adaptive", "progressive")
def test_a_question_of_an_adaptive_test_is_chosen_and_answered(walk):
    walk.fca("run", "dataset=rendered", "dataset.size=32", *FEW_DRAWN, *QUICK)
    walk.journey("4", "dataset.size=48", *FEW_DRAWN)  # of another size, so that no image has been drawn before
    (row,) = walk.rows.query("task == 'adaptive_test'").to_dict("records")
    assert row["n_evaluated"] == 150
    walk.check("4")


@pytest.mark.slow
@needs("recommend")
def test_a_folder_is_answered_with_a_model(walk):
    write_photographs(walk.folder / "photos")
    walk.journey("5", "packages=[efficientnet_lite0]", "sizes=0", "threads=1", "device=cpu")
    assert (walk.folder / "outputs" / "reports" / "recommend" / "index.html").is_file()
    walk.check("5")


@pytest.mark.slow
def test_a_sweep_becomes_rows_by_slurm(walk):
    """Its programs are stood in for by those of tests/support/slurm_programs; submitit's jobs are processes here."""
    walk.journey("6", "recipe.epochs=1")
    assert len(list(walk.recorded.glob("*.tsv"))) == 3  # the sweep, and a process for each of two jobs
    assert sorted(walk.rows.query("task == 'train'")["ncl"]) == [2, 3]
    walk.check("6")
