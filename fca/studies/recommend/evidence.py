"""What the store knows of the candidates for one job: their speed, what their features show, what they predicted."""

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
from fca.tables.rows import every_row, narrowed, records, without_diverged

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
    """A network as it is shipped, and how it comes to the classes: what one chooses among.

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
        """As people call it.

        >>> Program("resnet18", "a1_in1k", 160, "whole", "int8", "probe").name
        'resnet18 160 px int8 (linear probe)'
        >>> Program("test_vit", None, 32, "whole", "fp32", "scratch").name
        'test_vit 32 px (from scratch)'
        """
        words = [self.network, f"{self.size} px"]
        words += [self.depth] if self.depth != WHOLE else []
        words += [self.precision] if self.precision != FP32 else []
        return f"{' '.join(words)} ({ADAPTATION.choices[self.adaptation]})"

    def adapted(self, adaptation: str) -> Program:
        """The same network, another way to the classes."""
        return self._replace(adaptation=adaptation)


class Job(NamedTuple):
    """Images and classes that a model is wanted for."""

    dataset: str
    fingerprint: str
    classes: tuple[int, ...]


class Judged(NamedTuple):
    """What a training answers for some images.

    images: positions in the data's items.    labels, predicted: 0 to classes - 1; -1 for a class that it alone knows.
    """

    images: Int[np.ndarray, " images"]
    labels: Int[np.ndarray, " images"]
    predicted: Int[np.ndarray, " images"]


class LeftOut(NamedTuple):
    """What the linear probe that `adaptation=probe` delivers gives images that it was not fitted to.

    Training images (about fca.stats.features.JUDGED at most) are left out of a fit to the others; no validation image
    is in any fit.

    images: positions in the data's items.    label: 0 to classes - 1.    top1: share of them that it gets right.
    outputs: logits, with the temperature that makes the labels of the training images left out likeliest
             (fca.stats.features.fit_probe), so that their softmax are probabilities.
    """

    images: Int[np.ndarray, " images"]
    outputs: Float[np.ndarray, "images classes"]
    label: Int[np.ndarray, " images"]

    @property
    def top1(self) -> float:
        return float((self.outputs.argmax(axis=1) == self.label).mean())


@dataclass(frozen=True)
class Candidate:
    """A program, as far as it was measured and trained.

    speed:  the latest row of task=latency, if it was measured.    trained: rows of its trainings that went furthest,
    one a seed; empty before.
    """

    program: Program
    speed: Mapping[str, Any] | None
    trained: tuple[Mapping[str, Any], ...] = ()

    @property
    def first(self) -> Mapping[str, Any]:
        """The training with the lowest seed: the model to be used."""
        return self.trained[0]


@dataclass(frozen=True)
class Evidence:
    """All rows of one job, by what they are.

    trained: trainings.    checked: run id of a training -> its `predict` row on val.    tested: likewise on test.
    speed: program, without its adaptation -> the row of its latency.    compiled: run id -> the row of task=compile.
    """

    store: Store
    job: Job
    trained: tuple[Mapping[str, Any], ...]
    checked: Mapping[str, Mapping[str, Any]]
    tested: Mapping[str, Mapping[str, Any]]
    speed: Mapping[Program, Mapping[str, Any]]
    compiled: Mapping[str, Mapping[str, Any]]

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
        """Every program whose speed was measured, and every training."""
        measured = {program.adapted(_first_way(row)) for program, row in self.speed.items()}
        programs = measured | {self.program_of(row) for row in self.trained}
        found = [Candidate(one, self.speed.get(_as_measured(one)), self._furthest(one)) for one in programs]
        return sorted(found, key=lambda candidate: candidate.program.name)

    def program_of(self, row: Mapping[str, Any]) -> Program:
        """What a training made ready to ship."""
        return _program(row, self.compiled, str(row["adaptation"]))

    def _furthest(self, program: Program) -> tuple[Mapping[str, Any], ...]:
        """Its trainings of most epochs that were judged; of several recipes, and of several of one seed, the latest."""
        rows = [row for row in self.trained if self.program_of(row) == program and self.is_judged(row)]
        if not rows:
            return ()
        last = max(rows, key=lambda row: (row.get("recipe_epochs") or 0, row["finished"]))
        same = [row for row in rows if _recipe(row) == _recipe(last)]
        latest = {row.get("seed") or 0: row for row in sorted(same, key=lambda row: row["finished"])}
        return tuple(latest[seed] for seed in sorted(latest))

    def is_judged(self, row: Mapping[str, Any]) -> bool:
        """Whether images that no fit has seen judge a training: a probe keeps them, others predict val."""
        return row["adaptation"] == PROBE or row["run_id"] in self.checked

    def predicted(self, row: Mapping[str, Any], split: str) -> Predictions:
        """What a training's weights predict for val or test."""
        return predictions(self.store, (self.checked if split == "val" else self.tested)[row["run_id"]])

    def left_out(self, row: Mapping[str, Any]) -> LeftOut:
        """What a probe gives the images that it was not fitted to."""
        images = self.store.array(row["run_id"], JUDGED_IMAGES)
        outputs = self.store.array(row["run_id"], LEFT_OUT_LOGITS)
        codes = self.items["label"].cat.codes.to_numpy()[images]
        return LeftOut(images, outputs, np.searchsorted(self.job.classes, codes))

    def judged(self, row: Mapping[str, Any], metric: Metric) -> Judged:
        """What a training answers for images that no fit has seen."""
        if row["adaptation"] == PROBE:
            probe = self.left_out(row)
            return Judged(probe.images, probe.label, metric.decide(probe.outputs))
        return self.answered(row, "val", metric)

    def answered(self, row: Mapping[str, Any], split: str, metric: Metric) -> Judged:
        """What a training answers for the job's images of val or test."""
        codes = self.items["label"].cat.codes.to_numpy()
        is_meant = (self.items["split"] == split).to_numpy() & np.isin(codes, self.job.classes)
        seen = self.predicted(row, split)
        among = np.full(len(seen.classes) + 1, -1)  # the last one stands for classes that the data do not have
        among[list(self.job.classes)] = np.arange(len(self.job.classes))
        if metric.costs is None:
            predicted = among[seen.predicted_labels]
        else:
            predicted = metric.decide(seen.logits[:, seen.columns[list(self.job.classes)]])
        return Judged(np.flatnonzero(is_meant), among[seen.labels], predicted)

    @cached_property
    def tested_copies(self) -> int:
        """How many of the job's test images have the same content as a training or validation image."""
        inside = self.items["label"].cat.codes.isin(self.job.classes)
        return copies_in_test(pictures_of_copies(self.items[inside]))

    def images(self, split: str) -> Int[np.ndarray, " classes"]:
        """How many there are of each class."""
        labels = self.items["label"][self.items["split"] == split].cat.codes
        return np.bincount(labels, minlength=max(self.job.classes) + 1)[list(self.job.classes)]


