import itertools
import json
import logging
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_lightning.loggers import CSVLogger
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import cross_entropy

from fca.cli.configure import load_model
from fca.training import batches
from fca.training.augment import Augment
from fca.training.batches import Batches, epoch_rng
from fca.training.infer import logits_of
from fca.training.loop import TrainingPlace, _should_compile, fit, seed_everything
from fca.training.module import NAMES_IN_LOGGERS, Training
from fca.types import FcaError
from tests.support.tiny import SIZE, classifier, examples, recipe


def train(folder, changes=None, seed=0, ncl=3, **place):
    built = classifier(ncl, seed)
    data = examples(60, ncl), examples(30, ncl, seed=1)
    return built, fit(built, *data, recipe(**(changes or {})), seed, TrainingPlace(folder, accelerator="cpu", **place))


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_separable_task_is_learned_and_the_best_weights_are_left_in_the_module(tmp_path):
    built, fitted = train(tmp_path, {"epochs": 8})
    test = examples(60, seed=2)
    top1 = np.mean(logits_of(built, test.pixels, test.rows).argmax(1) == test.labels)
    assert top1 > 0.9
    assert fitted.val_top1 == max(line["val_top1"] for line in fitted.history)
    assert fitted.epochs_run == 8
    assert not fitted.diverged
    assert same(built.module.state_dict(), load_file(tmp_path / "best.safetensors"))


