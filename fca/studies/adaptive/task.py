"""`task=adaptive_test`: a model's accuracy from a part of the images; it is run only on those that a policy selects.

Round by round (see `fca.stats.ask`), a policy of fca.studies.adaptive.stats selects images, the network predicts them,
and the run's journal keeps the predictions, so that a killed test goes on and predicts nothing twice. An estimator
decides when it may stop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Integer

from fca.allowed import Allowed, fits
from fca.data.pixels import geometry_under, open_pixels, shifted
from fca.models import built
from fca.stats.ask import ask_until_done
from fca.stats.protocols import logit_columns
from fca.store import State, Store
from fca.store.journal import Journal, Line
from fca.studies.adaptive import adaptive_tests as tests
from fca.studies.adaptive import stats as adaptive
from fca.studies.adaptive.stats import MAPPINGS, TARGETS, Estimate, Policy, Pool, Record, Rounds, StartPolicy
from fca.studies.adaptive.stats.estimators import KNOWN_CHANCES
from fca.studies.adaptive.stats.policies import FLAT, ability_of
from fca.studies.irt.bank import bank_id, origin_of, read_bank
from fca.studies.irt.fits import ABILITY
from fca.studies.irt.not_estimable import bank_note
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive import levels as progressive_levels
from fca.studies.progressive.levels import PROTOCOLS, has_levels, pool_of
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables.table import PROTOCOL
from fca.tasks import Setup
from fca.tasks.checks import check_classes, check_subset
from fca.tasks.predict import (
    CLEAN,
    Forward,
    check_forward,
    forward_columns,
    prediction_arrays,
    subset_columns,
    whole_split,
)
from fca.types import Classifier, Column, FcaError, Finished, ImageData, Pixels, Run, Shift, with_interval

ACCURACY = progressive_levels.ACCURACY.with_format(
    ".1%", "estimated accuracy; with levels the mean over attributes and levels"
)
SCORE = progressive_levels.SCORE.with_format(".1%", "estimated mean over attributes of (easy + 2 medium + 4 hard) / 7")
NAME = "journal.jsonl"
TOGETHER = 2048  # images a line of the journal, at most
OF_POLICY = {
    "mapping": ("gre_two_stage",),
    "objective": ("optimal_allocation", "neyman_irt", "defensive_irt"),
    "batch": ("fisher_cat",),
    "randomesque": ("fisher_cat",),
}
LEVELS_NEEDED = ("static_k", "gre_two_stage", "optimal_allocation")
ESTIMATOR_OF = {
    "gre_two_stage": "mixed_logit",
    "neyman_irt": "difference",
    "defensive_irt": "regression",
    "fisher_cat": "p_irt",
}
BLIND = (
    "static_k",
    "random",
    "proportional",
    "optimal_allocation",
)  # to what a session answered, so that plain shares are unbiased
OF_BANK = ("defensive_irt", "neyman_irt", "fisher_cat", "difference", "regression", "p_irt")
EQUAL_CHANCES = ("proportional", "random")  # those that estimator hypergeometric can take
LEAKED = "task.bank was fitted on this model's own answers too; fit it on others"
OTHER_DATA = "task.bank was fitted on another version of these data: its items may have shown other pixels"
OTHER_SIZE = "task.bank was fitted on images that were corrupted at another size; see shift.at"
EXHAUSTED = "every image was asked before the interval was as narrow as task.width"
EXHAUSTED_SE = "every image was asked before the ability was as certain as task.ability_se"
# estimators that weigh the two samples of defensive_irt by the variance foreseen for each
BY_PRECISION = ("regression", "difference")
# estimators that answered otherwise in an earlier version; part of a test's identity
REVISED = {"stratified": "intervals by level", "mixed_logit": "kinds of effects", "difference": "lopsided intervals"}
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
    """A policy with its options: how to start it, its name, options that are not the default, its name in tables."""

    start: StartPolicy
    policy: str
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
    estimator: str
    predictions: Sequence[Run[Forward]]

    @property
    def data(self) -> ImageData:
        """The images of the test."""
        return self.forward.data


@dataclass(frozen=True)
class AdaptiveTest:
    """`task=adaptive_test`: accuracy and score of the test images (see fca.studies.adaptive.stats) from a part of them.

    Images without attribute and level are one group; their one target is the accuracy.
    policy, estimator: names of fca.studies.adaptive.stats; null: what is unbiased whatever the responses. Of images
               with levels optimal_allocation and stratified, without levels proportional and hypergeometric; with a
               bank defensive_irt and regression, which from 100 images on erred at most 1 % more than random images
               with the same bank and, where the bank did not fit, at most 2 % more than random images without one, in
               every design of experiments/progressive/banks.py. With 10 or 20 images leave the bank out: a network much
               better than those behind it is put too low.
    budget:    share of the images to evaluate.
    width:     go on, a budget more at a time, until the 95 % interval of the mean accuracy over attributes is at most
               this wide (by the default such intervals hold the truth: experiments/progressive/README.md).
    bank:      id of a saved table `irt_items`, or a file that `fca bank` wrote; fitted on other models.
    ability_se: go on in the same way until the ability on the bank's scale has this standard error.
    batch, randomesque: of fisher_cat, see there.
    mapping:   of gre_two_stage: Q, L or ten triples.    objective: of optimal_allocation, neyman_irt and
               defensive_irt.
    protocol:  open, any class that the model knows may be predicted; masked, only those of the evaluated images.
    The run's seed draws which images are evaluated.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *with_interval(ACCURACY),
        Column("accuracy_se", float, ".4f", "standard error of accuracy"),
        *with_interval(SCORE),
        Column("score_se", float, ".4f", "standard error of score"),
        *(tests.POLICY, tests.ESTIMATOR, tests.BUDGET, tests.WIDTH),
        Column("bank", str, "", "id of the item bank that was used"),
        *(ABILITY, Column("ability_se", float, ".3f", "standard error of ability, the items taken as known")),
        Column("ability_se_at_most", float, ".3~", "standard error of ability at which the test stops"),
        PROTOCOL.with_format("", "whether any class of the model (open) or of the images (masked) may be predicted"),
        *(tests.N_EVALUATED, tests.N_POOL, tests.SHARE, *tests.EVALUATED, tests.ROUNDS, tests.WARNING),
    )
    summary: ClassVar[tuple[Column | str, ...]] = (
        *(ACCURACY, SCORE, "ability {ability:.2f} (se {ability_se:.2f})"),
        "{policy} + {estimator} asked {n_asked} of {n_pool} images",
    )

    policy: Annotated[str | None, Allowed(choices=tuple(adaptive.POLICIES))]
    estimator: Annotated[str | None, Allowed(choices=tuple(adaptive.ESTIMATORS))]
    budget: Annotated[float, Allowed(above=0, most=1)]
    width: Annotated[float | None, Allowed(above=0, below=1)]
    bank: str | None
    mapping: Any
    objective: Annotated[str, Allowed(choices=TARGETS)]
    protocol: Annotated[str, Allowed(choices=PROTOCOLS)]
    ability_se: Annotated[float | None, Allowed(above=0)] = None
    batch: Annotated[int | None, Allowed(1)] = None
    randomesque: Annotated[int, Allowed(1)] = 1

    def plan(self, setup: Setup) -> list[Run[Examination]]:
        """A run a shift. Raises FcaError for what cannot be tested: options, pool, budget, bank."""
        predictions = whole_split(setup, "test")
        data, own = predictions[0].work.data, predictions[0].work.classes  # as released, a model has its own classes
        check_classes(predictions[0].work.model, data, "test")
        if setup.subset.ncl < len(data.classes):
            check_subset(predictions[0].work.model, data, setup.subset.classes)
        classes = [c for c in setup.subset.classes if own is None or c in own]
        items = items_of(data, "test", classes)
        policy, estimator = self._checked(items.pool)

        priors = dict[str, None]()
        for shift in setup.shifts if self.bank else setup.shifts[:1]:
            policy.start(items.pool, self.budget, self._bank(setup, data, items, shift))  # refuses what cannot be
            priors |= dict.fromkeys(self._priors(setup.store, data, items, shift))
        for prior in priors:
            log.warning(prior)

        check_forward(predictions[0].work)
        protocol = None if self.protocol == "open" else self.protocol
        keys = [data.classes[c] for c in classes] if len(classes) < len(data.classes) else None
        bank = None if self.bank is None else bank_id(self.bank)
        options = {"width": self.width, "bank": bank, "protocol": protocol, "classes": keys}
        options["ability_se"] = self.ability_se
        meaning = {"policy": policy.policy, **policy.options, "estimator": estimator, "budget": self.budget}
        if policy.policy == "optimal_allocation":
            # before, those of the group itself decided what it was asked, and the first round had a fixed size
            meaning["shares"] = "of other groups, at most half first"
        if policy.policy == "defensive_irt" and estimator in BY_PRECISION:
            # before, the variance foreseen ignored how much of the pool is drawn
            meaning["foreseen"] = "of a finite population"
        if estimator in REVISED:
            meaning["revised"] = REVISED[estimator]
        meaning |= {"seed": setup.seed, **{key: value for key, value in options.items() if value is not None}}
        about = {**subset_columns(setup.subset), "budget": self.budget, "width": self.width, "bank": bank}
        about |= {"protocol": self.protocol, "ability_se_at_most": self.ability_se}
        about |= {"policy": policy.label, "estimator": estimator, "seed": setup.seed}
        runs = []
        for whole in predictions:
            work = Examination(whole.work, classes, policy, estimator, predictions)
            runs.append(Run("adaptive_test", {**whole.identity, **meaning}, {**whole.about, **about}, work=work))
        return runs

    def run(self, runs: Sequence[Run[Examination]], setup: Setup) -> Iterator[Finished]:
        """Build the model once; test it under every shift."""
        first: Forward = runs[0].work.forward
        classifier = built(first.model)
        setup.store.keep_items(first.data)
        for run in runs:
            yield self._tested(run, setup, classifier)

    def _tested(self, run: Run[Examination], setup: Setup, classifier: Classifier) -> Finished:
        work: Examination = run.work
        data, shift = work.forward.data, work.forward.shift
        classes = _known(classifier, work, setup)
        items = items_of(data, "test", classes)
        bank = self._bank(setup, data, items, shift)
        evaluator = self._evaluator(run, setup, classifier, classes, items)
        policy = work.policy.start(items.pool, self.budget, bank)
        goal = Goal(self.width, self.ability_se, work.estimator, items.pool, policy.record, bank)
        order, rounds = examine(policy, evaluator, goal, setup.seed)

        found = goal.estimate
        ability = (
            {} if bank is None else dict(zip(("ability", "ability_se"), ability_of(policy.record, bank), strict=True))
        )
        columns = {
            "ncl": len(classes),
            "classes": classes,
            **estimates(found),
            **ability,
            **counts(items.pool, order),
            "rounds": int(rounds[-1]),
            **forward_columns(classifier, len(order), evaluator.seconds, setup.machine.accelerator),
            "warning": self._warning(setup.store, work, items, policy.record, found),
        }
        arrays = {
            "asked": items.places[order].astype(np.int32),  # among the test images, as in the arrays of a predict run
            "round": rounds.astype(np.int32),
            "pred": evaluator.pred[order],
            "p_true": evaluator.p_true[order],
            "logit_classes": np.array(classifier.classes),
            "groups": items.pool.group_names.astype(str),
            "group_asked": items.pool.by_group(items.pool.by_stratum(policy.record.asked)).astype(np.int32),
            "group_estimate": np.stack([found.value, found.se, found.low, found.high], axis=-1),
        }
        return Finished(run, columns, arrays)

    def _evaluator(
        self, run: Run[Examination], setup: Setup, classifier: Classifier, classes: list[int], items: Items
    ) -> Evaluator:
        data, shift, machine = run.work.forward.data, run.work.forward.shift, setup.machine
        clean = shift.label() == CLEAN.label()
        shown = data if clean else shifted(data, shift, "test")
        places = items.rows if clean else np.searchsorted(data.rows("test"), items.rows)
        # a limit of 0: what another run decoded is used; else the evaluated images are read, and no others
        pixels = open_pixels(
            shown, geometry_under(shift, classifier.geometry), setup.cache, machine.workers, 0.0, places
        )
        column = logit_columns(classifier.classes, data.classes)
        everything = np.arange(len(classifier.classes))
        return Evaluator(
            classifier=classifier,
            accelerator=machine.accelerator,
            pixels=pixels,
            places=places,
            image_id=data.items["image_id"].iloc[items.rows].tolist(),
            true=column[data.labels[items.rows]],
            allowed=everything if self.protocol == "open" else np.sort(column[classes]),
            file=setup.store.folder(run.run_id) / NAME,
        )

    def _checked(self, pool: Pool) -> tuple[Chosen, str]:
        """The policy and the estimator. Raises FcaError for an option that does not go with another one."""
        policy = self.policy or self._policy_of(pool)
        if policy in LEVELS_NEEDED:
            pool.check_levels("task.policy", policy, FLAT)
        without_bank = "stratified" if pool.has_levels else "hypergeometric"
        usual = "regression" if self.bank and policy in KNOWN_CHANCES else without_bank
        estimator = self.estimator or ESTIMATOR_OF.get(policy, usual)
        of_bank = [name for name in (self.policy, self.estimator, policy, estimator) if name in OF_BANK]
        if of_bank and self.bank is None:
            step = "fit one on other models' answers, fca analyse analysis=irt, and give the id of its table irt_items"
            raise FcaError("task.bank", None, f"an item bank: {of_bank[0]} needs one", step)
        if self.bank is not None and not of_bank:
            step = f"leave it out, or take one of {', '.join(OF_BANK)}"
            raise FcaError("task.bank", self.bank, f"null for {policy} with {estimator}", step)
        if self.ability_se is not None and self.bank is None:
            raise FcaError("task.ability_se", self.ability_se, "null without task.bank", "give task.bank")
        chosen = choose_policy(policy, self.mapping, self.objective, self.batch, self.randomesque)
        if estimator in ("difference", "regression") and policy not in KNOWN_CHANCES:
            allowed = f"{', '.join(KNOWN_CHANCES)}: each item's chance to be asked is known"
            raise FcaError("task.policy", policy, allowed, "take one of these, or task.estimator=mixed_logit")
        if estimator == "hypergeometric" and pool.has_levels:
            raise FcaError("task.estimator", f"{estimator} of items with levels", "stratified", "leave it out")
        if estimator == "hypergeometric" and policy not in EQUAL_CHANCES:
            allowed = f"{', '.join(EQUAL_CHANCES)}: every item has the same chance"
            raise FcaError("task.policy", policy, allowed, "take one of these, or leave out task.estimator")
        if estimator in adaptive.OF_LEVELS:
            others = ", ".join(name for name in adaptive.ESTIMATORS if name not in adaptive.OF_LEVELS)
            pool.check_levels("task.estimator", estimator, others)
        return chosen, estimator

    def _policy_of(self, pool: Pool) -> str:
        """The policy that is taken where none is named."""
        if self.bank is not None or self.estimator in OF_BANK:
            return {"p_irt": "fisher_cat", "difference": "neyman_irt"}.get(self.estimator or "", "defensive_irt")
        return "optimal_allocation" if pool.has_levels else "proportional"

    def _bank(self, setup: Setup, data: ImageData, items: Items, shift: Shift) -> ItemBank | None:
        return None if self.bank is None else bank_of(setup.store, self.bank, data, items.rows, shift)

    def _priors(self, store: Store, data: ImageData, items: Items, shift: Shift) -> list[str]:
        return [] if self.bank is None else priors_of_bank(store, self.bank, data, items.rows, shift)

    def _warning(self, store: Store, work: Examination, items: Items, record: Record, found: Estimate) -> str | None:
        """Known faults of the estimates; see also the width of their intervals."""
        known = [found.warning, None if work.policy.policy in BLIND else adaptive.WARNINGS.get(work.estimator)]
        if found.warning:
            log.warning(found.warning)
        goals = ((self.width, EXHAUSTED), (self.ability_se, EXHAUSTED_SE))
        known += [problem for goal, problem in goals if record.asked.all() and goal is not None]
        if self.bank:
            known += faults_of_bank(store, self.bank, work.predictions)
        known += self._priors(store, work.forward.data, items, work.forward.shift)
        return "; ".join(filter(None, known)) or None


