"""Runs planned and done from Python are those of the command line: configurations, checks, messages, rows."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

import fca
from fca.cli.application import composed
from fca.cli.jobs import Jobs, job_of_keys, plain, word
from fca.cli.places import CONF
from fca.cli.run import main
from fca.types import FcaError

SHORT = {"recipe.epochs": 1, "recipe.min_steps": 0}
SMALL = {"dataset": "digits", "model": "test_resnet", "subset.classes": ["0", "1"], "limit": 20, **SHORT}


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "hog", "adaptation": "probe", "seed": 3},
        {"model": "test_vit", "model.input_size": 48, "recipe.lr": 0.5, "recipe": "alexnet"},
        {"dataset": "folder", "dataset.root": "Ann's photos, 2024/[a]", "dataset.splits": {"val": "test"}},
        {"adaptation": None, "shift": "corruption/fog/3", "limit": 12},
        {"subset.classes": ["1", "true", "12e4"], "machine.cache_gb": 1e-3, "trainer.profiler": "simple"},
        {"model": "timm", "model.name": "resnet18", "+model.kwargs.drop_rate": 0.1, "task": "predict"},
    ],
)
def test_a_configuration_is_the_one_that_hydra_composes(keys):
    typed = [word(key, value) for key, value in keys.items()]
    by_hydra = OmegaConf.to_container(composed("run", typed), resolve=True)
    assert OmegaConf.to_container(Jobs().configuration(keys), resolve=True) == by_hydra


@pytest.mark.wide
@pytest.mark.parametrize("group", ["model", "dataset", "task", "adaptation", "shift", "machine"])
def test_an_option_is_read_as_hydra_reads_it(group):
    jobs = Jobs(["model.input_size=64"] if group != "model" else [])
    for file in sorted((CONF / group).glob("*.yaml"))[::7]:
        chosen = OmegaConf.to_container(jobs.configuration({group: file.stem}))
        assert chosen == OmegaConf.to_container(composed("run", [*jobs.words, f"{group}={file.stem}"]))


def test_a_choice_that_changes_other_groups_is_left_to_hydra():
    for words in (["experiment=quickstart"], ["debug=smoke"], ["model.input_size=48"]):
        first = OmegaConf.to_container(Jobs(words).configuration({"model": "test_vit"}))
        assert first == OmegaConf.to_container(composed("run", [*words, "model=test_vit"]))


@pytest.mark.parametrize(
    "line", ["weights: ${oc.env:HOME}", "plugins: [os]", "_target_: fca.models.own.Own\nhydra: {job: {name: x}}"]
)
def test_a_file_of_a_stranger_may_set_no_more_than_hydra_lets_it(line, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(f"{line}\n")
    monkeypatch.setattr("fca.cli.jobs.CONF", tmp_path)
    with pytest.raises(FcaError, match=r"mine\.yaml"):
        Jobs().configuration({"model": "mine"})


def test_words_that_come_first_are_those_of_every_job():
    jobs = Jobs(["model=test_vit", "seed=4"])
    first, second = jobs.configuration({"limit": 3}), jobs.configuration({"model.input_size": 40})
    assert (first.seed, first.limit, second.seed, second.limit) == (4, 3, 4, None)
    assert second.model.name == "test_vit"
    assert first.model.input_size != second.model.input_size == 40


@pytest.mark.parametrize("text", ["digits", "a b", "it's", "a,b", "null", "1e5", "12", "[x]", "{a:1}", "\\", "", "é=ü"])
def test_a_text_is_read_back_as_it_was(text):
    config = composed("run", [word("dataset.root", text), "dataset=folder"])
    assert config.dataset.root == text


WRONG = [
    {"modle": "test_resnet"},
    {"model": "test_resnett"},
    {"model.weihgts": 1},
    {"model": "test_vit", "model.weihgts": 1},
    {"recipe.lr": "abc"},
    {"recipe.lr": [1, 2]},
    {"model": ["a", "b"]},
    {"subset.classes": "0,1"},
    {"subset.classes": ["0", "11"]},
    {"model": None},
    {"seed": True},
    {"a b": 1},
    {"recipe": "x,y"},
    {"dataset.root": "${oc.env:HOME}"},
    {"outputs": __file__},
    {"dataset": "folder", "dataset.root": "no, such 'folder'"},
    {"task": "compile", "adaptation": "probe", "model": "test_resnet"},
]


def exit_code_of(words):
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.mark.wide
@pytest.mark.parametrize("keys", WRONG, ids=str)
def test_what_the_command_line_refuses_is_refused_in_the_same_words(keys, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keys = {"outputs": "store", **keys}
    with pytest.raises(FcaError) as refused:
        fca.plan(keys)
    words = [word(key, value) for key, value in keys.items()]
    assert exit_code_of(words) == 2
    assert capsys.readouterr().err.strip() == f"error: {refused.value}"
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"sweep.print": True}, "keys of one configuration"),
        ({"hydra.mode": "MULTIRUN"}, "keys of one configuration"),
        ({"experiment": "few_class"}, "this one sweeps"),
        ({"dataset.root": object()}, "a text, number, truth value"),
    ],
)
def test_what_only_python_can_get_wrong_is_refused(keys, reason):
    with pytest.raises(FcaError, match=reason):
        fca.run(keys)


@pytest.mark.parametrize("value", [np.float64(0.5), np.str_("a"), np.bool_(True), np.int64(3)])
def test_numpys_values_become_pythons(value):
    """Some of NumPy's types are also types of Python: np.float64 is a float."""
    assert type(plain("key", value)) is type(value.item())


@pytest.mark.wide
def test_runs_are_planned_done_once_and_returned_as_rows(tmp_path):
    keys = {**SMALL, "outputs": tmp_path / "store", "seed": np.int64(5)}
    planned = fca.plan(keys)
    assert planned["state"].tolist() == ["absent", "absent"]
    assert planned["parent"][1] == planned["run_id"][0]
    assert not (tmp_path / "store").exists()

    rows = fca.run(keys)
    assert rows["run_id"].tolist() == planned["run_id"].tolist()
    assert rows["task"].tolist() == ["train", "predict"]
    assert fca.plan(keys)["state"].tolist() == ["done", "done"]
    assert fca.run(keys).equals(rows)  # with the time at which they finished
    assert fca.results(tmp_path / "store").shape[0] == 2

    config = OmegaConf.load(tmp_path / "store" / "runs" / rows["run_id"][0] / "config.yaml")
    assert config.seed == 5
    command = Path(tmp_path / "store" / "runs" / rows["run_id"][0] / "config.yaml").read_text().splitlines()[0]
    again = shlex.split(command.removeprefix("# fca run "))
    assert exit_code_of(again) == 0
    assert fca.results(tmp_path / "store").shape[0] == 2  # the stored command is this configuration


def test_a_run_that_fails_is_an_error_that_names_its_log(tmp_path, monkeypatch):
    keys = {**SMALL, "outputs": tmp_path / "store"}
    job = job_of_keys(keys)

    def broken(runs, context):
        raise ZeroDivisionError("no images left")
        yield

    monkeypatch.setattr(type(job.task), "run", lambda self, runs, context: broken(runs, context))
    with pytest.raises(FcaError, match=r"this one did not: ZeroDivisionError: no images left.*log\.txt"):
        fca.run(keys)
    monkeypatch.undo()
    assert fca.run(keys)["task"].tolist() == ["train", "predict"]  # a failed run is done again
