"""No experiment can rot: each runs whole, shrunk to seconds."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fca.doors.application import CONF
from fca.doors.schema import register
from fca.store import results
from tests.images import write_images

EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_under_debug_smoke(fca, tmp_path, name):
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("run", [f"experiment={name}"])
    data = [f"dataset.root={write_images(tmp_path / 'images')}"] if OmegaConf.is_missing(config.dataset, "root") else []
    code, out, err = fca("-m", f"experiment={name}", "debug=smoke", "logger=none", *data)
    assert code == 0, err
    assert " 0 failed, 0 running" in out
    rows = results(tmp_path / "outputs" / "smoke")
    assert {"train", "predict", "embed"} <= set(rows["task"])
    assert (rows.query("task == 'train'")["recipe_epochs"] == 1).all()
