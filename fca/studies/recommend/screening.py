"""Which programs are worth a probe on all images, after all of them were probed on few."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from fca.stats.decision import probability_chosen
from fca.studies.recommend.choice import Weighed
from fca.studies.recommend.evidence import Program

FINALISTS = 5  # passes over all images, at most
COVERED = 0.9  # probability that the answer is among them, from which on there are enough


def finalists(screened: Weighed, pass_of: Mapping[Program, Hashable]) -> list[Hashable]:
    """Passes over all images that may well decide the answer, the likeliest first: FINALISTS of them, at most.

    Those of the answer's lines by few images, then others by the probability that one of their programs is the answer,
    until it is COVERED.

    screened: the candidates as few images judge them.
    pass_of:  of each program the pass that gives its features, which depths of a network share; others are left out.
    """
    chance = _chance_of_passes(screened, pass_of)
    likeliest = sorted(chance, key=lambda one: -chance[one])
    programs = [screened.candidates[line.at].program for line in screened.lines]
    chosen = list(dict.fromkeys(pass_of[program] for program in programs if program in pass_of))
    for one in likeliest:
        covered = sum(chance[other] for other in chosen)
        if one not in chosen and covered < COVERED and len(chosen) < FINALISTS:
            chosen.append(one)
    return chosen


def _chance_of_passes(screened: Weighed, pass_of: Mapping[Program, Hashable]) -> dict[Hashable, float]:
    """The probability that a program of a pass is the answer, of each pass."""
    known = [at for at in screened.compared if screened.candidates[at].program in pass_of]
    if not known:
        return {}
    chance = probability_chosen(screened.draws[:, known], screened.cost[known], screened.limits.within)
    of_passes: dict[Hashable, float] = {}
    for at, of_program in zip(known, chance, strict=True):
        one = pass_of[screened.candidates[at].program]
        of_passes[one] = of_passes.get(one, 0.0) + float(of_program)
    return of_passes