def test_the_folder_holds_weights_and_figures_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    _, fitted = train(tmp_path / "run", {"snapshots": [0.5, 0.125]})
    names = {"best.safetensors", "fitted.json", "snapshot-0.50.safetensors", "snapshot-0.125.safetensors"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names
    assert not list((tmp_path / "here").iterdir())
    assert json.loads((tmp_path / "run" / "fitted.json").read_text())["best_epoch"] == fitted.best_epoch


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(tmp_path):
    busy = {"mixup": 0.2, "flip": True, "shift": 0.125, "scale_min": 0.5, "label_smoothing": 0.1, "grad_clip": 1.0}
    weights = []
    for number, seed in enumerate((0, 0, 1)):
        seed_everything(seed)
        torch.rand(number)  # what was drawn before does not matter
        weights.append(train(tmp_path / str(number), busy, seed)[0].module.state_dict())
    assert same(weights[0], weights[1])
    assert not same(weights[0], weights[2])


def test_the_runner_computes_what_a_bare_loop_computes(tmp_path):
    train(tmp_path, {"optimiser": "sgd", "schedule": "constant", "warmup_epochs": 0.0, "snapshots": [1.0]})
    bare, data = classifier(), examples(60)
    optimiser = torch.optim.SGD(
        [
            {"params": [p for p in bare.module.parameters() if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in bare.module.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=0.01,
        momentum=0.9,
        nesterov=True,  # timm's sgd
    )
    loader = Batches(data, 16, torch.device("cpu"), seed=0)
    for loader.epoch in range(3):
        torch.manual_seed(int(epoch_rng(0, loader.epoch, 1).integers(2**63)))
        for images, labels, *_ in loader:
            x = bare.normalise(images.permute(0, 3, 1, 2) / 255)
            loss = cross_entropy(bare.module(x), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    for name, value in load_file(tmp_path / "snapshot-1.00.safetensors").items():
        torch.testing.assert_close(value, bare.module.state_dict()[name], atol=1e-5, rtol=1e-4)  # order of sums


def test_a_snapshot_holds_the_weights_after_its_step_and_the_best_one_those_of_its_epoch(tmp_path):
    constant = {"schedule": "constant", "warmup_epochs": 0.0}
    train(tmp_path / "long", {"epochs": 4, "snapshots": [0.25, 0.5, 0.75, 1.0], **constant})
    for epochs in (1, 2):
        train(tmp_path / str(epochs), {"epochs": epochs, "snapshots": [1.0], **constant})
        short = load_file(tmp_path / str(epochs) / "snapshot-1.00.safetensors")
        assert same(short, load_file(tmp_path / "long" / f"snapshot-{epochs / 4:.2f}.safetensors"))
    best = json.loads((tmp_path / "long" / "fitted.json").read_text())["best_epoch"]
    kept = load_file(tmp_path / "long" / f"snapshot-{best / 4:.2f}.safetensors")
    assert same(kept, load_file(tmp_path / "long" / "best.safetensors"))


def test_the_best_epoch_is_the_most_accurate_and_among_equals_the_one_of_least_loss(tmp_path):
    _, fitted = train(tmp_path, {"epochs": 12, "lr": 0.05})
    ranks = [(line["val_top1"], -line["val_loss"]) for line in fitted.history]
    assert fitted.best_epoch == ranks.index(max(ranks)) + 1
    tied = [rank for rank in ranks if rank[0] == fitted.val_top1]
    assert len(tied) > 1, "this seed must end with a tie, or the test says nothing"


@pytest.mark.parametrize("epochs", [1, 3])
def test_divergence_stops_training_and_leaves_finite_weights(tmp_path, epochs):
    built, fitted = train(tmp_path, {"epochs": epochs, "optimiser": "sgd", "lr": 1e30, "warmup_epochs": 0.0})
    assert fitted.diverged
    assert (fitted.best_epoch, fitted.val_top1, fitted.epochs_run) == (0, None, 0)
    assert same(built.module.state_dict(), classifier().module.state_dict())
    assert {path.name for path in tmp_path.iterdir()} == {"best.safetensors", "fitted.json"}


def test_divergence_in_a_later_epoch_keeps_the_best_one_before(tmp_path):
    built, calls = classifier(), itertools.count()
    bad = replace(built, normalise=lambda x: x * (math.nan if next(calls) > 6 else 1.0))  # an epoch has 4 + 1 batches
    fitted = fit(bad, examples(60), examples(30, seed=1), recipe(), 0, TrainingPlace(tmp_path, accelerator="cpu"))
    assert (fitted.diverged, fitted.best_epoch, fitted.epochs_run) == (True, 1, 1)
    assert same(built.module.state_dict(), load_file(tmp_path / "best.safetensors"))
    assert all(value.isfinite().all() for value in built.module.state_dict().values())


def test_a_finished_training_is_not_done_again(tmp_path):
    built, fitted = train(tmp_path)
    written = (tmp_path / "best.safetensors").stat().st_mtime_ns
    again, refitted = train(tmp_path, seed=0)
    assert refitted == fitted
    assert same(again.module.state_dict(), built.module.state_dict())
    assert (tmp_path / "best.safetensors").stat().st_mtime_ns == written


def test_curves_reach_any_lightning_logger(tmp_path):
    logger = CSVLogger(tmp_path / "curves")
    _, fitted = train(tmp_path / "run", logger=logger)
    lines = [line.split(",") for line in next((tmp_path / "curves").rglob("metrics.csv")).read_text().splitlines()]
    table = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    for name in ("train_loss", "train_top1", "val_loss", "val_top1"):
        logged = [float(line[NAMES_IN_LOGGERS[name]]) for line in table if line[NAMES_IN_LOGGERS[name]]]
        assert logged == pytest.approx([line[name] for line in fitted.history], rel=1e-5)  # float32 in the logger
    for name in ("train/loss_step", "lr", "images_per_s", "grad_norm"):
        assert sum(bool(line[name]) for line in table) == 3, "12 steps, one of every 4"
    assert {line["epoch"] for line in table} == {"0", "1", "2"}


def test_the_norm_of_gradients_is_that_before_they_are_clipped_and_lr_that_of_the_step(tmp_path):
    logger, module = CSVLogger(tmp_path / "curves"), []

    class Watch(Training):
        def on_before_optimizer_step(self, optimizer):
            super().on_before_optimizer_step(optimizer)
            if self.is_logged_step:
                squares = sum(float(weights.grad.double().square().sum()) for weights in self.network.parameters())
                module.append((squares**0.5, optimizer.param_groups[0]["lr"]))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fca.training.loop.Training", Watch)
        train(tmp_path / "run", {"grad_clip": 0.01}, logger=logger)
    table = pd.read_csv(next((tmp_path / "curves").rglob("metrics.csv")))
    for name, wanted in zip(("grad_norm", "lr"), zip(*module, strict=True), strict=True):
        assert table[name].dropna().tolist() == pytest.approx(list(wanted), rel=1e-5)  # float32
    assert min(norm for norm, _ in module) > 0.01


def test_the_reported_figures_are_those_of_the_weights(tmp_path):
    built, fitted = train(tmp_path, {"epochs": 1})
    val = examples(30, seed=1)
    logits = torch.from_numpy(logits_of(built, val.pixels, val.rows))
    labels = torch.from_numpy(val.labels)
    assert fitted.val_top1 == float((logits.argmax(1) == labels).double().mean())
    assert fitted.history[0]["val_loss"] == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-5)  # float32


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "bf16-mixed"},
        {"passes": 2, "repeats": 2, "augment": Augment("randaugment", 2, 9, 0.2, 0.5)},
        {"mixup": 0.5, "label_smoothing": 0.1},
        {"optimiser": "lamb", "schedule": "step"},
    ],
)
def test_every_recipe_trains_without_a_warning(tmp_path, changes):
    assert math.isfinite(train(tmp_path, {**changes, "flip": True, "shift": 0.1})[1].history[-1]["val_loss"])


def test_progress_is_shown_and_wiped(tmp_path, capsys):
    train(tmp_path, progress=True)
    assert "train_loss" not in capsys.readouterr().err


def test_lightning_is_silent_but_our_log_tells_the_epochs(tmp_path, caplog, capsys):
    with caplog.at_level(logging.INFO):
        train(tmp_path)
    assert [record.message[:8] for record in caplog.records] == ["epoch 1:", "epoch 2:", "epoch 3:"]
    assert capsys.readouterr() == ("", "")


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path):
    empty = replace(examples(3), rows=np.arange(0), labels=np.arange(0))
    place = TrainingPlace(tmp_path / "run", accelerator="cpu")
    with pytest.raises(FcaError, match="val images = 0"):
        fit(classifier(), examples(60), empty, recipe(), 0, place)
    with pytest.raises(FcaError, match=r"recipe\.precision = 16-mixed; allowed: 32-true or bf16-mixed on a CPU"):
        fit(classifier(), examples(60), examples(9), recipe(precision="16-mixed"), 0, place)
    with pytest.raises(FcaError, match=r"recipe\.lr = 0"):
        fit(classifier(), examples(60), examples(9), recipe(lr=0.0), 0, place)
    assert not (tmp_path / "run").exists()


