"""Which classes a few-class job has: seeded random draws that anybody can repeat."""

from __future__ import annotations

import random
from collections.abc import Sequence

from fca.nouns import ClassSubset, FcaError

SAMPLERS = ("uniform", "fca")


def draw_subset(num_classes: int, ncl: int, seed: int, sampler: str = "uniform") -> ClassSubset:
    """Draw `ncl` of `num_classes` classes; the same on every machine and Python (the standard library's generator).

    uniform: every class can be drawn, and the draws of different (num_classes, ncl, seed) are independent.
    fca:     what the released Few-Class Arena draws: its range leaves out the last class, and the subsets of one
             seed are nested over small ncl (github.com/fewclassarena/fca, tools/dataset_converters/convert_ncls.py).

    Raises FcaError if ncl is outside 2..num_classes (fca: one less, unless all classes are asked for).

    >>> draw_subset(10, 3, seed=0).classes
    (2, 3, 8)
    >>> draw_subset(1000, 2, seed=0, sampler="fca").classes
    (394, 864)
    """
    if sampler not in SAMPLERS:
        raise FcaError("subset.sampler", sampler, ", ".join(SAMPLERS), "take one of these")
    if ncl == num_classes and ncl >= 2:
        return full_set(num_classes)
    reachable = num_classes - (sampler == "fca")
    if not 2 <= ncl <= reachable:
        allowed = f"2 to {reachable}" + (
            f", or all {num_classes} (fca never draws the last class)" if sampler == "fca" else ""
        )
        raise FcaError("subset.ncl", ncl, allowed, "change subset.ncl or take a dataset with more classes")
    rng = random.Random(seed if sampler == "fca" else f"{num_classes}:{ncl}:{seed}")
    return ClassSubset(tuple(sorted(rng.sample(range(reachable), ncl))), seed, sampler)


def number_of_classes(asked: int | float, num_classes: int) -> int:
    """The ncl that is asked for: a whole number of classes, or a share of them below 1 (rounded down, as the paper's).

    Raises FcaError for a number in between.

    >>> number_of_classes(5, 100), number_of_classes(0.1, 47)
    (5, 4)
    """
    if asked != int(asked) and not 0 < asked < 1:
        allowed = f"a whole number from 2 to {num_classes}, or a share of them between 0 and 1"
        raise FcaError("subset.ncl", asked, allowed, "e.g. subset.ncl=5, or subset.ncl=0.1 for a tenth of the classes")
    return int(asked) if asked == int(asked) else int(num_classes * asked)


def full_set(num_classes: int) -> ClassSubset:
    """All classes: one subset whatever the seed, so nothing says how it was drawn."""
    return ClassSubset(tuple(range(num_classes)))


def named_subset(classes: Sequence[str], wanted: Sequence[str | int]) -> ClassSubset:
    """The subset of these class keys or label indices.

    >>> named_subset(("cat", "dog", "eel"), ["eel", 0]).classes
    (0, 2)
    """
    position = {key: index for index, key in enumerate(classes)}
    indices = [position.get(w, -1) if isinstance(w, str) else w for w in wanted]
    for w, index in zip(wanted, indices, strict=True):
        if not 0 <= index < len(classes):
            shown = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
            raise FcaError("subset.classes", w, f"{shown}; or 0 to {len(classes) - 1}", "name classes of this dataset")
    if len(set(indices)) != len(indices) or len(indices) < 2:
        raise FcaError("subset.classes", list(wanted), "two or more different classes", "name each class once")
    return ClassSubset(tuple(sorted(indices)))
