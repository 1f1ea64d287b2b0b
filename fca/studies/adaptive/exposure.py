"""How often replayed tests evaluate each image, and whether abilities from these few responses order the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fca.stats.correlation import kendall
from fca.stats.intervals import NO_INTERVAL
from fca.studies.adaptive.adaptive_tests import BUDGET, ESTIMATOR, POLICY, SHARE
from fca.studies.adaptive.stats import Pool, Record
from fca.studies.adaptive.stats.policies import ability_of
from fca.studies.irt.stats import ItemBank
from fca.studies.progressive.levels import PAPER, Line, cells
from fca.tables.table import DATASET, MODELS, TableSpec
from fca.types import Column, interval_columns

LARGEST = Column("exposure", float, ".1%", "share of the tests that ask the image that is asked most often")
NEVER = Column("never", float, ".1%", "share of the images that no test asks")
COMMON = Column("common", float, ".1%", "share of a test's images that the test of another model asks too")
ABILITY_TAU = Column(
    "ability_tau", float, ".2f", "Kendall's tau of the order by ability and the true order of the models"
)
METHOD = Column("method", str, "", "kind of test")
REPEATS = Column("repeats", int, ".0f", "tests of each kind and model")

ADAPTIVE_EXPOSURE = TableSpec(
    "adaptive_exposure",
    "Do tests ask the same images again and again, and do these order the models?",
    f"Sympson & Hetter, 1985 (item exposure); {PAPER}, section 5",
    (
        *(DATASET, METHOD, POLICY, ESTIMATOR, BUDGET, SHARE, LARGEST, NEVER, COMMON),
        *(*interval_columns(ABILITY_TAU), MODELS, REPEATS),
    ),
)
FEWEST = 3  # models that have an order


class ModelExposure(NamedTuple):
    """The images that the tests of one model evaluated, and the ability that each test measured.

    evaluated: whether each test (repeat) evaluated each image.
    expected:  of each test, the accuracy on all images that the bank expects at the measured ability; empty without
               a bank.
    """

    evaluated: Bool[np.ndarray, "repeats items"]
    expected: Float[np.ndarray, " abilities"]


def exposure_of_model(records: Sequence[Record], pool: Pool, bank: ItemBank | None) -> ModelExposure:
    """The images that the tests of one model evaluated, and the ability measured by each, expressed as an accuracy.

    Abilities of two models cannot be compared, since each model's bank is fitted on other networks and has a scale of
    its own. The accuracies that the banks expect at these abilities can be compared.

    records: one for each test.
    """
    evaluated = np.stack([record.evaluated for record in records])
    if bank is None:
        return ModelExposure(evaluated, np.array([]))

    abilities = np.array([ability_of(record, bank)[0] for record in records])
    weights = pool.weights[0] / pool.n_groups  # of each item in the mean accuracy over groups; target 0 is accuracy
    return ModelExposure(evaluated, bank.probability(abilities) @ weights)


def exposure_line(tests: Sequence[ModelExposure], truth: Float[np.ndarray, " models"], networks: Sequence[str]) -> Line:
    """Columns of a table: how often the tests of all models evaluate each image, and how well tests order the models.

    The order is measured by Kendall's tau between the true accuracies and the expected ones. The expected accuracy of a
    model is the one on all images that its item bank predicts from the ability that the test measured. (The abilities
    themselves cannot be compared, since each model has another bank.) Tau and both ends of its interval, which leaves
    out networks, are means over repeats. They are NaN with fewer than FEWEST models, and without a bank.

    tests:    one for each model, with all repeats of its test.
    truth:    accuracy of each model on all images.
    networks: the network of each model.

    >>> evaluated = np.array([[[True, True, False, False]], [[True, False, True, False]]])  # models, repeats, images
    >>> without_bank = np.empty(0)  # no expected accuracies
    >>> tests = [ModelExposure(of_model, without_bank) for of_model in evaluated]
    >>> line = exposure_line(tests, np.array([0.5, 0.6]), ["a", "b"])
    >>> line["exposure"], line["never"], line["common"]
    (1.0, 0.25, 0.5)
    """
    models = len(tests)
    # how many models' tests evaluate each image in each repeat; repeats x items
    times = np.sum([of_model.evaluated for of_model in tests], axis=0)
    repeats = times.shape[0]

    # The share of a test's images that the test of another model evaluates too. An image that n tests evaluate is
    # shared by n (n - 1) ordered pairs of tests, and each test is compared with models - 1 others.
    common = float("nan")
    if models > 1:
        common = float((times * (times - 1)).sum() / (models - 1) / times.sum())

    expected = np.stack([of_model.expected for of_model in tests], axis=1)  # repeats x models; 0 x models without bank
    taus = [kendall(truth, of_repeat, networks) for of_repeat in expected] if models >= FEWEST else []
    tau, low, high = np.mean(taus, axis=0).tolist() if taus else (float("nan"), *NO_INTERVAL)
    return {
        LARGEST: float(times.sum(axis=0).max() / repeats / models),  # of the tests, for the most frequent image
        NEVER: float((times == 0).all(axis=0).mean()),  # share of the images that no test evaluates
        COMMON: common,
        **cells(interval_columns(ABILITY_TAU), (tau, low, high)),
    }
