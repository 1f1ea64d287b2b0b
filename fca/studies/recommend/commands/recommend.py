"""Which model for a folder of images:  fca recommend photos latency_ms=10 minutes=30

Describes the images, measures and probes programs, and answers which model to use.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from fca.cli.application import application, check_root, typed_words
from fca.cli.configure import Job, component
from fca.cli.execute import execute, unfinished
from fca.cli.jobs import Jobs, word
from fca.cli.notices import gathered, shared
from fca.cli.pace import seconds_of
from fca.cli.report import write_report
from fca.cli.show import show_failures, show_findings
from fca.models.compiled import ALL, Compiled
from fca.models.programs import missing_packages
from fca.progress import Meter, track
from fca.report.finding import answers, study_findings
from fca.store import State, Store
from fca.store.columns import INPUT_SIZE, LATENCY, OTHERS_CPU
from fca.studies.recommend.ahead import do_ahead
from fca.studies.recommend.choice import Weighed
from fca.studies.recommend.evidence import (
    ADAPTATION,
    CUT,
    FINETUNE,
    FP32,
    PROBE,
    WHOLE,
    Program,
    evidence,
    evidence_of,
    screened_evidence,
)
from fca.studies.recommend.evidence import SCRATCH as FROM_SCRATCH
from fca.studies.recommend.expected import KnownJobs, known_jobs
from fca.studies.recommend.networks import FEATURES, SCRATCH, WEIGHTS, Network, networks, smaller_sizes
from fca.studies.recommend.recommendation import Recommendation
from fca.studies.recommend.screening import FINALISTS, finalists
from fca.studies.recommend.time_budget import announcement, seconds_an_image, share_of_pass, work_of
from fca.tasks.latency import check_threads
from fca.training.devices import ACCELERATORS, device_of
from fca.types import FcaError, OfAnySize, OfSeveralDepths, Run, check_choice

SHARED = ("dataset", "subset", "machine", "recipe", "trainer", "logger", "outputs", "limit", "plugins")
OF_ANALYSIS = ("within", "confidence", "metric", "costs", "latency_ms", "memory_mb", "file_mb", "params_m")
USES = {"train": "to train on", "val": "to validate", "test": "to test"}
MINUTES_FROM_SCRATCH = 10.0
PATIENCE_S = 120.0  # of probes that are all tried, whatever is expected of them
WORTH = 0.1  # probability of changing the answer from which on a probe is tried after that
TIMES_SCREENED = 5  # as many images as those that programs are first compared by, or more
BUSY = 0.25  # share of the processor time used by other processes, from which on a line warns
ROUNDS = 9  # of measuring, of which the median is taken


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 for what cannot be understood. The first word may be the folder (or zip) of images."""
    words = list(arguments)
    if words and "=" not in words[0] and not words[0].startswith("-"):
        words[0] = word("dataset.root", words[0])
    return application("recommend", recommend, words)


@shared()
def recommend(config: DictConfig) -> None:
    """Spend the minutes, then print the answer and where its page is."""
    check_root("recommend", config)
    check_threads("threads", config.threads)
    check_device(config.device)
    search = Search(config, shared_words(config), component(config, "analysis"))
    search.check_costs()
    search.check_file_limit()
    print(search.opening, flush=True)  # a wrong name is refused before any work
    search.describe()
    search.check_classes()
    search.measure()
    search.probe()
    search.train()
    now = search.weigh()
    search.measure_curve(now)
    search.answer(now)


def check_device(device: str) -> None:
    """Raise FcaError for a GPU where there is none, and for what is no device."""
    check_choice("device", device, ACCELERATORS, "leave it at auto")
    if device == "gpu":
        device_of(device, "device")  # imports torch: a second


def shared_words(config: DictConfig) -> list[str]:
    """What was typed of the data, the machine and the recipe, for `fca run`."""
    typed = typed_words(HydraConfig.get())
    words = [one for one in typed if one.lstrip("+~").partition("=")[0].partition(".")[0] in SHARED]
    named = any(one.startswith("dataset=") for one in words)
    return [*([] if named else ["dataset=folder"]), *words, f"machine.accelerator={config.device}"]


class Subject(NamedTuple):
    """What is measured and probed: a network, and the keys of one program of it."""

    network: Network
    keys: Mapping[str, Any]


