"""A network of the user's own, as docs/recipes/model.md has it: trained, it predicts and is exported as any other."""

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from torch import nn

from fca.geometry import ResizeCrop
from fca.models import check_built
from fca.models.stored import StoredRun, describe_model
from fca.store import Store
from fca.types import Classifier, FcaError
from tests.support.images import write_images

RECIPE = (Path(__file__).parents[2] / "docs" / "recipes" / "model.md").read_text()
WORDS = ["dataset=folder", "logger=none", "recipe.epochs=2", "recipe.min_steps=0", "recipe.batch_size=8"]


def module_of_recipe(name, tmp_path, monkeypatch, change=lambda text: text):
    """The recipe's Python and YAML under a module name of its own: modules are imported once a process."""
    code = re.search(r'```python title="my_parts.py"\n(.*?)```', RECIPE, re.DOTALL)[1]
    yaml = re.search(r'```yaml title="conf/model/smallnet.yaml"\n(.*?)```', RECIPE, re.DOTALL)[1]
    (tmp_path / f"{name}.py").write_text(change(code))
    (tmp_path / "conf" / "model").mkdir(parents=True, exist_ok=True)
    (tmp_path / "conf" / "model" / "smallnet.yaml").write_text(yaml.replace("my_parts", name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FCA_PLUGINS", name)
    return ["hydra.searchpath=[file://conf]"]


def trained(fca, tmp_path, *words):
    folder = write_images(tmp_path / "images", per_class=20, classes=("ant", "bee"))
    code, _, err = fca("model=smallnet", f"dataset.root={folder}", *WORDS, *words)
    assert code == 0, err
    store = Store(tmp_path / "outputs")
    return folder, store, store.rows("task == 'train'").iloc[0]


@pytest.mark.slow
def test_a_network_of_the_recipe_predicts_from_its_trained_weights_and_is_exported(fca, tmp_path, monkeypatch):
    """Before, a TypeError for a component without `weights` and `classes`; with both, random weights without a word."""
    onnxruntime = pytest.importorskip("onnxruntime")
    search = module_of_recipe("parts_of_recipe", tmp_path, monkeypatch)
    folder, store, row = trained(fca, tmp_path, *search)
    run_id = row["run_id"]
    [predicted] = store.rows("task == 'predict'")["run_id"]
    logits = np.array(store.array(predicted, "logits"))
    for path in store.folder(predicted).iterdir():
        path.unlink()
    again = ["task=predict", "model=run", f"model.run_id={run_id}", f"dataset.root={folder}", *WORDS]
    code, _, err = fca(*again, *search)
    assert code == 0, err
    np.testing.assert_array_equal(store.array(predicted, "logits"), logits)

    code, out, err = fca("images/test", f"run={run_id}", door=import_module("fca.cli.predict"))
    assert (code, "written: predictions.csv" in out) == (0, True), err

    code, _, err = fca(f"run={run_id}", "format=onnx", "out=net.onnx", door=import_module("fca.cli.export"))
    assert code == 0, err
    data = StoredRun(str(store.outputs), run_id, "best").build()
    images = np.stack([data.geometry(image)[0] for image in images_of(folder)])
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["logits"], {"images": images})[0], logits, atol=1e-4)
    assert json.loads(Path("net.onnx.json").read_text())["normalise"] is None, (
        "a function of the user's, in the program"
    )


def images_of(folder):
    from PIL import Image

    for path in sorted((folder / "test").glob("*/*.png"), key=lambda path: (path.parent.name, path.name)):
        yield np.array(Image.open(path))


