import re
import signal
import time

import pandas as pd
import psutil
import pytest

from fca.studies.generate.commands import generate as door
from fca.studies.generate.folder import Folder

PLAN = """
name: three
classes: {mug: mug, car: car}
attributes: {size: [], light: []}
per_level: 3
"""
SMALL = ["plan.file=three.yaml", "generator.size=16", "workers=1"]


@pytest.fixture
def call(fca, tmp_path):
    (tmp_path / "three.yaml").write_text(PLAN)
    return lambda *words: fca(*words, door=door)


def test_a_dry_run_says_what_it_would_do_and_draws_nothing(call, tmp_path):
    code, out, _ = call(*SMALL, "dry=true")
    assert code == 0
    assert "2 classes x 2 attributes x 3 levels x 3 = 36 images, 36 left" in out
    assert "36 x 0 = 0.00" in out
    assert not (tmp_path / "outputs").exists()


def test_a_pilot_is_kept_and_says_what_the_rest_takes(call, tmp_path):
    code, out, err = call(*SMALL, "dry=true", "pilot=6", "hour_price=2")
    assert (code, err) == (0, "")
    assert "6 drawn, timed and kept; the 30 that are left take" in out
    assert re.search(r"hours of a device: [\d.e-]+ \[[\d.e-]+, [\d.e-]+\]\n  GB on disk: .*\n  money: ", out), out
    assert len(Folder(tmp_path / "outputs" / "generated" / "three").journal.lines()) == 6
    assert "30 drawn, 0 left" in call(*SMALL)[1]
    code, _, err = call(*SMALL, "dry=true", "pilot=3", "per_level=6")
    assert (code, "pilot = 3; allowed: 4 to 35: 3 passes of 1" in err) == (2, True), err


def test_a_plan_becomes_a_data_set_that_a_model_can_be_tested_on(call, fca, tmp_path):
    code, out, err = call(*SMALL)
    assert (code, err) == (0, "")
    assert "36 drawn, 0 left; 0.00" in out
    assert "0 drawn, 0 left" in call(*SMALL)[1]
    root = tmp_path / "outputs" / "generated" / "three"
    code, out, err = fca("dataset=generated", f"dataset.root={root}", "task=describe", "logger=none")
    assert code == 0, err
    assert "n_images=36" in out


def test_a_model_is_tested_on_images_drawn_on_demand(call, fca, tmp_path):
    words = ["dataset.plan.file=three.yaml", "dataset.generator.size=16", "dataset.root=new", "dataset.per_level=1"]
    code, out, err = fca("dataset=on_demand", *words, "task=describe", "logger=none")
    assert code == 0, err
    assert "n_images=12" in out
    assert len(Folder(tmp_path / "new").journal.lines()) == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan.file=mouse.yaml"], r"class = mouse; allowed: .*airplane"),
        (["plan.file=smell.yaml"], r"attribute = smell; allowed: color"),
        (["budget.images=0"], r"budget.images = 0; allowed: a whole number, above 0"),
        (["workers=-1"], r"workers = -1"),
        (["generator=sketch"], r"generator = sketch; allowed: .*rendered"),
        (["generator.sise=3"], r"key = generator.sise; allowed: size"),
        (["generator.size=1"], r"size = 1; allowed: 8 to 2048"),
    ],
)
def test_what_cannot_be_generated_is_refused(call, tmp_path, words, said):
    (tmp_path / "smell.yaml").write_text("attributes: {smell: []}")
    (tmp_path / "mouse.yaml").write_text("classes: {mouse: mouse}")
    code, _, err = call("generator.size=16", "workers=1", *words)
    assert code == 2
    assert re.search(said, err), err


def test_a_budget_that_ends_is_no_failure(call):
    code, out, _ = call(*SMALL, "budget.images=5")
    assert code == 0
    assert "5 drawn, 31 left, budget.images=5 reached" in out


@pytest.mark.slow
def test_several_processes_draw_the_same_set(call, tmp_path):
    many = SMALL[:2]
    assert "36 drawn" in call(*many, "workers=2", "out=two")[1]
    assert "36 drawn" in call(*many, "workers=1", "out=one")[1]
    one, two = (Folder(tmp_path / name) for name in ("one", "two"))
    assert [line["key"] for line in one.journal.lines()] == [line["key"] for line in two.journal.lines()]
    for line in one.journal.lines():
        assert (one.root / line["file"]).read_bytes() == (two.root / line["file"]).read_bytes()


@pytest.mark.slow
def test_an_unknown_name_is_said_from_another_process_too(call, tmp_path):
    (tmp_path / "mouse.yaml").write_text("classes: {mouse: mouse}")
    code, _, err = call("plan.file=mouse.yaml", "workers=2", "generator.size=16")
    assert code == 2
    assert err.startswith("error: class = mouse; allowed: airplane"), err


@pytest.mark.slow
def test_a_killed_command_goes_on_and_leaves_nothing_half(start, tmp_path):
    (tmp_path / "three.yaml").write_text(PLAN)
    words = ["generate", "plan.file=three.yaml", "generator.size=32", "per_level=12", "out=set", "workers=2"]
    folder, process = Folder(tmp_path / "set"), start(*words, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while len(folder.journal.lines()) < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    helpers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert helpers
    assert not psutil.wait_procs(helpers, timeout=30)[1], "they end with their parent"
    before = folder.journal.lines()
    assert 10 <= len(before) < 144
    assert start(*words, cwd=tmp_path).wait(timeout=300) == 0
    after = folder.journal.lines()
    assert after[: len(before)] == before
    assert len(after) == len({line["key"] for line in after}) == 144
    listed = pd.read_csv(folder.root / "manifest.csv")
    assert listed["accepted"].all()
    assert len(listed) == 144
