"""A package of one's own that is listed under `plugins` brings options in its folder `conf`, to every command."""

import sys

import pytest

from fca.cli import options
from fca.cli.configure import load_model
from fca.plugins import use_plugins

MODEL = "# A network of a package of one's own.\ndefaults: [timm, _self_]\nname: test_resnet\ninput_size: 16\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`shop`, with a model, an analysis and a data set beside its code."""
    for file, text in {
        "__init__.py": "",
        "conf/model/shop_net.yaml": MODEL,
        "conf/dataset/shop.yaml": "# Photographs of the shop.\ndefaults: [folder, _self_]\nroot: nowhere\n",
    }.items():
        path = tmp_path / "shop" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    use_plugins([])
    options.use_search_path([])
    sys.modules.pop("shop", None)


@pytest.mark.usefixtures("package")
def test_its_options_are_composed_listed_and_suggested(fca):
    words = ["plugins=[shop]", "limit=8", "subset.ncl=2", "recipe.epochs=1", "recipe.min_steps=0", "logger=none"]
    code, out, err = fca("model=shop_net", *words)
    assert code == 0, err
    assert "test_resnet" in out
    code, out, _ = fca("--help", "plugins=[shop]")
    assert code == 0
    assert "shop_net" in out
    code, _, err = fca("model=shop_nett", *words)
    assert code == 2
    assert "did you mean model=shop_net?" in err


@pytest.mark.usefixtures("package")
def test_without_being_listed_it_brings_nothing(fca):
    code, _, err = fca("model=shop_net", "limit=8")
    assert code == 2
    assert "model = shop_net; allowed: " in err


@pytest.mark.usefixtures("package")
def test_python_finds_them_too(monkeypatch):
    monkeypatch.setenv("FCA_PLUGINS", "shop")
    assert load_model("shop_net").input_size == 16
