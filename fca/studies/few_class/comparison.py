"""Which models differ on the same images, how stable their order is, and how many more subset seeds would help."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fca.stats.comparison import holm, kendall_w, mcnemar, paired_interval, rank_stability, seeds_needed
from fca.stats.intervals import (
    FEWEST_DRAWS,
    LEVEL,
    RESAMPLES,
    SIGNED_FRACTION,
    interval_method,
    mean_with_interval,
)
from fca.store import Store
from fca.studies.few_class.accuracy import PAPER, RANK, with_all_at_chance
from fca.studies.few_class.subset_accuracy import (
    COMMAND,
    DIFFERENCE,
    DRAW,
    SUBSET_SEEDS,
    OfSubsets,
    PerModel,
    points_with_predictions,
    wide,
)
from fca.tables.rows import groups_by_columns, require_rows
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    IMAGES,
    MODEL,
    NCL,
    NOTE,
    P_HOLM,
    PROTOCOL,
    SUBSETS,
    P,
    TableSpec,
    reason_for_no_interval,
)
from fca.types import Column, Table, interval_columns

NO_SPREAD = "no interval: the difference is the same in all subset seeds"
UNBOUNDED = "more_seeds has no upper bound: no difference is within what these seeds allow"

BY = [DATASET, PROTOCOL, NCL]
MODEL_A = Column("model_a", str, "", "first model of the pair")
MODEL_B = Column("model_b", str, "", "second model of the pair")
SAME_IMAGES = IMAGES.with_format(".0f", "test images that both models predicted")
ONLY_A_RIGHT = Column("only_a_right", int, ".0f", "images that only the first model gets right")
ONLY_B_RIGHT = Column("only_b_right", int, ".0f", "images that only the second model gets right")
LEAD = DIFFERENCE.with_format("+.2%", "first minus second model")
MCNEMAR_P = P.with_format(".2g", "p of McNemar's test")
SIGNIFICANT = Column("significant", bool, "", "whether the pair differs significantly")
ORDER_KEPT = Column("order_kept", float, ".0%", "share of bootstrap resamples that keep the order of the pair")
MORE_SEEDS = Column("more_seeds", int, ".0f", "subset seeds still needed to separate the pair")
P_BEST = Column("p_best", float, ".0%", "share of bootstrap resamples in which the model has the best mean accuracy")
RANK_OF_MEAN = RANK.with_format(".1f", "rank of the mean accuracy, 1 is the best")
KENDALL_W = Column("kendall_w", float, ".2f", "Kendall's W: agreement of the subsets on the order of the models")

PAIRED = TableSpec(
    "paired",
    "Which models differ on the same images, and how many more subset seeds would separate the others?",
    f"{PAPER} compares means only; McNemar 1947, Newcombe 1998 (method 10), Holm 1979, Cohen 1988 (chapter 2)",
    (
        *(*BY, MODEL_A, MODEL_B, SAME_IMAGES, ONLY_A_RIGHT, ONLY_B_RIGHT, *interval_columns(LEAD), MCNEMAR_P, P_HOLM),
        *(SIGNIFICANT, ORDER_KEPT, SUBSETS, SUBSET_SEEDS, *interval_columns(MORE_SEEDS), NOTE),
    ),
)
RANK_STABILITY = TableSpec(
    "rank_stability",
    "How stable is the order of the models over class subsets? (1 = best; kendall_w: agreement of subsets)",
    f"{PAPER} figure 2b, over bootstrap resamples of subset seeds; Kendall and Babington Smith 1939",
    (*BY, MODEL, P_BEST, *interval_columns(RANK_OF_MEAN), KENDALL_W, SUBSETS, SUBSET_SEEDS, AT_CHANCE, NOTE),
)
METHOD = {
    "p": "exact McNemar over the images of all subsets, each counted once, for the model right on it more often; it "
    "compares the networks at hand, not others of the same models with new initial weights",
    "p_holm": "Holm's correction over all pairs of models of one data set, protocol and ncl",
    "difference": f"mean over subsets; 95 %: {interval_method('subset seeds')}, one subset: Newcombe 10",
    "significant": "p_holm below 0.05 and 0 outside the interval of the difference; missing where p_holm is below 0.05 "
    "and there is no interval",
    "more_seeds": "beyond those at hand, for a paired t test over seeds with level 0.05 and power 0.8 if the mean "
    "difference seen is the true one; low and high: ends of the effect's 95 % interval",
    "order_kept, p_best, rank": f"over {RESAMPLES} bootstrap resamples of subset seeds, of {FEWEST_DRAWS} or more",
}


@dataclass(frozen=True)
class Comparison(OfSubsets):
    """`analysis=comparison`; reads `train` rows, the `predict` rows of their best weights, and those of full models."""

    tables: ClassVar = (PAIRED, RANK_STABILITY)

    per_model: PerModel = field(default_factory=list)

    def __call__(self, store: Store) -> list[Table]:
        """Tables paired and rank_stability. Raises FcaError if no two models were evaluated on the same subset."""
        # stored.points: the accuracy of every model on every subset, with the predictions behind it
        # per_model: columns of the configuration that may differ between models, such as the learning rate
        stored = points_with_predictions(store, self, self.per_model)
        subset = per_subset(stored.points)  # means over initialisations
        pairs = paired(subset)
        require_rows(pairs, "pairs of models on one subset", stored.rows.total, COMMAND)
        rank_stability_lines = with_all_at_chance(stability(subset), stored.points, BY)

        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = stored.rows.noted({**asdict(self), **METHOD})
        return [
            PAIRED.table(pairs, parameters, stored.runs),
            RANK_STABILITY.table(rank_stability_lines, parameters, stored.runs),
        ]


def per_subset(points: pd.DataFrame) -> pd.DataFrame:
    """Means over initialisation seeds, one line for each model, protocol and class subset.

    Columns of the result:

    top1:   the mean accuracy.
    images: positions of the subset's images among the test images of the data set.
    right:  for each of these images, the share of initialisations that predict it correctly.

    `images` and `right` are None unless the predictions of every initialisation are stored.

    points: accuracies, one line for each initialisation, model, protocol and subset, with their predictions (column
            `predictions`, or None).
    """
    key_columns = ["dataset", "model", "protocol", "ncl", *DRAW, "fingerprint"]  # DRAW: subset seed and classes
    lines = []
    for key, inits in groups_by_columns(points, key_columns):
        images = None
        mean_right = None
        if inits["predictions"].notna().all():
            images = inits["predictions"].iloc[0].images  # the same for every initialisation
            mean_right = np.mean([predictions.right for predictions in inits["predictions"]], axis=0)
        lines.append({**key, "top1": inits["top1"].mean(), "images": images, "right": mean_right})
    return pd.DataFrame(lines, columns=[*key_columns, "top1", "images", "right"]).astype({"subset_seed": "Int64"})


def paired(subset: pd.DataFrame) -> pd.DataFrame:
    """Table `paired`: every pair of models that have a subset in common, for each data set, protocol and ncl.

    Differences are model_a minus model_b, where model_a comes first in the alphabet.

    subset: one line for each model, protocol and class subset: its accuracy (`top1`) and, where predictions are stored,
            its images and for each image the share of initialisations that are right.
    """
    lines = []
    for key, points in groups_by_columns(subset, BY):  # BY: data set, protocol and ncl
        for model_a, model_b in combinations(sorted(points["model"].unique()), 2):
            points_a = points[points["model"] == model_a]
            points_b = points[points["model"] == model_b]
            # equal fingerprints of the data set: both models were tested on the same images
            # DRAW: subset seed and classes, which identify a subset
            common = points_a.merge(points_b, on=[*DRAW, "fingerprint"], suffixes=("_a", "_b"))
            if len(common):
                lines.append({**key, "model_a": model_a, "model_b": model_b, **_compare_pair(common)})
    frame = PAIRED.frame(lines)

    # Holm's correction of the p of McNemar's test, over all pairs of one data set, protocol and ncl
    tested = frame.dropna(subset=MCNEMAR_P)
    frame[P_HOLM] = tested.groupby(BY)[MCNEMAR_P].transform(lambda p: holm(p.to_numpy()))

    frame[SIGNIFICANT] = _is_significant(frame)

    # Int64 can hold missing cells, which int64 cannot
    integer_columns = [str(column) for column in PAIRED.columns if column.value_type is int and column != NCL]
    return frame.astype(dict.fromkeys(integer_columns, "Int64"))


def _is_significant(pairs: pd.DataFrame) -> pd.Series:
    """Whether each pair of models differs: its corrected p is small, and the interval of its difference excludes 0.

    The result is missing if p is unknown, or if p is small and there is no interval to confirm it. A large p is enough
    for False.

    pairs: lines of table `paired`.
    """
    low = pairs[LEAD.low]
    high = pairs[LEAD.high]
    p = pairs[P_HOLM]

    has_small_p = p < 1 - LEVEL  # LEVEL is 0.95, the level of the intervals
    excludes_0 = (low > 0) | (high < 0)
    has_interval = low.notna() & high.notna()
    is_decided = p.notna() & (has_interval | ~has_small_p)
    return (has_small_p & excludes_0).astype("boolean").where(is_decided)


def _compare_pair(common: pd.DataFrame) -> dict[str, Any]:
    """The cells of one pair of models in table `paired`, without its key and without what depends on other pairs.

    common: one line for each subset on which both models were evaluated, with its seed and classes. For each of the two
            models (suffixes _a and _b) it has the accuracy `top1` and, where predictions are stored, the `images` and
            the share of initialisations that are `right` on each image.
    """
    top1 = common[["top1_a", "top1_b"]].to_numpy()  # subsets x 2
    differences = top1[:, 0] - top1[:, 1]
    # 0, 1 ... for each seed; -1 for a subset that no seed drew, for example because the user named it
    seed_codes = pd.factorize(common["subset_seed"])[0]
    differences_of_draws = differences[seed_codes >= 0]
    n_draws = len(differences_of_draws)

    # the mean difference; a single subset has no spread over seeds, so its interval is over images
    image_counts, interval_over_images, images_note = _compare_images(common)
    mean, *interval_over_seeds = mean_with_interval(differences, common["subset_seed"], within=SIGNED_FRACTION)
    interval = interval_over_seeds if len(common) > 1 else interval_over_images

    # how many seeds are needed in addition to the present ones, until a test would probably find the models different;
    # None if the number is unknown (NaN) or no number is enough (infinite)
    seeds_in_all = seeds_needed(differences_of_draws)  # value and both ends of its interval
    more_seeds = [max(0.0, n_seeds - n_draws) if np.isfinite(n_seeds) else None for n_seeds in seeds_in_all]

    # a note for every cell that is missing or unbounded
    notes = [images_note]
    if n_draws > 1 and np.isnan(interval_over_seeds[0]):
        notes.append(NO_SPREAD)
    if np.isinf(seeds_in_all.high):
        notes.append(UNBOUNDED)
    why_no_order = reason_for_no_interval(n_draws, "subset seeds")  # the bootstrap needs enough seeds to resample
    if why_no_order:
        notes.append(f"order_kept: {why_no_order}")

    # models x models: the share of bootstrap resamples of the seeds in which a pair keeps its order. A subset that no
    # seed drew (-1) is in every resample
    share_of_resamples = rank_stability(top1, seed_codes).kept
    return {
        **image_counts,
        **dict(zip(interval_columns(LEAD), [mean, *interval], strict=True)),
        "order_kept": share_of_resamples[0, 1],
        "subsets": len(common),
        "seeds": n_draws,
        **dict(zip(interval_columns(MORE_SEEDS), more_seeds, strict=True)),
        "note": "; ".join(note for note in notes if note) or None,
    }


def _compare_images(common: pd.DataFrame) -> tuple[dict[str, Any], tuple[float, float], str | None]:
    """Compare two models image by image on their common subsets.

    Returns the cells of McNemar's test (number of images, of images that only one model gets right, p), Newcombe's
    interval of the difference in accuracy over images, and a note if predictions of some subsets are not stored. The
    interval is meant for a single subset: it counts an image once for each of its subsets, McNemar's test only once.
    Without any stored predictions p and the interval are NaN.

    common: one line for each common subset. Columns right_a and right_b have the share of initialisations that predict
            each image correctly, column images_a the images.
    """
    is_stored = common["right_a"].notna() & common["right_b"].notna()
    stored = common[is_stored]
    if stored.empty:
        return {"p": np.nan}, (np.nan, np.nan), "predictions of both models are not stored"

    # the images of all subsets, one subset after the other; values are shares of initialisations that are right
    right_a = np.concatenate(stored["right_a"].tolist())
    right_b = np.concatenate(stored["right_b"].tolist())
    images = np.concatenate(stored["images_a"].tolist())

    # an image of several subsets counts once, for the model that is right on it more often
    _, image_codes = np.unique(images, return_inverse=True)  # 0..k-1, a number for each different image
    lead_by_image = np.bincount(image_codes, weights=right_a - right_b)
    only_a = int((lead_by_image > 1e-9).sum())  # a smaller lead is the rounding of equal shares
    only_b = int((-lead_by_image > 1e-9).sum())
    cells = {
        "images": len(lead_by_image),
        "only_a_right": only_a,
        "only_b_right": only_b,
        "p": mcnemar(only_a, only_b),
    }

    # the fourfold table: images that both models, only a, only b, or neither gets right. An image adds to each cell the
    # share of pairs (an initialisation of a, one of b) with this outcome, which is a product of shares
    interval = paired_interval(
        float((right_a * right_b).sum()),
        float((right_a * (1 - right_b)).sum()),
        float(((1 - right_a) * right_b).sum()),
        float(((1 - right_a) * (1 - right_b)).sum()),
    )
    note = None
    if len(stored) < len(common):
        note = f"images of {len(stored)} of {len(common)} subsets"
    return cells, interval, note


def stability(subset: pd.DataFrame) -> pd.DataFrame:
    """Table `rank_stability`: the rank of each model over bootstrap resamples of class subsets.

    Models of one data set, protocol and ncl are ranked together, on the subsets on which all of them were evaluated. A
    single model, and models without such a subset, have no line. Column `at_chance` stays empty: the caller fills it
    in.

    subset: accuracies (`top1`, means over initialisations), one line for each model, protocol and class subset.
    """
    lines: list[dict[str, Any]] = []
    for key, points in groups_by_columns(subset, BY):  # BY: data set, protocol and ncl
        accuracies = wide(MODEL, points, [*DRAW, "fingerprint"]).dropna()  # a line for each subset, a column a model
        n_subsets, n_models = accuracies.shape
        if n_models < 2 or n_subsets == 0:
            continue

        table = accuracies.to_numpy()  # subsets x models
        seeds = accuracies.index.get_level_values("subset_seed")
        n_seeds = seeds.nunique()
        shared_cells = {
            **key,
            "kendall_w": kendall_w(table),
            "subsets": n_subsets,
            "seeds": n_seeds,
            "note": reason_for_no_interval(n_seeds, "subset seeds"),
        }
        # 0, 1 ... for each seed, as the bootstrap draws seeds, not single subsets; -1 for a subset that no seed drew,
        # which is in every resample
        seed_codes = pd.factorize(seeds)[0]
        resampled = rank_stability(table, seed_codes)  # p_best: share of resamples in which each model is the best
        for i, model in enumerate(accuracies):  # the columns of the frame
            lines.append(
                {
                    **shared_cells,
                    MODEL: model,
                    P_BEST: resampled.p_best[i],
                    RANK_OF_MEAN: resampled.rank[i],  # by the mean accuracy, with its interval over resamples
                    RANK_OF_MEAN.low: resampled.low[i],
                    RANK_OF_MEAN.high: resampled.high[i],
                }
            )
    return RANK_STABILITY.frame(lines)
