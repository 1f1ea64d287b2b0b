# Is the difficulty of every pair of classes fast enough to be asked of ImageNet? (the matrix against a loop over pairs)
#   python experiments/speed/difficulty.py            about 1 minute on 2 cores
# Expect: SimSS of all 499,500 pairs of 1,000 classes (50,000 images) in under 5 s and under 1 GB beside the matrix; at
# least 1,000 times as fast as scoring each pair from its features. The loop is timed on 500 random pairs and scaled up.
import os
import resource
import sys
import time

import numpy as np

from fca.stats.difficulty import extreme_subset, pair_simss, random_simss, what_if_added
from fca.stats.similarity import class_similarity, fca_released, released_draw, similarity_scores, subset_scores

IMAGES, CLASSES, DIMENSIONS = 50_000, 1_000, 512
SAMPLED = 500


def features_of(images, classes):
    """Half precision, as the store keeps them; classes in any order."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(images) % classes)
    features = rng.standard_normal((images, DIMENSIONS), dtype=np.float32)
    features += rng.standard_normal((classes, DIMENSIONS), dtype=np.float32)[labels]
    return features.astype(np.float16), labels


def seconds(work, *arguments):
    start = time.perf_counter()
    answer = work(*arguments)
    return time.perf_counter() - start, answer


def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def looped(features, labels, pairs):
    """Each pair from the features of its images alone."""
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    rows = [np.concatenate([members[a], members[b]]) for a, b in pairs]
    return seconds(lambda: [similarity_scores(features[r], labels[r]).simss for r in rows])


def main():
    features, labels = features_of(IMAGES, CLASSES)
    spent, matrix = seconds(class_similarity, features, labels)
    print(f"matrix of {IMAGES:,} images and {CLASSES:,} classes: {spent:.2f} s")
    before = memory()
    ours, table = seconds(pair_simss, matrix, labels)
    total = CLASSES * (CLASSES - 1) // 2
    print(f"{total:,} pairs: {ours:.2f} s, {max(0, memory() - before) / 1e9:.2f} GB above the peak so far")
    rng = np.random.default_rng(1)
    pairs = [sorted(rng.choice(CLASSES, 2, replace=False)) for _ in range(SAMPLED)]
    for name, (spent, scores) in {
        "similarity_scores of their features": looped(features, labels, pairs),
        "subset_scores from the matrix": seconds(
            lambda: [subset_scores(matrix, labels, np.array(pair)).simss for pair in pairs]
        ),
    }.items():
        assert np.allclose(scores, [table[a, b] for a, b in pairs], atol=1e-9)
        scaled = spent / SAMPLED * total
        print(f"loop over pairs, {name}: {scaled:,.0f} s (scaled from {SAMPLED} pairs), {scaled / ours:,.0f} times")
    for size in (3, 5, 10):
        spent, found = seconds(lambda n=size: extreme_subset(matrix, labels, n, pairs=table))
        print(f"hardest {size} classes: {spent:.1f} s (SimSS {found.simss:.4f})")
    print(f"one class more, each of them: {seconds(what_if_added, matrix, labels, np.arange(5))[0]:.3f} s")
    print(f"1,000 random subsets of 5: {seconds(random_simss, matrix, labels, 5)[0]:.2f} s")
    grid = [released_draw(CLASSES, n, s) for n in (2, 3, 4, 5, 10, 100) for s in range(5)]
    spent, _ = seconds(fca_released, features, labels, grid)
    print(f"the released scores of the 30 subsets of figure 5: {spent:.1f} s")
    print(f"{os.cpu_count()} cores, numpy {np.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
