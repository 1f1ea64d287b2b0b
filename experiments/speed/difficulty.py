"""Is the difficulty of every pair of classes fast enough for ImageNet? The matrix against a loop over pairs.

    python experiments/speed/difficulty.py            about 1 minute on 2 cores

Expect: SimSS of all 499,500 pairs of 1,000 classes (50,000 images) in under 5 s and under 1 GB beside the matrix;
hundreds of times as fast as scoring each pair from its features. The loop is timed on 500 pairs and scaled up.
"""

import numpy as np
from harness import features_of, machine, options, peak, timed

from fca.stats.similarity import class_similarity, fca_released, released_draw, similarity_scores, subset_scores
from fca.studies.few_class.stats.difficulty import extreme_subset, pair_simss, random_simss, what_if_added


def main():
    size = options(__doc__, images=(50_000, 400), classes=(1_000, 20), sampled=(500, 5))
    features, labels = features_of(size.images, size.classes)
    spent, _, matrix = timed(class_similarity, features, labels)
    print(f"matrix of {size.images:,} images and {size.classes:,} classes: {spent:.2f} s")
    before = peak()
    ours, _, table = timed(pair_simss, matrix, labels)
    total = size.classes * (size.classes - 1) // 2
    print(f"{total:,} pairs: {ours:.2f} s, {max(0, peak() - before) / 1e9:.2f} GB above the peak so far")
    rng = np.random.default_rng(1)
    pairs = [sorted(rng.choice(size.classes, 2, replace=False)) for _ in range(size.sampled)]
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    rows = [np.concatenate([members[a], members[b]]) for a, b in pairs]
    for name, score, arguments in (
        ("similarity_scores of their features", lambda r: similarity_scores(features[r], labels[r]).simss, rows),
        ("subset_scores from the matrix", lambda pair: subset_scores(matrix, labels, np.array(pair)).simss, pairs),
    ):
        loop = timed(lambda score=score, arguments=arguments: [score(one) for one in arguments])
        assert np.allclose(loop.result, [table[a, b] for a, b in pairs], atol=1e-9)
        scaled = loop.wall / size.sampled * total
        print(f"loop over pairs, {name}: {scaled:,.0f} s (from {size.sampled} pairs), {scaled / ours:,.0f} times")
    for n in (3, 5, 10):
        spent, _, found = timed(lambda n=n: extreme_subset(matrix, labels, n, pairs=table))
        print(f"hardest {n} classes: {spent:.1f} s (SimSS {found.simss:.4f})")
    print(f"one class more, each of them: {timed(what_if_added, matrix, labels, np.arange(5)).wall:.3f} s")
    print(f"1,000 random subsets of 5: {timed(random_simss, matrix, labels, 5).wall:.2f} s")
    sizes = [n for n in (2, 3, 4, 5, 10, 100) if n < size.classes]
    grid = [released_draw(size.classes, n, s) for n in sizes for s in range(5)]
    spent = timed(fca_released, features, labels, grid).wall
    print(f"the released scores of {len(grid)} subsets of figure 5: {spent:.1f} s")
    machine()


if __name__ == "__main__":
    main()
