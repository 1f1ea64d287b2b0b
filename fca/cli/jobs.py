"""`fca.plan` and `fca.run`: what `fca run` does, from Python, for a mapping of its keys."""

from __future__ import annotations

import pickle
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fca.cli.application import RunConfig, check_word, composed
from fca.cli.configure import Job, job_of
from fca.cli.notices import gathered
from fca.cli.options import rows
from fca.cli.places import CONF
from fca.cli.results import results
from fca.cli.run import complete
from fca.cli.trust import check_file, check_words, load_yaml
from fca.plugins import use_plugins
from fca.store import ENDED_EARLY
from fca.types import FcaError
from fca.validation import rules_by_field

Keys = Mapping[str, Any]
OF_SWEEPS = ("sweep", "hydra")
LATER_FILE = CONF / "local" / "default.yaml"  # the user's own, which may change keys of any group
BRINGING_MORE = ("experiment", "debug", "hydra")  # whose options change keys of any group, or are more folders


def plan(keys: Keys) -> pd.DataFrame:
    """The runs of `fca.run(keys)` with their states, one line each; nothing is run or written.

    keys: those of `fca run`, as typed, e.g. {"dataset": "digits", "recipe.lr": 0.1, "subset.classes": ["0", "1"]}.
    Columns: run_id, task, state (as of `fca.status`, or absent), parent (the run whose weights it needs), and those of
    its configuration: model, dataset, ncl, seed, ...    Raises FcaError for what `fca run` refuses.

    >>> runs = plan({"dataset": "digits", "model": "test_resnet", "subset.classes": ["0", "1"], "outputs": "nowhere"})
    >>> runs[["task", "state", "model", "ncl"]]
          task   state        model  ncl
    0    train  absent  test_resnet    2
    1  predict  absent  test_resnet    2
    """
    job = job_of_keys(keys)
    store = job.context.store
    lines = [
        {
            "run_id": run.run_id,
            "task": run.task,
            "state": store.state(run.run_id).value,
            "parent": run.parent,
            **run.metadata,
        }
        for run in job.plan
    ]
    return pd.DataFrame(lines)


def run(keys: Keys) -> pd.DataFrame:
    """Do what `fca run` does with these keys, and return the rows of its runs, as `fca.results` has them.

    Runs that are done are not repeated.    keys: see `plan`.
    Raises FcaError for what `fca run` refuses, and for a run that fails.
    """
    job = job_of_keys(keys)
    complete(job)

    store = job.context.store
    for planned in job.plan:
        if store.state(planned.run_id) in ENDED_EARLY:
            cause = store.error(planned.run_id)["error"]
            log = store.folder(planned.run_id) / "log.txt"
            raise FcaError("run", planned.run_id, f"a run that ends well; this one did not: {cause}", f"look at {log}")

    rows = results(store.outputs).set_index("run_id", drop=False)
    finished = [planned.run_id for planned in job.plan if planned.run_id in rows.index]
    return rows.loc[finished].reset_index(drop=True)


def job_of_keys(keys: Keys) -> Job:
    """The job of `fca run` with these keys, after the checks of the command line.

    Raises FcaError, too, for keys of a sweep and an experiment that sweeps: a call is one configuration.
    """
    for key in keys:
        if key.partition(".")[0] in OF_SWEEPS and key != "hydra.searchpath":
            step = "leave it out, and call once for every configuration"
            raise FcaError("key", key, "keys of one configuration; this one is about sweeps", step)
    words = [word(key, value) for key, value in keys.items()]
    for typed in words:
        check_word("run", typed)
    check_words(words)

    if "experiment" in keys and composed("run", words, with_hydra=True).hydra.mode is RunMode.MULTIRUN:
        step = f"in a shell: {shlex.join(['fca', 'run', *words])}; or call once for each of its configurations"
        raise FcaError("experiment", keys["experiment"], "an experiment of one configuration; this one sweeps", step)
    jobs = Jobs()
    use_plugins(jobs.configuration(keys).plugins)
    with gathered():
        return jobs.job(keys)


