"""What every configuring sub-command shares: the typed root of its configuration, and how Hydra composes and runs it.

A key that is declared neither here nor by a component's class is refused; errors are short and end with exit code 2.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import sys
from argparse import Namespace
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

from fca.allowed import KINDS, Allowed, Seed, allowed_of, check_values, declared
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
from fca.types import FcaError, listed

COMPATS = ("fca",)
# An id of a run or table (one in 300) that Hydra would read as a number, such as 12e456789012
NUMBER_LIKE_ID = re.compile(r"(?<![\w.'\"/-])(?=\w{12}(?!\w))[1-9]\d*e\d+(?![\w.'\"/-])")
_STEP_BY_ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, then repeat the command"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a folder that may be written: outputs=PATH"),
    **dict.fromkeys(
        (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
        "mend the path, or choose outputs=PATH",
    ),
}


@dataclass
class SubsetConfig:
    """Which classes: `ncl` (a share below 1) drawn by `seed`, or `classes` by their keys; neither = all."""

    ncl: int | float | None = None
    seed: Seed = 0
    sampler: Annotated[str, Allowed(choices=SAMPLERS)] = "uniform"
    classes: list[Any] | None = None


@dataclass
class SweepConfig:
    """How a multirun goes about its runs; no part of their meaning."""

    print: bool = False
    retry: bool = False
    head: Annotated[int | None, Allowed(1)] = None
    max: Annotated[int, Allowed(1)] = 100_000


@dataclass
class RunConfig:
    """`fca run`. Each group is checked against the fields of the class that its `_target_` names.

    A task's YAML may bring further groups: `/domain@_global_.domain: name` in its defaults.
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

USER_ERRORS = (HydraException, OmegaConfBaseException, FcaError, DamagedFile, OSError)  # what was typed may cause them
REFUSED_FLAGS = ("--config-path", "--config-name", "--experimental-rerun")  # roots are fixed, and pickles run code


@cache
def schema_of(root: str) -> type:
    """The dataclass with the keys of a root and their types, of the core or of the study that brings the command."""
    if root in ROOTS:
        return ROOTS[root]
    package = commands(plugins())[root].package
    return import_module(f"{package}.roots").ROOTS[root]


@cache
def register(root: str = "run") -> None:
    """Make a root's schema known to Hydra under the name that its YAML starts from; look at every file Hydra loads."""
    _register_shared()
    kind = schema_of(root)
    schema = OmegaConf.structured(kind)
    if kind is RunConfig:  # a node that takes keys beside the typed ones; `check_root` refuses what is no group
        schema = DictConfig({key: schema._get_node(key) for key in schema})
    ConfigStore.instance().store(name=f"{root}_schema", node=schema)


@cache
def _register_shared() -> None:
    watch(CONF)
    complete_analyses()
    options.store_rows()


def check_root(root: str, config: Mapping[str, Any]) -> None:
    """Raise FcaError for a key that is neither declared above nor a group that the task brought, and for a value.

    config: resolved, or with Hydra's nodes. Groups are checked when they are made, by `component`.
    """
    declared_keys = declared(schema_of(root))
    values: Any = OmegaConf.to_container(config, resolve=True) if isinstance(config, DictConfig) else config

    for key, value in values.items():
        is_group = isinstance(value, dict) and "_target_" in value
        if key not in declared_keys and not is_group:
            raise unknown_key(root, str(key), str(value), declared_keys, _without_key(values, key), CONF)

    for name, (hint, _) in declared_keys.items():
        if values.get(name, MISSING) == MISSING:
            typed = "model@encoder" if name == "encoder" else name
            raise FcaError(typed, "null", "a value: it is needed", f"leave out ~{typed} or {typed}=null")
        if not is_dataclass(hint):
            continue

        nested_keys = {item.name for item in fields(hint)}
        unknown_keys = [key for key in values[name] if key not in nested_keys]
        if unknown_keys:
            key = f"{name}.{unknown_keys[0]}"
            value = str(values[name][unknown_keys[0]])
            raise unknown_key(root, key, value, sorted(nested_keys), _without_key(values, name), CONF)

    typed_values = {name: values[name] for name, (hint, _) in declared_keys.items() if hint is not Any}
    check_values(schema_of(root), typed_values)
    check_folder("outputs", values["outputs"])