@pytest.mark.slow
def test_a_network_of_ones_own_that_was_never_trained_is_refused(fca, tmp_path, monkeypatch):
    search = module_of_recipe("parts_untrained", tmp_path, monkeypatch)
    folder = write_images(tmp_path / "images", per_class=4, classes=("ant", "bee"))
    words = [f"dataset.root={folder}", *WORDS, *search]
    code, _, err = fca("task=predict", "model=smallnet", *words)
    assert (code, "a model from scratch has no classes" in err) == (2, True), err
    code, _, err = fca("task=embed", "model@encoder=smallnet", *words)
    assert (code, "encoder.weights = None; allowed: weights: a model from scratch has no" in err) == (2, True), err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("fixed", "len(classes))", "10)", r"output of the network = \(\d, 10\); allowed: \(\d, 2\)"),
        (
            "mute",
            "classes=tuple(classes)",
            "classes=()",
            r"classes of the network that SmallNet builds = 0: ; allowed: 2",
        ),
        (
            "turned",
            "tuple(classes)",
            "tuple(classes)[::-1]",
            r"= 2: bee, ant; allowed: 2, as given to `build`: ant, bee",
        ),
    ],
)
def test_a_build_of_other_classes_than_asked_for_is_refused(fca, tmp_path, monkeypatch, name, old, new, message):
    change = lambda text: text.replace(old, new)  # noqa: E731
    search = module_of_recipe(f"parts_{name}", tmp_path, monkeypatch, change)
    folder = write_images(tmp_path / "images", per_class=8, classes=("ant", "bee"))
    code, _, err = fca("model=smallnet", f"dataset.root={folder}", *WORDS, *search)
    assert code == 2
    assert re.search(message, err), err


class WithOptions(nn.Linear):
    """A layer whose state has something beside tensors."""

    def get_extra_state(self):
        return {"scale": 2.0}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"what `build` of SmallNet returns = NoneType; allowed: a fca.types.Classifier"),
        (WithOptions(2, 2), r"state of the network that SmallNet builds = _extra_state: dict; allowed: tensors only"),
        (nn.LazyLinear(2), r"state of the network that SmallNet builds = weight: not made yet; allowed: tensors whose"),
    ],
)
def test_a_network_that_could_not_be_stored_is_refused_before_it_is_trained(stored_net, returned, message):
    network = returned and Classifier(returned, ("ant", "bee"), ResizeCrop(8), nn.Identity(), nn.Identity(), returned)
    with pytest.raises(FcaError, match=message):
        check_built(import_module("parts_stored").SmallNet(4, 8), network, ["ant", "bee"])


@pytest.fixture
def stored_net(tmp_path, monkeypatch):
    """A stored run of the recipe's network, and its model."""
    module_of_recipe("parts_stored", tmp_path, monkeypatch)
    made = import_module("parts_stored").SmallNet(4, 8)
    folder = tmp_path / "outputs" / "runs" / "0123456789ab"
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(json.dumps(describe_model(made, ["ant", "bee"])))
    save_file(made.build(["ant", "bee"]).module.state_dict(), folder / "best.safetensors")
    return StoredRun(str(tmp_path / "outputs"), "0123456789ab", "best"), folder / "best.safetensors"


@pytest.mark.parametrize("classes", [["cat", "dog", "owl"], ["cat", "dog"]])
def test_training_goes_on_from_a_network_of_ones_own_under_a_fresh_head(stored_net, classes):
    model, path = stored_net
    old, new = load_file(path), model.build(classes).module.state_dict()
    same = {name for name, value in old.items() if value.shape == new[name].shape and bool((value == new[name]).all())}
    assert set(new) - same == {"1.weight", "1.bias"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("0.0.weight"), "1 missing: 0.0.weight"),
        (lambda state: state.update(more=state["1.bias"].clone()), "1 unexpected: more"),
        (lambda state: state.update({"1.bias": state["0.0.bias"].clone()}), r"1 misshaped: 1.bias: .*\[4\].*\[2\]"),
        (lambda state: state["0.2.weight"].fill_(float("nan")), "NaN or infinite are 1 of 6 tensors: 0.2.weight"),
    ],
)
def test_stored_weights_that_do_not_fit_what_is_built_are_refused_by_their_tensors(stored_net, change, message):
    model, path = stored_net
    state = load_file(path)
    change(state)
    save_file(state, path)
    with pytest.raises(FcaError, match=rf"weights for what SmallNet builds = \S+best.safetensors; .*{message}"):
        model.build()
