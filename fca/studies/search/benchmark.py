"""Which policy finds the subdomains of lowest accuracy first? Searches replayed on tables of all subdomains."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Int8

from fca.data.files import threads
from fca.progress import track
from fca.store import Store
from fca.studies.search import columns
from fca.studies.search.columns import COVERING
from fca.studies.search.stats import POLICIES, Domain, domain_of, make_policy
from fca.studies.search.stats import replay as replays
from fca.studies.search.stats.policies import Guided
from fca.tables.keys import Query
from fca.tables.rows import apply_query, readable_rows, records, require_rows
from fca.tables.table import DATASET, MODEL, RHO, SEEDS, TableSpec, filled
from fca.types import Column, Table
from fca.validation import Allowed

N_POINTS = 60  # of a curve
BINS = np.linspace(0, 1, 11)  # of accuracy, for the histogram
VISITS_PER_PROCESS = 5_000  # replayed before another process is worth its start
SHARES = (0.1, 0.2, 0.4)  # explored, at which the coverage is reported
TRAINING_SIZES = (20, 50, 100, 200, 400, 800)  # subdomains that a model is fitted to

_PAPER = {
    "weather": ["sunny", "cloudy", "raining", "snowing"],
    "location": [
        "at the beach",
        "in the forest",
        "in the city",
        "inside a house",
        "in a garden",
        "in the desert",
        "in the mountains",
    ],
    "time": ["day", "night"],
    "color": ["white", "black", "brown", "beige", "gray", "red", "green", "blue"],
    "viewpoint": ["front", "side", "rear"],
}
_PAPER_RULES = [
    {"not": {"weather": "sunny", "time": "night"}},
    {"not": {"location": "inside a house", "weather": ["cloudy", "raining", "snowing"]}},
]

_NWISE_LABELS = {f"nwise {strength}": f"{strength}-wise" for strength in (2, 3, 4)}
_POLICY_LABELS = {
    "random": "random",
    **_NWISE_LABELS,
    "genetic": "genetic",
    "bo": "bo, Lasso",
    "bo_linear": "bo, linear",
    "bo_forest": "bo, random forest",
    "bo_svr": "bo, SVR",
    "gp_pairwise": "gp_pairwise",
}
POLICY = columns.POLICY.with_format("", "policy, or its model").with_choices(_POLICY_LABELS, filters=True)
SEARCHES = SEEDS.with_format(".0f", "searches")
EXPLORED = Column("explored", int, ".0f", "subdomains explored")
SHARE = Column("share", float, ".1%", "share of all subdomains")
HOURS = Column("gpu_h", float, ".1f", "GPU hours for these")
ACCURACY = columns.ACCURACY.with_format(".1%", "accuracy of those visited now")
RUNNING = Column("running_mean", float, ".1%", "mean accuracy of all visited")
COVERED = Column("coverage", float, ".1%", "visited share of the worst tenth")
CURVED = (ACCURACY, RUNNING, COVERED)
SDS = tuple(
    Column(f"{measure}_sd", float, ".1%", f"{measure.meaning}, standard deviation over searches") for measure in CURVED
)
ALL_FOUND = Column(
    "all_found", float, ".1%", "share explored when all of the worst tenth were visited, median over searches"
)
ALL_FOUND_LEAST = Column("all_found_least", float, ".1%", "the least of any search")
ALL_FOUND_MOST = Column("all_found_most", float, ".1%", "the most of any search")
NEARLY_FOUND = Column("nearly_found", float, ".1%", "share explored when 95 % of the worst tenth were visited, median")
COVERED_AT = tuple(
    Column(f"at_{100 * share:.0f}", float, ".1%", f"coverage when {100 * share:.0f} % were explored")
    for share in SHARES
)
SKILL = columns.SKILL.with_format(".2f", "share of variance that the model explains beyond the mean, cross-validated")
FROM = Column("accuracy_from", float, ".0%", "accuracy, from")
COUNT = Column("count", float, ".1f", "subdomains, mean over searches")
SIZE = Column("trained_on", int, ".0f", "subdomains that the model was fitted to")
PREDICTED_RHO = RHO.with_format("+.2f", "rank correlation of predicted and true accuracy of all others")
RHO_SD = Column("rho_sd", float, ".2f", "its standard deviation over draws")
CONSTANT = Column("constant", int, ".0f", "draws for which the model predicts one value for all others")

NAMES = Allowed(choices=tuple(POLICIES), non_empty=True)
Right = Int8[np.ndarray, "subdomains images"]

SOURCE = "Le Coz et al., 2024 (arXiv:2405.02332), figure 4"
_KEYS = (DATASET, MODEL, POLICY, SEARCHES)
CURVES = TableSpec(
    "search_curves",
    "How fast does each policy find the worst subdomains?",
    SOURCE,
    (*_KEYS, EXPLORED, SHARE, HOURS, *CURVED, *SDS),
)
FOUND = TableSpec(
    "search_found",
    "When has each policy visited the worst tenth?",
    SOURCE,
    (*_KEYS, ALL_FOUND, ALL_FOUND_LEAST, ALL_FOUND_MOST, NEARLY_FOUND, *COVERED_AT, SKILL, COVERING),
)
HISTOGRAM = TableSpec(
    "search_histogram",
    "How accurate are the first subdomains visited?",
    SOURCE,
    (*_KEYS, EXPLORED, FROM, COUNT),
)
PREDICTORS = TableSpec(
    "search_predictors",
    "Which model predicts the other subdomains best?",
    SOURCE,
    (*_KEYS, SIZE, PREDICTED_RHO, RHO_SD, CONSTANT),
)


class SearchTable(NamedTuple):
    """The images of all subdomains on which a search is replayed.    seed: of the search."""

    dataset: str
    model: str | None
    domain: Domain
    right: Right
    seed: int


class Record(NamedTuple):
    """What one search yields: lines of the four tables, before the summary over searches."""

    curve: pd.DataFrame
    coverage: pd.DataFrame  # one line
    histogram: pd.DataFrame
    rank_correlations: pd.DataFrame


@dataclass(frozen=True)
class SearchBenchmark:
    """`analysis=search_benchmark`; replays searches on tables of all subdomains."""

    tables: ClassVar = (CURVES, FOUND, HISTOGRAM, PREDICTORS)

    query: Annotated[Query, "which stored searches: type dataset=rendered, or query='...'"] = None
    simulated: Annotated[
        str | None,
        Allowed(choices=tuple(replays.SPREADS)),
        "how tables are drawn over attributes and rules, one a seed; null: those of stored searches of all subdomains",
    ] = None
    attributes: Annotated[
        dict[str, list[str]], "of drawn tables; by default the paper's domain of 1,032 valid combinations"
    ] = field(default_factory=lambda: deepcopy(_PAPER))
    rules: Annotated[list[Any], "combinations of values that cannot be drawn"] = field(
        default_factory=lambda: deepcopy(_PAPER_RULES)
    )
    policies: Annotated[list[str], NAMES, "nwise: of strengths 2 to 4"] = field(default_factory=lambda: list(POLICIES))
    seeds: Annotated[
        int, Allowed(1), "searches of every policy, by seeds from 0; each has a drawn table of its own"
    ] = 10
    images: Annotated[int, Allowed(1), "of a visit"] = 50
    minutes: Annotated[float, Allowed(above=0), "GPU time of a subdomain, for the axis of hours: the paper's"] = 12
    at: Annotated[int, Allowed(1), "visits whose accuracies are counted in the histogram: the paper's"] = 61

    def __call__(self, store: Store) -> list[Table]:
        """Replay a search by every policy on every table, and return the four result tables of means over searches.

        Searches are replayed on simulated tables if `simulated` is set, else on tables of stored searches. Raises
        FcaError if tables are not simulated and no stored search visited all subdomains.
        """
        if self.simulated is None:
            run_ids, tables = self._stored_tables(store)
        else:
            run_ids, tables = [], self._simulated_tables(self.simulated)

        searches = [(table, policy) for policy in self._policy_labels() for table in tables]
        work = partial(_replay_record, self.images, self.at)  # `at`: the visits that the histogram counts
        search_records = list(track(_in_processes(work, searches), "searches", len(searches)))

        summaries = (
            self._mean_curves([record.curve for record in search_records]),
            self._mean_coverage([record.coverage for record in search_records]),
            self._mean_histogram([record.histogram for record in search_records]),
            self._mean_rank_correlations([record.rank_correlations for record in search_records]),
        )
        return filled(self.tables, summaries, asdict(self), run_ids)

    def _simulated_tables(self, kind: str) -> list[SearchTable]:
        """A table drawn at random for each seed."""
        domain = Domain(self.attributes, self.rules)
        tables = []
        for seed in range(self.seeds):
            right = replays.simulated(domain, seed, kind, self.images).right
            tables.append(SearchTable(f"simulated {kind}", None, domain, right, seed))
        return tables

    def _stored_tables(self, store: Store) -> tuple[Sequence[str], list[SearchTable]]:
        """Run ids of the stored searches that visited all subdomains, and their tables for the replay.

        The table of each search is listed once for every seed, since each seed is a replay of its own.
        """
        all_rows = readable_rows(store, self.query)  # of all tasks: the query is checked, but selects no rows yet
        rows = apply_query(all_rows[all_rows["task"] == "search"], self.query)
        if len(rows):  # without rows there may be no such columns
            rows = rows[rows["n_visited"] == rows["n_subdomains"]]
        needed_rows = "searches that visited every subdomain (for invented ones: analysis.simulated=structured)"
        command = "fca run task=search model=MODEL, without a limit"
        require_rows(rows, needed_rows, total=len(store.rows()), command=command)

        # several searches of one model on one data set get the beginning of their run ids as part of their names
        shares_name = rows.duplicated([DATASET, MODEL], keep=False)
        model_and_run = rows[MODEL] + ", " + rows["run_id"].str[:6]
        rows = rows.assign(model=rows[MODEL].where(~shares_name, model_and_run))

        tables = []
        for row in records(rows):
            domain, right = _stored(store, row)
            for seed in range(self.seeds):
                tables.append(SearchTable(row[DATASET], row[MODEL], domain, right, seed))
        return rows["run_id"].tolist(), tables

    def _policy_labels(self) -> list[str]:
        """Names of the policies; `nwise` once for every strength."""
        labels: list[str] = []
        for name in self.policies:
            labels.extend(_NWISE_LABELS if name == "nwise" else [name])
        return labels

    def _mean_curves(self, curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """The curve of every policy: mean and standard deviation over searches of each point that all of them have."""
        groups = _grouped(curves, EXPLORED, SHARE)
        means = groups[[*CURVED]].mean()
        sds = groups[[*CURVED]].std().set_axis(SDS, axis=1)

        is_complete = groups.size() == self.seeds  # n-wise arrays of other seeds may be shorter
        frame = means.join(sds)[is_complete].assign(seeds=self.seeds).reset_index()
        frame[HOURS] = frame[EXPLORED] * self.minutes / 60
        return frame

    def _mean_coverage(self, coverages: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """When every policy had visited the worst tenth: medians, extremes and means over searches."""
        groups = _grouped(coverages)
        # a median is missing if a search never came so far: its number of visits is unknown
        medians = groups[[ALL_FOUND, NEARLY_FOUND]].median(skipna=False)
        extremes = {ALL_FOUND_LEAST: groups[ALL_FOUND].min(), ALL_FOUND_MOST: groups[ALL_FOUND].max()}
        means = groups[[*COVERED_AT, SKILL, COVERING]].mean()
        return medians.assign(**extremes).join(means).assign(seeds=self.seeds).reset_index()

    def _mean_histogram(self, histograms: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """How many of the first subdomains visited had an accuracy in each tenth, the mean over searches.

        EXPLORED is the number of visits that are counted: less than `at` where a policy planned fewer.
        """
        groups = _grouped(histograms, FROM)
        return groups.agg({EXPLORED: "max", COUNT: "mean"}).assign(seeds=self.seeds).reset_index()

    def _mean_rank_correlations(self, rank_correlations: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Mean and standard deviation of each model's rank correlation over random training sets, by their size.

        A model that predicts the same accuracy for all subdomains has no rank correlation; the training sets after
        which it does are counted.
        """
        groups = _grouped(rank_correlations, SIZE)
        means = groups[[PREDICTED_RHO]].mean()
        n_constant = groups.size() - groups[PREDICTED_RHO].count()
        frame = means.assign(rho_sd=groups[PREDICTED_RHO].std(), constant=n_constant)
        return frame.assign(seeds=self.seeds).reset_index()