def _without_key(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def check_folder(key: str, folder: str) -> None:
    """Raise FcaError unless this is a folder that can be written to, or one that can be made. Makes nothing."""
    path = Path(folder)
    nearest = next(ancestor for ancestor in (path, *path.parents) if os.path.lexists(ancestor))
    if not nearest.exists():
        problem = "is a link to nothing"
    elif not nearest.is_dir():
        problem = "is no folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        problem = "cannot be written to"
    else:
        return
    allowed = f"a folder that exists or can be made; {nearest} {problem}"
    raise FcaError(key, folder, allowed, f"give another {key}=FOLDER")


def application(root: str, work: Callable[[DictConfig], object], arguments: Sequence[str]) -> int:
    """Compose conf/<root>.yaml with the command line's overrides and hand it to `work`; returns the exit code."""
    register(root)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra's errors through to us: it would print tracebacks and exit with 1
    words = list(arguments)

    def job(config: DictConfig) -> None:
        try:
            use_plugins(config.plugins)
            work(config)
        except BrokenPipeError as error:  # the reader, such as head, needs no further output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from error
        except USER_ERRORS as error:
            if HydraConfig.get().mode is RunMode.MULTIRUN:  # the sweep records it
                raise
            refusal = as_line(error, root, words)
            if not refusal:
                raise
            raise SystemExit(refused(refusal)) from error  # passes Hydra silently, where an Exception is announced

    try:
        flags, overrides = split_words(root, for_hydra(root, schema_of(root), arguments))
        check_words(overrides)
        options.use_search_path(())
        look_in_folders(overrides)
        words = [hydra_word for word in overrides for hydra_word in hydra_words(word)]
        is_completion = not {"-sc", "--shell-completion"}.isdisjoint(flags)
        program = "fca" if is_completion else f"fca {root}"  # tab completion is for `fca`
        sys.argv = [program, *flags, *_without_folders(root), *with_free_keys(words)]
        package = get_args_parser().parse_known_args(flags)[0].package
        _run_hydra(root, job, package)
    except USER_ERRORS as error:
        refusal = as_line(error, root, words)
        if not refusal:
            raise
        return refused(refusal)
    return 0


def _without_folders(root: str) -> list[str]:
    """Overrides that keep Hydra from making folders and logs, for a root of a package, which may not set them."""
    if options.root_file(root).parent == CONF:
        return []
    return [
        "hydra.run.dir=.",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
    ]


def _run_hydra(root: str, job: Callable[[DictConfig], None], package: str | None) -> None:
    """Compose and run.    package: to be shown by --cfg; FcaError for an unknown one, where Hydra exits with 1."""
    try:
        with redirect_stderr(io.StringIO()) if package else nullcontext():
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=root)(job)()
    except SystemExit as end:
        if package and end.code == 1:
            step = f"fca {root} --cfg job shows them"
            raise FcaError("--package", package, "a key of the configuration", step) from end
        raise


def as_line(error: Exception, root: str, words: Sequence[str]) -> str | None:
    """An error as one line for the user: what was typed, or the path, what is wrong with it, the next step.

    None for an OSError that is not about a file, which is a defect.
    """
    if isinstance(error, DamagedFile):
        return f"{error}; next: repeat the command that made it, see fca status"
    if not isinstance(error, OSError) or isinstance(error, HydraException):  # some of Hydra's are both
        return str(_as_fca_error(error, root, words))
    if error.errno is None or error.filename is None or isinstance(error, BrokenPipeError):
        return None

    path = Path(os.fsdecode(error.filename))
    is_dangling = os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114  # Path's raise for long names
    problem = "a link to nothing" if is_dangling else error.strerror
    step = _STEP_BY_ERRNO.get(error.errno, "look at the path and its permissions")

    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if value and path.is_relative_to(Path(value).expanduser()):
            allowed = f"a path that can be used ({problem}: {path})"
            return str(FcaError(key, value, allowed, step.replace("outputs", key)))
    return f"{path}: {problem}; next: {step}; nothing that is finished is lost"


