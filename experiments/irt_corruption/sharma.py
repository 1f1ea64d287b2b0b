"""What Sharma et al. (Do models see corruption as we see?, 2023) report: their numbers and statements, as facts.

Corruptions and classes have the names that stored runs have; `where` is the section, table or figure of the paper.
"""

from __future__ import annotations

from typing import NamedTuple

PAPER = "Sharma et al. (Do models see corruption as we see?, 2023)"
DATASET = "cifar10"
MODEL = "3pl-upper"  # its eq. 3, called 4PL there
RULE = "low_discrimination_feasibility"  # of analysis=label_errors: its rule
SEGMENTS = ("easy", "med_easy", "med_hard", "hard")
SUBJECTS = 90  # 15 models at 1, 10, 30, 50, 70 % of the epochs, and the best checkpoint (appendix C)
IMAGES = 2500  # in a segment, if its segments are quarters of the 10,000 test images of one severity

TABLE1 = {  # corruption -> susceptible classes, robust classes
    "defocus_blur": (("frog", "truck"), ("airplane", "horse")),
    "glass_blur": (("automobile", "frog"), ("horse", "cat")),
    "motion_blur": (("bird", "truck"), ("ship", "dog")),
    "zoom_blur": (("frog", "deer"), ("horse", "ship")),
    "gaussian_blur": (("truck", "dog"), ("horse", "airplane")),
    "elastic_transform": (("automobile", "deer"), ("airplane", "horse")),
    "jpeg_compression": (("cat", "automobile"), ("airplane", "dog")),
    "pixelate": (("automobile", "deer"), ("horse", "airplane")),
    "gaussian_noise": (("cat", "ship"), ("automobile", "horse")),
    "impulse_noise": (("cat", "ship"), ("bird", "deer")),
}
TABLE2 = {  # corruption at severity 1 -> Kendall's tau of ability with accuracy
    "elastic_transform": 0.9709,
    "frost": 0.9729,
    "zoom_blur": 0.9698,
    "motion_blur": 0.9776,
    "brightness": 0.9729,
    "defocus_blur": 0.9750,
    "snow": 0.9735,
    "fog": 0.9784,
    "spatter": 0.9753,
}
TABLE3_KIND = "brightness"  # its severity is not stated
TABLE3 = {  # subject -> images that it gets right in each segment
    "Mnetv3_E1": (392, 281, 173, 157),
    "AlexNet": (1323, 575, 329, 255),
    "Mnetv3_E2": (246, 206, 246, 302),
    "Mnetv3_E3": (1028, 633, 378, 335),
    "ViTb16_E2": (2283, 2431, 2313, 2144),
    "SwinBase_E2": (2284, 2428, 2336, 2169),
    "R101Best": (2285, 2415, 2252, 1578),
    "R101_E2": (2287, 2400, 2219, 1384),
}
MODELS = {  # the paper's subjects -> model=...
    "Mnetv3": "mobilenetv3_large",
    "AlexNet": "alexnet",
    "ViTb16": "vit_b16",
    "SwinBase": "swin_base",
    "R101": "resnet101",
}
FIGURE4 = {  # class -> is it seldom or often among the quarter of the most discriminating and difficult images
    **dict.fromkeys(("cat", "dog", "bird"), "few"),
    **dict.fromkeys(("ship", "truck", "automobile"), "many"),
}
ERRORS = (0.30, 0.40)  # share of the annotation errors that are low in discrimination and feasibility (section 3.1)


class Move(NamedTuple):
    """As severity grows, a class has more, fewer or as many (same) images in a segment."""

    where: str
    kind: str
    parameter: str
    segment: str
    label: str
    paper: str


MOVES = (
    Move("figure 8", "jpeg_compression", "discrimination", "low", "dog", "more"),
    Move("figure 8", "jpeg_compression", "discrimination", "low", "airplane", "fewer"),
    Move("figure 9", "jpeg_compression", "discrimination", "high", "bird", "more"),
    Move("figure 9", "jpeg_compression", "discrimination", "high", "frog", "fewer"),
    Move("figure 10", "brightness", "difficulty", "easy", "airplane", "fewer"),
    Move("figure 10", "brightness", "difficulty", "easy", "truck", "more"),
    Move("figure 10", "brightness", "difficulty", "hard", "airplane", "more"),
    Move("figure 10", "brightness", "difficulty", "hard", "truck", "fewer"),
    Move("figure 10", "brightness", "difficulty", "hard", "deer", "same"),
)
CONTRADICTIONS = (  # of the paper with itself: on what; one place and its words; the other place and its words
    (
        "robust under blur",
        *("section 3.2", "horse, ship"),
        *("table 1, defocus blur", "airplane, horse (horse, ship is its zoom blur, whose susceptible pair differs)"),
    ),
    (
        "sign of robustness",
        *("section 3.2", "robustness is how consistent the score is over severities"),
        *("section 3.2", "the score is a standard deviation, and the most robust classes have the highest"),
    ),
    (
        "cat: difficult or not",
        *("section 3.3", "cat, dog and bird are difficult classes; so are ship, truck and automobile"),
        *("figure 4", "cat has few images in the most difficult quarter and many in the least difficult"),
    ),
    (
        "cat: easy to tell or not",
        *("section 1", "cat and dog are the easiest to distinguish, ship and automobile the hardest"),
        *("section 3.3", "cat, dog and bird discriminate little, ship, truck and automobile much"),
    ),
    (
        "order of the segments",
        *("section 3.3", "the segments go from easy to hard"),
        *("table 3", "five of eight subjects get more right in med_easy than in easy or more in hard than in easy"),
    ),
    (
        "what finds annotation errors",
        *("section 1", "low discrimination; CIFAR-10, CIFAR-100 and ImageNet"),
        *("section 3.1", "low discrimination and low feasibility; CIFAR-10 and ImageNet; how low is not stated"),
    ),
)


def run_command(dataset: str, kind: str | None = None, models: tuple[str, ...] = ()) -> str:
    """Makes the paper's subjects (or those of some models) and their responses, clean and under one kind or all."""
    words = [f"dataset={dataset}"]
    words += [f"model={','.join(models)}"] if models else []
    words += [f"shift=corruption/{kind}"] if kind else []
    return " ".join(["fca run -m experiment=irt_corruption", *words])


def model_of(subject: str) -> str:
    """What runs of a subject of Table 3 are called.

    >>> model_of("R101Best"), model_of("Mnetv3_E1"), model_of("AlexNet")
    ('resnet101', 'mobilenetv3_large', 'alexnet')
    """
    return next(model for name, model in MODELS.items() if subject.startswith(name))
