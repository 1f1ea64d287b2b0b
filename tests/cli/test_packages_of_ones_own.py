"""A package of one's own that is listed under `plugins` brings options in its folder `conf`, to every command."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import fca as library
from fca.cli import analyse, doctor, options
from fca.cli import help as help_command
from fca.cli.configure import load_model
from fca.plugins import use_plugins

RECIPE = (Path(__file__).parents[2] / "docs" / "recipes" / "analysis.md").read_text()
STUDY = re.search(r'```python title="my_parts.py"\n(.*?)```', RECIPE, re.DOTALL)[1]
WITHOUT_FINDINGS = STUDY.partition("FINDINGS =")[0]
MODEL = "# A network of a package of one's own.\ndefaults: [timm, _self_]\nname: test_resnet\ninput_size: 16\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`shop`, with a model, an analysis and a data set beside its code."""
    for file, text in {
        "__init__.py": "",
        "speed.py": STUDY,
        "bare.py": WITHOUT_FINDINGS,
        "conf/analysis/shop_speed.yaml": "# How long?\n_target_: shop.speed.Speed\n",
        "conf/analysis/shop_bare.yaml": "# How long?\n_target_: shop.bare.Speed\n",
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
    for module in ("shop", "shop.speed", "shop.bare"):
        sys.modules.pop(module, None)


@pytest.mark.wide
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


@pytest.mark.usefixtures("package")
def test_what_builds_on_an_option_of_ours_has_its_meanings_and_is_suggested(fca, capsys):
    assert help_command.main("run", ["plugins=[shop]", "model=shop_net"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "model.weights=null null: from scratch" in text, "as conf/model/timm.yaml has it"
    code, _, err = fca("plugins=[shop]", "shop_net")
    assert code == 2
    assert "did you mean model=shop_net?" in err


@pytest.mark.wide
@pytest.mark.usefixtures("package")
def test_a_report_reads_its_analyses(digits_store, tmp_path, monkeypatch):
    monkeypatch.setenv("FCA_PLUGINS", "shop")
    outputs = shutil.copytree(digits_store, tmp_path / "outputs")
    page = library.write_report("few_class", outputs, analyses=["shop_speed"])
    assert "How long does a training take?" in page.read_text()


@pytest.mark.usefixtures("package")
def test_a_study_without_findings_is_refused_with_where_they_are_missing(fca):
    code, _, err = fca("plugins=[shop]", "analysis=shop_bare", door=analyse)
    assert code == 2
    assert err.startswith("error: analysis._target_ = shop.bare.Speed; allowed: a study with FINDINGS in shop.bare")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("group", ["model", "dataset"])
def test_an_option_that_is_no_yaml_is_named_by_the_doctor_and_stops_nothing(group, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FCA_PLUGINS", "shop")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop" / "conf" / group / "shop_torn.yaml").write_text("name: [1, 2\n")
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    assert re.search(r"missing +shop_torn +no whole file: .*shop_torn\.yaml", text)
    assert "not examined" not in text
    assert re.search(r"ok +digits +comes with fca", text)
