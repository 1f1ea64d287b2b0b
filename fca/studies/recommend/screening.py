"""Which programs are worth a probe on all images, after all of them were probed on few."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from fca.stats.decision import probability_chosen
from fca.studies.recommend.choice import Comparison
from fca.studies.recommend.evidence import Program

FINALISTS = 5  # passes over all images, at most
COVERED = 0.9  # probability that the answer is among them, from which on there are enough


def finalists(screened: Comparison, pass_of: Mapping[Program, Hashable]) -> list[Hashable]:
    """The passes that are worth computing on all images, since one of their programs may well be recommended.

    A pass computes the features of one network for all images; the depths of a network are programs that share it. The
    passes of the programs that `screened` recommends come first. Others follow by the probability that one of their
    programs is the one to recommend, until the total probability is COVERED or there are FINALISTS passes.

    screened: the comparison of the candidates by few images.
    pass_of:  what identifies the pass of each program; programs without a pass are left out.
    """
    probability_of_pass = _probability_of_passes(screened, pass_of)
    likeliest_first = sorted(probability_of_pass, key=lambda one_pass: -probability_of_pass[one_pass])

    # the lines of the recommendation: the smallest program that is accurate enough, the most accurate one, and perhaps
    # a faster one
    recommended_programs = [screened.candidates[line.candidate].program for line in screened.lines]
    chosen = list(dict.fromkeys(pass_of[program] for program in recommended_programs if program in pass_of))
    for one_pass in likeliest_first:
        covered = sum(probability_of_pass[chosen_pass] for chosen_pass in chosen)
        if one_pass not in chosen and covered < COVERED and len(chosen) < FINALISTS:
            chosen.append(one_pass)
    return chosen


def _probability_of_passes(screened: Comparison, pass_of: Mapping[Program, Hashable]) -> dict[Hashable, float]:
    """For each pass, the probability that one of its programs is the one to recommend; empty if none is compared.

    The arguments are those of `finalists`.
    """
    positions = [i for i in screened.compared if screened.candidates[i].program in pass_of]
    if not positions:
        return {}

    # the probability of each program to be the smallest within the margin of the best, from joint draws of accuracies;
    # sizes: what is to be small, usually the time for one image
    probabilities = probability_chosen(screened.draws[:, positions], screened.sizes[positions], screened.limits.within)
    total: dict[Hashable, float] = {}
    for i, probability in zip(positions, probabilities, strict=True):
        program_pass = pass_of[screened.candidates[i].program]
        total[program_pass] = total.get(program_pass, 0.0) + float(probability)
    return total
