"""Every `fca` command of the pages composes: no key, option, group or sub-command that is not there.

Those of the recipes and of the page of errors are run instead, by tests/test_docs.py.
"""

import importlib
import inspect
import re
import shlex
from itertools import chain
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from fca.cli.application import composed, hydra_words, schema_of, split_words
from fca.cli.commands import commands, composes
from fca.cli.configure import typed
from fca.cli.places import CONF
from fca.cli.selection import for_hydra
from fca.types import FcaError
from tests.support.whole_tree import removed_studies

HOME = Path(__file__).parents[1]
PAGES = [HOME / "README.md"]
PAGES += [page for folder in ("docs", "fca") for page in sorted((HOME / folder).rglob("*.md"))]  # also of studies
PAGES = [page for page in PAGES if page.parent.name != "recipes" and page.stem != "faq"]
FENCED = re.compile(r"^```.*\n([^`]*?)^```", re.MULTILINE)
COMMAND = re.compile(r"(?:^|`| {4}|; |\$ |\$\(|[A-Z]+=\w+ )fca +(.*)")
REST = re.compile(r"`|;| [|>#&]| \.\.\.|\$\(| {2}")  # where a command ends: code, shell, a remark behind it


def commands_of(text):
    """The words behind `fca`, of commands in code: fenced, indented, or between backticks."""
    text = re.sub(r" *\\\n\s*", " ", text)
    spans = re.findall(r"`fca [^`]*`", re.sub(r"\n(?=\S)", " ", text))  # they may be broken between two lines
    fenced = [line for block in FENCED.findall(text) for line in block.splitlines()]
    lines = [*fenced, *(line for line in FENCED.sub("", text).splitlines() if line.startswith("    "))]
    variables = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    for found in chain.from_iterable(COMMAND.findall(part) for part in chain(lines, spans)):
        command = re.sub(r"\$(\w+)", lambda name: variables.get(name[1], "ID"), found.replace("=...", "=ID"))
        words = [
            word
            for word in shlex.split(REST.split(command)[0])
            if not re.search(r"^(analysis|experiment)=[A-Z]+$", word)
        ]
        is_choice = any("|" in word and '"' not in word for word in words)  # between words
        if words and not words[0].isupper() and not is_choice:  # fca NAME is any command
            yield tuple(words)


def one_of_each(word):
    """The first point of a sweep, for one composition."""
    override = OverridesParser.create().parse_overrides([word])[0]
    return (
        f"{override.input_line.partition('=')[0]}={next(override.sweep_string_iterator())}"
        if override.is_sweep_override()
        else word
    )


def check(name, *words):
    """Raise FcaError or AssertionError for what `fca name words` would refuse before any work."""
    by_name = commands()
    assert name in by_name or name.startswith("-"), f"fca {name}"
    if not composes(name) or "--help" in words:
        source = ""
        if name in by_name:
            entry = importlib.import_module(by_name[name].module).main
            source = inspect.getsource(inspect.getmodule(entry))
        options = [word[2:] for word in words if word.startswith("--") and word != "--help"]
        assert not [option for option in options if not re.search(rf"[\"-]{option}\"", source)]
        return
    if words and name == "recommend" and "=" not in words[0]:
        words = (f"dataset.root={words[0]}", *words[1:])
    _, overrides = split_words(name, for_hydra(name, schema_of(name), words))
    typed_words = [part for word in overrides for part in hydra_words(one_of_each(word))]
    config = composed(name, typed_words)
    for group, content in config.items():
        if OmegaConf.is_config(content) and "_target_" in content and (CONF / group).is_dir():
            typed(OmegaConf.to_container(content, resolve=True), group)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOME)))
def test_the_commands_of_a_page_compose(page):
    wrong = []
    for words in dict.fromkeys(commands_of(page.read_text())):
        try:
            check(*words)
        except (FcaError, AssertionError, ModuleNotFoundError) as error:
            if not removed_studies():  # the pages speak of them all
                wrong.append(f"fca {shlex.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


def test_commands_are_found_where_pages_have_them_and_refused_where_they_are_wrong():
    text = '```bash\nGRID="seed=0,1"\nfca run -m $GRID sweep.print=true  # rest\n```\nfirst `fca results\n--by model`'
    assert list(commands_of(text)) == [("run", "-m", "seed=0,1", "sweep.print=true"), ("results", "--by", "model")]
    assert sum(len(list(commands_of(page.read_text()))) for page in PAGES) > 50
    for words, message in (
        (["run", "recipe.epoch=1"], "recipe.epoch"),
        (["runs"], "fca runs"),
        (["results", "--sorted"], "sorted"),
    ):
        with pytest.raises((FcaError, AssertionError), match=message):
            check(*words)
