"""Do images and models respond as item response theory expects, and are images dependent (analysis=item_fit)."""

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
from fca.studies.psychometrics.stats.dependence import (
    MeanQ3,
    highest_z,
    mean_q3,
    most_dependent,
    pairable_items,
    scaled_residuals,
)
from fca.studies.psychometrics.stats.item_fit import MeanSquares, mean_squares, misfit, replicates
from fca.studies.psychometrics.stats.score_fit import MOST_ITEMS, score_fit
from fca.tables.answers import DatasetResponses
from fca.tables.keys import Query, ResponseFiles
from fca.tables.table import DATASET, LABEL, MODEL, SNAPSHOT, TOP1, TableSpec, filled
from fca.types import Column, Table, interval_columns
from fca.validation import Allowed, Seed

SOURCE = "Wright & Masters (Rating scale analysis, 1982), chapter 5"
YEN = "Yen (Effects of local item dependence, 1984); Christensen, Makransky & Horton, 2017"
FEWEST_ITEMS = 60  # for S-X²; with fewer, abilities are uncertain and fitted items bend towards them
SAMPLED = 2000  # the most items of a data set in the figure
PAIRED = 10_000  # the most items of a data set whose pairs are searched
LISTED = 20  # the most pairs of a data set in the table
LONG = 500_000  # responses, from which on there is a progress bar
LIMIT = 1.96  # |z| above it is misfit

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
        DATASET,
        ITEM,
        LABEL,
        DIFFICULTY,
        DISCRIMINATION,
        fits.ITEM_TOP1,
        *_MISFIT,
        Column("s_x2", float, ".1f", "S-X²"),
        Column("s_x2_df", float, ".0f", "its degrees of freedom"),
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
        DATASET,
        IRT_MODEL,
        N_SUBJECTS,
        N_ITEMS,
        MISFIT_INFIT,
        Column("misfit_outfit", float, ".1%", "share of items with |outfit z| above 1.96"),
        Column("q3_mean", float, "+.4f", "mean Q3 of all pairs"),
        Column("q3_sd", float, ".3f", "its spread"),
        *interval_columns(WITHIN),
        N_PAIRED,
        Column("z_highest", float, ".1f", "highest residual covariance of a pair, in sd"),
        Z_BY_CHANCE,
        PAIRS_BEYOND,
        fits.NOT_ESTIMABLE,
    ),
)
DEPENDENT_PAIRS = TableSpec(
    "dependent_pairs",
    "Which items go together beyond ability?",
    YEN,
    (
        DATASET,
        FIRST,
        SECOND,
        Column("first_label", str, "", "its class"),
        Column("second_label", str, "", "its class"),
        PAIR_Z,
        Q3,
        Column("q3_adjusted", float, "+.2f", "Q3 less the mean of all pairs"),
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
        """Tables item_fit, item_fit_shown (a sample for the figure), person_fit, dependence and dependent_pairs.

        Their parameters have a digest of the responses of each data set. They also name the scales, such as the spread
        of difficulty, that a fit could not estimate and took from the prior. Raises FcaError if there are no responses
        that can be fitted.
        """
        frames_of_tables: list[list[pd.DataFrame]] = [[] for _ in self.tables]
        fitted_sets: list[tuple[DatasetResponses, IrtFit]] = []
        runs: set[str] = set()
        digests: list[str] = []
        for gathered in clean_with_subjects(store, self.query, self.responses):
            frames = _frames_of_dataset(gathered, self)
            for table_frames, frame in zip(frames_of_tables, frames, strict=True):
                table_frames.append(frame.assign(dataset=gathered.dataset))

            fit = fits.fitted(gathered, self.model, seed=self.seed)  # kept from the call in _frames_of_dataset
            fitted_sets.append((gathered, fit))
            runs |= set(gathered.runs)
            digests.append(fits.digest_of(gathered))

        joined_frames = [pd.concat(table_frames, ignore_index=True) for table_frames in frames_of_tables]
        parameters = {**asdict(self), **METHOD, "answers": digests, **fits.priors_taken(fitted_sets)}
        return filled(self.tables, joined_frames, parameters, runs)


def _frames_of_dataset(gathered: DatasetResponses, settings: ItemFit) -> tuple[pd.DataFrame, ...]:
    """The lines of one data set for each table of ItemFit, in their order, without the column `dataset`.

    Lines of items and of subjects have outfit and infit: two mean squares of standardised residuals, which are large
    where responses surprise. The expectation of each is its mean in responses that are simulated from the fit and
    fitted again; its z is the distance from this mean in standard deviations. The dependence of pairs of items is
    compared with the same simulations.
    """
    responses = gathered.responses
    correct = responses.correct
    fit = fits.fitted(gathered, settings.model, seed=settings.seed)

    # the items whose pairs are searched for dependence: at most PAIRED of those with enough responses, because the time
    # grows with the square of their number
    rng = np.random.default_rng(settings.seed)
    pairable = rng.permutation(pairable_items(correct, fit))
    paired_items = np.sort(pairable[:PAIRED])

    # outfit and infit, observed and in simulated responses
    simulated = _simulated_statistics(correct, fit, paired_items, rng, settings.replicates)
    item_squares, subject_squares = mean_squares(correct, fit)

    items = responses.items[["item", "label"]].assign(
        difficulty=fit.difficulty,
        discrimination=fit.discrimination,
        top1=np.nanmean(correct, axis=0),
        **misfit(item_squares, simulated.item_squares)._asdict(),  # outfit and infit, expected, z
        **_score_fit_columns(correct, fit),  # S-X², a test for data sets of few items
    )
    # a figure of all items would be too large. A generator of its own: the sample does not depend on the replicates
    sample = np.random.default_rng(settings.seed).permutation(len(items))[:SAMPLED]
    sampled_items = items.iloc[np.sort(sample)]

    subjects = responses.subjects[["subject", "model", "snapshot"]].assign(
        top1=responses.accuracy,
        ability=fit.ability,
        **misfit(subject_squares, simulated.subject_squares)._asdict(),
    )
    subjects = subjects.sort_values("ability", ascending=False, kind="stable")

    dependence, pairs = _dependence(gathered, fit, paired_items, simulated.highest_z)
    summary = {
        **dependence,
        "misfit_infit": _share_beyond_limit(items["infit_z"]),
        "misfit_outfit": _share_beyond_limit(items["outfit_z"]),
    }
    return items, sampled_items, subjects, pd.DataFrame([summary]), pairs


def _share_beyond_limit(z: pd.Series) -> float | None:
    """The share of the known z with |z| above LIMIT; None if none is known."""
    known_z = z.dropna()
    if known_z.empty:
        return None
    return float((known_z.abs() > LIMIT).mean())


class _SimulatedStatistics(NamedTuple):
    """Statistics of simulated responses, one entry for each replicate.

    item_squares, subject_squares: outfit and infit of the items and of the subjects.
    highest_z: the highest z of any pair of items, the covariance of their residuals in standard deviations; empty if no
        pairs are searched.
    """

    item_squares: list[MeanSquares]
    subject_squares: list[MeanSquares]
    highest_z: list[float]


def _simulated_statistics(
    correct: np.ndarray, fit: IrtFit, paired_items: np.ndarray, rng: np.random.Generator, number: int
) -> _SimulatedStatistics:
    """Draw responses from a fit `number` times, fit them again, and compute the statistics of each such replicate.

    The statistics are outfit and infit (mean squares) of the items and of the subjects, and the highest z of any pair
    of items, the covariance of their residuals in standard deviations.

    correct: the observed responses; missing ones are missing in the replicates too.
    paired_items: positions of the items whose pairs are searched for the highest z; with fewer than two there is none.
    """
    item_squares: list[MeanSquares] = []
    subject_squares: list[MeanSquares] = []
    highest: list[float] = []

    simulations = replicates(correct, fit, rng, number)
    is_long = correct.size >= LONG  # long enough for a progress bar
    for simulated, refit in track(simulations, "simulated responses", number, long=is_long):
        of_items, of_subjects = mean_squares(simulated, refit)
        item_squares.append(of_items)
        subject_squares.append(of_subjects)
        if len(paired_items) > 1:
            highest.append(highest_z(simulated[:, paired_items], refit.probability()[:, paired_items]))

    return _SimulatedStatistics(item_squares, subject_squares, highest)


def _score_fit_columns(correct: np.ndarray, fit: IrtFit) -> dict[str, Any]:
    """The columns of S-X² in table item_fit: statistic, degrees of freedom (NaN for none) and p value.

    S-X² tests whether an item has as many right responses as the model expects, among subjects of each total score.
    All are NaN outside FEWEST_ITEMS to MOST_ITEMS items. With fewer, abilities are uncertain, and the fitted curves of
    the items adapt to them. With more, groups of subjects with equal scores would be nearly empty.

    correct: subjects x items; 1, 0, NaN for no response.
    """
    if not FEWEST_ITEMS <= correct.shape[1] <= MOST_ITEMS:
        return {"s_x2": np.nan, "s_x2_df": np.nan, "s_x2_p": np.nan}

    s_x2 = score_fit(correct, fit.bank)
    return {
        "s_x2": s_x2.statistic,
        "s_x2_df": np.where(s_x2.df > 0, s_x2.df, np.nan),
        "s_x2_p": s_x2.p,
    }


def _dependence(
    gathered: DatasetResponses, fit: IrtFit, paired_items: np.ndarray, simulated_highest_z: list[float]
) -> tuple[dict[str, Any], pd.DataFrame]:
    """The cells of one data set in table dependence, and its lines in table dependent_pairs.

    Two items are dependent if their residuals go together, which are what the model does not explain of the responses:
    z is the covariance of the residuals in standard deviations, and Q3 is their correlation. Listed are the LISTED
    pairs of highest z. With fewer than two items to pair there are no lines, and all cells about pairs are missing.

    fit: the item response model of the responses of this data set.
    paired_items: positions of the items whose pairs are searched.
    simulated_highest_z: the highest z of any pair in each simulation without dependence; a pair above all of these is
        beyond chance.
    """
    responses = gathered.responses
    n_subjects, n_items = responses.correct.shape
    summary: dict[str, Any] = {
        "irt_model": fit.model,
        "n_subjects": n_subjects,
        "n_items": n_items,
        "n_paired": len(paired_items),
        "not_estimable": fit.not_estimable,  # scales, such as the spread of difficulty, that are taken from the prior
    }
    if len(paired_items) < 2:
        return summary, DEPENDENT_PAIRS.frame([])

    correct = responses.correct[:, paired_items]
    p = fit.probability()[:, paired_items]  # predicted chance of a right response
    items = responses.items.iloc[paired_items]
    class_codes, _ = pd.factorize(items["label"].fillna("?"))  # a number from 0 for each class
    q3 = mean_q3(scaled_residuals(correct, p), class_codes)  # mean and sd of all pairs, means within classes

    pairs = most_dependent(correct, p, LISTED)  # highest z first
    z_by_chance = max(simulated_highest_z)
    is_beyond_chance = pairs.z > z_by_chance

    item_names = items["item"].to_numpy()
    labels = items["label"].to_numpy()
    pair_frame = pd.DataFrame(
        {
            "z": pairs.z,
            "q3": pairs.q3,
            "q3_adjusted": pairs.q3 - q3.mean,  # without dependence the mean is slightly below 0
            "beyond_chance": is_beyond_chance,
            "first": item_names[pairs.first],
            "first_label": labels[pairs.first],
            "second": item_names[pairs.second],
            "second_label": labels[pairs.second],
        }
    )
    knows_all_classes = items["label"].notna().all()  # otherwise images of different classes would share "?"
    summary = {
        **summary,
        "q3_mean": q3.mean,
        "q3_sd": q3.sd,
        **(_q3_within_classes(q3) if knows_all_classes else {}),
        "z_highest": float(pairs.z[0]),
        "z_by_chance": z_by_chance,
        "pairs_beyond": int(is_beyond_chance.sum()),  # of the listed pairs
    }
    return summary, pair_frame


def _q3_within_classes(q3: MeanQ3) -> dict[str, float]:
    """The cells of the mean Q3 of pairs of one class, with its interval over classes.

    Q3 of a pair of items is the correlation of their residuals. Empty if fewer than two classes have pairs.

    q3: has the mean Q3 of the pairs within each class (`within`) and their number (`pairs_within`).
    """
    has_pairs = q3.pairs_within > 0
    if has_pairs.sum() < 2:
        return {}

    # pairs of a class are not independent, so the interval counts classes, each weighted by its pairs
    n_pairs = q3.pairs_within[has_pairs]
    weight = n_pairs / n_pairs.mean()
    estimate = mean_with_interval(q3.within[has_pairs] * weight)
    return dict(zip(map(str, interval_columns(WITHIN)), estimate, strict=True))