def _grouped(frames: Sequence[pd.DataFrame], *columns: str) -> Any:
    """The lines of one result table of all searches, grouped by data set, model, policy and these further columns."""
    return pd.concat(frames).groupby([DATASET, MODEL, POLICY, *columns], sort=False, dropna=False)


def _stored(store: Store, row: dict[str, Any]) -> tuple[Domain, Right]:
    """The domain of a stored search that visited all subdomains, and its table of right images.

    The table has a line for each subdomain and a column for each of its accepted images, in the order drawn: 1 for a
    right image, 0 for a wrong one, -1 where the subdomain has fewer images than others.

    row: the row of the search.
    """
    arrays = {name: store.array(row["run_id"], f"image_{name}") for name in ("visit", "accepted", "correct")}
    images = pd.DataFrame(arrays).sort_values("visit", kind="stable")
    accepted = images[images["accepted"]]

    subdomain = store.array(row["run_id"], "visited")[accepted["visit"]]  # of each accepted image
    position = accepted.groupby(subdomain).cumcount()  # of each image among the images of its subdomain
    domain = domain_of(str(store.array(row["run_id"], "domain")[0]))  # stored as JSON, in an array of one text
    right = np.full((len(domain), position.max() + 1), -1, np.int8)
    right[subdomain, position] = accepted["correct"]
    return domain, right


