"""A door that composes a configuration is a Hydra application; its errors are short and end with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fca.types import FcaError

# The typed root of every configuration: what is not declared here or by a plug's own fields is refused.


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
    """`fca run`. The groups are checked against the fields of the class that their `_target_` names."""

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


@dataclass
class AnalyseConfig:
    """`fca analyse`."""

    analysis: Any
    outputs: str = "outputs"


@dataclass
class ReportConfig:
    """`fca report`."""

    report: Any
    logger: Any
    outputs: str = "outputs"
    query: str | None = None


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


ROOTS = {"run": RunConfig, "analyse": AnalyseConfig, "report": ReportConfig, "generate": GenerateConfig}


def register() -> None:
    """Make the schemas known to Hydra under the names that the root YAMLs start from."""
    store = ConfigStore.instance()
    for name, node in ROOTS.items():
        store.store(name=f"{name}_schema", node=node)


_PACKAGE = Path(__file__).resolve().parents[1]
CONF = next(folder for folder in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if folder.is_dir())


def application(root: str, work: Callable[[DictConfig], object], arguments: Sequence[str]) -> int:
    """Compose conf/<root>.yaml with the command line's overrides and hand it to `work`; returns the exit code."""
    register()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let Hydra's errors through to us: it would print tracebacks and exit with 1

    def job(config: DictConfig) -> None:
        try:
            work(config)
        except BrokenPipeError as error:  # the reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from error
        except FcaError as error:
            if HydraConfig.get().mode is RunMode.MULTIRUN:
                raise
            raise SystemExit(_refuse(error)) from error  # passes Hydra silently, where an Exception is announced

    try:
        # -m may stand anywhere; to Hydra's parser only in front of the overrides
        first = sorted(map(without_null, _of_swept_groups(arguments)), key=lambda word: word not in ("-m", "--multirun"))
        sys.argv = [f"fca {root}", *first]
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=root)(job)()
    except (HydraException, OmegaConfBaseException, FcaError) as error:
        return _refuse(error)
    return 0


def without_null(word: str) -> str:
    """A word of the command line; `null` for a group, as Hydra wants it.

    >>> without_null("adaptation=null"), without_null("compat=null")
    ('~adaptation', 'compat=null')
    """
    key, _, value = word.partition("=")
    return f"~{key}" if value == "null" and (CONF / key).is_dir() else word


def _of_swept_groups(arguments: Sequence[str]) -> list[str]:
    """The words, with `++` before the keys of groups that are swept: they may be those of one choice alone.

    Hydra first composes what is not swept, here with the usual shift, which has no severities:

    >>> _of_swept_groups(["-m", "shift=a/b,a/c", "shift.severities=[1]", "seed=1"])
    ['-m', 'shift=a/b,a/c', '++shift.severities=[1]', 'seed=1']
    >>> _of_swept_groups(["--cfg", "job"])
    ['--cfg', 'job']
    """
    words = [
        word for word in arguments if "=" in word and not word.startswith("-")
    ]  # no flags, nor what belongs to them
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
    print(f"error: {_said(error)}", file=sys.stderr)
    return 2


def _said(error: Exception) -> str:
    """An error and what caused it, without Hydra's search path and hints."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.partition("/")
        nested = (path.relative_to(CONF / group) for path in (CONF / group).glob("*/*.yaml"))
        options = [*error.options, *sorted(path.with_suffix("").as_posix() for path in nested)]
        return str(FcaError(group, name, ", ".join(options), f"choose one, or add conf/{group}/{name}.yaml"))
    unknown = error.__cause__ if isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError) else None
    if unknown is not None and not isinstance(error, FcaError) and isinstance(unknown.parent_node, DictConfig):
        keys = ", ".join(str(key) for key in unknown.parent_node if key not in ("_target_", "hydra"))
        return str(FcaError("key", unknown.full_key, keys, "correct its name"))
    lines = [line for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__
    if cause is not None and not isinstance(error, FcaError) and str(cause) not in str(error):
        lines += str(cause).splitlines()
    hidden = ("Config search path", "Set the environment variable", "provider=", "reference_type", "object_type")
    said = "\n  ".join(line.strip() for line in lines if not line.strip().startswith(hidden))
    return said.replace("incompatible with type hint 'Optional[Union[int, float]]'", "not a number")
