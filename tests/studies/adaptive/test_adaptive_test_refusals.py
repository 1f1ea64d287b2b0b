"""Adaptive tests that cannot be taken are refused when they are planned: no image read, nothing written."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.store.index import INDEX
from fca.studies.adaptive.stats import ESTIMATORS, POLICIES, estimate, make_pool, run_policy
from fca.studies.adaptive.task import KNOWN_CHANCE_POLICIES, LEAKED, NEED_BANK, OTHER_DATA, OTHER_SIZE, faults_of_bank
from fca.studies.irt.bank import read_bank
from fca.studies.irt.irt import IRT_ITEMS
from fca.studies.irt.stats import ItemBank
from fca.types import FcaError, Run, Table
from tests.studies.adaptive.support.levels_lab import DATA, write_levels
from tests.studies.progressive.support.steps_lab import respond, steps_lab


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused") / "images"
    write_levels(folder)
    return folder


GRE = "task.policy=gre_two_stage"


@pytest.mark.wide
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["dataset=digits", "logger=none", "task.policy=static_k"],
            "task.policy = static_k; allowed: proportional, random, defensive_irt, neyman_irt, fisher_cat: these",
        ),
        (
            ["dataset=digits", "logger=none", "task.policy=random", "task.estimator=stratified"],
            "task.estimator = stratified; allowed: hypergeometric, p_irt, difference, regression: these items",
        ),
        (["task.policy=random", "task.estimator=hypergeometric"], "hypergeometric of items with levels"),
        (["task.ability_se=0.3"], "task.ability_se = 0.3; allowed: null without task.bank"),
        (["task.batch=16"], "task.batch = 16; allowed: none for optimal_allocation"),
        (["task.randomesque=0"], "task.randomesque = 0; allowed: a whole number, at least 1"),
        (["task.policy=gre"], "task.policy = gre; allowed: static_k, random, gre_two_stage"),
        (["task.estimator=mean"], "task.estimator = mean; allowed: stratified, session_mean"),
        (["task.protocol=shut"], "task.protocol = shut; allowed: open, masked"),
        (["task.width=2"], "task.width = 2.0; allowed: a finite number, above 0, below 1, or null"),
        (["task.budget=0"], "task.budget = 0.0; allowed: a finite number, above 0, at most 1"),
        (
            [GRE, "task.budget=0.75"],
            "easy items evaluated of session blue/size = 15; allowed: at most 12",
        ),
        (["task.mapping=F"], "task.mapping = F; allowed: Q, L, or ten triples"),
        (["task.mapping=[[5,0,0]]"], "lines of the mapping = 1; allowed: 10"),
        ([f"task.mapping=[{','.join(['[2,2,2]'] * 10)}]"], "mapping after 0 points = (2, 2, 2)"),
        (["task.mapping=L", "task.policy=random"], "task.mapping = L; allowed: none for random"),
        (
            [GRE, "task.objective=score"],
            "task.objective = score; allowed: none for gre_two_stage",
        ),
        (["task.mapping=L"], "task.mapping = L; allowed: none for optimal_allocation"),
        (["task.policy=neyman_irt"], "task.bank = None; allowed: an item bank: neyman_irt needs one"),
        (["task.estimator=p_irt"], "task.bank = None; allowed: an item bank: p_irt needs one"),
        (
            ["task.policy=optimal_allocation", "task.bank=x"],
            "task.bank = x; allowed: null for optimal_allocation with stratified",
        ),
        (
            ["task.policy=optimal_allocation", "task.estimator=difference", "task.bank=x"],
            "task.policy = optimal_allocation; allowed: defensive_irt, neyman_irt, random, static_k, proportional",
        ),
        (["task.bank=x"], "bank = x; allowed: a saved table irt_items: none yet; or a file of fca bank"),
        (["task.estimator=p_irt", "task.bank=x"], "bank = x; allowed: a saved table irt_items: none yet"),
        (["dataset.where=\"level != 'hard'\""], "hard items of session blue/size = 0"),
        (["dataset.where=\"level != 'hard' or label != 'red'\""], "hard items of session red/size = 0"),
        (["dataset.columns={level: attribute}"], "level"),
        (["dataset.columns={level: path}"], "level"),
    ],
)
def test_what_cannot_be_tested_is_refused_before_any_work(fca, tmp_path, images, words, told):
    data = [f"dataset.root={images}" if word.startswith("dataset.root") else word for word in DATA]
    code, _, err = fca("task=adaptive_test", "model=test_resnet", *([] if "dataset=digits" in words else data), *words)
    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.json"))


BANK_DAMAGE = {
    "table.parquet": (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9]), os.mkfifo, Path.mkdir),
    "table.json": (
        Path.unlink,
        os.mkfifo,
        lambda path: path.write_text("nonsense"),
        lambda path: path.write_text('{"name": "irt_items", "parameters": {}, "runs": ' + "[" * 100_000),
        lambda path: path.write_text('{"name": 3}'),
    ),
}


@pytest.mark.parametrize(
    ("name", "damage"), [(name, damage) for name, every in BANK_DAMAGE.items() for damage in every]
)
def test_a_damaged_bank_is_refused_by_name(tmp_path, name, damage):
    store = Store(tmp_path)
    frame = pd.DataFrame({str(column): ["a"] for column in IRT_ITEMS.columns})
    folder = store.save(Table("irt_items", "", "", frame, {"calibration": "joint"}, ()))
    other = store.save(Table("irt_items", "", "", frame.assign(item="b"), {"calibration": "ability"}, ()))
    assert read_bank(store, folder.name)["item"].tolist() == ["a"]
    if damage in (os.mkfifo, Path.mkdir):
        (folder / name).unlink()
    damage(folder / name)
    with pytest.raises(FcaError, match=f"bank = {folder.name}; .*table"):
        read_bank(store, folder.name)
    assert read_bank(store, other.name)["item"].tolist() == ["b"], "the others can be taken"


def test_a_bank_that_is_another_table_is_refused_before_any_work(fca, tmp_path, images):
    store = Store(tmp_path / "outputs")
    frame = pd.DataFrame({str(column): ["a"] for column in IRT_ITEMS.columns})
    folders = [store.save(Table("irt_items", "", "", frame, {"calibration": "joint", "n": n}, ())) for n in range(2)]
    shutil.copy(folders[0] / "table.parquet", folders[1] / "table.parquet")
    data = [f"dataset.root={images}" if word.startswith("dataset.root") else word for word in DATA]
    bank = ["task.policy=neyman_irt", "task.estimator=difference", f"task.bank={folders[1].name}"]
    code, _, err = fca("task=adaptive_test", "model=test_resnet", *data, *bank)
    problem = err.splitlines()[-1]  # behind what the first use of the images says of them
    assert code == 2
    assert "Traceback" not in err
    assert problem.strip().startswith(f"error: task.bank = {folders[1].name}; allowed: a whole table: ")
    assert "is another table, or was altered" in problem


def test_every_estimator_that_needs_a_bank_is_known_to():
    assert set(NEED_BANK) & set(ESTIMATORS) == {"difference", "regression", "p_irt"}


def test_difference_takes_the_policies_of_known_chances():
    pool = make_pool(np.repeat([0, 1, 2], 12), np.zeros(36, int), np.zeros(36, int))
    bank = ItemBank("2pl", *(np.full(36, value) for value in (0.0, 1.0, 1.0, 0.0)))
    taken = []
    for name, start in POLICIES.items():
        rng = np.random.default_rng(0)
        tested = run_policy(start(pool, 0.5, bank), rng.random(36) < 0.5, rng)
        try:
            estimate("difference", pool, tested.record, bank)
        except FcaError:
            continue
        taken.append(name)
    assert sorted(taken) == sorted(KNOWN_CHANCE_POLICIES)


def test_a_bank_is_checked_without_writing_the_index_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("fca.store.index.WORTHWHILE", -1)  # whoever reads all rows writes it
    lab = steps_lab(tmp_path / "outputs")
    tested = Run("predict", {}, {"dataset": "steps", "fingerprint": "levels"})
    respond(lab, "net", lab.true == 0, run_id=tested.run_id)
    runs = (tested.run_id, respond(lab, "net", lab.true == 0, fingerprint="older"), "a run that is removed")
    table_id = lab.store.save(Table("irt_items", "", "", pd.DataFrame({"item": ["a"]}), {}, runs)).name
    assert faults_of_bank(lab.store, table_id, [tested]) == [LEAKED, OTHER_DATA]
    assert not (lab.store.outputs / INDEX).exists()
    assert len(lab.store.rows()) == 2
    assert (lab.store.outputs / INDEX).exists()


def test_a_bank_of_images_corrupted_at_another_size_is_named(tmp_path):
    lab, fog = steps_lab(tmp_path / "outputs"), {"shift": "corruption/fog/3"}
    old = respond(lab, "net", lab.true == 0, **fog)  # a row of before there was a reference size
    new = respond(lab, "other", lab.true == 0, **fog, corrupted_at="reference")
    about = {"dataset": "steps", "fingerprint": lab.store.row(old)["fingerprint"], **fog}
    for run_id, tested_at, faults in (
        (old, "reference", [OTHER_SIZE]),
        (old, "stored", []),
        (new, "stored", [OTHER_SIZE]),
        (new, "reference", []),
    ):
        table_id = lab.store.save(Table("irt_items", "", "", pd.DataFrame({"item": ["a"]}), {}, (run_id,))).name
        assert faults_of_bank(lab.store, table_id, [Run("predict", {}, {**about, "corrupted_at": tested_at})]) == faults
