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

POINTS, BINS, FEW = 60, np.linspace(0, 1, 11), 5_000  # of a curve; of accuracy; visits that need no further process
SHARES, SIZES = (0.1, 0.2, 0.4), (20, 50, 100, 200, 400, 800)  # explored; subdomains that a model is fitted to
_PLACES = "at the beach,in the forest,in the city,inside a house,in a garden,in the desert,in the mountains"
_PAPER = {"weather": "sunny,cloudy,raining,snowing", "location": _PLACES, "time": "day,night"}
_PAPER |= {"color": "white,black,brown,beige,gray,red,green,blue", "viewpoint": "front,side,rear"}
_NIGHT = {"weather": "sunny", "time": "night"}
_INSIDE = {"location": "inside a house", "weather": ["cloudy", "raining", "snowing"]}

_NWISE = {f"nwise {strength}": f"{strength}-wise" for strength in (2, 3, 4)}
_BO = {"bo": "bo, Lasso", "bo_linear": "bo, linear", "bo_forest": "bo, random forest", "bo_svr": "bo, SVR"}
_WORDS = {"random": "random", **_NWISE, "genetic": "genetic", **_BO, "gp_pairwise": "gp_pairwise"}
POLICY = columns.POLICY.with_format("", "policy, or its model").with_choices(_WORDS, filters=True)
SEARCHES = SEEDS.with_format(".0f", "searches")
EXPLORED = Column("explored", int, ".0f", "subdomains explored")
SHARE = Column("share", float, ".1%", "share of all subdomains")
HOURS = Column("gpu_h", float, ".1f", "GPU hours for these")
ACCURACY = columns.ACCURACY.with_format(".1%", "accuracy of those visited now")
RUNNING = Column("running_mean", float, ".1%", "mean accuracy of all visited")
COVERED = Column("coverage", float, ".1%", "visited share of the worst tenth")
CURVED = ACCURACY, RUNNING, COVERED
SDS = tuple(Column(f"{of}_sd", float, ".1%", f"{of.meaning}, sd over searches") for of in CURVED)
ALL = Column("all_found", float, ".1%", "share explored when all of the worst tenth were visited, median over searches")
LEAST, MOST = (Column(f"all_found_{end}", float, ".1%", f"the {end} of any search") for end in ("least", "most"))
NEARLY = Column("nearly_found", float, ".1%", "share explored when 95 % of the worst tenth were visited, median")
AT = tuple(Column(f"at_{100 * of:.0f}", float, ".1%", f"coverage when {100 * of:.0f} % were explored") for of in SHARES)
SKILL = columns.SKILL.with_format(".2f", "share of variance that the model explains beyond the mean, cross-validated")
FROM = Column("accuracy_from", float, ".0%", "accuracy, from")
COUNT = Column("count", float, ".1f", "subdomains, mean over searches")
SIZE = Column("trained_on", int, ".0f", "subdomains that the model was fitted to")
PREDICTED_RHO = RHO.with_format("+.2f", "rank correlation of predicted and true accuracy of all others")
RHO_SD = Column("rho_sd", float, ".2f", "its sd over draws")
CONSTANT = Column("constant", int, ".0f", "draws for which the model predicts one value for all others")

NAMES = Allowed(choices=tuple(POLICIES), filled=True)
Right = Int8[np.ndarray, "subdomains images"]
Frames = tuple[pd.DataFrame, ...]
Drawn = tuple[str, str | None, Domain, Right, int]  # data set, model, its table, and the seed of the search
_OF, SOURCE = (DATASET, MODEL, POLICY, SEARCHES), "Le Coz et al., 2024 (arXiv:2405.02332), figure 4"
_COUNTED, _RHOS = (*_OF, EXPLORED, FROM, COUNT), (*_OF, SIZE, PREDICTED_RHO, RHO_SD, CONSTANT)
_CURVES = (*_OF, EXPLORED, SHARE, HOURS, *CURVED, *SDS)
_FOUND = (*_OF, ALL, LEAST, MOST, NEARLY, *AT, SKILL, COVERING)
CURVES = TableSpec("search_curves", "How fast does each policy find the worst subdomains?", SOURCE, _CURVES)
FOUND = TableSpec("search_found", "When has each policy visited the worst tenth?", SOURCE, _FOUND)
HISTOGRAM = TableSpec("search_histogram", "How accurate are the first subdomains visited?", SOURCE, _COUNTED)
PREDICTORS = TableSpec("search_predictors", "Which model predicts the other subdomains best?", SOURCE, _RHOS)


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
    ] = field(default_factory=lambda: {k: v.split(",") for k, v in _PAPER.items()})
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
            domain, rows = Domain(self.attributes, self.rules), rows[:0]
            drawn = [replays.simulated(domain, seed, self.simulated, self.images).right for seed in range(self.seeds)]
            tables = [(f"simulated {self.simulated}", None, domain, right, seed) for seed, right in enumerate(drawn)]
        else:
            rows = rows[rows["n_visited"] == rows["n_subdomains"]] if len(rows) else rows
            what = "searches that visited every subdomain (for invented ones: analysis.simulated=structured)"
            require_rows(rows, what, len(store.rows()), "fca run task=search model=MODEL, without a limit")
            several = rows.duplicated([DATASET, MODEL], keep=False)
            rows = rows.assign(model=rows[MODEL].where(~several, rows[MODEL] + ", " + rows["run_id"].str[:6]))
            of = [(row[DATASET], row[MODEL], *_stored(store, row)) for row in records(rows)]
            tables = [(*table, seed) for table in of for seed in range(self.seeds)]
        policies = [name for one in self.policies for name in (_NWISE if one == "nwise" else [one])]
        searches = [(table, policy) for policy in policies for table in tables]
        done = _each(partial(_searched, self.images, self.at), searches)
        parts = zip(*track(done, "searches", len(searches)), strict=True)
        keys = [[DATASET, MODEL, POLICY, *by] for by in ([EXPLORED, SHARE], [], [FROM], [SIZE])]
        groups = (pd.concat(part).groupby(by, sort=False, dropna=False) for part, by in zip(parts, keys, strict=True))
        curves, found, counts, rhos = groups
        sds, sizes = curves[[*CURVED]].std().set_axis(SDS, axis=1), curves.size()  # arrays of nwise differ in length
        whole = curves[[*CURVED]].mean().join(sds)[sizes == self.seeds].assign(seeds=self.seeds).reset_index()
        whole[HOURS] = whole[EXPLORED] * self.minutes / 60
        when = found[[ALL, NEARLY]].median(skipna=False).assign(**{LEAST: found[ALL].min(), MOST: found[ALL].max()})
        means = when.join(found[[*AT, SKILL, COVERING]].mean())
        first = counts.agg({EXPLORED: "max", COUNT: "mean"})
        rho = rhos[[PREDICTED_RHO]].mean()
        rho = rho.assign(rho_sd=rhos[PREDICTED_RHO].std(), constant=rhos.size() - rhos[PREDICTED_RHO].count())
        lines = whole, *(of.assign(seeds=self.seeds).reset_index() for of in (means, first, rho))
        return filled(self.tables, lines, asdict(self), rows["run_id"])


