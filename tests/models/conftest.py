from functools import cache

import pytest
import torch
from hydra import compose, initialize_config_dir

from fca.cli.configure import component
from fca.cli.places import CONF


@pytest.fixture(scope="session")
def model():
    """A model by the name of its YAML, with overrides as the user types them: model("test_vit", "model.stem=cifar")."""

    @cache  # a model is frozen, and composing its configuration is what takes time
    def make(name, *overrides):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return component(compose(f"model/{name}", list(overrides)), "model")

    return make


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Networks this small only wait for each other's threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
