"""What several tests share: two clouds of points, as features."""

import numpy as np


def clouds(n, features, classes=3, spread=1.5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, features))
    return (centres[labels] + spread * rng.normal(size=(n, features)) + 5).astype(np.float16), labels
