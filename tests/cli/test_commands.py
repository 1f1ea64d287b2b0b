"""Commands are found by listing folders: those of studies here, and of a package that is listed under `plugins`."""

import sys

import pytest

from fca.cli import main
from fca.cli.commands import commands, composes
from fca.plugins import use_plugins

FILES = {
    "__init__.py": "raise RuntimeError('imported, though nobody typed its name')\n",
    "commands/sell.py": '"""The shop closes."""\n\n\ndef main(words):\n    print("sold", *words)\n    return 0\n',
    "commands/price.py": '''"""A price for a folder of images:  fca price folder=photos"""

from functools import partial

from fca.cli.application import application, check_root


def price(config):
    check_root("price", config)
    print(f"{config.folder}: {config.coins} coins")


main = partial(application, "price", price)
''',
    "roots.py": """from dataclasses import dataclass, field
from typing import Annotated

from fca.validation import Allowed


@dataclass
class PriceConfig:
    folder: str
    coins: Annotated[int, Allowed(1, 9)] = 1
    plugins: list[str] = field(default_factory=list)
    outputs: str = "outputs"


ROOTS = {"price": PriceConfig}
""",
    "conf/price.yaml": """# The root of `fca price`: what are images worth?
defaults: [price_schema, _self_]
folder: ???        # the images
coins: 2           # for all of them
plugins: []
outputs: outputs
""",
}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package with two commands; its `__init__` fails until `opened` is called."""
    for name, text in FILES.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FCA_PLUGINS", "shop")
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "shop"
    use_plugins([])
    for module in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[module]


def opened(shop):
    (shop / "__init__.py").write_text("")


def fca(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["fca", *words])
    with pytest.raises(SystemExit) as end:
        main.main()
    out, err = capsys.readouterr()
    return end.value.code, out, err


def test_commands_of_a_package_are_listed_without_importing_it(shop, monkeypatch, capsys):
    assert commands(["shop"])["sell"].summary == "the shop closes."
    code, out, _ = fca(monkeypatch, capsys, "--help")
    assert code == 0
    assert "fca price      a price for a folder of images:  fca price folder=photos" in out
    assert "shop" not in sys.modules


def test_a_command_of_a_package_takes_its_words(shop, monkeypatch, capsys):
    opened(shop)
    assert fca(monkeypatch, capsys, "sell", "apples")[:2] == (0, "sold apples\n")


def test_a_command_of_a_package_composes_its_own_root(shop, monkeypatch, capsys):
    opened(shop)
    assert composes("price", ["shop"])
    assert fca(monkeypatch, capsys, "price", "folder=photos") == (0, "photos: 2 coins\n", "")
    assert {path.name for path in shop.parent.iterdir()} == {"shop"}, "Hydra made no folder"
    code, _, err = fca(monkeypatch, capsys, "price", "folder=photos", "coins=10")
    assert (code, "coins = 10; allowed: a whole number, at least 1, at most 9" in err) == (2, True)
    code, out, _ = fca(monkeypatch, capsys, "price", "--help", "folder=photos")
    assert code == 0
    assert "coins=2" in out
    assert "for all of them" in out


def test_a_package_that_is_not_listed_has_no_command(shop, monkeypatch, capsys):
    monkeypatch.delenv("FCA_PLUGINS")
    code, _, err = fca(monkeypatch, capsys, "sell")
    assert code == 2
    assert err.startswith("error: command = sell; allowed: run, ")


def test_the_core_keeps_its_names(shop, monkeypatch, capsys):
    (shop / "commands" / "status.py").write_text('"""Not that one."""\n')
    assert commands(["shop"])["status"].module == "fca.cli.status"


def test_every_command_of_a_study_has_a_line_and_a_main():
    of_studies = [command for command in commands().values() if command.package is not None]
    assert len(of_studies) >= 3
    for command in of_studies:
        assert len(command.summary) > 20
        assert "fca " in command.summary, "an example"
