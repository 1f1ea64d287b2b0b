"""The columns of rows that tests write without running a task."""

from functools import cache

from omegaconf import OmegaConf

from fca.cli.places import CONF
from fca.plugins import class_of
from fca.types import Column


@cache
def task_columns() -> tuple[Column, ...]:
    """The columns that the tasks and adaptations of conf/ declare."""
    files = [file for group in ("task", "adaptation") for file in sorted((CONF / group).glob("*.yaml"))]
    targets = [OmegaConf.select(OmegaConf.load(file), "_target_") for file in files]
    declaring = [class_of("_target_", target) for target in targets if target is not None]
    return tuple(dict.fromkeys(column for kind in declaring for column in kind.columns))
