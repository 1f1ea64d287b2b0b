"""`task=adaptive_test`: a model's accuracy from a part of the images; it is run only on those that a policy selects.

Round by round, a policy of fca.stats.adaptive selects images, the network predicts them, and the run's journal keeps
the predictions, so that a killed test goes on and predicts nothing twice. An estimator decides when it may stop.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Integer

from fca.data.pixels import Pixels, open_pixels, shifted
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
    warning,
)
from fca.stats.irt import ItemBank
from fca.stats.protocols import logit_columns
from fca.store import Store
from fca.store.journal import Journal
from fca.studies.irt.ability import read_bank
from fca.studies.progressive.levels import levels_of, sessions_of
from fca.tasks import FORWARD, Setup
from fca.tasks.predict import CLEAN, Forward, forward_columns, prediction_arrays, subset_columns, whole_split
from fca.types import Arrays, Classifier, Column, FcaError, Finished, ImageData, Run, Shift, with_interval

ACCURACY = Column("accuracy", float, ".1%", "estimated accuracy: mean over attributes, each level counting the same")
SCORE = Column("score", float, ".1%", "estimated score: mean over attributes of (easy + 2 medium + 4 hard) / 7")
ESTIMATES = tuple(
    column
    for target in (ACCURACY, SCORE)
    for column in (*with_interval(target), Column(f"{target}_se", float, ".4f", f"standard error of {target}"))
)
POLICY = Column("policy", str, meaning="how the images of an adaptive test were selected, with options", filters=True)
ESTIMATOR = Column("estimator", str, meaning="how accuracy and score were estimated from them", filters=True)
BUDGET = Column("budget", float, ".0%", "share of the images that an adaptive test may evaluate at a time")
WIDTH = Column("width", float, ".3f", "width of the 95 % interval of the accuracy at which an adaptive test stops")
BANK = Column("bank", str, meaning="id of the saved table irt_items that an adaptive test used")
PROTOCOLS = ("open", "masked")
PROTOCOL = Column(
    "protocol",
    str,
    meaning="open: any class that the model knows may be predicted; masked: only those of the evaluated images",
    values={name: name for name in PROTOCOLS},
)
N_ASKED = Column("n_asked", int, ",", "images that an adaptive test evaluated")
N_POOL = Column("n_pool", int, ",", "images that it might have evaluated")
SHARE = Column("share", float, ".0%", "evaluated share of these images: n_asked / n_pool")
ASKED = tuple(Column(f"asked_{level}", int, ",", f"evaluated {level} images") for level in LEVELS)
ROUNDS = Column("rounds", int, "d", "rounds of an adaptive test")
WARNING = Column("warning", str, meaning="known faults of the estimates")

NAME = "journal.jsonl"
TOGETHER = 2048  # images a line of the journal, at most
MAPPINGS = {"Q": MAPPING_Q, "L": MAPPING_L}
OF_POLICY = {"mapping": ("gre_two_stage",), "objective": ("optimal_allocation", "neyman_irt")}
NOT_ADAPTIVE = ("static_k", "random")
OF_BANK = ("neyman_irt", "fisher_cat", "difference", "p_irt")
KNOWN_CHANCES = ("neyman_irt", "random", "static_k")  # policies that estimator difference can take
LEAKED = "task.bank was fitted on this model's own answers too; fit it on others"
OTHER_DATA = "task.bank was fitted on another version of these data: its items may have shown other pixels"
EXHAUSTED = "every image was asked before the interval was as narrow as task.width"
log = logging.getLogger(__name__)


class Items(NamedTuple):
    """The images that a test may evaluate.

    rows:  their positions in `data.items`, in its order.    places: those among all test images of the classes.
    pool:  their levels, sessions (class and attribute) and groups (attributes).
    """

    rows: Int[np.ndarray, " items"]
    places: Int[np.ndarray, " items"]
    pool: Pool


class Chosen(NamedTuple):
    """A policy with its options: how to start it, its options that are not the default, and its name in tables."""

    start: StartPolicy
    options: dict[str, Any]
    label: str


@dataclass(frozen=True, eq=False)
class Examination:
    """The work of an adaptive test.

    forward: the model, the data and the shift.    classes: label indices whose images may be evaluated.
    predictions: the runs that would predict every image, one a shift.
    """

    forward: Forward
    classes: Sequence[int]
    policy: Chosen
    predictions: Sequence[Run]


@dataclass(frozen=True)
class AdaptiveTest:
    """`task=adaptive_test`: accuracy and score of the test images (see fca.stats.adaptive) from a part of them.

    policy, estimator: names of fca.stats.adaptive.    budget: share of the images to evaluate.
    width:     go on, a budget more at a time, until the 95 % interval of the mean accuracy over attributes is at most
               this wide; stopping by what was observed makes intervals a little too narrow.
    bank:      id of a saved table `irt_items`, fitted on other models.
    mapping:   of gre_two_stage: Q, L or ten triples.    objective: of optimal_allocation and neyman_irt.
    protocol:  open, any class that the model knows may be predicted; masked, only those of the evaluated images.
    The run's seed draws which images are evaluated.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *ESTIMATES,
        POLICY,
        ESTIMATOR,
        BUDGET,
        WIDTH,
        BANK,
        PROTOCOL,
        N_ASKED,
        N_POOL,
        SHARE,
        *ASKED,
        ROUNDS,
        WARNING,
        *FORWARD,
    )
    summary: ClassVar[tuple[Column | str, ...]] = (ACCURACY, SCORE, "asked {n_asked} of {n_pool} images")

    policy: str
    estimator: str
    budget: float
    width: float | None
    bank: str | None
    mapping: Any
    objective: str
    protocol: str

    def plan(self, setup: Setup) -> list[Run]:
        """A run a shift. Raises FcaError for what cannot be tested: options, pool, budget, bank."""
        policy = self._checked()
        predictions = whole_split(setup, "test")
        data, own = predictions[0].work.data, predictions[0].work.classes  # as released, a model has its own classes
        classes = [c for c in setup.subset.classes if own is None or c in own]
        items = items_of(data, "test", classes)
        for shift in setup.shifts if self.bank else setup.shifts[:1]:
            policy.start(items.pool, self.budget, self._bank(setup, data, items, shift))  # refuses what cannot be
        others = {
            WIDTH: self.width,
            BANK: self.bank,
            PROTOCOL: self.protocol if self.protocol != "open" else None,
            "classes": [data.classes[c] for c in classes] if len(classes) < len(data.classes) else None,
        }
        meaning = {POLICY: self.policy, **policy.options, ESTIMATOR: self.estimator, BUDGET: self.budget}
        meaning |= {"seed": setup.seed, **{key: value for key, value in others.items() if value is not None}}
        about = {**subset_columns(setup.subset), "seed": setup.seed, POLICY: policy.label, ESTIMATOR: self.estimator}
        about |= {BUDGET: self.budget, WIDTH: self.width, BANK: self.bank, PROTOCOL: self.protocol}
        return [
            Run(
                "adaptive_test",
                {**whole.identity, **meaning},
                {**whole.about, **about},
                work=Examination(whole.work, classes, policy, predictions),
            )
            for whole in predictions
        ]

    def run(self, runs: Sequence[Run], setup: Setup) -> Iterator[Finished]:
        """Build the model once; test it under every shift."""
        first: Forward = runs[0].work.forward
        setup.store.keep_items(first.data)
        classifier = first.model.build()
        for run in runs:
            yield self._tested(run, setup, classifier)

    def _tested(self, run: Run, setup: Setup, classifier: Classifier) -> Finished:
        work: Examination = run.work
        data, shift = work.forward.data, work.forward.shift
        classes = _known(classifier, work, setup)
        items = items_of(data, "test", classes)
        bank = self._bank(setup, data, items, shift)
        evaluator = self._evaluator(run, setup, classifier, classes, items)
        policy = work.policy.start(items.pool, self.budget, bank)
        current = partial(estimate, self.estimator, items.pool, policy.record, bank)
        outcome = examine(policy, evaluator, current, self.width, setup.seed)
        seconds, accelerator = evaluator.kept.seconds, setup.machine.accelerator
        columns = {
            "ncl": len(classes),
            "classes": classes,
            **estimates(outcome.estimate),
            **counts(items.pool, outcome),
            **forward_columns(classifier, len(outcome.order), seconds, accelerator),
            WARNING: self._warning(setup.store, work.predictions, exhausted=bool(policy.record.asked.all())),
        }
        arrays = {**arrays_of(items, outcome, evaluator.kept), "logit_classes": np.array(classifier.classes)}
        return Finished(run, columns, arrays)

    def _evaluator(self, run: Run, setup: Setup, classifier: Classifier, classes: list[int], items: Items) -> Evaluator:
        data, shift = run.work.forward.data, run.work.forward.shift
        clean = shift.label() == CLEAN.label()
        column = logit_columns(classifier.classes, data.classes)
        every_logit = np.arange(len(classifier.classes))
        journal = Journal(setup.store.folder(run.run_id) / NAME)
        return Evaluator(
            classifier=classifier,
            accelerator=setup.machine.accelerator,
            pixels=open_decoded(data if clean else shifted(data, shift, "test"), classifier, setup),
            places=items.rows if clean else np.searchsorted(data.rows("test"), items.rows),
            true=column[data.labels[items.rows]],
            allowed=every_logit if self.protocol == "open" else np.sort(column[classes]),
            kept=Kept(journal, data.items["image_id"].iloc[items.rows].tolist()),
        )

    def _checked(self) -> Chosen:
        """The policy. Raises FcaError for an option that is out of range or does not go with another one."""
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
        chosen = choose_policy(self.policy, self.mapping, self.objective)
        if self.estimator == "difference" and self.policy not in KNOWN_CHANCES:
            allowed = f"{', '.join(KNOWN_CHANCES)}: each item's chance to be asked is known"
            raise FcaError("task.policy", self.policy, allowed, "take one of these, or task.estimator=mixed_logit")
        return chosen

    def _bank(self, setup: Setup, data: ImageData, items: Items, shift: Shift) -> ItemBank | None:
        return None if self.bank is None else bank_of(setup.store, self.bank, data, items.rows, shift)

    def _warning(self, store: Store, predictions: Sequence[Run], *, exhausted: bool) -> str | None:
        """Known faults of the estimates; see also the width of their intervals."""
        known = [None if self.policy in NOT_ADAPTIVE else warning(self.estimator)]
        if self.width is not None and exhausted:
            known.append(EXHAUSTED)
        if self.bank:
            known += faults_of_bank(store, self.bank, predictions)
        return "; ".join(filter(None, known)) or None


