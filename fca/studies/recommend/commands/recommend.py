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
from fca.models.compiled import EVERY_DEPTH, Compiled
from fca.models.programs import missing_packages
from fca.progress import Meter, track
from fca.report.finding import page_headlines, study_findings
from fca.store import State, Store
from fca.store.columns import INPUT_SIZE, LATENCY, OTHERS_CPU
from fca.studies.recommend.ahead import do_ahead
from fca.studies.recommend.choice import Comparison
from fca.studies.recommend.evidence import (
    ADAPTATION,
    CUT,
    FINETUNE,
    FP32,
    PROBE,
    WHOLE,
    Program,
    evidence_of,
    evidence_of_jobs,
    screened_evidence,
)
from fca.studies.recommend.evidence import SCRATCH as FROM_SCRATCH
from fca.studies.recommend.expected import OtherJobs, gather_other_jobs
from fca.studies.recommend.networks import FEATURES, SCRATCH, WEIGHTS, Network, networks, smaller_sizes
from fca.studies.recommend.recommendation import Recommendation
from fca.studies.recommend.screening import FINALISTS, finalists
from fca.studies.recommend.time_budget import announcement, measured_seconds_per_image, share_of_pass, work_of
from fca.tasks.latency import check_threads
from fca.training.devices import ACCELERATORS, device_of
from fca.types import FcaError, OfAnySize, OfSeveralDepths, Run, check_choice

SHARED = ("dataset", "subset", "machine", "recipe", "trainer", "logger", "outputs", "limit", "plugins")
OF_ANALYSIS = ("within", "confidence", "metric", "costs", "latency_ms", "memory_mb", "file_mb", "params_m")
USES = {"train": "to train on", "val": "to validate", "test": "to test"}
MINUTES_FROM_SCRATCH = 10.0
PATIENCE_S = 120.0  # of probes that are all tried, whatever is expected of them
WORTH = 0.1  # smallest probability of changing the answer with which a probe is tried after that
TIMES_SCREENED = 5  # smallest ratio of all images to `screen`, with which programs are screened first
BUSY = 0.25  # share of the processor time used by other processes, above which a line warns
ROUNDS = 9  # of measuring, of which the median is taken


def main(arguments: Sequence[str]) -> int:
    """Run `fca recommend` with these arguments. Returns exit code 0, or 2 for a command that cannot be understood.

    The first word may be the folder (or zip) of images instead of KEY=VALUE.
    """
    words = list(arguments)
    is_folder_first = words and "=" not in words[0] and not words[0].startswith("-")
    if is_folder_first:
        words[0] = word("dataset.root", words[0])
    return application("recommend", recommend, words)


@shared()  # each warning is printed once, also if several processes have it
def recommend(config: DictConfig) -> None:
    """Describe the images, measure, probe and train programs; then print the answer and the path of its page."""
    check_root("recommend", config)
    check_threads("threads", config.threads)
    check_device(config.device)
    # shared_words: the typed words that all jobs of the search get, such as dataset.root=photos
    search = Search(config, shared_words(config), component(config, "analysis"))

    # What cannot be done is refused before any work. `opening` lists the networks, and raises for unknown ones
    search.check_costs()
    search.check_file_limit()
    print(search.opening, flush=True)
    search.describe()
    search.check_classes()  # after the description, but before programs take minutes

    search.measure()
    search.probe()
    search.train()
    comparison = search.compare()
    search.measure_curve(comparison)
    search.answer(comparison)


def check_device(device: str) -> None:
    """Raise FcaError for a name that is no device, and for a GPU on a machine that has none."""
    check_choice("device", device, ACCELERATORS, "leave it at auto")
    if device == "gpu":
        device_of(device, "device")  # imports torch: a second


def shared_words(config: DictConfig) -> list[str]:
    """The typed words that concern the data, the machine and the recipe, as words of `fca run`.

    Without a data set they have dataset=folder; the device becomes machine.accelerator.
    """
    words = [word for word in typed_words(HydraConfig.get()) if _group_of(word) in SHARED]
    if not any(word.startswith("dataset=") for word in words):
        words.insert(0, "dataset=folder")
    return [*words, f"machine.accelerator={config.device}"]