def _known(classifier: Classifier, work: Examination, setup: Setup) -> list[int]:
    """The classes of the test that the classifier knows; a subset that was configured must be known whole."""
    keys = work.forward.data.classes
    known = [c for c in work.classes if keys[c] in classifier.classes]
    if not known or (len(known) < len(work.classes) and setup.subset.ncl < len(keys)):
        unknown = ", ".join([keys[c] for c in work.classes if c not in known][:5])
        allowed = "classes that the model knows"
        raise FcaError("classes to test", unknown, allowed, "choose another subset or model")
    return known


# What is tested: the pool of images, the policy's options, the bank's items.


def items_of(data: ImageData, split: str, classes: Sequence[int]) -> Items:
    """The images of a split and of these label indices: those with an attribute and a level, where any has them.

    Raises FcaError for a data set without such images, for a level of another name, and for a session that lacks a
    level.
    """
    listed = data.rows(split, classes)
    items = data.items.iloc[listed]
    places = np.arange(len(listed))
    if has_levels(items):
        places = np.flatnonzero(items["attribute"].notna() & items["level"].notna())
        items = items.iloc[places]
        if wrong := sorted(set(items["level"].astype(str)) - set(LEVELS)):
            raise FcaError(f"level of images of {data.name}", ", ".join(wrong[:5]), ", ".join(LEVELS), "name levels so")
    return Items(listed[places], places, pool_of(items))


