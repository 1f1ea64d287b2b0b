"""The points of a sweep: Hydra composes each choice of groups once in a process (200 ms); other keys are set in it."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

_COMPOSED: dict[str, dict[tuple[str, ...], DictConfig]] = {}  # of the latest sweep that this process worked for


class Composer(ConfigLoaderImpl):
    """Hydra's loader of configurations, for one sweep; it travels to the workers with every job.

    words: of the whole grid -> the number of values of the axis that each belongs to.
    """

    def __init__(self, loader: ConfigLoader, words: Mapping[str, int]) -> None:
        super().__init__(loader.get_search_path())
        self.sweep, groups = uuid.uuid4().hex, set(self.list_groups(""))
        keys = {
            _key(word) for word, values in words.items() if values > 1 and not word.startswith(("+", "~", "hydra."))
        }
        self.varying = {key for key in keys if key.partition("@")[0].partition("/")[0] not in groups}

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job, equal to the one that Hydra would compose."""
        config, rest = self._composed(master_config, sweep_overrides)
        config = copy.deepcopy(config)
        _set(config, rest)
        typed = [override for override in map(_parsed, sweep_overrides) if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in typed]
        config.hydra.job.override_dirname = get_overrides_dirname(typed, **config.hydra.job.config.override_dirname)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def point(self, master_config: DictConfig, words: Sequence[str]) -> DictConfig:
        """The same without the node `hydra`, good until the next call: points that set the same keys share it."""
        config, rest = self._composed(master_config, words)
        known, place = _COMPOSED[self.sweep], (*self._whole(words), "", *(str(one.key_or_group) for one in rest))
        if place not in known or any(isinstance(one.value(), dict | list) for one in rest):  # else they would be merged
            known[place] = copy.deepcopy(config)
            with open_dict(known[place]):
                del known[place]["hydra"]
        _set(known[place], rest)
        return known[place]

    def _whole(self, words: Sequence[str]) -> list[str]:
        return [word for word in words if _key(word) not in self.varying]

    def _composed(self, master: DictConfig, words: Sequence[str]) -> tuple[DictConfig, list[Override]]:
        """What Hydra makes of the words that it has to compose, and the other words."""
        if self.sweep not in _COMPOSED:
            _COMPOSED.clear()
        known, whole = _COMPOSED.setdefault(self.sweep, {}), self._whole(words)
        if tuple(whole) not in known:
            known[tuple(whole)] = super().load_sweep_config(master, whole)
        return known[tuple(whole)], [_parsed(word) for word in words if word not in whole]


def _key(word: str) -> str:
    return word.partition("=")[0]


@lru_cache(maxsize=10_000)
def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_overrides([word])[0]


def _set(config: DictConfig, overrides: Sequence[Override]) -> None:
    for override in overrides:
        OmegaConf.update(config, str(override.key_or_group), override.value(), merge=True)
