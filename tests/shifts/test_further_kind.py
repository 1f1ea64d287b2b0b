"""One more kind of corruption is a function and a row of constants: everything else follows."""

import numpy as np
import pytest
from hydra.core.config_store import ConfigStore

from fca.cli import help as help_command
from fca.cli.application import composed
from fca.cli.configure import component
from fca.cli.options import nested_options, rows, store_rows
from fca.shifts.constants import CONSTANTS, PUBLISHED
from fca.shifts.corruption import KINDS, Kind, corrupted
from fca.store import results
from tests.conftest import SMALL

COVERS = ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,))


def veil(image, cover):
    """Thin grey before the lens: x + cover (0.5 - x)."""
    return image + np.float32(cover) * (np.float32(0.5) - image)


@pytest.fixture
def with_veil(monkeypatch):
    """What a row in `FURTHER` and one in `KINDS` make, for one test."""
    monkeypatch.setitem(CONSTANTS, "veil", dict.fromkeys(CONSTANTS["fog"], COVERS))
    monkeypatch.setitem(KINDS, "veil", Kind(veil, "a veil before the lens"))
    rows.cache_clear()
    store_rows()
    yield
    rows.cache_clear()
    del ConfigStore.instance().repo["shift"]["corruption"]["veil.yaml"]


def test_its_pixels_are_those_of_its_function(with_veil):
    white = np.full((9, 9, 3), 255, np.uint8)
    assert set(corrupted(white, "veil", 5, np.random.default_rng(0)).ravel()) == {191}  # (1 + 0.5) / 2


def test_it_is_an_option_with_a_severity_and_in_help_but_not_among_the_published(with_veil, capsys):
    assert "corruption/veil" in nested_options("shift")
    labels = [shift.label() for shift in component(composed("run", ["shift=corruption/veil"]), "shift").shifts()]
    assert labels == [f"corruption/veil/{severity}" for severity in range(1, 6)]
    assert help_command.main("run", ["shift=corruption/veil"]) == 0
    assert "How much accuracy is lost to a veil before the lens?" in capsys.readouterr().out
    everything = component(composed("run", ["shift=corruption/all"]), "shift").shifts()
    assert [shift.kind for shift in everything[::5]] == list(PUBLISHED)


def test_a_model_predicts_its_images(with_veil, fca):
    assert fca("model=test_resnet", *SMALL)[0] == 0
    [trained] = results("outputs", "task == 'train'")["run_id"]
    code, _, err = fca("task=predict", "model=run", f"model.run_id={trained}", "shift=corruption/veil/3", *SMALL[:2])
    assert code == 0, err
    assert set(results("outputs", "task == 'predict'")["shift"]) == {"clean", "corruption/veil/3"}


def test_without_it_nothing_knows_it():
    assert "corruption/veil" not in nested_options("shift")
