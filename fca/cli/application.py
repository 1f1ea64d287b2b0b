"""Shared by all commands with a configuration: its typed root, and how Hydra composes and runs it.

A key that neither this module nor a component's class declares is refused; errors are one line and exit with code 2.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stderr
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, OverrideType, Sweep
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fca.cli import Words, options, refused
from fca.cli.analysis_keys import complete_analyses
from fca.cli.commands import commands, composes
from fca.cli.hints import (
    KEY,
    group_as_key,
    keys_of_root,
    one_at_a_time,
    unknown_key,
    unknown_option,
    unknown_word,
    unreadable,
)
from fca.cli.places import CONF
from fca.cli.selection import for_hydra
from fca.cli.trust import check_words, watch
from fca.plugins import plugins, use_plugins
from fca.store.files import DamagedFile
from fca.subset import SAMPLERS
from fca.types import FcaError, choices_in_words
from fca.validation import WORDS_BY_TYPE, Allowed, Seed, check_values, describe_allowed, rules_by_field

COMPATS = ("fca",)
# One in 300 ids of runs and tables looks like a number to Hydra: 12 characters, of which one is an e between digits.
# It must stand alone, neither in quotes nor inside of a name or path.
NUMBER_LIKE_ID = re.compile(r"(?<![\w.'\"/-])(?=\w{12}(?!\w))[1-9]\d*e\d+(?![\w.'\"/-])")
_STEP_OF_SYSTEM_ERROR = {  # error number of the system -> what the user can do
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, then repeat the command"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a folder that may be written: outputs=PATH"),
    **dict.fromkeys(
        (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
        "mend the path, or choose outputs=PATH",
    ),
}


@dataclass
class SubsetConfig:
    """The classes: `ncl` of them (below 1 a share) drawn by `seed`, or `classes` by their keys; without both, all."""

    ncl: int | float | None = None
    seed: Seed = 0
    sampler: Annotated[str, Allowed(choices=SAMPLERS)] = "uniform"
    classes: list[Any] | None = None


@dataclass
class SweepConfig:
    """How a multirun does its runs; not part of their identity."""

    print: bool = False
    retry: bool = False
    head: Annotated[int | None, Allowed(1)] = None
    max: Annotated[int, Allowed(1)] = 100_000


@dataclass
class RunConfig:
    """`fca run`. Each group is checked against the fields of the class that its `_target_` names.

    A task's YAML may add further groups: `/domain@_global_.domain: name` in its defaults.
    """

    dataset: Any
    model: Any
    encoder: Any
    shift: Any
    task: Any
    recipe: Any
    logger: Any
    machine: Any
    trainer: Any
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    seed: Seed = 0
    adaptation: Any = None
    compat: Annotated[str | None, Allowed(choices=COMPATS)] = None
    limit: Annotated[int | None, Allowed(1)] = None
    outputs: str = "outputs"
    plugins: list[str] = field(default_factory=list)


@dataclass
class AnalyseConfig:
    """`fca analyse`."""

    analysis: Any
    outputs: str = "outputs"
    query: str | None = None
    filters: list[str] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)


@dataclass
class ReportConfig:
    """`fca report`."""

    report: Any
    logger: Any
    outputs: str = "outputs"
    query: str | None = None
    filters: list[str] = field(default_factory=list)
    serve: bool = False
    plugins: list[str] = field(default_factory=list)


ROOTS = {
    "run": RunConfig,
    "analyse": AnalyseConfig,
    "report": ReportConfig,
}
"""The schemas of the core's roots; those of a study are in its module `roots`."""

USER_ERRORS = (HydraException, OmegaConfBaseException, FcaError, DamagedFile, OSError)  # that a command line may cause
REFUSED_FLAGS = ("--config-path", "--config-name", "--experimental-rerun")  # roots are fixed, and pickles run code


@cache
def schema_of(root: str) -> type:
    """The dataclass with the keys of a command's configuration and their types, from the core or from a study.

    root: the name of the command, and of its file conf/<root>.yaml.
    """
    if root in ROOTS:
        return ROOTS[root]
    package = commands(plugins())[root].package
    return import_module(f"{package}.roots").ROOTS[root]


@cache
def register(root: str = "run") -> None:
    """Make Hydra able to compose conf/<root>.yaml; further calls do nothing.

    The schema is registered as <root>_schema, the first entry in the defaults list of the file. From then on, every
    file that Hydra loads is checked (see `fca.cli.trust`), and Hydra knows the options that have no file.
    """
    _register_shared()
    schema_class = schema_of(root)
    schema = OmegaConf.structured(schema_class)
    if schema_class is RunConfig:  # a task may add groups, which a structured node refuses; `check_root` checks keys
        schema = DictConfig({key: schema._get_node(key) for key in schema})
    ConfigStore.instance().store(name=f"{root}_schema", node=schema)


