"""Run ids that must never change by accident: results under an id are found again only while it stays."""

import pytest
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file

from fca.cli.application import register
from fca.cli.configure import job_of
from fca.cli.places import CONF
from fca.types import Run

GOLDEN = {
    "": ["3bb7bc5f99e6", "b8721a0052fe"],
    "subset.ncl=5 subset.seed=3 seed=1 recipe.min_steps=0": ["4a7edee589b7", "8efd5926cb31"],
    "model=cifar_resnet20 recipe.epochs=3 recipe.min_steps=0": ["b6a6b0ea6644", "19732ed916e3"],
    "recipe.ema=0.9 recipe.epochs=3 recipe.min_steps=0 recipe.ema_warmup=false": [
        "d3cb36ab554d",
        "1095e1597e85",
    ],  # before
    "recipe=fca_convnextv2_base recipe.crop_from=input": ["7c68ae6e11d1", "cd2a3b4560ee"],  # as released: without
    "task=embed": ["5a324462bd3d"],
    "task=describe": ["e39133d33e47"],
    "task=learning_curve model=hog subset.ncl=5": ["5e1b7d9bde41", "2e6a08913281"],
    "task=screen model=hog subset.ncl=5": ["b4e159abdc6f", "382752466091"],
    # Before: 0b6ccafa4cff when val chose the penalty, d2c155620b7f when what judges a probe was not kept, bbf3fbcc32b3
    # when as many training images of each class judged it.
    "model=hog adaptation=probe": ["5e1b7d9bde41", "c09c49baf54c", "b51611efb312"],
}


def ids(line):
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        words = line.split()
        return [run.run_id for run in job_of(compose("run", [*words, "logger=none"]), words).plan]


@pytest.mark.parametrize("line", GOLDEN)
def test_a_run_has_the_id_that_it_always_had(line):
    assert ids(line) == GOLDEN[line]


CORRUPTED = {  # dataset, corruption -> the run that predicts it, from before large images were brought to 224 pixels
    ("digits", "fog/3"): "ebd45e5f0161",  # 32 pixels
    ("digits", "contrast/5"): "f9cd31615057",
    ("rendered dataset.size=96", "fog/3"): "e2c7d03a0e4c",
    ("rendered", "fog/3"): "973888bd060c",  # 128 pixels
    ("rendered", "contrast/5"): "a622db24d72f",
}


@pytest.mark.parametrize(("dataset", "corruption"), CORRUPTED)
def test_a_corrupted_run_has_the_id_that_it_had_where_its_pixels_are_what_they_were(tmp_path, dataset, corruption):
    save_file({}, tmp_path / "a.safetensors")
    kind, severity = corruption.split("/")
    shift = f"shift=corruption/{kind} shift.severities=[{severity}]"
    line = f"task=predict model=cifar_resnet20 model.weights={tmp_path}/a.safetensors dataset={dataset} {shift}"
    before = [CORRUPTED[dataset, corruption]]
    assert ids(f"{line} shift.at=stored") == before
    assert (ids(line) == before) == (dataset != "rendered"), "above 96 pixels no old row answers for the new default"


def test_an_id_is_the_sha256_of_task_and_identity():
    # printf '{"a": 1, "b": [2, "x"], "task": "train"}' | sha256sum
    assert Run("train", {"b": [2, "x"], "a": 1}).run_id == "87d1760da56d"


@pytest.mark.parametrize(
    "word",
    ["machine.workers=3", "machine.accelerator=cpu", "outputs=elsewhere", "sweep.retry=true", "encoder.input_size=64"],
)
def test_where_and_how_a_run_is_done_is_not_what_it_means(word):
    assert ids(word) == ids("")


@pytest.mark.parametrize("word", ["seed=1", "subset.ncl=3", "recipe.lr=0.1", "model.input_size=64", "limit=9"])
def test_what_changes_a_number_changes_the_id(word):
    assert set(ids(word)).isdisjoint(ids(""))


def test_an_average_that_warms_up_is_another_run_and_means_nothing_without_an_average():
    assert set(ids("recipe.ema=0.9")).isdisjoint(ids("recipe.ema=0.9 recipe.ema_warmup=false"))
    assert ids("recipe.ema_warmup=false") == ids("")


@pytest.mark.parametrize(
    "word",
    [
        "recipe.patience=9", "recipe.val_max=145", "recipe.min_steps=210", "recipe.crop_from=input",
        "trainer.profiler=simple", "trainer.callbacks=[{_target_:pytorch_lightning.callbacks.LearningRateMonitor}]",
    ],
)  # fmt: skip
def test_a_key_that_cannot_matter_changes_no_id(word):
    assert ids(word) == ids("")  # 1293 images and 145 of validation, 10 epochs of 21 steps


@pytest.mark.parametrize(
    "word",
    [
        "recipe.patience=8", "recipe.val_max=144", "recipe.min_steps=211", "recipe.accumulate=2", "recipe.repeats=2",
        "recipe.layer_decay=0.9", "+recipe.optimiser_options.eps=1e-6", "recipe/augment=trivial", "recipe.steps=100",
    ],
)  # fmt: skip
def test_a_key_that_matters_changes_the_id(word):
    assert set(ids(word)).isdisjoint(ids(""))


def test_predictions_know_neither_subset_nor_seed_of_the_question(tmp_path):
    weights = tmp_path / "a.safetensors"
    save_file({}, weights)  # planning does not look for its keys
    model = f"task=predict model=cifar_resnet20 model.weights={weights}"
    heavy, score = ids(f"{model} subset.ncl=3 subset.seed=1 seed=7")
    assert [heavy] == ids(model)
    other_heavy, other_score = ids(f"{model} subset.ncl=3 subset.seed=2")
    assert (heavy, score != other_score) == (other_heavy, True)
    copied = tmp_path / "b.safetensors"
    copied.write_bytes(weights.read_bytes())
    assert ids(f"task=predict model=cifar_resnet20 model.weights={copied}") == [heavy]
