"""What every configuring sub-command shares: the typed root of its configuration, and how Hydra composes and runs it.

A key that is declared neither here nor by a component's class is refused; errors are short and end with exit code 2.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fca.cli.trust import check_words, watch
from fca.shifts import overrides as shift_words
from fca.store.files import DamagedFile
from fca.types import FcaError, use_plugins

_STEPS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, then repeat the command"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a folder that may be written: outputs=PATH"),
    **dict.fromkeys((errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ELOOP), "mend the path, or choose outputs=PATH"),
}


@dataclass
class SubsetConfig:
    """Which classes: `ncl` (a share below 1) drawn by `seed`, or `classes` by key or index; neither = all."""

    ncl: int | float | None = None
    seed: int = 0
    sampler: str = "uniform"
    classes: list[Any] | None = None


@dataclass
class SweepConfig:
    """How a multirun goes about its runs; no part of their meaning."""

    print: bool = False
    retry: bool = False
    head: int | None = None


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
    subset: SubsetConfig = field(default_factory=SubsetConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    seed: int = 0
    adaptation: Any = None
    compat: str | None = None
    limit: int | None = None
    outputs: str = "outputs"
    plugins: list[str] = field(default_factory=list)


@dataclass
class AnalyseConfig:
    """`fca analyse`."""

    analysis: Any
    outputs: str = "outputs"
    plugins: list[str] = field(default_factory=list)


@dataclass
class ReportConfig:
    """`fca report`."""

    report: Any
    logger: Any
    outputs: str = "outputs"
    query: str | None = None
    plugins: list[str] = field(default_factory=list)


@dataclass
class BudgetConfig:
    """What a generated folder may take in all."""

    images: int | None = None
    money: int | float | None = None


@dataclass
class GenerateConfig:
    """`fca generate`."""

    generator: Any
    plan: Any
    writer: Any = None
    outputs: str = "outputs"
    out: str | None = None
    per_level: int | None = None
    workers: int = 0
    dry: bool = False
    verbose: bool = False
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    plugins: list[str] = field(default_factory=list)


ROOTS = {"run": RunConfig, "analyse": AnalyseConfig, "report": ReportConfig, "generate": GenerateConfig}

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = next(folder for folder in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if folder.is_dir())


def register() -> None:
    """Make the schemas known to Hydra under the names that the root YAMLs start from; look at every file it loads."""
    watch(CONF)
    for name, root in ROOTS.items():
        schema = OmegaConf.structured(root)
        if root is RunConfig:  # a node that takes keys beside the typed ones; `check_keys` refuses what is no group
            schema = DictConfig({key: schema._get_node(key) for key in schema})
        ConfigStore.instance().store(name=f"{name}_schema", node=schema)


def check_keys(config: DictConfig) -> None:
    """Raise FcaError for a key of `fca run` that is neither declared above nor a group that the task brought."""
    declared = [known.name for known in fields(RunConfig)]
    for key in config:
        if key not in declared and not (isinstance(config[key], DictConfig) and "_target_" in config[key]):
            raise FcaError("key", key, ", ".join(declared), "correct its name")


def application(root: str, work: Callable[[DictConfig], object], arguments: Sequence[str]) -> int:
    """Compose conf/<root>.yaml with the command line's overrides and hand it to `work`; returns the exit code."""
    register()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra's errors through to us: it would print tracebacks and exit with 1

    def job(config: DictConfig) -> None:
        try:
            use_plugins(config.plugins)
            work(config)
        except BrokenPipeError as error:  # the reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from error
        except (FcaError, DamagedFile, OSError) as error:
            if HydraConfig.get().mode is RunMode.MULTIRUN:
                raise
            if isinstance(error, OSError) and not is_of_files(error):
                raise
            raise SystemExit(_refuse(error)) from error  # passes Hydra silently, where an Exception is announced

    try:
        check_words(arguments)
        words = with_free_keys([part for word in arguments for part in hydra_words(word)])
        words.sort(key=lambda word: word not in ("-m", "--multirun"))  # Hydra wants -m in front, we take it anywhere
        # the name under which Hydra registers tab completion
        sys.argv = ["fca" if {"-sc", "--shell-completion"} & set(words) else f"fca {root}", *words]
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=root)(job)()
    except (HydraException, OmegaConfBaseException, FcaError, DamagedFile) as error:
        return _refuse(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not is_of_files(error):
            raise
        return _refuse(error)
    return 0


def is_of_files(error: OSError) -> bool:
    """Whether the system refused to read or write a file: no space, no permission, a link to nothing."""
    return error.errno is not None and error.filename is not None


def as_line(error: OSError | DamagedFile) -> str:
    """What a user reads: the path, what is wrong with it, the next step."""
    if isinstance(error, DamagedFile):
        return f"{error}; next: repeat the command that made it, see fca status"
    step = _STEPS.get(error.errno or 0, "look at the path and its permissions")
    path = Path(str(error.filename))
    problem = "a link to nothing" if path.is_symlink() and not path.exists() else error.strerror
    return f"{error.filename}: {problem}; next: {step}; nothing that is finished is lost"


def composed(root: str, words: Sequence[str]) -> DictConfig:
    """conf/<root>.yaml with these overrides, for use in Python: errors of the command line are raised as FcaError."""
    register()
    before, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None  # a notebook may use Hydra itself
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose(root, list(words))
    except (HydraException, OmegaConfBaseException) as error:
        raise _as_fca_error(error) or FcaError("configuration", " ".join(words), str(error), "mend it") from error
    finally:
        GlobalHydra.instance().hydra = before


def nested_options(group: str) -> list[str]:
    """The options of a group that lie in folders of it, such as corruption/fog of shift."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in (CONF / group).glob("*/*.yaml"))


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
    """
    key, _, value = word.partition("=")
    if value == "null" and (CONF / key).is_dir():
        return [f"~{key}"]
    is_one = word.startswith("shift=") and "," not in word
    return shift_words(word.removeprefix("shift=")) if is_one else [word]


def with_free_keys(arguments: Sequence[str]) -> list[str]:
    """The words, with `++` before the keys of groups that are swept: they may belong to one choice alone.

    Hydra first composes what is not swept, here with the usual shift, which has no severities:

    >>> with_free_keys(["-m", "shift=a/b,a/c", "shift.severities=[1]", "seed=1"])
    ['-m', 'shift=a/b,a/c', '++shift.severities=[1]', 'seed=1']
    >>> with_free_keys(["--cfg", "job"])
    ['--cfg', 'job']
    """
    words = [word for word in arguments if "=" in word and not word.startswith("-")]  # neither flags nor their values
    parsed = dict(zip(words, OverridesParser.create().parse_overrides(words), strict=True))
    swept = {override.package or override.key_or_group for override in parsed.values() if override.is_sweep_override()}
    keys = {
        word
        for word, override in parsed.items()
        if override.type is OverrideType.CHANGE
        and not override.is_sweep_override()
        and override.key_or_group.rpartition(".")[0].partition(".")[0] in swept
    }
    return [f"++{word}" if word in keys else word for word in arguments]


def _refuse(error: Exception) -> int:
    if isinstance(error, OSError | DamagedFile) and not isinstance(error, HydraException):  # of which some are OSErrors
        line: object = as_line(error)
    else:
        line = _as_fca_error(error) or _shortened(error)
    print(f"error: {line}", file=sys.stderr)
    return 2


def _as_fca_error(error: Exception) -> FcaError | None:
    """An error of ours, or Hydra's for an unknown option or key as one of ours; None for all others."""
    if isinstance(error, FcaError):
        return error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.partition("/")
        options = ", ".join([*error.options, *nested_options(group)])
        return FcaError(group, name, options, f"choose one, or add conf/{group}/{name}.yaml")
    unknown = error.__cause__
    if isinstance(unknown, ConfigAttributeError | ConfigKeyError) and isinstance(unknown.parent_node, DictConfig):
        keys = ", ".join(str(key) for key in unknown.parent_node if key not in ("_target_", "hydra"))
        return FcaError("key", unknown.full_key, keys, "correct its name")
    return None


def _shortened(error: Exception) -> str:
    """Hydra's message and what caused it, without its search path and hints."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if error.__cause__ is not None and str(error.__cause__) not in str(error):
        lines += str(error.__cause__).splitlines()
    hidden = ("Config search path", "Set the environment variable", "provider=", "reference_type", "object_type")
    text = "\n  ".join(line.strip() for line in lines if not line.strip().startswith(hidden))
    return re.sub(r"incompatible with type hint 'Optional\[Union\[(int, float|float, int)\]\]'", "not a number", text)