def choose_policy(policy: str, mapping: Any, objective: str, batch: int | None = None, randomesque: int = 1) -> Chosen:
    """A policy by name. Raises FcaError for an unknown one, a mapping that is none, an option of another policy.

    mapping: Q or L, or ten triples, for gre_two_stage.    objective: accuracy or score, where a policy has one.

    >>> choose_policy("gre_two_stage", "L", "accuracy").label
    'gre_two_stage mapping=L'
    """
    if policy not in adaptive.POLICIES:
        raise FcaError("task.policy", policy, ", ".join(adaptive.POLICIES), "take one of these")
    if isinstance(mapping, str) and mapping not in MAPPINGS:
        raise FcaError("task.mapping", mapping, f"{', '.join(MAPPINGS)}, or ten triples", "take one of these")
    table = adaptive.check_mapping(MAPPINGS[mapping] if isinstance(mapping, str) else mapping).tolist()
    named = next((name for name, known in MAPPINGS.items() if table == [list(line) for line in known]), "own")
    given: dict[str, Any] = {} if named == "Q" else {"mapping": table}
    others = {"objective": (objective, "accuracy"), "batch": (batch, None), "randomesque": (randomesque, 1)}
    given |= {name: value for name, (value, default) in others.items() if value != default}
    for option, value in given.items():
        if policy not in OF_POLICY[option]:
            step = f"leave it out, or set task.policy={OF_POLICY[option][0]}"
            raise FcaError(f"task.{option}", named if option == "mapping" else value, f"none for {policy}", step)
    words = [policy, *(f"{key}={named if key == 'mapping' else value}" for key, value in given.items())]
    start: Any = adaptive.POLICIES[policy]
    return Chosen(partial(start, **given), policy, given, " ".join(words))


