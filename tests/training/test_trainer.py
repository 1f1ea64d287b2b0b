"""What a configuration may set of Lightning's Trainer, and what it may not."""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytorch_lightning as pl

from fca.plugins import use_plugins
from fca.training.loop import TrainingPlace, fit
from fca.training.trainer import LOGGERS, OBSERVERS, TrainerKeys
from fca.types import FcaError
from tests.support.tiny import classifier, examples, recipe

NONE = TrainerKeys(None, 10, False, False, False, False, [], [])
LIGHTNING = "pytorch_lightning.callbacks."


@dataclass
class Stops(pl.Callback):
    """A callback of the user's, which changes results."""

    after: int

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = trainer.current_epoch + 1 >= self.after


@dataclass
class NoCallback:
    pass


@pytest.fixture
def plugin():
    use_plugins([__name__])
    yield
    use_plugins([])


def trained(folder, **keys):
    place = TrainingPlace(folder, accelerator="cpu", trainer=replace(NONE, **keys))
    return fit(classifier(), examples(60), examples(30, seed=1), recipe(), 0, place)


def test_every_allowed_class_is_lightning_s_and_watches_a_training_without_changing_it(tmp_path):
    plain = trained(tmp_path / "plain")
    every = {"profiler": "simple", "log_every_n_steps": 1}
    every["callbacks"] = [{"_target_": name} for name in OBSERVERS if "Rich" not in name]
    every["loggers"] = [{"_target_": name} for name in LOGGERS if "TensorBoard" not in name]  # not installed
    assert trained(tmp_path / "watched", **every).history == plain.history
    names = {path.name for path in (tmp_path / "watched").iterdir()} - {"best.safetensors", "fitted.json"}
    assert names == {"curves", "fit-profile.txt"}
    header = (tmp_path / "watched" / "curves" / "metrics.csv").read_text().splitlines()[0]
    assert {"lr-AdamW/pg1", "train/loss_step", "val/top1"} <= set(header.split(","))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"callbacks": [{"_target_": LIGHTNING + "EarlyStopping"}]},
            r"callbacks\[0\] = .*Stopping; allowed: .*RateMonitor",
        ),
        (
            {"callbacks": [{"_target_": "os.system", "command": "ls"}]},
            r"trainer\.callbacks\[0\] = os\.system; allowed: ",
        ),
        ({"callbacks": ["os.system"]}, r"trainer\.callbacks\[0\] = os\.system; allowed: \{_target_: CLASS"),
        (
            {"loggers": [{"_target_": next(iter(LOGGERS)), "save_dir": "/"}]},
            r"loggers\[0\]\.save_dir = /; allowed: flush",
        ),
        ({"callbacks": [{"_target_": "fca.training.trainer.TrainerKeys"}]}, "allowed: pytorch_lightning"),
    ],
)
def test_a_class_or_keyword_that_is_not_allowed_is_refused_with_those_that_are(keys, message):
    with pytest.raises(FcaError, match=message):
        replace(NONE, **keys).check()


def test_a_callback_of_the_user_s_needs_its_module_listed_and_is_part_of_the_identity(tmp_path, plugin):
    mine = {"_target_": f"{__name__}.Stops", "after": 2}
    keys = replace(NONE, callbacks=[{"_target_": next(iter(OBSERVERS))}, mine])
    keys.check()
    assert keys.meaning() == [mine]
    assert trained(tmp_path, callbacks=[mine]).epochs_run == 2
    use_plugins([])
    with pytest.raises(FcaError, match=r"Stops; allowed: pytorch_lightning.*plugins="):
        keys.check()


def test_what_cannot_be_made_is_an_error_that_names_it(tmp_path, plugin):
    for named, message in (
        ({"_target_": f"{__name__}.Stops"}, r"trainer\.callbacks\[0\] = .*Stops; allowed: keywords that it takes"),
        ({"_target_": f"{__name__}.NoCallback"}, r"NoCallback; allowed: a pytorch_lightning.*Callback"),
    ):
        with pytest.raises(FcaError, match=message):
            trained(tmp_path, callbacks=[named])


def test_planning_with_it_imports_no_lightning():
    code = (
        "import sys; from fca.training.trainer import *; "
        "TrainerKeys('simple', 1, True, True, True, True, [{'_target_': next(iter(OBSERVERS))}], []).check(); "
        "assert not {'torch', 'pytorch_lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
