"""Shared by all tests: the command line in process, and one small study on embedded images."""

import copy
import functools
import gc
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from omegaconf import open_dict

from fca.cli import run as run_door
from fca.cli.places import CONF
from tests import calls
from tests.support.digits_store import write_digits_store
from tests.support.figure_claims import FigureClaims

hypothesis.settings.register_profile("no deadline", deadline=None)  # other work on the machine is no failure
hypothesis.settings.load_profile("no deadline")
gc.disable()  # until all modules are imported: they stay

SMALL = ["logger=none", "limit=8", "recipe.epochs=1", "recipe.min_steps=0"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs FigureClaims over every figure of a study, and few lines and many."""
    if metafunc.cls and issubclass(metafunc.cls, FigureClaims):
        if "shown" in metafunc.fixturenames:
            findings = [finding for finding in metafunc.cls.FINDINGS if finding.draw is not None]
            metafunc.parametrize("shown", findings, ids=lambda shown: shown.key)
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", metafunc.cls.CASES)


def pytest_collection_modifyitems(items):
    if "FCA_REAL_DATA" not in os.environ:
        for item in items:
            if "real" in item.keywords:
                item.add_marker(
                    pytest.mark.skip(reason="needs FCA_REAL_DATA: a folder of real images, weights, answers")
                )


def pytest_runtest_setup():
    calls.clear()


def pytest_collection_finish():
    """What was imported is no garbage: it is not looked through again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk():
    """What is written outlives a killed process anyway; only a power cut needs more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """What files contain is remembered, but not in the cache of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def hydra_parses_a_file_once():
    """A composition takes half the time: Hydra would parse 20 files for each, and copy its registry deeply.

    Nothing in the registry is changed by a composition, which at most puts another list of sources in its place.
    """
    Plugins.instance()  # finds the sources
    files = SourcesRegistry.instance().resolve("file")
    parse, parsed = files.load_config, {}

    def load(source, config_path):
        path = Path(source.path, source._normalize_file_name(config_path)).resolve()
        if not path.is_file():
            return parse(source, config_path)
        stat = path.stat()
        key = (source.path, source.provider, path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if key not in parsed:
            parsed[key] = parse(source, config_path)
        return copy.deepcopy(parsed[key])  # which is to be filled

    def begin(repository, delegate):
        repository.delegate, repository.cache = copy.copy(delegate), {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "load_config", load)
        patch.setattr(CachingConfigRepository, "__init__", begin)
        yield


@pytest.fixture(autouse=True, scope="session")
def hydra_composes_the_same_groups_once():
    """Keys are set on a copy of the composed groups, by Hydra's own function: 3 ms instead of 110.

    What takes files from elsewhere is left to Hydra; tests/cli/test_compose.py compares.
    """
    compose, made = ConfigLoaderImpl._load_configuration_impl, {}

    @functools.wraps(compose)
    def load(self, config_name, overrides, run_mode, from_shell=True, validate_sweep_overrides=True):
        words = OverridesParser.create().parse_overrides(overrides)
        set_here = [word for word in words if not word.is_sweep_override()]
        groups = [word for word in set_here if self.repository.group_exists(word.key_or_group)]
        main = next((source.path for source in self.repository.get_sources() if source.provider == "main"), None)
        elsewhere = main != str(CONF) or any(word.key_or_group == "hydra.searchpath" for word in words)
        if elsewhere or any(isinstance(word.value(), dict) for word in groups):
            return compose(self, config_name, overrides, run_mode, from_shell, validate_sweep_overrides)
        if validate_sweep_overrides:
            self.validate_sweep_overrides_legal(words, run_mode, from_shell)
        key = (config_name, JobRuntime.instance().get("name"))  # of the command
        key += tuple(source.path for source in self.repository.get_sources())
        key += tuple(word.input_line for word in groups)
        if key not in made:  # for any run_mode, in which only groups without an option (`???`) differ: no root has one
            lines = [word.input_line for word in groups]
            made[key] = pickle.dumps(compose(self, config_name, lines, run_mode, from_shell, False))
        config = pickle.loads(made[key])
        self._apply_overrides_to_config([word for word in set_here if word not in groups], config)
        of_task = [word for word in words if not word.is_hydra_override()]
        with open_dict(config.hydra):
            config.hydra.overrides.task = [word.input_line for word in of_task]
            config.hydra.overrides.hydra = [word.input_line for word in words if word.is_hydra_override()]
            config.hydra.runtime.cwd = str(Path.cwd())
            names = config.hydra.job.config.override_dirname
            config.hydra.job.override_dirname = get_overrides_dirname(of_task, **names)
        return config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigLoaderImpl, "_load_configuration_impl", load)
        yield


@pytest.fixture(autouse=True)
def own_signals():
    """No test leaves its handlers to the next; SIGINT is heard even where these tests ignore it, as under nohup."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def no_tracking_account(monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)


@pytest.fixture(scope="session")
def digits_store(tmp_path_factory) -> Path:
    """A store that nobody adds to: take a copy."""
    outputs = tmp_path_factory.mktemp("digits") / "outputs"
    write_digits_store(outputs)
    return outputs


@pytest.fixture
def fca(tmp_path, monkeypatch, capsys):
    """Run a door in this process; returns (exit code, output, errors). The store is tmp_path/outputs."""
    monkeypatch.chdir(tmp_path)

    def call(*words, door=run_door):
        monkeypatch.setattr(sys, "argv", list(sys.argv))
        try:
            code = door.main(list(words))
        except SystemExit as error:
            code = error.code
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def start():
    """Start `fca` as a process of its own; those still alive are ended with the test."""
    started = []

    def begin(*words, cwd):
        command = [sys.executable, "-m", "fca.cli.main", *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()
