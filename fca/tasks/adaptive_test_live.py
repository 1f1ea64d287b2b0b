"""A test as it is taken: the policy asks, the network answers, the journal keeps, the estimate says when to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Integer

from fca.data.pixels import Pixels, open_pixels
from fca.nouns import Arrays, Classifier, ImageData
from fca.stats.adaptive import LEVELS, TARGETS, Estimate, Policy, Pool
from fca.tasks import Setup
from fca.tasks.adaptive_test_journal import Answers, Journal
from fca.tasks.adaptive_test_pool import Questions
from fca.tasks.answers import answer_arrays

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
            policy.tell(positions, examinee.right(len(rounds), positions))
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
