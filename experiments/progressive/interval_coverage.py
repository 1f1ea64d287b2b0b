"""How often do the intervals of adaptive tests hold the truth, on small pools and for networks of different kinds?

    python experiments/progressive/interval_coverage.py                  planted networks, 2 minutes on a core
    python experiments/progressive/interval_coverage.py outputs          and those whose predictions lie in outputs

432 images: 3 classes x 4 attributes x 3 levels x 12. A test asks an eighth or a quarter of them, then goes on as with
`task.width`. Of the mean accuracy over attributes: bias in points, root mean squared error, width of the 95 % interval
and how often it holds the truth, each with its Monte Carlo standard error where that matters.
"""

import sys
from pathlib import Path

import numpy as np

from fca.stats.adaptive import estimate, make_pool, run_policy, start_policy
from fca.store import Store
from fca.studies.progressive.levels import pool_of, responses_by_level

REPEATS = 1000
METHODS = (("optimal_allocation", "stratified"), ("gre_two_stage", "mixed_logit"))
SESSIONS = np.repeat(np.arange(12), 36)
POOL = make_pool(np.tile(np.repeat([0, 1, 2], 12), 12), SESSIONS, SESSIONS // 3)
PLANTED = {  # chance of a right prediction
    "guesses (.26)": lambda rng: np.full(432, 0.26),
    "a class a level (.33)": lambda rng: np.where(POOL.session % 3 == POOL.level, 0.9, 0.05),
    "a chance a session and level (.27)": lambda rng: (0.8 * rng.random((12, 3)) ** 2)[POOL.session, POOL.level],
    "near the ceiling (.95)": lambda rng: np.array([0.99, 0.97, 0.9])[POOL.level],
}


def planted(chance):
    return POOL, lambda rng: rng.random(432) < chance(rng)


def networks(outputs):
    for one in responses_by_level(Store(Path(outputs)), None, "open"):
        for model, correct in zip(one.models, one.correct, strict=True):
            yield f"{model} ({correct.mean():.2f})", (pool_of(one.items), lambda rng, correct=correct: correct)


def measure(pool, draw, policy, estimator, budget, stretches):
    """Share asked, error, width and whether it holds the truth, of every repeat and stretch."""
    found = np.empty((REPEATS, stretches, 4))
    for repeat in range(REPEATS):
        rng = np.random.default_rng(repeat)
        correct = draw(rng)
        truth = pool.truth(correct)[:, 0].mean()
        test = start_policy(policy, pool, budget)
        for stretch in range(stretches):
            record = run_policy(test, correct, rng).record
            one = estimate(estimator, pool, record).overall
            low, value, high = one.low[0, 0], one.value[0, 0], one.high[0, 0]
            found[repeat, stretch] = record.asked.mean(), value - truth, high - low, low <= truth <= high
            test.again()
    return found


def main():
    cases = {name: planted(chance) for name, chance in PLANTED.items()}
    cases |= dict(networks(sys.argv[1])) if len(sys.argv) > 1 else {}
    print("| network | test | asked | bias | error | width | coverage |\n|---|---|---|---|---|---|---|")
    for name, case in cases.items():
        for policy, estimator in METHODS:
            shares = ((0.12, 1), (0.25, 3)) if policy == "optimal_allocation" else ((0.25, 3),)
            for part in (measure(*case, policy, estimator, *share) for share in shares):
                for asked, error, width, held in part.transpose(1, 2, 0):
                    bias = f"{100 * error.mean():+.1f} ± {100 * error.std() / REPEATS**0.5:.1f}"
                    coverage = f"{100 * held.mean():.1f} ± {100 * held.std() / REPEATS**0.5:.1f} %"
                    numbers = f"{100 * (error**2).mean() ** 0.5:.1f} | {100 * width.mean():.1f} | {coverage}"
                    print(f"| {name} | {policy} | {100 * asked.mean():.0f} % | {bias} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