def bank_of(store: Store, bank: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift) -> ItemBank:
    """The bank's items of these images under the shift, in their order.

    bank: an id or a file. Raises FcaError for one that is no bank, for images that it lacks, and where two of its items
    have one name.
    """
    frame = _items_of_bank(store, bank, data, rows, shift)
    parameters: Any = [frame[name].to_numpy(dtype=np.float64) for name in ItemBank._fields[1:]]
    return ItemBank(str(frame["irt_model"].iloc[0]), *parameters)


def priors_of_bank(
    store: Store, bank: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift
) -> list[str]:
    """A sentence for each fit behind the bank's items of these images that could not learn a scale; see `bank_of`."""
    frame = _items_of_bank(store, bank, data, rows, shift)
    taken = origin_of(store, bank).not_estimable_of(frame)
    return [f"task.bank: {bank_note(scale, scales)}" for scale, scales in taken.items()]


def _items_of_bank(
    store: Store, bank: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift
) -> pd.DataFrame:
    """The lines of the bank for these images under the shift, in their order; see `bank_of`."""
    kind = shift.label().split("/")[1] if "/" in shift.label() else shift.label()
    frame = read_bank(store, bank)
    for column, wanted in (("dataset", data.name), ("corruption", kind)):
        same = frame[frame[column] == wanted]
        frame = same if len(same) else frame  # files of responses have names of their own
    if frame["item"].duplicated().any():
        found = ", ".join(sorted(set(frame["dataset"])))
        step = f"save one of this set alone: fca analyse analysis=irt fingerprint={data.fingerprint}"
        raise FcaError("data sets of task.bank", found, f"{data.name}, or another one", step)
    images = data.items["image_id"].iloc[rows].astype(str)
    names = images if shift.label() == CLEAN.label() else images + f"@{shift.label()}"
    at = pd.Index(frame["item"]).get_indexer(pd.Index(names))
    if (at < 0).any():
        missing = names[at < 0]
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        what = f"items that task.bank {bank} lacks"
        step = "fit one on other models' answers to all of these images: fca analyse analysis=irt"
        raise FcaError(what, f"{shown} ({len(missing)} of {len(names)})", "none", step)
    if len(scales := frame["dataset"].iloc[at].unique()) > 1:
        what = f"scales of task.bank {bank} that these images are on"
        step = "fit one bank on models that responded to all of these images: fca analyse analysis=irt"
        raise FcaError(what, ", ".join(map(str, scales)), "one: difficulties of two scales are not comparable", step)
    return frame.iloc[at]


