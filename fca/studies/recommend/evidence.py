"""Stored results of the candidates for one job: their speed, the fits to their features, their predictions."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fca.data.copies import copies_in_test, pictures_of_copies
from fca.metric import Metric
from fca.store import Store, columns
from fca.store.columns import INPUT_SIZE, JUDGED_IMAGES, LEFT_OUT_LOGITS
from fca.tables.predictions import Predictions, predictions
from fca.tables.rows import apply_query, readable_rows, records, without_diverged

ADAPTATION = columns.ADAPTATION.with_choices(
    {"scratch": "from scratch", "finetune": "fine-tuned", "probe": "linear probe"}, filters=True
)
log = logging.getLogger(__name__)
COMMAND = "fca recommend FOLDER, or fca run -m task=latency,train model=test_resnet,test_vit"
_OF_RUN = re.compile(r"(?P<run>[0-9a-f]{12})/best")
_OF_COMPILED = re.compile(r"(?P<run>[0-9a-f]{12})/(?P<depth>whole|cut)")
WHOLE, CUT = "whole", "cut"
CUT_LABEL = " depth=cut"  # behind a network's name

SIZES, FITS, RIGHT = "sizes", "fits", "right"  # arrays of a learning curve, of nested subsets of the training images
PROBE, FINETUNE, SCRATCH = "probe", "finetune", "scratch"
FP32 = "fp32"


class Program(NamedTuple):
    """What one chooses among: a network as it is shipped, and how it is adapted to the classes.

    size: side of the input, pixels.    depth: whole, or cut before the last, widening layer.
    """

    network: str
    weights: str | None
    size: int
    depth: str
    precision: str
    adaptation: str

    @property
    def name(self) -> str:
        """The name of the program in tables and sentences; "whole" and "fp32" are left out, as most programs are that.

        >>> Program("resnet18", "a1_in1k", 160, "whole", "int8", "probe").name
        'resnet18 160 px int8 (linear probe)'
        >>> Program("test_vit", None, 32, "whole", "fp32", "scratch").name
        'test_vit 32 px (from scratch)'
        """
        words = [self.network, f"{self.size} px"]
        if self.depth != WHOLE:
            words.append(self.depth)
        if self.precision != FP32:
            words.append(self.precision)
        return f"{' '.join(words)} ({ADAPTATION.choices[self.adaptation]})"

    def adapted(self, adaptation: str) -> Program:
        """The same network with another adaptation."""
        return self._replace(adaptation=adaptation)


class Job(NamedTuple):
    """The images and classes for which a model is needed."""

    dataset: str
    fingerprint: str
    classes: tuple[int, ...]


class ImagePredictions(NamedTuple):
    """Labels and predictions of a training for some images.

    images: positions in the data's items.    labels, predicted: 0 to classes - 1; -1 for a class outside of the job.
    """

    images: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    predicted: Int[np.ndarray, " images"]


class LeftOutImages(NamedTuple):
    """Outputs of the linear probe of `adaptation=probe` for images that it was not fitted to.

    Each of these training images (at most about fca.stats.features.MAX_LEFT_OUT) is left out of a fit to the others;
    validation images are in no fit.

    images: positions in the data's items.    label: 0 to classes - 1.    top1: share of them that are right.
    outputs: logits with the temperature under which the labels of the left-out training images are most likely
             (fca.stats.features.fit_probe), so that their softmax are probabilities.
    """

    images: Int[np.ndarray, " images"]
    outputs: Float[np.ndarray, "images classes"]
    label: Int[np.ndarray, " images"]

    @property
    def top1(self) -> float:
        """Accuracy on these images."""
        return float((self.outputs.argmax(axis=1) == self.label).mean())


@dataclass(frozen=True)
class Candidate:
    """A program with the rows of its measurement and its trainings.

    latency_row: the latest row of task=latency; None if it was not measured.
    trainings:   rows of its trainings with the most epochs, one per seed; empty if it was not trained.
    """

    program: Program
    latency_row: Mapping[str, Any] | None
    trainings: tuple[Mapping[str, Any], ...] = ()

    @property
    def first_training(self) -> Mapping[str, Any]:
        """The training with the lowest seed: the model to be used."""
        return self.trainings[0]


@dataclass(frozen=True)
class Evidence:
    """The stored results of one job. A row is the record of one finished run: column name -> value.

    trainings:       rows of its trainings.
    validation_rows: run id of a training -> its `predict` row on validation images.
    test_rows:       run id of a training -> its `predict` row on test images.
    latency_rows:    program, without its adaptation -> the row of its latency.
    compiled_rows:   run id -> the row of task=compile.
    """

    store: Store
    job: Job
    trainings: tuple[Mapping[str, Any], ...]
    validation_rows: Mapping[str, Mapping[str, Any]]
    test_rows: Mapping[str, Mapping[str, Any]]
    latency_rows: Mapping[Program, Mapping[str, Any]]
    compiled_rows: Mapping[str, Mapping[str, Any]]

    @cached_property
    def items(self) -> pd.DataFrame:
        """image_id, label and split of every image."""
        return self.store.items(self.job.fingerprint)

    @cached_property
    def classes(self) -> list[str]:
        """Keys of the job's classes."""
        keys = self.items["label"].cat.categories
        return [str(keys[c]) for c in self.job.classes]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Every program whose speed was measured or that was trained, sorted by name.

        A program that was only measured is a candidate with the adaptation that would be tried first.
        """
        measured_programs = {program.adapted(_first_adaptation(row)) for program, row in self.latency_rows.items()}
        trained_programs = {self.program_of(row) for row in self.trainings}

        candidates = []
        for program in measured_programs | trained_programs:
            # the speed is stored once for all adaptations of a program
            latency_row = self.latency_rows.get(_without_adaptation(program))
            candidates.append(Candidate(program, latency_row, self._longest_trainings(program)))
        return sorted(candidates, key=lambda candidate: candidate.program.name)

    def program_of(self, row: Mapping[str, Any]) -> Program:
        """The program that a training trained."""
        return _program(row, self.compiled_rows, str(row["adaptation"]))

    def _longest_trainings(self, program: Program) -> tuple[Mapping[str, Any], ...]:
        """The rows of a program's trainings with the most epochs, one for each seed, sorted by seed.

        Only trainings with predictions for the images that judge candidates count. If several recipes have as many
        epochs, the recipe of the latest training counts; of several trainings with one seed, the latest counts. Empty
        if no training counts.
        """
        rows = [row for row in self.trainings if self.program_of(row) == program and self.is_judged(row)]
        if not rows:
            return ()

        # a linear probe has neither epochs nor a seed
        longest = max(rows, key=lambda row: (row.get("recipe_epochs") or 0, row["finished"]))
        rows_of_recipe = [row for row in rows if _recipe(row) == _recipe(longest)]
        rows_of_recipe.sort(key=lambda row: row["finished"])
        latest_by_seed = {row.get("seed") or 0: row for row in rows_of_recipe}  # later rows replace earlier ones
        return tuple(latest_by_seed[seed] for seed in sorted(latest_by_seed))

    def is_judged(self, row: Mapping[str, Any]) -> bool:
        """Whether a training was evaluated on images that it was not fitted to.

        A linear probe always stores its outputs for such images; other trainings need a run of `predict` on val.
        """
        return row["adaptation"] == PROBE or row["run_id"] in self.validation_rows

    def predicted(self, row: Mapping[str, Any], split: str) -> Predictions:
        """Predictions of a training's weights for val or test."""
        rows = self.validation_rows if split == "val" else self.test_rows
        return predictions(self.store, rows[row["run_id"]])

    def left_out(self, row: Mapping[str, Any]) -> LeftOutImages:
        """Outputs of a probe for the images that it was not fitted to."""
        images = self.store.array(row["run_id"], JUDGED_IMAGES)
        outputs = self.store.array(row["run_id"], LEFT_OUT_LOGITS)
        label_of_data = self.items["label"].cat.codes.to_numpy()[images]
        label_of_job = np.searchsorted(self.job.classes, label_of_data)  # classes are sorted: position = new label
        return LeftOutImages(images, outputs, label_of_job)

    def judged(self, row: Mapping[str, Any], metric: Metric) -> ImagePredictions:
        """Predictions of a training by this metric for images that it was not fitted to.

        Of a linear probe these are left-out training images and validation images, of others validation images.
        """
        if row["adaptation"] == PROBE:
            probe = self.left_out(row)
            return ImagePredictions(probe.images, probe.label, metric.decide(probe.outputs))
        return self.answered(row, "val", metric)

    def answered(self, row: Mapping[str, Any], split: str, metric: Metric) -> ImagePredictions:
        """Labels and predictions of a training for the job's images of a split, "val" or "test".

        The prediction for an image is the stored one; with costs, it is the class of least expected cost instead.
        Labels and predictions are numbered within the job: 0 to classes - 1, or -1 for a class outside of the job.

        row: the training.    metric: has the costs, if there are any.
        """
        job_classes = list(self.job.classes)
        labels = self.items["label"].cat.codes.to_numpy()  # as positions among the classes of the data set
        is_in_split = (self.items["split"] == split).to_numpy()
        is_of_job = np.isin(labels, job_classes)
        images = np.flatnonzero(is_in_split & is_of_job)  # positions in the data
        predicted = self.predicted(row, split)  # of the same images in the same order, in labels of the data set

        # The index is a label in the data set, and the value the label in the job, or -1 for other classes. A predicted
        # label of -1 (a class that the data set does not have) reads the additional last entry, which is -1 too
        job_label_of = np.full(len(predicted.classes) + 1, -1)
        job_label_of[job_classes] = np.arange(len(job_classes))

        if metric.costs is None:
            answers = job_label_of[predicted.predicted_labels]
        else:
            # predicted.columns: the column of the logits for each label of the data set
            logits_of_job = predicted.logits[:, predicted.columns[job_classes]]  # images x classes of the job
            answers = metric.decide(logits_of_job)
        return ImagePredictions(images, job_label_of[predicted.labels], answers)

    @cached_property
    def tested_copies(self) -> int:
        """Number of the job's test images with the same content as a training or validation image."""
        is_of_job = self.items["label"].cat.codes.isin(self.job.classes)
        return copies_in_test(pictures_of_copies(self.items[is_of_job]))

    def images(self, split: str) -> Int[np.ndarray, " classes"]:
        """Number of images of each of the job's classes in a split."""
        labels = self.items["label"][self.items["split"] == split].cat.codes
        n_images_of_label = np.bincount(labels, minlength=max(self.job.classes) + 1)
        return n_images_of_label[list(self.job.classes)]