def _group_of(word: str) -> str:
    """The first part of the key of a typed word, which is the group of its configuration.

    >>> _group_of("+dataset.root=photos"), _group_of("limit=3")
    ('dataset', 'limit')
    """
    key = word.lstrip("+~").partition("=")[0]
    return key.partition(".")[0]


class Subject(NamedTuple):
    """A program to measure and probe: its network, and the keys of its configuration."""

    network: Network
    keys: Mapping[str, Any]


def pass_of_features(subject: Subject) -> Hashable:
    """What identifies the pass over all images that computes a subject's features.

    All depths of a compiled program share one: its run id. Other subjects have their own: their keys.
    """
    return subject.keys.get("model.run_id") or tuple(subject.keys.items())


@dataclass
class Search:
    """The work of one recommendation, which is done as jobs of `fca run`: each plans and executes runs.

    words:    of all its jobs, beside the keys of each.
    analysis: compares the candidates by the user's metric and limits.
    """

    config: DictConfig
    words: list[str]
    analysis: Recommendation
    _comparison: Comparison | None = None  # None if a training was done since

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
        """The networks to choose among. Raises FcaError for unknown ones and for missing files of weights."""
        return networks(self.config)

    @cached_property
    def fingerprint_and_classes(self) -> tuple[str, tuple[int, ...]]:
        """Fingerprint of the images, in the splits that trainings use, and label indices of the classes.

        They are those that a training would store, so a training is planned, but not done. Raises FcaError if it cannot
        be planned.
        """
        metadata = self._training({"model": "hog", "adaptation": PROBE}).metadata
        return str(metadata["fingerprint"]), tuple(metadata["classes"])

    @cached_property
    def is_compiled(self) -> bool:
        """Whether networks run as ONNX programs, as they are shipped; on a GPU they run in PyTorch."""
        return self.config.device != "gpu" and not missing_packages()

    def check_file_limit(self) -> None:
        """Raise FcaError for a limit of the file size if networks run in PyTorch, which writes no file."""
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
        """Minutes for trainings beside probes: the typed ones, or else none.

        Without pretrained weights only trainings give a good answer; then the default is MINUTES_FROM_SCRATCH.
        """
        if self.config.minutes is not None:
            return float(self.config.minutes)
        return 0.0 if self._has_weights else MINUTES_FROM_SCRATCH

    @property
    def _has_weights(self) -> bool:
        """Whether any network to choose among has pretrained weights."""
        return any(network.kind == WEIGHTS for network in self.networks)

    @property
    def opening(self) -> str:
        """The first printed lines: the networks to choose among, and why they run in PyTorch if they do.

        Raises FcaError for unknown networks and for missing files of weights.
        """
        labels = [network.label for network in self.networks if network.kind != FEATURES]  # HOG is no network
        weights = "pretrained weights" if self._has_weights else "no weights"
        line = f"networks to choose among, with {weights}: {', '.join(labels)}"

        if self.config.device == "gpu":
            return f"{line}\non a GPU networks run in PyTorch, in fp32"
        missing = ", ".join(missing_packages())
        if missing:
            return f"{line}\n{missing} not installed: networks run in PyTorch, in fp32; pip install 'fca[export]'"
        return line

    def check_costs(self) -> None:
        """Raise FcaError for a table of costs that lacks one of the classes, or has another."""
        if self.analysis.cost_table is not None:
            context = self.description.context
            classes = [context.data.classes[index] for index in context.subset.classes]
            self.analysis.cost_table.of(classes, context.data.classes)

    # Programs

    def describe(self) -> None:
        """Run task=describe; print a line about the images, and findings that a person should look at."""
        execute(self.description, alone=True)
        print(described(self.store.row(self._description_id)), flush=True)
        show_findings(self.store, self._description_id)

    @cached_property
    def description(self) -> Job:
        """The job that describes the images. Warnings about them are printed here, once for all processes."""
        with gathered():
            return self.jobs.job({"task": "describe"})

    @property
    def _description_id(self) -> str:
        """Id of the run that describes the images."""
        return self.description.plan[0].run_id

    def check_classes(self) -> None:
        """Raise FcaError for a class with too few images to train and test on, before programs take minutes."""
        self.fingerprint_and_classes  # noqa: B018  plans a training, which raises

    @cached_property
    def subjects(self) -> list[Subject]:
        """Every program of every network: the network at an input size, in a precision and at a depth (whole or cut).

        Networks with weights have several programs. Unless they run in PyTorch, missing ones are compiled now, and a
        line is printed for each that cannot be compiled. HOG, and networks to train from scratch, have a single one.
        """
        if self.is_compiled:
            self._compile_ahead()
        subjects: list[Subject] = []
        for network in self.networks:
            if network.kind != WEIGHTS:  # HOG, or a network to train from scratch: nothing to compile
                subjects.append(Subject(network, network.keys))
            elif self.is_compiled:
                subjects += self._compiled_programs(network)
            else:
                subjects += self._pytorch_programs(network)
        return subjects

    def _compile_ahead(self) -> None:
        """Compile the missing programs on all cores, before they are needed one by one.

        First come all networks at their default size in fp32, then their variants: smaller sizes and other precisions.
        The default size is known only from the first program, and decides which smaller sizes there are.
        """
        networks = [network for network in self.networks if network.kind == WEIGHTS]
        # {}: no key of an input size, which gives the default size
        keys_of_defaults = [self._compile_keys(network, {}, FP32) for network in networks]
        do_ahead(self.jobs, keys_of_defaults, "compiling networks")
        # the last run of a job's plan is the compilation itself
        default_ids = [self.jobs.job(keys).plan[-1].run_id for keys in keys_of_defaults]

        keys_of_variants = []
        for network, default_id in zip(networks, default_ids, strict=True):
            # a compilation that failed is tried again later, when its error is shown
            if self.store.state(default_id) is State.DONE:
                for size_keys, precision in self._variants(default_id):
                    keys_of_variants.append(self._compile_keys(network, size_keys, precision))

        # the time is only announced if something is missing: not when the same command is given again
        if any(unfinished(self.store, self.jobs.job(keys).plan) for keys in keys_of_variants):
            self._announce_features(default_ids)
        do_ahead(self.jobs, keys_of_variants, "compiling smaller sizes")

    def _announce_features(self, run_ids: Sequence[str]) -> None:
        """Print how long computing the features of all programs will take, if that is several minutes.

        Each network is timed at its default size in fp32. The times of its other sizes and precisions are estimated
        from that.

        run_ids: of the compilation of each network at its default size in fp32. Failed compilations are left out.
        """
        seconds_per_image = 0.0
        n_programs = 0
        for run_id in run_ids:
            if self.store.state(run_id) is not State.DONE:
                continue
            program = Compiled(str(self.config.outputs), run_id, EVERY_DEPTH)
            default_size = program.description.geometry.size
            # the time of each size and precision, as a share of the time at the default size in fp32
            shares = [
                share_of_pass(size_keys.get("model.input_size", default_size), default_size, precision)
                for size_keys, precision in self._variants(run_id)
            ]
            seconds_per_image += measured_seconds_per_image(program) * sum(shares)
            n_programs += len(shares)

        # with many images, programs are first compared on this number of images
        screened_by = self.config.screen if self.is_screened else None
        line = announcement(seconds_per_image, n_programs, self._number_of_images, screened_by)
        if line:
            print(line, flush=True)

    def _variants(self, default_id: str) -> Iterator[tuple[dict[str, Any], str]]:
        """Every combination of an input size and a precision in which a network is compiled.

        Yields the keys of the size, which are empty for the default size and come first, and the precision.
        default_id: run that compiled the network at its default size.
        """
        default_size = int(self.store.row(default_id)[INPUT_SIZE])
        keys_of_sizes: list[dict[str, Any]] = [{}]
        keys_of_sizes += [{"model.input_size": size} for size in smaller_sizes(default_size, self.config.sizes)]
        for size_keys in keys_of_sizes:
            for precision in self.config.precisions:
                yield size_keys, precision

    def _compiled_programs(self, network: Network) -> Iterator[Subject]:
        """Yield the programs of a network: its default size and smaller ones, every precision, the configured depths.

        Missing programs are compiled. One compiled program gives the features of all depths of a network.
        """
        default_id = self._compile(network, {}, FP32)
        if default_id is None:  # it failed, which was printed; its other sizes are unknown
            return
        variants = list(self._variants(default_id))
        for size_keys, precision in track(variants, f"compiling {network.label}", len(variants)):
            run_id = self._compile(network, size_keys, precision)
            if run_id is None:
                continue
            program = Compiled(str(self.config.outputs), run_id, EVERY_DEPTH)
            compiled_depths = list(program.description.widths)  # widths: depth -> number of its features
            for depth in compiled_depths:
                if depth in self.config.depths:
                    keys = {"model": "compiled", "model.run_id": run_id, "model.depth": depth}
                    yield Subject(network, keys)

    @staticmethod
    def _compile_keys(network: Network, size_keys: Mapping[str, Any], precision: str) -> dict[str, Any]:
        """The keys of the job that compiles a network.    size_keys: of its input size; empty for its default."""
        return {"task": "compile", **network.keys, **size_keys, "task.precision": precision}

    def _compile(self, network: Network, size_keys: Mapping[str, Any], precision: str) -> str | None:
        """Compile a network, unless it is compiled already, and return the id of the run that compiled it.

        Returns None if the compilation fails or is refused; a line is printed then.

        size_keys: the configuration key of its input size; empty for its default size.
        precision: fp32 or int8.
        """
        name = f"{network.label} {size_keys.get('model.input_size', '')} {precision}"
        try:
            job = self.jobs.job(self._compile_keys(network, size_keys, precision))
            execute(job, alone=True)  # alone, not in a sweep: errors of the configuration are raised, not recorded
        except FcaError as error:
            print(f"left out: {name}: {error}", flush=True)
            return None
        run_id = job.plan[-1].run_id  # the run in this precision; int8 is made from one in fp32 before it
        if self.store.state(run_id) is not State.DONE:
            show_failures(self.store, [run.run_id for run in job.plan])
            return None
        return run_id

    def _pytorch_programs(self, network: Network) -> Iterator[Subject]:
        """Yield a network in PyTorch at its default size and smaller ones, at the configured depths."""
        model = network.model
        # OfAnySize: the input may have any size. A default size of 0 stands for a fixed size, or for one that is not
        # known before the network is built: `smaller_sizes` gives no sizes for it
        default_size = (model.input_size or 0) if isinstance(model, OfAnySize) else 0
        keys_of_sizes: list[dict[str, Any]] = [{}]  # {}: the default size
        keys_of_sizes += [{"model.input_size": size} for size in smaller_sizes(default_size, self.config.sizes)]

        depths = model.depths() if isinstance(model, OfSeveralDepths) else (WHOLE,)
        for size_keys in keys_of_sizes:
            for depth in depths:
                if depth in self.config.depths:
                    depth_keys = {"model.depth": depth} if depth != WHOLE else {}
                    yield Subject(network, {**network.keys, **size_keys, **depth_keys})

    def measure(self) -> None:
        """Measure the speed of all programs; warn if other processes disturbed it."""
        if not self.subjects:
            return

        jobs = [self._speed_job(subject.keys) for subject in self.subjects]
        print(f"measuring {len(jobs)} candidates", flush=True)
        # the runs of all jobs as one job: it measures them in turn, so that other load affects all of them equally
        runs = [run for job in jobs for run in job.plan]
        # alone, not in a sweep: it also waits for runs that another process is doing, as all speeds are needed next
        execute(replace(jobs[0], plan=runs), alone=True)
        if self.config.device != "gpu":
            self._warn_of_other_processes()

    def _warn_of_other_processes(self) -> None:
        """Print a line if other processes used so much of the processor that measured times may be too long."""
        share_of_others = max(float(self._latency_row(subject).get(OTHERS_CPU) or 0) for subject in self.subjects)
        if share_of_others >= BUSY:
            used = f"other processes used {100 * share_of_others:.0f} % of the processor meanwhile"
            step = "to measure again, repeat the command with another outputs=FOLDER"
            print(f"{used}, so times may be too long; {step}", flush=True)

    def _speed_job(self, keys: Mapping[str, Any]) -> Job:
        """The job that measures the time for one image of the program with these keys, without batches."""
        measuring = {"task.threads": self.config.threads, "task.batch": None, "task.rounds": ROUNDS}
        return self.jobs.job({"task": "latency", **measuring, **keys})

    # Training

    def probe(self) -> None:
        """Fit a linear probe to the features of each program within the limits, and to the features of HOG.

        With many images, programs are first compared on few of them, and only the likeliest to be recommended are
        probed on all. In the first PATIENCE_S seconds every program is probed, since a wrong expectation could exclude
        the best one. After that, programs that are unlikely to change the recommendation are left out. The time of
        probes of earlier commands counts, so that the same command, given again, tries the same programs.
        """
        subjects = [subject for subject in self.subjects if subject.network.kind != SCRATCH]
        # One pass over the images gives the features of all depths of a network.
        n_passes = len({pass_of_features(subject) for subject in subjects})
        if self.is_screened and n_passes > FINALISTS:  # with fewer passes all would be computed anyway
            subjects = self._screened(subjects)

        # time of each run; several depths of a program share the run of their features, which thus counts once
        seconds_by_run: dict[str, float] = {}
        n_left_out = 0
        # work: the expected time of each, for the progress bar
        with Meter("probing programs", len(subjects), work=self._work_of(subjects)) as meter:
            for subject in subjects:
                if self._is_to_be_probed(subject, sum(seconds_by_run.values())):
                    keys = {**subject.keys, "adaptation": PROBE}
                    self._train(keys)
                    seconds_by_run.update(self._seconds_by_run(keys))
                else:
                    n_left_out += 1
                meter.add(1)
        if n_left_out:
            print(f"not probed: {n_left_out} programs over a limit, or unlikely to change the answer", flush=True)

    @cached_property
    def is_screened(self) -> bool:
        """Whether there are so many images that programs are first compared on a few of them."""
        n_screening_images = self.config.screen
        if n_screening_images is None:
            return False
        return self._number_of_images >= TIMES_SCREENED * n_screening_images

    @property
    def _number_of_images(self) -> int:
        """Number of training, validation and test images, of all of which a pass computes the features."""
        row = self.store.row(self._description_id)
        return sum(int(row[f"n_{split}"]) for split in USES)

    def _screened(self, subjects: Sequence[Subject]) -> list[Subject]:
        """Probe these programs (fit a linear classifier to their features) on few training images.

        Returns the programs that may well be recommended. If no program can be compared, because all are over a limit
        or their probes failed, it returns all programs, as if they were not screened.
        """
        n_images = self.config.screen
        allowed = [subject for subject in subjects if self._is_allowed(subject)]
        with Meter(f"probing programs on {n_images} images", len(allowed), work=self._work_of(allowed)) as meter:
            for subject in allowed:
                job = self.jobs.job({"task": "screen", "task.images": n_images, **subject.keys})
                execute(job, alone=False)  # errors are recorded, not raised
                show_failures(self.store, [run.run_id for run in job.plan])
                meter.add(1)

        evidence = screened_evidence(self.store, *self.fingerprint_and_classes)
        comparison = self.analysis.compare(evidence, self.other_jobs)
        # one pass over the images gives the features of all depths of a network, so these are chosen together
        pass_of = {self._program_of(subject, comparison): pass_of_features(subject) for subject in allowed}
        chosen_passes = finalists(comparison, pass_of)
        if not chosen_passes:  # no program can be compared: `probe` decides on each of them
            return list(subjects)

        # all programs whose features come from a chosen pass over the images, in the order of the passes
        chosen = [
            subject for chosen_pass in chosen_passes for subject in allowed if pass_of_features(subject) == chosen_pass
        ]
        likeliest = f"{len(chosen)} of {len(subjects)} programs, the likeliest answers by {n_images} training images"
        print(f"probed on all images: {likeliest}", flush=True)
        return chosen

    def _program_of(self, subject: Subject, comparison: Comparison) -> Program:
        """The program of a subject as the candidates of a comparison know it: with a linear probe."""
        without_weights = {"weights": None}  # HOG's row has none
        row = {**without_weights, **self._latency_row(subject), "adaptation": PROBE}
        return comparison.evidence.program_of(row)

    def _work_of(self, subjects: Sequence[Subject]) -> list[float]:
        """The work of a probe on each subject, for the progress bar; 0 for subjects that are left out.

        It is the time for one image: most of the work is computing features, which depths of a program share.
        """
        milliseconds = [
            float(self._latency_row(subject).get(LATENCY) or 0) if self._is_within_limits(subject) else 0.0
            for subject in subjects
        ]
        return work_of(milliseconds, [pass_of_features(subject) for subject in subjects])

    def _latency_row(self, subject: Subject) -> Mapping[str, Any]:
        """The stored measurement of a subject's speed."""
        return self.store.row(self._speed_job(subject.keys).plan[0].run_id)

    def _is_allowed(self, subject: Subject) -> bool:
        """Whether a subject is within the limits, or is HOG, with which any answer can be compared."""
        return subject.network.kind == FEATURES or self._is_within_limits(subject)

    def _is_within_limits(self, subject: Subject) -> bool:
        """Whether a subject exceeds none of the limits of time, memory, file size and parameters."""
        limits = self.analysis.limits(self.analysis.metric_of_others)  # the metric does not matter for these limits
        return limits.exceeded(self._latency_row(subject)) is None

    def _is_to_be_probed(self, subject: Subject, seconds: float) -> bool:
        """Whether a subject is within the limits, and was probed earlier or is worth the time of a probe.

        seconds: taken by probes so far.
        """
        if not self._is_allowed(subject):
            return False
        probe = self._training({**subject.keys, "adaptation": PROBE})
        is_probed = self.store.state(probe.run_id) is State.DONE
        return is_probed or seconds < PATIENCE_S or self._is_worth_a_probe(subject)

    def _seconds_by_run(self, keys: Mapping[str, Any]) -> dict[str, float]:
        """Run id -> seconds, of the finished runs of a training, whether this command did them or an earlier one."""
        run_ids = [run.run_id for run in self.jobs.job({"task": "train", **keys}).plan]
        finished = [run_id for run_id in run_ids if self.store.state(run_id) is State.DONE]
        return {run_id: seconds_of(self.store.row(run_id)) for run_id in finished}

    def _is_worth_a_probe(self, subject: Subject) -> bool:
        """Whether a probe of the subject has a probability of at least WORTH to change the recommendation.

        The recommendation would change if the subject were better than the best so far by the margin, or if it were
        smaller than the recommended program and within the margin of the best.
        """
        comparison = self.compare()
        if comparison.answer is None or comparison.best is None:  # there is no answer yet
            return True

        # the subject is a candidate already, as its speed was measured: its accuracy is expected from other jobs
        i = comparison.position(self._program_of(subject, comparison))
        margin = comparison.limits.within
        difference = comparison.draws[:, i] - comparison.draws[:, comparison.best]
        may_be_as_good = (difference >= -margin).mean() >= WORTH
        may_be_better = (difference > margin).mean() >= WORTH
        is_smaller = comparison.sizes[i] < comparison.sizes[comparison.answer]
        return bool(may_be_better or (is_smaller and may_be_as_good))

    def train(self) -> None:
        """Fine-tune the recommended networks, then train networks from scratch, until the minutes are over.

        A training that has begun is finished even after that.
        """
        if not self.minutes:
            return
        deadline = time.monotonic() + 60 * self.minutes
        for keys in [*self._finetuning_jobs(), *self._scratch_jobs()]:
            if time.monotonic() >= deadline:
                print(f"no time left for {keys['model']}: give more minutes", flush=True)
                return
            self._train(keys)

    def _finetuning_jobs(self) -> Iterator[dict[str, Any]]:
        """The configuration keys of a fine-tuning for each network that is recommended as a linear probe.

        Empty if the configuration excludes fine-tuning, or if no network has weights.
        """
        if FINETUNE not in self.config.adaptations or not self._has_weights:
            return

        comparison = self.compare()
        recommended = [comparison.candidates[line.candidate].program for line in comparison.lines]
        probed = [program for program in recommended if program.weights is not None and program.adaptation == PROBE]
        network_of_label = {network.label: network for network in self.networks}
        # networks are trained in fp32, so two programs that differ in precision alone are one training
        for program in dict.fromkeys(program._replace(precision=FP32) for program in probed):
            if program.network in network_of_label:  # else it is a network of an earlier command only
                yield {
                    **network_of_label[program.network].keys,
                    "model.input_size": program.size,
                    **({"model.depth": CUT} if program.depth == CUT else {}),
                    **self._finetuning_keys,  # how to fine-tune, the same for all networks
                }

    @property
    def _finetuning_keys(self) -> dict[str, Any]:
        """The keys of every fine-tuning: from the linear probe on, by the recipe for few images or the typed one."""
        keys = {"adaptation": FINETUNE, "adaptation.start": PROBE}
        has_recipe = any(word.startswith("recipe=") for word in self.words)
        if not has_recipe:
            keys["recipe"] = "few_images"
        return keys

    def _scratch_jobs(self) -> Iterator[dict[str, Any]]:
        """The keys of a training from scratch for each such network within the limits."""
        for subject in self.subjects:
            if subject.network.kind == SCRATCH and self._is_within_limits(subject):
                yield {**subject.keys, "adaptation": FROM_SCRATCH}

    def _training(self, keys: Mapping[str, Any]) -> Run:
        """The run of task "train" among the runs of a training with these keys: features, training and predictions."""
        return next(run for run in self.jobs.job({"task": "train", **keys}).plan if run.task == "train")

    def _train(self, keys: Mapping[str, Any]) -> None:
        """Do one training, then predict the validation images with it: these predictions judge it later.

        A probe needs no prediction, since its training already stores its outputs for validation images. A training
        that fails or diverges is recorded, shown and left out.
        keys: the configuration keys of the model and the adaptation.
        """
        job = self.jobs.job({"task": "train", **keys})  # its runs: features for a probe, training, test predictions
        train = self._training(keys)  # the run of the training among them
        is_probe = keys["adaptation"] == PROBE
        if not is_probe:  # it may take minutes
            print(f"{ADAPTATION.choices[keys['adaptation']]}: {train.metadata['model']}", flush=True)

        for planned in job.plan:
            self.store.forgive(planned.run_id)  # one that failed in an earlier command is tried again
        # A stored probe adds no results. Otherwise the training, or the prediction of validation images below, may be
        # new: the comparison in memory lacks it, so it is dropped, and `compare` computes another one
        is_stored_probe = is_probe and not unfinished(self.store, job.plan)
        if not is_stored_probe:
            self._comparison = None
        execute(job, alone=False)  # errors are recorded, not raised
        show_failures(self.store, [run.run_id for run in job.plan])

        if self.store.has_diverged(train.run_id):
            print(f"{train.metadata['model']} diverged: it is left out", flush=True)
        elif not is_probe and self.store.state(train.run_id) is State.DONE:
            predict = {"task": "predict", "task.split": "val", "model": "run", "model.run_id": train.run_id}
            execute(self.jobs.job(predict), alone=False)

    # The answer

    def measure_curve(self, comparison: Comparison) -> None:
        """Measure the learning curve of the recommended linear probe: its accuracy with parts of the training images.

        Nothing is measured if another kind of model is recommended, if the probe is at the level of chance, or with
        costs: the answer then has no learning curve.
        comparison: of the candidates; its `chosen` is the row of the training to use.
        """
        chosen = comparison.chosen
        if chosen is None or chosen["adaptation"] != PROBE:
            return
        if comparison.metric.costs is not None or comparison.chosen_is_at_chance:
            return

        subject = next((subject for subject in self.subjects if self._is_probe_of(subject, chosen["run_id"])), None)
        if subject is None:  # a probe of an earlier command, on a program that this one does not have
            return
        try:
            job = self.jobs.job({"task": "learning_curve", **subject.keys})
        except FcaError as error:  # a class with too few images to halve them
            print(f"the gain from more images is not known: {error}", flush=True)
            return
        execute(job, alone=False)  # errors are recorded, not raised
        show_failures(self.store, [run.run_id for run in job.plan])

    def _is_probe_of(self, subject: Subject, run_id: str) -> bool:
        """Whether this run is the training of a linear probe on the subject."""
        return self._training({**subject.keys, "adaptation": PROBE}).run_id == run_id

    def compare(self) -> Comparison:
        """The candidates by the results that are stored now; computed anew only after a training."""
        if self._comparison is None:
            evidence = evidence_of(self.store, *self.fingerprint_and_classes)
            self._comparison = self.analysis.compare(evidence, self.other_jobs)
        return self._comparison

    @cached_property
    def other_jobs(self) -> OtherJobs:
        """Results of programs on other images, from the package and from the store."""
        fingerprint, _ = self.fingerprint_and_classes
        jobs = [job for job in evidence_of_jobs(self.store, None) if job.job.fingerprint != fingerprint]
        return gather_other_jobs(jobs, self.analysis.metric_of_others)

    def answer(self, comparison: Comparison) -> None:
        """Print the headlines of the analysis of these images, write the page, and print the next commands.

        comparison: of the candidates, which has the recommended model.
        """
        fingerprint, classes = self.fingerprint_and_classes
        query = f"fingerprint == '{fingerprint}' and classes == {classes}"
        analysis = replace(self.analysis, query=query)
        tables = {table.name: table for table in analysis(self.store)}
        # A finding is a question that the analysis answers, and a headline is the first sentence of the answer. As many
        # headlines as findings are allowed, so all are printed
        most_headlines = len(study_findings(analysis))
        print()
        for headline in page_headlines([analysis], tables, most_headlines):
            print(headline.sentence)

        options = {name: getattr(analysis, name) for name in OF_ANALYSIS}  # the user's metric, costs and limits
        if analysis.cost_table is not None:
            options["costs"] = analysis.cost_table.by_name  # the page keeps the costs, whatever happens to the file
        page = write_report("recommend", self.config.outputs, query, options=options)
        for line in self._next_commands(comparison, page):
            print(line)

    def _next_commands(self, comparison: Comparison, page: Path) -> Iterator[str]:
        """Printed lines: the commands that use and export the chosen model, unless it is at chance, and the page."""
        if comparison.chosen is not None and not comparison.chosen_is_at_chance:
            run = f"run={comparison.chosen['run_id']}"
            outputs = str(self.config.outputs)
            store = [] if outputs == "outputs" else [f"outputs={outputs}"]  # the default need not be typed
            costs = [f"costs={self.analysis.costs}"] if self.analysis.costs is not None else []
            yield "use it: " + shlex.join(["fca", "predict", "FOLDER", run, *costs, *store])
            if comparison.can_be_shipped:
                yield "ship it: " + shlex.join(["fca", "export", run, *store])
        yield f"page: {page}"


def described(row: Mapping[str, Any]) -> str:
    """The line about the images: their numbers in each split, the smallest class, and images left out.

    row: of task=describe.

    >>> row = {"dataset": "photos", "n_images": 90, "n_train": 60, "n_val": 10, "n_test": 20, "class_min": 3}
    >>> described(row)
    'photos: 90 images, 60 to train on, 10 to validate, 20 to test; the smallest class has 3'
    """
    splits = ", ".join(f"{row[f'n_{split}']:,} {use}" for split, use in USES.items())
    line = f"{row['dataset']}: {row['n_images']:,} images, {splits}; the smallest class has {row['class_min']:,}"
    n_unused = row.get("n_unused") or 0
    return f"{line}; {n_unused:,} left out" if n_unused else line
