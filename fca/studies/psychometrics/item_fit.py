"""Do images and models respond as item response theory expects, and do images go together (analysis=item_fit)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.progress import track
from fca.stats.intervals import interval_method, mean_with_interval
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import ABILITY, DIFFICULTY, DISCRIMINATION, IRT_MODEL, ITEM, N_ITEMS, N_SUBJECTS, SUBJECT
from fca.studies.irt.fittable import clean_with_subjects
from fca.studies.irt.stats import IrtFit
from fca.studies.psychometrics.stats.dependence import highest, mean_q3, most_dependent, pairable, scaled_residuals
from fca.studies.psychometrics.stats.item_fit import MeanSquares, mean_squares, misfit, replicates
from fca.studies.psychometrics.stats.score_fit import MOST_ITEMS, score_fit
from fca.tables.answers import DatasetResponses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import DATASET, LABEL, MODEL, SNAPSHOT, TOP1, TableSpec, filled
from fca.types import Column, Table, interval_columns
from fca.validation import Allowed, Seed

SOURCE = "Wright & Masters (Rating scale analysis, 1982), chapter 5"
YEN = "Yen (Effects of local item dependence, 1984); Christensen, Makransky & Horton, 2017"
FEWEST_ITEMS = 60  # of S-X²: below, fitted items bend towards abilities that few items leave open
SAMPLED = 2000  # items a data set in the figure
PAIRED = 10_000  # items a data set whose pairs are searched
LISTED = 20  # pairs
LONG = 500_000  # cells, above which there is a progress bar
LIMIT = 1.96

OUTFIT = Column("outfit", float, ".2f", "outfit, mean squared standardised residual")
INFIT = Column("infit", float, ".2f", "infit, the same weighted by information")
OUTFIT_EXPECTED = Column("outfit_expected", float, ".2f", "outfit if the model holds")
INFIT_EXPECTED = Column("infit_expected", float, ".2f", "infit if the model holds")
OUTFIT_Z = Column("outfit_z", float, "+.2f", "outfit in standard deviations from its expectation")
INFIT_Z = Column("infit_z", float, "+.2f", "infit in standard deviations from its expectation")
_MISFIT = (OUTFIT, OUTFIT_EXPECTED, OUTFIT_Z, INFIT, INFIT_EXPECTED, INFIT_Z)
Q3 = Column("q3", float, "+.2f", "correlation of residuals (Q3)")
PAIR_Z = Column("z", float, ".1f", "covariance of residuals, in standard deviations")
WITHIN = Column("q3_within", float, "+.3f", "mean Q3 of pairs of one class")
MISFIT_INFIT = Column("misfit_infit", float, ".1%", "share of items with |infit z| above 1.96")
N_PAIRED = Column("n_paired", int, ".0f", "items whose pairs were searched")
Z_BY_CHANCE = Column("z_by_chance", float, ".1f", "the same in simulated responses, highest of the replicates")
PAIRS_BEYOND = Column("pairs_beyond", int, ".0f", "pairs above all simulated ones, 20 at most")
FIRST = Column("first", str, "", "item")
SECOND = Column("second", str, "", "item")

ITEM_FIT = TableSpec(
    "item_fit",
    "Which items do not follow their curve?",
    f"{SOURCE}; S-X²: Orlando & Thissen, 2000",
    (
        *(DATASET, ITEM, LABEL, DIFFICULTY, DISCRIMINATION, fits.ITEM_TOP1, *_MISFIT),
        *(Column("s_x2", float, ".1f", "S-X²"), Column("s_x2_df", float, ".0f", "its degrees of freedom")),
        Column("s_x2_p", float, ".3f", "its p value"),
    ),
)
ITEM_FIT_SHOWN = TableSpec(
    "item_fit_shown", "Which items do not follow their curve? (a sample)", SOURCE, ITEM_FIT.columns
)
PERSON_FIT = TableSpec(
    "person_fit",
    "Which subjects respond unlike the others of their ability?",
    SOURCE,
    (DATASET, SUBJECT, MODEL, SNAPSHOT, TOP1, ABILITY, *_MISFIT),
)
DEPENDENCE = TableSpec(
    "dependence",
    "Does the model leave out what items share?",
    YEN,
    (
        *(DATASET, IRT_MODEL, N_SUBJECTS, N_ITEMS, MISFIT_INFIT),
        *(Column("misfit_outfit", float, ".1%", "share of items with |outfit z| above 1.96"),),
        *(Column("q3_mean", float, "+.4f", "mean Q3 of all pairs"), Column("q3_sd", float, ".3f", "its spread")),
        *(*interval_columns(WITHIN), N_PAIRED),
        *(Column("z_highest", float, ".1f", "highest residual covariance of a pair, in sd"),),
        *(Z_BY_CHANCE, PAIRS_BEYOND, fits.NOT_ESTIMABLE),
    ),
)
DEPENDENT_PAIRS = TableSpec(
    "dependent_pairs",
    "Which items go together beyond ability?",
    YEN,
    (
        *(DATASET, FIRST, SECOND),
        *(Column("first_label", str, "", "its class"), Column("second_label", str, "", "its class"), PAIR_Z),
        *(Q3, Column("q3_adjusted", float, "+.2f", "Q3 less the mean of all pairs")),
        Column("beyond_chance", bool, "", "whether it is above all pairs of simulated responses"),
    ),
)
METHOD = {
    "z": "cube roots against their mean over `replicates` responses drawn from the fit and fitted again; empty below "
    "five expected right or wrong responses. Simulated: 4 to 6 % of fitting items beyond 1.96 in the 1pl, 1 to 4 % in "
    "the 2pl, at 20 to 300 subjects",
    "s_x2": f"for {FEWEST_ITEMS} to {MOST_ITEMS} items; else empty, as where groups of scores are too small",
    "q3_within": f"classes weigh by their pairs; {interval_method('classes')}",
    "pairs": f"among items with five expected right and wrong responses, {PAIRED} at most, drawn by seed",
}


@dataclass(frozen=True)
class ItemFit:
    """`analysis=item_fit`; reads full models' responses to clean test images, and files of responses."""

    tables: ClassVar = (ITEM_FIT, ITEM_FIT_SHOWN, PERSON_FIT, DEPENDENCE, DEPENDENT_PAIRS)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    model: fits.IrtModel = "2pl"
    replicates: Annotated[
        int, Allowed(2, 1000), "responses drawn from the fit and fitted again, which misfit is measured against"
    ] = 10
    seed: Annotated[Seed, "of those, and of the pairs and items that are drawn"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """One line an item, a subject, a data set; and the most dependent pairs of items."""
        frames_of_tables: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        fitted_sets: list[tuple[DatasetResponses, IrtFit]] = []
        runs: set[str] = set()
        digests = []
        for gathered in clean_with_subjects(store, self.query, self.responses):
            for frames, frame in zip(frames_of_tables, _lines(gathered, self), strict=True):
                frames.append(frame.assign(dataset=gathered.dataset))
            fitted_sets.append((gathered, fits.fitted(gathered, self.model, seed=self.seed)))
            runs |= set(gathered.runs)
            digests.append(fits.digest_of(gathered))
        parameters = {**asdict(self), **METHOD, "answers": digests, **fits.priors_taken(fitted_sets)}
        whole_frames = [pd.concat(frames, ignore_index=True) for frames in frames_of_tables]
        return filled(self.tables, whole_frames, parameters, runs)


class _Simulated(NamedTuple):
    """For each replicate: mean squares of items and of subjects, and the highest z of any pair."""

    items: list[MeanSquares]
    subjects: list[MeanSquares]
    highest: list[float]


def _lines(gathered: DatasetResponses, options: ItemFit) -> tuple[pd.DataFrame, ...]:
    """The items of a data set, those in the figure, its subjects, its line, and its most dependent pairs."""
    responses = gathered.responses
    correct = responses.correct
    fit = fits.fitted(gathered, options.model, seed=options.seed)
    rng = np.random.default_rng(options.seed)
    paired = np.sort(rng.permutation(pairable(correct, fit))[:PAIRED])
    simulated = _simulated(correct, fit, paired, rng, options.replicates)

    item_squares, subject_squares = mean_squares(correct, fit)
    items = responses.items[["item", "label"]].assign(
        difficulty=fit.difficulty,
        discrimination=fit.discrimination,
        top1=np.nanmean(correct, axis=0),
        **misfit(item_squares, simulated.items)._asdict(),
        **_score_columns(correct, fit),
    )
    subjects = responses.subjects[["subject", "model", "snapshot"]].assign(
        top1=responses.accuracy,
        ability=fit.ability,
        **misfit(subject_squares, simulated.subjects)._asdict(),
    )
    subjects = subjects.sort_values("ability", ascending=False, kind="stable")
    sample = np.random.default_rng(options.seed).permutation(len(items))[:SAMPLED]

    line, pairs = _dependence(gathered, fit, paired, simulated.highest)
    for name in ("infit", "outfit"):
        z = items[f"{name}_z"].dropna()
        line[f"misfit_{name}"] = float((z.abs() > LIMIT).mean()) if len(z) else None
    return items, items.iloc[np.sort(sample)], subjects, pd.DataFrame([line]), pairs


def _simulated(
    correct: np.ndarray, fit: IrtFit, paired: np.ndarray, rng: np.random.Generator, number: int
) -> _Simulated:
    """Statistics of responses drawn from the fit and fitted again."""
    simulated = _Simulated([], [], [])
    drawn = replicates(correct, fit, rng, number)
    for responses, refit in track(drawn, "simulated responses", number, long=correct.size >= LONG):
        items, subjects = mean_squares(responses, refit)
        simulated.items.append(items)
        simulated.subjects.append(subjects)
        if len(paired) > 1:
            z = highest(responses[:, paired], refit.probability()[:, paired])
            simulated.highest.append(z)
    return simulated


def _score_columns(correct: np.ndarray, fit: IrtFit) -> dict[str, Any]:
    """S-X² of every item; missing for too few or too many items."""
    if not FEWEST_ITEMS <= correct.shape[1] <= MOST_ITEMS:
        return {"s_x2": np.nan, "s_x2_df": np.nan, "s_x2_p": np.nan}
    test = score_fit(correct, fit.bank)
    return {"s_x2": test.statistic, "s_x2_df": np.where(test.df > 0, test.df, np.nan), "s_x2_p": test.p}


def _dependence(
    gathered: DatasetResponses, fit: IrtFit, paired: np.ndarray, highest_by_chance: list[float]
) -> tuple[dict[str, Any], pd.DataFrame]:
    """The line of a data set, and its most dependent pairs."""
    responses = gathered.responses
    n_subjects, n_items = responses.correct.shape
    line: dict[str, Any] = {
        "irt_model": fit.model,
        "n_subjects": n_subjects,
        "n_items": n_items,
        "n_paired": len(paired),
        "not_estimable": fit.not_estimable,
    }
    if len(paired) < 2:
        return line, DEPENDENT_PAIRS.frame([])

    correct = responses.correct[:, paired]
    p = fit.probability()[:, paired]
    items = responses.items.iloc[paired]
    codes, _ = pd.factorize(items["label"].fillna("?"))
    means = mean_q3(scaled_residuals(correct, p), codes)
    line |= {"q3_mean": means.mean, "q3_sd": means.sd}

    has_pairs = means.pairs_within > 0
    if items["label"].notna().all() and has_pairs.sum() > 1:
        # pairs of a class stand together; every class counts by its pairs
        weight = means.pairs_within[has_pairs] / means.pairs_within[has_pairs].mean()
        mean = mean_with_interval(means.within[has_pairs] * weight)
        line |= dict(zip(map(str, interval_columns(WITHIN)), mean, strict=True))

    pairs = most_dependent(correct, p, LISTED)
    z_by_chance = max(highest_by_chance)
    is_beyond_chance = pairs.z > z_by_chance
    line |= {
        "z_highest": float(pairs.z[0]),
        "z_by_chance": z_by_chance,
        "pairs_beyond": int(is_beyond_chance.sum()),
    }
    names = items["item"].to_numpy()
    labels = items["label"].to_numpy()
    frame = pd.DataFrame(
        {
            "z": pairs.z,
            "q3": pairs.q3,
            "q3_adjusted": pairs.q3 - means.mean,
            "beyond_chance": is_beyond_chance,
            "first": names[pairs.first],
            "first_label": labels[pairs.first],
            "second": names[pairs.second],
            "second_label": labels[pairs.second],
        }
    )
    return line, frame
