"""Adaptive tests of images without levels: a sample by class, item banks as tables and files, stopping by ability."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file

from fca.cli import run as run_door
from fca.cli.application import register
from fca.cli.configure import job_of
from fca.cli.places import CONF
from fca.store import Store
from fca.studies.adaptive.stats import replay
from fca.studies.adaptive.stats.simple import exact_interval
from fca.studies.irt.stats import ItemBank, score_ability
from fca.types import Table

CLASSES = [str(number) for number in range(10)]
NETWORK = ["model=test_resnet", "model.input_size=32", "model.weights=net.safetensors", f"model.classes={CLASSES}"]
DIGITS = ["dataset=digits", "logger=none", *(word.replace(" ", "").replace("'", '"') for word in NETWORK)]
GOLDEN = {  # of drawing 6; the first three also changed with the estimators that they name
    "": "ae1d5cce24f8",
    "task.policy=optimal_allocation task.estimator=stratified": "ae1d5cce24f8",
    "task.policy=gre_two_stage task.estimator=mixed_logit task.mapping=L task.width=0.1": "d497af688e93",
    "task.policy=random task.estimator=pooled task.protocol=masked": "fbf9621b5008",
}


def planned(*words):
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return job_of(compose("run", list(words)), [])


class Lab:
    def __init__(self, fca, folder):
        self.fca, self.store = fca, Store(folder / "outputs")
        [self.full] = self.store.rows("task == 'predict'").to_dict("records")
        self.items = self.store.items(self.full["fingerprint"]).query("split == 'test'").reset_index(drop=True)
        pred = np.array(self.store.array(self.full["run_id"], "pred"))
        self.correct = pred == self.items["label"].cat.codes.to_numpy()

    def __call__(self, *words):
        code, out, err = self.fca("task=adaptive_test", *DIGITS, *words)
        assert code == 0, out + err
        run_id = out.strip().rpartition("/")[2]
        return self.store.row(run_id), out

    def bank(self, runs=(), **parameters):
        """A saved bank whose items know the network, with the tables beside it; and its parameters."""
        rng, n = np.random.default_rng(0), len(self.items)
        names = self.items["image_id"]
        frame = pd.DataFrame({"dataset": "digits", "corruption": "clean", "severity": 0, "item": names})
        frame = frame.assign(image_id=names, label=self.items["label"].astype(str), irt_model="2pl", discrimination=1.5)
        frame["difficulty"] = np.where(self.correct, -1.0, 1.5) + rng.normal(0, 0.7, n)
        frame = frame.assign(feasibility=1.0, guess=0.0, p_max=1.0, expected_success=0.5, top1=0.5, difficulty_se=0.1)
        parameters = {"calibration": "joint", "model": "2pl", "answers": ["a"], "seed": 0, **parameters}
        subjects = pd.DataFrame(
            {"dataset": "digits", "corruption": "clean", "subject": ["a", "b"], "model": ["a", "b"]}
        )
        subjects = subjects.assign(snapshot=None, top1=[0.5, 0.6])
        fits = pd.DataFrame({"dataset": ["digits"], "held_out_nll": [0.3], "tau_low": [np.nan]})
        for name, beside in (("irt_abilities", subjects), ("irt_fits", fits)):
            self.store.save(Table(name, "?", "-", beside, parameters, tuple(runs)))
        bank = ItemBank("2pl", *(frame[name].to_numpy() for name in ItemBank._fields[1:]))
        return self.store.save(Table("irt_items", "?", "-", frame, parameters, tuple(runs))).name, bank


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A network with random weights, and its predictions for all test images of digits."""
    folder = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.manual_seed(0)
        network = (
            planned("dataset=digits", "model=test_resnet", "model.input_size=32").context.model.build(CLASSES).module
        )
        save_file(network.state_dict(), folder / "net.safetensors")
        assert run_door.main(["task=predict", *DIGITS]) in (0, None)
    return folder


@pytest.fixture
def lab(fca, tmp_path, study):
    shutil.copytree(study, tmp_path, dirs_exist_ok=True)
    return Lab(fca, tmp_path)


@pytest.mark.wide
def test_images_without_levels_are_sampled_by_class_and_have_one_exact_accuracy(lab):
    row, out = lab("seed=3")
    asked = np.array(lab.store.array(row["run_id"], "asked"))
    assert (row["policy"], row["estimator"], row["n_evaluated"]) == ("proportional", "hypergeometric", 90)
    assert "proportional + hypergeometric evaluated 90 of 359 images" in out
    right = int(lab.correct[asked].sum())
    assert row["accuracy"] == pytest.approx(right / 90)
    assert (row["accuracy_low"], row["accuracy_high"]) == exact_interval(right, 90, 359)
    assert not {"score", "score_low", "asked_easy", "ability", "bank", "warning"} & set(row)
    by_class = np.bincount(lab.items["label"].cat.codes[asked])
    assert by_class.tolist() == pytest.approx((np.bincount(lab.items["label"].cat.codes) / 359 * 90).tolist(), abs=1)
    found = replay(lab.correct[None], None, lab.items["label"].astype(str).to_numpy(), None, "proportional",
                   "hypergeometric", 0.25, repeats=1, seed=3)  # fmt: skip
    assert found["estimate"].item() == row["accuracy"]


