"""What a configuration may set of Lightning's Trainer: what shows or watches a training, and changes no result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fca.allowed import Allowed
from fca.plugins import class_of, is_within, plugins
from fca.torchvision_ops import declare_torchvision_ops, imported
from fca.types import FcaError

Named = Mapping[str, tuple[str, ...]]
_CALLBACKS, LOGGING = "pytorch_lightning.callbacks.", "pytorch_lightning.loggers"
OBSERVERS: Named = {
    _CALLBACKS + "LearningRateMonitor": ("logging_interval", "log_momentum", "log_weight_decay"),
    _CALLBACKS + "DeviceStatsMonitor": ("cpu_stats",),
    _CALLBACKS + "ModelSummary": ("max_depth",),
    _CALLBACKS + "RichModelSummary": ("max_depth",),
}
"""Callbacks of Lightning that change no result -> their keywords."""
LOGGERS: Named = {f"{LOGGING}.CSVLogger": ("flush_logs_every_n_steps",), f"{LOGGING}.TensorBoardLogger": ()}
"""Loggers of Lightning, which write into the folder `curves` of a run -> their keywords."""
PROFILERS = {"simple": "SimpleProfiler", "advanced": "AdvancedProfiler", "pytorch": "PyTorchProfiler"}
PLAIN = ("log_every_n_steps", "detect_anomaly", "deterministic", "benchmark", "enable_model_summary")
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
        """Raise FcaError for a class that may not be named, or a keyword that it does not have."""
        for key, one, known in self._named():
            target = one.get("_target_") if isinstance(one, Mapping) else None
            if not isinstance(target, str):
                raise FcaError(key, one, "{_target_: CLASS, KEYWORD: VALUE}", "name a class")
            if target not in known and is_within(target.rpartition(".")[0], *plugins()):
                declare_torchvision_ops()  # its module imports Lightning
                class_of(key, target)
            elif target not in known:
                raise FcaError(key, target, ", ".join(known), STEP)
            elif odd := sorted(set(one) - {"_target_", *known[target]}):
                raise FcaError(f"{key}.{odd[0]}", one[odd[0]], ", ".join(known[target]) or "none", "leave it out")

    def meaning(self) -> list[Any]:
        """The callbacks that may change results."""
        return [one for one in self.callbacks if one["_target_"] not in OBSERVERS]

    def arguments(self, folder: Path) -> dict[str, Any]:
        """For Lightning's Trainer, `callbacks` and `logger` as lists.    folder: of the run.

        Raises FcaError for keywords that a class refuses, and for a class of the user's that is of another kind.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        values |= {"callbacks": [], "logger": []}
        if self.profiler:
            kind = getattr(imported("pytorch_lightning.profilers"), PROFILERS[self.profiler])
            values["profiler"] = kind(dirpath=folder, filename="profile")
        for key, one, known in self._named():
            group = "callbacks" if known is OBSERVERS else "logger"
            values[group].append(_made(key, one, known, folder))
        if any("ModelSummary" in one["_target_"] for one in self.callbacks):
            values["enable_model_summary"] = True  # else Lightning refuses it
        return values

    def _named(self) -> Iterator[tuple[str, Any, Named]]:
        for group, named, known in (("callbacks", self.callbacks, OBSERVERS), ("loggers", self.loggers, LOGGERS)):
            yield from ((f"trainer.{group}[{number}]", one, known) for number, one in enumerate(named))


def _made(key: str, one: Mapping[str, Any], known: Named, folder: Path) -> Any:
    target, keywords = one["_target_"], {name: value for name, value in one.items() if name != "_target_"}
    if target in LOGGERS:
        keywords |= {"save_dir": folder, "name": "curves", "version": ""}
    module, _, name = target.rpartition(".")
    made: Any = getattr(imported(module), name) if target in known else class_of(key, target)
    try:
        built = made(**keywords)
    except Exception as error:  # whatever a class refuses its keywords with, or a library that it needs is not there
        raise FcaError(key, target, f"keywords that it takes ({error})", "correct them") from error
    kind = imported("pytorch_lightning.callbacks").Callback if known is OBSERVERS else imported(LOGGING).Logger
    if not isinstance(built, kind):
        raise FcaError(key, target, f"a {kind.__module__}.{kind.__name__}", "take a class of that kind")
    return built