def _known(classifier: Classifier, work: Examination, setup: Setup) -> list[int]:
    """The classes of the test that the classifier knows; a subset that was configured must be known whole."""
    keys = work.forward.data.classes
    known = [c for c in work.classes if keys[c] in classifier.classes]
    if not known or (len(known) < len(work.classes) and setup.subset.ncl < len(keys)):
        unknown = ", ".join([keys[c] for c in work.classes if c not in known][:5])
        allowed = "classes that the model knows"
        raise FcaError("classes to ask about", unknown, allowed, "choose another subset or model")
    return known


# What is tested: the pool of images, the policy's options, the bank's items.


def items_of(data: ImageData, split: str, classes: Sequence[int]) -> Items:
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
    return Items(listed[places], places, pool)


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


def bank_of(store: Store, table_id: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift) -> ItemBank:
    """The bank's items of these images under the shift, in their order.

    Raises FcaError for an id that is no bank, for images that it lacks, and where two of its items have one name.
    """
    kind = shift.label().split("/")[1] if "/" in shift.label() else shift.label()
    frame = read_bank(store, table_id)
    for column, wanted in (("dataset", data.name), ("corruption", kind)):
        same = frame[frame[column] == wanted]
        frame = same if len(same) else frame  # files of responses have names of their own
    if frame["item"].duplicated().any():
        found = ", ".join(sorted(set(frame["dataset"])))
        step = f"save one of this set alone: fca analyse analysis=irt analysis.query=\"dataset == '{data.name}'\""
        raise FcaError("data sets of task.bank", found, f"{data.name}, or another one", step)
    images = data.items["image_id"].iloc[rows].astype(str)
    names = images if shift.label() == CLEAN.label() else images + f"@{shift.label()}"
    at = pd.Index(frame["item"]).get_indexer(pd.Index(names))
    if (at < 0).any():
        missing = names[at < 0]
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        what = f"items that task.bank {table_id} lacks"
        step = "fit one on other models' answers to all of these images: fca analyse analysis=irt"
        raise FcaError(what, f"{shown} ({len(missing)} of {len(names)})", "none", step)
    parameters: Any = [frame[name].to_numpy(dtype=np.float64)[at] for name in ItemBank._fields[1:]]
    return ItemBank(str(frame["irt_model"].iloc[0]), *parameters)


