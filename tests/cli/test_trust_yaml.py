"""A configuration file of somebody else's makes no objects, fills no memory and reads no secret: one line says so."""

import re
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fca.cli import report
from fca.cli.configure import config_of
from fca.cli.trust import _check_secrets, check_words
from fca.store.files import DamagedFile, read_yaml
from fca.types import FcaError

SECRET = "hunter2"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {k: &k [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], l: *k}\n" + "".join(
    f"{name}: &{name} {{<<: *{before}, k: [*{before}, *{before}, *{before}, *{before}]}}\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
REFUSED = {
    "a tag": ("seed: !!python/object/apply:os.system ['touch made']\n", r"has the tag \S+os\.system"),
    "a tag of Hydra's": ("outputs: !!python/object/apply:pathlib.Path [x]\n", r"has the tag \S+pathlib"),
    "a tag of one's own": ("seed: !seed 1\n", "has the tag !seed"),
    "a binary value": ("seed: !!binary aGVsbG8=\n", "has the tag"),
    "a binary file": (bytes(range(256)), "is no YAML"),
    "a wrong encoding": (b"a: \xff\xfe\n", "is no YAML"),
    "nesting": ("a: " + "[" * 100_000 + "]" * 100_000 + "\n", "nested more than 40 deep"),
    "nesting by keys": (
        "".join(" " * depth + "a:\n" for depth in range(60)) + " " * 60 + "a: 1\n",
        "nested more than 40",
    ),
    "nesting by aliases": (
        "a0: &a0 [1]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}]\n" for i in range(50)),
        "nested more",
    ),
    "an alias bomb": (BOMB, "has over 100,000 values"),
    "a bomb of merged keys": (MERGED, "has over 100,000 values"),
    "a bomb in a text": (f'"{BOMB}"', "has no keys"),
    "an alias inside of itself": ("a: &a [*a]\n", r"has the alias \*a inside of &a"),
    "a huge file": ("a: [" + "1," * 1_000_000 + "1]\n", "has 2,000,0.. bytes"),
    "a number without end": ("seed: " + "9" * 5000 + "\n", "is no YAML .*Exceeds the limit"),
    "a wrong number": ("seed: !!int abc\n", "is no YAML .*invalid literal"),
    "a list": ("- a\n- b\n", "has no keys"),
    "two documents": ("a: 1\n---\nb: 2\n", "is no YAML .*expected a single document"),
    "a key twice": ("seed: 1\nseed: 2\n", "is no YAML .*duplicate key"),
    "a list as a key": ("? [a, b]\n: 1\n", "is no YAML"),
    "no end": ("a: [1, 2\n", "is no YAML"),
}


@pytest.fixture
def folder(tmp_path):
    """A stranger's folder of configurations."""
    (tmp_path / "theirs" / "experiment").mkdir(parents=True)
    (tmp_path / "theirs" / "analysis").mkdir()
    return tmp_path / "theirs"


def write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.wide
@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_no_plain_configuration_is_refused_by_its_name_at_once(content, reason, folder, fca, tmp_path):
    write(folder / "experiment" / "x.yaml", content)
    fca("seed=0", "sweep.print=true", "limit=8", "logger=none", "model=nothing")  # what is loaded once is loaded
    begun = time.monotonic()
    code, out, err = fca("--config-dir", str(folder), "experiment=x", "sweep.print=true")
    assert time.monotonic() - begun < 10, "a second, on a machine that does nothing else"
    assert (code, err.count("\n"), "Traceback" in out + err) == (2, 1, False), err
    assert re.search(
        rf"^error: configuration file = {folder}/experiment/x.yaml; allowed: plain YAML .*{reason}", err
    ), err
    assert not (tmp_path / "made").exists()
    if "duplicate" not in reason and "digits" not in err and "has no keys" not in reason:
        write(tmp_path / "config.yaml", content)
        with pytest.raises(DamagedFile, match=reason):
            read_yaml(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("defaults", "reason"),
    [
        ("5", "defaults must be a list"),
        ("[{override /model: [{a: b}]}]", "nested list items must be strings"),
        ("[/experiment: x]", "the files that a list names lead back to it"),
    ],
)
def test_a_defaults_list_that_hydra_cannot_follow_is_refused_in_a_line(defaults, reason, folder, fca):
    write(folder / "experiment" / "x.yaml", f"# @package _global_\ndefaults: {defaults}\n")
    for words in (["seed=1"], ["-m", "seed=1,2"]):
        code, out, err = fca("--config-dir", str(folder), "experiment=x", *words)
        assert (code, err.count("\n"), "Traceback" in out + err) == (2, 1, False), err
        assert re.search(rf"^error: defaults = .*experiment=x.*; allowed: .*{reason}", err), err


