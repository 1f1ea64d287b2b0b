"""What several tests share: rows of searches over a small domain."""

import numpy as np

from fca.studies.search.stats import Domain

TINY = Domain({"a": ["x", "y"], "b": ["u", "v", "w"]})


def searched(lab, right, domain=TINY, seed=0, complete=True, **columns):
    """A stored search of all subdomains in any order: every image of `right` is accepted, some others are not."""
    rng = np.random.default_rng(seed)
    visited = rng.permutation(np.repeat(np.arange(len(domain)), 2)).astype(np.int32)  # each is visited twice
    lines, next_image, half = [], np.zeros(len(domain), int), right.shape[1] // 2
    for visit, subdomain in enumerate(visited):
        lines += [(visit, False, bool(rng.random() < 0.5))] * int(rng.integers(3))  # refused by the filter
        for _ in range(half):
            lines.append((visit, True, bool(right[subdomain, next_image[subdomain]])))
            next_image[subdomain] += 1
    visit, accepted, correct = (np.array(of) for of in zip(*lines, strict=True))
    arrays = {"domain": np.array([domain.as_json()]), "visited": visited}
    arrays |= {"correct": np.bincount(visit, correct & accepted).astype(np.int32)}
    arrays |= {"shown": np.bincount(visit, accepted).astype(np.int32)}
    arrays |= {"image_visit": visit.astype(np.int32), "image_accepted": accepted, "image_correct": correct}
    about = {"task": "search", "dataset": "zoo", "model": "net", "n_subdomains": len(domain), "seed": seed}
    return lab.write(arrays, **{**about, "n_visited": len(domain) - (not complete), **columns})
