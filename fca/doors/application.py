"""A door that composes a configuration is a Hydra application; its errors are short and end with exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fca.doors.schema import register
from fca.nouns import FcaError

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
        first = sorted(_of_swept_groups(arguments), key=lambda word: word not in ("-m", "--multirun"))
        sys.argv = [f"fca {root}", *first]
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=root)(job)()
    except (HydraException, OmegaConfBaseException, FcaError) as error:
        return _refuse(error)
    return 0


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