def evidence_of(store: Store, fingerprint: str, classes: tuple[int, ...]) -> Evidence:
    """Of the images with this fingerprint, and these classes of them."""
    rows = without_diverged(store.rows())
    trained = _of_known_size(rows[(rows["task"] == "train") & (rows["fingerprint"] == fingerprint)])
    return _of_job(store, rows, trained[trained["classes"].map(tuple) == classes], fingerprint, classes)


def screened_evidence(store: Store, fingerprint: str, classes: tuple[int, ...]) -> Evidence:
    """Of the same job, from probes on few of its training images (task=screen) in place of its trainings."""
    rows = store.rows()
    screened = rows[(rows["task"] == "screen") & (rows["fingerprint"] == fingerprint)]
    return _of_job(store, rows, screened[screened["classes"].map(tuple) == classes], fingerprint, classes)


def evidence(store: Store, query: str | None) -> list[Evidence]:
    """One for each job in the store that the query keeps, newest first."""
    rows = every_row(store, query)
    kept = _of_known_size(narrowed(rows[rows["task"] == "train"], query))
    found = []
    for fingerprint, classes in dict.fromkeys(zip(kept["fingerprint"], kept["classes"].map(tuple), strict=True)):
        of = kept[(kept["fingerprint"] == fingerprint) & (kept["classes"].map(tuple) == classes)]
        if max(classes) >= len(store.items(fingerprint)["label"].cat.categories):
            log.warning("trainings on classes %s are left out: their data set has fewer", classes)
            continue
        found.append((of["finished"].max(), _of_job(store, rows, of, fingerprint, classes)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0], reverse=True)]


