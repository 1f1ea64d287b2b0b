"""A model's accuracy from a part of the images: it is run only on those that a policy asks for."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Integer

from fca.data.pixels import Pixels, open_pixels, shifted
from fca.data.splits import as_trained_on
from fca.stats.adaptive import (
    ESTIMATORS,
    LEVELS,
    MAPPING_L,
    MAPPING_Q,
    POLICIES,
    TARGETS,
    Estimate,
    Policy,
    Pool,
    StartPolicy,
    check_mapping,
    estimate,
    make_pool,
    run_policy,
    warning,
)
from fca.stats.irt import ItemBank
from fca.store import State, Store
from fca.studies.irt.ability import read_bank
from fca.studies.progressive.levels import levels_of, sessions_of
from fca.subset import full_set
from fca.tasks import Setup
from fca.tasks.predict import Nameable, Predict, answer_arrays, subset_columns
from fca.types import Arrays, Classifier, FcaError, Finished, ImageData, Run, Shift

# What a model answered so far, in an append-only file: a test that was killed asks nothing twice.


NAME = "journal.jsonl"


class Answers(NamedTuple):
    """The logit that a model chose for each of some images, and the probability it gave the right one."""

    pred: Int[np.ndarray, " images"]
    p_true: Float[np.ndarray, " images"]


@dataclass
class Journal:
    """Answers to the images of a pool, by position; a line of the file is what was forwarded together.

    path: of the file: JSON lines of `round`, `image_id`, `pred`, `p_true`, `seconds`.    image_id: of the pool.
    """

    path: Path
    image_id: Sequence[str]

    def __post_init__(self) -> None:
        """Read what is there; a last line that was cut off by the end of its process is removed."""
        self.pred = np.full(len(self.image_id), -1, dtype=np.int32)
        self.p_true = np.full(len(self.image_id), np.nan, dtype=np.float32)
        self.seconds = 0.0
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        position = {image_id: place for place, image_id in enumerate(self.image_id)}
        for line in whole.decode().splitlines():
            said = json.loads(line)
            places = np.array([position[image_id] for image_id in said["image_id"]], dtype=np.int64)
            self._take(places, Answers(np.array(said["pred"]), np.array(said["p_true"])), said["seconds"])

    @property
    def answered(self) -> Bool[np.ndarray, " items"]:
        """Which images the model has answered."""
        return np.asarray(self.pred >= 0)

    def add(self, number: int, positions: Integer[np.ndarray, " images"], said: Answers, seconds: float) -> None:
        """Answers of this round to the images at these positions, on the disk before this returns."""
        line = {
            "round": number,
            "image_id": [self.image_id[place] for place in positions.tolist()],
            "pred": said.pred.tolist(),
            "p_true": said.p_true.tolist(),
            "seconds": seconds,
        }
        with self.path.open("ab") as file:
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(positions, said, seconds)

    def _take(self, positions: Integer[np.ndarray, " images"], said: Answers, seconds: float) -> None:
        self.pred[positions], self.p_true[positions] = said.pred, said.p_true
        self.seconds += seconds


# What an adaptive test may ask: images by level, session and attribute; the policy's options; the bank's items.


MAPPINGS = {"Q": MAPPING_Q, "L": MAPPING_L}
LEAKED = "task.bank was fitted on this model's own answers too; fit it on others"
OTHER_DATA = "task.bank was fitted on another version of these data: its items may have shown other pixels"
OF_POLICY = {"mapping": ("gre_two_stage",), "objective": ("optimal_allocation", "neyman_irt")}


class Questions(NamedTuple):
    """Images that may be asked.

    rows:  their positions in `data.items`, in its order.    places: those among all test images of the classes.
    pool:  their levels, sessions (class and attribute) and groups (attributes).
    """

    rows: Int[np.ndarray, " items"]
    places: Int[np.ndarray, " items"]
    pool: Pool


class Chosen(NamedTuple):
    """A policy with its options: how to start it, what of it is not the default, and its name in tables."""

    start: StartPolicy
    options: dict[str, Any]
    label: str


def questions(data: ImageData, split: str, classes: Sequence[int]) -> Questions:
    """The images of a split and of these label indices that have an attribute and a level.

    Raises FcaError for a data set without such columns or images, for a level of another name, and for a session that
    lacks a level.
    """
    lacking = [column for column in ("attribute", "level") if column not in data.items]
    if lacking:
        there = ", ".join(map(str, data.items.columns))
        step = "take dataset=rendered, or give a manifest's images these columns"
        raise FcaError(f"columns of {data.name}", there, f"also {' and '.join(lacking)}", step)
    listed = data.rows(split, classes)
    items = data.items.iloc[listed]
    places = np.flatnonzero(items["attribute"].notna() & items["level"].notna())
    items = items.iloc[places]
    if wrong := sorted(set(items["level"].astype(str)) - set(LEVELS)):
        raise FcaError(f"level of images of {data.name}", ", ".join(wrong[:5]), ", ".join(LEVELS), "name levels so")
    pool = make_pool(levels_of(items), sessions_of(items), items["attribute"].to_numpy(dtype=str))
    return Questions(listed[places], places, pool)


def choose_policy(policy: str, mapping: Any, objective: str) -> Chosen:
    """A policy by name. Raises FcaError for an unknown one, a mapping that is none, an option of another policy.

    mapping: Q or L, or ten triples, for gre_two_stage.    objective: accuracy or score, where a policy has one.

    >>> choose_policy("gre_two_stage", "L", "accuracy").label
    'gre_two_stage mapping=L'
    """
    if policy not in POLICIES:
        raise FcaError("task.policy", policy, ", ".join(POLICIES), "take one of these")
    if isinstance(mapping, str) and mapping not in MAPPINGS:
        raise FcaError("task.mapping", mapping, f"{', '.join(MAPPINGS)}, or ten triples", "take one of these")
    table = check_mapping(MAPPINGS[mapping] if isinstance(mapping, str) else mapping).tolist()
    named = next((name for name, known in MAPPINGS.items() if table == [list(line) for line in known]), "own")
    given: dict[str, Any] = {} if named == "Q" else {"mapping": table}
    if objective != "accuracy":
        given["objective"] = objective
    for option in given:
        if policy not in OF_POLICY[option]:
            step = f"leave it out, or set task.policy={OF_POLICY[option][0]}"
            raise FcaError(f"task.{option}", objective if option == "objective" else named, f"none for {policy}", step)
    words = [policy, *(f"{key}={named if key == 'mapping' else value}" for key, value in given.items())]
    start: Any = POLICIES[policy]
    return Chosen(partial(start, **given), given, " ".join(words))


def read_items(store: Store, table_id: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift) -> ItemBank:
    """The bank's items of these images as the shift shows them, in their order.

    Raises FcaError for an id that is no bank, for images that it lacks, and where two of its items have one name.
    """
    kind = shift.label().split("/")[1] if "/" in shift.label() else shift.label()
    frame = read_bank(store, table_id)
    for column, wanted in (("dataset", data.name), ("corruption", kind)):
        same = frame[frame[column] == wanted]
        frame = same if len(same) else frame  # files of answers have names of their own
    if frame["item"].duplicated().any():
        found = ", ".join(sorted(set(frame["dataset"])))
        step = f"save one of this set alone: fca analyse analysis=irt analysis.query=\"dataset == '{data.name}'\""
        raise FcaError("data sets of task.bank", found, f"{data.name}, or another one", step)
    images = data.items["image_id"].iloc[rows].astype(str)
    names = images if shift.label() == "clean" else images + f"@{shift.label()}"
    at = pd.Index(frame["item"]).get_indexer(pd.Index(names))
    if (at < 0).any():
        missing = names[at < 0]
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        what = f"items that task.bank {table_id} lacks"
        step = "fit one on other models' answers to all of these images: fca analyse analysis=irt"
        raise FcaError(what, f"{shown} ({len(missing)} of {len(names)})", "none", step)
    parameters: Any = [frame[name].to_numpy(dtype=np.float64)[at] for name in ItemBank._fields[1:]]
    return ItemBank(str(frame["irt_model"].iloc[0]), *parameters)


def doubts(store: Store, table_id: str, predictions: Sequence[Run]) -> list[str]:
    """What is wrong with a bank for these tests, by the stored runs whose answers it was fitted on.

    predictions: the runs that would predict every image.
    """
    about = json.loads((store.outputs / "tables" / table_id / "table.json").read_text())
    rows = store.rows()
    fitted = rows[rows["run_id"].isin(about["runs"]) & (rows["dataset"] == predictions[0].about["dataset"])]
    leaked = set(fitted["run_id"]) & {run.run_id for run in predictions}
    other = set(fitted["fingerprint"]) - {run.about["fingerprint"] for run in predictions}
    return [LEAKED] * bool(leaked) + [OTHER_DATA] * bool(other)


# A test as it is taken: the policy asks, the network answers, the journal keeps, the estimate says when to stop.


TOGETHER = 2048  # images a line of the journal, at most
log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A test at its end.

    order: positions in the pool as they were asked.    round: of each of these.    estimate: of every group.
    """

    order: Int[np.ndarray, " asked"]
    round: Int[np.ndarray, " asked"]
    estimate: Estimate