def pass_of_features(subject: Subject) -> Hashable:
    """What subjects have in common whose features come from one pass: depths of a compiled program."""
    return subject.keys.get("model.run_id") or tuple(subject.keys.items())


@dataclass
class Search:
    """The runs of one recommendation.

    words: of all of them.
    """

    config: DictConfig
    words: list[str]
    asked: Recommendation
    _weighed: Weighed | None = None  # until another training is done

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs of `fca run` with these words."""
        return Jobs(self.words)

    @cached_property
    def store(self) -> Store:
        """Where the runs are kept."""
        return Store(Path(self.config.outputs))

    @cached_property
    def networks(self) -> list[Network]:
        """What to choose among."""
        return networks(self.config)

    @cached_property
    def of(self) -> tuple[str, tuple[int, ...]]:
        """Fingerprint and classes of what is trained on."""
        about = self._training({"model": "hog", "adaptation": PROBE}).about
        return str(about["fingerprint"]), tuple(about["classes"])

    @cached_property
    def is_compiled(self) -> bool:
        """Whether networks run as ONNX programs, as they are shipped; on a GPU they run in PyTorch."""
        return self.config.device != "gpu" and not missing_packages()

    def check_file_limit(self) -> None:
        """Raise FcaError for a limit of the file where networks run in PyTorch and have none, so nothing meets it."""
        if self.config.file_mb is None or self.is_compiled:
            return
        if self.config.device == "gpu":
            reason, step = "on a GPU networks run in PyTorch", "leave it out, or take device=cpu"
        else:
            reason = f"without {', '.join(missing_packages())} networks run in PyTorch"
            step = "leave it out, or pip install 'fca[export]'"
        raise FcaError("file_mb", self.config.file_mb, f"null: {reason}, which writes no file", step)

    @property
    def minutes(self) -> float:
        """Of training. Without weights nothing but a training gives an answer."""
        if self.config.minutes is not None:
            return float(self.config.minutes)
        return 0.0 if any(network.kind == WEIGHTS for network in self.networks) else MINUTES_FROM_SCRATCH

    @property
    def opening(self) -> str:
        """What is chosen among, in words."""
        named = [network.label for network in self.networks if network.kind != FEATURES]
        kind = "pretrained weights" if any(network.kind == WEIGHTS for network in self.networks) else "no weights"
        line = f"networks to choose among, with {kind}: {', '.join(named)}"
        if self.config.device == "gpu":
            line += "\non a GPU networks run in PyTorch, in fp32"
        elif missing := missing_packages():
            absent = f"{', '.join(missing)} not installed"
            line += f"\n{absent}: networks run in PyTorch, in fp32; pip install 'fca[export]'"
        return line

    def check_costs(self) -> None:
        """Raise FcaError for a table of costs that lacks one of the classes, or has another."""
        if self.asked.cost_table is not None:
            setup = self.description.setup
            classes = [setup.data.classes[index] for index in setup.subset.classes]
            self.asked.cost_table.of(classes, setup.data.classes)

    # Programs

    def describe(self) -> None:
        """What the images are, and which of them a person should look at."""
        execute(self.description, alone=True)
        print(described(self.store.row(self._described)), flush=True)
        show_findings(self.store, self._described)

    @cached_property
    def description(self) -> Job:
        """The job that describes the images. Warnings about them are printed here, once for all processes."""
        with gathered():
            return self.jobs.job({"task": "describe"})

    @property
    def _described(self) -> str:
        """The run that describes the images."""
        return self.description.plan[0].run_id

    def check_classes(self) -> None:
        """Raise FcaError, before programs take minutes, where a class has too few images to train and test on."""
        self.of  # noqa: B018

    @cached_property
    def subjects(self) -> list[Subject]:
        """Every program of every network, written where that was not done; a line for each that cannot be."""
        if self.is_compiled:
            self._compile_ahead()
        subjects: list[Subject] = []
        for network in self.networks:
            if network.kind != WEIGHTS:
                subjects.append(Subject(network, network.keys))
            elif self.is_compiled:
                subjects += self._programs(network)
            else:
                subjects += self._eager(network)
        return subjects

    def _compile_ahead(self) -> None:
        """Write the programs on all cores: first the usual size of every network in fp32, which tells the others."""
        networks = [network for network in self.networks if network.kind == WEIGHTS]
        first = [self._compile_keys(network, {}, FP32) for network in networks]
        do_ahead(self.jobs, first, "compiling networks")
        others = []
        for network, keys in zip(networks, first, strict=True):
            run = self.jobs.job(keys).plan[-1]
            if self.store.state(run.run_id) is State.DONE:
                others += [self._compile_keys(network, *kind) for kind in self._kinds(run.run_id)]
        if any(unfinished(self.store, self.jobs.job(keys).plan) for keys in others):
            self._announce_features([self.jobs.job(keys).plan[-1].run_id for keys in first])
        do_ahead(self.jobs, others, "compiling smaller sizes")

    def _announce_features(self, run_ids: Sequence[str]) -> None:
        """How long the features of all programs will take, judged by the usual size of each network in fp32.

        run_ids: of these programs; one that could not be compiled is left out.
        """
        seconds, programs = 0.0, 0
        for run_id in run_ids:
            if self.store.state(run_id) is not State.DONE:
                continue
            program = Compiled(str(self.config.outputs), run_id, ALL)
            usual = program.description.geometry.size
            shares = [
                share_of_pass(size.get("model.input_size", usual), usual, precision)
                for size, precision in self._kinds(run_id)
            ]
            seconds += seconds_an_image(program) * sum(shares)
            programs += len(shares)

        images, screened_by = self._number_of_images, self.config.screen if self.is_screened else None
        if line := announcement(seconds, programs, images, screened_by):
            print(line, flush=True)

    def _kinds(self, first: str) -> Iterator[tuple[dict[str, Any], str]]:
        """Keys of input sizes, the usual one first, with every precision.    first: run of the usual one."""
        usual = int(self.store.row(first)[INPUT_SIZE])
        sizes: list[dict[str, Any]] = [{}]
        sizes += [{"model.input_size": size} for size in smaller_sizes(usual, self.config.sizes)]
        for size in sizes:
            for precision in self.config.precisions:
                yield size, precision

    def _programs(self, network: Network) -> Iterator[Subject]:
        """A network at its usual size and smaller ones, in every precision and depth."""
        first = self._compiled(network, {}, FP32)
        if first is None:
            return
        kinds = list(self._kinds(first))
        for size, precision in track(kinds, f"compiling {network.label}", len(kinds)):
            run_id = self._compiled(network, size, precision)
            if run_id is None:
                continue
            program = Compiled(str(self.config.outputs), run_id, ALL)
            for depth in program.description.widths:
                if depth in self.config.depths:
                    keys = {"model": "compiled", "model.run_id": run_id, "model.depth": depth}
                    yield Subject(network, keys)

    @staticmethod
    def _compile_keys(network: Network, size: Mapping[str, Any], precision: str) -> dict[str, Any]:
        return {"task": "compile", **network.keys, **size, "task.precision": precision}

    def _compiled(self, network: Network, size: Mapping[str, Any], precision: str) -> str | None:
        """The run of task=compile; None, with a line, where it fails."""
        name = f"{network.label} {size.get('model.input_size', '')} {precision}"
        try:
            job = self.jobs.job(self._compile_keys(network, size, precision))
            execute(job, alone=True)
        except FcaError as error:
            print(f"left out: {name}: {error}", flush=True)
            return None
        run_id = job.plan[-1].run_id
        if self.store.state(run_id) is not State.DONE:
            show_failures(self.store, [run.run_id for run in job.plan])
            return None
        return run_id

    def _eager(self, network: Network) -> Iterator[Subject]:
        """A network in PyTorch, at its usual size and smaller ones, in every depth."""
        model = network.model
        usual = model.input_size if isinstance(model, OfAnySize) else None
        sizes: list[dict[str, Any]] = [{}]
        sizes += [{"model.input_size": size} for size in smaller_sizes(usual or 0, self.config.sizes)]
        depths = model.depths() if isinstance(model, OfSeveralDepths) else (WHOLE,)
        for size in sizes:
            for depth in depths:
                if depth in self.config.depths:
                    cut = {"model.depth": depth} if depth != WHOLE else {}
                    yield Subject(network, {**network.keys, **size, **cut})

    def measure(self) -> None:
        """How fast the programs are, all in turn, as one task."""
        if not self.subjects:
            return
        jobs = [self._speed_job(subject.keys) for subject in self.subjects]
        print(f"measuring {len(jobs)} candidates", flush=True)
        execute(replace(jobs[0], plan=[run for job in jobs for run in job.plan]), alone=True)
        if self.config.device != "gpu":
            self._warn_of_other_processes()

    def _warn_of_other_processes(self) -> None:
        """Print a line where other processes used so much of the processor that measured times may be too long."""
        others = max(float(self._speed_of(subject).get(OTHERS_CPU) or 0) for subject in self.subjects)
        if others >= BUSY:
            line = f"other processes used {100 * others:.0f} % of the processor meanwhile, so times may be too long"
            print(f"{line}; to measure again, repeat the command with another outputs=FOLDER", flush=True)

    def _speed_job(self, keys: Mapping[str, Any]) -> Job:
        about = {"task.threads": self.config.threads, "task.batch": None, "task.rounds": ROUNDS}
        return self.jobs.job({"task": "latency", **about, **keys})

    # Training

    def probe(self) -> None:
        """A linear probe on each program within the limits, and on HOG: what an answer can begin with.

        Of many images, on the programs that few of them leave in the running.

        What other jobs expect of a program leaves it out only once the probes have taken PATIENCE_S: a wrong
        expectation would otherwise keep the best one from being tried. Probes that are done count as well, so that the
        same command again tries no others.
        """
        left = [subject for subject in self.subjects if subject.network.kind != SCRATCH]
        if self.is_screened and len({pass_of_features(subject) for subject in left}) > FINALISTS:
            left = self._screened(left)
        seconds_by_run: dict[str, float] = {}  # depths of a program share the run of their features
        left_out = 0
        with Meter("probing programs", len(left), work=self._work_of(left)) as meter:
            for subject in left:
                if self._is_to_be_probed(subject, sum(seconds_by_run.values())):
                    keys = {**subject.keys, "adaptation": PROBE}
                    self._train(keys)
                    seconds_by_run |= self._seconds_by_run(keys)
                else:
                    left_out += 1
                meter.add(1)
        if left_out:
            print(f"not probed: {left_out} programs over a limit, or unlikely to change the answer", flush=True)

    @cached_property
    def is_screened(self) -> bool:
        """Whether there are so many images that programs are first compared by few of them."""
        few = self.config.screen
        return few is not None and self._number_of_images >= TIMES_SCREENED * few

    @property
    def _number_of_images(self) -> int:
        """Of those that a pass computes the features of."""
        row = self.store.row(self._described)
        return sum(int(row[f"n_{split}"]) for split in USES)

    def _screened(self, subjects: Sequence[Subject]) -> list[Subject]:
        """Those of these programs that may well be the answer, as few training images judge all of them."""
        few = self.config.screen
        allowed = [subject for subject in subjects if self._is_allowed(subject)]
        with Meter(f"probing programs on {few} images", len(allowed), work=self._work_of(allowed)) as meter:
            for subject in allowed:
                job = self.jobs.job({"task": "screen", "task.images": few, **subject.keys})
                execute(job, alone=False)
                show_failures(self.store, [run.run_id for run in job.plan])
                meter.add(1)

        now = self.asked.weighed(screened_evidence(self.store, *self.of), self.known)
        pass_of = {self._program_of(subject, now): pass_of_features(subject) for subject in allowed}
        chosen = finalists(now, pass_of)
        if not chosen:  # nothing is within the limits, or all failed, and was shown
            return list(subjects)
        left = [subject for one in chosen for subject in allowed if pass_of_features(subject) == one]
        likeliest = f"{len(left)} of {len(subjects)} programs, the likeliest answers by {few} training images"
        print(f"probed on all images: {likeliest}", flush=True)
        return left

    def _program_of(self, subject: Subject, now: Weighed) -> Program:
        return now.of.program_of({"weights": None, **self._speed_of(subject), "adaptation": PROBE})  # HOG has none

    def _work_of(self, subjects: Sequence[Subject]) -> list[float]:
        """What a probe on each takes, for a bar: most of it are features, which depths of a program share."""
        milliseconds = [
            float(self._speed_of(subject).get(LATENCY) or 0) if self._is_within_limits(subject) else 0.0
            for subject in subjects
        ]
        return work_of(milliseconds, [pass_of_features(subject) for subject in subjects])

    def _speed_of(self, subject: Subject) -> Mapping[str, Any]:
        return self.store.row(self._speed_job(subject.keys).plan[0].run_id)

    def _is_allowed(self, subject: Subject) -> bool:
        """Whether it is within the limits, or HOG, which any answer can be compared with."""
        return subject.network.kind == FEATURES or self._is_within_limits(subject)

    def _is_within_limits(self, subject: Subject) -> bool:
        return self.asked.limits(self.asked.metric_of_others).over(self._speed_of(subject)) is None

    def _is_to_be_probed(self, subject: Subject, seconds: float) -> bool:
        """Whether it is within the limits, and probed already or worth it.    seconds: that probes have taken."""
        if not self._is_allowed(subject):
            return False
        probe = self._training({**subject.keys, "adaptation": PROBE})
        is_probed = self.store.state(probe.run_id) is State.DONE
        return is_probed or seconds < PATIENCE_S or self._is_worth_a_probe(subject)

    def _seconds_by_run(self, keys: Mapping[str, Any]) -> dict[str, float]:
        """What the finished runs of a training took, whenever that was."""
        runs = [run.run_id for run in self.jobs.job({"task": "train", **keys}).plan]
        return {run_id: seconds_of(self.store.row(run_id)) for run_id in runs if self.store.state(run_id) is State.DONE}

    def _is_worth_a_probe(self, subject: Subject) -> bool:
        """Whether it may well be smaller than the answer and as good, or better than all."""
        now = self.weigh()
        if now.answer is None or now.best is None:
            return True
        at = now.position(self._program_of(subject, now))
        difference = now.draws[:, at] - now.draws[:, now.best]
        within = now.limits.within
        is_smaller = now.cost[at] < now.cost[now.answer] and (difference >= -within).mean() >= WORTH
        return bool(is_smaller or (difference > within).mean() >= WORTH)

    def train(self) -> None:
        """Fine-tune the networks of the answer, or train small ones from scratch, while minutes are left."""
        ends = time.monotonic() + 60 * self.minutes
        if not self.minutes:
            return
        for keys in [*self._to_finetune(), *self._to_train_from_scratch()]:
            if time.monotonic() >= ends:
                print(f"no time left for {keys['model']}: give more minutes", flush=True)
                return
            self._train(keys)

    def _to_finetune(self) -> Iterator[dict[str, Any]]:
        """Keys of the networks of the answer's lines, the smallest first."""
        if FINETUNE not in self.config.adaptations or not any(one.kind == WEIGHTS for one in self.networks):
            return
        now = self.weigh()
        of_label = {network.label: network for network in self.networks}
        programs = [now.candidates[line.at].program for line in now.lines]
        programs = [program for program in programs if program.weights is not None and program.adaptation == PROBE]
        for program in dict.fromkeys(program._replace(precision=FP32) for program in programs):
            if program.network in of_label:
                cut = {"model.depth": CUT} if program.depth == CUT else {}
                size = {"model.input_size": program.size}
                yield {**of_label[program.network].keys, **size, **cut, **self._finetuning_keys}

    @property
    def _finetuning_keys(self) -> dict[str, Any]:
        """From the linear probe, by the recipe for few images where none is named."""
        keys = {"adaptation": FINETUNE, "adaptation.start": PROBE}
        is_named = any(one.startswith("recipe=") for one in self.words)
        return keys if is_named else keys | {"recipe": "few_images"}

    def _to_train_from_scratch(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            if subject.network.kind == SCRATCH and self._is_within_limits(subject):
                yield {**subject.keys, "adaptation": FROM_SCRATCH}

    def _training(self, keys: Mapping[str, Any]) -> Run:
        """The run that trains, of those that a training plans."""
        return next(run for run in self.jobs.job({"task": "train", **keys}).plan if run.task == "train")

    def _train(self, keys: Mapping[str, Any]) -> None:
        """One training, and what it predicts for the validation images. One that fails is recorded and left out."""
        job, train = self.jobs.job({"task": "train", **keys}), self._training(keys)
        is_probe = keys["adaptation"] == PROBE
        if not is_probe:
            print(f"{ADAPTATION.choices[keys['adaptation']]}: {train.about['model']}", flush=True)
        for planned in job.plan:
            self.store.forgive(planned.run_id)
        if not is_probe or unfinished(self.store, job.plan):
            self._weighed = None  # candidates are about to change
        execute(job, alone=False)
        show_failures(self.store, [run.run_id for run in job.plan])
        if self.store.has_diverged(train.run_id):
            print(f"{train.about['model']} diverged: it is left out", flush=True)
        elif not is_probe and self.store.state(train.run_id) is State.DONE:
            predict = {"task": "predict", "task.split": "val", "model": "run", "model.run_id": train.run_id}
            execute(self.jobs.job(predict), alone=False)

    # The answer

    def measure_curve(self, now: Weighed) -> None:
        """What more training images would bring to the recommended probe, from parts of those that there are."""
        has_no_curve = now.metric.costs is not None or now.chosen_is_at_chance
        if now.chosen is None or now.chosen["adaptation"] != PROBE or has_no_curve:
            return
        chosen_id = now.chosen["run_id"]
        subject = next((subject for subject in self.subjects if self._is_probe_of(subject, chosen_id)), None)
        if subject is None:  # a probe of an earlier command, on a program that this one has not
            return
        try:
            job = self.jobs.job({"task": "learning_curve", **subject.keys})
        except FcaError as error:  # a class with so few images that none can be left out
            print(f"what more images would bring is not known: {error}", flush=True)
            return
        execute(job, alone=False)
        show_failures(self.store, [run.run_id for run in job.plan])

    def _is_probe_of(self, subject: Subject, run_id: str) -> bool:
        return self._training({**subject.keys, "adaptation": PROBE}).run_id == run_id

    def weigh(self) -> Weighed:
        """The candidates as they stand now."""
        if self._weighed is None:
            self._weighed = self.asked.weighed(evidence_of(self.store, *self.of), self.known)
        return self._weighed

    @cached_property
    def known(self) -> KnownJobs:
        """How programs compared on other jobs."""
        others = [job for job in evidence(self.store, None) if job.job.fingerprint != self.of[0]]
        return known_jobs(others, self.asked.metric_of_others)

    def answer(self, now: Weighed) -> None:
        """The answers of the analysis, the next commands, and the page."""
        query = f"fingerprint == '{self.of[0]}' and classes == {self.of[1]}"
        asked = replace(self.asked, query=query)
        tables = {table.name: table for table in asked(self.store)}
        most = len(study_findings(asked))
        print("", *(answer.sentence for answer in answers([asked], tables, most)), sep="\n")
        options = {name: getattr(asked, name) for name in OF_ANALYSIS}
        if asked.cost_table is not None:
            options["costs"] = asked.cost_table.by_name  # what the page is made of, whatever becomes of the file
        page = write_report("recommend", self.config.outputs, query, options=options)
        for line in self._next(now, page):
            print(line)

    def _next(self, now: Weighed, page: Path) -> Iterator[str]:
        if now.chosen is not None and not now.chosen_is_at_chance:
            run, outputs = f"run={now.chosen['run_id']}", str(self.config.outputs)
            where = [] if outputs == "outputs" else [f"outputs={outputs}"]
            costs = [f"costs={self.asked.costs}"] if self.asked.costs is not None else []
            yield "use it: " + shlex.join(["fca", "predict", "FOLDER", run, *costs, *where])
            if now.can_be_shipped:
                yield "ship it: " + shlex.join(["fca", "export", run, *where])
        yield f"page: {page}"


def described(row: Mapping[str, Any]) -> str:
    """The images in words.

    >>> row = {"dataset": "photos", "n_images": 90, "n_train": 60, "n_val": 10, "n_test": 20, "class_min": 3}
    >>> described(row)
    'photos: 90 images, 60 to train on, 10 to validate, 20 to test; the smallest class has 3'
    """
    splits = ", ".join(f"{row[f'n_{split}']:,} {use}" for split, use in USES.items())
    line = f"{row['dataset']}: {row['n_images']:,} images, {splits}; the smallest class has {row['class_min']:,}"
    unused = row.get("n_unused") or 0
    return f"{line}; {unused:,} left out" if unused else line