def _of_known_size(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows[INPUT_SIZE].notna()] if INPUT_SIZE in rows else rows.iloc[:0]


def job_names(jobs: Sequence[Evidence]) -> list[str]:
    """The data set of each job; where several are of one data set, with what distinguishes them."""
    names = [of.job.dataset for of in jobs]
    drawn = [of.trained[0].get("subset_seed") for of in jobs]
    for words in (
        [f"ncl={len(of.job.classes)}" for of in jobs],
        ["as listed" if seed is None else f"subset.seed={seed}" for seed in drawn],
        [of.job.fingerprint[:6] for of in jobs],
        [f"classes {' '.join(map(str, of.job.classes))}" for of in jobs],
    ):
        pairs = list(zip(names, words, strict=True))
        differs = {name for name in names if len({word for other, word in pairs if other == name}) > 1}
        names = [f"{name}, {word}" if name in differs else name for name, word in pairs]
    return names


def _of_job(store: Store, rows: pd.DataFrame, trained: pd.DataFrame, fingerprint: str, classes: Any) -> Evidence:
    same = rows[rows["fingerprint"] == fingerprint]
    clean = same[(same["task"] == "predict") & (same["shift"] == "clean")]
    measured = rows[(rows["task"] == "latency") & (rows["ncl"] == len(classes))]
    measured = _of_known_size(measured).sort_values("finished")
    compiled = {row["run_id"]: row for row in records(rows[rows["task"] == "compile"])}
    return Evidence(
        store,
        Job(str(same["dataset"].iloc[0]), fingerprint, classes),
        tuple(records(trained)),
        checked=_by_training(clean[clean["split"] == "val"]),
        tested=_by_training(clean[clean["split"] == "test"]),
        speed={_program(row, compiled, ""): row for row in records(measured)},
        compiled=compiled,
    )


def _by_training(rows: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    return {run: row for row in records(rows) if (run := _run_of(row)) is not None}


def _run_of(row: Mapping[str, Any]) -> str | None:
    """The training whose best weights predicted; None for another model."""
    found = _OF_RUN.fullmatch(str(row["weights"]))
    if found is not None:
        return found["run"]
    return row["parent"] if isinstance(row["parent"], str) and row["snapshot"] == "best" else None


def _program(row: Mapping[str, Any], compiled: Mapping[str, Mapping[str, Any]], adaptation: str) -> Program:
    """Of a row of a compiled network: what was compiled; of another row: the network in PyTorch."""
    found = _OF_COMPILED.fullmatch(str(row["weights"]))
    if found is not None and found["run"] in compiled:
        network = compiled[found["run"]]
        depth, precision = found["depth"], str(network["precision"])
    else:
        network = row
        precision = FP32
        depth = CUT if str(row["model"]).endswith(CUT_LABEL) else WHOLE
    name = str(network["model"]).removesuffix(CUT_LABEL)
    return Program(name, _text(network["weights"]), int(network["input_size"]), depth, precision, adaptation)


def _as_measured(program: Program) -> Program:
    """Whose time it takes: however the weights came to be, the program is the same."""
    return program.adapted("")


def _first_way(speed: Mapping[str, Any]) -> str:
    """How a measured network comes to the classes, to begin with; what has no parameters, HOG, can only be probed."""
    return SCRATCH if _text(speed["weights"]) is None and speed["params"] else PROBE


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _recipe(row: Mapping[str, Any]) -> str:
    return str(sorted((name, str(value)) for name, value in row.items() if name.startswith("recipe_")))
