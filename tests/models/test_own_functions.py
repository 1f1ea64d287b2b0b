import itertools
import sys

import numpy as np
import pytest
import skimage.data
import torch

from fca.models.own import mean_colour
from fca.models.pair import structural_similarity
from fca.plugins import class_of, use_plugins
from fca.types import FcaError

MODULES = itertools.count()  # a name of its own for every test's module: Python imports a name once


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a user's module into the current folder, and lists it as a plugin; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        name = f"users_module_{next(MODULES)}"
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setenv("FCA_PLUGINS", name)
        return name

    return write


def test_an_embedding_sees_the_very_bytes_and_gives_its_features(model, module):
    name = module(
        "seen = []\ndef embed(pixels):\n    seen.append(pixels)\n    return pixels.reshape(len(pixels), -1)\n"
    )
    encoder = model("own", f"model.function={name}.embed", "model.input_size=16").build()
    image = skimage.data.astronaut()[:32, :32]
    pixels, _ = encoder.geometry(image)
    features = encoder.embed(encoder.normalise(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255))
    assert features.dtype == torch.float32
    np.testing.assert_array_equal(features.numpy()[0], pixels.ravel())
    every = torch.arange(256).float().view(1, 1, 16, 16).expand(1, 3, 16, 16) / 255
    assert set(encoder.embed(every).flatten().tolist()) == set(map(float, range(256))), "a byte was lost on the way"