@pytest.mark.slow
def test_a_width_is_reached_with_more_images(lab):
    row, _ = lab("task.budget=0.1", "task.width=0.12")
    assert row["accuracy_high"] - row["accuracy_low"] <= 0.12
    assert row["n_evaluated"] > 36
    row, _ = lab("task.budget=0.4", "task.width=1e-9")
    assert (row["n_evaluated"], row["accuracy"]) == (359, pytest.approx(lab.correct.mean()))
    assert row["warning"].startswith("every image was evaluated before the interval")


@pytest.mark.slow
@pytest.mark.parametrize("policy", [None, "random", "proportional"])
def test_a_bank_is_taken_as_a_table_or_as_a_file_wherever_it_lies(lab, policy, tmp_path):
    from fca.studies.adaptive.commands import bank as door

    table_id, bank = lab.bank()
    for name in ("digits.json", "renamed.json"):
        assert door.main([table_id, name]) == 0
    words = [] if policy is None else [f"task.policy={policy}"]
    by_table, _ = lab(*words, f"task.bank={table_id}")
    by_file, _ = lab(*words, "task.bank=digits.json")
    elsewhere, _ = lab(*words, "task.bank=renamed.json")
    assert by_table["policy"] == (policy or "defensive_irt")
    assert by_file["run_id"] == elsewhere["run_id"] != by_table["run_id"]
    assert (by_table["bank"], len(by_file["bank"])) == (table_id, 12)
    labels = lab.items["label"].astype(str).to_numpy()
    found = replay(lab.correct[None], None, labels, None, by_table["policy"], "regression", 0.25, bank, 1, seed=0)
    for row in (by_table, by_file):
        assert row["accuracy"] == found["estimate"].item()
        asked = np.array(lab.store.array(row["run_id"], "asked"))
        part = ItemBank("2pl", *(values[asked] for values in bank[1:]))
        scored = score_ability(lab.correct[asked][None].astype(float), part)
        assert (row["ability"], row["ability_se"]) == (scored.ability.item(), scored.ability_se.item())


@pytest.mark.slow
def test_a_row_of_the_former_default_with_a_bank_does_not_answer_for_the_new_one(lab):
    table_id, _ = lab.bank()
    former, _ = lab(f"task.bank={table_id}", "task.policy=neyman_irt", "task.estimator=difference")
    default, _ = lab(f"task.bank={table_id}")
    by_name, _ = lab(f"task.bank={table_id}", "task.policy=defensive_irt", "task.estimator=regression")
    assert default["run_id"] == by_name["run_id"] != former["run_id"]
    random, _ = lab(f"task.bank={table_id}", "task.policy=random")
    assert random["estimator"] == "regression", "what the default is compared with"


@pytest.mark.slow
def test_a_row_warns_of_a_bank_whose_fit_leans_on_the_prior_for_its_own_items(lab):
    sentence = "the responses behind its items of digits clean do not determine the spread of ability"
    for fit, is_warned in (("digits clean", True), ("digits fog", False), ("zoo clean", False)):
        table_id, _ = lab.bank(not_estimable={fit: ["spread of ability"]})
        row, _ = lab(f"task.bank={table_id}", "task.budget=0.1")
        assert (sentence in str(row.get("warning"))) is is_warned


@pytest.mark.slow
def test_an_ability_is_measured_until_it_is_certain(lab):
    table_id, _ = lab.bank()
    words = [f"task.bank={table_id}", "task.policy=fisher_cat", "task.budget=0.03"]
    short, _ = lab(*words)
    longer, out = lab(*words, "task.ability_se=0.25", "task.batch=4", "task.randomesque=3")
    assert short["ability_se"] > 0.25 >= longer["ability_se"]
    assert longer["n_evaluated"] > short["n_evaluated"]
    assert longer["policy"] == "fisher_cat batch=4 randomesque=3"
    assert longer["ability_se_at_most"] == 0.25
    assert f"(se {longer['ability_se']:.2f})" in out
    rounds = np.bincount(np.array(lab.store.array(longer["run_id"], "round")))[1:]
    assert rounds.max() <= 4
    never, _ = lab(*words, "task.ability_se=1e-6")
    assert "every image was evaluated before the ability was as certain" in never["warning"]


@pytest.mark.slow
def test_a_bank_file_of_the_models_own_answers_or_of_other_data_is_said(lab):
    from fca.studies.adaptive.commands import bank as door

    table_id, _ = lab.bank(runs=[lab.full["run_id"]])
    assert door.main([table_id, "own.json"]) == 0
    row, _ = lab("task.bank=own.json")
    assert "fitted on this model's own answers" in row["warning"]
    content = json.loads(Path("own.json").read_text())
    assert content["fingerprints"] == {"digits": [lab.full["fingerprint"]]}
    content |= {"runs": [], "fingerprints": {"digits": ["of another drawing"]}}
    Path("other.json").write_text(json.dumps(content))
    row, _ = lab("task.bank=other.json")
    assert "fitted on another version of these data" in row["warning"]


@pytest.mark.parametrize("words", GOLDEN)
def test_tests_of_images_with_levels_have_the_ids_that_they_always_had(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file({}, "weights.safetensors")
    data = (
        "task=adaptive_test model=test_resnet model.input_size=32 model.weights=weights.safetensors dataset=rendered "
    )
    data += (
        "dataset.classes=[car,lamp] dataset.attributes=[size,view] dataset.train_per_class=0 dataset.val_per_class=0"
    )
    [run] = planned(*data.split(), "model.classes=[car,lamp]", "logger=none", *words.split()).plan
    assert run.run_id == GOLDEN[words]