def faults_of_bank(store: Store, table_id: str, predictions: Sequence[Run]) -> list[str]:
    """What is wrong with a bank for a test, by the stored runs whose responses it was fitted on.

    predictions: the runs that would predict every image.
    """
    about = json.loads((store.outputs / "tables" / table_id / "table.json").read_text())
    rows = store.rows()
    fitted = rows[rows["run_id"].isin(about["runs"]) & (rows["dataset"] == predictions[0].about["dataset"])]
    leaked = set(fitted["run_id"]) & {run.run_id for run in predictions}
    other = set(fitted["fingerprint"]) - {run.about["fingerprint"] for run in predictions}
    return [LEAKED] * bool(leaked) + [OTHER_DATA] * bool(other)


# The test itself: the policy selects, the network predicts, the journal keeps, the estimate ends it.


@dataclass
class Kept:
    """Predictions of a pool's images so far, by position; a line of the journal is what was forwarded together.

    A line has `round`, `image_id`, `pred` (the logit predicted), `p_true` (the probability of the true class) and
    `seconds`.    image_id: of the pool.
    """

    journal: Journal
    image_id: Sequence[str]

    def __post_init__(self) -> None:
        """Read the predictions that an earlier process made."""
        self.pred = np.full(len(self.image_id), -1, dtype=np.int32)
        self.p_true = np.full(len(self.image_id), np.nan, dtype=np.float32)
        self.seconds = 0.0
        position = {image_id: place for place, image_id in enumerate(self.image_id)}
        for line in self.journal.lines():
            self._take([position[image_id] for image_id in line["image_id"]], line)

    def add(
        self,
        number: int,
        positions: Integer[np.ndarray, " images"],
        pred: Integer[np.ndarray, " images"],
        p_true: Float[np.ndarray, " images"],
        seconds: float,
    ) -> None:
        """Predictions of round `number` for the images at these positions, on the disk before this returns."""
        line = {
            "round": number,
            "image_id": [self.image_id[place] for place in positions.tolist()],
            "pred": pred.tolist(),
            "p_true": p_true.tolist(),
            "seconds": seconds,
        }
        self.journal.add(line)
        self._take(positions.tolist(), line)

    def _take(self, positions: list[int], line: dict[str, Any]) -> None:
        self.pred[positions], self.p_true[positions] = line["pred"], line["p_true"]
        self.seconds += line["seconds"]