def test_a_streamed_set_trains_the_same_network(tmp_path, monkeypatch):
    held, _ = train(tmp_path / "held")
    monkeypatch.setattr(batches, "PRELOAD_BYTES", SIZE)
    streamed, _ = train(tmp_path / "streamed")
    assert same(held.module.state_dict(), streamed.module.state_dict())


def test_a_network_that_was_left_in_eval_mode_is_trained(tmp_path):
    built = classifier()
    built.module.eval()
    fit(built, examples(60), examples(9), recipe(epochs=1), 0, TrainingPlace(tmp_path, accelerator="cpu"))
    assert isinstance(built.module[0][1], nn.BatchNorm2d)
    assert int(built.module[0][1].num_batches_tracked) == 4


def test_frozen_batch_norms_keep_their_averages_and_layers_learn(tmp_path):
    for frozen in (False, True):
        built = classifier()
        before = {name: value.clone() for name, value in built.module.state_dict().items()}
        fit(
            built,
            examples(60),
            examples(9),
            recipe(epochs=2, frozen_norms=frozen),
            0,
            TrainingPlace(tmp_path / str(frozen), "cpu"),
        )
        after = built.module.state_dict()
        averages = [name for name in before if "running" in name]
        assert averages
        assert all(torch.equal(before[name], after[name]) for name in averages) == frozen
        assert not torch.equal(before["0.0.weight"], after["0.0.weight"])


@pytest.mark.parametrize(("lr", "epoch_0_is_kept"), [(100.0, True), (0.01, False)])
def test_the_weights_it_began_with_are_kept_where_they_count_and_no_epoch_is_better(tmp_path, lr, epoch_0_is_kept):
    built, _ = train(tmp_path / "first", {"epochs": 1})
    before = {name: value.clone() for name, value in built.module.state_dict().items()}
    val = examples(30, seed=1)
    top1 = np.mean(logits_of(built, val.pixels, val.rows).argmax(1) == val.labels)
    asked = recipe(epochs=6, lr=lr, optimiser="sgd" if epoch_0_is_kept else "adamw", grad_clip=1.0)
    fitted = fit(built, examples(60), val, asked, 0, TrainingPlace(tmp_path / "second", "cpu"), start_counts=True)
    assert (fitted.best_epoch == 0) == epoch_0_is_kept
    assert (fitted.val_top1 == pytest.approx(top1)) == epoch_0_is_kept
    assert fitted.val_top1 >= top1 - 1e-6
    assert same(before, built.module.state_dict()) == epoch_0_is_kept