def evidence_of(store: Store, fingerprint: str, classes: tuple[int, ...]) -> Evidence:
    """The stored results of one job.

    fingerprint: identifies its images.    classes: their label indices.
    """
    rows = without_diverged(store.rows())
    is_training = (rows["task"] == "train") & (rows["fingerprint"] == fingerprint)
    trainings = _with_input_size(rows[is_training])
    trainings_of_classes = trainings[trainings["classes"].map(tuple) == classes]
    return _of_job(store, rows, trainings_of_classes, fingerprint, classes)


def screened_evidence(store: Store, fingerprint: str, classes: tuple[int, ...]) -> Evidence:
    """As `evidence_of`, but with the probes on few training images (task=screen) in the place of trainings."""
    rows = store.rows()
    probes = rows[(rows["task"] == "screen") & (rows["fingerprint"] == fingerprint)]
    probes_of_classes = probes[probes["classes"].map(tuple) == classes]
    return _of_job(store, rows, probes_of_classes, fingerprint, classes)


def evidence_of_jobs(store: Store, query: str | None) -> list[Evidence]:
    """The stored results of each job that has a training which matches the query, newest job first.

    A job is the task of classifying the images of one data set (its fingerprint) into certain classes (label indices).

    query: selects trainings; None selects all. A job with some matching trainings has only these. Raises FcaError for a
           query that cannot be read.
    """
    rows = readable_rows(store, query)  # of all jobs: the query is only checked for errors here
    # a training without the input size of its network does not identify a program
    trainings = _with_input_size(apply_query(rows[rows["task"] == "train"], query))
    classes_of_training = trainings["classes"].map(tuple)

    dated_jobs = []
    for fingerprint, classes in dict.fromkeys(zip(trainings["fingerprint"], classes_of_training, strict=True)):
        is_of_job = (trainings["fingerprint"] == fingerprint) & (classes_of_training == classes)
        trainings_of_job = trainings[is_of_job]

        n_classes_of_data = len(store.items(fingerprint)["label"].cat.categories)
        if max(classes) >= n_classes_of_data:  # the stored list of images lacks classes that were trained on
            log.warning("trainings on classes %s are left out: their data set has fewer", classes)
            continue

        evidence = _of_job(store, rows, trainings_of_job, fingerprint, classes)
        dated_jobs.append((trainings_of_job["finished"].max(), evidence))

    dated_jobs.sort(key=lambda dated_job: dated_job[0], reverse=True)
    return [evidence for _, evidence in dated_jobs]


