"""Is SimSS fast enough to be computed for every subset? The closed form against a loop over pairs of images.

    python experiments/speed/similarity.py            about 2 minutes on 2 cores

Expect: 50,000 x 512 features of 1,000 classes in under 10 s and 1.5 GB; at 2,000 images at least 10,000 times the
released Few-Class Arena's loop, which compares every image to every other one, so each pair twice.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np
from harness import apart, features_of, machine, options, timed

from fca.stats.similarity import class_similarity, similarity_scores, subset_scores
from fca.subset import draw_subset


def numpy_pair(a, b):
    return (a @ b / np.sqrt((a @ a) * (b @ b)) + 1) / 2


def released_loop(features, labels):
    """SimSS over all images as released: torch.nn.CosineSimilarity and .item() from each image to every other one."""
    import torch

    torch.set_num_threads(1)  # a pair is too small to share
    cosine, tensors = torch.nn.CosineSimilarity(dim=0), torch.from_numpy(features.astype(np.float32))
    of_class, scores = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)], []
    for i, label in enumerate(labels):
        to = [np.mean([(cosine(tensors[i], tensors[j]).item() + 1) / 2 for j in own if j != i]) for own in of_class]
        nearest = max(to[:label] + to[label + 1 :])
        scores.append((to[label] - nearest) / max(to[label], nearest))
    return np.mean(scores)


def loop_over_pairs(features, labels):
    """SimSS as its definition reads, a numpy dot product for each pair of images."""
    images = len(labels)
    sim = np.ones((images, images))
    for i, j in itertools.combinations(range(images), 2):
        sim[i, j] = sim[j, i] = numpy_pair(features[i], features[j])
    sums = np.stack([sim[:, labels == c].sum(axis=1) for c in range(labels.max() + 1)], axis=1)
    counts, rows = np.bincount(labels), np.arange(images)
    own = (sums[rows, labels] - 1) / (counts[labels] - 1)
    means = sums / counts
    means[rows, labels] = -1
    nearest = means.max(axis=1)
    silhouette = (own - nearest) / np.maximum(own, nearest)
    return np.mean([silhouette[labels == c].mean() for c in range(labels.max() + 1)])


def scored(folder):
    """Seconds of the scores of all classes; of subsets from the matrix of similarities; how many subsets."""
    features, labels = np.load(folder / "features.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    spent = timed(similarity_scores, features, labels).wall
    classes, matrix = int(labels.max()) + 1, class_similarity(features, labels)
    draws = [np.array(draw_subset(classes, n, s).classes) for n in (2, 3, 4, 5, 10) for s in range(10)]
    return spent, timed(lambda: [subset_scores(matrix, labels, draw) for draw in draws]).wall, len(draws)


def main():
    size = options(__doc__, images=(50_000, 400), classes=(1_000, 20), pairs_images=(2_000, 60), pairs_classes=(100, 6))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, array in zip(("features", "labels"), features_of(size.images, size.classes), strict=True):
            np.save(folder / f"{part}.npy", array)
        (spent, swept, subsets), memory = apart(scored, folder)
    print(f"{size.images:,} images, {size.classes:,} classes: {spent:.2f} s, peak memory {memory / 1e9:.2f} GB")
    print(f"{subsets} subsets of 2 to 10 classes from its matrix: {swept:.3f} s")

    half, labels = features_of(size.pairs_images, size.pairs_classes)
    ours = min(timed(similarity_scores, half, labels).wall for _ in range(20))
    simss = similarity_scores(half, labels).simss
    print(f"{size.pairs_images:,} images, {size.pairs_classes} classes, closed form: {ours * 1e3:.1f} ms")
    for name, loop in (("a numpy dot product a pair", loop_over_pairs), ("the released one", released_loop)):
        spent = timed(loop, half.astype(np.float64), labels)
        print(f"loop, {name}: {spent.wall:.1f} s, {spent.wall / ours:,.0f} times as long")
        assert abs(spent.result - simss) < 1e-6
    machine()


if __name__ == "__main__":
    main()
