"""What do batches cost a test of ability, and how often does it show the same images?

    python experiments/progressive/ability.py FOLDER        6 CPU s; FOLDER as of replay.py

fisher_cat on 4,000 ImageNet images with a bank of 45 networks; 20 others are tested on 400 images each, seed 0. Mean
standard error of ability; root mean square of its difference from the ability on all 4,000; the largest share of tests
that show one image; what two tests have in common; images that no test showed.
"""

import sys
from pathlib import Path

import numpy as np

from fca.studies.adaptive.stats import FisherCat, make_pool, run_policy
from fca.studies.adaptive.stats.policies import ability_of
from fca.studies.irt.stats import fit_irt, score_ability

SETTINGS = ((1, 1), (16, 1), (64, 1), (256, 1), (16, 5), (64, 5))  # batch, randomesque


def main():
    file = np.load(Path(sys.argv[1]) / "imagenetv2_val50k_top1.npz")
    correct = np.unpackbits(file["correct_bits"], axis=1)[:, : int(file["n_items"])].astype(bool)
    correct = correct[~np.isin(file["models"], ("fv_4k", "fv_16k"))]
    rng = np.random.default_rng(0)
    models = rng.permutation(65)
    correct = correct[:, np.sort(rng.choice(50_000, 4000, replace=False))]
    bank, pool = fit_irt(correct[models[:45]].astype(float)).bank, make_pool(None, np.zeros(4000, int))
    tested = correct[models[45:]]
    truth = score_ability(tested.astype(float), bank).ability
    print("| batch | randomesque | mean se | error | largest exposure | in common | never shown |")
    print("|---|---|---|---|---|---|---|")
    for batch, randomesque in SETTINGS:
        policies = [FisherCat(pool, 0.1, bank, batch=batch, randomesque=randomesque) for _ in tested]
        draws = (np.random.default_rng([0, at, 0]) for at in range(len(tested)))
        records = [run_policy(*each).record for each in zip(policies, tested, draws, strict=True)]
        ability, se = np.array([ability_of(record, bank) for record in records]).T
        rate = np.mean([record.evaluated for record in records], axis=0)
        error, common = np.sqrt(np.mean((ability - truth) ** 2)), (rate**2).sum() / rate.sum()
        line = f"{se.mean():.4f} | {error:.3f} | {rate.max():.2f} | {common:.2f} | {(rate == 0).mean():.2f}"
        print(f"| {batch} | {randomesque} | {line} |", flush=True)


if __name__ == "__main__":
    main()
