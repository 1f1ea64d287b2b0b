"""A file of an analysis names its class, which has the keys, their defaults and what they mean."""

import sys
from dataclasses import fields

import pytest
from omegaconf import OmegaConf

from fca.cli import analyse
from fca.cli import help as help_command
from fca.cli.analysis_keys import with_defaults
from fca.cli.configure import component
from fca.cli.hints import values_of
from fca.cli.places import CONF
from fca.plugins import class_of, use_plugins
from fca.types import FcaError
from fca.validation import meanings_of

FILES = sorted((CONF / "analysis").glob("*.yaml"))
MINE = "\n".join(
    [
        "open('imported', 'w').close()",
        "from dataclasses import dataclass, field",
        "from typing import Annotated",
        "@dataclass(frozen=True)",
        "class Mine:",
        "    file: Annotated[str, 'what it reads']",
        "    query: str | None = None",
        "    sizes: list[int] = field(default_factory=lambda: [2, 3])",
        "    seed: Annotated[int, 'of my draws'] = 7",
    ]
)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Writes an analysis of the user's; gives the word that adds its folder. The module leaves a file when imported."""
    (tmp_path / "my_keys.py").write_text(MINE)
    (tmp_path / "conf" / "analysis").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / "conf" / "analysis" / f"{name}.yaml").write_text(text)
        return f"hydra.searchpath=[file://{tmp_path}/conf]"

    yield write
    sys.modules.pop("my_keys", None)
    use_plugins([])


def printed(fca, *words):
    code, out, err = fca(*words, "--cfg", "job", "--package", "analysis", door=analyse)
    assert code == 0, err
    return OmegaConf.to_container(OmegaConf.create(out))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_field_of_an_analysis_has_a_meaning(file):
    kind = class_of("analysis._target_", values_of(file)["_target_"])
    assert list(meanings_of(kind)) == [known.name for known in fields(kind)], "write it: Annotated[TYPE, 'MEANING']"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_ours_does_not_state_the_defaults_of_its_class_again(file):
    assert list(OmegaConf.load(file)) == ["_target_"]


def test_the_keys_of_a_class_are_printed_and_set_like_those_of_a_file(fca):
    node = printed(fca, "analysis=irt", "analysis.seed=1")
    assert (node["_target_"], node["model"], node["seed"]) == ("fca.studies.irt.irt.Irt", "2pl", 1)
    code, _, err = fca("analysis=irt", "analysis.sed=1", door=analyse)
    assert code == 2
    assert err.startswith("error: key = analysis.sed; allowed: seed, query, responses, ")
    assert "did you mean analysis.seed=1?" in err


def test_what_a_file_has_overrules_the_class_and_what_is_typed_overrules_both(fca, mine):
    word = mine("mine", "_target_: fca.studies.irt.irt.Irt\nmodel: 1pl\nseed: 5\n")
    node = printed(fca, word, "analysis=mine", "analysis.seed=6")
    assert (node["model"], node["seed"], node["hold_out"]) == ("1pl", 6, "cells")


def test_a_file_that_builds_on_another_keeps_its_values_under_a_class_of_its_own(fca, mine):
    mine("first", "_target_: fca.studies.irt.irt.Reliability\nmodel: 1pl\nseed: 5\n")
    word = mine("second", "defaults: [first, _self_]\n_target_: fca.studies.irt.irt.Irt\nseed: 6\n")
    node = printed(fca, word, "analysis=second")
    assert (node["model"], node["seed"], node["trait"]) == ("1pl", 6, "ability")


def test_keys_with_values_in_a_file_replace_those_of_the_class():
    values = {"_target_": "fca.studies.search.benchmark.SearchBenchmark", "attributes": {"a": ["p", "q"]}, "rules": []}
    made = component({"analysis": with_defaults(values)}, "analysis")
    assert made.attributes == {"a": ["p", "q"]}
    other = component({"analysis": {"_target_": values["_target_"]}}, "analysis")
    assert len(other.attributes) == 5, "those of the class stay"


@pytest.mark.wide
def test_a_key_of_a_file_that_its_class_does_not_have_is_refused(fca, mine, digits_store):
    word = mine("mine", "_target_: fca.studies.irt.irt.Irt\nsed: 5\n")
    code, _, err = fca(word, "analysis=mine", f"outputs={digits_store}", door=analyse)
    assert code == 2
    assert err.startswith("error: analysis.sed = 5; allowed: analysis.seed, "), err


def test_a_class_of_the_users_needs_to_be_listed_before_it_is_imported(fca, mine, tmp_path):
    word = mine("mine", "# Mine.\n_target_: my_keys.Mine\n")
    for words in (["analysis.seed=1"], ["--cfg", "job"]):
        code, _, err = fca(word, "analysis=mine", *words, door=analyse)
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith("error: analysis._target_ = my_keys.Mine; allowed: a component of fca, "), err
        assert "type plugins=[my_keys]" in err
    assert not (tmp_path / "imported").exists()

    node = printed(fca, word, "analysis=mine", "plugins=[my_keys]", "analysis.sizes=[4]")
    assert node == {"_target_": "my_keys.Mine", "file": "???", "query": None, "sizes": [4], "seed": 7}


def test_the_help_of_a_class_of_the_users_has_its_meanings_and_defaults(capsys, mine):
    word = mine("mine", "# Mine.\n_target_: my_keys.Mine\nseed: 8\nsizes: [2]  # of subsets\n")
    assert help_command.main("analyse", [word, "analysis=mine", "plugins=[my_keys]"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "analysis.file=??? what it reads" in text
    assert "analysis.sizes=[2] of subsets" in text, "a class that declares no meaning has that of its file"
    assert "analysis.seed=8 of my draws" in text


def test_a_file_without_a_class_is_refused():
    with pytest.raises(FcaError, match=r"analysis\._target_ = None; allowed: a component of fca"):
        with_defaults({"seed": 1})