@dataclass(frozen=True)
class Examinee:
    """A classifier that answers images of a pool, by position.

    places:  where each of them is in `pixels`.    true: the logit of its class.
    allowed: the logits that may be the answer, ascending.
    """

    classifier: Classifier
    accelerator: str
    pixels: Pixels
    places: Int[np.ndarray, " items"]
    true: Int[np.ndarray, " items"]
    allowed: Int[np.ndarray, " logits"]
    journal: Journal

    def right(self, number: int, positions: Integer[np.ndarray, " asked"]) -> Bool[np.ndarray, " asked"]:
        """Which of the images of this round it gets right; what the journal holds is not asked again.

        Asked and kept in parts: an image that cannot be read loses the answers of its own part alone.
        """
        missing = positions[~self.journal.answered[positions]]
        for start in range(0, len(missing), TOGETHER):
            part = missing[start : start + TOGETHER]
            begun = time.perf_counter()
            said = self._answers(part)
            self.journal.add(number, part, said, time.perf_counter() - begun)
        return np.asarray(self.journal.pred[positions] == self.true[positions])

    def _answers(self, positions: Integer[np.ndarray, " images"]) -> Answers:
        from fca.training.infer import logits_of

        logits = logits_of(self.classifier, self.pixels, self.places[positions], accelerator=self.accelerator)
        keys = [self.classifier.classes[logit] for logit in self.allowed]
        said = answer_arrays(logits[:, self.allowed], np.searchsorted(self.allowed, self.true[positions]), keys)
        return Answers(self.allowed[said["pred"]], said["p_true"])


