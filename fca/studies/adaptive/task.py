"""`task=adaptive_test`: a model's accuracy on all images from its predictions for a part of them, chosen by a policy.

Round by round (see `fca.stats.ask`), a policy of fca.studies.adaptive.stats selects images, the network predicts them,
and the run's journal keeps the predictions, so that a killed test resumes and predicts nothing twice. An estimator
decides when the test may stop.
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

from fca.data.pixels import geometry_under, open_pixels, shifted
from fca.models import build_model
from fca.stats.ask import ask_until_done
from fca.stats.protocols import logit_columns
from fca.store import State, Store
from fca.store.journal import Journal, Line
from fca.studies.adaptive import adaptive_tests as tests
from fca.studies.adaptive import stats as adaptive
from fca.studies.adaptive.stats import MAPPINGS, TARGETS, Estimate, Policy, Pool, Record, Rounds, StartPolicy
from fca.studies.adaptive.stats.estimators import KNOWN_CHANCE_POLICIES
from fca.studies.adaptive.stats.policies import WITHOUT_LEVELS, ability_of
from fca.studies.irt.bank import bank_id, origin_of, read_bank
from fca.studies.irt.fits import ABILITY
from fca.studies.irt.not_estimable import bank_note
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive import levels as progressive_levels
from fca.studies.progressive.levels import PROTOCOLS, has_levels, pool_of
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables.table import PROTOCOL
from fca.tasks import RunContext
from fca.tasks.checks import check_classes, check_subset
from fca.tasks.predict import (
    CLEAN,
    ForwardWork,
    check_forward,
    forward_columns,
    prediction_arrays,
    runs_of_split,
    subset_columns,
)
from fca.types import Classifier, Column, FcaError, Finished, ImageData, Pixels, Run, Shift, interval_columns
from fca.validation import Allowed, has_type

ACCURACY = progressive_levels.ACCURACY.with_format(
    ".1%", "estimated accuracy; with levels the mean over attributes and levels"
)
SCORE = progressive_levels.SCORE.with_format(".1%", "estimated mean over attributes of (easy + 2 medium + 4 hard) / 7")
JOURNAL_NAME = "journal.jsonl"
IMAGES_PER_LINE = 2048  # of the journal, at most

POLICIES_OF_OPTION = {
    "mapping": ("gre_two_stage",),
    "objective": ("optimal_allocation", "neyman_irt", "defensive_irt"),
    "batch": ("fisher_cat",),
    "randomesque": ("fisher_cat",),
}
DEFAULT_OPTIONS = {
    "mapping": [list(line) for line in MAPPINGS["Q"]],
    "objective": "accuracy",
    "batch": None,
    "randomesque": 1,
}
POLICIES_OF_LEVELS = ("static_k", "gre_two_stage", "optimal_allocation")
ESTIMATOR_OF_POLICY = {
    "gre_two_stage": "mixed_logit",
    "neyman_irt": "difference",
    "defensive_irt": "regression",
    "fisher_cat": "p_irt",
}
# Policies under which a session's own responses do not decide its images, so that plain shares are unbiased.
BLIND_POLICIES = ("static_k", "random", "proportional", "optimal_allocation")
NEED_BANK = ("defensive_irt", "neyman_irt", "fisher_cat", "difference", "regression", "p_irt")
EQUAL_CHANCE_POLICIES = ("proportional", "random")  # those that estimator hypergeometric can take

LEAKED = "task.bank was fitted on this model's own answers too; fit it on others"
OTHER_DATA = "task.bank was fitted on another version of these data: its items may have shown other pixels"
OTHER_SIZE = "task.bank was fitted on images that were corrupted at another size; see shift.at"
EXHAUSTED = "every image was evaluated before the interval was as narrow as task.width"
EXHAUSTED_SE = "every image was evaluated before the ability was as certain as task.ability_se"

# Estimators that weight the two samples of defensive_irt by the variance foreseen for each.
PRECISION_WEIGHTED = ("regression", "difference")
# Estimators whose results differ from those of an earlier version; part of a test's identity.
REVISED = {"stratified": "intervals by level", "mixed_logit": "kinds of effects", "difference": "lopsided intervals"}
log = logging.getLogger(__name__)


class Items(NamedTuple):
    """The images that a test may evaluate, in the order of `data.items`.

    rows:           position of each image in `data.items`.
    test_positions: position of each image among all test images of the tested classes, with or without a level.
    pool:           their levels, sessions (class and attribute) and groups (attributes), in the same order.
    """

    rows: Int[np.ndarray, " items"]
    test_positions: Int[np.ndarray, " items"]
    pool: Pool


class ChosenPolicy(NamedTuple):
    """A policy with its options.

    start:   starts the policy with these options, given a pool, a budget and a bank.
    name:    its name in `POLICIES`.
    options: the options that differ from their default, by name.
    label:   its name in tables: the name, and those options.
    """

    start: StartPolicy
    name: str
    options: dict[str, Any]
    label: str


@dataclass(frozen=True, eq=False)
class Examination:
    """The work of an adaptive test.

    forward:     the model, the data and the shift.
    classes:     label indices whose images may be evaluated.
    predictions: the runs that would predict every image, one for each shift.
    """

    forward: ForwardWork
    classes: Sequence[int]
    policy: ChosenPolicy
    estimator: str
    predictions: Sequence[Run[ForwardWork]]

    @property
    def data(self) -> ImageData:
        """The images of the test."""
        return self.forward.data


@dataclass(frozen=True)
class AdaptiveTest:
    """`task=adaptive_test`: accuracy and score of the test images, estimated from a part of them.

    Images without attribute and level are one group; their one target is the accuracy. The run's seed draws which
    images are evaluated. See fca.studies.adaptive.stats.

    policy, estimator: names of fca.studies.adaptive.stats; null takes what is unbiased whatever the responses. Images
               with levels take optimal_allocation and stratified, images without levels proportional and
               hypergeometric. With a bank the default is defensive_irt and regression. From 100 images on, its error
               was at most 1 % above that of random images with the same bank and, where the bank did not fit, at most
               2 % above that of random images without one, in every design of experiments/progressive/banks.py. With
               10 or 20 images leave the bank out: a network much better than those behind it is put too low.
    budget:    share of the images to evaluate.
    width:     go on, a budget more at a time, until the 95 % interval of the mean accuracy over attributes is at most
               this wide (by the default such intervals contain the truth: experiments/progressive/README.md).
    bank:      id of a saved table `irt_items`, or a file that `fca bank` wrote; fitted on other models.
    ability_se: go on in the same way until the ability on the bank's scale has this standard error.
    batch, randomesque: of fisher_cat, see there.
    mapping:   of gre_two_stage: Q, L or ten triples.
    objective: of optimal_allocation, neyman_irt and defensive_irt.
    protocol:  open, any class that the model knows may be predicted; masked, only those of the evaluated images.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *interval_columns(ACCURACY),
        Column("accuracy_se", float, ".4f", "standard error of accuracy"),
        *interval_columns(SCORE),
        Column("score_se", float, ".4f", "standard error of score"),
        tests.POLICY,
        tests.ESTIMATOR,
        tests.BUDGET,
        tests.WIDTH,
        Column("bank", str, "", "id of the item bank that was used"),
        ABILITY,
        Column("ability_se", float, ".3f", "standard error of ability, the items taken as known"),
        Column("ability_se_at_most", float, ".3~", "standard error of ability at which the test stops"),
        PROTOCOL.with_format("", "whether any class of the model (open) or of the images (masked) may be predicted"),
        tests.N_EVALUATED,
        tests.N_POOL,
        tests.SHARE,
        *tests.EVALUATED,
        tests.ROUNDS,
        tests.WARNING,
    )
    summary: ClassVar[tuple[Column | str, ...]] = (
        ACCURACY,
        SCORE,
        "ability {ability:.2f} (se {ability_se:.2f})",
        "{policy} + {estimator} evaluated {n_evaluated} of {n_pool} images",
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

    def plan(self, context: RunContext) -> list[Run[Examination]]:
        """The runs of the test, one for each shift of the configuration. No image is read yet.

        Raises FcaError for options, a pool (the images to choose from), a budget or an item bank that cannot be used.
        """
        predictions = runs_of_split(context, "test")  # the runs that would predict every image, one for each shift
        forward: ForwardWork = predictions[0].work  # model and data are the same under every shift
        data = forward.data

        check_classes(forward.model, data, "test")  # raises unless the model knows a class of the test images
        if context.subset.ncl < len(data.classes):  # a chosen subset: the model has to know every class of it
            check_subset(forward.model, data, context.subset.classes)

        model_classes = forward.classes  # None: all; with compat a sub-model predicts only images of its own classes
        classes = [c for c in context.subset.classes if model_classes is None or c in model_classes]
        items = items_of(data, "test", classes)
        policy, estimator = self._policy_and_estimator(items.pool)
        self._check_policy_starts(policy, context, data, items)
        check_forward(forward)  # raises for a model without weights

        bank_identity = None if self.bank is None else bank_id(self.bank)
        identity = self._identity(policy, estimator, context.seed, bank_identity)
        if len(classes) < len(data.classes):  # the default, all classes, is absent, as all default options are
            identity["classes"] = [data.classes[c] for c in classes]

        columns = {  # what tables show of a run before it has results
            **subset_columns(context.subset),
            "budget": self.budget,
            "width": self.width,
            "bank": bank_identity,
            "protocol": self.protocol,
            "ability_se_at_most": self.ability_se,
            "policy": policy.label,
            "estimator": estimator,
            "seed": context.seed,
        }

        runs = []
        for prediction in predictions:
            # every run gets all predictions: a bank fitted on any of them would have seen this model's responses
            work = Examination(prediction.work, classes, policy, estimator, predictions)
            run_identity = {**prediction.identity, **identity}
            runs.append(Run("adaptive_test", run_identity, {**prediction.metadata, **columns}, work=work))
        return runs

    def _check_policy_starts(self, policy: ChosenPolicy, context: RunContext, data: ImageData, items: Items) -> None:
        """Start the policy once for each shift, so that its FcaError is raised before any run begins.

        If the test uses an item bank, this also logs what the responses that the bank was fitted on do not determine,
        such as the spread of ability: the items then depend on the prior of the fit.
        """
        # a bank has other items for every shift; without a bank the shift makes no difference to the policy
        shifts = context.shifts if self.bank else context.shifts[:1]
        notes: dict[str, None] = {}  # used as an ordered set: shifts may share a note, which is logged once
        for shift in shifts:
            bank = self._bank_of(context.store, data, items, shift)  # None without a bank
            policy.start(items.pool, self.budget, bank)  # only for its checks: each run starts its own
            notes |= dict.fromkeys(self._prior_notes(context.store, data, items, shift))  # none without a bank
        for note in notes:
            log.warning(note)

    def _identity(self, policy: ChosenPolicy, estimator: str, seed: int, bank_identity: str | None) -> dict[str, Any]:
        """The part of a run's identity, from which its id is hashed, that the options of the test determine.

        Options that have their default are absent, so that adding an option changes no id of an earlier run.
        """
        identity: dict[str, Any] = {
            "policy": policy.name,
            **policy.options,
            "estimator": estimator,
            "budget": self.budget,
            "seed": seed,
        }

        # Revisions of policies and estimators: an earlier version evaluated other images or gave other numbers.
        if policy.name == "optimal_allocation":
            # in its earlier version a group's own responses decided how many items of each level it had in the second
            # round, and the first round had a fixed size
            identity["shares"] = "of other groups, at most half first"
        if policy.name == "defensive_irt" and estimator in PRECISION_WEIGHTED:
            # its earlier version expected the variance of samples from an infinite pool
            identity["foreseen"] = "of a finite population"
        if estimator in REVISED:
            identity["revised"] = REVISED[estimator]

        if self.width is not None:
            identity["width"] = self.width
        if bank_identity is not None:
            identity["bank"] = bank_identity
        if self.protocol != "open":
            identity["protocol"] = self.protocol
        if self.ability_se is not None:
            identity["ability_se"] = self.ability_se
        return identity

    def run(self, runs: Sequence[Run[Examination]], context: RunContext) -> Iterator[Finished]:
        """Build the model once and test it under every shift; yields each run as it is finished."""
        forward: ForwardWork = runs[0].work.forward
        classifier = build_model(forward.model)
        context.store.keep_items(forward.data)
        for run in runs:
            yield self._finish(run, context, classifier)

    def _finish(self, run: Run[Examination], context: RunContext, classifier: Classifier) -> Finished:
        """Do the test under the shift of one run; returns the columns and the arrays to store.

        The arrays have the evaluated images in the order of evaluation, with their predictions, and the estimates of
        each group (attribute).
        """
        work: Examination = run.work
        data, shift = work.forward.data, work.forward.shift

        classes = _testable_classes(classifier, work, context)  # the classifier is built: its classes are known now
        items = items_of(data, "test", classes)
        bank = self._bank_of(context.store, data, items, shift)
        evaluator = self._evaluator(run, context, classifier, classes, items)
        policy = work.policy.start(items.pool, self.budget, bank)
        goal = Goal(self.width, self.ability_se, work.estimator, items.pool, policy.record, bank)
        order, rounds = examine(policy, evaluator, goal, context.seed)  # positions in the pool, and their rounds

        estimate = goal.estimate  # from all responses: every test ends with `goal.estimate_and_check`
        ability_columns: dict[str, float] = {}
        if bank is not None:
            ability, ability_se = ability_of(policy.record, bank)
            ability_columns = {"ability": ability, "ability_se": ability_se}

        columns = {
            "ncl": len(classes),
            "classes": classes,
            **estimate_columns(estimate),
            **ability_columns,
            **count_columns(items.pool, order),
            "rounds": int(rounds[-1]),
            **forward_columns(classifier, len(order), evaluator.seconds, context.machine.accelerator),
            "warning": self._warning(context.store, work, items, policy.record, estimate),
        }
        n_evaluated_by_group = items.pool.by_group(items.pool.by_stratum(policy.record.evaluated))  # groups x levels
        arrays = {
            # positions among the test images, as in the arrays of a predict run, for a comparison with it
            "asked": items.test_positions[order].astype(np.int32),
            "round": rounds.astype(np.int32),
            "pred": evaluator.pred[order],
            "p_true": evaluator.p_true[order],
            "logit_classes": np.array(classifier.classes),
            "groups": items.pool.group_names.astype(str),
            "group_asked": n_evaluated_by_group.astype(np.int32),
            "group_estimate": np.stack([estimate.value, estimate.se, estimate.low, estimate.high], axis=-1),
        }
        return Finished(run, columns, arrays)

    def _evaluator(
        self, run: Run[Examination], context: RunContext, classifier: Classifier, classes: list[int], items: Items
    ) -> Evaluator:
        """The evaluator of a run: it predicts the test's images under the run's shift.

        It writes the predictions to a journal in the run's folder, from which an interrupted test resumes.

        classes: label indices of the images.
        items:   the images that may be evaluated.
        """
        data, shift, machine = run.work.forward.data, run.work.forward.shift, context.machine

        if shift.label() == CLEAN.label():
            images = data
            pixel_positions = items.rows
        else:
            images = shifted(data, shift, "test")  # these data have only the test images, with other positions
            pixel_positions = np.searchsorted(data.rows("test"), items.rows)
        pixels = open_pixels(
            images,
            geometry_under(shift, classifier.geometry),
            context.cache,
            workers=machine.workers,
            limit_gb=0.0,  # 0: use decoded images in the cache, but add none, so that only evaluated ones are decoded
            rows=pixel_positions,
        )

        logit_of_class = logit_columns(classifier.classes, data.classes)  # position of each class's logit
        allowed_logits = np.arange(len(classifier.classes))
        if self.protocol == "masked":  # only the classes of the evaluated images compete
            allowed_logits = np.sort(logit_of_class[classes])
        return Evaluator(
            classifier=classifier,
            accelerator=machine.accelerator,
            pixels=pixels,
            pixel_positions=pixel_positions,
            image_ids=data.items["image_id"].iloc[items.rows].tolist(),
            true_logits=logit_of_class[data.labels[items.rows]],
            allowed_logits=allowed_logits,
            journal_file=context.store.folder(run.run_id) / JOURNAL_NAME,
        )

    def _policy_and_estimator(self, pool: Pool) -> tuple[ChosenPolicy, str]:
        """The policy with its options, and the name of the estimator: as configured, else the defaults for the pool.

        Raises FcaError for options that do not go together: if levels, an item bank or known chances of the images to
        be evaluated are needed and missing, or if an option would have no effect.
        """
        policy = self.policy or self._default_policy(pool)
        if policy in POLICIES_OF_LEVELS:
            pool.check_levels("task.policy", policy, WITHOUT_LEVELS)
        estimator = self.estimator or self._default_estimator(policy, pool)
        self._check_bank_options(policy, estimator)
        chosen_policy = choose_policy(policy, self.mapping, self.objective, self.batch, self.randomesque)
        self._check_estimator(estimator, policy, pool)
        return chosen_policy, estimator

    def _check_estimator(self, estimator: str, policy: str, pool: Pool) -> None:
        """Raise FcaError for an estimator that cannot be used after this policy, or with this pool.

        difference and regression need known chances of all images to be evaluated, hypergeometric needs equal chances
        and images without levels, and LEVEL_ESTIMATORS need images with levels.
        """
        if estimator in ("difference", "regression") and policy not in KNOWN_CHANCE_POLICIES:
            allowed = f"{', '.join(KNOWN_CHANCE_POLICIES)}: each item's chance to be evaluated is known"
            raise FcaError("task.policy", policy, allowed, "take one of these, or task.estimator=mixed_logit")
        if estimator == "hypergeometric" and pool.has_levels:
            raise FcaError("task.estimator", f"{estimator} of items with levels", "stratified", "leave it out")
        if estimator == "hypergeometric" and policy not in EQUAL_CHANCE_POLICIES:
            allowed = f"{', '.join(EQUAL_CHANCE_POLICIES)}: every item has the same chance"
            raise FcaError("task.policy", policy, allowed, "take one of these, or leave out task.estimator")
        if estimator in adaptive.LEVEL_ESTIMATORS:
            without_levels = ", ".join(name for name in adaptive.ESTIMATORS if name not in adaptive.LEVEL_ESTIMATORS)
            pool.check_levels("task.estimator", estimator, without_levels)

    def _check_bank_options(self, policy: str, estimator: str) -> None:
        """Raise FcaError if an item bank is needed and missing, or if one is given and nothing would use it.

        `ability_se`, the standard error of ability at which a test stops, needs a bank, too.
        policy, estimator: the names in use; they are defaults if `self.policy` and `self.estimator` are None.
        """
        # configured names come first: the message names the option that the user typed
        bank_users = [name for name in (self.policy, self.estimator, policy, estimator) if name in NEED_BANK]
        if bank_users and self.bank is None:
            step = "fit one on other models' answers, fca analyse analysis=irt, and give the id of its table irt_items"
            raise FcaError("task.bank", None, f"an item bank: {bank_users[0]} needs one", step)
        if self.bank is not None and not bank_users:
            step = f"leave it out, or take one of {', '.join(NEED_BANK)}"
            raise FcaError("task.bank", self.bank, f"null for {policy} with {estimator}", step)
        if self.ability_se is not None and self.bank is None:
            raise FcaError("task.ability_se", self.ability_se, "null without task.bank", "give task.bank")

    def _default_policy(self, pool: Pool) -> str:
        """The policy where none is configured: by the bank and the configured estimator, else by the pool's levels."""
        if self.bank is not None or self.estimator in NEED_BANK:  # `_check_bank_options` refuses a missing bank
            policy_of_estimator = {"p_irt": "fisher_cat", "difference": "neyman_irt"}
            return policy_of_estimator.get(self.estimator or "", "defensive_irt")
        return "optimal_allocation" if pool.has_levels else "proportional"

    def _default_estimator(self, policy: str, pool: Pool) -> str:
        """The estimator where none is configured: the policy's own, else by the bank and the pool's levels."""
        if policy in ESTIMATOR_OF_POLICY:
            return ESTIMATOR_OF_POLICY[policy]
        if self.bank and policy in KNOWN_CHANCE_POLICIES:
            return "regression"
        return "stratified" if pool.has_levels else "hypergeometric"

    def _bank_of(self, store: Store, data: ImageData, items: Items, shift: Shift) -> ItemBank | None:
        """The item bank of the images under a shift; None if the test uses none."""
        return None if self.bank is None else bank_of(store, self.bank, data, items.rows, shift)

    def _prior_notes(self, store: Store, data: ImageData, items: Items, shift: Shift) -> list[str]:
        """What `priors_of_bank` notes on the bank of the images under a shift; empty if the test uses no bank."""
        return [] if self.bank is None else priors_of_bank(store, self.bank, data, items.rows, shift)

    def _warning(self, store: Store, work: Examination, items: Items, record: Record, estimate: Estimate) -> str | None:
        """The known faults of a test's estimates, joined by semicolons; None if there are none.

        These are: responses that contradict the estimator, its bias under the policy, a goal that was not reached
        before the images ran out, and faults of the item bank, if there is one. It is also a fault of a bank if
        the responses that it was fitted on leave something undetermined, such as the spread of ability.
        """
        faults: list[str] = []
        if estimate.warning:
            log.warning(estimate.warning)
            faults.append(estimate.warning)
        # some estimators are biased if a session's responses decide which of its images are evaluated
        if work.policy.name not in BLIND_POLICIES and work.estimator in adaptive.WARNINGS:
            faults.append(adaptive.WARNINGS[work.estimator])
        if record.evaluated.all():  # the images ran out
            faults += [EXHAUSTED] if self.width is not None else []
            faults += [EXHAUSTED_SE] if self.ability_se is not None else []
        if self.bank:
            faults += faults_of_bank(store, self.bank, work.predictions)
        faults += self._prior_notes(store, work.forward.data, items, work.forward.shift)  # none without a bank
        return "; ".join(faults) or None


def _testable_classes(classifier: Classifier, work: Examination, context: RunContext) -> list[int]:
    """Label indices of the test's classes that the classifier knows.

    Raises FcaError if it knows none of them. If the user chose a subset of the classes, it also raises FcaError for a
    class of the subset that the classifier does not know: the test would otherwise silently have fewer classes.
    """
    names = work.forward.data.classes
    testable = [c for c in work.classes if names[c] in classifier.classes]
    is_chosen_subset = context.subset.ncl < len(names)  # else all classes of the data set
    is_incomplete_subset = is_chosen_subset and len(testable) < len(work.classes)
    if not testable or is_incomplete_subset:
        unknown = [names[c] for c in work.classes if c not in testable]
        allowed = "classes that the model knows"
        raise FcaError("classes to test", ", ".join(unknown[:5]), allowed, "choose another subset or model")
    return testable


# What is tested: the pool of images, the policy's options, the bank's items.


def items_of(data: ImageData, split: str, classes: Sequence[int]) -> Items:
    """The images of a split and of these label indices, as the pool of a test: the images that it may evaluate.

    If any image has an attribute and a level (easy, medium, hard), only the images with both are in the pool; otherwise
    all images are. The result has each image's position in the data (`rows`), and its position among all images of
    the split and the classes (`test_positions`), at which the arrays of a predict run have it.

    Raises FcaError if there are no images, for a level of another name, and for a session (class and attribute) without
    images of one of the levels.
    """
    rows = data.rows(split, classes)
    items = data.items.iloc[rows]
    if not has_levels(items):
        all_positions = np.arange(len(rows))
        return Items(rows, all_positions, pool_of(items))

    test_positions = np.flatnonzero(items["attribute"].notna() & items["level"].notna())
    items = items.iloc[test_positions]
    unknown_levels = sorted(set(items["level"].astype(str)) - set(LEVELS))
    if unknown_levels:
        named_levels = ", ".join(unknown_levels[:5])
        raise FcaError(f"level of images of {data.name}", named_levels, ", ".join(LEVELS), "name levels so")
    pool = pool_of(items)  # raises FcaError for a session without images of one of the levels
    return Items(rows[test_positions], test_positions, pool)


def choose_policy(
    policy: str, mapping: Any, objective: str, batch: int | None = None, randomesque: int = 1
) -> ChosenPolicy:
    """A policy by name, with its options that differ from their defaults.

    mapping:            an option of gre_two_stage, in whose first round a session wins 1, 2 and 4 points for a right
                        easy, medium and hard image. It is the name of a mapping, Q or L, or ten triples: for 0 to 9
                        points the numbers of easy, medium and hard images of the second round.
    objective:          accuracy or score, for policies that have an objective.
    batch, randomesque: options of fisher_cat.
    Raises FcaError for an unknown name, an invalid mapping, or an option that the policy does not have.

    >>> choose_policy("gre_two_stage", "L", "accuracy").label
    'gre_two_stage mapping=L'
    """
    if policy not in adaptive.POLICIES:
        raise FcaError("task.policy", policy, ", ".join(adaptive.POLICIES), "take one of these")
    if isinstance(mapping, str) and mapping not in MAPPINGS:
        raise FcaError("task.mapping", mapping, f"{', '.join(MAPPINGS)}, or ten triples", "take one of these")

    triples = MAPPINGS[mapping] if isinstance(mapping, str) else mapping
    table = adaptive.check_mapping(triples).tolist()
    all_options = {"mapping": table, "objective": objective, "batch": batch, "randomesque": randomesque}
    options = {option: value for option, value in all_options.items() if value != DEFAULT_OPTIONS[option]}

    readable_options = dict(options)
    if "mapping" in options:  # a label has the mapping's name, not its ten triples
        published_names = [name for name, published in MAPPINGS.items() if table == [list(line) for line in published]]
        readable_options["mapping"] = published_names[0] if published_names else "own"
    for option, value in readable_options.items():
        if policy not in POLICIES_OF_OPTION[option]:
            step = f"leave it out, or set task.policy={POLICIES_OF_OPTION[option][0]}"
            raise FcaError(f"task.{option}", value, f"none for {policy}", step)

    option_words = [f"{option}={value}" for option, value in readable_options.items()]
    policy_class: Any = adaptive.POLICIES[policy]
    return ChosenPolicy(
        start=partial(policy_class, **options),
        name=policy,
        options=options,
        label=" ".join([policy, *option_words]),
    )


def bank_of(store: Store, bank: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift) -> ItemBank:
    """The item parameters of these images under the shift, in the order of `rows`.

    bank: the id of a saved table, or a file.
    rows: positions of the images in `data.items`.
    Raises FcaError for what is no bank, for images that the bank lacks, where two of its items have the same name, and
    where the items are on more than one scale.
    """
    frame = _items_of_bank(store, bank, data, rows, shift)
    parameter_names = ItemBank._fields[1:]  # the first field is the item response model
    parameters: Any = [frame[name].to_numpy(dtype=np.float64) for name in parameter_names]
    return ItemBank(str(frame["irt_model"].iloc[0]), *parameters)


def priors_of_bank(
    store: Store, bank: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift
) -> list[str]:
    """A sentence for each fit behind these images' items that could not learn a scale, such as the spread of ability.

    The items of such a fit depend on its prior.

    bank: the id of a saved table, or a file.
    rows: positions of the images in `data.items`.
    """
    frame = _items_of_bank(store, bank, data, rows, shift)
    priors_by_fit = origin_of(store, bank).not_estimable_of(frame)
    return [f"task.bank: {bank_note(fit, scales)}" for fit, scales in priors_by_fit.items()]


def _items_of_bank(
    store: Store, bank: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift
) -> pd.DataFrame:
    """The lines of the item bank for these images under the shift, in the order of `rows`.

    bank: the id or the file of the bank, as in `task.bank`.
    rows: positions of the images in `data.items`.
    Raises FcaError if two items of the bank have the same name, for images without an item, and if the items are from
    several data sets, because difficulties of separate fits are on separate scales.
    """
    label = shift.label()
    corruption = label.split("/")[1] if "/" in label else label  # fog of corruption/fog/3
    frame = read_bank(store, bank)
    for column, value in (("dataset", data.name), ("corruption", corruption)):
        matching = frame[frame[column] == value]
        if len(matching):  # if no line matches, all stay: a bank fitted on files of responses may use other names
            frame = matching
    if frame["item"].duplicated().any():  # images of several data sets may share a name
        datasets = ", ".join(sorted(set(frame["dataset"])))
        step = f"save one of this set alone: fca analyse analysis=irt fingerprint={data.fingerprint}"
        raise FcaError("data sets of task.bank", datasets, f"{data.name}, or another one", step)

    names = data.items["image_id"].iloc[rows].astype(str)
    if label != CLEAN.label():
        names = names + f"@{label}"  # how tables of items name an image under a shift
    bank_rows = pd.Index(frame["item"]).get_indexer(pd.Index(names))  # -1: not in the bank
    if (bank_rows < 0).any():
        missing = names[bank_rows < 0]
        examples = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        value = f"{examples} ({len(missing)} of {len(names)})"
        step = "fit one on other models' answers to all of these images: fca analyse analysis=irt"
        raise FcaError(f"items that task.bank {bank} lacks", value, "none", step)

    scales = frame["dataset"].iloc[bank_rows].unique()  # each data set was fitted separately, on its own scale
    if len(scales) > 1:
        scale_names = ", ".join(map(str, scales))
        allowed = "one: difficulties of two scales are not comparable"
        step = "fit one bank on models that responded to all of these images: fca analyse analysis=irt"
        raise FcaError(f"scales of task.bank {bank} that these images are on", scale_names, allowed, step)
    return frame.iloc[bank_rows]


def faults_of_bank(store: Store, bank: str, predictions: Sequence[Run]) -> list[str]:
    """Sentences on what makes an item bank unfit for a test, found in the runs of the models that it was fitted on.

    A bank is unfit if it was fitted on the tested model's own responses, on another version of the data, or on images
    that were corrupted at another size.
    predictions: the runs that would predict every image of the test, one for each shift.
    """
    origin = origin_of(store, bank)  # the runs that the bank was fitted on, and the fingerprints of their data sets
    faults = []

    tested_runs = {run.run_id for run in predictions}
    if tested_runs & set(origin.runs):
        faults.append(LEAKED)

    tested_fingerprints = {run.metadata["fingerprint"] for run in predictions}
    bank_fingerprints = origin.fingerprints.get(predictions[0].metadata["dataset"], ())
    if set(bank_fingerprints) - tested_fingerprints:
        faults.append(OTHER_DATA)

    # a corruption may have been applied at the reference size or at that of the network
    at_reference_by_shift = {
        run.metadata.get("shift"): run.metadata.get("corrupted_at") == "reference" for run in predictions
    }
    # compare each shift of the test with the runs of the bank under the same shift
    for run_id in origin.runs:
        if store.state(run_id) is not State.DONE:  # a bank from elsewhere: its runs are not in this store
            continue
        row = store.row(run_id)
        shift = row.get("shift")
        at_reference = row.get("corrupted_at") == "reference"
        if shift in at_reference_by_shift and at_reference != at_reference_by_shift[shift]:
            faults.append(OTHER_SIZE)
            break  # one such run is enough
    return faults


# The test itself: the policy selects, the network predicts, the journal keeps, the estimate ends it.


@dataclass
class Evaluator:
    """Runs a classifier on images of a pool, by position, and keeps its predictions in a journal.

    pixel_positions: position of each image of the pool in `pixels`.
    image_ids:       the name of each image.
    true_logits:     the position of the logit of each image's class.
    allowed_logits:  positions of the logits that may be predicted, ascending.
    journal_file:    has a line for each batch of images, with `round`, `image_id`, `pred` (the positions of the
                     predicted logits), `p_true` (the probabilities of the true classes) and `seconds`.
    """

    classifier: Classifier
    accelerator: str
    pixels: Pixels
    pixel_positions: Int[np.ndarray, " items"]
    image_ids: Sequence[str]
    true_logits: Int[np.ndarray, " items"]
    allowed_logits: Int[np.ndarray, " logits"]
    journal_file: Path

    def __post_init__(self) -> None:
        """Read the predictions that an earlier process wrote; if its journal cannot be read, the test starts again."""
        self.position_of_image = {image_id: position for position, image_id in enumerate(self.image_ids)}
        self.pred = np.full(len(self.image_ids), -1, dtype=np.int32)  # -1: not evaluated
        self.p_true = np.full(len(self.image_ids), np.nan, dtype=np.float32)
        self.seconds = 0.0
        self.journal = Journal(self.journal_file, self._is_valid)
        for line in self.journal.lines_or_anew("the test begins anew"):  # the text is for the warning in the log
            self._keep_predictions(line)

    def _is_valid(self, line: Line) -> bool:
        """Whether a line has a permitted prediction for each of its images, and these all belong to the pool."""
        kinds = {"image_id": list[str], "pred": list[int], "p_true": list[float], "seconds": float}
        return (
            all(has_type(line.get(name), kind) for name, kind in kinds.items())
            and len(line["image_id"]) == len(line["pred"]) == len(line["p_true"])
            and set(line["image_id"]) <= set(self.position_of_image)
            and set(line["pred"]) <= set(self.allowed_logits.tolist())
        )

    def correct(self, round_number: int, positions: Integer[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
        """Whether the classifier gets each of these images right.

        Images without a prediction so far are forwarded. Their predictions are kept in `pred`, and in the journal, from
        which an interrupted test resumes. This happens in chunks, so that an image that cannot be read costs only the
        predictions of its chunk.

        round_number: counts from 1; it is written to the journal.
        positions:    positions of the images in the pool.
        """
        missing = positions[self.pred[positions] < 0]  # -1: no prediction so far
        for start in range(0, len(missing), IMAGES_PER_LINE):
            chunk = missing[start : start + IMAGES_PER_LINE]
            start_time = time.perf_counter()
            pred, p_true = self.predict(chunk)
            line = {
                "round": round_number,
                "image_id": [self.image_ids[position] for position in chunk.tolist()],
                "pred": pred.tolist(),
                "p_true": p_true.tolist(),
                "seconds": time.perf_counter() - start_time,
            }
            self.journal.add(line)
            self._keep_predictions(line)  # in `pred` and `p_true`
        return self.pred[positions] == self.true_logits[positions]

    def predict(
        self, positions: Integer[np.ndarray, " images"]
    ) -> tuple[Int[np.ndarray, " images"], Float[np.ndarray, " images"]]:
        """The position of the largest allowed logit of each image, and the probability of its true class.

        Allowed are all logits of the classifier or, in the masked protocol, those of the tested classes; the
        probability is the softmax over the allowed logits.

        positions: positions of the images in the pool.
        """
        from fca.training.infer import logits_of  # imports torch, which planning does without

        pixel_positions = self.pixel_positions[positions]
        logits = logits_of(self.classifier, self.pixels, pixel_positions, accelerator=self.accelerator)

        allowed_classes = [self.classifier.classes[logit] for logit in self.allowed_logits]
        true_columns = np.searchsorted(self.allowed_logits, self.true_logits[positions])  # among the allowed logits
        arrays = prediction_arrays(logits[:, self.allowed_logits], true_columns, allowed_classes)
        predicted_logits = self.allowed_logits[arrays["pred"]]  # `pred` counts among the allowed logits
        return predicted_logits, arrays["p_true"]

    def _keep_predictions(self, line: Line) -> None:
        """Keep the predictions and the seconds of a line of the journal."""
        positions = [self.position_of_image[image_id] for image_id in line["image_id"]]
        self.pred[positions] = line["pred"]
        self.p_true[positions] = line["p_true"]
        self.seconds += line["seconds"]


class Goal:
    """How precise a test has to be before it ends.

    width:      the largest width of the 95 % interval of accuracy; None: any width.
    ability_se: the largest standard error of the ability; None: any.
    estimator, pool, record, bank: how the estimate is made of the responses so far.
    estimate:   the estimate, once `estimate_and_check` was called.
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
        """Set the precision that ends a test, and what its estimates are made of.

        width:      the largest width of the 95 % interval of accuracy; None: any width.
        ability_se: the largest standard error of the ability; None: any.
        estimator:  its name.
        record:     the responses of the test, to which every round adds its own.
        bank:       the items of the pool, for an ability or an estimator that needs them.
        """
        self.width = width
        self.ability_se = ability_se
        self.estimator = estimator
        self.pool = pool
        self.record = record
        self.bank = bank

    def estimate_and_check(self) -> bool:
        """Set `self.estimate` by the responses so far; returns whether accuracy and ability are as precise as required.

        Accuracy is precise if its interval is no wider than `width`, ability if its standard error is at most
        `ability_se`; None of either requires nothing.
        """
        self.estimate = adaptive.estimate(self.estimator, self.pool, self.record, self.bank)

        overall = self.estimate.overall  # 1 x targets; the first target is accuracy
        width = overall.high[0, 0] - overall.low[0, 0]
        if self.width is not None and not width <= self.width:  # NaN, where undefined, is never narrow enough
            return False

        if self.ability_se is None or self.bank is None:  # ability_se without a bank was refused before the test
            return True
        _, ability_se = ability_of(self.record, self.bank)
        return ability_se <= self.ability_se


def examine(
    policy: Policy, evaluator: Evaluator, goal: Goal, seed: int
) -> tuple[Int[np.ndarray, " evaluated"], Int[np.ndarray, " evaluated"]]:
    """Evaluate images in rounds until the goal is reached, or every image was evaluated.

    When the policy has spent its budget, the goal is checked; if it is not reached, the policy gets the same budget
    again. Returns the positions in the pool in the order of evaluation, and the round of each, from 1.
    """
    # the same draws as those of `fca.studies.adaptive.stats.replay` with this seed, for its first model and repeat
    rounds = Rounds(policy, np.random.default_rng([seed, 0, 0]), is_enough=goal.estimate_and_check)

    def correct(positions: Int[np.ndarray, " images"]) -> Bool[np.ndarray, " images"]:
        """Which of the next round's images the model gets right; logs how many images are evaluated by then."""
        round_number = len(rounds.positions) + 1
        is_correct = evaluator.correct(round_number, positions)
        n_evaluated = policy.record.evaluated.sum() + len(positions)
        log.info("round %d: %d of %d images evaluated", round_number, n_evaluated, len(policy.record.evaluated))
        return is_correct

    ask_until_done(rounds, correct)
    images_by_round = [len(positions) for positions in rounds.positions]
    round_of = np.repeat(np.arange(1, len(images_by_round) + 1), images_by_round)
    return np.concatenate(rounds.positions), round_of


def estimate_columns(estimate: Estimate) -> dict[str, float]:
    """The columns of an estimate: the mean over groups of each target, its standard error and its 95 % interval.

    A target is what the test estimates, accuracy or score. A group is an attribute; images without attributes are one
    group.
    Values that are undefined (NaN) get no column.
    """
    overall = estimate.overall  # 1 x targets
    number_of_targets = estimate.value.shape[1]  # images without levels have accuracy alone
    columns: dict[str, float] = {}
    for target, name in enumerate(TARGETS[:number_of_targets]):
        numbers = {
            name: overall.value[0, target],
            f"{name}_low": overall.low[0, target],
            f"{name}_high": overall.high[0, target],
            f"{name}_se": overall.se[0, target],
        }
        columns |= {column: float(number) for column, number in numbers.items() if np.isfinite(number)}
    return columns


def count_columns(pool: Pool, order: Int[np.ndarray, " evaluated"]) -> dict[str, Any]:
    """The columns that count images: how many were evaluated, how many the pool has, and the share that was evaluated.

    For images with levels (easy, medium, hard), also how many of each level were evaluated.
    order: positions of the evaluated images in the pool.
    """
    columns: dict[str, Any] = {
        "n_evaluated": len(order),
        "n_pool": pool.n_items,
        "share": len(order) / pool.n_items,
    }
    if pool.has_levels:
        n_evaluated_by_level = np.bincount(pool.level[order], minlength=len(pool.levels)).tolist()
        columns |= {f"asked_{level}": n for level, n in zip(pool.levels, n_evaluated_by_level, strict=True)}
    return columns