def _in_processes(
    work: Callable[[SearchTable, str], Record], searches: Sequence[tuple[SearchTable, str]]
) -> Iterator[Record]:
    """What `work` returns for each search, in order; done in parallel where the searches are long enough.

    searches: of each search the table on which it is replayed, and the label of its policy.
    """
    n_visits = sum(len(table.domain) for table, _ in searches)
    processes = min(threads(0), n_visits // VISITS_PER_PROCESS)  # threads(0): as many as there are cores
    if processes < 2:
        yield from map(work, *zip(*searches, strict=True))
        return

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by the processes, each of which has one core
    ignore_interrupts = (signal.SIGINT, signal.SIG_IGN)  # after Ctrl+C the parent stops the processes itself
    # spawned, not forked: a fork of a process with threads (BLAS) may hang. Each process begins by calling
    # signal.signal(*ignore_interrupts)
    with ProcessPoolExecutor(processes, get_context("spawn"), signal.signal, ignore_interrupts) as pool:
        yield from pool.map(work, *zip(*searches, strict=True))


def _replay_record(images: int, histogram_visits: int, table: SearchTable, label: str) -> Record:
    """Replay one search of a table by a policy, and return the lines of each result table for it.

    The table has the images of all subdomains. The result has the accuracy and coverage of the search after some
    numbers of visits, when it had found the worst tenth of subdomains, the accuracies of its first visits, and how well
    the policy's model ranks subdomains that were not visited.

    images: number of images of a visit.    histogram_visits: how many of the first visits the histogram counts.
    label:  the policy, such as `bo`. The label of n-wise ends with its strength n, as in `nwise 2`: this policy first
            visits a few subdomains that together have every valid combination of values of any n attributes.
    """
    name, _, strength = label.partition(" ")
    options: dict[str, Any] = {"strength": int(strength)} if strength else {}
    batches = (images,)  # every visit has this number of images
    search = replays.replay(table.domain, table.right, name, table.seed, batches, **options)

    policy = make_policy(name, table.domain, table.seed, **options)  # as in the replay, which does not return it
    n_subdomains = len(table.domain)
    # n-wise plans only its first visits, and makes the others at random; `planned` is None for policies that plan all
    n_planned = min(policy.planned or n_subdomains, n_subdomains)
    # the numbers of visits at which the curve has a point, evenly spaced
    points = np.unique(np.linspace(max(1, n_subdomains / N_POINTS), n_subdomains, N_POINTS).round().astype(int))
    true_accuracy = replays.accuracies(table.right)
    # after each visit, the share of the worst tenth of subdomains that was visited
    covered = replays.coverage(search.visited, replays.worst(true_accuracy))

    # skill: share of the variance of accuracies that the policy's model explains. covering: share of choices that the
    # model did not guide, because it had no skill; they visit what was visited least
    skill, covering, rank_correlations = np.nan, np.nan, []
    if isinstance(policy, Guided):  # only guided policies have a model that predicts accuracy
        estimated_skill = policy.skill(*search)  # None with too few subdomains
        skill = np.nan if estimated_skill is None else estimated_skill
        covering = _covering_share(policy, search, points)
        rank_correlations = _rank_correlations(policy, table, true_accuracy)

    frames = (
        _curve(search, covered, points)[points <= n_planned],
        _coverage_line(covered, n_planned, skill, covering),
        _histogram(search.accuracy[: min(histogram_visits, n_planned)]),
        pd.DataFrame(rank_correlations, columns=[SIZE, PREDICTED_RHO], dtype=float),
    )
    return Record(*(frame.assign(dataset=table.dataset, model=table.model, policy=label) for frame in frames))


def _curve(
    search: replays.Replay, covered: Float[np.ndarray, " visits"], points: Int[np.ndarray, " points"]
) -> pd.DataFrame:
    """Accuracy and coverage of a search, one line for each of some numbers of visits.

    The accuracy of a line is the mean of the visits since the previous point. The running mean is of all visits so far.

    covered: share of the worst tenth that was visited, after each visit.    points: the numbers of visits, ascending.
    """
    n_subdomains = len(covered)
    accuracy = pd.Series(search.accuracy)
    # for each visit the position, in `points`, of the first point that is not before it
    point_of_visit = np.searchsorted(points, np.arange(1, n_subdomains + 1))
    running_mean = accuracy.expanding().mean().to_numpy()
    curve = {
        EXPLORED: points,
        SHARE: points / n_subdomains,
        ACCURACY: accuracy.groupby(point_of_visit).mean(),  # one value for each point, in their order
        RUNNING: running_mean[points - 1],
        COVERED: covered[points - 1],
    }
    return pd.DataFrame(curve)


def _coverage_line(
    covered: Float[np.ndarray, " visits"], n_planned: int, skill: float, covering: float
) -> pd.DataFrame:
    """One line: the share of subdomains explored when a search had visited all, or 95 %, of the worst tenth.

    It also has the share of the worst tenth visited at fixed shares explored, and two numbers on the policy's model.

    covered: share of the worst tenth that was visited, after each visit.
    n_planned: visits that the policy planned. Visits after them are random and do not count: values are NaN there.
    skill: share of variance that the model explains beyond the mean; NaN for a policy without a model.
    covering: share of choices that the model did not guide, because it had no skill: these visit the pairs of values
        that were visited least. NaN without a model.
    """
    n_subdomains = len(covered)
    covered_by_share = {}
    for column, share in zip(COVERED_AT, SHARES, strict=True):
        n_explored = max(1, round(share * n_subdomains))
        covered_by_share[column] = covered[n_explored - 1] if n_explored <= n_planned else np.nan

    line = {
        ALL_FOUND: replays.visits_until(covered[:n_planned], 1.0) / n_subdomains,
        NEARLY_FOUND: replays.visits_until(covered[:n_planned], 0.95) / n_subdomains,
        **covered_by_share,
        SKILL: skill,
        COVERING: covering,
    }
    return pd.DataFrame([line])


def _histogram(accuracy: Float[np.ndarray, " visits"]) -> pd.DataFrame:
    """How many of these visits have an accuracy in each tenth, one line each."""
    counts, _ = np.histogram(accuracy[np.isfinite(accuracy)], BINS)
    return pd.DataFrame({EXPLORED: len(accuracy), FROM: BINS[:-1], COUNT: counts})


def _covering_share(policy: Guided, search: replays.Replay, points: Int[np.ndarray, " points"]) -> float:
    """Share of the choices at these visits that covered the domain because the model had no skill."""
    # `search` has three arrays, with an entry for each visit; a choice knows the visits before it
    is_covering = [policy.covers(*(of_visits[: point - 1] for of_visits in search)) for point in points]
    return float(np.mean(is_covering))


def _rank_correlations(
    policy: Guided, table: SearchTable, true_accuracy: Float[np.ndarray, " subdomains"]
) -> list[tuple[int, Any]]:
    """How well a policy's model ranks subdomains that it was not fitted to, for each of TRAINING_SIZES.

    Returns pairs: the size of a random training set, and Spearman's correlation of predicted and true accuracy over all
    other subdomains. Sizes that would leave no other subdomain are left out.

    true_accuracy: of each subdomain, from all of its images; NaN without images.
    """
    n_subdomains = len(table.domain)
    correct = np.sum(table.right == 1, axis=1)
    shown = np.sum(table.right >= 0, axis=1)

    rank_correlations = []
    for size in TRAINING_SIZES:
        if size >= n_subdomains:
            continue

        order = np.random.default_rng([table.seed, size]).permutation(n_subdomains)
        trained = order[:size]
        untrained = order[size:]
        predicted = policy.predict(trained, correct[trained], shown[trained]).mean  # of all subdomains
        accuracies = pd.DataFrame({"predicted": predicted, "true": true_accuracy}).iloc[untrained].dropna()
        # Spearman's correlation; NaN where the predictions or the accuracies are all equal
        rho = accuracies.rank().corr().loc["predicted", "true"]
        rank_correlations.append((size, rho))
    return rank_correlations