def plain(ncl=3):
    """Without batch norm and dropout: a batch and its parts have the same gradients."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(54, ncl))
    return replace(classifier(ncl), module=module)


@pytest.mark.parametrize("parts", [3, 16])
def test_a_batch_in_parts_has_the_gradients_of_the_whole_one(tmp_path, parts):
    states = []
    for accumulate in (1, parts):
        asked = recipe(accumulate=accumulate, optimiser="sgd", mixup=0.4, grad_clip=0.5, snapshots=[1.0])
        built = plain()
        fitted = fit(built, examples(60), examples(9), asked, 0, TrainingPlace(tmp_path / str(accumulate), "cpu"))
        states.append((load_file(tmp_path / str(accumulate) / "snapshot-1.00.safetensors"), fitted.history))
    for name, value in states[0][0].items():
        torch.testing.assert_close(states[1][0][name], value, atol=1e-6, rtol=1e-5)  # order of sums, 12 steps
    assert [line["lr"] for line in states[0][1]] == [line["lr"] for line in states[1][1]]
    losses = ([line["train_loss"] for line in history] for _, history in states)
    assert next(losses) == pytest.approx(next(losses), rel=1e-5)


def test_training_stops_after_epochs_without_a_better_one_also_when_it_was_interrupted(tmp_path, monkeypatch):
    asked = {"epochs": 40, "patience": 3, "lr": 0.05}
    _, whole = train(tmp_path / "whole", asked)
    assert whole.epochs_run == whole.best_epoch + 3 < 40
    start, at = Training.on_train_epoch_start, whole.epochs_run - 1

    def stops(self):
        if self.current_epoch == at:
            raise RuntimeError("stopped")
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "on_train_epoch_start", stops)
        with pytest.raises(RuntimeError, match="stopped"):
            train(tmp_path / "cut", asked, checkpoint_s=0.0)
    _, resumed = train(tmp_path / "cut", asked, checkpoint_s=0.0)
    assert resumed.history == whole.history


def test_layers_learn_more_slowly_the_further_they_are_from_the_head():
    built = load_model("test_vit", input_size=32).build(["a", "b"])
    asked = recipe(layer_decay=0.5, warmup_epochs=0.0)
    [optimiser, _] = Training(built, asked, 10, 0).configure_optimizers().values()
    rate = {id(weight): group["lr"] for group in optimiser.param_groups for weight in group["params"]}
    depth = len(built.module.blocks)
    assert rate[id(built.module.head.weight)] == asked.lr
    assert rate[id(built.module.blocks[0].mlp.fc1.weight)] == pytest.approx(asked.lr * 0.5**depth)
    assert rate[id(built.module.patch_embed.proj.weight)] == pytest.approx(asked.lr * 0.5 ** (depth + 1))


def test_layer_decay_needs_a_network_that_groups_its_layers(tmp_path):
    with pytest.raises(FcaError, match=r"recipe\.layer_decay = 0\.5; allowed: 1 for Sequential: only timm's"):
        train(tmp_path / "run", {"layer_decay": 0.5})
    assert not (tmp_path / "run").exists()


def test_tf32_is_on_while_it_trains_and_torch_is_left_as_it_was(tmp_path, monkeypatch):
    seen, start = [], Training.on_train_epoch_start
    monkeypatch.setattr(Training, "on_train_epoch_start", lambda self: (seen.append(flags()), start(self)))

    def flags():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = flags()
    for precision in ("32-true", "tf32"):
        train(tmp_path / precision, {"epochs": 1, "precision": precision})
    assert seen == [before, ("high", True)]
    assert flags() == before


def test_bfloat16_trains_and_leaves_weights_in_full_precision_in_the_module(tmp_path):
    built, fitted = train(tmp_path, {"epochs": 8, "precision": "bf16-true"})
    assert fitted.val_top1 > 0.9
    assert {value.dtype for value in built.module.state_dict().values()} == {torch.float32, torch.int64}


@pytest.mark.slow
def test_a_compiled_network_learns_the_same_and_its_weights_keep_their_names(tmp_path):
    built, fitted = train(tmp_path / "compiled", {"epochs": 8, "ema": 0.9}, compile="true")
    eager, expected = train(tmp_path / "eager", {"epochs": 8, "ema": 0.9}, compile="auto")
    assert built.module.state_dict().keys() == eager.module.state_dict().keys()
    assert load_file(tmp_path / "compiled" / "best.safetensors").keys() == eager.module.state_dict().keys()
    assert fitted.val_top1 > 0.9
    assert expected.val_top1 > 0.9


def test_only_long_trainings_on_cuda_are_compiled_unless_one_asks_for_it():
    cuda, cpu, enough = torch.device("cuda"), torch.device("cpu"), 2_000_000 * 224**2
    decided = [
        _should_compile("auto", cuda, enough),
        _should_compile("auto", cuda, enough // 100),
        _should_compile("auto", cpu, enough),
    ]
    assert decided == [True, False, False]
    assert (_should_compile("true", cpu, 1), _should_compile("false", cuda, enough)) == (True, False)
