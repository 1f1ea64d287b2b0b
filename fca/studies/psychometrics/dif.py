"""Which images are harder for one kind of network than for another of equal ability (analysis=dif)."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int
from scipy.stats import false_discovery_control

from fca.stats.comparison import holm
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import DIFFICULTY, ITEM, N_ITEMS
from fca.studies.irt.fittable import clean_with_subjects, unfit
from fca.studies.irt.stats import ItemBank, score_ability
from fca.studies.irt.stats.model import Items, Subjects
from fca.studies.psychometrics.stats.dif import MantelHaenszel, ets_class, logistic_dif, mantel_haenszel, strata_of
from fca.tables.answers import DatasetResponses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.responses import Responses
from fca.tables.table import DATASET, LABEL, P_HOLM, P, TableSpec, filled
from fca.types import Column, FcaError, Table
from fca.validation import Allowed, Seed

PAPER = "Holland & Thayer, 1988; Swaminathan & Rogers, 1990; classes: Dorans & Holland, 1993"
TRANSFORMERS = ("*vit*", "*deit*", "*beit*", "*swin*", "*dino*", "*transformer*")
LEVEL = 0.05
SHOWN = 2000  # items a data set in the figure
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
        *(DATASET, ITEM, LABEL, DIFFICULTY, REFERENCE_TOP1, FOCAL_TOP1, DELTA, DELTA_SE, ETS_CLASS),
        *(P.with_format(".3f", "p value of Mantel and Haenszel"), P_BH, CORRECTED_P, LOG_ODDS),
        *(Column("p_uniform", float, ".3f", "p value of uniform DIF, by regression"),),
        *(Column("p_uniform_bh", float, ".3f", "the same, false discovery rate"),),
        *(Column("p_non_uniform", float, ".3f", "p value of non-uniform DIF, by regression"),),
        Column("p_non_uniform_bh", float, ".3f", "the same, false discovery rate"),
    ),
)
DIF_SHOWN = TableSpec("dif_shown", "Which items have DIF? (a sample)", PAPER, DIF_ITEMS.columns)
DIF_SUMMARY = TableSpec(
    "dif_summary",
    "Do the items measure both groups alike?",
    PAPER,
    (
        *(DATASET, Column("focal", tuple, "", "focal group"), Column("reference", tuple, "", "reference group")),
        *(N_FOCAL, N_REFERENCE, N_MATCHED, N_ITEMS, N_TESTED, CLASS_A, CLASS_B, CLASS_C, BEYOND_BH),
        *(Column("beyond_holm", int, ".0f", "items with DIF after Holm, 5 %"),),
        *(Column("uniform_bh", int, ".0f", "with uniform DIF by regression, false discovery rate 5 %"),),
        *(Column("non_uniform_bh", int, ".0f", "with non-uniform DIF, false discovery rate 5 %"), fits.NOT_ESTIMABLE),
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
        """One line a data set, one an item, and those that are drawn.

        A set whose compared subjects cannot be fitted together, as without common items, is left out with a line in
        the log. Raises FcaError where no set is left.
        """
        datasets = clean_with_subjects(store, self.query, self.responses)
        with_groups = []
        for gathered in datasets:
            groups = self._groups(gathered.responses)
            if groups is not None:
                with_groups.append((gathered, *groups))
        if not with_groups:
            names = sorted({name for gathered in datasets for name in gathered.responses.subjects["model"]})
            allowed = "two models or more in each group of one data set"
            step = f"name groups among {', '.join(names[:20])}: analysis.focal=[...] analysis.reference=[...]"
            raise FcaError("analysis.focal", ", ".join(self.focal), allowed, step)

        # The sets whose compared subjects can be fitted together
        fittable: list[tuple[DatasetResponses, Bool[np.ndarray, " compared"]]] = []
        problems: list[FcaError] = []
        for gathered, positions, is_focal in with_groups:
            compared = _compared(gathered, positions)
            problem = unfit(compared)
            if problem:
                problems.append(problem)
            else:
                fittable.append((compared, is_focal))
        if not fittable:
            raise problems[0]
        for problem in problems:
            log.warning("left out: %s", problem)

        frames_of_sets = [_lines(compared, is_focal, self) for compared, is_focal in fittable]
        frames = [
            pd.concat(frames_of_table, ignore_index=True) for frames_of_table in zip(*frames_of_sets, strict=True)
        ]
        fitted_sets = {compared.dataset for compared, _ in fittable}
        used = [gathered for gathered, *_ in with_groups if gathered.dataset in fitted_sets]
        run_ids = {run_id for gathered in used for run_id in gathered.runs}
        parameters: dict[str, Any] = {
            **asdict(self),
            **METHOD,
            "answers": [fits.digest_of(gathered) for gathered in used],
        }
        not_estimable = _not_estimable(frames[0])
        if not_estimable:
            parameters["not_estimable"] = not_estimable
        if problems:
            parameters["left_out"] = [str(problem) for problem in problems]
        return filled(self.tables, frames, parameters, run_ids)

    def _groups(
        self, responses: Responses
    ) -> tuple[Int[np.ndarray, " compared"], Bool[np.ndarray, " compared"]] | None:
        """Positions of the compared subjects, the ablest of each model, and which are of the focal group.

        None if a group has fewer than two models.
        """
        models = responses.subjects["model"]
        is_focal = models.map(lambda name: _matches(name, self.focal))
        is_reference = models.map(lambda name: _matches(name, self.reference or ["*"])) & ~is_focal
        ablest_first = np.argsort(-responses.accuracy, kind="stable")
        ablest = models.iloc[ablest_first].drop_duplicates().index
        is_compared = (is_focal | is_reference)[ablest]
        positions = np.sort(ablest[is_compared].to_numpy())
        is_focal_of_compared = is_focal.to_numpy()[positions]
        if min(is_focal_of_compared.sum(), (~is_focal_of_compared).sum()) < 2:
            return None
        return positions, is_focal_of_compared


def _not_estimable(summary: pd.DataFrame) -> dict[str, list[str]]:
    """The parameters of each data set that are not estimable."""
    lines = summary.to_dict("records")
    return {line["dataset"]: list(line["not_estimable"]) for line in lines if line["not_estimable"]}


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _compared(gathered: DatasetResponses, positions: Int[np.ndarray, " compared"]) -> DatasetResponses:
    """The responses of the compared subjects, to items that any of them responded to."""
    responses = gathered.responses
    correct = responses.correct[positions]
    has_responses = ~np.isnan(correct).all(axis=0)
    subjects = responses.subjects.iloc[positions].reset_index(drop=True)
    items = responses.items[has_responses]
    return gathered._replace(responses=Responses(correct[:, has_responses], subjects, items))


def _lines(
    gathered: DatasetResponses, is_focal: Bool[np.ndarray, " compared"], options: Dif
) -> tuple[pd.DataFrame, ...]:
    """The line of a data set, its items, and the items that are drawn."""
    test, ability, stratum, difficulty = _matched(gathered, is_focal, options.strata)
    items = _items(gathered, is_focal, test, ability).assign(difficulty=difficulty)
    models = gathered.responses.subjects["model"].to_numpy()
    line: dict[str, Any] = {
        "dataset": gathered.dataset,
        "n_items": len(items),
        "focal": tuple(models[is_focal]),
        "reference": tuple(models[~is_focal]),
        "n_focal": int(is_focal.sum()),
        "n_reference": int((~is_focal).sum()),
        "n_matched": int((stratum >= 0).sum()),
        "not_estimable": fits.fitted(gathered).not_estimable,
        "n_tested": int(items["p"].notna().sum()),
        **{f"class_{name.lower()}": int((items["ets_class"] == name).sum()) for name in CLASSES},
        "beyond_bh": int((items["p_bh"] < LEVEL).sum()),
        "beyond_holm": int((items["p_holm"] < LEVEL).sum()),
        "uniform_bh": int((items["p_uniform_bh"] < LEVEL).sum()),
        "non_uniform_bh": int((items["p_non_uniform_bh"] < LEVEL).sum()),
    }
    tested = items[items["delta"].notna()]
    sample = np.random.default_rng(options.seed).permutation(len(tested))[:SHOWN]
    return pd.DataFrame([line]), items, tested.iloc[np.sort(sample)]


def _matched(
    gathered: DatasetResponses, is_focal: Bool[np.ndarray, " compared"], strata: int
) -> tuple[MantelHaenszel, Subjects, Int[np.ndarray, " compared"], Items]:
    """DIF at equal ability, found by all items and then by those that are not in class C; and their difficulties."""
    fit = fits.fitted(gathered)
    correct = gathered.responses.correct
    ability = fit.ability
    stratum = strata_of(ability, is_focal, strata)
    test = mantel_haenszel(correct, is_focal, stratum)

    is_fair = np.array([name != "C" for name in ets_class(test)])
    has_subject_without_fair_response = np.isnan(correct[:, is_fair]).all(axis=1).any()
    if not is_fair.all() and not has_subject_without_fair_response:
        fair_bank = ItemBank(fit.model, *(values[is_fair] for values in fit.bank[1:]))
        ability = score_ability(correct[:, is_fair], fair_bank).ability
        stratum = strata_of(ability, is_focal, strata)
        test = mantel_haenszel(correct, is_focal, stratum)
    return test, ability, stratum, fit.difficulty


def _items(
    gathered: DatasetResponses, is_focal: Bool[np.ndarray, " compared"], test: MantelHaenszel, ability: Subjects
) -> pd.DataFrame:
    """Both tests of every item, with p-values corrected for the number of items."""
    correct = gathered.responses.correct
    regression = logistic_dif(correct, is_focal, ability)
    return gathered.responses.items[["item", "label"]].assign(
        dataset=gathered.dataset,
        reference_top1=_share(correct[~is_focal]),
        focal_top1=_share(correct[is_focal]),
        delta=test.delta,
        delta_se=test.delta_se,
        ets_class=np.array(ets_class(test), dtype=object),
        p=test.p,
        p_bh=_corrected(test.p, false_discovery_control),
        p_holm=_corrected(test.p, holm),
        log_odds=regression.log_odds,
        p_uniform=regression.uniform,
        p_uniform_bh=_corrected(regression.uniform, false_discovery_control),
        p_non_uniform=regression.non_uniform,
        p_non_uniform_bh=_corrected(regression.non_uniform, false_discovery_control),
    )


def _share(correct: np.ndarray) -> np.ndarray:
    """Share of right responses to each item; NaN without any."""
    n_responses = (~np.isnan(correct)).sum(axis=0)
    return np.where(n_responses > 0, np.nansum(correct, axis=0) / np.maximum(n_responses, 1), np.nan)


def _corrected(p: np.ndarray, correction: Any) -> np.ndarray:
    """p-values corrected for the number of items that were tested."""
    is_tested = ~np.isnan(p)
    corrected = np.full(len(p), np.nan)
    if is_tested.any():
        corrected[is_tested] = correction(p[is_tested])
    return corrected
