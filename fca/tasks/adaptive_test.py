"""A model's accuracy from a part of the images: it is run only on those that a policy asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fca.data.shifted import shifted
from fca.data.splits import as_trained_on
from fca.nouns import Classifier, FcaError, Finished, ImageData, Run, Shift
from fca.stats.adaptive import ESTIMATORS, Estimate, estimate, run_policy, warning
from fca.stats.irt import ItemBank
from fca.store import State
from fca.subset import full_set
from fca.tasks import Setup
from fca.tasks.adaptive_test_journal import NAME, Journal
from fca.tasks.adaptive_test_live import Examinee, arrays_of, counts, estimates, examine, open_decoded
from fca.tasks.adaptive_test_pool import Questions, choose_policy, doubts, questions, read_items
from fca.tasks.answers import subset_columns
from fca.tasks.predict import Nameable, Predict

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
        from fca.training.device import device_name

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
