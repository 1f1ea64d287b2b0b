import math
import subprocess
import sys

import pytest
import torch
from timm.optim import list_optimizers

from fca.cli.application import composed
from fca.cli.configure import job_of
from fca.tasks.adaptation import network
from fca.training.augment import Augment
from fca.training.recipe import COMMON_OPTIMISERS
from fca.types import FcaError
from tests.support.tiny import recipe


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", -1.0, r"recipe\.lr = -1\.0; allowed: a finite number above 0"),
        ("lr", math.nan, r"recipe\.lr = nan"),
        ("epochs", 0, r"recipe\.epochs = 0; allowed: at least 1"),
        ("batch_size", 1, r"recipe\.batch_size = 1; allowed: at least 2"),
        ("optimiser", "adamww", r"recipe\.optimiser = adamww; allowed: .*\badamw\b"),
        ("schedule", "linear", r"recipe\.schedule = linear; allowed: cosine, step, constant"),
        ("warmup_epochs", 4.0, r"recipe\.warmup_epochs = 4\.0; allowed: from 0 to epochs=3"),
        ("milestones", [0.5, 30.0], r"recipe\.milestones = \[0\.5, 30\.0\]"),
        ("precision", "16", r"recipe\.precision = 16; allowed: 32-true, tf32, bf16-mixed, bf16-true, 16-mixed"),
        ("scale_min", 0.0, r"recipe\.scale_min = 0\.0"),
        ("snapshots", [0.5, 1.5], r"recipe\.snapshots = \[0\.5, 1\.5\]"),
    ],
)
def test_a_value_out_of_range_is_named_as_the_user_types_it(name, value, message):
    with pytest.raises(FcaError, match=message):
        recipe(**{name: value}).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimiser_options": {"epsilon": 1e-6}}, r"options\.epsilon = .*; .*adamw: amsgrad, betas, .*\beps\b"),
        ({"optimiser_options": {"lr": 0.1}}, r"recipe\.optimiser_options\.lr = .*; allowed: keywords of adamw"),
        ({"optimiser_options": {"betas": [0.9]}}, r"recipe\.optimiser_options = .*; allowed: .*out of range"),
        ({"optimiser": "sgd", "optimiser_options": {"betas": [0.9, 0.9]}}, r"options\.betas = .* keywords of sgd"),
        ({"patience": 2, "snapshots": [0.5]}, r"recipe\.patience = 2; allowed: 0 with snapshots"),
        ({"precision": "bf16-true", "ema": 0.9}, r"recipe\.ema = 0\.9; allowed: 0 for bf16-true"),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused_before_the_run(changes, message):
    with pytest.raises(FcaError, match=message):
        recipe(**changes).check()


@pytest.mark.parametrize("changes", [{"betas": [0.9, 0.95], "eps": 1e-6}, {"foreach": False}])
def test_keywords_of_an_optimiser_are_accepted(changes):
    recipe(optimiser_options=changes).check()


def test_keys_that_cannot_matter_have_their_neutral_value_in_an_identity():
    idle = recipe(epochs=5, patience=4, crop_from="original", ema_warmup=True, val_max=30)
    assert idle.essential(60, 30) == recipe(epochs=5, ema_warmup=False)
    acting = recipe(epochs=5, patience=3, crop_from="original", scale_min=0.5, ema=0.9, val_max=29)
    assert acting.essential(60, 30) == acting
    trivial = [recipe(augment=Augment("trivial", ops, 9, 0.0, 0.0)).essential(60, 30) for ops in (1, 2)]
    assert trivial[0] == trivial[1]


@pytest.mark.parametrize(("images", "passes", "steps"), [(60, 38, 152), (16, 150, 150), (6000, 1, 375)])
def test_a_short_training_is_lengthened_by_passes_and_a_long_one_is_not(images, passes, steps):
    made = recipe(epochs=1, warmup_epochs=0.5, batch_size=16, min_steps=150).sized(images, 10)
    assert (made.passes, made.epochs, made.steps_for(images)) == (passes, 1, steps)
    assert made.sized(images, 10) == made


