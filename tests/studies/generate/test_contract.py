"""A generator of one's own has all parts of its contract, or is refused."""

import sys

import pytest

from fca.cli.configure import component
from fca.plugins import use_plugins
from fca.studies.generate.protocols import Generator
from fca.types import FcaError

WITHOUT_A_PART = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Painter:
    prompted = parallel = False
    def label(self): return "painter"
    def price(self): return 0.0
    def draw(self, request): raise NotImplementedError
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a generator."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "painter.py").write_text(WITHOUT_A_PART)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    use_plugins([])
    for module in ("shop", "shop.painter"):
        sys.modules.pop(module, None)


@pytest.mark.usefixtures("package")
def test_a_generator_that_lacks_a_part_is_refused_also_inside_a_data_set():
    use_plugins(["shop"])
    generator = {"_target_": "shop.painter.Painter"}
    with pytest.raises(FcaError, match=r"^generator\._target_ = shop.*add to Painter: version"):
        component({"generator": generator}, "generator", Generator)

    dataset = {"_target_": "fca.studies.generate.on_demand.OnDemand", "root": "x", "plan": None, "generator": generator}
    with pytest.raises(FcaError, match=r"^dataset\.generator\._target_ = shop.*add to Painter: version"):
        component({"dataset": dataset}, "dataset")
