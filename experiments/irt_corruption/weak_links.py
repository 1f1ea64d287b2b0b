#!/usr/bin/env python
"""Where a gap in ability is lost for want of common items, does fca say so, and is it silent about random designs?

    python experiments/irt_corruption/weak_links.py          2 CPU minutes

Simulated responses, slopes 1, three seeds of 40 sets a design in the 1pl, one seed of 20 in the 2pl:

- blocks: two groups of n subjects whose mean abilities differ by a gap (standard deviation 0.7 within each), own items
  near their ability, and common items at the middle;
- nearest: abilities and difficulties N(0, 1); each subject responds to the items nearest to its ability, and all to the
  common ones;
- random: abilities and difficulties N(0, 1); each subject responds to random items.

The gap is that of the two groups, elsewhere that of the ablest and the weakest quarter, true and as fitted (in the 2pl
in standard deviations of the subjects). Lost: sets in which less than half of a true gap of 1.5 or more is left. Named:
sets with a weak link. Before, a standard error of twice that with known difficulties was asked for.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from fca.studies.irt.stats import IrtFit, Link, fit_irt, parts_of, weakest_link

SEEDS = {"1pl": (1, 2, 3), "2pl": (4,)}
SETS = {"1pl": 40, "2pl": 20}
LEAST_GAP = 1.5


class Design(NamedTuple):
    """Abilities, difficulties, and which responses there are."""

    ability: Float[np.ndarray, " subjects"]
    difficulty: Float[np.ndarray, " items"]
    is_present: Bool[np.ndarray, "subjects items"]


def blocks(rng: np.random.Generator, subjects: int, own: int, common: int, gap: float) -> Design:
    middle = np.repeat([gap / 2, -gap / 2], subjects)
    ability = middle + rng.normal(0, 0.7, 2 * subjects)
    own_difficulty = np.repeat([gap / 2, -gap / 2], own) + rng.normal(0, 0.7, 2 * own)
    difficulty = np.append(own_difficulty, rng.normal(0, 1, common))

    is_present = np.ones((2 * subjects, 2 * own + common), dtype=bool)
    is_present[:subjects, own : 2 * own] = False
    is_present[subjects:, :own] = False
    return Design(ability, difficulty, is_present)


def nearest(rng: np.random.Generator, subjects: int, near: int, items: int, common: int) -> Design:
    ability, difficulty = rng.normal(size=subjects), rng.normal(size=items)
    by_distance = np.argsort(np.abs(difficulty - ability[:, None]), axis=1)
    is_present = np.zeros((subjects, items), dtype=bool)
    np.put_along_axis(is_present, by_distance[:, :near], True, axis=1)
    is_present[:, rng.choice(items, common, replace=False)] = True
    return Design(ability, difficulty, is_present)


def at_random(rng: np.random.Generator, subjects: int, responses: int, items: int) -> Design:
    is_present = np.zeros((subjects, items), dtype=bool)
    for subject in range(subjects):
        is_present[subject, rng.choice(items, responses, replace=False)] = True
    return Design(rng.normal(size=subjects), rng.normal(size=items), is_present)


BLOCKS = [
    (10, 12, 4, 4),
    (20, 12, 4, 4),
    (20, 14, 6, 4),
    (30, 14, 8, 4),
    (40, 25, 12, 4),
    (20, 12, 4, 2),
    (20, 14, 8, 2),
]
NEAREST = [(40, 25, 200, 0), (40, 25, 200, 10), (40, 15, 200, 10), (60, 40, 300, 10), (60, 40, 300, 60)]
RANDOM = [(30, 14, 200), (60, 50, 500), (20, 30, 100), (60, 14, 200), (100, 20, 200), (12, 40, 400)]


def was_named(link: Link, responses: np.ndarray, fit: IrtFit) -> bool:
    """Whether the earlier rule named this link."""
    p = fit.probability()
    information = np.where(np.isnan(responses), 0.0, fit.discrimination**2 * p * (1 - p))
    informs = np.nanmin(responses, axis=0) < np.nanmax(responses, axis=0)
    varies = np.nanmin(responses[:, informs], axis=1) < np.nanmax(responses[:, informs], axis=1)
    of_subject = information[np.ix_(varies, informs)].sum(axis=1)

    group = link.group[varies]
    contrast = group / group.sum() - ~group / (~group).sum()
    known_se = np.sqrt(np.sum(contrast**2 / of_subject))
    return link.shift_se > 2 * known_se and (link.shift_se > 0.5 or link.kept < 0.5)


def gap_between(values: np.ndarray, ability: np.ndarray, has_blocks: bool) -> float:
    if has_blocks:
        half = len(values) // 2
        return float(values[:half].mean() - values[half:].mean())

    order = np.argsort(ability)
    quarter = len(values) // 4
    return float(values[order[-quarter:]].mean() - values[order[:quarter]].mean())


def row(model: str, kind: str, numbers: tuple[int, ...], make: Callable[..., Design]) -> str:
    gaps, lost, before, now, by_seed = [], [], [], [], []
    for seed in SEEDS[model]:
        rng = np.random.default_rng(seed)
        named_of_seed = 0
        for _ in range(SETS[model]):
            design = make(rng, *numbers)
            p = expit(design.ability[:, None] - design.difficulty)
            responses = np.where(design.is_present, rng.random(p.shape) < p, np.nan)
            responses = responses[:, design.is_present.any(axis=0)]
            if parts_of(responses).max() > 0:  # fitted apart
                continue

            fit = fit_irt(responses, model)
            link = weakest_link(responses, fit)
            unit = 1.0 if model == "1pl" else design.ability.std()
            true = gap_between(design.ability, design.ability, kind == "blocks") / unit
            fitted = gap_between(fit.ability, design.ability, kind == "blocks")
            gaps.append((true, fitted))
            lost.append(true >= LEAST_GAP and fitted < true / 2)
            before.append(link is not None and was_named(link, responses, fit))
            now.append(link is not None and link.is_weak)
            named_of_seed += now[-1]
        by_seed.append(named_of_seed)

    true, fitted = np.mean(gaps, axis=0)
    of_lost = [f"{np.sum(np.logical_and(named, lost))}" for named in (before, now)]
    cells = [model, kind, " ".join(map(str, numbers)), f"{true:.2f}", f"{fitted:.2f}", f"{np.sum(lost)} of {len(lost)}"]
    cells += [*of_lost, f"{np.sum(before)}", " + ".join(map(str, by_seed))]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    heads = ["model", "design", "numbers", "true gap", "fitted gap", "lost", "of these named before", "now"]
    heads += ["named before", "now, by seed"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for model in SEEDS:
        for kind, make, sizes in (
            ("blocks", blocks, BLOCKS),
            ("nearest", nearest, NEAREST),
            ("random", at_random, RANDOM),
        ):
            for numbers in sizes:
                print(row(model, kind, numbers, make), flush=True)


if __name__ == "__main__":
    main()
