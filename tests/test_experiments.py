"""No experiment can rot: each runs whole, shrunk to seconds."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fca.cli.application import register
from fca.cli.places import CONF
from fca.store import results
from tests.support.images import write_images

# what a machine without a GPU and a network has instead of the paper's data, networks and encoders
SMALLER = {
    "fc_full": ["dataset=folder", "model=test_resnet", "recipe=default"],
    "fc_sub": ["dataset=folder", "model=test_resnet", "recipe=default", "subset.ncl=2,0.5"],
    "fc_sim": ["dataset=folder", "model@encoder=hog"],
    "irt_corruption": [
        "dataset=digits",
        "model=test_resnet",
        "recipe=default",
        "shift=corruption/fog",
        "shift.severities=[1,5]",
    ],
    "rendered_cues": ["model=test_resnet", "seed=0"],
}
BOTH = {"train", "predict"}
TASKS = {
    "fc_full": BOTH,
    "fc_sub": BOTH,
    "fc_sim": {"embed"},
    "hard_images": {*BOTH, "describe"},
    "irt_corruption": BOTH,
    "progressive": {*BOTH, "describe"},
    "rendered_cues": {*BOTH, "saliency"},
}
# They need masks, weights, stored runs or a generated set, and have tests of their own: tests/studies/reliance/
# test_hard_imagenet.py, tests/studies/search/test_search.py and test_search_diffusion.py, tests/studies/generate/
# test_seven_models.py
OWN = {"hard_imagenet", "failure_search", "rendered_failures", "progressive_models", "progressive_clips"}
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml") if path.stem not in OWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_under_debug_smoke(fca, tmp_path, name):
    register()
    smaller = SMALLER.get(name, [])
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("run", [f"experiment={name}", *smaller[:1]])
    data = [f"dataset.root={write_images(tmp_path / 'images')}"] if OmegaConf.is_missing(config.dataset, "root") else []
    code, out, err = fca("-m", f"experiment={name}", "debug=smoke", "logger=none", *smaller, *data)
    assert code == 0, err
    assert " 0 failed, 0 running" in out
    rows = results(tmp_path / "outputs" / "smoke")
    assert TASKS.get(name, {"train", "predict", "embed"}) <= set(rows["task"])
    trained = rows.query("task == 'train'")
    assert trained.empty or (trained["recipe_epochs"] == 1).all()
