"""Accuracy against the number of classes: full models (open, masked) and sub-models, DCN, ranks and their gap."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

import pandas as pd

from fca.stats.chance import count_is_at_chance
from fca.stats.correlation import correlation
from fca.stats.intervals import FRACTION, SIGNED_FRACTION, interval_method, mean_with_interval
from fca.store import Store
from fca.studies.few_class.subset_accuracy import ACCURACY, DRAW, OfSubsets, PerModel, read_points, wide
from fca.subset import read_superclasses
from fca.tables.rows import groups_by_columns
from fca.tables.table import (
    AT_CHANCE,
    CHANCE,
    CLASSES,
    DATASET,
    MODEL,
    MODELS,
    N_TEST,
    NCL,
    NO_MEAN_INTERVAL,
    PROTOCOL,
    RHO,
    SUBSETS,
    TOP1,
    VERDICT,
    N,
    TableSpec,
)
from fca.types import Column, Table, interval_columns

PAPER = "Few-Class Arena (arXiv:2411.01099)"
INTERVALS = f"95 %: Wilson in accuracy_points, else {interval_method('subset seeds')}"

SPREAD = Column("spread", float, ".2%", "standard deviation of accuracy between class subsets")
RANK = Column("rank", float, ".2f", "mean rank, 1 is the most accurate model")
RANKING_RHO = RHO.with_format(".3f", "Spearman's rho of the rankings")
N_PAIRS = N.with_format(".0f", "pairs of a model and a subset")
SUB_MINUS_OPEN = Column("sub_minus_open", float, "+.2%", "sub-model minus open full model")
SUB_MINUS_MASKED = Column("sub_minus_masked", float, "+.2%", "sub-model minus masked full model")
GAP_VERDICT = VERDICT.with_format("", "whether sub-models are more accurate than open full models")

ACCURACY_POINTS = TableSpec(
    "accuracy_points",
    "How accurate is each model on each class subset?",
    f"{PAPER} sections 3.4 (FC-Full = open) and 3.5 (FC-Sub = sub); masked: arg max over the subset's classes; "
    "grouped: over groups, by summed probability",
    ACCURACY,
)
ACCURACY_MEANS = TableSpec(
    "accuracy",
    "How does accuracy change with the number of classes? (mean and standard deviation over subset seeds)",
    f"{PAPER} figure 1",
    (DATASET, MODEL, PROTOCOL, NCL, TOP1, SPREAD, TOP1.low, TOP1.high, SUBSETS, CHANCE, AT_CHANCE),
)
DCN = TableSpec(
    "dcn",
    "How accurate is the best of the models on each subset?",
    f"Classification difficulty number of arXiv:1803.09588, as in {PAPER} sections 3.3, 4.1 and 4.2",
    (DATASET, PROTOCOL, NCL, *DRAW, TOP1, MODEL, MODELS),
)
RANKS = TableSpec(
    "ranks",
    "Which model is best at each number of classes? (1 = best)",
    f"{PAPER} figure 2b, per subset",
    (DATASET, PROTOCOL, NCL, MODEL, *interval_columns(RANK), SUBSETS, AT_CHANCE),
)
RANK_AGREEMENT = TableSpec(
    "rank_agreement",
    "Does the ranking on all classes (open) hold for few? (Spearman's rho over models, mean over subsets)",
    f"The practice that {PAPER} section 3.3 questions",
    (DATASET, PROTOCOL, NCL, *interval_columns(RANKING_RHO), MODELS, SUBSETS),
)
GAP = TableSpec(
    "gap",
    "How much more accurate are sub-models than full models on the same classes?",
    f"{PAPER} figure 1, finding (a), paired by model and subset; masked is not in the paper",
    (
        *(DATASET, NCL, *interval_columns(SUB_MINUS_OPEN), *interval_columns(SUB_MINUS_MASKED)),
        *(N_PAIRS, MODELS, SUBSETS, GAP_VERDICT, AT_CHANCE),
    ),
)


@dataclass(frozen=True)
class FewClass(OfSubsets):
    """`analysis=few_class`; reads `train` rows and the `predict` rows of full models."""

    tables: ClassVar = (ACCURACY_POINTS, ACCURACY_MEANS, GAP, DCN, RANKS, RANK_AGREEMENT)

    per_model: PerModel = field(default_factory=list)
    groups: Annotated[
        str | None, "also the grouped protocol: imagenet_16, imagenet_dog, or a CSV file (photos.zip/classes.csv)"
    ] = None
    group_columns: Annotated[list[str], "columns of the file of groups: class keys, groups"] = field(
        default_factory=lambda: ["class", "group"]
    )

    def __call__(self, store: Store) -> list[Table]:
        """Tables accuracy_points, accuracy, gap, dcn, ranks and rank_agreement.

        Raises FcaError if no models are stored, or none was evaluated on the subsets that the options select.
        """
        # groups of classes that count as one class, for the protocol `grouped`
        groups = read_superclasses(self.groups, self.group_columns) if self.groups else None
        # rows: the stored runs; points: the accuracy of every model on every subset, under every protocol
        # per_model: columns of the configuration that may differ between models, such as the learning rate
        rows, points = read_points(store, self, self.per_model, groups)
        subset = per_subset(points)  # means over initialisations
        num_classes = rows.models.groupby("dataset")["num_classes"].max()  # of each data set
        # on all classes, sub-models are full models, and the ranking would be compared with itself
        partial = subset[subset["ncl"] < subset["dataset"].map(num_classes)]
        # a gap is at chance if sub-models and masked models only guess. Open models do not count: they choose among all
        # classes, where guessing is right less often
        sub_and_masked = points[points[PROTOCOL].isin(["sub", "masked"])]

        frames = (  # in the order of self.tables
            points,
            with_chance(accuracy(subset), points),
            with_all_at_chance(gap(partial), sub_and_masked, [DATASET, NCL]),
            dcn(subset),
            with_all_at_chance(ranks(subset), points, [DATASET, PROTOCOL, NCL]),
            rank_agreement(partial, rows.full),
        )
        runs = sorted(set(points["run_id"]))
        # rows.noted adds the list of data sets that were left out, which the page then names
        parameters = rows.noted({**asdict(self), "intervals": INTERVALS})
        return [spec.table(frame, parameters, runs) for spec, frame in zip(self.tables, frames, strict=True)]


def per_subset(points: pd.DataFrame) -> pd.DataFrame:
    """The mean accuracy (`top1`) over initialisation seeds, one line for each dataset, model, protocol and subset."""
    measured = points.dropna(subset="top1")
    key_columns = ["dataset", "model", "protocol", "ncl", *DRAW]
    return measured.groupby(key_columns, dropna=False, as_index=False).agg(top1=("top1", "mean"))


def accuracy(subset: pd.DataFrame) -> pd.DataFrame:
    """Table `accuracy`: the mean accuracy over class subsets, and its spread between them, for each model and ncl.

    There is one line for each data set, model, protocol and ncl. The mean has a 95 % interval over subset seeds. The
    spread is the standard deviation; it is missing for a single subset. The columns of chance stay empty here:
    with_chance fills them in.

    subset: accuracies (`top1`, means over initialisations), one line for each subset, model and protocol.
    """
    lines = []
    for key, subsets in groups_by_columns(subset, (DATASET, MODEL, PROTOCOL, NCL)):
        lines.append(
            {
                **key,
                **_mean_cells(TOP1, subsets, FRACTION),  # mean and interval; FRACTION: it stays within 0 and 1
                SPREAD: subsets[TOP1].std(),
                SUBSETS: len(subsets),
            }
        )
    return ACCURACY_MEANS.frame(lines)


def with_chance(means: pd.DataFrame, points: pd.DataFrame) -> pd.DataFrame:
    """Table `accuracy` with its columns of chance filled in: accuracy of guessing, and whether the mean is at chance.

    means:  see accuracy.
    points: see accuracy_points.
    """
    chance = chance_of_means(points)
    return means.drop(columns=[CHANCE, AT_CHANCE]).merge(chance, on=[DATASET, MODEL, PROTOCOL, NCL], how="left")


def with_all_at_chance(lines: pd.DataFrame, points: pd.DataFrame, by: list[Column]) -> pd.DataFrame:
    """These lines with column `at_chance`: whether every mean accuracy in their group is at the level of chance.

    It is missing where no accuracy of guessing is known.
    points: the accuracies to judge (see accuracy_points).
    by:     the columns that define a group, in lines and points.
    """
    at_chance = chance_of_means(points).groupby(by)[AT_CHANCE].all().reset_index()
    return lines.drop(columns=AT_CHANCE).merge(at_chance, on=by, how="left")[list(lines)]


def chance_of_means(points: pd.DataFrame) -> pd.DataFrame:
    """For each data set, model, protocol and ncl: the accuracy of guessing, and whether the mean accuracy is at chance.

    Subsets share classes and so images, but the test of chance counts each image once. The number of different images
    is estimated as the number of different classes times the mean number of images of a class. A mean is at chance if
    its Wilson interval over these images reaches down to the accuracy of guessing.

    points: one line for each run and subset: its accuracy (`top1`), the accuracy of guessing (`chance`), the number of
            test images and the classes.
    """
    measured = points.dropna(subset=[TOP1, CHANCE])
    lines = []
    for key, subsets in groups_by_columns(measured, (DATASET, MODEL, PROTOCOL, NCL)):
        images_of_class = float((subsets[N_TEST] / subsets[NCL]).mean())
        classes = set().union(*subsets[CLASSES])  # the different classes of all subsets
        n_images = round(images_of_class * len(classes))
        n_right = subsets[TOP1].mean() * n_images
        chance = float(subsets[CHANCE].mean())
        lines.append({**key, CHANCE: chance, AT_CHANCE: count_is_at_chance(n_right, n_images, chance)})

    frame = pd.DataFrame(lines, columns=[DATASET, MODEL, PROTOCOL, NCL, CHANCE, AT_CHANCE])
    return frame.astype({"ncl": "int64", "chance": "float64", "at_chance": "bool"})


def dcn(subset: pd.DataFrame) -> pd.DataFrame:
    """Table `dcn`: the best model of each class subset with its accuracy, and the number of models to choose from.

    Of equally accurate models the first by name is the best.
    subset: see per_subset.
    """
    best_first = subset.sort_values(["top1", "model"], ascending=[False, True], kind="stable")
    grouped = best_first.groupby(["dataset", "protocol", "ncl", *DRAW], dropna=False, as_index=False)
    return grouped.agg(top1=("top1", "first"), model=("model", "first"), models=("model", "size"))


def ranks(subset: pd.DataFrame) -> pd.DataFrame:
    """Table `ranks`: the mean rank of each model over class subsets, for each protocol and ncl; 1 is the best.

    A subset counts only if all models of this protocol and ncl were evaluated on it: ranks among fewer models would not
    be comparable. Equally accurate models share their mean rank. Column `at_chance` stays empty here:
    with_all_at_chance fills it in.

    subset: accuracies (`top1`, means over initialisations), one line for each subset, model and protocol.
    """
    group_columns = [DATASET, PROTOCOL, NCL]
    # DRAW: subset seed and classes, which identify a subset; dropna: a subset that no seed drew counts too
    by_draw = subset.groupby([*group_columns, *DRAW], dropna=False)
    rank = by_draw["top1"].rank(ascending=False)
    n_models = subset.groupby(group_columns)["model"].transform("nunique")  # in the group of each line
    is_complete = by_draw["model"].transform("size") == n_models  # all of them were evaluated on the line's subset
    ranked = subset.assign(rank=rank, models=n_models)[is_complete]

    lines = []
    for key, subsets in groups_by_columns(ranked, [*group_columns, MODEL]):
        last_rank = float(subsets[MODELS].iloc[0])  # the number of ranked models: no interval goes beyond it
        lines.append({**key, **_mean_cells(RANK, subsets, (1.0, last_rank)), SUBSETS: len(subsets)})
    return RANKS.frame(lines)


def rank_agreement(partial: pd.DataFrame, full: pd.DataFrame) -> pd.DataFrame:
    """Table `rank_agreement`: does the ranking of models on all classes hold on few?

    On each class subset, Spearman's rho is computed over the models, between their accuracy on the subset and the
    accuracy of the full model of the same name on all classes. The table has the mean of rho over the subsets of each
    protocol and ncl. A subset on which rho is undefined, as with one model or equal accuracies, is left out.

    partial: accuracies (`top1`), one line for each subset, model and protocol, without the subsets of all classes.
    full:    the stored `predict` runs of full models, one line each; column `top1_open` is the accuracy on all classes.
    """
    # mean over the initialisations of a model
    reference = full.groupby(["dataset", "model"])["top1_open"].mean().rename("reference").reset_index()
    accuracies = partial.merge(reference, on=["dataset", "model"])
    group_columns = [DATASET, PROTOCOL, NCL]

    # rho of each subset
    rho_lines = []
    for key, models in groups_by_columns(accuracies, [*group_columns, *DRAW]):  # DRAW: subset seed and classes
        rho = correlation(models["top1"].to_numpy(), models["reference"].to_numpy(), "spearman").r
        rho_lines.append({**key, RANKING_RHO: rho, MODELS: len(models)})
    rho_columns = [*group_columns, *DRAW, RANKING_RHO, MODELS]
    rho_by_subset = pd.DataFrame(rho_lines, columns=rho_columns).dropna(subset=RANKING_RHO)

    # means over subsets with their intervals; SIGNED_FRACTION: these stay within -1 and 1
    lines = []
    for key, subsets in groups_by_columns(rho_by_subset, group_columns):
        lines.append(
            {
                **key,
                **_mean_cells(RANKING_RHO, subsets, SIGNED_FRACTION),
                MODELS: subsets[MODELS].max(),  # the most models on any of the subsets
                SUBSETS: len(subsets),
            }
        )
    return RANK_AGREEMENT.frame(lines)


def gap(partial: pd.DataFrame) -> pd.DataFrame:
    """Table `gap`: accuracy of sub-models minus accuracy of full models (open and masked), by data set and ncl.

    Means are over pairs of a model and a class subset. A pair counts if it has all three accuracies: of the sub-model,
    and of the full model under the protocols open and masked. The verdict states whether sub-models are more accurate
    than open full models, by the interval of the mean difference. Column `at_chance` stays empty here:
    with_all_at_chance fills it in.

    partial: accuracies (`top1`), one line for each subset, model and protocol. Subsets of all classes are left out: a
             sub-model of all classes is a full model.
    """
    accuracies = wide(PROTOCOL, partial, [DATASET, NCL, MODEL, *DRAW])  # a line for each pair, a column a protocol
    # a protocol that no model has becomes an empty column, so that no pair is left
    pairs = accuracies.reindex(columns=["sub", "open", "masked"]).dropna().reset_index()
    pairs[SUB_MINUS_OPEN] = pairs["sub"] - pairs["open"]
    pairs[SUB_MINUS_MASKED] = pairs["sub"] - pairs["masked"]

    lines = []
    for key, pairs_at_ncl in groups_by_columns(pairs, (DATASET, NCL)):
        # the mean difference and its interval over subset seeds; SIGNED_FRACTION: it stays within -1 and 1
        open_cells = _mean_cells(SUB_MINUS_OPEN, pairs_at_ncl, SIGNED_FRACTION)
        lines.append(
            {
                **key,
                **open_cells,
                **_mean_cells(SUB_MINUS_MASKED, pairs_at_ncl, SIGNED_FRACTION),
                N_PAIRS: len(pairs_at_ncl),
                MODELS: pairs_at_ncl[MODEL].nunique(),
                SUBSETS: len(pairs_at_ncl[DRAW].drop_duplicates()),  # DRAW: subset seed and classes
                GAP_VERDICT: _verdict(open_cells[SUB_MINUS_OPEN.low], open_cells[SUB_MINUS_OPEN.high]),
            }
        )
    return GAP.frame(lines)


def _mean_cells(column: Column, subsets: pd.DataFrame, within: tuple[float, float]) -> dict[str, float]:
    """The cells of a column's mean over subsets and of both ends of its 95 % interval over subset seeds.

    within: the range of the quantity, which the interval does not leave.
    """
    estimate = mean_with_interval(subsets[column], subsets["subset_seed"], within=within)
    return dict(zip(interval_columns(column), estimate, strict=True))


def _verdict(low: float, high: float) -> str:
    """Whether sub-models are more accurate than open full models, from the interval of their difference.

    NaN for an interval that is missing.
    """
    if pd.isna(low):
        return NO_MEAN_INTERVAL
    if low > 0:
        return "sub-models above open full models"
    return "not above" if high <= 0 else "undecided"