def test_an_optimiser_that_only_timm_knows_is_accepted():
    recipe(optimiser="adabelief").check()
    assert set(COMMON_OPTIMISERS) <= set(list_optimizers())


def test_cosine_schedule_is_torch_s_after_a_linear_warm_up():
    ours = [recipe(epochs=5, warmup_epochs=1.0).lr_share(step, 50) for step in range(50)]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=40)
    expected = []
    for _ in range(40):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        cosine.step()
    assert ours[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert ours[10:] == pytest.approx(expected, abs=1e-12)  # closed form against torch's recursion


def test_step_schedule_drops_at_every_milestone_and_constant_never():
    stepped = recipe(schedule="step", warmup_epochs=0.0, milestones=[0.5, 0.8], gamma=0.1)
    assert [stepped.lr_share(step, 10) for step in range(10)] == pytest.approx([1] * 5 + [0.1] * 3 + [0.01] * 2)
    constant = recipe(schedule="constant", warmup_epochs=0.0)
    assert {constant.lr_share(step, 10) for step in range(10)} == {1.0}


@pytest.mark.parametrize("warmup", [0.0, 0.5, 3.0])
def test_the_learning_rate_is_never_zero_on_the_way_nor_above_its_peak(warmup):
    for schedule in ("cosine", "step", "constant"):
        shares = [recipe(schedule=schedule, warmup_epochs=warmup).lr_share(step, 7) for step in range(7)]
        assert all(0 < share <= 1 for share in shares)


def test_snapshots_are_due_at_the_ceiling_of_their_share_of_all_steps():
    steps = recipe(snapshots=[0.001, 0.07, 0.5, 0.501, 1.0]).snapshot_steps(100)
    assert steps == {1: [0.001], 7: [0.07], 50: [0.5], 51: [0.501], 100: [1.0]}
    assert recipe(snapshots=[0.1, 0.2]).snapshot_steps(2) == {1: [0.1, 0.2]}


def test_planning_with_a_recipe_imports_no_torch():
    code = (
        "import sys; from fca.training.recipe import Recipe; "
        "assert not {'torch', 'timm', 'pytorch_lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("optimiser", "share"), [("sgd", 1 / 16), ("adamw", 1 / 4), ("lamb", 1 / 4)])
def test_the_learning_rate_follows_the_batch_size_as_in_timm_s_train_script(optimiser, share):
    scaled = recipe(optimiser=optimiser, lr=0.4, lr_min=0.04, lr_batch=256, batch_size=16).scaled(finetune=False)
    assert (scaled.lr, scaled.lr_min) == pytest.approx((0.4 * share, 0.04 * share))
    assert scaled.scaled(finetune=False) == scaled


def test_a_share_of_the_learning_rate_is_for_given_weights_only():
    asked = recipe(lr=0.4, finetune_lr=0.1)
    assert asked.scaled(finetune=True).lr == pytest.approx(0.04)
    assert asked.scaled(finetune=False).lr == 0.4


def test_cosine_ends_at_lr_min_as_torch_s_does():
    ours = [recipe(lr=1.0, lr_min=0.2, warmup_epochs=0.0).lr_share(step, 30) for step in range(30)]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=30, eta_min=0.2)
    for share in ours:
        assert share == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12)
        optimiser.step()
        cosine.step()


def test_steps_by_epochs_are_torch_s():
    stepped = recipe(epochs=6, schedule="step", warmup_epochs=0.0, milestones=[], gamma=0.9, step_epochs=2.0)
    shares = [stepped.lr_share(step, 60) for step in range(60)]
    assert shares == pytest.approx([0.9 ** (step // 20) for step in range(60)])


def test_a_plan_of_few_steps_warns_once_and_a_trial_does_not(caplog, monkeypatch):
    monkeypatch.setattr(network, "_warned", set())
    for words in (["recipe.min_steps=20", "subset.ncl=2"], ["recipe.min_steps=0", "subset.ncl=3"], ["debug=smoke"], []):
        job_of(composed("run", ["logger=none", *words]), words)
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "digits: a training has 40 steps" in warning
    assert "set recipe.min_steps=100" in warning
