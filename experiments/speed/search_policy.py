"""How long does a policy take to choose the next subdomain of a failure search, against a textbook Gaussian process?

    python experiments/speed/search_policy.py            about 2 minutes on 2 cores

One choice of 1,032 candidates (the size of the paper's domain) after 1,000 visits, by a fresh policy that keeps nothing
from earlier choices: a search that goes on after a stop. The textbook process is scikit-learn's over values and
pairs, its 3 hyper-parameters fitted by gradients. Expect under 0.2 s for every policy.
"""

import numpy as np
from harness import machine, options, timed

from fca.studies.search.stats import POLICIES, Domain, make_policy

SIZES = {"weather": 4, "location": 7, "time": 2, "color": 8, "viewpoint": 3}
RULES = [{"not": {"weather": 0, "time": 1}}, {"not": {"location": 3, "weather": [1, 2, 3]}}]


def textbook(domain, visited, accuracy):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel

    features = np.hstack([cells for strength in (1, 2) for _, cells in domain.indicators(strength)])
    process = GaussianProcessRegressor(0.1 * DotProduct() + WhiteKernel(0.01), normalize_y=True)
    return process.fit(features[visited], accuracy).predict(features, return_std=True)


def main():
    size = options(__doc__, visits=(1000, 60), turns=(3, 1))
    domain = Domain({name: list(range(values)) for name, values in SIZES.items()}, RULES)
    rng = np.random.default_rng(0)
    logit = 2.2 + sum(cells @ rng.normal(0, 0.8, cells.shape[1]) for _, cells in domain.indicators(1))
    visited = rng.permutation(len(domain))[: size.visits]
    correct = rng.binomial(50, 1 / (1 + np.exp(-logit[visited])))
    history = visited, correct, np.full(size.visits, 50)
    other = timed(textbook, domain, visited, correct / 50)
    print(f"{len(domain):,} candidates, {size.visits:,} visits; textbook process: {other.cpu:.2f} CPU s")
    for name in POLICIES:
        make_policy(name, domain, 0).next(*history)  # imports
        steps = [timed(make_policy(name, domain, 0).next, *history) for _ in range(size.turns)]
        cpu = np.median([step.cpu for step in steps])
        print(f"  {name}: {cpu:.3f} CPU s a choice, {np.median([step.wall for step in steps]):.3f} s; "
              f"ratio {other.cpu / max(cpu, 1e-6):.0f}")  # fmt: skip
    machine()


if __name__ == "__main__":
    main()
