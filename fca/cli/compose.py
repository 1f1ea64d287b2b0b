"""Configurations of a sweep, in a fraction of Hydra's time.

Hydra takes 200 ms to compose a choice of groups. Here each choice is composed once in a process; the other keys of a
point of the grid are set in the result.
"""

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

# id of a sweep -> words that Hydra composed -> configuration; only of the latest sweep that this process worked for
_COMPOSED: dict[str, dict[tuple[str, ...], DictConfig]] = {}


class Composer(ConfigLoaderImpl):
    """Hydra's loader of configurations, for one sweep; it is sent to the workers with every job.

    words: override of the grid -> the number of values that its axis has.
    """

    def __init__(self, loader: ConfigLoader, words: Mapping[str, int]) -> None:
        """Find the keys that vary over the grid and can be set without Hydra (`varying_keys`).

        loader: Hydra's own loader, whose folders of configurations are used.
        words:  override of the grid -> the number of values that its axis has.
        """
        super().__init__(loader.get_search_path())
        # the id in the cache of configurations: a process may work for several sweeps, one after the other
        self.sweep = uuid.uuid4().hex
        groups = set(self.list_groups(""))
        # Keys with several values in the grid, which are set in what Hydra composed. A key that chooses an option of a
        # group is not among them, since only Hydra can compose the option.
        self.varying_keys: set[str] = set()
        for word, n_values in words.items():
            key = _key(word)
            is_group = key.partition("@")[0].partition("/")[0] in groups  # model@encoder, recipe/augment
            # + and ~ change the structure, and keys of hydra decide how Hydra composes
            if n_values > 1 and not is_group and not word.startswith(("+", "~", "hydra.")):
                self.varying_keys.add(key)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job, equal to what Hydra would compose from all overrides; launchers call this.

        master_config: the configuration of the sweep.
        sweep_overrides: the overrides of the job.
        """
        shared_config, overrides_to_set = self._composed(master_config, sweep_overrides)
        config = copy.deepcopy(shared_config)  # other jobs use the shared one
        _set(config, overrides_to_set)

        # Hydra has seen only the overrides that it composed, so its notes about the overrides are completed here
        typed = [override for override in map(_parsed, sweep_overrides) if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in typed]
        config.hydra.job.override_dirname = get_overrides_dirname(typed, **config.hydra.job.config.override_dirname)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)  # ${now:...} is the same in all jobs
        return config

    def point(self, master_config: DictConfig, words: Sequence[str]) -> DictConfig:
        """The configuration of one point of the grid, without the node `hydra`; for planning.

        Hydra composes only the overrides whose keys are the same over the grid, or that only Hydra can compose. The
        values of all other keys (`varying_keys`) are set in its result. Points that differ only in these values share
        one object, because a copy takes longer than setting values. So the next call may change the result.

        master_config: the configuration of the sweep.
        words: the overrides of the point.
        """
        config, overrides_to_set = self._composed(master_config, words)
        cache = _COMPOSED[self.sweep]
        set_keys = [str(override.key_or_group) for override in overrides_to_set]
        # "" separates the composed words from the keys that are set; the keys that `_composed` puts into the same cache
        # have no ""
        cache_key = (*self._words_to_compose(words), "", *set_keys)
        has_container = any(isinstance(override.value(), dict | list) for override in overrides_to_set)
        if cache_key not in cache or has_container:  # a list or mapping would be merged with the previous point's
            cache[cache_key] = copy.deepcopy(config)
            with open_dict(cache[cache_key]):
                del cache[cache_key]["hydra"]
        _set(cache[cache_key], overrides_to_set)
        return cache[cache_key]

    def _words_to_compose(self, words: Sequence[str]) -> list[str]:
        """The overrides among `words` that Hydra has to compose; the other overrides can be set in its result."""
        return [word for word in words if _key(word) not in self.varying_keys]

    def _composed(self, master: DictConfig, words: Sequence[str]) -> tuple[DictConfig, list[Override]]:
        """The configuration that Hydra composes from some of these overrides, and the overrides still to be set in it.

        The configuration is cached and must not be changed.
        master: the configuration of the sweep.
        words: all overrides of a job or point.
        """
        if self.sweep not in _COMPOSED:
            _COMPOSED.clear()  # another sweep has begun: its predecessor's configurations are no longer needed
        cache = _COMPOSED.setdefault(self.sweep, {})

        words_to_compose = self._words_to_compose(words)
        key = tuple(words_to_compose)
        if key not in cache:
            cache[key] = super().load_sweep_config(master, words_to_compose)
        return cache[key], [_parsed(word) for word in words if word not in words_to_compose]


def _key(word: str) -> str:
    return word.partition("=")[0]


@lru_cache(maxsize=10_000)
def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_overrides([word])[0]


def _set(config: DictConfig, overrides: Sequence[Override]) -> None:
    """Set the values of these overrides in a configuration; a mapping is merged with the keys that are there."""
    for override in overrides:
        OmegaConf.update(config, str(override.key_or_group), override.value(), merge=True)
