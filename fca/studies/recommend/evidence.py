"""What the store knows of the candidates for one job: their speed, what their features show, what they predicted."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from fca.data.copies import copies_in_test, kept_together, pictures_of_copies
from fca.stats.features import check_finite, fit_probe
from fca.store import Store
from fca.store.columns import LEFT_OUT, PENALTY_BY
from fca.studies.answers import Predictions, predictions
from fca.studies.rows import every_row, narrowed, records, without_diverged
from fca.types import SPLITS, Column, FcaError

LATENCY = Column("latency_ms", float, ".2f", "time for one image, milliseconds (median over rounds)")
SPEED = Column("batch_images_per_s", float, ",.0f", "images a second in batches (median over rounds)")
GFLOPS = Column("gflops", float, ".2f", "floating-point operations for one image, in billions; a multiply-add is two")
MEMORY = Column("memory_mb", float, ",.1f", "weights and intermediate results of one image, MB")
LOAD = Column("load", float, ".2f", "processes that compute or wait to, a core, in the minute before: 0 is idle")
ADAPTATION = Column(
    "adaptation",
    str,
    "",
    "how the network comes to the classes",
    {"scratch": "from scratch", "finetune": "fine-tuned", "probe": "linear probe"},
    filters=True,
)
log = logging.getLogger(__name__)
COMMAND = "fca recommend FOLDER, or fca run -m task=latency,train model=test_resnet,test_vit"
_OF_RUN = re.compile(r"(?P<run>[0-9a-f]{12})/best")

Key = tuple[str, str | None, str]  # model, weights, adaptation


class Job(NamedTuple):
    """Images and classes that a model is wanted for."""

    dataset: str
    fingerprint: str
    classes: tuple[int, ...]


class LeftOut(NamedTuple):
    """What the linear probe that `adaptation=probe` delivers gives images that it was not fitted to.

    Training images (at most fca.stats.features.JUDGED) are left out of a fit to the others; no validation image is in
    any fit.

    images: positions in the data's items.    label: 0 to classes - 1.    top1: share of them that it gets right.
    """

    images: Int[np.ndarray, " images"]
    outputs: Float[np.ndarray, "images classes"]
    label: Int[np.ndarray, " images"]

    @property
    def top1(self) -> float:
        return float((self.outputs.argmax(axis=1) == self.label).mean())


@dataclass(frozen=True)
class Candidate:
    """A network and how it comes to the classes.

    speed:  the latest row of task=latency, if it was measured.    trained: rows of its trainings that went furthest,
    one a seed; empty before.
    """

    key: Key
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
    embedded: (model, weights) -> the row of its features of all images.    speed: likewise of its latency.
    """

    store: Store
    job: Job
    trained: tuple[Mapping[str, Any], ...]
    checked: Mapping[str, Mapping[str, Any]]
    tested: Mapping[str, Mapping[str, Any]]
    embedded: Mapping[tuple[str, str | None], Mapping[str, Any]]
    speed: Mapping[tuple[str, str | None], Mapping[str, Any]]

    @cached_property
    def items(self) -> pd.DataFrame:
        """image_id, label and split of every image."""
        return self.store.items(self.job.fingerprint)

    @cached_property
    def classes(self) -> list[str]:
        """Keys of the job's classes."""
        keys = self.items["label"].cat.categories
        return [str(keys[c]) for c in self.job.classes]

    @property
    def group(self) -> str | None:
        """The column of the images whose values no split of these trainings cuts apart."""
        return next((group for row in self.trained if (group := _text(row.get("group"))) is not None), None)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Every way to train a network whose speed was measured, and every training."""
        ways = {(*of, way) for of, row in self.speed.items() for way in _ways(of[1], row)}
        ways |= {_key(row) for row in self.trained}
        found = [Candidate(key, self.speed.get(key[:2]), self._furthest(key)) for key in ways]
        return sorted(found, key=lambda one: str(one.key))

    def _furthest(self, key: Key) -> tuple[Mapping[str, Any], ...]:
        """Its trainings of most epochs that have predicted val; of several recipes the latest one.

        None of a probe whose features are not finite: what it predicted is no probe's answer.
        """
        if key[2] == "probe" and key[:2] in self.embedded and self.left_out(key[:2]) is None:
            return ()
        rows = [row for row in self.trained if _key(row) == key and row["run_id"] in self.checked]
        if not rows:
            return ()
        last = max(rows, key=lambda row: (row.get("recipe_epochs") or 0, row["finished"]))
        same = [row for row in rows if _recipe(row) == _recipe(last)]
        return tuple(sorted(same, key=lambda row: row.get("seed") or 0))

    def predicted(self, row: Mapping[str, Any], split: str) -> Predictions:
        """What a training's weights predict for val or test."""
        return predictions(self.store, (self.checked if split == "val" else self.tested)[row["run_id"]])

    def left_out(self, of: tuple[str, str | None]) -> LeftOut | None:
        """Of the features of a network; None where it has none, or a probe cannot be fitted to them."""
        return _left_out(self.store, self.embedded[of]["run_id"], self.job, self.group) if of in self.embedded else None

    @cached_property
    def tested_copies(self) -> int:
        """How many of the job's test images have the same content as a training or validation image."""
        inside = self.items["label"].cat.codes.isin(self.job.classes)
        return copies_in_test(pictures_of_copies(self.items[inside]))

    def images(self, split: str) -> Int[np.ndarray, " classes"]:
        """How many there are of each class."""
        labels = self.items["label"][self.items["split"] == split].cat.codes
        return np.bincount(labels, minlength=max(self.job.classes) + 1)[list(self.job.classes)]


