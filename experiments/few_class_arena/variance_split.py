"""Does the split of variance find the components that were put in?

    python experiments/few_class_arena/variance_split.py                   # 1,000 simulations a line, a minute

Sub-models with networks and images of their own. Each training is right on each image with a probability: `right`, plus
a uniform deviation a subset, a training and an image, with the standard deviations in the table. Printed for each
component: its true variance, the mean estimate (both in 1e-4), and the share of 95 % intervals that contain the truth.
An interval that is missing, because the spread is less than its noise, contains a true value of 0 and no other.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from fca.stats.comparison import SubsetRuns, VarianceSplit, split_variance

CELLS = (  # inits of each subset, images, right, deviations by subset, training and image
    ((2,) * 5, 200, 0.8, (0.0, 0.0, 0.0)),
    ((2, 2, 2, 1, 4), 200, 0.8, (0.0, 0.0, 0.0)),
    ((2,) * 5, 20, 0.8, (0.0, 0.0, 0.0)),
    ((2,) * 5, 200, 0.99, (0.0, 0.0, 0.0)),
    ((2,) * 5, 100, 0.65, (0.05, 0.03, 0.1)),
    ((3,) * 10, 100, 0.65, (0.05, 0.03, 0.1)),
    ((2, 2, 2, 1, 4), 100, 0.65, (0.05, 0.03, 0.1)),
    ((2,) * 5, 40, 0.95, (0.02, 0.01, 0.0)),
)


def uniform(rng: np.random.Generator, sd: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-1, 1, size=shape) * sd * 3**0.5


def drawn(
    rng: np.random.Generator, inits: Sequence[int], images: int, right: float, sds: Sequence[float]
) -> list[SubsetRuns]:
    """Sub-models on images of two classes."""
    subsets = []
    for number, trainings in enumerate(inits):
        chance = right + uniform(rng, sds[0], (1, 1)) + uniform(rng, sds[1], (trainings, 1))
        chance = chance + uniform(rng, sds[2], (1, images))
        correct = rng.random((trainings, images)) < chance
        names = tuple(f"{number}/{training}" for training in range(trainings))
        subsets.append(SubsetRuns(correct, number * images + np.arange(images), np.arange(images) % 2, names))
    return subsets


def truth(images: int, right: float, sds: Sequence[float]) -> VarianceSplit:
    """The components; as numbers, without intervals."""
    subset, init, image = np.square(sds)
    single = right * (1 - right) - subset - init - image  # mean of p (1 - p)
    return VarianceSplit(subset, init, single / images, image / images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--simulations", type=int, default=1000)
    simulations = parser.parse_args().simulations

    print("| inits | images | right | sd | component | true, 1e-4 | mean estimate | intervals with the truth |")
    print("|---|---|---|---|---|---|---|---|")
    for inits, images, right, sds in CELLS:
        rng = np.random.default_rng(0)
        splits = [split_variance(drawn(rng, inits, images, right, sds)) for _ in range(simulations)]
        for name, true in truth(images, right, sds)._asdict().items():
            parts = [getattr(split, name) for split in splits]
            holds = [part.low <= true <= part.high or (np.isnan(part.low) and true == 0) for part in parts]
            mean = 1e4 * np.mean([part.value for part in parts])
            cell = " ".join(map(str, inits)), images, right, " ".join(map(str, sds))
            print("|", " | ".join(map(str, cell)), f"| {name} | {1e4 * true:.2f} | {mean:.2f} | {np.mean(holds):.3f} |")


if __name__ == "__main__":
    main()
