"""Live adaptive tests: as replays of stored answers, of the asked images alone, going on where they were cut off."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file

from fca.cli import run as run_door
from fca.cli.application import register
from fca.cli.configure import job_of
from fca.cli.places import CONF
from fca.store import claims
from fca.studies.adaptive import task as adaptive_test_live
from fca.studies.adaptive.stats import replay
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.levels import levels_of, sessions_of
from tests.studies.adaptive.support.levels_lab import ATTRIBUTES, DATA, TEST, Lab, write_levels


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Images, and a small network trained on them; its answers to every test image are stored."""
    folder = tmp_path_factory.mktemp("study")
    write_levels(folder / "images")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", list(sys.argv))
        words = "model=test_resnet model.input_size=32 recipe.epochs=6 recipe.batch_size=20 recipe.lr=0.02"
        words += " recipe.min_steps=0"
        assert run_door.main([*DATA, *words.split()]) in (0, None)
    return folder


@pytest.fixture
def lab(fca, tmp_path, study):
    shutil.copytree(study, tmp_path, dirs_exist_ok=True)
    return Lab(fca, tmp_path)


def planned(*words):
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return job_of(compose("run", list(words)), [])


def arrays(lab, row):
    names = ("asked", "round", "pred", "p_true", "groups", "group_asked", "group_estimate")
    return {name: np.array(lab.store.array(row["run_id"], name)) for name in names}


