"""What a sweep, and what the tests, compose fast is what Hydra composes."""

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from fca.cli.application import register
from fca.cli.compose import Composer
from fca.cli.places import CONF

POINTS = [
    ["model=test_resnet", "subset.ncl=2", "seed=0", "dataset.val={share: 0.2}", "limit=8"],
    ["model=test_resnet", "subset.ncl=0.5", "seed=1", "dataset.val={seed: 1}", "limit=8"],
    ["model=test_vit", "subset.ncl=null", "seed=1", "dataset.val={share: 0.3, seed: 2}", "limit=8"],
    ["model=test_vit", "subset.ncl=3", "seed=0", "dataset.val={share: 0.2}", "limit=8"],
]


@pytest.fixture
def hydras():
    """Hydra's own loader, and the configuration of a sweep of 4 axes with several values."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        yield loader, loader.load_configuration("run", [], RunMode.MULTIRUN)


def test_points_and_jobs_are_those_that_hydra_composes(hydras):
    loader, master = hydras
    composer = Composer(loader, {word: 1 if word == "limit=8" else 2 for words in POINTS for word in words})
    assert composer.varying_keys == {"subset.ncl", "seed", "dataset.val"}
    for words in POINTS:
        plain = [word for word in words if not word.startswith("dataset.val")]
        theirs = loader.load_sweep_config(master, words)
        assert composer.load_sweep_config(master, words) == theirs, words
        del theirs.__dict__["_content"]["hydra"]
        assert OmegaConf.to_container(composer.point(master, words)) == OmegaConf.to_container(theirs)
        assert composer.point(master, plain).subset.ncl == theirs.subset.ncl


def test_a_job_has_a_configuration_of_its_own(hydras):
    loader, master = hydras
    composer = Composer(loader, {"seed=0": 2, "seed=1": 2})
    first = composer.load_sweep_config(master, ["seed=0"])
    first.recipe.epochs = 77
    assert composer.load_sweep_config(master, ["seed=1"]).recipe.epochs != 77


@pytest.mark.parametrize(
    "words",
    [
        ["seed=3", "model=test_resnet", "subset.ncl=2", "+recipe.more=1"],
        ["model=test_resnet,test_vit", "seed=1,2", "~adaptation"],
        ["hydra/launcher=joblib", "task=embed", "hydra.launcher.n_jobs=2", "model@encoder=test_resnet"],
        ["experiment=quickstart", "hydra.searchpath=[]"],
    ],
)
def test_the_tests_compose_what_hydra_composes(hydras, words):
    loader, _ = hydras
    for _ in range(2):  # made, then known
        ours = loader.load_configuration("run", words, RunMode.MULTIRUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ConfigLoaderImpl, "_load_configuration_impl", ConfigLoaderImpl._load_configuration_impl.__wrapped__
        )
        theirs = loader.load_configuration("run", words, RunMode.MULTIRUN)
    assert OmegaConf.to_container(ours) == OmegaConf.to_container(theirs)