def test_the_shipped_embedding_is_mean_and_deviation_of_each_colour(model):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    found = model("own").build().embed(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    expected = [
        [*(image[..., c].mean() / 255 for c in range(3)), *(image[..., c].std() / 255 for c in range(3))]
        for image in pixels
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)  # float32
    assert mean_colour(pixels).shape == (2, 6)


def test_the_source_is_the_identity(model, module, tmp_path):
    name = module("def embed(pixels):\n    return pixels.mean((1, 2))\n")
    made = model("own", f"model.function={name}.embed")
    before = made.identity()
    assert before["function"] == f"{name}.embed"
    (tmp_path / f"{name}.py").write_text("def embed(pixels):\n    return pixels.max((1, 2))\n")
    assert made.identity()["source"] != before["source"]


def test_planning_does_not_run_the_module(model, module):
    name = module("raise SystemExit('planning ran me')\n")
    assert model("own", f"model.function={name}.embed").identity()["family"] == "own"
    assert model("pair", f"model.function={name}.sim").identity()["family"] == "pair"


@pytest.mark.parametrize(
    ("text", "function", "said"),
    [
        ("def embed(p): return p.mean()", "embed", r"embed -> \(\); allowed: .* shape \(2, features\)"),
        ("def embed(p): return p[:1].mean((1, 2))", "embed", r"embed -> \(1, 3\)"),
        (
            "def embed(p): return p.mean((1, 2)) * float('nan')",
            "embed",
            "allowed: a function that gives finite numbers",
        ),
        ("def embed(p): return p.no_such", "embed", r"a function of uint8 \(2, 8, 8, 3\) \(AttributeError: "),
        ("def embed(p): return [[1], [2, 3]]", "embed", r"a function of uint8 \(2, 8, 8, 3\) \(ValueError: "),
        ("def embed(p): return [['a'], ['b']]", "embed", r"a function of uint8 \(2, 8, 8, 3\) \(ValueError: "),
        ("embed = 3", "embed", r"embed; allowed: the name of a function in"),
        ("import no_such_module", "embed", "allowed: a module that imports .ModuleNotFoundError"),
    ],
)
def test_a_function_that_is_none_or_gives_something_else_is_named(model, module, text, function, said):
    made = model("own", f"model.function={module(text)}.{function}", "model.input_size=8")
    with pytest.raises(FcaError, match=said):
        made.build().embed(torch.rand(2, 3, 8, 8))


def test_a_function_may_import_its_neighbours_when_it_is_called(model, module):
    helper = module("def twice(numbers): return 2 * numbers\n")
    name = module(f"def embed(pixels):\n    import {helper}\n    return {helper}.twice(pixels.mean((1, 2)))\n")
    encoder = model("own", f"model.function={name}.embed", "model.input_size=8").build()
    assert encoder.embed(torch.ones(1, 3, 8, 8)).tolist() == [[510, 510, 510]]


def test_a_package_that_fails_is_refused_while_planning(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_package").mkdir()
    monkeypatch.setenv("FCA_PLUGINS", "another, broken_package")
    (tmp_path / "broken_package" / "__init__.py").write_text("1 / 0\n")
    (tmp_path / "broken_package" / "mine.py").write_text("def embed(pixels): return pixels\n")
    with pytest.raises(FcaError, match=r"model.function = broken_package.mine.embed; allowed: module.name"):
        model("own", "model.function=broken_package.mine.embed").identity()


@pytest.mark.parametrize("function", ["no_such_module.embed", "no.such.package.embed"])
def test_a_module_that_is_not_there_is_refused_while_planning(model, function, monkeypatch):
    monkeypatch.setenv("FCA_PLUGINS", "no_such_module,no")
    for name in ("own", "pair"):
        with pytest.raises(FcaError, match=f"model.function = {function}; allowed: module.name, with the module in"):
            model(name, f"model.function={function}").identity()


def test_a_pair_function_is_asked_with_uint8_images_of_one_size(model, module):
    text = "def sim(a, b):\n    assert a.dtype == b.dtype == 'uint8'\n    return 1 - abs(a.mean() - b.mean()) / 255\n"
    made = model("pair", f"model.function={module(text)}.sim", "model.input_size=16")
    first, second = (made.geometry(image[:40, :40])[0] for image in (skimage.data.astronaut(), skimage.data.cat()))
    assert first.shape == second.shape == (16, 16, 3)
    assert made.similarity(first, second) == pytest.approx(1 - abs(first.mean() - second.mean()) / 255)


@pytest.mark.parametrize("value", ["1.01", "-0.01", "float('nan')", "'high'", "None"])
def test_a_similarity_outside_0_to_1_is_refused_with_its_value(model, module, value):
    made = model("pair", f"model.function={module(f'def sim(a, b): return {value}')}.sim", "model.input_size=8")
    black = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(FcaError, match=r"sim -> \S+; allowed: a number in \[0, 1\]"):
        made.similarity(black, black)


def test_the_shipped_pair_function_orders_likeness():
    photo = skimage.data.astronaut()[:64, :64]
    noise = np.random.default_rng(0).integers(0, 256, photo.shape, dtype=np.uint8)
    blurred = (photo // 16) * 16
    assert structural_similarity(photo, photo) == pytest.approx(1)
    assert 1 > structural_similarity(photo, blurred) > structural_similarity(photo, noise) > 0
    assert structural_similarity(photo, noise) == pytest.approx(structural_similarity(noise, photo))


def test_the_shipped_functions_are_what_their_recorded_sources_computed():
    """Their identities do not follow their file: whoever changes what they compute records a new source in SHIPPED."""
    photo = skimage.data.astronaut()[:64, :64]
    expected = [0.326262, 0.292323, 0.366284, 0.283595, 0.287938, 0.220872]
    np.testing.assert_allclose(mean_colour(photo[None])[0], expected, atol=1e-6)  # the digits written here
    assert structural_similarity(photo, photo[:, ::-1]) == pytest.approx(0.582992, abs=1e-6)


def test_a_pair_function_cannot_be_built_and_needs_pairs(model):
    with pytest.raises(FcaError, match="gives neither features nor logits; next: use it as model@encoder=pair"):
        model("pair").build()
    with pytest.raises(FcaError, match=r"model.images_per_class = 1; allowed: a whole number, at least 2"):
        model("pair", "model.images_per_class=1").identity()


@pytest.mark.parametrize("function", ["embed", "os.system", "fca.store.files.write_text", "fca.models.own.source_of"])
def test_a_function_of_a_module_that_is_not_listed_is_refused_and_not_imported(model, function):
    for name in ("own", "pair"):
        with pytest.raises(FcaError, match=f"model.function = {function}; allowed: fca.models.own.mean_colour, ") as no:
            model(name, f"model.function={function}").identity()
        assert "type plugins=[" in str(no.value)


def test_a_listed_module_lists_what_is_in_it_and_nothing_that_begins_like_it(model, module, tmp_path):
    name = module("def embed(pixels): return pixels.mean((1, 2))\n")
    (tmp_path / f"{name}more.py").write_text("raise SystemExit('imported')\n")
    with pytest.raises(FcaError, match="of a module that you list"):
        model("own", f"model.function={name}more.embed").build()


def test_our_own_functions_import_nothing_from_the_current_folder(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a folder of images that somebody else made
    (tmp_path / "skimage").mkdir()
    (tmp_path / "skimage" / "metrics.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.delitem(sys.modules, "skimage.metrics", raising=False)
    monkeypatch.delitem(sys.modules, "skimage", raising=False)
    assert model("pair").similarity(*[np.zeros((32, 32, 3), np.uint8)] * 2) == 1


def test_a_module_of_the_current_folder_may_be_listed(fca, tmp_path):
    (tmp_path / "mine_of_the_folder.py").write_text("def embed(pixels): return pixels.mean((1, 2))\n")
    own = ["task=embed", "model@encoder=own", "encoder.function=mine_of_the_folder.embed"]
    code, _, err = fca(*own, "plugins=[mine_of_the_folder]", "limit=4", "logger=none")
    assert code == 0, err


def test_classes_of_a_listed_module_are_imported_from_where_python_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes_of_the_folder.py").write_text("raise SystemExit('imported')\n")
    use_plugins(["classes_of_the_folder"])
    with pytest.raises(FcaError, match="add the folder that has it: PYTHONPATH=FOLDER"):
        class_of("model._target_", "classes_of_the_folder.Network")
    use_plugins([])