@pytest.mark.parametrize(
    ("policy", "estimator", "words"),
    [
        ("optimal_allocation", "stratified", []),
        pytest.param("gre_two_stage", "mixed_logit", [], marks=pytest.mark.slow),
        pytest.param("optimal_allocation", "pooled", ["task.budget=0.5"], marks=pytest.mark.slow),
        pytest.param("random", "difference", [], marks=pytest.mark.slow),
        pytest.param("neyman_irt", "difference", [], marks=pytest.mark.slow),
        pytest.param("defensive_irt", "regression", [], marks=pytest.mark.slow),
        pytest.param("fisher_cat", "p_irt", [], marks=pytest.mark.slow),
        pytest.param(
            "static_k", "session_mean", ["shift=corruption/fog", "shift.severities=[2]"], marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.slow
def test_a_live_test_is_the_replay_of_stored_answers_with_the_same_seed(lab, policy, estimator, words):
    shift = "corruption/fog/2" if "shift=corruption/fog" in words else "clean"
    if shift != "clean":
        line = ["task=predict", "model=run", f"model.run_id={lab.trained}", *DATA, *words]
        assert lab.fca(*line)[0] == 0
    items, (pred, correct) = lab.items(), lab.answers(shift)
    table_id = lab.bank() if estimator in ("difference", "regression", "p_irt") else None
    row = lab(
        f"task.policy={policy}", f"task.estimator={estimator}", "seed=3", f"task.bank={table_id or 'null'}", *words
    )
    bank = table_id and pd.read_parquet(lab.store.outputs / "tables" / table_id / "table.parquet")
    if table_id:
        bank = bank.set_index("image_id").loc[items["image_id"]]
        bank = ItemBank("2pl", *(bank[name].to_numpy() for name in ItemBank._fields[1:]))
    pool = (levels_of(items), sessions_of(items), items["attribute"].to_numpy(dtype=str))
    found = replay(correct[None], *pool, policy, estimator, row["budget"], bank, repeats=1, seed=3)
    kept = arrays(lab, row)
    assert 0.2 < correct.mean() < 0.95
    np.testing.assert_array_equal(kept["pred"], pred[kept["asked"]])
    assert kept["groups"].tolist() == list(ATTRIBUTES)
    for at, name in enumerate(("estimate", "se", "low", "high")):
        assert kept["group_estimate"][..., at].ravel().tolist() == found[name].tolist()
    assert kept["group_asked"].tolist() == found[["asked_easy", "asked_medium", "asked_hard"]][::2].to_numpy().tolist()
    assert row["n_evaluated"] == len(set(kept["asked"])) == found["asked"][::2].sum()
    accuracy = found[found["target"] == "accuracy"]
    assert row["accuracy"] == pytest.approx(accuracy["estimate"].mean(), abs=1e-12)
    assert row["shift"] == shift


@pytest.mark.slow
def test_a_row_says_what_was_asked_and_what_it_means(lab):
    row = lab("task.budget=0.5", "task.policy=gre_two_stage", "task.estimator=mixed_logit", "task.mapping=L")
    assert (row["policy"], row["estimator"], row["protocol"]) == ("gre_two_stage mapping=L", "mixed_logit", "open")
    assert (row["n_evaluated"], row["n_pool"], row["share"], row["rounds"]) == (108, 216, 0.5, 2)
    assert row["asked_easy"] + row["asked_medium"] + row["asked_hard"] == 108
    for name in ("accuracy", "score"):
        assert 0 <= row[f"{name}_low"] < row[name] < row[f"{name}_high"] <= 1
        assert row[f"{name}_high"] - row[f"{name}_low"] == pytest.approx(2 * 1.96 * row[f"{name}_se"], rel=1e-3)
    assert row["images_per_s"] == pytest.approx(108 / row["predict_s"])
    assert arrays(lab, row)["round"].tolist() == [1] * 48 + [2] * 60
    assert pd.isna(row.get("warning"))
    adaptive = lab("task.policy=gre_two_stage", "task.estimator=pooled")
    assert "biased under an adaptive policy" in adaptive["warning"]
    for words in (["task.policy=random", "task.estimator=pooled"], []):
        assert pd.isna(lab(*words).get("warning"))


@pytest.mark.slow
def test_only_asked_images_are_read(lab):
    shutil.rmtree(lab.store.outputs / "cache")
    asked = set(lab.items()["image_id"].iloc[arrays(lab, lab("seed=7"))["asked"]])
    assert not list((lab.store.outputs / "cache").glob("*.npy"))
    for path in lab.items()["image_id"]:
        if path not in asked:
            file = lab.folder / "images" / path
            file.write_bytes(bytes(file.stat().st_size))
    shutil.rmtree(lab.store.folder(lab.store.rows("task == 'adaptive_test'")["run_id"].iloc[0]))
    assert lab("seed=7")["n_evaluated"] == 54


@pytest.mark.slow
def test_images_that_were_decoded_for_another_run_are_not_read_again(lab):
    for path in lab.items()["image_id"]:
        file = lab.folder / "images" / path
        file.write_bytes(bytes(file.stat().st_size))
    assert lab()["n_evaluated"] == 54


@pytest.mark.slow
def test_an_unreadable_image_is_named_and_what_was_asked_is_kept(lab, monkeypatch):
    monkeypatch.setattr(adaptive_test_live, "IMAGES_PER_LINE", 10)
    row = lab()
    before, folder = arrays(lab, row), lab.store.folder(row["run_id"])
    last = lab.items()["image_id"].iloc[before["asked"][-1]]
    file = lab.folder / "images" / last
    content = file.read_bytes()
    shutil.rmtree(folder)
    shutil.rmtree(lab.store.outputs / "cache")
    file.write_bytes(bytes(len(content)))
    code, out, err = lab.fca(*TEST, f"model.run_id={lab.trained}")
    assert code == 1
    assert last in out + err
    kept = (folder / "journal.jsonl").read_text()
    assert sum(len(json.loads(line)["pred"]) for line in kept.splitlines()) >= 44
    file.write_bytes(content)
    assert {name: value.tolist() for name, value in arrays(lab, lab()).items()} == {
        name: value.tolist() for name, value in before.items()
    }
    assert (folder / "journal.jsonl").read_text().startswith(kept)


@pytest.mark.wide
def test_a_test_that_was_killed_while_writing_asks_only_what_was_lost(lab, monkeypatch):
    monkeypatch.setattr(adaptive_test_live, "IMAGES_PER_LINE", 16)
    row = lab()
    before, folder = arrays(lab, row), lab.store.folder(row["run_id"])
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert [len(json.loads(line)["pred"]) for line in lines] == [16, 8, 16, 14]
    (folder / "row.json").unlink()
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    forwarded = []
    forward = adaptive_test_live.Evaluator.predict
    monkeypatch.setattr(
        adaptive_test_live.Evaluator, "predict", lambda self, at: forwarded.extend(at) or forward(self, at)
    )
    again = lab()
    assert sorted(forwarded) == sorted(before["asked"][24:])
    assert (folder / "journal.jsonl").read_bytes().startswith(b"".join(lines[:2]))
    np.testing.assert_array_equal(arrays(lab, again)["asked"], before["asked"])
    np.testing.assert_array_equal(arrays(lab, again)["group_estimate"], before["group_estimate"])


ANSWER = {"round": 1, "image_id": ["test-blue-size-easy-0.bmp"], "pred": [0], "p_true": [0.5], "seconds": 1.0}


@pytest.mark.parametrize(
    "line",
    [
        {**ANSWER, "pred": [3]},
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in (
                b"nonsense\n", b"\xff\x00\n", b"[1]\n", b"[" * 100_000 + b"\n", {},
                {**ANSWER, "image_id": ["other"]}, {**ANSWER, "image_id": [["a"]]}, {**ANSWER, "pred": [10**30]},
                {**ANSWER, "pred": [0, 1]},
                {**ANSWER, "p_true": ["x"]}, {**ANSWER, "seconds": None}, os.mkfifo, Path.mkdir,
            )
        ),
    ],
    ids=lambda line: getattr(line, "__name__", str(line)[:60]),
)  # fmt: skip
def test_a_journal_that_cannot_be_read_begins_its_test_anew(lab, line):
    row = lab()
    before, path = arrays(lab, row), lab.store.folder(row["run_id"]) / "journal.jsonl"
    path.with_name("row.json").unlink()
    if callable(line):
        path.unlink()
        line(path)
    else:
        added = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        path.write_bytes(added + path.read_bytes())
    code, _, err = lab.fca(*TEST, f"model.run_id={lab.trained}")
    assert (code, "Traceback" in err) == (0, False), err
    assert [line for line in err.splitlines() if "begins anew" in line] == err.splitlines()[-1:]
    np.testing.assert_array_equal(arrays(lab, row)["group_estimate"], before["group_estimate"])
    assert sum(len(json.loads(line)["pred"]) for line in path.read_text().splitlines()) == row["n_evaluated"]


@pytest.mark.slow
def test_a_killed_test_goes_on_from_its_journal_to_the_same_end(start, tmp_path):
    words = "task=adaptive_test model=test_resnet model.input_size=32 model.weights=weights.safetensors logger=none"
    words += " dataset=rendered dataset.classes=[car,lamp] dataset.attributes=[size,view] dataset.train_per_class=0"
    words += " model.classes=[car,lamp] dataset.val_per_class=0 task.width=1e-9"
    network = planned("model=test_resnet", "model.input_size=32").context.model.build(["car", "lamp"]).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    killed = start("run", *words.split(), cwd=tmp_path)
    while not (journals := list(tmp_path.glob("outputs/runs/*/journal.jsonl"))):
        assert killed.poll() is None, killed.communicate()[0]
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    kept = journals[0].read_text()
    assert not journals[0].with_name("row.json").exists()
    assert len(kept.splitlines()) < 4
    for outputs in ("outputs", "whole"):
        went_on = start("run", *words.split(), f"outputs={outputs}", cwd=tmp_path)
        assert went_on.wait() == 0, went_on.communicate()[0]
    assert journals[0].read_text().startswith(kept)
    [folder], [whole] = (list((tmp_path / name / "runs").iterdir()) for name in ("outputs", "whole"))
    for name in ("asked", "pred", "group_estimate"):
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), np.load(whole / f"{name}.npy"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["task.policy=static_k", "task.budget=0.1"]])
def test_a_width_is_reached_or_every_image_is_asked(lab, words):
    first = lab(*words)
    wide = first["accuracy_high"] - first["accuracy_low"]
    row = lab(*words, f"task.width={0.6 * wide}")
    assert row["accuracy_high"] - row["accuracy_low"] <= 0.6 * wide
    assert first["n_evaluated"] < row["n_evaluated"] < 216
    assert row["rounds"] > first["rounds"]
    assert pd.isna(row.get("warning"))
    row = lab(*words, "task.width=1e-9")
    assert row["n_evaluated"] == 216
    assert "every image was evaluated" in row["warning"]
    correct = pd.Series(lab.answers()[1])
    truth = correct.groupby([lab.items()["attribute"], lab.items()["level"]]).mean().mean()
    assert row["accuracy"] == pytest.approx(truth, abs=1e-12)


