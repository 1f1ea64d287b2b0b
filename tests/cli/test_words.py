"""What can be typed: shifts as rows spell them, globs, tabs; and readers that stop early."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fca.cli import main
from fca.cli import results as results_command
from fca.cli.commands import commands
from fca.store import results
from tests.conftest import SMALL

ROOT = Path(__file__).parents[2]
PRINT = ["sweep.print=true", "logger=none"]


@pytest.fixture
def shell(tmp_path):
    """Run a line of bash that can call `fca`; returns (exit code, output, errors)."""
    script = tmp_path / "bin" / "fca"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fca.cli.main "$@"\n')
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def run(line, *program):
        done = subprocess.run(
            [*(program or ("bash", "--norc")), "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_shift_is_typed_as_rows_spell_it(fca):
    code, out, err = fca("shift=corruption/fog/3", *PRINT)
    assert code == 0, err
    assert "shift=corruption/all 'shift.kinds=[fog]' 'shift.severities=[3]'" in out


def test_shifts_are_swept_as_rows_spell_them(fca):
    code, _, err = fca("-m", "shift=clean,corruption/fog/3", *SMALL)
    assert code == 0, err
    assert set(results("outputs")["shift"]) == {"clean", "corruption/fog/3"}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("shift=corruption/fgo/3", "shift.kinds = fgo; allowed: gaussian_noise"),
        ("shift=corruption/fog/6", "shift.severities = 6; allowed: 1 (weakest) to 5"),
        ("shift=fog/corruption/3", "shift = fog/all; allowed: "),
    ],
)
def test_a_shift_that_does_not_exist_is_refused(fca, word, message):
    code, _, err = fca(word, *PRINT)
    assert code == 2
    assert message in err


def test_a_glob_sweeps_every_option_that_it_matches(fca):
    code, out, err = fca("-m", "model=glob(test_r*)", "seed=0,1", *PRINT)
    assert code == 0, err
    assert [line.count("model=test_resnet") for line in out.splitlines()] == [1, 1]


def test_adaptation_null_is_the_usual_one(fca):
    assert fca("adaptation=null", *PRINT)[0] == 0


@pytest.mark.wide
@pytest.mark.parametrize(("key", "word"), [("adaptation", "probe"), ("model", "resnet18")])
def test_a_group_as_a_plain_value_of_a_yaml_is_refused_with_the_line_that_chooses_it(fca, tmp_path, key, word):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    mine = tmp_path / "conf" / "experiment" / "mine.yaml"
    words = ["experiment=mine", f"hydra.searchpath=[file://{tmp_path}/conf]", *PRINT]
    mine.write_text(f"# @package _global_\n{key}: {word}\n")
    for mode in ([], ["-m", "seed=0,1"]):
        code, _, err = fca(*mode, *words)
        assert (code, len(err.splitlines())) == (2, 1), err
        assert f"{key} = {word}; allowed: an option of the group {key}" in err
        assert f"`- override /{key}: {word}`, or type {key}={word}" in err
    mine.write_text(f"# @package _global_\ndefaults:\n  - override /{key}: {word}\nrecipe: {{epochs: 2}}\n")
    assert fca(*words, *["model=hog"] * (key == "adaptation"))[0] == 0


@pytest.mark.parametrize("words", [["subset=fca"], ["subset=fca", "subset.seed=3"], ["-m", "subset=fca", "seed=0,1"]])
def test_subsets_of_the_arena_need_their_number_of_classes(fca, words):
    code, _, err = fca(*words, *PRINT)
    assert code == 2
    assert "subset.ncl = None; allowed: 2 to 10 for subset=fca; next: add subset.ncl=5" in err
    assert fca(*words, "subset.ncl=5", *PRINT)[0] == 0


def test_results_may_name_a_column_that_a_task_declares_though_no_run_has_it(fca):
    assert fca("task=embed", "logger=none", "limit=2")[0] == 0
    assert fca("--query", "similarity_calls > 3", door=results_command)[0] == 0
    code, out, _ = fca("--columns", "task,similarity_calls", door=results_command)
    assert (code, out.split()[-1]) == (0, "embed")
    code, _, err = fca("--columns", "run_id,similarity_cals", door=results_command)
    assert (code, "--columns = similarity_cals; allowed: similarity_calls, " in err) == (2, True)


@pytest.mark.parametrize("command", ["--help", pytest.param("run --help", marks=pytest.mark.slow), "status --help"])
def test_a_reader_that_stops_early_ends_quietly(shell, command):
    code, _, err = shell(f"set -o pipefail; fca {command} | true")
    assert (code, err) == (0, "")


TABS = {
    "fca ": list(commands()),
    "fca re": ["report", "results", "recommend"],
    "fca run model=test_res": ["model=test_resnet"],
    "fca run subset.nc": ["subset.ncl="],
    "fca run -m seed=1,2 shift=cl": ["shift=clean"],
    "fca run shift=corruption/fo": ["shift=corruption/fog"],
    "fca run shift=cifar_c": ["shift=cifar_c/all"],
    "fca analyse analysis=few": ["analysis=few_class"],
    "fca results --fo": ["--format"],
    "fca results --format ": ["table", "csv", "json", "markdown", "parquet"],
    "fca results nc": ["ncl="],
    "fca status --wa": ["--watch"],
    "fca status ": ["--help", "--outputs", "--watch", "--retry-failed", "--release-stale"],
    "fca bank an": ["anchors"],
    "fca bank anchors --sa": ["--save"],
    "fca wandb s": ["sync"],
    "fca wandb report r": [],
    "fca wandb sync --dr": ["--dry-run"],
}


ZSH = """
autoload -Uz compinit && compinit -u -d $PWD/zcompdump
eval "$(fca -sc install=zsh)"
print "registered $_comps[fca]"
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -r -- got: ${(M)@:#${words[CURRENT]}*} }
tab() { words=(${(s: :)1}); [[ $1 == *" " ]] && words+=(""); CURRENT=$#words; _fca }
"""
FISH = "fca -sc install=fish | source; function tab; echo got: (complete -C $argv[1]); end"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "install"), [(["zsh", "-f"], ZSH), (["fish", "--no-config"], FISH)], ids=["zsh", "fish"]
)
def test_a_tab_in_zsh_and_fish_completes_what_is_typed(shell, program, install):
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed here")
    asked = [install, *(f"tab '{typed}'" for typed in TABS)]
    code, out, err = shell("\n".join(asked), *program)
    assert (code, err) == (0, "")
    offered = [line.split()[1:] for line in out.splitlines() if line.startswith("got:")]
    assert [sorted(names) for names in offered] == [sorted(names) for names in TABS.values()]


INSTALLED_BY = ("fca -sc install=bash", "fca run -sc install=bash")


def completed(shell, installed_by, lines):
    """What a tab offers for each of these lines in a shell in which completion was installed."""
    asked = [f'eval "$({installed_by})"', "complete -p fca", "complete -p run"]
    for typed in lines:
        words = typed.split() + [""] * typed.endswith(" ")
        asked.append(f"COMP_LINE='{typed}' COMP_POINT={len(typed)} COMP_CWORD={len(words) - 1}")
        asked.append('hydra_bash_completion; echo "got: ${COMPREPLY[*]}"')
    _, out, err = shell("\n".join(asked))
    assert "-F hydra_bash_completion fca" in out
    assert err.splitlines() == ["bash: line 3: complete: run: no completion specification"], "only fca is completed"
    return [line.split()[1:] for line in out.splitlines() if line.startswith("got:")]


@pytest.mark.slow
@pytest.mark.parametrize("installed_by", INSTALLED_BY)
def test_a_tab_in_a_shell_completes_what_is_typed(shell, installed_by):
    assert completed(shell, installed_by, TABS) == list(TABS.values())


@pytest.mark.slow
def test_a_tab_in_a_shell_completes_a_command_and_an_option(shell):
    lines = ["fca re", "fca run model=test_res"]
    assert completed(shell, INSTALLED_BY[0], lines) == [TABS[line] for line in lines]


@pytest.mark.parametrize("typed", TABS)
def test_what_the_shell_asks_at_a_tab_offers_what_begins_as_the_last_word(typed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fca", "-sc", "query=bash"])
    monkeypatch.setenv("COMP_LINE", typed)
    with pytest.raises(SystemExit, match="0"):
        main.main()
    word = typed.rpartition(" ")[2]
    offered = capsys.readouterr().out.split()
    assert [one for one in offered if one.startswith(word)] == TABS[typed], "bash shows those"


def test_both_commands_install_the_same_completion(monkeypatch, capsys):
    scripts = []
    for line in INSTALLED_BY:
        monkeypatch.setattr(sys, "argv", line.split())
        with pytest.raises(SystemExit, match="0"):
            main.main()
        scripts.append(capsys.readouterr().out)
    assert scripts[0] == scripts[1]
    assert scripts[0].endswith(" -F hydra_bash_completion fca\n")