@dataclass(frozen=True)
class Evaluator:
    """Runs a classifier on images of a pool, by position.

    places:  where each of them is in `pixels`.    true: the logit of its class.
    allowed: the logits that may be predicted, ascending.
    """

    classifier: Classifier
    accelerator: str
    pixels: Pixels
    places: Int[np.ndarray, " items"]
    true: Int[np.ndarray, " items"]
    allowed: Int[np.ndarray, " logits"]
    kept: Kept

    def correct(self, number: int, positions: Integer[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
        """Which images of round `number` it gets right; those that the journal has are not forwarded again.

        Forwarded and kept in parts: an image that cannot be read loses the predictions of its own part alone.
        """
        missing = positions[self.kept.pred[positions] < 0]
        for start in range(0, len(missing), TOGETHER):
            part = missing[start : start + TOGETHER]
            begun = time.perf_counter()
            pred, p_true = self.predict(part)
            self.kept.add(number, part, pred, p_true, time.perf_counter() - begun)
        return np.asarray(self.kept.pred[positions] == self.true[positions])

    def predict(
        self, positions: Integer[np.ndarray, " images"]
    ) -> tuple[Int[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        """The logit predicted for each image, and the probability of its class."""
        from fca.training.infer import logits_of

        logits = logits_of(self.classifier, self.pixels, self.places[positions], accelerator=self.accelerator)
        keys = [self.classifier.classes[logit] for logit in self.allowed]
        true = np.searchsorted(self.allowed, self.true[positions])
        found = prediction_arrays(logits[:, self.allowed], true, keys)
        return self.allowed[found["pred"]], found["p_true"]


class Outcome(NamedTuple):
    """A test at its end.

    order: positions in the pool as they were evaluated.    round: of each of these.    estimate: of every group.
    """

    order: Int[np.ndarray, " evaluated"]
    round: Int[np.ndarray, " evaluated"]
    estimate: Estimate


def examine(
    policy: Policy, evaluator: Evaluator, current: Callable[[], Estimate], width: float | None, seed: int
) -> Outcome:
    """Evaluate in rounds until the policy ends and, with a width, the 95 % interval of the mean accuracy is so narrow.

    The draws are those of `fca.stats.adaptive.replay` for its first model and repeat, with the same seed.
    """
    rng = np.random.default_rng([seed, 0, 0])
    rounds: list[Int[np.ndarray, " evaluated"]] = []
    asked = policy.record.asked
    while True:
        while len(positions := policy.ask(rng)):
            rounds.append(positions)
            policy.tell(positions, evaluator.correct(len(rounds), positions))
            log.info("round %d: %d of %d images asked", len(rounds), asked.sum(), len(asked))
        found = current()
        if width is None or asked.all() or _width(found) <= width:
            number = np.repeat(np.arange(1, len(rounds) + 1), [len(positions) for positions in rounds])
            return Outcome(np.concatenate(rounds), number, found)
        policy.again()


def _width(found: Estimate) -> float:
    """Of the interval of the mean accuracy; NaN where that is undefined, which is never narrow enough."""
    mean = found.overall
    return float(mean.high[0, 0] - mean.low[0, 0])


def open_decoded(data: ImageData, classifier: Classifier, setup: Setup) -> Pixels:
    """Pixels from the cache, if another run decoded them all; else the evaluated images are read, and no others."""
    decoded = (setup.cache / f"{data.fingerprint}-{classifier.geometry.key}.npy").exists()
    room = np.inf if decoded else 0.0
    return open_pixels(data, classifier.geometry, setup.cache, setup.machine.workers, float(room))


# What the row and its arrays are made of.


def estimates(found: Estimate) -> dict[str, float]:
    """The mean over groups of both targets, with standard error and 95 % interval; what is undefined stays out."""
    mean, columns = found.overall, {}
    for target, name in enumerate(TARGETS):
        numbers = (mean.value, mean.low, mean.high, mean.se)
        for end, number in zip(("", "_low", "_high", "_se"), numbers, strict=True):
            if np.isfinite(number[0, target]):
                columns[name + end] = float(number[0, target])
    return columns


def counts(pool: Pool, outcome: Outcome) -> dict[str, Any]:
    """How many images were evaluated, of which level, in how many rounds."""
    n, asked = len(outcome.order), np.bincount(pool.level[outcome.order], minlength=len(LEVELS)).tolist()
    by_level = dict(zip(ASKED, asked, strict=True))
    return {N_ASKED: n, N_POOL: pool.items, SHARE: n / pool.items, **by_level, ROUNDS: int(outcome.round[-1])}


def arrays_of(items: Items, outcome: Outcome, kept: Kept) -> Arrays:
    """The predictions in the order of evaluation, and the estimates by group.

    asked: positions among the test images of the row's classes, as in the arrays of a predict run.
    """
    pool, found = items.pool, outcome.estimate
    marked = np.zeros(pool.items, dtype=bool)
    marked[outcome.order] = True
    return {
        "asked": items.places[outcome.order].astype(np.int32),
        "round": outcome.round.astype(np.int32),
        "pred": kept.pred[outcome.order],
        "p_true": kept.p_true[outcome.order],
        "groups": pool.group_names.astype(str),
        "group_asked": pool.by_group(pool.by_stratum(marked)).astype(np.int32),
        "group_estimate": np.stack([found.value, found.se, found.low, found.high], axis=-1),
    }
