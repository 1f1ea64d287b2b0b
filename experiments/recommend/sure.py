"""How often is an answer of `fca recommend` right when it is sure? Simulated: the truth is known.

    python experiments/recommend/sure.py        a minute on one core

Ten networks; images are hard or easy for all of them (half of the variance). An answer is sure if one network is within
one point of the best with 90 % probability; it is right if that network is.
"""

import numpy as np
import pandas as pd
from scipy.special import ndtr

from fca.stats.decision import accuracy_draws, cheapest, probability_within
from fca.stats.intervals import wilson

NETWORKS, MARGIN, CONFIDENCE, REPETITIONS = 10, 0.01, 0.9, 1000
TRUTHS = {
    "spread (uniform from 0.5 to 0.98)": lambda rng: rng.uniform(0.5, 0.98, NETWORKS),
    "alike (normal, 0.85 and sd 0.03)": lambda rng: np.clip(rng.normal(0.85, 0.03, NETWORKS), 0.5, 0.995),
}


def main():
    lines = []
    for case, draw in TRUTHS.items():
        for images in (20, 40, 80, 160, 320):
            right = []
            for repetition in range(REPETITIONS):
                rng = np.random.default_rng([images, repetition])
                truth, cost = draw(rng), rng.permutation(NETWORKS).astype(float)
                hard = rng.normal(size=images) + rng.normal(size=(NETWORKS, images))
                correct = (ndtr(hard / np.sqrt(2)) < truth[:, None]).astype(float)
                draws = accuracy_draws(correct, np.full(NETWORKS, np.nan), np.zeros(NETWORKS), draws=500)
                answer = cheapest(probability_within(draws, MARGIN), cost, CONFIDENCE)
                if answer is not None:
                    right.append(truth[answer] >= truth.max() - MARGIN)
            line = {"networks": case, "images": images, "sure": f"{len(right) / REPETITIONS:.0%}"}
            if right:
                ends = wilson(sum(right), len(right))
                line |= {"right": f"{np.mean(right):.0%}", "interval": "[{:.0%}, {:.0%}]".format(*ends)}
            lines.append(line)
    print(pd.DataFrame(lines).to_string(index=False))


if __name__ == "__main__":
    main()