def faults_of_bank(store: Store, bank: str, predictions: Sequence[Run]) -> list[str]:
    """What is wrong with a bank for a test, by the stored runs whose responses it was fitted on.

    predictions: the runs that would predict every image.
    """
    origin, about = origin_of(store, bank), predictions[0].about
    leaked = {*origin.runs} & {run.run_id for run in predictions}
    other = {*origin.fingerprints.get(about["dataset"], ())} - {run.about["fingerprint"] for run in predictions}
    tested_at = {run.about.get("shift"): run.about.get("corrupted_at") == "reference" for run in predictions}
    fitted_rows = [store.row(run_id) for run_id in origin.runs if store.state(run_id) is State.DONE]
    same_shift = [row for row in fitted_rows if row.get("shift") in tested_at]
    other_size = any((row.get("corrupted_at") == "reference") != tested_at[row.get("shift")] for row in same_shift)
    return [LEAKED] * bool(leaked) + [OTHER_DATA] * bool(other) + [OTHER_SIZE] * other_size


# The test itself: the policy selects, the network predicts, the journal keeps, the estimate ends it.


@dataclass
class Evaluator:
    """Runs a classifier on images of a pool, by position, and keeps its predictions in a journal.

    places:   where each image is in `pixels`.    image_id: of each.    true: the logit of its class.
    allowed:  the logits that may be predicted, ascending.
    file:     of the journal: a line for the images that were forwarded together, with `round`, `image_id`, `pred` (the
              logits predicted), `p_true` (the probabilities of the true classes) and `seconds`.
    """

    classifier: Classifier
    accelerator: str
    pixels: Pixels
    places: Int[np.ndarray, " items"]
    image_id: Sequence[str]
    true: Int[np.ndarray, " items"]
    allowed: Int[np.ndarray, " logits"]
    file: Path

    def __post_init__(self) -> None:
        """Read the predictions that an earlier process made; where they cannot be read, the test begins anew."""
        self.position = {image_id: place for place, image_id in enumerate(self.image_id)}
        self.pred = np.full(len(self.image_id), -1, dtype=np.int32)  # -1: not evaluated
        self.p_true = np.full(len(self.image_id), np.nan, dtype=np.float32)
        self.seconds = 0.0
        self.journal = Journal(self.file, self._is_whole)
        for line in self.journal.lines_or_anew("the test begins anew"):
            self._take(line)

    def _is_whole(self, line: Line) -> bool:
        """Whether a line has a prediction of this classifier for each of its images, all of them of the pool."""
        kinds = {"image_id": list[str], "pred": list[int], "p_true": list[float], "seconds": float}
        return (
            all(fits(line.get(name), kind) for name, kind in kinds.items())
            and len(line["image_id"]) == len(line["pred"]) == len(line["p_true"])
            and set(line["image_id"]) <= set(self.position)
            and set(line["pred"]) <= set(self.allowed.tolist())
        )

    def correct(self, number: int, positions: Integer[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
        """Which images of round `number` it gets right; those in the journal are not forwarded again.

        Forwarded and kept in parts: an image that cannot be read loses the predictions of its own part alone.
        """
        missing = positions[self.pred[positions] < 0]
        for start in range(0, len(missing), TOGETHER):
            part, begun = missing[start : start + TOGETHER], time.perf_counter()
            pred, p_true = self.predict(part)
            line = {"round": number, "image_id": [self.image_id[place] for place in part.tolist()]}
            line |= {"pred": pred.tolist(), "p_true": p_true.tolist(), "seconds": time.perf_counter() - begun}
            self.journal.add(line)
            self._take(line)
        return self.pred[positions] == self.true[positions]

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

    def _take(self, line: Line) -> None:
        positions = [self.position[image_id] for image_id in line["image_id"]]
        self.pred[positions], self.p_true[positions] = line["pred"], line["p_true"]
        self.seconds += line["seconds"]


class Goal:
    """How precise a test is to be: see `width` and `ability_se` of AdaptiveTest; None: as its first budget makes it.

    estimate: that of the responses so far, once `is_reached` was called.
    """

    estimate: Estimate

    def __init__(
        self,
        width: float | None,
        ability_se: float | None,
        estimator: str,
        pool: Pool,
        record: Record,
        bank: ItemBank | None,
    ) -> None:
        self.width, self.ability_se = width, ability_se
        self.estimator, self.pool, self.record, self.bank = estimator, pool, record, bank

    def is_reached(self) -> bool:
        """Whether all that is to be known is known so precisely."""
        self.estimate = adaptive.estimate(self.estimator, self.pool, self.record, self.bank)
        overall = self.estimate.overall
        width = overall.high[0, 0] - overall.low[0, 0]  # NaN, where undefined, is never narrow enough
        if self.width is not None and not width <= self.width:
            return False
        return self.ability_se is None or self.bank is None or ability_of(self.record, self.bank)[1] <= self.ability_se


def examine(
    policy: Policy, evaluator: Evaluator, goal: Goal, seed: int
) -> tuple[Int[np.ndarray, " evaluated"], Int[np.ndarray, " evaluated"]]:
    """Evaluate in rounds until the policy ends and the goal is reached, or every image is evaluated.

    Returns the positions in the order of evaluation, and the round of each. The draws are those of
    `fca.studies.adaptive.stats.replay` for its first model and repeat, with the same seed.
    """
    rounds = Rounds(policy, np.random.default_rng([seed, 0, 0]), goal.is_reached)

    def correct(positions: Int[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
        number = len(rounds.positions) + 1
        found = evaluator.correct(number, positions)
        asked = policy.record.asked.sum() + len(positions)
        log.info("round %d: %d of %d images asked", number, asked, len(policy.record.asked))
        return found

    ask_until_done(rounds, correct)
    images_by_round = [len(positions) for positions in rounds.positions]
    round_of = np.repeat(np.arange(1, len(images_by_round) + 1), images_by_round)
    return np.concatenate(rounds.positions), round_of


def estimates(found: Estimate) -> dict[str, float]:
    """The mean over groups of every target, with standard error and 95 % interval; what is undefined stays out."""
    mean, columns = found.overall, {}
    for target, name in enumerate(TARGETS[: found.value.shape[1]]):  # without levels accuracy alone
        numbers = (mean.value, mean.low, mean.high, mean.se)
        for end, number in zip(("", "_low", "_high", "_se"), numbers, strict=True):
            if np.isfinite(number[0, target]):
                columns[name + end] = float(number[0, target])
    return columns


def counts(pool: Pool, order: Int[np.ndarray, " evaluated"]) -> dict[str, Any]:
    """How many images were evaluated, and of which level."""
    by_level = np.bincount(pool.level[order], minlength=len(pool.levels))
    levels = {f"asked_{level}": int(count) for level, count in zip(pool.levels, by_level, strict=True)}
    levels = levels if pool.has_levels else {}
    return {"n_asked": len(order), "n_pool": pool.items, "share": len(order) / pool.items, **levels}
