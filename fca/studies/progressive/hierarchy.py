"""Do models fail hard images before easy ones? The hierarchical score, and how much accuracies alone explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer, Shaped

from fca.stats.chance import count_is_at_chance, guessing_accuracy
from fca.stats.correlation import resampled_correlation
from fca.stats.intervals import FISHER_Z, FRACTION, Estimated, interval_method, jackknife_interval, left_out_weights
from fca.store import Store
from fca.studies.progressive.levels import (
    ACCURACY,
    BY_LEVEL,
    PAPER,
    SCORE,
    SESSIONS,
    SHARE,
    LevelAnalysis,
    LevelResponses,
    Line,
    cells,
    levels_of,
    responses_by_level,
    sessions_of,
    with_complete_sessions,
)
from fca.studies.progressive.stats import hierarchy as stats
from fca.studies.progressive.stats.pool import LEVEL_WEIGHTS, LEVELS
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    IMAGE_ID,
    LABEL,
    MODEL,
    MODELS,
    N_CLASSES,
    N_TEST,
    NOTE,
    P,
    R,
    TableSpec,
    filled,
)
from fca.types import Column, Table, interval_columns

Triplets = Integer[np.ndarray, "triplets 3"]
FEWEST = 4  # models that a correlation over models needs

HIERARCHICAL_SCORE = Column("hierarchical_score", float, ".1%", "share of matched triplets that follow the order")
SESSION_RATES = Column("session_rates", float, ".1%", "share that each session's accuracies by level make")
LEVEL_RATES = Column("level_rates", float, ".1%", "share that the accuracies by level make")
SESSION_EXCESS = Column(
    "session_excess", float, "+.1%", "session rates minus level rates: classes and attributes differ"
)
MATCHED_EXCESS = Column("matched_excess", float, "+.1%", "matched minus all triplets of a session: the same object")
P_MATCHED = Column("p_matched", float, ".2g", "p value of the matching, one-sided, exact")
ACCURACY_MASKED = Column("accuracy_masked", float, ".1%", "accuracy among the classes of the images")
SCORE_MASKED = Column("score_masked", float, ".1%", "score among the classes of the images")
TRIPLETS = Column("triplets", int, ".0f", "matched triplets")
PATTERN = Column("pattern", str, "", "right (1) and wrong (0) on easy, medium, hard", {p: p for p in stats.PATTERNS})
FOLLOWS = Column("follows", bool, "", "whether harder images fail first")
SHARE_OF_TRIPLETS = SHARE.with_format(".1%", "share of triplets")
KIND = Column("kind", str, "", "correlation", {"pearson": "plain", "partial": "given level rates"})
SCORE_R = R.with_format(".2f", "correlation of accuracy and hierarchical score")
NAIVE_P = P.with_format(".2g", "p value as if models were independent")
NETWORKS = Column("networks", int, ".0f", "networks, whatever their seed")

HIERARCHY = TableSpec(
    "hierarchy",
    "How often does a model solve the easier image where it solves the harder, and what makes it do so?",
    f"{PAPER} section 3.2 and figure 4 (top right), with intervals, and what accuracies alone make of the score",
    (
        DATASET,
        MODEL,
        *interval_columns(ACCURACY),
        *interval_columns(SCORE),
        *BY_LEVEL,
        *interval_columns(HIERARCHICAL_SCORE),
        *interval_columns(SESSION_RATES),
        *interval_columns(LEVEL_RATES),
        *interval_columns(MATCHED_EXCESS),
        P_MATCHED,
        *interval_columns(SESSION_EXCESS),
        ACCURACY_MASKED,
        SCORE_MASKED,
        TRIPLETS,
        SESSIONS,
        N_CLASSES,
        N_TEST,
        AT_CHANCE,
    ),
)
HIERARCHY_PATTERNS = TableSpec(
    "hierarchy_patterns",
    "Which of the eight patterns of right (1) and wrong (0) on easy, medium, hard does a model show?",
    f"{PAPER} figure 4 (left), with the shares that accuracies alone make",
    (DATASET, MODEL, ACCURACY, PATTERN, FOLLOWS, SHARE_OF_TRIPLETS, SESSION_RATES, LEVEL_RATES, TRIPLETS),
)
HIERARCHY_CORRELATION = TableSpec(
    "hierarchy_correlation",
    "Do more accurate models follow the order of levels more, and more than their accuracy makes them?",
    f"{PAPER} figure 4 (bottom right: r .77 over 12 models), with intervals and the partial correlation",
    (DATASET, KIND, *interval_columns(SCORE_R), NAIVE_P, MODELS, NETWORKS, NOTE),
)
UNDEFINED_WITHOUT = "no interval: undefined without one of the networks, or all alike"
METHOD = {
    "accuracy, score": "(e + m + h) / 3 and (e + 2 m + 4 h) / 7 of the accuracies on easy, medium and hard images, "
    "means over sessions (a class and an attribute), which count equally",
    "hierarchical_score": "share of matched triplets with the patterns 000, 100, 110 or 111; session_rates where no "
    "triplets are named",
    "session_rates": "(1 - m)(1 - h) + e m of each session's own accuracies, mean over sessions: the share of all "
    "triplets that the images of a session form, or the mean over all matchings within sessions",
    "level_rates": "(1 - m)(1 - h) + e m of e, m and h themselves: independent answers, all sessions alike",
    "session_excess": "session_rates minus level_rates: how much classes and attributes differ; answers that are "
    "independent inside every session have it too",
    "matched_excess": "hierarchical_score minus the mean over all matchings of the same images within sessions: only "
    "this shows that the same object fails first when hard and last when easy. Missing without named triplets. What "
    "the images of a triplet share is the data set's: drawn ones their object and scene, generated ones their seed",
    "p_matched": "share of all matchings within sessions with this score or a higher one; of a single model",
    "triplets": "matched ones; missing where none are named",
    "intervals": f"95 %: {interval_method('whole classes with all their sessions')}",
    "r": f"over models, from {FEWEST} on; 95 %: jackknife over networks and Student's t, on Fisher's z; p as if models "
    "were independent; images stay as they are; partial: given level_rates",
}


@dataclass(frozen=True)
class Hierarchy(LevelAnalysis):
    """`analysis=hierarchy`."""

    tables: ClassVar = (HIERARCHY, HIERARCHY_PATTERNS, HIERARCHY_CORRELATION)

    def __call__(self, store: Store) -> list[Table]:
        """Tables hierarchy (a line for each model), hierarchy_patterns and hierarchy_correlation.

        Raises FcaError when the store has no predictions for images with attributes and levels.
        """
        sources = responses_by_level(store, self.query, self.protocol)
        # The same data sets, models and images, but a model may only predict the classes of the images: for the columns
        # ACCURACY_MASKED and SCORE_MASKED.
        masked_sources = responses_by_level(store, self.query, "masked")

        model_lines: list[Line] = []
        pattern_lines: list[Line] = []
        for all_sessions, masked in zip(sources, masked_sources, strict=True):  # each of one data set
            source = with_complete_sessions(all_sessions)
            triplets = matched_triplets(source.items)
            # the same images as in `source`, in the same order
            is_in_complete_session = masked.items[IMAGE_ID].isin(source.items[IMAGE_ID])
            masked_correct = masked.correct[:, is_in_complete_session]

            for position, model in enumerate(source.models):
                line = _model_line(source, position, masked_correct[position], triplets)
                line = {DATASET: source.dataset, MODEL: model, **line}
                model_lines.append(line)
                pattern_lines += _pattern_lines(source, position, triplets, line)

        models = HIERARCHY.frame(model_lines).astype({TRIPLETS: "Int64"})  # integers of which some are missing
        patterns = pd.DataFrame(pattern_lines).astype({TRIPLETS: "Int64"})
        correlations: list[Line] = []
        for dataset, models_of_dataset in models.groupby(DATASET):
            correlations += correlation_lines(str(dataset), models_of_dataset)
        runs = (run for source in sources for run in source.runs)
        # Each table has its lines, and keeps the options, the method in words and the ids of the runs that it read.
        return filled(self.tables, (models, patterns, correlations), asdict(self) | METHOD, runs)


def matched_triplets(items: pd.DataFrame) -> Triplets:
    """Positions in `items` of the easy, the medium and the hard image of each complete triplet, one row a triplet.

    A triplet is named by its session and its cell in column `triplet`; images without a name belong to none. Triplets
    that lack a level, or have several images of one, are left out.

    >>> items = pd.DataFrame({"label": "car", "attribute": "size", "triplet": ["a", "a", "b", "a"]})
    >>> matched_triplets(items.assign(level=["hard", "easy", "easy", "medium"]))
    array([[1, 3, 0]])
    """
    columns = {"triplet": items["triplet"], "session": sessions_of(items), "level": levels_of(items)}
    images = pd.DataFrame(columns).dropna(subset="triplet").reset_index(names="position")

    levels = images.groupby(["session", "triplet"])["level"]
    is_complete = (levels.transform("size") == 3) & (levels.transform("nunique") == 3)
    ordered = images[is_complete].sort_values(["session", "triplet", "level"])  # level: 0 easy, 1 medium, 2 hard
    return ordered["position"].to_numpy(dtype=np.int64).reshape(-1, 3)


def correlation_lines(dataset: str, models: pd.DataFrame) -> Iterator[Line]:
    """Two lines: the correlation of hierarchical score and accuracy over the models of a data set, plain and partial.

    The partial correlation controls for the level rates, the score that a model's accuracies by level alone explain.
    Jackknife intervals leave out whole networks, since models of a network differ only by seed. With fewer than FEWEST
    models both lines lack a correlation.

    models: the data set's lines of the table hierarchy.
    """
    values = models[[HIERARCHICAL_SCORE, ACCURACY, LEVEL_RATES]].to_numpy(dtype=float).T  # 3 x models
    # A code for the network of each model: "resnet18, seed 1" is of the network resnet18.
    network = pd.factorize(models[MODEL].str.split(", ").str[0])[0]
    columns = {"dataset": dataset, "models": len(models), "networks": int(network.max()) + 1}
    if len(models) < FEWEST:
        for kind in KIND.choices:
            yield {**columns, "kind": kind}
        return

    correlations = stats.score_and_accuracy(*values)  # plain and partial, the order of KIND.choices
    times = left_out_weights(network)  # networks x models: 0 for the models of the network that is left out, else 1
    left_out_coefficients = _without_each_network(values, times)
    for kind, correlation, left_out in zip(KIND.choices, correlations, left_out_coefficients, strict=True):
        low, high = jackknife_interval(correlation.r, left_out, scale=FISHER_Z)  # on arctanh(r), which is nearly normal
        # The jackknife gives no interval if a coefficient in `left_out` is undefined, or if all of them are alike. The
        # note names this reason where the correlation itself is defined.
        lacks_interval = np.isnan(low) and not np.isnan(correlation.r)
        yield {
            **columns,
            "kind": kind,
            "r": correlation.r,
            "r_low": low,
            "r_high": high,
            "p": correlation.p,
            "note": UNDEFINED_WITHOUT if lacks_interval else None,
        }


def _without_each_network(
    values: Float[np.ndarray, "3 models"], times: Integer[np.ndarray, "networks models"]
) -> tuple[Float[np.ndarray, " networks"], Float[np.ndarray, " networks"]]:
    """The plain and the partial correlation of score and accuracy, without each network in turn.

        r_partial = (r_sa - r_sl r_al) / sqrt((1 - r_sl²) (1 - r_al²)),   s: score, a: accuracy, l: level rates

    values: s, a and l of each model.
    times:  how often each model counts without each network: 0 for the models of this network, 1 for all others.

    NaN where so few models are left that any values fit exactly: two for the plain correlation, three for the partial
    one.
    """
    score, accuracy, by_level = values
    plain = resampled_correlation(score, accuracy, times)
    score_by_level = resampled_correlation(score, by_level, times)
    accuracy_by_level = resampled_correlation(accuracy, by_level, times)

    unexplained = (1 - score_by_level**2) * (1 - accuracy_by_level**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        partial = (plain - score_by_level * accuracy_by_level) / np.sqrt(unexplained)

    n_models = (times > 0).sum(axis=1)
    is_defined = (n_models > 3) & (unexplained > 1e-12)  # else level rates explain everything: only rounding is left
    return np.where(n_models > 2, plain, np.nan), np.where(is_defined, partial, np.nan)


def _model_line(
    source: LevelResponses, position: int, masked_correct: Bool[np.ndarray, " items"], triplets: Triplets
) -> Line:
    """The cells of one model in the table hierarchy, without the names of data set and model.

    Each score and accuracy with an interval is an estimate with both ends of its 95 % interval.

    position:       position of the model in `source`.
    masked_correct: whether the model is right on each image if it may only predict the classes of the images.
    triplets:       positions of the easy, medium and hard image of each triplet; empty if the data set names none.
    """
    correct = source.correct[position]
    levels = levels_of(source.items)
    sessions = sessions_of(source.items)
    labels = source.items[LABEL].to_numpy(dtype=str)

    # Accuracy, (easy + medium + hard) / 3, and score, (easy + 2 medium + 4 hard) / 7: LEVEL_WEIGHTS has the weights of
    # both. They are means over sessions (a class and an attribute), which count equally; intervals are over classes.
    rates = stats.level_rates(correct, levels, sessions)  # sessions x levels
    masked_rates = stats.level_rates(masked_correct, levels, sessions)
    _, first_image_of_session = np.unique(sessions, return_index=True)
    classes = labels[first_image_of_session]  # the class of each session
    accuracy, score = (_mean_of_sessions(rates @ weights, classes) for weights in LEVEL_WEIGHTS)
    # The hierarchical scores of independent responses: `session` with the accuracies of each session, `level` with the
    # mean accuracies by level; `excess` is the first score minus the second.
    explained = stats.explained_scores(rates, classes)

    if len(triplets):
        easy = triplets[:, 0]  # all three images have the same session and class
        # `score` is the share of these triplets that follow the order; `excess` is the score minus its mean over all
        # ways to match the images of a session into triplets; p is the share of these ways with so high a score.
        matched = stats.matched_score(correct[triplets], sessions[easy], labels[easy])
        of_triplets = {
            **cells(interval_columns(HIERARCHICAL_SCORE), matched.score),
            **cells(interval_columns(MATCHED_EXCESS), matched.excess),
            P_MATCHED: matched.p,
        }
    else:
        # The score over all triplets that the images of a session can form. Among these, responses to the three levels
        # are independent, so that this is the score by session.
        of_triplets = cells(interval_columns(HIERARCHICAL_SCORE), explained.session)

    return {
        **cells(BY_LEVEL, rates.mean(axis=0).tolist()),
        **cells(interval_columns(ACCURACY), accuracy),
        **cells(interval_columns(SCORE), score),
        **cells((ACCURACY_MASKED, SCORE_MASKED), (LEVEL_WEIGHTS @ masked_rates.mean(axis=0)).tolist()),
        **cells(interval_columns(SESSION_RATES), explained.session),
        **cells(interval_columns(LEVEL_RATES), explained.level),
        **cells(interval_columns(SESSION_EXCESS), explained.excess),
        AT_CHANCE: count_is_at_chance(correct.sum(), len(correct), guessing_accuracy(labels)),
        SESSIONS: len(rates),
        N_CLASSES: len(set(labels)),
        N_TEST: len(correct),
        TRIPLETS: len(triplets) or None,  # missing where none are named
        **of_triplets,
    }


def _mean_of_sessions(values: Float[np.ndarray, " sessions"], classes: Shaped[np.ndarray, " sessions"]) -> Estimated:
    """The mean of a share over sessions, with its interval over classes.    classes: the class of each session."""
    return Estimated(values.mean(), *stats.class_interval(values, classes, FRACTION))


def _pattern_lines(source: LevelResponses, position: int, triplets: Triplets, model_line: Line) -> Iterator[Line]:
    """The lines of hierarchy_patterns for one model: its share of triplets with each of the eight patterns.

    A pattern is right (1) or wrong (0) on the easy, the medium and the hard image. Beside the share are the shares of
    independent responses with the model's accuracies in each session, and with its accuracies by level.

    position:   position of the model in `source`.
    triplets:   positions of the easy, medium and hard image of each triplet. If the data set names none, the share is
                over all triplets that the images of a session can form.
    model_line: the model's line of the table hierarchy.
    """
    correct = source.correct[position]
    # Over all triplets of a session's images a pattern is as frequent as if the responses were independent.
    all_triplets = stats.all_triplets_score(correct, levels_of(source.items), sessions_of(source.items))
    observed = stats.hierarchical_score(correct[triplets]) if len(triplets) else all_triplets
    n_observed = sum(observed.patterns.values())  # the counts of patterns sum to the number of triplets
    n_all = sum(all_triplets.patterns.values())

    columns: Line = {column: model_line[column] for column in (DATASET, MODEL, ACCURACY, TRIPLETS)}
    for pattern, count in observed.patterns.items():
        # probability of this response at each level, given the model's accuracy there (columns easy, medium, hard)
        probabilities = [
            model_line[level] if mark == "1" else 1 - model_line[level]
            for level, mark in zip(LEVELS, pattern, strict=True)
        ]
        yield {
            **columns,
            PATTERN: pattern,
            FOLLOWS: pattern in stats.FOLLOWING,
            SHARE_OF_TRIPLETS: count / n_observed,
            SESSION_RATES: all_triplets.patterns[pattern] / n_all,
            LEVEL_RATES: float(np.prod(probabilities)),
        }
