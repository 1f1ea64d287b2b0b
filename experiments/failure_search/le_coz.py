"""What the paper on guided failure search prints (Le Coz, Ouertatani, Herbin, Adjed, 2024), as data."""

from __future__ import annotations

from typing import NamedTuple

PAPER = "Le Coz et al., 2024 (arXiv:2405.02332)"
COMBINATIONS, SUBDOMAINS, DOG_CLASSES = 1_344, 1_032, 119
AT = 61  # subdomains of its histogram, "selected by 3-wise testing"
MINUTES, GPU_HOURS = 12, 200  # of a V100, a subdomain and all of them
ALL_FOUND = 0.40  # share explored when BO with Lasso has found the worst tenth, "after evaluating ~40 %"
PARTIAL = 300  # subdomains explored for the averages of attribute values


class Statement(NamedTuple):
    """What the paper states.    command: what fills our side where nothing is stored."""

    where: str
    text: str
    command: str


FULL = "fca run -m experiment=failure_search task.policy=random task.max_subdomains=null dataset.root=..."
REPLAY = "fca analyse analysis=search_benchmark"
STATEMENTS = {
    "valid": Statement("Sec. 4.1", "1,344 combinations, of which 1,032 are valid", ""),
    "dogs": Statement("Sec. 3.1", "119 of ImageNet's 1,000 classes are breeds of dogs", ""),
    "clean": Statement(
        "Sec. 4.1", "the dog classifier is right on more than 99 % of ImageNet's validation images", FULL
    ),
    "three_wise": Statement("Sec. 4.3", "3-wise testing selects 61 subdomains", ""),
    "n_wise": Statement("Fig. 4c", "n-wise testing is not much better than random selection", REPLAY),
    "genetic": Statement("Fig. 4c", "the genetic algorithm is much better than random selection", REPLAY),
    "bo": Statement("Fig. 4c", "Bayesian optimisation is better than the genetic algorithm", REPLAY),
    "forty": Statement("Fig. 4c", "it finds all of the worst tenth after about 40 % of the subdomains", REPLAY),
    "at_61": Statement("Fig. 4e", "at 61 subdomains both have found many more low accuracies than random", REPLAY),
    "predictors": Statement("Fig. 4d", "all predictors but SVR order the subdomains about equally well", REPLAY),
    "small": Statement("Fig. 4d", "Lasso is the best predictor from few subdomains", REPLAY),
    "hours": Statement("Sec. 4.2", "12 minutes a subdomain, about 200 hours for all, on one V100", FULL),
}
