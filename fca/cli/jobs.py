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
NODES_OF_SWEEPS = ("sweep", "hydra")
USERS_OWN_FILE = CONF / "local" / "default.yaml"  # composed after all others, it may change keys of any group
GROUPS_THAT_CHANGE_OTHERS = ("experiment", "debug", "hydra")  # their options change keys of others, or add folders


def plan(keys: Keys) -> pd.DataFrame:
    """A table with one line for each run that `fca.run(keys)` would do, and its state; nothing is run or written.

    keys: those of `fca run`, as typed, e.g. {"dataset": "digits", "recipe.lr": 0.1, "subset.classes": ["0", "1"]}.
    Columns: run_id, task, state (as of `fca.status`, or absent), parent (id of the run whose weights it needs), and
    those of its configuration: model, dataset, ncl, seed, ...
    Raises FcaError for what `fca run` refuses.

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
    """Do what `fca run` does with these keys, and return a table with one line for each finished run.

    The columns are those of `fca.results`. Runs that are already done are not repeated.
    keys: see `plan`.
    Raises FcaError for what `fca run` refuses, and for a run that fails.
    """
    job = job_of_keys(keys)
    complete(job)  # does the unfinished runs; a run that fails is only recorded

    store = job.context.store
    for planned in job.plan:
        if store.state(planned.run_id) in ENDED_EARLY:
            cause = store.error(planned.run_id)["error"]
            log = store.folder(planned.run_id) / "log.txt"
            raise FcaError("run", planned.run_id, f"a run that ends well; this one did not: {cause}", f"look at {log}")

    rows = results(store.outputs).set_index("run_id", drop=False)  # so that rows can be selected by id
    # a run has no row if it needs the weights of a training that diverged
    finished_ids = [planned.run_id for planned in job.plan if planned.run_id in rows.index]
    return rows.loc[finished_ids].reset_index(drop=True)


def job_of_keys(keys: Keys) -> Job:
    """The job of `fca run` with these keys, with its runs planned, after the checks that the command line has.

    keys: see `plan`.
    Raises FcaError for what `fca run` refuses, for keys of a sweep, and for an experiment that sweeps, since a call
    from Python is one configuration.
    """
    for key in keys:
        root = key.partition(".")[0]  # the nodes of sweeps are sweep and hydra
        is_allowed = key == "hydra.searchpath"  # only adds folders with options
        if root in NODES_OF_SWEEPS and not is_allowed:
            step = "leave it out, and call once for every configuration"
            raise FcaError("key", key, "keys of one configuration; this one is about sweeps", step)

    words = [word(key, value) for key, value in keys.items()]  # KEY=VALUE, as on a command line
    for typed in words:
        check_word("run", typed)  # the form of the word, and the kind of its value
    check_words(words)  # whether a word would run code or read the environment

    # an experiment may turn a command into a sweep by hydra.mode; composing, which takes 0.3 s, shows it
    if "experiment" in keys and composed("run", words, with_hydra=True).hydra.mode is RunMode.MULTIRUN:
        step = f"in a shell: {shlex.join(['fca', 'run', *words])}; or call once for each of its configurations"
        raise FcaError("experiment", keys["experiment"], "an experiment of one configuration; this one sweeps", step)
    jobs = Jobs()
    use_plugins(jobs.configuration(keys).plugins)  # imports the plugins before the planning, as the command line does
    with gathered():  # each warning of the planning is printed once, with its count
        return jobs.job(keys)


@dataclass
class Jobs:
    """Jobs of `fca run` that differ in some keys; planning one takes milliseconds.

    Hydra takes 0.3 s to compose a choice of groups, which is done once; all other keys are set in the result.

    words: overrides of every job, as typed.
    """

    words: Sequence[str] = ()
    _jobs: dict[tuple[str, ...], Job] = field(default_factory=dict)  # words of a job -> the job
    # choices of groups -> the configuration; pickled, which is eight times faster than deepcopy
    _composed: dict[tuple[str, ...], bytes] = field(default_factory=dict)

    def job(self, keys: Keys) -> Job:
        """The planned job with these keys besides `words`. Raises FcaError for what `fca run` refuses."""
        words = [*self.words, *(word(key, value) for key, value in keys.items())]
        if tuple(words) not in self._jobs:
            self._jobs[tuple(words)] = job_of(self.configuration(keys), words)
        return self._jobs[tuple(words)]

    def configuration(self, keys: Keys) -> DictConfig:
        """The configuration of `fca run` with these keys besides self.words, equal to the one that Hydra composes.

        A key that chooses an option of a group (model, dataset, ...) needs Hydra, which is slow. The result of these
        choices is kept, and the other keys are set in a copy of it.
        Raises FcaError for what Hydra refuses, with the text that the command line shows.

        >>> Jobs().configuration({"model.input_size": 48}).model.input_size
        48
        """
        choices = tuple(word(key, value) for key, value in keys.items() if _needs_composition(key))  # GROUP=OPTION
        config = self._with_choices(choices)
        try:
            for key, value in keys.items():
                if not _needs_composition(key):
                    OmegaConf.update(config, key, plain(key, value), merge=True)
        except OmegaConfBaseException:  # OmegaConf refuses a key or value
            all_words = [*self.words, *(word(key, value) for key, value in keys.items())]
            config = composed("run", all_words)  # raises FcaError as the command line does, unless Hydra accepts them
        return config

    def _with_choices(self, choices: tuple[str, ...]) -> DictConfig:
        """A copy of the configuration with these choices of options, which the caller may change.

        choices: each as GROUP=OPTION.
        """
        if choices not in self._composed:
            config = self._without_hydra(choices) or composed("run", [*self.words, *choices])
            self._composed[choices] = pickle.dumps(config)
        copied: DictConfig = pickle.loads(self._composed[choices])  # noqa: S301  of bytes that were made here
        return copied

    def _without_hydra(self, choices: tuple[str, ...]) -> DictConfig | None:
        """The configuration with these choices, composed without the 0.3 s that Hydra takes.

        The keys of each chosen option replace the node of its group in the default configuration.
        None if the result might differ from Hydra's, since a choice may change more than the node of its group. Then
        the caller uses Hydra.
        choices: each as GROUP=OPTION.
        """
        # first part of the key of each override: +model.name=x -> model
        changed_by_words = {typed.lstrip("+~").partition("=")[0].partition(".")[0] for typed in self.words}
        option_of_group = dict(choice.split("=", 1) for choice in choices)
        if not option_of_group:  # the default configuration, in which nodes are replaced, comes from Hydra
            return None
        if USERS_OWN_FILE.is_file():  # it may change keys of any group
            return None
        # replacing a node would undo changes that `words`, or an experiment in `words`, made in it
        if changed_by_words & {*GROUPS_THAT_CHANGE_OTHERS, *option_of_group}:
            return None

        type_and_rule_of_key = rules_by_field(RunConfig)
        nodes: dict[str, DictConfig] = {}  # group -> keys of the chosen option
        for group, name in option_of_group.items():
            # a group with its node in the root of the configuration is declared there with the type Any; others, such
            # as recipe/augment, have their node elsewhere
            is_group_of_root = group in type_and_rule_of_key and type_and_rule_of_key[group][0] is Any
            keys = _option_keys(group, name) if is_group_of_root else None
            if keys is None:  # only Hydra can compose this choice
                return None
            nodes[group] = keys

        config = self._with_choices(())  # the default configuration
        with open_dict(config):
            for group, node in nodes.items():
                config[group] = node
        return config


def _option_keys(group: str, name: str) -> DictConfig | None:
    """The keys and values of an option, such as model=resnet18; None for an option that only Hydra can compose.

    The keys are in the file conf/<group>/<name>.yaml, or in a table of many options (options.yaml). The option may
    build on one other option of its group, whose keys it changes. Only Hydra can compose an option that is in no such
    file or table, that sets keys of other groups, or that builds on other options in another way.
    Raises FcaError, as Hydra's loader does here, for keys that a file may not set.
    """
    file = CONF / group / f"{name}.yaml"
    keys_by_file = rows()  # the options in tables: path that the option would have as a file -> its keys
    if file in keys_by_file:
        keys = OmegaConf.create(keys_by_file[file])
    elif not file.is_file() or "@package" in file.read_text():  # @package: it sets keys of other groups
        return None
    else:
        keys = load_yaml(file)
        check_file(str(file), keys)

    match keys.pop("defaults", []):  # Hydra's list of the options on which this one builds
        case []:
            return keys
        case [str(base_name), "_self_"]:  # one option, changed by the keys of this one (_self_)
            # @_here_ places the keys of the other option where those of this one go, as they are merged here
            base_keys = _option_keys(group, base_name.removesuffix("@_here_"))
            return None if base_keys is None else DictConfig(OmegaConf.merge(base_keys, keys))
    return None  # any other list of defaults


def _needs_composition(key: str) -> bool:
    """Whether Hydra has to compose anew: the key chooses an option of a group, or adds folders with options."""
    if "." in key:  # a key within a node, such as model.weights; but hydra.searchpath adds folders
        return key.startswith("hydra.")
    type_and_rule_of_key = rules_by_field(RunConfig)
    is_group_of_task = key not in type_and_rule_of_key  # a task may have groups that not all runs have
    return is_group_of_task or type_and_rule_of_key[key][0] is Any  # all other groups are declared with the type Any


def word(key: str, value: Any) -> str:
    """A key and its value as a word of the command line, KEY=VALUE, in Hydra's grammar.

    >>> word("model.weights", "Ann's net.pt"), word("subset.classes", ["a", "12e4"]), word("limit", None)
    ("model.weights='Ann\\\\'s net.pt'", "subset.classes=[a,'12e4']", 'limit=null')
    """
    return f"{key}={_in_hydras_grammar(plain(key, value))}"


def _in_hydras_grammar(value: Any) -> str:
    """A value as text in the grammar of Hydra's command line: None is null, and texts are quoted where necessary.

    value: of the types that `plain` returns.
    """
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case dict():
            entries = ",".join(f"{_in_hydras_grammar(key)}:{_in_hydras_grammar(inner)}" for key, inner in value.items())
            return f"{{{entries}}}"
        case list():
            return f"[{','.join(map(_in_hydras_grammar, value))}]"
    return str(value)


@lru_cache(maxsize=10_000)
def quoted(text: str) -> str:
    """A text as one value of Hydra's grammar, in quotes if Hydra would otherwise read it as anything but this text.

    >>> quoted("digits"), quoted("Ann's photos, 2024"), quoted("true")
    ('digits', "'Ann\\\\'s photos, 2024'", "'true'")
    """
    try:
        override = OverridesParser.create().parse_overrides([f"key={text}"])[0]
    except HydraException:  # the text breaks Hydra's grammar
        return _in_quotes(text)
    is_read_as_this_text = not override.is_sweep_override() and override.value() == text
    return text if is_read_as_this_text else _in_quotes(text)


def _in_quotes(text: str) -> str:
    return str(QuotedString(text, Quote.single).with_quotes())


def plain(key: str, value: Any) -> Any:
    """The value with types that YAML has: paths become texts, numpy's numbers and arrays Python's, and tuples lists.

    key: the key of the value, for the message of an error.
    Raises FcaError for a value of another kind, such as an object.
    """
    match value:
        case np.generic():  # first, since some of NumPy's numbers and texts are also floats and texts of Python
            return value.item()
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case Mapping():
            return {plain(key, name): plain(key, inner) for name, inner in value.items()}
        case list() | tuple() | np.ndarray():
            return [plain(key, inner) for inner in value]
    raise FcaError(key, value, "a text, number, truth value, None, or a list or mapping of these", f"correct {key}")