@pytest.mark.slow
def test_a_subset_is_asked_alone_openly_or_masked(lab):
    pred, _ = lab.answers()
    row = lab("subset.classes=[blue,red]", "task.budget=0.5")
    kept, items = arrays(lab, row), lab.items()
    inside = np.flatnonzero(items["label"].isin(["blue", "red"]))
    assert (row["ncl"], row["classes"], row["n_pool"]) == (2, (0, 2), 144)
    np.testing.assert_array_equal(kept["pred"], pred[inside[kept["asked"]]])
    masked = lab("subset.classes=[blue,red]", "task.budget=0.5", "task.protocol=masked")
    logits = np.array(lab.store.array(lab.store.rows("task == 'predict'")["run_id"].iloc[0], "logits"))
    kept = arrays(lab, masked)
    best = np.array([0, 2])[logits[inside[kept["asked"]]][:, [0, 2]].argmax(axis=1)]
    np.testing.assert_array_equal(kept["pred"], best)
    assert masked["run_id"] != row["run_id"]


@pytest.mark.slow
def test_what_decides_the_answers_decides_the_id(lab):
    two_stage = ["task.policy=gre_two_stage", "task.estimator=mixed_logit"]

    def run_id(*words, before=two_stage):
        [run] = planned(*TEST, f"model.run_id={lab.trained}", *before, *words).plan
        return run.run_id

    mapping = "[[4,1,0],[4,1,0],[3,2,0],[2,2,1],[1,2,2],[0,3,2],[0,2,3],[0,2,3],[0,1,4],[0,0,5]]"
    same = [
        [f"task.mapping={mapping}"],
        ["task.protocol=open"],
        ["subset.ncl=3", "subset.seed=5"],
        ["machine.workers=3"],
    ]
    assert len({run_id(), *(run_id(*words) for words in same)}) == 1
    others = [["seed=1"], ["task.budget=0.5"], ["task.mapping=L"], ["task.width=0.9"], ["task.estimator=pooled"]]
    others += [
        ["task.policy=static_k"],
        ["task.protocol=masked"],
        ["subset.classes=[0,1]"],
        ["shift=corruption/fog", "shift.severities=[1]"],
    ]
    by_default = {run_id(*words, before=[]) for words in ([], ["task.objective=score"])}
    assert len({run_id(), *by_default, *(run_id(*words) for words in others)}) == 3 + len(others)


@pytest.mark.slow
def test_a_bank_must_have_the_images_and_should_not_know_the_model(lab):
    asked = ["task.policy=neyman_irt", "task.estimator=difference"]
    names = lab.items()["image_id"].tolist()
    code, _, err = lab.fca(*TEST, f"model.run_id={lab.trained}", *asked, f"task.bank={lab.bank(names[:-2])}")
    assert code == 2
    assert f"lacks = {names[-2]}, {names[-1]} (2 of 216)" in err
    row = lab(*asked, f"task.bank={lab.bank(names, lab.store.rows()['run_id'])}")
    assert "fitted on this model's own answers" in row["warning"]
    bank, other = lab.bank(names, ["f" * 12]), lab.store.row(lab.store.rows("task == 'predict'")["run_id"].iloc[0])
    token = claims.acquire(lab.store.folder("f" * 12))
    lab.store.write({**other, "run_id": "f" * 12, "fingerprint": "of another drawing"}, {}, token)
    row = lab(*asked, f"task.bank={bank}")
    assert "fitted on another version of these data" in row["warning"]
