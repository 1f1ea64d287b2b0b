#!/usr/bin/env python
"""What does a fit of few responses claim to know, and how firmly do few common items link two groups of subjects?

    python experiments/irt_corruption/few_responses.py        8 CPU minutes

First table: 40 simulated sets a size; abilities N(0, 1), difficulties N(-1, spread²), log discriminations N(0, 0.3²).
Before: scales of the prior learned even where they fall to 0. Now: such scales are held at the prior's values and
named. Shares of the sets; the least of their median standard errors of difficulty; the largest outfit of a subject; and
in the 1pl, whose unit is a logit, the share of difficulties inside their 95 % intervals.

Second table: two groups of 20 subjects with 40 items each, 4 logits apart in ability and in difficulty, so that their
accuracies are alike, linked by subjects of the second group who respond to one item of the first. The gap that a 1pl
finds, mean and standard deviation of 40 sets; and the standard error of the shift by the responses alone, and the share
of it that the prior leaves, by both of which fca warns.
"""

import numpy as np
from scipy.special import expit

from fca.studies.irt.stats import fit_irt, parts_of, weakest_link
from fca.studies.irt.stats.fit import as_fit
from fca.studies.irt.stats.likelihood import first_state, prepare
from fca.studies.irt.stats.model import MODELS, IrtFit
from fca.studies.irt.stats.solve import SPREAD_FLOOR, find_best_mode
from fca.studies.psychometrics.stats.item_fit import mean_squares
from fca.types import FcaError

SIZES = [(4, 4), (5, 10), (2, 100), (3, 100), (4, 100), (20, 40)]
SETS = 40


def drawn(rng: np.random.Generator, subjects: int, items: int, spread: float = 1.0, slopes: float = 0.3):
    """Right or wrong responses, and the difficulties."""
    ability, difficulty = rng.normal(size=(subjects, 1)), rng.normal(-1, spread, items)
    p = expit(np.exp(rng.normal(0, slopes, items)) * (ability - difficulty))
    return (rng.random(p.shape) < p).astype(float), difficulty


def with_all_scales_learned(responses: np.ndarray, model: str) -> tuple[IrtFit | None, bool]:
    """The fit as it was, None where it failed; and whether a scale is at its floor, or never settled."""
    data = prepare(responses, one_slope=model == "1pl")
    try:
        mode = find_best_mode(data, first_state(data, model))
        prior = mode.state.prior
        at_floor = min(prior.spread, np.exp(prior.log_slope)) <= SPREAD_FLOOR * 1.001
        return as_fit(mode, data), at_floor or not mode.converged
    except np.linalg.LinAlgError:
        return None, True


def inside(fit: IrtFit, difficulty: np.ndarray) -> float:
    return float(np.mean(np.abs(fit.difficulty - difficulty) < 1.96 * fit.difficulty_se))


def collapsed(model: str, subjects: int, items: int, spread: float) -> str:
    rng, lines = np.random.default_rng(7), []
    for _ in range(SETS):
        responses, difficulty = drawn(rng, subjects, items, spread, 0.0 if model == "1pl" else 0.3)
        try:
            now = fit_irt(responses, model)
        except FcaError:  # no item divides the subjects
            continue
        before, at_floor = with_all_scales_learned(responses, model)
        old = [np.nan] * 3
        if before is not None:
            outfit = mean_squares(responses, before)[1].outfit
            outfit = np.nanmax(outfit) if np.isfinite(outfit).any() else np.nan
            old = [np.median(before.difficulty_se), outfit, inside(before, difficulty)]
        new = [np.median(now.difficulty_se), np.nanmax(mean_squares(responses, now)[1].outfit), inside(now, difficulty)]
        lines.append([at_floor, bool(now.not_estimable), not now.converged, *old, *new])
    table = np.array(lines, dtype=float)
    floor, named, unsettled = (f"{int(table[:, at].sum())} of {len(table)}" for at in range(3))
    cells = [model, f"{subjects} x {items}", f"{spread:g}", floor, named, unsettled]
    cells += [f"{value:.2f}" for value in np.nanmin(table[:, [3, 6]], axis=0)]
    cells += [f"{value:.3g}" for value in np.nanmax(table[:, [4, 7]], axis=0)]
    cells += [f"{value:.2f}" if model == "1pl" else "" for value in np.nanmean(table[:, [5, 8]], axis=0)]
    return f"| {' | '.join(cells)} |"


def linked(common: int) -> str:
    rng, first = np.random.default_rng(3), np.arange(40) < 20
    gaps, links = [], []
    for _ in range(SETS):
        ability = np.where(first, 2.0, -2.0) + rng.normal(0, 0.5, 40)
        difficulty = np.repeat([2.0, -2.0], 40) + rng.normal(0, 0.7, 80)
        if common:
            difficulty[0] = 0.0
        p = expit(ability[:, None] - difficulty)
        responses = (rng.random(p.shape) < p).astype(float)
        responses[:20, 40:] = np.nan
        responses[20:, 1:40] = np.nan
        responses[20 + common :, 0] = np.nan
        if parts_of(responses).max() > 0:
            return f"| {common} | fitted apart | | | |"
        fit = fit_irt(responses, "1pl")
        link = weakest_link(responses, fit)
        gaps.append(fit.ability[first].mean() - fit.ability[~first].mean())
        links.append((np.inf, 0.0) if link is None else (link.shift_se, link.kept))
    error, kept = np.median(links, axis=0)
    return f"| {common} | {np.mean(gaps):.2f} | {np.std(gaps):.2f} | {error:.2f} | {kept:.0%} |"


def main() -> None:
    heads = [
        "model",
        "subjects x items",
        "planted spread",
        "before: at floor or unsettled",
        "now: named",
        "now: unsettled",
    ]
    heads += ["least median se before", "now", "largest outfit before", "now", "inside 95 % before", "now"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for model in MODELS:
        for size in SIZES:
            for spread in (0.3, 1.0, 2.0) if model == "1pl" else (1.0,):
                print(collapsed(model, *size, spread), flush=True)
    print(
        "\n| common responses | gap found (planted 4) | its sd | standard error of the shift | kept |\n"
        "|---|---|---|---|---|"
    )
    for common in (0, 1, 3, 5, 10, 20):
        print(linked(common), flush=True)


if __name__ == "__main__":
    main()