@dataclass
class Jobs:
    """Jobs of `fca run` that differ in some keys; planning one takes milliseconds.

    Hydra takes 0.3 s to compose a choice of groups, which is done once; all other keys are set in the result.

    words: of every job, as typed.
    """

    words: Sequence[str] = ()
    _jobs: dict[tuple[str, ...], Job] = field(default_factory=dict)
    _composed: dict[tuple[str, ...], bytes] = field(default_factory=dict)  # pickled: eight times faster than deepcopy

    def job(self, keys: Keys) -> Job:
        """The job with these keys besides `words`. Raises FcaError for what `fca run` refuses."""
        words = [*self.words, *(word(key, value) for key, value in keys.items())]
        if tuple(words) not in self._jobs:
            self._jobs[tuple(words)] = job_of(self.configuration(keys), words)
        return self._jobs[tuple(words)]

    def configuration(self, keys: Keys) -> DictConfig:
        """The configuration of `fca run`, equal to the one that Hydra composes. Raises FcaError as Hydra's errors are.

        >>> Jobs().configuration({"model.input_size": 48}).model.input_size
        48
        """
        groups = tuple(word(key, value) for key, value in keys.items() if _is_composed(key))
        config = self._of_groups(groups)
        try:
            for key, value in keys.items():
                if not _is_composed(key):
                    OmegaConf.update(config, key, plain(key, value), merge=True)
        except OmegaConfBaseException:  # composing anew raises the error as the command line has it
            return composed("run", [*self.words, *(word(key, value) for key, value in keys.items())])
        return config

    def _of_groups(self, groups: tuple[str, ...]) -> DictConfig:
        """A new copy of the configuration with these choices and nothing else changed."""
        if groups not in self._composed:
            config = self._with_options(groups) or composed("run", [*self.words, *groups])
            self._composed[groups] = pickle.dumps(config)
        copied: DictConfig = pickle.loads(self._composed[groups])  # noqa: S301  of bytes that were made here
        return copied

    def _with_options(self, groups: tuple[str, ...]) -> DictConfig | None:
        """The same without Hydra, which takes 0.3 s; None where a choice may change more than the node of its group."""
        changed_by_words = {typed.lstrip("+~").partition("=")[0].partition(".")[0] for typed in self.words}
        choices = dict(typed.split("=", 1) for typed in groups)
        if not choices or LATER_FILE.is_file() or changed_by_words & {*BRINGING_MORE, *choices}:
            return None
        root = rules_by_field(RunConfig)
        nodes = {group: _option(group, name) if group in root else None for group, name in choices.items()}
        if None in nodes.values() or any(root[group][0] is not Any for group in nodes):
            return None

        config = self._of_groups(())
        with open_dict(config):
            for group, node in nodes.items():
                config[group] = node
        return config


def _option(group: str, name: str) -> DictConfig | None:
    """The keys of an option of conf/; None for one that is more than keys on top of those of an option of its group.

    Raises FcaError, as Hydra's loader does here, for keys that a file may not set.
    """
    file = CONF / group / f"{name}.yaml"
    if file in rows():
        keys = OmegaConf.create(rows()[file])
    elif not file.is_file() or "@package" in file.read_text():
        return None
    else:
        keys = load_yaml(file)
        check_file(str(file), keys)

    match keys.pop("defaults", []):
        case []:
            return keys
        case [str(base_name), "_self_"]:
            base_keys = _option(group, base_name.removesuffix("@_here_"))
            return None if base_keys is None else DictConfig(OmegaConf.merge(base_keys, keys))
    return None


def _is_composed(key: str) -> bool:
    """Whether Hydra has to compose anew: the key chooses an option of a group, or the folders with options."""
    if "." in key:
        return key.startswith("hydra.")
    root = rules_by_field(RunConfig)
    return key not in root or root[key][0] is Any


def word(key: str, value: Any) -> str:
    """A key and its value as a word of the command line.

    >>> word("model.weights", "Ann's net.pt"), word("subset.classes", ["a", "12e4"]), word("limit", None)
    ("model.weights='Ann\\\\'s net.pt'", "subset.classes=[a,'12e4']", 'limit=null')
    """
    return f"{key}={_typed(plain(key, value))}"


def _typed(value: Any) -> str:
    """A plain value in Hydra's grammar."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case dict():
            entries = ",".join(f"{_typed(key)}:{_typed(inner)}" for key, inner in value.items())
            return f"{{{entries}}}"
        case list():
            return f"[{','.join(map(_typed, value))}]"
    return str(value)


@lru_cache(maxsize=10_000)
def quoted(text: str) -> str:
    """A text as one value of Hydra's grammar, in quotes where it needs them.

    >>> quoted("digits"), quoted("Ann's photos, 2024"), quoted("true")
    ('digits', "'Ann\\\\'s photos, 2024'", "'true'")
    """
    try:
        override = OverridesParser.create().parse_overrides([f"key={text}"])[0]
    except HydraException:
        return _in_quotes(text)
    is_read_as_is = not override.is_sweep_override() and override.value() == text
    return text if is_read_as_is else _in_quotes(text)


def _in_quotes(text: str) -> str:
    return str(QuotedString(text, Quote.single).with_quotes())


def plain(key: str, value: Any) -> Any:
    """A value as YAML can hold it: paths as texts, numbers of numpy as numbers, tuples as lists.

    Raises FcaError for a value of another kind, as an object.    key: for that message.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case np.generic():
            return value.item()
        case Mapping():
            return {plain(key, name): plain(key, inner) for name, inner in value.items()}
        case list() | tuple() | np.ndarray():
            return [plain(key, inner) for inner in value]
    raise FcaError(key, value, "a text, number, truth value, None, or a list or mapping of these", f"correct {key}")
