"""Which policy finds the subdomains of lowest accuracy first? Searches replayed on tables of all subdomains."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int8

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

POINTS = 60  # of a curve
BINS = np.linspace(0, 1, 11)  # of accuracy
VISITS_PER_PROCESS = 5_000  # fewer need no further process
SHARES = (0.1, 0.2, 0.4)  # of the subdomains, explored
SIZES = (20, 50, 100, 200, 400, 800)  # subdomains that a model is fitted to
PAPER_ATTRIBUTES = {
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
_NIGHT = {"weather": "sunny", "time": "night"}
_INSIDE = {"location": "inside a house", "weather": ["cloudy", "raining", "snowing"]}

_NWISE = {"nwise 2": "2-wise", "nwise 3": "3-wise", "nwise 4": "4-wise"}
_POLICY_NAMES = {
    "random": "random",
    **_NWISE,
    "genetic": "genetic",
    "bo": "bo, Lasso",
    "bo_linear": "bo, linear",
    "bo_forest": "bo, random forest",
    "bo_svr": "bo, SVR",
    "gp_pairwise": "gp_pairwise",
}
POLICY = columns.POLICY.with_format("", "policy, or its model").with_choices(_POLICY_NAMES, filters=True)
SEARCHES = SEEDS.with_format(".0f", "searches")
EXPLORED = Column("explored", int, ".0f", "subdomains explored")
SHARE = Column("share", float, ".1%", "share of all subdomains")
HOURS = Column("gpu_h", float, ".1f", "GPU hours for these")
ACCURACY = columns.ACCURACY.with_format(".1%", "accuracy of those visited now")
RUNNING = Column("running_mean", float, ".1%", "mean accuracy of all visited")
COVERED = Column("coverage", float, ".1%", "visited share of the worst tenth")
CURVED = ACCURACY, RUNNING, COVERED
SDS = tuple(Column(f"{column}_sd", float, ".1%", f"{column.meaning}, sd over searches") for column in CURVED)
ALL = Column("all_found", float, ".1%", "share explored when all of the worst tenth were visited, median over searches")
LEAST = Column("all_found_least", float, ".1%", "the least of any search")
MOST = Column("all_found_most", float, ".1%", "the most of any search")
NEARLY = Column("nearly_found", float, ".1%", "share explored when 95 % of the worst tenth were visited, median")
AT = tuple(
    Column(f"at_{100 * share:.0f}", float, ".1%", f"coverage when {100 * share:.0f} % were explored")
    for share in SHARES
)
SKILL = columns.SKILL.with_format(".2f", "share of variance that the model explains beyond the mean, cross-validated")
FROM = Column("accuracy_from", float, ".0%", "accuracy, from")
COUNT = Column("count", float, ".1f", "subdomains, mean over searches")
SIZE = Column("trained_on", int, ".0f", "subdomains that the model was fitted to")
PREDICTED_RHO = RHO.with_format("+.2f", "rank correlation of predicted and true accuracy of all others")
RHO_SD = Column("rho_sd", float, ".2f", "its sd over draws")
CONSTANT = Column("constant", int, ".0f", "draws for which the model predicts one value for all others")

NAMES = Allowed(choices=tuple(POLICIES), non_empty=True)
Right = Int8[np.ndarray, "subdomains images"]
Frames = tuple[pd.DataFrame, ...]
SearchTable = tuple[str, str | None, Domain, Right, int]  # data set, model, its table, and the seed of the search
_KEYS = (DATASET, MODEL, POLICY, SEARCHES)
SOURCE = "Le Coz et al., 2024 (arXiv:2405.02332), figure 4"
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
    (*_KEYS, ALL, LEAST, MOST, NEARLY, *AT, SKILL, COVERING),
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
    ] = field(default_factory=lambda: dict(PAPER_ATTRIBUTES))
    rules: Annotated[list[Any], "combinations of values that cannot be drawn"] = field(
        default_factory=lambda: [{"not": _NIGHT}, {"not": _INSIDE}]
    )
    policies: Annotated[list[str], NAMES, "nwise: of strengths 2 to 4"] = field(default_factory=lambda: list(POLICIES))
    seeds: Annotated[
        int, Allowed(1), "searches of every policy, by seeds from 0; each has a drawn table of its own"
    ] = 10
    images: Annotated[int, Allowed(1), "of a visit"] = 50
    minutes: Annotated[float, Allowed(above=0), "GPU time of a subdomain, for the axis of hours: the paper's"] = 12
    at: Annotated[int, Allowed(1), "visits whose accuracies are counted in the histogram: the paper's"] = 61

    def __call__(self, store: Store) -> list[Table]:
        """Its tables. Raises FcaError where neither a stored search visited all subdomains nor tables are simulated."""
        rows = readable_rows(store, self.query)
        rows = apply_query(rows[rows["task"] == "search"], self.query)
        if self.simulated is not None:
            rows = rows[:0]
            tables = self._simulated_tables(self.simulated)
        else:
            rows = rows[rows["n_visited"] == rows["n_subdomains"]] if len(rows) else rows
            what = "searches that visited every subdomain (for invented ones: analysis.simulated=structured)"
            require_rows(rows, what, len(store.rows()), "fca run task=search model=MODEL, without a limit")
            tables = self._stored_tables(store, rows)

        policies: list[str] = []
        for name in self.policies:
            policies += _NWISE if name == "nwise" else [name]
        searches = [(table, policy) for policy in policies for table in tables]
        frames_of_searches = _in_processes(partial(_searched, self.images, self.at), searches)
        frames = zip(*track(frames_of_searches, "searches", len(searches)), strict=True)
        curves, found, counts, rhos = (pd.concat(frames_of_table) for frames_of_table in frames)

        lines = [
            self._mean_curves(curves),
            _summary_of_found(found),
            _by(counts, FROM).agg({EXPLORED: "max", COUNT: "mean"}),
            _mean_rhos(rhos),
        ]
        frames_of_tables = [frame.assign(seeds=self.seeds).reset_index() for frame in lines]
        return filled(self.tables, frames_of_tables, asdict(self), rows["run_id"])

    def _simulated_tables(self, kind: str) -> list[SearchTable]:
        """A drawn table for each seed."""
        domain = Domain(self.attributes, self.rules)
        tables: list[SearchTable] = []
        for seed in range(self.seeds):
            right = replays.simulated(domain, seed, kind, self.images).right
            tables.append((f"simulated {kind}", None, domain, right, seed))
        return tables

    def _stored_tables(self, store: Store, rows: pd.DataFrame) -> list[SearchTable]:
        """The table of each stored search, for each seed; searches of one model are named with their runs."""
        is_repeated = rows.duplicated([DATASET, MODEL], keep=False)
        names = rows[MODEL].where(~is_repeated, rows[MODEL] + ", " + rows["run_id"].str[:6])
        tables: list[SearchTable] = []
        for row in records(rows.assign(model=names)):
            domain, right = _stored(store, row)
            tables += [(row[DATASET], row[MODEL], domain, right, seed) for seed in range(self.seeds)]
        return tables

    def _mean_curves(self, curves: pd.DataFrame) -> pd.DataFrame:
        """Means over searches, without points that not all of them reach: arrays of nwise differ in length."""
        by_point = _by(curves, EXPLORED, SHARE)
        means = by_point[[*CURVED]].mean()
        sds = by_point[[*CURVED]].std().set_axis(SDS, axis=1)
        has_all_searches = by_point.size() == self.seeds
        complete = means.join(sds)[has_all_searches]
        hours = complete.index.get_level_values(EXPLORED) * self.minutes / 60
        return complete.assign(**{HOURS: hours})


def _by(frame: pd.DataFrame, *columns: Column) -> Any:
    """The lines of each data set, model, policy and value of these columns."""
    return frame.groupby([DATASET, MODEL, POLICY, *columns], sort=False, dropna=False)


def _summary_of_found(found: pd.DataFrame) -> pd.DataFrame:
    """When the worst tenth was visited: medians over searches, the least and the most; means of the rest."""
    by_policy = _by(found)
    summary = by_policy[[ALL, NEARLY]].median(skipna=False)
    summary = summary.assign(**{LEAST: by_policy[ALL].min(), MOST: by_policy[ALL].max()})
    return summary.join(by_policy[[*AT, SKILL, COVERING]].mean())


def _mean_rhos(rhos: pd.DataFrame) -> pd.DataFrame:
    """The mean rank correlation of each training size; draws without one have constant predictions."""
    by_size = _by(rhos, SIZE)
    n_constant = by_size.size() - by_size[PREDICTED_RHO].count()
    return by_size[[PREDICTED_RHO]].mean().assign(rho_sd=by_size[PREDICTED_RHO].std(), constant=n_constant)


def _stored(store: Store, row: dict[str, Any]) -> tuple[Domain, Right]:
    """The domain of a search of all subdomains, and the accepted images of each in the order drawn."""
    run_id = row["run_id"]
    arrays = {name: store.array(run_id, f"image_{name}") for name in ("visit", "accepted", "correct")}
    images = pd.DataFrame(arrays).sort_values("visit", kind="stable")
    accepted = images[images["accepted"]]
    subdomain = store.array(run_id, "visited")[accepted["visit"]]
    number = accepted.groupby(subdomain).cumcount()  # among the images of its subdomain

    domain = domain_of(str(store.array(run_id, "domain")[0]))
    right = np.full((len(domain), number.max() + 1), -1, np.int8)
    right[subdomain, number] = accepted["correct"]
    return domain, right


def _in_processes(work: Callable[..., Frames], searches: Sequence[tuple[SearchTable, str]]) -> Iterator[Frames]:
    """The work on each search, in order, in as many processes as there are cores."""
    n_visits = sum(len(table[2]) for table, _ in searches)
    processes = min(threads(0), n_visits // VISITS_PER_PROCESS)
    if processes < 2:
        yield from map(work, *zip(*searches, strict=True))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes: each has one core
    ignore_interrupts = signal.signal, (signal.SIGINT, signal.SIG_IGN)  # the parent stops them itself
    with ProcessPoolExecutor(processes, get_context("spawn"), *ignore_interrupts) as pool:
        yield from pool.map(work, *zip(*searches, strict=True))


def _searched(images: int, histogram_visits: int, table: SearchTable, label: str) -> Frames:
    """Lines of one search for each table: its curves, when the worst were found, accuracies, and correlations."""
    dataset, model, domain, right, seed = table
    name, _, strength = label.partition(" ")
    options: dict[str, Any] = {"strength": int(strength)} if strength else {}
    policy = make_policy(name, domain, seed, **options)
    search = replays.replay(domain, right, name, seed, (images,), **options)

    n = len(domain)
    n_planned = min(policy.planned or n, n)
    truth = replays.accuracies(right)
    covered = replays.coverage(search.visited, replays.worst(truth))

    # Curves: between two points the mean accuracy of what is visited, and up to a point the mean of all
    points = np.unique(np.linspace(max(1, n / POINTS), n, POINTS).round().astype(int))
    accuracy = pd.Series(search.accuracy)
    point_of_visit = np.searchsorted(points, np.arange(1, n + 1))
    running_mean = accuracy.expanding().mean().to_numpy()
    curves = pd.DataFrame(
        {
            EXPLORED: points,
            SHARE: points / n,
            ACCURACY: accuracy.groupby(point_of_visit).mean(),
            RUNNING: running_mean[points - 1],
            COVERED: covered[points - 1],
        }
    )

    # When the worst tenth was visited
    line: dict[Any, float] = {
        ALL: replays.visits_until(covered[:n_planned], 1.0) / n,
        NEARLY: replays.visits_until(covered[:n_planned], 0.95) / n,
        SKILL: np.nan,
        COVERING: np.nan,
    }
    for column, share in zip(AT, SHARES, strict=True):
        visits = max(1, round(share * n))
        line[column] = covered[visits - 1] if visits <= n_planned else np.nan

    rhos: list[tuple[int, float]] = []
    if isinstance(policy, Guided):
        skill = policy.skill(*search)
        line[SKILL] = np.nan if skill is None else skill
        before_points = [[values[: point - 1] for values in search] for point in points]
        line[COVERING] = float(np.mean([policy.covers(*history) for history in before_points]))
        rhos = _rhos_by_size(policy, right, truth, seed)

    accuracies = search.accuracy[: min(histogram_visits, n_planned)]
    counts, _ = np.histogram(accuracies[np.isfinite(accuracies)], BINS)
    frames = (
        curves[points <= n_planned],
        pd.DataFrame([line]),
        pd.DataFrame({EXPLORED: len(accuracies), FROM: BINS[:-1], COUNT: counts}),
        pd.DataFrame(rhos, columns=[SIZE, PREDICTED_RHO], dtype=float),
    )
    return tuple(frame.assign(dataset=dataset, model=model, policy=label) for frame in frames)


def _rhos_by_size(policy: Guided, right: Right, truth: np.ndarray, seed: int) -> list[tuple[int, float]]:
    """Rank correlation of predicted and true accuracy of the subdomains that a model was not fitted to, by size."""
    n = len(right)
    n_right = np.sum(right == 1, axis=1)
    n_images = np.sum(right >= 0, axis=1)
    rhos: list[tuple[int, float]] = []
    for size in SIZES:
        if size >= n:
            continue
        order = np.random.default_rng([seed, size]).permutation(n)
        fitted = order[:size]
        predicted = policy.predict(np.arange(n)[fitted], n_right[fitted], n_images[fitted]).mean
        others = pd.DataFrame({"predicted": predicted, "true": truth}).iloc[order[size:]].dropna()
        rho: Any = others.rank().corr().loc["predicted", "true"]  # NaN where one is constant
        rhos.append((size, rho))
    return rhos