@cache
def _register_shared() -> None:
    """Register what all roots share, once in a process."""
    watch(CONF)
    complete_analyses()
    options.store_rows()


def check_root(root: str, config: Mapping[str, Any]) -> None:
    """Raise FcaError for an unknown or missing key of a configuration, and for a value that is not allowed.

    The command's schema, a dataclass, declares the keys; a task may add groups. The keys inside of groups are checked
    later, by `component`.
    root: the name of the command.
    config: plain values, or a node of OmegaConf, which is resolved first.
    """
    declared_keys = rules_by_field(schema_of(root))
    values: Any = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config

    for key, value in values.items():
        is_group = isinstance(value, dict) and "_target_" in value  # such as domain, which a task's YAML adds
        if key not in declared_keys and not is_group:
            other_values = _without(values, key)  # the error suggests keys of these, but not the wrong key itself
            raise unknown_key(root, str(key), str(value), declared_keys, other_values, CONF)

    for name, (type_of_key, _) in declared_keys.items():
        if values.get(name, MISSING) == MISSING:  # ~model and model=null leave the key without a value
            typed = "model@encoder" if name == "encoder" else name  # an encoder is an option of the group model
            raise FcaError(typed, "null", "a value: it is needed", f"leave out ~{typed} or {typed}=null")
        if is_dataclass(type_of_key):  # a node with fixed keys, such as subset
            _check_inner_keys(root, name, type_of_key, values)

    # the others have the type Any: they are groups, which `component` checks
    typed_values = {name: values[name] for name, (type_of_key, _) in declared_keys.items() if type_of_key is not Any}
    check_values(schema_of(root), typed_values)
    check_folder("outputs", values["outputs"])


def _check_inner_keys(root: str, name: str, schema: Any, values: Mapping[str, Any]) -> None:
    """Raise FcaError for an unknown key inside of a node such as `subset`: subset.nlc.

    root: the name of the command.
    name: of the node.
    schema: the dataclass of its keys.
    values: the whole configuration.
    """
    allowed = {inner_field.name for inner_field in fields(schema)}
    for key, value in values[name].items():
        if key not in allowed:
            raise unknown_key(root, f"{name}.{key}", str(value), sorted(allowed), _without(values, name), CONF)


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def check_folder(key: str, folder: str) -> None:
    """Raise FcaError unless this folder can be written to, or can be made. Makes nothing.

    key: the key that names the folder, for the message.
    """
    path = Path(folder)
    # the folder itself or the nearest path above it that exists; lexists, since a link to nothing is in the way as well
    existing = next(part for part in (path, *path.parents) if os.path.lexists(part))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return

    if existing.is_dir():
        reason = "cannot be written to"
    elif existing.exists():
        reason = "is no folder"
    else:
        reason = "is a link to nothing"
    allowed = f"a folder that exists or can be made; {existing} {reason}"
    raise FcaError(key, folder, allowed, f"give another {key}=FOLDER")


def application(root: str, work: Callable[[DictConfig], object], arguments: Sequence[str]) -> int:
    """Compose conf/<root>.yaml with the command line's overrides and pass it to `work`; returns the exit code.

    work: does what the command does. In a sweep, Hydra's launcher calls it once for each job.
    arguments: the words behind the name of the command.
    An error that the user can correct is printed on one line, and gives exit code 2.
    """
    register(root)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its errors instead of printing tracebacks and exiting
    # The message of an error names one of these words. At first they are the typed words. Once `_prepare_words` below
    # has checked them, they are the overrides for Hydra: a typed word may stand for several overrides
    words = list(arguments)

    def job(config: DictConfig) -> None:
        """Call `work` with one configuration. An error that the user can correct ends this process with exit code 2.

        A job of a sweep raises such an error instead.
        """
        try:
            use_plugins(config.plugins)
            work(config)
        except BrokenPipeError as error:  # the reader of the output, such as `head`, has ended
            # what is still buffered would raise the error again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from error
        except USER_ERRORS as error:
            refusal = as_line(error, root, words)
            is_job_of_sweep = HydraConfig.get().mode is RunMode.MULTIRUN
            if is_job_of_sweep or refusal is None:  # the process of the sweep prints the line; None: a defect of fca
                raise
            raise SystemExit(refused(refusal)) from error  # Hydra passes SystemExit on without a message of its own

    try:
        flags, words = _prepare_words(root, arguments)

        # Hydra's help shows the name of the program as it stands in sys.argv; its scripts for shells register
        # the completion for this name, which has to be a program: fca
        is_completion = {"-sc", "--shell-completion"} & set(flags)
        program = "fca" if is_completion else f"fca {root}"
        # Overrides that keep Hydra from making folders and logs. Only a command that another package brings needs them:
        # the files of fca's own commands, in conf/, have these values, so the list is empty
        against_folders = _overrides_against_folders(root)
        # `with_free_keys` adds ++, so that Hydra accepts keys which only some options of a swept group have
        sys.argv = [program, *flags, *against_folders, *with_free_keys(words)]  # in which Hydra reads its words
        typed_package = get_args_parser().parse_known_args(flags)[0].package  # the value of Hydra's flag --package
        _call_hydra(root, job, typed_package)
    except USER_ERRORS as error:
        refusal = as_line(error, root, words)
        if refusal is None:
            raise
        return refused(refusal)
    return 0


