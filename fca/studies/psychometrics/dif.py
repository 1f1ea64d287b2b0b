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
        every = clean_with_subjects(store, self.query, self.responses)
        grouped = [(one, *groups) for one in every if (groups := self._groups(one.responses)) is not None]
        if not grouped:
            names = sorted({name for one in every for name in one.responses.subjects["model"]})
            allowed = "two models or more in each group of one data set"
            step = f"name groups among {', '.join(names[:20])}: analysis.focal=[...] analysis.reference=[...]"
            raise FcaError("analysis.focal", ", ".join(self.focal), allowed, step)

        compared, problems = list[tuple[DatasetResponses, Bool[np.ndarray, " kept"]]](), list[FcaError]()
        for gathered, kept, focal in grouped:
            part = _compared(gathered, kept)
            if problem := unfit(part):
                problems.append(problem)
            else:
                compared.append((part, focal))
        if not compared:
            raise problems[0]
        for problem in problems:
            log.warning("left out: %s", problem)

        found = [_lines(part, focal, self) for part, focal in compared]
        lines = [pd.concat(part, ignore_index=True) for part in zip(*found, strict=True)]
        fitted_sets = {part.dataset for part, _ in compared}
        used = [gathered for gathered, *_ in grouped if gathered.dataset in fitted_sets]
        runs = {run for gathered in used for run in gathered.runs}
        digests = [fits.digest_of(gathered) for gathered in used]
        summaries = [line for summary, *_ in found for line in summary.to_dict("records")]
        taken = {line["dataset"]: list(line["not_estimable"]) for line in summaries if line["not_estimable"]}
        parameters = {**asdict(self), **METHOD, "answers": digests, **({"not_estimable": taken} if taken else {})}
        if problems:
            parameters["left_out"] = [str(problem) for problem in problems]
        return filled(self.tables, lines, parameters, runs)

    def _groups(self, responses: Responses) -> tuple[Int[np.ndarray, " kept"], Bool[np.ndarray, " kept"]] | None:
        """Positions of the compared subjects, one a model, and which are of the focal group."""
        models = responses.subjects["model"]
        focal = models.map(lambda name: _named(name, self.focal))
        other = models.map(lambda name: _named(name, self.reference or ["*"])) & ~focal
        order = np.argsort(-responses.accuracy, kind="stable")
        best = models.iloc[order].drop_duplicates().index
        kept = np.sort(best[(focal | other)[best]].to_numpy())
        member = focal.to_numpy()[kept]
        return (kept, member) if min(member.sum(), (~member).sum()) >= 2 else None


def _named(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _compared(gathered: DatasetResponses, kept: Int[np.ndarray, " kept"]) -> DatasetResponses:
    """The responses of the compared subjects, to items that any of them responded to."""
    every = gathered.responses
    known = ~np.isnan(every.correct[kept]).all(axis=0)
    subjects = every.subjects.iloc[kept].reset_index(drop=True)
    return gathered._replace(responses=Responses(every.correct[kept][:, known], subjects, every.items[known]))


def _lines(part: DatasetResponses, focal: Bool[np.ndarray, " kept"], how: Dif) -> tuple[pd.DataFrame, ...]:
    found, ability, stratum, difficulty = _matched(part, focal, how.strata)
    items = _items(part, focal, found, ability).assign(difficulty=difficulty)
    models = part.responses.subjects["model"].to_numpy()
    line: dict[str, Any] = {"dataset": part.dataset, "n_items": len(items)}
    line |= {"focal": tuple(models[focal]), "reference": tuple(models[~focal]), "n_focal": int(focal.sum())}
    line |= {"n_reference": int((~focal).sum()), "n_matched": int((stratum >= 0).sum())}
    line["not_estimable"] = fits.fitted(part).not_estimable
    line |= {"n_tested": int(items["p"].notna().sum())}
    line |= {f"class_{name.lower()}": int((items["ets_class"] == name).sum()) for name in CLASSES}
    beyond = {"beyond_bh": "p_bh", "beyond_holm": "p_holm", "uniform_bh": "p_uniform_bh"}
    beyond |= {"non_uniform_bh": "p_non_uniform_bh"}
    line |= {name: int((items[column] < LEVEL).sum()) for name, column in beyond.items()}
    tested = items[items["delta"].notna()]
    drawn = np.random.default_rng(how.seed).permutation(len(tested))[:SHOWN]
    return pd.DataFrame([line]), items, tested.iloc[np.sort(drawn)]


def _matched(
    part: DatasetResponses, focal: Bool[np.ndarray, " kept"], strata: int
) -> tuple[MantelHaenszel, Subjects, Int[np.ndarray, " kept"], Items]:
    """DIF at equal ability, found by all items and then by those that are not in class C; and their difficulties."""
    fit, correct = fits.fitted(part), part.responses.correct
    ability = fit.ability
    stratum = strata_of(ability, focal, strata)
    found = mantel_haenszel(correct, focal, stratum)
    fair = np.array([name != "C" for name in ets_class(found)])
    if not fair.all() and not np.isnan(correct[:, fair]).all(axis=1).any():
        bank = ItemBank(fit.model, *(values[fair] for values in fit.bank[1:]))
        ability = score_ability(correct[:, fair], bank).ability
        stratum = strata_of(ability, focal, strata)
        found = mantel_haenszel(correct, focal, stratum)
    return found, ability, stratum, fit.difficulty


def _items(
    part: DatasetResponses, focal: Bool[np.ndarray, " kept"], found: MantelHaenszel, ability: Subjects
) -> pd.DataFrame:
    correct = part.responses.correct
    regression = logistic_dif(correct, focal, ability)
    return part.responses.items[["item", "label"]].assign(
        dataset=part.dataset,
        reference_top1=_share(correct[~focal]),
        focal_top1=_share(correct[focal]),
        delta=found.delta,
        delta_se=found.delta_se,
        ets_class=np.array(ets_class(found), dtype=object),
        p=found.p,
        p_bh=_corrected(found.p, false_discovery_control),
        p_holm=_corrected(found.p, holm),
        log_odds=regression.log_odds,
        p_uniform=regression.uniform,
        p_uniform_bh=_corrected(regression.uniform, false_discovery_control),
        p_non_uniform=regression.non_uniform,
        p_non_uniform_bh=_corrected(regression.non_uniform, false_discovery_control),
    )


def _share(correct: np.ndarray) -> np.ndarray:
    number = (~np.isnan(correct)).sum(axis=0)
    return np.where(number > 0, np.nansum(correct, axis=0) / np.maximum(number, 1), np.nan)


def _corrected(p: np.ndarray, how: Any) -> np.ndarray:
    """Corrected for the number of items that were tested."""
    known, corrected = ~np.isnan(p), np.full(len(p), np.nan)
    if known.any():
        corrected[known] = how(p[known])
    return corrected