def _stored(store: Store, row: dict[str, Any]) -> tuple[Domain, Right]:
    """The domain of a search of all subdomains, and the accepted images of each in the order drawn."""
    arrays = {name: store.array(row["run_id"], f"image_{name}") for name in ("visit", "accepted", "correct")}
    found = pd.DataFrame(arrays).sort_values("visit", kind="stable")
    found = found[found["accepted"]]
    subdomain = store.array(row["run_id"], "visited")[found["visit"]]
    place = found.groupby(subdomain).cumcount()
    domain = domain_of(str(store.array(row["run_id"], "domain")[0]))
    right = np.full((len(domain), place.max() + 1), -1, np.int8)
    right[subdomain, place] = found["correct"]
    return domain, right


def _each(work: Callable[..., Frames], searches: Sequence[tuple[Drawn, str]]) -> Iterator[Frames]:
    """The work on each, in order, in as many processes as there are cores."""
    processes = min(threads(0), sum(len(drawn[2]) for drawn, _ in searches) // FEW)
    if processes < 2:
        yield from map(work, *zip(*searches, strict=True))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes: each has one core
    bound = signal.signal, (signal.SIGINT, signal.SIG_IGN)  # the parent stops them itself
    with ProcessPoolExecutor(processes, get_context("spawn"), *bound) as pool:
        yield from pool.map(work, *zip(*searches, strict=True))


def _searched(images: int, at: int, drawn: Drawn, label: str) -> Frames:
    """Lines of one search for each table."""
    dataset, model, domain, right, seed = drawn
    name, _, strength = label.partition(" ")
    options: dict[str, Any] = {"strength": int(strength)} if strength else {}
    policy, n = make_policy(name, domain, seed, **options), len(domain)
    done = replays.replay(domain, right, name, seed, (images,), **options)
    truth, end = replays.accuracies(right), min(policy.planned or n, n)
    covered = replays.coverage(done.visited, replays.worst(truth))
    points = np.unique(np.linspace(max(1, n / POINTS), n, POINTS).round().astype(int))
    now = pd.Series(done.accuracy).groupby(np.searchsorted(points, np.arange(1, n + 1))).mean()
    mean = pd.Series(done.accuracy).expanding().mean().to_numpy()
    curve = {SHARE: points / n, ACCURACY: now, RUNNING: mean[points - 1], COVERED: covered[points - 1]}
    line = {of: replays.visits_until(covered[:end], share) / n for of, share in ((ALL, 1.0), (NEARLY, 0.95))}
    places = [max(1, round(share * n)) for share in SHARES]
    line |= {of: covered[place - 1] if place <= end else np.nan for of, place in zip(AT, places, strict=True)}
    line |= {SKILL: np.nan, COVERING: np.nan}
    first, rhos = done.accuracy[: min(at, end)], []
    if isinstance(policy, Guided):
        line[SKILL] = np.nan if (skill := policy.skill(*done)) is None else skill
        line[COVERING] = float(np.mean([policy.covers(*(of[: point - 1] for of in done)) for point in points]))
        shown = np.arange(n), np.sum(right == 1, axis=1), np.sum(right >= 0, axis=1)
        for size in [size for size in SIZES if size < n]:
            order = np.random.default_rng([seed, size]).permutation(n)
            predicted = policy.predict(*(of[order[:size]] for of in shown)).mean
            others = pd.DataFrame({"predicted": predicted, "true": truth}).iloc[order[size:]].dropna()
            rhos.append((size, others.rank().corr().loc["predicted", "true"]))  # NaN where one is constant
    counts = {EXPLORED: len(first), FROM: BINS[:-1], COUNT: np.histogram(first[np.isfinite(first)], BINS)[0]}
    curves = pd.DataFrame({EXPLORED: points, **curve})[points <= end]
    frames = (
        curves,
        pd.DataFrame([line]),
        pd.DataFrame(counts),
        pd.DataFrame(rhos, columns=[SIZE, PREDICTED_RHO], dtype=float),
    )
    return tuple(of.assign(dataset=dataset, model=model, policy=label) for of in frames)
