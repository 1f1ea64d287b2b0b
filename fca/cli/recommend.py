"""`fca recommend FOLDER`: describe the images, measure and probe programs, and answer which model to use."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from fca.cli.application import application, check_root, composed, typed_words
from fca.cli.configure import Job, component, job_of
from fca.cli.execute import execute
from fca.cli.recommend_networks import FEATURES, SCRATCH, WEIGHTS, Network, networks, smaller_sizes
from fca.cli.report import write_report
from fca.cli.show import show_failures, show_job
from fca.models.programs import missing_packages
from fca.progress import track
from fca.report.figure import answers
from fca.report.page import MOST
from fca.store import State, Store
from fca.store.columns import INPUT_SIZE
from fca.studies.recommend.choice import Weighed
from fca.studies.recommend.evidence import CUT, FINETUNE, LATENCY, PROBE, WHOLE, Program, evidence, evidence_of
from fca.studies.recommend.evidence import SCRATCH as FROM_SCRATCH
from fca.studies.recommend.expected import known_jobs
from fca.studies.recommend.recommendation import Recommendation
from fca.tasks.latency import check_threads
from fca.types import FcaError

SHARED = ("dataset", "subset", "machine", "recipe", "trainer", "logger", "outputs", "limit", "plugins")
OF_ANALYSIS = ("within", "confidence", "metric", "latency_ms", "memory_mb", "file_mb", "params_m")
EAGER_S = 4.0  # training in PyTorch: forward passes of onnxruntime that one of a step takes, forward and backward
START_S = 5.0  # to build a network and begin
PATIENCE_S = 120.0  # of probes that are all tried, whatever is expected of them
WORTH = 0.1  # probability of changing the answer from which on a probe is tried after that
ROUNDS = 9  # of measuring, of which the median is taken


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 for what cannot be understood. The first word may be the folder (or zip) of images."""
    words = list(arguments)
    if words and "=" not in words[0] and not words[0].startswith("-"):
        words[0] = f"dataset.root={quoted(words[0])}"
    return application("recommend", recommend, words)


def quoted(text: str) -> str:
    """A text as one value of Hydra's grammar.

    >>> quoted("Ann's photos, 2024")
    "'Ann\\\\'s photos, 2024'"
    """
    return "'" + text.replace("'", "\\'") + "'"


def recommend(config: DictConfig) -> None:
    """Spend the minutes, then print the answer and where its page is."""
    check_root("recommend", config)
    check_threads("threads", config.threads)
    search = Search(config, shared_words(config), component(config, "analysis"))
    print(search.opening, flush=True)  # a wrong name is refused before any work
    search.describe()
    search.measure()
    search.probe()
    search.train()
    search.answer()


def shared_words(config: DictConfig) -> list[str]:
    """What was typed of the data, the machine and the recipe, for `fca run`."""
    typed = typed_words(HydraConfig.get())
    words = [word for word in typed if word.lstrip("+~").partition("=")[0].partition(".")[0] in SHARED]
    named = any(word.startswith("dataset=") for word in words)
    return [*([] if named else ["dataset=folder"]), *words, f"machine.accelerator={config.device}"]


class Subject(NamedTuple):
    """What is measured and probed: keys of its model, and of how it was compiled (None: it runs in PyTorch)."""

    network: Network
    keys: Mapping[str, Any]
    compiled: str | None = None


@dataclass
class Search:
    """The runs of one recommendation.

    words: of all of them.    of: fingerprint and classes of what is trained on, known from the first training on.
    """

    config: DictConfig
    words: list[str]
    asked: Recommendation
    of: tuple[str, tuple[int, ...]] = field(init=False)
    _jobs: dict[str, Job] = field(default_factory=dict)

    def job(self, task: str, **keys: Any) -> Job:
        """One configuration of `fca run`."""
        words = [*self.words, f"task={task}", *(_word(key, value) for key, value in keys.items())]
        place = shlex.join(words)
        if place not in self._jobs:
            self._jobs[place] = job_of(composed("run", words), words)
        return self._jobs[place]

    @cached_property
    def store(self) -> Store:
        """Where the runs are kept."""
        return Store(Path(self.config.outputs))

    @cached_property
    def networks(self) -> list[Network]:
        """What to choose among."""
        return networks(self.config)

    @cached_property
    def is_compiled(self) -> bool:
        """Whether networks run as ONNX programs, as they are shipped; on a GPU they run in PyTorch."""
        return self.config.device != "gpu" and not missing_packages()

    @property
    def opening(self) -> str:
        """What is chosen among, in words."""
        named = [network.label for network in self.networks if network.kind != FEATURES]
        kind = "pretrained weights" if any(one.kind == WEIGHTS for one in self.networks) else "no weights"
        line = f"{len(named)} networks with {kind}: {', '.join(named)}"
        if missing := missing_packages():
            line += (
                f"\n{', '.join(missing)} is not installed: networks run in PyTorch, in fp32; pip install 'fca[export]'"
            )
        return line

    # Steps

    def describe(self) -> None:
        """What the images are, and which of them a person should look at."""
        job = self.job("describe")
        execute(job, alone=True)
        show_job(job)

    @cached_property
    def subjects(self) -> list[Subject]:
        """Every program of every network, those written first that were not; a line for each that cannot be."""
        subjects: list[Subject] = []
        for network in self.networks:
            if network.kind == WEIGHTS and self.is_compiled:
                subjects += self._programs(network)
            elif network.kind == WEIGHTS:
                subjects += self._eager(network)
            else:
                subjects.append(Subject(network, network.keys))
        return subjects

    def _programs(self, network: Network) -> Iterator[Subject]:
        """A network at its usual and smaller sizes, in every precision and depth."""
        first = self._compiled(network, {}, self.config.precisions[0])
        if first is None:
            return
        usual = int(self.store.row(first)[INPUT_SIZE])
        sizes: list[dict[str, Any]] = [{}]
        sizes += [{"model.input_size": size} for size in smaller_sizes(usual, self.config.sizes)]
        todo = [(size, precision) for size in sizes for precision in self.config.precisions]
        for size, precision in track(todo, f"compiling {network.label}", len(todo)):
            run_id = self._compiled(network, size, precision)
            if run_id is None:
                continue
            depths = self.store.compiled_depths(run_id)
            for depth in depths:
                if depth in self.config.depths:
                    keys = {"model": "compiled", "model.run_id": run_id, "model.depth": depth}
                    yield Subject(network, keys, run_id)

    def _compiled(self, network: Network, size: Mapping[str, Any], precision: str) -> str | None:
        """The run of task=compile; None, with a line, where it fails."""
        try:
            job = self.job("compile", **network.keys, **size, **{"task.precision": precision})
            execute(job, alone=True)
        except FcaError as error:
            print(f"left out: {network.label} {size.get('model.input_size', '')} {precision}: {error}", flush=True)
            return None
        return job.plan[0].run_id