def examine(
    policy: Policy, examinee: Examinee, estimated: Callable[[], Estimate], width: float | None, seed: int
) -> Taken:
    """Ask in rounds until the policy ends and, with a width, the 95 % interval of the mean accuracy is at most as wide.

    The draws are those of `fca.stats.adaptive.replay` for its first model and repeat, with the same seed.
    """
    rng = np.random.default_rng([seed, 0, 0])
    rounds: list[Int[np.ndarray, " asked"]] = []
    asked = policy.record.asked
    while True:
        while len(positions := policy.ask(rng)):
            rounds.append(positions)
            policy.observe(positions, examinee.right(len(rounds), positions))
            log.info("round %d: %d of %d images asked", len(rounds), asked.sum(), len(asked))
        found = estimated()
        if width is None or asked.all() or _width(found) <= width:
            number = np.repeat(np.arange(1, len(rounds) + 1), [len(positions) for positions in rounds])
            return Taken(np.concatenate(rounds), number, found)
        policy.again()


def open_decoded(data: ImageData, classifier: Classifier, setup: Setup) -> Pixels:
    """Pixels from the cache, if another run decoded them all; else they are read as they are asked, and no others."""
    decoded = (setup.cache / f"{data.fingerprint}-{classifier.geometry.key}.npy").exists()
    room = np.inf if decoded else 0.0
    return open_pixels(data, classifier.geometry, setup.cache, setup.machine.workers, float(room))


def estimates(found: Estimate) -> dict[str, float]:
    """The mean over groups of both targets, with standard error and 95 % interval; what is undefined stays out."""
    mean, columns = found.overall, {}
    for target, name in enumerate(TARGETS):
        numbers = (mean.value, mean.low, mean.high, mean.se)
        for end, number in zip(("", "_low", "_high", "_se"), numbers, strict=True):
            if np.isfinite(number[0, target]):
                columns[name + end] = float(number[0, target])
    return columns


def counts(pool: Pool, taken: Taken, seconds: float) -> dict[str, Any]:
    """How many images were asked, of which level, in how many rounds and seconds."""
    n, by_level = len(taken.order), np.bincount(pool.level[taken.order], minlength=len(LEVELS))
    return {
        "n_asked": n,
        "n_pool": pool.items,
        "share": n / pool.items,
        **{f"asked_{level}": int(by_level[code]) for code, level in enumerate(LEVELS)},
        "rounds": int(taken.round[-1]),
        "predict_s": seconds,
        "images_per_s": n / seconds,
    }


def arrays_of(asked: Questions, taken: Taken, journal: Journal) -> Arrays:
    """The answers in the order asked, and the estimates by group.

    asked: positions among the test images of the row's classes, as in the arrays of a predict run.
    """
    pool, found = asked.pool, taken.estimate
    marked = np.zeros(pool.items, dtype=bool)
    marked[taken.order] = True
    return {
        "asked": asked.places[taken.order].astype(np.int32),
        "round": taken.round.astype(np.int32),
        "pred": journal.pred[taken.order],
        "p_true": journal.p_true[taken.order],
        "groups": pool.group_names.astype(str),
        "group_asked": pool.by_group(pool.by_stratum(marked)).astype(np.int32),
        "group_estimate": np.stack([found.value, found.se, found.low, found.high], axis=-1),
    }


