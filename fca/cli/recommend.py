"""`fca recommend FOLDER`: describe the images, measure and train candidates, and answer which model to use."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from fca.cli.application import CONF, application, check_root, composed, typed_words
from fca.cli.configure import Job, component, job_of
from fca.cli.execute import execute
from fca.cli.report import write_report
from fca.cli.show import show_failures, show_job
from fca.report.figure import answers
from fca.report.page import MOST
from fca.store import State, Store
from fca.studies.recommend.evidence import SPEED, Key, evidence, evidence_of
from fca.studies.recommend.expected import known_points
from fca.studies.recommend.recommendation import Recommendation, Weighed
from fca.tasks.latency import check_threads
from fca.types import FcaError, check_choice

SHARED = ("dataset", "subset", "machine", "recipe", "trainer", "logger", "outputs", "limit", "plugins")
SHARES = (1 / 3, 1.0)  # of a training's length, by round; a ninth of 200 steps leaves a fine-tuned network near chance
PASSES = 3.0  # forward passes that a step of training takes
START_S = 3.0  # to build a network and begin
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


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
    print(f"{len(search.networks)} networks to choose among", flush=True)  # a wrong name is refused before any work
    search.describe()
    search.measure()
    search.probe()
    search.halve()
    search.answer()


def shared_words(config: DictConfig) -> list[str]:
    """What was typed of the data, the machine and the recipe, for `fca run`."""
    typed = typed_words(HydraConfig.get())
    words = [word for word in typed if word.lstrip("+~").partition("=")[0].partition(".")[0] in SHARED]
    named = any(word.startswith("dataset=") for word in words)
    return [*([] if named else ["dataset=folder"]), *words, f"machine.accelerator={config.device}"]


def weight_files(given: Any, options: Sequence[str]) -> dict[str, str]:
    """Model -> file of its weights. given: such a mapping, or a folder of files that are named as models are.

    Files of another name are left out, with a line.    Raises FcaError for a folder or a model that there is not.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise FcaError("weights", given, "a folder of weight files, or {MODEL: FILE}", "correct the path")
        files = {path.stem: str(path) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
        if other := sorted(set(files) - set(options)):
            print(f"left out, as no model of conf/model/ has that name: {', '.join(other)}")
        return {name: file for name, file in files.items() if name in options}
    for name in given:
        check_choice("weights", name, options, "name options of conf/model/")
    return {str(name): str(file) for name, file in given.items()}


class Network(NamedTuple):
    """A network to choose among: what it is called in the store, the words of it, and how it may be adapted."""

    label: str
    weights: str | None
    words: list[str]
    ways: tuple[str, ...]

    def key(self, way: str) -> Key:
        """How the analysis names it."""
        return self.label, self.weights, way


Way = tuple[Network, str]  # a network and how it is adapted


@dataclass
class Search:
    """The runs of one recommendation.

    words: of all of them.    of: fingerprint and classes of what is trained on, known from the first training on.
    diverged: what is not tried again, nor for longer.
    """

    config: DictConfig
    words: list[str]
    asked: Recommendation
    of: tuple[str, tuple[int, ...]] = field(init=False)
    diverged: set[Key] = field(default_factory=set)
    _jobs: dict[tuple[str, ...], Job] = field(default_factory=dict)

    def job(self, *words: str) -> Job:
        """One configuration of `fca run`; Hydra takes .2 s to compose one."""
        if words not in self._jobs:
            every = [*self.words, *words]
            self._jobs[words] = job_of(composed("run", every), every)
        return self._jobs[words]

    @cached_property
    def store(self) -> Store:
        """Where the runs are kept."""
        return Store(Path(self.config.outputs))

    @cached_property
    def networks(self) -> list[Network]:
        """HOG first, which needs no weights: networks from scratch are predicted from it."""
        options = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
        for key in ("candidates", "pretrained"):
            for name in self.config[key]:
                check_choice(key, name, options, "name options of conf/model/")
        given = tuple(self.config.adaptations)
        asked: list[tuple[list[str], tuple[str, ...]]] = [(["model=hog"], ("probe",))]
        asked += [([f"model={name}"], ("scratch",)) for name in self.config.candidates]
        asked += [([f"model={name}", "model.weights=pretrained"], given) for name in self.config.pretrained]
        files = weight_files(self.config.weights, options)
        asked += [([f"model={name}", f"model.weights={quoted(file)}"], given) for name, file in files.items()]
        return [self._network(words, ways) for words, ways in asked]

    def _network(self, words: list[str], ways: tuple[str, ...]) -> Network:
        model = self._speed_job(words).setup.model
        if "scratch" in ways and not hasattr(model, "weights"):
            name = words[0].removeprefix("model=")
            allowed = f"networks that can be trained; {name} has no weights of its own"
            raise FcaError("candidates", name, allowed, "leave it out; a probe on HOG is always among the choices")
        return Network(model.label(), model.weights_label(), words, ways)

    def _speed_job(self, words: Sequence[str]) -> Job:
        threads = "null" if self.config.threads is None else self.config.threads
        return self.job("task=latency", f"task.threads={threads}", *words)

    def describe(self) -> None:
        """What the images are, and which of them a person should look at."""
        job = self.job("task=describe")
        execute(job, alone=True)
        show_job(job)

    def measure(self) -> None:
        """How fast the networks are, all in turn, as one task."""
        jobs = [self._speed_job(network.words) for network in self.networks]
        execute(replace(jobs[0], plan=[run for job in jobs for run in job.plan]), alone=True)

    def probe(self) -> None:
        """A linear probe on each network within the limits, seconds each, whatever is expected of it."""
        for number, network in enumerate(self.networks):
            if "probe" in network.ways and (not number or self._within_limits((network, "probe"), self.weigh())):
                self._train(network, "probe")

    def _within_limits(self, one: Way, now: Weighed) -> bool:
        return now.limits[now.position(one[0].key(one[1]))] is None

    def _allowed(self, one: Way, now: Weighed) -> bool:
        """Whether it is within the limits, and not for certain both larger and less accurate than another one."""
        return self._within_limits(one, now) and not now.beaten(now.position(one[0].key(one[1])))

    def halve(self) -> None:
        """Successive halving: train all that may be worth it for a third of the time, the better third whole.

        Jamieson and Talwalkar 2016 (arXiv:1502.07943). Better is what fewer others beat in accuracy and size.
        """
        ends = time.monotonic() + 60 * self.config.minutes
        now = self.weigh()
        ways = [(network, way) for network in self.networks for way in network.ways if way != "probe"]
        allowed = [(self._seconds(*one, now), *one) for one in ways if self._allowed(one, now)]
        left = sorted(allowed, key=itemgetter(0))
        for share in SHARES:
            for seconds, network, way in left:
                takes = START_S + share * seconds
                if time.monotonic() + takes < ends:
                    self._train(network, way, share)
                else:
                    print(f"no time left for {network.label}, {way}: {takes / 60:.1f} minutes", flush=True)
            now = self.weigh()
            left = [one for one in left if one[1].key(one[2]) not in self.diverged]
            best = self._best_third([(network, way) for _, network, way in left], now)
            left = [one for one in left if one[1:] in best and self._allowed(one[1:], now)]

    def _best_third(self, ways: Sequence[Way], now: Weighed) -> list[Way]:
        """Those on the front of accuracy and size, then on the front of the others, until a third is together."""
        left, best = list(ways), list[Way]()
        while left and len(best) < math.ceil(len(ways) / 3):
            on_front = now.front([now.position(network.key(way)) for network, way in left])
            best += [one for one, on in zip(left, on_front, strict=True) if on]
            left = [one for one, on in zip(left, on_front, strict=True) if not on]
        return best

    def _words(self, network: Network, way: str, share: float) -> list[str]:
        words = ["task=train", *network.words, f"adaptation={way}"]
        if share == 1:
            return words
        recipe = self.config.recipe
        epochs = max(1, round(recipe.epochs * share))
        warmup = round(recipe.warmup_epochs * epochs / recipe.epochs, 3)
        shorter = {"epochs": epochs, "min_steps": round(recipe.min_steps * share), "warmup_epochs": warmup}
        return [*words, *(f"recipe.{key}={value}" for key, value in shorter.items())]

    def _seconds(self, network: Network, way: str, now: Weighed) -> float:
        """What a whole training is expected to take, at the speed that was measured here."""
        work = self.job(*self._words(network, way, 1.0)).plan[0].work
        images = work.data.number("train", self.of[1])
        seen = work.recipe.steps_for(images) * min(images, work.recipe.batch_size)
        return PASSES * seen / float(now.of.speed[network.label, network.weights][SPEED])

    def _train(self, network: Network, way: str, share: float = 1.0) -> None:
        """One training, and what it predicts for the validation images. One that fails is recorded and left out."""
        job = self.job(*self._words(network, way, share))
        train = next(run for run in job.plan if run.task == "train")
        self.of = str(train.about["fingerprint"]), tuple(train.about["classes"])
        length = f", {share:.0%} of its length" if share < 1 else ""
        print(f"{way} {network.label}{length}", flush=True)
        for planned in job.plan:
            self.store.forgive(planned.run_id)
        execute(job, alone=False)
        show_failures(self.store, [run.run_id for run in job.plan])
        if self.store.has_diverged(train.run_id):
            self.diverged.add(network.key(way))
            print(f"{way} {network.label} diverged: it is left out", flush=True)
        elif self.store.state(train.run_id) is State.DONE:
            words = ["task=predict", "task.split=val", "model=run", f"model.run_id={train.run_id}"]
            execute(self.job(*words), alone=False)

    def weigh(self) -> Weighed:
        """The candidates as they stand now."""
        others = [one for one in evidence(self.store, None) if one.job.fingerprint != self.of[0]]
        return Weighed(evidence_of(self.store, *self.of), known_points(others), self.asked)

    def answer(self) -> None:
        """The answers of the analysis, the next commands, and the page."""
        query = f"fingerprint == '{self.of[0]}' and classes == {self.of[1]}"
        asked = replace(self.asked, query=query)
        tables = {table.name: table for table in asked(self.store)}
        print("", *(answer.sentence for answer in answers([asked], tables, MOST)), sep="\n")
        limits = {
            name: getattr(asked, name) for name in ("within", "confidence", "latency_ms", "memory_mb", "params_m")
        }
        page = write_report("recommend", self.config.outputs, query, options=limits)
        for line in self._next(self.weigh(), page):
            print(line)

    def _next(self, now: Weighed, page: Path) -> Iterator[str]:
        if now.chosen is not None and not now.chosen_is_at_chance:
            run, outputs = f"run={now.chosen['run_id']}", str(self.config.outputs)
            where = [] if outputs == "outputs" else [f"outputs={outputs}"]
            yield "use it: " + shlex.join(["fca", "predict", "FOLDER", run, *where])
            yield "ship it: " + shlex.join(["fca", "export", run, *where])
        yield f"page: {page}"
