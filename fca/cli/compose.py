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

# Both caches have only the latest sweep that this process worked for, under its id.
# id of a sweep -> words that Hydra composed -> configuration
_COMPOSED: dict[str, dict[tuple[str, ...], DictConfig]] = {}
# id of a sweep -> (words that Hydra composed, keys that are set in the result) -> configuration without `hydra`
_POINTS: dict[str, dict[tuple[tuple[str, ...], tuple[str, ...]], DictConfig]] = {}


class Composer(ConfigLoaderImpl):
    """Hydra's loader of configurations, for one sweep; it is sent to the workers with every job.

    words: override of the grid -> the number of values that its axis has.
    """

    def __init__(self, loader: ConfigLoader, words: Mapping[str, int]) -> None:
        """Find `varying_keys`: the keys that vary over the grid and can be set in what Hydra composed.

        Setting them is much faster than composing each point of the grid.

        loader: Hydra's own loader, whose folders of configurations are used.
        words:  override of the grid -> the number of values that its axis has.
        """
        super().__init__(loader.get_search_path())
        # the sweep's id in the caches: a process may work for several sweeps, one after the other
        self.sweep = uuid.uuid4().hex
        groups = set(self.list_groups(""))
        self.varying_keys: set[str] = set()
        for word, n_values in words.items():
            key = _key(word)
            # such as model@encoder or recipe/augment: it chooses a file, which Hydra has to compose
            is_group = key.partition("@")[0].partition("/")[0] in groups
            # + adds keys, ~ removes keys, and keys of hydra decide how Hydra composes
            is_left_to_hydra = is_group or word.startswith(("+", "~", "hydra."))
            if n_values > 1 and not is_left_to_hydra:
                self.varying_keys.add(key)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """The configuration of one job, equal to what Hydra would compose from all overrides; launchers call this.

        master_config: the configuration of the sweep.
        sweep_overrides: the overrides of the job.
        """
        shared_config, overrides_to_set = self._composed(master_config, sweep_overrides)
        config = copy.deepcopy(shared_config)  # other jobs use the shared one
        _set(config, overrides_to_set)

        # In the node `hydra`, Hydra has listed only the overrides that it composed: list all of them
        typed = [override for override in map(_parsed, sweep_overrides) if not override.is_hydra_override()]
        config.hydra.overrides.task = [override.input_line for override in typed]
        config.hydra.job.override_dirname = get_overrides_dirname(typed, **config.hydra.job.config.override_dirname)
        OmegaConf.copy_cache(from_config=master_config, to_config=config)  # ${now:...} is the same in all jobs
        return config

    def point(self, master_config: DictConfig, words: Sequence[str]) -> DictConfig:
        """The configuration of one point of the grid, without the node `hydra`; for planning.

        `varying_keys` are the keys that vary over the grid and can be set in what Hydra composed. Points that differ
        only in the values of these keys share one object, in which each call sets its values: a copy for each point
        would take longer. So the result is valid until the next call.

        master_config: the configuration of the sweep.
        words: the overrides of the point.
        """
        composed_config, overrides_to_set = self._composed(master_config, words)
        # points that set other keys do not share: a key that only an earlier point sets would keep that point's value
        set_keys = tuple(str(override.key_or_group) for override in overrides_to_set)
        points = _POINTS.setdefault(self.sweep, {})
        shared_by = (tuple(self._words_to_compose(words)), set_keys)  # points that are equal in these share an object
        has_container = any(isinstance(override.value(), dict | list) for override in overrides_to_set)
        if shared_by not in points or has_container:  # a list or mapping would be merged with the previous point's
            points[shared_by] = copy.deepcopy(composed_config)
            with open_dict(points[shared_by]):
                del points[shared_by]["hydra"]
        _set(points[shared_by], overrides_to_set)
        return points[shared_by]

    def _words_to_compose(self, words: Sequence[str]) -> list[str]:
        """The overrides that Hydra has to compose: all but those of `varying_keys`, which are set in its result."""
        return [word for word in words if _key(word) not in self.varying_keys]

    def _composed(self, master: DictConfig, words: Sequence[str]) -> tuple[DictConfig, list[Override]]:
        """What Hydra composes from the overrides that are no `varying_keys`, and the overrides of `varying_keys`.

        `varying_keys` are the keys that vary over the grid and can be set after Hydra has composed. The caller sets
        them in a copy. The configuration itself must not be changed: it is cached, since Hydra takes 200 ms for it, and
        used for all points that differ only in `varying_keys`.

        master: the configuration of the sweep.
        words: all overrides of a job or point.
        """
        if self.sweep not in _COMPOSED:
            _COMPOSED.clear()  # another sweep has begun: its predecessor's configurations are no longer needed
            _POINTS.clear()
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
