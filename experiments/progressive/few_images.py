"""Is the default with a bank no worse than a plain sample in tests of very few images?

    python experiments/progressive/few_images.py                  400 tests a cell; 2 minutes on one core
    python experiments/progressive/few_images.py --tests 50       a first look

Tests are drawn, not computed as in banks.py, because estimates of few images are biased: the root mean squared error
has the bias in it. 500 images of a 2pl with slopes of 1.5 and difficulties N(0, 1), known exactly (`true`) or shuffled
(`useless`). Networks of ability 0, 2.7 and 4.6: the last is far beyond those of which a bank's prior, N(0, 1), is.
"""

import argparse

import numpy as np
from scipy.special import expit

from fca.studies.adaptive.stats import estimate, make_pool, run_policy, start_policy
from fca.studies.irt.stats import ItemBank

ITEMS, SLOPE = 500, 1.5
ABILITIES = (0.0, 2.7, 4.6)
NUMBERS = (10, 20, 40, 100)
METHODS = {
    "plain sample": ("random", "hypergeometric"),
    "random draws, same bank": ("random", "regression"),
    "default": ("defensive_irt", "regression"),
}


def errors(ability, is_true, images, tests):
    """Errors in points of as many tests by each method, whether the default's interval held, and the mean accuracy."""
    pool, rng = make_pool(None, np.zeros(ITEMS, int)), np.random.default_rng(1)
    difficulty = rng.normal(size=ITEMS)
    error, held, truth = np.empty((tests, len(METHODS))), np.empty(tests), np.empty(tests)
    for test in range(tests):
        right = rng.random(ITEMS) < expit(SLOPE * (ability - difficulty))
        of_bank = difficulty if is_true else rng.permutation(difficulty)
        bank = ItemBank("2pl", of_bank, np.full(ITEMS, SLOPE), np.ones(ITEMS), np.zeros(ITEMS))
        truth[test] = right.mean()
        for at, (policy, estimator) in enumerate(METHODS.values()):
            record = run_policy(start_policy(policy, pool, images / ITEMS, bank), right, rng).record
            found = estimate(estimator, pool, record, bank).overall
            error[test, at] = 100 * (found.value[0, 0] - truth[test])
            held[test] = found.low[0, 0] <= truth[test] <= found.high[0, 0]
    return error, held.mean(), truth.mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=400)
    options = parser.parse_args()
    print(f"| bank | accuracy | images | {' | '.join(METHODS)} | bias of the default | held |")
    for is_true in (True, False):
        for ability in ABILITIES:
            for images in NUMBERS:
                error, held, truth = errors(ability, is_true, images, options.tests)
                size = " | ".join(f"{value:.2f}" for value in np.sqrt(np.mean(error**2, axis=0)))
                bank = "true" if is_true else "useless"
                bias = f"{error[:, -1].mean():+.2f}"
                print(f"| {bank} | {100 * truth:.1f} | {images} | {size} | {bias} | {100 * held:.0f} |", flush=True)


if __name__ == "__main__":
    main()
