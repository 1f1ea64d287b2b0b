"""`fca run --help`: every key has a meaning, beside it in conf/ or in its class, its default and what it may be."""

import re

import pytest
import yaml

from fca.cli import help as help_command
from fca.cli import main
from fca.cli.commands import commands, composes
from fca.cli.help import comments_of, meanings
from fca.cli.hints import values_of
from fca.cli.options import option_files, option_names, use_search_path
from fca.cli.places import CONF
from fca.plugins import class_of

WITHOUT = ("experiment", "debug", "local", "hydra")  # overlays, and Hydra's own
FILES = [
    path for path in option_files("").values() if path.parent != CONF and path.relative_to(CONF).parts[0] not in WITHOUT
]


@pytest.fixture
def shown(capsys):
    def call(root, *words, code=0):
        assert help_command.main(root, words) == code
        told = capsys.readouterr()
        return told.err if code else told.out

    return call


@pytest.mark.wide
def test_no_key_of_any_file_lacks_a_meaning():
    lacking = []
    for path in FILES:
        values = dict(values_of(path))
        target = values.pop("_target_", None)
        known = meanings(path, target, target and class_of("_target_", target))
        lacking += [f"{path.relative_to(CONF)}: {key}" for key in values if not known.get(key)]
    for root in filter(composes, commands()):
        path = CONF / f"{root}.yaml"
        keys = [key for key in yaml.safe_load(path.read_text()) if key not in ("defaults", "hydra")]
        known = comments_of(path)
        lacking += [f"{root}: {key}" for key in keys if not any(name.partition(".")[0] == key for name in known)]
    assert not lacking, "write a comment behind these keys, or for an analysis Annotated[TYPE, 'MEANING'] in its class"


def test_a_key_is_shown_with_its_default_meaning_and_allowed_values(shown):
    text = " ".join(shown("run", "all", "task=predict").split())
    assert "task.split=test train, val or test [train, val, test]" in text
    assert "seed=0 initial weights and batch order [a whole number, at least 0" in text
    assert (
        "recipe.augment.magnitude=0 strength of the operations, 0 to 30 [a whole number, at least 0, at most 30]"
        in text
    )
    assert "subset.sampler=uniform how it is drawn" in text
    assert "sweep.head=null only the first so many values of every axis [a whole number, at least 1, or null]" in text
    assert "hydra/launcher basic, gpus, joblib, ray, submitit_slurm" in text
    assert re.search(r"task adaptive_test, compile, describe, embed, latency, learning_curve, predict,", text)


@pytest.mark.parametrize("words", [[], ["all"]], ids=["short", "all"])
def test_the_keys_are_those_of_the_options_that_are_typed(shown, words):
    text = shown("run", "model=timm", "task=search", *words)
    assert "  model.name=???" in text
    assert "domain.subject=car" in text
    assert "domain.subject" not in shown("run", *words)
    assert "model=nothing" not in text


def test_the_help_of_run_shows_first_what_people_change_and_cuts_long_lists(shown):
    text = shown("run")
    first, others = text.split("other groups")
    for key in ("dataset=digits", "model=test_resnet", "subset.ncl=null", "recipe.epochs=10", "seed=0", "outputs="):
        assert f"  {key}" in first
    assert "hydra/launcher=basic" in first
    assert f"({len(option_names('dataset'))} in all: fca run dataset --help)" in " ".join(first.split())
    assert "densenet121" not in text
    assert "fca run all --help" in others
    assert 2 * len(text.splitlines()) < len(shown("run", "all").splitlines())


def test_the_short_help_reaches_every_line_of_the_long_one(shown):
    short = shown("run").splitlines()
    commands_of_groups = re.findall(r"fca run (\S+) --help", " ".join(" ".join(short).split()))
    assert set(commands_of_groups) >= {"dataset", "model", "recipe", "shift", "machine", "trainer", "all"}
    chosen = [re.match(r"  ([\w/@]+)=", line)[1] for line in short if re.match(r"  [\w/@]+=", line)]
    groups = {"dataset", "model", "task", "recipe", "logger", "machine", "trainer", "shift", "subset", "model@encoder"}
    assert groups <= set(chosen)


@pytest.mark.parametrize(
    "group", ["dataset", "shift", "recipe", "encoder", "recipe/augment", "machine", "hydra/launcher"]
)
def test_the_help_of_a_group_lists_all_its_options_and_the_keys_of_the_chosen_one(shown, group):
    text = shown("run", group)
    options = option_names({"encoder": "model"}.get(group, group))
    assert [name for name in options if not re.search(rf"^  {name}\b", text, re.MULTILINE)] == []
    if group in ("dataset", "recipe", "encoder", "machine"):
        assert re.search(rf"^  {group}\.\w+=", text, re.MULTILINE)


@pytest.mark.parametrize("root", ["analyse", "report", "generate"])
def test_every_root_has_its_help_by_the_command_line(root, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fca", root, "--help"])
    with pytest.raises(SystemExit, match="0"):
        main.main()
    assert capsys.readouterr().out.startswith(f"fca {root} KEY=VALUE ...")


def test_a_wrong_choice_is_refused_and_other_words_are_ignored(shown):
    assert "model = nothing; allowed: " in shown("run", "model=nothing", code=2)
    assert "fca run KEY=VALUE" in shown("run", "-m", "nonsense")


def test_a_comment_belongs_to_the_key_before_it(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "# head\na: 1 # one\nb: '# no'\nc: {d: 2}  # three\n"
        "e: # four\n  f: [1,\n      2]  # five\ng:\n- 1 # six\nh: #7\n  [1]\n"
    )
    assert comments_of(path) == {"a": "one", "c": "three", "e": "four", "e.f": "five", "h": "7"}
    assert comments_of(tmp_path / "none.yaml") == {}


BROKEN = {
    "bytes": b"_target_: mine.Thing\n\x80: 1\n",
    "no end": b"_target_: mine.Thing\na: [1\n",
    "a list": b"- _target_: mine.Thing\n",
    "a tag": b"_target_: mine.Thing\nkey: !!python/object/apply:os.system ['true']  # theirs\n",
    "a date that is none": b"_target_: mine.Thing\nkey: 2020-99-99  # theirs\n",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_in_a_group_takes_no_help_and_no_hint_from_the_others(tmp_path, content):
    group = tmp_path / "model"
    group.mkdir()
    (group / "broken.yaml").write_bytes(content)
    whole = group / "whole.yaml"
    whole.write_text("_target_: mine.Thing\ndefaults: [broken]\nkey: 1  # its meaning\n")
    use_search_path([f"file://{tmp_path}"])
    try:
        assert meanings(group / "other.yaml", "mine.Thing") == {"key": "its meaning"}
        assert values_of(group / "broken.yaml") == {}
        assert values_of(whole)["key"] == 1
    finally:
        use_search_path([])
