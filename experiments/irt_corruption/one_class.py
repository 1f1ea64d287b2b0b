#!/usr/bin/env python
"""Where does ability not order subjects as accuracy does? Where many of them answer one class, as early snapshots may.

    python experiments/irt_corruption/one_class.py        15 CPU seconds

Of 90 simulated subjects some answer one class but for 2 % of the items; the others have a planted ability. Printed are
the least, median and greatest Kendall's tau of five draws: over all subjects, over the others in the same fit, and over
the others fitted alone.
"""

import numpy as np
from scipy.stats import kendalltau

from fca.studies.irt.stats import fit_irt

DESIGNS = {"yes-no, 62 % yes": (1600, [0.62, 0.38]), "ten equal classes": (3000, [0.1] * 10)}  # items, class shares


def drawn(rng: np.random.Generator, constant: int, items: int, shares: list[float]) -> np.ndarray:
    """Right or wrong of 90 subjects, those that answer one class last."""
    label = rng.choice(len(shares), items, p=shares)
    ability, difficulty = rng.normal(0.5, 1, (90 - constant, 1)), rng.normal(0, 1, items)
    chance = 1 / len(shares)
    p = chance + (1 - chance) / (1 + np.exp(-np.exp(0.4 * rng.standard_normal(items)) * (ability - difficulty)))
    answer = rng.integers(0, len(shares), (constant, 1))
    return np.vstack([rng.random(p.shape) < p, (label == answer) ^ (rng.random((constant, items)) < 0.02)]).astype(
        float
    )


def main() -> None:
    print("| task | answer one class | all subjects | the others, same fit | the others alone |\n|---|---|---|---|---|")
    for name, (items, shares) in DESIGNS.items():
        for constant in (0, 10, 20, 30):
            taus = []
            for seed in range(5):
                correct = drawn(np.random.default_rng([seed, constant]), constant, items, shares)
                others, accuracy = slice(0, 90 - constant), correct.mean(axis=1)
                ability = fit_irt(correct, "2pl").ability
                parts = (ability, accuracy), (ability[others], accuracy[others])
                alone = (fit_irt(correct[others], "2pl").ability, accuracy[others])
                taus.append([kendalltau(*part)[0] for part in (*parts, alone)])
            cells = [
                " / ".join(f"{value:.2f}".lstrip("0") for value in np.sort(part)[[0, 2, 4]])
                for part in np.transpose(taus)
            ]
            print(f"| {name} | {constant} of 90 | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
