# Is SimSS fast enough to be asked of every subset? (closed form against the loop over pairs of images)
#   python experiments/speed/similarity.py            about 2 minutes on 2 cores
# Expect: 50,000 x 512 features of 1,000 classes in under 10 s and 1.5 GB; at least 1,000 times the loop over pairs at
# 2,000 images. The figures and the machine are in README.md beside this file.
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fca.stats.similarity import class_similarity, similarity_scores, subset_scores
from fca.subset import draw_subset

DIMENSIONS = 512  # of CLIP's image features, the paper's


def features_of(images, classes):
    """Half precision, as the store keeps them; classes in any order."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(images) % classes)
    centres = rng.standard_normal((classes, DIMENSIONS), dtype=np.float32)
    features = rng.standard_normal((images, DIMENSIONS), dtype=np.float32)
    features += centres[labels]
    return features.astype(np.float16), labels


def numpy_pair(a, b):
    return (a @ b / np.sqrt((a @ a) * (b @ b)) + 1) / 2


def loop_scores(features, labels, pair):
    """SimSS as its definition reads, one similarity a pair of images."""
    images = len(labels)
    sim = np.ones((images, images))
    for i, j in itertools.combinations(range(images), 2):
        sim[i, j] = sim[j, i] = pair(features[i], features[j])
    sums = np.stack([sim[:, labels == c].sum(axis=1) for c in range(labels.max() + 1)], axis=1)
    counts, rows = np.bincount(labels), np.arange(images)
    own = (sums[rows, labels] - 1) / (counts[labels] - 1)
    means = sums / counts
    means[rows, labels] = -1
    nearest = means.max(axis=1)
    silhouette = (own - nearest) / np.maximum(own, nearest)
    return np.mean([silhouette[labels == c].mean() for c in range(labels.max() + 1)])


def seconds(work, *arguments):
    start = time.perf_counter()
    answer = work(*arguments)
    return time.perf_counter() - start, answer


def large(folder):
    """In a process of its own, so that its peak memory is its own."""
    features, labels = np.load(Path(folder) / "features.npy", mmap_mode="r"), np.load(Path(folder) / "labels.npy")
    spent, scores = seconds(similarity_scores, features, labels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    matrix = class_similarity(features, labels)
    draws = [draw_subset(1000, n, s).classes for n in (2, 3, 4, 5, 10) for s in range(10)]
    swept, _ = seconds(lambda: [subset_scores(matrix, labels, np.array(classes)) for classes in draws])
    print(json.dumps({"spent": spent, "peak": peak, "simss": scores.simss, "swept": swept, "subsets": len(draws)}))


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, array in zip(("features", "labels"), features_of(50_000, 1_000), strict=True):
            np.save(Path(folder) / f"{name}.npy", array)
        done = subprocess.run([sys.executable, __file__, folder], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(f"50,000 x {DIMENSIONS}, 1,000 classes: {found['spent']:.2f} s, peak memory {found['peak'] / 1e9:.2f} GB")
    print(f"{found['subsets']} subsets of 2 to 10 classes from its matrix: {found['swept']:.3f} s")

    half, labels = features_of(2_000, 100)
    ours = min(seconds(similarity_scores, half, labels)[0] for _ in range(20))
    simss = similarity_scores(half, labels).simss
    print(f"2,000 x {DIMENSIONS}, 100 classes, closed form: {ours * 1e3:.1f} ms")
    features = half.astype(np.float64)
    import torch

    cosine, tensors = torch.nn.CosineSimilarity(dim=0), torch.from_numpy(features.astype(np.float32))
    torch.set_num_threads(1)  # a pair is too small to share
    loops = {
        "numpy, a dot product a pair": (features, numpy_pair),
        "torch.nn.CosineSimilarity and .item() a pair, as the paper's code": (
            tensors,
            lambda a, b: (cosine(a, b).item() + 1) / 2,
        ),
    }
    for name, (rows, pair) in loops.items():
        spent, reference = seconds(loop_scores, rows, labels, pair)
        print(f"loop over pairs ({name}): {spent:.1f} s, {spent / ours:,.0f} times as long")
        assert abs(reference - simss) < 1e-6
    print(f"{os.cpu_count()} cores, numpy {np.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    large(sys.argv[1]) if len(sys.argv) > 1 else main()