@lru_cache(maxsize=256)  # a recommendation weighs its candidates after every training
def _left_out(store: Store, run_id: str, job: Job, group: str | None) -> LeftOut | None:
    items = store.items(job.fingerprint)
    codes = items["label"].cat.codes.to_numpy()
    inside = np.isin(codes, job.classes)
    train, val = (np.flatnonzero(inside & (items["split"] == split).to_numpy()) for split in ("train", "val"))
    label = np.searchsorted(job.classes, codes)
    values = store.array(run_id, "features", lines=len(codes))
    try:
        check_finite(values[inside & items["split"].isin(SPLITS).to_numpy()])
    except FcaError as error:
        log.warning("the linear probe of %s is left out: %s", store.row(run_id)["encoder"], error)
        return None
    try:
        probe = fit_probe(values[train], label[train], kept_together(items.iloc[train], group))
    except FcaError:  # a class without training images
        return None

    judged = np.concatenate([train[probe.judged], val])
    outputs = np.concatenate([probe.left_out, probe.logits(values[val])])
    return LeftOut(judged, outputs, label[judged])


def evidence_of(store: Store, fingerprint: str, classes: tuple[int, ...]) -> Evidence:
    """Of the images with this fingerprint, and these classes of them."""
    rows = without_diverged(store.rows())
    trained = _judged_alike(rows[(rows["task"] == "train") & (rows["fingerprint"] == fingerprint)])
    return _of_job(store, rows, trained[trained["classes"].map(tuple) == classes], fingerprint, classes)


def evidence(store: Store, query: str | None) -> list[Evidence]:
    """One for each job in the store that the query keeps, newest first."""
    rows = every_row(store, query)
    kept = _judged_alike(narrowed(rows[rows["task"] == "train"], query))
    found = []
    for fingerprint, classes in dict.fromkeys(zip(kept["fingerprint"], kept["classes"].map(tuple), strict=True)):
        of = kept[(kept["fingerprint"] == fingerprint) & (kept["classes"].map(tuple) == classes)]
        if max(classes) >= len(store.items(fingerprint)["label"].cat.categories):
            log.warning("trainings on classes %s are left out: their data set has fewer", classes)
            continue
        found.append((of["finished"].max(), _of_job(store, rows, of, fingerprint, classes)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0], reverse=True)]


def _judged_alike(trained: pd.DataFrame) -> pd.DataFrame:
    """Without probes of older versions: validation images chose their penalty and cannot judge them."""
    older = trained["adaptation"] == "probe"
    if PENALTY_BY in trained:
        older &= trained[PENALTY_BY] != LEFT_OUT
    if older.any():
        number = "1 linear probe is" if older.sum() == 1 else f"{older.sum()} linear probes are"
        log.warning("%s left out: validation images chose the penalty; run adaptation=probe again", number)
    return trained[~older]


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
    measured = rows[(rows["task"] == "latency") & (rows["ncl"] == len(classes))].sort_values("finished")
    return Evidence(
        store,
        Job(str(same["dataset"].iloc[0]), fingerprint, classes),
        tuple(records(trained)),
        checked=_by_training(clean[clean["split"] == "val"]),
        tested=_by_training(clean[clean["split"] == "test"]),
        embedded=_by_network(same[(same["task"] == "embed") & (same["split"] == "all")], "encoder"),
        speed=_by_network(measured, "model"),
    )


def _by_training(rows: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    return {run: row for row in records(rows) if (run := _run_of(row)) is not None}


def _run_of(row: Mapping[str, Any]) -> str | None:
    """The training whose best weights predicted; None for another model."""
    found = _OF_RUN.fullmatch(str(row["weights"]))
    if found is not None:
        return found["run"]
    return row["parent"] if isinstance(row["parent"], str) and row["snapshot"] == "best" else None


def _by_network(rows: pd.DataFrame, name: str) -> dict[tuple[str, str | None], Mapping[str, Any]]:
    return {(row[name], _text(row["weights"])): row for row in records(rows)}


def _ways(weights: str | None, speed: Mapping[str, Any]) -> tuple[str, ...]:
    """How a network may come to the classes; what has no parameters, such as HOG, can only be probed."""
    if not speed["params"]:
        return ("probe",)
    return ("scratch",) if weights is None else ("probe", "finetune")


def _key(row: Mapping[str, Any]) -> Key:
    return row["model"], _text(row["weights"]), row["adaptation"]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _recipe(row: Mapping[str, Any]) -> str:
    return str(sorted((name, str(value)) for name, value in row.items() if name.startswith("recipe_")))


def name_of(key: Sequence[str | None]) -> str:
    """A candidate as people call it.

    >>> name_of(("resnet18", "a1_in1k", "probe")), name_of(("test_vit", None, "scratch"))
    ('resnet18 (linear probe)', 'test_vit (from scratch)')
    """
    return f"{key[0]} ({ADAPTATION.choices[str(key[2])]})"