def _prepare_words(root: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Check a command line and load the plugins that it names; returns Hydra's flags, and the overrides for Hydra.

    From then on, options are also searched for in the folders that the command line names (hydra.searchpath).
    root: the name of the command.
    arguments: the words behind it.
    Raises FcaError for words that are not allowed.
    """
    words = for_hydra(root, schema_of(root), arguments)  # filters such as ncl<=5 become the key `filters`
    flags, overrides = split_words(root, words)
    check_words(overrides)
    options.use_search_path(())  # forgets the folders of an earlier call in this process
    look_in_folders(overrides)
    # a word such as shift=corruption/fog/3 stands for several words of Hydra's
    return flags, [hydra_word for word in overrides for hydra_word in hydra_words(word)]


def _overrides_against_folders(root: str) -> list[str]:
    """Overrides that keep Hydra from making folders and logs, for a command that a package brings; else none.

    The files of fca's own commands, in conf/, have these values themselves. The file of a package may not set keys of
    Hydra (see `fca.cli.trust`).
    root: the name of the command.
    """
    if options.root_file(root).parent == CONF:
        return []
    groups = ("hydra/job_logging", "hydra/hydra_logging")
    return ["hydra.run.dir=.", "hydra.output_subdir=null", *(f"{group}=none" for group in groups)]


def _call_hydra(root: str, job: Callable[[DictConfig], None], package: str | None) -> None:
    """Have Hydra compose conf/<root>.yaml with the words in sys.argv, and call `job` with each configuration.

    package: the value of --package beside --cfg, a key of the configuration; None if it was not typed.
    Raises FcaError for an unknown package, where Hydra prints a text of its own and exits with code 1.
    """
    try:
        with redirect_stderr(io.StringIO()) if package else nullcontext():  # hides Hydra's text
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=root)(job)()
    except SystemExit as end:
        if package and end.code == 1:
            step = f"fca {root} --cfg job shows them"
            raise FcaError("--package", package, "a key of the configuration", step) from end
        raise


def as_line(error: Exception, root: str, words: Sequence[str]) -> str | None:
    """The message of an error for the user: the typed word or the path, what is wrong with it, and the next step.

    Returns None for an OSError that is not about a file, since that is a defect of fca.
    root: the name of the command.
    words: the typed overrides, among which the cause is searched for.
    """
    if isinstance(error, DamagedFile):
        return f"{error}; next: repeat the command that made it, see fca status"
    if not isinstance(error, OSError) or isinstance(error, HydraException):  # some errors of Hydra's are OSErrors, too
        return str(_as_fca_error(error, root, words))
    if error.errno is None or error.filename is None or isinstance(error, BrokenPipeError):
        return None

    path = Path(os.fsdecode(error.filename))
    # os.path, since the methods of Path raise for a name that is too long
    is_dangling = os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114
    problem = "a link to nothing" if is_dangling else error.strerror
    step = _STEP_OF_SYSTEM_ERROR.get(error.errno, "look at the path and its permissions")
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if value and path.is_relative_to(Path(value).expanduser()):  # the user typed the path, or a folder above it
            allowed = f"a path that can be used ({problem}: {path})"
            step_of_key = step.replace("outputs", key)  # some steps advise outputs=PATH
            return str(FcaError(key, value, allowed, step_of_key))
    return f"{path}: {problem}; next: {step}; nothing that is finished is lost"


def split_words(root: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into Hydra's flags with their values, and the overrides; both may be typed in any order.

    Raises FcaError for words that Hydra would not understand, or that fca does not allow.
    root: the name of the command.
    arguments: the words behind it.

    >>> split_words("run", ["seed=1,2", "-m", "limit=8"])
    (['-m'], ['seed=1,2', 'limit=8'])
    """
    # with Hydra's flags, as they are in its own parser
    parser = Words(prog=f"fca {root}", parents=[get_args_parser()], add_help=False)
    _check_flags(root, parser, arguments)
    parsed = parser.parse_intermixed_args(arguments)
    _check_modes(root, parsed)

    typed = " ".join(parsed.overrides)  # behind -sc (completion): what to do and for which shell, install=bash
    if parsed.shell_completion and not re.fullmatch(r"(install|uninstall|query)=(bash|fish|zsh)", typed):
        raise FcaError("-sc", typed, "install=bash, install=fish, install=zsh, uninstall=...", "fca -sc install=bash")
    for flag in REFUSED_FLAGS:  # flags of Hydra that would load another configuration, or run code from a pickle
        field_of_flag = flag[2:].replace("-", "_")  # --config-path -> config_path, as argparse calls it
        if getattr(parsed, field_of_flag):
            raise FcaError("option", flag, "what fca --help and fca run --help show", "leave it out")
    for word in parsed.overrides:
        check_word(root, word)

    flags = [word for word in arguments if word not in parsed.overrides]
    return flags, parsed.overrides


def _check_modes(root: str, parsed: Any) -> None:
    """Raise FcaError for flags that exclude each other, that need another flag, or that this command does not have.

    root: the name of the command.
    parsed: the flags of Hydra's parser, as argparse returns them.
    """
    modes = {"--multirun": parsed.multirun, "--run": parsed.run, "--cfg": parsed.cfg, "--info": parsed.info}
    typed_modes = [flag for flag, value in modes.items() if value]
    if len(typed_modes) > 1:
        raise FcaError("options", " ".join(typed_modes), "one of them", f"leave out {typed_modes[-1]}")
    if (parsed.resolve or parsed.package) and not (parsed.cfg or parsed.help):
        flag = "--resolve" if parsed.resolve else f"--package {parsed.package}"
        raise FcaError("option", flag, "beside --cfg job, --cfg hydra or --cfg all", f"fca {root} --cfg job {flag}")
    if parsed.multirun and root != "run":
        raise FcaError("option", "-m", "fca run -m: no other command sweeps", "leave it out")


def _check_flags(root: str, parser: Words, arguments: Sequence[str]) -> None:
    """Raise FcaError for a key that is typed as a flag of other tools (--seed 1, --seed=1 or -seed=1).

    The error shows what to type instead. All other words pass: words that do not look like a key behind dashes, and the
    flags of `parser`, also if they are abbreviated (--multi for --multirun) or joined (-mr for -m -r).
    root: the name of the command.
    arguments: the words behind it.
    """
    keys = keys_of_root(schema_of(root))
    for i, word in enumerate(arguments):
        name, equals, value = word.lstrip("-").partition("=")
        looks_like_key = re.fullmatch(r"--?[A-Za-z_][\w.-]*(=.*)?", word) is not None  # one or two dashes, a name
        is_flag = word in parser._option_string_actions
        is_letter = len(name) < 2  # -x: argparse itself refuses unknown letters
        if is_flag or is_letter or not looks_like_key:
            continue
        is_short = not word.startswith("--")
        may_be_joined = is_short and not equals and word[:2] in parser._option_string_actions  # begins with -m
        is_beginning_of_flag = bool(parser._get_option_tuples(word))  # the flags that begin like this word
        is_key_with_one_dash = is_short and name in keys  # -model, which argparse would read as -m odel
        if (is_beginning_of_flag or may_be_joined) and not is_key_with_one_dash:
            continue

        if not equals:  # the value is the next word
            value = arguments[i + 1] if i + 1 < len(arguments) else "VALUE"
        key = name.replace("-", "_")
        step = f"did you mean {key}={value}?"
        if key not in keys:
            default_config = composed(root, [])  # the error suggests keys of it
            error = unknown_key(root, key, value, keys, default_config, CONF)
            step = str(error.args[3])  # the next step that this error suggests, such as a similar key
        raise FcaError("words", word, f"what fca {root} --help lists", f"keys have no dashes in front; {step}")


def check_word(root: str, word: str) -> None:
    """Raise FcaError for a word that is not an override KEY=VALUE, or that has a path or value of a wrong kind.

    Each word is checked alone, before Hydra composes, because Hydra's errors do not name the word that was typed.
    root: the name of the command.
    """
    key, _, value = word.partition("=")  # the key as typed, for messages
    override, content = _parsed(root, word)  # override.key_or_group is the key without +, ~ and @PACKAGE
    _check_paths(key, content)

    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    # whether the schema allows only true and false: its description of the key is that of the type bool
    takes_truth_value = _allowed_in_words(root, override.key_or_group) == WORDS_BY_TYPE[bool]
    if takes_truth_value and is_number and content not in (0, 1):  # OmegaConf would take any number for true
        raise FcaError(key, value, WORDS_BY_TYPE[bool], f"correct {key}")

    meant_group = group_as_key(override.key_or_group, CONF)  # recipe/augment if recipe.augment was typed, else None
    names_options = isinstance(content, str | Sweep | Glob)  # a name, several for a sweep, or a pattern such as a*
    if meant_group is not None and names_options:
        allowed = f"what {meant_group}=NAME brings: it is a group"
        raise FcaError(key, value, allowed, f"did you mean {shlex.quote(f'{meant_group}={value}')}?")

    if override.is_add() or override.is_force_add():  # +KEY or ++KEY
        _check_added_key(root, override, content, value)

    is_group = (CONF / override.key_or_group).is_dir()
    # null leaves the group empty; some groups take a list of options
    is_choice = names_options or content is None or _are_options(override.key_or_group, content)
    if is_group and not is_choice:
        # a list such as model=[a,b] was perhaps meant as a sweep, which only fca run has
        sweep_step = one_at_a_time(key, value) if root == "run" else None
        step = sweep_step or f"fca {root} --help lists them"
        raise FcaError(key, value, f"an option of conf/{override.key_or_group}", step)


def _parsed(root: str, word: str) -> tuple[Override, object]:
    """The override KEY=VALUE that Hydra reads in a word, and its value.

    Raises FcaError for a word that is no override or that Hydra cannot read. The error suggests what may have been
    meant, from the keys of the default configuration, `composed(root, [])`.
    root: the name of the command.
    """
    try:
        override: Override = OverridesParser.create().parse_overrides([word])[0]
        content = override.value()
    except HydraException as error:
        if "=" not in word:
            raise unknown_word(root, word, keys_of_root(schema_of(root)), composed(root, [])) from error
        raise _unreadable_word(word) from error
    if not override.key_or_group:  # such as =5
        raise unknown_word(root, word, keys_of_root(schema_of(root)), composed(root, []))
    return override, content


def _unreadable_word(word: str) -> FcaError:
    """The error for KEY=VALUE that Hydra's grammar does not allow; it shows the reason and how to quote the word."""
    key, _, value = word.partition("=")
    reason = unreadable(key, value)
    allowed = f"a value that Hydra can read ({reason})"
    if re.fullmatch(KEY, key, re.ASCII) is None:  # the key itself has letters that Hydra's keys cannot have
        return FcaError(key, value, allowed, "correct the key")
    if re.search(rf"\s{KEY}=", value, re.ASCII):  # a second KEY= in the value: both words were quoted as one
        return FcaError(key, value, allowed, f"quote every KEY=VALUE alone: {word}")

    # the shell takes the outer quotes away, and Hydra the inner ones
    if value and '"' not in value:
        quoted = shlex.quote(f'{key}="{value}"')
    else:  # no value to show, or one with a quote, which would end the inner quotes: show only the form
        quoted = f"""'{key}="..."'"""
    step = f"correct it, or quote what has spaces, commas, brackets or odd letters twice: {quoted}"
    return FcaError(key, value, allowed, step)


def _check_added_key(root: str, override: Override, content: object, value: str) -> None:
    """Raise FcaError for +KEY=VALUE, unless it adds a key inside of a node of the root, or chooses an option.

    root: the name of the command.
    content: the value as Hydra reads it.
    value: as it was typed, for the message.
    """
    keys = [*keys_of_root(schema_of(root)), "hydra"]
    first = override.key_or_group.partition(".")[0]
    # a word such as +GROUP=OPTION may choose from a group that is no key of the root; others are refused later
    may_be_group = first == override.key_or_group and not isinstance(content, dict)
    if first not in keys and not may_be_group:
        raise unknown_key(root, override.key_or_group, value, keys, composed(root, []), CONF)


def _are_options(group: str, content: object) -> bool:
    """Whether a value, as Hydra reads it, is a list of options that the group can have.

    Most groups take one option, since each option would replace the one before it.
    """
    if not isinstance(content, list) or not all(isinstance(option, str) for option in content):
        return False
    takes_several = group in ("experiment", "debug") or group.startswith("hydra/")
    return takes_several or len(content) == 1


def _check_paths(key: str, content: object) -> None:
    """Raise FcaError for a path such as ~nobody/x without a home folder, and for missing folders of configurations.

    content: the value of the key, as Hydra reads it.
    """
    # expanduser leaves the text as it is if there is no such home folder
    if isinstance(content, str) and content.startswith("~") and os.path.expanduser(content) == content:  # noqa: PTH111
        raise FcaError(key, content, "a path; this user has no home folder here", "correct the path")
    if key == "hydra.searchpath" and isinstance(content, list):
        for folder in map(str, content):
            scheme, _, path = folder.rpartition("://")
            package = path.replace("/", ".").partition(".")[0]  # the top package, which is found without an import
            is_installed = scheme == "pkg" and package.isidentifier() and find_spec(package) is not None
            is_folder = scheme in ("", "file") and Path(path).is_dir()
            if not is_installed and not is_folder:
                raise FcaError(key, folder, "folders of configurations, [file://FOLDER]", "correct the path")


def composed(root: str, words: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    """The configuration of conf/<root>.yaml with these overrides, composed without a command line, as from Python.

    words: overrides, as typed.
    with_hydra: whether the node `hydra`, which has the chosen options, is included.
    Raises FcaError for words that a command line would be refused for.
    """
    look_in_folders(words)
    register(root)
    # a word such as shift=corruption/fog/3 stands for several words of Hydra's
    overrides = [hydra_word for word in words for hydra_word in hydra_words(word)]

    hydra_of_caller = GlobalHydra.instance().hydra  # a notebook may use Hydra itself: it is put back below
    GlobalHydra.instance().hydra = None
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose(root, overrides, return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise _as_fca_error(error, root, words) from error
    finally:
        GlobalHydra.instance().hydra = hydra_of_caller


def look_in_folders(words: Sequence[str]) -> None:
    """Make the options of the folders and packages available that these words name.

    Only hydra.searchpath=[...] and plugins=[...] are read; other words are ignored. Hydra needs these options before
    it composes.
    Raises FcaError for a module that Python does not find.
    """
    words_to_read = [word for word in words if word.startswith(("hydra.searchpath=", "plugins="))]
    overrides = OverridesParser.create().parse_overrides(words_to_read)
    value_of_key = {override.key_or_group: override.value() for override in overrides}

    modules = value_of_key.get("plugins")
    if isinstance(modules, list):
        use_plugins(map(str, modules))
    folders = value_of_key.get("hydra.searchpath")
    if isinstance(folders, list):
        options.use_search_path(map(str, folders))


def typed_words(config: Any, overrides: Sequence[str] | None = None) -> list[str]:
    """The overrides of one job as the user would type them, with the folders of options (hydra.searchpath) first.

    config: the node `hydra` of the job's configuration.
    overrides: the overrides of the job; None: the overrides that the node lists.
    """
    folders = [word for word in config.overrides.hydra if word.startswith("hydra.searchpath=")]
    if overrides is None:
        overrides = config.overrides.task
    return [*folders, *overrides]


def hydra_words(word: str) -> list[str]:
    """Translate a word of the command line into the words that Hydra reads.

    fca allows three things that Hydra does not: a shift may be spelled as in the table of runs, with its severity;
    a group may be null; and an id may look like a number, for which it gets quotes here.

    >>> hydra_words("shift=corruption/fog/3")
    ['shift=corruption/all', 'shift.kinds=[fog]', 'shift.severities=[3]']
    >>> hydra_words("shift=clean,corruption/fog/3")  # several: the sweep takes them apart first
    ['shift=clean,corruption/fog/3']
    >>> hydra_words("adaptation=null"), hydra_words("compat=null")
    (['~adaptation'], ['compat=null'])
    >>> hydra_words("model.run_id=12e456789012")  # an id, which Hydra would read as the number 12e456789012
    ["model.run_id='12e456789012'"]
    >>> hydra_words("model.run_id=18e11382e309")
    ['model.run_id=18e11382e309']
    """
    key, equals, value = word.partition("=")
    value = NUMBER_LIKE_ID.sub(r"'\g<0>'", value)  # \g<0>: the whole match
    if value == "null" and (CONF / key.partition("@")[0]).is_dir():
        return [f"~{key}"]
    if key == "shift" and "," not in value:
        return options.words_of(key, value)
    return [f"{key}{equals}{value}"]


def with_free_keys(overrides: Sequence[str]) -> list[str]:
    """The overrides, with `++` before each key of a swept group, so that Hydra accepts it with any option of the group.

    Before a sweep, Hydra composes the overrides that are not swept, with the default option of each swept group. It
    would refuse a key that only another option has: in this example, the default shift has no severities. With `++`,
    Hydra adds a key that is not there.

    >>> with_free_keys(["shift=a/b,a/c", "shift.severities=[1]", "seed=1"])
    ['shift=a/b,a/c', '++shift.severities=[1]', 'seed=1']
    """
    override_of_word = dict(zip(overrides, OverridesParser.create().parse_overrides(list(overrides)), strict=True))
    swept_groups = {  # under the names that their keys begin with: encoder for model@encoder=a,b
        override.package or override.key_or_group
        for override in override_of_word.values()
        if override.is_sweep_override()
    }

    def is_key_of_swept_group(override: Override) -> bool:
        """Whether an override changes a key inside of a swept group to one value, without a prefix such as +."""
        group = override.key_or_group.rpartition(".")[0].partition(".")[0]  # shift of shift.a.b; "" for a key alone
        is_change = override.type is OverrideType.CHANGE and not override.is_sweep_override()
        return is_change and group in swept_groups

    return [f"++{word}" if is_key_of_swept_group(override_of_word[word]) else word for word in overrides]


# Errors of Hydra and OmegaConf, as fca's: what was typed, what is allowed, the next step.


def _as_fca_error(error: Exception, root: str, words: Sequence[str]) -> FcaError:
    """Translate an error of Hydra or OmegaConf into an FcaError: the typed word, what is allowed, and the next step.

    root: the name of the command.
    words: the overrides that were typed.
    """
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, FcaError):  # our own error, which Hydra has wrapped
            return inner
        inner = inner.__cause__

    # key -> value; [::2] takes both without the "=" between; of several words with one key, the last counts
    typed = dict(word.lstrip("+~").partition("=")[::2] for word in words)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        return _missing_option_error(error.missing_cfg_file, error.options, root, words)

    # OmegaConf's error names the key; an error of Hydra has it as its cause
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and isinstance(cause.parent_node, DictConfig):
        return _missing_key_error(cause, cause.parent_node, root, typed)
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        key = cause.full_key
        allowed = _allowed_in_words(root, key) or one_line(cause)
        # a list or range for a single value was perhaps meant as a sweep, which only fca run has
        sweep_step = one_at_a_time(key, typed.get(key, "")) if root == "run" else None
        return FcaError(key, typed.get(key), allowed, sweep_step or f"correct {key}")

    # other errors are recognised by their message
    return (
        _several_values_error(error, root) or _defaults_list_error(error, root, typed) or _culprit_error(error, words)
    )


def _missing_key_error(cause: Any, siblings_node: DictConfig, root: str, typed: Mapping[str, str]) -> FcaError:
    """The error for a key that a node of the configuration does not have.

    cause:         OmegaConf's error.
    siblings_node: the node, whose keys may be suggested.
    root:          the name of the command.
    typed:         key -> value of the typed overrides.
    """
    full_key = str(cause.full_key)
    siblings = [str(key) for key in siblings_node if key not in ("_target_", "hydra")]
    # OmegaConf names the first part that is missing: if a.b.c was typed, perhaps a.b
    typed_key = next((key for key in typed if key == full_key or key.startswith(f"{full_key}.")), "")
    config: Any = siblings_node._get_root()
    return unknown_key(root, full_key, typed.get(typed_key), siblings, config, CONF)


def _several_values_error(error: Exception, root: str) -> FcaError | None:
    """The error for KEY=A,B without -m, recognised by Hydra's message; None for other messages.

    root: the name of the command.
    """
    match = re.match(r"Ambiguous value for argument '(.*?)=(.*)'", str(error))
    if match is None:
        return None
    key, value = match.groups()
    is_group = (CONF / key.partition("@")[0]).is_dir()
    if root == "run":  # the only command that sweeps
        other_step = "give one" if is_group else "put [ ] around a list"
        step = f"add -m to run each of them, or {other_step}"
    else:
        step = "give one" if is_group else "give one, or put [ ] around a list"
    return FcaError(key, value, "one value", step)


def _defaults_list_error(error: Exception, root: str, typed: Mapping[str, str]) -> FcaError | None:
    """The error for an override that cannot change, add or remove a group or key, recognised by Hydra's message.

    None for other messages.
    root: the name of the command.
    typed: key -> value of the typed overrides.
    """
    message = str(error)
    if match := re.search(r"Could not override '(.*?)'", message):
        return _missing_group_error(match[1], root, typed)
    # Hydra has two messages for +GROUP=OPTION where the group already has an option
    if match := re.search(r"Multiple values for ([\w/@]+)\.|force-add .*'\++([\w/@]+)=", message):
        key = match[1] or match[2]  # the group, from one message or the other
        step = f"type it without +: {key}={typed.get(key, 'OPTION')}"
        return FcaError(f"+{key}", typed.get(key), "a group that is not there yet", step)
    if match := re.search(r"Could not delete.*?'(.*?)'", message):
        key = match[1]
        step = f"leave out ~{key}; fca {root} --help lists groups and keys"
        return FcaError(f"~{key}", typed.get(key, ""), "a key or group with that value that is there", step)
    if match := re.search(r"An item is already at '(.*?)'", message):
        key = match[1]
        step = f"type it without +: {key}={typed.get(key, 'VALUE')}"
        return FcaError(f"+{key}", typed.get(key), "a key that is not there yet", step)
    return None


def _missing_group_error(key: str, root: str, typed: Mapping[str, str]) -> FcaError:
    """The error for a group that this command does not have; if another command has it, the step names that one."""
    keys = keys_of_root(schema_of(root))
    roots_with_key = _other_roots_with(key, root)
    if roots_with_key and key not in keys:
        step = f"leave it out; fca {root} --help lists what it has, fca {roots_with_key[0]} has {key}"
        return FcaError("key", key, choices_in_words(keys), step)
    return unknown_key(root, key, typed.get(key), keys, composed(root, []), CONF)


def _other_roots_with(key: str, root: str) -> list[str]:
    """The other commands whose configuration file has this key or group."""
    names = [name for name in commands(plugins()) if name != root and composes(name, plugins())]
    return [name for name in names if key in _top_keys(options.keys_in(options.root_file(name)))]


def _top_keys(root: Mapping[str, Any]) -> set[str]:
    """The keys and groups of a command's configuration file, as they are typed.

    root: the content of the file, in which groups are entries of the list of defaults.
    """
    groups = [group for entry in root["defaults"] if isinstance(entry, Mapping) for group in entry]
    return {*root, *(str(group) for group in groups)} - {"defaults", "hydra"}


def _culprit_error(error: Exception, words: Sequence[str]) -> FcaError:
    """The FcaError for an error of Hydra whose message is of no known kind, with the word that probably caused it.

    The word is the first whose value is in the message; else the first with ${...}, a reference to another key, which
    messages do not repeat as it was typed; else the first whose key is in the message as it is shown (`one_line` omits
    some lines). Without such a word, the error names the whole command line.
    words: the typed overrides.
    """
    reason = one_line(error)  # the message as it is shown

    def has_its_value_in_message(word: str) -> bool:
        value = word.partition("=")[2]
        return bool(value) and value in str(error)  # an empty text would be in every message

    def has_its_key_in_reason(word: str) -> bool:
        key = word.lstrip("+~").partition("=")[0]
        return re.search(rf"(?<!\w){re.escape(key)}(?!\w)", reason) is not None  # not as a part of a longer word

    candidates = [word for word in words if has_its_value_in_message(word)]
    candidates += [word for word in words if "${" in word]
    candidates += [word for word in words if has_its_key_in_reason(word)]
    if not candidates:
        return FcaError("command line", shlex.join(words), f"words that fit each other ({reason})", "correct it")
    key, _, value = candidates[0].partition("=")
    return FcaError(key, value, f"a value that can be used ({reason})", f"correct {key.lstrip('+~')}")


def _missing_option_error(file: str, names: Sequence[str], root: str, words: Sequence[str]) -> FcaError:
    """The error for an option that a group does not have, which names the group as it was typed.

    file:  the path that Hydra looked for: the group, a slash, and the option, such as recipe/augment/NAME.
    names: the options that the group has.
    root:  the name of the command.
    words: the typed overrides.
    """
    path = file.split("/")
    typed_keys = [word.partition("=")[0].lstrip("+") for word in words]
    # The group has two parts if it is one of Hydra's (hydra/launcher), or if it was typed so (recipe/augment=NAME).
    # Else it has one part, and the option may have a slash (shift=corruption/NAME)
    is_nested_group = path[0] == "hydra" or "/".join(path[:2]) in typed_keys
    depth = 2 if is_nested_group else 1
    group = "/".join(path[:depth])
    name = "/".join(path[depth:])

    keys_with_name = [  # of the words that choose this option, perhaps among others (model=NAME,vgg16)
        key for key, word in zip(typed_keys, words, strict=True) if name in word.partition("=")[2].split(",")
    ]
    # the group as typed may be model@encoder, an option of the group model
    typed_group = next((key for key in keys_with_name if key.partition("@")[0] == group), group)
    all_names = [*names, *options.nested_options(group)]  # nested: in subfolders, such as corruption/fog
    return unknown_option(root, typed_group, name, all_names, file)  # the error proposes to add conf/<file>.yaml


def _allowed_in_words(root: str, key: str) -> str | None:
    """What values a key may have, in words, such as "a whole number, at least 0, ..." for subset.seed.

    None for a key that the schema of the root does not declare, such as a key of a group.
    key: with dots.
    """
    schema: Any = schema_of(root)
    *nodes, name = key.split(".")
    for node in nodes:  # go down from the schema of the root to the schema of the innermost node
        schema = rules_by_field(schema).get(node, [None])[0]  # the type of the node; None: it is not declared
        if not is_dataclass(schema):
            return None
    return describe_allowed(schema, name) if name in rules_by_field(schema) else None


def one_line(error: BaseException) -> str:
    """The message of an error of Hydra or OmegaConf, and of its cause, in one line.

    Lines that do not help the user are left out: search paths, internal types, and the marks (^) below a parsed text.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    if error.__cause__ is not None and str(error.__cause__) not in str(error):
        lines += [line.strip() for line in str(error.__cause__).splitlines()]
    omitted_beginnings = (
        "Config search path",
        "Set the environment",
        "provider=",
        "reference_type",
        "object_type",
        "full_key",
        "See ",
    )
    return "; ".join(line for line in lines if line.strip("^ ") and not line.startswith(omitted_beginnings))