def split_words(root: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra's flags and the overrides, which may stand in any order. Raises FcaError for what Hydra would stumble over.

    >>> split_words("run", ["seed=1,2", "-m", "limit=8"])
    (['-m'], ['seed=1,2', 'limit=8'])
    """
    parser = Words(prog=f"fca {root}", parents=[get_args_parser()], add_help=False)
    _check_dashes(root, parser, arguments)
    parsed = parser.parse_intermixed_args(arguments)
    _check_flags(root, parsed)
    for word in parsed.overrides:
        check_word(root, word)
    flags = [word for word in arguments if word not in parsed.overrides]
    return flags, parsed.overrides


def _check_flags(root: str, parsed: Namespace) -> None:
    """Raise FcaError for flags that exclude or need each other, and for those of Hydra that fca does not have."""
    modes = {
        "--multirun": parsed.multirun,
        "--run": parsed.run,
        "--cfg": parsed.cfg,
        "--info": parsed.info,
    }
    typed_modes = [flag for flag, value in modes.items() if value]
    if len(typed_modes) > 1:
        raise FcaError("options", " ".join(typed_modes), "one of them", f"leave out {typed_modes[-1]}")

    prints_configuration = parsed.cfg or parsed.help
    if (parsed.resolve or parsed.package) and not prints_configuration:
        flag = "--resolve" if parsed.resolve else f"--package {parsed.package}"
        raise FcaError("option", flag, "beside --cfg job, --cfg hydra or --cfg all", f"fca {root} --cfg job {flag}")

    if parsed.multirun and root != "run":
        raise FcaError("option", "-m", "fca run -m: no other command sweeps", "leave it out")

    if parsed.shell_completion:
        typed = " ".join(parsed.overrides)
        if not re.fullmatch(r"(install|uninstall|query)=(bash|fish|zsh)", typed):
            shells = "install=bash, install=fish, install=zsh, uninstall=..."
            raise FcaError("-sc", typed, shells, "fca -sc install=bash")

    for flag in REFUSED_FLAGS:
        if getattr(parsed, flag.removeprefix("--").replace("-", "_")):
            raise FcaError("option", flag, "what fca --help and fca run --help show", "leave it out")


def _check_dashes(root: str, parser: Words, arguments: Sequence[str]) -> None:
    """Raise FcaError for --KEY VALUE, as other tools have it, with what to type."""
    keys = keys_of_root(schema_of(root))
    for position, flag in enumerate(arguments):
        name, equals, value = flag.lstrip("-").partition("=")
        looks_like_key = re.fullmatch(r"--?[A-Za-z_][\w.-]*(=.*)?", flag) is not None
        if not looks_like_key or len(name) < 2 or flag in parser._option_string_actions:
            continue

        is_short = not flag.startswith("--")  # short flags may be joined: -mr
        may_be_joined = is_short and not equals and flag[:2] in parser._option_string_actions
        is_flag = bool(parser._get_option_tuples(flag)) or may_be_joined
        if is_flag and not (is_short and name in keys):
            continue

        key = name.replace("-", "_")
        if not equals:
            value = arguments[position + 1] if position + 1 < len(arguments) else "VALUE"
        step = f"did you mean {key}={value}?"
        if key not in keys:
            _, _, _, step = unknown_key(root, key, value, keys, composed(root, []), CONF).args
        raise FcaError("words", flag, f"what fca {root} --help lists", f"keys have no dashes in front; {step}")


def check_word(root: str, word: str) -> None:
    """Raise FcaError for a word that is no override."""
    override, content = _parse_override(root, word)
    key, _, value = word.partition("=")
    _check_paths(key, content)

    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    if is_number and content not in (0, 1) and _allowed_by_schema(root, override.key_or_group) == KINDS[bool]:
        raise FcaError(key, value, KINDS[bool], f"correct {key}")  # OmegaConf takes any number for true

    dotted_group = group_as_key(override.key_or_group, CONF)
    if dotted_group is not None and isinstance(content, str | Sweep | Glob):
        allowed = f"what {dotted_group}=NAME brings: it is a group"
        raise FcaError(key, value, allowed, f"did you mean {shlex.quote(f'{dotted_group}={value}')}?")

    if override.is_add() or override.is_force_add():
        _check_added_key(root, override.key_or_group, value, content)

    is_group = (CONF / override.key_or_group).is_dir()
    is_option = isinstance(content, str | Glob | Sweep | None) or _are_options(override.key_or_group, content)
    if is_group and not is_option:
        sweep_step = one_at_a_time(key, value) if root == "run" else None
        step = sweep_step or f"fca {root} {override.key_or_group} --help lists them"
        raise FcaError(key, value, f"an option of conf/{override.key_or_group}", step)


def _parse_override(root: str, word: str) -> tuple[Override, object]:
    """A word as Hydra parses it, and its value. Raises FcaError for a word that is not KEY=VALUE."""
    key, _, value = word.partition("=")
    try:
        override: Override = OverridesParser.create().parse_overrides([word])[0]
        content = override.value()
    except HydraException as error:
        if "=" not in word:
            raise unknown_word(root, word, keys_of_root(schema_of(root)), composed(root, [])) from error

        allowed = f"a value that Hydra can read ({unreadable(key, value)})"
        is_key = re.fullmatch(KEY, key, re.ASCII) is not None
        if not is_key:
            step = "correct the key"
        elif re.search(rf"\s{KEY}=", value, re.ASCII):
            step = f"quote every KEY=VALUE alone: {word}"
        else:
            quoted = shlex.quote(f'{key}="{value}"') if value and '"' not in value else f"""'{key}="..."'"""
            step = f"correct it, or quote what has spaces, commas, brackets or odd letters twice: {quoted}"
        raise FcaError(key, value, allowed, step) from error

    if not override.key_or_group:
        raise unknown_word(root, word, keys_of_root(schema_of(root)), composed(root, []))
    return override, content


def _check_added_key(root: str, key: str, value: str, content: object) -> None:
    """Raise FcaError for a key added with + at the top of the configuration: there, only groups may be added."""
    root_keys = [*keys_of_root(schema_of(root)), "hydra"]
    top_key = key.partition(".")[0]
    names_option = top_key == key and not isinstance(content, dict)
    if top_key not in root_keys and not names_option:
        raise unknown_key(root, key, value, root_keys, composed(root, []), CONF)


def _are_options(group: str, content: object) -> bool:
    """Whether this is a list of options that a group takes: of most groups the last one would replace the others."""
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        return False
    takes_several = group in ("experiment", "debug") or group.startswith("hydra/")
    return takes_several or len(content) == 1


def _check_paths(key: str, content: object) -> None:
    """Raise FcaError for the home folder of an unknown user, and for folders of configurations that do not exist."""
    if isinstance(content, str) and content.startswith("~") and os.path.expanduser(content) == content:  # noqa: PTH111
        raise FcaError(key, content, "a path; this user has no home folder here", "correct the path")
    if key != "hydra.searchpath" or not isinstance(content, list):
        return

    for folder in map(str, content):
        kind, _, place = folder.rpartition("://")
        package = place.replace("/", ".").partition(".")[0]
        is_installed = kind == "pkg" and package.isidentifier() and find_spec(package) is not None
        is_folder = kind in ("", "file") and Path(place).is_dir()
        if not is_installed and not is_folder:
            raise FcaError(key, folder, "folders of configurations, [file://FOLDER]", "correct the path")


def composed(root: str, words: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    """conf/<root>.yaml with these overrides, for use in Python: errors of the command line are raised as FcaError.

    with_hydra: with the node `hydra`, which has the chosen options.
    """
    look_in_folders(words)
    register(root)
    previous_hydra = GlobalHydra.instance().hydra  # a notebook may use Hydra itself
    GlobalHydra.instance().hydra = None
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            overrides = [hydra_word for word in words for hydra_word in hydra_words(word)]
            return hydra.compose(root, overrides, return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise _as_fca_error(error, root, words) from error
    finally:
        GlobalHydra.instance().hydra = previous_hydra


def look_in_folders(words: Sequence[str]) -> None:
    """Look for options in the folders and packages that were typed: Hydra asks for them before it composes.

    Raises FcaError for modules that do not exist.
    """
    typed = [word for word in words if word.startswith(("hydra.searchpath=", "plugins="))]
    overrides = OverridesParser.create().parse_overrides(typed)
    values = {override.key_or_group: override.value() for override in overrides}

    modules = values.get("plugins")
    if isinstance(modules, list):
        use_plugins(map(str, modules))
    folders = values.get("hydra.searchpath")
    if isinstance(folders, list):
        options.use_search_path(map(str, folders))


def typed_words(config: Any, overrides: Sequence[str] | None = None) -> list[str]:
    """The overrides of one job and the further folders in which their options were found; config: its node `hydra`."""
    folders = [word for word in config.overrides.hydra if word.startswith("hydra.searchpath=")]
    return [*folders, *(config.overrides.task if overrides is None else overrides)]


def hydra_words(word: str) -> list[str]:
    """A word of the command line as Hydra knows it.

    A shift may be given as rows spell it, with its severity; a group may be null.

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
    value = NUMBER_LIKE_ID.sub(r"'\g<0>'", value)
    if value == "null" and (CONF / key.partition("@")[0]).is_dir():
        return [f"~{key}"]
    if key == "shift" and "," not in value:
        return options.words_of(key, value)
    return [f"{key}{equals}{value}"]


def with_free_keys(overrides: Sequence[str]) -> list[str]:
    """The overrides, with `++` before the keys of groups that are swept: they may belong to one choice alone.

    Hydra first composes what is not swept, here with the default shift, which has no severities:

    >>> with_free_keys(["shift=a/b,a/c", "shift.severities=[1]", "seed=1"])
    ['shift=a/b,a/c', '++shift.severities=[1]', 'seed=1']
    """
    parsed = dict(zip(overrides, OverridesParser.create().parse_overrides(list(overrides)), strict=True))
    swept_keys = {
        override.package or override.key_or_group for override in parsed.values() if override.is_sweep_override()
    }

    words = []
    for word in overrides:
        override = parsed[word]
        group = override.key_or_group.rpartition(".")[0].partition(".")[0]
        is_change = override.type is OverrideType.CHANGE and not override.is_sweep_override()
        words.append(f"++{word}" if is_change and group in swept_keys else word)
    return words


def _as_fca_error(error: Exception, root: str, words: Sequence[str]) -> FcaError:
    """An error of Hydra's or OmegaConf's as one of ours: which word is wrong, what is allowed, what to type."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, FcaError):  # raised inside of Hydra, which wraps it
            return inner
        inner = inner.__cause__

    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        return _error_of_option(error.missing_cfg_file, error.options, root, words)

    typed = dict(word.lstrip("+~").partition("=")[::2] for word in words)  # key -> value; the last word counts
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, OmegaConfBaseException):
        error_of_key = _error_of_key(cause, root, typed)
        if error_of_key is not None:
            return error_of_key

    ambiguous = re.match(r"Ambiguous value for argument '(.*?)=(.*)'", str(error))
    if ambiguous:
        return _error_of_several_values(ambiguous[1], ambiguous[2], root)
    return _error_of_defaults(error, root, typed) or _error_of_word(error, words)


def _error_of_key(cause: OmegaConfBaseException, root: str, typed: Mapping[str, str]) -> FcaError | None:
    """The error for a key that does not exist, or for its value; None where OmegaConf names no key."""
    full_key = cause.full_key
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and isinstance(cause.parent_node, DictConfig):
        siblings = [str(key) for key in cause.parent_node if key not in ("_target_", "hydra")]
        typed_key = next((key for key in typed if key == full_key or key.startswith(f"{full_key}.")), "")
        config: Any = cause.parent_node._get_root()
        return unknown_key(root, str(full_key), typed.get(typed_key), siblings, config, CONF)

    if not full_key:
        return None
    sweep_step = one_at_a_time(full_key, typed.get(full_key, "")) if root == "run" else None
    allowed = _allowed_by_schema(root, full_key) or one_line(cause)
    return FcaError(full_key, typed.get(full_key), allowed, sweep_step or f"correct {full_key}")


def _error_of_several_values(key: str, values: str, root: str) -> FcaError:
    """The error for several values of a key without -m."""
    is_group = (CONF / key.partition("@")[0]).is_dir()
    steps = []
    if root == "run":
        steps.append("add -m to run each of them")
    if is_group or root != "run":
        steps.append("give one")
    if not is_group:
        steps.append("put [ ] around a list")
    return FcaError(key, values, "one value", ", or ".join(steps))


def _error_of_defaults(error: Exception, root: str, typed: Mapping[str, str]) -> FcaError | None:
    """The error for a group that is not in the list of defaults, or for what cannot be left out or added to it."""
    text = str(error)

    absent = re.search(r"Could not override '(.*?)'", text)
    if absent:
        return _error_of_absent_key(absent[1], root, typed)

    repeated = re.search(r"Multiple values for ([\w/@]+)\.|force-add .*'\++([\w/@]+)=", text)
    if repeated:
        key = repeated[1] or repeated[2]
        step = f"type it without +: {key}={typed.get(key, 'OPTION')}"
        return FcaError(f"+{key}", typed.get(key), "a group that is not there yet", step)

    undeletable = re.search(r"Could not delete.*?'(.*?)'", text)
    if undeletable:
        key = undeletable[1]
        step = f"leave out ~{key}; fca {root} --help lists groups and keys"
        return FcaError(f"~{key}", typed.get(key, ""), "a key or group with that value that is there", step)

    existing = re.search(r"An item is already at '(.*?)'", text)
    if existing:
        key = existing[1]
        step = f"type it without +: {key}={typed.get(key, 'VALUE')}"
        return FcaError(f"+{key}", typed.get(key), "a key that is not there yet", step)
    return None


def _error_of_absent_key(key: str, root: str, typed: Mapping[str, str]) -> FcaError:
    """The error for a key or group that this command does not have, though another may."""
    keys = keys_of_root(schema_of(root))
    other_roots = _other_roots_with(key, root)
    if other_roots and key not in keys:
        step = f"leave it out; fca {root} --help lists what it has, fca {other_roots[0]} has {key}"
        return FcaError("key", key, listed(keys), step)
    return unknown_key(root, key, typed.get(key), keys, composed(root, []), CONF)


def _other_roots_with(key: str, root: str) -> list[str]:
    """The other commands whose configuration has this key or group, by the text of their files."""
    names = [name for name in commands(plugins()) if name != root and composes(name, plugins())]
    keys_by_root = {name: _top_keys(options.keys_in(options.root_file(name))) for name in names}
    return [name for name in names if key in keys_by_root[name]]


def _top_keys(root: Mapping[str, Any]) -> set[str]:
    """The keys and groups of a root, as they are typed."""
    groups = [str(group) for entry in root["defaults"] if isinstance(entry, Mapping) for group in entry]
    return {*root, *groups} - {"defaults", "hydra"}


def _error_of_word(error: Exception, words: Sequence[str]) -> FcaError:
    """An error of Hydra's or OmegaConf's with the word that it is about, where there is one."""
    reason = one_line(error)

    # The likeliest first: its value is quoted, it refers to another value, its key is named
    suspects = [word for word in words if word.partition("=")[2] and word.partition("=")[2] in str(error)]
    suspects += [word for word in words if "${" in word]
    for word in words:
        key = word.lstrip("+~").partition("=")[0]
        if re.search(rf"(?<!\w){re.escape(key)}(?!\w)", reason):
            suspects.append(word)

    if not suspects:
        return FcaError("command line", shlex.join(words), f"words that fit each other ({reason})", "correct it")
    key, _, value = suspects[0].partition("=")
    return FcaError(key, value, f"a value that can be used ({reason})", f"correct {key.lstrip('+~')}")


def _error_of_option(file: str, names: Sequence[str], root: str, words: Sequence[str]) -> FcaError:
    """The error for an option that a group does not have; the group as it was typed, where it was."""
    keys = [word.partition("=")[0].lstrip("+") for word in words]
    folders = file.split("/")
    is_inner_group = (
        folders[0] == "hydra" or "/".join(folders[:2]) in keys
    )  # recipe/augment is a group, shift/fog is none
    depth = 2 if is_inner_group else 1
    group = "/".join(folders[:depth])
    name = "/".join(folders[depth:])

    typed_key = group
    for key, word in zip(keys, words, strict=True):
        values = word.partition("=")[2].split(",")
        if name in values and key.partition("@")[0] == group:
            typed_key = key
            break
    return unknown_option(root, typed_key, name, [*names, *options.nested_options(group)], file)


def _allowed_by_schema(root: str, key: str) -> str | None:
    """What the value of a key that is declared above may be, in words; None for other keys."""
    kind: Any = schema_of(root)
    *outer_keys, name = key.split(".")
    for outer_key in outer_keys:
        kind = declared(kind).get(outer_key, [None])[0]
        if not is_dataclass(kind):
            return None
    return allowed_of(kind, name) if name in declared(kind) else None


def one_line(error: BaseException) -> str:
    """An error of Hydra's or OmegaConf's, and what caused it, without its search path, pictures and hints."""
    lines = [line.strip() for line in str(error).splitlines()]
    if error.__cause__ is not None and str(error.__cause__) not in str(error):
        lines += [line.strip() for line in str(error.__cause__).splitlines()]

    hidden = (
        "Config search path",
        "Set the environment",
        "provider=",
        "reference_type",
        "object_type",
        "full_key",
        "See ",
    )
    return "; ".join(line for line in lines if line.strip("^ ") and not line.startswith(hidden))
