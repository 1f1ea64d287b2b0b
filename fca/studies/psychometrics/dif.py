"""Which images are harder for one kind of network than for another kind of equal ability (analysis=dif)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int
from scipy.stats import false_discovery_control

from fca.stats.comparison import holm
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import DIFFICULTY, ITEM, N_ITEMS
from fca.studies.irt.fittable import clean_with_subjects, unfit
from fca.studies.irt.stats import IrtFit, ItemBank, score_ability
from fca.studies.irt.stats.model import Items, Matrix, Subjects
from fca.studies.psychometrics.stats.dif import MantelHaenszel, ets_class, logistic_dif, mantel_haenszel, strata_of
from fca.tables.answers import DatasetResponses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.responses import Responses
from fca.tables.table import DATASET, LABEL, P_HOLM, P, TableSpec, filled
from fca.types import Column, FcaError, Table
from fca.validation import Allowed, Seed

PAPER = "Holland & Thayer, 1988; Swaminathan & Rogers, 1990; classes: Dorans & Holland, 1993"
TRANSFORMERS = ("*vit*", "*deit*", "*beit*", "*swin*", "*dino*", "*transformer*")
LEVEL = 0.05  # an item is counted as having DIF if its corrected p value is below
SAMPLED = 2000  # the most items of a data set in the figure
CLASSES = {"A": "A: negligible", "B": "B: moderate", "C": "C: large"}

DELTA = Column("delta", float, "+.2f", "ETS delta; below 0: harder for the focal group")
DELTA_SE = Column("delta_se", float, ".2f", "standard error of delta")
ETS_CLASS = Column("ets_class", str, "", "size of DIF", CLASSES)
P_BH = Column("p_bh", float, ".3f", "p value of Mantel and Haenszel, false discovery rate")
CORRECTED_P = P_HOLM.with_format(".3f")
LOG_ODDS = Column("log_odds", float, "+.2f", "logits that the item is easier for the focal group, by regression")
FOCAL_TOP1 = Column("focal_top1", float, ".0%", "share right, focal group")
REFERENCE_TOP1 = Column("reference_top1", float, ".0%", "share right, reference group")
N_FOCAL = Column("n_focal", int, ".0f", "its models")
N_REFERENCE = Column("n_reference", int, ".0f", "its models")
N_MATCHED = Column("n_matched", int, ".0f", "models within the range of ability that both reach")
N_TESTED = Column("n_tested", int, ".0f", "items with enough responses")
CLASS_A = Column("class_a", int, ".0f", "items of class A")
CLASS_B = Column("class_b", int, ".0f", "items of class B")
CLASS_C = Column("class_c", int, ".0f", "items of class C")
BEYOND_BH = Column("beyond_bh", int, ".0f", "items with DIF at a false discovery rate of 5 %")

DIF_ITEMS = TableSpec(
    "dif_items",
    "Which items are harder for one group than for subjects of equal ability of the other?",
    PAPER,
    (
        DATASET,
        ITEM,
        LABEL,
        DIFFICULTY,
        REFERENCE_TOP1,
        FOCAL_TOP1,
        DELTA,
        DELTA_SE,
        ETS_CLASS,
        P.with_format(".3f", "p value of Mantel and Haenszel"),
        P_BH,
        CORRECTED_P,
        LOG_ODDS,
        Column("p_uniform", float, ".3f", "p value of uniform DIF, by regression"),
        Column("p_uniform_bh", float, ".3f", "the same, false discovery rate"),
        Column("p_non_uniform", float, ".3f", "p value of non-uniform DIF, by regression"),
        Column("p_non_uniform_bh", float, ".3f", "the same, false discovery rate"),
    ),
)
DIF_SHOWN = TableSpec("dif_shown", "Which items have DIF? (a sample)", PAPER, DIF_ITEMS.columns)
DIF_SUMMARY = TableSpec(
    "dif_summary",
    "Do the items measure both groups alike?",
    PAPER,
    (
        DATASET,
        Column("focal", tuple, "", "focal group"),
        Column("reference", tuple, "", "reference group"),
        N_FOCAL,
        N_REFERENCE,
        N_MATCHED,
        N_ITEMS,
        N_TESTED,
        CLASS_A,
        CLASS_B,
        CLASS_C,
        BEYOND_BH,
        Column("beyond_holm", int, ".0f", "items with DIF after Holm, 5 %"),
        Column("uniform_bh", int, ".0f", "with uniform DIF by regression, false discovery rate 5 %"),
        Column("non_uniform_bh", int, ".0f", "with non-uniform DIF, false discovery rate 5 %"),
        fits.NOT_ESTIMABLE,
    ),
)
METHOD = {
    "subjects": "one a model: its ablest snapshot, since snapshots of a model are not independent",
    "matching": "ability of a 2pl of both groups; then again by the items that are not in class C",
    "strata": "of like ability, within the range that both groups reach, for Mantel and Haenszel",
    "size": "simulated without DIF at 34 to 130 subjects: at p < 0.05 Mantel and Haenszel flag 0.5 to 3 %, the "
    "regression 4.9 to 5.6 % (uniform) and 4.7 to 5.4 % (non-uniform), by score tests",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dif:
    """`analysis=dif`; reads full models' responses to clean test images, and files of responses."""

    tables: ClassVar = (DIF_SUMMARY, DIF_ITEMS, DIF_SHOWN)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    focal: Annotated[list[str], "models of the one group, by name, with * and ?"] = field(
        default_factory=lambda: list(TRANSFORMERS)
    )
    reference: Annotated[list[str], "models of the other group; empty: all the rest"] = field(default_factory=list)
    strata: Annotated[int, Allowed(1, 100), "of like ability, within which the two groups are compared"] = 5
    seed: Annotated[Seed, "of the items that are drawn in the figure"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables dif_summary (a line for each data set), dif_items (each item) and dif_shown (the items of the figure).

        A data set is left out, with a line in the log, if the responses of its compared subjects cannot be fitted
        together, for example if subjects have no items in common. Raises FcaError if no data set remains.
        """
        comparisons, problems = self._comparisons(store)
        if not comparisons:
            raise problems[0]
        for problem in problems:
            log.warning("left out: %s", problem)

        frames_of_datasets = [_frames_of_dataset(comparison, self) for comparison in comparisons]
        frames_of_tables = zip(*frames_of_datasets, strict=True)  # for each table, its frames of all data sets
        joined_frames = [pd.concat(frames, ignore_index=True) for frames in frames_of_tables]

        runs = {run for comparison in comparisons for run in comparison.all_subjects.runs}
        parameters = {
            **asdict(self),
            **METHOD,
            # digests, which identify the responses of all subjects; the patterns `focal` and `reference`, which are
            # parameters too, select the compared subjects from them
            "answers": [fits.digest_of(comparison.all_subjects) for comparison in comparisons],
        }
        # data set -> the scales, such as the spread of difficulty, that its fit could not estimate
        not_estimable = {}
        for summary, *_ in frames_of_datasets:  # the first frame is that of dif_summary
            for row in summary.to_dict("records"):
                if row["not_estimable"]:
                    not_estimable[row["dataset"]] = list(row["not_estimable"])
        if not_estimable:
            parameters["not_estimable"] = not_estimable
        if problems:
            parameters["left_out"] = [str(problem) for problem in problems]
        return filled(self.tables, joined_frames, parameters, runs)

    def _comparisons(self, store: Store) -> tuple[list[_Comparison], list[FcaError]]:
        """The comparisons to make, and the reasons why other data sets cannot be compared.

        A data set is left out silently if either group has fewer than two models in it. It is left out with a reason
        if the responses of the compared models cannot be fitted together. Raises FcaError if no data set has two models
        in both groups.
        """
        gathered_sets = clean_with_subjects(store, self.query, self.responses)
        comparisons: list[_Comparison] = []
        problems: list[FcaError] = []
        for gathered in gathered_sets:
            positions, is_focal = self._compared_subjects(gathered.responses)
            if min(is_focal.sum(), (~is_focal).sum()) < 2:
                continue

            # a data set that can be fitted with all of its subjects perhaps cannot with the compared ones alone
            compared = _with_subjects(gathered, positions)
            problem = unfit(compared)
            if problem is None:
                comparisons.append(_Comparison(gathered, compared, is_focal))
            else:
                problems.append(problem)

        if not comparisons and not problems:
            names = sorted({name for gathered in gathered_sets for name in gathered.responses.subjects["model"]})
            allowed = "two models or more in each group of one data set"
            step = f"name groups among {', '.join(names[:20])}: analysis.focal=[...] analysis.reference=[...]"
            raise FcaError("analysis.focal", ", ".join(self.focal), allowed, step)
        return comparisons, problems

    def _compared_subjects(
        self, responses: Responses
    ) -> tuple[Int[np.ndarray, " compared"], Bool[np.ndarray, " compared"]]:
        """The subjects to compare: the most accurate snapshot of each model that belongs to a group.

        Returns their positions among all subjects, in ascending order, and whether the model of each is in the focal
        group; the others are in the reference group. A model that the patterns of both groups match is focal. One
        snapshot stands for its model because snapshots of a model are not independent.
        """
        models = responses.subjects["model"]  # of each subject, indexed by its position
        reference_patterns = self.reference or ["*"]  # no reference group named: all models that are not focal
        in_focal = models.map(lambda name: _matches_any(name, self.focal))
        in_reference = models.map(lambda name: _matches_any(name, reference_patterns)) & ~in_focal

        # the first subject of each model, when the most accurate subjects come first
        most_accurate_first = np.argsort(-responses.accuracy, kind="stable")
        best_of_models = models.iloc[most_accurate_first].drop_duplicates().index
        is_in_a_group = (in_focal | in_reference)[best_of_models]
        positions = np.sort(best_of_models[is_in_a_group].to_numpy())
        return positions, in_focal.to_numpy()[positions]


class _Comparison(NamedTuple):
    """The responses of a data set, those of the compared subjects alone, and which of these are in the focal group."""

    all_subjects: DatasetResponses
    compared: DatasetResponses
    is_focal: Bool[np.ndarray, " compared"]


def _matches_any(name: str, patterns: list[str]) -> bool:
    """Whether a model's name matches one of these patterns with * and ?."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _with_subjects(gathered: DatasetResponses, positions: Int[np.ndarray, " compared"]) -> DatasetResponses:
    """The responses of the subjects at these positions, without the items that none of them responded to.

    Predictions (`pred`) are left out, as DIF (differential item functioning) needs only right and wrong.
    """
    responses = gathered.responses
    correct = responses.correct[positions]
    has_response = ~np.isnan(correct).all(axis=0)
    subjects = responses.subjects.iloc[positions].reset_index(drop=True)
    return gathered._replace(responses=Responses(correct[:, has_response], subjects, responses.items[has_response]))


def _frames_of_dataset(comparison: _Comparison, settings: Dif) -> tuple[pd.DataFrame, ...]:
    """The lines of one data set in the tables dif_summary, dif_items and dif_shown (a sample of the tested items).

    An item has DIF (differential item functioning) if it is harder for one group of models than for models of equal
    ability of the other group. The summary counts the tested items in two ways: by the size of DIF (classes A, B and C
    of the Educational Testing Service, ETS: negligible, moderate and large), and by its significance. p values are
    corrected for the number of items, by Benjamini and Hochberg (`bh`: at most 5 % of the counted items are expected to
    be false) or by Holm (a chance of at most 5 % that any is false). Uniform DIF is equal at every ability, non-uniform
    DIF changes with ability.

    comparison: the responses of the compared models, and which of these are in the focal group; the others are the
        reference group.
    """
    compared = comparison.compared
    is_focal = comparison.is_focal
    fit = fits.fitted(compared)
    tested, ability, stratum = _matched_statistics(compared.responses.correct, fit, is_focal, settings.strata)
    items = _item_rows(comparison, tested, ability).assign(difficulty=fit.difficulty)
    is_tested = items["p"].notna()  # NaN where responses are too few, or odds 0 or infinite: `delta` is NaN there too

    models = compared.responses.subjects["model"].to_numpy()
    summary: dict[str, Any] = {
        "dataset": compared.dataset,
        "n_items": len(items),
        "focal": tuple(models[is_focal]),
        "reference": tuple(models[~is_focal]),
        "n_focal": int(is_focal.sum()),
        "n_reference": int((~is_focal).sum()),
        "n_matched": int((stratum >= 0).sum()),  # -1: outside the range that both groups reach
        "not_estimable": fit.not_estimable,  # scales, such as the spread of difficulty, that are taken from the prior
        "n_tested": int(is_tested.sum()),
        "class_a": int((items["ets_class"] == "A").sum()),
        "class_b": int((items["ets_class"] == "B").sum()),
        "class_c": int((items["ets_class"] == "C").sum()),
        "beyond_bh": int((items["p_bh"] < LEVEL).sum()),  # test of Mantel and Haenszel
        "beyond_holm": int((items["p_holm"] < LEVEL).sum()),
        "uniform_bh": int((items["p_uniform_bh"] < LEVEL).sum()),  # tests by logistic regression
        "non_uniform_bh": int((items["p_non_uniform_bh"] < LEVEL).sum()),
    }

    # a figure of all items would be too large: draw some, in the order of the items
    tested_items = items[is_tested]
    sample = np.random.default_rng(settings.seed).permutation(len(tested_items))[:SAMPLED]
    return pd.DataFrame([summary]), items, tested_items.iloc[np.sort(sample)]


def _matched_statistics(
    correct: Matrix, fit: IrtFit, is_focal: Bool[np.ndarray, " compared"], n_strata: int
) -> tuple[MantelHaenszel, Subjects, Int[np.ndarray, " compared"]]:
    """Mantel and Haenszel's statistics of the items, and the abilities and strata by which subjects were matched.

    The statistics compare the focal and the reference group within each stratum, a set of subjects of like ability.
    Subjects are first matched by their ability on all items. Items that are much harder for one group at equal ability
    (large DIF, class C) distort this ability, so subjects are then matched again by their ability on the other items.
    The first matching stands if no item is in class C, or if some subject responded only to items of class C.

    correct: subjects x items; 1, 0, NaN for no response.
    fit: the item response model of these responses.
    n_strata: the number of strata.
    """
    stratum = strata_of(fit.ability, is_focal, n_strata)
    tested = mantel_haenszel(correct, is_focal, stratum)

    is_fair = np.array([name != "C" for name in ets_class(tested)])
    lacks_fair_items = np.isnan(correct[:, is_fair]).all(axis=1).any()
    if is_fair.all() or lacks_fair_items:
        return tested, fit.ability, stratum

    fair_bank = ItemBank(fit.model, *(values[is_fair] for values in fit.bank[1:]))  # [0] is the model
    ability = score_ability(correct[:, is_fair], fair_bank).ability
    stratum = strata_of(ability, is_focal, n_strata)
    return mantel_haenszel(correct, is_focal, stratum), ability, stratum


def _item_rows(comparison: _Comparison, tested: MantelHaenszel, ability: Subjects) -> pd.DataFrame:
    """The lines of one data set in table dif_items, without the difficulties, which the caller adds.

    An item has DIF (differential item functioning) if it is harder for one group than for subjects of equal ability of
    the other group. Two methods measure it:

    Mantel and Haenszel compare the groups within strata of like ability. `delta` is the logarithm of their common odds
    ratio (reference against focal group) times -2.35, the scale of the Educational Testing Service (ETS). It is below 0
    if the item is harder for the focal group. `ets_class` is the size of DIF: A negligible, B moderate, C large.

    A logistic regression of responses on ability and group tests uniform DIF, which is equal at every ability and has
    the size `log_odds`, and non-uniform DIF, which changes with ability.

    p values are also given corrected for the number of items: by Benjamini and Hochberg (`_bh`), who bound the share of
    false findings, and by Holm (`p_holm`), who bounds the chance of any false finding.

    tested: Mantel and Haenszel's statistics of the items.
    ability: ability of the compared subjects, a regressor of the logistic regression.
    """
    responses = comparison.compared.responses
    is_focal = comparison.is_focal
    regression = logistic_dif(responses.correct, is_focal, ability)
    return responses.items[["item", "label"]].assign(
        dataset=comparison.compared.dataset,
        reference_top1=_share_right(responses.correct[~is_focal]),
        focal_top1=_share_right(responses.correct[is_focal]),
        delta=tested.delta,
        delta_se=tested.delta_se,
        ets_class=np.array(ets_class(tested), dtype=object),
        p=tested.p,
        p_bh=_corrected(tested.p, false_discovery_control),  # Benjamini and Hochberg
        p_holm=_corrected(tested.p, holm),
        log_odds=regression.log_odds,
        p_uniform=regression.uniform,
        p_uniform_bh=_corrected(regression.uniform, false_discovery_control),
        p_non_uniform=regression.non_uniform,
        p_non_uniform_bh=_corrected(regression.non_uniform, false_discovery_control),
    )


def _share_right(correct: Matrix) -> Items:
    """The share of right responses to each item; NaN for an item without a response."""
    n_responses = (~np.isnan(correct)).sum(axis=0)
    return np.where(n_responses > 0, np.nansum(correct, axis=0) / np.maximum(n_responses, 1), np.nan)


def _corrected(p: Items, correction: Callable[[Items], Items]) -> Items:
    """p values corrected for the number of tested items; NaN for items that were not tested.

    correction: the procedure, which takes p values without missing ones.
    """
    is_tested = ~np.isnan(p)
    corrected = np.full(len(p), np.nan)
    if is_tested.any():
        corrected[is_tested] = correction(p[is_tested])
    return corrected