def _width(found: Estimate) -> float:
    """Of the interval of the mean accuracy; not a number where that is undefined, which is never narrow enough."""
    mean = found.overall
    return float(mean.high[0, 0] - mean.low[0, 0])


PROTOCOLS = ("open", "masked")
NOT_ADAPTIVE = ("static_k", "random")
OF_BANK = ("neyman_irt", "fisher_cat", "difference", "p_irt")
EXHAUSTED = "every image was asked before the interval was as narrow as task.width"


@dataclass(frozen=True)
class AdaptiveTest:
    """`task=adaptive_test`: accuracy and score of the test images (see fca.stats.adaptive) from those that are asked.

    policy, estimator: names of fca.stats.adaptive.    budget: share of the images to ask.
    width:     go on, a budget more at a time, until the 95 % interval of the mean accuracy over attributes is at most
               this wide; stopping by what was seen makes intervals a little too narrow.
    bank:      id of a saved table `irt_items`, fitted on other models.
    mapping:   of gre_two_stage: Q, L or ten triples.    objective: of optimal_allocation and neyman_irt.
    protocol:  open, any class that the model knows may be the answer; masked, only those of the asked images.
    The run's seed draws what is asked.
    """

    policy: str
    estimator: str
    budget: float
    width: float | None
    bank: str | None
    mapping: Any
    objective: str
    protocol: str

    def plan(self, setup: Setup) -> list[Run]:
        """A run a shift. The whole test is taken once with made-up answers: what it refuses, it refuses here."""
        self._check()
        tested = _tested(setup)
        asked = questions(tested.data, "test", tested.classes)
        for shift in setup.shifts if self.bank else setup.shifts[:1]:
            self._rehearse(asked, self._items(setup, tested.data, asked, shift))
        chosen = choose_policy(self.policy, self.mapping, self.objective)
        keys = [tested.data.classes[c] for c in tested.classes]
        others = {
            "width": self.width,
            "bank": self.bank,
            "protocol": self.protocol if self.protocol != "open" else None,
            "classes": keys if len(keys) < len(tested.data.classes) else None,
        }
        meaning = {"policy": self.policy, **chosen.options, "estimator": self.estimator, "budget": self.budget}
        meaning |= {"seed": setup.seed, **{key: value for key, value in others.items() if value is not None}}
        about = {**subset_columns(setup), "seed": setup.seed, "policy": chosen.label, "estimator": self.estimator}
        about |= {"budget": self.budget, "width": self.width, "bank": self.bank, "protocol": self.protocol}
        return [Run("adaptive_test", {**p.identity, **meaning}, {**p.about, **about}) for p in tested.predictions]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Build the model once; test it under every shift."""
        wanted = {run.run_id for run in runs}
        tested = _tested(setup)
        setup.store.keep_items(tested.data)
        model = setup.model.naming(tested.data.classes) if isinstance(setup.model, Nameable) else setup.model
        classifier = model.build()
        tested = tested._replace(classes=_known(classifier, tested, setup))
        for run, shift in zip(self.plan(setup), setup.shifts, strict=True):
            if run.run_id in wanted:
                yield self._test(run, setup, tested, classifier, shift)

    def _test(self, run: Run, setup: Setup, tested: Tested, classifier: Classifier, shift: Shift) -> Finished:
        from fca.training.batches import device_name

        asked = questions(tested.data, "test", tested.classes)
        bank = self._items(setup, tested.data, asked, shift)
        journal = Journal(
            setup.store.folder(run.run_id) / NAME, tested.data.items["image_id"].iloc[asked.rows].tolist()
        )
        examinee = self._examinee(setup, tested, asked, classifier, shift, journal)
        policy = choose_policy(self.policy, self.mapping, self.objective).start(asked.pool, self.budget, bank)

        def estimated() -> Estimate:
            return estimate(self.estimator, asked.pool, policy.record, bank)

        taken = examine(policy, examinee, estimated, self.width, setup.seed)
        columns = {
            "ncl": len(tested.classes),
            "classes": tested.classes,
            **estimates(taken.estimate),
            **counts(asked.pool, taken, journal.seconds),
            "params": sum(p.numel() for p in classifier.module.parameters()),
            "input_size": classifier.input_size,
            "device": device_name(setup.machine.accelerator),
            "warning": self._warning(setup, tested.predictions, exhausted=bool(policy.record.asked.all())),
        }
        arrays = {**arrays_of(asked, taken, journal), "logit_classes": np.array(classifier.classes)}
        return Finished(run, columns, arrays)

    def _examinee(
        self, setup: Setup, tested: Tested, asked: Questions, classifier: Classifier, shift: Shift, journal: Journal
    ) -> Examinee:
        data, clean = tested.data, shift.label() == "clean"
        logit = {key: place for place, key in enumerate(classifier.classes)}
        of_class = np.array([logit.get(key, -1) for key in data.classes])
        everything = np.arange(len(classifier.classes))
        return Examinee(
            classifier=classifier,
            accelerator=setup.machine.accelerator,
            pixels=open_decoded(data if clean else shifted(data, shift, "test"), classifier, setup),
            places=asked.rows if clean else np.searchsorted(data.rows("test"), asked.rows),
            true=of_class[data.labels[asked.rows]],
            allowed=everything if self.protocol == "open" else np.sort(of_class[tested.classes]),
            journal=journal,
        )

    def _check(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise FcaError("task.estimator", self.estimator, ", ".join(ESTIMATORS), "mixed_logit needs no bank")
        if self.protocol not in PROTOCOLS:
            raise FcaError("task.protocol", self.protocol, " or ".join(PROTOCOLS), "take one of them")
        if self.width is not None and not 0 < self.width < 1:
            raise FcaError("task.width", self.width, "null, or between 0 and 1", "0.02 is two points")
        of_bank = [name for name in (self.policy, self.estimator) if name in OF_BANK]
        if of_bank and self.bank is None:
            step = "fit one on other models' answers, fca analyse analysis=irt, and give the id of its table irt_items"
            raise FcaError("task.bank", None, f"an item bank: {of_bank[0]} needs one", step)
        if self.bank is not None and not of_bank:
            step = f"leave it out, or take one of {', '.join(OF_BANK)}"
            raise FcaError("task.bank", self.bank, f"null for {self.policy} with {self.estimator}", step)

    def _rehearse(self, asked: Questions, bank: ItemBank | None) -> None:
        rng = np.random.default_rng(0)
        policy = choose_policy(self.policy, self.mapping, self.objective).start(asked.pool, self.budget, bank)
        run_policy(policy, rng.random(asked.pool.items) < 0.5, rng)
        estimate(self.estimator, asked.pool, policy.record, bank)

    def _items(self, setup: Setup, data: ImageData, asked: Questions, shift: Shift) -> ItemBank | None:
        return None if self.bank is None else read_items(setup.store, self.bank, data, asked.rows, shift)

    def _warning(self, setup: Setup, predictions: Sequence[Run], *, exhausted: bool) -> str | None:
        """What is known to be wrong with the estimates; see also the width of their intervals."""
        said = [None if self.policy in NOT_ADAPTIVE else warning(self.estimator)]
        if self.width is not None and exhausted:
            said.append(EXHAUSTED)
        if self.bank:
            said += doubts(setup.store, self.bank, predictions)
        return "; ".join(filter(None, said)) or None


class Tested(NamedTuple):
    """What is tested: the runs that would predict every image, one a shift; their data; the label indices asked."""

    predictions: list[Run]
    data: ImageData
    classes: list[int]


def _tested(setup: Setup) -> Tested:
    """The data are as a stored run's training cut them; as released (compat), it is asked its own classes alone."""
    whole = full_set(len(setup.data.classes))
    predictions = Predict("test", None, None, []).plan(replace(setup, subset=whole))
    data = as_trained_on(setup.data, predictions[0].identity["data"])
    classes = set(setup.subset.classes)
    trained = predictions[0].identity["model"].get("run")
    if trained and setup.store.state(trained) is State.DONE:
        row = setup.store.row(trained)
        if row.get("compat") and row["fingerprint"] == data.fingerprint:
            classes &= set(row["classes"])
    return Tested(predictions, data, sorted(classes))


def _known(classifier: Classifier, tested: Tested, setup: Setup) -> list[int]:
    """The asked classes that the classifier knows; a subset that was asked for must be known whole."""
    data = tested.data
    known = [c for c in tested.classes if data.classes[c] in classifier.classes]
    if not known or (len(known) < len(tested.classes) and setup.subset.ncl < len(data.classes)):
        unknown = ", ".join([data.classes[c] for c in tested.classes if c not in known][:5])
        raise FcaError(
            "classes to ask about", unknown, "classes that the model knows", "choose another subset or model"
        )
    return known
