"""Numbers of the README on `gp_pairwise` and on fallbacks that no analysis prints, from simulated tables.

    python experiments/failure_search/targets.py            seeds 0 to 9; about 2 minutes on 2 cores
    python experiments/failure_search/targets.py --seeds 1

Share explored when all of the worst tenth are visited: without random reserve, with the simulator's own standard
deviations in place of fitted ones, and by an observer who knows all effects of values and pairs; `bo` with and without
its fallback, on seeds 100 and above. And the recall of the true worst tenth by 2,500 images in batches of ten.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from unittest import mock

import numpy as np
from figure4 import dog

from fca.studies.search.stats import Domain, make_policy
from fca.studies.search.stats.models import PairwiseGP
from fca.studies.search.stats.replay import SPREADS, Simulated, coverage, replay, simulated, visits_until, worst

OWN, VALUES, PAIRS = SPREADS["structured"]


def found(domain: Domain, table: Simulated, name: str, seed: int, **options: object) -> float:
    """Share explored when all of the worst tenth are visited."""
    done = replay(domain, table.right, name, seed, **options)
    return visits_until(coverage(done.visited, worst(table.right.mean(axis=1)))) / len(domain)


def no_reserve(domain: Domain, seed: int) -> float:
    return found(domain, simulated(domain, seed), "gp_pairwise", seed, reserve=0.0)


def true_spreads(domain: Domain, seed: int) -> float:
    with mock.patch.object(PairwiseGP, "tune", return_value=(VALUES, PAIRS, OWN)):
        return no_reserve(domain, seed)


def observer(domain: Domain, seed: int) -> float:
    """Visits by the effects of values and pairs alone: what the images' noise and single subdomains leave."""
    with mock.patch.dict(SPREADS, structured=(0.0, VALUES, PAIRS)):
        known = simulated(domain, seed).probability  # the same draws, without the effects of single subdomains
    lowest = worst(simulated(domain, seed).right.mean(axis=1))[np.argsort(known, kind="stable")]
    return (np.flatnonzero(lowest)[-1] + 1) / len(domain)


def with_fallback(domain: Domain, seed: int) -> float:
    return found(domain, simulated(domain, 100 + seed), "bo", 100 + seed)


def without_fallback(domain: Domain, seed: int) -> float:
    return found(domain, simulated(domain, 100 + seed), "bo", 100 + seed, fallback=False)


def recall(domain: Domain, seed: int) -> float:
    """Share of the true worst tenth among the tenth of lowest estimate after 250 visits of 10 images."""
    table = simulated(domain, seed, images=1000)
    options = {"acquisition": "straddle", "visits": 1000}
    done = replay(domain, table.right, "gp_pairwise", seed, (10,), 250, **options)
    estimate = make_policy("gp_pairwise", domain, seed, **options).predict(*done).mean
    truth = worst(table.probability)
    return float(truth[np.argsort(estimate, kind="stable")[: truth.sum()]].mean())


MEASURED: tuple[Callable[[Domain, int], float], ...] = (
    no_reserve, true_spreads, observer, with_fallback, without_fallback, recall
)  # fmt: skip


def main() -> int:
    """Print median and range of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds, space = range(parser.parse_args().seeds), dog().space
    domain = Domain({k: list(v) for k, v in space.attributes.items()}, [{"not": dict(r["not"])} for r in space.rules])
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for measure in MEASURED:
            values = list(pool.map(measure, [domain] * len(seeds), seeds))
            print(f"{measure.__name__}: {np.median(values):.3f} ({min(values):.2f} to {max(values):.2f})", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