def test_aliases_and_standard_tags_of_plain_values_are_yaml_like_any_other(folder, fca):
    text = (
        "# @package _global_\nrecipe: {epochs: &few 3, min_steps: *few}\nseed: !!int 7\nmodel: {name: !!str test_vit}\n"
    )
    write(folder / "experiment" / "x.yaml", text)
    code, out, err = fca("--config-dir", str(folder), "experiment=x", "--cfg", "job")
    assert code == 0, err
    assert "min_steps: 3\n" in out
    assert "seed: 7\n" in out


def test_files_of_analyses_are_read_with_the_same_care(folder, fca, tmp_path):
    for content, reason in (REFUSED["an alias bomb"], REFUSED["a tag"], REFUSED["nesting"]):
        write(folder / "analysis" / "x.yaml", content)
        words = [f"hydra.searchpath=[file://{folder}]", "report.analyses=[x]", "logger=none"]
        (tmp_path / "outputs" / "runs").mkdir(parents=True, exist_ok=True)
        code, _, err = fca(*words, door=report)
        assert (code, err.count("\n")) == (2, 1)
        assert re.search(rf"configuration file = {folder}/analysis/x.yaml; .*{reason}", err), err


# Secrets


@pytest.mark.wide
@pytest.mark.parametrize(
    "text",
    [
        "defaults: ['override /model: ${oc.env:SECRET}']",
        "defaults: [{override /model: '${oc.env:SECRET}'}]",
        "defaults: [{/model: '${oc.env:SECRET}'}]",
        "defaults: ['/model/${oc.env:SECRET}']",
        "defaults: ['${oc.env:SECRET}']",
        "defaults: [{'/model@${oc.env:SECRET}': hog}]",
        "defaults: [{/model: ['${oc.decode:${oc.env:SECRET}}']}]",
        "seed: ${oc.env:SECRET}",
        "seed: ${oc.decode:${oc.env:SECRET}}",
        "seed: ${oc.env:SECRET,0}",
        "subset: {classes: ['${oc.env:SECRET}']}",
        "${oc.env:SECRET}: 1",
        "seed: ${oc.create:${oc.env:SECRET}}",
        "seed: ${oc.env:${x}}",
        "x: SECRET",
    ],
)
def test_a_file_puts_no_secret_into_messages_and_files(text, folder, fca, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", SECRET)
    write(folder / "experiment" / "x.yaml", f"# @package _global_\n{text}\n")
    code, out, err = fca("--config-dir", str(folder), "experiment=x", "logger=none", "limit=8")
    assert (code, err.count("\n")) == (2, 1), err
    assert SECRET not in out + err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    "word",
    [
        "seed=${oc.env:SECRET}",
        "seed=0,${oc.env:SECRET}",
        "model=${oc.env:SECRET}",
        "dataset.root='a/${oc.env:SECRET}/b'",
        "+logger.tags=['${oc.decode:${oc.env:SECRET}}']",
        "outputs=${oc.env:SECRET,x}",
        "seed='${oc.env:${x}}'",
    ],
)
def test_a_typed_value_reads_no_environment(word, fca, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", SECRET)
    for words in ([word], ["-m", word, "seed=1,2"]):
        code, out, err = fca(*words, "logger=none", "limit=8")
        assert (code, err.count("\n")) == (2, 1), err
        assert f"{word}; allowed: ${{...}} of other keys" in err
        assert SECRET not in out + err
    assert not list(tmp_path.iterdir())


def test_a_typed_value_may_refer_to_other_keys():
    check_words(["recipe='fca_${model}'", "outputs=a/${seed}/${now:%Y}", "hydra.sweep.dir=${hydra:runtime.cwd}/b"])


@pytest.mark.parametrize(
    "value",
    ["${oc.env:WANDB_API_KEY}", "${oc.decode:${oc.env:MY_TOKEN}}", "a/${oc.env: DB_PASSWORD ,x}", "${oc.env:${x}}"],
)
def test_the_users_own_file_reads_variables_but_no_secret(value):
    _check_secrets("default.yaml", OmegaConf.create({"outputs": "${oc.env:SCRATCH}/outputs"}))
    with pytest.raises(FcaError, match=r"^logger.project in default.yaml = .*hold no secret"):
        _check_secrets("default.yaml", OmegaConf.create({"logger": {"project": value}}))


def test_a_stored_run_of_somebody_elses_reads_no_environment(tmp_path):
    write(tmp_path / "config.yaml", "dataset: {root: '${oc.env:HOME}'}\n")
    with pytest.raises(DamagedFile, match="refers to other values"):
        config_of(tmp_path / "config.yaml")
