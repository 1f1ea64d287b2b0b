#!/usr/bin/env python
"""What does each part of a hierarchical score detect? Simulated answers with planted effects; README.md has the table.

    python experiments/progressive/score_parts.py [RUNS]        400 runs of four designs, 40 s; 100 classes: RUNS 100

Ten classes x ten attributes x twelve triplets, as in the drawn test set. Logits of a right answer are 2, 1 and -1 on
easy, medium and hard images, plus normal effects of the class, of the session (class and attribute) and of the object.
"""

import sys

import numpy as np

from fca.studies.progressive.stats.hierarchy import explained_scores, matched_score

DESIGNS = {  # standard deviations of class, session and object effects, in logits
    "answers independent, all sessions alike": (0.0, 0.0, 0.0),
    "answers independent inside sessions, which differ": (1.0, 1.0, 0.0),
    "objects differ, sessions alike": (0.0, 0.0, 1.5),
    "sessions and objects differ": (1.0, 1.0, 1.0),
}
ATTRIBUTES, TRIPLETS = 10, 12


def answers(rng: np.random.Generator, classes: int, sds: tuple[float, float, float]) -> np.ndarray:
    """Right or wrong, (classes, attributes, triplets, 3)."""
    eta = np.array([2.0, 1.0, -1.0])
    for sd, shape in zip(sds, ((1, 1), (ATTRIBUTES, 1), (ATTRIBUTES, TRIPLETS)), strict=True):
        eta = eta + sd * rng.standard_normal((classes, *shape, 1))
    return rng.random((classes, ATTRIBUTES, TRIPLETS, 3)) < 1 / (1 + np.exp(-eta))


def of_one(right: np.ndarray, seed: int) -> list[float]:
    """The line of one simulated model."""
    classes = np.repeat(np.arange(len(right)), ATTRIBUTES)
    made = explained_scores(right.mean(axis=2).reshape(-1, 3), classes)
    sessions = np.repeat(np.arange(len(classes)), TRIPLETS)
    found = matched_score(right.reshape(-1, 3), sessions, np.repeat(classes, TRIPLETS))
    differences = [(part.value, part.low > 0, part.low <= 0 <= part.high) for part in (made.excess, found.excess)]
    return [found.score.value, made.session.value, made.level.value, *differences[0], *differences[1], found.p < 0.05]


def main(runs: int = 400) -> None:
    head = (
        "answers | classes | score | session rates | level rates | session excess | above 0 | matched excess | above 0"
    )
    print(f"| {head} | 0 inside | p < .05 |\n" + "|" + "---|" * 11)
    for classes, times in ((10, runs), (100, runs // 4)):
        for design, sds in DESIGNS.items():
            rng = np.random.default_rng([classes, *(int(10 * sd) for sd in sds)])
            mean = np.mean([of_one(answers(rng, classes, sds), seed) for seed in range(times)], axis=0)
            score, session, level, excess, differ, _, matched, same, inside, p = mean
            cells = [f"{score:.3f}", f"{session:.3f}", f"{level:.3f}", f"{excess:+.3f}", f"{differ:.0%}"]
            cells += [f"{matched:+.3f}", f"{same:.1%}", f"{inside:.1%}", f"{p:.1%}"]
            print(f"| {design} | {classes} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