def _with_input_size(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that record the input size of their network, without which a program is not identified."""
    if INPUT_SIZE not in rows:  # a column exists once any row has a value
        return rows.iloc[:0]
    return rows[rows[INPUT_SIZE].notna()]


def job_names(jobs: Sequence[Evidence]) -> list[str]:
    """A name for each job: its data set, and where jobs share a name, the properties in which they differ.

    The number of classes, the draw of the subset, the start of the fingerprint and the classes are appended in turn.
    Each is appended only to jobs that still share a name and differ in it.
    """
    names = [evidence.job.dataset for evidence in jobs]
    for suffixes in (
        [f"ncl={len(evidence.job.classes)}" for evidence in jobs],
        [_subset_in_words(evidence) for evidence in jobs],
        [evidence.job.fingerprint[:6] for evidence in jobs],
        [f"classes {' '.join(map(str, evidence.job.classes))}" for evidence in jobs],
    ):
        suffixes_of_name: dict[str, set[str]] = {}
        for name, suffix in zip(names, suffixes, strict=True):
            suffixes_of_name.setdefault(name, set()).add(suffix)

        # a suffix that all jobs of a name share does not distinguish them
        names = [
            f"{name}, {suffix}" if len(suffixes_of_name[name]) > 1 else name
            for name, suffix in zip(names, suffixes, strict=True)
        ]
    return names


def _subset_in_words(evidence: Evidence) -> str:
    """The seed of the job's class subset, or "as listed" for classes that were named."""
    seed = evidence.trainings[0].get("subset_seed")
    return "as listed" if seed is None else f"subset.seed={seed}"


def _of_job(
    store: Store, rows: pd.DataFrame, trainings: pd.DataFrame, fingerprint: str, classes: tuple[int, ...]
) -> Evidence:
    """The stored results of one job.

    rows:        of the whole store, since latency and compilation do not depend on the images.
    trainings:   rows of the job's trainings.
    fingerprint: identifies its images.
    classes:     label indices of its classes.
    """
    rows_of_data = rows[rows["fingerprint"] == fingerprint]
    is_prediction = (rows_of_data["task"] == "predict") & (rows_of_data["shift"] == "clean")
    clean_predictions = rows_of_data[is_prediction]

    # the last layer has an output for each class, so a latency belongs to a number of classes
    latencies = rows[(rows["task"] == "latency") & (rows["ncl"] == len(classes))]
    latencies = _with_input_size(latencies).sort_values("finished")
    compiled_rows = {row["run_id"]: row for row in records(rows[rows["task"] == "compile"])}
    # the latest row of a program replaces earlier ones; "" stands for no adaptation, as the speed depends on none
    latency_rows = {_program(row, compiled_rows, ""): row for row in records(latencies)}

    return Evidence(
        store=store,
        job=Job(str(rows_of_data["dataset"].iloc[0]), fingerprint, classes),
        trainings=tuple(records(trainings)),
        # run id of a training -> the row of its prediction
        validation_rows=_by_training(clean_predictions[clean_predictions["split"] == "val"]),
        test_rows=_by_training(clean_predictions[clean_predictions["split"] == "test"]),
        latency_rows=latency_rows,
        compiled_rows=compiled_rows,
    )


def _by_training(rows: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    """The prediction rows by the run id of the training whose weights made them; rows of other models are left out."""
    row_by_training: dict[str, Mapping[str, Any]] = {}
    for row in records(rows):
        training_id = _training_of(row)
        if training_id is not None:
            row_by_training[training_id] = row
    return row_by_training


def _training_of(row: Mapping[str, Any]) -> str | None:
    """Run id of the training whose best weights made this prediction; None for another model or snapshot.

    `task=predict model=run` writes the training into column `weights`, a training's own predictions have it as parent.
    """
    match = _OF_RUN.fullmatch(str(row["weights"]))
    if match is not None:
        return match["run"]
    if isinstance(row["parent"], str) and row["snapshot"] == "best":
        return row["parent"]
    return None


def _program(row: Mapping[str, Any], compiled_rows: Mapping[str, Mapping[str, Any]], adaptation: str) -> Program:
    """The program that a row of a training or of a measurement is about: a compiled one, or a network in PyTorch.

    For a compiled program, column `weights` of the row is RUN_ID/DEPTH, with the run of task=compile. The row of that
    run has the name, weights and precision of the network. A network in PyTorch runs in fp32.

    compiled_rows: run id -> row of task=compile.
    adaptation:    how the program is adapted, such as "probe"; "" for a measured speed, which depends on none.
    """
    match = _OF_COMPILED.fullmatch(str(row["weights"]))
    if match is not None and match["run"] in compiled_rows:
        network_row = compiled_rows[match["run"]]  # has the network's own name and weights
        depth = match["depth"]
        precision = str(network_row["precision"])
    else:
        network_row = row
        depth = CUT if str(row["model"]).endswith(CUT_LABEL) else WHOLE  # a network's label ends with its depth
        precision = FP32

    return Program(
        network=str(network_row["model"]).removesuffix(CUT_LABEL),
        weights=_text(network_row["weights"]),
        size=int(network_row["input_size"]),
        depth=depth,
        precision=precision,
        adaptation=adaptation,
    )


def _without_adaptation(program: Program) -> Program:
    """The program as it was measured: its time does not depend on how its weights were trained."""
    return program.adapted("")


def _first_adaptation(latency_row: Mapping[str, Any]) -> str:
    """The adaptation to try first: a network without weights is trained from scratch, anything else is probed.

    HOG has no parameters, so that it can only be probed.
    """
    is_untrained = _text(latency_row["weights"]) is None and latency_row["params"]
    return SCRATCH if is_untrained else PROBE


def _text(value: Any) -> str | None:
    """The value of a column of text; None if it is missing, which a table stores as None or NaN."""
    return value if isinstance(value, str) else None


def _recipe(row: Mapping[str, Any]) -> str:
    """All columns of the recipe as one text, to compare the recipes of two trainings."""
    return str(sorted((name, str(value)) for name, value in row.items() if name.startswith("recipe_")))
