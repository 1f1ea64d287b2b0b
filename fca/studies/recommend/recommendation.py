"""Which model to use for these images: the smallest within some points of the best; and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from fca.allowed import Allowed
from fca.stats.chance import at_chance
from fca.stats.decision import accuracy_draws, cheapest, images_needed, pareto, probability_within, strength_of
from fca.store import Store
from fca.store.columns import PARAMS, TRAIN_S, WEIGHTS
from fca.studies.recommend.evidence import (
    ADAPTATION,
    COMMAND,
    GFLOPS,
    LATENCY,
    LOAD,
    MEMORY,
    SPEED,
    Candidate,
    Evidence,
    Key,
    evidence,
    job_names,
    name_of,
)
from fca.studies.recommend.expected import AFTER, BEFORE, Expected, expected, known_points, measured_coverage
from fca.studies.recommend.images import CLASSES, CONFUSIONS, RELABEL, classes, confusions, mislabelled
from fca.studies.rows import require
from fca.studies.table import AT_CHANCE, CHANCE, DATASET, MODEL, N_TEST, NCL, RUN_ID, TOP1, TableSpec, filled
from fca.types import Column, Table, with_interval

NORMAL_90 = 2 * 1.6449  # width of a 90 % interval in standard deviations
SIMULATED = 0.02  # probabilities from 4,000 draws that differ by less are as good as equal: two standard errors
PREDICTED = Column("top1_predicted", float, ".1%", "accuracy predicted before training (90 % interval)")
JOBS = Column("jobs", int, ".0f", "earlier jobs that this prediction rests on")
EPOCHS = Column("epochs", int, ".0f", "epochs of its longest training")
SEEDS = Column("seeds", int, ".0f", "trainings of that length")
N_VAL = Column("n_val", int, ".0f", "validation images")
VAL = Column("val_top1", float, ".1%", "accuracy on the validation images")
EXPECTED = Column("top1_expected", float, ".1%", "accuracy to expect (90 %)")
COVERAGE = Column(
    "coverage",
    float,
    ".0%",
    "share of such 90 % intervals that held the accuracy on test images; missing: that they hold was not measured",
)
COVERAGE_JOBS = Column("coverage_jobs", int, ".0f", "jobs on which that share was measured; they chose nothing")
PREDICTED_COVERAGE = Column("coverage_predicted", float, ".0%", "the same of intervals predicted before training")
WITHIN = Column("within", float, ".0%", "probability that it is within the margin of the best")
CHOSEN, GUESS, GOOD, OPEN = "recommended", "best guess", "good enough", "undecided"
WORSE, UNTRAINED, UNMEASURED, REFUSED = "worse", "not trained", "speed not measured", "over a limit"
VERDICT = Column(
    "verdict",
    str,
    "",
    "good enough: within the margin of the best with the confidence asked for, as far as it was trained; worse: not, "
    "with that confidence",
    {word: word for word in (CHOSEN, GUESS, GOOD, OPEN, WORSE, UNTRAINED, UNMEASURED, REFUSED)},
)
WHY = Column("why", str, "", "the limit that it is over")
TESTED_COPIES = Column("tested_copies", int, ",", "test images that are copies of training or validation images")
FRONT = Column("on_front", bool, "", "whether no other candidate is as accurate and as small")
STEP, REASON = Column("step", str, "", "what to try"), Column("reason", str, "", "why")

SOURCE = "Ferguson, 1973 (posterior of accuracies); Hsu, 1984 (comparisons with the best)"
RECOMMENDATION = TableSpec(
    "recommendation",
    "Which is the smallest model within some points of the best?",
    SOURCE,
    (
        *(DATASET, NCL, MODEL, WEIGHTS, ADAPTATION, VERDICT, WHY, FRONT),
        *(*with_interval(EXPECTED), COVERAGE, COVERAGE_JOBS, WITHIN, *with_interval(LATENCY), SPEED, GFLOPS, MEMORY),
        *(PARAMS, LOAD, *with_interval(PREDICTED), PREDICTED_COVERAGE, JOBS, VAL, N_VAL, EPOCHS, SEEDS, TRAIN_S),
        *(*with_interval(TOP1), CHANCE, AT_CHANCE, N_TEST, TESTED_COPIES, RUN_ID),
    ),
)
NEXT = TableSpec("recommendation_next", "What would change the answer?", SOURCE, (DATASET, STEP, REASON))
METHOD = {
    "decided_by": "validation images (which also chose each training's epoch, but nothing of a linear probe); for "
    "linear probes also training images, each left out of a fit of the probe that is delivered; for other networks the "
    "prediction made before training. Test images choose nothing",
    "predicted": "least squares on the accuracy of a linear probe, log images a class and log ncl of earlier jobs; in "
    "jobs that came with fca the probe is an earlier one, judged on features of length 1, so that such intervals hold "
    "was not measured",
    "intervals": "nominal 90 % of expected and predicted accuracy, with the share that held in column coverage, where "
    "it was measured; 95 % of latency and of accuracy on test images",
    "at_chance": "on test images, against always predicting the most frequent of their classes; of a model at chance "
    "no confusions are listed, and of probes at chance no labels",
    "expected": "of the weights that were judged, which may be those of a part of a training: see epochs",
}


@dataclass(frozen=True)
class Recommendation:
    """`analysis=recommendation`; reads `train`, `predict` (val and test), `latency` and `embed` rows.

    query:    narrows the trainings, to those of one job where there are several.
    within:   how far below the best a model may be, in points.    confidence: that it is.
    latency_ms, memory_mb, params_m: the most that a model may take, a forward pass of one image; null: no limit.
    smallest: the column by which one model is smaller than another.
    """

    tables: ClassVar = (RECOMMENDATION, CONFUSIONS, RELABEL, CLASSES, NEXT)

    query: str | None = None
    within: Annotated[float, Allowed(0, 100)] = 1.0
    confidence: Annotated[float, Allowed(above=0.5, below=1)] = 0.9
    latency_ms: Annotated[float | None, Allowed(above=0)] = None
    memory_mb: Annotated[float | None, Allowed(above=0)] = None
    params_m: Annotated[float | None, Allowed(above=0)] = None
    smallest: Annotated[str, Allowed(choices=("latency_ms", "memory_mb", "gflops", "params"))] = "latency_ms"

    def __call__(self, store: Store) -> list[Table]:
        """One line a candidate of every job; confusions, labels, classes and next steps of each."""
        jobs = evidence(store, self.query)
        require(jobs, "trainings", len(store.rows()), COMMAND)
        found: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        for of, name in zip(jobs, job_names(jobs), strict=True):
            known = known_points(other for other in jobs if other.job.fingerprint != of.job.fingerprint)
            weighed = Weighed(of, known, self)
            suspects = mislabelled(of)
            steps = pd.DataFrame(list(weighed.steps()), columns=[STEP, REASON])
            confused = confusions(of, None if weighed.chosen_is_at_chance else weighed.chosen)
            parts = (weighed.frame, confused, suspects, classes(of, suspects), steps)
            for part, lines in zip(found, parts, strict=True):
                part.append(lines.assign(dataset=name))
        runs = (row["run_id"] for of in jobs for row in of.trained)
        return filled(self.tables, [pd.concat(part, ignore_index=True) for part in found], asdict(self) | METHOD, runs)


class Weighed:
    """The candidates of one job, what is expected of each, and which is recommended.

    compared: positions of those within all limits that were measured and have predicted validation images.
    """

    def __init__(self, of: Evidence, known: pd.DataFrame, asked: Recommendation) -> None:
        self.of, self.asked, self.candidates = of, asked, of.candidates
        self.limits = [self._over(one) for one in self.candidates]
        self.before = [expected(one, of, known) for one in self.candidates]
        trained = [at for at, one in enumerate(self.candidates) if one.trained]
        self.compared = [at for at in trained if self.limits[at] is None and self.candidates[at].speed is not None]
        self.cost = np.array([self._cost(one) for one in self.candidates])
        left_out = {at: right for at in trained if (right := self._left_out(self.candidates[at].key)) is not None}
        before = [None if at in left_out else one for at, one in enumerate(self.before)]  # it rests on the same images
        self.prior = np.array([np.nan if one is None else one.value for one in before])
        self.strength = np.array([_strength(one) for one in before])
        self.on_val = self._right(self._checked(trained))
        self.correct = np.hstack([self.on_val, self._right(left_out)])
        measured = measured_coverage()[["when", "adaptation", "inside", "jobs"]]
        self.coverage = {(when, way): (inside, jobs) for when, way, inside, jobs in measured.itertuples(index=False)}
        self.draws = accuracy_draws(self.correct, self.prior, self.strength)
        self.within = np.full(len(self.candidates), np.nan)
        self.within[self.compared] = probability_within(self.draws[:, self.compared], asked.within / 100)

    def _over(self, one: Candidate) -> str | None:
        """The limit that it is over, in words."""
        if one.speed is None:
            return None
        limits = {"latency_ms": self.asked.latency_ms, "memory_mb": self.asked.memory_mb, "params": self.asked.params_m}
        for name, most in limits.items():
            value = float(one.speed.get(name) or np.nan) / (1e6 if name == "params" else 1)
            if most is not None and not value <= most:  # also what was not measured
                return f"{name.replace('params', 'params_m')} = {value:.3g} > {most:g}"
        return None

    def _cost(self, one: Candidate) -> float:
        value = (one.speed or {}).get(self.asked.smallest)
        return np.inf if value is None or np.isnan(value) else float(value)

    def _checked(self, trained: Sequence[int]) -> dict[int, Float[np.ndarray, " images"]]:
        """Candidate -> share of its trainings that are right on each validation image."""
        return {
            at: np.mean([self.of.predicted(row, "val").right for row in self.candidates[at].trained], axis=0)
            for at in trained
        }

    def _right(self, known: Mapping[int, np.ndarray]) -> Float[np.ndarray, "models images"]:
        """A row for each candidate, NaN where it has none."""
        rows = np.full((len(self.candidates), max((len(one) for one in known.values()), default=0)), np.nan)
        for at, values in known.items():
            rows[at] = values
        return rows

    def _left_out(self, key: Key) -> Bool[np.ndarray, " images"] | None:
        """Whether a probe is right on each training image when that image is left out; None for another candidate."""
        probe = self.of.left_out(key[:2]) if key[2] == "probe" else None
        if probe is None:
            return None
        trains = (self.of.items["split"].iloc[probe.images] == "train").to_numpy()
        return (probe.outputs.argmax(axis=1) == probe.label)[trains]

    @cached_property
    def decided(self) -> int | None:
        """The smallest that is good enough with the confidence asked for; None: undecided."""
        found = cheapest(self.within[self.compared], self.cost[self.compared], self.asked.confidence)
        return None if found is None else self.compared[found]

    @cached_property
    def answer(self) -> int | None:
        """`decided`, or else what is most probably within the margin; None before any training."""
        if self.decided is not None or not self.compared:
            return self.decided
        most = np.nanmax(self.within) - SIMULATED
        return min((at for at in self.compared if self.within[at] >= most), key=lambda at: self.cost[at])

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The training to use."""
        return None if self.answer is None else self.candidates[self.answer].first

    @cached_property
    def guess(self) -> float:
        """Accuracy on test images of always predicting the most frequent class; NaN without any."""
        images = self.of.images("test")
        return float(images.max() / images.sum()) if images.sum() else float("nan")

    @property
    def chosen_is_at_chance(self) -> bool:
        """Whether the test images do not show that the training to use is better than guessing."""
        return self.chosen is not None and _at_chance(self.chosen, self.guess)

    def position(self, key: Key) -> int:
        """Of a candidate among all."""
        return next(at for at, one in enumerate(self.candidates) if one.key == key)

    def beaten(self, at: int) -> bool:
        """Whether, nine times in ten each, it is less accurate than one that is not larger and was trained."""
        if np.isnan(self.draws[:, at]).any():
            return False
        others = [other for other in self.compared if other != at and self.cost[other] <= self.cost[at]]
        return bool((np.quantile(self.draws[:, others], 0.1, axis=0) > np.quantile(self.draws[:, at], 0.9)).any())

    @cached_property
    def mean(self) -> Float[np.ndarray, " candidates"]:
        """Expected accuracy; NaN where nothing is known."""
        return np.where(np.isnan(self.draws).all(axis=0), np.nan, self.draws.mean(axis=0))

    def front(self, some: Sequence[int]) -> list[bool]:
        """Which of these candidates no other of them beats in accuracy and size."""
        return pareto(self.mean[list(some)], self.cost[list(some)]).tolist()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One line a candidate: the recommended one first, then by expected accuracy."""
        inside = [at for at, limit in enumerate(self.limits) if limit is None]
        front = {at for at, on in zip(inside, self.front(inside), strict=True) if on}
        lines = [self._line(at, one) | {FRONT: at in front} for at, one in enumerate(self.candidates)]
        order = sorted(range(len(lines)), key=lambda at: (at != self.answer, -np.nan_to_num(self.mean[at]), at))
        return pd.DataFrame([lines[at] for at in order])

    def _line(self, at: int, one: Candidate) -> dict[str, Any]:
        line: dict[str, Any] = dict(zip((MODEL, WEIGHTS, ADAPTATION), one.key, strict=True))
        line |= {
            NCL: len(self.of.job.classes),
            VERDICT: self._verdict(at),
            WHY: self.limits[at],
            WITHIN: self.within[at],
        }
        if not np.isnan(self.mean[at]):
            ends = np.quantile(self.draws[:, at], (0.05, 0.95))
            line |= dict(zip(with_interval(EXPECTED), (self.mean[at], *ends), strict=True))
            line |= self._coverage(AFTER if one.trained else BEFORE, one.key[2])
        if one.speed is not None:
            line |= {
                name: one.speed.get(name) for name in (*with_interval(LATENCY), SPEED, GFLOPS, MEMORY, PARAMS, LOAD)
            }
        if (before := self.before[at]) is not None:
            line |= dict(zip((*with_interval(PREDICTED), JOBS), before, strict=True))
            line |= {PREDICTED_COVERAGE: self._coverage(BEFORE, one.key[2]).get(COVERAGE)}
        if one.trained:
            first = one.first
            line |= {name: first.get(name) for name in (*with_interval(TOP1), N_TEST, TRAIN_S, RUN_ID)}
            line |= {CHANCE: self.guess, AT_CHANCE: _at_chance(first, self.guess), TESTED_COPIES: self.of.tested_copies}
            line |= {EPOCHS: first.get("recipe_epochs"), SEEDS: len(one.trained)}
            line |= {VAL: self.on_val[at].mean(), N_VAL: self.on_val.shape[1]}
        return line

    def _coverage(self, when: str, adaptation: str) -> dict[str, Any]:
        """How often such intervals held; nothing where that was not measured."""
        if (when, adaptation) not in self.coverage:
            return {}
        inside, jobs = self.coverage[when, adaptation]
        return {COVERAGE: float(inside), COVERAGE_JOBS: int(jobs)}

    def _verdict(self, at: int) -> str:
        if self.limits[at] is not None:
            return REFUSED
        if at not in self.compared:
            return UNMEASURED if self.candidates[at].trained else UNTRAINED
        if at == self.answer:
            return GUESS if self.decided is None else CHOSEN
        within = self.within[at]
        return GOOD if within >= self.asked.confidence else WORSE if within <= 1 - self.asked.confidence else OPEN

    def steps(self) -> Iterator[tuple[str, str]]:
        """What would change the answer, most telling first."""
        if self.answer is None:
            yield "give more minutes", "no candidate within the limits has been trained"
            return
        if self.chosen_is_at_chance:
            yield (
                "give more minutes and images, and look at the labels",
                "no better than guessing, it shows nothing else",
            )
            return
        margin, confidence = self.asked.within / 100, self.asked.confidence
        promising = self._promising()
        at, n = self.compared, self.correct.shape[1]
        if self.decided is None:
            given = (self.correct[at], self.prior[at], self.strength[at], self.cost[at])
            times = images_needed(*given, margin, confidence)
            if times is not None:
                why = f"about {times:g} times as many would settle it, were all as accurate as now"
                yield f"judge by about {times * n:.0f} images instead of {n}", why
            else:
                yield (
                    "accept a wider margin",
                    f"no number of images would separate models {100 * margin:g} points apart",
                )
        elif not promising:
            yield self._beyond()
        for other, name in promising:
            chance = float((self.draws[:, other] > self.draws[:, self.answer] + margin).mean())
            yield (
                f"train {name}",
                f"it would be more than {100 * margin:g} points better with probability {100 * chance:.0f} %",
            )

    def _beyond(self) -> tuple[str, str]:
        """What a sure answer leaves open: candidates of which nothing is known, or over the limits."""
        unknown = [at for at, limit in enumerate(self.limits) if limit is None and np.isnan(self.mean[at])]
        over = [at for at, limit in enumerate(self.limits) if limit is not None]
        if unknown:
            name = name_of(self.candidates[unknown[0]].key)
            others = f"{name} is untrained, and nothing predicts it"
            if len(unknown) > 1:
                others = f"{len(unknown)} candidates, such as {name}, are untrained, and nothing predicts them"
            return "give more minutes", others
        if over:
            least = min(over, key=lambda at: self.cost[at])
            name, limit = name_of(self.candidates[least].key), self.limits[least]
            return (
                "relax the limits",
                f"{len(over)} of {len(self.limits)} candidates are over them, such as {name} ({limit})",
            )
        return "keep it", "no candidate that was left out is likely to change the answer"

    def _promising(self) -> list[tuple[int, str]]:
        """Untrained candidates within the limits that may well be better than the answer."""
        best = self.draws[:, self.answer] + self.asked.within / 100
        chance = np.nan_to_num((self.draws > best[:, None]).mean(axis=0))
        left = [at for at, limit in enumerate(self.limits) if limit is None and not self.candidates[at].trained]
        left = sorted((at for at in left if chance[at] > 1 - self.asked.confidence), key=lambda at: -chance[at])
        return [(at, name_of(self.candidates[at].key)) for at in left[:3]]


def _at_chance(row: Mapping[str, Any], guess: float) -> bool:
    """Of a training on its test images."""
    low = row.get(TOP1.low)
    return low is not None and at_chance(float(low), guess)


def _strength(one: Expected | None) -> float:
    if one is None or np.isnan(one.low):
        return 0.0
    return strength_of(one.value, one.low, one.high, NORMAL_90)
