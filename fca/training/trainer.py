"""Settings of Lightning's Trainer in a configuration: those that show or watch a training, and change no result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fca.plugins import class_of, is_within, plugins
from fca.torchvision_ops import declare_torchvision_ops, imported
from fca.types import FcaError
from fca.validation import Allowed

KeywordsByClass = Mapping[str, tuple[str, ...]]
_CALLBACKS = "pytorch_lightning.callbacks"
_LOGGERS = "pytorch_lightning.loggers"
OBSERVERS: KeywordsByClass = {
    f"{_CALLBACKS}.LearningRateMonitor": ("logging_interval", "log_momentum", "log_weight_decay"),
    f"{_CALLBACKS}.DeviceStatsMonitor": ("cpu_stats",),
    f"{_CALLBACKS}.ModelSummary": ("max_depth",),
    f"{_CALLBACKS}.RichModelSummary": ("max_depth",),
}
"""Callbacks of Lightning that change no result -> their keywords."""
LOGGERS: KeywordsByClass = {
    f"{_LOGGERS}.CSVLogger": ("flush_logs_every_n_steps",),
    f"{_LOGGERS}.TensorBoardLogger": (),
}
"""Loggers of Lightning, which write into the folder `curves` of a run -> their keywords."""
PROFILERS = {"simple": "SimpleProfiler", "advanced": "AdvancedProfiler", "pytorch": "PyTorchProfiler"}
PASSED_TO_LIGHTNING = ("log_every_n_steps", "detect_anomaly", "deterministic", "benchmark", "enable_model_summary")
STEP = "correct the name; for a dataclass of your own, list its module: plugins=[my_module]"


@dataclass(frozen=True)
class TrainerKeys:
    """The fields of `trainer` in YAML, by their names in pytorch_lightning.Trainer.

    profiler:  simple, advanced or pytorch; the run's folder then has fit-profile.txt.
    callbacks: [{_target_: CLASS, KEYWORD: VALUE}]: a class of `OBSERVERS`, or a callback of the user's (a dataclass in
               a module under `plugins`), which may change results and so is part of a run's identity.
    loggers:   likewise, of `LOGGERS` or the user's, beside the one of the group `logger`.
    """

    profiler: Annotated[str | None, Allowed(choices=tuple(PROFILERS))]
    log_every_n_steps: Annotated[int, Allowed(1)]
    detect_anomaly: bool
    deterministic: bool
    benchmark: bool
    enable_model_summary: bool
    callbacks: list[Any]
    loggers: list[Any]

    def check(self) -> None:
        """Raise FcaError if a callback or logger names no class, a class that is not allowed, or an unknown keyword.

        Allowed are the classes of OBSERVERS (for callbacks) and LOGGERS, and the dataclasses of modules that the user
        lists under `plugins`. The keywords of the user's classes are not checked here.
        """
        # keywords_by_class: OBSERVERS for a callback, LOGGERS for a logger; each has allowed classes -> their keywords
        for key, entry, keywords_by_class in self._entries():
            target = entry.get("_target_") if isinstance(entry, Mapping) else None
            if not isinstance(target, str):
                raise FcaError(key, entry, "{_target_: CLASS, KEYWORD: VALUE}", "name a class")

            if target in keywords_by_class:
                keywords = keywords_by_class[target]
                unknown_keywords = sorted(set(entry) - {"_target_", *keywords})
                if unknown_keywords:
                    keyword = unknown_keywords[0]
                    allowed = ", ".join(keywords) or "none"
                    raise FcaError(f"{key}.{keyword}", entry[keyword], allowed, "leave it out")
                continue

            module, _, _ = target.rpartition(".")
            if not is_within(module, *plugins()):
                raise FcaError(key, target, ", ".join(keywords_by_class), STEP)  # STEP: how to allow a class
            declare_torchvision_ops()  # before `class_of`: the user's module may import Lightning, which needs them
            class_of(key, target)  # raises if it is no dataclass of that module

    def meaning(self) -> list[Any]:
        """The entries of callbacks that may change results: all but OBSERVERS. They are part of a run's identity."""
        return [entry for entry in self.callbacks if entry["_target_"] not in OBSERVERS]

    def arguments(self, folder: Path) -> dict[str, Any]:
        """Arguments of Lightning's Trainer: options, the profiler, and instances of all callbacks and loggers.

        folder: the run's folder, where loggers and the profiler write.
        Raises FcaError for keywords that a class refuses, and for a user's class that is no callback, or no logger.
        """
        callbacks: list[Any] = []
        loggers: list[Any] = []
        for key, entry, keywords_by_class in self._entries():
            # OBSERVERS are the allowed callbacks; all other entries are loggers.
            instances = callbacks if keywords_by_class is OBSERVERS else loggers
            instances.append(_made_from_entry(key, entry, keywords_by_class, folder))

        arguments: dict[str, Any] = {name: getattr(self, name) for name in PASSED_TO_LIGHTNING}
        arguments["callbacks"] = callbacks
        arguments["logger"] = loggers
        if self.profiler:
            profiler_class = getattr(imported("pytorch_lightning.profilers"), PROFILERS[self.profiler])
            arguments["profiler"] = profiler_class(dirpath=folder, filename="profile")
        if any("ModelSummary" in entry["_target_"] for entry in self.callbacks):
            # a callback that prints the summary: Lightning refuses it while summaries are off
            arguments["enable_model_summary"] = True
        return arguments

    def _entries(self) -> Iterator[tuple[str, Any, KeywordsByClass]]:
        """Yield for each callback and logger its key for messages, its entry, and the classes allowed for it."""
        for number, entry in enumerate(self.callbacks):
            yield f"trainer.callbacks[{number}]", entry, OBSERVERS
        for number, entry in enumerate(self.loggers):
            yield f"trainer.loggers[{number}]", entry, LOGGERS


def _made_from_entry(key: str, entry: Mapping[str, Any], keywords_by_class: KeywordsByClass, folder: Path) -> Any:
    """Make the callback or logger that an entry of the configuration describes.

    key:               the entry's key in the configuration, for messages.
    entry:             {_target_: CLASS, KEYWORD: VALUE}.
    keywords_by_class: the classes of Lightning that are allowed here -> their keywords: OBSERVERS if the entry is a
                       callback, LOGGERS if it is a logger.
    folder:            the run's folder, where Lightning's loggers write.

    Raises FcaError if the class refuses its keywords, or if an entry for a callback names a class that is no callback,
    or an entry for a logger a class that is no logger.
    """
    target = entry["_target_"]
    keywords = {name: value for name, value in entry.items() if name != "_target_"}
    if target in LOGGERS:  # Lightning's own write into the folder `curves` of the run; version "": without a subfolder
        keywords.update(save_dir=folder, name="curves", version="")

    if target in keywords_by_class:
        module, _, name = target.rpartition(".")
        target_class: Any = getattr(imported(module), name)
    else:
        target_class = class_of(key, target)  # a class of the user's, from a module under `plugins`

    try:
        instance = target_class(**keywords)
    except Exception as error:  # classes refuse keywords, or miss a library, with errors of any kind
        raise FcaError(key, target, f"keywords that it takes ({error})", "correct them") from error

    # Lightning's base class of callbacks, or of loggers
    base_class = imported(_CALLBACKS).Callback if keywords_by_class is OBSERVERS else imported(_LOGGERS).Logger
    if not isinstance(instance, base_class):
        allowed = f"a {base_class.__module__}.{base_class.__name__}"
        raise FcaError(key, target, allowed, "take a class of that kind")
    return instance
